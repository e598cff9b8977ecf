# SPDX-License-Identifier: GPL-2.0-only
"""Every path between two hosts: UET and RoCE, over IPv4 and IPv6, with a second program as the judge of captures."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.serving import serving
from tests.support.effort import effort
from tests.support.live import clean
from tests.support.namespaces import ADDRESSES, Hosts, hosts
from tests.support.paths import PCAPS
from uetproto.engine.tss.keys import KeyRing
from uetproto.wire.headers.uet_pds import PdsType
from uetproto.wire.pcap import open_capture

SIZE = 150_000


def send(at: Hosts, *arguments: str, status: int = 0) -> dict[str, Any]:
    """Run `uetproto send` at the near host, and return what it prints."""
    command = [*at.near, sys.executable, "-m", "uetproto", "send", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"stderr": done.stderr}
    return found


@pytest.fixture(scope="module")
def two() -> Any:
    with hosts() as found:
        yield found


KEYS = PCAPS / "gradient-sealed-cluster.keys.toml"  # with a new key for every second packet
WAYS = {
    "uet-udp": ("udp",), "uet-raw": ("raw",), "uet-native": ("raw", "--ip-protocol", "253"),
    "roce-udp": ("udp", "--transport", "rc"), "roce-raw": ("raw", "--transport", "rc"),
    "roce-packet": ("packet", "--transport", "rc"),
    **{f"sealed-{path}": (path, "--keys", str(KEYS)) for path in ("udp", "raw", "packet")},
    "uet-segments": ("udp", "--segmentation", "--entropies", "1", "--checksum", "on"),
}  # fmt: skip
"""Paths with their options, by name."""
EVERY = [(way, version) for number, way in enumerate(WAYS) for version in (4, 6)
         if effort(0, 1, 1) or (version == (4, 6)[number % 2] and way != "roce-packet")]  # fmt: skip
"""Each path over IPv4 and IPv6; `ci` tries one of them each, and roce-packet beside dumpcap alone."""


@pytest.mark.parametrize(("way", "version"), EVERY)
def test_write(two: Hosts, tmp_path: Path, way: str, version: int) -> None:
    """A file is written; both ends hold the same bytes, and their captures are right."""
    here, there = ADDRESSES[version]
    data, ours, theirs = tmp_path / "data", tmp_path / "ours.pcapng", tmp_path / "theirs.pcapng"
    data.write_bytes(os.urandom(SIZE))
    common = ("--path", *WAYS[way])
    with serving(there, *common, "--count", "1", "-o", str(theirs), prefix=two.far) as server:
        found = send(two, "--write", str(data), "--peer", there, "--local", here, *common, "-o", str(ours))
        assert found["match"]
        assert found["refused"] == {}
        status, told = server.ended()
        assert status == 0
    keys = None
    if way.startswith("sealed"):
        keys = KeyRing.read(KEYS)
        assert found["security"]["opened"] == found["packets_received"] <= told["security"]["sealed"]
        assert (found["security"]["troubles"], told["security"]["troubles"]) == ([], [])
        with open_capture(str(ours)) as records:
            assert all(record.data[28 if version == 4 else 48] >> 3 == PdsType.TSS for record in records)
    clean(ours, theirs, keys=keys)


def test_an_address_of_our_own(two: Hosts, tmp_path: Path) -> None:
    """A target whose address no kernel has, and a rendezvous at an address of the kernel; --allow holds for both."""
    data = tmp_path / "data"
    data.write_bytes(os.urandom(SIZE))
    more = ("--transport", "rc", "--path", "packet", "--rendezvous", "10.99.0.2:4794")
    ours = ("--interface", "v1", "--allow", "10.99.0.1", "--allow", "10.99.0.66", "--count", "1")
    with serving("10.99.0.77", *more, *ours, prefix=two.far) as server:
        to = ("--write", str(data), "--peer", "10.99.0.77", "--interface", "v0")
        refused = send(two, *to, "--local", "10.99.0.65", *more, status=2)
        assert "address: 10.99.0.65 is not served here" in refused["stderr"]
        found = send(two, *to, "--local", "10.99.0.66", *more)
        assert (found["match"], found["refused"]) == (True, {})
        status, told = server.ended()
        assert (status, told["sessions"]) == (0, 1)


def from_addresses(frame: bytes, start: int) -> bytes:
    """The bytes from the IP addresses on, without the UDP checksum, of a frame whose IP header begins at `start`."""
    version = frame[start] >> 4
    ip = frame[start : start + int.from_bytes(frame[start + 2 : start + 4], "big")] if version == 4 else frame[start:]
    at, udp = (12, 20) if version == 4 else (8, 40)
    return ip[at : udp + 6] + ip[udp + 8 :]


def packets(file: Path) -> list[bytes]:
    """Return the packets of a capture, which may still be written."""
    with open_capture(str(file)) as records:
        return [record.data for record in records]


SEEN = [
    ("uet-udp", 4),
    ("roce-packet", 6),
    ("tap", 4),
    *[("uet-udp", 6), ("roce-packet", 4), ("tap", 6)][: effort(0, 3, 3)],
]
TAP = {4: ("10.97.0.1", "10.97.0.2", "24"), 6: ("fd97::1", "fd97::2", "64")}
"""Addresses of the kernel and of ours on the TAP device, and the size of their network."""


@pytest.mark.parametrize(("way", "version"), SEEN)
def test_dumpcap_sees_the_same(two: Hosts, tmp_path: Path, way: str, version: int) -> None:
    """What dumpcap captures is what both ends say they sent and received, bit by bit; an audit finds the CRCs and ICRCs
    of what was really sent right. On the TAP device, one end is the kernel's UDP and the other one ours."""
    if shutil.which("dumpcap") is None:
        pytest.skip("NOT RUN: dumpcap is not installed")
    here, there = ADDRESSES[version]
    far, link, serve, to = two.far, "v1", WAYS.get(way, ()), WAYS.get(way, ())
    if way == "tap":
        here, there, size = TAP[version]
        far, link, serve, to = two.near, "tap0", ("tap", "--interface", "tap0"), ("udp",)
        made = subprocess.run([*far, "ip", "tuntap", "add", link, "mode", "tap"], capture_output=True, check=False)
        if made.returncode:
            pytest.skip(f"NOT RUN: the path tap: {made.stderr.decode().strip()}")
        nodad = ("nodad",) if version == 6 else ()
        subprocess.run([*far, "ip", "link", "set", link, "up", "mtu", "9216"], check=True)
        subprocess.run([*far, "ip", "addr", "add", f"{here}/{size}", "dev", link, *nodad], check=True)
        serve, to = (*serve, "--rendezvous", f"[{here}]:4795"), (*to, "--rendezvous", f"[{here}]:4795")
    data, ours, theirs, seen = (tmp_path / name for name in ("data", "ours.pcapng", "theirs.pcapng", "seen.pcapng"))
    data.write_bytes(os.urandom(40_000))
    command = [*far, "dumpcap", "-q", "-i", link, "-f", "udp and not port 5353", "-w", str(seen)]
    try:
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as judge:
            assert judge.stderr is not None
            assert any("File:" in line for line in judge.stderr), "dumpcap began"
            with serving(there, "--path", *serve, "--count", "1", "-o", str(theirs), prefix=far) as server:
                more = ("--local", here, "--path", *to, "-o", str(ours))
                send(two, "--write", str(data), "--peer", there, *more)
                assert server.ended()[0] == 0
            for _ in range(100):  # dumpcap writes what it has captured some time later
                if len(packets(seen)) >= len(packets(ours)):
                    break
                threading.Event().wait(0.1)
            judge.send_signal(signal.SIGINT)
    finally:
        if way == "tap":
            subprocess.run([*far, "ip", "link", "del", link], check=False, capture_output=True)
    sent, received, wire = (
        sorted(from_addresses(data, start) for data in packets(file))
        for file, start in ((ours, 0), (theirs, 0), (seen, 14))
    )
    assert len(sent) > 10
    assert sent == received == wire
    clean(seen)
