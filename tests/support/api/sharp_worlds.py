# SPDX-License-Identifier: GPL-2.0-only
"""This module has worlds of `distributed` with aggregation nodes, and computes the expected reduction."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uetproto.api import distributed as dist
from uetproto.api.distributed.networks.packets import PacketNetwork
from uetproto.api.distributed.networks.sharp import SharpOffload
from uetproto.collectives.dtypes import Array

Shape = int | Sequence[Any]
"""Type of a tree: a rank, or the children of an aggregation node in their order."""

LEAF_SPINE = {"topology": "leaf-spine", "shape": {"hosts_per_leaf": 2}}
FOUR = ((0, 1), (2, 3))
"""The tree of four ranks."""

UFUNCS: dict[str, Callable[..., Any]] = {
    "SUM": np.add, "AVG": np.add, "PREMUL_SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum,
    "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor,
}  # fmt: skip


def fold(shape: Shape, operands: Sequence[Array], op: str) -> Array:
    """Fold from leaf to root, children ascending; f16 and bf16 are summed in f32 within a node (sharp.md §3.5)."""
    if isinstance(shape, int):
        return operands[shape]
    parts = [fold(child, operands, op) for child in shape]
    narrow = parts[0].dtype
    wide = np.dtype(np.float32) if narrow.name in ("float16", "bfloat16") else narrow
    result = parts[0].astype(wide)
    with np.errstate(all="ignore"):
        for part in parts[1:]:
            result = UFUNCS[op](result, part.astype(wide))
    return result.astype(narrow)


def world(ranks: int = 4, transport: str = "roce", sharp: Any = True, **given: Any) -> dist.World:
    return dist.World(ranks, transport=transport, sharp=sharp, **{**LEAF_SPINE, **given})


def network_of(made: dist.World) -> PacketNetwork:
    assert isinstance(made.network, PacketNetwork)
    return made.network


def sharp_of(made: dist.World) -> SharpOffload:
    found: SharpOffload = made.network.sharp  # type: ignore[attr-defined]
    return found


def run(program: Callable[[int], Any], made: dist.World) -> list[Any]:
    """Run a program on all ranks, each with a process group, and return the results."""

    def started(rank: int) -> Any:
        dist.init_process_group()
        return program(rank)

    with made:
        return made.run(started)


def bits(array: Array) -> bytes:
    return array.tobytes()
