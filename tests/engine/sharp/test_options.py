# SPDX-License-Identifier: GPL-2.0-only
"""The published names, their defaults and what is refused (sharp.md §5)."""

import ast
from pathlib import Path
from typing import Any

import pytest

import uetproto
from uetproto.engine.sharp.options import NCCL_PRESETS, OPTIONS, WITHOUT_EFFECT, SharpOptions, declined
from uetproto.errors import LocalError

DEFAULTS = {  # typed from the page
    "log_level": 2, "enable_sat": False, "sat_threshold": 8096, "lock_batch": 65535, "lock_retries": 1,
    "lock_retry_ms": 100, "groups_per_comm": 1, "user_data": 0, "exclusive_lock": 1, "mcast_target": True,
    "group_is_target": True, "group_trim": True, "ib_timeout": 18, "ib_retry_count": 7, "ib_rnr_timer": 12,
    "ib_rnr_retry": 7, "sharp_np": 4, "enable_sharp": 0, "collnet_enable": False, "group_size_thresh": 2,
    "dynamic_trees": True, "llt_percent": 20, "sat_percent": 3,
}  # fmt: skip


def test_defaults_are_the_published_ones() -> None:
    assert {name: getattr(SharpOptions(), name) for name in DEFAULTS} == DEFAULTS


MOST = "HCOLL_BCOL_P2P_ALLREDUCE_SHARP_MAX"

PACKAGE = Path(uetproto.__file__).parent
ADVICE = ("declined", "disabled")
"""Functions of `engine.sharp.options` that say what HCOLL and NCCL do not hand to SHARP."""


def asked_for() -> set[str]:
    """Attributes that the package reads from something named `options`, or has `SharpOptions` itself read for it."""
    found: set[str] = set()
    called: set[str] = set()
    own = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        if not any(word in text for word in ("options", *ADVICE)):
            continue
        tree = ast.parse(text)
        if path == PACKAGE / "engine/sharp/options.py":
            own = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and {"options", "_options"} & {
                getattr(node.value, "id", None),
                getattr(node.value, "attr", None),
            }:
                found.add(node.attr)
            called |= {node.id} if isinstance(node, ast.Name) else set()
    for name, function in own.items():
        if name in found or (name in ADVICE and name in called):
            reads = (node for node in ast.walk(function) if isinstance(node, ast.Attribute))
            found |= {node.attr for node in reads if ast.unparse(node.value) in ("self", "options")}
    return found


def test_what_has_no_effect_says_so() -> None:
    asked = asked_for()
    silent = {option.name for option in OPTIONS if option.attribute not in asked}
    assert silent == {option.name for option in OPTIONS if option.meaning.endswith(WITHOUT_EFFECT)}
    assert "HCOLL_MAIN_IB" in silent
    assert "SHARP_COLL_OSTS_PER_GROUP" not in silent


def test_names_are_there_once() -> None:
    assert len({o.name for o in OPTIONS}) == len({o.attribute for o in OPTIONS}) == len(OPTIONS)


@pytest.mark.parametrize(
    ("texts", "legal"),
    [
        ({"SHARP_COLL_SAT": "1"}, "SHARP_COLL_ENABLE_SAT"),
        ({"HCOLL_ENABLE_SHARP": "5"}, "0 … 4"),
        ({"SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST": "1025"}, "4 … 1024"),
        ({"SHARP_COLL_ENABLE_SAT": "maybe"}, "no, yes"),
        ({"SHARP_COLL_OSTS_PER_GROUP": "1"}, "dynamic, 2"),
    ],
)
def test_what_is_wrong_is_refused_with_what_is_legal(texts: dict[str, str], legal: str) -> None:
    with pytest.raises(LocalError, match=legal):
        SharpOptions.of(texts)


def test_presets_give_way_to_what_is_set() -> None:
    options = SharpOptions.of({"SHARP_COLL_LOCK_ON_COMM_INIT": "0"}, NCCL_PRESETS)
    assert (options.enable_sat, options.lock_on_comm_init, options.log_level) == (True, False, 3)


def by_name(**texts: str) -> SharpOptions:
    return SharpOptions.of(texts, {"HCOLL_ENABLE_SHARP": "2", "SHARP_COLL_ENABLE_SAT": "1"})


@pytest.mark.parametrize(
    ("texts", "op", "nbytes", "members", "why"),
    [
        ({}, "all_reduce", 10**6, 2, None),  # as it is asked for
        ({"HCOLL_ENABLE_SHARP": "0"}, "all_reduce", 8, 8, "HCOLL_ENABLE_SHARP is 0"),
        ({"HCOLL_ML_DISABLE_BCAST": "1"}, "broadcast", 8, 8, "HCOLL_ML_DISABLE_BCAST is 1"),
        ({"HCOLL_ML_DISABLE_BCAST": "1"}, "reduce", 8, 8, None),
        ({"HCOLL_ML_DISABLE_REDUCE": "1", "HCOLL_ENABLE_SHARP": "4"}, "reduce", 8, 8, "HCOLL_ML_DISABLE_REDUCE is 1"),
        ({"HCOLL_SHARP_NP": "4"}, "barrier", 0, 3, "HCOLL_SHARP_NP is 4, here are 3"),
        ({"HCOLL_SHARP_NP": "4"}, "barrier", 0, 4, None),
        ({"HCOLL_SHARP_NP": "4", "HCOLL_ENABLE_SHARP": "3"}, "barrier", 0, 3, None),
        ({MOST: "dynamic"}, "all_reduce", 257, 8, f"{MOST} is 256, here are 257 bytes"),  # 2 OSTs of 128
        ({MOST: "dynamic"}, "all_reduce", 256, 8, None),
        ({MOST: "300"}, "all_reduce", 301, 8, f"{MOST} is 300, here are 301 bytes"),
        ({MOST: "300"}, "reduce", 301, 8, None),
        ({MOST: "300", "HCOLL_ENABLE_SHARP": "4"}, "all_reduce", 301, 8, None),
        ({MOST: "300"}, "all_reduce", 8096, 8, None),  # streamed
        ({"NCCL_SHARP_DISABLE": ""}, "all_reduce", 8, 8, None),
        ({"NCCL_SHARP_DISABLE": "1"}, "all_reduce", 8, 8, "NCCL_SHARP_DISABLE is 1"),
        ({"NCCL_COLLNET_ENABLE": "0"}, "all_reduce", 8, 8, "NCCL_COLLNET_ENABLE is 0"),
        ({"NCCL_COLLNET_ENABLE": "1"}, "all_reduce", 8, 8, None),
        ({"NCCL_SHARP_GROUP_SIZE_THRESH": "3"}, "all_reduce", 8, 2, "NCCL_SHARP_GROUP_SIZE_THRESH is 3, here are 2"),
        ({"NCCL_SHARP_GROUP_SIZE_THRESH": "3"}, "all_reduce", 8, 3, None),
    ],
)
def test_what_is_not_handed_to_sharp(
    texts: dict[str, str], op: str, nbytes: int, members: int, why: str | None
) -> None:
    options = by_name(**texts)
    streams = nbytes >= options.sat_threshold
    assert declined(options, op, nbytes, members, osts=2, payload=128, streams=streams) == why


@pytest.mark.parametrize("mode", range(5))
def test_forced_modes_do_not_fall_back(mode: int) -> None:
    assert SharpOptions.of({"HCOLL_ENABLE_SHARP": str(mode)}).fall_back == (mode < 2)


def test_the_plugin_of_nccl_has_presets() -> None:
    """Where the user does not say otherwise (sharp.md §1.6)."""
    options = by_name(NCCL_COLLNET_ENABLE="1", SHARP_COLL_LOG_LEVEL="1")
    assert (options.lock_on_comm_init, options.log_level) == (True, 1)
    assert not by_name(NCCL_COLLNET_ENABLE="0").lock_on_comm_init


@pytest.mark.parametrize("value", [1, None, True])
def test_a_value_is_a_text(value: Any) -> None:
    with pytest.raises(LocalError, match=r"SHARP_COLL_SAT_THRESHOLD: .* is not legal; legal: a text: 0 … 4294967295"):
        SharpOptions.of({"SHARP_COLL_SAT_THRESHOLD": value})
