# SPDX-License-Identifier: GPL-2.0-only
"""This module has the names of fields that filters know, the kind of each, and where its values are in a packet."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cache
from typing import Any, Protocol

from uetproto.errors import LocalError, similar
from uetproto.wire.capture.base import Record
from uetproto.wire.fields import Field, Header
from uetproto.wire.filter_names import FILTER_NAMES, FilterName, Given, filter_name, is_flag, sack_psns
from uetproto.wire.forms import MCAST_FORMS, SHARP_FORMS, UET_FORMS
from uetproto.wire.headers.ethernet import IpProtocol
from uetproto.wire.packet import Layer, Packet

LATE = frozenset(
    f"uetp.{name}" for name in (
        "acked_in", "ack_time", "nacked_in", "response_in", "msg", "msg.first", "msg.last", "msg.time", "qp_stream",
    )
)  # fmt: skip
"""Names whose values later packets may tell, so that the capture is read twice."""


class Seen(Protocol):
    """This protocol describes what a filter looks at: a packet, and what the packets around it say."""

    record: Record
    packet: Packet
    interface: str

    @property
    def row(self) -> Mapping[str, Any]:
        """Return the values of the analysis by their names."""

    @property
    def since_first(self) -> int:
        """Return the nanoseconds since the first packet of the capture."""

    @property
    def since_last(self) -> int:
        """Return the nanoseconds since the packet before."""


Values = Sequence[Any]
Reader = Callable[[Seen], Values]


@dataclass(frozen=True, slots=True)
class FilterField:
    """This record describes a field that filters know.

    Its values are integers, of a time in nanoseconds, of an address with all its bits; bytes of kind `bytes` and
    `protocol`; texts of kind `string`; and True of a label.
    """

    name: str
    kind: str
    """One of uint, int, bool, time, label, ether, ipv4, ipv6, bytes, protocol, string."""
    read: Reader
    bits: int = 64
    codes: Mapping[str, int] = field(default_factory=dict)
    """Codes by their names, which are in lower case."""
    many: bool = False
    """Whether a packet can have several values."""
    whole: Reader | None = None
    """What reads the bytes in which `contains` and `matches` search: of a protocol from its header to the end."""


# Forms of UET, and names over them ------------------------------------------------------------------------------------


def _codes(values: Any) -> dict[str, int]:
    if values is None or issubclass(values, IntFlag):
        return {}
    return {code.name.casefold(): int(code) for code in values}


def _width(header: Header, row: Field) -> int:
    """Return the bits of the type that the field has in Wireshark: those of the bytes that it lies in."""
    start = header.offset_of(row.name)
    size = (start + row.bits + 7) // 8 - start // 8
    return 8 * size if size <= 4 else 64


def _of_layers(places: Mapping[str, str], bit: int = 0) -> Reader:
    """Return what reads a field, by form, of each layer; with `bit`, whether this bit of it is set."""

    def read(seen: Seen) -> Values:
        found = []
        for form, values, _ in seen.packet.layers:
            name = places.get(form)
            if name is not None:
                found.append(int(values[name] & bit != 0) if bit else values[name])
        return found

    return read


def _uet_forms() -> Iterator[FilterField]:
    places: dict[str, dict[str, str]] = {}
    kinds: dict[str, FilterField] = {}
    headers: dict[str, dict[str, str]] = {}
    for header in (*UET_FORMS.values(), *SHARP_FORMS.values(), *MCAST_FORMS.values()):
        headers.setdefault(f"uetp.{filter_name(header.name)}", {})[header.name] = header.name
        for row in header.fields:
            name = f"uetp.{filter_name(header.name, row.name)}"
            of_forms = places.setdefault(name, {})
            of_forms[header.name] = row.name
            if row.bits > 64:
                size = row.bits // 8
                kinds[name] = FilterField(name, "bytes", _bytes_of(of_forms, size))
            else:
                kind = "bool" if is_flag(row) else "int" if row.signed else "uint"
                read = _of_layers(of_forms)
                kinds[name] = FilterField(name, kind, read, _width(header, row), _codes(row.values))
            if row.values is not None and issubclass(row.values, IntFlag):
                for bit in row.values:
                    within = f"{name}.{str(bit.name).lower()}"
                    kinds[within] = FilterField(within, "bool", _of_layers(of_forms, int(bit)))
    yield from kinds.values()
    for name, forms in headers.items():
        yield FilterField(name, "label", _there(frozenset(forms)))


def _bytes_of(places: Mapping[str, str], size: int) -> Reader:
    def read(seen: Seen) -> Values:
        return [values[places[form]].to_bytes(size, "big") for form, values, _ in seen.packet.layers if form in places]

    return read


def _there(forms: frozenset[str]) -> Reader:
    return lambda seen: [True for layer in seen.packet.layers if layer.form in forms]


def _headers(forms: frozenset[str]) -> Reader:
    """Return what reads the bytes of headers."""

    def read(seen: Seen) -> Values:
        data = seen.record.data
        return [data[one.offset : one.offset + one.size] for one in seen.packet.layers if one.form in forms]

    return read


def _over_forms() -> Iterator[FilterField]:
    for row in FILTER_NAMES:
        if row.given is Given.ANALYSIS:
            kind = {"relative_time": "time", "label": "label"}.get(row.kind, "int" if row.kind == "int32" else "uint")
            yield FilterField(row.filter, kind, _analysed(row.filter, kind, row.many), 32, many=row.many)
            continue
        bits = {"bool": 1, "uint8": 8, "uint16": 16, "uint24": 24, "uint32": 32}.get(row.kind, 64)
        kind = "bool" if row.kind == "bool" else "uint"
        read = _of_packet[row.name] if row.given is Given.PACKET else _over(row)
        yield FilterField(row.filter, kind, read, bits, _codes(row.values), row.many)


def _over(row: FilterName) -> Reader:
    forms = frozenset(header.name for header in row.forms)

    def read(seen: Seen) -> Values:
        return [
            value
            for form, values, _ in seen.packet.layers
            if form in forms and (value := row.of(form, values)) is not None
        ]

    return read


def _is_uet(packet: Packet) -> bool:
    return any(layer.form in UET_FORMS for layer in packet.layers)


def _flagged(note: str) -> Reader:
    return lambda seen: [True] if note in seen.packet.notes and _is_uet(seen.packet) else []


_of_packet: dict[str, Reader] = {
    "sack_psn": lambda seen: [
        psn for layer in seen.packet.layers if "sack_bitmap" in layer.values for psn in sack_psns(layer.values)
    ],
    "len": lambda seen: [len(seen.packet.payload)] if seen.packet.payload and _is_uet(seen.packet) else [],
    "trimmed": _flagged("trimmed"),
    "sealed": _flagged("sealed"),
}


def _analysed(name: str, kind: str, many: bool) -> Reader:
    def read(seen: Seen) -> Values:
        value = seen.row.get(name)
        if value is None:
            return ()
        if kind == "time":
            return (round(value * 1e9),)
        return value if many else (value,)

    return read


# Lower layers, and RoCE -----------------------------------------------------------------------------------------------


def _lower(form: str, *names: str) -> Reader:
    """Return what reads fields of each header of a form, one after the other."""

    def read(seen: Seen) -> Values:
        return [values[name] for found, values, _ in seen.packet.layers if found == form for name in names]

    return read


def _scaled(form: str, name: str, factor: int) -> Reader:
    read = _lower(form, name)
    return lambda seen: [factor * value for value in read(seen)]


_LOWER = (
    # name                kind     form        fields            bits
    ("eth.dst",           "ether", "ethernet", ("dst",),         48),
    ("eth.src",           "ether", "ethernet", ("src",),         48),
    ("eth.addr",          "ether", "ethernet", ("dst", "src"),   48),
    ("eth.type",          "uint",  "ethernet", ("type",),        16),
    ("vlan.id",           "uint",  "vlan",     ("vid",),         16),
    ("vlan.priority",     "uint",  "vlan",     ("pcp",),         16),
    ("vlan.dei",          "bool",  "vlan",     ("dei",),         1),
    ("vlan.etype",        "uint",  "vlan",     ("type",),        16),
    ("ip.version",        "uint",  "ipv4",     ("version",),     8),
    ("ip.dsfield.dscp",   "uint",  "ipv4",     ("dscp",),        8),
    ("ip.dsfield.ecn",    "uint",  "ipv4",     ("ecn",),         8),
    ("ip.len",            "uint",  "ipv4",     ("total_length",), 16),
    ("ip.id",             "uint",  "ipv4",     ("identification",), 16),
    ("ip.flags.df",       "bool",  "ipv4",     ("df",),          1),
    ("ip.flags.mf",       "bool",  "ipv4",     ("mf",),          1),
    ("ip.ttl",            "uint",  "ipv4",     ("ttl",),         8),
    ("ip.proto",          "uint",  "ipv4",     ("protocol",),    8),
    ("ip.checksum",       "uint",  "ipv4",     ("checksum",),    16),
    ("ip.src",            "ipv4",  "ipv4",     ("src",),         32),
    ("ip.dst",            "ipv4",  "ipv4",     ("dst",),         32),
    ("ip.addr",           "ipv4",  "ipv4",     ("src", "dst"),   32),
    ("ipv6.version",      "uint",  "ipv6",     ("version",),     8),
    ("ipv6.tclass.dscp",  "uint",  "ipv6",     ("dscp",),        32),
    ("ipv6.tclass.ecn",   "uint",  "ipv6",     ("ecn",),         32),
    ("ipv6.flow",         "uint",  "ipv6",     ("flow_label",),  24),
    ("ipv6.plen",         "uint",  "ipv6",     ("payload_length",), 16),
    ("ipv6.nxt",          "uint",  "ipv6",     ("next_header",), 8),
    ("ipv6.hlim",         "uint",  "ipv6",     ("hop_limit",),   8),
    ("ipv6.src",          "ipv6",  "ipv6",     ("src",),         128),
    ("ipv6.dst",          "ipv6",  "ipv6",     ("dst",),         128),
    ("ipv6.addr",         "ipv6",  "ipv6",     ("src", "dst"),   128),
    ("udp.srcport",       "uint",  "udp",      ("sport",),       16),
    ("udp.dstport",       "uint",  "udp",      ("dport",),       16),
    ("udp.port",          "uint",  "udp",      ("sport", "dport"), 16),
    ("udp.length",        "uint",  "udp",      ("length",),      16),
    ("udp.checksum",      "uint",  "udp",      ("checksum",),    16),
    ("vxlan.vni",         "uint",  "vxlan",    ("vni",),         24),
    ("geneve.vni",        "uint",  "geneve",   ("vni",),         24),
    ("gre.proto",         "uint",  "gre",      ("protocol",),    16),
    ("gre.key",           "uint",  "gre.key",  ("key",),         32),
    ("gre.sequence_number", "uint", "gre.sequence", ("sequence",), 32),
    ("mpls.label",        "uint",  "mpls",     ("label",),       32),
    ("mpls.exp",          "uint",  "mpls",     ("tc",),          32),
    ("mpls.ttl",          "uint",  "mpls",     ("ttl",),         32),
    ("infiniband.bth.opcode", "uint", "bth",   ("opcode",),      8),
    ("infiniband.bth.se", "bool",  "bth",      ("se",),          1),
    ("infiniband.bth.m",  "bool",  "bth",      ("m",),           1),
    ("infiniband.bth.padcnt", "uint", "bth",   ("padcnt",),      8),
    ("infiniband.bth.tver", "uint", "bth",     ("tver",),        8),
    ("infiniband.bth.p_key", "uint", "bth",    ("p_key",),       16),
    ("infiniband.bth.destqp", "uint", "bth",   ("destqp",),      24),
    ("infiniband.bth.a",  "bool",  "bth",      ("a",),           1),
    ("infiniband.bth.psn", "uint", "bth",      ("psn",),         24),
    ("infiniband.reth.va", "uint", "reth",     ("va",),          64),
    ("infiniband.reth.r_key", "uint", "reth",  ("r_key",),       32),
    ("infiniband.reth.dmalen", "uint", "reth", ("dmalen",),      32),
    ("infiniband.aeth.syndrome", "uint", "aeth", ("syndrome",),  8),
    ("infiniband.aeth.msn", "uint", "aeth",    ("msn",),         24),
    ("infiniband.deth.q_key", "uint", "deth",  ("q_key",),       64),
    ("infiniband.deth.srcqp", "uint", "deth",  ("srcqp",),       32),
    ("infiniband.atomiceth.swapdt", "uint", "atomic_eth", ("swapdt",), 64),
    ("infiniband.atomiceth.cmpdt", "uint", "atomic_eth", ("cmpdt",), 64),
    ("infiniband.atomicacketh.origremdt", "uint", "atomic_ack_eth", ("origremdt",), 64),
)  # fmt: skip


LOWER: dict[str, tuple[str, tuple[str, ...]]] = {name: (form, names) for name, _, form, names, _ in _LOWER}
"""Form and names of the fields of lower layers and RoCE, by their names in filters."""


def _session(seen: Seen) -> Values:
    """Return the sessions of ERSPAN, whose types II and III have forms of their own."""
    return [values["session_id"] for form, values, _ in seen.packet.layers if form in ("erspan.ii", "erspan.iii")]


def _lower_fields() -> Iterator[FilterField]:
    for name, kind, form, names, bits in _LOWER:
        codes = _codes(IpProtocol) if name == "ip.proto" else {}
        yield FilterField(name, kind, _lower(form, *names), bits, codes, many=len(names) > 1)
    yield FilterField("ip.hdr_len", "uint", _scaled("ipv4", "ihl", 4), 8)
    yield FilterField("ip.frag_offset", "uint", _lower("ipv4", "fragment_offset"), 16)
    yield FilterField("erspan.spanid", "uint", _session, 16)
    for form in ("vxlan", "geneve", "gre", "mpls"):
        yield FilterField(form, "label", _there(frozenset((form,))))
    protocols = (("eth", "ethernet"), ("vlan", "vlan"), ("ip", "ipv4"), ("ipv6", "ipv6"), ("udp", "udp"))
    for name, form in protocols:
        yield FilterField(name, "protocol", _headers(frozenset((form,))), whole=_behind(form))
    yield FilterField("infiniband", "label", _there(frozenset(("bth",))))
    yield FilterField("uetp", "protocol", _from(lambda layer: layer.form in UET_FORMS))


def _behind(form: str) -> Reader:
    """Return what reads the bytes from each header of a form to the end of the packet, of Ethernet to that of the
    frame."""

    def read(seen: Seen) -> Values:
        packet, data = seen.packet, seen.record.data
        end = len(data) - (len(packet.raw) if "padding" in packet.notes and form != "ethernet" else 0)
        return [data[one.offset : end] for one in packet.layers if one.form == form]

    return read


def _from(is_first: Callable[[Layer], bool]) -> Reader:
    """Return what reads the bytes from the first header of a protocol to the end of the packet."""

    def read(seen: Seen) -> Values:
        packet, data = seen.packet, seen.record.data
        start = next((layer.offset for layer in packet.layers if is_first(layer)), None)
        if start is None:
            return ()
        return (data[start : len(data) - (len(packet.raw) if "padding" in packet.notes else 0)],)

    return read


# The frame, and trailers ----------------------------------------------------------------------------------------------


def _crc(seen: Seen) -> Values:
    trailer = seen.packet.trailer
    if trailer is None or trailer.kind != "crc32c":
        return ()
    return (2 if trailer.ok is None else int(trailer.ok),)


def _crc_value(seen: Seen) -> Values:
    trailer = seen.packet.trailer
    return (trailer.value,) if trailer is not None and trailer.kind == "crc32c" else ()


_FRAME = (
    FilterField("frame", "protocol", lambda seen: (seen.record.data,)),
    FilterField("frame.number", "uint", lambda seen: (seen.record.index + 1,), 32),
    FilterField("frame.len", "uint", lambda seen: (seen.record.length,), 32),
    FilterField("frame.cap_len", "uint", lambda seen: (len(seen.record.data),), 32),
    FilterField("frame.time_relative", "time", lambda seen: (seen.since_first,)),
    FilterField("frame.time_delta", "time", lambda seen: (seen.since_last,)),
    FilterField("frame.interface_name", "string", lambda seen: (seen.interface,) if seen.interface else ()),
    FilterField("uetp.crc", "uint", _crc_value, 32),
    FilterField("uetp.crc.status", "uint", _crc, 8, {"bad": 0, "good": 1, "unverified": 2}),
    FilterField("uetp.payload", "bytes",
                lambda seen: (seen.packet.payload,) if seen.packet.payload and _is_uet(seen.packet) else ()),
)  # fmt: skip


@cache
def fields() -> dict[str, FilterField]:
    """Return all fields that filters know, by their names."""
    rows = (*_FRAME, *_lower_fields(), *_over_forms(), *_uet_forms())
    return {row.name: row for row in rows}


def field_of(name: str) -> FilterField:
    """Return the field of this name. Raises `LocalError` with names that are like it if there is none."""
    found = fields().get(name)
    if found is None:
        near = similar(name, fields()) or similar(f"uetp.{name}", fields())
        raise LocalError(
            "filter", f"{name[:200]} is no field that filters know{near}", "names of docs/reference/filters.md",
            id="filter-field"
        )  # fmt: skip
    return found
