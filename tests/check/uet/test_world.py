# SPDX-License-Identifier: GPL-2.0-only
"""The simulator of two endpoints: every action, the seeded loop of every profile, invariants about pairs of runs."""

import random
from contextlib import suppress
from itertools import permutations
from typing import Any

import pytest

from tests.support.effort import effort
from uetproto.check.registry import Disruption, InvariantViolation
from uetproto.check.uet.invariants_numbers import pds_23_shift
from uetproto.check.uet.invariants_protocol import pds_37_confluence
from uetproto.check.uet.simulator import UetSimulator
from uetproto.check.uet.step_generator import PROFILES, UetStepGenerator
from uetproto.check.wire import ALL, HISTORY
from uetproto.engine.contract import MILLISECOND, SECOND, Mode
from uetproto.engine.pds.messages import Ack, Control, Nack, Request
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.engine.pds.psn_window import PsnWindow
from uetproto.engine.pds.states import State
from uetproto.errors import LocalError
from uetproto.steps.uet import ACTIONS, MessageSpec, UetStep
from uetproto.wire.headers.uet_pds import CtlType, NackCode

ENDLESS: dict[str, Any] = {"max_rto_retx_cnt": 15, "max_nack_retx_cnt": 31, "idle_time": 0}
EVERYTHING = UetStep("deliver", 0, ALL)


def simulator(*, objects: bool = True, **knobs: Any) -> UetSimulator:
    settings = {**ENDLESS, **knobs}
    return UetSimulator(3, (settings, settings), objects=objects)


def submit(w: UetSimulator, packets: int = 1, node: int = 0, **more: Any) -> None:
    w.apply(UetStep("submit", node, message=MessageSpec(packets, **more)))


def on_the_wire(w: UetSimulator) -> list[Any]:
    return [packet.message for packet in w.flight.values()]


def opened(**knobs: Any) -> UetSimulator:
    """With a PDC that both ends know."""
    w = simulator(**knobs)
    submit(w)
    w.apply(EVERYTHING)
    w.apply(EVERYTHING)
    return w


# Actions --------------------------------------------------------------------------------------------------------------


def test_every_action_has_a_method() -> None:
    assert set(simulator().actions) == set(ACTIONS)


def test_packets_are_numbered_as_they_leave() -> None:
    w = simulator()
    submit(w, 3)
    w.apply(UetStep("dup", 0, 1))
    assert list(w.flight) == [0, 1, 2, 3]
    w.apply(UetStep("drop", 0, 1))
    w.apply(UetStep("deliver", 0, 0))
    assert list(w.flight) == [2, 3, 4]
    assert isinstance(w.flight[4].message, Ack)
    with pytest.raises(LocalError, match="packet 1 is not on the wire"):
        w.apply(UetStep("deliver", 0, 1))


def test_congestion_control_holds_packets_back() -> None:
    w = simulator()
    w.apply(UetStep("allow", 0, 2))
    submit(w, 5)
    assert w.sent == 2
    w.apply(UetStep("allow", 0, 1))
    assert w.sent == 3
    w.apply(UetStep("allow", 0, ALL))
    assert w.sent == 5


def test_a_copy_of_what_has_left_the_wire() -> None:
    w = opened()
    w.apply(UetStep("dup", 0, 0))
    w.apply(EVERYTHING)
    assert w.monitors[1].pds.counters.dup_no_retx == 1


def test_nothing_outlives_msl() -> None:
    """pds.md §18: delay less than MSL."""
    w = simulator(msl=10 * MILLISECOND)
    submit(w)
    w.apply(UetStep("advance", 0, 20 * MILLISECOND))
    assert 0 not in w.flight
    with pytest.raises(LocalError, match="cannot be copied"):
        w.apply(UetStep("dup", 0, 0))


def test_history_is_bounded() -> None:
    w = simulator()
    submit(w)
    for number in range(HISTORY):
        w.apply(UetStep("dup", 0, number))
    with pytest.raises(LocalError):
        w.apply(UetStep("dup", 0, 0))


@pytest.mark.parametrize(
    ("at", "code"), [(0, NackCode.TRIMMED), (1, NackCode.TRIMMED_LASTHOP)], ids=["on the way", "last hop"]
)
@pytest.mark.parametrize("objects", [True, False])
def test_trim(objects: bool, at: int, code: NackCode) -> None:
    w = opened(objects=objects)
    submit(w)
    w.apply(UetStep("trim", 0, w.sent - 1, at))
    w.apply(UetStep("deliver", 0, w.sent - 1))
    assert w.monitors[1].pds.nack_tx == {code: 1}


def test_mark() -> None:
    w = opened(ar_on_eom=False)
    submit(w)
    w.apply(UetStep("mark", 0, w.sent - 1))
    w.apply(EVERYTHING)
    assert [m.marked for m in on_the_wire(w)] == [True]


def test_corrupt_is_lost_without_bytes_and_counts_as_forged_with_them() -> None:
    w = simulator()
    submit(w)
    w.apply(UetStep("corrupt", 0, 0))
    w.apply(EVERYTHING)
    assert not w.monitors[1].pds.pdcs
    assert w.disruptions is Disruption.NONE
    w = simulator(objects=False)
    submit(w)
    before = bytes(w.flight[0].header)
    w.apply(UetStep("corrupt", 0, 0, 6))
    assert bytes(w.flight[0].header) == before[:6] + bytes((before[6] ^ 1,)) + before[7:]
    assert w.disruptions is Disruption.FORGED


@pytest.mark.parametrize("ahead", [True, False], ids=["before it comes", "while it waits"])
def test_respond(ahead: bool) -> None:
    w = opened()
    psn = w.monitors[0].shadows[1].next
    if ahead:
        w.apply(UetStep("respond", 1, psn, 0, "gtd"))
    submit(w, answer="ok" if ahead else "later")
    w.apply(EVERYTHING)
    if not ahead:
        assert on_the_wire(w) == []
        w.apply(UetStep("respond", 1, psn, 0, "gtd"))
    assert [m.ack_psn for m in on_the_wire(w)] == [psn]
    assert list(w.monitors[1].shadows[1].gtd) == [psn]
    w.finish()


def test_a_placeholder_then_the_answer() -> None:
    """pds.md §20 row 36."""
    w = opened()
    psn = w.monitors[0].shadows[1].next
    submit(w, answer="no_response")
    w.apply(EVERYTHING)
    assert w.monitors[1].pds.pdcs[1].rx.waiting == 1
    w.apply(EVERYTHING)
    assert psn in w.monitors[0].pds.pdcs[1].tx.records
    w.apply(UetStep("respond", 1, psn, 0, "ok"))
    w.apply(EVERYTHING)
    assert psn not in w.monitors[0].pds.pdcs[1].tx.records


@pytest.mark.parametrize(
    ("step", "ctl_type"),
    [
        (UetStep("noop"), CtlType.NOOP),
        (UetStep("negotiate", 0, 7), CtlType.NEGOTIATION),
        (UetStep("probe"), CtlType.PROBE),
        (UetStep("ask_credit", 0, 5), CtlType.CREDIT_REQ),
        (UetStep("give_credit", 1, 5), CtlType.CREDIT),
        (UetStep("close"), CtlType.CLOSE_CMD),
        (UetStep("ask_close", 1), CtlType.CLOSE_REQ),
    ],
    ids=lambda value: value.action if isinstance(value, UetStep) else "",
)
def test_control_packets(step: UetStep, ctl_type: CtlType) -> None:
    w = opened()
    w.apply(step)
    (message,) = on_the_wire(w)
    assert isinstance(message, Control)
    assert message.ctl_type == ctl_type
    w.finish()


def test_no_pdc_no_control_packet() -> None:
    for action, node in (("close", 0), ("ask_close", 1), ("probe", 0), ("ask_credit", 0), ("give_credit", 1)):
        with pytest.raises(LocalError):
            simulator().apply(UetStep(action, node))


def test_lose() -> None:
    """The source learns that the response is gone (NACK GTD_RESP_UNAVAIL), and its PDC ends in error."""
    w = opened()
    psn = w.monitors[0].shadows[1].next
    submit(w, answer="gtd")
    w.apply(EVERYTHING)
    w.apply(UetStep("drop", 0, ALL))
    w.apply(UetStep("lose", 1, psn))
    w.apply(UetStep("advance", 0, MILLISECOND))
    w.apply(EVERYTHING)
    assert w.monitors[1].pds.nack_tx == {NackCode.GTD_RESP_UNAVAIL: 1}
    w.apply(EVERYTHING)
    assert not w.monitors[0].pds.pdcs
    with pytest.raises(LocalError, match="no stored response"):
        w.apply(UetStep("lose", 1, psn + 1))


def test_restart() -> None:
    w = opened()
    w.apply(UetStep("restart", 1))
    submit(w)
    w.apply(EVERYTHING)
    assert [m.code for m in on_the_wire(w) if isinstance(m, Nack)] == [NackCode.INV_DPDCID]
    w.apply(EVERYTHING)
    assert w.disruptions is Disruption.RESTARTED
    assert not w.monitors[0].pds.pdcs


def test_inject() -> None:
    w = simulator(objects=False)
    w.apply(UetStep("inject", 1, data=b"\xff" * 40))
    assert w.monitors[1].pds.counters.undecodable == 1


def test_an_exception_is_a_violation() -> None:
    w = simulator()
    submit(w)
    w.monitors[1].pds.receive = None  # type: ignore[method-assign, assignment]
    with pytest.raises(InvariantViolation, match=r"pds 48: TypeError"):
        w.apply(EVERYTHING)


def test_after_a_new_start_the_ends_are_compared_no_more() -> None:
    """pds.md §6.6: a late copy opens a PDC at the Start_PSN that its initiator is about to leave, another one is
    delivered there afterwards: with the bytes of that time, though no request in flight has this PSN any more."""
    w = UetSimulator(
        3, (ENDLESS, ENDLESS | {"secure_start": "expected", "new_pdc_time": MILLISECOND}),
        (Preset(start_psn=5000), Preset(expected_psn=9000)), objects=True,
    )  # fmt: skip
    submit(w, 2)
    w.apply(UetStep("dup", 0, 0))
    w.apply(UetStep("deliver", 0, 0))
    (refusal,) = [number for number, packet in w.flight.items() if isinstance(packet.message, Nack)]
    w.apply(UetStep("advance", 0, MILLISECOND))
    w.monitors[1].pds.start_policy.closed(7000 + (1 << 31), 7000 + (1 << 31))  # of another initiator, which drew it
    for number in (1, refusal, 2):
        w.apply(UetStep("deliver", 0, number))
    first, second = (next(iter(monitor.pds.pdcs.values())) for monitor in w.monitors)
    assert (first.tx.start, second.rx.start, second.rx.cack) == (9000, 5000, 5001)


def test_a_closed_gap_that_the_engine_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """pds.md §18 item 53: the model follows the gaps by itself."""
    monkeypatch.setattr(PsnWindow, "note_early", lambda self, psn: None)
    w = opened()
    submit(w, 3)
    first, second, last = w.flight
    for number in (last, second):
        w.apply(UetStep("deliver", 0, number))
    with pytest.raises(InvariantViolation, match=r"^pds 53: a gap closed, and no ACK tells so"):
        w.apply(UetStep("deliver", 0, first))


def test_a_broken_engine_is_found() -> None:
    """The window forgets a PSN: the packet is delivered a second time."""
    w = opened(ar_on_eom=False)
    submit(w, 3)
    w.apply(UetStep("deliver", 0, w.sent - 1))
    w.monitors[1].pds.pdcs[1].rx.slots.clear()
    w.apply(UetStep("dup", 0, w.sent - 1))
    with pytest.raises(InvariantViolation, match="pds 1: delivered twice"):
        w.apply(UetStep("deliver", 0, w.sent - 1))


# Pairs of runs --------------------------------------------------------------------------------------------------------


def trace_of(start: int, mode: Mode) -> list[tuple[int, int, Any]]:
    """Everything that leaves, in a run with losses."""
    w = UetSimulator(5, (ENDLESS, ENDLESS), (Preset(start_psn=start), Preset()), objects=True)
    trace = []
    send = w.wire.send

    def spy(packets: list[Any], now: int) -> None:
        trace.extend((now, packet.src, packet.message) for packet in packets)
        send(packets, now)

    w.wire = _Spy(w.wire, spy)  # type: ignore[assignment]
    submit(w, 30, mode=mode, answer="gtd")
    submit(w, 5, mode=mode, op="read", answer="return", message_id=2)
    for number in (3, 7, 8, 33):
        w.apply(UetStep("drop", 0, number))
    w.apply(UetStep("trim", 0, 12))
    w.apply(EVERYTHING)
    w.apply(UetStep("advance", 0, 5 * MILLISECOND))
    w.finish()
    return trace


class _Spy:
    """A wire that somebody listens to."""

    def __init__(self, wire: Any, send: Any) -> None:
        self._wire = wire
        self.send = send

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
@pytest.mark.parametrize("shift", [1, 0x7FFFFFFF, 0xFFFFFFFF - 20])
def test_shift(mode: Mode, shift: int) -> None:
    """pds.md §18 item 23."""
    pds_23_shift(trace_of(1000, mode), trace_of((1000 + shift) & 0xFFFFFFFF, mode), shift)


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
def test_confluence(mode: Mode) -> None:
    """pds.md §18 item 37: the ACKs of four packets, in every order."""
    pdcs = []
    for order in permutations(range(4)):
        w = opened(enb_ack_per_pkt=True)
        submit(w, 5, mode=mode, answer="gtd")
        requests = list(w.flight)
        for number in requests[:4]:
            w.apply(UetStep("deliver", 0, number))
        acks = [number for number, p in w.flight.items() if isinstance(p.message, Ack)]
        assert len(acks) == 4
        for place in order:
            w.apply(UetStep("deliver", 0, acks[place]))
        pdcs.append(next(pdc for pdc in w.monitors[0].pds.pdcs.values() if pdc.mode is mode))
    for other in pdcs:
        pds_37_confluence(pdcs[0], other)


def test_the_second_of_two_copies_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """pds.md §18 item 36, asked wherever the same ACK comes twice in a row."""
    w = opened()
    submit(w, 4, answer="gtd")
    w.apply(EVERYTHING)
    first = next(iter(w.flight))
    w.apply(UetStep("dup", 0, first))
    w.apply(UetStep("deliver", 0, first))
    marks = iter([(), (1,)])
    monkeypatch.setattr("uetproto.check.uet.invariant_monitor.marks_of", lambda pdc: next(marks))
    with pytest.raises(InvariantViolation, match="pds 36"):
        w.apply(UetStep("deliver", 0, w.sent - 1))


# The seeded loop ------------------------------------------------------------------------------------------------------


def episode(profile: str, seed: int, steps: int, *, objects: bool = True) -> UetSimulator:
    chance = random.Random(f"{profile}/{seed}")
    generator = UetStepGenerator(profile, chance)
    w = UetSimulator(seed, generator.knobs, generator.presets, objects=objects)
    for _ in range(steps):
        with suppress(LocalError):  # not at this moment
            w.apply(generator.choose(w))
    w.finish()
    return w


@pytest.mark.parametrize("profile", PROFILES)
def test_episodes(profile: str) -> None:
    for seed in range(effort(4, 15, 150)):
        episode(profile, seed, 400)


@pytest.mark.parametrize("profile", PROFILES)
def test_one_seed_one_run(profile: str) -> None:
    assert episode(profile, 3, 300).report() == episode(profile, 3, 300).report()


@pytest.mark.parametrize("profile", PROFILES)
def test_with_bytes_as_without(profile: str) -> None:
    """`objects` changes nothing but the form of packets."""
    for seed in range(effort(3, 6, 60)):
        assert episode(profile, seed, 300).report() == episode(profile, seed, 300, objects=False).report()


def test_episodes_reach_everything() -> None:
    """Chance brings about what pds.md §18 is to be held against."""
    counters: dict[str, int] = {}
    states: set[State] = set()
    actions: set[str] = set()
    codes: set[int] = set()
    for seed in range(effort(60, 100, 100)):
        chance = random.Random(f"reach/{seed}")
        generator = UetStepGenerator(("mixed", "rud", "rod")[seed % 3], chance)
        w = UetSimulator(seed, generator.knobs, generator.presets, objects=True)
        for _ in range(400):
            step = generator.choose(w)
            actions.add(step.action)
            with suppress(LocalError):
                w.apply(step)
            states |= {pdc.state for monitor in w.monitors for pdc in monitor.pds.pdcs.values()}
        for monitor in w.monitors:
            codes |= set(monitor.pds.nack_tx)
            for name, count in monitor.pds.counters.as_dict().items():
                counters[name] = counters.get(name, 0) + count
    assert actions >= set(ACTIONS) - {"corrupt", "inject", "lose", "restart"}
    assert states == set(State) - {State.CLOSED}
    assert {
        NackCode.TRIMMED, NackCode.NO_PKT_BUFFER, NackCode.NO_GTD_DEL_AVAIL, NackCode.NO_SES_MSG_AVAIL,
        NackCode.PSN_OOR_WINDOW, NackCode.ROD_OOO, NackCode.INV_DPDCID, NackCode.RCVD_SES_PROCG,
        NackCode.NEW_START_PSN,
    } <= codes  # fmt: skip
    for name in ("dup_rx", "dup_no_retx", "oor_ahead", "trimmed_rx", "retx_rto", "retx_nack", "rudi_late", "uud_rx",
                 "pdc_close_in_err", "new_pdc_timeout_cnt", "retx_inferred"):  # fmt: skip
        assert counters[name], name


def test_a_dead_network_ends_everything() -> None:
    """pds.md §18 item 52, and 44: 63 ms after the last first transmission."""
    w = UetSimulator(1, objects=True)
    submit(w, 3)
    w.apply(UetStep("drop", 0, ALL))
    for _ in range(62):
        w.apply(UetStep("advance", 0, MILLISECOND))
        w.apply(UetStep("drop", 0, ALL))
    assert w.monitors[0].pds.pdcs
    w.apply(UetStep("advance", 0, MILLISECOND))
    assert not w.monitors[0].pds.pdcs
    assert w.ses[0].failed == 3


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
def test_finish_brings_everything_to_its_end(mode: Mode) -> None:
    w = simulator()
    submit(w, 20, mode=mode, answer="gtd")
    submit(w, 4, mode=mode, op="read", answer="return", message_id=2)
    submit(w, 4, mode=mode, answer="later", message_id=3)
    w.apply(UetStep("drop", 0, 5))
    w.apply(UetStep("close"))
    w.finish()
    assert not w.monitors[0].pds.pdcs
    assert not w.monitors[1].pds.pdcs
    assert (w.ses[0].answered, w.ses[1].delivered) == (28, 28)
    assert (w.ses[1].answered, w.ses[0].delivered) == (4, 4)


def test_finish_does_not_wait_for_ever() -> None:
    """Budgets that end: the other end of a PDC may be gone, its stored responses are never cleared."""
    w = UetSimulator(1, ({}, {"idle_time": 0}), objects=True)
    submit(w, 2, answer="gtd")
    w.apply(UetStep("deliver", 0, 1))
    w.apply(UetStep("drop", 0, ALL))
    for _ in range(70):
        w.apply(UetStep("advance", 0, MILLISECOND))
        w.apply(UetStep("drop", 0, ALL))
    before = w.now
    w.finish()
    assert w.now - before < 10 * SECOND


def test_report() -> None:
    w = opened()
    report = w.report()
    assert report["steps"] == 3
    assert report["packets"] == 2
    assert [end["counters"]["data_tx"] for end in report["endpoints"]] == [1, 0]
    assert any(isinstance(p, Request) for p in [w.wire.history[0].message])  # type: ignore[union-attr]
