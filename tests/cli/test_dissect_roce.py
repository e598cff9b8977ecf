# SPDX-License-Identifier: GPL-2.0-only
"""`dissect` and `ladder` of RoCE: JSON, text, words, options."""

import json
import random
from pathlib import Path

import pytest

from tests.support.cli.frames import invoke
from tests.support.wire.roce_frames import BY_NAME, GOLDEN, Golden, frame_of
from uetproto import Layer, Packet, decode, encode
from uetproto.wire.capture.pcap import open_writer
from uetproto.wire.words.roce import syndrome
from uetproto.wire.words.summary import from_to, summary, tone

WORDS = {
    "write": "RC_RDMA_WRITE_ONLY PSN 5 QP 18 a · 0x20000000 r_key 0x1234 5 bytes",
    "ack": "RC_ACKNOWLEDGE PSN 5 QP 17 · ACK MSN 1",
    "nak": "RC_ACKNOWLEDGE PSN 6 QP 17 · NAK PSN_SEQUENCE_ERROR MSN 1",
    "compare and swap": "RC_COMPARE_SWAP PSN 6 QP 18 a · 0x20000008 r_key 0x1234 swap 0x1122334455667788 "
    "compare 0x102030405060708",
    "atomic acknowledge": "RC_ATOMIC_ACKNOWLEDGE PSN 6 QP 17 · ACK MSN 2 · was 0x102030405060708",
    "UD over IPv6": "UD_SEND_ONLY_WITH_IMMEDIATE PSN 0 QP 16777215 · from QP 119 q_key 0x11111111 · "
    "immediate 0x00000407 · 4 bytes",
    "CNP": "CNP QP 18 becn",
    "RoCEv1": "RC_SEND_ONLY PSN 5 QP 18 a · 4 bytes",
    "native": "RC_SEND_ONLY PSN 5 QP 18 a · 4 bytes",
}
TONES = {"nak": "nack", "ack": "ack", "atomic acknowledge": "ack", "CNP": "control"}


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_in_words(golden: Golden) -> None:
    packet = decode(golden.frame, link=golden.link)
    assert summary(packet) == WORDS[golden.name]
    assert tone(packet) == TONES.get(golden.name, "data")


def test_who_sends_to_whom() -> None:
    assert from_to(decode(BY_NAME["RoCEv1"].frame)) == "fe80::1 → fe80::2"
    assert from_to(decode(BY_NAME["native"].frame, link="infiniband")) == "LID 7 → LID 5"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0x00, "ACK 0 credits"), (0x1E, "ACK 32768 credits"), (0x1F, "ACK"), (0x20, "RNR NAK wait 655.36 ms"),
        (0x2C, "RNR NAK wait 0.64 ms"), (0x62, "NAK REMOTE_ACCESS_ERROR"), (0x65, "reserved syndrome 0x65"),
        (0x40, "reserved syndrome 0x40"), (0xE0, "NAK PSN_SEQUENCE_ERROR"),
    ],
)  # fmt: skip
def test_syndromes(value: int, text: str) -> None:
    assert syndrome(value) == text


def test_pause_frames_in_words() -> None:
    packet = Packet([Layer("ethernet", {"type": 0x8808}), Layer("pfc", {"enable": 5, "pause0": 9, "opcode": 0x0101})])
    found = decode(encode(packet))
    assert summary(found) == "PFC class 0 9, class 2 resume"
    assert tone(found) == "control"


@pytest.fixture
def capture(tmp_path: Path) -> str:
    path = tmp_path / "roce.pcapng"
    vendor = frame_of(0x4A, random.Random(1), size=4)
    with open_writer(path, interfaces=[("eth", 1), ("ib", 247)]) as writer:
        for golden in GOLDEN:
            writer.write(0, golden.frame, interface=int(golden.link == "infiniband"))
        writer.write(0, vendor)
        writer.write(0, BY_NAME["write"].frame[:70], length=82)
    return str(path)


def run(*arguments: str) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_json_has_what_decode_has(capture: str) -> None:
    found = [json.loads(line) for line in run("dissect", "--json", capture).splitlines()]
    for golden, one in zip(GOLDEN, found, strict=False):
        packet = decode(golden.frame, link=golden.link)
        assert [(layer["form"], layer["fields"]) for layer in one["layers"]] == [
            (layer.form, dict(layer.values)) for layer in packet.layers
        ]
        assert packet.trailer is not None
        assert one["trailer"] == {"kind": "icrc", "value": packet.trailer.value, "ok": True}
        assert ("vcrc" in one) == (golden.link == "infiniband")
        assert one["payload"] == {"offset": packet.payload_offset, "length": len(golden.payload)}
    vendor, cut = found[-2:]
    assert vendor["error"] == {"kind": "unknown", "offset": 54, "reason": "opcode 0x4a: RD or vendor transport"}
    assert vendor["trailer"]["ok"] is True
    assert (cut["trailer"], cut["notes"], cut["error"]) == (None, ["truncated"], None)


def test_text(capture: str) -> None:
    text = run("dissect", capture)
    assert "   75  pad                    000000\n" in text
    assert "   78  icrc                   0x9053cc86 ok\n" in text
    assert "   28  vcrc                   0x140f ok\n" in text
    assert "syndrome = 0x60 → NAK PSN_SEQUENCE_ERROR" in text
    assert "not decoded, byte 54: opcode 0x4a: RD or vendor transport" in text


def test_options(capture: str) -> None:
    [line] = run("dissect", "--json", "--rd", "headers", "--packet", "10", capture).splitlines()
    assert [layer["form"] for layer in json.loads(line)["layers"]][3:5] == ["bth", "rdeth"]
    [line] = run("dissect", "--json", "--roce-port", "4000", "--packet", "1", capture).splitlines()
    assert json.loads(line)["error"]["reason"] == "UDP port 4791: not UET"
    assert "RC_RDMA_WRITE_ONLY" in run("ladder", capture)
