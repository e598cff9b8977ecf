# SPDX-License-Identifier: GPL-2.0-only
"""This module has what a comparison of two captures found."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple

from uetproto.diff.normal import CapturedPacket
from uetproto.errors import SuggestsNames
from uetproto.wire.words.summary import from_to, summary
from uetproto.wire.words.text import count

SHOWN = 20
"""Lines of a result that are shown."""


class DifferenceKind(StrEnum):
    """This value says how a packet differs."""

    CHANGED = "changed"
    MOVED = "moved"
    MISSING = "missing"
    EXTRA = "extra"


class FieldDifference(NamedTuple):
    """This record is a field in which two packets differ."""

    field: str
    """Form and field, such as "pds.rod_req.retx", or what else differs: "payload", "trailer", "notes", "error"."""
    a: Any
    b: Any
    """Values of both captures; None: there is none. Bytes are hexadecimal digits."""
    expected: int | None = None
    """Value of the second capture that would be no difference, if it is another one than `a`: a PSN or a PDCID."""

    @property
    def in_line(self) -> Any:
        """Return `b` as it would be if the numbers of both captures were those of the first one: an identity of another
        conversation is "another"."""
        if self.expected is None:
            return self.b
        return "another" if self.field.endswith(("cid", "qp")) else self.a + self.b - self.expected

    def as_dict(self) -> dict[str, Any]:
        """Return the field as `uetproto diff --json` prints it."""
        shape = {"field": self.field, "a": self.a, "b": self.b}
        return shape if self.expected is None else {**shape, "expected": self.expected}


@dataclass(frozen=True, slots=True)
class Difference:
    """This class is one difference: a packet of one capture, of the other, or of both."""

    kind: DifferenceKind
    conversation: str
    """Conversation in words: ends and PDCIDs or queue pairs."""
    interface: str
    number_a: int | None
    number_b: int | None
    """Numbers of the packet in both captures, counted from 1; None: it is not there."""
    a: CapturedPacket | None = None
    b: CapturedPacket | None = None
    """Packets themselves. Both are None if there are more differences than `DiffOptions.most`."""
    fields: tuple[FieldDifference, ...] = ()
    by: int = 0
    """Number of packets of its direction that the packet passed: behind them (positive) or before them."""

    @property
    def place(self) -> tuple[int, int]:
        """Return what orders differences: by the first capture, then by the second."""
        return (self.number_a or self.number_b or 0), (self.number_b or 0)

    def as_dict(self) -> dict[str, Any]:
        """Return the difference as `uetproto diff --json` prints it (interfaces.md §15)."""
        shape: dict[str, Any] = {"kind": str(self.kind), "conversation": self.conversation, "interface": self.interface}
        for name, number, seen in (("a", self.number_a, self.a), ("b", self.number_b, self.b)):
            if number is None:
                shape[name] = None
                continue
            shape[name] = {"index": number - 1, "number": number}
            if seen is not None:
                shape[name]["summary"] = summary(seen.packet)
        if self.kind is DifferenceKind.CHANGED:
            shape["fields"] = [field.as_dict() for field in self.fields]
        if self.by:
            shape["by"] = self.by
        return shape


@dataclass(slots=True)
class DiffResult(SuggestsNames):
    """This class is the result of a comparison."""

    packets_a: int
    packets_b: int
    """Number of packets of both captures."""
    differences: list[Difference] = field(default_factory=list)
    """Differences in the order of the first capture."""
    same: int = 0
    """Number of packets that both captures have alike."""
    unopened: int = 0
    """Number of sealed packets of which only headers and sizes were compared, because there is no key."""

    @property
    def differs(self) -> bool:
        """Return whether there is any difference."""
        return bool(self.differences)

    @property
    def missing(self) -> list[Difference]:
        """Return the packets that only the first capture has."""
        return self._of(DifferenceKind.MISSING)

    @property
    def extra(self) -> list[Difference]:
        """Return the packets that only the second capture has."""
        return self._of(DifferenceKind.EXTRA)

    @property
    def moved(self) -> list[Difference]:
        """Return the packets that stand elsewhere in their direction."""
        return self._of(DifferenceKind.MOVED)

    @property
    def changed(self) -> list[Difference]:
        """Return the packets of which fields differ."""
        return self._of(DifferenceKind.CHANGED)

    def _of(self, kind: DifferenceKind) -> list[Difference]:
        return [one for one in self.differences if one.kind is kind]

    def counts(self) -> dict[str, int]:
        """Return the number of differences of each kind."""
        return {str(kind): len(self._of(kind)) for kind in DifferenceKind}

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON can hold it: the summary of `uetproto diff --json`, and the differences."""
        return {**self.summary(), "differences": [one.as_dict() for one in self.differences]}

    def summary(self) -> dict[str, Any]:
        """Return the numbers of packets and differences."""
        return {
            "differs": self.differs, "packets": [self.packets_a, self.packets_b], "same": self.same, **self.counts(),
            "unopened": self.unopened,
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Yield short lines that are the same whenever they are made (`uetproto diff --golden`)."""
        for one in self.differences:
            yield from golden_lines(one)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        """Return the first lines, and how many packets and differences there are."""
        lines = list(islice(self.lines(), SHOWN + 1))
        found = ", ".join(f"{number:,} {kind}" for kind, number in self.counts().items() if number) or "no differences"
        note = f"{'the first lines of: ' * (len(lines) > SHOWN)}{found}; {count(self.same, 'packet')} alike"
        return "\n".join((*lines[:SHOWN], f"({note} of {self.packets_a:,} and {self.packets_b:,})"))


def golden_lines(one: Difference) -> Iterator[str]:
    """Yield a line for a difference, and one for each field but the first."""
    places = [f"{name}#{number}" for name, number in (("A", one.number_a), ("B", one.number_b)) if number is not None]
    told = [str(one.kind), *places, one.conversation]
    told += [f"by {one.by:+d}"] if one.by else []
    fields = [f"{field.field} {_golden(field.a)} {_golden(field.in_line)}" for field in one.fields]
    yield ": ".join([" ".join(told), *fields[:1]])
    yield from (f"  {more}" for more in fields[1:])


def _golden(value: Any) -> str:
    return "none" if value is None else f"({value})" if " " in str(value) else str(value)


def conversation_words(kind: str, ids: tuple[int | None, int | None], seen: CapturedPacket | None) -> str:
    """Return a conversation in words: "10.0.0.1 → 10.0.0.2 PDC 4 → 9"."""
    told = [] if seen is None else [from_to(seen.packet)]
    told.append(kind)
    if any(one is not None for one in ids):
        told.append(" → ".join("?" if one is None else str(one) for one in ids))
    return " ".join(filter(None, told))
