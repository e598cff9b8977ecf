"""pds.md §18, delivery: invariants 1–9."""

from uetproto.check.registry import Destination, Mishap, Scope, broken, invariant
from uetproto.check.uet.shadow_state import ANSWERED, M32, OPEN, Ledger, Track, behind
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import Buffer, Mode, PdcClosed, PdsError
from uetproto.engine.pds.states import State
from uetproto.wire.serial import diff32

_TWO_ENDS = Mishap.FORGED | Mishap.RESTARTED
"""Void what one end says about the other."""


@invariant(1, Scope.DELIVERY)
def pds_01_at_most_once(ledger: Ledger, psn: int, header: Buffer, payload: Buffer) -> None:
    """RUD/ROD: each (instance, direction, PSN) is delivered to SES at most once (a delivery refused by `ses_nack` does
    not count)."""
    if psn in ledger.got or not behind(ledger.cack, psn):
        raise broken(1, "delivered twice", psn)


def _rod(config: PdsConfig, mode: Mode) -> bool:
    return mode is Mode.ROD


@invariant(2, Scope.DELIVERY, when=_rod)
def pds_02_rod_order(ledger: Ledger, psn: int, header: Buffer, payload: Buffer) -> None:
    """ROD: the delivered PSNs of a direction are exactly Start_PSN, Start_PSN+1, … in this order (minus PSN-consuming
    CPs)."""
    turn = ledger.turn
    while turn != psn and ledger.is_cp(turn):
        turn = (turn + 1) & M32
    if turn != psn:
        raise broken(2, "out of order", psn, turn)


@invariant(3, Scope.DELIVERY, void_after=_TWO_ENDS)
def pds_03_same_bytes(ledger: Ledger, psn: int, header: Buffer, payload: Buffer) -> None:
    """A delivered payload equals the payload SES submitted for that PSN, bit for bit."""
    peer = ledger.peer
    if peer is not None:
        sent = peer.sent.get(psn)
        if sent is None or sent.ctl_type is not None:
            raise broken(3, "delivered, and no request in flight has this PSN", psn)
        if header != sent.header or payload != sent.payload:
            raise broken(3, "other bytes than were sent", psn)


@invariant(4, Scope.DELIVERY)
def pds_04_where_delivered(ledger: Ledger, psn: int, header: Buffer, payload: Buffer) -> None:
    """No delivery from a trimmed packet, from a PDC in PENDING or CLOSED, or of a PSN newer than close_psn."""
    pdc = ledger.pdc
    if ledger.end.trimmed and ledger.end.brings(psn):
        raise broken(4, "delivered from a trimmed packet", psn)
    if pdc.state is State.CLOSED or (pdc.state is State.PENDING and not ledger.end.starts_at(pdc.rx.start)):
        raise broken(4, f"delivered in {pdc.state.name}", psn)
    if pdc.close_psn is not None and behind(pdc.close_psn, psn):
        raise broken(4, "delivered beyond CLOSE_CMD", psn)


@invariant(5, Scope.DELIVERY)
def pds_05_window(ledger: Ledger, psn: int, header: Buffer, payload: Buffer) -> None:
    """1 ≤ diff(psn, CACK), and psn at most the largest edge ever advertised."""
    rx = ledger.pdc.rx
    edge = (rx.cack + rx.mp_range) & M32
    if behind(edge, ledger.edge):
        edge = ledger.edge
    if diff32(psn, rx.cack) < 1 or behind(edge, psn):
        raise broken(5, "outside the window", psn, rx.cack, edge)


def _answers(config: PdsConfig, mode: Mode) -> bool:
    return mode is not Mode.UUD


@invariant(6, Scope.OUTCOME, when=_answers)
def pds_06_one_outcome(
    ledger: Ledger | None, track: Track, index: int, error: PdsError | None, response: Buffer | None
) -> None:
    """Every handle of RUD/ROD/RUDI gets exactly one of {response, error}; never both, never a second response."""
    if index < 0:
        if track.failed:
            raise broken(6, "a second error for what was not sent of message", track.message.message_id)
    elif index >= len(track.marks):
        raise broken(6, f"an outcome for packet {index}, which was not sent, of message", track.message.message_id)
    elif track.marks[index] != OPEN:
        before, now = ("response" if track.marks[index] == ANSWERED else "error"), ("error" if error else "response")
        raise broken(6, f"packet {index} got {before}, then {now}; message", track.message.message_id)


@invariant(7, Scope.OUTCOME, when=_answers, void_after=_TWO_ENDS)
def pds_07_success_means_delivered(
    ledger: Ledger | None, track: Track, index: int, error: PdsError | None, response: Buffer | None
) -> None:
    """A success response implies the packet was delivered (exactly once) before the response."""
    if error is None:
        psn = track.psns[index]
        if ledger is None:
            if psn not in track.end.other.rudi_taken:
                raise broken(7, "answered, and not delivered, pkt_id", psn)
        elif ledger.peer is not None and not ledger.peer.has(psn):
            raise broken(7, "answered, and not delivered", psn)


@invariant(8, Scope.OUTCOME, void_after=_TWO_ENDS)
def pds_08_guaranteed_response(
    ledger: Ledger | None, track: Track, index: int, error: PdsError | None, response: Buffer | None
) -> None:
    """For a PSN whose SES response was gtd_del, the response that reaches the source SES is that one, never a
    default."""
    if error is None and ledger is not None and ledger.peer is not None:
        psn = track.psns[index]
        answer = ledger.peer.gtd.get(psn)
        if answer is not None and response != answer.header:
            raise broken(8, "another response than the guaranteed one for", psn)


@invariant(9, Scope.STEP, Destination, PdcClosed, void_after=_TWO_ENDS)
def pds_09_no_lost_error(ledger: Ledger, full: bool) -> None:
    """An error response of SES is never lost: source SES sees it, or the PDC ends in error.

    Asked of every guaranteed response when it is cleared: its source has had it.
    """
    if ledger.pdc.rx.max_clear == ledger.max_clear or not ledger.gtd:
        return
    peer = ledger.peer
    if peer is None or peer.pdc.state is State.CLOSED:
        return
    for psn in ledger.cleared():
        if psn & M32 in ledger.gtd:
            sent = peer.sent.get(psn & M32)
            if sent is not None and not peer.outcome_known(sent):
                raise broken(9, "cleared, and SES of the source never saw the response to", psn & M32)
