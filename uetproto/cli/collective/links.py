# SPDX-License-Identifier: GPL-2.0-only
"""This module counts the payload of collectives on every link. It examines each frame when the frame arrives."""

from collections.abc import Callable, Sequence

from uetproto import decode
from uetproto.api.distributed.networks.packets import RECORD
from uetproto.collectives.costs.measure import LinkCount
from uetproto.emulator.network.built import LinkHop
from uetproto.emulator.network.payload import vector_size
from uetproto.wire.headers.uet_pds import RUD_REQ
from uetproto.wire.headers.uet_ses import REQUEST_STD, SENDS, Opcode

_BASE = 14 + 20 + 8
"""Number of bytes of the Ethernet, IPv4 and UDP headers."""
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
    """This class counts how many bytes of a collective's payload cross each link.

    Most frames are not decoded. Frames with the same length and the same first bytes have payload of the same size.
    """

    def __init__(self, hops: Sequence[LinkHop], transport: str) -> None:
        self._hops = hops
        self._payload = [0] * len(hops)
        self._known: dict[tuple[int, bytes], int] = {}
        """Payload of frames by their length and their first bytes; inverted (~) if further bytes of each decide."""
        payload_of = {"uet": self._uet, "roce": self._roce}[transport]
        for number, hop in enumerate(hops):
            hop.link.watch(self._counter(number, payload_of))

    def counts(self) -> tuple[LinkCount, ...]:
        """Return the number of frames, their bytes and the bytes of payload for every link."""
        return tuple(
            LinkCount(f"{hop.source} > {hop.target}", hop.link.frames, hop.link.bytes, payload)
            for hop, payload in zip(self._hops, self._payload, strict=True)
        )

    def _counter(self, number: int, payload_of: Callable[[bytes], int]) -> Callable[[bytes], None]:
        payload = self._payload

        def look(frame: bytes) -> None:
            payload[number] += payload_of(frame)

        return look

    def _uet(self, frame: bytes) -> int:
        key = len(frame), frame[_BASE : _BASE + 2] + frame[_SES : _SES + 2]  # types, flags and the opcode of the SES
        found = self._known.get(key)
        if found is None:
            found, opcode = len(decode(frame).payload), key[1][2] & _OPCODE
            if opcode in _SENDS or (opcode == Opcode.WRITE and found == RECORD):
                found = ~found
            self._known[key] = found
        if found >= 0:
            return found
        if key[1][2] & _OPCODE in _SENDS:
            vector = vector_size(frame, _BASE, roce=False)
            return ~found if vector is None else vector
        return 0 if frame[_KEY : _KEY + 8] == _RECORD_KEY else ~found

    def _roce(self, frame: bytes) -> int:
        vector = vector_size(frame, _BASE, roce=True)
        if vector is not None:
            return vector
        begin = frame[_BASE : _BASE + 2]  # opcode, pad count
        found = self._known.get((len(frame), begin))
        if found is None:
            found = len(decode(frame).payload) if begin[0] in _DATA else 0
            self._known[len(frame), begin] = found
        return found
