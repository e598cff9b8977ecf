"""A switch: it forwards by destination address, and may cut packets for which it has no room (cms.md §7).

Frames pass unchanged and are not decoded: the switch looks at a few bytes at fixed places.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import NamedTuple, Protocol

from uetproto.emulator.network.frame_outcome import Fate, Fates
from uetproto.emulator.network.queue import OutputQueue
from uetproto.errors import LocalError
from uetproto.framing.dscp import Dscp
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.wire.headers.ethernet import EtherType, IpProtocol, internet_checksum

_IPV4 = EtherType.IPV4.to_bytes(2, "big")
_IPV6 = EtherType.IPV6.to_bytes(2, "big")
_IPV4_SIZE, _IPV6_SIZE = 20, 40

GROUPS = (bytes.fromhex("01005e"), bytes.fromhex("3333"))
"""How the MAC addresses of IPv4 and IPv6 groups begin."""

MIN_TRIM_SIZE: dict[int, int] = {IpProtocol.UDP: 24, IpProtocol.UET: 20}
"""Bytes of IP payload that are left of a packet: UDP or entropy header, and 16 bytes of PDS (cms.md §7)."""


def trim(frame: bytes, dscp: Dscp, *, last_hop: bool) -> bytes | None:
    """The frame cut as far as it may be, with the DSCP that says so; None for what must not be cut.

    Addresses, entropy and ECN stay, the UDP length too; IP length and IPv4 checksum are those of what is left.
    """
    if not dscp.is_data(frame):
        return None
    mark = dscp.trimmed_last_hop if last_hop else dscp.trimmed
    head = bytearray(frame[:ETHERNET_SIZE])
    if frame[12:14] == _IPV4:
        size = MIN_TRIM_SIZE.get(frame[23])
        start = ETHERNET_SIZE + _IPV4_SIZE
        if size is None or frame[ETHERNET_SIZE] != 0x45 or len(frame) <= start + size:
            return None
        ip = bytearray(frame[ETHERNET_SIZE:start])
        ip[1] = mark << 2 | ip[1] & 3
        ip[2:4] = (_IPV4_SIZE + size).to_bytes(2, "big")
        ip[10:12] = b"\0\0"
        ip[10:12] = internet_checksum(bytes(ip)).to_bytes(2, "big")
    else:
        size = MIN_TRIM_SIZE.get(frame[20])
        start = ETHERNET_SIZE + _IPV6_SIZE
        if size is None or len(frame) <= start + size:
            return None
        ip = bytearray(frame[ETHERNET_SIZE:start])
        ip[0] = ip[0] & 0xF0 | mark >> 2
        ip[1] = (mark & 3) << 6 | ip[1] & 0x3F
        ip[4:6] = size.to_bytes(2, "big")
    return b"".join((head, ip, frame[start : start + size]))


def flow_of(frame: bytes) -> bytes:
    """What all frames of a flow share: addresses, and the entropy, which is the UDP source port or in its place."""
    if frame[12:14] == _IPV4:
        return frame[:6] + frame[26:36]
    if frame[12:14] == _IPV6:
        return frame[:6] + frame[22:56]
    return frame[:14]


class Beyond(Protocol):
    """What a switch knows of other switches."""

    def ways(self, mac: bytes) -> Sequence[OutputQueue]:
        """Ports on the shortest ways to a station; none: nobody has this address."""

    def branches(self, group: bytes, source: bytes) -> Mapping[str, OutputQueue]:
        """Ports by which a frame to a group goes on that comes from a station, by the switch that they lead to."""


class GroupCount(NamedTuple):
    """Of frames to groups: what was meant for a port, or what came to a switch."""

    frames: int
    bytes: int


@dataclass(slots=True)
class _Fan:
    """The ports by which frames of one source to one group leave, and how many did."""

    trunks: tuple[OutputQueue, ...]
    ports: tuple[OutputQueue, ...]
    names: tuple[str, ...]
    """Of both."""
    macs: tuple[bytes, ...]
    """Of the stations."""
    frames: int = 0
    bytes: int = 0


FLOWS = 1 << 16
"""Flows whose way a switch remembers, and sources of groups; then it starts anew, with the same ways."""

_EARLIER = 1 << 12  # counters of ports that are kept apart

MOST_GROUPS = 0xFFFF - 0xC000
"""Multicast groups that a switch holds by default: InfiniBand has as many local identifiers for them."""


class Switch:
    """Output queues, one a port, found by the destination MAC address; `trimming` cuts data that finds no room.

    Every port leads to a host, so that each hop is the last, but for those of `beyond`. A frame to a group leaves by
    all ports but that of its source, or by those that joined; to other switches by the branches of its tree. Inner
    ports, those of aggregation nodes, see no group that they have not joined. Other group addresses belong to the link,
    as that of PFC: they are not forwarded.
    """

    __slots__ = (
        "_beyond", "_earlier", "_fans", "_fates", "_flows", "_groups", "_names", "_open", "_queues", "_size_of",
        "dropped", "dscp", "forwarded", "most_groups", "name", "trimmed", "trimming", "unknown",
    )  # fmt: skip

    def __init__(
        self,
        *,
        dscp: Dscp,
        trimming: bool,
        fates: Fates | None = None,
        name: str = "switch",
        beyond: Beyond | None = None,
        most_groups: int = MOST_GROUPS,
        size_of: Callable[[bytes], int] = len,
    ) -> None:
        self._beyond = beyond
        self._flows: dict[bytes, OutputQueue] = {}
        self.name = name
        self._queues: dict[bytes, OutputQueue] = {}
        self._open: dict[bytes, OutputQueue] = {}  # ports that get what is for a group of which nobody told
        self._names: dict[bytes, str] = {}
        self._groups: dict[bytes, dict[bytes, OutputQueue]] = {}
        self._fans: dict[bytes, _Fan] = {}  # by group and source, which a frame begins with
        self._earlier: list[_Fan] = []  # that held until somebody joined or left
        self._fates = fates or Fates()
        self._size_of = size_of
        self.dscp = dscp
        self.trimming = trimming
        self.most_groups = most_groups
        self.forwarded = 0
        """Frames, and copies of them, that found room."""
        self.dropped = 0
        """No room in the queue."""
        self.trimmed = 0
        self.unknown = 0
        """Nobody has this address."""

    def attach(self, mac: bytes, queue: OutputQueue, *, name: str = "", inner: bool = False) -> None:
        """A port towards a station, which its counters call `name`."""
        self._queues[mac] = queue
        self._names[mac] = name or mac.hex(":")
        if not inner:
            self._open[mac] = queue
        self.renew()

    # Groups

    def join(self, group: bytes, port: bytes) -> None:
        """From now on frames to `group` leave by this port and others that joined, no more by all. Both are MACs."""
        check_group(group)
        if port not in self._queues:
            raise LocalError("port", f"{port.hex(':')} is none", ", ".join(mac.hex(":") for mac in self._queues))
        self.hold(group)
        self._groups[group][port] = self._queues[port]
        self.renew()

    def has_room(self, group: bytes) -> bool:
        """For a group, or it holds it already."""
        return group in self._groups or len(self._groups) < self.most_groups

    def hold(self, group: bytes) -> None:
        """From now on frames to `group` leave by ports that joined only. Raises `LocalError` if it holds too many."""
        if group not in self._groups:
            if not self.has_room(group):
                raise LocalError("group", f"{self.name} holds {len(self._groups)}", f"at most {self.most_groups}")
            self._groups[group] = {}
            self.renew()

    def leave(self, group: bytes, port: bytes) -> None:
        """No frames to `group` leave by this port any more."""
        self._groups[group].pop(port, None)
        self.renew()

    def forget(self, group: bytes) -> None:
        """As if nobody had ever joined."""
        self._groups.pop(group, None)
        self.renew()

    @property
    def groups(self) -> tuple[bytes, ...]:
        """Those that it holds."""
        return tuple(self._groups)

    def renew(self) -> None:
        """Somebody has joined or left, here or elsewhere: where frames to groups go is asked anew."""
        self._earlier += [fan for fan in self._fans.values() if fan.frames]
        self._fans.clear()
        if len(self._earlier) > _EARLIER:
            found: dict[tuple[str, ...], _Fan] = {}
            for fan in self._earlier:
                kept = found.setdefault(fan.names, fan)
                if kept is not fan:
                    kept.frames += fan.frames
                    kept.bytes += fan.bytes
            self._earlier = list(found.values())

    @property
    def group_ports(self) -> dict[str, GroupCount]:
        """Copies of frames to groups that were meant for each port, by what it leads to: what has no room counts."""
        counts: dict[str, GroupCount] = {}
        for fan in (*self._earlier, *self._fans.values()):
            for name in fan.names if fan.frames else ():
                frames, size = counts.get(name, (0, 0))
                counts[name] = GroupCount(frames + fan.frames, size + fan.bytes)
        return counts

    @property
    def group_frames(self) -> GroupCount:
        """Frames to groups that came to the switch, before they were copied."""
        fans = (*self._earlier, *self._fans.values())
        return GroupCount(sum(fan.frames for fan in fans), sum(fan.bytes for fan in fans))

    @property
    def copies(self) -> dict[bytes, int]:
        """Of frames to groups: how many were meant for each station here, by its address."""
        counts: Counter[bytes] = Counter()
        for fan in (*self._earlier, *self._fans.values()):
            counts.update(dict.fromkeys(fan.macs, fan.frames))
        return {mac: count for mac, count in counts.items() if count}

    # Frames

    def take(self, frame: bytes) -> None:
        queue = self._queues.get(frame[:6])
        if queue is None:
            if frame.startswith(GROUPS):
                self._spread(frame)
            else:
                self._elsewhere(frame)
        elif queue.put(frame):
            self.forwarded += 1
        else:
            self._refused(queue, frame)

    def _elsewhere(self, frame: bytes) -> None:
        """To a station at another switch, or to nobody."""
        flow = flow_of(frame)
        queue = self._flows.get(flow) if self._beyond is not None else None
        if queue is None:
            ways = () if self._beyond is None else self._beyond.ways(frame[:6])
            if not ways:
                self._nowhere(frame)
                return
            if len(self._flows) >= FLOWS:
                self._flows.clear()
            self._flows[flow] = queue = ways[self._choice(flow) % len(ways)]
        if queue.put(frame):
            self.forwarded += 1
        else:
            self._refused(queue, frame, last_hop=False)

    def _choice(self, flow: bytes) -> int:
        """Each switch chooses in its own way, else the next one would have no choice left."""
        return int.from_bytes(blake2s(flow, digest_size=4, key=self.name.encode()[:32]).digest(), "big")

    def _spread(self, frame: bytes) -> None:
        """To a group."""
        fan = self._fans.get(frame[:12])
        if fan is None:
            fan = self._fan(frame[:6], frame[6:12])
        fan.frames += 1
        fan.bytes += self._size_of(frame)
        if not fan.names:
            self._nowhere(frame)
            return
        if self._fates.following:
            for _ in range(len(fan.names) - 1):
                self._fates.copied(frame)
        forwarded = 0
        for queue in fan.trunks:
            if queue.put(frame):
                forwarded += 1
            else:
                self._refused(queue, frame, last_hop=False)
        for queue in fan.ports:
            if queue.put(frame):
                forwarded += 1
            else:
                self._refused(queue, frame)
        self.forwarded += forwarded

    def _nowhere(self, frame: bytes) -> None:
        self.unknown += 1
        self._fates.lost(frame)

    def _fan(self, group: bytes, source: bytes) -> _Fan:
        """Where frames of a source to a group go from here."""
        trunks = {} if self._beyond is None else self._beyond.branches(group, source)
        ports = {mac: queue for mac, queue in self._groups.get(group, self._open).items() if mac != source}
        names = (*trunks, *(self._names[mac] for mac in ports))
        if len(self._fans) >= FLOWS:
            self.renew()
        self._fans[group + source] = fan = _Fan(tuple(trunks.values()), tuple(ports.values()), names, tuple(ports))
        return fan

    def _refused(self, queue: OutputQueue, frame: bytes, *, last_hop: bool = True) -> None:
        """There is no room for it; for its head perhaps."""
        short = trim(frame, self.dscp, last_hop=last_hop) if self.trimming else None
        if short is not None and queue.put(short):
            self.trimmed += 1
            self._fates.changed(frame, short, Fate.TRIMMED)
        else:
            self.dropped += 1
            self._fates.lost(frame)


def check_group(mac: bytes) -> None:
    """Raises `LocalError` for what is no address of an IPv4 or IPv6 group."""
    if not mac.startswith(GROUPS):
        raise LocalError("group", f"{mac.hex(':')} is none", " and ".join(g.hex(":") + ":…" for g in GROUPS))
