# SPDX-License-Identifier: GPL-2.0-only
"""all_gather and broadcast by multicast over packets (collectives.md §3.10, §6.3, §8 items 18, 27-36)."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.api import multicast_network as mc
from tests.support.effort import effort, examples
from uetproto.api import distributed as dist
from uetproto.api.distributed.networks.multicast import traffic
from uetproto.api.distributed.networks.roce import RoceNetwork
from uetproto.api.network import Pfc, Red
from uetproto.cli.collective.links import LinkMeter
from uetproto.collectives.multicast.config import MulticastConfig
from uetproto.collectives.multicast.wire import FIN, ChunkImmediate, RingImmediate
from uetproto.engine.roce.config import RoceConfig
from uetproto.errors import LocalError, UetError
from uetproto.wire.headers.roce import Operation, Transport

UD_SEND = Transport.UD << 5 | Operation.SEND_ONLY_WITH_IMMEDIATE
SEND, SEND_IMM = Operation.SEND_ONLY, Operation.SEND_ONLY_WITH_IMMEDIATE
READ, READ_ANSWER = Operation.RDMA_READ_REQUEST, Operation.RDMA_READ_RESPONSE_ONLY

LEAVES = {"topology": "leaf-spine", "shape": {"hosts_per_leaf": 4}}
FABRICS: dict[str, dict[str, Any]] = {
    "switch": {},
    "leaves": LEAVES,
    "tree": {"topology": "fat-tree", "shape": {"k": 4}},
    "rails": {"topology": "rails", "shape": {"gpus_per_node": 4}},
    "slow": {"rate": "1 Gb/s", "delay": "5 us"},
    "far": {"delay": "1 ms"},
}


def check_loss_free(made: Any, found: list[Any]) -> None:
    """Invariants 27, 33, 34; and every receive that was posted is posted again."""
    size = made.size
    group = made.multicast.group(tuple(range(size)))
    assert len(found) == size
    assert mc.total(found, "requests") == mc.total(found, "chunks_fetched") == mc.total(found, "reads") == 0
    assert mc.total(found, "fins") == size
    assert not any(one.cutoff for one in found)
    for name in ("duplicates", "foreign", "malformed", "strays"):
        assert mc.total(found, name) == 0, name
    for node in made.world.nodes.values():
        assert "no receive" not in node.hca.counters
    for end in group.ends:
        for number in end.chunks:
            assert len(end.hca.qps[number].receives.items) == group.config.depth


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize(("size", "length"), [(2, 1), (3, 0), (8, 4096), (8, 12289), (7, 5000)])
def test_nothing_is_lost(fabric: str, size: int, length: int) -> None:
    made = mc.network(size, **FABRICS[fabric])
    mc.run(made, lambda rank: mc.gather(size, length, rank))
    found = mc.counts(made)
    check_loss_free(made, found)
    assert mc.total(found, "bytes_sent") == size * length
    assert mc.total(found, "chunks_sent") == size * -(-length // 4096)
    assert mc.total(found, "tokens") == size - (2 if size % 2 == 0 else 1)


@pytest.mark.parametrize("length", [0, 1, 4096, 100_000])
@pytest.mark.parametrize("fabric", FABRICS)
def test_a_broadcast_of_any_length(fabric: str, length: int) -> None:
    made = mc.network(5, **FABRICS[fabric])

    def program(rank: int) -> None:
        x = mc.block(rank, length)
        dist.broadcast(x, 3, algorithm="multicast")
        assert (x == mc.block(3, length)).all()

    mc.run(made, program)
    found = mc.counts(made)
    check_loss_free(made, found)
    assert [one.bytes_sent for one in found] == [0, 0, 0, length, 0]
    assert mc.total(found, "tokens") == 0


def test_many_ranks_and_few_bytes() -> None:
    """The chain takes far longer than the bytes: the cutoff knows of it."""
    ranks = effort(72, 200, 200)
    made = mc.network(ranks, wire="objects", **LEAVES, multicast={"roots": 1, "depth": 8})
    traffic(made.multicast, 1)
    found = mc.counts(made)
    check_loss_free(made, found)
    assert mc.total(found, "tokens") == ranks - 1
    group = made.multicast.group(tuple(range(ranks)))
    spent = max(one.recovery_at - one.armed_at for one in found)
    assert spent > 5 * ranks * 10**12 // group.config.rate
    assert spent * 1.5 < group.config.least


@pytest.mark.parametrize(("roots", "length"), [(1, 75_000), (2, 500_000), (4, 150_000), (8, 150_000)])
def test_roots_share_the_link(roots: int, length: int) -> None:
    """More bytes than all queues hold: unpaced they would be lost."""
    made = mc.network(8, **LEAVES, multicast={"roots": roots}, queue_capacity=1 << 18)
    mc.run(made, lambda rank: mc.gather(8, length, rank))
    check_loss_free(made, mc.counts(made))
    assert all(switch.dropped == 0 for switch in made.world.network.switches.values())
    assert mc.total(mc.counts(made), "tokens") == 8 - roots


def test_bytes_take_longer_on_a_slow_link() -> None:
    made = mc.network(4, rate="1 Gb/s")
    mc.run(made, lambda rank: mc.gather(4, 400_000, rank))
    check_loss_free(made, mc.counts(made))


def test_unpaced_roots_lose_and_it_comes_right() -> None:
    """As the released code does it: it relies on buffers and on recovery (§3.10.2)."""
    config = MulticastConfig(roots=8, least=10**9)
    made = mc.network(8, multicast=config, queue_capacity=100_000)
    mc.run(made, lambda rank: mc.gather(8, 300_000, rank))
    assert sum(switch.dropped for switch in made.world.network.switches.values()) > 50
    assert mc.total(mc.counts(made), "chunks_fetched") > 50


# The example of the page


def test_the_example(tmp_path: Path) -> None:
    """§6.3: four ranks, three chunks each, rank 2 loses chunk 4; counted in the capture."""
    path = tmp_path / "run.pcapng"
    made = mc.network(
        4, lambda rank, chunk: rank == 2 and chunk.chunk_id == 4, delay="100 ns", capture=str(path), taps="all",
        multicast=MulticastConfig(roots=1),
    )  # fmt: skip
    group = made.multicast.group((0, 1, 2, 3))
    for machines in group.machines:
        machines.counter = 7
    mc.run(made, lambda rank: mc.gather(4, 12288, rank))
    frames = list(mc.seen(path))

    chunks = [frame for frame in frames if frame.leaves and frame.multicast]
    assert [frame.immediate for frame in chunks] == [number << 8 | 7 for number in range(12)]
    assert [frame.rank for frame in chunks] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert {frame.opcode for frame in chunks} == {UD_SEND}
    assert chunks[4].immediate == 0x407
    arrived = [(frame.rank, frame.immediate) for frame in frames if frame.multicast and not frame.leaves]
    assert len(arrived) == 35
    assert (2, 0x407) not in arrived

    sent = [frame for frame in frames if frame.leaves and not frame.multicast]
    first = next(number for number, frame in enumerate(frames) if frame.multicast)
    ring = [frame for frame in frames[first:] if frame.leaves and not frame.multicast]
    tokens = [frame for frame in ring if frame.opcode == SEND and not frame.packet.payload]
    assert [frame.rank for frame in tokens] == [0, 1, 2]
    requests = [frame for frame in ring if frame.opcode == SEND_IMM and frame.immediate != 0x6F569]
    assert [(frame.rank, frame.immediate) for frame in requests] == [(2, 0x8)]
    fins = [frame.rank for frame in ring if frame.opcode == SEND_IMM and frame.immediate == 0x6F569]
    assert sorted(fins) == [0, 1, 2, 3]
    grants = [frame for frame in ring if frame.opcode == SEND and len(frame.packet.payload) == 12]
    assert [frame.rank for frame in grants] == [1]
    reads = [frame for frame in ring if frame.opcode == READ]
    assert [frame.rank for frame in reads] == [2]
    granted = int.from_bytes(grants[0].packet.payload[:8], "big")
    assert reads[0].packet["reth"]["va"] - granted == 16384
    assert reads[0].packet["reth"]["dmalen"] == 4096
    answers = [frame for frame in ring if frame.opcode == READ_ANSWER]
    assert [(frame.rank, len(frame.packet.payload)) for frame in answers] == [(1, 4096)]
    kinds = Counter(frame.opcode for frame in ring) - Counter({Operation.ACKNOWLEDGE: len(ring)})
    assert kinds == {SEND: 4, SEND_IMM: 5, READ: 1, READ_ANSWER: 1}
    assert sum(len(frame.packet.payload) for frame in chunks) == 49152
    assert not any(frame.multicast for frame in sent)

    found = mc.counts(made)
    assert [one.cutoff for one in found] == [False, False, True, False]
    assert found[2].recovery_at - found[2].armed_at == 35_108_571
    assert found[1].done_at > found[2].recovery_at  # not before the FIN of rank 2


# Losses


@pytest.mark.parametrize(("subgroups", "fetch_from"), [(1, -1), (1, 1), (3, -1)])
def test_all_multicast_is_lost(subgroups: int, fetch_from: int) -> None:
    made = mc.network(4, lambda rank, chunk: True, multicast={"subgroups": subgroups, "fetch_from": fetch_from})
    mc.run(made, lambda rank: mc.gather(4, 12288, rank))
    found = mc.counts(made)
    assert mc.total(found, "requests") == mc.total(found, "grants") == 12
    assert mc.total(found, "chunks_fetched") == 36
    assert mc.total(found, "bytes_fetched") == 12 * 12288


def test_bursts_on_every_link() -> None:
    """Faults of the network: they take reliable messages too, which are sent again."""
    bursts = [first + number for first in range(20, 2000, 50) for number in range(4)]
    made = mc.network(6, **LEAVES, faults={"drop": bursts})
    mc.run(made, lambda rank: [mc.gather(6, 60_000, rank) for _ in range(3)])
    found = mc.counts(made)
    assert mc.total(found, "fins") == 6
    assert sum(node.hca.counters.get("duplicate request", 0) for node in made.world.nodes.values())
    group = made.multicast.group(tuple(range(6)))
    assert all(machines.error is None for machines in group.machines)


@examples(25)
@example(size=12, length=4097, roots=4, subgroups=2, share=1.0, seed=0, fabric="leaves", root=None)
@example(size=5, length=1, roots=2, subgroups=2, share=1.0, seed=0, fabric="switch", root=4)
@given(
    size=st.integers(2, 12), length=st.sampled_from([0, 1, 255, 256, 257, 1000, 3000]), roots=st.integers(1, 4),
    subgroups=st.integers(1, 3), share=st.sampled_from([0.0, 0.02, 0.3, 1.0]), seed=st.integers(0, 1 << 20),
    fabric=st.sampled_from(["switch", "leaves", "tree", "rails"]), root=st.none() | st.integers(0, 1),
)  # fmt: skip
def test_every_loss_pattern(
    size: int, length: int, roots: int, subgroups: int, share: float, seed: int, fabric: str, root: int | None
) -> None:  # fmt: skip
    """NumPy's result, and invariants 27 and 29 with packets."""
    random, lost = np.random.default_rng(seed), Counter[int]()
    senders = range(size) if root is None else [root]

    def loses(rank: int, chunk: ChunkImmediate) -> bool:
        found = random.random() < share
        lost[rank] += found
        return bool(found)

    made = mc.network(
        size, loses, **FABRICS[fabric], multicast={"mtu": 256, "roots": roots, "subgroups": subgroups}
    )  # fmt: skip

    def program(rank: int) -> None:
        if root is None:
            mc.gather(size, length, rank)
        else:
            x = mc.block(rank, length)
            dist.broadcast(x, root, algorithm="multicast")
            assert (x == mc.block(root, length)).all()

    mc.run(made, program)
    found = mc.counts(made)
    assert [one.chunks_fetched for one in found] == [lost[rank] for rank in range(size)]
    assert mc.total(found, "bytes_sent") == len(senders) * length
    assert mc.total(found, "fins") == size
    assert mc.total(found, "strays") == 0


@examples(15)
@given(
    size=st.integers(2, 8), length=st.sampled_from([1, 700, 3000]), seed=st.integers(0, 1 << 20),
    drop=st.sampled_from([0.0, 0.02, 0.08]), fabric=st.sampled_from(["switch", "leaves"]), least=st.integers(0, 10**8),
    naps=st.lists(st.integers(0, 300), min_size=8, max_size=8),
)  # fmt: skip
def test_faults_of_all_kinds_and_late_ranks(
    size: int, length: int, seed: int, drop: float, fabric: str, least: int, naps: list[int]
) -> None:
    """Reliable messages are lost too, those of barriers among them: a rank may be armed long after others have cut
    off, which costs only time."""
    faults = {"drop": drop, "duplicate": 0.05, "reorder": 0.1, "corrupt": 0.01, "delay": 0.05}
    made = mc.network(size, seed=seed, faults=faults, multicast={"mtu": 256, "least": least}, **FABRICS[fabric])

    def program(rank: int) -> None:
        for turn in range(3):
            dist.sleep(naps[(rank + turn) % 8] * 1e-6)
            mc.gather(size, length, rank)

    mc.run(made, program)
    found, chunks = mc.counts(made), -(-length // 256)
    assert [one.chunks_received + one.chunks_fetched for one in found] == [(size - 1) * chunks] * size
    assert mc.total(found, "strays") == 0
    assert mc.total(found, "fins") == size


@pytest.mark.parametrize(
    "options",
    [
        {"topology": "pair"},
        {"pfc": Pfc(), "queue_capacity": 4 << 20},
        {"trimming": True, "queue_capacity": 20_000},
        {"red": Red(), "config": RoceConfig(congestion="dcqcn")},
        {"config": RoceConfig(multicast_loopback=False)},
        {"queue_capacity": 5000},
        {"hosts": [[0, 1]], "intra_latency": 10**9},
    ],
    ids=str,
)
@pytest.mark.parametrize("roots", [1, 2])
def test_networks_of_all_kinds(options: dict[str, Any], roots: int) -> None:
    made = mc.network(2, multicast={"roots": roots}, **options)
    mc.run(made, lambda rank: [mc.gather(2, length, rank) for length in (1, 100_000)])
    check_loss_free(made, mc.counts(made))


@pytest.mark.parametrize(
    ("mtu", "subgroups", "length"),
    [(1, 1, effort(50, 100, 100)), (7, 2, effort(250, 500, 500)), (4096, 40, 40), (64, 3, effort(700, 1500, 1500))],
)
@pytest.mark.parametrize("roots", [1, 3])
def test_chunks_of_few_bytes(mtu: int, subgroups: int, length: int, roots: int) -> None:
    """Most of what passes is headers: the cutoff knows of them."""
    config = {"mtu": mtu, "subgroups": subgroups, "roots": roots}
    made = mc.network(6, rate="1 Gb/s", delay="100 ns", multicast=config)
    mc.run(made, lambda rank: mc.gather(6, length, rank))
    check_loss_free(made, mc.counts(made))


@pytest.mark.parametrize("world", [{"mode": "stream"}, {"poison": True}, {"gamma": 3.0}], ids=str)
def test_worlds_of_all_kinds(world: dict[str, Any]) -> None:
    def program(rank: int) -> list[Any]:
        out, x = dist.Tensor(np.zeros((3, 5), np.complex64)), dist.Tensor(np.full((4, 2), rank))
        dist.all_gather_into_tensor(out, dist.Tensor(np.full(5, rank + 1j, np.complex64)), algorithm="multicast")
        dist.broadcast(x, 1, algorithm="multicast")
        return [out[:, 0].tolist(), x.tolist()]

    assert mc.run(mc.network(3), program, **world) == [[[1j, 1 + 1j, 2 + 1j], [[1, 1]] * 4]] * 3


# Groups and several operations


def test_groups_at_once() -> None:
    """Groups of different members, with operations of both kinds under way side by side."""
    made = mc.network(7, **LEAVES, multicast={"subgroups": 2})

    def program(rank: int) -> None:
        low, odd = dist.new_group([0, 1, 2, 3]), dist.new_group([5, 3, 1])
        every = np.zeros(7 * 9000, np.uint8)
        works = [dist.all_gather_into_tensor(every, mc.block(rank, 9000), algorithm="multicast", async_op=True)]
        small, others = np.zeros((4, 500), np.float32), [np.zeros(3, np.int64) for _ in range(3)]
        told = np.full(5000, rank, np.int16)
        if rank in (0, 1, 2, 3):
            mine = np.full(500, rank, np.float32)
            works.append(dist.all_gather_into_tensor(small, mine, group=low, algorithm="multicast", async_op=True))
        if rank in (5, 3, 1):
            works.append(dist.broadcast(told, 3, group=odd, algorithm="multicast", async_op=True))
            works.append(dist.all_gather(others, np.full(3, rank), group=odd, algorithm="multicast", async_op=True))
        for work in works:
            assert work is not None
            work.wait()
        assert (every == mc.whole(7, 9000)).all()
        if rank in (0, 1, 2, 3):
            assert (small == np.arange(4)[:, None]).all()
        if rank in (5, 3, 1):
            assert (told == 3).all()
            assert [int(other[0]) for other in others] == [1, 3, 5] or [int(other[0]) for other in others] == [5, 3, 1]

    mc.run(made, program)
    assert not any(one.chunks_fetched for one in mc.counts(made))


def test_many_operations_in_a_row() -> None:
    """The task id passes 256, some operations are under way at once, with losses: queue pairs and memory stay as they
    were after the first ones."""
    made = mc.network(3, lambda rank, chunk: chunk.chunk_id % 5 == rank, multicast={"mtu": 256, "least": 10**8})
    group = made.multicast.group((0, 1, 2))
    for machines in group.machines:
        machines.counter = 200
    sizes = set()

    def program(rank: int) -> None:
        for turn in range(4):
            works: list[Any] = []
            for number in range(20):
                out = np.zeros(3 * 600, np.uint8)
                mine = np.full(600, turn + number + rank, np.uint8)
                works.append(
                    (dist.all_gather_into_tensor(out, mine, algorithm="multicast", async_op=True), out, number)
                )
            for work, out, number in works:
                assert work is not None
                work.wait()
                assert (out.reshape(3, 600) == turn + number + np.arange(3)[:, None]).all()
            hca = made.node(rank).hca
            sizes.add((rank, len(hca.qps), len(hca.regions.by_rkey)))

    mc.run(made, program)
    assert [machines.counter for machines in group.machines] == [280] * 3
    assert len(sizes) == 3
    assert mc.total(mc.counts(made), "strays") == 0


def test_it_goes_on_in_a_second_run() -> None:
    made = mc.network(4)
    with dist.World(4, transport=made, algorithm="multicast") as world:
        for _ in range(2):
            assert world.run(_summed) == [6 + 100] * 4
    assert len(made.node(0).hca.qps) == 1 + 2 + 3  # UD; the ring; the barrier's peers


def _summed(rank: int) -> int:
    dist.init_process_group()
    out, x = np.zeros(4, int), np.full(1, 100 if rank == 1 else 0)
    dist.all_gather_into_tensor(out, np.array([rank]), algorithm="multicast")
    dist.broadcast(x, 1, algorithm="multicast")
    return int(out.sum() + x[0])


def test_one_rank() -> None:
    """Invariant 18: a local copy, no packets."""
    made = mc.network(1)
    mc.run(made, lambda rank: mc.gather(1, 100, rank))
    assert sum(hop.link.frames for hop in made.world.network.hops) == 0


def test_ranks_of_one_host() -> None:
    """Each has a NIC of its own, over which it takes part; barriers stay within the host."""
    made = mc.network(6, hosts=[[0, 1, 2], [3, 4, 5]])
    mc.run(made, lambda rank: mc.gather(6, 10_000, rank))
    check_loss_free(made, mc.counts(made))


# What is refused


@pytest.mark.parametrize("transport", ["uet", "model"])
def test_only_over_roce(transport: str) -> None:
    with pytest.raises(ValueError, match=r"algorithm: 'multicast'; legal: .*multicast over roce"):
        dist.World(2, transport=transport, algorithm="multicast")

    def program(rank: int) -> None:
        dist.init_process_group()
        dist.broadcast(np.zeros(3), 0, algorithm="multicast")

    with (
        dist.World(2, transport=transport) as world,
        pytest.raises(ValueError, match=r"algorithm: 'multicast' of broadcast; legal: .*binomial"),
    ):
        world.run(program)
    with pytest.raises(ValueError, match="multicast"):
        dist.World(2, transport=transport, multicast={"roots": 1})


def test_only_two_operations() -> None:
    with pytest.raises(ValueError, match=r"algorithm: 'multicast' of all_reduce; legal: .*ring"):
        mc.run(mc.network(2), lambda rank: dist.all_reduce(np.zeros(3), algorithm="multicast"))


def test_only_blocks_of_one_size() -> None:
    def program(rank: int) -> None:
        outs = [np.zeros(2), np.zeros(3)]
        dist.all_gather(outs, np.zeros(2 + rank), algorithm="multicast")

    with pytest.raises(ValueError, match="sizes: 2, 3; legal with multicast: blocks of one size"):
        mc.run(mc.network(2), program)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, r"multicast: 3; legal: MulticastConfig\(...\), or its keywords"),
        ({"root": 1}, r"multicast: 'root' \(did you mean roots\?\); legal: mtu, roots, subgroups, .*"),
        ({"roots": 0}, "roots: 0; legal: a whole number from 1 on"),
        ({"roots": "2"}, "roots: '2'; legal"),
        ({"mtu": 8192}, "multicast: mtu 8192; legal: up to the path_mtu of 4096"),
        (MulticastConfig(mtu=5000), "multicast: mtu 5000; legal: up to the path_mtu of 4096"),
        ({"subgroups": 257}, "multicast: 257 subgroups; legal: up to 256"),
        ({"order": "any"}, "order: 'any'; legal: ascending, from_next"),
        ({"roots": True}, "roots: True; legal: a whole number from 1 on"),
        ({"depth": 10**9}, "depth: 1000000000; legal: 1 … 65536"),
        ({"scale": "2"}, "scale: '2'; legal: a number above 0"),
        ({"scale": float("nan")}, "scale: nan; legal: a number above 0"),
        ({"scale": 1e300}, "scale: 1e.300; legal: a number above 0, up to 1,000,000,000"),
        ({"link_rate": "fast"}, "link_rate: 'fast'; legal: None, or bytes a second from 1 on"),
        ({"link_rate": float("nan")}, "link_rate: nan; legal: None, or bytes a second from 1 on"),
        ({"fetch_from": 1.0}, "fetch_from: 1.0; legal: -1, 1"),
    ],
)
def test_configurations_that_cannot_be(given: Any, message: str) -> None:
    with pytest.raises((LocalError, ValueError), match=message):
        mc.network(2, multicast=given)


def test_chunks_are_as_long_as_packets() -> None:
    made = mc.network(2, config=RoceConfig(path_mtu=1024))
    mc.run(made, lambda rank: mc.gather(2, 5000, rank))
    assert [one.chunks_sent for one in mc.counts(made)] == [5, 5]


def test_more_groups_than_a_switch_holds() -> None:
    made = mc.network(4)
    for switch in made.world.network.switches.values():
        switch.most_groups = 1

    def program(rank: int) -> None:
        mc.gather(4, 10, rank)
        half = dist.new_group([0, 1])
        if rank < 2:
            dist.broadcast(np.zeros(3), 0, group=half, algorithm="multicast")

    with pytest.raises(ValueError, match=r"broadcast #0: group: .* holds 1.*; legal: at most 1"):
        mc.run(made, program)


# Failures


@pytest.mark.parametrize("after", [0, 3, 30, 60])
@pytest.mark.parametrize("op", ["all_gather", "broadcast"])
def test_a_link_fails(op: str, after: int) -> None:
    """Nothing more leaves rank 2: every rank is told so."""
    made = mc.network(5, faults={"drop": list(range(after, 20000))}, faults_from=["rank2"])

    def program(rank: int) -> str:
        try:
            for _ in range(20):
                if op == "all_gather":
                    mc.gather(5, 9000, rank)
                else:
                    dist.broadcast(mc.block(rank, 9000), 2, algorithm="multicast")
        except (dist.TransportError, dist.AbortedError, dist.DeadlockError) as error:
            return str(error)
        return "done"

    with dist.World(5, transport=made) as world:
        told = world.run(lambda rank: (dist.init_process_group(), program(rank))[1])
        assert world.now < 10**12
    assert all("rank 2" in text and "RETRY_EXC_ERR" in text for text in told), told


def test_a_rank_that_fails() -> None:
    """It raises in its program while the others wait for it."""

    def program(rank: int) -> None:
        mc.gather(4, 5000, rank)
        if rank == 3:
            raise RuntimeError("rank 3 is out of memory")
        mc.gather(4, 5000, rank)

    with pytest.raises(RuntimeError, match="rank 3 is out of memory"):
        mc.run(mc.network(4), program)


def test_the_order_that_deadlocks() -> None:
    """§3.10.5: each waits for a block that its source waits for too. The next operation has new
    queue pairs, and is done."""
    losing = [True]
    made = mc.network(3, lambda rank, chunk: losing[0], multicast={"order": "from_next", "roots": 1})

    def program(rank: int) -> str:
        dist.init_process_group()
        try:
            mc.gather(3, 5000, rank)
        except dist.DeadlockError as error:
            return str(error)
        return "done"

    with dist.World(3, transport=made) as world:
        told = world.run(program)
        assert all("all_gather_into_tensor #0 of group 0 is under way" in text for text in told)
        before = {rank: len(made.node(rank).hca.qps) for rank in range(3)}
        losing[0] = False
        assert world.run(program) == ["done"] * 3
        assert {rank: len(made.node(rank).hca.qps) for rank in range(3)} == before


def test_a_time_out_while_it_is_under_way() -> None:
    """All are told; what was posted behind it fails too; and the next run finds everything as it was."""
    made = mc.network(4, delay="10 us")

    def program(rank: int) -> list[str]:
        dist.init_process_group()
        out, told = np.zeros(4 * 9000, np.uint8), []
        works = [
            dist.all_gather_into_tensor(out, mc.block(rank, 9000), algorithm="multicast", async_op=True),
            dist.broadcast(np.zeros(3000), 0, algorithm="multicast", async_op=True),
        ]
        for work in works:
            assert work is not None
            try:
                work.wait(1e-4 if rank == 2 else 10)
            except (dist.TimeoutError, dist.AbortedError) as error:
                told.append(f"{type(error).__name__}: {error}")
        return told

    with dist.World(4, transport=made) as world:
        for rank, told in enumerate(world.run(program)):
            first = "TimeoutError" if rank == 2 else "AbortedError: rank 2 failed in its all_gather"
            assert told[0].startswith(first), told
            assert len(told) == 2, told
        assert world.run(_summed) == [6 + 100] * 4
    hca = made.node(0).hca
    assert len(hca.qps) == 1 + 2 + 3
    assert len(hca.groups[_group_of(made)]) == 1
    assert sum(len(members) for members in hca.groups.values()) == 1


def _group_of(made: Any) -> int:
    """The address of the multicast group that all ranks use now."""
    return int(made.multicast.group(tuple(range(made.size))).ends[0].address(0))


# What it moves


@pytest.mark.parametrize(("size", "hosts"), [(4, 4), (8, 4), (12, 4), (6, 2)])
def test_payload_on_all_links(size: int, hosts: int) -> None:
    """Invariant 36: N (N + L) n by multicast, L leaves; the ring takes exactly 2 (N - 1) / N times as much."""
    length, leaves = 8192, -(-size // hosts)
    moved = {}
    for algorithm in ("multicast", "ring"):
        made = mc.network(size, topology="leaf-spine", shape={"hosts_per_leaf": hosts}, metered=True)

        def program(rank: int, algorithm: str = algorithm) -> None:
            out = np.zeros(size * length, np.uint8)
            dist.all_gather_into_tensor(out, mc.block(rank, length), algorithm=algorithm)

        meter = LinkMeter(made.world.network, "roce")
        mc.run(made, program)
        moved[algorithm] = sum(link.payload for link in meter.counts())
    switched = leaves if leaves > 1 else 0
    assert moved["multicast"] == size * (size + switched) * length
    assert moved["ring"] * size == moved["multicast"] * 2 * (size - 1)


def test_without_receive_buffers() -> None:
    """Only what it moves is of interest; with losses, too."""
    for share in (0.0, 0.3, 1.0):
        random = np.random.default_rng(1)
        made = mc.network(8, lambda rank, chunk, r=random, s=share: bool(r.random() < s), **LEAVES)
        counted = traffic(made.multicast, 20_000)
        assert [one.bytes_sent for one in counted] == [20_000] * 8
        assert [one.bytes_received for one in counted] == [140_000] * 8
        found = mc.counts(made)
        assert mc.total(found, "fins") == 8
        assert bool(mc.total(found, "chunks_fetched")) == (share > 0)


def test_without_receive_buffers_a_failure_is_told() -> None:
    made = mc.network(5, faults={"drop": list(range(30, 20000))}, faults_from=["rank2"])
    with pytest.raises(dist.TransportError, match=r"message from rank (1|2|3) to rank (1|2|3): RETRY_EXC_ERR"):
        traffic(made.multicast, 90_000)
    made = mc.network(3, lambda rank, chunk: True, multicast={"order": "from_next"})
    with pytest.raises(UetError, match="rank 1: sender DONE; requester WAIT_ACK for the block of 2, peer 0; responder"):
        traffic(made.multicast, 100)


@pytest.mark.parametrize("length", [0, 5000, 20_000])
def test_frames_that_are_not_encoded(length: int) -> None:
    """The same times, frames and bytes on every link; and as many as with receive buffers."""
    told = []
    for wire in ("bytes", "objects"):
        made = mc.network(9, wire=wire, metered=True, **LEAVES)
        counted = traffic(made.multicast, length)
        links = _links(made)
        told.append((made.now, links, counted, mc.counts(made)))
    assert told[0] == told[1]
    made = mc.network(9, metered=True, **LEAVES)
    mc.run(made, lambda rank: mc.gather(9, length, rank))
    assert _links(made) == told[0][1]


def _links(made: Any) -> list[tuple[str, str, int, int, int]]:
    hops = made.world.network.hops
    return [(hop.source, hop.target, hop.link.frames, hop.link.bytes, hop.payload) for hop in hops]


def test_the_same_seed_gives_the_same_run() -> None:
    told = []
    for _ in range(2):
        made = mc.network(5, seed=3, faults={"drop": 0.05}, **LEAVES)
        mc.run(made, lambda rank: mc.gather(5, 30_000, rank))
        told.append((made.now, mc.counts(made)))
    assert told[0] == told[1]


def test_calls_are_counted() -> None:
    made = mc.network(4)
    with dist.World(4, transport=made, algorithm="multicast") as world:
        world.run(_summed)
        assert [counted.bytes_sent for counted in world.counted] == [8, 16, 8, 8]
        assert [counted.bytes_received for counted in world.counted] == [32, 24, 32, 32]


def test_immediates_of_the_example() -> None:
    assert ChunkImmediate(7, 4).pack() == 0x407
    assert RingImmediate(0, 1).pack() == 0x8
    assert FIN.pack() == 0x6F569


def test_an_error_names_the_dead_switch() -> None:
    network = RoceNetwork(4, topology="leaf-spine", shape={"hosts_per_leaf": 2})

    def program(rank: int) -> None:
        dist.init_process_group()
        out = np.empty(4 * 64, np.uint8)
        dist.all_gather_into_tensor(out, np.full(64, rank, np.uint8), algorithm="multicast")
        if rank == 0:
            network.world.kill("leaf1")
        dist.all_gather_into_tensor(out, np.full(64, rank, np.uint8), algorithm="multicast")

    with dist.World(4, transport=network) as world, pytest.raises(dist.TransportError, match="; dead: leaf1"):
        world.run(program)
    assert len(world.errors) == 4
