# SPDX-License-Identifier: GPL-2.0-only
"""This module compiles each frequent sequence of headers into a function, a reader, which turns bytes into an
`ObservedPacket` directly.

A shape is a sequence of headers in which the fields that select the next header have fixed values (`wire/shapes.py`).
`FastReader.read` returns None for a packet that is not as expected, and for a packet whose shape is not compiled. Such
a packet takes the slow path, which alone decides what a frame means. A test compares the results of both paths.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from uetproto.audit.reader.fast_path_codegen import (
    Here,
    Reader,
    ReadFlows,
    classes_of,
    exact_of,
    following_of,
    reader_of,
)
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.slow_path import awaited, is_cut_short
from uetproto.wire.forms import FORMS, LOWER_FORMS, ROCE_FORMS, UET_FORMS
from uetproto.wire.headers.roce import BTH_FOLLOWS
from uetproto.wire.packet import Layer, Packet

_WARM = 4
"""Number of packets of a shape that take the slow path before the shape is compiled."""
_MOST = 1024
"""Greatest number of compiled shapes that are kept."""

Hint = tuple[int, ...]
"""Guess of the offset of the PDS header, the security header or the BTH, with the two bytes at that offset. The guess
may be wrong."""


class Kind(NamedTuple):
    """This record names the headers and the trailer of expected packets; rules about a single packet treat all packets
    with the same `Kind` alike."""

    forms: tuple[str, ...]
    """Forms of the headers. The SES forms are left out if an extension header of SES is missing."""
    trailer: str | None
    whole: bool = True
    """Whether the capture kept the end of the packet."""


class Branch(NamedTuple):
    """This record holds the readers for one hint. `ses` is the place of the first two bytes of the SES header in a
    frame, and `readers` maps the values of these two bytes to readers. If there is no SES header, the key in `readers`
    is empty."""

    ses: slice
    readers: dict[bytes, tuple[Reader, ...]]


class FastReader:
    """This class holds the compiled shapes for all vantage points whose frames begin with the same header."""

    def __init__(self, crc: str, flows: ReadFlows) -> None:
        """Make a reader without compiled shapes. It notes counts and CRCs in `flows`, until `here` refers to another
        `ReadFlows`."""
        self._crc = crc
        self.here = Here(flows)
        self._by_hint: tuple[dict[Hint, Branch], dict[Hint, Branch]] = ({}, {})  # of whole packets, of truncated ones
        self._hints = 0
        self._by_shape: dict[tuple[Any, ...], Reader] = {}
        self._met: dict[tuple[Any, ...], int] = {}
        self._kinds: dict[Kind, int] = {}
        """Numbers of the kinds of expected packets, in the order in which they were first seen."""

    def read(self, data: bytes, number: int, time_ns: int, cut: bool = False) -> ObservedPacket | None:
        """Return the packet, or None if it is not as expected or its shape is not compiled. Of a packet that the
        capture truncated (`cut`), only headers are checked."""
        by_hint = self._by_hint[cut]
        # UDP behind Ethernet and IPv4 is most common, so its hint is read without a call of `_hint`.
        branch = (len(data) >= _HINTED and by_hint.get(_ipv4_udp(data))) or by_hint.get(_hint(data))
        if branch:
            for reader in branch.readers.get(data[branch.ses], ()):
                seen = reader(data, number, time_ns)
                if seen is not None:
                    return seen
        return None

    def learn(self, data: bytes, packet: Packet) -> None:
        """Remember the shape of an expected packet that took the slow path, and count the packet if it is not
        truncated."""
        layers = packet.layers
        whole = "truncated" not in packet.notes
        kind = _kind_of(packet)
        number = self._kinds.setdefault(kind, len(self._kinds))
        if whole:
            self.here.flows.counts[number] += 1
        if layers[0].offset or not _READ.issuperset(layer.form for layer in layers):
            return
        if any(layer.form == "udp" and layer.values["checksum"] for layer in layers):
            return  # each checksum would be a shape of its own
        following = None if whole else following_of(layers, packet.raw)
        key = (kind.trailer, whole, following, *(
            (form, *(values[name] for name in exact_of(FORMS[form])), *classes_of(layers, index).values())
            for index, (form, values, _) in enumerate(layers)
        ))  # fmt: skip
        reader = self._by_shape.get(key)
        if reader is None:
            met = self._met[key] = self._met.get(key, 0) + 1
            if met < _WARM:
                return
            if len(self._by_shape) >= _MOST or len(self._met) > 16 * _MOST:
                for known in (self._by_shape, *self._by_hint, self._met):
                    known.clear()
            reader = self._by_shape[key] = reader_of(packet, following, self._crc, number, self.here)
        if self._hints >= _HINTS:
            self._hints = 0
            for by_hint in self._by_hint:
                by_hint.clear()
        branch = self._by_hint[not whole].setdefault(_hint(data), Branch(_ses_of(layers), {}))
        readers = branch.readers.get(data[branch.ses], ())
        if reader not in readers:
            self._hints += not readers
            branch.readers[data[branch.ses]] = (reader, *readers)[:_TRIED]

    def counts(self, flows: ReadFlows) -> dict[Kind, int]:
        """Return the number of expected packets of each `Kind` at one vantage point, on both paths."""
        kinds = list(self._kinds)
        return {kinds[number]: count for number, count in flows.counts.items()}


def _kind_of(packet: Packet) -> Kind:
    trailer = packet.trailer.kind if packet.trailer else None
    forms = [layer.form for layer in packet.layers]
    if is_cut_short(packet):
        forms = [form for form in forms if not form.startswith("ses.")]
    return Kind(tuple(forms), trailer, "truncated" not in packet.notes)


_READ = (LOWER_FORMS.keys() | UET_FORMS.keys() | ROCE_FORMS.keys()) - {"lrh", "erf", "gre.checksum"}
"""Forms of the packets that the fast path reads."""
_HINTED = 44
_ipv4_udp: Callable[[bytes], tuple[int, ...]] = struct.Struct(">14xB8xB18xH").unpack_from
"""Reads three values of a frame: the byte with IPv4 version and header length, the IPv4 protocol, and the two bytes
after a UDP header. If the first two values are `_IPV4_UDP`, the frame is UDP over IPv4, whose offsets are fixed, and
the three values are its hint."""
_IPV4_UDP = (0x45, 17)
_TRIED = 8  # greatest number of readers that are tried for one hint and beginning of the SES header
_HINTS = 16_384  # greatest number of pairs of a hint and a beginning of the SES header that are kept


def _hint(data: bytes) -> Hint:
    """Return the hint of any frame, assuming that IP has no options."""
    if len(data) >= _HINTED and (hint := _ipv4_udp(data))[:2] == _IPV4_UDP:
        return hint
    at = 14
    while data[at - 2 : at] in _TAGS:
        at += 4
    if data[at - 2 : at] not in _TYPES:  # no Ethernet
        at = 16 if data[14:16] in _TYPES else 20 if data[:2] in _TYPES else 0
    if data[at : at + 1] == b"\x45":
        at += 28 if data[at + 9 : at + 10] == b"\x11" else 24
    else:
        following = data[at + 6 : at + 7]
        at += 48 if following == b"\x11" else 40 if following == _BTH_FOLLOWS else 44
    return at, int.from_bytes(data[at : at + 2], "big")


def _ses_of(layers: list[Layer]) -> slice:
    """Return where the first two bytes of the SES header are, even if the capture cut this header. The slice is empty
    if no SES header follows."""
    for form, _, offset in layers:
        if form.startswith("ses."):
            return slice(offset, offset + 2)
    following = awaited(layers)
    end = layers[-1].offset + layers[-1].size
    return slice(end, end + 2) if following and following[0].name.startswith("ses.") else slice(0)


_TAGS = (b"\x81\x00", b"\x88\xa8")
_TYPES = (b"\x08\x00", b"\x86\xdd", b"\x89\x15")
_BTH_FOLLOWS = bytes([BTH_FOLLOWS])
