"""Initiator side of SES: operations become messages, answers become completions.

UE 1.0.1 §3.4.1, §3.4.3; ses.md §7.1, §9.3, §12, §13.
"""

from enum import IntEnum, auto
from itertools import islice
from typing import Any

from uetproto.engine.config import SesConfig
from uetproto.engine.contract import PDC_MODES, Buffer, Completion, Event, Mode, PdsError, Write
from uetproto.engine.memory import as_memory
from uetproto.engine.messages import build_later, parse_ses_response
from uetproto.engine.ses_segments import WriteSegments, split
from uetproto.engine.uet_pds import Pds
from uetproto.errors import LocalError, RemoteError
from uetproto.wire.uet_pds import NextHdr
from uetproto.wire.uet_ses import Opcode, ReturnCode

_LAST_ID = 0xFFFE
"""0xFFFF is never allocated (ses.md §3)."""
_OK = bytes((0, ReturnCode.OK))
"""First two bytes of the default response that says OK."""


class MessageState(IntEnum):
    """ses.md §12."""

    QUEUED = 0
    SENDING = auto()
    WAIT = auto()
    """The last packet left."""
    DRAIN = auto()
    """In error, waiting for what is not acknowledged."""
    DONE = auto()
    ERROR = auto()


class MessageInput(IntEnum):
    FIRST_SENT = 0
    LAST_SENT = auto()
    REFUSED = auto()
    """A response with a return code other than OK and NULL."""
    ALL_ANSWERED = auto()
    """Every packet sent was answered, the last one too."""
    PDS_ERROR = auto()


_S, _I = MessageState, MessageInput
# Looked up once: with every packet, Class.MEMBER would cost as much as a call.
_DRAIN = MessageState.DRAIN
_SUCCESS, _GOOD = ReturnCode.OK, (ReturnCode.OK, ReturnCode.NULL)

MESSAGE: dict[tuple[MessageState, MessageInput], tuple[str, MessageState]] = {
    (_S.QUEUED, _I.FIRST_SENT): ("go_on", _S.SENDING),
    (_S.QUEUED, _I.PDS_ERROR): ("fail", _S.ERROR),
    (_S.SENDING, _I.LAST_SENT): ("go_on", _S.WAIT),
    (_S.SENDING, _I.REFUSED): ("keep_error", _S.DRAIN),
    (_S.SENDING, _I.PDS_ERROR): ("fail", _S.ERROR),
    (_S.WAIT, _I.REFUSED): ("keep_error", _S.DRAIN),
    (_S.WAIT, _I.ALL_ANSWERED): ("complete", _S.DONE),
    (_S.WAIT, _I.PDS_ERROR): ("fail", _S.ERROR),
    (_S.DRAIN, _I.LAST_SENT): ("go_on", _S.DRAIN),
    (_S.DRAIN, _I.REFUSED): ("go_on", _S.DRAIN),
    (_S.DRAIN, _I.ALL_ANSWERED): ("complete", _S.ERROR),
    (_S.DRAIN, _I.PDS_ERROR): ("fail", _S.ERROR),
    (_S.ERROR, _I.PDS_ERROR): ("go_on", _S.ERROR),
}
"""Actions are methods of `WriteMessage`; a pair that is not here cannot happen. Retries of messages come with sends."""


class Operation:
    """One `Write` of the application: one message, or several above `max_msg_size`; one completion."""

    __slots__ = ("code", "context", "error", "first_id", "length", "open", "peer")

    def __init__(self, work: Write) -> None:
        self.context: Any = work.context
        self.peer = work.peer
        self.length = 0
        self.first_id = 0
        self.open = 0
        self.code = ReturnCode.OK
        self.error: PdsError | None = None


class WriteMessage:
    """One message on its way: `service.Outgoing` for PDS, and the count of its answers."""

    __slots__ = (
        "all_sent", "answered", "context", "lock", "message_id", "mode", "next_hdr", "operation", "owner", "peer",
        "reserved", "return_code", "segments", "sent", "state", "work",
    )  # fmt: skip

    def __init__(self, owner: "SesInitiator", operation: Operation, work: Write, message_id: int, mtu: int) -> None:
        self.owner = owner
        self.operation = operation
        self.work = work
        self.peer = work.peer
        self.mode: Mode = work.mode
        self.message_id = message_id
        self.next_hdr: int = NextHdr.REQUEST_STD
        self.context = 0
        self.reserved = self.lock = False
        self.segments = WriteSegments(work, message_id, mtu)
        self.sent = 0
        self.all_sent = False
        """EOM has left, in the last packet or in MSG_ERROR."""
        self.answered = 0
        self.state = MessageState.QUEUED
        self.return_code = ReturnCode.OK

    def step(self, event: MessageInput) -> None:
        action, state = MESSAGE[self.state, event]
        self.state = state
        getattr(self, action)()

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        """Packet after packet; after an error MSG_ERROR takes the place of the rest (ses.md §5.12)."""
        index = self.sent
        self.sent = index + 1
        if self.state is _DRAIN:
            header, payload, last = self._message_error(index), b"", True
        else:
            header, payload = self.segments.packet(index)  # type: ignore[assignment]
            last = index + 1 == self.segments.count
            if index == 0:
                self.step(MessageInput.FIRST_SENT)
        if last:
            self.all_sent = True
            self.step(MessageInput.LAST_SENT)
        return index, header, payload, last

    def _message_error(self, index: int) -> bytes:
        work = self.work
        return build_later(
            Opcode.MSG_ERROR, work.delivery_complete, 0, work.relative, work.completion_data is not None, 1,
            self.message_id, work.job_id, work.pid_on_fep, work.resource_index, work.offset, work.initiator, work.key,
            0, index * self.segments.mtu, self.segments.length,
        )  # fmt: skip

    def answer(self, code: int) -> None:
        """One packet was answered; the first error stays (ses.md §9.3)."""
        self.answered += 1
        if code not in _GOOD and self.return_code == ReturnCode.OK:
            self.return_code = _return_code(code)
            self.step(MessageInput.REFUSED)
        if self.answered == self.sent and self.all_sent:
            self.step(MessageInput.ALL_ANSWERED)

    # Actions

    def go_on(self) -> None:
        """Nothing to do."""

    def keep_error(self) -> None:
        """The return code is kept; MSG_ERROR ends the message if EOM was not sent."""

    def complete(self) -> None:
        """Every answer is there: the operation ends, with success or with the first error."""
        self.owner.ended(self)

    def fail(self) -> None:
        """PDS cannot deliver: the operation ends in error."""
        self.owner.ended(self)


def _return_code(code: int) -> ReturnCode:
    try:
        return ReturnCode(code)
    except ValueError:
        return ReturnCode.UNCOR  # vendor or reserved: an error all the same


class SesInitiator:
    """Makes messages of work and completions of answers. PDS calls `on_response` and `on_error` (pds.md §4)."""

    def __init__(self, config: SesConfig, pds: Pds, events: list[Event]) -> None:
        self.config = config
        self.pds = pds
        self.events = events
        self.messages: dict[int, WriteMessage] = {}
        """Outstanding messages by message_id: unique over all PDCs of the endpoint (ses.md §3)."""
        self.bad_responses = 0
        """Answers with the id of another message; they say nothing about this one."""
        self._next_id = config.first_message_id

    def submit(self, work: Write, now: int) -> None:
        """Queues a write. Raises `LocalError` naming the field and what is legal."""
        _check(work)
        memory = as_memory(work.data)
        free = _LAST_ID + 1 - self.config.first_message_id - len(self.messages)
        pieces = list(islice(split(work, self.config.max_msg_size), free + 1))
        if len(pieces) > free:
            raise LocalError(f"length: more messages of max_msg_size than the {free} message_ids that are free")
        operation = Operation(work)
        operation.length = memory.length - work.start if work.length is None else work.length
        operation.open = len(pieces)
        for number, piece in enumerate(pieces):
            message_id = self._allocate()
            if number == 0:
                operation.first_id = message_id
            message = WriteMessage(self, operation, piece, message_id, self.config.payload_mtu)
            self.messages[message_id] = message
            self.pds.send(message, now)

    def _allocate(self) -> int:
        """The next id that is not outstanding; `submit` saw to it that there is one."""
        while True:
            message_id = self._next_id
            self._next_id = message_id + 1 if message_id < _LAST_ID else self.config.first_message_id
            if message_id not in self.messages:
                return message_id

    def on_response(self, message: Any, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        """The answer to one packet of a `WriteMessage`; None: the default one (ses.md §9.3)."""
        if response is None or next_hdr == NextHdr.NONE or response[:2] == _OK:
            message.answer(_SUCCESS)
            return
        try:
            answer = parse_ses_response(response, next_hdr)
        except RemoteError as error:
            message.answer(error.code or ReturnCode.UNCOR)
            return
        if answer.message_id not in (0, message.message_id):
            self.bad_responses += 1
            message.answer(ReturnCode.NULL)
        else:
            message.answer(answer.return_code)

    def on_error(self, message: Any, index: int, error: PdsError) -> None:
        """A packet of a `WriteMessage` was not delivered, or not answered (pds.md §6.7)."""
        if message.operation.error is None:
            message.operation.error = error
        message.step(MessageInput.PDS_ERROR)

    def ended(self, message: WriteMessage) -> None:
        """A message came to its end; the last one of an operation brings the completion."""
        if self.messages.pop(message.message_id, None) is None:
            return
        operation = message.operation
        if operation.code == ReturnCode.OK:
            operation.code = message.return_code
        operation.open -= 1
        if operation.open == 0:
            code = operation.code if operation.error is None else ReturnCode.UNDELIVERABLE
            self.events.append(
                Completion(
                    operation.context, operation.peer, operation.first_id, operation.length, code, operation.error
                )
            )


_RANGES = {
    "key": 64, "job_id": 24, "offset": 64, "pid_on_fep": 12, "resource_index": 12, "initiator": 32,
}  # fmt: skip


def _check(work: Write) -> None:
    """What an initiator must not send (ses.md §2)."""
    for name, bits in _RANGES.items():
        value = getattr(work, name)
        if not isinstance(value, int) or not 0 <= value < 1 << bits:
            raise LocalError(f"{name}: {value!r} is not legal; legal: 0 … {(1 << bits) - 1:#x}")
    data = work.completion_data
    if data is not None and not 0 <= data < 1 << 64:
        raise LocalError(f"completion_data: {data!r} is not legal; legal: None, 0 … {(1 << 64) - 1:#x}")
    if not isinstance(work.mode, Mode) or work.mode not in PDC_MODES:
        raise LocalError(f"mode: {work.mode!r} is not legal; legal: {', '.join(m.name for m in PDC_MODES)}")
