"""The conformance ladders of pds.md §19 that this engine supports, row by row; numbers are the page's.

Not here yet: L6–L8 and L15 (reads), L14 (secure start), L29 (RUDI).
"""

import pytest

from tests.ladders.ladder import IPDCID, MS, TPDCID, A, B, Ladder, answer
from uetproto.engine import AskClose, Close, Mode, PdcClosed, PdcErrorReason, Preset
from uetproto.engine.messages import build_ack, build_ack_cc, build_made_up_response, build_nack, build_request
from uetproto.engine.states import State
from uetproto.wire.uet_pds import AckReq, CtlType, NackCode, NextHdr

ONE_ACK_PER_TWO = {"ar_on_eom": False, "ack_gen_trigger": 2048, "ack_gen_min_pkt_add": 1024}


def test_l01_terms() -> None:
    """UE 1.0.1 Fig 3-39: no CLEAR_CMD when the response needs no clearing."""
    x = Ladder(forward=6290)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=6290, clear=6289, coff=-1))
    x.a.rx(x.b.sent("ACK", ack=6290, cack=6290, off=0))
    assert x.a.ses.responses == [(0, answer("ok").header)]
    x.wait(10 * MS)
    x.a.silent()


def test_l02_single_packet_not_guaranteed() -> None:
    """UE 1.0.1 Fig 3-75."""
    x = Ladder()
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333, clear=332, coff=-1))
    assert x.b.ses.delivered == [333]
    assert (x.b.pdc.rx.cack, x.b.pdc.rx.stored) == (333, 0)
    ack = x.b.sent("ACK", ack=333, cack=333, off=0)
    assert ack.get("req") != AckReq.CLEAR
    x.a.rx(ack)
    assert x.a.ses.responses == [(0, answer("ok").header)]
    assert x.a.pdc.tx.clear_psn == 333


def test_l03_single_packet_guaranteed() -> None:
    """UE 1.0.1 Fig 3-76; psn 0 in CLEAR_CMD is a choice (pds.md §20 row 8)."""
    x = Ladder()
    x.b.ses.otherwise = "gtd"
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333, clear=332, coff=-1))
    assert x.b.pdc.rx.cack == 332
    x.a.rx(x.b.sent("ACK", ack=333, cack=332, off=1, req=AckReq.CLEAR))
    assert x.a.ses.responses == [(0, answer("gtd").header)]
    assert x.a.pdc.tx.clear_psn == 333
    x.a.silent()
    x.wait(MS)
    x.b.rx(x.a.sent("CLEAR_CMD", payload=333, psn=0))
    assert (x.b.pdc.rx.cack, x.b.pdc.rx.stored) == (333, 0)
    x.b.silent()


def test_l04_two_messages_one_ack_per_two_packets() -> None:
    """UE 1.0.1 Fig 3-77: explicit ACKs above CACK count for CLEAR when contiguous."""
    x = Ladder(**ONE_ACK_PER_TWO)
    x.b.pdc.ack_gen_count = 1024
    x.a.send(4)
    reqs = [x.a.sent("REQ", psn=333 + i, clear=332, coff=-1 - i) for i in range(4)]
    x.b.rx(reqs[1])
    ack334 = x.b.sent("ACK", ack=334, cack=332, off=2)
    x.b.rx(reqs[0])
    x.b.silent()
    assert x.b.pdc.rx.cack == 334
    x.a.rx(ack334)
    assert [index for index, _ in x.a.ses.responses] == [1]
    assert (x.a.pdc.tx.una, x.a.pdc.tx.clear_psn) == (333, 332)
    x.b.rx(reqs[3])
    ack336 = x.b.sent("ACK", ack=336, cack=334, off=2)
    x.b.rx(reqs[2])
    x.b.silent()
    assert x.b.pdc.rx.cack == 336
    x.a.send(2, message_id=2, now=1)
    req337 = x.a.sent("REQ", psn=337, clear=332, coff=-5)
    x.a.rx(ack336)
    assert sorted(index for index, _ in x.a.ses.responses) == [0, 1, 3]
    assert (x.a.pdc.tx.una, x.a.pdc.tx.clear_psn) == (335, 334)
    x.a.release()
    req338 = x.a.sent("REQ", psn=338, clear=334, coff=-4)
    x.b.rx(req337)
    ack337 = x.b.sent("ACK", ack=337, cack=337, off=0)
    x.a.rx(ack337)
    assert len(x.a.ses.responses) == 5
    assert (x.a.pdc.tx.una, x.a.pdc.tx.clear_psn) == (338, 337)
    x.b.rx(req338)
    x.b.silent()
    assert x.b.pdc.rx.cack == 338


def test_l05_guaranteed_message_then_another() -> None:
    """UE 1.0.1 Fig 3-78: each guaranteed response has its own ACK; requests carry the clear."""
    x = Ladder(**ONE_ACK_PER_TWO)
    x.b.ses.script = dict.fromkeys(range(333, 337), "gtd")
    x.a.send(4)
    reqs = [x.a.sent("REQ", psn=333 + i, clear=332, coff=-1 - i) for i in range(4)]
    acks = {}
    for psn, off in ((334, 2), (333, 1), (336, 4), (335, 3)):
        x.b.rx(reqs[psn - 333])
        acks[psn] = x.b.sent("ACK", ack=psn, cack=332, off=off, req=AckReq.CLEAR)
    assert x.b.pdc.rx.stored == 4
    x.a.rx(acks[334])
    x.a.rx(acks[333])
    assert (x.a.pdc.tx.una, x.a.pdc.tx.clear_psn) == (335, 334)
    x.a.send(2, message_id=2, now=1)
    req337 = x.a.sent("REQ", psn=337, clear=334, coff=-3)
    x.a.rx(acks[336])
    x.a.rx(acks[335])
    assert len(x.a.ses.responses) == 4
    assert (x.a.pdc.tx.una, x.a.pdc.tx.clear_psn) == (337, 336)
    x.a.release()
    req338 = x.a.sent("REQ", psn=338, clear=336, coff=-2)
    x.b.rx(req337)
    x.b.silent()
    assert (x.b.pdc.rx.cack, x.b.pdc.rx.stored) == (334, 2)
    x.b.rx(req338)
    assert (x.b.pdc.rx.cack, x.b.pdc.rx.stored) == (338, 0)
    ack = x.b.sent("ACK", ack=338, cack=338, off=0, req=AckReq.NONE)
    x.a.rx(ack)
    assert len(x.a.ses.responses) == 6
    assert x.a.pdc.tx.clear_psn == 338


def test_l09_nack() -> None:
    """UE 1.0.1 Fig 3-82."""
    x = Ladder()
    x.b.ses.script[333] = NackCode.NO_PKT_BUFFER
    x.a.send(1, message_id=14)
    x.b.rx(x.a.sent("REQ", psn=333, clear=332))
    nack = x.b.sent("NACK", code=NackCode.NO_PKT_BUFFER, nack_psn=333)
    assert not x.b.pdc.rx.received(333)
    x.a.rx(nack)
    x.a.silent()
    x.b.ses.script.clear()
    x.wait(MS)
    x.b.rx(x.a.sent("REQ", psn=333, clear=332, coff=-1, retx=1))
    assert x.b.ses.delivered == [333]
    x.b.sent("ACK", ack=333, cack=333, off=0, retx=1)


def test_l09_more_nacks_than_allowed() -> None:
    x = Ladder(max_nack_retx_cnt=2)
    x.b.ses.otherwise = NackCode.NO_PKT_BUFFER
    x.a.send(1)
    for _ in range(3):
        x.b.rx(x.a.sent("REQ", psn=333))
        x.a.rx(x.b.sent("NACK", code=NackCode.NO_PKT_BUFFER))
        x.wait(MS)
    x.a.silent()
    assert [error.reason for _, error in x.a.ses.errors] == [PdcErrorReason.NACK_EXHAUSTED]


def test_l10_request_lost() -> None:
    """UE 1.0.1 Fig 3-83."""
    x = Ladder()
    x.a.send(1, message_id=24)
    x.a.sent("REQ", psn=333)
    x.wait(MS)
    x.b.rx(x.a.sent("REQ", psn=333, clear=332, retx=1))
    x.b.sent("ACK", ack=333, cack=333, off=0, retx=1)


def test_l11_ack_lost() -> None:
    """UE 1.0.1 Fig 3-84."""
    x = Ladder()
    x.a.send(1, message_id=85)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.b.sent("ACK", ack=333, cack=333)
    x.wait(MS)
    x.b.rx(x.a.sent("REQ", psn=333, clear=332, retx=1))
    assert x.b.ses.delivered == [333]
    x.b.sent("ACK", ack=333, cack=333, off=0, retx=1, response=build_made_up_response(0))


def test_l12_establishment() -> None:
    x = Ladder(established=False, forward=100000)
    x.a.send(3)
    reqs = [
        x.a.sent("REQ", syn=1, psn=100000 + i, psn_offset=i, coff=-1 - i, spdcid=IPDCID, ar=int(i == 2))
        for i in range(3)
    ]
    assert x.a.state is State.CREATING
    x.b.rx(reqs[1])
    ack = x.b.sent("ACK", ack=100001, cack=99999, off=2, spdcid=TPDCID, dpdcid=IPDCID)
    assert (x.b.state, x.b.pdc.rx.start) == (State.ESTABLISHED, 100000)
    x.b.rx(reqs[0])
    x.b.silent()
    assert x.b.pdc.rx.cack == 100001
    x.a.rx(ack)
    assert (x.a.state, x.a.pdc.peer_id) == (State.ESTABLISHED, TPDCID)
    assert (x.a.pdc.tx.una, x.a.pdc.tx.clear_psn) == (100000, 99999)
    x.a.send(1, message_id=2)
    req3 = x.a.sent("REQ", psn=100003, syn=0, dpdcid=TPDCID, coff=-4, ar=1)
    x.b.rx(reqs[0])
    x.b.silent()
    assert (x.b.pds.counters.dup_no_retx, len(x.b.pds.pdcs)) == (1, 1)
    x.b.rx(req3)
    ack3 = x.b.sent("ACK", ack=100003, cack=100001, off=2)
    x.b.rx(reqs[2])
    ack2 = x.b.sent("ACK", ack=100002, cack=100003, off=-1)
    x.a.rx(ack3)
    x.a.rx(ack2)
    assert (0, None) in x.a.ses.responses
    assert (x.a.pdc.tx.una, x.a.pdc.tx.clear_psn) == (100004, 100003)


def test_l13_no_resource_at_first_syn() -> None:
    x = Ladder(established=False, forward=100000, b={"max_pdcs": 1})
    other = x.b.pds.open_initiator(peer=99, mode=Mode.RUD, now=0)
    x.b.pds.preset(Preset(pdcid=TPDCID))
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", syn=1, psn=100000))
    nack = x.b.sent("NACK", code=NackCode.NO_PDC_AVAIL, nack_psn=100000, spdcid=0, dpdcid=IPDCID)
    other.free()
    x.a.rx(nack)
    x.wait(MS)
    x.b.rx(x.a.sent("REQ", syn=1, psn=100000, psn_offset=0, retx=1))
    x.b.sent("ACK", ack=100000, cack=100000, off=0, spdcid=TPDCID, retx=1)


def test_l16_lost_clear_cmd() -> None:
    x = Ladder()
    x.b.ses.otherwise = "gtd"
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.a.rx(x.b.sent("ACK", ack=333, cack=332, req=AckReq.CLEAR))
    x.wait(MS)
    x.a.sent("CLEAR_CMD", payload=333)
    x.wait(3 * MS)
    x.a.rx(x.b.sent("CLEAR_REQ", payload=333, psn=0, ar=0))
    x.b.rx(x.a.sent("CLEAR_CMD", payload=333))
    assert x.b.pdc.rx.cack == 333


def test_l16_request_waiting() -> None:
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


def test_l17_guaranteed_ack_lost() -> None:
    x = Ladder()
    x.b.ses.otherwise = "gtd"
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.b.sent("ACK", ack=333, cack=332, req=AckReq.CLEAR)
    x.wait(MS)
    x.b.rx(x.a.sent("REQ", psn=333, clear=332, coff=-1, retx=1))
    assert x.b.ses.delivered == [333]
    ack = x.b.sent("ACK", ack=333, cack=332, off=1, req=AckReq.CLEAR, response=answer("gtd").header, retx=1)
    x.a.rx(ack)
    x.wait(MS)
    x.b.rx(x.a.sent("CLEAR_CMD", payload=333))
    assert x.b.pdc.rx.cack == 333


def test_l18_rod_go_back_n() -> None:
    x = Ladder(Mode.ROD, enb_ack_per_pkt=True)
    x.a.send(4)
    reqs = [x.a.sent("REQ", psn=333 + i, clear=332, coff=-1 - i) for i in range(4)]
    x.b.rx(reqs[0])
    ack = x.b.sent("ACK", ack=333, cack=333, off=0)
    x.b.rx(reqs[2])
    nack335 = x.b.sent("NACK", code=NackCode.ROD_OOO, nack_psn=335, payload=334)
    x.b.rx(reqs[3])
    nack336 = x.b.sent("NACK", code=NackCode.ROD_OOO, nack_psn=336, payload=334)
    x.a.rx(ack)
    assert (x.a.pdc.tx.una, x.a.pdc.tx.clear_psn) == (334, 333)
    x.a.rx(nack335)
    again = [x.a.sent("REQ", psn=334 + i, retx=1, clear=333, coff=-1 - i) for i in range(3)]
    x.a.rx(nack336)
    x.a.silent()
    for i, req in enumerate(again):
        x.b.rx(req)
        x.b.sent("ACK", ack=334 + i, cack=334 + i, off=0, retx=1)
    assert x.b.ses.delivered == [333, 334, 335, 336]


def test_l19_sack_and_ack_req() -> None:
    x = Ladder()
    x.b.ses.script[334] = "gtd"
    x.a.send(4)
    reqs = [x.a.sent("REQ", psn=333 + i, coff=-1 - i, ar=int(i == 3)) for i in range(4)]
    x.b.rx(reqs[1])
    x.b.sent("ACK", ack=334, cack=332, off=2, req=AckReq.CLEAR)
    x.b.rx(reqs[2])
    x.b.silent()
    x.b.rx(reqs[3])
    x.a.rx(x.b.sent("ACK", ack=336, cack=332, off=4, sack_base=332, sack_bitmap=0x1D))
    records = x.a.pdc.tx.records
    assert {psn: record.dst_rcvd for psn, record in records.items()} == {333: False, 334: True, 335: True}
    assert (x.a.pdc.tx.una, x.a.pdc.tx.clear_psn) == (333, 332)
    x.wait(MS)
    req = x.a.sent("REQ", psn=333, retx=1, coff=-1)
    asks = [x.a.sent("ACK_REQ", psn=psn) for psn in (334, 335)]
    x.b.rx(req)
    acks = [x.b.sent("ACK", ack=333, cack=333, off=0, retx=1)]
    x.b.rx(asks[0])
    acks.append(x.b.sent("ACK", ack=334, cack=333, off=1, req=AckReq.CLEAR, response=answer("gtd").header))
    x.b.rx(asks[1])
    acks.append(x.b.sent("ACK", ack=335, cack=333, off=2, response=build_made_up_response(1)))
    for ack in acks:
        x.a.rx(ack)
    assert (x.a.pdc.tx.una, x.a.pdc.tx.clear_psn) == (337, 336)
    x.wait(MS)
    x.b.rx(x.a.sent("CLEAR_CMD", payload=336))
    assert x.b.pdc.rx.cack == 336


def test_l20_psn_wrap() -> None:
    x = Ladder(forward=0xFFFFFFFE)
    x.a.send(3)
    x.a.send(1, message_id=2)
    reqs = [x.a.sent("REQ", psn=(0xFFFFFFFE + i) & 0xFFFFFFFF, coff=-1 - i, ar=int(i > 1)) for i in range(4)]
    x.b.rx(reqs[2])
    ack0 = x.b.sent("ACK", ack=0, cack=0xFFFFFFFD, off=3)
    x.b.rx(reqs[0])
    x.b.rx(reqs[1])
    x.b.silent()
    assert x.b.pdc.rx.cack == 0
    x.b.rx(reqs[3])
    x.a.rx(ack0)
    x.a.rx(x.b.sent("ACK", ack=1, cack=1, off=0))
    assert x.a.pdc.tx.clear_psn == 1
    x.a.send(1, message_id=3)
    x.a.sent("REQ", psn=2, coff=-1)


def test_l21_late_retransmission() -> None:
    x = Ladder()
    x.a.send(4)
    reqs = [x.a.sent("REQ") for _ in range(4)]
    for req in reqs:
        x.b.rx(req)
    x.a.rx(x.b.sent("ACK", ack=336, cack=336))
    responses = list(x.a.ses.responses)
    x.b.rx(reqs[1], retx=True)
    ack = x.b.sent("ACK", ack=334, cack=336, off=-2, response=build_made_up_response(0), retx=1)
    x.a.rx(ack)
    assert x.a.ses.responses == responses
    assert x.a.pdc.tx.peer_cack == 336


def test_l22_trimming() -> None:
    x = Ladder(enb_ack_per_pkt=True)
    x.a.send(2)
    reqs = [x.a.sent("REQ", psn=333 + i) for i in range(2)]
    x.b.rx(reqs[0])
    ack = x.b.sent("ACK", ack=333, cack=333)
    x.b.rx(reqs[1], trimmed=True)
    nack = x.b.sent("NACK", code=NackCode.TRIMMED, nack_psn=334)
    assert x.b.pdc.rx.cack == 333
    x.a.rx(ack)
    x.a.rx(nack)
    x.b.rx(x.a.sent("REQ", psn=334, clear=333, coff=-1, retx=1))
    x.b.sent("ACK", ack=334, cack=334, off=0, retx=1)


def test_l23_rto_exhaustion() -> None:
    x = Ladder()
    x.a.send(2)
    for psn in (333, 334):
        x.a.sent("REQ", psn=psn, retx=0)
    for at in (1, 3, 7, 15, 31):
        x.wait(at * MS - x.now - 1)
        x.a.silent()
        x.wait(1)
        for psn in (333, 334):
            x.a.sent("REQ", psn=psn, retx=1)
    x.wait(32 * MS - 1)
    assert not x.a.ses.errors
    x.wait(1)
    assert [(index, error.reason) for index, error in x.a.ses.errors] == [
        (0, PdcErrorReason.RTO_EXHAUSTED), (1, PdcErrorReason.RTO_EXHAUSTED),
    ]  # fmt: skip
    assert (x.a.state, x.a.pds.counters.pdc_close_in_err) == (State.CLOSED, 1)
    assert x.a.pds.deadline() is None
    x.wait(1000 * MS)
    x.a.silent()


def _ack_cc(cack: int, mpr: int) -> bytes:
    return build_ack_cc(NextHdr.NONE, 0, 0, 0, 0, cack, TPDCID, IPDCID, mpr, 0, 0)


def test_l24_mpr_at_the_source() -> None:
    x = Ladder(forward=1000, default_mpr=8)
    x.a.send(2000)
    assert [x.a.sent("REQ").get("psn") for _ in range(1024)] == list(range(1000, 2024))
    x.a.silent()
    x.a.rx_bytes(B, _ack_cc(1500, 1))
    x.a.silent()
    x.a.rx_bytes(B, _ack_cc(1950, 1))
    assert [sent.get("psn") for sent in x.a.outbox] == list(range(2024, 2079))
    x.a.outbox.clear()
    x.a.rx_bytes(B, _ack_cc(1400, 8))
    x.a.silent()


def test_l24_mpr_at_the_destination() -> None:
    x = Ladder(forward=1951, mp_range=128)

    def request(psn: int) -> bytes:
        return build_request(Mode.RUD, NextHdr.REQUEST_STD, 0, 0, 1950 - psn, psn, IPDCID, TPDCID) + bytes(44)

    x.b.rx_bytes(A, request(2078))
    x.b.silent()
    assert x.b.ses.delivered == [2078]
    x.b.rx_bytes(A, request(2079))
    x.b.sent("NACK", code=NackCode.PSN_OOR_WINDOW, nack_psn=2079)
    assert x.b.ses.delivered == [2078]


def test_l25_normal_close() -> None:
    x = Ladder(forward=339)
    x.a.submit(Close(peer=B))
    x.b.rx(x.a.sent("CLOSE_CMD", psn=339, ar=1))
    x.a.rx(x.b.sent("ACK", ack=339, cack=339, off=0, next_hdr=NextHdr.NONE))
    assert (x.a.state, x.b.state) == (State.CLOSED, State.CLOSED)
    assert [event.error for event in x.a.pds.events() if isinstance(event, PdcClosed)] == [None]


def test_l25_close_clears() -> None:
    x = Ladder(forward=338)
    x.b.ses.otherwise = "gtd"
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=338))
    x.a.rx(x.b.sent("ACK", ack=338, cack=337, req=AckReq.CLEAR))
    x.a.submit(Close(peer=B))
    x.b.rx(x.a.sent("CLOSE_CMD", psn=339))
    x.b.sent("ACK", ack=339, cack=339, off=0, next_hdr=NextHdr.NONE)
    assert x.b.pdc.rx.stored == 0


def test_l26_target_requested_close() -> None:
    x = Ladder(forward=338, back=51)
    x.a.send(2, now=1)
    x.b.rx(x.a.sent("REQ", psn=338))  # the open message
    x.b.submit(AskClose(pdcid=TPDCID))
    close_req = x.b.sent("CLOSE_REQ", psn=51, ar=1)
    assert x.b.state is State.QUIESCE
    x.a.rx(close_req)
    x.b.rx(x.a.sent("ACK", ack=51, cack=51, off=0, next_hdr=NextHdr.NONE))
    assert x.a.state is State.QUIESCE
    x.a.release()
    x.b.rx(x.a.sent("REQ", psn=339, ar=1))
    assert x.a.state is State.ACK_WAIT
    x.a.rx(x.b.sent("ACK", ack=339, cack=339))
    assert x.a.state is State.CLOSE_ACK_WAIT
    x.b.rx(x.a.sent("CLOSE_CMD", psn=340, ar=1))
    x.a.rx(x.b.sent("ACK", ack=340, cack=340, off=0, next_hdr=NextHdr.NONE))
    assert (x.a.state, x.b.state) == (State.CLOSED, State.CLOSED)


@pytest.mark.parametrize("tombstone", [True, False])
def test_l27_closing_ack_lost(tombstone: bool) -> None:
    x = Ladder(forward=339, b={} if tombstone else {"msl": 0})
    x.a.submit(Close(peer=B))
    x.b.rx(x.a.sent("CLOSE_CMD", psn=339, retx=0))
    x.b.sent("ACK", ack=339, cack=339)
    x.wait(MS)
    x.b.rx(x.a.sent("CLOSE_CMD", psn=339, retx=1))
    if tombstone:
        x.a.rx(x.b.sent("ACK", ack=339, cack=339, retx=1))
    else:
        x.a.rx(x.b.sent("NACK", code=NackCode.INV_DPDCID, nack_psn=339, spdcid=0))
    assert x.a.state is State.CLOSED
    assert [event.error for event in x.a.pds.events() if isinstance(event, PdcClosed)] == [None]


def test_l28_fatal_nack() -> None:
    x = Ladder()
    x.a.send(3)
    for _ in range(3):
        x.a.sent("REQ")
    x.a.rx_bytes(B, build_ack_cc(NextHdr.NONE, 0, 0, 0, 3, 332, TPDCID, IPDCID, 8, 2, 1))  # acks 335, SACK 334
    x.a.send(1, message_id=2)
    x.a.sent("REQ", psn=336)
    x.a.rx_bytes(B, build_nack(NackCode.INV_DPDCID, 0, 0, 336, 0, IPDCID))
    assert [index for index, _ in x.a.ses.errors] == [0, 1, 0]
    assert all(error.retryable and error.code == NackCode.INV_DPDCID for _, error in x.a.ses.errors)
    assert [index for index, _ in x.a.ses.responses] == [2]
    assert x.a.state is State.CLOSED


@pytest.mark.parametrize("with_request", [True, False])
def test_l30_guaranteed_responses_and_a_full_window(with_request: bool) -> None:
    x = Ladder(default_mpr=1, mp_range=128)
    x.b.ses.script = dict.fromkeys(range(333, 461), "gtd")
    x.a.send(128)
    if with_request:
        x.a.send(1, message_id=2)
    reqs = [x.a.sent("REQ", psn=psn, clear=332) for psn in range(333, 461)]
    x.a.silent()
    x.a.held = True
    for off, req in enumerate(reqs, 1):
        x.b.rx(req)
        x.a.rx(x.b.sent("ACK", cack=332, off=off, req=AckReq.CLEAR))
    tx = x.a.pdc.tx
    assert (tx.una, tx.clear_psn, tx.peer_cack) == (461, 460, 332)
    x.a.release()
    if with_request:
        x.b.rx(x.a.sent("REQ", psn=461, clear=460, coff=-1))
        assert x.b.ses.delivered[-1] == 461
        assert (x.b.pdc.rx.max_clear, x.b.pdc.rx.stored) == (460, 0)
    else:
        x.wait(MS)
        x.b.rx(x.a.sent("CLEAR_CMD", payload=460))
        assert x.b.pdc.rx.cack == 460


# Rules beside the ladders --------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("ctl", [CtlType.PROBE, CtlType.NEGOTIATION, CtlType.CREDIT_REQ])
def test_unsupported_control_packets(ctl: CtlType) -> None:
    """pds.md §13: NACK UNEXP_EVENT with ar = 1, else dropped."""
    from uetproto.engine.messages import build_control

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
