# SPDX-License-Identifier: GPL-2.0-only
"""Packets to our port are ours, whatever protocol has their source port; all others keep theirs."""

import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.interop.tshark import folder, needs_tshark, run
from tests.support.strategies import lower_layers, random_packet
from uetproto import Layer, Packet, Trailer, encode

pytestmark = needs_tshark

ETHERNET, RAW, SLL = 1, 101, 113
NTP, TFTP = 123, 69


@pytest.fixture
def home() -> Iterator[Path]:
    with folder() as path:
        yield path


def capture(path: Path, frames: list[bytes], link: int = ETHERNET) -> Path:
    """Write a pcap of a link type, without the code under test."""
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link))
        for index, data in enumerate(frames):
            out.write(struct.pack("<IIII", index, 0, len(data), len(data)) + data)
    return path


UET = (
    Layer("pds.rod_req.syn", {"next_hdr": 3, "psn": 7, "spdcid": 9, "clear_psn_offset": -1}),
    Layer("ses.request_std.som", {"opcode": 1, "message_id": 1, "request_length": 8, "eom": 1}),
)


def packet(sport: int = NTP, dport: int = 4793, **settings: Any) -> bytes:
    """A frame of UET between two ports; `settings` are those of `lower_layers`."""
    layers = lower_layers(Random(3), "udp", settings.pop("version", 4), settings.pop("tags", 0), bool(settings))
    for layer in layers:
        assert isinstance(layer.values, dict)
        layer.values.pop("dscp", None)
        if layer.form == "udp":
            layer.values.update(sport=sport, dport=dport)
    return encode(Packet([*layers, *UET], bytes(8), Trailer("crc32c", 0)), fill=True)


def ip_of(frame: bytes) -> bytes:
    return frame[14:]


def protocols(path: Path, home: Path, *options: str) -> list[str]:
    """What Wireshark takes each frame for, from UDP on."""
    out, _ = run(["-r", path, "-T", "fields", "-e", "frame.protocols", "-e", "uetp.psn", *options], home)
    return [line.split("\t")[0].rpartition(":udp:")[2] + (" 7" if "\t7" in line else "") for line in out.splitlines()]


def test_source_ports_of_others(home: Path) -> None:
    inner = packet()
    vxlan = struct.pack(">HHHHII", 5000, 4789, 16 + len(inner), 0, 1 << 27, 0) + inner
    outer = [Layer("ethernet", {"type": 0x0800}), Layer("ipv4", {"ttl": 64, "protocol": 17, "src": 1, "dst": 2})]
    ours = [packet(), packet(TFTP), packet(tags=1), packet(tags=2), packet(version=6), packet(version=6, extensions=1),
            encode(Packet(outer, vxlan), fill=True)]  # fmt: skip
    theirs = [packet(4793, NTP), packet(NTP, 40000)]
    path = capture(home / "ports.pcap", [*ours, theirs[0], *ours, theirs[1], *ours])
    found = protocols(path, home)
    assert found == [*["uetp 7"] * 7, "ntp", *["uetp 7"] * 7, "ntp", *["uetp 7"] * 7]
    assert protocols(path, home, "-2") == found


def test_decode_as_wins(home: Path) -> None:
    path = capture(home / "as.pcap", [packet(), packet(TFTP), packet(50000)])
    assert protocols(path, home, "-d", f"udp.port=={NTP},tftp") == ["tftp", "uetp 7", "uetp 7"]
    assert protocols(path, home, "-d", "udp.port==4793,tftp") == ["tftp"] * 3
    assert protocols(path, home, "-o", "uetp.port:0") == ["ntp", "tftp", "data"]


@pytest.mark.parametrize("link", [RAW, SLL])
def test_without_ethernet_uet_stands_beneath_the_other_protocol(link: int, home: Path) -> None:
    cooked = struct.pack(">HHH8sH", 0, 1, 6, bytes(8), 0x0800) if link == SLL else b""
    frames = [cooked + ip_of(packet(port)) for port in (NTP, 50000)]
    found = protocols(capture(home / "link.pcap", frames, link), home)
    assert found == ["ntp 7", "uetp 7"]


def test_heuristic_finds_uet_on_other_ports(home: Path) -> None:
    """Only where the preference is on, and not among random bytes."""
    rng = Random(5)
    frames = [packet(50000, 50001)]
    for _ in range(200):
        legal = random_packet(rng, encapsulation="udp", version=4, tags=0, extensions=False)
        head = encode(legal, fill=True)[:34]
        data = rng.randbytes(rng.randint(12, 80))
        frames.append(head + struct.pack(">HHHH", 50000, 50001, 8 + len(data), 0) + data)
    path = capture(home / "others.pcap", frames)
    assert [text for text in protocols(path, home) if "uetp" in text] == []
    found = protocols(path, home, "-o", "uetp.heuristic:TRUE")
    assert found[0] == "uetp 7"
    assert [text for text in found[1:] if "uetp" in text] == []
