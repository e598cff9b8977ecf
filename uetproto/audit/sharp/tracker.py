# SPDX-License-Identifier: GPL-2.0-only
"""This module follows SHARP groups: the requests of the children of an aggregation node, and the results to the
children.

A group is identified by the address of its aggregation node, its tree and its group_id. An operation of a group is
identified by its sequence number, and a chunk of a streaming operation also by its offset. A member that leaves a group
may return and count from 0 again; unless the capture is declared complete, a second operation 0 may be the only sign of
this.

The tracker sorts messages by time. If several ports of a switch mirror packets into one file, these packets are not
quite in order. A packet also comes late if it is held until it is known whether its flow has a CRC.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import auto
from heapq import heappop, heappush
from typing import Any

from uetproto.audit.finding import Flow
from uetproto.audit.flows import SILENT, Flows
from uetproto.audit.judge import Judge
from uetproto.audit.reader.address import address_text, ends
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Event, Violation
from uetproto.audit.sharp.message_fields import fault_of, fault_of_body
from uetproto.wire.headers.roce import BTH, Operation, Transport, opcode_of
from uetproto.wire.headers.sharp import JOIN_RESP, MAGIC, Flag, SharpOpcode, Status
from uetproto.wire.serial import diff32

_DOWN = 0x80
"""Bit of an opcode that marks a response."""
OPERATIONS = 4_096
"""Greatest number of operations that are kept for a group. The same limit holds for the open operations that are kept
for a child."""
EDGES = 256
"""Greatest number of children that are kept for a group. The same limit holds for the aggregation nodes that are kept
for a group number."""
WAITING = 1_024
"""Greatest number of messages that wait until earlier messages have come."""
FEW, SURE, JOBS = 1, 3, 8
"""Limits for a wrong job: a job that at most `FEW` messages of a group have is wrong if another job has at least `SURE`
messages. At most `JOBS` jobs are kept for a group."""
_AHEAD = 2
"""Least number of operations by which a number may be ahead."""
COPIES = 4_096
"""Greatest number of messages that are kept to recognize copies."""
_SIGNED = Flag.SAT | Flag.FIRST | Flag.LAST | Flag.REPRO | Flag.LE
_SIGNATURE = ("coll", "op", "dtype", "tag_dtype", "count", "vec_off")
_ENDED = (SharpOpcode.AGG_RESULT, SharpOpcode.NACK, SharpOpcode.ERROR)
_CROSSING = (SharpOpcode.AGG_REQ, SharpOpcode.AGG_RESULT)
_ASKED = (SharpOpcode.GROUP_JOIN_REQ, SharpOpcode.GROUP_LEAVE_REQ, SharpOpcode.LOCK_REQ)
"""Requests that get one response each; an UNLOCK_RESP goes to all children."""
_SENDS = (opcode_of(Transport.RC, Operation.SEND_FIRST), opcode_of(Transport.RC, Operation.SEND_ONLY))
"""Opcodes of packets that begin a message."""
_LEAVING = (SharpOpcode.GROUP_LEAVE_REQ, SharpOpcode.GROUP_LEAVE_RESP)

Child = tuple[int, int]
"""Address and index of a child."""
GroupKey = tuple[int, int, int]
"""Address of the aggregation node, tree and number of a group."""
Edge = tuple[int, int, int, int]
"""Source, destination and opcode of a message, with the index of the child."""


class SharpEvent(Event):
    """This enumeration has the events of SHARP groups. With an event, a rule gets an `AuditedSharpMessage`, an
    `AuditedAggregation` or an `AuditedSharpGroup`, as the docstring of the event says."""

    MESSAGE = auto()
    """A message came. The rule gets an `AuditedSharpMessage`."""
    OVER_UET = auto()
    """A packet over UET came that carries a message or claims to carry one. The rule gets an `AuditedSharpMessage`."""
    REQUEST = auto()
    """The first request of a child for an operation came. The rule gets an `AuditedSharpGroup`, whose `child` sent the
    request."""
    RESULT = auto()
    """A result came. The rule gets an `AuditedAggregation`."""
    UNLIKE = auto()
    """A result has another collective, operation, datatype or count than the requests of the children. The rule gets an
    `AuditedAggregation`."""
    OTHER_JOB = auto()
    """A message has another job than nearly all other messages of its group. The rule gets an `AuditedSharpGroup`."""
    STRANGER = auto()
    """A request came from a child that has not joined, or a result went to such a child. The rule gets an
    `AuditedSharpGroup`, whose `child` is this child."""
    AHEAD = auto()
    """The number of an operation is far ahead of the numbers of earlier operations. The rule gets an
    `AuditedSharpGroup`."""
    NO_MESSAGE = auto()
    """A SEND that carries no message came between queue pairs that send messages. The rule gets an
    `AuditedSharpMessage`."""
    UNASKED = auto()
    """A result or a response came for which no request asked. The rule gets an `AuditedSharpMessage`."""
    AGAIN = auto()
    """A second request or second result of an operation came between a child and its aggregation node, without RETX in
    either packet. The rule gets an `AuditedAggregation`, whose `was` is the number of the first packet."""
    SENT_UP = auto()
    """An operation ended, and the aggregation node had sent a request of this operation to its parent. The rule gets an
    `AuditedAggregation`."""


class AuditedSharpMessage:
    """This class holds a SHARP message, with the headers of the packet that carries it."""

    __slots__ = ("others", "seen", "values")

    def __init__(self, seen: ObservedPacket, others: tuple[int, ...] = ()) -> None:
        self.seen = seen
        self.others = others
        """Numbers of other packets that an event refers to."""
        packet = seen.packet
        self.values: Mapping[str, Any] = packet["sharp"] if packet is not None and "sharp" in packet else {}

    @property
    def fault(self) -> Violation | None:
        """Return what contradicts the rest of the message, or None if nothing does."""
        assert self.seen.packet is not None
        return fault_of(self.values) or fault_of_body(self.values, self.seen.packet)

    def flow(self) -> Flow:
        flow = ends(self.seen.src, self.seen.dst)
        return flow | {name: self.values[name] for name in ("tree_id", "group_id") if name in self.values}


@dataclass(slots=True, eq=False)
class AuditedAggregation:
    """This class holds an operation that runs at one aggregation node."""

    group: "AuditedSharpGroup"
    seq: int
    requests: set[Child] = field(default_factory=set)
    """Children that have sent a request."""
    signed: tuple[int, tuple[int, ...]] | None = None
    """Number of a packet with a request, and the values of this request that the requests of all children must have. It
    is None if no request was seen."""
    crossed: dict[Edge, tuple[int, int]] = field(default_factory=dict)
    """Maps each edge of the tree to the number and the PSN of the first packet without RETX on this edge."""
    up: ObservedPacket | None = None
    contradiction: tuple[int, int] | None = None
    """Numbers of two packets with requests that contradict each other, or None."""
    was: int = 0

    def crossed_before(self, seen: ObservedPacket, values: Mapping[str, Any]) -> int | None:
        """Return the number of an earlier packet without RETX on the edge of this packet, if that packet has another
        PSN. It is None if there is no such packet, or if this packet has RETX."""
        number, psn = self.crossed.get(_edge(seen, values), (0, seen.head.psn))
        return None if values["flags"] & Flag.RETX or psn == seen.head.psn else number

    def flow(self) -> Flow:
        return {**self.group.flow(), "seq": self.seq}


@dataclass(slots=True, eq=False)
class AuditedSharpGroup:
    """This class holds a group that is active at one aggregation node."""

    key: GroupKey
    last_ns: int
    children: set[Child] = field(default_factory=set)
    """Children that have received a GROUP_JOIN_RESP with status OK."""
    granted: int | None = None
    multicasts: bool = False
    """Whether results may come by multicast, as GROUP_JOIN_RESP said."""
    multicast_seen: bool = False
    """Whether a multicast result was captured."""
    operations: dict[tuple[int, int], AuditedAggregation] = field(default_factory=dict)
    open: dict[Child, dict[tuple[int, int], None]] = field(default_factory=dict)
    """Maps each child to its requests that are not answered; the oldest request is the first one."""
    child: Child = (0, 0)
    newest: int | None = None
    """Number of the newest operation, or None if there was none."""
    jobs: dict[int, list[ObservedPacket]] = field(default_factory=dict)
    """Maps a job to the first messages of the group that have this job."""
    job: int = 0
    """Job that nearly all messages of the group have. It is known when the group is over."""

    def flow(self) -> Flow:
        node, tree, number = self.key
        return {"node": address_text(node), "tree_id": tree, "group_id": number}


def is_sharp(seen: ObservedPacket) -> bool:
    """Return whether a packet carries a SHARP message, or claims to carry one."""
    if seen.packet is not None and "sharp" in seen.packet:
        return True
    return getattr(seen.ses, "header_data", 0) >> 32 == MAGIC


class SharpTracker:
    """This class follows the groups in the packets of one vantage point."""

    def __init__(self, judge: Judge, options: Options) -> None:
        self._tell = judge.rules.tell(SharpEvent)
        self._complete = options.complete
        self.groups: Flows[GroupKey, AuditedSharpGroup] = Flows(options.max_flows, self._over)
        self._by_key = self.groups.by_key
        self._nodes: dict[tuple[int, int], dict[int, None]] = {}
        """Maps tree and number of a group to the aggregation nodes that have, or had, such a group."""
        self._waiting: list[tuple[int, int, int, ObservedPacket]] = []
        """Heap of messages by time and number of the packet; messages of one packet keep the order of arrival."""
        self._arrivals = 0
        self._copies: dict[tuple[int, ...], None] = {}
        self._were_left: dict[GroupKey, None] = {}
        """Lists groups that a child has left: messages of another child may be on their way."""
        self._doubted: set[int] = set()
        self.queue_pairs: dict[tuple[int, int, int], int] = {}
        """Number of messages over RoCE, by two hosts and a queue pair."""
        self._asked: dict[tuple[int, ...], int] = {}
        """Packet numbers of requests other than AGG_REQ, by two hosts, opcode, tree, group and sequence number."""

    def see(self, seen: ObservedPacket) -> None:
        """Follow a packet for which `is_sharp` holds."""
        message = AuditedSharpMessage(seen)
        if seen.ses is not None:
            self._tell[SharpEvent.OVER_UET](message, seen)
        values = message.values
        if not values:
            self._doubt(seen.src)
            self._doubt(seen.dst)
            return
        self._tell[SharpEvent.MESSAGE](message, seen)
        if "psn" not in seen.head._fields:
            return  # without a PDC or queue pair there are no edges
        if seen.head.form == BTH.name and len(self.queue_pairs) < COPIES:
            pair = seen.src, seen.dst, seen.head.destqp
            self.queue_pairs[pair] = self.queue_pairs.get(pair, 0) + 1
        self._arrivals += 1
        heappush(self._waiting, (seen.time_ns, seen.number, self._arrivals, seen))
        if len(self._waiting) > WAITING:
            self._follow_next()

    def see_roce(self, seen: ObservedPacket) -> None:
        """Report a SEND that carries no SHARP message, if its queue pairs have sent SHARP messages."""
        head = seen.head
        pair = seen.src, seen.dst, head.destqp
        if head.opcode in _SENDS and self.queue_pairs.get(pair, 0) >= FEW and seen.size:
            self._tell[SharpEvent.NO_MESSAGE](AuditedSharpMessage(seen), seen)
            self._doubt(seen.src)
            self._doubt(seen.dst)

    def _follow_next(self) -> None:
        seen = heappop(self._waiting)[-1]
        values = AuditedSharpMessage(seen).values
        if self._is_copy(seen):
            return
        opcode = values["opcode"]
        self._check_asked(seen, values)
        if AuditedSharpMessage(seen).fault is not None:
            self._doubt(seen.src if opcode & _DOWN else seen.dst)
            return
        if opcode in _LEAVING or self._begins_again(seen, values):
            self._left(seen, values)
        if opcode == SharpOpcode.AGG_REQ:
            self._request(seen, values)
        elif opcode in _ENDED:
            self._ended(seen, values)
        elif opcode == SharpOpcode.GROUP_JOIN_RESP and values["status"] == Status.OK:
            self._joined(seen, values)
        self._note_job(seen, values)

    def _doubt(self, node: int) -> None:
        """Note an aggregation node that got a message which cannot be followed: a contribution may be missing."""
        if len(self._doubted) < EDGES:
            self._doubted.add(node)

    def _note_job(self, seen: ObservedPacket, values: Mapping[str, Any]) -> None:
        """Note the job of a message, which all messages of a group have."""
        group = self._by_key.get(_group_key(seen, values))
        if group is None or _is_late(seen) or (values["job_id"] not in group.jobs and len(group.jobs) >= JOBS):
            return
        kept = group.jobs.setdefault(values["job_id"], [])
        if len(kept) < SURE:
            kept.append(seen)

    def _check_asked(self, seen: ObservedPacket, values: Mapping[str, Any]) -> None:
        """Report a response that no request asked for; results are followed with their operation."""
        opcode = values["opcode"]
        if opcode & ~_DOWN not in _ASKED or values["flags"] & Flag.MCAST:
            return
        of = values["tree_id"], values["group_id"], values["seq"]
        if not opcode & _DOWN:
            self._asked[seen.src, seen.dst, opcode, *of] = seen.number
            if len(self._asked) > COPIES:
                del self._asked[next(iter(self._asked))]
        elif self._complete and (seen.dst, seen.src, opcode - _DOWN, *of) not in self._asked:
            if seen.src in self._doubted:
                return
            asked = (seen.dst, seen.src, opcode - _DOWN)
            known = self._asked if len(self._doubted) < EDGES else {}
            others = tuple(number for key, number in known.items() if key[:3] == asked)
            self._tell[SharpEvent.UNASKED](AuditedSharpMessage(seen, others[-1:]), seen)
            if others:
                self._doubt(seen.src)  # the request or its response is of another group

    def _begins_again(self, seen: ObservedPacket, values: Mapping[str, Any]) -> bool:
        """Tell whether operation 0 repeats, which shows that the group was left although that was not captured."""
        if self._complete or values["seq"] or values["opcode"] not in _CROSSING or _is_late(seen):
            return False
        group = self._by_key.get(_group_key(seen, values))
        operation = group.operations.get(_place(values)) if group is not None else None
        return operation is not None and operation.crossed_before(seen, values) is not None

    def _left(self, seen: ObservedPacket, values: Mapping[str, Any]) -> None:
        group = self._by_key.pop(_group_key(seen, values), None)
        if group is not None:
            self._over(group)
            self._were_left[group.key] = None
            if len(self._were_left) > COPIES:
                del self._were_left[next(iter(self._were_left))]

    def _is_copy(self, seen: ObservedPacket) -> bool:
        """Tell whether a packet is a copy of an earlier one, which may arrive after its group has changed."""
        head = seen.head
        copy = (seen.src, seen.dst, head.destqp if head.form == BTH.name else head.spdcid, head.psn)
        if copy in self._copies:
            return True
        self._copies[copy] = None
        if len(self._copies) > COPIES:
            del self._copies[next(iter(self._copies))]
        return False

    def sweep(self, now: int) -> None:
        """Drop groups that are silent at `now` (nanoseconds), and the least recent groups if there are too many."""
        if not self.groups.is_due():
            return
        while self._waiting and self._waiting[0][0] < now - SILENT:
            self._follow_next()
        self.groups.sweep(now)
        self._by_key = self.groups.by_key
        self._nodes.clear()
        for group in self.groups:
            self._note_node(group)

    def end(self) -> None:
        """Follow the messages that still wait, and judge the groups that are left at the end of the capture."""
        while self._waiting:
            self._follow_next()
        for group in self.groups:
            self._over(group)

    # Messages ---------------------------------------------------------------------------------------------------------

    def _group(self, node: int, seen: ObservedPacket, values: Mapping[str, Any]) -> AuditedSharpGroup:
        key = (node, values["tree_id"], values["group_id"])
        group = self._by_key.get(key)
        if group is None:
            group = self._by_key[key] = AuditedSharpGroup(key, seen.time_ns)
            self._note_node(group)
        group.last_ns = seen.time_ns
        return group

    def _note_node(self, group: AuditedSharpGroup) -> None:
        node, *number = group.key
        nodes = self._nodes.setdefault((number[0], number[1]), {})
        if len(nodes) < EDGES:
            nodes[node] = None

    def _operation(self, group: AuditedSharpGroup, values: Mapping[str, Any]) -> AuditedAggregation:
        place = _place(values)
        operation = group.operations.get(place)
        if operation is None:
            operation = group.operations[place] = AuditedAggregation(group, values["seq"])
            if len(group.operations) > OPERATIONS:
                self._finished(group.operations.pop(next(iter(group.operations))))
        return operation

    def _joined(self, seen: ObservedPacket, values: Mapping[str, Any]) -> None:
        if seen.packet is None or JOIN_RESP.name not in seen.packet:
            return  # the rest of the message is damaged
        group = self._group(seen.src, seen, values)
        if len(group.children) < EDGES:
            group.children.add((seen.dst, values["child_idx"]))
        says = seen.packet[JOIN_RESP.name]
        group.granted, group.multicasts = says["granted_osts"], says["mgid"] != 0

    def _request(self, seen: ObservedPacket, values: Mapping[str, Any]) -> None:
        group = self._group(seen.dst, seen, values)
        operation = self._operation(group, values)
        child = (seen.src, values["child_idx"])
        places = group.open.get(child)
        if places is None:
            if len(group.open) >= EDGES:
                return
            places = group.open[child] = {}
        if child not in operation.requests:
            operation.requests.add(child)
            group.child = child
            places[_place(values)] = None
            if len(places) > OPERATIONS:
                del places[next(iter(places))]
            self._tell[SharpEvent.REQUEST](group, seen)
            sure = self._complete and group.key not in self._were_left
            if seen.dst in self._doubted:
                pass
            elif child not in group.children and (group.children or sure):
                self._tell[SharpEvent.STRANGER](group, seen)
                self._doubt(seen.dst)
            elif not values["flags"] & Flag.SAT:
                self._check_number(group, seen, values)
        if not _is_late(seen):
            signature = _signature(values)
            if operation.signed is None:
                operation.signed = seen.number, signature
            elif operation.contradiction is None and operation.signed[1] != signature:
                operation.contradiction = operation.signed[0], seen.number
            self._crosses(operation, seen, values)
        own = self._by_key.get((seen.src, values["tree_id"], values["group_id"]))
        if own is not None:  # the child is an aggregation node as well
            mine = self._operation(own, values)
            mine.up = mine.up or seen

    def _check_number(self, group: AuditedSharpGroup, seen: ObservedPacket, values: Mapping[str, Any]) -> None:
        """Report an operation whose number is far ahead, as a child has at most as many open operations as the group
        was granted."""
        newest, number = group.newest, values["seq"]
        ahead = number if newest is None else diff32(number, newest) - 1
        if self._complete and group.granted and ahead >= max(group.granted, _AHEAD):
            self._tell[SharpEvent.AHEAD](group, seen)
            self._doubt(seen.dst)
        elif newest is None or ahead >= 0:
            group.newest = number

    def _ended(self, seen: ObservedPacket, values: Mapping[str, Any]) -> None:
        if values["flags"] & Flag.MCAST:
            number = values["tree_id"], values["group_id"]
            for node in self._nodes.get(number, ()):
                known = self._by_key.get((node, *number))
                if known is not None:
                    known.multicast_seen = True
                    for places in known.open.values():
                        _close(places, values)
        key = (seen.src, values["tree_id"], values["group_id"])
        group = self._by_key.get(key)
        is_result = values["opcode"] == SharpOpcode.AGG_RESULT and not values["flags"] & Flag.MCAST
        if group is None:
            if is_result and self._complete and key not in self._were_left and seen.src not in self._doubted:
                self._tell[SharpEvent.UNASKED](AuditedSharpMessage(seen), seen)
            return
        group.last_ns = seen.time_ns
        is_known = (seen.dst, values["child_idx"]) in group.children or seen.src in self._doubted
        if is_result and group.children and not is_known:
            group.child = seen.dst, values["child_idx"]
            self._tell[SharpEvent.STRANGER](group, seen)
        for child, places in group.open.items():
            if child[0] == seen.dst:
                _close(places, values)
        if values["opcode"] == SharpOpcode.AGG_RESULT and not _is_late(seen):
            operation = self._operation(group, values)
            self._tell[SharpEvent.RESULT](operation, seen)
            if operation.contradiction is not None:
                operation.contradiction = operation.signed = None  # it was told
            if not operation.requests and self._complete and not values["flags"] & Flag.MCAST:
                self._tell[SharpEvent.UNASKED](AuditedSharpMessage(seen), seen)
            if (
                operation.signed is not None
                and operation.contradiction is None
                and operation.signed[1] != _signature(values)
            ):
                operation.was = operation.signed[0]
                self._tell[SharpEvent.UNLIKE](operation, seen)
            self._crosses(operation, seen, values)

    def _crosses(self, operation: AuditedAggregation, seen: ObservedPacket, values: Mapping[str, Any]) -> None:
        before = operation.crossed_before(seen, values)
        if before is not None:
            operation.was = before
            self._tell[SharpEvent.AGAIN](operation, seen)
        elif not values["flags"] & Flag.RETX and len(operation.crossed) < 2 * EDGES:
            operation.crossed.setdefault(_edge(seen, values), (seen.number, seen.head.psn))

    # The end ----------------------------------------------------------------------------------------------------------

    def _over(self, group: AuditedSharpGroup) -> None:
        group.job = max(group.jobs, key=lambda job: len(group.jobs[job]), default=0)
        for job, packets in group.jobs.items():
            if job != group.job and len(packets) <= FEW and len(group.jobs[group.job]) >= SURE:
                for seen in packets:
                    self._tell[SharpEvent.OTHER_JOB](group, seen)
        for operation in group.operations.values():
            self._finished(operation)

    def _finished(self, operation: AuditedAggregation) -> None:
        if operation.up is not None and operation.group.key[0] not in self._doubted:
            self._tell[SharpEvent.SENT_UP](operation, operation.up)


def _place(values: Mapping[str, Any]) -> tuple[int, int]:
    """Return the key of an operation in its group; chunks of a streaming operation have separate keys."""
    return values["seq"], values["vec_off"] if values["flags"] & Flag.SAT else 0


def _signature(values: Mapping[str, Any]) -> tuple[int, ...]:
    """Return what requests of all children and the results have in common."""
    return (*(values[name] for name in _SIGNATURE), values["flags"] & _SIGNED)


def _group_key(seen: ObservedPacket, values: Mapping[str, Any]) -> GroupKey:
    """Return the key of the group of a message: requests go to its aggregation node, others come from it."""
    node = seen.src if values["opcode"] & _DOWN else seen.dst
    return node, values["tree_id"], values["group_id"]


def _edge(seen: ObservedPacket, values: Mapping[str, Any]) -> Edge:
    return seen.src, seen.dst, values["opcode"], values["child_idx"]


def _is_late(seen: ObservedPacket) -> bool:
    """Tell whether a packet is a retransmission, which may be older than the current life of its group."""
    return bool(getattr(seen.head, "retx", 0))


def _close(places: dict[tuple[int, int], None], values: Mapping[str, Any]) -> None:
    """Close a request that was answered; an ERROR closes all chunks of its operation."""
    if values["opcode"] != SharpOpcode.ERROR:
        places.pop(_place(values), None)
        return
    for place in [place for place in places if place[0] == values["seq"]]:
        del places[place]
