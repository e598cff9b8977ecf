"""SHARP for ranks: each group of ranks is a job of the manager and a group on its trees (sharp.md §1.3, §3.4).

Trees, connections and groups are made at the first operation of a group. With `SHARP_COLL_GROUPS_PER_COMM` above 1 a
group of ranks has several trees: what is longer than an OST is divided among them, the rest takes turns (§4.1).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from uetproto.api.distributed_choice import choose
from uetproto.api.distributed_packets import PacketNetwork
from uetproto.api.distributed_sharp_fabric import SharpFabric, layout_of_cables
from uetproto.api.distributed_sharp_works import ALGORITHM, COLLECTIVES, Operation, check, operations
from uetproto.api.world import Cables, Node
from uetproto.collectives.by_schedule import by_schedule
from uetproto.collectives.dtypes import Array, bytes_of
from uetproto.collectives.offload import Asked, Ended, Make, Offload, Part
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.runner import Counted
from uetproto.collectives.transport import TransportError
from uetproto.engine.sharp_manager import JobGrant
from uetproto.engine.sharp_work import (
    AggregateDone,
    AggregateFailed,
    Attachment,
    GroupFailed,
    GroupJoined,
    JoinGroup,
    Trouble,
)
from uetproto.errors import LocalError, UetError
from uetproto.wire.sharp import LibsharpStatus, Status

Told = Callable[[bytearray | None, Trouble | None], None]
"""Of one aggregation: its result, or what went wrong."""


class SharpError(TransportError):
    """An aggregation that failed: `status` is that of SHARP."""

    def __init__(self, text: str, status: Status | LibsharpStatus) -> None:
        super().__init__(text)
        self.status = status


class _Member:
    """One rank in one group of a tree."""

    def __init__(self, side: "_Side", join: JoinGroup) -> None:
        self.side = side
        self.join = join
        self.asked = False
        self.joined = False
        self.trouble: Trouble | None = None
        self._waiting: list[tuple[Operation, Told]] = []

    def submit(self, operation: Operation, told: Told) -> None:
        """Becomes a member first, if it is not yet."""
        if self.trouble is not None:
            told(None, self.trouble)
        elif self.joined:
            self.side.aggregate(self.join.group_id, operation, told)
        else:
            self._waiting.append((operation, told))
            if not self.asked:
                self.asked = True
                self.side.submit(self.join)

    def on_joined(self, event: GroupJoined) -> None:
        if event.mgid:
            self.side.listen(event.mgid, event.qkey)
        self.joined = True
        waiting, self._waiting = self._waiting, []
        for operation, told in waiting:
            self.side.aggregate(self.join.group_id, operation, told)

    def on_failed(self, trouble: Trouble) -> None:
        self.trouble = trouble
        waiting, self._waiting = self._waiting, []
        for _, told in waiting:
            told(None, trouble)


class _Side:
    """One rank: what its host tells goes to whom it belongs to."""

    def __init__(self, fabric: SharpFabric, rank: int) -> None:
        self.fabric = fabric
        self.node = fabric.ranks[rank]
        self.members: dict[int, _Member] = {}
        self._told: dict[int, Told] = {}
        self._ids = 0
        self.node.listeners.append(self._event)

    def submit(self, work: Any) -> None:
        host = self.fabric.hosts[self.node.name]
        self.node.submit(lambda now: host.submit(work, now))

    def aggregate(self, group_id: int, operation: Operation, told: Told) -> None:
        self._ids += 1
        self._told[self._ids] = told
        self.submit(operation.work(self._ids, group_id))

    def listen(self, group: int, qkey: int) -> None:
        """To results that come by multicast."""
        self.fabric.carriers[self.node.name].join(group, qkey, self.node.now)
        self.fabric.world.join(group & 0xFFFFFFFF if group >> 32 == 0xFFFF else group, self.node.name)

    def _event(self, event: Any) -> None:
        if isinstance(event, AggregateDone):
            self._told.pop(event.op_id)(event.data, None)
        elif isinstance(event, AggregateFailed):
            self._told.pop(event.op_id)(None, event.trouble)
        elif isinstance(event, GroupJoined):
            self.members[event.group_id].on_joined(event)
        elif isinstance(event, GroupFailed):
            self.members[event.group_id].on_failed(event.trouble)


class _Communicator:
    """A group of ranks: a job, and for each of its trees a group."""

    def __init__(self, fabric: SharpFabric, sides: Sequence[_Side], grant: JobGrant) -> None:
        self.grant = grant
        self.members: list[list[_Member]] = [[] for _ in sides]
        """By place, one for each tree."""
        self.turn = [0 for _ in sides]
        for number, rail in enumerate(grant.rails):
            group_id = grant.job_id * len(grant.rails) + number
            for place, side in enumerate(sides):
                places = [trees[place] for trees in (rail.llt, rail.sat) if trees]
                attached = [Attachment(*fabric.connect(side.node.name, where)) for where in places]
                join = JoinGroup(
                    group_id=group_id, job_id=grant.job_id, group_size=len(sides), rank=place, llt=attached[0],
                    sat=attached[1] if len(attached) > 1 else None, multicast=fabric.multicast,
                    want_osts=fabric.options.osts_of(rail.osts, rail.groups), user_data=grant.user_data,
                )  # fmt: skip
                member = side.members[group_id] = _Member(side, join)
                self.members[place].append(member)

    def shares(self, place: int, operation: Operation) -> list[tuple[_Member, Operation]]:
        """Which tree does what of it."""
        members = self.members[place]
        length = operation.count * operation.itemsize
        if len(members) == 1 or operation.count < len(members) or length <= self.grant.user_data:
            turn, self.turn[place] = self.turn[place], (self.turn[place] + 1) % len(members)
            return [(members[turn], operation)]
        ends = [operation.count * number // len(members) for number in range(len(members) + 1)]
        return [
            (member, operation.part(start, end))
            for member, start, end in zip(members, ends[:-1], ends[1:], strict=True)
        ]


class _Attempt:
    """All ranks in one collective: they fall back together, or not at all."""

    def __init__(self, asked: Asked, fall_back: Make | None, note: Callable[[str], None]) -> None:
        self.size = len(asked.ranks)
        self.fall_back = fall_back
        self.note = note
        self.finished = 0
        self.failed: list[_SharpPart] = []

    def ended(self, part: "_SharpPart", error: SharpError | None, may_fall_back: bool) -> None:
        if error is None:
            self.finished += 1
            part.finish(None)
        elif not may_fall_back or self.fall_back is None:
            part.finish(error)
            return
        else:
            part.error = error
            self.failed.append(part)
        if self.failed and self.finished + len(self.failed) == self.size:
            self._all_have_ended()

    def _all_have_ended(self) -> None:
        failed, self.failed = self.failed, []
        if self.finished or self.fall_back is None:  # some have their results: the others cannot do it without them
            for part in failed:
                part.finish(part.error)
            return
        self.note(f"fell back: {failed[0].error}")
        for part in failed:
            part.instead(self.fall_back)


class _SharpPart:
    """One rank in one collective."""

    def __init__(
        self, sharp: "SharpOffload", communicator: _Communicator, asked: Asked, place: int, input_: Array,
        output: Array, attempt: _Attempt, done: Ended,
    ) -> None:  # fmt: skip
        self.counted = Counted(steps=1)
        self.ended = False
        self.error: SharpError | None = None
        self._sharp, self._communicator, self._asked, self._place = sharp, communicator, asked, place
        self._input, self._output, self._attempt, self._done = input_, output, attempt, done
        self._op = asked.reduce_op or ReduceOp.SUM
        self._left = 0
        self._other: Part | None = None
        """What does it instead."""

    @property
    def _reduces(self) -> bool:
        return self._asked.op in ("all_reduce", "reduce", "reduce_scatter")

    def start(self) -> None:
        size = len(self._asked.ranks)
        source, output = self._input, self._output
        if self._asked.op in ("all_reduce", "reduce") and source.ctypes.data != output.ctypes.data:
            output[...] = source
        if self._reduces:
            if self._asked.op == "reduce_scatter" and self._op.prepares(source.dtype):
                source = source.copy()
            self._op.prepare(source if self._asked.op == "reduce_scatter" else output, size)
        parts = [
            share
            for operation in operations(self._asked, self._place, source, output)
            for share in self._communicator.shares(self._place, operation)
        ]
        self._left = len(parts)
        for member, operation in parts:
            self.counted.messages += 1
            self.counted.bytes_sent += len(operation.data)
            member.submit(operation, self._told(operation))

    def fail(self, error: UetError) -> None:
        if self._other is not None and not self._other.ended:
            self._other.fail(error)
        self.finish(error)

    def _told(self, operation: Operation) -> Told:
        def told(data: bytearray | None, trouble: Trouble | None) -> None:
            if self.ended or self.error is not None:
                return
            if trouble is not None:
                self._left = -1
                error = self._sharp.error_of(self._asked, self._place, trouble)
                self._attempt.ended(self, error, trouble.fall_back)
                return
            if operation.into is not None and data:
                bytes_of(operation.into)[:] = np.frombuffer(data, np.uint8)
                self.counted.bytes_received += len(data)
            self._left -= 1
            if not self._left:
                self._attempt.ended(self, None, False)

        return told

    def instead(self, make: Make) -> None:
        """The ranks do it by themselves."""
        output, op, size = self._output, self._op, len(self._asked.ranks)
        if self._asked.op in ("all_reduce", "reduce") and op.prepares(output.dtype):
            raise AssertionError("scaled twice")  # such operations never fall back
        del size
        self._other = make(self._place, self._input, output, self.finish)
        self._other.start()

    def finish(self, error: UetError | None) -> None:
        if self.ended:
            return
        self.ended = True
        if self._other is not None:
            self.counted = self._other.counted
        elif error is None and self._reduces:
            self._op.finish(self._output, len(self._asked.ranks))
        self._done(error)
        self._sharp.fabric.world.wake()


class SharpOffload(Offload):
    """Collectives that aggregation nodes do."""

    algorithms: Mapping[str, tuple[str, ...]] = dict.fromkeys(COLLECTIVES, (ALGORITHM,))

    def __init__(self, fabric: SharpFabric, fall_back: Callable[[Asked], Make]) -> None:
        """`fall_back` makes the same by the ranks alone."""
        self.fabric = fabric
        self.notes: list[str] = []
        """Why something did not go by SHARP."""
        self._fall_back = fall_back
        self._sides: dict[int, _Side] = {}
        self._communicators: dict[tuple[int, ...], _Communicator | LibsharpStatus] = {}

    def maker(self, asked: Asked) -> Make:
        check(asked)
        falls_back = self.fabric.options.fall_back
        found = self._communicator(asked.ranks)
        if not isinstance(found, _Communicator):
            text = f"sharp: no job for ranks {_list(asked.ranks)}: {found.name} ({found.value})"
            if not falls_back:
                raise LocalError(text)
            self.note(f"fell back: {text}")
            return self._fall_back(asked)
        scaled = asked.reduce_op is not None and asked.reduce_op.prepares(asked.dtype)
        other = self._fall_back(asked) if falls_back and not scaled else None
        attempt = _Attempt(asked, other, self.note)

        def make(place: int, input_: Array, output: Array, done: Ended) -> Part:
            return _SharpPart(self, found, asked, place, input_, output, attempt, done)

        return make

    def note(self, text: str) -> None:
        """Once each."""
        if text not in self.notes:
            self.notes.append(text)

    def close(self) -> None:
        """The jobs end."""
        for found in self._communicators.values():
            if isinstance(found, _Communicator):
                self.fabric.manager.end_job(found.grant.job_id)
        self._communicators.clear()

    def _communicator(self, ranks: tuple[int, ...]) -> _Communicator | LibsharpStatus:
        found = self._communicators.get(ranks)
        if found is None:
            grant = self.fabric.begin_job(ranks)
            if isinstance(grant, JobGrant):
                sides = [self._side(rank) for rank in ranks]
                found = self._communicators[ranks] = _Communicator(self.fabric, sides, grant)
            else:
                found = grant
        return found

    def _side(self, rank: int) -> _Side:
        if rank not in self._sides:
            self._sides[rank] = _Side(self.fabric, rank)
        return self._sides[rank]

    def error_of(self, asked: Asked, place: int, trouble: Trouble) -> SharpError:
        """What a rank is told, with who is at fault."""
        status, code = trouble.status, trouble.code
        text = f"sharp: {asked.op} at rank {asked.ranks[place]}: {status.name} (0x{status:02x}, libsharp {code.value})"
        fault = trouble.fault
        if fault is not None:
            text += f", says {self.fabric.name_of(fault.an_id)}"
            found = self._communicators[asked.ranks]
            assert isinstance(found, _Communicator)
            names = self.fabric.children_of(found.grant, fault.an_id, fault.children)
            if names:
                text += f" of {', '.join(names)}"
        return SharpError(text, status)


def sharp_offload(
    network: PacketNetwork, fabric: SharpFabric, ranks: Sequence[Node], cables: Cables, psn: Callable[[], int]
) -> SharpOffload:
    """The world of a network is there, with `fabric` in it."""
    fabric.start(network.world, ranks, layout_of_cables(cables, len(ranks)), psn)

    def fall_back(asked: Asked) -> Make:
        length = asked.count * asked.dtype.itemsize
        return by_schedule(asked, choose(asked.op, length, asked.sizes is None), network.end)

    return SharpOffload(fabric, fall_back)


def _list(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks)) if len(ranks) <= 8 else f"{ranks[0]} … {ranks[-1]}"


__all__ = ["SharpError", "SharpOffload", "sharp_offload"]
