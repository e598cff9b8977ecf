"""The calls of an endpoint that move data: messages, tagged messages, RMA, atomics (ses.md §13.5).

Arguments come in the order of libfabric, without lengths: a buffer has its own. A list of buffers is gathered or
scattered, up to `iov_limit` of them, which is what the `v` forms do (`fi_writev`); `flags` is what the `msg` forms take
(`fi_writemsg`); `data` makes the `data` forms (`fi_writedata`, `fi_senddata`), 64 bits of completion data.

`dest`, `src`: a `fi_addr_t` from `av.insert`, or an `Address` that is in the vector. Bytes are not copied: a buffer
must not change until its completion; an inject copies. A call that raises has changed nothing. All calls raise

- FI_EOPBADSTATE when the endpoint is not enabled, FI_EINVAL for an argument (the text names it and what is legal),
  FI_EBADFLAGS for a flag that the call does not know,
- FI_EOPNOTSUPP when the peer's capabilities lack the operation, or the endpoint's type does,
- FI_EMSGSIZE above `max_msg_size`, on a datagram endpoint above one payload MTU,
- FI_EAGAIN when `tx_size` operations are open, `rx_size` receives posted.

A refusal by the peer comes as an entry of the completion queue.
"""

from typing import Any

from uetproto.api.fi.address import Address
from uetproto.api.fi.buffers import Buffers, check_registered
from uetproto.api.fi.choices import check_peer_can, mode_of, rma_mode, send_kind
from uetproto.api.fi.endpoint import EndpointBase, EpState, FiOperation
from uetproto.api.fi.errors import Errno, bits, invalid, member
from uetproto.api.fi.flags import ADDR_UNSPEC, EpType, FepCap, Flag, MrMode
from uetproto.engine.contract import Atomic, Mode, Read, Receive, Send, SendKind, Write
from uetproto.engine.ses.atomics import ELEMENT_SIZE
from uetproto.engine.ses.atomics import check as check_amo
from uetproto.wire.headers.uet_ses import COMPARE_AND_SWAPS, AtomicDatatype, AtomicOpcode, Opcode

_TRANSMIT = (
    Flag.COMPLETION | Flag.MORE | Flag.FENCE | Flag.INJECT | Flag.INJECT_COMPLETE | Flag.TRANSMIT_COMPLETE
    | Flag.DELIVERY_COMPLETE
)  # fmt: skip
_SEND = _TRANSMIT | Flag.REMOTE_CQ_DATA | Flag.MATCH_COMPLETE
_RMA = _TRANSMIT | Flag.REMOTE_CQ_DATA
_ATOMIC = _TRANSMIT | Flag.TAGGED
_RECEIVE = Flag.COMPLETION | Flag.MORE
OP_FLAGS = _SEND | _RMA | _ATOMIC | _RECEIVE
"""Flags that an endpoint may have for all its operations."""
_NO_OPERAND = (AtomicOpcode.READ, AtomicOpcode.INVAL)

Peer = int | Address


class Endpoint(EndpointBase):
    """An endpoint (`fid_ep`). `domain.endpoint(...)` or, bound and enabled, `fabric.endpoint(...)` makes it."""

    # Messages

    def send(
        self, buf: Any, dest: Peer, *, data: int | None = None, flags: Flag = Flag.NONE, context: Any = None
    ) -> None:
        """`fi_send`, `fi_sendv`, `fi_sendmsg` and, with `data`, `fi_senddata` send a message.

        SEND on RUD, on ROD if ordered; from a threshold on RENDEZVOUS_SEND or DEFERRABLE_SEND, see `large_send` of
        `SesConfig`. A datagram endpoint: DATAGRAM_SEND on UUD. Completion: SEND | MSG.
        """
        self._send(buf, dest, None, data, flags, context)

    def tsend(
        self, buf: Any, dest: Peer, tag: int, *, data: int | None = None, flags: Flag = Flag.NONE, context: Any = None
    ) -> None:
        """`fi_tsend` and its forms send as `send`, with a `tag` of 64 bits: TAGGED_SEND. Completion: SEND | TAGGED."""
        self._send(buf, dest, bits("tag", tag, 64), data, flags, context)

    def inject(self, buf: Any, dest: Peer, *, data: int | None = None) -> None:
        """`fi_inject`, `fi_injectdata` send a copy of up to `inject_size` bytes: SEND. Only a failure has an entry."""
        self._send(buf, dest, None, data, Flag.INJECT, None, silent=True)

    def tinject(self, buf: Any, dest: Peer, tag: int, *, data: int | None = None) -> None:
        """`fi_tinject`, `fi_tinjectdata` send as `inject`, with a tag: TAGGED_SEND."""
        self._send(buf, dest, bits("tag", tag, 64), data, Flag.INJECT, None, silent=True)

    def _send(
        self, buf: Any, dest: Peer, tag: int | None, data: int | None, flags: Flag, context: Any, silent: bool = False
    ) -> None:
        flags = self._flags("send", flags, _SEND, data)
        source = self._local("buf", buf, flags)
        peer = self._peer(dest)
        mode = mode_of(self.type, self.msg_order)
        if tag is not None and mode is Mode.UUD:
            raise self._unsupported("tagged messages")
        self._fits(source, peer)
        config = self.domain.config
        kind = send_kind(config, mode, peer, source.length)
        if flags & Flag.INJECT or (kind is SendKind.RENDEZVOUS and peer.absolute is not self.domain.absolute):
            kind = SendKind.PLAIN  # a target reads with the addressing of the request: it must hold for this end, too
        check_peer_can(_OPCODES[mode is Mode.UUD, kind, tag is not None], peer)
        transfer = self._transfer(
            Flag.SEND | (Flag.MSG if tag is None else Flag.TAGGED), Flag.SEND, peer, flags, context, silent
        )
        transfer.work = Send(
            **self._addressed(peer, mode, flags, transfer),
            data=source.copied() if flags & Flag.INJECT else source.whole,
            tag=tag,
            completion_data=data,
            kind=kind,
            local_pid=self.domain.pid_on_fep,
            local_index=self.resource_index,
        )
        self._transmit(transfer, bool(flags & Flag.FENCE))

    # Receives

    def recv(self, buf: Any, src: Peer = ADDR_UNSPEC, *, flags: Flag = Flag.NONE, context: Any = None) -> None:
        """`fi_recv`, `fi_recvv`, `fi_recvmsg` post a writable buffer for one message.

        `src`: only of this peer (FI_DIRECTED_RECV). `Flag.MULTI_RECV`: the buffer takes messages one behind the other
        until less than `min_multi_recv` bytes are left. Completion: RECV | MSG; a message that was too long ends in an
        entry with FI_ETRUNC.
        """
        self._ready("recv")
        self._receive(buf, src, None, 0, flags, _RECEIVE | Flag.MULTI_RECV, context)

    def trecv(
        self, buf: Any, src: Peer, tag: int, ignore: int = 0, *, flags: Flag = Flag.NONE, context: Any = None
    ) -> None:
        """`fi_trecv` posts a buffer for a message with this `tag`; bits of `ignore` need not match (64 bits each).

        A mask needs the profile HPC here. `src`: ADDR_UNSPEC for any. Completion: RECV | TAGGED.
        """
        self._ready("recv")
        bits("tag", tag, 64)
        if bits("ignore", ignore, 64) and FepCap.HPC not in self.domain.caps:
            raise invalid("ignore", f"{ignore:#x}", "0: wildcards need the profile hpc")
        self._receive(buf, src, tag, ignore, flags, _RECEIVE, context)

    def _receive(
        self, buf: Any, src: Peer, tag: int | None, ignore: int, flags: Flag, legal_flags: Flag, context: Any
    ) -> None:
        flags = member("flags", flags, Flag, legal_flags, Errno.FI_EBADFLAGS)
        into = self._local("buf", buf, Flag.NONE, writable=True)
        least = 0
        if flags & Flag.MULTI_RECV:
            if len(into.views) != 1 or into.length < self.min_multi_recv:
                legal = f"one buffer of {self.min_multi_recv} bytes and more (min_multi_recv)"
                raise invalid("buf", f"{len(into.views)} buffers, {into.length} bytes", legal)
            least = self.min_multi_recv
        source = None
        if src != ADDR_UNSPEC:
            source = self.av.lookup(src, "src").initiator_id
            if source is None:
                raise invalid("src", str(src), "a peer whose initiator id is known, or ADDR_UNSPEC")
        kind = Flag.MSG if tag is None else Flag.TAGGED
        transfer = self._transfer(Flag.RECV | kind, Flag.RECV, None, flags, context)
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
        """`fi_cancel` withdraws the oldest receive posted with this `context`; its entry has FI_ECANCELED.

        Return False if a message has matched it already. Raises FI_ENOENT when none is posted; transmits
        cannot be cancelled.
        """
        self._expect("cancel", EpState.ENABLED, EpState.DISABLED)
        for receive in [*self._posted[False], *self._posted[True]]:
            if _same(receive.context.context, context):
                return self.domain.node.cancel(receive)
        raise invalid("context", context, "that of a posted receive", Errno.FI_ENOENT)

    # RMA

    def write(
        self, buf: Any, dest: Peer, addr: int, key: int, *, data: int | None = None, flags: Flag = Flag.NONE,
        context: Any = None,
    ) -> None:  # fmt: skip
        """`fi_write`, `fi_writev`, `fi_writemsg` and, with `data`, `fi_writedata` write to a region of the peer.

        `addr`: where in the region, from 0, or from its base with FI_MR_VIRT_ADDR; `key`: 64 bits. WRITE on RUD, on ROD
        if ordered; on RUDI if the key is IDEMPOTENT_SAFE, the peer has HPC, nothing is ordered and there is no `data`.
        Completion: WRITE | RMA; at the peer one only with `data`.
        """
        self._write(buf, dest, addr, key, data, flags, context)

    def inject_write(self, buf: Any, dest: Peer, addr: int, key: int, *, data: int | None = None) -> None:
        """`fi_inject_write`, `fi_inject_writedata` write a copy of at most `inject_size` bytes: WRITE, as `write`.

        Only a failure has an entry.
        """
        self._write(buf, dest, addr, key, data, Flag.INJECT, None, silent=True)

    def _write(
        self, buf: Any, dest: Peer, addr: int, key: int, data: int | None, flags: Flag, context: Any,
        silent: bool = False,
    ) -> None:  # fmt: skip
        flags = self._flags("write", flags, _RMA, data)
        source = self._local("buf", buf, flags)
        peer = self._remote(dest, addr, key, source)
        check_peer_can(Opcode.WRITE, peer)
        transfer = self._transfer(Flag.WRITE | Flag.RMA, Flag.WRITE, peer, flags, context, silent)
        transfer.work = Write(
            **self._addressed(peer, rma_mode(self.msg_order, peer, key, data is not None), flags, transfer),
            data=source.copied() if flags & Flag.INJECT else source.whole,
            key=key,
            offset=addr,
            completion_data=data,
        )
        self._transmit(transfer, bool(flags & Flag.FENCE))

    def read(self, buf: Any, src: Peer, addr: int, key: int, *, flags: Flag = Flag.NONE, context: Any = None) -> None:
        """`fi_read`, `fi_readv`, `fi_readmsg` read from a region of the peer as many bytes as writable `buf` holds.

        READ on RUD, ROD, RUDI as `write`. Completion, when the data is there: READ | RMA.
        """
        flags = self._flags("read", flags, _TRANSMIT & ~(Flag.INJECT | Flag.INJECT_COMPLETE), None)
        into = self._local("buf", buf, flags, writable=True)
        peer = self._remote(src, addr, key, into, "src")
        check_peer_can(Opcode.READ, peer)
        transfer = self._transfer(Flag.READ | Flag.RMA, Flag.READ, peer, flags, context)
        transfer.work = Read(
            **self._addressed(peer, rma_mode(self.msg_order, peer, key, False), flags, transfer),
            into=into.whole,
            length=into.length,
            key=key,
            offset=addr,
        )
        self._transmit(transfer, bool(flags & Flag.FENCE))

    # Atomics

    def atomic(
        self, buf: Any, dest: Peer, addr: int, key: int, datatype: AtomicDatatype, op: AtomicOpcode, *,
        flags: Flag = Flag.NONE, context: Any = None,
    ) -> None:  # fmt: skip
        """`fi_atomic`, `fi_atomicv` apply elements of `buf`, in host order, to elements at the peer.

        ATOMIC on RUD, ROD. Raises FI_EINVAL for more elements than a packet holds, FI_EOPNOTSUPP for an operation that
        the datatype does not have. Completion: WRITE | ATOMIC.
        """
        self.atomicmsg(buf, dest, addr, key, datatype, op, flags=flags, context=context)

    def inject_atomic(
        self, buf: Any, dest: Peer, addr: int, key: int, datatype: AtomicDatatype, op: AtomicOpcode
    ) -> None:
        """`fi_inject_atomic` applies a copy of at most `inject_size` bytes: ATOMIC. Only a failure has an entry."""
        self._atomic(buf, None, None, dest, addr, key, datatype, op, Flag.INJECT, None, silent=True)

    def fetch_atomic(
        self, buf: Any, result: Any, dest: Peer, addr: int, key: int, datatype: AtomicDatatype, op: AtomicOpcode, *,
        flags: Flag = Flag.NONE, context: Any = None,
    ) -> None:  # fmt: skip
        """`fi_fetch_atomic` applies one element; writable `result` gets the value before. READ does not use `buf`.

        FETCHING_ATOMIC on RUD, ROD. Completion: READ | ATOMIC. Raises as `atomic`.
        """
        self._needed(result=result)
        self.atomicmsg(buf, dest, addr, key, datatype, op, result=result, flags=flags, context=context)

    def compare_atomic(
        self, buf: Any, compare: Any, result: Any, dest: Peer, addr: int, key: int, datatype: AtomicDatatype,
        op: AtomicOpcode, *, flags: Flag = Flag.NONE, context: Any = None,
    ) -> None:  # fmt: skip
        """`fi_compare_atomic` does CSWAP* and MSWAP of one element; `compare` is the value to compare, or the mask.

        FETCHING_ATOMIC with the compare-and-swap extension on RUD, ROD. Completion: READ | ATOMIC. Raises as `atomic`.
        """
        self._needed(compare=compare, result=result)
        self.atomicmsg(buf, dest, addr, key, datatype, op, compare=compare, result=result, flags=flags, context=context)

    def atomicmsg(
        self, buf: Any, dest: Peer, addr: int, key: int, datatype: AtomicDatatype, op: AtomicOpcode, *,
        compare: Any = None, result: Any = None, flags: Flag = Flag.NONE, context: Any = None,
    ) -> None:  # fmt: skip
        """`fi_atomicmsg` is, with `result`, `fi_fetch_atomicmsg`, and with `compare` too `fi_compare_atomicmsg`.

        `Flag.TAGGED`: TSEND_ATOMIC, TSEND_FETCH_ATOMIC; the operation works on a posted tagged receive of the peer,
        `key` is its tag and `addr` the place in it. It needs a peer with HPC. Completion: with TAGGED also.
        """
        self._atomic(buf, compare, result, dest, addr, key, datatype, op, flags, context)

    def _atomic(
        self, buf: Any, compare: Any, result: Any, dest: Peer, addr: int, key: int, datatype: int, op: int,
        flags: Flag, context: Any, silent: bool = False,
    ) -> None:  # fmt: skip
        flags = self._flags("atomic", flags, _ATOMIC, None)
        tagged = bool(flags & Flag.TAGGED)
        size = _element(op, datatype, compare is not None, result is not None)
        operand = self._local("buf", b"" if op in _NO_OPERAND else buf, flags)
        if op not in _NO_OPERAND:
            _elements(operand, size, size if result is not None else self.domain.config.payload_mtu)
        parts = {}
        for name, part in (("compare", compare), ("result", result)):
            if part is not None:
                parts[name] = self._local(name, part, Flag.NONE, writable=name == "result")
                _elements(parts[name], size, size, name)
        peer = self._remote(dest, addr, key, operand)
        opcode = _ATOMICS[tagged, result is not None]
        check_peer_can(opcode, peer)
        counted = Flag.READ if result is not None else Flag.WRITE
        told = counted | Flag.ATOMIC | (Flag.TAGGED if tagged else Flag.NONE)
        transfer = self._transfer(told, counted, peer, flags, context, silent)
        transfer.work = Atomic(
            **self._addressed(peer, mode_of(self.type, self.msg_order), flags, transfer),
            opcode=op,
            datatype=datatype,
            data=operand.copied() if len(operand.views) > 1 or flags & Flag.INJECT else operand.whole,
            compare=parts["compare"].copied() if "compare" in parts else None,
            result=parts["result"].whole if "result" in parts else None,
            key=0 if tagged else key,
            offset=addr,
            tag=key if tagged else None,
        )
        self._transmit(transfer, bool(flags & Flag.FENCE))

    # What all calls check

    def _flags(self, call: str, flags: Flag, legal: Flag, data: int | None) -> Flag:
        """Return the flags of an operation, with those of the endpoint; check the state and `data`, too."""
        self._ready(call)
        flags = member("flags", flags, Flag, legal, Errno.FI_EBADFLAGS)
        if data is not None:
            bits("data", data, 64)
        elif flags & Flag.REMOTE_CQ_DATA:
            raise invalid("flags", "REMOTE_CQ_DATA without data", "data=…")
        flags |= self.op_flags & legal
        if self.type is EpType.DGRAM and flags & (Flag.DELIVERY_COMPLETE | Flag.MATCH_COMPLETE):
            raise self._unsupported("completion levels that need an answer")
        return flags

    def _needed(self, **buffers: Any) -> None:
        for name, buffer in buffers.items():
            if buffer is None:
                raise invalid(name, None, "a buffer of one element")

    def _unsupported(self, what: str) -> Exception:
        return invalid("endpoint", f"{self.type.name}: {what}", "an endpoint of the type RDM", Errno.FI_EOPNOTSUPP)

    def _local(self, name: str, buf: Any, flags: Flag, writable: bool = False) -> Buffers:
        config = self.domain.config
        buffers = Buffers(name, buf, config.iov_limit, writable)
        if flags & Flag.INJECT:
            if buffers.length > config.inject_size:
                raise invalid(name, f"{buffers.length} bytes", f"at most {config.inject_size} (inject_size)")
        elif MrMode.LOCAL in self.domain.mr_mode:
            check_registered(name, buffers, (region.owner for region in self.domain.regions.values()))
        return buffers

    def _peer(self, dest: Peer, name: str = "dest") -> Address:
        peer = self.av.lookup(dest, name)
        if peer.fa == self.domain.node.fep.address:
            raise invalid(name, str(peer), "an endpoint of another node (there is no loop-back)")
        return peer

    def _fits(self, local: Buffers, peer: Address) -> None:
        config = self.domain.config
        most = config.payload_mtu if peer.mtu_limited or self.type is EpType.DGRAM else config.max_msg_size
        if local.length > most:
            raise invalid("buf", f"{local.length} bytes", f"at most {most}", Errno.FI_EMSGSIZE)

    def _remote(self, dest: Peer, addr: int, key: int, local: Buffers, name: str = "dest") -> Address:
        """Return the peer of an RMA or atomic operation, after checks of address, key and length."""
        bits("addr", addr, 64)
        bits("key", key, 64)
        peer = self._peer(dest, name)
        if self.type is EpType.DGRAM:
            raise self._unsupported("RMA and atomics")
        self._fits(local, peer)
        if addr + local.length > 1 << 64:
            raise invalid("addr", f"{addr:#x} and {local.length} bytes", "what ends within 64 bits")
        return peer

    def _transfer(
        self, told: Flag, counted: Flag, peer: Address | None, flags: Flag, context: Any, silent: bool = False
    ) -> FiOperation:
        direction = Flag.RECV if counted is Flag.RECV else Flag.TRANSMIT
        wanted = not silent and (direction not in self._selective or bool(flags & Flag.COMPLETION))
        return FiOperation(self, context, told, counted, wanted, peer)

    def _addressed(self, peer: Address, mode: Mode, flags: Flag, transfer: FiOperation) -> dict[str, Any]:
        """Return the arguments that every work towards a peer has."""
        return {
            "peer": peer.fa,
            "mode": mode,
            "job_id": self.domain.job.job_id,
            "pid_on_fep": peer.pid_on_fep or 0,
            "resource_index": 15 if peer.start_index is None else peer.start_index,
            "initiator": self.initiator_id,
            "relative": not peer.absolute,
            "delivery_complete": bool(flags & Flag.DELIVERY_COMPLETE),
            "context": transfer,
        }


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
            "op", f"{_name(AtomicOpcode, op)} on {_name(AtomicDatatype, datatype)}", legal, Errno.FI_EOPNOTSUPP
        )
    if compares is not (op in COMPARE_AND_SWAPS) or (compares and not fetches):
        legal = "CSWAP*, MSWAP with compare and result; all others without compare"
        raise invalid("op", _name(AtomicOpcode, op), legal)
    if op == AtomicOpcode.READ and not fetches:
        raise invalid("op", "READ", "with a result only: fetch_atomic")
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
        raise invalid(name, f"{buffers.length} bytes", legal)
