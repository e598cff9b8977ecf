"""Frames that are not encoded, for long runs without a capture (architecture.md, rule 4): `wire = "objects"`.

Such a frame is its lower headers, which switches read, and beside them its packet and its size. Links, queues and
switches count as with bytes, at the same instants; what would change bytes on the way is refused.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Protocol

from uetproto.engine.contract import Datagram
from uetproto.framing.framer import Framer

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


class Headed(Framer, Protocol):
    """A framer that tells the two parts of its work apart."""

    def lower(self, packet: Datagram, /) -> tuple[bytes, int]:
        """The bytes before the transport header, and how many follow the payload."""

    def arrives(self, packet: Datagram, lower: bytes, /) -> Datagram:
        """What `packet` makes at the other end of a frame that nothing changed."""

    def is_for(self, dst: int, /) -> bool:
        """A packet to this address is taken here."""


class ObjectFramer:
    """In front of a framer, whose bytes nobody sees. With `meter` payload is counted, for which it has to make them."""

    bad_crc = bad_header = 0

    def __init__(self, framer: Headed, meter: Callable[[bytes], int] | None = None) -> None:
        self._framer = framer
        self._meter = meter
        self.foreign = 0

    def frame(self, packet: Datagram) -> bytes:
        lower, trailer = self._framer.lower(packet)
        frame = ObjectFrame(lower)
        frame.size = len(lower) + len(packet.header) + len(packet.payload) + trailer
        frame.arrived = self._framer.arrives(packet, lower)
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


__all__ = ["NOT_ENCODED", "WIRES", "Headed", "ObjectFrame", "ObjectFramer", "payload_of", "size_of"]
