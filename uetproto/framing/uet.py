# SPDX-License-Identifier: GPL-2.0-only
"""This module turns UET packets into frames and back: over UDP or native IP, with or without a CRC32C (tss.md §12).

All packets of a flow that have the same length have the same lower headers, except for the entropy value. The framer
builds them once, with the IPv4 checksum and the CRC32C of the part that the trailer covers, and then looks them up. For
received frames it keeps the decoded values of the lower headers in the same way.
"""

from dataclasses import dataclass, field
from itertools import repeat
from struct import Struct

from uetproto.engine.contract import Datagram, TrafficClass, Trim
from uetproto.engine.train import Train
from uetproto.framing.dscp import Dscp
from uetproto.framing.framer import (
    CACHE,
    ENTROPY_SIZE,
    FlowFramer,
    FlowHead,
    LowerHeaders,
    ParsedLower,
    ReceivedFlow,
    mac_of,
)
from uetproto.framing.sizes import ETHERNET_SIZE, UET_REQUEST, below_uet
from uetproto.wire.codec import codec_of
from uetproto.wire.crc import CRC_SIZE, crc32c
from uetproto.wire.forms import IP_PROTOCOL, UDP_PORT
from uetproto.wire.headers.ethernet import UDP, Ecn, IpProtocol
from uetproto.wire.headers.uet_pds import PdsType
from uetproto.wire.headers.uet_tss import ENTROPY
from uetproto.wire.tuples import UdpHeader

_UDP, _ENTROPY = codec_of(UDP), codec_of(ENTROPY)
_U16, _U32 = Struct(">H").pack, Struct(">I").pack
"""Functions that return the bytes of an entropy value and of a trailer."""


@dataclass(frozen=True, slots=True)
class Encapsulation:
    """An encapsulation says how packets travel: whether over UDP or native IP, whether with a CRC32C trailer, and which
    port, protocol number and DSCPs they have."""

    udp: bool = True
    crc: bool = True
    udp_port: int = UDP_PORT
    ip_protocol: int = IP_PROTOCOL
    dscp: Dscp = field(default_factory=Dscp)

    @property
    def trailer_size(self) -> int:
        """Return the size of the CRC32C trailer in bytes, or 0 without this trailer."""
        return CRC_SIZE if self.crc else 0

    def around(self, ip_version: int, *, extension: int = 0, sealing: int | None = None) -> int:
        """Return the largest number of bytes that headers and trailer take in a request packet, from the IP header on.

        `extension` is the number of bytes of its SES extension header. `sealing` is the number of bytes that a security
        header and an ICV add in place of the CRC32C, or None if the packet travels in clear.
        """
        trailer = self.trailer_size if sealing is None else sealing
        return below_uet(ip_version, udp=self.udp) + UET_REQUEST + extension + trailer


class UetFramer(FlowFramer):
    """A UET framer turns the datagrams of one address into frames and back, and counts the frames that it drops."""

    def __init__(
        self, address: int, ip_version: int, how: Encapsulation, *, ecn_capable: bool = True,
        local_port: int | None = None,
    ) -> None:  # fmt: skip
        """Make a framer for `address`. Data leaves with ECT(0) if `ecn_capable`, otherwise with ToS 0 (observed.md).
        `local_port` is the UDP port at which packets arrive; if it is None, this is the port to which they are sent."""
        super().__init__(address, ip_version)
        self._how = how
        self._local_port = how.udp_port if local_port is None else local_port
        self._crc = how.crc
        self.overhead = how.trailer_size
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
        self._start = ETHERNET_SIZE + below_uet(ip_version, udp=how.udp)
        self._entropy_at = self._start - (_UDP.size if how.udp else _ENTROPY.size)
        self._heads: dict[tuple[int, int, int], FlowHead] = {}

    # Sending

    def frame(self, packet: Datagram) -> bytes:
        header, payload = packet.header, packet.payload
        key = (packet.dst, packet.traffic_class, len(header) + len(payload))
        before, after, _, crc = self._heads.get(key) or self._build_head(key)
        middle = b"".join((_U16(packet.entropy), after, header))  # the CRC covers `after` as it is over UET
        if not self._crc:
            return b"".join((before, middle, payload))
        crc = crc32c(middle, crc)
        if payload:
            crc = crc32c(payload, crc)
        return b"".join((before, middle, payload, _U32(crc)))

    def frames(self, train: Train) -> list[bytes]:
        """Return the frames of a train, in order."""
        key = (train.dst, TrafficClass.DATA, train.size)
        before, after, _, crc = self._heads.get(key) or self._build_head(key)
        middles = list(map(b"".join, zip(map(_U16, train.entropies), repeat(after), train.heads)))
        if not self._crc:
            return train.fix(list(map(b"".join, zip(repeat(before), middles, train.payloads))), 0)
        crcs = map(crc32c, train.payloads, map(crc32c, middles, repeat(crc)))
        frames = list(map(b"".join, zip(repeat(before), middles, train.payloads, map(_U32, crcs))))
        return train.fix(frames, CRC_SIZE)

    def _build_head(self, key: tuple[int, int, int]) -> FlowHead:
        """Build and keep the lower headers of a flow."""
        dst, traffic_class, size = key
        control, capable = traffic_class == TrafficClass.CONTROL, self._ecn_capable
        dscp = self._dscp_of[TrafficClass(traffic_class)] if control or capable else 0
        ecn = Ecn.ECT0 if capable and not control else Ecn.NOT_ECT
        head = self.lower_headers(LowerHeaders(self._address, dst, 0, dscp, ecn), size + self.overhead)
        if len(self._heads) >= CACHE:
            self._heads.clear()
        before, after = head[: self._entropy_at], head[self._entropy_at + ENTROPY_SIZE :]
        self._heads[key] = built = FlowHead(before, after, after, crc32c(before[self._covered :]))
        return built

    def lower(self, packet: Datagram, size: int | None = None) -> bytes:
        """Return all bytes before the PDS header."""
        return self._head_for(packet, len(packet.header) + len(packet.payload) if size is None else size)

    def _head_for(self, packet: Datagram, size: int) -> bytes:
        """Return the lower headers of a datagram of `size` bytes."""
        key = (packet.dst, packet.traffic_class, size)
        return (self._heads.get(key) or self._build_head(key)).with_entropy(packet.entropy)

    def received(self, packet: Datagram, lower: bytes) -> Datagram:
        """Return the datagram that a receiver would read from the frame of `packet`, without making the frame.

        `lower` are the lower headers of the frame.
        """
        kind = packet.traffic_class
        if kind != TrafficClass.CONTROL and not self._ecn_capable:
            kind = self._class_of.get(0, TrafficClass.DATA)
        if packet.message is not None:  # nobody has to read bytes, but the memory may change before they arrive
            payload = packet.payload
            if type(payload) is not memoryview or type(payload.obj) is not bytes:
                packet.payload = bytes(payload)
            packet.traffic_class = kind
            return packet
        transport = b"".join((packet.header, packet.payload))
        return Datagram(packet.src, packet.dst, transport, b"", kind, packet.entropy, ip_version=self._version)

    def is_for(self, dst: int) -> bool:
        """Return whether this framer accepts a packet to `dst`: only its own address."""
        return dst == self._address

    def lower_headers(self, lower: LowerHeaders, size: int) -> bytes:
        """Return all bytes before the PDS header. `size` is the number of bytes behind UDP or the entropy header."""
        how = self._how
        if how.udp:
            size += _UDP.size
            last = _UDP.encode({"sport": lower.entropy, "dport": lower.port or how.udp_port, "length": size})
        else:
            size += _ENTROPY.size
            last = _ENTROPY.encode({"entropy": lower.entropy})
        protocol = IpProtocol.UDP if how.udp else how.ip_protocol
        return self._head_of_ip(lower, mac_of(lower.dst), protocol, size) + last

    # Receiving

    def packet(self, frame: bytes) -> Datagram | None:
        """Return the datagram in a frame, or None if the frame is dropped and counted (tss.md §12)."""
        start, at = self._start, self._entropy_at
        entropy, behind = frame[at : at + ENTROPY_SIZE], at + ENTROPY_SIZE
        key = frame[:at] + frame[behind:start]
        flow = self._flows.get(key)
        if flow is None:
            flow = self._read(frame, key)
            if flow is None:
                return None
        end = flow.end
        if end > len(frame):
            self.bad_header += 1
            return None
        if self._crc and not flow.trimmed:  # a trimmed packet has no CRC
            end -= CRC_SIZE
            transport = frame[start:end]
            if crc32c(transport, crc32c(entropy + flow.covered, flow.crc)) != int.from_bytes(
                frame[end : end + CRC_SIZE], "big"
            ):
                self.bad_crc += 1
                return None
        else:
            transport = frame[start:end]
        return Datagram(
            flow.src, flow.dst, transport, b"", flow.traffic_class, int.from_bytes(entropy, "big"), flow.ecn_marked,
            flow.trimmed, self._version,
        )  # fmt: skip

    def _flow_of(self, head: bytes, lower: ParsedLower, room: int) -> ReceivedFlow | None:
        how = self._how
        at, good = lower.start, lower.good
        if good and (lower.dst != self._address or lower.protocol != (IpProtocol.UDP if how.udp else how.ip_protocol)):
            self.foreign += 1
            return None
        trimmed = self._trims.get(lower.dscp, Trim.NO)
        least = len(head) - at + (CRC_SIZE if how.crc and not trimmed else 0)
        good = good and least <= lower.size <= room
        if how.udp:
            udp = UdpHeader.read(head, at)
            if good and udp.dport != self._local_port:
                self.foreign += 1
                return None
            good = good and (udp.length == lower.size or bool(trimmed))
        if not good:
            self.bad_header += 1
            return None
        return ReceivedFlow(
            src=lower.src,
            dst=lower.dst,
            traffic_class=self._class_of.get(lower.dscp, TrafficClass.DATA),
            ecn_marked=lower.ecn == Ecn.CE,
            trimmed=trimmed,
            end=at + lower.size,
            covered=self._zero_checksum(head)[self._entropy_at + ENTROPY_SIZE :],
            crc=crc32c(head[self._covered : self._entropy_at]),
        )

    def _zero_checksum(self, head: bytes) -> bytes:
        """Return the lower headers with a UDP checksum of 0, as CRC32C and ICV cover them (tss.md §12)."""
        return head[:-2] + b"\0\0" if self._how.udp else head

    def repeats(self, packet: Datagram) -> bool:
        """Return whether the packet is a request or a control packet that has retx set. An ACK with retx does not
        count."""
        header = packet.header
        return header[1] & _RETX != 0 and header[0] >> 3 in _REPEATABLE


_REPEATABLE = frozenset((
    PdsType.RUD_REQ, PdsType.ROD_REQ, PdsType.RUD_CC_REQ, PdsType.ROD_CC_REQ, PdsType.RUDI_REQ, PdsType.CP,
))  # fmt: skip
_RETX = 0x10  # bit in the second byte of requests and of control packets
