# SPDX-License-Identifier: GPL-2.0-only
"""This module makes frames to seal: any bytes as the inner packet, between two addresses, over native IP or UDP, IPv4
or IPv6."""

from dataclasses import dataclass, replace

from uetproto.engine.tss.cipher import AssociatedData
from uetproto.wire.packet import Layer, Packet, Trailer
from uetproto.wire.stack import encode

ADDRESSES = {4: (0xC0A82A01, 0xC0A82A02), 6: (0x20010CB0000000000FC0000000000ABC, 0x20010CB0000000000FC0000000000ABD)}
"""Source and destination of tss.md §13.7."""


@dataclass(frozen=True)
class Flow:
    """A flow has the headers below the security header, as in tss.md §13.7."""

    version: int = 4
    udp: bool = False
    src: int = -1
    dst: int = -1

    def __post_init__(self) -> None:
        for name, address in zip(("src", "dst"), ADDRESSES[self.version], strict=True):
            if getattr(self, name) < 0:
                object.__setattr__(self, name, address)

    def back(self) -> "Flow":
        return replace(self, src=self.dst, dst=self.src)

    @property
    def start(self) -> int:
        """Return the offset of the source address in a frame."""
        return 26 if self.version == 4 else 22

    @property
    def addresses(self) -> int:
        """Return the size of both addresses in bytes."""
        return 8 if self.version == 4 else 32

    @property
    def end(self) -> int:
        """Return the offset of the security header in a frame."""
        return self.start + self.addresses + (8 if self.udp else 4)

    def frame(self, packet: bytes) -> bytes:
        """Return sealed bytes as a whole frame."""
        return encode(Packet(self._layers(), packet), fill=True)

    def plain_frame(self, inner: bytes) -> bytes:
        """Return bytes in clear as a whole frame with its CRC32C."""
        return encode(Packet(self._layers(), inner, Trailer("crc32c", 0)), fill=True)

    def below(self, size: int) -> AssociatedData:
        """Return the associated data for a packet that has `size` bytes when it is sealed: UDP has a field for its
        length."""
        ahead = self.frame(bytes(size))[self.start + self.addresses : self.end]
        return AssociatedData(self.version, self.src, self.dst, ahead)

    def _layers(self) -> list[Layer]:
        values = {"src": self.src, "dst": self.dst, "ecn": 2}
        protocol = 17 if self.udp else 253
        if self.version == 4:
            ip = Layer("ipv4", {**values, "df": 1, "ttl": 64, "protocol": protocol})
        else:
            ip = Layer("ipv6", {**values, "next_header": protocol, "hop_limit": 64})
        type_ = 0x0800 if self.version == 4 else 0x86DD
        link = Layer("ethernet", {"dst": 0x020000000002, "src": 0x020000000001, "type": type_})
        carrier = Layer("udp", {"sport": 0x4242, "dport": 4793}) if self.udp else Layer("entropy", {"entropy": 0x4242})
        return [link, ip, carrier]
