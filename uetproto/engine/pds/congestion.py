# SPDX-License-Identifier: GPL-2.0-only
"""This module asks the congestion control context of a PDC, and tells it what becomes of the packets (cms.md §2).

A PDC with a context asks it before each transmission of a request, whatever the reason. A packet that was refused or
lost waits in `Pdc.again` until the context allows its retransmission, before new data. Control packets are not subject
to congestion control.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from uetproto.engine.contract import (
    AckReport,
    Buffer,
    CongestionContext,
    CongestionManager,
    Datagram,
    Mode,
    PathFeedback,
    Trim,
)
from uetproto.engine.pds.messages import Ack, Nack
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.retransmit import INFERRED, RTO, SendRecord
from uetproto.engine.pds.service import Outgoing
from uetproto.engine.pds.states import Input
from uetproto.wire.headers.uet_pds import CcType, CtlType, NackCode
from uetproto.wire.serial import diff32
from uetproto.wire.tuples import PdsCcStateCreditHeader, PdsCcStateNsccHeader

if TYPE_CHECKING:
    from uetproto.engine.pds.sublayer import Pds

_QUANTUM = 256
"""Bytes of a unit of rcvd_bytes."""
_M24, _M32 = 0xFFFFFF, 0xFFFFFFFF
_SIGN = 1 << 31
"""Bit of a difference of PSNs that is set if the first PSN is below the second."""
_SERVICE_UNIT = 128_000
"""Picoseconds of a unit of service_time."""
_UNKNOWN_SERVICE = 0xFFFF
_NSCC, _ECN, _NO_ECN = CcType.NSCC, PathFeedback.ECN, PathFeedback.NO_ECN
_new = tuple.__new__  # a named tuple in a third of the time
_TRIMMED = {NackCode.TRIMMED.name: Trim.TRIMMED, NackCode.TRIMMED_LASTHOP.name: Trim.LAST_HOP}


@dataclass(slots=True, eq=False)
class PacedRecord(SendRecord):
    """This is the record of a request whose PDC has a congestion control context."""

    size: int = 0
    """Nominal size in bytes."""
    sent_at: int = 0
    """Time of the last transmission."""
    sends: int = 1
    """Number of transmissions."""
    flying: bool = True
    """Whether the packet is in flight: sent, and neither reported as received, nor refused, nor given up."""
    waits: bool = False
    """Whether the packet waits in `Pdc.again` for its retransmission."""
    reported: bool = False
    """Whether an ACK has reported the packet as received, so that its bytes are no longer in flight, and are not again
    if it is retransmitted."""
    armed_at: int = field(init=False)
    """Time at which its RTO began, while it waits."""
    marked: bool = False
    rtt: int | None = None
    """ECN mark of the last NACK, and the round-trip time that it shows, or None."""


# Before a transmission


def offer(pdc: Pdc, message: Outgoing) -> None:
    """Tell the context of a message that waits on this PDC."""
    if pdc.cc is not None:
        size = _left(pdc, message)
        pdc.backlog += size
        pdc.cc.offered(size)


def withdraw(pdc: Pdc, messages: Iterable[Outgoing]) -> None:
    """Tell the context of messages that no longer wait on this PDC, and of which no packet was sent."""
    if pdc.cc is not None:
        size = min(sum(_left(pdc, message) for message in messages), pdc.backlog)
        pdc.backlog -= size
        pdc.cc.offered(-size)


def _left(pdc: Pdc, message: Outgoing) -> int:
    packets, size = message.unsent()
    return packets * pdc.overhead + size


def may_send(pdc: Pdc, now: int) -> bool:
    """Return whether the context allows a request now; if not, the PDC sends again after the next event of it."""
    cc, manager = pdc.cc, pdc.owner.congestion
    if cc is None:
        return True
    assert manager is not None
    if cc.may_send(manager.largest, now):
        return True
    pdc.owner.hold(pdc)
    return False


def first_sent(
    pdc: Pdc, psn: int, message: Outgoing, index: int, header: bytes, payload: Buffer, ar: bool, clear: int, now: int
) -> PacedRecord:
    """Note the first transmission of a packet, and return its record. The packet asks for an ACK also if the context
    says so."""
    cc = pdc.cc
    assert cc is not None
    size = pdc.overhead + len(header) + len(payload)
    pdc.backlog -= size
    pdc.inflight += size
    ask = cc.sent(size, False, now)
    if pdc.backlog and pdc.open_message is None and not pdc.queue:
        cc.offered(-pdc.backlog)  # a message that ended early
        pdc.backlog = 0
    return PacedRecord(
        psn, message, index, message.next_hdr, header, payload, ask or ar, clear, size=size, sent_at=now
    )  # fmt: skip


# Retransmissions


def hold_again(pdc: Pdc, record: SendRecord, cause: str, now: int, named: bool = True) -> bool:
    """Let a packet wait for its retransmission. Return False without a context, as it is to be sent at once.

    `named`: the cause is one of this packet, and not of an earlier one, after which go-back-N sends this one again.
    """
    if pdc.cc is None or not isinstance(record, PacedRecord):
        return False
    if record.waits:
        return True
    if record.flying:
        _give_up(pdc, record, cause, now, named)
    else:  # the peer had reported it as received
        pdc.cc.missed(record.size)
    record.waits, record.cause = True, cause
    _time(pdc, record, now)
    if pdc.again is None:
        pdc.again = deque()
    if record.rto_cnt > 1:
        pdc.again.appendleft(record)  # else a dead peer would be found out only after a turn of all others
    else:
        pdc.again.append(record)
    if pdc.mode is Mode.ROD and len(pdc.again) > 1 and diff32(record.psn, pdc.again[-2].psn) < 0:
        pdc.again = deque(sorted(pdc.again, key=lambda one: diff32(one.psn, pdc.tx.una)))
    return True


def _give_up(pdc: Pdc, record: PacedRecord, cause: str, now: int, named: bool) -> None:
    cc = pdc.cc
    assert cc is not None
    record.flying = False
    if record.reported:
        cc.settled(0, -record.size, 0, 0)
    else:
        pdc.inflight -= record.size
    if cause in (RTO, INFERRED):
        cc.lost(record.size, now)
        pdc.selection.heard(record.entropy, PathFeedback.TIMEOUT, now)
    elif not named:
        cc.nacked(record.size, Trim.NO, False, None, now)
    else:
        cc.nacked(record.size, _TRIMMED.get(cause, Trim.NO), record.marked, record.rtt, now)


def _time(pdc: Pdc, record: PacedRecord, now: int) -> None:
    record.armed_at = now
    pdc.tx.arm(record, now)
    if record.rto_at < pdc.wake_at:
        pdc.owner.wake(pdc, record.rto_at)


def was_heard(pdc: Pdc, record: SendRecord) -> bool:
    """Return whether a packet waits for congestion control, and its context has heard of the peer in the time of its
    RTO."""
    cc = pdc.cc
    return cc is not None and isinstance(record, PacedRecord) and record.waits and cc.heard_at > record.armed_at


def wait_on(pdc: Pdc, record: SendRecord, now: int) -> bool:
    """Take the RTO of a packet that waits for its retransmission, and return True; return False if it does not wait.

    The RTO counts if nothing was heard in its time, so that a PDC does not wait for ever for a peer that is gone.
    """
    if not isinstance(record, PacedRecord) or not record.waits:
        return False
    record.rto_cnt += not was_heard(pdc, record)
    _time(pdc, record, now)
    return True


def next_again(pdc: Pdc, now: int) -> PacedRecord | None:
    """Return the packet that is to be retransmitted next, if the context and the window allow it, else None."""
    again = pdc.again
    while again:
        record = again[0]
        if not record.waits or pdc.tx.records.get(record.psn) is not record:
            again.popleft()
        elif not pdc.tx.in_window(record.psn) or not may_send(pdc, now):
            return None
        else:
            again.popleft()
            return record
    return None


def sent_again(pdc: Pdc, record: PacedRecord, now: int) -> bool:
    """Note a retransmission, and return whether the packet should ask for an ACK."""
    cc = pdc.cc
    assert cc is not None
    record.sent_at, record.flying, record.waits = now, True, False
    record.sends += 1
    ask = cc.sent(record.size, True, now)
    if record.reported:
        cc.settled(0, record.size, 0, 0)
    else:
        pdc.inflight += record.size
    return ask


# Credit (cms.md §4)


def paced_at(manager: CongestionManager, held: Iterable[CongestionContext]) -> int:
    """Return when congestion control has something to do: a grant leaves, or a context of `held`, for which PDCs wait,
    asks for credit."""
    at = manager.deadline()
    for context in held:
        at = min(at, context.deadline())
    return at


def run_congestion(pds: "Pds", manager: CongestionManager, now: int) -> None:
    """Send the grants that are due, and ask for those that do not come."""
    for pdcid, credit in manager.grants(now):
        pdc = pds.pdcs.get(pdcid)
        if pdc is not None and pdc.allows(Input.SEND_CREDIT):
            pdc.step(Input.SEND_CREDIT, CtlType.CREDIT, credit, now)
    for context in [one for one in pds.held if one.deadline() <= now]:
        if not context.on_time(now):
            continue
        pdc = next((one for one in pds.held[context] if one.allows(Input.SEND_CREDIT)), None)
        if pdc is not None:
            pdc.step(Input.SEND_CREDIT, CtlType.CREDIT_REQ, context.demand() or 0, now)
        else:  # all PDCs that wait are yet to be opened, for which the peer can grant nothing
            context.speculate()
            pds.free(context)


# Answers


def is_held(record: SendRecord) -> bool:
    """Return whether a packet waits for congestion control to allow its retransmission."""
    return isinstance(record, PacedRecord) and record.waits


def refused(pdc: Pdc, record: SendRecord, nack: Nack, datagram: Datagram, now: int) -> None:
    """Note what a NACK says of the path of a packet."""
    if pdc.cc is None or not isinstance(record, PacedRecord):
        return
    _probe_once(pdc, now)
    record.marked, record.rtt = bool(nack.marked), _rtt(record, nack.retx, 0, now)
    trimmed = nack.code == NackCode.TRIMMED
    mark = PathFeedback.ECN if nack.marked else PathFeedback.NO_ECN
    if datagram.entropy != pdc.entropy:  # as in `acked`
        pdc.selection.heard(datagram.entropy, PathFeedback.NACK if trimmed else mark, now)


def _probe_once(pdc: Pdc, now: int) -> None:
    """Send a PROBE after the first answer that a context gets, if it wants one and the PDC may send it (cms.md
    §3.5)."""
    cc = pdc.cc
    if cc is not None and cc.wants_probe and pdc.peer_id and pdc.allows(Input.SEND_PROBE):
        cc.wants_probe = False
        pdc.step(Input.SEND_PROBE, now)


def probed(pdc: Pdc, rtt: int) -> None:
    """Tell the context the round-trip time of a PROBE."""
    if pdc.cc is not None:
        pdc.cc.probed(rtt)


def acked(pdc: Pdc, ack: Ack, named: SendRecord | None, datagram: Datagram, now: int) -> None:
    """Tell the context of an ACK. `named`: the record of ACK_PSN, if it was there before the ACK."""
    cc, landed = pdc.cc, pdc.tx.landed
    assert cc is not None
    assert landed is not None
    packets = size = 0
    for record in landed:
        if not isinstance(record, PacedRecord):
            continue
        if record.flying:
            record.flying = False
            packets += 1
            if not record.reported:
                size += record.size
        elif record.waits:  # it was given up, and arrived after all
            record.waits = False
            if record.reported:
                cc.settled(0, 0, 1, record.size)
            else:
                cc.found(record.size)
                pdc.inflight += record.size
                size += record.size
        record.reported = True
    landed.clear()
    marked, new = bool(ack.marked), size
    service = penalty = restore = 0
    credit = ooo_count = None
    if ack.cc_state and ack.cc_type == _NSCC:
        service, restore, penalty, rcvd_bytes, ooo_count = PdsCcStateNsccHeader.unpack(ack.cc_state)
        new = _newly_received(pdc, rcvd_bytes, size)
    else:
        pdc.uncounted += size
        if ack.cc_state and ack.cc_type == CcType.CREDIT:
            granted = PdsCcStateCreditHeader.read(ack.cc_state)
            credit, ooo_count = granted.credit, granted.ooo_count
    if new < pdc.inflight and not pdc.tx.flying:
        new = pdc.inflight  # the peer counts less for a packet, and nothing is in flight
    rtt = _rtt(named, ack.retx, service, now) if isinstance(named, PacedRecord) else None
    pdc.inflight -= new
    report = _new(AckReport, (new, marked, rtt, penalty, bool(restore), credit, ooo_count))
    pdc.tx.rto = cc.acked(packets, report, now)
    if cc.wants_probe and ack.probe_opaque is None:
        _probe_once(pdc, now)
    pdc.ooo_count = ooo_count or 0
    ahead = (ack.ack_psn - pdc.highest_acked) & _M32
    if 0 < ahead < _SIGN:
        pdc.highest_acked = ack.ack_psn
    if datagram.entropy != pdc.entropy:  # that of control packets tells nothing of a path of requests
        pdc.selection.heard(datagram.entropy, _ECN if marked else _NO_ECN, now)


def _newly_received(pdc: Pdc, rcvd_bytes: int, size: int) -> int:
    """Return the bytes that rcvd_bytes reports for the first time, without those of packets that ACKs without
    rcvd_bytes have acknowledged; of a peer that never counts, `size`, those of the packets that the ACK acknowledges.
    """
    if not (rcvd_bytes or pdc.rcvd_bytes):
        pdc.uncounted += size
        return size
    more = (rcvd_bytes - pdc.rcvd_bytes) & _M24
    if more >> 23:
        return 0  # an older ACK
    pdc.rcvd_bytes = rcvd_bytes
    known = min(pdc.uncounted, more * _QUANTUM)
    pdc.uncounted -= known
    return more * _QUANTUM - known


def overtaken(pdc: Pdc) -> list[SendRecord]:
    """Return the packets that the destination seems to miss, as it holds so many behind them (cms.md §6).

    During a recovery these are those that were sent once and come into sight as CACK goes on.
    """
    tx = pdc.tx
    if pdc.cc is None or (tx.recovery_end is None and not pdc.ooo_count):
        return []
    most, window = pdc.cc.most_overtaking()
    if tx.recovery_end is None and pdc.ooo_count < most:
        return []
    edge = (tx.peer_cack + window) & _M32
    if diff32(pdc.highest_acked, edge) < 0:
        edge = pdc.highest_acked
    return [one for one in tx.missing(edge) if isinstance(one, PacedRecord) and one.flying and one.sends == 1]


def surely_lost(pdc: Pdc, missing: list[SendRecord], now: int) -> list[SendRecord]:
    """Return those of the packets that the answer to a PROBE shows as missing that cannot be on their way still."""
    patience = 0 if pdc.cc is None else pdc.cc.patience()
    if not patience:
        return missing
    return [one for one in missing if not isinstance(one, PacedRecord) or now - one.sent_at >= patience]


def _rtt(record: PacedRecord, retx: int, service: int, now: int) -> int | None:
    """Return the round-trip time that the answer to a packet shows, or None if it may answer another transmission of
    it, or says that the packet took no time (cms.md §3.3)."""
    if record.sends != (2 if retx else 1) or service == _UNKNOWN_SERVICE:
        return None
    rtt = now - record.sent_at - service * _SERVICE_UNIT
    return rtt if rtt > 0 else None


# The end


def leave(pdc: Pdc, records: Iterable[SendRecord]) -> None:
    """Take back what a PDC that ends has offered and not sent, and has sent and not got acknowledged."""
    cc = pdc.cc
    if cc is None:
        return
    cc.offered(-pdc.backlog)
    paced = [one for one in records if isinstance(one, PacedRecord)]
    waiting = [one.size for one in paced if one.waits]
    cc.settled(sum(one.flying for one in paced), pdc.inflight, len(waiting), sum(waiting))
    for record in paced:
        record.flying = record.waits = False
    pdc.backlog = pdc.inflight = 0
    pdc.again = None


def restart(pdc: Pdc, records: Iterable[SendRecord], now: int) -> None:
    """Let all packets wait to be sent anew, as first transmissions, from another Start_PSN (pds.md §6.6)."""
    cc = pdc.cc
    if cc is None:
        return
    paced = [one for one in records if isinstance(one, PacedRecord)]
    for record in paced:
        if record.flying:
            pdc.inflight -= record.size
            cc.settled(1, record.size, 0, 0)
        if not record.waits:
            cc.missed(record.size)
        record.flying, record.reported, record.waits, record.sends, record.armed_at = False, False, True, 0, now
    pdc.again = deque(paced)
    cc.speculate()  # the peer knows of no PDC yet, by which it could grant credit
    pdc.owner.stir(pdc)
