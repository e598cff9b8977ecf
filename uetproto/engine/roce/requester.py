# SPDX-License-Identifier: GPL-2.0-only
"""The requester of an RC queue pair sends requests and handles responses (roce.md §9).

PSNs and message numbers are integers that do not wrap here, and are truncated to 24 bits on the wire. A received number
of 24 bits is extended by its distance from the oldest number that is not acknowledged.
"""

from uetproto.engine.contract import NEVER, Buffer
from uetproto.engine.roce.config import ENDLESS, rnr_wait_of, timeout_of
from uetproto.engine.roce.contract import Access, Opcode, PostSend, RocePacket, SendFlags, Status
from uetproto.engine.roce.memory import BadKeyError, Inline, SgeSegments
from uetproto.engine.roce.messages import send_message
from uetproto.engine.roce.packets import Parsed
from uetproto.engine.roce.psn import MASK, count_of_packets, diff
from uetproto.engine.roce.qp import Qp, UserMessage
from uetproto.engine.roce.segments import ATOMIC_SIZE, ATOMICS, KINDS, WITH_IMM, WITH_INV, operation_at
from uetproto.engine.roce.trains import send_train
from uetproto.engine.train_splits import Split
from uetproto.wire.headers.roce import NO_CREDIT_LIMIT, Nak, Operation, count_of
from uetproto.wire.tuples import AethHeader, AtomicEthHeader, IethHeader, ImmHeader, RethHeader

_SEND = Opcode.SEND
_ACK, _RNR, _NAK = 0, 1, 3
"""Bits 6 and 5 of a syndrome (roce.md §2.1); 2 is reserved."""

_STARTING = (Operation.RDMA_READ_RESPONSE_FIRST, Operation.RDMA_READ_RESPONSE_ONLY)
_ENDING = (Operation.RDMA_READ_RESPONSE_LAST, Operation.RDMA_READ_RESPONSE_ONLY)

TIMEOUT, RNR_NAK, IMPLIED_NAK = "RTO", "RNR NAK", "implied NAK"
"""Causes of a retransmission, beside the NAK of a PSN sequence error."""

STATUS_OF: dict[int, Status] = {
    Nak.INVALID_REQUEST: Status.REM_INV_REQ_ERR,
    Nak.REMOTE_ACCESS_ERROR: Status.REM_ACCESS_ERR,
    Nak.REMOTE_OPERATIONAL_ERROR: Status.REM_OP_ERR,
}
"""Status with which a request ends after each fatal NAK (roce.md §10)."""


class Wqe:
    """A WQE (work queue element) holds a posted work request and its progress."""

    __slots__ = (
        "_work", "begun", "bytes", "end", "failed", "first", "kind", "length", "message", "number", "starts",
    )  # fmt: skip

    def __init__(
        self, work: PostSend | None, number: int, source: SgeSegments | Inline, message: UserMessage | None = None
    ) -> None:
        """Make the element of a work request, or, if `work` is None, of a message."""
        self._work = work
        self.message = message
        opcode = _SEND if work is None else work.opcode
        self.kind = KINDS[opcode]
        self.number = number
        """Send sequence number (SSN) of the work request. The first work request has 1."""
        self.bytes = source
        self.length = ATOMIC_SIZE if opcode in ATOMICS else source.length
        self.begun = False
        self.first = self.end = -1
        """First PSN of the work request, and the PSN after its last PSN. Both are −1 before the work request begins."""
        self.starts: set[int] = set()
        """PSNs of all requests that were sent for a READ. A retransmitted request may ask for a later part of the
        response, and so have a later PSN."""
        self.failed: Status | None = None
        """Status with which the failed work request will end, when all earlier work requests have ended. It is None if
        the work request has not failed."""

    @property
    def work(self) -> PostSend:
        """Return the work request. That of a message is made when it is asked for the first time."""
        if self._work is None:
            assert self.message is not None
            self._work = self.message.work()
        return self._work


def bytes_of(qp: Qp, work: PostSend) -> SgeSegments | Inline:
    """Return the object that reads or writes the local bytes of a work request."""
    if work.inline is not None:
        return Inline(work.inline)
    right = Access.LOCAL_WRITE if KINDS[work.opcode].answered else Access(0)
    return SgeSegments(qp.hca.regions, qp.pd, work.sg_list, right)


def headers_of(operation: int, work: PostSend, length: int, offset: int = 0) -> bytes:
    """Return the extension headers of a packet whose message has `length` bytes.

    `offset` is the first byte that a READ asks for. It is above 0 if a READ is sent again for the part that is missing.
    """
    if operation in (Operation.RDMA_WRITE_FIRST, Operation.RDMA_WRITE_ONLY, Operation.RDMA_READ_REQUEST):
        return RethHeader.pack(va=work.remote_addr + offset & (1 << 64) - 1, r_key=work.rkey, dmalen=length - offset)
    if operation == Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE:
        reth = RethHeader.pack(va=work.remote_addr, r_key=work.rkey, dmalen=length)
        return reth + ImmHeader.pack(immdt=work.imm_data)
    if operation in WITH_IMM:
        return ImmHeader.pack(immdt=work.imm_data)
    if operation in WITH_INV:
        return IethHeader.pack(r_key=work.invalidate_rkey)
    if operation == Operation.COMPARE_SWAP:
        return AtomicEthHeader.pack(va=work.remote_addr, r_key=work.rkey, swapdt=work.swap, cmpdt=work.compare_add)
    if operation == Operation.FETCH_ADD:
        return AtomicEthHeader.pack(va=work.remote_addr, r_key=work.rkey, swapdt=work.compare_add, cmpdt=0)
    return b""


class RcRequester:
    """The requester of an RC queue pair sends and retransmits requests and processes responses.

    It begins and ends work requests in the order in which they were posted.
    """

    def __init__(self, qp: Qp) -> None:
        hca, attributes = qp.hca, qp.attributes
        config = hca.config
        self.qp = qp
        self.config = config
        self.wqes: dict[int, Wqe] = {}
        self.head = 1
        """Number of the oldest work request that has not ended."""
        self.posted = 0
        """Number of the newest work request."""
        self.at = 1
        """Number of the work request to which the next packet belongs."""
        self.una = self.next = self.cursor = attributes.sq_psn
        """Oldest unacknowledged PSN, next PSN that was never used, and next PSN to be sent."""
        self.lsn = 0
        """Limit sequence number (LSN) of the credits. A SEND or WRITE_WITH_IMM may have an SSN up to LSN + 1 (roce.md
        §9)."""
        self.unlimited = not config.credits
        self.unanswered = 0
        """Number of READs and ATOMICs that have begun and whose responses are not complete."""
        self.retries = attributes.retry_cnt
        self.rnr_retries = attributes.rnr_retry
        self.refused = 0
        """Number of RNR NAKs since a new PSN was acknowledged."""
        self.timer = NEVER
        self.resume_at = NEVER
        """Time at which RNR_WAIT ends, or `NEVER` outside RNR_WAIT."""
        self._restarted_at = -1
        """PSN at which an implied NAK has caused a retransmission."""
        self.retransmitted = 0
        self._cause = TIMEOUT
        """Cause of the last going back to the oldest PSN, for the packets that are sent again."""
        self.path = qp.path
        self.path_mtu = attributes.path_mtu
        # A window without an acknowledgement request in it would end in a time-out.
        half = max(1, config.max_unacked_psns // 2)
        self.ack_interval = min(config.ack_req_interval or half, half)
        self.refresh()

    def refresh(self) -> None:
        """Read the attributes of the queue pair again. If they enable the timeout, the next `pump` starts the timer."""
        self.wait = timeout_of(self.qp.attributes.timeout, self.config.timeout_factor)
        if self.wait == NEVER:
            self.timer = NEVER

    @property
    def busy(self) -> bool:
        """Return True when a work request has begun and has not ended."""
        wqe = self.wqes.get(self.head)
        return wqe is not None and wqe.begun

    @property
    def posted_now(self) -> int:
        return len(self.wqes)

    def post(self, work: PostSend) -> None:
        """Queue a work request that the adapter has checked."""
        self.posted += 1
        self.wqes[self.posted] = Wqe(work, self.posted, bytes_of(self.qp, work))

    def post_message(self, message: UserMessage) -> None:
        self.posted += 1
        self.wqes[self.posted] = Wqe(None, self.posted, Inline(message.data), message)

    # Sending

    def pump(self, now: int, out: list[RocePacket], budget: int) -> int:
        """Send at most `budget` packets, as window, credits and other limits permit, and return their number."""
        sent = 0
        # At a low rate the next acknowledgement request may be far away, so each packet restarts the timer.
        slow = self.qp.rate is not None and self.qp.rate.paced
        while sent < budget and self.resume_at == NEVER:
            wqe = self.wqes.get(self.at)
            if wqe is None or wqe.failed is not None:
                break
            if wqe.message is not None and (packet := send_message(self, wqe, wqe.message.data)) is not None:
                out.append(packet)
                sent += 1
                continue
            if not self._fits(wqe) or not (wqe.begun or self._begin(wqe)):
                break
            if self.qp.hca.trains and (taken := send_train(self, wqe, out, budget - sent)):
                sent += taken
                continue
            try:
                out.append(self._packet(wqe))
            except BadKeyError:
                self._fail_later(wqe)
                break
            sent += 1
        if self.una < self.next and self.resume_at == NEVER and (self.timer == NEVER or (slow and sent)):
            self.timer = now + self.wait if self.wait != NEVER else NEVER
        return sent

    def _fits(self, wqe: Wqe) -> bool:
        """Tell whether the PSNs of the next packet are within `max_unacked_psns`; a longer READ is sent alone."""
        if not wqe.kind.answered:
            return self.cursor < self.una + self.config.max_unacked_psns
        end = wqe.end if wqe.begun else self.cursor + count_of_packets(wqe.length, self.path_mtu)
        return end <= self.una + self.config.max_unacked_psns or self.cursor == self.una

    def _begin(self, wqe: Wqe) -> bool:
        """Begin a work request if state, fence, credits and the limit of READs permit it (roce.md §9)."""
        if not self.qp.behaviour.begins:
            return False
        kind = wqe.kind
        if wqe.work.send_flags & SendFlags.FENCE and self.unanswered:
            return False
        if kind.answered and self.unanswered >= self.qp.attributes.max_rd_atomic:
            return False
        if kind.receives and not self.unlimited and wqe.number > self.lsn + 1:
            return False
        try:
            wqe.bytes.check()
        except BadKeyError:
            self._fail_later(wqe)
            return False
        if not kind.receives:
            self.lsn += 1
        wqe.begun = True
        wqe.first = self.next
        wqe.end = wqe.first + count_of_packets(wqe.length, self.path_mtu)
        self.unanswered += kind.answered
        return True

    def _packet(self, wqe: Wqe) -> RocePacket:
        """Return the packet at the cursor and advance it. A PSN has the same bytes each time (roce.md §9)."""
        work, psn = wqe.work, self.cursor
        index = psn - wqe.first
        offset = index * self.path_mtu
        again = psn < self.next
        if wqe.kind.answered:
            operation = wqe.kind.family.only
            headers = headers_of(operation, work, wqe.length, offset)
            wqe.starts.add(psn)
            packet = self.path.packet(operation, psn, headers, a=1, again=again)
            self.cursor = wqe.end
        else:
            count = wqe.end - wqe.first
            operation = operation_at(wqe.kind.family, index, count)
            last = index == count - 1
            payload: Buffer = wqe.bytes.read(offset, min(self.path_mtu, wqe.length - offset))
            headers = b"" if index > 0 and not last else headers_of(operation, work, wqe.length)
            a = 1 if last or (index + 1) % self.ack_interval == 0 else 0
            se = 1 if last and wqe.kind.receives and work.send_flags & SendFlags.SOLICITED else 0
            packet = self.path.packet(operation, psn, headers, payload, a=a, se=se, again=again)
            self.cursor = psn + 1
        if self.cursor >= wqe.end:
            self.at += 1
        self.next = max(self.next, self.cursor)
        if again:
            self.retransmitted += 1
            sent_again = self.qp.hca.retransmitted
            sent_again[self._cause] = sent_again.get(self._cause, 0) + 1
        return packet

    def _fail_later(self, wqe: Wqe) -> None:
        """Mark a work request with a bad gather or scatter list as failed; it ends in its turn (roce.md §10)."""
        wqe.failed = Status.LOC_PROT_ERR
        self._end_failed()

    def _end_failed(self) -> None:
        """End the oldest work request if it is marked as failed."""
        wqe = self.wqes.get(self.head)
        if wqe is not None and wqe.failed is not None:
            self._fail(wqe.failed)

    # Answers

    def take(self, parsed: Parsed, now: int) -> None:
        """Process a response (roce.md §9). A response whose PSN is not outstanding is counted and dropped."""
        offset = parsed.psn - self.una & MASK
        values = parsed.values
        if offset >= self.next - self.una:
            if parsed.operation == Operation.ACKNOWLEDGE and offset == MASK:
                self._update_credits(**values)  # credits for the newest acknowledged PSN
            self.qp.hca.count("stale response")
            return
        psn = self.una + offset
        operation = parsed.operation
        if operation == Operation.ACKNOWLEDGE:
            self._take_acknowledge(psn, values["syndrome"] & 0x7F, values, parsed, now)
        else:
            self._take_response(psn, parsed, now)
        self._end_failed()
        self.qp.drain()

    def _take_acknowledge(self, psn: int, syndrome: int, values: dict[str, int], parsed: Parsed, now: int) -> None:
        kind, code = syndrome >> 5, syndrome & 0x1F
        if kind == _ACK and len(parsed.payload):
            if self._acknowledge(psn, now):
                self._bad_response()
            else:
                self._implied_nak(now)
        elif kind == _ACK:
            reached = self._acknowledge(psn + 1, now)
            self._update_credits(**values)
            if not reached:
                self._implied_nak(now)
        elif kind == _RNR:
            if self.resume_at == NEVER:
                self._take_rnr(psn, code, syndrome, now)
        elif syndrome == Nak.PSN_SEQUENCE_ERROR:
            self._acknowledge(psn, now)
            if self._accepts_naks:
                self._retry(now, syndrome, f"NAK {Nak.PSN_SEQUENCE_ERROR.name}")
        elif syndrome in STATUS_OF:
            if self._acknowledge(psn, now):
                self._fail(STATUS_OF[syndrome], syndrome)
            else:
                self._implied_nak(now)
        elif self.config.reserved_syndrome == "drop":
            self.qp.hca.count("reserved syndrome")
        else:
            self._acknowledge(psn, now)
            self._bad_response(syndrome)

    @property
    def _accepts_naks(self) -> bool:
        return self.resume_at == NEVER or self.config.in_rnr_wait == "resend"

    def _acknowledge(self, psn: int, now: int) -> bool:
        """Acknowledge all PSNs before `psn`; return False if a READ or ATOMIC without its response prevents that."""
        start, reached = self.una, True
        while self.una < psn:
            wqe = self.wqes[self.head]
            if wqe.kind.answered:
                reached = False
                break
            self.una = min(psn, wqe.end)
            if self.una == wqe.end:
                self._end(wqe)
        if self.una != start:
            self._on_progress(now)
        return reached

    def _end(self, wqe: Wqe) -> None:
        """End the oldest work request with success."""
        del self.wqes[self.head]
        self.head += 1
        self.unanswered -= wqe.kind.answered
        if wqe.work.send_flags & SendFlags.SIGNALED:
            self.qp.complete_send(wqe.work, wqe.kind.completion, Status.SUCCESS, wqe.length, 0)

    def end_messages(self, psn: int, now: int) -> list[int] | None:
        """Process an ACK without a credit limit of all PSNs up to `psn`, if it ends whole messages of one packet and
        nothing else; return their wr_ids. Otherwise return None, and change nothing."""
        offset = psn - self.una & MASK
        last = self.wqes.get(self.head + offset)
        if offset >= self.next - self.una or last is None or last.end != self.una + offset + 1:
            return None  # each has a PSN at least, so that now each has one
        numbers = range(self.head, self.head + offset + 1)
        messages = [self.wqes[number].message for number in numbers]
        if None in messages:
            return None
        for number in numbers:
            del self.wqes[number]
        self.head += offset + 1
        self.una += offset + 1
        self.unlimited = True
        self._on_progress(now)
        self._end_failed()
        return [message.wr_id for message in messages if message is not None]

    def quiet_behind(self, psn: int) -> int | Split:
        """Return how many more PSNs than those up to `psn` an ACK may acknowledge without the end of a work request, or
        why one up to `psn` is not such an ACK (`trains`)."""
        if self.resume_at != NEVER or self.cursor != self.next:
            return Split.RETRANSMISSION
        offset, wqe = psn - self.una & MASK, self.wqes.get(self.head)
        if wqe is None or wqe.kind.answered or offset >= self.next - self.una:
            return Split.ACK_SAYS_MORE
        room = wqe.end - 2 - self.una - offset
        return room if room >= 0 else Split.ACK_SAYS_MORE

    def take_quiet_ack(self, psn: int, aeth: AethHeader, now: int) -> None:
        """Process an ACK that `quiet_behind` permits."""
        self._acknowledge(self.una + (psn - self.una & MASK) + 1, now)
        self._update_credits(*aeth)

    def _on_progress(self, now: int) -> None:
        """Reset the retry counts and restart the timer after new PSNs were acknowledged."""
        self.retries, self.rnr_retries = self.qp.attributes.retry_cnt, self.qp.attributes.rnr_retry
        self.refused = 0
        self._restarted_at = -1
        if self.cursor < self.una:
            self._go_back()
        running = self.una < self.next and self.resume_at == NEVER and self.wait != NEVER
        self.timer = now + self.wait if running else NEVER

    def _update_credits(self, syndrome: int, msn: int) -> None:
        """Update the credits from an acknowledging AETH: LSN = MSN + n(c), which never decreases (roce.md §9)."""
        syndrome &= 0x7F
        if syndrome >> 5 != _ACK or self.unlimited:
            return
        if syndrome == NO_CREDIT_LIMIT:
            self.unlimited = True
            return
        # The MSN is near the number of the oldest request and not beyond that of the newest.
        limit = self.head + diff(msn, self.head & MASK) + count_of(syndrome)
        self.lsn = max(self.lsn, limit)

    def _take_rnr(self, psn: int, code: int, syndrome: int, now: int) -> None:
        if not self._acknowledge(psn, now):
            self._implied_nak(now)
            return
        self.refused += 1
        if self.qp.attributes.rnr_retry != ENDLESS:
            if not self.rnr_retries:
                self._fail(Status.RNR_RETRY_EXC_ERR, syndrome)
                return
            self.rnr_retries -= 1
        self._cause = RNR_NAK
        self._go_back()
        self.timer = NEVER
        self.resume_at = now + rnr_wait_of(code)

    def _implied_nak(self, now: int) -> None:
        """Retransmit a READ or ATOMIC after a later response has arrived: its own is lost."""
        if self._accepts_naks and (self._restarted_at != self.una or self.config.implied_nak == "every"):
            self._retry(now, 0, IMPLIED_NAK)
            self._restarted_at = self.una

    def _take_response(self, psn: int, parsed: Parsed, now: int) -> None:
        """Handle a response packet to a READ or ATOMIC."""
        if not self._acknowledge(psn, now):
            self._implied_nak(now)
            return
        wqe = self.wqes[self.head]
        offset, data = (psn - wqe.first) * self.path_mtu, parsed.payload
        if parsed.operation == Operation.ATOMIC_ACKNOWLEDGE:
            fits = wqe.work.opcode in ATOMICS and not len(data)
            data = parsed.values["origremdt"].to_bytes(ATOMIC_SIZE, self.config.atomic_order)
        else:
            fits = wqe.work.opcode == Opcode.RDMA_READ and self._read_fits(wqe, psn, parsed)
        if not fits:
            self._bad_response()
            return
        try:
            wqe.bytes.write(offset, data)
        except BadKeyError:
            self._fail(Status.LOC_PROT_ERR)
            return
        if parsed.values:
            self._update_credits(parsed.values["syndrome"], parsed.values["msn"])
        self.una = psn + 1
        if self.una == wqe.end:
            self._end(wqe)
        self._on_progress(now)

    def _read_fits(self, wqe: Wqe, psn: int, parsed: Parsed) -> bool:
        """Tell whether a response packet to a READ has the legal operation, PSN, length and pad."""
        starts = parsed.operation in _STARTING
        ends = parsed.operation in _ENDING
        legal = ends == (psn == wqe.end - 1) and (psn in wqe.starts if starts else psn > wqe.first)
        size = min(self.path_mtu, wqe.length - (psn - wqe.first) * self.path_mtu)
        return legal and len(parsed.payload) == size and parsed.pad_is_legal

    def _bad_response(self, syndrome: int = 0) -> None:
        self._fail(Status(self.config.bad_response_status), syndrome)

    # Sending again

    def _go_back(self) -> None:
        """Go back to the oldest PSN that is not acknowledged, which belongs to the oldest request."""
        self.at, self.cursor = self.head, self.una

    def _retry(self, now: int, syndrome: int, cause: str) -> None:
        """Retransmit from the oldest PSN, or fail when the retries are used up."""
        if not (self.qp.attributes.retry_cnt == ENDLESS and self.config.retry_cnt_seven == "endless"):
            if not self.retries:
                self._fail(Status.RETRY_EXC_ERR, syndrome)
                return
            self.retries -= 1
        self.resume_at = NEVER
        self._cause = cause
        self._go_back()
        self.timer = now + self.wait if self.wait != NEVER else NEVER

    def _fail(self, status: Status, syndrome: int = 0) -> None:
        """Fail the oldest work request and with it the queue pair; it completes, signalled or not (roce.md §6)."""
        wqe = self.wqes.pop(self.head)
        self.head += 1
        self.qp.complete_send(wqe.work, wqe.kind.completion, status, 0, syndrome)
        self.qp.send_failed()

    def flush(self) -> None:
        for number in range(self.head, self.posted + 1):
            wqe = self.wqes.pop(number)
            self.qp.complete_send(wqe.work, wqe.kind.completion, Status.WR_FLUSH_ERR, 0, 0)
        self.head = self.at = self.posted + 1
        self.una = self.cursor = self.next
        self.unanswered = 0
        self.timer = self.resume_at = NEVER

    # Time

    def deadline(self) -> int:
        return min(self.timer, self.resume_at)

    def on_time(self, now: int) -> None:
        if self.resume_at <= now:
            self.resume_at = NEVER
            if self.una < self.next and self.wait != NEVER:
                self.timer = now + self.wait
        if self.timer <= now:
            self._restarted_at = -1
            self._retry(now, 0, TIMEOUT)
