# SPDX-License-Identifier: GPL-2.0-only
"""Windows of NSCC, recomputed from captures: our own senders keep them, senders that do not are found."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import uetproto
from tests.support.audit.build import GOLDEN, PdsAudit, head
from tests.support.audit.pds_rules import START, Line, ack, nack, packets, req, syn
from tests.support.each import each
from tests.support.effort import effort
from uetproto import LocalError
from uetproto.audit.auditor import audit
from uetproto.audit.pds.tracker_state import M32
from uetproto.audit.pds.tracker_window import KEYS, parameters_of
from uetproto.audit.reader.options import Options
from uetproto.audit.report import AuditReport
from uetproto.emulator.congestion import NetworkPlane
from uetproto.engine.cc.nscc import Nscc
from uetproto.engine.contract import MICROSECOND, Trim
from uetproto.fabric.matrix import traffic_matrix
from uetproto.fabric.study import Study, StudyConfig
from uetproto.wire.capture.pcap import open_capture, open_writer
from uetproto.wire.headers.uet_pds import NackCode

RULES = ("PDS-WINDOW-*",)
CONTROLLED = sorted([*GOLDEN.glob("uet-*.pcapng"), *GOLDEN.glob("ladder-C*.pcapng")])


def study(path: Path, pattern: str = "incast", hosts: int = 8, size: int = 400_000, **config: object) -> None:
    """Run a study and capture it at one host, the last one unless `taps` is given."""
    settings = StudyConfig(**({"cc": "nscc", "seed": 1, "taps": (f"h{hosts - 1}",)} | config))  # type: ignore[arg-type]
    matrix = traffic_matrix(pattern, hosts, size)
    with open_writer(path, interfaces=Study.interfaces(settings, matrix)) as writer:
        Study(settings, matrix, writer).run()


def judged(path: Path, **options: object) -> AuditReport:
    return audit([path], Options(complete=True, rules=RULES, **options))  # type: ignore[arg-type]


def count(report: AuditReport, rule: str = "PDS-WINDOW-EXCEEDED") -> tuple[int, int]:
    """Return how often the rule was judged, and how often it failed."""
    return report.tallies[rule].judged, report.tallies[rule].failed


@each("path", CONTROLLED)
def test_golden_captures_keep_their_windows(path: Path) -> None:
    assert judged(path).findings == []


RUNS = {
    "incast": {},
    "htsim": {"profile": "htsim"},
    "without trimming": {"trim": False},
    "with credits": {"cc": "nscc+rccc"},
    "all to all": {"pattern": "all_to_all", "size": 100_000},
    "destination flow control": {
        "pattern": "all_to_all", "size": 200_000, "given": {"host_rate": 20 * 10**9, "host_backlog": 60_000},
    },
    "base RTT by PROBE": {"given": {"base_rtt_probe": True, "base_rtt": 30 * MICROSECOND}},
    "without quick adapt": {"given": {"quick_adapt": False}},
    "400 Gb/s": {"rate": 400 * 10**9, "size": 1_000_000},
}  # fmt: skip


@each("what", RUNS)
def test_our_runs_keep_their_windows(what: str, tmp_path: Path) -> None:
    for seed in range(1, effort(2, 6, 30)):
        study(tmp_path / "run.pcapng", seed=seed, **RUNS[what])  # type: ignore[arg-type]
        report = judged(tmp_path / "run.pcapng")
        assert report.findings == []
        assert count(report)[0] > 20


def ignored(self: Nscc, size: int, now: int) -> bool:
    return True


def exceeded(self: Nscc, size: int, now: int) -> bool:
    return self.inflight + size <= 1.3 * self.cwnd


def constant(self: Nscc, target: int, now: int) -> None:
    """Decrease nothing."""


def untouched(self: Nscc, size: int, trim: Trim, marked: bool, rtt: int | None, now: int) -> None:
    self.inflight -= size


@pytest.mark.parametrize(("name", "wrong"), [
    ("may_send", ignored), ("may_send", exceeded), ("_decrease", constant), ("nacked", untouched),
])  # fmt: skip
def test_a_sender_that_does_not_keep_its_window_is_found(
    name: str, wrong: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nscc, name, wrong)
    study(tmp_path / "run.pcapng", hosts=16)
    report = judged(tmp_path / "run.pcapng")
    assert count(report)[1] > 5
    assert {one.rule.id for one in report.findings} == {"PDS-WINDOW-EXCEEDED"}


def test_parameters_are_given_or_inferred_where_a_capture_states_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, wild = tmp_path / "plain.pcap", tmp_path / "wild.pcap"  # a pcap has no comments
    study(plain)
    monkeypatch.setattr(Nscc, "may_send", ignored)
    study(wild)
    told = NetworkPlane(rate=100 * 10**9, delay=MICROSECOND, hops=6, algorithm="nscc").told or ""
    for path in (plain, wild):
        report, inferred = judged(path, cc=told.removeprefix("cc ")), judged(path)
        assert (count(report)[1] > 0) is (path is wild)
        assert count(inferred) == (0, 0)
        assert count(inferred, "PDS-WINDOW-INFERRED")[0] > 20
        assert (count(inferred, "PDS-WINDOW-INFERRED")[1] > 0) is (path is wild)
    tight = judged(plain, cc=f"{told.removeprefix('cc ')},max_wnd=30000")
    assert count(tight)[1] > 0


def test_only_the_capture_at_a_sender_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nscc, "may_send", ignored)
    for tap in ("h0", "pod0.edge0.pod0.agg0"):
        study(tmp_path / "run.pcapng", hosts=16, taps=(tap,))
        assert count(judged(tmp_path / "run.pcapng")) == (0, 0)


def test_captures_state_what_senders_have(tmp_path: Path) -> None:
    study(tmp_path / "run.pcapng", hosts=16, taps=("h15", "pod0.edge0.pod0.agg0"), given={"base_rtt": 9 * MICROSECOND})
    with open_capture(tmp_path / "run.pcapng") as reader:
        list(reader)
        about = {one.name: one.comment for one in reader.interfaces}
    assert about["pod0.edge0.pod0.agg0"] is None
    stated = parameters_of((about["h15"] or "").removeprefix("cc "))
    assert (stated.config.base_rtt, stated.config.rate, stated.config.trimming) == (9 * MICROSECOND, 100 * 10**9, True)
    assert stated.max_wnd == stated.config.max_wnd == 168_750


@pytest.mark.parametrize(("text", "value", "legal"), [
    ("", "'' is not legal", "rate, base_rtt, "), ("speed=3", "'speed=3' is not legal", "rate, base_rtt, "),
    ("rate=100 Gb/s", "base_rtt is missing", "rate and base_rtt"), ("rate=1,base_rtt=1 us", "'1' is not legal", "b/s"),
    ("rate=1 Gb/s,base_rtt=0 us", "0 is not legal", "1"), ("rate=1 Gb/s,base_rtt=1 us,mtu=9", "9 is not legal", "256"),
    ("rate=1 Gb/s,base_rtt=1 us,max_wnd=0", "'0' is not legal", "bytes"),
    ("rate=1 Gb/s,base_rtt=1 us,trimming=maybe", "'maybe' is not legal", "True"),
])  # fmt: skip
def test_wrong_parameters_are_refused(text: str, value: str, legal: str) -> None:
    with pytest.raises(LocalError) as error:
        parameters_of(text)
    assert error.value.name.startswith("cc")
    assert (value in str(error.value.value), legal in error.value.legal) == (True, True), str(error.value)


def test_each_parameter_can_be_stated() -> None:
    values = dict.fromkeys(KEYS, "1000") | {
        "algorithm": "nscc", "form": "htsim", "trimming": "off", "quick_adapt": "true", "base_rtt_probe": "false",
        "rate": "1 Gb/s", "base_rtt": "5 us", "probe_allowance": "1 us",
    }  # fmt: skip
    config, max_wnd = parameters_of(", ".join(f"{key}={value}" for key, value in values.items()))
    assert (config.form, config.trimming, config.mtu, max_wnd) == ("htsim", False, 1000, 1000)


def test_python_takes_the_parameters_too(tmp_path: Path) -> None:
    study(tmp_path / "run.pcapng")
    capture = uetproto.open(tmp_path / "run.pcapng")
    assert capture.audit(*RULES, complete=True).ok
    tight = capture.audit(*RULES, complete=True, cc="rate=100 Gb/s,base_rtt=9 us,max_wnd=20000")
    assert {one.rule.id for one in tight} == {"PDS-WINDOW-EXCEEDED"}
    with pytest.raises(LocalError, match="cc rate: 'x' is not legal"):
        capture.audit(complete=True, cc="rate=x")
    with pytest.raises(LocalError, match="has no effect without every packet"):
        capture.audit(cc="rate=1 Gb/s,base_rtt=1 us")


def nonsense(rng: random.Random) -> list[Line]:
    """Return requests, ACKs with the state of NSCC and NACKs, with numbers that now and then fit."""
    lines: list[Line] = []
    sent = 0
    for _ in range(rng.randrange(5, 120)):
        kind, psn = (
            rng.choice(("rud", "rod")),
            rng.choice((sent, sent, sent, rng.randrange(-5, 40), rng.randrange(2**31))),
        )
        psn = (START + psn) & M32
        choice = rng.random()
        if choice < 0.5:
            make = syn if rng.random() < 0.3 else req
            sender, header, more = make(psn, psn - 1 - rng.randrange(3), kind=kind, retx=rng.getrandbits(1))
            lines.append(
                (sender, header, more | {"ses": head("ses.request_std"), "size": rng.choice((0, 984, 5000, -1))})
            )
            sent += 1
        elif choice < 0.85:
            cack = (START + rng.randrange(-3, sent + 3)) & M32
            sack = {"sack_bitmap": rng.getrandbits(64), "sack_psn_offset": rng.randrange(-60, 60)}
            sender, header, more = ack((cack + rng.randrange(-2, 5)) & M32, cack, m=rng.getrandbits(1), **sack)
            state = head(
                "pds.cc_state.nscc", rcvd_bytes=rng.choice((0, 4 * sent, rng.getrandbits(24))),
                service_time=rng.choice((0, 1, 0xFFFF)), rcv_cwnd_pend=rng.choice((0, 127)), restore_cwnd=1,
            )  # fmt: skip
            lines.append((sender, header, more | {"more": (state,)}))
        else:
            code = rng.choice(list(NackCode))
            lines.append(nack((START + rng.randrange(sent + 2)) & M32, code, nack_payload=rng.getrandbits(32)))
    return lines


@pytest.mark.parametrize("cc", [None, "rate=8 Gb/s,base_rtt=4 us,mtu=1080", "rate=1 Gb/s,base_rtt=9 us,form=htsim"])
def test_nonsense_raises_nothing(cc: str | None) -> None:
    for seed in range(effort(40, 400, 4_000)):
        judge = PdsAudit(Options(complete=True, ordered=bool(seed & 1), cc=cc))
        judge.see(packets(nonsense(random.Random(seed))))
        judge.end()
