# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto capture`: it captures, audits and draws the frames of a network interface while
they arrive."""

import errno
import json
import select
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from uetproto import LocalError
from uetproto.analysis.decoding import Decoding, read_keys
from uetproto.audit.finding import Finding
from uetproto.audit.outcome import AuditOutcome
from uetproto.audit.outcome import summary as audit_summary
from uetproto.audit.personality import PERSONALITIES
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Severity
from uetproto.audit.stream import StreamAudit
from uetproto.cli.audit import text as audit_text
from uetproto.cli.captures import decoding_options, keys_option, read_key_ring
from uetproto.cli.choice import Choice
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.ladder.chart import Chart
from uetproto.cli.ladder.rows import LadderChoice, LadderTally, arrows, as_json, rows
from uetproto.cli.live.options import of_size
from uetproto.cli.live.words import duration
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_outputs
from uetproto.cli.terminal import many, painter, printable, status, tell, width
from uetproto.engine.contract import SECOND
from uetproto.live.path_packet import PacketSocket
from uetproto.live.time import MonotonicClock
from uetproto.wire.capture.base import CaptureInterface
from uetproto.wire.capture.pcap import ETHERNET, CaptureWriter, Record, open_writer
from uetproto.wire.words.text import numbered

_TURN = 0.1
"""Longest time in seconds until a signal or the end of the time is noticed."""
_BATCH = 64


class LiveFrames:
    """This class yields the frames of an interface as records, while they arrive (`cli.ladder.rows.RecordSource`)."""

    def __init__(
        self, link: PacketSocket, interrupt: Interrupt, *, count: int | None, seconds: float | None,
        idle: Callable[[], None],
    ) -> None:  # fmt: skip
        """`count` and `seconds` end the capture. `idle` is called before each wait for frames."""
        self._link, self._interrupt, self._idle = link, interrupt, idle
        self._count = count
        self._clock = MonotonicClock()
        self._end = None if seconds is None else int(seconds * SECOND)
        self.interfaces = [CaptureInterface(link.device.name, ETHERNET, 0)]
        self.frames = self.bytes = 0
        self.error: LocalError | None = None
        """Why the capture ended early."""

    @property
    def now(self) -> int:
        """Return the time since the beginning, in picoseconds."""
        return self._clock.now

    def __iter__(self) -> Iterator[Record]:
        while self.error is None and not self._interrupt and self.frames != self._count:
            if self._end is not None and self.now >= self._end:
                return
            try:
                arrived = self._link.receive(_BATCH)
            except OSError as error:
                self._failed(error)
                continue
            for frame in arrived:
                time_ns = frame.time_ns or self._clock.of_day(self.now)
                record = Record(self.frames, time_ns, frame.data, len(frame.data), 0, ETHERNET, 0, None)
                self.frames += 1
                self.bytes += len(frame.data)
                yield record
                if self.frames == self._count:
                    return
            if not arrived:
                self._idle()
                select.select((self._link.fileno(),), (), (), _TURN)

    def _failed(self, error: OSError) -> None:
        """Go on after an error of the interface, unless it is gone."""
        device = self._link.device
        try:
            is_there = error.errno == errno.ENETDOWN and socket.if_nametoindex(device.name) == device.number
        except OSError:
            is_there = False
        if not is_there:
            self.error = LocalError(
                "--interface", f"{device.name} is gone: {error.strerror}", "one that stays", id="interface-down"
            )
        else:
            click.echo(f"uetproto: {device.name} is down; no frames come until it is up", err=True)


@click.command(
    epilog=f"""\b
Example:
  uetproto capture -i eth0 -o traffic.pcapng
  uetproto capture -i eth0 --audit --ladder
  uetproto capture -i eth0 --audit --complete --seconds 60 --json > findings.jsonl
  uetproto capture -i eth0 -o - | wireshark -k -i -

A finding is printed as soon as it is made; some need the end of the capture, and some are withdrawn then, which is
said. --complete promises that the capture begins before the first packet, and that none is missing; if the kernel
drops frames, the promise is not kept, and findings of absence are withdrawn.

Frames are captured as they are on the wire: VLAN tags that the kernel took off are put back, checksums that were left
to the network card are filled in, and superframes of UDP are split.

{EXIT_STATUS}
Faults are findings from --fail-on up."""
)
@click.option("-i", "--interface", required=True, metavar="IF", help="Network interface, such as eth0.")
@click.option("--audit", "audits", is_flag=True, help="Judge the packets, and print findings as they come.")
@click.option("--ladder", is_flag=True, help="Draw a message sequence chart as packets come.")
@click.option("-o", "--output", metavar="FILE", help="Write all frames: .pcapng or .pcap, also .gz; - is stdout.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after N frames.")
@click.option(
    "--seconds", type=click.FloatRange(0, 10**9, min_open=True), metavar="T", help="End after this time in seconds."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line: findings, rows, then a summary.")
@click.option("--complete", is_flag=True, help="The capture will have every packet from the first one on.")
@click.option("--rules", "globs", multiple=True, metavar="GLOB,-GLOB", help="Judge only these rules, as audit does.")
@click.option("--personality", metavar="NAME", help=f"Known departures are notes: {', '.join(PERSONALITIES)}.")
@click.option(
    "--fail-on", type=Choice([severity.value for severity in Severity]), default="error", show_default=True,
    help="The least severe finding that makes the exit status 1.",
)  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Draw a row for every packet, also in runs of similar ones.")
@click.option(
    "--promiscuous/--no-promiscuous", default=True, show_default=True, help="Take frames for other hosts, too."
)
@click.option("--buffer", default="16 MiB", show_default=True, metavar="SIZE", help="What the kernel may keep.")
@decoding_options
@keys_option()
def command(
    interface: str, audits: bool, ladder: bool, output: str | None, count: int | None, seconds: float | None,
    as_json: bool, complete: bool, globs: tuple[str, ...], personality: str | None, fail_on: str, every: bool,
    promiscuous: bool, buffer: str, decoding: Decoding, keys_file: str | None,
) -> None:  # fmt: skip
    """Read the frames of a network interface, and write, judge and draw them while they arrive, until Ctrl-C.

    Memory does not grow with the number of frames. Ctrl-C ends it with a complete capture, a summary, and exit status
    130. Needs CAP_NET_RAW.
    """
    if not (audits or ladder or output):
        raise LocalError(
            "capture", "nothing is done with the frames", "at least one of -o FILE, --audit, --ladder",
            id="missing-argument"
        )  # fmt: skip
    if output == "-" and (as_json or ladder):
        raise LocalError("-o -", "wants standard output, as --json and --ladder do", "-o FILE", id="stdout-taken")
    check_outputs([("-o", output)], [("--keys", keys_file)])
    rules = tuple(glob.strip() for text in globs for glob in text.split(",") if glob.strip())
    options = Options(
        complete=complete, rules=rules, keys=read_key_ring(keys_file), personality=personality, **decoding.transports
    )
    stream = StreamAudit(options, ETHERNET) if audits else None
    room = of_size("--buffer", buffer, 2048, 1 << 30)
    link = PacketSocket(interface, buffer=room, both_ways=True, promiscuous=promiscuous)
    paint, aside = painter(), output == "-"
    writer: CaptureWriter | None = None

    def show_findings(findings: list[Finding]) -> None:
        for finding in findings:
            if as_json:
                found = finding.as_dict() | {"file": output or "", "interface": interface}
                tell([json.dumps(found, ensure_ascii=False, default=str)])
            else:
                tell([_line(finding, paint)], aside)

    def flush() -> None:
        sys.stdout.flush()
        if writer is not None:
            writer.flush()

    try:
        if output is not None:
            words = f"uetproto capture of {interface}"
            writer = open_writer(output, comment=words, interfaces=[(interface, ETHERNET)])
        with Interrupt() as interrupt, status() as show:
            frames = LiveFrames(link, interrupt, count=count, seconds=seconds, idle=flush)

            def seen() -> Iterator[Record]:
                told_at = 0
                for record in frames:
                    if writer is not None:
                        writer.write(record.time_ns, record.data)
                    if stream is not None:
                        show_findings(stream.take(record))
                    if not ladder and frames.now - told_at > SECOND // 5:
                        told_at = frames.now
                        show(f"{frames.frames:,} frames, {frames.bytes:,} bytes")
                    yield record

            if ladder:
                _draw(seen(), frames, decoding._replace(keys=read_keys(keys_file)), as_json, every)
            else:
                for _ in seen():
                    pass
            took = frames.now
            dropped = link.count_dropped()
    finally:
        link.close()
        if writer is not None:
            writer.close()
    withdrawn: list[Finding] = []
    missing = None if not dropped else f"the kernel dropped {dropped:,} frames"
    outcome = None
    if stream is not None:
        report, late, withdrawn = stream.end(output or "", interface, missing)
        show_findings(late)
        report.partial = bool(interrupt) or frames.error is not None
        outcome = AuditOutcome(report, Severity(fail_on))
        outcome.findings = report.findings
    told: dict[str, Any] = {
        "kind": "summary", "interface": interface, "frames": frames.frames, "bytes": frames.bytes, "time_ps": took,
        "dropped": dropped, "tagged": link.tagged, "completed": link.completed, "split": link.split,
        "joined": link.joined, "truncated": link.truncated, "capture": output,
    }  # fmt: skip
    if as_json:
        if outcome is not None:
            gone = [{"rule": one.rule.id, "packets": list(one.packets)} for one in withdrawn]
            told = audit_summary(outcome) | told | {"withdrawn": gone}
        tell([json.dumps(told)])
    else:
        tell(_summary(told), aside)
        if outcome is not None:
            tell([f"  withdrawn: {one.rule.id} {numbered(one.packet)}" for one in withdrawn], aside)
            tell(audit_text.verdict(outcome, None, paint), aside)
    if frames.error is not None:
        raise frames.error
    if interrupt:
        raise click.exceptions.Exit(interrupt.status)
    if outcome is not None and outcome.failed:
        raise click.exceptions.Exit(FAULT)


class _Seen:
    """This class is a source of records that others have seen before (`cli.ladder.rows.RecordSource`)."""

    def __init__(self, records: Iterator[Record], interfaces: list[CaptureInterface]) -> None:
        self._records, self.interfaces = records, interfaces

    def __iter__(self) -> Iterator[Record]:
        return self._records


def _draw(records: Iterator[Record], frames: LiveFrames, decoding: Decoding, as_json_: bool, every: bool) -> None:
    """Draw the packets in records as a message sequence chart."""
    source = _Seen(records, frames.interfaces)
    drawn = rows(arrows("-", source, decoding, LadderChoice(), LadderTally()), not every)
    lines = (as_json(row) for row in drawn) if as_json_ else Chart(width(), painter(), numbered=True).lines(drawn, 0)
    for line in lines:
        sys.stdout.write(line + "\n")


def _line(finding: Finding, paint: Callable[[str, str], str]) -> str:
    """Return a finding in one line."""
    head = paint(f"{finding.severity.value} {finding.rule.id}", audit_text.STYLES[finding.severity])
    flow = audit_text.flow_words(dict(finding.flow))
    body = f"{numbered(finding.packet)}, {flow}: expected {finding.expected}; seen {finding.seen}"
    return f"{head}  {printable(body)} {paint(f'[{finding.rule.cite}]', 'dim')}"


def _summary(told: dict[str, Any]) -> list[str]:
    size, where, took = many(told["bytes"], "byte"), printable(told["interface"]), duration(told["time_ps"])
    lines = [f"{many(told['frames'], 'frame')}, {size}, {where}, {took}"]
    for name, words in (
        ("dropped", "frames were dropped by the kernel, which had no room: --buffer"),
        ("tagged", "VLAN tags, which the kernel took off, were put back"),
        ("completed", "checksums that were left to a network card were filled in"),
        ("split", "packets were split from superframes of UDP"),
        ("joined", "superframes of other protocols are whole"),
        ("truncated", "frames were longer than 512 KiB, and are missing"),
    ):
        if told[name]:
            lines.append(f"  {told[name]:,} {words}")
    if told["capture"] is not None:
        lines.append(f"  capture {printable(told['capture'])}")
    return lines
