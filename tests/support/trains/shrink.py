# SPDX-License-Identifier: GPL-2.0-only
"""Makes a run small that differs with trains: rows, sections and keys are left out and lengths halved while it does."""

from collections.abc import Callable, Iterator
from copy import deepcopy

from tests.support.trains.draw import Tables

_NEEDED = {"run", "nodes", "operation", "collective"}


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
    rows = tables.get("operation", [])
    for number in range(len(rows)):
        if len(rows) > 1:
            yield tables | {"operation": rows[:number] + rows[number + 1 :]}
    for name in tables:
        if name not in _NEEDED:
            yield {key: value for key, value in tables.items() if key != name}
    for name, section in tables.items():
        if isinstance(section, dict) and not any(isinstance(value, dict) for value in section.values()):
            for key in section:
                if not (name == "run" and key in ("initiator", "target", "transport", "mode")) and key not in (
                    "sdi",
                    "op",
                ):
                    yield tables | {name: {k: v for k, v in section.items() if k != key}}
    for number, row in enumerate(rows):
        for key in row:
            if key not in ("do", "node", "peer", "key", "length"):
                yield _changed(tables, number, key, None)
        length = row.get("length", 0)
        for less in (length // 2, length - length // 4, length - 1024, length // 1024 * 1024):
            if 0 < less < length:
                yield _changed(tables, number, "length", less)


def _changed(tables: Tables, number: int, key: str, value: int | None) -> Tables:
    copied = deepcopy(tables)
    if value is None:
        del copied["operation"][number][key]
    else:
        copied["operation"][number][key] = value
    return copied
