# SPDX-License-Identifier: GPL-2.0-only
"""Nobody leaves before the last one came (collectives.md §3.7, invariant 15 of schedules alone)."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.collectives.executor import World
from tests.support.effort import examples
from uetproto import decode
from uetproto.api import distributed as dist
from uetproto.collectives.algorithms.barrier import Knomial
from uetproto.collectives.algorithms.catalogue import schedule, scheduled
from uetproto.collectives.costs.check import check
from uetproto.wire.capture.pcap import open_capture


def test_the_golden_dissemination() -> None:  # §6.4
    made = schedule("barrier", "dissemination", 6)
    assert made.length == 3
    columns = made.arrays()
    assert len(columns["step"]) == 18
    last = columns["step"] == 2
    assert columns["dst"][last].tolist() == [(rank + 4) % 6 for rank in columns["src"][last]]


@given(size=st.integers(1, 70))
def test_after_round_k_a_rank_knows_of_the_last_ones(size: int) -> None:
    columns = schedule("barrier", "dissemination", size).arrays()
    knows = [{rank} for rank in range(size)]
    for k in range((size - 1).bit_length()):
        here = columns["step"] == k
        heard = zip(columns["src"][here].tolist(), columns["dst"][here].tolist(), strict=True)
        told = [(dst, set(knows[src])) for src, dst in heard]
        for dst, of in told:
            knows[dst] |= of
        assert knows == [{(rank - back) % size for back in range(min(2 << k, size))} for rank in range(size)]


@given(size=st.integers(2, 40))
def test_two_passes_are_one_message_at_a_time(size: int) -> None:
    found = check(schedule("barrier", "ring", size))
    assert found.steps == found.messages == 2 * size


@pytest.mark.parametrize(
    ("size", "groups", "extras"),
    [(1, (), 0), (3, (3,), 0), (4, (4,), 0), (6, (4,), 2), (15, (4, 3), 3), (16, (4, 4), 0), (70, (4, 4, 4), 6)],
)
def test_knomial_groups(size: int, groups: tuple[int, ...], extras: int) -> None:
    """By hand: powers of four, a last round of what is left of them, and extras at proxies."""
    found = Knomial(size)
    assert (found.groups, found.extras) == (groups, extras)
    made = schedule("barrier", "knomial", size)
    assert made.length == len(groups) + 2 * (extras > 0)
    columns = made.arrays()
    messages = (size - extras) * sum(group - 1 for group in groups) + 2 * extras
    assert len(columns["step"]) == messages
    if extras:
        first = columns["step"] == 0
        assert columns["src"][first].tolist() == [2 * proxy + 1 for proxy in range(extras)]
        assert columns["dst"][first].tolist() == [2 * proxy for proxy in range(extras)]


def test_a_knomial_round() -> None:
    """Of 16 ranks rank 6 tells 4, 5 and 7, then 2, 10 and 14."""
    steps = list(schedule("barrier", "knomial", 16).steps(6))
    assert [sorted(send.peer for send in step.sends) for step in steps] == [[4, 5, 7], [2, 10, 14]]


@given(size=st.integers(1, 100))
def test_every_variant_is_proved(size: int) -> None:
    for name in scheduled("barrier"):
        check(schedule("barrier", name, size))


@given(size=st.integers(2, 40))
def test_a_counter_is_two_steps_of_rank_0(size: int) -> None:
    columns = schedule("barrier", "counter", size).arrays()
    others = list(range(1, size))
    assert columns["step"].tolist() == [0] * (size - 1) + [1] * (size - 1)
    assert columns["src"].tolist() == others + [0] * (size - 1)
    assert columns["dst"].tolist() == [0] * (size - 1) + others


def test_the_service_barrier_sums_one_element() -> None:
    """It is an all_reduce, by recursive doubling: the same messages, of the element that nobody hands in."""
    made, sum_ = schedule("barrier", "service", 6), schedule("all_reduce", "recursive_doubling", 6, 1)
    for name, column in made.arrays().items():
        if "buffer" not in name:
            assert column.tolist() == sum_.arrays()[name].tolist()
    assert made.counts(3) == (0, 0, 1)


@pytest.mark.parametrize("transport", ["uet", "roce"])
def test_the_element_on_the_wire_is_zero(transport: str, tmp_path: Path) -> None:
    """Scratch memory that was in use before is not sent: one seed, one trace."""
    path = tmp_path / "run.pcapng"

    def program(rank: int) -> None:
        dist.init_process_group()
        dist.all_reduce(np.full(64, 0x7E, np.uint8), algorithm="recursive_doubling")
        dist.barrier(algorithm="service")

    with dist.World(2, transport=transport, capture=str(path), taps="all") as world:
        world.run(program)
    with open_capture(path) as reader:
        sent = [bytes(decode(record.data).payload) for record in reader]
    assert {payload for payload in sent if len(payload) in (1, 4)} <= {bytes(1), bytes(4)}
    assert any(len(payload) in (1, 4) for payload in sent)


@examples(100)
@given(
    size=st.integers(2, 16),
    name=st.sampled_from(scheduled("barrier")),
    late=st.integers(0, 15),
    seed=st.integers(),
)
def test_a_rank_that_stays_away_holds_up_all(size: int, name: str, late: int, seed: int) -> None:
    late %= size
    world = World(schedule("barrier", name, size), [np.zeros(0, int)] * size, seed=seed)
    absent = world.ranks[late]
    ready = [(world._next, rank) for rank in world.ranks if rank is not absent]
    while ready:
        world.chance.shuffle(ready)
        action, *arguments = ready.pop()
        ready += action(*arguments)
    assert all(rank.step is not None for rank in world.ranks if rank is not absent)
