"""Every rule about messages: packets that violate it, found at the right one, and packets that are right."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from tests.audit.build import A, B, head, packet
from uetproto.audit.finding import Finding
from uetproto.audit.judge import Judge
from uetproto.audit.pds.tracker_state import PsnRecord
from uetproto.audit.reader.observed import Head, Seen
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import CHOICE, Severity
from uetproto.audit.ses.rules import NOT_OBSERVABLE, RULES
from uetproto.audit.ses.tracker import SesTracker
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode, Opcode, ReturnCode

START, MTU, ID, JOB, RI, KEY = 1000, 1024, 5, 9, 15, 77
LENGTH = 4 * MTU
"""Of most messages: four packets."""
ALL = Options(complete=True, ordered=True)
Op, C = Opcode, ReturnCode


class Line(NamedTuple):
    """What the tracker is called with, and by whom sent."""

    call: str
    src: int
    head: Head
    ses: Head
    more: tuple[Head, ...]
    size: int
    psn: int


class Direction:
    """In place of that of the tracker of PDCs."""

    def __init__(self) -> None:
        self.other: Direction = self
        self.ses: Any = None
        self.records: dict[int, PsnRecord] = {}
        self.cack: int | None = None

    def flow(self) -> dict[str, Any]:
        return {"src": "10.0.0.1"}


class Bench:
    """A PDC whose packets are handed to the tracker of messages, and judged."""

    def __init__(self, options: Options = ALL, listen: Callable[[Judge], None] = lambda _: None) -> None:
        self.judge = Judge(RULES, complete=options.complete, ordered=options.ordered)
        listen(self.judge)
        self.tracker = SesTracker(self.judge, options)
        self.forward, self.back = Direction(), Direction()
        for one, other in ((self.forward, self.back), (self.back, self.forward)):
            one.other, one.ses = other, self.tracker.open(one)

    def see(self, lines: Sequence[Line]) -> list[Finding]:
        """The findings after these packets and the end of the PDC."""
        for number, line in enumerate(lines):
            seen = packet(number, line.src, A + B - line.src, line.head, number, ses=line.ses, more=line.more,
                          size=line.size)  # fmt: skip
            self.one(line, seen)
        self.tracker.close(self.forward)
        self.tracker.close(self.back)
        self.tracker.end()
        self.judge.end()
        return self.judge.findings

    def one(self, line: Line, seen: Seen) -> None:
        if line.call == "request":
            direction = self.forward if line.src == A else self.back
            first = line.psn not in direction.records
            direction.records.setdefault(line.psn, PsnRecord(seen.number, seen.time_ns, seen.content, None, line.head))
            self.tracker.request(direction, seen, first)
        elif line.call == "data":
            self.tracker.data(self.back, seen, True)
        else:
            direction = self.forward if line.src == B else self.back
            if line.psn in direction.records:
                direction.records[line.psn].acked = True
            self.tracker.response(direction, seen, line.psn)


def found(lines: Sequence[Line]) -> list[tuple[str, int]]:
    return [(finding.rule.id, finding.packet) for finding in Bench().see(lines)]


# Packets --------------------------------------------------------------------------------------------------------------


def _kind(opcode: int) -> str:
    if opcode in (Op.DEFERRABLE_SEND, Op.DEFERRABLE_TSEND):
        return "deferrable_std"
    if opcode in (Op.SEND, Op.TAGGED_SEND, Op.RENDEZVOUS_SEND, Op.DATAGRAM_SEND):
        return "send_std"
    return "request_std"


def part(
    k: int, *, opcode: int = Op.WRITE, length: int = LENGTH, psn: int | None = None, size: int | None = None,
    src: int = A, mode: str = "rud", more: tuple[Head, ...] = (), next_hdr: int = 3, form: str = "",
    clear: int = START - 1, retx: int = 0, **fields: int,
) -> Line:  # fmt: skip
    """Packet k of a message that begins at START."""
    at = START + k if psn is None else psn
    count = max(1, -(-length // MTU))
    stated = max(0, min(MTU, length - k * MTU)) if size is None else size
    som = fields.pop("som", int(k == 0))
    values = {"opcode": opcode, "rel": 1, "eom": int(k == count - 1), "som": som, "message_id": ID, "job_id": JOB,
              "resource_index": RI, "request_length": length}  # fmt: skip
    if not form:
        form = f"ses.{_kind(opcode)}" + (".som" if som else "")
        values |= {"memory_key" if "request" in form else "match_bits": KEY}
        values |= {"initiator_restart_token": 3} if "deferrable" in form else {}
        values |= {} if som else {"payload_length": stated, "message_offset": k * MTU}
    carried = 0 if opcode == Op.READ else fields.pop("carried", stated)
    ses = head(form, **{**values, **fields})
    leads = head(f"pds.{mode}_req", psn=at, next_hdr=next_hdr, clear_psn_offset=clear - at, retx=retx)
    return Line("request", src, leads, ses, more, carried, at)


def short(psn: int = START, form: str = "ses.request_small", next_hdr: int = 1, **fields: int) -> Line:
    """A message without an id."""
    values = {
        "opcode": Op.WRITE,
        "rel": 1,
        "som": 1,
        "eom": 1,
        "request_length": 64,
        "job_id": JOB,
        "resource_index": RI,
    }
    ses = head(form, **{**values, **fields})
    return Line("request", A, head("pds.rud_req", psn=psn, next_hdr=next_hdr), ses, (), 64, psn)


def rtr(psn: int = 50, **fields: int) -> Line:
    """DEFERRABLE_RTR of B."""
    values = {"rel": 1, "som": 1, "eom": 1, "message_id": 8, "job_id": JOB, "resource_index": RI, "sender_token": 4,
              "receiver_token": 3}  # fmt: skip
    ses = head("ses.rtr_std", **{**values, **fields})
    return Line("request", B, head("pds.rud_req", psn=psn, next_hdr=3), ses, (), 0, psn)


def deferrable(**fields: Any) -> Line:
    """A deferrable send of one packet, whose token is 3."""
    return part(0, **{"opcode": Op.DEFERRABLE_SEND, "length": 64, **fields})


def restart(k: int = 0, **fields: Any) -> Line:
    """It starts again, as `rtr` says; k times before it has done so."""
    values = {"psn": START + 1 + k, "message_id": 6 + k, "initiator_restart_token": 7, "target_restart_token": 4}
    return deferrable(**{**values, **fields})


def sync(k: int, count: int = 0, **fields: Any) -> Line:
    """Message k of a sync group; with a count the one that ends it."""
    values = {"psn": START + k, "message_id": ID + k, "opcode": Op.SYNC_WRITE, "length": 64, "hd": int(count > 0)}
    return part(0, more=(SYNC._replace(count=count),), **{**values, **fields})


def atomic(opcode: int = Op.ATOMIC, length: int = 8, **fields: Any) -> Line:
    names = ("atomic_opcode", "atomic_datatype")
    values = {"atomic_opcode": AtomicOpcode.SUM, "atomic_datatype": AtomicDatatype.UINT64} | {
        name: fields.pop(name) for name in names if name in fields
    }
    return part(0, opcode=opcode, length=length, more=(head("ses.ext.atomic", **values),), **fields)


def rsp(psn: int = START, code: int = C.OK, *, src: int = B, req: int = 0, **fields: int) -> Line:
    """A response of B in an ACK: by default the one of success, or of an error; with req = 1 it is guaranteed."""
    good = code in (C.OK, C.NULL)
    values = {"opcode": int(not good), "return_code": code, "message_id": ID, "job_id": JOB,
              "modified_length": LENGTH if good else 0}  # fmt: skip
    ses = head("ses.response", **{**values, **fields})
    return Line("response", src, head("pds.ack", next_hdr=4, req=req), ses, (), 0, psn)


def returned(k: int = 0, psn: int | None = None, length: int = LENGTH, **fields: int) -> Line:
    """Packet k of read data in the return direction; with `ack` in the ACK of that PSN."""
    ack = fields.pop("ack", 0)
    size = min(MTU, length - k * MTU)
    values = {"opcode": 2, "return_code": C.OK, "job_id": JOB, "read_request_message_id": ID, "payload_length": size,
              "modified_length": length, "message_offset": k * MTU}  # fmt: skip
    ses = head("ses.response_data", **{**values, **fields})
    own = head("pds.rud_req", psn=50 + k if psn is None else psn, next_hdr=5)
    leads = head("pds.ack", next_hdr=5, req=1) if ack else own
    return Line("response" if ack else "data", B, leads, ses, (), ses.payload_length, ack)


def whole(**fields: Any) -> tuple[Line, ...]:
    """All packets of a message."""
    count = max(1, -(-fields.get("length", LENGTH) // MTU))
    return tuple(part(k, **fields) for k in range(count))


def read(length: int = LENGTH) -> tuple[Line, ...]:
    return whole(opcode=Op.READ, length=length)


def error(k: int, **fields: Any) -> Line:
    return part(k, opcode=Op.MSG_ERROR, size=0, **{"eom": 1, "som": 0, **fields})


EAGER = head("ses.ext.rendezvous", eager_length=MTU)
SYNC = head("ses.ext.sync", group=1, count=2)
TWO = 2 * MTU
_AT_ONCE = part(0, length=64)
_AT_ONCE_ROD = part(0, length=64, opcode=Op.SEND, mode="rod")


class Case(NamedTuple):
    """`wrong` behind `before` violates the rule, `right` does not."""

    before: tuple[Line, ...]
    wrong: Line
    right: Line
    after: tuple[Line, ...] = ()


CASES: dict[str, Case] = {
    "SES-FORM": Case((), short(form="ses.request_medium", next_hdr=2, opcode=Op.DEFERRABLE_RTR, request_length=0),
                     short(form="ses.request_medium", next_hdr=2)),
    "SES-DATAGRAM-ON-PDC": Case((), part(0, opcode=Op.DATAGRAM_SEND, length=64), _AT_ONCE),
    "SES-DEFERRABLE-ON-ROD": Case((), part(0, opcode=Op.DEFERRABLE_SEND, length=64, mode="rod"),
                                  part(0, opcode=Op.DEFERRABLE_SEND, length=64)),
    "SES-SHORT-FORM-WHOLE": Case((), short(eom=0), short()),
    "SES-ATOMIC-WHOLE": Case((), atomic(eom=0), atomic()),
    "SES-SMALL-HD": Case((), short(hd=1), short()),
    "SES-EMPTY": Case((), rtr(request_length=8), rtr()),
    "SES-MESSAGE-ID-ZERO": Case((), part(0, message_id=0), part(0)),
    "SES-RMA-GENERATION": Case((), part(0, ri_generation=3), part(0, opcode=Op.SEND, ri_generation=3)),
    "SES-HEADER-DATA": Case((), part(0, header_data=1), part(0, header_data=1, hd=1)),
    "SES-INDEX-ZERO": Case((), part(0, resource_index=0), part(0)),
    "SES-TOKEN-ZERO": Case((), part(0, opcode=Op.DEFERRABLE_SEND, initiator_restart_token=0),
                           part(0, opcode=Op.DEFERRABLE_SEND)),
    "SES-EAGER-LENGTH": Case((), part(0, opcode=Op.RENDEZVOUS_SEND, length=64, more=(EAGER,)),
                             part(0, opcode=Op.RENDEZVOUS_SEND, eom=1, more=(EAGER,))),
    "SES-SYNC-COUNT": Case((), part(0, opcode=Op.SYNC_WRITE, length=64, hd=1, more=(SYNC._replace(count=0),)),
                           part(0, opcode=Op.SYNC_WRITE, length=64, hd=1, more=(SYNC,))),

    "SES-OPCODE-CHANGE": Case(whole()[:2], part(2, opcode=Op.SEND), part(2), (part(3),)),
    "SES-KEY-CHANGE": Case(whole()[:2], part(2, memory_key=1), part(2)),
    "SES-JOB-CHANGE": Case(whole()[:2], part(2, job_id=1), part(2)),
    "SES-LENGTH-CHANGE": Case(whole()[:2], part(2, request_length=LENGTH + 1), part(2)),
    "SES-ADDRESS-CHANGE": Case(whole()[:2], part(2, initiator=1), part(2)),
    "SES-BUFFER-OFFSET-CHANGE": Case(whole()[:2], part(2, buffer_offset=1), part(2)),
    "SES-DC-CHANGE": Case(whole()[:2], part(2, dc=1), part(2)),
    "SES-HD-LATER": Case(whole(hd=1)[:3], part(3, hd=0), part(3, hd=1)),

    "SES-SOM-TWICE": Case(whole()[:2], part(2, som=1), part(2), (part(3),)),
    "SES-EOM-TWICE": Case((part(0), part(1), part(3)), part(2, eom=1), part(2)),
    "SES-OFFSET-OVERLAP": Case(whole()[:2], part(2, message_offset=MTU), part(2), (part(3),)),
    "SES-OFFSET-ALIGNED": Case(whole()[:2], part(2, message_offset=MTU + 7), part(2), (part(3),)),
    "SES-OFFSET-ORDER": Case(whole()[:2], part(2, message_offset=3 * MTU, eom=1), part(2)),
    "SES-BEYOND-LENGTH": Case(whole()[:3], part(3, size=MTU + 1), part(3)),
    "SES-EOM-EARLY": Case(whole()[:2], part(2, eom=1), part(2)),
    "SES-EOM-MISSING": Case(whole()[:3], part(3, eom=0), part(3)),
    "SES-PAYLOAD-SIZE": Case(whole()[:2], part(2, size=MTU - 1), part(2)),
    "SES-PAYLOAD-MTU": Case(whole(length=TWO), part(0, psn=START + 2, message_id=6, length=TWO, size=TWO, eom=1),
                            part(0, psn=START + 2, message_id=6, length=TWO)),
    "SES-PACKET-COUNT": Case(whole()[:2], part(2, eom=1), part(2), (part(3),)),
    "SES-INTERLEAVED": Case((part(0), part(1), part(0, psn=START + 2, length=64, message_id=6)),
                            part(3), part(0, psn=START + 3, length=64, message_id=7)),
    "SES-SOM-MISSING": Case(whole(), part(1, psn=START + 4, message_id=6), part(0, psn=START + 4, message_id=6)),
    "SES-UNFINISHED": Case((), part(0), _AT_ONCE),
    "SES-MSG-ERROR-FLAGS": Case(whole()[:2], error(2, eom=0), error(2)),
    "SES-MSG-ERROR-LATE": Case(whole(), error(4), error(4, message_id=6)),

    "SES-MESSAGE-ID-HELD": Case((*whole(), *(rsp(START + k) for k in range(4)), part(0, psn=START + 4, length=64)),
                                part(1, retx=1, clear=START), part(1, retx=1)),
    "SES-MESSAGE-ID-UNANSWERED": Case(
        (*whole(), *(rsp(START + k) for k in range(3))),
        part(0, psn=START + 4, length=64), part(0, psn=START + 4, length=64, message_id=6)),
    "SES-WENT-ON": Case((part(0), part(1), rsp(code=C.BAD_MKEY, req=1)), part(2, clear=START), part(2)),
    "SES-RTR-UNKNOWN": Case((deferrable(),), rtr(receiver_token=99), rtr()),
    "SES-RTR-OWNER": Case((deferrable(),), rtr(job_id=1), rtr()),
    "SES-RESTART-UNKNOWN": Case((deferrable(), rtr()), restart(target_restart_token=5), restart()),
    "SES-RESTART-OWNER": Case((deferrable(), rtr()), restart(initiator=1), restart()),
    "SES-RESTART-TWICE": Case((deferrable(), rtr(), restart()), restart(1), restart(1, target_restart_token=0)),
    "SES-SYNC-MEMBERS": Case((sync(0), sync(1)), sync(2, count=2), sync(2, count=3)),

    "SES-DEFAULT-WITH-ERROR": Case(whole(), rsp(code=C.BAD_MKEY, opcode=0), rsp(code=C.BAD_MKEY)),
    "SES-DEFAULT-LIST": Case(whole(opcode=Op.SEND), rsp(list=1), rsp(list=1, opcode=1)),
    "SES-RESPONSE-NULL": Case(whole(), rsp(code=C.NULL, opcode=1), rsp(code=C.NULL)),
    "SES-RESPONSE-HEADER": Case(whole(), rsp(opcode=2), rsp()),
    "SES-RESPONSE-WRONG-ID": Case(whole(), rsp(message_id=6), rsp(message_id=0)),
    "SES-RESPONSE-WRONG-JOB": Case(whole(), rsp(job_id=6), rsp(job_id=0)),
    "SES-RESPONSE-DATA": Case(whole(), returned(ack=START), rsp()),
    "SES-RESPONSE-OVERFLOW": Case(whole(), rsp(list=1, opcode=1), rsp()),
    "SES-MODIFIED-LENGTH": Case(whole(), rsp(modified_length=5), rsp(modified_length=0)),
    "SES-AMO-CODE": Case(whole(), rsp(code=C.AMO_UNALIGNED), rsp(code=C.BAD_ADDR)),
    "SES-MESSAGING-CODE": Case(whole(), rsp(code=C.NO_MATCH), rsp(code=C.BAD_MKEY)),
    "SES-RESPONSE-TWICE": Case((*whole(), rsp(code=C.BAD_MKEY)), rsp(code=C.BAD_ADDR), rsp(code=C.BAD_MKEY)),
    "SES-RESPONSE-UNGUARANTEED": Case((_AT_ONCE,), rsp(code=C.BAD_MKEY), rsp(code=C.BAD_MKEY, req=1)),
    "SES-SAME-GENERATION": Case((part(0, opcode=Op.SEND, ri_generation=3),),
                                rsp(code=C.BAD_GENERATION, ri_generation=3),
                                rsp(code=C.BAD_GENERATION, ri_generation=4)),
    "SES-DISABLED-GEN-ACCEPTED": Case(
        (_AT_ONCE_ROD, part(0, psn=START + 1, length=64, opcode=Op.SEND, mode="rod", message_id=6),
         rsp(code=C.DISABLED_GEN)),
        rsp(START + 1, message_id=6, modified_length=64), rsp(START + 1, message_id=6, modified_length=0)),
    "SES-ROD-NO-MATCH": Case((_AT_ONCE_ROD,), rsp(code=C.NO_MATCH), rsp(code=C.DISABLED_GEN)),
    "SES-RESPONSE-GENERATION": Case(whole(), rsp(ri_generation=1), rsp()),
    "SES-STOP-LIST": Case((*whole(opcode=Op.DEFERRABLE_SEND), rsp(list=1, opcode=1, modified_length=0)),
                          rsp(START + 1, opcode=1, modified_length=0),
                          rsp(START + 1, list=1, opcode=1, modified_length=0)),
    "SES-STOP-AGAIN": Case((deferrable(), rtr(), restart()),
                           rsp(START + 1, list=1, opcode=1, modified_length=0, message_id=6),
                           rsp(START + 1, list=1, opcode=1, modified_length=64, message_id=6)),
    "SES-ATOMIC-DATATYPE": Case(
        (atomic(atomic_opcode=AtomicOpcode.BXOR, atomic_datatype=AtomicDatatype.DOUBLE),),
        rsp(modified_length=8), rsp(code=C.AMO_UNSUPPORTED_DT)),
    "SES-ATOMIC-SIZE": Case((atomic(length=12),), rsp(modified_length=12), rsp(code=C.AMO_UNSUPPORTED_SIZE)),
    "SES-ATOMIC-ALIGNED": Case((atomic(buffer_offset=4),), rsp(modified_length=8), rsp(code=C.AMO_UNALIGNED)),

    "SES-DATA-UNASKED": Case(read(), returned(read_request_message_id=6), returned()),
    "SES-DATA-NO-READ": Case(whole(), returned(), rsp()),
    "SES-DATA-JOB": Case(read(), returned(job_id=1), returned()),
    "SES-DATA-BEYOND": Case(read(), returned(3, message_offset=3 * MTU + 1), returned(3)),
    "SES-DATA-SIZE": Case(read(), returned(1, payload_length=9), returned(1)),
    "SES-DATA-OVERLAP": Case((*read(), returned(0), returned(1)), returned(1, psn=60), returned(2)),
    "SES-DATA-TWO-WAYS": Case((*read(), returned(0)), returned(1, ack=START + 1), returned(1)),
    "SES-DATA-MODIFIED-LENGTH": Case(read(), returned(modified_length=MTU), returned()),
    "SES-DATA-CODE": Case(read(), returned(return_code=C.BAD_ADDR), returned()),
    "SES-RESPONSE-MESSAGE-ID": Case(
        (*read(64), returned(length=64, response_message_id=ID),
         part(0, psn=START + 1, opcode=Op.READ, length=64, message_id=6)),
        returned(psn=51, length=64, read_request_message_id=6, response_message_id=6),
        returned(psn=51, length=64, read_request_message_id=6, response_message_id=7)),
}  # fmt: skip


def test_each_rule_has_a_violation() -> None:
    assert set(CASES) == {rule.id for rule in RULES}


@pytest.mark.parametrize("rule", CASES)
def test_violation_is_found_where_it_is(rule: str) -> None:
    case = CASES[rule]
    assert (rule, len(case.before)) in found((*case.before, case.wrong, *case.after))


@pytest.mark.parametrize("rule", CASES)
def test_nothing_is_found_where_all_is_well(rule: str) -> None:
    case = CASES[rule]
    assert rule not in dict(found((*case.before, case.right, *case.after)))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_finding_can_be_read(rule: Any) -> None:
    case = CASES[rule.id]
    findings = Bench().see((*case.before, case.wrong, *case.after))
    one = next(finding for finding in findings if finding.rule is rule)
    assert one.as_dict()["text"].startswith(rule.says)
    assert one.expected != one.seen
    assert one.flow["src"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_only_what_a_source_says_is_more_than_a_note(rule: Any) -> None:
    assert rule.severity is Severity.NOTE or rule.cite.startswith("UE 1.0.1 §")
    assert rule.cite == CHOICE or rule.cite.startswith("UE 1.0.1 §")


def test_every_invariant_is_judged_or_explained() -> None:
    """Those of ses.md §15; RUDI has rules of its own."""
    judged = {one for rule in RULES for one in rule.covers if one.startswith("ses")}
    explained = {one for one, _ in NOT_OBSERVABLE}
    assert judged | explained | {"ses 33"} == {f"ses {number}" for number in range(1, 37)}
    assert not judged & explained
