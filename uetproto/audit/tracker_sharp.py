"""Follows SHARP groups: what the children of an aggregation node send up, and what comes down to them.

A group is known by the address of its aggregation node, its tree and its number; an operation of it by its sequence
number, a chunk of a streaming operation by its offset as well.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from uetproto.audit.finding import Flow
from uetproto.audit.flows import Flows
from uetproto.audit.judge import Judge
from uetproto.audit.options import Options
from uetproto.audit.seen import Seen
from uetproto.audit.tracker_roce_state import text_of
from uetproto.wire.sharp import JOIN_RESP, MAGIC, Flag, SharpOpcode, Status

OPERATIONS = 4_096
"""Operations remembered of one group, and of one child those that are open."""
EDGES = 256
"""Children remembered of one group, and aggregation nodes with a group of one number."""
_SIGNED = Flag.SAT | Flag.FIRST | Flag.LAST | Flag.REPRO | Flag.LE
_SIGNATURE = ("coll", "op", "dtype", "tag_dtype", "count", "vec_off")
_ENDED = (SharpOpcode.AGG_RESULT, SharpOpcode.NACK, SharpOpcode.ERROR)

Child = tuple[int, int]
"""Address and index."""
GroupKey = tuple[int, int, int]


class SharpEvent(Enum):
    """What happens in groups; the state is a `Message`, an `Operation` or a `Group`."""

    MESSAGE = auto()
    """State: `Message`."""
    OVER_UET = auto()
    """A message, or what would be one on a PDC of the reserved pool; state: `Message`."""
    REQUEST = auto()
    """The first request of a child for an operation; state: `Group`, with `child`."""
    RESULT = auto()
    """A result; state: `Operation`."""
    AGAIN = auto()
    """A request or result that crossed its edge before, as `was`; state: `Operation`."""
    SENT_UP = auto()
    """What an aggregation node sent to its parent, once the operation is over; state: `Operation`."""


class Message:
    """One message, with the headers of its carrier."""

    __slots__ = ("seen", "values")

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        packet = seen.packet
        self.values: Mapping[str, Any] = packet["sharp"] if packet is not None and "sharp" in packet else {}

    def flow(self) -> Flow:
        flow = {name: text_of(getattr(self.seen, name)) for name in ("src", "dst")}
        return flow | {name: self.values[name] for name in ("tree_id", "group_id") if name in self.values}


class Operation:
    """One operation at one aggregation node."""

    __slots__ = ("contradiction", "group", "requests", "results", "seq", "up", "was")

    def __init__(self, group: "Group", seq: int) -> None:
        self.group = group
        self.seq = seq
        self.requests: dict[Child, tuple[int, int, tuple[int, ...]]] = {}
        """By child: number and PSN of its packet, and what all children must agree on."""
        self.results: dict[Child, tuple[int, int]] = {}
        self.up: Seen | None = None
        self.contradiction: tuple[int, int] | None = None
        """Two packets with requests that do not agree."""
        self.was = 0

    def flow(self) -> Flow:
        return {**self.group.flow(), "seq": self.seq}


class Group:
    """A group at one aggregation node."""

    __slots__ = ("_node", "_number", "_tree", "child", "children", "granted", "last_ns", "open", "operations")

    def __init__(self, key: GroupKey, now: int) -> None:
        self._node, self._tree, self._number = key
        self.last_ns = now
        self.children: set[Child] = set()
        """Those that were told that they have joined."""
        self.granted: int | None = None
        self.operations: dict[tuple[int, int], Operation] = {}
        self.open: dict[Child, dict[tuple[int, int], None]] = {}
        """By child: what it has sent and was not answered, the oldest first."""
        self.child: Child = (0, 0)

    @property
    def key(self) -> GroupKey:
        return self._node, self._tree, self._number

    def flow(self) -> Flow:
        return {"node": text_of(self._node), "tree_id": self._tree, "group_id": self._number}


def is_sharp(seen: Seen) -> bool:
    """Whether a packet is one for this tracker: it carries a message, or says so."""
    if seen.packet is not None and "sharp" in seen.packet:
        return True
    return getattr(seen.ses, "header_data", 0) >> 32 == MAGIC


class SharpTracker:
    """The groups of one vantage point."""

    def __init__(self, judge: Judge, options: Options) -> None:
        self._tell = {event: judge.on(event) for event in SharpEvent}
        self._groups: Flows[GroupKey, Group] = Flows(options.max_flows, self._over)
        self._by_key = self._groups.by_key
        self._nodes: dict[tuple[int, int], dict[int, None]] = {}
        """By tree and number of a group: aggregation nodes that have, or had, one."""

    @property
    def forgotten(self) -> dict[str, int]:
        return {"silent": self._groups.silent, "evicted": self._groups.evicted}

    def see(self, seen: Seen) -> None:
        """A packet for which `is_sharp` holds."""
        message = Message(seen)
        if seen.ses is not None:
            self._tell[SharpEvent.OVER_UET](message, seen)
        values = message.values
        if not values:
            return
        self._tell[SharpEvent.MESSAGE](message, seen)
        if "psn" not in seen.head._fields:
            return  # without a PDC or queue pair there are no edges
        opcode = values["opcode"]
        if opcode == SharpOpcode.AGG_REQ:
            self._request(seen, values)
        elif opcode in _ENDED:
            self._ended(seen, values)
        elif opcode == SharpOpcode.GROUP_JOIN_RESP and values["status"] == Status.OK:
            self._joined(seen, values)
        elif opcode == SharpOpcode.GROUP_LEAVE_REQ:
            group = self._by_key.pop((seen.dst, values["tree_id"], values["group_id"]), None)
            if group is not None:
                self._over(group)

    def sweep(self, now: int) -> None:
        if not self._groups.is_due():
            return
        self._groups.sweep(now)
        self._by_key = self._groups.by_key
        self._nodes.clear()
        for group in self._groups:
            self._note_node(group)

    def end(self) -> None:
        for group in self._groups:
            self._over(group)

    # Messages ---------------------------------------------------------------------------------------------------------

    def _group(self, node: int, seen: Seen, values: Mapping[str, Any]) -> Group:
        key = (node, values["tree_id"], values["group_id"])
        group = self._by_key.get(key)
        if group is None:
            group = self._by_key[key] = Group(key, seen.time_ns)
            self._note_node(group)
        group.last_ns = seen.time_ns
        return group

    def _note_node(self, group: Group) -> None:
        node, *number = group.key
        nodes = self._nodes.setdefault((number[0], number[1]), {})
        if len(nodes) < EDGES:
            nodes[node] = None

    def _operation(self, group: Group, values: Mapping[str, Any]) -> Operation:
        place = _place(values)
        operation = group.operations.get(place)
        if operation is None:
            operation = group.operations[place] = Operation(group, values["seq"])
            if len(group.operations) > OPERATIONS:
                self._finished(group.operations.pop(next(iter(group.operations))))
        return operation

    def _joined(self, seen: Seen, values: Mapping[str, Any]) -> None:
        if seen.packet is None or JOIN_RESP.name not in seen.packet:
            return  # the rest of it is damaged
        group = self._group(seen.src, seen, values)
        if len(group.children) < EDGES:
            group.children.add((seen.dst, values["child_idx"]))
        group.granted = seen.packet[JOIN_RESP.name]["granted_osts"]

    def _request(self, seen: Seen, values: Mapping[str, Any]) -> None:
        group = self._group(seen.dst, seen, values)
        operation = self._operation(group, values)
        child = (seen.src, values["child_idx"])
        places = group.open.get(child)
        if places is None:
            if len(group.open) >= EDGES:
                return
            places = group.open[child] = {}
        signature = (*(values[name] for name in _SIGNATURE), values["flags"] & _SIGNED)
        before = operation.requests.get(child)
        if before is None:
            if operation.requests and operation.contradiction is None:  # so far they agree: any one will do
                number, _, other = next(iter(operation.requests.values()))
                operation.contradiction = (number, seen.number) if other != signature else None
            operation.requests[child] = seen.number, seen.head.psn, signature
            group.child = child
            places[_place(values)] = None
            if len(places) > OPERATIONS:
                del places[next(iter(places))]
            self._tell[SharpEvent.REQUEST](group, seen)
        elif before[1] != seen.head.psn and not values["flags"] & Flag.RETX:
            operation.was = before[0]
            self._tell[SharpEvent.AGAIN](operation, seen)
        own = self._by_key.get((seen.src, values["tree_id"], values["group_id"]))
        if own is not None:  # the child is an aggregation node as well
            mine = self._operation(own, values)
            mine.up = mine.up or seen

    def _ended(self, seen: Seen, values: Mapping[str, Any]) -> None:
        place = _place(values)
        if values["flags"] & Flag.MCAST:
            number = values["tree_id"], values["group_id"]
            for node in self._nodes.get(number, ()):
                known = self._by_key.get((node, *number))
                for places in known.open.values() if known is not None else ():
                    places.pop(place, None)
        key = (seen.src, values["tree_id"], values["group_id"])
        group = self._by_key.get(key)
        if group is None:
            return
        group.last_ns = seen.time_ns
        for child, places in group.open.items():
            if child[0] == seen.dst:
                places.pop(place, None)
        if values["opcode"] != SharpOpcode.AGG_RESULT:
            return
        operation = self._operation(group, values)
        receiver = (seen.dst, values["child_idx"])
        before = operation.results.get(receiver)
        self._tell[SharpEvent.RESULT](operation, seen)
        if before is None:
            if len(operation.results) >= EDGES:
                return
            operation.results[receiver] = seen.number, seen.head.psn
        elif before[1] != seen.head.psn and not values["flags"] & Flag.RETX:
            operation.was = before[0]
            self._tell[SharpEvent.AGAIN](operation, seen)

    # The end ----------------------------------------------------------------------------------------------------------

    def _over(self, group: Group) -> None:
        for operation in group.operations.values():
            self._finished(operation)

    def _finished(self, operation: Operation) -> None:
        if operation.up is not None:
            self._tell[SharpEvent.SENT_UP](operation, operation.up)


def _place(values: Mapping[str, Any]) -> tuple[int, int]:
    """Which operation of its group: chunks of a streaming one are told apart."""
    return values["seq"], values["vec_off"] if values["flags"] & Flag.SAT else 0
