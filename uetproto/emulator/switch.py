"""A switch: it forwards by destination address, and may cut packets for which it has no room (cms.md §7).

Frames pass unchanged and are not decoded: the switch looks at a few bytes at fixed places.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import Protocol

from uetproto.emulator.fates import Fate, Fates
from uetproto.emulator.link import ETHERNET_SIZE
from uetproto.emulator.queue import Level, OutputQueue
from uetproto.errors import LocalError
from uetproto.wire.ethernet import EtherType, IpProtocol, internet_checksum

_IPV4 = EtherType.IPV4.to_bytes(2, "big")
_IPV6 = EtherType.IPV6.to_bytes(2, "big")
_IPV4_SIZE, _IPV6_SIZE = 20, 40

GROUPS = (bytes.fromhex("01005e"), bytes.fromhex("3333"))
"""How the MAC addresses of IPv4 and IPv6 groups begin."""

MIN_TRIM_SIZE: dict[int, int] = {IpProtocol.UDP: 24, IpProtocol.UET: 20}
"""Bytes of IP payload that are left of a packet: UDP or entropy header, and 16 bytes of PDS (cms.md §7)."""


@dataclass(frozen=True, slots=True)
class Dscp:
    """The DSCP of each traffic class; the values are the operator's (cms.md §1)."""

    data: int = 8
    data_rtx: int = 10
    trimmed: int = 16
    trimmed_last_hop: int = 18
    control: int = 46

    def level(self, frame: bytes) -> Level:
        """In which queue of a port a frame waits."""
        dscp = dscp_of(frame)
        if dscp == self.control:
            return Level.HIGH
        return Level.MEDIUM if dscp in (self.trimmed, self.trimmed_last_hop) else Level.LOW

    def is_data(self, frame: bytes) -> bool:
        """It may be trimmed, and paused."""
        return dscp_of(frame) in (self.data, self.data_rtx)


def dscp_of(frame: bytes) -> int | None:
    """None for what is neither IPv4 nor IPv6."""
    kind = frame[12:14]
    if kind == _IPV4:
        return frame[15] >> 2
    if kind == _IPV6:
        return (frame[14] & 0x0F) << 2 | frame[15] >> 6
    return None


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

    def branches(self, source: bytes) -> Sequence[OutputQueue]:
        """Ports to other switches by which a frame to a group goes on that comes from the station `source`."""


FLOWS = 1 << 16
"""Flows whose way a switch remembers; then it starts anew, with the same ways."""


class Switch:
    """Output queues, one a port, found by the destination MAC address; `trimming` cuts data that finds no room.

    Every port leads to a host, so that each hop is the last, but for those of `beyond`. A frame to a group leaves by
    all ports but that of its source, or by those that joined; to other switches by the branches of its tree. Other
    group addresses belong to the link, as that of PFC: they are not forwarded.
    """

    __slots__ = (
        "_beyond", "_fates", "_flows", "_groups", "_queues", "copies", "dropped", "dscp", "forwarded", "name",
        "trimmed", "trimming", "unknown",
    )  # fmt: skip

    def __init__(
        self,
        *,
        dscp: Dscp,
        trimming: bool,
        fates: Fates | None = None,
        name: str = "switch",
        beyond: Beyond | None = None,
    ) -> None:
        self._beyond = beyond
        self._flows: dict[bytes, OutputQueue] = {}
        self.name = name
        self._queues: dict[bytes, OutputQueue] = {}
        self._groups: dict[bytes, dict[bytes, OutputQueue]] = {}
        self._fates = fates or Fates()
        self.dscp = dscp
        self.trimming = trimming
        self.forwarded = 0
        """Frames, and copies of them, that found room."""
        self.dropped = 0
        """No room in the queue."""
        self.trimmed = 0
        self.unknown = 0
        """Nobody has this address."""
        self.copies: Counter[bytes] = Counter()
        """Of frames to groups: how many were meant for each port, by its address."""

    def attach(self, mac: bytes, queue: OutputQueue) -> None:
        self._queues[mac] = queue

    def join(self, group: bytes, port: bytes) -> None:
        """From now on frames to `group` leave by this port and others that joined, no more by all. Both are MACs."""
        if not _is_group(group):
            raise LocalError(
                f"group: {group.hex(':')} is none; legal: {' and '.join(g.hex(':') + ':…' for g in GROUPS)}"
            )
        if port not in self._queues:
            raise LocalError(f"port: {port.hex(':')} is none; legal: {', '.join(mac.hex(':') for mac in self._queues)}")
        self._groups.setdefault(group, {})[port] = self._queues[port]

    def take(self, frame: bytes) -> None:
        queue = self._queues.get(frame[:6])
        if queue is None:
            self._elsewhere(frame)
        elif queue.put(frame):
            self.forwarded += 1
        else:
            self._refused(queue, frame)

    def _elsewhere(self, frame: bytes) -> None:
        """To a station at another switch, to a group, or to nobody."""
        flow = flow_of(frame)
        queue = self._flows.get(flow) if self._beyond is not None else None
        if queue is None:
            ways = () if self._beyond is None else self._beyond.ways(frame[:6])
            if not ways:
                self._spread(frame)
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
        """To a group, or to nobody."""
        group, source = frame[:6], frame[6:12]
        queues = self._groups.get(group, self._queues) if _is_group(group) else {}
        ports = [mac for mac in queues if mac != source]
        trunks = self._beyond.branches(source) if self._beyond is not None and _is_group(group) else ()
        if not ports and not trunks:
            self.unknown += 1
            self._fates.lost(frame)
        for _ in range(len(ports) + len(trunks) - 1):
            self._fates.copied(frame)
        for queue in trunks:
            if queue.put(frame):
                self.forwarded += 1
            else:
                self._refused(queue, frame, last_hop=False)
        for mac in ports:
            self.copies[mac] += 1
            if queues[mac].put(frame):
                self.forwarded += 1
            else:
                self._refused(queues[mac], frame)

    def _refused(self, queue: OutputQueue, frame: bytes, *, last_hop: bool = True) -> None:
        """There is no room for it; for its head perhaps."""
        short = trim(frame, self.dscp, last_hop=last_hop) if self.trimming else None
        if short is not None and queue.put(short):
            self.trimmed += 1
            self._fates.changed(frame, short, Fate.TRIMMED)
        else:
            self.dropped += 1
            self._fates.lost(frame)


def _is_group(mac: bytes) -> bool:
    return mac.startswith(GROUPS)
