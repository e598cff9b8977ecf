# SPDX-License-Identifier: GPL-2.0-only
"""This carrier sends SHARP messages over UET, as SES SENDs on reserved PDCs, two in each direction (sharp.md §2.1).

A connection has two consecutive PDCIDs of the reserved pool. The even PDCID is the number of the connection and belongs
to the ROD PDC; the odd PDCID belongs to the RUD PDC. The SPDCID of a packet therefore tells the peer to which
connection the packet belongs.
"""

from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from uetproto.engine.contract import (
    EVERY_JOB,
    AskClose,
    Close,
    Completion,
    Mode,
    PdcClosed,
    PdcOpened,
    Receive,
    Received,
    Send,
)
from uetproto.engine.fep import Fep
from uetproto.engine.pds.states import Input, Role
from uetproto.engine.sharp.carriers.carrier import LONGEST, WORD, Carrier, CarrierConnection, entropy_of
from uetproto.engine.sharp.contract import Element, OutgoingMessage
from uetproto.engine.sharp.messages import CHILD_AT, HEADER_SIZE, VEC_OFF_AT
from uetproto.errors import LocalError
from uetproto.wire.headers.sharp import MAGIC, VERSION, Flag, SharpOpcode
from uetproto.wire.headers.uet_ses import ReturnCode, Space

PID_ON_FEP = 0x000
RESOURCE_INDEX = 0x0A6

_OPERATIONS = frozenset(map(int, (SharpOpcode.AGG_REQ, SharpOpcode.AGG_RESULT)))
_SAT, _MCAST = int(Flag.SAT), int(Flag.MCAST)
_FRONT, _TAIL = Struct(">BBHIII"), Struct(">BBH")
"""Fields of the header before vec_off, and from child_idx on (sharp.md §2.2)."""


_PDC_EVENTS = (PdcOpened, PdcClosed)


class HeaderValues(NamedTuple):
    """These are the values of UET header fields that a SHARP message determines (sharp.md §2.1)."""

    mode: Mode
    job_id: int
    initiator: int
    """child_idx of the sender."""
    match_bits: int
    """group_id and seq of the message."""
    header_data: int
    """The four letters SHRP, then tree_id, opcode and version of the message."""
    multicast: bool
    """Whether the flag MCAST is set, which is not legal over UET."""


def values_of(data: bytes) -> HeaderValues:
    """Return the UET header values of a SHARP message. Control messages and messages of a SAT use ROD; requests and
    results of an LLT use RUD, as their order does not matter."""
    return _values_of(data[:VEC_OFF_AT], data[CHILD_AT:HEADER_SIZE])


@lru_cache(maxsize=1024)
def _values_of(front: bytes, tail: bytes) -> HeaderValues:
    """Return the values of messages with these bytes before vec_off, and from child_idx on."""
    _, opcode, tree_id, job_id, group_id, seq = _FRONT.unpack(front)
    child_idx, _, flags = _TAIL.unpack(tail)
    streams = opcode not in _OPERATIONS or flags & _SAT
    return HeaderValues(
        mode=Mode.ROD if streams else Mode.RUD,
        job_id=job_id,
        initiator=child_idx,
        match_bits=group_id << 32 | seq,
        header_data=MAGIC << 32 | tree_id << 16 | opcode << 8 | VERSION,
        multicast=bool(flags & _MCAST),
    )


class _UetConnection(CarrierConnection):
    """A connection with its peer, which is set once it is known."""

    __slots__ = ("address", "entropy", "remote")
    address: int
    remote: int
    entropy: int | None
    """Entropy value of all packets; None: PDCs choose their own."""


class _Sent(NamedTuple):
    """The context that a SEND returns at its completion."""

    carrier: "UetCarrier"
    connection: CarrierConnection
    handle: int


class UetCarrier(Carrier):
    """A UET carrier sends SHARP messages over a UET endpoint, which may carry other traffic as well. It implements
    `contract.Ports`.

    A connection takes four of the `PdsConfig.reserved_pdcs`: two PDCs that this end opens, and two that the peer opens.
    """

    def __init__(self, fep: Fep, element: Element, *, receives: int = 64, depth: int = 128) -> None:
        """`receives` is the number of receive buffers for all connections together; `depth` is the number of messages
        that one connection may have in flight.

        The endpoint stores a message for which no buffer is free, if it has room (`unexpected_policy`).
        """
        super().__init__(element, depth)
        if type(receives) is not int or not 1 <= receives <= fep.config.rx_size:
            raise LocalError(
                "receives", f"{receives!r} is not legal", f"1 … rx_size, {fep.config.rx_size}", id="out-of-range"
            )
        self._fep = fep
        self._by_peer: dict[tuple[int, int], CarrierConnection] = {}
        """Maps address and connection of the peer to the local end."""
        process = fep.attach(EVERY_JOB, PID_ON_FEP, ())
        process.open(RESOURCE_INDEX, (Space.SEND,))
        for _ in range(receives):
            fep.submit(Receive(
                into=bytearray(LONGEST), job_id=EVERY_JOB, pid_on_fep=PID_ON_FEP, resource_index=RESOURCE_INDEX,
                context=self,
            ), fep.pds.now)  # fmt: skip

    # Ports

    def allocate(self) -> int:
        number = self._fep.pds.reserve()
        self.connections[number] = _UetConnection(number)
        return number

    def connect(
        self, conn: int, *, address: int, remote: int, own_psn: int, their_psn: int, now: int, flow_label: int = 0
    ) -> None:  # fmt: skip
        """Connect to the connection `remote`, an even PDCID, at `address`. The PSNs are ignored, as PDCs choose their
        own PSNs (pds.md §2.2)."""
        connection = self._end(conn)
        if connection.up:
            raise LocalError("conn", f"{conn} is connected already", id="already-there")
        if type(remote) is not int or remote & 1 or not 0 < remote < 1 << 16:
            raise LocalError("remote", f"{remote!r} is not legal", "an even PDCID", id="out-of-range")
        connection.address, connection.remote = address, remote
        connection.entropy = entropy_of(flow_label) if flow_label else None
        self._by_peer[address, remote] = connection
        self.on_connected(connection, now)

    def release(self, conn: int, now: int) -> None:
        connection = self._end(conn)
        self.forget(connection)
        if connection.up:
            self._by_peer.pop((connection.address, connection.remote), None)
            self._close(connection, now)
        self._fep.pds.release(conn)

    def join(self, group: int, qkey: int, now: int) -> None:
        raise LocalError("group", "multicast is not legal over UET", id="not-with-protocol")

    def _end(self, conn: int) -> _UetConnection:
        connection = self.find(conn)
        assert isinstance(connection, _UetConnection)
        return connection

    def _close(self, end: _UetConnection, now: int) -> None:
        """Close both directions: the PDCs opened here, and ask the peer to close those that it opened."""
        own, theirs = (end.number, end.number + 1), (end.remote, end.remote + 1)
        for pdc in [pdc for pdc in self._fep.pds.pdcs.values() if pdc.peer == end.address]:
            if not pdc.allows(Input.CLOSE):
                continue
            if pdc.role is Role.INITIATOR and pdc.local_id in own:
                self._fep.submit(Close(peer=end.address, pdcid=pdc.local_id), now)
            elif pdc.role is Role.TARGET and pdc.reserved and pdc.peer_id in theirs:
                self._fep.submit(AskClose(pdcid=pdc.local_id), now)

    # Sending

    def multicast(self, message: OutgoingMessage, now: int) -> CarrierConnection:
        raise LocalError(
            "group", f"{message.group:#x} is not legal", "none, multicast is not for UET", id="not-with-protocol"
        )

    def send(self, connection: CarrierConnection, message: OutgoingMessage, now: int) -> None:
        end, values = self._end(connection.number), values_of(message.data)
        if values.multicast:
            raise LocalError("data", "the flag MCAST is not legal over UET", id="not-with-protocol")
        pds, pdcid = self._fep.pds, end.number + (values.mode is Mode.RUD)
        if pdcid not in pds.pdcs:
            pds.open_reserved(pdcid, end.address, values.mode, end.number, now, end.entropy)
        self._fep.submit(Send(
            peer=end.address, mode=values.mode, job_id=values.job_id, pid_on_fep=PID_ON_FEP,
            resource_index=RESOURCE_INDEX, initiator=values.initiator, match_bits=values.match_bits,
            completion_data=values.header_data, data=message.data, reserved=True, pdc_context=end.number,
            context=_Sent(self, connection, message.handle),
        ), now)  # fmt: skip

    # Messages that the driver recognizes

    def use_messages(self) -> bool:
        super().use_messages()
        return True

    def take_message(self, packet: Any, now: int) -> bool:
        return bool(self._fep.take_message(packet, now))

    # What the endpoint tells

    def event(self, event: Any, now: int) -> bool:
        """Handle an event of the endpoint; return False if it does not belong to this carrier."""
        kind = type(event)  # most events are of the first two kinds
        if kind is Received and event.receive.context is self:
            self._receive(event, now)
        elif kind is Completion and type(event.context) is _Sent and event.context.carrier is self:
            sent = event.context
            if event.ok:
                self.ended(sent.connection, sent.handle, now)
            else:
                self.broken(sent.connection, now)
        elif kind in _PDC_EVENTS and event.initiator and event.pdcid & ~1 in self.connections:
            if kind is PdcClosed:  # not requested here
                self.broken(self.connections[event.pdcid & ~1], now)
        else:
            return False
        return True

    def _receive(self, event: Received, now: int) -> None:
        data = bytes(memoryview(event.receive.into)[event.start : event.start + event.length])
        self._fep.submit(event.receive, now)
        pdc = self._fep.pds.pdcs.get(event.pdcid)
        connection = None if pdc is None else self._by_peer.get((event.source, pdc.peer_id & ~1))
        if pdc is None or not pdc.reserved:
            self.counters["inc_on_shared_pdc"] += 1
        elif connection is None:
            self.counters["unknown_connection"] += 1
        elif why := _drop_reason(event, data):
            self.counters[why] += 1
        else:
            self.deliver(connection, data, now)


def _drop_reason(event: Received, data: bytes) -> str | None:
    """Return why a message of a connection is dropped, the name of its counter; None if it is legal."""
    size = len(data)
    if event.return_code != ReturnCode.OK or event.message_length != size or size < HEADER_SIZE or size % WORD:
        return "bad_length"
    values = values_of(data)
    if (event.data, event.job_id) != (values.header_data, values.job_id):
        return "bad_values"
    return "mcast" if values.multicast else None
