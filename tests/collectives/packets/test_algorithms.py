# SPDX-License-Identifier: GPL-2.0-only
"""Algorithms over UET and RoCE: NumPy's results, clean packets, bytes of the schedule (collectives.md §5, §6, §8)."""

from typing import Any

import numpy as np
import pytest

from tests.support.collectives.cases import NAMES, POWERS_ONLY, inputs, integers, promised
from tests.support.collectives.packets_algorithms import (
    case_of,
)
from tests.support.collectives.packets_bench import NETWORKS, captured, execute
from tests.support.effort import effort
from uetproto.api.distributed.networks.packets import RECORD
from uetproto.collectives.algorithms.catalogue import HIERARCHICAL, schedule
from uetproto.collectives.costs.link_bytes import link_bytes
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.topology.kinds import topology as made
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import MILLISECOND

TRANSPORTS = sorted(NETWORKS)
EVERY = [
    (*name, transport) for at, name in enumerate(NAMES) for turn, transport in enumerate(TRANSPORTS)
    if (at + turn) % effort(3, 1, 1) == 0
]  # fmt: skip
"""Operation, algorithm, transport: in `ci`, each algorithm over every second transport."""


@pytest.mark.parametrize(("op", "name", "transport"), EVERY, ids="-".join)
def test_every_algorithm(op: str, name: str, transport: str) -> None:
    """Results; every frame of every rank decoded; payload is that of the schedule and one record a message."""
    size = 8 if name in POWERS_ONLY else 6
    case = case_of(op, name, size, 3000)
    data = inputs(case.schedule, integers(7))
    ran, frames = captured(case.schedule, data, transport)
    assert ran.errors == [[None]] * size
    for rank, wanted in promised(case, data).items():
        np.testing.assert_array_equal(ran.outputs[rank], wanted.astype(np.int32))
    columns = case.schedule.arrays()
    sent = np.bincount(columns["src"], columns["count"], size) * 4
    granted = np.bincount(columns["dst"], minlength=size) * RECORD * (transport != "uet-send")
    payload = [sum(len(f.packet.payload) for f in frames if f.leaves and f.rank == rank) for rank in range(size)]
    assert payload == (sent + granted).tolist()
    assert [one.bytes_sent for one in ran.counted] == sent.tolist()
    assert sum(one.messages for one in ran.counted) == len(columns["src"])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_golden_ring_of_four(transport: str) -> None:
    """§6.1: what each step puts on the wire, and 600 + 4i in the end."""
    x = [np.array([100 * rank + i for i in range(16)], np.float32) for rank in range(4)]
    ran, frames = captured(schedule("all_reduce", "ring", 4, 16), x, transport)
    for output in ran.outputs:
        assert output.tolist() == [600 + 4 * i for i in range(16)]
    told = [
        [np.frombuffer(f.packet.payload, np.float32).tolist() for f in frames if f.leaves and f.rank == rank
         and len(f.packet.payload) == 16] for rank in range(4)
    ]  # fmt: skip
    assert told[0][:3] == [[12, 13, 14, 15], [316, 318, 320, 322], [512, 515, 518, 521]]
    assert told[1][:3] == [[100, 101, 102, 103], [124, 126, 128, 130], [424, 427, 430, 433]]
    assert told[2][:3] == [[204, 205, 206, 207], [300, 302, 304, 306], [336, 339, 342, 345]]
    assert told[3][:3] == [[308, 309, 310, 311], [508, 510, 512, 514], [600, 603, 606, 609]]
    assert [len(of_rank) for of_rank in told] == [6] * 4


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("size", [2, 3, 6, 9])
def test_partial_sums_around_the_ring(size: int, transport: str) -> None:
    """Invariants 5, 6: in step s rank r hands on what the ranks r-s … r have added, and nothing that it does not have.

    Rank i adds bit i, so that a sum tells who is in it.
    """
    plan = schedule("all_reduce", "ring", size, 2 * size)
    data = [np.full(2 * size, 1 << rank) for rank in range(size)]
    _, frames = captured(plan, data, transport)
    for rank in range(size):
        own = [f for f in frames if f.rank == rank and len(f.packet.payload) == 16]
        arrived, left = 0, []
        for frame in own:
            if frame.leaves:
                assert arrived >= len(left)
                left.append(int(np.frombuffer(frame.packet.payload, np.int64)[0]))
            else:
                arrived += 1
        whole = (1 << size) - 1
        sums = [sum(1 << (rank - back) % size for back in range(step + 1)) for step in range(size - 1)]
        assert left == sums + [whole] * (size - 1)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_golden_double_tree_of_eight(transport: str) -> None:
    """§6.2: D = 64 bytes; 28 messages."""
    plan = schedule("all_reduce", "double_tree", 8, 16)
    ran = execute(plan, [np.full(16, rank, np.int32) for rank in range(8)], transport)
    assert [output.tolist() for output in ran.outputs] == [[28] * 16] * 8
    assert [one.bytes_sent for one in ran.counted] == [64, 128, 128, 128, 128, 128, 128, 64]
    assert sum(one.messages for one in ran.counted) == 28


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_one_rank_is_a_local_copy_without_packets(transport: str) -> None:
    """Invariant 18."""
    for op, name in NAMES:
        case = case_of(op, name, 1, 5) if name not in HIERARCHICAL else None
        if case is None:
            continue
        data = inputs(case.schedule, integers(1))
        ran, frames = captured(case.schedule, data, transport)
        assert frames == []
        assert ran.errors == [[None]]
        for rank, wanted in promised(case, data).items():
            np.testing.assert_array_equal(ran.outputs[rank], wanted.astype(np.int32))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", ["ring", "double_tree", "recursive_doubling"])
def test_floats_are_added_in_the_order_of_the_schedule(name: str, transport: str) -> None:
    """The bits do not depend on what is lost and when it arrives (invariants 1, 2, 25)."""
    plan = schedule("all_reduce", name, 7, 100)
    data = inputs(plan, lambda rank, count: np.random.default_rng(rank).standard_normal(count).astype(np.float32))
    clean = execute(plan, data, transport)
    assert len({output.tobytes() for output in clean.outputs}) == 1
    np.testing.assert_allclose(clean.outputs[0], np.sum(data, axis=0, dtype=np.float64), rtol=1e-5, atol=1e-5)
    lossy = execute(plan, data, transport, faults={"drop": 0.05, "reorder": 0.1, "duplicate": 0.1}, seed=5)
    assert lossy.time > clean.time
    assert lossy.outputs[0].tobytes() == clean.outputs[0].tobytes()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("topology", "shape"),
    [
        ("switch", {}),
        ("leaf-spine", {"hosts_per_leaf": 4, "spines": 2}),
        ("fat-tree", {"k": 4}),
        ("rails", {"gpus_per_node": 4}),
    ],
)
def test_every_topology(topology: str, shape: dict[str, int], transport: str) -> None:
    plan = schedule("all_reduce", "split_rail", 8, 640, nodes=2)
    data = inputs(plan, integers(3))
    ran, frames = captured(plan, data, transport, topology=topology, shape=shape, metered=True)
    assert ran.errors == [[None]] * 8
    for output in ran.outputs:
        np.testing.assert_array_equal(output, np.sum(data, axis=0, dtype=np.int32))
    columns = plan.arrays()
    src, dst, size = columns["src"], columns["dst"], columns["count"] * 4
    layout = made(topology, 8, **shape)
    record = 0 if transport == "uet-send" else RECORD
    grants = link_bytes(layout, dst, src, np.full(len(src), record)).trav
    trav = sum(hop.payload for hop in ran.network.world.network.hops)
    assert trav == link_bytes(layout, src, dst, size).trav + grants  # invariant 42
    if topology == "rails":  # invariants 38, 41: only 2(M-1)/M * D/G between nodes, to the same rail of the other one
        addresses = [node.address for node in ran.network.world.nodes.values()]
        sent = [[f.packet for f in frames if f.leaves and f.rank == rank] for rank in range(8)]
        assert {(p["ipv4"]["src"], p["ipv4"]["dst"]) for of_rank in sent for p in of_rank} == {
            (addresses[rank], addresses[(rank + 4) % 8]) for rank in range(8)
        }
        assert [sum(len(p.payload) for p in of_rank) for of_rank in sent] == [640 + 2 * record] * 8
        within = 3 / 4 * 2 * 2560  # ring reduce-scatter and all-gather among 4
        assert ran.network.intra.sent == dict.fromkeys(range(8), within)


def test_packets_that_overtake_cost_no_rto() -> None:
    """pds.md §8.3: each message over all paths of the fabric, and an ACK for several packets."""
    plan = schedule("all_to_all", "pairwise", 8, 80_000)
    options: dict[str, Any] = {"topology": "fat-tree", "shape": {"k": 4}, "seed": 1, "wire": "objects", "cc": "off"}

    def play(**pds: Any) -> tuple[int, int, int]:
        ran = execute(plan, inputs(plan, integers(1)), "uet", **options, **pds)
        counters = [node.fep.pds.counters for node in ran.network.world.nodes.values()]
        return ran.time, sum(one.retx_rto for one in counters), sum(one.ack_tx for one in counters)

    time, repeated, acks = play()
    eager, never, more = play(pds=PdsConfig(enb_ack_per_pkt=True))
    assert repeated == never == 0
    assert abs(time - eager) < eager / 50
    assert acks < 0.8 * more
    time, repeated, _ = play(pds=PdsConfig(ack_on_gap_close=False))
    assert repeated > 0
    assert time > eager + MILLISECOND


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_many_ranks_around_the_ring(transport: str) -> None:
    """Invariant 4: 2(N-1) steps, 2 count - sz(r) - sz(r+1) elements a rank."""
    size = effort(16, 64, 64)
    count = 2 * size + 2
    plan = schedule("all_reduce", "ring", size, count)
    data = inputs(plan, integers(size, np.int64))
    ran = execute(plan, data, transport)
    wanted = np.sum(data, axis=0)
    assert all((output == wanted).all() for output in ran.outputs)
    assert {one.steps for one in ran.counted} == {2 * (size - 1)}
    sz = [3, 3] + [2] * (size - 2)
    sent = [8 * (2 * count - sz[rank] - sz[(rank + 1) % size]) for rank in range(size)]
    assert [one.bytes_sent for one in ran.counted] == sent


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_reduce_operation(transport: str) -> None:
    plan = schedule("all_reduce", "ring", 4, 64)
    data = inputs(plan, integers(4, np.int16))
    folds = {
        ReduceOp.PRODUCT: np.multiply, ReduceOp.MIN: np.minimum, ReduceOp.MAX: np.maximum,
        ReduceOp.BAND: np.bitwise_and, ReduceOp.BOR: np.bitwise_or, ReduceOp.BXOR: np.bitwise_xor,
    }  # fmt: skip
    for op, fold in folds.items():
        ran = execute(plan, data, transport, op=op)
        for output in ran.outputs:
            np.testing.assert_array_equal(output, fold.reduce(data, axis=0, dtype=np.int16))
