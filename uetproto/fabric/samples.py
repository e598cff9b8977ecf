# SPDX-License-Identifier: GPL-2.0-only
"""This module takes samples of a study over time: windows of the senders, and lengths of the queues."""

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from uetproto.engine.cc.context import Ccc

if TYPE_CHECKING:
    from uetproto.fabric.study import Study

MOST = 1024
"""Number of samples at which every second one is dropped, and the interval doubles."""
ABSENT = -1
"""Value of a sample that was taken before there was a window or queue."""


class SampleSet:
    """A sample set has series of whole numbers that were sampled at the same times.

    A series begins with its first value that is not 0. Whenever there are `MOST` samples, every second one is dropped.
    """

    def __init__(self, interval: int) -> None:
        """`interval` is the time between samples in picoseconds."""
        self.interval = interval
        self.times = array("q")
        """Picoseconds."""
        self.series: dict[str, array[int]] = {}

    def add(self, time: int, values: Iterable[tuple[str, int]]) -> None:
        """Add a sample of each series."""
        if len(self.times) == MOST:
            self.times = self.times[::2]
            self.series = {name: one[::2] for name, one in self.series.items()}
            self.interval *= 2
            if time % self.interval:
                return
        known = len(self.times)
        self.times.append(time)
        for name, value in values:
            one = self.series.get(name)
            if one is None:
                if not value:
                    continue
                one = self.series[name] = array("q", [ABSENT]) * known
            one.append(value)

    def rows(self) -> Iterator[tuple[int, str, int]]:
        """Return time, name and value of each sample."""
        for name, one in self.series.items():
            for time, value in zip(self.times, one, strict=True):
                if value != ABSENT:
                    yield time, name, value

    def longest(self, count: int) -> list[str]:
        """Return the names of the `count` series that have the largest values."""
        return sorted(self.series, key=lambda name: -max(self.series[name]))[:count]


class Sampler:
    """A sampler takes samples of a study while it runs."""

    def __init__(self, study: "Study", interval: int) -> None:
        """Sample the windows in bytes, the packets in flight, and the queues in bytes.

        Take the first sample at the beginning, and one every `interval` picoseconds, until all flows have ended."""
        self._study = study
        self._flows = {f"h{flow.source} > h{flow.target}" for flow in study.matrix.flows}
        self.windows, self.flying, self.queues = (SampleSet(interval) for _ in range(3))
        self._sets: tuple[tuple[SampleSet, Callable[[], Iterable[tuple[str, int]]]], ...] = (
            (self.windows, lambda: self._contexts(lambda one: int(one.window))),
            (self.flying, lambda: self._contexts(lambda one: one.inflight_pkts)),
            (self.queues, self._lengths),
        )
        study.clock.at(0, self._take)

    def _take(self, _: object) -> None:
        clock = self._study.clock
        clock.settle()
        for samples, values in self._sets:
            samples.add(clock.now, values())
        if self._study.open and len(clock):  # without another event nothing happens any more
            clock.at(clock.now + self.queues.interval, self._take)

    def _contexts(self, value: Callable[[Ccc], int]) -> Iterator[tuple[str, int]]:
        for name, manager in self._study.managers.items():
            for (peer, _), context in manager.contexts.items():
                if (flow := f"{name} > {self._study.name_of(peer)}") in self._flows:  # a target has contexts, too
                    yield flow, value(context)

    def _lengths(self) -> Iterator[tuple[str, int]]:
        network = self._study.network
        for name, queue in network.queues.items():
            yield f"{network.seats[name].switch.name} > {name}", queue.length
        for name, queue in network.trunks.items():
            yield name, queue.length
