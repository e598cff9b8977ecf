# SPDX-License-Identifier: GPL-2.0-only
"""This module has the numbered invariants of congestion control, with the numbers of cms.md §10.

The docstring of the function `cms_N_name` states invariant N. The functions raise `InvariantViolation`. Items 5 and 14,
and those of the switch and of whole runs (17 to 22), are tests.
"""

from enum import Enum
from typing import NamedTuple, Protocol

from uetproto.check.cc.model import Change, ContextModel, NsccModel
from uetproto.check.registry import Registry
from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.entropy import MOST_PENALTY, RING, Bitmap, Oblivious, Reps
from uetproto.engine.cc.nscc import Nscc
from uetproto.engine.contract import SECOND, AckReport, CccState, PathFeedback

ROUNDING = 255
"""Bytes by which rcvd_bytes of a PDC is rounded up at most."""
_QUANTUM = 256
_SHARE = 0.99
"""Share of the rate of a NIC that is granted."""
_FLOATS = 1e-9
"""Relative difference of two numbers that were computed in another order."""


class WindowBefore(NamedTuple):
    """This tuple has the variables of the engine's NSCC at one time."""

    cwnd: float
    max_wnd: float
    base_rtt: int
    last_dec: int
    qa_endtime: int

    @classmethod
    def of(cls, nscc: Nscc) -> "WindowBefore":
        return cls(nscc.cwnd, nscc.max_wnd, nscc.base_rtt, nscc.last_dec, nscc.qa_endtime)


class ContextView(Protocol):
    """This protocol describes what the invariants read of a context that is watched."""

    config: CcConfig
    model: ContextModel
    nscc: Nscc | None
    adapted_at: int | None
    """Time of the last quick adapt, or None."""


class Transmissions(NamedTuple):
    """This tuple says how often the wire has seen a packet, and when it was sent last."""

    times: int
    sent_at: int


class CcScope(Enum):
    """A scope says when an invariant is checked, and with which arguments."""

    WINDOW = "an event has changed a window: view, variables before, now"
    STARTED = "a packet is about to be sent: view"
    STATE = "any event of a context: view, state of the engine, whether all algorithms allow a packet"
    SETTLED = "an endpoint has sent what it could: view, bytes of the packets in flight, and of those unanswered, PDCs"
    ARRIVED = "the destination counts a packet: bytes that were sent for the first time, bytes that were counted"
    COUNTED = "an ACK carries rcvd_bytes: that of the ACK before, that of this one"
    SAMPLE = "an ACK shows a round-trip time: report, transmissions of what it names, retx, now, service time"
    GRANTED = "a grant leaves: quanta granted, quanta asked for, quanta that may be granted without demand"
    PACED = "a grant leaves: quanta granted by the NIC so far, its rate, time since the first demand"
    CREDIT = "a packet was sent with credit: view"
    CHOSEN = "an entropy value was chosen: chooser, values of the round before it, and the one that was chosen"
    HEARD = "feedback has changed a chooser: chooser, its ring before, entropy value, feedback"


CMS: Registry[CcScope] = Registry("cms", lambda: True)


def _need(condition: bool, number: int, text: str, *values: object) -> None:
    if not condition:
        raise CMS.broken(number, text, *values)


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= _FLOATS * max(abs(one), abs(other), 1.0)


def _models(view: ContextView) -> tuple[Nscc, NsccModel]:
    assert view.nscc is not None
    assert view.model.nscc is not None
    return view.nscc, view.model.nscc


@CMS.invariant(1, CcScope.SETTLED)
def cms_1_inflight(view: ContextView, flying: int, unanswered: int, pdcs: int, gap: bool = False) -> None:
    """inflight equals the sum of the nominal sizes of unresolved packets, up to 255 bytes a PDC (cms.md §10).

    A packet that the destination has reported and not answered may count or not: a NACK may overtake the ACK that
    counts its bytes. While there is a `gap`, rcvd_bytes tells of packets that a SACK does not name: it has 64 PSNs, and
    may begin at the packet that causes the ACK.
    """
    nscc, _ = _models(view)
    least = (0 if unanswered or gap else flying) - ROUNDING * pdcs
    _need(least <= nscc.inflight <= flying + unanswered, 1,
          f"{nscc.inflight} bytes in flight, of packets with {flying} bytes on {pdcs} PDCs")  # fmt: skip


@CMS.invariant(2, CcScope.WINDOW)
def cms_2_cwnd(view: ContextView, before: WindowBefore, now: int) -> None:
    """cwnd is an MTU at least; after it grew it is max_wnd at most, unless that is below an MTU or the destination
    restored cwnd; and it is that of the page (cms.md §3)."""
    nscc, model = _models(view)
    _need(nscc.cwnd >= view.config.mtu, 2, f"cwnd {nscc.cwnd} is below an MTU")
    grown = nscc.cwnd > before.cwnd and not model.change & Change.RESTORED
    most = max(nscc.max_wnd, view.config.mtu)
    _need(not grown or nscc.cwnd <= most, 2, f"cwnd grows to {nscc.cwnd}, above max_wnd {nscc.max_wnd}")
    _need(_equal(nscc.cwnd, model.cwnd), 2, f"cwnd is {nscc.cwnd}, and {model.cwnd} by cms.md §3")


@CMS.invariant(3, CcScope.STARTED)
def cms_3_window(view: ContextView) -> None:
    """No packet starts when inflight + MTU is above cwnd, unless there is no window (cms.md §3.4)."""
    nscc, _ = _models(view)
    needed = nscc.inflight + view.config.mtu
    _need(needed <= nscc.cwnd, 3, f"a packet starts with {nscc.inflight} bytes in flight and cwnd {nscc.cwnd}")


@CMS.invariant(4, CcScope.WINDOW)
def cms_4_base(view: ContextView, before: WindowBefore, now: int) -> None:
    """max_wnd and base_rtt never grow, and max_wnd is 1.5 times what the link sends in base_rtt (cms.md §3.3)."""
    nscc, _ = _models(view)
    _need(nscc.base_rtt <= before.base_rtt, 4, f"base_rtt grows from {before.base_rtt} to {nscc.base_rtt}")
    _need(nscc.max_wnd <= before.max_wnd, 4, f"max_wnd grows from {before.max_wnd} to {nscc.max_wnd}")
    product = 1.5 * view.config.rate * nscc.base_rtt / (8 * SECOND)
    _need(abs(nscc.max_wnd - product) <= 2, 4, f"max_wnd is {nscc.max_wnd}, and base_rtt gives {product}")


@CMS.invariant(6, CcScope.WINDOW)
def cms_6_decrease(view: ContextView, before: WindowBefore, now: int) -> None:
    """One multiplicative decrease lowers cwnd by half at most, and two are more than base_rtt apart (cms.md §3.3)."""
    nscc, model = _models(view)
    _need(nscc.last_dec == model.last_dec, 6, f"the last decrease was at {nscc.last_dec}, by the page {model.last_dec}")
    if nscc.last_dec != before.last_dec:
        least = max(before.cwnd / 2, view.config.mtu) * (1 - _FLOATS)
        if model.change & Change.FULFILLED:  # max_wnd may have become lower
            least = min(least, max(nscc.max_wnd, view.config.mtu))
        if model.change & Change.LIMITED:
            least = view.config.mtu
        _need(nscc.cwnd >= least, 6, f"a decrease from {before.cwnd} to {nscc.cwnd}")
        apart = nscc.last_dec - before.last_dec
        _need(apart > nscc.base_rtt, 6, f"decreases {apart} ps apart, with a base RTT of {nscc.base_rtt}")


@CMS.invariant(7, CcScope.WINDOW)
def cms_7_quick_adapt(view: ContextView, before: WindowBefore, now: int) -> None:
    """Quick adapt acts once in base_rtt + target_qdelay at most, leaves an MTU at least, and acts only if less than an
    eighth of max_wnd was delivered (cms.md §3.4)."""
    nscc, model = _models(view)
    _need(nscc.qa_endtime == model.qa_endtime, 7,
          f"the period of quick adapt ends at {nscc.qa_endtime}, by the page at {model.qa_endtime}")  # fmt: skip
    if not model.change & Change.ADAPTED:
        return
    _need(view.config.mtu <= nscc.cwnd <= max(view.config.mtu, nscc.max_wnd / 8), 7, f"it sets cwnd to {nscc.cwnd}")
    if view.adapted_at is not None:
        least = nscc.base_rtt + view.config.target_qdelay  # base_rtt may be lower now than in the period
        _need(now - view.adapted_at >= least, 7, f"it acts again after {now - view.adapted_at} ps")


@CMS.invariant(8, CcScope.WINDOW)
def cms_8_ignored(view: ContextView, before: WindowBefore, now: int) -> None:
    """Marked ACKs of what was in flight at the last quick adapt change nothing but counters (cms.md §3.4)."""
    nscc, model = _models(view)
    if model.change == Change.IGNORED:
        _need(nscc.cwnd in (before.cwnd, model.cwnd), 8, f"an old ACK changes cwnd from {before.cwnd} to {nscc.cwnd}")
        _need(not (nscc.inc_bytes or nscc.received), 8, "an old ACK leaves an increase pending")
    _need(nscc.bytes_ignored == model.bytes_ignored and nscc.bytes_to_ignore == model.bytes_to_ignore, 8,
          f"{nscc.bytes_ignored} of {nscc.bytes_to_ignore} bytes are ignored, by the page {model.bytes_ignored} of"
          f" {model.bytes_to_ignore}")  # fmt: skip


@CMS.invariant(9, CcScope.ARRIVED)
def cms_9_once(sent: int, counted: int) -> None:
    """Each byte counts once: what the destination has counted is no more than what was sent for the first time
    (cms.md §3.2)."""
    _need(counted <= sent, 9, f"the destination has counted {counted} bytes, and {sent} were sent")


@CMS.invariant(10, CcScope.COUNTED)
def cms_10_rcvd_bytes(before: int, now: int) -> None:
    """rcvd_bytes on the wire never falls, modulo 2^24, in the order in which the ACKs of a PDC leave (cms.md §3.2)."""
    _need((now - before) & 0xFFFFFF < 1 << 23, 10, f"rcvd_bytes falls from {before} to {now}")


@CMS.invariant(11, CcScope.SAMPLE)
def cms_11_sample(report: AckReport, seen: Transmissions | None, retx: int, now: int, service: int) -> None:
    """A round-trip time is never taken from a packet that was sent more than twice, nor from a retransmitted one
    without the retx of its ACK (cms.md §3.3)."""
    if report.rtt is None:
        return
    _need(seen is not None, 11, "a round-trip time of a packet that was never sent")
    assert seen is not None
    _need(seen.times == (2 if retx else 1), 11,
          f"a round-trip time of a packet that was sent {seen.times} times, from an ACK with retx {retx}")  # fmt: skip
    rtt = now - seen.sent_at - service
    _need(report.rtt == rtt, 11, f"the round-trip time {report.rtt} of a packet that took {rtt}")


@CMS.invariant(12, CcScope.STATE)
def cms_12_ready(view: ContextView, state: CccState, allowed: bool) -> None:
    """The state is READY if and only if there is something to send and all algorithms allow it (cms.md §2)."""
    wanted = view.model.state(allowed)
    _need(state is wanted, 12, f"the state is {state.name}, by the page {wanted.name}")


@CMS.invariant(13, CcScope.GRANTED)
def cms_13_granted(granted: int, asked: int, advance: int) -> None:
    """Grants go beyond the target by those without demand at most (cms.md §4)."""
    _need(granted <= asked + advance, 13, f"{granted} quanta are granted, {asked} asked for")


def paced(granted: int, rate: int, duration: int, largest: int) -> None:
    """Raise `InvariantViolation` if a NIC grants faster than 0.99 of its rate. The last grant, of `largest` quanta at
    most, counts when its time begins."""
    most = _SHARE * rate * duration / (8 * SECOND) + _QUANTUM * largest
    given = _QUANTUM * granted
    _need(given <= most * (1 + _FLOATS) + 1, 13, f"{given} bytes are granted in {duration} ps")


def overdrawn(view: ContextView) -> None:
    """Raise `InvariantViolation` if a sender has used more than its initial credit, its grants and one packet."""
    rccc = view.model.rccc
    assert rccc is not None
    _need(rccc.sent <= rccc.most, 13, f"{rccc.sent} bytes were sent, with credit for {rccc.most}")


@CMS.invariant(15, CcScope.CHOSEN)
def cms_15_rounds(chooser: Oblivious, returned: set[int], bad: set[int], ended: bool, again: bool) -> None:
    """Oblivious: in a round every entropy value is used once. Bitmap: penalties stay in 0 … 15, and an entropy value
    without bad feedback is never skipped (cms.md §5)."""
    _need(not again, 15, "an entropy value is used twice in a round")
    if isinstance(chooser, Bitmap):
        _need(max(chooser.penalties) <= MOST_PENALTY, 15, f"a penalty of {max(chooser.penalties)}")
    if ended:
        skipped = set(range(chooser.size)) - returned - bad
        _need(not skipped, 15, f"{len(skipped)} entropy values without bad feedback were skipped in a round")


@CMS.invariant(16, CcScope.HEARD)
def cms_16_ring(chooser: Reps, before: list[int], entropy: int, feedback: PathFeedback) -> None:
    """REPS: an entropy value enters the ring only from an unmarked ACK, and the ring has 8 at most (cms.md §5)."""
    ring = list(chooser.ring)
    _need(len(ring) <= RING, 16, f"the ring has {len(ring)} entropy values")
    if ring != before:
        _need(feedback is PathFeedback.NO_ECN, 16, f"an entropy value enters the ring after {feedback.name}")
        _need(ring == [*before, entropy][-RING:], 16, "another entropy value enters the ring")
