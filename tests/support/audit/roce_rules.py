# SPDX-License-Identifier: GPL-2.0-only
"""This module makes lists of RoCE packets of two queue pairs, and audits them with the RoCE rules."""

from collections.abc import Iterable
from typing import Any

from tests.support.audit.build import A, B, head, packet
from tests.support.audit.judge import OnlyJudge
from uetproto.audit.finding import Finding
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.roce.rules import RULES
from uetproto.audit.roce.rules_wire import RULES as WIRE_RULES
from uetproto.audit.roce.tracker import RoceTracker
from uetproto.wire.headers.ethernet import Ecn
from uetproto.wire.headers.roce import NO_CREDIT_LIMIT, Operation, Transport, opcode_of

ALL = Options(complete=True, ordered=True)
QP_OF_A, QP_OF_B = 0x11, 0x12
PMTU = 1024
START = 0xFFFFFE  # numbers wrap soon
O = Operation  # noqa: E741 - the table below is wide enough
RC, UC, UD = Transport.RC, Transport.UC, Transport.UD
Line = tuple[int, int, Head, dict[str, Any]]
"""Type of a packet: sender, receiver, BTH, other fields of `ObservedPacket`."""


def bth(operation: Operation, at: int, destqp: int, transport: Transport = RC, **values: int) -> Head:
    psn = START + at & 0xFFFFFF
    return head("bth", opcode=opcode_of(transport, operation), destqp=destqp, psn=psn, **{"p_key": 0xFFFF} | values)


def req(operation: Operation, at: int, size: int = 0, *more: Head, content: int = 0, **values: Any) -> Line:
    """Make a request of A with PSN START + `at`; PSN and `content` determine its payload."""
    fields = {"size": size, "more": more, "content": at << 8 | content}
    return A, B, bth(operation, at, QP_OF_B, **values), fields


def reth(dmalen: int, va: int = 0x20000000, r_key: int = 7) -> Head:
    return head("reth", va=va, r_key=r_key, dmalen=dmalen)


def write(at: int, dmalen: int, sizes: Iterable[int] = (PMTU, PMTU, 10), **values: Any) -> list[Line]:
    first, *middle, last = sizes
    return [
        req(O.RDMA_WRITE_FIRST, at, first, reth(dmalen), **values),
        *(req(O.RDMA_WRITE_MIDDLE, at + 1 + i, size, **values) for i, size in enumerate(middle)),
        req(O.RDMA_WRITE_LAST, at + 1 + len(middle), last, **values),
    ]


def only(at: int, size: int = 8, **values: Any) -> Line:
    return req(O.SEND_ONLY, at, size, **values)


def read(at: int, dmalen: int = 2 * PMTU + 10, **values: Any) -> Line:
    return req(O.RDMA_READ_REQUEST, at, 0, reth(dmalen, **values))


def atomic(at: int, va: int = 0x20000008) -> Line:
    return req(O.FETCH_ADD, at, 0, head("atomic_eth", va=va, r_key=7, swapdt=1))


def answer(operation: Operation, at: int, size: int = 0, *more: Head, **values: Any) -> Line:
    """Make an answer of B to a request of A."""
    return B, A, bth(operation, at, QP_OF_A, **values), {"size": size, "more": more}


def ack(at: int, msn: int = 1, syndrome: int = NO_CREDIT_LIMIT, **values: int) -> Line:
    return answer(O.ACKNOWLEDGE, at, 0, head("aeth", syndrome=syndrome, msn=msn), **values)


def data(at: int, sizes: Iterable[int] = (PMTU, PMTU, 10)) -> list[Line]:
    """Return the packets that answer a READ."""
    aeth = head("aeth", syndrome=NO_CREDIT_LIMIT, msn=1)
    first, *middle, last = sizes
    return [
        answer(O.RDMA_READ_RESPONSE_FIRST, at, first, aeth),
        *(answer(O.RDMA_READ_RESPONSE_MIDDLE, at + 1 + i, size) for i, size in enumerate(middle)),
        answer(O.RDMA_READ_RESPONSE_LAST, at + 1 + len(middle), last, aeth),
    ]


def value(at: int, original: int, msn: int = 1) -> Line:
    aeth = head("aeth", syndrome=NO_CREDIT_LIMIT, msn=msn)
    return answer(O.ATOMIC_ACKNOWLEDGE, at, 0, aeth, head("atomic_ack_eth", origremdt=original))


def datagram(at: int, content: int, p_key: int = 0xFFFF) -> Line:
    deth = head("deth", q_key=1, srcqp=0x77)
    return A, B, bth(O.SEND_ONLY, at, QP_OF_B, UD, p_key=p_key), {"size": 8, "more": (deth,), "content": content}


def cnp(p_key: int = 0xFFFF) -> Line:
    return B, A, head("bth", opcode=0x81, becn=1, destqp=QP_OF_A, p_key=p_key), {"more": (head("cnp"),)}


def marked(line: Line) -> Line:
    return (*line[:3], line[3] | {"ecn": int(Ecn.CE)})


def observed(lines: Iterable[Line]) -> list[ObservedPacket]:
    return [packet(i, src, dst, bth, **({"content": i} | more)) for i, (src, dst, bth, more) in enumerate(lines)]


class RoceAudit:
    """This class audits queue pairs alone."""

    def __init__(self, options: Options = ALL) -> None:
        self.judge = OnlyJudge((*WIRE_RULES, *RULES), complete=options.complete, ordered=options.ordered)
        self.tracker = RoceTracker(self.judge, options)

    def see(self, packets: Iterable[ObservedPacket]) -> list[Finding]:
        for seen in packets:
            self.tracker.see(seen)
        self.tracker.end()
        self.judge.end()
        return self.judge.findings
