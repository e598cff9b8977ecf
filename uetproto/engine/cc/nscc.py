# SPDX-License-Identifier: GPL-2.0-only
"""NSCC, the congestion control of the sender: a window from delays and ECN marks (UE 1.0.1 §3.6.13, cms.md §3).

The methods are the pseudo code of cms.md §3.3 to §3.5, in its order, which matters.
"""

from uetproto.engine.cc.config import CcConfig
from uetproto.engine.contract import MICROSECOND, NEVER, SECOND, AckReport, Trim

GAMMA, MAX_MD_JUMP, QA_GATE = 0.8, 0.5, 3
NO_DELAY = MICROSECOND
"""Queueing delay in picoseconds below which there is none (fast increase)."""
HTSIM_WEIGHT = 0.0125
"""Weight of a sample in the average delay of the form htsim."""


class Nscc:
    """This class has the state of NSCC of one context (UE 1.0.1 Table 3-77)."""

    __slots__ = (
        "_config", "_sampled_at", "achieved", "average", "base_rtt", "bytes_ignored", "bytes_to_ignore",
        "cwnd", "fi_count", "inc_bytes", "increase_mode", "inflight", "last_adjust", "last_dec", "max_wnd",
        "qa_endtime", "received", "saved_cwnd", "trigger_qa",
    )  # fmt: skip

    def __init__(self, config: CcConfig) -> None:
        self._config = config
        self.cwnd: float = config.max_wnd
        """The window in bytes."""
        self.max_wnd: float = config.max_wnd
        self.base_rtt = config.base_rtt
        self.inflight = 0
        """Nominal bytes in flight. It may be negative, as rcvd_bytes is rounded up."""
        self.saved_cwnd: float = 0
        """Window before the first penalty of the destination, 0: there is none."""
        self.achieved = self.received = self.bytes_ignored = self.bytes_to_ignore = 0
        self.inc_bytes = 0.0
        self.trigger_qa = self.increase_mode = False
        self.qa_endtime = self.last_adjust = self.last_dec = self._sampled_at = 0
        self.fi_count = 0
        self.average = 0.0
        """Average queueing delay in picoseconds."""

    def may_send(self, size: int, now: int) -> bool:
        return self.inflight + size <= self.cwnd

    def sent(self, size: int, now: int) -> bool:
        self.inflight += size
        config, cwnd = self._config, self.cwnd
        return cwnd - self.inflight < config.mtu or cwnd < config.ack_gen_trigger

    def acked(self, report: AckReport, now: int) -> None:
        new, marked = report.new, report.marked
        self.inflight -= new
        self.bytes_ignored += new
        self.received += new
        self.achieved += new
        limited = (report.penalty or report.restore) and self._limit(report)
        rtt, config = report.rtt, self._config
        if rtt is None:
            return
        if rtt < self.base_rtt:
            self._note_rtt(rtt)
        delay, target = rtt - self.base_rtt, config.target_qdelay
        self._average(delay, marked, now)
        if config.quick_adapt and self._quick_adapt(False, marked, delay, now):
            return
        if not marked:
            if limited:
                pass
            elif delay >= target:
                self.inc_bytes += config.fi * new
            else:
                self._increase(new, delay, target)
        elif delay >= target:
            self._decrease(target, now)
        if now - self.last_adjust >= config.base_rtt or self.received > 8 * config.mtu:
            self._fulfill(now)

    def nacked(self, size: int, trim: Trim, marked: bool, rtt: int | None, now: int) -> None:
        self.inflight -= size
        if rtt is not None:
            self._note_rtt(rtt)
        if trim is Trim.NO:
            return
        self._average(self._config.base_rtt, True, now)
        self.bytes_ignored += size
        if trim is Trim.LAST_HOP and self._config.credits:
            return
        self.trigger_qa = True
        if not (self._config.quick_adapt and self._quick_adapt(True, True, 0, now)):
            self.cwnd = max(self.cwnd - size, self._config.mtu)

    def lost(self, size: int, now: int) -> None:
        self.cwnd = max(self.cwnd - size, self._config.mtu)
        self.bytes_ignored += size
        self.inflight -= size

    def withdrawn(self, size: int) -> None:
        self.inflight -= size

    def probed(self, rtt: int) -> None:
        self._note_rtt(rtt)

    def speculate(self) -> None:
        """A window always lets a packet go."""

    def credited(self, credit: int, now: int) -> None:
        """A window has no credit."""

    def most(self) -> float:
        return self.cwnd

    def demand(self, waiting: int) -> int | None:
        return None

    def deadline(self) -> int:
        return NEVER

    def on_time(self, waiting: int, now: int) -> bool:
        return False

    # The parts of §3.3 and §3.4

    def _note_rtt(self, rtt: int) -> None:
        if 0 < rtt < self.base_rtt:
            self.base_rtt = rtt
            self.max_wnd = min(self.max_wnd, 1.5 * self._config.rate * rtt / (8 * SECOND))

    def _average(self, delay: int, marked: bool, now: int) -> None:
        if self._config.form == "htsim":
            sample = self.base_rtt / 4 if not marked and delay > self._config.target_qdelay else delay
            self.average += HTSIM_WEIGHT * (sample - self.average)
            return
        passed = now - self._sampled_at
        weight = passed / self.base_rtt if passed < self.base_rtt else 1.0
        self._sampled_at = now
        self.average += weight * (delay - self.average)

    def _increase(self, new: int, delay: int, target: int) -> None:
        """Collect an increase in proportion to how far the delay is below its target.

        If a whole window of ACKs has shown no delay, increase the window at once instead, by fi_scale (§3.3)."""
        if delay < NO_DELAY:
            self.fi_count += new
            if self.increase_mode or self.fi_count > self.cwnd:
                self._open(self.cwnd + new * self._config.fi_scale)
                self.increase_mode = True
                return
        else:
            self.fi_count = 0
        self.increase_mode = False
        self.inc_bytes += self._config.alpha * new * (target - delay)

    def _decrease(self, target: int, now: int) -> None:
        self.increase_mode = False
        self.fi_count = 0
        average = self.average
        if average > target and now - self.last_dec > self.base_rtt:
            share = max(1 - GAMMA * (average - target) / average, MAX_MD_JUMP)
            self.cwnd = max(self.cwnd * share, self._config.mtu)
            self.last_dec = now

    def _fulfill(self, now: int) -> None:
        """Add what was collected to the window, and eta once a period."""
        config, cwnd = self._config, self.cwnd
        if self.inc_bytes:
            cwnd += self.inc_bytes / cwnd
            self.inc_bytes = 0.0
        if now - self.last_adjust >= config.base_rtt:
            self.last_adjust = now
            cwnd += config.eta
        self._open(cwnd)
        self.received = 0

    def _open(self, cwnd: float) -> None:
        """Set the window, from one packet to MaxWnd."""
        if cwnd > self.max_wnd:
            cwnd = self.max_wnd
        self.cwnd = cwnd if cwnd > self._config.mtu else self._config.mtu

    def _quick_adapt(self, loss: bool, marked: bool, delay: int, now: int) -> bool:
        """Set the window to what was delivered in the last period, at most once a period; return whether the ACK or
        NACK changes nothing else."""
        config = self._config
        handled = marked and self.bytes_ignored < self.bytes_to_ignore  # an old packet, from before the cut
        over = now > self.qa_endtime if config.form == "htsim" else now >= self.qa_endtime
        if over and not handled:
            threshold = config.qa_threshold
            needed = self.trigger_qa or loss or (threshold is not None and delay > threshold)
            if needed and self.qa_endtime and self.achieved < self.max_wnd / 2**QA_GATE:
                self.cwnd = max(self.achieved, config.mtu)
                self.bytes_to_ignore, self.bytes_ignored = self.inflight, 0
                self.trigger_qa = False
                handled = True
            self.achieved = 0
            self.qa_endtime = now + self.base_rtt + config.target_qdelay
        if handled:
            self.inc_bytes = 0.0
            self.received = 0
        return handled

    def _limit(self, report: AckReport) -> bool:
        """Let the destination shrink or restore the window, and return whether it limits the window now (§3.4)."""
        if report.penalty > 0:
            if not self.saved_cwnd:
                self.saved_cwnd = self.cwnd
                self.cwnd = min(self.cwnd, self.inflight + report.new)  # a part that is not used delays nothing
            self.cwnd = max(self._config.mtu, self.cwnd - (report.penalty * report.new >> 7))
        elif self.saved_cwnd > 0:
            self.cwnd, self.saved_cwnd = self.saved_cwnd, 0
        return report.penalty > 0
