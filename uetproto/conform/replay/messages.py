# SPDX-License-Identifier: GPL-2.0-only
"""This module reads the messages of one side of a capture, and what they were answered.

A message is told of when all of it has been sent in the capture, and again when it was answered, so that whoever plays
the messages begins each one after those that had ended before.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from uetproto.conform.packets import AnswerPacket
from uetproto.conform.replay.side import SidePacket
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import Mode, NextHdr, PdsType
from uetproto.wire.headers.uet_ses import (
    ATOMICS,
    OPCODE_PROFILES,
    PAYLOAD_MTUS,
    RENDEZVOUS,
    Opcode,
    ResponseOpcode,
    ReturnCode,
)
from uetproto.wire.words.text import count, numbered

MOST_BYTES = 256 << 20
"""Number of bytes of messages that may be open at a time, in the capture."""
MOST_OPEN = 65_536
"""Number of messages that may be open at a time, in the capture."""
_MODES = {
    PdsType.RUD_REQ: Mode.RUD, PdsType.RUD_CC_REQ: Mode.RUD, PdsType.ROD_REQ: Mode.ROD, PdsType.ROD_CC_REQ: Mode.ROD,
    PdsType.RUDI_REQ: Mode.RUDI, PdsType.UUD_REQ: Mode.UUD,
}  # fmt: skip
_REQUESTS = (NextHdr.REQUEST_STD, NextHdr.REQUEST_MEDIUM, NextHdr.REQUEST_SMALL)
_NOT_PLAYED = (Opcode.MSG_ERROR, Opcode.DEFERRABLE_RTR)
_ELEMENT = 16
"""Number of bytes of the longest element of an atomic."""
_ANSWERED = (ReturnCode.OK, ReturnCode.NULL)


@dataclass(slots=True, eq=False)
class CapturedMessage:
    """This class is a message of a capture, and its answer."""

    number: int
    """Number of that packet in the capture which came first."""
    mode: Mode
    values: dict[str, int]
    """Values of the SES headers of its first packet."""
    forms: tuple[str, ...]
    """Forms of these headers."""
    length: int
    """Number of bytes that it asks for, or carries."""
    size: int
    """Number of bytes that it carries."""
    data: bytearray = field(default_factory=bytearray)
    """These bytes, as far as they have come."""
    return_code: int | None = None
    """Return code in the capture, or None if it was not answered there."""
    modified: int | None = None
    """Number of bytes that the target says to have stored, or None if it does not say."""
    answer: bytearray = field(default_factory=bytearray)
    """Bytes that were read or fetched."""
    name: int = 0
    """message_id, or a number below 0 for a message that has none."""
    _error: int | None = None
    _have: int = 0
    _whole: bool = False
    _answered: int = 0
    _psns: set[int] = field(default_factory=set)
    """PSNs of its packets that were not acknowledged."""
    _asked: list[int] = field(default_factory=list)
    """PSNs of all its packets."""

    @property
    def opcode(self) -> Opcode:
        return Opcode(self.values["opcode"])

    @property
    def fetches(self) -> bool:
        """Return whether the answer has data."""
        return OPCODE_PROFILES[self.opcode].fetches


@dataclass(slots=True)
class _Flow:
    """PSNs and messages of a PDC, or of RUDI, that are open."""

    start: int
    by_psn: dict[int, CapturedMessage] = field(default_factory=dict)
    by_id: dict[int, CapturedMessage] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    """PSNs of messages that were whole; a retransmission of one begins nothing."""


MessageT = TypeVar("MessageT")


@dataclass(frozen=True, slots=True)
class MessageBegan(Generic[MessageT]):
    """This event says that all of a message has been sent in the capture."""

    message: MessageT


@dataclass(frozen=True, slots=True)
class MessageEnded(Generic[MessageT]):
    """This event says that a message was answered in the capture."""

    message: MessageT


UetEvent = MessageBegan[CapturedMessage] | MessageEnded[CapturedMessage]


class MessageReader:
    """This class reads the messages of a side."""

    def __init__(self, file: str) -> None:
        self.left_out: Counter[str] = Counter()
        """Number of messages that are not played, by the reason."""
        self._file = file
        self._flows: dict[Any, _Flow] = {}
        self._bytes = self._open = 0

    def read(self, packets: Iterable[SidePacket[AnswerPacket]]) -> Iterator[UetEvent]:
        """Yield what happens to messages, in the order of the capture. Raises `LocalError` if too much is open at a
        time."""
        for one in packets:
            if one.answer.fault:  # it was damaged on its way
                continue
            yield from self._sent(one) if one.sent else self._received(one)
        for flow in self._flows.values():
            left = sum(not message._whole for message in flow.by_id.values())
            if left:
                self.left_out["not whole in the capture"] += left

    # What the side sent

    def _sent(self, one: SidePacket[AnswerPacket]) -> Iterator[UetEvent]:
        values = one.answer.values
        mode = _MODES.get(values["type"])  # type: ignore[call-overload]
        if mode is None or values.get("next_hdr") not in _REQUESTS or "opcode" not in values:
            return
        flow, psn = self._flow(values, mode)
        if psn in flow.done or psn in flow.by_psn:  # sent again
            return
        if mode is not Mode.UUD:
            flow.done.add(psn)
            if len(flow.done) > MOST_OPEN:
                flow.done = set(sorted(flow.done)[MOST_OPEN // 2 :])
        name = values.get("message_id", -1 - psn)
        message = flow.by_id.get(name)
        if values["opcode"] == Opcode.MSG_ERROR and message is not None and not message._whole:
            message._whole = True  # its sender gave it up, as it was refused before its end
            message.data.extend(bytes(message.size - len(message.data)))
            yield MessageBegan(message)
            if self._is_ended(message):
                yield self._end(message, flow)
            return
        if message is None or message._whole:
            message = self._begin(one, mode)
            if message is None:
                return
            message.name = name
            flow.by_id[name] = message
        flow.by_psn[psn] = message
        message._psns.add(psn)
        message._asked.append(psn)
        self._place(message, one.answer)
        if self._bytes > MOST_BYTES or self._open > MOST_OPEN:
            many = f"{count(self._open, 'message')} of {count(self._bytes, 'byte')} are open"
            raise LocalError(
                self._file, f"at {numbered(one.number)}, {many}",
                f"at most {MOST_OPEN:,} messages and {MOST_BYTES:,} bytes; --frames has no such limit",
                id="too-many",
            )  # fmt: skip
        if message._whole:
            yield MessageBegan(message)
            if mode is Mode.UUD:
                flow.by_psn.clear()
                flow.by_id.clear()
                yield self._end(message, flow)

    def _flow(self, values: Any, mode: Mode) -> tuple[_Flow, int]:
        """Return the flow of a request, and its PSN there."""
        if mode in (Mode.RUDI, Mode.UUD):
            return self._flows.setdefault(mode, _Flow(0)), values.get("pkt_id", 0)
        flow = self._flows.get(values["spdcid"])
        psn = values["psn"]
        if "psn_offset" in values:
            start = (psn - values["psn_offset"]) & 0xFFFFFFFF
            if flow is None or flow.start != start:
                flow = self._flows[values["spdcid"]] = _Flow(start)
        elif flow is None:
            flow = self._flows[values["spdcid"]] = _Flow(psn)
        return flow, psn

    def _begin(self, one: SidePacket[AnswerPacket], mode: Mode) -> CapturedMessage | None:
        values = one.answer.values
        forms = tuple(layer.form for layer in one.answer.packet.layers if layer.form.startswith("ses."))
        atomic = values["opcode"] in ATOMICS
        length = len(one.answer.payload) if atomic else values.get("request_length", 0)
        is_known = values["opcode"] in OPCODE_PROFILES
        carries = is_known and OPCODE_PROFILES[Opcode(values["opcode"])].payload
        reasons = {
            "an opcode that no application sends": values["opcode"] in _NOT_PLAYED or not is_known,
            "rendezvous, whose data the target reads": values["opcode"] in RENDEZVOUS,
            f"longer than {MOST_BYTES:,} bytes": length > MOST_BYTES,
        }
        reason = next((reason for reason, holds in reasons.items() if holds), None)
        if reason is not None:
            self.left_out += Counter({reason: int(bool(values.get("som", 1)))})  # once a message
            return None
        self._open += 1
        return CapturedMessage(one.number, mode, dict(values), forms, length, length if carries else 0)

    def _place(self, message: CapturedMessage, answer: AnswerPacket) -> None:
        """Put the payload of a packet in its place in the message."""
        values = answer.values
        late = values.get("som") and message.values.get("som") == 0  # the first packet was not sent first
        if late and values["opcode"] == message.values["opcode"]:
            message.values = dict(values)
            message.forms = tuple(layer.form for layer in answer.packet.layers if layer.form.startswith("ses."))
        at = 0 if values.get("som", 1) else values.get("message_offset", 0)
        size = min(len(answer.payload), max(message.size - at, 0))
        if size and len(message.data) < at + size:
            self._bytes += at + size - len(message.data)
            message.data.extend(bytes(at + size - len(message.data)))
        message.data[at : at + size] = answer.payload[:size]
        message._have += size
        if OPCODE_PROFILES[message.opcode].payload:
            message._whole = message._have >= message.size
        else:  # some stacks do not mark the end of a read of one packet
            message._whole = bool(values.get("eom") or (values.get("som") and message.length <= PAYLOAD_MTUS[0]))

    # What the other side answered

    def _received(self, one: SidePacket[AnswerPacket]) -> Iterator[MessageEnded[CapturedMessage]]:
        answer = one.answer
        values = answer.values
        if answer.kind == "rudi_response":
            flow, psn, cack = self._flows.get(Mode.RUDI), values["pkt_id"], None
        elif answer.kind == "ack" and "ack_psn" in values:
            flow, psn, cack = self._flows.get(values["dpdcid"]), values["ack_psn"], values["cack_psn"]
        elif answer.kind == "request":
            flow, psn, cack = self._flows.get(values.get("dpdcid")), None, None
        else:
            return
        if flow is None:
            return
        message = self._answered_message(flow, values, psn)
        if message is not None and "return_code" in values:
            self._note(message, answer)
        acked = [psn] if psn is not None and values.get("opcode") != ResponseOpcode.NO_RESPONSE else []
        if cack is not None:
            acked += [seen for seen in flow.by_psn if (cack - seen) & 0xFFFFFFFF < 1 << 31]
        touched = dict.fromkeys([] if message is None else [message])
        for seen in acked:
            ended = flow.by_psn.get(seen)
            if ended is not None:
                ended._psns.discard(seen)
                touched[ended] = None
                if not ended.fetches:  # data may name the PSN that asked for it
                    del flow.by_psn[seen]
        for found in touched:
            if found.return_code is None and self._is_ended(found):
                yield self._end(found, flow)

    @staticmethod
    def _answered_message(flow: _Flow, values: Any, psn: int | None) -> CapturedMessage | None:
        name = values.get("read_request_message_id") or values.get("message_id")
        found = flow.by_id.get(name) if name else None
        if found is None and "original_request_psn" in values:
            found = flow.by_psn.get(values["original_request_psn"])
        return found or (None if psn is None else flow.by_psn.get(psn))

    def _note(self, message: CapturedMessage, answer: AnswerPacket) -> None:
        """Note what a response says of its message."""
        values = answer.values
        if values["return_code"] not in _ANSWERED:
            message._error = values["return_code"] if message._error is None else message._error
        if values.get("opcode") == ResponseOpcode.RESPONSE:
            message.modified = values.get("modified_length")
        if message.fetches and values.get("next_hdr") in (NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL):
            at, data = values.get("message_offset", 0), answer.payload
            if at + len(data) > max(message.length, _ELEMENT):
                return
            message.answer.extend(bytes(max(at + len(data) - len(message.answer), 0)))
            message.answer[at : at + len(data)] = data
            message._answered += len(data)

    @staticmethod
    def _is_ended(message: CapturedMessage) -> bool:
        if not message._whole:
            return False
        if message._error is not None:
            return True
        if message.fetches:
            return message._answered >= (message.length if message.opcode is Opcode.READ else 1)
        return not message._psns

    def _end(self, message: CapturedMessage, flow: _Flow) -> MessageEnded[CapturedMessage]:
        message.return_code = ReturnCode.OK if message._error is None else message._error
        self._bytes -= len(message.data)
        self._open -= 1
        for psn in message._asked:
            flow.by_psn.pop(psn, None)
        if flow.by_id.get(message.name) is message:
            del flow.by_id[message.name]
        return MessageEnded(message)
