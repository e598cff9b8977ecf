# SPDX-License-Identifier: GPL-2.0-only
"""This module defines what multicast needs of a network: datagrams to a multicast group, and a ring (collectives.md
§3.10).

The ring gives each rank reliable connections to its two neighbours. Calls do not block: results come by callbacks in
virtual time. The messages that arrive are passed to the `MulticastRank` of the rank.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from uetproto.collectives.multicast.wire import ReadGrant
from uetproto.errors import UetError

Done: TypeAlias = Callable[[UetError | None], None]
"""Type of a function that is called once, with None or the error. It may be called before the function that got it as
an argument has returned."""
Cancel: TypeAlias = Callable[[], None]
"""Type of a function that stops a timer. It has no effect if the timer has fired."""


class MulticastEnd(Protocol):
    """This protocol describes how one rank uses the network.

    Reliable messages to one peer arrive in the order in which they were sent; chunks may be lost. Only neighbours on
    the ring exchange tokens, control messages and grants. These three can share a queue pair, as their forms differ: a
    token has no bytes and no immediate data, a control message has only immediate data, and a grant has 12 bytes.
    """

    rank: int
    size: int

    @property
    def now(self) -> int:
        """Return the virtual time in picoseconds."""

    def after(self, delay: int, action: Callable[[], None]) -> Cancel:
        """Run an action after `delay` picoseconds, and return a function that cancels it."""

    def barrier(self, done: Done) -> None:
        """Enter the barrier. `done` is called when every rank has entered as often as this rank."""

    def chunk(self, subgroup: int, immediate: int, data: memoryview, done: Done | None) -> None:
        """Send a chunk, which is a UD SEND with immediate data, to the multicast group of a subgroup.

        `done` is called when this chunk and all earlier chunks have left. The memory of these chunks may then change.
        If `done` is None, nothing is called.
        """

    def token(self, peer: int, done: Done) -> None:
        """Send the token. It is a reliable message of no bytes, and tells the peer to begin to send its block."""

    def control(self, peer: int, immediate: int, done: Done) -> None:
        """Send a control message of the ring. It is a reliable message of no bytes with immediate data."""

    def grant(self, peer: int, record: bytes, done: Done) -> None:
        """Send the 12 bytes of a grant as a reliable message. The grant lets the peer read memory."""

    def read(self, peer: int, address: int, rkey: int, length: int, into: memoryview | None, done: Done) -> None:
        """Read remote memory by RDMA READ. `into` has `length` bytes; if it is None, the bytes are dropped."""

    def register(self, buffer: memoryview | None, length: int) -> ReadGrant:
        """Let peers read a buffer of `length` bytes, and return the grant. If `buffer` is None, the content that peers
        read is undefined."""

    def unregister(self, grant: ReadGrant) -> None:
        """Withdraw the access of peers to the buffer of a grant."""


@dataclass(slots=True)
class MulticastCounters:
    """This class holds the counters of one rank in one operation.

    Chunks that arrive after this operation, before the rank prepares for the next operation, count here, too.
    """

    chunks_sent: int = 0
    bytes_sent: int = 0
    """Number of bytes that were sent by multicast."""
    chunks_received: int = 0
    """Number of chunks that arrived for the first time."""
    duplicates: int = 0
    loopback: int = 0
    """Number of copies of this rank's own chunks that came back to it."""
    foreign: int = 0
    """Number of chunks with the task id of another operation."""
    late: int = 0
    """Number of chunks that arrived after the receiver had stopped polling."""
    malformed: int = 0
    """Number of chunks with an id beyond the last chunk or with a wrong length."""
    tokens: int = 0
    """Number of tokens that this rank passed on."""
    requests: int = 0
    """Number of NEED_FETCH messages that were sent."""
    grants: int = 0
    """Number of grants that were sent."""
    reads: int = 0
    chunks_fetched: int = 0
    bytes_fetched: int = 0
    fins: int = 0
    """Number of FIN messages that were sent."""
    strays: int = 0
    """Number of reliable messages from a wrong rank, of an unknown type, or at a wrong time. They are ignored."""
    cutoff: bool = False
    """This flag says whether the cutoff timer fired."""
    armed_at: int = -1
    recovery_at: int = -1
    """Instant in picoseconds at which the receiver stopped polling, after the last chunk or at the cutoff. It is -1
    until then."""
    done_at: int = -1
