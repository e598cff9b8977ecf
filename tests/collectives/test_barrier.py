"""Nobody leaves before the last one came (§3.7, invariant 15 of schedules alone)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.collectives.executor import World
from tests.strategies import examples
from uetproto.collectives.catalogue import schedule
from uetproto.collectives.check import check


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


@examples(100)
@given(
    size=st.integers(2, 16),
    name=st.sampled_from(["dissemination", "ring"]),
    late=st.integers(0, 15),
    seed=st.integers(),
)
def test_a_rank_that_stays_away_holds_up_all(size: int, name: str, late: int, seed: int) -> None:
    late %= size
    world = World(schedule("barrier", name, size), [np.zeros(0)] * size, seed=seed)
    absent = world.ranks[late]
    ready = [(world._next, rank) for rank in world.ranks if rank is not absent]
    while ready:
        world.chance.shuffle(ready)
        action, *arguments = ready.pop()
        ready += action(*arguments)
    assert all(rank.step is not None for rank in world.ranks if rank is not absent)
