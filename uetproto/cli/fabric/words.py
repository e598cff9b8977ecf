# SPDX-License-Identifier: GPL-2.0-only
"""This module says in words and tables what the runs of `uetproto fabric` measured."""

from collections.abc import Iterator
from statistics import median

from uetproto.cli.terminal import console, many, printable, tell
from uetproto.emulator.congestion import OFF
from uetproto.engine import train_splits
from uetproto.engine.contract import MICROSECOND
from uetproto.fabric.result import FlowTimes, StudyResult

_WIDE = 200
"""Columns that the widest table has."""


def how(result: StudyResult) -> str:
    """Return the names of congestion control and path selection."""
    return OFF if result.cc == OFF else f"{result.cc} {result.lb}"


def title(result: StudyResult) -> str:
    """Return a line about what all runs have in common."""
    rate = f"{result.rate / 10**9:g} Gb/s"
    return f"{printable(result.pattern)}, {result.hosts} hosts, {rate}, {result.profile}"


def table(results: list[StudyResult], aside: bool) -> None:
    """Print a line for each algorithm and path selection: medians over the seeds."""
    from rich.box import SIMPLE
    from rich.table import Table

    shown = Table(box=SIMPLE, title=f"{title(results[0])}; times in µs, medians", padding=(0, 1, 0, 0))
    times_told = ("min", "mean", "p99", "max")
    for head in ("", "seeds", *times_told, "Gb/s", "fair", "marks", "trims", "drops", "ACKs"):
        shown.add_column(head, justify="right" if head else "left", no_wrap=True)
    for variant in dict.fromkeys(map(how, results)):
        these = [one for one in results if how(one) == variant]
        told = [one for one in these if one.fct is not None]
        times = [
            f"{median(getattr(one.fct, name) for one in told) / MICROSECOND:,.1f}" if told else "-"
            for name in times_told
        ]
        counts = [f"{median(getattr(one, name) for one in these):,.0f}" for name in ("marks", "trims", "drops", "acks")]
        rate, fair = (median(getattr(one, name) for one in these) for name in ("goodput", "fairness"))
        shown.add_row(variant, f"{len(these)}", *times, f"{rate / 10**9:,.1f}", f"{fair:.2f}", *counts)
    out = console(aside)
    out.width = max(out.width, _WIDE)  # a number that is cut in two tells nothing
    out.print(shown)
    for one in results:
        if one.failure is not None:
            tell([f"{how(one)}, seed {one.seed}: failed: {printable(one.failure)}"], aside)


def words(result: StudyResult, output: str | None) -> Iterator[str]:
    """Return the lines about a run, whose capture is `output`."""
    yield (
        f"{printable(result.pattern)}: {many(result.flows, 'flow')} between {many(result.hosts, 'host')},"
        f" {result.rate / 10**9:g} Gb/s, {how(result)}, {result.profile}, seed {result.seed}"
    )
    if result.fct is not None:
        yield f"  flow completion time, µs: {_times(result.fct)}"
        for part, fct in result.parts.items():
            yield f"    {printable(part)}: {_times(fct)}"
        yield f"  goodput {result.goodput / 10**9:,.1f} Gb/s, fairness {result.fairness:.3f}"
    again = ", ".join(f"{cause} {count:,}" for cause, count in result.retransmissions.items()) or "none"
    yield f"  {many(result.packets, 'packet')}, sent again: {again}"
    yield (
        f"  marked {result.marks:,}, trimmed {result.trims:,}, dropped {result.drops:,}; ACKs {result.acks:,};"
        f" longest queue {result.queue_peak:,} bytes"
    )
    if result.path_load is not None:
        load = result.path_load
        yield f"  links between switches carried {load.min:,} to {load.max:,} bytes, {load.mean:,.0f} on average"
    if result.trains:
        yield f"  {train_splits.words(train_splits.summed(result.trains.values()))}"
    if output is not None:
        yield f"  capture {printable(output)}"
    if result.failure is not None:
        yield f"  failed: {printable(result.failure)}"


def _times(fct: FlowTimes) -> str:
    times = (("min", fct.min), ("mean", fct.mean), ("p50", fct.p50), ("p99", fct.p99), ("max", fct.max))
    return ", ".join(f"{name} {value / MICROSECOND:,.1f}" for name, value in times)
