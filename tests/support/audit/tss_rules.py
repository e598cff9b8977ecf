# SPDX-License-Identifier: GPL-2.0-only
"""This module makes lists of sealed packets, and audits them with the TSS rules."""

from collections.abc import Iterable
from typing import Any

from tests.support.audit.build import A, B, head, packet
from tests.support.audit.judge import OnlyJudge
from uetproto.audit.finding import Finding
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.tss.rules import RULES
from uetproto.audit.tss.tracker import TssTracker
from uetproto.engine.tss.keys import DomainConfig, DomainKey, KeyRing

KEYS = ((DomainKey(bytes(32)),), ())
RING = KeyRing({1: DomainConfig(sdi=1, mode="client-server", keys=KEYS, servers=frozenset({B}))})
ALL = Options(complete=True, ordered=True, keys=RING)
Line = tuple[int, int, Head, dict[str, Any]]
"""Type of a packet: sender, receiver, first header, other fields of `ObservedPacket`."""


def sealed(tsc: int, src: int = A, *, content: int | None = None, ssi: int | None = None, **values: int) -> Line:
    """Make a packet from `src` to the other endpoint; `content` determines its bytes, by default its TSC does."""
    form = "tss" if ssi is None else "tss.ssi"
    leads = head(form, sdi=2, tsc=tsc, **({} if ssi is None else {"ssi": ssi}), **values)
    return src, A + B - src, leads, {} if content is None else {"content": content}


def observed(lines: Iterable[Line]) -> list[ObservedPacket]:
    found: list[ObservedPacket] = []
    for src, dst, leads, others in lines:
        number = len({seen.number for seen in found})
        if others.get("inside"):
            found.append(packet(found[-1].number, src, dst, leads))
        else:
            found.append(packet(number, src, dst, leads, **({"content": 1000 + number} | others)))
    return found


class TssAudit:
    def __init__(self, options: Options = ALL) -> None:
        self.judge = OnlyJudge(RULES, complete=options.complete, ordered=options.ordered)
        self.tracker = TssTracker(self.judge, options)

    def see(self, packets: Iterable[ObservedPacket]) -> list[Finding]:
        for seen in packets:
            if getattr(seen.head, "form", "").startswith("tss"):
                self.tracker.see(seen)
            elif self.tracker.any_sealed:
                self.tracker.see_inside(seen)
        self.judge.end()
        return self.judge.findings
