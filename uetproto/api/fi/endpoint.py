"""An endpoint: its life, what it is bound to, what it has under way (ses.md §14.2). The calls are in `fi_transfers`."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from uetproto.api.fi.address import Address
from uetproto.api.fi.av import AddressVector
from uetproto.api.fi.cq import CompletionQueue, Counter, Record, check_bindable
from uetproto.api.fi.errors import Errno, FiError, errno_of, invalid, some
from uetproto.api.fi.flags import EpType, Flag, Order
from uetproto.engine.contract import Cancelled, Completion, Receive, Received, RemoteWrite, SesWork
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_ses import ReturnCode, Space

if TYPE_CHECKING:
    from uetproto.api.fi.domain import Domain
    from uetproto.api.fi.transfers import Endpoint

COUNTABLE = Flag.SEND | Flag.RECV | Flag.READ | Flag.WRITE

_BINDABLE = {"av": AddressVector, "cq": CompletionQueue, "counter": Counter}


class EpState(Enum):
    """Of an endpoint (ses.md §14.2)."""

    NEW = "new"
    BOUND = "bound"
    ENABLED = "enabled"
    DISABLED = "disabled"
    CLOSED = "closed"


@dataclass(slots=True, eq=False)
class Transfer:
    """An operation under way: it is the context of the work that an engine has."""

    endpoint: "Endpoint"
    context: Any
    flags: Flag
    """Those of its completion."""
    counted: Flag
    """Which counter it belongs to: one of SEND, RECV, READ, WRITE."""
    wanted: bool
    """Its success goes to the completion queue."""
    peer: Address | None = None
    fenced: bool = False
    work: SesWork | None = None


@dataclass(slots=True)
class _Lane:
    """Operations towards one peer, for FI_FENCE."""

    open: int = 0
    """Handed to the engine and not done."""
    waiting: deque[Transfer] = field(default_factory=deque)
    """A fenced operation, and all after it."""


class EndpointBase:
    """Life, bindings and queues of an endpoint."""

    def __init__(
        self, domain: "Domain", ep_type: EpType, msg_order: Order, op_flags: Flag, index: int, initiator: int | None
    ) -> None:
        """Called by the domain."""
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
        self._lanes: dict[Address, _Lane] = {}
        self._posted: dict[bool, dict[Receive, None]] = {False: {}, True: {}}  # by: tagged
        self._transmits = 0

    # Life

    @property
    def address(self) -> Address:
        """`fi_getname`: what peers insert into their address vector."""
        fep = self.domain.node.fep
        return Address(
            fa=fep.address, ip_version=self.domain.node.ip_version, fep_cap=self.domain.caps,
            pid_on_fep=self.domain.pid_on_fep, start_index=self.resource_index, initiator_id=self.initiator_id,
            absolute=self.domain.absolute, mtu_limited=self.type is EpType.DGRAM,
        )  # fmt: skip

    @property
    def min_multi_recv(self) -> int:
        """FI_OPT_MIN_MULTI_RECV, bytes: a multi-receive buffer with less room left is given back."""
        return self._min_multi_recv

    @min_multi_recv.setter
    def min_multi_recv(self, value: int) -> None:
        if type(value) is not int or not 1 <= value < 1 << 32:
            raise invalid("min_multi_recv", value, "1 … 0xffffffff bytes")
        self._min_multi_recv = value

    @property
    def cq(self) -> CompletionQueue:
        """The completion queue of its transmits. Raises FI_ENOCQ before one is bound."""
        if self.tx_cq is None:
            raise FiError(Errno.FI_ENOCQ, "endpoint", "no completion queue is bound for TRANSMIT")
        return self.tx_cq

    def bind(self, other: AddressVector | CompletionQueue | Counter, flags: Flag = Flag.TRANSMIT | Flag.RECV) -> None:
        """`fi_ep_bind`: an address vector; a completion queue for TRANSMIT, RECV or both, perhaps with
        SELECTIVE_COMPLETION; a counter of SEND, RECV, READ, WRITE completions.

        Raises FI_EOPBADSTATE once enabled, FI_EBADFLAGS, FI_EINVAL for what is bound already, closed, or something
        else, FI_EDOMAIN for what is another fabric's.
        """
        self._expect("bind", EpState.NEW, EpState.BOUND)
        for name, kind in _BINDABLE.items():
            if isinstance(other, kind):
                check_bindable(name, other, self.domain.fabric.driver)
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
        """`fi_enable`: peers can reach it, in all three index spaces; a disabled one moves on by one generation.

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
        """By its owner: messages of peers get DISABLED. Raises FI_EOPBADSTATE unless it is enabled."""
        self._expect("disable", EpState.ENABLED)
        for space in Space:
            self.domain.process.spaces[space][self.resource_index].disable()
        self.state = EpState.DISABLED

    def overrun(self) -> None:
        """A completion queue lost an entry (ses.md §13.3)."""
        if self.state is EpState.ENABLED:
            self.disable()

    def close(self) -> None:
        """`fi_close`: packets get BAD_INDEX; what is under way ends without a completion, what waits is not sent.

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

    def _transmit(self, transfer: Transfer, fence: bool) -> None:
        """Hands an operation to the engine, or lets it wait behind a fence. Raises FI_EAGAIN when too many are open."""
        if self._transmits >= self.domain.config.tx_size:
            legal = f"{self.domain.config.tx_size} at a time (tx_size): read the completion queue, then try again"
            raise FiError(Errno.FI_EAGAIN, "endpoint", f"{self._transmits} operations are open", legal)
        assert transfer.peer is not None
        lane = self._lanes.setdefault(transfer.peer, _Lane())
        self._transmits += 1
        if lane.waiting or (fence and lane.open):
            transfer.fenced = fence
            lane.waiting.append(transfer)
            return
        try:
            self._submit(transfer, lane)
        except LocalError as error:
            self._transmits -= 1
            raise FiError(Errno.FI_EINVAL, *error.args) from error

    def _submit(self, transfer: Transfer, lane: _Lane) -> None:
        assert transfer.work is not None
        lane.open += 1
        try:
            self.domain.node.submit(transfer.work)
        except LocalError:
            lane.open -= 1
            raise

    def _release(self, lane: _Lane) -> None:
        """What a fence held back, as far as it may go."""
        while lane.waiting and not (lane.waiting[0].fenced and lane.open) and self.state is not EpState.CLOSED:
            transfer = lane.waiting.popleft()
            try:
                self._submit(transfer, lane)
            except LocalError:  # found only now: it ends as one that failed
                self._transmits -= 1
                self._end(transfer, Record(err=Errno.FI_EINVAL, return_code=ReturnCode.NULL))

    def _post(self, receive: Receive) -> None:
        """Posts a receive. Raises FI_EAGAIN when as many are posted as the queue takes."""
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

    # What the engine told

    def completed(self, transfer: Transfer, event: Completion) -> None:
        """A transmit ended."""
        assert transfer.peer is not None
        lane = self._lanes[transfer.peer]
        lane.open -= 1
        self._transmits -= 1
        if lane.waiting:
            self.domain.node.driver.call_soon(lambda: self._release(lane))
        elif not lane.open:
            del self._lanes[transfer.peer]
        if event.ok:
            self._end(transfer, Record(length=event.length))
        else:
            err = errno_of(event.return_code, self.domain.config.strict_ref_errors)
            if event.error is not None or event.timed_out:
                err = Errno.FI_EIO
            self._end(transfer, Record(length=event.modified, err=err, return_code=event.return_code, pds=event.error))

    def received(self, transfer: Transfer, event: Received | Cancelled) -> None:
        """A posted receive ended, or took one message of several."""
        receive = event.receive
        posted = self._posted[receive.tag is not None]
        if isinstance(event, Cancelled):
            posted.pop(receive, None)
            self._end(transfer, Record(err=Errno.FI_ECANCELED, return_code=ReturnCode.CANCELLED))
            return
        flags = transfer.flags
        if event.spent:
            posted.pop(receive, None)
            flags |= Flag.MULTI_RECV if receive.least else Flag.NONE
        record = Record(
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
        """A peer wrote with completion data."""
        record = Record(
            flags=Flag.RMA | Flag.REMOTE_WRITE | Flag.REMOTE_CQ_DATA, length=event.length, data=event.data,
            source=self.av.source_of(event.source, event.initiator),
        )  # fmt: skip
        if self.rx_cq is not None:
            self.rx_cq.add(record)

    def _end(self, transfer: Transfer, record: Record) -> None:
        """Entry and counters of an operation; a closed endpoint has neither."""
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
