# SPDX-License-Identifier: GPL-2.0-only
"""Queue pairs that are connected anew: what the connection before has said holds no more behind a silence."""

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import pytest

from tests.support.audit.build import B, head
from tests.support.audit.roce_rules import (
    ALL,
    PMTU,
    Line,
    RoceAudit,
    ack,
    answer,
    atomic,
    cnp,
    data,
    datagram,
    marked,
    observed,
    only,
    read,
    req,
    reth,
    value,
    write,
)
from tests.support.effort import effort
from uetproto.audit.finding import Finding
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.roce.tracker_requests import ANOTHER
from uetproto.audit.roce.tracker_state import MOST, SILENCE
from uetproto.audit.rule import Severity
from uetproto.wire.headers.roce import NO_CREDIT_LIMIT, Nak
from uetproto.wire.headers.roce import Operation as O

ORDERED = Options(ordered=True)


def apart(*parts: Sequence[Line], silence: int = SILENCE) -> list[ObservedPacket]:
    """Conversations, each `silence` behind the one before."""
    seen = observed([line for part in parts for line in part])
    begins = set(accumulate(len(part) for part in parts[:-1]))
    late = accumulate((silence if each.number in begins else 0) for each in seen)
    return [each._replace(time_ns=each.time_ns + more) for each, more in zip(seen, late, strict=True)]


def errors(packets: Sequence[ObservedPacket], options: Options = ORDERED) -> list[tuple[str, tuple[int, ...]]]:
    findings: list[Finding] = RoceAudit(options).see(packets)
    return [(f.rule.id, f.packets) for f in findings if f.severity is not Severity.NOTE]


# Once silent, once not ------------------------------------------------------------------------------------------------


class Anew(NamedTuple):
    """What a connection said, and what was seen of the next one; without a silence it contradicts the first."""

    why: str
    rule: str
    before: list[Line]
    behind: list[Line]
    found: tuple[int, ...]
    """Without the silence."""
    rests: bool = True
    """The coverage says that it was not judged; False: there was nothing to judge."""


FIRST = req(O.SEND_FIRST, 0, PMTU)
LAST, LAST_2 = req(O.SEND_LAST, 1, 8), req(O.SEND_LAST, 2, 8)
THREE = [only(0), only(1), only(2)]
OTHER = 1
"""Content that is another one."""
REFUSED = ack(1, 1, Nak.REMOTE_ACCESS_ERROR)
MIDDLE = answer(O.RDMA_READ_RESPONSE_MIDDLE, 1, PMTU)
ONLY_5 = answer(O.RDMA_READ_RESPONSE_ONLY, 0, 5, head("aeth", syndrome=NO_CREDIT_LIMIT, msn=1))
CONNECTIONS = (
    Anew("one request, and no more", "ROCE-PSN-TWO-CONTENTS", THREE, [only(0, content=OTHER)], (0, 3)),
    Anew("the second request is that of before", "ROCE-PSN-TWO-CONTENTS",
         THREE, [only(0, content=OTHER), only(1), only(2)], (0, 3)),
    Anew("the first request is that of before", "ROCE-PSN-TWO-CONTENTS",
         [FIRST, LAST], [FIRST, req(O.SEND_LAST, 1, 8, content=OTHER)], (1, 3)),
    Anew("its beginning was not seen", "ROCE-PSN-TWO-CONTENTS", [FIRST, LAST],
         [req(O.SEND_LAST, 1, 8, content=OTHER)], (1, 2)),
    Anew("the PSNs between were not seen", "ROCE-PSN-TWO-CONTENTS", THREE, [only(0, content=OTHER), only(3)], (0, 3)),
    Anew("it has an odd opcode where the other had none", "ROCE-OPCODE-ORDER",
         [only(8), only(9)], [req(O.SEND_FIRST, 7, PMTU)], (0, 2)),
    Anew("the other one broke off", "ROCE-OPCODE-ORDER", [only(0), req(O.SEND_FIRST, 1, PMTU)], [only(0), only(2)],
         (1, 3), rests=False),
    Anew("the other one broke off before its first PSN that was seen", "ROCE-OPCODE-ORDER", [FIRST], [only(1)],
         (0, 1), rests=False),
    Anew("its PSNs are those of a READ", "ROCE-READ-PSN", [read(0), *data(0), only(3)], [only(1)], (0, 5)),
    Anew("its READ is within one of before", "ROCE-READ-PSN", [read(0), *data(0), only(3)], [read(1, 9)], (0, 5)),
    Anew("a READ asks for the same place by another key", "ROCE-READ-PSN", [read(0), *data(0), only(3)],
         [read(1, PMTU + 10, va=0x20000000 + PMTU, r_key=8)], (0, 5)),
    Anew("it has another path MTU", "ROCE-PATH-MTU", write(0, 2 * PMTU + 10), write(0, 522, (256, 256, 10)),
         (0, 3), rests=False),
    Anew("it has a wider path", "ROCE-PATH-MTU", [*write(0, 522, (256, 256, 10)), only(3)], [only(1, 1000)],
         (0, 4), rests=False),
    Anew("its answers are of another size", "ROCE-PATH-MTU", [read(0), *data(0)],
         [read(0), *data(0, (256, 256))[:1]], (1, 5), rests=False),
    Anew("it has another P_Key", "ROCE-KEY-CHANGE", THREE, [only(0, p_key=0x8001), only(1, p_key=0x8001)],
         (0, 3), rests=False),
    Anew("its answers have another P_Key", "ROCE-KEY-CHANGE", [only(0), ack(0)], [ack(0, p_key=0x8001)],
         (1, 2), rests=False),
    Anew("nobody else has its P_Key", "ROCE-KEY-CHANGE", [only(0)], [ack(0, p_key=0x8001)], (0, 1), rests=False),
    Anew("its notifications have another P_Key", "ROCE-KEY-CHANGE", [only(0), ack(0)], [cnp(p_key=0x8001)],
         (2,), rests=False),
    Anew("it sums up to something else", "ROCE-LENGTH",
         [write(0, 2 * PMTU + 11)[0], write(0, 2 * PMTU + 11)[2]], write(0, 0)[1:2], (0, 2), rests=False),
    Anew("what was read of it is longer", "ROCE-LENGTH", [read(0, 8), only(1)], [ONLY_5], (0, 2)),
    Anew("its READ was not seen", "ROCE-READ-ORDER", [only(0), read(1), *data(1), only(4)], [MIDDLE], (1, 6)),
    Anew("its atomic request was not seen", "ROCE-RESPONSE-KIND", THREE, [value(0, 5)], (0, 3)),
    Anew("the value is another by now", "ROCE-ATOMIC-ANSWER", [atomic(0), value(0, 5)], [atomic(0), value(0, 6)],
         (1, 3)),
    Anew("its messages are counted otherwise", "ROCE-MSN", [only(0), ack(0, 7), only(1), ack(1, 8)],
         [only(0), only(1), ack(1, 9)], (3, 6), rests=False),
    Anew("it is not refused", "ROCE-ANSWER-AFTER-NAK", [only(0), only(1), REFUSED], [ack(1, 1)], (2, 3)),
    Anew("it is far away, and its requests were not seen", "ROCE-PSN-NOT-SENT", [only(0), ack(0)], [ack(1 << 22)],
         (2,), rests=False),
)  # fmt: skip
of_connections = pytest.mark.parametrize("case", CONNECTIONS, ids=lambda case: f"{case.rule}: {case.why}")


@of_connections
def test_connected_anew(case: Anew) -> None:
    assert errors(apart(case.before, case.behind)) == []


@of_connections
def test_not_connected_anew(case: Anew) -> None:
    """There was no time for it."""
    found = errors(apart(case.before, case.behind, silence=SILENCE // 2), ALL)
    assert [packets for rule, packets in found if rule == case.rule][:1] == [case.found]


@of_connections
def test_why_it_is_not_judged_is_said(case: Anew) -> None:
    audit = RoceAudit(ORDERED)
    audit.see(apart(case.before, case.behind))
    rested = {name for name, tally in audit.judge.tallies.items() if tally.not_judged[ANOTHER.why]}
    assert (case.rule in rested) is case.rests


# A connection that was silent -----------------------------------------------------------------------------------------


class Silent(NamedTuple):
    """One connection, silent between; what is wrong behind it is found all the same."""

    why: str
    rule: str
    parts: tuple[list[Line], ...]
    packets: tuple[int, ...]


SILENCES = (
    Silent("it counts on", "ROCE-PSN-TWO-CONTENTS", ([only(0)], [only(1), only(0, content=OTHER), only(2)]), (0, 2)),
    Silent("it counts on twice", "ROCE-PSN-TWO-CONTENTS",
         ([only(0)], [only(1)], [only(2), only(0, content=OTHER), only(3)]), (0, 3)),
    Silent("it counts on, with another P_Key", "ROCE-KEY-CHANGE", ([only(0)], [only(1, p_key=0x8001)]), (0, 1)),
    Silent("it counts on, in the middle of a message", "ROCE-OPCODE-ORDER", ([FIRST], [LAST, LAST_2]), (1, 2)),
    Silent("it counts on, with more bytes", "ROCE-PATH-MTU", (write(0, 2 * PMTU + 10), [only(3, PMTU + 4)]), (0, 3)),
    Silent("it counts on, with another sum", "ROCE-LENGTH",
         (write(0, 2 * PMTU + 11)[:2], write(0, 2 * PMTU + 11)[2:]), (0, 2)),
    Silent("the answer takes its time", "ROCE-LENGTH", ([read(0, 8)], [ONLY_5]), (0, 1)),
    Silent("the answer to a READ takes its time", "ROCE-LENGTH",
         ([read(0, 2 * PMTU + 11)], [*data(0)]), (0, 3)),
    Silent("each answer takes its time", "ROCE-MSN",
         ([only(0)], [ack(0, 1)], [only(1)], [ack(1, 3)]), (1, 3)),
    Silent("a time-out is over", "ROCE-PSN-TWO-CONTENTS",
         ([only(0), ack(0, 1), only(1), only(2)], [only(1, content=OTHER), only(2), ack(2, 3)]), (2, 4)),
    Silent("a time-out is over, behind a READ", "ROCE-PSN-TWO-CONTENTS",
         ([read(0), *data(0), only(3), only(4)], [only(3, content=OTHER), only(4)]), (4, 6)),
    Silent("the other one goes on", "ROCE-PSN-TWO-CONTENTS",
         ([only(0), only(1), ack(1, 2), req(O.SEND_ONLY, 0)],
          [only(2), ack(2, 3), only(1, content=OTHER), only(3)]), (1, 6)),
    Silent("another connection, in which a READ of before means nothing", "ROCE-PSN-TWO-CONTENTS",
         ([read(0), *data(0), only(3)], [only(1), only(2), only(2, content=OTHER), only(3)]), (6, 7)),
    Silent("another connection, lower", "ROCE-PSN-TWO-CONTENTS",
         ([only(8), only(9)], [req(O.SEND_FIRST, 7, PMTU), req(O.SEND_LAST, 8, 8), only(9), only(9, content=OTHER),
                               only(10)]), (4, 5)),
    Silent("an answer was doubted before", "ROCE-RESPONSE-KIND",
         ([only(0), only(1), value(0, 5)], [only(0, content=OTHER)]), (0, 2)),
)  # fmt: skip


@pytest.mark.parametrize("case", SILENCES, ids=lambda case: f"{case.rule}: {case.why}")
def test_silence_in_a_connection(case: Silent) -> None:
    found = errors(apart(*case.parts))
    assert [packets for rule, packets in found if rule == case.rule] == [case.packets]


def test_only_one_of_two_was_silent() -> None:
    """As long as the other one sends, nothing is connected anew."""
    answers = data(0, [PMTU] * 40)
    packets = apart([only(-1), read(0, 40 * PMTU), *answers], [only(-1, content=OTHER), only(40)], silence=0)
    slow = [each._replace(time_ns=each.time_ns * 3) for each in packets]
    assert slow[-2].time_ns - slow[1].time_ns > 2 * SILENCE
    assert errors(slow) == [("ROCE-PSN-TWO-CONTENTS", (0, len(slow) - 2))]


def test_captures_that_are_not_in_the_order_of_time_are_as_good_as_silent() -> None:
    old, new = observed([*THREE, only(0, content=OTHER)])[:3], observed([*THREE, only(0, content=OTHER)])[3:]
    earlier = [each._replace(time_ns=each.time_ns - 2 * SILENCE) for each in new]
    assert errors([*old, *earlier]) == []
    assert errors([*old, *new]) == [("ROCE-PSN-TWO-CONTENTS", (0, 3))]


def test_copies_right_behind_the_original_are_found_wherever() -> None:
    """Another content, and the sender counts on."""
    for silence in (0, 10 * SILENCE):
        packets = apart(THREE, [only(3), only(3, content=OTHER), only(4)], silence=silence)
        assert errors(packets) == [("ROCE-PSN-TWO-CONTENTS", (3, 4))]


def test_datagrams_of_another_process_have_a_key_of_their_own() -> None:
    assert errors(apart([datagram(0, 1)], [datagram(7, 2, 0x8001), datagram(8, 3, 0x8001)])) == []
    assert errors(apart([datagram(0, 1)], [datagram(7, 2, 0x8001)], silence=0)) == [("ROCE-KEY-CHANGE", (0, 1))]


# Connections at random ------------------------------------------------------------------------------------------------


def conversation(chance: random.Random, number: int, begin: int) -> Iterator[Line]:
    """Messages of a connection that is right in every way, and their answers."""
    p_key = chance.choice((0xFFFF, 0x8001))
    pmtu = chance.choice((256, 1024, 4096))
    memory = chance.getrandbits(32)
    psn = begin

    def keyed(line: Line) -> Line:
        src, dst, leads, more = line
        return src, dst, leads._replace(p_key=p_key), more

    for msn in range(1, chance.randrange(2, 10)):
        kind = chance.choice(("only", "same", "write", "send", "read", "atomic"))
        content = 0 if kind == "same" else 2 * number + 1
        sizes = [pmtu] * chance.randrange(1, 4) + [chance.randrange(1, 64)]
        lines: list[Line] = []
        answers = [ack(psn, msn)]
        if kind in ("only", "same"):
            lines = [only(psn, 8, content=content)]
        elif kind == "write":
            lines = write(psn, sum(sizes), sizes, content=content)
        elif kind == "send":
            lines = [req(O.SEND_FIRST, psn, pmtu, content=content), req(O.SEND_LAST, psn + 1, 8, content=content)]
        elif kind == "read":
            lines = [req(O.RDMA_READ_REQUEST, psn, 0, reth(sum(sizes)), content=content)]
            answers = data(psn, sizes)
        else:
            lines = [atomic(psn)]
            answers = [value(psn, memory)]
            memory += 1
        psn += len(answers) if kind == "read" else len(lines)
        if kind in ("write", "send"):
            answers = [ack(psn - 1, msn)]
        for src, dst, leads, more in answers:
            aeth = [each._replace(msn=msn) if each.form == "aeth" else each for each in more.get("more", ())]
            lines.append((src, dst, leads, more | {"more": tuple(aeth)}))
        yield from map(keyed, lines)


def view(chance: random.Random, packets: list[ObservedPacket]) -> list[ObservedPacket]:
    """What is seen of it somewhere."""
    return [each._replace(number=number) for number, each in enumerate(_cut(chance, packets))]


def _cut(chance: random.Random, packets: list[ObservedPacket]) -> list[ObservedPacket]:
    firsts = {0, *(i for i, each in enumerate(packets) if each.time_ns - packets[i - 1].time_ns > SILENCE)}
    kind = chance.choice(("all", "holes", "half", "one", "doubled", "disordered"))
    if kind == "holes":
        return [each for i, each in enumerate(packets) if i in firsts or chance.random() < 0.7]
    if kind == "half":
        return packets[len(packets) // 3 :]
    if kind == "one":
        return [each for each in packets if each.src == packets[0].src]
    if kind == "doubled":
        return [each for each in packets for _ in range(chance.randrange(1, 3))]
    if kind == "disordered":
        first = {packets[i].number for i in firsts}
        return sorted(packets, key=lambda each: each.time_ns + (each.number not in first) * chance.randrange(3_000))
    return packets


@pytest.mark.parametrize("part", range(10))
def test_connections_on_the_same_queue_pairs(part: int) -> None:
    """Whatever they were, and whatever was seen of them, but for the first PSN: that is not the next of before."""
    for seed in range(part, effort(600, 2_000, 2_000), 10):
        chance = random.Random(seed)
        begins = sorted((chance.choice((0, 0, chance.randrange(12))) for _ in range(3)), reverse=True)
        parts = [list(conversation(chance, number, begin)) for number, begin in enumerate(begins)]
        packets = view(chance, apart(*parts, silence=2 * SILENCE))
        assert errors(packets, Options()) == [], seed


def test_what_is_wrong_in_such_connections_is_found() -> None:
    """A copy of another content, right behind the original, if it does not look like a new beginning."""
    found = 0
    for seed in range(300):
        chance = random.Random(seed)
        lines = [*conversation(chance, 0, 0), *THREE]
        parts = [lines, list(conversation(chance, 1, 0))]
        packets = apart(*parts, silence=2 * SILENCE)
        requests = [each for each in packets if each.dst == B and each.content is not None]
        copied = chance.choice(requests)
        at = packets.index(copied)
        copy = copied._replace(content=-1)
        number = range(len(packets) + 1)
        wrong = [
            each._replace(number=n)
            for n, each in zip(number, [*packets[: at + 1], copy, *packets[at + 1 :]], strict=True)
        ]
        rules = {(rule, numbers) for rule, numbers in errors(wrong, Options())}
        found += ("ROCE-PSN-TWO-CONTENTS", (at, at + 1)) in rules
    assert found > 250


# What goes with what --------------------------------------------------------------------------------------------------


class Edge(NamedTuple):
    """A conversation, and what is found in it by one rule."""

    why: str
    rule: str
    lines: list[Line]
    packets: tuple[tuple[int, ...], ...] = ()


BIT = 2 * PMTU + 10
MID = 0x300000
EDGES = (
    Edge("the one before a READ", "ROCE-OPCODE-ORDER", [FIRST, only(9), read(1)], ((0, 2),)),
    Edge("the one behind a READ may be of its answer", "ROCE-OPCODE-ORDER", [read(0, BIT), only(99), LAST]),
    Edge("a READ may have more PSNs", "ROCE-OPCODE-ORDER", [only(0), LAST_2, read(1)]),
    Edge("the READ's own PSNs are not those of the one behind", "ROCE-OPCODE-ORDER",
         [*write(0, BIT), req(O.SEND_LAST, 9, 8), read(3), only(6)]),
    Edge("the one behind a gap", "ROCE-OPCODE-ORDER", [only(0), LAST_2, only(1)], ((1, 2),)),
    Edge("the one before goes first", "ROCE-OPCODE-ORDER", [FIRST, LAST_2, only(1)], ((0, 2),)),
    Edge("the newest is a READ", "ROCE-OPCODE-ORDER", [FIRST, LAST, read(2, 8), req(O.SEND_LAST, 3, 8)], ((2, 3),)),
    Edge("what follows fills a gap", "ROCE-PSN-TWO-CONTENTS",
         [only(0), only(2), only(0, content=OTHER), only(1)], ((0, 2),)),
    Edge("what follows is the next, but not behind it", "ROCE-PSN-TWO-CONTENTS",
         [*THREE, only(0, content=OTHER), only(3)], ((0, 3),)),
    Edge("what follows is its own copy", "ROCE-PSN-TWO-CONTENTS",
         [*THREE, *[only(1, content=OTHER)] * 3, only(3)], ((1, 3),)),
    Edge("what follows contradicts as well", "ROCE-PSN-TWO-CONTENTS",
         [*THREE, only(0, content=OTHER), only(1, content=OTHER)]),
    Edge("an acknowledged one may be followed by a new connection", "ROCE-PSN-TWO-CONTENTS",
         [only(0), ack(0), only(0, content=OTHER), only(1)]),
    Edge("right behind, not acknowledged", "ROCE-PSN-TWO-CONTENTS",
         [only(0), only(0, content=OTHER), only(1), ack(1, 2)], ((0, 1),)),
    Edge("right behind a READ", "ROCE-PSN-TWO-CONTENTS",
         [only(0), read(1), req(O.RDMA_READ_REQUEST, 1, 0, reth(9), content=OTHER), only(4)], ((1, 2),)),
    Edge("another length of a WRITE", "ROCE-LENGTH",
         [*write(0, BIT), write(0, BIT + 1, content=OTHER)[0], only(3)], ((0, 3),)),
    Edge("the same length of a WRITE", "ROCE-LENGTH", [*write(0, BIT), write(0, BIT, content=OTHER)[0], only(3)]),
    Edge("another length of a READ", "ROCE-LENGTH",
         [only(0), read(1, BIT), req(O.RDMA_READ_REQUEST, 1, 0, reth(9), content=OTHER), only(4)], ((1, 2),)),
    Edge("a gap is closed by a packet of unknown size", "ROCE-LENGTH",
         [write(0, BIT + 1, (PMTU, -1, 10))[n] for n in (0, 2, 1)]),
    Edge("a gap is closed, and the message begins before what was seen", "ROCE-LENGTH",
         [write(0, BIT + 1)[2], write(0, BIT + 1)[1]]),
    Edge("the requests of one do not count for the other", "ROCE-MSN",
         [only(0), ack(0, 1), only(1), ack(1, 2), only(2), ack(2, 4)], ((3, 5),)),
    Edge("the PSNs may be any", "ROCE-MSN", [only(MID), ack(MID, 1), only(MID + 1), ack(MID + 1, 3)], ((1, 3),)),
    Edge("behind a gap nobody counts", "ROCE-MSN", [only(0), ack(0, 1), only(2), ack(2, 9)]),
    Edge("a READ is answered by its kind", "ROCE-RESPONSE-KIND", [read(0), value(0, 5), only(3)], ((0, 1),)),
    Edge("an atomic request is answered by its kind", "ROCE-RESPONSE-KIND",
         [atomic(0), *data(0)[:1], only(1)], ((0, 1),)),
    Edge("how long a READ of before is changes nothing", "ROCE-PSN-GAP", [read(0, BIT), only(3), *data(0), only(4)]),
    Edge("how long the READ is tells the next PSN", "ROCE-PSN-GAP", [read(0, BIT), *data(0), only(4)], ((4,),)),
    Edge("a late READ has PSNs as well", "ROCE-READ-PSN", [*write(0, BIT), only(9), read(3, BIT), only(4)], ((4, 5),)),
    Edge("a late FIRST tells how long its message is", "ROCE-LENGTH",
         [write(0, BIT + 1)[n] for n in (1, 2, 0)], ((2,),)),
    Edge("a copy on its way behind a refusal begins nothing", "ROCE-ANSWER-AFTER-NAK",
         [only(0), only(1), REFUSED, only(1), ack(1, 2)], ((2, 4),)),
    Edge("a datagram's notification", "ROCE-CNP-UNMARKED", [datagram(0, 1), cnp()], ((1,),)),
    Edge("a marked datagram's notification", "ROCE-CNP-UNMARKED", [marked(datagram(0, 1)), cnp()]),
)  # fmt: skip


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: f"{edge.rule}: {edge.why}")
def test_edges(edge: Edge) -> None:
    findings = RoceAudit(Options(complete=True, ordered=True)).see(observed(edge.lines))
    assert tuple(finding.packets for finding in findings if finding.rule.id == edge.rule) == edge.packets


def test_a_doubt_waits_until_the_suspect_is_settled() -> None:
    """What answers a request that may be of another connection tells nothing yet."""
    audit = RoceAudit(Options(complete=True))
    packets = observed([*THREE, ack(2, 3), only(0, content=OTHER), value(1, 5), atomic(1), value(2, 6), atomic(2)])
    for seen in packets[:-3]:
        audit.tracker.see(seen)
    audit.tracker.sweep(packets[-3].time_ns)
    assert audit.see(packets[-3:]) == []


def test_a_doubt_is_told_when_the_suspect_is_none() -> None:
    packets = observed([*THREE, ack(2, 3), only(0, content=OTHER), value(1, 5), only(3)])
    assert errors(packets) == [("ROCE-PSN-TWO-CONTENTS", (0, 4)), ("ROCE-RESPONSE-KIND", (1, 5))]


def test_path_mtu_of_answers_to_nobody_holds_for_them_only() -> None:
    """Their requests were not seen; behind a silence a READ has as many PSNs as another path MTU gives it."""
    old = data(12, (256, 256, 10))
    new = [only(0), ack(0), read(1, BIT), *data(1), only(4), ack(4, 3)]
    assert errors(apart(old, new)) == []


def test_answers_to_nobody_tell_nothing_of_requests_behind_a_silence() -> None:
    old, new = [value(0, 5), value(1, 5)], [ack(0), only(1), ack(1, 2), only(2)]
    assert errors(apart(old, new)) == []
    assert errors(apart(old, new, silence=0)) == [("ROCE-RESPONSE-KIND", (3, 1))]


def test_unknown_bytes_rest_and_another_opcode_does_not() -> None:
    known, unknown = only(0), only(0, content=0)
    unknown = (*unknown[:3], unknown[3] | {"content": None})
    other = write(0, PMTU, (PMTU, 0))[0]
    other = (*other[:3], other[3] | {"content": None})
    audit = RoceAudit()
    findings = audit.see(observed([known, unknown, only(1), other, only(2)]))
    assert [f.packets for f in findings if f.rule.id == "ROCE-PSN-TWO-CONTENTS"] == [(0, 3)]
    tally = audit.judge.tallies["ROCE-PSN-TWO-CONTENTS"]
    assert (tally.not_judged, tally.failed) == ({"content not known": 1}, 1)


def test_answers_wait_for_their_requests_but_not_all() -> None:
    audit = RoceAudit()
    for seen in observed([ack(n) for n in range(200)]):
        audit.tracker.see(seen)
    (stream,) = audit.tracker.flows
    assert len(stream.waiting) == 64


def test_psns_of_datagrams_are_not_all_remembered() -> None:
    audit = RoceAudit()
    for seen in observed([datagram(n, n) for n in range(MOST + 2)]):
        audit.tracker.see(seen)
        (stream,) = audit.tracker.flows
        assert len(stream.records) <= MOST
    assert len(stream.records) == MOST // 2 + 1


def test_answers_to_nothing_are_told_when_requests_go_on_and_not_before() -> None:
    """At the next sweep, or at the end."""
    audit = RoceAudit()
    packets = observed([only(0), ack(0), ack(1 << 22), only(1)])
    for seen in packets[:3]:
        audit.tracker.see(seen)
    audit.tracker.sweep(packets[2].time_ns)
    assert audit.judge.findings == []
    audit.tracker.see(packets[3])
    audit.tracker.sweep(packets[3].time_ns)
    assert [(f.rule.id, f.packets) for f in audit.judge.findings] == [("ROCE-PSN-NOT-SENT", (2,))]
    assert len(audit.see([])) == 1


def test_long_read_that_was_missed_has_answers_far_away() -> None:
    """One packet may use 2^23 PSNs: only where none is missing an answer to nothing is wrong (roce.md §7)."""
    far = [answer(O.RDMA_READ_RESPONSE_MIDDLE, at, PMTU) for at in (70_000, 70_001)]
    assert errors(observed([only(0), ack(0), *far, ack(80_000, 5)])) == []
    whole = [only(0), ack(0), read(1, 80_000 * PMTU), data(1)[0], *far]
    assert "ROCE-PSN-NOT-SENT" not in dict(errors(observed(whole), ALL))
    assert "ROCE-PSN-NOT-SENT" in dict(errors(observed([*whole[:2], *far]), ALL))


def test_answers_to_nothing_are_not_all_remembered() -> None:
    audit = RoceAudit()
    for seen in observed([only(0), ack(0), *(ack(1 << 22 | n) for n in range(200))]):
        audit.tracker.see(seen)
    assert sum(len(stream.unsent) for stream in audit.tracker.flows) == 64


def between(number: int, port: int, *lines: Line) -> list[Line]:
    """The same with other queue pairs and another source port."""
    return [
        (src, dst, leads._replace(destqp=leads.destqp + 0x100 * number), more | {"entropy": port})
        for src, dst, leads, more in lines
    ]


ALONE = between(1, 5, only(0))
FAR_ANSWER = ack(1 << 22)


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ([], [(1,)]),
        (between(3, 6, FAR_ANSWER), [(1,)]),
        (between(3, 5, only(1 << 20), ack(1 << 20)), [(1,)]),
        (between(3, 5, FAR_ANSWER), []),
        (between(3, 5, only(1 << 21)), []),
    ],
    ids=["nobody else", "another port", "a pair", "two that answer", "two that ask"],
)
def test_two_that_nobody_else_can_belong_to_belong_together(others: list[Line], found: list[tuple[int, ...]]) -> None:
    """At the end of a capture: then an answer from far away answers nothing."""
    lines = [*ALONE, *between(2, 5, FAR_ANSWER), *others]
    findings = RoceAudit().see(observed(lines))
    assert [f.packets for f in findings if f.rule.id == "ROCE-PSN-NOT-SENT"] == found


def test_what_is_counted() -> None:
    """Every packet, request and answer once."""
    audit = RoceAudit(Options(complete=True, ordered=True))
    audit.see(observed([only(0), only(1), only(0), ack(1, 2), read(2), *data(2), cnp(), datagram(0, 1)]))
    judged = {name: tally.judged for name, tally in audit.judge.tallies.items() if name.startswith("ROCE-")}
    assert (judged["ROCE-KEY-CHANGE"], judged["ROCE-OPCODE-ORDER"], judged["ROCE-PSN-NOT-SENT"]) == (10, 3, 4)
    assert (judged["ROCE-PSN-TWO-CONTENTS"], judged["ROCE-UD-PSN"], judged["ROCE-CNP-UNMARKED"]) == (1, 1, 1)


def test_whose_a_finding_is() -> None:
    (found,) = RoceAudit().see(observed([datagram(0, 1), datagram(0, 2)]))
    assert found.as_dict()["flow"] == {"transport": "UD", "src": "10.0.0.1", "srcqp": 0x77}
    (found,) = RoceAudit().see(observed([atomic(0, 4)]))
    assert found.as_dict()["flow"] == {"transport": "RC", "src": "10.0.0.1", "dst": "10.0.0.2", "destqp": 0x12}
