# SPDX-License-Identifier: GPL-2.0-only
"""Packets that nobody would send, with right CRCs so that they are believed: an audit never raises, whatever comes.

Conversations of golden captures, in which fields get other values (also such as other packets have there, which is
more of a lie than chance), packets are cut, copied, shuffled and spliced into other conversations, and time jumps.

`python -m tests.audit.test_hostile 17` tries what is made of one number.
"""

import importlib.util
import io
import json
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import NamedTuple

import pytest
from rich.console import Console

from tests.support.audit.build import GOLDEN
from tests.support.effort import effort
from uetproto.audit.auditor import audit
from uetproto.audit.outcome import AuditOutcome, json_lines
from uetproto.audit.reader.options import Options
from uetproto.audit.report import AuditReport
from uetproto.audit.rule import Severity
from uetproto.audit.stats.measure import Measures
from uetproto.cli.audit import text as audit_text
from uetproto.cli.audit.junit import junit
from uetproto.cli.stats import command as stats
from uetproto.cli.stats import text as stats_text
from uetproto.engine.tss.keys import KeyRing
from uetproto.wire.capture.pcap import ETHERNET, LINK_NAMES, PcapngWriter, open_capture
from uetproto.wire.forms import FORMS, ROCE_PORT
from uetproto.wire.mutate.frame import LENGTHS, open_frame

RUNS = effort(60, 300, 30_000)
SLICES = 10
MOST = 120
"""Packets of a run."""
SECOND = 10**9
CAPTURES = sorted(GOLDEN.glob("*.pcapng"))


class Sent(NamedTuple):
    """A frame on its way; `length` is what it had before it was cut."""

    time_ns: int
    frame: bytes
    length: int


@cache
def conversation(name: str) -> tuple[Sent, ...]:
    with open_capture(GOLDEN / name) as capture:
        records = [record for record in capture if record.link == ETHERNET]
    return tuple(Sent(record.time_ns, record.data, record.length) for record in records)


@cache
def keys(name: str) -> KeyRing | None:
    file = GOLDEN / name.replace(".pcapng", ".keys.toml")
    return KeyRing.read(file) if file.exists() and importlib.util.find_spec("cryptography") else None


# Lies -----------------------------------------------------------------------------------------------------------------


def changed(frame: bytes, others: Sequence[Sent], rng: Random) -> bytes:
    """A field of a header, or two or three, other than it was; the CRC is that of the new bytes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        opened = open_frame(frame, "ethernet", ROCE_PORT)
        if opened is None:
            break
        index = rng.choice([at for at, layer in enumerate(opened.packet.layers) if layer.form in FORMS])
        index = rng.choice((index, opened.start, len(opened.packet.layers) - 1))
        layer = opened.packet.layers[index]
        if layer.form not in FORMS:
            break
        field = rng.choice(FORMS[layer.form].fields)
        if field.name in LENGTHS:
            continue
        before = layer.values[field.name]
        value = rng.choice((
            field.low, field.high, 0, before + 1, before - 1, before ^ 1 << rng.randrange(field.bits),
            before + rng.randrange(-5000, 5000), rng.getrandbits(field.bits), _elsewhere(field.name, others, rng),
            _elsewhere(field.name, others, rng), *(int(code) for code in list(field.values or ())[:4]),
        ))  # fmt: skip
        frame = opened.changed(index, field.name, (value - field.low) % (1 << field.bits) + field.low).frame
    return frame


def _elsewhere(field: str, others: Sequence[Sent], rng: Random) -> int:
    """What some other packet has there."""
    opened = open_frame(rng.choice(others).frame, "ethernet", ROCE_PORT)
    if opened is not None:
        for layer in opened.packet.layers:
            if field in layer.values:
                return int(layer.values[field])
    return 0


def hostile(rng: Random) -> tuple[str, list[Sent]]:
    """A conversation with lies in it, and its name."""
    name = rng.choice(CAPTURES).name
    whole = conversation(name)
    start = rng.randrange(max(1, len(whole) - MOST)) if rng.random() < 0.3 else 0
    sent = list(whole[start : start + rng.randrange(2, MOST)])
    if rng.random() < 0.3:
        other = conversation(rng.choice(CAPTURES).name)
        at = rng.randrange(len(sent) + 1)
        sent[at:at] = other[: rng.randrange(1, 40)]
    others = list(sent)
    share = rng.choice((0.02, 0.1, 0.5, 1.0))
    for number, (time_ns, frame, length) in enumerate(sent):
        if rng.random() < share:
            frame = changed(frame, others, rng)
            sent[number] = Sent(time_ns, frame, max(length, len(frame)))
    for _ in range(rng.choice((0, 0, 1, 4, 40))):
        _accident(sent, rng)
    return name, sent


def _accident(sent: list[Sent], rng: Random) -> None:
    at = rng.randrange(len(sent))
    time_ns, frame, length = sent[at]
    match rng.randrange(8):
        case 0:
            sent.insert(rng.randrange(len(sent) + 1), sent[at])
        case 1:
            later = rng.randrange(len(sent))
            sent[at], sent[later] = sent[later], sent[at]
        case 2:
            sent[at:] = [Sent(time_ns, frame[: rng.randrange(20, 200)], length) for time_ns, frame, length in sent[at:]]
        case 3:
            step = rng.choice((-(10**18), -SECOND, 61 * SECOND, 30 * 365 * 86400 * SECOND))
            sent[at:] = [one._replace(time_ns=min(max(0, one.time_ns + step), 2**63)) for one in sent[at:]]
        case 4:
            sent[at] = Sent(time_ns, frame[: rng.randrange(len(frame) + 1)], length)
        case 5:
            flipped = bytearray(frame or b"\0")
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
            sent[at] = Sent(time_ns, bytes(flipped), max(length, len(flipped)))
        case 6:
            sent[at] = Sent(time_ns, frame + rng.randbytes(rng.randrange(1, 20)), length + 20)
        case 7:
            sent[at:] = sent[at:][::-1]


def capture(sent: Sequence[Sent], rng: Random) -> io.BytesIO:
    """The frames on one interface or more, one of which may have another link type."""
    file = io.BytesIO()
    number = rng.choice((1, 1, 3))
    with PcapngWriter(file) as writer:
        for interface in range(number):
            other = interface and rng.random() < 0.3
            writer.add_interface(f"if{interface}", rng.choice((*LINK_NAMES, 147)) if other else ETHERNET)
        for time_ns, frame, length in sent:
            interface = rng.randrange(number)
            writer.write(time_ns, frame, interface=interface, length=max(length, len(frame)))
    file.seek(0)
    return file


# What an audit makes of it --------------------------------------------------------------------------------------------


def options(name: str, rng: Random) -> Options:
    return Options(
        complete=rng.random() < 0.5, ordered=rng.random() < 0.5, mirror=rng.random() < 0.2,
        keys=keys(name) if rng.random() < 0.7 else None, personality=rng.choice((None, "refprov")),
        max_flows=rng.choice((1, 3, 65_536)), crc=rng.choice(("auto", "auto", "on", "off")),
        rd=rng.choice(("raw", "headers")),
    )  # fmt: skip


def tell(report: AuditReport, measures: Measures) -> Iterator[str]:
    """All that is made of it, for whomever."""
    outcome = AuditOutcome(report, Severity.ERROR, report.findings)
    yield from json_lines(outcome)
    yield from audit_text.findings(outcome, lambda text, _: text)
    yield junit(outcome)
    console = Console(file=io.StringIO(), width=120)
    console.print(audit_text.coverage(outcome))
    measured = measures.end()
    yield from map(json.dumps, stats.json_lines(measured))
    for one in measured:
        for part in (*stats_text.flows(one.flows), *stats_text.messages(one, True)):
            console.print(part)
    yield from audit_text.verdict(outcome, None, lambda text, _: text)


def tried(seed: int) -> list[str]:
    rng = Random(f"hostile/{seed}")
    name, sent = hostile(rng)
    told = options(name, rng)
    measures = Measures(told, draw=rng.random() < 0.3)
    report = audit([capture(sent, rng)], told, listen=measures)
    for tally in report.tallies.values():
        assert 0 <= tally.failed <= tally.judged <= tally.asked, (seed, tally)
    for finding in report.findings:
        assert all(0 <= number < len(sent) for number in finding.packets), (seed, finding)
    return list(tell(report, measures))


@pytest.mark.parametrize("part", range(SLICES))
def test_nothing_is_raised(part: int) -> None:
    for seed in range(part, RUNS, SLICES):
        tried(seed)


def test_one_number_one_run() -> None:
    assert [tried(seed) for seed in range(5)] == [tried(seed) for seed in range(5)]


def test_lies_are_believed() -> None:
    """They reach the trackers, and most of the rules have something to say of them."""
    found = set()
    for seed in range(120):
        for line in tried(seed):
            if line.startswith('{"kind": "finding"'):
                found.add(json.loads(line)["rule"])
        if len(found) > 60:
            return
    pytest.fail(f"only {sorted(found)}")


if __name__ == "__main__":
    first, last = int(sys.argv[1]), int(sys.argv[-1])
    for seed in range(first, last + 1):
        lines = tried(seed)
        if first == last:
            print("\n".join(lines))
