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
from tests.support.namespaces import ADDRESSES, Hosts, hosts
from tests.support.paths import PCAPS
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
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


def clean(*files: Path, keys: KeyRing | None = None) -> None:
    for file in files:
        report = audit([file], Options(complete=True, keys=keys))
        assert report.findings == []
        assert report.packets > 10
        assert not report.others


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
        assert found["security"]["opened"] == told["security"]["sealed"] >= found["packets_received"]
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


@pytest.mark.parametrize("way", ["uet-udp", "roce-packet"])
def test_dumpcap_sees_the_same(two: Hosts, tmp_path: Path, way: str) -> None:
    """What dumpcap captures at the far end is what the near end says it sent, bit by bit; an audit finds the CRCs and
    ICRCs of what the kernel really sent right."""
    if shutil.which("dumpcap") is None:
        pytest.skip("NOT RUN: dumpcap is not installed")
    here, there = ADDRESSES[4]
    data, ours, seen = tmp_path / "data", tmp_path / "ours.pcapng", tmp_path / "seen.pcapng"
    data.write_bytes(os.urandom(40_000))
    common = ("--path", *WAYS[way])
    command = [*two.far, "dumpcap", "-q", "-i", "v1", "-f", "udp", "-w", str(seen)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as judge:
        assert judge.stderr is not None
        assert any("File:" in line for line in judge.stderr), "dumpcap began"
        with serving(there, *common, "--count", "1", prefix=two.far) as server:
            send(two, "--write", str(data), "--peer", there, "--local", here, *common, "-o", str(ours))
            assert server.ended()[0] == 0
        for _ in range(100):  # dumpcap writes what it has captured some time later
            if len(packets(seen)) >= len(packets(ours)):
                break
            threading.Event().wait(0.1)
        judge.send_signal(signal.SIGINT)
    with open_capture(str(ours)) as mine, open_capture(str(seen)) as theirs:
        sent = sorted(from_addresses(record.data, 0) for record in mine)
        wire = sorted(from_addresses(record.data, 14) for record in theirs)
    assert len(sent) > 10
    assert sent == wire
    clean(seen)
