# SPDX-License-Identifier: GPL-2.0-only
"""This module has the congestion control context (CCC), which counts what waits and what flies (cms.md §2)."""

from collections.abc import Callable, Sequence

from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.contract import CongestionControl
from uetproto.engine.contract import NEVER, AckReport, CccState, PathSelection, Trim

LEAST_OVERTAKING = 5
"""Number of packets out of order up to which none is taken for lost."""
PATIENT = 2
"""A packet that may wait in the network with others is taken for lost after so many of the last round-trip time."""
LEAST_RTO = 3
"""Least time-out in base RTTs, where the time-out follows from round-trip times."""


class Ccc:
    """A congestion control context is shared by the PDCs of one {peer, traffic class, mode}.

    It may send if each of its algorithms allows it. It implements `engine.contract.CongestionContext`.
    """

    __slots__ = (
        "_algorithms", "_config", "_srtt", "_variation", "backlog", "ccc_id", "demands", "heard_at",
        "inflight_pkts", "paths", "rtx_backlog", "waiting_rtx", "wants_probe",
    )  # fmt: skip

    def __init__(
        self, ccc_id: int, algorithms: Sequence[CongestionControl], paths: Callable[[], PathSelection], config: CcConfig
    ) -> None:  # fmt: skip
        """`paths` returns what chooses the entropy values of a new PDC."""
        self.ccc_id = ccc_id
        self._algorithms = tuple(algorithms)
        self._config = config
        self.paths = paths
        self.wants_probe = config.base_rtt_probe and config.window
        self.heard_at = 0
        self._srtt = self._variation = 0
        """Smoothed round-trip time and its variation in picoseconds; with a fixed time-out the last one and 0. 0: not
        measured."""
        self.demands = any(one.demand(0) is not None for one in self._algorithms)
        """Whether requests carry a demand."""
        self.backlog = 0
        """Nominal bytes that wait for their first transmission."""
        self.waiting_rtx = self.rtx_backlog = 0
        """Packets, and their nominal bytes, that wait for their retransmission."""
        self.inflight_pkts = 0
        """Packets sent and neither acknowledged nor given up."""

    @property
    def algorithms(self) -> tuple[CongestionControl, ...]:
        """Return the algorithms of the context."""
        return self._algorithms

    @property
    def window(self) -> float:
        """Return how many bytes may be in flight, by the strictest algorithm."""
        return min(one.most() for one in self._algorithms)

    def state(self, size: int, now: int) -> CccState:
        """Return the state, for a next packet of `size` bytes."""
        if self.backlog <= 0 and not self.waiting_rtx:
            return CccState.PENDING if self.inflight_pkts else CccState.IDLE
        return CccState.READY if self.may_send(size, now) else CccState.ACTIVE

    def offered(self, size: int) -> None:
        self.backlog += size

    def may_send(self, size: int, now: int) -> bool:
        for one in self._algorithms:  # noqa: SIM110 - `all` with a generator takes twice as long
            if not one.may_send(size, now):
                return False
        return True

    def sent(self, size: int, again: bool, now: int) -> bool:
        self.inflight_pkts += 1
        if again:
            self.waiting_rtx -= 1
            self.rtx_backlog -= size
        else:
            self.backlog -= size
        ask = False
        for one in self._algorithms:
            ask |= one.sent(size, now)
        return ask

    def acked(self, packets: int, report: AckReport, now: int) -> int | None:
        self.inflight_pkts -= packets
        self.heard_at = now
        rtt = report.rtt
        if rtt is not None:
            if self._config.measures_rto:
                self._measure(rtt)
            else:
                self._srtt = rtt
        for one in self._algorithms:
            one.acked(report, now)
        return self.rto() if self._config.measures_rto else None

    def _measure(self, rtt: int) -> None:
        """Note a round-trip time as RFC 6298 does."""
        if not self._srtt:
            self._srtt, self._variation = rtt, rtt // 2
            return
        self._variation += (abs(rtt - self._srtt) - self._variation) // 4
        self._srtt += (rtt - self._srtt) // 8

    def speculate(self) -> None:
        for one in self._algorithms:
            one.speculate()

    def rto(self) -> int | None:
        """Return the time-out that fits the round-trip times of the ACKs. None: it is fixed, or there was no ACK."""
        if not self._srtt or not self._config.measures_rto:
            return None
        return max(self._srtt + 4 * self._variation, LEAST_RTO * self._config.base_rtt)

    def probed(self, rtt: int) -> None:
        if self._config.base_rtt_probe:
            for one in self._algorithms:
                one.probed(rtt + self._config.probe_allowance)

    def nacked(self, size: int, trim: Trim, marked: bool, rtt: int | None, now: int) -> None:
        self._ground(size)
        self.heard_at = now
        for one in self._algorithms:
            one.nacked(size, trim, marked, rtt, now)

    def lost(self, size: int, now: int) -> None:
        self._ground(size)
        for one in self._algorithms:
            one.lost(size, now)

    def _ground(self, size: int) -> None:
        self.inflight_pkts -= 1
        self.missed(size)

    def found(self, size: int) -> None:
        self.waiting_rtx -= 1
        self.rtx_backlog -= size
        for one in self._algorithms:
            one.withdrawn(-size)

    def missed(self, size: int) -> None:
        self.waiting_rtx += 1
        self.rtx_backlog += size

    def settled(self, packets: int, size: int, waiting: int, waiting_size: int) -> None:
        self.inflight_pkts -= packets
        self.waiting_rtx -= waiting
        self.rtx_backlog -= waiting_size
        for one in self._algorithms:
            one.withdrawn(size)

    def credited(self, credit: int, now: int) -> None:
        self.heard_at = now
        for one in self._algorithms:
            one.credited(credit, now)

    def demand(self) -> int | None:
        if not self.demands:
            return None
        waiting = int(min(self.backlog + self.rtx_backlog, self.window + self._config.mtu))
        return next(found for one in self._algorithms if (found := one.demand(waiting)) is not None)

    def most_overtaking(self) -> tuple[int, int]:
        mtu, largest = self._config.mtu, self._config.max_wnd // self._config.mtu
        most = int(self.window + mtu) // mtu
        return max(LEAST_OVERTAKING, min(most * 3 // 2, largest)), largest

    def patience(self) -> int:
        config = self._config
        rtt = self._srtt + 4 * self._variation
        queued = config.trimming and rtt - config.base_rtt >= config.target_qdelay
        return PATIENT * rtt if queued else 0

    def deadline(self) -> int:
        at = NEVER
        for one in self._algorithms:
            due = one.deadline()
            if due < at:
                at = due
        return at

    def on_time(self, now: int) -> bool:
        waiting = self.backlog + self.rtx_backlog
        asks = [one.on_time(waiting, now) for one in self._algorithms if one.deadline() <= now]
        return any(asks)
