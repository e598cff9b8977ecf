# SPDX-License-Identifier: GPL-2.0-only
"""A study: what it measures, and that equal seeds give equal runs."""

from itertools import pairwise
from random import Random

import pytest

from tests.support.each import each
from uetproto.emulator.congestion import SwitchConfig
from uetproto.engine.contract import MICROSECOND
from uetproto.errors import LocalError
from uetproto.fabric import study as fabric_study
from uetproto.fabric.matrix import PATTERNS, Flow, TrafficMatrix, traffic_matrix
from uetproto.fabric.result import jain, percentile
from uetproto.fabric.samples import ABSENT, MOST
from uetproto.fabric.study import Study, StudyConfig
from uetproto.framing.uet import UetFramer

SMALL = 65_536


@pytest.mark.parametrize("size", [1 << 60, 1 << 62])
def test_more_bytes_than_the_host_has_are_refused(size: int) -> None:
    load = TrafficMatrix("much", 2, (Flow(1, 0, 1, 0, 1 << 20), *(Flow(n, 0, 1, 0, size) for n in range(2, 4))))
    with pytest.raises(LocalError, match=r"flows: .* bytes at their targets"):
        Study(StudyConfig(), load)


def test_memory_of_the_targets_is_one_block_in_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bool]] = []

    def zeros(size: int, *, huge: bool) -> memoryview:
        asked.append((size, huge))
        return memoryview(bytearray(size))

    monkeypatch.setattr(fabric_study, "zeros", zeros)
    assert Study(StudyConfig(), TrafficMatrix("two", 3, (Flow(1, 0, 1, 0, 3000), Flow(7, 0, 2, 0, 1000)))).run().match
    assert asked == [(4000, True)]


def test_one_wrong_byte_is_seen() -> None:
    found = Study(StudyConfig(), TrafficMatrix("two", 3, (Flow(1, 0, 1, 0, 3000), Flow(2, 0, 2, 0, 1000))))
    assert found.run().match
    found.memories[2][999] ^= 1
    assert not found.matches()


def test_data_is_that_of_one_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric_study, "_DRAWN", 64)
    assert fabric_study._drawn(Random(3), 1001) == Random(3).randbytes(1001)


def test_a_single_flow_takes_the_time_of_the_arithmetic() -> None:
    """cms.md §11: all frames on the first link, the last full and the short one on the other hops, and the ACK."""
    one = TrafficMatrix("one", 16, (Flow(1, 15, 0, 0, 2_000_000),))
    result = Study(StudyConfig(), one).run()
    frame, last, ack = 4198, 102 + 2_000_000 % 4096, 86
    wire = 488 * frame + 5 * frame + last
    expected = 80 * wire + 12 * MICROSECOND + 6 * 80 * ack
    assert result.fct is not None
    assert abs(result.fct.max - expected) < 0.002 * expected
    assert (result.flows, result.packets, result.match, result.trims) == (1, 489, True, 0)


@each("pattern", PATTERNS)
def test_every_pattern_delivers_every_byte(pattern: str) -> None:
    load = traffic_matrix(pattern, 8, SMALL)
    result = Study(StudyConfig(), load).run()
    assert (result.flows, result.match, result.failure) == (len(load.flows), True, None)
    assert result.fct is not None
    wire = sum(flow.size for flow in load.flows if flow.target == 0)
    assert result.fct.max >= 80 * wire, "nothing is faster than the wire"


def test_one_seed_one_run() -> None:
    load = traffic_matrix("incast", 8, SMALL)
    first, again, other = (Study(StudyConfig(seed=seed), load).run() for seed in (3, 3, 4))
    assert first == again
    assert first.fct != other.fct


def test_what_does_not_end_is_told() -> None:
    load = traffic_matrix("incast", 8, SMALL)
    result = Study(StudyConfig(limit=10 * MICROSECOND), load).run()
    assert result.failure is not None
    assert result.failure.startswith("4 flows did not end within 10 µs")
    assert result.fct is None


def test_numbers() -> None:
    assert [percentile(range(1, 101), share) for share in (0.5, 0.99, 1)] == [50, 99, 100]
    assert percentile([7], 0.01) == 7
    assert jain([3, 3, 3]) == 1
    assert abs(jain([1, 0, 0, 0]) - 0.25) < 1e-9


def test_slow_links_make_flows_late_that_need_them() -> None:
    load = traffic_matrix("permutation", 16, SMALL)
    plain, slow = (Study(StudyConfig(slow_links=links), load).run() for links in (0, 2))
    assert plain.fct is not None
    assert slow.fct is not None
    assert slow.match
    assert slow.fct.max > plain.fct.max
    with pytest.raises(LocalError, match=r"^slow-links: 3 is not legal; legal: 0 … 2 links to pod0.agg0$"):
        Study(StudyConfig(slow_links=3), load)
    with pytest.raises(LocalError, match="only a fat tree"):
        Study(StudyConfig(slow_links=1, topology="switch"), load)


def test_a_cable_that_is_cut_loses_what_is_sent_by_it_and_other_paths_carry_the_rest() -> None:
    load = traffic_matrix("incast", 8, SMALL)
    fabric, cut = {"hosts_per_leaf": 4, "spines": 4}, ("spine1.leaf0", 5 * MICROSECOND)
    config = StudyConfig(cc="nscc", topology="leaf-spine", parameters=fabric, failing=(cut,))
    study = Study(config, load)
    result = study.run()
    assert (result.match, result.flows) == (True, 4)
    lost = {f"{hop.source} > {hop.target}": hop.link.lost for hop in study.network.hops if hop.link.lost}
    assert set(lost) <= {"leaf0 > spine1", "spine1 > leaf0"}
    assert sum(lost.values()) == result.drops > 0
    assert result.retransmissions["RTO"] > 0


def test_patterns_joined_run_together_and_are_timed_apart() -> None:
    load = traffic_matrix("incast+permutation", 8, SMALL, 4096)
    result = Study(StudyConfig(), load).run()
    assert (result.flows, result.match, list(result.parts)) == (12, True, ["incast", "permutation"])
    assert result.fct is not None
    assert min(one.min for one in result.parts.values()) == result.fct.min
    assert result.parts["permutation"].min < result.parts["incast"].min


def test_samples_show_the_window_and_the_queue() -> None:
    load = traffic_matrix("incast", 8, 4 * SMALL)
    plain, study = (Study(StudyConfig(cc="nscc", sample=sample), load) for sample in (None, MICROSECOND // 20))
    assert study.run() == plain.run(), "samples change nothing"
    assert study.sampler is not None
    windows, queues = study.sampler.windows, study.sampler.queues
    assert list(windows.series) == [f"h{host} > h0" for host in range(4, 8)]
    assert queues.longest(1) == ["pod0.edge0 > h0"]
    first, *_ = windows.series.values()
    assert next(value for value in first if value != ABSENT) == study.plane.config.max_wnd
    assert MOST / 2 <= len(windows.times) <= MOST
    assert {b - a for a, b in pairwise(windows.times)} == {windows.interval}
    assert windows.interval > MICROSECOND // 20
    assert max(queues.series["pod0.edge0 > h0"]) <= study.network.queues["h0"].peak * 3
    assert all(len(one) == len(queues.times) for one in queues.series.values())


@pytest.mark.parametrize("cc", ["off", "nscc+rccc"])
def test_frames_that_are_not_encoded_give_the_same_run(cc: str) -> None:
    """They are trimmed and marked, too: each time, count and byte is the same (architecture.md §4, rule 4)."""
    load = traffic_matrix("incast", 8, 4 * SMALL)
    found = [Study(StudyConfig(cc=cc, wire=wire, queue=20_000), load).run() for wire in ("bytes", "objects")]
    assert found[0] == found[1]
    assert found[0].trims > 0
    assert (found[0].marks > 0) is (cc != "off")


def test_frames_that_are_not_encoded_are_neither_packed_nor_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("frame", "packet"):
        monkeypatch.delattr(UetFramer, name)
    monkeypatch.delattr("uetproto.engine.pds.sublayer.parse")
    result = Study(StudyConfig(cc="nscc+rccc", wire="objects", queue=20_000), traffic_matrix("incast", 8, SMALL)).run()
    assert result.match
    assert result.trims > 0


def test_each_parameter_of_congestion_control_and_switches_has_an_effect() -> None:
    load = traffic_matrix("incast", 8, 4 * SMALL)
    usual = Study(StudyConfig(cc="nscc"), load).run()
    for more in (
        {"given": {"base_rtt": 4 * MICROSECOND}}, {"given": {"entropy_values": 1}},
        {"switch": SwitchConfig(ecn="off")}, {"switch": SwitchConfig(trim_limit=0.25)},
        {"switch": SwitchConfig(shared_buffer=200_000)}, {"switch": SwitchConfig(hash_salt=3)},
    ):  # fmt: skip
        result = Study(StudyConfig(cc="nscc", **more), load).run()  # type: ignore[arg-type]
        assert result.match
        assert result != usual, more


def test_no_frame_is_kept_that_the_network_has_changed() -> None:
    study = Study(StudyConfig(cc="nscc", profile="htsim"), traffic_matrix("incast", 8, 200_000))
    result = study.run()
    assert result.match
    assert result.trims
    assert sum(marker.marked for marker in study.network.markers.values()) > 0
    study.clock.run(study.clock.now + 1000 * MICROSECOND)
    ports = [nic.messages for nic in study.network.nics.values()]
    assert all(port is not None and not port._announced for port in ports)
