# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto query`: SQL over captures and tables."""

import json
import os
import warnings
from datetime import datetime
from typing import Any

import click

from uetproto import LocalError
from uetproto.analysis.capture import CaptureWarning
from uetproto.analysis.decoding import Decoding
from uetproto.cli.captures import check_files, decoding_options, filter_option, keys_option
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.tables.export import captures, tell_damage
from uetproto.cli.terminal import printable, tell
from uetproto.filters.display_filter import DisplayFilter
from uetproto.tables.sql import SqlSource


@click.command(
    short_help="Ask captures and tables in SQL.",
    epilog=f"""\b
Example:
  uetproto query capture.pcapng 'SELECT protocol, count(*) AS n, sum(length) AS bytes FROM packets GROUP BY ALL'
  uetproto query capture.pcapng 'SELECT "uetp.opcode", count(*) FROM packets GROUP BY 1 ORDER BY 2 DESC'
  uetproto query capture.pcapng 'SELECT src, dst, latency_ns FROM messages ORDER BY latency_ns DESC LIMIT 5'
  uetproto query packets.parquet 'SELECT count(*) FROM packets WHERE "uetp.retx"'
  uetproto query tables 'SELECT max(cack_psn) FROM "pds.ack"' --json

Views of a capture: packets, as the table of uetproto export, with names such as "uetp.psn" in quotes; pdcs, messages,
as of stats --json; findings, as of audit --json. Views of a folder: its Parquet files by their names. View of a table
(.parquet, .arrow, .csv): packets.

{EXIT_STATUS}""",
)
@click.argument("source", metavar="FILE|DIR")
@click.argument("sql", metavar="SQL")
@click.option("--analysis", is_flag=True, help="Packets also have what the packets around each packet say; slower.")
@filter_option("Ask only packets")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a row.")
@decoding_options
@keys_option()
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    sql: str,
    analysis: bool,
    wanted: DisplayFilter | None,
    as_json: bool,
    decoding: Decoding,
    keys_file: str | None,
) -> None:
    """Answer SQL over a capture, or over a table or a folder of tables of `uetproto export`. It needs DuckDB."""
    check_files([source])
    answers, opened = SqlSource(), None
    of_tables = os.path.isdir(source) or source.endswith(TABLES)
    if of_tables and (wanted is not None or keys_file is not None or analysis):
        raise LocalError("--filter, --keys, --analysis", "with tables", "with a capture", id="no-effect")
    if os.path.isdir(source):
        answers.add_folder(source)
    elif source.endswith(TABLES):
        answers.add_table(source)
    else:
        opened = captures(ctx, (source,), decoding, keys_file, wanted)
        answers.add_capture(opened, analysis)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CaptureWarning)  # damage is told below
            names, rows = answers.ask(sql)
    finally:
        answers.close()
    if as_json:
        for row in rows:
            click.echo(json.dumps(dict(zip(names, row, strict=True)), default=_plain))
    else:
        lines = [names, *([_text(cell) for cell in row] for row in rows)]
        wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
        tell("  ".join(cell.ljust(size) for cell, size in zip(line, wide, strict=True)).rstrip() for line in lines)
    if opened is not None and tell_damage(opened.damage):
        ctx.exit(FAULT)


TABLES = (".parquet", ".arrow", ".csv")
"""Endings of the names of tables."""


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value.hex() if isinstance(value, bytes) else str(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return printable(value.hex() if isinstance(value, bytes) else str(value))
