"""A NIC: it binds an endpoint to a port. Here alone packets become frames and frames packets.

What stands before the transport bytes is the same for all packets of a flow that have the same length: it is built
once, with its checksum and the CRC32C of the part that the trailer covers, and looked up from then on; a frame is
joined once. On receipt the same holds the other way round.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from uetproto.emulator.clock import Clock
from uetproto.emulator.link import ETHERNET_SIZE, Sender
from uetproto.emulator.switch import Dscp
from uetproto.engine.contract import NEVER, Buffer, Datagram, Engine, Event, TrafficClass, Trim, Work
from uetproto.wire.codec import codec_of
from uetproto.wire.crc import CRC_SIZE, crc32c
from uetproto.wire.ethernet import ETHERNET, IPV4, IPV6, UDP, Ecn, EtherType, IpProtocol, internet_checksum
from uetproto.wire.forms import IP_PROTOCOL, UDP_PORT
from uetproto.wire.uet_pds import PdsType
from uetproto.wire.uet_tss import ENTROPY

RING = 16
"""First transmissions that a NIC takes from its endpoint at once; it comes back for more when they have left."""

_TTL = 64
_CACHE = 8192  # lower headers remembered, each way; then it starts anew
_ETHERNET, _IPV4, _IPV6, _UDP, _ENTROPY = (codec_of(header) for header in (ETHERNET, IPV4, IPV6, UDP, ENTROPY))


def mac_of(address: int) -> int:
    """02:00, then the IPv4 address, or the last four bytes of the IPv6 address."""
    return 0x0200 << 32 | address & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Encapsulation:
    """How packets travel: `udp` or native IP, with a CRC32C trailer or without, the numbers and DSCPs in use."""

    udp: bool = True
    crc: bool = True
    udp_port: int = UDP_PORT
    ip_protocol: int = IP_PROTOCOL
    dscp: Dscp = field(default_factory=Dscp)

    def size(self, ip_version: int) -> int:
        """Bytes of the IP packet that are neither transport headers nor payload."""
        below = _IPV4.size if ip_version == 4 else _IPV6.size
        return below + (_UDP.size if self.udp else _ENTROPY.size) + (CRC_SIZE if self.crc else 0)


class _Below(NamedTuple):
    """All bytes before the transport header, and the CRC32C of those that the trailer covers."""

    head: bytes
    crc: int


class _Flow(NamedTuple):
    """What the bytes before the transport header say."""

    src: int
    dst: int
    traffic_class: TrafficClass
    entropy: int
    ecn_marked: bool
    trimmed: Trim
    end: int  # of the IP packet, in bytes from the start of the frame
    crc: int


class Framer:
    """Packets to frames and back, for one address. Counts what it does not let through."""

    def __init__(self, address: int, ip_version: int, how: Encapsulation) -> None:
        self._address = address
        self._version = ip_version
        self._how = how
        self._crc = how.crc
        self.ecn_capable = True
        """Data leaves with ECT(0); else with ToS 0 (observed.md)."""
        dscp = how.dscp
        self._dscp_of = {
            TrafficClass.DATA: dscp.data,
            TrafficClass.DATA_RTX: dscp.data_rtx,
            TrafficClass.CONTROL: dscp.control,
        }
        self._class_of = {value: name for name, value in self._dscp_of.items()}
        self._trims = {dscp.trimmed: Trim.TRIMMED, dscp.trimmed_last_hop: Trim.LAST_HOP}
        self._covered = ETHERNET_SIZE + (12 if ip_version == 4 else 8)  # the CRC starts at the source address
        self._start = ETHERNET_SIZE + how.size(ip_version) - (CRC_SIZE if how.crc else 0)  # of the transport header
        self._below: dict[tuple[int, int, int, int], _Below] = {}
        self._flows: dict[bytes, _Flow] = {}
        self.bad_crc = 0
        """Dropped: the CRC32C does not match."""
        self.bad_header = 0
        """Dropped: lower headers that contradict themselves or a wrong IPv4 checksum."""
        self.foreign = 0
        """Dropped: another address or protocol."""

    # Sending

    def frame(self, packet: Datagram) -> bytes:
        header, payload = packet.header, packet.payload
        key = (packet.dst, packet.traffic_class, packet.entropy, len(header) + len(payload))
        below = self._below.get(key)
        if below is None:
            below = self._remember_below(key)
        if not self._crc:
            return b"".join((below.head, header, payload))
        crc = crc32c(header, below.crc)
        if payload:
            crc = crc32c(payload, crc)
        return b"".join((below.head, header, payload, crc.to_bytes(CRC_SIZE, "big")))

    def _remember_below(self, key: tuple[int, int, int, int]) -> _Below:
        if len(self._below) >= _CACHE:
            self._below.clear()
        head = self._head(*key)
        self._below[key] = below = _Below(head, crc32c(head[self._covered :]))
        return below

    def _head(self, dst: int, traffic_class: int, entropy: int, size: int) -> bytes:
        how = self._how
        size += CRC_SIZE if how.crc else 0
        if how.udp:
            size += _UDP.size
            last = _UDP.encode({"sport": entropy, "dport": how.udp_port, "length": size})
        else:
            size += _ENTROPY.size
            last = _ENTROPY.encode({"entropy": entropy})
        control = traffic_class == TrafficClass.CONTROL
        common = {
            "dscp": self._dscp_of[TrafficClass(traffic_class)] if control or self.ecn_capable else 0,
            "ecn": Ecn.ECT0 if self.ecn_capable and not control else Ecn.NOT_ECT,
            "src": self._address,
            "dst": dst,
        }
        protocol = IpProtocol.UDP if how.udp else how.ip_protocol
        if self._version == 4:
            kind = EtherType.IPV4
            values = common | {
                "ihl": 5, "total_length": _IPV4.size + size, "df": 1, "ttl": _TTL, "protocol": protocol,
            }  # fmt: skip
            values["checksum"] = internet_checksum(_IPV4.encode(values))
            ip = _IPV4.encode(values)
        else:
            kind = EtherType.IPV6
            ip = _IPV6.encode(common | {"payload_length": size, "next_header": protocol, "hop_limit": _TTL})
        ethernet = _ETHERNET.encode({"dst": mac_of(dst), "src": mac_of(self._address), "type": kind})
        return ethernet + ip + last

    # Receiving

    def packet(self, frame: bytes) -> Datagram | None:
        """None for what is dropped: silently, but counted (tss.md §12)."""
        start = self._start
        head = frame[:start]
        flow = self._flows.get(head)
        if flow is None:
            flow = self._read(frame, head)
            if flow is None:
                return None
        end = flow.end
        if end > len(frame):
            self.bad_header += 1
            return None
        if self._crc and not flow.trimmed:  # a trimmed packet has lost its CRC
            end -= CRC_SIZE
            transport = frame[start:end]
            if crc32c(transport, flow.crc) != int.from_bytes(frame[end : end + CRC_SIZE], "big"):
                self.bad_crc += 1
                return None
        else:
            transport = frame[start:end]
        return Datagram(
            flow.src, flow.dst, transport, b"", flow.traffic_class, flow.entropy, flow.ecn_marked, flow.trimmed,
            self._version,
        )  # fmt: skip

    def _read(self, frame: bytes, head: bytes) -> _Flow | None:
        """What the lower headers say; remembered where it makes sense."""
        if len(head) < self._start:
            self.bad_header += 1
            return None
        how = self._how
        ethernet, at = _ETHERNET.decode(head), ETHERNET_SIZE
        if ethernet["type"] != (EtherType.IPV4 if self._version == 4 else EtherType.IPV6):
            self.foreign += 1
            return None
        if self._version == 4:
            ip = _IPV4.decode(head, at)
            at += _IPV4.size
            good = ip["version"] == 4 and ip["ihl"] == 5 and not internet_checksum(head[ETHERNET_SIZE:at])
            size, protocol = ip["total_length"] - _IPV4.size, ip["protocol"]
        else:
            ip = _IPV6.decode(head, at)
            at += _IPV6.size
            good = ip["version"] == 6
            size, protocol = ip["payload_length"], ip["next_header"]
        if good and (ip["dst"] != self._address or protocol != (IpProtocol.UDP if how.udp else how.ip_protocol)):
            self.foreign += 1
            return None
        trimmed = self._trims.get(ip["dscp"], Trim.NO)
        least = len(head) - at + (CRC_SIZE if how.crc and not trimmed else 0)
        good = good and least <= size <= len(frame) - at
        if how.udp:
            udp = _UDP.decode(head, at)
            if good and udp["dport"] != how.udp_port:
                self.foreign += 1
                return None
            good = good and (udp["length"] == size or bool(trimmed))
            entropy = udp["sport"]
        else:
            entropy = _ENTROPY.decode(head, at)["entropy"]
        if not good:
            self.bad_header += 1
            return None
        flow = _Flow(
            src=ip["src"],
            dst=ip["dst"],
            traffic_class=self._class_of.get(ip["dscp"], TrafficClass.DATA),
            entropy=entropy,
            ecn_marked=ip["ecn"] == Ecn.CE,
            trimmed=trimmed,
            end=at + size,
            crc=crc32c(self._zero_checksum(head)[self._covered :]),
        )
        if len(self._flows) >= _CACHE:
            self._flows.clear()
        self._flows[head] = flow
        return flow

    def _zero_checksum(self, head: bytes) -> bytes:
        """The UDP checksum counts as 0 (tss.md §12)."""
        return head[:-2] + b"\0\0" if self._how.udp else head


_REPEATABLE = frozenset((
    PdsType.RUD_REQ, PdsType.ROD_REQ, PdsType.RUD_CC_REQ, PdsType.ROD_CC_REQ, PdsType.RUDI_REQ, PdsType.CP,
))  # fmt: skip
_RETX = 0x10  # in the second byte of requests and control packets alike


def repeats(header: Buffer) -> bool:
    """A request or control packet with retx; an ACK has it too, but only says that its request did."""
    return header[1] & _RETX != 0 and header[0] >> 3 in _REPEATABLE


class Nic:
    """Drives one endpoint: hands it what arrives, sends what it has to send, wakes it in time, collects its events."""

    def __init__(
        self,
        clock: Clock,
        engine: Engine,
        framer: Framer,
        link: Sender,
        on_event: Callable[[Event], None],
    ) -> None:
        self._clock = clock
        self._engine = engine
        self._link = link
        self._on_event = on_event
        self._frame = framer.frame
        self._packet = framer.packet
        self._timer = NEVER  # the next timer event that counts
        self._coming = False  # whether an event will ask for more packets when the link is free
        self._stopped = False
        self.framer = framer
        self.sent = 0
        self.repeated = 0
        """Of these, requests and control packets sent again."""
        self.received = 0

    def submit(self, work: Work) -> None:
        self._engine.submit(work, self._clock.now)
        self._step()

    def take(self, frame: bytes) -> None:
        """A frame has arrived."""
        self.received += 1
        packet = self._packet(frame)
        if packet is not None:
            self._engine.receive(packet, self._clock.now)
            self._step()

    def stop(self) -> None:
        """Nothing new is sent and no timer runs: what is under way still arrives, and is answered."""
        self._stopped = True

    def _step(self) -> None:
        """What a call may have brought about. While the ring is full nothing could leave: that waits for `_more`."""
        clock, engine, link = self._clock, self._engine, self._link
        if not self._coming:
            now = clock.now
            packets = engine.poll(now, 0 if self._stopped else RING)
            if packets:
                frame, send = self._frame, link.send
                for packet in packets:
                    send(frame(packet))
                    if packet.traffic_class is not TrafficClass.DATA and repeats(packet.header):
                        self.repeated += 1
                self.sent += len(packets)
                if len(packets) >= RING and not self._stopped:
                    self._coming = True
                    clock.at(link.busy_until, self._more)
            deadline = engine.deadline()
            if deadline is not None and deadline < self._timer and not self._stopped:
                self._timer = deadline = max(deadline, now)
                clock.at(deadline, self._wake, deadline)
        for event in engine.events():
            self._on_event(event)

    def _more(self, _: object) -> None:
        """The link is free again."""
        self._coming = False
        self._step()

    def _wake(self, due: int) -> None:
        """A timer: one that was overtaken by an earlier one does not count."""
        if due == self._timer and not self._stopped:
            self._timer = NEVER
            self._step()
