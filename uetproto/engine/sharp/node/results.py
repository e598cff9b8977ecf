"""Results on their way to the children: to all of them, by multicast, or to one (sharp.md §3.2, §4.3).

`Results` is the half of `sharp_llt.Operations` that spreads them; before it, requests and results as bytes.
"""

from typing import TYPE_CHECKING

from uetproto.engine.sharp.messages import HEADER, HEADER_SIZE, NOT_APPLICABLE, SharpMessage, SharpTarget
from uetproto.engine.sharp.node.ost import OstEntry
from uetproto.wire.headers.sharp import EVERY_RANK, VERSION, Coll, Flag, SharpOpcode, TargetType

if TYPE_CHECKING:
    from uetproto.engine.sharp.node.aggregation_node import SharpNode
    from uetproto.engine.sharp.node.group import AggregationGroup

_NODATA, _PASSING = int(Flag.NODATA), ~int(Flag.RETX | Flag.MCAST | Flag.UDH | Flag.TGT)
_RETX, _MCAST = int(Flag.RETX), int(Flag.MCAST)


def pack_for(
    head: SharpMessage,
    opcode: int,
    vector: bytes | None,
    child_idx: int,
    flags: int,
    *,
    target: SharpTarget | None = None,
) -> bytes:
    """A message for the operation of `head`; `vector` None: NODATA."""
    return SharpMessage(
        opcode, head.tree_id, head.job_id, head.group_id, head.seq, head.vec_off, head.count, head.op, head.dtype,
        head.tag_dtype, head.coll, child_idx, 0, flags | (_NODATA if vector is None else 0), b"", target, vector or b"",
    ).pack()  # fmt: skip


def pack_result(result: SharpMessage, child_idx: int, *, without: bool = False, extra: int = 0) -> bytearray:
    """A result for one child, without extensions; `without`: NODATA in place of its payload."""
    body = b"" if without else result.body
    flags = result.flags & _PASSING | extra | (_NODATA if without else 0)
    data = bytearray(HEADER.pack(
        VERSION << 4, SharpOpcode.AGG_RESULT, result.tree_id, result.job_id, result.group_id, result.seq,
        result.vec_off, result.count, len(body), result.op, result.dtype, result.tag_dtype, result.coll, child_idx,
        0, flags,
    ))  # fmt: skip
    data += body
    data += bytes(-len(body) % 4)
    return data


def retransmitted(data: bytes) -> bytes:
    """The same message with RETX."""
    return data if data[31] & _RETX else b"".join((data[:31], bytes((data[31] | _RETX,)), data[32:]))


class Results:
    """What goes down."""

    sat = False
    group: "AggregationGroup"
    node: "SharpNode"
    cached: dict[int, OstEntry]

    def advance(self) -> None:
        """`base` goes past what all children have."""
        raise NotImplementedError

    def _by_multicast(self, op: OstEntry) -> bool:
        """Every child asked for multicast, and the group has one."""
        return bool(op.merged[0] & _MCAST and self.group.mgid and op.message.coll != Coll.REDUCE and not self.sat)

    def _send_results(self, op: OstEntry) -> None:
        assert op.result is not None
        op.answered = True
        group = self.group
        if self._by_multicast(op) and (group.is_root or op.result.flags & _NODATA):
            if group.is_root:
                self.node.send_group(pack_result(op.result, NOT_APPLICABLE, extra=_MCAST), group.mgid)
            if group.depth > 1:  # aggregation nodes below close their OST; hosts have the multicast
                for child in group.members:
                    self._send_result(op, child, pack_result(op.result, child, without=True))
            else:  # hosts do not acknowledge a multicast: it is taken as arrived, and stays in the cache (choice)
                op.finished.update(group.members)
                self.advance()
            return
        full = pack_result(op.result, 0)
        bare = pack_result(op.result, 0, without=True) if op.message.coll == Coll.REDUCE else full
        way = self._way(op)
        for child in group.members:
            data = bytearray(full if way is None or child == way else bare)
            self._send_result(op, child, data)

    def _way(self, op: OstEntry) -> int | None:
        """The only child that gets the payload: that with the target rank below it; None: all do, -1: nobody does."""
        if op.message.coll != Coll.REDUCE:
            return None
        rank = self._target_rank(op)
        return None if rank == EVERY_RANK else self.group.child_of_rank(rank)

    def _target_rank(self, op: OstEntry) -> int:
        target = op.message.target
        return target.rank if target is not None and target.type == TargetType.SINGLE else EVERY_RANK

    def _send_result(self, op: OstEntry, child: int, data: bytearray, *, again: bool = False) -> None:
        """With the index of the child, and the cookie that it sent."""
        data[28] = child
        if again:
            data[31] |= _RETX
        cookie = op.cookies.get(child)
        if cookie:
            data[0] += 2
            data[30] |= Flag.UDH >> 8
            data[HEADER_SIZE:HEADER_SIZE] = cookie
        self.node.send(self.group.conn_of(child), bytes(data), self.node.expect(op, child))

    def repeat_result(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """The result once more to this child, with RETX; where only a multicast had the payload, ask for it above."""
        op = self.cached.get(op.seq, op) if op.head is None else op
        self.node.counters["dup"] += 1
        if op.result is None or not op.answered:
            return
        if op.result.flags & _NODATA and op.up and self._by_multicast(op) and not self.group.is_root:
            op.waiting.add(child)
            self.group.send_up(retransmitted(op.up))
            return
        way = self._way(op)
        self._send_result(op, child, pack_result(op.result, 0, without=way not in (None, child)), again=True)

    def take_late_result(self, op: OstEntry, _: object, message: SharpMessage, data: bytes) -> None:
        """A duplicate, dropped, but for the payload that a child missed."""
        if op.waiting:
            op.result, op.up = message, b""
            waiting, op.waiting = op.waiting, set()
            for child in sorted(waiting):
                self._send_result(op, child, pack_result(message, 0), again=True)
        else:
            self.node.counters["dup"] += 1
