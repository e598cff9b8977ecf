# SPDX-License-Identifier: GPL-2.0-only
"""This module registers memory; it has the keys and the states of regions (UE 1.0.1 Table 2-13, ses.md §2.6, §14.2)."""

from collections.abc import Container
from enum import Enum
from typing import TYPE_CHECKING, Any

from uetproto.api.fi.buffers import view_of
from uetproto.api.fi.cq import Counter
from uetproto.api.fi.errors import Errno, FiError, bits, expect, invalid, some
from uetproto.api.fi.flags import Flag, MrMode
from uetproto.engine.contract import RemoteAccess
from uetproto.engine.memory import IDEMPOTENT_SAFE, FileMemory, Region, as_memory
from uetproto.engine.ses.headers import OPTIMIZED_KEY
from uetproto.errors import LocalError

if TYPE_CHECKING:
    from uetproto.api.fi.domain import Domain
    from uetproto.api.fi.endpoint import Endpoint

PROVIDER_KEY = 1 << 48
"""Bit that `mr_reg` sets in the keys that it assigns, except in optimized keys. Programs cannot request a key with this
bit, so an assigned key never equals a requested one (ses.md §2.6)."""
_RESERVED = 0x3F << 56
_VENDOR = 0xFF << 48
_INDICES = 1 << 12
"""Number of optimized keys, whose indices are 0 … 4095 (ses.md §14.2)."""
_RKEY = (1 << 48) - 1

REMOTE = Flag.REMOTE_READ | Flag.REMOTE_WRITE
ACCESS = REMOTE | Flag.READ | Flag.WRITE | Flag.SEND | Flag.RECV


def user_key(requested: int, idempotent_safe: bool, optimized: bool) -> int:
    """Return the key for a `requested_key`. `idempotent_safe` sets bit 63 of the key, and `optimized` bit 62.

    Raises FI_EINVAL if any of the bits 61 … 48, which a program must not set, is set, or if an optimized key has no
    index below 4096.
    """
    key = bits("requested_key", requested, 64)
    if key & _RESERVED:
        raise invalid("requested_key", f"{key:#x}", "bits 61 … 56 zero (reserved)", id="out-of-range")
    if key & _VENDOR:
        raise invalid(
            "requested_key", f"{key:#x}", "bits 55 … 48 zero (of keys that the provider assigns)", id="out-of-range"
        )
    key |= (IDEMPOTENT_SAFE if idempotent_safe else 0) | (OPTIMIZED_KEY if optimized else 0)
    if key & OPTIMIZED_KEY and key & _RKEY >= _INDICES:
        raise invalid(
            "requested_key",
            f"{key:#x}",
            f"an index below {_INDICES:#x}, as the key is optimized",
            id="inconsistent-values",
        )
    return key


def provider_key(index: int, idempotent_safe: bool, optimized: bool, taken: Container[int]) -> int:
    """Return the key that `mr_reg` assigns to the region number `index`; an optimized key has the first free index
    instead.

    Raises FI_ENOSPC if all indices of optimized keys are taken.
    """
    top = IDEMPOTENT_SAFE if idempotent_safe else 0
    if optimized:
        for low in range(_INDICES):
            key = OPTIMIZED_KEY | low
            if key not in taken and key | IDEMPOTENT_SAFE not in taken:  # small headers have no bit 63
                return top | key
        raise FiError(
            Errno.FI_ENOSPC, "optimized", f"all {_INDICES} indices are taken", "close a region first",
            id="resources-exhausted"
        )  # fmt: skip
    return top | PROVIDER_KEY | index


class MrState(Enum):
    """This enumeration names the states of a region. The calls register, bind, enable, disable and close change the
    state (ses.md §14.2)."""

    REGISTERED = "registered"
    BOUND = "bound"
    ENABLED = "enabled"
    """Packets can reach the region."""
    CLOSED = "closed"


class MemoryRegion:
    """This class represents a memory region that peers may access. `domain.mr_reg(...)` makes one; programs only read
    the attributes."""

    def __init__(
        self, domain: "Domain", buffer: Any, access: Flag, key: int, base: int, *, job_restriction: int | None,
        device: str, context: Any,
    ) -> None:  # fmt: skip
        """Make a region; the domain calls it. Raises FI_EINVAL for an illegal buffer or access."""
        self.view = memoryview(b"") if isinstance(buffer, FileMemory) else view_of("buf", buffer)
        """Shows the bytes; it is empty for a `FileMemory`, which has its own `read` and `write`."""
        self.memory = buffer if isinstance(buffer, FileMemory) else self.view
        access = some("access", access, Flag, ACCESS)
        try:
            self.region = Region(
                key, self.memory, base=base, remote_write=Flag.REMOTE_WRITE in access,
                remote_read=Flag.REMOTE_READ in access, job_restriction=job_restriction, enabled=False,
            )  # fmt: skip
        except LocalError as error:
            raise FiError(Errno.FI_EINVAL, *error.args, id=error.id) from error
        self.domain = domain
        self.access = access
        self.key = key
        """Key for peers, 64 bits (`fi_mr_key`)."""
        self.length = self.region.length
        """Number of bytes."""
        self.idempotent_safe = bool(key & IDEMPOTENT_SAFE)
        """Whether accesses may be repeated, so that RUDI is permitted: bit 63 (ses.md §2.6)."""
        self.optimized = bool(key & OPTIMIZED_KEY)
        """Whether the small header may carry the key: bit 62."""
        self.base = base
        """Address of the first byte for peers: the virtual address, or 0."""
        self.device = device
        """Label of where the memory is: "host", or such as "cuda:0". It has no effect."""
        self.context = context
        self.state = MrState.REGISTERED
        self.endpoint: Endpoint | None = None
        self._counters: list[tuple[Counter, Flag]] = []

    @property
    def owner(self) -> object:
        """Return the object whose memory the region uses, to check FI_MR_LOCAL."""
        return self.view.obj if self.memory is self.view else self.memory

    def bind(self, other: "Endpoint | Counter", flags: Flag = Flag.REMOTE_WRITE) -> None:
        """`fi_mr_bind` binds an endpoint (FI_MR_ENDPOINT) or a counter to the region. A counter counts the accesses of
        peers: `flags` is REMOTE_WRITE, REMOTE_READ or both.

        Raises FI_EOPBADSTATE once the region is enabled. Raises FI_EINVAL for a closed counter, and for any counter if
        the region is IDEMPOTENT_SAFE (ses.md §2.6). Raises FI_EDOMAIN for a counter of another fabric or an endpoint of
        another domain.
        """
        expect("mr.bind", "the region", self.state, MrState.REGISTERED, MrState.BOUND)
        if isinstance(other, Counter):
            if self.idempotent_safe:
                raise invalid(
                    "counter", "of an IDEMPOTENT_SAFE region", "none: its accesses may be repeated", id="not-with-mode"
                )
            flags = some("flags", flags, Flag, REMOTE, Errno.FI_EBADFLAGS)
            other.check_bindable(self.domain.fabric.driver)
            self._counters.append((other, flags))
            other.users += 1
            return
        if getattr(other, "domain", None) is not self.domain:
            raise invalid(
                "endpoint", other, "a Counter, or an endpoint of the same domain", Errno.FI_EDOMAIN, id="foreign-object"
            )
        self.endpoint = other
        self.state = MrState.BOUND

    def enable(self) -> None:
        """`fi_mr_enable` lets packets reach the region. Raises FI_EOPBADSTATE if the region is enabled or closed
        already, or not bound although MrMode.ENDPOINT demands it."""
        needs_endpoint = MrMode.ENDPOINT in self.domain.mr_mode
        legal = (MrState.BOUND,) if needs_endpoint else (MrState.REGISTERED, MrState.BOUND)
        expect("mr.enable", "the region", self.state, *legal)
        self.region.enabled = True
        self.state = MrState.ENABLED

    def disable(self) -> None:
        """Disable the region and undo all its bindings. From now on, packets of peers are refused with BAD_MKEY.

        Raises FI_EOPBADSTATE unless the region is bound or enabled.
        """
        expect("mr.disable", "the region", self.state, MrState.BOUND, MrState.ENABLED)
        self.region.enabled = False
        self._unbind()
        self.state = MrState.REGISTERED

    def close(self) -> None:
        """`fi_close` closes the region and releases its key and its buffer; `view` is empty afterwards.

        Raises FI_EBUSY while an endpoint is bound to the region (ses.md §14.2).
        """
        if self.state is MrState.CLOSED:
            return
        if self.endpoint is not None:
            raise FiError(Errno.FI_EBUSY, "mr", "is bound to an endpoint", "disable it first", id="in-use")
        self.region.enabled = False
        self._unbind()
        self.domain.forget(self)
        self.memory = self.view = memoryview(b"")
        self.region.memory = as_memory(self.view)  # nothing holds the buffer: it may be resized
        self.state = MrState.CLOSED

    def count(self, access: RemoteAccess) -> None:
        """Count an access of a peer in the bound counters."""
        for counter, flags in self._counters:
            if (access.written and Flag.REMOTE_WRITE in flags) or (access.read and Flag.REMOTE_READ in flags):
                counter.add()

    def _unbind(self) -> None:
        for counter, _ in self._counters:
            counter.users -= 1
        self._counters.clear()
        self.endpoint = None
