# SPDX-License-Identifier: GPL-2.0-only
"""The initiator side of SES sends messages for operations, and reports completions when they are answered.

UE 1.0.1 §3.4.1, §3.4.3; ses.md §5, §7.1, §9.3, §12, §13.
"""

import heapq
from collections import deque
from collections.abc import Callable
from functools import partial

from uetproto.engine.config import SesConfig
from uetproto.engine.contract import (
    NEVER,
    PDC_MODES,
    Buffer,
    Completion,
    Event,
    Mode,
    PdcErrorReason,
    PdsError,
    Rng,
    Write,
)
from uetproto.engine.memory import as_memory
from uetproto.engine.pds.service import SES_SIZE, Connection, PacketDelivery, Refusal, Response
from uetproto.engine.ses.headers import SesRequest, SesResponse, build_response, parse_ses_response
from uetproto.engine.ses.peer_order import PeerOrder
from uetproto.engine.ses.transfer import GOOD, LoneWrite, MessageInput, MessageState, MessageTransfer, TxMessage
from uetproto.engine.ses.work import SesOperation, check_fields, plan_of, stretch
from uetproto.errors import LocalError, RemoteError
from uetproto.wire.headers.uet_pds import NackCode, NextHdr
from uetproto.wire.headers.uet_ses import (
    DEFERRABLES,
    OPCODE_PROFILES,
    Opcode,
    ResponseOpcode,
    ReturnCode,
    Selects,
    Space,
)

# Looked up once: with every message, Class.MEMBER would cost as much as a call.
_QUEUED, _WAIT, _DRAIN, _ERROR = MessageState.QUEUED, MessageState.WAIT, MessageState.DRAIN, MessageState.ERROR
_COMPLETE, _RUD, _ROD, _RECEIVE, _REGION = (
    MessageInput.COMPLETE, Mode.RUD, Mode.ROD, Selects.RECEIVE, Selects.REGION
)  # fmt: skip
_WRITE, _DATAGRAM, _OK = Opcode.WRITE, Opcode.DATAGRAM_SEND, ReturnCode.OK
_new = tuple.__new__  # a named tuple in a third of the time
_LAST_ID = 0xFFFE
"""Largest message_id: 0xFFFF is never allocated (ses.md §3)."""
_IDS = 0xFFFE
"""Number of message_ids."""
_REPAIRS = 256
"""Number of BAD_GENERATION in a row after which a message is sent again at once (ses.md §12)."""
_READING = (MessageState.SENDING, MessageState.WAIT, MessageState.DRAIN)
"""States in which data of a read may arrive."""
BACK = frozenset({ReturnCode.NO_MATCH, ReturnCode.DISABLED_GEN, ReturnCode.UNCOR_TRNSNT})
"""Return codes of class `back`. A message that is refused with one of these codes is sent again after a wait (ses.md
§9.5)."""


class SesInitiator:
    """The SES of an initiator sends the messages of operations, and completes the operations."""

    def __init__(self, config: SesConfig, pds: PacketDelivery, rng: Rng, events: list[Event]) -> None:
        self.config = config
        self.pds = pds
        self.rng = rng
        self.events = events
        self.messages: dict[int, TxMessage | LoneWrite] = {}
        """Outstanding attempts to send a message, by message_id, which is unique over all PDCs of the endpoint (ses.md
        §3)."""
        self.short_reads: dict[tuple[Connection | None, int], TxMessage] = {}
        """Outstanding reads whose header has no message_id, by PDC and PSN of the request."""
        self.transfers: dict[MessageTransfer, None] = {}
        """Messages that have not ended, in the order of submission, but for lone writes."""
        self.deferrals: dict[int, MessageTransfer] = {}
        """Deferrable sends that may be restarted, by initiator restart token."""
        self.rma_has_generation = config.rma_generation == "untagged"
        """Whether reads, writes and atomics carry the generation of untagged sends to their resource index."""
        self._has_lone_writes = not (self.rma_has_generation or config.optimized_headers)
        self.reading: dict[Connection | None, int] = {}
        """Number of packets of reads, by PDC, whose data has not arrived; it is counted only with `max_reads`."""
        self.bad_responses = 0
        """Number of responses with the message_id of another message, and of return data that belongs to no read."""
        self.generations: dict[tuple[int, int, int, int, int], int] = {}
        """Generation of a resource index that the last BAD_GENERATION reported, by peer, JobID, PIDonFEP, space and
        resource index."""
        self._orders: dict[tuple[int, int, int, int], PeerOrder] = {}
        self._next_id = config.first_message_id
        self._next_token = 0 if config.deferral_tokens == "reuse" else 1
        self._number = 0
        self._starved: deque[MessageTransfer] = deque()
        """Messages whose next attempt waits for a free message_id."""
        self.due: list[Callable[[int], None]] = []
        """Actions that run at the next poll, as PDS cannot be called back while it calls SES."""
        self.timers: list[tuple[int, int, MessageTransfer]] = []
        """Heap of the timers of messages: {time, number of the message, message}."""
        self.waits = (self.due, self.timers)
        """Containers of what `deadline` waits for: if all are empty, it is NEVER."""

    # Work

    def submit(self, operation: SesOperation, now: int) -> None:
        """Queue the messages of one operation. Raises `LocalError` when fewer message_ids are free than the operation
        has messages.
        """
        free = _IDS - max(len(self.messages), len(self.transfers))
        if operation.count > free:
            raise LocalError(
                "length", f"more messages of max_msg_size than the {free} message_ids that are free",
                id="resources-exhausted"
            )  # fmt: skip
        operation.open = operation.count
        for piece in range(operation.count):
            plan = plan_of(operation, piece)
            self._number += 1
            transfer = MessageTransfer(self, operation, plan, self._number)
            self.transfers[transfer] = None
            if plan.opcode in DEFERRABLES:
                self._give_token(transfer)
            if operation.expose is not None:
                transfer.to_read = plan.request_length - plan.body
                transfer.exposed = operation.expose(partial(self.was_read, transfer))
            order = self._order_of(transfer) if operation.mode is _ROD else None
            if order is None or not order.holds_back(transfer):
                self._send(transfer, now)

    def write_alone(self, work: Write, now: int) -> bool:
        """Queue the message of a write that has one packet on RUD. Return False, and do nothing, if it is another
        write, which `submit` takes. Raises `LocalError` as `operation_of` does."""
        message_id = self._next_id
        if (
            work.mode is not _RUD or work.sync is not None or message_id in self.messages
            or len(self.transfers) >= _IDS or not self._has_lone_writes
        ):  # fmt: skip
            return False
        check_fields(work)
        memory = as_memory(work.data)
        length = stretch(memory, work.start, work.length)
        if length > self.config.payload_mtu or length > self.config.max_msg_size:
            return False
        self._number += 1
        self._next_id = message_id + 1 if message_id < _LAST_ID else self.config.first_message_id
        self.messages[message_id] = message = LoneWrite(self, work, memory, length, self._number, message_id)
        self.pds.send(message, now)
        return True

    def _order_of(self, transfer: MessageTransfer) -> PeerOrder:
        """Return the `PeerOrder` that keeps a message on ROD in order, also after a refusal (ses.md §12, §13.4)."""
        peer, job_id, pid, _, index = self._service(transfer)
        key = (peer, job_id, pid, index)  # without the space, as a send is executed after earlier writes
        order = self._orders.get(key)
        if order is None:
            order = self._orders[key] = PeerOrder()
        transfer.order = order
        return order

    def _service(self, transfer: MessageTransfer) -> tuple[int, int, int, int, int]:
        plan = transfer.plan
        job_id = plan.job_id if plan.rel else -1
        space = OPCODE_PROFILES[plan.opcode].space  # type: ignore[index]
        if space is Space.RMA:
            space = Space.SEND  # only with `rma_generation` untagged
        return transfer.operation.peer, job_id, plan.pid_on_fep, space, plan.resource_index

    def _give_token(self, transfer: MessageTransfer) -> None:
        """Allocate the initiator restart token of a deferrable send, which no other send has (ses.md §5.7 D1)."""
        while self._next_token in self.deferrals:
            self._next_token = self._after_token(self._next_token)
        transfer.token = self._next_token
        self._next_token = self._after_token(self._next_token)
        self.deferrals[transfer.token] = transfer
        transfer.plan = transfer.plan.moved(offset=transfer.token << 32)

    def _after_token(self, token: int) -> int:
        return token + 1 if token < 0xFFFFFFFF else (0 if self.config.deferral_tokens == "reuse" else 1)

    def start(self, transfer: MessageTransfer) -> None:
        """Queue another attempt for the next poll."""
        self.due.append(lambda now: self._send(transfer, now))

    def _send(self, transfer: MessageTransfer, now: int) -> None:
        if transfer.state is not _QUEUED or transfer.attempt is not None:
            return  # the message has ended, or is being sent
        opcode = transfer.plan.opcode
        row = OPCODE_PROFILES[opcode]  # type: ignore[index]
        if self._has_generation(row.selects) and transfer.operation.mode in PDC_MODES:
            generation = self.generations.get(self._service(transfer), 0)
            if generation != transfer.plan.generation:
                transfer.plan = transfer.plan.moved(generation=generation)
        if len(self.messages) >= _IDS:
            self._starved.append(transfer)
            return
        message_id = self._next_id
        if message_id in self.messages or transfer.kept_id is not None or opcode == _DATAGRAM:
            message_id = self._allocate(transfer)
        else:
            self._next_id = message_id + 1 if message_id < _LAST_ID else self.config.first_message_id
        transfer.attempt = attempt = TxMessage(self, transfer, message_id)
        if opcode != _DATAGRAM:
            self.messages[attempt.message_id] = attempt
        if transfer.operation.first_id is None:
            transfer.operation.first_id = attempt.message_id
        self.pds.send(attempt, now)

    def _has_generation(self, selects: Selects) -> bool:
        """Return whether requests of an opcode carry the generation of their resource index (ses.md §2.4)."""
        return selects is _RECEIVE or (selects is _REGION and self.rma_has_generation)

    def _allocate(self, transfer: MessageTransfer) -> int:
        """Return the next free message_id; 0 for a datagram, which has none, or the id that a retry keeps."""
        if transfer.plan.opcode == _DATAGRAM:
            return 0
        if transfer.kept_id is not None and transfer.kept_id not in self.messages:
            return transfer.kept_id
        while True:
            message_id = self._next_id
            self._next_id = message_id + 1 if message_id < _LAST_ID else self.config.first_message_id
            if message_id not in self.messages:
                return message_id

    # The effects of answers

    def look(self, message: TxMessage, now: int) -> None:
        """Handle an attempt of which all packets are answered.

        The message is completed now, with two exceptions: a read waits until all its data has arrived, and a rendezvous
        waits until the target has read the rest of the message.
        """
        transfer = message.transfer
        if transfer is None:
            self.forget(message)
            return
        state = transfer.state
        plain = transfer.got is None and not transfer.to_read  # then all has arrived
        if state is _DRAIN or (state is _WAIT and (plain or transfer.whole)):
            transfer.step(_COMPLETE, now)  # `ended` forgets the attempt
        elif transfer.read < transfer.to_read and transfer.deadline == NEVER:
            self.arm(transfer, now + self.config.rendezvous_time)

    def refused(self, message: TxMessage, transfer: MessageTransfer, code: int, generation: int, now: int) -> None:
        """Handle a response with an error code. Later errors of the same attempt are ignored (ses.md §9.3, §9.5)."""
        if transfer.state not in (MessageState.SENDING, MessageState.WAIT):
            return  # in DRAIN, the first error counts
        transfer.code = known = _return_code(code)
        if known is ReturnCode.BAD_GENERATION and self._is_repairable(message, transfer, generation):
            transfer.repairs += 1
            self.generations[self._service(transfer)] = generation
            if transfer.order is not None and not transfer.order.is_oldest(transfer):
                transfer.refusals -= 1  # `back_off` counts this refusal, which is none
                transfer.step(MessageInput.REFUSED_FOR_NOW, now)  # an older message may be refused, and goes first
            else:
                transfer.step(MessageInput.STALE, now)
        elif known in BACK:
            transfer.repairs = 0
            transfer.step(MessageInput.REFUSED_FOR_NOW, now)
        else:
            transfer.step(MessageInput.REFUSED, now)

    def _is_repairable(self, message: TxMessage, transfer: MessageTransfer, generation: int) -> bool:
        """Return whether a message that BAD_GENERATION refused can be sent again with another generation (ses.md
        §12)."""
        carries = self._has_generation(OPCODE_PROFILES[message.opcode].selects)  # type: ignore[index]
        return carries and generation != message.plan.generation and transfer.repairs < _REPAIRS

    def wait_before_retry(self, transfer: MessageTransfer, now: int) -> None:
        """Arm the back-off timer of a message. The first wait is random, and each later wait is twice as long (ses.md
        §12).

        On ROD only the oldest open message to a service has a timer. Later messages to the service wait until the
        oldest message has ended.
        """
        config = self.config
        if not transfer.base_wait:
            spread = config.backoff_most - config.backoff_least
            transfer.base_wait = config.backoff_least + (spread * self.rng.getrandbits(32) >> 32)
        wait = min(transfer.base_wait << max(0, transfer.refusals - 1), config.backoff_limit)
        if transfer.order is None or transfer.order.refuse(transfer):
            self.arm(transfer, now + wait)

    def take_data(self, transfer: MessageTransfer, answer: SesResponse, data: Buffer) -> ReturnCode | None:
        """Store the data that a read or fetching atomic returns (ses.md §9.6). Return the code of an error, or None."""
        sink, got, length = transfer.operation.sink, transfer.got, transfer.plan.request_length
        if sink is None or got is None:
            return ReturnCode.OP_VIOLATION
        if transfer.operation.fetches:
            if got.complete or len(data) != sink.length:
                return ReturnCode.OP_VIOLATION
            sink.write(0, transfer.operation.from_wire(data))
            got.add(0, length)
            return None
        size, at = len(data), answer.message_offset
        whole = size if answer.size == SES_SIZE[NextHdr.RESPONSE_DATA_SMALL] else length  # the small form has no length
        if size != answer.payload_length or at + size > length or answer.modified_length != whole:
            return ReturnCode.OP_VIOLATION
        if size or not length:
            if not got.add(at, size):
                return ReturnCode.OP_VIOLATION
            sink.write(transfer.plan.start + at, data)
        return None

    def on_return_data(self, pdc: Connection, next_hdr: int, data: Buffer, payload: Buffer, now: int) -> Response:
        """Store return data that arrives as a PDS request of the target, and return the response to this request
        (ses.md §9.6, §10).
        """
        self.count_read(pdc)
        try:
            answer = parse_ses_response(data, next_hdr)
        except RemoteError as error:
            return self._reply(0, 0, _return_code(error.code or ReturnCode.OP_VIOLATION))
        message = self._reader(pdc, next_hdr, answer)
        transfer = message.transfer if message is not None else None
        if message is None or transfer is None or transfer.state not in _READING:
            self.bad_responses += 1
            return self._reply(answer.response_message_id, answer.job_id, ReturnCode.UNDELIVERABLE)
        if answer.return_code not in GOOD:
            self.due.append(lambda at: self._spoilt(message, answer.return_code, at))
            return self._reply(answer.response_message_id, answer.job_id, None, 0)
        wrong = answer.job_id != transfer.plan.job_id
        code = ReturnCode.BAD_JOB_ID if wrong else self.take_data(transfer, answer, payload)
        if code is not None:
            bad = code
            self.due.append(lambda at: self._spoilt(message, bad, at))
        elif transfer.whole and message.all_answered:
            self.due.append(lambda at: self.look(message, at))
        whole = self.config.return_modified_length == "read"
        modified = answer.modified_length if whole else len(payload)
        return self._reply(answer.response_message_id, answer.job_id, code, modified)

    def count_read(self, pdc: Connection | None) -> None:
        """Note that a packet of a read is answered, with data or with an error, so that another may be sent."""
        left = self.reading.get(pdc, 0) - 1
        if left > 0:
            self.reading[pdc] = left
        else:
            self.reading.pop(pdc, None)

    def _spoilt(self, message: TxMessage, code: int, now: int) -> None:
        """Fail a read whose return data has an error or is illegal, as the data is not sent again."""
        if message.transfer is not None:
            self.refused(message, message.transfer, code, 0, now)
        if message.all_answered:
            self.look(message, now)

    def _reader(self, pdc: Connection, next_hdr: int, answer: SesResponse) -> TxMessage | None:
        """Return the read to which return data belongs: by message_id, or in the small form by the PSN of its
        request."""
        if next_hdr == NextHdr.RESPONSE_DATA:
            message = self.messages.get(answer.message_id)
            return message if isinstance(message, TxMessage) and message.pdc is pdc else None
        return self.short_reads.get((pdc, answer.original_request_psn))

    def _reply(self, message_id: int, job_id: int, code: ReturnCode | None, length: int = 0) -> Response:
        if code is None:
            header = build_response(ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, message_id, job_id, length)
            return Response(header)
        return Response(build_response(ResponseOpcode.RESPONSE, code, message_id, job_id, 0), gtd=True)

    def was_read(self, transfer: MessageTransfer, size: int, now: int) -> None:
        """Count `size` bytes of a rendezvous that the target has read."""
        transfer.read += size
        message = transfer.attempt
        if transfer.whole and message is not None and message.all_answered:
            self.due.append(lambda at: self.look(message, at))

    # Deferral (ses.md §5.7, §5.8)

    def on_restart(self, request: SesRequest, now: int) -> ReturnCode | Refusal | None:
        """Restart the message that a DEFERRABLE_RTR asks for, and return None, or return the code of an error.

        If the DEFERRABLE_RTR arrives before the response that stops the message, return a `Refusal`, so that the target
        retransmits the DEFERRABLE_RTR.
        """
        theirs, mine = request.rtr_tokens
        transfer = self.deferrals.get(mine)
        fine = (
            transfer is not None and request.initiator == transfer.plan.initiator
            and request.job_id == transfer.plan.job_id and bool(request.som and request.eom)
        )  # fmt: skip
        if transfer is None or not fine:
            return ReturnCode.OP_VIOLATION
        if transfer.state in (MessageState.SENDING, MessageState.WAIT) and not transfer.plan.offset & 0xFFFFFFFF:
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

    def stored(self, message: LoneWrite, now: int) -> None:
        """Report the completion of a lone write that was answered with success."""
        del self.messages[message.message_id]
        if self._starved:
            self.start(self._starved.popleft())
        length = message.length
        self.events.append(_new(Completion, (
            message.work_context, message.peer, message.message_id, length, _OK, None, _WRITE, length, 0, False
        )))  # fmt: skip

    def forget(self, message: TxMessage) -> None:
        """Release the message_id of an attempt, and the lock that a read holds on its PDC."""
        if self.messages.get(message.message_id) is message:
            del self.messages[message.message_id]
            if self._starved:
                self.start(self._starved.popleft())
        pdc = message.pdc
        if pdc is not None:
            message.pdc = None
            self.short_reads.pop((pdc, message.psn), None)
            self.due.append(lambda now: self._unlock(pdc, now))

    def on_closed(self, pdc: Connection) -> None:
        """Fail the reads that held a lock on a closed PDC, because their data cannot arrive any more (ses.md §5.4)."""
        self.reading.pop(pdc, None)
        for message in [message for message in self.messages.values() if message.pdc is pdc]:
            message.on_error(0, PdsError(PdcErrorReason.PEER_CLOSED), self.pds.now)

    def _unlock(self, pdc: Connection, now: int) -> None:
        if self.pds.pdcs.get(pdc.local_id) is pdc:
            self.pds.unlock(pdc.local_id, now)

    def ended(self, transfer: MessageTransfer, now: int) -> None:
        """End a message, and report the completion of its operation when all messages of the operation have ended."""
        if self.transfers.pop(transfer, self) is self:
            return
        transfer.deadline = NEVER
        attempt = transfer.attempt
        if attempt is not None:
            attempt.transfer = None
            if attempt.all_answered:
                self.forget(attempt)
        if transfer.token is not None and self.deferrals.get(transfer.token) is transfer:
            del self.deferrals[transfer.token]
        if transfer.exposed is not None:
            transfer.exposed()
        if transfer.order is not None:
            self.due.extend(self._resumed(other) for other in transfer.order.leave(transfer))
        operation = transfer.operation
        operation.take_end(transfer, transfer.state is _ERROR)
        if operation.open:
            return
        code = operation.code if operation.error is None else ReturnCode.UNDELIVERABLE
        completion = Completion(
            operation.context, operation.peer, operation.first_id or 0, operation.length, code, operation.error,
            transfer.plan.opcode, operation.modified, operation.refusals, operation.timed_out,
        )  # fmt: skip
        self._report(operation, completion, now)

    def _report(self, operation: SesOperation, completion: Completion, now: int) -> None:
        if operation.on_end is not None:
            operation.on_end(completion, now)
        else:
            self.events.append(completion)

    def _resumed(self, transfer: MessageTransfer) -> Callable[[int], None]:
        """Return an action that sends a message which waited for an older one."""

        def go(now: int) -> None:
            if transfer.state is MessageState.BACKOFF:
                transfer.deadline = NEVER
                transfer.step(MessageInput.TIME, now)
            else:
                self._send(transfer, now)

        return go

    # Time

    def arm(self, transfer: MessageTransfer, at: int) -> None:
        transfer.deadline = at
        heapq.heappush(self.timers, (at, transfer.number, transfer))

    def on_time(self, now: int) -> None:
        """Run the timers that are due, and the queued actions."""
        timers = self.timers
        while timers and timers[0][0] <= now:
            at, _, transfer = heapq.heappop(timers)
            if transfer.deadline == at:
                transfer.deadline = NEVER
                waits = transfer.state is MessageState.BACKOFF
                transfer.step(MessageInput.TIME if waits else MessageInput.TIMEOUT, now)
        while self.due:
            due = self.due[:]
            self.due.clear()
            for action in due:
                action(now)

    def deadline(self) -> int:
        """Return the time at which `on_time` has something to do, or NEVER if no timer is armed."""
        if self.due:
            return 0
        timers = self.timers
        while timers and timers[0][2].deadline != timers[0][0]:
            heapq.heappop(timers)
        return timers[0][0] if timers else NEVER


def _return_code(code: int) -> ReturnCode:
    try:
        return ReturnCode(code)
    except ValueError:
        return ReturnCode.UNCOR  # a vendor's or a reserved code is an error as well
