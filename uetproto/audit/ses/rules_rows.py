"""What the rows of rules about messages have in common: what they cite, and the invariants of ses.md §15 they cover."""

from typing import Any

from uetproto.audit.rule import Requires, Rule, Severity
from uetproto.audit.ses.tracker_events import SesEvent

HEADER = "UE 1.0.1 §3.4.2.1"
OPCODES = "UE 1.0.1 §3.4.1.4"
ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


def ses_rule(
    id: str, on: SesEvent, check: Any, cite: str, severity: Severity, covers: tuple[int, ...], says: str,
    of: SesEvent | None = None, requires: Requires = Requires.PRESENCE, also: tuple[str, ...] = (),
) -> Rule:  # fmt: skip
    """A row; `also`: invariants of other pages that it covers."""
    return Rule(
        id=id, says=says, cite=cite, on=on, check=check, severity=severity, requires=requires, of=of,
        covers=(*(f"ses {number}" for number in covers), *also),
    )  # fmt: skip
