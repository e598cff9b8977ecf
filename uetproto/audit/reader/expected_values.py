# SPDX-License-Identifier: GPL-2.0-only
"""This module says whether a packet is as expected: `wire.forms` has the values that its fields may have.

`fast_path.py` compiles those tables into functions that read expected packets. For any other packet,
`audit/wire/rules.py` and `audit/roce/rules_wire.py` use the tables to find what is wrong.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uetproto.wire.forms import VERSIONS, code_fields, is_vendors, reserved_fields
from uetproto.wire.headers import ethernet as eth
from uetproto.wire.headers.roce import OPERATIONS, PMTUS, WHOLE_WRITES, Load, Operation, Transport
from uetproto.wire.implied import implied_payload
from uetproto.wire.packet import Layer, Packet, gre_checksum, inner_from
from uetproto.wire.stack import TRIMMED_DSCP


class Misfit(NamedTuple):
    """This record describes a length that differs from the one that the headers imply."""

    expected: str
    seen: str


def misfit_of_uet(layers: list[Layer], size: int) -> Misfit | None:
    """Return how a payload of `size` bytes contradicts the length that SES states (interfaces.md §3), or None if it
    does not."""
    implied = implied_payload(layers)
    if implied is None or implied == size:
        return None
    return Misfit(f"{implied} bytes of payload", f"{size}")


def misfit_of_roce(layers: Sequence[tuple[str, Mapping[str, Any]]], size: int, pad: int) -> Misfit | None:
    """Return how `size` bytes of payload and `pad` bytes of padding contradict the opcode or the RETH of a packet
    (roce.md §3, §4), or None if they do not."""
    found = dict(layers)
    opcode = found["bth"]["opcode"]
    if opcode >> 5 == Transport.CNP:
        return Misfit("no payload", f"{size} bytes") if size else None
    operation = Operation(opcode & 0x1F)
    load = OPERATIONS[operation].load
    if load is Load.NONE and size:
        return Misfit(f"no payload of {operation.name}", f"{size} bytes")
    if load is Load.WORD and size != 8:
        return Misfit(f"8 bytes of {operation.name}", f"{size}")
    if load is Load.SOME and not size:
        return Misfit(f"payload of {operation.name}", "none")
    if load is Load.FULL and size not in PMTUS:
        return Misfit(f"a path MTU ({', '.join(map(str, PMTUS))}) of {operation.name}", f"{size} bytes")
    if size > PMTUS[-1]:
        return Misfit(f"at most {PMTUS[-1]} bytes", f"{size}")
    if pad != -size & 3:
        return Misfit(f"{-size & 3} bytes of pad behind {size} bytes", f"{pad}")
    if "reth" in found and operation is not Operation.FLUSH:
        stated = found["reth"]["dmalen"]
        if operation in WHOLE_WRITES and stated != size:
            return Misfit(f"dmalen {size}, the bytes of the only packet", f"{stated}")
        if operation is Operation.RDMA_WRITE_FIRST and stated <= size:
            return Misfit(f"dmalen above the {size} bytes of the first packet", f"{stated}")
    return None


def has_unexpected_field(layers: list[Layer]) -> bool:
    """Return whether a reserved bit is set, a version is not 0, or a code has no meaning or only a vendor's meaning.
    The DF bit and the UDP checksum of UET packets are checked, too, but not those of tunnels."""
    uet = not any(layer.form == "bth" for layer in layers)
    inner = inner_from(layers)
    for index, (form, values, _) in enumerate(layers):
        if any(values[name] for name in reserved_fields(form)):
            return True
        for name, known in code_fields(form).items():
            if values[name] not in known or is_vendors(form, name, values[name]):
                return True
        if form.startswith(("ses.", "bth")) and any(values.get(name) for name in VERSIONS):
            return True
        if form == "aeth" and values["syndrome"] & 0x80:
            return True
        odd = (form == "ipv4" and not values["df"]) or (form == "udp" and values["checksum"])
        if uet and odd and index >= inner:
            return True
    return False


_EXPECTED_NOTES = frozenset({"sealed", "padding", "truncated"})


def is_expected(packet: Packet, data: bytes) -> bool:
    """Return whether a UET or RoCE packet is as expected by itself, without the packets around it: reserved bits are 0,
    and lengths and CRC are right.

    Of a truncated packet, only the headers that the capture has whole are checked.
    """
    layers, trailer, notes = packet.layers, packet.trailer, packet.notes
    cut = "truncated" in notes
    if packet.error or packet.vcrc or not _EXPECTED_NOTES.issuperset(notes) or has_unexpected_field(layers):
        return False
    if packet.raw and ("padding" in notes) is cut:  # `raw` may be padding or, if truncated, the beginning of a header
        return False
    if trailer is not None and trailer.ok is False:
        return False
    forms = [layer.form for layer in layers] or [""]
    inner = inner_from(layers)
    for index, (form, values, offset) in enumerate(layers):
        if form == "gre.checksum" and gre_checksum(layers, index, data) != values["checksum"]:
            return False
        if form == "ipv4" and eth.internet_checksum(data[offset : offset + 4 * values["ihl"]]):
            return False
        if form in ("ipv4", "ipv6") and values["dscp"] in TRIMMED_DSCP:
            return False
        if form in ("ipv4", "ipv6") and index >= inner and not values["ecn"] and is_data(forms):
            return False
    if "bth" in forms:
        known = packet["bth"]["opcode"] in code_fields("bth")["opcode"]
        sizes = len(packet.payload), len(packet.pad)
        fits = packet.payload if cut else misfit_of_roce([layer[:2] for layer in layers], *sizes) is None
        return known and bool(fits)
    if forms[-1].startswith("tss"):
        return True
    if any(form.startswith("pds.") for form in forms):
        return cut or misfit_of_uet(layers, len(packet.payload)) is None
    return False


def is_data(forms: Sequence[str]) -> bool:
    """Return whether a UET packet is a request, which is sent as ECN-capable (cms.md §2)."""
    return any(form.startswith("pds.") and "_req" in form and "cc_state" not in form for form in forms)
