"""This module defines what multicast needs of a network: datagrams to a group, and a ring (collectives.md §3.10).

The ring is a reliable connection of each rank with its two neighbours. Results come by callbacks in virtual time;
nothing blocks. An end passes messages that arrive to its `MulticastRank`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from uetproto.collectives.multicast.wire import ReadGrant
from uetproto.errors import UetError

Done: TypeAlias = Callable[[UetError | None], None]
"""Function that is called once, with None or the error, possibly before the call to which it was passed returns."""
Cancel: TypeAlias = Callable[[], None]
"""Function that stops a timer; it has no effect on one that has fired."""


class MulticastEnd(Protocol):
    """This protocol is one rank's end of the network.

    Reliable messages to one peer arrive in the order in which they were sent; chunks may be lost. Only neighbours on
    the ring exchange tokens, control messages and grants. The three can share a queue pair, as their forms differ: a
    token has no bytes and no immediate data, a control message has only immediate data, a grant has 12 bytes.
    """

    rank: int
    size: int

    @property
    def now(self) -> int:
        """Return virtual time in picoseconds."""

    def after(self, delay: int, action: Callable[[], None]) -> Cancel:
        """Run an action after `delay` picoseconds."""

    def barrier(self, done: Done) -> None:
        """Enter the barrier; `done` is called when every rank has entered as often as this rank."""

    def chunk(self, subgroup: int, immediate: int, data: memoryview, done: Done | None) -> None:
        """Send a chunk, a UD SEND with immediate data, to the multicast group of a subgroup.

        `done` is called when this chunk and all before it have left, and their bytes may change; None: no call.
        """

    def token(self, peer: int, done: Done) -> None:
        """Send the token, a reliable message of no bytes, which tells the peer to begin to send its block."""

    def control(self, peer: int, immediate: int, done: Done) -> None:
        """Send a reliable message of no bytes with immediate data."""

    def grant(self, peer: int, record: bytes, done: Done) -> None:
        """Send a reliable message of 12 bytes."""

    def read(self, peer: int, address: int, rkey: int, length: int, into: memoryview | None, done: Done) -> None:
        """Read remote memory by RDMA READ. `into` has `length` bytes; None: the bytes are dropped."""

    def register(self, buffer: memoryview | None, length: int) -> ReadGrant:
        """Let peers read a buffer of `length` bytes; with None, a buffer whose content is not used."""

    def unregister(self, grant: ReadGrant) -> None:
        """Withdraw the access of peers to a buffer."""


@dataclass(slots=True)
class MulticastCounters:
    """This class holds the counters of one rank in one operation.

    Chunks that come before the next operation is armed count here, too.
    """

    chunks_sent: int = 0
    bytes_sent: int = 0
    """Bytes sent by multicast."""
    chunks_received: int = 0
    """Number of new chunks."""
    duplicates: int = 0
    loopback: int = 0
    """Number of copies of this rank's own chunks."""
    foreign: int = 0
    """Number of chunks with the task id of another operation."""
    late: int = 0
    """Number of chunks that came when the receiver had stopped polling."""
    malformed: int = 0
    """Number of chunks with an id beyond the last chunk, or with a wrong length."""
    tokens: int = 0
    """Number of tokens passed on."""
    requests: int = 0
    """Number of NEED_FETCH messages sent."""
    grants: int = 0
    """Number of grants sent."""
    reads: int = 0
    chunks_fetched: int = 0
    bytes_fetched: int = 0
    fins: int = 0
    """Number of FIN messages sent."""
    strays: int = 0
    """Number of reliable messages from a wrong rank, of an unknown kind, or at a wrong time; they are ignored."""
    cutoff: bool = False
    """Whether the cutoff timer fired."""
    armed_at: int = -1
    recovery_at: int = -1
    """Instant at which the receiver stopped polling, after the last chunk or the cutoff."""
    done_at: int = -1
