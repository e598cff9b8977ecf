# SPDX-License-Identifier: GPL-2.0-only
"""tshark explains the golden captures of collectives that the network does: messages of SHARP, multicast chunks.

What is not published is marked in the dissection (sharp.md §8).
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.support.interop import tshark
from tests.support.interop.golden import ROOT
from tests.support.interop.roce_tshark import OTHERS
from tests.support.interop.sharp_tshark import ASKED, same
from tests.support.interop.tshark import needs_tshark
from uetproto import Packet, decode
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.forms import MCAST_FORMS, SHARP_FORMS
from uetproto.wire.headers.sharp import Flag, SharpOpcode

PATHS = sorted((ROOT / "pcaps").glob("collective-*.pcapng"))
DISABLED = [argument for name in OTHERS for argument in ("--disable-protocol", name)]
OURS = {*SHARP_FORMS, *MCAST_FORMS}


def frames(path: Path) -> list[bytes]:
    with open_capture(path) as capture:
        return [record.data for record in capture]


def packets(path: Path) -> list[Packet]:
    return [decode(frame, sharp=True, mcast=True) for frame in frames(path)]


def messages(name: str) -> list[Packet]:
    return [packet for packet in packets(ROOT / "pcaps" / name) if "sharp" in packet]


@needs_tshark
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_every_message_is_explained(path: Path) -> None:
    explained = 0
    with tshark.folder() as home:
        copy = home / path.name
        copy.write_bytes(path.read_bytes())
        copy.chmod(0o644)
        shown = tshark.shown_file(copy, home, *ASKED)
        for frame, packet, one in zip(frames(path), packets(path), shown, strict=True):
            if any(layer.form in OURS for layer in packet.layers):
                same(frame, one)
                assert one is not None
                assert not one.experts & {"malformed", "reserved", "short"}
                explained += 1
        marked = 'uetp.sharp && (uetp.origin == "ours" || uetp.origin == "inferred")'
        wanted = [0, explained if "sharp" in path.stem else 0]
        assert tshark.counts(copy, home, ["_ws.malformed", marked], *ASKED, *DISABLED) == wanted
    assert explained > 10


JOINED = {"GROUP_JOIN_REQ": 8, "GROUP_JOIN_RESP": 6}
"""Of 4 hosts at their leaves, and one for each again from leaf to root."""


def opcodes(name: str) -> Counter[str]:
    return Counter(SharpOpcode(packet["sharp"]["opcode"]).name for packet in messages(name))


@pytest.mark.parametrize(("name", "size"), [("collective-sharp.pcapng", 122), ("collective-sharp-uet.pcapng", 166)])
def test_the_shape_of_the_example(name: str, size: int) -> None:
    """sharp.md §7: every message of it is in the capture once; 6 up, 6 down, of 32 bytes each. `size`: of the frame."""
    path = ROOT / "pcaps" / name
    assert opcodes(name) == JOINED | {"AGG_REQ": 6, "AGG_RESULT": 6}
    sizes, flags = Counter[int](), Counter[int]()
    for frame, packet in zip(frames(path), packets(path), strict=True):
        if "sharp" in packet and packet["sharp"]["count"]:
            sizes[len(frame)] += 1
            flags[packet["sharp"]["flags"] & ~Flag.LE] += 1
    assert sizes == {size: 12}
    assert flags == {0x1880: 6, 0x1888: 6}


def test_results_by_multicast() -> None:
    """§7: one datagram that switches copy, and two results without data, by which A and B close their OST."""
    found = messages("collective-sharp-mcast.pcapng")
    results = [packet for packet in found if packet["sharp"]["opcode"] == SharpOpcode.AGG_RESULT]
    copies = [packet for packet in results if packet["sharp"]["flags"] & Flag.MCAST]
    assert {packet["sharp"]["child_idx"] for packet in copies} == {0xFF}
    assert len(copies) == 1 + 4  # as it leaves the root, and as it comes to each host
    without = [packet for packet in results if packet["sharp"]["flags"] & Flag.NODATA]
    assert len(results) - len(copies) == len(without) == 2


def test_a_stream_is_locked() -> None:
    found = opcodes("collective-sharp-sat.pcapng")
    assert found["LOCK_REQ"] == 6
    assert found["AGG_REQ"] == found["AGG_RESULT"] == 6 * 4  # chunks of 2048 bytes
