# SPDX-License-Identifier: GPL-2.0-only
"""This module decodes frames that have no defect, which are nearly all frames, faster than `walk.walk` does.

One function reads all headers below UET or RoCE (`shapes.stack_reader`). It is compiled when frames with such headers
have come several times. Each header behind them is read by the function of its form (`shapes.header_reader`), which a
`_Fork` finds. A fork is a dictionary; its key is those bits of the header's first two bytes that decide the form, the
following headers, or the length of the payload. Its value has the function and the fork of the next header. Forks are
filled from `NEXT` as frames come. A rare frame therefore needs no function of its own.

`FastWalk.read` returns None for any other frame, which `walk.walk` then decodes. A test compares the results of
`FastWalk.read` and `walk.walk`.
"""

import struct
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from uetproto.wire.crc import CRC_SIZE, crc32, crc32c
from uetproto.wire.fields import Header
from uetproto.wire.forms import FIRST, FORMS, ROCE_FORMS, UET_FORMS, Candidates, matches, rows_after
from uetproto.wire.headers.roce import BTH, RD_OPCODES
from uetproto.wire.headers.uet_tss import ENTROPY, ICV_SIZE
from uetproto.wire.icrc import ICRC_SIZE
from uetproto.wire.implied import DECIDING, implied_by
from uetproto.wire.packet import Layer, Packet, Trailer, crc_start
from uetproto.wire.shapes import (
    NATIVE,
    SUSPECT_SIZES,
    CoveredHeaders,
    exact_fields,
    header_reader,
    invariant_of,
    lower_fields,
    stack_reader,
)

_WARM = 8
"""Number of frames with the same lower headers before a reader of these is compiled."""
_MOST = 64
"""Number of compiled readers of lower headers."""


# Forks ----------------------------------------------------------------------------------------------------------------

_Source = tuple[int, str] | int | None


class _Ending(NamedTuple):
    """An ending says what is behind the last header: `kind` is "uet", "tss" or "roce".

    `source` is that of the payload's length (`implied_by`), with layers counted from the end; for RoCE the number of
    pad bytes, or None for an opcode that the setting `rd` may leave raw.
    """

    kind: str
    source: _Source


class _Branch(NamedTuple):
    """A branch reads one header of `size` bytes; it has the next fork, or the ending if no header follows."""

    read: Callable[[bytes, int], Layer]
    size: int
    fork: "_Fork | None"
    ending: _Ending | None


@dataclass(frozen=True, slots=True)
class _Later:
    """This choice is made by a field behind the first two bytes of the `header` before."""

    header: Header
    by: str


_Choice = Candidates | _Later
_Context = tuple[tuple[Header, int], ...]


class _Fork(dict[int, _Branch]):
    """A fork finds the branch of a header by the first two bytes of the header, masked with `mask`.

    `choices` are those of this header and of the headers behind it. `context` has the headers met on which the ending
    depends, each with its masked first two bytes. A fork raises `KeyError` for bits that no candidate has, or with a
    reserved code.
    """

    __slots__ = ("choices", "context", "mask")

    def __init__(self, choices: tuple[_Choice, ...], context: _Context = ()) -> None:
        self.choices, self.context = choices, context
        self.mask = 0
        for header in choices[0] if not isinstance(choices[0], _Later) else ():
            for name in {*exact_fields(header), *DECIDING} & {*header.names}:
                self.mask |= _mask(header, name)

    def __missing__(self, word: int) -> _Branch:
        choice = self.choices[0]
        if isinstance(choice, _Later):
            header, read = _reader_by(choice)
        elif fitting := [header for header in choice if matches(header, word)]:
            header, read = fitting[0], header_reader(fitting[0])
        else:
            raise KeyError(word)
        values = _values(header, word)
        behind: list[_Choice] = []
        for row in rows_after(header):
            if row.by is not None and not _mask(header, row.by):
                behind.append(_Later(header, row.by))
                continue
            candidates = row.then.get(values[row.by], row.otherwise) if row.by else row.otherwise
            if candidates is None:
                raise KeyError(word)
            behind += [candidates] if candidates else []
        context = (*self.context, (header, word))
        choices = (*behind, *self.choices[1:])
        fork, ending = None, None
        if choices:
            fork = _fork(choices, context if _continues(choices[0]) else ())
        else:
            ending = _ending(context)
        self[word] = branch = _Branch(read, header.size, fork, ending)
        return branch


_fork = cache(_Fork)


def _continues(choice: _Choice) -> bool:
    """Return whether the ending depends on headers before those of a choice, too."""
    headers = () if isinstance(choice, _Later) else choice
    return any(header.name.startswith("ses.ext.") or header.name in ROCE_FORMS for header in headers)


def _mask(header: Header, name: str) -> int:
    """Return a mask of the field in the first two bytes of the header; 0 if it lies behind them."""
    bits = header[name].bits
    below = 16 - header.offset_of(name) - bits
    return (1 << bits) - 1 << below if below >= 0 else 0


def _values(header: Header, word: int) -> Mapping[str, int]:
    """Return the fields of a header that begins with the two bytes `word`, followed by zeros."""
    return header_reader(header)(word.to_bytes(2, "big") + bytes(header.size), 0).values


def _reader_by(choice: _Later) -> tuple[Header, Callable[[bytes, int], Layer]]:
    """Return one of the headers of a choice, which have one size and nothing behind them, and the reader of all."""
    before, by = choice.header, choice.by
    row = next(row for row in rows_after(before) if row.by == by)
    readers = {code: header_reader(group[0]) for code, group in row.then.items()}
    other = (row.otherwise or ())[0]
    read_other = header_reader(other)
    byte, bit = divmod(before.offset_of(by), 8)
    back, shift, most = before.size - byte, 8 - bit - before[by].bits, before[by].high

    def read(data: bytes, at: int) -> Layer:
        return readers.get(data[at - back] >> shift & most, read_other)(data, at)

    return other, read


def _ending(context: _Context) -> _Ending:
    last = context[-1][0]
    layers = [Layer(header.name, _values(header, word)) for header, word in context]
    if layers[0].form == BTH.name:
        values = layers[0].values
        return _Ending("roce", None if values["opcode"] in RD_OPCODES else values["padcnt"])
    if last.name.startswith("tss"):
        return _Ending("tss", None)
    source = implied_by(layers)
    return _Ending("uet", (source[0] - len(layers), source[1]) if isinstance(source, tuple) else source)


_AT_UET, _AT_ENTROPY, _AT_BTH = _fork((FIRST,)), _fork(((ENTROPY,),)), _fork(((BTH,),))

# Frames ---------------------------------------------------------------------------------------------------------------


class _Lower(NamedTuple):
    """This is what lies below UET or RoCE: the reader and the size of the headers, and the fork behind them."""

    read: Callable[[bytes], list[Layer] | None]
    size: int
    fork: _Fork
    crc_from: int
    """Offset of the first byte that a CRC32C covers."""
    invariant: CoveredHeaders | None
    """What the ICRC of RoCE covers."""


class FastWalk:
    """A fast walk decodes frames with one set of decoder settings.

    The function that reads the lower headers of a frame is looked up by two bytes of the frame. In a usual frame, these
    are the first byte of the IP header and, over IPv4, the second byte of the UDP destination port.
    """

    def __init__(self, link: str, crc: str, trimmed_dscp: Set[int]) -> None:
        self._type = slice(12, 14 if link == "ethernet" else 12)
        """Place of the EtherType, by which lower headers are searched."""
        self._crc, self._trimmed_dscp = crc, trimmed_dscp
        self._by_key: dict[bytes, _Lower] = {}
        self._by_type: dict[bytes, list[_Lower]] = {}
        self._met: dict[tuple[object, ...], int] = {}
        self._endings = {"uet": self._uet, "tss": self._tss, "roce": self._roce}

    def read(self, data: bytes) -> Packet | None:
        """Decode a frame that has no defect and whose lower headers `learn` has seen. Return None for other frames."""
        key = data[14:38:23]
        lower = self._by_key.get(key)
        layers = lower.read(data) if lower is not None else None
        if lower is None or layers is None:
            lower, layers = self._search(key, data)
            if lower is None or layers is None:
                return None
        fork: _Fork | None
        _, at, fork, _, _ = lower
        append, ending = layers.append, None
        try:
            while fork is not None:
                read, size, fork, ending = fork[(data[at] << 8 | data[at + 1]) & fork.mask]
                append(read(data, at))
                at += size
        except (IndexError, KeyError, struct.error):
            return None
        kind, source = ending  # type: ignore[misc]
        return self._endings[kind](data, layers, at, lower, source)

    def _search(self, key: bytes, data: bytes) -> tuple[_Lower | None, list[Layer] | None]:
        for lower in self._by_type.get(data[self._type], ()):
            if (layers := lower.read(data)) is not None:
                self._by_key[key] = lower
                return lower, layers
        return None, None

    # What follows the headers

    def _uet(self, data: bytes, layers: list[Layer], at: int, lower: _Lower, source: _Source) -> Packet | None:
        implied: int | None = layers[source[0]][1][source[1]] if isinstance(source, tuple) else source
        size, crc = len(data) - at, self._crc
        if crc != "off":
            end = len(data) - CRC_SIZE
            if end >= at:
                value = _big(data, end)[0]
                if crc32c(data[lower.crc_from : end]) == value:
                    if implied is not None and size - CRC_SIZE < implied:
                        return None
                    return Packet(layers, data[at:end], _new(Trailer, ("crc32c", value, True)))
                if size - CRC_SIZE == implied:
                    return None
            if crc == "on":
                return None
        if (size in SUSPECT_SIZES and crc == "auto") if implied is None else size < implied:
            return None
        return Packet(layers, data[at:])

    def _tss(self, data: bytes, layers: list[Layer], at: int, lower: _Lower, source: _Source) -> Packet | None:
        end = len(data) - ICV_SIZE
        if end < at:
            return None
        trailer = Trailer("icv", int.from_bytes(data[end:], "big"))
        return Packet(layers, data[at:end], trailer, ("sealed",))

    def _roce(self, data: bytes, layers: list[Layer], at: int, lower: _Lower, source: _Source) -> Packet | None:
        end = len(data) - ICRC_SIZE
        if lower.invariant is None or type(source) is not int or end - source < at:
            return None
        value, ok = _little(data, end)[0], None
        if self._crc != "off":
            start, size, mask, crc = lower.invariant
            below = start + size
            head = (int.from_bytes(data[start:below], "big") | mask).to_bytes(size, "big")
            if crc32(data[below:end], crc32(head, crc)) != value:
                return None
            ok = True
        trailer = _new(Trailer, ("icrc", value, ok))
        if not source:
            return Packet(layers, data[at:end], trailer)
        return Packet(layers, data[at : end - source], trailer, pad=data[end - source : end])

    # Learning

    def learn(self, data: bytes, packet: Packet) -> None:
        """Remember the lower headers of a frame that `walk.walk` has decoded, if the frame has no defect.

        When frames with the same lower headers have come several times, compile the function that reads these headers.
        """
        layers = packet.layers
        if packet.error or packet.raw or packet.notes not in ((), ("sealed",)):
            return
        count = next((i for i, layer in enumerate(layers) if layer.form in UET_FORMS or layer.form == "bth"), 0)
        lower = layers[:count]
        if not lower or any(layer.form not in FORMS or layer.form in NATIVE for layer in lower):
            return
        if any(layer.form == "udp" and layer.values["checksum"] for layer in lower):
            return  # a CRC32C does not cover the UDP checksum
        exact = tuple([(form, *[values[name] for name in lower_fields(form)]) for form, values, _ in lower])
        met = self._met[exact] = self._met.get(exact, 0) + 1
        if met == _WARM and sum(map(len, self._by_type.values())) < _MOST:
            following, offset = layers[count].form, layers[count].offset
            fork = _AT_BTH if following == "bth" else _AT_ENTROPY if following == "entropy" else _AT_UET
            start = 0 if following == "bth" else crc_start(lower)
            invariant = invariant_of((*[layer.form for layer in lower], "bth")) if following == "bth" else None
            made = _Lower(stack_reader(lower, self._trimmed_dscp), offset, fork, start, invariant)
            self._by_type.setdefault(data[self._type], []).append(made)


_big, _little = struct.Struct(">I").unpack_from, struct.Struct("<I").unpack_from
_new = tuple.__new__
