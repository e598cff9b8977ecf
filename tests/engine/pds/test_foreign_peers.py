# SPDX-License-Identifier: GPL-2.0-only
"""A source and a target with peers that do less than they could: what an exchange with the reference provider showed
(observed.md, "With our engines on the other end of a wire"), mended for every peer.
"""

import pytest

from tests.support.engine.world import KEY
from tests.support.ladders.ladder import IPDCID, MS, TPDCID, A, B, Ladder
from tests.support.ses.operations import Peers, content
from tests.support.ses.requests import completions
from uetproto.engine import Mode
from uetproto.engine.contract import Read
from uetproto.engine.pds.states import State
from uetproto.wire.headers.uet_pds import AckReq, NackCode, NextHdr, PdsType
from uetproto.wire.headers.uet_ses import ReturnCode
from uetproto.wire.tuples import PdsAckHeader, PdsNackHeader

KEEPS = [{"rod_gap": "reorder"}, {"rod_recovery": "selective"}]


def nack(code: NackCode, psn: int, retx: int = 0) -> bytes:
    return PdsNackHeader.pack(0, retx, 0, code, 0, psn, TPDCID, IPDCID, 0)


def ack(psn: int) -> bytes:
    return PdsAckHeader.pack(NextHdr.NONE, 0, 0, AckReq.NONE, 0, psn, TPDCID, IPDCID)


@pytest.mark.parametrize("config", KEEPS)
def test_a_pdc_whose_first_packet_is_lost(config: dict[str, str]) -> None:
    """pds.md §6.2 item 7: a target that buffers after gaps makes the PDC of psn_offset, and answers when all is
    there."""
    x = Ladder(Mode.ROD, established=False, b=config)
    x.a.send(3)
    first, second, third = (x.a.sent("REQ", psn=psn) for psn in (333, 334, 335))
    x.b.rx(third)
    x.b.rx(second)
    x.b.silent()
    assert (x.b.state, x.b.ses.delivered) == (State.ESTABLISHED, [])
    x.b.rx(first, retx=True)
    assert x.b.ses.delivered == [333, 334, 335]
    assert [sent.get("cack") for sent in x.b.outbox][-1] == 335


def test_a_pdc_whose_first_packet_is_lost_at_a_target_that_discards() -> None:
    x = Ladder(Mode.ROD, established=False)
    x.a.send(2)
    x.a.sent("REQ", psn=333)
    x.b.rx(x.a.sent("REQ", psn=334))
    x.b.sent("NACK", code=NackCode.ROD_OOO, payload=333)


@pytest.mark.parametrize(
    ("config", "code"), [*((config, NackCode.TRIMMED) for config in KEEPS), ({}, NackCode.ROD_OOO)]
)
def test_a_trimmed_packet_after_a_gap(config: dict[str, str], code: NackCode) -> None:
    """pds.md §14: a target that buffers after gaps wants this packet, and not the one before."""
    x = Ladder(Mode.ROD, b=config)
    x.a.send(2)
    x.a.sent("REQ", psn=333)
    x.b.rx(x.a.sent("REQ", psn=334), trimmed=True)
    x.b.sent("NACK", code=code, nack_psn=334)


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
def test_an_ack_req_without_an_answer(mode: Mode) -> None:
    """pds.md §11.1: then the packet is sent again; it is received as a duplicate, and answered as one."""
    x = Ladder(mode, max_rto_retx_cnt=5)
    x.a.send(1)
    lost = x.a.sent("REQ", psn=333)
    x.b.rx(lost)
    x.b.sent("ACK")  # lost
    x.a.rx_bytes(B, nack(NackCode.RCVD_SES_PROCG, 333))
    x.wait(1 * MS)
    x.a.sent("ACK_REQ", psn=333)  # dropped
    x.wait(2 * MS)
    x.b.rx(x.a.sent("REQ", psn=333, retx=1, ar=1))
    x.a.rx(x.b.sent("ACK", cack=333, retx=1))
    assert x.a.pdc.tx.records == {}


def test_an_ack_req_is_tried_again_after_its_answer() -> None:
    """pds.md §12: RCVD_SES_PROCG answers it: the response is still to come, and the data is there."""
    x = Ladder()
    x.a.send(1)
    x.a.sent("REQ", psn=333)
    for _ in range(4):
        x.a.rx_bytes(B, nack(NackCode.RCVD_SES_PROCG, 333))
        x.wait(2 * MS)
        x.a.sent("ACK_REQ", psn=333)


def test_a_silent_peer_still_ends_the_pdc() -> None:
    """ACK_REQs and retransmissions count together against Max_RTO_Retx_Cnt."""
    x = Ladder(max_rto_retx_cnt=3)
    x.a.send(1)
    x.a.sent("REQ", psn=333)
    x.a.rx_bytes(B, nack(NackCode.RCVD_SES_PROCG, 333))
    x.wait(100 * MS)
    assert [sent.kind for sent in x.a.outbox] == ["ACK_REQ", "REQ", "REQ"]
    assert x.a.state is State.CLOSED


def test_fewer_in_flight_beyond_the_window_of_the_peer() -> None:
    """pds.md §12: a packet that PSN_OOR_WINDOW refused waits for the window, and costs no try."""
    x = Ladder(Mode.RUD, max_nack_retx_cnt=1)
    x.a.send(10)
    for psn in range(333, 343):
        x.a.sent("REQ", psn=psn)
    for _ in range(3):
        for psn in range(337, 343):
            x.a.rx_bytes(B, nack(NackCode.PSN_OOR_WINDOW, psn))
    x.a.silent()
    assert x.a.pdc.tx.mp_range == 4
    x.a.rx_bytes(B, ack(334))
    assert [x.a.sent("REQ", psn=psn, retx=1).get("psn") for psn in (337, 338)] == [337, 338]
    x.a.silent()
    x.a.rx_bytes(B, ack(338))
    for psn in (339, 340, 341, 342):
        x.a.sent("REQ", psn=psn, retx=1)
    x.a.rx_bytes(B, ack(342))
    assert x.a.pdc.tx.mp_range == 8, "once all is acknowledged the window doubles"
    assert x.a.state is State.ESTABLISHED


def test_the_lowest_packet_beyond_the_window_of_the_peer() -> None:
    """pds.md §11.2: no smaller window would help: it is sent again after NACK_Retx_Time, so often."""
    x = Ladder(Mode.RUD, max_nack_retx_cnt=2)
    x.a.send(1)
    x.a.sent("REQ", psn=333)
    for _ in range(2):
        x.a.rx_bytes(B, nack(NackCode.PSN_OOR_WINDOW, 333))
        x.wait(MS)
        x.a.sent("REQ", psn=333, retx=1)
    x.a.rx_bytes(B, nack(NackCode.PSN_OOR_WINDOW, 333))
    assert x.a.state is State.CLOSED


@pytest.mark.parametrize(("knob", "waits"), [("constant", [1, 1, 1, 1]), ("double", [1, 2, 4, 8])])
def test_waits_after_a_resource_nack(knob: str, waits: list[int]) -> None:
    """`nack_backoff`, pds.md §11.2."""
    x = Ladder(Mode.RUD, nack_backoff=knob, rto_init_time=1000 * MS)
    x.a.send(2)
    x.a.sent("REQ", psn=333)
    x.a.sent("REQ", psn=334)
    for wait in waits:
        x.a.rx_bytes(B, nack(NackCode.NO_SES_MSG_AVAIL, 333))
        x.wait(wait * MS - 1)
        x.a.silent()
        x.wait(1)
        x.a.sent("REQ", psn=333, retx=1)


def test_pauses_of_different_lengths() -> None:
    """`nack_backoff` double: the packet that was refused less often goes first."""
    x = Ladder(Mode.RUD, nack_backoff="double", rto_init_time=1000 * MS)
    x.a.send(2)
    x.a.sent("REQ", psn=333)
    x.a.sent("REQ", psn=334)
    for wait in (1, 2):
        x.a.rx_bytes(B, nack(NackCode.NO_SES_MSG_AVAIL, 333))
        x.wait(wait * MS)
        x.a.sent("REQ", psn=333)
    x.a.rx_bytes(B, nack(NackCode.NO_SES_MSG_AVAIL, 333))
    x.a.rx_bytes(B, nack(NackCode.NO_SES_MSG_AVAIL, 334))
    x.wait(1 * MS)
    x.a.sent("REQ", psn=334)
    x.a.silent()
    x.wait(3 * MS)
    x.a.sent("REQ", psn=333)


class Outstanding:
    """This class counts the packets of reads whose data was not sent yet, as the frames between two ends show."""

    def __init__(self, peers: Peers) -> None:
        self.most = 0
        asked = told = 0
        for source, data in peers.sent:
            kind, next_hdr = data[0] >> 3, data[0] << 1 & 0xE | data[1] >> 7
            asked += source == A and kind in (PdsType.RUD_REQ, PdsType.ROD_REQ) and next_hdr == NextHdr.REQUEST_STD
            told += source != A and next_hdr == NextHdr.RESPONSE_DATA
            self.most = max(self.most, asked - told)


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
@pytest.mark.parametrize(("limit", "most"), [(0, 30), (8, 8), (1, 1)])
def test_reads_outstanding(mode: Mode, limit: int, most: int) -> None:
    """`max_reads`, observed.md: a packet of a read waits for the data of an earlier one."""
    x = Peers(bytearray(content(30 * 1024)), ses={"max_reads": limit, "payload_mtu": 1024})
    into = [bytearray(28 * 1024), bytearray(1500)]
    for buffer in into:
        x.submit(Read(peer=0, into=buffer, key=KEY, mode=mode))
    x.settle(2000)
    assert [done.ok for done in completions(x)] == [True, True]
    assert into == [content(30 * 1024)[: len(buffer)] for buffer in into]
    assert Outstanding(x).most == most
    assert x.a.initiator.reading == {}


@pytest.mark.parametrize("code", [ReturnCode.BAD_MKEY, ReturnCode.UNCOR_TRNSNT])
def test_reads_that_are_refused_make_room_for_others(code: ReturnCode) -> None:
    """An error answers a packet of a read as its data would; a MSG_ERROR asks for nothing."""
    x = Peers(bytearray(content(30 * 1024)), ses={"max_reads": 2, "payload_mtu": 1024})
    x.b.target.fault = lambda request: code if request.message_id == 1 else None
    into = [bytearray(9000), bytearray(9000)]
    for buffer in into:
        x.submit(Read(peer=0, into=buffer, key=KEY))
    x.settle(2000)
    assert [done.ok for done in completions(x)] == ([False, True] if code is ReturnCode.BAD_MKEY else [True, True])
    assert into[1] == content(9000)
    assert x.a.initiator.reading == {}
