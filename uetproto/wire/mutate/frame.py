# SPDX-License-Identifier: GPL-2.0-only
"""This module has the mutations that UET and RoCE have in common, and the functions that change a frame.

A mutation changes a field, a CRC or a byte of a frame, and corrects everything that depends on it. `uet.py` and
`roce.py` say which field gets which value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar

from uetproto.errors import LocalError
from uetproto.wire.codec import codec_of
from uetproto.wire.crc import CRC_SIZE, trailer_crc
from uetproto.wire.fields import Field, Header
from uetproto.wire.forms import FORMS, UET_FORMS
from uetproto.wire.headers.ethernet import internet_checksum
from uetproto.wire.icrc import ICRC_SIZE, VCRC_SIZE, icrc, vcrc
from uetproto.wire.packet import Packet, crc_start, inner_from, udp_checksum_at
from uetproto.wire.stack import decode, encode


class MutationRng(Protocol):
    """This protocol is a source of random numbers, such as `random.Random(seed)`."""

    def getrandbits(self, k: int, /) -> int: ...

    def random(self) -> float: ...


class Mutation(NamedTuple):
    """A mutation is the record of one change: the wrong frame, and which part of it was changed."""

    frame: bytes
    form: str | None
    """Form of the header that was changed. It is None if the payload, the trailer or the size of the frame was changed.
    """
    field: str
    offset: int
    """Offset of the first changed byte in the frame."""
    before: int
    after: int
    """Value of the field or CRC after the change, as `before` is its value before the change.

    If a byte of the payload was changed, `before` and `after` are the values of this byte. If the size of the frame or
    payload was changed, they are the sizes in bytes.
    """
    rule: str | None = None
    """Id of the rule that an audit must report, or None if no audit can see the change."""


_T = TypeVar("_T")
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def below(rng: MutationRng, count: int) -> int:
    return int(rng.random() * count)


def pick(rng: MutationRng, values: Sequence[_T]) -> _T:
    return values[below(rng, len(values))]


class Recent(dict[_Key, dict[int, _Value]]):
    """This dictionary has, for each of the newest flows, values by a number such as the PSN.

    It keeps at most `flows` flows, and the newest `most` values of each flow.
    """

    def __init__(self, flows: int, most: int) -> None:
        super().__init__()
        self._flows = flows
        self._most = most

    def note(self, flow: _Key, number: int, value: _Value) -> None:
        """Store `value` under `number` for this flow. If there are then too many numbers or flows, remove the
        oldest."""
        values = self.setdefault(flow, {})
        values[number] = value
        if len(values) > self._most:
            del values[next(iter(values))]
        if len(self) > self._flows:
            del self[next(iter(self))]


def undefined(field: Field) -> list[int]:
    """Return the values of `field` that are none of its named codes."""
    assert field.values is not None
    known = {int(code) for code in field.values}
    return [value for value in range(field.low, field.high + 1) if value not in known]


class Frame:
    """This class holds a decoded frame, and makes mutated copies of it."""

    __slots__ = ("data", "packet", "start")

    def __init__(self, data: bytes, packet: Packet, start: int) -> None:
        self.data = data
        self.packet = packet
        self.start = start
        """Index of the first UET layer, or of the BTH."""

    @property
    def is_roce(self) -> bool:
        return self.packet.layers[self.start].form == "bth"

    def find(self, *fields: str, prefix: str = "") -> int | None:
        """Return the index of the first layer whose form starts with `prefix` and that has all `fields`. Headers of
        tunnels and below them do not count."""
        layers = self.packet.layers
        for index in range(inner_from(layers), len(layers)):
            layer = layers[index]
            if layer.form.startswith(prefix) and all(name in layer.values for name in fields):
                return index
        return None

    def value(self, index: int, name: str) -> int:
        value: int = self.packet.layers[index].values[name]
        return value

    def field(self, index: int, name: str) -> Field:
        return FORMS[self.packet.layers[index].form][name]

    @property
    def end(self) -> int:
        """Return the offset of the end of the packet with its CRC, which a VCRC and padding may follow."""
        return len(self.data) - len(self.packet.raw) - (VCRC_SIZE if self.packet.vcrc else 0)

    def changed(self, index: int, name: str, value: int) -> Mutation:
        """Return the frame with the field `name` of layer `index` set to `value`, which must fit the field."""
        form, values, at = self.packet.layers[index]
        header = FORMS[form]
        data = bytearray(self.data)
        data[at : at + header.size] = codec_of(header).encode({**values, name: value})
        if form == "ipv4":
            self._mend_checksum(data, at)
        self._mend_crc(data)
        return Mutation(bytes(data), form, name, at + header.offset_of(name) // 8, values[name], value)

    def flipped(self, at: int, bit: int) -> Mutation:
        """Return the frame with one bit flipped: bit number `bit` of the payload byte at offset `at` in the frame."""
        data = bytearray(self.data)
        data[at] ^= 1 << bit
        self._mend_crc(data)
        return Mutation(bytes(data), None, "payload", at, self.data[at], data[at])

    def lengthened(self, more: bytes) -> Mutation | None:
        """Return the frame with the bytes `more` behind the payload, and with all lengths in lower headers corrected.

        Return None if a length would be too large for its field.
        """
        packet = self.packet
        payload = packet.payload + more
        try:
            data = encode(replace(packet, payload=payload), fill=True)
        except LocalError:
            return None
        at = packet.payload_offset + len(packet.payload)
        return Mutation(data, None, "payload", at, len(packet.payload), len(payload))

    @staticmethod
    def _mend_checksum(data: bytearray, at: int) -> None:
        """Correct the checksum of the IPv4 header at `at`, with the length that it says."""
        head = data[at : at + 4 * (data[at] & 15)]
        head[10:12] = b"\0\0"
        data[at + 10 : at + 12] = internet_checksum(bytes(head)).to_bytes(2, "big")

    def _mend_crc(self, data: bytearray) -> None:
        """Correct the CRC, where there is one that was right."""
        trailer = self.packet.trailer
        if trailer is not None and trailer.ok and trailer.kind in _SIZES:
            self.put_crc(data, self._icrc(data) if trailer.kind == "icrc" else self._crc32c(data))

    def put_crc(self, data: bytearray, value: int) -> None:
        """Set the CRC in `data` to `value`. Also correct the VCRC, which covers the CRC, if the VCRC was right."""
        packet, end = self.packet, self.end
        assert packet.trailer is not None
        at = end - _SIZES[packet.trailer.kind]
        data[at:end] = value.to_bytes(end - at, "little" if packet.trailer.kind == "icrc" else "big")
        if packet.vcrc is not None and packet.vcrc.ok:
            lrh = next(layer.offset for layer in packet.layers if layer.form == "lrh")
            data[end : end + VCRC_SIZE] = vcrc(bytes(data[lrh:end])).to_bytes(VCRC_SIZE, "little")

    def _crc32c(self, data: bytearray) -> int:
        layers = self.packet.layers
        return trailer_crc(bytes(data), crc_start(layers), self.end - CRC_SIZE, udp_checksum_at(layers))

    def _icrc(self, data: bytearray) -> int:
        return icrc(bytes(data), self.packet.layers[: self.start + 1], self.end - ICRC_SIZE)


_SIZES = {"crc32c": CRC_SIZE, "icrc": ICRC_SIZE}


def open_frame(data: bytes, link: str, roce_port: int) -> Frame | None:
    """Decode a frame with a whole packet of UET or RoCE that is not sealed and has no fault. Return None for any other
    frame."""
    packet = decode(data, link=link, roce_port=roce_port)
    if packet.error is not None or any(note != "padding" for note in packet.notes):
        return None
    start = (index for index, layer in enumerate(packet.layers) if layer.form in UET_FORMS or layer.form == "bth")
    first = next(start, None)
    return None if first is None else Frame(data, packet, first)


Change = Callable[[Frame, MutationRng], Mutation | None]
Ruled = tuple[Change, str | None]
"""Pair of a change and the id of the rule that an audit reports for the change. The id is None if no rule reports
it."""
RuledByHistory = tuple[Callable[[Frame, MutationRng, Any], Mutation | None], str]
"""Type of a change that needs earlier frames, and of the id of its rule. The last argument of the change is the history
of frames."""


# What can go wrong with any packet ------------------------------------------------------------------------------------


def bad_crc(frame: Frame, rng: MutationRng) -> Mutation | None:
    trailer = frame.packet.trailer
    if trailer is None or trailer.kind not in _SIZES:
        return None
    after = trailer.value ^ (1 << below(rng, 32))
    data = bytearray(frame.data)
    frame.put_crc(data, after)
    return Mutation(bytes(data), None, trailer.kind, frame.end - _SIZES[trailer.kind], trailer.value, after)


def cut(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Remove bytes at the end of the frame, and leave all length fields as they are."""
    first = frame.packet.layers[frame.start].offset
    at = first + below(rng, frame.end - first)
    return Mutation(frame.data[:at], None, "frame", at, len(frame.data), at)


def reserved_places(frame: Frame, forms: Mapping[str, Header]) -> list[tuple[int, Field]]:
    """Return the reserved fields of the layers that have one of `forms`, each with the index of its layer."""
    layers = [(index, forms[layer.form]) for index, layer in enumerate(frame.packet.layers) if layer.form in forms]
    return [(index, field) for index, header in layers for field in header.fields if field.name.startswith("rsvd")]


def payload_flip(frame: Frame, rng: MutationRng) -> Mutation | None:
    size = len(frame.packet.payload)
    return frame.flipped(frame.packet.payload_offset + below(rng, size), below(rng, 8)) if size else None


def over(frame: Frame, rng: MutationRng, place: tuple[int, str] | None) -> Mutation | None:
    """Set the field at `place`, an index of a layer and a name, to a higher value.

    Return None if `place` is None or the field has its highest value.
    """
    if place is None:
        return None
    before, high = frame.value(*place), frame.field(*place).high
    return frame.changed(*place, min(high, before + 1 + below(rng, 64))) if before < high else None


def under(frame: Frame, rng: MutationRng, place: tuple[int, str] | None) -> Mutation | None:
    """Set the field at `place`, an index of a layer and a name, to a lower value.

    Return None if `place` is None or the field is 0.
    """
    before = 0 if place is None else frame.value(*place)
    return None if place is None or before == 0 else frame.changed(*place, below(rng, before))


LENGTHS = ("total_length", "payload_length", "paylen", "pktlen")
"""Names of the field that has the length of the packet in IPv4, IPv6, GRH and LRH."""


def ip_length(frame: Frame, rng: MutationRng) -> Mutation | None:
    """Set the length in the IP header, or in the GRH or LRH if there is no IP header, to a wrong value."""
    for name in LENGTHS:
        index = frame.find(name)
        if index is not None:
            before, high = frame.value(index, name), frame.field(index, name).high
            near = before + (1 + below(rng, 64)) * pick(rng, (-1, 1))
            others = [value for value in (0, 1, high, near) if value != before and 0 <= value <= high]
            return frame.changed(index, name, pick(rng, others))
    return None
