# SPDX-License-Identifier: GPL-2.0-only
"""What goes with the ladders of pds.md §19, both ends in one process: variants that no script shows, rules beside."""

import pytest

from tests.support.ladders.ladder import IPDCID, MS, TPDCID, A, B, Ladder, answer
from tests.support.pds.headers import build_ack, build_control
from uetproto.engine import Mode, PdcErrorReason
from uetproto.wire.headers.uet_pds import AckReq, NackCode, NextHdr


def test_l09_more_nacks_than_allowed() -> None:
    """L9: the second retransmission is refused once more, and Max_NACK_Retx_Cnt is 2."""
    x = Ladder(max_nack_retx_cnt=2)
    x.b.ses.otherwise = NackCode.NO_PKT_BUFFER
    x.a.send(1)
    for _ in range(3):
        x.b.rx(x.a.sent("REQ", psn=333))
        x.a.rx(x.b.sent("NACK", code=NackCode.NO_PKT_BUFFER))
        x.wait(MS)
    x.a.silent()
    assert [error.reason for _, error in x.a.ses.errors] == [PdcErrorReason.NACK_EXHAUSTED]


def test_l16_request_waiting() -> None:
    """L16: a request that is ready when the CLEAR_REQ comes carries the CLEAR."""
    x = Ladder()
    x.b.ses.script[333] = "gtd"
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.a.rx(x.b.sent("ACK", ack=333, cack=332, req=AckReq.CLEAR))
    x.wait(MS)
    x.a.sent("CLEAR_CMD", payload=333)
    x.wait(3 * MS)
    x.a.send(1, message_id=2, now=0)
    x.a.held = False
    x.a.rx(x.b.sent("CLEAR_REQ", payload=333))
    x.b.rx(x.a.sent("REQ", psn=334, clear=333, coff=-1))
    x.a.silent()
    assert x.b.pdc.rx.cack == 334


def test_no_response_keeps_the_psn_open() -> None:
    """pds.md §20 row 36: NO_RESPONSE is "received", the real answer follows."""
    x = Ladder()
    x.b.ses.otherwise = "later"
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333, ar=1))
    x.b.silent()
    x.b.respond(333, "no_response")
    x.a.rx(x.b.sent("ACK", ack=333, cack=332))
    assert x.a.ses.responses == []
    assert x.a.pdc.tx.records[333].dst_rcvd
    x.wait(MS)
    x.b.rx(x.a.sent("ACK_REQ", psn=333))
    x.a.rx(x.b.sent("NACK", code=NackCode.RCVD_SES_PROCG, nack_psn=333))
    x.b.respond(333, "ok")
    x.a.rx(x.b.sent("ACK", ack=333, cack=333))
    assert x.a.ses.responses == [(0, answer("ok").header)]


def test_rod_acks_leave_in_order() -> None:
    """pds.md §8.3: an ACK is held until the responses of all lower PSNs are known."""
    x = Ladder(Mode.ROD, enb_ack_per_pkt=True)
    x.b.ses.otherwise = "later"
    x.a.send(3)
    for _ in range(3):
        x.b.rx(x.a.sent("REQ"))
    x.b.respond(334, "ok")
    x.b.respond(335, "gtd")
    x.b.silent()
    x.b.respond(333, "ok")
    x.b.sent("ACK", ack=333, cack=334)
    x.b.sent("ACK", ack=334)
    x.b.sent("ACK", ack=335, req=AckReq.CLEAR)


def test_ecn_mark_is_acknowledged_at_once() -> None:
    """ACK_On_ECN, pds.md §8.3."""
    x = Ladder(ar_on_eom=False)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ"), marked=True)
    x.b.sent("ACK", ack=333, marked=1)


def test_window_base_cack_learns_the_new_cack() -> None:
    """Knob window_base = cack (pds.md §7.1): blocked with nothing un-ACKed, CLEAR_CMD and ACK_REQ free the window."""
    x = Ladder(default_mpr=1, mp_range=128, window_base="cack")
    x.b.ses.script = dict.fromkeys(range(333, 461), "gtd")
    x.a.send(129)
    for _ in range(128):
        x.b.rx(x.a.sent("REQ"))
    acks = list(x.b.outbox)
    x.b.outbox.clear()
    for ack in acks:
        x.a.rx(ack)
    x.b.rx(x.a.sent("CLEAR_CMD", payload=460))
    x.b.rx(x.a.sent("ACK_REQ", psn=460))
    x.a.rx(x.b.sent("ACK", ack=460, cack=460))
    x.a.sent("REQ", psn=461)


@pytest.mark.parametrize("ctl", range(10, 16))
def test_unsupported_control_packets(ctl: int) -> None:
    """pds.md §13: NACK UNEXP_EVENT with ar = 1, else dropped."""
    x = Ladder()
    x.b.rx_bytes(A, build_control(ctl, 0, 0, 1, 333, IPDCID, TPDCID))
    x.b.sent("NACK", code=NackCode.UNEXP_EVENT, nack_psn=333)
    x.b.rx_bytes(A, build_control(ctl, 0, 0, 0, 333, IPDCID, TPDCID))
    x.b.silent()
    assert x.b.pds.counters.unexpected == 2


def test_ack_of_never_sent_changes_nothing() -> None:
    """pds.md §18 item 35."""
    x = Ladder()
    x.a.send(1)
    x.a.sent("REQ")
    for cack, off in ((334, 0), (332, 2), (331, 0)):
        x.a.rx_bytes(B, build_ack(NextHdr.NONE, 0, 0, 0, off, cack, TPDCID, IPDCID))
    assert x.a.pds.counters.bad_ack == 3
    assert (x.a.pdc.tx.una, x.a.pdc.tx.peer_cack, x.a.ses.responses) == (333, 332, [])
