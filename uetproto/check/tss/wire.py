"""The wire in the hands of an attacker: every packet that ever left, and what of it can be changed on the way."""

from typing import NamedTuple

from uetproto.engine.tss.cipher import Below, SecurityHeader
from uetproto.errors import LocalError


class SealedPacket(NamedTuple):
    """A packet on the wire: what of the IP header is authenticated, the entropy header, and all that follows."""

    src: int
    dst: int
    entropy: int
    data: bytes
    is_trimmed: bool = False
    """It says so where nothing is authenticated, in its DSCP."""

    def below(self, ip_version: int) -> Below:
        """Native IP (tss.md §7.1)."""
        return Below(ip_version, self.src, self.dst, self.entropy.to_bytes(2, "big") + bytes(2))

    @property
    def header(self) -> SecurityHeader:
        """Raises `LocalError` where there is none."""
        header = SecurityHeader.of(self.data)
        if header is None:
            raise LocalError("packet", "it has no security header")
        return header

    def under(self, header: SecurityHeader) -> "SealedPacket":
        """With another security header, which may have another size."""
        return self._replace(data=header.encode() + self.data[self.header.size :])

    def rewritten(self, field: str, value: int) -> "SealedPacket":
        """With another value of a field that travels in clear. Raises `LocalError` where there is no such field."""
        if field == "swap":
            return self._replace(src=self.dst, dst=self.src)
        if field == "src":
            return self._replace(src=value)
        if field == "dst":
            return self._replace(dst=value)
        if field == "entropy":
            return self._replace(entropy=value)
        return self.under(self.header._replace(**{field: value}))


class TssWire:
    """Packets by number, in the order in which they left. Nothing is ever forgotten."""

    def __init__(self) -> None:
        self.flight: dict[int, SealedPacket] = {}
        self.history: list[SealedPacket] = []
        """As they left, copies and forgeries included."""
        self.born: list[int] = []
        """When they left; a copy is as old as what it was copied from."""

    def send(self, packet: SealedPacket, now: int) -> None:
        self.flight[len(self.history)] = packet
        self.history.append(packet)
        self.born.append(now)

    def copy(self, number: int) -> None:
        """Raises `LocalError` where there is nothing to copy."""
        if not 0 <= number < len(self.history):
            raise LocalError(f"packet {number} has not left yet")
        self.send(self.history[number], self.born[number])

    def take(self, number: int) -> SealedPacket:
        """Off the wire. Raises `LocalError` for a packet that is not there."""
        if number not in self.flight:
            raise LocalError(f"packet {number} is not on the wire")
        return self.flight.pop(number)

    def change(self, number: int, packet: SealedPacket) -> None:
        """In place of the one that is there."""
        self.flight[number] = packet
