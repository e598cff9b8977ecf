"""This module has the wire that an attacker controls: every packet that ever left, and the changes that can be made to
one.
"""

from typing import NamedTuple

from uetproto.check.wire import AdversarialWire
from uetproto.engine.tss.cipher import AssociatedData, SecurityHeader
from uetproto.errors import LocalError


class SealedPacket(NamedTuple):
    """A packet on the wire has the authenticated fields of the IP header, the entropy header, and all that follows."""

    src: int
    dst: int
    entropy: int
    data: bytes
    is_trimmed: bool = False
    """Whether the DSCP, which is not authenticated, says that the packet was trimmed."""

    def below(self, ip_version: int) -> AssociatedData:
        """Return the headers below TSS, in the encapsulation native IP, as associated data (tss.md §7.1)."""
        return AssociatedData(ip_version, self.src, self.dst, self.entropy.to_bytes(2, "big") + bytes(2))

    @property
    def header(self) -> SecurityHeader:
        """Return the security header. Raises `LocalError` where there is none."""
        header = SecurityHeader.of(self.data)
        if header is None:
            raise LocalError("packet", "it has no security header")
        return header

    def under(self, header: SecurityHeader) -> "SealedPacket":
        """Return the packet with another security header, which may have another size."""
        return self._replace(data=header.encode() + self.data[self.header.size :])

    def rewritten(self, field: str, value: int) -> "SealedPacket":
        """Return the packet with another value of an unencrypted field. Raises `LocalError` where it is missing."""
        if field == "swap":
            return self._replace(src=self.dst, dst=self.src)
        if field == "src":
            return self._replace(src=value)
        if field == "dst":
            return self._replace(dst=value)
        if field == "entropy":
            return self._replace(entropy=value)
        return self.under(self.header._replace(**{field: value}))


class SealedWire(AdversarialWire[SealedPacket]):
    """Sealed packets on the wire; no packet is ever too old to be replayed."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[SealedPacket] = []
        """The packets as they left, copies and forgeries included."""
        self.born: list[int] = []
        """When each packet left; a copy is as old as its original."""

    def send(self, packet: SealedPacket, now: int) -> None:
        self.flight[self.sent] = packet
        self.sent += 1
        self.history.append(packet)
        self.born.append(now)

    def recent(self, number: int) -> SealedPacket | None:
        return self.history[number] if 0 <= number < self.sent else None

    def copy(self, number: int) -> int | None:
        packet = self.recent(number)
        if packet is None:
            return None
        self.send(packet, self.born[number])
        return self.sent - 1
