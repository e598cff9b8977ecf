"""The adversarial wire: keeps what was sent until it is delivered, dropped, duplicated or trimmed (pds.md §18)."""

from dataclasses import dataclass, replace

from uetproto.engine.contract import Datagram, Rng, TrafficClass, Trim

MIN_TRIM = 16
"""Bytes of the transport that a trimmed packet keeps at least: the PDS header (pds.md §14)."""


@dataclass(frozen=True, slots=True)
class Adversity:
    """Shares of what befalls a packet, each 0 … 1; `delay` is the longest extra delay in picoseconds."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    trim: float = 0.0
    mark: float = 0.0
    delay: int = 0


class Wire:
    """Packets in flight, in no order that anyone promises."""

    def __init__(self) -> None:
        self.flight: list[Datagram] = []

    def __len__(self) -> int:
        return len(self.flight)

    def send(self, packets: list[Datagram]) -> None:
        """Takes packets as bytes, as a real wire would: nothing of the sender's objects goes through."""
        self.flight += [replace(p, header=bytes(p.header) + bytes(p.payload), payload=b"") for p in packets]

    def take(self, index: int) -> Datagram:
        """The packet leaves the wire: to be delivered, or dropped."""
        return self.flight.pop(index % len(self.flight))

    def duplicate(self, index: int) -> None:
        self.flight.append(replace(self.flight[index % len(self.flight)]))

    def trim(self, index: int, keep: int = MIN_TRIM, last_hop: bool = False) -> bool:
        """Cuts the payload of a trimmable packet; False when it is not trimmable (control, trimmed before)."""
        packet = self.flight[index % len(self.flight)]
        if packet.traffic_class is TrafficClass.CONTROL or packet.trimmed is not Trim.NO:
            return False
        packet.header = packet.header[: max(keep, MIN_TRIM)]
        packet.trimmed = Trim.LAST_HOP if last_hop else Trim.TRIMMED
        return True

    def mark(self, index: int) -> None:
        """ECN: congestion experienced; control packets are not ECN-capable."""
        packet = self.flight[index % len(self.flight)]
        packet.ecn_marked = packet.traffic_class is not TrafficClass.CONTROL

    def disturb(self, rng: Rng, adversity: Adversity) -> Datagram | None:
        """Lets chance choose the next packet and its fate; None: it was dropped, or nothing is in flight."""
        if not self.flight:
            return None
        size = len(self.flight)
        index = int(rng.random() * size) if rng.random() < adversity.reorder else 0
        if rng.random() < adversity.duplicate:
            self.duplicate(index)
        if rng.random() < adversity.trim:
            self.trim(index, MIN_TRIM + int(rng.random() * 48), rng.random() < 0.5)
        if rng.random() < adversity.mark:
            self.mark(index)
        packet = self.take(index)
        return None if rng.random() < adversity.drop else packet
