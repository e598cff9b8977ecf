"""This module writes the files of `--parquet DIR`: packets.parquet and findings.parquet, for DuckDB, Polars, pandas.

    SELECT rule, count(*), min(time) FROM 'findings.parquet' GROUP BY rule;
    SELECT p.* FROM 'packets.parquet' p JOIN 'findings.parquet' f USING (file, interface, number);

A packet of UET or RoCE is one row. Rows are written while the capture is read, so that memory holds only one group of
rows. Only this module imports pyarrow, and only when there is something to write.
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
from uetproto.errors import LocalError, missing_package
from uetproto.wire.capture.pcap import Record
from uetproto.wire.forms import FORMS

PACKETS, FINDINGS = "packets.parquet", "findings.parquet"
GROUP = 65_536
"""Number of rows that are written to a file at a time."""


class Column(NamedTuple):
    """This record describes a column: its name, its type in Arrow, and what it holds."""

    name: str
    type: str
    doc: str
    of: str = ""
    """Attribute of `ObservedPacket` that has the header with the value: `head`, `ses` or `more`. It is empty if the
    value is not from a header."""
    field: str = ""
    """Name of the field in the header. It is empty if the field has the same name as the column."""


TIME = "timestamp[ns]"
# fmt: off
PACKET_COLUMNS = (
    Column("file",             "string", "capture"),
    Column("interface",        "string", "its interface"),
    Column("number",           "int64",  "of the record in the file, from 0"),
    Column("time",             TIME,     "since 1970, UTC"),
    Column("length",           "uint32", "bytes on the wire; null: the inside of a sealed packet, which is a row, too"),
    Column("src",              "string", "address"),
    Column("dst",              "string", "address"),
    Column("dscp",             "uint8",  ""),
    Column("ecn",              "uint8",  "3: marked"),
    Column("entropy",          "uint16", "UDP source port, or field of the entropy header"),
    Column("form",             "string", "what leads: a PDS header, a security header that is closed, or bth"),
    # Any other column is null where the packet has no such field.
    Column("psn",              "uint32", "",                                              "head"),
    Column("psn_offset",       "uint32", "from Start_PSN",                                "head"),
    Column("retx",             "uint8",  "1: retransmission",                             "head"),
    Column("ar",               "uint8",  "1: asks for an ACK",                            "head"),
    Column("spdcid",           "uint16", "PDCID of the sender",                           "head"),
    Column("dpdcid",           "uint16", "PDCID of the receiver",                         "head"),
    Column("clear_psn_offset", "int32",  "",                                              "head"),
    Column("cack_psn",         "uint32", "cumulative ACK",                                "head"),
    Column("ack_psn_offset",   "int32",  "",                                              "head"),
    Column("sack_psn_offset",  "int32",  "",                                              "head"),
    Column("sack_bitmap",      "uint64", "",                                              "head"),
    Column("mpr",              "uint16", "window offered, in units of 128 PSNs",          "head"),
    Column("nack_code",        "string", "",                                              "head"),
    Column("nack_psn",         "uint32", "",                                              "head"),
    Column("ctl_type",         "string", "of a control packet",                           "head"),
    Column("pkt_id",           "uint32", "RUDI",                                          "head"),
    Column("sdi",              "uint32", "of a sealed packet, as the next three",         "head"),
    Column("an",               "uint8",  "",                                              "head"),
    Column("epoch",            "uint32", "",                                              "head"),
    Column("tsc",              "uint64", "",                                              "head"),
    Column("bth_opcode",       "string", "",                                              "head", "opcode"),
    Column("destqp",           "uint32", "",                                              "head"),
    Column("p_key",            "uint16", "",                                              "head"),
    Column("ses",              "string", "form of the SES header"),
    Column("opcode",           "string", "SES",                                           "ses"),
    Column("return_code",      "string", "",                                              "ses"),
    Column("list",             "string", "",                                              "ses"),
    Column("message_id",       "uint16", "",                                              "ses"),
    Column("som",              "uint8",  "1: start of message",                           "ses"),
    Column("eom",              "uint8",  "1: end of message",                             "ses"),
    Column("job_id",           "uint32", "",                                              "ses"),
    Column("request_length",   "uint32", "of the whole message",                          "ses"),
    Column("message_offset",   "uint32", "",                                              "ses"),
    Column("payload_length",   "uint32", "",                                              "ses"),
    Column("modified_length",  "uint32", "",                                              "ses"),
    Column("syndrome",         "uint8",  "AETH",                                          "more"),
    Column("msn",              "uint32", "AETH",                                          "more"),
    Column("va",               "uint64", "RETH",                                          "more"),
    Column("r_key",            "uint32", "RETH",                                          "more"),
    Column("dmalen",           "uint32", "RETH",                                          "more"),
    Column("srcqp",            "uint32", "DETH",                                          "more"),
    Column("payload",          "uint32", "bytes; null: the capture kept less"),
    Column("content",          "uint32", "equal in copies: of SES header, extensions and payload"),
    Column("trimmed",          "bool",   ""),
    Column("unusual",          "bool",   "a reserved bit, a length, a code or the CRC is not as usual"),
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


def check_parquet(directory: str) -> None:
    """Check that files can be written to `directory`, before the capture is read. Raises `LocalError` if they cannot be
    written, or if pyarrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise missing_package(f"--parquet {directory}", "pyarrow", "parquet") from None
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise LocalError(f"--parquet {directory}", "is a file", "a directory")
    if not folder.exists() and not folder.absolute().parent.is_dir():
        raise LocalError(f"--parquet {directory}", f"there is no directory {folder.parent}")


class _Table:
    """This class writes a Parquet file in groups of rows."""

    def __init__(self, path: Path, columns: tuple[Column, ...], about: str) -> None:
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
        self._rows.append(row)
        if len(self._rows) == GROUP:
            self._write()

    def close(self) -> None:
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


# Packets --------------------------------------------------------------------------------------------------------------


class PacketTable:
    """This class writes packets.parquet, which has the packets of all vantage points. It is a `ListenerFactory` and a
    context manager."""

    def __init__(self, directory: str) -> None:
        """Open the file. The directory is made if it does not exist."""
        folder = Path(directory)
        folder.mkdir(exist_ok=True)
        self._table = _Table(folder / PACKETS, PACKET_COLUMNS, "packets of UET and RoCE, as uetproto audit saw them")

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


def _columns(of: str) -> tuple[Column, ...]:
    return tuple(column for column in PACKET_COLUMNS if column.of == of)


_HEAD, _SES, _MORE = map(_columns, ("head", "ses", "more"))


def _values(head: Head, columns: tuple[Column, ...]) -> Iterable[Any]:
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
def _places(kind: Any, columns: tuple[Column, ...]) -> list[tuple[int, dict[int, str] | None]]:
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
    table = _Table(Path(directory) / FINDINGS, FINDING_COLUMNS, "findings of uetproto audit")
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
