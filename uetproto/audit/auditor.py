"""Judges captures: each interface of each file is a vantage point, audited alone; what they found is put together."""

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeVar

from uetproto.audit.finding import Finding, merged
from uetproto.audit.flows import SWEEP
from uetproto.audit.judge import Judge, Tally
from uetproto.audit.options import Options
from uetproto.audit.personality import excused_by
from uetproto.audit.reading import Reading
from uetproto.audit.rule import Rule
from uetproto.audit.rules import RULES, known_rules
from uetproto.audit.seen import Seen, head_class
from uetproto.audit.tracker_pds import PdsTracker
from uetproto.audit.tracker_roce import RoceTracker
from uetproto.audit.tracker_rudi import RudiTracker
from uetproto.audit.tracker_ses import SesTracker
from uetproto.audit.tracker_ses_events import SesEvent
from uetproto.audit.tracker_sharp import SharpTracker, is_sharp
from uetproto.audit.tracker_tss import TssTracker
from uetproto.audit.tracker_wire import WireTracker
from uetproto.errors import LocalError
from uetproto.wire.pcap import ETHERNET, Damage, Record, open_capture
from uetproto.wire.pcap_base import Source
from uetproto.wire.uet_pds import RUDI_REQ, RUDI_RESP, UUD_REQ

__all__ = ["Auditor", "Options", "Report", "audit", "chosen_rules"]

_SELDOM = 50_000, 50, 50
"""Thresholds of the garbage collector: packets come and go without it, and it would cost a tenth of the time."""

Way = Callable[[Seen], None]
T = TypeVar("T")


class Tap(Protocol):
    """Is told of everything first: of each record before it is read, of each packet before the trackers see it."""

    def take(self, record: Record) -> None: ...
    def see(self, seen: Seen) -> None: ...


Listen = Callable[[Judge, str, str, int], Tap | None]
"""Told of each vantage point, its file and interface by name and number, before anything is read: may subscribe to
events, and tap what is read."""


def chosen_rules(globs: Sequence[str]) -> tuple[Rule, ...]:
    """The rules whose ids match one of `globs`, or all where none adds any, without those after a "-".

    Raises `LocalError` for a glob that no rule matches, and where none is left.
    """
    wanted = {rule.id for rule in RULES} if all(glob.startswith("-") for glob in globs) else set()
    for glob in globs:
        matching = {rule.id for rule in RULES if fnmatchcase(rule.id, glob.removeprefix("-").upper())}
        if not matching:
            raise LocalError(f"--rules {glob}: matches none; {known_rules(glob)}")
        wanted = wanted - matching if glob.startswith("-") else wanted | matching
    if not wanted:
        raise LocalError(f"--rules {','.join(globs)}: leaves none; {known_rules('')}")
    return tuple(rule for rule in RULES if rule.id in wanted)


class Auditor:
    """One vantage point: every packet goes to the tracker of what it belongs to."""

    def __init__(
        self,
        options: Options,
        *,
        rules: Iterable[Rule] | None = None,
        listen: Callable[[Judge], None] | None = None,
    ) -> None:
        """`rules`: those that are asked, by default what the options say. `listen` may subscribe to events."""
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
        self._tss = TssTracker(self.judge, options)
        self._trackers: dict[str, Any] = {
            "PDCs": pds, "messages": ses, "RUDI and UUD": rudi, "queue pairs": roce, "SHARP groups": self._sharp,
            "secure domains": self._tss,
        }  # fmt: skip
        # By class of the first header, where a packet goes.
        self._in_pdcs: Mapping[Any, Way] = pds.see_by_class
        self._ways: dict[Any, Way] = {**pds.see_by_class, **roce.see_by_class}
        self._ways |= dict.fromkeys(self._tss.see_by_class, self._see_sealed)
        self._ways |= {head_class(header.name): rudi.see for header in (RUDI_REQ, RUDI_RESP, UUD_REQ)}
        self._until_sweep = SWEEP

    def see(self, seen: Seen) -> None:
        """The next packet."""
        if seen.packet is not None:
            believed = self.wire.see(seen)
            if believed is None:
                return
            seen = believed
            if is_sharp(seen):
                self._sharp.see(seen)
        way = self._ways.get(type(seen.head))
        if way is not None:
            way(seen)
        self._until_sweep -= 1
        if not self._until_sweep:
            self._until_sweep = SWEEP
            for tracker in self._trackers.values():
                tracker.sweep(seen.time_ns)

    def _see_sealed(self, seen: Seen) -> None:
        """The first one shows that there are secure domains: from then on what is said in the clear matters as well."""
        if not self._tss.any_sealed:
            self._ways |= dict.fromkeys(self._in_pdcs, self._see_beside_sealed)
        self._tss.see(seen)

    def _see_beside_sealed(self, seen: Seen) -> None:
        self._tss.see_inside(seen)
        self._in_pdcs[type(seen.head)](seen)

    def end(self) -> None:
        """There are no more packets."""
        for tracker in self._trackers.values():
            tracker.end()
        if self.judge.missing is None and self._has_dropped:
            self.judge.missing = "conversations were dropped"
        self.judge.end()

    @property
    def _has_dropped(self) -> bool:
        """Whether conversations were forgotten that may go on: more seldom do those that were silent."""
        return any(
            number for each in self._trackers.values() for why, number in each.forgotten.items() if why != "silent"
        )

    @property
    def forgotten(self) -> Counter[str]:
        """What the trackers dropped, by what and why."""
        return Counter(
            {
                f"{what}: {why}": number
                for what, tracker in self._trackers.items()
                for why, number in tracker.forgotten.items()
                if number
            }
        )


# Captures -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Report:
    """What was found in all captures."""

    tallies: dict[str, Tally]
    """By rule, over all vantage points."""
    findings: list[Finding] = field(default_factory=list)
    """In the order of files, interfaces and packets; equal ones of several vantage points are one."""
    vantages: list[tuple[str, str]] = field(default_factory=list)
    """File and interface."""
    packets: int = 0
    """Records read."""
    others: int = 0
    """Of these: neither UET nor RoCE, or of a link type that is not decoded."""
    copies: int = 0
    """Of these: seen before, by another mirror port."""
    forgotten: Counter[str] = field(default_factory=Counter)
    """Conversations dropped because they were silent or too many, by which."""
    unopened: Counter[str] = field(default_factory=Counter)
    """Sealed packets that the keys do not open, by why."""


def audit(
    files: Iterable[Source],
    options: Options,
    progress: Callable[[int], None] | None = None,
    listen: Listen | None = None,
) -> Report:
    """Judge captures; "-" is standard input. `progress` is told how many packets were read, now and then.

    Raises `LocalError` for what is no capture, for rules and for a personality that are not known.
    """
    rules = chosen_rules(options.rules)
    excused_by(options.personality)
    report = Report({rule.id: Tally(rule) for rule in rules})
    thresholds = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        for file in files:
            _audit_file(file, options, rules, report, progress, listen)
    finally:
        gc.set_threshold(*thresholds)
    report.findings = merged(report.findings)
    return report


def name_of(file: Source) -> str:
    """What findings call a file."""
    return os.fspath(file) if isinstance(file, str | os.PathLike) else str(getattr(file, "name", "-"))


class _Place:
    """One interface of a capture, while it is read."""

    def __init__(
        self,
        file: str,
        interface: str,
        number: int,
        link: int,
        options: Options,
        rules: Iterable[Rule],
        listen: Listen | None,
    ) -> None:
        self.file, self.interface = file, interface
        taps: list[Tap | None] = []
        subscribe = None if listen is None else lambda judge: taps.append(listen(judge, file, interface, number))
        self.auditor = Auditor(options, rules=rules, listen=subscribe)
        tap = taps[0] if taps else None
        see = self.auditor.see if tap is None else _both(tap.see, self.auditor.see)
        self.reading = Reading(link, options, see, cut_quickly=tap is None)
        self.take = self.reading.take if tap is None else _both(tap.take, self.reading.take)

    def end(self, report: Report, damage: Sequence[tuple[int, int, Damage]], missing: str | None) -> None:
        """`damage`: number and time of the packet behind it, or of the last one, and what; `missing`: why there may be
        packets that are not in the capture."""
        self.reading.end()
        self.auditor.wire.end(self.reading.usual, damage)
        self.auditor.judge.missing = missing or self.reading.missing
        self.auditor.end()
        judge, reading = self.auditor.judge, self.reading
        for finding in judge.findings:
            finding.file, finding.interface, finding.vantage = self.file, self.interface, len(report.vantages)
        report.findings += sorted(judge.findings, key=lambda finding: finding.packet)
        for name, tally in judge.tallies.items():
            total = report.tallies[name]
            total.asked += tally.asked
            total.failed += tally.failed
            total.rested.update(tally.rested)
        report.vantages.append((self.file, self.interface))
        report.others += reading.others
        report.copies += reading.copies
        report.forgotten.update(self.auditor.forgotten)
        report.unopened.update(reading.unopened)


def _both(one: Callable[[T], None], other: Callable[[T], None]) -> Callable[[T], None]:
    def take(what: T) -> None:
        one(what)
        other(what)

    return take


def _audit_file(
    file: Source,
    options: Options,
    rules: tuple[Rule, ...],
    report: Report,
    progress: Callable[[int], None] | None,
    listen: Listen | None,
) -> None:
    places: dict[int, _Place] = {}
    take_at: dict[int, Callable[[Record], None]] = {}
    damage: list[tuple[int, int, Damage]] = []
    record: Record | None = None
    known = 0
    with open_capture(file) as reader:
        found = reader.damage
        for record in reader:
            if len(found) != known:
                damage += [(record.index, record.time_ns, each) for each in found[known:]]
                known = len(found)
            take = take_at.get(record.interface)
            if take is None:
                name = reader.interfaces[record.interface].name or str(record.interface or "")
                place = places[record.interface] = _Place(
                    name_of(file), name, record.interface, record.link, options, rules, listen
                )
                take = take_at[record.interface] = place.take
            take(record)
            if progress is not None and not record.index % SWEEP:
                progress(record.index)
    last = (record.index, record.time_ns) if record is not None else (0, 0)
    report.packets += 0 if record is None else record.index + 1
    damage += [(*last, each) for each in found[known:]]
    missing = "the capture is damaged" if damage else None
    if damage and not places:
        places[0] = _Place(name_of(file), "", 0, ETHERNET, options, rules, listen)
    for place in places.values():
        place.end(report, damage, missing)
        damage = []  # of the file, so it is told once
