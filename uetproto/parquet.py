# SPDX-License-Identifier: GPL-2.0-only
"""This module writes tables as Parquet files, in pieces, for DuckDB, Polars and pandas.

Only this module imports pyarrow, and only when there is something to write.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from uetproto.errors import LocalError, missing_package

GROUP = 65_536
"""Number of rows that are written to a file at a time."""
TIME = "timestamp[ns]"
"""Type of a column with times since 1970, UTC."""


class Column(NamedTuple):
    """This record describes a column: its name, its type in Arrow, and what it holds."""

    name: str
    type: str
    doc: str


def check_parquet(directory: str) -> None:
    """Check that files can be written to `directory`, before the capture is read. Raises `LocalError` if they cannot be
    written, or if pyarrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise missing_package(f"--parquet {directory}", "pyarrow", "parquet") from None
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise LocalError(f"--parquet {directory}", "is a file", "a directory", id="cannot-write")
    if not folder.exists() and not folder.absolute().parent.is_dir():
        raise LocalError(f"--parquet {directory}", f"there is no directory {folder.parent}", id="cannot-write")


class ParquetTable:
    """This class writes a Parquet file in groups of rows."""

    def __init__(self, path: Path, columns: Sequence[Column], about: str) -> None:
        """Open the file. `about` is the text about the table in its metadata."""
        import pyarrow
        import pyarrow.parquet

        self._arrow = pyarrow
        fields = [
            pyarrow.field(column.name, _type(pyarrow, column.type), metadata={"doc": column.doc}) for column in columns
        ]
        self._schema = pyarrow.schema(fields, metadata={"about": about})
        self._writer = pyarrow.parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[tuple[Any, ...]] = []
        self.rows = 0

    def add(self, row: tuple[Any, ...]) -> None:
        """Add a row: a value for each column."""
        self._rows.append(row)
        if len(self._rows) == GROUP:
            self._write()

    def close(self) -> None:
        """Write the remaining rows, and end the file."""
        self._write()
        self._writer.close()

    def _write(self) -> None:
        if self._rows:
            self.rows += len(self._rows)
            columns = zip(*self._rows, strict=True)
            arrays = [
                self._arrow.array(values, field.type) for values, field in zip(columns, self._schema, strict=True)
            ]
            self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
            self._rows.clear()


def _type(arrow: Any, name: str) -> Any:
    if name == "list<int64>":
        return arrow.list_(arrow.int64())
    if name == "map<string, string>":
        return arrow.map_(arrow.string(), arrow.string())
    return arrow.timestamp("ns", tz="UTC") if name == TIME else arrow.type_for_alias(name)
