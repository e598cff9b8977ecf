"""Faults: a wrapper around a port that loses, copies, holds back, damages and cuts frames, by chance or by number;
and targets that answer as their host makes them.

Chance comes from a seeded generator: one seed, one run.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.frame_outcome import Fate, Fates
from uetproto.emulator.network.link import Port
from uetproto.emulator.network.switch import trim
from uetproto.engine.contract import MICROSECOND, Rng
from uetproto.engine.ses.headers import SesRequest
from uetproto.framing.dscp import Dscp
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.wire.headers.uet_ses import ReturnCode

Which = float | frozenset[int]
"""A share of the frames, 0 to 1, or the numbers of some."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong. Numbers count the frames that come to this port, from 0."""

    drop: Which = 0.0
    trim: Which = 0.0
    """Cut as a switch without room would; what must not be cut passes."""
    corrupt: Which = 0.0
    """One bit behind the Ethernet header changes."""
    duplicate: Which = 0.0
    reorder: Which = 0.0
    """Held back until `reorder_by` later frames have passed, or for `reorder_time` if they do not come."""
    delay: Which = 0.0
    """Held back for `delay_time`."""
    reorder_by: int = 1
    reorder_time: int = 10 * MICROSECOND
    delay_time: int = 10 * MICROSECOND

    def __bool__(self) -> bool:
        return any((self.drop, self.trim, self.corrupt, self.duplicate, self.reorder, self.delay))


@dataclass(slots=True)
class _Held:
    """A frame that waits until `passes` others have passed."""

    frame: bytes
    passes: int


@dataclass(slots=True)
class FaultyPort:
    """In front of `sink`. `done` counts what happened, by the name of the fault."""

    clock: Clock
    sink: Port
    faults: Faults
    rng: Rng
    dscp: Dscp
    fates: Fates = field(default_factory=Fates)
    number: int = 0
    """Frames that came."""
    done: Counter[str] = field(default_factory=Counter)
    _held: list[_Held] = field(default_factory=list)

    def take(self, frame: bytes) -> None:
        faults = self.faults
        number = self.number
        self.number += 1
        if self._hits(faults.drop, number, "drop"):
            self.fates.lost(frame)
            return
        if faults.trim and self._chosen(faults.trim, number):
            short = trim(frame, self.dscp, last_hop=False)
            if short is not None:
                self.done["trim"] += 1
                self.fates.changed(frame, short, Fate.TRIMMED)
                frame = short
        if self._hits(faults.corrupt, number, "corrupt"):
            damaged = self._corrupted(frame)
            self.fates.changed(frame, damaged, Fate.DAMAGED)
            frame = damaged
        copies = 1
        if self._hits(faults.duplicate, number, "duplicate"):
            self.fates.copied(frame)
            copies = 2
        if self._hits(faults.reorder, number, "reorder"):
            held = _Held(frame, faults.reorder_by)
            self._held.append(held)
            self.clock.at(self.clock.now + faults.reorder_time, self._release, held)
            copies -= 1
        elif self._hits(faults.delay, number, "delay"):
            self.clock.at(self.clock.now + faults.delay_time, self._pass, frame)
            copies -= 1
        for _ in range(copies):
            self._pass(frame)

    def _chosen(self, which: Which, number: int) -> bool:
        if isinstance(which, frozenset):
            return number in which
        return which > 0 and self.rng.random() < which

    def _hits(self, which: Which, number: int, name: str) -> bool:
        if which and self._chosen(which, number):
            self.done[name] += 1
            return True
        return False

    def _corrupted(self, frame: bytes) -> bytes:
        bits = (len(frame) - ETHERNET_SIZE) * 8
        bit = int(self.rng.random() * bits)
        damaged = bytearray(frame)
        damaged[ETHERNET_SIZE + bit // 8] ^= 0x80 >> bit % 8
        return bytes(damaged)

    def _pass(self, frame: bytes) -> None:
        """Hand on, then those that were held back for it."""
        self.sink.take(frame)
        if self._held:
            for held in self._held:
                held.passes -= 1
            ready = [held for held in self._held if held.passes <= 0]
            self._held = [held for held in self._held if held.passes > 0]
            for held in ready:
                self.sink.take(held.frame)

    def _release(self, held: _Held) -> None:
        """The others did not come in time."""
        if any(held is other for other in self._held):
            self._held = [other for other in self._held if other is not held]
            self.sink.take(held.frame)


@dataclass(frozen=True, slots=True)
class TargetFault:
    """`[[faults.target]]`: requests that a target refuses, although they are good (ses.md §10 step 18)."""

    node: str
    fits: Mapping[str, int]
    """Fields of `SesRequest` and their values."""
    packets: frozenset[int] | None
    """Which of the packets that fit, counted from 0; None: all."""
    answer: ReturnCode


def refusals(rules: Iterable[TargetFault]) -> Callable[[SesRequest], ReturnCode | None] | None:
    """What a target asks before it executes a packet: the first rule that hits answers; None without rules."""
    rules = tuple(rules)
    seen = [0] * len(rules)

    def fault(request: SesRequest) -> ReturnCode | None:
        answer = None
        for number, rule in enumerate(rules):
            if all(getattr(request, name) == value for name, value in rule.fits.items()):
                hit = rule.packets is None or seen[number] in rule.packets
                seen[number] += 1
                if hit and answer is None:
                    answer = rule.answer
        return answer

    return fault if rules else None
