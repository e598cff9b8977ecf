# SPDX-License-Identifier: GPL-2.0-only
"""This module has `--fields` and `--names` of `uetproto dissect`: chosen values of each packet, and names of codes."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from uetproto import LocalError, Packet
from uetproto.analysis.packet_view import PacketView
from uetproto.cli.terminal import printable
from uetproto.filters.display_filter import FilteredPacket
from uetproto.filters.fields import fields
from uetproto.tables.names import OWN, codes_of, column_of
from uetproto.tables.per_packet import cell_of, needs_analysis
from uetproto.wire.filter_names import of_packet
from uetproto.wire.words.text import code

_OWN: Mapping[str, Callable[[PacketView], Any]] = {
    "number": lambda view: view.number, "time": lambda view: view.time_ns / 1e9,
    "interface": lambda view: view.interface, "length": lambda view: view.length,
    "protocol": lambda view: view.protocol, "src": lambda view: view.src, "dst": lambda view: view.dst,
    "sport": lambda view: view.get("udp.srcport"), "dport": lambda view: view.get("udp.dstport"),
}  # fmt: skip
"""Columns of tables that are no fields, as far as one packet has them."""


class ChosenFields:
    """This class makes a line of each packet with the values of chosen fields."""

    def __init__(self, text: str) -> None:
        """Take names with commas between them. Raises `LocalError` for an unknown name, and for none."""
        self._columns = [column_of(name.strip()) for name in text.split(",") if name.strip()]
        if not self._columns:
            raise LocalError(
                "--fields", "has no name", "names with commas between them, as in uetp.psn,uetp.opcode",
                id="missing-argument"
            )  # fmt: skip
        names = [one.name for one in self._columns]
        for name in names:
            if name in OWN and name not in _OWN:
                raise LocalError(
                    "--fields", f"{name} is a column of tables alone", ", ".join(_OWN), id="unknown-column"
                )
        self.analysed, self.late = needs_analysis(names)
        self._cells = [None if one.name in OWN else cell_of(fields()[one.name], one) for one in self._columns]

    def values(self, seen: FilteredPacket) -> dict[str, Any]:
        """Return the values of a packet by their names, without those that it does not have."""
        view = PacketView(seen.record, seen.packet, (seen.interface, ""), seen)
        found = {}
        for column, cell in zip(self._columns, self._cells, strict=True):
            value = _OWN[column.name](view) if cell is None else cell(seen)
            if value is not None:
                found[column.name] = value.hex() if isinstance(value, bytes) else value
        return found

    def line(self, seen: FilteredPacket) -> str:
        """Return the values with tabs between them; nothing stands for a value that the packet does not have."""
        values = self.values(seen)
        return "\t".join(_text(values.get(one.name)) for one in self._columns)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ",".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:.9f}"
    return printable(str(int(value)) if isinstance(value, bool) else str(value))


def names_of(packet: Packet) -> str:
    """Return as JSON the values of a packet by their names over forms, codes by their own names."""
    return json.dumps({
        name: value if (codes := codes_of(name)) is None else code(codes, value)
        for name, value in of_packet(packet).items()
    })  # fmt: skip
