# SPDX-License-Identifier: GPL-2.0-only
"""This module measures what Python programs feel first, for `uetproto bench`: the import, and reading packets."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time

from uetproto import columns
from uetproto.analysis.capture import open_captures
from uetproto.bench.engine import Figure
from uetproto.errors import LocalError
from uetproto.traffic import profile
from uetproto.traffic.generate import generate

IMPORTS, PACKETS = 20, 50_000
"""Number of processes that import a package, and of packets of mixed traffic that are read."""
_IMPORT = 130
_RATE, _COLUMNS = 40_000, 250_000
"""Limits: the time of `import uetproto` in percent of that of `import click`, packets that are read one by one, and
in columns, the joined table or by a filter, a second of CPU."""


def measure(quick: bool, folder: Path) -> Iterator[Figure]:
    """Yield the figures. `quick` makes sizes small."""
    times = IMPORTS // 4 if quick else IMPORTS
    ours, theirs = seconds_of("import uetproto", times), seconds_of("import click", times)
    yield Figure(
        "python", "import uetproto, share of the time of import click", 100 * ours / theirs, " %", _IMPORT, most=True
    )
    packets = PACKETS // 10 if quick else PACKETS
    path = folder / "python.pcapng"
    generate(profile.load("mixed"), str(path), packets=packets)
    began = process_time()
    read = sum(1 for _ in open_captures(path))
    if read != packets:
        raise LocalError(f"bench: {read} of {packets} packets were read", id="bench-failed")
    yield Figure("python", "packets of uetproto.open, mixed traffic", read / (process_time() - began), "/s", _RATE)
    began = process_time()
    read = columns.read(path).packets
    if read != packets:
        raise LocalError(f"bench: {read} of {packets} packets were read", id="bench-failed")
    yield Figure("python", "packets of columns.read, the same", read / (process_time() - began), "/s", _COLUMNS)
    capture = open_captures(path)
    capture.to_arrow()  # loads pyarrow
    began = process_time()
    read = sum(piece.batch.num_rows for piece in capture.table().pieces())
    if read != packets:
        raise LocalError(f"bench: {read} of {packets} packets were read", id="bench-failed")
    yield Figure("python", "packets of the joined table, the same", read / (process_time() - began), "/s", _COLUMNS)
    wanted = capture.filter("uetp.psn & 1 and (uetp.opcode == WRITE or uetp.retx == 1) and ip.src == 10.0.0.0/16")
    began = process_time()
    count = len(wanted)
    if not 0 < count < packets:
        raise LocalError(f"bench: the filter wants {count} of {packets} packets", id="bench-failed")
    yield Figure(
        "python", "packets of a filter of four tests, the same", packets / (process_time() - began), "/s", _COLUMNS
    )


def seconds_of(code: str, times: int) -> float:
    """Return the CPU seconds of a Python process that runs `code`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(times):
        subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / times
