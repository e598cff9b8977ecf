# SPDX-License-Identifier: GPL-2.0-only
"""This module checks the engines of a run that has the option `--check`.

`EngineGuards` belong to the two endpoints of a run. After every call to either endpoint they check all invariants of
`uetproto.check` (pds.md §18, ses.md §15).
"""

from collections.abc import Callable

from uetproto.check.registry import InvariantViolation
from uetproto.check.uet.guard import Guard
from uetproto.engine.contract import NEVER, Datagram, Engine
from uetproto.engine.fep import Fep


class EngineGuards:
    """Engine guards check the invariants of two endpoints that NICs drive.

    Only the first violation is reported, as later ones follow from it.
    """

    def __init__(self, a: Fep, b: Fep, find: Callable[[str], None]) -> None:
        self._find = find
        self._guards = {fep.address: _GuardedEngine(self, fep) for fep in (a, b)}
        first, second = self._guards.values()
        first.join(second)
        self.broken = False

    def of(self, fep: Fep) -> Engine:
        """Return the guarded engine of `fep`, which the NIC must drive in place of `fep`."""
        return self._guards[fep.address]

    def tell(self, violation: InvariantViolation) -> None:
        if not self.broken:
            self.broken = True
            self._find(str(violation))


class _GuardedEngine(Guard):
    """This guard reports its first violation, and then continues without checks."""

    def __init__(self, guards: EngineGuards, fep: Fep) -> None:
        super().__init__(fep)
        self._guards = guards

    def receive(self, packet: Datagram, now: int) -> None:
        if self._guards.broken:
            self.fep.receive(packet, now)
            return
        try:
            super().receive(packet, now)
        except InvariantViolation as violation:
            self._guards.tell(violation)

    def poll(self, now: int, limit: int = NEVER) -> list[Datagram]:
        if self._guards.broken:
            return self.fep.poll(now, limit)
        try:
            return super().poll(now, limit)
        except InvariantViolation as violation:
            self._guards.tell(violation)
            return []
