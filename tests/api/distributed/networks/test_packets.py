# SPDX-License-Identifier: GPL-2.0-only
"""`dist` over packets: the same results, whatever is lost; the same packets, sync or async; errors at all who wait."""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import examples
from uetproto import LocalError, decode
from uetproto.api import distributed as dist
from uetproto.api.distributed.networks.packets import DEPTH, RECORD
from uetproto.engine.roce.config import RoceConfig
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.uet_ses import Opcode

TRANSPORTS = ["uet", "roce"]
LOSSY = {"drop": 0.04, "reorder": 0.1, "duplicate": 0.1, "corrupt": 0.02}
SECOND = 10**12

over = pytest.mark.parametrize("transport", TRANSPORTS)


def grouped(program: Callable[[int], Any]) -> Callable[[int], Any]:
    def ready(rank: int) -> Any:
        dist.init_process_group()
        return program(rank)

    return ready


def frames_of(path: Path) -> list[tuple[int, bytes]]:
    with open_capture(str(path)) as reader:
        return [(record.time_ns, record.data) for record in reader]


# Results


def every_operation(rank: int) -> list[Any]:
    """Of four ranks; what each leaves behind."""
    told = []

    def keep(array: np.ndarray) -> None:
        told.append(array.tolist())

    x = np.full(300, rank + 1)
    dist.all_reduce(x)
    keep(x)
    x = np.arange(5) + rank
    dist.broadcast(x, 2)
    keep(x)
    x = np.arange(7) * rank
    dist.reduce(x, 1)
    if rank == 1:
        keep(x)
    out = np.zeros(3, int)
    dist.scatter(out, [np.full(3, 10 * i) for i in range(4)] if rank == 3 else None, 3)
    keep(out)
    outs = [np.zeros(2, int) for _ in range(4)] if rank == 0 else None
    dist.gather(np.full(2, rank), outs, 0)
    keep(np.concatenate(outs or [np.zeros(0, int)]))
    uneven = [np.zeros(i, int) for i in range(4)]
    dist.all_gather(uneven, np.full(rank, rank))
    keep(np.concatenate(uneven))
    out = np.zeros(2, int)
    dist.reduce_scatter(out, [np.full(2, 10 * i + rank) for i in range(4)])
    keep(out)
    out = np.zeros(4, int)
    dist.all_to_all_single(out, np.arange(4 * rank, 4 * rank + 4))
    keep(out)
    dist.barrier()
    pair = dist.new_group([1, 3])
    if isinstance(pair, dist.ProcessGroup):
        x = np.full(4, rank)
        dist.all_reduce(x, group=pair)
        keep(x)
    got = np.zeros(6, int)
    batch = [
        dist.P2POp(dist.isend, np.full(6, rank), (rank + 1) % 4),
        dist.P2POp(dist.irecv, got, (rank - 1) % 4),
    ]
    for work in dist.batch_isend_irecv(batch[:: 1 if rank % 2 else -1]):  # invariant 24
        work.wait()
    keep(got)
    if rank == 0:
        told.append(sorted(dist.recv(np.zeros(1, int)) for _ in range(3)))
    else:
        dist.send(np.full(1, rank), 0)
    return told


@over
@pytest.mark.parametrize("faults", [{}, LOSSY], ids=["clean", "lossy"])
def test_every_operation(transport: str, faults: dict[str, float]) -> None:
    wanted = dist.run(grouped(every_operation), ranks=4)
    assert dist.run(grouped(every_operation), ranks=4, transport=transport, faults=faults, seed=3) == wanted
    assert wanted[1][0] == [10] * 300
    assert wanted[0][-1] == [1, 2, 3]


@pytest.mark.parametrize("options", [{"way": "send"}, {"delivery": "ROD"}, {"way": "send", "delivery": "ROD"}], ids=str)
@pytest.mark.parametrize("faults", [{}, LOSSY], ids=["clean", "lossy"])
def test_every_way_over_uet(options: dict[str, Any], faults: dict[str, float]) -> None:
    wanted = dist.run(grouped(every_operation), ranks=4)
    assert dist.run(grouped(every_operation), ranks=4, transport="uet", faults=faults, seed=3, **options) == wanted


@pytest.mark.parametrize("way", ["write", "send"])
def test_tagged_sends_need_no_grants(way: str, tmp_path: Path) -> None:
    """collectives.md §5: with "send" the tag is in the match bits; with "write" a record goes before each message."""
    path = tmp_path / "run.pcapng"

    @grouped
    def program(rank: int) -> None:
        dist.all_reduce(np.ones(40), algorithm="ring")

    dist.run(program, ranks=2, transport="uet", way=way, capture=str(path))
    packets = [decode(data) for _, data in frames_of(path)]
    opcodes = Counter(
        (int(layer.values["opcode"]), len(packet.payload))
        for packet in packets for layer in packet.layers if layer.form.startswith(("ses.request", "ses.send"))
    )  # fmt: skip
    data = {(Opcode.WRITE, RECORD): 4, (Opcode.WRITE, 160): 4} if way == "write" else {(Opcode.TAGGED_SEND, 160): 4}
    assert opcodes == data


@over
@examples(15)
@given(
    size=st.integers(1, 8), each=st.integers(0, 40), seed=st.integers(0, 2**32), root=st.integers(0, 7),
    dtype=st.sampled_from([np.int8, np.uint16, np.int64]),
)  # fmt: skip
def test_all_reduce_in_three_ways(transport: str, size: int, each: int, seed: int, root: int, dtype: type) -> None:
    """Invariant 3."""
    data = np.random.default_rng(seed).integers(0, 100, (size, size * each)).astype(dtype)

    @grouped
    def program(rank: int) -> tuple[bytes, ...]:
        x, y, z = (data[rank].copy() for _ in range(3))
        dist.all_reduce(x)
        dist.reduce(y, root % size)
        dist.broadcast(y, root % size)
        part = np.zeros(each, dtype)
        dist.reduce_scatter_tensor(part, z)
        dist.all_gather_into_tensor(z, part)
        return x.tobytes(), y.tobytes(), z.tobytes()

    wanted = np.sum(data, axis=0, dtype=dtype).tobytes()
    assert dist.run(program, ranks=size, transport=transport, faults=LOSSY, seed=seed) == [(wanted,) * 3] * size


@over
@examples(10)
@given(data=st.data(), size=st.integers(2, 6), seed=st.integers(0, 2**32))
def test_all_to_all_there_and_back(transport: str, data: st.DataObject, size: int, seed: int) -> None:
    """Invariant 14: with transposed splits it is the identity."""
    row = st.lists(st.integers(0, 5), min_size=size, max_size=size)
    splits = np.array(data.draw(st.lists(row, min_size=size, max_size=size)))

    @grouped
    def program(rank: int) -> bool:
        sends, takes = splits[rank].tolist(), splits[:, rank].tolist()
        x = np.arange(sum(sends)) * 100 + rank
        there, back = np.zeros(sum(takes), int), np.zeros(sum(sends), int)
        dist.all_to_all_single(there, x, takes, sends)
        dist.all_to_all_single(back, there, sends, takes)
        return np.array_equal(back, x)

    assert all(dist.run(program, ranks=size, transport=transport, faults=LOSSY, seed=seed))


@over
def test_nobody_leaves_a_barrier_before_the_last_one_came(transport: str) -> None:
    """Invariant 15, for several in a row."""

    @grouped
    def program(rank: int) -> list[tuple[float, float]]:
        times = []
        for turn in range(5):
            dist.sleep((rank * 7 + turn * 3) % 5 * 1e-5)
            entered = dist.now()
            dist.barrier()
            times.append((entered, dist.now()))
        return times

    for turn in zip(*dist.run(program, ranks=5, transport=transport, faults=LOSSY, seed=1), strict=True):
        assert max(entered for entered, _ in turn) <= min(left for _, left in turn)


@over
@examples(15)
@given(data=st.data(), size=st.integers(2, 5), seed=st.integers(0, 2**32))
def test_exchanges_never_deadlock(transport: str, data: st.DataObject, size: int, seed: int) -> None:
    """Invariant 24: each with each, whatever the order of the items; 22: who only reads has changed nothing."""
    orders = [data.draw(st.permutations(range(2 * size - 2))) for _ in range(size)]

    @grouped
    def program(rank: int) -> list[int]:
        x, y = np.arange(20) + 100 * rank, np.full((size, 20), -1)
        others = [peer for peer in range(size) if peer != rank]
        items = [dist.P2POp(dist.isend, x, peer) for peer in others]
        items += [dist.P2POp(dist.irecv, y[peer], peer) for peer in others]
        works = dist.batch_isend_irecv([items[place] for place in orders[rank]])
        assert x.sum() == 190 + 2000 * rank
        for work in works:
            work.wait()
        y[rank] = x
        return y[:, 0].tolist()

    told = dist.run(program, ranks=size, transport=transport, faults=LOSSY, seed=seed)
    assert told == [[100 * peer for peer in range(size)]] * size


@over
def test_more_messages_than_grants(transport: str) -> None:
    """All are under way at once; those to one peer that are too many wait."""
    count = 2 * DEPTH + 3

    @grouped
    def program(rank: int) -> list[int]:
        x, y = np.arange(count) + 1000 * rank, np.zeros(count, int)
        works = [dist.irecv(y[i : i + 1], 1 - rank, tag=i) for i in range(count)]
        works += [dist.isend(x[i : i + 1], 1 - rank, tag=i) for i in reversed(range(count))]
        for work in works:
            assert work is not None
            work.wait()
        return y.tolist()

    told = dist.run(program, ranks=2, transport=transport, faults={"drop": 0.02}, seed=1)
    assert told == [[i + 1000 for i in range(count)], list(range(count))]


@over
def test_no_memory_stays_registered(transport: str) -> None:
    """Of all messages together; else a long run would end for lack of keys."""
    with dist.World(3, transport=transport) as world:
        ends: list[Any] = [world.network.end(rank) for rank in range(3)]

        def registered() -> list[int]:
            return [len(end._hca.regions.by_lkey if transport == "roce" else end._process.regions) for end in ends]

        before = registered()
        world.run(grouped(lambda rank: [dist.all_reduce(np.zeros(50), algorithm="ring") for _ in range(5)]))
        assert registered() == before == [1] * 3


@over
def test_stream_mode(transport: str) -> None:
    @grouped
    def program(rank: int) -> list[int]:
        x = dist.Tensor(np.full(9, rank + 1))
        dist.all_reduce(x)
        work = dist.broadcast(x, 1, async_op=True)
        assert work is not None
        work.wait()
        return x.tolist()

    assert dist.run(program, ranks=3, transport=transport, mode="stream") == [[6] * 9] * 3


# Packets


@over
def test_sync_and_async_send_the_same_packets(transport: str, tmp_path: Path) -> None:
    """Invariant 19."""
    seen = []
    for async_op in (False, True):

        @grouped
        def program(rank: int, async_op: bool = async_op) -> list[int]:
            x = np.arange(50) * rank
            for call in (dist.all_reduce, lambda x, **more: dist.broadcast(x, 2, **more)):
                work = call(x, async_op=async_op)
                if work is not None:
                    assert work.wait()
                    assert work.wait()  # invariant 20: again, and it is done
                    assert work.is_completed()
            return x.tolist()

        path = tmp_path / f"{async_op}.pcapng"
        results = dist.run(program, ranks=4, transport=transport, capture=str(path), taps="all")
        seen.append((results, Counter(data for _, data in frames_of(path))))
    assert seen[0] == seen[1]
    assert seen[0][1].total() > 50


@over
def test_one_seed_one_trace(transport: str, tmp_path: Path) -> None:
    def traced(name: str, seed: int) -> tuple[list[dist.Event], bytes]:
        path = tmp_path / f"{name}.pcapng"
        with dist.World(4, transport=transport, faults=LOSSY, seed=seed, capture=str(path)) as world:
            world.run(grouped(every_operation))
            trace = world.trace
        return trace, path.read_bytes()

    assert traced("a", 5) == traced("b", 5)
    assert traced("c", 6)[1] != traced("d", 5)[1]


@over
def test_what_does_not_match_sends_nothing(transport: str, tmp_path: Path) -> None:
    """Invariant 21: it is refused before the first packet."""
    path = tmp_path / "run.pcapng"

    def shapes(rank: int) -> None:
        dist.all_reduce(np.zeros(4 + (rank == 2)))

    def sizes(rank: int) -> None:
        if rank == 0:
            dist.send(np.zeros(4), 1)
        elif rank == 1:
            dist.recv(np.zeros(5), 0)

    for program, error in ((shapes, dist.CollectiveMismatchError), (sizes, dist.SizeMismatchError)):
        with pytest.raises(error):
            dist.run(grouped(program), ranks=3, transport=transport, capture=str(path), taps="all")
        assert frames_of(path) == []


@over
def test_a_deadlock_is_none_while_packets_are_repeated(transport: str) -> None:
    """Invariant 23: what is lost comes again; then both wait for ever, and that is told."""

    @grouped
    def program(rank: int) -> None:
        x = np.zeros(1000)
        dist.all_reduce(x)
        if rank == 0:
            dist.recv(x, 1)
        else:
            dist.recv(x, 0)

    with dist.World(2, transport=transport, faults={"drop": [0, 1, 2]}) as world:
        with pytest.raises(dist.DeadlockError) as caught:
            world.run(program)
        assert caught.value.cycle == (0, 1)
        assert world.now > 10**8  # it waited for the repetitions
        assert [(e.rank, e.state) for e in world.trace if e.op.startswith("all_reduce") and e.state == "done"] != []


# Failures (collectives.md §5): an error at every rank that depends on it, which says which


def broken(transport: str, program: Callable[[int], Any], **world: Any) -> tuple[BaseException, dict[int, str], int]:
    """The error of the run, what each rank was told, and the time."""
    told: dict[int, str] = {}

    @grouped
    def asked(rank: int) -> None:
        try:
            program(rank)
        except dist.DistError as error:
            told[rank] = str(error)
            raise
        except dist.TransportError as error:
            told[rank] = str(error)
            raise

    before = threading.active_count()
    with dist.World(4, transport=transport, **world) as made:
        with pytest.raises(Exception) as caught:  # noqa: PT011 (which one is for the caller to look at)
            made.run(asked)
        now = made.now
    assert threading.active_count() == before
    return caught.value, told, now


def rounds(rank: int) -> None:
    for _ in range(20):
        dist.all_reduce(np.full(1000, rank), algorithm="ring")


@over
@pytest.mark.parametrize("others", ["wait", "work alone"])
def test_a_cable_is_cut(transport: str, others: str) -> None:
    """From its hundredth frame on nothing that rank 2 sends arrives; who does not need it does not notice."""

    def program(rank: int) -> None:
        pair = dist.new_group([0, 1])
        if others == "wait":
            rounds(rank)
        elif isinstance(pair, dist.ProcessGroup):
            for _ in range(20):
                dist.all_reduce(np.full(1000, rank), group=pair)
        elif rank == 2:
            for _ in range(50):
                dist.send(np.zeros(1000), 3)
        else:
            for _ in range(50):
                dist.recv(np.zeros(1000), 2)

    cut = {"drop": list(range(100, 3000))}
    error, told, now = broken(transport, program, faults=cut, faults_from=["rank2"])
    assert isinstance(error, dist.TransportError)
    assert "rank 2" in str(error)
    why = {"uet": "no answer after the last retransmission", "roce": "RETRY_EXC_ERR"}[transport]
    affected = range(4) if others == "wait" else range(2, 4)
    assert sorted(told) == list(affected)
    assert all("rank 2" in text and why in text for text in told.values())
    assert now < SECOND


@over
@examples(40)
@given(
    share=st.sampled_from([0.1, 0.25, 0.4, 0.6]), corrupt=st.sampled_from([0.0, 0.2]), size=st.integers(2, 7),
    name=st.sampled_from(["ring", "double_tree", "recursive_doubling", "naive_exchange", "naive_star"]),
    seed=st.integers(0, 2**32), rounds=st.integers(1, 3),
)  # fmt: skip
def test_a_bad_network_gives_the_right_result_or_an_error(
    transport: str, share: float, corrupt: float, size: int, name: str, seed: int, rounds: int
) -> None:
    """Invariants 16, 25: at every rank, in bounded time; and never a deadlock, which it is not."""

    ended: dict[int, Any] = {}

    @grouped
    def program(rank: int) -> None:
        x = np.arange(200) * (rank + 1)
        try:
            for _ in range(rounds):
                dist.all_reduce(x, algorithm=name)
        except Exception as error:
            ended[rank] = type(error)
            raise
        ended[rank] = x.tolist()

    faults = {"drop": share, "corrupt": corrupt}
    with dist.World(size, transport=transport, faults=faults, seed=seed) as world:
        with suppress(dist.TransportError):
            world.run(program)
        assert world.now < 2 * SECOND
    total = sum(range(1, size + 1)) * size ** (rounds - 1)
    right = (np.arange(200) * total).tolist()
    results = [ended[rank] for rank in range(size)]
    assert all(result in (right, dist.TransportError, dist.AbortedError) for result in results)
    assert dist.AbortedError not in results or dist.TransportError in results


@over
@pytest.mark.parametrize("eager", [0, 1 << 20])
def test_both_ends_of_a_message_fail(transport: str, eager: int) -> None:
    """The receiver's grant was answered, then the cable broke: nobody would tell it, and the sender goes on."""

    @grouped
    def program(rank: int) -> str:
        x = np.zeros(1000)
        try:
            if rank == 0:
                dist.send(x, 1)
            else:
                dist.recv(x, 0)
        except dist.TransportError as error:
            return str(error)
        return "done"

    cut = {"drop": list(range(1, 1000))}  # frame 0 of rank 0 is the answer
    with dist.World(2, transport=transport, faults=cut, faults_from=["rank0"], eager_threshold=eager) as world:
        told = world.run(program)
        why = {"uet": "no answer after the last retransmission", "roce": "RETRY_EXC_ERR"}[transport]
        failed = f"message from rank 0 to rank 1: {why}"
        assert told == ["done" if eager else failed, failed]
        assert world.now < SECOND


@over
def test_hundreds_of_messages_to_a_lost_peer_fail(transport: str) -> None:
    """Each of them, one after the other, not one within the other."""
    count = 400

    @grouped
    def program(rank: int) -> int:
        x, failed = np.zeros(count), 0
        call = dist.irecv if rank == 0 else dist.isend
        for work in [call(x[i : i + 1], 1 - rank, tag=i) for i in range(count)]:
            assert work is not None
            try:
                work.wait()
            except dist.TransportError:
                failed += 1
        return failed

    with dist.World(2, transport=transport, faults={"drop": 1.0}, faults_from=["rank1"]) as world:
        assert world.run(program) == [count] * 2
        assert world.now < SECOND


@over
def test_a_rank_raises(transport: str) -> None:
    def program(rank: int) -> None:
        dist.all_reduce(np.ones(10))
        if rank == 2:
            raise RuntimeError("out of memory")
        rounds(rank)

    error, told, now = broken(transport, program)
    assert isinstance(error, RuntimeError)
    assert told == dict.fromkeys((0, 1, 3), "rank 2 failed: RuntimeError: out of memory")
    assert now < SECOND // 1000


@over
def test_a_rank_never_joins(transport: str) -> None:
    def program(rank: int) -> None:
        dist.all_reduce(np.ones(10))
        if rank != 1:
            dist.barrier()

    error, told, now = broken(transport, program)
    assert isinstance(error, dist.DeadlockError)
    assert sorted(told) == [0, 2, 3]
    assert all("missing participant: rank 1 has finished" in text for text in told.values())
    assert now < SECOND // 1000


@over
def test_a_time_out_is_of_virtual_time(transport: str) -> None:
    """Invariants 16, 20: rank 1 sleeps longer than the others are patient."""

    def program(rank: int) -> None:
        if rank == 1:
            dist.sleep(1)
        work = dist.all_reduce(np.ones(10), async_op=True)
        assert work is not None
        work.wait(0.25)

    error, told, now = broken(transport, program)
    assert isinstance(error, dist.TimeoutError)
    assert sorted(told) == [0, 1, 2, 3]
    assert "took more than 0.25 s: it waits for rank 1 to join" in told[0]
    assert "rank 0 failed in its all_reduce #0" in told[1]
    assert now == SECOND


def test_what_the_queue_pair_was_lost_by_is_told_to_all_that_follows() -> None:
    """Work behind the failed one is flushed (roce.md §8): that is no reason, so none is told it."""

    def program(rank: int) -> None:
        works = [dist.all_reduce(np.ones(2000), async_op=True) for _ in range(4)]
        for work in works:
            assert work is not None
            work.wait()

    config = RoceConfig(retry_cnt=2)
    _, told, _ = broken("roce", program, faults={"drop": 1.0}, faults_from=["rank3"], config=config)
    assert sorted(told) == [0, 1, 2, 3]
    assert all("RETRY_EXC_ERR" in text and "FLUSH" not in text for text in told.values())


@over
def test_a_world_goes_on_after_a_failure(transport: str) -> None:
    """A group without the rank that is cut off still works."""

    @grouped
    def program(rank: int) -> list[int]:
        three = dist.new_group([0, 1, 2])
        try:
            dist.all_reduce(np.ones(10))
        except (dist.TransportError, dist.AbortedError):
            pass
        else:
            raise AssertionError("rank 3 cannot have taken part")
        x = np.full(2, rank)
        if isinstance(three, dist.ProcessGroup):
            dist.all_reduce(x, group=three)
        return x.tolist()

    results = dist.run(program, ranks=4, transport=transport, faults={"drop": 1.0}, faults_from=["rank3"])
    assert results == [[3, 3]] * 3 + [[3, 3]]


# Hosts


@over
def test_within_a_host_there_are_no_packets(transport: str, tmp_path: Path) -> None:
    path = tmp_path / "run.pcapng"
    hosts = [[0, 3], [1, 2]]

    @grouped
    def program(rank: int) -> list[int]:
        x = np.full(100, rank)
        dist.all_reduce(x, algorithm="ring")
        return x.tolist()

    options: dict[str, Any] = {"hosts": hosts, "intra_latency": 0, "capture": str(path), "taps": "all"}
    assert dist.run(program, ranks=4, transport=transport, **options) == [[6] * 100] * 4
    pairs = {(p["ipv4"]["src"] & 0xFF, p["ipv4"]["dst"] & 0xFF) for _, data in frames_of(path) for p in [decode(data)]}
    assert pairs == {(1, 2), (2, 1), (3, 4), (4, 3)}  # ranks 0 and 1, 2 and 3; 3 and 0 are one host, 1 and 2 another


@over
def test_within_a_host_bytes_take_their_time(transport: str) -> None:
    @grouped
    def program(rank: int) -> float:
        x = np.zeros(1000, np.uint8)
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        return round(dist.now() * SECOND)

    options = {"hosts": [[0, 1]], "intra_bandwidth": 10**9, "intra_latency": 5_000_000}
    assert dist.run(program, ranks=2, transport=transport, **options) == [6_000_000] * 2  # 5 µs, and 1 ns a byte


@over
def test_rails_have_the_hosts_of_the_topology(transport: str) -> None:
    world = dist.World(8, transport=transport, topology="rails", shape={"gpus_per_node": 4})
    assert world.network.hosts.same_host(0, 3)  # type: ignore[attr-defined]
    assert not world.network.hosts.same_host(3, 4)  # type: ignore[attr-defined]
    world.close()


# Bad input: refused before the first packet


@over
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"hosts": [[0, 1], [2]]}, r"hosts: .*legal: lists of ranks, with each of 0 … 3 once"),
        ({"hosts": [[0, 1], [2, 3, 3]]}, r"hosts: .*each of 0 … 3 once"),
        ({"hosts": [[0, 1], [2, 4]]}, r"hosts: .*each of 0 … 3 once"),
        ({"hosts": [0, 1, 2, 3]}, r"hosts: .*lists of ranks"),
        ({"hosts": 2}, r"hosts: 2; legal: lists of ranks"),
        ({"hosts": "0123"}, r"hosts: '0123'; legal: lists of ranks"),
        (
            {"hosts": [[0, 1, 2], [3]], "topology": "rails", "shape": {"gpus_per_node": 2}},
            r"hosts: .*legal: none, or \[\[0, 1\], \[2, 3\]\]",
        ),
        ({"intra_latency": -1}, "intra_latency: -1; legal: picoseconds, 0 and more"),
        ({"intra_latency": "1 us"}, "intra_latency: '1 us'; legal"),
        ({"intra_bandwidth": 0}, "intra_bandwidth: 0; legal: bytes a second, 1 and more"),
        ({"way": "smoke"}, "way: |network: way"),
        ({"delivery": "UUD"}, "delivery: 'UUD'; legal: RUD, ROD|network: delivery"),
        ({"colour": "red"}, "network: colour; legal: topology, shape, "),
        ({"topology": "torus"}, "topology: torus.*legal: switch, pair, leaf-spine, fat-tree, rails"),
        ({"topology": "pair"}, "nodes: 4 nodes.*two for a pair"),
        ({"topology": "fat-tree", "shape": {"k": 2}}, "4 ranks do not fit this fat-tree.*legal: 2 ranks, or k 4"),
        ({"shape": 4}, "shape: 4.*a dictionary"),
        ({"faults": {"explode": 0.5}}, "faults: explode.*legal: drop"),
        ({"faults": {"drop": 2}}, "faults.drop: 2"),
        ({"faults_from": ["rank4"]}, "faults_from: rank4.*rank0, rank1, rank2, rank3"),
        ({"taps": ["rank4"]}, "taps: rank4"),
        ({"mtu": 512}, "mtu: 512.*and more"),
        ({"seed": "x"}, "seed: x.*a whole number"),
        ({"ranks": 0}, "ranks: 0; legal: a whole number, 1 … 16384"),
        ({"mode": "gpu"}, "mode: 'gpu'; legal: cpu, stream"),
        ({"algorithm": "quantum"}, "algorithm: 'quantum'; legal: binomial, "),
    ],
    ids=str,
)
def test_a_world_that_cannot_be(options: dict[str, Any], text: str, transport: str) -> None:
    with pytest.raises(LocalError, match=text):
        dist.World(**{"ranks": 4, "transport": transport, **options})


@over
@pytest.mark.parametrize(
    ("program", "text"),
    [
        (lambda _: dist.all_reduce(np.zeros(4, "M8[s]")), "dtype: .*legal, in native byte order: bool, int8"),
        (lambda _: dist.all_reduce(np.zeros(4, ">i4")), "dtype: .*native byte order"),
        (lambda _: dist.all_reduce(np.zeros(4, complex), dist.ReduceOp.MAX), "MAX on complex128; legal for MAX"),
        (lambda _: dist.all_reduce(np.zeros(4), dist.ReduceOp.BXOR), "BXOR on float64; legal"),
        (lambda _: dist.all_reduce(np.zeros(4), algorithm="bruck"), "'bruck' of all_reduce; legal: naive_star"),
        (lambda _: dist.all_reduce(np.zeros(4), algorithm="split_rail"), "nodes: split_rail needs to know them"),
        (lambda _: dist.all_gather_into_tensor(np.zeros(9), np.zeros(3), algorithm="doubling"), "3 is no power of two"),
        (lambda _: dist.all_gather_into_tensor(np.zeros(8), np.zeros(3)), "8 elements; legal: 3 times 3"),
        (lambda _: dist.broadcast(np.zeros(4), 3), "src: 3; legal: a global rank of the group: 0, 1, 2"),
        (lambda _: dist.send(np.zeros(4), 7), "dst: 7; legal: a global rank"),
    ],
)
def test_a_call_that_cannot_be(program: Callable[[int], Any], text: str, transport: str, tmp_path: Path) -> None:
    path = tmp_path / "run.pcapng"
    with pytest.raises((LocalError, dist.DistError), match=text):
        dist.run(grouped(program), ranks=3, transport=transport, capture=str(path), taps="all")
    assert frames_of(path) == []
