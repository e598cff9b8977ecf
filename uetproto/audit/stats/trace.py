# SPDX-License-Identifier: GPL-2.0-only
"""This module has the series of points from which the PSNs of a flow are plotted over time. The number of points that
a series keeps is bounded."""

from array import array
from collections.abc import Iterator

MOST = 4_096
"""Number of points at which a series drops every second point. A series that has reached this number keeps at least
half of it."""
_BOUND = 1 << 63


def can_be_drawn(time_ns: int) -> bool:
    """Return whether a time in nanoseconds fits a signed integer of 64 bits, so that a series can store it."""
    return -_BOUND <= time_ns < _BOUND


class Series:
    """A series keeps points in the order in which they were added. A point is a time in nanoseconds and the distance of
    a PSN from the first PSN. A point whose time does not fit 64 bits is only counted. Whenever a series has `MOST`
    points, it drops every second point. From then on it keeps only every second one of the points that it would have
    kept before."""

    __slots__ = ("_places", "_step", "_times", "count", "left_out")

    def __init__(self) -> None:
        self._times, self._places = array("q"), array("q")
        self._step = 1
        self.count = 0
        """Number of points that were added, including those that were not kept."""
        self.left_out = 0
        """Number of points that were left out because their times do not fit 64 bits."""

    def add(self, time_ns: int, place: int) -> None:
        if not -_BOUND <= time_ns < _BOUND:
            self.left_out += 1
            return
        if self.count % self._step == 0:
            self._times.append(time_ns)
            self._places.append(place)
            if len(self._times) == MOST:
                self._times, self._places = self._times[::2], self._places[::2]
                self._step *= 2
        self.count += 1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._times, self._places, strict=True)

    def __len__(self) -> int:
        return len(self._times)


class Trace:
    """A trace has five series of the PSNs of a flow: those that were sent, resent, trimmed, acknowledged and refused. A
    point of a series has the time and the place of a PSN. The place is the distance of the PSN from the first PSN of
    the flow."""

    __slots__ = ("_half", "_mask", "_place", "_psn", "acknowledged", "refused", "resent", "sent", "trimmed")

    def __init__(self, mask: int) -> None:
        """Begin a trace; `mask` has a 1 for each bit of a PSN."""
        self._mask, self._half = mask, mask // 2 + 1
        self._psn: int | None = None
        self._place = 0
        self.sent, self.resent, self.trimmed = Series(), Series(), Series()
        self.acknowledged, self.refused = Series(), Series()

    @property
    def series(self) -> tuple[Series, ...]:
        return self.sent, self.resent, self.trimmed, self.acknowledged, self.refused

    @property
    def points(self) -> int:
        return sum(map(len, self.series))

    @property
    def left_out(self) -> int:
        """Number of points of all series that were left out because their times do not fit 64 bits."""
        return sum(series.left_out for series in self.series)

    def add(self, series: Series, psn: int, time_ns: int) -> None:
        """Add a PSN and its time in nanoseconds to a series. The place of the PSN continues to increase when PSNs
        wrap."""
        if self._psn is None:
            self._psn = psn
        distance = ((psn - self._psn + self._half) & self._mask) - self._half
        series.add(time_ns, self._place + distance)
        if distance > 0:
            self._psn = psn
            self._place += distance
