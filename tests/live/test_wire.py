# SPDX-License-Identifier: GPL-2.0-only
"""A wire between two hosts, beside the switch of the emulator: what it does to frames, and what an audit says of it."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.live.test_paths import send
from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.effort import effort
from tests.support.namespaces import ADDRESSES, Hosts, hosts
from uetproto import LocalError
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Severity
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.switch import Switch
from uetproto.engine.contract import Datagram, TrafficClass
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.impair.faults import Faults
from uetproto.impair.link import EmulatedLink
from uetproto.impair.queue import OutputQueue, levels_by
from uetproto.impair.red import Marker, Red
from uetproto.live.wire import WireConfig, WireWay

HERE, THERE = ADDRESSES[4]


class Sink:
    """A port at which frames leave, in virtual time."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.device = clock, SimpleNamespace(mtu=9000, name="out")
        self.seen: list[tuple[int, bytes]] = []

    def take(self, frame: bytes) -> None:
        self.seen.append((self.clock.now, frame))

    send = take


def frames() -> list[bytes]:
    framer = UetFramer(1, 4, Encapsulation(), ecn_capable=True)
    rng = random.Random(7)
    return [
        framer.frame(Datagram(1, 2, bytes(20), rng.randbytes(rng.randrange(4000)), entropy=5,
                              traffic_class=rng.choice(list(TrafficClass))))
        for _ in range(300)
    ]  # fmt: skip


def test_a_way_is_a_port_of_the_emulated_switch() -> None:
    """In virtual time, the same frames leave at the same instants, marked, trimmed and dropped alike."""
    config = WireConfig(rate=10**9, delay=10**6, queue=6_000, red=Red(kmin=1_000, kmax=5_000, pmax=0.5), trim=True)
    assert config.red is not None
    clock = Clock()
    wire, emulated = Sink(clock), Sink(clock)
    way = WireWay("a > b", config, clock, random.Random(3), wire, lambda frame, now: None)  # type: ignore[arg-type]
    assert config.rate is not None
    link = EmulatedLink(clock, emulated, rate=config.rate, delay=config.delay, mtu=9000)
    marker = Marker(config.red, random.Random(random.Random(3).getrandbits(64)))
    queue = OutputQueue(clock, link, capacity=config.queue, levels=levels_by(config.dscp), marker=marker)
    switch = Switch(dscp=config.dscp, trimming=True)
    for mac in {frame[:6] for frame in frames()}:
        switch.attach(mac, queue)
    times = random.Random(9)
    for frame in frames():
        clock.advance(times.randrange(10**7))
        way.take(frame)
        switch.take(frame)
    clock.advance(10**10)
    assert wire.seen == emulated.seen
    assert (way.trimmed, way.dropped) == (switch.trimmed, switch.dropped)
    assert min(way.trimmed, way.dropped, way.summary["marked"], marker.marked) > 5


def test_one_seed_one_trace() -> None:
    def trace(seed: int) -> list[tuple[int, bytes]]:
        clock = Clock()
        sink = Sink(clock)
        config = WireConfig(delay=1000, faults=Faults(drop=0.1, corrupt=0.1, duplicate=0.1, reorder=0.1))
        way = WireWay("a > b", config, clock, random.Random(seed), sink, lambda frame, now: None)  # type: ignore[arg-type]
        for frame in frames():
            way.take(frame)
            clock.advance(1_000_000)
        clock.advance(10**9)
        return sink.seen

    assert trace(1) == trace(1) != trace(2)


def test_noise_passes() -> None:
    """Frames of any length and content, also with the EtherTypes of IP, raise nothing and are all accounted for."""
    clock, rng = Clock(), random.Random(11)
    sink = Sink(clock)
    config = WireConfig(
        rate=10**7, queue=3000, red=Red(kmin=10, kmax=2000, pmax=0.5), trim=True,
        faults=Faults(drop=0.1, corrupt=0.3, trim=0.3, duplicate=0.1, delay=0.1, reorder=0.1),
    )  # fmt: skip
    way = WireWay("a > b", config, clock, random.Random(1), sink, lambda frame, now: None)  # type: ignore[arg-type]
    for _ in range(effort(2000, 20_000, 200_000)):
        kind = rng.choice((b"\x08\x00", b"\x86\xdd", b"\x81\x00", b"\x08\x06", rng.randbytes(2)))
        way.take((rng.randbytes(12) + kind + rng.randbytes(rng.randrange(120)))[: rng.randrange(140)])
        clock.advance(rng.randrange(10**8))
    clock.advance(10**12)
    done = way.summary["faults"]
    assert way.forwarded + way.dropped + done["drop"] == way.frames + done["duplicate"]
    assert len(sink.seen) == way.forwarded


@contextmanager
def wired(three: Hosts, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run `uetproto wire` at the host in the middle."""
    command = [*three.between, sys.executable, "-m", "uetproto", "wire", "w0", "w1", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["kind"] == "forwarding"
            yield process
        finally:
            process.kill()


def ended(process: "subprocess.Popen[str]") -> tuple[int, dict[str, Any]]:
    out, error = process.communicate(timeout=20)
    assert out, error
    return process.returncode, json.loads(out.splitlines()[-1])


WAYS = [
    (("--faults", "drop=0.03,duplicate=0.02,reorder=0.02", "--seed", "5"), ()),
    (("--rate", "300Mb/s", "--delay", "100 us", "--queue", "40 KiB", "--red", "8000,30000,0.5", "--trim"),
     ("--path", "packet")),
]  # fmt: skip
"""Options of the wire, and of both ends."""


def test_between_two_hosts(tmp_path: Path) -> None:
    """Memory is equal over a wire that loses, and over one that trims and marks; both captures are clean. Then an
    interface vanishes."""
    data, ours, seen = tmp_path / "data", tmp_path / "ours.pcapng", tmp_path / "wire.pcapng"
    data.write_bytes(os.urandom(effort(300_000, 5_000_000, 50_000_000)))
    with hosts(between=True) as three:
        for number, (options, ends) in enumerate(WAYS):
            with wired(three, *options, "-o", str(seen)) as wire:
                with serving(THERE, "--count", "1", *ends, prefix=three.far) as server:
                    found = send(three, "--write", str(data), "--peer", THERE, "--local", HERE, *ends, "-o", str(ours))
                    assert found["match"]
                    assert server.ended()[0] == 0
                wire.send_signal(signal.SIGINT)
                status, told = ended(wire)
            assert status == 130
            assert told["error"] is None
            way = told["ways"]["w0 > w1"]
            if number == 0:
                assert way["faults"]["drop"] > 0
            else:
                assert min(way["trimmed"], way["marked"]) > 0
            report = audit([ours, seen], Options(complete=True))
            assert [one for one in report.findings if one.rule.severity is not Severity.NOTE] == []
            assert report.packets > 300
        with wired(three) as wire:
            subprocess.run([*three.between, "ip", "link", "del", "w1"], check=True)
            status, told = ended(wire)
        assert (status, "w1 is gone or down" in told["error"]) == (1, True)


def test_misuse(tmp_path: Path) -> None:
    for arguments, text in (
        (("lo", "lo"), "lo and lo are not two"),
        (("lo", "nosuch0"), "nosuch0"),
        (("lo", "x", "--trim"), "trim: does nothing without a rate"),
        (("lo", "x", "--rate", "fast"), "--rate: 'fast' is not legal"),
        (("lo", "x", "--red", "1,2"), "--red: '1,2' is not legal"),
        (("lo", "x", "--red", "9,2,1"), "kmin 9, kmax 2"),
        (("lo", "x", "--faults", "dorp=1"), "did you mean drop"),
        (("lo", "x", "--delay", "-1 us"), "--delay"),
        (("lo", "x", "-o", str(tmp_path / "none" / "a.pcapng")), "a.pcapng"),
    ):
        result = invoke("wire", *arguments)
        assert (result.exit_code, text in result.stderr) == (2, True), (arguments, result.stderr)
    with pytest.raises(LocalError, match="red: does nothing without a rate"):
        WireConfig(red=Red())
