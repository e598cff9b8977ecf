"""This module defines the contents of multicast messages: immediate data of 32 bits, and the grant (collectives.md
§3.10.1).
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

TASKS = 256
"""Number of task ids: the task id is the operation counter modulo this."""
TASK_MASK = TASKS - 1
CHUNK_SHIFT = 8
CHUNK_IDS = 1 << 24
"""Number of chunk ids: N * C must be less."""


class ChunkImmediate(NamedTuple):
    """This record packs the immediate data of a chunk: bits 0-7 hold the task id, bits 8-31 the chunk id."""

    task_id: int
    chunk_id: int

    def pack(self) -> int:
        """Return the 32 bits."""
        return self.chunk_id << CHUNK_SHIFT | self.task_id

    @classmethod
    def unpack(cls, immediate: int) -> "ChunkImmediate":
        """Return the immediate that 32 bits hold; all values are legal."""
        return cls(immediate & TASK_MASK, immediate >> CHUNK_SHIFT)


class RingMessage(IntEnum):
    """Type of a ring control message: NEED_FETCH requests a block, FIN says that the requester has ended."""

    NEED_FETCH = 0
    FIN = 1


FIN_OWNER = 0xDEAD
"""Value of the owner field in a FIN, which is about no block."""


class RingImmediate(NamedTuple):
    """This record packs the immediate data of a ring control message: bits 0-2 hold the type, bits 3-31 the owner."""

    type: int
    owner: int

    def pack(self) -> int:
        """Return the 32 bits."""
        return self.owner << 3 | self.type

    @classmethod
    def unpack(cls, immediate: int) -> "RingImmediate":
        """Return the immediate that 32 bits hold; types above 1 have no meaning."""
        return cls(immediate & 7, immediate >> 3)


FIN = RingImmediate(RingMessage.FIN, FIN_OWNER)

_GRANT = Struct(">QI")
"""Layout of a grant. collectives.md has the fields; network byte order is a choice of the project."""


class ReadGrant(NamedTuple):
    """A read grant has address and key of a receive buffer, which the peer may read from now on."""

    address: int
    rkey: int

    def pack(self) -> bytes:
        """Return the 12 bytes."""
        return _GRANT.pack(*self)

    @classmethod
    def unpack(cls, record: bytes | memoryview) -> "ReadGrant | None":
        """Return the grant that 12 bytes hold; None: `record` does not have 12 bytes."""
        return cls(*_GRANT.unpack(record)) if len(record) == _GRANT.size else None
