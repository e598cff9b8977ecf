"""This module has the applications of a profile: initiators keep operations open, targets have buffers for them.

An operation is drawn when there is room for one, so that nothing but what is open is kept. Each transport has a
`Workload`: `uet`, `roce`.
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
    """Draws the operations of `profile`, and starts the next operation when one has ended."""

    def __init__(self, profile: _Profile, wire: DirectWire, rng: Rng) -> None:
        self.profile = profile
        self.wire = wire
        self.clock = wire.clock
        self.rng = rng
        self.stations: list[_Station] = []
        """Stations, initiators first."""
        self._turns = cycle(range(profile.pdcs))
        """Number of the next connection in turn: a PDC, as contexts never share one (pds.md §6.1), or a queue pair."""
        self.started: Counter[str] = Counter()
        """Number of operations started, by opcode."""
        self.ended: Counter[str] = Counter()
        """Number of operations ended, by return code or status."""
        self.secured: Secured | None = None
        """Seals and opens packets; None: packets are in clear."""

    @abstractmethod
    def join(self, address: int, initiates: bool, chance: Callable[[str], Random]) -> None:
        """Add an endpoint; initiators join first. `chance` returns a generator for each of its components."""

    @abstractmethod
    def next(self, station: _Station) -> None:
        """Draw and start an operation: its kind, mode or transport, target and length."""

    def start(self) -> None:
        """Start operations at every initiator, as many as it may have open."""
        for station in self.stations[: self.profile.initiators]:
            for _ in range(self.profile.depth):
                self.next(station)

    @abstractmethod
    def naks(self) -> dict[str, int]:
        """Return the number of refusals sent, by return code."""

    def _place(self, size: int) -> int:
        """Return where in memory a message of `size` bytes is, on a boundary of 8 bytes."""
        return int(self.rng.random() * max(1, PERIOD - size)) & ~7

    def statuses(self) -> Mapping[str, Counter[str]]:
        """Return the counts of coverage that packets do not show, by kind."""
        return {}
