# SPDX-License-Identifier: GPL-2.0-only
"""This module measures the API for `uetproto bench`: large operations over the emulated fabric, in memory and in files.

Each operation runs in a separate process, so that the peak of memory is that of this operation alone. `python -m
uetproto.bench.api write 1024 memory` runs a write of 1024 MiB; with `files`, source and target are files.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

from uetproto.api import fi
from uetproto.bench.engine import Figure
from uetproto.errors import LocalError

MIB = 1 << 20
OPERATIONS = ("write", "read", "send")
_LONG, _SHORT = 1024, 100
"""Sizes of the long and of the short operation, in MiB."""
_SLOWER = 1.3
"""Limit of the time for each packet of the long operation, as a multiple of that of the short one."""
_MEMORY, _FILES = 200, 400
"""Limits of memory in MiB: beside source and target in memory, and in all if both are files."""


def transfer(operation: str, size: int, files: bool) -> dict[str, Any]:
    """Run one operation of `size` MiB. Return the CPU seconds that it took and the number of its data packets. Raises
    `LocalError` if it fails."""
    with tempfile.TemporaryDirectory(prefix="uetproto-bench-") as folder, fi.Fabric() as fabric:
        source, target = (_memory(Path(folder) / name, size * MIB, files) for name in ("source", "target"))
        a, b = fabric.endpoint("a"), fabric.endpoint("b")
        peer = a.av.insert(b.address)
        began = process_time()
        if operation == "write":
            mr = b.domain.mr_reg(target)
            a.write(source, peer, 0, mr.key)
        elif operation == "read":
            mr = b.domain.mr_reg(source)
            a.read(target, peer, 0, mr.key)
        else:
            b.recv(target)
            a.send(source, peer)
        (entry,) = a.cq.sread(1)
        seconds = process_time() - began
        if isinstance(entry, fi.CqErrEntry):
            raise LocalError(f"bench: {operation}: {entry}", id="bench-failed")
    return {"seconds": seconds, "packets": size * MIB // fi.SesConfig().payload_mtu}


def _memory(path: Path, length: int, files: bool) -> Any:
    """Return memory that is written, so that the system provides every page; with `files`, a file at `path`."""
    if not files:
        return bytearray(b"\1") * length
    with path.open("wb") as file:
        file.truncate(length)
    return fi.FileMemory(path.open("r+b"))


def measure(quick: bool, in_a_process: Callable[[list[str]], tuple[dict[str, Any], int]]) -> Iterator[Figure]:
    """Yield figures for each operation: CPU time for each packet of a long run, and peaks of memory.

    The limit of the time is a multiple of the time for each packet of a short run. Both times are the best of three;
    long and short runs alternate.
    """
    long, short = (64, 16) if quick else (_LONG, _SHORT)

    def run(operation: str, size: int, where: str) -> tuple[float, float]:
        found, peak = in_a_process(["-m", "uetproto.bench.api", operation, str(size), where])
        beside = peak / MIB - (2 * size if where == "memory" else 0)
        return found["seconds"] / found["packets"] * 1e6, beside

    for operation in OPERATIONS:
        runs = [(run(operation, short, "memory"), run(operation, long, "memory")) for _ in range(1 if quick else 3)]
        few, many = (min(pair[which][0] for pair in runs) for which in (0, 1))
        what = f"fi_{operation} of {long} MiB: a packet ({_SLOWER} × that of {short} MiB)"
        yield Figure("api", what, many, "µs", _SLOWER * few, most=True)
        peak = max(pair[1][1] for pair in runs)
        yield Figure("api", f"fi_{operation} of {long} MiB: beside both buffers", peak, "MiB", _MEMORY, most=True)
        _, peak = run(operation, long, "files")
        yield Figure("api", f"fi_{operation} of {long} MiB from file to file: memory", peak, "MiB", _FILES, most=True)


if __name__ == "__main__":
    print(json.dumps(transfer(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "files")))
