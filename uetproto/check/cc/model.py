# SPDX-License-Identifier: GPL-2.0-only
"""This module has a model of congestion control, which the simulator keeps beside the engine (cms.md §2 to §4).

It is written from the page, line by line, and shares nothing with the engine but the parameters.
"""

from dataclasses import dataclass, field
from enum import Flag, auto

from uetproto.engine.cc.config import CcConfig
from uetproto.engine.contract import MICROSECOND, SECOND, AckReport, CccState, Trim

_GAMMA, _MAX_MD_JUMP, _QA_GATE, _WEIGHT = 0.8, 0.5, 3, 0.0125
_QUANTUM = 256


class Change(Flag):
    """This enumeration says what an event did to a window."""

    NONE = 0
    FULFILLED = auto()
    FAST = auto()
    DECREASED = auto()
    ADAPTED = auto()
    """Quick adapt has set the window."""
    IGNORED = auto()
    """The ACK or NACK is of before the last quick adapt."""
    LIMITED = auto()
    RESTORED = auto()
    """The destination has shrunk or restored the window."""


@dataclass(slots=True)
class NsccModel:
    """This class has the variables of cms.md §3.2, and the pseudo code of §3.3 to §3.5."""

    config: CcConfig
    slack: int = 0
    """Picoseconds that are added to each time that has passed, for somebody whose clock has larger units."""
    cwnd: float = field(init=False)
    base_rtt: int = field(init=False)
    max_wnd: float = field(init=False)
    inflight: int = 0
    saved_cwnd: float = 0
    achieved: int = 0
    received: int = 0
    bytes_to_ignore: int = 0
    bytes_ignored: int = 0
    inc_bytes: float = 0
    last_adjust: int = 0
    last_dec: int = 0
    increase_mode: bool = False
    fi_count: int = 0
    trigger_qa: bool = False
    qa_endtime: int = 0
    average: float = 0
    sampled: int = 0
    change: Change = Change.NONE
    """What the last event did."""

    def __post_init__(self) -> None:
        self.cwnd = self.max_wnd = self.config.max_wnd
        self.base_rtt = self.config.base_rtt

    def ack(self, report: AckReport, now: int) -> None:
        self.change = Change.NONE
        new, target = report.new, self.config.target_qdelay
        self.inflight -= new
        self.bytes_ignored += new
        self.received += new
        self.achieved += new
        limited = self.dfc(report)
        if report.rtt is None:
            return
        self.sample(report.rtt)
        d = report.rtt - self.base_rtt
        self.average_delay(d, report.marked, now)
        if self.quick_adapt(False, report.marked, d, now):
            return
        if report.marked and d >= target:
            self.decrease(now)
        elif not report.marked and not limited:
            if d >= target:
                self.inc_bytes += self.config.fi * new
            else:
                self.proportional(new, d)
        if self.passed(now, self.last_adjust) >= self.config.base_rtt or self.received > 8 * self.config.mtu:
            self.fulfill(now)

    def nack(self, size: int, trim: Trim, rtt: int | None, now: int) -> None:
        self.change = Change.NONE
        self.inflight -= size
        if rtt is not None:
            self.sample(rtt)
        if trim is not Trim.NO:
            self.average_delay(self.config.base_rtt, True, now)
            self.bytes_ignored += size
        if trim is Trim.TRIMMED or (trim is Trim.LAST_HOP and not self.config.credits):
            self.trigger_qa = True
            if not self.quick_adapt(True, True, 0, now):
                self.cwnd = max(self.cwnd - size, self.config.mtu)

    def loss(self, size: int) -> None:
        self.change = Change.NONE
        self.cwnd = max(self.cwnd - size, self.config.mtu)
        self.bytes_ignored += size
        self.inflight -= size

    def passed(self, now: int, before: int) -> int:
        return now - before + self.slack

    def sample(self, rtt: int) -> None:
        if 0 < rtt < self.base_rtt:
            self.base_rtt = rtt
            self.max_wnd = min(self.max_wnd, 1.5 * self.config.rate * rtt / (8 * SECOND))

    def average_delay(self, d: float, marked: bool, now: int) -> None:
        if self.config.form == "htsim":
            if not marked and d > self.config.target_qdelay:
                d = self.base_rtt / 4
            self.average = self.average + _WEIGHT * (d - self.average)
        else:
            w = min(1.0, (now - self.sampled) / self.base_rtt)
            self.average, self.sampled = self.average + w * (d - self.average), now

    def proportional(self, new: int, d: int) -> None:
        if d < MICROSECOND:
            self.fi_count += new
            if self.fi_count > self.cwnd or self.increase_mode:
                self.cwnd = max(min(self.cwnd + new * self.config.fi_scale, self.max_wnd), self.config.mtu)
                self.increase_mode = True
                self.change |= Change.FAST
                return
        else:
            self.fi_count = 0
        self.increase_mode = False
        self.inc_bytes += self.config.alpha * new * (self.config.target_qdelay - d)

    def decrease(self, now: int) -> None:
        self.increase_mode, self.fi_count = False, 0
        a, t = self.average, self.config.target_qdelay
        if a > t and self.passed(now, self.last_dec) > self.base_rtt:
            self.cwnd = max(self.cwnd * max(1 - _GAMMA * (a - t) / a, _MAX_MD_JUMP), self.config.mtu)
            self.last_dec = now
            self.change |= Change.DECREASED

    def fulfill(self, now: int) -> None:
        self.cwnd += self.inc_bytes / self.cwnd
        if self.passed(now, self.last_adjust) >= self.config.base_rtt:
            self.last_adjust = now
            self.cwnd += self.config.eta
        self.cwnd = max(min(self.cwnd, self.max_wnd), self.config.mtu)
        self.inc_bytes = self.received = 0
        self.change |= Change.FULFILLED

    def quick_adapt(self, loss: bool, marked: bool, d: float, now: int) -> bool:
        if not self.config.quick_adapt:
            return False
        handled = False
        if self.bytes_ignored < self.bytes_to_ignore and marked:
            handled = True
            self.change |= Change.IGNORED
        elif (over := self.passed(now, self.qa_endtime)) > 0 or (over == 0 and self.config.form == "notes"):
            threshold = self.config.qa_threshold
            needed = self.trigger_qa or loss or (threshold is not None and d > threshold)
            if self.qa_endtime and needed and self.achieved < self.max_wnd / 2**_QA_GATE:
                self.cwnd = max(self.achieved, self.config.mtu)
                self.bytes_to_ignore, self.bytes_ignored, self.trigger_qa = self.inflight, 0, False
                handled = True
                self.change |= Change.ADAPTED
            self.achieved = 0
            self.qa_endtime = now + self.base_rtt + self.config.target_qdelay
        if handled:
            self.inc_bytes = self.received = 0
        return handled

    def dfc(self, report: AckReport) -> bool:
        if report.penalty > 0:
            if self.saved_cwnd == 0:
                self.saved_cwnd = self.cwnd
                self.cwnd = min(self.cwnd, self.inflight + report.new)
            self.cwnd = max(self.config.mtu, self.cwnd - (report.penalty * report.new >> 7))
            self.change |= Change.LIMITED
        elif report.restore and self.saved_cwnd > 0:
            self.cwnd, self.saved_cwnd = self.saved_cwnd, 0
            self.change |= Change.RESTORED
        return report.penalty > 0


@dataclass(slots=True)
class RcccModel:
    """This class has what a sender may have sent with credits (cms.md §4)."""

    config: CcConfig
    granted: int = 0
    """Quanta that were granted, without wrapping."""
    sent: int = 0
    refunded: int = 0
    """Bytes that were lost before the peer was heard of."""
    heard: bool = False

    def lost(self, size: int) -> None:
        if not self.heard:
            self.refunded += size

    def grant(self, credit: int) -> None:
        self.heard = True
        more = (credit - self.granted) % 2**24
        if more < 2**23:
            self.granted += more

    @property
    def most(self) -> int:
        """Return the most bytes that may have been sent: one packet may begin as long as there is credit."""
        return self.config.max_wnd + _QUANTUM * self.granted + self.config.mtu + self.refunded


@dataclass(slots=True)
class ContextModel:
    """This class has the counters of cms.md §2."""

    config: CcConfig
    nscc: NsccModel | None = field(init=False)
    rccc: RcccModel | None = field(init=False)
    backlog: int = 0
    waiting_rtx: int = 0
    rtx_backlog: int = 0
    inflight_pkts: int = 0
    offered: int = 0
    """Bytes of first transmissions."""

    def __post_init__(self) -> None:
        self.nscc = NsccModel(self.config) if self.config.window else None
        self.rccc = RcccModel(self.config) if self.config.credits else None

    def state(self, allowed: bool) -> CccState:
        """Return the state, if the algorithms allow a packet (`allowed`)."""
        if self.backlog > 0 or self.waiting_rtx > 0:
            return CccState.READY if allowed else CccState.ACTIVE
        return CccState.PENDING if self.inflight_pkts > 0 else CccState.IDLE
