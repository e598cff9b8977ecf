# SPDX-License-Identifier: GPL-2.0-only
"""A machine is a Hypothesis state machine whose rules drive an implementation and its peer, step by step.

The machine keeps the name and the arguments of each rule that was played. The arguments are numbers, texts, booleans
and lists. The exception of a failure has notes: a chart of the frames at the port of the implementation.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache, wraps
from typing import Any, ClassVar, TypeVar

import hypothesis.strategies as st
from hypothesis.errors import InvalidArgument
from hypothesis.stateful import (
    INITIALIZE_RULE_MARKER,
    RULE_MARKER,
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import Readers
from uetproto.check.time_limit import pulse, time_limit
from uetproto.engine.contract import MILLISECOND
from uetproto.errors import identified, shown
from uetproto.testing.adapters.adapter import AdapterFactory, AdapterFault, WorkRefused
from uetproto.testing.adapters.engines import EngineAdapter
from uetproto.testing.adapters.guarded import GuardedAdapter, Observed, made_by
from uetproto.testing.machines.judge import Verdicts, judged_at_port
from uetproto.testing.machines.picture import DrawnMessage, Frames, lines_of, message_lines
from uetproto.testing.machines.world import ADDRESSES, IMPLEMENTATION, PEER, World, WorldFailure
from uetproto.wire.capture.pcap import ETHERNET

_M = TypeVar("_M", bound="ProtocolMachine")
PlayedStep = tuple[str, Mapping[str, Any]]
"""Type of a rule that was played: its name and its arguments."""

PATIENCE = 60.0
"""Seconds of CPU time that a rule, or the end of a run, may take. If the time ends during a call of the
adapter, this call counts as hung. An adapter that waits for a process has its own limit."""
WAITS = (MILLISECOND // 2, MILLISECOND, 5 * MILLISECOND, 40 * MILLISECOND)
"""Durations that a rule lets pass, in picoseconds."""


_STEPS: set[str] = set()
"""Qualified names of the methods that are rules."""


def _kept(play: Callable[..., None]) -> Callable[..., None]:
    """Return a rule that keeps its name and arguments, and that shows the ladder when it fails."""
    _STEPS.add(play.__qualname__)

    @wraps(play)
    def kept(machine: "PlayedMachine", **arguments: Any) -> None:
        machine.played.append((play.__name__, arguments))
        with machine.told(), time_limit(PATIENCE), pulse(machine.check_time):
            try:
                play(machine, **arguments)
            except WorkRefused:
                machine.refused += 1

    return kept


def step(**strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that makes a method a rule of a machine."""
    return lambda play: rule(**strategies)(_kept(play))  # type: ignore[call-overload]  # a rule without bundles


def start(**strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that makes a method the first rule of every run. The method calls `make_world`."""
    return lambda play: initialize(**strategies)(_kept(play))  # type: ignore[call-overload]


def legal_values(strategy: Any, value: Any) -> str | None:
    """Return what a strategy draws, as a text, if `value` is nothing of the kind; else None.

    Numbers between those that are drawn are legal, too. What a strategy does not tell is not checked.
    """
    drawn = getattr(strategy, "wrapped_strategy", strategy)
    if hasattr(drawn, "original_strategies"):  # st.one_of
        branches = [legal_values(each, value) for each in drawn.original_strategies]
        return None if None in branches else " or ".join(map(str, branches))
    if hasattr(drawn, "optional"):  # st.fixed_dictionaries
        known = {**drawn.mapping, **(drawn.optional or {})}
        if not isinstance(value, Mapping):  # what is missing, `shortened` has left out
            return f"a table of {', '.join(known)}"
        wrong = next((name for name in value if name not in known), None)
        if wrong is not None:
            return f"{', '.join(known)}, and not {shown(wrong)}"
        illegal = ((name, legal_values(known[name], value[name])) for name in value)
        return next((f"for {name} {legal}" for name, legal in illegal if legal is not None), None)
    if hasattr(drawn, "start") and hasattr(drawn, "end"):  # st.integers
        return _legal_number(value, drawn.start, drawn.end)
    if type(drawn).__name__ == "BooleansStrategy":
        return None if type(value) is bool else "False, True"
    if hasattr(drawn, "element_strategy"):  # st.lists
        if not isinstance(value, list | tuple):
            return "a list"
        return next((told for each in value if (told := legal_values(drawn.element_strategy, each)) is not None), None)
    elements: Any = getattr(drawn, "elements", None)
    if elements is None or getattr(drawn, "_transformations", None) or (value is None and None in elements):
        return None
    return _legal_element(value, [each for each in elements if each is not None])


def _legal_element(value: Any, elements: Sequence[Any]) -> str | None:
    kinds = {type(each) for each in elements}
    if kinds == {int} or kinds == {float}:
        return _legal_number(value, min(0, *elements), max(elements), *kinds)
    if not kinds <= {str, bool}:
        return None
    same = any(each == value and type(each) is type(value) for each in elements)
    return None if same else ", ".join(dict.fromkeys(map(str, elements)))


def _legal_number(value: Any, low: float, high: float, kind: type = int) -> str | None:
    return None if type(value) in (int, kind) and low <= value <= high else f"{low} … {high}"


def strategies_of(play: Callable[..., None]) -> Mapping[str, Any]:
    """Return the strategies of the arguments of a rule."""
    marked = getattr(play, RULE_MARKER, None) or getattr(play, INITIALIZE_RULE_MARKER, None)
    return {} if marked is None else marked.arguments


class _TestCases:
    """This descriptor makes the class of `unittest` of a machine, as Hypothesis does. Its failures lose the steps that
    they do not need, of which Hypothesis leaves some."""

    def __get__(self, machine: object, kind: "type[PlayedMachine]") -> Any:
        return _test_case_of(kind)


@cache
def _test_case_of(kind: "type[PlayedMachine]") -> Any:
    plain: Any = vars(RuleBasedStateMachine)["TestCase"].__get__(None, kind)

    def run_test(case: Any) -> None:
        try:
            plain.runTest(case)
        except (WorldFailure, AdapterFault) as error:
            from uetproto.testing.machines.finding import fail_shorter  # it imports this module

            fail_shorter(kind, error)
            raise

    run_test.__dict__.update(vars(plain.runTest))  # marks of Hypothesis
    return type(plain.__name__, (plain,), {"runTest": run_test, "__qualname__": plain.__qualname__})


class PlayedMachine(RuleBasedStateMachine):
    """This class keeps the rules that were played, and plays them again."""

    name: ClassVar[str]
    verdicts: ClassVar[Verdicts]
    """What was judged in all runs of this class."""
    steps: ClassVar[dict[str, Callable[..., None]]]
    """The rules by name."""
    TestCase = _TestCases()

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.verdicts = Verdicts()
        cls.steps = {
            name: getattr(cls, name)
            for kind in cls.__mro__
            for name in vars(kind)
            if f"{kind.__qualname__}.{name}" in _STEPS
        }

    def __init__(self) -> None:
        super().__init__()
        self.played: list[PlayedStep] = []
        self.refused = 0
        """Number of operations that the implementation refused."""
        self.failed = False

    @property
    def frames(self) -> Frames:
        """Return the frames at the port of the implementation."""
        return ()

    @property
    def messages(self) -> Sequence[DrawnMessage]:
        """Return the messages of a network of our engines, for the ladder."""
        return ()

    @property
    def sent(self) -> int:
        """Return the number of frames or messages that left all ends."""
        return 0

    @classmethod
    def release(cls) -> None:
        """Close what all runs share."""

    @classmethod
    def discard(cls) -> None:
        """Close what all runs share after an adapter has failed, which may not be able to close any more."""
        with suppress(AdapterFault):
            cls.release()

    def check_time(self) -> None:
        """Raise `TooSlow` if a call of an implementation takes too long."""

    def told(self) -> AbstractContextManager[None]:
        """Return a context for each rule, in which a failure ends the run."""
        return _Told(self)

    def finish(self) -> None:
        """Play the end of the run, and check it."""

    def is_begun(self) -> bool:
        return bool(self.played)

    def teardown(self) -> None:
        """Play the end of the run, unless the run has failed, or Hypothesis ends it early."""
        if self.failed or not self.is_begun() or sys.exc_info()[0] is not None:
            return
        with self.told(), time_limit(PATIENCE), pulse(self.check_time):
            self.finish()

    def play(self, steps: Sequence[PlayedStep]) -> None:
        """Play rules by name. A rule that is not possible at its turn, as it delivers a frame where none is on its way,
        is left out. Raises what the rules raise, and `InvalidArgument` for a rule that does not exist or an argument
        that is not legal."""
        for name, arguments in steps:
            if name not in self.steps:
                raise identified(
                    InvalidArgument(f"{name!r} is no rule of {self.name}; there are {', '.join(sorted(self.steps))}"),
                    "unknown-name",
                )
            play = self.steps[name]
            for argument, strategy in strategies_of(play).items():
                legal = legal_values(strategy, arguments.get(argument))
                if legal is not None:
                    told = shown(arguments.get(argument))
                    raise identified(
                        InvalidArgument(f"{name}: {argument}={told} is not legal; legal: {legal}"), "out-of-range"
                    )
            if all(condition(self) for condition in getattr(getattr(play, RULE_MARKER, None), "preconditions", ())):
                play(self, **arguments)

    @classmethod
    def replay(cls, steps: Sequence[PlayedStep], finish: bool = True) -> "PlayedMachine":
        """Play `steps`, which are rules by name with their arguments. If `finish` is true, also play the end of the
        run. Raises what the rules raise, and `InvalidArgument` for a rule that does not exist."""
        machine = cls()
        try:
            machine.play(steps)
        finally:
            if finish:
                machine.teardown()
        return machine


class ProtocolMachine(PlayedMachine):
    """This class is the base of the machines that drive an adapter. Its rules deliver, drop, copy, trim, mark and
    damage frames, and wait."""

    peer: ClassVar[Callable[[], EngineAdapter]]
    """Makes the adapter of our engine, which is the peer of the implementation."""
    factory: ClassVar[AdapterFactory]
    """Makes the adapter of the implementation."""
    options: ClassVar[Options] = judged_at_port(Options(crc="on"))
    notes: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the names of rules of the audit whose notes count as findings, too."""
    observed: ClassVar[Observed] = Observed()
    """What `observe` of the implementation may return."""
    trims: ClassVar[bool] = True
    """Whether switches may trim the frames of the protocol."""
    _readers: ClassVar[Readers]
    _adapter: ClassVar[GuardedAdapter | None]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls._readers = Readers(ETHERNET, cls.options)
        cls._adapter = None
        if "peer" in cls.__dict__ and "factory" not in cls.__dict__:
            cls.factory = cls.peer

    @classmethod
    def of(cls: type[_M], factory: AdapterFactory) -> type[_M]:
        """Return this machine for another implementation: `factory` makes its adapter.

        Raises `InvalidArgument` if `factory` is no function.
        """
        if not callable(factory):
            raise identified(
                InvalidArgument(f"factory: {shown(factory)} is not legal, but a class or function without arguments"),
                "wrong-type",
            )
        attributes = {"factory": staticmethod(factory), "__module__": cls.__module__}
        made: type[_M] = type(f"{cls.__name__}For{getattr(factory, '__name__', 'Adapter')}", (cls,), attributes)
        return made

    def __init__(self) -> None:
        super().__init__()
        self.world: World

    @property
    def frames(self) -> Frames:
        return tuple(self.world.judge.frames) if self.is_begun() else ()

    @property
    def sent(self) -> int:
        return self.world.sent if self.is_begun() else 0

    # The world

    @classmethod
    def adapter(cls) -> GuardedAdapter:
        """Return the adapter of the implementation, which all runs share. A new adapter is made after a fault."""
        if cls._adapter is None:
            made = made_by(cls.factory, cls.observed, cls.verdicts)
            made.capabilities.check_work(cls.name)
            cls._adapter = made
        return cls._adapter

    @classmethod
    def release(cls) -> None:
        """Close the adapter. Raises `AdapterFault` if this fails."""
        adapter, cls._adapter = cls._adapter, None
        if adapter is not None:
            adapter.close()

    def check_time(self) -> None:
        if self._adapter is not None:
            self._adapter.check_time()

    def make_world(
        self, config: Mapping[str, Any], own: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
    ) -> None:
        """Make the world of the run, and reset both ends with `config`. The name of the machine, a seed of 0 unless
        `config` has one, and the addresses are added to `config`. `own` has what only the implementation, and what only
        the peer, is told."""
        whole = {"machine": self.name, "seed": 0, **config}
        self.world = World(
            self.adapter(), type(self).peer(), ({**whole, **own[0]}, {**whole, **own[1]}), self.options,
            type(self)._readers, self.on_event, self.on_state, self.verdicts,
        )  # fmt: skip
        self.world.judge.notes = self.notes
        self.world.begin()

    def knobs(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """Return those settings of `drawn` that the implementation follows."""
        return {name: value for name, value in drawn.items() if name in self.adapter().capabilities.knobs}

    def on_event(self, node: int, event: Mapping[str, Any]) -> None:
        """Compare an event of an end with the model."""

    def on_state(self, state: Mapping[str, Any] | None) -> None:
        """Check what was observed of the state of the implementation. `state` is None for a black box."""

    def last_work(self) -> None:
        """Submit what all other work needs in order to end."""

    def is_done(self) -> bool:
        """Return whether all operations have ended."""
        return True

    def check_end(self) -> None:
        """Compare the end of the run with the model. Raises `WorldFailure`."""

    # The wire

    def is_flying(self) -> bool:
        return hasattr(self, "world") and bool(self.world.flight)

    def is_begun(self) -> bool:
        return hasattr(self, "world")

    def is_trimmable(self) -> bool:
        return self.trims and self.is_flying()

    @precondition(is_flying)
    @step(index=st.integers(0, 100))
    def deliver(self, index: int) -> None:
        self.world.deliver(self.world.number(index))

    @precondition(is_flying)
    @step(count=st.integers(1, 40))
    def deliver_in_order(self, count: int) -> None:
        for _ in range(min(count, len(self.world.flight))):
            self.world.deliver(self.world.number(0))

    @precondition(is_flying)
    @step(index=st.integers(0, 100))
    def drop(self, index: int) -> None:
        self.world.drop(self.world.number(index))

    @precondition(is_flying)
    @step(index=st.integers(0, 100))
    def duplicate(self, index: int) -> None:
        self.world.duplicate(self.world.number(index))

    @precondition(lambda self: self.is_begun() and self.world.sent > 0)
    @step(back=st.integers(1, 400))
    def stale(self, back: int) -> None:
        """Copy a frame that left long ago."""
        self.world.duplicate(self.world.sent - back)

    @precondition(is_trimmable)
    @step(index=st.integers(0, 100), last_hop=st.booleans())
    def trim(self, index: int, last_hop: bool) -> None:
        self.world.trim(self.world.number(index), last_hop)

    @precondition(is_flying)
    @step(index=st.integers(0, 100))
    def mark(self, index: int) -> None:
        self.world.mark(self.world.number(index))

    @precondition(is_flying)
    @step(index=st.integers(0, 100), bit=st.integers(0, 8 * 2000))
    def corrupt(self, index: int, bit: int) -> None:
        self.world.corrupt(self.world.number(index), bit)

    @precondition(is_begun)
    @step()
    def tick(self) -> None:
        """Let 1 ps pass. This rule has no arguments, so that Hypothesis tries it first in place of others when it
        shrinks. It is always possible, so that the step takes few choices and can then be deleted."""
        self.world.pass_time(1)

    @precondition(is_begun)
    @step(duration=st.sampled_from(WAITS))
    def wait(self, duration: int) -> None:
        self.world.pass_time(duration)

    @precondition(is_begun)
    @step(towards=st.sampled_from((IMPLEMENTATION, PEER)), duration=st.sampled_from(WAITS))
    def one_way(self, towards: int, duration: int) -> None:
        """The network delivers all frames to one end, and loses all frames from it. Then time passes."""
        for number in [*self.world.flight]:
            if self.world.flight[number].src != towards:
                self.world.deliver(number)
        for number in [number for number, frame in self.world.flight.items() if frame.src == towards]:
            self.world.drop(number)
        self.world.pass_time(duration)

    # The end

    def finish(self) -> None:
        """Let the network deliver everything, and check that all work ends and both ends become quiet."""
        self.last_work()
        self.world.finish(self.is_done)
        self.check_end()
        self.world.end()


class _Told(AbstractContextManager[None]):
    """In this context a failure of a machine gets the ladder as a note, and ends the run."""

    def __init__(self, machine: PlayedMachine) -> None:
        self._machine = machine

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        machine = self._machine
        if not isinstance(error, (WorldFailure, AdapterFault)) or machine.failed:
            return
        machine.failed = True
        if isinstance(error, AdapterFault):
            machine.discard()
        error.frames, error.steps = machine.frames, tuple(machine.played)
        for line in ladder(error.frames, machine.messages):
            error.add_note(line)


def ladder(frames: Frames, messages: Sequence[DrawnMessage] = ()) -> list[str]:
    """Return the lines of the ladder of the frames at the port of the implementation, or of messages between our
    engines."""
    return lines_of(frames, {ADDRESSES[IMPLEMENTATION]: "implementation"}) if frames else message_lines(messages)
