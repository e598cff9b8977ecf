# SPDX-License-Identifier: GPL-2.0-only
"""Fuzzing of a peer of RoCE: ours is clean, faulty ones are found, and what is found is a small test that fails."""

import random
from pathlib import Path

import pytest

from tests.conform.faulty_roce_peers import ROCE_FAULTS, roce_peer_with
from tests.conform.test_faulty_roce_peers import by_hand
from tests.support.conform_roce import RoceLink, RocePeer
from tests.support.effort import effort
from uetproto.conform.catalogue import load
from uetproto.conform.fuzz.roce_model import ROCE_MOVES, drawn, written
from uetproto.conform.fuzz.search import FUZZED_ROCE, PeerFinding, PeerFuzz, as_toml
from uetproto.conform.player import ConformanceVerdict, Patience
from uetproto.conform.roce.packets import RoceFacts
from uetproto.conform.roce.play import play

EPISODES = 600


def fuzzed(peer: RocePeer, episodes: int, seed: str = "1", facts: RoceFacts | None = None) -> PeerFuzz:
    return PeerFuzz(RoceLink(peer), facts or peer.facts, Patience(), seed, fuzzed=FUZZED_ROCE)


def findings(fuzz: PeerFuzz, episodes: int) -> list[PeerFinding]:
    return [*fuzz.run(lambda: fuzz.tally.episodes >= episodes)]


@pytest.mark.parametrize("seed", [*"12345"][: effort(1, 3, 5)])
@pytest.mark.parametrize("how", [{}, {"version": 6, "path_mtu": 1024}], ids=["ipv4", "ipv6"])
def test_our_adapter_is_clean(how: dict[str, int], seed: str) -> None:
    peer = RocePeer(**how)
    episodes = effort(60, 600, 3000)
    fuzz = fuzzed(peer, episodes, seed)
    assert [one.outcome.reason for one in findings(fuzz, episodes)] == []
    assert (fuzz.tally.failed, fuzz.tally.not_again) == (0, [])
    assert fuzz.tally.steps > 6 * fuzz.tally.episodes


def test_queue_pairs_made_by_hand_are_fuzzed_without_requests_that_end_them() -> None:
    peer = RocePeer()
    facts = by_hand(peer)
    fuzz = fuzzed(peer, 60, "1", facts)
    assert findings(fuzz, 60) == []
    assert (fuzz.tally.failed, fuzz.tally.steps > 200) == (0, True)


@pytest.mark.parametrize("name", [*ROCE_FAULTS][:: effort(9, 1, 1)])
def test_a_faulty_peer_is_found_and_its_test_is_small(name: str, tmp_path: Path) -> None:
    faulty = roce_peer_with(ROCE_FAULTS[name])
    fuzz = fuzzed(faulty, EPISODES)
    finding = next(fuzz.run(lambda: fuzz.tally.episodes >= EPISODES))
    file = tmp_path / "found.toml"
    file.write_text(as_toml(finding.test, f"one line\n{finding.outcome.reason}"), encoding="utf-8")
    [test] = load([file])
    assert (test.pairs, len(test.steps) <= 14) == (finding.test.pairs, True)
    for seed in "12":
        again, right = roce_peer_with(ROCE_FAULTS[name]), RocePeer()
        assert play(test, RoceLink(again), again.facts, seed, Patience()).verdict is ConformanceVerdict.FAIL
        assert play(test, RoceLink(right), right.facts, seed, Patience()).verdict is ConformanceVerdict.PASS


def test_one_seed_gives_one_run_and_each_move_is_played() -> None:
    facts = RocePeer().facts
    episodes = [drawn(random.Random(seed), 24, facts) for seed in range(400)]
    assert episodes == [drawn(random.Random(seed), 24, facts) for seed in range(400)]
    for kind, moves in ROCE_MOVES.items():
        kinds = [
            {move.kind for move in one.moves} for one in episodes if one.mode == kind and written(one, facts).steps
        ]
        assert min(sum(name in one for one in kinds) for name in moves) > 10
