# SPDX-License-Identifier: GPL-2.0-only
"""This module shows rows of results as tables: flows and messages of a capture, findings of an audit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

from uetproto.analysis.html import table_html
from uetproto.errors import LocalError, SuggestsNames, shown
from uetproto.wire.words.text import count

T = TypeVar("T")
SHOWN = 20
"""Rows of a table that are shown."""

Shown = Mapping[str, Callable[[Any], object]]
"""Type of the columns that are shown: names, and what gives the cell of a row."""


class RowView(SuggestsNames, Sequence[T], Generic[T]):
    """This class is a sequence of rows that shows itself as a table. `as_dicts` gives all values of the rows."""

    def __init__(
        self, what: str, rows: Sequence[T], columns: Shown, as_dict: Callable[[T], dict[str, Any]], others: int = 0
    ) -> None:
        """Make a table of `rows`, of which one is called `what`. `others` rows were only counted."""
        self._what, self._rows, self._columns, self._as_dict = what, rows, columns, as_dict
        self.others = others
        """Number of further rows, which were only summed: a capture may have more than fit into memory."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> "RowView[T]": ...
    def __getitem__(self, index: int | slice) -> "T | RowView[T]":
        if isinstance(index, slice):
            return RowView(self._what, self._rows[index], self._columns, self._as_dict)
        if not isinstance(index, int):
            raise LocalError(
                "index", f"{shown(index)} is not legal", "whole numbers and slices; a row has names", id="wrong-type"
            )
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries, as `--json` prints them."""
        return [self._as_dict(row) for row in self._rows]

    @property
    def _note(self) -> str:
        hidden = max(0, len(self._rows) - SHOWN)
        told = [count(len(self._rows), self._what)]
        told += [f"{hidden:,} of them not shown"] if hidden else []
        told += [f"{self.others:,} more were only counted"] if self.others else []
        return ", ".join(told)

    def _cells(self) -> list[list[str]]:
        return [
            ["" if (cell := get(row)) is None else str(cell) for get in self._columns.values()]
            for row in self._rows[:SHOWN]
        ]

    def __repr__(self) -> str:
        cells = self._cells()
        lines = [list(self._columns), *cells] if cells else []
        wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
        told = ["  ".join(cell.ljust(size) for cell, size in zip(line, wide, strict=True)).rstrip() for line in lines]
        return "\n".join((*told, f"({self._note})"))

    def _repr_html_(self) -> str:
        return table_html(list(self._columns), self._cells(), self._note)
