# SPDX-License-Identifier: GPL-2.0-only
"""This module writes the page of the errors that the library raises on purpose, from their classes and docstrings."""

import ast
import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import uetproto
from reference.error_sites import sites
from uetproto.api import fi, verbs
from uetproto.audit.rules import RULES
from uetproto.cli.explain import explanations
from uetproto.conform import catalogue
from uetproto.errors import UetError

_HEAD = """\
# Errors

A wrong argument, key or option ends in one line that names the parameter, its value, what is legal, and the place if it
stands in a file: `mine.toml:7: faults.drop: 2; legal: 0 … 1 [out-of-range]`. A program reads these parts of a
`UetError` as `name`, `value`, `legal`, `place` and `id`, and never parses the text. Any other exception is a fault of
this project.

The id in brackets names the kind of error. It stays when the message changes. `uetproto explain out-of-range` prints
what [this page](#ids) has of it. In JSON, an error has its id in `error_id`.
"""
_IDS = """
## What has an identifier

| identifier | what | where |
|---|---|---|
| such as `{rule}` | a finding of `uetproto audit`; {rules} rules | [Audit rules](../../uetproto/audit/RULES.md) |
| such as `{test}` | a test of `uetproto conform`; {tests} tests | [Coverage](../../uetproto/conform/COVERAGE.md) |
| such as `NO_MATCH` | how a request or a packet ended on the wire | [Codes](../../uetproto/engine/pds/nacks.py) |
| `FI_…` | `errno` of an `FiError`, and of a completion queue | [below](#numbers-of-libfabric) |
| `LOC_…`, `REM_…` | status of a completion of verbs | [Codes](../../uetproto/engine/pds/nacks.py) |
"""
MODULES = ("errors", "checks", "path", "sharp_errors", "transport", "fields", "base")
"""The last words of the names of modules that define errors."""


def page() -> str:
    """Return the page."""
    for module in pkgutil.walk_packages(uetproto.__path__, "uetproto."):
        if module.name.rpartition(".")[2] in MODULES:
            import_module(module.name)
    return _HEAD + "".join(_lines())


def _lines() -> Iterator[str]:
    tests = catalogue.load()
    yield _IDS.format(rules=len(RULES), rule=RULES[0].id, tests=len(tests), test=tests[0].id)
    yield "\n## Ids\n"
    yield from _ids()
    yield "\n## Classes\n"
    yield from _table(("class", "base", "raised when", "module"), _classes(UetError))
    yield "\n## Numbers of libfabric\n"
    yield from _table(("value", "name"), ((str(int(number)), number.name) for number in fi.Errno))
    yield "\n## Numbers of verbs\n"
    yield from _table(("value", "name"), ((str(int(number)), number.name) for number in verbs.Errno))


def _ids() -> Iterator[str]:
    """Yield a section for each id: what it means, what to do, an example, and the messages with their places."""
    package = Path(uetproto.__path__[0])
    messages: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package.parent).as_posix()
        for site in sites(ast.walk(ast.parse(path.read_text(encoding="utf-8")))):
            text = f"`` {' '.join(site.template.split())} `` " if site.template else ""
            messages.setdefault(site.id, []).append(f"- {text}{place}:{site.line}\n")
    for id, parts in explanations().items():
        shown = parts.get("example") or parts["seen"]
        yield f"\n### {id}\n\n{parts['means']} *What to do:* {parts['do']}\n\n```text\n{shown}\n```\n\n"
        yield from dict.fromkeys(messages.get(id, ()))


def _classes(kind: type[BaseException]) -> Iterator[tuple[str, ...]]:
    """Yield a row for a class, and then those of the classes below it."""
    bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__ if base.__name__ != "Generic")
    if not kind.__name__.startswith("_"):
        first = " ".join((kind.__doc__ or "").split("\n\n")[0].split()).replace("|", "\\|")
        yield f"`{kind.__name__}`", bases, first, f"`{kind.__module__}`"
    for below in sorted(kind.__subclasses__(), key=lambda each: each.__name__):
        yield from _classes(below)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    for row in dict.fromkeys(rows):
        yield f"| {' | '.join(row)} |\n"
