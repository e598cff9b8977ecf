"""Links that also count payload, which is what `trav` is made of, without the headers (collectives.md §2).

Only data packets count: what trimmed packets and answers such as ACKs carry does not, though their frames do.
"""

from uetproto.emulator.clock import Clock
from uetproto.emulator.link import ETHERNET_SIZE, Link, Port
from uetproto.emulator.switch import Dscp
from uetproto.wire.ethernet import IPV4, IPV6, UDP, EtherType, IpProtocol
from uetproto.wire.stack import decode

_IPV4 = EtherType.IPV4.to_bytes(2, "big")
_IPV4_PROTOCOL, _IPV6_PROTOCOL = ETHERNET_SIZE + 9, ETHERNET_SIZE + 6
_ENTROPY_SIZE = 4

SHAPES = 1 << 14
"""Shapes of frames that are remembered; then it starts anew."""


class PayloadSize:
    """Bytes of payload of a frame, by the usual ports.

    One frame of each shape is decoded: its length, its port, the first bytes of PDS and SES, or of BTH.
    """

    def __init__(self, dscp: Dscp) -> None:
        self._dscp = dscp
        self._sizes: dict[tuple[int, bytes, bytes], int] = {}

    def __call__(self, frame: bytes) -> int:
        if not self._dscp.is_data(frame):
            return 0
        if frame[12:ETHERNET_SIZE] == _IPV4:
            at, protocol = ETHERNET_SIZE + IPV4.size, frame[_IPV4_PROTOCOL]
        else:
            at, protocol = ETHERNET_SIZE + IPV6.size, frame[_IPV6_PROTOCOL]
        at += UDP.size if protocol == IpProtocol.UDP else _ENTROPY_SIZE
        shape = (len(frame), frame[at - 6 : at - 4] + frame[at : at + 2], frame[at + 12 : at + 14])
        size = self._sizes.get(shape)
        if size is None:
            if len(self._sizes) >= SHAPES:
                self._sizes.clear()
            self._sizes[shape] = size = len(decode(frame).payload)
        return size


class MeteredLink(Link):
    """A link with one counter more."""

    __slots__ = ("_payload_of", "payload")

    def __init__(self, clock: Clock, sink: Port, payload_of: PayloadSize, *, rate: int, delay: int, mtu: int) -> None:
        super().__init__(clock, sink, rate=rate, delay=delay, mtu=mtu)
        self._payload_of = payload_of
        self.payload = 0
        """Bytes."""

    def send(self, frame: bytes) -> int:
        self.payload += self._payload_of(frame)
        return super().send(frame)
