# SPDX-License-Identifier: GPL-2.0-only
"""The behaviours of the reference provider: each fails the tests that are listed with it, and no other."""

import re
from typing import Any

import pytest

from tests.conform.test_faulty_initiators import KNOBS, PATIENCE
from tests.support.conform import AdapterActor, AdapterLink, facts
from tests.support.conform_tss import SealedLink, domain
from tests.support.effort import effort
from tests.support.paths import ROOT
from uetproto.conform.acting import acting
from uetproto.conform.catalogue import INITIATOR, TARGET, TSS, ConformanceTest, load, of_role
from uetproto.conform.coverage import observed_rows
from uetproto.conform.player import ConformanceVerdict, Patience, play
from uetproto.conform.tss.play import play as play_sealed
from uetproto.engine.config import PERSONALITIES
from uetproto.engine.tss.port import CLEAR_NACKS
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.testing.adapters.fep import FepEngine

ROWS = observed_rows()
SEALED = [row for row in ROWS if row.tests and row.tests[0].startswith("UET-TSS-")]
TELLING = [row for row in ROWS if row.tests and row not in SEALED]
TESTS = load()
REFPROV = PERSONALITIES["refprov"]
SETTINGS = {name: value for name, value in (REFPROV["pds"] | REFPROV["ses"]).items() if name != "payload_mtu"}
SHARE = effort(24, 1, 1)
"""One of so many tests that a behaviour does not touch is played beside those that it does."""


class EcnPeer(FepEngine):
    """Our endpoint, with the ECN field that its settings say."""

    def make_framer(self, config: dict[str, Any]) -> UetFramer:  # type: ignore[override]
        return UetFramer(self.address, 4, Encapsulation(), ecn_capable=config["knobs"].get("ecn_capable", True))


def failing(tests: list[ConformanceTest], settings: dict[str, Any], mtu: int = 4096) -> list[str]:
    """Return the ids of the tests that a peer with such settings fails."""
    peer, link, found = facts(payload_mtu=mtu), AdapterLink(EcnPeer, payload_mtu=mtu, knobs=settings), []
    for test in tests:
        if test.role == TARGET:
            new = AdapterLink(EcnPeer, payload_mtu=mtu, knobs=KNOBS | settings)
            outcome = acting(AdapterActor(new)).play(test, new, peer, "1", PATIENCE)
        else:
            outcome = play(test, link, peer, "1", Patience())
        if outcome.verdict is ConformanceVerdict.FAIL:
            found.append(test.id)
    return sorted(found)


def some(listed: set[str], at: int) -> list[ConformanceTest]:
    return [test for number, test in enumerate(TESTS) if test.id in listed or number % SHARE == at % SHARE]


def test_each_row_of_the_page_has_its_place() -> None:
    page = (ROOT / "docs" / "protocol" / "observed.md").read_text(encoding="utf-8")
    table = page.split("## Different from these pages")[1].split("\n\n")[1].splitlines()[2:]
    told = [(line.split("|")[1].strip(), re.findall(r"`(\w+)` = ", line)) for line in table]
    assert [(row.page.replace(".md", ""), [*row.knobs]) for row in ROWS if row.is_row] == told
    assert [row for row in ROWS if bool(row.tests) == bool(row.reason)] == []
    assert {name for row in TELLING for name in row.knobs} <= {*SETTINGS}


@pytest.mark.parametrize("row", TELLING, ids=lambda row: row.knobs[0])
def test_a_behaviour_fails_the_tests_listed_with_it_and_no_other(row: Any) -> None:
    tests = some({*row.tests}, TELLING.index(row))
    assert failing(tests, {name: SETTINGS[name] for name in row.knobs}) == sorted(row.tests)


@pytest.mark.parametrize("row", SEALED, ids=lambda row: row.knobs[0])
def test_a_behaviour_with_keys_fails_the_tests_listed_with_it_and_no_other(row: Any) -> None:
    told = {name: REFPROV["security"][name] for name in row.knobs}
    if "clear_nacks" in told:
        told["clear_nacks"] = [CLEAR_NACKS[name] for name in told["clear_nacks"]]
    link = SealedLink(told=domain(ssis=True), port=told)
    peer = link.facts()
    outcomes = [play_sealed(test, link, peer, "1", Patience()) for test in of_role(load(shipped=TSS), INITIATOR)]
    found = [one.test.id for one in outcomes if one.verdict is not ConformanceVerdict.PASS]
    assert found == [*row.tests]


def test_the_others_are_not_seen_and_all_together_fail_as_each() -> None:
    silent = {name: SETTINGS[name] for row in ROWS if not row.tests for name in row.knobs if name in SETTINGS}
    assert failing(some(set(), 3), silent) == []
    listed = {name for row in TELLING for name in row.tests}
    assert failing(some(listed, 5), SETTINGS, 1024) == sorted(listed)
