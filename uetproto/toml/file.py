# SPDX-License-Identifier: GPL-2.0-only
"""This module reads TOML files of the user. It knows the line of each key, so that errors name it.

It also knows which keys the command line set. Scenarios (`emulator/scenario/settings.py`) and the profiles of generated
traffic are read through it.
"""

import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Protocol

from uetproto.errors import LocalError, Location, argument, shown, similar, typed
from uetproto.knobs import RATE, TIME, KeyType
from uetproto.textfile import read_bounded


@dataclass(frozen=True, slots=True)
class Shipped:
    """This class finds the TOML files of one kind that are part of the package, such as all scenarios."""

    kind: str
    """Word for such a file in error texts, such as "scenario"."""
    folder: Path
    listing: str = ""
    """Text for errors that says what lists all files."""

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.toml"))

    def find(self, name: str | PathLike[str]) -> Path:
        """Return the path of the file `name`, which is a name from `names` or the path of a file of the user.

        Raises `LocalError` for an unknown name. The error lists the known names.
        """
        if isinstance(name, PathLike):
            return Path(name)
        typed(self.kind, name, str, "a shipped name, or the path of a .toml file")
        if name.endswith(".toml") or "/" in name:
            return Path(name)
        names = self.names()
        if name in names:
            return self.folder / f"{name}.toml"
        legal = f"{', '.join(names)}; or the path of a .toml file{self.listing}"
        id = "unknown-scenario" if self.kind == "scenario" else "unknown-profile"
        raise LocalError(name, f"no such {self.kind}{similar(name, names)}", legal, id=id)


class TomlFile(ABC):
    """This class reads one TOML file. It also sets the keys that the command line gives.

    A key is a dotted name. The tables of an array are numbered from 0, as in "operation.0.length".
    """

    aliases: ClassVar[Mapping[str, str]] = {}
    """Short names that `change` accepts, and the key that each stands for."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        """Read the file; `text` is what it has, if it was read before. Raises `LocalError` if it is not TOML, and
        `OSError` if it cannot be read."""
        text = _text_of(path) if text is None else text
        self.path = path
        self.data = _data_of(path, text)
        self.lines = lines_of(text)
        self.given: dict[str, str] = {}
        """Keys that `change` set, and the text of their values."""
        self.options: Mapping[str, str] = {}
        """Names of arguments that set one key, by the name of the key. Any other key is set by `settings`."""

    def change(self, settings: Iterable[str]) -> None:
        """Set keys from texts "key=value". A value that is not TOML is taken as text.

        Raises `LocalError` for a text without a key or a value, and for a key that no table of the file can hold.
        """
        if isinstance(settings, str) or not isinstance(settings, Iterable):
            raise LocalError(
                "settings", f"{shown(settings)} is not legal", 'a list of texts "key=value"', id="wrong-type"
            )
        for setting in settings:
            typed("settings", setting, str, 'texts "key=value"')
            name, equals, value = setting.partition("=")
            name = name.strip()
            if not equals or not name:
                raise LocalError(argument("settings", f"{harmless(setting)}: legal is key=value"), id="wrong-format")
            key = self.aliases.get(name, name)
            table = self.table_of(name, key)
            try:
                new = tomllib.loads(f"value = {value}")["value"]
            except (ValueError, RecursionError):
                new = value
            table[key.rpartition(".")[2]] = new
            self.given[key] = value

    @abstractmethod
    def table_of(self, name: str, key: str) -> dict[str, Any]:
        """Return the table that holds `key`, which the user wrote as `name`. Raises `LocalError` if no table can hold
        the key.
        """

    def option(self, key: str) -> str:
        """Return the argument that set a key, as errors name it."""
        return argument(self.options[key]) if key in self.options else argument("settings", harmless(key))

    def check_unit(self, key: str, value: object, legal: KeyType) -> None:
        """Raise `LocalError` if the command line set a time or rate as a number without a unit: 5 would be 5 ps."""
        if legal.unit in (TIME, RATE) and type(value) is int and value and any(at in self.given for at in upwards(key)):
            raise self.refuse(key, f"{value} has no unit", legal.legal, id="missing-unit")

    def refuse(self, key: str, value: object, legal: str = "", *, id: str) -> LocalError:
        """Return the error for `key`. It names the line of the key or, if the file lacks the key, of the nearest table
        above the key."""
        line = next((self.lines[at] for at in upwards(key) if at in self.lines), 1)
        return LocalError(harmless(key), value, legal, place=Location(str(self.path), line), id=id)


class SectionReader(Protocol):
    """This protocol has the members of `TomlFile` and its subclasses that are needed to read one section."""

    data: dict[str, Any]

    def table(
        self, path: str, keys: Mapping[str, KeyType], value: Any, nested: tuple[str, ...] = ()
    ) -> dict[str, Any]: ...

    def refuse(self, key: str, value: object, legal: str = "", *, id: str) -> LocalError: ...


def upwards(key: str) -> Iterator[str]:
    """Yield a key, then the table that holds it, then the table that holds that table, and so on."""
    while key:
        yield key
        key = key.rpartition(".")[0]


# Reading --------------------------------------------------------------------------------------------------------------


def _text_of(path: Path) -> str:
    raw = read_bounded(path)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        raise LocalError("", what, "TOML in UTF-8", place=Location(str(path), line), id="not-utf8") from error


def _data_of(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # no TOML, a number of 5000 digits, brackets in brackets in …
        raise _broken(path, text, str(error)) from error


def _broken(path: Path, text: str, reason: str) -> LocalError:
    """Return the error for a file that is no TOML: where, why, and the line itself. `reason`: that of `tomllib`."""
    at = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", reason, re.DOTALL)
    if at is None:  # at its end
        return LocalError(
            "", reason, "TOML", place=Location(str(path), max(1, len(text.splitlines()))), id="broken-toml"
        )
    line = harmless("".join(text.splitlines()[int(at[2]) - 1 :][:1]).strip())
    legal = f"TOML, each key and table once; here: {line}"
    return LocalError("", harmless(at[1]), legal, place=Location(str(path), int(at[2])), id="broken-toml")


def harmless(text: str) -> str:
    """Return a text of the user in which "…" replaces whatever could be a secret key or a part of one (interfaces.md
    §9)."""
    return re.sub(r"[0-9a-fA-F]{24,}", "…", text)


# Lines ----------------------------------------------------------------------------------------------------------------

_HEADING = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?")
_ASSIGNMENT = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def lines_of(text: str) -> dict[str, int]:
    """Return the line number of each table and key, by dotted name. The tables of an array are numbered from 0."""
    found: dict[str, int] = {}
    rows: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if heading := _HEADING.fullmatch(line):
            section = _dotted(heading[1])
            if line.lstrip().startswith("[["):
                rows[section] = rows.get(section, -1) + 1
                section = f"{section}.{rows[section]}"
            _enter(found, section, number)
        elif assignment := _ASSIGNMENT.match(line):
            name = _dotted(assignment[1])
            _enter(found, f"{section}.{name}" if section else name, number)
    return found


def _enter(found: dict[str, int], path: str, number: int) -> None:
    parts = path.split(".")
    for size in range(1, len(parts) + 1):
        found.setdefault(".".join(parts[:size]), number)


def _dotted(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))
