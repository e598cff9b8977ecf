# SPDX-License-Identifier: GPL-2.0-only
"""This module says what of a packet is compared: each field as it is, as a distance between PSNs, or not at all."""

import marshal
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from uetproto.errors import LocalError, shown, similar
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.ethernet import internet_checksum
from uetproto.wire.headers.roce import RESPONSES, Transport
from uetproto.wire.headers.uet_pds import CONTROLS, CpPayload, CpPsn, CpSender, NackCode
from uetproto.wire.packet import RAW_FORMS, Layer, Packet, Trailer

NONE, OWN, PEER = 0, 1, 2
"""Whose numbers a PSN counts: nobody's, those of the sender of the packet, those of its receiver."""
MOST = 3
"""Number of PSNs that a packet may have."""

_PDCIDS = ("spdcid", "dpdcid")
_LEFT_OUT: dict[str, tuple[str, ...]] = {
    "ipv4": ("checksum",),
    "udp": ("sport", "dport", "checksum"),
    "entropy": ("entropy",),
    "tss": ("tsc",),
    "tss.ssi": ("tsc",),
    "pds.cc_state.nscc": ("service_time",),
    "bth": ("destqp",),
    "deth": ("srcqp",),
    "erf": ("ts",),
}
"""Fields that differ between two runs of the same traffic, and are not compared unless `strict` asks for it. PDCIDs,
queue pairs and PSNs are compared as to which conversation they belong to."""

_PSN: dict[str, int] = {"psn": OWN, "cack_psn": PEER, "nack_psn": PEER, "expected_psn": PEER, "nack_pkt_id": PEER,
                        "original_request_psn": PEER}  # fmt: skip
_ANSWERS_WITH_PKT_ID = "pds.rudi_resp"
_PSN_REFUSED = frozenset({NackCode.ROD_OOO, NackCode.NEW_START_PSN})
"""Codes of NACKs whose `nack_payload` is a PSN (pds.md §14)."""


MOST_COMPARED = 10_000
"""Number of packets that differ whose fields are compared, unless the caller says otherwise."""


Addresses = Mapping[tuple[str, int], int]
"""Type of a map from a form ("ipv4", "ipv6") and an address to another address."""


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """This class holds how captures are compared."""

    strict: bool = False
    """Compare all: times, the order of the whole capture, ports, PDCIDs, queue pairs, PSNs, checksums and CRCs."""
    ignore: tuple[str, ...] = ()
    """Fields that are not compared, such as "ipv4.ttl", or all fields of a form, such as "ethernet"."""
    most: int = MOST_COMPARED
    """Packets that differ whose fields are compared; the others are counted."""
    addresses: Addresses = field(default_factory=dict)
    """Addresses of the second capture by those of the first one that they stand for (`addresses_of`)."""

    def __post_init__(self) -> None:
        for name in self.ignore:
            _check_name(name)


def addresses_of(pairs: Mapping[str, str]) -> Addresses:
    """Return pairs of IP addresses in the form that `DiffOptions` takes. Raises `LocalError` for what is no address,
    and for two addresses of different versions."""
    found: dict[tuple[str, int], int] = {}
    for mine, other in pairs.items():
        try:
            one, two = ip_address(mine), ip_address(other)
        except ValueError:
            raise LocalError(
                "map", f"{mine}={other} is not legal", "IP addresses, such as 10.0.0.1=10.1.0.1", id="wrong-address"
            ) from None
        if one.version != two.version:
            raise LocalError("map", f"{mine}={other}", "two addresses of one version of IP", id="wrong-address")
        found[f"ipv{one.version}", int(one)] = int(two)
    return found


def _check_name(name: str) -> None:
    """Raise `LocalError` unless `name` is a field, a form, or a family of forms."""
    families = {form.rsplit(".", keep)[0] for form in FORMS for keep in range(form.count(".") + 1)} | {*RAW_FORMS}
    if name in families or name in ("payload", "trailer", "notes", "error"):
        return
    form, _, field = name.rpartition(".")
    known = [header for header in FORMS if header == form or header.startswith(f"{form}.")]
    if form and any(field in FORMS[header].names for header in known):
        return
    names = [f"{header}.{one}" for header in known for one in FORMS[header].names] if form else []
    raise LocalError(
        f"ignore {shown(name)}", f"there is no such field{similar(name, names or sorted(families))}",
        "FORM or FORM.FIELD, such as ipv4.ttl, or payload, trailer, notes, error",
        id="unknown-field",
    )  # fmt: skip


class CapturedPacket(Protocol):
    """This protocol describes a packet of a capture that can be compared; `uetproto.PacketView` is one."""

    @property
    def number(self) -> int: ...

    @property
    def interface(self) -> str: ...

    @property
    def time_ns(self) -> int: ...

    @property
    def data(self) -> bytes: ...

    @property
    def packet(self) -> Packet: ...


class Normal(NamedTuple):
    """This record is a packet without what may differ between two runs of the same traffic."""

    body: int
    """Hash of all that is compared as it is."""
    shape: int
    """Whose numbers `psns` count: the digits of this number to the base of 3, the lowest first."""
    psns: tuple[int, ...]
    """PSNs of the packet, `MOST` of them; 0 where there is none."""


class Normaliser:
    """This class makes `Normal`s of packets."""

    def __init__(self, options: DiffOptions, addresses: Addresses | None = None) -> None:
        """Make a normaliser of one capture, in which `addresses` stand for others."""
        self._options = options
        self.addresses = addresses or {}
        self._getters: dict[str, Any] = {}

    def normal(self, packet: Packet, data: bytes) -> Normal:
        """Return the normal form of a packet whose bytes are `data`."""
        parts: list[Any] = []
        getters = self._getters
        for form, values, _ in packet.layers:
            getter = getters.get(form)
            if getter is None:
                getter = getters[form] = self._getter(form)
            parts.append(form)
            if self.addresses and form in ("ipv4", "ipv6"):
                values = {**values, "src": self.address(form, values["src"]), "dst": self.address(form, values["dst"])}
            if getter:
                parts.append(getter(values))
        shape, scale = 0, 1
        psns = []
        for whose, _, _, value in psns_of(packet):
            shape += whose * scale
            scale *= 3
            psns.append(value)
        parts += self._rest(packet, data, psns)
        body = hash(marshal.dumps(parts, 2))
        psns += [0] * (MOST - len(psns))
        return Normal(body, shape, tuple(psns))

    def address(self, form: str, value: int) -> int:
        """Return the address that an address of a header stands for."""
        return self.addresses.get((form, value), value)

    def _getter(self, form: str) -> Any:
        names = compared_fields(form, self._options.ignore)
        return itemgetter(*names) if names else None

    def _rest(self, packet: Packet, data: bytes, psns: list[int]) -> Iterator[Any]:
        """Yield what is compared beside fields."""
        ignore = self._options.ignore
        for name, value in rest_of(packet, data).items():
            if name not in ignore:
                yield hash(value) if type(value) is bytes else value
        for layer in packet.layers:
            yield from loose_values(layer, ignore)
        yield len(psns)


def compared_fields(form: str, ignore: Collection[str]) -> tuple[str, ...]:
    """Return the fields of a form that are compared as they are in every packet."""
    return _compared_fields(form, tuple(ignore))


@cache
def _compared_fields(form: str, ignore: tuple[str, ...]) -> tuple[str, ...]:
    header = FORMS.get(form)
    names = ("raw",) if header is None else header.names
    left = {*_LEFT_OUT.get(form, ()), *_PSN, *LOOSE.get(form.split(".")[0], ())}
    if form.startswith("pds."):
        left |= {*_PDCIDS, "pkt_id"}
    return tuple(name for name in names if name not in left and not is_ignored(form, name, ignore))


def is_ignored(form: str, name: str, ignore: Collection[str]) -> bool:
    """Return whether the caller wants a field not to be compared."""
    if not ignore:
        return False
    steps = form.split(".")
    families = [".".join(steps[:count]) for count in range(1, len(steps) + 1)]
    return any(family in ignore or f"{family}.{name}" in ignore for family in families)


LOOSE: dict[str, tuple[str, ...]] = {"ipv4": ("identification",), "pds": ("ctl_payload", "nack_payload")}
"""Fields that are compared as they are only in some packets, by the first part of the form."""


def loose_values(layer: Layer, ignore: Collection[str]) -> Iterator[int]:
    """Yield the values of the fields of `LOOSE` that are compared as they are in this packet."""
    form, values, _ = layer
    for name in LOOSE.get(form.split(".")[0], ()):
        if name in values and not is_ignored(form, name, ignore) and is_compared(form, name, values):
            yield values[name]


def is_compared(form: str, name: str, values: Mapping[str, Any]) -> bool:
    """Return whether a field is compared as it is: it is no PSN, no identity, and not meant to differ."""
    if name in LOOSE.get(form.split(".")[0], ()):
        if name == "identification":
            return not values["df"]  # without fragments it has no meaning (RFC 6864 §4.1)
        return _payload_psn(values) == NONE
    if form.startswith("pds.") and (name in _PDCIDS or name == "pkt_id"):
        return False
    return name not in _LEFT_OUT.get(form, ()) and name not in _PSN


def _payload_psn(values: Mapping[str, Any]) -> int:
    """Return whose PSN the last word of a control packet or NACK is."""
    control = CONTROLS.get(values["ctl_type"]) if "ctl_type" in values else None
    if control is not None and control.payload is CpPayload.PSN:
        return PEER if control.sender is CpSender.DESTINATION else OWN
    return PEER if values.get("nack_code") in _PSN_REFUSED and "nack_psn" in values else NONE


def psns_of(packet: Packet) -> list[tuple[int, int, str, int]]:
    """Return the PSNs of a packet, the most important first: whose numbers they count, the place of the layer, the name
    of the field, and the value."""
    found: list[tuple[int, int, str, int]] = []
    for place, (form, values, _) in enumerate(packet.layers):
        if form == "bth":
            opcode = values["opcode"]
            answers = opcode >> 5 == Transport.RC and opcode & 0x1F in RESPONSES
            found.append((PEER if answers else OWN, place, "psn", values["psn"]))
        elif form.startswith("pds."):
            _of_pds(place, form, values, found)
        elif "original_request_psn" in values:
            found.append((PEER, place, "original_request_psn", values["original_request_psn"]))
    return found[:MOST]


def _of_pds(place: int, form: str, values: Mapping[str, Any], found: list[tuple[int, int, str, int]]) -> None:
    if "pkt_id" in values:
        found.append((PEER if form == _ANSWERS_WITH_PKT_ID else OWN, place, "pkt_id", values["pkt_id"]))
        return
    for name in ("psn", "cack_psn", "nack_psn", "nack_pkt_id", "expected_psn"):
        if name in values:
            control = CONTROLS.get(values["ctl_type"]) if "ctl_type" in values else None
            meaningless = control is not None and control.psn is CpPsn.NONE
            found.append((NONE if meaningless else _PSN[name], place, name, values[name]))
    found += [
        (whose, place, name, values[name])
        for name in ("ctl_payload", "nack_payload")
        if name in values and (whose := _payload_psn(values))
    ]


def rest_of(packet: Packet, data: bytes) -> dict[str, Any]:
    """Return by name what a packet has beside fields: payload, how its trailer is, notes, an error, and whether its
    checksums are right. What is not there has no entry."""
    found: dict[str, Any] = {}
    if "sealed" in packet.notes:
        found["size of the sealed payload"] = len(packet.payload)
    elif packet.payload:
        found["payload"] = packet.payload
    for name, trailer in (("trailer", packet.trailer), ("vcrc", packet.vcrc)):
        if trailer is not None:
            found[name] = trailer_words(trailer)
    if packet.notes:
        found["notes"] = ", ".join(packet.notes)
    if packet.error is not None:
        found["error"] = f"{packet.error.kind} at byte {packet.error.offset}: {packet.error.reason}"
    found |= {name: value for name, value in (("undecoded bytes", packet.raw), ("pad", packet.pad)) if value}
    for form, values, offset in packet.layers:
        if form == "ipv4" and internet_checksum(data[offset : offset + 4 * values["ihl"]]):
            found["ipv4.checksum"] = "wrong"
        elif form == "udp" and values["checksum"]:
            found["udp.checksum"] = _udp_checksum(packet, data, offset, values["length"])
    return found


def trailer_words(trailer: Trailer) -> str:
    """Return what is compared of a trailer: its kind, and whether it is right."""
    return f"{trailer.kind} {'not checked' if trailer.ok is None else 'right' if trailer.ok else 'wrong'}"


def _udp_checksum(packet: Packet, data: bytes, offset: int, length: int) -> str:
    """Return whether a UDP checksum that is not 0 is right."""
    part = data[offset : offset + length]
    network = next((layer for layer in reversed(packet.layers) if layer.form in ("ipv4", "ipv6")), None)
    if network is None or len(part) < length:
        return "not checked"
    start, size = (12, 8) if network.form == "ipv4" else (8, 32)
    ends = data[network.offset + start : network.offset + start + size]
    pseudo = ends + length.to_bytes(4, "big") + (17).to_bytes(4, "big")
    return "wrong" if internet_checksum(pseudo + part + bytes(len(part) & 1)) else "right"
