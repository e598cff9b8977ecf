# SPDX-License-Identifier: GPL-2.0-only
"""This module has the adversarial wires. A packet stays on such a wire until a step delivers or drops it; steps may
also copy, trim or mark it (pds.md §18)."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from uetproto.engine.contract import Datagram, TrafficClass, Trim

MIN_TRIM = 16
"""Number of transport bytes that a trimmed packet keeps: the PDS header and 4 bytes of the SES header (pds.md §14)."""
REQUEST_HEADER = 12
"""Length in bytes of the PDS header of a request."""
ADDRESSES = (0x0A000001, 0x0A000002)
"""Addresses of ends 0 and 1 in all simulations, as IPv4 addresses."""

HISTORY = 1024
"""Number of the newest packets that can still be copied after they were delivered or dropped."""

ALL = -1
"""Value that stands for every packet on the wire, oldest first, where a packet number is expected. Where a limit is
expected, the value means that there is no limit."""

PacketT = TypeVar("PacketT")


class AdversarialWire(ABC, Generic[PacketT]):
    """An adversarial wire has the packets of both ends by number, in the order in which they were sent. A copy gets a
    number of its own."""

    __slots__ = ("flight", "sent")

    def __init__(self) -> None:
        self.flight: dict[int, PacketT] = {}
        self.sent = 0
        """Number of packets that were sent so far, which is also the number of the next packet."""

    @abstractmethod
    def recent(self, number: int) -> PacketT | None:
        """Return the packet with this number, or None if it can no longer be copied or was never sent."""

    @abstractmethod
    def copy(self, number: int) -> int | None:
        """Put a copy of a packet on the wire, and return the number of the copy. Return None if the packet cannot be
        copied."""


class DatagramWire(AdversarialWire[Datagram]):
    """This wire carries datagrams. `expire` removes those that are older than the maximum segment lifetime (MSL)."""

    __slots__ = ("_look_at", "born", "history")

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Datagram | None] = [None] * HISTORY
        """Packet n is at index n mod `HISTORY`. An entry is None if no packet has this index, or if the packet has
        expired."""
        self.born: list[int] = [0] * HISTORY
        """Time in picoseconds at which packet n was sent, at index n mod `HISTORY`. A copy has the time of its
        original."""
        self._look_at = 0

    def send(self, packets: list[Datagram], now: int) -> None:
        """Put packets on the wire. If they are encoded, header and payload of each are joined."""
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
        """Remove packets that are older than `msl`, or will be within the next `msl // 8`. A call does nothing if the
        last removal is less than `msl // 8` ago."""
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
        """Truncate a packet to its header, as a switch trims it. If the packet is a control packet or was trimmed
        before, change nothing and return False."""
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
