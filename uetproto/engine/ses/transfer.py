# SPDX-License-Identifier: GPL-2.0-only
"""A message at its initiator is sent in one attempt or several, and follows a state table.

UE 1.0.1 §3.4.1, §3.4.3; ses.md §7.1, §9.3, §12.
"""

from collections.abc import Callable
from enum import IntEnum, auto
from typing import TYPE_CHECKING

from uetproto.engine.contract import NEVER, PDC_MODES, Buffer, Mode, PdsError, Write
from uetproto.engine.memory import Memory
from uetproto.engine.pds.service import RETURN_DATA, SES_SIZE, Connection
from uetproto.engine.ses.headers import FIRST_PACKET, parse_ses_response
from uetproto.engine.ses.peer_order import PeerOrder
from uetproto.engine.ses.segments import MessagePlan, Reassembly, RequestSegments, build_later, lone_packet, start_of
from uetproto.engine.ses.work import SesOperation, operation_of
from uetproto.engine.train import PayloadRun
from uetproto.engine.train_splits import Split
from uetproto.errors import RemoteError
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import DEFERRABLES, Opcode, ResponseList, ResponseOpcode, ReturnCode

if TYPE_CHECKING:
    from uetproto.engine.ses.initiator import SesInitiator

_OK = bytes((0, ReturnCode.OK))
"""First two bytes of the default response with RC_OK."""
GOOD = (ReturnCode.OK, ReturnCode.NULL)


class MessageState(IntEnum):
    """A message has these states at its initiator (ses.md §12)."""

    QUEUED = 0
    SENDING = auto()
    WAIT = auto()
    """The last packet was sent, and a response or data is still missing."""
    BACKOFF = auto()
    """The target refused the message for now. The whole message is sent again after a wait."""
    DEFERRED = auto()
    """The target stopped the message, and will restart it (ses.md §5.7)."""
    DRAIN = auto()
    """The message failed, and waits for the answers to the packets that were sent."""
    DONE = auto()
    ERROR = auto()


class MessageInput(IntEnum):
    """These events change the state of a message at its initiator."""

    FIRST_SENT = 0
    LAST_SENT = auto()
    REFUSED = auto()
    """A response has a return code of class `perm`, with which the message fails (ses.md §9.5)."""
    REFUSED_FOR_NOW = auto()
    """A response has a return code of class `back`, after which the message may be sent again (ses.md §9.5)."""
    STALE = auto()
    """A response has BAD_GENERATION, and carries the valid generation."""
    STOPPED = auto()
    """A response stops a deferrable message, which found no buffer."""
    RESTART = auto()
    """A valid DEFERRABLE_RTR arrived."""
    TIME = auto()
    """The back-off timer expired."""
    TIMEOUT = auto()
    """The target did not restart a deferred message in time, or did not read the rest of a rendezvous in time."""
    EXHAUSTED = auto()
    """The target refused the message more often than `message_retry_limit`."""
    COMPLETE = auto()
    """All packets are answered, all data of a read has arrived, and the target has read all bytes of a rendezvous."""
    PDS_ERROR = auto()


_S, _I = MessageState, MessageInput
# Looked up once: with every packet, Class.MEMBER would cost as much as a call.
_QUEUED, _SENDING, _WAIT, _DRAIN = (
    MessageState.QUEUED, MessageState.SENDING, MessageState.WAIT, MessageState.DRAIN
)  # fmt: skip
_FIRST_SENT, _LAST_SENT = MessageInput.FIRST_SENT, MessageInput.LAST_SENT
_RC_OK, _NO_HEADER, _WRITE, _STD_SIZE = ReturnCode.OK, NextHdr.NONE, Opcode.WRITE, SES_SIZE[NextHdr.REQUEST_STD]

MESSAGE: dict[tuple[MessageState, MessageInput], tuple[str, MessageState]] = {
    (_S.QUEUED, _I.FIRST_SENT): ("go_on", _S.SENDING),
    (_S.QUEUED, _I.PDS_ERROR): ("complete", _S.ERROR),
    (_S.SENDING, _I.LAST_SENT): ("go_on", _S.WAIT),
    (_S.SENDING, _I.REFUSED): ("go_on", _S.DRAIN),
    (_S.SENDING, _I.REFUSED_FOR_NOW): ("back_off", _S.BACKOFF),
    (_S.SENDING, _I.STALE): ("send_again", _S.QUEUED),
    (_S.SENDING, _I.STOPPED): ("defer", _S.DEFERRED),
    (_S.SENDING, _I.PDS_ERROR): ("complete", _S.ERROR),
    (_S.WAIT, _I.REFUSED): ("go_on", _S.DRAIN),
    (_S.WAIT, _I.REFUSED_FOR_NOW): ("back_off", _S.BACKOFF),
    (_S.WAIT, _I.STALE): ("send_again", _S.QUEUED),
    (_S.WAIT, _I.STOPPED): ("defer", _S.DEFERRED),
    (_S.WAIT, _I.COMPLETE): ("complete", _S.DONE),
    (_S.WAIT, _I.TIMEOUT): ("give_up", _S.ERROR),
    (_S.WAIT, _I.PDS_ERROR): ("complete", _S.ERROR),
    (_S.BACKOFF, _I.TIME): ("send_again", _S.QUEUED),
    (_S.BACKOFF, _I.EXHAUSTED): ("complete", _S.ERROR),
    (_S.DEFERRED, _I.RESTART): ("send_again", _S.QUEUED),
    (_S.DEFERRED, _I.TIMEOUT): ("give_up", _S.ERROR),
    (_S.DRAIN, _I.LAST_SENT): ("go_on", _S.DRAIN),
    (_S.DRAIN, _I.REFUSED): ("go_on", _S.DRAIN),
    (_S.DRAIN, _I.COMPLETE): ("complete", _S.ERROR),
    (_S.DRAIN, _I.PDS_ERROR): ("complete", _S.ERROR),
}
"""The state table of a message maps a state and an input to a method of `MessageTransfer` and the next state.

Other pairs of state and input cannot occur, as responses to an earlier attempt are not inputs.
"""


class MessageTransfer:
    """A transfer is a message with all attempts to send it. For PDS and the target each attempt is a message (ses.md
    §12)."""

    __slots__ = (
        "attempt", "base_wait", "code", "deadline", "error", "exposed", "got", "kept_id", "modified", "number",
        "operation", "order", "owner", "plan", "read", "refusals", "repairs", "state", "timed_out", "to_read",
        "token",
    )  # fmt: skip

    def __init__(self, owner: "SesInitiator", operation: SesOperation, plan: MessagePlan, number: int) -> None:
        self.owner = owner
        self.operation = operation
        self.plan = plan
        self.number = number
        """Position in the order of submission."""
        self.order: PeerOrder | None = None
        self.state = _QUEUED
        self.attempt: TxMessage | None = None
        self.code = _RC_OK
        """The last return code that refused the message."""
        self.error: PdsError | None = None
        self.timed_out = False
        self.refusals = self.repairs = 0
        self.base_wait = 0
        self.deadline = NEVER
        self.token: int | None = None
        """initiator_restart_token of a deferrable send."""
        self.kept_id: int | None = None
        """message_id that a restart or a retry keeps (`deferral_tokens`, `retry_message_id`)."""
        self.got = Reassembly(plan.request_length) if operation.sink is not None else None
        """Record of the bytes of read data that arrived, or None if the operation is neither a read nor a fetching
        atomic."""
        self.to_read = self.read = 0
        """Number of bytes of a rendezvous that the target is to read, and number of bytes that the target has read."""
        self.exposed: Callable[[], None] | None = None
        """Function that ends the access of the target to the source memory of a rendezvous."""
        self.modified: int | None = None
        """Number of bytes that the target reports as stored, or None if the target reported no number."""

    def step(self, event: MessageInput, now: int) -> None:
        action, self.state = _COMPILED[self.state, event]
        if action is not _GO_ON:
            action(self, now)

    @property
    def whole(self) -> bool:
        """Return True when all data of a read has arrived, and the target has read all bytes of a rendezvous."""
        return (self.got is None or self.got.complete) and self.read >= self.to_read

    # Actions

    def go_on(self, now: int) -> None:
        """Do nothing, as only the state changes.

        In DRAIN, `TxMessage.next_packet` ends the message by MSG_ERROR if EOM was not sent.
        """

    def send_again(self, now: int) -> None:
        """Begin another attempt from the first byte, or after a restart from the byte that the target asked for."""
        self._keep_id(self.owner.config.retry_message_id == "same")
        self._drop_attempt()
        self.owner.start(self)

    def back_off(self, now: int) -> None:
        """Wait before another attempt. If there were more than `message_retry_limit` refusals, the message fails.

        Each wait is twice as long as the wait before it (ses.md §12). A limit of 0 means no limit.
        """
        self._keep_id(self.owner.config.retry_message_id == "same")
        self._drop_attempt()
        self.refusals += 1
        limit = self.owner.config.message_retry_limit
        if limit and self.refusals > limit:
            self.step(MessageInput.EXHAUSTED, now)
        else:
            self.owner.wait_before_retry(self, now)

    def defer(self, now: int) -> None:
        """Wait at most `deferral_time` for a DEFERRABLE_RTR of the target (ses.md §5.7 D3)."""
        self._keep_id(self.owner.config.deferral_tokens == "reuse")
        self._drop_attempt()
        self.owner.arm(self, now + self.owner.config.deferral_time)

    def complete(self, now: int) -> None:
        """End the message with success, with the return code that refused the message, or with the error of PDS."""
        self.owner.ended(self, now)

    def give_up(self, now: int) -> None:
        """End the message with a timeout, as the target did not restart the message or read its data in time."""
        self.timed_out = True
        self.owner.ended(self, now)

    def _keep_id(self, kept: bool) -> None:
        """If `kept`, let the next attempt use the message_id of this one."""
        if kept and self.attempt is not None:
            self.kept_id = self.attempt.message_id

    def _drop_attempt(self) -> None:
        """Detach the attempt: its later answers have no effect, and nothing of it counts as stored."""
        self.modified = None
        self.read = 0
        if self.got is not None:
            self.got = Reassembly(self.plan.request_length)
        if self.attempt is not None:
            self.attempt.transfer = None
            self.attempt = None


_COMPILED: dict[tuple[MessageState, MessageInput], tuple[Callable[[MessageTransfer, int], None], MessageState]] = {
    pair: (vars(MessageTransfer)[action], state) for pair, (action, state) in MESSAGE.items()
}
"""`MESSAGE` with methods in place of their names; a name without a method raises `KeyError` at import."""
_GO_ON = MessageTransfer.go_on
_LONE_SENT = MESSAGE[MESSAGE[_QUEUED, _FIRST_SENT][1], _LAST_SENT][1]
"""State of a queued message with one packet when it was sent; both inputs do nothing else."""


class TxMessage:
    """Each attempt to send a message is a `service.Outgoing` of this class, which counts the answered packets."""

    __slots__ = (
        "_all_sent", "_answered", "context", "lock", "message_id", "mode", "next_hdr", "opcode", "owner",
        "pdc", "peer", "plan", "psn", "reserved", "segments", "sent", "stopped", "transfer",
    )  # fmt: skip

    def __init__(self, owner: "SesInitiator", transfer: MessageTransfer, message_id: int) -> None:
        operation, plan = transfer.operation, transfer.plan
        self.owner = owner
        self.transfer: MessageTransfer | None = transfer
        """The message; None: the attempt is over for the message, which has ended or begins another attempt."""
        self.peer: int = operation.peer
        self.mode: Mode = operation.mode
        self.opcode = plan.opcode
        self.message_id = message_id
        self.next_hdr: int = plan.form
        self.context = operation.pdc_context
        self.reserved: bool = operation.reserved
        self.lock = operation.sink is not None and operation.mode in PDC_MODES
        """Whether the attempt locks its PDC: a read does so until all data arrived (ses.md §5.4)."""
        self.pdc: Connection | None = None
        """The PDC that the attempt locks, once PDS has told it."""
        self.psn = 0
        """PSN of the first packet on the locked PDC."""
        self.plan = plan
        mtu = owner.config.payload_mtu
        self.segments = None if plan.body <= mtu else RequestSegments(plan, message_id, mtu)
        """Packets of the message, or None if it has one packet, which `lone_packet` makes."""
        self.sent = 0
        self.stopped = False
        self._all_sent = False
        """Whether EOM was sent, in the last packet or in one that ends the message early."""
        self._answered = 0

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        """Return the next packet, or a packet that ends a failed or stopped message early (ses.md §5.12, §5.7 D3)."""
        index = self.sent
        self.sent = index + 1
        transfer, segments = self.transfer, self.segments
        payload: Buffer
        if segments is None:
            header, payload = lone_packet(self.plan, self.message_id)
            if self.lock:
                self._count_read()
            if transfer is not None:
                transfer.state = _LONE_SENT
            self._all_sent = True
            return 0, header, payload, True
        if (transfer is None or transfer.state is _DRAIN) and self.mode in PDC_MODES and index:
            opcode = self.opcode if self.stopped else Opcode.MSG_ERROR
            offset = min(index * segments.mtu, self.plan.body)
            header, payload, last = build_later(self.plan, opcode, self.message_id, 1, offset), b"", True
        else:
            header, payload = segments.packet(index)
            if self.lock:
                self._count_read()
            last = index + 1 == segments.count
            if index == 0 and transfer is not None and transfer.state is _QUEUED:
                transfer.step(_FIRST_SENT, 0)
        if last:
            self._all_sent = True
            if transfer is not None:
                transfer.step(_LAST_SENT, 0)
        return index, header, payload, last

    def next_run(self, most: int) -> PayloadRun | Split:
        """Return the next packets as a run, if they are neither the first nor the last of the message."""
        index, transfer, segments = self.sent, self.transfer, self.segments
        if segments is None or self.lock or transfer is None:
            return Split.KIND
        if not index:
            return Split.EDGE
        if transfer.state is not _SENDING:
            return Split.MESSAGE
        run = segments.run(index, min(most, segments.count - 1 - index))
        if not isinstance(run, Split):
            self.sent = index + len(run.payloads)
        return run

    def is_plain(self, next_hdr: int, response: Buffer) -> bool:
        """Return whether a response is the default one."""
        return next_hdr == _NO_HEADER or response[:2] == _OK

    def answered(self, count: int, now: int) -> None:
        """Count packets that were answered with the default response."""
        self._answered += count
        if self._answered == self.sent and self._all_sent:
            self.owner.look(self, now)

    def count_lone(self) -> None:
        """Count the only packet of the message as sent."""
        self.sent, self._all_sent = 1, True
        if self.transfer is not None:
            self.transfer.state = _LONE_SENT

    def unsent(self) -> tuple[int, int]:
        """Return the packets that were not sent, and their bytes of SES headers and payload."""
        plan, count = self.plan, 1 if self.segments is None else self.segments.count
        packets = 0 if self._all_sent else count - self.sent
        body = 0 if plan.memory is None else plan.body - min(self.sent * self.owner.config.payload_mtu, plan.body)
        return packets, packets * (SES_SIZE[plan.form] + len(plan.extension)) + (body if packets else 0)

    @property
    def all_answered(self) -> bool:
        return self._all_sent and self._answered == self.sent

    def began(self, pdc: Connection, psn: int) -> None:
        """Store the PDC that a read locks, and the PSN of the first packet of the read."""
        self.owner.short_reads.pop((self.pdc, self.psn), None)
        self.pdc, self.psn = pdc, psn
        if self.next_hdr != NextHdr.REQUEST_STD:
            self.owner.short_reads[pdc, psn] = self

    def _count_read(self) -> None:
        """Note that a packet was sent that asks for data."""
        if self.owner.config.max_reads:
            self.owner.reading[self.pdc] = self.owner.reading.get(self.pdc, 0) + 1

    def is_held_back(self, pdc: Connection) -> bool:
        """Return whether as many packets of reads are outstanding on the PDC as `max_reads` permits."""
        return 0 < self.owner.config.max_reads <= self.owner.reading.get(pdc, 0)

    # Answers (ses.md §9.3)

    def on_response(self, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        """Process the response to a packet. A `response` of None stands for the default response."""
        self._answered += 1
        if response is not None and next_hdr != _NO_HEADER and response[:2] != _OK:
            if self.lock:
                self.owner.count_read(self.pdc)
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
        if answer.return_code not in GOOD:
            owner.refused(self, transfer, answer.return_code, answer.ri_generation, now)
        elif next_hdr in RETURN_DATA:
            code = owner.take_data(transfer, answer, response[answer.size :])
            if code is not None:
                owner.refused(self, transfer, code, 0, now)
        elif answer.opcode == ResponseOpcode.RESPONSE:
            transfer.modified = answer.modified_length
            transfer.to_read = min(transfer.to_read, max(0, answer.modified_length - self.plan.body))
            stops = self.opcode in DEFERRABLES and answer.modified_length < self.plan.request_length
            if stops and answer.list == ResponseList.OVERFLOW and transfer.state in (MessageState.SENDING, _WAIT):
                self.stopped = True
                transfer.step(MessageInput.STOPPED, now)

    def on_error(self, index: int, error: PdsError, now: int) -> None:
        """End the message with an error, because PDS could not deliver a packet or got no response to it (pds.md
        §6.7)."""
        self.owner.forget(self)
        transfer = self.transfer
        if transfer is None:
            return
        transfer.error = error
        if transfer.state not in (MessageState.DONE, MessageState.ERROR):
            transfer.step(MessageInput.PDS_ERROR, now)


class LoneWrite:
    """A lone write is a `service.Outgoing` for a WRITE with one packet on RUD.

    It has neither an operation nor states, as they would cost more than the packet, and nearly all such messages end
    with their first answer. A message that is refused, or fails, becomes a `MessageTransfer` with an attempt.
    """

    __slots__ = ("context", "header", "length", "memory", "message_id", "number", "owner", "peer", "reserved", "sent",
                 "start", "work", "work_context")  # fmt: skip
    mode, lock, pdc = Mode.RUD, False, None
    next_hdr: int = NextHdr.REQUEST_STD

    def __init__(
        self, owner: "SesInitiator", work: Write, memory: Memory, length: int, number: int, message_id: int
    ) -> None:
        data = work.completion_data
        front, address = start_of(
            _WRITE, work.delivery_complete, work.relative, data is not None, True, 0, work.job_id, work.pid_on_fep,
            work.resource_index,
        )  # fmt: skip
        self.header = FIRST_PACKET.pack(
            front, message_id, address, work.offset, work.initiator, work.key, data or 0, length
        )
        self.owner = owner
        self.work, self.work_context = work, work.context
        self.memory, self.start, self.length = memory, work.start, length
        self.number = number
        self.message_id = message_id
        self.peer: int = work.peer
        self.context = work.pdc_context
        self.reserved = work.reserved
        self.sent = False

    def unsent(self) -> tuple[int, int]:
        return (0, 0) if self.sent else (1, _STD_SIZE + self.length)

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        self.sent = True
        return 0, self.header, self.memory.read(self.start, self.length), True

    def next_run(self, most: int) -> Split:
        """Return that it is the first and last one, as the message has one packet."""
        return Split.EDGE

    def is_plain(self, next_hdr: int, response: Buffer) -> bool:
        """Return False, as each answer ends the message."""
        return False

    def answered(self, count: int, now: int) -> None:
        """Do nothing, as no answer is plain."""

    def on_response(self, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        """End the message, or process a response that is not the default one. A `response` of None stands for the
        default response."""
        if response is None or next_hdr == _NO_HEADER or response[:2] == _OK:
            self.owner.stored(self, now)
        else:
            self._attempt().on_response(index, next_hdr, response, now)

    def on_error(self, index: int, error: PdsError, now: int) -> None:
        self._attempt().on_error(index, error, now)

    def _attempt(self) -> TxMessage:
        """Make the message a `MessageTransfer`, and return its attempt."""
        owner = self.owner
        operation = operation_of(self.work, owner.config)
        transfer = MessageTransfer(owner, operation, operation.base, self.number)
        owner.transfers[transfer] = None
        transfer.attempt = attempt = TxMessage(owner, transfer, self.message_id)
        owner.messages[self.message_id] = attempt
        operation.open, operation.first_id = 1, self.message_id
        if self.sent:
            attempt.count_lone()
        return attempt
