"""The adversarial wire keeps every packet until a step delivers, drops, copies, trims or marks it (pds.md §18)."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from uetproto.engine.contract import Datagram, TrafficClass, Trim

MIN_TRIM = 16
"""Number of transport bytes that a trimmed packet keeps: the PDS header and 4 bytes of the SES header (pds.md §14)."""
REQUEST_HEADER = 12
"""Length in bytes of the PDS header of a request."""
ADDRESSES = (0x0A000001, 0x0A000002)
"""The addresses of ends 0 and 1, for every protocol."""

HISTORY = 1024
"""Number of packets that can still be copied after they have left."""

ALL = -1
"""In place of a packet number: every packet on the wire, oldest first; in place of a limit: no limit."""

PacketT = TypeVar("PacketT")


class AdversarialWire(ABC, Generic[PacketT]):
    """Packets of both ends by number, in the order in which they left; a copy gets a number of its own."""

    __slots__ = ("flight", "sent")

    def __init__(self) -> None:
        self.flight: dict[int, PacketT] = {}
        self.sent = 0
        """Number of the next packet."""

    @abstractmethod
    def recent(self, number: int) -> PacketT | None:
        """Return a packet that can be copied; None if there is none with this number."""

    @abstractmethod
    def copy(self, number: int) -> int | None:
        """Put a copy on the wire and return its number; None if there is nothing to copy."""


class DatagramWire(AdversarialWire[Datagram]):
    """Datagrams on the wire; `expire` removes those that are older than MSL."""

    __slots__ = ("_look_at", "born", "history")

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Datagram | None] = [None] * HISTORY
        """Packet n at index n mod HISTORY."""
        self.born: list[int] = [0] * HISTORY
        """When packet n left; a copy is as old as its original."""
        self._look_at = 0

    def send(self, packets: list[Datagram], now: int) -> None:
        """Put packets on the wire; in a run with bytes, header and payload are joined into new bytes."""
        number = self.sent
        for packet in packets:
            if packet.message is None and packet.payload:
                packet.header = bytes(packet.header) + bytes(packet.payload)
                packet.payload = b""
            self.flight[number] = packet
            self.history[number % HISTORY] = packet
            self.born[number % HISTORY] = now
            number += 1
        self.sent = number

    def recent(self, number: int) -> Datagram | None:
        return self.history[number % HISTORY] if 0 <= number < self.sent and number >= self.sent - HISTORY else None

    def copy(self, number: int) -> int | None:
        packet = self.recent(number)
        if packet is None:
            return None
        twin = Datagram(
            packet.src, packet.dst, packet.header, packet.payload, packet.traffic_class, packet.entropy,
            packet.ecn_marked, packet.trimmed, packet.ip_version, packet.message,
        )  # fmt: skip
        copied = self.sent
        born = self.born[number % HISTORY]
        self.send([twin], born)
        return copied

    def expire(self, now: int, msl: int) -> None:
        """Remove packets that are older than `msl` or will be within `msl // 8`; a call within `msl // 8` of the last
        removal does nothing."""
        if now < self._look_at:
            return
        pause = msl // 8
        self._look_at = now + pause
        before = now + pause - msl
        for number in [n for n in self.flight if self.sent - n > HISTORY or self.born[n % HISTORY] < before]:
            del self.flight[number]
        for at, born in enumerate(self.born):
            if born < before:
                self.history[at] = None

    def trim(self, number: int, last_hop: bool = False) -> bool:
        """Cut a packet down to its header; return False if the packet is a control packet or trimmed already."""
        packet = self.flight[number]
        if packet.traffic_class is TrafficClass.CONTROL or packet.trimmed is not Trim.NO:
            return False
        whole = packet.message is None
        packet.header = packet.header[: MIN_TRIM if whole else MIN_TRIM - REQUEST_HEADER]
        packet.payload = b""
        packet.trimmed = Trim.LAST_HOP if last_hop else Trim.TRIMMED
        return True

    def mark(self, number: int) -> None:
        """Set ECN to Congestion Experienced, except in a control packet, which is not ECN-capable."""
        packet = self.flight[number]
        packet.ecn_marked = packet.traffic_class is not TrafficClass.CONTROL
