"""Finds the request of what comes back: of responses by PSN, of read data by message id or PSN (ses.md §9)."""

from uetproto.audit.judge import Judge
from uetproto.audit.pds import tracker_state as pds
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.ses.tracker_answers import LONG, RESPONSES, SHORT, AuditedAnswer, ReturnedData
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.ses.tracker_message import AuditedMessage
from uetproto.audit.ses.tracker_sender import PSNS, MessageDirection, MessageSender, shorten
from uetproto.audit.ses.tracker_tokens import Tokens
from uetproto.wire.headers.uet_pds import AckReq
from uetproto.wire.headers.uet_ses import DEFERRABLES, ResponseList, ResponseOpcode, ReturnCode


class MessageReplies:
    """Responses and read data of all PDCs."""

    def __init__(self, judge: Judge, tokens: Tokens, complete: bool) -> None:
        self._tokens = tokens
        self._complete = complete
        self._responded = judge.on(SesEvent.RESPONSE)
        self._answered = judge.on(SesEvent.ANSWERED)
        self._returned = judge.on(SesEvent.RETURNED)
        self._returned_oddly = judge.on(SesEvent.RETURNED_ODDLY)

    def response(self, direction: MessageDirection, seen: ObservedPacket, psn: int | None) -> None:
        """A response in an ACK, for the request `psn` of `direction`."""
        sender: MessageSender = direction.ses
        request: AuditedMessage | ReturnedData | None = None
        number = 0
        ses: Head = seen.ses
        if type(ses) not in RESPONSES:
            return
        sent = sender.sent.get(psn)  # type: ignore[arg-type]  # None is no key of it
        if sent is not None:
            request, number = sent
            usual = ses == request.good if type(request) is AuditedMessage else ses[:-1] == request.good
            if usual and not sender.refused:
                self._responded(request, seen)
                return
        message = request if isinstance(request, AuditedMessage) else None
        if message is not None and psn is not None and self._has_usual_data(message, seen, psn):
            self._responded(message, seen)
            self._take_data(ReturnedData(sender, message, seen, psn, True, True), seen, usual=True)
            message.answers = {psn: (ses, seen.number)}
            return
        earlier = message.answers.get(psn) if message is not None and psn is not None and message.answers else None
        answer = AuditedAnswer(sender, psn, request, number, earlier)
        self._responded(answer, seen)
        self._answered(answer, seen)
        if message is None or psn is None:
            return
        if ses.opcode == ResponseOpcode.RESPONSE_W_DATA and type(ses) in (LONG, SHORT):
            self._take_data(ReturnedData(sender, message, seen, psn, True, True), seen)
        if ses.opcode in (ResponseOpcode.RESPONSE, ResponseOpcode.RESPONSE_W_DATA) and earlier is None:
            message.answers = message.answers or {}
            message.answers[psn] = (ses, seen.number)
            shorten(message.answers, PSNS)
        if ses.return_code == ReturnCode.DISABLED_GEN:
            sender.refused[message.index] = (message.head.ri_generation, psn, seen.number)
        if message.opcode in DEFERRABLES and ses.list == ResponseList.OVERFLOW and ses.return_code == ReturnCode.OK:
            message.stopped = True
            self._end(message, seen, psn)
        elif ses.return_code not in (ReturnCode.OK, ReturnCode.NULL):
            self._end(message, seen, psn)
            self._tokens.refused(message, seen)
            message.data_state = None  # data behind it is looked at

    @staticmethod
    def _has_usual_data(message: AuditedMessage, seen: ObservedPacket, psn: int) -> bool:
        """It is the first answer to an atomic, with the data that was to come."""
        ses: Head = seen.ses
        return (
            ses[:-1] == message.fetched
            and ses[-1] == psn
            and seen.head.req == AckReq.CLEAR
            and not message.answers
            and not message.returned
            and message.returned_in_ack is None
            and not message.sender.refused
        )

    @staticmethod
    def _end(message: AuditedMessage, seen: ObservedPacket, psn: int) -> None:
        """An error, or a stop. What ACKs guarantee its sender has read once it clears the PSN."""
        ses: Head = seen.ses
        if not message.sender.loose and message.ended is None and seen.head.req == AckReq.CLEAR:
            message.ended = (psn, ses.return_code, seen.number)
            message.usual = None

    def data(self, direction: pds.PdcDirection, seen: ObservedPacket, first: bool) -> None:
        """Read data in the return direction, which is `direction`; the reads are those of the other."""
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
        if isinstance(message, AuditedMessage) and ses[:-1] == message.data and self._is_usual(message, seen):
            offset: int = ses[-1]
            if message.data_state.sure:
                message.returned[offset] = (psn, seen.number)  # type: ignore[index]  # usual: there is one
            sender.sent[psn] = (message.data_state, seen.number)
            if not psn & 1023:
                sender.trim()
                shorten(message.returned, PSNS)  # type: ignore[arg-type]
            self._returned(message.data_state, seen)
            return
        sure = self._complete or type(ses) is SHORT
        returned = ReturnedData(
            reader, message if isinstance(message, AuditedMessage) else None, seen, psn, False, sure
        )
        sender.sent[psn] = (returned, seen.number)
        if not psn & 1023:
            sender.trim()
        self._take_data(returned, seen)

    def _take_data(self, returned: ReturnedData, seen: ObservedPacket, usual: bool = False) -> None:
        message = returned.message
        if message is not None and message.returned_in_ack is None and returned.sure:
            message.returned_in_ack = returned.in_ack
        if message is not None and returned.response_id == message.message_id and len(returned.sender.echoed) < 2:
            returned.sender.echoed.add(returned.response_id)
        self._returned(returned, seen)
        if message is not None and message.returned is None:
            message.returned = {}
        if not usual:
            self._returned_oddly(returned, seen)
        if message is not None and message.returned is not None:
            if returned.sure:
                message.returned.setdefault(returned.offset(seen.ses), (returned.psn, seen.number))
                shorten(message.returned, PSNS)
            if message.data is not None and seen.ses[:-1] == message.data and not returned.in_ack:  # type: ignore[index]
                message.data_state = returned

    @staticmethod
    def _is_usual(message: AuditedMessage, seen: ObservedPacket) -> bool:
        """It is one of many packets in the return direction that are as the read expects, and the next."""
        ses: Head = seen.ses
        offset: int = ses[-1]
        mtu = message.mtu
        return (
            message.data_state is not None
            and not message.returned_in_ack
            and seen.size == mtu
            and offset % mtu == 0
            and offset + mtu <= message.length
            and offset not in message.returned  # type: ignore[operator]  # data_state: there is one
        )
