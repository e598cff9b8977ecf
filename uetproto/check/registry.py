"""Which invariants there are, when each is asked, and where it does not hold.

An invariant of pds.md §18 is one function, `pds_NN_name`; its docstring is the statement. It gets what its scope says
(`Scope`) and raises `Violation`. `plan` picks those that hold for a PDC of one configuration and mode.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag
from functools import lru_cache
from typing import Any, TypeVar

from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import PDC_MODES, Mode, PdcClosed
from uetproto.engine.pds.messages import Request


class Violation(AssertionError):  # noqa: N818 - the word of the pages
    """An invariant does not hold; the text begins with its number, as in `pds 13`."""

    def __init__(self, number: str, text: str, *values: Any) -> None:
        self.number = number
        told = " ".join(f"{value:#x}" if type(value) is int else str(value) for value in values)
        super().__init__(f"{number}: {text} {told}".rstrip())


def broken(number: int, text: str, *values: Any) -> Violation:
    """The violation of an invariant of pds.md §18."""
    return Violation(f"pds {number}", text, *values)


class Scope(Enum):
    """What an invariant is about: when it is asked, and its arguments."""

    STEP = "a PDC after a step that touched it: ledger, full (a scan of everything)"
    PACKET = "a packet that leaves: ledger, packet, datagram, sent (None when it consumes no PSN)"
    DELIVERY = "a packet that reaches SES: ledger, psn, SES header, payload"
    OUTCOME = "what SES gets back for a packet: ledger, track, index, error, response"
    END = "a world that has come to rest"
    PAIR = "two runs, or two states"


class Mishap(Flag):
    """What may happen in a run that no protocol survives unharmed."""

    NONE = 0
    FORGED = 1
    """Bytes arrived that nobody sent."""
    RESTARTED = 2
    """An endpoint forgot everything."""
    LOST = 4
    """A destination lost a guaranteed response."""


Knobs = Callable[[PdsConfig, Mode], bool]
Check = Callable[..., None]
_F = TypeVar("_F", bound=Check)


@dataclass(frozen=True, slots=True)
class Invariant:
    """An entry of the register."""

    number: int
    scope: Scope
    check: Check
    kinds: tuple[type, ...]
    """PACKET: what leaves; PdcClosed: from a PDC that is closed. STEP: what arrived, or the event."""
    when: Knobs
    """The knob values, and the modes, under which it holds."""
    void_after: Mishap
    """Mishaps after which nobody can ask for it."""

    @property
    def name(self) -> str:
        return self.check.__name__

    @property
    def statement(self) -> str:
        return self.check.__doc__ or ""


class Source:
    """Kind of a STEP invariant: asked whenever a number of the source half changed."""


class Destination:
    """Kind of a STEP invariant: asked whenever a number of the destination half changed."""


class First:
    """Kind of a PACKET invariant: first transmissions of requests."""


class Copy:
    """Kind of a PACKET invariant: retransmissions of requests."""


class TimePassed:
    """Kind of a STEP invariant: asked whenever time passed."""


_NUMBERS = range(10, 24)
"""Asked first: the others rely on numbers that fit together."""

INVARIANTS: dict[int, Invariant] = {}
"""By number of pds.md §18."""


def with_pdc(config: PdsConfig, mode: Mode) -> bool:
    """RUD and ROD, whatever the knobs."""
    return mode in PDC_MODES


def invariant(
    number: int, scope: Scope, *kinds: type, when: Knobs = with_pdc, void_after: Mishap = Mishap.NONE
) -> Callable[[_F], _F]:
    """Registers `pds_NN_…`."""

    def register(check: _F) -> _F:
        assert check.__name__.startswith(f"pds_{number:02}_"), check.__name__
        assert number not in INVARIANTS, number
        INVARIANTS[number] = Invariant(number, scope, check, kinds, when, void_after)
        return check

    return register


class Plan:
    """The checks for one configuration and mode, ready to be called: no choice is left for the single step."""

    __slots__ = ("arrived", "closed", "copy", "delivery", "destination", "first", "leaves", "outcome", "source", "step")

    def __init__(self, config: PdsConfig, mode: Mode, mishaps: Mishap) -> None:
        everyone = sorted(INVARIANTS.values(), key=lambda i: (i.number not in _NUMBERS, i.number))
        found = [i for i in everyone if i.when(config, mode) and not i.void_after & mishaps]

        def of(scope: Scope, *kinds: type) -> tuple[Check, ...]:
            return tuple(i.check for i in found if i.scope is scope and (not kinds or not {*kinds}.isdisjoint(i.kinds)))

        kinds = {kind for i in found for kind in i.kinds}
        self.source = of(Scope.STEP, Source)
        self.destination = of(Scope.STEP, Destination)
        self.step = of(Scope.STEP, Source, Destination)
        self.first = of(Scope.PACKET, Request, First)
        self.copy = of(Scope.PACKET, Request, Copy)
        self.arrived = {kind: checks for kind in kinds if (checks := of(Scope.STEP, kind))}
        """By type of the packet that arrived, or of the event."""
        self.closed = of(Scope.STEP, PdcClosed)
        self.leaves = {kind: checks for kind in kinds if (checks := of(Scope.PACKET, kind))}
        """By type of the packet that leaves."""
        self.delivery = of(Scope.DELIVERY)
        self.outcome = of(Scope.OUTCOME)


@lru_cache(maxsize=1024)
def plan(config: PdsConfig, mode: Mode, mishaps: Mishap = Mishap.NONE) -> Plan:
    """The plan of all PDCs of this configuration and mode."""
    return Plan(config, mode, mishaps)
