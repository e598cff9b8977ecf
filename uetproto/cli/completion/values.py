# SPDX-License-Identifier: GPL-2.0-only
"""This module says which values of arguments and options a shell completes.

It is imported only while a shell completes a command line, and imports what has the names only when they are asked for.
"""

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

_FILES = ("FILE", "DIR", "PATH", "CAPTURE", ".pcapng")
"""Parts of the metavar of an argument or option whose value is the name of a file."""
_NO_METAVAR_FILES = {("diff", "first"), ("diff", "second")}


def _scenarios() -> Iterable[str]:
    from uetproto.emulator.scenario.settings import names

    return names()


def _profiles() -> Iterable[str]:
    from uetproto.traffic.profile import names

    return names()


def _rules() -> Iterable[str]:
    from uetproto.audit.rules import RULES

    return [rule.id for rule in RULES]


def _personalities() -> Iterable[str]:
    from uetproto.audit.personality import PERSONALITIES

    return PERSONALITIES


def _mutations() -> Iterable[str]:
    from uetproto.wire.mutate.mutation import ALL

    return [f"{name}=" for name in ALL]


def _scenario_keys() -> Iterable[str]:
    from uetproto.emulator.scenario.settings import ALIASES, SECTIONS

    keys = [f"{section.name}.{name}=" for section in SECTIONS if not section.rows for name in section.keys]
    return [*(f"{name}=" for name in ALIASES), *(key for key in keys if "NAME" not in key)]


def _error_ids() -> Iterable[str]:
    from uetproto.cli.explain import explanations

    return explanations()


def _machines() -> Iterable[str]:
    from uetproto.check.fuzz import MACHINES

    return MACHINES


def _operations() -> Iterable[str]:
    from uetproto.collectives.algorithms.catalogue import ALGORITHMS

    return ALGORITHMS


def _collective_algorithms() -> Iterable[str]:
    from uetproto.collectives.algorithms.catalogue import ALGORITHMS

    return dict.fromkeys(name for rows in ALGORITHMS.values() for name in rows)


def _topologies() -> Iterable[str]:
    from uetproto.collectives.topology.kinds import PARAMETERS

    return PARAMETERS


def _dtypes() -> Iterable[str]:
    from uetproto.collectives.dtypes import KINDS

    return KINDS


def _congestion_control() -> Iterable[str]:
    from uetproto.engine.cc.registry import ALGORITHMS

    return ("off", *ALGORITHMS)


def _patterns() -> Iterable[str]:
    from uetproto.emulator.flows import PATTERNS

    return PATTERNS


def _paths() -> Iterable[str]:
    from uetproto.live.path import PATHS

    return ("auto", *PATHS)


def _bench_rows() -> Iterable[str]:
    from uetproto.bench.command import ROWS

    return ROWS


_VALUES: dict[tuple[str, str], Callable[[], Iterable[str]]] = {
    # command and argument or option     its values
    ("run", "scenario"):                 _scenarios,
    ("run", "--set"):                    _scenario_keys,
    ("send", "scenario"):                _scenarios,
    ("serve", "--scenario"):             _scenarios,
    ("scenario list", "glob"):           _scenarios,
    ("scenario show", "name"):           _scenarios,
    ("scenario new", "--from"):          _scenarios,
    ("generate", "profile"):             _profiles,
    ("generate", "--mutate"):            _mutations,
    ("audit", "--explain"):              _rules,
    ("explain", "id"):                   _error_ids,
    ("fuzz", "machine"):                 _machines,
    ("collective", "op"):                _operations,
    ("collective", "--algorithm"):       _collective_algorithms,
    ("collective", "--compare"):         _collective_algorithms,
    ("collective", "--topology"):        _topologies,
    ("collective", "--dtype"):           _dtypes,
    ("collective", "--cc"):              _congestion_control,
    ("fabric", "pattern"):               _patterns,
    ("fabric", "--cc"):                  _congestion_control,
    ("bench", "--only"):                 _bench_rows,
    ("", "--rules"):                     _rules,
    ("", "--personality"):               _personalities,
    ("", "--path"):                      _paths,
}  # fmt: skip
"""Maps a command (empty: any) and the name of an argument, or an option, to the function that returns its values."""
_AND_FILES = ("scenario", "profile", "pattern", "--scenario")
"""Names of arguments and options whose value may also be the name of a file."""


def attach(path: str, command: click.Command) -> None:
    """Make the arguments and options of a command, and of the commands below it, complete their values. `path` is the
    command with those above it, as in "scenario show"."""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            attach(f"{path} {name}", below)
    for param in command.params:
        name = param.opts[-1] if isinstance(param, click.Option) else str(param.name)
        values = _VALUES.get((path, name)) or _VALUES.get(("", name))
        files = any(part in (param.metavar or "") for part in _FILES) or (path, name) in _NO_METAVAR_FILES
        if values is not None or files:
            complete: Any = _completer(values, files or name in _AND_FILES)
            param.shell_complete = complete  # type: ignore[method-assign]


def _completer(
    values: Callable[[], Iterable[str]] | None, files: bool
) -> Callable[[click.Context, str], list[CompletionItem]]:
    def complete(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        found = [
            CompletionItem(f"{before}{comma}{one}") for one in (values() if values else ()) if one.startswith(last)
        ]
        return found or ([CompletionItem(incomplete, type="file")] if files else [])

    return complete
