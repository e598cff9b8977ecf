# SPDX-License-Identifier: GPL-2.0-only
"""Every named mutation is found at its packet, by the rule that its table names (interfaces.md §7).

In traffic without a fault one packet at a time is made wrong: whatever else is found is what this brings along.
"""

import json
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from tests.support.effort import effort
from uetproto.audit.auditor import audit
from uetproto.audit.finding import Finding
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Requires, Severity
from uetproto.audit.rules import BY_ID
from uetproto.engine.tss.keys import KeyRing
from uetproto.traffic import profile
from uetproto.traffic.generate import generate
from uetproto.wire.capture.pcap import PcapWriter, open_capture
from uetproto.wire.forms import ROCE_PORT
from uetproto.wire.mutate import roce as mutate_roce
from uetproto.wire.mutate import uet as mutate_uet
from uetproto.wire.mutate.frame import Frame, Mutation, open_frame
from uetproto.wire.mutate.mutation import NAMES, FrameHistory, mutate

PACKETS = 300
EACH = effort(1, 3, 60)
"""Packets of one capture that are made wrong, one after the other."""
UET = ("mixed", "sends", "atomics", "bench")
ROCE = ("roce-mixed", "roce-rc", "roce-uc", "roce-ud")


class Rules(NamedTuple):
    """What finds a mutation. None: nobody can, or it does not apply."""

    uet: str | None
    roce: str | None


FOUND_BY: dict[str, Rules] = {
    # mutation                      of UET                     of RoCE
    "bad-crc":                Rules("WIRE-CRC",               "ROCE-ICRC"),
    "reserved-bit":           Rules("WIRE-RESERVED-BIT",      "ROCE-RESERVED-BIT"),
    "reserved-type":          Rules("PDS-RESERVED-TYPE",      None),
    "bad-next-hdr":           Rules("PDS-NEXT-HDR",           None),
    "bad-version":            Rules("SES-VERSION",            "ROCE-VERSION"),
    "unknown-opcode":         Rules("SES-UNKNOWN-OPCODE",     "ROCE-UNKNOWN-OPCODE"),
    "unknown-code":           Rules("WIRE-UNKNOWN-CODE",      "ROCE-SYNDROME"),
    "cut":                    Rules("WIRE-LENGTH",            "ROCE-LENGTH"),
    "extra-bytes":            Rules("WIRE-LENGTH",            "ROCE-LENGTH"),
    "ip-length":              Rules("WIRE-LENGTH",            "ROCE-LENGTH"),
    "length-over":            Rules("WIRE-LENGTH",            "ROCE-LENGTH"),
    "length-under":           Rules("WIRE-LENGTH",            "ROCE-LENGTH"),
    "opcode-change":          Rules("SES-OPCODE-CHANGE",      "ROCE-OPCODE-ORDER"),
    "key-change":             Rules("SES-KEY-CHANGE",         "ROCE-KEY-CHANGE"),
    "job-change":             Rules("SES-JOB-CHANGE",         None),
    "clear-positive":         Rules("PDS-CLEAR-POSITIVE",     None),
    "response-wrong-id":      Rules("SES-RESPONSE-WRONG-ID",  "ROCE-PSN-NOT-SENT"),
    "default-with-error":     Rules("SES-DEFAULT-WITH-ERROR", None),
    "payload-flip-crc-fixed": Rules(None,                     None),
    "offset-overlap":         Rules("SES-OFFSET-OVERLAP",     None),
    "som-twice":              Rules("SES-SOM-TWICE",          None),
    "psn-two-contents":       Rules("PDS-PSN-TWO-CONTENTS",   "ROCE-PSN-TWO-CONTENTS"),
    "clear-falls":            Rules("PDS-CLEAR-FALLS",        None),
}  # fmt: skip
"""As the tables of the mutations have it, but for two of RoCE, where the rule hangs on what was drawn."""

BY_WHAT_WAS_DRAWN = {
    "ip-length": "only another length, that of UDP, contradicts",
    "key-change": "a p_key, and no r_key, which is said once",
}
"""Mutations of RoCE that name their rule themselves."""

_OF_TWO = "of a message of two packets nobody knows which is wrong"
SHOWN_LATER: dict[str, str] = {
    "SES-OPCODE-CHANGE": _OF_TWO,
    "SES-KEY-CHANGE": _OF_TWO,
    "SES-JOB-CHANGE": _OF_TWO,
    "ROCE-LENGTH": "what a RETH asks for is right or wrong when all of the message has come",
    "ROCE-KEY-CHANGE": "of the first packet between two queue pairs the second one shows it",
}
"""Rules that find a packet when a later one contradicts it: it is then the earlier of the two."""

BESIDES: dict[str, dict[str, str]] = {
    "length-over": {
        "ROCE-READ-PSN": "a longer READ takes more PSNs",
        "ROCE-OPCODE-ORDER": "they are not there for what follows it",
    },
    "opcode-change": {
        "SES-TOKEN-ZERO": "a message that is now deferrable has tokens where its offset was",
        "RUDI-OPERATION": "RUDI carries reads and writes only",
        "SES-DEFERRABLE-ON-ROD": "RUD carries what can be deferred",
    },
    "job-change": {
        "SES-RESPONSE-WRONG-JOB": "where nobody knows which of two packets is wrong, the answers may be it",
        "SES-RTR-OWNER": "a message is restarted under the job of its other packets",
    },
    "default-with-error": {
        "SES-MODIFIED-LENGTH": "with an error nothing was modified",
        "SES-AMO-CODE": "the error is one of atomics",
        "SES-MESSAGING-CODE": "the error is one of sends",
        "SES-ROD-NO-MATCH": "the error is NO_MATCH",
        "SES-SAME-GENERATION": "the error is BAD_GENERATION, and the generation was not",
        "SES-DISABLED-GEN-ACCEPTED": "the error is DISABLED_GEN, and what came later was accepted",
    },
    "offset-overlap": {"SES-EOM-EARLY": "the last packet is no longer at the end"},
    "psn-two-contents": {
        "SES-OFFSET-ORDER": "its offset does not fit its PSN",
        "ROCE-OPCODE-ORDER": "its opcode does not fit those around it",
        "ROCE-LENGTH": "it is counted to another message",
    },
    "clear-falls": {"PDS-CLEAR-EARLY": "so it was before the first PSN"},
}
"""What else is found of a mutation, and why it follows."""


class Base(NamedTuple):
    """Traffic in which all is right."""

    frames: list[bytes]
    times: list[int]


@cache
def base(name: str) -> Base:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "base.pcapng"
        generate(profile.load(name, ["seed=4", "loss=0", "reorder=0", "protocol_errors=0"]), str(path), packets=PACKETS)
        with open_capture(path) as capture:
            records = list(capture)
    return Base([record.data for record in records], [record.time_ns for record in records])


@cache
def opened(name: str) -> list[Frame]:
    """The same frames as a history notes them."""
    frames = [open_frame(frame, "ethernet", ROCE_PORT) for frame in base(name).frames]
    assert None not in frames
    return [frame for frame in frames if frame is not None]


@cache
def first_changed(name: str, traffic: str) -> list[tuple[int, Mutation]]:
    return [*islice(changed(name, traffic), EACH)]


def changed(name: str, traffic: str) -> Iterator[tuple[int, Mutation]]:
    """Packets to which a mutation can be applied, and what becomes of them; messages that begin there end, too."""
    frames = base(traffic).frames
    chance = Random(f"{name} {traffic}")
    for at in chance.sample(range(PACKETS // 2), PACKETS // 2):
        seen = FrameHistory()
        for frame in opened(traffic)[:at] if name in _OF_HISTORY else ():
            (seen.roce if frame.is_roce else seen.uet).note(frame)
        found = mutate(name, frames[at], chance, seen)
        if found is not None:
            yield at, found


_OF_HISTORY = mutate_uet.CHANGES_OF_HISTORY.keys()


def judged(traffic: str, at: int, frame: bytes, rule: str | None = None) -> list[Finding]:
    """What is found of the traffic with another frame in one place; nothing is missing, if `rule` needs that."""
    frames, times = base(traffic)
    file = BytesIO()
    with PcapWriter(file) as writer:
        writer.write_many(times, [*frames[:at], frame, *frames[at + 1 :]])
    file.seek(0)
    complete = rule is not None and BY_ID[rule].requires is Requires.ABSENCE
    return audit([file], Options(complete=complete)).findings


def test_the_table_is_that_of_the_mutations() -> None:
    assert list(FOUND_BY) == list(NAMES)
    uet = mutate_uet.CHANGES | mutate_uet.CHANGES_OF_HISTORY
    roce = mutate_roce.CHANGES | mutate_roce.CHANGES_OF_HISTORY
    assert {name: rules.uet for name, rules in FOUND_BY.items()} == {name: row[1] for name, row in uet.items()}
    for name, rules in FOUND_BY.items():
        said = roce[name][1] if name in roce else None
        assert said == (None if name in BY_WHAT_WAS_DRAWN else rules.roce)


@pytest.mark.parametrize("traffic", [*UET, *ROCE])
def test_nothing_is_wrong_before(traffic: str) -> None:
    assert [f for f in judged(traffic, 0, base(traffic).frames[0]) if f.severity is not Severity.NOTE] == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("traffic", [*UET, *ROCE])
def test_found(name: str, traffic: str) -> None:
    """By the rule of the table, at the packet; and nothing else but what follows from it."""
    for at, mutation in first_changed(name, traffic):
        findings = judged(traffic, at, mutation.frame, mutation.rule)
        here = [finding for finding in findings if finding.rule.id == mutation.rule and at in finding.packets]
        assert bool(here) is (mutation.rule is not None), (at, mutation.before, mutation.after, findings)
        assert all(finding.packet == at for finding in here) or mutation.rule in SHOWN_LATER, (at, here)
        others = {finding.rule.id for finding in findings} - {mutation.rule}
        assert others <= BESIDES.get(name, {}).keys(), (at, mutation.before, mutation.after, findings)


@pytest.mark.parametrize("name", NAMES)
def test_applies(name: str) -> None:
    """Each to something: a table whose rows nobody reads proves nothing."""
    rules = FOUND_BY[name]
    for transport, rule in ((UET, rules.uet), (ROCE, rules.roce)):
        met = {mutation.rule for traffic in transport for _, mutation in first_changed(name, traffic)}
        assert rule is None or rule in met


@pytest.mark.parametrize("name", [name for name, rules in FOUND_BY.items() if rules.uet and name != "bad-crc"])
def test_found_in_sealed_packets(name: str, tmp_path: Path) -> None:
    """As `uetproto generate --mutate` writes it, with keys and what was changed beside it."""
    made = generate(profile.load("sealed", ["seed=5"]), str(tmp_path / "a.pcapng"), packets=400, mutations={name: 0.01})
    assert made.side_file is not None
    rows = [json.loads(line) for line in Path(made.side_file).read_text().splitlines()]
    report = audit([made.capture], Options(keys=KeyRing.read(str(made.keys_file))))
    found = {(finding.rule.id, finding.packet) for finding in report.findings}
    assert {(row["rule"], row["index"]) for row in rows} <= found
    assert {rule for rule, _ in found} - {row["rule"] for row in rows} <= BESIDES.get(name, {}).keys()
