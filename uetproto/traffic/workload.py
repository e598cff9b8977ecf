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
"""Number of wire delays after which the buffer of an unexpected message is posted."""


class Workload(ABC):
    """What generated traffic needs of a transport."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
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
    def start(self) -> None:
        """Start operations at every initiator, as many as it may have open."""

    @abstractmethod
    def naks(self) -> dict[str, int]:
        """Return the number of refusals sent, by their code."""

    def statuses(self) -> Mapping[str, Counter[str]]:
        """Return the counts of coverage that no packet shows, by kind."""
        return {}
