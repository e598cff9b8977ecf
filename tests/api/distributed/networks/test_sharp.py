# SPDX-License-Identifier: GPL-2.0-only
"""Collectives by SHARP over packets: their results, bit by bit, by the shape of the tree (sharp.md §3.5, §4.3)."""

from typing import Any

import numpy as np
import pytest

from tests.support.api.sharp_worlds import FOUR, Shape, bits, fold, network_of, run, sharp_of, world
from tests.support.effort import effort
from uetproto.api import distributed as dist
from uetproto.collectives.dtypes import Array, dtype

INTS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64", "bfloat16")
OPS = {
    **dict.fromkeys(INTS, ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG")),
    **dict.fromkeys(FLOATS, ("SUM", "PRODUCT", "MIN", "MAX", "AVG", "PREMUL_SUM")),
    "bool": ("BAND", "BOR", "BXOR"),
}
LLT = {"SHARP_COLL_ENABLE_SAT": 0}
SAT = {"SHARP_COLL_SAT_THRESHOLD": 1, "sat_chunk": 32}
TREES = pytest.mark.parametrize("sharp", [LLT, SAT], ids=["llt", "sat"])
OVER = pytest.mark.parametrize("transport", ["roce", "uet"])


def operands(name: str, ranks: int, count: int) -> list[Array]:
    """Any bits of whole numbers; floats whose sum depends on the order."""
    draw = np.random.default_rng(count)
    if name == "bool":
        return [draw.random(count) < 0.5 for _ in range(ranks)]
    if name in INTS:
        return [np.frombuffer(draw.bytes(count * np.dtype(name).itemsize), name).copy() for _ in range(ranks)]
    return [(draw.normal(size=count) * 2.0 ** draw.integers(-6, 6, count)).astype(dtype(name)) for _ in range(ranks)]


def expected(op: str, values: list[Array], shape: Shape) -> Array:
    """With what is done before the fold and after it: AVG is a product before of floats, a quotient after of others."""
    ranks, type_ = len(values), values[0].dtype
    whole = type_.name in INTS
    if op == "PREMUL_SUM" or (op == "AVG" and not whole):
        factor = np.array(0.3 if op == "PREMUL_SUM" else 1 / ranks).astype(type_)
        values = [value * factor for value in values]
    result = fold(shape, values, op)
    if op == "AVG" and whole:
        result = np.array([int(abs(int(v)) // ranks) * (1 if v >= 0 else -1) for v in result.tolist()]).astype(type_)
    return result


def reduce_op(op: str) -> Any:
    return dist.ReduceOp.PREMUL_SUM(0.3) if op == "PREMUL_SUM" else getattr(dist.ReduceOp, op)


@TREES
@OVER
def test_every_operation_on_every_type(transport: str, sharp: dict[str, Any]) -> None:
    """Invariants 7 to 12: LLT and SAT, fragments and chunks give what the fold by tree shape gives, on all ranks."""
    cases = [(name, op, operands(name, 4, 37)) for name, ops in OPS.items() for op in ops]
    some = transport == "uet" or sharp is LLT
    cases = cases[:: effort(3, 1, 1) if some else 1]  # every operation and every type

    def program(rank: int) -> list[bytes]:
        results = []
        for _, op, values in cases:
            x = values[rank].copy()
            dist.all_reduce(x, reduce_op(op), algorithm="sharp")
            results.append(bits(x))
        return results

    made = world(4, transport, sharp)
    told = run(program, made)
    for at, (name, op, values) in enumerate(cases):
        wanted = bits(expected(op, values, FOUR))
        assert [results[at] for results in told] == [wanted] * 4, (name, op)
    assert sharp_of(made).notes == []
    assert not any(nic.repeated for nic in network_of(made).world.network.nics.values())


def test_the_order_is_that_of_the_tree_not_of_the_ranks() -> None:
    """§3.5: leaves (0, 1) and (2, 3) give 0, a flat fold from the left 1; and f16 is rounded where it leaves a node."""
    values = [1e8, 1, -1e8, 1]

    def program(rank: int) -> tuple[float, float]:
        x, half = np.array([values[rank]], np.float32), np.array([2048 if rank == 0 else 1], np.float16)
        dist.all_reduce(x, algorithm="sharp")
        dist.all_reduce(half, algorithm="sharp")
        return float(x[0]), float(half[0])

    assert run(program, world(4)) == [(0.0, 2050.0)] * 4  # 2049 is rounded to even: 2048, and then 2 more
    assert run(program, world(4, topology="switch", shape={})) == [(1.0, 2052.0)] * 4
    assert run(program, world(4, sharp={"acc_native": True}, topology="switch", shape={})) == [(1.0, 2048.0)] * 4


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ((0, 1, 2, 3, 4), {"topology": "switch", "shape": {}}),
        (((0, 1), (2, 3), (4,)), {}),
        (((0, 1, 2), (3, 4)), {"shape": {"hosts_per_leaf": 3, "spines": 3}}),
        ((((0, 1), (2, 3)), ((4,),)), {"topology": "fat-tree", "shape": {"k": 4, "levels": 3}}),
    ],
    ids=["switch", "leaf-spine", "three-spines", "fat-tree"],
)
@OVER
def test_trees_of_every_depth(transport: str, shape: Shape, given: dict[str, Any]) -> None:
    values = operands("float32", 5, 300)

    def program(rank: int) -> bytes:
        x = values[rank].copy()
        dist.all_reduce(x, algorithm="sharp")
        return bits(x)

    assert run(program, world(5, transport, **given)) == [bits(fold(shape, values, "SUM"))] * 5


@TREES
@OVER
@pytest.mark.parametrize("count", [0, 1, effort(70, 700, 700)])
def test_the_other_collectives(transport: str, sharp: dict[str, Any], count: int) -> None:
    values, blocks = operands("float32", 4, count), operands("int16", 4, 4 * count)

    def program(rank: int) -> list[bytes]:
        results = []
        for root in range(4):
            x, y = values[rank].copy(), values[rank].copy()
            dist.reduce(x, root, algorithm="sharp")
            dist.broadcast(y, root, algorithm="sharp")
            results += [bits(x) if rank == root else b"", bits(y)]
        own, all_ = np.full(count, 7, np.int16), np.full(4 * count, 7, np.float32)
        dist.reduce_scatter_tensor(own, blocks[rank].copy(), algorithm="sharp")
        dist.all_gather_into_tensor(all_, values[rank].copy(), algorithm="sharp")
        return [*results, bits(own), bits(all_)]

    total = fold(FOUR, blocks, "SUM").reshape(4, -1)
    for rank, results in enumerate(run(program, world(4, transport, sharp))):
        for root in range(4):
            assert results[2 * root] == (bits(fold(FOUR, values, "SUM")) if rank == root else b"")
            assert results[2 * root + 1] == bits(values[root])
        assert results[-2:] == [bits(total[rank]), bits(np.concatenate(values))]


def test_reduce_gives_its_result_to_one_host() -> None:
    """Invariant 25: the others have messages without data."""

    def program(rank: int) -> None:
        dist.reduce(np.ones(16, np.float64), 2, algorithm="sharp")

    made = world(4, metered=True)
    run(program, made)
    down = {hop.target: hop.payload for hop in network_of(made).world.network.hops if hop.target.startswith("rank")}
    assert down == {"rank0": 0, "rank1": 0, "rank2": 128, "rank3": 0}


@OVER
@pytest.mark.parametrize("ranks", [1, 2])
def test_few_ranks(transport: str, ranks: int) -> None:
    values = operands("float64", ranks, 2000)

    def program(rank: int) -> list[bytes]:
        x, y, z = (values[rank].copy() for _ in range(3))
        dist.all_reduce(x, algorithm="sharp")
        dist.all_reduce(y, dist.ReduceOp.AVG, algorithm="sharp")
        dist.broadcast(z, 0, algorithm="sharp")
        dist.barrier(algorithm="sharp")
        return [bits(x), bits(y), bits(z)]

    made = world(ranks, transport)
    shape = tuple(range(ranks))
    wanted = [bits(expected(op, values, shape)) for op in ("SUM", "AVG")]
    assert run(program, made) == [[*wanted, bits(values[0])]] * ranks
    sent = sum(hop.link.frames for hop in network_of(made).world.network.hops)
    assert (sent == 0) == (ranks == 1)


@OVER
def test_groups_of_other_members(transport: str) -> None:
    values = operands("float32", 4, 50)

    def program(rank: int) -> list[bytes]:
        groups = [dist.new_group(ranks) for ranks in ([3, 1, 2], [2, 3], [3, 2, 1, 0])]
        results = []
        for _ in range(2):
            for group in groups:
                x = values[rank].copy()
                if group is not dist.GroupMember.NON_GROUP_MEMBER:
                    dist.all_reduce(x, group=group, algorithm="sharp")
                results.append(bits(x))
        return results

    trees = [((1,), (2, 3)), (2, 3), FOUR]
    members = [(1, 2, 3), (2, 3), (0, 1, 2, 3)]
    for rank, results in enumerate(run(program, world(4, transport))):
        for tree, ranks, told in zip(trees * 2, members * 2, results, strict=True):
            assert told == bits(fold(tree, values, "SUM") if rank in ranks else values[rank])


@OVER
def test_several_at_once(transport: str) -> None:
    """async_op: on LLT and SAT together, of all sizes; waited for from the last to the first."""
    values = [operands("float32", 4, count) for count in (10, 5000, 3, 3000, 2100, 1)]

    def program(rank: int) -> list[bytes]:
        arrays = [value[rank].copy() for value in values]
        works = [dist.all_reduce(x, async_op=True, algorithm="sharp") for x in arrays]
        for work in reversed(works):
            assert work is not None
            work.wait()
        return [bits(x) for x in arrays]

    assert run(program, world(4, transport)) == [[bits(fold(FOUR, value, "SUM")) for value in values]] * 4


@OVER
@TREES
def test_two_trees_share_a_communicator(transport: str, sharp: dict[str, Any]) -> None:
    """§4.1: two spines are two roots; small vectors take turns, a large one is divided."""
    values = [operands("float32", 4, count) for count in (4, 4, 1001)]

    def program(rank: int) -> list[bytes]:
        arrays = [value[rank].copy() for value in values]
        for x in arrays:
            dist.all_reduce(x, algorithm="sharp")
        return [bits(x) for x in arrays]

    made = world(
        4, transport, {**sharp, "SHARP_COLL_GROUPS_PER_COMM": 2}, metered=True,
        shape={"hosts_per_leaf": 2, "spines": 2},
    )  # fmt: skip
    assert run(program, made) == [[bits(fold(FOUR, value, "SUM")) for value in values]] * 4
    up = {
        (hop.source, hop.target): hop.payload
        for hop in network_of(made).world.network.inner_hops if hop.target.startswith("an.spine")
    }  # fmt: skip
    large = [4 * (1001 // 2), 4 * (1001 - 1001 // 2)]
    assert up == {(f"spine{at}", f"an.spine{at}"): 2 * (16 + large[at]) for at in range(2)}


@OVER
def test_nobody_leaves_a_barrier_before_the_last_has_come(transport: str) -> None:
    """Invariant 24; a token lets the ranks come one after the other, in another order each time."""

    def program(rank: int) -> list[tuple[float, float]]:
        times, token = [], np.zeros(1)
        for first in range(4):
            if rank != first:
                dist.recv(token, (rank - 1) % 4)
            if rank != (first - 1) % 4:
                dist.send(token, (rank + 1) % 4)
            entered = dist.now()
            dist.barrier(algorithm="sharp")
            times.append((entered, dist.now()))
        return times

    told = run(program, world(4, transport))
    for turn in range(4):
        entered, left = zip(*(times[turn] for times in told), strict=True)
        assert len(set(entered)) > 2
        assert max(entered) <= min(left)
