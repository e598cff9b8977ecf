"""Endpoints: their states, bindings and open operations (ses.md §14.2). The calls that move data are in `transfers`."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from uetproto.api.fi.address import Address
from uetproto.api.fi.av import AddressVector
from uetproto.api.fi.cq import CompletionFacts, CompletionQueue, Counter
from uetproto.api.fi.errors import Errno, FiError, FiObject, errno_of, invalid, some
from uetproto.api.fi.flags import EpType, Flag, Order
from uetproto.engine.contract import Cancelled, Completion, Receive, Received, RemoteWrite, SesWork
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_ses import ReturnCode, Space

if TYPE_CHECKING:
    from uetproto.api.fi.domain import Domain
    from uetproto.api.fi.transfers import Endpoint

COUNTABLE = Flag.SEND | Flag.RECV | Flag.READ | Flag.WRITE


class EpState(Enum):
    """The states of an endpoint (ses.md §14.2)."""

    NEW = "new"
    BOUND = "bound"
    ENABLED = "enabled"
    DISABLED = "disabled"
    CLOSED = "closed"


@dataclass(slots=True, eq=False)
class FiOperation:
    """An open operation is the context of the work that an engine has."""

    endpoint: "Endpoint"
    context: Any
    flags: Flag
    """Flags of the completion."""
    counted: Flag
    """Counter that counts the operation: one of SEND, RECV, READ, WRITE."""
    wanted: bool
    """Tells whether a success goes to the completion queue."""
    peer: Address | None = None
    fenced: bool = False
    work: SesWork | None = None


@dataclass(slots=True)
class _PeerOperations:
    """The open operations towards one peer, for FI_FENCE."""

    open: int = 0
    """Number of operations that the engine has."""
    waiting: deque[FiOperation] = field(default_factory=deque)
    """Operations that wait: a fenced one, and all after it."""


class EndpointBase:
    """The states, bindings and open operations of an endpoint."""

    def __init__(
        self, domain: "Domain", ep_type: EpType, msg_order: Order, op_flags: Flag, index: int, initiator: int | None
    ) -> None:
        self.domain = domain
        self.type = ep_type
        self.msg_order = msg_order
        self.op_flags = op_flags
        self.resource_index = index
        self.initiator_id = domain.job.next_initiator() if initiator is None else initiator
        self.state = EpState.NEW
        self.av: AddressVector
        self.tx_cq: CompletionQueue | None = None
        self.rx_cq: CompletionQueue | None = None
        self._min_multi_recv = 64
        self._selective = Flag.NONE  # of TRANSMIT and RECV, those with SELECTIVE_COMPLETION
        self._counters: list[tuple[Counter, Flag]] = []
        self._by_peer: dict[Address, _PeerOperations] = {}
        self._posted: dict[bool, dict[Receive, None]] = {False: {}, True: {}}  # by: tagged
        self._transmits = 0

    # Life

    @property
    def address(self) -> Address:
        """`fi_getname` returns the address that peers insert into their address vector."""
        fep = self.domain.node.fep
        return Address(
            fa=fep.address, ip_version=self.domain.node.ip_version, fep_cap=self.domain.caps,
            pid_on_fep=self.domain.pid_on_fep, start_index=self.resource_index, initiator_id=self.initiator_id,
            absolute=self.domain.absolute, mtu_limited=self.type is EpType.DGRAM,
        )  # fmt: skip

    @property
    def min_multi_recv(self) -> int:
        """Return FI_OPT_MIN_MULTI_RECV: a multi-receive buffer with fewer bytes left is released."""
        return self._min_multi_recv

    @min_multi_recv.setter
    def min_multi_recv(self, value: int) -> None:
        if type(value) is not int or not 1 <= value < 1 << 32:
            raise invalid("min_multi_recv", value, "1 … 0xffffffff bytes")
        self._min_multi_recv = value

    @property
    def cq(self) -> CompletionQueue:
        """Return the completion queue of transmits. Raises FI_ENOCQ before one is bound."""
        if self.tx_cq is None:
            raise FiError(Errno.FI_ENOCQ, "endpoint", "no completion queue is bound for TRANSMIT")
        return self.tx_cq

    def bind(self, other: AddressVector | CompletionQueue | Counter, flags: Flag = Flag.TRANSMIT | Flag.RECV) -> None:
        """`fi_ep_bind` binds an address vector, a completion queue or a counter.

        `flags`: TRANSMIT, RECV or both of a queue, perhaps with SELECTIVE_COMPLETION; SEND, RECV, READ, WRITE of a
        counter. Raises FI_EOPBADSTATE once enabled, FI_EBADFLAGS, FI_EINVAL for an object that is closed, or where one
        is bound already, FI_EDOMAIN for an object of another fabric.
        """
        self._expect("bind", EpState.NEW, EpState.BOUND)
        if isinstance(other, FiObject):
            other.check_bindable(self.domain.fabric.driver)
        if isinstance(other, AddressVector):
            if hasattr(self, "av"):
                raise invalid("av", "a second one", "one address vector")
            self.av = other
            other.users += 1
        elif isinstance(other, CompletionQueue):
            self._bind_cq(other, flags)
        elif isinstance(other, Counter):
            flags = some("flags", flags, Flag, COUNTABLE, Errno.FI_EBADFLAGS)
            self._counters.append((other, flags))
            other.users += 1
        else:
            raise invalid("bind", type(other).__name__, "AddressVector, CompletionQueue, Counter")
        self.state = EpState.BOUND

    def _bind_cq(self, cq: CompletionQueue, flags: Flag) -> None:
        both = Flag.TRANSMIT | Flag.RECV
        flags = some("flags", flags, Flag, both | Flag.SELECTIVE_COMPLETION, Errno.FI_EBADFLAGS)
        if not flags & both:
            raise invalid("flags", flags, "TRANSMIT, RECV, with SELECTIVE_COMPLETION", Errno.FI_EBADFLAGS)
        bound = [flag for flag, cq in ((Flag.TRANSMIT, self.tx_cq), (Flag.RECV, self.rx_cq)) if cq is not None]
        if any(flag in flags for flag in bound):
            raise invalid("cq", "a second one", "one completion queue for TRANSMIT, and one for RECV")
        if Flag.TRANSMIT in flags:
            self.tx_cq = cq
        if Flag.RECV in flags:
            self.rx_cq = cq
        if Flag.SELECTIVE_COMPLETION in flags:
            self._selective |= flags & both
        cq.bind(self)

    def enable(self) -> None:
        """`fi_enable` lets peers reach the endpoint in all three index spaces; after `disable` in the next generation.

        Raises FI_ENOAV, FI_ENOCQ when these are missing, FI_EOVERRUN when its queue is in error, FI_EOPBADSTATE.
        """
        self._expect("enable", EpState.NEW, EpState.BOUND, EpState.DISABLED)
        if not hasattr(self, "av"):
            raise FiError(Errno.FI_ENOAV, "endpoint", "no address vector is bound")
        if self.tx_cq is None or self.rx_cq is None:
            raise FiError(Errno.FI_ENOCQ, "endpoint", "legal with completion queues for TRANSMIT and for RECV")
        if self.tx_cq.overrun or self.rx_cq.overrun:
            raise FiError(Errno.FI_EOVERRUN, "endpoint", "its completion queue is in error")
        if self.state is EpState.DISABLED:
            for space in Space:
                self.domain.process.spaces[space][self.resource_index].enable()
        else:
            self.domain.process.open(self.resource_index)
        self.state = EpState.ENABLED

    def disable(self) -> None:
        """Disable the endpoint: messages of peers get DISABLED. Raises FI_EOPBADSTATE unless it is enabled."""
        self._expect("disable", EpState.ENABLED)
        for space in Space:
            self.domain.process.spaces[space][self.resource_index].disable()
        self.state = EpState.DISABLED

    def overrun(self) -> None:
        """Disable the endpoint, as a completion queue lost an entry (ses.md §13.3)."""
        if self.state is EpState.ENABLED:
            self.disable()

    def close(self) -> None:
        """`fi_close` closes the endpoint: packets get BAD_INDEX, open operations end without a completion.

        Raises FI_EBUSY while a region is bound to it.
        """
        if self.state is EpState.CLOSED:
            return
        if any(region.endpoint is self for region in self.domain.regions.values()):
            raise FiError(Errno.FI_EBUSY, "endpoint", "a region is bound to it", "disable the region first")
        was, self.state = self.state, EpState.CLOSED
        if was in (EpState.ENABLED, EpState.DISABLED):
            for receive in [*self._posted[False], *self._posted[True]]:
                self.domain.node.cancel(receive)
            self.domain.process.close(self.resource_index)
        for cq in (self.tx_cq, self.rx_cq):
            if cq is not None:
                cq.unbind(self)
        for counter, _ in self._counters:
            counter.users -= 1
        if hasattr(self, "av"):
            self.av.users -= 1
        del self.domain.endpoints[self.resource_index]

    def _expect(self, call: str, *legal: EpState) -> None:
        if self.state not in legal:
            names = " or ".join(state.value for state in legal)
            raise FiError(Errno.FI_EOPBADSTATE, f"endpoint.{call}", f"it is {self.state.value}", names)

    def _ready(self, call: str) -> None:
        self._expect(call, EpState.ENABLED)
        if self.domain.fabric.closed:
            raise FiError(Errno.FI_EOPBADSTATE, f"endpoint.{call}", "the fabric is closed")

    # Operations under way

    def _transmit(self, transfer: FiOperation, fence: bool) -> None:
        """Pass an operation to the engine, or let it wait behind a fence. Raises FI_EAGAIN when too many are open."""
        if self._transmits >= self.domain.config.tx_size:
            legal = f"{self.domain.config.tx_size} at a time (tx_size): read the completion queue, then try again"
            raise FiError(Errno.FI_EAGAIN, "endpoint", f"{self._transmits} operations are open", legal)
        assert transfer.peer is not None
        towards = self._by_peer.setdefault(transfer.peer, _PeerOperations())
        self._transmits += 1
        if towards.waiting or (fence and towards.open):
            transfer.fenced = fence
            towards.waiting.append(transfer)
            return
        try:
            self._submit(transfer, towards)
        except LocalError as error:
            self._transmits -= 1
            raise FiError(Errno.FI_EINVAL, *error.args) from error

    def _submit(self, transfer: FiOperation, towards: _PeerOperations) -> None:
        assert transfer.work is not None
        towards.open += 1
        try:
            self.domain.node.submit(transfer.work)
        except LocalError:
            towards.open -= 1
            raise

    def _release(self, towards: _PeerOperations) -> None:
        """Pass on the operations that waited behind a fence, up to the next fence."""
        while towards.waiting and not (towards.waiting[0].fenced and towards.open) and self.state is not EpState.CLOSED:
            transfer = towards.waiting.popleft()
            try:
                self._submit(transfer, towards)
            except LocalError:  # the engine refuses it now: the operation has failed
                self._transmits -= 1
                self._end(transfer, CompletionFacts(err=Errno.FI_EINVAL, return_code=ReturnCode.NULL))

    def _post(self, receive: Receive) -> None:
        """Post a receive. Raises FI_EAGAIN when the queue is full."""
        posted = self._posted[receive.tag is not None]
        if len(posted) >= self.domain.config.rx_size:
            legal = f"{self.domain.config.rx_size} on a queue (rx_size): wait for one to end"
            raise FiError(Errno.FI_EAGAIN, "endpoint", f"{len(posted)} receives are posted", legal)
        posted[receive] = None
        try:
            self.domain.node.submit(receive)
        except LocalError as error:
            posted.pop(receive, None)
            raise FiError(Errno.FI_EINVAL, *error.args) from error

    # Events of the engine

    def completed(self, transfer: FiOperation, event: Completion) -> None:
        """Complete a transmit."""
        assert transfer.peer is not None
        towards = self._by_peer[transfer.peer]
        towards.open -= 1
        self._transmits -= 1
        if towards.waiting:
            self.domain.node.driver.call_soon(lambda: self._release(towards))
        elif not towards.open:
            del self._by_peer[transfer.peer]
        if event.ok:
            self._end(transfer, CompletionFacts(length=event.length))
        else:
            err = errno_of(event.return_code, self.domain.config.strict_ref_errors)
            if event.error is not None or event.timed_out:
                err = Errno.FI_EIO
            self._end(
                transfer,
                CompletionFacts(length=event.modified, err=err, return_code=event.return_code, pds=event.error),
            )

    def received(self, transfer: FiOperation, event: Received | Cancelled) -> None:
        """Complete a posted receive, or one message of a multi-receive buffer."""
        receive = event.receive
        posted = self._posted[receive.tag is not None]
        if isinstance(event, Cancelled):
            posted.pop(receive, None)
            self._end(transfer, CompletionFacts(err=Errno.FI_ECANCELED, return_code=ReturnCode.CANCELLED))
            return
        flags = transfer.flags
        if event.spent:
            posted.pop(receive, None)
            flags |= Flag.MULTI_RECV if receive.least else Flag.NONE
        record = CompletionFacts(
            flags=flags, length=event.length, tag=event.tag, source=self.av.source_of(event.source, event.initiator),
            return_code=event.return_code, olen=event.message_length - event.length,
        )  # fmt: skip
        if event.data is not None:
            record.flags |= Flag.REMOTE_CQ_DATA
            record.data = event.data
        if receive.least:
            record.buf = cast(memoryview, receive.into)[event.start : event.start + event.length]
        strict = self.domain.config.strict_ref_errors
        if event.return_code != ReturnCode.OK:
            record.err = errno_of(event.return_code, strict)
        elif record.olen:
            record.err = Errno.FI_EIO if strict else Errno.FI_ETRUNC
        self._end(transfer, record)

    def remotely_written(self, event: RemoteWrite) -> None:
        """Add the entry of a WRITE of a peer with completion data."""
        record = CompletionFacts(
            flags=Flag.RMA | Flag.REMOTE_WRITE | Flag.REMOTE_CQ_DATA, length=event.length, data=event.data,
            source=self.av.source_of(event.source, event.initiator),
        )  # fmt: skip
        if self.rx_cq is not None:
            self.rx_cq.add(record)

    def _end(self, transfer: FiOperation, record: CompletionFacts) -> None:
        """Add the entry of an operation and count it; a closed endpoint does neither."""
        if self.state is EpState.CLOSED:
            return
        record.context = transfer.context
        record.flags |= transfer.flags
        failed = record.err is not None
        for counter, kinds in self._counters:
            if transfer.counted in kinds:
                counter.adderr() if failed else counter.add()
        cq = self.rx_cq if transfer.counted is Flag.RECV else self.tx_cq
        if cq is not None and (failed or transfer.wanted):
            cq.add(record)
