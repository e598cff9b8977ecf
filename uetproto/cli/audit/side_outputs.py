# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the side outputs of `uetproto audit` while the packets are audited: a picture (`--plot`) and
tables (`--parquet`).
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce
from typing import Self

from uetproto.audit.finding import Finding
from uetproto.audit.judge import Heard
from uetproto.audit.listeners import ListenerFactory, ListenerPair, PacketListener
from uetproto.audit.parquet import PacketTable, write_findings
from uetproto.audit.reader.options import Options
from uetproto.audit.stats.measure import Measures
from uetproto.parquet import check_parquet


class SideOutputs:
    """This class makes the listeners that collect the side outputs during an audit, and writes the outputs. It is a
    context manager around the audit."""

    def __init__(self, options: Options, *, plot: str | None, number: int | None, parquet: str | None) -> None:
        """Make the listeners. `number` is the PDCID or queue pair to draw, or None. Raises `LocalError` if an output
        cannot be drawn or written.
        """
        self._plot, self._number, self._parquet = plot, number, parquet
        self._owned = ExitStack()
        self._factories: list[ListenerFactory] = []
        self._measures: Measures | None = None
        if plot is not None:
            from uetproto.cli.audit import plot as audit_plot

            audit_plot.check(plot)
            self._measures = Measures(options, number=number, draw=True)
            self._factories.append(self._measures)
        if parquet is not None:
            check_parquet(parquet)

    def __enter__(self) -> Self:
        if self._parquet is not None:
            self._factories.append(self._owned.enter_context(PacketTable(self._parquet)))
        return self

    def __exit__(self, *error: object) -> None:
        self._owned.close()

    @property
    def listen(self) -> ListenerFactory | None:
        """Return the argument `listen` for `audit`: this object, or None if there are no side outputs."""
        return self if self._factories else None

    @property
    def heard(self) -> Heard:
        """Return the functions that handle the events for the listeners. The key is the event."""
        return {event: function for factory in self._factories for event, function in factory.heard.items()}

    def write(self, findings: Sequence[Finding]) -> list[str]:
        """Write the side outputs, and return the names of the files and directories that were written."""
        written = []
        if self._parquet is not None:
            write_findings(self._parquet, findings)
            written.append(self._parquet)
        if self._plot is not None and self._measures is not None:
            from uetproto.cli.audit import plot as audit_plot

            audit_plot.plot(self._measures.end(), self._plot, self._number, findings)
            written.append(self._plot)
        return written

    def __call__(self, file: str, interface: str, number: int) -> PacketListener | None:
        """Return the listener of a vantage point, or None if no side output needs one."""
        made = [factory(file, interface, number) for factory in self._factories]
        listeners = [listener for listener in made if listener is not None]
        return reduce(ListenerPair, listeners) if listeners else None
