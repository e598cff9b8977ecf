# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto stats`: it measures packets, retransmissions, windows, times and messages."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import click

from uetproto.analysis.decoding import Decoding, read_keys
from uetproto.analysis.sources import CaptureSource
from uetproto.audit.reader.options import Options
from uetproto.audit.report import AuditReport
from uetproto.audit.stats.measure import measure
from uetproto.audit.stats.meters import Measurements
from uetproto.cli.audit import plot as audit_plot
from uetproto.cli.captures import (
    LATER,
    ReadingLine,
    check_files,
    chosen_packets,
    decoding_options,
    file_of,
    filter_option,
    filtered_once,
    is_pipe,
    keys_option,
    read_key_ring,
    readable_again,
    report_damage,
)
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_output
from uetproto.cli.stats import text as stats_text
from uetproto.cli.stats.per_packet import lines as per_packet_lines
from uetproto.cli.terminal import console, painter, printable, status
from uetproto.errors import LocalError, identified
from uetproto.filters.display_filter import DisplayFilter
from uetproto.wire.capture.pcap import CaptureReader, open_capture
from uetproto.wire.words.summary import count


@click.command(
    short_help="Measure captures: retransmissions, windows, times.",
    epilog=f"""\b
Example:
  uetproto stats capture.pcapng
  uetproto stats capture.pcapng --pdc 7 --plot pdc7.svg
  uetproto stats --json capture.pcapng | jq 'select(.kind == "message") | .latency_ns'

A flow is what one end sends to the other: requests of a PDC, packets to a queue pair, RUDI, UUD. Each interface of each
file is measured alone, with the times of its clock.

Sent again, by cause: the code of a NACK for that PSN, or in ROD for one before it; "trimmed" if a trimmed copy was
seen; "RTO?" if only an earlier copy was seen: the timer expired, or the source inferred a loss; "unknown" if no copy
was seen. RoCE does not mark retransmissions: every copy counts, also one that the network made.

Window: the most requests that were unacknowledged at a time. To ACK: the time from a request that was sent once to the
first ACK that covers it. Latency: the time from the first packet of a message to its last response. Percentiles are
exact to 1 %. Reordered: first transmissions seen after one with a newer PSN, and the largest distance in PSNs.

{EXIT_STATUS}
Faults are damage, and --keys that open none of the sealed packets.""",
)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line: flows, messages, a summary each.")
@click.option(
    "--per-packet", is_flag=True,
    help="Print one JSON object a packet: its PDC, answers, retransmissions, times, message;"
    " see docs/reference/analysis.md.",
)  # fmt: skip
@click.option(
    "--pdc", "number", type=click.IntRange(0, 0xFFFFFF), metavar="ID",
    help="Measure only this PDCID or queue pair.",
)  # fmt: skip
@click.option("--interface", metavar="NAME|N", help="Measure only this interface; default: all.")
@click.option("--plot", metavar="FILE", help="Also draw the flow with most packets, as .png or .svg.")
@click.option("--mirror", is_flag=True, help="Count a packet that a mirror port captured twice once.")
@click.option(
    "--max-flows", type=click.IntRange(1), default=Options().max_flows, show_default=True, metavar="N",
    help="Conversations of a kind that are followed at a time, over all interfaces of a file.",
)  # fmt: skip
@filter_option("Measure only packets")
@decoding_options
@keys_option()
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    as_json: bool,
    per_packet: bool,
    number: int | None,
    interface: str | None,
    plot: str | None,
    mirror: bool,
    max_flows: int,
    wanted: DisplayFilter | None,
    decoding: Decoding,
    keys_file: str | None,
) -> None:
    """Measure captures of any implementation: bytes and packets, retransmissions and their causes, reordering, windows,
    times of ACKs and messages.

    FILE is a pcap or pcapng, also compressed; - is standard input.
    """
    check_files(files)
    if plot is not None:
        audit_plot.check(plot)
        check_output("--plot", plot, [*(("FILE", file) for file in files), ("--keys", keys_file)])
    if per_packet:
        if number is not None or plot is not None or mirror:
            raise identified(
                click.UsageError("--per-packet does not go with --pdc, --plot or --mirror"), "conflicting-arguments"
            )
        _per_packet(ctx, files, decoding._replace(keys=read_keys(keys_file)), interface, wanted)
        return
    opener: Callable[[str], CaptureReader] = open_capture
    if wanted is not None:
        judging = decoding._replace(keys=read_keys(keys_file))
        owned = ctx.with_resource(ExitStack())
        once = {file for file in files if is_pipe(file) and not wanted.late}
        again = {file: CaptureSource(readable_again(file, owned, LATER)) for file in files if file not in once}
        chosen = {file: chosen_packets(wanted, source, judging.anew()) for file, source in again.items()}

        def opener(file: str) -> CaptureReader:
            if file in once:
                return filtered_once(wanted, file, judging.anew())
            return again[file].chosen(chosen[file])

    options = Options(mirror=mirror, keys=read_key_ring(keys_file), max_flows=max_flows, **decoding.transports)
    with status() as show, Interrupt() as interrupt:
        reading = ReadingLine(show, opener)
        report, measured = measure(
            files, options, reading, interface=interface, number=number, draw=plot is not None, interrupt=interrupt,
            opener=reading.open,
        )  # fmt: skip
    if not measured and interface is not None and report.vantages:
        names = ", ".join(printable(name) or "0" for _, name in report.vantages)
        raise LocalError(
            f"--interface {interface}", f"there is no such interface; there are {names}", id="unknown-interface"
        )
    audit_plot.check_number(measured, number)
    for finding in report.findings:
        click.echo(f"uetproto: {printable(finding.file)}: damaged {printable(finding.seen)}", err=True)
    if plot is not None:
        audit_plot.plot(measured, plot, number)
    if as_json:
        for line in json_lines(measured):
            click.echo(json.dumps(line | {"partial": True} if report.partial and line["kind"] == "summary" else line))
    else:
        _text(report, measured, number)
        if plot is not None:
            click.echo(f"drawn in {printable(plot)}")
    if report.partial:
        click.echo(f"uetproto: partial: interrupted after {count(report.packets, 'packet')}", err=True)
        ctx.exit(interrupt.status)
    if report.keys_open_nothing:
        click.echo("uetproto: the keys open none of the sealed packets: what is inside was not measured", err=True)
    if report.findings or report.keys_open_nothing:
        ctx.exit(FAULT)


def _per_packet(
    ctx: click.Context, files: tuple[str, ...], decoding: Decoding, interface: str | None, wanted: DisplayFilter | None
) -> None:
    """Print the lines of `--per-packet`. With several files, each line names its file."""
    found = damaged = False
    names: dict[str, None] = {}
    with status() as show:
        late = wanted is not None and wanted.late
        for file in files:
            with ExitStack() as owned, open_capture(path := file_of(file, owned, LATER) if late else file) as reader:
                told = per_packet_lines(
                    path, reader, decoding, interface, {"file": file} if len(files) > 1 else {},
                    lambda packets: show(count(packets, "packet")), wanted,
                )  # fmt: skip
                for line in told:
                    found = True
                    click.echo(line)
                damaged |= report_damage(file, reader)
                names |= {printable(one.name) or str(number): None for number, one in enumerate(reader.interfaces)}
                found |= any(interface in (one.name, str(number)) for number, one in enumerate(reader.interfaces))
    if not found and interface is not None and names:
        raise LocalError(
            f"--interface {interface}", f"there is no such interface; there are {', '.join(names)}",
            id="unknown-interface"
        )  # fmt: skip
    keys = decoding.keys
    closed = keys is not None and keys.total.sealed and not keys.total.opened
    if closed:
        click.echo("uetproto: the keys open none of the sealed packets: what is inside is not told", err=True)
    if damaged or closed:
        ctx.exit(FAULT)


def json_lines(measured: list[Measurements]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of the flows, of the messages and of a summary, for one vantage point after the other."""
    for one in measured:
        where = {"file": one.file, "interface": one.interface}
        for row in (*one.flows.kept, *one.messages.kept):
            yield {**row.as_dict(), **where}
        yield {
            "kind": "summary", **where, "packets": one.packets, "bytes": one.bytes, "first_ns": one.first_ns,
            "last_ns": one.last_ns if one.packets else None, "kinds": dict(one.kinds),
            "flows": len(one.flows.kept) + one.flows.others.get("rows", 0), "other_flows": dict(one.flows.others),
            "messages": len(one.messages.kept) + one.messages.others.get("rows", 0),
            "other_messages": dict(one.messages.others), "resent": dict(one.flows.resent),
            "request_to_ack": one.answered.quantiles().as_dict(),
            "message_latency": {opcode: times.quantiles().as_dict() for opcode, times in one.latency},
        }  # fmt: skip


def _text(report: AuditReport, measured: list[Measurements], number: int | None) -> None:
    out = console()
    paint = painter()
    if not measured:
        click.echo("no packets")
    for one in stats_text.shown(measured):
        for line in stats_text.heading(one, paint):
            click.echo(line)
        click.echo()
        for part in (*stats_text.flows(one.flows), *stats_text.messages(one, number is not None)):
            out.print(part, markup=False) if isinstance(part, str) else out.print(part)
            out.print()
    for line in stats_text.left_out(report, measured):
        click.echo(line)
