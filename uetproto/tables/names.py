# SPDX-License-Identifier: GPL-2.0-only
"""This module has the names of the columns of the joined table.

A column has a name of its own (`time`, `src`), or that of a field that filters know (`uetp.psn`).
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from uetproto.analysis.arguments import check_texts
from uetproto.errors import LocalError, shown, similar
from uetproto.filters.fields import FilterField, fields
from uetproto.wire.filter_names import BY_NAME
from uetproto.wire.forms import FORMS

OWN = {
    "file":      ("string", "capture, where there are several"),
    "number":    ("uint32", "of the packet, from 1"),
    "time":      ("time",   "since 1970, UTC; null: it does not fit"),
    "interface": ("string", "name, or number"),
    "length":    ("uint32", "bytes on the wire"),
    "protocol":  ("string", "UET, RoCE, InfiniBand, or the innermost lower layer"),
    "src":       ("string", "address of IP, else of Ethernet"),
    "dst":       ("string", "address, likewise"),
    "sport":     ("uint16", "UDP source port, the entropy of UET"),
    "dport":     ("uint16", "UDP destination port"),
    "dscp":      ("uint8",  ""),
    "ecn":       ("uint8",  "3: marked"),
    "flow":      ("uint32", "number of the pair of src and dst of a capture, from 0"),
    "form":      ("string", "PDS header, security header, or bth"),
}  # fmt: skip
"""Names that are no fields, each with the type and what it is."""

COMMON = (
    *(name for name in OWN if name != "file"),
    *(f"uetp.{name}" for name in (
        "psn", "cack_psn", "ack_psn", "nack_psn", "clear_psn", "spdcid", "dpdcid", "retx", "syn", "ctl_type",
        "nack_code", "opcode", "return_code", "message_id", "job_id", "som", "eom", "length", "message_offset",
    )),
    "infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.bth.destqp",
)  # fmt: skip
"""Columns of the joined table, unless the caller names others."""

ANALYSIS = tuple(f"uetp.{name}" for name in (
    "pdc", "rel_psn", "qp_stream", "msg", "msg.first", "msg.last", "acked_in", "nacked_in", "ack_time",
    "retransmission_of", "response_in", "response_to", "analysis.retransmission", "analysis.spurious_retransmission",
    "analysis.out_of_order", "analysis.rtt", "analysis.packets_in_flight", "analysis.bytes_in_flight",
))  # fmt: skip
"""Columns that say what the packets around a packet say."""


class TableColumn(NamedTuple):
    """A column of a table has a name, a type, and the names of its codes."""

    name: str
    kind: str
    """One of string, time, bool, binary, float64, a number such as uint32, or list<uint32>."""
    codes: type[IntEnum] | None = None


def column_of(name: str) -> TableColumn:
    """Return the column of a name. Raises `LocalError` with names that are like it for an unknown one."""
    if name in OWN:
        return TableColumn(name, OWN[name][0])
    field = fields().get(name)
    if field is None:
        known = (*OWN, *fields())
        near = similar(name, known) or similar(f"uetp.{name}", known)
        raise LocalError(
            "fields", f"{shown(name)} is no column{near}", "names of docs/howto/tables.md", id="unknown-column"
        )
    codes = codes_of(name)
    return TableColumn(name, "string" if codes is not None else _type(field), codes)


def codes_of(name: str) -> type[IntEnum] | None:
    """Return the codes of a field that is shown by names: at most 8 bits wide."""
    row = BY_NAME.get(name.removeprefix("uetp."))
    values: Any = None
    if row is not None and not row.plus:
        values = row.values
    elif name == "infiniband.bth.opcode":
        values = FORMS["bth"]["opcode"].values
    return values if values is not None and issubclass(values, IntEnum) and fields()[name].bits <= 8 else None


def _type(field: FilterField) -> str:
    kinds = {"bool": "bool", "label": "bool", "time": "float64", "bytes": "binary", "protocol": "binary",
             "string": "string", "ether": "string", "ipv4": "string", "ipv6": "string"}  # fmt: skip
    if field.kind in kinds:
        return f"list<{kinds[field.kind]}>" if field.many else kinds[field.kind]
    sign = "" if field.kind == "int" else "u"
    size = next(size for size in (8, 16, 32, 64) if field.bits <= size)
    return f"list<{sign}int{size}>" if field.many else f"{sign}int{size}"


def chosen(names: Sequence[str] | None, analysis: bool, several: bool) -> list[TableColumn]:
    """Return the columns of a table: those that are named, or the common ones, with those of the analysis if it is
    asked for. Raises `LocalError` for an unknown name."""
    check_texts("fields", names, none=True)
    if names is not None and not names:
        raise LocalError("fields", "names no column", "names of docs/howto/tables.md", id="unknown-column")
    wanted = [*(COMMON if names is None else names), *(ANALYSIS if analysis else ())]
    if several and "file" not in wanted:
        wanted.insert(0, "file")
    return [column_of(name) for name in dict.fromkeys(wanted)]
