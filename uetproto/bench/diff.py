# SPDX-License-Identifier: GPL-2.0-only
"""This module measures the comparison of two captures for `uetproto bench`: its rate, and its memory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from uetproto.bench.engine import Figure
from uetproto.errors import LocalError
from uetproto.traffic import profile
from uetproto.traffic.generate import generate

PACKETS = 100_000
"""Packets of each of the captures that are compared."""
_RATE, _BYTES = 10_000, 500
"""Limits: packets of both captures a second of CPU, and bytes that a packet more adds to the peak of memory."""
_COMPARE = """
import json, sys, time, uetproto
began = time.process_time()
a, b = map(uetproto.open, sys.argv[1:])
found = a.diff(b)
print(json.dumps({"seconds": time.process_time() - began, "same": found.same, "changed": len(found.changed)}))
"""


def measure(
    quick: bool, folder: Path, in_a_process: Callable[[list[str]], tuple[dict[str, Any], int]]
) -> Iterator[Figure]:
    """Yield the figures of mixed traffic and a copy of it in which one packet in a thousand has a reserved bit set."""
    packets = PACKETS // 20 if quick else PACKETS
    seen = []
    for number in (packets // 4, packets):
        paths = [folder / f"diff-{side}.pcapng" for side in "ab"]
        generate(profile.load("mixed"), str(paths[0]), packets=number)
        made = generate(profile.load("mixed"), str(paths[1]), packets=number, mutations={"reserved-bit": 0.001})
        changed = made.mutations["reserved-bit"]
        found, memory = in_a_process(["-c", _COMPARE, *map(str, paths)])
        if (found["changed"], found["same"]) != (changed, number - changed):
            raise LocalError(f"bench: {found} of {number} packets, {changed} of them mutated", id="bench-failed")
        seen.append((number, found["seconds"], memory))
    (few, _, low), (many, seconds, high) = seen
    what = f"two captures of {many:,} packets compared"
    yield Figure("diff", what, 2 * many / seconds, "packets/s", _RATE)
    yield Figure("diff", "memory that a packet of both adds", (high - low) / (many - few), "bytes", _BYTES, most=True)
