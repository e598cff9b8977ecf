# SPDX-License-Identifier: GPL-2.0-only
"""Every RoCE header is a Scapy layer. `uetproto.layers` exports these layers, too.

    from uetproto.layers import Bth, Reth, bind_roce
    packet = IP(dst="10.0.0.2") / UDP(sport=0xC000) / Bth(opcode="RC_RDMA_WRITE_ONLY", psn=7) / Reth() / b"data"

The opcode of a Bth says which headers follow. A packet that is built gets its pad and its ICRC. A packet that was
dissected keeps its bytes, unless `del packet[RoceIcrc].icrc` has the ICRC computed anew. Frames are dissected to these
layers, and not to those of `scapy.contrib.roce`, after `bind_roce()`. `unbind_roce()` undoes this.
"""

from typing import Any, ClassVar

from scapy.fields import LEIntField, LEShortField, StrLenField
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import CookedLinux, CookedLinuxV2, Dot1Q, Ether
from scapy.packet import Packet, Padding, Raw, bind_top_down

from uetproto.layers.base import INSIDE, FormLayer, inside_of, last_of, layer_of, nearest, refusing
from uetproto.wire.fields import Header
from uetproto.wire.forms import ROCE_FORMS, ROCE_PORT
from uetproto.wire.headers import roce
from uetproto.wire.headers.ethernet import IPV4, EtherType
from uetproto.wire.icrc import ICRC_SIZE, VCRC_SIZE, icrc_of, vcrc
from uetproto.wire.words.roce import bth_words, extension_words
from uetproto.wire.words.text import octets

_rd = "raw"

# Layers --------------------------------------------------------------------------------------------------------------


class RoceLayer(FormLayer):
    """This is the base class of the layers of all RoCE headers."""

    def following(self) -> tuple[Header, ...]:
        """Return the headers that must follow this one, according to the opcode of the packet's BTH."""
        layer, passed = self, 0
        while isinstance(layer, RoceLayer) and layer.header is not roce.BTH:
            layer, passed = layer.underlayer, passed + 1
        if not isinstance(layer, RoceLayer) or (_rd == "raw" and layer.opcode in roce.RD_OPCODES):
            return ()
        return roce.SEQUENCES.get(layer.opcode, ())[passed:]

    def guess_payload_class(self, payload: bytes) -> Any:
        following = self.following()
        if INSIDE and (found := inside_of(self, payload)) is not None:
            return found
        return ROCE_LAYERS[following[0].name] if following and len(payload) >= following[0].size else Raw

    def words(self) -> str:
        values, payload = self.sent_values(), self.payload
        bth = nearest(self, _BthLayer)
        if self.header is roce.BTH:
            words = f"RoCE {bth_words(values)}"
        elif told := extension_words(self.header.name, values, bth.opcode if bth is not None else 0):
            words = f"{type(self).__name__} {told}"
        else:
            words = super().words()
        if type(payload) is Raw and bth is not None and Reth not in bth:
            words += f" · {octets(len(payload.load))}"
        return words


_PSNS = 1 << 24
_SMALLEST_MTU = 256
_ATOMICS = (roce.Operation.COMPARE_SWAP, roce.Operation.FETCH_ADD)
_ACKNOWLEDGES = (roce.Operation.ACKNOWLEDGE,)
_ATOMIC_ANSWERS = (roce.Operation.ATOMIC_ACKNOWLEDGE, roce.Operation.ACKNOWLEDGE)


def _is_message(layer: Any) -> bool:
    return isinstance(layer, FormLayer) and not isinstance(layer, RoceLayer)


def _carried_answers(mine: Any, other: Any) -> bool:
    """Return whether the message that `mine` carries answers the one that `other` carries."""
    first, second = (next((lay for lay in packet.iterpayloads() if _is_message(lay)), None) for packet in (mine, other))
    return first is not None and second is not None and bool(first.answers(second))


class _BthLayer(RoceLayer):
    def do_dissect_payload(self, s: bytes) -> None:
        """Dissect the bytes behind the BTH, which end with pad and ICRC."""
        size = ICRC_SIZE + self.padcnt
        if len(s) < size:
            super().do_dissect_payload(s)
            return
        if s[:-size]:
            super().do_dissect_payload(s[:-size])
        self.add_payload(RoceIcrc(s[-size:], _internal=1))

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        last = last_of(self, RoceVcrc)
        pad, value, behind = b"", None, b""
        if isinstance(last.payload, RoceVcrc):
            pay, behind = pay[:-VCRC_SIZE], pay[-VCRC_SIZE:]
        if isinstance(last, RoceIcrc):
            pad, value = last.pad, last.getfieldval("icrc")
            pay = pay[: -ICRC_SIZE - len(pad)]
        elif self.received:
            return pkt + pay + behind
        given = self.getfieldval("padcnt")
        if given is None or not isinstance(last, RoceIcrc):
            pad = pad or bytes(-len(pay) % 4 if given is None else given)
        if given is None:
            pkt = pkt[:1] + bytes([pkt[1] & 0xCF | (len(pad) & 3) << 4]) + pkt[2:]
        if value is None:
            value = _icrc(self, pkt, pay + pad)
        return b"".join((pkt, pay, pad, (value or 0).to_bytes(ICRC_SIZE, "little"), behind))

    def is_cut(self) -> bool:
        return self.received and not isinstance(last_of(self, RoceVcrc), RoceIcrc)

    def answers(self, other: Any) -> int:
        """Return 1 if this packet answers the request `other`, or if its message answers the message in `other`, else
        0.

        An acknowledgement answers the request that has its PSN. The responses to a READ have its PSN and the PSNs that
        follow it.
        """
        if not isinstance(other, RoceLayer) or other.header is not roce.BTH or self.opcode >> 5 != other.opcode >> 5:
            return 0
        mine, theirs = self.opcode & 0x1F, other.opcode & 0x1F
        if mine not in roce.RESPONSES:
            return int(_carried_answers(self, other))
        ahead = (self.psn - other.psn) % _PSNS
        if theirs in roce.RESPONSES:
            return 0
        if theirs != roce.Operation.RDMA_READ_REQUEST:
            expected = _ATOMIC_ANSWERS if theirs in _ATOMICS else _ACKNOWLEDGES
            return int(mine in expected and ahead == 0)
        reth = next((layer for layer in other.iterpayloads() if getattr(layer, "header", None) is roce.RETH), None)
        most = 1 if reth is None else max(1, -(-reth.dma_length // _SMALLEST_MTU))
        return int(mine != roce.Operation.ATOMIC_ACKNOWLEDGE and ahead < most)

    def hashret(self) -> bytes:
        """Return a value that a packet shares with its answers: the transport service, three bits of the opcode.

        The PSN cannot serve, because the answers to a READ have several PSNs.
        """
        return bytes([self.opcode >> 5])


class _GrhLayer(RoceLayer):
    def guess_payload_class(self, payload: bytes) -> Any:
        return Bth if self.nxthdr == roce.BTH_FOLLOWS and len(payload) >= roce.BTH.size else Raw

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        return s[: self.paylen], s[self.paylen :]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        if self.getfieldval("paylen") is None:
            pkt = pkt[:4] + (len(pay) & 0xFFFF).to_bytes(2, "big") + pkt[6:]
        return pkt + pay

    def words(self) -> str:
        return str(self.sprintf("GRH %sgid% > %dgid%"))


class _LrhLayer(RoceLayer):
    def guess_payload_class(self, payload: bytes) -> Any:
        kind = {roce.Lnh.LOCAL: Bth, roce.Lnh.GLOBAL: Grh}.get(self.lnh)
        return kind if kind is not None and len(payload) >= kind.header.size else Raw

    def do_dissect_payload(self, s: bytes) -> None:
        size = self.pktlen * 4 - roce.LRH.size
        if size < 0 or len(s) < size + VCRC_SIZE or self.guess_payload_class(s) is Raw:
            super().do_dissect_payload(s)
            return
        super().do_dissect_payload(s[:size])
        self.add_payload(RoceVcrc(s[size:], _internal=1))

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        last = last_of(self)
        given = isinstance(last, RoceVcrc)
        value = last.getfieldval("vcrc") if given else None
        pay = pay[:-VCRC_SIZE] if given else pay
        if self.getfieldval("lnh") is None:
            lnh = roce.Lnh.GLOBAL if isinstance(self.payload, Grh) else roce.Lnh.LOCAL
            pkt = pkt[:1] + bytes([pkt[1] & 0xFC | lnh]) + pkt[2:]
        if self.getfieldval("pktlen") is None:
            words = (roce.LRH.size + len(pay)) // 4
            pkt = pkt[:4] + (pkt[4] << 8 & 0xF800 | words & 0x7FF).to_bytes(2, "big") + pkt[6:]
        if self.received and not given:
            return pkt + pay
        return b"".join((pkt, pay, (vcrc(pkt + pay) if value is None else value).to_bytes(VCRC_SIZE, "little")))

    def is_cut(self) -> bool:
        return self.received and not isinstance(last_of(self), RoceVcrc)

    def words(self) -> str:
        return f"LRH LID {self.slid} > LID {self.dlid}"


class RoceIcrc(Packet):  # type: ignore[misc]
    """This layer holds the pad and the ICRC that end a packet. If `icrc` is None, it is computed when the packet is
    built."""

    name = "RoCE ICRC"
    fields_desc: ClassVar[list[Any]] = [
        StrLenField("pad", b"", length_from=lambda packet: len(packet.original) - ICRC_SIZE),
        LEIntField("icrc", None),
    ]

    def guess_payload_class(self, payload: bytes) -> Any:
        return Padding

    @property
    def ok(self) -> bool | None:
        """Return whether the ICRC is right, or None if it cannot be checked."""
        body, layer = self.pad, self.underlayer
        while isinstance(layer, Packet) and not isinstance(layer, Bth):
            body = layer.self_build() + body
            layer = layer.underlayer
        value = self.getfieldval("icrc")
        expected = _icrc(layer, layer.self_build(), body) if isinstance(layer, Bth) else None
        return None if value is None or expected is None else bool(value == expected)

    def mysummary(self) -> Any:
        verdict = {True: "right", False: "wrong", None: "not checked"}[self.ok]
        return f"ICRC {verdict}", [type(nearest(self, FormLayer))]


class RoceVcrc(Packet):  # type: ignore[misc]
    """This layer holds the variant CRC, which follows the ICRC in native InfiniBand."""

    name = "InfiniBand VCRC"
    fields_desc: ClassVar[list[Any]] = [LEShortField("vcrc", None)]

    def mysummary(self) -> Any:
        return "VCRC", [RoceIcrc]


def _icrc(first: Any, bth: bytes, rest: bytes) -> int | None:
    """Return the ICRC over the headers below `first`, a BTH built as `bth`, and `rest`; None if nothing is below."""
    parts = [("bth", bth)]
    above = bth + rest + bytes(ICRC_SIZE)
    layer = first.underlayer
    while layer is not None:
        data = layer.post_build(layer.self_build(), above)
        own = data[: len(data) - len(above)] if not isinstance(layer, Lrh) else data[: roce.LRH.size]
        above = own + above
        if isinstance(layer, IP):
            options = [("ipv4.options", own[IPV4.size :])] if len(own) > IPV4.size else []
            return icrc_of([("ipv4", own[: IPV4.size]), *options, *parts], rest)
        form = "ipv6" if isinstance(layer, IPv6) else "udp" if isinstance(layer, UDP) else "ipv6.ext"
        form = layer.header.name if isinstance(layer, RoceLayer) else form
        parts.insert(0, (form, own))
        if form in ("ipv6", "grh", "lrh"):
            return icrc_of(parts, rest)
        layer = layer.underlayer
    return None


_BASES: dict[Header, type] = {roce.BTH: _BthLayer, roce.GRH: _GrhLayer, roce.LRH: _LrhLayer}
ROCE_LAYERS: dict[str, Any] = {
    form: layer_of(header, _BASES.get(header, RoceLayer)) for form, header in ROCE_FORMS.items()
}
"""Layers of the RoCE headers, by the name of the header, such as "bth" (roce.md §0)."""

for _cls in ROCE_LAYERS.values():
    globals()[_cls.__name__] = _cls
Lrh, Grh, Bth, Reth = (ROCE_LAYERS[form] for form in ("lrh", "grh", "bth", "reth"))

bind_top_down(Lrh, Grh, lnh=roce.Lnh.GLOBAL)
bind_top_down(Lrh, Bth, lnh=roce.Lnh.LOCAL)
bind_top_down(Grh, Bth, nxthdr=roce.BTH_FOLLOWS)

# Binding -------------------------------------------------------------------------------------------------------------

_LINKS = ((Ether, "type"), (Dot1Q, "type"), (CookedLinux, "proto"), (CookedLinuxV2, "proto"))


def bind_roce(udp_port: int = ROCE_PORT, rd: str = "raw") -> None:
    """Dissect RoCEv2 behind `udp_port` and RoCEv1 behind its EtherType, in preference to other layers.

    Scapy uses only the first class in its list of bindings (roce.md §16), so `scapy.contrib.roce` is not used until
    `unbind_roce`. `rd` has the meaning that it has in `uetproto.decode`. Earlier bindings by this function are removed.
    Raises `LayerError` for an unknown `rd` and for an illegal port.
    """
    from uetproto.wire.stack import RD_MODES, check_choice, check_number

    global _rd
    with refusing():
        check_choice("rd", rd, RD_MODES)
        check_number("udp_port", udp_port, 0xFFFF)
    unbind_roce()
    _rd = rd
    UDP.payload_guess = [({"dport": udp_port}, Bth), *UDP.payload_guess]
    bind_top_down(UDP, Bth, dport=udp_port, chksum=0)
    for lower, field in _LINKS:
        lower.payload_guess = [({field: EtherType.ROCEV1}, Grh), *lower.payload_guess]


def unbind_roce() -> None:
    """Undo `bind_roce`, so that other layers bound to the same port or EtherType are used again."""
    for lower in (UDP, *(lower for lower, _ in _LINKS)):
        lower.payload_guess = [guess for guess in lower.payload_guess if guess[1] not in (Bth, Grh)]


bind_top_down(UDP, Bth, dport=ROCE_PORT, chksum=0)
for _lower, _name in _LINKS:
    bind_top_down(_lower, Grh, **{_name: EtherType.ROCEV1})

__all__ = [
    "ROCE_LAYERS",
    "RoceIcrc",
    "RoceLayer",
    "RoceVcrc",
    "bind_roce",
    "unbind_roce",
    *(cls.__name__ for cls in ROCE_LAYERS.values()),
]
