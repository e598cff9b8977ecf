# SPDX-License-Identifier: GPL-2.0-only
"""This module numbers the streams of RoCE: both directions of a queue pair have one index (analysis.md §6)."""

from collections.abc import Sequence

from uetproto.audit.per_packet.late import Counter
from uetproto.wire.headers.roce import Operation, Transport
from uetproto.wire.packet import Layer

M24 = 0xFFFFFF
NEAR = 4_096
"""Distance below the newest PSN of the requests within which an answer tells their queue pair."""
_ANSWERS = frozenset({
    Operation.RDMA_READ_RESPONSE_FIRST, Operation.RDMA_READ_RESPONSE_ONLY, Operation.ACKNOWLEDGE,
    Operation.ATOMIC_ACKNOWLEDGE,
})  # fmt: skip
"""Operations of answers that have the PSN of a request."""
_IN_ANSWERS = frozenset({Operation.RDMA_READ_RESPONSE_MIDDLE, Operation.RDMA_READ_RESPONSE_LAST})
_ADDRESSED = {"ipv4": ("src", "dst"), "ipv6": ("src", "dst"), "grh": ("sgid", "dgid"), "lrh": ("slid", "dlid")}

Hosts = tuple[int, int]


class StreamDirection:
    """This class is one direction: what goes to a queue pair of a host from another host."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.newest: int | None = None
        """Newest PSN of the requests, or None if none was seen."""
        self.joined = False


class QueuePairs:
    """This class holds the queue pairs of one interface."""

    def __init__(self, count: Counter, alias: dict[int, int]) -> None:
        """Make an empty table. `count` returns the index of the next stream."""
        self._count, self.alias = count, alias
        """`alias` maps the index of a stream to that of its other direction, which was seen before."""
        self._ends: dict[Hosts, dict[int, StreamDirection]] = {}
        """Maps sender and receiver to directions by the queue pair of the receiver."""
        self._datagrams: dict[tuple[tuple[int, int], ...], int] = {}

    def take(self, layers: Sequence[Layer]) -> int:
        """Note a packet of RoCE, and return the index of its stream; -1 without a transport header."""
        src = dst = 0
        head = source = None
        for form, values, _ in layers:
            if form in _ADDRESSED:
                sender, receiver = _ADDRESSED[form]
                src, dst = values[sender], values[receiver]
            elif form == "bth":
                head = values
            elif form == "deth":
                source = values["srcqp"]
        if head is None:
            return -1
        if source is not None:  # of UD, which names both queue pairs
            key = tuple(sorted(((src, source), (dst, head["destqp"]))))
            if key not in self._datagrams:
                self._datagrams[key] = self._count()
            return self._datagrams[key]
        ends = self._ends.setdefault((src, dst), {})
        end = ends.get(head["destqp"])
        transport, operation = head["opcode"] >> 5, head["opcode"] & 0x1F
        asks = transport != Transport.CNP and operation not in _ANSWERS and operation not in _IN_ANSWERS
        if end is None or (transport == Transport.RC and operation in _ANSWERS and not end.joined):
            end = ends[head["destqp"]] = self._answering(end, src, dst, head["psn"], operation in _ANSWERS)
        if asks and (end.newest is None or (head["psn"] - end.newest) & M24 < M24 >> 1):
            end.newest = head["psn"]
        return end.index

    def _answering(self, end: StreamDirection | None, src: int, dst: int, psn: int, answers: bool) -> StreamDirection:
        """Return the direction of a packet, joined with the other one if it answers a request of exactly one."""
        found = [
            one
            for one in self._ends.get((dst, src), {}).values()
            if answers and not one.joined and one.newest is not None and (one.newest - psn) & M24 < NEAR
        ]
        if len(found) != 1:
            return StreamDirection(self._count()) if end is None else end
        other = found[0]
        if end is None:
            end = StreamDirection(other.index)
        elif end.index < other.index:
            self.alias[other.index] = end.index
        else:
            self.alias[end.index] = other.index
        end.joined = other.joined = True
        return end
