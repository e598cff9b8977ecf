# SPDX-License-Identifier: GPL-2.0-only
"""This module measures the emulator before trains and now, beside the floor of a loop over single packets."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from uetproto.bench.emulator.before import BEFORE
from uetproto.bench.emulator.floor import PACKET, aead, calibration, one_by_one
from uetproto.bench.engine import Figure

MIB = 1 << 20


class EmulatorRow(NamedTuple):
    """An emulator row describes a run of `runs.RUNS`, and how much faster than before it is to be."""

    name: str
    what: str
    size: int
    """Bytes, flows of so many bytes, or packets, by the run."""
    whole: int
    """Size of the run with `--whole`, in the same unit."""
    asked: float
    """Least ratio of the rate to that before trains."""
    wanted: float | None = None
    """The ratio that was wanted, if it is known to be missed."""


ROWS = (
    EmulatorRow("write", "fi_write from file to file, CRC32C, one tap", 64 * MIB, 1024 * MIB, 1.5, 3),
    EmulatorRow("write-no-capture", "the same without a capture", 64 * MIB, 1024 * MIB, 1.7),
    EmulatorRow("roce", "RDMA WRITE from file to file, ICRC, one tap", 64 * MIB, 1024 * MIB, 1.5, 3),
    EmulatorRow("roce-no-capture", "the same without a capture", 64 * MIB, 1024 * MIB, 1.7),
    EmulatorRow("two-senders", "two fi_writes into one port", 64 * MIB, 1024 * MIB, 1.3),
    EmulatorRow("ring", "all_reduce over 16 ranks, ring", 16 * MIB, 64 * MIB, 1.1, 2.5),
    EmulatorRow("sharp", "all_reduce over 16 ranks, SHARP streams over RoCE", 2 * MIB, 64 * MIB, 1.7),
    EmulatorRow("sharp-uet", "the same over UET", 2 * MIB, 64 * MIB, 0.9),
    EmulatorRow("permutation", "permutation of 128 hosts, NSCC", 500_000, 2_000_000, 0.8, 1.3),
    EmulatorRow("incast", "incast of 8 hosts, NSCC", 2_000_000, 2_000_000, 0.8),
    EmulatorRow("generate", "generate bench", 50_000, 500_000, 1.5),
)
_FLOOR = 30_000
"""Number of packets of a measurement of the floor."""
_SEALED = 1.6
"""Least ratio of the rate of a sealed write with trains to that without."""


def measure(
    quick: bool, whole: bool, in_a_process: Callable[[list[str]], tuple[dict[str, Any], int]]
) -> Iterator[Figure]:
    """Yield the floors, and for each row its rate, whose limit is a multiple of the rate before trains.

    That rate was kept as a ratio to the calibration loop (`before.py`), and is taken to the calibration of this run.
    Each rate is the best of three runs, relative to its own calibration; `quick` runs once with a quarter of the size.
    """
    loop = calibration()
    floors = {capture: max(one_by_one(_FLOOR, capture) for _ in range(1 if quick else 3)) for capture in (True, False)}
    for capture, rate in floors.items():
        how = "with a capture" if capture else "without a capture"
        yield Figure("emulator", f"floor: a loop over single packets, {how}", rate, "packets/s", 0)
    for row in ROWS:
        size = row.whole if whole else row.size // 4 if quick else row.size
        best, peak = 0.0, 0
        for _ in range(1 if quick or whole else 3):
            found, _ = in_a_process(["-m", "uetproto.bench.emulator.runs", row.name, str(size), "auto"])
            best = max(best, found["packets"] / found["seconds"] / found["calibration"])
            peak = max(peak, found["peak"])
        before = BEFORE[row.name] * loop
        what = f"{row.what}: before {before:,.0f}, now {best / BEFORE[row.name]:.2f} ×, {peak // MIB} MiB"
        wanted = None if row.wanted is None else row.wanted * before
        yield Figure("emulator", what, best * loop, "packets/s", row.asked * before, wanted=wanted)
    yield from sealed(quick, whole, in_a_process)


def sealed(
    quick: bool, whole: bool, in_a_process: Callable[[list[str]], tuple[dict[str, Any], int]]
) -> Iterator[Figure]:
    """Yield the rate of AES-GCM alone, and that of a sealed write with trains beside that without, of this run."""
    yield Figure("emulator", f"floor: AES-256-GCM of {PACKET} bytes", aead(_FLOOR), "packets/s", 0)
    rates = dict.fromkeys(("off", "auto"), 0.0)
    size = (256 if whole else 4 if quick else 32) * MIB
    for trains in ("off", "auto") * (1 if quick else 3):
        found, _ = in_a_process(["-m", "uetproto.bench.emulator.runs", "sealed", str(size), trains])
        rates[trains] = max(rates[trains], found["packets"] / found["seconds"])
    what = f"fi_write, sealed, one tap: packet by packet {rates['off']:,.0f}, now {rates['auto'] / rates['off']:.2f} ×"
    yield Figure("emulator", what, rates["auto"], "packets/s", _SEALED * rates["off"])
