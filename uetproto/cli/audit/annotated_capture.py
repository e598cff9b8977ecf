# SPDX-License-Identifier: GPL-2.0-only
"""This module writes the capture of `uetproto audit -o`, with a comment at each packet that a finding is about."""

import os
from collections.abc import Iterable, Sequence

from uetproto import LocalError
from uetproto.audit.finding import Finding
from uetproto.audit.parquet import FINDINGS, PACKETS
from uetproto.cli.outputs import Named, check_output
from uetproto.cli.rewrite import Rewritten, rewrite
from uetproto.wire.capture.pcap import Record, open_capture
from uetproto.wire.words.text import numbered

_ABOUT = "findings of uetproto audit as comments"


def check_marked(output: str, files: Sequence[str]) -> None:
    """Check, before anything is read, that `output` can be an annotated copy of the one capture in `files`. Raises
    `LocalError` if it cannot."""
    if output != "-" and not output.lower().removesuffix(".gz").endswith(".pcapng"):
        raise LocalError(f"-o {output}", 'comments need a name in .pcapng or .pcapng.gz, or "-"', id="wrong-suffix")
    if len(files) > 1:
        raise LocalError(f"-o {output}", f"marks one capture, not {len(files)}", "one FILE", id="single-run")
    if files[0] == "-" or (os.path.exists(files[0]) and not os.path.isfile(files[0])):
        raise LocalError(
            f"-o {output}", "the capture is read twice, standard input only once", "the name of a file",
            id="stdin-twice"
        )  # fmt: skip


def check_tables(folder: str, others: Sequence[Named]) -> list[Named]:
    """Check that the files of `--parquet` can be written to the directory `folder`, and differ from the files of
    `others`. Return a pair of option and path for the directory, and one for each file. Raises `LocalError` if a file
    cannot be written."""
    if not folder:
        raise LocalError("--parquet", "is no name", "a directory", id="missing-argument")
    found: list[tuple[str, str]] = [("--parquet", os.path.join(folder, name)) for name in (PACKETS, FINDINGS)]
    if os.path.isdir(folder):
        for option, table in found:
            check_output(option, table, others)
    return [("--parquet", folder), *found]


def write_marked(file: str, output: str, findings: Iterable[Finding]) -> int:
    """Write the annotated capture, and return the number of packets that got a comment (`frame.comment` in
    Wireshark)."""
    said: dict[int, list[str]] = {}
    for finding in findings:
        for place in finding.everywhere:
            if place.file == file:
                said.setdefault(place.packets[-1], []).append(_comment(finding, place.packets[:-1]))

    def marked(record: Record) -> Rewritten:
        return Rewritten(record.data, record.length, "; ".join(said.get(record.index, ())))

    with open_capture(file) as reader:
        rewrite(reader, output, _ABOUT, marked)
    return len(said)


def _comment(finding: Finding, others: Sequence[int]) -> str:
    text = f"{finding.severity.value} {finding.rule.id}: {finding.text} [{finding.rule.cite}]"
    if not others:
        return text
    return f"{text} See {', '.join(map(numbered, others))}"
