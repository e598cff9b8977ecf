# SPDX-License-Identifier: GPL-2.0-only
"""This module has the files of the Wireshark profile: columns, colouring rules, filter buttons and I/O graphs for UET.

The tables below are all that there is to edit. `tests/interop/test_wireshark_profile.py` checks that the plugin, or
Wireshark itself, has every field that they name.
"""

from typing import NamedTuple

NAME = "UET"
"""Name of the profile, as `wireshark -C UET` and `tshark -C UET` take it."""

_BLACK, _WHITE = 0x12272E, 0xFFFFFF

NACK = "uetp.nack_code"
RETRANSMISSION = "uetp.analysis.retransmission"
ACK = "uetp.pds.ack || uetp.pds.ack_cc || uetp.pds.ack_ccx"
ERROR = "uetp.expert.malformed || uetp.crc.status == 0 || uetp.expert.error"
SEQUENCE = " || ".join(
    f"uetp.analysis.{name}" for name in ("lost_segment", "ack_unseen", "out_of_order", "duplicate", "duplicate_ack")
)
ROCE_NAK = "infiniband.aeth.syndrome.opcode == 3"


class Colour(NamedTuple):
    """A colouring rule says that packets that `filter` matches have this background and text colour."""

    name: str
    filter: str
    background: int
    text: int = _BLACK


COLOURS = (  # the first rule that matches a packet colours it
    Colour("UET malformed or wrong CRC", "uetp.expert.malformed || uetp.crc.status == 0", 0xA40000, 0xFFFCB8),
    Colour("UET NACK", NACK, 0x12272E, 0xF78787),
    Colour("UET trimmed", "uetp.trimmed", 0xF3C6F1),
    Colour("UET error response", "uetp.expert.error", 0xE8A0A0),
    Colour("UET retransmission", RETRANSMISSION, 0xFFD27F),
    Colour("UET sequence", SEQUENCE, 0xF7F0A8),
    Colour("UET control", "uetp.pds.cp", 0xC0C0C0),
    Colour("UET acknowledgement", ACK, 0xD9F2D0),
    Colour("UET sealed", "uetp.sealed", 0xD8D4EE),
    Colour("UET", "uetp", 0xDAEEFF),
    Colour("RoCE NAK", ROCE_NAK, 0x12272E, 0xF7B787),
    Colour("RoCE", "infiniband", 0xFAF0D7),
)


class ListColumn(NamedTuple):
    """A column of the packet list shows a format of Wireshark, such as %t, or the first of some fields."""

    title: str
    format: str

    def __str__(self) -> str:
        return self.format if self.format.startswith("%") else f"%Cus:{self.format}:0:R"


COLUMNS = (
    ListColumn("No.", "%m"),
    ListColumn("Time", "%t"),
    ListColumn("Source", "%s"),
    ListColumn("Destination", "%d"),
    ListColumn("Protocol", "%p"),
    ListColumn("Length", "%L"),
    ListColumn("PDC", "uetp.pdc"),
    ListColumn("PSN", "uetp.psn"),
    ListColumn("Rel PSN", "uetp.rel_psn"),
    ListColumn("Message", "uetp.msg"),
    ListColumn("ACK time", "uetp.ack_time"),
    ListColumn("Info", "%i"),
)


class Button(NamedTuple):
    """A button beside the filter bar applies a filter."""

    label: str
    filter: str
    comment: str


BUTTONS = (
    Button("NACK", NACK, "Packets that the receiver refused"),
    Button("Retransmissions", RETRANSMISSION, "Packets that were sent again"),
    Button("Trimmed", "uetp.trimmed", "Packets that a switch cut"),
    Button("Sequence", SEQUENCE, "What is missing, early or doubled in this capture"),
    Button("Errors", ERROR, "Malformed packets, wrong CRCs, error responses"),
    Button("Control", "uetp.pds.cp", "Control packets: probe, close, credit, negotiation and so on"),
    Button("UET", "uetp", "All of UET"),
    Button("RoCE", "infiniband", "All of RoCE"),
)


class Graph(NamedTuple):
    """A line of Statistics, I/O Graphs, counts packets or calculates with a field."""

    name: str
    filter: str
    colour: int
    style: str = "Line"
    y_axis: str = "Packets"
    y_field: str = ""
    shown: bool = True


GRAPHS = (
    Graph("UET packets", "uetp", 0x3465A4),
    Graph("Acknowledgements", ACK, 0x73D216),
    Graph("Retransmissions", RETRANSMISSION, 0xF57900, "Bar"),
    Graph("NACKs", NACK, 0xCC0000, "Bar"),
    Graph("Trimmed", "uetp.trimmed", 0x75507B, "Bar"),
    Graph("UET bits", "uetp", 0x2E3436, y_axis="Bits", shown=False),
    Graph("Bytes in flight", "uetp", 0x4E9A06, "Line", "MAX(Y Field)", "uetp.analysis.bytes_in_flight", shown=False),
    Graph("Round-trip time", "uetp", 0xC4A000, "Dot", "AVG(Y Field)", "uetp.analysis.rtt", shown=False),
    Graph("RoCE packets", "infiniband", 0xC17D11, shown=False),
)

SETTINGS = {  # preferences other than columns
    "udp.try_heuristic_first": "TRUE",
}
"""`udp.try_heuristic_first`: the source port of UET is an entropy value. Without this setting Wireshark gives a packet
whose source port is below 4793 and known to some other dissector to that one."""


def files(rules: str = "") -> dict[str, str]:
    """Return the files of the profile by name. `rules` are further colouring rules, which come below ours."""
    return {
        "preferences": _preferences(),
        "colorfilters": "".join(map(_colour, COLOURS)) + rules,
        "dfilter_buttons": "".join(_record(("TRUE", *button)) for button in BUTTONS),
        "io_graphs": "".join(map(_graph, GRAPHS)),
    }


def _preferences() -> str:
    columns = ",\n".join(f'\t"{column.title}", "{column}"' for column in COLUMNS)
    settings = "".join(f"{name}: {value}\n" for name, value in SETTINGS.items())
    return f"gui.column.format:\n{columns}\n{settings}"


def _colour(rule: Colour) -> str:
    """Return a line of the file colorfilters. Each part of a colour has 16 bits there."""
    background, text = (
        ",".join(str((colour >> shift & 0xFF) * 0x101) for shift in (16, 8, 0))
        for colour in (rule.background, rule.text)
    )
    return f"@{rule.name}@{rule.filter}@[{background}][{text}]\n"


def _graph(graph: Graph) -> str:
    state = "Enabled" if graph.shown else "Disabled"
    colour = f"#{graph.colour:06X}"
    return _record((state, graph.name, graph.filter, colour, graph.style, graph.y_axis, graph.y_field, "None", "1"))


def _record(values: tuple[str, ...]) -> str:
    """Return a line of one of Wireshark's tables. No value has a quotation mark or a backslash."""
    return ",".join(f'"{value}"' for value in values) + "\n"
