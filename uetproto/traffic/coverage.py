# SPDX-License-Identifier: GPL-2.0-only
"""This module counts which headers and codes occur in traffic, and how many are possible (interfaces.md §7).

Each transport has a subclass of `Coverage`.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import IntEnum


class Coverage(ABC):
    """This class counts the names that occur in frames, by kind: header forms, opcodes and other codes.

    It counts the frames as the endpoints send them, before mutations.
    """

    def __init__(self, possible: Mapping[str, int]) -> None:
        self.possible = possible
        """Number of possible names of each kind, such as the number of opcodes that are defined."""
        self.counts: dict[str, Counter[str]] = {kind: Counter() for kind in possible}

    def __call__(self, frames: list[bytes]) -> list[bytes]:
        for frame in frames:
            self.note(frame)
        return frames

    @abstractmethod
    def note(self, frame: bytes) -> None:
        """Count the header forms and codes of one frame."""

    def as_dict(self, statuses: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        """Return the counts of each kind, by name. `statuses` has the counts that the applications keep
        (`Workload.statuses`)."""
        return {kind: dict(sorted((statuses.get(kind) or counts).items())) for kind, counts in self.counts.items()}


def name_of(codes: type[IntEnum], value: int) -> str:
    try:
        return codes(value).name
    except ValueError:
        return f"{value:#x}"


def table(counts: Mapping[str, Mapping[str, int]], possible: Mapping[str, int]) -> Iterator[tuple[str, str, int]]:
    """Yield the rows of a table: a heading, a name, and the count of this name.

    The heading of a kind says how many of its possible names occurred. It is empty in all but the first row of a kind.
    """
    for kind, of_kind in counts.items():
        head = f"{kind} {len(of_kind)} of {possible[kind]}"
        for name, count in of_kind.items() or (("none", 0),):
            yield head, name, count
            head = ""
