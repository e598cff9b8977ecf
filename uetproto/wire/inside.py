# SPDX-License-Identifier: GPL-2.0-only
"""This module finds what no header field announces in a SEND: SHARP messages, their management, multicast immediates.

Over RoCE a SHARP message (sharp.md §2.1) is recognized only by rule 1 of sharp.md §2.8: its fields do not contradict
each other. Over UET the header data says "SHRP". Each packet is read alone, so only the first packet of a message is
recognized, because only this packet has the headers.
"""

from typing import NamedTuple

from uetproto.wire.codec import codec_of
from uetproto.wire.fields import Header
from uetproto.wire.headers import mcast, roce, sharp, sharp_am
from uetproto.wire.headers.roce import Operation, Transport, opcode_of
from uetproto.wire.headers.uet_pds import USE_RSV_PDC
from uetproto.wire.headers.uet_ses import SEND_STD_SOM, Opcode
from uetproto.wire.icrc import ICRC_SIZE
from uetproto.wire.packet import Fault, Layer, Packet, Trailer

_FIRST = opcode_of(Transport.RC, Operation.SEND_FIRST)
_ONLY = opcode_of(Transport.RC, Operation.SEND_ONLY)
_DATAGRAM = opcode_of(Transport.UD, Operation.SEND_ONLY)
_CHUNK = opcode_of(Transport.UD, Operation.SEND_ONLY_WITH_IMMEDIATE)
_RING = opcode_of(Transport.RC, Operation.SEND_ONLY_WITH_IMMEDIATE)
_USE_RSV_PDC = USE_RSV_PDC >> 12  # of `pdc_info`
_OPCODES = frozenset(sharp.SharpOpcode)

ENDLESS = 1 << 20
"""Number of bytes that is larger than the length of any message."""
CHECKED = Trailer("icrc", 0)
"""Trailer for a packet whose own trailer is not at hand. A packet with this trailer counts as captured to its end."""


class Message(NamedTuple):
    """This record holds the headers of a SHARP message, as `layers`, and the offset `end` of the end of its body.

    If the message is not valid, `reason` says why; otherwise it is empty. Of a message of several packets, only the
    first packet is considered.
    """

    layers: list[Layer]
    end: int
    reason: str = ""


def look_inside(packet: Packet, *, with_sharp: bool, with_mcast: bool) -> None:
    """Decode the SHARP or multicast headers that a packet carries, and add them behind its layers.

    With `with_sharp`, SHARP messages and their management are looked for in the payload. With `with_mcast`, an
    immediate is decoded as a multicast immediate if the rest of the packet allows it. The new layer then replaces the
    layer `imm`.
    """
    if not packet.layers or (packet.error is not None and packet.error.kind == "unknown"):
        return
    if with_mcast:
        _immediate(packet)
    if not with_sharp:
        return
    if packet.layers[-1].form == SEND_STD_SOM.name:
        _over_uet(packet)
    elif packet.layers[-1].form in ("bth", "deth"):
        _over_roce(packet)


def _over_roce(packet: Packet) -> None:
    bth, last = packet["bth"], packet.layers[-1]
    opcode, at, there = bth["opcode"], packet.payload_offset, len(packet.payload)
    datagram = last.form == "deth" and opcode == _DATAGRAM
    if datagram and bth["destqp"] == sharp_am.AM_QP and last.values["q_key"] == sharp_am.AM_Q_KEY:
        _management(packet, at)
    connected = last.form == "bth" and opcode in (_FIRST, _ONLY)
    multicast = datagram and bth["destqp"] == roce.MULTICAST_QP
    if bth["padcnt"] or not (connected or multicast):
        return  # messages are whole words
    if packet.trailer is None:
        lengths = range(there - ICRC_SIZE + 1, ENDLESS)  # the capture may have kept a part of the ICRC
    else:
        lengths = range(there + 1, ENDLESS) if opcode == _FIRST else range(there, there + 1)
    found = message_of(packet.payload, at, lengths)
    if not found.reason:
        _put(packet, found, at)


def _over_uet(packet: Packet) -> None:
    request, at = packet.layers[-1].values, packet.payload_offset
    if request["opcode"] != Opcode.SEND or not request["hd"] or request["header_data"] >> 32 != sharp.MAGIC:
        return
    if any(not layer.values["pdc_info"] & _USE_RSV_PDC for layer in packet.layers if "pdc_info" in layer.values):
        return  # establishes an ordinary PDC, on which SHARP messages are dropped
    length = request["request_length"]
    found = message_of(packet.payload, at, range(length, length + 1))
    _put(packet, found, at)
    whole = not {"trimmed", "truncated"} & set(packet.notes)
    if found.reason and whole and packet.error is None:
        packet.error = Fault("malformed", at, found.reason)


def _put(packet: Packet, found: Message, at: int) -> None:
    data = packet.payload
    packet.layers += found.layers
    start = packet.payload_offset - at if found.layers else 0
    end = max(start, found.end)
    packet.payload, packet.pad = data[start:end], data[end:]


def message_of(data: bytes, offset: int, lengths: range) -> Message:
    """Decode the headers of a SHARP message at the start of `data`, which begins at `offset` in the frame.

    The message is valid only if its length in bytes is one of `lengths` (sharp.md §2.8, rule 1).
    """
    if len(data) < sharp.SHARP.size:
        return Message([], len(data), f"sharp needs {sharp.SHARP.size} bytes, {len(data)} are there")
    values = codec_of(sharp.SHARP).decode(data)
    layers = [Layer("sharp", values, offset)]
    extended = sharp.SHARP.size + 4 * values["ext_words"]
    body_end = extended + values["payload_len"]
    total = body_end + -values["payload_len"] % 4
    reason = _contradiction(values)
    if not reason and total not in lengths:
        reason = f"sharp.payload_len implies {total} bytes, not {lengths.start}"
    if reason:
        return Message(layers, len(data), reason)

    at = sharp.SHARP.size
    for header in sharp.following(values["opcode"], values["flags"]):
        extension = header in (sharp.EXT_UDH, sharp.EXT_TGT)
        left = body_end - at - header.size
        if not extension and (left < 0 if header is sharp.JOIN_REQ else left):
            reason = reason or f"sharp.payload_len {values['payload_len']} is not that of {header.name}"
        if reason or len(data) < at + header.size:
            break
        fields = codec_of(header).decode(data, at)
        layers.append(Layer(header.name, fields, offset + at))
        at += header.size
        reason = _reserved(header, fields)
        if header is sharp.JOIN_REQ and left != 2 * fields["member_count"]:
            reason = reason or f"sharp.join_req.member_count {fields['member_count']} is not {left} bytes of ranks"
        elif header is sharp.JOIN_REQ and 0 < left <= len(data) - at:
            layers.append(Layer(sharp.RANKS, {"raw": data[at:body_end]}, offset + at))
    if any(data[body_end:total]):
        reason = reason or "the pad is not zero"
    return Message(layers[:1] if reason else layers, len(data) if reason else body_end, reason)


def _contradiction(values: dict[str, int]) -> str:
    """Return which fields of a base header contradict each other, as text; empty if none do."""
    if values["ver"] != sharp.VERSION:
        return f"sharp.ver {values['ver']} is not {sharp.VERSION}"
    if values["opcode"] not in _OPCODES:
        return f"sharp.opcode 0x{values['opcode']:02x} is unknown"
    if values["job_id"] > sharp.LAST_JOB:
        return f"sharp.job_id 0x{values['job_id']:08x} has more than 24 bits"
    if values["flags"] & sharp.RESERVED_FLAGS:
        return f"sharp.flags 0x{values['flags']:04x} has reserved bits"
    if values["ext_words"] != sharp.ext_words_of(values["flags"]):
        return f"sharp.ext_words {values['ext_words']} and sharp.flags 0x{values['flags']:04x} contradict"
    return ""


def _reserved(header: Header, values: dict[str, int]) -> str:
    name = next((name for name in header.names if name.startswith("rsvd") and values[name]), "")
    return f"{header.name}.{name} is not zero" if name else ""


def _management(packet: Packet, at: int) -> None:
    """Decode a MAD of the Aggregation Management class."""
    data = packet.payload
    if len(data) != sharp_am.MAD_SIZE or data[:2] != bytes((1, sharp_am.AM_CLASS)):
        return
    head = codec_of(sharp_am.AM).decode(data)
    packet.layers.append(Layer("sharp.am", head, at))
    body = sharp_am.ATTRIBUTES.get(head["attr_id"])  # type: ignore[call-overload]  # any number may be there
    if body is not None:
        packet.layers.append(Layer(body.name, codec_of(body).decode(data, sharp_am.AM.size), at + sharp_am.AM.size))
    packet.payload = data[packet.payload_offset - at :]


def _immediate(packet: Packet) -> None:
    """Replace `imm` by a multicast chunk or a message of the recovery ring (collectives.md §3.10.1)."""
    form, values, offset = packet.layers[-1]
    if form != "imm":
        return
    bth, data = packet["bth"], values["immdt"].to_bytes(4, "big")
    if bth["opcode"] == _CHUNK and bth["destqp"] == roce.MULTICAST_QP:
        packet.layers[-1] = Layer("mcast", codec_of(mcast.MCAST).decode(data), offset)
    elif bth["opcode"] == _RING and not packet.payload:
        ring = codec_of(mcast.RING).decode(data)
        if ring["type"] == mcast.RingType.NEED_FETCH or ring == {"owner": mcast.FIN_OWNER, "type": mcast.RingType.FIN}:
            packet.layers[-1] = Layer("mcast.ring", ring, offset)
