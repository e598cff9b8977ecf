# SPDX-License-Identifier: GPL-2.0-only
"""This module defines framers, and has the lower headers of a flow (Ethernet, IPv4 or IPv6, UDP or entropy).

An emulated network exchanges whole frames, so it calls `frame` and `packet`. A raw socket sends the bytes from the IP
header on: it calls `lower` and `seal`, and leaves out the Ethernet header that `lower` returns. A UDP socket exchanges
only the bytes behind the UDP header: it calls `seal` and `open`.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol, runtime_checkable

from uetproto.engine.contract import NEVER, Datagram, TrafficClass, Trim
from uetproto.engine.train import ArrivingRun, Train, TrainAck
from uetproto.framing.sizes import ETHERNET_SIZE, ip_size
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.ethernet import ETHERNET, IPV4, IPV6, EtherType, internet_checksum
from uetproto.wire.tuples import EthernetHeader, Ipv4Header, Ipv6Header

CACHE = 8192
"""Largest number of lower headers that a framer keeps for each direction. A full cache is emptied."""

_ETHERNET, _IPV4, _IPV6 = (codec_of(header) for header in (ETHERNET, IPV4, IPV6))
_TTL = 64


class LowerHeaders(NamedTuple):
    """This tuple holds those fields of the IP and UDP headers that a socket reports with a received packet."""

    src: int
    dst: int
    entropy: int
    """UDP source port, or the value of the entropy header."""
    dscp: int = 0
    ecn: int = 0
    port: int | None = None
    """UDP destination port; None stands for the port to which the framer sends."""


ENTROPY_SIZE = 2
"""Number of bytes of an entropy value: the UDP source port, or the first field of the entropy header."""


class FlowHead(NamedTuple):
    """This tuple holds the bytes before the transport header that the packets of a flow share: all but the entropy
    value."""

    before: bytes
    """Bytes before the entropy value."""
    after: bytes
    """Bytes behind the entropy value."""
    covered: bytes
    """Bytes that stand for `after` when the CRC of the trailer is computed. For RoCE, these are the bytes of `after`
    with ones in the fields that may change on the way."""
    crc: int
    """CRC over those bytes of `before` that the trailer covers."""

    def with_entropy(self, entropy: int) -> bytes:
        """Return all bytes before the transport header of a packet that has this entropy value."""
        return b"".join((self.before, entropy.to_bytes(ENTROPY_SIZE, "big"), self.after))


class ReceivedFlow(NamedTuple):
    """This tuple holds the values that were decoded from lower headers. All packets of a flow share these values."""

    src: int
    dst: int
    traffic_class: TrafficClass
    ecn_marked: bool
    end: int
    """End of the IP packet, in bytes from the start of the frame."""
    covered: bytes
    """Bytes between the entropy value and the transport header. A field that the CRC of the trailer does not cover has
    the value with which the CRC is computed, such as 0 for the UDP checksum of UET."""
    crc: int
    """CRC over the bytes that stand before the entropy value and are covered by the trailer."""
    trimmed: Trim = Trim.NO


class Framer(Protocol):
    """A framer serves one address: it makes a frame of each datagram to be sent, and a datagram of each received frame.

    It drops wrong frames without an error, and counts them.
    """

    bad_crc: int
    """Number of frames that were dropped because their trailer is wrong."""
    bad_header: int
    """Number of frames that were dropped because lower headers contradict each other or the IPv4 checksum is wrong."""
    foreign: int
    """Number of frames that were dropped because their address or protocol is not that of this framer."""

    def frame(self, packet: Datagram, /) -> bytes:
        """Return the whole frame of a datagram: the lower headers, the transport bytes and the trailer.

        The frame is empty if the packet cannot be sealed because its key has no counter value left.
        """

    def packet(self, frame: bytes, /) -> Datagram | None:
        """Return the datagram in a frame, or None if the frame is dropped."""

    def repeats(self, packet: Datagram, /) -> bool:
        """Return whether the packet is a retransmission."""


@runtime_checkable
class TrainFramer(Framer, Protocol):
    """A train framer is a framer that also makes the frames of a train, and takes such frames without reading them.

    The driver knows a frame by its Python object, so that each bit of it is as the framer of the sender has made it.
    """

    last_seal: Any
    """How the last frame was sealed, or None. The driver keeps it with the frame of an ACK (`TrainAck.seal`)."""
    is_timed: bool
    """Whether an own frame may change which frames are accepted."""

    def frames(self, train: Train, /) -> list[bytes]:
        """Return the frames of a train, which are those that `frame` makes of its packets.

        From now on the payloads of the train are copies, as the memory of the program may change. If the framer refuses
        to send a packet, it refuses those behind it too, and the list ends there.
        """

    def next_turn(self) -> int:
        """Return the instant from which on other frames may be accepted than now; NEVER if there is none."""

    def follow(self, run: ArrivingRun, train: Train, index: int, /) -> ArrivingRun | None:
        """Return what takes the packets of a train from packet `index` on in place of `run`, as long as `packet` would
        accept their frames. Return None if `packet` must read the frame of packet `index`."""

    def takes_ack(self, ack: TrainAck, /) -> bool:
        """Take the frame of an ACK as `packet` would. Return False if `packet` must read it; then nothing has
        changed."""

    def packet_of_ack(self, ack: TrainAck, /) -> Datagram:
        """Return the datagram that `packet` would return for an ACK that was taken."""


class SplitFramer(Framer, Protocol):
    """A split framer is a framer that also returns lower headers and transport bytes separately."""

    overhead: int
    """Number of bytes that `seal` adds to a datagram: those of the trailer, and those of the security header if
    there is one."""

    def lower(self, packet: Datagram, size: int | None = None, /) -> bytes:
        """Return all bytes before the transport header: Ethernet, IP, and UDP or the entropy header. `size` is the
        number of transport bytes; None: those of the packet, whose header is packed."""

    def lower_headers(self, lower: LowerHeaders, size: int, /) -> bytes:
        """Return all bytes before the transport header that have these values. `size` is the number of bytes behind
        them, trailer included."""

    def seal(self, packet: Datagram, /) -> bytes:
        """Return the bytes behind UDP or the entropy header, with their trailer.

        The result is empty if the packet cannot be sealed because its key has no counter value left.
        """

    def open(self, transport: bytes, lower: LowerHeaders, /) -> Datagram | None:
        """Return the datagram in the bytes that were received behind these lower headers, or None if it is dropped."""

    def is_for(self, dst: int, /) -> bool:
        """Return whether this framer accepts a packet to the address `dst`."""

    def received(self, packet: Datagram, lower: bytes, /) -> Datagram:
        """Return the datagram that a receiver would read from the frame of `packet`, without making the frame.

        `lower` are the lower headers of the frame.
        """


class FlowFramer(ABC):
    """This base class of framers builds or reads the lower headers of a flow once and keeps them for later packets."""

    _start: int
    """Number of bytes of a frame before the transport header."""
    _entropy_at: int
    """Number of bytes of a frame before the entropy value."""

    def __init__(self, address: int, ip_version: int) -> None:
        self._address = address
        self._version = ip_version
        self._flows: dict[bytes, ReceivedFlow] = {}
        """Received flows by their lower headers without the entropy value."""
        self._opened: dict[tuple[LowerHeaders, int], bytes] = {}
        self.bad_crc = self.bad_header = self.foreign = 0

    @abstractmethod
    def frame(self, packet: Datagram) -> bytes: ...

    @abstractmethod
    def packet(self, frame: bytes) -> Datagram | None: ...

    # Trains: a framer that does not seal accepts all frames of its network that arrive as they were sent

    last_seal: Any = None
    is_timed = False

    def next_turn(self) -> int:
        return NEVER

    def follow(self, run: ArrivingRun, train: Train, index: int) -> ArrivingRun | None:
        return run

    def takes_ack(self, ack: TrainAck) -> bool:
        return True

    def packet_of_ack(self, ack: TrainAck) -> Datagram:
        packet = self.packet(ack.frame)
        assert packet is not None
        return packet

    def _read(self, frame: bytes, key: bytes) -> ReceivedFlow | None:
        """Decode the lower headers of a frame and keep them by `key`; return None for a frame that is dropped."""
        head = frame[: self._start]
        if len(head) < self._start:
            self.bad_header += 1
            return None
        lower = read_lower(head, self._version)
        if lower is None:
            self.foreign += 1
            return None
        flow = self._flow_of(head, lower, len(frame) - lower.start)
        if flow is not None:
            if len(self._flows) >= CACHE:
                self._flows.clear()
            self._flows[key] = flow
        return flow

    @abstractmethod
    def _flow_of(self, head: bytes, lower: "ParsedLower", room: int) -> ReceivedFlow | None:
        """Return the flow of a frame with `room` bytes behind the IP header; None for a frame that is dropped."""

    @abstractmethod
    def lower_headers(self, lower: LowerHeaders, size: int) -> bytes:
        """Return all bytes before the transport header. `size` is the number of bytes behind them, trailer included."""

    def _head_of_ip(
        self, lower: LowerHeaders, dst_mac: int, protocol: int, size: int, *, hop_limit: int = _TTL, flow_label: int = 0
    ) -> bytes:
        """Return the Ethernet and IP headers of a frame with `size` bytes behind them."""
        common = {"dscp": lower.dscp, "ecn": lower.ecn, "src": lower.src, "dst": lower.dst}
        if self._version == 4:
            kind = EtherType.IPV4
            values = common | {
                "ihl": 5, "total_length": _IPV4.size + size, "df": 1, "ttl": hop_limit, "protocol": protocol,
            }  # fmt: skip
            values["checksum"] = internet_checksum(_IPV4.encode(values))
            ip = _IPV4.encode(values)
        else:
            kind = EtherType.IPV6
            more = {"flow_label": flow_label, "payload_length": size, "next_header": protocol, "hop_limit": hop_limit}
            ip = _IPV6.encode(common | more)
        return _ETHERNET.encode({"dst": dst_mac, "src": mac_of(lower.src), "type": kind}) + ip

    def seal(self, packet: Datagram) -> bytes:
        """Return the transport bytes and their trailer, which stand behind UDP or the entropy header."""
        return self.frame(packet)[self._start :]

    def open(self, transport: bytes, lower: LowerHeaders) -> Datagram | None:
        """Return the datagram in transport bytes that were received, or None if it is dropped and counted.

        The trailer also covers the lower headers, so they are built again from `lower`. The identification of an IPv4
        header is taken as 0.
        """
        key = (lower, len(transport))
        head = self._opened.get(key)
        if head is None:
            if len(self._opened) >= CACHE:
                self._opened.clear()
            head = self._opened[key] = self.lower_headers(*key)
        return self.packet(head + transport)


def mac_of(address: int) -> int:
    """Return the MAC address of an IP address: 02:00, then the IPv4 address or the last four bytes of the IPv6
    address."""
    return 0x0200 << 32 | address & 0xFFFFFFFF


class ParsedLower(NamedTuple):
    """This tuple holds the values that were decoded from the Ethernet and IP headers of a frame."""

    src: int
    dst: int
    dscp: int
    ecn: int
    protocol: int
    start: int
    """Offset of the first byte behind the IP header."""
    size: int
    """Number of bytes behind the IP header, as the length field of this header states it."""
    good: bool
    """Whether the IP header is valid: its version, and over IPv4 its length and checksum."""


def read_lower(head: bytes, ip_version: int) -> ParsedLower | None:
    """Decode the Ethernet and IP headers at the start of `head`. Return None if the EtherType is not that of this IP
    version."""
    kind = EtherType.IPV4 if ip_version == 4 else EtherType.IPV6
    if EthernetHeader.read(head).type != kind:
        return None
    start = ETHERNET_SIZE + ip_size(ip_version)
    if ip_version == 4:
        ip = Ipv4Header.read(head, ETHERNET_SIZE)
        good = ip.version == 4 and ip.ihl == 5 and not internet_checksum(head[ETHERNET_SIZE:start])
        return ParsedLower(ip.src, ip.dst, ip.dscp, ip.ecn, ip.protocol, start, ip.total_length - ip.size, good)
    ip6 = Ipv6Header.read(head, ETHERNET_SIZE)
    good = ip6.version == 6
    return ParsedLower(ip6.src, ip6.dst, ip6.dscp, ip6.ecn, ip6.next_header, start, ip6.payload_length, good)
