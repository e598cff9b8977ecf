"""The published names, their defaults and what is refused (sharp.md §5)."""

import ast
from pathlib import Path

import pytest

import uetproto
from uetproto.engine.sharp.options import NCCL_PRESETS, OPTIONS, WITHOUT_EFFECT, SharpOptions, hcoll_takes, nccl_takes
from uetproto.errors import LocalError
from uetproto.wire.headers.sharp import Coll

DEFAULTS = {  # typed from the page
    "log_level": 2, "enable_sat": False, "sat_threshold": 8096, "lock_batch": 65535, "lock_retries": 1,
    "lock_retry_ms": 100, "groups_per_comm": 1, "user_data": 0, "exclusive_lock": 1, "mcast_target": True,
    "group_is_target": True, "group_trim": True, "ib_timeout": 18, "ib_retry_count": 7, "ib_rnr_timer": 12,
    "ib_rnr_retry": 7, "sharp_np": 4, "enable_sharp": 0, "collnet_enable": False, "group_size_thresh": 2,
    "dynamic_trees": True, "llt_percent": 20, "sat_percent": 3,
}  # fmt: skip


def test_defaults_are_the_published_ones() -> None:
    assert {name: getattr(SharpOptions(), name) for name in DEFAULTS} == DEFAULTS


PACKAGE = Path(uetproto.__file__).parent
ADVICE = ("hcoll_takes", "nccl_takes")
"""Functions of `engine.sharp.options` that say what HCOLL and NCCL would do."""


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
            if isinstance(node, ast.Attribute) and "options" in (
                getattr(node.value, "id", None),
                getattr(node.value, "attr", None),
            ):
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
    assert "SHARP_COLL_LOG_LEVEL" in silent
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


@pytest.mark.parametrize(
    ("mode", "coll", "nbytes", "leaders", "taken"),
    [
        (0, Coll.ALLREDUCE, 8, 8, False),
        (1, Coll.ALLREDUCE, 8, 8, True),
        (1, Coll.ALLREDUCE, 8, 3, False),  # fewer than HCOLL_SHARP_NP
        (2, Coll.ALLREDUCE, 8, 3, False),
        (3, Coll.ALLREDUCE, 8, 3, True),
        (3, Coll.ALLREDUCE, 257, 8, False),  # 2 OSTs of 128
        (3, Coll.BCAST, 8, 8, False),
        (4, Coll.BCAST, 8, 2, True),
        (4, Coll.ALLREDUCE, 10**6, 2, True),
    ],
)
def test_what_hcoll_hands_over(mode: int, coll: Coll, nbytes: int, leaders: int, taken: bool) -> None:
    options = SharpOptions.of({"HCOLL_ENABLE_SHARP": str(mode)})
    assert hcoll_takes(options, coll, nbytes, leaders, osts=2, payload=128) is taken
    assert options.fall_back == (mode < 2)


def test_what_nccl_hands_over() -> None:
    assert not nccl_takes(SharpOptions(), 8)
    enabled = {"NCCL_COLLNET_ENABLE": "1"}
    assert nccl_takes(SharpOptions.of(enabled), 2)
    assert not nccl_takes(SharpOptions.of(enabled), 1)
    assert not nccl_takes(SharpOptions.of({**enabled, "NCCL_SHARP_DISABLE": "1"}), 8)
