"""This module defines the errors of `dist`, for misuse and for failures (collectives.md §1.4, §1.5).

Each is also of the class that torch.distributed raises for the same call, so that a program's handlers catch it: a
wrong argument is a `ValueError`, or a `TypeError`, or, where torch leaves the check to its backend, a `RuntimeError`.
"""

import builtins
from typing import Any, NamedTuple

from uetproto.errors import LocalError, UetError


class ArgumentError(LocalError, ValueError):
    """Raised for an argument that is not legal; it names the argument and what is legal."""


class ArgumentTypeError(ArgumentError, TypeError):
    """Raised when an argument has a wrong type."""


class BackendArgumentError(ArgumentError, RuntimeError):
    """Raised when backends of torch would refuse an argument, most with a `RuntimeError`, some with a `ValueError`."""


class TensorError(LocalError, TypeError):
    """Raised for an object that is no tensor."""


class DistError(UetError, RuntimeError):
    """Base class of the errors that are raised when an operation has failed."""


class Wait(NamedTuple):
    """This record describes a rank that waits, and the ranks it waits for (collectives.md §1.5)."""

    rank: int
    op: str
    """Operation with its arguments: `send(dst=1, tag=0) #2 of group 0`."""
    needs: tuple[int, ...]
    """Global ranks, any one of which could end the wait."""
    why: str

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.op} {self.why}"


class DeadlockError(DistError):
    """Raised when nothing is in progress, and ranks wait for each other or for a call that no rank will make."""

    def __init__(self, message: str, cycle: tuple[int, ...] = (), waits: tuple[Wait, ...] = ()) -> None:
        super().__init__(message)
        self.cycle = cycle
        """Shortest cycle: (0, 1) for 0 -> 1 -> 0; empty when a participant is missing."""
        self.waits = waits
        """Waits of all ranks."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.cycle, self.waits)


class SizeMismatchError(DistError):
    """Raised when a send has another number or type of elements than the receive that it matches."""


class CollectiveMismatchError(DistError):
    """Raised when ranks call different collectives at the same position; the error names the rank and the argument."""


class BufferModifiedError(DistError):
    """Raised when a buffer was changed before the operation that reads it was done."""


def modified(op: str) -> BufferModifiedError:
    """Return the error for a tensor that was changed too early."""
    return BufferModifiedError(op, "its buffer was changed before wait()", "wait() first, or change a copy")


class TimeoutError(DistError, builtins.TimeoutError):
    """Raised when an operation is not done before its time-out, in virtual time."""


class AbortedError(DistError):
    """Raised when this operation needs another rank that failed; the error names that rank."""


def invalid(name: str, value: Any, legal: str) -> ArgumentError:
    """Return the error for an argument, with the value of the argument and what is legal."""
    return ArgumentError(name, value, legal)


def refused(name: str, value: Any, legal: str) -> BackendArgumentError:
    """Return the error for an argument that the backends of torch refuse."""
    return BackendArgumentError(name, value, legal)


def wrong_type(name: str, value: Any, legal: str) -> ArgumentTypeError:
    """Return the error for an argument of a wrong type."""
    return ArgumentTypeError(name, value, legal)
