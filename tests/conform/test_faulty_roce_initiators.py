# SPDX-License-Identifier: GPL-2.0-only
"""The peer as requester of RoCE: a right one passes all tests, and each fault makes exactly those fail that are
listed."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conform.faulty_roce_initiators import ROCE_INITIATOR_FAULTS, InitiatorFault
from tests.conform.faulty_roce_peers import Change, FaultyRocePeer
from tests.support.conform_roce import RoceActor, RoceLink, RocePeer
from tests.support.effort import effort
from uetproto.conform import captures
from uetproto.conform.acting import PeerAct, patience_for
from uetproto.conform.catalogue import ROCE, TARGET, ConformanceTest, load, of_role
from uetproto.conform.player import ConformanceVerdict, Outcome, Patience
from uetproto.conform.roce.acting import DriverPairs, roce_acting, timeout_of
from uetproto.conform.roce.play import play
from uetproto.engine.contract import MILLISECOND

TESTS = of_role(load(shipped=ROCE), TARGET)
SHARE = effort(8, 1, 1)
"""One of so many tests that a fault does not touch is played beside those that it does."""
CODE, RTO = timeout_of(200 * MILLISECOND)


def played(
    test: ConformanceTest, peer: RocePeer, kind: type[RoceActor] = RoceActor, without: frozenset[str] = frozenset()
) -> Outcome:
    facts = replace(peer.facts, pairs=DriverPairs(), without=without)
    suite = roce_acting(kind(peer), CODE)
    return suite.play(test, RoceLink(peer), facts, "1", patience_for(RTO))


@pytest.mark.parametrize("how", [{}, {"version": 6, "path_mtu": 1024}], ids=["ipv4", "ipv6"])
def test_our_adapter_passes_all_tests(how: dict[str, int], tmp_path: Path) -> None:
    for test in TESTS[:: effort(3, 1, 1)] if how else TESTS:
        peer = RocePeer(**how)
        outcome = played(test, peer)
        captures.write(outcome, tmp_path / "test.pcapng", 0)
        captures.judge_capture(outcome, tmp_path / "test.pcapng", peer.facts)
        assert (test.id, outcome.verdict, outcome.reason) == (test.id, ConformanceVerdict.PASS, "")


def with_fault(fault: InitiatorFault) -> tuple[FaultyRocePeer, type[RoceActor]]:
    """Return a peer with a fault, and what makes it act."""

    def method(change: Change | None) -> Any:
        return None if change is None else staticmethod(change)

    class Asked(RoceActor):
        def begin(self, act: PeerAct) -> None:
            super().begin(replace(act, place={**act.place, **fault.asked}))

    kind = type("FaultyRoce", (FaultyRocePeer,), {"arrives": method(fault.arrives), "leaves": method(fault.leaves)})
    return kind(), Asked


@pytest.mark.parametrize("name", ROCE_INITIATOR_FAULTS)
def test_a_fault_fails_the_tests_listed_with_it_and_no_other(name: str) -> None:
    fault = ROCE_INITIATOR_FAULTS[name]
    assert fault.failing
    first = list(ROCE_INITIATOR_FAULTS).index(name) % SHARE
    tests = [test for at, test in enumerate(TESTS) if test.id in fault.failing or at % SHARE == first]
    found: dict[str, list[str]] = {}
    for test in tests:
        found.setdefault(played(test, *with_fault(fault)).verdict.value, []).append(test.id)
    assert tuple(found.get("fail", ())) == fault.failing
    assert "inconclusive" not in found


def test_each_test_fails_for_some_fault() -> None:
    failing = {name for fault in ROCE_INITIATOR_FAULTS.values() for name in fault.failing}
    assert failing == {test.id for test in TESTS}
    assert [test.id for test in TESTS if not test.covers] == []


def test_nobody_acts_without_an_actor_and_what_is_lacking_is_left_out() -> None:
    peer = RocePeer()
    outcome = play(TESTS[0], RoceLink(peer), peer.facts, "1", Patience())
    assert (outcome.verdict, "--as target" in outcome.reason) == (ConformanceVerdict.INCONCLUSIVE, True)
    [atomic] = [test for test in TESTS if test.id == "ROCE-INI-013"]
    outcome = played(atomic, peer, without=frozenset(("atomic",)))
    assert (outcome.verdict, outcome.reason) == (
        ConformanceVerdict.INCONCLUSIVE, "the peer has no atomics (--without)"
    )  # fmt: skip


def test_a_peer_that_writes_bytes_of_its_own_is_not_compared() -> None:
    class Own(RoceActor):
        def begin(self, act: PeerAct) -> None:
            super().begin(replace(act, data=bytes(len(act.data))))

    for without, verdict in ((frozenset[str](), "fail"), (frozenset(("data",)), "pass")):
        peer = RocePeer()
        assert played(TESTS[0], peer, Own, without).verdict.value == verdict


def test_garbage_of_a_peer_that_acts_is_a_verdict_and_no_error() -> None:
    """What it sends is damaged at random: bits, length, or other bytes behind its lower headers."""
    rng, found = random.Random(5), set[str]()

    class Garbage(RocePeer):
        def poll(self) -> list[bytes]:
            return [frame if rng.random() < 0.5 else damaged(frame) for frame in super().poll()]

    def damaged(frame: bytes) -> bytes:
        at = rng.randrange(14, len(frame))
        return rng.choice((frame[:at], frame[:at] + rng.randbytes(1) + frame[at + 1 :], frame[:42] + rng.randbytes(at)))

    for test in TESTS * effort(1, 10, 100):
        found.add(played(test, Garbage()).verdict.value)
    assert {"pass", "fail"} <= found


def test_a_peer_that_acts_and_floods_ends_a_test() -> None:
    class Flood(RocePeer):
        def poll(self) -> list[bytes]:
            return [one for frame in super().poll() for one in (frame, *[frame[:42]] * 5000)]

    for test in TESTS[:3]:
        outcome = played(test, Flood())
        assert (outcome.verdict, "floods" in outcome.reason) == (ConformanceVerdict.FAIL, True)
        assert len(outcome.frames) < 10_000
