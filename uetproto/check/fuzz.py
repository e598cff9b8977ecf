# SPDX-License-Identifier: GPL-2.0-only
"""This module has the loop of the fuzzer. It plays episodes of random steps, and shrinks those that fail.

The settings, the steps and the random numbers of the endpoints all follow from the seed of an episode. An episode that
fails is played again with fewer and fewer steps (`shrink`) while there is time.
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from typing import Any, TypeAlias

from uetproto.check import shrink
from uetproto.check.cc import episode as cc
from uetproto.check.episode import (
    EpisodeSettings,
    PlayedEpisode,
    Simulation,
    StepSource,
    Stop,
    given,
    placed,
    play,
    to_place,
)
from uetproto.check.finding import FuzzFinding
from uetproto.check.roce import episode as roce
from uetproto.check.step_generator import StepGenerator
from uetproto.check.time_limit import TooSlow
from uetproto.check.tss import episode as tss
from uetproto.check.uet import episode as uet
from uetproto.engine.contract import MILLISECOND, Rng
from uetproto.errors import LocalError, missing_package, similar

Begin: TypeAlias = Callable[[str, Rng], tuple[StepGenerator[Any, Any], EpisodeSettings]]

BEGINNINGS: dict[str, Begin] = {
    **dict.fromkeys(uet.PROFILES, uet.begin),
    **dict.fromkeys(cc.PROFILES, cc.begin),
    **dict.fromkeys(roce.PROFILES, roce.begin),
    **dict.fromkeys(tss.PROFILES, tss.begin),
}
"""Maps the name of a simulated machine to the function that draws the settings of an episode. The arguments of the
function are the name of the machine and a random number generator. It returns the step generator and the settings."""

MACHINES = tuple(BEGINNINGS)
ALL = "all"
"""Name with which `fuzz` plays all machines in turn."""

LENGTH = range(200, 2000)

EFFORT = 2_000_000
"""Limit of the steps and packets, counted together, that all attempts to shrink one finding may take."""

SPELT_OUT = 24
"""Greatest number of steps that replace `finish` in a finding. If an episode fails only in `finish`, but also fails
with these steps in place of `finish`, the finding shows the steps."""
PAUSE = MILLISECOND


@dataclass(slots=True)
class FuzzTally:
    """A tally has the counts and the findings of one or more episodes."""

    steps: int = 0
    moves: int = 0
    """Sum of the steps that were drawn, and of the packets and timers that were processed at the ends of episodes."""
    episodes: int = 0
    failed: int = 0
    digest: int = 0
    """Sum of the digests of the episodes, modulo 2^64. It does not depend on the order of the episodes."""
    findings: list[FuzzFinding] = field(default_factory=list)

    def add(self, other: "FuzzTally") -> None:
        """Add the counts and findings of `other`."""
        self.steps += other.steps
        self.moves += other.moves
        self.episodes += other.episodes
        self.failed += other.failed
        self.digest = (self.digest + other.digest) & 0xFFFFFFFFFFFFFFFF
        self.findings += other.findings


def by_turns() -> tuple[str, ...]:
    """Return the machines that can be played with the installed packages. TSS needs the package `cryptography`, which
    is optional."""
    return MACHINES if find_spec("cryptography") else tuple(name for name in MACHINES if name not in tss.PROFILES)


def unplayable(machine: str, others: tuple[str, ...] = ()) -> LocalError | None:
    """Return the error for a machine that does not exist, or that needs a package which is not installed. Return None
    if the machine can be played.

    For `ALL` the error names the machines that are left out. `others` are machines that are played elsewhere.
    """
    if machine not in (ALL, *MACHINES):
        known = (*MACHINES, ALL, *others)
        return LocalError(machine, f"no such machine{similar(machine, known)}", ", ".join(known), id="unknown-machine")
    missing = [name for name in MACHINES if name not in by_turns() and machine in (ALL, name)]
    return missing_package(", ".join(missing), "cryptography", "security") if missing else None


def fuzz(
    machine: str,
    seed: int,
    *,
    steps: int | None = None,
    stop: Stop = lambda: False,
    give_up: Stop = lambda: False,
    first: int = 0,
    stride: int = 1,
) -> Iterator[FuzzTally]:
    """Play the episodes `first`, `first + stride`, … until `stop()` is true or `steps` steps were drawn. Yield a tally
    for each episode.

    A finding is shrunk before its tally is yielded. When `give_up()` is true, the loop ends in the middle of an
    episode or of shrinking, and yields what it has. Only the first failure of each kind is a finding; further ones are
    only counted.
    """
    kinds: set[str] = set()
    turns = by_turns() if machine == ALL else (machine,)
    for number in count(first, stride):
        if stop() or steps == 0:
            return
        profile = turns[number % len(turns)]
        name = f"{seed}/{number}"
        chance = random.Random(name)
        generator, settings = BEGINNINGS[profile](profile, chance)
        length = LENGTH[int(chance.random() * len(LENGTH))]
        played = play(settings, _drawn(generator, length if steps is None else min(length, steps)), give_up=give_up)
        failed = played.failure is not None
        tally = FuzzTally(len(played.steps), played.simulator.steps, 1, int(failed), _digest(name, played))
        if played.failure is not None and played.failure.kind not in kinds:
            kinds.add(played.failure.kind)
            tally.findings.append(_finding(profile, name, settings, played, give_up))
        yield tally
        if steps is not None:
            steps -= len(played.steps)


def _drawn(generator: StepGenerator[Any, Any], length: int) -> StepSource:
    return lambda simulator: (generator.choose(simulator) for _ in range(length))


# Findings -------------------------------------------------------------------------------------------------------------


def _finding(profile: str, name: str, settings: EpisodeSettings, played: PlayedEpisode, give_up: Stop) -> FuzzFinding:
    """Return the failure in as few steps as the search finds; with encoded packets, if these fail as well."""
    drawn = len(played.steps)
    real = settings.as_run()
    with_bytes = play(real, given(map(settings.with_bytes, played.steps)), give_up=give_up)
    if with_bytes.fails_like(played):
        settings, played = real, with_bytes
    assert played.failure is not None
    if not played.failure.kind.endswith(TooSlow.__name__):  # each attempt would take as long
        settings, played = _shrunk(settings, played, give_up)
        played = _spelt_out(settings, played, give_up)
    again = play(settings, given(played.steps), give_up=give_up)
    assert played.failure is not None
    return FuzzFinding(
        machine=profile,
        seed=name,
        settings=settings,
        steps=tuple(played.steps),
        drawn=drawn,
        text=played.failure.text,
        kind=played.failure.kind,
        only_objects=settings.objects and not with_bytes.cut,
        only_once=not again.cut and not again.fails_like(played),
        given_up=give_up(),
    )


def _shrunk(
    settings: EpisodeSettings, played: PlayedEpisode, give_up: Stop
) -> tuple[EpisodeSettings, PlayedEpisode]:  # fmt: skip
    """Return the same failure with fewer steps, then with fewer settings: the last attempt that failed alike."""
    effort, best = EFFORT, (settings, played)

    def ended() -> bool:
        return effort < 0 or give_up()

    def fails(steps: Sequence[Any], settings: EpisodeSettings = settings, finish: bool = True) -> bool:
        nonlocal effort, best
        if ended():
            return False
        try:
            attempt = play(settings, placed(steps), finish, give_up)
        except LocalError:  # these settings exclude each other
            return False
        effort -= len(attempt.steps) + attempt.simulator.sent
        if not attempt.fails_like(played):
            return False
        best = settings, attempt
        return True

    places: list[Any] = _places(settings, played.steps, give_up)
    if fails(places, finish=False):  # finishing takes long, and without it many more steps can be left out
        places = shrink.shrink(places, lambda steps: fails(steps, finish=False), settings.simpler, give_up=ended)
    places = shrink.shrink(places, fails, settings.simpler, give_up=ended)
    for node in (0, 1):
        for name in settings.names(node):
            fails(places, best[0].without(node, name))
    return best


def _spelt_out(settings: EpisodeSettings, played: PlayedEpisode, give_up: Stop) -> PlayedEpisode:
    """Return the failure with steps in place of `finish`, if `SPELT_OUT` of them suffice."""

    pause = settings.step("advance", number=PAUSE)

    def source(simulator: Simulation) -> Iterator[Any]:
        yield from played.steps
        for _ in range(SPELT_OUT):
            flight = simulator.flight
            yield settings.step("deliver", number=next(iter(flight))) if flight else pause

    found = play(settings, source, finish=False, give_up=give_up)
    return found if found.fails_like(played) else played


def _places(settings: EpisodeSettings, steps: list[Any], give_up: Stop) -> list[Any]:
    """Return the steps with packets named by place."""
    places: list[Any] = []

    def source(simulator: Simulation) -> Iterator[Any]:
        for step in steps:
            places.append(to_place(step, simulator))
            yield step

    play(settings, source, give_up=give_up)
    return places


def _digest(name: str, played: PlayedEpisode) -> int:
    """Return 64 bits that differ for episodes that went differently."""
    simulator = played.simulator
    text = f"{name} {len(played.steps)} {simulator.now} {simulator.sent} {played.failure and played.failure.kind}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
