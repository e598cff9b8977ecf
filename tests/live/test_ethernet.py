# SPDX-License-Identifier: GPL-2.0-only
"""The paths of whole frames, packet and tap: what `tests.support.ethernet` tries in a network of its own."""

import json
import shutil
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import examples
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.live import Interface
from uetproto.live.frames import echo_reply, icmp_error, segments, untagged, with_udp_checksum
from uetproto.live.neighbours import Neighbours
from uetproto.live.path import PathSetup
from uetproto.live.path_packet import EthernetPath
from uetproto.live.sockets import Device

CASES = (
    *(f"{kind}-{transport}-{version}" for version in (4, 6) for kind, transport in (
        ("packet", "uet"), ("packet", "roce"), ("packet", "native"), ("vlan", "uet"), ("vlan", "roce"),
        ("tap", "uet"), ("tap", "roce"),
    )),
    "trimmed-4", "trimmed-6", "numbered", "nobody", "icmp", "ping-4", "ping-6", "held",
    *(f"errors-{kind}-{version}" for kind in ("udp", "raw", "native") for version in (4, 6)),
    "auto", "superframes-4", "superframes-6", "gone", "too_long",
    "capture_golden", "capture_ends",
)  # fmt: skip


def test_in_a_network_of_its_own() -> None:
    """Each path carries UET and RoCE over IPv4 and IPv6 with clean captures, and says what stands against it."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("NOT RUN: unshare or ip is not installed")
    allowed = subprocess.run(["unshare", "-Urn", "true"], capture_output=True, text=True, check=False)
    if allowed.returncode:
        pytest.skip(f"NOT RUN: no network namespaces: {allowed.stderr.strip()}")
    tap = ["unshare", "-Urn", "ip", "tuntap", "add", "tap0", "mode", "tap"]
    cases = list(CASES)
    closed = subprocess.run(tap, capture_output=True, text=True, check=False)
    if closed.returncode:
        cases = [case for case in cases if not case.startswith(("tap", "icmp", "ping", "auto"))]
    command = ["unshare", "-Urn", sys.executable, "-m", "tests.support.ethernet", *cases]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["case"] for one in told] == cases, done.stderr
    assert [one for one in told if one["problem"]] == []
    if closed.returncode:
        pytest.skip(f"NOT RUN: the path tap: {closed.stderr.strip()}")


def neighbours(version: int) -> tuple[Neighbours, list[bytes], Counter[str]]:
    sent: list[bytes] = []
    lost: Counter[str] = Counter()
    return Neighbours(
        0x0A000001, version, b"\2\0\0\0\0\1", answers=True, transmit=sent.append, release=lambda hop, frames: None,
        lost=lost,
    ), sent, lost  # fmt: skip


def test_two_neighbours_find_each_other() -> None:
    """A question and its answer, over both versions; another host with our address is told."""
    for version in (4, 6):
        (one, asked, lost), (_, answered, _) = neighbours(version), neighbours(version)
        other = Neighbours(
            0x0A000002, version, b"\2\0\0\0\0\2", answers=True, transmit=answered.append,
            release=lambda hop, frames: None, lost=Counter(),
        )  # fmt: skip
        assert one.mac(0x0A000002, 0) is None
        assert other.take(asked[0], 0)
        assert other.mac(0x0A000001, 0) == b"\2\0\0\0\0\1", "who asks is known"
        assert one.take(answered[0], 0)
        assert one.mac(0x0A000002, 0) == b"\2\0\0\0\0\2"
        thief = Neighbours(
            0x0A000001, version, b"\2\0\0\0\0\3", answers=True, transmit=lambda frame: one.take(frame, 0),  # noqa: B023
            release=lambda hop, frames: None, lost=Counter(),
        )  # fmt: skip
        thief.announce()
        assert lost == {"another host, 02:00:00:00:00:03, has the address "
                        f"{'10.0.0.1' if version == 4 else '::a00:1'}, too": 1}  # fmt: skip


_KINDS = (b"\x08\x06", b"\x08\x00", b"\x86\xdd", b"\x81\x00")


@examples(400)
@given(st.sampled_from(_KINDS), st.binary(max_size=140), st.sampled_from((4, 6)))
def test_frames_from_outside(kind: bytes, rest: bytes, version: int) -> None:
    """Nothing that arrives raises an exception, nor is anything kept beyond the limits."""
    frame = bytes(12) + kind + rest
    found, sent, _ = neighbours(version)
    found.take(frame, 0)
    assert len(sent) <= 1
    icmp_error(frame, version, bytes(4 if version == 4 else 16), 17)
    echo_reply(frame, version)
    untagged(frame)
    for start in (0, 34, 54, len(frame)):
        assert b"".join(segments(frame, start, 9))
    assert len(with_udp_checksum(frame, version)) == len(frame)


class Loop(EthernetPath):
    """A path without a device, which receives what it is given."""

    name, cannot, buffer = "loop", (), 0

    def __init__(self, version: int) -> None:
        interface = Interface("10.0.0.1" if version == 4 else "fd00::1", path="packet", checksum="on")
        framer = UetFramer(int(interface.address), version, Encapsulation())
        setup = PathSetup(interface=interface, transport="uet", peer_port=4793, lower_headers=framer.lower_headers)
        super().__init__(setup, Device("loop", 1, bytes(6), 1500, True, False), b"\2\0\0\0\0\1", owned=False)
        self.frames: list[bytes] = []
        self.sent: list[bytes] = []

    def _put(self, frame: bytes) -> None:
        self.sent.append(frame)

    def _get(self, limit: int) -> list[bytes]:
        return self.frames

    def _hop(self, dst: int) -> int:
        return dst

    def fileno(self) -> int:
        return 0

    _writable = fileno

    def close(self) -> None:
        pass


@examples(400)
@given(st.sampled_from(_KINDS), st.binary(max_size=140), st.sampled_from((4, 6)), st.data())
def test_a_path_takes_anything(kind: bytes, rest: bytes, version: int, data: st.DataObject) -> None:
    """A frame from outside raises no exception, and is answered by one frame at most; so is one for our address."""
    path = Loop(version)
    at = slice(30, 34) if version == 4 else slice(38, 54)
    frame = bytearray(bytes(12) + kind + rest)
    if len(frame) >= at.stop:
        frame[at] = int(path._setup.interface.address).to_bytes(at.stop - at.start, "big")
        frame[23 if version == 4 else 20] = data.draw(st.sampled_from((1, 17, 58)))
    path.frames = [bytes(frame)]
    for received in path.receive(1):
        assert received == bytes(frame)
    assert len(path.sent) <= 1
