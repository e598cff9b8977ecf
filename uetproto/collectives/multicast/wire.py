"""What the messages of multicast carry: immediate data of 32 bits, and the grant (collectives.md §3.10.1)."""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

TASKS = 256
"""Task ids: the operation counter modulo this."""
TASK_MASK = TASKS - 1
CHUNK_SHIFT = 8
CHUNK_IDS = 1 << 24
"""Chunk ids: N * C is less."""


class ChunkImmediate(NamedTuple):
    """Of a chunk: bits 0-7 the task id, bits 8-31 the chunk id."""

    task_id: int
    chunk_id: int

    def pack(self) -> int:
        """32 bits."""
        return self.chunk_id << CHUNK_SHIFT | self.task_id

    @classmethod
    def unpack(cls, immediate: int) -> "ChunkImmediate":
        """Every 32 bits are one."""
        return cls(immediate & TASK_MASK, immediate >> CHUNK_SHIFT)


class RingMessage(IntEnum):
    """What a ring control message says."""

    NEED_FETCH = 0
    FIN = 1


FIN_OWNER = 0xDEAD
"""In the place of an owner."""


class RingImmediate(NamedTuple):
    """Of a ring control message: bits 0-2 the type, bits 3-31 the owner."""

    type: int
    owner: int

    def pack(self) -> int:
        """32 bits."""
        return self.owner << 3 | self.type

    @classmethod
    def unpack(cls, immediate: int) -> "RingImmediate":
        """Every 32 bits are one; types above 1 mean nothing."""
        return cls(immediate & 7, immediate >> 3)


FIN = RingImmediate(RingMessage.FIN, FIN_OWNER)

_GRANT = Struct(">QI")
"""The page has the fields; the byte order is ours: that of the network."""


class ReadGrant(NamedTuple):
    """Of a receive buffer, which may be read from now on."""

    address: int
    rkey: int

    def pack(self) -> bytes:
        """12 bytes."""
        return _GRANT.pack(*self)

    @classmethod
    def unpack(cls, record: bytes | memoryview) -> "ReadGrant | None":
        """None: not 12 bytes."""
        return cls(*_GRANT.unpack(record)) if len(record) == _GRANT.size else None


__all__ = [
    "CHUNK_IDS", "CHUNK_SHIFT", "FIN", "FIN_OWNER", "TASKS", "TASK_MASK", "ChunkImmediate", "ReadGrant", "RingImmediate",
    "RingMessage",
]  # fmt: skip
