"""The applications of a profile: initiators keep a number of operations open, targets have buffers for them.

An operation is drawn when there is room for one, so that nothing but what is open is kept. Each transport has a
`Workload`: `uet`, `roce`.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

from uetproto.emulator.network.clock import Clock
from uetproto.framing.tss import Secured

LATE_BY = 8
"""Delays of the wire after which the buffer of an unexpected message is posted."""


class Workload(ABC):
    """What generated traffic needs of a transport."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.started: Counter[str] = Counter()
        """Operations, by opcode."""
        self.ended: Counter[str] = Counter()
        """By return code, or by status."""
        self.secured: Secured | None = None
        """What seals and opens; None: packets in clear."""

    @abstractmethod
    def join(self, address: int, initiates: bool, chance: Callable[[str], Random]) -> None:
        """One endpoint more; initiators join first. `chance` has a generator for each of its components."""

    @abstractmethod
    def start(self) -> None:
        """Every initiator fills its room."""

    @abstractmethod
    def naks(self) -> dict[str, int]:
        """Refusals sent, by what they say."""

    def statuses(self) -> Mapping[str, Counter[str]]:
        """What a report of coverage counts and no packet shows, by kind."""
        return {}
