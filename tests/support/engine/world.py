# SPDX-License-Identifier: GPL-2.0-only
"""This module has two endpoints for tests of SES: `a` writes into a region of `b`, back to back, as bytes."""

import random
from typing import Any

from uetproto.engine import Close, Datagram, Fep, PdsConfig, Region, SesConfig, Write

A, B = 0x0A00000B, 0x0A00010B
JOB, KEY = 101, 0x0001000000000007


class Pair:
    """A pair of endpoints; `sent` has every packet in the order of the wire, as (source, transport bytes)."""

    def __init__(self, memory: Any, *, pds: dict[str, Any] | None = None, ses: dict[str, Any] | None = None,
                 **region: Any) -> None:  # fmt: skip
        self.a, self.b = (
            Fep(address, random.Random(address), pds=PdsConfig(**(pds or {})), ses=SesConfig(**(ses or {})))
            for address in (A, B)
        )
        self.process = self.b.attach(JOB)
        self.region = self.process.register(Region(KEY, memory, **region))
        self.sent: list[tuple[int, bytes]] = []
        self.now = 0

    def write(self, data: Any, **fields: Any) -> None:
        fields = {"peer": B, "key": KEY, "job_id": JOB, "initiator": 0, **fields}
        self.a.submit(Write(data=data, **fields), self.now)

    def close(self) -> None:
        self.a.submit(Close(peer=B), self.now)

    def run(self) -> None:
        """Deliver packets until none is sent any more."""
        while packets := self.a.poll(self.now) + self.b.poll(self.now):
            self.now += 1000
            for packet in packets:
                data = bytes(packet.header) + bytes(packet.payload)
                self.sent.append((packet.src, data))
                end = self.b if packet.dst == B else self.a
                end.receive(Datagram(packet.src, packet.dst, data, entropy=packet.entropy), self.now)

    def wait(self) -> None:
        """Let time pass from timer to timer, until an endpoint sends a packet; a deadline may be too early."""
        before = len(self.sent)
        while len(self.sent) == before:
            due = [at for end in (self.a, self.b) if (at := end.deadline()) is not None]
            if not due:
                break
            self.now = max(self.now, min(due))
            self.run()
