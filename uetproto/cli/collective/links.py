# SPDX-License-Identifier: GPL-2.0-only
"""This module counts the payload of collectives on every link. It examines each frame when the frame is sent."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from uetproto import decode
from uetproto.api.distributed.networks.packets import RECORD
from uetproto.collectives.costs.measure import LinkCount
from uetproto.emulator.network.built import LinkHop
from uetproto.emulator.network.payload import SEND_STARTS, MeteredLink, vector_size
from uetproto.wire.headers.uet_pds import RUD_REQ
from uetproto.wire.headers.uet_ses import REQUEST_STD, SENDS, Opcode

_BASE = 14 + 20 + 8
"""Number of bytes of the Ethernet, IPv4 and UDP headers."""
_TYPE_END = _BASE + 2
_SES = _BASE + RUD_REQ.size
_KEY = _SES + REQUEST_STD.offset_of("memory_key") // 8
_RECORD_KEY = bytes(8)
"""Memory key to which UET ranks write their grants."""
_OPCODE = 0x3F  # bits of the first byte of SES
_SENDS = frozenset(SENDS)
"""Opcodes that SHARP messages may have (sharp.md §2.1)."""
_UD_SEND_IMMEDIATE = 0x65
_DATA = frozenset((*range(0x06, 0x0C), *range(0x0D, 0x11), _UD_SEND_IMMEDIATE))
"""BTH opcodes whose payload counts: RDMA WRITE with and without immediate, RDMA READ response, and chunks of multicast
(roce.md §3). SENDs on connections do not count, as they are grants and tokens; of a SHARP message the vector counts."""


class LinkMeter:
    """This class counts how many bytes of a collective's payload cross each link of a network that is metered.

    Most frames are not decoded. Frames of the same shape, which are their length and the first bytes of their headers,
    have payload of the same size, unless they may be SHARP messages or grants.
    """

    def __init__(self, hops: Sequence[LinkHop], transport: str) -> None:
        self._hops = hops
        payload_of = _payload_of(_SIZES[transport])
        for hop in hops:
            assert isinstance(hop.link, MeteredLink)
            hop.link.payload_of = payload_of

    def counts(self) -> tuple[LinkCount, ...]:
        """Return the number of frames, their bytes and the bytes of payload for every link."""
        return tuple(
            LinkCount(f"{hop.source} > {hop.target}", hop.link.frames, hop.link.bytes, hop.payload)
            for hop in self._hops
        )


class FrameSizes(NamedTuple):
    """This tuple has the functions that find the payload of the frames of a transport."""

    of_shape: Callable[[bytes], int]
    """Function that returns the payload of a frame, inverted (~) if other frames of the same shape may have less."""
    of_frame: Callable[[bytes, int], int]
    """Function that returns the payload of a frame of such a shape, which is given as well."""
    second: int
    """Offset of the two bytes that belong to the shape beside the first ones of the transport header; 0: none do."""


def _payload_of(sizes: FrameSizes) -> Callable[[bytes], int]:
    """Return the function that returns the payload of a frame. It keeps the payload of each shape."""
    of_shape, of_frame, second = sizes
    end = second + 2 if second else 0
    known: dict[tuple[int, bytes, bytes], int] = {}

    def payload_of(frame: bytes) -> int:
        shape = len(frame), frame[_BASE:_TYPE_END], frame[second:end]
        found = known.get(shape)
        if found is None:
            found = known[shape] = of_shape(frame)
        return found if found >= 0 else of_frame(frame, ~found)

    return payload_of


def _uet_shape(frame: bytes) -> int:
    found, opcode = len(decode(frame).payload), _opcode(frame)
    return ~found if opcode in _SENDS or (opcode == Opcode.WRITE and found == RECORD) else found


def _uet_frame(frame: bytes, found: int) -> int:
    if _opcode(frame) in _SENDS:
        vector = vector_size(frame, _BASE, roce=False)
        return found if vector is None else vector
    return 0 if frame[_KEY : _KEY + 8] == _RECORD_KEY else found


def _opcode(frame: bytes) -> int:
    """Return the opcode of the SES header, if there is one."""
    return frame[_SES] & _OPCODE if len(frame) > _SES else 0


def _roce_shape(frame: bytes) -> int:
    opcode = frame[_BASE]
    found = len(decode(frame).payload) if opcode in _DATA else 0
    return ~found if vector_size(frame, _BASE, roce=True) is not None or opcode in SEND_STARTS else found


def _roce_frame(frame: bytes, found: int) -> int:
    vector = vector_size(frame, _BASE, roce=True)
    return found if vector is None else vector


_SIZES = {"uet": FrameSizes(_uet_shape, _uet_frame, _SES), "roce": FrameSizes(_roce_shape, _roce_frame, 0)}
