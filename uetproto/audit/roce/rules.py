# SPDX-License-Identifier: GPL-2.0-only
"""This module judges queue pairs: their PSNs, the order of the packets of a message, lengths, and answers (roce.md §7,
roce.md §13)."""

from collections.abc import Callable

from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.roce.tracker_requests import Contradicted, conflicts
from uetproto.audit.roce.tracker_state import BEFORE, FULL, IDLE, KEY, M24, QpStream, RoceEvent
from uetproto.audit.rule import Check, Inconclusive, Requires, Rule, Severity, Verdict, Violation, not_observable
from uetproto.wire.headers.roce import Operation
from uetproto.wire.words.text import numbered

_ALIGNMENT = 8
_BEGIN_OF_READ = frozenset({Operation.RDMA_READ_RESPONSE_FIRST, Operation.RDMA_READ_RESPONSE_ONLY})


def _name(operation: int) -> str:
    return Operation(operation).name


def _unless_doubtful(check: Callable[[QpStream, ObservedPacket], Verdict]) -> Check:
    """Return a check that gives the verdict of the tracker where the tracker has judged."""

    def checked(state: QpStream | Contradicted, seen: ObservedPacket) -> Verdict:
        return state.verdict if isinstance(state, Contradicted) else check(state, seen)

    return checked


def _told(state: Contradicted, _: ObservedPacket) -> Verdict:
    """Return what the tracker has judged."""
    return state.verdict


# Requests -------------------------------------------------------------------------------------------------------------


@_unless_doubtful
def _order(state: QpStream, seen: ObservedPacket) -> Violation | Inconclusive:
    was, operation = state.earlier, seen.head.opcode & 0x1F
    if state.dead:
        return Inconclusive("a NAK has ended the connection")
    behind = (seen.head.psn + 1) & M24
    is_before = state.records.get(behind) is was
    if not state.is_reliable and BEFORE[was.operation if is_before else operation] == IDLE:
        return Inconclusive("UC gives a message up when its sender fails")
    expected = f"what goes {'before' if is_before else 'behind'} the {_name(was.operation)} of {numbered(was.number)}"
    return Violation(expected, _name(operation), (was.number,))


@_unless_doubtful
def _two_contents(state: QpStream, seen: ObservedPacket) -> Verdict:
    was, operation = state.earlier, seen.head.opcode & 0x1F
    if was.operation == operation and (was.content is None or seen.content is None):
        return Inconclusive("content not known")
    if was.operation == operation and was.content == seen.content:
        return None
    other = "another content" if was.operation == operation else _name(operation)
    return Violation(
        f"the {_name(was.operation)} of {numbered(was.number)} under PSN {seen.head.psn}", other, (was.number,)
    )


@_unless_doubtful
def _in_read(state: QpStream, seen: ObservedPacket) -> Violation | None:
    read = state.read
    assert read is not None
    last = (read.start + read.span - 1) & M24
    numbers = f"PSNs {read.start} … {last} for the answer to the READ of {numbered(read.number)}"
    if seen.head.opcode & 0x1F != Operation.RDMA_READ_REQUEST:
        return Violation(numbers, f"{_name(seen.head.opcode & 0x1F)} with PSN {seen.head.psn}", (read.number,))
    reth, expected = seen.more[0], read.rest(seen.head.psn)
    if (reth.va, reth.r_key, reth.dmalen) == expected:
        return None
    return Violation(
        f"the rest of the READ of {numbered(read.number)}: va 0x{expected[0]:x}, dmalen {expected[2]}",
        f"va 0x{reth.va:x}, dmalen {reth.dmalen}" + ("" if reth.r_key == read.r_key else ", another r_key"),
        (read.number,),
    )


def _size(state: QpStream, seen: ObservedPacket) -> Violation:
    most = "" if FULL[seen.head.opcode & 0x1F] else "at most "
    if seen.size == state.pmtu:  # this packet is the first that shows the path MTU
        return Violation(f"at least {state.longest} bytes, as {numbered(state.size_number)} has", f"{seen.size}",
                     (state.size_number,))  # fmt: skip
    return Violation(f"{most}{state.pmtu} bytes, the path MTU of {numbered(state.size_number)}", f"{seen.size}",
                 (state.size_number,))  # fmt: skip


def _key(state: QpStream, seen: ObservedPacket) -> Violation:
    key, number = state.expected_key
    others = () if number == seen.number else (number,)
    return Violation(f"P_Key 0x{key:04x} without its top bit", f"0x{seen.head.p_key & KEY:04x}", others)


def _elsewhere(state: QpStream, seen: ObservedPacket) -> Violation:
    expected = f"destqp {state.qp}, as of {numbered(state.key_number)} from the same UDP port"
    return Violation(expected, str(seen.head.destqp), (state.key_number,))


def _aligned(_: QpStream, seen: ObservedPacket) -> Violation | None:
    va = seen.more[0].va
    return Violation(f"an address that is a multiple of {_ALIGNMENT}", f"0x{va:x}") if va % _ALIGNMENT else None


def _datagram(state: QpStream, seen: ObservedPacket) -> Violation | None:
    was = state.was
    if was is None or not conflicts(was, was._replace(operation=seen.head.opcode & 0x1F, content=seen.content)):
        return None
    return Violation(
        f"a PSN of its own, {seen.head.psn} being that of {numbered(was.number)}", "two datagrams", (was.number,)
    )


# Answers --------------------------------------------------------------------------------------------------------------


@_unless_doubtful
def _not_sent(state: QpStream, seen: ObservedPacket) -> Violation:
    newest = state.other.newest if state.other is not None else None
    return Violation(f"an answer to a request: the newest has PSN {newest}", f"PSN {seen.head.psn}")


@_unless_doubtful
def _begin(state: QpStream, seen: ObservedPacket) -> Violation | None:
    operation = seen.head.opcode & 0x1F
    assert state.read is not None
    if operation in _BEGIN_OF_READ:
        return None
    return Violation(
        f"FIRST or ONLY to the READ of {numbered(state.read.number)}", _name(operation), (state.read.number,)
    )


@_unless_doubtful
def _original(state: QpStream, seen: ObservedPacket) -> Violation | None:
    original, value = state.original, seen.more[1].origremdt
    if original is None or original[1] == value:
        return None
    return Violation(f"0x{original[1]:x}, as {numbered(original[0])} answered", f"0x{value:x}", (original[0],))


def _msn(state: QpStream, seen: ObservedPacket) -> Violation | None:
    msn = seen.more[0].msn
    if msn == state.expected_msn:
        return None
    assert state.acked is not None
    number, before, _ = state.acked
    return Violation(f"MSN {state.expected_msn}: {numbered(number)} has {before}", f"{msn}", (number,))


@_unless_doubtful
def _alive(state: QpStream, seen: ObservedPacket) -> Violation | None:
    assert state.refused is not None
    psn, number = state.refused
    aeth = next((header for header in seen.more if header.form == "aeth"), None)
    if seen.head.psn == psn and aeth is not None and aeth.syndrome >= 0x60:
        return None  # a copy
    return Violation(f"nothing behind the NAK of PSN {psn}", f"an answer to PSN {seen.head.psn}", (number,))


def _nak_again(state: QpStream, seen: ObservedPacket) -> Violation | None:
    if state.naked is None:
        return None
    return Violation(f"one NAK until PSN {seen.head.psn} has come", "another", (state.naked[1].number,))


def _unheeded(_: QpStream, seen: ObservedPacket) -> Violation:
    return Violation(f"PSN {seen.head.psn} again", "no more of it")


def _cnp(state: QpStream, _: ObservedPacket) -> Violation | None:
    return None if state.marked is not None else Violation("a packet with CE before", "none")


_ON = RoceEvent

RULES = (
    Rule(id="ROCE-KEY-CHANGE", on=_ON.KEY, of=_ON.PACKET, check=_key, cite="IBTA volume 1 §9, partition keys",
         says="All packets from one queue pair to another have one P_Key, but for its top bit."),
    Rule(id="ROCE-PATH-MTU", on=_ON.SIZE, of=_ON.PACKET, check=_size, cite="IBTA volume 1 §9, packet lengths",
         says="First and middle packets have the path MTU, and no packet of the queue pair has more."),
    Rule(id="ROCE-OPCODE-ORDER", on=_ON.MISORDERED, of=_ON.REQUEST, check=_order,
         cite="IBTA volume 1 §9",
         says="A message is FIRST, MIDDLE, LAST of one kind, or ONLY, in the order of PSNs."),
    Rule(id="ROCE-PSN-TWO-CONTENTS", on=_ON.AGAIN, check=_two_contents, cite="IBTA volume 1 §9, retransmission",
         says="A request that is sent again has the same bytes."),
    Rule(id="ROCE-READ-PSN", on=_ON.IN_READ, check=_in_read, cite="IBTA volume 1 §9, PSNs of READ",
         obscures=True,
         says="Only the answer to a READ, and requests for the rest of it, use the PSNs of that answer."),
    Rule(id="ROCE-PSN-GAP", on=_ON.SKIPPED, of=_ON.REQUEST, check=_told, requires=Requires.ABSENCE,
         severity=Severity.WARNING, cite="IBTA volume 1 §9, PSNs of requests",
         says="New requests have successive PSNs."),
    # They require order: without it another connection may be between.
    Rule(id="ROCE-PSN-JUMP", on=_ON.JUMPED, of=_ON.REQUEST, check=_told, requires=Requires.ORDER,
         cite="IBTA volume 1 §9, PSNs of requests", says="A connection goes on at its next PSN.", obscures=True),
    Rule(id="ROCE-DESTQP", on=_ON.ELSEWHERE, of=_ON.PACKET, check=_elsewhere, requires=Requires.ORDER,
         cite="IBTA volume 1 §9", says="A queue pair sends all packets to one queue pair.", obscures=True),
    Rule(id="ROCE-PSN-ORDER", on=_ON.LATE, of=_ON.REQUEST, check=_told, requires=Requires.ORDER,
         cite="IBTA volume 1 §9, PSNs of requests", says="Requests are first sent in the order of their PSNs."),
    Rule(id="ROCE-ATOMIC-ALIGNED", on=_ON.ATOMIC, check=_aligned, cite="IBTA volume 1 §9",
         says="An atomic operation is on an address that is a multiple of 8."),
    Rule(id="ROCE-UD-PSN", on=_ON.DATAGRAM, check=_datagram, severity=Severity.NOTE,
         cite="IBTA volume 1 §9", says="Two datagrams of a queue pair do not have one PSN."),
    Rule(id="ROCE-PSN-NOT-SENT", on=_ON.UNSENT, of=_ON.RESPONSE, check=_not_sent, requires=Requires.ABSENCE,
         cite="IBTA volume 1 §9", covers=("roce 5",), says="No PSN is answered that was not sent."),
    Rule(id="ROCE-RESPONSE-KIND", on=_ON.STRANGE, of=_ON.RESPONSE, cite="IBTA volume 1 §9",
         check=_told, says="Only READs are answered with data, and only atomic requests with values."),
    Rule(id="ROCE-ACK-ALONE", on=_ON.ACK_ALONE, check=_told, requires=Requires.ABSENCE, cite="IBTA volume 1 §9",
         says="A READ is answered with data and an atomic request with a value, and not with an ACK alone."),
    Rule(id="ROCE-READ-ORDER", on=_ON.READ_BEGINS, check=_begin, cite="IBTA volume 1 §9",
         says="The answer to a READ begins with FIRST, or is ONLY."),
    Rule(id="ROCE-ATOMIC-ANSWER", on=_ON.ATOMIC_ANSWER, check=_original, cite="IBTA volume 1 §9",
         covers=("roce 3",), says="An atomic request that is sent again gets the same answer."),
    Rule(id="ROCE-MSN", on=_ON.MSN, check=_msn, cite="IBTA volume 1 C9-148", covers=("roce 4",),
         says="The MSN of ACKs grows by one with each message."),
    Rule(id="ROCE-ANSWER-AFTER-NAK", on=_ON.ALIVE, of=_ON.REFUSED, check=_alive, requires=Requires.ORDER,
         cite="IBTA volume 1 §9",
         says="A queue pair that has ended a connection with a NAK answers no later request."),
    Rule(id="ROCE-NAK-AGAIN", on=_ON.NAK, check=_nak_again, severity=Severity.NOTE, requires=Requires.ORDER,
         cite="IBTA volume 1 §9",
         says="A queue pair sends one NAK PSN sequence error until the missing request has come."),
    Rule(id="ROCE-NAK-UNHEEDED", on=_ON.UNHEEDED, of=_ON.NAK, check=_unheeded, severity=Severity.NOTE,
         requires=Requires.ABSENCE, cite="IBTA volume 1 §9",
         says="After a NAK PSN sequence error the missing request is sent again."),
    Rule(id="ROCE-CNP-UNMARKED", on=_ON.CNP, check=_cnp, severity=Severity.NOTE, requires=Requires.ABSENCE,
         cite="IBTA annex A17", says="Congestion notifications answer packets with CE."),
)  # fmt: skip

NOT_OBSERVABLE = not_observable("roce", {
    "Completions are inside an end.": (1, 9, 12),
    "Memory is inside an end.": (2, 7),
    "Receives are inside an end.": (6,),
    "The limit is the peers' own, and told outside of the connection.": (8,),
    "Every rule here compares PSN and MSN modulo 2^24.": (10,),
    "It speaks of the codec.": (11,),
})  # fmt: skip
"""Invariants of roce.md §15 that no packet can contradict, each with the reason."""
