"""This module counts the kinds of packets in traffic, and says how many kinds are possible (interfaces.md §7).

Each transport has a subclass of `Coverage`.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import IntEnum


class Coverage(ABC):
    """This class counts what frames contain when they leave the endpoints, before they are written to a capture."""

    def __init__(self, possible: Mapping[str, int]) -> None:
        self.possible = possible
        """Number of possible names of each kind."""
        self.counts: dict[str, Counter[str]] = {kind: Counter() for kind in possible}

    def __call__(self, frames: list[bytes]) -> list[bytes]:
        for frame in frames:
            self.note(frame)
        return frames

    @abstractmethod
    def note(self, frame: bytes) -> None:
        """Count what one frame contains."""

    def as_dict(self, statuses: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        """Return all counts; `statuses` has those of the kinds that the applications count (`Workload.statuses`)."""
        return {kind: dict(sorted((statuses.get(kind) or counts).items())) for kind, counts in self.counts.items()}


def name_of(codes: type[IntEnum], value: int) -> str:
    try:
        return codes(value).name
    except ValueError:
        return f"{value:#x}"


def table(counts: Mapping[str, Mapping[str, int]], possible: Mapping[str, int]) -> Iterator[tuple[str, str, int]]:
    """Yield rows of a table: kind (in the first row of a kind, with the number of names that occurred), name, count."""
    for kind, of_kind in counts.items():
        head = f"{kind} {len(of_kind)} of {possible[kind]}"
        for name, count in of_kind.items() or (("none", 0),):
            yield head, name, count
            head = ""
