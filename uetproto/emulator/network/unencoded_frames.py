"""This module has frames that are not encoded, for long runs without a capture: `wire = "objects"`.

Such a frame has three parts: the lower headers (which switches read), the packet, and the size. Times and counters of
links, queues and switches are the same as with bytes. Features that change bytes on the way are refused.
"""

from collections.abc import Callable
from operator import attrgetter

from uetproto.engine.contract import Datagram
from uetproto.framing.framer import SplitFramer

WIRES = ("bytes", "objects")

NOT_ENCODED = ("capture", "trimming", "red", "pfc")
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
