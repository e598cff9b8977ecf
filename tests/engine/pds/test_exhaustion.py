# SPDX-License-Identifier: GPL-2.0-only
"""What runs short, and what is repeated: PDCs, buffers, windows, lost packets, clears (pds.md §6.1, §7, §9, §11)."""

import random
from typing import Any

import pytest

from tests.support.ladders.ladder import IPDCID, MS, TPDCID, A, B, Ladder, ScriptedMessage, ScriptedSes, answer
from tests.support.pds.control_and_reads import syn
from tests.support.pds.headers import build_ack, build_ack_cc, build_control, build_syn_control
from uetproto.engine import Mode, Pds, PdsConfig, Preset
from uetproto.engine.contract import Close, Noop, PdcErrorReason, Probe, Probed
from uetproto.engine.pds.messages import Rudi
from uetproto.engine.pds.states import State
from uetproto.wire.headers.uet_pds import CtlType, NackCode, NextHdr

C = B + 1
SECOND = 1000 * MS


def message(message_id: int, peer: int = B, mode: Mode = Mode.RUD, **fields: Any) -> ScriptedMessage:
    made = ScriptedMessage(1, mode, message_id, peer)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


# Messages that wait for a PDC, pds.md §6.1 ---------------------------------------------------------------------------


def occupied(mode: Mode, **config: Any) -> Ladder:
    """A may open one PDC, and has one to B."""
    x = Ladder(mode, established=False, max_pdcs=1, close_thresh=0, rto_init_time=SECOND, **config)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ"))
    x.a.rx(x.b.sent("ACK"))
    return x


def leave(x: Ladder) -> None:
    """The PDC to B closes."""
    x.a.submit(Close(peer=B))
    x.b.rx(x.a.sent("CLOSE_CMD"))
    x.a.rx(x.b.sent("ACK"))


def test_messages_that_wait_share_the_pdc_of_their_key() -> None:
    """pds.md §3, §6.1: in order of submission, and none gives up once its PDC is open."""
    x = occupied(Mode.ROD)
    for message_id in (11, 12):
        x.a.pds.send(message(message_id, C, Mode.ROD), x.now)
    x.a.poll()
    x.a.silent()
    leave(x)
    x.a.pds.send(message(13, C, Mode.ROD), x.now)
    x.a.poll()
    assert [bytes(x.a.sent("REQ").packet.payload) for _ in range(3)] == [b"11.0", b"12.0", b"13.0"]
    x.wait(200 * MS)
    assert x.a.ses.errors == []


def test_a_message_that_waits_for_the_other_pool_blocks_none() -> None:
    """pds.md §6.1: a reserved PDC is awaited apart, until Pend_Timeout."""
    x = occupied(Mode.RUD, reserved_pdcs=0)
    x.a.pds.send(message(11, C, reserved=True), x.now)
    x.a.pds.send(message(12, C), x.now)
    leave(x)
    assert x.a.sent("REQ", syn=1, reserved=0).packet.payload == b"12.0"
    x.wait(100 * MS)
    x.a.silent()
    assert [error.reason for _, error in x.a.ses.errors] == [PdcErrorReason.PEND_TIMEOUT]


def test_a_message_that_waits_for_a_reserved_pdc_closes_no_other() -> None:
    """pds.md §6.1: neither at once, nor when another PDC becomes idle."""
    x = Ladder(established=False, max_pdcs=1, close_thresh=1, reserved_pdcs=0, rto_init_time=SECOND)
    x.a.send(1)
    request = x.a.sent("REQ")
    x.a.pds.send(message(11, C, reserved=True), x.now)
    x.b.rx(request)
    x.a.rx(x.b.sent("ACK"))
    x.a.pds.send(message(12, C, reserved=True), x.now)
    x.wait(MS)
    x.a.silent()
    x.a.pds.send(message(13, C), x.now)
    x.a.poll()
    x.a.sent("CLOSE_CMD")


# Pools, pds.md §6.1, §6.3 row 6 --------------------------------------------------------------------------------------


def test_close_thresh_spares_a_locked_pdc() -> None:
    """pds.md §4 `lock_pdc`, §6.1: the one that is locked rested longest; the other one closes."""
    x = Ladder(established=False, max_pdcs=3, close_thresh=1)
    x.a.pds.pool.presets.clear()
    for context, lock in ((1, True), (2, False)):
        x.b.rx(syn(x, context=context, lock=lock))
        x.a.rx(x.b.sent("ACK"))
        x.now += MS
    x.a.pds.send(message(3, context=3), x.now)
    x.a.poll()
    assert sorted((sent.kind, sent.get("spdcid")) for sent in x.a.outbox) == [("CLOSE_CMD", 2), ("REQ", 3)]


def test_close_thresh_spares_a_reserved_pdc() -> None:
    """pds.md §6.1: its end would make no room in the normal pool."""
    x = Ladder(established=False, max_pdcs=1, reserved_pdcs=1, close_thresh=1)
    x.b.rx(syn(x, reserved=True))
    x.a.rx(x.b.sent("ACK"))
    x.now += MS
    syn(x)
    x.a.silent()


def test_reserved_and_plain_messages_never_share_a_pdc() -> None:
    """pds.md §1 use_rsv_pdc, §6.1."""
    x = Ladder(established=False)
    used = [syn(x, reserved=reserved).get("spdcid") for reserved in (False, True, False, True)]
    assert used == [IPDCID, 1, IPDCID, 1]


def noop(x: Ladder, peer: int, spdcid: int) -> None:
    """A NOOP of `peer` that opens a PDC arrives at B."""
    x.b.rx_bytes(peer, build_syn_control(CtlType.NOOP, 0, 0, 1, 500, spdcid, 0))


def close(x: Ladder, peer: int, spdcid: int, dpdcid: int) -> None:
    """The same PDC is closed."""
    x.b.rx_bytes(peer, build_control(CtlType.CLOSE_CMD, 0, 0, 1, 501, spdcid, dpdcid))
    x.b.sent("ACK", ack=501)


def test_pdcs_of_a_peer_share_its_ccc() -> None:
    """pds.md §12 NO_CCC_AVAIL: it is free again when the last PDC of its peer is closed."""
    x = Ladder(established=False, b={"max_cccs": 1})
    opened: list[int] = []
    for spdcid in (7, 8):
        noop(x, A, spdcid)
        opened.append(x.b.sent("ACK", ack=500).get("spdcid"))
    for spdcid, dpdcid in zip((7, 8), opened, strict=True):
        noop(x, C, 7)
        x.b.sent("NACK", code=NackCode.NO_CCC_AVAIL, spdcid=0)
        close(x, A, spdcid, dpdcid)
    noop(x, C, 7)
    x.b.sent("ACK", ack=500)


def test_a_bitmap_is_released() -> None:
    """pds.md §12 NO_BITMAP: one a PDC of which this end is the target, until it closes."""
    x = Ladder(established=False, b={"max_bitmaps": 1})
    noop(x, A, 7)
    opened = x.b.sent("ACK", ack=500)
    noop(x, A, 8)
    x.b.sent("NACK", code=NackCode.NO_BITMAP, spdcid=0)
    close(x, A, 7, opened.get("spdcid"))
    x.wait(2 * SECOND)
    noop(x, A, 7)
    x.b.sent("ACK", ack=500)


# ROD after a gap, pds.md §11.3, §20 row 3 ----------------------------------------------------------------------------


def test_the_last_buffer_is_for_the_missing_packet() -> None:
    """pds.md §6.3 row 16, §12 NO_PKT_BUFFER: what waits behind a gap never keeps out what closes it."""
    x = Ladder(Mode.ROD, rod_gap="reorder", b={"max_packet_buffers": 2})
    x.a.send(3)
    reqs = [x.a.sent("REQ", psn=333 + i) for i in range(3)]
    x.b.rx(reqs[1])
    x.b.silent()
    x.b.rx(reqs[2])
    x.b.sent("NACK", code=NackCode.NO_PKT_BUFFER, nack_psn=335)
    assert not x.b.pdc.rx.received(335)
    x.b.rx(reqs[0])
    assert x.b.ses.delivered == [333, 334]
    x.b.rx(reqs[2])
    assert x.b.ses.delivered == [333, 334, 335]


def test_a_noop_closes_a_gap() -> None:
    """pds.md §13, §20 row 3: the request that waited behind it is delivered."""
    x = Ladder(Mode.ROD, rod_gap="reorder")
    x.a.submit(Noop(peer=B, mode=Mode.ROD))
    x.a.send(1)
    noop, request = x.a.sent("NOOP", psn=333), x.a.sent("REQ", psn=334)
    x.b.rx(request)
    x.b.silent()
    x.b.rx(noop)
    assert x.b.ses.delivered == [334]
    assert [x.b.sent("ACK").get("ack") for _ in range(2)] == [333, 334]


def test_a_selective_source_goes_back_for_a_peer_that_discards() -> None:
    """pds.md §11.3, observed.md `rod_recovery`: ROD_OOO says that all from the expected PSN on is gone."""
    x = Ladder(Mode.ROD, rod_recovery="selective", b={"rod_recovery": "go_back_n"})
    x.a.send(3)
    reqs = [x.a.sent("REQ", psn=333 + i) for i in range(3)]
    x.b.rx(reqs[1])
    x.a.rx(x.b.sent("NACK", code=NackCode.ROD_OOO, nack_psn=334, payload=333))
    assert [x.a.sent("REQ", retx=1).get("psn") for _ in range(3)] == [333, 334, 335]
    x.a.silent()


# The literal window, pds.md §7.1, §20 row 34 -------------------------------------------------------------------------


def full() -> Ladder:
    """All 128 PSNs of A's window are used and acknowledged, none is cleared; A is held."""
    x = Ladder(default_mpr=1, window_base="cack", b={"mp_range": 128})
    x.b.ses.otherwise = "gtd"
    x.a.send(128)
    for _ in range(128):
        x.b.rx(x.a.sent("REQ"))
    for _ in range(128):
        x.a.rx(x.b.sent("ACK", cack=332))
    x.a.silent()
    x.a.held = True
    return x


@pytest.mark.parametrize("kind", ["NOOP", "REQ"])
def test_a_full_literal_window_asks_for_cack(kind: str) -> None:
    """pds.md §7.1: by CLEAR_CMD and ACK_REQ, for a NOOP too; what may send nothing asks nothing."""
    x = full()
    if kind == "NOOP":
        x.a.pds.submit(Noop(peer=B, mode=Mode.RUD), x.now)
    else:
        x.a.pds.send(message(2), x.now)
    for _ in range(3):
        x.a.poll()
    x.a.silent()
    x.a.release()
    x.b.rx(x.a.sent("CLEAR_CMD", payload=460))
    x.b.rx(x.a.sent("ACK_REQ", psn=460))
    x.a.silent()
    x.a.rx(x.b.sent("ACK", ack=460, cack=460))
    x.a.sent(kind, psn=461)


def test_a_full_literal_window_ends_with_the_peer() -> None:
    """pds.md §7.1, §11.1: nobody answers; what waits gets its error as if it had been sent, after 63 ms."""
    x = full()
    x.a.pds.send(message(2), x.now)
    x.a.release()
    x.wait(63 * MS - 1)
    assert (x.a.state, x.a.ses.errors) == (State.ESTABLISHED, [])
    x.wait(1)
    assert not x.a.pds.pdcs
    assert [error.reason for _, error in x.a.ses.errors] == [PdcErrorReason.RTO_EXHAUSTED]


# Probes and inferred loss, pds.md §11.4, §13 -------------------------------------------------------------------------


def test_a_probe_follows_what_was_sent_in_creating() -> None:
    """pds.md §11.4: the first ACK starts Tail_Loss_Time for all that left before it."""
    x = Ladder(established=False, inferred_loss="probe", rto_init_time=SECOND)
    x.a.send(3)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.a.outbox.clear()
    x.a.rx(x.b.sent("ACK", ack=333))
    x.wait(MS - 1)
    x.a.silent()
    x.wait(1)
    x.a.sent("PROBE", psn=335, payload=334)


def test_the_answer_to_a_probe_is_an_ack() -> None:
    """pds.md §8.3: as any other it starts the count to ACK_Gen_Trigger anew."""
    x = Ladder(ar_on_eom=False, ack_gen_trigger=2048)
    x.a.send(3)
    reqs = [x.a.sent("REQ") for _ in range(3)]
    x.b.rx(reqs[0])
    x.a.submit(Probe(pdcid=IPDCID))
    x.b.rx(x.a.sent("PROBE"))
    x.b.sent("ACK", cack=333)
    x.b.rx(reqs[1])
    x.b.silent()
    x.b.rx(reqs[2])
    x.b.sent("ACK", ack=335)


def test_only_the_answer_to_the_probe_is_one() -> None:
    """pds.md §7.2, §20 row 25: the opaque must be that of the PROBE."""
    x = Ladder()
    x.a.submit(Probe(pdcid=IPDCID))
    opaque = x.a.sent("PROBE").get("opaque")
    x.now += 7
    for said, expected in ((opaque ^ 1, []), (opaque, [Probed(B, IPDCID, 7)]), (opaque, [])):
        signed = (said ^ 0x8000) - 0x8000
        x.a.pds.events()
        x.a.rx_bytes(B, build_ack(NextHdr.NONE, 0, 0, 0, signed, 332, TPDCID, IPDCID, probe=1))
        assert x.a.pds.events() == expected


def test_the_base_that_a_probe_asks_for_must_be_near() -> None:
    """pds.md §8.5, §13: a SACK base has a 16-bit offset from CACK; one beyond is replaced."""
    x = Ladder()
    for payload, base in ((332 + 0x9000, 332), (332 + 0x7FFF, 332 + 0x7FFF), (332 - 0x9000, 332)):
        x.b.rx_bytes(A, build_control(CtlType.PROBE, 0, 0, 1, 332, IPDCID, TPDCID, payload & 0xFFFFFFFF, 5))
        x.b.sent("ACK", probe_opaque=5, cack=332, sack_base=base)


def test_a_probe_with_objects() -> None:
    """pds.md §13: the opaque travels in the objects as it does in bytes."""
    numbers = {"forward_next": 333, "return_next": 48}
    a, b = (Pds(at, PdsConfig(idle_time=0), random.Random(1), ScriptedSes(), objects=True) for at in (A, B))
    a.adopt(B, Mode.RUD, True, Preset(pdcid=IPDCID, peer_pdcid=TPDCID, **numbers))
    b.adopt(A, Mode.RUD, False, Preset(pdcid=TPDCID, peer_pdcid=IPDCID, **numbers))
    a.events()
    a.submit(Probe(pdcid=IPDCID), 0)
    (probe,) = a.poll(0)
    b.receive(probe, 5)
    (reply,) = b.poll(5)
    a.receive(reply, 9)
    assert a.events() == [Probed(B, IPDCID, 9)]


def test_only_what_the_bitmap_covers_is_lost() -> None:
    """pds.md §11.4: of a tail longer than 64 packets the answer to a PROBE tells no more."""
    x = Ladder(inferred_loss="probe", rto_init_time=SECOND)
    x.a.send(100)
    x.a.outbox.clear()
    x.wait(MS)
    x.b.rx(x.a.sent("PROBE", psn=432, payload=333))
    x.a.rx(x.b.sent("ACK", cack=332, sack_base=333, sack_bitmap=0))
    assert [x.a.sent("REQ", retx=1).get("psn") for _ in range(64)] == list(range(333, 333 + 64))
    x.a.silent()


def test_probes_have_a_limit() -> None:
    """pds.md §17 Max_Tail_Loss_Retx: a dead network gets so many, then the RTO has the word."""
    x = Ladder(inferred_loss="probe", max_tail_loss_retx=2, rto_init_time=SECOND)
    x.a.send(1)
    x.a.sent("REQ")
    x.wait(SECOND - 1)
    for _ in range(2):
        x.a.sent("PROBE", psn=333)
    x.a.silent()


def test_answers_to_probes_renew_no_probes() -> None:
    """pds.md §17 Max_Tail_Loss_Retx: the answer says that the packet is missing, time after time; the RTO is far away.

    A new packet that is acknowledged renews them.
    """
    x = Ladder(inferred_loss="probe", max_tail_loss_retx=2, rto_init_time=SECOND)
    x.a.send(1)
    x.a.sent("REQ", psn=333)

    def probes() -> int:
        count = 0
        for _ in range(9):
            x.wait(MS)
            while x.a.outbox:
                sent = x.a.outbox.pop(0)
                if sent.kind == "PROBE":
                    count += 1
                    x.b.rx(sent)
                    x.a.rx(x.b.sent("ACK", cack=332))
        return count

    assert probes() == 2
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=334))
    x.a.rx(x.b.sent("ACK", ack=334, cack=332))
    assert probes() == 2


def test_each_gap_is_recovered_once() -> None:
    """pds.md §11.4: no second time while the recovery goes on, and a later gap is another recovery."""
    x = Ladder(inferred_loss="sack", inferred_loss_packets=3, rto_init_time=SECOND)

    def sack(cack: int, bitmap: int) -> None:
        x.a.rx_bytes(B, build_ack_cc(NextHdr.NONE, 0, 0, 0, 0, cack, TPDCID, IPDCID, 8, 1, bitmap))

    for first in (333, 338):
        x.a.send(5)
        x.a.outbox.clear()
        sack(first - 1, 0b1110)
        x.a.sent("REQ", psn=first, retx=1)
        sack(first - 1, 0b11110)
        x.a.silent()
        sack(first + 4, 0)
    assert x.a.pds.counters.retx_inferred == 2


# Guaranteed responses and clears, pds.md §9, §10 ---------------------------------------------------------------------


def test_an_error_is_kept_though_read_data_is_not() -> None:
    """pds.md §10, §20 row 14: `store_ack_read_data` is about data; a guaranteed error is repeated, nothing read."""
    x = Ladder(store_ack_read_data=False)
    x.b.ses.otherwise = "gtd"
    x.b.ses.on_reread = lambda *_: pytest.fail("it was no read")  # type: ignore[method-assign]
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.b.sent("ACK", ack=333, response=answer("gtd").header)  # lost
    x.wait(MS)
    x.b.rx(x.a.sent("REQ", psn=333, retx=1))
    x.b.sent("ACK", ack=333, retx=1, response=answer("gtd").header)


def test_a_retransmission_clears_as_a_request_does() -> None:
    """pds.md §20 row 11: with clear_source = cack its CLEAR_PSN is CACK."""
    x = Ladder(clear_source="cack")
    x.b.ses.otherwise = "gtd"
    x.a.send(2)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.a.sent("REQ", psn=334, clear=332)
    x.a.rx(x.b.sent("ACK", ack=333, cack=332))
    x.wait(MS)
    x.a.sent("REQ", psn=334, retx=1, clear=332)
    x.a.sent("CLEAR_CMD", payload=333)


def unclear(**b: Any) -> Ladder:
    """B keeps a guaranteed response, and A never clears it."""
    x = Ladder(b=b)
    x.b.ses.otherwise = "gtd"
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.b.sent("ACK", ack=333)  # lost
    return x


def test_clear_req_is_repeated() -> None:
    """pds.md §9.3: every 4 · PDS_Clear_Time, as long as no CLEAR comes."""
    x = unclear(pds_clear_time=2 * MS)
    for _ in range(2):
        x.wait(8 * MS - 1)
        x.b.silent()
        x.wait(1)
        x.b.sent("CLEAR_REQ", payload=333)


def test_clear_req_keeps_its_distance() -> None:
    """pds.md §9.3: without PDS_Clear_Time there is one CLEAR_REQ an RTO_Init_Time, not one a picosecond."""
    x = unclear(pds_clear_time=0)
    for number in range(3):
        x.now = x.b.pds.deadline() or 0
        assert x.now == (number + 1) * MS
        x.b.poll()
        x.b.sent("CLEAR_REQ", payload=333)


# Without a PDC, pds.md §15 -------------------------------------------------------------------------------------------


def test_rudi_that_is_outstanding_is_work() -> None:
    """pds.md §15, §18 item 51: quiescent only when its response is here."""
    x = Ladder()
    assert x.a.pds.quiescent
    x.a.pds.send(message(1, mode=Mode.RUDI), x.now)
    x.a.poll()
    request = x.a.outbox.pop()
    assert isinstance(request.message, Rudi)
    assert not x.a.pds.quiescent
    x.b.rx(request)
    x.a.rx(x.b.outbox.pop())
    assert x.a.pds.quiescent
