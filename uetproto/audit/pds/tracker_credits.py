# SPDX-License-Identifier: GPL-2.0-only
"""This module follows the credits of RCCC: what each congestion control context asks for, is granted, and sends (cms.md
§4)."""

from collections.abc import Mapping
from dataclasses import dataclass

from uetproto.audit.judge import Tell
from uetproto.audit.pds.tracker_state import M32, PdcDirection, PdsEvent
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.uet_pds import CtlType

NOMINAL = 40
"""Number of bytes that the nominal size of a packet has beyond its transport bytes (cms.md §1)."""
QUANTUM, TURN = 256, 64
"""Bytes of a quantum, and the quanta that a turn of the receiver grants without demand (cms.md §4)."""
MOST = 4_096
"""Greatest number of contexts that are followed at the same time."""
_M24, _HALF, _M31 = 0xFFFFFF, 1 << 23, 1 << 31


@dataclass(slots=True, eq=False)
class AuditedCredit:
    """This class holds what was seen of one context: all its PDCs from one host to another. Targets and grants are in
    quanta, and do not wrap."""

    target: int = 0
    """Newest demand of a request or a CREDIT_REQ."""
    granted: int = 0
    """Newest grant of a CREDIT or an ACK."""
    number: int = -1
    """Number of the packet that told the newest grant."""
    spent: int = 0
    """Nominal bytes, not counting the UDP header and the CRC, of the requests that were sent when the first window,
    which needs no credit, was over."""
    largest: int = 0
    """Nominal size of the largest request."""


class Credits:
    """This class follows the contexts whose requests carry a demand (req_cc_state)."""

    __slots__ = ("_certain", "_contexts", "_tell")

    def __init__(self, tell: Mapping[PdsEvent, Tell], certain: bool) -> None:
        """`certain`: the capture has every packet, in order. Else what a grant or a packet exceeds is not known."""
        self._tell = tell
        self._certain = certain
        self._contexts: dict[tuple[int, int, int], AuditedCredit] = {}

    def request(self, direction: PdcDirection, seen: ObservedPacket) -> None:
        """Note the demand of a request with req_cc_state, and the credit that it needs."""
        state = seen.more[0]
        key = seen.src, seen.dst, state.ccc_id
        credit = self._contexts.get(key)
        if credit is None:
            if len(self._contexts) >= MOST:
                del self._contexts[next(iter(self._contexts))]
            credit = self._contexts[key] = AuditedCredit()
        direction.credit = credit
        _ask(credit, state.credit_target)
        if seen.size < 0 or not self._certain:
            return
        size = NOMINAL + seen.size + sum(FORMS[one.form].size for one in (seen.head, seen.ses, *seen.more) if one)
        credit.largest = max(credit.largest, size)
        if not _has_heard(direction, seen):
            return
        credit.spent += size
        self._tell[PdsEvent.CREDIT_SPENT](direction, seen)
        if credit.spent > spendable(credit):
            self._tell[PdsEvent.OVERDRAWN](direction, seen)
            credit.spent = spendable(credit)

    def control(self, seen: ObservedPacket, by_key: Mapping[tuple[int, int, int], PdcDirection]) -> None:
        """Note a CREDIT or a CREDIT_REQ."""
        head = seen.head
        value = head.ctl_payload & _M24
        if head.ctl_type == CtlType.CREDIT_REQ:
            direction = by_key.get((seen.src, head.spdcid, seen.dst))
            if direction is not None and direction.credit is not None:
                _ask(direction.credit, value)
            return
        direction = by_key.get((seen.dst, head.dpdcid, seen.src))
        if direction is None or direction.credit is None:
            return
        credit = direction.credit
        more = (value - credit.granted) & _M24
        self._tell[PdsEvent.CREDIT](direction, seen)
        if more >= _HALF:
            self._tell[PdsEvent.CREDIT_FELL](direction, seen)
        elif self._certain and credit.granted + more > most_granted(credit):
            self._tell[PdsEvent.CREDIT_BEYOND](direction, seen)
        self.grant(credit, value, seen)

    def grant(self, credit: AuditedCredit, value: int, seen: ObservedPacket) -> None:
        """Note a cumulative grant of 24 bits."""
        more = (value - credit.granted) & _M24
        if more < _HALF:
            credit.granted += more
            credit.number = seen.number


def _ask(credit: AuditedCredit, value: int) -> None:
    more = (value - credit.target) & _M24
    if more < _HALF:
        credit.target += more


def _has_heard(direction: PdcDirection, seen: ObservedPacket) -> bool:
    """Return whether the sender of a request surely has heard of the receiver, so that its first window is over: it
    clears a PSN that was seen, or it is an initiator that was seen to open the PDC, and knows the PDCID of the
    target."""
    head = seen.head
    if "dpdcid" not in head._fields:
        return False
    lowest = direction.lowest
    clears = lowest is not None and (head.psn + head.clear_psn_offset - lowest) & M32 < _M31
    return clears or (direction.is_forward and direction.start is not None)


def spendable(credit: AuditedCredit) -> int:
    """Return the nominal bytes that a context may have sent: those granted, and one packet (cms.md §10 item 13)."""
    return QUANTUM * credit.granted + credit.largest


def most_granted(credit: AuditedCredit) -> int:
    """Return the largest grant in quanta that may follow: the target, or one turn more where there is no demand."""
    return max(credit.target, credit.granted + TURN)
