# SPDX-License-Identifier: GPL-2.0-only
"""Each deliberate fault of a peer makes exactly those tests fail that are listed with it; a right peer passes all."""

import random
from typing import Any

import pytest

from tests.conform.faulty_engines import ENGINE_FAULTS
from tests.conform.faulty_peers import FAULTS, back, peer_with
from tests.support.conform import FACTS, AdapterLink, facts
from tests.support.effort import effort
from uetproto.conform.catalogue import INITIATOR, ConformanceTest, load, of_role
from uetproto.conform.coverage import covering, page_rows
from uetproto.conform.packets import PacketCraft, PeerFacts
from uetproto.conform.player import ConformanceVerdict, Patience, judge, play, round_trip
from uetproto.wire.stack import decode, encode

TESTS = of_role(load(), INITIATOR)
ALL_FAULTS = FAULTS | ENGINE_FAULTS
SHARE = effort(12, 1, 1)
"""One of so many tests that a fault does not touch is played beside those that it does."""


def verdicts(link: AdapterLink, tests: list[ConformanceTest], peer: PeerFacts = FACTS) -> dict[str, list[str]]:
    """Play tests. Returns the ids by verdict."""
    found: dict[str, list[str]] = {}
    for test in tests:
        found.setdefault(play(test, link, peer, "1", Patience()).verdict.value, []).append(test.id)
    return found


@pytest.mark.parametrize("how", [{}, {"udp": False}, {"crc": False}], ids=["udp", "native", "no CRC"])
def test_our_endpoint_passes_all_tests(how: dict[str, bool]) -> None:
    found = verdicts(AdapterLink(**how), TESTS, facts(**how))
    assert found.pop("pass")
    assert found == ({"inconclusive": ["UET-ENC-001", "UET-ENC-004"]} if how.get("crc") is False else {})


def test_each_test_closes_its_pdcs() -> None:
    """A peer that is tested again and again keeps no PDCs of earlier tests, whose PDCIDs would be taken."""
    link = AdapterLink()
    left = {}
    for test in TESTS:
        play(test, link, FACTS, "1", Patience())
        left[test.id] = len(link.adapter.fep.pds.pdcs)
    assert {name: count for name, count in left.items() if count} == {}


def test_a_peer_with_another_address_passes() -> None:
    """The tests know the peer from its facts alone: another job, PIDonFEP, index, key, base and payload MTU."""
    place = {"job_id": 77, "pid_on_fep": 5, "resource_index": 9, "payload_mtu": 1024}
    link = AdapterLink(regions=[{"key": 12, "size": 1 << 15, "fill": 3}], **place)
    assert [*verdicts(link, TESTS, facts(key=12, length=1 << 15, **place))] == ["pass"]


def test_there_are_sixty_faults() -> None:
    """Each test number that a fault lists is that of a test, and no fault is there twice."""
    assert len(ALL_FAULTS) == len(FAULTS) + len(ENGINE_FAULTS) >= 60
    ids = {test.id for test in TESTS}
    assert [name for name, fault in ALL_FAULTS.items() if not fault.failing or not ids.issuperset(fault.failing)] == []


@pytest.mark.parametrize("name", ALL_FAULTS)
def test_a_fault_fails_the_tests_listed_with_it_and_no_other(name: str) -> None:
    fault = ALL_FAULTS[name]
    first = list(ALL_FAULTS).index(name) % SHARE
    tests = [test for at, test in enumerate(TESTS) if test.id in fault.failing or at % SHARE == first]
    found = verdicts(AdapterLink(peer_with(fault)), tests)
    assert tuple(found.get("fail", ())) == fault.failing
    assert "inconclusive" not in found


def test_what_a_peer_does_not_have_is_not_asked() -> None:
    peer = facts(without=frozenset(("read", "rudi", "fetch")))
    found = verdicts(AdapterLink(), TESTS, peer)
    sends = {test.id: " ".join(str(step.get("send")) for step in test.steps) for test in TESTS}
    expected = [name for name, text in sends.items() if any(word in text.split() for word in peer.without)]
    assert len(expected) > 15
    assert found["inconclusive"] == expected
    assert "fail" not in found


def test_a_peer_that_answers_nothing_is_inconclusive() -> None:
    class Silent(AdapterLink):
        def send(self, frame: bytes) -> None:
            pass

    link = Silent()
    assert round_trip(link, FACTS, "1", Patience()) is None
    outcome = judge(TESTS[0], link, FACTS, "1", Patience())
    assert outcome.verdict is ConformanceVerdict.INCONCLUSIVE
    assert "answers nothing" in outcome.reason


class LossyLink(AdapterLink):
    """A link that loses one packet of fifty, in both directions."""

    def __init__(self, *arguments: Any, **config: Any) -> None:
        super().__init__(*arguments, **config)
        self.rng = random.Random(11)

    def send(self, frame: bytes) -> None:
        if self.rng.random() >= 0.02:
            super().send(frame)

    def receive(self, until: int) -> bytes | None:
        while (frame := super().receive(until)) is not None and self.rng.random() < 0.02:
            pass
        return frame


def test_loss_changes_no_verdict_with_several_tries() -> None:
    link = LossyLink()
    outcomes = [judge(test, link, FACTS, "2", Patience(), 6) for test in TESTS[:: effort(2, 1, 1)]]
    assert {outcome.verdict for outcome in outcomes} == {ConformanceVerdict.PASS}
    assert max(outcome.tries for outcome in outcomes) > 1
    fault = FAULTS["another mode gets UNEXP_EVENT"]
    link = LossyLink(peer_with(fault))
    failing = [test for test in TESTS if test.id in fault.failing]
    assert {judge(test, link, FACTS, "2", Patience(), 6).verdict for test in failing} == {ConformanceVerdict.FAIL}


def test_garbage_of_a_peer_is_a_verdict_and_no_error() -> None:
    """What answers is damaged at random: bits, length, or other bytes behind its lower headers."""
    rng = random.Random(5)

    class Garbage(AdapterLink):
        def receive(self, until: int) -> bytes | None:
            frame = super().receive(until)
            if frame is None or rng.random() < 0.5:
                return frame
            at = rng.randrange(14, len(frame))
            return rng.choice(
                (frame[:at], frame[:at] + rng.randbytes(1) + frame[at + 1 :], frame[:42] + rng.randbytes(at))
            )

    link = Garbage()
    verdicts = [play(test, link, FACTS, str(turn), Patience()).verdict for turn in range(2) for test in TESTS[::2]]
    assert {*verdicts} == {ConformanceVerdict.PASS, ConformanceVerdict.FAIL}


def test_a_peer_that_floods_ends_a_test() -> None:
    class Flood(AdapterLink):
        first: bytes | None = None

        def receive(self, until: int) -> bytes | None:
            return self.first if self.now < 10**15 else None

        def send(self, frame: bytes) -> None:
            self.first = frame

    [test] = [test for test in TESTS if test.id == "UET-PDS-003"]
    outcome = play(test, Flood(), FACTS, "1", Patience())
    assert outcome.verdict is ConformanceVerdict.FAIL
    assert len(outcome.frames) < 10_000


def test_what_came_before_a_test_is_not_counted() -> None:
    """A flood that has ended fails the test that it met, and no later one."""
    link = AdapterLink()
    stray = encode(back(decode(PacketCraft(FACTS, random.Random(1), lambda value: value).frame(
        {"send": "noop", "psn": 1, "syn": 1}, {"us": 1, "start": 1})), "pds.nack", dpdcid=9), fill=True)  # fmt: skip
    for test in TESTS[:3]:
        link.waiting.extend((link.now, stray) for _ in range(6000))
        assert play(test, link, FACTS, "1", Patience()).verdict is ConformanceVerdict.PASS


def test_one_seed_gives_one_trace() -> None:
    def frames(seed: str) -> list[bytes]:
        link = AdapterLink()
        return [frame.data for test in TESTS[:20] for frame in play(test, link, FACTS, seed, Patience()).frames]

    assert frames("5") == frames("5") != frames("6")


def test_what_tests_cover_are_rows_of_the_coverage_table() -> None:
    rows = {row.name for row in page_rows()}
    covered = covering()
    assert {*covered} <= rows
    assert len(rows) == len(page_rows())
    assert [row.name for row in page_rows() if row.reason and row.name in covered] == []
    assert [test.id for test in load() if not test.covers] == []
    assert [row.name for row in page_rows() if not row.reason and row.name not in covered] == []


def test_each_ladder_is_driven_or_says_why_not() -> None:
    ladders = [row for row in page_rows() if row.how]
    assert [row.name for row in ladders] == [f"pds 19: L{number:02}" for number in range(1, 31)]
    covered = covering()
    assert [row.name for row in ladders if (row.how == "driven") != (row.name in covered)] == []
    assert [row.name for row in ladders if (row.how == "driven") == bool(row.reason)] == []
