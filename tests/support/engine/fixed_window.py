# SPDX-License-Identifier: GPL-2.0-only
"""This module has a congestion control of a fixed window, which notes what PDS tells it."""

from uetproto.engine.contract import (
    NEVER,
    AckReport,
    CccState,
    CongestionContext,
    CongestionReceiver,
    Mode,
    PathFeedback,
    PathSelection,
    Trim,
)
from uetproto.wire.headers.uet_pds import CcType
from uetproto.wire.tuples import PdsCcStateNsccHeader

OVERHEAD, LARGEST = 52, 1200


class FixedWindow:
    """This context lets at most `window` packets be in flight, and counts as cms.md §2 says."""

    def __init__(self, window: int, target: int | None) -> None:
        self.window, self.target = window, target
        self.ccc_id = 7
        self.demands = target is not None
        self.backlog = self.flying = self.waiting = self.inflight = self.patient = 0
        self.received = 0
        """Sum of `new` of all ACKs."""
        self.heard_of: list[PathFeedback] = []
        """What became of packets."""
        self.trims: list[Trim] = []
        self.rtts: list[int] = []
        self.most = self.first = self.again = self.heard_at = 0
        self.grants: list[tuple[int | None, int | None]] = []
        """Credit and ooo_count of all ACKs."""
        self.probes: list[int] = []
        """Round-trip times of PROBEs."""
        self.wants_probe = False
        """Whether a PROBE for the base RTT is wanted."""

    def state(self, size: int, now: int) -> CccState:
        if not (self.backlog or self.waiting):
            return CccState.PENDING if self.flying else CccState.IDLE
        return CccState.READY if self.flying < self.window else CccState.ACTIVE

    def offered(self, size: int) -> None:
        self.backlog += size
        assert self.backlog >= 0

    def may_send(self, size: int, now: int) -> bool:
        assert size == LARGEST
        return self.flying < self.window

    def sent(self, size: int, again: bool, now: int) -> bool:
        assert self.flying < self.window, "nobody asked"
        assert OVERHEAD < size <= LARGEST
        self.flying += 1
        self.inflight += size
        self.most = max(self.most, self.flying)
        if again:
            self.again += 1
            self.waiting -= size
        else:
            self.first += 1
            self.backlog -= size
        assert self.backlog >= 0
        assert self.waiting >= 0
        return self.flying == self.window

    def acked(self, packets: int, report: AckReport, now: int) -> int | None:
        self.heard_at = now
        self.flying -= packets
        self.inflight -= report.new
        self.received += report.new
        self.grants.append((report.credit, report.ooo_count))
        if report.rtt is not None:
            self.rtts.append(report.rtt)
        assert self.flying >= 0
        return None

    def nacked(self, size: int, trim: Trim, marked: bool, rtt: int | None, now: int) -> None:
        self.trims.append(trim)
        self.heard_at = now
        self.lost(size, now)

    def lost(self, size: int, now: int) -> None:
        self.flying -= 1
        self.inflight -= size
        self.waiting += size
        assert self.flying >= 0

    def found(self, size: int) -> None:
        self.waiting -= size
        self.inflight += size
        assert self.waiting >= 0

    def missed(self, size: int) -> None:
        self.waiting += size

    def settled(self, packets: int, size: int, waiting: int, waiting_size: int) -> None:
        self.flying -= packets
        self.inflight -= size
        self.waiting -= waiting_size
        assert self.flying >= 0
        assert self.waiting >= 0

    def probed(self, rtt: int) -> None:
        self.probes.append(rtt)

    def speculate(self) -> None:
        """There is no credit."""

    def credited(self, credit: int, now: int) -> None:
        """Grants change nothing."""

    def demand(self) -> int | None:
        return self.target

    def most_overtaking(self) -> tuple[int, int]:
        return 3, self.window

    def patience(self) -> int:
        return self.patient

    def paths(self) -> PathSelection:
        return self

    def next(self, now: int) -> int:
        return 0xC001

    def deadline(self) -> int:
        return NEVER

    def on_time(self, now: int) -> bool:
        raise AssertionError("nothing is timed")

    def heard(self, entropy: int, feedback: PathFeedback, now: int) -> None:
        assert entropy == 0xC001
        self.heard_of.append(feedback)


class Counting:
    """This receiver counts bytes as cms.md §3.2 says."""

    def __init__(self) -> None:
        self.bytes = 0
        self.targets: list[tuple[int | None, int]] = []
        self.state: tuple[int, bytes] | None = None
        """cc_type and state of ACKs, where they are not those of NSCC."""

    def arrived(self, size: int, now: int) -> None:
        assert OVERHEAD < size <= LARGEST
        self.bytes += size

    def asked(self, ccc_id: int | None, target: int, now: int) -> None:
        self.targets.append((ccc_id, target))

    def granted(self) -> int | None:
        return None

    def ack_state(self, arrived_at: int, ooo_count: int, now: int) -> tuple[int, bytes]:
        if self.state is not None:
            return self.state
        service = (now - arrived_at) // 128_000
        return CcType.NSCC, PdsCcStateNsccHeader.pack(service, 0, 0, (self.bytes + 255) >> 8 & 0xFFFFFF, ooo_count)


class FixedWindows:
    """This congestion manager has a `FixedWindow` for each peer and mode."""

    overhead, largest, paces = OVERHEAD, LARGEST, True

    def __init__(self, window: int, target: int | None = None) -> None:
        self.window, self.target = window, target
        self.contexts: dict[tuple[int, Mode], FixedWindow] = {}
        self.receivers: dict[int, Counting] = {}
        self.owed: list[tuple[int, int]] = []

    def context(self, peer: int, mode: Mode) -> CongestionContext:
        return self.contexts.setdefault((peer, mode), FixedWindow(self.window, self.target))

    def receiver(self, peer: int, mode: Mode, pdcid: int) -> CongestionReceiver:
        return self.receivers.setdefault(pdcid, Counting())

    def closed(self, pdcid: int) -> None:
        del self.receivers[pdcid]

    def deadline(self) -> int:
        return 0 if self.owed else NEVER

    def grants(self, now: int) -> list[tuple[int, int]]:
        owed, self.owed = self.owed, []
        return owed
