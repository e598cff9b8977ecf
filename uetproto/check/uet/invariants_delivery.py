# SPDX-License-Identifier: GPL-2.0-only
"""This module has invariants 1–9 of pds.md §18, which concern delivery."""

from uetproto.check.registry import Disruption
from uetproto.check.uet.registry import Occasion, PdsScope, broken, invariant
from uetproto.check.uet.shadow_state import ANSWERED, M32, OPEN, PdcShadow, TrackedMessage, behind
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import Buffer, Mode, PdcClosed, PdsError
from uetproto.engine.pds.states import State
from uetproto.wire.serial import diff32

_TWO_ENDS = Disruption.FORGED | Disruption.RESTARTED
"""Disruptions after which one end proves nothing about the other."""


@invariant(1, PdsScope.DELIVERY)
def pds_01_at_most_once(shadow: PdcShadow, psn: int, header: Buffer, payload: Buffer) -> None:
    """On RUD and ROD each PSN of one direction of a PDC instance is delivered to SES at most once. A delivery that SES
    refused with `ses_nack` does not count."""
    if psn in shadow.got or not behind(shadow.cack, psn):
        raise broken(1, "delivered twice", psn)


def _rod(config: PdsConfig, mode: Mode) -> bool:
    return mode is Mode.ROD


@invariant(2, PdsScope.DELIVERY, when=_rod)
def pds_02_rod_order(shadow: PdcShadow, psn: int, header: Buffer, payload: Buffer) -> None:
    """On ROD the delivered PSNs of a direction are exactly Start_PSN, Start_PSN+1, … in this order, without the PSNs
    that control packets consume."""
    turn = shadow.turn
    while turn != psn and turn in shadow.cps:
        turn = (turn + 1) & M32
    if turn != psn:
        raise broken(2, "out of order", psn, turn)


@invariant(3, PdsScope.DELIVERY, void_after=_TWO_ENDS)
def pds_03_same_bytes(shadow: PdcShadow, psn: int, header: Buffer, payload: Buffer) -> None:
    """A delivered payload equals, bit for bit, the payload that SES submitted for that PSN."""
    peer = shadow.peer
    if peer is not None:
        sent = peer.sent.get(psn)
        if sent is None or sent.ctl_type is not None:
            raise broken(3, "delivered, and no request in flight has this PSN", psn)
        if header != sent.header or payload != sent.payload:
            raise broken(3, "other bytes than were sent", psn)


@invariant(4, PdsScope.DELIVERY)
def pds_04_where_delivered(shadow: PdcShadow, psn: int, header: Buffer, payload: Buffer) -> None:
    """Nothing is delivered from a trimmed packet, on a PDC in PENDING or CLOSED, or with a PSN newer than close_psn."""
    pdc = shadow.pdc
    if shadow.end.trimmed and shadow.end.brings(psn):
        raise broken(4, "delivered from a trimmed packet", psn)
    if pdc.state is State.CLOSED or (pdc.state is State.PENDING and not shadow.end.starts_at(pdc.rx.start)):
        raise broken(4, f"delivered in {pdc.state.name}", psn)
    if pdc.close_psn is not None and behind(pdc.close_psn, psn):
        raise broken(4, "delivered beyond CLOSE_CMD", psn)


@invariant(5, PdsScope.DELIVERY)
def pds_05_window(shadow: PdcShadow, psn: int, header: Buffer, payload: Buffer) -> None:
    """A delivered PSN is newer than CACK, and not newer than the largest window edge that was ever advertised."""
    rx = shadow.pdc.rx
    edge = (rx.cack + rx.mp_range) & M32
    if behind(edge, shadow.edge):
        edge = shadow.edge
    if diff32(psn, rx.cack) < 1 or behind(edge, psn):
        raise broken(5, "outside the window", psn, rx.cack, edge)


def _answers(config: PdsConfig, mode: Mode) -> bool:
    return mode is not Mode.UUD


@invariant(6, PdsScope.OUTCOME, when=_answers)
def pds_06_one_outcome(
    shadow: PdcShadow | None, track: TrackedMessage, index: int, error: PdsError | None, response: Buffer | None
) -> None:
    """SES gets exactly one outcome for every packet that it sent with RUD, ROD or RUDI: a response or an error."""
    if index < 0:
        if track.failed:
            raise broken(6, "a second error for what was not sent of message", track.message.message_id)
    elif index >= len(track.marks):
        raise broken(6, f"an outcome for packet {index}, which was not sent, of message", track.message.message_id)
    elif track.marks[index] != OPEN:
        before, now = ("response" if track.marks[index] == ANSWERED else "error"), ("error" if error else "response")
        raise broken(6, f"packet {index} got {before}, then {now}; message", track.message.message_id)


@invariant(7, PdsScope.OUTCOME, when=_answers, void_after=_TWO_ENDS)
def pds_07_success_means_delivered(
    shadow: PdcShadow | None, track: TrackedMessage, index: int, error: PdsError | None, response: Buffer | None
) -> None:
    """If a packet gets a success response, it was delivered before the response was sent."""
    if error is None:
        psn = track.psns[index]
        if shadow is None:
            if psn not in track.end.other.rudi_taken:
                raise broken(7, "answered, and not delivered, pkt_id", psn)
        elif shadow.peer is not None and not shadow.peer.has(psn):
            raise broken(7, "answered, and not delivered", psn)


@invariant(8, PdsScope.OUTCOME, void_after=_TWO_ENDS)
def pds_08_guaranteed_response(
    shadow: PdcShadow | None, track: TrackedMessage, index: int, error: PdsError | None, response: Buffer | None
) -> None:
    """If SES marked its response to a PSN as guaranteed (gtd_del), exactly this response reaches the source's SES, and
    never a default response."""
    if error is None and shadow is not None and shadow.peer is not None:
        psn = track.psns[index]
        answer = shadow.peer.gtd.get(psn)
        if answer is not None and response != answer.header:
            raise broken(8, "another response than the guaranteed one for", psn)


@invariant(9, PdsScope.STEP, Occasion.DESTINATION_CHANGE, PdcClosed, void_after=_TWO_ENDS)
def pds_09_no_lost_error(shadow: PdcShadow, full: bool) -> None:
    """An error response of SES is never lost: the SES of the source gets it, or the PDC ends with an error.

    This is checked when a guaranteed response is cleared. The SES that sent the request must have received the
    response.
    """
    if shadow.pdc.rx.max_clear == shadow.max_clear or not shadow.gtd:
        return
    peer = shadow.peer
    if peer is None or peer.pdc.state is State.CLOSED:
        return
    for psn in shadow.cleared():
        if psn & M32 in shadow.gtd:
            sent = peer.sent.get(psn & M32)
            if sent is not None and not peer.outcome_known(sent):
                raise broken(9, "cleared, and SES of the source never saw the response to", psn & M32)
