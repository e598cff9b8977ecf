# SPDX-License-Identifier: GPL-2.0-only
"""This module follows the RoCE requests that take the slow path: copies, the first request of a connection, and
requests whose PSN is ahead of the next PSN or behind it."""

from collections.abc import Mapping
from typing import NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.judge import Judge, Tell
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.roce.tracker_state import (
    AFTER,
    ATOMICS,
    BEFORE,
    FAR,
    IDLE,
    M24,
    MOST,
    UNKNOWN,
    WRITES_END,
    AuditedRead,
    PsnGap,
    QpStream,
    RequestRecord,
    RoceEvent,
    diff24,
)
from uetproto.audit.rule import Inconclusive, Requires, Verdict, Violation
from uetproto.audit.wire.tracker import WireEvent
from uetproto.wire.headers.roce import PMTUS, Operation
from uetproto.wire.words.text import numbered

_READ = Operation.RDMA_READ_REQUEST
_WRITE_FIRST = Operation.RDMA_WRITE_FIRST
_APART = -1
"""Stands for the run of a request whose neighbours are not known."""
_GAPS = 64
"""Most gaps of a queue pair that are kept until they close."""
ANOTHER = Inconclusive("the queue pairs may have been connected anew")


def conflicts(was: RequestRecord, now: RequestRecord) -> bool:
    """Return whether two requests that have the same PSN differ in operation or content. A content that is not known
    counts as equal."""
    if was.operation != now.operation or was.content is None or now.content is None:
        return was.operation != now.operation
    return was.content != now.content


class Contradicted(NamedTuple):
    """A rule gets this record in place of the `QpStream` at an event that the tracker itself has judged. By default,
    `verdict` says that the packets may belong to two connections; None says that nothing is wrong."""

    stream: QpStream
    verdict: Verdict = ANOTHER

    def flow(self) -> Flow:
        return self.stream.flow()


def if_sure(stream: QpStream, number: int) -> QpStream | Contradicted:
    """Return what a rule gets at an event that compares a packet with the earlier packet `number`: the stream, or a
    `Contradicted` if the two packets may belong to two connections."""
    return stream if stream.is_sure_of(number) else Contradicted(stream)


class Requests:
    """This class follows the requests that take the slow path."""

    __slots__ = ("_certain", "_complete", "_length", "_tell")

    def __init__(self, judge: Judge, tell: Mapping[RoceEvent, Tell], *, complete: bool, ordered: bool) -> None:
        """`complete` says that no packet is missing, so that the first copy of a request is its first transmission.
        `ordered` says that packets were captured in the order of sending."""
        self._tell = tell
        self._complete = complete
        self._certain = complete and ordered
        self._length = judge.rules.tell(WireEvent)[WireEvent.ROCE_LENGTH]

    def see(self, stream: QpStream, seen: ObservedPacket, operation: int) -> None:
        """Follow a request that does not have the next PSN, or whose operation cannot follow the last request."""
        if stream.suspect is not None and self._is_new_connection(stream, seen, operation):
            self.begin_again(stream)
        psn = seen.head.psn
        newest = stream.newest
        if newest is None:
            self._adopt(stream, seen, operation, known=False)
            return
        if psn == stream.awaited:
            stream.awaited = None
        was = stream.records.get(psn)
        distance = diff24(psn, newest)
        if distance <= 0:
            stream.repeated = seen.number
        if was is not None and distance <= 0:
            self._again(stream, seen, operation, was)
        elif psn == stream.next:
            self._due(stream, seen, operation)
        elif distance <= 0 and (read := stream.read_of(psn)) is not None:
            self._in_read(stream, seen, operation, read)
        elif abs(distance) > FAR:
            self._far(stream, seen, operation)
        elif distance > 0:
            if not self._may_follow_read(stream, seen, operation):
                self._skip(stream, seen)
            stream.run += 1
            self._adopt(stream, seen, operation, known=False)
        else:
            self._behind(stream, seen, operation)

    def note(self, stream: QpStream, seen: ObservedPacket, operation: int, *, known: bool = True) -> None:
        """Store the parts of a new request that a `RequestRecord` does not hold. `known` says that the request with the
        preceding PSN was seen."""
        if operation == _WRITE_FIRST:
            stream.first = seen.head.psn
            stream.stated[seen.head.psn] = seen.more[0].dmalen
            stream.written = seen.size if seen.size >= 0 else UNKNOWN
        elif operation in WRITES_END:
            if stream.first is not None and stream.written >= 0 and seen.size >= 0:
                self._sum(stream, seen, stream.first, stream.written)
            stream.first = None
        elif operation == _READ:
            self._read(stream, seen, known)
        elif operation in ATOMICS:
            self._tell[RoceEvent.ATOMIC](stream, seen)

    def settle(self, stream: QpStream) -> None:
        """Report the skipped PSNs that did not come, and decide that the suspected request (`QpStream.suspect`) did not
        begin a new connection."""
        for gap in stream.gaps:
            gap.tell(gap.state, gap.seen)
        stream.gaps.clear()
        suspect = stream.suspect
        if suspect is None:
            return
        stream.suspect = None
        stream.next = stream.after_suspect
        was = stream.records.get(suspect.head.psn)
        if was is not None:
            self._other_copy(stream, suspect, suspect.head.opcode & 0x1F, was)

    # Requests by their PSN --------------------------------------------------------------------------------------------

    def _due(self, stream: QpStream, seen: ObservedPacket, operation: int) -> None:
        """Follow a request with the next PSN."""
        before = stream.inside
        was = _newest(stream)
        wrong = before is not None and BEFORE[operation] != before
        if wrong:
            stream.run += 1
        self._adopt(stream, seen, operation, known=True)
        if wrong and was is not None:
            stream.inside = stream.first = None
            self._misordered(stream, seen, was)

    def _again(self, stream: QpStream, seen: ObservedPacket, operation: int, was: RequestRecord) -> None:
        is_other, is_sure = conflicts(was, _record(stream, seen, operation)), stream.is_sure_of(was.number)
        if stream.dead and (is_other or not is_sure):
            self._begin(stream, seen, operation)
            return
        if is_other:
            if not is_sure:
                self._tell[RoceEvent.AGAIN](Contradicted(stream), seen)
                self._begin(stream, seen, operation)
                return
            is_right_behind = was.number == stream.last_request and not _is_acked(stream, was)
            if BEFORE[operation] == IDLE and stream.suspect is None and not is_right_behind:
                stream.suspect, stream.after_suspect, stream.next = seen, stream.next, None
                return
            if stream.suspect is None:
                self._other_copy(stream, seen, operation, was)
            return
        stream.was = was
        self._tell[RoceEvent.AGAIN](stream, seen)

    def _other_copy(self, stream: QpStream, seen: ObservedPacket, operation: int, was: RequestRecord) -> None:
        """Report a copy that differs from the first request, and what else the copy contradicts."""
        stream.was = was
        self._tell[RoceEvent.AGAIN](stream, seen)
        if was.operation != operation:
            misfit = _misfit(stream, seen, operation)
            if misfit is not None:
                self._misordered(stream, seen, misfit)
        elif operation in (_WRITE_FIRST, _READ):
            read = stream.reads.get(seen.head.psn)
            stated = read.dmalen if read is not None else stream.stated.get(seen.head.psn)
            if stated is not None and stated != seen.more[0].dmalen:
                wrong = Violation(
                    f"dmalen {stated}, as of {numbered(was.number)}", f"{seen.more[0].dmalen}", (was.number,)
                )
                self._length(Contradicted(stream, wrong), seen)

    def _is_new_connection(self, stream: QpStream, seen: ObservedPacket, operation: int) -> bool:
        """Return whether a request shows that a new connection began with the suspect (`QpStream.suspect`)."""
        suspect = stream.suspect
        assert suspect is not None
        psn = seen.head.psn
        if psn == suspect.head.psn and seen.content == suspect.content:
            return False  # a copy proves nothing
        was = stream.records.get(psn)
        if was is not None:
            is_new = conflicts(was, _record(stream, seen, operation))
        else:
            is_new = psn == stream.after_suspect and (psn - suspect.head.psn) & M24 in _spans(suspect)
        if not is_new:
            self.settle(stream)
        return is_new

    def begin_again(self, stream: QpStream) -> None:
        """Begin a new connection with the suspected request (`QpStream.suspect`)."""
        suspect = stream.suspect
        assert suspect is not None
        self._begin(stream, suspect, suspect.head.opcode & 0x1F)

    def _begin(self, stream: QpStream, seen: ObservedPacket, operation: int) -> None:
        stream.restart()
        self._tell[RoceEvent.ANEW](stream, seen)
        self._adopt(stream, seen, operation, known=False)

    def _far(self, stream: QpStream, seen: ObservedPacket, operation: int) -> None:
        """Follow a request whose PSN is far from all others: another connection begins, unless the PSN is wrong."""
        left, own = stream.left, stream.next
        if left is not None and 0 <= diff24(seen.head.psn, left[0]) <= _GAPS:
            self.tell_jump(stream)
        elif self._certain and own is not None and not stream.dead:
            if BEFORE[operation] != IDLE and BEFORE[operation] == stream.inside:  # it goes on with a message
                self._tell[RoceEvent.JUMPED](_jump(stream, own, seen), seen)
                self._due(stream, seen._replace(head=seen.head._replace(psn=own)), operation)
                return
            if stream.is_sure_of(stream.last_request):
                self._begin(stream, seen, operation)
                stream.left = own, seen
                return
        self._begin(stream, seen, operation)

    def tell_jump(self, stream: QpStream) -> None:
        """Report that a request has a wrong PSN. Because of this PSN, another connection seemed to begin."""
        assert stream.left is not None
        own, seen = stream.left
        stream.left = None
        self._tell[RoceEvent.JUMPED](_jump(stream, own, seen), seen)

    def _in_read(self, stream: QpStream, seen: ObservedPacket, operation: int, read: AuditedRead) -> None:
        is_rest = operation == _READ and _asks_for(seen) == read.rest(seen.head.psn)
        if not is_rest and (stream.dead or not stream.is_sure_of(read.number)):
            self._tell[RoceEvent.IN_READ](Contradicted(stream), seen)
            self._begin(stream, seen, operation)
            return
        stream.read = read
        self._tell[RoceEvent.IN_READ](stream, seen)
        if operation == _READ:
            self._keep(stream, seen, operation, _APART)
            stream.reads.setdefault(seen.head.psn, AuditedRead(seen, is_first=False)).pmtu = read.pmtu

    def _behind(self, stream: QpStream, seen: ObservedPacket, operation: int) -> None:
        """Follow a request whose PSN was missing so far, or is before all others."""
        misfit = _misfit(stream, seen, operation)
        if misfit is not None and not stream.is_sure_of(misfit.number):
            self._misordered(stream, seen, misfit)
            self._begin(stream, seen, operation)
            return
        self._late(stream, seen)
        self._keep(stream, seen, operation, _APART)
        self._tell[RoceEvent.REQUEST](stream, seen)
        if misfit is not None:
            self._misordered(stream, seen, misfit)
        if operation in (_WRITE_FIRST, _READ) or operation in ATOMICS:
            self._note_behind(stream, seen, operation)
        self._sum_around(stream, seen)

    def _skip(self, stream: QpStream, seen: ObservedPacket) -> None:
        """Keep the PSNs that a request skips, until it is known whether they come."""
        assert stream.newest is not None
        start = (stream.newest + 1) & M24 if stream.next is None else stream.next
        expected = "the next PSN" if stream.next is None else f"PSN {stream.next}"
        count = (seen.head.psn - start) & M24
        state = Contradicted(stream, Violation(expected, str(seen.head.psn)))
        gap = PsnGap(start, count, count, self._tell[RoceEvent.SKIPPED], state, seen)
        if len(stream.gaps) < _GAPS:
            stream.gaps.append(gap)
        else:
            gap.tell(state, seen)

    def _late(self, stream: QpStream, seen: ObservedPacket) -> None:
        """Follow a request that comes behind a later one: as its first transmission, or again."""
        psn = seen.head.psn
        gap = next((each for each in stream.gaps if each.has(psn)), None)
        if gap is not None:
            gap.missing -= 1
            if not gap.missing:
                stream.gaps.remove(gap)
        ahead = stream.last_request if gap is None else gap.seen.number
        verdict: Violation | Inconclusive = ANOTHER
        if stream.is_reliable and not self._complete:
            verdict = Inconclusive(Requires.ABSENCE.value)
        elif _is_before(psn, stream.begun) or psn == stream.dropped or _is_before(psn, stream.dropped):
            verdict = Inconclusive("it may be sent again")
        elif stream.is_sure_of(ahead):
            others = () if gap is None else (ahead,)
            verdict = Violation(f"PSN {psn} before later ones", f"PSN {stream.newest} before it", others)
        self._tell[RoceEvent.LATE](Contradicted(stream, verdict), seen)

    def _misordered(self, stream: QpStream, seen: ObservedPacket, was: RequestRecord) -> None:
        stream.was = was
        self._tell[RoceEvent.MISORDERED](if_sure(stream, was.number), seen)

    def _note_behind(self, stream: QpStream, seen: ObservedPacket, operation: int) -> None:
        if operation == _WRITE_FIRST:
            stream.stated[seen.head.psn] = seen.more[0].dmalen
        elif operation == _READ:
            read = stream.reads[seen.head.psn] = AuditedRead(seen, is_first=False)
            read.pmtu = read.pmtu or _pmtu(stream)
        else:
            self._tell[RoceEvent.ATOMIC](stream, seen)

    def _adopt(self, stream: QpStream, seen: ObservedPacket, operation: int, *, known: bool) -> None:
        """Store a request as the newest. `known`: the PSN before was seen."""
        psn = seen.head.psn
        if stream.begun is None:
            stream.begun = psn
        stream.inside = AFTER[operation]
        if stream.inside == IDLE:
            stream.done += 1
        stream.newest, stream.next = psn, (psn + 1) & M24
        if not known:
            stream.first = None
        stream.written += seen.size
        self._keep(stream, seen, operation, stream.run)
        self._tell[RoceEvent.REQUEST](stream, seen)
        self.note(stream, seen, operation, known=known)

    def _keep(self, stream: QpStream, seen: ObservedPacket, operation: int, run: int) -> None:
        stream.last_request = seen.number
        stream.records.pop(seen.head.psn, None)
        stream.records[seen.head.psn] = _record(stream, seen, operation)._replace(run=run)
        if len(stream.records) > MOST:
            stream.shorten()

    # READ -------------------------------------------------------------------------------------------------------------

    def _read(self, stream: QpStream, seen: ObservedPacket, known: bool) -> None:
        read = AuditedRead(seen, is_first=known)
        read.pmtu = read.pmtu or _pmtu(stream)
        stream.reads.pop(read.start, None)
        stream.reads[read.start] = read
        if len(stream.reads) > MOST:
            stream.shorten()
        if read.span > FAR:
            own = stream.records[read.start]
            stream.dropped = read.start
            stream.records.clear()
            stream.records[read.start] = own
        if read.span:
            stream.next = (read.start + read.span) & M24
            stream.newest = (stream.next - 1) & M24
        else:
            stream.next = None

    def _may_follow_read(self, stream: QpStream, seen: ObservedPacket, operation: int) -> bool:
        """Return whether a request can follow a READ whose path MTU is not known, or ask for the rest of it."""
        read = stream.reads.get(stream.newest) if stream.newest is not None and stream.next is None else None
        if read is None or read.span:
            return False
        distance = (seen.head.psn - read.start) & M24
        answered = read.dmalen - seen.more[0].dmalen if operation == _READ else 0
        return any(distance == -(-read.dmalen // pmtu) or distance * pmtu == answered for pmtu in PMTUS)

    # Lengths ----------------------------------------------------------------------------------------------------------

    def _sum(self, stream: QpStream, seen: ObservedPacket, first: int, written: int) -> None:
        stated = stream.stated.get(first)
        start = stream.records.get(first)
        if stated is not None and stated != written:
            others = () if start is None or start.number == seen.number else (start.number,)
            wrong = Violation(f"{stated} bytes of an RDMA WRITE, as its dmalen says", f"{written}", others)
            self._length(Contradicted(stream, wrong), seen)

    def _sum_around(self, stream: QpStream, seen: ObservedPacket) -> None:
        """Check the length of the WRITE around a request that closed a gap, if it is complete now."""
        records = stream.records
        first = last = seen.head.psn
        written = 0
        for _ in range(MOST):
            record = records.get(first)
            if record is None or not stream.is_sure_of(record.number):
                return
            if record.operation == _WRITE_FIRST or BEFORE[record.operation] == IDLE:
                break
            first = (first - 1) & M24
        if records[first].operation != _WRITE_FIRST:
            return
        last = first
        for _ in range(MOST):
            record = records.get(last)
            if record is None or record.size < 0 or not stream.is_sure_of(record.number):
                return
            written += record.size
            if record.operation in WRITES_END:
                self._sum(stream, seen, first, written)
                return
            last = (last + 1) & M24


def _jump(stream: QpStream, expected: int, seen: ObservedPacket) -> Contradicted:
    return Contradicted(stream, Violation(f"PSN {expected}", str(seen.head.psn)))


def _record(stream: QpStream, seen: ObservedPacket, operation: int) -> RequestRecord:
    return RequestRecord(seen.number, operation, seen.content, seen.size, stream.done, stream.run)


def _misfit(stream: QpStream, seen: ObservedPacket, operation: int) -> RequestRecord | None:
    """Return the neighbour in PSN order that a request contradicts; None: there is none."""
    psn = seen.head.psn
    before, behind = stream.records.get((psn - 1) & M24), stream.records.get((psn + 1) & M24)
    if before is not None and before.operation != _READ and AFTER[before.operation] != BEFORE[operation]:
        return before
    if behind is not None and operation != _READ and BEFORE[behind.operation] != AFTER[operation]:
        return behind
    return None


def _is_acked(stream: QpStream, record: RequestRecord) -> bool:
    """Return whether the latest ACK names this request."""
    acked = stream.other.acked if stream.other is not None else None
    return acked is not None and acked[2] is record


def _asks_for(seen: ObservedPacket) -> tuple[int, int, int]:
    reth = seen.more[0]
    return reth.va, reth.r_key, reth.dmalen


def _is_before(psn: int, other: int | None) -> bool:
    return other is not None and diff24(psn, other) < 0


def _spans(seen: ObservedPacket) -> set[int]:
    """Return the numbers of PSNs that a request may use."""
    if seen.head.opcode & 0x1F != _READ:
        return {1}
    return {max(1, -(-seen.more[0].dmalen // pmtu)) for pmtu in PMTUS}


def _newest(stream: QpStream) -> RequestRecord | None:
    """Return the newest request; a READ uses PSNs after its own."""
    assert stream.newest is not None
    read = stream.read_of(stream.newest)
    return stream.records.get(stream.newest if read is None else read.start)


def _pmtu(stream: QpStream) -> int:
    """Return the path MTU of a connection; 0: not known."""
    return stream.pmtu or (stream.other.pmtu if stream.other is not None else 0)
