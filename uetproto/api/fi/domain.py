# SPDX-License-Identifier: GPL-2.0-only
"""This module has jobs and domains; a domain is a process on a fabric endpoint, with all objects that the process opens
(ses.md §14.1 phases 2–7)."""

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from uetproto.api.fi.av import AddressVector
from uetproto.api.fi.cq import CompletionQueue, Counter
from uetproto.api.fi.endpoint import OP_FLAGS, Endpoint, FiOperation
from uetproto.api.fi.errors import Errno, FiError, bits, invalid, member
from uetproto.api.fi.flags import CqFormat, EpType, FepCap, Flag, MrMode, Order
from uetproto.api.fi.memory import ACCESS, MemoryRegion, provider_key, user_key
from uetproto.api.fi.node import FiNode
from uetproto.engine.contract import Cancelled, Completion, Event, Received, RemoteAccess, RemoteWrite
from uetproto.engine.ses.profiles import profile_of

if TYPE_CHECKING:
    from uetproto.api.fi import Fabric

_PAGE = 4096
_FIRST_ADDRESS = 1 << 44
"""First address of the address space of a process; each region starts on a page of its own."""
_FIRST_INDEX = 15
_FIRST_INITIATOR = 16


class Job:
    """This class represents a parallel job: its JobID, and the data that its ranks publish for each other (ses.md
    §14.1)."""

    def __init__(self, job_id: int = 1) -> None:
        self.job_id = bits("job_id", job_id, 24)
        self.exchange: dict[Any, Any] = {}
        """Data that ranks publish: addresses, keys, base addresses. Publishing sends no packets."""
        self._initiators = 0

    def next_initiator(self) -> int:
        """Return an initiator ID for the next endpoint of the job. The IDs are 16, 17 and so on, so that receivers can
        tell endpoints apart."""
        self._initiators += 1
        return _FIRST_INITIATOR + self._initiators - 1


class Domain:
    """This class represents a domain, which is one process of a job on one fabric endpoint. `fabric.domain(...)` makes
    one (`fi_domain`)."""

    def __init__(
        self, fabric: "Fabric", node: FiNode, job: Job, *, pid_on_fep: int | None, absolute: bool, mr_mode: MrMode
    ) -> None:
        mr_mode = member("mr_mode", mr_mode, MrMode)
        pids = {domain.pid_on_fep for domain in fabric.domains if domain.node is node}
        if pid_on_fep is None:
            pid_on_fep = _free(range(1 << 12), pids, f"pid_on_fep: all 4096 of node {node.name}")
        elif bits("pid_on_fep", pid_on_fep, 12) in pids:
            raise invalid(
                "pid_on_fep", pid_on_fep, f"one that is free at {node.name}", Errno.FI_EADDRINUSE, id="already-there"
            )
        self.fabric = fabric
        self.node: FiNode = node
        self.job: Job = job
        self.pid_on_fep: int = pid_on_fep
        self.absolute = absolute
        """Whether the endpoints are services that clients of any job may reach (ses.md §2.2)."""
        self.mr_mode = mr_mode
        self.config = node.ses
        self.caps = FepCap(int(profile_of(node.ses.profile)))
        if node.ses.optimized_headers:
            self.caps |= FepCap.OPTIMIZED
        self.process = node.fep.attach(None if absolute else job.job_id, pid_on_fep, ())
        self.regions: dict[int, MemoryRegion] = {}
        self.endpoints: dict[int, Endpoint] = {}
        """Endpoints by resource index."""
        self.closed = False
        self._registered = 0
        self._next_address = _FIRST_ADDRESS
        node.listeners.append(self._handle)

    # Opening objects

    def av_open(self) -> AddressVector:
        """`fi_av_open` returns a new address vector."""
        self._open("av_open")
        return AddressVector(self.fabric.driver, self.node.ip_version)

    def cq_open(self, size: int | None = None, format: CqFormat = CqFormat.TAGGED) -> CompletionQueue:
        """`fi_cq_open` returns a new completion queue for `size` entries; the default is `cq_size` of `SesConfig`.
        Raises FI_EINVAL for an illegal size or format."""
        self._open("cq_open")
        size = self.config.cq_size if size is None else size
        if type(size) is not int or not 1 <= size <= 1 << 24:
            raise invalid("size", size, "1 … 2^24 entries", id="out-of-range")
        return CompletionQueue(self.fabric.driver, size, member("format", format, CqFormat))

    def cntr_open(self) -> Counter:
        """`fi_cntr_open` returns a new counter."""
        self._open("cntr_open")
        return Counter(self.fabric.driver)

    def endpoint(
        self, ep_type: EpType = EpType.RDM, *, msg_order: Order = Order.NONE, op_flags: Flag = Flag.NONE,
        resource_index: int | None = None, initiator_id: int | None = None,
    ) -> Endpoint:  # fmt: skip
        """`fi_endpoint` returns a new endpoint, which has to be bound to an address vector and completion queues, and
        then enabled.

        Any bit of `msg_order` selects ROD. `op_flags` hold for all operations of the endpoint. `resource_index` is 1 …
        0xfff; the default is the first free index from 15 on. `initiator_id` has 32 bits; the default is the next
        initiator ID of the job. Raises FI_EINVAL for an illegal argument, FI_EBADFLAGS for an unknown flag,
        FI_EADDRINUSE for an index that is taken, and FI_ENOSPC if all indices are taken.
        """
        self._open("endpoint")
        ep_type, msg_order = member("ep_type", ep_type, EpType), member("msg_order", msg_order, Order)
        op_flags = member("op_flags", op_flags, Flag, OP_FLAGS, Errno.FI_EBADFLAGS)
        if resource_index is None:
            indices = range(_FIRST_INDEX, 1 << 12)
            resource_index = _free(indices, self.endpoints, f"resource_index: all from {_FIRST_INDEX} to 0xfff")
        elif not bits("resource_index", resource_index, 12):
            raise invalid("resource_index", 0, "1 … 0xfff (0 is reserved)", id="out-of-range")
        elif resource_index in self.endpoints:
            raise invalid("resource_index", resource_index, "one that is free", Errno.FI_EADDRINUSE, id="already-there")
        if initiator_id is not None:
            bits("initiator_id", initiator_id, 32)
        endpoint = Endpoint(self, ep_type, msg_order, op_flags, resource_index, initiator_id)
        self.endpoints[resource_index] = endpoint
        return endpoint

    def mr_reg(
        self, buf: Any, access: Flag = ACCESS, requested_key: int | None = None, *, flags: Flag = Flag.NONE,
        idempotent_safe: bool = False, optimized: bool = False, job_restricted: bool = False, device: str = "host",
        context: Any = None,
    ) -> MemoryRegion:  # fmt: skip
        """`fi_mr_reg` registers a buffer; peers read and write the buffer itself, not a copy.

        `requested_key` has up to 48 bits. If it is None, or the domain has MrMode.PROV_KEY, `fi_mr_reg` assigns a key,
        in which bit 48 is set. `idempotent_safe` sets bit 63 of the key. `optimized` sets bit 62, and the key then has
        an index below 4096. With `job_restricted` only this job may use the region. `device` is "host", or a label that
        says where the memory is. The region is enabled at once, except with MrMode.ENDPOINT or `Flag.RMA_EVENT`; then
        an endpoint or a counter has to be bound first (see `MemoryRegion.bind` and `MemoryRegion.enable`).

        Raises FI_EINVAL for an illegal argument, FI_ENOKEY for a key that is taken, FI_ENOSPC if `mr_count` regions
        exist, and FI_EBADFLAGS for an unknown flag.
        """
        self._open("mr_reg")
        flags = member("flags", flags, Flag, Flag.RMA_EVENT, Errno.FI_EBADFLAGS)
        if len(self.regions) >= self.config.mr_count:
            raise FiError(
                Errno.FI_ENOSPC, "mr_count", f"all {self.config.mr_count} regions are in use", id="resources-exhausted"
            )
        if requested_key is None or MrMode.PROV_KEY in self.mr_mode:
            key = provider_key(self._registered, idempotent_safe, optimized, self.regions)
        else:
            key = user_key(requested_key, idempotent_safe, optimized)
        if key in self.regions:
            raise invalid("requested_key", f"{key:#x}", "a key that is free", Errno.FI_ENOKEY, id="already-there")
        base = self._next_address if MrMode.VIRT_ADDR in self.mr_mode else 0
        region = MemoryRegion(
            self, buf, access, key, base, device=device, context=context,
            job_restriction=self.job.job_id if job_restricted else None,
        )  # fmt: skip
        self.process.register(region.region)
        self.regions[key] = region
        self._registered += 1
        self._next_address += -(-max(region.length, 1) // _PAGE) * _PAGE
        if MrMode.ENDPOINT not in self.mr_mode and not flags:
            region.enable()
        return region

    def close(self) -> None:
        """`fi_close` closes the domain and ends its process. Raises FI_EBUSY while endpoints or regions are open."""
        if self.closed:
            return
        if self.endpoints or self.regions:
            what = f"{len(self.endpoints)} endpoints and {len(self.regions)} regions are open"
            raise FiError(Errno.FI_EBUSY, "domain", what, "close them first", id="in-use")
        self.closed = True
        self.node.fep.detach(self.process)
        self.node.listeners.remove(self._handle)
        self.fabric.domains.remove(self)

    # Calls of endpoints and regions

    def forget(self, region: MemoryRegion) -> None:
        """Forget a memory region that was closed, and release its key."""
        del self.regions[region.key]
        self.process.regions.pop(region.key, None)

    def _open(self, call: str) -> None:
        for what, closed in (("domain", self.closed), ("fabric", self.fabric.closed)):
            if closed:
                raise FiError(Errno.FI_EOPBADSTATE, f"domain.{call}", f"the {what} is closed", id="closed")

    def _handle(self, event: Event) -> None:
        """Handle an event of the fabric endpoint, if it concerns this process."""
        match event:
            case Completion(context=FiOperation() as transfer) if transfer.endpoint.domain is self:
                transfer.endpoint.completed(transfer, event)
            case Received(receive=receive) | Cancelled(receive=receive):
                posted = receive.context
                if isinstance(posted, FiOperation) and posted.endpoint.domain is self:
                    posted.endpoint.received(posted, event)
            case RemoteWrite(job_id=job, pid_on_fep=self.pid_on_fep) if self.absolute or job == self.job.job_id:
                endpoint = self.endpoints.get(event.resource_index)
                if endpoint is not None:
                    endpoint.remotely_written(event)
            case RemoteAccess():
                region = self.regions.get(event.key)
                if region is not None and region.region is event.region:
                    region.count(event)


def _free(numbers: range, taken: Container[int], what: str) -> int:
    """Return the first number that is not taken. Raises FI_ENOSPC."""
    number = next((number for number in numbers if number not in taken), None)
    if number is None:
        raise FiError(Errno.FI_ENOSPC, "", f"{what} are taken", "close one first", id="resources-exhausted")
    return number
