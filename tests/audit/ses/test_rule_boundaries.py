# SPDX-License-Identifier: GPL-2.0-only
"""Edges of the rules about messages: what only looks like a violation, and what does so only just."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from tests.support.audit.build import A, B, head, packet
from tests.support.audit.ses_rules import (
    ALL,
    ID,
    JOB,
    LENGTH,
    MTU,
    START,
    TWO,
    Bench,
    C,
    Line,
    Op,
    atomic,
    deferrable,
    error,
    found,
    part,
    read,
    restart,
    returned,
    rsp,
    rtr,
    short,
    sync,
    whole,
)
from uetproto.audit.reader.options import Options
from uetproto.audit.ses.tracker_groups import GROUPS, MEMBERS
from uetproto.audit.ses.tracker_message import MESSAGES, PSNS
from uetproto.audit.ses.tracker_tokens import TOKENS
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode


class Edge(NamedTuple):
    """Packets, what they are about, and at which of them the rule finds something."""

    why: str
    rule: str
    lines: tuple[Line, ...]
    packets: tuple[int, ...] = ()


def edges(*rows: Edge) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("edge", rows, ids=lambda edge: f"{edge.rule}: {edge.why}")


def check(edge: Edge, options: Options = ALL) -> None:
    findings = Bench(options).see(edge.lines)
    assert tuple(finding.packet for finding in findings if finding.rule.id == edge.rule) == edge.packets


def answers(first: int = START, count: int = 4) -> tuple[Line, ...]:
    return tuple(rsp(first + k) for k in range(count))


AGAIN = part(0, psn=START + 4, length=64)
"""Another message with the id of the first."""
SPLIT = (*whole(), *answers(), AGAIN)


# Ids ------------------------------------------------------------------------------------------------------------------


@edges(
    Edge("all are answered", "SES-MESSAGE-ID-UNANSWERED", SPLIT),
    Edge("the last is not", "SES-MESSAGE-ID-UNANSWERED", (*whole(), *answers(count=3), AGAIN), (7,)),
    Edge("the first is not", "SES-MESSAGE-ID-UNANSWERED", (*whole(), *answers()[1:], AGAIN), (7,)),
    Edge("one in the middle is not", "SES-MESSAGE-ID-UNANSWERED",
         (*whole(), *answers()[:1], *answers()[2:], AGAIN), (7,)),
    Edge("it began in front of the other", "SES-MESSAGE-ID-UNANSWERED",
         (AGAIN, part(3), part(2), part(1), part(0))),
    Edge("the end of the earlier one was not seen", "SES-MESSAGE-ID-UNANSWERED",
         (*whole()[:2], part(0, psn=START + 9, length=64))),
    Edge("its own begin comes late", "SES-MESSAGE-ID-UNANSWERED",
         (*whole(), part(1, psn=START + 5), part(0, psn=START + 4)), (5,)),
    Edge("messages between do not matter", "SES-MESSAGE-ID-UNANSWERED",
         (*whole(), part(0, psn=START + 4, length=64, message_id=6), part(0, psn=START + 5, length=64)), (5,)),

    Edge("it was sent again later", "SES-MESSAGE-ID-HELD", (*SPLIT, part(3, retx=1, clear=START)), (9,)),
    Edge("it may have been sent again before", "SES-MESSAGE-ID-HELD", (*SPLIT, part(3, retx=1, clear=START - 1))),
    Edge("a copy of the network's", "SES-MESSAGE-ID-HELD", (*SPLIT, part(3, clear=START))),
    Edge("it is the newer one itself", "SES-MESSAGE-ID-HELD",
         (*SPLIT, part(0, psn=START + 4, length=64, retx=1, clear=START + 3))),
    Edge("when the newer one was first sent is not known", "SES-MESSAGE-ID-HELD",
         (*whole(), *answers(), part(0, psn=START + 4, length=64, retx=1), part(3, retx=1, clear=START))),
    Edge("the begin of the newer one was not seen", "SES-MESSAGE-ID-HELD",
         (*whole(), part(1, psn=START + 9, length=LENGTH), part(3, retx=1, clear=START))),
)  # fmt: skip
def test_ids(edge: Edge) -> None:
    check(edge)


def test_what_cack_covers_is_answered() -> None:
    bench = Bench()
    lines = [*whole(), *answers(count=1)]
    for number, line in enumerate(lines):
        bench.one(line, packet(number, line.src, A + B - line.src, line.head, ses=line.ses, size=line.size))
    bench.forward.cack = START + 3
    bench.one(AGAIN, packet(9, A, B, AGAIN.head, ses=AGAIN.ses, size=64))
    assert bench.judge.findings == []


def test_an_answer_that_was_not_seen_is_no_matter_of_a_capture_with_holes() -> None:
    bench = Bench(Options())
    assert bench.see([*whole(), AGAIN]) == []
    assert bench.judge.tallies["SES-MESSAGE-ID-UNANSWERED"].not_judged == {"needs --complete": 1}
    assert bench.judge.tallies["SES-MESSAGE-ID-HELD"].judged == 1


def test_finding_names_the_packet_that_is_not_answered() -> None:
    (finding,) = Bench().see([*whole(), *answers(count=2), AGAIN])
    assert finding.packets == (2, 6)
    assert f"PSN {START + 2}" in finding.expected


# What ends or stops a message -----------------------------------------------------------------------------------------

REFUSED = rsp(START + 1, code=C.BAD_MKEY, req=1)
BEGUN = (part(0), part(1))
CLEARED = START + 1
DEFERRABLE: dict[str, Any] = {"opcode": Op.DEFERRABLE_SEND}
STOPPED = (part(0, **DEFERRABLE), part(1, **DEFERRABLE), rsp(START + 1, opcode=1, list=1, modified_length=0, req=1))


@edges(
    Edge("it goes on", "SES-WENT-ON", (*BEGUN, REFUSED, part(2, clear=CLEARED), part(3, clear=CLEARED)), (3, 4)),
    Edge("the last packet is new, too", "SES-WENT-ON", (*whole()[:3], REFUSED, part(3, clear=CLEARED)), (4,)),
    Edge("more was cleared", "SES-WENT-ON", (*BEGUN, REFUSED, part(3, clear=CLEARED + 1)), (3,)),
    Edge("its sender need not know", "SES-WENT-ON", (*BEGUN, REFUSED, part(2, clear=CLEARED - 1))),
    Edge("not guaranteed: another answer may have come", "SES-WENT-ON",
         (*BEGUN, rsp(START + 1, code=C.BAD_MKEY), part(2, clear=CLEARED))),
    Edge("a success ends nothing", "SES-WENT-ON", (*BEGUN, rsp(START + 1, opcode=1, req=1), part(2, clear=CLEARED))),
    Edge("the end it is", "SES-WENT-ON", (*BEGUN, REFUSED, error(2, clear=CLEARED))),
    Edge("sent again", "SES-WENT-ON", (*BEGUN, REFUSED, part(2, clear=CLEARED, retx=1))),
    Edge("sent before the packet that was refused", "SES-WENT-ON", (part(1), REFUSED, part(0, clear=CLEARED))),
    Edge("another message", "SES-WENT-ON", (*BEGUN, REFUSED, part(0, psn=START + 2, clear=CLEARED, message_id=6))),
    Edge("a stop", "SES-WENT-ON", (*STOPPED, part(2, clear=CLEARED, **DEFERRABLE)), (3,)),
    Edge("the end of a message that was stopped", "SES-WENT-ON",
         (*STOPPED, part(2, clear=CLEARED, size=0, eom=1, **DEFERRABLE))),
    Edge("an empty packet in the middle is no end", "SES-WENT-ON",
         (*STOPPED, part(2, clear=CLEARED, size=0, **DEFERRABLE)), (3,)),
    Edge("the first answer counts", "SES-WENT-ON",
         (*BEGUN, REFUSED, rsp(START, code=C.BAD_MKEY, req=1), part(2, clear=CLEARED - 1))),
    Edge("only sends that can be deferred are stopped", "SES-WENT-ON",
         (*whole(opcode=Op.SEND)[:2], STOPPED[2], part(2, opcode=Op.SEND, clear=CLEARED))),
)  # fmt: skip
def test_what_goes_on(edge: Edge) -> None:
    check(edge, Options())


def test_long_message_that_goes_on_is_found_in_its_midst() -> None:
    """All its packets are as usual, but for the answer."""
    length = 20 * MTU
    before, behind = whole(length=length)[:9], whole(length=length, clear=START + 8)[9:]
    lines = [*before, rsp(START + 8, code=C.BAD_MKEY, req=1), *behind]
    assert found(lines) == [("SES-WENT-ON", 10 + k) for k in range(len(behind))]


@edges(
    Edge("the end of the other was not seen", "SES-SOM-MISSING", (*whole()[:3], part(1, psn=START + 4, message_id=6))),
    Edge("not right behind it", "SES-SOM-MISSING", (*whole(), part(1, psn=START + 5, message_id=6))),
    Edge("one packet", "SES-EMPTY", (rtr(eom=0), part(0, opcode=Op.NO_OP, length=0, message_id=7)), (0,)),
    Edge("MSG_ERROR begins nothing", "SES-SOM-MISSING", (*whole(), error(4, message_id=6))),
    Edge("behind a message of one packet", "SES-SOM-MISSING",
         (part(0, length=64), part(1, message_id=6)), (1,)),
)  # fmt: skip
def test_what_begins(edge: Edge) -> None:
    check(edge, Options())


# Whose packet it is ---------------------------------------------------------------------------------------------------

SHIFTED = (part(0), part(2, psn=START + 3))
"""A PSN between them went to something else."""
TWO_READ = read(TWO)
LONG = whole(length=8 * MTU)


@edges(
    Edge("alone, and the begin as well", "SES-MSG-ERROR-FLAGS", (error(2, som=1),), (0,)),
    Edge("whatever its offset says", "SES-MSG-ERROR-LATE", (*whole(), error(4, message_offset=0)), (4,)),
    Edge("of a message with the id of an ended one", "SES-MSG-ERROR-LATE",
         (*whole(), part(0, psn=START + 4), error(1, psn=START + 5))),
    Edge("not right behind the end", "SES-MSG-ERROR-LATE", (*whole(), error(5, message_offset=0))),
    Edge("it is the end", "SES-MSG-ERROR-LATE", (*BEGUN, error(2))),

    Edge("which PSN went to something else is not known", "SES-OFFSET-ORDER",
         (*SHIFTED, part(1), part(3, psn=START + 4))),
    Edge("nor when a packet is sent again", "SES-OFFSET-ORDER",
         (*SHIFTED, part(3, psn=START + 4), part(0, retx=1), part(2, psn=START + 3, retx=1))),
    Edge("another copy of the end", "SES-EOM-TWICE", (*whole(), part(3, retx=1, message_offset=MTU))),
    Edge("a copy that moved", "SES-OFFSET-OVERLAP", (*whole(), part(3, retx=1, message_offset=MTU)), (4,)),
    Edge("an end too many in its place", "SES-OFFSET-OVERLAP", (part(0), part(1), part(3), part(2, eom=1))),
    Edge("the next one was seen before the end", "SES-SOM-TWICE", (*whole()[:3], AGAIN, part(3))),
    Edge("between packets seen before", "SES-INTERLEAVED",
         (part(0), part(1), part(3), part(0, psn=START + 2, length=64, message_id=6)), (3,)),
    Edge("a short one", "SES-INTERLEAVED", (part(0), part(1), part(3), short(START + 2)), (3,)),
    Edge("between packets that came the other way round", "SES-INTERLEAVED",
         (part(3), part(0), part(0, psn=START + 1, length=64, message_id=6)), (2,)),
    Edge("its own packet", "SES-INTERLEAVED", (part(0), part(1), part(3), part(2))),
    Edge("one packet, and no end", "SES-EOM-MISSING", (part(0, length=MTU, eom=0),), (0,)),
    Edge("a copy of a message of one packet", "SES-KEY-CHANGE",
         (part(0, length=64), part(0, length=64, retx=1, memory_key=1))),
    Edge("another message may have this id", "SES-KEY-CHANGE", (*BEGUN, part(2, psn=START + 3, memory_key=1))),
    Edge("each that differs", "SES-KEY-CHANGE",
         tuple(part(k, length=5 * MTU, memory_key=k % 2) for k in range(5)), (1, 3)),
    Edge("when there is no majority", "SES-KEY-CHANGE",
         tuple(part(k, length=5 * MTU, memory_key=min(k, 3)) for k in range(5)), (1, 2, 3, 4)),
    Edge("several, told when the others come", "SES-OFFSET-OVERLAP",
         (LONG[0], part(1, length=8 * MTU, message_offset=3 * MTU), part(2, length=8 * MTU, message_offset=5 * MTU),
          *LONG[3:]), (1, 2)),
    Edge("in the midst of usual ones", "SES-OFFSET-OVERLAP",
         (*LONG[:3], part(3, length=8 * MTU, message_offset=5 * MTU), *LONG[4:]), (3,)),
    Edge("the last may be shorter", "SES-PAYLOAD-SIZE",
         (*whole(length=LENGTH - 24)[:3], part(3, length=LENGTH - 24, hd=1))),
    Edge("a small one in the middle", "SES-EOM-MISSING", (*BEGUN, part(2, size=MTU - 1))),
    Edge("it is not the last", "SES-HD-LATER", (*whole(hd=1)[:2], part(2, hd=0, size=MTU - 1))),
    Edge("MSG_ERROR may", "SES-EOM-EARLY", (*BEGUN, error(2))),
    Edge("an empty packet may not end a write", "SES-EOM-EARLY", (*BEGUN, part(2, size=0, eom=1)), (2,)),
    Edge("an end without a begin", "SES-SHORT-FORM-WHOLE", (short(som=0),), (0,)),
    Edge("what the last one carries is not known", "SES-EOM-EARLY", (*whole()[:3], part(3, carried=5))),
    Edge("smaller packets", "SES-PAYLOAD-MTU",
         (*whole(), part(0, psn=START + 4, message_id=6, size=MTU // 2)), (4,)),
    Edge("of the same size", "SES-PAYLOAD-MTU",
         (*whole(), part(0, psn=START + 4, message_id=6, size=MTU, length=MTU, eom=0))),
    Edge("the small form has none", "SES-INDEX-ZERO", (short(resource_index=0),)),
    Edge("the last packet tells what the first one asked for", "SES-PAYLOAD-MTU",
         (*TWO_READ, part(0, psn=START + 2, message_id=6, length=TWO, size=TWO, eom=1)), (2,)),
    Edge("likewise", "SES-DATA-SIZE", (*read(TWO - 24), returned(0, length=TWO - 24, payload_length=9)), (2,)),
)  # fmt: skip
def test_whose_packet_it_is(edge: Edge) -> None:
    check(edge)


def test_size_that_contradicts_itself_is_not_judged() -> None:
    """Another rule judges the lengths of a packet."""
    bench = Bench()
    assert bench.see([*whole()[:2], part(2, carried=5), part(3)]) == []
    assert bench.judge.tallies["SES-PAYLOAD-SIZE"].not_judged == {"length not known": 1}


def test_last_packet_behind_other_psns_ends_its_message() -> None:
    bench = Bench()
    assert bench.see([*whole()[:3], part(3, psn=START + 4)]) == []
    assert bench.judge.tallies["SES-FORM"].judged == 1


# Starting again -------------------------------------------------------------------------------------------------------

DEFERRED = (deferrable(), rtr())
RETRY = restart(1, message_id=8)


@edges(
    Edge("as it was deferred", "SES-RESTART-OWNER", (*DEFERRED, restart())),
    Edge("another job", "SES-RESTART-OWNER", (*DEFERRED, restart(job_id=1)), (2,)),
    Edge("another opcode", "SES-RESTART-OWNER", (*DEFERRED, restart(opcode=Op.DEFERRABLE_TSEND)), (2,)),
    Edge("other match bits", "SES-RESTART-OWNER", (*DEFERRED, restart(match_bits=1)), (2,)),
    Edge("the send was not seen", "SES-RESTART-OWNER", (rtr(), restart(job_id=1))),
    Edge("an older send had the token", "SES-RESTART-OWNER",
         (deferrable(job_id=1), deferrable(psn=START + 1, message_id=6), rtr(), restart(1))),
    Edge("what had the token when it was named", "SES-RESTART-OWNER",
         (*DEFERRED, deferrable(psn=START + 1, message_id=6, job_id=1), restart(1))),
    Edge("named before it is known", "SES-RESTART-UNKNOWN", (deferrable(), restart()), (1,)),
    Edge("of another target", "SES-RESTART-UNKNOWN", (deferrable(), rtr()._replace(src=A), restart()), (2,)),
    Edge("no restart", "SES-RESTART-UNKNOWN", (*DEFERRED, deferrable(psn=START + 1, message_id=6))),

    Edge("twice", "SES-RESTART-TWICE", (*DEFERRED, restart(), RETRY), (3,)),
    Edge("and once more", "SES-RESTART-TWICE", (*DEFERRED, restart(), RETRY, restart(2, message_id=9)), (3, 4)),
    Edge("each was allowed", "SES-RESTART-TWICE", (*DEFERRED, restart(), rtr(51, message_id=9), RETRY)),
    Edge("the first was refused", "SES-RESTART-TWICE",
         (*DEFERRED, restart(), rsp(START + 1, code=C.BAD_GENERATION, message_id=6), RETRY)),
    Edge("the first was accepted", "SES-RESTART-TWICE",
         (*DEFERRED, restart(), rsp(START + 1, message_id=6, modified_length=64), RETRY), (4,)),
    Edge("a send of which nothing was deferred was refused", "SES-RESTART-TWICE",
         (*DEFERRED, restart(), rsp(START, code=C.BAD_GENERATION), RETRY), (4,)),
    Edge("a packet of it far behind", "SES-RESTART-TWICE",
         (*DEFERRED, restart(length=LENGTH), part(2, psn=START + 9, opcode=Op.DEFERRABLE_SEND, message_id=6,
                                                  initiator_restart_token=7, target_restart_token=4))),
    Edge("a message without tokens was refused", "SES-RESTART-TWICE",
         (deferrable(), rtr(sender_token=1), part(0, length=64, psn=START + 1, message_id=9),
          restart(1, target_restart_token=1), rsp(START + 1, code=C.BAD_MKEY, message_id=9),
          restart(2, target_restart_token=1)), (5,)),
    Edge("packets of one", "SES-RESTART-TWICE",
         (*DEFERRED, restart(length=LENGTH), part(2, psn=START + 3, opcode=Op.DEFERRABLE_SEND, message_id=6,
                                                  initiator_restart_token=7, target_restart_token=4))),

    Edge("owned by another initiator", "SES-RTR-OWNER", (deferrable(), rtr(initiator=1)), (1,)),
    Edge("the send was not seen", "SES-RTR-OWNER", (rtr(),)),
    Edge("the send was its own", "SES-RTR-UNKNOWN", (deferrable()._replace(src=B), rtr()), (1,)),
    Edge("a stop with all bytes is none", "SES-STOP-AGAIN",
         (*DEFERRED, restart(), rsp(START + 1, list=1, opcode=1, modified_length=64, message_id=6))),
    Edge("the first time", "SES-STOP-AGAIN", (deferrable(), rsp(list=1, opcode=1, modified_length=0))),
    Edge("truncated", "SES-STOP-AGAIN",
         (*DEFERRED, restart(), rsp(START + 1, opcode=1, modified_length=0, message_id=6))),
    Edge("refused", "SES-STOP-AGAIN",
         (*DEFERRED, restart(), rsp(START + 1, code=C.NO_MATCH, list=1, message_id=6))),
)  # fmt: skip
def test_starting_again(edge: Edge) -> None:
    check(edge)


def test_token_0_names_nothing() -> None:
    """Some give none: `deferral_tokens` of a reference."""
    bench = Bench()
    bench.see([deferrable(), rtr(sender_token=0), restart(target_restart_token=0)])
    assert bench.judge.tallies["SES-RESTART-UNKNOWN"].judged == 0


def test_what_was_not_seen_is_told_of_restarts() -> None:
    bench = Bench()
    bench.see([restart()])
    assert bench.judge.tallies["SES-RESTART-OWNER"].not_judged == {"DEFERRABLE_RTR not seen": 1}
    bench = Bench()
    bench.see([rtr(), restart()])
    assert bench.judge.tallies["SES-RESTART-OWNER"].not_judged == {"deferrable send not seen": 1}
    assert bench.judge.tallies["SES-RTR-OWNER"].not_judged == {"deferrable send not seen": 1}


def test_findings_name_the_packets_that_show_it() -> None:
    def others(*lines: Line) -> list[tuple[int, ...]]:
        return [finding.packets[:-1] for finding in Bench().see(lines)]

    assert others(*DEFERRED, restart(job_id=1)) == [(0, 1)]
    assert others(*DEFERRED, restart(opcode=Op.DEFERRABLE_TSEND)) == [(0, 1)]
    assert others(*DEFERRED, restart(), RETRY) == [(2,)]
    assert others(deferrable(), rtr(job_id=1)) == [(0,)]
    assert others(*BEGUN, part(2, memory_key=1), part(3)) == [(0,)]
    assert others(sync(0), sync(1), sync(2, count=2)) == [(0, 1)]


def test_finding_says_what_ended_the_message() -> None:
    (finding,) = Bench(Options()).see([*BEGUN, REFUSED, part(2, clear=CLEARED)])
    assert "BAD_MKEY" in finding.expected
    (finding,) = Bench(Options()).see([*STOPPED, part(2, clear=CLEARED, **DEFERRABLE)])
    assert "a stop" in finding.expected


def test_tokens_are_bounded() -> None:
    bench = Bench()
    for number in range(5 * TOKENS):
        line = deferrable(psn=START + number, message_id=number, initiator_restart_token=number + 1)
        bench.one(line, packet(number, A, B, line.head, ses=line.ses, size=line.size))
    assert TOKENS <= len(bench.tracker._tokens._deferred) <= 2 * TOKENS
    last = rtr(receiver_token=5 * TOKENS)
    bench.one(last, packet(0, B, A, last.head, ses=last.ses))
    assert bench.judge.tallies["SES-RTR-UNKNOWN"].failed == 0


# Sync groups ----------------------------------------------------------------------------------------------------------

GROUP = (sync(0), sync(1), sync(2, count=3))


@edges(
    Edge("as many as it says", "SES-SYNC-MEMBERS", GROUP),
    Edge("fewer may be of another PDC", "SES-SYNC-MEMBERS", (sync(0), sync(1, count=3))),
    Edge("one more", "SES-SYNC-MEMBERS", (sync(0), sync(1), sync(2, count=2)), (2,)),
    Edge("one more comes late", "SES-SYNC-MEMBERS", (sync(0), sync(2, count=2), sync(1)), (2,)),
    Edge("the end comes first", "SES-SYNC-MEMBERS", (sync(2, count=2), sync(0), sync(1)), (2,)),
    Edge("the number is used again", "SES-SYNC-MEMBERS", (*GROUP, sync(3), sync(4), sync(5, count=3))),
    Edge("and then too often", "SES-SYNC-MEMBERS", (*GROUP, sync(3), sync(4), sync(5, count=2)), (5,)),
    Edge("too often before it was used again", "SES-SYNC-MEMBERS",
         (sync(0), sync(2, count=2), sync(3), sync(4, count=2), sync(1)), (4,)),
    Edge("the end is not there", "SES-SYNC-MEMBERS", (*GROUP, sync(3), sync(4), sync(5), sync(6))),
    Edge("late, but not too many", "SES-SYNC-MEMBERS", (sync(0), sync(2, count=3), sync(3), sync(1))),
    Edge("only the end", "SES-SYNC-MEMBERS", (sync(0, count=1), sync(1, count=1))),
)  # fmt: skip
def test_sync_groups(edge: Edge) -> None:
    check(edge)


def test_long_messages_of_a_sync_group_are_counted_once() -> None:
    """Each of their packets names the group."""
    extension = sync(0).more
    lines = [
        part(k, psn=START + 4 * n + k, opcode=Op.SYNC_WRITE, more=(extension[0]._replace(count=2 * n),), hd=n,
             message_id=ID + n)
        for n in range(2) for k in (1, 0, 2, 3)
    ]  # fmt: skip
    bench = Bench(Options(complete=True, ordered=True))
    assert bench.see(lines) == []
    assert bench.judge.tallies["SES-SYNC-MEMBERS"].judged == 1


def test_group_on_several_pdcs_rests() -> None:
    bench = Bench()
    lines = [sync(0), sync(1), sync(2), sync(3, count=2)]
    for number, line in enumerate(lines):
        seen = packet(number, A, B, line.head, ses=line.ses, more=line.more, size=line.size)
        bench.tracker.request((bench.back, bench.forward)[number > 0], seen, True)
    bench.judge.end()
    assert bench.judge.findings == []
    assert bench.judge.tallies["SES-SYNC-MEMBERS"].not_judged == {"a group on several PDCs": 1}


def test_groups_are_bounded_and_go_with_their_pdc() -> None:
    bench = Bench()
    groups = bench.tracker._groups

    def member(number: int, group: int) -> None:
        line = sync(number, message_id=1 + number % 60_000)
        more = (line.more[0]._replace(group=group),)
        bench.one(line, packet(number, A, B, line.head, ses=line.ses, more=more, size=line.size))

    for number in range(3 * GROUPS):
        member(number, number)
    assert GROUPS <= len(groups._kept) <= 2 * GROUPS
    for number in range(3 * MEMBERS):
        member(3 * GROUPS + number, 0xFFFF)
    assert MEMBERS <= len(groups._kept[A, B, 0xFFFF].members) <= 2 * MEMBERS
    bench.tracker.close(bench.back)
    assert groups._kept
    bench.tracker.close(bench.forward)
    assert not groups._kept


# Answers --------------------------------------------------------------------------------------------------------------


def echo(k: int, **fields: int) -> tuple[Line, Line]:
    """A read of one packet, and its data with its id as response_message_id."""
    values = {"psn": 50 + k, "length": 64, "read_request_message_id": ID + k, "response_message_id": ID + k}
    ask = part(0, psn=START + k, opcode=Op.READ, length=64, message_id=ID + k)
    return ask, returned(**{**values, **fields})


SENDS: dict[str, Any] = {"opcode": Op.SEND, "mode": "rod"}
NOTHING = atomic(length=0, atomic_opcode=AtomicOpcode.BXOR, atomic_datatype=AtomicDatatype.DOUBLE)


@edges(
    Edge("of a PDS, but not of a success", "SES-RESPONSE-WRONG-ID",
         (*whole(), rsp(code=C.BAD_MKEY, opcode=0, message_id=0)), (4,)),
    Edge("another rule says so of ACKs", "SES-DATA-NO-READ", (*whole(), returned(ack=START))),
    Edge("amid usual ones", "SES-DATA-SIZE",
         (*read(), returned(0), returned(1), returned(2, message_offset=2 * MTU + 7)), (6,)),
    Edge("amid usual ones", "SES-DATA-BEYOND",
         (*read(), returned(0), returned(1), returned(2, message_offset=LENGTH)), (6,)),
    Edge("the first one counts", "SES-RESPONSE-TWICE",
         (*whole(), rsp(code=C.BAD_MKEY), rsp(code=C.BAD_ADDR), rsp(code=C.BAD_MKEY)), (5,)),
    Edge("what is not guaranteed does not", "SES-RESPONSE-TWICE",
         (*whole(), rsp(modified_length=0), rsp(code=C.BAD_MKEY))),
    Edge("what was read may be read again", "SES-RESPONSE-TWICE",
         (*read(64), returned(length=64, ack=START), rsp(code=C.BAD_MKEY, req=1))),
    Edge("an atomic is not executed again", "SES-RESPONSE-TWICE",
         (atomic(Op.FETCHING_ATOMIC), returned(length=8, ack=START), rsp(code=C.BAD_MKEY, req=1)), (2,)),
    Edge("one of several packets has to say so", "SES-RESPONSE-UNGUARANTEED", (*whole(), rsp(code=C.BAD_MKEY))),
    Edge("it was cleared since", "SES-RESPONSE-UNGUARANTEED",
         (part(0, length=64), rsp(code=C.BAD_MKEY, req=1), rsp(code=C.BAD_MKEY))),
    Edge("a stop", "SES-RESPONSE-UNGUARANTEED", (deferrable(), rsp(list=1, opcode=1, modified_length=0)), (1,)),
    Edge("a wish to close does not", "SES-RESPONSE-UNGUARANTEED",
         (part(0, length=64), rsp(code=C.BAD_MKEY, req=2)), (1,)),
    Edge("nothing has happened yet", "SES-RESPONSE-UNGUARANTEED", (part(0, length=64), rsp(opcode=3))),
    Edge("another packet of it has said so", "SES-DISABLED-GEN-ACCEPTED",
         (*whole(**SENDS), rsp(code=C.DISABLED_GEN, req=1), rsp(START + 1))),
    Edge("its end has said nothing", "SES-DISABLED-GEN-ACCEPTED",
         (*whole(**SENDS)[:2], rsp(code=C.DISABLED_GEN, req=1), error(2, mode="rod"), rsp(START + 2))),
    Edge("the next message", "SES-DISABLED-GEN-ACCEPTED",
         (*whole(**SENDS), part(0, psn=START + 4, length=64, message_id=6, **SENDS),
          rsp(START + 1, code=C.DISABLED_GEN), rsp(START + 4, message_id=6, modified_length=64)), (6,)),
    Edge("writes have no generation", "SES-DISABLED-GEN-ACCEPTED",
         (part(0, length=64, mode="rod"), part(0, psn=START + 1, length=64, mode="rod", message_id=6),
          rsp(code=C.DISABLED_GEN), rsp(START + 1, message_id=6, modified_length=64))),
    Edge("a rendezvous has told it", "SES-MESSAGING-CODE",
         (*whole(opcode=Op.READ, ri_generation=3), rsp(code=C.BAD_GENERATION, ri_generation=4))),
    Edge("nobody has told one", "SES-MESSAGING-CODE",
         (*whole(opcode=Op.READ), rsp(code=C.BAD_GENERATION, ri_generation=4)), (4,)),
    Edge("no send needs a buffer there", "SES-MESSAGING-CODE",
         (*whole(opcode=Op.READ, ri_generation=3), rsp(code=C.NO_MATCH)), (4,)),
    Edge("data of another packet", "SES-DATA-SIZE", (*read(TWO), returned(1, ack=START, length=TWO)), (2,)),
    Edge("data of this packet", "SES-DATA-SIZE", (*read(TWO), returned(1, ack=START + 1, length=TWO))),
    Edge("data of what was refused", "SES-DATA-CODE",
         (*read(), rsp(START + 1, code=C.BAD_MKEY, req=1), returned(1), returned(0)), (5,)),
    Edge("data of what was refused, behind some that was not", "SES-DATA-CODE",
         (*read(), returned(0), rsp(START + 1, code=C.BAD_MKEY, req=1), returned(1)), (6,)),
    Edge("data of a read of one packet that was refused", "SES-DATA-CODE",
         (*read(64), rsp(code=C.BAD_MKEY, req=1), returned(length=64)), (2,)),
    Edge("an error is no stop", "SES-STOP-LIST",
         (*whole(**DEFERRABLE), rsp(list=1, opcode=1, modified_length=0), rsp(START + 1, code=C.NO_MATCH))),
    Edge("one byte was executed", "SES-ATOMIC-SIZE", (atomic(length=1), rsp(modified_length=1)), (1,)),
    Edge("none was", "SES-ATOMIC-DATATYPE", (NOTHING, rsp(modified_length=0))),
    Edge("whether it was is not said", "SES-ATOMIC-DATATYPE",
         (atomic(atomic_opcode=AtomicOpcode.BXOR, atomic_datatype=AtomicDatatype.DOUBLE), rsp(modified_length=0))),
    Edge("complex numbers have no order", "SES-ATOMIC-DATATYPE",
         (atomic(atomic_opcode=AtomicOpcode.MIN, atomic_datatype=AtomicDatatype.FLOAT_COMPLEX),
          rsp(modified_length=8)), (1,)),
    Edge("a sum of floats", "SES-ATOMIC-DATATYPE",
         (atomic(atomic_datatype=AtomicDatatype.DOUBLE), rsp(modified_length=8))),
    Edge("bits of integers", "SES-ATOMIC-DATATYPE",
         (atomic(atomic_opcode=AtomicOpcode.BXOR), rsp(modified_length=8))),
    Edge("data without an answer", "SES-RESPONSE-HEADER", (*read(), returned(ack=START, opcode=3)), (4,)),
    Edge("short requests have no id", "SES-RESPONSE-WRONG-ID", (short(), rsp(opcode=1, message_id=0))),
    Edge("of an ACK_REQ", "SES-RESPONSE-WRONG-ID", (short(), rsp(code=C.NULL, message_id=7))),
    Edge("not of an ACK_REQ", "SES-RESPONSE-WRONG-ID", (short(), rsp(message_id=7)), (1,)),
    Edge("what is no read has no end", "SES-DATA-BEYOND", (part(0, length=64), returned(3))),
    Edge("the first ones", "SES-DATA-OVERLAP", (*read(), returned(0), returned(0, psn=60)), (5,)),
    Edge("this is about generations", "SES-RESPONSE-GENERATION",
         (*whole(opcode=Op.SEND), rsp(code=C.BAD_GENERATION, ri_generation=4))),
    Edge("that of the read", "SES-RESPONSE-MESSAGE-ID", (*echo(0), *echo(1), *echo(2))),
    Edge("none, or an id of its own", "SES-RESPONSE-MESSAGE-ID",
         (*echo(0, response_message_id=0), *echo(1, response_message_id=0), *echo(2, response_message_id=99))),
)  # fmt: skip
def test_answers(edge: Edge) -> None:
    check(edge)


# Contradictions -------------------------------------------------------------------------------------------------------


def test_first_packet_that_lied_about_the_length_is_forgotten() -> None:
    lines = [part(0, request_length=9 * MTU), *whole()[1:]]
    assert found(lines) == [("SES-LENGTH-CHANGE", 0)]


def contradiction(bench: Bench, k: int) -> None:
    """A message of two packets that contradict each other, with more to come."""
    for number in range(2):
        line = part(number, psn=START + 9 * k + number, message_id=k, memory_key=number)
        bench.one(line, packet(2 * k + number, A, B, line.head, ses=line.ses, size=line.size))


def test_contradiction_is_told_when_the_capture_ends() -> None:
    bench = Bench()
    contradiction(bench, 1)
    assert bench.judge.findings == []
    bench.tracker.end()
    assert [finding.rule.id for finding in bench.judge.findings] == ["SES-KEY-CHANGE"]


def test_contradictions_do_not_wait_in_great_numbers() -> None:
    bench = Bench()
    for k in range(MESSAGES + 1):
        contradiction(bench, 1 + k)
        bench.tracker.sweep(0)
        assert bool(bench.judge.findings) == (k == MESSAGES)


def test_data_of_a_long_read_is_bounded() -> None:
    bench = Bench()
    count = 5 * PSNS
    for number, line in enumerate(whole(opcode=Op.READ, length=count * MTU)):
        bench.one(line, packet(number, A, B, line.head, ses=line.ses))
    message = bench.forward.ses.messages[ID]
    for k in range(count):
        line = returned(k, length=count * MTU)
        bench.one(line, packet(count + k, B, A, line.head, ses=line.ses, size=line.size))
    assert PSNS <= len(message.returned) <= 2 * PSNS + 1024
    assert bench.judge.findings == []


# Whose data it is -----------------------------------------------------------------------------------------------------

SHORT_DATA = Line(
    "data", B, head("pds.rud_req", psn=50, next_hdr=6),
    head("ses.response_data_small", opcode=2, job_id=JOB + 1, original_request_psn=START, payload_length=64), (), 64, 0,
)  # fmt: skip
"""Read data for the packet with this PSN, of another job."""


def doubtful(lines: Sequence[Line], options: Options) -> list[str]:
    return [finding.rule.id for finding in Bench(options).see(lines)]


@pytest.mark.parametrize(
    ("rule", "lines"),
    [
        ("SES-DATA-NO-READ", (*whole(), returned())),
        ("SES-DATA-JOB", (*read(), returned(job_id=1))),
        ("SES-DATA-BEYOND", (*read(TWO), returned(3))),
        ("SES-DATA-SIZE", (*read(), returned(1, payload_length=9))),
        ("SES-DATA-OVERLAP", (*read(), returned(0), returned(1), returned(1, psn=60))),
        ("SES-DATA-TWO-WAYS", (*read(), returned(0), returned(1, ack=START + 1))),
    ],
)
def test_data_may_be_for_a_read_not_seen_that_has_the_same_id(rule: str, lines: Sequence[Line]) -> None:
    assert rule in doubtful(lines, Options(complete=True))
    assert rule not in doubtful(lines, Options())


def test_short_data_has_no_id() -> None:
    ack = rsp(50, src=A, message_id=0, opcode=1, job_id=JOB + 1)
    lines = [*read(64), SHORT_DATA, ack, ack._replace(ses=ack.ses._replace(message_id=1))]
    assert [number for rule, number in found(lines) if rule == "SES-RESPONSE-WRONG-ID"] == [3]


def test_data_that_names_its_packet_is_of_that_read() -> None:
    request = read(64)
    in_ack = returned(ack=START, length=64, job_id=1)
    for line in (in_ack, SHORT_DATA):
        assert "SES-DATA-JOB" in doubtful([*request, line], Options())


def test_findings_about_answers_name_the_request() -> None:
    (finding,) = Bench().see([*whole(), rsp(START + 2, message_id=6)])
    assert finding.packets == (2, 4)
    (finding,) = Bench().see([*whole(), rsp(START + 9, opcode=0, list=1)])
    assert finding.packets == (4,)


def test_copies_of_data_are_not_judged() -> None:
    bench = Bench()
    for number, line in enumerate((*read(), returned(), returned())):
        seen = packet(number, line.src, A + B - line.src, line.head, ses=line.ses, size=line.size)
        if number < 5:
            bench.one(line, seen)
        else:
            bench.tracker.data(bench.back, seen, False)
    bench.judge.end()
    assert bench.judge.tallies["SES-DATA-OVERLAP"].judged == 1


def test_data_in_doubt_is_counted() -> None:
    bench = Bench(Options())
    assert bench.see([*read(), *(returned(k) for k in range(4))]) == []
    assert bench.judge.tallies["SES-DATA-SIZE"].asked == 4
    assert bench.judge.tallies["SES-DATA-NO-READ"].failed == 0
