# SPDX-License-Identifier: GPL-2.0-only
"""This module has what the rules about messages share: the sections that they cite, the names of return codes, and a
function that makes a rule."""

from typing import Any

from uetproto.audit.rule import Requires, Rule, Severity
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.wire.headers.uet_ses import ReturnCode

HEADER = "UE 1.0.1 §3.4.2.1"
OPCODES = "UE 1.0.1 §3.4.1.4"
ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
_CODES: dict[int, str] = {code: code.name for code in ReturnCode}


def code_name(code: int) -> str:
    """Return the name of a return code for the text of a finding; an unknown code is named by its number."""
    return _CODES.get(code, f"return code {code:#04x}")


def ses_rule(
    id: str, on: SesEvent, check: Any, cite: str, severity: Severity, covers: tuple[int, ...], says: str,
    of: SesEvent | None = None, requires: Requires = Requires.PRESENCE, also: tuple[str, ...] = (),
) -> Rule:  # fmt: skip
    """Return a rule about messages. `covers` holds the numbers of invariants of ses.md §15, and `also` names invariants
    of other pages."""
    return Rule(
        id=id, says=says, cite=cite, on=on, check=check, severity=severity, requires=requires, of=of,
        covers=(*(f"ses {number}" for number in covers), *also),
    )  # fmt: skip
