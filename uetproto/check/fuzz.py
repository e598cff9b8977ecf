"""The fuzzer's loop: episodes of random steps on a `World`, whose invariants hold after each of them, or not.

An episode has a seed of its own, from which all of it follows: settings, presets, steps, and what the endpoints draw.
One that fails is played again in fewer and fewer steps (`shrink`), while there is time. For that, packets are named by
their place on the wire, so that a step still means something when those before it are gone.
"""

import hashlib
import random
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from uetproto.check import shrink
from uetproto.check.finding import PAYLOAD, Finding
from uetproto.check.roce import steps as roce_steps
from uetproto.check.roce.machine import RoceWorld
from uetproto.check.roce.step_generator import PROFILES as ROCE
from uetproto.check.roce.step_generator import RoceChooser
from uetproto.check.roce.steps import RoceStep
from uetproto.check.time_limit import GivenUp, TooSlow, time_limit
from uetproto.check.tss import steps as tss_steps
from uetproto.check.tss.machine import TssWorld
from uetproto.check.tss.step_generator import PROFILES as TSS
from uetproto.check.tss.step_generator import TssChooser
from uetproto.check.tss.steps import TssStep
from uetproto.check.uet.invariants import Violation
from uetproto.check.uet.machine import PROFILES, Chooser, World
from uetproto.check.uet.steps import ALL as WHOLE_WIRE
from uetproto.check.uet.steps import Step
from uetproto.engine.contract import MILLISECOND
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.errors import LocalError

MACHINES = (*PROFILES, *ROCE, *TSS)
ALL = "all"
"""In place of a machine: each of them by turns."""

LENGTH = range(200, 2000)
"""Steps of an episode."""

EFFORT = 2_000_000
"""Steps and packets of all attempts to make one finding smaller."""

PATIENCE = 300.0
"""Seconds of CPU for one episode: what takes longer hangs. Refusals by the thousand may take a minute."""

SPELT_OUT = 24
"""Steps that show what would fail only at the end."""
PAUSE = MILLISECOND

_PLACED = frozenset({
    "deliver", "drop", "trim", "mark", "corrupt", "flip", "cut", "extend", "rewrite", "splice",
})  # fmt: skip
"""Steps that take a packet from the wire, or change one there."""


Stop = Callable[[], bool]
AnyStep: TypeAlias = Step | RoceStep | TssStep
"""All name packets by `number`, and have an `action`."""


class Arena(Protocol):
    """What is needed of a world, whatever transport it has."""

    now: int
    steps: int
    """Steps, and what arrived besides."""

    @property
    def flight(self) -> dict[int, Any]:
        """What is on the wire, by number."""

    @property
    def sent(self) -> int:
        """Packets that have left so far, copies included."""

    def apply(self, step: Any) -> None: ...

    def finish(self) -> None:
        """All that is on its way comes to its end."""


class Choice(Protocol):
    """What draws the settings of an episode, then its steps."""

    def choose(self, world: Any) -> AnyStep: ...


class Failure(NamedTuple):
    """How an episode ended before its time."""

    kind: str
    text: str


Knobs: TypeAlias = tuple[dict[str, Any], dict[str, Any]]


class Setting(NamedTuple):
    """What an episode is played with."""

    draws: int
    knobs: Knobs
    presets: tuple[Preset, Preset]
    objects: bool = True
    """Quick: without bytes, and next to no payload. Else as `uetproto run` plays it."""

    def names(self, node: int) -> list[str]:
        """What can be left out."""
        return [*self.knobs[node]]

    def without(self, node: int, name: str) -> "Setting":
        """With the default of a knob."""
        knobs = [{**knobs} for knobs in self.knobs]
        del knobs[node][name]
        return self._replace(knobs=(knobs[0], knobs[1]))

    def as_run(self) -> "Setting":
        """As `uetproto run` plays it."""
        return self._replace(objects=False)

    def world(self) -> Arena:
        mtu = None if self.objects else PAYLOAD
        return World(self.draws, self.knobs, self.presets, objects=self.objects, mtu=mtu)

    def step(self, action: str, number: int) -> Step:
        return Step(action, number=number)

    def simpler(self, step: Any) -> Iterable[Step]:
        """Steps that say less."""
        return shrink.simpler(step)

    def told(self) -> dict[str, Any]:
        """For a `Finding`."""
        return {"draws": self.draws, "knobs": self.knobs, "presets": self.presets}


class RoceSetting(NamedTuple):
    """The same, of queue pairs. Nothing in them is left to chance."""

    kind: Any
    knobs: Knobs
    qps: Knobs
    twin: bool
    objects: bool = False

    def names(self, node: int) -> list[str]:
        """What can be left out; both ends must have the same MTU."""
        return [name for name in (*self.knobs[node], *self.qps[node]) if name != "path_mtu"]

    def without(self, node: int, name: str) -> "RoceSetting":
        """With the default of a knob or an attribute."""
        knobs, qps = ([{**one} for one in ones] for ones in (self.knobs, self.qps))
        for ones in (knobs, qps):
            ones[node].pop(name, None)
        return self._replace(knobs=(knobs[0], knobs[1]), qps=(qps[0], qps[1]))

    def as_run(self) -> "RoceSetting":
        return self

    def world(self) -> Arena:
        return RoceWorld(self.kind, self.knobs, self.qps, twin=self.twin)

    def step(self, action: str, number: int) -> RoceStep:
        return RoceStep(action, number=number)

    def simpler(self, step: Any) -> Iterable[RoceStep]:
        """Steps that say less."""
        return roce_steps.simpler(step)

    def told(self) -> dict[str, Any]:
        """For a `Finding`."""
        return {"draws": 0, "knobs": self.knobs, "presets": (Preset(), Preset()), "qps": self.qps}


class TssSetting(NamedTuple):
    """The same, of members of a secure domain: what they agree on, and the settings of packet delivery."""

    draws: int
    knobs: Knobs
    objects: bool = False

    def names(self, node: int) -> list[str]:
        """What can be left out."""
        return [*self.knobs[node]]

    def without(self, node: int, name: str) -> "TssSetting":
        """With the default of a term or a knob."""
        knobs = [{**knobs} for knobs in self.knobs]
        del knobs[node][name]
        return self._replace(knobs=(knobs[0], knobs[1]))

    def as_run(self) -> "TssSetting":
        return self

    def world(self) -> Arena:
        return TssWorld(self.draws, *self.knobs)

    def step(self, action: str, number: int) -> TssStep:
        return TssStep(action, number=number)

    def simpler(self, step: Any) -> Iterable[TssStep]:
        """Steps that say less."""
        return tss_steps.simpler(step)

    def told(self) -> dict[str, Any]:
        """For a `Finding`."""
        return {"draws": self.draws, "knobs": self.knobs, "presets": (Preset(), Preset())}


AnySetting: TypeAlias = Setting | RoceSetting | TssSetting


def begin(profile: str, chance: random.Random) -> tuple[Choice, AnySetting]:
    """What draws the steps of an episode, and what it is played with."""
    if profile in ROCE:
        roce = RoceChooser(profile, chance)
        return roce, RoceSetting(roce.kind, roce.knobs, roce.qps, roce.twin)
    if profile in TSS:
        tss = TssChooser(chance)
        return tss, TssSetting(chance.getrandbits(64), (tss.terms, tss.pds))
    chooser = Chooser(profile, chance)
    return chooser, Setting(chance.getrandbits(64), chooser.knobs, chooser.presets)


def by_turns() -> tuple[str, ...]:
    """The machines that can be played here: sealing needs a package that not everybody has."""
    return MACHINES if find_spec("cryptography") else tuple(name for name in MACHINES if name not in TSS)


class Played(NamedTuple):
    """Steps that took place, and how it ended."""

    steps: list[Any]
    failure: Failure | None
    world: Arena
    cut: bool = False
    """Given up on the way."""


@dataclass(slots=True)
class Tally:
    """What was done; of several parts, the sum."""

    steps: int = 0
    """Drawn."""
    moves: int = 0
    """The same, and what arrived while episodes were brought to their end: all that machines were put through."""
    episodes: int = 0
    failed: int = 0
    digest: int = 0
    """The same for the same episodes, in any order, if each went the same way."""
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.steps += other.steps
        self.moves += other.moves
        self.episodes += other.episodes
        self.failed += other.failed
        self.digest = (self.digest + other.digest) & 0xFFFFFFFFFFFFFFFF
        self.findings += other.findings


def fuzz(
    machine: str,
    seed: int,
    *,
    steps: int | None = None,
    stop: Stop = lambda: False,
    give_up: Stop = lambda: False,
    first: int = 0,
    stride: int = 1,
) -> Iterator[Tally]:
    """Plays episodes `first`, `first + stride`, … until `stop`, or until as many steps were drawn; one tally each.

    What it finds is made smaller first. As soon as it has to `give_up`, it ends in the middle of whatever it does, and
    tells what it has. Of what fails the same way only the first is a `Finding`, the others are counted.
    """
    kinds: set[str] = set()
    turns = by_turns() if machine == ALL else (machine,)
    for number in count(first, stride):
        if stop() or steps == 0:
            return
        profile = turns[number % len(turns)]
        name = f"{seed}/{number}"
        chance = random.Random(name)
        chooser, setting = begin(profile, chance)
        length = LENGTH[int(chance.random() * len(LENGTH))]
        played = play(setting, _chosen(chooser, length if steps is None else min(length, steps)), give_up=give_up)
        tally = Tally(len(played.steps), played.world.steps, 1, int(played.failure is not None), _digest(name, played))
        if played.failure is not None and played.failure.kind not in kinds:
            kinds.add(played.failure.kind)
            tally.findings.append(_finding(profile, name, setting, played, give_up))
        yield tally
        if steps is not None:
            steps -= len(played.steps)


# Playing --------------------------------------------------------------------------------------------------------------

Source = Callable[[Any], Iterable[AnyStep]]
"""The steps of an episode, each made when the ones before it have taken place."""


def play(setting: AnySetting, source: Source, finish: bool = True, give_up: Stop = lambda: False) -> Played:
    """One episode to its end, and then, to `finish` it, what still is on its way (pds.md §18 items 49–52).

    Where it has to `give_up` it did not fail.
    """
    world = setting.world()
    steps: list[AnyStep] = []
    try:
        with time_limit(PATIENCE, give_up):
            for step in source(world):
                steps.append(step)
                try:
                    world.apply(step)
                except LocalError:  # not at this moment
                    steps.pop()
            if finish:
                world.finish()
    except GivenUp:
        return Played(steps, None, world, cut=True)
    except Exception as error:
        return Played(steps, failure_of(error), world)
    return Played(steps, None, world)


def failure_of(error: Exception) -> Failure:
    """Alike for what has the same cause."""
    if isinstance(error, Violation):
        cause = error.__cause__
        if not isinstance(cause, Exception):
            return Failure(error.number, str(error))
        return Failure(f"{error.number} {failure_of(cause).kind}", f"{error}\n{failure_of(cause).text}")
    name = type(error).__name__
    text = f"{name}: {error}\n{''.join(traceback.format_exception(error)).rstrip()}"
    if isinstance(error, TooSlow):  # wherever it was
        return Failure(name, text)
    where = traceback.extract_tb(error.__traceback__)[-1]
    return Failure(f"{name} in {Path(where.filename).stem}.{where.name}", text)


def _chosen(chooser: Choice, length: int) -> Source:
    return lambda world: (chooser.choose(world) for _ in range(length))


def _given(steps: Iterable[AnyStep]) -> Source:
    return lambda world: steps


def _placed(steps: Iterable[AnyStep]) -> Source:
    """Steps that name packets by their place."""

    def source(world: Arena) -> Iterator[AnyStep]:
        for step in steps:
            found = from_place(step, world)
            if found is not None:
                yield found

    return source


def to_place(step: AnyStep, world: Arena) -> AnyStep:
    """Packets named by their place: on the wire, or, for `dup`, counted back from the one that left last."""
    if step.number == WHOLE_WIRE:
        return step
    if step.action == "dup":
        return step._replace(number=world.sent - 1 - step.number)
    if step.action in _PLACED:
        return step._replace(number=sorted(world.flight).index(step.number))
    return step


def from_place(step: AnyStep, world: Arena) -> AnyStep | None:
    """The reverse; None where there is no such packet."""
    if step.number == WHOLE_WIRE:
        return step
    if step.action == "dup":
        number = world.sent - 1 - step.number
        return step._replace(number=number) if number >= 0 else None
    if step.action in _PLACED:
        there = sorted(world.flight)
        return step._replace(number=there[step.number]) if step.number < len(there) else None
    return step


# Findings -------------------------------------------------------------------------------------------------------------


def _finding(profile: str, name: str, setting: AnySetting, played: Played, give_up: Stop) -> Finding:
    """The failure in as few steps as can be found before it has to `give_up`; with bytes, if it then fails as well."""
    drawn = len(played.steps)
    real = setting.as_run()
    with_bytes = play(real, _given(map(_without_crc, played.steps)), give_up=give_up)
    if _same(with_bytes, played):
        setting, played = real, with_bytes
    assert played.failure is not None
    if not played.failure.kind.endswith(TooSlow.__name__):  # each attempt would take as long
        setting, played = _shrunk(setting, played, give_up)
        played = _spelt_out(setting, played, give_up)
    again = play(setting, _given(played.steps), give_up=give_up)
    assert played.failure is not None
    return Finding(
        machine=profile,
        seed=name,
        steps=tuple(played.steps),
        drawn=drawn,
        text=played.failure.text,
        kind=played.failure.kind,
        only_objects=setting.objects and not with_bytes.cut,
        only_once=not again.cut and not _same(again, played),
        given_up=give_up(),
        **setting.told(),
    )


def _shrunk(setting: AnySetting, played: Played, give_up: Stop) -> tuple[AnySetting, Played]:
    """The same failure in fewer steps, then with fewer settings: the last attempt that failed alike."""
    effort, best = EFFORT, (setting, played)

    def ended() -> bool:
        return effort < 0 or give_up()

    def fails(steps: Sequence[Any], setting: AnySetting = setting, finish: bool = True) -> bool:
        nonlocal effort, best
        if ended():
            return False
        try:
            attempt = play(setting, _placed(steps), finish, give_up)
        except LocalError:  # these settings exclude each other
            return False
        effort -= len(attempt.steps) + attempt.world.sent
        if not _same(attempt, played):
            return False
        best = setting, attempt
        return True

    places: list[Any] = _places(setting, played.steps, give_up)
    if fails(places, finish=False):  # to finish takes long, and many more steps can be left out without
        places = shrink.shrink(places, lambda steps: fails(steps, finish=False), give_up=ended, simpler=setting.simpler)
    places = shrink.shrink(places, fails, give_up=ended, simpler=setting.simpler)
    for node in (0, 1):
        for name in setting.names(node):
            fails(places, best[0].without(node, name))
    return best


def _spelt_out(setting: AnySetting, played: Played, give_up: Stop) -> Played:
    """What fails only at the end, if a few more steps do the same: then the capture shows it."""

    def source(world: Arena) -> Iterator[AnyStep]:
        yield from played.steps
        for _ in range(SPELT_OUT):
            yield setting.step("deliver", next(iter(world.flight))) if world.flight else setting.step("advance", PAUSE)

    found = play(setting, source, finish=False, give_up=give_up)
    return found if _same(found, played) else played


def _places(setting: AnySetting, steps: list[Any], give_up: Stop) -> list[AnyStep]:
    """Steps that name packets by their place."""
    places: list[AnyStep] = []

    def source(world: Arena) -> Iterator[AnyStep]:
        for step in steps:
            places.append(to_place(step, world))
            yield step

    play(setting, source, give_up=give_up)
    return places


def _same(one: Played, other: Played) -> bool:
    """They failed alike."""
    return one.failure is not None and other.failure is not None and one.failure.kind == other.failure.kind


def _without_crc(step: AnyStep) -> AnyStep:
    """Without bytes a damaged packet is one that the CRC refuses."""
    return step._replace(action="drop", at=0) if step.action == "corrupt" and type(step) is Step else step


def _digest(name: str, played: Played) -> int:
    """Of how an episode went."""
    world = played.world
    text = f"{name} {len(played.steps)} {world.now} {world.sent} {played.failure and played.failure.kind}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
