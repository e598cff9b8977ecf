# SPDX-License-Identifier: GPL-2.0-only
"""This module turns any decoded packet into an `ObservedPacket`; `fast_path.py` reads most packets without it."""

from typing import Any

from uetproto.audit.reader.address import ADDRESSED, TENANT_AT
from uetproto.audit.reader.expected_values import is_expected
from uetproto.audit.reader.observed import Head, ObservedPacket, head_class
from uetproto.wire.crc import CRC_SIZE, crc32c
from uetproto.wire.forms import FORMS, Candidates, rows_after
from uetproto.wire.headers.sharp import MAGIC
from uetproto.wire.headers.uet_tss import ICV_SIZE
from uetproto.wire.inside import look_inside
from uetproto.wire.packet import Layer, Packet
from uetproto.wire.words.tenants import Tenants

_INCOMPLETE = frozenset({"trimmed", "truncated", "fragment"})


def observe(
    packet: Packet, data: bytes, number: int, time_ns: int, tenants: Tenants | None = None
) -> ObservedPacket:  # fmt: skip
    """Return `packet`, which was decoded from `data`, as an audit sees it. `head` is None if no transport header can be
    read. `tenants` tells hosts in tunnels with different VNIs apart."""
    src = dst = dscp = ecn = entropy = outer = 0
    head: Head = None
    ses: Head | None = None
    more: list[Head] = []
    behind = packet.payload_offset  # where SES headers or others behind the transport header begin
    for layer in packet.layers:
        form, values, offset = layer
        if form in ADDRESSED:
            sender, receiver, mark = ADDRESSED[form]
            src, dst = mark | values[sender], mark | values[receiver]
            if form == "grh":
                dscp, ecn = values["tclass"] >> 2, values["tclass"] & 3
            else:
                dscp, ecn = values.get("dscp", 0), values.get("ecn", 0)
        elif form in ("udp", "entropy"):
            entropy = values["sport" if form == "udp" else "entropy"]
            outer = FORMS[form].size
        elif form == "bth" or (form in _HEADS and head is None):
            head = _head(layer)
        elif head is not None and form in FORMS:
            if not form.startswith("pds."):
                behind = min(behind, offset)
            if form.startswith("ses.") and ses is None:
                ses = _head(layer)
            else:
                more.append(_head(layer))
    if tenants is not None and (tenant := tenants.of(packet.layers)):
        src, dst = src | tenant << TENANT_AT, dst | tenant << TENANT_AT
    if is_cut_short(packet):
        ses = None  # its extensions may be missing
    whole = packet.error is None and not _INCOMPLETE.intersection(packet.notes)
    size = len(packet.payload) if whole else -1
    content = None
    if whole and head is not None:
        end = packet.payload_offset + size + (ICV_SIZE if "sealed" in packet.notes else 0)
        content = crc32c(data[behind:end])
    expected = whole and is_expected(packet, data)
    expected = _has_nothing_inside(packet) and expected  # the layers of a message inside are added in any case
    return ObservedPacket(
        number,
        time_ns,
        src,
        dst,
        dscp,
        ecn,
        entropy,
        head,
        ses,
        tuple(more),
        size,
        content,
        None if expected else packet,
        None,
        outer + (CRC_SIZE if packet.trailer is not None and packet.trailer.kind != "icv" else 0),
    )


def _has_nothing_inside(packet: Packet) -> bool:
    """Return whether no SHARP message is inside; a fault of such a message is no fault of the packet."""
    announced = any(layer.values.get("header_data", 0) >> 32 == MAGIC for layer in packet.layers)
    number, error = len(packet.layers), packet.error
    look_inside(packet, with_sharp=True, with_mcast=False)
    nothing = not announced and len(packet.layers) == number and packet.error is error
    packet.error = error
    return nothing


def is_cut_short(packet: Packet) -> bool:
    """Return whether headers are missing because the capture cut the packet, or because the packet is a fragment."""
    return ("truncated" in packet.notes and bool(awaited(packet.layers))) or "fragment" in packet.notes


def awaited(layers: list[Layer]) -> Candidates:
    """Return the headers that may follow these layers according to the table `NEXT`. The result is empty if payload
    follows."""
    waiting: list[Candidates] = []
    for form, values, _ in layers:
        if waiting:
            waiting.pop()
        for row in reversed(rows_after(FORMS[form]) if form in FORMS else ()):
            candidates = row.then.get(values[row.by], row.otherwise) if row.by else row.otherwise
            if candidates:
                waiting.append(candidates)
    return waiting[-1] if waiting else ()


_HEADS = frozenset(form for form in FORMS if form.startswith(("pds.", "tss")) and "_state" not in form)


def _head(layer: Layer) -> Any:
    return head_class(layer.form)._make(layer.values.values())
