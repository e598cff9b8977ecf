"""UET packets to frames and back: UDP or native IP, with a CRC32C trailer or without (tss.md §12).

What stands before the transport bytes is the same for all packets of a flow that have the same length: it is built
once, with its checksum and the CRC32C of the part that the trailer covers, and looked up from then on; a frame is
joined once. On receipt the same holds the other way round.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from uetproto.emulator.network.link import ETHERNET_SIZE
from uetproto.emulator.network.switch import Dscp
from uetproto.engine.contract import Buffer, Datagram, TrafficClass, Trim
from uetproto.framing.framer import CACHE, ip_size, lower_head, mac_of, read_lower
from uetproto.wire.codec import codec_of
from uetproto.wire.crc import CRC_SIZE, crc32c
from uetproto.wire.forms import IP_PROTOCOL, UDP_PORT
from uetproto.wire.headers.ethernet import UDP, Ecn, IpProtocol
from uetproto.wire.headers.uet_pds import PdsType
from uetproto.wire.headers.uet_tss import ENTROPY

_UDP, _ENTROPY = codec_of(UDP), codec_of(ENTROPY)


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
        return ip_size(ip_version) + (_UDP.size if self.udp else _ENTROPY.size) + (CRC_SIZE if self.crc else 0)


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


class UetFramer:
    """Packets to frames and back, for one address. Counts what it does not let through."""

    def __init__(self, address: int, ip_version: int, how: Encapsulation, *, ecn_capable: bool = True) -> None:
        """`ecn_capable`: data leaves with ECT(0); else with ToS 0 (observed.md)."""
        self._address = address
        self._version = ip_version
        self._how = how
        self._crc = how.crc
        self._ecn_capable = ecn_capable
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
        self.bad_crc = self.bad_header = self.foreign = 0

    # Sending

    def frame(self, packet: Datagram) -> bytes:
        header, payload = packet.header, packet.payload
        key = (packet.dst, packet.traffic_class, packet.entropy, len(header) + len(payload))
        below = self._below.get(key) or self._remember_below(key)
        if not self._crc:
            return b"".join((below.head, header, payload))
        crc = crc32c(header, below.crc)
        if payload:
            crc = crc32c(payload, crc)
        return b"".join((below.head, header, payload, crc.to_bytes(CRC_SIZE, "big")))

    def _remember_below(self, key: tuple[int, int, int, int]) -> _Below:
        if len(self._below) >= CACHE:
            self._below.clear()
        head = self._head(*key)
        self._below[key] = below = _Below(head, crc32c(head[self._covered :]))
        return below

    def lower(self, packet: Datagram) -> tuple[bytes, int]:
        """The bytes before the PDS, and how many follow the payload."""
        key = (packet.dst, packet.traffic_class, packet.entropy, len(packet.header) + len(packet.payload))
        below = self._below.get(key) or self._remember_below(key)
        return below.head, CRC_SIZE if self._crc else 0

    def arrives(self, packet: Datagram, lower: bytes) -> Datagram:
        """What `packet` makes of a receiver that sees no bytes: as `packet` would, of the frame."""
        kind = packet.traffic_class
        if kind != TrafficClass.CONTROL and not self._ecn_capable:
            kind = self._class_of.get(0, TrafficClass.DATA)
        transport = b"".join((packet.header, packet.payload))
        return Datagram(packet.src, packet.dst, transport, b"", kind, packet.entropy, ip_version=self._version)

    def is_for(self, dst: int) -> bool:
        """A packet to this address is taken here."""
        return dst == self._address

    def _head(self, dst: int, traffic_class: int, entropy: int, size: int) -> bytes:
        how = self._how
        size += CRC_SIZE if how.crc else 0
        if how.udp:
            size += _UDP.size
            last = _UDP.encode({"sport": entropy, "dport": how.udp_port, "length": size})
        else:
            size += _ENTROPY.size
            last = _ENTROPY.encode({"entropy": entropy})
        control, capable = traffic_class == TrafficClass.CONTROL, self._ecn_capable
        return (
            lower_head(
                src=self._address,
                dst=dst,
                ip_version=self._version,
                dst_mac=mac_of(dst),
                dscp=self._dscp_of[TrafficClass(traffic_class)] if control or capable else 0,
                ecn=Ecn.ECT0 if capable and not control else Ecn.NOT_ECT,
                protocol=IpProtocol.UDP if how.udp else how.ip_protocol,
                size=size,
            )
            + last
        )

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
        lower = read_lower(head, self._version)
        if lower is None:
            self.foreign += 1
            return None
        at, good = lower.start, lower.good
        if good and (lower.dst != self._address or lower.protocol != (IpProtocol.UDP if how.udp else how.ip_protocol)):
            self.foreign += 1
            return None
        trimmed = self._trims.get(lower.dscp, Trim.NO)
        least = len(head) - at + (CRC_SIZE if how.crc and not trimmed else 0)
        good = good and least <= lower.size <= len(frame) - at
        if how.udp:
            udp = _UDP.decode(head, at)
            if good and udp["dport"] != how.udp_port:
                self.foreign += 1
                return None
            good = good and (udp["length"] == lower.size or bool(trimmed))
            entropy = udp["sport"]
        else:
            entropy = _ENTROPY.decode(head, at)["entropy"]
        if not good:
            self.bad_header += 1
            return None
        flow = _Flow(
            src=lower.src,
            dst=lower.dst,
            traffic_class=self._class_of.get(lower.dscp, TrafficClass.DATA),
            entropy=entropy,
            ecn_marked=lower.ecn == Ecn.CE,
            trimmed=trimmed,
            end=at + lower.size,
            crc=crc32c(self._zero_checksum(head)[self._covered :]),
        )
        if len(self._flows) >= CACHE:
            self._flows.clear()
        self._flows[head] = flow
        return flow

    def _zero_checksum(self, head: bytes) -> bytes:
        """The UDP checksum counts as 0 (tss.md §12)."""
        return head[:-2] + b"\0\0" if self._how.udp else head

    def repeats(self, packet: Datagram) -> bool:
        return repeats(packet.header)


_REPEATABLE = frozenset((
    PdsType.RUD_REQ, PdsType.ROD_REQ, PdsType.RUD_CC_REQ, PdsType.ROD_CC_REQ, PdsType.RUDI_REQ, PdsType.CP,
))  # fmt: skip
_RETX = 0x10  # in the second byte of requests and control packets alike


def repeats(header: Buffer) -> bool:
    """A request or control packet with retx; an ACK has it too, but only says that its request did."""
    return header[1] & _RETX != 0 and header[0] >> 3 in _REPEATABLE
