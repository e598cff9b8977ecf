# SPDX-License-Identifier: GPL-2.0-only
"""This module defines the rules of an audit. A rule names the event that it judges, its source, and what it requires of
a capture.

A rule never concludes what a capture leaves open. A rule of *presence* finds packets that contradict each other,
whatever is missing. A rule of *absence* depends on a packet that was not seen, and is judged only if the capture is
said to be complete. A rule of *order* depends on the order of capture, and is judged only if the packets are said to be
captured in the order in which they were sent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from uetproto.audit.reader.observed import ObservedPacket

CHOICE = "uetproto choice"
"""Value of `Rule.cite` if no specification states the rule. Findings of such a rule are notes at most."""


class Event(Enum):
    """This class is the base of the enumerations of events that trackers report to the judge."""

    __hash__ = object.__hash__  # that of Enum hashes the name, in Python


class Severity(Enum):
    """This enumeration has the severities of a finding. A finding of a rule that no specification states is a
    note."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Requires(Enum):
    """This enumeration has the promises about a capture that a rule may need. The value is the reason why the rule is
    not judged without the promise."""

    PRESENCE = "needs nothing"
    ABSENCE = "needs --complete"
    ORDER = "needs --ordered"
    REFPROV = "needs --personality refprov"
    """The rule says what this implementation does with packets that are right."""


class Violation(NamedTuple):
    """This verdict says what was expected, what was seen, and which other packets show the violation."""

    expected: str
    seen: str
    others: tuple[int, ...] = ()
    """Numbers of earlier packets that show the violation, such as the first copy. The packet that is judged is not
    among them."""


class Inconclusive(NamedTuple):
    """This verdict says why a rule cannot judge an event."""

    why: str


Verdict = Violation | Inconclusive | None
"""Result of a check. None means that nothing is wrong."""

Check = Callable[[Any, ObservedPacket], Verdict]
"""Type of the check of a rule, which is called with the state that the tracker keeps and with the packet."""


def always(expected: str, seen: str) -> Check:
    """Return a check for an event that is always a violation, whatever the packet is."""
    return lambda state, packet: Violation(expected, seen)


def not_observable(page: str, reasons: Mapping[str, Sequence[int]]) -> tuple[tuple[str, str], ...]:
    """Return the invariants of a protocol page that no packet can contradict, named by page and number as in "pds 1",
    each with the reason."""
    return tuple((f"{page} {number}", reason) for reason, numbers in reasons.items() for number in numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """This record describes a rule: what must hold, at which event it is judged, and which source states it."""

    id: str
    says: str
    """Requirement that the rule checks, in one sentence."""
    cite: str
    on: Enum
    """Event at which the rule is judged."""
    check: Check
    severity: Severity = Severity.ERROR
    requires: Requires = Requires.PRESENCE
    of: Enum | None = None
    """Event whose occurrences are counted as judged. A rule has this event if `on` occurs only for a packet that may be
    wrong. If it is None, the occurrences of `on` are counted."""
    covers: tuple[str, ...] = ()
    """Numbered invariants that the rule covers, such as "pds 20"."""
    obscures: bool = False
    """Whether a packet that breaks the rule may have been sent in place of another packet, which is then missing. After
    such a packet, rules of absence and of order are not judged in the conversation, because their findings could be
    mere consequences."""
