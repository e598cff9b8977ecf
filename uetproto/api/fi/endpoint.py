# SPDX-License-Identifier: GPL-2.0-only
"""This module has endpoints: their states and bindings (ses.md §14.2), and the calls that move data (ses.md §13.5).

These calls are for messages, tagged messages, RMA and atomics. Their arguments come in the order of libfabric, without
lengths, because a buffer knows its length. One call stands for several forms of libfabric: a list of up to `iov_limit`
buffers is gathered or scattered as by the `v` forms (`fi_writev`); `flags` are those of the `msg` forms
(`fi_writemsg`); `data`, 64 bits of completion data, makes the call a `data` form (`fi_writedata`, `fi_senddata`).

`dest` and `src` are a `fi_addr_t` from `av.insert`, or an `Address` that is in the vector. An inject copies the bytes
of its buffer; the buffer of any other call must not change until the operation is complete. A call that raises has
changed nothing. All calls raise

- FI_EOPBADSTATE if the endpoint is not enabled,
- FI_EINVAL for an illegal argument (the text names the argument and its legal values),
- FI_EBADFLAGS for a flag that the call does not know,
- FI_EOPNOTSUPP if the peer's capabilities or the endpoint's type do not include the operation,
- FI_EMSGSIZE for more than `max_msg_size` bytes or, on a datagram endpoint, for more than one payload MTU,
- FI_EAGAIN if `tx_size` operations are open, or `rx_size` receives are posted.

If the peer refuses an operation, the completion queue gets an entry that says so.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from uetproto.api.fi.address import Address
from uetproto.api.fi.av import AddressVector
from uetproto.api.fi.buffers import Buffers, check_registered
from uetproto.api.fi.choices import check_peer_can, mode_of, rma_mode, send_kind
from uetproto.api.fi.cq import CompletionFacts, CompletionQueue, Counter
from uetproto.api.fi.errors import Errno, FiError, FiObject, bits, errno_of, expect, invalid, member, some
from uetproto.api.fi.flags import ADDR_UNSPEC, EpType, FepCap, Flag, MrMode, Order
from uetproto.engine.contract import (
    Atomic,
    Cancelled,
    Completion,
    Mode,
    Read,
    Receive,
    Received,
    RemoteWrite,
    Send,
    SendKind,
    SesWork,
    Write,
)
from uetproto.engine.ses.atomics import check as check_amo
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_ses import (
    COMPARE_AND_SWAPS,
    ELEMENT_SIZE,
    AtomicDatatype,
    AtomicOpcode,
    Opcode,
    ReturnCode,
    Space,
)  # fmt: skip

if TYPE_CHECKING:
    from uetproto.api.fi.domain import Domain

_TRANSMIT = (
    Flag.COMPLETION | Flag.MORE | Flag.FENCE | Flag.INJECT | Flag.INJECT_COMPLETE | Flag.TRANSMIT_COMPLETE
    | Flag.DELIVERY_COMPLETE
)  # fmt: skip
_SEND = _TRANSMIT | Flag.REMOTE_CQ_DATA | Flag.MATCH_COMPLETE
_RMA = _TRANSMIT | Flag.REMOTE_CQ_DATA
_READ = _TRANSMIT & ~(Flag.INJECT | Flag.INJECT_COMPLETE)
_ATOMIC = _TRANSMIT | Flag.TAGGED
_RECEIVE = Flag.COMPLETION | Flag.MORE
_NONE = Flag.NONE
_WRITES, _READS = Flag.WRITE | Flag.RMA, Flag.READ | Flag.RMA
# As numbers, since the operators of an enumeration are functions of Python, which cost as much as an operation.
_COMPLETION, _DELIVERY_COMPLETE, _FENCE = int(Flag.COMPLETION), int(Flag.DELIVERY_COMPLETE), int(Flag.FENCE)
_INJECT, _LOCAL = int(Flag.INJECT), int(MrMode.LOCAL)
OP_FLAGS = _SEND | _RMA | _ATOMIC | _RECEIVE
"""Flags that an endpoint may have for all its operations."""
_NO_OPERAND = (AtomicOpcode.READ, AtomicOpcode.INVAL)

Peer = int | Address

COUNTABLE = Flag.SEND | Flag.RECV | Flag.READ | Flag.WRITE


class EpState(Enum):
    """This enumeration names the states of an endpoint (ses.md §14.2)."""

    NEW = "new"
    BOUND = "bound"
    ENABLED = "enabled"
    DISABLED = "disabled"
    CLOSED = "closed"


# Looked up once: with every operation, Class.MEMBER would cost as much as a call.
_ENABLED, _CLOSED, _DGRAM, _WRITE = EpState.ENABLED, EpState.CLOSED, EpType.DGRAM, Opcode.WRITE
_COUNTED_WRITE, _COUNTED_RECV = Flag.WRITE, Flag.RECV
_END = 1 << 64
"""First address beyond a region."""


@dataclass(slots=True, eq=False)
class FiOperation:
    """This record represents an operation that is not complete; the engine gets it as the context of the operation's
    work request."""

    endpoint: "Endpoint"
    context: Any
    flags: Flag
    """Flags that the entry in the completion queue will have."""
    counted: Flag
    """Kind under which bound counters count the operation: SEND, RECV, READ or WRITE."""
    wanted: bool
    """Whether the completion queue gets an entry if the operation succeeds; a failure always has an entry."""
    peer: "_Peer | None" = None
    fenced: bool = False
    work: SesWork | None = None


_IDLE_PEERS = 256
"""Number of peers up to which an endpoint keeps what it knows of peers without open operations."""


@dataclass(slots=True, eq=False)
class _Peer:
    """This class holds what operations towards one peer have in common, and those that are open, for FI_FENCE."""

    address: Address
    addressed: dict[str, Any]
    """Arguments that every work towards the peer has."""
    most: int
    """Largest number of bytes of a message."""
    open: int = 0
    """Number of operations that were passed to the engine and are not complete."""
    waiting: deque[FiOperation] = field(default_factory=deque)
    """Operations that wait for earlier ones: a fenced operation, and all later ones."""


class Endpoint:
    """This class represents an endpoint (`fid_ep`). `domain.endpoint` makes one; `fabric.endpoint` also binds and
    enables it."""

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
        self._selective = Flag.NONE  # the directions, TRANSMIT and RECV, that are bound with SELECTIVE_COMPLETION
        self._counters: list[tuple[Counter, Flag]] = []
        self._peers: dict[Address, _Peer] = {}
        self._posted: dict[bool, dict[Receive, None]] = {False: {}, True: {}}  # by whether they are tagged
        self._transmits = 0

    # States and bindings

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
        """Return FI_OPT_MIN_MULTI_RECV: a multi-receive buffer is released when fewer than this many bytes are free."""
        return self._min_multi_recv

    @min_multi_recv.setter
    def min_multi_recv(self, value: int) -> None:
        if type(value) is not int or not 1 <= value < 1 << 32:
            raise invalid("min_multi_recv", value, "1 … 0xffffffff bytes", id="out-of-range")
        self._min_multi_recv = value

    @property
    def cq(self) -> CompletionQueue:
        """Return the completion queue that is bound for TRANSMIT. Raises FI_ENOCQ if none is bound."""
        if self.tx_cq is None:
            raise FiError(Errno.FI_ENOCQ, "endpoint", "no completion queue is bound for TRANSMIT", id="not-bound")
        return self.tx_cq

    def bind(self, other: AddressVector | CompletionQueue | Counter, flags: Flag = Flag.TRANSMIT | Flag.RECV) -> None:
        """`fi_ep_bind` binds an address vector, a completion queue or a counter to the endpoint.

        For a queue, `flags` are TRANSMIT, RECV or both, optionally with SELECTIVE_COMPLETION; for a counter they are
        any of SEND, RECV, READ and WRITE. Raises FI_EOPBADSTATE once the endpoint is enabled, FI_EBADFLAGS for other
        flags, FI_EINVAL for a closed object and for a second object for the same purpose, and FI_EDOMAIN for an object
        of another fabric.
        """
        self._expect("bind", EpState.NEW, EpState.BOUND)
        if isinstance(other, FiObject):
            other.check_bindable(self.domain.fabric.driver)
        if isinstance(other, AddressVector):
            if hasattr(self, "av"):
                raise invalid("av", "a second one", "one address vector", id="already-there")
            self.av = other
            other.users += 1
        elif isinstance(other, CompletionQueue):
            self._bind_cq(other, flags)
        elif isinstance(other, Counter):
            flags = some("flags", flags, Flag, COUNTABLE, Errno.FI_EBADFLAGS)
            self._counters.append((other, flags))
            other.users += 1
        else:
            raise invalid("bind", type(other).__name__, "AddressVector, CompletionQueue, Counter", id="wrong-type")
        self.state = EpState.BOUND

    def _bind_cq(self, cq: CompletionQueue, flags: Flag) -> None:
        both = Flag.TRANSMIT | Flag.RECV
        flags = some("flags", flags, Flag, both | Flag.SELECTIVE_COMPLETION, Errno.FI_EBADFLAGS)
        if not flags & both:
            raise invalid(
                "flags", flags, "TRANSMIT, RECV, with SELECTIVE_COMPLETION", Errno.FI_EBADFLAGS, id="unknown-name"
            )
        bound = [flag for flag, cq in ((Flag.TRANSMIT, self.tx_cq), (Flag.RECV, self.rx_cq)) if cq is not None]
        if any(flag in flags for flag in bound):
            raise invalid(
                "cq", "a second one", "one completion queue for TRANSMIT, and one for RECV", id="already-there"
            )
        if Flag.TRANSMIT in flags:
            self.tx_cq = cq
        if Flag.RECV in flags:
            self.rx_cq = cq
        if Flag.SELECTIVE_COMPLETION in flags:
            self._selective |= flags & both
        cq.bind(self)

    def enable(self) -> None:
        """`fi_enable` lets peers reach the endpoint in all three index spaces: messages, tagged messages and RMA.

        An endpoint that was disabled is enabled in a new generation. Raises FI_ENOAV if no address vector is bound,
        FI_ENOCQ unless completion queues are bound for both directions, FI_EOVERRUN if a bound queue has lost an entry,
        and FI_EOPBADSTATE if the endpoint is enabled or closed.
        """
        self._expect("enable", EpState.NEW, EpState.BOUND, EpState.DISABLED)
        if not hasattr(self, "av"):
            raise FiError(Errno.FI_ENOAV, "endpoint", "no address vector is bound", id="not-bound")
        if self.tx_cq is None or self.rx_cq is None:
            raise FiError(
                Errno.FI_ENOCQ, "endpoint", "legal with completion queues for TRANSMIT and for RECV", id="not-bound"
            )
        if self.tx_cq.overrun or self.rx_cq.overrun:
            raise FiError(Errno.FI_EOVERRUN, "endpoint", "its completion queue is in error", id="completions-lost")
        if self.state is EpState.DISABLED:
            for space in Space:
                self.domain.process.spaces[space][self.resource_index].enable()
        else:
            self.domain.process.open(self.resource_index)
        self.state = EpState.ENABLED

    def disable(self) -> None:
        """Disable the endpoint. From now on, messages from peers are refused with DISABLED. Raises FI_EOPBADSTATE if
        the endpoint is not enabled."""
        self._expect("disable", EpState.ENABLED)
        for space in Space:
            self.domain.process.spaces[space][self.resource_index].disable()
        self.state = EpState.DISABLED

    def overrun(self) -> None:
        """Disable the endpoint because a bound completion queue lost an entry (ses.md §13.3)."""
        if self.state is EpState.ENABLED:
            self.disable()

    def close(self) -> None:
        """`fi_close` closes the endpoint: packets for it are refused with BAD_INDEX, and its open operations end
        without a completion.

        Raises FI_EBUSY while a region is bound to the endpoint.
        """
        if self.state is EpState.CLOSED:
            return
        if any(region.endpoint is self for region in self.domain.regions.values()):
            raise FiError(
                Errno.FI_EBUSY, "endpoint", "a region is bound to it", "disable the region first", id="in-use"
            )
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
        expect(f"endpoint.{call}", "it", self.state, *legal)

    def _ready(self, call: str) -> None:
        if self.state is not _ENABLED:
            self._expect(call, _ENABLED)
        if self.domain.fabric.closed:
            raise FiError(Errno.FI_EOPBADSTATE, f"endpoint.{call}", "the fabric is closed", id="closed")

    # Operations under way

    def _transmit(self, transfer: FiOperation, fence: bool) -> None:
        """Pass an operation to the engine, or let it wait behind a fence. Raises FI_EAGAIN when too many are open."""
        if self._transmits >= self.domain.config.tx_size:
            legal = f"{self.domain.config.tx_size} at a time (tx_size): read the completion queue, then try again"
            raise FiError(Errno.FI_EAGAIN, "endpoint", f"{self._transmits} operations are open", legal, id="queue-full")
        peer = transfer.peer
        assert peer is not None
        self._transmits += 1
        if peer.waiting or (fence and peer.open):
            transfer.fenced = fence
            peer.waiting.append(transfer)
            return
        try:
            self._submit(transfer, peer)
        except LocalError as error:
            self._transmits -= 1
            raise FiError(Errno.FI_EINVAL, *error.args, id=error.id) from error

    def _submit(self, transfer: FiOperation, peer: _Peer) -> None:
        assert transfer.work is not None
        peer.open += 1
        try:
            self.domain.node.submit(transfer.work)
        except LocalError:
            peer.open -= 1
            raise

    def _release(self, peer: _Peer) -> None:
        """Pass on the operations that waited behind a fence, up to the next fence."""
        while peer.waiting and not (peer.waiting[0].fenced and peer.open) and self.state is not EpState.CLOSED:
            transfer = peer.waiting.popleft()
            try:
                self._submit(transfer, peer)
            except LocalError:  # the engine refuses the operation, which has failed
                self._transmits -= 1
                self._fail(transfer, Errno.FI_EINVAL, ReturnCode.NULL)

    def _post(self, receive: Receive) -> None:
        """Post a receive. Raises FI_EAGAIN when the queue is full."""
        posted = self._posted[receive.tag is not None]
        if len(posted) >= self.domain.config.rx_size:
            legal = f"{self.domain.config.rx_size} on a queue (rx_size): wait for one to end"
            raise FiError(Errno.FI_EAGAIN, "endpoint", f"{len(posted)} receives are posted", legal, id="queue-full")
        posted[receive] = None
        try:
            self.domain.node.submit(receive)
        except LocalError as error:
            posted.pop(receive, None)
            raise FiError(Errno.FI_EINVAL, *error.args, id=error.id) from error

    # Events of the engine

    def completed(self, transfer: FiOperation, event: Completion) -> None:
        """Complete an operation that sends a request (a send, RMA operation or atomic), with the engine's event."""
        peer = transfer.peer
        assert peer is not None
        peer.open -= 1
        self._transmits -= 1
        if peer.waiting:
            self.domain.node.driver.call_soon(lambda: self._release(peer))
        elif not peer.open and len(self._peers) > _IDLE_PEERS:
            self._peers.pop(peer.address, None)
        facts = CompletionFacts(transfer.context, transfer.flags, event.length)
        if not event.ok:
            facts.length, facts.return_code, facts.pds = event.modified, event.return_code, event.error
            facts.err = errno_of(event.return_code, self.domain.config.strict_ref_errors)
            if event.error is not None or event.timed_out:
                facts.err = Errno.FI_EIO
        self._end(transfer, facts)

    def received(self, transfer: FiOperation, event: Received | Cancelled) -> None:
        """Complete a posted receive, or one message in a multi-receive buffer, with the engine's event."""
        receive = event.receive
        posted = self._posted[receive.tag is not None]
        if isinstance(event, Cancelled):
            posted.pop(receive, None)
            self._fail(transfer, Errno.FI_ECANCELED, ReturnCode.CANCELLED)
            return
        flags = transfer.flags
        if event.spent:
            posted.pop(receive, None)
            flags |= Flag.MULTI_RECV if receive.least else Flag.NONE
        record = CompletionFacts(
            transfer.context, flags, event.length, tag=event.tag,
            source=self.av.source_of(event.source, event.initiator),
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
        """Add an entry to the completion queue for a WRITE with completion data that a peer sent."""
        record = CompletionFacts(
            None, Flag.RMA | Flag.REMOTE_WRITE | Flag.REMOTE_CQ_DATA, event.length, data=event.data,
            source=self.av.source_of(event.source, event.initiator),
        )  # fmt: skip
        if self.rx_cq is not None:
            self.rx_cq.add(record)

    def _fail(self, transfer: FiOperation, err: Errno, code: ReturnCode) -> None:
        self._end(transfer, CompletionFacts(transfer.context, transfer.flags, err=err, return_code=code))

    def _end(self, transfer: FiOperation, record: CompletionFacts) -> None:
        """Add the entry of an operation and count it; a closed endpoint does neither."""
        if self.state is _CLOSED:
            return
        failed = record.err is not None
        for counter, kinds in self._counters:
            if transfer.counted in kinds:
                counter.adderr() if failed else counter.add()
        cq = self.rx_cq if transfer.counted is _COUNTED_RECV else self.tx_cq
        if cq is not None and (failed or transfer.wanted):
            cq.add(record)

    # Messages

    def send(
        self, buf: Any, dest: Peer, *, data: int | None = None, flags: Flag = Flag.NONE, context: Any = None
    ) -> None:
        """`fi_send`, `fi_sendv`, `fi_sendmsg` and, with `data`, `fi_senddata` send a message.

        The opcode is SEND, on ROD if the endpoint is ordered, otherwise on RUD. Long messages may use RENDEZVOUS_SEND
        or DEFERRABLE_SEND instead, as `large_send` of `SesConfig` says. A datagram endpoint uses DATAGRAM_SEND on UUD.
        The completion has the flags SEND | MSG.
        """
        self._send(buf, dest, None, data, flags, context)

    def tsend(
        self, buf: Any, dest: Peer, tag: int, *, data: int | None = None, flags: Flag = Flag.NONE, context: Any = None
    ) -> None:
        """`fi_tsend`, `fi_tsendv`, `fi_tsendmsg` and, with `data`, `fi_tsenddata` send a message as `send` does, but
        with a `tag` of 64 bits and the opcode TAGGED_SEND.

        The completion has the flags SEND | TAGGED.
        """
        self._send(buf, dest, bits("tag", tag, 64), data, flags, context)

    def inject(self, buf: Any, dest: Peer, *, data: int | None = None) -> None:
        """`fi_inject` and, with `data`, `fi_injectdata` send a copy of at most `inject_size` bytes by SEND. The
        completion queue gets an entry only if the operation fails."""
        self._send(buf, dest, None, data, Flag.INJECT, None, silent=True)

    def tinject(self, buf: Any, dest: Peer, tag: int, *, data: int | None = None) -> None:
        """`fi_tinject` and, with `data`, `fi_tinjectdata` send a copy as `inject` does, but with a `tag` of 64 bits and
        the opcode TAGGED_SEND."""
        self._send(buf, dest, bits("tag", tag, 64), data, Flag.INJECT, None, silent=True)

    def _send(
        self, buf: Any, dest: Peer, tag: int | None, data: int | None, flags: Flag, context: Any, silent: bool = False
    ) -> None:
        asked = self._flags("send", flags, _SEND, data)
        source = self._local("buf", buf, asked)
        peer = self._peer(dest)
        address = peer.address
        mode = mode_of(self.type, self.msg_order)
        if tag is not None and mode is Mode.UUD:
            raise self._unsupported("tagged messages")
        self._fits(source, peer)
        kind = send_kind(self.domain.config, mode, address, source.length)
        if asked & _INJECT or (kind is SendKind.RENDEZVOUS and address.absolute is not self.domain.absolute):
            kind = SendKind.PLAIN  # the READ of a rendezvous uses the addressing of the request, absolute or relative
        check_peer_can(_OPCODES[mode is Mode.UUD, kind, tag is not None], address)
        transfer = self._transfer(
            Flag.SEND | (Flag.MSG if tag is None else Flag.TAGGED), Flag.SEND, peer, asked, context, silent
        )
        transfer.work = Send(
            **peer.addressed,
            mode=mode,
            delivery_complete=asked & _DELIVERY_COMPLETE != 0,
            context=transfer,
            data=source.copied() if asked & _INJECT else source.whole,
            tag=tag,
            completion_data=data,
            kind=kind,
            local_pid=self.domain.pid_on_fep,
            local_index=self.resource_index,
        )
        self._transmit(transfer, asked & _FENCE != 0)

    # Receives

    def recv(self, buf: Any, src: Peer = ADDR_UNSPEC, *, flags: Flag = Flag.NONE, context: Any = None) -> None:
        """`fi_recv`, `fi_recvv` and `fi_recvmsg` post a writable buffer for one message.

        `src` is the only peer whose message the buffer takes (FI_DIRECTED_RECV); ADDR_UNSPEC stands for any peer. With
        `Flag.MULTI_RECV` the buffer takes messages one behind the other until less than `min_multi_recv` bytes are
        left. The completion has the flags RECV | MSG; if the message is longer than the buffer, the entry has the error
        FI_ETRUNC.
        """
        self._ready("recv")
        self._receive(buf, src, None, 0, flags, _RECEIVE | Flag.MULTI_RECV, context)

    def trecv(
        self, buf: Any, src: Peer, tag: int, ignore: int = 0, *, flags: Flag = Flag.NONE, context: Any = None
    ) -> None:
        """`fi_trecv` posts a buffer for one message with the tag `tag`; the bits that are set in `ignore` need not
        match. `tag` and `ignore` have 64 bits.

        An `ignore` other than 0 needs the profile HPC at this endpoint. `src` is the only peer whose message the buffer
        takes, or ADDR_UNSPEC for any peer. The completion has the flags RECV | TAGGED.
        """
        self._ready("recv")
        bits("tag", tag, 64)
        if bits("ignore", ignore, 64) and FepCap.HPC not in self.domain.caps:
            raise invalid("ignore", f"{ignore:#x}", "0: wildcards need the profile hpc", id="not-with-mode")
        self._receive(buf, src, tag, ignore, flags, _RECEIVE, context)

    def _receive(
        self, buf: Any, src: Peer, tag: int | None, ignore: int, flags: Flag, legal_flags: Flag, context: Any
    ) -> None:
        flags = member("flags", flags, Flag, legal_flags, Errno.FI_EBADFLAGS)
        into = self._local("buf", buf, 0, writable=True)
        least = 0
        if flags & Flag.MULTI_RECV:
            if len(into.views) != 1 or into.length < self.min_multi_recv:
                legal = f"one buffer of {self.min_multi_recv} bytes and more (min_multi_recv)"
                raise invalid("buf", f"{len(into.views)} buffers, {into.length} bytes", legal, id="wrong-count")
            least = self.min_multi_recv
        source = None
        if src != ADDR_UNSPEC:
            source = self.av.lookup(src, "src").initiator_id
            if source is None:
                raise invalid("src", str(src), "a peer whose initiator id is known, or ADDR_UNSPEC", id="wrong-address")
        kind = Flag.MSG if tag is None else Flag.TAGGED
        transfer = self._transfer(Flag.RECV | kind, Flag.RECV, None, int(flags), context)
        domain = self.domain
        receive = Receive(
            into=into.whole,
            length=into.length,
            tag=tag,
            ignore=ignore,
            source=source,
            job_id=None if domain.absolute else domain.job.job_id,
            pid_on_fep=domain.pid_on_fep,
            resource_index=self.resource_index,
            least=least,
            context=transfer,
        )
        self._post(receive)

    def cancel(self, context: Any) -> bool:
        """`fi_cancel` withdraws the oldest posted receive with this `context`, which ends with FI_ECANCELED.

        Return False if a message has matched the receive already. Raises FI_ENOENT if no such receive is posted. Sends,
        RMA operations and atomics cannot be cancelled.
        """
        self._expect("cancel", EpState.ENABLED, EpState.DISABLED)
        for receive in [*self._posted[False], *self._posted[True]]:
            if _same(receive.context.context, context):
                return self.domain.node.cancel(receive)
        raise invalid("context", context, "that of a posted receive", Errno.FI_ENOENT, id="not-registered")

    # RMA

    def write(
        self, buf: Any, dest: Peer, addr: int, key: int, *, data: int | None = None, flags: Flag = Flag.NONE,
        context: Any = None,
    ) -> None:  # fmt: skip
        """`fi_write`, `fi_writev`, `fi_writemsg` and, with `data`, `fi_writedata` write to a memory region of the peer.

        `addr` is the address in the region. The first byte of the region has the address 0 or, with FI_MR_VIRT_ADDR,
        the region's base address. `key` has 64 bits. The opcode is WRITE. An ordered endpoint uses ROD. Any other
        endpoint uses RUDI if the key is IDEMPOTENT_SAFE, the peer has the profile HPC and `data` is None, and otherwise
        RUD. The completion has the flags WRITE | RMA; the peer gets a completion only if `data` is given.
        """
        self._write(buf, dest, addr, key, data, flags, context)

    def inject_write(self, buf: Any, dest: Peer, addr: int, key: int, *, data: int | None = None) -> None:
        """`fi_inject_write` and, with `data`, `fi_inject_writedata` write a copy of at most `inject_size` bytes, as
        `write` does.

        The completion queue gets an entry only if the operation fails.
        """
        self._write(buf, dest, addr, key, data, Flag.INJECT, None, silent=True)

    def _write(
        self, buf: Any, dest: Peer, addr: int, key: int, data: int | None, flags: Flag, context: Any,
        silent: bool = False,
    ) -> None:  # fmt: skip
        asked = self._flags("write", flags, _RMA, data)
        source = self._local("buf", buf, asked)
        peer = self._remote(dest, addr, key, source)
        check_peer_can(_WRITE, peer.address)
        transfer = self._transfer(_WRITES, _COUNTED_WRITE, peer, asked, context, silent)
        to = peer.addressed
        transfer.work = Write(  # each by its name, as the call takes twice as long with **
            peer=to["peer"],
            job_id=to["job_id"],
            pid_on_fep=to["pid_on_fep"],
            resource_index=to["resource_index"],
            initiator=to["initiator"],
            relative=to["relative"],
            mode=rma_mode(self.msg_order, peer.address, key, data is not None),
            delivery_complete=asked & _DELIVERY_COMPLETE != 0,
            context=transfer,
            data=source.copied() if asked & _INJECT else source.whole,
            key=key,
            offset=addr,
            completion_data=data,
        )
        self._transmit(transfer, asked & _FENCE != 0)

    def read(self, buf: Any, src: Peer, addr: int, key: int, *, flags: Flag = Flag.NONE, context: Any = None) -> None:
        """`fi_read`, `fi_readv` and `fi_readmsg` read as many bytes as the writable `buf` holds from a memory region of
        the peer.

        The opcode is READ, on RUD, ROD or RUDI as for `write`. The completion comes when all bytes are in `buf`, and
        has the flags READ | RMA.
        """
        asked = self._flags("read", flags, _READ, None)
        into = self._local("buf", buf, asked, writable=True)
        peer = self._remote(src, addr, key, into, "src")
        check_peer_can(Opcode.READ, peer.address)
        transfer = self._transfer(_READS, Flag.READ, peer, asked, context)
        transfer.work = Read(
            **peer.addressed,
            mode=rma_mode(self.msg_order, peer.address, key, False),
            delivery_complete=asked & _DELIVERY_COMPLETE != 0,
            context=transfer,
            into=into.whole,
            length=into.length,
            key=key,
            offset=addr,
        )
        self._transmit(transfer, asked & _FENCE != 0)

    # Atomics

    def atomic(
        self, buf: Any, dest: Peer, addr: int, key: int, datatype: AtomicDatatype, op: AtomicOpcode, *,
        flags: Flag = Flag.NONE, context: Any = None,
    ) -> None:  # fmt: skip
        """`fi_atomic` and `fi_atomicv` apply the operation `op` with the elements of `buf`, which are in host byte
        order, to elements in a memory region of the peer.

        The opcode is ATOMIC, on RUD or ROD. Raises FI_EINVAL for more elements than a packet holds, and FI_EOPNOTSUPP
        for an operation that the datatype does not have. The completion has the flags WRITE | ATOMIC.
        """
        self.atomicmsg(buf, dest, addr, key, datatype, op, flags=flags, context=context)

    def inject_atomic(
        self, buf: Any, dest: Peer, addr: int, key: int, datatype: AtomicDatatype, op: AtomicOpcode
    ) -> None:
        """`fi_inject_atomic` does the same as `atomic` with a copy of `buf`, which has at most `inject_size` bytes.

        The completion queue gets an entry only if the operation fails.
        """
        self._atomic(buf, None, None, dest, addr, key, datatype, op, Flag.INJECT, None, silent=True)

    def fetch_atomic(
        self, buf: Any, result: Any, dest: Peer, addr: int, key: int, datatype: AtomicDatatype, op: AtomicOpcode, *,
        flags: Flag = Flag.NONE, context: Any = None,
    ) -> None:  # fmt: skip
        """`fi_fetch_atomic` applies the operation `op` to one element of the peer, and stores the old value of the
        element in the writable `result`. `Op.READ` does not use `buf`.

        The opcode is FETCHING_ATOMIC, on RUD or ROD. The completion has the flags READ | ATOMIC. Raises the errors of
        `atomic`.
        """
        self._needed(result=result)
        self.atomicmsg(buf, dest, addr, key, datatype, op, result=result, flags=flags, context=context)

    def compare_atomic(
        self, buf: Any, compare: Any, result: Any, dest: Peer, addr: int, key: int, datatype: AtomicDatatype,
        op: AtomicOpcode, *, flags: Flag = Flag.NONE, context: Any = None,
    ) -> None:  # fmt: skip
        """`fi_compare_atomic` does a compare-and-swap (CSWAP…) or MSWAP on one element of the peer, and stores the old
        value in the writable `result`. `compare` is the value to compare with or, for MSWAP, the mask.

        The opcode is FETCHING_ATOMIC with the compare-and-swap extension, on RUD or ROD. The completion has the flags
        READ | ATOMIC. Raises the errors of `atomic`.
        """
        self._needed(compare=compare, result=result)
        self.atomicmsg(buf, dest, addr, key, datatype, op, compare=compare, result=result, flags=flags, context=context)

    def atomicmsg(
        self, buf: Any, dest: Peer, addr: int, key: int, datatype: AtomicDatatype, op: AtomicOpcode, *,
        compare: Any = None, result: Any = None, flags: Flag = Flag.NONE, context: Any = None,
    ) -> None:  # fmt: skip
        """`fi_atomicmsg` does an atomic operation. If `result` alone is given, the call acts as `fi_fetch_atomicmsg`.
        If `result` and `compare` are given, it acts as `fi_compare_atomicmsg`.

        With `Flag.TAGGED` the opcode is TSEND_ATOMIC or TSEND_FETCH_ATOMIC, and the operation works on the buffer of a
        tagged receive that the peer has posted. Then `key` is the tag of the receive, and `addr` is the offset in the
        buffer of the receive. The peer needs the profile HPC, and the completion has the flag TAGGED, too.
        """
        self._atomic(buf, compare, result, dest, addr, key, datatype, op, flags, context)

    def _atomic(
        self, buf: Any, compare: Any, result: Any, dest: Peer, addr: int, key: int, datatype: int, op: int,
        flags: Flag, context: Any, silent: bool = False,
    ) -> None:  # fmt: skip
        asked = self._flags("atomic", flags, _ATOMIC, None)
        tagged = bool(asked & Flag.TAGGED)
        size = _element(op, datatype, compare is not None, result is not None)
        operand = self._local("buf", b"" if op in _NO_OPERAND else buf, asked)
        if op not in _NO_OPERAND:
            _elements(operand, size, size if result is not None else self.domain.config.payload_mtu)
        parts = {}
        for name, part in (("compare", compare), ("result", result)):
            if part is not None:
                parts[name] = self._local(name, part, 0, writable=name == "result")
                _elements(parts[name], size, size, name)
        peer = self._remote(dest, addr, key, operand)
        opcode = _ATOMICS[tagged, result is not None]
        check_peer_can(opcode, peer.address)
        counted = Flag.READ if result is not None else Flag.WRITE
        told = counted | Flag.ATOMIC | (Flag.TAGGED if tagged else Flag.NONE)
        transfer = self._transfer(told, counted, peer, asked, context, silent)
        transfer.work = Atomic(
            **peer.addressed,
            mode=mode_of(self.type, self.msg_order),
            delivery_complete=asked & _DELIVERY_COMPLETE != 0,
            context=transfer,
            opcode=op,
            datatype=datatype,
            data=operand.copied() if len(operand.views) > 1 or asked & _INJECT else operand.whole,
            compare=parts["compare"].copied() if "compare" in parts else None,
            result=parts["result"].whole if "result" in parts else None,
            key=0 if tagged else key,
            offset=addr,
            tag=key if tagged else None,
        )
        self._transmit(transfer, asked & _FENCE != 0)

    # Checks that calls share

    def _flags(self, call: str, flags: Flag, legal: Flag, data: int | None) -> int:
        """Check the state and `data`, and return the flags of an operation, with those of the endpoint, as a number."""
        self._ready(call)
        if flags is not _NONE:
            flags = member("flags", flags, Flag, legal, Errno.FI_EBADFLAGS)
        if data is not None:
            bits("data", data, 64)
        elif flags is not _NONE and flags & Flag.REMOTE_CQ_DATA:
            raise invalid("flags", "REMOTE_CQ_DATA without data", "data=…", id="missing-argument")
        if self.op_flags is not _NONE:
            flags |= self.op_flags & legal
        if self.type is _DGRAM and flags & (Flag.DELIVERY_COMPLETE | Flag.MATCH_COMPLETE):
            raise self._unsupported("completion levels that need an answer")
        return int(flags)

    def _needed(self, **buffers: Any) -> None:
        for name, buffer in buffers.items():
            if buffer is None:
                raise invalid(name, None, "a buffer of one element", id="missing-argument")

    def _unsupported(self, what: str) -> Exception:
        return invalid(
            "endpoint", f"{self.type.name}: {what}", "an endpoint of the type RDM", Errno.FI_EOPNOTSUPP,
            id="not-with-mode"
        )  # fmt: skip

    def _local(self, name: str, buf: Any, flags: int, writable: bool = False) -> Buffers:
        config = self.domain.config
        buffers = Buffers(name, buf, config.iov_limit, writable)
        if flags & _INJECT:
            if buffers.length > config.inject_size:
                raise invalid(
                    name, f"{buffers.length} bytes", f"at most {config.inject_size} (inject_size)", id="wrong-length"
                )
        elif int(self.domain.mr_mode) & _LOCAL:
            check_registered(name, buffers, (region.owner for region in self.domain.regions.values()))
        return buffers

    def _peer(self, dest: Peer, name: str = "dest") -> _Peer:
        """Return the peer with a handle or an address of the vector."""
        address = self.av.lookup(dest, name)
        return self._peers.get(address) or self._new_peer(address, name)

    def _new_peer(self, address: Address, name: str) -> _Peer:
        domain = self.domain
        if address.fa == domain.node.fep.address and not domain.node.shares_address:
            raise invalid(name, str(address), "an endpoint of another node (there is no loop-back)", id="same-node")
        addressed = {
            "peer": address.fa,
            "job_id": domain.job.job_id,
            "pid_on_fep": address.pid_on_fep or 0,
            "resource_index": 15 if address.start_index is None else address.start_index,
            "initiator": self.initiator_id,
            "relative": not address.absolute,
        }
        one_packet = address.mtu_limited or self.type is EpType.DGRAM
        most = domain.config.payload_mtu if one_packet else domain.config.max_msg_size
        peer = self._peers[address] = _Peer(address, addressed, most)
        return peer

    def _fits(self, local: Buffers, peer: _Peer) -> None:
        if local.length > peer.most:
            raise invalid("buf", f"{local.length} bytes", f"at most {peer.most}", Errno.FI_EMSGSIZE, id="wrong-length")

    def _remote(self, dest: Peer, addr: int, key: int, local: Buffers, name: str = "dest") -> _Peer:
        """Return the peer of an RMA or atomic operation, after checks of address, key and length."""
        if not (type(addr) is type(key) is int) or (addr | key) >> 64:
            bits("addr", addr, 64)
            bits("key", key, 64)
        peer = self._peer(dest, name)
        if self.type is _DGRAM:
            raise self._unsupported("RMA and atomics")
        self._fits(local, peer)
        if addr + local.length > _END:
            raise invalid(
                "addr", f"{addr:#x} and {local.length} bytes", "what ends within 64 bits", id="inconsistent-values"
            )
        return peer

    def _transfer(
        self, told: Flag, counted: Flag, peer: _Peer | None, flags: int, context: Any, silent: bool = False
    ) -> FiOperation:
        wanted = not silent
        if wanted and self._selective is not _NONE:
            direction = Flag.RECV if counted is Flag.RECV else Flag.TRANSMIT
            wanted = direction not in self._selective or bool(flags & _COMPLETION)
        return FiOperation(self, context, told, counted, wanted, peer)


_OPCODES: dict[tuple[bool, SendKind, bool], Opcode] = {  # UUD, kind, tagged
    (True, SendKind.PLAIN, False): Opcode.DATAGRAM_SEND,
    (False, SendKind.PLAIN, False): Opcode.SEND,
    (False, SendKind.PLAIN, True): Opcode.TAGGED_SEND,
    (False, SendKind.RENDEZVOUS, False): Opcode.RENDEZVOUS_SEND,
    (False, SendKind.RENDEZVOUS, True): Opcode.RENDEZVOUS_TSEND,
    (False, SendKind.DEFERRABLE, False): Opcode.DEFERRABLE_SEND,
    (False, SendKind.DEFERRABLE, True): Opcode.DEFERRABLE_TSEND,
}
_ATOMICS: dict[tuple[bool, bool], Opcode] = {  # tagged, fetching
    (False, False): Opcode.ATOMIC,
    (False, True): Opcode.FETCHING_ATOMIC,
    (True, False): Opcode.TSEND_ATOMIC,
    (True, True): Opcode.TSEND_FETCH_ATOMIC,
}


def _element(op: int, datatype: int, compares: bool, fetches: bool) -> int:
    """Return the bytes of an element. Raises FI_EOPNOTSUPP, and FI_EINVAL for an operation of another call."""
    if not (_is_code(op) and _is_code(datatype)) or check_amo(op, datatype) is not None:
        legal = "a pair of ses.md §6.1: an AtomicOpcode and a datatype that it works on"
        raise invalid(
            "op", f"{_name(AtomicOpcode, op)} on {_name(AtomicDatatype, datatype)}", legal, Errno.FI_EOPNOTSUPP,
            id="unsupported-atomic"
        )  # fmt: skip
    if compares is not (op in COMPARE_AND_SWAPS) or (compares and not fetches):
        legal = "CSWAP*, MSWAP with compare and result; all others without compare"
        raise invalid("op", _name(AtomicOpcode, op), legal, id="unsupported-atomic")
    if op == AtomicOpcode.READ and not fetches:
        raise invalid("op", "READ", "with a result only: fetch_atomic", id="not-with-operation")
    return ELEMENT_SIZE[AtomicDatatype(datatype)]


def _is_code(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _same(posted: Any, context: Any) -> bool:
    """Return whether two contexts are equal; contexts that cannot be compared are equal only if they are one object."""
    try:
        return posted is context or bool(posted == context)
    except (TypeError, ValueError):
        return False


def _name(kind: type[AtomicOpcode] | type[AtomicDatatype], code: int) -> str:
    return kind(code).name if _is_code(code) and code in kind.__members__.values() else repr(code)


def _elements(buffers: Buffers, size: int, most: int, name: str = "buf") -> None:
    """Raise FI_EINVAL unless the buffers hold whole elements of `size` bytes, one at least, `most` bytes at most."""
    if buffers.length % size or not size <= buffers.length <= most:
        legal = f"one element, {size} bytes" if most == size else f"elements of {size} bytes, {most} bytes at most"
        raise invalid(name, f"{buffers.length} bytes", legal, id="wrong-length")
