# SPDX-License-Identifier: GPL-2.0-only
"""Mutations of RoCE: each makes one thing wrong, says what, leaves the rest; zlib judges the ICRC (roce.md §4)."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.each import each
from tests.support.effort import examples
from tests.support.wire.roce_frames import GOLDEN, KINDS, fields_of, frame_of, lower, packet_of, plain_icrc
from uetproto import Layer, Packet, Trailer, decode, encode
from uetproto.wire.codec import codec_of
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.ethernet import internet_checksum
from uetproto.wire.headers.roce import BTH, GRH, LRH, SEQUENCES, BthOpcode
from uetproto.wire.icrc import vcrc
from uetproto.wire.mutate.frame import Mutation
from uetproto.wire.mutate.havoc import transport_headers
from uetproto.wire.mutate.mutation import MUTATIONS, MUTATIONS_OF_HISTORY, FrameHistory

NATIVE = ("local", "global")
BTH_AT = {"ipv4": 42, "ipv6": 62, "v1": 54, "local": 8, "global": 48}
READY = {"tver": 0, "rsvd": 0, "rsvd2": 0, "psn": 100, "p_key": 0xFFFF}
"""Of a BTH, so that nothing is wrong yet."""
HEADERS = {header.name for row in SEQUENCES.values() for header in row} | {"lrh", "grh", "bth"}


def link_of(kind: str) -> str:
    return "infiniband" if kind in NATIVE else "ethernet"


def made(name: str, size: int = 0, kind: str = "ipv4", dmalen: int = 0, **bth: int) -> bytes:
    """A frame of the opcode called `name` with nothing wrong; what is neither reserved nor a code is drawn."""
    rng = random.Random(name)
    opcode = int(BthOpcode[name])
    steady = {"lrh": {"rsvd": 0, "rsvd2": 0}, "bth": {"opcode": opcode, **READY, **bth}, "aeth": {"syndrome": 0x1F},
              "reth": {"dmalen": dmalen}}  # fmt: skip
    layers = lower(rng, kind)
    for header in (BTH, *SEQUENCES[opcode]):
        layers.append(Layer(header.name, fields_of(header, rng, rsvd=0, rsvd2=0) | steady.get(header.name, {})))
    layers = [Layer(layer.form, {**layer.values, **steady.get(layer.form, {})}) for layer in layers]
    return whole(layers, rng.randbytes(size), kind)


def whole(layers: list[Layer], payload: bytes, kind: str) -> bytes:
    link_crc = Trailer("vcrc", 0) if kind in NATIVE else None
    return encode(Packet(layers, payload, Trailer("icrc", 0), vcrc=link_crc), fill=True)


ALL = {
    "send-only":   ("RC_SEND_ONLY", 21, 0),
    "send-first":  ("RC_SEND_FIRST", 256, 0),
    "send-middle": ("RC_SEND_MIDDLE", 256, 0),
    "send-last":   ("UC_SEND_LAST", 7, 0),
    "write-first": ("RC_RDMA_WRITE_FIRST", 256, 1000),
    "write-only":  ("RC_RDMA_WRITE_ONLY", 5, 5),
    "write-bad":   ("RC_RDMA_WRITE_ONLY", 5, 6),
    "write-imm":   ("UC_RDMA_WRITE_LAST_WITH_IMMEDIATE", 8, 0),
    "read":        ("RC_RDMA_READ_REQUEST", 0, 5000),
    "response":    ("RC_RDMA_READ_RESPONSE_LAST", 9, 0),
    "ack":         ("RC_ACKNOWLEDGE", 0, 0),
    "cas":         ("RC_COMPARE_SWAP", 0, 0),
    "invalidate":  ("RC_SEND_ONLY_WITH_INVALIDATE", 3, 0),
    "flush":       ("RC_FLUSH", 0, 64),
    "atomic":      ("RC_ATOMIC_WRITE", 8, 8),
    "ud":          ("UD_SEND_ONLY_WITH_IMMEDIATE", 4, 0),
    "xrc":         ("XRC_SEND_MIDDLE", 512, 0),
    "cnp":         ("CNP", 0, 0),
    "cnp-native":  ("CNP_NATIVE", 0, 0),
}  # fmt: skip
"""Opcode, payload bytes, dmalen."""

EVERY = " ".join(ALL)
LOADED = " ".join(name for name, row in ALL.items() if row[1])
APPLIES = {  # name -> the packets to which it applies, whatever carries them
    "bad-crc": EVERY,
    "reserved-bit": EVERY,
    "bad-version": EVERY,
    "unknown-opcode": EVERY,
    "unknown-code": "response ack",
    "cut": EVERY,
    "extra-bytes": "send-first send-middle write-first write-only read ack cas flush atomic xrc cnp cnp-native",
    "ip-length": EVERY,
    "length-over": "write-first write-only read atomic",
    "length-under": "write-first write-only read atomic",
    "opcode-change": "send-middle send-last write-imm xrc",
    "key-change": EVERY,
    "response-wrong-id": "response ack",
    "payload-flip-crc-fixed": LOADED,
}


def frame(packet: str, kind: str = "ipv4") -> bytes:
    name, size, dmalen = ALL[packet]
    return made(name, size, kind, dmalen)


def mutations(name: str, data: bytes, kind: str = "ipv4", count: int = 40) -> Iterator[Mutation]:
    for seed in range(count):
        found = MUTATIONS[name](data, random.Random(seed), link=link_of(kind))
        if found is not None:
            yield found


def crc_of(data: bytes, kind: str) -> int:
    end = len(data) - (2 if kind in NATIVE else 0)
    return int.from_bytes(data[end - 4 : end], "little")


def crc_end(data: bytes, kind: str) -> int:
    return len(data) - (2 if kind in NATIVE else 0)


def test_the_frames_are_right() -> None:
    """What the tests begin with: nothing wrong, ICRC as roce.md §4 says."""
    for kind in KINDS:
        for packet in ALL:
            data = frame(packet, kind)
            found = decode(data, link=link_of(kind))
            assert (found.error, found.notes) == (None, ())
            assert crc_of(data, kind) == plain_icrc(data, kind)


@each("kind", KINDS)
@each("name", MUTATIONS)
def test_where_it_applies(name: str, kind: str) -> None:
    applies = [packet for packet in ALL if next(mutations(name, frame(packet, kind), kind), None) is not None]
    assert applies == APPLIES.get(name, "").split()


@each("kind", KINDS)
@each("name", [name for name in APPLIES if name not in ("bad-crc", "cut", "extra-bytes")])
def test_what_it_says_is_what_it_did(name: str, kind: str) -> None:
    """The value is there, nothing else differs but what follows from it, and the ICRC is right where it was."""
    for packet in APPLIES[name].split():
        data = frame(packet, kind)
        before = decode(data, link=link_of(kind))
        for found in mutations(name, data, kind):
            after = bytearray(found.frame)
            assert len(after) == len(data)
            assert found.before != found.after
            assert crc_of(found.frame, kind) == plain_icrc(found.frame, kind), (name, packet)
            if kind in NATIVE:
                assert vcrc(found.frame[:-2]) == int.from_bytes(found.frame[-2:], "little")
            if found.form is None:
                assert (name, found.field) == ("payload-flip-crc-fixed", "payload")
                assert before.payload_offset <= found.offset < before.payload_offset + len(before.payload)
                assert (found.before, found.after) == (data[found.offset], after[found.offset])
                assert (found.before ^ found.after).bit_count() == 1
                after[found.offset] = found.before
            else:
                header = FORMS[found.form]
                at = next(layer.offset for layer in before.layers if layer.form == found.form)
                values = codec_of(header).decode(data, at)
                assert found.offset == at + header.offset_of(found.field) // 8
                assert values[found.field] == found.before
                if found.form == "ipv4":
                    assert internet_checksum(found.frame[14:34]) == 0
                    after[24:26] = data[24:26]
                assert codec_of(header).decode(after, at) == {**values, found.field: found.after}
                after[at : at + header.size] = data[at : at + header.size]
            end = crc_end(data, kind)
            assert after[: end - 4] == data[: end - 4]


@each("kind", KINDS)
@each("packet", ALL)
def test_a_wrong_crc_is_all_that_is_wrong(packet: str, kind: str) -> None:
    data = frame(packet, kind)
    end = crc_end(data, kind)
    bits = set()
    for found in mutations("bad-crc", data, kind):
        assert (found.form, found.field, found.offset, found.rule) == (None, "icrc", end - 4, "ROCE-ICRC")
        assert (found.before, found.after) == (crc_of(data, kind), crc_of(found.frame, kind))
        assert found.frame[: end - 4] == data[: end - 4]
        bits.add(found.before ^ found.after)
        after = decode(found.frame, link=link_of(kind))
        assert after.trailer == ("icrc", found.after, False)
        assert after.vcrc is None or after.vcrc.ok, "whoever sent it last has sent it so"
    assert len(bits) > 10
    assert all(bit.bit_count() == 1 for bit in bits)


@each("kind", KINDS)
@each("packet", ALL)
def test_a_cut_takes_the_end_away(packet: str, kind: str) -> None:
    """From somewhere behind the start of the BTH; the ICRC is never whole, so it is not judged (roce.md §4)."""
    data = frame(packet, kind)
    for found in mutations("cut", data, kind):
        assert (found.form, found.field, found.rule) == (None, "frame", "ROCE-LENGTH")
        assert (found.before, found.after) == (len(data), len(found.frame))
        assert found.offset == found.after
        assert BTH_AT[kind] <= found.after < crc_end(data, kind)
        assert data.startswith(found.frame)
        after = decode(found.frame, link=link_of(kind))
        assert (after.trailer, after.notes, after.error) == (None, ("truncated",), None)


@each("kind", KINDS)
@each("packet", APPLIES["extra-bytes"].split())
def test_extra_bytes_are_counted_by_all_lengths(packet: str, kind: str) -> None:
    data = frame(packet, kind)
    before = decode(data, link=link_of(kind))
    for found in mutations("extra-bytes", data, kind):
        after = decode(found.frame, link=link_of(kind))
        assert (after.error, after.notes, found.rule) == (None, (), "ROCE-LENGTH")
        assert (found.form, found.field, found.before, found.after) == (
            None, "payload", len(before.payload), len(after.payload),
        )  # fmt: skip
        assert found.offset == before.payload_offset + found.before
        assert after.payload[: found.before] == before.payload
        assert len(after.payload) > len(before.payload)
        assert after.pad == bytes(-len(after.payload) % 4)
        assert crc_of(found.frame, kind) == plain_icrc(found.frame, kind)
        differs = [
            (layer.form, name)
            for layer, other in zip(before.layers, after.layers, strict=True)
            for name in layer.values
            if layer.values[name] != other.values[name]
        ]
        lengths = {"ipv4": ("total_length", "checksum"), "ipv6": ("payload_length",), "udp": ("length",),
                   "grh": ("paylen",), "lrh": ("pktlen",), "bth": ("padcnt",)}  # fmt: skip
        assert all(name in lengths.get(form, ()) for form, name in differs)


def values_after(name: str, packets: str, field: str, kind: str = "ipv4") -> set[int]:
    frames = [frame(packet, kind) for packet in packets.split()]
    return {found.after for data in frames for found in mutations(name, data, kind, 400) if found.field == field}


def test_values_are_wrong_ones() -> None:
    assert values_after("bad-version", "send-only", "tver") == set(range(1, 16))
    defined = set(SEQUENCES) | set(range(0x40, 0x60))
    assert values_after("unknown-opcode", "send-only cas", "opcode") <= set(range(256)) - defined
    assert values_after("unknown-code", "ack response", "syndrome") == {*range(0x40, 0x60), *range(0x65, 0x80)}
    assert min(values_after("length-over", "write-only", "dmalen")) == 6
    assert values_after("length-under", "write-only", "dmalen") == set(range(5))
    assert min(values_after("length-over", "write-first", "dmalen")) > 1000
    assert values_after("opcode-change", "send-middle", "opcode") == {BthOpcode["RC_RDMA_WRITE_MIDDLE"]}
    assert values_after("opcode-change", "write-imm", "opcode") == {BthOpcode["UC_SEND_LAST_WITH_IMMEDIATE"]}
    assert values_after("opcode-change", "xrc", "opcode") == {BthOpcode["XRC_RDMA_WRITE_MIDDLE"]}
    assert values_after("key-change", "ack", "p_key") == {0xFFFF ^ 1 << bit for bit in range(15)}, "15 bits must match"
    assert all(1 << 22 <= psn - 100 < 1 << 23 for psn in values_after("response-wrong-id", "ack", "psn"))


def test_a_psn_wraps() -> None:
    data = made("RC_ACKNOWLEDGE", psn=0xFFFFFF)
    assert all(found.after < 1 << 23 for found in mutations("response-wrong-id", data))


def test_a_key_is_any_that_the_packet_has() -> None:
    assert {(f.form, f.rule) for f in mutations("key-change", frame("read"))} == {
        ("bth", "ROCE-KEY-CHANGE"), ("reth", None),
    }  # fmt: skip
    assert {f.form for f in mutations("key-change", frame("cas"))} == {"bth", "atomic_eth"}
    assert {f.form for f in mutations("key-change", frame("invalidate"))} == {"bth", "ieth"}
    assert {f.form for f in mutations("key-change", frame("send-only"))} == {"bth"}


def test_reserved_bits_are_set() -> None:
    """All of them, the top one of a syndrome too; where one was set, the frame was wrong before."""
    places: dict[tuple[str | None, str], int] = {}
    for kind, packet in (("ipv4", "ack"), ("ipv4", "ud"), ("ipv4", "flush"), ("ipv4", "xrc"), ("local", "cnp")):
        for found in mutations("reserved-bit", frame(packet, kind), kind, 4000):
            assert found.before & found.after == found.before
            key = found.form, found.field
            places[key] = places.get(key, 0) | found.before ^ found.after
    bits = {key: mask.bit_count() for key, mask in places.items()}
    assert bits == {
        ("bth", "rsvd"): 6, ("bth", "rsvd2"): 7, ("aeth", "syndrome"): 1, ("deth", "rsvd"): 8, ("xrceth", "rsvd"): 8,
        ("feth", "rsvd"): 26, ("cnp", "rsvd"): 64, ("cnp", "rsvd2"): 64, ("lrh", "rsvd"): 2, ("lrh", "rsvd2"): 5,
    }  # fmt: skip
    assert places["aeth", "syndrome"] == 0x80
    full = made("RC_SEND_ONLY", rsvd=0x3F, rsvd2=0x7F)
    assert not list(mutations("reserved-bit", full))


@pytest.mark.parametrize(
    ("kind", "form", "field", "rule"),
    [
        ("ipv4", "ipv4", "total_length", "ROCE-LENGTH"),
        ("ipv6", "ipv6", "payload_length", "ROCE-LENGTH"),
        ("v1", "grh", "paylen", None),
        ("local", "lrh", "pktlen", None),
        ("global", "grh", "paylen", "ROCE-LENGTH"),
    ],
)
def test_a_wrong_length_below(kind: str, form: str, field: str, rule: str | None) -> None:
    """It contradicts UDP, or the LRH; one that nothing contradicts leaves no ICRC that is right."""
    for found in mutations("ip-length", frame("write-only", kind), kind):
        assert (found.form, found.field, found.rule) == (form, field, rule)
        after = decode(found.frame, link=link_of(kind))
        if rule is not None:
            assert after.error is not None
            assert after.error.kind == "malformed"
        assert after.trailer is None or not after.trailer.ok or after.error


def test_unknown_opcodes_stay_raw() -> None:
    for found in mutations("unknown-opcode", frame("write-only")):
        packet = decode(found.frame)
        assert packet.error is not None
        assert packet.error.reason == f"opcode 0x{found.after:02x} is unknown"
        assert packet.trailer is not None
        assert packet.trailer.ok


def test_rules() -> None:
    """Named as roce.md has them, or there is none: no r_key and no payload can be found wrong."""
    rules = {
        name: {found.rule for packet in kinds.split() for found in mutations(name, frame(packet))}
        for name, kinds in APPLIES.items()
    }
    assert rules == {
        "bad-crc": {"ROCE-ICRC"},
        "reserved-bit": {"ROCE-RESERVED-BIT"},
        "bad-version": {"ROCE-VERSION"},
        "unknown-opcode": {"ROCE-UNKNOWN-OPCODE"},
        "unknown-code": {"ROCE-SYNDROME"},
        "cut": {"ROCE-LENGTH"},
        "extra-bytes": {"ROCE-LENGTH"},
        "ip-length": {"ROCE-LENGTH"},
        "length-over": {"ROCE-LENGTH"},
        "length-under": {"ROCE-LENGTH"},
        "opcode-change": {"ROCE-OPCODE-ORDER"},
        "key-change": {"ROCE-KEY-CHANGE", None},
        "response-wrong-id": {"ROCE-PSN-NOT-SENT"},
        "payload-flip-crc-fixed": {None},
    }


def test_a_wrong_icrc_stays_wrong() -> None:
    """Only what was right is made right again."""
    damaged = bytearray(frame("write-only"))
    damaged[-1] ^= 0xFF
    for name in ("bad-version", "length-over", "payload-flip-crc-fixed"):
        for found in mutations(name, bytes(damaged)):
            assert found.frame[-4:] == damaged[-4:]
    assert not list(mutations("extra-bytes", bytes(damaged)))


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_golden_frames_can_be_mutated(golden: Any) -> None:
    """Ethernet's padding stays behind the packet."""
    for name, mutate in MUTATIONS.items():
        found = mutate(golden.frame, random.Random(1), link=golden.link)
        assert (found is None) <= (name not in ("bad-crc", "bad-version", "cut", "ip-length", "key-change"))
    if golden.link == "ethernet":
        padded = mutate_first("bad-version", golden.frame + b"\xaa" * 3)
        assert padded.frame[:-3] == mutate_first("bad-version", golden.frame).frame
        assert padded.frame.endswith(b"\xaa" * 3)


def mutate_first(name: str, data: bytes) -> Mutation:
    return next(mutations(name, data))


def test_another_port() -> None:
    data = bytearray(frame("send-only"))
    data[36:38] = (5000).to_bytes(2, "big")
    assert MUTATIONS["cut"](bytes(data), random.Random(1)) is None
    assert MUTATIONS["cut"](bytes(data), random.Random(1), roce_port=5000) is not None


def test_rd_and_pause_frames_are_left_alone() -> None:
    pause = bytes.fromhex("0180c200000102000000000188080101000800000000000000000000ffff0000").ljust(60, b"\0")
    for mutate in MUTATIONS.values():
        assert mutate(frame_of(0x44, random.Random(1)), random.Random(1)) is None
        assert mutate(pause, random.Random(1)) is None


# Several frames -------------------------------------------------------------------------------------------------------


def sent(psn: int, payload: bytes, opcode: str = "RC_SEND_ONLY", kind: str = "ipv4", **bth: int) -> bytes:
    rng = random.Random(kind)
    values = {"opcode": int(BthOpcode[opcode]), "destqp": 0x12, "psn": psn, **bth}
    layers = [*lower(rng, kind), Layer("bth", values), *(Layer(h.name, {}) for h in SEQUENCES[BthOpcode[opcode]])]
    return whole(layers, payload, kind)


def contradicted(data: bytes, *before: bytes, kind: str = "ipv4") -> set[int]:
    memory, link = FrameHistory(), link_of(kind)
    for one in before:
        memory.note(one, link=link)
    found = [MUTATIONS_OF_HISTORY["psn-two-contents"](data, random.Random(s), memory, link=link) for s in range(30)]
    for one_found in filter(None, found):
        assert (one_found.form, one_found.field, one_found.rule) == ("bth", "psn", "ROCE-PSN-TWO-CONTENTS")
        assert crc_of(one_found.frame, kind) == plain_icrc(one_found.frame, kind)
    return {one.after for one in found if one is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_a_psn_with_two_contents(kind: str) -> None:
    """That of an earlier request of the same queue pair which carried something else (roce.md §9)."""
    first, second = sent(5, b"abc", kind=kind), sent(6, b"def", kind=kind)
    assert contradicted(sent(7, b"xyz", kind=kind), first, second, kind=kind) == {5, 6}
    assert contradicted(sent(7, b"abc", kind=kind), first, second, kind=kind) == {6}, "5 with these bytes is a repeat"
    assert contradicted(sent(7, b"xyz", kind=kind), sent(5, b"abc", kind=kind, destqp=9), kind=kind) == set()
    assert contradicted(sent(7, b"xyz", kind=kind), kind=kind) == set()


def test_marks_and_requests_for_an_ack_are_no_contents() -> None:
    assert contradicted(sent(7, b"abc", a=1, fecn=1), sent(5, b"abc")) == set()
    assert contradicted(sent(7, b"abc", "RC_SEND_LAST"), sent(5, b"abc")) == {5}


@pytest.mark.parametrize("opcode", ["UC_SEND_ONLY", "UD_SEND_ONLY", "RC_RDMA_READ_RESPONSE_ONLY", "CNP"])
def test_only_rc_requests_come_again(opcode: str) -> None:
    payload = b"" if opcode == "CNP" else b"abc"
    assert contradicted(sent(7, payload, opcode), sent(5, b"uvw"), sent(6, payload, opcode, a=1)) == set()


@pytest.mark.parametrize("name", ["offset-overlap", "som-twice", "clear-falls"])
def test_histories_that_roce_has_not(name: str) -> None:
    memory = FrameHistory()
    memory.note(sent(5, b"abc"))
    assert MUTATIONS_OF_HISTORY[name](sent(6, b"def"), random.Random(1), memory) is None


def test_the_memory_is_bounded() -> None:
    memory = FrameHistory(flows=2, packets=3)
    for psn in range(20):
        memory.note(sent(psn, bytes([psn])))
        memory.note(sent(psn, b"abc", destqp=psn))
    assert len(memory.roce.requests) == 2
    assert all(len(of) <= 3 for of in memory.roce.requests.values())


# Anything -------------------------------------------------------------------------------------------------------------


@given(rng=st.randoms(use_true_random=False))
@examples(150)
def test_any_frame_and_any_bytes(rng: random.Random) -> None:
    """Never an exception, and always another frame."""
    kind = rng.choice(KINDS)
    data = encode(packet_of(rng.choice(list(SEQUENCES)), rng, kind, rng.choice((0, 1, 8, 256, 4097))), fill=True)
    damaged = bytearray(data)
    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    memory = FrameHistory()
    for example in (data, bytes(damaged), data[: rng.randrange(len(data))], rng.randbytes(60)):
        for link in ("ethernet", "infiniband", "raw", "erf"):
            memory.note(example, link=link)
            for mutate in MUTATIONS.values():
                found = mutate(example, rng, link=link)
                assert found is None or found.frame != example
            for with_history in MUTATIONS_OF_HISTORY.values():
                found = with_history(example, rng, memory, link=link)
                assert found is None or found.frame != example


@pytest.mark.parametrize("kind", KINDS)
def test_a_packet_as_long_as_can_be_said(kind: str) -> None:
    """Where no length can count more bytes, none are added."""
    most = {"ipv4": 0xFFFF - 20 - 8 - 12 - 16 - 4, "ipv6": 0xFFFF - 8 - 12 - 16 - 4, "v1": 0xFFFF - 12 - 16 - 4,
            "local": 4 * 0x7FF - 8 - 12 - 16 - 4, "global": 4 * 0x7FF - 48 - 12 - 16 - 4}  # fmt: skip
    size = most[kind] & ~3
    data = made("RC_RDMA_WRITE_ONLY", size, kind, size)
    assert decode(data, link=link_of(kind)).error is None
    assert all(found.after - found.before < 4 for found in mutations("extra-bytes", data, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_havoc_knows_the_headers(kind: str) -> None:
    """The walk by the tables finds the headers that the decoder finds."""
    first = {"v1": GRH, "local": LRH, "global": LRH}.get(kind, BTH)
    for opcode in SEQUENCES:
        data = frame_of(opcode, random.Random(opcode), kind)
        layers = [layer for layer in decode(data, link=link_of(kind), rd="headers").layers if layer.form in HEADERS]
        start = layers[0].offset
        found = transport_headers(data[start:], (first,))
        assert [(header.name, at + start) for header, at in found] == [(layer.form, layer.offset) for layer in layers]
