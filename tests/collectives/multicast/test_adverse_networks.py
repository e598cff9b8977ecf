# SPDX-License-Identifier: GPL-2.0-only
"""Multicast under everything that a network does (collectives.md §3.10, §8 items 18, 27-36)."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.collectives.reference import multicast_on_leaf_spine, ring_on_leaf_spine
from tests.support.effort import examples
from uetproto.collectives.multicast.config import MulticastConfig
from uetproto.collectives.multicast.plan import all_gather, broadcast
from uetproto.collectives.multicast.recovery import REQUESTER, RESPONDER, ChunkRequester, ChunkResponder
from uetproto.collectives.multicast.sender import SENDER, ChunkSender
from uetproto.collectives.multicast.wire import FIN, ChunkImmediate, ReadGrant, RingImmediate
from uetproto.collectives.topology.kinds import topology
from uetproto.collectives.transport import TransportError
from uetproto.errors import LocalError
from uetproto.testing.machines.fabrics.multicast_fabric import (
    Bursts,
    all_arrive,
    check_counts,
    check_done,
    content,
    execute,
    fabric_of,
    lose,
    lose_all,
    post,
)


@st.composite
def plans(draw, most=8):
    config = MulticastConfig(
        mtu=draw(st.integers(1, 5)),
        roots=draw(st.integers(1, 4)),
        subgroups=draw(st.integers(1, 3)),
        batch=draw(st.integers(1, 4)),
        fetch_from=draw(st.sampled_from([-1, 1])),
        scale=draw(st.sampled_from([0.1, 100.0, 1e6])),  # some too short, which costs only time
        link_rate=draw(st.sampled_from([None, 10**9])),
    )
    size, length = draw(st.integers(2, most)), draw(st.integers(0, 30))
    if draw(st.booleans()):
        return all_gather(size, length, config)
    return broadcast(size, length, draw(st.integers(0, size - 1)), config)


@examples(150)
@given(plan=plans(), seed=st.integers(0, 2**32), loss=st.sampled_from([0.0, 0.05, 0.5, 1.0]), skew=st.booleans())
def test_every_loss_pattern(plan, seed, loss, skew):
    """Invariants 27-31, 33-35; the fabric judges what it can the moment that it happens."""
    random = np.random.default_rng(seed)

    def fate(source, receiver, subgroup, chunk):
        return 0 if random.random() < loss else 1 + int(random.random() < 0.1)

    ran = execute(plan, fate, seed=seed, skew=10_000_000 if skew else 0)
    check_done(ran, plan)
    check_counts(ran.fabric, [(ran, plan)])


@pytest.mark.parametrize("fetch_from", [-1, 1])
@examples(60)
@given(size=st.integers(2, 6), chunks=st.integers(1, 4), data=st.data())
def test_fetched_is_what_was_lost(fetch_from, size, chunks, data):
    """Invariant 29: exactly, when the cutoff is late enough; requests one for each block with a gap."""
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size * chunks - 1))
    lost = {(r, chunk) for r, chunk in data.draw(st.sets(pairs)) if chunk // chunks != r}
    plan = all_gather(size, chunks * 4, MulticastConfig(mtu=4, roots=1, fetch_from=fetch_from, scale=1e6))
    ran = execute(plan, lose(*lost), seed=1)
    check_done(ran, plan)
    assert ran.total("chunks_fetched") == len(lost)
    assert ran.total("bytes_fetched") == 4 * len(lost)
    assert sorted((r, owner) for r, _, owner in ran.requests) == sorted({(r, chunk // chunks) for r, chunk in lost})
    for rank in range(size):  # ascending
        asked = [owner for r, _, owner in ran.requests if r == rank]
        assert asked == sorted(asked)
    runs = sum((r, c - 1) not in lost or c % chunks == 0 for r, c in lost)
    assert ran.total("reads") == runs  # a read for each maximal run


def test_losses_in_bursts():
    """§3.10.6: two states."""
    plan = all_gather(8, 100 * 16, MulticastConfig(mtu=16, scale=1e3))
    bursts = Bursts(5)
    ran = execute(plan, bursts, seed=5)
    check_done(ran, plan)
    assert bursts.lost > 20
    assert ran.total("chunks_fetched") == bursts.lost
    assert ran.total("reads") > ran.total("requests") > 8


@pytest.mark.parametrize("config", [MulticastConfig(mtu=4, scale=1e5), MulticastConfig(mtu=4, scale=1e5, subgroups=2)])
def test_operations_in_a_row_and_the_wrap_of_the_task_id(config):
    """300 operations without a pause between them; copies of chunks arrive in later operations (invariant 32)."""
    gather, send = all_gather(3, 10, config), broadcast(3, 7, 1, config)
    seen = set()

    def fate(source, receiver, subgroup, chunk):
        seen.add(fabric.ranks[source].operation.task)
        return 1 if fabric.random.random() < 0.9 else 0 if fabric.random.random() < 0.5 else 2

    fabric = fabric_of(3, config, counter=200, fate=fate, seed=3, delay=1_000_000)
    runs = []
    for turn in range(300):
        plan = (gather, send)[turn % 2]
        runs.append((post(fabric, plan, salt=turn), plan, turn))
        if turn % 16 == 15:
            fabric.run()
    fabric.run()
    for ran, plan, turn in runs:
        check_done(ran, plan, salt=turn)
    assert seen == set(range(256))
    assert sum(ran.total("foreign") + ran.total("late") for ran, _, _ in runs) > 100
    assert [rank.counter for rank in fabric.ranks] == [500] * 3
    assert not fabric.buffers


def test_a_chunk_of_another_operation_changes_nothing():
    """Invariant 32; and what the page warns of: one of 256 operations ago is taken for one of this."""
    plan = all_gather(2, 8, MulticastConfig(mtu=4, scale=1e5))
    fabric = fabric_of(2, plan.config, counter=256 + 6, fate=lose_all)
    ran = post(fabric, plan)
    receiver, heard = fabric.ranks[0].receivers[0], []

    def hear():
        for task in (5, 6, 7, 255):
            receiver.on_chunk(ChunkImmediate(task, 2).pack(), b"stop")
            counted = fabric.ranks[0].operation.counted
            heard.append((receiver.to_recv, receiver.bitmap, counted.foreign, bytes(ran.outputs[0][8:12])))

    fabric.later(50_000_000, hear)
    fabric.run()
    assert fabric.ranks[0].operation.task == 6
    assert heard == [(2, 0, 1, bytes(4)), (1, 4, 1, b"stop"), (1, 4, 2, b"stop"), (1, 4, 3, b"stop")]
    assert ran.told == [[None], [None]]
    assert bytes(ran.outputs[0]) == content(0, 8) + b"stop" + content(1, 8)[4:]


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [0, 1, 4, 10, 23])
def test_subgroups_divide_a_block(parts, length):
    """Worker w has [w*n/W, (w+1)*n/W), and its own chunk ids."""
    plan = all_gather(4, length, MulticastConfig(mtu=4, subgroups=parts))
    ends = [w * length // parts for w in range(parts + 1)]
    assert [(part.start, part.start + part.length) for part in plan.subgroups] == list(pairwise(ends))
    ran = execute(plan, lambda source, receiver, subgroup, chunk: (receiver + subgroup + chunk) % 3 > 0, seed=length)
    check_done(ran, plan)
    for part in plan.subgroups:
        ids = sorted(number >> 8 for _, subgroup, number in ran.fabric.sent if subgroup == part.number)
        assert ids == list(range(4 * part.chunks))
    assert len(ran.fabric.tokens) == 4 - plan.roots


@pytest.mark.parametrize(
    ("size", "asked", "roots"),
    [(4, 1, 1), (4, 2, 2), (4, 4, 4), (6, 3, 3), (5, 2, 1), (4, 3, 1), (188, 2, 2), (2, 5, 1)],
)
def test_chains(size, asked, roots):
    """§3.10.2: R = N/M consecutive ranks; M = 1 if M does not divide N."""
    plan = all_gather(size, 1, MulticastConfig(roots=asked))
    length = size // roots
    assert plan.roots == roots
    assert [rank for rank in range(size) if plan.starts(rank)] == list(range(0, size, length))
    assert [rank for rank in range(size) if plan.finishes(rank)] == list(range(length - 1, size, length))


def test_chains_send_side_by_side():
    """M = 2: ranks 0 and 2 at once, then 1 and 3; every chunk says whose it is."""
    ran = execute(all_gather(4, 8, MulticastConfig(mtu=4)))
    order = [rank for rank, _, _ in ran.fabric.sent]
    assert (sorted(order[:4]), sorted(order[4:])) == ([0, 0, 2, 2], [1, 1, 3, 3])
    assert sorted(ran.fabric.tokens) == [(0, 1), (2, 3)]
    assert ran.fabric.most_active == 2


def test_batches():
    """300 chunks: two full batches, and the rest; the last one of each is signalled."""
    plan = broadcast(2, 299 * 4 + 1, 0, MulticastConfig(mtu=4, scale=1e5))
    fabric = fabric_of(2, plan.config)
    signalled, inner = [], fabric.ends[0].chunk

    def chunk(subgroup, immediate, data, done):
        signalled.append((immediate >> 8, len(data), done is not None))
        inner(subgroup, immediate, data, done)

    fabric.ends[0].chunk = chunk
    ran = post(fabric, plan)
    fabric.run()
    check_done(ran, plan)
    assert [number for number, _, _ in signalled] == list(range(300))
    assert [number for number, _, done in signalled if done] == [127, 255, 299]
    assert [number for number, size, _ in signalled if size != 4] == [299]


@pytest.mark.parametrize(("roots", "slowdown"), [(1, 1), (2, 2)])
def test_a_root_takes_its_share_of_the_link(roots, slowdown):
    """§3.10.2: 1/M of it."""
    plan = all_gather(2, 7000, MulticastConfig(mtu=1000, roots=roots, batch=1, link_rate=10**9, scale=1e3))
    ran = execute(plan)
    check_done(ran, plan)
    first = all_gather(2, 7000, MulticastConfig(mtu=1000, roots=roots, batch=1, scale=1e3))
    fast = execute(first)
    # a chain of 2/M blocks: 7 us a block at 1/M of 1 GB/s
    assert max(one.done_at for one in ran.counted) > 2 // roots * 7_000_000 * slowdown
    assert max(one.done_at for one in fast.counted) < 12_000_000


@pytest.mark.parametrize(("size", "hosts"), [(4, 4), (8, 4), (16, 4)])
def test_bytes_on_every_link(size, hosts):
    """§3.10.7, counted from the chunks that were sent: N(N+L)n, and the ratio 2(N-1)/N (invariant 36)."""
    plan = all_gather(size, 1000, MulticastConfig(mtu=256, scale=1e3))
    ran = execute(plan)
    check_done(ran, plan)
    shape = topology("leaf-spine", size, hosts_per_leaf=hosts)
    trav = inj = 0
    for rank, subgroup, immediate in ran.fabric.sent:
        owner, idx = divmod(immediate >> 8, plan.subgroups[subgroup].chunks)
        assert owner == rank
        bytes_sent = plan.subgroups[subgroup].span(idx)
        inj += bytes_sent
        trav += bytes_sent * len(shape.tree(rank))
    formula, ring = multicast_on_leaf_spine(size, hosts), ring_on_leaf_spine(size, hosts)
    assert (trav, inj) == (formula.traversals * 1000, formula.injected * 1000)
    assert ring.traversals * 1000 * size == trav * 2 * (size - 1)
    assert inj == ran.total("bytes_sent")


@pytest.mark.parametrize("fate", [all_arrive, lose_all, lose((0, 3), (1, 2), (2, 0))])
def test_without_receive_buffers(fate):
    """Chunks are counted, messages are the same."""
    plan = all_gather(4, 10, MulticastConfig(mtu=4))
    full = execute(plan, fate)
    fabric = fabric_of(4, plan.config, fate=fate)
    told = [[] for _ in range(4)]
    for rank in range(4):
        fabric.ranks[rank].post(plan, memoryview(content(rank, 10)), None, told[rank].append)
    fabric.run()
    assert told == [[None]] * 4
    assert [rank.operation.counted for rank in fabric.ranks] == full.counted
    assert (fabric.sent, fabric.controls, fabric.reads) == (full.fabric.sent, full.fabric.controls, full.fabric.reads)


@pytest.mark.parametrize("plan", [all_gather(1, 10), broadcast(1, 10, 0)])
def test_one_rank_is_a_local_copy(plan):
    """Invariant 18: no packets."""
    fabric = fabric_of(1, plan.config)
    ran = post(fabric, plan)
    check_done(ran, plan)
    assert fabric.network.timers.next is None


def test_nobody_leaves_before_its_visitor():
    """Invariant 31: rank 2 is late, so rank 1, from which it might read, waits for its FIN; the others need not."""
    plan = all_gather(4, 12288, MulticastConfig(roots=1))
    ran = execute(plan, lose((2, 0)))
    check_done(ran, plan)
    done, slow = [one.done_at for one in ran.counted], ran.counted[2].recovery_at
    assert [at > slow for at in done] == [False, True, True, False]


def test_a_request_waits_as_long_as_its_receiver_polls():
    """R1 runs no recovery: the control message stays in its queue, even if the block could be granted."""
    plan = all_gather(3, 12288)
    fabric = fabric_of(3, plan.config, fate=lose((1, 0), (2, 3)))
    slow, inner = fabric.ends[1], fabric.ends[1].after
    slow.after = lambda delay, action: inner(3 * delay, action)
    ran = post(fabric, plan)
    fabric.run()
    check_done(ran, plan)  # the fabric looks at every grant
    assert ran.requests == [(2, 1, 1), (1, 0, 0)]
    assert ran.counted[2].done_at > ran.counted[1].recovery_at > 2 * ran.counted[2].recovery_at


@pytest.mark.parametrize(
    ("table", "machine"),
    [(SENDER, ChunkSender), (REQUESTER, ChunkRequester), (RESPONDER, ChunkResponder)],
    ids=["S", "Q", "P"],
)
def test_tables(table, machine):
    """A row names methods; every state is reached, and one is the last."""
    states = type(next(iter(table)))
    rows = [row for rows in table.values() for row in rows]
    assert all(callable(getattr(machine, name)) for row in rows for name in (row.when, row.do))
    assert {row.then for row in rows} | {next(iter(states))} == set(states)
    assert len(set(states) - set(table)) == 1


def test_arrays_of_any_shape():
    """NumPy's, of no elements too."""
    for count in (6, 0):
        config = MulticastConfig(mtu=8, scale=1e5)
        fabric = fabric_of(2, config)
        given = [np.arange(count, dtype=np.int32).reshape(-1, 2) + rank for rank in range(2)]
        outputs, told = [np.zeros((2, count), np.int32) for _ in range(2)], []
        for rank, one in enumerate(fabric.ranks):
            one.post(all_gather(2, 4 * count, config), given[rank].data, outputs[rank].data, told.append)
        fabric.run()
        assert told == [None, None]
        for output in outputs:
            assert output.tolist() == [array.ravel().tolist() for array in given]


# What is illegal


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("mtu", 0, "mtu: 0; legal: a whole number from 1 on"),
        ("roots", -1, "roots: -1"),
        ("subgroups", 1.5, "subgroups: 1.5"),
        ("scale", 0, "scale: 0; legal: a number above 0"),
        ("scale", float("nan"), "scale: nan"),
        ("link_rate", 0, "link_rate: 0"),
        ("fetch_from", 2, "fetch_from: 2; legal: -1, 1"),
        ("order", "random", "order: 'random'; legal: ascending, from_next"),
    ],
)
def test_config_is_refused(field, value, message):
    with pytest.raises(LocalError, match=message):
        MulticastConfig(**{field: value})


def test_limits():
    """N*C < 2^24, and the receive buffer."""
    large = MulticastConfig(mtu=1)
    assert all_gather(4, (2**24 - 1) // 4, large).length == 4194303
    with pytest.raises(LocalError, match=r"length: 4194304; legal: 0 … 4194303 with 4 blocks, MTU 1, 1 subgroups"):
        all_gather(4, 4194304, large)
    assert all_gather(4, 4194304, MulticastConfig(mtu=1, subgroups=2)).subgroups[1].chunks == 2097152
    assert all_gather(188, 1 << 20).bytes == 188 << 20
    with pytest.raises(LocalError, match="receive buffer up to 536870912"):
        all_gather(188, 3 << 20)
    for make in (lambda: all_gather(0, 1), lambda: all_gather(2, -1), lambda: broadcast(2, 1, 2)):
        with pytest.raises(LocalError, match=r"size: 0|length: -1|root: 2; legal: 0 … 1"):
            make()


def test_posts_are_refused():
    plan = all_gather(2, 4)
    fabric = fabric_of(2, plan.config)
    rank, four, eight = fabric.ranks[0], memoryview(bytes(4)), memoryview(bytearray(8))
    for arguments, message in [
        ((all_gather(3, 4), four, eight), "plan: of 3 ranks; legal: of 2"),
        ((all_gather(2, 4, MulticastConfig(mtu=8)), four, eight), "same config"),
        ((plan, None, eight), "source: missing"),
        ((broadcast(2, 4, 1), four, memoryview(bytearray(4))), "source: not None"),
        ((plan, memoryview(b"abc"), eight), "source: 3 bytes; legal: 4"),
        ((plan, four, memoryview(bytearray(7))), "into: 7 bytes; legal: 8"),
        ((plan, four, memoryview(bytes(8))), "into: read-only"),
        ((plan, memoryview(bytes(8))[::2], eight), "source: 4 bytes in pieces; legal: 4"),
    ]:
        with pytest.raises(LocalError, match=message):
            rank.post(*arguments, lambda error: None)
    for _ in range(16):
        rank.post(plan, four, eight, lambda error: None)
    with pytest.raises(LocalError, match="post: 16 operations are not done; legal: at most 16"):
        rank.post(plan, four, eight, lambda error: None)


@examples(60)
@given(
    noise=st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 60_000_000), st.sampled_from(["chunk", "token", "control", "grant"]),
            st.integers(0, 5), st.integers(0, 2**32 - 1) | st.sampled_from([FIN.pack(), 0, 8, 16]),
            st.binary(max_size=13) | st.just(bytes(12)),
        ),
        max_size=20,
    )
)  # fmt: skip
@example(noise=[(0, 3_000_000, "chunk", 0, 0xFFFFFF00, b"")])
@example(noise=[(0, 30_000_000 + at, "control", 0, 0x6F569, b"") for at in range(0, 20_000_000, 500_000)])
@example(noise=[(1, 35_000_000 + at, "grant", 0, 0, bytes(12)) for at in range(-15_000_000, 0, 100_000)])
def test_bytes_from_outside_never_raise(noise):
    """Messages that mean nothing: from ranks that are no neighbours, with task ids of no operation."""
    plan = all_gather(3, 12288)
    fabric = fabric_of(3, plan.config, fate=lose((1, 1)))
    ran = post(fabric, plan)

    def hear(rank, kind, peer, immediate, data):
        one = fabric.ranks[rank]
        if kind == "chunk":
            one.receivers[0].on_chunk(immediate | 0x80, data)
        elif kind == "token":
            one.on_token(rank)
        elif kind == "control":
            one.on_control(peer + 3, immediate)
        else:
            one.on_grant(peer + 3, data)

    for rank, at, kind, peer, immediate, data in noise:
        fabric.later(at, lambda what=(rank, kind, peer, immediate, data): hear(*what))
    fabric.run()
    check_done(ran, plan)


def test_strays_of_neighbours():
    """The right peer says the wrong thing, or at the wrong time: it is counted, and means nothing."""
    plan = all_gather(3, 12288, MulticastConfig(roots=1))
    fabric = fabric_of(3, plan.config, fate=lose((1, 0)))
    for one in fabric.ranks:
        one.on_token(0)
        one.on_control(0, 0)
        one.on_grant(0, ReadGrant(0, 0).pack())
    assert [one.strays for one in fabric.ranks] == [3, 3, 3]
    ran = post(fabric, plan)
    one = fabric.ranks[0]
    for message in (
        lambda: one.on_control(1, RingImmediate(0, 3).pack()),  # no such owner
        lambda: one.on_control(1, RingImmediate(2, 0).pack()),  # no such type
        lambda: one.on_control(1, RingImmediate(1, 0).pack()),  # a FIN with an owner
        lambda: one.on_grant(2, ReadGrant(1, 2).pack()),  # not asked for
        lambda: one.on_token(2),  # a starter waits for none
    ):
        fabric.later(5_000_000, message)
    fabric.run()
    check_done(ran, plan)
    assert one.operation.counted.strays == 5
    one.on_control(1, 0)  # it is over
    assert one.operation.counted.strays == 6


def test_a_chunk_of_the_wrong_length_is_as_if_lost():
    """Invariant 35: offset + length is never beyond the end of the block."""
    plan = all_gather(2, 10, MulticastConfig(mtu=4, scale=1e5))
    fabric = fabric_of(2, plan.config)
    inner = fabric.ends[1].chunk
    fabric.ends[1].chunk = lambda subgroup, immediate, data, done: inner(
        subgroup, immediate, memoryview(bytes(data) + b"!") if immediate >> 8 == 5 else data, done
    )
    ran = post(fabric, plan)
    fabric.run()
    check_done(ran, plan)
    counted = fabric.ranks[0].operation.counted
    assert (counted.malformed, counted.chunks_fetched, counted.bytes_fetched) == (1, 1, 2)


@pytest.mark.parametrize("broken", ["barrier", "token", "control", "grant", "read"])
def test_a_failure_ends_the_operation_and_all_later_ones(broken):
    plan = all_gather(2, 4, MulticastConfig(roots=1))
    fabric = fabric_of(2, plan.config, fate=lose_all)
    error = TransportError("the cable is gone")
    end = fabric.ends[0]
    setattr(end, broken, lambda *arguments: fabric.later(5, lambda: arguments[-1](error)))
    first, second = post(fabric, plan), post(fabric, plan)
    fabric.run()
    assert first.told[0] == second.told[0] == [error]
    assert fabric.ranks[0].operation.ended
    assert not [key for key in fabric.buffers if key[0] == 0]
    third = []
    fabric.ranks[0].post(plan, memoryview(bytes(4)), None, third.append)
    assert third == [error]


def test_nothing_is_sent_after_the_end():
    plan = broadcast(2, 40, 0, MulticastConfig(mtu=4, batch=2))
    fabric = fabric_of(2, plan.config)
    ran = post(fabric, plan)
    while not fabric.sent:
        fabric.network.advance(fabric.network.timers.next)
        fabric.network.timers.fire(fabric.network.now)
    fabric.ranks[0].operation.fail(TransportError("no more patience"))
    fabric.run()
    assert len(fabric.sent) == 2
    assert len(ran.told[0]) == 1
    assert sorted(fabric.controls) == [(0, 1, FIN.pack()), (1, 0, RingImmediate(0, 0).pack())]
    assert fabric.grants == []


def test_it_can_be_ended_from_outside():
    """By whoever has no more patience; what arrives then changes nothing."""
    plan = all_gather(3, 100, MulticastConfig(order="from_next"))
    fabric = fabric_of(3, plan.config, fate=lose_all)
    ran = post(fabric, plan)
    fabric.run()
    error = TransportError("deadlock")
    for rank in fabric.ranks:
        rank.operation.fail(error)
        rank.operation.fail(error)
    fabric.run()
    assert ran.told == [[error]] * 3
    assert str(fabric.ranks[0].operation) == "rank 0: done"


@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_that_was_posted_can_be_ended(which):
    """Before it has begun, too: those before it are done, it and those behind it fail."""
    plan = all_gather(3, 100, MulticastConfig(mtu=16))
    fabric = fabric_of(3, plan.config)
    told = [[None] * 4 for _ in range(3)]
    error = TransportError("no more patience")
    posted = []
    for rank, end in enumerate(fabric.ranks):
        for turn in range(4):

            def done(found, rank=rank, turn=turn):
                told[rank][turn] = found or "done"

            into = memoryview(bytearray(plan.bytes))
            posted.append(end.post(plan, memoryview(content(rank, 100)), into, done))
    for one in posted[which::4]:
        one.fail(error)
        one.fail(TransportError("another"))
    fabric.run()
    assert told == [["done"] * which + [error] * (4 - which)] * 3
    assert not fabric.buffers
