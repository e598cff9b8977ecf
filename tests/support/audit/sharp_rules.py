# SPDX-License-Identifier: GPL-2.0-only
"""This module makes lists of SHARP messages, and audits them with the SHARP rules."""

from collections.abc import Iterable
from typing import Any

from tests.support.audit.build import head, packet
from tests.support.audit.judge import OnlyJudge
from uetproto.audit.finding import Finding
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.sharp.rules import RULES
from uetproto.audit.sharp.tracker import SharpTracker, is_sharp
from uetproto.wire.headers.roce import Operation, Transport, opcode_of
from uetproto.wire.headers.sharp import JOIN_RESP, MAGIC, SHARP, Coll, Dtype, Flag, Op, SharpOpcode
from uetproto.wire.packet import Layer, Packet

ALL = Options(complete=True, ordered=True)
ONE, TWO, NODE, ROOT = 0x0A000001, 0x0A000002, 0x0A000009, 0x0A00000A
"""Two hosts, their aggregation node and its parent."""
WHOLE = int(Flag.FIRST | Flag.LAST)
JOB = 5
_NONE = {"tag_dtype": Dtype.NULL}
_OPERATION = {"coll": Coll.ALLREDUCE, "op": Op.SUM, "dtype": Dtype.INT, **_NONE}
_NO_OPERATION = {"coll": Coll.NOT_APPLICABLE, "op": Op.NULL, "dtype": Dtype.NULL, **_NONE}
Line = tuple[int, int, int, dict[str, Any], dict[str, Any]]
"""Type of a message: sender, receiver, opcode, its fields, other fields of `ObservedPacket`."""


def join(child: int, index: int, granted: int = 2) -> Line:
    return NODE, child, SharpOpcode.GROUP_JOIN_RESP, {"child_idx": index, "payload_len": 40}, {"granted": granted}


def request(child: int, index: int, seq: int = 0, *, to: int = NODE, **values: Any) -> Line:
    others = values.pop("seen", {})
    fields = {"child_idx": index, "seq": seq, "payload_len": 8, "count": 2, "flags": WHOLE}
    return child, to, SharpOpcode.AGG_REQ, fields | values, others


def result(child: int, index: int, seq: int = 0, **values: Any) -> Line:
    others = values.pop("seen", {})
    fields = {"child_idx": index, "seq": seq, "payload_len": 8, "count": 2, "flags": WHOLE}
    return NODE, child, SharpOpcode.AGG_RESULT, fields | values, others


def observed(lines: Iterable[Line], carrier: str = "roce") -> list[ObservedPacket]:
    found = []
    for number, (src, dst, opcode, values, others) in enumerate(lines):
        fields = dict.fromkeys(SHARP.names, 0) | {"ver": 1, "opcode": opcode, "job_id": JOB, "group_id": 1}
        fields |= _OPERATION if opcode & 0x7F == SharpOpcode.AGG_REQ else _NO_OPERATION
        fields |= values
        if fields["flags"] & Flag.SAT:
            fields["flags"] |= Flag.LOCK
        layers = [Layer("sharp", fields, 54)]
        if "granted" in others:
            says = dict.fromkeys(JOIN_RESP.names, 0) | {
                "granted_osts": others["granted"],
                "mgid": others.get("mgid", 0),
            }
            says |= {"child_idx": fields["child_idx"], "member_count": 1, "group_size": 2, "depth": 1}
            layers.append(Layer("sharp.join_resp", says, 86))
        total = 32 + 4 * fields["ext_words"] + (fields["payload_len"] + 3 & ~3)
        whole = Packet(layers=layers, payload=others.get("payload", b""), pad=others.get("pad", b""))
        psn = others.get("psn", number)
        leads: Head = head("bth", opcode=opcode_of(Transport.RC, Operation.SEND_ONLY), psn=psn)
        ses: Head | None = None
        if carrier == "uet":
            leads = head("pds.rud_req.syn", psn=psn, pdc_info=others.get("pdc_info", 8), retx=others.get("retx", 0))
            lengths = {"request_length": others.get("request_length", total), "eom": others.get("eom", 1)}
            ses = head("ses.send_std.som", job_id=others.get("job_id", JOB), header_data=MAGIC << 32, **lengths)
        size = others.get("size", total)
        found.append(packet(number, src, dst, leads, ses=ses, size=size, packet=whole))
    return found


LEFT_OUT = ("SHARP-UNASKED", "SHARP-STRANGER")


class SharpAudit:
    def __init__(self, options: Options = ALL, *, asked: str = "") -> None:
        """`asked`: a rule of `LEFT_OUT` that is asked, although requests to join are left out of most tests."""
        rules = [rule for rule in RULES if rule.id not in LEFT_OUT or rule.id == asked]
        self.judge = OnlyJudge(rules, complete=options.complete, ordered=options.ordered)
        self.tracker = SharpTracker(self.judge, options)

    def see(self, packets: Iterable[ObservedPacket]) -> list[Finding]:
        for seen in packets:
            assert is_sharp(seen)
            self.tracker.see(seen)
        self.tracker.end()
        self.judge.end()
        return self.judge.findings


JOINED = [join(ONE, 0), join(TWO, 1)]
UP = request(NODE, 3, to=ROOT)
