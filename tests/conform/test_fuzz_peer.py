# SPDX-License-Identifier: GPL-2.0-only
"""Fuzzing of a peer: ours is clean, faulty ones are found, and what is found is a small test that fails again."""

import random
from pathlib import Path

import pytest

from tests.conform.faulty_engines import ENGINE_FAULTS
from tests.conform.faulty_peers import FAULTS, peer_with
from tests.conform.test_faulty_peers import LossyLink
from tests.support.conform import FACTS, AdapterLink, facts
from tests.support.effort import effort
from uetproto.conform.captures import judge_capture, write
from uetproto.conform.catalogue import load
from uetproto.conform.fuzz.model import MOVES, drawn, written
from uetproto.conform.fuzz.search import PeerFinding, PeerFuzz, as_toml
from uetproto.conform.player import ConformanceVerdict, Outcome, Patience, play

ALL = FAULTS | ENGINE_FAULTS
UNSEEN = {
    # of what no move asks for: long reads, memory elsewhere, a close with data under way, a long wait
    "data of a read has message_offset 0", "data of a read has the PSN of the next request",
    "reads of later memory are one byte too low", "the closing ACK does not wait for return data",
    "requests behind CLOSE_CMD are taken", "return data is not sent again",
    # of what is drawn seldom, as it takes time
    "a PSN before Start_PSN is a duplicate", "CLOSE_CMD clears nothing",
}  # fmt: skip
ONE_PACKET = {"a reserved bit of ACKs is 1"}
"""Faults that the audit sees in a packet alone."""
FOUND = [name for name in ALL if name not in UNSEEN | ONE_PACKET]


def fuzzed(link: AdapterLink, episodes: int, seed: str = "1") -> tuple[PeerFuzz, list[PeerFinding]]:
    fuzz = PeerFuzz(link, FACTS, Patience(), seed)
    return fuzz, [*fuzz.run(lambda: fuzz.tally.episodes >= episodes)]


@pytest.mark.parametrize("seed", [*"12345"][: effort(1, 3, 5)])
def test_our_endpoint_is_clean(seed: str) -> None:
    link = AdapterLink()
    fuzz, found = fuzzed(link, effort(60, 600, 3000), seed)
    assert [one.outcome.reason for one in found] == []
    assert (fuzz.tally.failed, fuzz.tally.not_again) == (0, [])
    assert fuzz.tally.steps > 10 * fuzz.tally.episodes
    assert len(link.adapter.fep.pds.pdcs) == 0


@pytest.mark.parametrize("name", FOUND[:: effort(9, 1, 1)])
def test_a_faulty_peer_is_found_and_its_test_is_small(name: str, tmp_path: Path) -> None:
    faulty = peer_with(ALL[name])
    fuzz = PeerFuzz(AdapterLink(faulty), FACTS, Patience(), "1")
    finding = next(fuzz.run(lambda: fuzz.tally.episodes >= 150))
    file = tmp_path / "found.toml"
    file.write_text(as_toml(finding.test, f"one line\n{finding.outcome.reason}"), encoding="utf-8")
    [test] = load([file])
    assert len(test.steps) <= 12
    for seed in "12":
        assert play(test, AdapterLink(faulty), FACTS, seed, Patience()).verdict is ConformanceVerdict.FAIL
        assert play(test, AdapterLink(), FACTS, seed, Patience()).verdict is ConformanceVerdict.PASS


def test_the_audit_of_an_episode_sees_a_wrong_packet(tmp_path: Path) -> None:
    def judge(outcome: Outcome) -> None:
        write(outcome, tmp_path / "episode.pcapng", 0)
        judge_capture(outcome, tmp_path / "episode.pcapng", FACTS, alone=True)

    [name] = ONE_PACKET
    fuzz = PeerFuzz(AdapterLink(peer_with(ALL[name])), FACTS, Patience(), "1", judge)
    finding = next(fuzz.run(lambda: fuzz.tally.episodes >= 20))
    assert "WIRE-RESERVED-BIT" in finding.outcome.reason


def test_lost_packets_are_no_finding() -> None:
    fuzz, found = fuzzed(LossyLink(), effort(40, 200, 400))
    assert found == []
    assert fuzz.tally.failed
    assert fuzz.tally.not_again


def test_a_peer_that_falls_silent_ends_the_run() -> None:
    class Dying(AdapterLink):
        sent = 0

        def send(self, frame: bytes) -> None:
            self.sent += 1
            if self.sent < 40:
                super().send(frame)

    fuzz, found = fuzzed(Dying(), 100)
    assert [one.dead for one in found] == [True]
    assert fuzz.tally.episodes < 10


def test_one_seed_gives_one_run_and_each_move_is_played() -> None:
    episodes = [drawn(random.Random(seed), 24) for seed in range(300)]
    assert episodes == [drawn(random.Random(seed), 24) for seed in range(300)]
    alone = {kind: sum(len(written(one, FACTS).steps) > 0 for one in episodes if kind in {m.kind for m in one.moves})
             for kind in MOVES}  # fmt: skip
    assert min(alone.values()) > 10
    assert {one.mode for one in episodes} == {"rud", "rod"}


def test_what_a_peer_does_not_have_is_not_sent() -> None:
    poor = facts(without=frozenset(("read", "rudi", "fetch", "atomic")), receives=0, relative=False)
    words = {
        word for seed in range(200) for step in written(drawn(random.Random(seed), 24), poor).steps
        for word in str(step.get("send", "")).split()
    }  # fmt: skip
    assert "write" in words
    assert not words & {"read", "rudi", "fetch", "atomic", "send"}
