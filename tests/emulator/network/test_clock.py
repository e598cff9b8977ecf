"""The event list."""

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
