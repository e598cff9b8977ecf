# SPDX-License-Identifier: GPL-2.0-only
"""This module answers SQL over captures, and over folders of tables, by DuckDB.

Of a capture, the views are packets, pdcs, messages and findings, which are made only if a query names them; of a
folder, one for each Parquet file; of a table of `uetproto export`, packets.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from uetproto.analysis.capture import Capture
from uetproto.arrow import pyarrow_for
from uetproto.errors import LocalError, listed, missing_package, similar


class SqlSource:
    """This class answers queries. Views are made when the first query names them."""

    def __init__(self) -> None:
        """Open a database in memory. Raises `MissingPackageError` without DuckDB."""
        try:
            import duckdb
        except ImportError:
            raise missing_package("uetproto query", "duckdb", "tables") from None
        self._errors, self._unknown = duckdb.Error, duckdb.CatalogException
        self._database = duckdb.connect()
        self._makers: dict[str, Callable[[], Any]] = {}

    def add_capture(self, capture: Capture, analysis: bool) -> None:
        """Add the views of a capture. `analysis` adds to packets what the packets around each packet say."""
        self._makers |= {
            "packets": lambda: capture.to_arrow(analysis=analysis),
            "pdcs": lambda: _rows(capture.pdcs.as_dicts(), _PDCS),
            "messages": lambda: _rows(capture.messages.as_dicts(), _MESSAGES),
            "findings": lambda: _rows(capture.audit().findings.as_dicts(), _FINDINGS),
        }

    def add_folder(self, folder: str) -> None:
        """Add a view for each Parquet file of a folder. Raises `LocalError` if it has none."""
        files = sorted(Path(folder).glob("*.parquet"))
        if not files:
            raise LocalError(folder, "has no tables", "a folder with files in .parquet", id="wrong-table")
        for file in files:
            self._database.from_parquet(str(file)).create_view(file.stem)

    def add_table(self, file: str) -> None:
        """Add the view packets of a table that `uetproto export` wrote, and the same by the name of the file. Raises
        `LocalError` if it is none."""
        try:
            if file.endswith(".arrow"):
                with pyarrow_for("uetproto query").memory_map(file) as source:
                    found = self._database.from_arrow(pyarrow_for("uetproto query").ipc.open_file(source).read_all())
            else:
                read = self._database.from_parquet if file.endswith(".parquet") else self._database.from_csv_auto
                found = read(file)
            for name in {"packets", Path(file).stem}:
                found.create_view(name)
        except (self._errors, ValueError) as error:
            raise LocalError(
                file, str(error).partition("\n")[0], "a table of uetproto export", id="wrong-table"
            ) from None

    def ask(self, text: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the names of the columns and the rows of an answer. Raises `LocalError` with what DuckDB says if the
        query is wrong."""
        for name, make in list(self._makers.items()):
            if re.search(rf"\b{name}\b", text, re.IGNORECASE):
                self._database.register(name, make())
                del self._makers[name]
        try:
            found = self._database.execute(text)
            if found is None or found.description is None:
                raise LocalError("SQL", "asks nothing", "a query, such as SELECT * FROM packets", id="query-failed")
            return [one[0] for one in found.description], found.fetchall()
        except self._unknown as error:
            asked = "SELECT view_name FROM duckdb_views() WHERE NOT internal"
            views = sorted({*self._makers, *(name for (name,) in self._database.execute(asked).fetchall())})
            said, _, where = str(error).partition("\n")
            wrong = re.search(r"with name (\S+) does not exist", said)
            hint = "" if wrong is None else similar(wrong[1], views)
            place = where[where.find("LINE ") :] if "LINE " in where else ""
            raise LocalError(
                "SQL", f"{said}{hint}; views: {listed(views)}\n\n{place}".rstrip(), id="query-failed"
            ) from None
        except self._errors as error:
            raise LocalError("SQL", str(error), id="query-failed") from None

    def close(self) -> None:
        """Close the database."""
        self._database.close()


_PDCS = ("src", "dst", "spdcid", "dpdcid", "kind", "mode", "first_ns", "last_ns", "packets", "bytes", "payload")
_MESSAGES = ("src", "dst", "spdcid", "dpdcid", "opcode", "message_id", "psn", "length", "packets", "latency_ns")
_FINDINGS = ("rule", "severity", "file", "interface", "packets", "expected", "seen", "cite", "text")
"""Columns that a table has even if it has no rows."""


def _rows(rows: Sequence[dict[str, Any]], least: Sequence[str]) -> Any:
    """Return dictionaries as a table with the columns `least` and further ones: what a flow is named by are columns of
    their own, other dictionaries are JSON."""
    import json

    pa = pyarrow_for("uetproto query")
    flat = []
    for row in rows:
        flow = row.get("flow", {})
        rest = {name: value for name, value in row.items() if name not in ("flow", *flow)}
        flat.append({**flow, **{
            name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in rest.items()
        }})  # fmt: skip
    names = dict.fromkeys([*least, *(name for row in flat for name in row)])
    return pa.table({name: _column(pa, [row.get(name) for row in flat]) for name in names})


def _column(pa: Any, values: list[Any]) -> Any:
    """Return a column of values; of several types they are texts."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values])
