# SPDX-License-Identifier: GPL-2.0-only
"""This module draws the studies of `uetproto fabric` as PNG or SVG: completion times, windows and queues.

matplotlib is imported only when a picture is drawn.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from uetproto.fabric.samples import ABSENT, SampleSet

KINDS = ("fct", "cwnd", "queue")
"""What can be drawn: the distribution of the flow completion times, and windows and queues over time."""
MOST_PANELS = 8
"""Number of variants whose windows or queues are drawn."""
_LINES = 8
_MICRO, _KIB = 10**6, 1024


class Drawable(NamedTuple):
    """This record has what is drawn of one variant: the times of all its seeds, the samples of the first one."""

    name: str
    times: list[int]
    """Flow completion times in picoseconds."""
    windows: SampleSet | None
    queues: SampleSet | None


def plot(found: Sequence[Drawable], kinds: Sequence[str], path: str, title: str) -> None:
    """Draw the variants, and write the picture to `path`: a row of panels for each kind."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "uetproto", "svg.fonttype": "none", "font.size": 9}):
        wide = len(found) if set(kinds) - {"fct"} else 1
        figure = Figure(figsize=(max(8, 4 * wide), 3.2 * len(kinds) + 0.6), dpi=120, layout="constrained")
        grid = figure.add_gridspec(len(kinds), wide)
        for row, kind in enumerate(kinds):
            if kind == "fct":
                _times(figure.add_subplot(grid[row, :]), found)
            else:
                _over_time(figure, grid, row, kind, found)
        figure.suptitle(title)
        metadata = {"Date": None} if path.lower().endswith(".svg") else {"Software": None}  # the same bytes each time
        figure.savefig(path, metadata=metadata)


def _times(axes: Any, found: Sequence[Drawable]) -> None:
    """Draw the share of the flows that had ended after each time."""
    for one in found:
        ordered = sorted(one.times)
        shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
        axes.step([time / _MICRO for time in ordered], shares, where="post", label=one.name)
    axes.set_xlabel("flow completion time, µs")
    axes.set_ylabel("share of the flows")
    axes.set_ylim(0, 1.02)
    axes.grid(alpha=0.3)
    axes.legend()


def _over_time(figure: Any, grid: Any, row: int, kind: str, found: Sequence[Drawable]) -> None:
    """Draw a panel for each variant, with equal axes."""
    first = None
    for column, one in enumerate(found):
        axes = figure.add_subplot(grid[row, column], sharex=first, sharey=first)
        first = first or axes
        samples = one.windows if kind == "cwnd" else one.queues
        names = [] if samples is None else samples.longest(_LINES)
        for name in names:
            assert samples is not None
            points = [
                (time / _MICRO, value / _KIB)
                for time, value in zip(samples.times, samples.series[name], strict=True) if value != ABSENT
            ]  # fmt: skip
            axes.plot(*zip(*points, strict=True), linewidth=1, label=name)
        left_out = "" if samples is None or len(samples.series) <= _LINES else f", {_LINES} of {len(samples.series)}"
        axes.set_title(f"{one.name}: {'windows' if kind == 'cwnd' else 'longest queues'}{left_out}")
        axes.set_xlabel("µs")
        axes.grid(alpha=0.3)
        if names:
            axes.legend(fontsize=7)
        else:
            axes.text(0.5, 0.5, "none", ha="center", transform=axes.transAxes)
    if first is not None:
        first.set_ylabel("KiB")
        first.set_ylim(bottom=0)
