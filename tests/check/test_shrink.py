# SPDX-License-Identifier: GPL-2.0-only
"""Delta debugging, on predicates of which the smallest failing list is known."""

import random
from collections.abc import Callable, Sequence

import pytest

from uetproto.check.shrink import shrink
from uetproto.check.uet.episode import simpler
from uetproto.check.wire import ALL
from uetproto.engine.contract import Mode
from uetproto.steps.uet import MessageSpec, UetStep

Steps = Sequence[UetStep]


def deliveries(*numbers: int) -> list[UetStep]:
    return [UetStep("deliver", number=number) for number in numbers]


def numbers(steps: Steps) -> list[int]:
    return [step.number for step in steps]


NOISE = deliveries(*range(1000, 1300))


@pytest.mark.parametrize(
    ("steps", "fails", "smallest"),
    [
        (deliveries(5), lambda s: True, []),
        (NOISE, lambda s: len(s) >= 7, [0] * 7),
        (NOISE, lambda s: any(n >= 100 for n in numbers(s)), [100]),
        (NOISE, lambda s: {1003, 1298} <= set(numbers(s)), [1003, 1298]),
        (NOISE, lambda s: {1000, 1150, 1299} <= set(numbers(s)), [1000, 1150, 1299]),
        (NOISE, lambda s: len(s) % 2 == 0 and 1007 in numbers(s), [0, 1007]),
        (deliveries(3, ALL, 4), lambda s: ALL in numbers(s), [ALL]),
    ],
)  # fmt: skip
def test_what_is_left(steps: list[UetStep], fails: Callable[[Steps], bool], smallest: list[int]) -> None:
    assert sorted(numbers(shrink(steps, fails, simpler))) == sorted(smallest)


def test_order_is_kept() -> None:
    """A step that only counts after another one: 1009 after 1003 after 1001."""
    needed = [1001, 1003, 1009]

    def fails(steps: Steps) -> bool:
        rest = iter(numbers(steps))
        return all(number in rest for number in needed)

    assert numbers(shrink(NOISE, fails, simpler)) == needed


def test_every_step_left_is_needed() -> None:
    """1-minimal, for predicates of all kinds."""
    for seed in range(20):
        chance = random.Random(seed)
        wanted = set(chance.sample(range(1000, 1300), 5))
        least = chance.randrange(2, 5)

        def fails(steps: Steps, wanted: set[int] = wanted, least: int = least) -> bool:
            return len(wanted & set(numbers(steps))) >= least

        best = shrink(NOISE, fails, simpler)
        assert fails(best)
        assert not any(fails(best[:at] + best[at + 1 :]) for at in range(len(best)))


@pytest.mark.parametrize(
    ("step", "fails", "simplest"),
    [
        (UetStep("advance", number=123_456_789), lambda s: s.number >= 1_000_000, UetStep("advance", number=1_000_000)),
        (UetStep("advance", number=123_456_789), lambda s: s.number >= 37, UetStep("advance", number=37)),
        (UetStep("corrupt", 1, 9, at=60), lambda s: s.action == "corrupt" and s.at >= 7, UetStep("corrupt", at=7)),
        (UetStep("noop", 1), lambda s: s.node == 1, UetStep("noop", 1)),
        (UetStep("respond", number=5, answer="gtd"), lambda s: s.number == 5, UetStep("respond", number=5)),
        (UetStep("inject", data=bytes(100)), lambda s: len(s.data) >= 12, UetStep("inject", data=bytes(12))),
        (
            UetStep("submit", 1, message=MessageSpec(40, Mode.ROD, "read", 9, "return", True, 3)),
            lambda s: s.message is not None and s.message.packets > 2 and s.message.mode is Mode.ROD,
            UetStep("submit", message=MessageSpec(3, Mode.ROD)),
        ),
    ],
)  # fmt: skip
def test_steps_get_simpler(step: UetStep, fails: Callable[[UetStep], bool], simplest: UetStep) -> None:
    assert shrink([step], lambda steps: len(steps) == 1 and fails(steps[0]), simpler) == [simplest]


@pytest.mark.parametrize("step", [
    UetStep("deliver"), UetStep("deliver", number=ALL), UetStep("submit", message=MessageSpec()), UetStep("restart"),
])  # fmt: skip
def test_nothing_is_simpler_than_the_defaults(step: UetStep) -> None:
    assert list(simpler(step)) == []


@pytest.mark.parametrize("tries", [0, 1, 10, 200])
def test_tries_are_bounded(tries: int) -> None:
    """And what comes back fails, however early the search ends."""
    asked = 0

    def fails(steps: Steps) -> bool:
        nonlocal asked
        asked += 1
        return {1003, 1150, 1298} <= set(numbers(steps))

    best = shrink(NOISE, fails, simpler, tries)
    assert asked <= tries
    assert fails(best)


def test_given_up() -> None:
    """It asks nothing more, and has what it had until then."""
    asked: list[Steps] = []

    def fails(steps: Steps) -> bool:
        asked.append(steps)
        return {1003, 1150, 1298} <= set(numbers(steps))

    best = shrink(NOISE, fails, simpler, give_up=lambda: len(asked) >= 10)
    assert len(asked) == 10
    assert len(best) < len(NOISE)
    assert fails(best)


def test_the_same_twice_and_nothing_asked_twice() -> None:
    def seen() -> tuple[list[UetStep], list[tuple[UetStep, ...]]]:
        asked: list[tuple[UetStep, ...]] = []

        def fails(steps: Steps) -> bool:
            asked.append(tuple(steps))
            return {1003, 1150} <= set(numbers(steps))

        return shrink(NOISE, fails, simpler), asked

    best, asked = seen()
    assert (best, asked) == seen()
    refused = [steps for steps in asked if not {1003, 1150} <= set(numbers(steps))]
    assert len(refused) == len(set(refused))
