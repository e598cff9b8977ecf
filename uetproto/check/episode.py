"""This module has one episode of the fuzzer: its settings, how it is played, and how its steps name packets by place.

A step names a packet by its number. When earlier steps are left out, the numbers change, but often there is still a
packet at the same place among those on the wire. `to_place` and `from_place` translate numbers and places.
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
"""Limit of CPU time for one episode, in seconds. Thousands of refusals may take a minute; an episode that takes longer
than the limit counts as endless."""

Stop = Callable[[], bool]
Knobs: TypeAlias = tuple[dict[str, Any], dict[str, Any]]

_ON_WIRE = frozenset({
    "deliver", "drop", "trim", "mark", "corrupt", "flip", "cut", "extend", "rewrite", "splice",
})  # fmt: skip
"""Actions whose `number` is that of a packet on the wire."""

Simulation: TypeAlias = Simulator[Any, Any]


@dataclass(frozen=True)
class EpisodeSettings(ABC):
    """The settings with which the steps of an episode are played."""

    knobs: Knobs
    """Settings that differ from the defaults, in two sets: one for end 0, one for end 1. With TSS the first set is of
    `Terms` and the second of `PdsConfig`, and each end has both sets."""

    step: ClassVar[Callable[..., Any]]

    @property
    def objects(self) -> bool:
        """Whether packets travel as objects that are not encoded, with very little payload."""
        return False

    @abstractmethod
    def simulator(self) -> Simulation:
        """Return a simulator at its start. Raises `LocalError` for settings that exclude each other."""

    @staticmethod
    @abstractmethod
    def simpler(step: Any) -> Iterable[Any]:
        """Yield steps with smaller values than `step`, the smallest first."""

    def names(self, node: int) -> list[str]:
        """Return the settings that can be left out."""
        return [*self.knobs[node]]

    def without(self, node: int, name: str) -> Self:
        """Return these settings with the default value of the setting `name`, which is one of `names`."""
        return replace(self, knobs=left_out(self.knobs, node, name))

    def as_run(self) -> Self:
        """Return the settings with which `uetproto run` plays the same steps."""
        return self

    def with_bytes(self, step: Any) -> Any:
        """Return the step that has the effect of `step` when packets are encoded."""
        return step


class ScenarioSettings(EpisodeSettings):
    """Settings of an episode that a scenario can hold, so that `uetproto run` replays its steps."""

    section: ClassVar[str]
    """The section of a node that holds its knobs: pds, roce."""

    @abstractmethod
    def run_keys(self) -> dict[str, Any]:
        """Return the keys of the section `[run]`, with their values."""

    @abstractmethod
    def tables(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield further tables, {name, values}; a table without values is left out."""

    @staticmethod
    @abstractmethod
    def row(step: Any) -> dict[str, Any]:
        """Return the keys of the `[[step]]` that stands for a step."""


def left_out(knobs: Knobs, node: int, name: str) -> Knobs:
    """Return the settings without the setting `name` of a node."""
    one, other = ({k: v for k, v in ones.items() if (k, at) != (name, node)} for at, ones in enumerate(knobs))
    return one, other


class EpisodeFailure(NamedTuple):
    """The violated invariant, or the exception, that has ended an episode."""

    kind: str
    """Equal for failures of the same cause: the number of the invariant, or exception and function."""
    text: str


class PlayedEpisode(NamedTuple):
    """A played episode has the steps that took place, and how it ended."""

    steps: list[Any]
    failure: EpisodeFailure | None
    simulator: Simulation
    cut: bool = False
    """Whether the episode was given up before its end."""

    def fails_like(self, other: "PlayedEpisode") -> bool:
        """Return whether both episodes failed in the same way."""
        return self.failure is not None and other.failure is not None and self.failure.kind == other.failure.kind


StepSource = Callable[[Any], Iterable[Any]]
"""Type of a function that yields the steps of an episode for a simulator; each step is made when the steps before it
have taken place."""


def play(
    settings: EpisodeSettings, source: StepSource, finish: bool = True, give_up: Stop = lambda: False
) -> PlayedEpisode:  # fmt: skip
    """Play one episode; with `finish`, packets on the wire arrive after the last step (pds.md §18 items 49–52).

    An episode that `give_up` ends has no failure.
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
    """Return an exception as a failure."""
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
    """Return a source of steps that name packets by number."""
    return lambda simulator: steps


def placed(steps: Iterable[Any]) -> StepSource:
    """Return a source of steps that name packets by place; those whose packet does not exist are left out."""

    def source(simulator: Simulation) -> Iterator[Any]:
        for step in steps:
            found = from_place(step, simulator)
            if found is not None:
                yield found

    return source


def to_place(step: Any, simulator: Simulation) -> Any:
    """Return a step that names its packet by place.

    The place is the packet's index among those on the wire, in the order of numbers; in a step `dup`, it is the number
    of packets that left after the packet.
    """
    if step.number == ALL:
        return step
    if step.action == "dup":
        return step._replace(number=simulator.sent - 1 - step.number)
    if step.action in _ON_WIRE:
        return step._replace(number=sorted(simulator.flight).index(step.number))
    return step


def from_place(step: Any, simulator: Simulation) -> Any | None:
    """Return a step that names its packet by number; None where no packet has this place."""
    if step.number == ALL:
        return step
    if step.action == "dup":
        number = simulator.sent - 1 - step.number
        return step._replace(number=number) if number >= 0 else None
    if step.action in _ON_WIRE:
        there = sorted(simulator.flight)
        return step._replace(number=there[step.number]) if step.number < len(there) else None
    return step
