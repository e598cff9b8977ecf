# SPDX-License-Identifier: GPL-2.0-only
"""This module compares scenarios for `uetproto run --compare`: it runs each scenario unchanged, and then runs it again
with a longer input and with loss."""

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from uetproto import LocalError
from uetproto.cli.terminal import Paint, printable
from uetproto.emulator.run.operation_schedule import drawn
from uetproto.emulator.run.play import run
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.scenario.settings import load

LOSS = 0.001
"""Share of the frames that are lost in the runs with loss."""
LENGTH = 64 << 20
"""Number of bytes that each run with loss transfers."""
SEEDS = range(1, 10 + 1)

Show = Callable[[str], None]


class Spread(NamedTuple):
    """This record holds the median, the smallest and the largest value of several runs."""

    median: float
    low: int
    high: int

    @classmethod
    def of(cls, values: Sequence[int]) -> "Spread":
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Compared:
    """This record holds the results of one scenario, unchanged and with loss."""

    name: str
    plain: RunResult
    """Result of the unchanged scenario."""
    lossy: tuple[RunResult, ...]
    """Results of the runs that transfer `LENGTH` bytes with the loss `LOSS`, one run for each seed."""

    @property
    def ok(self) -> bool:
        return self.plain.ok and all(result.ok for result in self.lossy)

    def spread(self, number: Callable[[RunResult], int]) -> Spread:
        return Spread.of([number(result) for result in self.lossy])

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON object of `uetproto run --compare --json`."""
        plain = {name: number(self.plain) for name, number in _NUMBERS.items()}
        return {
            "scenario": self.name,
            "ok": self.ok,
            "plain": {"bytes": self.plain.bytes, **plain, "overhead": overhead(self.plain)},
            "lossy": {
                "bytes": LENGTH,
                "loss": LOSS,
                "seeds": list(SEEDS),
                **{name: self.spread(number)._asdict() for name, number in _NUMBERS.items()},
            },
        }


_NUMBERS: dict[str, Callable[[RunResult], int]] = {
    "packets": lambda result: result.packets,
    "retransmissions": lambda result: result.retransmissions,
    "wire_bytes": lambda result: result.wire_bytes,
    "virtual_time_ps": lambda result: result.virtual_time_ps,
}


def overhead(result: RunResult) -> float:
    """Return the overhead of a transfer: the bytes on the wire beyond the user's bytes, divided by the user's bytes. It
    is 0 if the transfer is empty."""
    return result.wire_bytes / result.bytes - 1 if result.bytes else 0.0


def compare(names: Sequence[str], settings: Sequence[str], show: Show) -> list[Compared]:
    """Run every scenario unchanged, then with loss. Raises `LocalError` for a scenario that has no input."""
    for name in names:
        if load(name, settings).run.input is None:
            raise LocalError(
                f"--compare {name}", "sends no input of its own choice", "scenarios with run.input", id="wrong-scenario"
            )
    with _input() as path:
        found = []
        for name in names:
            show(name)
            plain = run(load(name, settings))
            lossy = []
            for seed in SEEDS:
                show(f"{name}, {LENGTH >> 20} MiB with {LOSS:.1%} loss, seed {seed}")
                lossy.append(run(load(name, [*settings, f"input={path}", f"faults.drop={LOSS}", f"seed={seed}"])))
            found.append(Compared(name, plain, tuple(lossy)))
    return found


@contextmanager
def _input() -> Iterator[Path]:
    """Yield the path of a file of `LENGTH` bytes, which are the same in every run."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "input")
        path.write_bytes(drawn(random.Random(0), LENGTH))
        yield path


# For people -----------------------------------------------------------------------------------------------------------


def table(found: Sequence[Compared], paint: Paint) -> Iterator[str]:
    """Yield the lines of a text that compares the results."""
    width = max(len("as it is"), *(len(one.name) for one in found))
    heads = ("bytes", 12), ("packets", 9), ("on the wire", 12), ("overhead", 9), ("time", 12)
    yield paint(f"{'as it is':{width}}  " + " ".join(f"{head:>{room}}" for head, room in heads), "bold")
    for one in found:
        result = one.plain
        yield (
            f"{printable(one.name):{width}}  {result.bytes:12,} {result.packets:9,} {result.wire_bytes:12,}"
            f" {overhead(result):9.2%} {_microseconds(result.virtual_time_ps):>12}" + _failed(result.ok, paint)
        )
    yield ""
    lossy = f"{LENGTH >> 20} MiB, {LOSS:.1%} of the frames lost, {len(SEEDS)} seeds: median (lowest … highest)"
    yield paint(lossy, "bold")
    for one in found:
        packets, again, size, time = (one.spread(number) for number in _NUMBERS.values())
        yield f"{printable(one.name):{width}}  packets {_range(packets)}, sent again {_range(again)}"
        shares = [value / LENGTH - 1 for value in size]
        yield f"{'':{width}}  overhead {shares[0]:.2%} ({shares[1]:.2%} … {shares[2]:.2%})"
        yield (
            f"{'':{width}}  time {_microseconds(time.median)} ({_microseconds(time.low)} … {_microseconds(time.high)})"
            + _failed(all(result.ok for result in one.lossy), paint)
        )


def _failed(ok: bool, paint: Paint) -> str:
    return "" if ok else f"  {paint('failed', 'alarm')}"


def _range(spread: Spread) -> str:
    return f"{spread.median:,.0f} ({spread.low:,} … {spread.high:,})"


def _microseconds(picoseconds: float) -> str:
    return f"{picoseconds / 1e6:,.3f} µs"
