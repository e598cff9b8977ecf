# SPDX-License-Identifier: GPL-2.0-only
"""This module measures the emulator before trains and now, beside the floor of a loop over single packets."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

from uetproto.bench.emulator.before import BEFORE, BEFORE_AT
from uetproto.bench.emulator.earlier import earlier, full_name
from uetproto.bench.emulator.floor import PACKET, aead, calibration, one_by_one
from uetproto.bench.engine import Figure
from uetproto.errors import LocalError

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

    def length(self, quick: bool, whole: bool) -> int:
        """Return the size of the run with these options."""
        return self.whole if whole else self.size // 4 if quick else self.size


ROWS = (
    EmulatorRow("write", "fi_write from file to file, CRC32C, one tap", 256 * MIB, 1024 * MIB, 1.5, 3),
    EmulatorRow("write-no-capture", "the same without a capture", 256 * MIB, 1024 * MIB, 1.7),
    EmulatorRow("roce", "RDMA WRITE from file to file, ICRC, one tap", 256 * MIB, 1024 * MIB, 1.5, 3),
    EmulatorRow("roce-no-capture", "the same without a capture", 256 * MIB, 1024 * MIB, 1.7),
    EmulatorRow("two-senders", "two fi_writes into one port", 256 * MIB, 1024 * MIB, 1.3),
    EmulatorRow("ring", "all_reduce over 16 ranks, ring", 64 * MIB, 64 * MIB, 1.1, 2.5),
    EmulatorRow("sharp", "all_reduce over 16 ranks, SHARP streams over RoCE", 2 * MIB, 64 * MIB, 1.7),
    EmulatorRow("sharp-uet", "the same over UET", 2 * MIB, 64 * MIB, 0.9),
    EmulatorRow("permutation", "permutation of 128 hosts, NSCC", 2_000_000, 2_000_000, 0.8, 1.3),
    EmulatorRow("incast", "incast of 8 hosts, NSCC", 2_000_000, 2_000_000, 0.8),
    EmulatorRow("generate", "generate bench", 200_000, 500_000, 1.5),
)
_FLOOR = 30_000
"""Number of packets of a measurement of the floor."""
_SEALED = 1.6
"""Least ratio of the rate of a sealed write with trains to that without."""


Measured = dict[str, Any]
"""What a run of `runs.run` returns."""


class ProcessRunner(Protocol):
    """Type of the function that runs Python in a process of its own (`bench.captures.in_a_process`)."""

    def __call__(self, arguments: list[str], folder: Path | None = None, /) -> tuple[Measured, int]: ...


class EarlierVersion(NamedTuple):
    """An earlier version is a commit as the user names it, and the folder that has its package."""

    commit: str
    folder: Path
    is_limit: bool
    """Whether the rates of this version are limits: it is the one before trains."""


def measure(quick: bool, whole: bool, in_a_process: ProcessRunner, against: str | None = None) -> Iterator[Figure]:
    """Yield the floors, and for each row its rate, whose limit is a multiple of the rate before trains.

    That rate was kept as a ratio to the calibration loop (`before.py`), and is taken to the calibration of this run.
    Each rate is the best of three runs, relative to its own calibration; `quick` runs once with a quarter of the size.
    If `against` names a commit, the rate before is that of this commit, measured in turns with the rate of now. It is a
    limit only for the commit before trains.
    """
    if against is not None:
        name = full_name(against)
        with earlier(name) as folder:
            then = EarlierVersion(against, folder, is_limit=name.startswith(BEFORE_AT))
            yield from _floors(quick)
            for row in ROWS:
                yield _in_turns(row, row.length(quick, whole), 1 if quick else 3, in_a_process, then)
        yield from sealed(quick, whole, in_a_process)
        return
    loop = calibration()
    yield from _floors(quick)
    for row in ROWS:
        turns = 1 if quick or whole else 3
        found = [_run(row, row.length(quick, whole), in_a_process) for _ in range(turns)]
        best, peak = max(_rate(run) / run["calibration"] for run in found), max(run["peak"] for run in found)
        before = BEFORE[row.name] * loop
        what = f"{row.what}: before {before:,.0f}, now {best / BEFORE[row.name]:.2f} ×, {peak // MIB} MiB"
        wanted = None if row.wanted is None else row.wanted * before
        yield Figure("emulator", what, best * loop, "packets/s", row.asked * before, wanted=wanted)
    yield from sealed(quick, whole, in_a_process)


def _floors(quick: bool) -> Iterator[Figure]:
    for capture, how in ((True, "with a capture"), (False, "without a capture")):
        rate = max(one_by_one(_FLOOR, capture) for _ in range(1 if quick else 3))
        yield Figure("emulator", f"floor: a loop over single packets, {how}", rate, "packets/s", 0)


def _run(
    row: EmulatorRow, size: int, in_a_process: ProcessRunner, trains: str = "auto", folder: Path | None = None
) -> Measured:
    return in_a_process(["-m", "uetproto.bench.emulator.runs", row.name, str(size), trains], folder)[0]


def _rate(run: Measured) -> float:
    """Return packets for each second of CPU."""
    rate: float = run["packets"] / run["seconds"]
    return rate


def _in_turns(row: EmulatorRow, size: int, turns: int, in_a_process: ProcessRunner, version: EarlierVersion) -> Figure:
    """Run this version and an earlier one in turns. The ratio is that of the best rates."""
    commit, folder, is_limit = version
    then, now = [], []
    for _ in range(turns):
        try:
            then.append(_run(row, size, in_a_process, "before", folder))
        except LocalError as error:
            why = next(line for line in reversed(str(error).split("\n")) if not line.isdigit())
            what = f"{row.what}: not compared, as {commit} does not run it ({why})"
            return Figure("emulator", what, _rate(_run(row, size, in_a_process)), "packets/s", 0)
        now.append(_run(row, size, in_a_process))
    if not all(Path(run["package"]).is_relative_to(folder) for run in then):
        raise LocalError(f"bench: not {commit} was measured, but {then[0]['package']}", id="bench-failed")
    rates, before = [_rate(run) for run in now], [_rate(run) for run in then]
    peaks = [max(run["peak"] for run in runs) // MIB for runs in (then, now)]
    what = (
        f"{row.what}: {commit} {max(before):,.0f}, now {max(rates) / max(before):.2f} × "
        f"(medians {median(rates) / median(before):.2f}), {peaks[0]} and {peaks[1]} MiB"
    )
    if not is_limit:
        return Figure("emulator", what, max(rates), "packets/s", 0)
    wanted = None if row.wanted is None or max(rates) >= row.wanted * max(before) else row.wanted * max(before)
    return Figure("emulator", what, max(rates), "packets/s", row.asked * max(before), wanted=wanted)


def sealed(quick: bool, whole: bool, in_a_process: ProcessRunner) -> Iterator[Figure]:
    """Yield the rate of AES-GCM alone, and that of a sealed write with trains beside that without, of this run."""
    yield Figure("emulator", f"floor: AES-256-GCM of {PACKET} bytes", aead(_FLOOR), "packets/s", 0)
    rates = dict.fromkeys(("off", "auto"), 0.0)
    size = (256 if whole else 4 if quick else 32) * MIB
    for trains in ("off", "auto") * (1 if quick else 3):
        found, _ = in_a_process(["-m", "uetproto.bench.emulator.runs", "sealed", str(size), trains])
        rates[trains] = max(rates[trains], found["packets"] / found["seconds"])
    what = f"fi_write, sealed, one tap: packet by packet {rates['off']:,.0f}, now {rates['auto'] / rates['off']:.2f} ×"
    yield Figure("emulator", what, rates["auto"], "packets/s", _SEALED * rates["off"])
