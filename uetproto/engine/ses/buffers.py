# SPDX-License-Identifier: GPL-2.0-only
"""A posted receive has a buffer in which messages are stored (ses.md §11.3)."""

from dataclasses import dataclass

from uetproto.engine.contract import Receive
from uetproto.engine.memory import Memory
from uetproto.engine.ses.matching import ALL_BITS


@dataclass(slots=True, eq=False)
class PostedBuffer:
    """A posted receive holds the criteria by which it matches messages, and the free part of its buffer."""

    receive: Receive
    memory: Memory
    next: int
    """Offset in `memory` at which the next message begins."""
    end: int
    """Offset in `memory` of the first byte after the buffer."""
    tag: int = 0
    ignore: int = ALL_BITS
    source: int | None = None
    posted: bool = True
    """Whether further messages may match the receive."""
    users: int = 0
    """Number of messages that are being stored in the buffer."""
    whole: "PostedBuffer | None" = None
    """Posted buffer that contains this buffer. It is None if this buffer was itself posted. Otherwise this buffer is
    the part of `whole` that is reserved for the restart of a stopped message."""

    @property
    def room(self) -> int:
        return self.end - self.next
