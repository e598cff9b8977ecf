# SPDX-License-Identifier: GPL-2.0-only
"""Memory of an audit is bounded by what is open: closed PDCs, old counters and ended queue pairs leave nothing behind.

`uetproto bench --only audit` has a million PDCs; here are a few thousand, counted to the last object.
"""

import gc
import tracemalloc
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random

import pytest

from tests.support.audit.build import A, B, head, packet
from tests.support.audit.judge import OnlyJudge
from tests.support.effort import effort
from uetproto.audit.auditor import Auditor
from uetproto.audit.flows import SWEEP
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import Reading
from uetproto.audit.tss.counters import CONTENTS, RANGES, UsedCounters
from uetproto.audit.tss.rules import RULES as TSS_RULES
from uetproto.audit.tss.tracker import TssTracker
from uetproto.bench import audit as bench_audit
from uetproto.bench.audit import conversations, left_behind
from uetproto.errors import LocalError
from uetproto.wire.capture.pcap import ETHERNET, Record

PER_SWEEP = SWEEP // 4
"""PDCs of `conversations` between two sweeps."""
MINUTES = 60 * 10**9


def objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def test_closed_pdcs_leave_nothing() -> None:
    """What is kept after six thousand is what was kept after one thousand, but for what the process does besides."""
    assert left_behind(effort(6, 10, 10) * PER_SWEEP, objects) < 0.01


def test_closed_pdcs_leave_no_bytes() -> None:
    """Neither do lists and tables grow, but for the one of all names, once; an open PDC has some 3,000 bytes."""
    tracemalloc.start()
    try:
        left = left_behind(effort(3, 6, 6) * PER_SWEEP, lambda: (gc.collect(), tracemalloc.get_traced_memory()[0])[1])
    finally:
        tracemalloc.stop()
    assert left < 200


def test_what_is_left_behind_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurement is one: PDCs that do not close are still there."""
    monkeypatch.setattr(bench_audit, "_conversation", unclosed(bench_audit._conversation))
    assert left_behind(2 * PER_SWEEP, objects) > 1


def unclosed(conversation: object) -> object:
    """Two requests and their responses in place of the close."""
    return lambda client: conversation(client)[:2] * 2  # type: ignore[operator]


def test_findings_are_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_audit, "_START", 0)
    monkeypatch.setattr(bench_audit, "_JOB", 0)
    spoilt = (record._replace(data=record.data[:-1] + b"\0") for record in conversations(0, PER_SWEEP))
    monkeypatch.setattr(bench_audit, "conversations", lambda first, last: spoilt)
    with pytest.raises(LocalError, match=r"bench: \d+ findings"):
        left_behind(PER_SWEEP, objects)


# Others ---------------------------------------------------------------------------------------------------------------


def audited(records: Iterable[Record], options: Options) -> Auditor:
    auditor = Auditor(options)
    reading = Reading(ETHERNET, options, auditor.see)
    for record in records:
        reading.take(record)
    reading.end()
    return auditor


def open_pdcs(number: int) -> Iterator[Record]:
    """The first two packets of each."""
    return (record for record in conversations(0, number) if record.index % 4 < 2)


def test_pdcs_beyond_the_limit_are_dropped_and_counted() -> None:
    auditor = audited(open_pdcs(4 * PER_SWEEP), replace(Options(), max_flows=PER_SWEEP))
    auditor.end()
    assert sum(auditor.forgotten.values()) >= 2 * PER_SWEEP
    assert auditor.judge.findings == []


def test_silent_pdcs_are_dropped_and_counted() -> None:
    """After a minute, when somebody else sends."""
    early = list(open_pdcs(64))
    late = [
        record._replace(index=record.index + 64 * 4, time_ns=record.time_ns + 2 * MINUTES)
        for record in conversations(64, 64 + 3 * PER_SWEEP)
    ]
    auditor = audited([*early, *late], Options())
    assert sum(auditor.forgotten.values()) >= 64
    auditor.end()
    assert auditor.judge.findings == []


def sealed(tscs: Iterable[int], *, an: int = 0, src: int = A) -> Iterator[ObservedPacket]:
    """Packets with these counters."""
    for number, tsc in enumerate(tscs):
        yield packet(number, src, A + B - src, head("tss", sdi=2, an=an, tsc=tsc), content=number)


def test_counters_are_kept_as_ranges() -> None:
    """Those that grow by one are one range, however many; and what comes out of order closes the gaps."""
    counters = UsedCounters()
    order = list(range(20_000))
    for start in range(0, len(order), 50):
        Random(start).shuffle(part := order[start : start + 50])
        order[start : start + 50] = part
    assert all(counters.add(tsc) for tsc in order)
    assert counters.ranges == 1
    assert not any(counters.add(tsc) for tsc in order[::1000])


def test_ranges_are_bounded() -> None:
    """With a gap behind each counter they are as many as there may be, and the oldest go."""
    counters = UsedCounters()
    for tsc in range(0, 6 * RANGES, 2):
        assert counters.add(tsc)
        assert counters.ranges <= RANGES
    assert counters.ranges == RANGES
    assert not counters.add(4), "too old to tell"
    assert not counters.add(6 * RANGES - 2)
    assert counters.add(6 * RANGES - 1)


def test_a_tracker_of_counters_is_bounded() -> None:
    """A thousand counters more or less make no difference, with gaps and without."""
    tracker = TssTracker(OnlyJudge(TSS_RULES), Options())
    for seen in sealed(range(0, 6 * max(RANGES, CONTENTS), 3)):
        tracker.see(seen)
    before = objects()
    for seen in sealed(range(6 * max(RANGES, CONTENTS), 12 * max(RANGES, CONTENTS), 3)):
        tracker.see(seen)
    assert objects() - before < 50
