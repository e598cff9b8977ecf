# SPDX-License-Identifier: GPL-2.0-only
"""This module runs a workload in virtual time on two endpoints with the habits of the provider, and returns the frames
that they sent."""

import heapq
import random
from collections.abc import Mapping
from typing import Any

from tests.support.interop.refprov_workload import Workload
from uetproto.engine import Fep, PdsConfig, Region, SesConfig
from uetproto.engine.config import PERSONALITIES
from uetproto.engine.contract import MICROSECOND, MILLISECOND, NEVER, Event
from uetproto.engine.pds.states import State
from uetproto.engine.tss.domain import SecureDomain
from uetproto.engine.tss.keys import KeyRing
from uetproto.engine.tss.port import CLEAR_NACKS, SecurePort
from uetproto.framing.tss import SealingFramer
from uetproto.framing.uet import Encapsulation, UetFramer

HABITS = PERSONALITIES["refprov"]
_NATIVE = Encapsulation(udp=False)
_LATENCY = 1 * MICROSECOND
"""From one end to the other."""
_PACE = 5 * MICROSECOND
"""Between the packets of a paced run: longer than an answer takes."""
_END = 1 * MILLISECOND
"""After the last step: long for an answer, short for a timer."""


class Run:
    """A run has the frames that were sent, with their times, in `sent`, and the events that the applications were told
    in `events`."""

    def __init__(
        self, work: Workload, *, knobs: Mapping[str, Mapping[str, Any]], ring: KeyRing | None = None,
        paced: bool = False,
    ) -> None:  # fmt: skip
        """`knobs`: settings beside those of the personality, by `pds`, `ses`, `security`; of both ends.

        `ring`: of the secure domain 1; without it packets go in clear. `paced`: an end sends one request at a time, so
        that it hears answers meanwhile; but what it sends before it has heard any, it sends at once.
        """
        self.now = 0
        self.sent: list[tuple[int, bytes]] = []
        self.events: list[Event] = []
        self._settings = {name: HABITS[name] | dict(knobs.get(name, {})) for name in HABITS}
        self._ring = ring
        self._paced = paced
        self._wire: list[tuple[int, int, int, bytes]] = []
        """Frames on their way: when they arrive, their number, where."""
        addresses = sorted({step.at for step in work.steps})
        self._feps = {at: self._fep(at) for at in addresses}
        self._framers = {at: self._framer(at) for at in addresses}
        self._busy_until = dict.fromkeys(addresses, 0)
        processes = {at: fep.attach(1) for at, fep in self._feps.items()}
        for (owner, key), size in work.regions.items():
            processes[owner].register(Region(key, bytearray(size)))
        for step in work.steps:
            self._until(step.time)
            self._feps[step.at].submit(step.work, self.now)
            self._poll(step.at)
        self._until(self.now + _END)

    def _fep(self, at: int) -> Fep:
        pds, ses = PdsConfig(**self._settings["pds"]), SesConfig(**self._settings["ses"])
        return Fep(at, random.Random(at), pds=pds, ses=ses, ip_version=_version(at))

    def _framer(self, at: int) -> UetFramer:
        capable, habits = self._settings["pds"]["ecn_capable"], self._settings["security"]
        if self._ring is None:
            return UetFramer(at, _version(at), _NATIVE, ecn_capable=capable)
        port = SecurePort(plain=habits["plain"], clear_nacks=[CLEAR_NACKS[name] for name in habits["clear_nacks"]])
        port.domains[1] = domain = SecureDomain(self._ring[1], at, _version(at))
        return SealingFramer(
            at, _version(at), _NATIVE, port=port, domain=domain, now=lambda: self.now, ecn_capable=capable
        )

    # Virtual time

    def _until(self, time: int) -> None:
        """Everything that happens before `time`."""
        while (due := self._next()) < time:
            self.now = max(self.now, due)
            if self._wire and self._wire[0][0] <= self.now:
                _, _, to, frame = heapq.heappop(self._wire)
                packet = self._framers[to].packet(frame)
                assert packet is not None
                self._feps[to].receive(packet, self.now)
            for at in self._feps:
                self._poll(at)
        self.now = time

    def _next(self) -> int:
        due = [self._wire[0][0]] if self._wire else []
        due += [at for fep in self._feps.values() if (at := fep.deadline()) is not None]
        due += [at for at in self._busy_until.values() if at > self.now]
        return min(due, default=NEVER)

    def _poll(self, at: int) -> None:
        fep = self._feps[at]
        first = fep.pds.counters.data_tx
        is_slow = self._paced and all(pdc.state is not State.CREATING for pdc in fep.pds.pdcs.values())
        limit = int(self._busy_until[at] <= self.now) if is_slow else NEVER
        for packet in fep.poll(self.now, limit):
            frame = self._framers[at].frame(packet)
            heapq.heappush(self._wire, (self.now + _LATENCY, len(self.sent), packet.dst, frame))
            self.sent.append((self.now, frame))
        if is_slow and fep.pds.counters.data_tx > first:
            self._busy_until[at] = self.now + _PACE
        self.events += fep.events()


def _version(address: int) -> int:
    return 4 if address < 1 << 32 else 6
