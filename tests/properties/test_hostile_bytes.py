# SPDX-License-Identifier: GPL-2.0-only
"""Hostile input: NACK or silence as pds.md §6.3 says; no exception, no memory touched, none kept (§18 item 48)."""

import random
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.each import each
from tests.support.effort import effort, examples
from tests.support.ladders.ladder import FORWARD, IPDCID, TPDCID, A, B, End, Ladder, ScriptedSes
from tests.support.pds.headers import (
    build_ack,
    build_ack_cc,
    build_control,
    build_nack,
    build_request,
    build_rudi,
    build_syn_control,
    build_syn_request,
    build_uud,
)
from uetproto.engine import AskClose, Close, Datagram, Fep, Mode, Pds, PdsConfig, Preset, Region, Trim, Write
from uetproto.engine.contract import Buffer
from uetproto.engine.memory import BufferMemory
from uetproto.engine.pds.messages import Ack, Control, Message, Nack, Request, parse
from uetproto.engine.pds.states import State
from uetproto.engine.ses.headers import OPTIMIZED_KEY
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.uet_pds import CtlType, NackCode, NextHdr
from uetproto.wire.headers.uet_ses import REQUEST_MEDIUM, REQUEST_SMALL, REQUEST_STD, REQUEST_STD_SOM, Opcode
from uetproto.wire.mutate.havoc import mutate_transport, transport_headers
from uetproto.wire.serial import diff32

STD = NextHdr.REQUEST_STD
SES = bytes(44)
STRANGER = 0x0A0000FE
MS = 1_000_000_000


# Packets of A, written down ------------------------------------------------------------------------------------------


def request(
    mode: Mode = Mode.RUD, psn: int = 333, spdcid: int = IPDCID, dpdcid: int = TPDCID, *, clear: int | None = None,
    retx: int = 0, next_hdr: int = STD,
) -> bytes:  # fmt: skip
    """By default it clears nothing: CLEAR_PSN is 332."""
    offset = max(-1024, min(-1, diff32(332 if clear is None else clear, psn)))
    return build_request(mode, next_hdr, retx, 1, offset, psn, spdcid, dpdcid) + SES


def syn(psn: int = 500, offset: int = 0, spdcid: int = 21, mode: Mode = Mode.RUD, reserved: int = 0) -> bytes:
    return build_syn_request(mode, STD, 0, 1, -1 - offset, psn, spdcid, offset, reserved) + SES


def cp(kind: int, *, ar: int = 1, psn: int = 333, spdcid: int = IPDCID, dpdcid: int = TPDCID, isrod: int = 0) -> bytes:
    return build_control(kind, isrod, 0, ar, psn, spdcid, dpdcid)


def syn_cp(kind: int, *, psn: int = 500, offset: int = 0, spdcid: int = 21, isrod: int = 0) -> bytes:
    return build_syn_control(kind, isrod, 0, 1, psn, spdcid, offset)


def ack(psn: int = 333, cack: int = 333, spdcid: int = TPDCID, dpdcid: int = IPDCID) -> bytes:
    return build_ack(NextHdr.NONE, 0, 0, 0, psn - cack, cack, spdcid, dpdcid)


def fatal(spdcid: int = TPDCID, dpdcid: int = IPDCID) -> bytes:
    return build_nack(NackCode.INV_DPDCID, 0, 0, 333, spdcid, dpdcid)


AFTER_GAP = request(Mode.ROD, 335)
LATE_NOOP = syn_cp(CtlType.NOOP, psn=503, offset=3, isrod=1)
WRONG_NOOP = syn_cp(CtlType.NOOP, psn=334, offset=5, spdcid=IPDCID)
CLOSE_OF_B = cp(CtlType.CLOSE_CMD, psn=48, spdcid=TPDCID, dpdcid=IPDCID)


def arrives(end: End, data: bytes, source: int = A, trimmed: Trim = Trim.NO, marked: bool = False) -> list[Message]:
    """The packet arrives; what is sent in answer."""
    end.outbox.clear()
    end.pds.receive(
        Datagram(source, end.pds.address, data, trimmed=trimmed, ecn_marked=marked), end.ladder.now
    )  # fmt: skip
    end.poll()
    return [sent.message for sent in end.outbox]


# Every row of the table of §6.3 --------------------------------------------------------------------------------------


def idle(mode: Mode = Mode.RUD, **config: Any) -> Callable[[], End]:
    """The target of an ESTABLISHED PDC."""
    return lambda: Ladder(mode, **config).b


def waiting(mode: Mode = Mode.RUD, **config: Any) -> Callable[[], End]:
    """The same; SES has 333 and has not answered it."""

    def make() -> End:
        end = Ladder(mode, **config).b
        end.ses.otherwise = "later"
        arrives(end, request(mode))
        return end

    return make


def closing() -> End:
    """The target in ACK_WAIT: CLOSE_CMD with PSN 335, 333 and 334 are missing."""
    end = Ladder().b
    arrives(end, cp(CtlType.CLOSE_CMD, psn=335))
    assert end.state is State.ACK_WAIT
    return end


def refusing(code: NackCode) -> Callable[[], End]:
    """SES refuses what comes (`ses_nack`)."""

    def make() -> End:
        end = Ladder().b
        end.ses.otherwise = code
        return end

    return make


def answering(kind: str, **config: Any) -> Callable[[], End]:
    """The target has 333, which SES answered so."""

    def make() -> End:
        end = Ladder(**config).b
        end.ses.otherwise = kind
        arrives(end, request())
        return end

    return make


def empty(**config: Any) -> Callable[[], End]:
    """An endpoint without PDCs."""
    return lambda: Ladder(established=False, **config).b


def initiator() -> End:
    """The initiator of an ESTABLISHED PDC."""
    return Ladder().a


class Row(NamedTuple):
    """What arrives, and the NACK that answers it; None: silence."""

    row: str
    """Number of the row, and what it is about."""
    at: Callable[[], End]
    code: NackCode | None
    spdcid: int
    data: bytes
    source: int = A
    trimmed: Trim = Trim.NO
    payload: int = 0


N, RUD, ROD = NackCode, Mode.RUD, Mode.ROD
CUT, LAST = {"trimmed": Trim.TRIMMED}, {"trimmed": Trim.LAST_HOP}
STRANGE, FROM_B = {"source": STRANGER}, {"source": B}
NO_ROOM = {"max_pdcs": 1, "close_thresh": 0}
TINY = {"max_packet_buffers": 1}
ME, NOBODY = TPDCID, 0
ROWS = [
    # row                      at                 answer                spdcid  what arrives
    Row("1 empty",             idle(),            None,                 NOBODY, b""),
    Row("1 type",              idle(),            None,                 NOBODY, bytes(40)),
    Row("1 short",             idle(),            None,                 NOBODY, request()[:55]),
    Row("1 short CP",          idle(),            None,                 NOBODY, cp(CtlType.NOOP)[:15]),
    Row("1 next_hdr",          idle(),            None,                 NOBODY, request(next_hdr=NextHdr.RESPONSE)),
    Row("1 next_hdr",          idle(),            None,                 NOBODY, request(next_hdr=NextHdr.NONE)),
    Row("1 next_hdr",          idle(),            None,                 NOBODY, request(next_hdr=7)),
    Row("2 RUD",               idle(),            N.TRIMMED,            ME,     request()[:16], **CUT),
    Row("2 last hop",          idle(),            N.TRIMMED_LASTHOP,    ME,     request()[:16], **LAST),
    Row("2 RUD again",         waiting(),         None,                 NOBODY, request()[:16], **CUT),
    Row("2 ROD",               idle(ROD),         N.TRIMMED,            ME,     request(ROD)[:16], **CUT),
    Row("2 ROD gap",           idle(ROD),         N.ROD_OOO,            ME,     AFTER_GAP[:16], **CUT, payload=333),
    Row("2 SYN",               idle(),            None,                 NOBODY, syn()[:16], **CUT),
    Row("2 ACK",               initiator,         None,                 NOBODY, ack(), **FROM_B, **CUT),
    Row("2 CP",                idle(),            None,                 NOBODY, cp(CtlType.NOOP), **CUT),
    Row("2 UUD",               idle(),            None,                 NOBODY, build_uud(STD) + SES, **CUT),
    Row("3 dpdcid",            initiator,         None,                 NOBODY, ack(dpdcid=99), **FROM_B),
    Row("3 spdcid",            initiator,         None,                 NOBODY, ack(spdcid=99), **FROM_B),
    Row("3 address",           initiator,         None,                 NOBODY, ack(), **STRANGE),
    Row("3 dpdcid",            initiator,         None,                 NOBODY, fatal(dpdcid=99), **FROM_B),
    Row("3 spdcid",            initiator,         None,                 NOBODY, fatal(spdcid=99), **FROM_B),
    Row("3 address",           initiator,         None,                 NOBODY, fatal(), **STRANGE),
    Row("6 PDC",               idle(**NO_ROOM),   N.NO_PDC_AVAIL,       NOBODY, syn()),
    Row("6 PDC",               idle(**NO_ROOM),   N.NO_PDC_AVAIL,       NOBODY, syn_cp(CtlType.NOOP)),
    Row("6 reserved",          empty(reserved_pdcs=0), N.NO_PDC_AVAIL,  NOBODY, syn(reserved=1)),
    Row("6 CCC",               idle(max_cccs=1),  N.NO_CCC_AVAIL,       NOBODY, syn(), **STRANGE),
    Row("6 bitmap",            idle(max_bitmaps=1), N.NO_BITMAP,        NOBODY, syn()),
    Row("6 before 8",          idle(ROD, **NO_ROOM), N.NO_PDC_AVAIL,    NOBODY, syn(501, 1, mode=ROD)),
    Row("8 request",           empty(),           N.ROD_OOO,            NOBODY, syn(503, 3, mode=ROD), payload=500),
    Row("8 CP",                empty(),           N.ROD_OOO,            NOBODY, LATE_NOOP, payload=500),
    Row("9 request",           idle(),            N.INVALID_SYN,        ME,     syn(334, 5, IPDCID)),
    Row("9 CP",                idle(),            N.INVALID_SYN,        ME,     WRONG_NOOP),
    Row("9 before 13",         idle(),            N.INVALID_SYN,        ME,     syn(334, 5, IPDCID, ROD)),
    Row("10",                  initiator,         N.INVALID_SYN,        IPDCID, syn(48, 0, TPDCID), **FROM_B),
    Row("11",                  idle(),            N.INV_DPDCID,         NOBODY, request(dpdcid=99)),
    Row("11",                  empty(),           N.INV_DPDCID,         NOBODY, request()),
    Row("11 CP",               empty(),           N.INV_DPDCID,         NOBODY, cp(CtlType.NOOP)),
    Row("11 CP, ar = 0",       empty(),           None,                 NOBODY, cp(CtlType.CLEAR_CMD, ar=0, psn=0)),
    Row("11 before 12",        idle(),            N.INV_DPDCID,         NOBODY, request(dpdcid=99), **STRANGE),
    Row("12 address",          idle(),            N.PDC_HDR_MISMATCH,   NOBODY, request(), **STRANGE),
    Row("12 spdcid",           idle(),            N.PDC_HDR_MISMATCH,   NOBODY, request(spdcid=8)),
    Row("12 spdcid",           idle(),            N.PDC_HDR_MISMATCH,   NOBODY, request(spdcid=0)),
    Row("12 CP",               idle(),            N.PDC_HDR_MISMATCH,   NOBODY, cp(CtlType.NOOP, spdcid=8)),
    Row("12 before 13",        idle(),            N.PDC_HDR_MISMATCH,   NOBODY, request(ROD, spdcid=8)),
    Row("13 ROD on RUD",       idle(),            N.PDC_MODE_MISMATCH,  ME,     request(ROD)),
    Row("13 RUD on ROD",       idle(ROD),         N.PDC_MODE_MISMATCH,  ME,     request()),
    Row("13 isrod",            idle(),            N.PDC_MODE_MISMATCH,  ME,     cp(CtlType.NOOP, isrod=1)),
    Row("13 before 14",        closing,           N.PDC_MODE_MISMATCH,  ME,     request(ROD, 336)),
    Row("14 closing",          closing,           N.CLOSING,            ME,     request(psn=336)),
    Row("14 before 15",        closing,           N.CLOSING,            ME,     request(psn=5000)),
    Row("14 role",             idle(),            N.UNEXP_EVENT,        ME,     cp(CtlType.CLOSE_REQ)),
    Row("14 role",             initiator,         N.UNEXP_EVENT,        IPDCID, CLOSE_OF_B, **FROM_B),
    Row("14 type",             idle(),            N.UNEXP_EVENT,        ME,     cp(15)),
    Row("14 type, ar = 0",     idle(),            None,                 NOBODY, cp(15, ar=0)),
    Row("15 ahead",            idle(),            N.PSN_OOR_WINDOW,     ME,     request(psn=333 + 1024)),
    Row("15 ahead, CP",        idle(),            N.PSN_OOR_WINDOW,     ME,     cp(CtlType.NOOP, psn=333 + 1024)),
    Row("15 MP_RANGE",         idle(mp_range=128), N.PSN_OOR_WINDOW,    ME,     request(psn=333 + 128)),
    Row("15 below Start_PSN",  idle(),            None,                 NOBODY, request(psn=332)),
    Row("15 behind",           idle(),            None,                 NOBODY, request(psn=(332 - 1024) % 2**32)),
    Row("15 −2^31",            idle(),            None,                 NOBODY, request(psn=332 + 2**31)),
    Row("15 gap",              idle(ROD),         N.ROD_OOO,            ME,     AFTER_GAP, payload=333),
    Row("15 waits, retx",      waiting(),         N.RCVD_SES_PROCG,     ME,     request(retx=1)),
    Row("15 waits",            waiting(),         None,                 NOBODY, request()),
    Row("15 answered",         answering("ok"),   None,                 NOBODY, request()),
    Row("15 guaranteed",       answering("gtd"),  None,                 NOBODY, request()),
    Row("15 ACK_REQ, waits",   waiting(),         N.RCVD_SES_PROCG,     ME,     cp(CtlType.ACK_REQ)),
    Row("15 ACK_REQ, none",    idle(),            N.PKT_NOT_RCVD,       ME,     cp(CtlType.ACK_REQ)),
    Row("15 ACK_REQ, ahead",   idle(),            None,                 NOBODY, cp(CtlType.ACK_REQ, psn=333 + 1024)),
    Row("15 before 16",        waiting(**TINY),   N.PSN_OOR_WINDOW,     ME,     request(psn=333 + 1024)),
    Row("16 buffer",           waiting(**TINY),   N.NO_PKT_BUFFER,      ME,     request(psn=334)),
    Row("16 storage",          answering("gtd", max_gtd_del=1), N.NO_GTD_DEL_AVAIL, ME, request(psn=334)),
    Row("16 SES",              refusing(N.NO_SES_MSG_AVAIL), N.NO_SES_MSG_AVAIL, ME, request()),
    Row("16 SES",              refusing(N.NO_RESOURCE), N.NO_RESOURCE,  ME,     request()),
    Row("16 SES",              refusing(N.RCVR_INFER_LOSS), N.RCVR_INFER_LOSS, ME, request()),
]  # fmt: skip


@each("case", ROWS)
def test_row(case: Row) -> None:
    """Exactly this NACK or nothing; and nothing changes, except by CLEAR (item 34)."""
    end = case.at()
    before, delivered = numbers(end.pds), list(end.ses.delivered)
    answers = arrives(end, case.data, case.source, case.trimmed)
    assert end.ses.delivered == delivered
    assert numbers(end.pds) == before
    if case.code is None:
        assert answers == []
        return
    (nack,) = answers
    assert isinstance(nack, Nack)
    assert (NackCode(nack.code), nack.spdcid, nack.rudi) == (case.code, case.spdcid, 0)
    offender = parse(case.data, case.trimmed)
    assert isinstance(offender, Request | Control)
    assert (nack.psn, nack.dpdcid, nack.retx) == (offender.psn, offender.spdcid, offender.retx)
    if case.payload:
        assert nack.payload == case.payload
    assert end.outbox[0].packet.dst == case.source
    assert end.pds.nack_tx[case.code] >= 1


def test_a_nack_copies_ecn_and_retx() -> None:
    for marked in (False, True):
        for retx in (0, 1):
            (nack,) = arrives(Ladder().b, request(dpdcid=99, retx=retx), marked=marked)
            assert isinstance(nack, Nack)
            assert (bool(nack.marked), nack.retx) == (marked, retx)


@pytest.mark.parametrize("kind", [k for k in CtlType if k not in (CtlType.NOOP, CtlType.NEGOTIATION)])
def test_row_5_only_two_control_packets_open_a_pdc(kind: CtlType) -> None:
    end = empty()()
    assert arrives(end, syn_cp(kind)) == []
    assert not end.pds.pdcs


def test_row_4_an_ack_teaches_the_pdcid_of_the_target() -> None:
    x = Ladder(established=False)
    x.a.send(2, now=1)
    x.a.outbox.clear()
    assert x.a.state is State.CREATING
    assert arrives(x.a, ack(FORWARD, FORWARD, spdcid=0), source=B) == []
    assert x.a.state is State.CREATING, "0 is nobody's PDCID"
    arrives(x.a, ack(FORWARD, FORWARD, spdcid=55), source=B)
    assert (x.a.state, x.a.pdc.peer_id) == (State.ESTABLISHED, 55)


@pytest.mark.parametrize("policy", ["random", "expected"])
def test_row_7_secure_start(policy: str) -> None:
    """PENDING and NEW_START_PSN, before row 8; nothing is delivered until the Start_PSN demanded comes."""
    end = empty(secure_start=policy)()
    if policy == "expected":
        arrives(end, syn(10_000, spdcid=5))
        arrives(end, cp(CtlType.CLOSE_CMD, psn=10_001, spdcid=5, dpdcid=end.pdc.local_id))
        assert end.ses.delivered == [10_000]
    end.ses.delivered.clear()
    for data in (syn(503, 3, mode=ROD), syn(503, 3, mode=ROD)):
        (nack,) = arrives(end, data)
        assert isinstance(nack, Nack)
        assert NackCode(nack.code) is NackCode.NEW_START_PSN
        assert end.state is State.PENDING
    demanded = nack.payload
    assert demanded == 10_002 or policy == "random"
    assert end.ses.delivered == []
    arrives(end, syn(demanded, 0, mode=ROD))
    assert (end.ses.delivered, end.state) == ([demanded], State.ESTABLISHED)


@pytest.mark.parametrize(
    ("data", "trimmed", "counts"),
    [
        (request(psn=333 + 1024, clear=333), Trim.NO, True),  # row 15
        (request(psn=333, clear=333 - 1), Trim.NO, False),
        (request(psn=335, clear=333, spdcid=8), Trim.NO, False),  # row 12
        (request(ROD, psn=335, clear=333), Trim.NO, False),  # row 13
        (request(psn=335, clear=333)[:16], Trim.TRIMMED, False),
    ],
)
def test_clear_counts_once_rows_1_to_14_are_passed(data: bytes, trimmed: Trim, counts: bool) -> None:
    """pds.md §6.3, last paragraph."""
    end = answering("gtd")()
    arrives(end, data, trimmed=trimmed)
    assert end.pdc.rx.max_clear == (333 if counts else 332)
    assert end.pdc.rx.cack == (333 if counts else 332)


def test_refused_for_want_of_storage_and_yet_cleared() -> None:
    """Row 16 with a CLEAR that makes room: the next copy is taken (pds.md §7.1)."""
    end = answering("gtd", max_gtd_del=1)()
    arrives(end, request(psn=334, clear=333))
    assert end.ses.delivered == [333, 334]
    (nack,) = arrives(end, request(psn=335, clear=333))
    assert isinstance(nack, Nack)
    assert NackCode(nack.code) is NackCode.NO_GTD_DEL_AVAIL


def test_rudi_and_uud_of_strangers() -> None:
    """pds.md §14, §15: no state, no PDC; a trimmed RUDI request is refused, UUD never answered."""
    end = empty()()
    (nack,) = arrives(end, build_rudi(False, STD, 0, 0, 77), STRANGER, Trim.TRIMMED)
    assert isinstance(nack, Nack)
    assert (NackCode(nack.code), nack.rudi, nack.psn, nack.spdcid, nack.dpdcid) == (NackCode.TRIMMED, 1, 77, 0, 0)
    assert arrives(end, build_rudi(True, NextHdr.RESPONSE, 0, 0, 77) + bytes(12), STRANGER) == []
    assert arrives(end, build_nack(NackCode.NO_RESOURCE, 0, 0, 77, 0, 0, rudi=1), STRANGER) == []
    assert arrives(end, build_uud(STD) + SES, STRANGER) == []
    assert not end.pds.pdcs


# Every state ---------------------------------------------------------------------------------------------------------


def numbers(pds: Pds) -> object:
    """All that a packet could change: of each PDC state, PSNs of both spaces, what is in flight and what is stored."""
    return [
        (
            pdc.local_id, pdc.peer, pdc.peer_id, pdc.state, pdc.tx.una, pdc.tx.next, pdc.tx.peer_cack, pdc.rx.cack,
            pdc.rx.max_clear, pdc.rx.max_rcvd, [(psn, record.dst_rcvd) for psn, record in pdc.tx.records.items()],
            {psn: type(slot) for psn, slot in pdc.rx.slots.items()},
        )
        for pdc in pds.pdcs.values()
    ]  # fmt: skip


def established(mode: Mode) -> Ladder:
    """Something is on its way in the forward direction, something arrived, and the last of it is not answered."""
    x = Ladder(mode)
    x.b.ses.script = {334: "gtd", 335: "later"}
    x.a.send(5)
    for sent in x.a.outbox[:3]:
        x.b.rx(sent)
    return x


def creating(mode: Mode) -> Ladder:
    x = Ladder(mode, established=False)
    x.a.send(4)
    return x


def quiesce(mode: Mode) -> Ladder:
    x = Ladder(mode)
    x.a.send(3, now=1)
    x.a.submit(Close(peer=B))
    return x


def ack_wait(mode: Mode) -> Ladder:
    x = Ladder(mode)
    x.a.send(2)
    x.a.submit(Close(peer=B))
    return x


def close_ack_wait(mode: Mode) -> Ladder:
    x = Ladder(mode)
    x.a.submit(Close(peer=B))
    return x


def pending(mode: Mode) -> Ladder:
    x = Ladder(mode, established=False, b={"secure_start": "random"})
    x.a.send(2)
    x.b.rx(x.a.outbox[0])
    return x


def asked_to_close(mode: Mode) -> Ladder:
    x = Ladder(mode)
    x.b.submit(AskClose(pdcid=TPDCID))
    return x


def draining(mode: Mode) -> Ladder:
    x = asked_to_close(mode)
    x.b.rx_bytes(A, cp(CtlType.CLOSE_CMD, isrod=int(mode is Mode.ROD)))
    return x


def closed(mode: Mode) -> Ladder:
    """The PDCID rests, the tombstone stands."""
    x = Ladder(mode)
    assert x.b.state is State.ESTABLISHED
    x.b.rx_bytes(A, cp(CtlType.CLOSE_CMD, isrod=int(mode is Mode.ROD)))
    return x


STATES: dict[str, tuple[Callable[[Mode], Ladder], str, State]] = {
    "initiator CREATING":       (creating,       "a", State.CREATING),
    "initiator ESTABLISHED":    (established,    "a", State.ESTABLISHED),
    "initiator QUIESCE":        (quiesce,        "a", State.QUIESCE),
    "initiator ACK_WAIT":       (ack_wait,       "a", State.ACK_WAIT),
    "initiator CLOSE_ACK_WAIT": (close_ack_wait, "a", State.CLOSE_ACK_WAIT),
    "target PENDING":           (pending,        "b", State.PENDING),
    "target ESTABLISHED":       (established,    "b", State.ESTABLISHED),
    "target QUIESCE":           (asked_to_close, "b", State.QUIESCE),
    "target ACK_WAIT":          (draining,       "b", State.ACK_WAIT),
    "target CLOSED":            (closed,         "b", State.CLOSED),
}  # fmt: skip


def at(state: str, mode: Mode) -> End:
    make, end, wanted = STATES[state]
    found: End = getattr(make(mode), end)
    assert found.state is wanted
    found.outbox.clear()
    return found


def valid_packets(end: End, mode: Mode) -> list[bytes]:
    """Packets of every type that the peer of this PDC could send now."""
    pdc = end.pdc
    ours, theirs = pdc.local_id, pdc.peer_id or 9
    psn, rod = (pdc.rx.max_rcvd + 1) & 0xFFFFFFFF, int(mode is Mode.ROD)
    sent = pdc.tx.una
    kinds = [request(mode, psn + more, theirs, ours, clear=pdc.rx.cack) for more in (0, 1, 5)]
    kinds += [request(mode, psn - 1, theirs, ours, retx=1, clear=psn - 2)]
    kinds += [syn(psn, 0, theirs, mode), syn(psn, 0, 77, mode)]
    kinds += [cp(kind, psn=psn, spdcid=theirs, dpdcid=ours, isrod=rod) for kind in CtlType]
    kinds += [syn_cp(CtlType.NOOP, psn=psn, spdcid=theirs, isrod=rod)]
    kinds += [build_ack(NextHdr.NONE, 0, 0, req, 0, sent, theirs, ours) for req in (0, 1, 2)]
    kinds += [build_ack_cc(NextHdr.NONE, 0, 0, 0, 0, sent - 1, theirs, ours, 8, 1, 0b1010)]
    kinds += [build_nack(code, 0, 0, sent, theirs, ours, sent) for code in NackCode]
    kinds += [build_rudi(False, STD, 0, 0, 5) + SES, build_rudi(True, NextHdr.RESPONSE, 0, 0, 5) + bytes(12)]
    return [*kinds, build_uud(STD) + SES]


def passes(end: End, mode: Mode, source: int, data: bytes) -> bool:
    """Rows 1 to 13 of §6.3, read once more: whether this packet may change the PDC, or open another one."""
    headers = transport_headers(data)
    if not headers:
        return False
    header, values = headers[0][0], codec_of(headers[0][0]).decode(data)
    pdc = end.pdc
    alive = bool(end.pds.pdcs)
    known = alive and source == pdc.peer
    name = header.name.removeprefix("pds.")
    if name.startswith(("rudi", "uud")):
        return False
    if name.startswith(("ack", "nack")):
        learns = pdc.state is State.CREATING and values["spdcid"] != 0
        unknown = name.startswith("nack") and values["spdcid"] == 0
        fits = values["spdcid"] == pdc.peer_id or learns or unknown
        return known and values["dpdcid"] == pdc.local_id and fits and ".rudi" not in name
    if values["type"] != 11 and len(headers) < 2:
        return False  # no SES header
    of_rod = bool(values["isrod"]) if values["type"] == 11 else values["type"] in (3, 14)
    if name.endswith(".syn"):
        start = (values["psn"] - values["psn_offset"]) & 0xFFFFFFFF
        if known and values["spdcid"] == pdc.peer_id != 0:
            no_psn = values["type"] == 11 and values["psn"] == 0
            good = start == pdc.rx.start or no_psn or pdc.state is State.PENDING
            return end.name == "B" and good and of_rod is (mode is Mode.ROD)
        return not of_rod or values["psn"] == start
    learns = pdc.state is State.CREATING and values["spdcid"] != 0
    mine = known and values["dpdcid"] == pdc.local_id and (values["spdcid"] == pdc.peer_id or learns)
    return mine and of_rod is (mode is Mode.ROD)


def with_one_field_changed(data: bytes, rng: random.Random) -> bytes:
    """One field of the PDS header gets a border, a neighbour, another bit, or anything."""
    header, at = transport_headers(data)[0]
    field = rng.choice(header.fields)
    values = codec_of(header).decode(data, at)
    before = values[field.name]
    after = rng.choice((field.low, field.high, before + 1, before - 1, before ^ 1, rng.getrandbits(field.bits)))
    values[field.name] = (after - field.low) % (1 << field.bits) + field.low
    return codec_of(header).encode(values) + data[header.size :]


every_state = pytest.mark.parametrize("state", STATES)
both_modes = pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD], ids=lambda mode: mode.name)


@every_state
@both_modes
def test_one_field_changed(state: str, mode: Mode) -> None:
    """Item 48: what does not pass §6.3 changes nothing, delivers nothing, and is answered by one NACK at most."""
    refused, runs = 0, effort(50, 150, 20_000)
    for seed in range(runs):
        rng = random.Random(f"{state} {mode} {seed}")
        end = at(state, mode)
        data = with_one_field_changed(rng.choice(valid_packets(end, mode)), rng)
        source = STRANGER if rng.random() < 0.1 else end.pdc.peer
        accepted = passes(end, mode, source, data)
        before, delivered = numbers(end.pds), list(end.ses.delivered)
        answers = arrives(end, data, source)
        if not accepted:
            refused += 1
            assert numbers(end.pds) == before, (seed, data.hex())
            assert len(answers) <= 1
            if not _without_pdc(data):
                assert end.ses.delivered == delivered, (seed, data.hex())
                assert all(isinstance(answer, Nack) for answer in answers)
        if _type(data) in (7, 8, 9, 10, 12) and end.state is not State.CLOSED:  # an ACK may let the closing ACK go
            assert not [a for a in answers if isinstance(a, Ack | Nack)], "item 33"
        assert len(set(end.ses.delivered)) == len(end.ses.delivered), "item 1"
        check_order(end)
    assert refused > runs / 8


def _type(data: bytes) -> int:
    return data[0] >> 3 if data else 0


def _without_pdc(data: bytes) -> bool:
    """RUDI and UUD requests are delivered each time, and answered without a PDC."""
    return _type(data) in (4, 6)


def check_order(end: End) -> None:
    """Items 12 and 13."""
    for pdc in end.pds.pdcs.values():
        assert diff32(pdc.rx.max_clear, pdc.rx.cack) <= 0
        assert diff32(pdc.rx.cack, pdc.rx.max_rcvd) <= 0
        assert diff32(pdc.tx.peer_cack, pdc.tx.una) < 0
        assert diff32(pdc.tx.una, pdc.tx.next) <= 0


@every_state
@both_modes
def test_random_mutated_and_truncated_packets(state: str, mode: Mode) -> None:
    """One after the other, whatever they make of the endpoint; now and then time passes."""
    for seed in range(effort(2, 4, 400)):
        rng = random.Random(f"{state} {mode} {seed}")
        end = at(state, mode)
        packets = valid_packets(end, mode)
        for _ in range(60):
            data = rng.randbytes(rng.randrange(80)) if rng.random() < 0.1 else rng.choice(packets)
            data = mutate_transport(data, rng, rng.choice(packets)) if rng.random() < 0.8 else data
            data = data[: rng.randrange(len(data) + 1)] if rng.random() < 0.1 else data
            source = rng.choice((end.pdc.peer, end.pdc.peer, STRANGER))
            trimmed = rng.choice((Trim.NO, Trim.NO, Trim.NO, Trim.TRIMMED, Trim.LAST_HOP))
            arrives(end, data, source, trimmed, rng.random() < 0.2)
            assert {sent.packet.dst for sent in end.outbox} <= {source, end.pdc.peer, A, B, STRANGER}
            check_order(end)
            if rng.random() < 0.1:
                end.ladder.wait(rng.choice((1, MS, 100 * MS, 5000 * MS)))
                end.outbox.clear()


@given(data=st.binary(max_size=100), trimmed=st.sampled_from(Trim), state=st.sampled_from(sorted(STATES)))
@examples(100)
def test_arbitrary_bytes(data: bytes, trimmed: Trim, state: str) -> None:
    end = at(state, Mode.RUD)
    arrives(end, data, end.pdc.peer, trimmed)
    check_order(end)


# Memory of the application -------------------------------------------------------------------------------------------

KEY, JOB, SIZE = 7, 101, 20_000


class Witness(BufferMemory):
    """Memory that takes only what the packet at hand says, as the tables read it."""

    def __init__(self, size: int) -> None:
        super().__init__(bytearray(size))
        self.packet = b""
        self.writes = 0

    def write(self, offset: int, data: Buffer) -> None:
        ses, at = next(found for found in transport_headers(self.packet) if found[0].name.startswith("ses.request"))
        values = codec_of(ses).decode(self.packet, at)
        start = values.get("buffer_offset", 0)
        assert (values["opcode"], values["version"], values["ie"]) == (Opcode.WRITE, 0, 0)
        key = values.get("memory_key", OPTIMIZED_KEY | values["resource_index"])
        assert (values["job_id"], values["pid_on_fep"], key) == (JOB, 0, KEY)
        assert offset == start + values.get("message_offset", 0)
        assert start + values["request_length"] <= self.length
        assert bytes(data) == self.packet[at + ses.size :]
        assert offset + len(data) <= start + values["request_length"]
        self.writes += 1
        super().write(offset, data)


def pair(mode: Mode, seed: int) -> tuple[Fep, Fep, Witness]:
    """A writes into memory of B; half of the packets have arrived, both ends are in mid-conversation."""
    a, b = Fep(A, random.Random(seed)), Fep(B, random.Random(seed + 1))
    memory = Witness(SIZE)
    b.attach(JOB).register(Region(KEY, memory))
    rng = random.Random(seed)
    for number in range(3):
        a.submit(Write(peer=B, data=rng.randbytes(6000), key=KEY, job_id=JOB, offset=6000 * number, mode=mode), 0)
    return a, b, memory


@both_modes
@pytest.mark.parametrize("seed", range(effort(3, 6, 2000)))
def test_memory_only_by_packets_that_say_so(mode: Mode, seed: int) -> None:
    """Every write is what the packet that just arrived says, from its key to its last byte."""
    rng = random.Random(seed)
    a, b, memory = pair(mode, seed)
    seen: list[bytes] = []
    flight = [bytes(p.header) + bytes(p.payload) for p in a.poll(0)]
    now = 0
    for _ in range(150):
        seen += flight[:4]
        data = flight.pop(0) if flight and rng.random() < 0.2 else rng.choice(seen)
        if rng.random() < 0.7:
            data = mutate_transport(data, rng, rng.choice(seen))
        memory.packet = data
        b.receive(Datagram(A, B, data), now)
        answers = b.poll(now)
        b.events()
        for answer in answers:
            reply = bytes(answer.header) + bytes(answer.payload)
            a.receive(Datagram(B, A, mutate_transport(reply, rng, data) if rng.random() < 0.3 else reply), now)
        flight += [bytes(p.header) + bytes(p.payload) for p in a.poll(now)]
        a.events()
        now += rng.choice((0, 0, MS // 10))
    assert memory.writes


BORDERS = (0, 1, 1024, SIZE - 4096, SIZE - 1, SIZE, SIZE + 1, 2**31, 2**32 - 1, 2**63, 2**64 - SIZE, 2**64 - 1)
HEADERS = {STD: (REQUEST_STD, REQUEST_STD_SOM), NextHdr.REQUEST_MEDIUM: (REQUEST_MEDIUM,),
           NextHdr.REQUEST_SMALL: (REQUEST_SMALL,)}  # fmt: skip


def any_write(rng: random.Random) -> tuple[int, bytes]:
    """next_hdr, and a WRITE whose place, length, key, or anything else is a border or just wrong."""
    next_hdr = rng.choice(list(HEADERS))
    header = rng.choice(HEADERS[next_hdr])
    values = {"opcode": Opcode.WRITE, "rel": 1, "job_id": JOB, "memory_key": KEY, "resource_index": 15, "eom": 1}
    values["som"] = int(header is not REQUEST_STD)
    payload = rng.choice((0, 1, 16, 1024, 4096))
    values |= {"request_length": rng.choice((payload, payload, *BORDERS)), "payload_length": payload}
    values |= {"buffer_offset": rng.choice((*BORDERS, SIZE - payload)), "message_offset": rng.choice((4096, *BORDERS))}
    values["message_id"] = rng.randrange(4)
    if rng.random() < 0.3:
        name = rng.choice(header.names)
        values[name] = rng.getrandbits(header[name].bits)
    fitting = {name: value & header[name].high for name, value in values.items() if name in header.names}
    return next_hdr, codec_of(header).encode(fitting) + rng.randbytes(payload)


@both_modes
def test_writes_at_the_borders_of_a_region(mode: Mode) -> None:
    """Well delivered, and wrong above that: SES refuses, or writes exactly what the packet says, inside the region."""
    written, runs = 0, effort(15, 40, 4000)
    for seed in range(runs):
        rng = random.Random(seed)
        end, memory = Fep(B, random.Random(seed)), Witness(SIZE)
        end.attach(JOB).register(Region(KEY, memory))
        end.pds.adopt(A, mode, False, Preset(pdcid=TPDCID, peer_pdcid=IPDCID, forward_next=333, return_next=48))
        for psn in range(333, 333 + 60):
            next_hdr, ses = any_write(rng)
            memory.packet = build_request(mode, next_hdr, 0, 1, -1, psn, IPDCID, TPDCID) + ses
            end.receive(Datagram(A, B, memory.packet), 0)
            end.poll(0)
        written += memory.writes
    assert written > runs


# Floods --------------------------------------------------------------------------------------------------------------

FLOOD = effort(2_500, 50_000, 1_000_000)
SHORT_FLOOD = effort(3_000, 10_000, 1_000_000)


def grown(packets: Iterator[tuple[int, bytes]], end: Fep | Pds, warm: int) -> int:
    """Bytes of memory that stay allocated after the packets behind the first `warm`."""
    before = 0
    notes = end.user.delivered if isinstance(end, Pds) and isinstance(end.user, ScriptedSes) else []
    tracemalloc.start()
    try:
        for number, (source, data) in enumerate(packets):
            end.receive(Datagram(source, B, data), 0)
            end.poll(0)
            end.events()
            notes.clear()  # what the test itself writes down
            if number == warm:
                before = tracemalloc.get_traced_memory()[0]
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_a_flood_of_syns_from_changing_sources() -> None:
    """At most the configured number of PDCs is left; the others got NO_PDC_AVAIL; memory does not grow."""
    config = PdsConfig(max_pdcs=500, reserved_pdcs=16)
    end = Fep(B, random.Random(1), pds=config)
    flood = (
        (0x0B000000 + number, syn(number * 7919 & 0xFFFFFFFF, 0, number % 65535 + 1, reserved=int(number % 3 == 0)))
        for number in range(FLOOD)
    )
    assert grown(flood, end, 2000) < 64 << 10
    assert len(end.pds.pdcs) == 500 + 16
    assert end.pds.nack_tx[NackCode.NO_PDC_AVAIL] == FLOOD - 516


@pytest.mark.parametrize("policy", ["random", "expected"])
def test_a_flood_of_syns_with_secure_start(policy: str) -> None:
    """PENDING PDCs count, and go with New_PDC_Time."""
    config = PdsConfig(max_pdcs=100, secure_start=policy)
    end = Fep(B, random.Random(1), pds=config)
    packets = ((0x0B000000 + n, syn(n * 7919 & 0xFFFFFFFF, 0, n % 65535 + 1)) for n in range(SHORT_FLOOD))
    assert grown(packets, end, 2000) < 64 << 10
    assert len(end.pds.pdcs) == 100


def opened_and_closed(count: int) -> Iterator[tuple[int, bytes]]:
    for number in range(count):
        source, spdcid = 0x0B000000 + number // 60_000, number % 60_000 + 1
        yield source, syn(1000, 0, spdcid)
        yield source, cp(CtlType.CLOSE_CMD, psn=1001, spdcid=spdcid, dpdcid=number % 65535 + 1)


def test_a_flood_of_pdcs_opened_and_closed() -> None:
    """PDCIDs rest for MSL, so there are never more tombstones than PDCIDs; each is small; MSL later all are gone."""
    end = Fep(B, random.Random(1))
    count = effort(2_000, 3_000, 100_000)
    tombs = min(count, 65_535)
    assert grown(opened_and_closed(count), end, 0) < tombs * 4096
    assert not end.pds.pdcs
    later = end.pds.config.msl + 1
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    end.receive(Datagram(A, B, syn()), later)
    end.poll(later)
    assert len(end.pds.pdcs) == 1
    assert tracemalloc.get_traced_memory()[0] - before < 64 << 10
    tracemalloc.stop()


def flood_of(name: str, number: int) -> bytes:
    """One packet of a flood: for PDCs that do not exist, or for the one that does."""
    rng = random.Random(number)
    psn, spdcid, dpdcid = rng.getrandbits(32), rng.getrandbits(16), rng.choice((TPDCID, rng.getrandbits(16)))
    if name == "ACK":
        bitmap = rng.getrandbits(64)
        return build_ack_cc(NextHdr.NONE, 0, 0, 0, rng.randrange(-99, 99), psn, spdcid, dpdcid, 8, 0, bitmap)
    if name == "NACK":
        return build_nack(rng.randrange(256), 0, 0, psn, spdcid, dpdcid, rng.getrandbits(32), rng.getrandbits(1))
    if name == "CP":
        build = build_syn_control if rng.random() < 0.2 else build_control
        low = rng.getrandbits(12) if build is build_syn_control else dpdcid
        return build(rng.randrange(1, 9), 0, 0, rng.getrandbits(1), psn, spdcid, low)
    if name == "RUDI":
        return build_rudi(number % 2 == 0, STD if number % 2 else NextHdr.RESPONSE, 0, 0, psn) + SES
    if name == "UUD":
        return build_uud(STD) + SES
    return request(Mode.RUD, psn, spdcid, dpdcid)


@pytest.mark.parametrize("name", ["ACK", "NACK", "CP", "RUDI", "UUD", "request"])
def test_a_flood_of_anything_else(name: str) -> None:
    """No memory stays, no PDC is opened, the one that is there is not touched."""
    x = Ladder()
    before = numbers(x.b.pds)
    packets = ((0x0B000000 + number, flood_of(name, number)) for number in range(SHORT_FLOOD))
    assert grown(packets, x.b.pds, 2000) < 64 << 10
    assert numbers(x.b.pds) == before
    if name in ("ACK", "NACK", "UUD"):
        assert x.b.pds.nack_tx == {}, "item 33, item 46"


@both_modes
def test_a_flood_on_an_established_pdc(mode: Mode) -> None:
    """The peer itself goes mad: per-PSN records stay within MP_RANGE (item 39), and memory with them."""
    x = Ladder(mode)
    x.b.ses.otherwise = "later"
    rng = random.Random(3)

    def packets() -> Iterator[tuple[int, bytes]]:
        for _ in range(SHORT_FLOOD):
            psn = (333 + rng.randrange(-2000, 4000)) & 0xFFFFFFFF
            if rng.random() < 0.5:
                yield A, request(mode, psn, clear=psn - 1 - rng.randrange(1000), retx=rng.getrandbits(1))
            else:
                yield A, cp(rng.randrange(10), psn=psn, isrod=int(mode is Mode.ROD), ar=rng.getrandbits(1))

    assert grown(packets(), x.b.pds, 3000) < 64 << 10 or not x.b.pds.pdcs
    for pdc in x.b.pds.pdcs.values():
        assert len(pdc.rx.slots) <= 1024
