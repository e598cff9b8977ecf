# SPDX-License-Identifier: GPL-2.0-only
"""This module writes tables of captures as Parquet, CSV and Arrow files, in pieces."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from uetproto.arrow import arrow_table, pyarrow_for
from uetproto.errors import LocalError, shown
from uetproto.tables.pieces import CaptureTable, Piece

FORMATS = {"parquet": ".parquet", "csv": ".csv", "arrow": ".arrow"}
"""Formats of tables, each with the suffix of its files."""
PACKETS = "packets"
"""Name of the file of the joined table in a folder."""


def format_of(path: str, asked: str | None) -> tuple[str, bool]:
    """Return the format of an output, and whether it is a folder. A name with the suffix of a format is a file,
    anything without a suffix is a folder. Raises `LocalError` if the suffix is another one, or contradicts the format
    that is asked for.
    """
    suffix = Path(path).suffix.lower()
    named = next((name for name, one in FORMATS.items() if one == suffix), None)
    if named is not None and not os.path.isdir(path):
        if asked not in (None, named):
            raise LocalError(
                f"-o {path}", f"is no name of {asked}", f"names in {FORMATS[str(asked)]}, or a folder",
                id="wrong-suffix"
            )  # fmt: skip
        return named, False
    if os.path.exists(path) and not os.path.isdir(path):
        raise LocalError(
            f"-o {path}", "is a file", f"names in {', '.join(FORMATS.values())}, or a folder", id="wrong-suffix"
        )
    if path == "-":
        raise LocalError(
            "-o -", "tables are not written to standard output", "a file or a folder", id="stdout-not-possible"
        )
    if suffix[1:].isalpha() and not os.path.isdir(path) and not path.endswith(("/", os.sep)):
        raise LocalError(
            f"-o {path}", f"{suffix} is no suffix of tables",
            f"{', '.join(FORMATS.values())}; a new folder with / behind", id="wrong-suffix"
        )  # fmt: skip
    return asked or "parquet", True


def export(
    table: CaptureTable, path: str, format: str, folder: bool, progress: Callable[[int], None]
) -> dict[str, int]:
    """Write the table of captures to a file, or to a folder with a file for each form too, and return the number of
    rows of each file by its name. `progress` is called with the number of packets written so far."""
    if not folder:
        rows = 0
        with TableFile(path, format, table.schema) as file:
            for piece in table.pieces():
                file.write(piece.batch)
                rows += piece.batch.num_rows
                progress(rows)
        return {path: rows}
    os.makedirs(path, exist_ok=True)
    counts: dict[str, int] = {}
    files: dict[str, TableFile] = {}
    try:
        for piece in table.pieces():
            for name, batch in ((PACKETS, piece.batch), *_forms(piece)):
                at = str(Path(path) / f"{name}{FORMATS[format]}")
                if name not in files:
                    files[name] = TableFile(at, format, batch.schema)
                files[name].write(batch)
                counts[at] = counts.get(at, 0) + batch.num_rows
            progress(piece.first + piece.columns.packets)
    finally:
        for file in files.values():
            file.close()
    return counts


def _forms(piece: Piece) -> Iterator[tuple[str, Any]]:
    """Yield the forms of a piece, each with its rows as a table: the number of the packet, and the fields."""
    for form, rows in piece.columns.items():
        at = rows["index"].astype(np.int64)
        columns = {"number": (at + 1).astype(np.uint32), **{name: rows[name] for name in rows if name != "index"}}
        if piece.wanted is not None:
            keep = piece.wanted[at - piece.first]
            columns = {name: values[keep] for name, values in columns.items()}
        yield form, arrow_table(columns, "a table")


class TableFile:
    """This class writes one table to a file. It is a context manager."""

    def __init__(self, path: str, format: str, schema: Any) -> None:
        """Open the file. Raises `LocalError` for an unknown format, and `OSError` if it cannot be written."""
        if format not in FORMATS:
            raise LocalError("format", f"{shown(format)} is not legal", ", ".join(FORMATS), id="unknown-name")
        pa = self._pa = pyarrow_for(f"a {format} file")
        self._plain = format == "csv"
        self._schema = schema
        if format == "parquet":
            import pyarrow.parquet as parquet

            self._writer: Any = parquet.ParquetWriter(path, schema, compression="zstd")
        elif format == "csv":
            from pyarrow import csv

            plain = [_plain_type(pa, field) for field in schema]
            self._schema = pa.schema(plain)
            self._writer = csv.CSVWriter(path, self._schema)
        else:
            self._writer = pa.ipc.new_file(path, schema)

    def __enter__(self) -> "TableFile":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def write(self, rows: Any) -> None:
        """Write rows: a batch or a table of the schema."""
        if self._plain:
            arrays = [_plain_array(self._pa, array) for array in rows.columns]
            rows = self._pa.Table.from_arrays(arrays, schema=self._schema)
        elif isinstance(rows, self._pa.RecordBatch):
            rows = self._pa.Table.from_batches([rows])
        self._writer.write_table(rows)

    def close(self) -> None:
        """End the file."""
        self._writer.close()


def _is_nested(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _plain_type(pa: Any, field: Any) -> Any:
    """Return a field as CSV has it: bytes and lists are texts."""
    return pa.field(field.name, pa.string()) if _is_nested(pa, field.type) else field


def _plain_array(pa: Any, array: Any) -> Any:
    """Return a column as CSV has it: bytes in hexadecimal, the values of a list with spaces between them."""
    if not _is_nested(pa, array.type):
        return array
    return pa.array([_plain_text(value) for value in array.to_pylist()], pa.string())


def _plain_text(value: Any) -> str | None:
    if isinstance(value, list):
        return " ".join(str(_plain_text(one) if isinstance(one, bytes) else one) for one in value)
    return value.hex() if isinstance(value, bytes) else value
