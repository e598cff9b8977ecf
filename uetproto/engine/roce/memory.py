# SPDX-License-Identifier: GPL-2.0-only
"""Memory regions have an l_key and an r_key. Scatter and gather lists access the bytes of regions (roce.md §8, §10)."""

from enum import Enum
from typing import Any

from uetproto.engine.contract import Buffer
from uetproto.engine.memory import as_memory, run_memory
from uetproto.engine.roce.contract import Access, Sge
from uetproto.errors import LocalError

_KEY_BITS = 32


class MemoryKind(Enum):
    """The bytes of a region are in memory of this kind, which the data path model uses (`engine.data_path`)."""

    HOST = "host"
    GPU = "gpu"


class BadKeyError(Exception):
    """This error says that the key, range, right or protection domain of an access is not valid. It never leaves the
    engine."""


class RoceMemoryRegion:
    """A memory region (ibv_mr) belongs to the protection domain `pd`, and its first byte has the virtual address
    `addr`.

    `memory` supports the buffer protocol, or has the members of `engine.memory.Memory`.
    """

    __slots__ = ("access", "addr", "dead", "invalidated", "kind", "length", "lkey", "memory", "pd", "rkey")

    def __init__(self, pd: int, memory: Any, addr: int, access: Access, lkey: int, rkey: int, kind: MemoryKind) -> None:
        self.pd = pd
        self.memory = as_memory(memory)
        self.length = self.memory.length
        self.addr = addr
        self.access = Access(access)
        self.lkey = lkey
        self.rkey = rkey
        self.kind = kind
        self.dead = False
        """Whether the region is deregistered."""
        self.invalidated = False
        """Whether a SEND with invalidate has invalidated the r_key."""

    def allows(self, addr: int, length: int, right: int) -> bool:
        """Return True when the region is registered, contains the range and grants the right."""
        return (
            not self.dead
            and self.access & right == right
            and self.addr <= addr
            and addr + length <= self.addr + self.length
        )

    def read(self, addr: int, length: int) -> Buffer:
        """Return `length` bytes from virtual address `addr` on. Raises `BadKeyError` if the region is deregistered."""
        if self.dead:
            raise BadKeyError
        return self.memory.read(addr - self.addr, length)

    def write(self, addr: int, data: Buffer) -> None:
        """Write `data` from virtual address `addr` on. Raises `BadKeyError` if the region is deregistered."""
        if self.dead:
            raise BadKeyError
        self.memory.write(addr - self.addr, data)


class Regions:
    """This class holds the registered regions of an adapter, by l_key and by r_key."""

    def __init__(self) -> None:
        self.by_lkey: dict[int, RoceMemoryRegion] = {}
        self.by_rkey: dict[int, RoceMemoryRegion] = {}
        self._next = 0x1000

    def register(
        self, pd: int, memory: Any, addr: int, access: int, rkey: int | None, kind: MemoryKind
    ) -> RoceMemoryRegion:
        """Register a region. Raises `LocalError` for an address, rights or a key that are not legal."""
        if int(access) & ~sum(Access):
            raise LocalError(
                "access", f"{int(access):#x} is not legal", ", ".join(a.name or "" for a in Access), id="unknown-name"
            )
        if access & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC) and not access & Access.LOCAL_WRITE:
            raise LocalError(
                "access", "REMOTE_WRITE and REMOTE_ATOMIC are legal with LOCAL_WRITE only", id="inconsistent-values"
            )
        key = self._free() if rkey is None else rkey
        if not 0 <= key < 1 << _KEY_BITS or key in self.by_rkey:
            raise LocalError("rkey", f"{key!r} is not legal", "32 bits that no other region has", id="already-there")
        region = RoceMemoryRegion(pd, memory, addr, Access(access), key, key, kind)
        if access & Access.LOCAL_WRITE and region.length and getattr(region.memory, "read_only", False):
            raise LocalError("memory", "read-only; legal without LOCAL_WRITE", id="read-only")
        if not 0 <= addr <= (1 << 64) - region.length:
            raise LocalError(
                "addr", f"{addr:#x} is not legal", f"0 … {(1 << 64) - region.length:#x}", id="out-of-range"
            )
        self.by_lkey[key] = self.by_rkey[key] = region
        return region

    def _free(self) -> int:
        while self._next in self.by_rkey:
            self._next += 1
        return self._next

    def deregister(self, region: RoceMemoryRegion) -> None:
        """Deregister a region, after which every access to it fails (ibv_dereg_mr)."""
        if self.by_lkey.pop(region.lkey, None) is None:
            raise LocalError("region", f"lkey {region.lkey:#x} is not registered", id="not-registered")
        del self.by_rkey[region.rkey]
        region.dead = True

    def remote(self, pd: int, rkey: int, va: int, length: int, right: int) -> RoceMemoryRegion:
        """Return the region that has the r_key of a packet. Raises `BadKeyError` if the region does not allow the
        access.
        """
        region = self.by_rkey.get(rkey)
        if region is None or region.invalidated or region.pd != pd or not region.allows(va, length, right):
            raise BadKeyError
        return region


class SgeSegments:
    """A scatter or gather list gives access to the bytes of its parts, one part after the other.

    Each access checks the l_keys again.
    """

    __slots__ = ("_only", "_regions", "_right", "length", "parts", "pd")

    def __init__(self, regions: Regions, pd: int, sg_list: tuple[Sge, ...], right: int) -> None:
        """Make a list; its regions must grant `right`, which is `Access.LOCAL_WRITE` to scatter and 0 to gather."""
        self._regions = regions
        self._right = int(right)
        self.pd = pd
        self.parts = sg_list
        self.length = sum(part.length for part in sg_list)
        self._only: RoceMemoryRegion | None = None

    def check(self) -> None:
        """Check the access to all parts that are not empty. Raises `BadKeyError` if a part permits no access."""
        for part in self.parts:
            if part.length:
                self._region(part)

    def _region(self, part: Sge) -> RoceMemoryRegion:
        region = self._regions.by_lkey.get(part.lkey)
        if region is None or region.pd != self.pd or not region.allows(part.addr, part.length, self._right):
            raise BadKeyError
        return region

    def _pieces(self, start: int, length: int) -> list[tuple[RoceMemoryRegion, int, int]]:
        """Return (region, address, length) of each piece of a range, all of which are checked."""
        parts = self.parts
        if len(parts) == 1:  # the usual case: the region is looked up once and only checked for deregistration
            region = self._only
            if region is None or region.dead:
                region = self._only = self._region(parts[0])
            return [(region, parts[0].addr + start, length)]
        pieces = []
        for part in parts:
            if length and start < part.length:
                size = min(length, part.length - start)
                pieces.append((self._region(part), part.addr + start, size))
                start, length = 0, length - size
            else:
                start = max(0, start - part.length)
        return pieces

    def read(self, start: int, length: int) -> Buffer:
        """Return `length` bytes from byte `start` of the list on. Raises `BadKeyError` if a part permits no access."""
        if not length:
            return b""
        pieces = self._pieces(start, length)
        if len(pieces) == 1:
            region, addr, size = pieces[0]
            return region.memory.read(addr - region.addr, size)
        return b"".join(bytes(region.memory.read(addr - region.addr, size)) for region, addr, size in pieces)

    def read_run(self, start: int, size: int, count: int) -> list[Buffer] | None:
        """Return what `count` calls of `read` would return, or None if they must be made. Raises `BadKeyError` as
        `read` does."""
        pieces = self._pieces(start, size * count) if len(self.parts) == 1 else ()
        if len(pieces) != 1:
            return None
        region, addr, _ = pieces[0]
        memory = run_memory(region.memory)
        return None if memory is None else memory.read_run(addr - region.addr, size, count)

    def whole(self) -> tuple[RoceMemoryRegion, int] | None:
        """Return the region of the list and the offset of the list there, or None if it has several parts or its part
        permits no access."""
        if len(self.parts) != 1:
            return None
        try:
            region, addr, _ = self._pieces(0, 1)[0]
        except BadKeyError:
            return None
        return region, addr - region.addr

    def write(self, start: int, data: Buffer) -> None:
        """Write `data` from byte `start` of the list on. If a part permits no access, nothing is written, and
        `BadKeyError` is raised.
        """
        if not len(data):
            return
        pieces = self._pieces(start, len(data))
        if len(pieces) == 1:
            region, addr, _ = pieces[0]
            region.memory.write(addr - region.addr, data)
            return
        view, at = memoryview(data), 0
        for region, addr, size in pieces:
            region.memory.write(addr - region.addr, view[at : at + size])
            at += size


class Inline:
    """This class holds the bytes of an INLINE send. They were copied when the send was posted."""

    __slots__ = ("_data", "length")

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(bytes(data))
        self.length = len(self._data)

    def check(self) -> None:
        """Do nothing, because the bytes are always readable."""

    def read(self, start: int, length: int) -> Buffer:
        """Return `length` bytes from byte `start` on."""
        return self._data[start : start + length]

    def write(self, start: int, data: Buffer) -> None:
        """Raise `BadKeyError`, because the bytes are never writable."""
        raise BadKeyError  # no READ or ATOMIC is inline
