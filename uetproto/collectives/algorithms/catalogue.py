"""All algorithms by operation, and `schedule`, which makes any of them or says what is legal."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from uetproto.collectives.algorithms import all_to_all, barrier, doubling, hierarchical, naive, ring, rooted, trees
from uetproto.collectives.algorithms.hierarchical import BETWEEN
from uetproto.collectives.algorithms.plan import Plan
from uetproto.collectives.algorithms.request import Request
from uetproto.collectives.algorithms.schedule import Ints, Schedule
from uetproto.errors import LocalError

Maker: TypeAlias = Callable[[Request], Plan]

ALGORITHMS: dict[str, dict[str, Maker | None]] = {  # None: the network itself does it, there is no schedule
    "all_reduce": {
        "naive_star":         naive.star,
        "naive_exchange":     naive.exchange,
        "ring":               ring.all_reduce,
        "tree":               trees.single,
        "double_tree":        trees.double,
        "recursive_doubling": doubling.doubling,
        "halving_doubling":   doubling.halving_doubling,
        "nccl_tree":          hierarchical.nccl_tree,
        "nccl_ring":          hierarchical.nccl_ring,
        "rab":                hierarchical.rab,
        "split_rail":         hierarchical.split_rail,
        "hcoll":              hierarchical.hcoll,
        "sharp":              None,
        "hcoll_sharp":        None,
    },
    "reduce_scatter": {
        "ring":               ring.reduce_scatter,
        "halving":            doubling.reduce_scatter,
        "sharp":              None,
    },
    "all_gather": {
        "ring":               ring.all_gather,
        "doubling":           doubling.all_gather,
        "bruck":              doubling.bruck_all_gather,
        "sharp":              None,
        "multicast":          None,
    },
    "broadcast": {
        "binomial":           rooted.binomial_broadcast,
        "linear":             rooted.linear_broadcast,
        "sharp":              None,
        "multicast":          None,
    },
    "reduce": {
        "binomial":           rooted.binomial_reduce,
        "linear":             rooted.linear_reduce,
        "sharp":              None,
    },
    "scatter": {
        "binomial":           rooted.binomial_scatter,
        "linear":             rooted.linear_scatter,
    },
    "gather": {
        "binomial":           rooted.binomial_gather,
        "linear":             rooted.linear_gather,
    },
    "all_to_all": {
        "pairwise":           all_to_all.pairwise,
        "xor":                all_to_all.xor,
        "linear":             all_to_all.linear,
        "bruck":              all_to_all.bruck,
    },
    "barrier": {
        "dissemination":      barrier.dissemination,
        "ring":               barrier.ring,
        "service":            barrier.service,
        "knomial":            barrier.knomial,
        "counter":            barrier.counter,
        "sharp":              None,
    },
}  # fmt: skip

HIERARCHICAL = frozenset({"nccl_tree", "nccl_ring", "rab", "split_rail", "hcoll", "hcoll_sharp"})
"""They need to know which ranks share a node."""

SPLIT = frozenset({"reduce_scatter", "all_gather", "scatter", "gather"})
"""Operations on a block a rank, whose sizes may differ."""


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
    """The schedule of one collective among `size` ranks.

    `count`: elements of the full vector, which is what a rank holds of all_reduce, reduce and broadcast, and of the
    others all blocks together: reduce_scatter's input, all_gather's output and so on. Blocks are cut by the rule of
    chunks unless `sizes` gives them, one a rank, or `splits` for all_to_all: a row a sender. `root`: of a rooted
    operation, and of naive_star.

    `nodes`: how many, to which ranks are dealt in order, or the ranks of each. `slices`: pieces in which a tree is a
    pipeline. `channels`: of NCCL's, side by side over nodes. `sockets`: of a node, for hcoll. `between`: the all_reduce
    between nodes.
    """
    maker = maker_of(op, algorithm)
    if size < 1:
        raise LocalError("size", f"{size} ranks; legal is 1 and more")
    if not 0 <= root < size:
        raise LocalError("root", f"{root} is not in 0 .. {size - 1}")
    if slices < 1:
        raise LocalError("slices", f"{slices}; legal is 1 and more")
    if sockets < 1:
        raise LocalError("sockets", f"{sockets}; legal is 1 and more")
    if between not in BETWEEN:
        raise LocalError("between", f"{between!r} is none of {', '.join(BETWEEN)}")
    if algorithm in HIERARCHICAL and nodes is None:
        raise LocalError("nodes", f"{algorithm} needs to know them: a number, or the ranks of each")
    matrix = _matrix(op, size, splits)
    request = Request(
        op=op, algorithm=algorithm, size=size, count=_count(op, size, count, sizes, matrix), root=root,
        sizes=None if sizes is None else tuple(sizes), splits=matrix, places=_places(size, nodes),
        slices=slices, channels=channels, sockets=sockets, between=between,
    )  # fmt: skip
    return maker(request)


def buffers(op: str, algorithm: str, size: int, count: int = 0) -> Schedule:
    """What ranks hold of a collective that the network does: a schedule of no messages. Rank 0 is the root."""
    request = Request(
        op=op, algorithm=algorithm, size=size, count=count, root=0, sizes=None, splits=None, places=_places(size, None),
        slices=1, channels=1, sockets=1, between="ring",
    )  # fmt: skip
    if op == "reduce_scatter":
        return request.reduce_scatter()
    if op == "all_gather":
        return request.all_gather()
    return request.in_place(root=0 if op in ("broadcast", "reduce") else None)


def maker_of(op: str, algorithm: str) -> Maker:
    """What makes its schedules. Raises `LocalError` where there are none."""
    makers = ALGORITHMS.get(op)
    if makers is None:
        raise LocalError("op", f"{op!r} is none of {', '.join(ALGORITHMS)}")
    legal = ", ".join(name for name, maker in makers.items() if maker)
    if algorithm not in makers:
        raise LocalError("algorithm", f"{algorithm!r} is none of {op}'s: {legal}")
    maker = makers[algorithm]
    if maker is None:
        raise LocalError(
            "algorithm", f"{algorithm!r} of {op} is done by the network itself, there is no schedule; legal are {legal}"
        )
    return maker


def _count(op: str, size: int, count: int, sizes: Sequence[int] | None, splits: Ints | None) -> int:
    """The elements of the full vector; with blocks given, their sum."""
    if count < 0:
        raise LocalError("count", f"{count} elements; legal is 0 and more")
    if op == "barrier" and count:
        raise LocalError("count", f"{count} elements; a barrier has 0")
    if splits is not None:
        return 0
    if sizes is not None:
        if op not in SPLIT:
            raise LocalError("sizes", f"{op} has no blocks of different sizes; {', '.join(sorted(SPLIT))} have")
        if len(sizes) != size or min(sizes) < 0:
            raise LocalError("sizes", f"{list(sizes)} are not {size} numbers from 0 on")
        if count not in (0, sum(sizes)):
            raise LocalError("count", f"{count} elements, but the sizes make {sum(sizes)}")
        return sum(sizes)
    if op == "all_to_all" and count % size:
        raise LocalError("count", f"{count} elements are not {size} equal blocks; splits gives others")
    return count


def _matrix(op: str, size: int, splits: Sequence[Sequence[int]] | None) -> Ints | None:
    if splits is None:
        return None
    if op != "all_to_all":
        raise LocalError("splits", f"{op} has none, only all_to_all")
    if len(splits) != size or any(len(row) != size or min(row) < 0 for row in splits):
        raise LocalError("splits", f"not {size} rows of {size} numbers from 0 on")
    return np.array(splits, dtype=np.int64)


def _places(size: int, nodes: int | Sequence[Sequence[int]] | None) -> Ints:
    """Row m: the ranks of node m."""
    if nodes is None:
        nodes = 1
    if isinstance(nodes, int):
        if nodes < 1 or size % nodes:
            legal = ", ".join(str(n) for n in range(1, size + 1) if size % n == 0)
            raise LocalError("nodes", f"{nodes} do not share {size} ranks evenly; legal are {legal}")
        return np.arange(size, dtype=np.int32).reshape(nodes, -1)
    if len({len(node) for node in nodes}) != 1 or sorted(rank for node in nodes for rank in node) != list(range(size)):
        raise LocalError("nodes", f"they are not as many ranks each, all of 0 .. {size - 1} once")
    return np.array(nodes, dtype=np.int32)
