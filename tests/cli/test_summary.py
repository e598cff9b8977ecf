# SPDX-License-Identifier: GPL-2.0-only
"""Packets in words."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cli.frames import ARP, ack, close, frame, layer, nack, trimmed, write
from tests.support.wire.vectors import VECTORS, frame_around, uet_before
from uetproto import Layer, Packet, decode
from uetproto.cli.dissect import as_json, as_text
from uetproto.wire.capture.pcap import Record
from uetproto.wire.words.summary import address, count, duration, ranges, sacked, span, stamp, summary, tone


def request(opcode: int, form: str = "ses.request_std.som", som: int = 1, **values: int) -> list[Layer]:
    return [layer("pds.rod_req", next_hdr=3, psn=5), layer(form, opcode=opcode, som=som, eom=1, **values)]


def control(kind: int, payload: int = 0, **values: int) -> list[Layer]:
    return [layer("pds.cp", ctl_type=kind, ctl_payload=payload, **values)]


CC = {"next_hdr": 4, "cack_psn": 3, "sack_psn_offset": 1, "sack_bitmap": 0b111010}
OK = layer("ses.response", return_code=1)
READ_DATA = {"opcode": 2, "return_code": 1, "read_request_message_id": 1, "payload_length": 8}


@pytest.mark.parametrize(
    ("layers", "size", "said"),
    [
        (write(73728, 0, size=4096, syn=1), 4096, "ROD_REQ SYN PSN 73728 · WRITE id 1 0–4096 of 12288"),
        (write(73730, 8192, size=4096, ar=1), 4096, "ROD_REQ PSN 73730 ar · WRITE id 1 8192–12288 of 12288"),
        (write(5, 0, total=1, size=1, retx=1, ar=1), 1, "ROD_REQ PSN 5 retx ar · WRITE id 1 1 byte"),
        (request(2, request_length=4096), 0, "ROD_REQ PSN 5 · READ id 0 4096 bytes"),
        (request(5, "ses.send_std.som", dc=1, request_length=9), 9, "ROD_REQ PSN 5 · SEND id 0 9 bytes dc"),
        (request(9, "ses.send_std.som", match_bits=42), 0, "ROD_REQ PSN 5 · TAGGED_SEND id 0 tag 0x2a 0 bytes"),
        (request(0x30, request_length=1), 1, "ROD_REQ PSN 5 · opcode 0x30 id 0 1 byte"),
        (
            [*request(4, request_length=8), layer("ses.ext.atomic", atomic_opcode=2, atomic_datatype=7)],
            8,
            "ROD_REQ PSN 5 · FETCHING_ATOMIC SUM UINT64 id 0 8 bytes",
        ),
        (
            [*request(6, "ses.send_std.som", request_length=9000), layer("ses.ext.rendezvous", eager_length=4)],
            4,
            "ROD_REQ PSN 5 · RENDEZVOUS_SEND eager 4 id 0 9000 bytes",
        ),
        ([layer("pds.uud_req", next_hdr=1), layer("ses.request_small", opcode=1)], 0, "UUD_REQ · WRITE 0 bytes"),
        ([layer("pds.rudi_req", retx=1, pkt_id=0xDEAD0001)], 0, "RUDI_REQ pkt_id 0xdead0001 retx"),
        (ack(73730), 0, "ACK PSN 73730 CACK 73730 · OK"),
        (ack(0xFFFFFFFF, ack_psn_offset=3, req=1, m=1), 0, "ACK PSN 2 CACK 4294967295 asks CLEAR m · OK"),
        ([layer("pds.ack_cc", **CC), layer("pds.cc_state.nscc"), OK], 0, "ACK_CC PSN 3 CACK 3 SACK 5, 7–9 · OK"),
        ([layer("pds.ack.probe", p=1, probe_opaque=7, cack_psn=3)], 0, "ACK of probe 0x0007 CACK 3"),
        ([layer("pds.ack.epsn", cack_psn=3, ack_psn_offset=1, expected_psn=7)], 0, "ACK PSN 4 CACK 3 next start at 7"),
        ([layer("pds.ack", next_hdr=4), layer("ses.response", opcode=1, return_code=0x1C)], 0,
         "ACK PSN 0 CACK 0 · BAD_MKEY id 0"),
        ([layer("pds.ack", next_hdr=4), layer("ses.response", opcode=3)], 0, "ACK PSN 0 CACK 0 · no response yet"),
        ([layer("pds.ack", next_hdr=4), layer("ses.response", opcode=1, list=1, return_code=1, message_id=3)], 0,
         "ACK PSN 0 CACK 0 · OK id 3 OVERFLOW"),
        ([layer("pds.rod_req", next_hdr=5), Layer("ses.response_data", READ_DATA | {"modified_length": 16})], 8,
         "ROD_REQ PSN 0 · data of id 1 0–8 of 16"),
        ([nack(5, 3)], 0, "NACK ROD_OOO PSN 5 expects 3"),
        ([layer("pds.nack", nack_code=0x17, nack_psn=5000, nack_payload=9000)], 0,
         "NACK NEW_START_PSN PSN 5000 start at 9000"),
        ([layer("pds.nack.rudi", nt=1, nack_code=0x0C, nack_pkt_id=1)], 0, "NACK code 0x0c pkt_id 0x00000001"),
        (control(4, psn=73731), 0, "CP CLOSE_CMD PSN 73731"),
        (control(2, 333), 0, "CP CLEAR_CMD 333"),
        (control(6, 9, psn=7, probe_opaque=1), 0, "CP PROBE 0x0001 PSN 7 SACK from 9"),
        (control(7, 0xFF000002), 0, "CP CREDIT 2"),
        (control(15, psn=1), 0, "CP type 0x0f PSN 1"),
    ],
)  # fmt: skip
def test_summary(layers: list[Layer], size: int, said: str) -> None:
    assert summary(decode(frame(1, 2, *layers, payload=bytes(size)))) == said


def test_marks_of_a_summary() -> None:
    data = frame(1, 2, *write(73729, 1024), payload=bytes(1024))
    text = "ROD_REQ PSN 73729 · WRITE id 1 1024–2048 of 12288"
    assert summary(decode(trimmed(data, 98))) == f"{text} [trimmed]"
    assert summary(decode(trimmed(data, 60))) == "ROD_REQ PSN 73729 [trimmed]"
    assert summary(decode(data[:200], length=len(data))) == f"{text} [truncated]"
    assert summary(decode(data[:-1] + b"\0")) == f"{text} [CRC BAD]"
    assert summary(decode(frame(1, 2, *write(73729, 1024), payload=b"1"))) == f"{text} [malformed]"
    marked = bytearray(data)
    marked[15] |= 3
    assert "[ECN]" in summary(decode(bytes(marked)))
    assert summary(decode(ARP)) == "EtherType 0x0806"
    sealed = frame(1, 2, layer("tss", sdi=7, an=1, tsc=9), payload=bytes(50), crc=False)
    assert summary(decode(sealed)) == "sealed, SDI 7 AN 1 epoch 0 TSC 9 · 34 bytes"
    assert summary(Packet()) == ""


def test_first_packet_of_a_read_tells_no_length() -> None:
    layers = [layer("pds.rod_req", next_hdr=3), layer("ses.request_std.som", som=1, opcode=2, request_length=9000)]
    assert summary(decode(frame(1, 2, *layers))) == "ROD_REQ PSN 0 · READ id 0 0–… of 9000"


def test_tone() -> None:
    data = frame(1, 2, *write(73729, 1024), payload=bytes(1024))
    again = frame(1, 2, *write(73729, 1024, retx=1), payload=bytes(1024))
    seen = [data, frame(1, 2, *ack(1, retx=1)), frame(1, 2, close(5)), again, trimmed(again, 98),
            frame(1, 2, nack(5, 3)), data[:-1] + b"\0", ARP]  # fmt: skip
    assert [tone(decode(one)) for one in seen] == ["data", "ack", "control", "retx", "trimmed", "nack", "bad", "other"]


def test_small_texts() -> None:
    assert address(0x0A00010B, 32) == "10.0.1.11"
    assert address(0x02000A00000B, 48) == "02:00:0a:00:00:0b"
    assert address(0xFD000001000000000000000000000002, 128) == "fd00:1::2"
    assert [count(n, "byte") for n in (0, 1, 2)] == ["0 bytes", "1 byte", "2 bytes"]
    assert [span(0, 5, 5), span(0, 5, 9), span(5, None, 9)] == ["5 bytes", "0–5 of 9", "5–… of 9"]
    assert [stamp(ns) for ns in (0, 85, 999_999, 1_000_085, 62_000_000_001, -1_500_000_000)] == [
        "0.000 µs", "0.085 µs", "999.999 µs", "1.000085 ms", "62.000000001 s", "-1.500000000 s",
    ]  # fmt: skip
    assert [duration(ns) for ns in (7, 340, 1050, 99_960, 999_915, 62_750_000_000)] == [
        "7 ns", "340 ns", "1.05 µs", "100 µs", "1 ms", "62.8 s",
    ]  # fmt: skip
    assert ranges([(5, 5), (7, 9), (12, 12)], 2) == "5, 7–9, +1"


def test_sack_wraps() -> None:
    values = {"cack_psn": 0xFFFFFFFD, "sack_psn_offset": 1, "sack_bitmap": 0b1110}
    assert sacked(values) == [(0xFFFFFFFF, 1)]


def shown(data: bytes, length: int | None = None) -> str:
    """Everything that is said about a frame."""
    packet = decode(data, length=length)
    record = Record(0, 0, data, length or len(data), 0, 1, 0, None)
    text = "\n".join(as_text(record, packet, 0, "", 100, lambda text, style: text))
    return summary(packet) + tone(packet) + text + as_json(record, packet)


@given(st.sampled_from(VECTORS), st.binary(max_size=80), st.integers(0, 200), st.integers(0, 3))
def test_nothing_that_was_decoded_is_beyond_words(vector: dict[str, Any], more: bytes, cut: int, longer: int) -> None:
    uet = uet_before(vector["form"]) + bytes.fromhex(vector["hex"]) + more
    data = frame_around(uet, native=vector["form"] == "entropy")[: 34 + cut]
    assert shown(data, len(data) + longer)


@given(st.binary(max_size=120))
def test_any_bytes_have_words(data: bytes) -> None:
    assert shown(bytes(12) + b"\x08\x00" + data)
    assert shown(data)
