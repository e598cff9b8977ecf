# SPDX-License-Identifier: GPL-2.0-only
"""Frames as stacks of layers: lossless on any bytes, and every kind of damage told apart with its place."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.each import each
from tests.support.wire.stack import (
    CRC,
    ENTROPY,
    ETHERNET,
    IPV4,
    PAYLOAD,
    REQUEST,
    STACKS,
    UDP,
    V6_ETHERNET,
    WRITE,
    frame,
    tag,
)
from tests.support.wire.vectors import VECTORS, frame_around, uet_before
from uetproto import Layer, LocalError, Packet, Trailer, decode, encode
from uetproto.wire.codec import codec_of
from uetproto.wire.crc import crc32c, trailer_crc
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.ethernet import internet_checksum
from uetproto.wire.implied import implied_payload
from uetproto.wire.stack import LINKS


def write(**changes: Any) -> Layer:
    return Layer("ses.request_std.som", {**WRITE.values, **changes})


GOOD = frame(ETHERNET, IPV4, UDP, REQUEST, WRITE)


def forms(packet: Packet) -> list[str]:
    return [layer.form for layer in packet.layers]


def test_a_good_frame() -> None:
    packet = decode(GOOD)
    assert forms(packet) == ["ethernet", "ipv4", "udp", "pds.rud_req", "ses.request_std.som"]
    assert (packet.error, packet.notes, packet.payload, packet.raw) == (None, (), PAYLOAD, b"")
    assert packet.trailer is not None
    assert packet.trailer.ok is True
    assert packet.payload_offset == 98
    assert packet["ipv4"]["total_length"] == len(GOOD) - 14
    assert packet["ses.request_std"]["message_id"] == 1
    assert "pds.rud_req" in packet
    assert "pds.ack" not in packet
    with pytest.raises(KeyError):
        packet["pds.ack"]
    assert internet_checksum(GOOD[14:34]) == 0
    assert encode(packet) == GOOD
    assert encode(packet, fill=True) == GOOD


def test_repr_is_an_outline() -> None:
    text = repr(decode(GOOD[:-1] + b"x" + b"\0"))
    assert text.startswith("<Packet ethernet/ipv4/udp/pds.rud_req/ses.request_std.som; payload 16 bytes; Trailer(")
    assert "notes padding; raw 1 bytes>" in text
    assert repr(Packet()) == "<Packet no layers; payload 0 bytes>"
    assert "Fault(kind='malformed', offset=0" in repr(decode(b"x"))


# Identity ------------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=200), st.sampled_from(LINKS), st.sampled_from(["auto", "on", "off"]))
def test_identity_on_random_bytes(data: bytes, link: str, crc: str) -> None:
    assert encode(decode(data, link=link, crc=crc)) == data


@given(st.data())
def test_identity_on_mutated_frames(data: st.DataObject) -> None:
    vector = data.draw(st.sampled_from(VECTORS))
    uet = uet_before(vector["form"]) + bytes.fromhex(vector["hex"]) + data.draw(st.binary(max_size=40))
    good = bytearray(frame_around(uet, native=vector["form"] == "entropy" or data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(0, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(good[: data.draw(st.integers(0, len(good)))])
    length = data.draw(st.none() | st.integers(0, 300))
    assert encode(decode(cut, length=length)) == cut


def test_identity_in_bulk() -> None:
    """A plain seeded loop sees far more cases than a property test in the same time."""
    rng = random.Random(4793)
    for _ in range(20_000):
        mutated = bytearray(GOOD[: rng.randrange(len(GOOD) + 1)])
        for _ in range(rng.randrange(4)):
            if mutated:
                mutated[rng.randrange(len(mutated))] = rng.getrandbits(8)
        data = bytes(mutated)
        assert encode(decode(data)) == data


def test_any_buffer_is_taken() -> None:
    assert decode(bytearray(GOOD)) == decode(memoryview(GOOD)) == decode(GOOD)


# Encapsulations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STACKS)
def test_encapsulations(name: str) -> None:
    data = frame(*STACKS[name], REQUEST, WRITE)
    packet = decode(data)
    assert forms(packet) == [layer.form for layer in STACKS[name]] + ["pds.rud_req", "ses.request_std.som"]
    assert (packet.error, packet.payload) == (None, PAYLOAD)
    assert packet.trailer is not None
    assert packet.trailer.ok is True
    assert encode(packet) == encode(packet, fill=True) == data
    raw_link = data[
        decode(data).layers[next(i for i, s in enumerate(STACKS[name]) if s.form.startswith("ip"))].offset :
    ]
    assert forms(decode(raw_link, link="raw"))[-2:] == ["pds.rud_req", "ses.request_std.som"]


@pytest.mark.parametrize(("link", "size"), [("sll", 16), ("sll2", 20)])
def test_cooked_links(link: str, size: int) -> None:
    data = frame(Layer(link, {"type": 0x0800}), IPV4, UDP, REQUEST, WRITE)
    packet = decode(data, link=link)
    assert forms(packet)[0] == link
    assert packet.layers[1].offset == size
    assert packet.error is None


def test_ports_and_protocol_are_settings() -> None:
    other = frame(ETHERNET, IPV4, Layer("udp", {"dport": 4000}), REQUEST, WRITE)
    assert decode(other).error == ("unknown", 42, "UDP port 4000: not UET")
    assert decode(other, udp_port=4000).error is None
    native = frame(ETHERNET, Layer("ipv4", {**IPV4.values, "protocol": 254}), ENTROPY, REQUEST, WRITE)
    assert decode(native).error == ("unknown", 34, "IP protocol 254")
    assert decode(native, ip_protocol=254).error is None
    roce = frame(ETHERNET, IPV4, Layer("udp", {"dport": 4000}), Layer("bth", {"opcode": 4}))
    assert decode(roce, roce_port=4000).layers[-1].form == "bth"


@pytest.mark.parametrize(
    ("argument", "legal"),
    [
        ({"link": "token ring"}, "ethernet"),
        ({"crc": "maybe"}, "auto"),
        ({"udp_port": "4793"}, "udp_port: '4793' is not legal; legal: 0 … 65535"),
        ({"roce_port": 65_536}, "65535"),
        ({"ip_protocol": -1}, "255"),
    ],
)
def test_settings_are_checked(argument: dict[str, Any], legal: str) -> None:
    with pytest.raises(LocalError, match=legal):
        decode(GOOD, **argument)


def test_trimmed_classes_may_be_any_set() -> None:
    assert decode(GOOD, trimmed_dscp={8}) == decode(GOOD, trimmed_dscp=frozenset({8}))


@pytest.mark.parametrize("frame", ["text", None, 10**12, [1, 2]])
def test_a_frame_is_bytes(frame: Any) -> None:
    with pytest.raises(LocalError, match=r"frame: .* is not legal; legal: bytes, or "):
        decode(frame)


# CRC -----------------------------------------------------------------------------------------------------------------


def test_crc_known_value_and_residue() -> None:
    """tss.md §12: the check value of CRC-32/ISCSI, and the residue with the CRC bytes reversed."""
    assert crc32c(b"123456789") == 0xE3069283
    covered = GOOD[26:-4]
    crc = crc32c(covered)
    assert GOOD[-4:] == crc.to_bytes(4, "big")
    assert crc32c(covered + crc.to_bytes(4, "little")) == 0x48674BC7


def test_the_udp_checksum_counts_as_zero() -> None:
    data = bytearray(GOOD)
    data[40:42] = b"\xab\xcd"
    packet = decode(bytes(data))
    assert packet.trailer is not None
    assert packet.trailer.ok is True
    assert trailer_crc(bytes(data), 26, len(data) - 4, 40) == packet.trailer.value


@pytest.mark.parametrize(
    ("crc", "good", "bad", "none"),
    [("auto", True, False, None), ("on", True, False, False), ("off", None, None, None)],
)
def test_crc_setting(crc: str, good: bool | None, bad: bool | None, none: bool | None) -> None:
    """Auto: there if it matches, or if the headers account for all but exactly four bytes."""

    def ok(data: bytes) -> bool | None:
        trailer = decode(data, crc=crc).trailer
        return trailer and trailer.ok

    assert ok(GOOD) is good
    assert ok(GOOD[:-1] + bytes([GOOD[-1] ^ 1])) is bad
    assert ok(frame(ETHERNET, IPV4, UDP, REQUEST, WRITE, trailer=None)) is none


def test_crc_on_needs_four_bytes() -> None:
    data = frame(ETHERNET, IPV4, UDP, Layer("pds.nack", {}), payload=b"abc", trailer=None)
    assert decode(data, crc="on").error == ("malformed", len(data) - 3, "the CRC needs 4 bytes, 3 are there")


# Truncated, trimmed, malformed, unknown ------------------------------------------------------------------------------


@each("cut", range(len(GOOD)))
def test_truncated_is_never_malformed(cut: int) -> None:
    packet = decode(GOOD[:cut], length=len(GOOD))
    assert packet.error is None
    assert packet.notes == ("truncated",)
    assert packet.trailer is None


@each("cut", range(42, len(GOOD)))
def test_trimmed_by_udp_length(cut: int) -> None:
    """A switch that trims sets the IP length; the UDP length keeps the original (cms.md §7)."""
    data = bytearray(GOOD[:cut])
    data[16:18] = (cut - 14).to_bytes(2, "big")
    packet = decode(bytes(data))
    assert packet.error is None
    assert packet.notes == ("trimmed",)
    assert packet.trailer is None
    assert encode(packet) == bytes(data)


@pytest.mark.parametrize("dscp", [16, 18])
def test_trimmed_by_dscp(dscp: int) -> None:
    native = (ETHERNET, Layer("ipv4", {**IPV4.values, "dscp": dscp, "protocol": 253}), ENTROPY)
    for cut in range(56):
        uet = b"".join(encode(Packet([layer])) for layer in (REQUEST, WRITE))[:cut]
        packet = decode(frame(*native, payload=uet, trailer=None))
        assert packet.error is None
        assert packet.notes == ("trimmed",)
        assert decode(frame(*native, payload=uet, trailer=None), trimmed_dscp=frozenset()).notes == ()


@each("cut", range(14, len(GOOD)))
def test_cut_without_a_mark_is_malformed(cut: int) -> None:
    packet = decode(GOOD[:cut])
    assert packet.error is not None
    assert packet.error.kind == "malformed"
    assert packet.notes == ()


def test_payload_shorter_than_implied() -> None:
    packet = decode(frame(ETHERNET, IPV4, UDP, REQUEST, write(request_length=17)))
    assert packet.error == ("malformed", 98, "payload has 16 bytes, the headers imply 17")
    assert packet.payload == PAYLOAD


@pytest.mark.parametrize(
    ("layers", "implied"),
    [
        ((write(),), 16),
        ((write(eom=0),), None),  # first packet of a longer message: the MTU is not in the packet
        ((Layer("ses.request_std", {"opcode": 1, "payload_length": 9}),), 9),
        ((Layer("ses.request_std", {"opcode": 2, "payload_length": 9}),), 0),  # READ
        ((write(opcode=2),), 0),
        ((write(opcode=0x0F),), None),
        ((Layer("ses.rtr_std", {"som": 1, "eom": 1, "request_length": 5}),), 0),
        ((Layer("ses.send_medium", {"opcode": 5, "som": 1, "eom": 1, "request_length": 5}),), 5),
        ((write(opcode=3), Layer("ses.ext.atomic", {"atomic_opcode": 2})), 16),
        ((write(opcode=4), Layer("ses.ext.atomic", {"atomic_opcode": 0x0B})), 0),  # AMO READ
        ((write(opcode=4), Layer("ses.ext.atomic_cas", {})), 0),
        ((write(opcode=0x11), Layer("ses.ext.sync", {}), Layer("ses.ext.atomic", {"atomic_opcode": 2})), 16),
        ((Layer("ses.send_std.som", {"opcode": 6, "eom": 1, "request_length": 99}),
          Layer("ses.ext.rendezvous", {"eager_length": 7})), 7),
        ((Layer("ses.response", {}),), 0),
        ((Layer("ses.response_data", {"payload_length": 8}),), 8),
        ((Layer("ses.response_data", {"opcode": 2, "payload_length": 8}),), 8),  # RESPONSE_W_DATA, not READ
        ((Layer("pds.nack", {}),), 0),
        ((Layer("pds.cp", {}),), 0),
        ((Layer("pds.ack", {}),), 0),
        ((Layer("pds.rud_req", {}),), None),
        ((Layer("pds.rudi_req", {}),), None),
        ((Layer("pds.uud_req", {}),), None),
        ((Layer("pds.rudi_resp", {}),), 0),
    ],
)  # fmt: skip
def test_implied_payload(layers: tuple[Layer, ...], implied: int | None) -> None:
    filled = [Layer(layer.form, decode_alone(layer), 0) for layer in layers]
    assert implied_payload(filled) == implied


def decode_alone(layer: Layer) -> Any:
    codec = codec_of(FORMS[layer.form])
    return codec.decode(codec.encode(layer.values))


def damaged(offset: int, value: bytes) -> bytes:
    return GOOD[:offset] + value + GOOD[offset + len(value) :]


@pytest.mark.parametrize(
    ("data", "kind", "offset", "reason"),
    [
        (GOOD[:9], "malformed", 0, "ethernet needs 14 bytes"),
        (damaged(12, b"\x08\x06"), "unknown", 14, "EtherType 0x0806"),
        (damaged(14, b"\x55"), "malformed", 14, "version 5"),
        (damaged(14, b"\x44"), "malformed", 14, "ihl 4"),
        (damaged(16, b"\0\x13"), "malformed", 16, "total_length 19 is less"),
        (damaged(16, b"\xff\xff"), "malformed", 16, "the packet ends"),
        (damaged(23, b"\x06"), "unknown", 34, "IP protocol 6"),
        (damaged(36, b"\0\x35"), "unknown", 42, "UDP port 53"),
        (damaged(38, b"\0\x07"), "malformed", 38, "udp.length 7"),
        (damaged(42, b"\0\0"), "malformed", 42, "reserved type 0"),
        (damaged(42, b"\xf8\0"), "malformed", 42, "reserved type 31"),
        (damaged(42, b"\x17\x80"), "malformed", 42, "next_hdr 15 is reserved"),
        (frame(Layer("ethernet", {"type": 0x8100}), tag(1, 0x8100), tag(2, 0x8100), tag(3, 0x0800), IPV4, UDP, REQUEST),
         "unknown", 22, "more than two 802.1Q tags"),
        (frame(V6_ETHERNET, Layer("ipv6", {"next_header": 59}), payload=b""), "unknown", 54, "IP protocol 59"),
        (frame(V6_ETHERNET, Layer("ipv6", {"version": 7, "next_header": 17}), UDP), "malformed", 14, "version 7"),
    ],
)  # fmt: skip
def test_faults(data: bytes, kind: str, offset: int, reason: str) -> None:
    error = decode(data, crc="off").error
    assert error is not None
    assert (error.kind, error.offset) == (kind, offset)
    assert reason in error.reason


def test_a_fault_keeps_the_layers_before_it() -> None:
    packet = decode(damaged(42, b"\xf8\0"))
    assert forms(packet) == ["ethernet", "ipv4", "udp"]
    assert packet.raw == damaged(42, b"\xf8\0")[42:]


@pytest.mark.parametrize("field", [b"\x20\0", b"\0\x10"])  # more fragments; offset 16 · 8
def test_ipv4_fragment(field: bytes) -> None:
    packet = decode(damaged(20, field))
    assert packet.notes == ("fragment",)
    assert packet.error is None
    assert packet.payload == GOOD[34:]


def test_ipv6_fragment() -> None:
    second = Layer("ipv6.ext", {"raw": bytes([17, 0, 0, 8 << 3 | 1, 0, 0, 0, 1])})
    data = frame(V6_ETHERNET, Layer("ipv6", {"next_header": 44}), second, trailer=None)
    packet = decode(data)
    assert packet.notes == ("fragment",)
    assert packet.payload == PAYLOAD


def test_ethernet_padding() -> None:
    data = GOOD + bytes(6)
    packet = decode(data)
    assert packet.notes == ("padding",)
    assert packet.raw == bytes(6)
    assert packet.error is None
    assert packet.trailer is not None
    assert packet.trailer.ok is True


def test_sealed() -> None:
    """TSS: the rest is opaque without a key; the last 16 bytes are the ICV (tss.md §1)."""
    for form in ("tss", "tss.ssi"):
        data = frame(ETHERNET, IPV4, UDP, Layer(form, {"sdi": 1}), payload=PAYLOAD, trailer=Trailer("icv", 1 << 127))
        packet = decode(data)
        assert packet.notes == ("sealed",)
        assert packet.trailer == ("icv", 1 << 127, None)
        assert packet.payload == PAYLOAD
        assert encode(packet) == data
    short = frame(ETHERNET, IPV4, UDP, Layer("tss", {}), payload=bytes(15), trailer=None)
    assert decode(short).error == ("malformed", 54, "the ICV needs 16 bytes, 15 are there")


# Encoding ------------------------------------------------------------------------------------------------------------


def test_encode_errors_name_the_place() -> None:
    with pytest.raises(LocalError, match="no such form"):
        encode(Packet([Layer("pds.nothing", {})]))
    with pytest.raises(LocalError, match=r"ipv4\.ttl: 256 is not in 0 … 255"):
        encode(Packet([Layer("ipv4", {"ttl": 256})]))
    with pytest.raises(LocalError, match=r"udp\.length: \d+ is not in"):
        encode(Packet([UDP], payload=bytes(66_000)), fill=True)
    with pytest.raises(LocalError, match="not a multiple of 4"):
        encode(Packet([IPV4, Layer("ipv4.options", {"raw": b"\1"})]), fill=True)
    with pytest.raises(LocalError, match=r"ipv6\.ext\.raw: 5 is not bytes"):
        encode(Packet([Layer("ipv6.ext", {"raw": 5})]))
    with pytest.raises(LocalError, match="no IP header"):
        encode(Packet([REQUEST], trailer=CRC), fill=True)


@pytest.mark.parametrize("fill", [False, True])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trailer": Trailer("icv", 1 << 128)}, "icv: 3402.* is no number of 16 bytes"),
        ({"trailer": Trailer("icrc", -1)}, "icrc: -1 is no number of 4 bytes"),
        ({"trailer": Trailer("icrc", None)}, "icrc: None is no number of 4 bytes"),  # type: ignore[arg-type]
        ({"trailer": Trailer("fcs", 0)}, "trailer: 'fcs' is not legal; legal: crc32c, icrc, icv"),
        ({"payload": "text"}, "payload: 'text' is not legal; legal: bytes"),
        ({"raw": None}, "raw: None is not legal; legal: bytes"),
        ({"layers": [Layer("udp", {"sport": 1.0, "dport": 1, "length": 8, "checksum": 0})]}, r"udp\.sport: 1\.0"),
    ],
)
def test_what_is_no_packet_is_refused_however_often(fill: bool, change: dict[str, Any], said: str) -> None:
    for _ in range(20):
        packet = decode(GOOD)
        encode(packet, fill=fill)  # so that its shape is known
        for name, value in change.items():
            setattr(packet, name, value)
        with pytest.raises(LocalError, match=said):
            encode(packet, fill=fill)


def test_a_crc_that_does_not_fit_is_refused_unless_it_is_computed() -> None:
    for _ in range(20):
        packet = decode(GOOD)
        packet.trailer = Trailer("crc32c", 1 << 32)
        assert encode(packet, fill=True) == GOOD
        with pytest.raises(LocalError, match="crc32c: 4294967296 is no number of 4 bytes"):
            encode(packet)
