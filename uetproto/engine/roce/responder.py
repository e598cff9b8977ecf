# SPDX-License-Identifier: GPL-2.0-only
"""The responder of an RC queue pair executes requests and sends responses (roce.md §8, §12)."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from uetproto.engine.contract import NEVER
from uetproto.engine.roce.contract import Access, AsyncNotice, AsyncType, RocePacket, Status
from uetproto.engine.roce.inbound import Inbound
from uetproto.engine.roce.memory import BadKeyError, RoceMemoryRegion
from uetproto.engine.roce.packets import Parsed
from uetproto.engine.roce.psn import MASK, add, count_of_packets, diff
from uetproto.engine.roce.qp import Qp
from uetproto.engine.roce.segments import (
    ATOMIC_SIZE,
    ENDS,
    MESSAGE_STATES,
    SENDS,
    STEPS,
    WITH_IMM,
    WITH_INV,
    WRITES,
    MessageStep,
    family,
    operation_at,
)
from uetproto.wire.headers.roce import NO_CREDIT_LIMIT, Nak, Operation, count_of
from uetproto.wire.tuples import AethHeader, AtomicAckEthHeader

_M64 = (1 << 64) - 1
_RNR = 0x20
_ACKNOWLEDGE = Operation.ACKNOWLEDGE

_RESPONSE = family("RDMA_READ_RESPONSE")

RIGHTS: dict[MessageStep, Access] = {
    **dict.fromkeys(WRITES, Access.REMOTE_WRITE),
    MessageStep.READ: Access.REMOTE_READ,
    MessageStep.ATOMIC: Access.REMOTE_ATOMIC,
}
"""Access right that a packet needs, both from the queue pair (roce.md §8 check 4) and from the region (check 8)."""

_CHECKED_KEYS = (MessageStep.RDMA_WRITE_FIRST, MessageStep.RDMA_WRITE_ONLY, MessageStep.READ, MessageStep.ATOMIC)

CHECKS: dict[str, tuple[str, ...]] = {
    "key_first": ("order", "rights", "receive", "resources", "size", "key", "alignment"),
    "alignment_first": ("order", "rights", "receive", "resources", "size", "alignment", "key"),
}
"""Names of checks 3 to 9 of roce.md §8, in their order for each value of `check_order`. The first check that fails
determines the NAK."""

EVENT_OF: dict[int, AsyncType] = {
    Nak.INVALID_REQUEST: AsyncType.QP_FATAL,
    Nak.REMOTE_ACCESS_ERROR: AsyncType.QP_ACCESS_ERR,
    Nak.REMOTE_OPERATIONAL_ERROR: AsyncType.QP_FATAL,
}


@dataclass(slots=True)
class SavedResponse:
    """This class holds an executed READ or ATOMIC request. The responder sends the response again if the request comes
    again (roce.md §8.1)."""

    psn: int
    count: int
    """Number of PSNs of the response."""
    va: int
    r_key: int
    length: int
    original: int | None
    """Value in memory before an ATOMIC, or None for a READ."""


@dataclass(slots=True)
class ShortResponse:
    """An ACK, NAK, RNR NAK or ATOMIC acknowledge is a response of one packet without payload."""

    operation: Operation
    psn: int
    headers: bytes


@dataclass(slots=True)
class ReadResponse:
    """This class holds a READ response that is being sent.

    The payload of each packet is read from memory when that packet is sent.
    """

    psn: int
    """PSN of the first packet of this response."""
    count: int
    """Number of packets of this response."""
    sent: int
    """Number of packets that were sent."""
    region: RoceMemoryRegion | None
    va: int
    length: int
    aeth: bytes


class RcResponder(Inbound):
    """The responder of an RC queue pair executes requests and sends responses in the order of their PSNs."""

    def __init__(self, qp: Qp) -> None:
        super().__init__(qp)
        self.epsn = qp.attributes.rq_psn
        self.msn = 0
        self.answers: deque[ShortResponse | ReadResponse] = deque()
        self.saved: deque[SavedResponse] = deque(maxlen=qp.attributes.max_dest_rd_atomic)
        self._pending_acks = 0
        self._ack_deadline = NEVER
        """Time at which the pending acknowledgements are sent at the latest, or NEVER if none is pending."""
        self._nak_sent = False
        """Whether a NAK was sent, after which packets beyond ePSN cause no further NAK until ePSN arrives."""
        self._checks = _COMPILED_CHECKS[self.config.check_order]

    # Requests

    def take(self, parsed: Parsed, now: int) -> None:
        """Process a request that has passed check 1 of roce.md §8."""
        distance = diff(parsed.psn, self.epsn)
        if distance > 0:
            self.qp.hca.count("packet ahead")
            if not self._nak_sent or self.config.psn_nak == "every":
                self._nak_sent = True
                self._answer_nak(self.epsn, Nak.PSN_SEQUENCE_ERROR)
            return
        if distance < 0:
            self._take_duplicate(parsed, now)
            return
        self._nak_sent = False
        step = parsed.step
        if step is None:
            self._refuse(parsed, Nak.INVALID_REQUEST)
            return
        for check in self._checks[parsed.operation]:
            nak = check(self, parsed, step)
            if nak is not None:
                self._refuse(parsed, nak)
                return
        if step is MessageStep.READ:
            self._read(parsed)
        elif step is MessageStep.ATOMIC:
            self._atomic(parsed)
        else:
            self._write_or_send(parsed, now)

    def skip(self, packets: int, size: int) -> None:
        """Take as many middle packets with payloads of `size` bytes that were stored, and ask for no acknowledgement
        (`trains`)."""
        self._nak_sent = False
        self.epsn = add(self.epsn, packets)
        self.done += packets * size

    def count_message(self, now: int) -> None:
        """Count a message of one packet that was taken, and acknowledge it (`messages`)."""
        self._nak_sent = False
        self.epsn = self.epsn + 1 & MASK
        self.msn = self.msn + 1 & MASK
        self.request_ack(now)

    # Checks: each returns the syndrome that it refuses with, or None

    def _check_order(self, parsed: Parsed, step: MessageStep) -> int | None:
        return None if step in MESSAGE_STATES[self.phase] else Nak.INVALID_REQUEST

    def _check_rights(self, parsed: Parsed, step: MessageStep) -> int | None:
        return None if RIGHTS[step] in self.qp.attributes.access_flags else Nak.INVALID_REQUEST

    def _check_receive(self, parsed: Parsed, step: MessageStep) -> int | None:
        if self.needs_receive(parsed) and self.qp.peek_receive() is None:
            return _RNR | self.qp.attributes.min_rnr_timer
        return None

    def _check_resources(self, parsed: Parsed, step: MessageStep) -> int | None:
        return None if self.qp.attributes.max_dest_rd_atomic else Nak.INVALID_REQUEST

    def _check_size(self, parsed: Parsed, step: MessageStep) -> int | None:
        return None if self.size_is_right(parsed) and self.fits_receive(parsed) else Nak.INVALID_REQUEST

    def _check_key(self, parsed: Parsed, step: MessageStep) -> int | None:
        if step in _CHECKED_KEYS:
            length = ATOMIC_SIZE if step is MessageStep.ATOMIC else parsed.values["dmalen"]
            good = self.keys_are_good(parsed, RIGHTS[step], length)
        else:  # the r_key that a SEND invalidates
            region = self.qp.hca.regions.by_rkey.get(parsed.values["r_key"])
            good = region is not None and region.pd == self.qp.pd
        return None if good else Nak.REMOTE_ACCESS_ERROR

    def _check_alignment(self, parsed: Parsed, step: MessageStep) -> int | None:
        return Nak.INVALID_REQUEST if parsed.values["va"] % ATOMIC_SIZE else None

    def _refuse(self, parsed: Parsed, syndrome: int) -> None:
        """Refuse a request: send RNR NAK and keep ePSN, or send NAK and enter ERR."""
        if syndrome & 0x60 == _RNR:
            self._nak_sent = True
            self._answer_nak(parsed.psn, syndrome)
            return
        in_order = parsed.step in SENDS and parsed.step in MESSAGE_STATES[self.phase]
        too_long = in_order and self.size_is_right(parsed) and not self.fits_receive(parsed)
        self._fail(parsed.psn, syndrome, Status(self.config.too_long_status) if too_long else None)

    def _fail(self, psn: int, syndrome: int, receive_status: Status | None = None) -> None:
        """Send NAK 0x61 to 0x63 and enter ERR; a receive at fault ends with its own status (roce.md §10)."""
        qp = self.qp
        self._answer_nak(psn, syndrome)
        if receive_status is not None:
            qp.hold_receive()
            qp.end_receive(receive_status, vendor_err=syndrome)
        qp.hca.pending_events.append(AsyncNotice(EVENT_OF[syndrome], qp.number))
        qp.to_error()

    # Effects

    def _write_or_send(self, parsed: Parsed, now: int) -> None:
        step = parsed.step
        assert step is not None
        try:
            self.store(parsed)
        except BadKeyError:
            status = Status(self.config.bad_receive_status) if step in SENDS else None
            self._fail(parsed.psn, Nak.REMOTE_OPERATIONAL_ERROR, status)
            return
        self.phase = MESSAGE_STATES[self.phase][step]
        self.epsn = add(self.epsn, 1)
        if step in ENDS:
            self.msn = add(self.msn, 1)
            self.finish(parsed)
        if parsed.a:
            self.request_ack(now)

    def _read(self, parsed: Parsed) -> None:
        values = parsed.values
        length = values["dmalen"]
        count = count_of_packets(length, self.path_mtu)
        self.msn = add(self.msn, 1)
        self.saved.append(SavedResponse(self.epsn, count, values["va"], values["r_key"], length, None))
        self._clear_pending_acks()
        self._respond(parsed.psn, count, values)
        self.epsn = add(self.epsn, count)

    def _respond(self, psn: int, count: int, values: dict[str, int]) -> None:
        """Queue the response to a READ, which acknowledges all PSNs before it."""
        length = values["dmalen"]
        region = self.qp.hca.regions.by_rkey.get(values["r_key"]) if length else None
        self.answers.append(ReadResponse(psn, count, 0, region, values["va"], length, self.aeth()))

    def _atomic(self, parsed: Parsed) -> None:
        """Execute an ATOMIC, indivisibly as the engine runs nothing else meanwhile."""
        values = parsed.values
        region = self.qp.hca.regions.by_rkey[values["r_key"]]
        order = self.config.atomic_order
        try:
            original = int.from_bytes(region.read(values["va"], ATOMIC_SIZE), order)
            if parsed.operation == Operation.FETCH_ADD:
                region.write(values["va"], (original + values["swapdt"] & _M64).to_bytes(ATOMIC_SIZE, order))
            elif original == values["cmpdt"]:
                region.write(values["va"], values["swapdt"].to_bytes(ATOMIC_SIZE, order))
        except BadKeyError:
            self._fail(parsed.psn, Nak.REMOTE_OPERATIONAL_ERROR)
            return
        self.msn = add(self.msn, 1)
        self.saved.append(SavedResponse(self.epsn, 1, values["va"], values["r_key"], ATOMIC_SIZE, original))
        self._clear_pending_acks()
        self._answer_atomic(parsed.psn, original)
        self.epsn = add(self.epsn, 1)

    # Duplicates

    def _take_duplicate(self, parsed: Parsed, now: int) -> None:
        """Repeat the response to a duplicate without executing it again (roce.md §8.1)."""
        self.qp.hca.count("duplicate request")
        step = parsed.step
        if step is MessageStep.READ:
            self._read_again(parsed)
        elif step is MessageStep.ATOMIC:
            saved = next((s for s in self.saved if s.psn == parsed.psn and s.original is not None), None)
            if saved is not None and saved.original is not None:
                self._answer_atomic(saved.psn, saved.original)
        elif step is not None:
            if self.config.duplicate_write == "always":
                self._acknowledge()
            elif parsed.a:
                later = next((s for s in self.saved if diff(s.psn, parsed.psn) > 0), None)
                if later is None:
                    self._acknowledge()
                else:
                    self._answer_saved(later)

    def _answer_saved(self, saved: SavedResponse) -> None:
        if saved.original is not None:
            self._answer_atomic(saved.psn, saved.original)
        else:
            self._respond(saved.psn, saved.count, {"r_key": saved.r_key, "va": saved.va, "dmalen": saved.length})

    def _read_again(self, parsed: Parsed) -> None:
        """Repeat a response to a READ, or its last part; a response that is still being sent is moved back instead."""
        values, psn = parsed.values, parsed.psn
        va, length = values["va"], values["dmalen"]
        count = count_of_packets(length, self.path_mtu)
        if not any(
            s.original is None
            and s.r_key == values["r_key"]
            and s.va <= va
            and va + length <= s.va + s.length
            and (psn - s.psn & MASK) + count <= s.count
            for s in self.saved
        ):
            self.qp.hca.count("duplicate without its saved answer")
            return
        for answer in self.answers:
            if isinstance(answer, ReadResponse) and add(answer.psn, answer.count) == add(psn, count):
                if (psn - answer.psn & MASK) > answer.sent:
                    return  # the response has not been sent that far
                if psn == add(answer.psn, answer.count - count):
                    answer.psn, answer.count, answer.sent = psn, count, 0
                    answer.va, answer.length = va, length
                    return
        if self.keys_are_good(parsed, Access.REMOTE_READ, length):  # the region may have changed since
            self._respond(psn, count, values)

    # Answers

    def aeth(self, syndrome: int | None = None) -> bytes:
        """Return the AETH of a response, or of an ACK if `syndrome` is None."""
        return AethHeader.pack(syndrome=self._credit_code() if syndrome is None else syndrome, msn=self.msn)

    def _credit_code(self) -> int:
        """Return the largest credit code that the posted receives cover (roce.md §2.1)."""
        receives = self.qp.receives
        if receives.shared or not self.config.credits:
            return NO_CREDIT_LIMIT
        left = len(receives.items)
        code = 0
        while code < NO_CREDIT_LIMIT - 1 and count_of(code + 1) <= left:
            code += 1
        return code

    def _answer_nak(self, psn: int, syndrome: int) -> None:
        """Queue a NAK or RNR NAK, which acknowledges all PSNs before its own."""
        self.qp.hca.count("RNR NAK" if syndrome & 0x60 == _RNR else f"NAK {Nak(syndrome).name}")
        self._clear_pending_acks()
        self.answers.append(ShortResponse(Operation.ACKNOWLEDGE, psn, self.aeth(syndrome)))

    def _answer_atomic(self, psn: int, original: int) -> None:
        headers = self.aeth() + AtomicAckEthHeader.pack(origremdt=original)
        self.answers.append(ShortResponse(Operation.ATOMIC_ACKNOWLEDGE, psn, headers))

    def request_ack(self, now: int) -> ShortResponse | None:
        """Acknowledge all PSNs before ePSN, at once or when more acknowledgements are owed. Return the ACK if it is
        queued now."""
        self._pending_acks += 1
        if self._pending_acks >= self.config.ack_coalesce:
            return self._acknowledge()
        if self._ack_deadline == NEVER:
            self._ack_deadline = now + self.config.ack_delay
        return None

    @property
    def acknowledges_at_once(self) -> bool:
        """Return whether each `request_ack` queues an ACK."""
        return self.config.ack_coalesce == 1

    def _acknowledge(self) -> ShortResponse:
        """Queue one ACK for all PSNs before ePSN, and return it."""
        self._clear_pending_acks()
        ack = ShortResponse(Operation.ACKNOWLEDGE, add(self.epsn, -1), self.aeth())
        self.answers.append(ack)
        return ack

    def _clear_pending_acks(self) -> None:
        """Clear the pending acknowledgements, as a response is queued that acknowledges all PSNs before ePSN."""
        self._pending_acks, self._ack_deadline = 0, NEVER

    def forget(self) -> None:
        self.answers.clear()
        self._clear_pending_acks()

    def pump(self, now: int, out: list[RocePacket], budget: int) -> int:
        sent = 0
        path, answers, plain = self.qp.path, self.answers, self.qp.messages is not None
        while answers:
            answer = answers[0]
            if isinstance(answer, ShortResponse):
                headers = answer.headers
                if plain and answer.operation is _ACKNOWLEDGE and headers[0] == NO_CREDIT_LIMIT:
                    out.append(path.message_ack(answer.psn, headers))
                else:
                    out.append(path.packet(answer.operation, answer.psn, headers))
                answers.popleft()
                continue
            if sent >= budget:
                break
            found = self._next_part(answer)
            if found is None:
                self._fail_deregistered(answer)
                continue
            out.append(found)
            sent += 1
            if answer.sent == answer.count:
                answers.popleft()
        return sent

    def _next_part(self, reading: ReadResponse) -> RocePacket | None:
        """Return the next packet of a READ response; None if its region is deregistered."""
        index = reading.sent
        offset = index * self.path_mtu
        operation = operation_at(_RESPONSE, index, reading.count)
        headers = b"" if operation is _RESPONSE.middle else reading.aeth
        try:
            size = min(self.path_mtu, reading.length - offset)
            payload = reading.region.read(reading.va + offset, size) if reading.region is not None else b""
        except BadKeyError:
            return None
        reading.sent += 1
        return self.qp.path.packet(operation, reading.psn + index, headers, payload)

    def _fail_deregistered(self, reading: ReadResponse) -> None:
        """Send NAK 0x63 and enter ERR, as a region was deregistered while it was read (roce.md §8 check 10).

        Later requests get no response.
        """
        self.answers.clear()
        if self.qp.behaviour.serves:
            self._fail(add(reading.psn, reading.sent), Nak.REMOTE_OPERATIONAL_ERROR)

    # Time

    def deadline(self) -> int:
        return self._ack_deadline

    def on_time(self, now: int) -> None:
        if self._ack_deadline <= now:
            self._acknowledge()


_Check = Callable[[RcResponder, Parsed, MessageStep], int | None]
_METHODS: dict[str, tuple[_Check, Callable[[int, MessageStep], bool]]] = {
    "order": (RcResponder._check_order, lambda operation, step: True),
    "rights": (RcResponder._check_rights, lambda operation, step: step in RIGHTS),
    "receive": (RcResponder._check_receive, lambda operation, step: step in SENDS or operation in WITH_IMM),
    "resources": (RcResponder._check_resources, lambda operation, step: step in (MessageStep.READ, MessageStep.ATOMIC)),
    "size": (RcResponder._check_size, lambda operation, step: True),
    "key": (RcResponder._check_key, lambda operation, step: step in _CHECKED_KEYS or operation in WITH_INV),
    "alignment": (RcResponder._check_alignment, lambda operation, step: step is MessageStep.ATOMIC),
}
"""Maps each check to its method, and to the operations that it can refuse; it is skipped for all others."""
_COMPILED_CHECKS = {
    order: {
        operation: tuple(method for method, concerns in map(_METHODS.__getitem__, names) if concerns(operation, step))
        for operation, step in STEPS.items()
    }
    for order, names in CHECKS.items()
}
"""Maps each order of checks to the checks of every operation that is served."""
