# SPDX-License-Identifier: GPL-2.0-only
"""Every SHARP header, and each multicast immediate, is a Scapy layer. `uetproto.layers` exports these layers, too.

    from uetproto.layers import Bth, Sharp, bind_sharp
    message = Sharp(opcode="AGG_REQ", op="SUM", dtype="FLOAT", count=2, flags="FIRST+LAST") / struct.pack(">2f", 1, 2)
    packet = IP(dst="10.0.0.2") / UDP(sport=0xC000) / Bth(opcode="RC_SEND_ONLY", psn=7) / message

A message that is built gets its lengths and its pad. No field of a lower header announces a message, so frames are
dissected to these layers only after `bind_sharp()`. Over RoCE, a payload is then taken for a message if its fields
agree with each other (sharp.md §2.8). Over UET, the header data says that a payload is a message. After
`bind_mcast()`, immediates are dissected as multicast immediates (collectives.md §3.10.1).
"""

from typing import Any, ClassVar

from scapy.fields import FieldListField, ShortField, StrField
from scapy.packet import Packet, Padding, Raw

from uetproto.layers.base import INSIDE, FormLayer, layer_of
from uetproto.wire import inside
from uetproto.wire.fields import Header
from uetproto.wire.forms import MCAST_FORMS, SHARP_FORMS
from uetproto.wire.headers import roce, sharp, sharp_am
from uetproto.wire.packet import Layer
from uetproto.wire.packet import Packet as Decoded
from uetproto.wire.words.sharp import sharp_words

# Layers --------------------------------------------------------------------------------------------------------------


class SharpLayer(FormLayer):
    """This is the base class of the layers of all SHARP headers."""

    def following(self) -> tuple[Header, ...]:
        """Return the headers that must follow this one, according to the opcode and flags of the base header."""
        layer, passed = self, 0
        while isinstance(layer, SharpLayer) and layer.header is not sharp.SHARP:
            layer, passed = layer.underlayer, passed + 1
        if not isinstance(layer, SharpLayer):
            return ()
        return sharp.following(layer.opcode, int(layer.flags))[passed:]

    def guess_payload_class(self, payload: bytes) -> Any:
        following = self.following()
        if not following:
            ranks = self.header is sharp.JOIN_REQ and len(payload) == 2 * self.member_count
            return SharpRanks if ranks else Raw
        header = following[0]
        open_ended = header in (sharp.EXT_UDH, sharp.EXT_TGT, sharp.JOIN_REQ)
        fits = len(payload) >= header.size if open_ended else len(payload) == header.size
        return SHARP_LAYERS[header.name] if fits else Raw

    def words(self) -> str:
        return sharp_words(self.header.name, self.sent_values()) or self.header.title


_RESPONSE = 0x80
"""Bit that the opcode or method of a response has in addition to that of its request."""


class _BaseLayer(SharpLayer):
    def do_dissect_payload(self, s: bytes) -> None:
        """Dissect the bytes behind the base header, which end with the pad; an invalid message becomes Raw."""
        length = getattr(self.underlayer, "request_length", None)  # UET states the length of the message
        lengths = range(inside.ENDLESS) if length is None else range(length, length + 1)
        if s and inside.message_of(self.original, 0, lengths).reason:
            self.add_payload(Raw(s))
            return
        size = 4 * self.ext_words + self.payload_len
        if len(s) <= size:
            super().do_dissect_payload(s)
            return
        if size:
            super().do_dissect_payload(s[:size])
        self.add_payload(SharpPad(s[size:], _internal=1))

    def _sizes(self) -> tuple[int, int, bool]:
        """Return the bytes of the extensions and of the body above this header, and whether a pad follows."""
        extensions = body = 0
        layer = self.payload
        while isinstance(layer, SharpLayer | SharpRanks | Raw) and not isinstance(layer, Padding):
            size = len(layer.self_build())
            extension = isinstance(layer, SharpLayer) and layer.header in (sharp.EXT_UDH, sharp.EXT_TGT)
            extensions, body = (extensions + size, body) if extension else (extensions, body + size)
            layer = layer.payload
        return extensions, body, isinstance(layer, SharpPad)

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        extensions, body, padded = self._sizes()
        if self.getfieldval("ext_words") is None:
            pkt = bytes([pkt[0] & 0xF0 | extensions // 4 & 0xF]) + pkt[1:]
        if self.getfieldval("payload_len") is None:
            pkt = pkt[:22] + (body & 0xFFFF).to_bytes(2, "big") + pkt[24:]
        end = extensions + body
        pad = b"" if padded or self.received else bytes(-body % 4)
        return b"".join((pkt, pay[:end], pad, pay[end:]))

    def is_cut(self) -> bool:
        _, body, padded = self._sizes()
        return self.received and not padded and body % 4 != 0

    def answers(self, other: Any) -> int:
        """Return 1 if this message is the response to `other`, or a NACK or ERROR about it, else 0 (sharp.md §2.5)."""
        if not isinstance(other, SharpLayer) or other.header is not sharp.SHARP or other.opcode & _RESPONSE:
            return 0
        about = self.opcode in (sharp.SharpOpcode.NACK, sharp.SharpOpcode.ERROR)
        same = all(getattr(self, name) == getattr(other, name) for name in ("tree_id", "job_id", "group_id", "seq"))
        return int(same and (about or self.opcode == other.opcode | _RESPONSE))

    def hashret(self) -> bytes:
        return int(self.tree_id).to_bytes(2, "big") + int(self.seq).to_bytes(4, "big")


class _AmLayer(SharpLayer):
    def guess_payload_class(self, payload: bytes) -> Any:
        body = sharp_am.ATTRIBUTES.get(self.attr_id)
        return SHARP_LAYERS[body.name] if body is not None and len(payload) == body.size else Raw

    def answers(self, other: Any) -> int:
        """Return 1 if this datagram is the response to `other`, with the same transaction and attribute, else 0."""
        if not isinstance(other, SharpLayer) or other.header is not sharp_am.AM or other.method & _RESPONSE:
            return 0
        return int(bool(self.method & _RESPONSE) and (self.tid, self.attr_id) == (other.tid, other.attr_id))

    def hashret(self) -> bytes:
        return int(self.tid).to_bytes(8, "big")


class SharpRanks(Packet):  # type: ignore[misc]
    """This layer holds the ranks of a GROUP_JOIN_REQ."""

    name = "SHARP ranks"
    fields_desc: ClassVar[list[Any]] = [FieldListField("ranks", [], ShortField("", 0))]


class SharpPad(Packet):  # type: ignore[misc]
    """This layer holds the zeros that pad a message to whole words."""

    name = "SHARP pad"
    fields_desc: ClassVar[list[Any]] = [StrField("pad", b"")]


class McastLayer(FormLayer):
    """This is the base class of the layers of multicast immediates, which take the place of the layer `Imm`."""

    def words(self) -> str:
        return sharp_words(self.header.name, self.sent_values())


_BASES: dict[Header, type] = {sharp.SHARP: _BaseLayer, sharp_am.AM: _AmLayer}
SHARP_LAYERS: dict[str, Any] = {
    form: layer_of(header, _BASES.get(header, SharpLayer)) for form, header in SHARP_FORMS.items()
}
"""Layers of the SHARP headers, by the name of the header, such as "sharp" (sharp.md §2)."""
MCAST_LAYERS: dict[str, Any] = {form: layer_of(header, McastLayer) for form, header in MCAST_FORMS.items()}
"""Layers of the multicast immediates, by the name of the immediate's form, such as "mcast"."""

for _cls in (*SHARP_LAYERS.values(), *MCAST_LAYERS.values()):
    globals()[_cls.__name__] = _cls

# Binding -------------------------------------------------------------------------------------------------------------


def _decoded(layer: Any, payload: bytes) -> Decoded:
    """Return the layers of a packet up to `layer`, as `uetproto.decode` returns them."""
    layers: list[Layer] = []
    while isinstance(layer, FormLayer):
        layers.insert(0, Layer(layer.header.name, layer.sent_values()))
        layer = layer.underlayer
    return Decoded(layers, payload, inside.CHECKED)


def _sharp_inside(layer: Any, payload: bytes) -> Any:
    """Return the class of the layer for `payload` behind the last header: that of a SHARP message or MAD, or None."""
    packet = _decoded(layer, payload)
    count = len(packet.layers)
    inside.look_inside(packet, with_sharp=True, with_mcast=False)
    return SHARP_LAYERS[packet.layers[count].form] if len(packet.layers) > count else None


def _mcast_inside(layer: Any, payload: bytes) -> Any:
    """Return the class of the multicast layer that replaces an immediate, or None."""
    if len(payload) < roce.IMM.size or layer.following()[:1] != (roce.IMM,):
        return None
    packet = _decoded(layer, payload[roce.IMM.size :])
    packet.layers.append(Layer(roce.IMM.name, {"immdt": int.from_bytes(payload[: roce.IMM.size], "big")}))
    inside.look_inside(packet, with_sharp=False, with_mcast=True)
    return MCAST_LAYERS.get(packet.layers[-1].form)


def bind_sharp() -> None:
    """Dissect SHARP messages in the payload of SENDs over RoCE and UET."""
    unbind_sharp()
    INSIDE.append(_sharp_inside)


def unbind_sharp() -> None:
    """Undo `bind_sharp`: SHARP messages are dissected as Raw again."""
    if _sharp_inside in INSIDE:
        INSIDE.remove(_sharp_inside)


def bind_mcast() -> None:
    """Dissect immediate data as multicast immediates, in the RoCE packets that may carry them."""
    unbind_mcast()
    INSIDE.append(_mcast_inside)


def unbind_mcast() -> None:
    """Undo `bind_mcast`: multicast immediates are dissected as `Imm` again."""
    if _mcast_inside in INSIDE:
        INSIDE.remove(_mcast_inside)


__all__ = [
    "MCAST_LAYERS",
    "SHARP_LAYERS",
    "McastLayer",
    "SharpLayer",
    "SharpPad",
    "SharpRanks",
    "bind_mcast",
    "bind_sharp",
    "unbind_mcast",
    "unbind_sharp",
    *(cls.__name__ for cls in (*SHARP_LAYERS.values(), *MCAST_LAYERS.values())),
]
