# SPDX-License-Identifier: GPL-2.0-only
"""The event list."""

from random import Random

import pytest

from uetproto import LocalError
from uetproto.emulator.network.clock import Clock
from uetproto.engine.contract import NEVER


def test_order_of_time_then_of_entry() -> None:
    clock, seen = Clock(), []
    for time, name in ((30, "c"), (10, "a1"), (20, "b"), (10, "a2"), (10, "a3")):
        clock.at(time, lambda name: seen.append((clock.now, name)), name)
    assert clock.run() is False
    assert seen == [(10, "a1"), (10, "a2"), (10, "a3"), (20, "b"), (30, "c")]


def test_event_enters_another_of_the_same_instant() -> None:
    clock, seen = Clock(), []

    def first(_: object) -> None:
        clock.at(clock.now, seen.append, "now")
        seen.append("first")

    clock.at(5, first)
    clock.at(5, seen.append, "second")
    clock.run()
    assert seen == ["first", "second", "now"]


def test_limits() -> None:
    clock, seen = Clock(), []
    for time in range(10):
        clock.at(time, seen.append, time)
    assert clock.run(events=3) is True
    assert seen == [0, 1, 2]
    assert clock.run(until=6) is False
    assert (seen[-1], clock.now, len(clock)) == (6, 6, 3)
    clock.at(7, lambda _: clock.stop())
    assert clock.run() is False
    assert clock.now == 7
    assert clock.run() is False
    assert seen == list(range(10))


def test_the_past_is_refused() -> None:
    clock = Clock()
    clock.at(5, lambda _: None)
    clock.run()
    with pytest.raises(LocalError, match="4 ps has passed"):
        clock.at(4, lambda _: None)


def test_two_clocks_do_not_know_each_other() -> None:
    one, other = Clock(), Clock()
    one.at(100, lambda _: None)
    one.run()
    assert (one.now, other.now) == (100, 0)


def test_a_limit_within_several_of_one_instant() -> None:
    """They go on where they stopped; what is still to come is told rightly between and within them."""
    clock, seen = Clock(), []

    def look(name: str) -> None:
        seen.append((name, clock.next, len(clock)))
        if name == "b":
            clock.stop()
            clock.at(5, look, "d")

    for name in "abc":
        clock.at(5, look, name)
    clock.at(9, look, "e")
    assert clock.run(events=1) is True
    assert clock.run() is False
    assert (clock.now, clock.next, len(clock)) == (5, 5, 3)
    assert clock.run() is False
    assert seen == [("a", 5, 3), ("b", 5, 2), ("c", 5, 2), ("d", 9, 1), ("e", NEVER, 0)]


def test_an_event_that_raises_does_not_happen_again() -> None:
    clock, seen = Clock(), []

    def fail(_: object) -> None:
        raise KeyError

    for action in (fail, seen.append, fail):
        clock.at(5, action, "x")
    for _ in range(2):
        with pytest.raises(KeyError):
            clock.run()
    assert (seen, len(clock), clock.next) == (["x"], 0, NEVER)


@pytest.mark.parametrize("seed", range(6))
def test_order_is_that_of_a_sorted_list(seed: int) -> None:
    """Events add events at their own instant, in the same span and far ahead; the clock runs in bursts and pauses."""
    rng, told = Random(seed), iter(range(10**9))
    clock, waiting, ran = Clock(), [], []
    reach = (0, 1, 5_000, 40_000, 10**6, 10**9)

    def add() -> None:
        event = clock.now + rng.choice(reach) * rng.randrange(3), next(told)
        waiting.append(event)
        clock.at(event[0], happen, event)

    def add_several() -> None:
        first, step = clock.now + rng.choice(reach), rng.choice(reach[1:])
        events = [(first + at * step, next(told)) for at in range(rng.randrange(1, 6))]
        waiting.extend(events)
        clock.at_each(first, step, happen, events)

    def happen(event: tuple[int, int]) -> None:
        assert event == min(waiting)
        assert clock.now == event[0]
        waiting.remove(event)
        ran.append(event)
        for _ in range(rng.choice((0, 0, 0, 1, 2)) if len(ran) < 600 else 0):
            rng.choice((add, add, add, add_several))()
        if not rng.randrange(9):
            clock.stop()

    for _ in range(200):
        for _ in range(rng.randrange(4)):
            add()
        assert clock.next == min(waiting, default=(NEVER,))[0]
        assert len(clock) == len(waiting)
        if rng.randrange(2):
            clock.run(clock.now + rng.choice(reach), rng.choice((-1, 1, 7)))
        else:
            clock.advance(rng.choice(reach))
    while waiting:
        clock.run()
    assert ran == sorted(ran)
    assert len(ran) > 300


def test_an_event_that_runs_the_clock() -> None:
    """The inner run goes on with the rest, in order, and what it leaves runs after it."""
    clock, seen = Clock(), []

    def outer(_: object) -> None:
        seen.append(clock.run(5_000_000, 2))

    clock.at(1, outer)
    for time in (1, 2, 3, 4_000_000, 4_000_001, 9_000_000):
        clock.at(time, lambda time: seen.append((time, clock.now)), time)
    assert clock.run(events=4) is True
    assert seen == [(1, 1), (2, 2), True, (3, 3), (4_000_000, 4_000_000), (4_000_001, 4_000_001)]
    assert (len(clock), clock.next) == (1, 9_000_000)
