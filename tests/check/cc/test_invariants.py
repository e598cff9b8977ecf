# SPDX-License-Identifier: GPL-2.0-only
"""The machine `cc`: our engine passes, and for each invariant of cms.md §10 there is a fault that the machine finds."""

import random
import re
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from tests.support.effort import effort
from tests.support.paths import ROOT
from uetproto.check.cc.episode import CcEpisode, begin
from uetproto.check.cc.invariants import CMS, Transmissions
from uetproto.check.cc.model import NsccModel
from uetproto.check.cc.simulator import CcSimulator
from uetproto.check.cc.watch import WatchedContext, WatchedContexts
from uetproto.check.episode import PlayedEpisode, play
from uetproto.check.fuzz import fuzz
from uetproto.check.registry import InvariantViolation
from uetproto.engine.cc import nscc, rccc, receiver
from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.context import Ccc
from uetproto.engine.cc.entropy import Bitmap, Oblivious, Reps
from uetproto.engine.cc.nscc import Nscc
from uetproto.engine.cc.rccc import Rccc
from uetproto.engine.contract import MICROSECOND, AckReport, CccState, Mode, PathFeedback
from uetproto.engine.pds import congestion, destination
from uetproto.engine.pds.pdc import Pdc
from uetproto.errors import LocalError
from uetproto.steps.uet import MessageSpec, UetStep

STEPS = 150


def episode(number: int, seed: str = "cc", steps: int = STEPS) -> PlayedEpisode:
    chance = random.Random(f"{seed}/{number}")
    generator, settings = begin("cc", chance)
    return play(settings, lambda simulator: (generator.choose(simulator) for _ in range(steps)))


def test_our_engine_passes() -> None:
    for number in range(effort(4, 40, 1000)):
        assert episode(number).failure is None, number


def _plus_one(self: Nscc, rtt: int) -> None:
    self.base_rtt = rtt


def _no_least(self: Nscc, now: int) -> None:
    self.cwnd = self.cwnd / 2


def _any(*arguments: Any) -> bool:
    return True


def _nothing(*arguments: Any) -> None: ...


def _counted_again(pdc: Pdc, *more: Any) -> None:
    assert pdc.cc_rx is not None
    pdc.cc_rx.arrived(284, 0)


def _long_period(self: Nscc, loss: bool, marked: bool, delay: int, now: int) -> bool:
    self.qa_endtime = now + 1
    return False


def _ten_bits(self: receiver.NsccReceiver, arrived_at: int, ooo: int, now: int) -> tuple[int, bytes]:
    state = receiver.PdsCcStateNsccHeader.pack(0, 0, 0, (self.rcvd_bytes + 255 >> 8) & 0xFFFFE3, ooo)
    return 0, state


def _any_rtt(record: congestion.PacedRecord, retx: int, service: int, now: int) -> int:
    return max(now - record.sent_at - service * 128_000, 1)


def _never_active(self: Ccc, size: int, now: int) -> CccState:
    return CccState.READY if self.backlog > 0 else CccState.PENDING


def _same(self: Oblivious) -> int:
    self.at = (self.at + 1) % self.size
    return self.at & -2


def _heavy(self: Bitmap, entropy: int, feedback: PathFeedback, now: int) -> None:
    index = self.index_of(entropy)
    if index is not None:
        self.penalties[index] = 16


def _everything(self: Reps, entropy: int, feedback: PathFeedback, now: int) -> None:
    if self.index_of(entropy) is not None:
        self.ring.append(entropy)


FAULTS: list[tuple[int, Any, str, Any]] = [
    (1, Nscc, "withdrawn", _nothing),
    (2, Nscc, "_fulfill", _no_least),
    (3, Nscc, "may_send", _any),
    (4, Nscc, "_note_rtt", _plus_one),
    (7, Nscc, "_quick_adapt", _long_period),
    (9, destination, "_duplicate", _counted_again),
    (10, receiver.NsccReceiver, "ack_state", _ten_bits),
    (11, congestion, "_rtt", _any_rtt),
    (12, Ccc, "state", _never_active),
    (13, Rccc, "may_send", _any),
    (13, rccc, "GRANT", 6400),
    (15, Oblivious, "index", _same),
    (15, Bitmap, "heard", _heavy),
    (16, Reps, "heard", _everything),
]
"""Number of the invariant, what is changed, its name, and to what."""


@pytest.mark.parametrize(("number", "owner", "name", "value"), FAULTS, ids=[f"{n}-{name}" for n, _, name, _ in FAULTS])
def test_a_fault_is_found(number: int, owner: Any, name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, value)
    found = set()
    for one in count():
        assert one < 60, found
        failure = episode(one, "faults", 60).failure
        if failure is not None:
            found.add(failure.kind)
            if failure.kind == f"cms {number}":
                return


def test_a_decrease_by_more_than_half_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 6, which chance rarely meets."""
    monkeypatch.setattr(nscc, "MAX_MD_JUMP", 0.01)
    config = CcConfig(rate=10**11, mtu=300, quick_adapt=False)
    context = WatchedContexts(config, random.Random(1), 1, 52, 300).context(2, Mode.RUD)
    context.offered(10**6)
    while context.may_send(300, 0):
        context.sent(300, False, 0)
    now = 100 * config.base_rtt
    assert isinstance(context, WatchedContext)
    context.named = Transmissions(1, now - 50 * config.base_rtt)
    with pytest.raises(InvariantViolation, match="cms 6: a decrease from"):
        context.acked(1, AckReport(256, True, 50 * config.base_rtt), now)


def test_what_was_in_flight_at_a_quick_adapt_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 8, which chance rarely meets: an engine that forgets the bytes to ignore differs from the model."""
    config = CcConfig(rate=10**10, base_rtt=10 * MICROSECOND, mtu=300)
    engine, model = Nscc(config), NsccModel(config)
    engine.bytes_to_ignore = 0
    model.bytes_to_ignore = 10_000
    for one in (engine, model):
        one.inflight, one.qa_endtime = 10_000, 10**12
    engine.acked(AckReport(300, True, 10**8), 10**9)
    model.ack(AckReport(300, True, 10**8), 10**9)

    class View:
        """What the invariant reads."""

    view: Any = View()
    view.nscc, view.model, view.config, view.adapted_at = engine, View(), config, None
    view.model.nscc = model
    window: Any = View()
    window.cwnd = config.max_wnd
    with pytest.raises(AssertionError, match="cms 8"):
        CMS.entries[8].check(view, window, 10**9)


def test_the_numbers_are_those_of_the_page() -> None:
    """Each item of cms.md §10 is an invariant of the machine, but for those that need whole runs or only NSCC."""
    assert sorted(CMS.entries) == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16]
    text = (ROOT / "docs" / "protocol" / "cms.md").read_text(encoding="utf-8")
    section = text.partition("## 10. ")[2].partition("## 11. ")[0]
    assert {int(n) for n in re.findall(r"^(\d+)\. ", section, re.MULTILINE)} == set(range(1, 23))


def test_a_finding_says_how_to_play_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nscc, "may_send", _any)
    findings = []
    for tally in fuzz("cc", 1, steps=3000):
        findings += tally.findings
        if findings:
            break
    assert findings[0].again.startswith("uetproto fuzz cc --seed 1 --episode ")
    assert findings[0].kind == "cms 3"
    assert len(findings[0].steps) <= 3
    settings = findings[0].settings
    assert isinstance(settings, CcEpisode)
    assert "cc." in str(settings)


def test_settings_may_be_left_out() -> None:
    settings = CcEpisode(({}, {"mp_range": 128}), 1, {"algorithm": "rccc", "lb": "reps"}, 0)
    assert settings.names(0) == ["cc.algorithm", "cc.lb"]
    assert settings.without(0, "cc.lb").cc == {"algorithm": "rccc"}
    assert settings.without(1, "mp_range").knobs == ({}, {})
    with pytest.raises(LocalError):
        CcSimulator(cc={"algorithm": "bbr"})


def play_steps(objects: bool) -> tuple[int, list[float]]:
    simulator = CcSimulator(3, cc={"rate": 10**9}, objects=objects, mtu=4)
    windows: list[float] = []
    step: Callable[..., UetStep] = UetStep
    simulator.apply(step("submit", message=MessageSpec(packets=30)))
    for _ in range(60):
        if simulator.flight:
            simulator.apply(step("deliver", number=next(iter(simulator.flight))))
        simulator.apply(step("advance", number=2 * MICROSECOND))
        windows += [one.nscc.cwnd for one in simulator.managers[0].watched() if one.nscc is not None]
    simulator.finish()
    return simulator.sent, windows


def test_bytes_and_objects_are_the_same() -> None:
    assert play_steps(True) == play_steps(False)
