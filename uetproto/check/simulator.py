# SPDX-License-Identifier: GPL-2.0-only
"""This module has the base of all simulators: two ends, an adversarial wire and virtual time. Invariants are checked
after each step.

A `Simulator` has two users. The fuzzer (`fuzz`) applies steps that a `StepGenerator` draws. `uetproto run` applies the
steps of a scenario, on a wire that keeps a frame beside each packet. A simulation is a function of its settings and
its steps. What a step of one protocol does is in check/uet, check/roce and check/tss.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from uetproto.check.wire import ALL, AdversarialWire
from uetproto.errors import LocalError

TRANSIT = 10_000
"""Virtual time in picoseconds between two packets that `finish` delivers."""


class SimulatorStep(Protocol):
    """This protocol describes what the steps of all simulators have in common."""

    @property
    def action(self) -> str: ...

    @property
    def node(self) -> int: ...

    @property
    def number(self) -> int: ...


StepT = TypeVar("StepT", bound=SimulatorStep)
WireT = TypeVar("WireT", bound=AdversarialWire[Any])


class Simulator(ABC, Generic[StepT, WireT]):
    """A simulator has two ends, numbered 0 and 1, the wire between them, and the virtual time. A subclass has a method
    `_do_NAME` for each action of its steps."""

    __slots__ = ("now", "steps", "wire")

    actions: ClassVar[dict[str, Callable[[Any, Any], None]]]
    """Maps each action to the method that performs it. The mapping is made and checked when a subclass is defined."""

    def __init_subclass__(cls, actions: Iterable[str]) -> None:
        """Raise `TypeError` unless the methods `_do_NAME` are exactly those of `actions`."""
        super().__init_subclass__()
        prefix = "_do_"
        cls.actions = {name.removeprefix(prefix): getattr(cls, name) for name in dir(cls) if name.startswith(prefix)}
        if cls.actions.keys() != {*actions}:
            raise TypeError(f"{cls.__name__}: methods and actions differ: {cls.actions.keys() ^ {*actions}}")

    def __init__(self, wire: WireT) -> None:
        self.wire = wire
        self.now = 0
        self.steps = 0
        """Number of steps that were applied, and of packets and timers that `finish` has processed."""

    @property
    def flight(self) -> dict[int, Any]:
        """Return the packets that are on the wire, by number."""
        return self.wire.flight

    @property
    def sent(self) -> int:
        """Return the number of packets that were put on the wire so far, including copies."""
        return self.wire.sent

    def apply(self, step: StepT) -> None:
        """Apply a step. Raises `InvariantViolation` if an invariant does not hold, and `LocalError` if the step is
        impossible at this moment."""
        self.steps += 1
        self.actions[step.action](self, step)

    @abstractmethod
    def finish(self) -> None:
        """Deliver packets and run timers until nothing is left to do, then check the invariants about liveness.

        Raises `InvariantViolation`.
        """

    @abstractmethod
    def settle(self, node: int) -> None:
        """Let an end send what it can, and check the invariants of all that has changed. Raises `InvariantViolation`
        if one does not hold."""

    @abstractmethod
    def _arrives(self, number: int) -> None:
        """Take a packet off the wire and hand it to the end that it is addressed to."""

    @abstractmethod
    def _due(self, node: int) -> int:
        """Return when the next timer of an end expires; `NEVER` if none is armed."""

    def _there(self, step: StepT) -> list[int]:
        """Return the packets that a step names. Raises `LocalError` for one that is not on the wire."""
        if step.number == ALL:
            return list(self.wire.flight)
        if step.number not in self.wire.flight:
            raise LocalError(f"packet {step.number} is not on the wire", id="step-impossible")
        return [step.number]

    def _do_deliver(self, step: StepT) -> None:
        for number in self._there(step):
            self._arrives(number)

    def _do_drop(self, step: StepT) -> None:
        for number in self._there(step):
            del self.wire.flight[number]

    def _run_to(self, until: int) -> None:
        """Let time pass until `until`, timer by timer."""
        while True:
            first, second = self._due(0), self._due(1)
            if first > until and second > until:
                break
            self.now = max(self.now, min(first, second))
            self.settle(0 if first <= second else 1)
        self.now = until
