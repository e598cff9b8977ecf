# SPDX-License-Identifier: GPL-2.0-only
"""This module has invariants 10–23 of pds.md §18, which concern PSNs."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from uetproto.check.registry import Disruption
from uetproto.check.uet.registry import Occasion, Packet, PdsScope, broken, invariant
from uetproto.check.uet.shadow_state import M32, OLDER, PdcShadow, Sent
from uetproto.engine.contract import Datagram, PdcClosed
from uetproto.engine.pds.messages import Ack, Control, Message, Nack, Request
from uetproto.engine.pds.psn_window import DONE, StoredSlot
from uetproto.engine.pds.states import State
from uetproto.wire.headers.uet_pds import CONTROLS, CpPayload, CpPsn, NackCode
from uetproto.wire.serial import diff32

_OFFSETS = range(-0x8000, 0x8000)
_FORGED, _RESTARTED = Disruption.FORGED, Disruption.RESTARTED


@invariant(10, PdsScope.STEP, Occasion.SOURCE_CHANGE, Occasion.DESTINATION_CHANGE)
def pds_10_cack_never_decreases(shadow: PdcShadow, full: bool) -> None:
    """CACK never decreases at the destination; peer_cack never decreases at the source."""
    pdc = shadow.pdc
    if (pdc.rx.cack - shadow.cack) & OLDER:
        raise broken(10, "CACK decreases to", pdc.rx.cack, shadow.cack)
    if (pdc.tx.peer_cack - shadow.peer_cack) & OLDER:
        raise broken(10, "peer_cack decreases to", pdc.tx.peer_cack, shadow.peer_cack)


@invariant(11, PdsScope.STEP, Occasion.SOURCE_CHANGE, Occasion.DESTINATION_CHANGE)
def pds_11_clear_never_decreases(shadow: PdcShadow, full: bool) -> None:
    """CLEAR_PSN never decreases at the source; max_clear never decreases at the destination."""
    pdc = shadow.pdc
    if (pdc.tx.una - shadow.una) & OLDER:
        raise broken(11, "una, and so CLEAR, decreases to", pdc.tx.una, shadow.una)
    if (pdc.rx.max_clear - shadow.max_clear) & OLDER:
        raise broken(11, "max_clear decreases to", pdc.rx.max_clear, shadow.max_clear)


@invariant(12, PdsScope.STEP, Occasion.SOURCE_CHANGE)
def pds_12_source_order(shadow: PdcShadow, full: bool) -> None:
    """After every event the source has peer_cack ≤ CLEAR_PSN = una − 1 ≤ next − 1, and SES has an outcome for every
    packet before una."""
    tx = shadow.pdc.tx
    una = tx.una
    if (una - 1 - tx.peer_cack) & OLDER:
        raise broken(12, "peer CACK beyond CLEAR", tx.peer_cack, una)
    if (tx.next - una) & OLDER:
        raise broken(12, "una beyond next", una, tx.next)
    if una != tx.next and una not in tx.records:
        raise broken(12, "una is acknowledged", una)
    sent = shadow.sent
    for psn in range(shadow.una, shadow.una + ((una - shadow.una) & M32)):
        packet = sent.get(psn & M32)
        if packet is not None and not shadow.outcome_known(packet):
            raise broken(12, "CLEAR covers what SES got no answer for", psn & M32)


@invariant(13, PdsScope.STEP, Occasion.DESTINATION_CHANGE)
def pds_13_destination_order(shadow: PdcShadow, full: bool) -> None:
    """After every event the destination has max_clear ≤ CACK ≤ max_rcvd. All three are Start_PSN − 1 at first."""
    rx = shadow.pdc.rx
    if (rx.cack - rx.max_clear) & OLDER:
        raise broken(13, "max_clear beyond CACK", rx.max_clear, rx.cack)
    if (rx.max_rcvd - rx.cack) & OLDER:
        raise broken(13, "CACK beyond max_rcvd", rx.cack, rx.max_rcvd)


@invariant(14, PdsScope.STEP, Occasion.DESTINATION_CHANGE, PdcClosed)
def pds_14_cack_truth(shadow: PdcShadow, full: bool) -> None:
    """Every PSN in Start_PSN … CACK is delivered and answered. If its response was guaranteed (gtd_del), the PSN is at
    most max_clear."""
    rx, got = shadow.pdc.rx, shadow.got
    for psn in range(shadow.cack + 1, shadow.cack + 1 + ((rx.cack - shadow.cack) & M32)):
        answer = got.get(psn & M32)
        if answer is None:
            if psn & M32 not in shadow.cps:
                raise broken(14, "CACK covers what was not answered", psn & M32)
        elif answer.gtd and (rx.max_clear - psn) & OLDER:
            raise broken(14, "CACK covers an uncleared response", psn & M32)


@invariant(15, PdsScope.STEP, Occasion.DESTINATION_CHANGE)
def pds_15_cack_maximality(shadow: PdcShadow, full: bool) -> None:
    """The packet with PSN CACK + 1 is not complete; if it were, CACK would have to advance."""
    rx = shadow.pdc.rx
    if rx.slots:
        psn = (rx.cack + 1) & M32
        slot = rx.slots.get(psn)
        if slot is DONE or (isinstance(slot, StoredSlot) and not (rx.max_clear - psn) & OLDER):
            raise broken(15, "CACK could advance from", rx.cack)


@invariant(16, PdsScope.PACKET, Request)
def pds_16_clear_on_the_wire(shadow: PdcShadow, packet: Request, datagram: Datagram, sent: Sent) -> None:
    """On the wire psn + clear_psn_offset is less than psn, and equals the source's CLEAR_PSN at that moment.

    If a setting asks for an older CLEAR_PSN (`clear_source`, `clear_at`, `clear_on_retransmission`), the value sent
    may be older, but never newer.
    """
    clear, now = packet.clear_psn, (shadow.pdc.tx.una - 1) & M32
    if not (clear - packet.psn) & OLDER:
        raise broken(16, "a packet clears itself", packet.psn, clear)
    if clear != now:
        config = shadow.pdc.config
        exact = config.clear_source == "explicit" and config.clear_at == "packet"
        older = not exact or (packet.retx and config.clear_on_retransmission != "current")
        if not older or (now - clear) & OLDER:
            raise broken(16, "CLEAR on the wire", clear, now)


@invariant(17, PdsScope.PACKET, Ack)
def pds_17_ack_psn_was_received(shadow: PdcShadow, packet: Ack, datagram: Datagram, sent: Sent) -> None:
    """On the wire cack_psn + ack_psn_offset is a PSN in Start_PSN … max_rcvd that the destination has received."""
    rx, psn = shadow.pdc.rx, packet.ack_psn
    if packet.probe_opaque is None:
        if (rx.cack - psn) & OLDER and psn not in rx.slots:
            raise broken(17, "ACK of what was not received", psn)
        if (psn - rx.start) & OLDER or (rx.max_rcvd - psn) & OLDER:
            raise broken(17, "ACK of what is not in Start_PSN … max_rcvd", psn)


@invariant(18, PdsScope.PACKET, Ack, void_after=_RESTARTED | _FORGED)
def pds_18_sack_truth(shadow: PdcShadow, packet: Ack, datagram: Datagram, sent: Sent) -> None:
    """Every SACK bit that is set stands for a PSN that is at most CACK or was received. Every PSN that the source
    marks as acked or dst_rcvd was received at the destination.
    """
    rx = shadow.pdc.rx
    bitmap, psn = packet.sack_bitmap, packet.sack_base
    while bitmap:
        if bitmap & 1 and (rx.cack - psn) & OLDER and psn & M32 not in rx.slots:
            raise broken(18, "SACK of what was not received", psn & M32)
        bitmap >>= 1
        psn += 1
    source = shadow.peer
    if source is not None and source.pdc.state is not State.CLOSED:
        tx = source.pdc.tx
        if (rx.max_rcvd - tx.una + 1) & OLDER:
            raise broken(18, "acknowledged, not received", tx.una - 1)
        if tx.sacked:
            for record in tx.records.values():
                if record.dst_rcvd and (rx.cack - record.psn) & OLDER and record.psn not in rx.slots:
                    raise broken(18, "dst_rcvd, not received", record.psn)


@invariant(19, PdsScope.PACKET, Request, Ack)
def pds_19_offsets_fit(shadow: PdcShadow, packet: Request | Ack, datagram: Datagram, sent: Sent) -> None:
    """The offsets of CLEAR_PSN, ACK_PSN and the SACK base always fit 16 bits with a sign."""
    if type(packet) is Request:
        if diff32(packet.clear_psn, packet.psn) not in _OFFSETS:
            raise broken(19, "clear_psn_offset", packet.clear_psn, packet.psn)
    elif (
        diff32(packet.ack_psn, packet.cack_psn) not in _OFFSETS  # type: ignore[union-attr]
        or diff32(packet.sack_base, packet.cack_psn) not in _OFFSETS  # type: ignore[union-attr]
    ):
        raise broken(19, "offset in an ACK", packet.cack_psn)  # type: ignore[union-attr]


@invariant(20, PdsScope.PACKET, Request, Control)
def pds_20_first_transmissions(shadow: PdcShadow, packet: Packet, datagram: Datagram, sent: Sent) -> None:
    """The first transmissions of a direction have consecutive PSNs that start with Start_PSN. No PSN is used for two
    different packets."""
    if sent is None:
        return
    if not sent.copies:
        if packet.psn != shadow.expected:
            raise broken(20, "PSN out of turn", packet.psn, shadow.expected)
    elif type(packet) is Request:
        if (
            sent.ctl_type is not None
            or datagram.header[packet.size :] != sent.header
            or datagram.payload != sent.payload
        ):
            raise broken(20, "two contents of", packet.psn)
    elif sent.ctl_type != packet.ctl_type:  # type: ignore[union-attr]
        raise broken(20, "two contents of", packet.psn)


@invariant(21, PdsScope.PACKET, Request, Control)
def pds_21_window(shadow: PdcShadow, packet: Packet, datagram: Datagram, sent: Sent) -> None:
    """A packet is sent only if psn ≤ CLEAR_PSN + mp_range, with the values of that moment. With `window_base` = cack,
    it is sent only if psn ≤ peer_cack + mp_range.
    """
    if sent is not None:
        tx = shadow.pdc.tx
        base = tx.peer_cack if tx.window_at_cack else tx.una - 1
        if (base + tx.mp_range - packet.psn) & OLDER:
            raise broken(21, "outside the window", packet.psn, base & M32, tx.mp_range)


@invariant(22, PdsScope.STEP, Request, Ack, Nack)
def pds_22_spaces_are_independent(shadow: PdcShadow, full: bool) -> None:
    """The PSN spaces of the forward and the return direction are independent: an event of one direction changes no
    number of the other one, except through SES."""
    pdc, arrived = shadow.pdc, shadow.end.cause
    if type(arrived) is Request:
        if pdc.tx.una != shadow.una or pdc.tx.peer_cack != shadow.peer_cack:
            raise broken(22, "a request moves the source half", pdc.tx.una, pdc.tx.peer_cack)
    elif not (type(arrived) is Nack and arrived.code == NackCode.NEW_START_PSN):
        rx = pdc.rx
        if rx.cack != shadow.cack or rx.max_clear != shadow.max_clear or rx.max_rcvd != shadow.max_rcvd:
            raise broken(22, "an ACK or NACK moves the destination half", rx.cack, rx.max_clear, rx.max_rcvd)


_PSNS_OF_CP: dict[int, tuple[str, ...]] = {
    kind: ("psn",) * (control.psn is not CpPsn.NONE) + ("payload",) * (control.payload is CpPayload.PSN)
    for kind, control in CONTROLS.items()
}
"""Fields that hold PSNs, by type of control packet."""

Trace: TypeAlias = Iterable[tuple[int, int, Message]]
"""Type of the trace of a run: time, sender and PDS header of every packet, in the order of sending."""


@invariant(23, PdsScope.PAIR)
def pds_23_shift(one: Trace, other: Trace, shift: int) -> None:
    """A run of the same steps with Start_PSN + k has the same packets with all PSNs + k (mod 2^32), for any k, even if
    PSNs wrap."""
    for number, ((at, source, first), (at2, source2, second)) in enumerate(zip(one, other, strict=True)):
        if (at, source, shifted(first, shift)) != (at2, source2, second):
            raise broken(23, f"packet {number} of the shifted run differs: {first} {second}")


def shifted(packet: Message, shift: int) -> Message:
    """Return the packet with `shift` added to all of its PSNs."""
    names: tuple[str, ...] = ()
    if type(packet) is Request:
        names = ("psn", "clear_psn") + (("start_psn",) if packet.syn else ())
    elif type(packet) is Ack:
        names = ("ack_psn", "cack_psn", "sack_base")
    elif type(packet) is Nack and not packet.rudi:
        pays = packet.code in (NackCode.ROD_OOO, NackCode.NEW_START_PSN)
        names = ("psn", "payload") if pays else ("psn",)
    elif type(packet) is Control:
        names = _PSNS_OF_CP.get(packet.ctl_type, ("psn",)) + (("start_psn",) if packet.syn else ())
    moved = {name: (getattr(packet, name) + shift) & M32 for name in names}
    return replace(packet, **moved)
