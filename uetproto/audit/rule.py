"""What a rule is: a row that says which event it judges, what it cites, and what it needs to have seen.

A rule never asks what a capture leaves open. *Presence*: packets seen contradict each other, whatever is missing.
*Absence*: it rests on a packet that was not seen, and is judged only of captures that are said to be complete.
*Order*: it rests on the order of capture, and is judged only where that is said to be the order of sending.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from uetproto.audit.reader.observed import ObservedPacket

CHOICE = "uetproto choice"
"""What a rule cites that no source is known for: at most a note."""


class Severity(Enum):
    """How bad it is. Only what a source says can be more than a note."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Requires(Enum):
    """What a capture must promise for a rule to be judged; the value tells why it was not."""

    PRESENCE = "needs nothing"
    ABSENCE = "needs --complete"
    ORDER = "needs --ordered"


class Violation(NamedTuple):
    """What a rule found: what should have been there, what was, and other packets that show it."""

    expected: str
    seen: str
    others: tuple[int, ...] = ()
    """Numbers of earlier packets, such as the first copy; the packet judged comes after them."""


class Inconclusive(NamedTuple):
    """Why a rule cannot judge this one."""

    why: str


Verdict = Violation | Inconclusive | None
"""None: all is well."""

Check = Callable[[Any, ObservedPacket], Verdict]
"""`check(state, seen)`: the tracker's state of whatever it follows, and the packet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of the table."""

    id: str
    says: str
    """One sentence: what must hold."""
    cite: str
    on: Enum
    """The event of a tracker that is judged."""
    check: Check
    severity: Severity = Severity.ERROR
    requires: Requires = Requires.PRESENCE
    of: Enum | None = None
    """The event that counts as judged, where `on` is the rare one that can fail; None: `on`."""
    covers: tuple[str, ...] = ()
    """The numbered invariants that it is about, as "pds 20"."""
