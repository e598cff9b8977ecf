"""From message to packets and back: the templates of a WRITE, and the bookkeeping of what arrived.

UE 1.0.1 §3.4.2.1; ses.md §7.
"""

from collections.abc import Iterator
from dataclasses import replace
from struct import Struct

from uetproto.engine.contract import Buffer, Write
from uetproto.engine.memory import Memory, as_memory
from uetproto.engine.messages import build_later, build_write_som
from uetproto.errors import LocalError
from uetproto.wire.uet_ses import REQUEST_STD, Opcode

_POSITION_AT = REQUEST_STD.offset_of("rsvd4") // 8
_POSITION_END = REQUEST_STD.offset_of("request_length") // 8
_POSITION = Struct(">II")
"""rsvd4 and payload_length share a word, message_offset has the next: all that differs between later packets."""


def packet_count(length: int, mtu: int) -> int:
    """N = max(1, ceil(L / M)): an empty message is one packet (ses.md §7.1)."""
    return max(1, -(-length // mtu))


def split(work: Write, limit: int) -> Iterator[Write]:
    """Work longer than `limit` as several messages, in order; the completion data goes with the last (ses.md §8.4)."""
    memory = as_memory(work.data)
    length = memory.length - work.start if work.length is None else work.length
    if not 0 <= work.start <= memory.length - length or length < 0:
        raise LocalError(f"length: {length} from {work.start} is not legal; legal: inside 0 … {memory.length}")
    at = 0
    while True:
        piece = min(limit, length - at)
        last = at + piece == length
        yield replace(
            work, data=memory, start=work.start + at, length=piece, offset=work.offset + at,
            completion_data=work.completion_data if last else None,
        )  # fmt: skip
        at += piece
        if last:
            return


class WriteSegments:
    """The packets of one WRITE, made one by one: header and payload of packet k (ses.md §7.1).

    The header of the SOM packet and that of a later one are built once; in the latter only payload_length and
    message_offset change from packet to packet.
    """

    __slots__ = ("_end", "_last", "_later", "_memory", "_som", "_start", "_tail", "count", "length", "mtu")

    def __init__(self, work: Write, message_id: int, mtu: int) -> None:
        assert work.length is not None
        self._memory: Memory = as_memory(work.data)
        self._start = work.start
        self.length = work.length
        self.mtu = mtu
        self.count = packet_count(self.length, mtu)
        hd = work.completion_data is not None
        dc, rel = work.delivery_complete, work.relative
        address = (message_id, work.job_id, work.pid_on_fep, work.resource_index, work.offset, work.initiator, work.key)
        self._som = build_write_som(dc, 0, rel, hd, self.count == 1, *address, work.completion_data or 0, self.length)
        later = build_later(Opcode.WRITE, dc, 0, rel, hd, 0, *address, 0, 0, self.length)
        last = build_later(Opcode.WRITE, dc, 0, rel, hd, 1, *address, 0, 0, self.length)
        self._later, self._last, self._tail = later[:_POSITION_AT], last[:_POSITION_AT], later[_POSITION_END:]
        self._end = (self.count - 1) * mtu

    def packet(self, index: int) -> tuple[bytes, Buffer]:
        """SES header and payload of packet `index`."""
        offset = index * self.mtu
        if offset == self._end:
            size = self.length - offset
            front = self._last
        else:
            size = self.mtu
            front = self._later
        payload = self._memory.read(self._start + offset, size)
        if index == 0:
            return self._som, payload
        return front + _POSITION.pack(size, offset) + self._tail, payload


_MOST_AHEAD = 32640
"""Packets that may arrive above a gap: the largest MP_RANGE (pds.md §2.5), as packets leave in order (ses.md §7.1)."""


class Reassembly:
    """Which bytes of a message arrived: everything below `edge`, and single packets above it.

    Constant memory: what lies above the edge is bounded by the window of the PDC. A byte that arrives twice is a
    violation (ses.md §7.1: packets are disjoint), and so is a gap that no window allows.
    """

    __slots__ = ("_ahead", "edge", "length", "received")

    def __init__(self, length: int) -> None:
        self.length = length
        self.edge = 0
        self.received = 0
        self._ahead: dict[int, int] = {}

    def add(self, offset: int, size: int) -> bool:
        """The packet [offset, offset + size); False when some of it was there before, or too much is ahead of it."""
        if offset == self.edge:
            if offset in self._ahead:
                return False
            self.edge = offset + size
            ahead = self._ahead
            while ahead and self.edge in ahead:
                self.edge += ahead.pop(self.edge)
        elif offset < self.edge or offset in self._ahead or len(self._ahead) >= _MOST_AHEAD:
            return False
        else:
            self._ahead[offset] = size
        self.received += size
        return True

    @property
    def complete(self) -> bool:
        return self.received == self.length
