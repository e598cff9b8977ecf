# SPDX-License-Identifier: GPL-2.0-only
"""This module has the switch, which forwards by destination address and may trim packets (cms.md §7).

Frames pass unchanged and are not decoded: the switch reads a few bytes at fixed offsets.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any, NamedTuple, Protocol

from uetproto.emulator.network.ports import OutputPort
from uetproto.errors import LocalError
from uetproto.framing.dscp import IPV4_TYPE, Dscp
from uetproto.framing.flow import flow_of
from uetproto.impair.frame_outcome import FrameOutcome, FrameOutcomes
from uetproto.impair.queue import OutputQueue
from uetproto.impair.trim import trim

GROUPS = (bytes.fromhex("01005e"), bytes.fromhex("3333"))
"""First bytes of the MAC addresses of IPv4 and IPv6 multicast groups."""


class Routing(Protocol):
    """A routing belongs to one switch. It selects the other switches to which this switch may send a frame, and returns
    the output queues to them.
    """

    def next_hops(self, mac: bytes) -> Sequence[OutputQueue]:
        """Return the output queues on the shortest paths to the node with the MAC address `mac`. If no node has
        this address, return no queue.
        """

    def ports(self, group: bytes, source: bytes) -> Mapping[str, OutputQueue]:
        """Return the output queues to other switches that get a copy of a frame from the MAC address `source` to the
        multicast group `group`. The key is the name of the next switch.
        """


class GroupCount(NamedTuple):
    """A group count has the number of multicast frames at a port or at a switch, and the number of their bytes."""

    frames: int
    bytes: int


@dataclass(slots=True)
class MulticastEntry:
    """A multicast entry is for the frames from one source to one multicast group. It has the ports by which these
    frames leave, and counts the frames.
    """

    trunks: tuple[OutputQueue, ...]
    ports: tuple[OutputPort, ...]
    names: tuple[str, ...]
    """Names of all ports: first those to other switches (`trunks`), then those to nodes (`ports`)."""
    macs: tuple[bytes, ...]
    """MAC addresses of the nodes at `ports`."""
    frames: int = 0
    bytes: int = 0


FLOWS = 1 << 16
"""Greatest number of entries in each cache of a switch: the flows of equal paths, and the multicast entries. A full
cache is emptied."""

_EARLIER = 1 << 12
"""Number of replaced multicast entries that are kept for their counters."""

MOST_GROUPS = 0xFFFF - 0xC000
"""Default number of multicast groups that a switch can hold: InfiniBand has as many local identifiers for groups."""


class EqualPaths(dict[bytes, OutputQueue]):
    """Equal paths begin with several output queues of a switch, which act as one output port: the flow of a frame
    selects the queue. This table has the queue of each flow. It is found by a hash once, and then kept.
    """

    __slots__ = ("_flow_of", "_hash", "_queues")

    def __init__(self, queues: Sequence[OutputQueue], start: Any, flow_of: Callable[[bytes], bytes] | None) -> None:
        """Make the paths that begin with `queues`. `start` is the hash before the flow, and `flow_of` that of
        `Switch`."""
        self._queues = queues
        self._hash = start
        self._flow_of = flow_of

    def put(self, frame: bytes) -> bool:
        read = self._flow_of
        if read is not None:
            return self[read(frame)].put(frame)
        if frame[12:14] == IPV4_TYPE:  # as `flow_of`, without a call
            return self[frame[:6] + frame[26:36]].put(frame)
        return self[flow_of(frame)].put(frame)

    def __missing__(self, flow: bytes) -> OutputQueue:
        if len(self) >= FLOWS:
            self.clear()
        choice, queues = self._hash.copy(), self._queues
        choice.update(flow)
        self[flow] = queue = queues[int.from_bytes(choice.digest(), "big") % len(queues)]
        return queue


class Switch:
    """A switch has one output queue for each port, and selects the port by the destination MAC address.

    The ports of `routing` lead to other switches. All other ports lead to nodes. With `trimming`, the switch trims data
    packets that do not fit into a queue.

    A frame to a multicast group leaves by the ports of the nodes that joined the group, or, if none joined, by all
    ports except that of its source. It also leaves to other switches, by the links that belong to the multicast tree of
    its source. An inner port, which leads to an aggregation node, gets only frames of groups that the node has joined.
    A frame to any other group address, such as the address of PFC frames, concerns only the link on which it came, and
    is not forwarded.
    """

    __slots__ = (
        "_branches", "_earlier", "_entries", "_exits", "_flow_of", "_groups", "_hash", "_names", "_open", "_outcomes",
        "_queues", "_routing", "_size_of", "dropped", "dscp", "forwarded", "most_groups", "name", "trimmed",
        "trimming", "unknown",
    )  # fmt: skip

    def __init__(
        self,
        *,
        dscp: Dscp,
        trimming: bool,
        outcomes: FrameOutcomes | None = None,
        name: str = "switch",
        routing: Routing | None = None,
        most_groups: int = MOST_GROUPS,
        size_of: Callable[[bytes], int] = len,
        flow_of: Callable[[bytes], bytes] | None = None,
        salt: int = 0,
    ) -> None:
        """`flow_of` returns the flow of a frame that is not encoded; None: frames are encoded."""
        self._routing = routing
        self._flow_of = flow_of
        # The hash depends on the name of the switch, as otherwise all switches would make the same choice.
        self._hash = blake2s(digest_size=4, key=name.encode()[:32], salt=salt.to_bytes(8, "big"))
        self._branches: dict[tuple[OutputQueue, ...], EqualPaths] = {}
        self.name = name
        self._queues: dict[bytes, OutputPort] = {}
        self._exits: dict[bytes, OutputPort] = {}
        """Port by which frames to a node leave, by its MAC address: that of `_queues`, or one to other switches."""
        self._open: dict[bytes, OutputPort] = {}  # ports for groups that no node joined
        self._names: dict[bytes, str] = {}
        self._groups: dict[bytes, dict[bytes, OutputPort]] = {}
        self._entries: dict[bytes, MulticastEntry] = {}  # by group and source, the first 12 bytes of a frame
        self._earlier: list[MulticastEntry] = []  # entries that were replaced because a node joined or left
        self._outcomes = outcomes or FrameOutcomes()
        self._size_of = size_of
        self.dscp = dscp
        self.trimming = trimming
        self.most_groups = most_groups
        self.forwarded = 0
        """Number of frames, including copies, that were sent or fitted into their queue."""
        self.dropped = 0
        """Number of frames that were dropped because their queue was full."""
        self.trimmed = 0
        self.unknown = 0
        """Number of frames that were dropped because no port leads to their destination address."""

    def attach(self, mac: bytes, queue: OutputPort, *, name: str = "", inner: bool = False) -> None:
        """Add a port that leads to the node with the MAC address `mac`. The counters call the port `name`."""
        self._queues[mac] = self._exits[mac] = queue
        self._names[mac] = name or mac.hex(":")
        if not inner:
            self._open[mac] = queue
        self.renew()

    # Groups

    def join(self, group: bytes, port: bytes, queue: OutputPort | None = None) -> None:
        """Make frames to a multicast group leave also by the port that leads to a node. `group` is the MAC address of
        the group, and `port` is the MAC address of the node.

        If the node has several ports, these frames leave only by `queue`, or, if `queue` is None, by the port that
        their entropy selects.
        """
        check_group(group)
        if port not in self._queues:
            raise LocalError(
                "port", f"{port.hex(':')} is none", ", ".join(mac.hex(":") for mac in self._queues), id="not-registered"
            )
        self.hold(group)
        self._groups[group][port] = queue or self._queues[port]
        self.renew()

    def check_room(self, group: bytes) -> None:
        """Raise `LocalError` for a new multicast group if the switch holds as many groups as it can."""
        if group not in self._groups and len(self._groups) >= self.most_groups:
            held = f"{self.name} holds {len(self._groups)} of them"
            raise LocalError("group", held, f"at most {self.most_groups}", id="resources-exhausted")

    def hold(self, group: bytes) -> None:
        """Make frames to the multicast group `group` leave only by ports that joined it. Raises `LocalError` if the
        switch holds as many groups as it can.
        """
        self.check_room(group)
        if group not in self._groups:
            self._groups[group] = {}
            self.renew()

    def leave(self, group: bytes, port: bytes) -> None:
        """Stop frames to `group` from leaving by the port of the node with the MAC address `port`."""
        self._groups[group].pop(port, None)
        self.renew()

    def forget(self, group: bytes) -> None:
        """Remove a multicast group, with all ports that joined it."""
        self._groups.pop(group, None)
        self.renew()

    @property
    def groups(self) -> tuple[bytes, ...]:
        """Return the MAC addresses of the multicast groups that the switch holds."""
        return tuple(self._groups)

    def renew(self) -> None:
        """Drop all multicast entries, because a node has joined or left a group, here or at another switch. The counts
        of the entries are kept.
        """
        self._earlier += [entry for entry in self._entries.values() if entry.frames]
        self._entries.clear()
        if len(self._earlier) > _EARLIER:
            found: dict[tuple[str, ...], MulticastEntry] = {}
            for entry in self._earlier:
                kept = found.setdefault(entry.names, entry)
                if kept is not entry:
                    kept.frames += entry.frames
                    kept.bytes += entry.bytes
            self._earlier = list(found.values())

    @property
    def group_ports(self) -> dict[str, GroupCount]:
        """Return the count of multicast frames that were copied to each port, including copies that were dropped. The
        key is the name of the port.
        """
        counts: dict[str, GroupCount] = {}
        for entry in (*self._earlier, *self._entries.values()):
            for name in entry.names if entry.frames else ():
                frames, size = counts.get(name, (0, 0))
                counts[name] = GroupCount(frames + entry.frames, size + entry.bytes)
        return counts

    @property
    def group_frames(self) -> GroupCount:
        """Return the count of multicast frames that entered the switch, before they were copied."""
        entries = (*self._earlier, *self._entries.values())
        return GroupCount(sum(entry.frames for entry in entries), sum(entry.bytes for entry in entries))

    @property
    def copies(self) -> dict[bytes, int]:
        """Return how many copies of multicast frames went to each node at this switch. The key is the MAC address of
        the node.
        """
        counts: Counter[bytes] = Counter()
        for entry in (*self._earlier, *self._entries.values()):
            counts.update(dict.fromkeys(entry.macs, entry.frames))
        return {mac: count for mac, count in counts.items() if count}

    # Frames

    def take(self, frame: bytes) -> None:
        """Forward a frame that arrives now."""
        port = self._exits.get(frame[:6])
        if port is None:
            port = self._route(frame[:6])
            if port is None:
                if frame.startswith(GROUPS):
                    self._multicast(frame)
                else:
                    self._drop_unknown(frame)
                return
        if port.put(frame):
            self.forwarded += 1
        else:
            self.trim_or_drop(port, frame, last_hop=frame[:6] in self._queues)

    def _route(self, mac: bytes) -> OutputPort | None:
        """Find and keep the port by which frames to a node at another switch leave. Return None if there is none."""
        hops = () if self._routing is None else self._routing.next_hops(mac)
        if not hops:
            return None
        port: OutputPort = hops[0]
        if len(hops) > 1:
            key = tuple(hops)
            if key not in self._branches:
                self._branches[key] = EqualPaths(key, self._hash, self._flow_of)
            port = self._branches[key]
        self._exits[mac] = port
        return port

    def _multicast(self, frame: bytes) -> None:
        entry = self._entries.get(frame[:12])
        if entry is None:
            entry = self._entry(frame[:6], frame[6:12])
        entry.frames += 1
        entry.bytes += self._size_of(frame)
        if not entry.names:
            self._drop_unknown(frame)
            return
        if self._outcomes.following:
            for _ in range(len(entry.names) - 1):
                self._outcomes.copied(frame)
        forwarded = 0
        for queue in entry.trunks:
            if queue.put(frame):
                forwarded += 1
            else:
                self.trim_or_drop(queue, frame, last_hop=False)
        for port in entry.ports:
            if port.put(frame):
                forwarded += 1
            else:
                self.trim_or_drop(port, frame)
        self.forwarded += forwarded

    def _drop_unknown(self, frame: bytes) -> None:
        self.unknown += 1
        self._outcomes.lost(frame)

    def _entry(self, group: bytes, source: bytes) -> MulticastEntry:
        """Make and keep the entry that says by which ports frames from `source` to a group leave."""
        trunks = {} if self._routing is None else self._routing.ports(group, source)
        ports = {mac: queue for mac, queue in self._groups.get(group, self._open).items() if mac != source}
        names = (*trunks, *(self._names[mac] for mac in ports))
        if len(self._entries) >= FLOWS:
            self.renew()
        self._entries[group + source] = entry = MulticastEntry(
            tuple(trunks.values()), tuple(ports.values()), names, tuple(ports)
        )
        return entry

    def trim_or_drop(self, queue: OutputPort, frame: bytes, *, last_hop: bool = True) -> None:
        """Trim a frame that finds no room in a queue, and put it there as a trimmed one, or drop it."""
        short = trim(frame, self.dscp, last_hop=last_hop) if self.trimming else None
        if short is not None and queue.put(short):
            self.trimmed += 1
            self._outcomes.changed(frame, short, FrameOutcome.TRIMMED)
        else:
            self.dropped += 1
            self._outcomes.lost(frame)


def check_group(mac: bytes) -> None:
    """Raise `LocalError` for an address that is not that of an IPv4 or IPv6 group."""
    if not mac.startswith(GROUPS):
        raise LocalError(
            "group", f"{mac.hex(':')} is none", " and ".join(g.hex(":") + ":…" for g in GROUPS), id="not-registered"
        )
