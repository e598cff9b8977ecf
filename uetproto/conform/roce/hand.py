# SPDX-License-Identifier: GPL-2.0-only
"""This module has queue pairs that somebody made by hand at the peer, and which of them the tests need."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uetproto.conform.catalogue import ConformanceTest
from uetproto.conform.roce.pairs import (
    NEEDS,
    CompletedWork,
    OpenPair,
    PairWish,
    PeerMemory,
    PeerSetup,
    TakenMessage,
    message_of,
)
from uetproto.errors import LocalError, Location
from uetproto.live.rendezvous import number
from uetproto.wire.headers.roce import Nak

_OF_PSNS = {"start": "psn", "first": "first"}
"""Settings of a wish that are PSNs, and the attribute of `OpenPair` that has each."""
_SPARE = 8
"""Number of further queue pairs of RC without settings: one on which a test failed serves no other."""
_MOST_REPORTS = 1 << 24
"""Largest number of bytes that are read of a file of reports at once."""


@dataclass(slots=True)
class HandPairs:
    """This class has queue pairs that somebody made at the peer, connected to numbers and PSNs of ours. It is a
    `PairSource`.

    A queue pair serves tests, one after the other, until the peer refuses a request; one with settings serves one test.
    """

    pairs: list[OpenPair]
    memory: Mapping[str, PeerMemory]
    """Memory of the peer by the names of `PeerSetup`."""
    lacks: Iterable[str] = tuple(NEEDS)
    reports: Path | None = None
    """File to which the peer appends a line of JSON for each message that a receive has taken."""
    gone: bool = False
    _at: int = 0
    _line: int = 0
    _taken: defaultdict[int, list[TakenMessage]] = field(default_factory=lambda: defaultdict(list))

    def open(self, wishes: Sequence[PairWish], regions: Sequence[int] = ()) -> PeerSetup | str:
        chosen: list[OpenPair] = []
        for wish in wishes:
            free = (pair for pair in self.pairs if pair not in chosen and _suits(pair, wish))
            found = next(free, None)
            if found is None:
                told = ", ".join(f"{name} {value}" for name, value in wish.settings.items())
                return f"no {wish.kind.upper()} queue pair{told and ' with '}{told} is left that was made by hand"
            chosen.append(found)
        self._read_reports()
        for pair in chosen:
            pair.used = True
            self._taken.pop(pair.theirs, None)
        return PeerSetup(chosen, self.memory)

    def messages(self, pair: OpenPair) -> list[TakenMessage]:
        self._read_reports()
        return self._taken.pop(pair.theirs, [])

    def _read_reports(self) -> None:
        """Read what the peer has written since the last time. Raises `LocalError` for a line that is no report."""
        if self.reports is None:
            return
        try:
            with self.reports.open("rb") as file:
                file.seek(self._at)
                text = file.read(_MOST_REPORTS)
        except FileNotFoundError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            self._line += 1
            try:
                told = json.loads(line)
                if not isinstance(told, dict):
                    raise LocalError("report", "is no object", "a JSON object a line", id="broken-json")
                self._taken[number(told, "qp_num", 2, 2**24 - 1)].append(message_of(told))
            except (ValueError, LocalError) as error:
                place = Location(str(self.reports), self._line)
                raise LocalError(
                    "", str(error), "what a receive has taken (docs/conform.md)", place=place, id="wrong-report"
                ) from None

    def post(self, pair: OpenPair, work: Mapping[str, Any]) -> None:
        """Do nothing: such a peer lacks posts."""

    def completed(self, pair: OpenPair) -> list[CompletedWork]:
        return []

    def close(self, opened: PeerSetup) -> None:
        """Keep the queue pairs, whose PSNs the test has moved on."""


def _suits(pair: OpenPair, wish: PairWish) -> bool:
    """Return whether a queue pair is what a test wishes: one with settings is only for those that wish them."""
    if pair.kind != wish.kind or pair.dead:
        return False
    if not wish.settings:
        return not pair.settings
    settings = {name: value for name, value in wish.settings.items() if name not in _OF_PSNS}
    psns = {name: value for name, value in wish.settings.items() if name in _OF_PSNS}
    return (
        not pair.used
        and pair.settings == settings
        and all(getattr(pair, _OF_PSNS[name]) == value for name, value in psns.items())
    )


def ends_pairs(test: ConformanceTest) -> set[int]:
    """Return which queue pairs of a test, from 1, end with a refusal of the peer, or with an error of its act."""
    parts = (part for step in test.steps for part in step.get("any", step.get("all", [step])))
    refused = {
        part.get("on", 1) for part in parts
        if part.get("expect") == "nak" and part.get("nak") != Nak.PSN_SEQUENCE_ERROR.name
    }  # fmt: skip
    return refused | {1} if test.ends == "error" else refused


def needed(tests: Iterable[ConformanceTest]) -> list[Mapping[str, Any]]:
    """Return the queue pairs that tests need of a peer that makes them by hand, as tables of `pairs` of a test: one
    with settings each time, and of those without as many as are refused, and as are needed at a time."""
    special: list[Mapping[str, Any]] = []
    ended, together = Counter[str](), Counter[str]()
    for test in tests:
        if {"posts", "own_key"} & {*test.needs}:  # nobody can offer that by hand
            continue
        plain = Counter(pair["kind"] for pair in test.pairs if len(pair) == 1)
        together |= plain
        ends = ends_pairs(test)
        ended.update(pair["kind"] for number, pair in enumerate(test.pairs, 1) if len(pair) == 1 and number in ends)
        special += [pair for pair in test.pairs if len(pair) > 1]
    found: list[Mapping[str, Any]] = []
    for kind, least in together.items():
        found += [{"kind": kind}] * (ended[kind] + least + (_SPARE if ended[kind] else 0))
    return [*found, *special]
