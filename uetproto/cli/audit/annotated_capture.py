"""`uetproto audit -o`: the capture once more, with a comment at each packet that a finding is about."""

import os
from collections.abc import Iterable, Sequence

from uetproto import LocalError
from uetproto.audit.finding import Finding, as_frames
from uetproto.audit.parquet import FINDINGS, PACKETS
from uetproto.cli.rewrite import Rewritten, rewrite
from uetproto.wire.capture.pcap import Record, open_capture

_ABOUT = "findings of uetproto audit as comments"

Named = tuple[str, str | None]
"""What a file is called, and its name if there is one."""


def check_marked(output: str, files: Sequence[str]) -> None:
    """Raises `LocalError` for what cannot be written, before anything is read."""
    if output != "-" and not output.lower().removesuffix(".gz").endswith(".pcapng"):
        raise LocalError(f"-o {output}", 'comments need a name in .pcapng or .pcapng.gz, or "-"')
    if len(files) > 1:
        raise LocalError(f"-o {output}", f"marks one capture, not {len(files)}", "one FILE")
    if files[0] == "-" or (os.path.exists(files[0]) and not os.path.isfile(files[0])):
        raise LocalError(f"-o {output}", "the capture is read twice, standard input only once", "the name of a file")


def check_output(option: str, output: str | None, others: Iterable[Named]) -> None:
    """Raises `LocalError` where `output` is one of the other files, which come with what they are called, or no file.

    Before anything is read: nobody wants to wait for a long capture, and then to hear of it.
    """
    if output is None or output == "-":
        return
    if not output:
        raise LocalError(option, "is no name", "the name of a file")
    for name, given in others:
        if given and _are_one(output, given):
            raise LocalError(f"{option} {output}", f"would overwrite {name}")
    if os.path.isdir(output):
        raise LocalError(f"{option} {output}", "is a directory", "the name of a file in it")
    folder = os.path.dirname(output)
    if folder and not os.path.isdir(folder):
        raise LocalError(f"{option} {output}", f"there is no directory {folder}")
    if not os.access(output if os.path.exists(output) else folder or ".", os.W_OK):
        raise LocalError(f"{option} {output}", "may not be written", "the name of a file that may")


def check_tables(folder: str, others: Sequence[Named]) -> list[Named]:
    """Likewise for `--parquet`; the folder and what will be in it, as others that must not be overwritten."""
    if not folder:
        raise LocalError("--parquet", "is no name", "a directory")
    found: list[Named] = [("--parquet", os.path.join(folder, name)) for name in (PACKETS, FINDINGS)]
    if os.path.isdir(folder):
        for option, table in found:
            check_output(option, table, others)
    return [("--parquet", folder), *found]


def _are_one(one: str, other: str) -> bool:
    """Whether both names are of one file, or will be when it is there."""
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


def write_marked(file: str, output: str, findings: Iterable[Finding]) -> int:
    """How many packets got a comment. Wireshark shows them as `frame.comment`; it counts frames from 1."""
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
    text = f"{finding.severity.value} {finding.rule.id}: {as_frames(finding.text)} [{finding.rule.cite}]"
    if not others:
        return text
    return f"{text} See frame{'s' * (len(others) > 1)} {', '.join(str(number + 1) for number in others)}"
