# SPDX-License-Identifier: GPL-2.0-only
"""Edges of pds.md rules: windows, numbers that must not move, ACKs that must not be missing, timers that must stop."""

import random

from tests.support.engine.world import KEY, A, B
from tests.support.ladders.ladder import IPDCID, MS, TPDCID, Ladder, ScriptedMessage
from tests.support.pds.headers import build_ack, build_ack_cc, build_control, build_nack, build_syn_control
from uetproto.engine import AskClose, Close, Datagram, Fep, Mode, Pds, PdsConfig, Write
from uetproto.engine.pds.psn_window import DONE, PsnWindow, Verdict
from uetproto.engine.pds.retransmit import SendRecord, SendWindow
from uetproto.engine.pds.states import State
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode, NextHdr

SECOND = 1000 * MS


def ack(psn: int, cack: int, req: int = AckReq.NONE, retx: int = 0) -> bytes:
    return build_ack(NextHdr.NONE, 0, retx, req, psn - cack, cack, TPDCID, IPDCID)


def nack(code: int, psn: int, payload: int = 0) -> bytes:
    return build_nack(code, 0, 0, psn, TPDCID, IPDCID, payload)


def test_edges_of_the_windows() -> None:
    """pds.md §7.1, §8.1."""
    rx = PsnWindow(1000, 128, rod=False)
    for psn in range(1000, 1300):
        rx.take(psn, DONE)
    assert rx.classify(1299 - 127) is Verdict.PRIOR
    assert rx.classify(1299 - 128) is Verdict.BEHIND
    tx = SendWindow(1000, False, PdsConfig(default_mpr=1))
    assert (tx.in_window(1127), tx.in_window(1128), tx.in_window(999)) == (True, False, True)


def test_the_tracked_base_follows_cack() -> None:
    """pds.md §8.5: set to CACK whenever CACK passes it, also where no gap ever was."""
    x = Ladder(ack_cc="always", enb_ack_per_pkt=True)
    x.a.send(3)
    for psn in (333, 334, 335):
        x.b.rx(x.a.sent("REQ"))
        x.b.sent("ACK", cack=psn, sack_base=psn, sack_bitmap=1)


def test_the_rto_is_capped() -> None:
    """pds.md §11.1: 8 s."""
    x = Ladder(rto_init_time=3 * SECOND)
    x.a.send(1)
    x.a.sent("REQ")
    for at in (3, 9, 17, 25):
        x.wait(at * SECOND - x.now - 1)
        x.a.silent()
        x.wait(1)
        x.a.sent("REQ", retx=1)


def test_a_time_out_that_falls_is_not_held_up_by_earlier_ones() -> None:
    """cms.md §6: with `rto = "rtt"` a later packet may have an earlier deadline."""
    window = SendWindow(0, False, PdsConfig(rto_init_time=9))
    for psn, (now, rto) in enumerate(((0, 100), (1, 20), (2, 30), (3, 20), (4, 50))):
        window.rto = rto
        window.track(SendRecord(psn, None, 0, NextHdr.NONE, b"", b"", False, 0), now)
    assert window.deadline() == 21
    assert [one.psn for one in window.expired(31)] == [1, 3]
    assert [one.psn for one in window.expired(54)] == [2, 4]
    assert window.deadline() == 100


def test_rod_ooo_names_nonsense() -> None:
    """pds.md §20 row 4: an expected PSN outside una … next stands for una."""
    for payload in (300, 5000):
        x = Ladder(Mode.ROD)
        x.a.send(3)
        x.a.outbox.clear()
        x.a.rx_bytes(B, ack(333, 333))
        x.a.rx_bytes(B, nack(NackCode.ROD_OOO, 335, payload))
        assert [x.a.sent("REQ", retx=1).get("psn") for _ in range(2)] == [334, 335]
        x.a.silent()


def test_rod_go_back_leaves_out_what_arrived() -> None:
    """pds.md §18 item 38, §11.3."""
    x = Ladder(Mode.ROD)
    x.a.send(3)
    x.a.outbox.clear()
    x.a.rx_bytes(B, nack(NackCode.RCVD_SES_PROCG, 334))
    x.wait(MS)
    assert [x.a.sent("REQ", retx=1).get("psn") for _ in range(2)] == [333, 335]
    x.a.silent()


def test_a_clear_waits_for_lower_psns() -> None:
    """pds.md §9.3: CLEAR_PSN follows what is acknowledged; the wish for more stays."""
    x = Ladder(rto_init_time=SECOND)
    x.a.send(4)
    x.a.outbox.clear()
    x.a.rx_bytes(B, ack(333, 332, AckReq.CLEAR))
    x.a.rx_bytes(B, ack(335, 332, AckReq.CLEAR))
    x.wait(MS)
    x.a.sent("CLEAR_CMD", payload=333)
    x.wait(3 * MS)
    x.a.silent()
    x.a.rx_bytes(B, ack(334, 334))
    x.wait(MS)
    x.a.sent("CLEAR_CMD", payload=335)
    x.a.silent()
    x.a.rx_bytes(B, ack(335, 334, AckReq.CLEAR, retx=1))  # the CLEAR_CMD was lost
    x.wait(MS)
    x.a.sent("CLEAR_CMD", payload=335)
    x.a.rx_bytes(B, ack(335, 334, AckReq.CLEAR))  # a late copy of the first ACK
    x.wait(3 * MS)
    x.a.silent()


def test_close_cmd_takes_the_place_of_a_clear() -> None:
    """pds.md §9.3: CLOSE_CMD clears everything below it."""
    x = Ladder()
    x.a.send(1)
    x.a.outbox.clear()
    x.a.rx_bytes(B, ack(333, 332, AckReq.CLEAR))
    x.a.submit(Close(peer=B))
    x.a.sent("CLOSE_CMD", psn=334)
    x.wait(MS)
    x.a.sent("CLOSE_CMD", psn=334, retx=1)
    x.a.silent()


def test_mpr_zero_is_ignored() -> None:
    """pds.md §8.6."""
    x = Ladder()
    for mpr, window in ((2, 256), (0, 256), (1, 128)):
        x.a.rx_bytes(B, build_ack_cc(NextHdr.NONE, 0, 0, 0, 0, 332, TPDCID, IPDCID, mpr, 0, 0))
        assert x.a.pdc.tx.mp_range == window


def test_a_small_window_is_told_at_once() -> None:
    """pds.md §8.6: the source learns MPR by an ACK_CC, without a gap too, before it is refused more and more."""
    x = Ladder(Mode.ROD, b={"mp_range": 128})
    x.a.send(1000, now=1)
    x.b.rx(x.a.sent("REQ"), retx=True)
    x.a.rx(x.b.sent("ACK", ack=333, cack=333, mpr=1))
    x.a.release()
    assert len(x.a.outbox) == 128


def test_a_target_ignores_close_in_an_ack() -> None:
    """pds.md §7.2 step 7."""
    x = Ladder()
    x.b.rx_bytes(A, build_ack(NextHdr.NONE, 0, 0, AckReq.CLOSE, 0, 47, IPDCID, TPDCID))
    assert x.b.state is State.ESTABLISHED
    assert x.b.pds.counters.bad_ack == 0


def test_when_an_ack_is_sent() -> None:
    """pds.md §8.3: retx on a new packet; CE only with ACK_On_ECN; an ACK_REQ that came before the response."""
    x = Ladder(ack_on_ecn=False)
    x.a.send(5)
    first, second, third, *_ = (x.a.sent("REQ") for _ in range(5))
    x.b.rx(first, marked=True)
    x.b.silent()
    x.b.rx(second, retx=True)
    x.b.sent("ACK", ack=334, retx=1)
    x.b.ses.otherwise = "later"
    x.b.rx(third)
    x.b.rx_bytes(A, build_control(CtlType.ACK_REQ, 0, 0, 1, 335, IPDCID, TPDCID))
    x.b.sent("NACK", code=NackCode.RCVD_SES_PROCG)
    x.b.respond(335, "ok")
    x.b.sent("ACK", ack=335)


def test_clear_wins_over_close() -> None:
    """pds.md §8.4, §20 row 32."""
    x = Ladder(enb_ack_per_pkt=True)
    x.a.send(2)
    requests = [x.a.sent("REQ") for _ in range(2)]
    x.b.submit(AskClose(pdcid=TPDCID))
    x.b.sent("CLOSE_REQ")
    x.b.ses.script = {333: "gtd"}
    for request, req in zip(requests, (AckReq.CLEAR, AckReq.CLOSE), strict=True):
        x.b.rx(request)
        x.b.sent("ACK", req=req)


def test_cleared_responses_leave_no_timer() -> None:
    """pds.md §16: 4 · PDS_Clear_Time stops when all is cleared."""
    x = Ladder()
    x.b.ses.otherwise = "gtd"
    x.a.send(1)
    x.b.rx(x.a.sent("REQ"))
    assert not x.b.pds.quiescent
    x.b.rx_bytes(A, build_control(CtlType.CLEAR_CMD, 0, 0, 0, 0, IPDCID, TPDCID, 333))
    assert x.b.pds.quiescent


def test_storage_is_reserved_while_ses_works() -> None:
    """pds.md §9.2: a packet that waits for its answer may need the storage."""
    x = Ladder(max_gtd_del=1)
    x.b.ses.otherwise = "later"
    x.a.send(2)
    for _ in range(2):
        x.b.rx(x.a.sent("REQ"))
    x.b.sent("NACK", code=NackCode.NO_GTD_DEL_AVAIL, nack_psn=334)


def test_trimmed_and_beyond_the_window() -> None:
    """pds.md §14: only a PSN in the window is asked for again."""
    x = Ladder(b={"mp_range": 128})
    x.a.send(200)
    sent = [x.a.sent("REQ") for _ in range(200)]
    x.b.rx(sent[128], trimmed=True)
    x.b.silent()
    x.b.rx(sent[127], trimmed=True)
    x.b.sent("NACK", code=NackCode.TRIMMED, nack_psn=333 + 127)


def test_errors_for_what_never_left() -> None:
    """pds.md §6.7: the open message whose packets are all acknowledged, and what is queued: one error each."""
    x = Ladder()
    x.a.send(3, now=1)
    x.a.outbox.clear()
    x.a.pds.send(ScriptedMessage(1, message_id=2), 0)
    x.a.rx_bytes(B, ack(333, 333))
    x.a.rx_bytes(B, nack(NackCode.UNEXP_EVENT, 333))
    assert x.a.state is State.CLOSED
    assert [index for index, _ in x.a.ses.errors] == [-1, -1]
    assert len(x.a.ses.responses) == 1


def test_a_tombstone_knows_its_close_cmd() -> None:
    """pds.md §20 row 17: another CLOSE_CMD is none of its business."""
    b = Fep(B, random.Random(1))
    for data in (
        build_syn_control(CtlType.NOOP, 0, 0, 1, 500, 5, 0),
        build_control(CtlType.CLOSE_CMD, 0, 0, 1, 501, 5, 1),
        build_control(CtlType.CLOSE_CMD, 0, 1, 1, 501, 5, 1),
        build_control(CtlType.CLOSE_CMD, 0, 1, 1, 502, 5, 1),
    ):
        b.receive(Datagram(A, B, data), 0)
    kinds = [packet.header[0] >> 3 for packet in b.poll(0)]
    assert kinds[:3] == [kinds[0]] * 3
    assert b.pds.nack_tx == {NackCode.INV_DPDCID: 1}


class _Draws:
    """A generator that draws what it was given."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)

    def getrandbits(self, k: int) -> int:
        return self.values.pop(0) if k == 32 else 0

    def random(self) -> float:
        return 0.0


def test_start_psn_is_drawn_again() -> None:
    """pds.md §2.2: not 0, and 2^16 away from the last PSN on this PDCID, either way round."""
    rng = _Draws(0, 70_000, 70_000 + 65_535, 70_000 - 65_536, 0, 9)
    pds = Pds(A, PdsConfig(msl=0), rng, Ladder().a.ses)
    pds.pool.last_psn[1] = 70_000
    assert pds.open_initiator(B, Mode.ROD, 0).tx.start == 70_000 - 65_536
    assert pds.open_initiator(B, Mode.RUD, 0).tx.start == 9


def test_the_last_psn_is_remembered() -> None:
    """pds.md §2.2."""
    a = Fep(A, random.Random(1), pds=PdsConfig(max_rto_retx_cnt=0))
    a.submit(Write(peer=B, data=bytes(10_000), key=KEY), 0)
    a.poll(0)
    start = next(iter(a.pds.pdcs.values())).tx.start
    a.poll(MS)
    assert a.pds.pool.last_psn == {1: (start + 2) & 0xFFFFFFFF}
