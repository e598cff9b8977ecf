# SPDX-License-Identifier: GPL-2.0-only
"""This module computes the CRCs of InfiniBand and RoCE packets: the ICRC end to end, and the VCRC of each link.

The ICRC is the CRC-32 of Ethernet. It covers the packet from the network header or LRH on (roce.md §4). Fields that a
router or switch may change count as ones. `VARIANT` names these fields, and the header tables give their place.
"""

from collections.abc import Sequence
from functools import cache

from uetproto.wire.crc import crc32
from uetproto.wire.fields import Header
from uetproto.wire.headers.ethernet import IPV4, IPV6, UDP
from uetproto.wire.headers.roce import BTH, GRH, LRH
from uetproto.wire.packet import Layer

ICRC_SIZE = 4
VCRC_SIZE = 2

VARIANT: dict[Header, tuple[str, ...]] = {
    IPV4: ("dscp", "ecn", "ttl", "checksum"),
    IPV6: ("dscp", "ecn", "flow_label", "hop_limit"),
    GRH: ("tclass", "flowlabel", "hoplmt"),
    LRH: ("vl",),
    UDP: ("checksum",),  # the source port counts
    BTH: ("fecn", "becn", "rsvd"),
}
_MASKS = {
    header.name: sum(
        ((1 << header[name].bits) - 1) << header.size * 8 - header.offset_of(name) - header[name].bits for name in names
    )
    for header, names in VARIANT.items()
}
_NETWORK = ("ipv4", "ipv6", "grh")
_AFTER_ONES = 0x2144DF1C  # the CRC after eight bytes of ones, which stand for the LRH


def invariant_start(forms: Sequence[str]) -> tuple[int, int]:
    """Return the index of the first layer that the ICRC covers, and the CRC state before this layer.

    `forms` are the forms of the layers up to the BTH, whose own form may be missing. Raises `ValueError` if none of
    these layers is a network header or an LRH.
    """
    for index in range(len(forms) - 1, -1, -1):
        if forms[index] in _NETWORK:
            return index, _AFTER_ONES
    return forms.index("lrh"), 0


@cache
def invariant_mask(layers: tuple[tuple[str, int], ...]) -> int:
    """Return a mask of the bits that the ICRC takes as ones in successive headers.

    `layers` has the form and the size in bytes of each header.
    """
    mask = 0
    for form, size in layers:
        mask = mask << size * 8 | _MASKS.get(form, 0)
    return mask


def icrc(frame: bytes, layers: Sequence[Layer], end: int) -> int:
    """Return the ICRC of the packet in `frame`. `layers` are its headers up to the BTH, and `end` is the offset of the
    end of its pad."""
    return icrc_of([(layer.form, frame[layer.offset : layer.offset + layer.size]) for layer in layers],
                   frame[layers[-1].offset + BTH.size : end])  # fmt: skip


def icrc_of(headers: Sequence[tuple[str, bytes]], rest: bytes) -> int:
    """Return the ICRC over `headers` and `rest`. `headers` has the form and the bytes of each header up to the BTH, and
    `rest` has all bytes behind the BTH.

    Raises `ValueError` if none of the headers is a network header or an LRH.
    """
    first, crc = invariant_start([form for form, _ in headers])
    mask = invariant_mask(tuple([(form, len(data)) for form, data in headers[first:]]))
    head = b"".join([data for _, data in headers[first:]])
    head = (int.from_bytes(head, "big") | mask).to_bytes(len(head), "big")
    return crc32(rest, crc32(head, crc))


def _vcrc_table() -> tuple[int, ...]:
    polynomial = int(f"{0x100B:016b}"[::-1], 2)
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_VCRC = _vcrc_table()


def vcrc(data: bytes) -> int:
    """Return the VCRC over `data`, which is the packet from the LRH to the end of the ICRC."""
    crc = 0xFFFF
    for byte in data:
        crc = crc >> 8 ^ _VCRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFF
