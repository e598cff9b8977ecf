# SPDX-License-Identifier: GPL-2.0-only
"""Receive validation, row by row (pds.md §6.3), and what its NACKs carry."""

import pytest

from tests.support.ladders.ladder import IPDCID, TPDCID, A, Ladder
from tests.support.pds.headers import (
    build_ack,
    build_control,
    build_nack,
    build_request,
    build_syn_control,
    build_syn_request,
)
from uetproto.engine import Mode
from uetproto.engine.pds.states import State
from uetproto.wire.headers.uet_pds import CtlType, NackCode, NextHdr

STD = NextHdr.REQUEST_STD
SES = bytes(44)


def request(mode: Mode = Mode.RUD, psn: int = 333, spdcid: int = IPDCID, dpdcid: int = TPDCID) -> bytes:
    return build_request(mode, STD, 0, 0, -1, psn, spdcid, dpdcid) + SES


def syn(psn: int, psn_offset: int, spdcid: int = IPDCID, mode: Mode = Mode.RUD) -> bytes:
    return build_syn_request(mode, STD, 0, 0, -1, psn, spdcid, psn_offset) + SES


@pytest.mark.parametrize(
    ("source", "data", "code", "spdcid"),
    [
        (A, request(dpdcid=99), NackCode.INV_DPDCID, 0),  # row 11
        (A + 1, request(), NackCode.PDC_HDR_MISMATCH, 0),  # row 12
        (A, request(spdcid=8), NackCode.PDC_HDR_MISMATCH, 0),
        (A, build_control(CtlType.NOOP, 0, 0, 1, 333, 8, TPDCID), NackCode.PDC_HDR_MISMATCH, 0),
        (A, request(Mode.ROD), NackCode.PDC_MODE_MISMATCH, TPDCID),  # row 13
        (A, build_control(CtlType.NOOP, 1, 0, 1, 333, IPDCID, TPDCID), NackCode.PDC_MODE_MISMATCH, TPDCID),
        (A, syn(334, 5), NackCode.INVALID_SYN, TPDCID),  # row 9
        (A, build_syn_control(CtlType.NOOP, 0, 0, 1, 334, IPDCID, 5), NackCode.INVALID_SYN, TPDCID),
        (A, build_syn_control(CtlType.NOOP, 0, 0, 1, 0, IPDCID, 5), NackCode.INVALID_SYN, TPDCID),  # PSN 0 is one, too
        (A, build_control(CtlType.CLOSE_REQ, 0, 0, 1, 333, IPDCID, TPDCID), NackCode.UNEXP_EVENT, TPDCID),  # row 14
        (A, request(psn=333 + 1024), NackCode.PSN_OOR_WINDOW, TPDCID),  # row 15
    ],
)  # fmt: skip
def test_nacks_of_a_target(source: int, data: bytes, code: NackCode, spdcid: int) -> None:
    x = Ladder()
    x.b.rx_bytes(source, data)
    x.b.sent("NACK", code=code, spdcid=spdcid)
    x.b.silent()
    assert x.b.ses.delivered == []
    assert x.b.pdc.rx.cack == 332


def test_syn_to_an_initiator() -> None:
    """Row 10."""
    x = Ladder()
    x.a.rx_bytes(x.b.pds.address, syn(48, 0, TPDCID))
    x.a.sent("NACK", code=NackCode.INVALID_SYN)


@pytest.mark.parametrize("data", [
    b"", b"\x10", b"\xf8" + bytes(60), request()[:55], build_ack(STD, 0, 0, 0, 0, 333, TPDCID, IPDCID),
    build_request(Mode.RUD, NextHdr.RESPONSE, 0, 0, -1, 333, IPDCID, TPDCID) + SES,
    build_nack(NackCode.TRIMMED, 0, 0, 0, 0, 0)[:15], build_control(CtlType.NOOP, 0, 0, 1, 333, IPDCID, TPDCID)[:15],
])  # fmt: skip
def test_undecodable(data: bytes) -> None:
    """Row 1: dropped, counted."""
    x = Ladder()
    x.b.rx_bytes(A, data)
    x.b.silent()
    assert x.b.pds.counters.undecodable == 1


def test_strangers_acks_are_dropped() -> None:
    """Row 3: address and spdcid must fit."""
    x = Ladder()
    x.a.send(1)
    x.a.sent("REQ")
    for source, spdcid in ((A + 5, TPDCID), (x.b.pds.address, 99), (x.b.pds.address, 0)):
        x.a.rx_bytes(source, build_ack(NextHdr.NONE, 0, 0, 0, 0, 333, spdcid, IPDCID))
        x.a.rx_bytes(source + (spdcid == 0), build_nack(NackCode.INV_DPDCID, 0, 0, 333, spdcid, IPDCID))
    assert (x.a.pds.counters.bad_ack, x.a.pds.counters.bad_nack) == (3, 3)
    assert x.a.state is State.ESTABLISHED


def test_no_storage_for_a_guaranteed_response() -> None:
    """Row 16, pds.md §9.2: not delivered, PSN not marked, its CLEAR applied."""
    x = Ladder(max_gtd_del=1)
    x.b.ses.otherwise = "gtd"
    x.a.send(2)
    first, second = x.a.sent("REQ"), x.a.sent("REQ")
    x.b.rx(first)
    x.b.sent("ACK")
    x.b.rx(second)
    x.b.sent("NACK", code=NackCode.NO_GTD_DEL_AVAIL, nack_psn=334)
    assert x.b.ses.delivered == [333]
    x.b.rx_bytes(A, build_request(Mode.RUD, STD, 1, 1, -1, 334, IPDCID, TPDCID) + SES)
    x.b.sent("ACK", ack=334, cack=333)
    assert x.b.ses.delivered == [333, 334]


def test_noop_opens_a_pdc() -> None:
    """pds.md §13: an early PDC; acknowledged without a SES response; ROD by isrod."""
    x = Ladder(Mode.ROD, established=False)
    x.b.rx_bytes(A, build_syn_control(CtlType.NOOP, 1, 0, 1, 500, 7, 0))
    x.b.sent("ACK", ack=500, cack=500, next_hdr=NextHdr.NONE, spdcid=TPDCID)
    x.b.rx_bytes(A, syn(501, 1, mode=Mode.ROD))
    assert x.b.ses.delivered == [501]


def test_trimmed_packets() -> None:
    """pds.md §14: a trimmed SYN creates nothing; a trimmed duplicate with retx is answered; after a ROD gap ROD_OOO."""
    x = Ladder(Mode.ROD, enb_ack_per_pkt=True)
    x.a.send(3)
    reqs = [x.a.sent("REQ") for _ in range(3)]
    x.b.rx(reqs[1], trimmed=True)
    x.b.sent("NACK", code=NackCode.ROD_OOO, payload=333)
    x.b.rx(reqs[0])
    x.b.sent("ACK")
    x.b.rx(reqs[0], trimmed=True)
    x.b.silent()
    x.b.rx(reqs[0], trimmed=True, retx=True)
    x.b.sent("ACK", ack=333, cack=333, retx=1)
    new = Ladder(established=False)
    new.a.send(1)
    new.b.rx(new.a.sent("REQ"), trimmed=True)
    new.b.silent()
    assert new.b.pds.counters.trimmed_rx == 1


def test_requests_after_close_cmd() -> None:
    """pds.md §6.5 ACK_WAIT: newer than close_psn is NACK CLOSING; below it is still taken (the target drains)."""
    x = Ladder()
    x.b.rx_bytes(A, build_control(CtlType.CLOSE_CMD, 0, 0, 1, 335, IPDCID, TPDCID))
    assert x.b.state is State.ACK_WAIT
    x.b.rx_bytes(A, request(psn=336))
    x.b.sent("NACK", code=NackCode.CLOSING, nack_psn=336)
    x.b.rx_bytes(A, request(psn=333))
    x.b.silent()
    x.b.rx_bytes(A, request(psn=334))
    x.b.sent("ACK", ack=335, cack=335, next_hdr=NextHdr.NONE)
    assert x.b.ses.delivered == [333, 334]


def test_clear_of_what_was_not_answered_is_ignored() -> None:
    """pds.md §9.3, §20 row 33."""
    x = Ladder()
    x.b.ses.otherwise = "later"
    x.b.rx_bytes(A, request())
    x.b.rx_bytes(A, build_control(CtlType.CLEAR_CMD, 0, 0, 0, 0, IPDCID, TPDCID, 333))
    x.b.rx_bytes(A, build_control(CtlType.CLEAR_CMD, 0, 0, 0, 0, IPDCID, TPDCID, 333 + 5000))
    assert x.b.pds.counters.bad_clear == 2
    assert x.b.pdc.rx.max_clear == 332


@pytest.mark.parametrize("code", [NackCode.PKT_NOT_RCVD, NackCode.ACK_WITH_DATA])
def test_what_was_reported_received_was_not(code: NackCode) -> None:
    """pds.md §12: 0x12 and 0x14 take dst_rcvd back, the packet is sent again."""
    x = Ladder()
    x.a.send(1)
    x.a.sent("REQ")
    x.a.rx_bytes(x.b.pds.address, build_nack(NackCode.RCVD_SES_PROCG, 0, 0, 333, TPDCID, IPDCID))
    assert x.a.pdc.tx.records[333].dst_rcvd
    x.a.silent()
    x.a.rx_bytes(x.b.pds.address, build_nack(code, 0, 0, 333, TPDCID, IPDCID))
    x.a.sent("REQ", psn=333, retx=1)


def test_a_refusal_of_what_waits_already_is_ignored() -> None:
    """pds.md §11.2: a second NACK changes nothing; SACK cancels the scheduled retransmission."""
    x = Ladder(max_nack_retx_cnt=1)
    x.a.send(1)
    x.a.sent("REQ")
    for _ in range(3):
        x.a.rx_bytes(x.b.pds.address, build_nack(NackCode.NO_RESOURCE, 0, 0, 333, TPDCID, IPDCID))
    assert x.a.pdc.tx.records[333].nack_cnt == 1
    x.a.rx_bytes(x.b.pds.address, build_nack(NackCode.RCVD_SES_PROCG, 0, 0, 333, TPDCID, IPDCID))
    x.wait(1_000_000_000)
    x.a.sent("ACK_REQ", psn=333)
