# SPDX-License-Identifier: GPL-2.0-only
"""From the first packet of a PDC to its tombstone: secure start, close, late copies, PSN limit (pds.md §6, §2.2)."""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.ladders.ladder import IPDCID, MS, SES_BYTES, TPDCID, A, B, Ladder, ScriptedSes, Sent
from tests.support.pds.control_and_reads import returned, secure
from tests.support.pds.headers import build_ack, build_control, build_nack, build_syn_control, build_syn_request
from uetproto.engine import Fep, Mode, Pds, PdsConfig, Preset, Refusal, Response, Write
from uetproto.engine.contract import (
    AskClose,
    AskCredit,
    Close,
    GiveCredit,
    Negotiate,
    Noop,
    PdcErrorReason,
    PdsWork,
)
from uetproto.engine.pds.states import State
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode, NextHdr

SECOND = 1000 * MS
MOVED = 5000 + 0x80000010
"""A Start_PSN more than half the PSNs away from 5000."""


def ack(psn: int, cack: int, req: int = AckReq.NONE) -> bytes:
    return build_ack(NextHdr.NONE, 0, 0, req, psn - cack, cack, TPDCID, IPDCID)


def nack(code: NackCode, psn: int, payload: int = 0) -> bytes:
    return build_nack(code, 0, 0, psn, TPDCID, IPDCID, payload)


def syn_request(mode: Mode, psn: int, offset: int = 0) -> bytes:
    return build_syn_request(mode, NextHdr.REQUEST_STD, 0, 0, -1, psn, IPDCID, offset) + SES_BYTES


def close_cmd(psn: int, *, dpdcid: int = TPDCID, spdcid: int = IPDCID, isrod: int = 0, retx: int = 0) -> bytes:
    return build_control(CtlType.CLOSE_CMD, isrod, retx, 1, psn, spdcid, dpdcid)


# Presets and local calls ---------------------------------------------------------------------------------------------


def test_a_pdcid_is_preset_once() -> None:
    """pds.md §6.2: a local PDCID is in use once; what is preset is not drawn for another PDC."""
    x = Ladder(established=False)
    with pytest.raises(LocalError, match="preset for another PDC"):
        x.b.pds.preset(Preset(pdcid=TPDCID))
    x.a.pds.pool.presets.clear()
    x.a.pds.preset(Preset(start_psn=500))
    x.a.pds.preset(Preset(pdcid=1))
    for mode, pdcid in ((Mode.RUD, 2), (Mode.ROD, 1)):
        x.a.submit(Noop(peer=B, mode=mode))
        x.a.sent("NOOP", spdcid=pdcid)


@pytest.mark.parametrize(("work", "legal"), [
    (AskCredit(pdcid=IPDCID, target=1 << 24), "target: 16777216 is not legal; legal: 0 … 0xffffff"),
    (AskCredit(pdcid=IPDCID, target=True), "target: True"),
    (GiveCredit(pdcid=IPDCID, credit=-1), "credit: -1 is not legal; legal: 0 … 0xffffff"),
    (Negotiate(peer=B, mode=Mode.RUD, features=1 << 32), "features: 4294967296 is not legal; legal: 0 … 0xffffffff"),
    (Write(peer=B, data=b"", key=1), "work: Write is not legal; legal: Close, AskClose, Noop, Negotiate, Probe"),
])  # fmt: skip
def test_work_that_cannot_be(work: PdsWork, legal: str) -> None:
    """pds.md §13: the widths of ctl_payload; a Write is work for SES."""
    x = Ladder()
    with pytest.raises(LocalError, match=legal):
        x.a.submit(work)
    x.a.poll()
    x.a.silent()


@pytest.mark.parametrize(("work", "kind", "payload"), [
    (AskCredit(pdcid=IPDCID, target=0xFFFFFF), "CREDIT_REQ", 0xFFFFFF),
    (GiveCredit(pdcid=IPDCID, credit=0xFFFFFF), "CREDIT", 0xFFFFFF),
    (Negotiate(peer=B, mode=Mode.RUD, features=0xFFFFFFFF), "NEGOTIATION", 0xFFFFFFFF),
])  # fmt: skip
def test_work_at_its_limit(work: PdsWork, kind: str, payload: int) -> None:
    """pds.md §13."""
    x = Ladder()
    x.a.pds.submit(work, x.now)
    x.a.poll()
    x.a.sent(kind, payload=payload)


# Secure start, pds.md §6.6 -------------------------------------------------------------------------------------------


def test_a_late_packet_of_the_first_flight_kills_nothing() -> None:
    """pds.md §6.6: its PSN may be one of the second flight as well, so no NACK INVALID_SYN can be about it."""
    x = secure()
    x.b.pds.preset(Preset(expected_psn=5002))
    x.a.send(3)
    first = [x.a.sent("REQ", psn=5000 + i) for i in range(3)]
    x.b.rx(first[0])
    x.a.rx(x.b.sent("NACK", code=NackCode.NEW_START_PSN, payload=5002))
    second = [x.a.sent("REQ", psn=5002 + i) for i in range(3)]
    x.b.rx(second[0])
    x.a.rx(x.b.sent("ACK", ack=5002))
    x.b.rx(first[2])
    for answer in x.b.outbox:
        assert answer.get("code") is NackCode.NEW_START_PSN
        x.a.rx(answer)
    x.a.silent()
    assert (x.a.state, x.b.state, x.a.ses.errors) == (State.ESTABLISHED, State.ESTABLISHED, [])
    assert x.b.ses.delivered == [5002]


def test_a_start_that_nobody_refused_is_wrong() -> None:
    """pds.md §6.3 row 9, also where secure start refused another one before."""
    x = secure()
    for start, kind in ((5000, "NACK"), (9000, "ACK")):
        x.b.rx_bytes(A, syn_request(Mode.RUD, start))
        x.b.sent(kind)
    x.b.rx_bytes(A, syn_request(Mode.RUD, 9003))
    x.b.sent("NACK", code=NackCode.INVALID_SYN, nack_psn=9003)
    assert x.b.ses.delivered == [9000]


def test_a_demand_about_a_start_that_was_left_is_late() -> None:
    """pds.md §6.6, RANDOM_1RTT: the first PENDING PDC is gone, and the Start_PSN that it demanded leads nowhere."""
    x = secure("random")
    x.a.send(1)
    first = x.a.sent("REQ", psn=5000)
    x.b.rx(first)
    late = x.b.sent("NACK", code=NackCode.NEW_START_PSN, nack_psn=5000)
    x.wait(5 * MS)
    x.b.rx(first)
    present = x.b.sent("NACK", code=NackCode.NEW_START_PSN, nack_psn=5000)
    assert present.get("payload") != late.get("payload")
    x.a.outbox.clear()
    x.a.rx(present)
    second = x.a.sent("REQ", psn=present.get("payload"))
    x.a.rx(late)
    x.a.silent()
    x.b.rx(second)
    x.a.rx(x.b.sent("ACK"))
    assert (x.a.state, x.a.ses.errors, len(x.b.ses.delivered)) == (State.ESTABLISHED, [], 1)


def moved(mode: Mode = Mode.RUD, packets: int = 1, *, after: int = 0) -> Ladder:
    """A sent `packets` from 5000 on, and `after` that time was told to start at `MOVED`."""
    x = Ladder(mode, established=False, forward=5000)
    x.a.send(packets)
    x.wait(after)
    x.a.outbox.clear()
    x.a.rx_bytes(B, nack(NackCode.NEW_START_PSN, 5000, MOVED))
    for i in range(packets):
        x.a.sent("REQ", psn=MOVED + i, psn_offset=i, retx=0)
    return x


def test_clears_move_with_the_start() -> None:
    """pds.md §6.6, §9.3: what was sent as CLEAR_PSN moves too, else the CLEAR of the new space never leaves."""
    x = moved()
    x.a.rx_bytes(B, ack(MOVED, MOVED - 1, AckReq.CLEAR))
    x.wait(MS - 1)
    x.a.silent()
    x.wait(1)
    x.a.sent("CLEAR_CMD", payload=MOVED)


def test_go_back_works_after_a_new_start() -> None:
    """pds.md §11.3: the first packet of the second flight is lost; ROD_OOO goes back to it at once."""
    x = moved(Mode.ROD, 2)
    x.a.rx_bytes(B, nack(NackCode.ROD_OOO, MOVED + 1, MOVED))
    for i in range(2):
        x.a.sent("REQ", psn=MOVED + i, retx=1)
    x.a.silent()


def test_the_back_off_starts_anew() -> None:
    """pds.md §6.6, §11.1: what was renumbered counts as sent for the first time, also in its RTO."""
    x = moved(after=MS)
    x.wait(MS - 1)
    x.a.silent()
    x.wait(1)
    x.a.sent("REQ", psn=MOVED, retx=1)


def test_idle_time_runs_after_the_confirmation() -> None:
    """pds.md §16, idle: not while PENDING, but from CONFIRM on."""
    x = secure(idle_time=10 * MS)
    x.b.rx_bytes(A, syn_request(Mode.RUD, 5000))
    x.b.sent("NACK", code=NackCode.NEW_START_PSN)
    x.wait(MS)
    x.b.rx_bytes(A, syn_request(Mode.RUD, 9000))
    x.b.sent("ACK")
    x.wait(10 * MS - 1)
    x.b.silent()
    x.wait(1)
    x.b.sent("CLOSE_REQ", psn=9000)


def test_another_mode_confirms_nothing() -> None:
    """pds.md §6.5 row PENDING, §18 item 28: the PDC waits for a packet of its own mode."""
    x = secure()
    x.b.rx_bytes(A, syn_request(Mode.RUD, 5000))
    x.b.sent("NACK", code=NackCode.NEW_START_PSN)
    x.b.rx_bytes(A, syn_request(Mode.ROD, 9000))
    x.b.silent()  # its Start_PSN is good: no other one is demanded
    assert (x.b.state, x.b.ses.delivered) == (State.PENDING, [])


def test_a_trimmed_packet_confirms_nothing() -> None:
    """pds.md §14: only its header arrived."""
    x = secure()
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=5000))
    x.a.rx(x.b.sent("NACK", code=NackCode.NEW_START_PSN))
    x.b.rx(x.a.sent("REQ", psn=9000), trimmed=True)
    x.b.silent()
    assert (x.b.state, x.b.ses.delivered) == (State.PENDING, [])


def test_what_was_pending_leaves_no_tombstone() -> None:
    """pds.md §6.2 item 9: nothing was delivered, so the same SYN is answered again."""
    x = secure()
    x.b.rx_bytes(A, syn_request(Mode.RUD, 5000))
    x.b.sent("NACK", code=NackCode.NEW_START_PSN, payload=9000)
    x.wait(5 * MS)
    assert not x.b.pds.pdcs
    x.b.rx_bytes(A, syn_request(Mode.RUD, 5000))
    x.b.sent("NACK", code=NackCode.NEW_START_PSN, payload=9000)


# Close, pds.md §6.4, §6.5 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["REQ", "NOOP"])
def test_the_closing_ack_waits_for_what_is_queued(kind: str) -> None:
    """pds.md §6.5 ACK_WAIT, §20 row 16: return data or a NOOP that did not leave yet counts as un-ACKed."""
    x = Ladder()
    x.b.held = True
    if kind == "REQ":
        x.b.pds.send_return(TPDCID, returned(1), x.now)
    else:
        x.b.pds.submit(Noop(peer=A, mode=Mode.RUD), x.now)
    x.a.submit(Close(peer=B))
    x.b.rx(x.a.sent("CLOSE_CMD", psn=333))
    assert x.b.state is State.ACK_WAIT
    x.b.silent()
    x.b.release()
    x.a.rx(x.b.sent(kind, psn=48))
    x.b.silent()
    x.b.rx(x.a.sent("ACK", ack=48, cack=48))
    x.a.rx(x.b.sent("ACK", ack=333, cack=333, next_hdr=NextHdr.NONE))
    assert (x.a.state, x.b.state) == (State.CLOSED, State.CLOSED)


def test_a_noop_goes_before_the_close() -> None:
    """pds.md §6.4 QUIESCE: a NOOP that waits for room in the window has the PSN before CLOSE_CMD."""
    x = Ladder(default_mpr=1)
    x.a.send(128)
    x.a.outbox.clear()
    x.a.submit(Noop(peer=B, mode=Mode.RUD))
    x.a.submit(Close(peer=B))
    x.a.silent()
    x.a.rx_bytes(B, ack(460, 460))
    x.a.sent("NOOP", psn=461)
    x.a.silent()
    x.a.rx_bytes(B, ack(461, 461))
    x.a.sent("CLOSE_CMD", psn=462)


def test_acks_of_a_closing_initiator() -> None:
    """pds.md §8.4: only a target asks for the close by req = CLOSE."""
    x = Ladder()
    x.a.send(2, now=1)
    x.a.sent("REQ", psn=333)
    x.a.submit(Close(peer=B))
    assert x.a.state is State.QUIESCE
    x.b.pds.send_return(TPDCID, returned(1), x.now)
    x.b.poll()
    x.a.rx(x.b.sent("REQ", psn=48))
    x.a.sent("ACK", ack=48, req=AckReq.NONE)


@pytest.mark.parametrize("knobs", [{"rod_gap": "reorder"}, {"rod_recovery": "selective"}])
def test_a_close_req_behind_a_gap_is_obeyed(knobs: dict[str, Any]) -> None:
    """pds.md §6.4, §20 row 3: it waits for its turn, and then the initiator closes."""
    x = Ladder(Mode.ROD, **knobs)
    x.b.pds.send_return(TPDCID, returned(1, Mode.ROD), x.now)
    x.b.poll()
    data = x.b.sent("REQ", psn=48)
    x.b.submit(AskClose(pdcid=TPDCID))
    x.a.rx(x.b.sent("CLOSE_REQ", psn=49))
    x.a.silent()
    assert x.a.state is State.ESTABLISHED
    x.a.rx(data)
    assert x.a.ses.delivered == [48]
    assert sorted(sent.kind for sent in x.a.outbox) == ["ACK", "ACK", "CLOSE_CMD"]
    for sent in list(x.a.outbox):
        x.b.rx(sent)
    x.a.rx(x.b.sent("ACK", ack=333, cack=333))
    assert (x.a.state, x.b.state) == (State.CLOSED, State.CLOSED)


@pytest.mark.parametrize("knobs", [{"rod_gap": "reorder"}, {"rod_recovery": "selective"}])
def test_a_close_cmd_is_never_buffered(knobs: dict[str, Any]) -> None:
    """pds.md §6.4: it comes when all is acknowledged, so behind a gap it is refused (§20 row 3)."""
    x = Ladder(Mode.ROD, **knobs)
    x.b.rx_bytes(A, close_cmd(334, isrod=1))
    x.b.sent("NACK", code=NackCode.ROD_OOO, nack_psn=334, payload=333)
    assert (x.b.state, x.b.pdc.rx.buffered) == (State.ESTABLISHED, 0)


def test_close_drain_error_names_the_close_cmd() -> None:
    """pds.md §20 row 16; afterwards no CLOSE_CMD is acknowledged, whose return data went astray."""
    x = Ladder(b={"close_drain": "error"})
    x.b.pds.send_return(TPDCID, returned(1), x.now)
    x.b.poll()
    x.b.sent("REQ", psn=48)
    x.b.rx_bytes(A, close_cmd(333))
    x.b.sent("NACK", code=NackCode.CLOSING_IN_ERR, nack_psn=333, spdcid=TPDCID)
    x.b.rx_bytes(A, close_cmd(333, retx=1))
    x.b.sent("NACK", code=NackCode.INV_DPDCID, nack_psn=333, spdcid=0)


def test_close_drain_error_is_about_return_data() -> None:
    """pds.md §20 row 16: a CLOSE_REQ that is not acknowledged yet is none."""
    x = Ladder(b={"close_drain": "error"})
    x.b.submit(AskClose(pdcid=TPDCID))
    x.b.sent("CLOSE_REQ", psn=48)
    x.b.rx_bytes(A, close_cmd(333))
    x.b.silent()
    assert x.b.state is State.ACK_WAIT


def test_a_pdc_that_ended_in_error_acknowledges_no_close() -> None:
    """pds.md §6.7, §20 row 17: the CLOSE_CMD arrived, but the return data was never acknowledged."""
    x = Ladder(b={"max_rto_retx_cnt": 0})
    x.b.pds.send_return(TPDCID, returned(1), x.now)
    x.b.poll()
    x.b.sent("REQ", psn=48)
    x.b.rx_bytes(A, close_cmd(333))
    assert x.b.state is State.ACK_WAIT
    x.wait(MS)
    x.b.sent("NACK", code=NackCode.CLOSING_IN_ERR)
    x.b.rx_bytes(A, close_cmd(333, retx=1))
    x.b.sent("NACK", code=NackCode.INV_DPDCID, nack_psn=333, spdcid=0)


@pytest.mark.parametrize("first", [False, True])
def test_a_repeated_closing_ack_has_the_mark_of_its_packet(first: bool) -> None:
    """pds.md §8.4, §20 row 17: ECN is echoed of the packet that is answered."""
    x = Ladder()
    x.a.submit(Close(peer=B))
    close = x.a.sent("CLOSE_CMD", psn=333)
    x.b.rx(close, marked=first)
    x.b.sent("ACK", ack=333, marked=int(first), retx=0)
    x.b.rx(close, marked=not first, retx=True)
    x.b.sent("ACK", ack=333, marked=int(not first), retx=1)


@pytest.mark.parametrize("dead", [False, True])
def test_a_close_beyond_the_literal_window_comes_to_its_end(dead: bool) -> None:
    """pds.md §7.1, §11.1, §20 row 34: CLOSE_CMD obeys the window too; asks for CACK, within the budget of a packet."""
    x = Ladder(default_mpr=1, window_base="cack", b={"mp_range": 128})
    x.b.ses.otherwise = "gtd"
    x.a.send(128)
    for _ in range(128):
        x.b.rx(x.a.sent("REQ"))
    x.a.submit(Close(peer=B))
    for _ in range(128):
        x.a.rx(x.b.sent("ACK", cack=332))
    asks = [x.a.sent("CLEAR_CMD", payload=460), x.a.sent("ACK_REQ", psn=460)]
    x.a.silent()
    if dead:
        x.wait(63 * MS - 1)
        assert [sent.kind for sent in x.a.outbox].count("ACK_REQ") == 5
        assert x.a.state is State.ACK_WAIT
        x.wait(1)
    else:
        for ask in asks:
            x.b.rx(ask)
        x.a.rx(x.b.sent("ACK", ack=460, cack=460))
        x.b.rx(x.a.sent("CLOSE_CMD", psn=461))
        x.a.rx(x.b.sent("ACK", ack=461, cack=461))
    assert not x.a.pds.pdcs


# Tombstones, pds.md §6.2 item 9 --------------------------------------------------------------------------------------


def noop(x: Ladder, start: int, spdcid: int = IPDCID) -> None:
    """A NOOP that opens a PDC arrives at B."""
    x.b.rx_bytes(A, build_syn_control(CtlType.NOOP, 0, 0, 1, start, spdcid, 0))


def visit(x: Ladder, start: int) -> Sent:
    """A PDC of A comes, and goes; its closing ACK."""
    noop(x, start)
    opened = x.b.sent("ACK", ack=start)
    x.b.rx_bytes(A, close_cmd(start + 1, dpdcid=opened.get("spdcid")))
    return x.b.sent("ACK", ack=start + 1, cack=start + 1)


def test_another_start_is_another_pdc() -> None:
    """pds.md §6.2 item 9: the tombstone stops late copies, not the next PDC of the same SPDCID."""
    x = Ladder(established=False)
    visit(x, 500)
    noop(x, 500)
    x.b.silent()
    assert x.b.pds.counters.no_pdc == 1
    noop(x, 900)
    x.b.sent("ACK", ack=900)


@pytest.mark.parametrize(("psn", "names"), [(501, {"dpdcid": TPDCID + 1}), (501, {"spdcid": IPDCID + 1}), (502, {})])
def test_a_late_close_cmd_of_another(psn: int, names: dict[str, int]) -> None:
    """pds.md §6.5 rows CLOSED, §20 row 17: only the very same CLOSE_CMD is acknowledged again."""
    x = Ladder(established=False)
    visit(x, 500)
    x.b.rx_bytes(A, close_cmd(501, retx=1))
    x.b.sent("ACK", ack=501, retx=1)
    x.b.rx_bytes(A, close_cmd(psn, retx=1, **names))
    x.b.sent("NACK", code=NackCode.INV_DPDCID, nack_psn=psn, spdcid=0)


def test_a_tombstone_outlives_the_one_before_it() -> None:
    """pds.md §16 MSL, §20 knob pdcid_quarantine: a PDCID used twice within MSL; the end of the first rest ends one."""
    x = Ladder(established=False, pdcid_quarantine=0)
    visit(x, 500)
    x.wait(SECOND)
    x.b.pds.preset(Preset(pdcid=TPDCID))
    visit(x, 900)
    x.wait(SECOND)  # MSL of the first one
    x.b.rx_bytes(A, close_cmd(901, retx=1))
    x.b.sent("ACK", ack=901, cack=901)
    noop(x, 900)
    x.b.silent()
    x.wait(SECOND)
    x.b.rx_bytes(A, close_cmd(901, retx=1))
    x.b.sent("NACK", code=NackCode.INV_DPDCID)
    noop(x, 900)
    x.b.sent("ACK", ack=900)


@pytest.mark.parametrize(("knob", "answer"), [(0, "ACK"), ("MSL", "NACK")])
def test_a_pdcid_used_again_is_not_that_of_the_pdc_before_it(knob: int | str, answer: str) -> None:
    """pds.md §6.3 row 10, §20 knob pdcid_quarantine: B closed, its ACK got lost, the PDCID comes again."""
    x = Ladder(pdcid_quarantine=knob)
    x.a.submit(Close(peer=B))
    x.a.sent("CLOSE_CMD")
    assert x.a.state is State.CLOSE_ACK_WAIT
    x.a.rx_bytes(B, build_syn_control(CtlType.NOOP, 0, 0, 1, 700, TPDCID, 0))
    if answer == "ACK":
        x.a.sent("ACK", ack=700)
    else:
        x.a.sent("NACK", code=NackCode.INVALID_SYN)


@pytest.mark.parametrize(("limit", "asked"), [(3, 3), (15, 30)])
def test_clear_req_has_an_end_where_nobody_answers(limit: int, asked: int) -> None:
    """pds.md §9.3: repeated every 4 · PDS_Clear_Time; Max_RTO_Retx_Cnt times to a peer that is silent, 15: endless."""
    x = Ladder(max_rto_retx_cnt=limit)
    x.b.ses.otherwise = "gtd"
    x.a.send(1)
    x.b.rx(x.a.sent("REQ"))
    x.b.sent("ACK", cack=332)
    for _ in range(30):
        x.wait(4 * x.b.pds.config.pds_clear_time)
    assert [sent.kind for sent in x.b.outbox] == ["CLEAR_REQ"] * asked


# SYN on a known PDC, pds.md §6.3 rows 9, 10 --------------------------------------------------------------------------


def test_control_packets_without_a_psn_have_no_start() -> None:
    """pds.md §6.3 row 9: no Start_PSN follows from psn 0, so it cannot be a wrong one."""
    x = Ladder()
    x.b.ses.otherwise = "gtd"
    x.a.send(1)
    x.b.rx(x.a.sent("REQ"))
    x.b.sent("ACK", cack=332)
    x.b.rx_bytes(A, build_syn_control(CtlType.CREDIT_REQ, 0, 0, 1, 0, IPDCID, 0, 7))
    x.b.sent("CREDIT", payload=7)
    x.b.rx_bytes(A, build_syn_control(CtlType.CLEAR_CMD, 0, 0, 0, 0, IPDCID, 0, 333))
    x.b.silent()
    assert x.b.pdc.rx.cack == 333


# Limit_PSN_Range, pds.md §2.2 ----------------------------------------------------------------------------------------


def test_the_psn_limit_after_a_noop() -> None:
    """pds.md §2.2: the PDC closes in time, also when a NOOP takes the PSN from which on it should; once."""
    x = Ladder()
    x.a.pdc.tx.start = (333 - (1 << 31) + (1 << 23)) & 0xFFFFFFFF
    x.a.submit(Noop(peer=B, mode=Mode.RUD))
    x.a.sent("NOOP", psn=333)
    assert x.a.state is State.ESTABLISHED
    x.a.send(3)
    assert [x.a.sent("REQ").get("psn") for _ in range(3)] == [334, 335, 336]
    assert (x.a.state, x.a.pds.counters.psn_limit_close) == (State.ACK_WAIT, 1)
    x.a.rx_bytes(B, ack(336, 336))
    x.a.sent("CLOSE_CMD", psn=337)


def test_the_last_psn_is_for_the_close() -> None:
    """pds.md §2.2, §6.7: a message that takes all the PSNs left ends in error, one for each packet un-ACKed."""
    x = Ladder()
    x.a.pdc.tx.start = (334 - (1 << 31) + 2) & 0xFFFFFFFF
    x.a.send(5)
    assert [x.a.sent("REQ").get("psn") for _ in range(2)] == [333, 334]
    x.a.silent()
    assert x.a.state is State.CLOSED
    assert [(index, error.reason) for index, error in x.a.ses.errors] == [
        (index, PdcErrorReason.PSN_LIMIT) for index in (0, 1, -1)
    ]


# Bad input of the caller ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Pds("10.0.0.1", PdsConfig(), random.Random(1), ScriptedSes()), "address: '10.0.0.1'"),  # type: ignore[arg-type]
        (lambda: Pds(1 << 32, PdsConfig(), random.Random(1), ScriptedSes()), "address: 4294967296"),
        (lambda: Pds(1, PdsConfig(), random.Random(1), ScriptedSes(), 5), "ip_version: 5"),
        (lambda: Pds(1, {}, random.Random(1), ScriptedSes()), "config: dict"),  # type: ignore[arg-type]
        (lambda: Fep(0, random.Random(1)), "address: 0"),
        (lambda: Response("x"), "header: str"),  # type: ignore[arg-type]
        (lambda: Response(b"x", next_hdr=99), "next_hdr: 99"),
        (lambda: Refusal(3), "code: 3"),  # type: ignore[arg-type]
        (lambda: Ladder().a.submit(Noop(peer="x")), "peer: 'x'"),  # type: ignore[arg-type]
        (lambda: Ladder().a.submit(Close(peer=0)), "peer: 0"),
        (lambda: Fep(1, random.Random(1)).submit(Write(peer="x", data=b"", key=1), 0), "peer: 'x'"),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments_are_named(make: Callable[[], object], named: str) -> None:
    with pytest.raises(LocalError, match=f"{re.escape(named)} is not legal; legal: "):
        make()
