# SPDX-License-Identifier: GPL-2.0-only
"""This module aligns two sequences: it finds the items that both have in the same order, and those that were moved.

First the common beginning and end are taken, then items that each sequence has once, as far as they are in the same
order (patience), and so on between them. Between two such items without any other, short parts are aligned by their
longest common subsequence, and long ones by occurrence.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_CELLS = 40_000
"""Largest product of the lengths of two parts that are aligned by their longest common subsequence."""

Pair = tuple[int, int]


@dataclass(slots=True)
class SequenceAlignment:
    """This class says which item of one sequence is which of another."""

    kept: list[Pair] = field(default_factory=list)
    """Places of equal items, in order in both sequences."""
    moved: list[Pair] = field(default_factory=list)
    """Places of equal items that are not in order."""
    missing: list[int] = field(default_factory=list)
    """Places of items that only the first sequence has."""
    extra: list[int] = field(default_factory=list)
    """Places of items that only the second sequence has."""


def aligned(a: Sequence[int], b: Sequence[int]) -> SequenceAlignment:
    """Return the alignment of two sequences; equal items have equal numbers."""
    found = SequenceAlignment()
    left_a, left_b = [True] * len(a), [True] * len(b)
    for i, j in sorted(_kept(a, b)):
        while i and left_a[i - 1] and a[i - 1] == a[i]:  # of equal items side by side, the last ones are left over
            i -= 1
        while j and left_b[j - 1] and b[j - 1] == b[j]:
            j -= 1
        left_a[i] = left_b[j] = False
        found.kept.append((i, j))
    waiting: defaultdict[int, list[int]] = defaultdict(list)
    for j in range(len(b) - 1, -1, -1):
        if left_b[j]:
            waiting[b[j]].append(j)
    for i, item in enumerate(a):
        if left_a[i]:
            if waiting[item]:
                j = waiting[item].pop()
                left_b[j] = False
                found.moved.append((i, j))
            else:
                found.missing.append(i)
    found.extra = [j for j, left in enumerate(left_b) if left]
    return found


def _kept(a: Sequence[int], b: Sequence[int]) -> Iterator[Pair]:
    """Yield the places of items that both sequences have in the same order."""
    parts = [(0, len(a), 0, len(b))]
    while parts:
        start_a, end_a, start_b, end_b = parts.pop()
        while start_a < end_a and start_b < end_b and a[start_a] == b[start_b]:
            yield start_a, start_b
            start_a, start_b = start_a + 1, start_b + 1
        while start_a < end_a and start_b < end_b and a[end_a - 1] == b[end_b - 1]:
            end_a, end_b = end_a - 1, end_b - 1
            yield end_a, end_b
        if start_a == end_a or start_b == end_b:
            continue
        anchors = _anchors(a, b, (start_a, end_a), (start_b, end_b))
        if not anchors:
            size = (end_a - start_a) * (end_b - start_b)
            way = _common if size <= _CELLS else _by_occurrence
            yield from way(a, b, (start_a, end_a), (start_b, end_b))
            continue
        for i, j in anchors:
            yield i, j
            parts.append((start_a, i, start_b, j))
            start_a, start_b = i + 1, j + 1
        parts.append((start_a, end_a, start_b, end_b))


def _anchors(a: Sequence[int], b: Sequence[int], of_a: Pair, of_b: Pair) -> list[Pair]:
    """Return the places of the items that are once in both parts, as far as they are in the same order."""
    count_a, count_b = Counter(a[slice(*of_a)]), Counter(b[slice(*of_b)])
    place = {b[j]: j for j in range(*of_b) if count_b[b[j]] == 1}
    pairs = [(i, place[a[i]]) for i in range(*of_a) if count_a[a[i]] == 1 and a[i] in place]
    return [pairs[at] for at in increasing([j for _, j in pairs])]


def increasing(values: Sequence[int]) -> list[int]:
    """Return the places of a longest increasing subsequence."""
    tails: list[int] = []
    tops: list[int] = []
    before: list[int] = []
    for at, value in enumerate(values):
        slot = bisect_left(tops, value)
        before.append(tails[slot - 1] if slot else -1)
        if slot == len(tops):
            tops.append(value)
            tails.append(at)
        else:
            tops[slot], tails[slot] = value, at
    found = []
    at = tails[-1] if tails else -1
    while at >= 0:
        found.append(at)
        at = before[at]
    return found[::-1]


def _common(a: Sequence[int], b: Sequence[int], of_a: Pair, of_b: Pair) -> Iterator[Pair]:
    """Yield the longest common subsequence of two short parts."""
    (start_a, end_a), (start_b, end_b) = of_a, of_b
    wide = end_b - start_b
    table = [[0] * (wide + 1)]
    for i in range(end_a - 1, start_a - 1, -1):
        below, row = table[-1], [0] * (wide + 1)
        for at in range(wide - 1, -1, -1):
            row[at] = below[at + 1] + 1 if a[i] == b[start_b + at] else max(below[at], row[at + 1])
        table.append(row)
    i, at = start_a, 0
    while i < end_a and at < wide:
        row, below = table[end_a - i], table[end_a - i - 1]
        if a[i] == b[start_b + at]:
            yield i, start_b + at
            i, at = i + 1, at + 1
        elif below[at] >= row[at + 1]:
            i += 1
        else:
            at += 1


def _by_occurrence(a: Sequence[int], b: Sequence[int], of_a: Pair, of_b: Pair) -> Iterator[Pair]:
    """Yield the first of equal items with the first, the second with the second, as far as they are in order."""
    places: defaultdict[int, list[int]] = defaultdict(list)
    for j in range(of_b[1] - 1, of_b[0] - 1, -1):
        places[b[j]].append(j)
    pairs = [(i, places[a[i]].pop()) for i in range(*of_a) if places[a[i]]]
    yield from (pairs[at] for at in increasing([j for _, j in pairs]))
