# SPDX-License-Identifier: GPL-2.0-only
"""This carrier sends SHARP messages over RoCE: connections are RC queue pairs, and UD queue pairs carry multicast
results (sharp.md §1.4, §2.1; roce.md §6, §11).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from uetproto.engine.roce.contract import (
    AddressVector,
    AsyncNotice,
    AsyncType,
    ModifyQp,
    Notified,
    PostRecv,
    PostSend,
    PostSrqRecv,
    QpState,
    QpType,
    Receive,
    SendFlags,
    Sge,
    WorkCompletion,
)
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.qp import UserMessage, bring_up_steps
from uetproto.engine.roce.ud import GRH_SIZE, group_of, is_multicast
from uetproto.engine.sharp.carriers.carrier import LONGEST, Carrier, CarrierConnection
from uetproto.engine.sharp.contract import Element, OutgoingMessage
from uetproto.errors import LocalError
from uetproto.wire.headers.roce import MULTICAST_QP

_FIRST_QP = 0x11
"""Number of the first queue pair, if it is free. No number is used twice, so that late packets match no queue pair."""
_BROKEN = (AsyncType.QP_FATAL, AsyncType.QP_ACCESS_ERR)
_FLAGS = SendFlags.INLINE | SendFlags.SIGNALED


class Receives:
    """This class keeps receive buffers of one size posted: each buffer is posted again as soon as it has been read."""

    def __init__(self, hca: Hca, pd: int, count: int, size: int, work: Callable[..., Receive]) -> None:
        """`work` takes wr_id and sg_list and returns the work that posts a buffer; `count` buffers have `size` bytes
        each."""
        self._hca = hca
        self._size = size
        self._memory = memoryview(bytearray(count * size))
        lkey = hca.reg_mr(pd, self._memory).lkey
        self._works = [work(wr_id=at, sg_list=(Sge(at * size, size, lkey),)) for at in range(count)]
        for number in range(count):
            self.post(number)

    def post(self, number: int) -> None:
        self._hca.submit(self._works[number], 0)  # which asks for no time

    def take(self, number: int, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end` of a buffer and post the buffer again."""
        at = number * self._size
        data = bytes(self._memory[at + start : at + end])
        self.post(number)
        return data


class _UdConnection(CarrierConnection):
    """A queue pair of type UD, which serves all groups with one Q_Key."""

    __slots__ = ("receives",)
    receives: Receives


class RoceCarrier(Carrier):
    """A RoCE carrier sends SHARP messages over a RoCE adapter, which may carry other traffic as well. It implements
    `contract.Ports`."""

    def __init__(
        self, hca: Hca, element: Element, *, receives: int = 64, depth: int = 128, timeout: int = 18,
        retry_cnt: int = 7, min_rnr_timer: int = 12, rnr_retry: int = 7, qkey: int = 0x53485250,
    ) -> None:  # fmt: skip
        """`receives` is the number of receive buffers for all connections together, and again for each Q_Key; `depth`
        is the number of entries of a send queue.

        If the path MTU is below 4096, there must be at least one receive buffer for each connection, as a partly
        received message keeps its buffer. `timeout`, `retry_cnt`, `min_rnr_timer` and `rnr_retry` are attributes of the
        queue pairs; SHARP sets them by SHARP_COLL_IB_TIMEOUT, _RETRY_COUNT, _RNR_TIMER and _RNR_RETRY (sharp.md §5).
        `qkey` is the Q_Key of messages to groups that were not joined here.
        """
        super().__init__(element, depth)
        if type(receives) is not int or receives < 1:
            raise LocalError("receives", f"{receives!r} is not legal", "1 and more", id="out-of-range")
        self._hca = hca
        self._count = receives
        self._attributes = {
            "timeout": timeout, "retry_cnt": retry_cnt, "min_rnr_timer": min_rnr_timer, "rnr_retry": rnr_retry,
        }  # fmt: skip
        self._qkey = qkey
        self._pd = hca.alloc_pd()
        self._srq = hca.create_srq(self._pd)
        self._receives = Receives(hca, self._pd, receives, LONGEST, partial(PostSrqRecv, srq_num=self._srq))
        self._next = _FIRST_QP
        self._gone: set[int] = set()
        """Lists the queue pairs that were released."""
        self._datagrams: dict[int, _UdConnection] = {}
        """Maps each Q_Key to its queue pair of type UD."""
        self._by_number: dict[int, _UdConnection] = {}
        self._qkeys: dict[int, int] = {}
        """Maps each joined group to its Q_Key."""
        self.longest = LONGEST
        """Number of bytes of a receive (`qp.MessageUser`)."""
        self._by_messages = False
        """Whether messages are handed over without work requests and completions."""
        self._works = 0
        self._open: dict[int, tuple[CarrierConnection, int]] = {}
        """Maps the wr_id of each SEND that has not ended to its connection and handle."""

    # Ports

    def allocate(self) -> int:
        number = self._create(QpType.RC, self._srq)
        self.connections[number] = CarrierConnection(number)
        if self._by_messages:
            self._hca.serve_messages(number, self)
        return number

    def connect(
        self, conn: int, *, address: int, remote: int, own_psn: int, their_psn: int, now: int, flow_label: int = 0
    ) -> None:  # fmt: skip
        connection = self.find(conn)
        self._bring_up(QpType.RC, conn, now, {
            **self._attributes, "access_flags": 0, "av": AddressVector(address, flow_label=flow_label),
            "dest_qpn": remote, "sq_psn": own_psn, "rq_psn": their_psn,
        })  # fmt: skip
        self.on_connected(connection, now)

    def release(self, conn: int, now: int) -> None:
        connection = self.find(conn)
        self.forget(connection)
        if connection.up and self._hca.qps[conn].state is not QpState.ERR:
            # A partly received message returns its buffer.
            self._hca.submit(ModifyQp(qp_num=conn, state=QpState.ERR), now)
        self._hca.destroy_qp(conn)
        self._gone.add(conn)
        self._open = {wr_id: entry for wr_id, entry in self._open.items() if entry[0] is not connection}

    def join(self, group: int, qkey: int, now: int) -> None:
        datagrams = self._datagrams_of(qkey, now)
        self._hca.attach_mcast(datagrams.number, group)
        self._qkeys[group] = qkey

    def _create(self, kind: QpType, srq: int | None) -> int:
        while self._next in self._hca.qps:
            self._next += 1
        number = self._hca.create_qp(kind, self._pd, number=self._next, srq=srq, max_send_wr=self.depth)
        self._next += 1
        return number

    def _bring_up(self, kind: QpType, number: int, now: int, wanted: dict[str, Any]) -> None:
        for state, attributes in bring_up_steps(kind, self._hca.config, {"pkey_index": 0, "port": 1, **wanted}):
            self._hca.submit(ModifyQp(qp_num=number, state=state, attributes=attributes), now)

    def _datagrams_of(self, qkey: int, now: int) -> _UdConnection:
        found = self._datagrams.get(qkey)
        if found is None:
            number = self._create(QpType.UD, None)
            self._bring_up(QpType.UD, number, now, {"qkey": qkey, "sq_psn": 0})
            found = self._datagrams[qkey] = self._by_number[number] = _UdConnection(number, up=True)
            work = partial(PostRecv, qp_num=number)
            found.receives = Receives(self._hca, self._pd, self._count, GRH_SIZE + LONGEST, work)
        return found

    # Sending

    def multicast(self, message: OutgoingMessage, now: int) -> CarrierConnection:
        if not is_multicast(group_of(message.group), self._hca.ip_version):
            raise LocalError(
                "group", f"{message.group:#x} is no multicast group of IPv{self._hca.ip_version}", id="wrong-address"
            )
        return self._datagrams_of(self._qkeys.get(message.group, self._qkey), now)

    def send(self, connection: CarrierConnection, message: OutgoingMessage, now: int) -> None:
        self._works += 1
        self._open[self._works] = connection, 0 if message.conn is None else message.handle
        if self._by_messages and message.conn is not None:
            self._hca.send_message(UserMessage(connection.number, self._works, message.data), now)
            return
        work: dict[str, Any] = {}
        if message.conn is None:
            work = {
                "ah": AddressVector(group_of(message.group)), "remote_qpn": MULTICAST_QP,
                "remote_qkey": self._qkeys.get(message.group, self._qkey),
            }  # fmt: skip
        self._hca.submit(PostSend(
            qp_num=connection.number, wr_id=self._works, inline=message.data, send_flags=_FLAGS, **work,
        ), now)  # fmt: skip

    # Messages without completions (`engine.roce.messages`)

    def use_messages(self) -> bool:
        super().use_messages()
        self._by_messages = True
        for number in self.connections:
            self._hca.serve_messages(number, self)
        return True

    def take_message(self, packet: Any, now: int) -> bool:
        return self._hca.take_message(packet, now)

    def arrived(self, number: int, data: bytes, now: int) -> None:
        connection = self.connections.get(number)
        if connection is not None:
            self.deliver(connection, data, now)

    def sent(self, wr_id: int, now: int) -> None:
        connection, handle = self._open.pop(wr_id)
        self.ended(connection, handle, now)

    # What the adapter tells

    def event(self, event: Any, now: int) -> bool:
        """Handle an event of the adapter; return False if it does not belong to this carrier."""
        if isinstance(event, WorkCompletion | Notified):
            number = event.qp_num
        elif isinstance(event, AsyncNotice) and event.type is not AsyncType.SRQ_LIMIT_REACHED:
            number = event.number
        else:
            return False
        connection = self.connections.get(number)
        datagrams = self._by_number.get(number)
        if connection is None and datagrams is None:
            return self._handle_released(number, event)
        if isinstance(event, WorkCompletion):
            if not event.receive:
                self._send_ended(event, now)
            elif datagrams is not None:
                self._receive_multicast(datagrams, event, now)
            elif connection is not None:
                self._receive(connection, event, now)
        elif isinstance(event, AsyncNotice) and event.type in _BROKEN and connection is not None:
            self.broken(connection, now)
        return True

    def _handle_released(self, number: int, event: Any) -> bool:
        """Handle an event of a queue pair that was released; return False for any other queue pair."""
        if number not in self._gone or number in self._hca.qps:
            return False
        if isinstance(event, WorkCompletion) and event.receive:
            self._receives.post(event.wr_id)
        return True

    def _receive(self, connection: CarrierConnection, event: WorkCompletion, now: int) -> None:
        data = self._receives.take(event.wr_id, 0, event.byte_len)
        if event.ok:
            self.deliver(connection, data, now)
        else:
            self.broken(connection, now)

    def _receive_multicast(self, datagrams: _UdConnection, event: WorkCompletion, now: int) -> None:
        data = datagrams.receives.take(event.wr_id, GRH_SIZE, event.byte_len)
        if event.ok:
            self.deliver(None, data, now)

    def _send_ended(self, event: WorkCompletion, now: int) -> None:
        connection, handle = self._open.pop(event.wr_id)
        if event.ok or connection.number in self._by_number:
            self.ended(connection, handle, now)
        else:
            self.broken(connection, now)
