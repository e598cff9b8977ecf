# SPDX-License-Identifier: GPL-2.0-only
"""This module has schedules of all kinds, and computes the results of their operations by NumPy (collectives.md
§1.3).
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from uetproto.collectives.algorithms.catalogue import ALGORITHMS, HIERARCHICAL, OPTIONS, SPLIT, schedule, scheduled
from uetproto.collectives.algorithms.hierarchical import BETWEEN
from uetproto.collectives.algorithms.schedule import Schedule

NAMES = [(op, name) for op in ALGORITHMS for name in scheduled(op)]
POWERS_ONLY = {name for rows in ALGORITHMS.values() for name, row in rows.items() if row.powers_of_two}
ROOTED = {"broadcast", "reduce", "scatter", "gather"}
WITH_DATA = [(op, name) for op, name in NAMES if op != "barrier"]


class Case(NamedTuple):
    """A case is a schedule with the sizes for which it was made."""

    schedule: Schedule
    splits: np.ndarray
    """Row i, column j: elements of the block from i to j; a row or a column of them where there is only one."""


@st.composite
def cases(draw: Any, names: Iterable[tuple[str, str]] = tuple(NAMES), most: int = 20) -> Case:
    op, name = draw(st.sampled_from(sorted(names)))
    size = 1 << draw(st.integers(0, most.bit_length() - 1)) if name in POWERS_ONLY else draw(st.integers(1, most))
    more: dict[str, Any] = {}
    if op in ROOTED or name == "naive_star":
        more["root"] = draw(st.integers(0, size - 1))
    if name in HIERARCHICAL:
        nodes = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
        ranks = draw(st.permutations(range(size)))
        local = size // nodes
        more["nodes"] = draw(st.sampled_from([nodes, [ranks[m * local : (m + 1) * local] for m in range(nodes)]]))
        if name in OPTIONS["between"]:
            more["between"] = draw(st.sampled_from(sorted(BETWEEN)))
        if name in OPTIONS["channels"]:
            more["channels"] = draw(st.integers(1, local))
        if name in OPTIONS["sockets"]:
            more["sockets"] = draw(st.sampled_from([n for n in range(1, local + 1) if local % n == 0]))
    if op == "all_reduce" and name in OPTIONS["slices"]:
        more["slices"] = draw(st.integers(1, 4))
    if op == "barrier":
        return Case(schedule(op, name, size), np.zeros((1, size), dtype=int))
    if op == "all_to_all":
        if name != "bruck" and draw(st.booleans()):
            splits = draw(
                st.lists(st.lists(st.integers(0, 4), min_size=size, max_size=size), min_size=size, max_size=size)
            )
            return Case(schedule(op, name, size, splits=splits), np.array(splits))
        each = draw(st.integers(0, 4))
        return Case(schedule(op, name, size, each * size), np.full((size, size), each))
    if op in SPLIT and draw(st.booleans()):
        sizes = draw(st.lists(st.integers(0, 6), min_size=size, max_size=size))
        return Case(schedule(op, name, size, sizes=sizes, **more), np.array([sizes]))
    count = draw(st.integers(0, 60))
    sizes = [len(part) for part in np.array_split(np.arange(count), size)]
    return Case(schedule(op, name, size, count, **more), np.array([sizes]))


def inputs(made: Schedule, make: Callable[[int, int], np.ndarray]) -> list[np.ndarray]:
    """Return the input of each rank, made by `make(rank, elements)`."""
    return [make(rank, made.counts(rank).input) for rank in range(made.size)]


def integers(seed: int, dtype: Any = np.int32) -> Callable[[int, int], np.ndarray]:
    """Return a function that makes integers of the whole range of a type, so that sums wrap."""
    random, limits = np.random.default_rng(seed), np.iinfo(dtype)
    return lambda rank, count: random.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)


def promised(case: Case, given: list[np.ndarray], op: Any = np.add) -> dict[int, np.ndarray]:
    """Return the expected output of each rank that has one, computed by NumPy."""
    made = case.schedule
    size, root = made.size, made.root or 0
    starts = np.concatenate([[0], np.cumsum(case.splits[0])])

    def block(data: np.ndarray, rank: int) -> np.ndarray:
        return data[starts[rank] : starts[rank + 1]]

    everyone = range(size)
    match made.op:
        case "all_reduce":
            return dict.fromkeys(everyone, op.reduce(given, axis=0))
        case "reduce":
            return {root: op.reduce(given, axis=0)}
        case "broadcast":
            return dict.fromkeys(everyone, given[root])
        case "reduce_scatter":
            return {rank: block(op.reduce(given, axis=0), rank) for rank in everyone}
        case "all_gather":
            return dict.fromkeys(everyone, np.concatenate(given))
        case "gather":
            return {root: np.concatenate(given)}
        case "scatter":
            return {rank: block(given[root], rank) for rank in everyone}
        case "all_to_all":
            blocks = [np.split(data, np.cumsum(row)[:-1]) for data, row in zip(given, case.splits, strict=True)]
            return {rank: np.concatenate([of[rank] for of in blocks]) for rank in everyone}
    return {}
