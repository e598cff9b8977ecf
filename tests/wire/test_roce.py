# SPDX-License-Identifier: GPL-2.0-only
"""RoCEv2, RoCEv1 and native InfiniBand: the golden frames, every opcode, every cut, every way to be wrong (roce.md)."""

import random
from collections import Counter
from typing import Any

import pytest

from tests.support import paths
from tests.support.each import each
from tests.support.wire.roce_frames import (
    BY_NAME,
    GOLDEN,
    KINDS,
    Golden,
    fields_of,
    frame_of,
    lower,
    packet_of,
    plain_icrc,
)
from uetproto import Layer, LocalError, Packet, Trailer, decode, encode
from uetproto.wire.capture.pcap import LINK_NAMES, open_capture
from uetproto.wire.codec import codec_of
from uetproto.wire.forms import FORMS, ROCE_FORMS
from uetproto.wire.headers.roce import (
    BTH,
    OPERATIONS,
    RD_OPCODES,
    SEQUENCES,
    BthOpcode,
    Operation,
    Transport,
    count_of,
    opcode_of,
    rnr_wait_us,
)
from uetproto.wire.stack import TRIMMED_DSCP, assemble
from uetproto.wire.walk import walk

SHARED = paths.SHARED / "captures" / "roce"
WRITE = BY_NAME["write"].frame
NATIVE = BY_NAME["native"].frame
AT = 42  # where the BTH is in a frame with IPv4


def link_of(kind: str) -> str:
    return "infiniband" if kind in ("local", "global") else "ethernet"


def long_way(data: bytes, link: str = "ethernet", rd: str = "raw") -> Packet:
    return walk(data, (link, "auto", 4793, 253, 4791, TRIMMED_DSCP, rd), False)


# Golden frames --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_golden_frames(golden: Golden) -> None:
    for _ in range(20):  # the first ones walk, the others are read by a compiled shape
        packet = decode(golden.frame, link=golden.link)
        assert packet.error is None
        assert packet.notes == ()
        assert packet.trailer is not None
        assert packet.trailer.ok is True
        assert packet.payload == golden.payload
        assert packet == long_way(golden.frame, golden.link)
        assert [layer.form for layer in packet.layers] == [form for form, _ in golden.layers]
        computed = {
            "total_length",
            "ihl",
            "version",
            "checksum",
            "payload_length",
            "length",
            "padcnt",
            "paylen",
            "pktlen",
        }
        for layer, (_, values) in zip(packet.layers, golden.layers, strict=True):
            assert {n: v for n, v in layer.values.items() if v and n not in computed} == {
                n: v for n, v in values.items() if v and n not in computed
            }
        assert encode(packet) == encode(packet, fill=True) == assemble(packet, True) == golden.frame


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_golden_frames_from_values(golden: Golden) -> None:
    layers = [Layer(form, values) for form, values in golden.layers]
    vcrc = Trailer("vcrc", 0) if golden.link == "infiniband" else None
    assert encode(Packet(layers, golden.payload, Trailer("icrc", 0), vcrc=vcrc), fill=True) == golden.frame


def test_the_crcs_as_numbers() -> None:
    packet = decode(NATIVE, link="infiniband")
    assert packet.trailer == ("icrc", 0xFE0A85A6, True)
    assert packet.vcrc == ("vcrc", 0x140F, True)
    assert decode(WRITE).pad == b"\0\0\0"


# Opcodes --------------------------------------------------------------------------------------------------------------

PAGE = """
    00 SEND_FIRST 00 20 40 – a0
    01 SEND_MIDDLE 01 21 41 – a1
    02 SEND_LAST 02 22 42 – a2
    03 SEND_LAST_WITH_IMMEDIATE 03 23 43 – a3 imm
    04 SEND_ONLY 04 24 44 64 a4
    05 SEND_ONLY_WITH_IMMEDIATE 05 25 45 65 a5 imm
    06 RDMA_WRITE_FIRST 06 26 46 – a6 reth
    07 RDMA_WRITE_MIDDLE 07 27 47 – a7
    08 RDMA_WRITE_LAST 08 28 48 – a8
    09 RDMA_WRITE_LAST_WITH_IMMEDIATE 09 29 49 – a9 imm
    0a RDMA_WRITE_ONLY 0a 2a 4a – aa reth
    0b RDMA_WRITE_ONLY_WITH_IMMEDIATE 0b 2b 4b – ab reth imm
    0c RDMA_READ_REQUEST 0c – 4c – ac reth
    0d RDMA_READ_RESPONSE_FIRST 0d – 4d – ad aeth
    0e RDMA_READ_RESPONSE_MIDDLE 0e – 4e – ae
    0f RDMA_READ_RESPONSE_LAST 0f – 4f – af aeth
    10 RDMA_READ_RESPONSE_ONLY 10 – 50 – b0 aeth
    11 ACKNOWLEDGE 11 – 51 – b1 aeth
    12 ATOMIC_ACKNOWLEDGE 12 – 52 – b2 aeth atomic_ack_eth
    13 COMPARE_SWAP 13 – 53 – b3 atomic_eth
    14 FETCH_ADD 14 – 54 – b4 atomic_eth
    15 RESYNC – – 55 – –
    16 SEND_LAST_WITH_INVALIDATE 16 – – – b6 ieth
    17 SEND_ONLY_WITH_INVALIDATE 17 – – – b7 ieth
    1c FLUSH 1c – 5c – bc feth reth
    1d ATOMIC_WRITE 1d – – – bd reth
"""
"""roce.md §3, the columns op, operation, RC, UC, RD, UD, XRC, own headers."""

BEFORE = {"RC": (), "UC": (), "RD": ("rdeth", "deth"), "UD": ("deth",), "XRC": ("xrceth",)}


def from_the_page() -> dict[int, tuple[str, tuple[str, ...]]]:
    found: dict[int, tuple[str, tuple[str, ...]]] = {0x80: ("CNP_NATIVE", ()), 0x81: ("CNP", ("cnp",))}
    for line in PAGE.strip().splitlines():
        number, name, *codes = line.split()
        codes, own = codes[:5], tuple(codes[5:])
        for transport, code in zip(BEFORE, codes, strict=True):
            if code == "–":
                continue
            before = BEFORE[transport]
            if 0x0D <= int(number, 16) <= 0x12:  # a response
                before = ("rdeth",) if transport == "RD" else ()
            found[int(code, 16)] = (f"{transport}_{name}", before + own)
    return found


def test_opcodes_are_those_of_the_page() -> None:
    expected = from_the_page()
    assert {o: tuple(h.name for h in headers) for o, headers in SEQUENCES.items()} == {
        opcode: forms for opcode, (_, forms) in expected.items()
    }
    assert {int(code): code.name for code in BthOpcode} == {opcode: name for opcode, (name, _) in expected.items()}
    assert opcode_of(Transport.XRC, Operation.ATOMIC_WRITE) == 0xBD
    assert set(OPERATIONS) == set(Operation)


@each("kind", KINDS)
@each("opcode", SEQUENCES)
def test_every_opcode_both_ways(opcode: int, kind: str) -> None:
    rng = random.Random(f"{opcode} {kind}")
    rd = "headers" if opcode in RD_OPCODES else "raw"
    for size in range(9):
        packet = packet_of(opcode, rng, kind, size)
        frame = encode(packet, fill=True)
        assert assemble(packet, True) == frame
        found = decode(frame, link=link_of(kind), rd=rd)
        assert found.error is None
        assert [layer.form for layer in found.layers] == [layer.form for layer in packet.layers]
        assert found["bth"]["padcnt"] == len(found.pad) == -size % 4
        assert found.payload == packet.payload
        assert found.trailer == ("icrc", plain_icrc(frame, kind), True)
        assert (found.vcrc is not None and found.vcrc.ok) == (link_of(kind) == "infiniband")
        for layer, given in zip(found.layers, packet.layers, strict=True):
            computed = {"total_length", "checksum", "payload_length", "length", "padcnt", "paylen", "pktlen"}
            assert {n: v for n, v in layer.values.items() if n not in computed} == {
                n: v for n, v in given.values.items() if n not in computed
            }
        assert encode(found) == frame


@each("opcode", range(256))
def test_rd_and_unknown_opcodes_stay_raw(opcode: int) -> None:
    frame = frame_of(opcode, random.Random(opcode), size=16)
    found = decode(frame)
    rest = frame[AT + BTH.size : -4]
    assert encode(found) == frame
    assert found.trailer is not None
    assert found.trailer.ok is True  # where it is does not depend on the opcode
    if 0x40 <= opcode < 0x60:
        assert found.error == ("unknown", AT + BTH.size, f"opcode 0x{opcode:02x}: RD or vendor transport")
        assert found.layers[-1].form == "bth"
        assert found.payload == rest
        asked = decode(frame, rd="headers")
        assert [layer.form for layer in asked.layers[3:]] == ["bth", *(h.name for h in SEQUENCES.get(opcode, ()))]
        assert (asked.error is None) == (opcode in SEQUENCES)
    elif opcode in SEQUENCES:
        assert found.error is None
    else:
        assert found.error == ("unknown", AT + BTH.size, f"opcode 0x{opcode:02x} is unknown")
        assert found.payload == rest


# Cut and damaged ------------------------------------------------------------------------------------------------------


@each("kind", KINDS)
@each("opcode", SEQUENCES)
def test_every_prefix(opcode: int, kind: str) -> None:
    """A packet cut short has no ICRC to judge, and is no fault, whatever the record says of its length."""
    link = link_of(kind)
    frame = frame_of(opcode, random.Random(opcode), kind, 6)
    whole = decode(frame, link=link, rd="headers")
    bth = next(layer.offset for layer in whole.layers if layer.form == "bth")
    icrc_end = len(frame) - (2 if link == "infiniband" else 0)
    for size in range(len(frame)):
        for length in (None, len(frame)):
            found = decode(frame[:size], link=link, rd="headers", length=length)
            assert encode(found) == frame[:size]
            assert found.layers == [layer for layer in whole.layers if layer.offset + layer.size <= size]
            if size < icrc_end:
                assert found.trailer is None
            if bth <= size and (size < icrc_end or length):
                assert found.notes == ("truncated",)
                assert found.error is None
            if length:
                assert found.error is None


@each("opcode", SEQUENCES)
def test_every_length_that_contradicts_the_headers(opcode: int) -> None:
    """The lengths below say that the packet ends early: malformed, unless what is left is a packet."""
    whole = packet_of(opcode, random.Random(opcode), size=3, rsvd=0)
    headers = sum(layer.size for layer in whole.layers)
    frame = encode(whole, fill=True)
    for size in range(AT, len(frame)):
        data = bytearray(frame[:size])
        data[16:18] = (size - 14).to_bytes(2, "big")
        data[38:40] = (size - 34).to_bytes(2, "big")
        found = decode(bytes(data), rd="headers")
        assert encode(found) == data
        if size < headers + 4 + 1:  # one pad byte
            assert found.error is not None
            assert found.error.kind == "malformed"
        else:
            assert found.trailer is not None
            assert found.trailer.ok is False


def test_what_counts_for_the_icrc() -> None:
    """One bit anywhere: the fields of roce.md §4 may change, all others may not."""
    may = {15: 0xFF, 22: 0xFF, 24: 0xFF, 25: 0xFF, 40: 0xFF, 41: 0xFF, AT + 4: 0xFF}
    steers = {12, 13, 14, 16, 17, 20, 21, 23, 36, 37, 38, 39}  # change what the packet is
    for at in range(len(WRITE)):
        for bit in range(8):
            data = bytearray(WRITE)
            data[at] ^= 1 << bit
            found = decode(bytes(data))
            assert encode(found) == data
            if at in steers or (at == AT and bit == 6):
                continue
            assert found.trailer is not None, at
            assert found.trailer.ok is (at < 12 or bool(may.get(at, 0) >> bit & 1)), (at, bit)


@pytest.mark.parametrize("kind", ["v1", "ipv6", "local", "global"])
def test_the_other_stacks_have_their_fields_that_may_change(kind: str) -> None:
    rng = random.Random(kind)
    packet = packet_of(4, rng, kind, 8)
    frame = encode(packet, fill=True)
    variant = {
        "ipv6": ("dscp", "ecn", "flow_label", "hop_limit"), "grh": ("tclass", "flowlabel", "hoplmt"), "lrh": ("vl",),
        "udp": ("checksum",), "bth": ("fecn", "becn", "rsvd"),
    }  # fmt: skip
    free = {"ethernet"} | ({"lrh"} if kind == "global" else set())
    for layer in decode(frame, link=link_of(kind)).layers:
        for field in FORMS[layer.form].fields:
            if field.name in ("type", "lnh", "pktlen", "nxthdr", "paylen", "ipver", "payload_length", "next_header",
                              "version", "dport", "length", "opcode", "padcnt"):  # fmt: skip
                continue
            values = {**layer.values, field.name: layer.values[field.name] ^ 1}
            changed = bytearray(frame)
            changed[layer.offset : layer.offset + layer.size] = codec_of(FORMS[layer.form]).encode(values)
            found = decode(bytes(changed), link=link_of(kind))
            assert found.trailer is not None
            expected = layer.form in free or field.name in variant.get(layer.form, ())
            assert found.trailer.ok is expected, f"{layer.form}.{field.name}"
            if found.vcrc is not None:
                assert found.vcrc.ok is False


def test_random_bytes_never_raise() -> None:
    rng = random.Random(5)
    for _ in range(4000):
        kind = rng.choice(KINDS)
        frame = frame_of(rng.getrandbits(8), rng, kind, rng.randrange(40))
        cut = rng.randrange(len(frame))
        data = bytearray(frame[:cut] + rng.randbytes(rng.randrange(60)) if rng.random() < 0.5 else frame)
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.getrandbits(8)
        link = rng.choice(("ethernet", "raw", "sll", "sll2", "infiniband", "erf", link_of(kind), link_of(kind)))
        rd = rng.choice(("raw", "headers"))
        crc = rng.choice(("auto", "on", "off"))
        length = rng.choice((None, len(data) + 9))
        found = decode(bytes(data), link=link, rd=rd, crc=crc, length=length)
        assert encode(found) == data


def test_compiled_and_walked_are_the_same() -> None:
    rng = random.Random(8)
    for opcode in (0x00, 0x04, 0x0A, 0x10, 0x11, 0x13, 0x64, 0x81):
        for kind in ("ipv4", "ipv6", "v1"):
            for size in (0, 3, 8):
                for _ in range(30):
                    packet = packet_of(opcode, rng, kind, size, padcnt=-size % 4)
                    frame = bytearray(encode(packet, fill=True))
                    assert frame == assemble(packet, True)
                    if rng.random() < 0.5:
                        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
                    if rng.random() < 0.1:
                        frame += rng.randbytes(7)
                    assert decode(bytes(frame)) == long_way(bytes(frame))
                    assert encode(decode(bytes(frame))) == frame


# Settings and stacks --------------------------------------------------------------------------------------------------


def test_settings() -> None:
    other = bytearray(WRITE)
    other[36:38] = (4000).to_bytes(2, "big")
    assert decode(bytes(other)).error == ("unknown", AT, "UDP port 4000: not UET")
    assert decode(bytes(other), roce_port=4000).layers[-1].form == "reth"
    assert decode(WRITE, udp_port=4791).layers[3].form != "bth"  # UET comes first
    unchecked = decode(WRITE, crc="off")
    assert unchecked.trailer == ("icrc", 0x9053CC86, None)
    assert unchecked.payload == b"hello"
    for rd in ("all", None, 5):
        with pytest.raises(LocalError, match=r"rd: .* is not legal; legal: raw, headers"):
            decode(WRITE, rd=rd)  # type: ignore[arg-type]


def test_padding_of_ethernet_is_no_payload() -> None:
    frame = frame_of(4, random.Random(1))
    assert len(frame) == 58
    found = decode(frame + b"\0\0")
    assert (found.payload, found.notes, found.raw) == (b"", ("padding",), b"\0\0")
    assert found.trailer is not None
    assert found.trailer.ok


@pytest.mark.parametrize("tags", [1, 2, 3])
def test_vlan_tags(tags: int) -> None:
    frame = WRITE[:12] + b"\x81\0\0\5" * tags + WRITE[12:]
    found = decode(frame)
    if tags == 3:
        assert found.error is not None
        assert found.error.kind == "unknown"
    else:
        assert found.trailer is not None
        assert found.trailer.ok
        assert found.payload == b"hello"


def test_options_and_extension_headers_count_as_they_are() -> None:
    rng = random.Random(3)
    options = [*lower(rng, "ipv4")]
    options.insert(2, Layer("ipv4.options", {"raw": b"\x01\x01\x01\x00"}))
    extension = [*lower(rng, "ipv6")]
    extension[1] = Layer("ipv6", {**extension[1].values, "next_header": 60})
    extension.insert(2, Layer("ipv6.ext", {"raw": b"\x11\0" + bytes(6)}))
    for layers in (options, extension):
        packet = Packet([*layers, Layer("bth", {"opcode": 4})], b"12345", Trailer("icrc", 0))
        frame = encode(packet, fill=True)
        found = decode(frame)
        assert found.trailer is not None
        assert found.trailer.ok
        at = found.layers[2].offset + 1
        changed = decode(frame[: at + 2] + b"\x55" + frame[at + 3 :])
        assert changed.trailer is None or changed.trailer.ok is False


def test_udp_longer_than_ip_is_malformed() -> None:
    data = bytearray(WRITE)
    data[38:40] = (60).to_bytes(2, "big")
    found = decode(bytes(data))
    assert found.error == ("malformed", 38, "udp.length 60 is more than IP carries")
    assert found.notes == ()
    assert encode(found) == data


def test_a_trimmed_class_means_nothing_to_roce() -> None:
    data = bytearray(WRITE)
    data[15] = 16 << 2
    assert decode(bytes(data)).notes == ()
    assert decode(bytes(data)).trailer is not None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({1: 0x20}, ("unknown", 8, "LRH next header 0")),
        ({1: 0x21}, ("unknown", 8, "LRH next header 1")),
        ({5: 1}, ("malformed", 4, "lrh.pktlen 1 is less than its header")),
    ],
)
def test_native_packets_that_are_no_transport(change: dict[int, int], said: tuple[Any, ...]) -> None:
    data = bytearray(NATIVE)
    for at, value in change.items():
        data[at] = value
    found = decode(bytes(data), link="infiniband")
    assert found.error == said
    assert encode(found) == data


def test_a_global_route_header_that_is_wrong() -> None:
    frame = bytearray(frame_of(4, random.Random(2), "global", 4))
    for at, value, said in (
        (8, 0x50, "GRH says version 5"),
        (13, 0xEE, "contradict"),
        (14, 17, "GRH next header 17"),
    ):
        data = bytearray(frame)
        data[at] = value
        found = decode(bytes(data), link="infiniband")
        assert said in str(found.error)
        assert encode(found) == data


def test_erf_records() -> None:
    def record(kind: int, extensions: bytes = b"", wlen: int = len(NATIVE)) -> bytes:
        head = fields_of(FORMS["erf"], random.Random(1), ext=bool(extensions), type=kind, wlen=wlen)
        return codec_of(FORMS["erf"]).encode(head) + extensions

    plain = decode(record(21) + NATIVE, link="erf")
    assert [layer.form for layer in plain.layers] == ["erf", "lrh", "bth"]
    assert plain.vcrc == ("vcrc", 0x140F, True)
    padded = decode(record(21) + NATIVE + b"\0\0", link="erf")
    assert (padded.notes, padded.raw) == (("padding",), b"\0\0")
    two = b"\x83" + bytes(7) + b"\x03" + bytes(7)
    extended = decode(record(21, two) + NATIVE, link="erf")
    assert extended.layers[1] == ("erf.ext", {"raw": two}, 16)
    assert extended.trailer is not None
    assert extended.trailer.ok
    assert decode(record(2) + NATIVE, link="erf").error == ("unknown", 16, "ERF record type 2")
    cut = decode((record(21) + NATIVE)[:-2], link="erf")
    assert cut.notes == ("truncated",)
    assert cut.vcrc is None
    assert cut.trailer is not None
    assert cut.trailer.ok  # all that it covers is there
    for size in range(len(record(21, two))):
        short = record(21, two)[:size]
        assert encode(decode(short, link="erf")) == short


def test_pfc() -> None:
    lower_ = Layer("ethernet", {"dst": 0x0180C2000001, "src": 2, "type": 0x8808})
    values = {"opcode": 0x0101, "enable": 0b1001, "pause0": 0xFFFF, "pause3": 0}
    frame = encode(Packet([lower_, Layer("pfc", values)], raw=bytes(26)))
    assert frame.hex() == "0180c2000001000000000002" + "8808" + "0101" + "0009" + "ffff" + "0000" * 7 + "00" * 26
    found = decode(frame)
    assert found["pfc"]["enable"] == 9
    assert (found.notes, found.error, found.raw) == (("padding",), None, bytes(26))
    assert decode(frame[:15] + b"\2" + frame[16:]).error == ("unknown", 14, "MAC control other than PFC")
    for size in range(len(frame)):
        assert encode(decode(frame[:size])) == frame[:size]


# Building -------------------------------------------------------------------------------------------------------------


def test_pad_bytes_are_kept_and_may_be_anything() -> None:
    data = bytearray(WRITE)
    data[-7:-4] = b"\1\2\3"
    found = decode(bytes(data))
    assert found.pad == b"\1\2\3"
    assert found.trailer is not None
    assert found.trailer.ok is False  # they count
    assert encode(found) == data
    assert encode(found, fill=True) == WRITE


def test_without_a_trailer_nothing_is_appended() -> None:
    packet = decode(WRITE)
    packet.trailer = None
    assert encode(packet, fill=True)[AT:] == WRITE[AT:-4]


@pytest.mark.parametrize(
    ("packet", "said"),
    [
        (Packet([Layer("ipv4", {})], trailer=Trailer("icrc", 0)), "icrc: there is no BTH"),
        (Packet([Layer("bth", {})], trailer=Trailer("icrc", 0)), "icrc: there is no network header"),
        (Packet([Layer("lrh", {"lnh": 2}), Layer("bth", {})], bytes(9000), Trailer("icrc", 0)), "lrh.pktlen: 9024"),
        (Packet([Layer("grh", {}), Layer("bth", {})], bytes(70_000), Trailer("icrc", 0)), "grh.paylen: 70016"),
        (Packet([Layer("grh", {}), Layer("bth", {})], trailer=Trailer("icrc", 1 << 32)), "icrc: 4294967296 is no"),
        (Packet([Layer("bth", {"psn": 1 << 24})]), "bth.psn: 16777216 is not in 0 … 16777215"),
        (Packet([Layer("bth", {})], pad="x"), "pad: 'x' is not legal; legal: bytes"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_built(packet: Packet, said: str) -> None:
    for _ in range(12):
        with pytest.raises(LocalError, match=said):
            encode(packet, fill=True)


# Syndromes ------------------------------------------------------------------------------------------------------------


def test_counts_and_timers() -> None:
    """roce.md §2.1; the times are those that tshark shows."""
    assert [count_of(c) for c in range(10)] == [0, 1, 2, 3, 4, 6, 8, 12, 16, 24]
    assert (count_of(30), count_of(31)) == (32768, 49152)
    assert (rnr_wait_us(0), rnr_wait_us(1), rnr_wait_us(12), rnr_wait_us(31)) == (655_360, 10, 640, 491_520)


# Captures of adapters -------------------------------------------------------------------------------------------------

VERDICTS = {  # packets with a BTH: ICRC right, wrong, not judged since the packet is cut short
    "read2": (13, 0, 0), "write": (17, 0, 0), "send": (9, 0, 0), "nvme-discover": (61, 0, 0), "rocev1": (60, 0, 0),
    "native-erf": (43, 0, 0), "rdma-nccl2": (0, 20, 489), "dc-small": (0, 19, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", VERDICTS)
def test_captures_of_adapters(name: str) -> None:
    path = SHARED / f"{name}.pcap"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    verdicts: Counter[bool | None] = Counter()
    with open_capture(path) as reader:
        for record in reader:
            link = LINK_NAMES[record.link]
            packet = decode(record.data, link=link, length=record.length)
            assert encode(packet) == record.data
            if "bth" not in packet:
                assert packet.error is not None  # TCP, ICMP
                assert packet.error.kind == "unknown"
                continue
            verdicts[packet.trailer.ok if packet.trailer else None] += 1
            cut = packet.trailer is None
            assert packet.notes == (("truncated",) if cut else ())
            if packet["bth"]["opcode"] in RD_OPCODES:
                assert packet.error is not None
                assert "RD or vendor transport" in packet.error.reason
            else:
                assert packet.error is None
            if packet.vcrc is not None:
                assert packet.vcrc.ok
            if packet.trailer and packet.trailer.ok:
                assert encode(packet, fill=True) == record.data
    assert reader.damage == []
    assert (verdicts[True], verdicts[False], verdicts[None]) == VERDICTS[name]


LAYOUTS = """
lrh 8 vl 4 lver 4 sl 4 rsvd 2 lnh 2 dlid 16 rsvd2 5 pktlen 11 slid 16
grh 40 ipver 4 tclass 8 flowlabel 20 paylen 16 nxthdr 8 hoplmt 8 sgid 128 dgid 128
bth 12 opcode 8 se 1 m 1 padcnt 2 tver 4 p_key 16 fecn 1 becn 1 rsvd 6 destqp 24 a 1 rsvd2 7 psn 24
rdeth 4 rsvd 8 eecnxt 24
deth 8 q_key 32 rsvd 8 srcqp 24
xrceth 4 rsvd 8 xrcsrq 24
reth 16 va 64 r_key 32 dmalen 32
atomic_eth 28 va 64 r_key 32 swapdt 64 cmpdt 64
feth 4 rsvd 26 sel 2 plt 4
aeth 4 syndrome 8 msn 24
atomic_ack_eth 8 origremdt 64
imm 4 immdt 32
ieth 4 r_key 32
cnp 16 rsvd 64 rsvd2 64
"""
"""roce.md §2: form, bytes, and the fields with their bits."""


def test_layouts_are_those_of_the_page() -> None:
    found = [
        " ".join((name, str(header.size), *(f"{field.name} {field.bits}" for field in header.fields)))
        for name, header in ROCE_FORMS.items()
    ]
    assert found == LAYOUTS.strip().splitlines()
