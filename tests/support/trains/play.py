# SPDX-License-Identifier: GPL-2.0-only
"""Plays a run with trains or without, and tells the first difference of two runs."""

import json
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.support.trains.play_programs import play_distributed, play_fi, play_verbs
from tests.support.trains.programs import Tables
from tests.support.trains.sharp import play_sharp
from tests.support.trains.traffic import play_traffic
from tests.support.trains.watch import Seen, Watch
from uetproto import decode
from uetproto.cli.main import cli as program
from uetproto.emulator.run.play import RUNS, kind_of
from uetproto.emulator.run.result import comment_of
from uetproto.emulator.scenario.roce_settings import UET
from uetproto.emulator.scenario.settings import load_text
from uetproto.errors import LocalError, UetError
from uetproto.garbage import seldom_collected
from uetproto.wire.capture.pcap import ETHERNET, open_capture, open_writer


def toml_of(tables: Tables) -> str:
    """Return a scenario as the text of its file."""
    lines: list[str] = []
    for name, section in tables.items():
        if isinstance(section, list):
            for row in section:
                lines += [f"[[{name}]]", *(f"{key} = {_value(value)}" for key, value in row.items()), ""]
        elif section and all(isinstance(value, dict) for value in section.values()):
            for inner, table in section.items():
                lines += [f"[{name}.{inner}]", *(f"{key} = {_value(value)}" for key, value in table.items()), ""]
        else:
            lines += [f"[{name}]", *(f"{key} = {_value(value)}" for key, value in section.items()), ""]
    text = "\n".join(lines)
    assert tomllib.loads(text) == tables
    return text


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {_value(one)}' for key, one in value.items())}}}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def play(tables: Tables, trains: str, folder: Path) -> Seen:
    """Play a run and return all that can be seen of it. A run that is refused has nothing but the error."""
    file = folder / f"{trains}.pcapng"
    file.unlink(missing_ok=True)
    kind = next((kind for kind in PLAYERS if kind in tables), None)
    try:
        watch, result = _scenario(tables, trains, file) if kind is None else PLAYERS[kind](tables, trains, file)
    except UetError as error:
        return {"error": f"{type(error).__name__}: {error}".replace(f"trains={trains}", "")}
    return {"capture": file.read_bytes() if file.exists() else b"", **watch.seen(), "result": result}


def _scenario(tables: Tables, trains: str, file: Path) -> tuple[Watch, Any]:
    fabric = tables.get("fabric", {}) | {"trains": trains}
    scenario = load_text(toml_of(tables | {"fabric": fabric}))
    with ExitStack() as owned, Watch() as watch:
        played: Any = RUNS[scenario.run.transport == UET, kind_of(scenario)](scenario, owned, False)
        about = None if scenario.plane is None else scenario.plane.told
        interfaces = [
            (name, ETHERNET, about if tap in scenario.nodes else None)
            for name, tap in zip(scenario.interfaces, scenario.taps, strict=True)
        ]
        comment = comment_of(scenario)
        played.connect(owned.enter_context(open_writer(str(file), comment=comment, interfaces=interfaces)))
        with seldom_collected():
            played.play(None)
        played.close()
        return watch, (played.outcome(None, None).as_dict(), played.done_at, played.failure)


def _command(tables: Tables, trains: str, file: Path) -> tuple[Watch, Any]:
    """Play a command line: its name and argument, and its options with their values."""
    row = tables["command"]
    options = [part for name, value in row.items() if name not in ("name", "argument")
               for part in ([f"--{name}"] if value is True else [f"--{name}", str(value)])]  # fmt: skip
    with Watch() as watch:
        done = CliRunner().invoke(
            program, [row["name"], row["argument"], *options, "--json", "--trains", trains, "-o", str(file)]
        )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code == 2:
        raise LocalError("command", done.output)
    return watch, (done.exit_code, _without_tallies(done.output))


def _without_tallies(output: str) -> list[Any]:
    """Return the objects of an output, or its lines, without how many trains there were."""
    lines: list[Any] = output.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("{"):
            lines[number] = json.loads(line)
            lines[number].pop("trains", None)
    return lines


PLAYERS: dict[str, Callable[[Tables, str, Path], tuple[Watch, Any]]] = {
    "fi": play_fi, "verbs": play_verbs, "distributed": play_distributed, "command": _command, "traffic": play_traffic,
    "sharp": play_sharp,
}  # fmt: skip
"""What plays a run that is no scenario, by the section that tells its kind."""


def difference(single: Seen, trains: Seen) -> str | None:
    """Return the first difference of a run of single packets and one with trains, or None."""
    if single == trains:
        return None
    for name in dict.fromkeys((*single, *trains)):
        here, there = single.get(name), trains.get(name)
        if here == there:
            continue
        if name == "capture" and isinstance(here, bytes) and isinstance(there, bytes):
            return _packets(here, there)
        return f"{name}: {here!r} without trains, {there!r} with them"
    return "the same values in another order"


def _packets(here: bytes, there: bytes) -> str:
    """Return the first packet that differs, and the first of its fields."""
    one, two = list(open_capture(BytesIO(here))), list(open_capture(BytesIO(there)))
    for number, (a, b) in enumerate(zip(one, two, strict=False), 1):
        told = [
            f"{name} is {getattr(a, name)!r} without trains, {getattr(b, name)!r} with them"
            for name in ("time_ns", "interface", "comment") if getattr(a, name) != getattr(b, name)
        ]  # fmt: skip
        told += _fields(a.data, b.data)
        if told:
            return f"packet {number}: {'; '.join(told)}"
    return (
        f"{len(one)} packets without trains, {len(two)} with them"
        if len(one) != len(two)
        else "the file around packets"
    )


def _fields(here: bytes, there: bytes) -> list[str]:
    if here == there:
        return []
    one, two = decode(here), decode(there)
    for a, b in zip(one.layers, two.layers, strict=False):
        if a.form != b.form:
            return [f"{a.form} is {b.form} with them"]
        for key, value in a.values.items():
            if value != b.values[key]:
                return [f"{a.form}.{key} is {value} without trains, {b.values[key]} with them"]
    at = next((at for at, (x, y) in enumerate(zip(here, there, strict=False)) if x != y), min(len(here), len(there)))
    return [f"byte {at} of {len(here)} and {len(there)}"]
