# SPDX-License-Identifier: GPL-2.0-only
"""This module has frames that are not encoded, for long runs without a capture: `wire = "objects"`.

Such a frame has three parts: the lower headers (which switches read), the packet, and the size. The packet of an
endpoint that packs no PDS headers (`Fep(objects=True)`) goes from one engine to the other as it is. Times and counters
of links, queues and switches are the same as with bytes. A frame that is marked or trimmed on the way is a new one,
with other lower headers and another packet. Features that need the bytes themselves are refused.
"""

from collections.abc import Callable
from copy import copy
from operator import attrgetter
from typing import Any

from uetproto.engine.contract import Datagram, TrafficClass, Trim
from uetproto.framing.flow import flow_of
from uetproto.framing.framer import CACHE, SplitFramer
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
    flow: bytes
    """What all frames of the flow have in common (`framing.flow.flow_of`); they share one object."""
    payload: int
    """Number of bytes of payload. It is set only in a network that is metered."""

    def marked(self, lower: bytes) -> "UnencodedFrame":
        """Return the frame with these lower headers, which have CE."""
        now = self.arrived
        if type(now) is Datagram:
            arrived: Any = now.marked()
        else:
            arrived = copy(now)
            arrived.ecn_marked = True
            network = getattr(arrived, "network", b"")
            if network:  # a RoCE packet that shows its IP header
                arrived.network = lower[ETHERNET_SIZE : ETHERNET_SIZE + len(network)]
        return self._changed(lower, self.size, arrived, vars(self).get("payload"))

    def trimmed(self, cut: Callable[[bytes], bytes | None], reason: Trim) -> "UnencodedFrame | None":
        """Return the frame that `cut` leaves of its bytes, or None if it must not be trimmed.

        A header that is not packed stays whole, as `cut` leaves those of all requests whole (cms.md §7).
        """
        now = self.arrived
        unpacked = now.message is not None
        whole = b"".join((self, bytes(self.size - len(self)) if unpacked else now.header, now.payload))
        short = cut(whole)
        if short is None:
            return None
        header = b"" if unpacked else short[len(self) :]
        arrived = Datagram(
            now.src, now.dst, header, b"", TrafficClass.DATA, now.entropy, now.ecn_marked, reason, now.ip_version,
            now.message,
        )  # fmt: skip
        return self._changed(short[: len(self)], len(short), arrived, 0)

    def _changed(self, lower: bytes, size: int, arrived: Datagram, payload: int | None) -> "UnencodedFrame":
        frame = UnencodedFrame(lower)
        frame.size, frame.arrived, frame.flow = size, arrived, self.flow
        if payload is not None:
            frame.payload = payload
        return frame


size_of: Callable[[bytes], int] = attrgetter("size")
read_flow: Callable[[bytes], bytes] = attrgetter("flow")
payload_of: Callable[[bytes], int] = attrgetter("payload")


class UnencodedFramer:
    """An unencoded framer makes unencoded frames. With a `meter`, it also encodes each packet by `framer`, to count the
    payload.
    """

    bad_crc = bad_header = 0

    def __init__(self, framer: SplitFramer, meter: Callable[[bytes], int] | None = None) -> None:
        self._framer = framer
        self._meter = meter
        self._lowers: dict[tuple[int, int, int, int], tuple[bytes, bytes]] = {}
        """Lower headers and flow of UET packets, by receiver, traffic class, size and entropy."""
        self.foreign = 0

    def frame(self, packet: Datagram) -> bytes:
        """Return the frame of a datagram."""
        framer, message = self._framer, packet.message
        size = len(packet.header) + len(packet.payload)
        if message is None:
            lower = framer.lower(packet, size)
            flow = flow_of(lower)
        else:
            size += message.packed_size
            key = packet.dst, packet.traffic_class, size, packet.entropy
            lower, flow = self._lowers.get(key) or self._add(key, framer.lower(packet, size))
        frame = UnencodedFrame(lower)
        frame.flow = flow
        frame.size = len(lower) + size + framer.overhead
        frame.arrived = framer.received(packet, lower)
        if self._meter is not None:
            frame.payload = self._meter(framer.frame(packet))
        return frame

    def _add(self, key: tuple[int, int, int, int], lower: bytes) -> tuple[bytes, bytes]:
        """Keep the lower headers of packets."""
        if len(self._lowers) >= CACHE:
            self._lowers.clear()
        self._lowers[key] = found = lower, flow_of(lower)
        return found

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
        message = packet.message
        return self._framer.repeats(packet) if message is None else message.repeats
