# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto audit`. The command judges captures, and prints findings and the rules that
were judged.
"""

from collections.abc import Container, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace

import click

from uetproto import LocalError
from uetproto.analysis.decoding import Decoding, read_keys
from uetproto.analysis.sources import CaptureSource
from uetproto.audit.auditor import audit
from uetproto.audit.baseline import Baseline
from uetproto.audit.outcome import AuditOutcome, json_lines, shown_by
from uetproto.audit.pds.tracker_window import check_given
from uetproto.audit.personality import PERSONALITIES, excused_by
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Severity
from uetproto.audit.rules import BY_ID, chosen_rules
from uetproto.cli.audit import text as audit_text
from uetproto.cli.audit.annotated_capture import check_marked, check_tables, write_marked
from uetproto.cli.audit.junit import junit
from uetproto.cli.audit.side_outputs import SideOutputs
from uetproto.cli.captures import (
    LATER,
    ReadingLine,
    check_files,
    chosen_packets,
    decoding_options,
    filter_option,
    filtered_once,
    is_pipe,
    keys_option,
    read_key_ring,
    readable_again,
)
from uetproto.cli.choice import Choice
from uetproto.cli.interrupt import Interrupt
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import Named, check_outputs
from uetproto.cli.terminal import console, painter, printable, status, tell, width, write_text
from uetproto.errors import identified
from uetproto.filters.display_filter import DisplayFilter
from uetproto.wire.capture.base import CaptureReader
from uetproto.wire.words.summary import count

_LISTED = 8  # number of names in a message


def _rules(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """Return the rules whose names begin with `begun`, for completion in the shell."""
    return [name for name in BY_ID if name.startswith(begun.upper())]


def _personalities(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    return [name for name in PERSONALITIES if name.startswith(begun)]


@click.command(
    short_help="Judge captures against the protocol, rule by rule.",
    epilog=f"""\b
Example:
  uetproto audit capture.pcapng
  uetproto audit a.pcapng b.pcapng --rules 'PDS-*,-PDS-CLEAR-*' --fail-on warning
  uetproto audit capture.pcapng -o marked.pcapng && wireshark marked.pcapng
  uetproto audit --json capture.pcapng > known.jsonl
  uetproto audit capture.pcapng --baseline known.jsonl --junit audit.xml
  uetproto audit --explain PDS-PSN-TWO-CONTENTS

Each interface of each file is a vantage point of its own. A finding that several show is printed once, with all of
them. #1 is the first packet of a file, as in Wireshark; "packets" of --json counts from 0.

A rule is judged where the capture allows it. Packets that contradict each other are wrong whatever is missing.
--complete promises that no packet is missing, --ordered that the order of capture is that of sending, which packets and
ACKs on several paths do not keep. The table at the end shows how often each rule was judged, and why it was not.

A baseline hides findings that it knows: lines of --json, compared in rule, flow, expected and seen. A line with fewer
fields hides more findings: {{"rule": "PDS-ACK-RETX"}}.

Personalities: {", ".join(PERSONALITIES)}.

{EXIT_STATUS}
Faults are findings from --fail-on up, and --keys that open none of the sealed packets.""",
)
@click.argument("files", metavar="FILE…", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line and finding, then a summary.")
@click.option(
    "--fail-on", "fail_on", type=Choice([severity.value for severity in Severity]), default="error",
    show_default=True, help="The least severe finding that makes the exit status 1.",
)  # fmt: skip
@click.option(
    "--rules", "globs", multiple=True, metavar="GLOB,-GLOB", shell_complete=_rules,
    help="Judge only these rules; with - all but these. May be repeated.",
)  # fmt: skip
@click.option("--list-rules", is_flag=True, help="Show the rules (of --rules) and exit.")
@click.option("--explain", metavar="RULE", shell_complete=_rules, help="Explain a rule and exit.")
@click.option(
    "--personality", metavar="NAME", shell_complete=_personalities,
    help="Report known departures of an implementation as notes.",
)  # fmt: skip
@click.option("--baseline", metavar="FILE", help="Hide known findings, and count them.")
@click.option("--complete", is_flag=True, help="The captures contain every packet.")
@click.option("--ordered", is_flag=True, help="The order of capture is the order of sending.")
@click.option(
    "--cc", metavar="KEY=VALUE,…",
    help="Parameters of senders with NSCC at which the captures were taken, to recompute their windows: rate and"
    " base_rtt, also max_wnd, mtu and others; default: what a capture states, else inferred.",
)  # fmt: skip
@click.option("--mirror", is_flag=True, help="Count a packet that a mirror port captured twice once.")
@click.option(
    "--max-flows", type=click.IntRange(1), default=Options().max_flows, show_default=True, metavar="N",
    help="Conversations of a kind that are followed at a time, over all interfaces of a file.",
)  # fmt: skip
@click.option("-o", "--output", metavar="MARKED.pcapng", help="Write the capture with comments at offending packets.")
@click.option("--plot", metavar="FILE", help="Draw PSNs over time and latencies of a PDC, as .png or .svg.")
@click.option(
    "--pdc", "number", type=click.IntRange(0, 0xFFFFFF), metavar="ID",
    help="The PDCID or queue pair that --plot draws; default: the one with most packets.",
)  # fmt: skip
@click.option("--parquet", metavar="DIR", help="Write packets.parquet and findings.parquet, for DuckDB or Polars.")
@click.option(
    "--junit", "junit_file", metavar="FILE", help="Write JUnit XML, a test case a rule; - is standard output."
)
@filter_option("Judge all packets, and tell only findings that packets show")
@decoding_options
@keys_option()
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    as_json: bool,
    fail_on: str,
    globs: tuple[str, ...],
    list_rules: bool,
    explain: str | None,
    personality: str | None,
    baseline: str | None,
    complete: bool,
    ordered: bool,
    cc: str | None,
    mirror: bool,
    max_flows: int,
    output: str | None,
    plot: str | None,
    number: int | None,
    parquet: str | None,
    junit_file: str | None,
    wanted: DisplayFilter | None,
    decoding: Decoding,
    keys_file: str | None,
) -> None:
    """Judge captures of any implementation: follow each PDC, message and queue pair, and print what departs from the
    protocol, with packet numbers, what was expected, and the source of the rule.

    FILE is a pcap or pcapng, also compressed; - is standard input.
    """
    rules = tuple(glob.strip() for text in globs for glob in text.split(",") if glob.strip())
    if globs and not rules:
        raise LocalError("--rules", "names no rule", "rules and patterns, with commas between them", id="unknown-rule")
    excused = excused_by(personality)
    if explain is not None:
        from uetproto.cli.audit.rules import explained, named

        tell(explained(named(explain), width(), painter()))
        return
    if list_rules:
        _list(rules, excused, as_json)
        return
    if not files:
        raise identified(click.UsageError("Missing argument 'FILE…'."), "missing-argument")
    outputs = {"-o": output, "--junit": junit_file, "--plot": plot}
    _check(files, outputs, parquet, [("--baseline", baseline), ("--keys", keys_file)], as_json)
    if number is not None and plot is None:
        raise LocalError(f"--pdc {number}", "says what --plot draws", "with --plot FILE", id="no-effect")
    check_given(cc, complete)
    known = None if baseline is None else _known(baseline)
    options = Options(
        complete=complete, ordered=ordered, cc=cc, mirror=mirror, rules=rules, keys=read_key_ring(keys_file),
        personality=personality, max_flows=max_flows, **decoding.transports,
    )  # fmt: skip
    side_outputs = SideOutputs(options, plot=plot, number=number, parquet=parquet)
    owned = ctx.with_resource(ExitStack())
    judging = decoding._replace(keys=read_keys(keys_file))
    chosen = {file: bytearray() for file in files if wanted is not None and is_pipe(file) and not wanted.late}
    again = {
        file: CaptureSource(file if wanted is None else readable_again(file, owned, LATER))
        for file in files if file not in chosen
    }  # fmt: skip

    def opener(file: str) -> CaptureReader:
        if wanted is not None and file in chosen:
            return filtered_once(wanted, file, judging.anew(), chosen[file])
        return again[file].open()

    with status() as show, side_outputs, Interrupt() as interrupt:
        line = ReadingLine(show, opener)
        report = audit(files, options, line, side_outputs.listen, interrupt, line.open)
    reading = decoding.arguments if keys_file is None else [*decoding.arguments, "--keys", keys_file]
    outcome = AuditOutcome(report, Severity(fail_on), options=reading)
    if wanted is not None:
        chosen |= {file: chosen_packets(wanted, source, judging.anew()) for file, source in again.items()}
        every = report.findings
        report.findings = shown_by(every, chosen)
        outcome.unwanted = len(every) - len(report.findings)
    outcome.findings, outcome.hidden = (report.findings, []) if known is None else known.split(report.findings)
    aside = "-" in (output, junit_file)
    if as_json:
        tell(json_lines(outcome))
    else:
        _text(outcome, files, baseline, aside)
        if outcome.unwanted:
            tell([f"  not told: {count(outcome.unwanted, 'finding')} that no packet of --filter shows"], aside)
    if junit_file is not None:
        write_text(junit_file, junit(outcome))
    if output is not None:
        marked = write_marked(files[0], output, outcome.findings)
        if not as_json:
            click.echo(f"  {count(marked, 'packet')} marked in {printable(output)}", err=aside)
    for name in side_outputs.write(outcome.findings):
        if not as_json:
            click.echo(f"  written: {printable(name)}", err=aside)
    if report.partial:
        click.echo(f"uetproto: partial: interrupted after {count(report.packets, 'packet')}", err=True)
        ctx.exit(interrupt.status)
    if outcome.failed:
        ctx.exit(FAULT)


def _check(
    files: tuple[str, ...], outputs: Mapping[str, str | None], parquet: str | None,
    inputs: Iterable[Named], as_json: bool,
) -> None:  # fmt: skip
    """Check, before anything is read, that all outputs can be written. Raises `LocalError` if not."""
    output = outputs["-o"]
    wants = [f"{name} -" for name in ("-o", "--junit") if outputs[name] == "-"] + ["--json"] * as_json
    if len(wants) > 1:
        raise LocalError(f"{' and '.join(wants)} want standard output", id="stdout-taken")
    check_files(files)
    if output is not None:
        check_marked(output, files)
    others = [*(("FILE", file) for file in files), *inputs]
    if parquet is not None:
        others += check_tables(parquet, others)
    check_outputs(outputs.items(), others)


def _known(file: str) -> Baseline:
    """Read a baseline, and print a warning for rules in it that do not exist."""
    known = Baseline.read(file)
    strange = [name for name in known.rules if name not in BY_ID]
    if strange:
        rest = f" and {len(strange) - _LISTED} more" if len(strange) > _LISTED else ""
        named = ", ".join(strange[:_LISTED])
        click.echo(f"uetproto: {printable(file)}: hides nothing of {printable(named)}{rest}: no such rule", err=True)
    return known


def _list(rules: tuple[str, ...], excused: Container[str], as_json: bool) -> None:
    """Print the rules. `excused`: rules whose findings are notes."""
    from uetproto.cli.audit.rules import json_rules, listed

    chosen = [replace(rule, severity=Severity.NOTE) if rule.id in excused else rule for rule in chosen_rules(rules)]
    if as_json:
        tell(json_rules(chosen))
    else:
        console().print(listed(chosen))


def _text(outcome: AuditOutcome, files: tuple[str, ...], baseline: str | None, aside: bool) -> None:
    """Print the outcome as text; with `aside` on standard error, as standard output has another use."""
    paint = painter()
    out = console(aside)
    tell((audit_text.head(files, paint), "", *audit_text.findings(outcome, paint)), aside)
    out.print(audit_text.coverage(outcome))
    out.print()
    tell(audit_text.verdict(outcome, baseline, paint), aside)
