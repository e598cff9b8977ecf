# SPDX-License-Identifier: GPL-2.0-only
"""This module has members of a secure domain with faults."""

from collections.abc import Mapping
from typing import Any

from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.testing import TssEngine

TSS = 42
"""Offset of the security header in a frame over IPv4. The lowest bit of its first byte is the AN."""


class CounterStays(TssEngine):
    """A member whose counter begins again with each packet."""

    def poll(self) -> list[bytes]:
        frames = super().poll()
        self.domain.tx_counter = 0
        return frames


class AcksInClear(TssEngine):
    """A member that sends ACKs, NACKs and control packets in clear."""

    def poll(self) -> list[bytes]:
        plain = UetFramer(self.address, 4, Encapsulation(udp=True))
        packets = self.engine.poll(self.now)
        return [(plain if packet.header[0] >> 3 in range(7, 13) else self.framer).frame(packet) for packet in packets]


class OldKey(TssEngine):
    """A member that tells the new AN after a change of keys, and still seals with the old key."""

    def reset(self, config: Mapping[str, Any]) -> None:
        super().reset(config)
        self.told = 0

    def submit(self, work: Mapping[str, Any]) -> None:
        if work["op"] == "switch_key":
            self.told = work["an"]
        else:
            super().submit(work)

    def poll(self) -> list[bytes]:
        return [frame[:TSS] + bytes([frame[TSS] | self.told]) + frame[TSS + 1 :] for frame in super().poll()]


class OneKey(TssEngine):
    """A member that does not open packets that are sealed with the second key."""

    def deliver(self, frame: bytes) -> None:
        if not frame[TSS] & 1:
            super().deliver(frame)
