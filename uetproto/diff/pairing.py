# SPDX-License-Identifier: GPL-2.0-only
"""This module finds which conversation of one capture is which of the other, and how far their PSNs are apart."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from uetproto.diff.conversations import Conversation, Stream
from uetproto.diff.normal import MOST, OWN, PEER

_COMMON = 8
"""Number of conversations that may have an equal packet; if more have it, it tells nothing about any of them."""
_SAMPLE = 4096
"""Number of packets of a direction by which a distance is judged."""
_VOTED = 4
_SURE = 0.9
"""Share of the packets that a distance of 0 must explain, so that no other is looked for."""

WHOSE = tuple(tuple(shape // 3**at % 3 for at in range(MOST)) for shape in range(3**MOST))
"""Whose numbers the PSNs of a packet count, by its shape."""


@dataclass(slots=True)
class ConversationPair:
    """This class is a conversation in both captures; one of them may lack it."""

    a: Conversation | None
    b: Conversation | None
    is_flipped: bool = False
    """Whether the first direction of `a` is the second one of `b`."""
    distances: list[int] = field(default_factory=lambda: [0, 0])
    """What is subtracted from the PSNs of `b` of each direction of `a`."""
    _ids: list[Counter[tuple[int, int]]] = field(default_factory=lambda: [Counter(), Counter()])
    """How often a PDCID or queue pair of `a` stands where one of `b` stands, of the sender of each direction."""

    def of_b(self, direction: int) -> int:
        """Return the direction of `b` that is this direction of `a`."""
        return 1 - direction if self.is_flipped else direction

    def stream(self, direction: int) -> tuple[Stream, Stream]:
        """Return the packets of a direction in both captures."""
        return (
            Stream() if self.a is None else self.a.streams[direction],
            Stream() if self.b is None else self.b.streams[self.of_b(direction)],
        )

    @property
    def mask(self) -> int:
        one = self.a or self.b
        return (1 << (32 if one is None else one.bits)) - 1

    def note_ids(self, direction: int, a: Sequence[int], b: Sequence[int]) -> None:
        """Note the PDCIDs or queue pairs, of sender and receiver, of a packet that both captures have."""
        for way, one, other in zip((direction, 1 - direction), a, b, strict=True):
            if one and other:
                self._ids[way][one, other] += 1

    def expected_id(self, direction: int, id: int) -> int | None:
        """Return what stands in `b` for a PDCID or queue pair of the sender of a direction in `a`, or None."""
        return _most({other: number for (one, other), number in self._ids[direction].items() if one == id})

    def is_same_id(self, direction: int, a: int, b: int) -> bool:
        """Return whether a PDCID or queue pair of one capture is that of the other."""
        back = _most({one: number for (one, other), number in self._ids[direction].items() if other == b})
        expected = self.expected_id(direction, a)
        return a == b if expected is None and back is None else expected == b and back == a

    def has_strange_ids(self) -> bool:
        """Return whether some packet that both captures have has a PDCID or queue pair that is not the expected one."""
        return any(not self.is_same_id(way, *ids) for way in range(2) for ids in self._ids[way])

    def are_same_ids(self, direction: int, a: Sequence[int], b: Sequence[int]) -> bool:
        """Return whether the PDCIDs or queue pairs, of sender and receiver, of a packet are those of the other one."""
        ways = zip((direction, 1 - direction), a, b, strict=True)
        return all(not one or not other or self.is_same_id(way, one, other) for way, one, other in ways)

    def keys(self, stream: Stream, direction: int, of_b: bool) -> Iterator[tuple[int, ...]]:
        """Yield what identifies each packet of a direction; equal packets of both captures have equal keys."""
        mask = self.mask
        own, peer = (self.distances[direction], self.distances[1 - direction]) if of_b else (0, 0)
        less = [tuple({OWN: own, PEER: peer}.get(whose, 0) for whose in shape) for shape in WHOSE]
        psns = stream.psns
        for at, (body, shape) in enumerate(zip(stream.bodies, stream.shapes, strict=True)):
            x, y, z = less[shape]
            first = MOST * at
            yield body, shape, psns[first] - x & mask, psns[first + 1] - y & mask, psns[first + 2] - z & mask


def _most(votes: dict[int, int]) -> int | None:
    return max(votes, key=lambda one: votes[one], default=None)


def paired(a: list[Conversation], b: list[Conversation]) -> list[ConversationPair]:
    """Return the conversations of two captures in pairs, with the distances of their PSNs.

    Conversations between the same ends belong together if they have most equal packets in common; among equals, those
    with the same PDCID or queue pair, then those that stand nearer to each other.
    """
    groups: defaultdict[tuple[str, frozenset[object]], tuple[list[Conversation], list[Conversation]]]
    groups = defaultdict(lambda: ([], []))
    for side, found in enumerate((a, b)):
        for one in found:
            groups[one.kind, frozenset(one.ends)][side].append(one)
    pairs = []
    for of_a, of_b in groups.values():
        for first, second in _matched(of_a, of_b):
            pair = ConversationPair(first, second)
            if first is not None and second is not None:
                pair.is_flipped = first.ends != second.ends
                pair.distances = [_distance(pair, direction) for direction in range(2)]
            pairs.append(pair)
    return pairs


def _matched(a: list[Conversation], b: list[Conversation]) -> Iterator[tuple[Conversation | None, Conversation | None]]:
    if len(a) == len(b) == 1:
        yield a[0], b[0]
        return
    having: defaultdict[int, list[int]] = defaultdict(list)
    for at, one in enumerate(b):
        for body in _bodies(one):
            if len(having[body]) <= _COMMON:
                having[body].append(at)
    ranked = []
    for at, one in enumerate(a):
        votes = Counter(other for body in _bodies(one) if 0 < len(having[body]) <= _COMMON for other in having[body])
        for other, number in votes.items():
            ranked.append((-number, not _is_named_alike(one, b[other]), abs(at - other), at, other))
    taken_a: set[int] = set()
    taken_b: set[int] = set()
    for *_, at, other in sorted(ranked):
        if at not in taken_a and other not in taken_b:
            taken_a.add(at)
            taken_b.add(other)
            yield a[at], b[other]
    left_a = [one for at, one in enumerate(a) if at not in taken_a]
    left_b = [one for at, one in enumerate(b) if at not in taken_b]
    yield from zip_longest(left_a, left_b)


def _bodies(one: Conversation) -> set[int]:
    return {*one.streams[0].bodies[:_SAMPLE], *one.streams[1].bodies[:_SAMPLE]}


def _is_named_alike(a: Conversation, b: Conversation) -> bool:
    flipped = a.ends != b.ends
    return all(a.id(way) == b.id(1 - way if flipped else way) for way in range(2))


def _distance(pair: ConversationPair, direction: int) -> int:
    """Return how far the PSNs of a direction are apart in both captures: the distance by which most packets agree."""
    assert pair.a is not None
    assert pair.b is not None
    a, b = list(_points(pair.a, direction)), list(_points(pair.b, pair.of_b(direction)))
    if not a or not b:
        return 0
    there = Counter(b)
    least = min(len(a), len(b))
    if _agreeing(a, there, 0, pair.mask) >= _SURE * least:
        return 0
    votes: Counter[int] = Counter()
    of_b = _by_body(b)
    for body, values in _by_body(a).items():
        for mine, other in zip(values[:_COMMON], of_b.get(body, ())[:_COMMON], strict=False):
            votes[other - mine & pair.mask] += 1
    tried = dict.fromkeys((0, b[0][1] - a[0][1] & pair.mask, *(one for one, _ in votes.most_common(_VOTED))))
    return max(tried, key=lambda distance: _agreeing(a, there, distance, pair.mask))


def _points(one: Conversation, direction: int) -> Iterator[tuple[int, int]]:
    """Yield what a packet carries, and a PSN of it that the sender of this direction counts."""
    for way, wanted in ((direction, OWN), (1 - direction, PEER)):
        stream = one.streams[way]
        number = 0
        for at, shape in enumerate(stream.shapes):
            for place, whose in enumerate(WHOSE[shape]):
                if whose == wanted:
                    yield stream.bodies[at], stream.psns[MOST * at + place]
                    number += 1
            if number >= _SAMPLE:
                break


def _by_body(points: list[tuple[int, int]]) -> dict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for body, value in points:
        found[body].append(value)
    return found


def _agreeing(a: list[tuple[int, int]], b: Counter[tuple[int, int]], distance: int, mask: int) -> int:
    """Return how many packets both captures have if PSNs differ by `distance`."""
    mine = Counter((body, value + distance & mask) for body, value in a)
    return sum(min(number, b[key]) for key, number in mine.items() if key in b)
