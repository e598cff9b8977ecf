# SPDX-License-Identifier: GPL-2.0-only
"""This module writes what a machine has found as a TOML file with its steps, and plays such a file again."""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from hypothesis.errors import InvalidArgument

from uetproto.check.finding import NOT_SHRUNK
from uetproto.check.toml_text import printable
from uetproto.errors import LocalError, Location, argument, shown, similar, unfit
from uetproto.testing.adapters.adapter import AdapterFault
from uetproto.testing.adapters.named import adapter_named
from uetproto.testing.machines.machine import (
    PlayedMachine,
    PlayedStep,
    ProtocolMachine,
    ladder,
    legal_values,
    strategies_of,
)
from uetproto.testing.machines.named import machine_named
from uetproto.testing.machines.picture import DrawnMessage, Frames, write_capture
from uetproto.testing.machines.world import WorldFailure
from uetproto.toml.file import TomlFile

HUNG = "adapter-hung"
"""Name of a finding that is not shrunk, as each attempt takes as long."""
PATIENCE = 30.0
"""Seconds for which steps are left out of the failure of a test case."""
RULE = "rule"
"""Key of a `[[step]]` that has the name of its rule; all other keys are arguments."""


@dataclass(slots=True)
class MachineFailure:
    """This record says how the run of a machine failed."""

    name: str
    """Name of the rule or invariant, or the kind of the fault of an adapter."""
    text: str
    steps: tuple[PlayedStep, ...]
    frames: Frames = ()
    """Frames at the port of the implementation."""
    messages: Sequence[DrawnMessage] = ()
    """Messages between our engines, if the machine drives a network of them."""

    @property
    def ladder(self) -> list[str]:
        """Return the lines of the ladder of the frames or messages."""
        return ladder(self.frames, self.messages)


def failure_of(machine: PlayedMachine, error: Exception) -> MachineFailure:
    """Return the failure of a run that ended with `error`, with the frames up to then."""
    match error:
        case WorldFailure():
            name, text = error.name, str(error)
        case AdapterFault():
            name, text = error.kind, str(error)
        case _:
            name, text = type(error).__name__, f"{type(error).__name__}: {error}"
    steps = tuple((rule, dict(arguments)) for rule, arguments in machine.played)
    return MachineFailure(name, text, steps, machine.frames, machine.messages)


def played_again(kind: type[PlayedMachine], steps: Sequence[PlayedStep]) -> tuple[PlayedMachine, MachineFailure | None]:
    """Play steps, and return the machine and how it failed; None: it did not fail."""
    try:
        return _played(kind, steps)
    finally:
        kind.release()


def _played(kind: type[PlayedMachine], steps: Sequence[PlayedStep]) -> tuple[PlayedMachine, MachineFailure | None]:
    machine = kind()
    try:
        try:
            machine.play(steps)
        finally:
            machine.teardown()
    except (LocalError, InvalidArgument):
        raise
    except Exception as error:
        return machine, failure_of(machine, error)
    return machine, None


def shortened(
    kind: type[PlayedMachine], failure: MachineFailure, stop: Callable[[], bool] = lambda: False
) -> MachineFailure:
    """Return a failure without the steps and settings that it does not need. Hypothesis often leaves some.

    They are left out one by one, as long as the same rule or invariant fails, until `stop()` is true.
    """
    shorter = True
    try:
        while shorter:
            shorter = False
            for less in _WITHOUT_ONE:
                place = 0
                while not stop() and (steps := less(failure.steps, place)) is not None:
                    _, found = _played(kind, steps)
                    if found is None or found.name != failure.name or _size(found.steps) >= _size(failure.steps):
                        place += 1
                    else:
                        failure, shorter = found, True
    finally:
        kind.release()
    return failure


def fail_shorter(kind: type[PlayedMachine], error: WorldFailure | AdapterFault) -> None:
    """Raise the failure `error` of a machine again, played by fewer steps, unless it needs all of them.

    The notes of what is raised have the ladder and the steps. A call that hangs is not tried again.
    """
    name = error.name if isinstance(error, WorldFailure) else error.kind
    if name == HUNG:
        return
    end = time.monotonic() + PATIENCE
    steps = tuple((rule, dict(arguments)) for rule, arguments in error.steps)
    shorter = shortened(kind, MachineFailure(name, str(error), steps), lambda: time.monotonic() > end).steps
    if _size(shorter) == _size(steps):
        return
    try:
        kind.replay(shorter)
    except (WorldFailure, AdapterFault) as again:
        calls = [f"state.{rule}({', '.join(f'{key}={value!r}' for key, value in of.items())})" for rule, of in shorter]
        for line in ("Failing steps:", f"state = {kind.__name__}()", *calls, "state.teardown()"):
            again.add_note(line)
        raise again from None


def _without_step(steps: Sequence[PlayedStep], place: int) -> Sequence[PlayedStep] | None:
    """Return the steps without the one at a place that counts from the last; None: the first step stays."""
    at = len(steps) - 1 - place
    return (*steps[:at], *steps[at + 1 :]) if at > 0 else None


def _without_key(steps: Sequence[PlayedStep], place: int) -> Sequence[PlayedStep] | None:
    """Return the steps without one of the keys of mappings that are arguments of the first step."""
    rule, arguments = steps[0]
    keys = [(name, key) for name, value in arguments.items() if isinstance(value, Mapping) for key in value]
    if place >= len(keys):
        return None
    name, left_out = keys[place]
    less = {key: value for key, value in arguments[name].items() if key != left_out}
    return ((rule, {**arguments, name: less}), *steps[1:])


_WITHOUT_ONE = (_without_step, _without_key)


def _size(steps: Sequence[PlayedStep]) -> int:
    """Return the number of steps, and of keys of mappings that are arguments."""
    values = [value for _, arguments in steps for value in arguments.values()]
    return len(steps) + sum(len(value) for value in values if isinstance(value, Mapping))


# Written --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class MachineFinding:
    """This record holds one way in which an implementation fails."""

    machine: str
    adapter: str | None
    """Name of the adapter; None: our engine."""
    seed: str
    """Seed of the run, `/`, and the number of the round."""
    failure: MachineFailure
    drawn: int
    """Number of steps that the run had when it failed first."""
    given_up: bool = False
    """Whether the search for fewer steps was ended."""
    only_once: bool = False
    """Whether the same steps did not fail when they were played again."""
    times: int = 1
    """Number of runs that failed so."""

    @property
    def file_name(self) -> str:
        """Return the name of the files of the finding, without an ending."""
        return re.sub(r"[^\w.]+", "-", f"{self.machine} {self.failure.name} {self.seed}").strip("-").lower()


def keep(finding: MachineFinding, folder: Path) -> Path:
    """Write the finding, its capture (.pcap) and its ladder (.txt) into a folder; return the path of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{finding.file_name}.toml"
    file.write_text("\n".join(_lines(finding)) + "\n", encoding="utf-8")
    if finding.failure.frames:
        write_capture(file.with_suffix(".pcap"), finding.failure.frames)
    ladder_text = "\n".join((finding.failure.text, "", *finding.failure.ladder)) + "\n"
    file.with_suffix(".txt").write_text(ladder_text, encoding="utf-8")
    return file


def _lines(finding: MachineFinding) -> Iterator[str]:
    failure = finding.failure
    adapter = "" if finding.adapter is None else f" --adapter {json.dumps(finding.adapter, ensure_ascii=False)}"
    yield f"# Found by `uetproto fuzz {finding.machine}{printable(adapter)}`, seed {finding.seed}:"
    how = NOT_SHRUNK if finding.given_up else "after shrinking"
    yield f"# {len(failure.steps)} steps of {finding.drawn}, {how}. `uetproto run` plays them again."
    if finding.only_once:
        yield "# Only once: played again, the same steps do not fail."
    yield from (f"# {printable(line)}".rstrip() for line in failure.text.splitlines())
    run = {"machine": finding.machine, "adapter": finding.adapter, "description": failure.text.partition("\n")[0]}
    yield from ("", "[run]", *_keys({name: value for name, value in run.items() if value is not None}))
    for rule, arguments in failure.steps:
        told = {name: value for name, value in arguments.items() if value is not None}
        yield from ("", "[[step]]", *_keys({RULE: rule, **told}))


def _keys(values: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name} = {_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    """Return a value as TOML writes it on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(name)} = {_value(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(printable(value) if isinstance(value, str) else value, ensure_ascii=False)


# Read -----------------------------------------------------------------------------------------------------------------


class FindingFile(TomlFile):
    """This class reads a finding: `[run]` with `machine` and `adapter`, and a `[[step]]` for each rule."""

    def table_of(self, name: str, key: str) -> dict[str, Any]:
        if key not in ("run.adapter", "run.machine"):
            raise LocalError(
                argument("settings", name), "is no key of a finding that can be set", "run.adapter, run.machine",
                id="unknown-key"
            )  # fmt: skip
        table = self.data.get("run")
        if not isinstance(table, dict):
            raise self.refuse("run", "is no table", "[run] with the key machine", id="not-a-table")
        return table

    def place(self, key: str) -> Location:
        """Return the place of a key."""
        return Location(str(self.path), self.lines.get(key, 1))

    def machine(self) -> type[PlayedMachine]:
        """Return the machine with its adapter. Raises `LocalError` for names that do not exist."""
        for key in self.data:
            if key not in ("run", "step"):
                raise self.refuse(key, "is no key of a finding", "run, step", id="unknown-key")
        run = self.data["run"]
        for key in run:
            if key not in ("machine", "adapter", "description"):
                raise self.refuse(
                    f"run.{key}", "is no key of a finding", "machine, adapter, description", id="unknown-key"
                )
        kind = machine_named(run["machine"], self.place("run.machine"))
        adapter = run.get("adapter")
        if not issubclass(kind, ProtocolMachine):
            if adapter is not None:
                raise self.refuse("run.adapter", f"{kind.name} drives our engines only", id="not-with-machine")
            return kind
        if adapter is None:
            return kind.of(kind.factory)
        if not isinstance(adapter, str):
            raise self.refuse("run.adapter", f"{shown(adapter)} is not legal", "a text", id="wrong-type")
        try:
            return kind.of(adapter_named(adapter))
        except LocalError as error:
            raise LocalError(*error.args, place=self.place("run.adapter"), id=error.id) from error

    def steps(self, kind: type[PlayedMachine]) -> list[PlayedStep]:
        """Return the steps. Raises `LocalError` for rules and arguments that the machine does not have."""
        rows = self.data.get("step", [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self.refuse("step", f"{shown(rows)} is not legal", "[[step]], a table each", id="not-a-table")
        return [self._step(kind, f"step.{number}", row) for number, row in enumerate(rows)]

    def _step(self, kind: type[PlayedMachine], at: str, row: Mapping[str, Any]) -> PlayedStep:
        rule = row.get(RULE)
        if not isinstance(rule, str) or rule not in kind.steps:
            what = (
                "is missing" if rule is None else f"{shown(rule)} is no rule of {kind.name}{similar(rule, kind.steps)}"
            )
            raise self.refuse(f"{at}.{RULE}", what, ", ".join(sorted(kind.steps)), id="unknown-name")
        parameters = [*signature(kind.steps[rule]).parameters.values()][1:]
        names = [each.name for each in parameters]
        optional = {each.name: None for each in parameters if NoneType in get_args(each.annotation)}
        arguments = {**optional, **{name: value for name, value in row.items() if name != RULE}}
        for name in arguments:
            if name not in names:
                raise self.refuse(
                    f"{at}.{name}", f"is no argument of {rule}{similar(name, names)}", _listed(names),
                    id="unknown-argument"
                )  # fmt: skip
        for name in names:
            if name not in arguments:
                raise self.refuse(f"{at}.{name}", f"is missing: {rule} needs it", _listed(names), id="missing-key")
        for name, strategy in strategies_of(kind.steps[rule]).items():
            legal = legal_values(strategy, arguments[name])
            if legal is not None:
                raise self.refuse(
                    f"{at}.{name}", f"{shown(arguments[name])} is not legal", legal, id=unfit(arguments[name])
                )
        return rule, arguments


def _listed(names: Sequence[str]) -> str:
    return ", ".join((RULE, *names))
