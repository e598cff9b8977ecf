# SPDX-License-Identifier: GPL-2.0-only
"""PSNs that come again in the next PDC: what nothing seen tells from it is no contradiction."""

from collections.abc import Iterable

import pytest

from tests.support.audit.build import PLAIN, PdsAudit
from tests.support.audit.pds_rules import ALL, OPEN, START, Line, ack, close, nack, packets, req, syn
from tests.support.audit.random_refprov import refprov_run, refprov_views
from tests.support.audit.views import capture, is_wrong, told
from tests.support.effort import effort
from uetproto.audit.auditor import audit
from uetproto.audit.pds.tracker_state import AGAIN
from uetproto.audit.reader.options import Options
from uetproto.wire.headers.uet_pds import NackCode

OTHER = {"content": -7}
"""Not what was under that PSN before."""
TWICE = "PDS-PSN-TWO-CONTENTS"
LONG = (*OPEN, req(START + 1, START), req(START + 2, START), req(START + 3, START))
"""A PDC with four packets."""
CONTRADICTION = (*LONG, req(START + 1, START, seen=OTHER, retx=1))
WITH_HOLE = (*CONTRADICTION[:3], *CONTRADICTION[4:])
REUSED = (*OPEN, close(START + 1), ack(START + 1, START + 1), syn(START, seen={"content": 3}))
"""One that is closed, and another that begins with its PSN."""


def judged(lines: Iterable[Line], options: Options = PLAIN) -> tuple[list[int], dict[str, int]]:
    """The packets that have another content than one before, and why the rule rested how often."""
    audit = PdsAudit(options)
    audit.see(packets(lines))
    found = [finding.packet for finding in audit.end() if finding.rule.id == TWICE]
    tally = audit.judge.tallies[TWICE]
    assert tally.failed == len(found)
    return found, dict(tally.not_judged)


def test_nothing_is_missing_between() -> None:
    assert judged(CONTRADICTION) == ([5], {})


def test_something_is_missing_between() -> None:
    """It may be CLOSE_CMD: PSN 1003 would be one of another PDC."""
    assert judged(WITH_HOLE) == ([], {"PSNs between were not seen: it may be of another PDC": 1})
    assert judged(WITH_HOLE, Options(complete=True))[0] == [4], "a packet that was lost, then"


def test_what_follows_is_of_the_other_pdc() -> None:
    found, _ = judged([*WITH_HOLE, req(START + 2, START, seen=OTHER), req(START + 2, START, seen=OTHER, retx=1)])
    assert found == []


def test_hosts_that_use_psns_again() -> None:
    """Which PDC a packet is of, only the order of a complete capture tells."""
    for lines in ((*REUSED, *_of_others(CONTRADICTION)), (*_of_others(CONTRADICTION), *REUSED)):
        assert judged(lines) == ([], {AGAIN: 1})
        assert judged(lines, Options(complete=True)) == ([], {AGAIN: 1})
        assert judged(lines, Options(ordered=True)) == ([], {AGAIN: 1})
        assert len(judged(lines, ALL)[0]) == 1


def test_signs_that_psns_come_again() -> None:
    closing = ack(START + 4, START + 4, form="pds.ack.epsn", expected_psn=START + 1)
    refusal = nack(START, NackCode.NEW_START_PSN, nack_payload=START + 1)
    for sign in (closing, refusal):
        assert judged((*CONTRADICTION, sign))[0] == []
    elsewhere = nack(START, NackCode.NEW_START_PSN, nack_payload=START + 0x10000)
    assert judged((*CONTRADICTION, elsewhere))[0] == [5], "no PSN of the one is near the other"
    behind = ack(START + 4, START + 4, form="pds.ack.epsn", expected_psn=START + 5)
    assert judged((*CONTRADICTION, behind))[0] == [5], "PSNs that were not used"


RUNS = effort(4, 48, 5_000)
SLICES = 4


@pytest.mark.parametrize("part", range(SLICES))
def test_an_implementation_with_the_habit(part: int) -> None:
    """Wherever it is seen, and however little of it: with its personality there are notes, and nothing worse."""
    for seed in range(part, RUNS, SLICES):
        run = refprov_run(seed)
        for view in refprov_views(run):
            report = audit([capture(view.records)], view.options)
            assert [told(seed, view.name, each) for each in report.findings if is_wrong(each)] == []


def test_such_runs_have_psns_again() -> None:
    views = (view for seed in range(4) for view in refprov_views(refprov_run(seed)))
    reports = (audit([capture(view.records)], view.options) for view in views)
    assert any(tally.not_judged[AGAIN] for report in reports for tally in report.tallies.values())


def _of_others(lines: Iterable[Line]) -> list[Line]:
    """The same between other PDCIDs of the hosts."""
    mapped = {"spdcid": {7: 17, 3: 13, 0: 0}, "dpdcid": {7: 17, 3: 13, 0: 0}}
    changed = []
    for src, header, more in lines:
        fields = {name: ids[getattr(header, name)] for name, ids in mapped.items() if name in header._fields}
        changed.append((src, header._replace(**fields), more))
    return changed
