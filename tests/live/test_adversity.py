# SPDX-License-Identifier: GPL-2.0-only
"""What a real link does to packets: loss, refusal, short links, links that vanish, and buffers that overflow.

Each ends in the same memory, or in a line that says why not and an exit status, in bounded time.
"""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.live.test_paths import send
from tests.support.cli.serving import serving
from tests.support.effort import effort
from tests.support.namespaces import ADDRESSES, Hosts, hosts
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Severity

SIZE = 300_000
HERE, THERE = ADDRESSES[4]
DROPS = """table ip t {{
  chain c {{ type filter hook {hook} priority 0; policy accept; udp dport 4793 numgen random mod 100 < {share} drop; }}
}}"""
"""Rules of nftables that drop a share of the UET packets, in percent; 99 is nearly all."""


def rules(at: Hosts, hook: str, share: int, *, far: bool) -> None:
    """Drop a share of the UET packets at a host."""
    if shutil.which("nft") is None:
        pytest.skip("NOT RUN: nft is not installed")
    command = [*at[far], "nft", "-f", "-"]
    done = subprocess.run(
        command, input=DROPS.format(hook=hook, share=share), capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"NOT RUN: nftables: {done.stderr.strip()}")


@pytest.mark.parametrize("mode", ["rud", "rod"][: effort(1, 2, 2)])
def test_loss_on_the_way_in(tmp_path: Path, mode: str) -> None:
    """5 % of the packets are lost on arrival, at both ends; the memory is the same, and nothing is wrong in the
    capture."""
    data, ours = tmp_path / "data", tmp_path / "ours.pcapng"
    data.write_bytes(os.urandom(effort(4 * SIZE, 40 * SIZE, 400 * SIZE)))
    with hosts() as two:
        for far in (False, True):
            rules(two, "input", 5, far=far)
        with serving(THERE, "--count", "1", prefix=two.far) as server:
            found = send(two, "--write", str(data), "--peer", THERE, "--local", HERE, "--mode", mode, "-o", str(ours))
            assert found["match"]
            assert sum(found["retransmissions"].values()) > 0
            assert server.ended()[0] == 0
    report = audit([ours], Options(complete=True))
    worse = [finding for finding in report.findings if finding.rule.severity is not Severity.NOTE]
    assert worse == []  # a loss that is inferred after an RTO is a note: its interval is the shorter one


def test_a_firewall_of_our_own(tmp_path: Path) -> None:
    """The kernel refuses some packets with EPERM, which are sent again; it refuses all, and the reason is told."""
    data = tmp_path / "data"
    data.write_bytes(os.urandom(SIZE))
    with hosts() as two:
        rules(two, "output", 20, far=False)
        with serving(THERE, prefix=two.far):
            found = send(two, "--write", str(data), "--peer", THERE, "--local", HERE)
            assert found["match"]
            assert found["refused"]["Operation not permitted"] > 0
            two.at(False, "nft", "flush", "ruleset")
            rules(two, "output", 99, far=False)
            found = send(two, "--write", str(data), "--peer", THERE, "--local", HERE, status=1)
            assert "no answer after the last retransmission" in found["error"]
            assert found["packets_sent"] >= found["refused"]["Operation not permitted"] > 0


def test_a_short_link(tmp_path: Path) -> None:
    """An MTU of 1500 gives a payload MTU of 1024; one of 4096 does not fit, and that is said before a packet leaves."""
    data = tmp_path / "data"
    data.write_bytes(os.urandom(SIZE))
    with hosts(mtu=1500) as two:
        with serving(THERE, prefix=two.far) as server:
            assert server.told["payload_mtu"] == 1024
            assert send(two, "--write", str(data), "--peer", THERE, "--local", HERE)["match"]
        with serving(THERE, "--payload-mtu", "4096", prefix=two.far):
            found = send(two, "--write", str(data), "--peer", THERE, "--local", HERE, status=2)
    assert found["stderr"].count("\n") == 1
    assert "legal: at most 1500 bytes" in found["stderr"]


CHANGES = [
    (("ip", "link", "set", "v0", "mtu", "1500"), 2, "an IP packet of 4"),
    (("ip", "link", "del", "v0"), 1, "no answer after the last retransmission"),
]
"""What happens to the link, the exit status, and words of the line that is printed."""


@pytest.mark.parametrize(("change", "status", "words"), CHANGES[: effort(1, 2, 2)])
def test_a_link_that_becomes_short_or_vanishes(
    tmp_path: Path, change: tuple[str, ...], status: int, words: str
) -> None:
    """EMSGSIZE in the middle of a transfer, and an interface that is gone: a line, and an exit status."""
    data = tmp_path / "data"
    data.write_bytes(os.urandom(1 << 20))
    arguments = ("--write", str(data), "--peer", THERE, "--local", HERE, "--repeat", "100000")
    with hosts() as two, serving(THERE, prefix=two.far) as server:

        def change_it() -> None:
            assert server.line()["what"] == "begins"
            threading.Event().wait(1.5)  # until packets flow
            two.at(False, *change)

        thread = threading.Thread(target=change_it)
        thread.start()
        found = send(two, *arguments, status=status)
        thread.join()
    assert words in found.get("error", "") + found.get("stderr", "")
    if status == 1:
        assert found["refused"]


def test_a_small_receive_buffer(tmp_path: Path) -> None:
    """Packets overrun a buffer that holds few of them, without a word of the kernel; what is lost comes again."""
    data = tmp_path / "data"
    data.write_bytes(os.urandom(SIZE))
    with hosts() as two, serving(THERE, "--receive-buffer", "32 KiB", prefix=two.far) as server:
        assert server.told["buffer"] <= 1 << 16
        assert send(two, "--write", str(data), "--peer", THERE, "--local", HERE)["match"]


def test_without_privileges(tmp_path: Path) -> None:
    """Where raw sockets are not allowed, the path raw says so, and auto takes udp."""
    dropped = [
        shutil.which("setpriv") or "",
        "--bounding-set=-net_raw",
        "--inh-caps=-net_raw",
        "--reuid=65534",
        "--clear-groups",
    ]
    if os.geteuid() or not dropped[0]:
        dropped = []
    command = [*dropped, sys.executable, "-m", "uetproto", "serve", "--local", "127.9.9.9", "--path", "raw"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "raw sockets need CAP_NET_RAW" in done.stderr
