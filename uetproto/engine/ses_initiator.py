"""Initiator side of SES: operations become messages, answers become completions.

UE 1.0.1 §3.4.1, §3.4.3; ses.md §5, §7.1, §9.3, §12, §13.
"""

import heapq
from collections import deque
from collections.abc import Callable
from enum import IntEnum, auto

from uetproto.engine.config import SesConfig
from uetproto.engine.contract import NEVER, PDC_MODES, Buffer, Completion, Event, Mode, PdsError, Rng
from uetproto.engine.messages import RETURN_DATA
from uetproto.engine.service import Connection, Refusal, Response
from uetproto.engine.ses_headers import (
    SesRequest,
    SesResponse,
    build_response,
    parse_ses_response,
)
from uetproto.engine.ses_lanes import Lane
from uetproto.engine.ses_opcodes import DEFERRABLES, OPERATIONS, Selects
from uetproto.engine.ses_segments import Plan, Reassembly, Segments, build_end
from uetproto.engine.ses_work import Job, plan_of
from uetproto.engine.uet_pds import Pds
from uetproto.errors import LocalError, RemoteError
from uetproto.wire.uet_pds import NackCode, NextHdr
from uetproto.wire.uet_ses import Opcode, ResponseList, ResponseOpcode, ReturnCode

_LAST_ID = 0xFFFE
"""0xFFFF is never allocated (ses.md §3)."""
_IDS = 0xFFFE
"""How many there are."""
_OK = bytes((0, ReturnCode.OK))
"""First two bytes of the default response that says OK."""
_REPAIRS = 256
"""BAD_GENERATION in a row that are repaired at once (ses.md §12)."""
BACK = frozenset({ReturnCode.NO_MATCH, ReturnCode.DISABLED_GEN, ReturnCode.UNCOR_TRNSNT})
"""Return codes of class back: again, after a while (ses.md §9.5)."""


class MessageState(IntEnum):
    """ses.md §12."""

    QUEUED = 0
    SENDING = auto()
    WAIT = auto()
    """The last packet left."""
    BACKOFF = auto()
    """Refused for now: it is sent again, whole, after a while."""
    DEFERRED = auto()
    """The target stopped it, and will ask for it (ses.md §5.7)."""
    DRAIN = auto()
    """In error, waiting for what is not acknowledged."""
    DONE = auto()
    ERROR = auto()


class MessageInput(IntEnum):
    FIRST_SENT = 0
    LAST_SENT = auto()
    REFUSED = auto()
    """A response with a return code of class perm."""
    REFUSED_FOR_NOW = auto()
    """A response of class back."""
    STALE = auto()
    """BAD_GENERATION: the response has the generation that is good."""
    STOPPED = auto()
    """A deferrable message meets no buffer."""
    RESTART = auto()
    """A good DEFERRABLE_RTR."""
    TIME = auto()
    """The back-off is over."""
    TIMEOUT = auto()
    """Nobody came for a deferred message, or read a rendezvous."""
    EXHAUSTED = auto()
    """Refused too often."""
    COMPLETE = auto()
    """Every packet was answered, the data is there, a rendezvous is read."""
    PDS_ERROR = auto()


_S, _I = MessageState, MessageInput
# Looked up once: with every packet, Class.MEMBER would cost as much as a call.
_WAIT, _DRAIN = MessageState.WAIT, MessageState.DRAIN
_SUCCESS, _GOOD = ReturnCode.OK, (ReturnCode.OK, ReturnCode.NULL)

MESSAGE: dict[tuple[MessageState, MessageInput], tuple[str, MessageState]] = {
    (_S.QUEUED, _I.FIRST_SENT): ("go_on", _S.SENDING),
    (_S.QUEUED, _I.PDS_ERROR): ("fail", _S.ERROR),
    (_S.SENDING, _I.LAST_SENT): ("go_on", _S.WAIT),
    (_S.SENDING, _I.REFUSED): ("keep_error", _S.DRAIN),
    (_S.SENDING, _I.REFUSED_FOR_NOW): ("back_off", _S.BACKOFF),
    (_S.SENDING, _I.STALE): ("send_again", _S.QUEUED),
    (_S.SENDING, _I.STOPPED): ("defer", _S.DEFERRED),
    (_S.SENDING, _I.PDS_ERROR): ("fail", _S.ERROR),
    (_S.WAIT, _I.REFUSED): ("keep_error", _S.DRAIN),
    (_S.WAIT, _I.REFUSED_FOR_NOW): ("back_off", _S.BACKOFF),
    (_S.WAIT, _I.STALE): ("send_again", _S.QUEUED),
    (_S.WAIT, _I.STOPPED): ("defer", _S.DEFERRED),
    (_S.WAIT, _I.COMPLETE): ("complete", _S.DONE),
    (_S.WAIT, _I.TIMEOUT): ("give_up", _S.ERROR),
    (_S.WAIT, _I.PDS_ERROR): ("fail", _S.ERROR),
    (_S.BACKOFF, _I.TIME): ("send_again", _S.QUEUED),
    (_S.BACKOFF, _I.EXHAUSTED): ("complete", _S.ERROR),
    (_S.DEFERRED, _I.RESTART): ("send_again", _S.QUEUED),
    (_S.DEFERRED, _I.TIMEOUT): ("give_up", _S.ERROR),
    (_S.DRAIN, _I.LAST_SENT): ("go_on", _S.DRAIN),
    (_S.DRAIN, _I.REFUSED): ("go_on", _S.DRAIN),
    (_S.DRAIN, _I.COMPLETE): ("complete", _S.ERROR),
    (_S.DRAIN, _I.PDS_ERROR): ("fail", _S.ERROR),
}
"""Actions are methods of `Transfer`; a pair that is not here cannot happen: what an earlier attempt still hears never
gets here."""


class Transfer:
    """One message through all its attempts; each of them is another message to the target and to PDS (ses.md §12)."""

    __slots__ = (
        "attempt", "base_wait", "code", "deadline", "error", "exposed", "got", "job", "kept_id", "lane", "modified",
        "number", "owner", "plan", "read", "refusals", "repairs", "state", "timed_out", "to_read", "token",
    )  # fmt: skip

    def __init__(self, owner: "SesInitiator", job: Job, plan: Plan, number: int) -> None:
        self.owner = owner
        self.job = job
        self.plan = plan
        self.number = number
        """Order of submission."""
        self.lane: Lane | None = None
        self.state = MessageState.QUEUED
        self.attempt: TxMessage | None = None
        self.code = ReturnCode.OK
        """The last error."""
        self.error: PdsError | None = None
        self.timed_out = False
        self.refusals = self.repairs = 0
        self.base_wait = 0
        self.deadline = NEVER
        self.token: int | None = None
        """initiator_restart_token of a deferrable send."""
        self.kept_id: int | None = None
        """message_id that a restart keeps (observed.md `deferral_tokens`)."""
        self.got = Reassembly(plan.request_length) if job.sink is not None else None
        """What came of the data of a read."""
        self.to_read = self.read = 0
        """Bytes of a rendezvous that its target is to read, and has read."""
        self.exposed: Callable[[], None] | None = None
        """Takes the region of a rendezvous back."""
        self.modified: int | None = None
        """Bytes that the target says it has; None: it did not say."""

    def step(self, event: MessageInput, now: int) -> None:
        action, state = MESSAGE[self.state, event]
        self.state = state
        getattr(self, action)(now)

    @property
    def whole(self) -> bool:
        """The data of a read is there; the target of a rendezvous has read what it wants."""
        return (self.got is None or self.got.complete) and self.read >= self.to_read

    # Actions

    def go_on(self, now: int) -> None:
        """Nothing to do."""

    def keep_error(self, now: int) -> None:
        """The return code is kept; MSG_ERROR ends the message if EOM was not sent."""

    def send_again(self, now: int) -> None:
        """A new message, from the first byte on (of a restart: from where its target asked)."""
        self._drop_attempt()
        self.owner.start(self)

    def back_off(self, now: int) -> None:
        """Refused: the whole message again after a wait that doubles each time; on ROD in its turn (ses.md §12)."""
        self._drop_attempt()
        self.refusals += 1
        limit = self.owner.config.message_retry_limit
        if limit and self.refusals > limit:
            self.step(MessageInput.EXHAUSTED, now)
        else:
            self.owner.wait_before_retry(self, now)

    def defer(self, now: int) -> None:
        """The target will send DEFERRABLE_RTR (ses.md §5.7 D3)."""
        if self.owner.config.deferral_tokens == "reuse" and self.attempt is not None:
            self.kept_id = self.attempt.message_id
        self._drop_attempt()
        self.owner.arm(self, now + self.owner.config.deferral_time)

    def complete(self, now: int) -> None:
        """Every answer is there: success, or the first error."""
        self.owner.ended(self, now)

    def fail(self, now: int) -> None:
        """PDS cannot deliver."""
        self.owner.ended(self, now)

    def give_up(self, now: int) -> None:
        """Nobody came for it in time."""
        self.timed_out = True
        self.owner.ended(self, now)

    def _drop_attempt(self) -> None:
        """What this attempt still hears says nothing any more."""
        if self.attempt is not None:
            self.attempt.transfer = None
            self.attempt = None


class TxMessage:
    """One attempt on its way: `service.Outgoing` for PDS, and the count of its answers."""

    __slots__ = (
        "_all_sent", "_answered", "context", "lock", "message_id", "mode", "next_hdr", "opcode", "owner",
        "pdc", "peer", "psn", "reserved", "segments", "sent", "stopped", "transfer",
    )  # fmt: skip

    def __init__(self, owner: "SesInitiator", transfer: Transfer, message_id: int) -> None:
        job, plan = transfer.job, transfer.plan
        self.owner = owner
        self.transfer: Transfer | None = transfer
        """None: the message goes on without this attempt."""
        self.peer: int = job.peer
        self.mode: Mode = job.mode
        self.opcode = plan.opcode
        self.message_id = message_id
        self.next_hdr: int = plan.form
        self.context = job.pdc_context
        self.reserved = False
        self.lock = job.sink is not None and job.mode in PDC_MODES
        """A read holds its PDC until it has its data (ses.md §5.4)."""
        self.pdc: Connection | None = None
        """Of a lock: the PDC that is held."""
        self.psn = 0
        """Of a lock: PSN of the first packet."""
        self.segments = Segments(plan, message_id, owner.config.payload_mtu)
        self.sent = 0
        self.stopped = False
        self._all_sent = False
        """EOM has left, in the last packet or in the one that ends the message early."""
        self._answered = 0

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        """Packet after packet; what ends a message early takes the place of the rest (ses.md §5.12, §5.7 D3)."""
        index = self.sent
        self.sent = index + 1
        transfer = self.transfer
        payload: Buffer
        if (transfer is None or transfer.state is _DRAIN) and self.mode in PDC_MODES and index:
            opcode = self.opcode if self.stopped else Opcode.MSG_ERROR
            plan = self.segments.plan
            offset = min(index * self.segments.mtu, plan.body)
            header, payload, last = build_end(plan, opcode, self.message_id, offset), b"", True
            if self.stopped and plan.extension:
                payload = plan.extension
        else:
            header, payload = self.segments.packet(index)
            last = index + 1 == self.segments.count
            if index == 0 and transfer is not None and transfer.state is MessageState.QUEUED:
                transfer.step(MessageInput.FIRST_SENT, 0)
        if last:
            self._all_sent = True
            if transfer is not None:
                transfer.step(MessageInput.LAST_SENT, 0)
        return index, header, payload, last

    @property
    def all_answered(self) -> bool:
        return self._all_sent and self._answered == self.sent

    def began(self, pdc: Connection, psn: int) -> None:
        """Of a read: the PDC that it holds, and the PSN of its request."""
        self.pdc, self.psn = pdc, psn

    # Answers (ses.md §9.3)

    def on_response(self, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        """The answer to one packet; None: the default one."""
        self._answered += 1
        if response is not None and next_hdr != NextHdr.NONE and response[:2] != _OK:
            self._read(next_hdr, response, now)
        if self._answered == self.sent and self._all_sent:
            self.owner.look(self, now)

    def _read(self, next_hdr: int, response: Buffer, now: int) -> None:
        transfer, owner = self.transfer, self.owner
        try:
            answer = parse_ses_response(response, next_hdr)
        except RemoteError as error:
            if transfer is not None:
                owner.refused(self, transfer, error.code or ReturnCode.UNCOR, 0, now)
            return
        if answer.message_id not in (0, self.message_id):
            owner.bad_responses += 1
            return
        if transfer is None:
            return
        if answer.return_code not in _GOOD:
            owner.refused(self, transfer, answer.return_code, answer.ri_generation, now)
        elif next_hdr in RETURN_DATA:
            code = owner.take_data(transfer, answer, response[answer.size :])
            if code is not None:
                owner.refused(self, transfer, code, 0, now)
        elif answer.opcode == ResponseOpcode.RESPONSE:
            transfer.modified = answer.modified_length
            transfer.to_read = min(transfer.to_read, max(0, answer.modified_length - self.segments.plan.body))
            stops = self.opcode in DEFERRABLES and answer.modified_length < self.segments.plan.request_length
            if stops and answer.list == ResponseList.OVERFLOW and transfer.state in (MessageState.SENDING, _WAIT):
                self.stopped = True
                transfer.step(MessageInput.STOPPED, now)

    def on_error(self, index: int, error: PdsError, now: int) -> None:
        """A packet was not delivered, or not answered (pds.md §6.7)."""
        self.owner.forget(self)
        transfer = self.transfer
        if transfer is None:
            return
        transfer.error = error
        if transfer.state not in (MessageState.DONE, MessageState.ERROR):
            transfer.step(MessageInput.PDS_ERROR, now)


class SesInitiator:
    """Makes messages of work and completions of answers."""

    def __init__(self, config: SesConfig, pds: Pds, rng: Rng, events: list[Event]) -> None:
        self.config = config
        self.pds = pds
        self.rng = rng
        self.events = events
        self.messages: dict[int, TxMessage] = {}
        """Outstanding messages by message_id: unique over all PDCs of the endpoint (ses.md §3)."""
        self.transfers: dict[Transfer, None] = {}
        """Messages without an end, in the order of submission."""
        self.deferrals: dict[int, Transfer] = {}
        """Deferrable sends by token."""
        self.bad_responses = 0
        """Answers with the id of another message, and return data for none."""
        self.generations: dict[tuple[int, int, int, int, int], int] = {}
        """What BAD_GENERATION told: by {peer, JobID, PIDonFEP, space, RI}."""
        self._lanes: dict[tuple[int, int, int, int, int], Lane] = {}
        self._next_id = config.first_message_id
        self._next_token = 0 if config.deferral_tokens == "reuse" else 1
        self._number = 0
        self._starved: deque[Transfer] = deque()
        """Attempts that wait for a message id."""
        self._due: list[Callable[[int], None]] = []
        """What a call of PDS brought about: done at the next poll."""
        self._timers: list[tuple[int, int, Transfer]] = []

    # Work

    def submit(self, job: Job, now: int) -> None:
        """Queues the messages of one operation. Raises `LocalError` when there are not enough message ids."""
        free = _IDS - max(len(self.messages), len(self.transfers))
        if job.count > free:
            raise LocalError(f"length: more messages of max_msg_size than the {free} message_ids that are free")
        job.open = job.count
        for piece in range(job.count):
            plan = plan_of(job, piece)
            self._number += 1
            transfer = Transfer(self, job, plan, self._number)
            self.transfers[transfer] = None
            if plan.opcode in DEFERRABLES:
                self._give_token(transfer)
            if job.expose is not None:
                transfer.to_read = plan.request_length - plan.body
                transfer.exposed = job.expose(transfer)
            lane = self._lane_of(transfer)
            if lane is None or not lane.holds_back(transfer):
                self._send(transfer, now)

    def _lane_of(self, transfer: Transfer) -> Lane | None:
        """ROD keeps the order of sends also when one of them is refused (ses.md §12)."""
        if transfer.job.mode is not Mode.ROD or not self._is_messaging(transfer):
            return None
        key = self._service(transfer)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane()
        transfer.lane = lane
        return lane

    def _is_messaging(self, transfer: Transfer) -> bool:
        return OPERATIONS[Opcode(transfer.plan.opcode)].selects is Selects.RECEIVE

    def _service(self, transfer: Transfer) -> tuple[int, int, int, int, int]:
        plan = transfer.plan
        job_id = plan.job_id if plan.rel else -1
        return (
            transfer.job.peer, job_id, plan.pid_on_fep, OPERATIONS[Opcode(plan.opcode)].space, plan.resource_index
        )  # fmt: skip

    def _give_token(self, transfer: Transfer) -> None:
        """T_i of a deferrable send: not that of another one (ses.md §5.7 D1)."""
        while self._next_token in self.deferrals:
            self._next_token = self._after_token(self._next_token)
        transfer.token = self._next_token
        self._next_token = self._after_token(self._next_token)
        self.deferrals[transfer.token] = transfer
        transfer.plan = transfer.plan.moved(offset=transfer.token << 32)

    def _after_token(self, token: int) -> int:
        return token + 1 if token < 0xFFFFFFFF else (0 if self.config.deferral_tokens == "reuse" else 1)

    def start(self, transfer: Transfer) -> None:
        """Queues another attempt; not at once, PDS may be in the middle of something."""
        self._due.append(lambda now: self._send(transfer, now))

    def _send(self, transfer: Transfer, now: int) -> None:
        if transfer.state is not MessageState.QUEUED:
            return
        if self._is_messaging(transfer) and transfer.job.mode in PDC_MODES:
            generation = self.generations.get(self._service(transfer), 0)
            if generation != transfer.plan.generation:
                transfer.plan = transfer.plan.moved(generation=generation)
        if len(self.messages) >= _IDS:
            self._starved.append(transfer)
            return
        transfer.attempt = attempt = TxMessage(self, transfer, self._allocate(transfer))
        if attempt.opcode != Opcode.DATAGRAM_SEND:
            self.messages[attempt.message_id] = attempt
        if transfer.job.first_id is None:
            transfer.job.first_id = attempt.message_id
        self.pds.send(attempt, now)

    def _allocate(self, transfer: Transfer) -> int:
        """The next id that is not outstanding; a datagram has none, a restart may keep its own (observed.md)."""
        if transfer.plan.opcode == Opcode.DATAGRAM_SEND:
            return 0
        if transfer.kept_id is not None:
            return transfer.kept_id
        while True:
            message_id = self._next_id
            self._next_id = message_id + 1 if message_id < _LAST_ID else self.config.first_message_id
            if message_id not in self.messages:
                return message_id

    # What answers bring about

    def look(self, message: TxMessage, now: int) -> None:
        """All packets of an attempt are answered."""
        transfer = message.transfer
        if transfer is None:
            self.forget(message)
            return
        if transfer.state is _DRAIN or (transfer.state is _WAIT and transfer.whole):
            self.forget(message)
            transfer.step(MessageInput.COMPLETE, now)
        elif transfer.read < transfer.to_read and transfer.deadline == NEVER:
            self.arm(transfer, now + self.config.rendezvous_time)

    def refused(self, message: TxMessage, transfer: Transfer, code: int, generation: int, now: int) -> None:
        """A return code that is an error: the first one counts (ses.md §9.3, §9.5)."""
        if transfer.state not in (MessageState.SENDING, _WAIT):
            return  # in DRAIN: the first error stays
        transfer.code = known = _return_code(code)
        reliable = transfer.job.mode in PDC_MODES
        if known is ReturnCode.BAD_GENERATION and reliable and transfer.repairs < _REPAIRS:
            transfer.repairs += 1
            self.generations[self._service(transfer)] = generation
            if transfer.lane is not None and not transfer.lane.is_oldest(transfer):
                transfer.refusals -= 1  # this one does not count
                transfer.step(MessageInput.REFUSED_FOR_NOW, now)  # an older one may be refused, too: it goes first
            else:
                transfer.step(MessageInput.STALE, now)
        elif known in BACK and reliable:
            transfer.repairs = 0
            transfer.step(MessageInput.REFUSED_FOR_NOW, now)
        else:
            transfer.step(MessageInput.REFUSED, now)

    def wait_before_retry(self, transfer: Transfer, now: int) -> None:
        """Draws the first wait, doubles it each time (ses.md §12); on ROD the oldest refused one goes first."""
        config = self.config
        if not transfer.base_wait:
            spread = config.backoff_most - config.backoff_least
            transfer.base_wait = config.backoff_least + (spread * self.rng.getrandbits(32) >> 32)
        wait = min(transfer.base_wait << max(0, transfer.refusals - 1), config.backoff_limit)
        if transfer.lane is None or transfer.lane.refuse(transfer):
            self.arm(transfer, now + wait)

    def take_data(self, transfer: Transfer, answer: SesResponse, data: Buffer) -> ReturnCode | None:
        """Data of a read or of a fetching atomic (ses.md §9.6); a return code: what is wrong with it."""
        sink, got, length = transfer.job.sink, transfer.got, transfer.plan.request_length
        if sink is None or got is None:
            return ReturnCode.OP_VIOLATION
        if transfer.job.fetches:
            if got.complete or len(data) != sink.length:
                return ReturnCode.OP_VIOLATION
            sink.write(0, transfer.job.from_wire(data))
            got.add(0, length)
            return None
        size, at = len(data), answer.message_offset
        if size != answer.payload_length or at + size > length or answer.modified_length not in (length, size):
            return ReturnCode.OP_VIOLATION
        if size or not length:
            if not got.add(at, size):
                return ReturnCode.OP_VIOLATION
            sink.write(transfer.plan.start + at, data)
        return None

    def on_return_data(self, pdc: Connection, next_hdr: int, data: Buffer, payload: Buffer, now: int) -> Response:
        """Data in the return direction: a PDS request of the target (ses.md §9.6, §10 special paths)."""
        try:
            answer = parse_ses_response(data, next_hdr)
        except RemoteError as error:
            return self._reply(0, 0, _return_code(error.code or ReturnCode.OP_VIOLATION))
        message = self._reader(pdc, next_hdr, answer)
        transfer = message.transfer if message is not None else None
        if message is None or transfer is None or transfer.state not in (MessageState.SENDING, _WAIT, _DRAIN):
            self.bad_responses += 1
            return self._reply(answer.response_message_id, answer.job_id, ReturnCode.UNDELIVERABLE)
        code: ReturnCode | None
        if answer.job_id != transfer.plan.job_id:
            code = ReturnCode.BAD_JOB_ID
        else:
            code = self.take_data(transfer, answer, payload)
        if code is None and transfer.whole and message.all_answered:
            self._due.append(lambda at: self.look(message, at))
        return self._reply(answer.response_message_id, answer.job_id, code, len(payload))

    def _reader(self, pdc: Connection, next_hdr: int, answer: SesResponse) -> TxMessage | None:
        """Whose data it is: by message id, or of the short forms by the PSN of the request."""
        if next_hdr == NextHdr.RESPONSE_DATA:
            message = self.messages.get(answer.message_id)
            return message if message is not None and message.pdc is pdc else None
        psn = answer.original_request_psn
        for message in self.messages.values():
            if message.pdc is pdc and message.next_hdr != NextHdr.REQUEST_STD and message.psn == psn:
                return message
        return None

    def _reply(self, message_id: int, job_id: int, code: ReturnCode | None, length: int = 0) -> Response:
        if code is None:
            header = build_response(ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, message_id, job_id, length)
            return Response(header)
        return Response(build_response(ResponseOpcode.RESPONSE, code, message_id, job_id, 0), gtd=True)

    def was_read(self, transfer: Transfer, size: int, now: int) -> None:
        """The target of a rendezvous has read, and acknowledged, `size` bytes."""
        transfer.read += size
        message = transfer.attempt
        if transfer.whole and message is not None and message.all_answered:
            self._due.append(lambda at: self.look(message, at))

    # Deferral (ses.md §5.7, §5.8)

    def on_restart(self, request: SesRequest, now: int) -> ReturnCode | Refusal | None:
        """DEFERRABLE_RTR: token, owner, JobID, deferred; None: the message starts again, nothing else changes.

        One that overtakes the answer that stops the message is to come again: PDS repeats it.
        """
        theirs, mine = request.rtr_tokens
        transfer = self.deferrals.get(mine)
        fine = (
            transfer is not None and request.initiator == transfer.plan.initiator
            and request.job_id == transfer.plan.job_id and bool(request.som and request.eom)
        )  # fmt: skip
        if transfer is None or not fine:
            return ReturnCode.OP_VIOLATION
        if transfer.state in (MessageState.SENDING, _WAIT) and not transfer.plan.offset & 0xFFFFFFFF:
            return Refusal(NackCode.NO_RESOURCE)
        length, at = transfer.plan.request_length, request.buffer_offset
        if transfer.state is not MessageState.DEFERRED or (at % self.config.payload_mtu and at != length):
            return ReturnCode.OP_VIOLATION
        if at > length:
            return ReturnCode.OP_VIOLATION
        del self.deferrals[mine]
        if self.config.deferral_tokens == "strict" and theirs:
            self._give_token(transfer)
            tokens = transfer.plan.offset | theirs
        else:
            self.deferrals[mine] = transfer
            tokens = mine << 32
        plan = transfer.plan
        transfer.plan = plan.moved(
            offset=tokens, start=plan.start + at, request_length=length - at, body=plan.body - at
        )
        transfer.deadline = NEVER
        transfer.step(MessageInput.RESTART, now)
        return None

    # The end

    def forget(self, message: TxMessage) -> None:
        """Its id may be used again, its PDC may be closed."""
        if self.messages.get(message.message_id) is message:
            del self.messages[message.message_id]
            if self._starved:
                self.start(self._starved.popleft())
        pdc, message.pdc = message.pdc, None
        if pdc is not None:
            self._due.append(lambda now: self._unlock(pdc, now))

    def _unlock(self, pdc: Connection, now: int) -> None:
        if self.pds.pdcs.get(pdc.local_id) is pdc:
            self.pds.unlock(pdc.local_id, now)

    def ended(self, transfer: Transfer, now: int) -> None:
        """A message came to its end; the last one of an operation brings the completion."""
        if self.transfers.pop(transfer, self) is self:
            return
        transfer.deadline = NEVER
        if transfer.attempt is not None:
            transfer.attempt.transfer = None
            if transfer.attempt.all_answered:
                self.forget(transfer.attempt)
        if transfer.token is not None and self.deferrals.get(transfer.token) is transfer:
            del self.deferrals[transfer.token]
        if transfer.exposed is not None:
            transfer.exposed()
        if transfer.lane is not None:
            self._due.extend(self._resumed(other) for other in transfer.lane.leave(transfer))
        job = transfer.job
        job.take_end(transfer)
        if job.open:
            return
        code = job.code if job.error is None else ReturnCode.UNDELIVERABLE
        completion = Completion(
            job.context, job.peer, job.first_id or 0, job.length, code, job.error, transfer.plan.opcode, job.modified,
            job.refusals, job.timed_out,
        )  # fmt: skip
        if job.on_end is not None:
            job.on_end(completion, now)
        else:
            self.events.append(completion)

    def _resumed(self, transfer: Transfer) -> Callable[[int], None]:
        """One that waited for an older one: refused before, or not sent yet."""

        def go(now: int) -> None:
            if transfer.state is MessageState.BACKOFF:
                transfer.deadline = NEVER
                transfer.step(MessageInput.TIME, now)
            else:
                self._send(transfer, now)

        return go

    # Time

    def arm(self, transfer: Transfer, at: int) -> None:
        transfer.deadline = at
        heapq.heappush(self._timers, (at, transfer.number, transfer))

    def on_time(self, now: int) -> None:
        """What calls of PDS left to be done, and the timers that are due."""
        timers = self._timers
        while timers and timers[0][0] <= now:
            at, _, transfer = heapq.heappop(timers)
            if transfer.deadline == at:
                transfer.deadline = NEVER
                waits = transfer.state is MessageState.BACKOFF
                transfer.step(MessageInput.TIME if waits else MessageInput.TIMEOUT, now)
        while self._due:
            due, self._due = self._due, []
            for action in due:
                action(now)

    def deadline(self) -> int:
        """When `on_time` has something to do; NEVER: no timer is armed."""
        if self._due:
            return 0
        timers = self._timers
        while timers and timers[0][2].deadline != timers[0][0]:
            heapq.heappop(timers)
        return timers[0][0] if timers else NEVER


def _return_code(code: int) -> ReturnCode:
    try:
        return ReturnCode(code)
    except ValueError:
        return ReturnCode.UNCOR  # vendor or reserved: an error all the same


__all__ = ["MESSAGE", "MessageInput", "MessageState", "SesInitiator", "Transfer", "TxMessage"]
