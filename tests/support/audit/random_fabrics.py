# SPDX-License-Identifier: GPL-2.0-only
"""This module makes random collectives over switches: a seed determines network, ranks and collectives."""

from dataclasses import replace
from random import Random
from typing import Any

from tests.support.audit.fabric import Collective, FabricRun, Program
from tests.support.audit.network import Faults
from tests.support.audit.random_values import MOST, PDS, ROCE, SES_OF_RANKS, YES_NO, Values, faults, some
from uetproto.collectives.algorithms.catalogue import ALGORITHMS, HIERARCHICAL, scheduled
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.engine.contract import MICROSECOND, MILLISECOND
from uetproto.traffic import profile
from uetproto.traffic.profile_roce import RoceProfile
from uetproto.traffic.profile_uet import UetProfile

_CABLES: Values = {
    "rate": ("400 Gb/s", "10 Gb/s"),
    "delay": ("1 us", "100 ns", "20 us"),
    "inner_delay": ("100 ns", "5 us"),
    "ports": (1, 2),
}
_SHAPES: tuple[tuple[str, dict[str, int]], ...] = (
    ("switch", {}),
    ("switch", {}),
    ("leaf-spine", {"hosts_per_leaf": 1, "spines": 1}),
    ("leaf-spine", {"hosts_per_leaf": 2}),
    ("leaf-spine", {"hosts_per_leaf": 2, "spines": 1}),
    ("fat-tree", {"k": 4, "levels": 3}),
)
_PAYLOAD = "SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST"
_SHARP: Values = {
    "SHARP_COLL_ENABLE_SAT": (0, 0, 1),
    "SHARP_COLL_SAT_THRESHOLD": (1, 64, 1000),
    "SHARP_COLL_SAT_LOCK_BATCH_SIZE": (1, 2, 65535),
    "SHARP_COLL_SAT_LOCK_RETRY_TIMEOUT": (0, 1),
    "SHARP_COLL_LOCK_ON_COMM_INIT": (0, 1),
    "SHARP_COLL_OSTS_PER_GROUP": (2, 3, 16),
    _PAYLOAD: (16, 64, 256, 1024),
    "SHARP_COLL_GROUPS_PER_COMM": (1, 2),
    "SHARP_COLL_ENABLE_MCAST_TARGET": (0, 1),
    "SHARP_COLL_ENABLE_GROUP_TRIM": (0, 1),
    "SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE": (0, 1),
    "SHARP_COLL_IB_TIMEOUT": (1, 4, 10),
    "HCOLL_ENABLE_SHARP": (1, 2),
    "sat_chunk": (32, 64, 256),
    "sat_window": (1, 2, 64),
    "sat_flows_per_an": (1, 2),
    "semaphores": (1, 2),
    "llt_trees": (2, 63),
    "lazy_ost": YES_NO,
    "osts": (16, 64, 256),
    "repro": YES_NO,
    "t_result": (100 * MICROSECOND, 5 * MILLISECOND),
    "t_rnr": (10 * MICROSECOND, MILLISECOND),
    "t_ost": (5 * MILLISECOND, 1000 * MILLISECOND),
    "t_lock": (MILLISECOND, 100 * MILLISECOND),
    "t_join": (5 * MILLISECOND, 5000 * MILLISECOND),
    "retry": (1, 7),
    "rnr_retry": (1, 7),
    "heartbeat": (0, 0, 200 * MICROSECOND),
}
"""Values of the options and parameters of sharp.md §5 and §3.4."""
_FEW_OSTS: dict[str, Any] = {
    "lazy_ost": True, "osts": 8, "sat_window": 64, "sat_chunk": 32,
    "SHARP_COLL_ENABLE_SAT": 1, "SHARP_COLL_SAT_THRESHOLD": 64, "SHARP_COLL_OSTS_PER_GROUP": 8,
    "SHARP_COLL_JOB_QUOTA_OSTS": 8, _PAYLOAD: 16, "HCOLL_ENABLE_SHARP": 1,
}  # fmt: skip
"""Settings with few OSTs: nodes refuse operations with a NACK, and groups without resources use no SHARP."""
_DTYPES = ("int8", "uint8", "int16", "int32", "uint64", "float16", "float32", "float64")
_REDUCES = (None, ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.AVG)
_REDUCING = ("all_reduce", "reduce", "reduce_scatter")


def random_fabric(seed: int, kind: str, chance: Random) -> FabricRun:
    """Return the run of a seed; `kind`: one of `random_runs.FABRICS`."""
    transport = chance.choice(("roce", "uet"))
    topology, shape = chance.choice(_SHAPES)
    size = chance.randint(2, 6)
    given: dict[str, Any] = {"topology": topology, "shape": shape, **_few(chance, _CABLES)}
    given |= _uet_endpoints(chance) if transport == "uet" else _roce_endpoints(chance)
    if kind == "sharp":
        given["sharp"] = options = _few(chance, _SHARP)
        if chance.random() < 0.25:
            options |= _FEW_OSTS
    groups = [tuple(range(size))]
    while chance.random() < 0.4:
        groups.append(tuple(chance.sample(range(size), chance.randint(2, size))))
    groups = list(dict.fromkeys(groups))
    programs = tuple(_program(chance, ranks, transport, kind) for ranks in groups)
    harmed = chance.random() < 0.7
    killed = None
    if chance.random() < 0.1:
        killed = (f"rank{chance.randrange(size)}", int(chance.random() * 200 * MICROSECOND))
    return FabricRun(
        seed=seed,
        transport=transport,
        size=size,
        given=given,
        programs=programs,
        before=faults(chance) if harmed else Faults(),
        behind=faults(chance) if harmed else Faults(),
        most=MOST if chance.random() < 0.6 else chance.randrange(10, MOST),
        killed=killed,
    )


def _few(chance: Random, values: Values) -> dict[str, Any]:
    return {name: chance.choice(legal) for name, legal in values.items() if chance.random() < 0.4}


def _uet_endpoints(chance: Random) -> dict[str, Any]:
    settings = [*some(chance, "pds.", PDS), *some(chance, "ses.", SES_OF_RANKS)]
    settings.append(f"encapsulation={chance.choice(('udp', 'native'))}")
    settings.append(f"crc={chance.random() < 0.9}".lower())
    made = profile.load("mixed", settings)
    assert isinstance(made, UetProfile)
    return {
        "pds": replace(made.pds, max_pdcs=1 << 10), "how": made.how,
        "ses": replace(made.ses, rx_size=1 << 16, unexpected_messages=1 << 10, unexpected_bytes=1 << 22),
        "way": chance.choice(("write", "send")), "delivery": chance.choice(("RUD", "ROD")),
    }  # fmt: skip


def _roce_endpoints(chance: Random) -> dict[str, Any]:
    made = profile.load("roce-mixed", some(chance, "roce.", ROCE))
    assert isinstance(made, RoceProfile)
    return {"config": made.roce}


def _program(chance: Random, ranks: tuple[int, ...], transport: str, kind: str) -> Program:
    collectives = tuple(_collective(chance, len(ranks), transport, kind) for _ in range(chance.randint(1, 12)))
    at_once = chance.choice((1, 1, 2, 8))
    if kind != "sharp":
        return Program(ranks, collectives, at_once)
    if chance.random() < 0.15:
        wrong = Collective("all_reduce", "sharp", reduce_op=ReduceOp.SUM, at_odds=chance.randrange(len(ranks)))
        collectives = (*collectives[: chance.randrange(len(collectives))], wrong)
    return Program(ranks, collectives, at_once, leave_after=chance.choice((0, 0, 1, 3)))


def _collective(chance: Random, size: int, transport: str, kind: str) -> Collective:
    ops = [op for op, makers in ALGORITHMS.items() if kind != "sharp" or "sharp" in makers]
    op = chance.choice(ops)
    root, reduce_op = chance.randrange(size), chance.choice(_REDUCES) if op in _REDUCING else None
    blocks = chance.choice((0, 1, 5, 33, 200) if kind == "sharp" else (1, 5, 200, 1500))
    algorithm = "sharp" if kind == "sharp" else chance.choice(_by_ranks(op, size, transport))
    return Collective(op, algorithm, chance.choice(_DTYPES), blocks, root, reduce_op)


def _by_ranks(op: str, size: int, transport: str) -> list[str]:
    """Return the algorithms by which `size` ranks can run the operation without aggregation nodes."""
    names = [
        name
        for name in scheduled(op)
        if name not in HIERARCHICAL and (size & (size - 1) == 0 or not ALGORITHMS[op][name].powers_of_two)
    ]
    if transport == "roce" and "multicast" in ALGORITHMS[op]:
        return names + ["multicast"] * len(names)
    return names
