# SPDX-License-Identifier: GPL-2.0-only
"""This module has the target of `bytes_fuzz` that feeds mutated frames of RoCEv2, RoCEv1 and InfiniBand to the
decoder.

The corpus begins with the golden frames of roce.md §5 and with a frame of every opcode in every encapsulation. An
input consists of a byte that gives the link type, and of a frame.
"""

from collections.abc import Iterator
from random import Random

from uetproto.check.bytes_fuzz import Features, FuzzTarget, demand, met_in
from uetproto.wire.fields import Header
from uetproto.wire.forms import FORMS, IP_PROTOCOL, ROCE_PORT, UDP_PORT
from uetproto.wire.headers import ethernet, roce
from uetproto.wire.headers.ethernet import EtherType, IpProtocol
from uetproto.wire.headers.roce import BTH_FOLLOWS, SEQUENCES, Lnh
from uetproto.wire.mutate.havoc import mutate_transport
from uetproto.wire.mutate.mutation import MUTATIONS
from uetproto.wire.packet import Layer, Packet, Trailer
from uetproto.wire.stack import RD_MODES, TRIMMED_DSCP, decode, encode
from uetproto.wire.walk import walk

LINKS = ("ethernet", "infiniband")

_ETHERNET_FRAMES = """
02000000000202000000000108004502004400004000401126a50a0000010a000002c02812b7003000000a70ffff0000001280000005
0000000020000000000012340000000568656c6c6f00000086cc5390

02000000000202000000000108004502003000004000401126b90a0000010a000002c02812b7001c00001140ffff0000001100000005
1f00000124b71930

02000000000202000000000108004502003000004000401126b90a0000010a000002c02812b7001c00001140ffff0000001100000006
600000013e7de544

02000000000202000000000108004502004800004000401126a10a0000010a000002c02812b7003400001340ffff0000001280000006
00000000200000080000123411223344556677880102030405060708c34ea8b7

02000000000202000000000108004502003800004000401126b10a0000010a000002c02812b7002400001240ffff0000001100000006
1f0000020102030405060708dac17d7f

33330000000702000000000186dd6021234500281140fe800000000000000000000000000001ff120000000000000000000000000007
c02812b7002800006540ffff00ffffff00000000111111110000007700000407646174613926d2ef

020000000002020000000001080045c0003c00004000401125ef0a0000010a000002c02812b7002800008100ffff4000001200000000
00000000000000000000000000000000e9466808

02000000000202000000000189156020000000141b40fe800000000000000000000000000001fe800000000000000000000000000002
0440ffff00000012800000056461746192b44bd0
"""
_NATIVE_FRAME = "10220005000700070440ffff000000128000000564617461a6850afe0f14"
GOLDEN = (
    *(("ethernet", bytes.fromhex(text)) for text in _ETHERNET_FRAMES.split("\n\n")),
    ("infiniband", bytes.fromhex(_NATIVE_FRAME)),
)
"""Link type and bytes of each frame of roce.md §5, in the order of that section."""

ENCAPSULATIONS: dict[str, tuple[tuple[Header, dict[str, int]], ...]] = {
    "RoCEv2, IPv4": (
        (ethernet.ETHERNET, {"type": EtherType.IPV4}),
        (ethernet.IPV4,     {"protocol": IpProtocol.UDP, "mf": 0, "fragment_offset": 0}),
        (ethernet.UDP,      {"dport": ROCE_PORT}),
    ),
    "RoCEv2, IPv6": (
        (ethernet.ETHERNET, {"type": EtherType.IPV6}),
        (ethernet.IPV6,     {"next_header": IpProtocol.UDP}),
        (ethernet.UDP,      {"dport": ROCE_PORT}),
    ),
    "RoCEv1": (
        (ethernet.ETHERNET, {"type": EtherType.ROCEV1}),
        (roce.GRH,          {"nxthdr": BTH_FOLLOWS}),
    ),
    "InfiniBand, local": ((roce.LRH, {"lnh": Lnh.LOCAL}),),
    "InfiniBand, global": (
        (roce.LRH,          {"lnh": Lnh.GLOBAL}),
        (roce.GRH,          {"nxthdr": BTH_FOLLOWS}),
    ),
}  # fmt: skip
"""Maps an encapsulation to the headers before its BTH, each with the field values that select the next header (roce.md
§1)."""


def built(seed: int = 1) -> Iterator[tuple[str, bytes]]:
    """Yield link type and bytes of a frame of every opcode in every encapsulation. Fields that do not select a header
    have random values."""
    rng = Random(seed)
    for opcode, headers in SEQUENCES.items():
        for below in ENCAPSULATIONS.values():
            rows = (*below, (roce.BTH, {"opcode": opcode}), *((header, {}) for header in headers))
            layers = [Layer(header.name, _drawn(header, rng) | values) for header, values in rows]
            native = below[0][0] is roce.LRH
            payload = rng.randbytes(rng.choice((0, 1, 8, 14)))
            packet = Packet(layers, payload, Trailer("icrc", 0), vcrc=Trailer("vcrc", 0) if native else None)
            yield LINKS[native], encode(packet, fill=True)


def _drawn(header: Header, rng: Random) -> dict[str, int]:
    return {field.name: field.only[0] if field.only else rng.getrandbits(field.bits) for field in header.fields}


_HEADS = ("lrh", "grh", "bth")
"""Link types with which decoding can begin."""


class RoceFrames(FuzzTarget):
    """This target tests the decoder with RoCE frames. A decoded frame must be encoded to the same bytes, and a prefix
    of a frame must be decoded as truncated.

    The compiled decoders must give the same result as decoding header by header, whether RD headers are decoded or left
    raw. A frame that is encoded anew must have a right ICRC.
    """

    name = "roce"

    def __init__(self) -> None:
        super().__init__([bytes([LINKS.index(link)]) + frame for link, frame in (*GOLDEN, *built())])
        for data in self._seeds * 10:
            decode(data[1:], link=_link(data))  # after this many frames the shapes are compiled

    def mutate(self, data: bytes, rng: Random, other: bytes) -> bytes:
        link, frame = _link(data), data[1:]
        kind = rng.randrange(16)
        if kind < 4:
            found = rng.choice(list(MUTATIONS.values()))(frame, rng, link=link)
            if found is not None:
                return data[:1] + found.frame
        if kind == 15:
            return bytes([rng.getrandbits(1)]) + mutate_transport(frame, rng, other[1:])
        heads = [layer for layer in decode(frame, link=link).layers if layer.form in _HEADS]
        if not heads:
            return data[:1] + mutate_transport(frame, rng, other[1:])
        form, _, at = rng.choice(heads)
        return data[: 1 + at] + mutate_transport(frame[at:], rng, other[1 + at :], (FORMS[form],))

    def run(self, data: bytes) -> Features:
        link, frame = _link(data), data[1:]
        met: set[object] = set()
        for rd in RD_MODES:
            packet = decode(frame, link=link, rd=rd)
            demand(encode(packet) == frame, "encode(decode(frame)) is another frame")
            by_walk = walk(frame, (link, "auto", UDP_PORT, IP_PROTOCOL, ROCE_PORT, TRIMMED_DSCP, rd), False)
            demand(packet == by_walk, "the compiled shape says something else than the walk")
            met.update(met_in(packet))
            if "bth" in packet:
                met.add((link, rd, packet["bth"]["opcode"]))
                _check_crc(packet, frame, link, rd)
                _check_prefixes(packet, frame, link, rd)
        return met


def _link(data: bytes) -> str:
    return LINKS[data[0] & 1] if data else LINKS[0]


def _check_crc(packet: Packet, frame: bytes, link: str, rd: str) -> None:
    """Check that a frame is decoded alike without ICRC, and encoded anew with a right ICRC and the same payload."""
    unchecked = decode(frame, link=link, rd=rd, crc="off")
    same = unchecked.layers == packet.layers and unchecked.payload == packet.payload
    demand(same and encode(unchecked) == frame, "without its CRC checked the frame is read otherwise")
    if packet.error is None and not packet.notes:
        again = decode(encode(packet, fill=True), link=link, rd=rd)
        demand(again.payload == packet.payload, "encoded anew, the frame has another payload")
        right = all(trailer is None or trailer.ok for trailer in (again.trailer, again.vcrc))
        demand(right and again.trailer is not None, "encoded anew, the frame has no right ICRC and VCRC")


def _check_prefixes(packet: Packet, frame: bytes, link: str, rd: str) -> None:
    """Check frames truncated at and around every header boundary; with a known length on the wire that is no fault."""
    borders = [*(layer.offset for layer in packet.layers), packet.payload_offset, len(frame) - len(packet.raw)]
    for at in {border + step for border in borders for step in (-1, 0, 1)}:
        if 0 <= at < len(frame):
            short = frame[:at]
            demand(encode(decode(short, link=link, rd=rd)) == short, "a prefix is another one after encoding")
            cut = decode(short, link=link, rd=rd, length=len(frame))
            demand(encode(cut) == short, "a prefix of known length is another one after encoding")
            demand(cut.layers == packet.layers[: len(cut.layers)], "a prefix of known length has other headers")
            demand("truncated" in cut.notes, "a prefix of known length is not said to be truncated")
            if packet.error is None:
                demand(cut.error is None, "a prefix of known length has a fault that the frame has not")
