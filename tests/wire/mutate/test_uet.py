# SPDX-License-Identifier: GPL-2.0-only
"""Mutations: each makes one thing wrong, says what, and leaves the rest as it was (interfaces.md §7)."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import paths
from tests.support.effort import examples
from tests.support.strategies import random_frame
from uetproto import Layer, Packet, Trailer, decode, encode
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.crc import crc32c
from uetproto.wire.forms import FORMS, UET_FORMS
from uetproto.wire.headers.ethernet import internet_checksum
from uetproto.wire.headers.uet_pds import NackCode, PdsType
from uetproto.wire.headers.uet_ses import Opcode, ResponseOpcode, ReturnCode
from uetproto.wire.mutate.frame import Mutation
from uetproto.wire.mutate.havoc import mutate_transport, transport_headers
from uetproto.wire.mutate.mutation import MUTATIONS, MUTATIONS_OF_HISTORY, FrameHistory
from uetproto.wire.serial import diff32

PCAPS = paths.PCAPS
NAMES = {
    "bad-crc", "reserved-bit", "reserved-type", "bad-next-hdr", "bad-version", "unknown-opcode", "unknown-code", "cut",
    "extra-bytes", "ip-length", "length-over", "length-under", "offset-overlap", "som-twice", "opcode-change",
    "key-change", "job-change", "psn-two-contents", "clear-positive", "clear-falls", "response-wrong-id",
    "default-with-error", "payload-flip-crc-fixed",
}  # fmt: skip
"""interfaces.md §7."""

ETHERNET = Layer("ethernet", {"dst": 2, "src": 1, "type": 0x0800})
IPV4 = Layer("ipv4", {"dscp": 8, "ecn": 2, "df": 1, "ttl": 64, "protocol": 17, "src": 0x0A00000B, "dst": 0x0A00010B})
IPV6_ETHERNET = Layer("ethernet", {"dst": 2, "src": 1, "type": 0x86DD})
IPV6 = Layer("ipv6", {"dscp": 8, "next_header": 253, "src": 11, "dst": 12})
UDP = Layer("udp", {"sport": 0xC000, "dport": 4793})
ENTROPY = Layer("entropy", {"entropy": 5})


def frame(*uet: Layer, payload: bytes = b"", crc: bool = True, native: bool = False) -> bytes:
    lower = (IPV6_ETHERNET, IPV6, ENTROPY) if native else (ETHERNET, IPV4, UDP)
    return encode(Packet([*lower, *uet], payload=payload, trailer=Trailer("crc32c", 0) if crc else None), fill=True)


def request(psn: int = 100, clear: int = 98, retx: int = 0) -> Layer:
    values = {"next_hdr": 3, "psn": psn, "clear_psn_offset": diff32(clear, psn), "spdcid": 7, "dpdcid": 3, "retx": retx}
    return Layer("pds.rud_req", values)


def later(psn: int, offset: int, clear: int = 98, size: int = 16, retx: int = 0) -> bytes:
    """A later packet of a WRITE of 64 bytes."""
    values = {
        "opcode": Opcode.WRITE, "som": 0, "eom": int(offset + size == 64), "message_id": 5, "job_id": 9,
        "payload_length": size, "message_offset": offset, "request_length": 64, "memory_key": 77,
    }  # fmt: skip
    return frame(request(psn, clear, retx), Layer("ses.request_std", values), payload=bytes([psn & 0xFF]) * size)


FIRST = frame(
    request(), Layer("ses.request_std.som", {"opcode": 1, "som": 1, "message_id": 5, "request_length": 64}),
    payload=bytes(16),
)  # fmt: skip
SINGLE = frame(
    request(), Layer("ses.request_std.som", {"opcode": 1, "som": 1, "eom": 1, "message_id": 5, "request_length": 16}),
    payload=bytes(range(16)),
)  # fmt: skip
NATIVE = frame(
    Layer("pds.rod_req", {"next_hdr": 1, "psn": 3, "clear_psn_offset": -1, "spdcid": 1, "dpdcid": 2}),
    Layer("ses.request_small", {"opcode": 1, "som": 1, "eom": 1, "request_length": 16}), payload=bytes(16), native=True,
)  # fmt: skip
ACK = frame(
    Layer("pds.ack", {"next_hdr": 4, "cack_psn": 100, "spdcid": 3, "dpdcid": 7}),
    Layer("ses.response", {"opcode": 0, "return_code": ReturnCode.OK, "message_id": 5, "job_id": 9}),
)  # fmt: skip
REFUSED = frame(
    Layer("pds.ack", {"next_hdr": 4, "cack_psn": 100, "spdcid": 3, "dpdcid": 7}),
    Layer("ses.response", {"opcode": 1, "return_code": ReturnCode.NO_MATCH, "message_id": 5}),
)  # fmt: skip
NACK = frame(Layer("pds.nack", {"nack_code": NackCode.ROD_OOO, "nack_psn": 100, "spdcid": 3, "dpdcid": 7}))
CP = frame(Layer("pds.cp", {"ctl_type": 4, "ar": 1, "psn": 101, "spdcid": 7, "dpdcid": 3}))
WITHOUT_CRC = frame(
    request(), Layer("ses.request_std", {"opcode": 1, "message_id": 5, "payload_length": 16}), payload=bytes(16),
    crc=False,
)  # fmt: skip
ALL = {
    "first": FIRST, "later": later(101, 16), "single": SINGLE, "native": NATIVE, "ack": ACK, "refused": REFUSED,
    "nack": NACK, "cp": CP, "without": WITHOUT_CRC,
}  # fmt: skip
"""By what they are."""

APPLIES = {  # name -> the frames to which it applies
    "bad-crc":                "first later single native ack refused nack cp",
    "reserved-bit":           "first later single native ack refused nack cp without",
    "reserved-type":          "first later single native ack refused nack cp without",
    "bad-next-hdr":           "first later single native ack refused nack without",
    "bad-version":            "first later single native ack refused without",
    "unknown-opcode":         "first later single native ack refused without",
    "unknown-code":           "ack refused nack cp",
    "cut":                    "first later single native ack refused nack cp without",
    "extra-bytes":            "later single native ack refused nack cp without",
    "ip-length":              "first later single native ack refused nack cp without",
    "length-over":            "later single native without",
    "length-under":           "later single native without",
    "opcode-change":          "first later without",
    "key-change":             "first later without",
    "job-change":             "first later without",
    "clear-positive":         "first later single native without",
    "response-wrong-id":      "ack refused",
    "default-with-error":     "ack refused",
    "payload-flip-crc-fixed": "first later single native without",
}  # fmt: skip


def mutations(name: str, data: bytes, count: int = 60) -> Iterator[Mutation]:
    for seed in range(count):
        found = MUTATIONS[name](data, random.Random(seed))
        if found is not None:
            yield found


def crc_ok(data: bytes, native: bool) -> bool:
    """Of a frame made by `frame`, whose addresses start at a known place."""
    return crc32c(data[22 if native else 26 : -4]) == int.from_bytes(data[-4:], "big")


def test_the_names_are_those_promised() -> None:
    assert {*MUTATIONS, *MUTATIONS_OF_HISTORY} == NAMES
    assert not MUTATIONS.keys() & MUTATIONS_OF_HISTORY.keys()


@pytest.mark.parametrize("name", MUTATIONS)
def test_where_it_applies(name: str) -> None:
    applies = [kind for kind, data in ALL.items() if next(mutations(name, data), None) is not None]
    assert applies == APPLIES[name].split()


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_it_says_is_what_it_did(name: str) -> None:
    """Only the field named, and the CRC and IPv4 checksum that follow from it, differ; the CRC is right."""
    for kind in APPLIES[name].split():
        data = ALL[kind]
        for found in mutations(name, data):
            assert found.frame != data
            assert found.before != found.after
            if found.form is not None:
                header = FORMS[found.form]
                assert found.frame[found.offset :] != data[found.offset :]
                before, after = decode(data), found.frame
                at = next(layer.offset for layer in before.layers if layer.form == found.form)
                changed = [n for n in range(header.size) if after[at + n] != data[at + n]]
                start = at + header.offset_of(found.field) // 8
                allowed = set(range(start, start + header[found.field].bits // 8 + 2))
                allowed |= {at + 10, at + 11} if found.form == "ipv4" else set()
                assert {at + n for n in changed} <= allowed
                assert len(after) == len(data)
            if name not in ("bad-crc", "cut", "ip-length") and kind != "without":
                assert crc_ok(found.frame, kind == "native"), (name, kind)
            if found.form == "ipv4":
                assert internet_checksum(found.frame[14:34]) == 0


def values_after(name: str, kinds: str, field: str) -> set[int]:
    return {found.after for kind in kinds.split() for found in mutations(name, ALL[kind], 300) if found.field == field}


def test_values_are_wrong_ones() -> None:
    known = {int(code) for code in PdsType}
    assert not values_after("reserved-type", "first ack", "type") & known
    assert not values_after("unknown-opcode", "first", "opcode") & {int(code) for code in Opcode}
    assert not values_after("unknown-opcode", "ack", "opcode") & {int(code) for code in ResponseOpcode}
    assert not values_after("unknown-code", "nack", "nack_code") & {int(code) for code in NackCode}
    assert not values_after("unknown-code", "ack", "return_code") & {int(code) for code in ReturnCode}
    assert values_after("bad-version", "first ack", "version") == {1, 2, 3}
    assert values_after("bad-next-hdr", "first", "next_hdr") == {0, 4, *range(7, 16)}
    assert values_after("bad-next-hdr", "ack", "next_hdr") == {1, 2, 3, *range(7, 16)}
    assert min(values_after("clear-positive", "first", "clear_psn_offset")) == 0
    assert min(values_after("length-over", "later", "payload_length")) > 16
    assert max(values_after("length-under", "single", "request_length")) < 16
    assert not values_after("response-wrong-id", "ack", "message_id") & {0, 5}
    assert ReturnCode.OK not in values_after("default-with-error", "ack", "return_code")
    assert values_after("default-with-error", "refused", "opcode") == {ResponseOpcode.DEFAULT_RESPONSE}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("cut", "later"), ("cut", "native"), ("ip-length", "later"), ("length-over", "later"), ("reserved-type", "ack")],
)
def test_the_decoder_sees_it(name: str, kind: str) -> None:
    """What contradicts itself is malformed, or trimmed, or has another payload."""
    good = decode(ALL[kind])
    for found in mutations(name, ALL[kind]):
        packet = decode(found.frame)
        assert packet.error is not None or packet.notes or packet.payload != good.payload


def test_extra_bytes_are_counted_by_all_lengths() -> None:
    for found in mutations("extra-bytes", ALL["later"]):
        packet = decode(found.frame)
        assert (packet.error, packet.notes) == (None, ())
        assert len(packet.payload) == found.after > 16
        assert packet["udp"]["length"] == len(found.frame) - 34


def test_one_seed_gives_one_mutation() -> None:
    for name, mutate in MUTATIONS.items():
        data = ALL[APPLIES[name].split()[0]]
        assert mutate(data, random.Random(5)) == mutate(data, random.Random(5))


# Several frames


def seen(*frames: bytes) -> FrameHistory:
    memory = FrameHistory()
    for data in frames:
        memory.note(data)
    return memory


def historic(name: str, data: bytes, memory: FrameHistory) -> list[Mutation]:
    found = [MUTATIONS_OF_HISTORY[name](data, random.Random(seed), memory) for seed in range(40)]
    return [mutation for mutation in found if mutation is not None]


def test_a_psn_with_two_contents() -> None:
    memory = seen(FIRST, later(101, 16))
    assert {(f.field, f.after) for f in historic("psn-two-contents", later(102, 32), memory)} == {
        ("psn", 100), ("psn", 101),
    }  # fmt: skip
    assert historic("psn-two-contents", later(101, 16, retx=1), seen(later(101, 16))) == []
    assert historic("psn-two-contents", later(102, 32), seen()) == []


def test_clear_falls_below_that_of_an_earlier_packet() -> None:
    memory = seen(later(101, 16, clear=90), later(103, 48, clear=99))
    for found in historic("clear-falls", later(104, 48, clear=99), memory):
        assert 104 + found.after < 99
        assert decode(found.frame)["pds.rud_req"]["clear_psn_offset"] == found.after
    for found in historic("clear-falls", later(102, 32, clear=95), memory):
        assert 102 + found.after < 90, "the packet with PSN 103 was sent later"
    assert historic("clear-falls", later(104, 48, retx=1), memory) == []
    assert historic("clear-falls", later(101, 16), memory) == []
    wrapped = seen(later(0xFFFFFFFF, 16, clear=0xFFFFFFFD))
    assert historic("clear-falls", later(1, 32, clear=0xFFFFFFFE), wrapped)


def test_som_twice_and_offsets_that_overlap() -> None:
    memory = seen(FIRST, later(101, 16))
    (som,) = set(historic("som-twice", later(102, 32), memory))
    assert (som.field, som.before, som.after) == ("som", 0, 1)
    assert {f.after for f in historic("offset-overlap", later(102, 32), memory)} == {0, 16}
    for name in ("som-twice", "offset-overlap"):
        assert historic(name, later(102, 32), seen()) == []
        assert historic(name, FIRST, memory) == []


def test_the_memory_is_bounded() -> None:
    memory = FrameHistory(flows=2, packets=3)
    for psn in range(20):
        memory.note(later(100 + psn, 16 * psn))
        memory.note(frame(Layer("pds.rud_req", {"next_hdr": 3, "psn": psn, "clear_psn_offset": -1, "spdcid": psn}),
                          Layer("ses.request_std", {"message_id": psn, "opcode": 1, "payload_length": 0})))  # fmt: skip
    assert len(memory.uet.requests) == len(memory.uet.parts) == 2
    assert all(len(of) <= 3 for of in memory.uet.requests.values())


def test_only_a_payload_with_a_right_crc_escapes_an_audit() -> None:
    memory = seen(FIRST)
    rules = {name: next(mutations(name, ALL[kinds.split()[0]])).rule for name, kinds in APPLIES.items()}
    rules |= {name: historic(name, later(102, 32), memory)[0].rule for name in MUTATIONS_OF_HISTORY}
    assert [name for name in rules if rules[name] is None] == ["payload-flip-crc-fixed"]


# Anything


@pytest.mark.parametrize("name", MUTATIONS)
def test_golden_captures_can_be_mutated(name: str) -> None:
    applied = 0
    for path in sorted(PCAPS.glob("*.pcapng")):
        with open_capture(path) as capture:
            for record in capture:
                found = MUTATIONS[name](record.data, random.Random(record.index))
                applied += found is not None
    assert applied


@given(rng=st.randoms(use_true_random=False))
@examples(150)
def test_any_frame_and_any_bytes(rng: random.Random) -> None:
    """Never an exception, and always another frame."""
    memory = FrameHistory()
    data = random_frame(rng)
    damaged = bytearray(data)
    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    for example in (data, bytes(damaged), data[: rng.randrange(len(data))], rng.randbytes(60)):
        memory.note(example)
        for mutate in MUTATIONS.values():
            found = mutate(example, rng)
            assert found is None or found.frame != example
        for with_history in MUTATIONS_OF_HISTORY.values():
            found = with_history(example, rng, memory)
            assert found is None or found.frame != example


# Havoc


@given(rng=st.randoms(use_true_random=False))
@examples(150)
def test_havoc_knows_the_headers(rng: random.Random) -> None:
    """The walk by the tables finds the headers that the decoder finds."""
    packet = decode(random_frame(rng))
    uet = [layer for layer in packet.layers if layer.form in UET_FORMS and layer.form != "entropy"]
    start = uet[0].offset
    data = encode(Packet([*uet], payload=packet.payload))
    expected = [(FORMS[layer.form], layer.offset - start) for layer in uet]
    assert transport_headers(data) == expected
    assert all(isinstance(mutate_transport(data, rng, data), bytes) for _ in range(20))


def test_havoc_is_seeded_and_reaches_everything() -> None:
    data = FIRST[42:]
    made = [mutate_transport(data, random.Random(seed), ACK[42:]) for seed in range(500)]
    assert made == [mutate_transport(data, random.Random(seed), ACK[42:]) for seed in range(500)]
    assert {len(m) < len(data) for m in made} == {True, False}
    assert any(len(m) > len(data) for m in made)
    assert len(set(made)) > 450
    assert {header.name for m in made for header, _ in transport_headers(m)} > {"pds.rud_req.syn", "ses.request_std"}
    assert mutate_transport(b"", random.Random(1)) != b""
