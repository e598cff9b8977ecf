# SPDX-License-Identifier: GPL-2.0-only
"""The worked example of multicast and its variants (collectives.md §6.3), and the deadlock (§3.10.5)."""

import pytest

from uetproto.collectives.multicast.config import MulticastConfig
from uetproto.collectives.multicast.plan import all_gather, broadcast
from uetproto.collectives.multicast.recovery import RequesterState, ResponderState
from uetproto.collectives.multicast.wire import ChunkImmediate, RingImmediate
from uetproto.testing.machines.fabrics.multicast_fabric import (
    MulticastRun,
    check_done,
    execute,
    expected,
    fabric_of,
    lose,
    lose_all,
    post,
)

ONE_ROOT = MulticastConfig(roots=1)
RIGHT = MulticastConfig(roots=1, fetch_from=1)
PLAN = all_gather(4, 12288, ONE_ROOT)
NEED_FETCH_1, FIN = 0x8, 0x6F569


def totals(ran: MulticastRun) -> dict[str, int]:
    names = ("chunks_sent", "tokens", "requests", "grants", "reads", "fins")
    return {name: ran.total(name) for name in names}


def test_the_example():
    fabric = fabric_of(4, ONE_ROOT, counter=7, fate=lose((2, 4)), delay=100_000)
    ran = post(fabric, PLAN)
    receiver, before = fabric.ranks[2].receivers[0], []
    fabric.later(34_000_000, lambda: before.append((receiver.bitmap, list(receiver.recvd), receiver.to_recv)))
    fabric.run()
    check_done(ran, PLAN)
    counted = ran.counted
    # sequence: three tokens, ids ascending, the immediate of chunk 4
    assert fabric.sent == [(number // 3, 0, number << 8 | 7) for number in range(12)]
    assert fabric.sent[4] == (1, 0, 0x00000407)
    assert fabric.tokens == [(0, 1), (1, 2), (2, 3)]
    assert fabric.most_active == 1
    # deliveries
    assert [one.chunks_received for one in counted] == [9, 9, 8, 9]
    assert [one.loopback + one.late for one in counted] == [3, 3, 3, 3]
    # before the cutoff
    assert before == [(0xE2F, [3, 2, 0, 3], 1)]
    assert [one.cutoff for one in counted] == [False, False, True, False]
    assert counted[2].recovery_at - counted[2].armed_at == PLAN.cutoff == 35_108_571
    # recovery
    assert ran.requests == [(2, 1, 1)]
    assert (2, 1, NEED_FETCH_1) in fabric.controls
    assert fabric.grants == [(1, 2)]
    assert fabric.reads == [(2, 1, 16384, 4096)]
    after = [rank.receivers[0] for rank in fabric.ranks]
    assert [one.bitmap for one in after] == [0xFF8, 0xFC7, 0xE3F, 0x1FF]
    assert after[2].recvd == [3, 3, 0, 3]
    # handshake
    assert sorted(found for found in fabric.controls if found[2] == FIN) == [
        (0, 3, FIN), (1, 0, FIN), (2, 1, FIN), (3, 2, FIN)
    ]  # fmt: skip
    assert counted[1].done_at > counted[2].recovery_at
    # totals
    assert totals(ran) == {"chunks_sent": 12, "tokens": 3, "requests": 1, "grants": 1, "reads": 1, "fins": 4}
    assert (ran.total("bytes_sent"), ran.total("bytes_fetched")) == (49152, 4096)
    assert (ran.total("chunks_received"), ran.total("chunks_fetched")) == (35, 1)


def test_the_direction_of_the_released_code():
    plan = all_gather(4, 12288, RIGHT)
    ran = execute(plan, lose((2, 4)), counter=7)
    check_done(ran, plan)
    assert ran.requests == [(2, 3, 1)]
    assert ran.fabric.grants == [(3, 2)]
    assert ran.fabric.reads == [(2, 3, 16384, 4096)]
    assert totals(ran) == {"chunks_sent": 12, "tokens": 3, "requests": 1, "grants": 1, "reads": 1, "fins": 4}


@pytest.mark.parametrize(
    ("losers", "chain"),
    [
        ((2, 3), [(2, 1), (3, 2)]),
        ((0, 2, 3), [(2, 1), (3, 2), (0, 3)]),
    ],
    ids=["two rounds", "three rounds"],
)
def test_a_request_is_parked_until_the_block_is_complete(losers, chain):
    ran = execute(PLAN, lose(*((rank, 4) for rank in losers)), counter=7)
    check_done(ran, PLAN)
    assert sorted(ran.requests) == sorted((reader, source, 1) for reader, source in chain)
    assert ran.fabric.reads == [(reader, source, 16384, 4096) for reader, source in chain]  # in this order
    assert ran.fabric.grants == [(source, reader) for reader, source in chain]
    assert totals(ran) == {
        "chunks_sent": 12, "tokens": 3, "requests": len(chain), "grants": len(chain), "reads": len(chain), "fins": 4,
    }  # fmt: skip
    assert ran.total("bytes_fetched") == 4096 * len(chain)


@pytest.mark.parametrize("owner", range(4))
@pytest.mark.parametrize(
    ("lost", "reads"),
    [
        ((0,), [(0, 4096)]),
        ((1,), [(4096, 4096)]),
        ((2,), [(8192, 1808)]),
        ((0, 1), [(0, 8192)]),
        ((1, 2), [(4096, 5904)]),
        ((0, 2), [(0, 4096), (8192, 1808)]),
        ((0, 1, 2), [(0, 10000)]),
    ],
)
def test_a_short_tail(owner, lost, reads):
    """n = 10000: the bytes of a run are not short because the tail of its block is (invariant 35)."""
    plan = all_gather(4, 10000, ONE_ROOT)
    reader = (owner + 1) % 4
    ran = execute(plan, lose(*((reader, owner * 3 + idx) for idx in lost)))
    check_done(ran, plan)
    assert ran.fabric.reads == [(reader, owner, owner * 10000 + start, size) for start, size in reads]


def test_all_is_lost():
    ran = execute(PLAN, lose_all)
    check_done(ran, PLAN)
    assert (ran.total("requests"), ran.total("chunks_fetched"), ran.total("grants")) == (12, 36, 12)
    assert ran.total("bytes_fetched") == 36 * 4096
    assert all(one.cutoff for one in ran.counted)


@pytest.mark.parametrize("fetch_from", [-1, 1])
def test_the_order_that_deadlocks(fetch_from):
    """N = 3, missing owners rank 0 [1, 2], rank 1 [2, 0], rank 2 [0, 1]: all wait for each other, with F(r) = r-1."""
    plan = all_gather(3, 100, MulticastConfig(order="from_next", fetch_from=fetch_from))
    assert [plan.fetch_order(rank, [owner for owner in range(3) if owner != rank]) for rank in range(3)] == [
        [1, 2], [2, 0], [0, 1]
    ]  # fmt: skip
    ran = execute(plan, lose_all)
    if fetch_from == 1:  # every rank asks the owner itself
        check_done(ran, plan)
        return
    assert ran.told == [[], [], []]
    operations = [rank.operation for rank in ran.fabric.ranks]
    assert {one.requester.state for one in operations} == {RequesterState.WAIT_ACK}
    assert {one.responder.state for one in operations} == {ResponderState.WAIT_LN_FETCH}
    assert sorted(ran.requests) == [(0, 2, 1), (1, 0, 2), (2, 1, 0)]
    assert ran.fabric.grants == []
    assert str(operations[0]) == (
        "rank 0: sender DONE; requester WAIT_ACK for the block of 1, peer 2; "
        "responder WAIT_LN_FETCH for the block of 2, peer 1"
    )


@pytest.mark.parametrize("fetch_from", [-1, 1])
def test_ascending_order_completes(fetch_from):
    plan = all_gather(3, 100, MulticastConfig(fetch_from=fetch_from))
    ran = execute(plan, lose_all)
    check_done(ran, plan)
    assert ran.total("requests") == 6


def test_nothing_is_lost():
    """Invariant 34, and no timer fires."""
    ran = execute(PLAN)
    check_done(ran, PLAN)
    assert totals(ran) == {"chunks_sent": 12, "tokens": 3, "requests": 0, "grants": 0, "reads": 0, "fins": 4}
    assert not any(one.cutoff for one in ran.counted)
    assert ran.fabric.network.now < PLAN.cutoff  # nothing is left to happen


def test_broadcast():
    """Only the root sends, no token; the cutoff is that of n bytes."""
    plan = broadcast(4, 10000, 2, ONE_ROOT)
    assert plan.cutoff == 7_142_857
    ran = execute(plan, lose((0, 1), (1, 1), (1, 2)), delay=100_000)
    check_done(ran, plan)
    assert ran.fabric.sent == [(2, 0, 0x000), (2, 0, 0x100), (2, 0, 0x200)]
    assert [one.chunks_received for one in ran.counted] == [2, 1, 0, 3]
    assert sorted(ran.requests) == [(0, 3, 2), (1, 0, 2)]  # the owner is the root
    assert ran.fabric.reads == [(0, 3, 4096, 4096), (1, 0, 4096, 5904)]
    assert totals(ran) == {"chunks_sent": 3, "tokens": 0, "requests": 2, "grants": 2, "reads": 2, "fins": 4}
    assert [rank.receivers[0].bitmap for rank in ran.fabric.ranks] == [7, 7, 0, 7]


@pytest.mark.parametrize(
    ("immediate", "task", "chunk"), [(0x00000407, 7, 4), (0xFFFFFFFF, 255, 0xFFFFFF), (0x100, 0, 1)]
)
def test_immediate_of_a_chunk(immediate, task, chunk):
    assert ChunkImmediate.unpack(immediate) == (task, chunk)
    assert ChunkImmediate(task, chunk).pack() == immediate


@pytest.mark.parametrize(("immediate", "kind", "owner"), [(0x8, 0, 1), (0x6F569, 1, 0xDEAD), (0x5D8, 0, 187)])
def test_immediate_of_the_ring(immediate, kind, owner):
    assert RingImmediate.unpack(immediate) == (kind, owner)
    assert RingImmediate(kind, owner).pack() == immediate


def test_expected_is_what_the_page_says():
    """The bench itself: blocks in the order of ranks, and nothing is the same twice."""
    assert len(expected(PLAN)) == 49152
    assert len({expected(PLAN)[start : start + 4096] for start in range(0, 49152, 4096)}) == 12
