# SPDX-License-Identifier: GPL-2.0-only
"""A host sends vectors up a tree in pieces; a window limits the number of pieces without a result (sharp.md §3.4).

On an LLT, a piece is a fragment, and each fragment has a seq of its own. On a SAT, a piece is a chunk: the chunks of an
operation share one seq, and `vec_off` identifies each of them. The pieces that a group sends on a tree are numbered
across operations, without wrap; the seq of a fragment is its number modulo 2^32. LLT and SAT have separate seqs, at
hosts and at aggregation nodes, which is a choice of this project.
"""

from collections import deque
from math import lcm

from uetproto.engine.contract import NEVER
from uetproto.engine.sharp.config import GRANULE
from uetproto.engine.sharp.host.work import Aggregate
from uetproto.engine.sharp.messages import HEADER, NONE, VEC_OFF_AT, VEC_OFF_END, SharpMessage, SharpTarget
from uetproto.wire.headers.sharp import DTYPE_SIZES, EVERY_RANK, TGT_WORDS, VERSION, Coll, Flag, SharpOpcode, TargetType

_MASK = 2**32 - 1
_FIRST, _LAST, _RETX, _NODATA = int(Flag.FIRST), int(Flag.LAST), int(Flag.RETX), int(Flag.NODATA)


class HostOperation:
    """A host operation is a collective that was submitted, with its progress."""

    __slots__ = (
        "deadline", "element", "expects", "finished", "first", "flags", "head", "instead", "middle",
        "multicast_deadline", "nbytes", "pieces", "repeats", "result", "seq", "size", "streams", "view", "work",
    )  # fmt: skip

    def __init__(self, work: Aggregate, rank: int, streams: bool, deadline: int) -> None:
        self.work = work
        self.element = DTYPE_SIZES[work.dtype] + DTYPE_SIZES[work.tag_dtype]
        self.nbytes = work.count * self.element
        self.streams = streams
        """Whether the operation is to use the SAT tree."""
        self.instead = False
        """Whether the operation uses the LLT instead of the SAT because the lock was refused."""
        self.deadline = deadline
        """Time at which the host gives up the collective (`coll_timeout`)."""
        sends = self.nbytes > 0 and (work.coll != Coll.BCAST or work.root == rank)
        self.view = memoryview(work.data).cast("B") if sends else None
        self.expects = self.nbytes > 0 and (work.coll != Coll.REDUCE or work.root == rank)
        """Whether this rank gets a result."""
        self.result = bytearray(self.nbytes if self.expects else 0)
        self.first = self.pieces = self.size = self.seq = self.finished = 0
        self.flags = 0
        self.middle: tuple[bytes, bytes, memoryview] | None = None
        """Header before vec_off and behind it, and the vector, of the requests on a SAT between the first and the last
        one. It is None until the first of them is packed."""
        self.head = b""
        """Packed target extension of the requests; empty if they have none."""
        self.multicast_deadline = NEVER
        """Time at which the host requests again the results that should have come by multicast and are missing. It is
        `NEVER` if no result is awaited by multicast."""
        self.repeats = 0

    @property
    def target(self) -> int:
        """Return the root of a REDUCE, and `EVERY_RANK` for any other collective. A LOCK_REQ has this value as its
        target rank (sharp.md §4.3)."""
        root = self.work.root
        return root if self.work.coll == Coll.REDUCE and root is not None else EVERY_RANK


class TreeFlow:
    """A tree flow keeps track of the pieces that a host has sent on one tree of a group, and of their results."""

    def __init__(self, tree_id: int, conn: int, job_id: int, group_id: int, *, sat: bool) -> None:
        self.tree_id = tree_id
        self.conn = conn
        self.job_id = job_id
        self.group_id = group_id
        self.sat = sat
        self.child_idx = 0
        self.window = 0
        self.most = 0
        """Greatest number of open operations on a SAT, which JOIN_RESP has in granted_osts; `window` limits the open
        chunks."""
        self.room = 0
        """Greatest number of bytes of a piece."""
        self.joined = False
        self.base = self.next = self.end = 0
        """Three piece numbers: of the oldest piece without a result, of the next piece to be sent, and of the first
        piece of the next operation."""
        self.seq = 0
        """seq of the next operation on a SAT."""
        self.operations: deque[HostOperation] = deque()
        """Operations that have begun and are not complete, in order."""
        self.missing: set[int] = set()
        """Numbers of the pieces that were sent and have no result."""
        self.again: dict[int, int] = {}
        """Maps each piece that a NACK refused to the time of its retransmission."""
        self.refusals: dict[int, int] = {}
        """Maps each piece to the number of NACKs that refused it."""

    def begin(self, operation: HostOperation, flags: int) -> None:
        """Divide an operation into pieces and number them; `flags` are the flags of every piece."""
        step = lcm(GRANULE, operation.element or 1) if self.sat else operation.element or 1
        operation.size = max(self.room // step * step, step)
        operation.pieces = max(1, -(-operation.nbytes // operation.size))
        operation.first = self.end
        operation.seq = self.seq
        self.seq = self.seq + 1 & _MASK
        self.end += operation.pieces
        if operation.view is None:
            flags |= _NODATA
        if not self.sat and operation.work.coll == Coll.REDUCE:
            flags |= Flag.TGT
            operation.head = SharpTarget(TargetType.SINGLE, operation.target).pack()
        operation.flags = int(flags)
        self.operations.append(operation)

    @property
    def sendable(self) -> int:
        """Return the number of pieces that the window allows to send now."""
        return min(self.end, self.base + self.window) - self.next

    def send(self) -> list[bytes]:
        """Return the AGG_REQs of the next pieces, as many as the window allows, and count them as sent."""
        sent: list[bytes] = []
        last = self.next + self.sendable
        for operation in self.operations:
            end = operation.first + operation.pieces
            while operation.first <= self.next < min(end, last):
                sent.append(self.request(operation, self.next))
                self.missing.add(self.next)
                self.next += 1
        return sent

    def request(self, operation: HostOperation, number: int, extra: int = 0) -> bytes:
        """Return the AGG_REQ of the piece with a given number; `extra` are additional flags."""
        work = operation.work
        index = number - operation.first
        offset = index * operation.size
        middle = operation.middle
        if middle is not None and not extra and 0 < index < operation.pieces - 1:
            front, behind, vector = middle
            return b"".join((front, offset.to_bytes(4, "big"), behind, vector[offset : offset + operation.size]))
        length = min(operation.size, operation.nbytes - offset)
        flags = operation.flags | extra
        if index == 0:
            flags |= _FIRST
        if index == operation.pieces - 1:
            flags |= _LAST
        view = operation.view
        payload = length if view is not None else 0
        header = HEADER.pack(
            VERSION << 4 | (TGT_WORDS if operation.head else 0), SharpOpcode.AGG_REQ, self.tree_id, self.job_id,
            self.group_id, operation.seq if self.sat else number & _MASK, offset, length // (operation.element or 1),
            payload, NONE if work.coll in (Coll.BARRIER, Coll.BCAST) else work.op, work.dtype, work.tag_dtype,
            work.coll, self.child_idx, 0, flags,
        )  # fmt: skip
        if view is None:
            return header + operation.head
        if self.sat and 0 < index < operation.pieces - 1 and not extra and not operation.head:
            operation.middle = header[:VEC_OFF_AT], header[VEC_OFF_END:], view
        return b"".join((header, operation.head, view[offset : offset + length], bytes(-length % 4)))

    def piece_of(self, message: SharpMessage) -> tuple[HostOperation, int] | None:
        """Return the operation and the number of the piece to which a message refers; None if that piece awaits no
        result."""
        if not self.sat:
            number = self.base + (message.seq - self.base & _MASK)
            if number in self.missing:
                for operation in self.operations:
                    if number < operation.first + operation.pieces:
                        return operation, number
            return None
        for operation in self.operations:
            if operation.seq == message.seq:
                index, rest = divmod(message.vec_off, operation.size)
                number = operation.first + index
                inside = index < operation.pieces and not rest and number in self.missing
                return (operation, number) if inside else None
        return None

    def is_old(self, seq: int) -> bool:
        """Tell whether a seq is older than the seqs of all open operations, modulo 2^32."""
        oldest = (self.operations[0].seq if self.operations else self.seq) if self.sat else self.base
        return (seq - oldest & _MASK) >> 31 == 1

    def take(self, operation: HostOperation, number: int, message: SharpMessage) -> bool:
        """Store the result of a piece; return False for a result that does not fit the piece."""
        offset = (number - operation.first) * operation.size
        length = min(operation.size, operation.nbytes - offset)
        if message.coll != operation.work.coll or message.dtype != operation.work.dtype:
            return False
        if operation.expects:
            if len(message.body) != length or message.flags & _NODATA:
                return False
            operation.result[offset : offset + length] = message.body
        self.finish(operation, number)
        return True

    def finish(self, operation: HostOperation, number: int) -> None:
        """Note that a piece has its result."""
        self.missing.remove(number)
        self.again.pop(number, None)
        self.refusals.pop(number, None)
        operation.finished += 1
        while self.base < self.next and self.base not in self.missing:
            self.base += 1

    def refuse(self, number: int, at: int) -> int:
        """Schedule the retransmission of a piece that a NACK refused; return the number of NACKs for this piece."""
        self.again[number] = at
        self.refusals[number] = self.refusals.get(number, 0) + 1
        return self.refusals[number]

    def repeat(self, numbers: list[int]) -> list[bytes]:
        """Return retransmissions of the requests of some pieces, in ascending order and with the flag RETX."""
        return [
            self.request(operation, number, _RETX)
            for number in sorted(numbers)
            for operation in self.operations
            if operation.first <= number < operation.first + operation.pieces
        ]

    def due(self, now: int) -> list[bytes]:
        """Return the requests whose retransmission after a NACK is due."""
        numbers = [number for number, at in self.again.items() if at <= now]
        for number in numbers:
            del self.again[number]
        return self.repeat(numbers)

    def open_of(self, operation: HostOperation) -> list[int]:
        """Return the pieces of an operation that were sent and have no result."""
        return [number for number in self.missing if 0 <= number - operation.first < operation.pieces]
