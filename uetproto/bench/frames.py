# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the packets that `uetproto bench` measures, and the same packets as Scapy layers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from functools import cache
from itertools import product
from random import Random
from typing import Any

from uetproto import Layer, Packet, Trailer, decode, encode
from uetproto.wire.defaults import RULES
from uetproto.wire.fields import Header
from uetproto.wire.forms import FIRST, ROCE_PORT, UDP_PORT, Candidates, rows_after
from uetproto.wire.headers.roce import BTH, OPERATIONS, RD_OPCODES, SEQUENCES, Load, Operation, Transport
from uetproto.wire.headers.uet_pds import LEGAL_NEXT_HDR

# Single packets -------------------------------------------------------------------------------------------------------

_ADDRESSES = {"src": 0x0A00000B, "dst": 0x0A00010B}
_MACS = {"dst": 0x02000A00010B, "src": 0x02000A00000B}


def request(payload: int, psn: int = 7, crc: bool = True) -> Packet:
    """Return a RUD request with a SES standard request: 12 + 44 bytes behind Ethernet, IPv4 and UDP."""
    layers = [
        Layer("ethernet", {**_MACS, "type": 0x0800}),
        Layer("ipv4", {"dscp": 8, "ecn": 2, "df": 1, "ttl": 64, "protocol": 17, **_ADDRESSES}),
        Layer("udp", {"sport": 0xC000, "dport": UDP_PORT}),
        Layer("pds.rud_req", {"next_hdr": 3, "clear_psn_offset": -1, "psn": psn, "spdcid": 1, "dpdcid": 2}),
        Layer("ses.request_std.som", {
            "opcode": 1, "rel": 1, "eom": 1, "message_id": 1, "job_id": 101, "resource_index": 15,
            "memory_key": 0x0001000000000007, "request_length": payload,
        }),
    ]  # fmt: skip
    return Packet(layers, bytes(payload), Trailer("crc32c", 0) if crc else None)


def ack(psn: int) -> Packet:
    return Packet([
        *request(0).layers[:3],
        Layer("pds.ack", {"next_hdr": 4, "cack_psn": psn, "spdcid": 2, "dpdcid": 1}),
        Layer("ses.response", {"return_code": 1, "message_id": 1, "job_id": 101}),
    ])  # fmt: skip


def roce_packet(opcode: int, psn: int, more: Layer, payload: int) -> Packet:
    """Return a RoCEv2 packet over IPv4: Ethernet to BTH, one header `more`, `payload` bytes, ICRC."""
    layers = [
        Layer("ethernet", {**_MACS, "type": 0x0800}),
        Layer("ipv4", {"dscp": 26, "ecn": 2, "df": 1, "ttl": 64, "protocol": 17, **_ADDRESSES}),
        Layer("udp", {"sport": 0xC000, "dport": ROCE_PORT}),
        Layer("bth", {"opcode": opcode, "m": 1, "p_key": 0xFFFF, "destqp": 0x12, "a": 1, "psn": psn}),
        more,
    ]
    return Packet(layers, bytes(payload), Trailer("icrc", 0))


def roce_write(payload: int, psn: int = 7) -> Packet:
    return roce_packet(0x0A, psn, Layer("reth", {"va": 0x20000000 + psn, "r_key": 0x1234, "dmalen": payload}), payload)


def roce_ack(psn: int) -> Packet:
    return roce_packet(0x11, psn, Layer("aeth", {"syndrome": 0x1F, "msn": psn}), 0)


# Mixed traffic --------------------------------------------------------------------------------------------------------

_SIZES = (0, 8, 64, 256, 1024, 4096)
"""Sizes of payloads in bytes."""


def mixed(count: int) -> list[bytes]:
    """Return frames of UET, drawn at random. All PDS headers are equally likely, and so are all stacks of headers that
    a PDS header can carry.

    The PDS headers are those of requests, ACKs, NACKs and control packets, with each SES header and extension that
    pds.md §3 and `NEXT` let them carry. Two thirds of the frames have a UDP header, the others an entropy header. Two
    thirds have IPv4, the others IPv6. All have a CRC32C.
    """
    rng, groups = Random(1), _groups()
    return [_frame(rng.choice(rng.choice(groups)), rng) for _ in range(count)]


@cache
def _groups() -> list[list[tuple[Header, ...]]]:
    """Return, for each PDS header, the stacks of headers that begin with it."""
    groups = [[stack for stack in _stacks(((first,),), ()) if _frame(stack, Random(1))] for first in FIRST]
    return [group for group in groups if group]  # a security header carries no header that can be read


def _stacks(todo: tuple[Candidates, ...], before: tuple[Header, ...]) -> Iterator[tuple[Header, ...]]:
    """Yield the headers `before` with all that may follow them, for each choice of `todo`."""
    if not todo:
        yield before
        return
    for header in todo[0]:
        rows = rows_after(header)
        fields = list(dict.fromkeys(row.by for row in rows if row.by))
        for codes in product(*(_codes(header, by) for by in fields)):
            values = dict(zip(fields, codes, strict=True))
            groups = [row.then.get(values[row.by], row.otherwise) if row.by else row.otherwise for row in rows]
            if None not in groups:
                yield from _stacks((*(group for group in groups if group), *todo[1:]), (*before, header))


def _codes(header: Header, by: str) -> list[int]:
    """Return one value of the field `by` for each thing that it selects."""
    field = header[by]
    legal = LEGAL_NEXT_HDR[header["type"].default] if by == "next_hdr" else field.only or field.values or ()
    rows = [row for row in rows_after(header) if row.by == by]
    return list({tuple(id(row.then.get(code, row.otherwise)) for row in rows): int(code) for code in legal}.values())


def _frame(stack: tuple[Header, ...], rng: Random) -> bytes:
    """Return a frame that decodes to `stack`; b"" if codes that are drawn always select another header."""
    forms = [header.name for header in stack]
    data = forms[-1].startswith(("ses.request", "ses.send", "ses.response_data", "ses.ext.rendezvous"))
    for _ in range(20):
        layers = [Layer(header.name, _values(header, rng)) for header in stack]
        lower = _lower(rng.choice(("udp", "udp", "entropy")), rng.choice((4, 4, 6)), UDP_PORT)
        payload = bytes(rng.choice(_SIZES) if data else 0)
        frame = encode(Packet([*lower, *layers], payload, Trailer("crc32c", 0)), fill=True)
        packet = decode(frame)
        if packet.error is None and [layer.form for layer in packet.layers][-len(forms) :] == forms:
            return frame
    return b""


def mixed_roce(count: int) -> list[bytes]:
    """Return frames of RoCEv2 with all opcodes but those of RD, two thirds of them over IPv4, a third over IPv6."""
    rng = Random(1)
    opcodes = [opcode for opcode in SEQUENCES if opcode not in RD_OPCODES]
    frames = []
    for opcode in rng.choices(opcodes, k=count):
        known = opcode & 0x1F in OPERATIONS and opcode >> 5 != Transport.CNP
        load = OPERATIONS[Operation(opcode & 0x1F)].load if known else Load.NONE
        size = rng.choice(_SIZES) if None in load.value else load.value[1]
        layers = [Layer(header.name, _values(header, rng)) for header in (BTH, *SEQUENCES[opcode])]
        layers[0] = Layer("bth", {**layers[0].values, "opcode": opcode})
        lower = _lower("udp", rng.choice((4, 4, 6)), ROCE_PORT)
        frames.append(encode(Packet([*lower, *layers], bytes(size or 0), Trailer("icrc", 0)), fill=True))
    return frames


def _lower(carrier: str, version: int, port: int) -> list[Layer]:
    return [
        Layer("ethernet", _MACS),
        Layer("ipv4", _ADDRESSES) if version == 4 else Layer("ipv6", _ADDRESSES),
        Layer("udp", {"sport": 0xC000, "dport": port}) if carrier == "udp" else Layer("entropy", {"entropy": 7}),
    ]


def _values(header: Header, rng: Random) -> dict[str, int]:
    """Return random numbers and codes for those fields of a header that neither identify it nor follow from others."""
    values = {}
    selects = {row.by for row in rows_after(header)}
    for field in header.fields:
        if field.only or field.name in selects or field.name.startswith("rsvd"):
            continue
        if field.values is not None and issubclass(field.values, IntEnum) and (header.name, field.name) not in RULES:
            values[field.name] = int(rng.choice(list(field.values)))
        elif field.bits >= 12 and not field.signed and "length" not in field.name and "offset" not in field.name:
            values[field.name] = rng.getrandbits(field.bits)
    return values


# The same as Scapy layers ---------------------------------------------------------------------------------------------


class ScapyPackets:
    """This class makes packets as Scapy layers, in the form in which Scapy builds them fastest. The layers above UDP
    are those of `uetproto.layers`.

    All fields but lengths and checksums are set. The layers are joined by `add_payload`, because `/` copies both sides.
    `explicit` is set, because Scapy otherwise builds a copy of the packet.
    """

    def __init__(self, complete: Packet) -> None:
        from scapy.layers.inet import IP, UDP
        from scapy.layers.l2 import Ether
        from scapy.packet import Raw

        from uetproto import layers as uet

        self._lower = Ether, IP, UDP, Raw
        self._upper = []
        for form, values, _ in complete.layers[3:]:
            layer = uet.LAYERS.get(form) or uet.ROCE_LAYERS[form]
            names = [field.name for field in layer.fields_desc]
            self._upper.append((layer, dict(zip(names, values.values(), strict=True))))
        self._tos = complete["ipv4"]["dscp"] << 2 | complete["ipv4"]["ecn"]
        self._addresses = {"src": "10.0.0.11", "dst": "10.0.1.11"}
        self._port, self._payload = complete["udp"]["dport"], complete.payload

    def make(self) -> Any:
        """Return a new packet."""
        ether, ip, udp, raw = self._lower
        layers = [
            ether(dst="02:00:0a:00:01:0b", src="02:00:0a:00:00:0b", type=0x0800),
            ip(
                version=4,
                ihl=5,
                tos=self._tos,
                id=0,
                flags=2,
                frag=0,
                ttl=64,
                proto=17,
                src="10.0.0.11",
                dst="10.0.1.11",
            ),
            udp(sport=0xC000, dport=self._port, chksum=0),
            *[layer(**values) for layer, values in self._upper],
            raw(self._payload),
        ]
        below = layers[0]
        for layer in layers[1:]:
            below.add_payload(layer)
            below = layer
        for layer in layers:
            layer.explicit = 1
        return layers[0]

    def encode(self) -> bytes:
        """Return the bytes of a new packet."""
        data: bytes = self.make().build()
        return data


@contextmanager
def without_crc() -> Iterator[None]:
    """Let the Scapy layers of UET neither check nor compute a CRC32C."""
    from uetproto.layers import settings

    before, settings.crc = settings.crc, "off"
    try:
        yield
    finally:
        settings.crc = before


def fields_of(packet: Any) -> list[Mapping[str, Any]]:
    """Return the fields of each layer of a Scapy packet."""
    found = []
    while packet:
        found.append(packet.fields)
        packet = packet.payload
    return found
