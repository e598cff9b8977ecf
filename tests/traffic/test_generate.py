# SPDX-License-Identifier: GPL-2.0-only
"""Traffic of a profile: exact counts, order of time, one seed one file, constant memory, what readers say of it."""

import gc
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.effort import effort
from tests.support.interop.tshark import folder, needs_tshark, run, write_pcap
from tests.support.traffic.generate import MADE, Nowhere, frames, made, records
from uetproto.engine.contract import MICROSECOND, NEVER
from uetproto.traffic.generate import TrafficRun, generate
from uetproto.traffic.profile import load, names
from uetproto.wire.headers.uet_pds import PdsType
from uetproto.wire.serial import add32, diff32

DATA = {PdsType.ROD_REQ, PdsType.RUD_REQ}
UET = [name for name in names() if load(name).transport == "uet" and load(name).security is None]
TO_TSHARK = effort(700, 1_500, 1_500)


# What is in it


@pytest.mark.parametrize("name", UET)
@pytest.mark.parametrize("how", ["encapsulation=udp", "encapsulation=native", "crc=off", "ip=6"])
def test_every_packet_is_whole_and_in_order(name: str, how: str, tmp_path: Path) -> None:
    found = records(made(tmp_path, name, how))
    assert len(found) == MADE
    times = [time for time, _ in found]
    assert times == sorted(times)
    for _, packet in found:
        assert packet.error is None
        assert set(packet.notes) <= {"trimmed"}
        if how == "crc=off":
            assert packet.trailer is None
        elif not packet.notes:
            assert packet.trailer is not None
            assert packet.trailer.ok
        assert ("ipv6" in [layer.form for layer in packet.layers]) == (how == "ip=6")


@needs_tshark
def test_tshark_finds_nothing_malformed() -> None:
    """All profiles are in one capture."""
    with folder() as home:
        path = home / "all.pcap"
        write_pcap(path, [frame for name in UET for frame in frames(made(home, name, packets=TO_TSHARK))])
        path.chmod(0o644)
        damaged = (
            "uetp.expert.malformed || uetp.expert.reserved || uetp.expert.short || uetp.expert.crc || _ws.malformed"
        )
        ours = ("-o", "udp.try_heuristic_first:TRUE")  # entropy may be a source port of others
        whole = ("-Y", f"uetp && !({damaged})", "-T", "fields", "-e", "frame.number")
        out, _ = run(["-r", path, *whole, *ours], home)
        assert list(map(int, out.split())) == list(range(1, len(UET) * TO_TSHARK + 1))


def test_they_really_talk(tmp_path: Path) -> None:
    """Each ACK acknowledges what was sent before it; PSNs of first transmissions follow one another."""
    sent: dict[int, int] = {}
    acks = 0
    for _, packet in records(made(tmp_path, "bench", packets=effort(2500, 5000, 5000))):
        form, values, _ = packet.layers[3]
        if form.startswith("pds.rud_req"):
            last = sent.get(values["spdcid"])
            assert last is None or values["psn"] == add32(last, 1)
            sent[values["spdcid"]] = values["psn"]
        elif form.startswith("pds.ack"):
            acks += 1
            assert diff32(values["cack_psn"], sent[values["dpdcid"]]) <= 0
    assert acks > 100


def test_lost_packets_are_seen_where_they_were_sent(tmp_path: Path) -> None:
    """interfaces.md §7, `tap`."""
    losses = {}
    for tap in ("initiator", "target", "wire"):
        path = tmp_path / f"{tap}.pcap"
        profile = load("bench", ["loss=0.05", "sizes=4 KiB", "pds.rto_init_time=20 us", f"tap={tap}"])
        outcome = generate(profile, str(path), duration=effort(600, 3000, 3000) * MICROSECOND)
        assert outcome.happened["lost"] > 20
        kinds = Counter(packet.layers[0].values["src"] for _, packet in records(path))
        losses[tap] = (kinds[0x02000A000001], kinds[0x02000A000101])
    assert losses["initiator"][0] > losses["target"][0]
    assert losses["initiator"][1] < losses["target"][1]
    assert losses["wire"] == (losses["initiator"][0], losses["target"][1])


def test_trimmed_packets_are_seen_at_the_target(tmp_path: Path) -> None:
    for tap, wanted in (("initiator", False), ("target", True)):
        found = records(made(tmp_path, "bench", "trim=0.05", f"tap={tap}"))
        assert any("trimmed" in packet.notes for _, packet in found) is wanted
        assert any(layer.form == "pds.nack" for _, packet in found for layer in packet.layers)


def test_reordering(tmp_path: Path) -> None:
    psns = [p.layers[3].values["psn"] for _, p in records(made(tmp_path, "bench", "reorder=0.02", "tap=target"))
            if p.layers[3].form.startswith("pds.rud_req")]  # fmt: skip
    assert any(diff32(b, a) < 0 for a, b in pairwise(psns))


def test_endpoints_jobs_and_pdcs(tmp_path: Path) -> None:
    settings = ("endpoints=5", "jobs=3", "pdcs=4", "sizes=100", "operations_per_pdc=20", "modes=rod,rud")
    found = [packet for _, packet in records(made(tmp_path, "bench", *settings, packets=effort(2500, 6000, 6000)))]
    sources = {packet.layers[1].values["src"] for packet in found}
    assert sources == {0x0A000001, 0x0A000002, 0x0A000101, 0x0A000102, 0x0A000103}
    jobs = {layer.values["job_id"] for p in found for layer in p.layers if layer.form.startswith("ses.request")}
    assert jobs == {1, 2, 3}
    modes = {p.layers[3].values["type"] for p in found} & DATA
    assert modes == DATA
    closes = [p for p in found if p.layers[3].form == "pds.cp" and p.layers[3].values["ctl_type"] == 4]
    assert closes
    pdcs = {(p.layers[1].values["src"], p.layers[1].values["dst"], p.layers[3].values["spdcid"])
            for p in found if p.layers[3].form.endswith(".syn")}  # fmt: skip
    assert len(pdcs) > 2 * 3 * 2 * 4, "more than are open at once, because they are closed"


def test_protocol_errors_are_answered() -> None:
    seen = generate_counts("bench", "protocol_errors=0.3", "sizes=100")
    codes = {"BAD_JOB_ID", "BAD_PID", "BAD_INDEX"}
    assert codes < seen
    assert len(seen) >= 6


def generate_counts(name: str, *settings: str) -> set[str]:
    """Return codes of the completions."""
    world = TrafficRun(load(name, settings), Nowhere(), packets=effort(2000, 4000, 4000))
    while world.run(1000):
        pass
    return set(world.workload.ended)


# How much of it


@pytest.mark.parametrize("count", [1, 2, 17, 1024, 1025, 2500])
@pytest.mark.parametrize("name", ["bench", "lossy"])
def test_packets_are_counted_exactly(name: str, count: int, tmp_path: Path) -> None:
    assert len(records(made(tmp_path, name, packets=count))) == count


def test_the_beginning_is_the_same(tmp_path: Path) -> None:
    """A shorter capture is the beginning of a longer one."""
    long = records(made(tmp_path, "lossy", packets=2000))
    assert records(made(tmp_path, "lossy", packets=700)) == long[:700]


def test_duration(tmp_path: Path) -> None:
    path = tmp_path / "d.pcap"
    outcome = generate(load("bench"), str(path), duration=50 * MICROSECOND)
    found = records(path)
    assert outcome.packets == len(found)
    assert 45_000 < found[-1][0] <= 50_000, "nanoseconds"
    outcome = generate(load("bench"), str(path), packets=10, duration=50 * MICROSECOND)
    assert outcome.packets == 10


def test_nothing_gets_through(tmp_path: Path) -> None:
    """PDCs fail, operations end in error, others begin: the traffic goes on."""
    path = tmp_path / "lost.pcap"
    outcome = generate(load("bench", ["loss=1", "sizes=100"]), str(path), packets=500)
    assert len(records(path)) == 500
    assert outcome.happened["lost"] >= 500
    assert set(outcome.completions) <= {"UNDELIVERABLE"}


# Chance


@pytest.mark.parametrize("name", names())
def test_one_seed_gives_one_file(name: str, tmp_path: Path) -> None:
    files = []
    for number, seed in enumerate((1, 1, 2)):
        path = tmp_path / f"{number}.pcapng"
        generate(
            replace(load(name), seed=seed), str(path), packets=effort(500, 1500, 1500), mutations={"bad-crc": 0.05}
        )
        files.append((path.read_bytes(), Path(f"{path}.mutations.jsonl").read_bytes()))
    assert files[0] == files[1]
    assert files[0][0] != files[2][0]


def test_one_seed_gives_one_file_whatever_the_hashes_are(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.pcap" for number in range(2)]
    for path in paths:
        command = [sys.executable, "-m", "uetproto", "generate", "mixed", "-o", str(path), "--packets", "400"]
        subprocess.run(command, check=True, env={"PYTHONHASHSEED": path.stem}, capture_output=True)
    assert paths[0].read_bytes() == paths[1].read_bytes()


# Memory


LIVE = effort(1_000, 10_000, 100_000)


@pytest.mark.parametrize("name", names())
def test_memory_does_not_grow(name: str) -> None:
    """Live objects after some packets, and after many more: fewer than one is left of ten packets.

    The lower headers that a framer remembers and the places that a target remembers, which are bounded, do not count.
    """
    world = TrafficRun(load(name), Nowhere(), until=NEVER)
    counts = []
    for packets in (LIVE, 2 * LIVE, 3 * LIVE):
        while world.tap.packets < packets:
            assert world.run(500)
        for port in world.wire.ports.values():
            for kept in ("_heads", "_flows", "_opened", "_authenticated"):
                getattr(port._framer, kept, {}).clear()
        for fep in [station.fep for station in world.workload.stations if hasattr(station, "fep")]:
            fep.target.processes.places.clear()
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert min(counts[1:]) - counts[0] < LIVE / 10


def test_what_many_jobs_need_is_made_when_it_is_met() -> None:
    """Processes and buffers for what is open, not for all that could be."""
    profile = load("mixed", ["jobs=256", "endpoints=64", "operations=send", "modes=rud", "protocol_errors=0"])
    world = TrafficRun(profile, Nowhere(), packets=2000)
    world.workload.start()
    opened = profile.depth * profile.initiators
    feps = [station.fep for station in world.workload.stations]
    assert sum(len(jobs) for fep in feps for jobs in fep.target.processes.jobs.values()) <= 2 * opened
    assert 0 < sum(station.posted.total() for station in world.workload.stations) <= opened
    while world.run(2000):
        pass
    assert set(world.workload.ended) == {"OK"}, "no message has met a queue without a buffer"


def test_datagrams_that_get_lost_do_not_heap_up_buffers() -> None:
    profile = load("sends", ["operations=datagram_send", "modes=uud", "loss=0.5", "jobs=1"])
    world = TrafficRun(profile, Nowhere(), packets=effort(2000, 5000, 5000))
    while world.run(500):
        most = max(station.posted[1] for station in world.workload.stations)
        assert most <= profile.depth * profile.initiators
    assert world.workload.started.total() > 1000


def test_pdcs_that_are_idle_at_once() -> None:
    """The idle time, 1 ps, rings once, not each picosecond of the way to the other end."""
    world = TrafficRun(load("mixed", ["pds.idle_time=1 ps"]), Nowhere(), packets=500)
    assert not world.run(10_000), "it goes on after so many events"
    assert world.tap.packets == 500


def test_a_job_that_is_not_there_with_many_jobs() -> None:
    profile = load("bench", ["jobs=4096", "protocol_errors=1", "operations=no_op", "depth=64"])
    world = TrafficRun(profile, Nowhere(), packets=2000)
    for job in range(1, 4097):
        for station in world.workload.stations:
            station.attach(job)
    while world.run(2000):
        pass
    assert set(world.workload.ended) == {"BAD_JOB_ID", "BAD_PID", "BAD_INDEX"}
