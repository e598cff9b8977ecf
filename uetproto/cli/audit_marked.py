"""`uetproto audit -o`: the capture once more, with a comment at each packet that a finding is about."""

import os
from collections.abc import Iterable, Sequence

from uetproto import LocalError
from uetproto.audit.finding import Finding, as_frames
from uetproto.cli.rewrite import Rewritten, rewrite
from uetproto.wire.pcap import Record, open_capture

_ABOUT = "findings of uetproto audit as comments"


def check_marked(output: str, files: Sequence[str]) -> None:
    """Raises `LocalError` for what cannot be written, before anything is read."""
    if output != "-" and not output.lower().removesuffix(".gz").endswith(".pcapng"):
        raise LocalError(f'-o {output}: comments need a name in .pcapng or .pcapng.gz, or "-"')
    if len(files) > 1:
        raise LocalError(f"-o {output}: marks one capture, not {len(files)}; legal: one FILE")
    if files[0] == "-" or (os.path.exists(files[0]) and not os.path.isfile(files[0])):
        raise LocalError(f"-o {output}: the capture is read twice, standard input only once; legal: the name of a file")


def check_output(option: str, output: str | None, others: Iterable[tuple[str, str | None]]) -> None:
    """Raises `LocalError` where `output` is one of the other files, which come with what they are called, or no file.

    Before anything is read: nobody wants to wait for a long capture, and then to hear of it.
    """
    if output is None or output == "-":
        return
    for name, given in others:
        same = os.path.exists(output) and given and os.path.exists(given) and os.path.samefile(output, given)
        if same or output == given:
            raise LocalError(f"{option} {output}: would overwrite {name}")
    if os.path.isdir(output):
        raise LocalError(f"{option} {output}: is a directory; legal: the name of a file in it")
    folder = os.path.dirname(output)
    if folder and not os.path.isdir(folder):
        raise LocalError(f"{option} {output}: there is no directory {folder}")


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
