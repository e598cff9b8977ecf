# SPDX-License-Identifier: GPL-2.0-only
"""This module makes lists of RUDI and UUD packets, and audits them with the rules for these modes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.support.audit.build import A, B, head, packet
from tests.support.audit.judge import OnlyJudge
from tests.support.audit.ses_rules import part, rsp
from uetproto.audit.finding import Finding
from uetproto.audit.flows import SILENT
from uetproto.audit.pds.rules_rudi import IDEMPOTENT_SAFE, RULES
from uetproto.audit.pds.tracker_rudi import RudiTracker
from uetproto.audit.reader.observed import Head
from uetproto.audit.reader.options import Options
from uetproto.audit.ses.rules import RULES as SES_RULES
from uetproto.audit.ses.tracker import SesTracker

ALL = Options(complete=True, ordered=True)
KEY = IDEMPOTENT_SAFE | 7


class Line(NamedTuple):
    """A line is a packet: its sender, its header and its payload."""

    src: int
    head: Head
    ses: Head
    content: int
    size: int = 64


class Bench:
    """This class audits RUDI and UUD alone."""

    def __init__(self, options: Options = ALL) -> None:
        self.judge = OnlyJudge(RULES + SES_RULES, complete=options.complete)
        self.tracker = RudiTracker(self.judge, options, SesTracker(self.judge, options))

    def see(self, lines: Sequence[Line]) -> list[Finding]:
        for number, line in enumerate(lines):
            self.tracker.see(
                packet(number, line.src, A + B - line.src, line.head, line.content, ses=line.ses, size=line.size)
            )
        self.tracker.sweep(2 * SILENT)
        self.judge.end()
        return self.judge.findings


def found(lines: Sequence[Line]) -> list[tuple[str, int]]:
    return [(finding.rule.id, finding.packet) for finding in Bench().see(lines)]


def req(pkt_id: int = 1, k: int = 0, content: int = 0, length: int = 64, retx: int = 0, **fields: Any) -> Line:
    line = part(k, length=length, **{"memory_key": KEY, **fields})
    leads = head("pds.rudi_req", next_hdr=3, pkt_id=pkt_id, retx=retx)
    return Line(A, leads, line.ses, content, line.size)


def answer(pkt_id: int = 1, **fields: Any) -> Line:
    return Line(B, head("pds.rudi_resp", next_hdr=4, pkt_id=pkt_id), rsp(**{"modified_length": 64, **fields}).ses, 0, 0)
