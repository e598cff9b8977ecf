# SPDX-License-Identifier: GPL-2.0-only
"""This module has the registry of algorithms. `schedule` makes the schedule of an algorithm, and `expected` returns its
costs by formula.

To add an algorithm, write its file and add an entry to `ALGORITHMS`: command line, API, tests and benchmarks read their
lists from there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from uetproto.collectives.algorithms import all_to_all, barrier, doubling, hierarchical, naive, ring, rooted, trees
from uetproto.collectives.algorithms.barrier import Dissemination, Knomial, TwoPasses
from uetproto.collectives.algorithms.hierarchical import BETWEEN
from uetproto.collectives.algorithms.plan import PlannedSchedule
from uetproto.collectives.algorithms.request import ScheduleRequest
from uetproto.collectives.algorithms.rooted import Binomial, Star
from uetproto.collectives.algorithms.schedule import Ints, Schedule
from uetproto.collectives.costs import formulas
from uetproto.collectives.costs.formulas import CostCase, Costs, Expected, Formula
from uetproto.errors import LocalError, similar

Maker: TypeAlias = Callable[[ScheduleRequest], PlannedSchedule]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """This record describes how one algorithm carries out one operation. It is an entry of the registry."""

    make: Maker | None
    """Function that makes the schedule. It is None if the network carries out the collective, without a schedule."""
    formula: Formula | None = None
    """Function that returns the expected costs. It is None if no formula is known here; formulas of collectives that
    the network carries out are in `costs.in_network`."""
    options: tuple[str, ...] = ()
    """Options of `schedule` that this algorithm uses: some of `channels`, `slices`, `sockets` and `between`."""
    hierarchical: bool = False
    """This flag is True if the algorithm needs to know which ranks share a node."""
    powers_of_two: bool = False
    """This flag is True if the algorithm needs a number of ranks that is a power of two."""
    equal_blocks: bool = False
    """This flag is True if the algorithm may be a default only when all blocks have the same size."""


_middle = partial(Algorithm, hierarchical=True)
_network = Algorithm(None)

ALGORITHMS: dict[str, dict[str, Algorithm]] = {
    "all_reduce": {
        "naive_star":         Algorithm(naive.star, formulas.star),
        "naive_exchange":     Algorithm(naive.exchange, formulas.exchange),
        "ring":               Algorithm(ring.all_reduce, formulas.ring),
        "tree":               Algorithm(trees.single, formulas.tree, ("slices",)),
        "double_tree":        Algorithm(trees.double, formulas.double_tree, ("slices",)),
        "recursive_doubling": Algorithm(doubling.doubling, formulas.recursive_doubling),
        "halving_doubling":   Algorithm(doubling.halving_doubling, formulas.halving_doubling),
        "nccl_tree":          _middle(hierarchical.nccl_tree, formulas.nccl_tree, ("channels", "slices")),
        "nccl_ring":          _middle(hierarchical.nccl_ring, formulas.nccl_ring, ("channels",)),
        "rab":                _middle(hierarchical.rab, formulas.rab, ("between",)),
        "split_rail":         _middle(hierarchical.split_rail, formulas.split_rail, ("between",)),
        "hcoll":              _middle(hierarchical.hcoll, formulas.hcoll, ("sockets", "between")),
        "sharp":              _network,
        "hcoll_sharp":        _middle(None, None, ("sockets",)),
    },
    "reduce_scatter": {
        "ring":               Algorithm(ring.reduce_scatter, partial(formulas.ring_half, reduces=True)),
        "halving":            Algorithm(doubling.reduce_scatter, formulas.halving),
        "sharp":              _network,
    },
    "all_gather": {
        "ring":               Algorithm(ring.all_gather, partial(formulas.ring_half, reduces=False)),
        "doubling":           Algorithm(doubling.all_gather, formulas.logarithmic_gather, powers_of_two=True,
                                        equal_blocks=True),
        "bruck":              Algorithm(doubling.bruck_all_gather, formulas.logarithmic_gather, equal_blocks=True),
        "sharp":              _network,
        "multicast":          _network,
    },
    "broadcast": {
        "binomial":           Algorithm(partial(rooted.broadcast, Binomial), partial(formulas.binomial, reduces=False)),
        "linear":             Algorithm(partial(rooted.broadcast, Star), formulas.linear_vectors),
        "sharp":              _network,
        "multicast":          _network,
    },
    "reduce": {
        "binomial":           Algorithm(partial(rooted.reduce, Binomial), partial(formulas.binomial, reduces=True)),
        "linear":             Algorithm(partial(rooted.reduce, Star), partial(formulas.linear_vectors, to_root=True)),
        "sharp":              _network,
    },
    "scatter": {
        "binomial":           Algorithm(partial(rooted.scatter, Binomial), formulas.binomial_blocks),
        "linear":             Algorithm(partial(rooted.scatter, Star), formulas.linear_blocks),
    },
    "gather": {
        "binomial":           Algorithm(partial(rooted.gather, Binomial),
                                        partial(formulas.binomial_blocks, to_root=True)),
        "linear":             Algorithm(partial(rooted.gather, Star), partial(formulas.linear_blocks, to_root=True)),
    },
    "all_to_all": {
        "pairwise":           Algorithm(all_to_all.pairwise, formulas.direct),
        "xor":                Algorithm(all_to_all.xor, formulas.direct, powers_of_two=True),
        "linear":             Algorithm(all_to_all.linear, partial(formulas.direct, at_once=True)),
        "bruck":              Algorithm(all_to_all.bruck, formulas.bruck, equal_blocks=True),
    },
    "barrier": {
        "dissemination":      Algorithm(partial(barrier.tokens, Dissemination), formulas.dissemination),
        "ring":               Algorithm(partial(barrier.tokens, TwoPasses), formulas.ring_barrier),
        "service":            Algorithm(barrier.service, formulas.service),
        "knomial":            Algorithm(partial(barrier.tokens, Knomial), formulas.knomial),
        "counter":            Algorithm(barrier.counter, formulas.counter),
        "sharp":              _network,
    },
}  # fmt: skip

_ALL = [(name, one) for rows in ALGORITHMS.values() for name, one in rows.items()]

HIERARCHICAL = frozenset(name for name, one in _ALL if one.hierarchical)
"""Names of the algorithms that need to know which ranks share a node."""

OPTIONS = {
    option: tuple(name for name, one in _ALL if option in one.options)
    for option in ("channels", "slices", "sockets", "between")
}
"""Maps each option of `schedule` to the names of the algorithms that use the option. Other algorithms ignore the
option."""

SPLIT = frozenset({"reduce_scatter", "all_gather", "scatter", "gather"})
"""Operations whose vector has one block for each rank. These blocks may differ in size."""


def schedule(
    op: str,
    algorithm: str,
    size: int,
    count: int = 0,
    *,
    root: int = 0,
    nodes: int | Sequence[Sequence[int]] | None = None,
    sizes: Sequence[int] | None = None,
    splits: Sequence[Sequence[int]] | None = None,
    slices: int = 1,
    channels: int = 1,
    sockets: int = 1,
    between: str = "ring",
) -> Schedule:
    """Return the schedule of one collective among `size` ranks. Raises `LocalError` for an illegal argument.

    `count` is the number of elements of the full vector. This is the vector of each rank in all_reduce, reduce and
    broadcast; in other operations it is all blocks together, such as the input of reduce_scatter or the output of
    all_gather. The vector is cut into blocks by the rule of chunks (collectives.md §3.1), unless `sizes` gives the
    number of elements of each rank's block. For all_to_all, `splits[i][j]` is the number of elements from rank i to
    rank j. `root` is the root of a rooted operation, or of naive_star.

    `nodes` is the number of nodes, to which ranks are assigned in order, or a list with the ranks of each node.
    `slices` is the number of pieces that pass through a tree as a pipeline. `channels` is the number of parallel
    channels of NCCL's algorithms over nodes. `sockets` is the number of sockets of a node, for hcoll. `between` is the
    algorithm of the all_reduce between nodes.
    """
    maker = maker_of(op, algorithm)
    if size < 1:
        raise LocalError("size", f"{size} ranks; legal is 1 and more", id="out-of-range")
    if not 0 <= root < size:
        raise LocalError("root", f"{root} is not in 0 .. {size - 1}", id="out-of-range")
    if slices < 1:
        raise LocalError("slices", f"{slices}; legal is 1 and more", id="out-of-range")
    if sockets < 1:
        raise LocalError("sockets", f"{sockets}; legal is 1 and more", id="out-of-range")
    if between not in BETWEEN:
        raise LocalError(
            "between", f"{between!r} is not legal{similar(between, BETWEEN)}", ", ".join(BETWEEN), id="unknown-name"
        )
    if algorithm in HIERARCHICAL and nodes is None:
        raise LocalError(
            "nodes", f"{algorithm} needs to know them: a number, or the ranks of each", id="missing-argument"
        )
    matrix = _matrix(op, size, splits)
    request = ScheduleRequest(
        op=op, algorithm=algorithm, size=size, count=_count(op, size, count, sizes, matrix), root=root,
        sizes=None if sizes is None else tuple(sizes), splits=matrix, places=_places(size, nodes),
        slices=slices, channels=channels, sockets=sockets, between=between,
    )  # fmt: skip
    return maker(request)


def expected(
    op: str,
    algorithm: str,
    size: int,
    length: float,
    costs: Costs,
    *,
    nodes: int = 1,
    inside: Costs | None = None,
    between: str = "ring",
    slices: int = 1,
    sockets: int = 1,
    channels: int = 1,
) -> Expected:
    """Return the costs, by formula, of one collective on `length` bytes. Raises `LocalError` if there is no formula.

    `costs` is the cost model between nodes, and `inside` is that within a node; None means `costs`. The options are
    those of `schedule`.
    """
    rows = ALGORITHMS.get(op, {})
    formula = rows[algorithm].formula if algorithm in rows else None
    if formula is None:
        known = ", ".join(name for name, one in rows.items() if one.formula) or "none"
        raise LocalError(
            "algorithm", f"no formula for {op} by {algorithm!r}; there are {known}", id="unknown-algorithm"
        )
    return formula(CostCase(size, length, costs, inside or costs, nodes, between, slices, sockets, channels))


def buffers(op: str, algorithm: str, size: int, count: int = 0) -> Schedule:
    """Return the buffers of a collective that the network carries out. They form a schedule without messages. If the
    operation has a root, the root is rank 0."""
    request = ScheduleRequest(op=op, algorithm=algorithm, size=size, count=count, places=_places(size, None))
    if op == "reduce_scatter":
        return request.reduce_scatter()
    if op == "all_gather":
        return request.all_gather()
    return request.in_place(root=0 if op in ("broadcast", "reduce") else None)


def scheduled(op: str) -> list[str]:
    """Return the names of those algorithms of an operation that have schedules."""
    return [name for name, one in ALGORITHMS[op].items() if one.make is not None]


def maker_of(op: str, algorithm: str) -> Maker:
    """Return the function that makes the schedules of an algorithm. Raises `LocalError` if the algorithm is unknown or
    has no schedules."""
    if op not in ALGORITHMS:
        raise LocalError(
            "op", f"{op!r} is not legal{similar(op, ALGORITHMS)}", ", ".join(ALGORITHMS), id="unknown-operation"
        )
    legal = ", ".join(scheduled(op))
    if algorithm not in ALGORITHMS[op]:
        raise LocalError(
            "algorithm", f"{algorithm!r} of {op}{similar(algorithm, scheduled(op))}", legal, id="unknown-algorithm"
        )
    make = ALGORITHMS[op][algorithm].make
    if make is None:
        raise LocalError(
            "algorithm",
            f"{algorithm!r} of {op} is done by the network itself, there is no schedule; legal are {legal}",
            id="unknown-algorithm",
        )
    return make


def _count(op: str, size: int, count: int, sizes: Sequence[int] | None, splits: Ints | None) -> int:
    """Return the number of elements of the full vector. If `sizes` are given, it is their sum; if `splits` are given,
    it is 0."""
    if count < 0:
        raise LocalError("count", f"{count} elements; legal is 0 and more", id="out-of-range")
    if op == "barrier" and count:
        raise LocalError("count", f"{count} elements; a barrier has 0", id="wrong-count")
    if splits is not None:
        return 0
    if sizes is not None:
        if op not in SPLIT:
            raise LocalError(
                "sizes", f"{op} has no blocks of different sizes; {', '.join(sorted(SPLIT))} have", id="uneven-split"
            )
        if len(sizes) != size or min(sizes) < 0:
            raise LocalError("sizes", f"{list(sizes)} are not {size} numbers from 0 on", id="uneven-split")
        if count not in (0, sum(sizes)):
            raise LocalError("count", f"{count} elements, but the sizes make {sum(sizes)}", id="uneven-split")
        return sum(sizes)
    if op == "all_to_all" and count % size:
        raise LocalError(
            "count", f"{count} elements are not {size} equal blocks; splits gives others", id="uneven-split"
        )
    return count


def _matrix(op: str, size: int, splits: Sequence[Sequence[int]] | None) -> Ints | None:
    if splits is None:
        return None
    if op != "all_to_all":
        raise LocalError("splits", f"{op} has none, only all_to_all", id="not-with-operation")
    if len(splits) != size or any(len(row) != size or min(row) < 0 for row in splits):
        raise LocalError("splits", f"not {size} rows of {size} numbers from 0 on", id="uneven-split")
    return np.array(splits, dtype=np.int64)


def _places(size: int, nodes: int | Sequence[Sequence[int]] | None) -> Ints:
    """Return the ranks of the nodes as an array with one row for each node."""
    if nodes is None:
        nodes = 1
    if isinstance(nodes, int):
        if nodes < 1 or size % nodes:
            legal = ", ".join(str(n) for n in range(1, size + 1) if size % n == 0)
            raise LocalError("nodes", f"{nodes} do not share {size} ranks evenly; legal are {legal}", id="uneven-split")
        return np.arange(size, dtype=np.int32).reshape(nodes, -1)
    if len({len(node) for node in nodes}) != 1 or sorted(rank for node in nodes for rank in node) != list(range(size)):
        raise LocalError("nodes", f"they are not as many ranks each, all of 0 .. {size - 1} once", id="uneven-split")
    return np.array(nodes, dtype=np.int32)
