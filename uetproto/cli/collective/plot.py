# SPDX-License-Identifier: GPL-2.0-only
"""This module draws the results of `uetproto collective` as PNG or SVG.

If the runs differ in the number of ranks, it draws their times over that number, and otherwise bars for each
algorithm. matplotlib is imported only when a picture is drawn.
"""

from collections.abc import Sequence
from typing import Any

from uetproto.collectives.costs.measure import MeasuredCollective


def plot(found: Sequence[MeasuredCollective], path: str, title: str) -> None:
    """Draw the results, and write the picture to `path`."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "uetproto", "svg.fonttype": "none", "font.size": 9}):
        wide = 12 if any(one.network is not None for one in found) else 8
        figure = Figure(figsize=(wide, 4.5), dpi=120, layout="constrained")
        if len({one.ranks for one in found}) > 1:
            _by_ranks(figure.subplots(), found)
        else:
            _by_algorithm(figure, found)
        figure.suptitle(title)
        metadata = {"Date": None} if path.lower().endswith(".svg") else {"Software": None}  # the same bytes each time
        figure.savefig(path, metadata=metadata)


def _by_algorithm(figure: Any, found: Sequence[MeasuredCollective]) -> None:
    """Draw a row of panels for each operation; with algorithms of the network also the bytes on all links."""
    ops = list(dict.fromkeys(one.op for one in found))
    links = any(one.network is not None for one in found)
    panels = figure.subplots(len(ops), 3 if links else 2, squeeze=False)
    figure.set_figheight(4.5 if len(ops) == 1 else 3 * len(ops))
    for op, (times, sizes, *more) in zip(ops, panels, strict=True):
        rows = [one for one in found if one.op == op]
        what = f"{op}: " if len(ops) > 1 else ""
        _bars(times, rows, f"{what}time, µs", [one.time / 1e6 for one in rows], [
            one.formula.time / 1e6 if one.formula else 0 for one in rows
        ])  # fmt: skip
        _bars(sizes, rows, "bytes that the busiest rank sends", [one.busiest for one in rows], [
            one.formula.bytes_per_rank if one.formula else 0 for one in rows
        ])  # fmt: skip
        for axes in more:
            _bars(axes, rows, "payload on all links, bytes", [one.payload for one in rows], [
                one.promised or 0 for one in rows
            ])  # fmt: skip
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)


def _by_ranks(axes: Any, found: Sequence[MeasuredCollective]) -> None:
    """Draw the time by the number of ranks: a line for the formula, points for measurements."""
    for place, name in enumerate(dict.fromkeys(one.algorithm for one in found)):
        rows = sorted((one for one in found if one.algorithm == name), key=lambda one: one.ranks)
        colour = f"C{place}"
        axes.plot([one.ranks for one in rows], [one.time / 1e6 for one in rows], "o", color=colour, label=name)
        theory = [(one.ranks, one.formula.time / 1e6) for one in rows if one.formula]
        if theory:
            axes.plot(*zip(*theory, strict=True), "-", color=colour, linewidth=1)
    ranks = sorted({one.ranks for one in found})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ranks, [str(rank) for rank in ranks])
    axes.set_xlabel("ranks")
    axes.set_ylabel("time, µs (points: measured, lines: formula)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()


def _names(found: Sequence[MeasuredCollective]) -> list[str]:
    """Return the algorithm of each result, with its transport and congestion control if the results differ in them."""
    transports = {one.transport for one in found}
    controls = {one.cc for one in found}
    return [
        " ".join([one.algorithm, *[one.transport] * (len(transports) > 1), *[one.cc] * (len(controls) > 1)])
        for one in found
    ]


def _bars(
    axes: Any, found: Sequence[MeasuredCollective], title: str, measured: list[float], theory: list[float]
) -> None:
    """Draw two bars for each algorithm: one for the measured value, and one for the value of the formula."""
    places = range(len(found))
    axes.barh([place - 0.2 for place in places], measured, 0.4, label="measured")
    axes.barh([place + 0.2 for place in places], theory, 0.4, label="formula", alpha=0.5)
    axes.set_yticks(list(places), _names(found))
    axes.invert_yaxis()
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.set_title(title)
