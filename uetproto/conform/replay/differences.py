# SPDX-License-Identifier: GPL-2.0-only
"""This module aligns the answers of a live peer with those of a capture, and says where they differ.

It knows no protocol. What is compared of an answer, with PSNs as distances from the first one of their PDC or queue
pair, is a `NormalAnswer`.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uetproto.conform.expressions import named
from uetproto.diff.fields import bytes_difference
from uetproto.wire.fields import Field
from uetproto.wire.words.text import numbered

MOST_WAITING = 4096
"""Number of answers of each side that wait for their counterpart; then the oldest one counts as missing, or extra."""
PAYLOAD, FAULT = "payload", "fault"

Key = tuple[Any, ...]


class NormalAnswer(NamedTuple):
    """This record is what is compared of an answer."""

    key: Key
    """Identity of the answer: number of its PDC or queue pair, kind, and what it answers."""
    values: Mapping[str, int]
    rows: Mapping[str, Field]
    distances: frozenset[str]
    """Names of the values that are distances from a first PSN."""
    payload: bytes
    number: int | None
    """Number of the packet in the capture, or None for one of the live peer."""
    fault: str
    """Why the packet is wrong by itself, such as its CRC32C."""
    told: str
    """The answer in words."""
    covers: int | None = None
    """Distance of the PSN up to which the answer says that all packets arrived."""
    plain: int | None = None
    """Distance of the PSN that an answer acknowledges which says no more than that: a later one may stand for it."""


def distance(psn: int, start: int, bits: int = 32) -> int:
    """Return how far a PSN is behind `start`; before it, the distance is negative."""
    away = (psn - start) & (1 << bits) - 1
    return away - (1 << bits) if away >> (bits - 1) else away


def in_words(what: Iterable[Any], names: Iterable[str], values: Mapping[str, int], rows: Mapping[str, Field]) -> str:
    """Return an answer in words: what it is, with distances of PSNs, and those of its values that are named."""
    head = " ".join(f"start{one:+d}" if isinstance(one, int) else str(one) for one in what)
    return ", ".join([head, *(f"{name} {named(values[name], rows[name])}" for name in names if name in values)])


class AnswerDifference(NamedTuple):
    """This record is a difference: an answer that is missing, one more than there was, or one with other fields."""

    what: str
    """"missing", "extra" or "differs"."""
    number: int | None
    """Number of the packet in the capture, or None for an answer that is extra."""
    told: str
    """The answer of the capture in words; of an extra one, that of the live peer."""
    fields: Mapping[str, tuple[str, str]]
    """Values by field: in the capture, and now."""
    key: Key = ()
    """Identity of the answer."""

    def lines(self) -> list[str]:
        """Return the difference as text."""
        at = "" if self.number is None else f"{numbered(self.number)}: "
        sign = {"missing": "-", "extra": "+", "differs": "!"}[self.what]
        return [f"{sign} {at}{self.told}", *(
            f"    {name}: {before} in the capture, now {now}" for name, (before, now) in self.fields.items()
        )]  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        fields = {name: {"capture": before, "now": now} for name, (before, now) in self.fields.items()}
        return {"kind": "difference", "what": self.what, "packet": self.number, "answer": self.told,
                "fields": fields}  # fmt: skip


def compared(before: NormalAnswer, now: NormalAnswer, ignored: Iterable[str] = ()) -> dict[str, tuple[str, str]]:
    """Return the fields in which two answers differ, with both values as text."""
    found: dict[str, tuple[str, str]] = {}
    left = {*ignored}
    for name, value in before.values.items():  # a field that one form alone has says no more than the type
        other = now.values.get(name, value)
        if value != other and name not in left:
            row = before.rows[name]
            one, two = (f"start{v:+d}" if name in before.distances else named(v, row) for v in (value, other))
            found[name] = one, two
    if before.fault != now.fault and FAULT not in left:
        found[FAULT] = before.fault or "none", now.fault or "none"
    if before.payload != now.payload and PAYLOAD not in left:
        found[PAYLOAD] = data_words(before.payload, now.payload)
    return found


def data_words(before: bytes, now: bytes) -> tuple[str, str]:
    """Return two payloads as text, from their first difference on."""
    found = bytes_difference(PAYLOAD, before, now)
    return found.a or "none", found.b or "none"


@dataclass(slots=True)
class Alignment:
    """This class pairs answers of a capture with answers of the live peer, and collects their differences."""

    ignored: frozenset[str] = frozenset()
    """Fields that are not compared."""
    same: int = 0
    covered: int = 0
    """Number of ACKs of one side that a later ACK of the other side stands for."""
    counts: dict[str, int] = field(default_factory=lambda: {"differs": 0, "missing": 0, "extra": 0})
    found: deque[AnswerDifference] = field(default_factory=deque)
    """Differences that nobody has taken yet."""
    _expected: dict[Key, deque[NormalAnswer]] = field(default_factory=dict)
    _arrived: dict[Key, deque[NormalAnswer]] = field(default_factory=dict)
    _waiting: list[int] = field(default_factory=lambda: [0, 0])
    _covered: list[dict[int | None, int]] = field(default_factory=lambda: [{}, {}])

    def expect(self, answer: NormalAnswer) -> bool:
        """Take an answer of the capture, and return whether that of the live peer was there."""
        self._note_cover(0, answer)
        pair = self._take(1, answer.key)
        if pair is None:
            self._wait(0, answer)
            return self._is_covered(0, answer)
        self._compare(answer, pair)
        return True

    def arrive(self, answer: NormalAnswer, *, repeated: bool = False) -> None:
        """Take an answer of the live peer. One that is `repeated`, as its ACK was not there yet, is never extra."""
        self._note_cover(1, answer)
        pair = self._take(0, answer.key)
        if pair is not None:
            self._compare(pair, answer)
        elif not repeated:
            self._wait(1, answer)

    def arrived(self, key: Key) -> NormalAnswer | None:
        """Return an answer of the live peer that waits for its counterpart, or None if there is none."""
        return next(iter(self._arrived.get(key, ())), None)

    def is_missing(self, key: Key) -> bool:
        """Return whether an answer of the capture still waits."""
        return key in self._expected and not self._is_covered(0, self._expected[key][0])

    def end(self) -> None:
        """Say that no more answers come: those that wait are missing, or extra."""
        for side in (0, 1):
            table = self._table(side)
            while table:
                self._drop(side, next(iter(table)))

    def _table(self, side: int) -> dict[Key, deque[NormalAnswer]]:
        return self._arrived if side else self._expected

    def _compare(self, before: NormalAnswer, now: NormalAnswer) -> None:
        fields = compared(before, now, self.ignored)
        if fields:
            self._tell("differs", before, fields)
        else:
            self.same += 1

    def _take(self, side: int, key: Key) -> NormalAnswer | None:
        table = self._table(side)
        waiting = table.get(key)
        if waiting is None:
            return None
        answer = waiting.popleft()
        self._waiting[side] -= 1
        if not waiting:
            del table[key]
        return answer

    def _wait(self, side: int, answer: NormalAnswer) -> None:
        self._table(side).setdefault(answer.key, deque()).append(answer)
        self._waiting[side] += 1
        if self._waiting[side] > MOST_WAITING:
            self._drop(side, next(iter(self._table(side))))

    def _drop(self, side: int, key: Key) -> None:
        answer = self._take(side, key)
        assert answer is not None
        if self._is_covered(side, answer):
            self.covered += 1
        else:
            self._tell("extra" if side else "missing", answer, {})

    def _note_cover(self, side: int, answer: NormalAnswer) -> None:
        covers, conversation = answer.covers, answer.key[0]
        if covers is not None:
            self._covered[side][conversation] = max(covers, self._covered[side].get(conversation, covers))

    def _is_covered(self, side: int, answer: NormalAnswer) -> bool:
        """Return whether an answer of the other side stands for an ACK."""
        covered = self._covered[1 - side].get(answer.key[0])
        return covered is not None and answer.plain is not None and answer.plain <= covered

    def _tell(self, what: str, answer: NormalAnswer, fields: Mapping[str, tuple[str, str]]) -> None:
        self.counts[what] += 1
        self.found.append(AnswerDifference(what, answer.number, answer.told, fields, answer.key))
