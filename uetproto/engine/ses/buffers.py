"""A posted receive is a buffer that messages fill (ses.md §11.3)."""

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
    """Offset in `memory` behind the last byte of the buffer."""
    tag: int = 0
    ignore: int = ALL_BITS
    source: int | None = None
    posted: bool = True
    """Whether the buffer takes further messages."""
    users: int = 0
    """Number of messages that are being stored in the buffer."""
    whole: "PostedBuffer | None" = None
    """The posted buffer of which this one is a part, reserved for a restart; None: this one is no part."""

    @property
    def room(self) -> int:
        return self.end - self.next
