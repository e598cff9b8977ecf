"""This module has frames that are not encoded, for long runs without a capture: `wire = "objects"`.

Such a frame has three parts: the lower headers (which switches read), the packet, and the size. Times and counters of
links, queues and switches are the same as with bytes. A frame that is marked or trimmed on the way is a new one, with
other lower headers and another packet. Features that need the bytes themselves are refused.
"""

from collections.abc import Callable
from copy import copy
from operator import attrgetter
from typing import Any

from uetproto.engine.contract import Datagram, TrafficClass, Trim
from uetproto.framing.framer import SplitFramer
from uetproto.framing.sizes import ETHERNET_SIZE

WIRES = ("bytes", "objects")

NOT_ENCODED = ("capture", "pfc")
"""Names of the arguments that need encoded frames."""


class UnencodedFrame(bytes):
    """An unencoded frame is a bytes object with the headers before the transport header. All copies of a frame are one
    object.
    """

    arrived: Datagram
    """Packet that all receivers of the frame get and share."""
    size: int
    """Number of bytes that the frame has on the wire."""
    payload: int
    """Number of bytes of payload. It is set only in a network that is metered."""

    def marked(self, lower: bytes) -> "UnencodedFrame":
        """Return the frame with these lower headers, which have CE."""
        arrived: Any = copy(self.arrived)
        arrived.ecn_marked = True
        network = getattr(arrived, "network", b"")
        if network:  # a RoCE packet that shows its IP header
            arrived.network = lower[ETHERNET_SIZE : ETHERNET_SIZE + len(network)]
        return self._changed(lower, self.size, arrived, vars(self).get("payload"))

    def trimmed(self, cut: Callable[[bytes], bytes | None], reason: Trim) -> "UnencodedFrame | None":
        """Return the frame that `cut` leaves of its bytes, or None if it must not be trimmed."""
        arrived = copy(self.arrived)
        whole = b"".join((self, arrived.header, arrived.payload))
        short = cut(whole)
        if short is None:
            return None
        arrived.header, arrived.payload, arrived.trimmed = short[len(self) :], b"", reason
        arrived.traffic_class = TrafficClass.DATA
        return self._changed(short[: len(self)], len(short), arrived, 0)

    @staticmethod
    def _changed(lower: bytes, size: int, arrived: Datagram, payload: int | None) -> "UnencodedFrame":
        frame = UnencodedFrame(lower)
        frame.size, frame.arrived = size, arrived
        if payload is not None:
            frame.payload = payload
        return frame


size_of: Callable[[bytes], int] = attrgetter("size")
payload_of: Callable[[bytes], int] = attrgetter("payload")


class UnencodedFramer:
    """An unencoded framer makes unencoded frames. With a `meter`, it also encodes each packet by `framer`, to count the
    payload.
    """

    bad_crc = bad_header = 0

    def __init__(self, framer: SplitFramer, meter: Callable[[bytes], int] | None = None) -> None:
        self._framer = framer
        self._meter = meter
        self.foreign = 0

    def frame(self, packet: Datagram) -> bytes:
        """Return the frame of a datagram."""
        lower = self._framer.lower(packet)
        frame = UnencodedFrame(lower)
        frame.size = len(lower) + len(packet.header) + len(packet.payload) + self._framer.overhead
        frame.arrived = self._framer.received(packet, lower)
        if self._meter is not None:
            frame.payload = self._meter(self._framer.frame(packet))
        return frame

    def packet(self, frame: bytes) -> Datagram | None:
        """Return the packet of a frame, or None if the packet is for another address."""
        assert type(frame) is UnencodedFrame
        arrived = frame.arrived
        if not self._framer.is_for(arrived.dst):
            self.foreign += 1
            return None
        return arrived

    def repeats(self, packet: Datagram) -> bool:
        """Return whether the packet is a retransmission."""
        return self._framer.repeats(packet)
