"""The adversarial wire: keeps what was sent until a step delivers it, drops, copies, trims or marks it (pds.md §18)."""

from uetproto.engine.contract import Datagram, TrafficClass, Trim

MIN_TRIM = 16
"""Bytes of the transport that a trimmed packet keeps: the PDS header, and a bit of the next (pds.md §14)."""
REQUEST_HEADER = 12
"""Bytes of them that are the header of a request."""
ADDRESSES = (0x0A000001, 0x0A000002)
"""Of the two ends, whatever they speak."""

HISTORY = 1024
"""Packets that can still be copied after they have left."""


class Wire:
    """Packets by number, in the order in which they left; none lives longer than MSL, as `expire` sees to."""

    __slots__ = ("_look_at", "born", "flight", "history", "sent")

    def __init__(self) -> None:
        self.flight: dict[int, Datagram] = {}
        self.history: list[Datagram | None] = [None] * HISTORY
        """Packet n at n mod HISTORY."""
        self.born: list[int] = [0] * HISTORY
        """When it left; a copy is as old as what it was copied from."""
        self.sent = 0
        """Number of the next packet."""
        self._look_at = 0

    def send(self, packets: list[Datagram], now: int) -> None:
        """Takes packets; those of a run with bytes as bytes: nothing of the sender's objects goes through."""
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
        """A packet that can be copied."""
        return self.history[number % HISTORY] if 0 <= number < self.sent and number >= self.sent - HISTORY else None

    def copy(self, number: int) -> int | None:
        """Puts a copy on the wire: its number; None where there is nothing to copy."""
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
        """No packet lives longer than `msl`. It looks now and then, and takes what would be too old next time."""
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
        """Cuts a packet down to its header; False when it may not be: control, or trimmed before."""
        packet = self.flight[number]
        if packet.traffic_class is TrafficClass.CONTROL or packet.trimmed is not Trim.NO:
            return False
        whole = packet.message is None
        packet.header = packet.header[: MIN_TRIM if whole else MIN_TRIM - REQUEST_HEADER]
        packet.payload = b""
        packet.trimmed = Trim.LAST_HOP if last_hop else Trim.TRIMMED
        return True

    def mark(self, number: int) -> None:
        """ECN: congestion experienced; control packets are not ECN-capable."""
        packet = self.flight[number]
        packet.ecn_marked = packet.traffic_class is not TrafficClass.CONTROL
