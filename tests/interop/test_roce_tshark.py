# SPDX-License-Identifier: GPL-2.0-only
"""tshark judges RoCE frames: nothing malformed, every field it has a name for equal to ours (roce.md §16).

It calls some short payloads malformed protocols of others, which are switched off; it reads CNP, XRC and RD as
something else, and checks no ICRC.
"""

import random
from dataclasses import replace

import pytest

from tests.support.interop import tshark
from tests.support.interop.roce_tshark import (
    JUDGED,
    flat,
    read,
    same,
)
from tests.support.interop.tshark import needs_tshark
from tests.support.wire.roce_frames import GOLDEN, packet_of
from uetproto import decode, encode
from uetproto.wire.codec import codec_of
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.roce import OPERATIONS, SEQUENCES, Load, Operation

NEW = (Operation.FLUSH, Operation.ATOMIC_WRITE)  # unknown to Wireshark before 4.6
OPCODES = [o for o in SEQUENCES if o >> 5 in JUDGED and o & 0x1F not in NEW]

SIZES = {Load.FULL: (256,), Load.SOME: (1, 6, 40), Load.ANY: (0, 1, 6, 40), Load.NONE: (0,), Load.WORD: (8,)}


def frame_of(opcode: int, rng: random.Random, kind: str, size: int) -> bytes:
    """With nothing by which tshark takes it for something else: a management queue pair, the port of another protocol,
    payload that starts with an EtherType."""
    packet = packet_of(opcode, rng, kind, destqp=rng.randrange(2, 0xFFFFFF), tver=0)
    layers = [layer._replace(values={**layer.values, "sport": 49192}) if layer.form == "udp" else layer
              for layer in packet.layers]  # fmt: skip
    return encode(replace(packet, layers=layers, payload=b"\xa5" * size), fill=True)


@needs_tshark
@pytest.mark.parametrize("kind", ["ipv4", "ipv6", "v1"])
def test_every_opcode(kind: str) -> None:
    rng = random.Random(kind)
    frames, packets = [], []
    for opcode in OPCODES:
        for size in SIZES[OPERATIONS[Operation(opcode & 0x1F)].load]:
            frame = frame_of(opcode, rng, kind, size)
            frames.append(frame)
            packets.append(decode(frame))
    with tshark.folder() as home:
        found = read(frames, home)
    compared = sum(
        same(packet, layers, f"opcode 0x{packet['bth']['opcode']:02x}, {len(packet.payload)} bytes")
        for packet, layers in zip(packets, found, strict=True)
    )
    assert compared > 8 * len(frames)


@needs_tshark
def test_golden_frames() -> None:
    golden = [one for one in GOLDEN if one.link == "ethernet" and one.name != "CNP"]
    with tshark.folder() as home:
        found = read([one.frame for one in golden], home)
    for one, layers in zip(golden, found, strict=True):
        assert same(decode(one.frame), layers, one.name)


@needs_tshark
@pytest.mark.parametrize("kind", ["local", "global"])
def test_native_packets_in_erf_records(kind: str) -> None:
    rng = random.Random(kind)
    frames = []
    for opcode in OPCODES:
        size = SIZES[OPERATIONS[Operation(opcode & 0x1F)].load][-1]
        data = frame_of(opcode, rng, kind, size)
        head = {"type": 21, "rlen": 16 + len(data), "wlen": len(data)}
        frames.append(codec_of(FORMS["erf"]).encode(head) + data)
    with tshark.folder() as home:
        found = read(frames, home, 197)
    for frame, layers in zip(frames, found, strict=True):
        packet = decode(frame, link="erf")
        assert same(packet, layers, f"opcode 0x{packet['bth']['opcode']:02x}")


@needs_tshark
def test_pause_frames() -> None:
    frame = bytes.fromhex("0180c200000100000000000288080101000900ff") + bytes(40)
    with tshark.folder() as home:
        [layers] = read([frame], home)
    shown = flat(layers["macc"], {})
    ours = decode(frame)["pfc"]
    assert tshark.number(shown["macc.opcode"]) == ours["opcode"]
    assert tshark.number(shown["macc.cbfc.enbv"]) == ours["enable"]
    assert tshark.number(shown["macc.cbfc.pause_time.c0"]) == ours["pause0"] == 0xFF
