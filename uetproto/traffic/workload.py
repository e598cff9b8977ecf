# SPDX-License-Identifier: GPL-2.0-only
"""This module has the applications of a profile. Initiators keep operations open, and targets post buffers for them.

An operation is drawn only when it can start at once. Only open operations are therefore stored. The modules `uet` and
`roce` have a subclass of `Workload` each.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import cycle
from random import Random
from typing import Generic, TypeVar

from uetproto.engine.contract import Rng
from uetproto.framing.tss import Secured
from uetproto.traffic.memory import PERIOD
from uetproto.traffic.profile_file import TrafficProfile
from uetproto.traffic.wire import DirectWire

_Profile = TypeVar("_Profile", bound=TrafficProfile)
_Station = TypeVar("_Station")

LATE_BY = 8
"""Number of wire delays after which the buffer of an unexpected message is posted."""


class Workload(ABC, Generic[_Profile, _Station]):
    """This class draws the operations of `profile` at random, and starts the next operation when one has ended."""

    def __init__(self, profile: _Profile, wire: DirectWire, rng: Rng) -> None:
        self.profile = profile
        self.wire = wire
        self.clock = wire.clock
        self.rng = rng
        self.stations: list[_Station] = []
        """Endpoints with their resources, in the order of `join`: first the initiators, then the targets."""
        self._turns = cycle(range(profile.pdcs))
        """Number of the next connection in turn: over UET a context, which has PDCs of its own (pds.md §6.1), over RoCE
        a queue pair.
        """
        self.started: Counter[str] = Counter()
        """Number of operations that were started, by opcode."""
        self.ended: Counter[str] = Counter()
        """Number of operations that have ended, by return code or status."""
        self.secured: Secured | None = None
        """Framers that seal and open packets, or None if packets are in clear."""

    @abstractmethod
    def join(self, address: int, initiates: bool, chance: Callable[[str], Random]) -> None:
        """Add an endpoint. Initiators join first. `chance` returns the random generator of a component by its name."""

    @abstractmethod
    def next(self, station: _Station) -> None:
        """Start an operation at `station`. Its opcode, mode or transport, target and length are drawn at random."""

    def start(self) -> None:
        """Start as many operations at each initiator as it may have open."""
        for station in self.stations[: self.profile.initiators]:
            for _ in range(self.profile.depth):
                self.next(station)

    @abstractmethod
    def naks(self) -> dict[str, int]:
        """Return how many NAKs or NACKs the endpoints have sent, by code."""

    def _place(self, size: int) -> int:
        """Return an offset in memory for a message of `size` bytes, a multiple of 8."""
        return int(self.rng.random() * max(1, PERIOD - size)) & ~7

    def statuses(self) -> Mapping[str, Counter[str]]:
        """Return counts for the coverage, by kind. Only the application can keep them, because packets do not show
        them."""
        return {}
