# SPDX-License-Identifier: GPL-2.0-only
"""This module says what a run of chunks is: the part of a stream whose chunks nothing distinguishes (sharp.md §3.3).

The messages of a run on a connection differ in vec_off and in their vector alone. Hosts and aggregation nodes parse and
check the first of them; each further one has the same result. Everything that distinguishes a chunk is here:

- The chunk is the first or the last one of its operation, has another size, carries no vector, an extension, a status
  or padding, or was sent again: `ChunkHeader.of` makes no run of it (`Split.CHUNK`).
- Anything in its header but vec_off differs from the chunk before it on the connection: `ChunkHeader.fits`
  (`Split.CHUNK_HEADER`).
- At a node the chunk is the first one with this vec_off, comes again, does not fit the chunks of the other children, or
  its group, its tree, its job or its lock have changed: `node.trains.RequestRun.take`.
- At a host the result completes its operation or awaits no result, or a collective waits to begin:
  `host.trains.ResultRun.take` (both `Split.CHUNK_ORDER`).

All such chunks go by the state tables. The carriers have conditions of their own: `engine.roce.messages` over RoCE.
"""

from uetproto.engine.sharp.messages import HEADER_SIZE, VEC_OFF_AT, VEC_OFF_END, SharpMessage
from uetproto.wire.headers.sharp import Flag, SharpOpcode

_ALONE = int(Flag.FIRST | Flag.LAST | Flag.RETX | Flag.NODATA | Flag.UDH | Flag.TGT | Flag.UNLOCK | Flag.MCAST)
"""Flags with which a message is in no run."""
_SAT = int(Flag.SAT)


class ChunkHeader:
    """A chunk header has what the messages of a run have in common."""

    __slots__ = ("_front", "_length", "_tail", "flags", "message", "size")

    def __init__(self, data: bytes, message: SharpMessage) -> None:
        self._front = data[:VEC_OFF_AT]
        self._tail = data[VEC_OFF_END:HEADER_SIZE]
        self._length = len(data)
        self.message = message
        """The message with which the run began."""
        self.flags = message.flags
        self.size = len(message.body)
        """Number of bytes of the vector of each chunk."""

    @classmethod
    def of(cls, opcode: SharpOpcode, data: bytes, message: SharpMessage) -> "ChunkHeader | None":
        """Return the header of the run that a message begins, or None if it is in no run."""
        flags = message.flags
        if (
            message.opcode != opcode or flags & _ALONE or not flags & _SAT or message.status
            or len(data) != HEADER_SIZE + len(message.body) or not message.body
        ):  # fmt: skip
            return None
        return cls(data, message)

    def fits(self, data: bytes) -> bool:
        """Tell whether a message belongs to the run."""
        return (
            data[:VEC_OFF_AT] == self._front
            and data[VEC_OFF_END:HEADER_SIZE] == self._tail
            and len(data) == self._length
        )


def vec_off_of(data: bytes) -> int:
    """Return the vec_off of a message."""
    return int.from_bytes(data[VEC_OFF_AT:VEC_OFF_END], "big")
