# SPDX-License-Identifier: GPL-2.0-only
"""This module plays random episodes against a peer, and makes small what breaks.

An episode that fails is played again: what does not fail three times was the link, or a chance, and is counted apart.
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from uetproto.conform.catalogue import ConformanceTest
from uetproto.conform.fuzz import model, roce_model
from uetproto.conform.fuzz.model import NUMBERS, FuzzEpisode, FuzzMove, WrittenEpisode
from uetproto.conform.player import UET, ConformanceVerdict, Link, Outcome, Patience, Suite, round_trip
from uetproto.conform.roce.play import ROCE
from uetproto.errors import Location

TIMES = 3
"""Number of times in a row that a finding has to fail."""
_LONGEST = 24
"""Largest number of moves of an episode."""
_TRIES = 400
"""Largest number of episodes that are played to make one finding small."""
Stop = Callable[[], bool]
Judge = Callable[[Outcome], None]


class Fuzzed(NamedTuple):
    """This tuple says how a protocol is fuzzed: what draws episodes, writes them as queue pairs and steps, and makes
    them simpler, and what plays them."""

    drawn: Callable[[random.Random, int, Any], FuzzEpisode]
    written: Callable[[FuzzEpisode, Any], WrittenEpisode]
    simpler: Callable[[FuzzEpisode], list[FuzzEpisode]]
    plain: Callable[[FuzzEpisode], FuzzMove]
    suite: Suite
    section: str
    forget: Callable[[Any], None] = lambda facts: None
    """Function that forgets what was seen of the peer in other episodes, before an episode is played again."""


FUZZED_UET = Fuzzed(
    model.drawn, model.written, model.simpler, lambda episode: model.PLAIN, UET, "pds.md §8",
    lambda facts: None if facts.security is None else facts.security.forget(),
)  # fmt: skip
FUZZED_ROCE = Fuzzed(
    roce_model.drawn, roce_model.written, roce_model.simpler, roce_model.plain, ROCE, "roce.md §8"
)  # fmt: skip


@dataclass(slots=True)
class PeerFinding:
    """This class is what a peer does wrong, as a test that shows it."""

    test: ConformanceTest
    outcome: Outcome
    episode: int
    """Number of the episode in which it was found."""
    drawn: int
    """Number of steps before it was made small."""
    dead: bool = False
    """Whether the peer answers nothing any more."""
    whole: bool = True
    """Whether it was made as small as it gets."""

    @property
    def kind(self) -> str:
        """Return what findings of one kind share: what was sent and what came, without numbers."""
        acts = [step for step in self.test.steps[: self.outcome.step] if "send" in step or "post" in step]
        sends = [step.get("send", step.get("post")) for step in acts]
        return f"{sends[-1] if sends else ''}: {_plain(self.outcome.reason)}"


@dataclass(slots=True)
class PeerTally:
    """This class counts what was done."""

    episodes: int = 0
    steps: int = 0
    """Number of packets sent in episodes."""
    failed: int = 0
    """Number of episodes that failed, of all findings."""
    not_again: list[str] = field(default_factory=list)
    """Reasons of episodes that failed, and passed when they were played again."""
    kinds: set[str] = field(default_factory=set)


def _plain(text: str) -> str:
    return re.sub(r"\(start[^)]*\)|[0-9a-f]{6,}|\d+", "…", text.partition("; ")[2] or text)


class PeerFuzz:
    """This class fuzzes one peer."""

    def __init__(
        self, link: Link, facts: Any, patience: Patience, seed: str, judge: Judge = lambda outcome: None,
        fuzzed: Fuzzed = FUZZED_UET,
    ) -> None:  # fmt: skip
        """`facts` are those that the suite of `fuzzed` needs. `judge` may make an outcome that passed fail, such as by
        an audit of its packets."""
        self.link, self.facts, self.patience, self.seed = link, facts, patience, seed
        self.fuzzed = fuzzed
        self.tally = PeerTally()
        self._judge = judge
        self._played = 0

    def run(self, stop: Stop, first: int = 0) -> Iterator[PeerFinding]:
        """Play episodes from number `first` on until `stop` returns true, and yield findings, one of each kind. A peer
        that answers nothing any more ends the run."""
        while not stop():
            number = first + self.tally.episodes
            rng = random.Random(f"{self.seed.partition('#')[0]}/{number}")
            episode = self.fuzzed.drawn(rng, _LONGEST, self.facts)
            self.tally.episodes += 1
            outcome = self._play(episode, number)
            if outcome is None or outcome.verdict is not ConformanceVerdict.FAIL:
                continue
            self.tally.failed += 1
            if outcome.silent and self._is_dead(f"{self.seed}/{number}"):
                yield PeerFinding(outcome.test, outcome, number, len(outcome.test.steps), dead=True, whole=False)
                return
            finding = PeerFinding(outcome.test, outcome, number, len(outcome.test.steps))
            if finding.kind in self.tally.kinds:
                continue
            self.tally.kinds.add(finding.kind)
            if not self._fails_alike(episode, number, outcome, TIMES - 1):
                self.tally.not_again.append(f"episode {number}: {outcome.reason}")
                continue
            small = self._small(episode, number, stop)
            yield from self._kept(small, number, finding)

    def _is_dead(self, seed: str) -> bool:
        return round_trip(self.link, self.facts, seed, self.patience, self.fuzzed.suite) is None

    def _kept(self, episode: FuzzEpisode, number: int, finding: PeerFinding) -> Iterator[PeerFinding]:
        self.fuzzed.forget(self.facts)
        last = self._play(episode, number)
        if last is None or not self._fails_alike(episode, number, last, TIMES - 1):
            self.tally.not_again.append(f"episode {number}: {finding.outcome.reason}")
            return
        steps = last.test.steps[: last.step] if last.step else last.test.steps
        pairs = last.test.pairs[: max((step.get("on", 1) for step in steps), default=1)]
        test = replace(last.test, steps=steps, pairs=pairs, purpose=_purpose(last))
        small = replace(finding, test=test, outcome=last)
        known = small.kind in self.tally.kinds and small.kind != finding.kind
        self.tally.kinds.add(small.kind)
        if not known:
            yield small

    def _test(self, episode: FuzzEpisode, number: int) -> ConformanceTest | None:
        found = self.fuzzed.written(episode, self.facts)
        steps = found.steps
        if not any("send" in step or "post" in step for step in steps):
            return None
        name = f"FUZZ-{self.seed.partition('#')[0]}-{number}"
        return ConformanceTest(
            id=name, section=self.fuzzed.section, covers=(), purpose="A random episode.", needs=found.needs,
            pairs=found.pairs, steps=tuple(steps), place=Location(name),
        )  # fmt: skip

    def _play(self, episode: FuzzEpisode, number: int) -> Outcome | None:
        test = self._test(episode, number)
        if test is None:
            return None
        self._played += 1
        seed = f"{self.seed}#{self._played}"
        outcome = self.fuzzed.suite.play(test, self.link, self.facts, seed, self.patience)
        self._judge(outcome)
        self.tally.steps += sum(frame.sent for frame in outcome.frames)
        return outcome

    def _fails(self, episode: FuzzEpisode, number: int) -> bool:
        """Return whether an episode fails; twice, if it fails by an answer that does not come, as the link may lose
        packets."""
        self.fuzzed.forget(self.facts)
        outcome = self._play(episode, number)
        if outcome is None or outcome.verdict is not ConformanceVerdict.FAIL:
            return False
        return not outcome.silent or self._fails_alike(episode, number, outcome, 1)

    def _fails_alike(self, episode: FuzzEpisode, number: int, outcome: Outcome, times: int) -> bool:
        """Return whether an outcome is a failure, and the episode fails as often again in the same step and way."""
        if outcome.verdict is not ConformanceVerdict.FAIL:
            return False
        for _ in range(times):
            self.fuzzed.forget(self.facts)
            again = self._play(episode, number)
            if again is None or (again.verdict, again.step) != (outcome.verdict, outcome.step):
                return False
            if _plain(again.reason) != _plain(outcome.reason):
                return False
        return True

    # Making small

    def _small(self, episode: FuzzEpisode, number: int, stop: Stop) -> FuzzEpisode:
        """Return an episode that fails with fewer and simpler moves."""
        tries = iter(range(_TRIES))

        def fails(one: FuzzEpisode) -> bool:
            return next(tries, None) is not None and not stop() and self._fails(one, number)

        episode = self._plainer(self._fewer(self._plainer(episode, fails), fails), fails)
        return self._simpler(episode, fails)

    def _plainer(self, episode: FuzzEpisode, fails: Callable[[FuzzEpisode], bool]) -> FuzzEpisode:
        """Return an episode with simpler settings."""
        before = episode
        for simpler in self.fuzzed.simpler(episode):
            changed = episode._replace(**{
                name: value for name, value in simpler._asdict().items()
                if value != getattr(before, name) == getattr(episode, name)
            })  # fmt: skip
            if changed != episode and fails(changed):
                episode = changed
        return episode

    @staticmethod
    def _fewer(episode: FuzzEpisode, fails: Callable[[FuzzEpisode], bool]) -> FuzzEpisode:
        """Return an episode with fewer moves: without halves, then quarters, … then single ones."""
        moves = [*episode.moves]
        size = max(len(moves) // 2, 1)
        while True:
            at, fewer = 0, False
            while at < len(moves):
                left = moves[:at] + moves[at + size :]
                if left and fails(episode._replace(moves=tuple(left))):
                    moves, fewer = left, True
                else:
                    at += size
            if size == 1 and not fewer:
                return episode._replace(moves=tuple(moves))
            size = size if fewer and size == 1 else max(size // 2, 1)

    def _simpler(self, episode: FuzzEpisode, fails: Callable[[FuzzEpisode], bool]) -> FuzzEpisode:
        """Return an episode with smaller numbers, and with writes in place of other moves."""

        def with_move(at: int, move: FuzzMove) -> FuzzEpisode:
            return episode._replace(moves=(*episode.moves[:at], move, *episode.moves[at + 1 :]))

        for at in range(len(episode.moves)):
            plain = self.fuzzed.plain(episode)
            if episode.moves[at] != plain and fails(with_move(at, plain)):
                episode = with_move(at, plain)
                continue
            for place in range(NUMBERS):
                numbers = episode.moves[at].numbers
                move = episode.moves[at]._replace(numbers=(*numbers[:place], 0, *numbers[place + 1 :]))
                if numbers[place] and fails(with_move(at, move)):
                    episode = with_move(at, move)
        return episode


def _purpose(outcome: Outcome) -> str:
    """Return what a finding shows, in a sentence."""
    acts = [step for step in outcome.test.steps[: outcome.step or None] if "send" in step or "post" in step]
    sends = [step.get("send", step.get("post")) for step in acts]
    many = len(sends) - 1
    before = {0: "as the first packet", 1: "after another packet"}.get(many, f"after {many} packets")
    return f"What follows {sends[-1]!r}, {before}, is what the pages allow."


# As a file ------------------------------------------------------------------------------------------------------------


def as_toml(test: ConformanceTest, comment: str) -> str:
    """Return a test as the text of a file of tests."""
    head = [f"# {line}" for line in comment.splitlines()]
    steps = [f"    {_inline(step)}," for step in test.steps]
    return "\n".join([
        *head, "[[test]]", f"id = {_value(test.id)}", f"section = {_value(test.section)}",
        f"purpose = {_value(test.purpose)}", f"needs = {_value([*test.needs])}",
        *([f"pairs = {_value([*test.pairs])}"] if test.pairs else []), "steps = [", *steps, "]", "",
    ])  # fmt: skip


def _inline(table: Any) -> str:
    return "{ " + ", ".join(f"{name} = {_value(value)}" for name, value in table.items()) + " }"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return _inline(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, int):
        return str(value)
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
