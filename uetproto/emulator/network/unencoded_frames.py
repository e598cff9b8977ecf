"""Frames that are not encoded, for long runs without a capture (architecture.md, rule 4): `wire = "objects"`.

Such a frame is its lower headers, which switches read, and beside them its packet and its size. Links, queues and
switches count as with bytes, at the same instants; what would change bytes on the way is refused.
"""

from collections.abc import Callable
from operator import attrgetter

from uetproto.engine.contract import Datagram
from uetproto.framing.framer import SplitFramer

WIRES = ("bytes", "objects")

NOT_ENCODED = ("capture", "trimming", "red", "pfc")
"""What needs bytes, by the names of the arguments."""


class ObjectFrame(bytes):
    """All bytes before the transport header; one object, however many copies of it are under way."""

    arrived: Datagram
    """What receivers take: shared by all of them."""
    size: int
    """Bytes that it has on the wire."""
    payload: int
    """Of these, with meters on the links."""


size_of: Callable[[bytes], int] = attrgetter("size")
payload_of: Callable[[bytes], int] = attrgetter("payload")


class ObjectFramer:
    """In front of a framer, whose bytes nobody sees. With `meter` payload is counted, for which it has to make them."""

    bad_crc = bad_header = 0

    def __init__(self, framer: SplitFramer, meter: Callable[[bytes], int] | None = None) -> None:
        self._framer = framer
        self._meter = meter
        self.foreign = 0

    def frame(self, packet: Datagram) -> bytes:
        lower = self._framer.lower(packet)
        frame = ObjectFrame(lower)
        frame.size = len(lower) + len(packet.header) + len(packet.payload) + self._framer.overhead
        frame.arrived = self._framer.received(packet, lower)
        if self._meter is not None:
            frame.payload = self._meter(self._framer.frame(packet))
        return frame

    def packet(self, frame: bytes) -> Datagram | None:
        """None for what is for somebody else."""
        assert type(frame) is ObjectFrame
        arrived = frame.arrived
        if not self._framer.is_for(arrived.dst):
            self.foreign += 1
            return None
        return arrived

    def repeats(self, packet: Datagram) -> bool:
        return self._framer.repeats(packet)


__all__ = ["NOT_ENCODED", "WIRES", "ObjectFrame", "ObjectFramer", "payload_of", "size_of"]
