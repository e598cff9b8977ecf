# SPDX-License-Identifier: GPL-2.0-only
"""`incast-roce`: four senders to one port, with nothing against it, with PFC, with DCQCN (roce.md §13)."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.effort import effort
from uetproto import decode
from uetproto.emulator.run.play import run
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.run.roce_operations import RoceOperationsRun
from uetproto.emulator.scenario.settings import load
from uetproto.engine.contract import MICROSECOND, MILLISECOND
from uetproto.impair.red import Red
from uetproto.wire.capture.pcap import open_capture

SENDERS = ("s1", "s2", "s3", "s4")
PFC = "fabric.pfc=true"
DCQCN = "roce.congestion=dcqcn"


def played(*settings: str, output: Path | None = None) -> RunResult:
    result = run(load("incast-roce", ("tap.nodes=all", *settings)), output=output and str(output), check=True)
    assert result.ok, result.failure or result.findings
    assert {o["return_code"] for o in result.operations} == {"SUCCESS"}
    return result


def frames(path: Path) -> Iterator[tuple[int, str, Any]]:
    """Time in nanoseconds, interface and packet of each record."""
    with open_capture(str(path)) as records:
        for record in records:
            yield record.time_ns, records.interfaces[record.interface].name, decode(record.data)


def test_plain_drops_and_goes_back() -> None:
    result = played()
    assert result.happened["switch_dropped"] > 0
    assert result.nacks_by_code["PSN_SEQUENCE_ERROR"] > 0
    assert result.retransmissions > result.happened["switch_dropped"], "go-back-N repeats what arrived, too"
    assert result.queue_peaks["sink"] <= 1 << 20
    assert "pauses" not in result.happened
    assert "switch_marked" not in result.happened


def test_pfc_drops_nothing_and_pauses(tmp_path: Path) -> None:
    path = tmp_path / "pfc.pcapng"
    result = played(PFC, output=path)
    assert "switch_dropped" not in result.happened
    assert (result.retransmissions, result.nacks) == (0, 0)
    pauses = [(where, packet["pfc"]["pause3"]) for _, where, packet in frames(path) if "pfc" in packet]
    assert sum(quanta > 0 for _, quanta in pauses) == result.happened["pauses"] > 0
    for sender in SENDERS:  # each is told to stop, and told to go on in the end
        told = [quanta for where, quanta in pauses if where == f"{sender}.0"]
        assert told[0] > 0
        assert told[-1] == 0
    assert not [where for where, _ in pauses if where == "sink.0"], "nobody pauses who sends nothing"


def test_dcqcn_notifies_at_most_every_50_microseconds(tmp_path: Path) -> None:
    path = tmp_path / "dcqcn.pcapng"
    result = played(DCQCN, output=path)
    at: dict[int, list[int]] = {}
    for time_ns, where, packet in frames(path):
        if where == "sink.0" and "cnp" in packet:
            assert (packet["bth"]["opcode"], packet["bth"]["becn"], packet["ipv4"]["ecn"]) == (0x81, 1, 0)
            at.setdefault(packet["ipv4"]["dst"], []).append(time_ns)
    assert len(at) == len(SENDERS)
    assert sum(map(len, at.values())) == result.counters["sink"]["cnp sent"]
    gaps = [after - before for times in at.values() for before, after in pairwise(times)]
    # A CNP that is due leaves behind the frame on the link: one may be late, and the next one in time.
    on_the_link = 1 + 8 * 62 // 100
    assert min(gaps) >= 50 * MICROSECOND // 1000 - on_the_link
    assert result.happened["switch_marked"] > 0


def test_dcqcn_keeps_the_queue_below_kmax_after_5_ms() -> None:
    """Long enough that all four still send then, with PFC and without."""
    longer = [f"operation.{row}.length={effort(14, 20, 20)} MiB" for row in range(8)]
    for more in ((), (PFC,)):
        world = RoceOperationsRun(load("incast-roce", (DCQCN, *longer, *more)))
        world.connect(None)
        sink = world.network.queues["sink"]
        sink.watch_from(5 * MILLISECOND)
        world.play(None)
        world.close()
        outcome = world.outcome(None, None)
        assert outcome.ok, outcome.failure
        assert outcome.virtual_time_ps > 5.5 * MILLISECOND, "it is over too early to tell"
        assert sink.peak > Red().kmax, "it never was an incast"
        assert sink.late_peak < Red().kmax


def test_without_marks_dcqcn_does_nothing() -> None:
    result = played(DCQCN, "fabric.red=false")
    assert "cnp sent" not in result.counters["sink"]
    assert result.happened["switch_dropped"] > 0
