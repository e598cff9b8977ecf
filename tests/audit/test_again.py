"""PSNs that come again in the next PDC: what nothing seen tells from it is no contradiction."""

from collections.abc import Iterable

from tests.audit.build import PLAIN, PdsAudit
from tests.audit.test_rules_pds import ALL, OPEN, START, Line, ack, close, nack, packets, req, syn
from uetproto.audit.options import Options
from uetproto.wire.uet_pds import NackCode

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
    return found, dict(tally.rested)


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
    again = "PSNs of a PDC come again in the next: needs --complete and --ordered"
    for lines in ((*REUSED, *_of_others(CONTRADICTION)), (*_of_others(CONTRADICTION), *REUSED)):
        assert judged(lines) == ([], {again: 1})
        assert judged(lines, Options(complete=True)) == ([], {again: 1})
        assert judged(lines, Options(ordered=True)) == ([], {again: 1})
        assert len(judged(lines, ALL)[0]) == 1


def test_signs_that_psns_come_again() -> None:
    closing = ack(START + 4, START + 4, form="pds.ack.epsn", expected_psn=START + 1)
    refusal = nack(START, NackCode.NEW_START_PSN, nack_payload=START + 1)
    for sign in (closing, refusal):
        assert judged((*CONTRADICTION, sign))[0] == []
    later = nack(START, NackCode.NEW_START_PSN, nack_payload=START + 9_000)
    assert judged((*CONTRADICTION, later))[0] == [5], "PSNs that were not used yet"


def _of_others(lines: Iterable[Line]) -> list[Line]:
    """The same between other PDCIDs of the hosts."""
    mapped = {"spdcid": {7: 17, 3: 13, 0: 0}, "dpdcid": {7: 17, 3: 13, 0: 0}}
    changed = []
    for src, header, more in lines:
        fields = {name: ids[getattr(header, name)] for name, ids in mapped.items() if name in header._fields}
        changed.append((src, header._replace(**fields), more))
    return changed
