# SPDX-License-Identifier: GPL-2.0-only
"""Fuzzing of a peer with keys: ours is clean, and each deliberate fault of sealed packets is found by a small test."""

from pathlib import Path

import pytest

from tests.conform.faulty_sealed_peers import SEALED_FAULTS, sealed_link_with
from tests.support.conform_tss import SealedLink, domain
from tests.support.effort import effort
from uetproto.conform.catalogue import load
from uetproto.conform.fuzz.search import FUZZED_UET, PeerFuzz, as_toml
from uetproto.conform.player import ConformanceVerdict, Patience
from uetproto.conform.tss.play import SEALED, play

FUZZED = FUZZED_UET._replace(suite=SEALED)


@pytest.mark.parametrize("told", [domain(ssis=True), domain("cluster", both=False)], ids=["direct", "cluster"])
def test_our_endpoint_is_clean(told: object) -> None:
    link = SealedLink(told=told)  # type: ignore[arg-type]
    fuzz = PeerFuzz(link, link.facts(), Patience(), "1", fuzzed=FUZZED)
    episodes = effort(20, 300, 2000)
    assert [one.outcome.reason for one in fuzz.run(lambda: fuzz.tally.episodes >= episodes)] == []
    assert (fuzz.tally.failed, fuzz.tally.not_again) == (0, [])


@pytest.mark.parametrize("name", [*SEALED_FAULTS][:: effort(4, 1, 1)])
def test_a_faulty_peer_is_found_and_its_test_is_small(name: str, tmp_path: Path) -> None:
    link = sealed_link_with(SEALED_FAULTS[name])
    fuzz = PeerFuzz(link, link.facts(), Patience(), "1", fuzzed=FUZZED)
    finding = next(fuzz.run(lambda: fuzz.tally.episodes >= 100))
    file = tmp_path / "found.toml"
    file.write_text(as_toml(finding.test, finding.outcome.reason), encoding="utf-8")
    [test] = load([file])
    assert (len(test.steps) <= 6, test.needs[0]) == (True, "keys")
    again, right = sealed_link_with(SEALED_FAULTS[name]), SealedLink(told=domain(ssis=True))
    verdicts = [play(test, one, one.facts(), "1", Patience()).verdict for one in (again, right)]
    assert verdicts[1] is ConformanceVerdict.PASS
    assert verdicts[0] is ConformanceVerdict.FAIL
