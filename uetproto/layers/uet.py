# SPDX-License-Identifier: GPL-2.0-only
"""Every UET header form is a Scapy layer, above Scapy's own Ether, Dot1Q, IP, IPv6 and UDP.

    from scapy.layers.inet import IP, UDP
    from uetproto.layers import PdsRudReq, SesRequestStdSom
    packet = IP(dst="10.0.0.2") / UDP() / PdsRudReq(psn=7) / SesRequestStdSom(opcode="WRITE") / b"data"

A layer has the name of its form in CamelCase: `pds.rud_req.syn` is `PdsRudReqSyn`. `LAYERS` has the layers by form, and
`wire.forms` says which form follows which. A field that is not set gets its value from the others (`wire.defaults`):
codes that announce the next layer, PDCIDs, lengths, ends of messages, DF and ECN of the IP layer. Such a field already
reads as the value that will be sent. A field that is set stays, even at 0. A packet that is built ends with its CRC32C.
A packet that was dissected keeps its bytes, unless `del packet[UetCrc32c].crc` has the CRC computed anew.
`settings.crc` (on, off, auto) says whether packets have a CRC32C.

Answers are matched by PSN and PDCIDs, so `sr1()` finds them. Scapy also requires that an answer has the UDP ports of
its request, exchanged, so the source port is 4793 unless it is set. For a request with another source port, set
`conf.checkIPsrc = False`.

The layers of RoCE (`layers/roce.py`) and SHARP (`layers/sharp.py`) are exported here too. Frames are dissected to them
after `bind_roce()` and `bind_sharp()`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, cast

from scapy.error import warning
from scapy.fields import XBitField, XIntField
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, _IPv6ExtHdr
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw, bind_top_down

from uetproto.errors import typed
from uetproto.layers import roce as layers_roce
from uetproto.layers import sharp as layers_sharp
from uetproto.layers.base import FormLayer, inside_of, last_of, layer_of, nearest, refusing
from uetproto.layers.binding import Uet as Uet
from uetproto.layers.binding import bind_bottom_up
from uetproto.layers.fields import plain_field
from uetproto.layers.roce import *  # noqa: F403
from uetproto.layers.sharp import *  # noqa: F403
from uetproto.layers.sharp import SharpRanks
from uetproto.wire.codec import class_name, codec_of
from uetproto.wire.crc import CRC_SIZE, crc32c
from uetproto.wire.defaults import RULES, code_for
from uetproto.wire.fields import Field, Header
from uetproto.wire.forms import FIRST, IP_PROTOCOL, UDP_PORT, UET_FORMS, Candidates, matches, rows_after
from uetproto.wire.headers import ethernet, sharp, uet_pds, uet_ses, uet_tss
from uetproto.wire.headers.ethernet import Ecn
from uetproto.wire.headers.numbers import TRIMMED_DSCP
from uetproto.wire.headers.uet_pds import ACKS, NACKS, CtlType
from uetproto.wire.headers.uet_ses import RESPONSES
from uetproto.wire.implied import implied_payload
from uetproto.wire.packet import Layer
from uetproto.wire.shapes import SUSPECT_SIZES, completer
from uetproto.wire.words.text import octets
from uetproto.wire.words.uet import pds_words, request_words, response_words, tss_words


@dataclass
class Settings:
    """Settings say whether a CRC32C ends a packet (`crc`), and which DSCPs a trimmed packet has (`trimmed_dscp`).

    When a packet is dissected, `crc` has the meaning that it has in `uetproto.decode`. When a packet is built, both
    "on" and "auto" append a CRC32C.
    """

    crc: Literal["auto", "on", "off"] = "auto"
    trimmed_dscp: frozenset[int] = TRIMMED_DSCP


settings = Settings()

# Fields --------------------------------------------------------------------------------------------------------------


_derived_kinds: dict[type, type] = {}


def _derived(kind: Any) -> Any:
    """Return the class of fields of a `kind` for which None stands for the value that follows from other fields."""

    def i2m(self: Any, pkt: Any, x: Any) -> Any:
        return kind.i2m(self, pkt, _followed(pkt)[self.name] if x is None else x)

    def i2h(self: Any, pkt: Any, x: Any) -> Any:
        try:
            return kind.i2h(self, pkt, _followed(pkt)[self.name] if x is None and pkt is not None else x)
        except TypeError:  # follows from a field that has several values
            return None

    if kind not in _derived_kinds:
        _derived_kinds[kind] = type(f"Derived{kind.__name__}", (kind,), {"i2m": i2m, "i2h": i2h})
    return _derived_kinds[kind]


def _field(header: Header, row: Field) -> Any:
    field = plain_field(header, row)
    if (header.name, row.name) in RULES:
        field.__class__ = _derived(type(field))
        field.default = None
    return field


def _followed(packet: Any) -> dict[str, int]:
    """Return the fields of `packet` that are not set, with the values that follow from the rest (`wire.defaults`)."""
    if packet.followed is not None:
        return cast("dict[str, int]", packet.followed)
    chain = [packet]
    while isinstance(chain[0].underlayer, UetLayer):
        chain.insert(0, chain[0].underlayer)
    place = len(chain) - 1
    while isinstance(chain[-1].payload, UetLayer):
        chain.append(chain[-1].payload)
    values = [
        {name: v for name, v in (*layer.overloaded_fields.items(), *layer.fields.items()) if v is not None}
        for layer in chain
    ]
    present = tuple(frozenset(v) for v in values)
    return completer(tuple(layer.header.name for layer in chain), present)(values, _carried(chain[-1]))[place]


def _carried(layer: Any) -> int:
    """Return the number of bytes that the last header carries."""
    if type(layer.payload) is Raw and not layer.payload.payload:
        return len(layer.payload.load)
    last = last_of(layer)
    end = CRC_SIZE if isinstance(last, UetCrc32c) else uet_tss.ICV_SIZE if isinstance(last, UetIcv) else 0
    return len(layer.payload.do_build()) - end


def _above(packet: Any) -> Iterator[Any]:
    """Return the UET layers above `packet`."""
    while isinstance(packet.payload, UetLayer):
        packet = packet.payload
        yield packet


def _headers_above(packet: Any) -> tuple[Header, ...]:
    return tuple(layer.header for layer in _above(packet))


# What a packet that is made cannot be ---------------------------------------------------------------------------------


def _mistake(first: Any) -> str:
    """Return what is wrong with the order of the headers from `first` on, or with a NACK without a code; or ""."""
    chain = [first, *_above(first)]
    codes = [tuple(part.fields.get(by) for by, _, _ in part.rows) for part in chain]
    if any(not isinstance(code, int | None) for group in codes for code in group):
        return ""
    if chain[-1].header in NACKS and "nack_code" not in chain[-1].fields:
        return f"{type(chain[-1]).__name__}: nack_code is not set, and 0 is no code"
    return _disorder(tuple(part.header for part in chain), tuple(codes), type(chain[-1].payload) is Raw)


@cache
def _disorder(headers: tuple[Header, ...], codes: tuple[tuple[int | None, ...], ...], raw: bool) -> str:
    """Return the first place where `NEXT` says that another header follows, or "".

    `codes` has the value of each row's field, None for those that follow. `raw` says that bytes follow, which may
    stand for headers.
    """
    if headers[0] not in (uet_tss.ENTROPY, *FIRST):
        return f"{_names(headers[:1])} is no header that a packet begins with"
    todo: list[Candidates] = []
    for place, header in enumerate(headers):
        above = headers[place + 1 :]
        own = []
        for row, given in zip(rows_after(header), codes[place], strict=True):
            code = code_for(header, row.by, above) if row.by and given is None else given
            own.append(row.otherwise if row.by is None or code is None else row.then.get(code, row.otherwise))
        todo = [candidates for candidates in own if candidates] + todo[1:]
        if above and not todo:
            return f"{_names(above[:1])} follows {_names((header,))}, which announces no header"
        if todo and not (above[0] in todo[0] if above else raw):
            return f"{_names(above[:1]) or 'nothing'} follows {_names((header,))}, where {_names(todo[0])} must follow"
    return ""


def _names(headers: Candidates) -> str:
    names = [class_name(header).removesuffix("Header") for header in headers]
    return " or ".join(names if len(names) < 4 else [*names[:3], "…"])


# Layers --------------------------------------------------------------------------------------------------------------


class _LayerChoice(dict[int, Any]):
    """This table gives, for the first two bytes of a header, the layer of the first candidate that matches, or None."""

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates

    def __missing__(self, word: int) -> Any:
        self[word] = found = next((LAYERS[h.name] for h in self.candidates if matches(h, word)), None)
        return found

    def of(self, data: bytes) -> Any:
        """Return the layer that starts `data`; Raw if there is none, or if `data` is too short for it."""
        layer = self[int.from_bytes(data[:2], "big")] if len(data) > 1 else None
        return layer if layer is not None and len(data) >= layer.header.size else Raw


_Rows = tuple[tuple[str | None, dict[int, _LayerChoice | None], _LayerChoice | None], ...]
_choice = cache(_LayerChoice)
_RESERVED = _LayerChoice(())


class UetLayer(FormLayer):
    """This is the base class of the layers of all UET headers."""

    __slots__ = ["followed"]  # values of the fields that are not set, while the layer is built
    rows: _Rows

    def __init__(self, _pkt: bytes = b"", *args: Any, **kwargs: Any) -> None:
        self.followed: dict[str, int] | None = None
        super().__init__(_pkt, *args, **kwargs)

    def add_underlayer(self, underlayer: Any) -> None:
        """Set the layer below this one, and the defaults of the IP header further below: DF, and ECT(0) for
        requests."""
        super().add_underlayer(underlayer)
        if isinstance(underlayer, UDP | UetLayer):
            overloads = {lower: dict(fields) for lower, fields in underlayer._overload_fields.items()}
            ect = Ecn.ECT0 if self.header in _CAPABLE else 0
            for lower, fields in ((IP, {"flags": _DF, "tos": ect}), (IPv6, {"tc": ect})):
                overloads[lower] = overloads.get(lower, {}) | fields
            underlayer.overload_fields = overloads

    # Dissecting

    def following(self) -> list[_LayerChoice]:
        """Return a list with one item for each header that must follow this layer, in wire order. The item says which
        layers this header can be.

        `_RESERVED` is the last item if a field that announces a header has a reserved code.
        """
        todo, reserved = [], []
        for by, then, otherwise in self.rows:
            choice = then.get(self.fields[by], otherwise) if by else otherwise
            if choice is None:
                reserved = [_RESERVED]
            elif choice.candidates:
                todo.append(choice)
        if isinstance(self.underlayer, UetLayer):
            todo += self.underlayer.following()[1:]
        return todo + reserved

    def guess_payload_class(self, payload: bytes) -> Any:
        todo = self.following()
        return todo[0].of(payload) if todo else inside_of(self, payload) or Raw

    def do_dissect_payload(self, s: bytes) -> None:
        """Dissect the bytes behind this layer. If no header follows, they are a payload and a trailer."""
        if s and not self.following() and not isinstance(self, self.stop_dissection_after or ()):
            size, trailer = _trailer(self, s)
            if size:
                super().do_dissect_payload(s[:-size])
                self.add_payload(trailer(s[-size:], _internal=1))
                return
        super().do_dissect_payload(s)

    # Building

    def self_build(self) -> bytes:
        """Build this header. The values of all fields that are not set are computed together, from the other fields."""
        self.followed = None
        if any(self.getfieldval(field.name) is None for field in self.fields_desc):
            self.followed = _followed(self)
        try:
            data: bytes = super().self_build()
            return data
        finally:
            self.followed = None

    def do_build(self) -> bytes:
        """Build the packet. The lowest UET layer appends the CRC32C, because it holds all UET bytes of the packet."""
        data: bytes = super().do_build()
        if self.underlayer is None or isinstance(self.underlayer, UetLayer):
            return data
        if not self.received and (mistake := _mistake(self)):
            warning(mistake)
        last = last_of(self)
        if isinstance(last, UetCrc32c):
            if last.getfieldval("crc") is not None:
                return data
            data = data[:-CRC_SIZE]
            crc = _crc(self, data) or 0
        else:
            sealed = any(header in _SEALED for header in (self.header, *_headers_above(self)))
            if sealed or self.received or settings.crc == "off":
                return data
            expected = _crc(self, data)
            if expected is None:
                return data
            crc = expected
        return data + crc.to_bytes(CRC_SIZE, "big")

    def is_cut(self) -> bool:
        if not self.received or self.underlayer is None or isinstance(self.underlayer, UetLayer):
            return False
        return not isinstance(last_of(self), UetCrc32c | UetIcv)

    # Matching and describing

    def answers(self, other: Any) -> int:
        return int(isinstance(other, UetLayer) and _answers(self, other))

    def hashret(self) -> bytes:
        """Return a value that a request shares with its answer: the PDCID of the requester, or the pkt_id of RUDI."""
        header = self.header
        if header is uet_tss.ENTROPY:
            return bytes(self.payload.hashret())
        for name in ("pkt_id", "nack_pkt_id"):
            if name in self.fieldtype:
                return int(getattr(self, name)).to_bytes(4, "big")
        if "spdcid" in self.fieldtype:
            answer = header in ACKS or header in NACKS or any(h in RESPONSES for h in _headers_above(self))
            name = "dpdcid" if answer and "dpdcid" in self.fieldtype else "spdcid"
            return int(getattr(self, name)).to_bytes(2, "big")
        return b""

    def words(self) -> str:
        header, form = self.header, self.header.name
        if form.startswith("pds.") and header.fields[0].name == "type":
            return f"UET {pds_words(form, self.sent_values())}"
        if header in _SEALED:
            return f"TSS {tss_words(self.sent_values())} · {octets(_carried(self))}"
        if header in RESPONSES:
            return f"SES {response_words(self.sent_values())}"
        if header is uet_tss.ENTROPY:
            return f"UET entropy {self.entropy}"
        if header not in uet_ses.REQUESTS:
            return super().words()
        layers = [Layer(part.header.name, part.sent_values()) for part in _above(self)]
        there = None if _trimmed(_chain(self)[-1]) else _carried(self)
        return f"SES {request_words(self.sent_values(), layers, there)}"

    def marks(self) -> list[str]:
        last = not isinstance(self.payload, FormLayer)
        trimmed = ["trimmed"] * (last and _trimmed(_chain(self)[-1]))
        return trimmed + ["crc-suspect"] * _is_suspect(self) + super().marks()


def _dispatch(cls: Any, /, _pkt: bytes = b"", *args: Any, _underlayer: Any = None, **kwargs: Any) -> Any:
    """Return the class to which bytes are dissected: `cls`, or Raw for bytes too short or of a damaged IP packet."""
    if _pkt and (len(_pkt) < cls.header.size or not _in_order(_underlayer)):
        return Raw
    return cls


def first_layer(data: bytes, underlayer: Any) -> Any:
    """Return the class of the PDS or TSS layer that starts a datagram of UET, or Raw."""
    return _choice(FIRST).of(data) if _in_order(underlayer) else Raw


LAYERS: dict[str, Any] = {form: layer_of(header, UetLayer, _field, _dispatch) for form, header in UET_FORMS.items()}
"""Layers of the UET headers, by the name of their form, such as "pds.ack" (wire.md §0)."""

for _cls in LAYERS.values():
    globals()[_cls.__name__] = _cls
    _cls.rows = tuple(
        (
            row.by,
            {int(code): _choice(candidates) for code, candidates in row.then.items()},
            None if row.otherwise is None else _choice(row.otherwise),
        )
        for row in rows_after(_cls.header)
    )

ENTROPY = LAYERS[uet_tss.ENTROPY.name]
"""The layer that starts UET over native IP."""
_SEALED = (uet_tss.TSS, uet_tss.TSS_SSI)
_DF = 2
_CAPABLE = (*uet_pds.REQUESTS, uet_pds.RUDI_REQ, uet_pds.UUD_REQ)

# What ends a packet --------------------------------------------------------------------------------------------------


class _CrcField(XIntField):  # type: ignore[misc]
    def i2repr(self, pkt: Any, x: Any) -> str:
        text = str(super().i2repr(pkt, x))
        expected = None if x is None else pkt.expected()
        if expected is None:
            return text
        return f"{text} (right)" if x == expected else f"{text} (wrong, 0x{expected:08x} expected)"


class UetCrc32c(Packet):  # type: ignore[misc]
    """This layer holds the CRC32C that ends a packet without TSS. If it is not set, it is computed when the packet is
    built."""

    name = "UET CRC32C"
    fields_desc: ClassVar[list[Any]] = [_CrcField("crc", None)]

    def expected(self) -> int | None:
        """Return the CRC that is right for the layers below, or None if there is no IP header among them."""
        parts = []
        layer, first = self.underlayer, None
        while layer is not None and (first is None or isinstance(layer, UetLayer)):
            parts.append(layer.self_build())
            first = layer if isinstance(layer, UetLayer) else None
            layer = layer.underlayer
        return None if first is None else _crc(first, b"".join(reversed(parts)))

    @property
    def ok(self) -> bool | None:
        """Return whether the CRC is right, or None if it cannot be checked."""
        value, expected = self.getfieldval("crc"), self.expected()
        return None if value is None or expected is None else bool(value == expected)

    def mysummary(self) -> Any:
        verdict = {True: "right", False: "wrong", None: "not checked"}[self.ok]
        return f"CRC32C {verdict}", [type(nearest(self, FormLayer))]


class UetIcv(Packet):  # type: ignore[misc]
    """This layer holds the ICV, the authentication tag that ends a packet sealed by TSS."""

    name = "UET ICV"
    fields_desc: ClassVar[list[Any]] = [XBitField("icv", 0, 8 * uet_tss.ICV_SIZE)]

    def mysummary(self) -> Any:
        return "ICV", [type(nearest(self, FormLayer))]


def _below(layer: Any) -> Iterator[Any]:
    """Return the layers below `layer`, down to the IP header of the packet."""
    while layer.underlayer is not None:
        layer = layer.underlayer
        yield layer
        if isinstance(layer, IP | IPv6):
            return


def _trailer(layer: Any, data: bytes) -> tuple[int, Any]:
    """Return size and layer of the trailer at the end of `data`, the bytes that follow `layer`, the last header."""
    chain = _chain(layer)
    first = chain[-1]
    if _trimmed(first):
        return 0, None
    if layer.header in _SEALED:
        return (uet_tss.ICV_SIZE, UetIcv) if len(data) >= uet_tss.ICV_SIZE else (0, None)
    if settings.crc == "off" or len(data) < CRC_SIZE:
        return 0, None
    if settings.crc == "on" or _crc(first, first.original[:-CRC_SIZE]) == int.from_bytes(data[-CRC_SIZE:], "big"):
        return CRC_SIZE, UetCrc32c
    return (CRC_SIZE, UetCrc32c) if len(data) - CRC_SIZE == _implied(chain) else (0, None)


def _chain(layer: Any) -> list[Any]:
    """Return the UET layers from `layer` down."""
    chain = [layer]
    while isinstance(chain[-1].underlayer, UetLayer):
        chain.append(chain[-1].underlayer)
    return chain


def _implied(chain: list[Any]) -> int | None:
    return implied_payload([Layer(part.header.name, part.fields) for part in reversed(chain)])


def _is_suspect(layer: Any) -> bool:
    """Return whether the payload of a dissected packet may be a payload MTU and a wrong CRC32C (interfaces.md §3)."""
    payload = layer.payload
    if settings.crc != "auto" or not layer.received or type(payload) is not Raw or layer.following():
        return False
    chain = _chain(layer)
    return len(payload.load) in SUSPECT_SIZES and not _trimmed(chain[-1]) and _implied(chain) is None


def _crc(first: Any, body: bytes) -> int | None:
    """Return the CRC of a packet; `first` is its lowest UET layer, `body` the bytes from there on (tss.md §12).

    Return None without an IP header.
    """
    parts = []
    for layer in _below(first):
        data = layer.self_build()
        if isinstance(layer, IP):
            parts.append(data[12:] + bytes(-len(data) % 4))  # IPv4 options are padded to whole words
            return crc32c(body, crc32c(b"".join(reversed(parts))))
        if isinstance(layer, IPv6):
            parts.append(data[8:])
            return crc32c(body, crc32c(b"".join(reversed(parts))))
        if isinstance(layer, UDP):
            length = layer.getfieldval("len")
            length = len(body) + CRC_SIZE + 8 if length is None else length
            data = data[:4] + (length & 0xFFFF).to_bytes(2, "big") + b"\0\0"
        else:
            data = layer.post_build(data, b"")
        parts.append(data)
    return None


def _in_order(lower: Any) -> bool:
    """Return whether a whole datagram lies below UET: no fragment, no header that contradicts itself."""
    while lower is not None and not isinstance(lower, UetLayer):
        values = lower.fields
        if isinstance(lower, UDP) and values.get("len", 8) < 8:
            return False
        if isinstance(lower, IPv6ExtHdrFragment) and (values.get("offset") or values.get("m")):
            return False
        if isinstance(lower, IP):
            ihl = values.get("ihl", 5)
            if values.get("version", 4) != 4 or ihl < 5 or values.get("len", 60) < 4 * ihl:
                return False
            return not values.get("frag") and not int(values.get("flags", 0)) & 1
        if isinstance(lower, IPv6):
            return bool(values.get("version", 6) == 6)
        lower = lower.underlayer
    return True


def _trimmed(first: Any) -> bool:
    """Return whether a switch cut the packet: its DSCP says so, or UDP is longer than what IP says it carries."""
    size = 0  # of UDP and the IPv6 extension headers
    for layer in _below(first):
        if isinstance(layer, IP):
            room = None if layer.len is None else layer.len - 4 * (layer.ihl or 5)
            return layer.tos >> 2 in settings.trimmed_dscp or (room is not None and size > room)
        if isinstance(layer, IPv6):
            return layer.tc >> 2 in settings.trimmed_dscp or (layer.plen is not None and size > layer.plen)
        size += (layer.len or 0) if isinstance(layer, UDP) else len(layer.self_build())
    return False


# Requests and answers ------------------------------------------------------------------------------------------------


def _answers(mine: UetLayer, other: UetLayer) -> bool:
    header = mine.header
    if header is uet_tss.ENTROPY:
        return other.header is header and bool(mine.payload.answers(other.payload))
    if header in RESPONSES:
        return _ses_answers(mine, other)
    if header is uet_pds.RUDI_RESP or header in (uet_pds.NACK_RUDI, uet_pds.NACK_CCX_RUDI):
        name = "pkt_id" if header is uet_pds.RUDI_RESP else "nack_pkt_id"
        return other.header is uet_pds.RUDI_REQ and getattr(mine, name) == other.pkt_id
    if header is uet_pds.UUD_REQ:
        return other.header is header and _carried_answers(mine, other)
    if "psn" not in other.fieldtype or not _same_pdc(mine, other):
        return False
    if header in ACKS:
        probe = other.header in (uet_pds.CP, uet_pds.CP_SYN) and other.ctl_type == CtlType.PROBE
        if "probe_opaque" in mine.fieldtype:
            return probe and mine.probe_opaque == other.probe_opaque
        return not probe and (mine.cack_psn + mine.ack_psn_offset) % 2**32 == other.psn
    if header in NACKS:
        return bool(mine.nack_psn == other.psn)
    return header in uet_pds.REQUESTS and _carried_answers(mine, other)


def _same_pdc(mine: Any, other: Any) -> bool:
    """Return whether `mine` is a packet of the same PDC as `other` in the other direction.

    A PDCID that is not known yet, or is 0, matches any PDCID.
    """
    if "dpdcid" not in mine.fieldtype or mine.dpdcid != other.spdcid:
        return False
    known = "dpdcid" in other.fieldtype and not (mine.header in NACKS and mine.spdcid == 0)
    return not known or bool(mine.spdcid == other.dpdcid)


def _carried_answers(mine: Any, other: Any) -> bool:
    """Return whether the SES header that `mine` carries answers the one that `other` carries."""
    response = next((layer for layer in mine.iterpayloads() if getattr(layer, "header", None) in RESPONSES), None)
    request = next(
        (layer for layer in other.iterpayloads() if getattr(layer, "header", None) in uet_ses.REQUESTS), None
    )
    return response is not None and request is not None and _ses_answers(response, request)


def _ses_answers(mine: Any, other: Any) -> bool:
    if other.header not in uet_ses.REQUESTS:
        return False
    if mine.header is uet_ses.RESPONSE_DATA_SMALL:
        request = other.underlayer
        return isinstance(request, UetLayer) and mine.original_request_psn == request.fields.get("psn")
    name = "read_request_message_id" if mine.header is uet_ses.RESPONSE_DATA else "message_id"
    # Medium and small requests have no message id; PDS tells which one was answered.
    return "message_id" not in other.fieldtype or bool(getattr(mine, name) == other.message_id)


# Between Scapy and the rest of this package --------------------------------------------------------------------------


def layer_values(packet: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the headers of a packet as `uetproto.decode` names them: pairs of form and values, the outermost first.

    The packet must have been dissected, because lengths and checksums are 0 in a packet that was not built yet.
    Payload, trailer and padding are left out.
    """
    with refusing():
        typed("packet", packet, Packet, "a packet of Scapy")
    layers: list[tuple[str, dict[str, Any]]] = []
    for layer in packet.iterpayloads():
        if isinstance(layer, FormLayer):
            layers.append((layer.header.name, layer.sent_values()))
        elif isinstance(layer, SharpRanks):
            layers.append((sharp.RANKS, {"raw": layer.self_build()}))
        elif isinstance(layer, _IPv6ExtHdr):
            layers.append(("ipv6.ext", {"raw": layer.self_build()}))
        else:
            header = next((header for kind, header in _LOWER if isinstance(layer, kind)), None)
            if header is not None:
                data = layer.self_build()
                layers.append((header.name, codec_of(header).decode(data)))
                if len(data) > header.size:
                    layers.append((f"{header.name}.options", {"raw": data[header.size :]}))
    return layers


_LOWER = (
    (Ether, ethernet.ETHERNET),
    (Dot1Q, ethernet.VLAN),
    (IP, ethernet.IPV4),
    (IPv6, ethernet.IPV6),
    (UDP, ethernet.UDP),
)


def bind_uet(udp_port: int = UDP_PORT, ip_protocol: int = IP_PROTOCOL) -> None:
    """Dissect UET behind `udp_port` and `ip_protocol`, and set these numbers in packets that are built.

    Earlier bindings of UET are removed. UET takes precedence over other layers that are bound to UDP ports, because the
    source port of a UET packet may be any of these ports. Raises `LayerError` for a number that is not legal.
    """
    from uetproto.wire.stack import check_number  # brings all that reads frames, which layers do without

    with refusing():
        check_number("udp_port", udp_port, 0xFFFF)
        check_number("ip_protocol", ip_protocol, 0xFF)
    bind_bottom_up(udp_port, ip_protocol)
    _announce(udp_port, ip_protocol)


def _announce(udp_port: int, ip_protocol: int) -> None:
    """Set the numbers in packets that are built."""
    for header in FIRST:
        bind_top_down(UDP, LAYERS[header.name], sport=udp_port, dport=udp_port, chksum=0)
    bind_top_down(IP, ENTROPY, proto=ip_protocol)
    bind_top_down(IPv6, ENTROPY, nh=ip_protocol)


_announce(UDP_PORT, IP_PROTOCOL)

__all__ = [
    "LAYERS",
    "Settings",
    "Uet",
    "UetCrc32c",
    "UetIcv",
    "UetLayer",
    "bind_uet",
    "layer_values",
    "settings",
    *(cls.__name__ for cls in LAYERS.values()),
    *layers_roce.__all__,
    *layers_sharp.__all__,
]
