# SPDX-License-Identifier: GPL-2.0-only
"""This module watches congestion control: it stands between PDS and the contexts of an endpoint, keeps the model beside
each context, and checks the invariants at each call."""

from collections.abc import Iterator

from uetproto.check.cc.invariants import (
    Transmissions,
    WindowBefore,
    cms_2_cwnd,
    cms_3_window,
    cms_4_base,
    cms_6_decrease,
    cms_7_quick_adapt,
    cms_8_ignored,
    cms_9_once,
    cms_10_rcvd_bytes,
    cms_11_sample,
    cms_12_ready,
    cms_13_granted,
    cms_15_rounds,
    cms_16_ring,
    overdrawn,
    paced,
)
from uetproto.check.cc.model import Change, ContextModel
from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.context import Ccc
from uetproto.engine.cc.entropy import Bitmap, Mixed, Oblivious, Reps
from uetproto.engine.cc.nscc import Nscc
from uetproto.engine.cc.rccc import GRANT
from uetproto.engine.cc.receiver import sender_of
from uetproto.engine.cc.registry import CongestionContexts
from uetproto.engine.contract import (
    AckReport,
    CccState,
    CongestionContext,
    CongestionReceiver,
    Mode,
    PathFeedback,
    PathSelection,
    Rng,
    Trim,
)
from uetproto.wire.headers.uet_pds import CcType
from uetproto.wire.tuples import PdsCcStateNsccHeader

_M24, _HALF = 0xFFFFFF, 1 << 23
_WINDOW = (cms_4_base, cms_6_decrease, cms_7_quick_adapt, cms_8_ignored, cms_2_cwnd)


class WatchedPaths:
    """This class watches what chooses entropy values (`PathSelection`)."""

    def __init__(self, chooser: PathSelection) -> None:
        self._chooser = chooser
        self._returned: set[int] = set()
        self._bad: set[int] = set()
        """Indices of which bad feedback has come."""

    def next(self, now: int) -> int:
        chooser = self._chooser
        if not isinstance(chooser, Oblivious) or isinstance(chooser, Reps):
            return chooser.next(now)
        at = chooser.at
        recycled = isinstance(chooser, Mixed) and bool(chooser.recycled)
        entropy = chooser.next(now)
        if recycled:
            return entropy
        index = entropy & (chooser.size - 1)
        if 0 < chooser.at <= at:  # the round ended before this value, the first of the next one
            cms_15_rounds(chooser, self._returned, self._bad, True, False)
            self._returned.clear()
        again = index in self._returned
        self._returned.add(index)
        cms_15_rounds(chooser, self._returned, self._bad, chooser.at == 0, again)
        if chooser.at == 0:
            self._returned.clear()
        return entropy

    def heard(self, entropy: int, feedback: PathFeedback, now: int) -> None:
        chooser = self._chooser
        if isinstance(chooser, Bitmap) and feedback is not PathFeedback.NO_ECN:
            self._bad.add(entropy & (chooser.size - 1))
        before = list(chooser.ring) if isinstance(chooser, Reps) else []
        chooser.heard(entropy, feedback, now)
        if isinstance(chooser, Reps):
            cms_16_ring(chooser, before, entropy, feedback)


class WatchedContext:
    """This class watches a context (`CongestionContext`), and keeps its model."""

    def __init__(self, context: CongestionContext, config: CcConfig, largest: int) -> None:
        assert isinstance(context, Ccc)
        self.context = context
        self.config = config
        self.model = ContextModel(config)
        self.nscc = next((one for one in context.algorithms if isinstance(one, Nscc)), None)
        self.ccc_id, self.demands = context.ccc_id, context.demands
        self.adapted_at: int | None = None
        self.named: Transmissions | None = None
        """Transmissions of the packet that the ACK that arrives now names."""
        self.retx = self.service = 0
        """retx of that ACK, and its service time in picoseconds."""
        self._paths: WatchedPaths | None = None
        self._largest = largest
        self._now = 0

    @property
    def heard_at(self) -> int:
        """Return when the peer was heard of last."""
        return self.context.heard_at

    @property
    def wants_probe(self) -> bool:
        """Return whether a PROBE should be sent."""
        return self.context.wants_probe

    @wants_probe.setter
    def wants_probe(self, value: bool) -> None:
        self.context.wants_probe = value

    def _check_window(self, before: WindowBefore | None, now: int) -> None:
        if before is not None and self.model.nscc is not None:
            for check in _WINDOW:
                check(self, before, now)
            if self.model.nscc.change & Change.ADAPTED:
                self.adapted_at = now
        self._check_state()

    def _check_state(self) -> None:
        allowed = all(one.may_send(self._largest, self._now) for one in self.context.algorithms)
        cms_12_ready(self, self.context.state(self._largest, self._now), allowed)

    def _window(self) -> WindowBefore | None:
        return None if self.nscc is None else WindowBefore.of(self.nscc)

    # Events of PDS

    def state(self, size: int, now: int) -> CccState:
        return self.context.state(size, now)

    def offered(self, size: int) -> None:
        self.context.offered(size)
        self.model.backlog += size
        self._check_state()

    def may_send(self, size: int, now: int) -> bool:
        return self.context.may_send(size, now)

    def sent(self, size: int, again: bool, now: int) -> bool:
        self._now = now
        if self.nscc is not None:
            cms_3_window(self)
        ask = self.context.sent(size, again, now)
        model = self.model
        model.inflight_pkts += 1
        if again:
            model.waiting_rtx -= 1
            model.rtx_backlog -= size
        else:
            model.backlog -= size
            model.offered += size
        if model.nscc is not None:
            model.nscc.inflight += size
        if model.rccc is not None:
            model.rccc.sent += size
            overdrawn(self)
        self._check_state()
        return ask

    def acked(self, packets: int, report: AckReport, now: int) -> int | None:
        self._now = now
        cms_11_sample(report, self.named, self.retx, now, self.service)
        before = self._window()
        rto = self.context.acked(packets, report, now)
        self.model.inflight_pkts -= packets
        if self.model.nscc is not None:
            self.model.nscc.ack(report, now)
        if self.model.rccc is not None:
            self.model.rccc.heard = True
            if report.credit is not None:
                self.model.rccc.grant(report.credit)
        self._check_window(before, now)
        return rto

    def nacked(self, size: int, trim: Trim, marked: bool, rtt: int | None, now: int) -> None:
        self._now = now
        before = self._window()
        self.context.nacked(size, trim, marked, rtt, now)
        if self.model.nscc is not None:
            self.model.nscc.nack(size, trim, rtt, now)
        if self.model.rccc is not None:
            self.model.rccc.heard = True
        self._given_up(size)
        self._check_window(before, now)

    def lost(self, size: int, now: int) -> None:
        self._now = now
        before = self._window()
        self.context.lost(size, now)
        if self.model.nscc is not None:
            self.model.nscc.loss(size)
        if self.model.rccc is not None:
            self.model.rccc.lost(size)
        self._given_up(size)
        self._check_window(before, now)

    def _given_up(self, size: int) -> None:
        self.model.inflight_pkts -= 1
        self.model.waiting_rtx += 1
        self.model.rtx_backlog += size

    def found(self, size: int) -> None:
        self.context.found(size)
        self.model.waiting_rtx -= 1
        self.model.rtx_backlog -= size
        if self.model.nscc is not None:
            self.model.nscc.inflight += size

    def missed(self, size: int) -> None:
        self.context.missed(size)
        self.model.waiting_rtx += 1
        self.model.rtx_backlog += size
        self._check_state()

    def settled(self, packets: int, size: int, waiting: int, waiting_size: int) -> None:
        self.context.settled(packets, size, waiting, waiting_size)
        self.model.inflight_pkts -= packets
        self.model.waiting_rtx -= waiting
        self.model.rtx_backlog -= waiting_size
        if self.model.nscc is not None:
            self.model.nscc.inflight -= size
        self._check_state()

    def credited(self, credit: int, now: int) -> None:
        self._now = now
        self.context.credited(credit, now)
        if self.model.rccc is not None:
            self.model.rccc.grant(credit)
        self._check_state()

    def demand(self) -> int | None:
        return self.context.demand()

    def most_overtaking(self) -> tuple[int, int]:
        return self.context.most_overtaking()

    def patience(self) -> int:
        return self.context.patience()

    def paths(self) -> PathSelection:
        chooser = self.context.paths()
        if not isinstance(chooser, Oblivious):
            return chooser
        if self._paths is None:
            self._paths = WatchedPaths(chooser)
        return self._paths

    def probed(self, rtt: int) -> None:
        before = self._window()
        self.context.probed(rtt)
        nscc = self.model.nscc
        if nscc is not None and self.config.base_rtt_probe:
            nscc.change = Change.NONE
            nscc.sample(rtt + self.config.probe_allowance)
        self._check_window(before, self._now)

    def speculate(self) -> None:
        self.context.speculate()
        if self.model.rccc is not None:
            self.model.rccc.refunded += self.config.mtu
        self._check_state()

    def deadline(self) -> int:
        return self.context.deadline()

    def on_time(self, now: int) -> bool:
        self._now = now
        return self.context.on_time(now)


class WatchedReceiver:
    """This class watches the receiving half of one PDC (`CongestionReceiver`)."""

    def __init__(self, receiver: CongestionReceiver, manager: "WatchedContexts", peer: int, mode: Mode) -> None:
        self._receiver = receiver
        self._manager = manager
        self._key = peer, mode
        self._rcvd = manager.received
        """rcvd_bytes of the last ACK."""
        receiver.arrived(256 * manager.received, 0)

    def arrived(self, size: int, now: int) -> None:
        self._receiver.arrived(size, now)
        self._manager.counted[self._key] = self._manager.counted.get(self._key, 0) + size
        source = self._manager.source_of(*self._key)
        if source is not None:
            cms_9_once(source.model.offered, self._manager.counted[self._key])

    def asked(self, ccc_id: int | None, target: int, now: int) -> None:
        self._receiver.asked(ccc_id, target, now)
        before = sender_of(self._manager.named, *self._key)
        if ccc_id is not None:
            self._manager.named[self._key] = ccc_id
        sender = sender_of(self._manager.named, *self._key)
        self._manager.ask(before, sender, target, now)

    def granted(self) -> int | None:
        return self._receiver.granted()

    def ack_state(self, arrived_at: int, ooo_count: int, now: int) -> tuple[int, bytes]:
        kind, state = self._receiver.ack_state(arrived_at, ooo_count, now)
        if kind == CcType.NSCC:
            rcvd = PdsCcStateNsccHeader.read(state).rcvd_bytes
            cms_10_rcvd_bytes(self._rcvd, rcvd)
            self._rcvd = rcvd
        return kind, state


class WatchedContexts:
    """This class watches the contexts and receivers of one endpoint (`CongestionManager`)."""

    def __init__(
        self, config: CcConfig, rng: Rng, address: int, overhead: int, largest: int, received: int = 0
    ) -> None:  # fmt: skip
        """`received` is the rcvd_bytes with which every PDC begins, in units of 256 bytes."""
        self.config = config
        self.received = received
        self.address = address
        self.overhead, self.largest, self.paces = overhead, largest, True
        self.contexts: dict[tuple[int, Mode], WatchedContext] = {}
        self.other: WatchedContexts | None = None
        """The contexts of the peer."""
        self.counted: dict[tuple[int, Mode], int] = {}
        """Bytes that the receivers have counted, by peer and mode."""
        self.named: dict[tuple[int, Mode], int] = {}
        """ccc_id that requests have named, by peer and mode."""
        self._made = CongestionContexts(config, rng, overhead=overhead, largest=largest)
        self._asked: dict[tuple[int, int], int] = {}
        self._granted: dict[tuple[int, int], int] = {}
        """Quanta that each sender has asked for and was granted, without wrapping, by peer and ccc_id."""
        self._first: int | None = None
        self._given = 0

    def source_of(self, peer: int, mode: Mode) -> WatchedContext | None:
        """Return the context that sends to this endpoint."""
        return None if self.other is None else self.other.contexts.get((self.address, mode))

    def ask(self, unnamed: tuple[int, int], sender: tuple[int, int], target: int, now: int) -> None:
        """Note a demand of a sender, which was `unnamed` before, if a request tells its ccc_id for the first time."""
        if self._first is None:
            self._first = now
        if unnamed[1] < 0 <= sender[1]:
            for known in (self._asked, self._granted):
                if unnamed in known:
                    known[sender] = known.pop(unnamed)
        before = self._asked.get(sender, 0)
        more = (target - before) & _M24
        self._asked[sender] = before + (more if more < _HALF else 0)

    def context(self, peer: int, mode: Mode) -> CongestionContext:
        found = self.contexts.get((peer, mode))
        if found is None:
            found = WatchedContext(self._made.context(peer, mode), self.config, self.largest)
            self.contexts[peer, mode] = found
        return found

    def receiver(self, peer: int, mode: Mode, pdcid: int) -> CongestionReceiver:
        return WatchedReceiver(self._made.receiver(peer, mode, pdcid), self, peer, mode)

    def closed(self, pdcid: int) -> None:
        self._made.closed(pdcid)

    def deadline(self) -> int:
        return self._made.deadline()

    def grants(self, now: int) -> list[tuple[int, int]]:
        found = self._made.grants(now)
        if found:
            self._check_grants(now)
        return found

    def _check_grants(self, now: int) -> None:
        given = 0
        for sender, asked in self._asked.items():
            before = self._granted.get(sender, 0)
            granted = before + (((self._made.pacer.granted(sender) or 0) - before) & _M24)
            self._granted[sender] = granted
            given += granted
            cms_13_granted(granted, asked, self._advance)
        assert self._first is not None
        paced(given, self.config.rate, now - self._first, GRANT)

    @property
    def _advance(self) -> int:
        """Return the quanta that may be granted without demand: up to MaxWnd, and the rest of the last turn."""
        return self.config.max_wnd // 256 + GRANT

    def watched(self) -> Iterator[WatchedContext]:
        """Yield the contexts."""
        yield from self.contexts.values()
