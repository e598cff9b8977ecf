# SPDX-License-Identifier: GPL-2.0-only
"""This module turns RoCEv2 packets into frames and back: over UDP, with an ICRC behind the pad (roce.md §1, §4).

The lower headers of a flow and the CRC over them are computed once, without the entropy value, and then looked up for
each further packet that is sent or received.
"""

from collections.abc import Iterable
from itertools import repeat
from struct import Struct

from uetproto.engine.contract import Datagram, TrafficClass
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import QpType, RocePacket
from uetproto.engine.roce.ud import is_multicast
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
from uetproto.framing.sizes import ETHERNET_SIZE, below_roce, ip_size
from uetproto.wire.codec import codec_of
from uetproto.wire.crc import crc32
from uetproto.wire.headers.ethernet import UDP, Ecn, IpProtocol
from uetproto.wire.icrc import ICRC_SIZE, invariant_mask, invariant_start
from uetproto.wire.tuples import UdpHeader

ECN = {"ect0": Ecn.ECT0, "ect1": Ecn.ECT1, "not_ect": Ecn.NOT_ECT}

_UDP = codec_of(UDP)
_CRC = Struct("<I").pack
"""Function that returns the bytes of an ICRC."""
_VARIANT_AT = 4  # offset of the byte of the BTH that the ICRC takes as ones: FECN, BECN, reserved


def group_mac(address: int, ip_version: int) -> int:
    """Return the MAC address of a multicast group (roce.md §11).

    It is 01:00:5e and the low 23 bits of an IPv4 group, or 33:33 and the low 32 bits of an IPv6 group.
    """
    return 0x01005E << 24 | address & 0x7FFFFF if ip_version == 4 else 0x3333 << 32 | address & 0xFFFFFFFF


def traffic_classes(config: RoceConfig) -> Dscp:
    """Return the DSCPs by which a switch classifies RoCE packets.

    RoCE packets are never trimmed, so the DSCPs of trimmed packets are any values that are not in use.
    """
    trimmed, last, *_ = (code for code in range(63, 59, -1) if code not in (config.dscp, config.cnp_dscp))
    return Dscp(config.dscp, config.dscp, trimmed, last, config.cnp_dscp)


class RoceFramer(FlowFramer):
    """A RoCE framer turns the packets of one address into frames and back, and counts the frames that it drops.

    If `RoceConfig.icrc` is off, it sends an ICRC of 0 and accepts every ICRC.
    """

    overhead = ICRC_SIZE

    def __init__(self, address: int, ip_version: int, config: RoceConfig, *, local_port: int | None = None) -> None:
        """Make a framer for `address`. `local_port` is the UDP port at which packets arrive; if it is None, this is the
        port to which they are sent."""
        super().__init__(address, ip_version)
        self._config = config
        self._local_port = config.udp_port if local_port is None else local_port
        self._checks = config.icrc
        self._entropy_at = self._udp_at = ETHERNET_SIZE + ip_size(ip_version)
        self._start = ETHERNET_SIZE + below_roce(ip_version)
        form = "ipv4" if ip_version == 4 else "ipv6"
        self._mask = invariant_mask(((form, ip_size(ip_version)), ("udp", _UDP.size)))
        _, self._crc = invariant_start((form, "udp", "bth"))
        self._heads: dict[tuple[int, bool, int, int, int], FlowHead] = {}
        self._sample: Datagram | None = None
        """Sample of the last train. `_front` has the bytes with which its frames begin."""
        self._front, self._front_crc = b"", 0

    def _covered(self, head: bytes) -> tuple[bytes, int]:
        """Return what the ICRC covers between entropy value and BTH, and the CRC over what it covers before.

        Bits that change on the way are ones.
        """
        size = len(head) - ETHERNET_SIZE
        masked = (int.from_bytes(head[ETHERNET_SIZE:], "big") | self._mask).to_bytes(size, "big")
        at = self._entropy_at - ETHERNET_SIZE
        return masked[at + ENTROPY_SIZE :], crc32(masked[:at], self._crc)

    # Sending

    def frame(self, packet: Datagram) -> bytes:
        header, payload = packet.header, packet.payload
        before, after, covered, crc = self._lower(packet)
        entropy = packet.entropy.to_bytes(ENTROPY_SIZE, "big")
        if not self._checks:
            return b"".join((before, entropy, after, header, payload, bytes(ICRC_SIZE)))
        crc = crc32(b"".join((entropy, covered, header[:_VARIANT_AT], b"\xff", header[_VARIANT_AT + 1 :])), crc)
        if payload:
            crc = crc32(payload, crc)
        return b"".join((before, entropy, after, header, payload, crc.to_bytes(ICRC_SIZE, "little")))

    def frames(self, train: Train) -> list[bytes]:
        """Return the frames of a train, in order."""
        sample = train.sample
        if sample is not self._sample:
            assert sample is not None
            self._sample = sample
            self._front, self._front_crc = self._front_of(sample)
        words, payloads = train.heads, train.payloads
        if self._checks:
            crcs = map(crc32, payloads, map(crc32, words, repeat(self._front_crc)))
            ends: Iterable[bytes] = map(_CRC, crcs)
        else:
            ends = repeat(bytes(ICRC_SIZE))
        return train.fix(list(map(b"".join, zip(repeat(self._front), words, payloads, ends))), ICRC_SIZE)

    def _front_of(self, sample: Datagram) -> tuple[bytes, int]:
        """Return the bytes with which the frames of trains begin, and the CRC over those that the ICRC covers."""
        before, after, covered, crc = self._lower(sample)
        entropy, bth = sample.entropy.to_bytes(ENTROPY_SIZE, "big"), sample.header
        masked = b"".join((entropy, covered, bth[:_VARIANT_AT], b"\xff", bth[_VARIANT_AT + 1 :]))
        return b"".join((before, entropy, after, bth)), crc32(masked, crc)

    def _lower(self, packet: Datagram) -> FlowHead:
        """Return the headers before the BTH; they are built for the first packet of a flow."""
        assert isinstance(packet, RocePacket)
        key = (
            packet.dst, packet.traffic_class is TrafficClass.CONTROL, len(packet.header) + len(packet.payload),
            packet.hop_limit, packet.flow_label,
        )  # fmt: skip
        below = self._heads.get(key)
        if below is None:
            if len(self._heads) >= CACHE:
                self._heads.clear()
            config, notifies = self._config, packet.traffic_class is TrafficClass.CONTROL
            dscp = config.cnp_dscp if notifies else config.dscp
            ecn = ECN[config.cnp_ecn if notifies else config.ecn]
            lower = LowerHeaders(self._address, packet.dst, 0, dscp, ecn)
            size = len(packet.header) + len(packet.payload) + ICRC_SIZE
            head = self.lower_headers(lower, size, packet.hop_limit, packet.flow_label)
            covered, crc = self._covered(head)
            after = head[self._entropy_at + ENTROPY_SIZE :]
            self._heads[key] = below = FlowHead(head[: self._entropy_at], after, covered, crc)
        return below

    def lower(self, packet: Datagram, size: int | None = None) -> bytes:
        """Return all bytes before the BTH."""
        return self._lower(packet).with_entropy(packet.entropy)

    def received(self, packet: Datagram, lower: bytes) -> RocePacket:
        """Return the packet that a receiver would read from the frame of `packet`, without making the frame.

        `lower` are the lower headers of the frame.
        """
        control = packet.traffic_class is TrafficClass.CONTROL
        transport = b"".join((packet.header, packet.payload))
        arrived = RocePacket(
            packet.src, packet.dst, transport, b"", TrafficClass.CONTROL if control else TrafficClass.DATA,
            packet.entropy, ip_version=self._version,
        )  # fmt: skip
        if transport and transport[0] >> 5 == QpType.UD:
            arrived.network = lower[ETHERNET_SIZE : self._udp_at]
        return arrived

    def is_for(self, dst: int) -> bool:
        """Return whether this framer accepts a packet to `dst`: its own address, or that of any multicast group."""
        return dst == self._address or is_multicast(dst, self._version)

    def lower_headers(self, lower: LowerHeaders, size: int, hop_limit: int = 0, flow_label: int = 0) -> bytes:
        """Return all bytes before the BTH. `size` is the number of bytes behind UDP, and `hop_limit` 0 stands for the
        configured hop limit.
        """
        dst, version, config = lower.dst, self._version, self._config
        mac = group_mac(dst, version) if is_multicast(dst, version) else mac_of(dst)
        size += _UDP.size
        hop_limit = hop_limit or config.hop_limit
        ip = self._head_of_ip(lower, mac, IpProtocol.UDP, size, hop_limit=hop_limit, flow_label=flow_label)
        return ip + _UDP.encode({"sport": lower.entropy, "dport": lower.port or config.udp_port, "length": size})

    # Receiving

    def packet(self, frame: bytes) -> RocePacket | None:
        """Return the packet in a frame, or None if the frame is dropped and counted (roce.md §8 check 1)."""
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
        end -= ICRC_SIZE
        if self._checks:
            begin = b"".join((entropy, flow.covered, frame[start : start + _VARIANT_AT], b"\xff"))
            crc = crc32(frame[start + _VARIANT_AT + 1 : end], crc32(begin, flow.crc))
            if crc != int.from_bytes(frame[end : end + ICRC_SIZE], "little"):
                self.bad_crc += 1
                return None
        packet = RocePacket(
            flow.src, flow.dst, frame[start:end], b"", flow.traffic_class, int.from_bytes(entropy, "big"),
            flow.ecn_marked, ip_version=self._version,
        )  # fmt: skip
        if end > start and frame[start] >> 5 == QpType.UD:
            packet.network = frame[ETHERNET_SIZE : self._udp_at]
        return packet

    def _flow_of(self, head: bytes, lower: ParsedLower, room: int) -> ReceivedFlow | None:
        udp, good = UdpHeader.read(head, self._udp_at), lower.good
        ours = self.is_for(lower.dst)
        if good and not (ours and lower.protocol == IpProtocol.UDP and udp.dport == self._local_port):
            self.foreign += 1
            return None
        least = _UDP.size + ICRC_SIZE
        if not (good and least <= lower.size <= room and udp.length == lower.size):
            self.bad_header += 1
            return None
        covered, crc = self._covered(head)
        return ReceivedFlow(
            src=lower.src,
            dst=lower.dst,
            ecn_marked=lower.ecn == Ecn.CE,
            traffic_class=TrafficClass.CONTROL if lower.dscp == self._config.cnp_dscp else TrafficClass.DATA,
            end=lower.start + lower.size,
            covered=covered,
            crc=crc,
        )

    def repeats(self, packet: Datagram) -> bool:
        """Return whether the packet is a retransmission."""
        return packet.traffic_class is TrafficClass.DATA_RTX
