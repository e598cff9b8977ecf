# SPDX-License-Identifier: GPL-2.0-only
"""RUDI and UUD: pds.md §15 row by row, §12 and §14 for nt = 1, §18 items 6, 45, 46; as bytes and as objects."""

import dataclasses
import random
from collections.abc import Iterator
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.support.each import each
from tests.support.pds.headers import build_nack
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import MILLISECOND as MS
from uetproto.engine.contract import (
    NEVER,
    SECOND,
    Buffer,
    Datagram,
    Mode,
    PdcErrorReason,
    PdsError,
    Rng,
    TrafficClass,
    Trim,
)  # fmt: skip
from uetproto.engine.pds.messages import Message, Nack, Rudi, Uud, parse
from uetproto.engine.pds.rudi_uud import RUDI_WINDOW, Exchange, RudiUud
from uetproto.engine.pds.service import Connection, Counters, Outgoing, PdsUser, Refusal, Response
from uetproto.engine.pds.sublayer import Pds
from uetproto.engine.ses.headers import build_response
from uetproto.engine.train_splits import TrainTally
from uetproto.errors import LocalError, RemoteError
from uetproto.wire.headers.uet_pds import NackCode, NextHdr
from uetproto.wire.headers.uet_ses import REQUEST_STD, RESPONSE_DATA, ResponseOpcode, ReturnCode

A, B, C = 0x0A00000B, 0x0A00010B, 0x0A00020B
ID = 0xDEAD0001
SES_HEADER = bytes(REQUEST_STD.size)
OK = Response(build_response(ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, 1, 0, 0))
NOT_YET = Response(build_response(ResponseOpcode.NO_RESPONSE, ReturnCode.OK, 1, 0, 0), final=False)
DATA = Response(bytes(RESPONSE_DATA.size) + b"read data", next_hdr=NextHdr.RESPONSE_DATA)


class ScriptedMessage:
    """`packets` packets whose payloads tell them apart."""

    context, reserved, lock = 0, False, False

    def __init__(self, mode: Mode, packets: int = 1, message_id: int = 1, peer: int = B) -> None:
        self.peer = peer
        self.mode = mode
        self.message_id = message_id
        self.next_hdr: int = NextHdr.REQUEST_STD
        self.packets = packets
        self.index = -1

    def unsent(self) -> tuple[int, int]:
        return self.packets - 1 - self.index, 0

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        self.index += 1
        return self.index, SES_HEADER, f"{self.message_id}.{self.index}".encode(), self.index == self.packets - 1


class ScriptedSes:
    """Says `answer` to every request, and writes down what it heard."""

    def __init__(self) -> None:
        self.answer: Response | Refusal | None = OK
        self.delivered: list[tuple[int, Mode, int, bytes]] = []
        """(source, mode, pkt_id, payload)"""
        self.exchanges: list[Exchange] = []
        self.responses: list[tuple[int, bytes | None]] = []
        """(packet index, response)"""
        self.errors: list[tuple[int, PdsError]] = []

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        assert isinstance(pdc, Exchange)
        assert (pdc.local_id, pdc.pkt_id, next_hdr) == (0, psn, NextHdr.REQUEST_STD)
        assert bytes(data[at : at + len(SES_HEADER)]) == SES_HEADER
        self.exchanges.append(pdc)
        self.delivered.append((pdc.peer, pdc.mode, psn, bytes(payload)))
        return self.answer

    def on_response(self, message: Outgoing, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        self.responses.append((index, None if response is None else bytes(response)))

    def on_reread(self, *_: Any) -> Response:
        raise AssertionError("no read is answered twice from memory")

    def on_error(self, message: Outgoing, index: int, error: PdsError) -> None:
        self.errors.append((index, error))

    def on_closed(self, pdc: Connection) -> None:
        raise AssertionError("there is no PDC")


class End:
    """One endpoint that has nothing but RUDI and UUD; `sent` takes what it sent, `rx` hands it a packet."""

    put: Any = Pds.put
    put_nack: Any = Pds.put_nack

    def __init__(self, address: int, objects: bool, **config: Any) -> None:
        self.address = address
        self.ip_version = 4
        self.objects = objects
        self.config = PdsConfig(**config)
        self.counters = Counters()
        self.tally = TrainTally()
        self.nack_tx: dict[int, int] = {}
        self.rng: Rng = random.Random(address)
        self.ses = ScriptedSes()
        self.user: PdsUser = self.ses
        self.out: list[Datagram] = []
        self.plain = RudiUud(cast(Pds, self))
        self.plain.next_id = ID

    def send(self, mode: Mode = Mode.RUDI, packets: int = 1, now: int = 0, limit: int = NEVER) -> int:
        self.plain.send(ScriptedMessage(mode, packets), now)
        return self.plain.pump(now, limit)

    def sent(self) -> list[Datagram]:
        packets, self.out = self.out, []
        return packets

    def rx(self, *packets: Datagram, now: int = 0, **changed: Any) -> None:
        """Delivers them as a driver does, with `changed` fields of the `Datagram`."""
        for packet in packets:
            if not self.objects:
                packet = dataclasses.replace(packet, header=bytes(packet.header) + bytes(packet.payload), payload=b"")
            packet = dataclasses.replace(packet, **changed)
            self.take(packet.message if self.objects else parse(packet.header, packet.trimmed), packet, now)

    def take(self, message: Message, packet: Datagram, now: int) -> None:
        if isinstance(message, Rudi) and message.response:
            self.plain.receive_response(message, packet, now)
        elif isinstance(message, Rudi | Uud):
            self.plain.receive_request(message, packet, now)
        elif isinstance(message, Nack) and message.rudi:
            self.plain.receive_nack(message, packet, now)

    def refused(self, code: int, pkt_id: int = ID, now: int = 0, src: int = B) -> None:
        """A NACK with nt = 1 arrives."""
        nack = Nack(code, 1, 0, 0, pkt_id, 0, 0, 0)
        header = b"" if self.objects else build_nack(code, 0, 0, pkt_id, 0, 0, rudi=1)
        self.rx(Datagram(src, self.address, header, message=nack if self.objects else None), now=now)

    def counted(self, *names: str) -> list[int]:
        return [self.counters.as_dict()[name] for name in names]


def read(packet: Datagram) -> Any:
    """The PDS header of a packet that was sent; `size` as in a run without bytes."""
    if packet.message is not None:
        return packet.message
    message: Any = parse(bytes(packet.header) + bytes(packet.payload))
    return message if isinstance(message, Nack) else dataclasses.replace(message, size=0)


def request(pkt_id: int = ID, retx: int = 0) -> Rudi:
    return Rudi(False, NextHdr.REQUEST_STD, 0, retx, pkt_id, 0)


def response(pkt_id: int = ID, retx: int = 0, marked: int = 0, next_hdr: int = NextHdr.RESPONSE) -> Rudi:
    return Rudi(True, next_hdr, marked, retx, pkt_id, 0)


@pytest.fixture(params=[False, True], ids=["bytes", "objects"])
def objects(request: Any) -> bool:
    return bool(request.param)


# Source --------------------------------------------------------------------------------------------------------------


def test_ladder_29(objects: bool) -> None:
    """pds.md §19 L29: the request is lost, then repeated; a second copy of the response is ignored."""
    a, b = End(A, objects), End(B, objects)
    assert a.send() == 1
    (lost,) = a.sent()
    assert read(lost) == request()
    a.plain.on_time(a.plain.deadline())
    (again,) = a.sent()
    assert read(again) == request(retx=1)
    b.rx(again)
    assert b.ses.delivered == [(A, Mode.RUDI, ID, b"1.0")]
    (answer,) = b.sent()
    assert read(answer) == response(retx=1)
    a.rx(answer, answer)
    assert a.ses.responses == [(0, OK.header)]
    assert a.counted("rudi_tx", "retx_rto", "rudi_late") == [1, 1, 1]
    assert a.plain.quiescent
    assert (a.plain.deadline(), a.out, b.plain.deadline()) == (NEVER, [], NEVER)


def test_ladder_29_with_the_response_lost(objects: bool) -> None:
    """B delivers twice, A hears one response."""
    a, b = End(A, objects), End(B, objects)
    a.send()
    b.rx(*a.sent())
    b.sent()
    a.plain.on_time(a.plain.deadline())
    b.rx(*a.sent())
    a.rx(*b.sent())
    assert [pkt_id for _, _, pkt_id, _ in b.ses.delivered] == [ID, ID]
    assert a.ses.responses == [(0, OK.header)]


@pytest.mark.parametrize(("init", "limit", "copies", "end"), [
    (1 * MS,  5, [1, 3, 7, 15, 31],         63),
    (1 * MS,  0, [],                         1),
    (2 * MS,  2, [2, 6],                    14),
    (SECOND,  4, [1000, 3000, 7000, 15000], 23000),
])  # fmt: skip
def test_rto_and_its_budget(objects: bool, init: int, limit: int, copies: list[int], end: int) -> None:
    """pds.md §11.1: doubled up to 8 s; times in ms after the first transmission."""
    a = End(A, objects, rto_init_time=init, max_rto_retx_cnt=limit)
    a.send()
    a.sent()
    for at in copies:
        assert a.plain.deadline() == at * MS
        a.plain.on_time(at * MS - 1)
        assert a.out == []
        a.plain.on_time(at * MS)
        assert [read(packet) for packet in a.sent()] == [request(retx=1)]
    assert a.plain.deadline() == end * MS
    a.plain.on_time(end * MS)
    assert a.ses.errors == [(0, PdsError(PdcErrorReason.RTO_EXHAUSTED))]
    assert (a.plain.deadline(), a.out, a.plain.quiescent) == (NEVER, [], True)


def test_a_late_response_after_the_error_is_ignored(objects: bool) -> None:
    a, b = End(A, objects, max_rto_retx_cnt=0), End(B, objects)
    a.send()
    b.rx(*a.sent())
    a.plain.on_time(MS)
    a.rx(*b.sent())
    a.refused(NackCode.TRIMMED)
    assert (a.ses.responses, len(a.ses.errors), a.out) == ([], 1, [])
    assert a.counters.rudi_late == 2


def test_budgets_without_end(objects: bool) -> None:
    """15 and 31 mean: never give up (pds.md §11.1, §11.2)."""
    a = End(A, objects, max_rto_retx_cnt=15, max_nack_retx_cnt=31)
    a.send()
    for _ in range(100):
        a.plain.on_time(a.plain.deadline())
        a.refused(NackCode.TRIMMED, now=a.plain.deadline())
    assert a.ses.errors == []
    assert len(a.sent()) == 201
    assert a.counted("retx_rto", "retx_nack") == [100, 100]


FATAL_RETRY = [0x0E, 0x0F, 0x10, 0x15, 0x16, 0x19]
FATAL = [0x11, 0x13, 0xFF]
REACTIONS = [
    *((code, "now") for code in (NackCode.TRIMMED, NackCode.TRIMMED_LASTHOP)),
    *((code, "later") for code in (0x07, 0x09, 0x0A, 0xFD, 0xFE)),
    *((code, "fail, retry") for code in FATAL_RETRY),
    *((code, "fail") for code in FATAL),
    # TRIMMED_ACK, resources of PDCs, PSN_OOR_WINDOW, ROD_OOO, answers to ACK_REQ, NEW_START_PSN, RCVD_SES_PROCG, …
    *((code, "ignore") for code in (0x03, 0x04, 0x05, 0x06, 0x08, 0x0B, 0x0D, 0x12, 0x14, 0x17, 0x18, 0x1A)),
    *((code, "ignore") for code in (0x00, 0x0C, 0x1B, 0xFC)),  # reserved
]  # fmt: skip


@each("code, reaction", REACTIONS)
def test_nack_at_the_source(objects: bool, code: int, reaction: str) -> None:
    """pds.md §12 for nt = 1."""
    a = End(A, objects, nack_retx_time=MS // 2)
    a.send()
    a.sent()
    a.refused(code)
    copies = [read(packet) for packet in a.sent()]
    assert copies == ([request(retx=1)] if reaction == "now" else [])
    assert a.plain.deadline() == {"later": MS // 2, "now": MS, "ignore": MS}.get(reaction, NEVER)
    retryable = reaction == "fail, retry"
    fatal = PdsError(PdcErrorReason.NACK_FATAL, code, retryable)
    assert a.ses.errors == ([(0, fatal)] if reaction.startswith("fail") else [])
    assert a.counted("retx_nack", "bad_nack") == [reaction in ("now", "later"), reaction == "ignore"]


def test_every_code_has_a_reaction() -> None:
    assert {code for code, _ in REACTIONS} >= set(NackCode)


@pytest.mark.parametrize("code", [NackCode.TRIMMED, NackCode.NO_RESOURCE])
@pytest.mark.parametrize("limit", [0, 3])
def test_budget_of_nacks(objects: bool, code: NackCode, limit: int) -> None:
    """pds.md §11.2: Max_NACK_Retx_Cnt refusals are taken, the next one is an error."""
    a = End(A, objects, max_nack_retx_cnt=limit, rto_init_time=SECOND)
    a.send()
    for n in range(limit):
        a.refused(code, now=n * MS)
        a.plain.on_time((n + 1) * MS)
    assert len(a.sent()) == 1 + limit
    assert a.ses.errors == []
    a.refused(code, now=limit * MS)
    assert a.ses.errors == [(0, PdsError(PdcErrorReason.NACK_EXHAUSTED))]
    assert (a.out, a.plain.quiescent, a.plain.deadline()) == ([], True, NEVER)


def test_the_pause_suspends_the_rto(objects: bool) -> None:
    """pds.md §11.2: no RTO meanwhile, no second pause; then the RTO with the rto_cnt it had."""
    a = End(A, objects, rto_init_time=2 * MS, nack_retx_time=10 * MS)
    a.send()
    a.plain.on_time(2 * MS)  # rto_cnt = 1: 4 ms
    a.sent()
    a.refused(NackCode.NO_RESOURCE, now=3 * MS)
    a.refused(NackCode.NO_RESOURCE, now=5 * MS)
    a.refused(NackCode.TRIMMED, now=5 * MS)
    assert (a.counters.retx_nack, a.plain.deadline()) == (1, 13 * MS)
    a.plain.on_time(6 * MS)
    assert a.out == []
    a.plain.on_time(13 * MS)
    assert [read(packet) for packet in a.sent()] == [request(retx=1)]
    assert a.plain.deadline() == 17 * MS
    assert a.counted("retx_rto", "retx_nack") == [1, 1]


def test_timers_that_are_due_together_run_in_their_order(objects: bool) -> None:
    a = End(A, objects)
    a.send()
    a.plain.on_time(MS)  # due again after 2 ms
    a.send(now=MS)
    a.send(now=2 * MS - 1)
    a.plain.pump(2 * MS)
    a.sent()
    a.plain.on_time(SECOND)
    assert ids(a) == [ID + 1, ID + 2, ID]


def test_a_response_ends_the_pause(objects: bool) -> None:
    a, b = End(A, objects), End(B, objects)
    a.send()
    b.rx(*a.sent())
    a.refused(NackCode.NO_RESOURCE)
    a.rx(*b.sent())
    a.plain.on_time(SECOND)
    assert (a.out, a.ses.responses, a.plain.deadline()) == ([], [(0, OK.header)], NEVER)


def test_answers_of_strangers_are_ignored(objects: bool) -> None:
    """Only the address that the request went to may answer it, and only with its pkt_id."""
    a, b = End(A, objects), End(B, objects)
    a.send()
    b.rx(*a.sent())
    (answer,) = b.sent()
    a.rx(answer, src=C)
    a.refused(NackCode.UNEXP_EVENT, src=C)
    a.refused(NackCode.TRIMMED, src=C)
    a.refused(NackCode.UNEXP_EVENT, pkt_id=ID + 1)
    assert (a.ses.responses, a.ses.errors, a.out) == ([], [], [])
    assert a.counters.rudi_late == 4
    a.rx(answer)
    assert a.ses.responses == [(0, OK.header)]


def test_without_marks(objects: bool) -> None:
    """`rudi_marks_retx` off, as observed: retx is 0 in copies, and in answers whatever the request says."""
    a, b = End(A, objects, rudi_marks_retx=False), End(B, objects, rudi_marks_retx=False)
    a.send()
    a.sent()
    a.plain.on_time(MS)
    (copy,) = a.sent()
    assert read(copy) == request(retx=0)
    assert copy.traffic_class is TrafficClass.DATA_RTX
    marking = End(A, objects)
    marking.send()
    marking.refused(NackCode.TRIMMED)
    b.rx(marking.sent()[1])
    assert [read(packet) for packet in b.sent()] == [response(retx=0)]


def test_copies_take_another_path(objects: bool) -> None:
    """The same bytes but for retx, class DATA_RTX, another entropy."""
    a = End(A, objects, rto_init_time=MS, max_rto_retx_cnt=15)
    a.send()
    for _ in range(50):
        a.plain.on_time(a.plain.deadline())
    first, *copies = a.sent()
    assert (first.traffic_class, bytes(first.payload), first.dst) == (TrafficClass.DATA, b"1.0", B)
    assert {copy.traffic_class for copy in copies} == {TrafficClass.DATA_RTX}
    assert {bytes(copy.payload) for copy in copies} == {b"1.0"}
    assert all(x.entropy != y.entropy for x, y in zip([first, *copies], copies, strict=False))
    assert len({bytes(copy.header) for copy in copies}) == 1


def test_a_drawn_entropy_is_never_the_old_one(objects: bool) -> None:
    class Same(random.Random):
        def getrandbits(self, k: int, /) -> int:
            return 7

    a = End(A, objects)
    a.rng = Same()
    a.send()
    for now in (MS, 3 * MS):
        a.plain.on_time(now)
    assert [packet.entropy for packet in a.sent()] == [7, 6, 7]


# pkt_id --------------------------------------------------------------------------------------------------------------


def ids(a: End) -> list[int]:
    return [read(packet).pkt_id for packet in a.sent()]


def test_pkt_ids_are_sequential_from_a_random_start(objects: bool) -> None:
    starts = set()
    for address in range(100):
        a = End(address, objects)
        a.plain.next_id = None
        a.send()
        starts.update(ids(a))
    assert len(starts) == 100
    a = End(A, objects)
    a.send(packets=3)
    assert ids(a) == [ID, ID + 1, ID + 2]


def test_pkt_ids_wrap_and_skip_what_is_outstanding(objects: bool) -> None:
    a = End(A, objects)
    for start, expected in ((0, [0, 1]), (3, [3]), (0xFFFFFFFE, [0xFFFFFFFE, 0xFFFFFFFF, 2, 4])):
        a.plain.next_id = start
        a.send(packets=len(expected))
        assert ids(a) == expected


def test_pkt_ids_rest_for_msl(objects: bool) -> None:
    """pds.md §15: not reused within MSL, after an answer and after an error."""
    a, b = End(A, objects, msl=2 * SECOND, max_rto_retx_cnt=0), End(B, objects)
    a.plain.next_id = 0
    a.send(packets=2)
    first, _ = a.sent()
    b.rx(first)
    a.rx(*b.sent(), now=MS // 2)
    a.plain.on_time(MS)
    assert (len(a.ses.responses), len(a.ses.errors)) == (1, 1)
    a.plain.next_id = 0xFFFFFFFF
    assert a.send(packets=2, now=SECOND) == 1
    (last,) = a.sent()
    assert read(last).pkt_id == 0xFFFFFFFF
    b.rx(last)
    a.rx(*b.sent(), now=SECOND)
    free = 2 * SECOND + MS
    assert (a.plain.pump(free - 1), a.plain.deadline(), a.plain.quiescent) == (0, free, False)
    a.plain.on_time(free)
    assert a.plain.deadline() == NEVER
    assert a.plain.pump(free) == 1
    assert ids(a) == [0]


# Queues --------------------------------------------------------------------------------------------------------------


def test_window_and_limit(objects: bool) -> None:
    """At most `limit` first transmissions a call, at most RUDI_WINDOW outstanding; UUD does not wait for it."""
    a, b = End(A, objects), End(B, objects)
    assert a.send(packets=RUDI_WINDOW + 5, limit=10) == 10
    assert a.plain.pump(0) == RUDI_WINDOW - 10
    assert (a.plain.pump(0), a.plain.quiescent) == (0, False)
    assert a.send(Mode.UUD) == 1
    *requests, datagram = a.sent()
    assert isinstance(read(datagram), Uud)
    b.rx(*requests[:3])
    a.rx(*b.sent())
    assert a.plain.pump(0) == 3
    assert a.counted("rudi_tx", "uud_tx") == [RUDI_WINDOW + 3, 1]


def test_a_failed_message_is_not_sent_to_its_end(objects: bool) -> None:
    """The error of a packet ends what is queued of its message, and only that."""
    a = End(A, objects)
    a.send(packets=RUDI_WINDOW + 100)
    a.send(packets=1)
    a.refused(NackCode.UNEXP_EVENT)
    a.refused(NackCode.UNEXP_EVENT, pkt_id=ID + 1)
    fatal = PdsError(PdcErrorReason.NACK_FATAL, NackCode.UNEXP_EVENT, True)
    assert a.ses.errors == [(0, fatal), (-1, fatal), (1, fatal)]
    a.sent()
    assert a.plain.pump(0) == 1
    assert bytes(a.sent()[0].payload) == b"1.0"


def test_timers_do_not_pile_up(objects: bool) -> None:
    """A long run leaves nothing behind but the times of a few blocks of pkt_ids."""
    a, b = End(A, objects), End(B, objects)
    for now in range(0, 20 * MS, MS // 100):
        a.send(packets=3, now=now)
        b.rx(*a.sent(), now=now)
        a.rx(*b.sent(), now=now)
        a.plain.deadline()
    assert a.counters.rudi_tx == 6000
    assert (a.plain.outstanding, sum(map(len, a.plain._timers._queues.values())), len(a.plain._block_release)) == (
        {},
        0,
        1,
    )
    assert b.plain.quiescent


# Destination ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "next_hdr", "traffic_class"), [
    (OK,   NextHdr.RESPONSE,      TrafficClass.DATA),
    (DATA, NextHdr.RESPONSE_DATA, TrafficClass.DATA),
])  # fmt: skip
@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_what_a_response_copies(
    objects: bool, answer: Response, next_hdr: int, traffic_class: TrafficClass, marked: bool, late: bool
) -> None:
    """pkt_id, retx, and m for CE; the entropy too. An answer may come later, for every copy its own."""
    a, b = End(A, objects), End(B, objects)
    a.send()
    a.refused(NackCode.TRIMMED)
    b.ses.answer = None if late else answer
    copies = a.sent()
    b.rx(*copies, ecn_marked=marked)
    if late:
        assert b.out == []
        for exchange in b.ses.exchanges:
            b.plain.respond(exchange, answer, MS)
    answers = b.sent()
    assert [read(packet) for packet in answers] == [response(ID, retx, int(marked), next_hdr) for retx in (0, 1)]
    assert [packet.entropy for packet in answers] == [packet.entropy for packet in copies]
    assert {(packet.traffic_class, packet.src, packet.dst) for packet in answers} == {(traffic_class, B, A)}
    a.rx(*answers)
    assert a.ses.responses == [(0, answer.header)]
    assert b.counters.rudi_rx == 2
    assert b.plain.quiescent


def test_a_placeholder_is_no_answer(objects: bool) -> None:
    """NO_RESPONSE (ses.md §9.1) is not sent; one that comes from elsewhere does not end the request."""
    a, b = End(A, objects), End(B, objects)
    b.ses.answer = NOT_YET
    a.send()
    b.rx(*a.sent())
    assert b.out == []
    b.ses.answer = dataclasses.replace(NOT_YET, final=True)
    a.plain.on_time(MS)
    b.rx(*a.sent())
    a.rx(*b.sent())
    assert a.ses.responses == []
    b.plain.respond(b.ses.exchanges[0], OK, 2 * MS)
    a.rx(*b.sent())
    assert a.ses.responses == [(0, OK.header)]


@pytest.mark.parametrize(("refusal", "trimmed", "code"), [
    (NackCode.NO_SES_MSG_AVAIL, Trim.NO,       NackCode.NO_SES_MSG_AVAIL),
    (NackCode.NO_RESOURCE,      Trim.NO,       NackCode.NO_RESOURCE),
    (None,                      Trim.TRIMMED,  NackCode.TRIMMED),
    (None,                      Trim.LAST_HOP, NackCode.TRIMMED_LASTHOP),
])  # fmt: skip
@pytest.mark.parametrize("marked", [False, True])
def test_what_is_refused(
    objects: bool, refusal: NackCode | None, trimmed: Trim, code: NackCode, marked: bool
) -> None:  # fmt: skip
    """NACK nt = 1 with the pkt_id and without PDCIDs (pds.md §12, §14, §15); the source then succeeds."""
    a, b = End(A, objects), End(B, objects)
    a.send()
    a.sent()
    a.plain.on_time(MS)
    (packet,) = a.sent()
    if refusal is not None:
        b.ses.answer = Refusal(refusal)
    b.rx(packet, trimmed=trimmed, ecn_marked=marked)
    (nack,) = b.sent()
    assert read(nack) == Nack(code, 1, 1, int(marked), ID, 0, 0, 0)
    assert (nack.traffic_class, nack.dst, nack.entropy) == (TrafficClass.CONTROL, A, packet.entropy)
    assert b.nack_tx == {code: 1}
    assert b.counted("rudi_rx", "trimmed_rx") == [0, trimmed is not Trim.NO]
    assert len(b.ses.delivered) == (refusal is not None)
    b.ses.answer = OK
    a.rx(nack, now=MS)
    a.plain.on_time(2 * MS)
    b.rx(*a.sent())
    a.rx(*b.sent())
    assert a.ses.responses == [(0, OK.header)]


def test_a_trimmed_request_may_be_nothing_but_its_header() -> None:
    """MIN_TRIM_SIZE leaves 16 bytes of PDS and what follows (pds.md §14)."""
    a, b = End(A, objects=False), End(B, objects=False)
    a.send()
    (packet,) = a.sent()
    b.rx(packet, header=bytes(packet.header)[:16], payload=b"", trimmed=Trim.TRIMMED)
    assert [read(nack).code for nack in b.sent()] == [NackCode.TRIMMED]


@pytest.mark.parametrize("trimmed", [Trim.TRIMMED, Trim.LAST_HOP])
def test_trimmed_responses_and_datagrams_are_dropped(objects: bool, trimmed: Trim) -> None:
    """pds.md §14, last row; the RTO repeats the request."""
    a, b = End(A, objects), End(B, objects)
    b.ses.answer = DATA
    a.send()
    b.rx(*a.sent())
    a.rx(*b.sent(), trimmed=trimmed)
    assert (a.ses.responses, a.out, a.plain.deadline()) == ([], [], MS)
    a.send(Mode.UUD)
    b.ses.delivered.clear()
    b.rx(*a.sent(), trimmed=trimmed)
    assert (b.ses.delivered, b.out) == ([], [])
    assert (a.counters.trimmed_rx, b.counters.trimmed_rx) == (1, 1)
    assert b.counted("uud_rx", "uud_dropped") == [0, 0]


# UUD -----------------------------------------------------------------------------------------------------------------


def test_uud_is_complete_when_it_is_sent(objects: bool) -> None:
    """One packet on the wire for one of SES, no timer, no identifier (pds.md §15, §18 item 46)."""
    a = End(A, objects)
    assert a.send(Mode.UUD, packets=3) == 3
    assert a.ses.responses == [(0, None), (1, None), (2, None)]
    assert (a.plain.quiescent, a.plain.deadline()) == (True, NEVER)
    packets = a.sent()
    assert [read(packet) for packet in packets] == [Uud(NextHdr.REQUEST_STD, 0)] * 3
    assert {packet.traffic_class for packet in packets} == {TrafficClass.DATA}
    assert len({packet.entropy for packet in packets}) == 3
    assert a.counters.uud_tx == 3


@pytest.mark.parametrize(("answer", "delivered", "dropped"), [
    (None,                            2, 0),
    (OK,                              2, 0),
    (Refusal(NackCode.NO_RESOURCE),   0, 2),
])  # fmt: skip
def test_nothing_ever_answers_uud(
    objects: bool, answer: Response | Refusal | None, delivered: int, dropped: int
) -> None:  # fmt: skip
    a, b = End(A, objects), End(B, objects)
    b.ses.answer = answer
    a.send(Mode.UUD)
    (packet,) = a.sent()
    b.rx(packet, packet)
    assert b.ses.delivered == [(A, Mode.UUD, 0, b"1.0")] * 2
    assert b.counted("uud_rx", "uud_dropped") == [delivered, dropped]
    assert (b.out, b.nack_tx) == ([], {})
    with pytest.raises(LocalError, match="mode UUD is never answered; legal: RUDI"):
        b.plain.respond(b.ses.exchanges[0], OK, 0)
    assert b.out == []


# Runs ----------------------------------------------------------------------------------------------------------------

FATES = ["deliver", "deliver", "deliver", "drop", "twice", "delay", "trim", "mark"]


def run(objects: bool, fates: list[str], answers: list[Response | Refusal | None], limit: int) -> Iterator[Any]:
    """Two endpoints over a wire that does what `fates` says, then delivers; yields everything that happens."""
    a, b = End(A, objects, max_rto_retx_cnt=limit), End(B, objects)
    a.plain.next_id = 0xFFFFFFFC
    a.send(packets=8)
    a.send(Mode.UUD)
    turn, now = iter(fates), 0
    delayed: list[tuple[End, Datagram]] = []
    waiting: list[Exchange] = []
    script = iter(answers)
    while True:
        arriving, delayed = delayed, []
        for end in (a, b):
            for packet in end.sent():
                yield now, read(packet)
                fate = next(turn, "deliver")
                target = b if packet.dst == B else a
                if fate == "trim":
                    packet = dataclasses.replace(packet, trimmed=Trim.TRIMMED)
                elif fate == "mark":
                    packet = dataclasses.replace(packet, ecn_marked=True)
                if fate == "delay":
                    delayed.append((target, packet))
                elif fate != "drop":
                    arriving += [(target, packet)] * (2 if fate == "twice" else 1)
        for target, packet in arriving:
            b.ses.answer = next(script, OK)
            trimmed_nack = packet.trimmed and isinstance(read(packet), Nack)
            if not trimmed_nack:  # dropped by the row 2 of §6.3, before
                known = len(b.ses.exchanges)
                target.rx(packet, now=now)
                waiting += [e for e in b.ses.exchanges[known:] if b.ses.answer is None and e.mode is Mode.RUDI]
        while waiting:
            b.plain.respond(waiting.pop(), OK, now)
        if not (a.out or b.out or delayed):
            if a.plain.quiescent:
                break
            now = a.plain.deadline()
            a.plain.on_time(now)
    answered = [index for index, answer in a.ses.responses if answer is not None]
    failed = [index for index, _ in a.ses.errors]
    assert sorted(answered + failed) == list(range(8))  # §18 item 6
    assert {f"1.{index}".encode() for index in answered} <= {payload for *_, payload in b.ses.delivered}  # item 45
    assert (b.plain.quiescent, b.plain.deadline(), a.plain.deadline()) == (True, NEVER, NEVER)  # item 45
    assert (a.ses.responses.count((0, None)), a.counters.uud_tx) == (1, 1)  # item 46
    yield a.ses.responses, a.ses.errors, b.ses.delivered, a.counters, b.counters, b.nack_tx


@given(
    fates=st.lists(st.sampled_from(FATES), max_size=40),
    answers=st.lists(st.sampled_from([OK, DATA, None, Refusal(NackCode.NO_RESOURCE)]), max_size=20),
    limit=st.integers(0, 5),
)
def test_any_wire(fates: list[str], answers: list[Response | Refusal | None], limit: int) -> None:
    """pds.md §18 items 6, 45, 46; a run without bytes is the same run."""
    with_bytes, without = (list(run(objects, fates, answers, limit)) for objects in (False, True))
    assert with_bytes == without
    last: dict[int, int] = {}
    for at, message in with_bytes[:-1]:
        if isinstance(message, Rudi) and not message.response:
            assert message.retx == (message.pkt_id in last)  # item 24
            last[message.pkt_id] = at
    assert len(last) == 8


@given(data=st.one_of(
    st.binary(max_size=80),
    st.tuples(st.sampled_from([0x20, 0x21, 0x22, 0x28, 0x2A, 0x30, 0x31, 0x50]), st.binary(max_size=80)).map(
        lambda parts: bytes(parts[:1]) + parts[1]),
), trimmed=st.sampled_from(Trim), src=st.sampled_from([A, C]))  # fmt: skip
def test_hostile_bytes(data: bytes, trimmed: Trim, src: int) -> None:
    """Never an exception, never state: an answer to a request, or silence; the outstanding request stays sound."""
    b = End(B, objects=False)
    b.plain.send(ScriptedMessage(Mode.RUDI, peer=A), 0)
    b.plain.pump(0)
    b.sent()
    packet = Datagram(src, B, data, trimmed=trimmed)
    try:
        message = parse(data, trimmed)
    except RemoteError:
        return
    b.take(message, packet, 0)
    assert len(b.out) <= 1
    assert set(b.plain.outstanding) <= {ID}
    assert len(b.ses.responses) + len(b.ses.errors) + len(b.plain.outstanding) == 1
