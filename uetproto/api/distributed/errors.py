"""What goes wrong in `dist`: misuse that is found, and failures (collectives.md §1.4, §1.5).

A wrong argument is a `ValueError` or a `TypeError`, as in torch.distributed, and a `LocalError` as everywhere here.
"""

import builtins
from typing import Any, NamedTuple

from uetproto.collectives.transport import TransportError
from uetproto.errors import LocalError, UetError


class ArgumentError(LocalError, ValueError):
    """An argument that cannot be: names it, and what is legal."""


class TensorError(LocalError, TypeError):
    """No tensor where one is to be."""


class DistError(UetError, RuntimeError):
    """An operation failed."""


class Wait(NamedTuple):
    """One rank that waits, and for whom (§1.5)."""

    rank: int
    op: str
    """With its arguments: `send(dst=1, tag=0) #2 of group 0`."""
    needs: tuple[int, ...]
    """Ranks that could release it."""
    why: str

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.op} {self.why}"


class DeadlockError(DistError):
    """Nothing is under way, and ranks wait for each other, or for one that never comes."""

    def __init__(self, message: str, cycle: tuple[int, ...] = (), waits: tuple[Wait, ...] = ()) -> None:
        super().__init__(message)
        self.cycle = cycle
        """The shortest: (0, 1) for 0 -> 1 -> 0; empty when a participant is missing."""
        self.waits = waits
        """Of all ranks that wait."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.cycle, self.waits)


class SizeMismatchError(DistError):
    """A send and a receive that match in all but what they carry."""


class CollectiveMismatchError(DistError):
    """Ranks call different collectives at the same position: names rank and field."""


class BufferModifiedError(DistError):
    """A buffer was changed before the operation that reads it was done."""


def modified(op: str) -> BufferModifiedError:
    """The error for a tensor that was changed too early."""
    return BufferModifiedError(op, "its buffer was changed before wait()", "wait() first, or change a copy")


class TimeoutError(DistError, builtins.TimeoutError):
    """An operation took longer than its time-out, in virtual time."""


class AbortedError(DistError):
    """Another rank failed that this operation needs: names it."""


def invalid(name: str, value: Any, legal: str) -> ArgumentError:
    """The error for an argument: what it is, and what would have been right."""
    return ArgumentError(name, value, legal)


__all__ = [
    "AbortedError", "ArgumentError", "BufferModifiedError", "CollectiveMismatchError", "DeadlockError", "DistError",
    "SizeMismatchError", "TensorError", "TimeoutError", "TransportError", "Wait", "invalid", "modified",
]  # fmt: skip
