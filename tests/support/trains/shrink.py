# SPDX-License-Identifier: GPL-2.0-only
"""Makes a run small that differs with trains: rows, sections and keys are left out and lengths halved while it does."""

from collections.abc import Callable, Iterator
from copy import deepcopy

from tests.support.trains.programs import Tables

_NEEDED = {
    "run", "nodes", "operation", "command", "fi", "verbs", "distributed", "roce", "end", "pair", "sharp", "step",
    "traffic",
}  # fmt: skip
_KEPT = {
    "run": ("initiator", "target", "transport", "mode"), "security": ("sdi",), "command": ("name", "argument"),
    "fi": ("nodes", "taps", "rate"), "verbs": ("nodes", "taps", "rate"), "distributed": ("ranks", "transport"),
    "traffic": ("profile", "packets"),
    "sharp": ("ranks", "transport", "rate", "mtu", "chunk", "window", "calls"),
}  # fmt: skip
_ROW = (
    "do", "node", "peer", "key", "length", "end", "buffer", "region", "addr", "time", "events", "count", "at", "root",
    "async", "sleep", "fetch",
)  # fmt: skip


def shrink(tables: Tables, differs: Callable[[Tables], bool], most: int = 400) -> Tables:
    """Return the smallest run found with `most` tries."""
    tries = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(tables):
            tries += 1
            if tries > most:
                return tables
            if differs(candidate):
                tables, smaller = candidate, True
                break
    return tables


def _smaller(tables: Tables) -> Iterator[Tables]:
    name = next((name for name in ("operation", "step") if name in tables), None)
    rows: list[Tables] = [] if name is None else tables[name]
    for part in dict.fromkeys((len(rows) // 2, 1)):
        for number in range(0, len(rows), max(part, 1)):
            if len(rows) > part > 0:
                yield tables | {name: rows[:number] + rows[number + part :]}
    for section in tables:
        if section not in _NEEDED:
            yield {key: value for key, value in tables.items() if key != section}
    for section, values in tables.items():
        if isinstance(values, dict) and not any(isinstance(value, dict) for value in values.values()):
            for key in values:
                if key not in _KEPT.get(section, ()):
                    yield tables | {section: {k: v for k, v in values.items() if k != key}}
    run = tables.get("traffic", {})
    for less in (run.get("packets", 0) // 2, run.get("packets", 0) - 50):
        if less > 0:
            yield tables | {"traffic": run | {"packets": less}}
    for number, row in enumerate(rows):
        assert name is not None
        for key in row:
            if key not in _ROW:
                yield _changed(tables, name, number, key, None)
        length = row.get("length", 0)
        for less in (length // 2, length - length // 4, length - 1024, length // 1024 * 1024):
            if 0 < less < length:
                yield _changed(tables, name, number, "length", less)


def _changed(tables: Tables, name: str, number: int, key: str, value: int | None) -> Tables:
    copied = deepcopy(tables)
    if value is None:
        del copied[name][number][key]
    else:
        copied[name][number][key] = value
    return copied
