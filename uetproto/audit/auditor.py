"""This module judges captures. Each interface of each file is a vantage point and is audited alone; equal findings are
merged.

A `Reading` turns a record of the capture into an `ObservedPacket`. The `Auditor` of the vantage point passes this
packet to the tracker of its conversation. Trackers report events to the `Judge`, which applies the rules.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from uetproto.audit.finding import merged
from uetproto.audit.flows import SWEEP
from uetproto.audit.judge import Judge, RuleTally
from uetproto.audit.listeners import ListenerFactory, PacketListener, call_both
from uetproto.audit.pds.tracker import PdsTracker
from uetproto.audit.pds.tracker_rudi import RudiTracker
from uetproto.audit.personality import excused_by
from uetproto.audit.reader.observed import ObservedPacket, head_class
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import Reading
from uetproto.audit.report import NO_KEYS, AuditReport
from uetproto.audit.roce.tracker import RoceTracker
from uetproto.audit.rule import Rule
from uetproto.audit.rules import chosen_rules
from uetproto.audit.ses.tracker import SesTracker
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.sharp.tracker import SharpTracker, is_sharp
from uetproto.audit.tss.tracker import TssTracker
from uetproto.audit.wire.tracker import DamagedPlace, WireTracker
from uetproto.errors import LocalError, shown, typed
from uetproto.garbage import seldom_collected
from uetproto.wire.capture.base import Source
from uetproto.wire.capture.pcap import ETHERNET, CaptureReader, Record, open_capture
from uetproto.wire.headers.roce import BTH
from uetproto.wire.headers.uet_pds import RUDI_REQ, RUDI_RESP, UUD_REQ

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
    rules = chosen_rules(options.rules)
    excused_by(options.personality)
    report = AuditReport({rule.id: RuleTally(rule) for rule in rules})
    with seldom_collected():
        for file in files:
            if interrupt:
                report.partial = True
                break
            _audit_file(file, options, rules, report, progress, listen, interrupt)
    report.findings = merged(report.findings)
    return report


def _audit_file(
    file: Source,
    options: Options,
    rules: tuple[Rule, ...],
    report: AuditReport,
    progress: Callable[[int], None] | None,
    listen: ListenerFactory | None,
    interrupt: EarlyEnd | None,
) -> None:
    places: dict[int, _Place] = {}
    take_at: dict[int, Callable[[Record], None]] = {}
    damage: list[DamagedPlace] = []
    record: Record | None = None
    known = 0
    opened = open_capture(file) if interrupt is None else interrupt.wait(partial(open_capture, file))
    if opened is None:
        report.partial = True
        return
    with opened as reader:
        found = reader.damage
        for record in reader if interrupt is None else interrupt.until(reader):
            if len(found) != known:
                damage += [DamagedPlace(record.index, record.time_ns, "before", *each) for each in found[known:]]
                known = len(found)
            take = take_at.get(record.interface)
            if take is None:
                name = reader.interfaces[record.interface].name or str(record.interface or "")
                place = places[record.interface] = _Place(
                    _name_of(file), name, record.interface, record.link, options, rules, listen
                )
                take = take_at[record.interface] = place.take
            take(record)
            if progress is not None and not record.index % SWEEP:
                progress(record.index)
    last = (0, 0, "") if record is None else (record.index, record.time_ns, "behind")
    report.packets += 0 if record is None else record.index + 1
    damage += [DamagedPlace(*last, *each) for each in found[known:]]
    missing = "the capture is damaged" if damage else None
    if interrupt:
        report.partial, missing = True, "the audit was interrupted"
    if damage and not places:
        places[0] = _Place(_name_of(file), "", 0, ETHERNET, options, rules, listen)
    for place in places.values():
        place.end(report, damage, missing)
        damage = []  # damage concerns the file, so only the first interface reports it


def _name_of(file: Source) -> str:
    """Return how findings name a file."""
    return os.fspath(file) if isinstance(file, str | os.PathLike) else str(getattr(file, "name", "-"))


class _Place:
    """This class audits one interface of a capture while it is read."""

    def __init__(
        self, file: str, interface: str, number: int, link: int, options: Options, rules: Iterable[Rule],
        listen: ListenerFactory | None,
    ) -> None:  # fmt: skip
        self._file, self._interface = file, interface
        self._has_keys = options.keys is not None
        listener: PacketListener | None = None

        def subscribe(judge: Judge) -> None:
            nonlocal listener
            listener = None if listen is None else listen(judge, file, interface, number)

        self._auditor = Auditor(options, rules=rules, listen=subscribe)
        see = self._auditor.see if listener is None else call_both(listener.see, self._auditor.see)
        self._reading = Reading(link, options, see, truncated_fast=listener is None)
        self.take = self._reading.take if listener is None else call_both(listener.take, self._reading.take)
        """Function that takes the next record."""

    def end(self, report: AuditReport, damage: Sequence[DamagedPlace], missing: str | None) -> None:
        """Add what was found to `report`. `damage`: damaged places. `missing`: why the capture may lack packets."""
        auditor, reading = self._auditor, self._reading
        reading.end()
        auditor.wire.end(reading, damage)
        auditor.judge.missing = missing or reading.missing
        auditor.end()
        report.add(auditor.judge, self._file, self._interface)
        report.others += reading.others
        report.copies += reading.copies
        report.forgotten.update(auditor.forgotten)
        report.unopened.update(reading.unopened)
        report.opened += reading.opened
        if auditor.tss.packets and not self._has_keys:
            report.unopened[NO_KEYS] += auditor.tss.packets


# One vantage point ----------------------------------------------------------------------------------------------------


class Forgetful(Protocol):
    """This protocol describes an object that keeps conversations, and drops some of them when it has too many or when
    they are silent for long."""

    @property
    def forgotten(self) -> Mapping[str, int]:
        """Return how many conversations this object has dropped, by reason."""


class Auditor:
    """This class passes every packet of a vantage point to the tracker of its conversation."""

    def __init__(
        self, options: Options, *, rules: Iterable[Rule] | None = None, listen: Callable[[Judge], None] | None = None,
    ) -> None:  # fmt: skip
        """Make the trackers. `rules` are the rules to be applied, by default those that the options choose. `listen`
        may subscribe to events before any tracker is made."""
        self.judge = Judge(
            chosen_rules(options.rules) if rules is None else rules,
            complete=options.complete,
            ordered=options.ordered,
            excused=excused_by(options.personality),
        )
        if listen is not None:
            listen(self.judge)
        self.wire = WireTracker(self.judge, options)
        ses = SesTracker(self.judge, options)
        pds = PdsTracker(self.judge, options, ses)
        self.judge.subjects[SesEvent] = pds.subject_of
        rudi = RudiTracker(self.judge, options, ses)
        roce = RoceTracker(self.judge, options)
        self._sharp = SharpTracker(self.judge, options)
        self.tss = TssTracker(self.judge, options)
        self._sweeps = (pds.sweep, ses.sweep, rudi.sweep, roce.sweep, self._sharp.sweep, self.tss.sweep)
        self._ends = (ses.end, roce.end, self._sharp.end, self.tss.end)
        """Functions that finish the trackers which report events at the end of the capture."""
        self._kept: dict[str, Forgetful] = {
            "PDCs": pds.table, "RUDI and UUD": rudi.flows, "queue pairs": roce.flows,
            "SHARP groups": self._sharp.groups, "secure domains": self.tss.flows,
            "nonces of a key": self.tss.spaces,
        }  # fmt: skip
        self._pdc_handlers: Mapping[type, Handler] = pds.see_by_class
        self._handlers: dict[type, Handler] = {**pds.see_by_class, **roce.see_by_class}
        """Maps the class of the first header to the tracker."""
        self._handlers |= dict.fromkeys(self.tss.see_by_class, self._see_sealed)
        self._handlers |= {head_class(header.name): rudi.see for header in (RUDI_REQ, RUDI_RESP, UUD_REQ)}
        self._until_sweep = SWEEP

    def see(self, seen: ObservedPacket) -> None:
        """Pass the next packet to the trackers that it concerns. From time to time also drop conversations that have
        been silent for long."""
        if seen.packet is not None:
            believed = self.wire.see(seen)
            if believed is None:
                return
            seen = believed
            if is_sharp(seen):
                self._sharp.see(seen)
            elif self._sharp.queue_pairs and type(seen.head) is _BTH:
                self._sharp.see_roce(seen)
        elif self._sharp.queue_pairs and type(seen.head) is _BTH:
            self._sharp.see_roce(seen)
        handler = self._handlers.get(type(seen.head))
        if handler is not None:
            handler(seen)
        self._until_sweep -= 1
        if not self._until_sweep:
            self._until_sweep = SWEEP
            for sweep in self._sweeps:
                sweep(seen.time_ns)

    def _see_sealed(self, seen: ObservedPacket) -> None:
        """Follow a sealed packet. After the first one, packets in the clear are judged by the rules of TSS, too."""
        if not self.tss.any_sealed:
            self._handlers |= dict.fromkeys(self._pdc_handlers, self._see_of_pdc)
        self.tss.see(seen)

    def _see_of_pdc(self, seen: ObservedPacket) -> None:
        self.tss.see_inside(seen)
        self._pdc_handlers[type(seen.head)](seen)

    def end(self) -> None:
        """Finish the audit of the vantage point after its last packet."""
        for end in self._ends:
            end()
        if self.judge.missing is None and self._has_dropped:
            self.judge.missing = "conversations were dropped"
        self.judge.end()

    @property
    def _has_dropped(self) -> bool:
        """Tell whether conversations were dropped that may continue; those that were silent for long seldom do."""
        return any(number for each in self._kept.values() for why, number in each.forgotten.items() if why != "silent")

    @property
    def forgotten(self) -> Counter[str]:
        """Return how many conversations the trackers have dropped, under names such as "PDCs: silent" of their kind and
        reason."""
        found: Counter[str] = Counter()
        for what, kept in self._kept.items():
            found += Counter({f"{what}: {why}": number for why, number in kept.forgotten.items()})
        return found
