# SPDX-License-Identifier: GPL-2.0-only
"""What packet delivery does beside requests and ACKs: reads, secure start, probes, credits, pools, knobs (pds.md)."""

from typing import Any

import pytest

from tests.support.ladders.ladder import IPDCID, MS, TPDCID, A, B, Ladder, ScriptedMessage, answer
from tests.support.pds.control_and_reads import (
    returned,
    secure,
    syn,
)
from tests.support.pds.headers import build_ack_cc, build_nack
from uetproto.engine import Mode, PdsConfig, Preset, Refusal, Response
from uetproto.engine.contract import (
    AskClose,
    AskCredit,
    Close,
    Credited,
    GiveCredit,
    Negotiate,
    Negotiated,
    NewPdcTimeouts,
    Noop,
    PdcErrorReason,
    Probe,
    Probed,
    TrafficClass,
)
from uetproto.engine.pds.states import State
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import AckReq, NackCode, NextHdr, PdsType

DATA = Response(bytes(16) + b"read data", gtd=True, next_hdr=NextHdr.RESPONSE_DATA)
"""Read data in an ACK (pds.md §10)."""


# Numbers, pds.md §2 -------------------------------------------------------------------------------------------------


def test_every_offset_fits_in_the_widest_window() -> None:
    """pds.md §2.5, §18 item 19: MP_RANGE 32640, everything guaranteed, the last packet first, across 2^32."""
    start, count = 0xFFFFF000, 32640
    x = Ladder(forward=start, default_mpr=255, mp_range=count, ack_cc="always", sack_base="cack_plus_1")
    x.b.ses.otherwise = "gtd"
    x.a.send(count + 1)
    reqs = [x.a.sent("REQ", coff=-1 - i) for i in range(count)]
    x.a.silent()
    for i in (count - 1, 0):
        x.b.rx(reqs[i])
        x.b.sent("ACK", ack=(start + i) & 0xFFFFFFFF, cack=start - 1, off=i + 1, sack_base=start)
    assert x.b.pdc.rx.max_rcvd == (start + count - 1) & 0xFFFFFFFF


# Return direction, pds.md §10 ----------------------------------------------------------------------------------------


def test_return_data_has_its_own_psn_space() -> None:
    """pds.md §2.2, §10, §19 L6."""
    x = Ladder()
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333, coff=-1))
    x.a.rx(x.b.sent("ACK", ack=333, cack=333, off=0))
    x.b.pds.send_return(TPDCID, returned(1), x.now)
    x.b.poll()
    x.a.rx(x.b.sent("REQ", psn=48, coff=-1, clear=47, next_hdr=NextHdr.RESPONSE_DATA, spdcid=TPDCID, dpdcid=IPDCID))
    assert x.a.ses.delivered == [48]
    x.b.rx(x.a.sent("ACK", ack=48, cack=48, off=0))
    assert x.b.pdc.tx.clear_psn == 48
    assert x.a.pdc.tx.clear_psn == 333


def test_close_drains_the_return_direction() -> None:
    """pds.md §6.5, §20 row 16: the closing ACK waits for the ACK of the return data."""
    x = Ladder()
    x.b.pds.send_return(TPDCID, returned(1), x.now)
    x.b.poll()
    data = x.b.sent("REQ", psn=48)
    x.a.submit(Close(peer=B))
    x.b.rx(x.a.sent("CLOSE_CMD", psn=333, ar=1))
    assert x.b.state is State.ACK_WAIT
    x.b.silent()
    x.a.rx(data)
    x.b.rx(x.a.sent("ACK", ack=48, cack=48))
    x.a.rx(x.b.sent("ACK", ack=333, cack=333, off=0, next_hdr=NextHdr.NONE))
    assert (x.a.state, x.b.state) == (State.CLOSED, State.CLOSED)


def test_close_drain_error() -> None:
    """observed: a CLOSE_CMD while return data is outstanding ends in CLOSING_IN_ERR."""
    x = Ladder(b={"close_drain": "error"})
    x.b.pds.send_return(TPDCID, returned(1), x.now)
    x.b.poll()
    x.b.sent("REQ", psn=48)
    x.a.submit(Close(peer=B))
    x.b.rx(x.a.sent("CLOSE_CMD", psn=333))
    x.a.rx(x.b.sent("NACK", code=NackCode.CLOSING_IN_ERR))
    assert (x.a.state, x.b.state) == (State.CLOSED, State.CLOSED)
    assert [error.reason for _, error in x.b.ses.errors] == [PdcErrorReason.CLOSE_TIMEOUT]


def test_return_data_needs_a_target() -> None:
    x = Ladder()
    with pytest.raises(LocalError, match="RETURN"):
        x.a.pds.send_return(IPDCID, returned(1), x.now)


def test_return_data_of_a_pdc_that_is_gone() -> None:
    x = Ladder()
    x.b.pds.send_return(99, returned(1), x.now)
    assert [error.reason for _, error in x.b.ses.errors] == [PdcErrorReason.PEER_CLOSED]


def test_a_lock_keeps_the_pdc_open() -> None:
    """pds.md §4 `lock_pdc`, §18 item 31."""
    x = Ladder()
    message = ScriptedMessage(1)
    message.lock = True
    x.a.pds.send(message, x.now)
    x.a.poll()
    x.b.rx(x.a.sent("REQ", psn=333))
    assert message.where == (IPDCID, 333)
    x.a.rx(x.b.sent("ACK", ack=333))
    x.a.submit(Close(peer=B))
    assert x.a.state is State.QUIESCE
    x.a.silent()
    x.a.pds.unlock(IPDCID, x.now)
    x.a.poll()
    x.a.sent("CLOSE_CMD", psn=334)
    with pytest.raises(LocalError, match="not locked"):
        x.a.pds.unlock(IPDCID, x.now)


# Read data in ACKs, pds.md §10 ---------------------------------------------------------------------------------------


class Reader:
    """SES of a target that answers a read with data in the ACK."""

    def __init__(self, x: Ladder) -> None:
        self.reads = 0
        x.b.ses.on_request = self._read  # type: ignore[method-assign]
        x.b.ses.on_reread = lambda *_: self._read()  # type: ignore[method-assign]

    def _read(self, *_: Any) -> Response:
        self.reads += 1
        return DATA


@pytest.mark.parametrize(("stored", "reads"), [(True, 1), (False, 2)])
def test_read_data_in_an_ack(stored: bool, reads: int) -> None:
    """pds.md §19 L15; with `store_ack_read_data` off the read is done again."""
    x = Ladder(store_ack_read_data=stored)
    reader = Reader(x)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.b.sent("ACK", ack=333, cack=332, off=1, req=AckReq.CLEAR, response=DATA.header)  # lost
    x.wait(MS)
    x.b.rx(x.a.sent("REQ", psn=333, retx=1))
    ack = x.b.sent("ACK", ack=333, cack=332, off=1, req=AckReq.CLEAR, response=DATA.header, retx=1)
    assert reader.reads == reads
    x.a.rx(ack)
    assert x.a.ses.responses == [(0, DATA.header)]
    x.wait(MS)
    x.b.rx(x.a.sent("CLEAR_CMD", payload=333))
    assert x.b.pdc.rx.cack == 333


def test_ack_req_for_read_data_that_is_not_stored() -> None:
    """pds.md §13: NACK ACK_WITH_DATA; the source repeats the read itself."""
    x = Ladder(store_ack_read_data=False)
    reader = Reader(x)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.b.sent("ACK", ack=333)  # lost; a later one, made up here, reports 333 by a SACK bit
    x.a.pdc.tx.mark_received(x.a.pdc.tx.records[333], x.now)
    x.wait(MS)
    x.b.rx(x.a.sent("ACK_REQ", psn=333))
    x.a.rx(x.b.sent("NACK", code=NackCode.ACK_WITH_DATA, nack_psn=333))
    x.b.rx(x.a.sent("REQ", psn=333, retx=1))
    x.a.rx(x.b.sent("ACK", ack=333, response=DATA.header))
    assert reader.reads == 2
    assert x.a.ses.responses == [(0, DATA.header)]


def test_a_trimmed_copy_of_a_read_whose_data_is_not_stored() -> None:
    """What to read is cut off: the source is asked for a whole copy."""
    x = Ladder(store_ack_read_data=False)
    reader = Reader(x)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.b.sent("ACK", ack=333)  # lost
    x.wait(MS)
    x.b.rx(x.a.sent("REQ", psn=333, retx=1), trimmed=True)
    x.a.rx(x.b.sent("NACK", code=NackCode.TRIMMED, nack_psn=333))
    x.b.rx(x.a.sent("REQ", psn=333, retx=1))
    x.b.sent("ACK", ack=333, response=DATA.header)
    assert reader.reads == 2


def test_a_guaranteed_response_that_got_lost() -> None:
    """pds.md §8.1, §9.1, §12: GTD_RESP_UNAVAIL is fatal."""
    x = Ladder()
    x.b.ses.otherwise = "gtd"
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.b.sent("ACK", ack=333)  # lost
    assert x.b.pdc.rx.lose(333)
    x.wait(MS)
    x.b.rx(x.a.sent("REQ", psn=333, retx=1))
    x.a.rx(x.b.sent("NACK", code=NackCode.GTD_RESP_UNAVAIL, nack_psn=333))
    assert [(error.code, error.retryable) for _, error in x.a.ses.errors] == [(NackCode.GTD_RESP_UNAVAIL, False)]


@pytest.mark.parametrize(("limit", "kind"), [(16, TrafficClass.DATA), (10240, TrafficClass.CONTROL)])
def test_ack_with_much_data_may_be_trimmed(limit: int, kind: TrafficClass) -> None:
    """Trimmable_ACK_Size, pds.md §10; a trimmed ACK is discarded (§14)."""
    x = Ladder(trimmable_ack_size=limit)
    Reader(x)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ"))
    ack = x.b.sent("ACK")
    assert ack.packet.traffic_class is kind
    x.a.rx(ack, trimmed=True)
    assert x.a.ses.responses == []
    assert x.a.pds.counters.trimmed_rx == 1


# Secure start, pds.md §6.6 -------------------------------------------------------------------------------------------


def test_secure_start_demands_another_psn() -> None:
    """pds.md §19 L14."""
    x = secure()
    x.a.send(2)
    first, second = (x.a.sent("REQ", psn=5000 + i, psn_offset=i, syn=1) for i in range(2))
    x.b.rx(first)
    nack = x.b.sent("NACK", code=NackCode.NEW_START_PSN, nack_psn=5000, payload=9000, spdcid=TPDCID)
    x.b.rx(second)
    again = x.b.sent("NACK", code=NackCode.NEW_START_PSN, nack_psn=5001, payload=9000)
    assert x.b.state is State.PENDING
    assert x.b.ses.delivered == []
    x.a.rx(nack)
    moved = [x.a.sent("REQ", psn=9000 + i, psn_offset=i, syn=1, retx=0, coff=-1 - i) for i in range(2)]
    assert (x.a.pdc.tx.peer_cack, x.a.pdc.tx.clear_psn, x.a.pdc.rx.cack) == (8999, 8999, 8999)
    x.a.rx(again)
    x.a.silent()
    x.b.rx(moved[0])
    x.a.rx(x.b.sent("ACK", ack=9000, cack=9000, off=0, spdcid=TPDCID))
    x.b.rx(moved[1])
    x.b.sent("ACK", ack=9001, cack=9001, off=0)
    assert (x.b.state, x.b.ses.delivered) == (State.ESTABLISHED, [9000, 9001])


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
def test_random_start_always_takes_a_round(mode: Mode) -> None:
    """pds.md §6.6, second policy."""
    x = secure("random", mode)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=5000))
    nack = x.b.sent("NACK", code=NackCode.NEW_START_PSN)
    x.a.rx(nack)
    req = x.a.sent("REQ", psn=nack.get("payload"), psn_offset=0, retx=0)
    x.b.rx(req)
    x.b.sent("ACK", ack=nack.get("payload"))


def test_rod_is_confirmed_by_its_first_packet() -> None:
    """pds.md §6.2 item 7: ROD begins with Start_PSN, also out of PENDING."""
    x = secure(mode=Mode.ROD)
    x.a.send(2)
    x.b.rx(x.a.sent("REQ", psn=5000))
    x.a.sent("REQ", psn=5001)
    x.a.rx(x.b.sent("NACK", code=NackCode.NEW_START_PSN))
    x.a.sent("REQ", psn=9000)
    x.b.rx(x.a.sent("REQ", psn=9001))
    x.b.sent("NACK", code=NackCode.ROD_OOO, nack_psn=9001, payload=9000)
    assert x.b.state is State.PENDING


def test_new_pdc_time() -> None:
    """pds.md §6.5: the PENDING PDC goes, and the expiries are counted and reported."""
    x = secure(new_pdc_timeout_thresh=1)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=5000))
    x.wait(5 * MS)
    assert x.b.pds.counters.new_pdc_timeout_cnt == 1
    assert not x.b.pds.pdcs
    assert NewPdcTimeouts(1) in x.b.pds.events()


@pytest.mark.parametrize(("rule", "expected"), [("last_plus_1", 9003), ("start_plus_1", 9001)])
def test_expected_psn_after_a_close(rule: str, expected: int) -> None:
    """pds.md §6.6, observed.md `expected_psn_after_close`; the next PDC of the initiator starts there at once."""
    x = secure(expected_psn_after_close=rule)
    x.a.pds.pool.start_policy = x.b.pds.start_policy  # one security domain
    x.a.pds.pool.presets.clear()
    x.a.send(2)
    for _ in range(2):
        x.b.rx(x.a.sent("REQ"))
        x.a.rx(x.b.sent("ACK"))
    x.a.submit(Close(peer=B))
    x.b.rx(x.a.sent("CLOSE_CMD", psn=9002))
    x.a.rx(x.b.sent("ACK"))
    x.a.send(1)
    x.a.sent("REQ", psn=expected, psn_offset=0)


# Control packets, pds.md §13 -----------------------------------------------------------------------------------------


def test_noop_opens_a_pdc_early() -> None:
    x = Ladder(Mode.ROD, established=False, forward=100)
    x.a.submit(Noop(peer=B, mode=Mode.ROD))
    noop = x.a.sent("NOOP", psn=100, syn=1, ar=1, isrod=1)
    x.b.rx(noop)
    x.a.rx(x.b.sent("ACK", ack=100, cack=100, next_hdr=NextHdr.NONE))
    assert (x.a.state, x.b.state) == (State.ESTABLISHED, State.ESTABLISHED)
    assert x.a.ses.responses == []
    x.a.send(1)
    x.a.sent("REQ", psn=101, syn=0)


def test_negotiation_is_told() -> None:
    x = Ladder()
    x.a.submit(Negotiate(peer=B, mode=Mode.RUD, features=7))
    packet = x.a.sent("NEGOTIATION", psn=333, ar=1, payload=7)
    x.wait(MS)
    x.b.rx(x.a.sent("NEGOTIATION", psn=333, retx=1, payload=7))
    x.b.sent("ACK", ack=333, cack=333, next_hdr=NextHdr.NONE)
    assert Negotiated(A, TPDCID, 7) in x.b.pds.events()
    x.b.rx(packet)
    x.b.silent()


@pytest.mark.parametrize("mode", [Mode.RUDI, Mode.UUD])
def test_a_mode_without_pdc_has_no_noop(mode: Mode) -> None:
    x = Ladder()
    with pytest.raises(LocalError, match="mode"):
        x.a.submit(Noop(peer=B, mode=mode))


def test_probe() -> None:
    """pds.md §7.2, §13: p = 1, opaque echoed, no SES response; CACK and SACK from the base wanted; an RTT sample."""
    x = Ladder()
    x.a.send(3)
    reqs = [x.a.sent("REQ") for _ in range(3)]
    x.b.rx(reqs[1])
    x.a.submit(Probe(pdcid=IPDCID))
    probe = x.a.sent("PROBE", psn=335, ar=1, payload=333)
    x.now += 7
    x.b.rx(probe)
    reply = x.b.sent("ACK", probe_opaque=probe.get("opaque"), cack=332, sack_base=333, sack_bitmap=0b10, response=b"")
    x.now += 7
    x.a.rx(reply)
    assert Probed(B, IPDCID, 14) in x.a.pds.events()
    assert {psn: r.dst_rcvd for psn, r in x.a.pdc.tx.records.items()} == {333: False, 334: True, 335: False}
    assert x.a.ses.responses == []


def test_probe_needs_an_established_pdc() -> None:
    """UE 1.0.1 §3.6.13.7: not before the first ACK."""
    x = Ladder(established=False)
    x.a.send(1)
    with pytest.raises(LocalError, match="SEND_PROBE"):
        x.a.submit(Probe(pdcid=IPDCID))


def test_credit() -> None:
    x = Ladder()
    x.a.submit(AskCredit(pdcid=IPDCID, target=500))
    x.b.rx(x.a.sent("CREDIT_REQ", psn=0, ar=0, payload=500))
    x.a.rx(x.b.sent("CREDIT", psn=0, ar=0, payload=500))
    x.b.submit(GiveCredit(pdcid=TPDCID, credit=9))
    x.a.rx(x.b.sent("CREDIT", payload=9))
    events = x.a.pds.events()
    assert [e.credit for e in events if isinstance(e, Credited)] == [500, 9]
    x.a.silent()


def test_the_window_holds_control_packets_back() -> None:
    """pds.md §7.1: PSN-consuming control packets obey the window; a CLEAR that was not sent yet goes ahead."""
    x = Ladder(default_mpr=1, b={"mp_range": 128})
    x.b.ses.otherwise = "gtd"
    x.a.send(128)
    x.a.submit(Noop(peer=B, mode=Mode.RUD))
    reqs = [x.a.sent("REQ", psn=333 + i) for i in range(128)]
    x.a.silent()
    for req in reqs:
        x.b.rx(req)
    x.a.rx(x.b.sent("ACK", ack=333, cack=332, off=1))
    x.a.sent("CLEAR_CMD", payload=333)
    x.b.rx(x.a.sent("NOOP", psn=461))
    x.b.outbox = [sent for sent in x.b.outbox if sent.kind == "NACK"]
    x.b.sent("NACK", code=NackCode.PSN_OOR_WINDOW, nack_psn=461)  # its CLEAR_CMD was lost


# Pools, pds.md §6.3 row 6 --------------------------------------------------------------------------------------------


def test_reserved_pdcs_are_a_pool_of_their_own() -> None:
    """pds.md §1 use_rsv_pdc; an empty pool answers NO_PDC_AVAIL."""
    x = Ladder(established=False, b={"reserved_pdcs": 1, "max_pdcs": 1, "close_thresh": 0})
    plain = syn(x)
    assert plain.get("reserved") == 0
    x.b.rx(plain)
    x.b.sent("ACK")
    reserved = syn(x, reserved=True)
    assert reserved.get("reserved") == 1
    x.b.rx(reserved)
    x.b.sent("ACK")
    x.b.rx(syn(x, context=1, reserved=True))
    x.b.sent("NACK", code=NackCode.NO_PDC_AVAIL, spdcid=0)
    x.b.rx(syn(x, context=2))
    x.b.sent("NACK", code=NackCode.NO_PDC_AVAIL, spdcid=0)


def test_contexts_never_share_a_pdc() -> None:
    """pds.md §6.1."""
    x = Ladder(established=False)
    assert len({syn(x, number, context=number).get("spdcid") for number in range(3)}) == 3


def test_close_thresh_closes_the_idle_pdc() -> None:
    """pds.md §6.1: fewer than Close_Thresh PDCs are free."""
    x = Ladder(max_pdcs=2, close_thresh=1)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ"))
    x.a.rx(x.b.sent("ACK"))
    x.a.pds.send(ScriptedMessage(1, Mode.ROD), x.now)
    x.a.poll()
    assert sorted(sent.kind for sent in x.a.outbox) == ["CLOSE_CMD", "REQ"]


@pytest.mark.parametrize(("config", "code"), [
    ({"max_packet_buffers": 1}, NackCode.NO_PKT_BUFFER),
    ({"max_gtd_del": 1}, NackCode.NO_GTD_DEL_AVAIL),
])  # fmt: skip
def test_resources_of_a_pdc(config: dict[str, int], code: NackCode) -> None:
    """pds.md §6.3 row 16: not delivered, not marked."""
    x = Ladder(b=config)
    x.b.ses.otherwise = "later"
    x.a.send(2)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.b.rx(x.a.sent("REQ", psn=334))
    x.b.sent("NACK", code=code, nack_psn=334)
    assert x.b.ses.delivered == [333]
    assert not x.b.pdc.rx.received(334)


@pytest.mark.parametrize("code", [NackCode.NO_PDC_AVAIL, NackCode.NO_CCC_AVAIL, NackCode.NO_BITMAP])
def test_codes_of_the_opening_are_ignored_later(code: NackCode) -> None:
    """pds.md §12: a code for the wrong state is ignored."""
    x = Ladder()
    x.a.send(1)
    x.a.rx_bytes(B, build_nack(code, 0, 0, 333, TPDCID, IPDCID))
    assert x.a.pds.counters.bad_nack == 1


# ROD that keeps packets after a gap ----------------------------------------------------------------------------------


@pytest.mark.parametrize("knobs", [{"rod_gap": "reorder"}, {"rod_recovery": "selective"}])
def test_rod_reorders(knobs: dict[str, str]) -> None:
    """pds.md §20 row 3, observed.md `rod_recovery`: delivered in order, nothing resent but what is missing."""
    x = Ladder(Mode.ROD, **knobs)
    x.a.send(4)
    reqs = [x.a.sent("REQ", psn=333 + i) for i in range(4)]
    for req in (reqs[3], reqs[1], reqs[2]):
        x.b.rx(req)
    assert x.b.ses.delivered == []
    x.b.silent()
    x.b.rx(reqs[0])
    assert x.b.ses.delivered == [333, 334, 335, 336]
    x.b.sent("ACK", ack=336, cack=336)
    assert (x.b.pdc.rx.cack, x.b.pdc.rx.buffered, x.b.pdc.rx.slots) == (336, 0, {})


def test_rod_selective_resends_only_what_is_missing() -> None:
    x = Ladder(Mode.ROD, rod_recovery="selective", enb_ack_per_pkt=True)
    x.a.send(3)
    reqs = [x.a.sent("REQ", psn=333 + i) for i in range(3)]
    x.b.rx(reqs[1])
    x.b.rx(reqs[2])
    x.wait(MS // 2)
    x.b.rx(reqs[0])
    acks = [x.b.sent("ACK", ack=333 + i) for i in range(3)]
    x.a.rx(acks[2])
    x.wait(5 * MS)
    x.a.silent()
    assert len(x.a.ses.responses) == 3


def test_a_refusal_in_the_middle_of_the_buffer() -> None:
    """SES refuses a packet whose turn has come: those behind it go on waiting."""
    x = Ladder(Mode.ROD, rod_gap="reorder", enb_ack_per_pkt=True)
    x.b.ses.script[334] = NackCode.NO_PKT_BUFFER
    x.a.send(3)
    reqs = [x.a.sent("REQ", psn=333 + i) for i in range(3)]
    for req in reversed(reqs):
        x.b.rx(req)
    assert x.b.ses.delivered == [333]
    x.a.rx(x.b.sent("ACK", ack=333))
    nack = x.b.sent("NACK", code=NackCode.NO_PKT_BUFFER, nack_psn=334)
    x.b.ses.script.clear()
    x.a.rx(nack)
    x.wait(MS)
    x.b.rx(x.a.sent("ACK_REQ", psn=334))  # a SACK told that it is there
    assert x.b.ses.delivered == [333, 334, 335]


# Inferred loss, pds.md §11.4 -----------------------------------------------------------------------------------------


def test_sacks_above_a_gap_infer_a_loss_once() -> None:
    x = Ladder(inferred_loss="sack", inferred_loss_packets=3, enb_ack_per_pkt=True)
    x.a.send(6)
    reqs = [x.a.sent("REQ", psn=333 + i) for i in range(6)]
    for req in reqs[1:]:
        x.b.rx(req)
    acks = [x.b.sent("ACK") for _ in range(5)]
    x.a.outbox.clear()
    # 335–337 by SACK bits, their own ACKs are lost; 334 and 338 are acknowledged by their own
    x.a.rx_bytes(B, build_ack_cc(NextHdr.NONE, 0, 0, 0, 2, 332, TPDCID, IPDCID, 8, 0, 0b111100))
    x.b.rx(x.a.sent("REQ", psn=333, retx=1))
    x.a.silent()
    for ack in acks:
        x.a.rx(ack)
    x.a.silent()
    assert x.a.pds.counters.retx_inferred == 1


def test_a_probe_finds_the_lost_tail() -> None:
    x = Ladder(inferred_loss="probe", tail_loss_time=MS // 10)
    x.a.send(2)
    x.b.rx(x.a.sent("REQ", psn=333))
    x.a.sent("REQ", psn=334)  # lost
    x.wait(MS // 10)
    x.b.rx(x.a.sent("PROBE", psn=334))
    x.a.rx(x.b.sent("ACK", cack=333))
    x.b.rx(x.a.sent("REQ", psn=334, retx=1))
    x.a.rx(x.b.sent("ACK", ack=334, cack=334))
    assert x.a.pds.counters.retx_inferred == 1
    assert x.now < MS
    x.wait(10 * MS)
    x.a.silent()


# Knobs ---------------------------------------------------------------------------------------------------------------


def test_ack_ccx() -> None:
    """pds.md §8.4."""
    x = Ladder(ack_cc="always", ack_ccx=True)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ"))
    ack = x.b.sent("ACK", type=PdsType.ACK_CCX, cack=333)
    x.a.rx(ack)
    assert x.a.ses.responses == [(0, answer("ok").header)]


def test_clear_source_cack() -> None:
    """pds.md §20 row 11: requests follow CACK; what is guaranteed is cleared by CLEAR_CMD all the same."""
    x = Ladder(clear_source="cack")
    x.b.ses.otherwise = "gtd"
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333, clear=332))
    x.a.rx(x.b.sent("ACK", ack=333, cack=332))
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=334, clear=332, coff=-2))
    x.a.rx(x.b.sent("ACK", ack=334, cack=332))
    x.wait(MS)
    x.b.rx(x.a.sent("CLEAR_CMD", payload=334))
    assert x.b.pdc.rx.cack == 334


@pytest.mark.parametrize(("field", "value"), [
    ("pdcid", "7"), ("pdcid", 0), ("pdcid", 1.5), ("pdcid", True), ("start_psn", 1 << 32), ("forward_next", -1),
    ("expected_psn", "x"), ("peer_pdcid", 70000), ("ack_gen_count", -5),
])  # fmt: skip
def test_presets_that_cannot_be(field: str, value: Any) -> None:
    with pytest.raises(LocalError, match=f"{field}.*legal"):
        Preset(**{field: value})


@pytest.mark.parametrize("mode", ["rud", None, 2, 99])
def test_modes_that_are_none(mode: Any) -> None:
    x = Ladder()
    with pytest.raises(LocalError, match=r"mode.*RUDI"):
        x.a.pds.send(ScriptedMessage(1, mode), x.now)
    with pytest.raises(LocalError, match=r"mode.*RUD, ROD"):
        x.a.submit(Noop(peer=B, mode=mode))
    with pytest.raises(LocalError, match=r"mode.*RUD, ROD"):
        x.a.pds.adopt(B, mode, True, Preset(pdcid=9, peer_pdcid=9))


@pytest.mark.parametrize("response", [Refusal(NackCode.NO_RESOURCE), None, 5, "x"])
def test_a_late_answer_is_a_response(response: Any) -> None:
    x = Ladder()
    x.b.ses.otherwise = "later"
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=333))
    with pytest.raises(LocalError, match="response"):
        x.b.pds.respond(TPDCID, 333, response, x.now)
    x.b.respond(333, "ok")
    x.b.sent("ACK", ack=333)


def test_quarantine_is_a_time() -> None:
    assert PdsConfig(pdcid_quarantine=0).pdcid_quarantine == 0
    with pytest.raises(LocalError, match="MSL, 0"):
        PdsConfig(pdcid_quarantine=True)


@pytest.mark.parametrize(("settings", "named"), [
    ({"mp_range": 32768}, "mp_range"), ({"mp_range": 200}, "steps of 128"), ({"spec_revision": "1.0.3"}, "1.0.1"),
    ({"max_pdcs": 65535}, "together 65535"), ({"inferred_loss": "probe", "tail_loss_time": 0}, "inferred_loss"),
    ({"secure_start": "expected", "pdcid_quarantine": 0}, "pdcid_quarantine"),
    ({"trimmable_ack_size": 20}, "steps of 16"), ({"default_mpr": 0}, "1 … 255"),
])  # fmt: skip
def test_what_cannot_be(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(LocalError, match=named):
        PdsConfig(**settings)


def test_target_asks_for_the_close_while_the_window_is_full() -> None:
    """pds.md §7.1: CLOSE_REQ waits for room like a request."""
    x = Ladder(default_mpr=1)
    x.b.pds.send_return(TPDCID, returned(200), x.now)
    x.b.poll()
    assert len(x.b.outbox) == 128
    x.b.outbox.clear()
    x.b.submit(AskClose(pdcid=TPDCID))
    x.b.silent()
    assert x.b.state is State.QUIESCE
