# SPDX-License-Identifier: GPL-2.0-only
"""With keys: each deliberate fault of a peer makes exactly those tests of sealed packets fail that are listed with it;
a right peer passes these and all tests of UET, in each mode."""

from pathlib import Path

import pytest

from tests.conform.faulty_sealed_peers import SEALED_FAULTS, sealed_link_with
from tests.support.conform import FACTS, AdapterLink
from tests.support.conform_tss import SealedLink, domain
from tests.support.effort import effort
from uetproto.conform.catalogue import INITIATOR, TSS, ConformanceTest, load, of_role
from uetproto.conform.player import ConformanceVerdict, Patience, round_trip
from uetproto.conform.player import play as play_plain
from uetproto.conform.tss.play import SEALED, play
from uetproto.engine.tss.keys import DomainConfig
from uetproto.errors import LocalError

TESTS = of_role(load(shipped=TSS), INITIATOR)
UET = of_role(load(), INITIATOR)
NOT_SEALED = ("crc", "trimming", "any_start")
"""What sealed packets do not have, nor PDCs of them."""


def verdicts(link: SealedLink, tests: list[ConformanceTest], seed: str = "1") -> dict[str, list[str]]:
    """Play tests. Returns the ids by verdict."""
    facts, found = link.facts(), dict[str, list[str]]()
    for test in tests:
        found.setdefault(play(test, link, facts, seed, Patience()).verdict.value, []).append(test.id)
    return found


MODES = {
    "direct": domain(ssis=True), "cluster": domain("cluster", ssis=True),
    "cluster, rekey": domain("cluster", ssis=True, rekey_mask=0xC, rekey_shift=2),
    "clear PDS header": domain(ssis=True, crypto_offset=28),
    "client-server": domain("client-server"),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_our_endpoint_passes_all_tests_of_sealed_packets(mode: str) -> None:
    without = [test.id for test in TESTS if "ssi" in test.needs and not MODES[mode].ssis]
    found = verdicts(SealedLink(told=MODES[mode]), TESTS)
    assert found.pop("inconclusive", []) == without
    assert [*found] == ["pass"]


@pytest.mark.parametrize(
    ("told", "udp"), [(domain(ssis=True), True), (domain("cluster"), False)], ids=["udp", "native"]
)
def test_all_tests_of_uet_pass_with_sealed_packets(told: DomainConfig, udp: bool) -> None:
    lacking = (*NOT_SEALED, *(() if udp else ("udp",)))
    left_out = [test.id for test in UET if any(name in test.needs for name in lacking)]
    found = verdicts(SealedLink(told=told, udp=udp), UET[:: effort(2, 1, 1)])
    assert {*found.pop("inconclusive")} <= {*left_out}
    assert [*found] == ["pass"]
    assert len(found["pass"]) > effort(50, 100, 100)


@pytest.mark.parametrize("name", SEALED_FAULTS)
def test_a_fault_fails_the_tests_listed_with_it_and_no_other(name: str) -> None:
    found = verdicts(sealed_link_with(SEALED_FAULTS[name]), TESTS)
    assert tuple(found.get("fail", ())) == SEALED_FAULTS[name].failing
    assert SEALED_FAULTS[name].failing
    assert "inconclusive" not in found


def test_most_tests_fail_for_some_fault() -> None:
    assert {name for fault in SEALED_FAULTS.values() for name in fault.failing} >= {
        test.id for test in TESTS if test.id != "UET-TSS-010"
    }


def test_a_peer_with_another_key_answers_nothing() -> None:
    link = SealedLink(told=domain("cluster"))
    facts = SealedLink(told=domain("direct")).facts()
    assert round_trip(link, facts, "1", Patience(), SEALED) is None


def test_what_a_peer_demands_is_learned_at_the_first_question() -> None:
    """A peer that was tested before accepts higher PSNs alone; a new program learns which."""
    link = SealedLink()
    assert verdicts(link, TESTS[:1]) == {"pass": [TESTS[0].id]}
    facts = link.facts()
    assert facts.security is not None
    facts.security._counter = 1 << 20  # no nonce twice
    facts.security.floor = 1 << 31
    assert round_trip(link, facts, "2", Patience(), SEALED)
    assert play(TESTS[0], link, facts, "2", Patience()).verdict is ConformanceVerdict.PASS


def test_without_keys_no_test_of_sealed_packets_is_played() -> None:
    outcomes = [play_plain(test, AdapterLink(), FACTS, "1", Patience()) for test in TESTS]
    assert {outcome.verdict for outcome in outcomes} == {ConformanceVerdict.INCONCLUSIVE}
    assert {outcome.reason for outcome in outcomes} == {"packets are not sealed (--keys)"}


def test_one_seed_gives_one_trace() -> None:
    def frames(seed: str) -> list[bytes]:
        link = SealedLink()
        facts = link.facts()
        return [frame.data for test in TESTS for frame in play(test, link, facts, seed, Patience()).frames]

    assert frames("5") == frames("5") != frames("6")


@pytest.mark.parametrize(("wrong", "told"), [
    ("tss = 5", "tss 5|tss: 5"), ("tss = { sid = 1 }", "sid: is no field of tss"), ("tss = { an = 2 }", "an"),
    ("changed = 7", "tss: 7"), ('tss = { epoch = "epox" }', "no variable 'epox'"), ('icv = "bad"', "icv"),
    ('copy = "none"', "copy: 'none'"),
])  # fmt: skip
def test_a_wrong_value_is_told_with_its_step(tmp_path: Path, wrong: str, told: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[test]]\nid = "MINE-1"\nsection = "tss.md §9"\npurpose = "A NOOP is acknowledged."\n'
        f'steps = [{{ send = "noop", psn = "start", syn = 1, {wrong} }}, {{ expect = "ack" }}]\n',
        encoding="utf-8",
    )
    link = SealedLink()
    [test] = load([file])
    assert "keys" in test.needs
    with pytest.raises(LocalError, match=rf"mine.toml:1: MINE-1, step 1: .*({told})"):
        play(test, link, link.facts(), "1", Patience())
