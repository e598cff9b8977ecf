# SPDX-License-Identifier: GPL-2.0-only
"""This module follows the answers of RoCE queue pairs: it finds the requests that they answer, and compares PSNs, MSNs
and the lengths of READs."""

from collections.abc import Mapping

from uetproto.audit.judge import Judge, Tell
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.roce.tracker_requests import Contradicted, Requests, if_sure
from uetproto.audit.roce.tracker_state import (
    ATOMICS,
    FAR,
    HALF,
    M24,
    MOST,
    READ_RESPONSES,
    AuditedRead,
    QpStream,
    RequestRecord,
    RoceEvent,
    diff24,
    is_silent,
)
from uetproto.audit.rule import Inconclusive, Requires, Violation
from uetproto.audit.wire.tracker import WireEvent
from uetproto.wire.headers.roce import PMTUS, Nak, Operation
from uetproto.wire.words.text import numbered

_ENDS = frozenset({Operation.RDMA_READ_RESPONSE_LAST, Operation.RDMA_READ_RESPONSE_ONLY})
_ACKNOWLEDGE = Operation.ACKNOWLEDGE
_ACK, _NAK = 0, 3
"""Values of bits 5 and 6 of a syndrome (roce.md §2.1)."""
_REFUSALS = frozenset({Nak.INVALID_REQUEST, Nak.REMOTE_ACCESS_ERROR, Nak.REMOTE_OPERATIONAL_ERROR})
_TOO_MANY = Inconclusive("too many such answers")
_WAITING = 64
"""Answers that are kept until later packets show whether they are wrong."""
_SOON = 10**9
"""Nanoseconds within which no queue pair sends `FAR` requests that a capture misses altogether."""


class Answers:
    """This class finds the requests that the answers of queue pairs belong to, and reports contradictions."""

    __slots__ = ("_by_hosts", "_certain", "_length", "_ordered", "_requests", "_response", "_tell")

    def __init__(
        self, judge: Judge, tell: Mapping[RoceEvent, Tell], by_hosts: dict[tuple[int, int], list[QpStream]],
        requests: Requests, *, ordered: bool, complete: bool,
    ) -> None:  # fmt: skip
        """`ordered` says that packets were captured in the order of sending, and `complete` says that no packet is
        missing."""
        self._tell = tell
        self._ordered = ordered
        self._certain = ordered and complete
        self._response = tell[RoceEvent.RESPONSE]
        self._length = judge.rules.tell(WireEvent)[WireEvent.ROCE_LENGTH]
        self._by_hosts = by_hosts
        self._requests = requests

    def see(self, stream: QpStream, seen: ObservedPacket, operation: int) -> None:
        requests = stream.other
        if requests is None or requests.newest is None:
            self._waits(stream, seen)
        else:
            self._answer(stream, requests, seen, operation)

    # Finding the requester --------------------------------------------------------------------------------------------

    def _waits(self, stream: QpStream, seen: ObservedPacket) -> None:
        """Keep an answer of a queue pair whose peer is not known, or has sent no request yet."""
        if stream.other is not None or not stream.is_reliable:
            return
        if len(stream.waiting) < _WAITING:
            stream.waiting.append(seen)
        near = [each for each in self._alone(stream) if _is_near(each, seen.head.psn)]
        same = [each for each in near if each.entropy == stream.entropy]
        if len(same) == 1:  # the source port is made of the numbers of both queue pairs
            self._pair(stream, same[0], seen)
        elif len(near) == 1 and (near[0].read_of(seen.head.psn) or seen.head.psn in near[0].records):
            self._pair(stream, near[0], seen)

    def _alone(self, stream: QpStream) -> list[QpStream]:
        """Return the streams of requests in the opposite direction whose peer is not known."""
        src, dst = stream.hosts
        return [each for each in self._by_hosts.get((dst, src), ()) if each.other is None and each.newest is not None]

    def _pair(self, one: QpStream, other: QpStream, answer: ObservedPacket) -> None:
        """Connect two queue pairs. `answer`: the newest packet, which shows that they are connected."""
        one.other, other.other = other, one
        one.pause = other.pause = max(one.pause, other.pause)
        one.pause_before = other.pause_before = None
        is_new = is_silent(other, answer)
        if is_new and not other.asked(answer.head.psn):
            one.may_be_new(answer.number)
        for each in (one, other):
            if not each.is_sure_of(each.size_number):
                each.pmtu = each.longest = 0
        if not is_new and one.p_key != other.p_key:
            one.expected_key = other.p_key, other.key_number
            self._tell[RoceEvent.KEY](one, answer)
        for stream, requests in ((one, other), (other, one)):
            waiting, stream.waiting = stream.waiting, []
            for seen in waiting if requests.newest is not None else ():
                if stream.is_sure_of(seen.number):
                    self._answer(stream, requests, seen, seen.head.opcode & 0x1F)

    def pair_the_rest(self) -> None:
        """At the end of the capture, connect two queue pairs if neither of them can be connected to another one."""
        for streams in list(self._by_hosts.values()):
            for stream in streams:
                if stream.other is None and stream.waiting:
                    there = [each for each in self._alone(stream) if each.entropy == stream.entropy]
                    here = [each for each in streams if each.other is None and each.entropy == stream.entropy]
                    if len(there) == len(here) == 1:
                        self._pair(stream, there[0], stream.waiting[-1])

    # Answers ----------------------------------------------------------------------------------------------------------

    def _answer(self, stream: QpStream, requests: QpStream, seen: ObservedPacket, operation: int) -> None:
        psn = seen.head.psn
        assert requests.newest is not None
        self._response(stream, seen)
        left = requests.left
        if left is not None and 0 <= diff24(psn, left[0]) <= _WAITING:  # what seemed to begin a connection is answered
            self._requests.tell_jump(requests)
        suspect = requests.suspect
        if suspect is not None and psn == suspect.head.psn:
            was = requests.records.get(psn)
            fits = _answers(operation, suspect.head.opcode & 0x1F)
            if fits and was is not None and not _answers(operation, was.operation):
                self._requests.begin_again(requests)
        if FAR < (psn - requests.newest) & M24 < HALF:
            if len(requests.unsent) < _WAITING:
                requests.unsent.append(seen)
            else:
                self._tell[RoceEvent.UNSENT](Contradicted(stream, _TOO_MANY), seen)
            return
        if _is_ahead(requests, psn):
            self._ahead(stream, requests, seen)
            if operation != _ACKNOWLEDGE or seen.more[0].syndrome >> 5 & 3 == _ACK:
                return
        acked = psn if operation != _ACKNOWLEDGE or seen.more[0].syndrome >> 5 & 3 == _ACK else psn - 1
        if requests.answered is None or diff24(acked, requests.answered) > 0:
            requests.answered = acked & M24
        if operation in READ_RESPONSES:
            self._read_data(stream, requests, seen, operation)
        elif operation == _ACKNOWLEDGE:
            self._acknowledge(stream, requests, seen)
        else:
            self._atomic(stream, requests, seen)
        if stream.refused is not None and diff24(psn, stream.refused[0]) >= 0 and stream.refused[1] != seen.number:
            self._tell[RoceEvent.ALIVE](if_sure(stream, stream.refused[1]), seen)

    def _ahead(self, stream: QpStream, requests: QpStream, seen: ObservedPacket) -> None:
        """Follow an answer whose request has not come, though others near it have."""
        tell = self._tell[RoceEvent.UNSENT]
        if self._ordered:
            self._doubt(requests, tell, Contradicted(stream, _unsent(requests, seen)), seen, requests.last_request)
            return
        if len(requests.ahead) >= _WAITING:
            self._check_ahead(requests, seen_since=True)
        if len(requests.ahead) < _WAITING:
            requests.ahead.append((tell, Contradicted(stream), seen))
        else:
            tell(Contradicted(stream, _TOO_MANY), seen)

    def _check_ahead(self, requests: QpStream, *, seen_since: bool) -> None:
        """Drop answers whose requests came later. Report the others, unless requests may follow (`seen_since`)."""
        kept = []
        for tell, state, seen in requests.ahead:
            if not _is_ahead(requests, seen.head.psn):
                tell(Contradicted(state.stream, Inconclusive(Requires.ORDER.value)), seen)
            elif seen_since:
                kept.append((tell, state, seen))
            else:
                wrong = Contradicted(state.stream, _unsent(requests, seen))
                self._doubt(requests, tell, wrong, seen, requests.last_request)
        requests.ahead = kept

    def settle(self, stream: QpStream, *, seen_since: bool) -> None:
        """Report answers to requests that were not sent, unless the requests may be missing from the capture.

        `stream` holds the requests. If `seen_since` is True, an answer is considered only if a request was seen after
        the answer.
        """
        if not seen_since and stream.newest is not None:
            self._check_ahead(stream, seen_since=False)
        if stream.suspect is None:
            for tell, state, seen in stream.doubts:
                tell(state, seen)
            stream.doubts.clear()
        kept = []
        for seen in stream.unsent:
            if stream.newest is None or stream.other is None or abs(diff24(seen.head.psn, stream.newest)) <= FAR:
                continue  # the requests have come near its PSN: it answers another connection
            soon = stream.is_sure_of(stream.last_request) and seen.time_ns - stream.last_ns < _SOON
            if stream.last_request > seen.number or (soon and not seen_since):
                self._tell[RoceEvent.UNSENT](stream.other, seen)
            elif seen_since:
                kept.append(seen)
        stream.unsent = kept
        if not seen_since and stream.naked is not None and stream.other is not None:
            psn, seen = stream.naked
            if stream.other.awaited == psn:
                self._tell[RoceEvent.UNHEEDED](stream, seen)
            stream.naked = None

    def _acknowledge(self, stream: QpStream, requests: QpStream, seen: ObservedPacket) -> None:
        psn, aeth = seen.head.psn, seen.more[0]
        kind = aeth.syndrome >> 5 & 3
        if kind == _ACK:
            self._count(stream, requests, seen, aeth.msn)
            self._alone_for_data(stream, requests, seen)
        elif kind == _NAK and aeth.syndrome == Nak.PSN_SEQUENCE_ERROR:
            before = stream.naked
            if before is None or before[0] != psn or requests.awaited != psn:
                stream.naked = None
            self._tell[RoceEvent.NAK](stream, seen)
            stream.naked = psn, seen
            requests.awaited = psn
        elif aeth.syndrome in _REFUSALS:
            self._tell[RoceEvent.REFUSED](stream, seen)
            stream.refused = psn, seen.number
            requests.dead = True

    def _count(self, stream: QpStream, requests: QpStream, seen: ObservedPacket, msn: int) -> None:
        """Compare the MSNs of two ACKs: they differ by the number of messages that ended in between."""
        record = requests.records.get(seen.head.psn)
        if record is None or record.run < 0 or not stream.is_sure_of(record.number):
            return
        acked = stream.acked
        if acked is not None and acked[2].run == record.run and stream.is_sure_of(acked[0]):
            grown = record.done - acked[2].done
            if grown >= 0 and (msn - acked[1]) & M24 < HALF:  # else another connection may have begun
                stream.expected_msn = (acked[1] + grown) & M24
                before, stream.acked_before = stream.acked_before, None
                if msn != stream.expected_msn:
                    if before is not None and msn == (before[1] + record.done - before[2].done) & M24:
                        stream.expected_msn = msn  # the MSN between was wrong, and was told
                    else:
                        stream.acked_before = acked
                self._tell[RoceEvent.MSN](stream, seen)
        stream.acked = seen.number, msn, record

    def _alone_for_data(self, stream: QpStream, requests: QpStream, seen: ObservedPacket) -> None:
        """Follow an ACK that names a READ or an atomic request, which only the answer to a repeated request may."""
        psn = seen.head.psn
        read, was = requests.read_of(psn), requests.records.get(psn)
        newest = requests.newest
        if read is None and newest is not None and requests.next is None and 0 < (psn - newest) & M24 < HALF:
            read = requests.reads.get(newest)  # it uses this PSN, as no other request does
        if read is not None:
            asked, expected, is_answered = read.number, "data of the READ", read.answered
        elif was is not None and was.operation in ATOMICS:
            asked, expected, is_answered = was.number, "the value of the atomic request", psn in stream.atomics
        else:
            return
        if requests.dead:
            return
        wrong = Violation(f"{expected} of {numbered(asked)}", "an ACK alone", (asked,))
        if read is not None and read.span and psn != (read.start + read.span - 1) & M24:
            self._doubt(requests, self._tell[RoceEvent.STRANGE], Contradicted(stream, wrong), seen, asked)
            return
        tell = self._tell[RoceEvent.ACK_ALONE]
        if is_answered or requests.repeated > asked:
            tell(Contradicted(stream, Inconclusive("it may answer a request that came again")), seen)
        else:
            self._doubt(requests, tell, Contradicted(stream, wrong), seen, asked)

    def _atomic(self, stream: QpStream, requests: QpStream, seen: ObservedPacket) -> None:
        psn = seen.head.psn
        was = requests.records.get(psn)
        if was is not None and was.operation not in ATOMICS:
            self._strange(stream, requests, seen, was)
            return
        original = stream.original = stream.atomics.get(psn)
        is_sure = original is None or stream.is_sure_of(original[0])
        self._tell[RoceEvent.ATOMIC_ANSWER](stream if is_sure else Contradicted(stream), seen)
        if original is None or not is_sure:
            self._tell[RoceEvent.ACK_ALONE](Contradicted(stream, None), seen)
            if self._certain:  # else this may be the answer to a copy
                self._count(stream, requests, seen, seen.more[0].msn)
            stream.atomics.pop(psn, None)
            stream.atomics[psn] = seen.number, seen.more[1].origremdt
            oldest = next(iter(stream.atomics))
            if len(stream.atomics) > MOST or abs(diff24(psn, oldest)) > FAR:
                del stream.atomics[oldest]

    # READ -------------------------------------------------------------------------------------------------------------

    def _read_data(self, stream: QpStream, requests: QpStream, seen: ObservedPacket, operation: int) -> None:
        psn = seen.head.psn
        read = stream.reading
        if read is None or not read.has(psn):
            if stream.pmtu:
                _learn(requests, stream.pmtu)
            read = stream.reading = requests.read_of(psn)
        if read is None:
            was = requests.records.get(psn)
            if was is not None and was.operation not in _WITH_READ_RESPONSE:
                self._strange(stream, requests, seen, was)
            return
        if not read.answered:
            read.answered = True
            self._tell[RoceEvent.ACK_ALONE](Contradicted(stream, None), seen)
        index = (psn - read.start) & M24
        if index == 0 and read.is_first:
            stream.read = read
            self._tell[RoceEvent.READ_BEGINS](if_sure(stream, read.number), seen)
        self._lengths(stream, requests, read, seen, operation, index)

    def _lengths(
        self, stream: QpStream, requests: QpStream, read: AuditedRead, seen: ObservedPacket, operation: int, index: int
    ) -> None:
        """Compare the length of read data with `dmalen`; the path MTU says which bytes a packet carries."""
        size, dmalen = seen.size, read.dmalen
        pmtu = stream.pmtu or read.pmtu
        if size < 0 or read.told or (index and not pmtu):
            return
        so_far = index * pmtu + size
        if so_far == dmalen if operation in _ENDS else so_far < dmalen:
            return
        read.told = True
        expected = f"{dmalen} bytes of a READ, as its dmalen says"
        more = "" if operation in _ENDS else ", and more to come"
        wrong = Violation(expected, f"{so_far}{more}", (read.number,))
        self._doubt(requests, self._length, Contradicted(stream, wrong), seen, read.number)

    def _strange(self, stream: QpStream, requests: QpStream, seen: ObservedPacket, was: RequestRecord) -> None:
        if not requests.dead:
            name = Operation(was.operation).name
            wrong = Violation(f"an answer to the {name} of {numbered(was.number)}", _name(seen), (was.number,))
            self._doubt(requests, self._tell[RoceEvent.STRANGE], Contradicted(stream, wrong), seen, was.number)

    def _doubt(self, requests: QpStream, tell: Tell, state: Contradicted, seen: ObservedPacket, asked: int) -> None:
        """Keep a finding until it is certain that no other connection begins. `asked`: number of the request."""
        if not requests.is_sure_of(asked):
            tell(Contradicted(state.stream), seen)
        elif len(requests.doubts) < _WAITING:
            requests.doubts.append((tell, state, seen))
        else:
            tell(Contradicted(state.stream, _TOO_MANY), seen)


_WITH_READ_RESPONSE = frozenset({Operation.RDMA_READ_REQUEST, Operation.FLUSH, Operation.ATOMIC_WRITE})


def _answers(operation: int, request: int) -> bool:
    """Return whether an answer is of a kind that only such a request gets."""
    if operation in READ_RESPONSES:
        return request == Operation.RDMA_READ_REQUEST
    return operation == Operation.ATOMIC_ACKNOWLEDGE and request in ATOMICS


def _name(seen: ObservedPacket) -> str:
    return Operation(seen.head.opcode & 0x1F).name


def _is_near(requests: QpStream, psn: int) -> bool:
    assert requests.newest is not None
    return abs(diff24(psn, requests.newest)) <= FAR or requests.read_of(psn) is not None


def _is_ahead(requests: QpStream, psn: int) -> bool:
    """Return whether a PSN is beyond all requests; a READ of unknown path MTU uses the most PSNs that it may."""
    newest = requests.newest
    assert newest is not None
    read = requests.reads.get(newest) if requests.next is None else None
    more = 0 if read is None or read.span else max(1, -(-read.dmalen // PMTUS[0])) - 1
    return more < (psn - newest) & M24 < HALF


def _unsent(requests: QpStream, seen: ObservedPacket) -> Violation:
    return Violation(f"an answer to a request: the newest has PSN {requests.newest}", f"PSN {seen.head.psn}")


def _learn(requests: QpStream, pmtu: int) -> None:
    """Set the path MTU of READs for which it was not known."""
    for read in reversed(requests.reads.values()):
        if read.pmtu:
            break
        read.pmtu = pmtu
        if requests.newest == read.start and requests.next is None:
            requests.next = (read.start + read.span) & M24
            requests.newest = (requests.next - 1) & M24
