# SPDX-License-Identifier: GPL-2.0-only
"""This module plays the reference provider's side of a recorded exchange against one of our endpoints: the provider's
frames are those of the capture, byte for byte.

Our endpoint gets the PDCIDs and Start_PSNs that the recorded one had, so that the recorded frames fit what it sends.
"""

import random
from collections.abc import Iterable, Mapping
from typing import Any

from tests.support import paths
from tests.support.interop.refprov_packets import Seen, seen
from uetproto.engine import Fep, PdsConfig, Preset, Region, SesConfig
from uetproto.engine.config import PERSONALITIES
from uetproto.engine.contract import MILLISECOND, Completion, Event, SesWork
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.wire.capture.pcap import open_capture

INTEROP = paths.SHARED / "captures" / "interop"
JOB = 1
_NATIVE = Encapsulation(udp=False)
_PATIENCE = 10_000 * MILLISECOND


class Script:
    """One of our endpoints, `fep`, and a capture in which the provider talked to another one of ours.

    What `fep` sends and the script has not looked at is in `sent`; its events are in `events`.
    """

    def __init__(
        self, capture: str, ours: str, personality: str = "refprov", regions: Mapping[int, bytearray] | None = None,
        *, presets: Iterable[Preset] = (), pds: Mapping[str, Any] | None = None, ses: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """`ours` is "client" (host 2) or "server" (host 1): the end of the capture that `fep` takes the place of."""
        with open_capture(INTEROP / f"{capture}.pcap") as reader:
            self.frames = [record.data for record in reader]
        packets = [one for frame in self.frames for one in seen([(0, frame)])]
        assert len(packets) == len(self.frames), "a frame that is no packet of UET"
        hosts = sorted({one.src for one in packets})
        self.address, self.peer = hosts if ours == "server" else reversed(hosts)
        self.theirs = [one.src == self.peer for one in packets]
        habits = PERSONALITIES[personality]
        self.fep = Fep(
            self.address, random.Random(7), pds=PdsConfig(**habits["pds"] | dict(pds or {})),
            ses=SesConfig(**{**habits["ses"], "payload_mtu": 1024} | dict(ses or {})),
        )  # fmt: skip
        for preset in presets:
            self.fep.pds.preset(preset)
        process = self.fep.attach(JOB)
        for key, memory in (regions or {}).items():
            process.register(Region(key, memory))
        self._framer = UetFramer(self.address, 4, _NATIVE)
        self._there = UetFramer(self.peer, 4, _NATIVE)
        self.now = 0
        self.sent: list[Seen] = []
        self.events: list[Event] = []

    def submit(self, work: SesWork) -> None:
        self.fep.submit(work, self.now)
        self._poll()

    def play(self, *numbers: int) -> None:
        """Receive frames of the capture; each must be one that the provider sent."""
        for number in numbers:
            assert self.theirs[number], f"packet {number} is one of ours"
            self.receive(self.frames[number])

    def receive(self, frame: bytes) -> None:
        packet = self._framer.packet(frame)
        assert packet is not None
        self.fep.receive(packet, self.now)
        self._poll()

    def wait(self, duration: int) -> None:
        """Let time pass; timers run when they are due."""
        until = self.now + duration
        while (at := self.fep.deadline()) is not None and at <= until:
            self.now = max(self.now, at)
            self._poll()
        self.now = until

    def expect(self, **fields: Any) -> Seen:
        """Take the next packet that has these fields of PDS or SES, and all before it, out of `sent`; let time pass
        until it comes."""
        until = self.now + _PATIENCE
        while self.now < until:
            for number, one in enumerate(self.sent):
                if all({**one.pds, **one.ses}.get(name) == value for name, value in fields.items()):
                    del self.sent[: number + 1]
                    return one
            at = self.fep.deadline()
            assert at is not None, f"{fields} is not sent, but {[dict(one.pds) for one in self.sent]}"
            self.now = max(self.now, at)
            self._poll()
        raise AssertionError(f"{fields} is not sent in time")

    def completions(self) -> list[Completion]:
        return [event for event in self.events if isinstance(event, Completion)]

    def _poll(self) -> None:
        for packet in self.fep.poll(self.now):
            self.sent += seen([(self.now, self._framer.frame(packet))])
        self.events += self.fep.events()
