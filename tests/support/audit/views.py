# SPDX-License-Identifier: GPL-2.0-only
"""This module makes many views of one emulation from the frames recorded at its places, and audits each view.

python -m tests.support.audit.views 0 1000        prints the findings on all views of the random runs of these seeds
python -m tests.support.audit.views 17 --write D  writes the views of one run as captures to the folder D
"""

import argparse
import io
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.support.audit.fabric import FabricRun
from tests.support.audit.network import MIDDLE, FindingPlace, Record, Run
from tests.support.audit.random_runs import FABRICS, random_run
from uetproto.audit.auditor import audit
from uetproto.audit.finding import Finding
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Severity
from uetproto.errors import LocalError
from uetproto.traffic.keys_file import write as write_keys
from uetproto.wire.capture.pcap import ETHERNET, PcapWriter

Records = Sequence[Record]
Cut = Callable[[Records, Random], Records]


def _one_direction(records: Records, chance: Random) -> Records:
    """Return the frames that one of the endpoints has sent."""
    sender = chance.choice(sorted({record.src for record in records}))
    return [record for record in records if record.src == sender]


def _with_holes(records: Records, chance: Random) -> Records:
    """Return the records without a random tenth of them."""
    return [record for record in records if chance.random() >= 0.1]


def _second_half(records: Records, chance: Random) -> Records:
    return records[len(records) // 2 :]


def _out_of_order(records: Records, chance: Random) -> Records:
    """Return the records with neighbours exchanged, as several mirror ports into one file cause it."""
    return [record for _, record in sorted((at + 8 * chance.random(), record) for at, record in enumerate(records))]


def _one_direction_later(records: Records, chance: Random) -> Records:
    """Return the records of a tap of two fibres whose clocks differ."""
    sender = chance.choice(sorted({record.src for record in records}))
    behind = chance.choice((2_000, 100_000))
    late = (record._replace(time_ns=record.time_ns + behind * (record.src == sender)) for record in records)
    return sorted(late)


def _mirrored(records: Records, chance: Random) -> Records:
    """Return the records of a mirror port that has each frame as it enters and as it leaves."""
    return sorted(record._replace(time_ns=record.time_ns + copy * 300) for record in records for copy in range(2))


HOLES = "10 % removed"
CUTS: dict[str, Cut] = {
    "one direction": _one_direction,
    HOLES: _with_holes,
    "second half": _second_half,
}
"""Functions that make a view of the records of one place."""
MORE_CUTS: dict[str, Cut] = {
    "out of order": _out_of_order,
    "one direction later": _one_direction_later,
    "mirrored": _mirrored,
}
"""Functions of which one more, drawn at random, is applied."""


class View(NamedTuple):
    """A view has the records that an audit gets."""

    name: str
    records: Records
    options: Options


def views(run: Run | FabricRun, places: dict[FindingPlace, list[Record]]) -> Iterator[View]:
    """Yield the view of each place, and each cut of one of them."""
    chance = Random(f"views/{run.seed}")
    security = None if isinstance(run, FabricRun) else run.profile.security
    options = Options(keys=None if security is None else security.ring())
    names = {place: _name(place) for place in places}
    used = [place for place in places if places[place]]
    for place in used:
        yield View(names[place], places[place], options)
    one = chance.choice(list(MORE_CUTS))
    for name, cut in (*CUTS.items(), (one, MORE_CUTS[one])):
        place = chance.choice(used)
        told = replace(options, mirror=name == "mirrored")
        yield View(f"{name}, {names[place]}", cut(places[place], chance), told)
    if security is not None:
        yield View("middle, no keys", places[MIDDLE], Options())
    if isinstance(run, FabricRun) and run.sharp:
        for place in used:
            if not isinstance(place, str):  # a switch need not see all of a tree
                yield View(f"{names[place]}, {WHOLE}", places[place], _WHOLE_SHARP)


WHOLE = "whole"
_WHOLE_SHARP = Options(complete=True, rules=("sharp-*",))
"""Options for a view that has all frames of SHARP."""


def _name(place: FindingPlace) -> str:
    if isinstance(place, str):
        return f"switch {place}"
    return "middle" if place == MIDDLE else f"end {ip_address(place)}"


def capture(records: Records) -> io.BytesIO:
    file = io.BytesIO()
    with PcapWriter(file, ETHERNET) as writer:
        for record in records:
            writer.write(record.time_ns, record.frame)
    file.seek(0)
    return file


ON_PURPOSE: dict[str, str] = {"ROCE-ATOMIC-ALIGNED": "one of the protocol errors of a profile"}
"""Rules that applications break in runs with `protocol_errors`, and why."""
NO_ICRC = frozenset({"ROCE-ICRC-CAPTURE"})
"""Rules that runs break whose ICRCs are four bytes of 0."""
NOT_TOLD_APART = ("SHARP-EDGE-LOAD", "SHARP-MISMATCH", "SHARP-RESULT")
"""Rules with false notes in views that lack the frames by which a group was left and joined again."""


def on_purpose(run: Run | FabricRun) -> Collection[str]:
    """Return the rules that a run breaks on purpose."""
    if isinstance(run, FabricRun):
        return () if getattr(run.given.get("config"), "icrc", True) else NO_ICRC
    has_icrc = getattr(getattr(run.profile, "roce", None), "icrc", True)
    return {*(ON_PURPOSE if run.profile.protocol_errors else ()), *(() if has_icrc else NO_ICRC)}


def findings(run: Run | FabricRun) -> Iterator[tuple[str, Finding]]:
    """Yield the findings on all views of a run, each with the name of its view."""
    allowed = on_purpose(run)
    for view in views(run, run.emulate()):
        for finding in audit([capture(view.records)], view.options).findings:
            unseen = view.name.startswith(HOLES) and finding.rule.id in NOT_TOLD_APART
            if not unseen and finding.rule.id not in allowed:
                yield view.name, finding


def is_wrong(finding: Finding) -> bool:
    """Return whether a finding is false: an error, a warning, or a note about SHARP, as the nodes keep all rules."""
    return finding.severity is not Severity.NOTE or finding.rule.id.startswith("SHARP-")


def told(seed: int, view: str, finding: Finding) -> str:
    """Return the text of a false finding, with the seed and the view."""
    return (
        f"seed {seed}, {view}: {finding.severity.value} {finding.rule.id} at packet {finding.packet} {finding.packets}:"
        f" {finding.text} {dict(finding.flow)}"
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Audits random runs from all sides.")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--write", metavar="FOLDER", type=Path, help="write the views of the first run as captures")
    parser.add_argument("--notes", action="store_true", help="count notes, too")
    parser.add_argument("--kind", choices=FABRICS, help="only runs of this kind")
    asked = parser.parse_args(arguments)
    if asked.write is not None:
        _write(random_run(asked.first, asked.kind), asked.write)
        return 0
    counted: Counter[tuple[str, str]] = Counter()
    wrong = False
    for seed in range(asked.first, asked.last or asked.first + 1):
        try:
            for view, finding in findings(random_run(seed, asked.kind)):
                if is_wrong(finding):
                    wrong = True
                    print(told(seed, view, finding))
                if is_wrong(finding) or asked.notes:
                    counted[finding.severity.value, finding.rule.id] += 1
        except Exception as error:
            kind = "LocalError" if isinstance(error, LocalError) else type(error).__name__
            print(f"seed {seed}: {kind}: {error}")
            counted["raised", kind] += 1
            wrong = True
    for (severity, rule), times in sorted(counted.items()):
        print(f"{severity:8} {rule:30} {times}")
    return 1 if wrong else 0


def _write(run: Run | FabricRun, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(run, Run) and run.profile.security is not None:
        write_keys(str(folder / "keys.toml"), run.profile.security.ring(), "these captures")
    for view in views(run, run.emulate()):
        (folder / f"{view.name.replace(':', '_')}.pcap").write_bytes(capture(view.records).getvalue())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
