"""A rule is a row of a table: it names the event that it judges, its source, and what it requires of a capture.

A rule never concludes what a capture leaves open. *Presence*: packets that were seen contradict each other, whatever is
missing. *Absence*: the rule depends on a packet that was not seen, and is judged only if the capture is said to be
complete. *Order*: the rule depends on the order of capture, and is judged only if that is said to be the order of
sending.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from uetproto.audit.reader.observed import ObservedPacket

CHOICE = "uetproto choice"
"""Source of a rule that no specification states: its findings are notes at most."""


class Event(Enum):
    """Names what a tracker tells the judge."""

    __hash__ = object.__hash__  # that of Enum hashes the name, in Python


class Severity(Enum):
    """This enumeration tells how severe a finding is. Only findings of rules that cite a source can be more than
    notes."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Requires(Enum):
    """This enumeration has the promises about a capture that a rule may need; the value says why the rule was not
    judged."""

    PRESENCE = "needs nothing"
    ABSENCE = "needs --complete"
    ORDER = "needs --ordered"


class Violation(NamedTuple):
    """A violation says what was expected, what was seen, and which other packets show it."""

    expected: str
    seen: str
    others: tuple[int, ...] = ()
    """Numbers of earlier packets, such as the first copy; the packet judged is not among them."""


class Inconclusive(NamedTuple):
    """The verdict of a rule that cannot judge an event; it says why."""

    why: str


Verdict = Violation | Inconclusive | None
"""Result of a check; None: nothing is wrong."""

Check = Callable[[Any, ObservedPacket], Verdict]
"""A check is called with the state that the tracker keeps, and with the packet."""


def always(expected: str, seen: str) -> Check:
    """Return a check for an event that is a violation with any packet."""
    return lambda state, packet: Violation(expected, seen)


def not_observable(page: str, reasons: Mapping[str, Sequence[int]]) -> tuple[tuple[str, str], ...]:
    """Return the numbered invariants of a page that no packet can contradict, as "pds 1", each with the reason."""
    return tuple((f"{page} {number}", reason) for reason, numbers in reasons.items() for number in numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule is one row of a table: what must hold, at which event, and according to which source."""

    id: str
    says: str
    """Requirement that the rule checks, in one sentence."""
    cite: str
    on: Enum
    """Event at which the rule is asked."""
    check: Check
    severity: Severity = Severity.ERROR
    requires: Requires = Requires.PRESENCE
    of: Enum | None = None
    """Event whose count is the number of judged events, if `on` occurs only where a packet may be wrong; None: `on` is
    counted."""
    covers: tuple[str, ...] = ()
    """Numbered invariants that the rule covers, such as "pds 20"."""
    obscures: bool = False
    """Whether a packet that the rule finds may have been sent in place of another one, which is then missing. After
    such a packet, rules of absence and of order are not judged in its conversation, as their findings would only be
    consequences of that packet."""
