# SPDX-License-Identifier: GPL-2.0-only
"""This module has RoCE queue pairs with faults."""

from collections.abc import Mapping
from typing import Any

from uetproto.testing import Capabilities, RoceEngine

ACK, FETCH_ADD = 0x11, 0x14
WRITE_ENDS = 0x08, 0x0A
RESPONSES = range(0x0D, 0x13)
BTH = slice(42, 54)
"""Place of the BTH in a frame over IPv4; its first byte is the opcode."""
MSN = slice(13, 16)
"""Place of the MSN behind the start of the BTH of an ACK."""


class BlackBox(RoceEngine):
    """Our queue pair, of which nothing can be observed."""

    capabilities = Capabilities(observable=False, work=RoceEngine.capabilities.work)

    def observe(self) -> Any:
        super().observe()


class Limited(RoceEngine):
    """Our queue pair with seven retries, and with the default of each setting."""

    capabilities = Capabilities(work=RoceEngine.capabilities.work)


class NoRetransmission(RoceEngine):
    """A queue pair that sends nothing again."""

    def reset(self, config: Mapping[str, Any]) -> None:
        super().reset(config)
        self.sent: set[bytes] = set()

    def poll(self) -> list[bytes]:
        frames = [frame for frame in super().poll() if frame[BTH] not in self.sent or frame[42] in RESPONSES]
        self.sent |= {frame[BTH] for frame in frames}
        return frames


class WrongMsn(RoceEngine):
    """A queue pair whose ACKs count one message too many."""

    def poll(self) -> list[bytes]:
        packets = self.engine.poll(self.now)
        for packet in packets:
            header = bytearray(packet.header)
            if header[0] == ACK:
                header[MSN] = (int.from_bytes(header[MSN], "big") + 1 & 0xFFFFFF).to_bytes(3, "big")
                packet.header = bytes(header)
        return [self.framer.frame(packet) for packet in packets]


class AddsAgain(RoceEngine):
    """A queue pair that executes the duplicate of a fetch-and-add again."""

    def deliver(self, frame: bytes) -> None:
        before = self.hca.counters.get("duplicate request", 0)
        super().deliver(frame)
        if frame[42] == FETCH_ADD and self.hca.counters.get("duplicate request", 0) > before:
            self.memory[-8:] = (int.from_bytes(self.memory[-8:], "little") + 1 & (1 << 64) - 1).to_bytes(8, "little")


class LosesByte(RoceEngine):
    """A queue pair that does not store the last byte of a WRITE."""

    def deliver(self, frame: bytes) -> None:
        before = bytes(self.memory)
        super().deliver(frame)
        if frame[42] in WRITE_ENDS:
            changed = [at for at, (old, new) in enumerate(zip(before, self.memory, strict=True)) if old != new]
            for at in changed[-1:]:
                self.memory[at] = before[at]


class Twice(RoceEngine):
    """A queue pair that completes each request twice."""

    def observe(self) -> dict[str, Any]:
        seen = super().observe()
        return {**seen, "events": [*seen["events"], *(e for e in seen["events"] if e["event"] == "completion")]}
