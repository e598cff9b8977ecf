# SPDX-License-Identifier: GPL-2.0-only
"""This module collects what a page shows: rows of the ladder, series of the plots, findings, and measurements."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

from uetproto.cli.ladder.rows import TONES, Arrow, Host, LadderChoice, LadderTally
from uetproto.cli.ladder.taps import LEARNED, Places, learned, merged
from uetproto.report.packets import PagePackets, tables_of
from uetproto.wire.words.summary import address

ROWS = 50_000
"""Packets that a page has, unless the caller says otherwise."""
_LISTED = 1_000
"""Findings, flows and messages that a page lists, each."""

ReadArrows = Callable[[LadderChoice, LadderTally], Iterator[Arrow]]
"""Type of a function that reads the capture once more, and yields its arrows."""


def collect(
    read: ReadArrows, several: bool, rows: int = ROWS, windows: Mapping[int, int] | None = None
) -> dict[str, Any]:  # fmt: skip
    """Return what the page has of packets. `several` says whether the capture has several interfaces, whose copies of a
    packet are one row. `windows` has the windows of NSCC by the numbers of packets. At most `rows` rows are taken;
    `cut` says whether there are more."""
    places = Places()
    if several:
        places = learned(islice(read(LadderChoice(merged=True), LadderTally()), LEARNED))
    packets = PagePackets(rows * 16, windows)
    found: Iterator[Arrow] = read(LadderChoice(merged=several, details=packets), LadderTally())
    if several:
        found = merged(found, places)
    arrows = list(islice(found, rows + 1))
    cut = len(arrows) > rows
    del arrows[rows:]
    arrows.sort(key=lambda one: one.time_ns)
    return {
        "cut": cut,
        **_rows(arrows, packets, places),
        "series": [*_flights(arrows, packets), *_between(arrows, packets)],
    }


def _rows(arrows: list[Arrow], packets: PagePackets, places: Places) -> dict[str, Any]:
    lanes: dict[Host, int] = {}
    for host in places.lanes:
        if any(host in (one.src, one.dst, *one.via) for one in arrows):
            lanes.setdefault(host, len(lanes))
    for one in arrows:
        for host in (one.src, *one.via, one.dst):
            lanes.setdefault(host, len(lanes))
    names = places.names
    tones = [tone for tone in TONES if any(one.tone == tone for one in arrows)]
    whys: dict[str, int] = {}
    seen_at: dict[str, int] = {}
    shown = [packets.shown.get(one.index + 1) for one in arrows]
    return {
        "hosts": [names.get(host) or address(*host) for host in lanes],
        "tones": tones,
        "words": [TONES[tone][1] for tone in tones],
        "time": [one.time_ns for one in arrows],
        "number": [one.index + 1 for one in arrows],
        "src": [lanes[one.src] for one in arrows],
        "dst": [lanes[one.dst] for one in arrows],
        "tone": [tones.index(one.tone) for one in arrows],
        "text": [one.text for one in arrows],
        "why": [whys.setdefault(one.why, len(whys)) for one in arrows],
        "whys": list(whys),
        "columns": {at: dict(one.columns) for at, one in enumerate(arrows) if one.columns},
        "via": {at: [[lanes[host]] for host in one.via] for at, one in enumerate(arrows) if one.via},
        "seen": {
            at: [[seen_at.setdefault(copy.place, len(seen_at)), copy.time_ns, copy.number] for copy in one.seen]
            for at, one in enumerate(arrows)
            if len(one.seen) > 1
        },
        "places": list(seen_at),
        "rows": {
            number: at for at, one in enumerate(arrows)
            for number in ([copy.number for copy in one.seen] or [one.index + 1])
        },
        "shape": [-1 if one is None else one.shape for one in shown],
        "bytes": ["" if one is None else one.data for one in shown],
        "size": [0 if one is None else one.size for one in shown],
        "flow": [-1 if one is None else one.flow for one in shown],
        "psn": [None if one is None else one.psn for one in shown],
        "shapes": [list(map(list, shape)) for shape in packets.shapes],
        "forms": tables_of(packets.shapes),
        "flows": list(packets.flows),
    }  # fmt: skip


def _flights(arrows: list[Arrow], packets: PagePackets) -> Iterator[dict[str, Any]]:
    """Yield what each flow has in flight, and its window, at each packet that its sender sent; the flows with most
    packets first."""
    points: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    windows: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in arrows:
        shown = packets.shown.get(one.index + 1)
        if shown is not None and shown.flight is not None:
            points[shown.flow].append((one.time_ns, shown.flight))
            if one.index + 1 in packets.windows:
                windows[shown.flow].append((one.time_ns, packets.windows[one.index + 1]))
    names = list(packets.flows)
    for flow, found in sorted(points.items(), key=lambda item: -len(item[1]))[:64]:
        yield _series(f"in flight: {names[flow]}", found)
        if flow in windows:
            yield _series(f"window of NSCC: {names[flow]}", windows[flow])


def _between(arrows: list[Arrow], packets: PagePackets) -> Iterator[dict[str, Any]]:
    """Yield how many bytes are between two places where packets were seen, one after the other: on the links and in
    the queues there."""
    steps: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for one in arrows:
        shown = packets.shown.get(one.index + 1)
        for before, after in pairwise(one.seen):
            size = 0 if shown is None else shown.size
            steps[before.place, after.place] += [(before.time_ns, size), (after.time_ns, -size)]
    for (place, following), found in sorted(steps.items(), key=lambda item: -len(item[1]))[:64]:
        there, points = 0, []
        for time_ns, step in sorted(found):
            there += step
            points.append((time_ns, there))
        yield _series(f"between {place} and {following}", points)


def _series(name: str, points: Sequence[tuple[int, int]]) -> dict[str, Any]:
    return {"name": name, "time": [time_ns for time_ns, _ in points], "value": [value for _, value in points]}


def listed(found: Iterable[Any]) -> tuple[list[Any], int]:
    """Return the first items that a page lists, and how many there are more."""
    items = list(found)
    return items[:_LISTED], max(0, len(items) - _LISTED)
