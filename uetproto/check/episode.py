# SPDX-License-Identifier: GPL-2.0-only
"""This module plays one episode of the fuzzer: a sequence of steps with its settings. It also replaces the packet
numbers in steps by positions, and positions by numbers.

A step names a packet by its number. When earlier steps are left out, the numbers of packets change, but often there is
still a packet at the same position among those on the wire. `to_place` and `from_place` translate between numbers and
positions.
"""

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

from uetproto.check.registry import InvariantViolation
from uetproto.check.simulator import Simulator
from uetproto.check.time_limit import GivenUp, TooSlow, time_limit
from uetproto.check.wire import ALL
from uetproto.errors import LocalError

PATIENCE = 300.0
"""Limit of CPU time for one episode, in seconds. An episode with thousands of refused packets may take a minute; one
that takes longer than the limit counts as endless."""

Stop = Callable[[], bool]
Knobs: TypeAlias = tuple[dict[str, Any], dict[str, Any]]

_ON_WIRE = frozenset({
    "deliver", "drop", "trim", "mark", "corrupt", "flip", "cut", "extend", "rewrite", "splice",
})  # fmt: skip
"""Actions whose `number` is that of a packet on the wire."""

Simulation: TypeAlias = Simulator[Any, Any]


@dataclass(frozen=True)
class EpisodeSettings(ABC):
    """This class has the settings with which the steps of an episode are played."""

    knobs: Knobs
    """Settings that differ from the defaults: a mapping for end 0, and one for end 1. With TSS, the first mapping is
    of `Terms` and the second of `PdsConfig`, and both apply to both ends."""

    step: ClassVar[Callable[..., Any]]

    @property
    def objects(self) -> bool:
        """Return whether packets travel as objects. Such packets are not encoded, and have very little payload."""
        return False

    @abstractmethod
    def simulator(self) -> Simulation:
        """Return a simulator in its initial state. Raises `LocalError` for settings that exclude each other."""

    @staticmethod
    @abstractmethod
    def simpler(step: Any) -> Iterable[Any]:
        """Yield variants of `step` with smaller values, the smallest first."""

    def names(self, node: int) -> list[str]:
        """Return the names of those settings of a node that can be reset to their defaults when a finding is shrunk."""
        return [*self.knobs[node]]

    def without(self, node: int, name: str) -> Self:
        """Return a copy of these settings in which the setting `name` of a node has its default. `name` is one of
        `names(node)`."""
        return replace(self, knobs=left_out(self.knobs, node, name))

    def as_run(self) -> Self:
        """Return the settings with which `uetproto run` plays the same steps, with encoded packets."""
        return self

    def with_bytes(self, step: Any) -> Any:
        """Return the step that has the same effect on encoded packets as `step` has on packets that are objects."""
        return step


class ScenarioSettings(EpisodeSettings):
    """These settings of an episode can be written to a scenario, so that `uetproto run` replays the steps of the
    episode."""

    section: ClassVar[str]
    """Section of `[nodes.NAME]` in which a scenario sets the knobs of a node: "pds" or "roce"."""

    @abstractmethod
    def run_keys(self) -> dict[str, Any]:
        """Return the keys of the section `[run]` of the scenario, and their values."""

    @abstractmethod
    def tables(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield names and values of further tables of the scenario. A table without values is left out of the
        scenario."""

    @staticmethod
    @abstractmethod
    def row(step: Any) -> dict[str, Any]:
        """Return the keys of the `[[step]]` that stands for `step` in a scenario."""


def left_out(knobs: Knobs, node: int, name: str) -> Knobs:
    """Return the settings of both ends without the setting `name` of the end `node`."""
    one, other = ({k: v for k, v in ones.items() if (k, at) != (name, node)} for at, ones in enumerate(knobs))
    return one, other


class EpisodeFailure(NamedTuple):
    """This record has the violated invariant, or the exception, that ended an episode."""

    kind: str
    """Text that is equal for failures of the same cause. It is the number of the violated invariant, or the exception
    and the function that raised it."""
    text: str


class PlayedEpisode(NamedTuple):
    """This record has the steps of an episode that took place, and the failure that ended the episode. The failure is
    None if the episode did not fail."""

    steps: list[Any]
    failure: EpisodeFailure | None
    simulator: Simulation
    cut: bool = False
    """Whether the episode was given up before its end, because time ran out."""

    def fails_like(self, other: "PlayedEpisode") -> bool:
        """Return whether both episodes failed in the same way."""
        return self.failure is not None and other.failure is not None and self.failure.kind == other.failure.kind


StepSource = Callable[[Any], Iterable[Any]]
"""Type of a function that yields the steps of an episode for a simulator. The function makes each step only after the
steps before have taken place."""


def play(
    settings: EpisodeSettings, source: StepSource, finish: bool = True, give_up: Stop = lambda: False
) -> PlayedEpisode:  # fmt: skip
    """Play one episode. With `finish`, all packets that are still on the wire arrive after the last step (pds.md §18
    items 49–52).

    An episode that is ended because `give_up` returned true has no failure.
    """
    simulator = settings.simulator()
    steps: list[Any] = []
    try:
        with time_limit(PATIENCE, give_up):
            for step in source(simulator):
                steps.append(step)
                try:
                    simulator.apply(step)
                except LocalError:  # impossible at this moment
                    steps.pop()
            if finish:
                simulator.finish()
    except GivenUp:
        return PlayedEpisode(steps, None, simulator, cut=True)
    except Exception as error:
        return PlayedEpisode(steps, failure_of(error), simulator)
    return PlayedEpisode(steps, None, simulator)


def failure_of(error: Exception) -> EpisodeFailure:
    """Return the failure that an exception stands for."""
    if isinstance(error, InvariantViolation):
        cause = error.__cause__
        if not isinstance(cause, Exception):
            return EpisodeFailure(error.number, str(error))
        return EpisodeFailure(f"{error.number} {failure_of(cause).kind}", f"{error}\n{failure_of(cause).text}")
    name = type(error).__name__
    text = f"{name}: {error}\n{''.join(traceback.format_exception(error)).rstrip()}"
    if isinstance(error, TooSlow):  # the function in which the time ran out means nothing
        return EpisodeFailure(name, text)
    where = traceback.extract_tb(error.__traceback__)[-1]
    return EpisodeFailure(f"{name} in {Path(where.filename).stem}.{where.name}", text)


def given(steps: Iterable[Any]) -> StepSource:
    """Return a step source that yields steps which name packets by number."""
    return lambda simulator: steps


def placed(steps: Iterable[Any]) -> StepSource:
    """Return a step source for steps that name packets by position. A step is left out if no packet has its
    position."""

    def source(simulator: Simulation) -> Iterator[Any]:
        for step in steps:
            found = from_place(step, simulator)
            if found is not None:
                yield found

    return source


def to_place(step: Any, simulator: Simulation) -> Any:
    """Return a step that names its packet by position in place of number.

    The position is the index of the packet among those on the wire, in the order of their numbers. A step `dup` copies
    a packet that was sent before. For this step the position is the number of packets that were sent after the copied
    packet.
    """
    if step.number == ALL:
        return step
    if step.action == "dup":
        return step._replace(number=simulator.sent - 1 - step.number)
    if step.action in _ON_WIRE:
        return step._replace(number=sorted(simulator.flight).index(step.number))
    return step


def from_place(step: Any, simulator: Simulation) -> Any | None:
    """Return a step that names its packet by number in place of position, or None if no packet has this position."""
    if step.number == ALL:
        return step
    if step.action == "dup":
        number = simulator.sent - 1 - step.number
        return step._replace(number=number) if number >= 0 else None
    if step.action in _ON_WIRE:
        there = sorted(simulator.flight)
        return step._replace(number=there[step.number]) if step.number < len(there) else None
    return step
