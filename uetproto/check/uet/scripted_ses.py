"""A SES that does what a script says: SEND, READ, WRITE and DATAGRAM_SEND of made-up bytes, and any answer to them.

How a packet is to be answered travels with it, in the field `initiator` of its SES header (`steps.ANSWERS`), so that
both ends need nothing but packets. What happened can be read afterwards: `delivered`, and of each message what came
back. ses.md §3–§5, §9; UE 1.0.1 §3.4.
"""

from collections.abc import Callable
from typing import Any

from uetproto.check.uet.steps import ANSWERS, MessageSpec
from uetproto.engine.contract import PDC_MODES, Buffer, Mode, PdsError
from uetproto.engine.pds.service import SES_SIZE, Connection, Refusal, Response, message_id_of
from uetproto.engine.pds.sublayer import Pds
from uetproto.engine.ses.headers import build_later, build_response, build_response_data, build_som
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import NackCode, NextHdr
from uetproto.wire.headers.uet_ses import (
    REQUEST_STD,
    RESPONSE_DATA,
    Opcode,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
)

_OPCODES = {"send": Opcode.SEND, "read": Opcode.READ, "write": Opcode.WRITE}
_STD, _RESPONSE_DATA, _W_DATA = NextHdr.REQUEST_STD, NextHdr.RESPONSE_DATA, ResponseOpcode.RESPONSE_W_DATA
_GOOD = (ReturnCode.OK, ReturnCode.NULL)
_HEADER = SES_SIZE[_STD]
_ANSWER_AT = REQUEST_STD.offset_of("initiator") // 8 + 3
_LENGTH_AT = REQUEST_STD.offset_of("request_length") // 8
_OFFSET_AT = REQUEST_STD.offset_of("message_offset") // 8
_ASKED_AT = RESPONSE_DATA.offset_of("read_request_message_id") // 8
_JOB, _KEY, _RESOURCE_INDEX = 101, 7, 15
_BYTES = bytes(range(256)) * 64
"""Made-up content."""
_INDEX = tuple(index.to_bytes(4, "big") for index in range(4096))
OK, GTD, LATER, NO_RESPONSE, DATA, RETURN = range(6)
"""Positions in `ANSWERS`."""
_UNFINISHED = (LATER, NO_RESPONSE)
_FIRST_REFUSAL = ANSWERS.index("no_pkt_buffer")
_REFUSALS = {
    ANSWERS.index(name): Refusal(NackCode[name.upper()])
    for name in ("no_pkt_buffer", "no_gtd_del_avail", "no_ses_msg_avail", "no_resource", "rcvr_infer_loss")
}  # fmt: skip


class ScriptedMessage:
    """A message on its way (`service.Outgoing`): packets of `mtu` bytes; lean: of 4, all with the same header."""

    __slots__ = (
        "_first", "_how", "_opcode", "context", "length", "lock", "message_id", "mode", "mtu", "next_hdr", "op",
        "packets", "pdcid", "pds", "peer", "reserved", "sent",
    )  # fmt: skip

    def __init__(self, pds: Pds, peer: int, what: MessageSpec, mtu: int | None, ack_data: int) -> None:
        self.pds = pds
        self.pdcid = 0
        """Of a read, once it has begun: the PDC that it holds."""
        self.peer = peer
        self.mode = what.mode
        self.message_id = 0 if what.mode is Mode.UUD else what.message_id
        self.next_hdr: int = _STD
        self.context = what.context
        self.reserved = what.reserved
        self.op = what.op
        self.lock = what.op == "read" and what.answer != "data" and what.mode in PDC_MODES
        """A read waits for its data (ses.md §5.4)."""
        self.packets = what.packets
        self.mtu = mtu
        self.sent = 0
        self.length = what.packets * (mtu or 1)
        if what.answer == "data" and what.packets == 1 and mtu is not None:
            self.length = min(mtu, ack_data)
        self._opcode = Opcode.DATAGRAM_SEND if what.mode is Mode.UUD else _OPCODES[what.op]
        self._how = ANSWERS.index(what.answer)
        self._first = build_som(
            self._opcode, 0, 0, 1, 0, self.packets == 1 or mtu is None, self.message_id, _JOB, 0, _RESOURCE_INDEX, 0,
            self._how, _KEY, 0, self.length,
        )  # fmt: skip

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        index = self.sent
        self.sent = index + 1
        last = index + 1 == self.packets
        mtu = self.mtu
        if mtu is None:
            return index, self._first, _INDEX[index & 0xFFF], last
        header = self._first
        if index:
            header = build_later(
                self._opcode, 0, 0, 1, 0, int(last), self.message_id, _JOB, 0, _RESOURCE_INDEX, 0, self._how, _KEY, mtu,
                index * mtu, self.length,
            )  # fmt: skip
        return index, header, b"" if self.op == "read" else content(self.message_id, index, mtu), last

    def began(self, pdc: Connection, psn: int) -> None:
        self.pdcid = pdc.local_id


def content(message_id: int, index: int, size: int) -> bytes:
    """The made-up bytes of one packet."""
    start = (message_id * 31 + index * 7) & 0xFF
    return _BYTES[start : start + size]


class ScriptedReturnData:
    """Read data on its way back, in the return direction of the PDC of the read (`service.Outgoing`)."""

    __slots__ = ("context", "lock", "message_id", "mode", "mtu", "next_hdr", "packets", "peer", "read_id", "reserved",
                 "sent")  # fmt: skip

    def __init__(self, pdc: Connection, message_id: int, read_id: int, packets: int, mtu: int | None) -> None:
        self.peer = pdc.peer
        self.mode = pdc.mode
        self.message_id = message_id
        self.next_hdr: int = _RESPONSE_DATA
        self.context = 0
        self.reserved = False
        self.lock = False
        self.read_id = read_id
        self.packets = packets
        self.mtu = mtu
        self.sent = 0

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        index = self.sent
        self.sent = index + 1
        size = self.mtu or 4
        header = _data_header(self.message_id, self.read_id, size, self.packets * size, index * size)
        payload = _INDEX[index] if self.mtu is None else content(self.read_id, index, size)
        return index, header, payload, index + 1 == self.packets


def _data_header(message_id: int, read_id: int, size: int, length: int, offset: int) -> bytes:
    return build_response_data(read_id, _JOB, size, length, offset, message_id)


class ScriptedSes:
    """`service.PdsUser` of one endpoint. Its driver calls `settle` after each call of the PDS.

    `mtu` is the payload of a full packet; None: lean, for runs without bytes. `ack_data` is the most that a read
    answered in its ACK brings.
    """

    def __init__(self, mtu: int | None = None, ack_data: int = 16) -> None:
        self.mtu = mtu
        self.ack_data = ack_data
        self.pds: Pds
        self.late: Callable[[Any, int, Response, int], None]
        """Takes late answers: {connection, PSN or pkt_id, response, now}."""
        self.delivered = self.answered = self.failed = 0
        """Packets."""
        self.waiting: dict[tuple[int, int], tuple[Connection, bytes]] = {}
        """Requests without their final answer, by {PDCID or 0, PSN or pkt_id}: where they came from, SES header."""
        self.script: dict[int, int] = {}
        """Answers to packets that are still to come, by PSN or pkt_id."""
        self._refused: set[tuple[int, int]] = set()
        self._reads: dict[tuple[int, int], list[int]] = {}
        """Reads of the peer: {PDCID, message id} → packets answered, packets whose data goes the return direction."""
        self._reading: dict[int, int] = {}
        """Own reads that hold a lock: message id → packets without data or an error."""
        self._returns: list[tuple[Connection, int, int]] = []
        """Read data to be sent: PDC, message id of the read, packets."""
        self._unlocks: list[int] = []
        self._next_return = 0
        self._plain: dict[int, Response] = {}
        """Default responses, by message id."""

    def attach(self, pds: Pds, late: Callable[[Any, int, Response, int], None] | None = None) -> None:
        """The PDS that it uses."""
        self.pds = pds
        self.late = late or pds.respond_late

    # The application

    def submit(self, peer: int, what: MessageSpec, now: int) -> ScriptedMessage:
        """Hands a message over. Raises `LocalError` for what its mode may not carry (pds.md §3)."""
        _check(what)
        message = ScriptedMessage(self.pds, peer, what, self.mtu, self.ack_data)
        if message.lock:
            self._reading[message.message_id] = self._reading.get(message.message_id, 0) + what.packets
        self.pds.send(message, now)
        return message

    def respond(self, number: int, answer: str, now: int) -> None:
        """Answers the packet with this PSN or pkt_id: one that waits, else one that will come."""
        how = ANSWERS.index(answer)
        key = next((key for key in self.waiting if key[1] == number), None)
        if key is None:
            self.script[number] = how
            return
        if how in _REFUSALS or how == LATER:
            raise LocalError("answer", f"{answer!r} is not legal for a packet that was taken")
        connection, header = self.waiting[key]
        response = self._answer(how, connection, header)
        if response.final:
            del self.waiting[key]
        self.late(connection, number, response, now)
        self.settle(now)

    @property
    def unsettled(self) -> bool:
        """`settle` has something to do."""
        return bool(self._returns or self._unlocks)

    def settle(self, now: int) -> None:
        """Sends what the calls of the PDS brought about: read data, and the end of locks."""
        while self._returns:
            pdc, read_id, packets = self._returns.pop(0)
            if self.pds.pdcs.get(pdc.local_id) is pdc:
                self._next_return = self._next_return % 0xFFFE + 1
                message = ScriptedReturnData(pdc, self._next_return, read_id, packets, self.mtu)
                self.pds.send_return(pdc.local_id, message, now)
        while self._unlocks:
            self.pds.unlock(self._unlocks.pop(0), now)

    # What PDS calls

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        how = data[at + _ANSWER_AT] if next_hdr == _STD else OK
        if self.script:
            how = self.script.pop(psn, how)
        if how >= _FIRST_REFUSAL:
            if (pdc.local_id, psn) not in self._refused:
                self._refused.add((pdc.local_id, psn))
                return _REFUSALS[how]
            self._refused.discard((pdc.local_id, psn))  # taken when it comes again
            how = OK
        self.delivered += 1
        if pdc.mode is Mode.UUD:
            return None
        if next_hdr == _STD:
            if how == OK and data[at] & 0x3F != Opcode.READ:
                return self._default(data[at + 2] << 8 | data[at + 3])
            header = bytes(data[at : at + _HEADER])
            if how in _UNFINISHED:
                self.waiting[pdc.local_id, psn] = pdc, header
            return None if how == LATER else self._answer(how, pdc, header)
        self._got_data(int.from_bytes(data[at + _ASKED_AT : at + _ASKED_AT + 2], "big"), pdc.local_id)
        if how in _UNFINISHED:
            self.waiting[pdc.local_id, psn] = pdc, b""
        return None if how == LATER else self._answer(how, pdc, b"")

    def on_reread(self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer) -> Response:
        return self._data(bytes(data[at : at + _HEADER]), True)

    def on_response(self, message: Any, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        self.answered += 1
        if message.lock and response and (response[0] & 0x3F == _W_DATA or response[1] & 0x3F not in _GOOD):
            self._got_data(message.message_id, message.pdcid)

    def on_error(self, message: Any, index: int, error: PdsError) -> None:
        self.failed += 1
        if message.lock:
            self._reading.pop(message.message_id, None)

    def on_closed(self, pdc: Connection) -> None:
        gone = pdc.local_id
        for key in [key for key in self.waiting if key[0] == gone]:
            del self.waiting[key]
        for key in [key for key in self._reads if key[0] == gone]:
            del self._reads[key]
        self._refused = {key for key in self._refused if key[0] != gone}

    # Reads

    def _got_data(self, message_id: int, pdcid: int) -> None:
        """One packet of an own read has its data, or an error; after the last the PDC may be closed."""
        left = self._reading.get(message_id)
        if left is not None:
            self._reading[message_id] = left - 1
            if left == 1:
                del self._reading[message_id]
                if pdcid:
                    self._unlocks.append(pdcid)

    def _count_read(self, pdc: Connection, header: bytes, returns: int) -> None:
        """Read data leaves when the whole read is answered."""
        key = (pdc.local_id, message_id_of(header, 0, _STD))
        count = self._reads.setdefault(key, [0, 0])
        count[0] += 1
        count[1] += returns
        length = int.from_bytes(header[_LENGTH_AT:_HEADER], "big")
        if count[0] == -(-length // (self.mtu or 1)):
            del self._reads[key]
            if count[1]:
                self._returns.append((pdc, key[1], count[1]))

    # Answers

    def _answer(self, how: int, pdc: Connection, header: bytes) -> Response:
        """The response to a request with this SES header; b"": to return data."""
        message_id = message_id_of(header, 0, _STD) if header else 0
        if how == NO_RESPONSE:
            return Response(build_response(ResponseOpcode.NO_RESPONSE, ReturnCode.OK, message_id, _JOB, 0), final=False)
        opcode = header[0] & 0x3F if header else Opcode.SEND
        guaranteed = pdc.mode is not Mode.RUDI
        if opcode == Opcode.READ:
            if how == DATA or (how != GTD and not guaranteed):
                if guaranteed:
                    self._count_read(pdc, header, 0)
                return self._data(header, guaranteed)
            if guaranteed:
                self._count_read(pdc, header, how != GTD)
        if how != GTD:
            return self._default(message_id)
        which, code = ResponseList.EXPECTED, ReturnCode.BAD_ADDR
        if opcode == Opcode.SEND and header:
            which, code = ResponseList.OVERFLOW, ReturnCode.OK
        return Response(build_response(ResponseOpcode.RESPONSE, code, message_id, _JOB, 0, which), gtd=guaranteed)

    def _default(self, message_id: int) -> Response:
        found = self._plain.get(message_id)
        if found is None:
            header = build_response(ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, message_id, _JOB, 0)
            found = self._plain[message_id] = Response(header)
        return found

    def _data(self, header: bytes, guaranteed: bool) -> Response:
        """Read data inside the answer."""
        read_id = message_id_of(header, 0, _STD)
        length = int.from_bytes(header[_LENGTH_AT:_HEADER], "big")
        som = header[1] & 1
        mtu = self.mtu or 1
        at = 0 if som else int.from_bytes(header[_OFFSET_AT : _OFFSET_AT + 4], "big")
        size = min(mtu, length - at)
        data = _data_header(0, read_id, size, length, at) + content(read_id, at // mtu, size)
        return Response(data, gtd=guaranteed, next_hdr=_RESPONSE_DATA)


def _check(what: MessageSpec) -> None:
    """pds.md §3."""
    if what.packets < 1:
        raise LocalError("packets", f"{what.packets} is not legal", "1 and more")
    if what.op not in _OPCODES:
        raise LocalError("op", f"{what.op!r} is not legal", ", ".join(_OPCODES))
    if what.answer not in ANSWERS:
        raise LocalError("answer", f"{what.answer!r} is not legal", ", ".join(ANSWERS))
    if what.mode is Mode.UUD and (what.op != "send" or what.packets != 1):
        raise LocalError("mode", f"{what.op} of {what.packets} packets is not legal with UUD", "send, 1 packet")
    if what.mode is Mode.RUDI and what.op == "send":
        raise LocalError("op", "'send' is not legal with RUDI", "read, write")
