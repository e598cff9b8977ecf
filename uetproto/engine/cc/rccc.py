# SPDX-License-Identifier: GPL-2.0-only
"""RCCC, the congestion control of the receiver: a sender spends credit that the receiver grants (cms.md §4).

Credits and demands are cumulative numbers of 256-byte quanta with 24 bits, compared in serial arithmetic.
"""

from collections.abc import Callable
from dataclasses import dataclass

from uetproto.engine.cc.config import CcConfig
from uetproto.engine.contract import NEVER, SECOND, AckReport, Trim

QUANTUM = 256
_M24, _HALF = 0xFFFFFF, 1 << 23
GRANT = 64
"""Number of quanta that a sender gets in its turn at most."""
SHARE = 99
"""Percentage of the rate of the NIC that is granted."""
EMPTY = 4
"""Number of quanta whose time a turn takes that grants nothing."""
KNOWN = 2
"""Number of MaxWnd above which the first demand of a sender shows that it was granted something before."""
PATIENCE = 8
"""Number of base RTTs without feedback after which a sender without credit asks for some."""


class Rccc:
    """This class has the state of RCCC at the sender of one context."""

    __slots__ = ("_active", "_ask_at", "_config", "credit", "granted", "speculative")

    def __init__(self, config: CcConfig, active: Callable[[], int]) -> None:
        """`active` returns the number of contexts of the NIC that have something to send."""
        self._config = config
        self._active = active
        self.credit = config.max_wnd
        """Bytes that may be sent. The last packet may make it negative."""
        self.speculative = True
        """Whether no feedback has come yet, so that the credit is a guess."""
        self.granted = 0
        """The newest cumulative grant."""
        self._ask_at = NEVER

    def may_send(self, size: int, now: int) -> bool:
        if self.credit > 0:
            return True
        if self._ask_at == NEVER:
            self._ask_at = now + PATIENCE * self._config.base_rtt
        elif self._ask_at <= now:  # it passed while nothing waited
            self._ask_at = now + 1
        return False

    def sent(self, size: int, now: int) -> bool:
        self.credit -= size
        if self.credit <= 0:
            self._ask_at = now + PATIENCE * self._config.base_rtt
        return self.credit <= 0

    def acked(self, report: AckReport, now: int) -> None:
        self._hear(now)
        if report.credit is not None:
            self.credited(report.credit, now)

    def nacked(self, size: int, trim: Trim, marked: bool, rtt: int | None, now: int) -> None:
        self._hear(now)

    def lost(self, size: int, now: int) -> None:
        """Give credit back that was spent on a packet sent without a grant; other credit stays spent.

        As long as nothing was heard of the receiver, it may know of no PDC, and then it grants nothing."""
        if self.speculative:
            self.credit = min(self.credit + size, self._config.max_wnd)

    def withdrawn(self, size: int) -> None:
        """Credit that was spent on a packet is spent."""

    def probed(self, rtt: int) -> None:
        """Credit does not depend on the round-trip time."""

    def speculate(self) -> None:
        self.credit = max(self.credit, 1)

    def credited(self, credit: int, now: int) -> None:
        self._hear(now)
        more = (credit - self.granted) & _M24
        if more < _HALF:  # else it is an older grant
            self.credit = min(self.credit + QUANTUM * more, self._config.max_wnd)
            self.granted = credit

    def _hear(self, now: int) -> None:
        if self._ask_at != NEVER:
            self._ask_at = now + PATIENCE * self._config.base_rtt
        if self.speculative:
            self.speculative = False
            self.credit = min(self.credit, 0)

    def most(self) -> float:
        return self._config.max_wnd

    def demand(self, waiting: int) -> int | None:
        needed = min(waiting, self._config.max_wnd) - self.credit
        if self.speculative and waiting > 0:
            needed = max(needed, self._config.mtu)
        quanta = -(-needed // (QUANTUM * max(1, self._active()))) if needed > 0 else 0
        return (self.granted + quanta) & _M24

    def deadline(self) -> int:
        return self._ask_at if self.credit <= 0 else NEVER

    def on_time(self, waiting: int, now: int) -> bool:
        self._ask_at = now + PATIENCE * self._config.base_rtt if waiting > 0 else NEVER
        return waiting > 0


@dataclass(slots=True)
class _Sender:
    """What the receiver knows of one context of a sender."""

    pdcid: int
    """PDC by which its grants leave."""
    demand: int = 0
    granted: int = 0

    @property
    def wanted(self) -> int:
        """Return the quanta that the sender asks for and did not get."""
        missing = (self.demand - self.granted) & _M24
        return missing if missing < _HALF else 0

    @property
    def ahead(self) -> int:
        """Return the quanta that the sender got and does not ask for."""
        more = (self.granted - self.demand) & _M24
        return more if more < _HALF else 0


class CreditPacer:
    """A pacer grants the rate of one NIC to its senders, in turns.

    While no sender has demand, those whose demand is satisfied get credit in advance.
    """

    def __init__(self, rate: Callable[[int], int], advance: int) -> None:
        """`rate` returns that of the NIC at a time, in bits a second; `advance` is the most quanta that a sender gets
        without demand."""
        self._rate = rate
        self._advance = advance
        self._senders: dict[tuple[int, int], _Sender] = {}
        self._turn: dict[tuple[int, int], None] = {}
        self._idle: dict[tuple[int, int], None] = {}
        self._next = 0
        """Time from which on the next grant may leave."""
        self.grants = 0

    def asked(self, sender: tuple[int, int], pdcid: int, target: int, now: int) -> None:
        """Note the cumulative demand of a sender, which is a pair of peer and ccc_id."""
        known = self._senders.get(sender)
        if known is None:
            known = self._senders[sender] = _Sender(pdcid)
            if 0 < KNOWN * self._advance < target:  # this endpoint has granted before, and was restarted
                known.demand, known.granted = target, target - self._advance
        known.pdcid = pdcid
        if (target - known.demand) & _M24 < _HALF:
            known.demand = target
        if not (self._turn or self._idle):
            self._next = max(self._next, now)
        self._sort(sender, known)

    def named(self, before: tuple[int, int], sender: tuple[int, int]) -> None:
        """Note the ccc_id of a context that has asked by CREDIT_REQ only."""
        if before in self._senders:
            self._senders[sender] = self._senders.pop(before)
        for waiting in (self._turn, self._idle):
            if before in waiting:
                del waiting[before]
                waiting[sender] = None

    def _sort(self, sender: tuple[int, int], known: _Sender) -> None:
        """Let a sender wait for its turn, or for credit in advance, or for neither."""
        if known.wanted:
            self._idle.pop(sender, None)
            self._turn[sender] = None
        elif known.ahead < self._advance and sender not in self._turn:
            self._idle[sender] = None

    def granted(self, sender: tuple[int, int]) -> int | None:
        """Return the cumulative grant of a sender, or None if it has asked for nothing."""
        known = self._senders.get(sender)
        return None if known is None else known.granted

    def closed(self, pdcid: int) -> None:
        """Give nothing more to the senders whose grants leave by a PDC that was released."""
        for waiting in (self._turn, self._idle):
            for sender in [one for one in waiting if self._senders[one].pdcid == pdcid]:
                del waiting[sender]

    def deadline(self) -> int:
        """Return when the next grant leaves, or NEVER."""
        return self._next if self._turn or self._idle else NEVER

    def due(self, now: int) -> list[tuple[int, int]]:
        """Return the grants that leave now: PDCID and cumulative grant."""
        found = []
        while (waiting := self._turn or self._idle) and self._next <= now:
            sender = next(iter(waiting))
            del waiting[sender]
            known = self._senders[sender]
            quanta = min(GRANT, known.wanted) if waiting is self._turn else GRANT
            known.granted = (known.granted + quanta) & _M24
            if quanta:
                found.append((known.pdcid, known.granted))
                self.grants += 1
            self._sort(sender, known)
            size = QUANTUM * (quanta or EMPTY)
            self._next += -(-100 * 8 * SECOND * size // (SHARE * self._rate(now)))  # also where this call is late
        return found
