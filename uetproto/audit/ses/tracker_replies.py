# SPDX-License-Identifier: GPL-2.0-only
"""This module finds the request of each answer. It finds the request of a response by PSN, and the request of read data
by message id or PSN (ses.md §9)."""

from collections.abc import Mapping
from typing import cast

from uetproto.audit.contract import MessageDirection, OrderedDirection
from uetproto.audit.judge import Tell
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.ses.tracker_answers import LONG, RESPONSES, SHORT, AuditedAnswer
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.ses.tracker_message import (
    PSNS,
    AuditedMessage,
    GuaranteedAnswer,
    MessageSender,
    ReturnedData,
    shorten,
)
from uetproto.audit.ses.tracker_tokens import Tokens
from uetproto.wire.headers.uet_pds import AckReq
from uetproto.wire.headers.uet_ses import DEFERRABLES, ResponseList, ResponseOpcode, ReturnCode


class MessageReplies:
    """This class follows the responses and the read data of one vantage point."""

    __slots__ = ("_answered", "_complete", "_responded", "_returned", "_returned_oddly", "_tokens")

    def __init__(self, tell: Mapping[SesEvent, Tell], tokens: Tokens, complete: bool) -> None:
        self._tokens = tokens
        self._complete = complete
        self._responded, self._answered = tell[SesEvent.RESPONSE], tell[SesEvent.ANSWERED]
        self._returned, self._returned_oddly = tell[SesEvent.RETURNED], tell[SesEvent.RETURNED_ODDLY]

    def response(self, direction: MessageDirection, seen: ObservedPacket, psn: int | None) -> None:
        """Follow a response that an ACK carries. The response answers the request with PSN `psn` in `direction`; `psn`
        is None if this PSN is not known."""
        sender: MessageSender = direction.ses
        request: AuditedMessage | ReturnedData | None = None
        number = 0
        ses: Head = seen.ses
        if type(ses) not in RESPONSES:
            return
        sent = sender.sent.get(psn)  # type: ignore[arg-type]  # None is no key of it
        if sent is not None:
            request, number = sent
            expected = ses == request.success if isinstance(request, AuditedMessage) else _fits(request, ses)
            if expected and not sender.refused and not (type(request) is AuditedMessage and request.answers):
                if psn is not None and not sender.unordered and ses.modified_length:
                    sender.successes.setdefault(psn, seen.number)
                self._responded(request, seen)
                return
        message = request if isinstance(request, AuditedMessage) else None
        if message is not None and psn is not None and self._has_expected_data(message, seen, psn):
            self._responded(message, seen)
            self._take_data(ReturnedData(sender, message, seen, psn, True, True), seen, expected=True)
            message.answers = {psn: GuaranteedAnswer(ses, seen.number, seen.content)}
            return
        earlier = message.answers.get(psn) if message is not None and psn is not None and message.answers else None
        cleared = None if sender.unordered else cast(OrderedDirection, direction).newest_clear
        success = None if psn is None else sender.successes.get(psn)
        answer = AuditedAnswer(sender, psn, request, number, earlier, success, cleared)
        self._responded(answer, seen)
        self._answered(answer, seen)
        if message is None or psn is None:
            return
        if ses.opcode == ResponseOpcode.RESPONSE_W_DATA and type(ses) in (LONG, SHORT):
            self._take_data(ReturnedData(sender, message, seen, psn, True, True), seen)
        if ses.opcode in (ResponseOpcode.RESPONSE, ResponseOpcode.RESPONSE_W_DATA) and earlier is None:
            message.answers = message.answers or {}
            message.answers[psn] = GuaranteedAnswer(ses, seen.number, seen.content)
            shorten(message.answers, PSNS)
        if ses.return_code == ReturnCode.DISABLED_GEN:
            sender.refused[message.index] = (message.head.ri_generation, psn, seen.number)
        if message.opcode in DEFERRABLES and ses.list == ResponseList.OVERFLOW and ses.return_code == ReturnCode.OK:
            message.stopped = True
            self._end(message, seen, psn)
        elif ses.return_code not in (ReturnCode.OK, ReturnCode.NULL):
            self._end(message, seen, psn)
            self._tokens.refused(message, seen)
            message.data_state = None  # from now on each packet of read data is judged by the rules

    @staticmethod
    def _has_expected_data(message: AuditedMessage, seen: ObservedPacket, psn: int) -> bool:
        """Return whether this is the first answer to an atomic operation, with the data that is due."""
        ses: Head = seen.ses
        return (
            ses[:-1] == message.atomic_response
            and ses[-1] == psn
            and seen.head.req == AckReq.CLEAR
            and not message.answers
            and not message.returned
            and message.returned_in_ack is None
            and not message.sender.refused
        )

    @staticmethod
    def _end(message: AuditedMessage, seen: ObservedPacket, psn: int) -> None:
        """Note an error or a stop. The sender has read a guaranteed answer once it clears the PSN."""
        ses: Head = seen.ses
        if not message.sender.unordered and message.ended is None and seen.head.req == AckReq.CLEAR:
            message.ended = (psn, ses.return_code, seen.number)
            message.expected = None

    def data(self, direction: OrderedDirection, seen: ObservedPacket, first: bool) -> None:
        """Follow a packet of read data that is sent in `direction`; the reads were sent in the opposite direction.
        `first` says that the PSN of the packet was not seen before."""
        ses: Head = seen.ses
        if not first or type(ses) not in (LONG, SHORT):
            return
        psn: int = seen.head.psn
        sender: MessageSender = direction.ses
        reader: MessageSender = direction.other.ses
        message: AuditedMessage | ReturnedData | None
        if type(ses) is LONG:
            message = reader.messages.get(ses.read_request_message_id)
        else:
            message = reader.sent.get(ses.original_request_psn, (None, 0))[0]
        if isinstance(message, AuditedMessage) and ses[:-1] == message.data and self._is_expected(message, seen):
            offset: int = ses[-1]
            state: ReturnedData = message.data_state  # type: ignore[assignment]  # there is one, and so is `returned`
            if state.sure:
                message.returned[offset] = (psn, seen.number)  # type: ignore[index]
            sender.sent[psn] = (state, seen.number)
            if not psn & 1023:
                sender.trim()
                shorten(message.returned, PSNS)  # type: ignore[arg-type]
            self._returned(state, seen)
            return
        sure = self._complete or type(ses) is SHORT
        returned = ReturnedData(
            reader, message if isinstance(message, AuditedMessage) else None, seen, psn, False, sure
        )
        sender.sent[psn] = (returned, seen.number)
        if not psn & 1023:
            sender.trim()
        self._take_data(returned, seen)

    def _take_data(self, returned: ReturnedData, seen: ObservedPacket, expected: bool = False) -> None:
        message = returned.message
        if message is not None and message.returned_in_ack is None and returned.sure:
            message.returned_in_ack = returned.in_ack
        self._returned(returned, seen)
        if message is not None and message.returned is None:
            message.returned = {}
        if not expected:
            self._returned_oddly(returned, seen)
        if message is not None and message.responder_id is None and type(seen.ses) is LONG:
            message.responder_id = returned.response_id, seen.number
        if message is not None and message.returned is not None:
            if returned.sure:
                message.returned.setdefault(returned.offset(seen.ses), (returned.psn, seen.number))
                shorten(message.returned, PSNS)
            if message.data is not None and seen.ses[:-1] == message.data and not returned.in_ack:
                message.data_state = returned

    @staticmethod
    def _is_expected(message: AuditedMessage, seen: ObservedPacket) -> bool:
        """Return whether this is a further packet in the return direction, with an offset that is still due."""
        ses: Head = seen.ses
        offset: int = ses[-1]
        mtu = message.mtu
        return (
            message.data_state is not None
            and message.responder_id is not None
            and not message.responder_id[0]
            and not message.returned_in_ack
            and seen.size == mtu
            and offset % mtu == 0
            and offset + mtu <= message.length
            and offset not in message.returned  # type: ignore[operator]  # data_state: there is one
        )


def _fits(returned: ReturnedData, ses: Head) -> bool:
    """Return whether this is the usual response to read data; it may tell the length of the packet or of the read."""
    most = 0 if returned.message is None else returned.message.length
    return ses[:-1] == returned.success and (not most or ses.modified_length <= most)
