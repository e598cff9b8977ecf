# SPDX-License-Identifier: GPL-2.0-only
"""Each deliberate fault of a peer of RoCE makes exactly those tests fail that are listed with it; a right peer passes
all."""

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.conform.faulty_roce_peers import ROCE_FAULTS, roce_peer_with
from tests.support.conform_roce import RoceLink, RocePeer
from tests.support.effort import effort
from uetproto.cli.live.tested_pairs import AskedPairs
from uetproto.conform.catalogue import INITIATOR, ConformanceTest, load, of_role
from uetproto.conform.catalogue import ROCE as FOLDER
from uetproto.conform.player import ConformanceVerdict, Patience, judge, round_trip
from uetproto.conform.roce.hand import HandPairs
from uetproto.conform.roce.packets import RoceFacts
from uetproto.conform.roce.pairs import OpenPair, PeerMemory
from uetproto.conform.roce.play import ROCE, gentle_first, play
from uetproto.errors import RemoteError

TESTS = of_role(load(shipped=FOLDER), INITIATOR)
SHARE = effort(8, 1, 1)
"""One of so many tests that a fault does not touch is played beside those that it does."""


def verdicts(peer: RocePeer, tests: list[ConformanceTest], facts: RoceFacts | None = None) -> dict[str, list[str]]:
    """Play tests. Returns the ids by verdict."""
    link, found = RoceLink(peer), dict[str, list[str]]()
    for test in tests:
        found.setdefault(play(test, link, facts or peer.facts, "1", Patience()).verdict.value, []).append(test.id)
    return found


@pytest.mark.parametrize(
    "how",
    [{}, {"version": 6}, {"path_mtu": 1024, "ack_coalesce": 4, "ack_delay": 1000}],
    ids=["ipv4", "ipv6", "coalesced"],
)
def test_our_adapter_passes_all_tests(how: dict[str, int]) -> None:
    assert verdicts(RocePeer(**how), TESTS) == {"pass": [test.id for test in TESTS]}


def test_what_the_pages_let_choose_passes() -> None:
    """Our adapter with the other value of each **choice** of roce.md."""
    choices = {
        "psn_nak": "every", "check_order": "alignment_first", "duplicate_write": "requested", "credits": False, "m": 0,
        "ud_ipv4_fill": 9,
    }  # fmt: skip
    assert [*verdicts(RocePeer(**choices), TESTS)] == ["pass"]


@pytest.mark.parametrize("name", ROCE_FAULTS)
def test_a_fault_fails_the_tests_listed_with_it_and_no_other(name: str) -> None:
    fault = ROCE_FAULTS[name]
    first = list(ROCE_FAULTS).index(name) % SHARE
    tests = [test for at, test in enumerate(TESTS) if test.id in fault.failing or at % SHARE == first]
    found = verdicts(roce_peer_with(fault), tests)
    assert tuple(found.get("fail", ())) == fault.failing
    assert fault.failing
    assert "inconclusive" not in found


def test_each_test_fails_for_some_fault() -> None:
    assert {name for fault in ROCE_FAULTS.values() for name in fault.failing} == {test.id for test in TESTS}


def by_hand(peer: RocePeer) -> RoceFacts:
    """What is known of a peer whose queue pairs are made by hand, one of each service."""
    told = [
        {"kind": kind, "qp_num": 0x500 + at, "psn": 77, "receives": 32} for at, kind in enumerate(("rc", "uc", "ud"))
    ]
    answer = peer.tested.open({"pairs": told})
    pairs = [
        OpenPair(one["kind"], one["qp_num"], made["qp_num"], 77, q_key=made["q_key"])
        for one, made in zip(told, answer["pairs"], strict=True)
    ]
    return replace(peer.facts, pairs=HandPairs(pairs, {"": PeerMemory(**answer["memory"][""])}))


def test_queue_pairs_made_by_hand_serve_until_the_peer_refuses_a_request() -> None:
    peer = RocePeer()
    facts = by_hand(peer)
    link = RoceLink(peer)
    assert round_trip(link, facts, "1", Patience(), ROCE)
    outcomes = [judge(test, link, facts, "1", Patience(), 1, ROCE) for test in gentle_first(TESTS)]
    found = {verdict: [one.test.id for one in outcomes if one.verdict is verdict] for verdict in ConformanceVerdict}
    assert found[ConformanceVerdict.FAIL] == []
    assert len(found[ConformanceVerdict.PASS]) > 40
    assert {"ROCE-RC-046", "ROCE-RC-095", "ROCE-RC-097"} <= {*found[ConformanceVerdict.PASS]}
    reasons = {one.reason for one in outcomes if one.verdict is ConformanceVerdict.INCONCLUSIVE}
    assert {"no RC queue pair is left that was made by hand", "the peer has no CNPs for marked packets"} <= reasons


def test_a_peer_that_answers_nothing_is_inconclusive() -> None:
    class Silent(RocePeer):
        def deliver(self, frame: bytes) -> None:
            pass

    peer = Silent()
    link = RoceLink(peer)
    assert round_trip(link, peer.facts, "1", Patience(), ROCE) is None
    outcome = judge(TESTS[0], link, peer.facts, "1", Patience(), 1, ROCE)
    assert outcome.verdict is ConformanceVerdict.INCONCLUSIVE
    assert "answers nothing" in outcome.reason


class _Ended:
    """A rendezvous whose server ends after some answers."""

    def __init__(self, peer: RocePeer, answers: int) -> None:
        self.peer, self.left = peer, answers

    def ask(self, question: str, **more: Any) -> dict[str, Any]:
        self.left -= 1
        if self.left < 0:
            raise RemoteError("the peer has ended it", 0, name="rendezvous")
        return self.peer.tested.open(more) if question == "pairs" else self.peer.tested.messages(more)


@pytest.mark.parametrize("answers", range(4))
def test_a_program_of_the_peer_that_ends_is_no_fault(answers: int) -> None:
    """ROCE-UC-003 asks for queue pairs and for what they have received."""
    peer = RocePeer()
    facts = replace(peer.facts, pairs=AskedPairs(_Ended(peer, answers)))  # type: ignore[arg-type]
    tests = [test for test in TESTS if test.id in ("ROCE-UC-003", "ROCE-UC-004")]
    outcomes = [judge(test, RoceLink(peer), facts, "1", Patience(), 1, ROCE) for test in tests]
    assert [outcome.verdict for outcome in outcomes] == [
        ConformanceVerdict.PASS if answers >= 2 else ConformanceVerdict.INCONCLUSIVE, ConformanceVerdict.INCONCLUSIVE
    ]  # fmt: skip
    assert outcomes[1].silent
    assert round_trip(RoceLink(peer), facts, "1", Patience(), ROCE) is None


def test_a_peer_that_floods_ends_a_test() -> None:
    class Flood(RocePeer):
        def poll(self) -> list[bytes]:
            return [one for frame in super().poll() for one in (frame, *[frame[:42]] * 5000)]

    peer = Flood()
    outcome = play(TESTS[0], RoceLink(peer), peer.facts, "1", Patience())
    assert (outcome.verdict, "floods" in outcome.reason) == (ConformanceVerdict.FAIL, True)
    assert len(outcome.frames) < 10_000


def test_garbage_of_a_peer_is_a_verdict_and_no_error() -> None:
    """What answers is damaged at random: bits, length, or other bytes behind its lower headers."""
    rng = random.Random(5)

    class Garbage(RocePeer):
        def poll(self) -> list[bytes]:
            return [frame if rng.random() < 0.5 else damaged(frame) for frame in super().poll()]

    def damaged(frame: bytes) -> bytes:
        at = rng.randrange(14, len(frame))
        return rng.choice((frame[:at], frame[:at] + rng.randbytes(1) + frame[at + 1 :], frame[:42] + rng.randbytes(at)))

    found = verdicts(Garbage(), TESTS)
    assert {*found} == {"pass", "fail"}


def test_one_seed_gives_one_trace() -> None:
    def frames(seed: str) -> list[bytes]:
        peer = RocePeer()
        link = RoceLink(peer)
        return [frame.data for test in TESTS[:20] for frame in play(test, link, peer.facts, seed, Patience()).frames]

    assert frames("5") == frames("5") != frames("6")
