# SPDX-License-Identifier: GPL-2.0-only
"""This module has the wire that an attacker controls. It keeps every packet that was ever sent, and can change
packets.
"""

from typing import NamedTuple

from uetproto.check.wire import AdversarialWire
from uetproto.engine.tss.cipher import AssociatedData, SecurityHeader
from uetproto.errors import LocalError


class SealedPacket(NamedTuple):
    """A sealed packet has those fields of the IP header that are authenticated, the entropy header, and all bytes from
    the security header on."""

    src: int
    dst: int
    entropy: int
    data: bytes
    is_trimmed: bool = False
    """Whether the DSCP says that the packet was trimmed. The DSCP is not authenticated."""

    def below(self, ip_version: int) -> AssociatedData:
        """Return the headers before the security header as associated data (tss.md §7.1). The encapsulation is UET
        directly in IP, without UDP."""
        return AssociatedData(ip_version, self.src, self.dst, self.entropy.to_bytes(2, "big") + bytes(2))

    @property
    def header(self) -> SecurityHeader:
        """Return the security header. Raises `LocalError` if there is none."""
        header = SecurityHeader.of(self.data)
        if header is None:
            raise LocalError("packet", "it has no security header", id="step-impossible")
        return header

    def under(self, header: SecurityHeader) -> "SealedPacket":
        """Return the packet with `header` in place of its security header. The two headers may have different sizes."""
        return self._replace(data=header.encode() + self.data[self.header.size :])

    def rewritten(self, field: str, value: int) -> "SealedPacket":
        """Return the packet with another value of an unencrypted field. Raises `LocalError` if the packet does not
        have the field."""
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
    """This wire carries sealed packets. It keeps all packets, so that any packet can be replayed at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[SealedPacket] = []
        """Packets as they were when they were put on the wire, including copies and forged packets."""
        self.born: list[int] = []
        """Time in picoseconds at which each packet was sent. A copy has the time of its original."""

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
