# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto open`: it writes a copy of a capture with its sealed packets opened, for tools
that have no keys."""

import json
from collections.abc import Iterator
from typing import Any

import click

from uetproto import LocalError
from uetproto.analysis.decoding import Decoding
from uetproto.analysis.opened import Keys, sdi_name
from uetproto.cli.captures import encapsulation_options, keys_option, report_damage
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_output
from uetproto.cli.rewrite import Rewritten, rewrite
from uetproto.cli.terminal import Paint, painter, printable, tell
from uetproto.engine.tss.cipher import Refused
from uetproto.wire.capture.pcap import Record, open_capture
from uetproto.wire.words.summary import count

_ABOUT = "sealed packets opened by uetproto open"


@click.command(
    short_help="Write sealed packets opened with their keys, for Wireshark.",
    epilog=f"""\b
Example:
  uetproto open sealed.pcap --keys keys.toml -o plain.pcapng
  uetproto open sealed.pcapng.gz --keys keys.toml -o - | tshark -r -

\b
A file of keys, one [[sdi]] for each secure domain:
  [[sdi]]
  id = 1
  mode = "cluster"         # or direct, client-server
  keys = [{{an = 0, key = "07e9…"}}, {{an = 1, key = "d4c3…"}}]    # 64 hexadecimal digits each
and where it is needed:
  rekey_mask = 0xFF00      # bits of the counter that choose the derived key
  rekey_shift = 8
  crypto_offset = "header" # or the number of bytes after the header that are in the clear
  ipv6_ssi_context = "large"    # or small
  servers = ["10.1.0.1"]   # mode client-server
Several keys for one AN are tried in turn; epoch = N restricts a key to that epoch.

{EXIT_STATUS}
Damage and sealed packets that do not open are faults.""",
)
@click.argument("file", metavar="FILE")
@keys_option(required=True)
@click.option(
    "-o", "--output", required=True, metavar="PLAIN.pcapng",
    help="Capture to write: .pcapng, also .gz; - is standard output.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
@encapsulation_options
@click.pass_context
def command(ctx: click.Context, file: str, keys_file: str, output: str, as_json: bool, decoding: Decoding) -> None:
    """Write a capture with its sealed packets opened: without security header and ICV, with correct lengths and CRC.

    A comment at each opened packet has SDI, AN, epoch and TSC. Packets that do not open stay sealed, with the reason as
    comment; plain packets do not change. FILE is a pcap or pcapng, also compressed; - is standard input. The
    summary shows for each SDI how many packets opened.
    """
    if output == "-" and as_json:
        raise LocalError("-o - and --json both want standard output", id="stdout-taken")
    if output != "-" and not output.lower().removesuffix(".gz").endswith(".pcapng"):
        raise LocalError(f"-o {output}", 'comments need a name in .pcapng or .pcapng.gz, or "-"', id="wrong-suffix")
    check_output("-o", output, (("FILE", file), ("--keys", keys_file)))
    keys = Keys(keys_file)
    with open_capture(file) as reader:
        packets = rewrite(reader, output, _ABOUT, lambda record: _opened(record, decoding, keys))
        damaged = report_damage(file, reader)
    if as_json:
        click.echo(json.dumps(_as_dict(file, output, packets, keys)))
    else:
        tell(_summary(file, output, packets, keys, painter()), aside=output == "-")
    if damaged or keys.total.closed:
        ctx.exit(FAULT)


def _opened(record: Record, decoding: Decoding, keys: Keys) -> Rewritten:
    """Return the frame to write, its length on the wire, and a comment if the frame was sealed."""
    packet = decoding.packet(record)
    if "sealed" not in packet.notes:
        return Rewritten(record.data, record.length)
    tried = keys.open(record.data, packet)
    if isinstance(tried, Refused):
        return Rewritten(record.data, record.length, f"sealed: {tried.reason}")
    ssi = "" if tried.ssi is None else f" SSI {tried.ssi}"
    said = f"opened: SDI {tried.sdi}{ssi} AN {tried.an} epoch {tried.epoch} TSC {tried.tsc}"
    return Rewritten(tried.plain_frame, len(tried.plain_frame), said)


# The summary ----------------------------------------------------------------------------------------------------------


def _as_dict(file: str, output: str, packets: int, keys: Keys) -> dict[str, Any]:
    return {
        "file": file,
        "packets": packets,
        "sealed": keys.total.sealed,
        "opened": keys.total.opened,
        "sdis": [
            {"sdi": sdi, "sealed": tally.sealed, "opened": tally.opened, "reasons": tally.reasons}
            for sdi, tally in keys.tallies
        ],
        "capture": output,
    }


def _summary(file: str, output: str, packets: int, keys: Keys, paint: Paint) -> Iterator[str]:
    sealed = f"{keys.total.sealed:,} sealed, {keys.total.opened:,} opened"
    yield f"{paint(printable(file), 'bold')}: {count(packets, 'packet')}, {sealed}"
    for sdi, tally in keys.tallies:
        text = f"  {sdi_name(sdi)}: {tally.opened:,} of {tally.sealed:,} opened"
        yield paint(f"{text}; {tally.closed:,} did not, {tally.why}", "alarm") if tally.closed else paint(text, "green")
    yield f"  capture {printable(output)}"
