# SPDX-License-Identifier: GPL-2.0-only
"""This module makes lists of SES messages on one PDC, and audits them with the SES rules."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.support.audit.build import A, B, head, packet
from tests.support.audit.judge import OnlyJudge
from uetproto.audit.finding import Finding
from uetproto.audit.judge import Heard
from uetproto.audit.pds.tracker_state import PsnRecord
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.ses.rules import RULES
from uetproto.audit.ses.tracker import SesTracker
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode, Opcode, ReturnCode

START, MTU, ID, JOB, RI, KEY = 1000, 1024, 5, 9, 15, 77
LENGTH = 4 * MTU
"""Length in bytes of most messages of the tests: four packets."""
ALL = Options(complete=True, ordered=True, personality="refprov")
Op, C = Opcode, ReturnCode


class Line(NamedTuple):
    """A line has a packet as the tracker gets it, and its sender."""

    call: str
    src: int
    head: Head
    ses: Head
    more: tuple[Head, ...]
    size: int
    psn: int


class Direction:
    """This class stands in for the direction of a PDC of the PDS tracker."""

    def __init__(self) -> None:
        self.other: Direction = self
        self.ses: Any = None
        self.records: dict[int, PsnRecord] = {}
        self.cack: int | None = None
        self.newest_clear: int | None = None

    def flow(self) -> dict[str, Any]:
        return {"src": "10.0.0.1"}


class Bench:
    """A bench hands the packets of a PDC to the tracker of messages, and audits them."""

    def __init__(self, options: Options = ALL, heard: Heard | None = None, listener: Any = None) -> None:
        self.judge = OnlyJudge(
            RULES, complete=options.complete, ordered=options.ordered, heard=heard, listener=listener,
            personality=options.personality,
        )  # fmt: skip
        self.tracker = SesTracker(self.judge, options)
        self.forward, self.back = Direction(), Direction()
        for one, other in ((self.forward, self.back), (self.back, self.forward)):
            one.other, one.ses = other, self.tracker.open(one)

    def see(self, lines: Sequence[Line]) -> list[Finding]:
        """Return the findings after these packets and the end of the PDC."""
        for number, line in enumerate(lines):
            seen = packet(number, line.src, A + B - line.src, line.head, number, ses=line.ses, more=line.more,
                          size=line.size)  # fmt: skip
            self.one(line, seen)
        self.tracker.close(self.forward)
        self.tracker.close(self.back)
        self.tracker.end()
        self.judge.end()
        return self.judge.findings

    def one(self, line: Line, seen: ObservedPacket) -> None:
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
    """Return packet k of a message that begins at START."""
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
    """Return a message of one packet, without an id."""
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
    """Return a DEFERRABLE_RTR of B."""
    values = {"rel": 1, "som": 1, "eom": 1, "message_id": 8, "job_id": JOB, "resource_index": RI, "sender_token": 4,
              "receiver_token": 3}  # fmt: skip
    ses = head("ses.rtr_std", **{**values, **fields})
    return Line("request", B, head("pds.rud_req", psn=psn, next_hdr=3), ses, (), 0, psn)


def deferrable(**fields: Any) -> Line:
    """Return a deferrable send of one packet, whose token is 3."""
    return part(0, **{"opcode": Op.DEFERRABLE_SEND, "length": 64, **fields})


def restart(k: int = 0, **fields: Any) -> Line:
    """Make the restart that `rtr` asks for, after k earlier restarts."""
    values = {"psn": START + 1 + k, "message_id": 6 + k, "initiator_restart_token": 7, "target_restart_token": 4}
    return deferrable(**{**values, **fields})


def sync(k: int, count: int = 0, **fields: Any) -> Line:
    """Make message k of a sync group; a message with `count` ends the group."""
    values = {"psn": START + k, "message_id": ID + k, "opcode": Op.SYNC_WRITE, "length": 64, "hd": int(count > 0)}
    return part(0, more=(SYNC._replace(count=count),), **{**values, **fields})


def atomic(opcode: int = Op.ATOMIC, length: int = 8, **fields: Any) -> Line:
    names = ("atomic_opcode", "atomic_datatype")
    values = {"atomic_opcode": AtomicOpcode.SUM, "atomic_datatype": AtomicDatatype.UINT64} | {
        name: fields.pop(name) for name in names if name in fields
    }
    return part(0, opcode=opcode, length=length, more=(head("ses.ext.atomic", **values),), **fields)


def rsp(psn: int = START, code: int = C.OK, *, src: int = B, req: int = 0, **fields: int) -> Line:
    """Return a response of B in an ACK, which by default reports success; with req = 1 the response is guaranteed."""
    good = code in (C.OK, C.NULL)
    values = {"opcode": int(not good), "return_code": code, "message_id": ID, "job_id": JOB,
              "modified_length": LENGTH if good else 0}  # fmt: skip
    ses = head("ses.response", **{**values, **fields})
    return Line("response", src, head("pds.ack", next_hdr=4, req=req), ses, (), 0, psn)


def returned(k: int = 0, psn: int | None = None, length: int = LENGTH, **fields: int) -> Line:
    """Return packet k of read data in the return direction; with `ack`, in the ACK of that PSN."""
    ack = fields.pop("ack", 0)
    size = min(MTU, length - k * MTU)
    values = {"opcode": 2, "return_code": C.OK, "job_id": JOB, "read_request_message_id": ID, "payload_length": size,
              "modified_length": length, "message_offset": k * MTU}  # fmt: skip
    ses = head("ses.response_data", **{**values, **fields})
    own = head("pds.rud_req", psn=50 + k if psn is None else psn, next_hdr=5)
    leads = head("pds.ack", next_hdr=5, req=1) if ack else own
    return Line("response" if ack else "data", B, leads, ses, (), ses.payload_length, ack)


def whole(**fields: Any) -> tuple[Line, ...]:
    """Return all packets of a message."""
    count = max(1, -(-fields.get("length", LENGTH) // MTU))
    return tuple(part(k, **fields) for k in range(count))


def read(length: int = LENGTH) -> tuple[Line, ...]:
    return whole(opcode=Op.READ, length=length)


def error(k: int, **fields: Any) -> Line:
    return part(k, opcode=Op.MSG_ERROR, size=0, **{"eom": 1, "som": 0, **fields})


SYNC = head("ses.ext.sync", group=1, count=2)
TWO = 2 * MTU
