# SPDX-License-Identifier: GPL-2.0-only
"""This module defines the contents of multicast messages: the immediate data of 32 bits, and the grant (collectives.md
§3.10.1)."""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

TASKS = 256
"""Number of task ids. The task id of an operation is the operation counter modulo this number."""
TASK_MASK = TASKS - 1
CHUNK_SHIFT = 8
CHUNK_IDS = 1 << 24
"""Number of chunk ids. The number of all chunks, N blocks of C chunks each, must be less than this."""


class ChunkImmediate(NamedTuple):
    """This record holds the immediate data of a chunk: bits 0-7 are the task id, and bits 8-31 are the chunk id."""

    task_id: int
    chunk_id: int

    def pack(self) -> int:
        """Return the immediate data as a number of 32 bits."""
        return self.chunk_id << CHUNK_SHIFT | self.task_id

    @classmethod
    def unpack(cls, immediate: int) -> "ChunkImmediate":
        """Return the record for a number of 32 bits. All values are legal."""
        return cls(immediate & TASK_MASK, immediate >> CHUNK_SHIFT)


class RingMessage(IntEnum):
    """This enumeration has the types of ring control messages. NEED_FETCH requests a block; FIN says that the requester
    has ended."""

    NEED_FETCH = 0
    FIN = 1


FIN_OWNER = 0xDEAD
"""Value of the owner field in a FIN. A FIN refers to no block."""


class RingImmediate(NamedTuple):
    """This record holds the immediate data of a ring control message: bits 0-2 are the type, and bits 3-31 are the
    owner."""

    type: int
    owner: int

    def pack(self) -> int:
        """Return the immediate data as a number of 32 bits."""
        return self.owner << 3 | self.type

    @classmethod
    def unpack(cls, immediate: int) -> "RingImmediate":
        """Return the record for a number of 32 bits. Types above 1 have no meaning."""
        return cls(immediate & 7, immediate >> 3)


FIN = RingImmediate(RingMessage.FIN, FIN_OWNER)

_GRANT = Struct(">QI")
"""Layout of a grant. Its fields are those of collectives.md; network byte order is a choice of this project."""


class ReadGrant(NamedTuple):
    """This record holds the address and the key of a receive buffer. The peer that receives the grant may read this
    buffer."""

    address: int
    rkey: int

    def pack(self) -> bytes:
        """Return the 12 bytes of the grant."""
        return _GRANT.pack(*self)

    @classmethod
    def unpack(cls, record: bytes | memoryview) -> "ReadGrant | None":
        """Return the grant that `record` holds, or None if `record` does not have 12 bytes."""
        return cls(*_GRANT.unpack(record)) if len(record) == _GRANT.size else None
