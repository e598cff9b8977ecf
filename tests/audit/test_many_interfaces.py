# SPDX-License-Identifier: GPL-2.0-only
"""A capture of many interfaces or sections costs what its packets cost: little is made for an interface.

Costs are counted: function calls stand for time, traced bytes for memory.
"""

import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable
from io import BytesIO
from itertools import groupby
from types import FrameType
from typing import Any

import pytest

from tests.support.audit.build import A, B, head, packet
from tests.support.effort import effort
from uetproto.audit.auditor import _Capture, _Place, audit
from uetproto.audit.flows import Flows, choose_surplus
from uetproto.audit.reader.options import Options
from uetproto.audit.stats.measure import Measures, measure
from uetproto.audit.stats.rows import ALL_ROWS, ROWS, RowTable
from uetproto.bench.audit import conversations
from uetproto.cli.stats import text as stats_text
from uetproto.cli.stats.command import json_lines
from uetproto.wire.capture.pcap import Record
from uetproto.wire.capture.pcapng import PcapngWriter

COMMANDS: dict[str, Callable[[BytesIO], object]] = {
    "audit": lambda capture: audit([capture], Options()),
    "stats": lambda capture: measure([capture], Options()),
}
KINDS = ("interfaces", "sections")
MOST_TIME, MOST_MEMORY = {1: 2.4, 4: 1.6}, {1: 1.9, 4: 1.8}
"""Greatest cost of a PDC with an interface of its own, in parts of what it costs on the same interface, by packets.
They are above what is measured, for memory by a tenth: the sizes of objects differ among versions of Python."""


def capture(kind: str, pdcs: int, packets: int = 4) -> BytesIO:
    """Return a capture of short PDCs, of each its first `packets`: each PDC on an interface or in a section of its own,
    or all of them on "one" interface."""
    file = BytesIO()
    records = [record for record in conversations(0, pdcs) if record.index % 4 < packets]
    groups = [list(of_one) for _, of_one in groupby(records, lambda record: record.index // 4)]
    if kind == "sections":
        for of_one in groups:
            written(file, 1, [(record, 0) for record in of_one])
    else:
        several = kind == "interfaces"
        told = [(record, number * several) for number, of_one in enumerate(groups) for record in of_one]
        written(file, pdcs if several else 1, told)
    file.seek(0)
    return file


def written(file: BytesIO, interfaces: int, records: Iterable[tuple[Record, int]]) -> None:
    """Write a section."""
    with PcapngWriter(file) as writer:
        for number in range(interfaces):
            writer.add_interface(f"eth{number}")
        for record, interface in records:
            writer.write(record.time_ns, record.data, interface=interface, length=record.length)


def calls(command: Callable[[BytesIO], object], told: BytesIO) -> int:
    """Return the number of calls of functions."""
    number = Counter[str]()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        number[event] += 1

    sys.setprofile(count)
    try:
        command(told)
    finally:
        sys.setprofile(None)
    return number["call"] + number["c_call"]


def peak(command: Callable[[BytesIO], object], told: BytesIO) -> int:
    """Return the most bytes that were allocated at a time."""
    tracemalloc.start()
    try:
        command(told)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def ratios(cost: Callable[[Callable[[BytesIO], object], BytesIO], int], name: str, packets: int) -> dict[str, float]:
    """Return what another PDC costs with an interface of its own, in parts of what it costs on the same interface."""
    command, few, many = COMMANDS[name], 20, 20 + effort(60, 400, 4_000)
    each = {}
    for kind in ("one", *KINDS):
        command(capture(kind, 8))  # compiles readers and fills caches
        each[kind] = cost(command, capture(kind, many, packets)) - cost(command, capture(kind, few, packets))
    return {kind: each[kind] / each["one"] for kind in KINDS}


@pytest.mark.parametrize("packets", [1, 4])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_interface_costs_little_time(name: str, packets: int) -> None:
    found = ratios(calls, name, packets)
    assert max(found.values()) <= MOST_TIME[packets], found


@pytest.mark.parametrize("packets", [1, 4])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_interface_costs_little_memory(name: str, packets: int) -> None:
    found = ratios(peak, name, packets)
    assert max(found.values()) <= MOST_MEMORY[packets], found


def test_interfaces_of_earlier_sections_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their flows are dropped when the next section begins, as no packet of theirs follows."""
    open_at_a_time = []
    section = _Capture._opened
    monkeypatch.setattr(
        _Capture, "_opened", lambda self, record: (section(self, record), open_at_a_time.append(len(self._open)))[0]
    )
    report = audit([capture("sections", 30)], Options())
    assert len(report.vantages) == 30
    assert set(open_at_a_time) == {1}


@pytest.mark.parametrize("kind", ["one", *KINDS])
def test_the_same_is_judged_wherever_packets_were_captured(kind: str) -> None:
    tallies = audit([capture(kind, 40)], Options()).tallies
    alone = audit([capture("one", 40)], Options()).tallies
    assert {rule: (tally.asked, tally.failed) for rule, tally in tallies.items() if rule != "CAP-DAMAGED"} == {
        rule: (tally.asked, tally.failed) for rule, tally in alone.items() if rule != "CAP-DAMAGED"
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_the_limit_of_flows_holds_for_all_interfaces_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each interface has one PDC that stays open; what is dropped is counted."""
    monkeypatch.setattr("uetproto.audit.auditor.SWEEP", 64)
    pdcs, most = 1_000, 20
    options = Options(max_flows=most)
    told = capture("interfaces", pdcs, packets=1)
    report = audit([told], options) if name == "audit" else measure([told], options)[0]
    assert report.forgotten["PDCs: evicted"] > pdcs // 4  # a sweep waits for twice as many packets as interfaces
    assert len(report.vantages) == pdcs


def test_an_interface_is_swept_until_it_holds_nothing_and_then_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each interface has three PDCs that are closed, long after each other; sweeps between them change no result."""
    interfaces = 100
    file = BytesIO()
    records = conversations(0, 3 * interfaces)
    written(file, interfaces, [(record, record.index // 4 % interfaces) for record in records])

    def measured() -> list[dict[str, Any]]:
        file.seek(0)
        return list(json_lines(measure([file], Options())[1]))

    without_sweeps = measured()
    assert len(without_sweeps) == interfaces * (3 + 3 + 1)  # flows, messages, summary
    swept = []
    trim = _Place.trim
    monkeypatch.setattr(_Place, "trim", lambda self, now: swept.append(trim(self, now)) or swept[-1])
    monkeypatch.setattr("uetproto.audit.auditor.SWEEP", 64)
    assert measured() == without_sweeps
    assert swept.count(False) > 2 * interfaces  # a PDC ended and nothing was left
    assert len(swept) < 4 * 3 * interfaces


def test_a_measure_at_rest_keeps_no_meters() -> None:
    measures = Measures(Options())
    one, other = (measures("a", name, 0) for name in "xy")
    assert one is not None
    assert other is not None
    for measure_of in (one, other):
        measure_of.see(packet(0, A, B, head("pds.ack")))
        meters = measure_of.hears
        measure_of.rest()
        assert not measure_of.tables
        assert measure_of.hears is not meters
        measure_of.rest()
    assert one.measured.kinds is other.measured.kinds  # the numbers are the same
    one.take(Record(1, 1_000, b"", 60, 0, 1, 0, None))
    one.see(packet(1, A, B, head("pds.ack")))
    assert (one.measured.kinds, other.measured.kinds) == ({"pds.ack": 1}, {})
    kept = Measures(Options(), draw=True)("a", "x", 0)
    assert kept is not None
    meters = kept.hears
    meters.counted("pdc", object(), 7, packet(0, A, B, head("pds.ack")))
    kept.rest()
    assert kept.tables == [meters]  # a flow is open


def test_an_interface_at_rest_goes_on_as_if_it_had_not_rested(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was known of its flows, what was found and what was counted is kept; wrong CRCs come before and after."""
    interfaces, rounds = 24, 4
    file = BytesIO()
    packets = []
    for turn, of_one in groupby(conversations(0, rounds * interfaces), lambda record: record.index // 4):
        for step, record in enumerate(of_one):
            wrong = turn % 5 == 0 and step in (1, 3)  # a bit of the CRC is flipped, in all that the server sends
            data = record.data[:-2] + bytes([record.data[-2] ^ wrong]) + record.data[-1:]
            packets.append((record._replace(data=data[:60] if turn % 7 == 3 else data), turn % interfaces))
    written(file, interfaces, packets)

    def told() -> tuple[Any, ...]:
        file.seek(0)
        report = audit([file], Options())
        findings = [finding.as_dict() for finding in report.findings]
        return findings, report.vantages, report.others, {name: tally.asked for name, tally in report.tallies.items()}

    without_rest = told()
    assert {finding["rule"] for finding in without_rest[0]} >= {"WIRE-CRC"}
    rested = []
    rest = _Place._rest
    monkeypatch.setattr(_Place, "_rest", lambda self, work: (rest(self, work), rested.append(self._work is None))[0])
    monkeypatch.setattr("uetproto.audit.auditor.SWEEP", 32)
    assert told() == without_rest
    assert sum(rested) > interfaces


@pytest.mark.parametrize(("sizes", "most", "kept"), [((3, 1), 2, [2, 0]), ((2, 2), 4, [2, 2]), ((0, 5), 1, [0, 1])])
def test_the_least_recent_flows_are_surplus(sizes: tuple[int, ...], most: int, kept: list[int]) -> None:
    class Flow:
        def __init__(self, last_ns: int) -> None:
            self.last_ns = last_ns

    tables: list[Flows[int, Flow]] = [Flows(most) for _ in sizes]
    for place, (table, size) in enumerate(zip(tables, sizes, strict=True)):
        table.by_key = {number: Flow(10 * number + place if place else 100 + number) for number in range(size)}
    choose_surplus(tables)
    for table in tables:
        table.sweep(200)
    assert [len(table) for table in tables] == kept
    assert sum(table.evicted for table in tables) == sum(sizes) - sum(kept)


def test_rows_are_bounded_over_all_interfaces() -> None:
    room = [3]
    tables = [RowTable(2, room), RowTable(2, room)]
    for _ in range(3):
        for table in tables:
            table.add(1, 10, 5, {"RTO?": 1}, object)  # type: ignore[arg-type]
    assert [len(table.kept) for table in tables] == [2, 1]
    assert [table.others["rows"] for table in tables] == [1, 2]
    assert [(table.packets, table.bytes, table.resent) for table in tables] == [(3, 30, {"RTO?": 3})] * 2
    assert ROWS < ALL_ROWS


def test_the_text_shows_the_interfaces_with_most_packets() -> None:
    report, measured = measure([capture("interfaces", stats_text.INTERFACES + 6)], Options())
    assert len(stats_text.shown(measured)) == stats_text.INTERFACES
    assert list(stats_text.left_out(report, measured)) == [
        "and 6 more interfaces, 24 packets; --interface or --json shows them"
    ]
    assert list(stats_text.left_out(report, measured[:5])) == []
