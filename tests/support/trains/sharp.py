# SPDX-License-Identifier: GPL-2.0-only
"""Plays collectives by SHARP, and tells all that can be seen of them and of the elements that carried them."""

from collections import Counter, deque
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.support.trains.programs import Tables
from tests.support.trains.watch import Watch
from uetproto.api import distributed as dist
from uetproto.api.distributed.networks import roce, uet
from uetproto.emulator.network.pfc import Pfc
from uetproto.engine.config import PdsConfig
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.requester import Wqe
from uetproto.errors import LocalError, UetError

_NETWORKS = {"roce": roce.network, "uet": uet.network}
_HIDDEN = {
    "_by_messages", "_fep", "_flows", "_fronts", "_hca", "_memory", "_receives", "_runs", "config", "element", "fabric",
    "hca", "messages", "middle", "options", "rng", "trains", "work",
}  # fmt: skip
"""Attributes that say how packets are handled, or that lead out of an element."""
_ODD = {
    "SHARP_COLL_IB_TIMEOUT": 8, "SHARP_COLL_OSTS_PER_GROUP": 8, "SHARP_COLL_LOCK_ON_COMM_INIT": 1,
    "SHARP_COLL_SAT_LOCK_BATCH_SIZE": 1,
}  # fmt: skip
_ODD_ADAPTER: Tables = {"ack_coalesce": 3, "max_unacked_psns": 9, "icrc": False, "credits": False}
_WQE = ("number", "first", "end", "begun", "failed", "length", "work")


def draw_sharp(rng: Random, seed: int) -> Tables:
    """Return a run: collectives of several ranks, which stream where they are long enough."""
    transport = rng.choice(("roce", "roce", "uet"))
    table: Tables = {
        "transport": transport, "ranks": rng.choice((2, 3, 4, 6)), "seed": seed & 0xFFFF,
        "rate": rng.choice((400, 100, 37, 25)) * 10**9, "mtu": rng.choice((4096, 4096, 4096, 1024, 2048)),
        "chunk": rng.choice((2048, 2048, 1024, 992, 256, 4064)), "window": rng.choice((64, 64, 16, 4, 1)),
        "calls": [
            (rng.choice(("all_reduce", "all_reduce", "reduce", "broadcast")), rng.choice((100, 9_000, 20_000, 40_001)),
             rng.choice(("float32", "int16", "float16", "float64")), rng.choice(("SUM", "MAX", "SUM", "MIN")))
            for _ in range(rng.choice((1, 1, 2, 3)))
        ],
    }  # fmt: skip
    if rng.random() < 0.3:
        table |= {"topology": "leaf-spine", "shape": {"hosts_per_leaf": rng.choice((1, 2)), "spines": 1}}
    if rng.random() < 0.4:
        table["queue_capacity"] = rng.choice((9_000, 40_000, 300_000))
    if rng.random() < 0.5:
        faults: Tables = {}
        for name in ("drop", "duplicate", "reorder", "delay", "corrupt"):
            if rng.random() < 0.35:
                few = sorted({rng.randrange(120) for _ in range(rng.randrange(1, 5))})
                faults[name] = rng.choice((0.01, 0.04, few, few))
        table["faults"] = faults
        if rng.random() < 0.5:
            table["faults_from"] = ["rank0"]
    odd: Tables = {}
    for name, value in _ODD.items():
        if rng.random() < 0.15:
            odd[name] = value
    table["sharp"] = odd
    if transport == "roce":
        if "queue_capacity" not in table and rng.random() < 0.15:
            table["pfc"] = True
        table["config"] = {name: value for name, value in _ODD_ADAPTER.items() if rng.random() < 0.1}
    return {"sharp": table}


def play_sharp(tables: Tables, trains: str, file: Path) -> tuple[Watch, Any]:
    """Play the run in the section `sharp`. The result of a run that fails is the error."""
    table = tables["sharp"]
    ranks, transport = table["ranks"], table["transport"]
    cables = ("seed", "rate", "topology", "shape", "queue_capacity", "faults_from")
    given = {key: table[key] for key in cables if key in table}
    if transport == "roce":
        if table.get("pfc"):
            given["pfc"] = Pfc()
        given["config"] = RoceConfig(path_mtu=table["mtu"], **table.get("config", {}))
    else:
        given["pds"] = PdsConfig(rto_init_time=50_000_000)
    options = {"sat_chunk": table["chunk"], "sat_window": table["window"], **table.get("sharp", {})}
    with Watch() as watch:
        inner = _NETWORKS[transport](
            ranks, sharp=options, capture=str(file), taps="all", trains=trains, faults=table.get("faults", {}), **given
        )
        by_sharp = dict.fromkeys(("all_reduce", "reduce", "broadcast"), "sharp")
        try:
            with dist.World(ranks, transport=inner, algorithm=by_sharp) as world:
                told = world.run(lambda rank: _program(rank, table["calls"])), repr(world.trace)
        except LocalError:
            raise
        except UetError as error:
            told = f"{type(error).__name__}: {error}"
    watch.parts = _state(inner)
    return watch, told


def _program(rank: int, calls: list[Any]) -> list[bytes]:
    dist.init_process_group()
    found = []
    for number, (op, length, kind, how) in enumerate(calls):
        data = ((np.arange(length // np.dtype(kind).itemsize) * (rank + 3) + number) % 7).astype(kind)
        if op == "all_reduce":
            dist.all_reduce(data, op=getattr(dist.ReduceOp, how))
        elif op == "reduce":
            dist.reduce(data, 1, op=getattr(dist.ReduceOp, how))
        else:
            dist.broadcast(data, 1)
        found.append(data.tobytes())
    return found


def _state(inner: Any) -> dict[str, Any]:
    """Return the state of the elements, of their carriers, and of the queue pairs of their adapters."""
    seen: dict[str, Any] = {}
    fabric = inner.sharp.fabric
    for name, element in (*fabric.hosts.items(), *fabric.nodes.items()):
        seen |= flat(f"SHARP of {name}", shape_of(element))
        seen |= flat(f"carrier of {name}", shape_of(fabric.carriers[name]))
    for name, node in inner.world.nodes.items():
        hca = getattr(node, "hca", None)
        if hca is not None:
            parts = [hca.counters, hca.retransmitted, hca.deadline(), list(hca._active), hca.qps]
            seen |= flat(f"adapter of {name}", shape_of(parts))
    for number, hop in enumerate(inner.world.network.inner_hops):
        seen[f"inner link {number}"] = hop.link.frames, hop.link.bytes, hop.link.busy_until
    return seen


def flat(name: str, shape: Any) -> dict[str, Any]:
    """Return the values of a shape by where they are in it."""
    if isinstance(shape, dict):
        inner = [(f"{name}.{key}", value) for key, value in shape.items()]
    elif isinstance(shape, list):
        inner = [(f"{name}[{number}]", value) for number, value in enumerate(shape)]
    else:
        return {name: shape}
    return {key: value for part in inner for key, value in flat(*part).items()} | {f"{name} has": len(inner)}


def shape_of(thing: Any, above: tuple[int, ...] = ()) -> Any:
    """Return an object of the engine as plain values. An object that holds itself is named in its place."""
    if thing is None or isinstance(thing, bool | int | str | bytes | float | Enum):
        return thing
    if isinstance(thing, memoryview | bytearray):
        return bytes(thing)
    if id(thing) in above or callable(thing):
        return type(thing).__name__
    above += (id(thing),)
    if isinstance(thing, dict | Counter):
        return {repr(shape_of(key, above)): shape_of(value, above) for key, value in thing.items()}
    if isinstance(thing, list | tuple | deque):
        return [shape_of(each, above) for each in thing]
    if isinstance(thing, set | frozenset):
        return sorted(map(repr, (shape_of(each, above) for each in thing)))
    if not type(thing).__module__.startswith("uetproto.engine"):
        return type(thing).__name__
    names = _WQE if isinstance(thing, Wqe) else _names(thing)
    return {name: shape_of(getattr(thing, name, None), above) for name in names if name not in _HIDDEN}


def _names(thing: Any) -> list[str]:
    if is_dataclass(thing):
        return [field.name for field in fields(thing)]
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*slots, *getattr(thing, "__dict__", ())]
