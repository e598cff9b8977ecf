# SPDX-License-Identifier: GPL-2.0-only
"""Faults between engine and path: memory is the same at both ends, an audit finds nothing, and a seed repeats them."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.live.test_driver import NarrowPath
from tests.live.test_loopback import connected
from tests.live.test_paths import send
from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.effort import effort
from tests.support.live import addresses, running
from tests.support.live_mixed import mixed
from tests.support.namespaces import ADDRESSES, hosts
from uetproto import LocalError
from uetproto.api import fi, verbs
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Severity
from uetproto.framing.dscp import Dscp
from uetproto.impair.faults import Faults
from uetproto.live import Interface
from uetproto.live.faulty_path import FaultyPath
from uetproto.live.rate import PeerRate
from uetproto.live.time import MonotonicClock, Timers

SIZE = effort(250_000, 4_000_000, 40_000_000)
TIME = 5 * 10**9
"""Time in picoseconds that a frame waits, which is long for loopback."""
LOSS = Faults(drop=0.05)
MANY = Faults(drop=0.02, duplicate=0.03, reorder=0.03, reorder_time=TIME, delay=0.02, delay_time=TIME)
CORRUPT = replace(MANY, corrupt=0.02)
TRIM = replace(MANY, trim=0.03)  # apart from damage: a trimmed packet has no CRC, so that nobody would notice


def judged(*files: Path, damaged: bool = False) -> None:
    """Assert that an audit finds nothing wrong but, if frames are damaged on the way in, their CRCs."""
    for file in files:
        report = audit([file], Options(complete=True))
        assert report.packets > 50
        found = {one.rule.id for one in report.findings if one.rule.severity is not Severity.NOTE}
        assert found == ({"WIRE-CRC"} if damaged else set())


EACH = [(LOSS, fi.Order.NONE), (CORRUPT, fi.Order.WAW), (TRIM, fi.Order.NONE), (LOSS, fi.Order.WAW),
        (CORRUPT, fi.Order.NONE), (TRIM, fi.Order.WAW)]  # fmt: skip


@pytest.mark.parametrize(("faults", "mode"), EACH[: effort(3, 6, 6)])
def test_uet(tmp_path: Path, faults: Faults, mode: fi.Order) -> None:
    files = [tmp_path / "a.pcapng", tmp_path / "b.pcapng"]
    here, there = (
        fi.Fabric(live=Interface(at, faults=faults, capture=str(file), seed=3))
        for at, file in zip(addresses(), files, strict=True)
    )
    a, b = here.endpoint("local", msg_order=mode), there.endpoint("local")
    a.av.insert(b.address.pack())
    data, memory, back = random.Random(1).randbytes(SIZE), bytearray(SIZE), bytearray(SIZE)
    region = b.domain.mr_reg(memory)
    here.live.learn(there.live.node.address, PeerRate(there.live.path.buffer))
    with running(there.live):
        for step in (lambda: a.write(data, b.address, 0, region.key), lambda: a.read(back, b.address, 0, region.key)):
            step()
            assert [entry.ok for entry in a.cq.sread(timeout="60 s")] == [True]
        path = here.live.path
        assert isinstance(path, FaultyPath)
        here.close()
    assert memory == back == data
    wanted = {name for name in ("drop", "duplicate", "reorder", "delay", "corrupt", "trim") if getattr(faults, name)}
    assert set(path.done["sent"]) == wanted
    assert sum(here.live.fep.retransmitted.values()) > 0
    judged(*files, damaged=faults is CORRUPT)


def test_roce(tmp_path: Path) -> None:
    files = [tmp_path / "a.pcapng", tmp_path / "b.pcapng"]
    here, there = (
        verbs.Network(live=Interface(at, faults=MANY, capture=str(file), seed=5))
        for at, file in zip(addresses(), files, strict=True)
    )
    qp, far = connected(here, there)
    data = random.Random(2).randbytes(SIZE)
    source, target = qp.pd.reg_mr(bytearray(data)), far.pd.reg_mr(bytearray(SIZE))
    with running(there.live):
        qp.post_send(verbs.Opcode.RDMA_WRITE, source, remote_addr=target.addr, rkey=target.rkey)
        assert [entry.status for entry in qp.send_cq.wait(timeout="60 s")] == [verbs.Status.SUCCESS]
        here.close()
    assert bytes(target) == data
    judged(*files)


def test_mixed_operations(tmp_path: Path) -> None:
    """Writes, reads, sends and atomics for a while: nothing is lost or doubled. Most of the time is spent waiting."""
    found = mixed(effort(20, 20, 600), 1, tmp_path)
    assert found["findings"] == 0
    assert all(found[kind] > 50 for kind in ("write", "read", "send", "atomic"))
    assert all(done[name] > 0 for done in found["faults"].values() for name in ("drop", "duplicate", "reorder"))


# The path itself

FRAMES = [bytes(50) + number.to_bytes(2, "big") + bytes(10) for number in range(200)]


def test_one_seed_one_trace() -> None:
    def trace(seed: int) -> list[bytes]:
        inner = NarrowPath(*[1000] * 400)
        timers = Timers(MonotonicClock())
        path = FaultyPath(inner, Faults(drop=0.1, duplicate=0.1, corrupt=0.1), seed, timers, dscp=Dscp(), intact=50)
        for frame in FRAMES:
            assert path.send([frame]) == 1
        return inner.taken

    one = trace(1)
    assert trace(1) == one != trace(2)
    assert all(frame[:50] == bytes(50) for frame in one), "lower headers stay as they are"
    assert {len(frame) for frame in one} == {62}


class Choosy(NarrowPath):
    """A path without room for so many calls."""

    def send(self, frames: Sequence[bytes]) -> int:
        return super().send(frames) if self.takes else 0


def test_what_the_kernel_refuses_waits() -> None:
    """Duplicates and all else stay in order while the kernel has no room, and no more is taken meanwhile."""
    inner = Choosy(3, 0, 4, 100)
    timers = Timers(MonotonicClock())
    path = FaultyPath(inner, Faults(duplicate=1.0), 1, timers, dscp=Dscp(), intact=50)
    assert path.send(FRAMES[:4]) == 4
    assert path.send(FRAMES[4:5]) == 0
    assert len(inner.taken) == 3
    timers.run(timers.next)
    assert len(inner.taken) == 7
    assert path.send(FRAMES[4:5]) == 0 or len(inner.taken) >= 8
    inner.takes = [100, 100]
    assert path.send(FRAMES[5:6]) == 1
    assert inner.taken[:8] == [frame for frame in FRAMES[:4] for _ in range(2)]


def test_timers() -> None:
    timers, seen = Timers(MonotonicClock()), []
    timers.at(5, seen.append, "b")
    timers.at(5, seen.append, "c")
    timers.at(3, seen.append, "a")
    assert (timers.next, timers.run(2), timers.run(4), seen) == (3, False, True, ["a"])
    assert (timers.run(10), seen) == (True, ["a", "b", "c"])
    # A late function has the instant that it was meant for; `after` begins when it is called.
    timers.at(20, lambda _: timers.at(timers.now + 5, seen.append, "d"))
    timers.at(20, lambda _: timers.after(10**15, seen.append, "e"))
    timers.run(30)
    assert seen[3:] == ["d"]
    assert timers.next > 10**15


# Commands


def test_the_commands(tmp_path: Path) -> None:
    here, there = addresses()
    data = tmp_path / "data"
    data.write_bytes(random.Random(3).randbytes(150_000))
    faults = "drop=0.1,duplicate=0.05,reorder=0.05,reorder_time=2 ms"
    with serving(there, "--count", "1", "--faults", faults, "--seed", "1") as server:
        result = invoke(
            "send", "--write", str(data), "--peer", there, "--local", here, "--faults", faults, "--seed", "2"
        )
        assert (result.exit_code, "equal at both ends" in result.stdout) == (0, True), result.output
        assert "faults to packets sent: " in result.stdout
        status, told = server.ended()
    assert status == 0
    assert sum(told["faults"]["received"].values()) > 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--faults", "drop=2"), "drop: '2' is not legal"),
        (("--faults", "drop"), "'drop' is not legal without a value"),
        (("--faults", "dorp=0.1"), "did you mean drop"),
        (("--faults", "drop=0.1,drop=0.2"), "drop is given twice"),
        (("--faults", "delay_time=5 ms"), "delay_time has no effect without delay"),
        (("--faults", "delay=0.1,delay_time=soon"), "delay_time: 'soon' is not legal"),
        (("--faults", ""), "'' is not legal"),
        (("--faults", "drop=nan"), "drop: 'nan' is not legal"),
        (("--faults", "trim=0.1", "--transport", "rc"), "no trimming"),
        (("--faults", "corrupt=0.1", "--crc", "off"), "nobody would notice"),
    ],
)
def test_misuse(arguments: tuple[str, ...], text: str) -> None:
    result = invoke("serve", "--local", "127.0.0.1", *arguments)
    assert (result.exit_code, text in result.stderr) == (2, True), result.stderr


def test_a_scenario_in_words() -> None:
    here, there = addresses()
    faults = ("--faults", "drop=0.1,duplicate=0.1", "--seed", "5")
    with serving(there, "--scenario", "ses-write", "--count", "1", *faults) as server:
        result = invoke("send", "ses-write", "--peer", there, "--local", here, *faults)
        assert (result.exit_code, "as expected" in result.stdout) == (0, True), result.output
        assert server.ended()[0] == 0


PATHS = [
    (6, ("--path", "raw", "--ip-protocol", "253"), "drop=0.03,duplicate=0.02,reorder=0.02,trim=0.05"),
    (4, ("--path", "packet", "--transport", "rc"), "drop=0.03,duplicate=0.02,corrupt=0.02"),
    (4, ("--path", "packet"), "drop=0.03,duplicate=0.02,reorder=0.02,trim=0.05"),
    (6, ("--path", "udp"), "drop=0.03,duplicate=0.02,reorder=0.02,delay=0.02,trim=0.05"),
]


def test_each_path(tmp_path: Path) -> None:
    """Faults stand in front of each path between two hosts, with the bytes of its frames."""
    data, ours = tmp_path / "data", tmp_path / "ours.pcapng"
    data.write_bytes(random.Random(4).randbytes(200_000))
    with hosts() as two:
        for version, path, faults in PATHS[: effort(1, 4, 4)]:
            here, there = ADDRESSES[version]
            common = (*path, "--faults", faults, "--seed", "3")
            with serving(there, "--count", "1", *common, prefix=two.far) as server:
                found = send(two, "--write", str(data), "--peer", there, "--local", here, *common, "-o", str(ours))
                assert (found["match"], server.ended()[0]) == (True, 0)
            assert sum(found["faults"]["sent"].values()) > 0
            report = audit([ours], Options(complete=True))
            assert {one.rule.id for one in report.findings if one.rule.severity is not Severity.NOTE} <= {"ROCE-ICRC"}


def test_an_illegal_share() -> None:
    with pytest.raises(LocalError, match=r"faults\.drop: 1\.5 is not legal"):
        Interface("127.0.0.1", faults=Faults(drop=1.5))
