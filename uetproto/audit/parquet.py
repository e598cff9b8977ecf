# SPDX-License-Identifier: GPL-2.0-only
"""This module writes the files of `--parquet DIR`: packets.parquet and findings.parquet, for DuckDB, Polars, pandas.

    SELECT rule, count(*), min(time) FROM 'findings.parquet' GROUP BY rule;
    SELECT p.* FROM 'packets.parquet' p JOIN 'findings.parquet' f USING (file, interface, number);

A packet of UET or RoCE is one row. Rows are written while the capture is read, so that memory holds only one group of
rows.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from uetproto.audit.finding import Finding
from uetproto.audit.flows import Bounded
from uetproto.audit.judge import Heard
from uetproto.audit.listeners import Lengths
from uetproto.audit.reader.address import address_text
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.parquet import TIME, Column, ParquetTable
from uetproto.wire.capture.pcap import Record
from uetproto.wire.forms import FORMS

PACKETS, FINDINGS = "packets.parquet", "findings.parquet"


class PacketColumn(NamedTuple):
    """This record describes a column of packets.parquet: its name, its type in Arrow, what it holds, and where the
    value comes from."""

    name: str
    type: str
    doc: str
    of: str = ""
    """Attribute of `ObservedPacket` that has the header with the value: `head`, `ses` or `more`. It is empty if the
    value is not from a header."""
    field: str = ""
    """Name of the field in the header. It is empty if the field has the same name as the column."""


# fmt: off
PACKET_COLUMNS = (
    PacketColumn("file",             "string", "capture"),
    PacketColumn("interface",        "string", "its interface"),
    PacketColumn("number",           "int64",  "of the record in the file, from 0"),
    PacketColumn("time",             TIME,     "since 1970, UTC"),
    PacketColumn("length",           "uint32", "bytes on the wire; null: the inside of a sealed packet, also a row"),
    PacketColumn("src",              "string", "address"),
    PacketColumn("dst",              "string", "address"),
    PacketColumn("dscp",             "uint8",  ""),
    PacketColumn("ecn",              "uint8",  "3: marked"),
    PacketColumn("entropy",          "uint16", "UDP source port, or field of the entropy header"),
    PacketColumn("form",             "string", "what leads: a PDS header, a security header that is closed, or bth"),
    # Any other column is null where the packet has no such field.
    PacketColumn("psn",              "uint32", "",                                              "head"),
    PacketColumn("psn_offset",       "uint32", "from Start_PSN",                                "head"),
    PacketColumn("retx",             "uint8",  "1: retransmission",                             "head"),
    PacketColumn("ar",               "uint8",  "1: asks for an ACK",                            "head"),
    PacketColumn("spdcid",           "uint16", "PDCID of the sender",                           "head"),
    PacketColumn("dpdcid",           "uint16", "PDCID of the receiver",                         "head"),
    PacketColumn("clear_psn_offset", "int32",  "",                                              "head"),
    PacketColumn("cack_psn",         "uint32", "cumulative ACK",                                "head"),
    PacketColumn("ack_psn_offset",   "int32",  "",                                              "head"),
    PacketColumn("sack_psn_offset",  "int32",  "",                                              "head"),
    PacketColumn("sack_bitmap",      "uint64", "",                                              "head"),
    PacketColumn("mpr",              "uint16", "window offered, in units of 128 PSNs",          "head"),
    PacketColumn("nack_code",        "string", "",                                              "head"),
    PacketColumn("nack_psn",         "uint32", "",                                              "head"),
    PacketColumn("ctl_type",         "string", "of a control packet",                           "head"),
    PacketColumn("pkt_id",           "uint32", "RUDI",                                          "head"),
    PacketColumn("sdi",              "uint32", "of a sealed packet, as the next three",         "head"),
    PacketColumn("an",               "uint8",  "",                                              "head"),
    PacketColumn("epoch",            "uint32", "",                                              "head"),
    PacketColumn("tsc",              "uint64", "",                                              "head"),
    PacketColumn("bth_opcode",       "string", "",                                              "head", "opcode"),
    PacketColumn("destqp",           "uint32", "",                                              "head"),
    PacketColumn("p_key",            "uint16", "",                                              "head"),
    PacketColumn("ses",              "string", "form of the SES header"),
    PacketColumn("opcode",           "string", "SES",                                           "ses"),
    PacketColumn("return_code",      "string", "",                                              "ses"),
    PacketColumn("list",             "string", "",                                              "ses"),
    PacketColumn("message_id",       "uint16", "",                                              "ses"),
    PacketColumn("som",              "uint8",  "1: start of message",                           "ses"),
    PacketColumn("eom",              "uint8",  "1: end of message",                             "ses"),
    PacketColumn("job_id",           "uint32", "",                                              "ses"),
    PacketColumn("request_length",   "uint32", "of the whole message",                          "ses"),
    PacketColumn("message_offset",   "uint32", "",                                              "ses"),
    PacketColumn("payload_length",   "uint32", "",                                              "ses"),
    PacketColumn("modified_length",  "uint32", "",                                              "ses"),
    PacketColumn("syndrome",         "uint8",  "AETH",                                          "more"),
    PacketColumn("msn",              "uint32", "AETH",                                          "more"),
    PacketColumn("va",               "uint64", "RETH",                                          "more"),
    PacketColumn("r_key",            "uint32", "RETH",                                          "more"),
    PacketColumn("dmalen",           "uint32", "RETH",                                          "more"),
    PacketColumn("srcqp",            "uint32", "DETH",                                          "more"),
    PacketColumn("payload",          "uint32", "bytes; null: the capture kept less"),
    PacketColumn("content",          "uint32", "equal in copies: of SES header, extensions and payload"),
    PacketColumn("trimmed",          "bool",   ""),
    PacketColumn("unusual",          "bool",   "a reserved bit, a length, a code or the CRC is not as usual"),
)
FINDING_COLUMNS = (
    Column("finding",          "int64",  "counts from 0: one that several vantage points show has a row for each"),
    Column("file",             "string", "capture"),
    Column("interface",        "string", "its interface"),
    Column("number",           "int64",  "of the offending packet"),
    Column("packets",          "list<int64>", "all that show it, the offending one last"),
    Column("time",             TIME,     "where it was seen first"),
    Column("rule",             "string", ""),
    Column("severity",         "string", "error, warning or note"),
    Column("flow",             "map<string, string>", "what it is about"),
    Column("expected",         "string", ""),
    Column("seen",             "string", ""),
    Column("cite",             "string", ""),
)
# fmt: on


# Packets --------------------------------------------------------------------------------------------------------------


class PacketTable:
    """This class writes packets.parquet, which has the packets of all vantage points. It is a `ListenerFactory` and a
    context manager."""

    def __init__(self, directory: str) -> None:
        """Open the file. The directory is made if it does not exist."""
        folder = Path(directory)
        folder.mkdir(exist_ok=True)
        columns = [Column(*column[:3]) for column in PACKET_COLUMNS]
        self._table = ParquetTable(folder / PACKETS, columns, "packets of UET and RoCE, as uetproto audit saw them")

    heard: Heard = MappingProxyType({})
    """Empty map, because no function is called at events."""

    def __call__(self, file: str, interface: str, number: int) -> "_Packets":
        return _Packets(self._table.add, file, interface)

    def __enter__(self) -> "PacketTable":
        return self

    def __exit__(self, *error: object) -> None:
        self._table.close()


class _Packets:
    """This class writes the packets of one vantage point."""

    def __init__(self, add: Callable[[tuple[Any, ...]], None], file: str, interface: str) -> None:
        self._add = add
        self._file, self._interface = _text(file), _text(interface)
        self._lengths = Lengths()

    def take(self, record: Record) -> None:
        self._lengths.take(record)

    hears = None
    """None, because no function is called at events."""
    tables: Sequence[Bounded] = ()
    """Empty, because no flows are kept."""

    def rest(self) -> None:
        """Do nothing, because nothing is kept."""

    def sweep(self, now: int, quiet: bool) -> None:
        """Do nothing, because no flows are kept."""

    def end(self) -> None:
        """Do nothing, because the rows are already written."""

    def see(self, seen: ObservedPacket) -> None:
        head, ses = seen.head, seen.ses
        self._add((
            self._file, self._interface, seen.number, _time(seen.time_ns), self._lengths.pop(seen.number, None),
            _address(seen.src), _address(seen.dst), seen.dscp, seen.ecn, seen.entropy,
            None if head is None else head.form, *_values(head, _HEAD),
            None if ses is None else ses.form, *_values(ses, _SES), *_more(seen.more),
            None if seen.size < 0 else seen.size, seen.content, seen.is_trimmed, seen.packet is not None,
        ))  # fmt: skip


def _columns(of: str) -> tuple[PacketColumn, ...]:
    return tuple(column for column in PACKET_COLUMNS if column.of == of)


_HEAD, _SES, _MORE = map(_columns, ("head", "ses", "more"))


def _values(head: Head, columns: tuple[PacketColumn, ...]) -> Iterable[Any]:
    if head is None:
        return (None,) * len(columns)
    kind: Any = type(head)
    return [None if index < 0 else head[index] if names is None else names.get(head[index], f"{head[index]:#x}")
            for index, names in _places(kind, columns)]  # fmt: skip


def _more(heads: tuple[Head, ...]) -> list[Any]:
    found: list[Any] = [None] * len(_MORE)
    for head in heads:
        found = [had if value is None else value for had, value in zip(found, _values(head, _MORE), strict=True)]
    return found


@cache
def _places(kind: Any, columns: tuple[PacketColumn, ...]) -> list[tuple[int, dict[int, str] | None]]:
    """Return the index of each column in a header of this class, -1 for none, and names of codes for text columns."""
    places: list[tuple[int, dict[int, str] | None]] = []
    for column in columns:
        field = column.field or column.name
        if field not in kind._fields or (column.name == "bth_opcode" and kind.form != "bth"):
            places.append((-1, None))
            continue
        values = FORMS[kind.form][field].values
        names = {int(code): str(code.name) for code in values or ()} if column.type == "string" else None
        places.append((kind._fields.index(field), names))
    return places


_address = lru_cache(1 << 16)(address_text)


def _time(ns: int) -> int | None:
    """Return a time that Arrow can hold, or None."""
    return ns if -(1 << 63) <= ns < 1 << 63 else None


def _text(name: str) -> str:
    """Return a file name as valid UTF-8."""
    return name.encode(errors="replace").decode()


# Findings -------------------------------------------------------------------------------------------------------------


def write_findings(directory: str, findings: Iterable[Finding]) -> int:
    """Write the findings to findings.parquet in `directory`, and return how many rows the file has."""
    table = ParquetTable(Path(directory) / FINDINGS, FINDING_COLUMNS, "findings of uetproto audit")
    for number, finding in enumerate(findings):
        flow = [(name, str(value)) for name, value in finding.flow.items() if value is not None]
        for place in finding.everywhere:
            where = _text(place.file), _text(place.interface), place.packets[-1], list(place.packets)
            rule = finding.rule
            table.add((
                number, *where, _time(finding.first_time_ns), rule.id, finding.severity.value, flow, finding.expected,
                finding.seen, rule.cite,
            ))  # fmt: skip
    table.close()
    return table.rows
