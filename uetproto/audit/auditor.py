"""This module judges captures. Each interface of each file is a vantage point and is audited alone; equal findings are
merged.

A `Reading` turns a record of the capture into an `ObservedPacket`. The `Auditor` of the vantage point passes this
packet to the tracker of its conversation. Trackers report events to the `Judge`, which applies the rules.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

from uetproto.audit.finding import merged
from uetproto.audit.flows import PER_PACKET, SWEEP, Bounded, choose_surplus
from uetproto.audit.judge import Heard, Judge, RuleTable
from uetproto.audit.listeners import ListenerFactory, call_both
from uetproto.audit.pds.tracker import HEADS, PdsTracker
from uetproto.audit.pds.tracker_rudi import RudiTracker
from uetproto.audit.personality import excused_by
from uetproto.audit.reader.observed import ObservedPacket, head_class
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import Readers, Reading
from uetproto.audit.report import NO_KEYS, AuditReport, PacketCounts
from uetproto.audit.roce.tracker import RoceTracker
from uetproto.audit.rule import Rule
from uetproto.audit.rules import chosen_rules
from uetproto.audit.ses.tracker import SesTracker
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.sharp.tracker import SharpTracker, is_sharp
from uetproto.audit.tss.tracker import TssTracker
from uetproto.audit.wire.tracker import DamagedPlace, WireTracker, report_damage
from uetproto.errors import LocalError, shown, typed
from uetproto.garbage import seldom_collected
from uetproto.wire.capture.base import Source
from uetproto.wire.capture.pcap import ETHERNET, CaptureReader, Record, open_capture
from uetproto.wire.headers.roce import BTH
from uetproto.wire.headers.uet_pds import RUDI_REQ, RUDI_RESP, UUD_REQ
from uetproto.wire.headers.uet_tss import TSS, TSS_SSI

_BTH = head_class(BTH.name)


class EarlyEnd(Protocol):
    """An early end stops an audit before the end of its captures. The object is false at first, and true once the audit
    has to end."""

    def __bool__(self) -> bool: ...

    def wait(self, call: Callable[[], CaptureReader]) -> CaptureReader | None:
        """Return what `call` returns, or None once the audit has to end."""

    def until(self, items: Iterable[Record]) -> Iterable[Record]:
        """Yield the records in `items` until the audit has to end."""


Handler = Callable[[ObservedPacket], None]
"""Type of a function that handles one packet."""


def audit(
    files: Iterable[Source],
    options: Options,
    progress: Callable[[int], None] | None = None,
    listen: ListenerFactory | None = None,
    interrupt: EarlyEnd | None = None,
) -> AuditReport:
    """Judge captures and return what was found. The file "-" is standard input.

    `progress` is called now and then with the number of packets read from the present file. `listen` makes a listener
    for each vantage point. `interrupt` may end the audit early; the report then says that it is partial. Raises
    `LocalError` for a file that is no capture, and for unknown rules or an unknown personality.
    """
    typed("options", options, Options, "Options()")
    if isinstance(files, str | bytes) or not isinstance(files, Iterable):
        raise LocalError("files", f"{shown(files)} is not legal", "a list of paths and open files")
    rules = rule_table(options, chosen_rules(options.rules), None if listen is None else listen.heard)
    report = AuditReport(rules.tallies)
    with seldom_collected():
        for file in files:
            if interrupt:
                report.partial = True
                break
            opened = open_capture(file) if interrupt is None else interrupt.wait(partial(open_capture, file))
            if opened is None:
                report.partial = True
                break
            with opened as reader:
                capture = _Capture(file, reader, options, rules, listen)
                capture.read(progress, interrupt)
                capture.end(report, interrupt)
        rules.end()
    report.findings = merged(report.findings)
    return report


def rule_table(options: Options, rules: Iterable[Rule], heard: Heard | None = None) -> RuleTable:
    """Return rules with the promises of `options`. Raises `LocalError` for a personality that is not known."""
    return RuleTable(
        rules, complete=options.complete, ordered=options.ordered, excused=excused_by(options.personality), heard=heard
    )


def _is_pipe(file: Source) -> bool:
    """Return whether packets may arrive while they are read, as from a pipe."""
    if isinstance(file, str | os.PathLike):
        return not os.path.isfile(file)
    return not (hasattr(file, "seekable") and file.seekable())


def _name_of(file: Source) -> str:
    """Return how findings name a file."""
    return os.fspath(file) if isinstance(file, str | os.PathLike) else str(getattr(file, "name", "-"))


class _Capture:
    """Audits a capture while it is read."""

    def __init__(
        self, file: Source, reader: CaptureReader, options: Options, rules: RuleTable, listen: ListenerFactory | None
    ) -> None:
        self._name, self._pipe = _name_of(file), _is_pipe(file)
        self._reader, self._options, self._rules, self._listen = reader, options, rules, listen
        self._places: dict[int, _Place] = {}
        """Maps the number of an interface to its vantage point, also of interfaces of earlier sections."""
        self._readers: dict[int, Readers] = {}
        """Maps a link type to what its interfaces share."""
        self._open: dict[int, _Place] = {}
        """Holds the vantage points of the present section."""
        self._busy: dict[int, _Place] = {}
        """Holds those of them that a sweep visits: they saw packets since they were last found to hold nothing."""
        self._section = 0
        self._due = SWEEP
        """Number of the record at which all vantage points are swept next."""
        self._damage: list[DamagedPlace] = []
        self._last: Record | None = None

    def read(self, progress: Callable[[int], None] | None, interrupt: EarlyEnd | None) -> None:
        """Read the capture; `audit` has the same arguments."""
        reader, places, found = self._reader, self._open, self._reader.damage
        record: Record | None = None
        known = 0
        present = -1
        for record in reader if interrupt is None else interrupt.until(reader):
            if len(found) != known:
                self._damage += [DamagedPlace(record.index, record.time_ns, "before", *each) for each in found[known:]]
                known = len(found)
            if record.interface != present:
                present = record.interface
                if record.index >= self._due:
                    self._sweep(record)
                place = self._busy[present] = places.get(present) or self._opened(record)
                place.enter()
                take = place.take
            take(record)
            if not record.index % SWEEP and progress is not None:
                progress(record.index)
        self._last = record
        last = (0, 0, "") if record is None else (record.index, record.time_ns, "behind")
        self._damage += [DamagedPlace(*last, *each) for each in found[known:]]

    def _opened(self, record: Record) -> "_Place":
        """Return a new vantage point. No packet of an earlier section follows, so that its vantage points end."""
        reader, number = self._reader, record.interface
        if reader.section != self._section:
            self._section = reader.section
            self._close()
        name = reader.interfaces[number].name or str(number or "")
        return self._add(name, number, record.link)

    def _add(self, name: str, number: int, link: int) -> "_Place":
        if link not in self._readers:
            self._readers[link] = Readers(link, self._options, pipe=self._pipe)
        place = _Place(self._name, name, number, link, self._options, self._rules, self._readers[link], self._listen)
        self._places[number] = self._open[number] = place
        return place

    def _sweep(self, record: Record) -> None:
        """Drop what vantage points hold that see no packets any more, and surplus conversations of all together."""
        places = self._busy
        tables: defaultdict[str, list[Bounded]] = defaultdict(list)
        for place in places.values():
            for kind, table in place.tables:
                tables[kind].append(table)
        for of_a_kind in tables.values():
            choose_surplus(of_a_kind)
        self._busy = {number: place for number, place in places.items() if place.trim(record.time_ns)}
        flows = sum(len(table) for of_a_kind in tables.values() for table in of_a_kind)
        self._due = record.index + max(SWEEP, 2 * len(self._busy), flows // PER_PACKET)

    def _close(self, missing: str | None = None) -> None:
        for place in self._open.values():
            place.end(missing)
        self._open.clear()
        self._busy.clear()

    def end(self, report: AuditReport, interrupt: EarlyEnd | None) -> None:
        """Add what was found to `report`: the capture was read, or the audit was interrupted."""
        damage = self._damage
        missing = "the capture is damaged" if damage else None
        if interrupt:
            report.partial, missing = True, "the audit was interrupted"
        if damage and not self._places:
            self._add("", 0, ETHERNET)
        self._close(missing)
        report.packets += 0 if self._last is None else self._last.index + 1
        for place in self._places.values():
            place.report(report, damage, missing)
            damage = []  # damage concerns the file, so only the first interface reports it


class _Place:
    """This class audits one interface of a capture while it is read."""

    __slots__ = (
        "_auditor", "_counts", "_file", "_interface", "_judge", "_listener", "_options", "_packets", "_reading", "take",
    )  # fmt: skip

    def __init__(
        self, file: str, interface: str, number: int, link: int, options: Options, rules: RuleTable, readers: Readers,
        listen: ListenerFactory | None,
    ) -> None:  # fmt: skip
        self._file, self._interface, self._options = file, interface, options
        judge = self._judge = Judge(rules)
        listener = self._listener = None if listen is None else listen(judge, file, interface, number)
        auditor = self._auditor = Auditor(options, judge)
        see = auditor.see if listener is None else self._see_both
        reading = self._reading = Reading(link, options, see, truncated_fast=listen is None, readers=readers)
        self.take = reading.take if listener is None else self._take_both
        """Takes the next record."""
        self._packets = 0

    def _see_both(self, seen: ObservedPacket) -> None:
        self._listener.see(seen)  # type: ignore[union-attr]  # called with a listener alone
        self._auditor.see(seen)

    def _take_both(self, record: Record) -> None:
        self._listener.take(record)  # type: ignore[union-attr]
        self._reading.take(record)

    def enter(self) -> None:
        """Note that the next records are of this interface."""
        self._judge.enter()
        self._reading.enter()

    @property
    def tables(self) -> Iterator[tuple[str, Bounded]]:
        """Yield the tables of conversations, each with its kind."""
        yield from self._auditor.tables
        for number, table in enumerate(() if self._listener is None else self._listener.tables):
            yield f"listener {number}", table

    def trim(self, now: int) -> bool:
        """Drop conversations that are over or silent if no packet came since the last call, and surplus ones. Return
        whether anything is left that another call may drop."""
        auditor, listener = self._auditor, self._listener
        quiet = auditor.packets == self._packets
        self._packets = auditor.packets
        if not quiet and all(table.since is None for _, table in self.tables):
            return True
        self.enter()
        auditor.trim(now, quiet)
        if listener is not None:
            listener.sweep(now, quiet)
        return not auditor.is_idle or (listener is not None and any(map(len, listener.tables)))

    def end(self, missing: str | None) -> None:
        """Finish the audit of this interface, and drop all state but the results. `missing`: why packets may lack."""
        self.enter()
        auditor, reading = self._auditor, self._reading
        reading.end()
        auditor.wire.end(reading)
        judge = self._judge
        judge.missing = missing or reading.missing
        auditor.end()
        unopened = reading.unopened
        if auditor.sealed and self._options.keys is None:
            unopened = {NO_KEYS: auditor.sealed}
        self._counts = PacketCounts(reading.others, reading.copies, reading.opened, auditor.forgotten, unopened)
        if self._listener is not None:
            self._listener.end()
        judge.listener = self._listener = None
        reading.close()
        auditor.close()
        del self._auditor, self._reading, self.take

    def report(self, report: AuditReport, damage: Sequence[DamagedPlace], missing: str | None) -> None:
        """Add what was found to `report`. `damage`: damaged places. `missing`: why the capture may lack packets."""
        judge = self._judge
        judge.enter()
        report_damage(judge, damage)
        if missing is not None:
            judge.withdraw_absence(missing)
        report.add(judge, self._file, self._interface, self._counts)


# One vantage point ----------------------------------------------------------------------------------------------------


class Forgetful(Protocol):
    """This protocol describes an object that keeps conversations, and drops some of them when it has too many or when
    they are silent for long."""

    @property
    def forgotten(self) -> Mapping[str, int]:
        """Return how many conversations this object has dropped, by reason."""


class Auditor:
    """This class passes every packet of a vantage point to the tracker of its conversation."""

    __slots__ = ("_handlers", "_options", "_owns_rules", "_swept", "_trackers", "_until_sweep", "judge", "wire")

    def __init__(self, options: Options, judge: Judge | None = None, *, rules: Iterable[Rule] | None = None) -> None:
        """Make an auditor without trackers: each is made when its first packet comes. `judge`: the judge of the vantage
        point. Without it `rules` are asked, by default those that the options choose, and `end` completes their
        tallies.
        """
        self._owns_rules = judge is None
        if judge is None:
            judge = Judge(rule_table(options, chosen_rules(options.rules) if rules is None else rules))
        self.judge = judge
        self._options = options
        self.wire = WireTracker(self.judge, options)
        self._trackers: dict[type, Any] = {}
        """Maps the class of each tracker that was needed to the tracker."""
        self._handlers: dict[type, Handler | None] = {}
        """Maps the classes of first headers seen to what follows such packets; None: nothing does."""
        self._until_sweep = SWEEP
        self._swept = 0

    @property
    def packets(self) -> int:
        """Return the number of packets seen."""
        return self._swept + SWEEP - self._until_sweep

    def see(self, seen: ObservedPacket) -> None:
        """Pass the next packet to the trackers that it concerns. From time to time also drop conversations that have
        been silent for long."""
        is_message = False
        if seen.packet is not None:
            believed = self.wire.see(seen)
            if believed is None:
                return
            seen = believed
            if is_sharp(seen):
                self._tracker(SharpTracker).see(seen)
                is_message = True
        head = type(seen.head)
        if head is _BTH and not is_message and (sharp := self._trackers.get(SharpTracker)) and sharp.queue_pairs:
            sharp.see_roce(seen)
        try:
            handler = self._handlers[head]
        except KeyError:
            handler = self._handlers[head] = self._handler(head)
        if handler is not None:
            handler(seen)
        self._until_sweep -= 1
        if not self._until_sweep:
            self._until_sweep = SWEEP
            self._swept += SWEEP
            self.sweep(seen.time_ns)

    def sweep(self, now: int) -> None:
        """Drop conversations that are over, silent or too many; to be called after enough packets."""
        for kind in _SWEPT:
            if kind in self._trackers:
                self._trackers[kind].sweep(now)

    @property
    def is_idle(self) -> bool:
        """Tell whether there is no tracker."""
        return not self._trackers

    def trim(self, now: int, quiet: bool) -> None:
        """Drop conversations that are over, silent or too many, and the trackers if they hold nothing then. `quiet`: no
        packet came for long, so that none of a closed PDC is still to come."""
        for kind in _SWEPT:
            if kind in self._trackers:
                tracker = self._trackers[kind]
                if kind is PdsTracker:
                    tracker.sweep(now, quiet)
                else:
                    (tracker.trim if kind is RoceTracker else tracker.sweep)(now)
        is_plain = self._trackers.keys() == _WITH_PDCS and not self.judge.contradictions
        if is_plain and all(tracker.is_idle for tracker in self._trackers.values()):
            self.close()

    def _tracker(self, kind: type) -> Any:
        """Return the tracker of a class, which is made if it does not exist."""
        tracker = self._trackers.get(kind)
        if tracker is None:
            ses = (self._tracker(SesTracker),) if kind in _WITH_MESSAGES else ()
            tracker = self._trackers[kind] = kind(self.judge, self._options, *ses)
            if kind is PdsTracker:
                self.judge.rules.doubtful.add(SesEvent)
        return tracker

    def _handler(self, head: type) -> Handler | None:
        """Return what follows packets whose first header has this class."""
        if head in HEADS:
            of_pdc: Handler = self._tracker(PdsTracker).handler(head)
            if TssTracker not in self._trackers:
                return of_pdc
            return call_both(self._tracker(TssTracker).see_inside, of_pdc)
        if head in _SEALED:
            return self._see_sealed
        handler: Handler | None = self._tracker(_OTHERS[head]).see if head in _OTHERS else None
        return handler

    def _see_sealed(self, seen: ObservedPacket) -> None:
        """Follow a sealed packet. After the first one, packets in the clear are judged by the rules of TSS, too."""
        if TssTracker not in self._trackers:
            self._handlers.clear()
        tracker = self._tracker(TssTracker)
        tracker.see(seen)

    def end(self) -> None:
        """Finish the audit: no packet follows."""
        for kind in _ENDED:
            if kind in self._trackers:
                self._trackers[kind].end()
        if self.judge.missing is None and any(not dropped.endswith("silent") for dropped in self.forgotten):
            self.judge.missing = "conversations were dropped"  # those that were silent for long seldom continue
        self.judge.end()
        if self._owns_rules:
            self.judge.rules.end()

    @property
    def tables(self) -> Iterator[tuple[str, Bounded]]:
        """Yield the tables of conversations, each with its kind."""
        for what, kind, kept in _KEPT:
            if kind in self._trackers:
                table: Any = kept(self._trackers[kind])
                yield what, table.flows if kind is PdsTracker else table

    def close(self) -> None:
        """Drop all trackers: no packet follows, or they hold nothing."""
        self.judge.subject_of = None
        if PdsTracker in self._trackers:
            self._trackers[PdsTracker].table.close()
        self._trackers.clear()
        self._handlers.clear()

    @property
    def sealed(self) -> int:
        """Return the number of packets with a security header."""
        return self._trackers[TssTracker].packets if TssTracker in self._trackers else 0

    @property
    def forgotten(self) -> dict[str, int]:
        """Return how many conversations the trackers dropped, by kind and reason."""
        return {
            f"{what}: {why}": number
            for what, kind, table in _KEPT
            if kind in self._trackers
            for why, number in table(self._trackers[kind]).forgotten.items()
            if number
        }


_SEALED = frozenset(head_class(header.name) for header in (TSS, TSS_SSI))
_OTHERS: dict[type, type] = {head_class(header.name): RudiTracker for header in (RUDI_REQ, RUDI_RESP, UUD_REQ)}
_OTHERS[head_class(BTH.name)] = RoceTracker
"""Maps the classes of first headers to the class of their tracker, but for those of PDCs and sealed packets."""
_WITH_MESSAGES = frozenset({PdsTracker, RudiTracker})
"""Trackers that hand packets on to the tracker of messages."""
_WITH_PDCS = frozenset({PdsTracker, SesTracker})
_SWEPT = (PdsTracker, SesTracker, RudiTracker, RoceTracker, SharpTracker, TssTracker)
_ENDED = (SesTracker, RoceTracker, SharpTracker, TssTracker)
"""Trackers that report events at the end of the capture."""
_KEPT: tuple[tuple[str, type, Callable[[Any], Forgetful]], ...] = (
    ("PDCs", PdsTracker, attrgetter("table")),
    ("RUDI and UUD", RudiTracker, attrgetter("flows")),
    ("queue pairs", RoceTracker, attrgetter("flows")),
    ("SHARP groups", SharpTracker, attrgetter("groups")),
    ("secure domains", TssTracker, attrgetter("flows")),
    ("nonces of a key", TssTracker, attrgetter("spaces")),
)
