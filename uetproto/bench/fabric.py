# SPDX-License-Identifier: GPL-2.0-only
"""This module holds `uetproto fabric` against the UEC simulator, for `uetproto bench` (cms.md §11.3, §11.4).

A figure is how far the median of seeds 1 to 5 is from the simulator's, in percent; the time is CPU seconds of one run.
"""

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from time import process_time
from typing import NamedTuple

from uetproto.bench.engine import Figure
from uetproto.emulator.flows import Flow
from uetproto.engine.contract import MICROSECOND
from uetproto.fabric.matrix import TrafficMatrix, traffic_matrix
from uetproto.fabric.study import Study, StudyConfig
from uetproto.impair.unencoded_frames import WIRES

ROWS = ("fabric",)
SIZE = 2_000_000
_SEEDS = range(1, 6)
_SINGLE = {100: 176.2, 400: 53.0}
"""Microseconds of a single flow, by the rate in Gb/s."""
VARIANTS: dict[str, dict[str, object]] = {
    "mixed": {"lb": "mixed"}, "oblivious": {"lb": "oblivious"}, "bitmap": {"lb": "bitmap"}, "reps": {"lb": "reps"},
    "RCCC": {"cc": "rccc"}, "NSCC + RCCC": {"cc": "nscc+rccc"}, "no trimming": {"trim": False},
}  # fmt: skip
REFERENCE: dict[tuple[str, int], tuple[tuple[float, float, int], ...]] = {
    ("incast", 100): ((1184, 1335, 414), (1169, 1334, 408), (1207, 1323, 412), (1176, 1343, 408), (1309, 1315, 302),
                      (1310, 1315, 302), (1188, 1341, 168)),
    ("incast", 400): ((307, 357, 1397), (316, 355, 1400), (311, 356, 1398), (312, 361, 1400), (337, 339, 959),
                      (337, 339, 958), (337, 371, 470)),
    ("permutation", 100): ((192.9, 199.6, 0), (204.2, 240.6, 374), (194.1, 203.2, 2), (198.2, 208.8, 43),
                           (194.3, 202.2, 122), (194.0, 204.0, 1), (192.9, 199.6, 0)),
    ("permutation", 400): ((60.3, 63.8, 0), (62.0, 67.8, 0), (61.2, 66.0, 0), (61.2, 66.2, 0), (60.3, 64.1, 0),
                           (60.3, 64.1, 0), (60.3, 63.8, 0)),
}  # fmt: skip
"""Mean and greatest flow completion time in microseconds, and retransmissions, of each of `VARIANTS` (cms.md §11.3)."""
_HOSTS = {"incast": 16, "permutation": 128}
_CPU = {"incast": 0.8, "permutation": 10.0}
"""Limits: CPU seconds of a run with NSCC at 100 Gb/s."""


class Tolerance(NamedTuple):
    """This record says how far a run may be from the simulator, in percent of it; the last one is a number of trims."""

    mean: float
    max: float
    trims: float | None = None
    most_trims: int | None = None


def tolerance(pattern: str, rate: int, variant: str) -> Tolerance:
    """Return the tolerance of a run (cms.md §11.4)."""
    if pattern == "permutation":
        wide = variant == "oblivious" and rate == 100
        return Tolerance(3, 10 if wide else 5, most_trims=50 if variant in ("mixed", "bitmap") else None)
    credits = "RCCC" in variant
    return Tolerance(6, 2 if credits else 3 if rate == 100 else 7, None if credits or variant == "no trimming" else 8)


def runs(pattern: str, rate: int, changes: dict[str, object], seeds: range) -> tuple[float, float, float, float]:
    """Return medians over seeds: mean and greatest time in microseconds, retransmissions, and CPU seconds."""
    load = traffic_matrix(pattern, _HOSTS[pattern], SIZE)
    config = replace(StudyConfig(cc="nscc", profile="htsim", rate=rate * 10**9), **changes)  # type: ignore[arg-type]
    rows = []
    for seed in seeds:
        began = process_time()
        result = Study(replace(config, seed=seed), load).run()
        again = sum(result.retransmissions.values())
        mean, most = (0.0, 0.0) if result.fct is None else (result.fct.mean, float(result.fct.max))
        rows.append((mean / MICROSECOND, most / MICROSECOND, again, process_time() - began))
    mean, most, times, cpu = (median(column) for column in zip(*rows, strict=True))
    return mean, most, times, cpu


def measure(quick: bool) -> Iterator[Figure]:
    """Yield each figure as soon as it is measured."""
    for rate, known in _SINGLE.items():
        alone = TrafficMatrix("one", 16, (Flow(1, 15, 0, 0, SIZE),))
        config = StudyConfig(cc="nscc", profile="htsim", rate=rate * 10**9)
        result = Study(config, alone).run()
        found = 0.0 if result.fct is None else result.fct.max / MICROSECOND
        yield _off(f"single flow, {rate} Gb/s: {found:.1f} µs, simulator {known}", found, known, 1)
    for (pattern, rate), rows in REFERENCE.items():
        if quick and (pattern == "permutation" or rate != 100):
            continue
        for (variant, changes), (mean, most, again) in zip(VARIANTS.items(), rows, strict=True):
            here = runs(pattern, rate, dict(changes), range(1, 2) if quick else _SEEDS)
            allowed = tolerance(pattern, rate, variant)
            name = f"{pattern} {rate} Gb/s {variant}"
            yield _off(f"{name}: mean {here[0]:.1f} µs, simulator {mean}", here[0], mean, allowed.mean)
            yield _off(f"{name}: max {here[1]:.1f} µs, simulator {most}", here[1], most, allowed.max)
            if allowed.trims is not None:
                yield _off(f"{name}: {here[2]:.0f} sent again, simulator {again}", here[2], again, allowed.trims)
            if allowed.most_trims is not None:
                what = f"{name}: sent again, simulator {again}"
                yield Figure("fabric", what, here[2], "packets", allowed.most_trims, most=True)
            if variant == "mixed" and rate == 100:
                yield Figure("fabric", f"{name}: CPU of one run", here[3], "s", _CPU[pattern], most=True)
                yield from unencoded(pattern, 2 if pattern == "permutation" else 5)


def unencoded(pattern: str, turns: int) -> Iterator[Figure]:
    """Yield the CPU seconds of a run whose frames are not encoded, beside half of the limit and beside those of a run
    with bytes: the least of so many runs of each, by turns."""
    taken = {wire: min(times) for wire, times in zip(WIRES, zip(*(
        [runs(pattern, 100, {"wire": wire}, range(1, 2))[3] for wire in WIRES] for _ in range(turns)
    ), strict=True), strict=True)}  # fmt: skip
    name, limit = f"{pattern} 100 Gb/s mixed, objects", _CPU[pattern] / 2
    yield Figure("fabric", f"{name}: CPU of one run", taken["objects"], "s", limit, most=True)
    share = taken["objects"] / taken["bytes"]
    yield Figure(
        "fabric", f"{name}: CPU in parts of {taken['bytes']:.2f} s with bytes", share, "", 1.1, most=True, wanted=0.5
    )


def _off(what: str, found: float, known: float, most: float) -> Figure:
    return Figure("fabric", what, 100 * abs(found - known) / known, "%", most, most=True)
