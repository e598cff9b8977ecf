# SPDX-License-Identifier: GPL-2.0-only
"""This module has two whole endpoints, guarded, on an adversarial wire: what `check.uet.simulator` is for PDS with
scripted SES."""

from dataclasses import dataclass

from uetproto.check.registry import InvariantViolation
from uetproto.check.uet.guard import Guard
from uetproto.check.wire import DatagramWire
from uetproto.engine import Fep
from uetproto.engine.contract import NEVER, Event, Rng, Work

TRANSIT = 1_000_000
"""Picoseconds that pass with every step of `run`."""


@dataclass(frozen=True, slots=True)
class Adversity:
    """The shares of packets that meet each fault, from 0 to 1."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    trim: float = 0.0
    mark: float = 0.0


class FepWorld:
    """A world has two endpoints, which poll after each step; `Guard` raises `InvariantViolation`."""

    def __init__(self, a: Fep, b: Fep) -> None:
        self.feps = {a.address: a, b.address: b}
        self.guards = {a.address: Guard(a), b.address: Guard(b)}
        self.guards[a.address].join(self.guards[b.address])
        self.wire = DatagramWire()
        self.now = 0
        self.events: dict[int, list[Event]] = {a.address: [], b.address: []}
        self.trace: list[tuple[int, int, bytes]] = []
        """Time, sender and bytes of every packet that left."""

    def number(self, index: int) -> int:
        """Return the number of the packet at this place on the wire."""
        return list(self.wire.flight)[index % len(self.wire.flight)]

    def submit(self, address: int, work: Work) -> None:
        self.guards[address].submit(work, self.now)
        self.settle()

    def deliver(self, number: int) -> None:
        packet = self.wire.flight.pop(number)
        if packet.dst in self.guards:
            self.guards[packet.dst].receive(packet, self.now)
        self.settle()

    def pass_time(self, duration: int) -> None:
        """Let time pass, timer by timer, up to `duration` picoseconds."""
        until = self.now + duration
        while (due := self._due()) <= until:
            self.now = max(self.now, due)
            self.settle()
        self.now = until

    def _due(self) -> int:
        return min(guard.deadline() or NEVER for guard in self.guards.values())

    def settle(self) -> None:
        """Make both endpoints poll."""
        for address, guard in self.guards.items():
            packets = guard.poll(self.now)
            self.trace += [(self.now, p.src, bytes(p.header) + bytes(p.payload)) for p in packets]
            self.wire.send(packets, self.now)
            self.events[address] += guard.events()

    def disturb(self, chance: Rng, adversity: Adversity) -> None:
        """Choose the next packet and its fate at random."""
        place = int(chance.random() * len(self.wire.flight)) if chance.random() < adversity.reorder else 0
        number = self.number(place)
        if chance.random() < adversity.duplicate:
            self.wire.copy(number)
        if chance.random() < adversity.trim:
            self.wire.trim(number, chance.random() < 0.5)
        if chance.random() < adversity.mark:
            self.wire.mark(number)
        if chance.random() < adversity.drop:
            del self.wire.flight[number]
            self.settle()
        else:
            self.deliver(number)

    def run(self, chance: Rng, adversity: Adversity, steps: int = 1_000_000) -> int:
        """Deliver packets at random until both endpoints are quiet and nothing is in flight; return the number of steps
        taken."""
        for step in range(steps):
            if self.wire.flight:
                self.now += TRANSIT
                self.disturb(chance, adversity)
            elif all(fep.quiescent or not fep.pds.pdcs for fep in self.feps.values()):
                return step
            else:
                due = self._due()
                if due == NEVER:
                    raise InvariantViolation("pds 51", "not quiet, and no timer is armed")
                self.now = max(self.now, due)
                self.settle()
        raise InvariantViolation("pds 49", f"not quiet after {steps} steps")
