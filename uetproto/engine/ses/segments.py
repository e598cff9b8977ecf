# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the packets of a message from header templates, and records which bytes of a message arrived.

UE 1.0.1 §3.4.2.1; ses.md §4.1, §7.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from struct import Struct

from uetproto.engine.contract import Buffer
from uetproto.engine.memory import Memory, run_memory
from uetproto.engine.ses.headers import FIRST_PACKET
from uetproto.engine.train import LEAST, PayloadRun
from uetproto.engine.train_splits import Split
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import REQUEST_STD, Opcode
from uetproto.wire.tuples import (
    SesRequestMediumHeader,
    SesRequestSmallHeader,
    SesRequestStdHeader,
    SesRequestStdSomHeader,
)

_STD, _SMALL = NextHdr.REQUEST_STD, NextHdr.REQUEST_SMALL
_ADDRESS_AT = REQUEST_STD.offset_of("ri_generation") // 8
_ADDRESS_END = REQUEST_STD.offset_of("buffer_offset") // 8
_POSITION_AT = REQUEST_STD.offset_of("rsvd4") // 8
_POSITION_END = REQUEST_STD.offset_of("request_length") // 8
_POSITION = Struct(">II")
"""Layout of the two words that differ between later packets: rsvd4 and payload_length, then message_offset."""


def packet_count(length: int, mtu: int) -> int:
    """Return the number of packets of a message with `length` bytes. An empty message has one packet (ses.md §7.1)."""
    return 1 if length <= mtu else -(-length // mtu)


@dataclass(slots=True)
class MessagePlan:
    """A plan holds the fields that are equal in all packets of a message, and the source of its bytes (ses.md §7.1)."""

    opcode: int
    form: NextHdr = NextHdr.REQUEST_STD
    dc: bool = False
    rel: bool = True
    job_id: int = 0
    pid_on_fep: int = 0
    resource_index: int = 0
    generation: int = 0
    offset: int = 0
    """Field buffer_offset. In a deferrable send it has the two restart tokens."""
    initiator: int = 0
    key: int = 0
    """Memory key or match bits. In a DEFERRABLE_RTR the field has the two restart tokens."""
    header_data: int | None = None
    """Completion data of 64 bits, or None if the message carries no completion data."""
    request_length: int = 0
    body: int = 0
    """Number of bytes that the packets together carry or ask for. Of a rendezvous only the eager bytes count. The
    number is 0 if the operands are in an extension header."""
    extension: bytes = b""
    """Extension headers, which precede the payload in every packet."""
    memory: Memory | None = None
    """Memory from which the payload is read, or None if the packets have no payload."""
    start: int = 0
    """Offset in `memory` of the first byte of the message."""
    hd_in_all: bool = True
    """Whether hd is set in every packet, or only in the first one (parameter `hd_in`)."""
    lone_eom: bool = True
    """Whether eom is set if the message has only one packet (parameter `lone_read_eom`)."""

    def moved(self, **changes: int | bytes | None) -> "MessagePlan":
        """Return a copy of the plan with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


class RequestSegments:
    """This class makes each packet of a request with several packets when it is sent (ses.md §7.1).

    The header of the first packet and a template for later packets are built once. The headers of later packets differ
    only in payload_length and message_offset, and in eom of the last packet.
    """

    __slots__ = ("_end", "_first", "_last", "_later", "_tail", "count", "mtu", "plan")

    def __init__(self, plan: MessagePlan, message_id: int, mtu: int) -> None:
        self.plan = plan
        self.mtu = mtu
        self.count = packet_count(plan.body, mtu)
        self._end = (self.count - 1) * mtu
        self._first = _build_first(plan, message_id, False)
        later, last = (build_later(plan, plan.opcode, message_id, eom) for eom in (0, 1))
        self._later, self._last, self._tail = later[:_POSITION_AT], last[:_POSITION_AT], later[_POSITION_END:]

    def packet(self, index: int) -> tuple[bytes, Buffer]:
        """Return SES header and payload of packet `index`. Extension headers, if there are any, precede the payload."""
        plan = self.plan
        offset = index * self.mtu
        if offset == self._end:
            size = plan.body - offset
            front = self._last
        else:
            size = self.mtu
            front = self._later
        payload: Buffer = b"" if plan.memory is None else plan.memory.read(plan.start + offset, size)
        if plan.extension:
            payload = b"".join((plan.extension, payload))
        if index == 0:
            return self._first, payload
        return front + _POSITION.pack(size, offset) + self._tail, payload

    def run(self, index: int, count: int) -> PayloadRun | Split:
        """Return `count` packets from packet `index` on, none of which is the first or the last of the message. Return
        why not if they cannot go as a train."""
        plan, mtu = self.plan, self.mtu
        if count < LEAST:
            return Split.EDGE
        if plan.extension:
            return Split.KIND
        memory = run_memory(plan.memory)
        if memory is None:
            return Split.MEMORY
        offset = index * mtu
        payloads = memory.read_run(plan.start + offset, mtu, count)
        return PayloadRun(index, self._later, self._tail, offset, payloads)


def lone_packet(plan: MessagePlan, message_id: int) -> tuple[bytes, Buffer]:
    """Return SES header and payload of a message with one packet. Extension headers, if there are any, precede the
    payload."""
    payload: Buffer = b"" if plan.memory is None else plan.memory.read(plan.start, plan.body)
    if plan.extension:
        payload = b"".join((plan.extension, payload))
    return _build_first(plan, message_id, plan.lone_eom), payload


def _build_first(plan: MessagePlan, message_id: int, eom: bool) -> bytes:
    """Build the header of the first packet. Medium and small headers are those of a message with one packet."""
    p, hd = plan, plan.header_data is not None
    if p.form == _STD:
        front, address = start_of(
            p.opcode, p.dc, p.rel, hd, eom, p.generation, p.job_id, p.pid_on_fep, p.resource_index
        )  # fmt: skip
        return FIRST_PACKET.pack(
            front, message_id, address, p.offset, p.initiator, p.key, p.header_data or 0, p.request_length
        )
    if p.form == _SMALL:  # on RMA with the index of the key (ses.md §4.1)
        index = p.key & 0xFFF if p.opcode != Opcode.SEND else p.resource_index
        return SesRequestSmallHeader.pack(
            p.opcode, 0, p.dc, 0, p.rel, 0, 1, 1, p.request_length, p.generation, p.job_id, p.pid_on_fep, index,
            p.offset,
        )  # fmt: skip
    return SesRequestMediumHeader.pack(  # with header_data or buffer_offset, not both (ses.md §4.1)
        p.opcode, 0, p.dc, 0, p.rel, 1, 1, p.request_length, p.generation, p.job_id, p.pid_on_fep,
        p.resource_index, p.offset if p.header_data is None else p.header_data, p.initiator, p.key, hd=hd,
    )  # fmt: skip


@lru_cache(1024)
def start_of(
    opcode: int, dc: bool, rel: bool, hd: bool, eom: bool, generation: int, job_id: int, pid_on_fep: int,
    resource_index: int,
) -> tuple[bytes, bytes]:  # fmt: skip
    """Return what the first packets of many messages share: the bytes before message_id, and those behind it up to
    buffer_offset."""
    header = SesRequestStdSomHeader.pack(
        opcode, 0, dc, 0, rel, hd, eom, 0, generation, job_id, pid_on_fep, resource_index, 0, 0, 0, 0, 0
    )
    return header[: _ADDRESS_AT - 2], header[_ADDRESS_AT:_ADDRESS_END]


def build_later(plan: MessagePlan, opcode: int, message_id: int, eom: int, offset: int = 0) -> bytes:
    """Build the header of a later packet (som = 0) without payload, in the standard form.

    The header is the template of later packets, or belongs to a packet that ends a failed or stopped message early
    (ses.md §5.12, §5.7 D3). `offset` is the field message_offset.
    """
    p, hd = plan, plan.header_data is not None and plan.hd_in_all
    return SesRequestStdHeader.pack(
        opcode, 0, p.dc, 0, p.rel, hd, eom, message_id, p.generation, p.job_id, p.pid_on_fep, p.resource_index,
        p.offset, p.initiator, p.key, 0, offset, p.request_length,
    )  # fmt: skip


_MOST_AHEAD = 32640
"""Limit of packets above a gap: the largest MP_RANGE (pds.md §2.5), as a source sends packets in order."""


class Reassembly:
    """A reassembly records which bytes of a message have arrived.

    All bytes below `edge` have arrived, and some packets above `edge`.

    The window of the PDC limits the number of packets above the edge, and so the memory used. `add` refuses a byte that
    arrives twice, because the packets of a message are disjoint (ses.md §7.1). It also refuses more than `_MOST_AHEAD`
    packets above a gap, which no window allows.
    """

    __slots__ = ("_ahead", "edge", "length", "received")

    def __init__(self, length: int) -> None:
        self.length = length
        self.edge = 0
        self.received = 0
        self._ahead: dict[int, int] = {}

    def add(self, offset: int, size: int) -> bool:
        """Add the `size` bytes of a packet from `offset` on. Return False if they have arrived before, or are too far
        ahead."""
        if offset == self.edge:
            if offset in self._ahead:
                return False
            edge, ahead = offset + size, self._ahead
            while edge in ahead:
                edge += ahead.pop(edge)
            self.edge = edge
        elif offset < self.edge or offset in self._ahead or len(self._ahead) >= _MOST_AHEAD:
            return False
        else:
            self._ahead[offset] = size
        self.received += size
        return True

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of bytes that have arrived, each as offset and number of bytes."""
        below = [(0, self.edge)] if self.edge else []
        return below + sorted(self._ahead.items())

    @property
    def in_order(self) -> bool:
        """Return whether nothing has arrived above `edge`."""
        return not self._ahead

    @property
    def complete(self) -> bool:
        return self.received == self.length
