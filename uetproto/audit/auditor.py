# SPDX-License-Identifier: GPL-2.0-only
"""This module judges captures. Each interface of each file is a vantage point and is audited alone; equal findings are
merged.

A `Reading` turns a record of the capture into an `ObservedPacket`. The `Auditor` of the vantage point passes this
packet to the tracker of its conversation. Trackers report events to the `Judge`, which applies the rules.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from uetproto.audit.finding import merged
from uetproto.audit.flows import PER_PACKET, SWEEP, Bounded, choose_surplus
from uetproto.audit.judge import Heard, Judge, RuleTable
from uetproto.audit.listeners import ListenerFactory, PacketListener, call_both
from uetproto.audit.pds.tracker import HEADS, PdsTracker
from uetproto.audit.pds.tracker_rudi import RudiTracker
from uetproto.audit.personality import excused_by
from uetproto.audit.reader.observed import ObservedPacket, head_class
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import UNUSED, Readers, Reading, Resting
from uetproto.audit.report import NO_KEYS, AuditReport, PacketCounts
from uetproto.audit.roce.tracker import RoceTracker
from uetproto.audit.rule import Rule
from uetproto.audit.rules import chosen_rules
from uetproto.audit.ses.tracker import SesTracker
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.sharp.tracker import SharpTracker, is_sharp
from uetproto.audit.tss.tracker import TssTracker
from uetproto.audit.wire.tracker import DamagedPlace, WireTracker, count_expected, report_damage
from uetproto.errors import LocalError, shown, typed
from uetproto.garbage import seldom_collected
from uetproto.wire.capture.base import CaptureInterface, Source
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
    opener: Callable[[Any], CaptureReader] = open_capture,
) -> AuditReport:
    """Judge captures and return what was found. The file "-" is standard input.

    `progress` is called now and then with the number of packets read from the present file. `listen` makes a listener
    for each vantage point. `interrupt` may end the audit early; the report then says that it is partial. `opener` opens
    each file, where files are not paths and open files but what only the caller knows. Raises
    `LocalError` for a file that is no capture, and for unknown rules or an unknown personality.
    """
    typed("options", options, Options, "Options()")
    if isinstance(files, str | bytes) or not isinstance(files, Iterable):
        raise LocalError("files", f"{shown(files)} is not legal", "a list of paths and open files", id="wrong-type")
    rules = rule_table(options, chosen_rules(options.rules), None if listen is None else listen.heard)
    report = AuditReport(rules.tallies)
    with seldom_collected():
        for file in files:
            if interrupt:
                report.partial = True
                break
            opened = opener(file) if interrupt is None else interrupt.wait(partial(opener, file))
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
    """Return the table of `rules` for an audit with `options`, which say whether captures are complete and in order,
    and which personality excuses findings. Raises `LocalError` for a personality that is not known."""
    return RuleTable(
        rules,
        complete=options.complete,
        ordered=options.ordered,
        excused=excused_by(options.personality),
        personality=options.personality,
        heard=heard,
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
        self.name, self._pipe = _name_of(file), _is_pipe(file)
        self.options, self.rules, self.listen = options, rules, listen
        self._reader = reader
        self._readers: dict[int, Readers] = {}
        """Maps a link type to what its interfaces share."""
        self._open: dict[int, _Place] = {}
        """Maps the number of an interface to its vantage point, in the present section."""
        self._busy: dict[int, _Place] = {}
        """Holds those of them that a sweep visits: they saw packets since they were last found to hold nothing."""
        self._ended: list[str | _Result] = []
        """Results of the vantage points of earlier sections; only the name of the interface if nothing was found."""
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
                take = place.enter()
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
        interface = reader.interfaces[number]
        return self._add(interface.name or str(number or ""), number, record.link, interface.comment or "")

    def _add(self, name: str, number: int, link: int, comment: str = "") -> "_Place":
        place = self._open[number] = _Place(self, name, link, comment)
        if self.listen is not None:
            place.listen(self.listen, number)
        return place

    @property
    def interfaces(self) -> Sequence[CaptureInterface]:
        """Return the interfaces of the capture so far; the list grows while the capture is read."""
        return self._reader.interfaces

    @property
    def with_ports(self) -> Options:
        """Return the options, with the UDP ports that the capture has stated so far."""
        if self._reader.udp_ports == self.options.stated_ports:
            return self.options
        self.options = replace(self.options, stated_ports=self._reader.udp_ports)
        return self.options

    def readers(self, link: int) -> Readers:
        """Return what the interfaces of a link type share."""
        known = self._readers.get(link)
        if known is None:
            known = self._readers[link] = Readers(link, self.options, pipe=self._pipe)
        return known

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
        """End the vantage points of the present section. `missing`: why packets may lack."""
        opened = self._open
        self._busy.clear()
        for number in list(opened):
            self._ended.append(opened.pop(number).end(missing))

    def end(self, report: AuditReport, interrupt: EarlyEnd | None) -> None:
        """Add what was found to `report`: the capture was read, or the audit was interrupted."""
        damage = self._damage
        missing = "the capture is damaged" if damage else None
        if interrupt:
            report.partial, missing = True, "the audit was interrupted"
        if damage and not (self._open or self._ended):
            self._add("", 0, ETHERNET)
        self._close(missing)
        for readers in self._readers.values():
            report.vnis |= {*readers.quick.here.tenants}
        report.packets += 0 if self._last is None else self._last.index + 1
        for result in self._ended:
            if isinstance(result, str):
                result = _Result(result)
            judge = result.judge or (Judge(self.rules) if damage else None)
            if judge is not None:
                judge.enter()
            report_damage(self.rules, damage)
            damage = []  # damage concerns the file, so only the first interface reports it
            if judge is not None and missing is not None:
                judge.withdraw_absence(missing)
            report.add([] if judge is None else judge.findings, self.name, result.name, result.counts)
        self._ended.clear()


class _Result(NamedTuple):
    """This record has what was found at a vantage point."""

    name: str
    judge: Judge | None = None
    counts: PacketCounts = PacketCounts()


class _Work:
    """This class has what audits the packets of a vantage point. It is made when a packet comes, and dropped when the
    interface goes idle."""

    __slots__ = ("auditor", "judge", "reading")

    def __init__(self, place: "_Place", capture: _Capture, judge: Judge | None, packets: int, rested: Resting) -> None:
        options = capture.options
        if place.comment:
            options = replace(options, stated_cc=place.comment, interfaces=capture.interfaces)
        if judge is None:
            judge = Judge(capture.rules)
        if place.listener is not None:
            judge.listener = place.listener.hears
        self.judge = judge
        auditor = self.auditor = Auditor(options, judge, packets=packets)
        alone = place.listener is None
        see = auditor.see if alone else place.see_both
        self.reading = Reading(
            place.link, capture.with_ports, see, truncated_fast=capture.listen is None,
            readers=capture.readers(place.link), rested=rested,
        )  # fmt: skip

    def enter(self) -> None:
        """Note that the next packets are of this vantage point."""
        self.judge.rules.judge = self.judge
        self.reading.enter()


class _Place:
    """This class audits one interface of a capture while it is read."""

    __slots__ = ("_capture", "_judge", "_name", "_packets", "_rested", "_work", "comment", "link", "listener")

    def __init__(self, capture: _Capture, name: str, link: int, comment: str = "") -> None:
        self._capture, self._name, self.link, self.comment = capture, name, link, comment
        self.listener: PacketListener | None = None
        self._judge: Judge | None = None
        """Judge of the vantage point, or None if there is none yet or it noted nothing."""
        self._packets = 0
        """Number of packets that had come at the last call of `trim`."""
        self._rested = UNUSED
        self._work: _Work | None = None
        """What audits the packets; None: the interface is at rest, and `_rested` says how to go on."""

    def listen(self, listen: ListenerFactory, number: int) -> None:
        """Begin to measure the interface with this number."""
        self.listener = listen(self._capture.name, self._name, number)

    def see_both(self, seen: ObservedPacket) -> None:
        """Pass a packet to the listener and to the auditor."""
        self.listener.see(seen)  # type: ignore[union-attr]  # called with a listener alone
        self._work.auditor.see(seen)  # type: ignore[union-attr]  # called while there are packets

    def enter(self) -> Callable[[Record], None]:
        """Return the function that takes the next records, which are of this interface."""
        work = self._work
        if work is None:
            work = self._work = _Work(self, self._capture, self._judge, self._packets, self._rested)
        work.enter()
        take = work.reading.take
        return take if self.listener is None else call_both(self.listener.take, take)

    @property
    def tables(self) -> Iterator[tuple[str, Bounded]]:
        """Yield the tables of conversations, each with its kind."""
        if self._work is not None:
            yield from self._work.auditor.tables
        for number, table in enumerate(() if self.listener is None else self.listener.tables):
            yield f"listener {number}", table

    def trim(self, now: int) -> bool:
        """Drop conversations that are over or silent if no packet came since the last call, and surplus ones. Return
        whether anything is left that another call may drop."""
        work, listener = self._work, self.listener
        if work is None:
            return False
        auditor = work.auditor
        quiet = auditor.packets == self._packets
        self._packets = auditor.packets
        if not quiet and all(table.since is None for _, table in self.tables):
            return True
        work.enter()
        auditor.trim(now, quiet)
        if listener is not None:
            listener.sweep(now, quiet)
        if not auditor.is_idle or (listener is not None and any(map(len, listener.tables))):
            return True
        self._rest(work)
        return False

    def _rest(self, work: _Work) -> None:
        """Drop what audits the packets, unless more has to be kept than is worth it. It is made again with the next
        packet."""
        reading, auditor = work.reading, work.auditor
        rested = reading.rest() if auditor.may_rest else None
        if rested is None:
            return
        count_expected(self._capture.rules, reading)
        self._rested = self._capture.readers(self.link).shared(rested)
        self._judge = None if work.judge.is_blank else work.judge
        work.judge.listener = None
        if self.listener is not None:
            self.listener.rest()
        self._work = None
        reading.close()

    def end(self, missing: str | None) -> "str | _Result":
        """Finish the audit of this interface, and return what was found. `missing`: why packets may lack."""
        work, judge = self._work, self._judge
        counts = PacketCounts(self._rested.others)
        if work is not None:
            work.enter()
            judge, auditor, reading = work.judge, work.auditor, work.reading
            reading.end()
            auditor.end_reading(reading)
            missing = missing or reading.missing
            judge.missing = missing
            forgotten = auditor.end()
            unopened = reading.unopened
            if auditor.sealed and self._capture.options.keys is None:
                unopened = {NO_KEYS: auditor.sealed}
            counts = PacketCounts(reading.others, reading.copies, reading.opened, forgotten, unopened)
        elif judge is not None:
            judge.missing = missing
            judge.enter()
            judge.end()
        if self.listener is not None:
            self.listener.end()
        if judge is not None:
            judge.listener = None
        if work is not None:
            work.reading.close()
            work.auditor.close()
        if (judge is None or judge.is_blank) and not any(counts):
            return self._name
        return _Result(self._name, judge, counts)


# One vantage point ----------------------------------------------------------------------------------------------------


class Forgetful(Protocol):
    """This protocol describes an object that keeps conversations, and drops some of them when it has too many or when
    they are silent for long."""

    @property
    def forgotten(self) -> Mapping[str, int]:
        """Return how many conversations this object has dropped, by reason."""


class Auditor:
    """This class passes every packet of a vantage point to the tracker of its conversation."""

    __slots__ = ("_handlers", "_options", "_owns_rules", "_swept", "_trackers", "_until_sweep", "_wire", "judge")

    def __init__(
        self, options: Options, judge: Judge | None = None, *, rules: Iterable[Rule] | None = None, packets: int = 0
    ) -> None:
        """Make an auditor without trackers: each is made when its first packet comes. `judge`: the judge of the vantage
        point. Without it `rules` are asked, by default those that the options choose, and `end` completes their
        tallies. `packets`: the number of packets that an earlier auditor of the vantage point saw.
        """
        self._owns_rules = judge is None
        if judge is None:
            judge = Judge(rule_table(options, chosen_rules(options.rules) if rules is None else rules))
        self.judge = judge
        self._options = options
        self._wire: WireTracker | None = None
        """Follows the packets that are not as expected; None: there was none."""
        self._trackers: dict[type, Any] = {}
        """Maps the class of each tracker that was needed to the tracker."""
        self._handlers: dict[type, Handler | None] = {}
        """Maps the classes of first headers seen to what follows such packets; None: nothing does."""
        self._until_sweep = SWEEP - packets % SWEEP
        self._swept = packets - packets % SWEEP

    @property
    def packets(self) -> int:
        """Return the number of packets seen."""
        return self._swept + SWEEP - self._until_sweep

    def see(self, seen: ObservedPacket) -> None:
        """Pass the next packet to the trackers that it concerns. From time to time also drop conversations that have
        been silent for long."""
        is_message = False
        if seen.packet is not None:
            if self._wire is None:
                self._wire = WireTracker(self.judge, self._options)
            believed = self._wire.see(seen)
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
        """Drop the conversations that are over or silent. If too many are left, drop the least recent ones. The caller
        calls this method after every `SWEEP` packets."""
        for kind in _SWEPT:
            if kind in self._trackers:
                self._trackers[kind].sweep(now)

    @property
    def is_idle(self) -> bool:
        """Tell whether there is no tracker."""
        return not self._trackers

    @property
    def may_rest(self) -> bool:
        """Return whether this auditor may be replaced by a new one with the same judge and the same number of packets:
        the new auditor would then go on in the same way."""
        return not self._trackers and (self._wire is None or self._wire.is_idle)

    def trim(self, now: int, quiet: bool) -> None:
        """Drop the conversations that are over or silent. If too many are left, drop the least recent ones. Then drop
        the trackers if they hold nothing. `quiet` says that no packet came for a long time, so no packet of a closed
        PDC is still on its way."""
        for kind in _SWEPT:
            if kind in self._trackers:
                tracker = self._trackers[kind]
                if kind is PdsTracker:
                    tracker.sweep(now, quiet)
                else:
                    (tracker.trim if kind is RoceTracker else tracker.sweep)(now)
        is_plain = self._trackers.keys() == _WITH_PDCS and self.judge.is_certain
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

    def end_reading(self, reading: Reading) -> None:
        """Count the packets that were as expected. Also apply those rules about a single packet that can judge only at
        the end of the capture."""
        if self._wire is None and reading.icrc_of:
            self._wire = WireTracker(self.judge, self._options)
        if self._wire is not None:
            self._wire.end(reading)
        count_expected(self.judge.rules, reading)

    def end(self) -> dict[str, int]:
        """Finish the audit: no packet follows. Return `forgotten`."""
        for kind in _ENDED:
            if kind in self._trackers:
                self._trackers[kind].end()
        forgotten = self.forgotten
        if self.judge.missing is None and any(not dropped.endswith("silent") for dropped in forgotten):
            self.judge.missing = "conversations were dropped"  # those that were silent for long seldom continue
        self.judge.end()
        if self._owns_rules:
            self.judge.rules.end()
        return forgotten

    @property
    def tables(self) -> Iterator[tuple[str, Bounded]]:
        """Yield the tables of conversations, each with its kind."""
        for what, kind, kept in _KEPT:
            if kind in self._trackers:
                table: Any = kept(self._trackers[kind])
                yield what, table.flows if kind is PdsTracker else table

    def close(self) -> None:
        """Drop all trackers, because no packet follows or because the trackers hold nothing."""
        self.judge.subject_of = None
        if PdsTracker in self._trackers:
            self._trackers[PdsTracker].close()
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
_ENDED = (PdsTracker, SesTracker, RoceTracker, SharpTracker, TssTracker)
"""Trackers that report events at the end of the capture."""
_KEPT: tuple[tuple[str, type, Callable[[Any], Forgetful]], ...] = (
    ("PDCs", PdsTracker, attrgetter("table")),
    ("RUDI and UUD", RudiTracker, attrgetter("flows")),
    ("queue pairs", RoceTracker, attrgetter("flows")),
    ("SHARP groups", SharpTracker, attrgetter("groups")),
    ("secure domains", TssTracker, attrgetter("flows")),
    ("nonces of a key", TssTracker, attrgetter("spaces")),
)
