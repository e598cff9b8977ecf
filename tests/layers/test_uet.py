# SPDX-License-Identifier: GPL-2.0-only
"""The Scapy layers against the golden vectors, the other back-ends, and what users of Scapy expect."""

import copy
import json
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.config import conf
from scapy.layers.inet import IP, UDP, IPOption_NOP, in4_chksum
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    in6_chksum,
)
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Padding, Raw
from scapy.utils import RawPcapReader

import uetproto
from tests.support import paths
from tests.support.each import each
from tests.support.effort import effort
from tests.support.strategies import (
    bytes_of,
    damaged_frames,
    mutate,
    random_frame,
    random_header,
    random_packet,
    random_values,
    uet_headers,
    values_of,
)
from uetproto import layers as uet
from uetproto.schemas import SCHEMAS
from uetproto.testing import frames, packets
from uetproto.wire.codec import codec_of
from uetproto.wire.forms import UET_FORMS
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import Opcode
from uetproto.wire.packet import Layer, Trailer

VECTORS = json.loads(paths.VECTORS.read_text())["vectors"]
A, B = "02:00:0a:00:00:01", "02:00:0a:00:00:02"


def lower(version: int = 4, encapsulation: str = "udp") -> Any:
    ip = IP(src="10.0.0.1", dst="10.0.0.2") if version == 4 else IPv6(src="fd00::1", dst="fd00::2")
    return Ether(src=A, dst=B) / ip / (UDP() if encapsulation == "udp" else uet.Entropy(entropy=0xBEEF))


@pytest.fixture
def settings() -> Iterator[uet.Settings]:
    before = copy.copy(uet.settings)
    yield uet.settings
    uet.settings.__dict__.update(before.__dict__)


@pytest.fixture
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Scapy raise what it otherwise turns into Raw."""
    monkeypatch.setattr(conf, "debug_dissector", True)


# Every form by itself


def test_there_is_a_layer_for_every_form() -> None:
    assert list(uet.LAYERS) == list(UET_FORMS)
    for form, name in {
        "entropy": "Entropy",
        "tss": "Tss",
        "tss.ssi": "TssSsi",
        "pds.ack": "PdsAck",
        "pds.rud_req.syn": "PdsRudReqSyn",
        "pds.cc_state.nscc": "PdsCcStateNscc",
        "ses.request_std.som": "SesRequestStdSom",
        "ses.ext.atomic_cas": "SesExtAtomicCas",
    }.items():
        assert uet.LAYERS[form] is getattr(uet, name)
        assert name in uet.__all__
        assert uet.LAYERS[form].__name__ == name
    assert len({layer.__name__ for layer in uet.LAYERS.values()}) == len(UET_FORMS)
    assert all(hasattr(uet, name) for name in uet.__all__)


def test_no_field_hides_behind_an_attribute_of_scapy() -> None:
    taken = set(dir(Packet)) | set(dir(uet.UetLayer))
    assert not [(f, name) for f, h in UET_FORMS.items() for name in h.names if name in taken]


@each("form", UET_FORMS)
def test_vectors(form: str) -> None:
    vectors = [vector for vector in VECTORS if vector["form"] == form]
    assert len(vectors) == 5
    for vector in vectors:
        data = bytes.fromhex(vector["hex"])
        layer = uet.LAYERS[form](data)
        assert list(layer.fields.items()) == list(vector["fields"].items())
        assert uet.layer_values(layer) == [(form, vector["fields"])]
        assert bytes(layer) == data
        assert bytes(uet.LAYERS[form](**vector["fields"])) == data


@each("form", UET_FORMS)
def test_all_back_ends_agree_on_random_bytes(form: str) -> None:
    header = UET_FORMS[form]
    rng, codec, schema, layer = Random(form), codec_of(header), SCHEMAS[form], uet.LAYERS[form]
    for _ in range(40):
        data = random_header(header, rng)
        values = list(codec.decode(data).items())
        assert list(schema.parse(data).items()) == values
        assert list(layer(data).fields.items()) == values
        chosen = random_values(header, rng, legal=False)
        assert codec.encode(chosen) == schema.build(chosen) == bytes(layer(**chosen))


@given(st.data())
def test_all_back_ends_agree(data: Any) -> None:
    header = data.draw(uet_headers)
    raw = data.draw(bytes_of(header))
    dissected = uet.LAYERS[header.name](raw)
    assert dissected.fields == codec_of(header).decode(raw) == SCHEMAS[header.name].parse(raw)
    values = data.draw(values_of(header))
    built = bytes(uet.LAYERS[header.name](**values))
    assert built == codec_of(header).encode(values) == SCHEMAS[header.name].build(values)


@each("form", UET_FORMS)
def test_defaults_are_those_of_the_table(form: str) -> None:
    """Fields that follow from others have the values that `encode` gives them."""
    assert bytes(uet.LAYERS[form]()) == uetproto.encode(uetproto.Packet([Layer(form, {})]), fill=True)


@each("form", UET_FORMS)
def test_bytes_that_are_too_few_are_raw(form: str) -> None:
    short = bytes(UET_FORMS[form].size - 1)
    assert uet.LAYERS[form](short) == Raw(short)


def test_a_code_can_be_given_by_name() -> None:
    assert uet.PdsNack(nack_code="ROD_OOO").nack_code == 0x0D
    assert bytes(uet.SesResponse(opcode="RESPONSE", return_code="BAD_MKEY")).hex() == "011c00010000000000000000"
    assert bytes(uet.SesRequestStdSom(opcode=Opcode.WRITE))[0] == 1


# Whole frames: what `uetproto.decode` sees, Scapy sees


def seen_by_uetproto(frame: bytes) -> tuple[list[tuple[str, Any]], Trailer | None]:
    packet = uetproto.decode(frame)
    return [(layer.form, dict(layer.values)) for layer in packet.layers], packet.trailer


def seen_by_scapy(packet: Any) -> tuple[list[tuple[str, Any]], Trailer | None]:
    trailer = None
    if uet.UetCrc32c in packet:
        trailer = Trailer("crc32c", packet[uet.UetCrc32c].crc, packet[uet.UetCrc32c].ok)
    elif uet.UetIcv in packet:
        trailer = Trailer("icv", packet[uet.UetIcv].icv)
    return uet.layer_values(packet), trailer


def only_uet(layers: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [layer for layer in layers if layer[0] in UET_FORMS]


@pytest.mark.usefixtures("_strict")
def test_legal_frames() -> None:
    rng, forms = Random(11), Counter[str]()
    for _ in range(effort(500, 1500, 1500)):
        frame = random_frame(rng)
        packet, decoded = Ether(frame), uetproto.decode(frame)
        layers, trailer = seen_by_scapy(packet)
        assert (layers, trailer) == seen_by_uetproto(frame)
        assert b"".join(part.load for part in packet.iterpayloads() if type(part) is Raw) == decoded.payload
        assert bytes(packet) == frame
        forms.update(form for form, _ in layers)
    assert set(UET_FORMS) <= set(forms)


@pytest.mark.usefixtures("_strict")
def test_frames_damaged_from_the_uet_headers_on() -> None:
    rng, outcomes = Random(12), Counter[Any]()
    for _ in range(effort(600, 2500, 2500)):
        legal = random_frame(rng)
        start = next(layer.offset for layer in uetproto.decode(legal).layers if layer.form.startswith(("pds", "tss")))
        frame = mutate(legal, rng, start=start)
        packet = Ether(frame)
        assert seen_by_scapy(packet) == seen_by_uetproto(frame)
        assert bytes(packet) == frame
        error, trailer = uetproto.decode(frame).error, seen_by_uetproto(frame)[1]
        outcomes[error is None, trailer and trailer.kind, trailer and trailer.ok] += 1
    # Wrong CRCs were told as such, and there were faults with and without a trailer.
    assert outcomes[True, "crc32c", False] > effort(4, 20, 20)
    assert outcomes[False, None, None] > effort(48, 200, 200)


def test_frames_damaged_anywhere() -> None:
    rng, intact = Random(13), 0
    for _ in range(effort(600, 2500, 2500)):
        frame = mutate(random_frame(rng), rng)
        if len(frame) >= 14 and not _has_three_tags(frame):  # else Scapy's own Ether raises, or goes on where we stop
            packet = Ether(frame)
            layers, trailer = seen_by_scapy(packet)
            expected, expected_trailer = seen_by_uetproto(frame)
            assert (only_uet(layers), trailer) == (only_uet(expected), expected_trailer)
            if only_uet(layers):  # Scapy's own IGMP, where something has loaded it, changes its first byte
                assert bytes(packet) == frame
            intact += layers == expected
    assert intact > effort(360, 1500, 1500)


def _has_three_tags(frame: bytes) -> bool:
    return all(frame[at : at + 2] in (b"\x81\x00", b"\x88\xa8") for at in (12, 16, 20))


def test_a_known_shape_does_not_hide_another() -> None:
    """Frames that differ in nothing but one code, after so many of the first kind that its shape was learnt."""
    fetching = uet.SesRequestStdSom(opcode="FETCHING_ATOMIC", eom=1, request_length=32)
    data = bytes(32)
    for often, once in (
        (fetching / uet.SesExtAtomic(atomic_opcode="SUM") / data, fetching / uet.SesExtAtomicCas()),
        (
            fetching / uet.SesExtAtomic(atomic_opcode="READ"),
            fetching / uet.SesExtAtomic(atomic_opcode="SUM") / data[1:],
        ),
        (
            uet.SesSendMedium(som=0, eom=1, request_length=32) / data[1:],
            uet.SesSendMedium(som=1, eom=1, request_length=32) / data[1:],
        ),
    ):
        tagged = Ether(src=A, dst=B) / Dot1Q(vlan=5) / lower()[IP] / uet.PdsRudReq()
        for _ in range(20):
            assert uetproto.decode(bytes(tagged / often)).error is None
        frame = bytes(tagged / once)
        assert seen_by_scapy(Ether(frame)) == seen_by_uetproto(frame)
        assert (uetproto.decode(frame).error is None) is (uet.SesExtAtomicCas in once)


def test_response_data_implies_its_length() -> None:
    """Its opcode is 2, like that of a READ request, which carries nothing."""
    head = lower() / uet.PdsAck() / uet.SesResponseData(opcode="RESPONSE_W_DATA", payload_length=32)
    wrong = bytes(head / bytes(32) / uet.UetCrc32c(crc=0x12345678))
    assert seen_by_uetproto(wrong)[1] == seen_by_scapy(Ether(wrong))[1] == Trailer("crc32c", 0x12345678, False)
    error = uetproto.decode(bytes(head / bytes(31))).error
    assert error is not None
    assert error.reason == "payload has 31 bytes, the headers imply 32"


def test_captures_of_others() -> None:
    shared = paths.SHARED / "captures" / "refprov"
    captures = sorted(shared.glob("*.pcap"))
    if not captures:
        pytest.skip(f"no captures in {shared}")
    packets = 0
    for capture in captures:
        with RawPcapReader(str(capture)) as records:
            for frame, _ in islice(records, None, None, effort(3, 1, 1)):
                packet = Ether(frame)
                assert seen_by_scapy(packet) == seen_by_uetproto(frame)
                assert bytes(packet) == frame
                packets += 1
    assert packets > effort(600, 2000, 2000)


@given(frames())
def test_any_legal_frame(frame: bytes) -> None:
    assert seen_by_scapy(Ether(frame)) == seen_by_uetproto(frame)


@given(damaged_frames())
def test_any_damaged_frame(frame: bytes) -> None:
    if len(frame) >= 14 and not _has_three_tags(frame):
        layers, trailer = seen_by_scapy(Ether(frame))
        expected, expected_trailer = seen_by_uetproto(frame)
        assert (only_uet(layers), trailer) == (only_uet(expected), expected_trailer)


@pytest.mark.usefixtures("_strict")
def test_any_bytes_behind_udp_and_the_entropy_header() -> None:
    rng, udp, native = Random(14), lower(4), lower(6, "native")
    udp[UDP].dport = 4793
    for _ in range(500):
        data = rng.randbytes(rng.choice((0, 1, 2, 3, 4, 11, 12, 40, 60, 100)))
        for frame in (bytes(udp / Raw(data)), bytes(native / Raw(data))):
            assert seen_by_scapy(Ether(frame)) == seen_by_uetproto(frame)


@pytest.mark.parametrize("crc", ["on", "off", "auto"])
def test_the_setting_means_what_it_means_to_decode(crc: Any, settings: uet.Settings) -> None:
    rng, seen = Random(crc), set()
    settings.crc = crc
    for _ in range(effort(150, 400, 400)):
        frame = random_frame(rng, tags=0, extensions=False)
        if rng.getrandbits(1):
            frame = frame[:-1] + bytes((frame[-1] ^ 1,))
        decoded = uetproto.decode(frame, crc=crc)
        assert seen_by_scapy(Ether(frame))[1] == decoded.trailer
        seen.add(decoded.trailer and (decoded.trailer.kind, decoded.trailer.ok))
    assert seen == {None, ("icv", None)} | (set() if crc == "off" else {("crc32c", True), ("crc32c", False)})


# Building: what `uetproto.encode` makes, Scapy makes


def craft(packet: uetproto.Packet, leave_out: str = "") -> Any:
    """The same packet of Scapy's layers; lengths, checksums and the field `leave_out` are left to be filled."""
    made: Any = None
    for layer in packet.layers:
        part = _part(layer, leave_out)
        if layer.form == "ipv4.options":
            made[IP].options = [IPOption_NOP()] * len(layer.values["raw"])
        else:
            made = part if made is None else made / part
    if packet.payload:
        made = made / Raw(packet.payload)
    if packet.trailer and packet.trailer.kind == "icv":
        made = made / uet.UetIcv(icv=packet.trailer.value)
    return made


def _part(layer: Layer, leave_out: str) -> Any:
    values = layer.values
    if layer.form == "ethernet":
        dst, src = (values[name].to_bytes(6, "big").hex(":") for name in ("dst", "src"))
        return Ether(dst=dst, src=src, type=values["type"])
    if layer.form == "vlan":
        return Dot1Q(prio=values["pcp"], dei=values["dei"], vlan=values["vid"], type=values["type"])
    if layer.form == "ipv4":
        return IP(
            tos=values["dscp"] << 2 | values["ecn"],
            id=values["identification"],
            flags=values["df"] << 1,
            ttl=values["ttl"],
            proto=values["protocol"],
            src=str(IPv4Address(values["src"])),
            dst=str(IPv4Address(values["dst"])),
        )
    if layer.form == "ipv6":
        return IPv6(
            tc=values["dscp"] << 2 | values["ecn"],
            fl=values["flow_label"],
            nh=values["next_header"],
            hlim=values["hop_limit"],
            src=str(IPv6Address(values["src"])),
            dst=str(IPv6Address(values["dst"])),
        )
    if layer.form == "ipv6.ext":
        return IPv6ExtHdrDestOpt(layer.values["raw"])  # laid out like the hop-by-hop header
    if layer.form == "ipv4.options":
        return None
    if layer.form == "udp":
        return UDP(sport=values["sport"])
    return uet.LAYERS[layer.form](**{name: value for name, value in values.items() if name != leave_out})


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("encapsulation", ["udp", "native"])
@pytest.mark.parametrize("crc", [True, False])
def test_a_frame_is_built_as_encode_fills_it(
    crc: bool, encapsulation: str, version: int, settings: uet.Settings
) -> None:
    rng = Random(f"{version} {encapsulation} {crc}")
    settings.crc = "auto" if crc else "off"
    for _ in range(effort(40, 100, 100)):
        packet = random_packet(rng, encapsulation=encapsulation, version=version, crc=crc)
        assert bytes(craft(packet)) == uetproto.encode(packet, fill=True)


@given(packets(crc=True))
def test_any_frame_is_built_as_encode_fills_it(packet: uetproto.Packet) -> None:
    assert bytes(craft(packet)) == uetproto.encode(packet, fill=True)


def test_the_next_header_is_filled_in_by_the_layer_above() -> None:
    rng, filled = Random(15), Counter[str]()
    for _ in range(effort(250, 600, 600)):
        packet = random_packet(rng, crc=True)
        if not any(layer.form.startswith("pds.nack") for layer in packet.layers):  # there it is no choice
            assert bytes(craft(packet, leave_out="next_hdr")) == uetproto.encode(packet, fill=True)
            filled.update(NextHdr(part.values["next_hdr"]).name for part in packet.layers if "next_hdr" in part.values)
    assert set(filled) == set(NextHdr.__members__)


@pytest.mark.parametrize(
    ("above", "field", "value"),
    [
        (uet.PdsAckCc() / uet.PdsCcStateNscc(), "cc_type", 0),
        (uet.PdsAckCc() / uet.PdsCcStateCredit(), "cc_type", 1),
        (uet.PdsAckCc() / uet.PdsCcStateOther(), "cc_type", 2),
        (uet.PdsAckCc(cc_type=15) / uet.PdsCcStateNscc(), "cc_type", 15),
        (uet.PdsAckCc() / uet.PdsCcStateCredit() / uet.SesResponse(), "next_hdr", NextHdr.RESPONSE),
        (uet.PdsAckCcx() / uet.PdsCcxState() / uet.SesResponseData(), "next_hdr", NextHdr.RESPONSE_DATA),
        (uet.PdsRudCcReqSyn() / uet.PdsReqCcState() / uet.SesRequestSmall(), "next_hdr", NextHdr.REQUEST_SMALL),
        (uet.PdsRudReq() / uet.SesSendMediumHd(), "next_hdr", NextHdr.REQUEST_MEDIUM),
        (uet.PdsRudReq() / b"no header", "next_hdr", NextHdr.NONE),
        (uet.PdsRudReq(next_hdr=9) / uet.SesResponse(), "next_hdr", 9),
        (uet.SesSendStdSom(), "opcode", Opcode.SEND),
        (uet.SesSendStdSom() / uet.SesExtRendezvous(), "opcode", Opcode.RENDEZVOUS_SEND),
        (uet.SesSendStdSom() / uet.SesExtAtomic(), "opcode", Opcode.TSEND_ATOMIC),
        (uet.SesRequestStdSom() / uet.SesExtAtomicCas(), "opcode", Opcode.ATOMIC),
        (uet.SesRequestStdSom() / uet.SesExtSync(), "opcode", Opcode.SYNC_WRITE),
        (uet.SesRequestStdSom() / uet.SesExtSync() / uet.SesExtAtomic(), "opcode", Opcode.SYNC_ATOMIC),
        (uet.SesDeferrableStd(), "opcode", Opcode.DEFERRABLE_SEND),
        (uet.SesRtrStd(), "opcode", Opcode.DEFERRABLE_RTR),
    ],
)
def test_codes_follow_from_the_layer_above(above: Any, field: str, value: int) -> None:
    assert type(above)(bytes(above)).fields[field] == value


# Crafting


@pytest.mark.parametrize("version", [4, 6])
def test_a_packet_of_defaults(version: int) -> None:
    packet = lower(version) / uet.PdsRudReq() / uet.SesRequestStdSom(opcode="WRITE", eom=1, request_length=4) / b"data"
    decoded = uetproto.decode(bytes(packet))
    assert decoded.error is None
    assert decoded.trailer is not None
    assert decoded.trailer.ok
    assert decoded.payload == b"data"
    assert [layer.form for layer in decoded.layers][-2:] == ["pds.rud_req", "ses.request_std.som"]
    udp = decoded["udp"]
    assert (udp["sport"], udp["dport"], udp["length"], udp["checksum"]) == (4793, 4793, 8 + 12 + 44 + 4 + 4, 0)


@pytest.mark.parametrize(("version", "field"), [(4, "protocol"), (6, "next_header")])
def test_native_ip_of_defaults(version: int, field: str) -> None:
    decoded = uetproto.decode(bytes(lower(version, "native") / uet.PdsAck(cack_psn=7) / uet.SesResponse()))
    assert (decoded.error, decoded.trailer and decoded.trailer.ok) == (None, True)
    assert decoded[f"ipv{version}"][field] == 253
    assert decoded["entropy"]["entropy"] == 0xBEEF
    assert decoded["pds.ack"]["next_hdr"] == NextHdr.RESPONSE


def test_a_worked_example() -> None:
    """ses.md §8: the headers of the first packet of the gradient, byte for byte."""
    ses = uet.SesRequestStdSom(
        opcode="WRITE", rel=1, message_id=1, job_id=101, resource_index=15, memory_key=0x0001000000000007,
        request_length=12288,
    )  # fmt: skip
    words = "01090001 00000065 0000000f 00000000 00000000 00000000 00010000 00000007 00000000 00000000 00003000"
    assert bytes(ses).hex(" ", 4) == words


def test_other_udp_traffic_keeps_its_checksum() -> None:
    for ip, checksum in ((IP(src="10.0.0.1", dst="10.0.0.2"), in4_chksum), (IPv6(src="::1", dst="::2"), in6_chksum)):
        for dport in (5000, 4793):
            built = bytes(ip / UDP(sport=9, dport=dport) / b"payload")[-15:]
            assert built[6:8] != b"\0\0"
            length = UDP(sport=9, dport=dport, len=15, chksum=0)
            assert int.from_bytes(built[6:8], "big") == checksum(17, ip / length, bytes(length) + b"payload")


def test_a_checksum_that_is_asked_for_is_computed_and_ignored_by_the_crc() -> None:
    packet = Ether(src=A, dst=B) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(chksum=None) / uet.PdsNack()
    decoded = uetproto.decode(bytes(packet))
    assert decoded["udp"]["checksum"] != 0
    assert decoded.trailer is not None
    assert decoded.trailer.ok


def test_without_ip_there_is_no_crc() -> None:
    assert len(bytes(uet.PdsRudReq())) == 12
    assert len(bytes(UDP() / uet.PdsRudReq())) == 20
    assert bytes(UDP() / uet.PdsRudReq() / uet.UetCrc32c())[-4:] == b"\0\0\0\0"


def test_the_crc_as_a_layer(settings: uet.Settings) -> None:
    head = lower() / uet.PdsCp(ctl_type="PROBE")
    automatic = bytes(head)
    assert bytes(head / uet.UetCrc32c()) == automatic
    assert bytes(head / uet.UetCrc32c() / Padding(b"pad")) == automatic + b"pad"
    assert bytes(head / uet.UetCrc32c(crc=0x01020304)) == automatic[:-4] + b"\1\2\3\4"
    settings.crc = "off"
    shorter = bytes(head)
    assert uetproto.decode(shorter).trailer is None
    assert len(shorter) == len(automatic) - 4
    assert bytes(head / uet.UetCrc32c()) == automatic


def test_a_dissected_packet_stays_as_it_came() -> None:
    for crc in (True, False):
        frame = random_frame(Random(1), encapsulation="udp", version=4, crc=crc, tags=0, extensions=False)
        for packet in (Ether(frame), Ether(frame).copy(), pickle.loads(pickle.dumps(Ether(frame)))):
            first = packet[UDP].payload
            first.spdcid, packet[IP].ttl = 0xABCD, 3
            changed = bytes(packet)
            assert len(changed) == len(frame)
            assert changed != frame
            assert sum(a != b for a, b in zip(changed, frame, strict=True)) <= 3


def test_a_deleted_crc_is_computed_anew() -> None:
    packet = Ether(bytes(lower() / uet.PdsRudReq(psn=1) / b"abc"))
    packet[uet.PdsRudReq].psn = 2
    assert packet[uet.UetCrc32c].ok is False
    del packet[uet.UetCrc32c].crc
    assert packet[uet.UetCrc32c].ok is None
    assert Ether(bytes(packet))[uet.UetCrc32c].ok is True
    assert bytes(packet) == bytes(lower() / uet.PdsRudReq(psn=2) / b"abc")


def test_show_says_whether_the_crc_is_right() -> None:
    frame = bytes(lower() / uet.PdsNack(nack_code="ROD_OOO"))
    crc = frame[-4:].hex()
    assert f"crc       = 0x{crc.lstrip('0')} (right)" in Ether(frame).show(dump=True)
    wrong = frame[:-4] + b"\x12\x34\x56\x78"
    assert f"crc       = 0x12345678 (wrong, 0x{crc} expected)" in Ether(wrong).show(dump=True)
    assert "nack_code = ROD_OOO" in Ether(frame).show(dump=True)


def test_a_sealed_packet_is_opaque() -> None:
    packet = lower() / uet.TssSsi(sdi=5, ssi=100, tsc=9) / Raw(b"ciphertext") / uet.UetIcv(icv=0xABC)
    dissected = Ether(bytes(packet))
    assert bytes(packet).endswith(b"ciphertext" + (0xABC).to_bytes(16, "big"))
    assert dissected[Raw].load == b"ciphertext"
    assert dissected[uet.UetIcv].icv == 0xABC
    assert uet.UetCrc32c not in dissected


def test_raw_bytes_decoded_as_uet() -> None:
    for ip in (IP(src="10.0.0.1", dst="10.0.0.2"), IPv6(src="::1", dst="::2")):
        packet = ip / UDP(dport=4793) / Raw(bytes(uet.PdsAck() / uet.SesResponse()) + b"more")
        packet[UDP].decode_payload_as(uet.Uet)
        assert [form for form, _ in uet.layer_values(packet)][-2:] == ["pds.ack", "ses.response"]


def test_padding_is_padding() -> None:
    frame = bytes(lower() / uet.PdsUudReq())
    dissected = Ether(frame + bytes(60 - len(frame)))
    assert dissected[uet.UetCrc32c].ok is True
    assert dissected[Padding].load == bytes(60 - len(frame))


def test_a_trimmed_packet_has_no_trailer() -> None:
    frame = bytearray(bytes(lower() / uet.PdsRudReq() / uet.SesRequestStd(payload_length=100) / bytes(100)))
    frame[15] = 16 << 2
    assert uet.UetCrc32c not in Ether(bytes(frame))
    frame[15] = 0
    assert Ether(bytes(frame))[uet.UetCrc32c].ok is True
    frame[16:18] = (20 + 8 + 12 + 44).to_bytes(2, "big")  # IP ends behind the headers, UDP does not
    trimmed = Ether(bytes(frame[: 14 + 20 + 8 + 12 + 44]))
    assert uet.SesRequestStd in trimmed
    assert uet.UetCrc32c not in trimmed
    extended = IPv6(src="::1", dst="::2") / IPv6ExtHdrDestOpt() / UDP() / uet.PdsNack() / bytes(4)
    assert uet.UetCrc32c in IPv6(bytes(extended))
    extended[IPv6].plen = 8 + 8 + 16 + 4
    assert uet.UetCrc32c not in IPv6(bytes(extended))


@pytest.mark.parametrize("flags", ["MF", 0])
def test_a_fragment_is_not_looked_into(flags: Any) -> None:
    ip = IP(src="10.0.0.1", dst="10.0.0.2", flags=flags, frag=0 if flags else 8)
    for packet in (ip / UDP() / uet.PdsAck(), ip / uet.Entropy() / uet.PdsAck()):
        assert not [form for form, _ in uet.layer_values(IP(bytes(packet))) if form in UET_FORMS]
    whole = IPv6(src="::1", dst="::2") / IPv6ExtHdrFragment(m=0) / UDP() / uet.PdsAck()
    assert uet.PdsAck in IPv6(bytes(whole))
    first = IPv6(src="::1", dst="::2") / IPv6ExtHdrFragment(m=1) / UDP() / uet.PdsAck()
    assert uet.PdsAck not in IPv6(bytes(first))


def test_the_summary_tells_a_suspected_crc(settings: uet.Settings) -> None:
    whole = bytes(IP() / UDP(sport=4793) / uet.PdsRudReq() / uet.SesRequestStdSom(opcode=1, eom=0) / Raw(bytes(2048)))
    wrong = whole[:-1] + bytes([whole[-1] ^ 1])
    assert uetproto.decode(wrong, link="raw").notes == ("crc-suspect",)
    assert [IP(data).summary().count(" [crc-suspect]") for data in (whole, wrong, whole[:-4])] == [0, 1, 0]
    settings.crc = "on"
    assert "CRC32C wrong" in IP(wrong).summary()


def test_extension_headers_are_covered_by_the_crc() -> None:
    for ip in (
        IP(src="10.0.0.1", dst="10.0.0.2", options=[IPOption_NOP()] * 3),  # padded by Scapy
        IPv6(src="::1", dst="::2") / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt(),
        IPv6(src="::1", dst="::2") / IPv6ExtHdrRouting(addresses=["::3", "::4"]),
    ):
        built = bytes(ip / UDP() / uet.PdsAck())
        decoded = uetproto.decode(built, link="raw")
        assert decoded.trailer is not None
        assert decoded.trailer.ok


# Binding


def test_another_port_and_protocol() -> None:
    try:
        uet.bind_uet(udp_port=5555, ip_protocol=254)
        by_udp, by_ip = lower() / uet.PdsAck(), lower(6, "native") / uet.PdsAck()
        assert uetproto.decode(bytes(by_udp), udp_port=5555).error is None
        assert uetproto.decode(bytes(by_ip), ip_protocol=254).error is None
        assert uet.PdsAck in Ether(bytes(by_udp))
        assert uet.PdsAck in Ether(bytes(by_ip))
        by_udp[UDP].dport, by_ip[IPv6].nh = 4793, 253
        assert uet.PdsAck not in Ether(bytes(by_udp))
        assert uet.PdsAck not in Ether(bytes(by_ip))
    finally:
        uet.bind_uet()
    assert uet.PdsAck in Ether(bytes(by_udp))
    assert uet.PdsAck in Ether(bytes(by_ip))
    assert [upper for _, upper in UDP.payload_guess].count(uet.Uet) == 1


def test_any_source_port_is_entropy() -> None:
    """Nothing that is bound to a source port takes UET away."""
    import scapy.layers.dns

    uet.bind_uet()  # as if it had been imported after DNS
    packet = IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=53) / uet.PdsAck()
    assert uet.PdsAck in IP(bytes(packet))
    assert scapy.layers.dns.DNS in IP(bytes(IP(dst="10.0.0.2") / UDP(dport=53) / scapy.layers.dns.DNS()))


def test_roce_of_scapy_works_beside_it() -> None:
    import scapy.contrib.roce as roce

    frame = bytes(IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=50000) / roce.BTH(opcode=17) / roce.AETH())
    assert roce.AETH in IP(frame)
    assert uet.PdsAck in IP(bytes(IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / uet.PdsAck()))


def test_importing_loads_what_is_needed_and_no_more() -> None:
    program = "import sys, uetproto.layers; print([m for m in sys.modules if m in ('scapy.all', 'construct', 'numpy')])"
    result = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_up_to_two_vlan_tags() -> None:
    for tags in (Dot1Q(vlan=5), Dot1AD(vlan=6) / Dot1Q(vlan=5)):
        frame = bytes(Ether(src=A, dst=B) / tags / lower()[IP] / uet.PdsAck())
        assert seen_by_scapy(Ether(frame)) == seen_by_uetproto(frame)
        assert uet.PdsAck in Ether(frame)


# What a packet that is made cannot be


@pytest.mark.parametrize(
    ("packet", "told"),
    [
        (uet.PdsRudCcReq() / uet.SesRequestStdSom(),
         "SesRequestStdSom follows PdsRudCcReq, where PdsReqCcState must follow"),
        (uet.PdsRudCcReq() / uet.PdsReqCcState() / uet.SesRequestStdSom(), None),
        (uet.PdsRudCcReq(), "nothing follows PdsRudCcReq, where PdsReqCcState must follow"),
        (uet.PdsRudCcReq() / bytes(4), None),
        (uet.PdsAckCc() / uet.SesResponse(), "SesResponse follows PdsAckCc, where PdsCcStateNscc must follow"),
        (uet.PdsAckCc() / uet.PdsCcStateCredit() / uet.SesResponse(), None),
        (uet.PdsRudReq(next_hdr="NONE") / uet.SesRequestSmall(),
         "SesRequestSmall follows PdsRudReq, which announces no header"),
        (uet.PdsRudReq(next_hdr="RESPONSE"), "nothing follows PdsRudReq, where SesResponse must follow"),
        (uet.PdsRudReq(next_hdr=2),
         "nothing follows PdsRudReq, where SesSendMedium or SesSendMediumHd or SesRequestMedium or … must follow"),
        (uet.PdsRudReq() / uet.SesRequestStdSom(opcode="ATOMIC", request_length=0),
         "nothing follows SesRequestStdSom, where SesExtAtomicCas or SesExtAtomic must follow"),
        (uet.SesRequestSmall(), "SesRequestSmall is no header that a packet begins with"),
        (uet.PdsNack(), "PdsNack: nack_code is not set, and 0 is no code"),
        (uet.PdsNack(nack_code=0), None),
        (uet.PdsRudReq(next_hdr=[1, 0]) / uet.SesRequestSmall(), None),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_told(packet: Any, told: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(uet.uet, "warning", warnings.append)
    data = bytes(lower() / packet)
    assert warnings == ([told] if told else [])
    bytes(Ether(data))  # nothing is told of what was received
    assert len(warnings) == bool(told)


# Requests and answers


REQUEST = uet.PdsRudReq(psn=100, spdcid=1, dpdcid=2) / uet.SesRequestStdSom(message_id=7)
SYN = uet.PdsRodReqSyn(psn=100, spdcid=1) / uet.SesRequestStdSom(message_id=7)
PROBE = uet.PdsCp(ctl_type="PROBE", psn=100, spdcid=1, dpdcid=2, probe_opaque=55)
READ = uet.PdsRudReq(psn=100, spdcid=1, dpdcid=2) / uet.SesRequestStdSom(opcode="READ", message_id=7)
SMALL = uet.PdsRudReq(psn=100, spdcid=1, dpdcid=2) / uet.SesRequestSmall(opcode="READ")


@pytest.mark.parametrize(
    ("answer", "request_", "fits"),
    [
        (uet.PdsAck(cack_psn=100, spdcid=2, dpdcid=1), REQUEST, True),
        (uet.PdsAck(cack_psn=98, ack_psn_offset=2, spdcid=2, dpdcid=1), REQUEST, True),
        (uet.PdsAckCcx(cack_psn=101, ack_psn_offset=-1, spdcid=2, dpdcid=1), REQUEST, True),
        (uet.PdsAck(cack_psn=98, ack_psn_offset=1, spdcid=2, dpdcid=1), REQUEST, False),
        (uet.PdsAck(cack_psn=100, spdcid=3, dpdcid=1), REQUEST, False),
        (uet.PdsAck(cack_psn=100, spdcid=2, dpdcid=3), REQUEST, False),
        (uet.PdsAck(cack_psn=100, spdcid=0, dpdcid=1), REQUEST, False),
        (uet.PdsAck(cack_psn=100, spdcid=9, dpdcid=1), SYN, True),
        (uet.PdsAckCc(cack_psn=100, spdcid=2, dpdcid=1) / uet.PdsCcStateNscc() / uet.SesResponse(), REQUEST, True),
        (uet.PdsAck(cack_psn=100, spdcid=2, dpdcid=1), uet.PdsCp(ctl_type="NOOP", psn=100, spdcid=1, dpdcid=2), True),
        (uet.PdsAck(cack_psn=99, spdcid=2, dpdcid=1), uet.PdsCp(ctl_type="NOOP", psn=100, spdcid=1, dpdcid=2), False),
        (uet.PdsAck(cack_psn=100, spdcid=2, dpdcid=1), PROBE, False),
        (uet.PdsAckProbe(probe_opaque=55, spdcid=2, dpdcid=1), PROBE, True),
        (uet.PdsAckProbe(probe_opaque=56, spdcid=2, dpdcid=1), PROBE, False),
        (uet.PdsAckProbe(probe_opaque=55, cack_psn=100, spdcid=2, dpdcid=1), REQUEST, False),
        (uet.PdsNack(nack_psn=100, spdcid=2, dpdcid=1), REQUEST, True),
        (uet.PdsNack(nack_psn=100, spdcid=0, dpdcid=1), REQUEST, True),
        (uet.PdsNack(nack_psn=100, spdcid=3, dpdcid=1), REQUEST, False),
        (uet.PdsNackCcx(nack_psn=101, spdcid=2, dpdcid=1), REQUEST, False),
        (uet.PdsNackRudi(nack_pkt_id=5), uet.PdsRudiReq(pkt_id=5), True),
        (uet.PdsNackRudi(nack_pkt_id=6), uet.PdsRudiReq(pkt_id=5), False),
        (uet.PdsRudiResp(pkt_id=5), uet.PdsRudiReq(pkt_id=5), True),
        (uet.PdsRudiResp(pkt_id=4), uet.PdsRudiReq(pkt_id=5), False),
        (uet.PdsRudReq(spdcid=2, dpdcid=1) / uet.SesResponseData(read_request_message_id=7), READ, True),
        (uet.PdsRudReq(spdcid=2, dpdcid=1) / uet.SesResponseData(read_request_message_id=8), READ, False),
        (uet.PdsRudReq(spdcid=2, dpdcid=1) / uet.SesResponseDataSmall(original_request_psn=100), SMALL, True),
        (uet.PdsRudReq(spdcid=2, dpdcid=1) / uet.SesResponseDataSmall(original_request_psn=99), SMALL, False),
        (uet.PdsRudReq(spdcid=2, dpdcid=1, psn=100), REQUEST, False),
        (REQUEST, uet.PdsAck(cack_psn=100, spdcid=2, dpdcid=1), False),
        (uet.PdsUudReq(), uet.PdsUudReq(), False),
        (uet.SesResponse(message_id=7), uet.SesRequestStdSom(message_id=7), True),
        (uet.SesResponse(message_id=7), uet.SesRequestStd(message_id=8), False),
        (uet.SesResponse(), uet.SesRequestSmall(), True),
        (uet.SesResponseDataSmall(), uet.SesRequestSmall(), False),
    ],
)
def test_answers(answer: Any, request_: Any, fits: bool) -> None:
    assert bool(answer.answers(request_)) is fits
    if answer.name.startswith("SES"):
        return
    if fits:
        assert answer.hashret() == request_.hashret()
    for version in (4, 6):
        for encapsulation in ("udp", "native"):
            sent, back = lower(version, encapsulation) / request_, lower(version, encapsulation) / answer
            ip = IP if version == 4 else IPv6
            back[ip].src, back[ip].dst = sent[ip].dst, sent[ip].src
            received = Ether(bytes(back))[ip]
            assert bool(received.answers(sent[ip])) is fits
            if fits:
                assert received.hashret() == sent[ip].hashret()
            received.dst = received.src  # not sent to the one who asked
            assert not received.answers(sent[ip])


def test_an_answer_to_another_source_port_needs_scapys_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=50000) / REQUEST
    received = IP(src="10.0.0.2", dst="10.0.0.1") / UDP(sport=60000) / uet.PdsAck(cack_psn=100, spdcid=2, dpdcid=1)
    assert not received.answers(sent)
    monkeypatch.setattr(conf, "checkIPsrc", False)
    assert received.answers(sent)
