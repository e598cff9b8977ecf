# SPDX-License-Identifier: GPL-2.0-only
"""`dissect --sharp --mcast`: JSON, text with its marks, words."""

import json
from pathlib import Path

import pytest

from tests.support.cli.frames import invoke
from tests.support.wire.sharp_frames import (
    ERROR,
    JOIN_REQ,
    LOCK_BODY,
    MESSAGES,
    message,
    over_rc,
    over_ud,
    over_uet,
    with_immediate,
)
from uetproto import decode
from uetproto.wire.capture.pcap import open_writer
from uetproto.wire.words.summary import summary

MAD = bytes.fromhex("010b0202") + bytes(12) + bytes.fromhex("0023") + bytes(238)
RC = over_rc(MESSAGES[0])
WORDS = {
    RC: "32 bytes · SHARP AGG_REQ tree 0 group 7 seq 0 ALLREDUCE SUM FLOAT 8 elements [FIRST|LAST|REPRO]",
    over_rc(JOIN_REQ): "SHARP GROUP_JOIN_REQ tree 0 group 7 seq 0",
    over_rc(ERROR): "SHARP ERROR tree 0 group 7 seq 0 TIMEOUT_NO_PROGRESS · from node 10, children 1",
    over_rc(message(0x20, LOCK_BODY, tree_id=0, group_id=7)): "SHARP LOCK_REQ tree 0 group 7 seq 0",
    over_ud(MAD, qp=1, q_key=0x80010000): "SHARP AM SET TREE_CONFIG",
    with_immediate(0x407, 0x65, 0xFFFFFF, b"data"): "4 bytes · multicast task 7 chunk 4",
    with_immediate(5 << 3, 0x05, 0x12): "multicast ring NEED_FETCH of rank 5",
    with_immediate(0xDEAD << 3 | 1, 0x05, 0x12): "multicast ring FIN",
    over_uet(MESSAGES[6]): "SHARP AGG_RESULT tree 0 group 7 seq 0 ALLREDUCE SUM FLOAT 8 elements "
    "[FIRST|LAST|REPRO|FINAL]",
}


@pytest.mark.parametrize("frame", WORDS, ids=WORDS.values())
def test_in_words(frame: bytes) -> None:
    assert summary(decode(frame, sharp=True, mcast=True)).endswith(f" · {WORDS[frame]}")


def test_first_part_of_a_message_in_words() -> None:
    long = message(0x90, bytes(2000), 0xD880, op=2, dtype=4, coll=1)
    packet = decode(over_uet(long[:1024], length=len(long), eom=0), sharp=True)
    assert "SEND id" in summary(packet)
    assert " 0–1024 of 2032 · SHARP AGG_RESULT" in summary(packet)


@pytest.fixture
def capture(tmp_path: Path) -> str:
    path = tmp_path / "sharp.pcap"
    with open_writer(path) as writer:
        for index, frame in enumerate(WORDS):
            writer.write(index, frame)
    return str(path)


def test_json(capture: str) -> None:
    packets = [
        json.loads(line) for line in invoke("dissect", "--sharp", "--mcast", "--json", capture).stdout.splitlines()
    ]
    sharp = packets[0]["layers"][-1]
    assert (sharp["form"], sharp["offset"]) == ("sharp", 54)
    assert (sharp["fields"]["opcode"], sharp["fields"]["flags"], sharp["fields"]["count"]) == (16, 0x1880, 8)
    assert packets[0]["payload"] == {"offset": 86, "length": 32}
    assert [layer["form"] for layer in packets[1]["layers"][-3:]] == ["sharp", "sharp.join_req", "sharp.ranks"]
    assert packets[1]["layers"][-1]["fields"] == {"raw": "0000"}
    assert packets[5]["layers"][-1]["fields"] == {"chunk_id": 4, "task_id": 7}
    plain = [json.loads(line) for line in invoke("dissect", "--json", capture).stdout.splitlines()]
    forms = {layer["form"].split(".")[0] for packet in plain for layer in packet["layers"]}
    assert not forms & {"sharp", "mcast"}


def test_text_marks_what_is_not_published(capture: str) -> None:
    text = " ".join(invoke("dissect", "--sharp", capture).stdout.split())
    assert "sharp SHARP base header [ours]" in text
    assert "op = 2 SUM [ours, published codes]" in text
    assert "flags = 0x1880 FIRST|LAST|REPRO" in text
    assert "features = 0x00000003 LLT|REPRODUCIBLE [ours, published codes]" in text
    assert "ranks = 0" in text
    assert "→ 1" in text.partition("sharp.fault")[2].partition("payload")[0]
    assert "sharp.am SHARP management datagram base_version = 1" in text
    assert "am_key = 0x0 [ours]" in text
    assert "sharp" not in invoke("dissect", capture).stdout
