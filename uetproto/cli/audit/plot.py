# SPDX-License-Identifier: GPL-2.0-only
"""This module draws a flow of a capture as PNG or SVG: its PSNs over time, and the distributions of its response
times.

This module imports matplotlib only when there is something to draw.
"""

from collections.abc import Sequence
from typing import Any

import click

from uetproto.audit.finding import Finding
from uetproto.audit.stats.meters import Drawn, Measurements
from uetproto.audit.stats.trace import Series, can_be_drawn
from uetproto.cli.audit.text import flow_words
from uetproto.cli.outputs import check_matplotlib, check_plot
from uetproto.cli.terminal import printable
from uetproto.errors import LocalError
from uetproto.wire.words.summary import count

_LISTED = 16
"""Number of PDCIDs that an error message lists."""
_MARKED = 8
"""Number of findings that are marked in the picture."""
_WIDE = 20
"""Times that differ by more than this factor are drawn on a logarithmic scale."""


def check(path: str) -> None:
    """Check, before anything is read, that the picture `path` can be drawn. Raises `LocalError` if it cannot."""
    check_plot(path)
    check_matplotlib(path)


def plot(
    measured: Sequence[Measurements], path: str, number: int | None = None, findings: Sequence[Finding] = ()
) -> None:
    """Draw the flow with the most findings, and the opposite direction of its PDC. Of flows with equally many findings,
    draw the one with the most packets.

    Points and marks whose times do not fit 64 bits are left out, and their number is printed on standard error. Raises
    `LocalError` if there is no flow, or none with the PDCID or queue pair `number`.
    """
    place, flow = _chosen(measured, number, findings)
    back = [other for other in place.drawn if _is_return(other, flow)]
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "uetproto", "svg.fonttype": "none", "font.size": 9}):
        flows = [flow, *back[:1]]
        figure = Figure(figsize=(12, 4.5 * len(flows)), dpi=120, layout="constrained")
        panels = figure.subplots(len(flows), 2, squeeze=False, width_ratios=(2, 1))
        start, end = _span(place, flows)
        unit, name = _unit(end - start)
        unmarked = 0
        for (course, times), one in zip(panels, flows, strict=True):
            _course(course, one, start, unit, name)
            unmarked += _mark(course, _of(one, place, findings), start, unit)
            _times(times, one)
        figure.suptitle(", ".join(filter(None, (place.file, place.interface))))
        metadata = {"Date": None} if path.lower().endswith(".svg") else {"Software": None}  # the same bytes each time
        figure.savefig(path, metadata=metadata)
    left_out = {"point": sum(one.trace.left_out for one in flows), "mark": unmarked}
    told = ", ".join(count(number, what) for what, number in left_out.items() if number)
    if told:
        click.echo(f"uetproto: {printable(path)}: not drawn, as the time does not fit 64 bits: {told}", err=True)


def _span(place: Measurements, flows: Sequence[Drawn]) -> tuple[int, int]:
    """Return the first and last time of a capture, or, where these do not fit 64 bits, of the points that are drawn."""
    start, end = place.first_ns or 0, place.last_ns
    if can_be_drawn(start) and can_be_drawn(end):
        return start, end
    times = [time_ns for one in flows for series in one.trace.series for time_ns, _ in series]
    return min(times, default=0), max(times, default=0)


def _chosen(
    measured: Sequence[Measurements], number: int | None, findings: Sequence[Finding]
) -> tuple[Measurements, Drawn]:
    found = [
        (place, flow)
        for place in measured
        for flow in place.drawn
        if number is not None or flow.trace.points or flow.trace.left_out
    ]
    if not found:
        check_number(measured, number)
        raise LocalError("--plot", "there is nothing to draw: no PDC, no queue pair", id="unknown-pdc")
    return max(found, key=lambda pair: (len(_of(pair[1], pair[0], findings)), pair[1].packets))


def _of(drawn: Drawn, place: Measurements, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings about a flow, in the capture that shows it."""
    return [
        finding for finding in findings
        if drawn.flow.items() <= finding.flow.items()
        and any((each.file, each.interface) == (place.file, place.interface) for each in finding.everywhere)
    ]  # fmt: skip


def _mark(axes: Any, findings: Sequence[Finding], start: int, unit: int) -> int:
    """Draw a line where a rule was violated for the first time, with its name; return how many were left out."""
    first: dict[str, int] = {}
    for finding in findings:
        first.setdefault(finding.rule.id, finding.first_time_ns)
    marks = list(first.items())[:_MARKED]
    drawn = [(rule, time_ns) for rule, time_ns in marks if can_be_drawn(time_ns)]
    for rule, time_ns in drawn:
        at = (time_ns - start) / unit
        axes.axvline(at, color="C3", linestyle=":", linewidth=1)
        axes.annotate(rule, (at, 1), xycoords=("data", "axes fraction"), rotation=90, va="top", ha="right", size=7)
    return len(marks) - len(drawn)


def check_number(measured: Sequence[Measurements], number: int | None) -> None:
    """Check that a flow has the PDCID or queue pair `number`. Raises `LocalError` if no flow has it. If `number` is
    None, nothing is checked."""
    if number is None or any(place.flows.kept for place in measured):
        return
    known = sorted({one for place in measured for one in place.unwanted})
    listed = ", ".join(map(str, known[:_LISTED])) + (", …" if len(known) > _LISTED else "")
    raise LocalError(
        f"--pdc {number}", f"there is none; there {f'are {listed}' if known else 'is no PDC, no queue pair'}",
        id="unknown-pdc"
    )  # fmt: skip


def _is_return(other: Drawn, drawn: Drawn) -> bool:
    """Return whether a flow is the opposite direction of the same PDC."""
    turned = {"src": "dst", "dst": "src", "spdcid": "dpdcid", "dpdcid": "spdcid"}
    return drawn.kind == other.kind == "pdc" and all(
        other.flow.get(name) == drawn.flow.get(back) for name, back in turned.items()
    )


def _course(axes: Any, drawn: Drawn, start: int, unit: int, name: str) -> None:
    trace = drawn.trace
    if len(trace.acknowledged):
        axes.step(
            *_points(trace.acknowledged, start, unit), where="post", color="C2", linewidth=1, label="acknowledged"
        )
    for series, mark, colour, label in (
        (trace.refused, "+", "C4", "refused"), (trace.sent, ".", "C0", "sent"),
        (trace.resent, "x", "C3", "sent again"), (trace.trimmed, "v", "C1", "trimmed"),
    ):  # fmt: skip
        if len(series):
            axes.plot(*_points(series, start, unit), mark, color=colour, markersize=4, label=_label(series, label))
    axes.set_title(flow_words(drawn.flow))
    axes.set_xlabel(f"time, {name}")
    axes.set_ylabel("PSN behind the first")
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend()


def _label(series: Series, text: str) -> str:
    """Return the label of a series, which says so if the picture has fewer points than there were packets."""
    return text if len(series) == series.count else f"{text} ({len(series):,} of {series.count:,})"


def _points(series: Series, start: int, unit: int) -> tuple[list[float], list[int]]:
    return [(time_ns - start) / unit for time_ns, _ in series], [place for _, place in series]


def _times(axes: Any, drawn: Drawn) -> None:
    """Draw the cumulative distributions of the times of requests and of messages."""
    curves = [
        (label, times)
        for label, times in (("request to ACK", drawn.answered), ("first packet to last response", drawn.latency))
        if times.count
    ]
    unit, name = _unit(max((times.max for _, times in curves), default=0))
    shortest = min((times.min for _, times in curves), default=0)
    for label, times in curves:
        points = [(times.min / unit, 0.0), *((ns / unit, part) for ns, part in times.curve())]
        axes.step(*zip(*points, strict=True), where="post", linewidth=1, label=f"{label}, {times.count:,}")
    if shortest and max(times.max for _, times in curves) > _WIDE * shortest:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_title("how long it took")
    axes.set_xlabel(f"time, {name}")
    axes.set_ylabel("part that took no longer")
    axes.set_ylim(0, 1.02)
    axes.grid(alpha=0.3)
    if curves:
        axes.legend(loc="lower right")


def _unit(longest: int) -> tuple[int, str]:
    for unit, name in ((10**9, "s"), (10**6, "ms"), (10**3, "µs")):
        if longest >= 10 * unit:
            return unit, name
    return (1, "ns") if longest < 1_000 else (10**3, "µs")
