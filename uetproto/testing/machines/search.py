# SPDX-License-Identifier: GPL-2.0-only
"""This module lets Hypothesis look for findings with a machine, round after round, until the time or the steps are used
up.

Each round has a seed of its own, which follows from that of the search. A round ends with its first new finding, in as
few steps as Hypothesis finds. What was found before is only counted from then on.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import HealthCheck, Phase, reject, seed, settings
from hypothesis.errors import InvalidArgument, Unsatisfiable
from hypothesis.stateful import run_state_machine_as_test

from uetproto.errors import LocalError, argument
from uetproto.testing.adapters.adapter import AdapterFactory, AdapterFault
from uetproto.testing.machines.finding import HUNG, MachineFailure, MachineFinding, failure_of, played_again, shortened
from uetproto.testing.machines.judge import Verdicts
from uetproto.testing.machines.machine import PlayedMachine, ProtocolMachine

LENGTH = 50
"""Steps of a run."""
RUNS = 100
"""Runs of a round that finds nothing."""
SHORT = 10
"""Runs of such a round if several machines take turns."""
HOPELESS = 10
"""Runs after which a search ends if all of them failed at their first step."""

Stop = Callable[[], bool]


class SearchEnded(KeyboardInterrupt):
    """This exception ends a round. Hypothesis ends at once for Ctrl-C, and for this exception, too."""


@dataclass(slots=True)
class SearchTally:
    """A tally has the counts and the findings of a search."""

    steps: int = 0
    """Steps that were drawn; those of attempts to shrink a finding are not counted."""
    moves: int = 0
    """Steps, and frames that left an end, of all runs."""
    runs: int = 0
    failed: int = 0
    digest: int = 0
    """Digest of all steps and frames, in order."""
    findings: dict[str, MachineFinding] = field(default_factory=dict)
    verdicts: Verdicts = field(default_factory=Verdicts)

    @property
    def is_hopeless(self) -> bool:
        """Return whether no run has come behind its first step."""
        return self.runs >= HOPELESS and self.runs == self.failed == self.steps


def search(
    kinds: Sequence[type[PlayedMachine]], adapter: str | None, factory: AdapterFactory | None, start: int,
    tally: SearchTally, *, steps: int | None = None, stop: Stop = lambda: False,
) -> Iterator[MachineFinding | None]:  # fmt: skip
    """Look for findings until `stop()` is true or `steps` steps were drawn. Count in `tally`, and yield the finding or
    None after each round. Machines take turns, a round each. `start` is the seed. `factory` makes the adapter, whose
    name is `adapter`; None: our engine. The first step is made whatever `stop` says, so that an adapter that hangs is
    found. Raises `LocalError` for what is no adapter, and for one that cannot close."""
    tested = [_tested(kind, factory) for kind in kinds]
    runs = RUNS if len(tested) == 1 else SHORT

    def is_over() -> bool:
        return tally.steps > 0 and stop()

    try:
        for number in count():
            left = None if steps is None else steps - tally.steps
            if is_over() or (left is not None and left <= 0) or tally.is_hopeless:
                break
            length = LENGTH if left is None else min(LENGTH, left)
            kind = tested[number % len(tested)]
            yield Round(kind, tally, f"{start}/{number}", length, steps, is_over).play(adapter, runs)
        for kind in tested:
            kind.release()
    except AdapterFault as error:
        raise LocalError(argument("adapter"), str(error), id="adapter-not-loaded") from error
    finally:
        for kind in tested:
            kind.discard()


def _tested(kind: type[PlayedMachine], factory: AdapterFactory | None) -> type[PlayedMachine]:
    """Return the machine for an adapter. Raises `LocalError` for what is no adapter."""
    if not issubclass(kind, ProtocolMachine):
        if factory is not None:
            raise LocalError(
                argument("adapter"), f"{kind.name} drives our engines only", f"no {argument('adapter')}",
                id="not-with-machine"
            )  # fmt: skip
        return kind
    made = kind.of(kind.factory if factory is None else factory)
    try:
        made.adapter()  # what is no adapter is misuse; what fails is a finding of the first run
    except InvalidArgument as error:
        raise LocalError(argument("adapter"), str(error), id="adapter-not-loaded") from error
    except AdapterFault:
        pass
    return made


class Round:
    """A round is one call of Hypothesis; it watches the runs of the machine."""

    def __init__(
        self, tested: type[PlayedMachine], tally: SearchTally, name: str, length: int, steps: int | None = None,
        stop: Stop = lambda: False, shrinks: bool = True,
    ) -> None:  # fmt: skip
        """Make a round for a machine. `name` is its seed, `length` the number of steps of a run. The round counts in
        `tally`; it ends before more than `steps` steps are counted there, or when `stop()` is true. Unless `shrinks`,
        a finding only loses the steps without which it still fails, which is much faster."""
        self._phases = [Phase.generate, Phase.shrink] if shrinks else [Phase.generate]
        self._tested, self._tally, self._name = tested, tally, name
        self._length, self._steps, self._stop = length, steps, stop
        self._hash = hashlib.sha256(tally.digest.to_bytes(8, "big"))
        self._drawn = 0
        self._target: str | None = None
        """Name of the finding that is shrunk."""
        self._best: MachineFailure | None = None
        """The failure in as few steps as were found."""

    def play(self, adapter: str | None, runs: int) -> MachineFinding | None:
        """Let Hypothesis make `runs` runs; return what it found that is new."""
        watched = self._watched()
        how = settings(
            max_examples=runs, stateful_step_count=self._length, database=None, deadline=None, print_blob=False,
            suppress_health_check=list(HealthCheck), report_multiple_bugs=False, derandomize=False,
            phases=self._phases,
        )  # fmt: skip
        ended = False
        try:
            run_state_machine_as_test(seed(self._name)(watched), settings=how)
        except SearchEnded:
            ended = True
        except Unsatisfiable:  # every run failed as one before
            pass
        except Exception:
            if self._target is None:
                raise
        finally:
            watched.release()
            self._tally.verdicts.add(watched.verdicts)
        self._tally.digest = int.from_bytes(self._hash.digest()[:8], "big")
        if (found := self._best) is None:
            return None
        finding = MachineFinding(self._tested.name, adapter, self._name, found, self._drawn, given_up=ended)
        if found.name != HUNG:
            _, again = played_again(self._tested, found.steps)
            finding.only_once = again is None or again.name != found.name
            if again is not None and not finding.only_once:
                finding.failure = shortened(self._tested, again, self._stop)
        self._tally.findings[found.name] = finding
        return finding

    def _watched(self) -> type[PlayedMachine]:
        """Return the machine, with a context around each rule that tells this class."""
        here, tested = self, self._tested

        def made(machine: PlayedMachine) -> None:
            tested.__init__(machine)
            here.begin()

        def told(machine: PlayedMachine) -> AbstractContextManager[None]:
            return _Watch(here, machine)

        kind: Any = type(f"{tested.__name__}Watched", (tested,), {"__init__": made, "told": told})
        if issubclass(tested, ProtocolMachine):
            kind.factory = tested.factory
        watched: type[PlayedMachine] = kind
        return watched

    def begin(self) -> None:
        """Begin a run. Raises `SearchEnded` if the steps that are left are too few."""
        if self._target is None:
            too_few = self._steps is not None and self._tally.steps + self._length > self._steps
            if too_few or self._tally.is_hopeless:
                raise SearchEnded
            self._tally.runs += 1
        self._counted = 0

    def enter(self, machine: PlayedMachine) -> None:
        """Begin a rule, or the end of the run."""
        if self._stop():
            machine.failed = True  # so that its end does not play the rest
            raise SearchEnded
        if len(machine.played) > self._counted:
            self._counted = len(machine.played)
            self._tally.moves += 1
            self._tally.steps += self._target is None
            self._hash.update(repr(machine.played[-1]).encode())
        elif machine.is_begun():
            self.count(machine)

    def count(self, machine: PlayedMachine) -> None:
        """Count the frames of a run that ends."""
        self._tally.moves += machine.sent
        for frame in machine.frames:
            self._hash.update(frame.data)

    def failed(self, machine: PlayedMachine, error: Exception) -> None:
        """Note a failure; one that is not looked for at this moment makes Hypothesis reject the run."""
        machine.failed = True
        if machine.is_begun():
            self.count(machine)
        failure = failure_of(machine, error)
        if self._target is None:
            self._tally.failed += 1
            known = self._tally.findings.get(failure.name)
            if known is not None:
                known.times += 1
                reject()
            self._target, self._drawn = failure.name, len(failure.steps)
            if failure.name != HUNG:
                failure = shortened(self._tested, failure, self._stop)  # which may be all that the time allows
        elif failure.name != self._target:
            reject()
        if self._best is None or len(failure.steps) <= len(self._best.steps):
            self._best = failure
        if failure.name == HUNG:
            raise SearchEnded


class _Watch(AbstractContextManager[None]):
    """This context tells a round of what happens in a rule of a machine. The ladder is drawn only of what is kept."""

    def __init__(self, here: Round, machine: PlayedMachine) -> None:
        self._here, self._machine = here, machine

    def __enter__(self) -> None:
        self._here.enter(self._machine)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception):
            if isinstance(error, AdapterFault):
                self._machine.discard()
            if not self._machine.failed:
                self._here.failed(self._machine, error)
