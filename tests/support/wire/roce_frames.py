# SPDX-License-Identifier: GPL-2.0-only
"""This module has the frames of roce.md §5, made by other software, with their content, and makes frames of any
opcode."""

import random
import zlib
from typing import Any, NamedTuple

from uetproto import Layer, Packet, Trailer, encode
from uetproto.wire.fields import Header
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.roce import SEQUENCES


class Golden(NamedTuple):
    name: str
    frame: bytes
    layers: tuple[tuple[str, dict[str, int]], ...]
    """Fields that are not 0; lengths, checksums and pad count are computed."""
    payload: bytes = b""
    link: str = "ethernet"


def _v4(tos: int = 2, df: int = 1) -> tuple[tuple[str, dict[str, int]], ...]:
    return (
        ("ethernet", {"dst": 0x020000000002, "src": 0x020000000001, "type": 0x0800}),
        ("ipv4", {"dscp": tos >> 2, "ecn": tos & 3, "df": df, "ttl": 64, "protocol": 17,
                  "src": 0x0A000001, "dst": 0x0A000002}),
        ("udp", {"sport": 49192, "dport": 4791}),
    )  # fmt: skip


def _bth(opcode: int, destqp: int, psn: int, **more: int) -> tuple[str, dict[str, int]]:
    return "bth", {"opcode": opcode, "m": 1, "p_key": 0xFFFF, "destqp": destqp, "psn": psn, **more}


_WRITE = (
    "02000000000202000000000108004502004400004000401126a50a0000010a000002c02812b700300000"
    "0a70ffff000000128000000500000000"
)
_CAS = "02000000000202000000000108004502004800004000401126a10a0000010a000002c02812b7003400001340ffff0000001280000006"
_FE80 = 0xFE80 << 112

GOLDEN = (
    Golden(
        "write",
        bytes.fromhex(_WRITE + "20000000000012340000000568656c6c6f00000086cc5390"),
        (*_v4(), _bth(0x0A, 0x12, 5, a=1), ("reth", {"va": 0x20000000, "r_key": 0x1234, "dmalen": 5})),
        b"hello",
    ),
    Golden(
        "ack",
        bytes.fromhex(
            "02000000000202000000000108004502003000004000401126b90a0000010a000002c02812b7001c00001140ffff0000001100000005"
            "1f00000124b71930"
        ),
        (*_v4(), _bth(0x11, 0x11, 5), ("aeth", {"syndrome": 0x1F, "msn": 1})),
    ),
    Golden(
        "nak",
        bytes.fromhex(
            "02000000000202000000000108004502003000004000401126b90a0000010a000002c02812b7001c00001140ffff0000001100000006"
            "600000013e7de544"
        ),
        (*_v4(), _bth(0x11, 0x11, 6), ("aeth", {"syndrome": 0x60, "msn": 1})),
    ),
    Golden(
        "compare and swap",
        bytes.fromhex(_CAS + "0000000020000008000012341122334455667788" + "0102030405060708c34ea8b7"),
        (
            *_v4(),
            _bth(0x13, 0x12, 6, a=1),
            (
                "atomic_eth",
                {"va": 0x20000008, "r_key": 0x1234, "swapdt": 0x1122334455667788, "cmpdt": 0x0102030405060708},
            ),
        ),
    ),
    Golden(
        "atomic acknowledge",
        bytes.fromhex(
            "02000000000202000000000108004502003800004000401126b10a0000010a000002c02812b7002400001240ffff0000001100000006"
            "1f0000020102030405060708dac17d7f"
        ),
        (
            *_v4(),
            _bth(0x12, 0x11, 6),
            ("aeth", {"syndrome": 0x1F, "msn": 2}),
            ("atomic_ack_eth", {"origremdt": 0x0102030405060708}),
        ),
    ),
    Golden(
        "UD over IPv6",
        bytes.fromhex(
            "33330000000702000000000186dd6021234500281140fe800000000000000000000000000001ff120000000000000000000000000007"
            "c02812b7002800006540ffff00ffffff00000000111111110000007700000407646174613926d2ef"
        ),
        (
            ("ethernet", {"dst": 0x333300000007, "src": 0x020000000001, "type": 0x86DD}),
            ("ipv6", {"version": 6, "ecn": 2, "flow_label": 0x12345, "next_header": 17, "hop_limit": 64,
                      "src": _FE80 | 1, "dst": 0xFF12 << 112 | 7}),
            ("udp", {"sport": 49192, "dport": 4791}),
            _bth(0x65, 0xFFFFFF, 0),
            ("deth", {"q_key": 0x11111111, "srcqp": 0x77}),
            ("imm", {"immdt": 0x407}),
        ),
        b"data",
    ),
    Golden(
        "CNP",
        bytes.fromhex(
            "020000000002020000000001080045c0003c00004000401125ef0a0000010a000002c02812b7002800008100ffff4000001200000000"
            "00000000000000000000000000000000e9466808"
        ),
        (*_v4(0xC0), _bth(0x81, 0x12, 0, m=0, becn=1), ("cnp", {})),
    ),
    Golden(
        "RoCEv1",
        bytes.fromhex(
            "02000000000202000000000189156020000000141b40fe800000000000000000000000000001fe800000000000000000000000000002"
            "0440ffff00000012800000056461746192b44bd0"
        ),
        (
            ("ethernet", {"dst": 0x020000000002, "src": 0x020000000001, "type": 0x8915}),
            ("grh", {"ipver": 6, "tclass": 2, "nxthdr": 0x1B, "hoplmt": 64, "sgid": _FE80 | 1, "dgid": _FE80 | 2}),
            _bth(0x04, 0x12, 5, a=1),
        ),
        b"data",
    ),
    Golden(
        "native",
        bytes.fromhex("10220005000700070440ffff000000128000000564617461a6850afe0f14"),
        (("lrh", {"vl": 1, "sl": 2, "lnh": 2, "dlid": 5, "slid": 7}), _bth(0x04, 0x12, 5, a=1)),
        b"data",
        "infiniband",
    ),
)  # fmt: skip
BY_NAME = {golden.name: golden for golden in GOLDEN}


def fields_of(header: Header, rng: random.Random, **fixed: int) -> dict[str, int]:
    return {f.name: fixed.get(f.name, f.only[0] if f.only else rng.getrandbits(f.bits)) for f in header.fields}


def lower(rng: random.Random, kind: str) -> list[Layer]:
    """Return the layers before a BTH: ipv4, ipv6, v1, local or global; values that select no header are random."""
    kinds = {"ipv4": 0x0800, "ipv6": 0x86DD, "v1": 0x8915}
    layers = []
    if kind in kinds:
        layers.append(Layer("ethernet", fields_of(FORMS["ethernet"], rng, type=kinds[kind])))
    if kind == "ipv4":
        fixed = {"version": 4, "ihl": 5, "protocol": 17, "mf": 0, "fragment_offset": 0}
        layers.append(Layer("ipv4", fields_of(FORMS["ipv4"], rng, **fixed)))
    if kind == "ipv6":
        layers.append(Layer("ipv6", fields_of(FORMS["ipv6"], rng, next_header=17)))
    if kind in ("ipv4", "ipv6"):
        layers.append(Layer("udp", fields_of(FORMS["udp"], rng, dport=4791, checksum=0)))
    if kind in ("local", "global"):
        layers.append(Layer("lrh", fields_of(FORMS["lrh"], rng, lnh=2 if kind == "local" else 3)))
    if kind in ("v1", "global"):
        layers.append(Layer("grh", fields_of(FORMS["grh"], rng, nxthdr=0x1B)))
    return layers


KINDS = ("ipv4", "ipv6", "v1", "local", "global")


def packet_of(opcode: int, rng: random.Random, kind: str = "ipv4", size: int = 0, **bth: int) -> Packet:
    """Return a packet of `opcode` with a right ICRC, and a right VCRC in native InfiniBand."""
    layers = lower(rng, kind)
    layers.append(Layer("bth", fields_of(FORMS["bth"], rng, opcode=opcode, **bth)))
    layers += [Layer(header.name, fields_of(header, rng)) for header in SEQUENCES.get(opcode, ())]
    vcrc = Trailer("vcrc", 0) if kind in ("local", "global") else None
    return Packet(layers, rng.randbytes(size), Trailer("icrc", 0), vcrc=vcrc)


def frame_of(*arguments: Any, **named: Any) -> bytes:
    return encode(packet_of(*arguments, **named), fill=True)


def plain_icrc(frame: bytes, kind: str) -> int:
    """Return the ICRC of a whole frame without padding, byte for byte as roce.md §4 says, without the code under
    test."""
    data = bytearray(frame)
    start = {"ipv4": 14, "ipv6": 14, "v1": 14, "local": 0, "global": 8}[kind]
    size = {"ipv4": 28, "ipv6": 48, "v1": 40, "local": 8, "global": 40}[kind]
    if kind == "ipv4":
        for at in (1, 8, 10, 11, 26, 27):
            data[start + at] = 0xFF
    elif kind == "local":
        data[0] |= 0xF0
    else:
        data[start] |= 0x0F
        for at in (1, 2, 3, 7, *((46, 47) if kind == "ipv6" else ())):
            data[start + at] = 0xFF
    data[start + size + 4] = 0xFF
    end = len(data) - (6 if kind in ("local", "global") else 4)
    return zlib.crc32((b"" if kind == "local" else b"\xff" * 8) + bytes(data[start:end]))
