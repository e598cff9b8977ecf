# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto report`: it writes a page of a capture."""

import os
import warnings
from contextlib import ExitStack

import click

from uetproto import LocalError
from uetproto.analysis.capture import CaptureWarning, open_captures
from uetproto.analysis.decoding import Decoding
from uetproto.cli.captures import (
    check_files,
    check_offsets,
    decoding_options,
    filter_option,
    keys_option,
    offsets_option,
    read_key_ring,
    readable_again,
)
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_output
from uetproto.cli.terminal import printable, status
from uetproto.filters.display_filter import DisplayFilter
from uetproto.report.data import ROWS
from uetproto.report.page import NOTHING


@click.command(
    short_help="Write a page of a capture: ladder, plots, findings.",
    epilog=f"""\b
Example:
  uetproto report capture.pcapng -o report.html
  uetproto run gradient-lossy --tap all -o - | uetproto report - -o lossy.html --complete
  uetproto report sender.pcapng receiver.pcapng --offsets 0,-1500 -o path.html

{EXIT_STATUS}
Faults are damage; findings of the audit are none.""",
)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.option("-o", "output", metavar="FILE", required=True, help="Write this HTML file, which needs nothing else.")
@click.option(
    "--rows", type=click.IntRange(1), default=ROWS, show_default=True, metavar="N",
    help="Rows of the ladder; findings and measurements are those of the whole capture.",
)  # fmt: skip
@offsets_option
@click.option("--complete", is_flag=True, help="Tell the audit that the capture has every packet.")
@filter_option("Show and judge only packets")
@decoding_options
@keys_option()
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    output: str,
    rows: int,
    offsets: list[int] | None,
    complete: bool,
    wanted: DisplayFilter | None,
    decoding: Decoding,
    keys_file: str | None,
) -> None:
    """Write a page with the ladder of a capture, PSNs over time, bytes in flight, findings and measurements, to read in
    a browser and to send to a colleague.

    What several interfaces or several files saw of a packet is one row. The page finds and filters, shows fields and
    bytes of each packet, and needs no other file and no network.
    """
    if output == "-":
        raise LocalError(
            "-o -", "a page is not written to standard output", "the name of a file", id="stdout-not-possible"
        )
    check_files(files)
    check_offsets(offsets, files)
    check_output("-o", output, [*(("FILE", file) for file in files), ("--keys", keys_file)])
    with ExitStack() as owned, warnings.catch_warnings(), status() as show:
        warnings.simplefilter("ignore", CaptureWarning)  # damage is told below
        show("reading")
        sources = [readable_again(file, owned) for file in files]
        capture = open_captures(
            sources[0], *sources[1:], keys=read_key_ring(keys_file), sharp=True, offsets_ns=offsets,
            **decoding.transports,
        )  # fmt: skip
        if wanted is not None:
            capture = capture.filter(wanted.text)
        capture.report(output, rows=rows, complete=complete)
        length = sum(1 for _ in capture)
    if not capture.stats().packets:
        click.echo(f"uetproto: {NOTHING}", err=True)
    for damage in capture.damage:
        click.echo(f"uetproto: {printable(str(damage))}", err=True)
    click.echo(f"{length:,} packet{'s' * (length != 1)}, {os.path.getsize(output):,} bytes: {printable(output)}")
    if capture.damage:
        ctx.exit(FAULT)
