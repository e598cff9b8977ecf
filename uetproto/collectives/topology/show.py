# SPDX-License-Identifier: GPL-2.0-only
"""This module prints a schedule as text. It has a row for each step and a column for each rank, with the sends of the
rank."""

from collections.abc import Sequence

import numpy as np

from uetproto.collectives.algorithms.schedule import Buffer, Fold, Schedule, ScheduleStep

SHOWN = 8
"""Number of ranks that are shown by default. Their columns fit on a screen."""


def show(schedule: Schedule, ranks: Sequence[int] | None = None) -> str:
    """Return the text of a schedule. `→1 12:16` means that elements 12 .. 15 are sent to rank 1; a `+` means that the
    receiver folds them into its own.

    `ranks` are the ranks whose columns are shown. None means the first `SHOWN` ranks.
    """
    shown = list(range(min(schedule.size, SHOWN)) if ranks is None else ranks)
    folds = _folds(schedule, shown)
    cells: dict[int, dict[int, list[str]]] = {}
    for rank in shown:
        for step in schedule.steps(rank):
            if texts := _texts(rank, step, folds):
                cells.setdefault(step.number, {})[rank] = texts
    wide = max([6, *(len(text) for row in cells.values() for texts in row.values() for text in texts)])
    lines = [_title(schedule), "", "step  " + "  ".join(f"rank {rank}".ljust(wide) for rank in shown)]
    for number, row in sorted(cells.items()):
        for line in range(max(map(len, row.values()))):
            columns = (row.get(rank, [])[line : line + 1] or [""] for rank in shown)
            lines.append(f"{number if line == 0 else '':>4}  " + "  ".join(text.ljust(wide) for (text,) in columns))
    if len(shown) < schedule.size:
        lines += ["", f"{len(shown)} of {schedule.size} ranks; ranks= names others"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _title(schedule: Schedule) -> str:
    root = "" if schedule.root is None else f", root {schedule.root}"
    ranks = f"{schedule.size} rank{'s' * (schedule.size != 1)}"
    return f"{schedule.op} by {schedule.algorithm}: {ranks}{root}, {schedule.length} step{'s' * (schedule.length != 1)}"


def _folds(schedule: Schedule, senders: Sequence[int]) -> set[tuple[int, int, int]]:
    """Return (step, sender, receiver) of the messages that the receiver folds. A sender does not know this."""
    columns = schedule.arrays()
    folded = (columns["fold"] != Fold.STORE) & np.isin(columns["src"], senders)
    return set(zip(*(columns[name][folded].tolist() for name in ("step", "src", "dst")), strict=True))


def _texts(rank: int, step: ScheduleStep, folds: set[tuple[int, int, int]]) -> list[str]:
    texts = []
    for send in step.sends:
        where = "" if send.buffer == Buffer.OUTPUT else f"{send.buffer.name.lower()} "
        span = f"{where}{send.start}:{send.start + send.count}" if send.count else "–"
        fold = " +" * ((step.number, rank, send.peer) in folds)
        texts.append(f"→{send.peer} {span}{fold}")
    return texts
