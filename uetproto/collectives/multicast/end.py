"""What multicast asks of a network, one rank's end (collectives.md §3.10): datagrams to a group, and a reliable ring.

Everything is told by callbacks in virtual time, and nothing blocks. An end hands what arrives to its `MulticastRank`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from uetproto.collectives.multicast.wire import ReadGrant
from uetproto.errors import UetError

Done: TypeAlias = Callable[[UetError | None], None]
"""Told once: None, or what went wrong. It may be told before the call that it was handed to returns."""
Cancel: TypeAlias = Callable[[], None]
"""Stops a timer; nothing happens if it has fired."""


class MulticastEnd(Protocol):
    """One rank's end. Messages to one peer arrive in the order in which they were sent; chunks may be lost.

    Token, control and grant differ by themselves, so they may share a queue pair: no bytes without immediate data, no
    bytes with it, and 12 bytes. Only neighbours on the ring exchange them.
    """

    rank: int
    size: int

    @property
    def now(self) -> int:
        """Virtual time, picoseconds."""

    def after(self, delay: int, action: Callable[[], None]) -> Cancel:
        """Does something after so many picoseconds."""

    def barrier(self, done: Done) -> None:
        """done: every rank has called this as often as this one."""

    def chunk(self, subgroup: int, immediate: int, data: memoryview, done: Done | None) -> None:
        """UD send with immediate data to the multicast group of a subgroup.

        `done`: this one and all before it have left, their bytes may change; None: it is not signalled.
        """

    def token(self, peer: int, done: Done) -> None:
        """Reliable send of no bytes: the peer's turn."""

    def control(self, peer: int, immediate: int, done: Done) -> None:
        """Reliable send of no bytes, with immediate data."""

    def grant(self, peer: int, record: bytes, done: Done) -> None:
        """Reliable send of 12 bytes."""

    def read(self, peer: int, address: int, rkey: int, length: int, into: memoryview | None, done: Done) -> None:
        """RDMA READ; `into` has `length` bytes; None: nobody looks at them."""

    def register(self, buffer: memoryview | None, length: int) -> ReadGrant:
        """Lets peers read a buffer of so many bytes; None: one whose content nobody looks at."""

    def unregister(self, grant: ReadGrant) -> None:
        """It is read no more."""


@dataclass(slots=True)
class MulticastCounters:
    """What one rank did in one operation. Chunks that arrive before the next one is armed count here too."""

    chunks_sent: int = 0
    bytes_sent: int = 0
    """By multicast."""
    chunks_received: int = 0
    """New ones."""
    duplicates: int = 0
    loopback: int = 0
    """Copies of own chunks."""
    foreign: int = 0
    """With another task id."""
    late: int = 0
    """After the receiver had stopped to poll."""
    malformed: int = 0
    """An id beyond the last chunk, or a length that is not the chunk's."""
    tokens: int = 0
    """Passed on."""
    requests: int = 0
    """NEED_FETCH sent."""
    grants: int = 0
    """Sent."""
    reads: int = 0
    chunks_fetched: int = 0
    bytes_fetched: int = 0
    fins: int = 0
    """Sent."""
    strays: int = 0
    """Reliable messages that mean nothing here: from the wrong rank, of no known kind, at the wrong time."""
    cutoff: bool = False
    """The timer fired."""
    armed_at: int = -1
    recovery_at: int = -1
    """When the receiver stopped to poll: the last chunk, or the cutoff."""
    done_at: int = -1


__all__ = ["Cancel", "MulticastCounters", "Done", "MulticastEnd"]
