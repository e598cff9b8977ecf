# SPDX-License-Identifier: GPL-2.0-only
"""This module chooses the next step of an episode at random. Each protocol says in a subclass which steps are drawn,
and how often.

Every episode draws its own settings and its own mixture of steps. In some episodes, rare events therefore coincide. A
generator uses only `random()` and `getrandbits()` of its random number generator, in a fixed order, so that a seed
always stands for the same episode.
"""

from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, ClassVar, Generic, TypeVar

from uetproto.check.simulator import Simulator
from uetproto.check.wire import ALL
from uetproto.engine.contract import Rng

_T = TypeVar("_T")


ViewT = TypeVar("ViewT", bound=Simulator[Any, Any])
GeneratedT = TypeVar("GeneratedT")

FULL = 256
"""Number of packets on the wire above which no more copies are put on the wire."""
CROWD, CROWDED = 40, 0.9
"""If `CROWD` or more packets are on the wire, `CROWDED` is the share of steps that deliver the oldest packet."""
NEAR = 8
"""In some episodes, a step chooses only among the oldest packets on the wire, and this is their number. In such an
episode, no other packets overtake each other."""


class StepGenerator(ABC, Generic[ViewT, GeneratedT]):
    """A step generator draws the settings of one episode when it is made, and then one step at a time."""

    __slots__ = ("_bounds", "_choices", "_in_order", "_near", "_random", "_rng")

    crowd: ClassVar[int] = CROWD

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._random = rng.random
        self._near = FULL
        """Number of the oldest packets on the wire among which a step chooses."""
        self._in_order = 0.0
        """Share of the steps that deliver the oldest packet."""
        self._choices: list[Callable[[Any], GeneratedT | None]] = []
        self._bounds: list[float] = []

    def _set_weights(self, weights: Mapping[Callable[[Any], GeneratedT | None], float]) -> None:
        """Set the kinds of step and how often each is drawn."""
        self._choices = list(weights)
        bounds = list(accumulate(weights.values()))
        self._bounds = [bound / bounds[-1] for bound in bounds]

    def _one(self, values: Sequence[_T]) -> _T:
        return values[int(self._random() * len(values))]

    def _maybe(self, weight: float) -> float:
        """Return a share of `weight`, or 0 in one of three episodes."""
        return weight * self._random() if self._random() < 0.67 else 0.0

    @abstractmethod
    def _to_number(self, action: str, number: int) -> GeneratedT:
        """Return the step that does `action` to packet `number`."""

    def choose(self, view: ViewT) -> GeneratedT:
        """Return a step that the present state allows. The endpoint may still refuse a step that is a local call."""
        flight = view.flight
        if flight and self._random() < (self._in_order if len(flight) < self.crowd else CROWDED):
            return self._to_number("deliver", next(iter(flight)))
        while True:
            step = self._choices[bisect(self._bounds, self._random())](view)
            if step is not None:
                return step

    def _number(self, view: ViewT) -> int | None:
        """Return a packet on the wire; None if the wire is empty."""
        flight = view.flight
        if not flight:
            return None
        return next(islice(flight, int(self._random() * min(len(flight), self._near)), None))

    def _to_packet(self, view: ViewT, action: str) -> GeneratedT | None:
        number = self._number(view)
        return None if number is None else self._to_number(action, number)

    def _deliver(self, view: ViewT) -> GeneratedT | None:
        return self._to_packet(view, "deliver")

    def _deliver_all(self, view: ViewT) -> GeneratedT | None:
        return self._to_number("deliver", ALL) if view.flight else None

    def _drop(self, view: ViewT) -> GeneratedT | None:
        return self._to_packet(view, "drop")

    def _mark(self, view: ViewT) -> GeneratedT | None:
        return self._to_packet(view, "mark")

    def _stale(self, view: ViewT) -> GeneratedT | None:
        """Copy a packet that left long ago, such as a SYN packet, or a packet of a closed PDC."""
        number = view.sent - int(1 + self._random() ** 3 * 1000)
        there = view.wire.recent(number) is not None and len(view.flight) < FULL
        return self._to_number("dup", number) if there else None
