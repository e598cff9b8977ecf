# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto export`: captures as tables, for DuckDB, Polars, pandas and spreadsheets."""

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from time import monotonic

import click

from uetproto import LocalError
from uetproto.analysis.capture import Capture, open_captures
from uetproto.analysis.decoding import Decoding
from uetproto.analysis.sources import SourceDamage
from uetproto.cli.captures import (
    check_files,
    decoding_options,
    filter_option,
    keys_option,
    progress_words,
    readable_again,
)
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_output
from uetproto.cli.terminal import printable, status, tell
from uetproto.filters.display_filter import DisplayFilter
from uetproto.tables.files import export, format_of
from uetproto.tables.masks import OF_PLACE, is_streamed
from uetproto.tables.names import ANALYSIS, COMMON, chosen
from uetproto.tables.parallel import ExportTask, export_in_parallel
from uetproto.tables.pieces import needs_packets
from uetproto.wire.words.text import count


@click.command(
    short_help="Write captures as tables: Parquet, CSV, Arrow.",
    epilog=f"""\b
Example:
  uetproto export capture.pcapng -o capture.parquet
  uetproto export *.pcapng -o tables
  uetproto export capture.pcapng -o psn.csv --fields time,src,dst,uetp.psn,uetp.acked_in --filter uetp.psn
  uetproto export capture.pcapng -o all.arrow --analysis

A row of the joined table is a packet. Columns without --fields: {", ".join(COMMON)}. With --analysis also:
{", ".join(ANALYSIS)}. Every name that filters know is a column (docs/howto/tables.md).

{EXIT_STATUS}
Damage is a fault.""",
)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.option(
    "-o", "--output", required=True, metavar="FILE|DIR",
    help="A name in .parquet, .csv or .arrow: the joined table; a folder: packets.* and a file for each form.",
)  # fmt: skip
@click.option("--parquet", "kind", flag_value="parquet", help="Parquet files in a folder; the default.")
@click.option("--csv", "kind", flag_value="csv", help="CSV files in a folder.")
@click.option("--arrow", "kind", flag_value="arrow", help="Arrow files in a folder.")
@click.option("--fields", metavar="NAME,…", help="Columns of the joined table.")
@click.option("--analysis", is_flag=True, help="Also what the packets around each packet say, such as its PDC; slower.")
@click.option(
    "--jobs", type=click.IntRange(1, 256), default=1, show_default=True, metavar="N",
    help="Captures that are read at a time, each in a process.",
)  # fmt: skip
@filter_option("Write only packets")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the rows of each file.")
@decoding_options
@keys_option()
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    output: str,
    kind: str | None,
    fields: str | None,
    analysis: bool,
    jobs: int,
    wanted: DisplayFilter | None,
    as_json: bool,
    decoding: Decoding,
    keys_file: str | None,
) -> None:
    """Write captures as tables: a row for each packet, and in a folder a table for each form of header.

    Addresses, protocols and codes are text, times are UTC, and what a packet does not have is null. Tables are written
    in pieces, in constant memory. FILE is a pcap or pcapng, also compressed; - alone is standard input.
    """
    check_files(files)
    format, folder = format_of(output, kind)
    others = [*(("FILE", file) for file in files), ("--keys", keys_file)]
    if not folder:
        check_output("-o", output, others)
    elif any(os.path.dirname(os.path.abspath(file)) == os.path.abspath(output) for file in files):
        raise LocalError(f"-o {output}", "is the folder of an input", "another folder", id="would-overwrite")
    names = None if fields is None else [name.strip() for name in fields.split(",") if name.strip()]
    parallel = jobs > 1 and len(files) > 1
    if parallel and wanted is not None and (wanted.analysed or not wanted.names.isdisjoint(OF_PLACE)):
        raise LocalError(
            f"--jobs {jobs}", "cannot filter by what packets of several captures say", "--jobs 1",
            id="conflicting-arguments"
        )  # fmt: skip
    once = not needs_packets(chosen(names, analysis, len(files) > 1), keys_file is not None)
    once = once and (wanted is None or is_streamed(wanted))
    table = captures(ctx, files, decoding, keys_file, None if parallel else wanted, once).table(names, analysis)
    damaged = table.damage
    with status() as show:
        began = monotonic()

        def progress(packets: int) -> None:
            show(progress_words(packets, table.share, monotonic() - began))

        def progress_of_several(packets: int, share: float) -> None:
            show(progress_words(packets, share, monotonic() - began))

        if parallel:
            settings = decoding.transports | {"keys": keys_file}
            text = None if wanted is None else wanted.text
            tasks = [ExportTask(file, settings, text, [one.name for one in table.columns]) for file in files]
            counts, damaged = export_in_parallel(tasks, jobs, output, format, folder, progress_of_several)
        else:
            counts = export(table, output, format, folder, progress)
    if as_json:
        click.echo(json.dumps({"files": counts, "columns": [one.name for one in table.columns]}))
    else:
        tell(f"{printable(path)}: {count(rows, 'row')}" for path, rows in counts.items())
    if tell_damage(damaged):
        ctx.exit(FAULT)


def tell_damage(damaged: Sequence[SourceDamage]) -> bool:
    """Print on standard error where captures cannot be read. Return True if there is such a place."""
    for damage in damaged:
        click.echo(f"uetproto: {printable(str(damage))}", err=True)
    return bool(damaged)


def captures(
    ctx: click.Context, files: tuple[str, ...], decoding: Decoding, keys_file: str | None,
    wanted: DisplayFilter | None = None, once: bool = False,
) -> Capture:  # fmt: skip
    """Open the captures of a command that makes tables, a pipe as a temporary copy unless it is read `once`. Raises
    `LocalError` for a pipe among several captures, because the tables have a column with their names."""
    if len(files) > 1 and not all(map(os.path.isfile, files)):
        raise LocalError("FILE", "a pipe or folder among several captures", "files, or one pipe alone", id="read-twice")
    owned = ctx.with_resource(ExitStack())
    first = files[0] if once else readable_again(files[0], owned, "queries, filters and analysis")
    found = open_captures(first, *files[1:], keys=keys_file, **decoding.transports)
    return found if wanted is None else found.filter(wanted.text)
