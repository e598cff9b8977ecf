# SPDX-License-Identifier: GPL-2.0-only
"""Where rules begin and end: the last thing that is right, the first that is wrong, and what is forgotten between."""

from typing import Any, NamedTuple

import pytest

from tests.support.audit import frames as f
from tests.support.audit import pds_rudi as rudi
from tests.support.audit import pds_rules as pds
from tests.support.audit import roce_rules as roce
from tests.support.audit import ses_rules as ses
from tests.support.audit import sharp_rules as sharp
from tests.support.audit import tss_rules as tss
from tests.support.audit.build import B, head
from tests.support.audit.pds_rules import OPEN, START, TWO, ack, ack_of_a, back, close, cp, nack, req, syn
from tests.support.audit.pds_tracker import TRIMMED, follow
from tests.support.audit.reader_records import WITHOUT
from tests.support.audit.roce_rules import ack as roce_ack
from tests.support.audit.roce_rules import answer, atomic, only, read, value
from tests.support.audit.sharp_rules import JOINED, ONE, WHOLE, request, result
from tests.support.audit.tss_rules import sealed
from tests.support.audit.wire_rules import GOOD
from uetproto.audit.reader.mirror import WINDOW, Copies
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import Readers, Reading
from uetproto.audit.tss.counters import RANGES, UsedCounters
from uetproto.wire.capture.pcap import ETHERNET, open_capture
from uetproto.wire.flow_crc import PATIENCE
from uetproto.wire.headers.roce import NO_CREDIT_LIMIT, Nak, Operation
from uetproto.wire.headers.sharp import Flag, Op
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode


class Edge(NamedTuple):
    """A conversation, what it is about, and at which packets the rule finds something."""

    why: str
    rule: str
    lines: tuple[Any, ...]
    packets: tuple[int, ...] = ()


def named(edges: tuple[Edge, ...]) -> Any:
    return pytest.mark.parametrize("edge", edges, ids=lambda edge: f"{edge.rule}: {edge.why}")


# PDCs -----------------------------------------------------------------------------------------------------------------

LATER = START + 5
"""Another Start_PSN, near the first one."""
LOST = req(START + 1, START, seen=TRIMMED)
HELD = ack(START, START - 1, req=AckReq.CLEAR)
"""The response to START is guaranteed."""


def at(time_ns: int) -> pds.Line:
    return syn(START, retx=1, seen={"time_ns": time_ns})


PDCS = (
    Edge("so far nothing is cleared", "PDS-CLEAR-CMD-EARLY", (*OPEN, cp(CtlType.CLEAR_CMD, payload=START - 1))),
    Edge("late, for a packet before Start_PSN", "PDS-NACK-NEW-START",
         (syn(LATER, LATER - 1, start=LATER), nack(START, NackCode.NEW_START_PSN, nack_payload=LATER))),
    Edge("a tenth shorter is jitter", "PDS-RETX-BACKOFF", (syn(START), at(10_000), at(19_100))),
    Edge("more than a tenth is not", "PDS-RETX-BACKOFF", (syn(START), at(10_000), at(18_900)), (2,)),
    Edge("a NACK asked for the first copy", "PDS-RETX-BACKOFF",
         (syn(START), nack(START, NackCode.NO_RESOURCE), at(10_000), at(15_000))),
    Edge("a SACK reported a later packet", "PDS-RETX-BACKOFF",
         (syn(START), syn(START + 1), ack(START + 1, START - 1, sack_psn_offset=1, sack_bitmap=0b10), at(10_000),
          at(15_000))),
    Edge("a SACK reported no later packet", "PDS-RETX-BACKOFF",
         (syn(START), syn(START + 1), ack(START, START - 1, sack_psn_offset=1, sack_bitmap=0b1), at(10_000),
          at(15_000)), (4,)),
    Edge("the last PSN used is used again", "PDS-START-DISTANCE",
         (*OPEN, close(START + 1), ack(START + 1, START + 1), syn(START + 1, START, start=START + 1)), (4,)),
    Edge("trimmed is not missing", "PDS-FIRST-CONSECUTIVE", (*OPEN, LOST, close(START + 2))),
    Edge("ROD counts otherwise", "PDS-COPIES",
         (syn(START, kind="rod"), *(syn(START, kind="rod", retx=1) for _ in range(12)))),
    Edge("another packet is no copy", "PDS-RETX-MISSING", (*TWO, syn(START, ar=1, seen={"content": 5}))),
    Edge("trimmed was sent", "PDS-NACK-UNSENT",
         (*OPEN, LOST, req(START + 2, START), nack(START + 1, NackCode.TRIMMED))),
    Edge("up to the response that is held", "PDS-CACK-UNCLEARED",
         (syn(START), HELD, syn(START + 1), ack(START + 1, START)), (3,)),
    Edge("just cleared", "PDS-CACK-UNCLEARED",
         (syn(START), HELD, syn(START + 1, START), ack(START + 1, START + 1))),
    Edge("CACK_PSN alone acknowledges", "PDS-CLEAR-AHEAD",
         (syn(START), syn(START + 1), ack(START + 1, START), req(START + 2, START))),
    Edge("the PSN before Start_PSN", "PDS-ACK-EARLY", (*OPEN, ack(START - 1, START - 1)), (2,)),
    Edge("trimmed is no hole", "PDS-CACK-HOLE", (*OPEN, LOST, req(START + 2, START), ack(START + 2, START + 2))),
    Edge("the bit of CACK_PSN itself", "PDS-SACK-ZERO",
         (*TWO, ack(START, START + 1, sack_psn_offset=-1, sack_bitmap=1)), (4,)),
    Edge("return data has a PSN like that of CLOSE_CMD", "PDS-CLOSE-CACK",
         (*OPEN, back(START, START - 1), back(START + 1, START - 1), close(START + 1), ack_of_a(START + 1, START))),
    Edge("the widest window", "PDS-WINDOW", (*OPEN, req(START + 1024, START))),
    Edge("wider than that", "PDS-WINDOW", (*OPEN, req(START + 1025, START)), (2,)),
    Edge("which ACKs came before is not known", "PDS-CLEAR-AHEAD", (req(START), req(START + 1, START))),
    Edge("what comes again brings the newest CLEAR_PSN", "PDS-CLEAR-FALLS",
         (*TWO, req(START + 2), req(START + 3), req(START + 2, START + 1, retx=1))),
    Edge("a first transmission behind its copy", "PDS-CLEAR-FALLS",
         (*OPEN, req(START + 1, START, retx=1), req(START + 1, START), req(START + 2)), (4,)),
    Edge("usual but for CACK_PSN", "PDS-CACK-BEHIND-CLEAR",
         (*OPEN, req(START + 1, START), req(START + 2, START + 1), ack(START + 2, START)), (4,)),
    Edge("usual but for retx", "PDS-ACK-RETX", (*OPEN, req(START + 1, START), ack(START + 1, START, retx=1)), (3,)),
    Edge("usual but for their number", "PDS-WINDOW",
         (*OPEN, *(req(START + n, START) for n in range(1, 1026))), (1026,)),
    Edge("usual but for bit 0", "PDS-SACK-ZERO",
         (*TWO, req(START + 2, START + 1), req(START + 3, START + 1), ack(START + 1, START + 1, sack_bitmap=4)), (6,)),
    Edge("usual but for a hole", "PDS-SACK-UNSENT",
         (*TWO, req(START + 3, START + 1), ack(START + 1, START + 1, sack_bitmap=7)), (5,)),
    Edge("the first ACK covers nothing", "PDS-TWO-TARGETS",
         (syn(START), ack(START, START - 1), ack(START, START - 1, spdcid=9)), (2,)),
    Edge("also where all was usual before", "PDS-NEW-AFTER-CLOSE",
         (*OPEN, req(START + 1, START), ack(START + 1, START + 1), close(START + 2), req(START + 3, START + 1)), (5,)),
)  # fmt: skip


def test_ack_that_covers_nothing_may_be_seen_before_its_syn() -> None:
    log, _ = follow((ack(START, START - 1), syn(START)))
    assert log.of("FIRST") == [(1, 1)]


def test_target_begins_at_start_psn_too() -> None:
    """Its first packet is of the new instance, though the PDC before had PSNs near by."""
    over = close(START + 1), ack(START + 1, START + 1)
    log, _ = follow((*OPEN, back(START, START - 1), *over, syn(LATER, LATER - 1, start=LATER), back(LATER, LATER - 1)))
    assert log.of("FIRST")[-2:] == [(2, 5), (2, 6)]


@named(PDCS)
def test_pdcs(edge: Edge) -> None:
    assert tuple(packet for rule, packet in pds.found(edge.lines) if rule == edge.rule) == edge.packets


# Messages -------------------------------------------------------------------------------------------------------------

GENERATION = ses.part(0, opcode=Opcode.SEND, length=64, mode="rod")
MESSAGES = (
    Edge("an error knows its job", "SES-RESPONSE-WRONG-JOB",
         (*ses.whole(), ses.rsp(code=ReturnCode.BAD_MKEY, job_id=0)), (4,)),
    Edge("what MSG_ERROR ends is shorter", "SES-MODIFIED-LENGTH",
         (ses.error(2), ses.rsp(START + 2, modified_length=ses.TWO))),
    Edge("only behind the packet refused", "SES-DISABLED-GEN-ACCEPTED",
         (GENERATION, ses.rsp(code=ReturnCode.DISABLED_GEN), ses.rsp(modified_length=64))),
    Edge("a copy may be for an earlier read with the same id", "SES-DATA-JOB",
         (*ses.read(), ses.returned(job_id=1)._replace(head=head("pds.rud_req", psn=50, next_hdr=5, retx=1)))),
    Edge("a deferred message ends without payload", "SES-EOM-EARLY",
         (*ses.whole(opcode=Opcode.DEFERRABLE_SEND)[:2], ses.part(2, opcode=Opcode.DEFERRABLE_SEND, eom=1)), (2,)),
    Edge("RUD has no order", "SES-DISABLED-GEN-ACCEPTED",
         (ses.part(0, opcode=Opcode.SEND, length=64), ses.rsp(code=ReturnCode.DISABLED_GEN),
          ses.part(0, opcode=Opcode.SEND, length=64, psn=START + 1, message_id=6),
          ses.rsp(START + 1, message_id=6, modified_length=64))),
)  # fmt: skip


@named(MESSAGES)
def test_messages(edge: Edge) -> None:
    assert tuple(packet for rule, packet in ses.found(edge.lines) if rule == edge.rule) == edge.packets


def test_copy_of_unknown_bytes_leaves_a_rudi_request_answered() -> None:
    copy = rudi.req(retx=1)._replace(content=None)  # type: ignore[arg-type]  # the capture kept less of it
    assert "RUDI-SILENT" not in dict(rudi.found([rudi.req(), rudi.answer(), copy]))


# Queue pairs ----------------------------------------------------------------------------------------------------------

REFUSED = roce_ack(1, 1, Nak.REMOTE_ACCESS_ERROR)
REFUSED_2, REFUSED_3 = (roce_ack(psn, 1, Nak.REMOTE_ACCESS_ERROR) for psn in (2, 3))
AGAIN = only(0, content=1), only(1, content=1)
"""The same PSNs, but other requests."""
ANEW = roce.req(Operation.FETCH_ADD, 0, 0, head("atomic_eth", va=0x20000010, r_key=7, swapdt=1), content=1)
NEW_READ = roce.req(Operation.RDMA_READ_REQUEST, 0, 0, roce.reth(5), content=1)
NEW_DATA = answer(Operation.RDMA_READ_RESPONSE_ONLY, 0, 5, head("aeth", syndrome=NO_CREDIT_LIMIT, msn=1))
QUEUE_PAIRS = (
    Edge("it may be the rest of a READ that was not seen", "ROCE-READ-ORDER",
         (read(0), answer(Operation.RDMA_READ_RESPONSE_MIDDLE, 0, roce.PMTU))),
    Edge("all bytes are there, and more are to come", "ROCE-LENGTH",
         (read(0, 2 * roce.PMTU), *roce.data(0)[:2]), (2,)),
    Edge("behind a refusal another connection may begin", "ROCE-RESPONSE-KIND",
         (only(0), only(1), REFUSED, value(0, 5))),
    Edge("how many PSNs the READ has is not known", "ROCE-PSN-GAP", (read(0, 2 * roce.PMTU), only(2))),
    Edge("one of two is wrong, twice", "ROCE-PSN-TWO-CONTENTS",
         (only(0), only(1), *[only(0, content=1)] * 2, only(2)), (2,)),
    Edge("the size of one packet is not known", "ROCE-LENGTH",
         (*roce.write(0, 2 * roce.PMTU + 10, (-1, roce.PMTU, 10)),)),
    Edge("another connection has a key of its own", "ROCE-KEY-CHANGE",
         (only(0), only(1 << 20, p_key=0x8001), only(1 << 20 | 1, p_key=0x8001))),
    Edge("another connection has a path MTU of its own", "ROCE-PATH-MTU",
         (*roce.write(0, 2 * roce.PMTU + 10), *roce.write(1 << 20, 522, (256, 256, 10)))),
    Edge("another connection has a wider path", "ROCE-PATH-MTU",
         (*roce.write(0, 522, (256, 256, 10)), only(1 << 20, 1000))),
    Edge("another connection begins with a small packet", "ROCE-PATH-MTU",
         (*roce.write(0, 2 * roce.PMTU + 10), only(1 << 20), *roce.write(1 << 20 | 1, 522, (256, 256, 10)))),
    Edge("a refusal may end one with another path MTU", "ROCE-PATH-MTU",
         (*roce.write(0, 2 * roce.PMTU + 10), REFUSED, *roce.write(0, 522, (256, 256, 10)))),
    Edge("the answer shows that the connection is another", "ROCE-PSN-TWO-CONTENTS",
         (only(0), only(1), roce_ack(1, 2), atomic(0), value(0, 5))),
    Edge("another connection has READs of its own", "ROCE-LENGTH",
         (read(0), *roce.data(0), only(3), REFUSED_3, NEW_READ, NEW_DATA)),
    Edge("another connection is not refused", "ROCE-ANSWER-AFTER-NAK",
         (only(0), only(1), REFUSED, *AGAIN, roce_ack(1, 2))),
    Edge("another connection has values of its own", "ROCE-ATOMIC-ANSWER",
         (atomic(0), value(0, 5), only(1), REFUSED, ANEW, value(0, 6))),
    Edge("another connection counts anew", "ROCE-MSN",
         (only(0), roce_ack(0, 7), only(1), roce_ack(1, 8), only(2), REFUSED_2, *AGAIN, roce_ack(0, 20))),
    Edge("another connection is alive", "ROCE-PSN-TWO-CONTENTS",
         (only(0), only(1), REFUSED, *AGAIN, only(2), only(1, content=2), only(3)), (6,)),
)  # fmt: skip


@named(QUEUE_PAIRS)
def test_queue_pairs(edge: Edge) -> None:
    findings = roce.RoceAudit().see(roce.observed(edge.lines))
    assert tuple(finding.packet for finding in findings if finding.rule.id == edge.rule) == edge.packets


# Secure domains -------------------------------------------------------------------------------------------------------

SECURE = (
    Edge("late over a rotation", "TSS-TSC-ORDER", (sealed(0), sealed(6), sealed(0, an=1), sealed(5)), (3,)),
    Edge("a copy over a rotation tells of no other key", "TSS-TSC-ORDER",
         (sealed(0), sealed(6), sealed(0, an=1), sealed(0, content=1000), sealed(5)), (4,)),
    Edge("a rotation long ago is no excuse", "TSS-NONCE-REUSED",
         (sealed(0, an=1), sealed(0), sealed(1), sealed(1)), (3,)),
    Edge("the other sender has rotated since", "TSS-NONCE-SHARED",
         (sealed(0, ssi=9), sealed(0, ssi=9, an=1), sealed(0, B, ssi=9))),
    Edge("epochs of the next key begin anew", "TSS-EPOCH-ORDER",
         (sealed(0, epoch=3), sealed(0, an=1), sealed(0, epoch=0))),
)  # fmt: skip


@named(SECURE)
def test_secure_domains(edge: Edge) -> None:
    findings = tss.TssAudit().see(tss.observed(edge.lines))
    assert tuple(finding.packet for finding in findings if finding.rule.id == edge.rule) == edge.packets


def test_newest_of_the_forgotten_counters_is_forgotten_too() -> None:
    counters = UsedCounters()
    for tsc in range(0, 2 * RANGES + 2, 2):
        counters.add(tsc)
    assert (counters.floor, counters.add(counters.floor)) == (0, False)


# Groups ---------------------------------------------------------------------------------------------------------------

THREE = 0x0A000003
GROUPS = (
    Edge("a third child agrees with the first", "SHARP-MISMATCH",
         (request(ONE, 0), request(sharp.TWO, 1, op=Op.MIN), request(THREE, 2), result(ONE, 0)), (3,)),
    Edge("children agree on flags as well", "SHARP-MISMATCH",
         (request(ONE, 0), request(sharp.TWO, 1, flags=WHOLE | Flag.LE), result(ONE, 0)), (2,)),
    Edge("a result for another child answers nothing", "SHARP-WINDOW",
         (*JOINED, request(ONE, 0), *(request(sharp.TWO, 1, seq) for seq in range(2)), result(ONE, 0),
          request(sharp.TWO, 1, 2)), (6,)),
    Edge("what counts is sent up first", "SHARP-COMPLETE",
         (*JOINED, request(ONE, 0), sharp.UP, request(sharp.NODE, 3, to=sharp.ROOT, flags=WHOLE | Flag.RETX)), (3,)),
)  # fmt: skip


@named(GROUPS)
def test_groups(edge: Edge) -> None:
    findings = sharp.SharpAudit().see(sharp.observed(edge.lines))
    assert tuple(finding.packet for finding in findings if finding.rule.id == edge.rule) == edge.packets


# Mirror ports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("apart", "is_copy"), [(WINDOW, True), (-WINDOW, True), (WINDOW + 1, False), (-WINDOW - 1, False)]
)
def test_copies_come_soon_or_were_taken_a_little_earlier(apart: int, is_copy: bool) -> None:
    frame = f.frame(*f.LOWER["ipv4"], f.REQUEST, f.WRITE)
    copies = Copies("ethernet")
    assert not copies.is_copy(frame, 10 * WINDOW)
    assert copies.is_copy(frame, 10 * WINDOW + apart) is is_copy


def test_tags_and_hop_limits_of_copies_may_differ() -> None:
    *tags, network, udp = f.LOWER["two vlans, ipv6"]
    copies = Copies("ethernet")
    assert not copies.is_copy(f.frame(*f.LOWER["ipv6"], f.REQUEST, f.WRITE), 0)
    assert copies.is_copy(f.frame(*tags, f.changed(network, hop_limit=63), udp, f.REQUEST, f.WRITE), 1)


# Packets alone --------------------------------------------------------------------------------------------------------


def test_first_packet_of_a_write_is_not_all_of_it() -> None:
    """Whether its shape is known or not."""
    first = f.changed(f.BTH, opcode=int(Operation.RDMA_WRITE_FIRST))
    whole, part = (f.roce(first, f.changed(f.RETH, dmalen=size), payload=bytes(1024)) for size in (1024, 1025))
    other = f.roce(f.changed(first, psn=9), f.changed(f.RETH, dmalen=1024), payload=bytes(1024))
    report = f.audited([whole, *[part] * 6, other], rules=("ROCE-LENGTH",))
    assert f.found(report) == [("ROCE-LENGTH", 0), ("ROCE-LENGTH", 7)]


def test_findings_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uetproto.audit.judge.MOST", 2)
    report = f.audited([GOOD, *[f.spoilt(GOOD)] * 3], rules=("WIRE-CRC",))
    assert (f.found(report), report.tallies["WIRE-CRC"].failed) == ([("WIRE-CRC", 1), ("WIRE-CRC", 2)], 3)


def test_a_flow_of_a_pipe_is_decided_soon() -> None:
    """Its packets do not wait longer."""
    handed_on: list[int] = []
    readers = Readers(ETHERNET, Options(), pipe=True)
    reading = Reading(ETHERNET, Options(), lambda seen: handed_on.append(seen.number), readers=readers)
    with open_capture(f.capture(WITHOUT[: PATIENCE - 1])) as capture:
        for record in capture:
            reading.take(record)
    assert handed_on == []
    with open_capture(f.capture(WITHOUT[:1])) as capture:
        for record in capture:
            reading.take(record)
    assert len(handed_on) == PATIENCE
