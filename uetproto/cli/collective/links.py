# SPDX-License-Identifier: GPL-2.0-only
"""This module counts the payload of collectives on every link. It examines each frame when the frame is sent."""

from collections.abc import Callable, Hashable, Sequence
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from uetproto import decode
from uetproto.api.distributed.networks.packets import RECORD
from uetproto.collectives.costs.measure import LinkCount
from uetproto.emulator.network.built import BuiltNetwork, LinkHop
from uetproto.emulator.network.payload import MAGIC_AT, SEND_STARTS, MeteredLink, vector_size
from uetproto.wire.headers.roce import BTH, Operation, Transport
from uetproto.wire.headers.sharp import SHARP
from uetproto.wire.headers.uet_pds import RUD_REQ, PdsType
from uetproto.wire.headers.uet_ses import REQUEST_STD, SEND_STD_SOM, SENDS, Opcode

_BASE = 14 + 20 + 8
"""Number of bytes of the Ethernet, IPv4 and UDP headers."""
_TYPE = 12
"""Offset of the EtherType."""
_LENGTH = 14 + 2
"""Offset of the length of the IPv4 packet."""
_SES = _BASE + RUD_REQ.size
_KEY = _SES + REQUEST_STD.offset_of("memory_key") // 8
_RECORD_KEY = bytes(8)
"""Memory key to which UET ranks write their grants."""
_OPCODE = 0x3F  # bits of the first byte of SES
_SENDS = frozenset(SENDS)
"""Opcodes that SHARP messages may have (sharp.md §2.1)."""
_WITHOUT_STATE = (PdsType.RUD_REQ, PdsType.ROD_REQ)
_ACKNOWLEDGE = Transport.RC << 5 | Operation.ACKNOWLEDGE
_UD_SEND_IMMEDIATE = 0x65
_DATA = frozenset((*range(0x06, 0x0C), *range(0x0D, 0x11), _UD_SEND_IMMEDIATE))
"""BTH opcodes whose payload counts: RDMA WRITE with and without immediate, RDMA READ response, and chunks of multicast
(roce.md §3). SENDs on connections do not count, as they are grants and tokens; of a SHARP message the vector counts."""


class LinkMeter:
    """This class counts how many bytes of a collective's payload cross each link of a network that is metered.

    Most frames are not decoded. Frames of the same shape, which are their length and some bytes of their headers,
    have payload of the same size, unless they may be SHARP messages or grants of which the shape says too little. On
    links within switches only the frames and their bytes are counted.
    """

    def __init__(self, network: BuiltNetwork, transport: str, *, sharp: bool = False) -> None:
        """Meter a network before its first frame. With `sharp`, most frames are SHARP messages."""
        self._hops: Sequence[LinkHop] = network.hops
        sizes, known = _SIZES[transport], dict[Hashable, int]()
        payload_of = _payload_of(sizes, known)
        kinds = _SHARP_KINDS[transport] if sharp else FrameKinds(sizes.shape, lambda frame: sizes.shape(frame) in known)
        for hop in network.hops:
            assert isinstance(hop.link, MeteredLink)
            hop.link.meter(payload_of, *kinds)
        for hop in network.inner_hops:
            assert isinstance(hop.link, MeteredLink)
            hop.link.meter(lambda frame: 0, len, lambda frame: True)

    def counts(self) -> tuple[LinkCount, ...]:
        """Return the number of frames, their bytes and the bytes of payload for every link."""
        return tuple(
            LinkCount(f"{hop.source} > {hop.target}", hop.link.frames, hop.link.bytes, hop.payload)
            for hop in self._hops
        )


class FrameKinds(NamedTuple):
    """This tuple has the functions by which a link counts frames of the same payload together."""

    kind_of: Callable[[bytes], Hashable]
    """Function that returns the kind of a frame."""
    says_payload: Callable[[bytes], bool]
    """Function that returns whether all frames of the kind of this one have the same payload."""


class FrameSizes(NamedTuple):
    """This tuple has the functions that find the payload of the frames of a transport."""

    of_shape: Callable[[bytes], int]
    """Function that returns the payload of a frame, inverted (~) if other frames of the same shape may have less."""
    of_frame: Callable[[bytes, int], int]
    """Function that returns the payload of a frame of such a shape, which is given as well."""
    shape: Callable[[bytes], Hashable]
    """Function that returns the shape of a frame: the EtherType, the length of the IP packet, and the bytes of headers
    that say of which kind the frame is. One call of C does it, as this is done for each frame on each link."""


def _payload_of(sizes: FrameSizes, known: dict[Hashable, int]) -> Callable[[bytes], int]:
    """Return the function that returns the payload of a frame. It keeps the payload of each shape, in `known` if it is
    the same for all frames of the shape."""
    of_shape, of_frame, shape_of = sizes
    most: dict[Hashable, int] = {}
    """Payload of other shapes, of which a frame may have less."""

    def payload_of(frame: bytes) -> int:
        shape = shape_of(frame)
        if shape in known:
            return known[shape]
        if shape not in most:
            found = of_shape(frame)
            if found >= 0:
                known[shape] = found
                return found
            most[shape] = ~found
        return of_frame(frame, most[shape])

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


_KIND = f">{_TYPE}xH{_LENGTH - _TYPE - 2}xH{_BASE - _LENGTH - 2}xH"
_SIZES = {
    "uet": FrameSizes(_uet_shape, _uet_frame, Struct(f"{_KIND}{_SES - _BASE - 2}xH").unpack_from),
    "roce": FrameSizes(_roce_shape, _roce_frame, Struct(_KIND).unpack_from),
}
"""What finds the payload, by transport. All frames but those of PFC have IPv4 and UDP headers. The first two bytes of
the transport header belong to a shape, and those of SES; a frame of UET is never too short, as it has 12 bytes of PDS
and a CRC."""


def _parts(*parts: tuple[int, int]) -> Callable[[bytes], Hashable]:
    """Return the function that returns parts of a frame, each given by its offset and size."""
    return itemgetter(*(slice(at, at + size) for at, size in ((_TYPE, 2), (_LENGTH, 2), (_BASE, 2), *parts)))


def _vector_at(start: int) -> list[tuple[int, int]]:
    """Return the parts of a SHARP message at an offset that say how long its vector is."""
    return [(start, 2), *((start + SHARP.offset_of(name) // 8, 2) for name in ("payload_len", "flags"))]


def _uet_says(frame: bytes) -> bool:
    """Return whether a frame is an ACK or a SHARP message, without the state of congestion control."""
    kind = frame[_BASE] >> 3
    return kind == PdsType.ACK or (kind in _WITHOUT_STATE and vector_size(frame, _BASE, roce=False) is not None)


def _roce_says(frame: bytes) -> bool:
    """Return whether a frame is an acknowledgement, or the first packet of a SHARP message on a connection."""
    opcode = frame[_BASE]
    starts = opcode in SEND_STARTS and opcode >> 5 == Transport.RC
    return opcode == _ACKNOWLEDGE or (starts and vector_size(frame, _BASE, roce=True) is not None)


_SHARP_KINDS = {
    "uet": FrameKinds(_parts((_SES, 2), (_SES + MAGIC_AT, 4), *_vector_at(_SES + SEND_STD_SOM.size)), _uet_says),
    "roce": FrameKinds(_parts(*_vector_at(_BASE + BTH.size)), _roce_says),
}
"""By what links count the frames of a network that are SHARP messages in the main. The frames of one kind are counted
without a look at their headers."""
