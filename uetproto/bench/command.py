# SPDX-License-Identifier: GPL-2.0-only
"""This module measures how fast the library is on this machine (`uetproto bench`).

`bench.codec` and `bench.captures` compare the library with Scapy at equal work, as ratios. Scapy has no state
machines, so the other modules measure rates, sizes and times in place of ratios.

Absolute rates differ from machine to machine and from minute to minute; the ratio of two rates that were measured one
after the other is stable. All times are CPU times. A result is the best of several turns; the turns of the library and
of Scapy alternate. Files go to a temporary folder.
"""

import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import click

from uetproto import LocalError
from uetproto.bench import (
    api,
    audit,
    captures,
    codec,
    collective,
    diff,
    engine,
    fabric,
    live,
    network,
    python,
    report,
    security,
    small,
    wireshark,
)
from uetproto.bench.captures import in_a_process
from uetproto.bench.emulator import measure as emulator
from uetproto.bench.emulator import scale
from uetproto.bench.emulator.earlier import full_name
from uetproto.bench.engine import Figure
from uetproto.bench.ratio import BenchResult
from uetproto.errors import similar

MIB = 1 << 20
ROWS = (
    "decode", "encode", "columns", "roce", "write", "emulate", "emulator", "scale", *engine.ROWS, *small.ROWS,
    "api", "collective", "in_network", "fabric", "security", "audit", "wireshark", "live", "python", "diff", "report",
)  # fmt: skip


class Size(NamedTuple):
    """This record has the amount of work of a run. The library and Scapy each work for `seconds` at one row. Mixed
    traffic has `frames` frames. A capture has `packets` packets for the library, and `scapy_packets` for Scapy. An
    emulated write carries `input` bytes."""

    seconds: float
    frames: int
    packets: int
    scapy_packets: int
    input: int


FULL = Size(10, 10_000, 1_000_000, 20_000, 1024 * MIB)
QUICK = Size(1, 500, 100_000, 2_000, 32 * MIB)


def measure(names: tuple[str, ...], size: Size, folder: Path) -> Iterator[BenchResult | Figure]:
    """Measure the benchmarks of codec and captures that `names` contains, and yield each result as soon as it is
    known."""
    rows: dict[str, tuple[Iterator[BenchResult | Figure], ...]] = {
        "decode": (codec.decoding(size.frames, size.seconds),),
        "encode": (codec.encoding(size.seconds),),
        "columns": (captures.columns(size.packets, size.scapy_packets, folder),),
        "roce": (
            codec.decoding_roce(size.frames, size.seconds),
            codec.encoding_roce(size.seconds),
            captures.columns_of_roce(size.packets, size.scapy_packets, folder),
        ),
        "write": (codec.writing(size.scapy_packets, size.seconds, folder),),
        "emulate": (captures.emulating(size.input, folder),),
    }
    for name, parts in rows.items():
        if name in names:
            _announce(name)
            yield from chain(*parts)


def _announce(name: str) -> None:
    """Print the name of the row that is being measured, if the output is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[Kmeasuring {name} …\r", nl=False, err=True)


def machine() -> str:
    """Return a description of the machine: processor, cores, memory, system and Python version."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, {python}"


def as_json(result: BenchResult | Figure) -> str:
    if isinstance(result, Figure):
        return json.dumps({**result._asdict(), "shares": dict(result.shares), "reached": result.reached})
    return json.dumps({**result._asdict(), "ratio": round(result.ratio, 1), "reached": result.reached})


@click.command(
    epilog="""\b
Example:
  uetproto bench
  uetproto bench --quick --only decode,encode
  uetproto bench --only emulator --against 5e453867

Exit status: 0; 1 a row missed what is asked for; 2 misuse; 130 interrupted, 143 terminated."""
)
@click.option("--only", metavar="NAME,…", help=f"These rows only: {', '.join(ROWS)}.")
@click.option("--quick", is_flag=True, help="Small sizes: a first impression in half a minute, not judged.")
@click.option("--whole", is_flag=True, help="Whole sizes of the row emulator, such as 1 GiB: five minutes or more.")
@click.option(
    "--against", metavar="COMMIT", help="Run the row emulator in turns with this commit of the clone, three times each."
)
@click.option("--json", "json_", is_flag=True, help="One JSON object a row.")
def command(only: str | None, quick: bool, whole: bool, against: str | None, json_: bool) -> None:
    """Measure codec and captures against Scapy at equal work, and the other parts of the library alone.

    Compare ratios, not rates: both sides run alternately. The full run takes some minutes and 4 GiB of disk.
    """
    names = ROWS if only is None else tuple(only.split(","))
    for name in names:
        if name not in ROWS:
            raise LocalError(
                "--only", f"{name!r} is not legal{similar(name, ROWS)}", ", ".join(ROWS), id="unknown-name"
            )
    if against is not None and "emulator" not in names:
        raise LocalError("--against", f"with --only {only}", "with the row emulator", id="no-effect")
    if against is not None:
        full_name(against)  # a wrong one is told before anything is measured
    missed = False
    if not json_:
        click.echo(machine())
        click.echo(f"{'what':66} {'a second':>12}   {'Scapy':>30} {'ratio':>8} {'at least':>9}")
    with tempfile.TemporaryDirectory(prefix="uetproto-bench-") as folder:
        results: Iterable[BenchResult | Figure] = measure(names, QUICK if quick else FULL, Path(folder))
        figures = {
            "emulator": ("the emulator", emulator.measure(quick, whole, in_a_process, against)),
            "scale": ("many hosts and PDCs", scale.measure(quick, in_a_process)),
            "api": ("api", api.measure(quick, in_a_process)),
            "collective": ("collectives", collective.measure(quick, in_a_process)),
            "in_network": ("in the network", network.measure(quick, in_a_process)),
            "fabric": ("the simulator's runs", fabric.measure(quick)),
            "security": ("security", security.measure(quick, Path(folder))),
            "audit": ("audit", audit.measure(quick, Path(folder), in_a_process)),
            "wireshark": ("tshark", wireshark.measure(quick, Path(folder))),
            "live": ("a real link", live.measure(quick)),
            "python": ("Python programs", python.measure(quick, Path(folder))),
            "report": ("pages", report.measure(quick, Path(folder))),
            "diff": ("captures compared", diff.measure(quick, Path(folder), in_a_process)),
        }
        parts = [_announced("state machines", engine.measure(names, quick))]
        parts += [_announced("small and many", small.measure(names, quick))]
        parts += [_announced(*figures[name]) for name in figures if name in names]
        for result in chain(results, *parts):
            missed = missed or not result.reached
            click.echo(as_json(result) if json_ else _line(result, judged=not quick))
    if missed and not quick:
        raise click.exceptions.Exit(1)


def _announced(name: str, figures: Iterator[Figure]) -> Iterator[Figure]:
    _announce(name)
    yield from figures


def _line(result: BenchResult | Figure, judged: bool) -> str:
    if isinstance(result, Figure):
        places = 1 if result.wanted is not None and result.wanted < 1 else 0
        asked = f"{'at most' if result.most else 'at least'} {result.asked:,.{places}f}"
        text = f"{result.what:66} {result.value:12,.{places}f} {result.unit:12} {asked:>20}"
        text += "" if result.reached or not judged else "   MISSED"
        text += "" if result.wanted is None else f"   known miss: {result.wanted:,.{places}f} was wanted"
        split = ", ".join(f"{name} {share:.0%}" for name, share in result.shares if share >= 0.005)
        return f"{text}\n    time: {split}" if split else text
    text = (
        f"{result.what:66} {result.rate:12,.0f}   {f'{result.baseline} {result.baseline_rate:,.0f}':>30} "
        f"{result.ratio:7.{1 if result.ratio < 10 else 0}f}× {result.least:8g}×"
    )
    if result.memory is not None and result.memory_limit is not None:
        text += f"   peak {result.memory // MIB} MiB of {result.memory_limit // MIB}"
    return text if result.reached or not judged else text + "   MISSED"
