# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the coverage table: which row of the pages' tables is tested by which test, or why by none."""

import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from uetproto.conform.catalogue import ROCE, TSS, ConformanceTest, load

_FILE, _ROCE_FILE, _OBSERVED = (
    Path(__file__).parent / name for name in ("rows.toml", "rows_roce.toml", "observed.toml")
)
NOT_YET = "not yet"
HOW = {"driven": "driven", "faults": "driven through our own faults", "not": "impossible"}
"""How a ladder can be driven from one end, in words."""


class PageRow(NamedTuple):
    """This record is a row of a table of the pages."""

    table: str
    name: str
    """Name of the row in `covers` of tests, such as "pds 6.3: 11"."""
    says: str
    reason: str
    """Why no test covers the row; empty if one does, or is to come."""
    how: str = ""
    """Of a ladder how it is driven from one end: one of `HOW`."""


class ObservedRow(NamedTuple):
    """This record is a behaviour of the reference provider that differs from the pages (observed.md)."""

    page: str
    """Page and section from which it differs."""
    knobs: tuple[str, ...]
    """Settings of our engine that behave so."""
    tests: tuple[str, ...]
    """Ids of the tests that such a peer fails."""
    reason: str
    """Why no test tells it; empty if one does."""
    is_row: bool
    """Whether it is a row of the table of observed.md, and not one of the other settings of the personality."""


def observed_rows() -> list[ObservedRow]:
    """Return the behaviours of the reference provider that differ from the pages, in the order of observed.md."""
    data = tomllib.loads(_OBSERVED.read_text(encoding="utf-8"))
    return [
        ObservedRow(row["page"], tuple(row["knobs"]), tuple(row.get("tests", ())), row.get("reason", ""), kind == "row")
        for kind in ("row", "more")
        for row in data[kind]
    ]


_LADDERS = (
    "L04 and L05 are driven at the source; when the peer as target coalesces is a setting of it (ACK_Gen_Trigger).",
    "A packet that a ladder loses is one that a test does not send, or does not answer, so that none needs faults on",
    "the link. The same losses meet a whole stack with `uetproto send --faults drop=0.05`",
    "([live.md](../../docs/howto/live.md)).",
    "",
    "| ladder | | from one end | tests, or why none |",
    "|---|---|---|---|",
)


def page_rows() -> list[PageRow]:
    """Return the rows of the pages' tables, in their order."""
    data = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    roce = tomllib.loads(_ROCE_FILE.read_text(encoding="utf-8"))
    ladders = data["ladders"]
    of_ladders = [
        PageRow(ladders["title"], f"{ladders['prefix']}: {name}", says, detail, how)
        for name, says, how, detail in ladders["rows"]
    ]
    return [*_rows(data), *of_ladders, *_rows(roce)]


def _rows(data: dict[str, Any]) -> list[PageRow]:
    return [
        PageRow(table["title"], f"{table['prefix']}: {row[0]}", row[1], row[2] if len(row) > 2 else "")
        for table in data["table"]
        for row in table["rows"]
    ]


def all_tests() -> list[ConformanceTest]:
    """Return the tests of the package: of UET, of UET with keys, and of RoCE."""
    return load() + load(shipped=TSS) + load(shipped=ROCE)


def covering() -> dict[str, list[str]]:
    """Return the ids of the tests that cover each row, by the name of the row."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for test in all_tests():
        for name in test.covers:
            found[name].append(test.id)
    return found


def coverage_markdown() -> str:
    """Return COVERAGE.md."""
    covered, rows = covering(), page_rows()
    reasons = sum(bool(row.reason) and row.name not in covered for row in rows)
    tested = sum(row.name in covered for row in rows)
    left, count = len(rows) - tested - reasons, len(all_tests())
    lines = [
        "# Coverage of the conformance tests",
        "",
        "Written by `tools/generate` from [rows.toml](rows.toml), [rows_roce.toml](rows_roce.toml) and `covers` of the",
        "tests of [UET](uet), [sealed packets](tss) and [RoCE](roce). Each row is one of the pages' tables",
        "([docs/protocol](../../docs/protocol/README.md)), with the tests that cover it, or why none does.",
        "",
        f"{count} tests; {len(rows)} rows: {tested} tested, {reasons} not, with the reason, {left} {NOT_YET}.",
    ]
    title = ""
    for row in rows:
        if row.table != title:
            title = row.table
            ladders = bool(row.how)
            lines += ["", f"## {title}", "", *(_LADDERS if ladders else ("| row | | tests |", "|---|---|---|"))]
        tests = ", ".join(covered.get(row.name, ())) or row.reason or f"**{NOT_YET}**"
        how = f" {HOW[row.how]} |" if row.how else ""
        lines.append(f"| {row.name.partition(': ')[2]} | {row.says} |{how} {tests} |".replace("|  |", "| |"))
    lines += ["", "## The reference provider (observed.md)", ""]
    lines += [
        "What it does otherwise than the pages say, the setting of our engine that behaves so, and the tests that tell",
        "it, or why a wire does not show it ([observed.toml](observed.toml)). `uetproto serve --personality refprov`",
        "fails those of these tests in which we are the initiator, and no other. With `--keys` it also fails those of",
        "sealed packets, and others in which it sends a NACK in the clear.",
        "",
        "| page | setting | tests |",
        "|---|---|---|",
    ]
    for one in observed_rows():
        settings = ", ".join(f"`{name}`" for name in one.knobs)
        lines.append(f"| {one.page} | {settings} | {', '.join(one.tests) or one.reason} |")
    return "\n".join([*lines, ""])
