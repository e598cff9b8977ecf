# SPDX-License-Identifier: GPL-2.0-only
"""This module judges packets without a PDC, which are RUDI and UUD (pds.md §15, ses.md §5.6, ses.md §15 invariant
33)."""

from typing import Any

from uetproto.audit.finding import opcode_name
from uetproto.audit.pds.tracker_rudi import AuditedDatagram, RudiExchange
from uetproto.audit.pds.tracker_rudi import RudiEvent as E
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.rule import Inconclusive, Requires, Rule, Severity, Verdict, Violation, always
from uetproto.engine.contract import Mode
from uetproto.wire.headers.uet_ses import OPCODE_PROFILES, Opcode

IDEMPOTENT_SAFE = 1 << 63
"""Bit of a memory key, which says that the memory region may be written and read more than once (ses.md §2.6)."""


def _operation(exchange: RudiExchange, seen: ObservedPacket) -> Verdict:
    row = OPCODE_PROFILES.get(getattr(seen.ses, "opcode", None))  # type: ignore[arg-type]
    if row is None:
        return Inconclusive("unknown opcode")
    return None if Mode.RUDI in row.modes else Violation("WRITE or READ", opcode_name(seen.ses.opcode))


def _completion_data(exchange: RudiExchange, seen: ObservedPacket) -> Verdict:
    return Violation("hd 0", "hd 1") if getattr(seen.ses, "hd", 0) else None


def _key(exchange: RudiExchange, seen: ObservedPacket) -> Verdict:
    key = getattr(seen.ses, "memory_key", None)
    if key is None:
        return Inconclusive("no memory key")
    return None if key & IDEMPOTENT_SAFE else Violation("a key with IDEMPOTENT_SAFE", f"{key:#x}")


def _two_contents(exchange: RudiExchange, seen: ObservedPacket) -> Verdict:
    first = exchange.first
    if first is None or None in (first.content, seen.content):
        return Inconclusive("content not known")
    if exchange.answered:
        return Inconclusive("answered")
    if first.content == seen.content:
        return None
    return Violation("the same request again", "another one", (first.number,))


def _unasked(exchange: RudiExchange, seen: ObservedPacket) -> Verdict:
    return Violation(f"a request with pkt_id {exchange.pkt_id}", "none") if exchange.first is None else None


def _datagram_opcode(datagram: AuditedDatagram, seen: ObservedPacket) -> Verdict:
    if seen.ses is None:
        return Inconclusive("no SES header")
    return None if seen.ses.opcode == Opcode.DATAGRAM_SEND else Violation("DATAGRAM_SEND", opcode_name(seen.ses.opcode))


def _datagram_whole(datagram: AuditedDatagram, seen: ObservedPacket) -> Verdict:
    ses = seen.ses
    if ses is None:
        return Inconclusive("no SES header")
    return None if ses.som and ses.eom else Violation("som 1, eom 1", f"som {ses.som}, eom {ses.eom}")


def _datagram_id(datagram: AuditedDatagram, seen: ObservedPacket) -> Verdict:
    number = getattr(seen.ses, "message_id", 0)
    return Violation("message_id 0", f"{number}") if number else None


_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
RUDI = "UE 1.0.1 §3.5.7.3"
UUD = "UE 1.0.1 §3.5.7.4"


def _rule(
    id: str, on: E, check: Any, cite: str, severity: Severity, covers: tuple[str, ...], says: str,
    requires: Requires = Requires.PRESENCE, obscures: bool = False,
) -> Rule:  # fmt: skip
    return Rule(id=id, says=says, cite=cite, on=on, check=check, severity=severity, requires=requires, covers=covers,
                obscures=obscures)  # fmt: skip


RULES: tuple[Rule, ...] = (
    _rule("RUDI-OPERATION", E.REQUEST, _operation, RUDI, _ERROR, ("ses 33",),
          "RUDI carries only operations that may be executed twice: writes and reads."),
    _rule("RUDI-COMPLETION-DATA", E.REQUEST, _completion_data, RUDI, _ERROR, ("ses 33",),
          "A write on RUDI has no completion data."),
    _rule("RUDI-KEY", E.REQUEST, _key, RUDI, _NOTE, ("ses 33",),
          "RUDI accesses memory that may be written and read twice."),
    _rule("RUDI-PKT-ID-TWO-CONTENTS", E.AGAIN, _two_contents, "UE 1.0.1 §3.5.10.8", _WARNING, ("pds 45",),
          "Requests that are not answered have different pkt_ids.", Requires.ABSENCE, obscures=True),
    _rule("RUDI-UNASKED", E.RESPONSE, _unasked, RUDI, _WARNING, ("ses 11",),
          "A response has the pkt_id of a request.", Requires.ABSENCE),
    _rule("RUDI-SILENT", E.SILENT, always("a response", "none"), RUDI, _NOTE, ("ses 11", "pds 45"),
          "A request is answered.", Requires.ABSENCE),
    _rule("UUD-OPCODE", E.DATAGRAM, _datagram_opcode, "UE 1.0.1 §3.4.1.4", _ERROR, (),
          "UUD carries DATAGRAM_SEND only."),
    _rule("UUD-WHOLE", E.DATAGRAM, _datagram_whole, UUD, _ERROR, ("ses 3",),
          "A datagram is one packet."),
    _rule("UUD-MESSAGE-ID", E.DATAGRAM, _datagram_id, UUD, _NOTE, (),
          "The message id of a datagram is 0, because nothing refers to it."),
)  # fmt: skip
