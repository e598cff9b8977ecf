# SPDX-License-Identifier: GPL-2.0-only
"""A rank hears late of a barrier: neighbours have cut off and asked it before it is armed (collectives.md §3.10.5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import examples
from uetproto.collectives.multicast.config import MulticastConfig
from uetproto.collectives.multicast.plan import all_gather, broadcast
from uetproto.errors import LocalError
from uetproto.testing.machines.fabrics.multicast_fabric import (
    all_arrive,
    check_done,
    execute,
    fabric_of,
    lose_all,
    post,
)

MICROSECOND = 10**6


@pytest.mark.parametrize("late", [0, 1, 2, 3])
@pytest.mark.parametrize("fetch_from", [-1, 1])
def test_requests_before_it_is_armed_count(late, fetch_from):
    """The others cut off within 0.04 us. Each asks its source for what is missing, the late one too, which answers when
    it recovers itself: nothing is lost, and nothing is counted as a stray."""
    config = MulticastConfig(mtu=4, fetch_from=fetch_from)
    plan = all_gather(4, 12, config)
    ran = execute(plan, late={late: 50 * MICROSECOND})
    check_done(ran, plan)
    assert ran.total("strays") == 0
    assert ran.total("requests") == ran.total("grants") == len(ran.requests)
    visitor = plan.visitor(late)
    first = min(ran.fabric.ranks[rank].operation.counted.armed_at for rank in range(4))
    assert ran.counted[visitor].cutoff
    assert ran.counted[late].armed_at >= first + 50 * MICROSECOND
    assert ran.counted[visitor].recovery_at < ran.counted[late].armed_at
    assert any((source, target) == (visitor, late) for source, target, _ in ran.requests)


def test_a_fin_before_it_is_armed_counts():
    """Of a broadcast of no bytes there is nothing to wait for: the others are done before the late one has begun."""
    plan = broadcast(3, 0, 0)
    ran = execute(plan, late={2: 50 * MICROSECOND})
    check_done(ran, plan)
    assert ran.total("strays") == 0
    assert ran.total("fins") == 3
    assert ran.counted[0].recovery_at < ran.counted[2].armed_at


@examples(80)
@given(
    size=st.integers(2, 6), length=st.integers(0, 20), seed=st.integers(0, 2**32), root=st.none() | st.integers(0, 1),
    late=st.dictionaries(st.integers(0, 5), st.integers(1, 400 * MICROSECOND), max_size=4), loses=st.booleans(),
    subgroups=st.integers(1, 2), skew=st.sampled_from([0, 300 * MICROSECOND]),
)  # fmt: skip
def test_any_rank_may_be_late(size, length, seed, root, late, loses, subgroups, skew):
    """Skew and delays are thousands of times the cutoff."""
    config = MulticastConfig(mtu=3, subgroups=subgroups)
    plan = all_gather(size, length, config) if root is None else broadcast(size, length, root, config)
    assert plan.cutoff < MICROSECOND
    ran = execute(plan, lose_all if loses else all_arrive, seed=seed, late=late, skew=skew)
    check_done(ran, plan)
    assert ran.total("strays") == ran.total("malformed") == 0
    assert ran.total("fins") == size
    assert ran.total("requests") == ran.total("grants")


def test_several_operations_with_a_late_rank():
    """Requests and grants carry no task id: none is taken for one of another operation."""
    config = MulticastConfig(mtu=4)
    plan = all_gather(3, 10, config)
    fabric = fabric_of(3, config, fate=lambda *_: int(fabric.random.random() < 0.7), seed=4, late={1: 20 * MICROSECOND})
    runs = [post(fabric, plan, salt=turn) for turn in range(12)]
    fabric.run()
    for turn, ran in enumerate(runs):
        check_done(ran, plan, salt=turn)
        assert ran.total("strays") == 0


def test_the_least_cutoff():
    """However few the bytes are; more bytes may take longer."""
    assert all_gather(4, 12288).cutoff == 35_108_571  # 5 * 49152 / 7e9 s (§6.3)
    config = MulticastConfig(least=50 * MICROSECOND)
    assert all_gather(4, 12288, config).cutoff == all_gather(4, 0, config).cutoff == 50 * MICROSECOND
    assert all_gather(4, 122880, config).cutoff == 351_085_714
    ran = execute(all_gather(4, 12288, config), lose_all)
    assert {one.recovery_at - one.armed_at for one in ran.counted} == {50 * MICROSECOND}
    for value in (-1, 1.5):
        with pytest.raises(LocalError, match=r"least: .*; legal: picoseconds from 0 on"):
            MulticastConfig(least=value)
