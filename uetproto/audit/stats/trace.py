"""A trace has the points of the plot of a flow, PSNs over time; of many points only some are kept."""

from array import array
from collections.abc import Iterator

MOST = 4_096
"""Greatest number of points that a series keeps; if there were more, the series keeps at least half as many."""
_BOUND = 1 << 63


def can_be_drawn(time_ns: int) -> bool:
    """Return whether a time fits 64 bits, as the times of a series must."""
    return -_BOUND <= time_ns < _BOUND


class Series:
    """A series has points in the order of time, without those whose times do not fit 64 bits. Whenever there are `MOST`
    points, every second point is dropped, and from then on only every second point is added."""

    __slots__ = ("_places", "_step", "_times", "count", "left_out")

    def __init__(self) -> None:
        self._times, self._places = array("q"), array("q")
        self._step = 1
        self.count = 0
        """Number of points that were added, including those that were dropped."""
        self.left_out = 0
        """Number of points that were left out because of their times."""

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
    """A trace has series of times at which PSNs were sent, resent, trimmed, acknowledged and refused. The place of a
    PSN is its distance from the first PSN."""

    __slots__ = ("_half", "_mask", "_place", "_psn", "acknowledged", "refused", "resent", "sent", "trimmed")

    def __init__(self, mask: int) -> None:
        """Begin a trace. `mask`: the bits of a PSN."""
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
        """Number of points that were left out because of their times."""
        return sum(series.left_out for series in self.series)

    def add(self, series: Series, psn: int, time_ns: int) -> None:
        """Add a point to a series; places continue to increase when PSNs wrap."""
        if self._psn is None:
            self._psn = psn
        distance = ((psn - self._psn + self._half) & self._mask) - self._half
        series.add(time_ns, self._place + distance)
        if distance > 0:
            self._psn = psn
            self._place += distance
