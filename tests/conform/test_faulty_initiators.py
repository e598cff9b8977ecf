# SPDX-License-Identifier: GPL-2.0-only
"""The peer as initiator: a right one passes all tests, and each fault makes exactly those fail that are listed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.conform.faulty_initiators import FAULTS
from tests.conform.faulty_peers import ACKS, FaultyPeer, peer_with
from tests.support.conform import FACTS, AdapterActor, AdapterLink, facts
from tests.support.conform_tss import SealedLink
from tests.support.effort import effort
from uetproto.conform.acting import acting
from uetproto.conform.catalogue import TARGET, TSS, ConformanceTest, load, of_role
from uetproto.conform.packets import PeerFacts
from uetproto.conform.player import ConformanceVerdict, Outcome, Patience, judge, play
from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.testing.adapters.fep import FepEngine
from uetproto.wire.packet import Packet

TESTS = of_role(load(), TARGET)
SHARE = effort(8, 1, 1)
"""One of so many tests that a fault does not touch is played beside those that it does."""
PATIENCE = Patience(end=2 * SECOND)
KNOBS = {"max_rto_retx_cnt": 5}


def played(
    test: ConformanceTest, make: type[FepEngine] = FepEngine, peer: PeerFacts = FACTS, seed: str = "1",
    **config: object,
) -> Outcome:  # fmt: skip
    """Play a test against a new endpoint that does what the test wants."""
    link = AdapterLink(make, knobs=KNOBS, **config)
    return acting(AdapterActor(link)).play(test, link, peer, seed, PATIENCE)


def verdicts(tests: list[ConformanceTest], make: type[FepEngine] = FepEngine) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for test in tests:
        found.setdefault(played(test, make).verdict.value, []).append(test.id)
    return found


@pytest.mark.parametrize("how", [{}, {"udp": False}, {"crc": False}], ids=["udp", "native", "no CRC"])
def test_our_endpoint_passes_all_tests(how: dict[str, bool]) -> None:
    tests = TESTS[:: effort(3, 1, 1)] if how else TESTS
    failed = {test.id: outcome for test in tests if (outcome := played(test, peer=facts(**how), **how)).reason}
    assert {name: one.reason for name, one in failed.items() if one.verdict is ConformanceVerdict.FAIL} == {}
    lacking = {"UET-INI-070"} if how.get("crc") is False else set()
    assert {*failed} <= lacking


def test_there_are_enough_tests() -> None:
    assert len(TESTS) >= 25
    assert [test.id for test in TESTS if not test.covers] == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_fails_the_tests_listed_with_it_and_no_other(name: str) -> None:
    fault = FAULTS[name]
    assert fault.failing
    first = list(FAULTS).index(name) % SHARE
    tests = [test for at, test in enumerate(TESTS) if test.id in fault.failing or at % SHARE == first]
    found = verdicts(tests, peer_with(fault))
    assert tuple(found.get("fail", ())) == fault.failing
    assert "inconclusive" not in found


def test_without_an_actor_or_an_act_a_test_is_inconclusive() -> None:
    outcome = play(TESTS[0], AdapterLink(), FACTS, "1", PATIENCE)
    assert (outcome.verdict, outcome.reason) == (
        ConformanceVerdict.INCONCLUSIVE,
        "nobody makes the peer act (--as target)",
    )

    class Idle(AdapterActor):
        def begin(self, act: object) -> None: ...

    link = AdapterLink()
    outcome = judge(TESTS[0], link, FACTS, "1", PATIENCE, 3, acting(Idle(link)))
    assert outcome.verdict is ConformanceVerdict.INCONCLUSIVE
    assert outcome.silent
    assert "the peer did not act" in outcome.reason
    assert link.now <= PATIENCE.act + PATIENCE.silence


def test_a_peer_with_its_own_bytes_passes_if_data_is_not_compared() -> None:
    class Own(AdapterActor):
        def begin(self, act: object) -> None:
            super().begin(replace(act, data=bytes(len(act.data))))  # type: ignore[type-var,attr-defined]

    [test] = [test for test in TESTS if test.id == "UET-INI-061"]
    for peer, verdict in (
        (FACTS, ConformanceVerdict.FAIL),
        (facts(without=frozenset(("data",))), ConformanceVerdict.PASS),
    ):
        link = AdapterLink()
        assert acting(Own(link)).play(test, link, peer, "1", PATIENCE).verdict is verdict


def no_acks(peer: FaultyPeer, packet: Packet, pds: dict[str, Any]) -> Iterator[Packet]:
    if pds["type"] not in ACKS:
        yield packet


def test_what_was_on_its_way_is_not_forbidden() -> None:
    """A peer whose RTO is shorter than our answer takes sends again before it knows; a peer that goes on is found."""
    [test] = [test for test in TESTS if test.id == "UET-INI-007"]

    class Slow(AdapterLink):
        """Our packets arrive 2 ms later, and the RTO is 1 ms."""

        def send(self, frame: bytes) -> None:
            while (due := self.adapter.due) is not None and self.now + due < self.late:
                self._advance(due)
                self.poll()
            super().send(frame)

        @property
        def late(self) -> int:
            return self.now + 2 * MILLISECOND

    for patience, verdict in ((PATIENCE, ConformanceVerdict.FAIL),
                              (replace(PATIENCE, grace=3 * MILLISECOND), ConformanceVerdict.PASS)):  # fmt: skip
        link = Slow(knobs=KNOBS)
        assert acting(AdapterActor(link)).play(test, link, FACTS, "1", patience).verdict is verdict
    deaf = peer_with(FAULTS["CLOSE_REQ is ignored"]._replace(arrives=no_acks))
    link = AdapterLink(deaf, knobs=KNOBS)
    outcome = acting(AdapterActor(link)).play(test, link, FACTS, "1", replace(PATIENCE, grace=3 * MILLISECOND))
    assert (outcome.verdict, "forbidden" in outcome.reason) == (ConformanceVerdict.FAIL, True)


def test_a_sealed_initiator_passes_what_can_be_sealed() -> None:
    tests = [*TESTS[:: effort(6, 1, 1)], *of_role(load(shipped=TSS), TARGET)]
    lacking = {"UET-INI-058", "UET-INI-068", "UET-INI-070"}
    for test in tests:
        link = SealedLink(knobs={**KNOBS, "secure_start": "expected"})
        outcome = acting(AdapterActor(link)).play(test, link, link.facts(), "1", PATIENCE)
        expected = ConformanceVerdict.INCONCLUSIVE if test.id in lacking else ConformanceVerdict.PASS
        assert (test.id, outcome.verdict, outcome.reason if expected is ConformanceVerdict.PASS else "") == (
            test.id, expected, ""
        )  # fmt: skip


def test_a_peer_that_acts_and_floods_ends_a_test() -> None:
    """Also if it floods once all steps are over, and its act never ends."""

    class Flood(FepEngine):
        def poll(self) -> list[bytes]:
            return [one for frame in super().poll() for one in (frame, *[frame[:42]] * 5000)]

    for test in TESTS[:3]:
        outcome = played(test, Flood)
        assert (outcome.verdict, "floods" in outcome.reason) == (ConformanceVerdict.FAIL, True)
        assert len(outcome.frames) < 10_000
