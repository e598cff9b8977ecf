# SPDX-License-Identifier: GPL-2.0-only
"""This module has an endpoint that is a member of a secure domain under attack. It has packet delivery, SES, a secure
port, and memory that its peer may read and write."""

import random
from dataclasses import dataclass
from typing import Any

from uetproto.check.tss.wire import SealedPacket
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import Buffer, Datagram, Trim
from uetproto.engine.fep import Fep
from uetproto.engine.memory import Region
from uetproto.engine.tss.cipher import Refused
from uetproto.engine.tss.domain import OpenedPacket, SecureDomain, TrimmedPart, TssCounters
from uetproto.engine.tss.port import SecurePort

JOB, KEY = 101, 7
SDI = 1
"""Identifier (SDI) of the secure domain that all PDCs use."""
OTHER_SDI = 2
MTU = 1024
LONGEST = 4 * MTU
_PERIOD = 65521
_BYTES = bytes((place % _PERIOD * 37 ^ place % _PERIOD >> 8) & 0xFF for place in range(_PERIOD + LONGEST))
_SIZE = 1 << 40
_REFUSALS = [name for name in TssCounters.__slots__ if name.startswith("in_") and name != "in_auth_pkts"]


def content(node: int, offset: int, length: int) -> bytes:
    """Return the bytes that belong at an offset of the memory of `node`. Packets at different offsets have different
    bytes."""
    start = (offset + node * 7919) % _PERIOD
    return _BYTES[start : start + length]


class OfferedMemory:
    """This memory (`memory.Memory`) has fixed content at each offset. It notes a write of other bytes, and a second
    write of the same bytes."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.length = _SIZE
        self.written = bytearray()
        """Says for each byte whether it was written (1) or not (0), up to the end of the last range that `give`
        returned."""
        self.harm = ""
        """Description of a write of wrong bytes, or of a second write to the same bytes. It is empty if there was no
        such write."""

    def give(self, length: int) -> int:
        """Reserve a range for a message, and return its offset in bytes."""
        offset = len(self.written)
        self.written += bytes(length)
        return offset

    def take_back(self, offset: int, length: int) -> None:
        """Allow one more write of the bytes of a range."""
        self.written[offset : offset + length] = bytes(length)

    def has(self, offset: int, length: int) -> bool:
        """Return whether all bytes of a range were written."""
        return all(self.written[offset : offset + length])

    def read(self, offset: int, length: int) -> bytes:
        return content(self.node, offset, length)

    def write(self, offset: int, data: Buffer) -> None:
        end = offset + len(data)
        if end > len(self.written) or bytes(data) != content(self.node, offset, len(data)):
            self.harm = f"other bytes than were sent at {offset}"
        elif any(self.written[offset:end]):
            self.harm = f"delivered twice: {len(data)} bytes at {offset}"
        else:
            self.written[offset:end] = b"\1" * len(data)

    def flush(self) -> None:
        """Do nothing, as nothing is buffered."""


@dataclass(eq=False)
class TssOperation:
    """This record has a message of an application, and how often it completed. `into` is the buffer of a read, and
    None for a write."""

    node: int
    offset: int
    length: int
    into: bytearray | None = None
    outcomes: int = 0
    lost: bool = False
    """Whether the endpoint was restarted before the message completed."""


class TssEndpoint:
    """This endpoint has two parts. Its driver uses the part `fep` as an `Engine`. Its packets pass through the part
    `port`."""

    def __init__(self, node: int, address: int, ip_version: int, config: PdsConfig, seed: str) -> None:
        self.node = node
        self.address = address
        self.ip_version = ip_version
        self.memory = OfferedMemory(node)
        self.operations: list[TssOperation] = []
        self.refused = 0
        self._config = config
        self.begin(seed)

    def begin(self, seed: str) -> None:
        """Replace the engine by a new one without state. The memory of the application stays."""
        ses = SesConfig(payload_mtu=MTU)
        self.fep = Fep(
            self.address, random.Random(seed), pds=self._config, ses=ses, ip_version=self.ip_version
        )  # fmt: skip
        self.fep.attach(JOB).register(Region(KEY, self.memory))
        for operation in self.operations:
            operation.lost = operation.lost or not operation.outcomes

    def secure(self, *domains: SecureDomain) -> None:
        """Set the secure domains of the endpoint. The PDCs of the endpoint use the first domain."""
        self.port = SecurePort()
        self.port.domains = {domain.domain.sdi: domain for domain in domains}
        self.domain = domains[0]

    @property
    def counted(self) -> int:
        """Return the number of packets that were refused, as the counters say (tss.md §9)."""
        port = self.port
        domains: int = sum(getattr(domain.counters, name) for domain in port.domains.values() for name in _REFUSALS)
        return port.in_errored + port.in_rx_encryption_bypass + domains

    def seal(self, packet: Datagram) -> SealedPacket | None:
        """Return the sealed packet, or None if the packet must not be sent."""
        sealed = SealedPacket(packet.src, packet.dst, packet.entropy, b"")
        data = self.domain.seal(sealed.below(self.ip_version), bytes(packet.header) + bytes(packet.payload))
        return None if data is None else sealed._replace(data=data)

    def open(self, packet: SealedPacket) -> Datagram | None:
        """Return the opened packet for packet delivery, as a `framing.tss` framer does, or None if the packet is
        refused."""
        opened = self.port.receive(packet.below(self.ip_version), packet.data, is_trimmed=packet.is_trimmed)
        arrived: dict[str, Any] = {"entropy": packet.entropy, "ip_version": self.ip_version}
        if isinstance(opened, TrimmedPart):
            return Datagram(packet.src, packet.dst, opened.clear, trimmed=Trim.TRIMMED, **arrived)
        is_bound = isinstance(opened, OpenedPacket) and (
            opened.header is None or self.port.is_bound(opened.header, SDI)
        )
        if isinstance(opened, Refused) or not is_bound:
            self.refused += 1
            return None
        return Datagram(packet.src, packet.dst, opened.inner, **arrived)
