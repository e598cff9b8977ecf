# SPDX-License-Identifier: GPL-2.0-only
"""This module measures collectives for `uetproto bench`: a large all_reduce in emulated packets, and the computation
of schedules for thousands of ranks.

The all_reduce runs in a separate process, so that the peak of memory is that of the all_reduce alone. `python -m
uetproto.bench.collective 64` runs it with 64 MiB for each rank.
"""

import json
import sys
from collections.abc import Callable, Iterator
from time import perf_counter, process_time
from typing import Any

from uetproto.bench.engine import Figure
from uetproto.cli.collective.run import CollectiveCase, PreparedCase
from uetproto.collectives.algorithms.catalogue import ALGORITHMS, HIERARCHICAL, schedule, scheduled
from uetproto.collectives.costs.check import check
from uetproto.collectives.dtypes import dtype
from uetproto.errors import LocalError

MIB = 1 << 20
RANKS, LONG = 16, 64
"""Number of ranks of the measured ring all_reduce, and MiB of the tensor of each rank."""
_SECONDS, _MEMORY = 60, 600
"""Limits: CPU seconds on one core, and MiB beside the tensors of the ranks."""
_MANY = 4096
"""Number of ranks of a measured schedule."""
_STEPS, _ARRAYS = 50, 5000
"""Limits in milliseconds: to compute the steps of one rank, and to compute and check all messages as arrays."""
_EVERY_PAIR = {"naive_exchange"}, {"all_to_all"}
"""Algorithms, and operations, with a message for every pair of ranks; they are not measured."""


def ring(length: int) -> dict[str, Any]:
    """Return CPU seconds of an all_reduce of `length` MiB over 16 ranks. Raises `LocalError` if its result is wrong."""
    prepared = PreparedCase(
        CollectiveCase(op="all_reduce", algorithm="ring", ranks=RANKS, length=length * MIB, dtype=dtype("float32"))
    )
    began = process_time()
    if not prepared.run().correct:
        raise LocalError("bench: all_reduce differs from NumPy's", id="bench-failed")
    return {"seconds": process_time() - began}


def measure(quick: bool, in_a_process: Callable[[list[str]], tuple[dict[str, Any], int]]) -> Iterator[Figure]:
    """Yield time and memory of a ring all_reduce in emulated packets. Then yield the times of the slowest schedules:
    one for computing the steps of a rank, and one for checking all messages as arrays."""
    length = 4 if quick else LONG
    found, peak = in_a_process(["-m", "uetproto.bench.collective", str(length)])
    what = f"all_reduce of {length} MiB, {RANKS} ranks, ring with packets"
    yield Figure("collective", what, found["seconds"], "s", _SECONDS, most=True)
    yield Figure("collective", f"{what}: memory", peak / MIB - RANKS * length, "MiB", _MEMORY, most=True)
    ranks = _MANY // 8 if quick else _MANY
    (steps, slow), (arrays, long) = max(_steps(ranks)), max(_arrays(ranks))
    yield Figure("collective", f"{slow}, {ranks} ranks: steps of a rank", steps * 1e3, "ms", _STEPS, most=True)
    yield Figure("collective", f"{long}, {ranks} ranks: checked", arrays * 1e3, "ms", _ARRAYS, most=True)


def _schedules(ranks: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for op in ALGORITHMS:
        for name in scheduled(op):
            if name not in _EVERY_PAIR[0] and op not in _EVERY_PAIR[1]:
                more = {} if op == "barrier" else {"count": MIB}
                yield op, name, more | ({"nodes": ranks // 8} if name in HIERARCHICAL else {})


def _steps(ranks: int) -> Iterator[tuple[float, str]]:
    """Yield, for each schedule, the seconds to compute the steps of the first, the last, and one other rank.

    Each time is the best of three, and comes with operation and algorithm as text.
    """
    for op, name, more in _schedules(ranks):
        plan = schedule(op, name, ranks, **more)
        for rank in (0, ranks // 3, ranks - 1):
            yield min(_timed(lambda: list(plan.steps(rank))) for _ in range(3)), f"{op} {name}"  # noqa: B023


def _arrays(ranks: int) -> Iterator[tuple[float, str]]:
    for op, name, more in _schedules(ranks):
        yield _timed(lambda: check(schedule(op, name, ranks, **more))), f"{op} {name}"  # noqa: B023


def _timed(action: Callable[[], Any]) -> float:
    began = perf_counter()
    action()
    return perf_counter() - began


if __name__ == "__main__":
    print(json.dumps(ring(int(sys.argv[1]))))
