"""This module makes the coverage table: which row of the pages' tables is tested by which test, or why by none."""

import tomllib
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from uetproto.conform.catalogue import load

_FILE = Path(__file__).parent / "rows.toml"
NOT_YET = "not yet"


class PageRow(NamedTuple):
    """This record is a row of a table of the pages."""

    table: str
    name: str
    """Name of the row in `covers` of tests, such as "pds 6.3: 11"."""
    says: str
    reason: str
    """Why no test covers the row; empty if one does, or is to come."""


def page_rows() -> list[PageRow]:
    """Return the rows of the pages' tables, in their order."""
    with _FILE.open("rb") as file:
        tables = tomllib.load(file)["table"]
    return [
        PageRow(table["title"], f"{table['prefix']}: {row[0]}", row[1], row[2] if len(row) > 2 else "")
        for table in tables
        for row in table["rows"]
    ]


def covering() -> dict[str, list[str]]:
    """Return the ids of the tests that cover each row, by the name of the row."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for test in load():
        for name in test.covers:
            found[name].append(test.id)
    return found


def coverage_markdown() -> str:
    """Return COVERAGE.md."""
    covered, rows = covering(), page_rows()
    reasons = sum(bool(row.reason) and row.name not in covered for row in rows)
    tested = sum(row.name in covered for row in rows)
    left = len(rows) - tested - reasons
    lines = [
        "# Coverage of the conformance tests",
        "",
        "Written by `tools/generate` from [rows.toml](rows.toml) and from `covers` of the [tests](uet). Each row is",
        "one of the pages' tables ([docs/protocol](../../docs/protocol/README.md)), with the tests that cover it, or",
        "why none does.",
        "",
        f"{len(load())} tests; {len(rows)} rows: {tested} tested, {reasons} not, with the reason, {left} {NOT_YET}.",
    ]
    title = ""
    for row in rows:
        if row.table != title:
            title = row.table
            lines += ["", f"## {title}", "", "| row | | tests |", "|---|---|---|"]
        tests = ", ".join(covered.get(row.name, ())) or row.reason or f"**{NOT_YET}**"
        lines.append(f"| {row.name.partition(': ')[2]} | {row.says} | {tests} |".replace("|  |", "| |"))
    return "\n".join([*lines, ""])
