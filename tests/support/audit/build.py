# SPDX-License-Identifier: GPL-2.0-only
"""This module makes observed packets from captures, from frames, or by hand, and audits PDCs alone."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support import paths
from tests.support.audit.judge import OnlyJudge
from uetproto.audit.contract import MessageDirection, MessageTracker, OrderedDirection
from uetproto.audit.finding import Finding
from uetproto.audit.judge import Heard
from uetproto.audit.pds.rules import RULES
from uetproto.audit.pds.tracker import HEADS, PdsTracker
from uetproto.audit.reader.observed import Head, ObservedPacket, head_class
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import Reading
from uetproto.audit.reader.slow_path import observe
from uetproto.audit.rule import Rule
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.forms import FORMS
from uetproto.wire.stack import decode

ROOT = paths.ROOT
GOLDEN = ROOT / "pcaps"
PLAIN = Options()

A, B = 0x0A000001, 0x0A000002
"""Addresses of two endpoints: A is the initiator of PDCs, B the target."""
IPDCID, TPDCID = 7, 3


def seen_of_frames(frames: Iterable[bytes], options: Options = PLAIN, step_ns: int = 1_000) -> Iterator[ObservedPacket]:
    """Yield the observed packets of Ethernet frames, `step_ns` apart."""
    for number, frame in enumerate(frames):
        packet = decode(
            frame, crc=options.crc, udp_port=options.udp_port, ip_protocol=options.ip_protocol,
            roce_port=options.roce_port, rd=options.rd,
        )  # fmt: skip
        yield observe(packet, frame, number, number * step_ns)


def seen_of_capture(path: Path, options: Options = PLAIN) -> list[list[ObservedPacket]]:
    """Return the observed packets of a capture, one list for each interface."""
    found: list[list[ObservedPacket]] = []
    readings: list[Reading] = []
    with open_capture(path) as capture:
        for record in capture:
            while len(readings) <= record.interface:
                found.append([])
                readings.append(Reading(record.link, options, found[-1].append))
            readings[record.interface].take(record)
    for reading in readings:
        reading.end()
    return found


def head(form: str, **values: int) -> Head:
    """Return a header; a field that is not given is 0, or the one value that its form allows."""
    fields = {field.name: values.pop(field.name, field.only[0] if field.only else 0) for field in FORMS[form].fields}
    assert not values, values
    return head_class(form)(**fields)


def packet(number: int, src: int, dst: int, leads: Head, content: int | None = 0, **others: Any) -> ObservedPacket:
    """Return an observed packet, a microsecond after the packet with the number before."""
    seen = ObservedPacket(number, number * 1_000, src, dst, 0, 0, 0, leads, None, (), 0, content, None)
    return seen._replace(**others)


class NoMessages:
    """This class stands in for the tracker of messages, and records its calls."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, Any]] = []
        self.open_directions = 0

    def open(self, direction: MessageDirection, *, ordered: bool = True) -> object:
        self.open_directions += 1
        return object()

    def request(self, direction: MessageDirection, seen: ObservedPacket, first: bool) -> None:
        assert direction.ses is not None
        self.told.append(("request", seen.number, first))

    def response(self, direction: MessageDirection, seen: ObservedPacket, psn: int | None) -> None:
        assert direction.ses is not None
        self.told.append(("response", seen.number, psn))

    def data(self, direction: OrderedDirection, seen: ObservedPacket, first: bool) -> None:
        assert direction.ses is not None
        self.told.append(("data", seen.number, first))

    def close(self, direction: MessageDirection) -> None:
        self.open_directions -= 1


class PdsAudit:
    """This class audits PDCs, without the messages on them."""

    def __init__(
        self, options: Options = PLAIN, rules: tuple[Rule, ...] = RULES, ses: MessageTracker | None = None,
        heard: Heard | None = None, listener: Any = None,
    ) -> None:  # fmt: skip
        self.judge = OnlyJudge(
            rules, complete=options.complete, ordered=options.ordered, heard=heard, listener=listener
        )
        self.ses: Any = ses or NoMessages()
        self.tracker = PdsTracker(self.judge, options, self.ses)

    def see(self, packets: Iterable[ObservedPacket]) -> list[Finding]:
        """Audit these packets, and return all findings so far."""
        for seen in packets:
            if type(seen.head) in HEADS:
                self.tracker.see(seen)
        return self.judge.findings

    def end(self) -> list[Finding]:
        self.tracker.end()
        self.judge.end()
        return self.judge.findings
