# SPDX-License-Identifier: GPL-2.0-only
"""This module counts times in a histogram whose buckets grow with the value, so that times are exact to 1 %. Histograms
can be merged."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from uetproto.wire.flow_crc import NOTHING

_BITS = 6
"""Divides a power of two into 2**6 buckets: the middle of a bucket differs by at most 1/128 from its values."""
_EXACT = 2 << _BITS
"""Bounds the values that have a bucket of their own."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """This record has the quantiles of a histogram in nanoseconds. All are 0 if nothing was measured."""

    count: int = 0
    p50: int = 0
    p90: int = 0
    p99: int = 0
    max: int = 0

    def as_dict(self) -> dict[str, int]:
        return {"count": self.count, "p50_ns": self.p50, "p90_ns": self.p90, "p99_ns": self.p99, "max_ns": self.max}


_NO_QUANTILES = Quantiles()


class Times:
    """This class is a histogram: it counts measured times, in nanoseconds, by bucket. It commonly has some dozen
    buckets, and at most some thousand."""

    __slots__ = ("_buckets", "count", "max", "min")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = NOTHING
        """Number of times by bucket. It is made with the second value, as many histograms have only one."""
        self.count = self.min = self.max = 0

    @property
    def buckets(self) -> Mapping[int, int]:
        """Return the number of times by bucket."""
        return self._buckets or ({_bucket_of(self.max): self.count} if self.count else {})

    def add(self, ns: int, number: int = 1) -> None:
        """Add a measured time in nanoseconds, which is at least 0, as often as `number` says."""
        if not self.count:
            self.min = self.max = ns
        elif self._buckets or ns != self.max:
            self._count({_bucket_of(ns): number})
            self.min, self.max = min(self.min, ns), max(self.max, ns)
        self.count += number

    def _count(self, found: Mapping[int, int]) -> None:
        buckets = self._buckets = self._buckets or dict(self.buckets)
        for bucket, number in found.items():
            buckets[bucket] = buckets.get(bucket, 0) + number

    def merge(self, other: "Times") -> None:
        """Add all times of another histogram to this one."""
        if other.min == other.max:
            if other.count:
                self.add(other.max, other.count)
            return
        self._count(other.buckets)
        self.min = min(self.min, other.min) if self.count else other.min
        self.max = max(self.max, other.max)
        self.count += other.count

    def quantile(self, part: float) -> int:
        """Return the time in nanoseconds that a share `part` (0 to 1) of all measured times does not exceed, or 0 if
        nothing was measured."""
        wanted = ceil(part * self.count)
        buckets = self.buckets
        for bucket in sorted(buckets):
            wanted -= buckets[bucket]
            if wanted <= 0:
                return min(max(middle(bucket), self.min), self.max)
        return 0

    def curve(self) -> list[tuple[int, float]]:
        """Return times in ascending order, each with the share of all times that does not exceed it."""
        points = []
        so_far = 0
        buckets = self.buckets
        for bucket in sorted(buckets):
            so_far += buckets[bucket]
            points.append((min(max(middle(bucket), self.min), self.max), so_far / self.count))
        return points

    def quantiles(self) -> Quantiles:
        if not self.count:
            return _NO_QUANTILES
        if self.min == self.max:
            return Quantiles(self.count, self.max, self.max, self.max, self.max)
        return Quantiles(self.count, self.quantile(0.5), self.quantile(0.9), self.quantile(0.99), self.max)


def _bucket_of(ns: int) -> int:
    shift = ns.bit_length() - _BITS - 1
    return (shift << _BITS) + (ns >> shift) if shift > 0 else ns


def middle(bucket: int) -> int:
    """Return the middle of a bucket in nanoseconds. It is taken for every time in the bucket."""
    if bucket < _EXACT:
        return bucket
    shift = (bucket >> _BITS) - 1
    return (bucket - (shift << _BITS) << shift) + ((1 << shift) - 1) // 2
