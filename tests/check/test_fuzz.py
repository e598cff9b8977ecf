# SPDX-License-Identifier: GPL-2.0-only
"""The fuzzer's loop: episodes that depend on nothing but their seed, and findings in few steps."""

import random
from collections.abc import Callable
from itertools import count, islice
from typing import Any

import pytest

from tests.support.effort import effort
from uetproto.check import episode as playing
from uetproto.check import fuzz as module
from uetproto.check.episode import from_place, to_place
from uetproto.check.fuzz import ALL, MACHINES, FuzzTally, fuzz
from uetproto.check.registry import InvariantViolation
from uetproto.check.uet import episode
from uetproto.check.wire import ALL as WHOLE_WIRE
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.errors import LocalError
from uetproto.steps.uet import MessageSpec, UetStep

# The loop, on a simulator of its own ----------------------------------------------------------------------------------


class Toy:
    """In place of `UetSimulator`: packets with contents 0, 1, …, and rules about what may arrive."""

    def __init__(
        self, rule: Callable[["Toy", int], None], knobs: Any, presets: Any, objects: bool, mtu: int | None
    ) -> None:
        self.rule = rule
        self.knobs = knobs
        self.objects = objects
        self.now = self.sent = self.contents = self.steps = 0
        self.flight: dict[int, int] = {}
        self.all: dict[int, int] = {}
        self.arrived: set[int] = set()

    def apply(self, step: UetStep) -> None:
        self.steps += 1
        number = step.number
        if step.action == "submit":
            assert step.message is not None
            for _ in range(step.message.packets):
                self._leave(self.contents)
                self.contents += 1
        elif step.action == "advance":
            self.now += number
        elif step.action == "dup":
            self._leave(self.all[number])
        elif number not in self.flight:
            raise LocalError(f"packet {number} is not on the wire")
        else:
            content = self.flight.pop(number)
            if step.action == "deliver":
                self._arrive(content)

    def finish(self) -> None:
        for number in list(self.flight):
            self._arrive(self.flight.pop(number))

    def _leave(self, content: int) -> None:
        self.flight[self.sent] = self.all[self.sent] = content
        self.sent += 1

    def _arrive(self, content: int) -> None:
        self.rule(self, content)
        self.arrived.add(content)


class ToyGenerator:
    def __init__(self, profile: str, chance: random.Random) -> None:
        self.chance = chance
        self.knobs: tuple[dict[str, Any], dict[str, Any]] = ({"mp_range": 128, "ar_on_eom": False}, {"msl": 0})
        self.presets = (Preset(start_psn=5), Preset())

    def choose(self, simulator: Toy) -> UetStep:
        draw = self.chance.random()
        if not simulator.flight or draw < 0.2:
            return UetStep("submit", message=MessageSpec(packets=1 + int(self.chance.random() * 4)))
        if draw < 0.25:
            return UetStep("drop", number=1 << 40)  # is never there
        if draw < 0.3:
            return UetStep("advance", number=1000)
        if draw < 0.35:
            return UetStep("dup", number=int(self.chance.random() * simulator.sent))
        there = sorted(simulator.flight)
        return UetStep("drop" if draw < 0.4 else "deliver", number=there[int(self.chance.random() * len(there))])


def lax(simulator: Toy, content: int) -> None:
    """Anything may arrive."""


def once(simulator: Toy, content: int) -> None:
    if content in simulator.arrived:
        raise InvariantViolation("pds 1", "delivered twice", content)


def once_without_bytes(simulator: Toy, content: int) -> None:
    if simulator.objects:
        once(simulator, content)


def in_order(simulator: Toy, content: int) -> None:
    if any(other > content for other in simulator.arrived):
        raise InvariantViolation("pds 2", "out of order", content)


def few(simulator: Toy, content: int) -> None:
    _ = bytes(8)[content]


def early(simulator: Toy, content: int) -> None:
    if simulator.now >= 3000:
        raise InvariantViolation("pds 49", "too late at", simulator.now)


def early_in_small_windows(simulator: Toy, content: int) -> None:
    if simulator.knobs[0].get("mp_range") == 128:
        early(simulator, content)


def endless(simulator: Toy, content: int) -> None:
    while simulator.now >= 3000:
        pass


_WHIMS = count()


def whimsical(simulator: Toy, content: int) -> None:
    """Breaks the rule that one seed gives one trace."""
    if next(_WHIMS) == 300:
        raise InvariantViolation("pds 1", "once in a while")


def submit(packets: int = 1) -> UetStep:
    return UetStep("submit", message=MessageSpec(packets))


@pytest.fixture
def rule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the toys in place, with the rule that the test is parametrized with."""
    monkeypatch.setattr(episode, "UetSimulator", lambda draws, *more, **bytes: Toy(request.param, *more, **bytes))
    monkeypatch.setattr(episode, "UetStepGenerator", ToyGenerator)
    for machine in MACHINES:
        monkeypatch.setitem(module.BEGINNINGS, machine, episode.begin)


def total(machine: str = "rud", seed: int = 7, steps: int = 3000, **more: Any) -> FuzzTally:
    result = FuzzTally()
    for tally in fuzz(machine, seed, steps=steps, **more):
        result.add(tally)
    return result


@pytest.mark.parametrize("rule", [lax, once, few], indirect=True)
@pytest.mark.parametrize("machine", [*MACHINES, ALL])
def test_one_seed_one_run(machine: str, rule: None) -> None:
    steps = effort(600, 1500, 1500)
    first, again, other = total(machine, steps=steps), total(machine, steps=steps), total(machine, 8, steps)
    assert first == again
    assert first.digest != other.digest
    assert first.steps == other.steps == steps


@pytest.mark.parametrize("rule", [lax], indirect=True)
def test_all_machines_take_turns(rule: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Asked(ToyGenerator):
        def __init__(self, profile: str, chance: random.Random) -> None:
            asked.append(profile)
            super().__init__(profile, chance)

    monkeypatch.setattr(episode, "UetStepGenerator", Asked)
    assert len(list(islice(fuzz(ALL, 1), 2 * len(MACHINES)))) == 2 * len(MACHINES)
    assert asked == [*MACHINES, *MACHINES]


@pytest.mark.parametrize("rule", [once], indirect=True)
def test_workers_share_the_episodes(rule: None) -> None:
    """Three of every third episode do what one does; only the shrinking is done by more of them."""
    alone, shared = FuzzTally(), FuzzTally()
    for tally in islice(fuzz(ALL, 5), 12):
        alone.add(tally)
    for first in range(3):
        for tally in islice(fuzz(ALL, 5, first=first, stride=3), 4):
            shared.add(tally)
    assert alone.failed > 3
    assert (alone.steps, alone.failed, alone.digest) == (shared.steps, shared.failed, shared.digest)
    assert {one.kind for one in alone.findings} == {one.kind for one in shared.findings} == {"pds 1"}


@pytest.mark.parametrize(
    ("rule", "kind", "smallest"),
    [
        (once, "pds 1", [submit(), UetStep("dup"), UetStep("deliver"), UetStep("deliver", number=1)]),
        (in_order, "pds 2", [submit(2), UetStep("deliver", number=1), UetStep("deliver")]),
        (few, "IndexError in test_fuzz.few", [submit(9), *[UetStep("deliver")] * 9]),
        (early, "pds 49", [*[UetStep("advance", number=1000)] * 3, submit(), UetStep("deliver")]),
    ],
    indirect=["rule"],
)  # fmt: skip
def test_a_finding_is_small(rule: None, kind: str, smallest: list[UetStep]) -> None:
    """In what it is about: packets of all messages, time of all steps."""
    tally = total()
    (finding,) = tally.findings
    assert finding.kind == kind
    assert tally.failed > 1, "the others are counted"
    assert volume(list(finding.steps)) == volume(smallest)
    assert not finding.only_objects
    assert finding.seed.startswith("7/")


def volume(steps: list[UetStep]) -> tuple[int, int, int]:
    packets = sum(step.message.packets for step in steps if step.message)
    time = sum(step.number for step in steps if step.action == "advance")
    return packets, time, sum(step.action in ("dup", "deliver") for step in steps)


@pytest.mark.parametrize("rule", [once_without_bytes], indirect=True)
def test_what_fails_without_bytes_only(rule: None) -> None:
    (finding,) = total().findings
    assert finding.only_objects
    assert not finding.only_once


@pytest.mark.parametrize("rule", [whimsical], indirect=True)
def test_what_fails_only_once(rule: None) -> None:
    (finding,) = islice((one for tally in fuzz("rud", 7) for one in tally.findings), 1)
    assert finding.only_once
    assert len(finding.steps) == finding.drawn


@pytest.mark.parametrize("rule", [few], indirect=True)
def test_an_exception_is_told_with_its_traceback(rule: None) -> None:
    (finding,) = total().findings
    assert finding.text.splitlines()[0] == "IndexError: index out of range"
    assert finding.text.splitlines()[1] == "Traceback (most recent call last):"
    assert "in few" in finding.text


@pytest.mark.parametrize("rule", [once], indirect=True)
@pytest.mark.parametrize("give_up", [False, True])
def test_stopped_at_a_finding(rule: None, give_up: bool) -> None:
    """It ends after the episode, and tells what it has."""
    answers = iter([False])
    (tally,) = fuzz("rud", 7, stop=lambda: next(answers, True), give_up=lambda: give_up)
    (finding,) = tally.findings
    assert finding.drawn == tally.steps
    assert (len(finding.steps) == finding.drawn) is give_up
    assert finding.given_up is give_up


def endless_with_bytes(simulator: Toy, content: int) -> None:
    once(simulator, content)
    while not simulator.objects:
        pass


@pytest.mark.parametrize("rule", [endless_with_bytes], indirect=True)
def test_given_up_in_the_middle_of_an_attempt(rule: None) -> None:
    """What was not played to its end is no reason to say that it does not fail."""
    (finding,) = islice((one for tally in fuzz("rud", 7, give_up=late()) for one in tally.findings), 1)
    assert finding.given_up
    assert not finding.only_objects
    assert not finding.only_once
    assert len(finding.steps) == finding.drawn


@pytest.mark.parametrize("rule", [endless], indirect=True)
def test_given_up_in_the_middle_of_an_episode(rule: None) -> None:
    """It is no failure."""
    (tally,) = islice(fuzz("rud", 7, give_up=late()), 1)
    assert (tally.failed, tally.findings) == (0, [])
    assert tally.steps > 0


def late() -> Callable[[], bool]:
    """A condition that holds when it is asked for the third time: an attempt that hangs asks again and again."""
    asked = count(1)
    return lambda: next(asked) >= 3


@pytest.mark.parametrize("rule", [once], indirect=True)
def test_the_effort_is_bounded(rule: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EFFORT", 1)
    (finding,) = total().findings
    assert 2 < len(finding.steps) <= finding.drawn


@pytest.mark.parametrize("rule", [endless], indirect=True)
def test_what_hangs_is_found(rule: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "PATIENCE", 0.1)
    (finding,) = islice((one for tally in fuzz("rud", 7) for one in tally.findings), 1)
    assert finding.kind == "TooSlow"
    assert "in endless" in finding.text
    assert not finding.only_once


@pytest.mark.parametrize("rule", [early_in_small_windows], indirect=True)
def test_settings_that_do_not_matter_are_left_out(rule: None) -> None:
    (finding,) = total().findings
    assert finding.settings.knobs == ({"mp_range": 128}, {})


@pytest.mark.parametrize("rule", [lax], indirect=True)
def test_stopped_before_it_began(rule: None) -> None:
    assert list(fuzz("rud", 7, stop=lambda: True)) == []


PLACES = [
    (UetStep("deliver", number=6), UetStep("deliver", number=1)),
    (UetStep("corrupt", number=9, at=5), UetStep("corrupt", number=2, at=5)),
    (UetStep("dup", number=9), UetStep("dup", number=0)),
    (UetStep("dup", number=2), UetStep("dup", number=7)),
    (UetStep("trim", number=WHOLE_WIRE), UetStep("trim", number=WHOLE_WIRE)),
    (UetStep("give_credit", 1, 6), UetStep("give_credit", 1, 6)),
    (UetStep("submit", message=MessageSpec()), UetStep("submit", message=MessageSpec())),
]


def wire(*numbers: int, sent: int = 10) -> Any:
    simulator = Toy(lax, ({}, {}), None, True, None)
    simulator.flight, simulator.sent = dict.fromkeys(numbers, 0), sent
    return simulator


@pytest.mark.parametrize(("step", "placed"), PLACES)
def test_packets_by_their_place(step: UetStep, placed: UetStep) -> None:
    assert to_place(step, wire(3, 6, 9)) == placed
    assert from_place(placed, wire(3, 6, 9)) == step


@pytest.mark.parametrize("step", [UetStep("deliver", number=3), UetStep("dup", number=10)])
def test_a_place_that_is_empty(step: UetStep) -> None:
    assert from_place(step, wire(3, 6, 9)) is None
