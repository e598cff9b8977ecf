# SPDX-License-Identifier: GPL-2.0-only
"""This module shows the tensors of four ranks before and after each collective."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from uetproto.api import distributed as dist
from uetproto.collectives.dtypes import Array

RANKS = 4


def broadcast(rank: int) -> tuple[Array, Any]:
    """Send rank 1's tensor to all ranks."""
    x = np.array([10 * rank, 10 * rank + 1])
    before = x.copy()
    dist.broadcast(x, src=1)
    return before, x


def reduce(rank: int) -> tuple[Array, Any]:
    """Sum the tensors of all ranks at rank 2; the other ranks' tensors are unspecified afterwards."""
    x = np.array([rank, 10 * rank])
    before = x.copy()
    dist.reduce(x, dst=2)
    return before, x if rank == 2 else "unspecified"


def all_reduce(rank: int) -> tuple[Array, Any]:
    """Sum the tensors of all ranks; all ranks get the same bits."""
    x = np.array([rank, 10 * rank])
    before = x.copy()
    dist.all_reduce(x)
    return before, x


def scatter(rank: int) -> tuple[Array, Any]:
    """Send each item of rank 0's list to one rank."""
    parts = list(np.arange(8).reshape(4, 2)) if rank == 0 else None
    x = np.zeros(2, int)
    dist.scatter(x, parts, src=0)
    return np.arange(8) if rank == 0 else np.zeros(0, int), x


def gather(rank: int) -> tuple[Array, Any]:
    """Collect the tensors of all ranks in a list at rank 3."""
    x = np.array([10 * rank])
    parts = [np.zeros(1, int) for _ in range(RANKS)] if rank == 3 else None
    dist.gather(x, parts, dst=3)
    return x, np.zeros(0, int) if parts is None else np.concatenate(parts)


def all_gather(rank: int) -> tuple[Array, Any]:
    """Collect the tensors of all ranks in a list at all ranks; the sizes may differ."""
    x = np.full(rank, rank)
    parts = [np.zeros(size, int) for size in range(RANKS)]
    dist.all_gather(parts, x)
    return x, np.concatenate(parts)


def reduce_scatter(rank: int) -> tuple[Array, Any]:
    """Sum the tensors of all ranks; each rank gets one part of the sum. This is the first half of an all_reduce."""
    x = np.arange(4) + 10 * rank
    part = np.zeros(1, int)
    dist.reduce_scatter_tensor(part, x)
    return x, part


def all_to_all(rank: int) -> tuple[Array, Any]:
    """Move element j of rank i to element i of rank j."""
    x = np.arange(4 * rank, 4 * rank + 4)
    y = np.zeros(4, int)
    dist.all_to_all_single(y, x)
    return x, y


def two_groups(rank: int) -> tuple[Array, Any]:
    """Sum the tensors within two groups, the even and the odd ranks; every rank creates both groups."""
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    x = np.array([rank, 10 * rank])
    before = x.copy()
    dist.all_reduce(x, group=groups[rank % 2])
    return before, x


PROGRAMS: tuple[Callable[[int], tuple[Array, Any]], ...] = (
    broadcast, reduce, all_reduce, scatter, gather, all_gather, reduce_scatter, all_to_all, two_groups,
)  # fmt: skip


def run(program: Callable[[int], tuple[Array, Any]], transport: str = "uet") -> list[str]:
    """Run a program on four ranks, and return a line of text for each rank."""

    def ready(rank: int) -> tuple[Array, Any]:
        dist.init_process_group()
        return program(rank)

    results = dist.run(ready, ranks=RANKS, transport=transport)
    return [f"rank {rank}: {before!s:18} -> {after}" for rank, (before, after) in enumerate(results)]


def main(transport: str = "uet") -> None:
    """Run all examples, and print the tensors of each rank."""
    for program in PROGRAMS:
        print(f"{program.__name__}: {program.__doc__}")
        for line in run(program, transport):
            print(f"    {line}")


if __name__ == "__main__":
    main(*sys.argv[1:])
