# SPDX-License-Identifier: GPL-2.0-only
"""This module has the memory regions of the verbs, and the slices of regions that work requests name."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uetproto.api.verbs.errors import Errno, VerbsError, instance, integer, invalid, member, refusals
from uetproto.engine.roce.contract import Access, Sge
from uetproto.engine.roce.memory import MemoryKind

if TYPE_CHECKING:
    from uetproto.api.verbs.device import PD

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC


@dataclass(frozen=True, slots=True)
class Slice(Sge):
    """This record represents a part of a memory region, such as `mr[0:64]`: it is an `ibv_sge` that knows its region.

    `bytes(...)` returns the present bytes of the slice.
    """

    mr: "MR"

    def __bytes__(self) -> bytes:
        return self.mr.read(self.addr - self.mr.addr, self.length)


class MR:
    """This class represents a memory region (`ibv_mr`). `pd.reg_mr(...)` makes one.

    `mr[0:64]` is a `Slice` for a work request, and `mr[:4] = b"ping"` writes to the memory.
    """

    def __init__(
        self, pd: "PD", memory: Any, access: Access, addr: int, kind: MemoryKind, rkey: int | None = None
    ) -> None:
        access = member("access", access, Access)
        instance("kind", kind, MemoryKind, ", ".join(one.name for one in MemoryKind))
        integer("addr", addr, 0, (1 << 64) - 1)
        if rkey is not None:
            integer("rkey", rkey, 0, (1 << 32) - 1)
        self.pd = pd
        hca = pd.device.hca
        with refusals():
            self.region = region = hca.reg_mr(pd.handle, memory, addr=addr, access=access, kind=kind, rkey=rkey)
        self.addr = region.addr
        """Virtual address of the first byte."""
        self.length = region.length
        self.lkey = region.lkey
        """Key for work requests at this device."""
        self.rkey = region.rkey
        """Key for work requests of peers."""
        self.access = region.access
        self.kind = kind
        """Where the bytes are, for the data path model."""

    def __getitem__(self, part: slice) -> Slice:
        """Return a piece. Raises EINVAL for a step, and for a region that is deregistered."""
        self.check("mr")
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise invalid("mr[...]", part, "a slice such as mr[0:64]", id="wrong-type")
        try:
            start, stop, _ = part.indices(self.length)
        except TypeError:
            raise invalid("mr[...]", part, "a slice such as mr[0:64]", id="wrong-type") from None
        return Slice(self.addr + start, max(0, stop - start), self.lkey, self)

    def __setitem__(self, part: slice, data: Any) -> None:
        """Write a piece. Raises EINVAL for another number of bytes, and for read-only memory."""
        piece = self[part]
        try:
            view = memoryview(data).cast("B")
        except TypeError:
            raise invalid("mr[...]", data, "bytes, or a contiguous buffer", id="not-contiguous") from None
        if len(view) != piece.length:
            raise invalid(
                "mr[...]", f"{len(view)} bytes", f"{piece.length}, as many as the piece has", id="wrong-length"
            )
        if getattr(self.region.memory, "read_only", False):
            raise invalid("mr[...]", "read-only memory", "memory that can be written", id="read-only")
        self.region.memory.write(piece.addr - self.addr, view)

    def __repr__(self) -> str:
        return f"<MR of {self.pd.device.name}, {self.length} bytes at {self.addr:#x}, rkey {self.rkey:#x}>"

    def __len__(self) -> int:
        return self.length

    def __bytes__(self) -> bytes:
        return self.read(0, self.length)

    def read(self, offset: int, length: int) -> bytes:
        """Return a copy of the `length` bytes that are at `offset` now."""
        self.check("mr")
        integer("offset", offset, 0, self.length)
        integer("length", length, 0, self.length - offset)
        return bytes(self.region.memory.read(offset, length))

    def dereg(self) -> None:
        """`ibv_dereg_mr` deregisters the region; from now on work requests that name the region fail."""
        self.check("mr")
        self.pd.device.hca.dereg_mr(self.region)
        del self.pd.device.mrs[self.lkey]
        self.pd.users.remove(self)

    def check(self, name: str) -> None:
        """Raise EINVAL if the region is deregistered; `name` is the argument's name in the error."""
        if self.region.dead:
            raise VerbsError(Errno.EINVAL, name, "the region was deregistered", "one that is registered", id="closed")


def sge_list(name: str, given: Any, pd: "PD") -> tuple[Sge, ...]:
    """Return `given` as a scatter or gather list. `given` is a region, a slice of a region, an `Sge`, or a list of
    these.

    Raises EINVAL for a region that is deregistered or of another domain. A plain `Sge` with a bad lkey is legal here;
    its work request then completes with an error (roce.md §10).
    """
    parts = (given,) if isinstance(given, Sge | MR) else given
    if not isinstance(parts, list | tuple):
        raise invalid(name, given, "mr, mr[0:64], Sge(addr, length, lkey), or a list of such", id="wrong-type")
    found: list[Sge] = []
    for part in parts:
        sge = part[:] if isinstance(part, MR) else part
        if not isinstance(sge, Sge):
            raise invalid(name, part, "mr, mr[0:64], Sge(addr, length, lkey), or a list of such", id="wrong-type")
        if isinstance(sge, Slice):
            sge.mr.check(name)
            if sge.mr.pd is not pd:
                raise invalid(
                    name, "a region of another protection domain", "one of the domain of the queue", id="foreign-object"
                )
        integer(f"{name}: addr", sge.addr, 0, (1 << 64) - 1)
        integer(f"{name}: length", sge.length, 0, (1 << 64) - 1)
        integer(f"{name}: lkey", sge.lkey, 0, (1 << 32) - 1)
        found.append(sge)
    return tuple(found)
