# SPDX-License-Identifier: GPL-2.0-only
"""This module has `diff`, which compares two captures."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from uetproto.diff.align import SequenceAlignment, aligned, increasing
from uetproto.diff.conversations import Conversation, Conversations, Stream
from uetproto.diff.fields import Comparer, FieldComparison
from uetproto.diff.normal import MOST_COMPARED, OWN, CapturedPacket, DiffOptions, Normaliser, addresses_of
from uetproto.diff.pairing import WHOSE, ConversationPair, paired
from uetproto.diff.result import Difference, DifferenceKind, DiffResult, conversation_words
from uetproto.errors import LocalError
from uetproto.wire.packet import Packet, inner_from
from uetproto.wire.words.tenants import vni_of

_COMPARED = 40_000
"""Largest number of pairs of packets of which it is looked for whether one is the other, changed."""


def diff(
    a: Iterable[CapturedPacket],
    b: Iterable[CapturedPacket],
    *,
    strict: bool = False,
    ignore: Iterable[str] = (),
    addresses: Mapping[str, str] | None = None,
    most: int = MOST_COMPARED,
) -> DiffResult:
    """Compare two captures, and return what is missing, extra, moved and changed in `b`.

    `a` and `b` are iterated twice, if there is any difference; `uetproto.open` returns such objects. Packets belong
    together by conversation, direction, PSN and content. `strict` also compares times, the order of the whole capture,
    tunnels, ports, PDCIDs, queue pairs, PSNs, checksums and CRCs. `ignore` has fields ("ipv4.ttl") and forms that are
    not compared. `addresses` maps IP addresses of `a` to those that stand for them in `b`. Of at most `most`
    differences the packets are kept and compared field by field. Memory: 40 bytes a packet, and those differences.
    Raises `LocalError` for a field that does not exist, and for what is no address.
    """
    a, b = _Networks(a, strict), _Networks(b, strict)
    options = DiffOptions(strict, tuple(ignore), most, addresses_of(addresses or {}))
    families: dict[str, int] = {}
    sides = []
    for packets, stands_for in ((a, options.addresses), (b, {})):
        found = Conversations(Normaliser(options, stands_for), families, strict)
        found.take(packets)
        sides.append(found)
    work = _Comparison(options)
    for name, of_a, of_b in _interfaces(sides[0].of_interfaces(), sides[1].of_interfaces()):
        for pair in paired(of_a, of_b):
            for direction in range(2):
                work.align(name, pair, direction)
        if strict:
            work.order_all(name)
    result = DiffResult(sides[0].packets, sides[1].packets)
    result.unopened = max(side.unopened for side in sides)
    result.same = work.same
    if work.found:
        result.differences = [*work.finished(a, b)]
        result.same = sides[0].packets - sum(one.number_a is not None for one in result.differences)
    return result


def _interfaces(
    a: dict[str, list[Conversation]], b: dict[str, list[Conversation]]
) -> Iterator[tuple[str, list[Conversation], list[Conversation]]]:
    """Yield the conversations of the interfaces that belong together: by name if both have it, else by place."""
    others = iter([name for name in b if name not in a])
    for name, found in a.items():
        other = name if name in b else next(others, "")
        yield name, found, b.get(other, [])
    for other in others:
        yield other, [], b[other]


class _Networks:
    """This class has the packets of a capture, without the headers of tunnels around them unless these are compared.
    Those in tunnels with different VNIs are as if they were of different interfaces."""

    def __init__(self, packets: Iterable[CapturedPacket], with_tunnels: bool) -> None:
        self._packets, self._with_tunnels = packets, with_tunnels

    def __iter__(self) -> Iterator[CapturedPacket]:
        for seen in self._packets:
            layers = seen.packet.layers
            start = inner_from(layers)
            if start:
                packet = seen.packet if self._with_tunnels else replace(seen.packet, layers=layers[start:])
                vni = vni_of(layers)
                interface = seen.interface if vni is None else f"{seen.interface} VNI {vni}".strip()
                yield _InTunnel(seen.number, interface, seen.time_ns, seen.data, packet)
            else:
                yield seen


class _InTunnel(NamedTuple):
    """This record is a packet in a tunnel. It is a `CapturedPacket`."""

    number: int
    interface: str
    time_ns: int
    data: bytes
    packet: Packet


@dataclass(slots=True)
class _Found:
    """This class is a difference whose packets have not been read again."""

    kind: DifferenceKind
    interface: str
    pair: ConversationPair
    direction: int
    a: int | None
    b: int | None
    """Numbers of the packet in both captures."""
    by: int = 0
    ids: Sequence[int] = (0, 0)
    """PDCIDs or queue pairs of a packet that one capture alone has, those of its sender and its receiver."""
    is_copy: bool = False
    """Whether the other capture has an equal packet, which is taken already."""
    is_at_one_place: bool = False
    """Whether both packets have one PSN of their own, between the same packets, so that one is the other, changed."""


class _Comparison:
    """This class collects the differences of all conversations."""

    def __init__(self, options: DiffOptions) -> None:
        self._options = options
        self.found: list[_Found] = []
        self.same = 0
        self._kept: list[tuple[int, int, ConversationPair, int]] = []
        """Numbers of the packets that both captures have, for the order of the whole."""
        self._aligned: list[tuple[str, ConversationPair, int]] = []

    def align(self, interface: str, pair: ConversationPair, direction: int) -> None:
        """Align the packets of a direction of a conversation."""
        a, b = pair.stream(direction)
        items = _items(pair, direction)
        found = aligned(*items)
        self._aligned.append((interface, pair, direction))
        self.same += len(found.kept)

        def add(kind: DifferenceKind, i: int | None, j: int | None, by: int = 0, is_copy: bool = False) -> None:
            number_a, number_b = (None if at is None else stream.numbers[at] for at, stream in ((i, a), (j, b)))
            ids = a.ids_at(i) if i is not None else b.ids_at(j) if j is not None else (0, 0)
            self.found.append(_Found(kind, interface, pair, direction, number_a, number_b, by, ids, is_copy))

        kept_a, kept_b = [i for i, _ in found.kept], [j for _, j in found.kept]
        for i, j in (*found.kept, *found.moved):
            pair.note_ids(direction, a.ids_at(i), b.ids_at(j))
        for i, j in found.moved:
            add(DifferenceKind.MOVED, i, j, bisect_left(kept_b, j) - bisect_left(kept_a, i))
        there_a, there_b = Counter(items[0]), Counter(items[1])
        copies = {i for i in found.missing if there_b[items[0][i]]}, {j for j in found.extra if there_a[items[1][j]]}
        for i, j, is_at_one_place in self._changed(pair, direction, a, b, found, copies):
            pair.note_ids(direction, a.ids_at(i), b.ids_at(j))
            add(DifferenceKind.CHANGED, i, j, bisect_left(kept_b, j) - bisect_left(kept_a, i))
            self.found[-1].is_at_one_place = is_at_one_place
        for i in found.missing:
            add(DifferenceKind.MISSING, i, None, is_copy=i in copies[0])
        for j in found.extra:
            add(DifferenceKind.EXTRA, None, j, is_copy=j in copies[1])
        if self._options.strict:
            for i, j in found.kept:
                if a.whole[i] != b.whole[j]:
                    add(DifferenceKind.CHANGED, i, j)
                self._kept.append((a.numbers[i], b.numbers[j], pair, direction))

    def _changed(
        self, pair: ConversationPair, direction: int, a: Stream, b: Stream, found: SequenceAlignment,
        copies: tuple[set[int], set[int]],
    ) -> Iterator[tuple[int, int, bool]]:  # fmt: skip
        """Yield the places of packets that may be one packet, changed, and take them out of `found`.

        Those have the same kind of headers and the same PSN, or stand between the same packets, or both whatever their
        headers are. To stand there is not enough for `copies`, packets that the other capture has as well, but not as
        often.
        """
        if not found.missing or not found.extra:
            return
        keys_a = [key[2] for key in pair.keys(a, direction, False)]
        keys_b = [key[2] for key in pair.keys(b, direction, True)]
        gaps_a, gaps_b = [i for i, _ in found.kept], [j for _, j in found.kept]
        gap_of_a = {i: bisect_left(gaps_a, i) for i in found.missing}
        gap_of_b = {j: bisect_left(gaps_b, j) for j in found.extra}
        for by_family, by_psn, by_gap in ((1, 1, 1), (1, 0, 1), (1, 1, 0), (0, 1, 1)):
            waiting: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
            for j in reversed(found.extra):
                if j in copies[1] and not by_psn:
                    continue
                if by_family or WHOSE[b.shapes[j]][0] == OWN:
                    waiting[by_family and b.families[j], by_psn and keys_b[j], by_gap and gap_of_b[j]].append(j)
            taken = []
            for i in found.missing:
                if i in copies[0] and not by_psn:
                    continue
                there = waiting.get((by_family and a.families[i], by_psn and keys_a[i], by_gap and gap_of_a[i]))
                if there and (by_family or WHOSE[a.shapes[i]][0] == OWN):
                    taken.append((i, there.pop(), not by_family))
            yield from taken
            gone_a, gone_b = {i for i, _, _ in taken}, {j for _, j, _ in taken}
            found.missing = [i for i in found.missing if i not in gone_a]
            found.extra = [j for j in found.extra if j not in gone_b]

    def order_all(self, interface: str) -> None:
        """Add the packets that stand elsewhere in the whole capture, if they do not in their direction."""
        self._kept.sort(key=lambda one: one[:2])
        kept = {*increasing([b for _, b, _, _ in self._kept])}
        for at, (a, b, pair, direction) in enumerate(self._kept):
            if at not in kept:
                self.found.append(_Found(DifferenceKind.MOVED, interface, pair, direction, a, b))
        self._kept.clear()

    # Packets ----------------------------------------------------------------------------------------------------------

    def finished(self, a: Iterable[CapturedPacket], b: Iterable[CapturedPacket]) -> Iterator[Difference]:
        """Yield the differences in order, with their packets and fields."""
        self.found.sort(key=lambda one: (one.a or one.b or 0, one.b or 0))
        first, rest = self.found[: self._options.most], self.found[self._options.most :]
        packets_a = _read(a, {one.a for one in first})
        packets_b = _read(b, {one.b for one in first})
        done: list[Difference] = []
        missing: list[_Found] = []
        extra: list[_Found] = []
        changed: list[tuple[_Found, FieldComparison]] = []
        for one in first:
            if one.kind is DifferenceKind.MISSING:
                missing.append(one)
            elif one.kind is DifferenceKind.EXTRA:
                extra.append(one)
            elif one.kind is DifferenceKind.MOVED:
                done.append(self._difference(one, packets_a, packets_b))
            else:
                compared = self._compare(one, packets_a, packets_b)
                if not one.is_at_one_place and not compared.is_of_one_packet:
                    missing.append(replace(one, kind=DifferenceKind.MISSING, b=None, by=0))
                    extra.append(replace(one, kind=DifferenceKind.EXTRA, a=None, by=0))
                else:
                    changed.append((one, compared))
        for one, compared in self._elsewhere(missing, extra, packets_a, packets_b):
            if compared.fields:
                done.append(self._difference(one, packets_a, packets_b, compared))
        done += [self._difference(one, packets_a, packets_b) for one in (*missing, *extra)]
        for one, compared in changed:
            if one.pair.has_strange_ids():  # what was elsewhere may have told which is which
                compared = self._compare(one, packets_a, packets_b)
            if compared.fields:
                done.append(self._difference(one, packets_a, packets_b, compared))
            elif one.by:
                done.append(self._difference(replace(one, kind=DifferenceKind.MOVED), packets_a, packets_b))
        strange = [*self._strange()]
        if strange:
            packets_a, packets_b = _read(a, {one.a for one in strange}), _read(b, {one.b for one in strange})
            done += [
                self._difference(one, packets_a, packets_b, self._compare(one, packets_a, packets_b)) for one in strange
            ]
        done += [self._difference(one, {}, {}) for one in rest]
        yield from sorted(done, key=lambda one: one.place)

    def _strange(self) -> Iterator[_Found]:
        """Yield packets that both captures have with another PDCID or queue pair than the others of their conversation,
        which shows when all packets have said which PDCID or queue pair is which."""
        for interface, pair, direction in self._aligned:
            if pair.has_strange_ids():
                a, b = pair.stream(direction)
                for i, j in aligned(*_items(pair, direction)).kept:
                    if not pair.are_same_ids(direction, a.ids_at(i), b.ids_at(j)):
                        yield _Found(DifferenceKind.CHANGED, interface, pair, direction, a.numbers[i], b.numbers[j])

    def _compare(
        self, one: _Found, packets_a: dict[int, CapturedPacket], packets_b: dict[int, CapturedPacket]
    ) -> FieldComparison:
        assert one.a is not None
        assert one.b is not None
        return Comparer(self._options, one.pair, one.direction).compare(packets_a[one.a], packets_b[one.b])

    def _elsewhere(
        self, missing: list[_Found], extra: list[_Found], packets_a: dict[int, CapturedPacket],
        packets_b: dict[int, CapturedPacket],
    ) -> Iterator[tuple[_Found, FieldComparison]]:  # fmt: skip
        """Yield packets that are one packet, changed so that it seems to be of another conversation, and take them out
        of `missing` and `extra`."""
        lost, new = [one for one in missing if not one.is_copy], [one for one in extra if not one.is_copy]
        if len(lost) * len(new) > _COMPARED:
            return
        ranked = []
        for at, one in enumerate(lost):
            for other, two in enumerate(new):
                compared = self._compare(replace(one, b=two.b), packets_a, packets_b)
                if compared.is_of_one_packet_anywhere:
                    ranked.append((compared.weight, abs(at - other), at, other, compared))
        taken: list[_Found] = []
        taken_a: set[int] = set()
        taken_b: set[int] = set()
        for _, _, at, other, compared in sorted(ranked, key=lambda row: row[:4]):
            if at not in taken_a and other not in taken_b:
                taken_a.add(at)
                taken_b.add(other)
                missing.remove(lost[at])
                extra.remove(new[other])
                taken.append(replace(lost[at], kind=DifferenceKind.CHANGED, b=new[other].b, by=0))
                if compared.is_in_ids_alone:
                    taken[-1].pair.note_ids(lost[at].direction, lost[at].ids, new[other].ids)
        for one in taken:
            yield one, self._compare(one, packets_a, packets_b)

    def _difference(
        self, one: _Found, packets_a: dict[int, CapturedPacket], packets_b: dict[int, CapturedPacket],
        compared: FieldComparison | None = None,
    ) -> Difference:  # fmt: skip
        seen_a = None if one.a is None else packets_a.get(one.a)
        seen_b = None if one.b is None else packets_b.get(one.b)
        pair, way = one.pair, one.direction
        named, ways = (pair.b, (pair.of_b(way), pair.of_b(1 - way))) if pair.a is None else (pair.a, (way, 1 - way))
        ids = (None, None) if named is None else (named.id(ways[0]), named.id(ways[1]))
        words = conversation_words("" if named is None else named.kind, ids, seen_a or seen_b)
        return Difference(
            one.kind, words, one.interface, one.a, one.b, seen_a, seen_b, () if compared is None else compared.fields,
            one.by,
        )  # fmt: skip


def _items(pair: ConversationPair, direction: int) -> list[list[int]]:
    """Return the packets of a direction in both captures as numbers; equal packets have equal numbers."""
    numbers: dict[tuple[int, ...], int] = {}
    return [
        [numbers.setdefault(key, len(numbers)) for key in pair.keys(stream, direction, of_b)]
        for stream, of_b in zip(pair.stream(direction), (False, True), strict=True)
    ]


def _read(packets: Iterable[CapturedPacket], wanted: set[int | None]) -> dict[int, CapturedPacket]:
    """Return the packets with the wanted numbers."""
    found = {one.number: one for one in packets if one.number in wanted}
    if len(found) < len(wanted - {None}):
        raise LocalError(
            "captures", "a capture did not give the same packets a second time", "files and lists", id="unequal-read"
        )
    return found
