"""This module has the congestion control context (CCC), which counts what waits and what flies (cms.md §2)."""

from collections.abc import Sequence

from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.contract import CongestionControl, Entropy
from uetproto.engine.contract import AckReport, CccState, PathFeedback, Trim

LEAST_OVERTAKING = 5
"""Number of packets out of order up to which none is taken for lost."""


class Ccc:
    """A congestion control context is shared by the PDCs of one {peer, traffic class, mode}.

    It may send if each of its algorithms allows it. It implements `engine.contract.CongestionContext`.
    """

    __slots__ = (
        "_algorithms", "_entropy", "_most", "_mtu", "backlog", "ccc_id", "demands", "inflight_pkts",
        "rtx_backlog", "waiting_rtx",
    )  # fmt: skip

    def __init__(
        self, ccc_id: int, algorithms: Sequence[CongestionControl], entropy: Entropy, config: CcConfig
    ) -> None:  # fmt: skip
        self.ccc_id = ccc_id
        self._algorithms = tuple(algorithms)
        self._mtu, self._most = config.mtu, config.max_wnd // config.mtu
        self._entropy = entropy
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
        return all(one.may_send(size, now) for one in self._algorithms)

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

    def acked(self, packets: int, report: AckReport, now: int) -> None:
        self.inflight_pkts -= packets
        for one in self._algorithms:
            one.acked(report, now)

    def nacked(self, size: int, trim: Trim, marked: bool, rtt: int | None, now: int) -> None:
        self._ground(size)
        for one in self._algorithms:
            one.nacked(size, trim, marked, rtt, now)

    def lost(self, size: int, now: int) -> None:
        self._ground(size)
        for one in self._algorithms:
            one.lost(size, now)

    def _ground(self, size: int) -> None:
        self.inflight_pkts -= 1
        self.waiting_rtx += 1
        self.rtx_backlog += size

    def settled(self, size: int, waiting: bool) -> None:
        if waiting:
            self.waiting_rtx -= 1
            self.rtx_backlog -= size
            return
        self.inflight_pkts -= 1
        for one in self._algorithms:
            one.withdrawn(size)

    def credited(self, credit: int, now: int) -> None:
        for one in self._algorithms:
            one.credited(credit, now)

    def demand(self) -> int | None:
        if not self.demands:
            return None
        waiting = int(min(self.backlog + self.rtx_backlog, self.window + self._mtu))
        return next(found for one in self._algorithms if (found := one.demand(waiting)) is not None)

    def most_overtaking(self) -> tuple[int, int]:
        most = int(self.window + self._mtu) // self._mtu
        return max(LEAST_OVERTAKING, min(most * 3 // 2, self._most)), self._most

    def next_entropy(self, now: int) -> int:
        return self._entropy.next(now)

    def path(self, entropy: int, feedback: PathFeedback, now: int) -> None:
        self._entropy.heard(entropy, feedback, now)

    def deadline(self) -> int:
        return min(one.deadline() for one in self._algorithms)

    def on_time(self, now: int) -> bool:
        waiting = self.backlog + self.rtx_backlog
        asks = [one.on_time(waiting, now) for one in self._algorithms if one.deadline() <= now]
        return any(asks)
