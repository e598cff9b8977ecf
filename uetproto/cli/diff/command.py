# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto diff`: it compares two captures, packet by packet and field by field."""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from time import monotonic

import click

from uetproto.analysis.capture import Capture, CaptureWarning, open_captures
from uetproto.analysis.decoding import Decoding
from uetproto.analysis.packet_view import PacketView
from uetproto.cli.captures import (
    check_files,
    decoding_options,
    filter_option,
    keys_option,
    progress_words,
    read_key_ring,
    readable_again,
)
from uetproto.cli.diff.junit import junit
from uetproto.cli.diff.text import diff_lines
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.outputs import check_output
from uetproto.cli.terminal import painter, printable, status, width, write_text
from uetproto.diff import diff
from uetproto.diff.normal import addresses_of
from uetproto.errors import identified
from uetproto.filters.display_filter import DisplayFilter
from uetproto.wire.words.summary import count

SHOWN = 100


def _hosts(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Parse pairs of addresses, separated by commas."""
    found = {}
    for pair in ",".join(values).split(",") if values else ():
        mine, equals, other = pair.partition("=")
        if not equals:
            raise identified(
                click.BadParameter(f"{pair!r}; legal are pairs of IP addresses, such as 10.0.0.1=10.1.0.1"),
                "wrong-format",
            )
        found[mine] = other
    addresses_of(found)
    return found


@click.command(
    short_help="Compare two captures, packet by packet.",
    epilog=f"""\b
Example:
  uetproto diff before.pcapng after.pcapng
  uetproto diff golden.pcapng <(uetproto run gradient -o -) --golden
  uetproto diff old.pcapng new.pcapng --map 10.0.0.1=10.1.0.1,10.0.0.2=10.1.0.2 --ignore ethernet
  uetproto diff a.pcapng b.pcapng --ignore ethernet,ipv4.ttl --junit diff.xml

Packets belong together by their ends, PDC or queue pair, direction, PSN and content, wherever they stand. Not compared,
unless --strict asks for it: times, the order of different conversations and directions, UDP ports and entropy, PDCIDs,
queue pairs, PSNs as far as all of a direction are shifted by one number, TSC, service_time, the identification of IP
packets that are not fragments, and the values of checksums, CRC and ICV; whether these are right is compared.

{EXIT_STATUS}
Faults are differences and damage, with --keys also sealed packets that do not open.""",
)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--strict", is_flag=True, help="Compare all, also times, order, ports, PDCIDs, PSNs, checksums and CRCs.")
@click.option(
    "--ignore", metavar="NAME,…", multiple=True,
    help="Do not compare these fields (ipv4.ttl), forms (ethernet), payload, trailer, notes or error.",
)  # fmt: skip
@click.option(
    "--map", "hosts", metavar="A=B,…", multiple=True, callback=_hosts,
    help="An IP address of the first capture, and the one that stands for it in the second.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line: differences, then a summary.")
@click.option("--golden", is_flag=True, help="Print short lines that are the same on any machine, and no summary.")
@click.option("--junit", "junit_file", metavar="FILE", help="Write JUnit XML; - is standard output.")
@click.option(
    "--count", "shown", type=click.IntRange(0), default=SHOWN, show_default=True, metavar="N",
    help="Show so many differences to a person.",
)  # fmt: skip
@filter_option("Compare only packets")
@decoding_options
@keys_option()
@click.pass_context
def command(
    ctx: click.Context,
    first: str,
    second: str,
    strict: bool,
    ignore: tuple[str, ...],
    hosts: dict[str, str],
    as_json: bool,
    golden: bool,
    junit_file: str | None,
    shown: int,
    wanted: DisplayFilter | None,
    decoding: Decoding,
    keys_file: str | None,
) -> None:
    """Compare two captures: which packets are missing, extra, moved, and which fields of the others differ.

    The same traffic at another time, with other PDCIDs, queue pairs and PSNs, has no difference. A and B are captures;
    - is standard input, and pipes are copied to a temporary file.
    """
    if as_json and golden:
        raise identified(click.UsageError("--json and --golden exclude each other"), "conflicting-arguments")
    if junit_file == "-" and (as_json or golden):
        raise identified(click.UsageError("--junit - has standard output for itself"), "stdout-taken")
    check_files((first, second))
    check_output("--junit", junit_file, (("A", first), ("B", second), ("--keys", keys_file)))
    names = (os.path.basename(first), os.path.basename(second))
    with ExitStack() as owned, warnings.catch_warnings(), status() as show:
        warnings.simplefilter("ignore", CaptureWarning)  # damage is told below

        def captured(file: str) -> "_Watched":
            source = readable_again(file, owned)
            capture = open_captures(source, keys=read_key_ring(keys_file), sharp=True, **decoding.transports)
            if wanted is not None:
                capture = capture.filter(wanted.text)
            return _Watched(capture, os.path.basename(file), show)

        a, b = captured(first), captured(second)
        left_out = [name for one in ignore for name in one.split(",")]
        result = diff(a, b, strict=strict, ignore=left_out, addresses=hosts)
    damaged = False
    for file, side in ((first, a), (second, b)):
        for damage in side.capture.damage:
            damaged = True
            click.echo(f"uetproto: {printable(file)}: damaged at byte {damage.offset}: {damage.reason}", err=True)
    if junit_file is not None:
        write_text(junit_file, junit(result, names))
    if as_json:
        for one in result.differences:
            sys.stdout.write(json.dumps(one.as_dict()) + "\n")
        click.echo(json.dumps({"kind": "summary", "files": [first, second], **result.summary()}))
    elif golden:
        for line in result.lines():
            sys.stdout.write(printable(line) + "\n")
    elif junit_file != "-":
        for line in diff_lines(result, names, width(), painter(), shown):
            sys.stdout.write(line + "\n")
    closed = keys_file is not None and result.unopened > 0
    if closed:
        click.echo(f"uetproto: {count(result.unopened, 'sealed packet')}: no key of --keys opens them", err=True)
    if result.differs or damaged or closed:
        ctx.exit(FAULT)


class _Watched:
    """This class is a capture whose reading a line of progress shows."""

    def __init__(self, capture: Capture, name: str, show: Callable[[str], None]) -> None:
        self.capture, self._name, self._show = capture, printable(name), show

    def __iter__(self) -> Iterator[PacketView]:
        began = monotonic()
        for number, view in enumerate(self.capture):
            if number and not number % _SHOWN_EACH:
                words = progress_words(number, self.capture.share, monotonic() - began)
                self._show(f"{self._name}: {words}")
            yield view


_SHOWN_EACH = 5_000
"""Packets after which the line of progress changes."""
