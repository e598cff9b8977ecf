# SPDX-License-Identifier: GPL-2.0-only
"""This module follows queue pairs of RoCE and InfiniBand (RC, UC and UD) in each direction, and congestion
notifications.

A request with the next PSN takes the fast path through `see`. Other requests take the slow path through
`tracker_requests.py`, and answers go to `tracker_answers.py`. No header says which two queue pairs are connected; the
tracker infers this from the PSNs of answers.
"""

from uetproto.audit.flows import SILENT, Flows
from uetproto.audit.judge import Judge
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.roce.tracker_answers import Answers
from uetproto.audit.roce.tracker_requests import Requests, conflicts
from uetproto.audit.roce.tracker_state import (
    AFTER,
    BEFORE,
    FAR,
    FULL,
    KEY,
    M24,
    MOST,
    NOTED,
    RECORDS,
    SILENCE,
    UNKNOWN,
    QpStream,
    RequestRecord,
    RoceEvent,
    diff24,
    is_silent,
)
from uetproto.wire.headers.ethernet import Ecn
from uetproto.wire.headers.roce import PMTUS, RESPONSES, Transport

Key = tuple[int, int, int]
"""Key of a `QpStream`: the source address, the destination address, and one number for transport and queue pair. The
queue pair is that of the destination, but in UD that of the source."""

_DEFAULT_KEY = 0xFFFF & KEY
_CE = int(Ecn.CE)
_MANAGEMENT = range(2)
"""Queue pairs whose P_Key may differ from packet to packet."""
_FOLLOWED = (Transport.RC, Transport.UC)
_EVERYBODY = -1
"""Stands for the destination in UD, where PSNs belong to the sender alone."""
_new = tuple.__new__


class RoceTracker:
    """This class follows the queue pairs of one vantage point."""

    __slots__ = (
        "_answers", "_by_hosts", "_by_key", "_by_port", "_certain", "_marked", "_packet", "_request",
        "_requests", "_tell", "flows",
    )  # fmt: skip

    def __init__(self, judge: Judge, options: Options) -> None:
        tell = judge.rules.tell(RoceEvent)
        self._tell = tell
        self._packet, self._request = tell[RoceEvent.PACKET], tell[RoceEvent.REQUEST]
        self.flows: Flows[Key, QpStream] = Flows(options.max_flows, self._over)
        self._by_key = self.flows.by_key
        self._by_hosts: dict[tuple[int, int], list[QpStream]] = {}
        self._marked: dict[tuple[int, int], tuple[int, int]] = {}
        """Maps source and destination to number and time of the last packet with CE."""
        self._certain = options.complete and options.ordered
        self._by_port: dict[tuple[int, int, int, int], QpStream] = {}
        """Newest queue pair by addresses, UDP source port and transport; only if nothing is missing or out of order."""
        self._requests = Requests(judge, tell, complete=options.complete, ordered=options.ordered)
        self._answers = Answers(
            judge, tell, self._by_hosts, self._requests, ordered=options.ordered, complete=options.complete
        )

    def see(self, seen: ObservedPacket) -> None:
        """Follow a packet that has a BTH and no wrong ICRC."""
        head = seen.head
        opcode, psn, size = head.opcode, head.psn, seen.size
        stream = self._by_key.get((seen.src, seen.dst, head.destqp << 3 | opcode >> 5))
        if stream is None:
            stream = self._opened(seen)
            if stream is None:
                return
        if not -SILENCE < seen.time_ns - stream.last_ns < SILENCE:
            self._resumed(stream, seen)
        stream.last_ns = seen.time_ns
        if seen.ecn == _CE:
            self._marked[seen.src, seen.dst] = seen.number, seen.time_ns
        self._packet(stream, seen)
        operation = opcode & 0x1F
        if head.p_key & KEY != stream.p_key:
            self._keys(stream, seen)
        if size != stream.pmtu if FULL[operation] else size > stream.longest:
            self._sized(stream, seen, operation)
        if operation in RESPONSES:
            self._answers.see(stream, seen, operation)
            return
        if psn != stream.next or BEFORE[operation] != stream.inside:
            self._requests.see(stream, seen, operation)
            return
        inside = stream.inside = AFTER[operation]
        if not inside:
            stream.done += 1
        stream.newest = psn
        stream.next = (psn + 1) & M24
        stream.written += size
        stream.last_request = seen.number
        records = stream.records
        records[psn] = _new(RequestRecord, (seen.number, operation, seen.content, size, stream.done, stream.run))
        if len(records) > MOST:
            stream.shorten()
        self._request(stream, seen)
        if operation in NOTED:
            self._requests.note(stream, seen, operation)

    def sweep(self, now: int) -> None:
        flows = self.flows
        if not flows.is_due():
            return
        for stream in flows:
            if stream.unsent or stream.doubts:
                self._answers.settle(stream, seen_since=True)
        self._drop(now)

    def trim(self, now: int) -> None:
        """Drop queue pairs as `sweep` does. In contrast to `sweep`, do not judge doubtful answers first, because few or
        no packets came since the last sweep."""
        if self.flows.is_due():
            self._drop(now)

    def _drop(self, now: int) -> None:
        flows = self.flows
        before = len(flows.by_key)
        flows.sweep(now)
        self._by_key = flows.by_key
        if len(self._by_key) != before:
            self._by_hosts.clear()
            for stream in flows:
                if stream.is_reliable:
                    self._by_hosts.setdefault(stream.hosts, []).append(stream)
        most = max(_FEWEST, min(MOST, RECORDS // max(1, len(self._by_key))))
        for stream in flows if most < MOST else ():
            stream.shorten(most)
        self._marked = {hosts: mark for hosts, mark in self._marked.items() if mark[1] > now - SILENT}

    def end(self) -> None:
        self._answers.pair_the_rest()
        for stream in self.flows:
            self._end(stream)

    def _over(self, stream: QpStream) -> None:
        self._end(stream)
        if stream.other is not None:
            stream.restart()  # answers of the other queue pair do not concern the next connection
            stream.other.other = None

    def _end(self, stream: QpStream) -> None:
        self._requests.settle(stream)
        self._answers.settle(stream, seen_since=False)

    def _opened(self, seen: ObservedPacket) -> QpStream | None:
        """Return a new stream for RC and UC; follow UD and notifications elsewhere, and return None."""
        head = seen.head
        transport: int = head.opcode >> 5
        if transport == Transport.UD:
            self._datagram(seen)
        elif transport == Transport.CNP:
            self._notification(seen)
        if transport not in _FOLLOWED:
            return None
        port = seen.src, seen.dst, seen.entropy, transport
        known = self._by_port.get(port)
        if known is not None and _continues(known, seen):
            self._by_key[seen.src, seen.dst, head.destqp << 3 | transport] = known  # either number may be wrong
            self._tell[RoceEvent.ELSEWHERE](known, seen)
            return known
        stream = QpStream(seen, transport, head.destqp)
        self._by_key[seen.src, seen.dst, head.destqp << 3 | transport] = stream
        if self._certain:
            self._by_port[port] = stream
            if len(self._by_port) > _PORTS:
                del self._by_port[next(iter(self._by_port))]
        if transport == Transport.RC:
            self._by_hosts.setdefault(stream.hosts, []).append(stream)
        return stream

    def _resumed(self, stream: QpStream, seen: ObservedPacket) -> None:
        """Note a packet after a silence of its sender: the queue pairs may have a new connection."""
        head, other = seen.head, stream.other
        is_answer = head.opcode & 0x1F in RESPONSES
        if other is None or is_silent(other, seen):
            is_asked = is_answer and other is not None and other.last_ns >= stream.last_ns and other.asked(head.psn)
            if not is_asked:
                stream.may_be_new(seen.number)
        if not is_answer:
            counts_on = head.psn == stream.next and BEFORE[head.opcode & 0x1F] == stream.inside
            if counts_on or stream.repeats_from(head.psn):
                stream.goes_on()
            else:
                stream.begins_elsewhere()
        if stream.resumed < stream.pause:
            stream.resumed = seen.number

    # P_Keys and sizes of all packets ---------------------------------------------------------------------------------

    def _keys(self, stream: QpStream, seen: ObservedPacket) -> None:
        """Follow a change of the P_Key. If the new one comes twice in a row, it is the valid one from then on."""
        key: int = seen.head.p_key & KEY
        again = key == stream.other_key
        if again or stream.resumed == seen.number or _is_elsewhere(stream, seen):
            stream.p_key, stream.other_key, stream.key_number = key, None, seen.number
            return
        stream.other_key = key
        stream.expected_key = stream.p_key, stream.key_number
        self._tell[RoceEvent.KEY](stream, seen)

    def _sized(self, stream: QpStream, seen: ObservedPacket, operation: int) -> None:
        """Learn the path MTU from a packet, or tell of a contradiction."""
        size = seen.size
        if stream.dead or not stream.is_sure_of(stream.size_number) or _is_elsewhere(stream, seen):
            stream.pmtu = stream.longest = 0  # another connection may have another path
        if size < 0:
            stream.written = UNKNOWN
        elif stream.pmtu:
            if size in PMTUS or not FULL[operation]:
                self._tell[RoceEvent.SIZE](stream, seen)
                if size != stream.pmtu and FULL[operation]:
                    stream.written = UNKNOWN  # the bytes of the message do not add up, either
        elif not FULL[operation]:
            stream.longest, stream.size_number = size, seen.number
        elif size in PMTUS:
            stream.pmtu = size
            if stream.longest > size:
                self._tell[RoceEvent.SIZE](stream, seen)
            stream.longest, stream.size_number = size, seen.number

    # UD and notifications --------------------------------------------------------------------------------------------

    def _datagram(self, seen: ObservedPacket) -> None:
        head, deth = seen.head, seen.more[0]
        key = (seen.src, _EVERYBODY, deth.srcqp << 3 | Transport.UD)
        stream = self._by_key.get(key)
        if stream is None:
            stream = self._by_key[key] = QpStream(seen, Transport.UD, deth.srcqp)
        if is_silent(stream, seen):
            stream.resumed = seen.number  # the queue pair may have another owner now
        stream.last_ns = seen.time_ns
        if seen.ecn == _CE:
            self._marked[seen.src, seen.dst] = seen.number, seen.time_ns
        self._packet(stream, seen)
        if head.p_key & KEY != stream.p_key and deth.srcqp not in _MANAGEMENT:
            self._keys(stream, seen)
        stream.newest = head.psn
        record = RequestRecord(seen.number, head.opcode & 0x1F, seen.content, seen.size, 0, 0)
        stream.was = stream.records.get(head.psn)
        self._tell[RoceEvent.DATAGRAM](stream, seen)
        if stream.was is None or conflicts(stream.was, record):
            stream.records.pop(head.psn, None)
            stream.records[head.psn] = record
        if len(stream.records) > MOST:
            stream.shorten()

    def _notification(self, seen: ObservedPacket) -> None:
        head = seen.head
        key = (seen.src, seen.dst, head.destqp << 3 | Transport.CNP)
        stream = self._by_key.get(key)
        if stream is None:
            stream = self._by_key[key] = QpStream(seen, Transport.CNP, head.destqp)
        stream.last_ns = seen.time_ns
        self._packet(stream, seen)
        own = head.p_key & KEY
        others = [self._by_key.get((seen.src, seen.dst, head.destqp << 3 | each)) for each in _FOLLOWED]
        near = (each for each in others if each is not None and not is_silent(each, seen))
        stream.p_key = next((each.p_key for each in near), own)
        if own not in (stream.p_key, _DEFAULT_KEY):
            stream.expected_key = stream.p_key, seen.number
            self._tell[RoceEvent.KEY](stream, seen)
        stream.marked = self._marked.get((seen.dst, seen.src), (None,))[0]
        self._tell[RoceEvent.CNP](stream, seen)


def _is_elsewhere(stream: QpStream, seen: ObservedPacket) -> bool:
    """Return whether the PSN of a request is so far from the others that another connection begins with it."""
    if stream.newest is None or seen.head.opcode & 0x1F in RESPONSES:
        return False
    return abs(diff24(seen.head.psn, stream.newest)) > FAR


def _continues(stream: QpStream, seen: ObservedPacket) -> bool:
    """Return whether a packet surely is of a queue pair, which the number of its destination is not."""
    psn, other = seen.head.psn, stream.other
    if seen.head.opcode & 0x1F not in RESPONSES:
        return psn == stream.next and not stream.dead
    return other is not None and (psn in other.records or other.read_of(psn) is not None)


_PORTS = 65_536
"""UDP source ports of queue pairs that are kept."""
_FEWEST = 128
"""Records that a queue pair keeps when there are many."""
