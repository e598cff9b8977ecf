# SPDX-License-Identifier: GPL-2.0-only
"""This module has links that also count bytes of payload, without headers. The quantity `trav` of collectives.md §2 is
measured in these bytes.

Only data packets have payload here; trimmed packets and answers such as ACKs have none. The payload of a SHARP message
is its vector; control messages such as joins and locks have none (sharp.md §2.5).
"""

from collections.abc import Callable
from typing import Any

from uetproto.emulator.network.clock import Clock
from uetproto.framing.dscp import IPV4_TYPE, Dscp
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.impair.link import EmulatedLink, FrameKind, FrameReceiver
from uetproto.wire.forms import ROCE_PORT
from uetproto.wire.headers.ethernet import IPV4, IPV6, UDP, IpProtocol
from uetproto.wire.headers.roce import BTH, DETH, Operation, Transport
from uetproto.wire.headers.sharp import MAGIC, SHARP, TGT_WORDS, UDH_WORDS, VECTORS, VERSION, Flag, SharpOpcode
from uetproto.wire.headers.uet_pds import PdsType
from uetproto.wire.headers.uet_ses import SEND_STD_SOM
from uetproto.wire.stack import decode

_IPV4_PROTOCOL, _IPV6_PROTOCOL = ETHERNET_SIZE + 9, ETHERNET_SIZE + 6
_ENTROPY_SIZE = 4

SHAPES = 1 << 14
"""Number of frame shapes whose payload size is cached. A full cache is emptied."""

_RC, _UD = Transport.RC << 5, Transport.UD << 5
SEND_STARTS = {
    _RC | Operation.SEND_ONLY: BTH.size,
    _RC | Operation.SEND_FIRST: BTH.size,
    _UD | Operation.SEND_ONLY: BTH.size + DETH.size,
}
"""Number of bytes between UDP and SHARP, by the opcode of the BTH, of packets that may begin a SHARP message (sharp.md
§2.1)."""
_CONTINUES = (_RC | Operation.SEND_MIDDLE, _RC | Operation.SEND_LAST)
_PDS_SIZES: dict[int, int] = {PdsType.RUD_REQ: 12, PdsType.ROD_REQ: 12, PdsType.RUD_CC_REQ: 16, PdsType.ROD_CC_REQ: 16}
_ROCE_PORT = ROCE_PORT.to_bytes(2, "big")
_MAGIC, MAGIC_AT = MAGIC.to_bytes(4, "big"), 32  # in the SES header
_FLAGS_AT = SHARP.offset_of("flags") // 8
_UDH, _TGT = int(Flag.UDH), int(Flag.TGT)
_OPCODES, _VECTORS = frozenset(SharpOpcode), frozenset(VECTORS)


class PayloadSize:
    """A payload size is a function object that returns the number of payload bytes of a frame on the standard ports.

    Only one frame of each shape is decoded, as all frames of a shape have payload of the same size. The shape is the
    length, the port, and the first bytes of PDS and SES, or of the BTH. With `sharp`, a SEND that looks like a SHARP
    message is taken for a SHARP message. Its first packet has the length of the vector, so that the whole vector is
    counted at the first packet.
    """

    def __init__(self, dscp: Dscp, *, sharp: bool = False) -> None:
        self._dscp = dscp
        self._sharp = sharp
        self._sizes: dict[tuple[int, bytes, bytes], int] = {}
        self._last, self._last_size = b"", 0

    def __call__(self, frame: bytes) -> int:
        if frame is not self._last:  # copies to a group are one object
            self._last_size, self._last = self._of(frame), frame
        return self._last_size

    def _of(self, frame: bytes) -> int:
        if not self._dscp.is_data(frame):
            return 0
        if frame[12:ETHERNET_SIZE] == IPV4_TYPE:
            at, protocol = ETHERNET_SIZE + IPV4.size, frame[_IPV4_PROTOCOL]
        else:
            at, protocol = ETHERNET_SIZE + IPV6.size, frame[_IPV6_PROTOCOL]
        at += UDP.size if protocol == IpProtocol.UDP else _ENTROPY_SIZE
        if self._sharp:
            found = vector_size(frame, at, roce=protocol == IpProtocol.UDP and frame[at - 6 : at - 4] == _ROCE_PORT)
            if found is not None:
                return found
        shape = (len(frame), frame[at - 6 : at - 4] + frame[at : at + 2], frame[at + 12 : at + 14])
        size = self._sizes.get(shape)
        if size is None:
            if len(self._sizes) >= SHAPES:
                self._sizes.clear()
            self._sizes[shape] = size = len(decode(frame).payload)
        return size


def vector_size(frame: bytes, at: int, *, roce: bool) -> int | None:
    """Return the number of vector bytes of the SHARP message whose transport header is at offset `at`. Return 0 for a
    later packet of a SEND over RoCE, and None for a frame without a SHARP message.

    A SHARP message is recognized by its length and flags (sharp.md §2.8, rule 1). Over UET, the letters SHRP in the
    field header_data of the SES header are required as well.
    """
    if len(frame) <= at:
        return None
    if roce:
        opcode = frame[at]
        if opcode in _CONTINUES:
            return 0
        size = SEND_STARTS.get(opcode)
        if size is None:
            return None
        start = at + size
    else:
        size = _PDS_SIZES.get(frame[at] >> 3)
        if size is None:
            return None
        mark = at + size + MAGIC_AT
        if frame[mark : mark + 4] != _MAGIC:
            return None
        start = at + size + SEND_STD_SOM.size
    if len(frame) < start + SHARP.size:
        return None
    flags = frame[start + _FLAGS_AT] << 8
    words = (UDH_WORDS if flags & _UDH else 0) + (TGT_WORDS if flags & _TGT else 0)
    if frame[start] != VERSION << 4 | words or frame[start + 1] not in _OPCODES:
        return None
    return int.from_bytes(frame[start + 22 : start + 24], "big") if frame[start + 1] in _VECTORS else 0


class MeteredLink(EmulatedLink):
    """A metered link is an emulated link that also counts the payload bytes of the frames that are sent."""

    __slots__ = ("_says_payload", "payload_of")

    def __init__(
        self, clock: Clock, sink: FrameReceiver, payload_of: Callable[[bytes], int], *, rate: int, delay: int, mtu: int,
        size_of: Callable[[bytes], int] = len,
    ) -> None:  # fmt: skip
        super().__init__(clock, sink, rate=rate, delay=delay, mtu=mtu, size_of=size_of)
        self.payload_of = payload_of
        """Function that returns the payload of a frame. It may be replaced before the first frame."""
        self._says_payload: Callable[[bytes], bool] = lambda frame: False

    def meter(
        self, payload_of: Callable[[bytes], int], kind_of: Callable[[bytes], Any], says_payload: Callable[[bytes], bool]
    ) -> None:
        """Count the payload by kinds, before the first frame is sent. `kind_of` returns the kind of a frame, and
        `says_payload`, after `payload_of`, whether all frames of this kind have the same size and payload."""
        self.payload_of, self._kind_of, self._says_payload = payload_of, kind_of, says_payload

    def _new_kind(self, frame: bytes) -> FrameKind:
        """Return the kind of a frame. Frames of which the kind does not say the payload are one kind if they have the
        same size and payload."""
        payload, size = self.payload_of(frame), self._size_of(frame)
        key = self._kind_of(frame) if self._says_payload(frame) else (size, payload)
        kind = self._kinds.get(key)
        if kind is None:
            self._kinds[key] = kind = FrameKind(size, self._table[size], payload)
        return kind

    @property
    def payload(self) -> int:
        """Return the number of payload bytes of the frames that were sent."""
        return sum(kind.payload * kind.sent for kind in self._kinds.values())
