# SPDX-License-Identifier: GPL-2.0-only
"""This module counts at the receiver what ACKs tell the sender (cms.md §1, §3.2, §3.4, §4)."""

from uetproto.engine.cc.rccc import CreditPacer
from uetproto.engine.contract import SECOND, Mode
from uetproto.wire.headers.uet_pds import CcType
from uetproto.wire.tuples import PdsCcStateCreditHeader, PdsCcStateNsccHeader

_SERVICE_UNIT = 128_000
_MOST_SERVICE, _MOST_OOO, _M24 = 0xFFFF, 0xFFFE, 0xFFFFFF
MOST_PENALTY = 127
"""Largest rcv_cwnd_pend, which leaves a window of one MTU after an RTT."""


class HostBuffer:
    """A host buffer has what a NIC has received and its host has not taken yet, and the penalty that follows from it
    for the windows of all senders (destination flow control, cms.md §3.4).

    The penalty is 0 while at most `backlog` bytes wait, and grows evenly to `MOST_PENALTY` at twice as many. After a
    penalty, the windows are restored when half of `backlog` is left.
    """

    __slots__ = ("_at", "_backlog", "_filled", "_limits", "_rate", "_was_limited", "counts")

    def __init__(self, rate: int, backlog: int) -> None:
        """`rate` is that at which the host takes data, in bits a second; 0: at once."""
        self._rate = rate
        self.counts = rate > 0
        """Whether `arrived` is to be called."""
        self._backlog = backlog
        self._filled = self._at = 0
        """Bits that wait at the time `_at`, times `SECOND`, so that no part of a bit is lost."""
        self._limits = False
        """Whether the backlog has been too long, and is not half of it yet."""
        self._was_limited = False

    def arrived(self, size: int, now: int) -> None:
        """Note `size` bytes that arrive at a host that does not take them at once."""
        self._drain(now)
        self._filled += 8 * SECOND * size

    def _drain(self, now: int) -> None:
        self._filled = max(0, self._filled - self._rate * (now - self._at))
        self._at = now

    def waiting(self, now: int) -> int:
        """Return the bytes that wait for the host."""
        self._drain(now)
        return self._filled // (8 * SECOND)

    def penalty(self, now: int) -> tuple[int, int]:
        """Return restore_cwnd and rcv_cwnd_pend of an ACK that leaves now."""
        if not self._rate:
            return 0, 0
        waiting = self.waiting(now)
        above = waiting - self._backlog
        if above > 0:
            self._limits = self._was_limited = True
            return 0, min(1 + MOST_PENALTY * above // self._backlog, MOST_PENALTY)
        if 2 * waiting <= self._backlog:
            self._limits = False
        return int(self._was_limited and not self._limits), 0

    def rate(self, line: int, now: int) -> int:
        """Return the rate in bits a second at which a NIC with the rate `line` may be filled now."""
        return line if not self._rate or self.waiting(now) <= self._backlog else min(line, self._rate)


KEEPS_UP = HostBuffer(0, 1)
"""A host that takes data as fast as it arrives, so that no ACK has a penalty. It keeps nothing."""


class NsccReceiver:
    """This class implements `engine.contract.CongestionReceiver` for a sender with NSCC."""

    __slots__ = ("_host", "rcvd_bytes")

    def __init__(self, host: HostBuffer = KEEPS_UP) -> None:
        """`host` is that of the NIC, which all its receivers share."""
        self._host = host
        self.rcvd_bytes = 0
        """Nominal bytes of the new, untrimmed data packets of the PDC."""

    def arrived(self, size: int, now: int) -> None:
        self.rcvd_bytes += size
        if self._host.counts:
            self._host.arrived(size, now)

    def asked(self, ccc_id: int | None, target: int, now: int) -> None:
        """A sender with NSCC alone asks for no credit."""

    def granted(self) -> int | None:
        return None

    def ack_state(self, arrived_at: int, ooo_count: int, now: int) -> tuple[int, bytes]:
        """Return cc_type and state; service_time is 0 if the ACK leaves at once, and has not to be subtracted."""
        service = min((now - arrived_at) // _SERVICE_UNIT, _MOST_SERVICE)
        received = self.rcvd_bytes + 255 >> 8 & _M24
        restore, penalty = self._host.penalty(now)
        return CcType.NSCC, PdsCcStateNsccHeader.pack(service, restore, penalty, received, min(ooo_count, _MOST_OOO))


def sender_of(named: dict[tuple[int, Mode], int], peer: int, mode: Mode) -> tuple[int, int]:
    """Return the pair of peer and ccc_id that the pacer knows a context by. Until a request has told the ccc_id, which
    a CREDIT_REQ does not, a negative number for the mode is in its place."""
    return peer, named.get((peer, mode), -1 - mode)


class CreditReceiver(NsccReceiver):
    """This receiver passes demands to the pacer of its NIC. Grants leave in CREDIT packets.

    Without NSCC, ACKs repeat the newest grant.
    """

    __slots__ = ("_key", "_named", "_pacer", "_pdcid", "_window")

    def __init__(
        self, host: HostBuffer, pacer: CreditPacer, named: dict[tuple[int, Mode], int], peer: int, mode: Mode,
        pdcid: int, window: bool,
    ) -> None:  # fmt: skip
        """`named` has the ccc_id of each peer and mode, which requests name and CREDIT_REQs do not. `window`: the
        sender has NSCC, too, whose state ACKs carry."""
        super().__init__(host)
        self._pacer = pacer
        self._named = named
        self._key = peer, mode
        self._pdcid = pdcid
        self._window = window

    @property
    def _sender(self) -> tuple[int, int]:
        return sender_of(self._named, *self._key)

    def asked(self, ccc_id: int | None, target: int, now: int) -> None:
        if ccc_id is not None:
            before = self._sender
            self._named[self._key] = ccc_id
            if before[1] < 0:
                self._pacer.named(before, self._sender)
        self._pacer.asked(self._sender, self._pdcid, target, now)

    def granted(self) -> int | None:
        return self._pacer.granted(self._sender)

    def ack_state(self, arrived_at: int, ooo_count: int, now: int) -> tuple[int, bytes]:
        granted = self.granted()
        if self._window or granted is None:
            return super().ack_state(arrived_at, ooo_count, now)
        return CcType.CREDIT, PdsCcStateCreditHeader.pack(granted, min(ooo_count, _MOST_OOO))
