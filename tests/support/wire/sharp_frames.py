# SPDX-License-Identifier: GPL-2.0-only
"""This module has the SHARP messages of sharp.md §7, as hex, and frames that carry any message, for tests of decoder
and back-ends."""

import random
import struct

from hypothesis import strategies as st

from tests.support.wire.roce_frames import fields_of, lower
from uetproto import Layer, Packet, Trailer, encode
from uetproto.wire.forms import FORMS

HOSTS = ("3f800000 40000000 40400000 40800000 40a00000 40c00000 40e00000 41000000",
         "41200000 41a00000 41f00000 42200000 42480000 42700000 428c0000 42a00000",
         "3f000000 3f800000 3fc00000 40000000 40200000 40400000 40600000 40800000",
         "42c80000 43480000 43960000 43c80000 43fa0000 44160000 442f0000 44480000")  # fmt: skip
LEAF_A = "41300000 41b00000 42040000 42300000 425c0000 42840000 429a0000 42b00000"
LEAF_B = "42c90000 43490000 4396c000 43c90000 43fb4000 4416c000 442fe000 44490000"
SUM = "42df0000 435f0000 43a74000 43df0000 440b6000 44274000 44432000 445f0000"

_UP = "10100000 00000005 00000007 00000000 00000000 00080020 02040c01"
_DOWN = "10900000 00000005 00000007 00000000 00000000 00080020 02040c01"
MESSAGES = tuple(
    bytes.fromhex(text)
    for text in (
        f"{_UP} 00001880 {HOSTS[0]}",  # 1 H0 -> A
        f"{_UP} 01001880 {HOSTS[1]}",  # 2 H1 -> A
        f"{_UP} 00001880 {LEAF_A}",  # 3 A -> S
        f"{_UP} 00001880 {HOSTS[2]}",  # 4 H2 -> B
        f"{_UP} 01001880 {HOSTS[3]}",  # 5 H3 -> B
        f"{_UP} 01001880 {LEAF_B}",  # 6 B -> S
        f"{_DOWN} 00001888 {SUM}",  # 7 S -> A
        f"{_DOWN} 01001888 {SUM}",  # 8 S -> B
        f"{_DOWN} 00001888 {SUM}",  # 9, 10 A -> H0, H1
        f"{_DOWN} 01001888 {SUM}",
        f"{_DOWN} 00001888 {SUM}",  # 11, 12 B -> H2, H3
        f"{_DOWN} 01001888 {SUM}",
    )
)
"""The twelve messages of the aggregation."""
JOIN_REQ = bytes.fromhex(
    "10010000 00000005 00000007 00000000 00000000 00000012 0c0c0cff ff000000 00010004 00020080 00000003 00000011 0000"
    "0000"
)
ERROR_START = bytes.fromhex(
    "107f0000 00000005 00000007 00000000 00000000 00000028 0c0c0cff ff110000 11011000 0000000a 40000000"
)
ERROR = ERROR_START + bytes(72 - len(ERROR_START))
LOCK_BODY = bytes.fromhex("003fffff 00000000 00000064 ffff0000")

EXTENSION_WORDS = {0: 0, 0x0100: 2, 0x0200: 6, 0x0300: 8}


def message(opcode: int, body: bytes = b"", flags: int = 0, extensions: bytes = b"", **rest: int) -> bytes:
    """Return a message that is built by `struct` alone (sharp.md §2.2)."""
    get = {"op": 12, "dtype": 12, "tag_dtype": 12, "coll": 0xFF, "child_idx": 0xFF} | rest
    names = ("op", "dtype", "tag_dtype", "coll", "child_idx", "status")
    head = struct.pack(
        ">BBHIIIIHHBBBBBBH",
        0x10 | EXTENSION_WORDS[flags & 0x0300], opcode,
        *(get.get(name, 0) for name in ("tree_id", "job_id", "group_id", "seq", "vec_off", "count")),
        len(body), *(get.get(name, 0) for name in names), flags,
    )  # fmt: skip
    return head + extensions + body + bytes(-len(body) % 4)


_TGT = struct.Struct(">BBHI16s")
_words = st.integers(0, 0xFFFFFFFF)
_bodies = {
    0x01: st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=5).map(
        lambda ranks: struct.pack(f">HHHHII{len(ranks)}H", len(ranks), 4, 2, 128, 3, 17, *ranks)
    ),
    0x81: st.binary(min_size=16, max_size=16).map(
        lambda mgid: struct.pack(">HHHHIBBBB16sHHI", 4, 4, 2, 128, 3, 1, 1, 0, 0, mgid, 0xC005, 0, 7)
    ),
    **dict.fromkeys((0x02, 0x82), st.just(b"")),
    **dict.fromkeys((0x10, 0x90), st.binary(max_size=200)),
    **dict.fromkeys((0x20, 0xA0, 0x21, 0xA1), _words.map(lambda token: struct.pack(">IIIHH", 63, token, 100, 5, 0))),
    **dict.fromkeys((0x30, 0xB0), st.binary(min_size=8, max_size=8)),
    **dict.fromkeys((0x7E, 0x7F), st.binary(min_size=36, max_size=36).map(lambda rest: b"\x11\x01\x10\0" + rest)),
}  # fmt: skip


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Draw any message that obeys rule 1 of sharp.md §2.8."""
    opcode = draw(st.sampled_from(sorted(_bodies)))
    flags = draw(st.integers(0, 0x1FFF)) << 3
    extensions = draw(st.binary(min_size=8, max_size=8)) if flags & 0x0100 else b""
    if flags & 0x0200:
        gid = draw(st.binary(min_size=16, max_size=16))
        extensions += _TGT.pack(draw(st.integers(0, 2)), 0, 0xFFFF, draw(st.integers(0, 0xFFFFFF)), gid)
    numbers = {name: draw(_words) for name in ("group_id", "seq", "vec_off")}
    numbers |= {"tree_id": draw(st.integers(0, 0xFFFF)), "job_id": draw(st.integers(0, 0xFFFFFF))}
    return message(opcode, draw(_bodies[opcode]), flags, extensions, **numbers)


CARRIERS = ("ipv4", "ipv6", "v1", "local", "global")
LINKS = {"local": "infiniband", "global": "infiniband"}


def over_rc(data: bytes, kind: str = "ipv4", opcode: int = 0x04, seed: int = 1) -> bytes:
    """Return a frame with `data` in an RC SEND; a frame of native InfiniBand has no link header."""
    return _over_ib(data, kind, [_layer("bth", seed, opcode=opcode, destqp=0x12, tver=0)], seed)


def over_ud(data: bytes, kind: str = "ipv4", qp: int = 0xFFFFFF, seed: int = 1, **deth: int) -> bytes:
    """Return a frame with `data` in a UD SEND, to a multicast group unless `qp` says otherwise."""
    layers = [_layer("bth", seed, opcode=0x64, destqp=qp, tver=0), _layer("deth", seed, **({"srcqp": 0x77} | deth))]
    return _over_ib(data, kind, layers, seed)


def with_immediate(value: int, opcode: int, qp: int, data: bytes = b"") -> bytes:
    layers = [_layer("bth", 1, opcode=opcode, destqp=qp, tver=0)]
    layers += [_layer("deth", 1, srcqp=0x77)] if opcode >> 5 == 3 else []
    return _over_ib(data, "ipv4", [*layers, Layer("imm", {"immdt": value})], 1)


def _over_ib(data: bytes, kind: str, layers: list[Layer], seed: int) -> bytes:
    below = [
        layer._replace(values={**layer.values, "sport": 49192}) if layer.form == "udp" else layer
        for layer in lower(random.Random(seed), kind)
    ]
    vcrc = Trailer("vcrc", 0) if kind in LINKS else None
    return encode(Packet([*below, *layers], data, Trailer("icrc", 0), vcrc=vcrc), fill=True)


def over_uet(
    data: bytes, *, pds: str = "pds.rud_req.syn", info: int = 8, magic: int = 0x53485250, ipv6: bool = False,
    crc: bool = False, length: int | None = None, eom: int = 1, entropy: bool = False,
) -> bytes:  # fmt: skip
    """Return a frame with `data` as the message of a SEND on a reserved PDC (sharp.md §2.1)."""
    rng = random.Random(1)
    kind = 0x86DD if ipv6 else 0x0800
    layers = [Layer("ethernet", fields_of(FORMS["ethernet"], rng, type=kind))]
    if ipv6:
        layers.append(_layer("ipv6", 1, next_header=253 if entropy else 17, dscp=0))
    else:
        layers.append(_layer("ipv4", 1, protocol=253 if entropy else 17, mf=0, fragment_offset=0, dscp=0))
    layers.append(_layer("entropy", 1) if entropy else _layer("udp", 1, sport=49192, dport=4793))
    syn = {"pdc_info": info} if pds.endswith(".syn") else {}
    layers.append(_layer(pds, 1, next_hdr=3, retx=0, ar=1, rsvd=0, rsvd2=0, **syn))
    if "_cc_" in pds:
        layers.append(_layer("pds.req_cc_state", 1))
    header_data = magic << 32 | int.from_bytes(data[2:4], "big") << 16 | data[1] << 8 | 1
    total = len(data) if length is None else length
    fixed = {"opcode": 5, "version": 0, "dc": 0, "ie": 0, "rel": 1, "hd": 1, "eom": eom, "rsvd": 0, "rsvd2": 0}
    layers.append(_layer("ses.send_std.som", 1, rsvd3=0, header_data=header_data, request_length=total, **fixed))
    return encode(Packet(layers, data, Trailer("crc32c", 0) if crc else None), fill=True)


def _layer(form: str, seed: int, **fixed: int) -> Layer:
    return Layer(form, fields_of(FORMS[form], random.Random(seed), **fixed))
