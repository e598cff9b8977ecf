# SPDX-License-Identifier: GPL-2.0-only
"""This module compares two packets field by field."""

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from uetproto.diff.normal import (
    NONE,
    OWN,
    CapturedPacket,
    DiffOptions,
    is_compared,
    is_ignored,
    psns_of,
    rest_of,
)
from uetproto.diff.pairing import ConversationPair
from uetproto.diff.result import FieldDifference
from uetproto.wire.forms import FORMS
from uetproto.wire.packet import Layer, Packet

_SENDERS = ("spdcid", "srcqp")
_RECEIVERS = ("dpdcid", "destqp")
FORM, HEADERS, PAYLOAD = "form", "headers", "payload"
_WHOLE = frozenset({
    FORM, HEADERS, PAYLOAD, "undecoded bytes", "error", "notes", "trailer", "vcrc", "pad", "size of the sealed payload",
})  # fmt: skip
"""Names of differences that are no field of a header."""
_FEW, _FEWER = 4, 3
_SHOWN = 8
_LOWER = frozenset({"ethernet", "vlan", "ipv4", "ipv6", "ipv4.options", "ipv6.ext", "udp", "entropy", "lrh", "grh"})


class FieldComparison(NamedTuple):
    """This record is the comparison of two packets."""

    fields: tuple[FieldDifference, ...]
    equal: int
    """Number of fields above IP and UDP that are equal."""

    @property
    def weight(self) -> int:
        """Return how much two packets differ: the number of fields, and more if the payload differs. If one packet has
        other headers, then all behind them differs, which counts once."""
        names = {field.field for field in self.fields}
        fields = len(names - _WHOLE)
        if names & {FORM, HEADERS}:
            return fields + 1
        return fields + 2 * (PAYLOAD in names) + bool(names & _WHOLE - {PAYLOAD})

    @property
    def is_in_ids_alone(self) -> bool:
        """Return whether packets differ in nothing but PDCIDs or queue pairs."""
        return {field.field.rpartition(".")[2] for field in self.fields} <= {*_SENDERS, *_RECEIVERS}

    @property
    def is_of_one_packet(self) -> bool:
        """Return whether so much is equal that one packet can be the other, changed, if both are at one place."""
        return self.weight <= _FEW or 2 * self.weight <= self.equal

    @property
    def is_of_one_packet_anywhere(self) -> bool:
        """Return whether one packet can be the other, changed, if it seems to be of another conversation."""
        return self.weight <= _FEWER


class Comparer:
    """This class compares packets of two captures, of which a pair of conversations tells what belongs together."""

    def __init__(self, options: DiffOptions, pair: ConversationPair, direction: int) -> None:
        self._options, self._pair, self._direction = options, pair, direction

    def compare(self, a: CapturedPacket, b: CapturedPacket) -> FieldComparison:
        """Return how two packets differ."""
        found: list[FieldDifference] = []
        equal = 0
        strict = self._options.strict
        if strict and a.time_ns != b.time_ns:
            found.append(FieldDifference("time_ns", a.time_ns, b.time_ns))
        psns_a, psns_b = _psn_places(a.packet), _psn_places(b.packet)
        alone: tuple[list[str], list[str]] = [], []
        for at, other in _aligned_layers(a.packet.layers, b.packet.layers):
            if at is None or other is None:
                if at is not None:
                    alone[0].append(a.packet.layers[at].form)
                elif other is not None:
                    alone[1].append(b.packet.layers[other].form)
                continue
            mine, theirs = a.packet.layers[at], b.packet.layers[other]
            of_layer = [*self._layer(mine, theirs, psns_a.get(at, {}), psns_b.get(other, {}))]
            found += of_layer
            if mine.form not in _LOWER:
                equal += len(mine.values) - len(of_layer)
        kept = [[form for form in forms if not is_ignored(form, "", self._options.ignore)] for forms in alone]
        if any(kept):
            found.append(FieldDifference(HEADERS, ", ".join(kept[0]) or None, ", ".join(kept[1]) or None))
        found += self._rest(a, b)
        return FieldComparison(tuple(found), equal + (a.packet.payload == b.packet.payload != b""))

    def _layer(
        self, a: Layer, b: Layer, psns_a: Mapping[str, int], psns_b: Mapping[str, int]
    ) -> Iterator[FieldDifference]:
        ignore = self._options.ignore
        if a.form != b.form:
            yield FieldDifference(FORM, a.form, b.form)
        for name in a.values:
            if name not in b.values:
                continue
            one, other = a.values[name], b.values[name]
            if is_ignored(a.form, name, ignore):
                continue
            one = self._options.addresses.get((a.form, one), one) if name in ("src", "dst") else one
            if self._options.strict:
                if one != other:
                    yield FieldDifference(f"{a.form}.{name}", _plain(a.values[name]), _plain(other))
                continue
            if name in _SENDERS or name in _RECEIVERS:
                way = self._direction if name in _SENDERS else 1 - self._direction
                if not self._pair.is_same_id(way, one, other):
                    expected = self._pair.expected_id(way, one)
                    yield FieldDifference(f"{a.form}.{name}", one, other, None if expected == one else expected)
            elif name in psns_a:
                psn = self._psn_of_b(one, psns_a[name])
                if other != psn or psns_b.get(name) != psns_a[name]:
                    yield FieldDifference(f"{a.form}.{name}", one, other, None if psn == one else psn)
            elif one != other and (is_compared(a.form, name, a.values) or is_compared(b.form, name, b.values)):
                yield FieldDifference(f"{a.form}.{name}", _plain(a.values[name]), _plain(other))

    def _psn_of_b(self, psn: int, whose: int) -> int:
        """Return the PSN that the other capture has for a PSN of this one."""
        if whose == NONE:
            return psn
        distance = self._pair.distances[self._direction if whose == OWN else 1 - self._direction]
        return psn + distance & self._pair.mask

    def _rest(self, a: CapturedPacket, b: CapturedPacket) -> Iterator[FieldDifference]:
        ignore = self._options.ignore
        one, other = rest_of(a.packet, a.data), rest_of(b.packet, b.data)
        if self._options.strict:
            for found, packet in ((one, a.packet), (other, b.packet)):
                found |= {
                    f"{kind} value": trailer.value
                    for kind, trailer in (("trailer", packet.trailer), ("vcrc", packet.vcrc))
                    if trailer is not None
                }
                if "sealed" in packet.notes:
                    found["payload"] = packet.payload
        for name in dict.fromkeys((*one, *other)):
            mine, theirs = one.get(name), other.get(name)
            if name not in ignore and mine != theirs:
                if isinstance(mine, bytes) or isinstance(theirs, bytes):
                    yield bytes_difference(name, mine or b"", theirs or b"")
                else:
                    yield FieldDifference(name, mine, theirs)


def bytes_difference(name: str, a: bytes, b: bytes) -> FieldDifference:
    """Return in words how bytes differ: sizes, and a few bytes from the first one on that differs."""
    most = min(len(a), len(b))
    at = next((at for at in range(most) if a[at] != b[at]), most)

    def told(one: bytes) -> str | None:
        if not one:
            return None
        return f"{len(one)} bytes" + (f", {one[at : at + _SHOWN].hex()} at byte {at}" if one[at:] else "")

    return FieldDifference(name, told(a), told(b))


def _psn_places(packet: Packet) -> dict[int | None, dict[str, int]]:
    """Return whose PSN each field is, by the place of its layer and its name."""
    found: dict[int | None, dict[str, int]] = {}
    for whose, place, name, _ in psns_of(packet):
        found.setdefault(place, {})[name] = whose
    return found


def _aligned_layers(a: list[Layer], b: list[Layer]) -> Iterator[tuple[int | None, int | None]]:
    """Yield the places of the layers that belong together, the outermost first."""
    if len(a) == len(b) and all(_sort(one) == _sort(other) for one, other in zip(a, b, strict=True)):
        yield from ((at, at) for at in range(len(a)))
        return
    sorts = [_sort(one) for one in a], [_sort(one) for one in b]
    for tag, start_a, end_a, start_b, end_b in SequenceMatcher(None, *sorts, autojunk=False).get_opcodes():
        both = min(end_a - start_a, end_b - start_b) if tag in ("equal", "replace") else 0
        for step in range(both):
            yield start_a + step, start_b + step
        for at in range(start_a + both, end_a):
            yield at, None
        for at in range(start_b + both, end_b):
            yield None, at


def _sort(layer: Layer) -> str:
    """Return what sort of header a layer is; variants of a header are of one sort."""
    return layer.form.split(".")[0] if layer.form.startswith(("pds.", "ses.")) and layer.form in FORMS else layer.form


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it: bytes as hexadecimal digits."""
    return value.hex() if isinstance(value, (bytes, bytearray)) else value
