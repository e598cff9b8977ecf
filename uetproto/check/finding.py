"""What the fuzzer found, and how it is written: a scenario of steps (interfaces.md §5) that `uetproto run` replays.

What an attacker does has no scenario: `tss_finding`.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from uetproto.check.roce import finding as roce_finding
from uetproto.check.roce.steps import RoceStep
from uetproto.check.tss.steps import MACHINE as TSS
from uetproto.check.tss.steps import TssStep
from uetproto.check.uet.steps import ALL, Message, Step
from uetproto.engine.config import TIMES
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.errors import LocalError

NODES = ("a", "b")
PAYLOAD = 4
"""Bytes of a packet, where there are bytes: as few as they count without."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One way in which an episode failed."""

    machine: str
    seed: str
    """Of the episode: seed of the run, `/`, number of the episode."""
    draws: int
    """Seed of what the endpoints draw (`[run] seed`)."""
    knobs: tuple[dict[str, Any], dict[str, Any]]
    """Settings of `PdsConfig`, or of `RoceConfig`, for each endpoint; under attack: `Terms`, then `PdsConfig`."""
    presets: tuple[Preset, Preset]
    """Over RoCE there are none."""
    steps: tuple[Step, ...] | tuple[RoceStep, ...] | tuple[TssStep, ...]
    drawn: int
    """Steps that the episode had when it failed, before it was shrunk."""
    text: str
    """The violation, or the exception; the first line says which."""
    kind: str
    """What findings of the same cause have in common: the number of the invariant, or exception and function."""
    qps: tuple[dict[str, Any], dict[str, Any]] | None = None
    """Attributes of the queue pairs; None: there are none."""
    only_objects: bool = False
    """With bytes in place of objects the same steps do not fail."""
    only_once: bool = False
    """Played again, the same steps do not fail: one seed, several traces."""
    given_up: bool = False
    """It was to be made smaller, but the search had to end."""

    @property
    def is_scenario(self) -> bool:
        """`to_toml` can write it."""
        return self.machine != TSS

    @property
    def name(self) -> str:
        """For files."""
        return re.sub(r"[^\w.]+", "-", f"{self.kind} {self.seed}").strip("-").lower()


def folder_for(name: str) -> Path:
    """The folder `-o` names, in which findings can be written. It is made with the first of them, not before.

    Raises `LocalError` where that will not be possible.
    """
    folder = Path(name)
    made: list[Path] = []
    try:
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        if not made and not folder.is_dir():
            raise LocalError(f"-o {name}", "is not a folder", "a folder, or a name that is not taken")
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise LocalError(f"-o {name}", reason, "a folder that can be written, or that can be made") from error
    finally:
        for path in made:
            with suppress(OSError):
                path.rmdir()
    return folder


def to_toml(finding: Finding) -> str:
    """The finding as a scenario."""
    return "\n".join(_lines(finding)) + "\n"


def _lines(finding: Finding) -> Iterator[str]:
    yield f"# Found by `uetproto fuzz {finding.machine}`, episode {finding.seed}: {len(finding.steps)} steps"
    yield f"# of {finding.drawn}, {NOT_SHRUNK if finding.given_up else 'after shrinking'}."
    if finding.only_objects:
        yield "# Only without bytes: with packets encoded and decoded these steps do not fail."
    if finding.only_once:
        yield "# Only once: played again, the same steps do not fail."
    yield from (f"# {_printable(line)}".rstrip() for line in finding.text.splitlines())
    how: dict[str, Any] = {"ses": "scripted", "payload": PAYLOAD}
    if finding.qps is not None:
        how = {"transport": finding.machine}
    section = "pds" if finding.qps is None else "roce"
    ends = {"initiator": NODES[0], "target": NODES[1]}
    yield from _table("run", {"description": finding.text.partition("\n")[0], "seed": finding.draws, **how, **ends})
    for number, node in enumerate(NODES):
        yield from _table(f"nodes.{node}", {"address": f"10.0.0.{number + 1}"})
        if finding.knobs[number]:
            yield from _table(f"nodes.{node}.{section}", {k: _setting(k, v) for k, v in finding.knobs[number].items()})
    for node, preset in zip(NODES, finding.presets, strict=True):
        if values := _differences(preset, Preset()):
            yield from _table(f"preset.{node}", values)
    for node, attributes in zip(NODES, finding.qps or (), strict=False):
        yield from _table(f"qp.{node}", roce_finding.attributes(attributes))
    for step in finding.steps:
        assert not isinstance(step, TssStep)
        yield from _table("step", row(step), array=True)


def row(step: Step | RoceStep) -> dict[str, Any]:
    """The keys of a `[[step]]` with scripted SES, or with queue pairs."""
    if isinstance(step, RoceStep):
        keys = roce_finding.row(step, NODES)
        return {"advance": _time(step.number)} if step.action == "advance" else keys
    action, node = step.action, {"node": NODES[step.node]}
    match action:
        case "submit":
            message = step.message or Message()
            more = {"message": message.message_id, "mode": message.mode.name.lower(), "op": message.op}
            more |= {"answer": message.answer} | node
            more |= {"reserved": True} if message.reserved else {}
            more |= {"context": message.context} if message.context else {}
            return {"submit": message.packets, **more}
        case "deliver" | "drop" | "dup" | "mark":
            return {action: _number(step.number)}
        case "trim":
            return {action: _number(step.number), **({"last_hop": True} if step.at else {})}
        case "corrupt":
            return {action: step.number, "at": step.at + BELOW}
        case "advance":
            return {action: _time(step.number)}
        case "respond":
            return {action: step.number, "answer": step.answer, **node}
        case "inject":
            return {action: step.data.hex(" "), **node}
        case "close" | "ask_close" | "noop" | "probe" | "restart":
            return {action: NODES[step.node]}
    return {action: _number(step.number), **node}


NOT_SHRUNK = "not shrunk to the end: the search was ended"

BELOW = 14 + 20 + 8
"""Bytes of a frame below the transport: Ethernet, IPv4, UDP."""


def _number(number: int) -> int | str:
    return "all" if number == ALL else number


def _differences(value: Any, default: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not as in `default`."""
    names = [field.name for field in fields(value)]
    return {name: getattr(value, name) for name in names if getattr(value, name) != getattr(default, name)}


def _setting(name: str, value: Any) -> Any:
    return _time(value) if name in TIMES else value


def _time(picoseconds: int) -> int | str:
    """With the largest unit of which it is a whole number."""
    for unit, name in ((10**12, "s"), (10**9, "ms"), (10**6, "us"), (10**3, "ns")):
        if picoseconds >= unit and picoseconds % unit == 0:
            return f"{picoseconds // unit} {name}"
    return picoseconds


def _table(name: str, values: dict[str, Any], array: bool = False) -> Iterator[str]:
    yield ""
    yield f"[[{name}]]" if array else f"[{name}]"
    yield from (f"{key} = {_value(value)}" for key, value in values.items())


def _value(value: Any) -> str:
    """As TOML writes it; a JSON text of printable characters is one of TOML too."""
    return json.dumps(_printable(value) if isinstance(value, str) else value, ensure_ascii=False)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
