# SPDX-License-Identifier: GPL-2.0-only
"""This module has the decoded frame, `Packet`: layers of values, payload, trailer, and bytes that were not decoded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uetproto.errors import SuggestsNames
from uetproto.wire.forms import FORMS, TUNNEL_FORMS
from uetproto.wire.headers.ethernet import internet_checksum
from uetproto.wire.headers.tunnels import GRE
from uetproto.wire.lookup import FormLookup

RAW_FORMS = ("ipv4.options", "ipv6.ext", "erf.ext", "geneve.options", "sharp.ranks")  # no table: one field `raw`


_TUNNELS = frozenset({*TUNNEL_FORMS, "geneve.options"})

CRC_SUSPECT = "crc-suspect"
"""Entry of `Packet.notes`, which says that the last 4 bytes of the payload may be a wrong CRC32C (interfaces.md §3)."""


class Layer(NamedTuple):
    """A layer is one header of a frame. It has the name of its form (wire.md §0), the values of its fields by name, in
    wire order, and its offset in bytes from the start of the frame."""

    form: str
    values: Mapping[str, Any]
    offset: int = 0

    @property
    def size(self) -> int:
        header = FORMS.get(self.form)
        return header.size if header else len(self.values["raw"])


class Trailer(NamedTuple):
    """A trailer ends a packet. Its `kind` is "crc32c", "icv", "icrc" or "vcrc". `ok` says whether its value is right,
    and is None if it was not checked."""

    kind: str
    value: int
    ok: bool | None = None


class Fault(NamedTuple):
    """A fault says why a frame, or the rest of it, was not decoded. Its `kind` is "malformed" or "unknown", and
    `offset` is its place in bytes from the start of the frame."""

    kind: str
    offset: int
    reason: str


def inner_from(layers: Sequence[Layer]) -> int:
    """Return the index of the first layer behind all tunnels. It is 0 if there is no tunnel."""
    return next((index for index in range(len(layers), 0, -1) if layers[index - 1].form in _TUNNELS), 0)


def gre_checksum(layers: Sequence[Layer], index: int, data: bytes) -> int:
    """Return what the checksum of GRE in the layer `index` must be. `data` is the frame.

    The checksum covers the header of GRE and all bytes that it carries, up to the end that the IP header below states.
    """
    network, at = network_of(layers[:index]), layers[index].offset
    values = network.values
    end = network.offset + values.get("total_length", 40 + values.get("payload_length", 0))
    covered = data[at - GRE.size : at] + bytes(2) + data[at + 2 : end]
    return internet_checksum(covered + bytes(len(covered) % 2))


def network_of(layers: Sequence[Layer]) -> Layer:
    """Return the last IP header among `layers`, which must have one."""
    return [layer for layer in layers if layer.form in ("ipv4", "ipv6")][-1]


def crc_start(layers: Sequence[Layer]) -> int:
    """Return the offset of the IP source address, where the bytes that a CRC32C covers begin (wire.md §7)."""
    network = network_of(layers)
    return network.offset + (12 if network.form == "ipv4" else 8)


def udp_checksum_at(layers: Sequence[Layer]) -> int | None:
    """Return the offset of the UDP checksum in the frame, or None if no UDP header carries the transport."""
    return next((layer.offset + 6 for layer in layers[inner_from(layers) :] if layer.form == "udp"), None)


@dataclass(slots=True, repr=False)
class Packet(SuggestsNames, FormLookup):
    """A packet is a decoded frame.

    Its `layers` are the headers, the outermost first. `payload` has the bytes that they carry, and `trailer` is the CRC
    or ICV, or None. `raw` has the last bytes if they were not decoded: padding, or all bytes from a fault on. `notes`
    has any of trimmed, truncated, sealed, padding, fragment and crc-suspect. `error` is a fault or None. RoCE and SHARP
    have a `pad` between payload and trailer, and native InfiniBand has a `vcrc` behind the trailer.
    """

    layers: list[Layer] = field(default_factory=list)
    payload: bytes = b""
    trailer: Trailer | None = None
    notes: tuple[str, ...] = ()
    error: Fault | None = None
    raw: bytes = b""
    pad: bytes = b""
    vcrc: Trailer | None = None

    def __repr__(self) -> str:
        """Return a text that outlines the packet: it has the sizes of payload and raw bytes, but not their content."""
        parts = ["/".join(layer.form for layer in self.layers) or "no layers", f"payload {len(self.payload)} bytes"]
        parts += [repr(trailer) for trailer in (self.trailer, self.vcrc) if trailer]
        parts += [f"notes {', '.join(self.notes)}"] if self.notes else []
        parts += [repr(self.error)] if self.error else []
        parts += [f"raw {len(self.raw)} bytes"] if self.raw else []
        return f"<Packet {'; '.join(parts)}>"

    @property
    def payload_offset(self) -> int:
        """Return where the payload starts, in bytes from the start of the frame."""
        return self.layers[-1].offset + self.layers[-1].size if self.layers else 0
