# SPDX-License-Identifier: GPL-2.0-only
"""This module prints the measurements of `uetproto stats` as text: flows, messages by opcode, the slowest messages."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from uetproto.audit.outcome import left_out as counts_left_out
from uetproto.audit.report import AuditReport
from uetproto.audit.stats.meters import Measurements
from uetproto.audit.stats.rows import FlowRow, MessageRow, RowTable
from uetproto.cli.terminal import Paint, printable
from uetproto.wire.words.summary import count, duration

if TYPE_CHECKING:  # loaded where a table is printed
    from rich.table import Table

FLOWS = 16
"""Largest number of flows that are listed. Flows with the most packets are listed first."""
SLOW, EACH = 8, 64
"""Largest numbers of messages that are listed: `SLOW` if the slowest are listed, `EACH` if those of one PDC are
listed."""

INTERFACES = 64
"""Largest number of interfaces that are shown. Those with the most packets are shown."""

NONE = "–"


def shown(measured: Sequence[Measurements]) -> list[Measurements]:
    """Return the vantage points to show, in the order of the captures. If there are more than `INTERFACES`, return
    those with the most packets."""
    if len(measured) <= INTERFACES:
        return list(measured)
    most = sorted(range(len(measured)), key=lambda number: -measured[number].packets)[:INTERFACES]
    return [measured[number] for number in sorted(most)]


def heading(measured: Measurements, paint: Paint) -> Iterator[str]:
    """Yield the lines about a vantage point: its packets, bytes and duration, and the packets by type."""
    name = ", ".join(filter(None, (measured.file, measured.interface)))
    lasted = duration(measured.last_ns - (measured.first_ns or 0))
    packets = f"{measured.packets:,} packet{'s' * (measured.packets != 1)}"
    yield f"{paint(printable(name), 'bold')}: {packets}, {measured.bytes:,} bytes in {lasted}"
    if measured.kinds:
        yield "  " + ", ".join(
            f"{kind} {number:,}" for kind, number in sorted(measured.kinds.items(), key=lambda one: -one[1])
        )
    if not measured.flows.kept and any(kind.startswith("tss") for kind in measured.kinds):
        yield "  the contents of sealed packets are not measured; --keys opens them"


def flows(rows: RowTable) -> Iterator["Table | str"]:
    """Yield a table of the flows with the most packets, and lines about the flows that the table leaves out."""
    table = _table("flow", "packets", "payload", "goodput", "window", "to ACK: p50", "p99", "max")
    shown = sorted(rows.kept, key=lambda row: -row.packets)[:FLOWS]
    for row in shown:
        window = NONE if row.window is None else f"{row.window[0]:,}"
        answered = row.answered
        times = [duration(ns) if answered.count else NONE for ns in (answered.p50, answered.p99, answered.max)]
        lines = [*_who(row), *_notes(row)]
        table.add_row("\n".join(lines), f"{row.packets:,}", f"{row.payload:,}", rate(row.goodput), window, *times)
    if shown:
        yield table
    yield from _rest(rows, len(shown), "flow")


def messages(measured: Measurements, all_of_them: bool) -> Iterator["Table | str"]:
    """Yield a table of latencies by opcode, and a table of the slowest messages. If `all_of_them` is True, the second
    table lists the first messages in place of the slowest ones."""
    if measured.latency:
        table = _table("messages", "answered", "latency: p50", "p90", "p99", "max")
        for opcode, times in sorted(measured.latency, key=lambda one: one[0]):
            found = times.quantiles()
            table.add_row(opcode, f"{found.count:,}", *map(duration, (found.p50, found.p90, found.p99, found.max)))
        yield table
    rows: list[MessageRow] = measured.messages.kept
    if not all_of_them:
        rows = sorted((row for row in rows if row.latency is not None), key=lambda row: -(row.latency or 0))
    shown = rows[: EACH if all_of_them else SLOW]
    if len(measured.messages.kept) > 1 and rows:
        table = _table("the slowest" if not all_of_them else "message", "packets", "payload", "goodput", "latency")
        for row in shown:
            again = _causes("sent again", row.resent)
            latency = NONE if row.latency is None else duration(row.latency)
            table.add_row("\n".join([_message(row), *again]), f"{row.packets:,}", f"{row.payload:,}",
                          rate(row.goodput), latency)  # fmt: skip
        yield table
    yield from _rest(measured.messages, len(shown) if all_of_them else len(measured.messages.kept), "message")


def left_out(report: AuditReport, measured: Sequence[Measurements]) -> Iterator[str]:
    """Yield lines about the interfaces that are not shown, and about the packets that were read but are in no table."""
    more = len(measured) - INTERFACES
    if more > 0:
        packets = sum(one.packets for one in measured) - sum(one.packets for one in shown(measured))
        yield f"and {count(more, 'more interface')}, {count(packets, 'packet')}; --interface or --json shows them"
    told = [f"{what}: {number:,}" for what, number in counts_left_out(report).items()]
    if told:
        yield printable("; ".join(told))


def rate(bits: int | None) -> str:
    """Return a rate as text with three digits and its unit. `bits` are bits per second; None gives a dash."""
    if bits is None:
        return NONE
    for unit, name in ((10**12, "Tb/s"), (10**9, "Gb/s"), (10**6, "Mb/s"), (10**3, "kb/s")):
        if bits >= unit:
            value = bits / unit
            return f"{value:.0f} {name}" if value >= 99.95 else f"{value:.3g} {name}"
    return f"{bits} b/s"


def _table(first: str, *columns: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(first)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _who(row: FlowRow) -> Iterator[str]:
    flow = row.flow
    yield " → ".join(str(flow[name]) for name in ("src", "dst") if name in flow)
    if row.kind == "pdc":
        words = [f"PDC {flow['spdcid']} → {flow['dpdcid']}", row.mode or ""]
    elif row.kind == "qp":
        words = [str(flow["transport"])]
        words += [f"queue pair {flow[name]}" for name in ("destqp", "srcqp") if name in flow]
    else:
        words = [row.kind.upper()]
    words += [f"use {row.number}"] if row.number > 1 else []
    yield f"  {', '.join(filter(None, words))}"


def _notes(row: FlowRow) -> Iterator[str]:
    """Yield lines about retransmissions, refusals, reordering and marks."""
    yield from _causes("sent again", row.resent)
    yield from _causes("refused", row.refused)
    others = {
        f"reordered, by up to {row.depth}": row.reordered, "trimmed": row.trimmed, "duplicated": row.duplicates,
        "marked CE": row.marked,
    }  # fmt: skip
    told = ", ".join(f"{number:,} {what}" for what, number in others.items() if number)
    if told:
        yield f"  {told}"


def _causes(what: str, causes: Mapping[str, int]) -> Iterator[str]:
    said = sorted(causes.items(), key=lambda one: -one[1])
    if len(said) == 1:
        yield f"  {what} {said[0][1]:,}: {said[0][0]}"
    elif said:
        yield f"  {what} {sum(causes.values()):,}:"
        yield from (f"    {cause} {number:,}" for cause, number in said)


def _message(row: MessageRow) -> str:
    number = "" if row.message_id is None else f" id {row.message_id}"
    ends = [str(row.flow[name]) for name in ("src", "dst") if name in row.flow]
    return f"{row.opcode}{number} PSN {row.psn}, {' → '.join(ends)}"


def _rest(rows: RowTable, shown: int, noun: str) -> Iterator[str]:
    """Yield lines about rows that are not listed."""
    others = rows.others
    listed: Sequence[FlowRow | MessageRow] = rows.kept
    if len(listed) > shown:
        yield f"and {count(len(listed) - shown, f'more {noun}')}; --json has them"
    if others:
        yield f"and {count(others['rows'], f'{noun}')} that are summed: {others['packets']:,} packets"
