# SPDX-License-Identifier: GPL-2.0-only
"""This module defines the errors of `dist`, for misuse and for failures (collectives.md §1.4, §1.5).

Each error class also derives from the class that torch.distributed raises for the same fault. Handlers that a program
has for torch.distributed therefore catch these errors. The error for a wrong argument is a `ValueError`. For an
argument of a wrong type it is also a `TypeError`. For an argument that torch leaves to its backend to check it is also
a `RuntimeError`.
"""

import builtins
from collections.abc import Collection
from typing import Any, NamedTuple

from uetproto.errors import LocalError, UetError, similar


class ArgumentError(LocalError, ValueError):
    """Raised for an illegal argument; the error states the name of the argument and its legal values."""


class ArgumentTypeError(ArgumentError, TypeError):
    """Raised for an argument that has a wrong type."""


class BackendArgumentError(ArgumentError, RuntimeError):
    """Raised for an argument that a backend of torch would refuse; most backends raise a `RuntimeError` and some a
    `ValueError`, so this class derives from both."""


class TensorError(LocalError, TypeError):
    """Raised for an object that is no tensor."""


class DistError(UetError, RuntimeError):
    """This is the base class of the errors that are raised when an operation fails."""


class Wait(NamedTuple):
    """This record describes a rank that waits and the ranks for which it waits (collectives.md §1.5)."""

    rank: int
    op: str
    """Operation in which the rank waits, with its arguments, such as `send(dst=1, tag=0) #2 of group 0`."""
    needs: tuple[int, ...]
    """Global ranks for whose calls the rank waits."""
    why: str

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.op} {self.why}"


class DeadlockError(DistError):
    """Raised when nothing is in progress, and ranks wait for each other or for a call that no rank will make."""

    def __init__(self, message: str, cycle: tuple[int, ...] = (), waits: tuple[Wait, ...] = ()) -> None:
        super().__init__(message, id="deadlock")
        self.cycle = cycle
        """Shortest cycle: (0, 1) for 0 -> 1 -> 0; empty when a participant is missing."""
        self.waits = waits
        """Waits of all ranks."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.cycle, self.waits)


class SizeMismatchError(DistError):
    """Raised when a send and the receive that it matches have different numbers or types of elements."""


class CollectiveMismatchError(DistError):
    """Raised when the n-th collective calls of two ranks of a group differ; the error names a rank and the argument
    that differs."""


class BufferModifiedError(DistError):
    """Raised when the program changed a buffer too early: an operation that reads the buffer was not done."""


def modified(op: str) -> BufferModifiedError:
    """Return the error for a tensor that the program changed while the operation `op` still used the tensor."""
    return BufferModifiedError(
        op, "its buffer was changed before wait()", "wait() first, or change a copy", id="buffer-modified"
    )


class TimeoutError(DistError, builtins.TimeoutError):
    """Raised when an operation is not done before its time-out, in virtual time."""


class AbortedError(DistError):
    """Raised when an operation needs a rank that has failed; the error names that rank."""


def invalid(name: str, value: Any, legal: str, *, id: str) -> ArgumentError:
    """Return the error for an illegal argument; the error states the argument's name, the illegal value and the legal
    values."""
    return ArgumentError(name, value, legal, id=id)


def unknown(name: str, value: object, legal: Collection[str], told: str = "", more: str = "") -> ArgumentError:
    """Return the error for a name that is none of the legal names; the error also states the legal names that are
    similar. `told` is the value as the error shows it. `more` is a text that follows the legal names.
    """
    return ArgumentError(
        name, f"{told or repr(value)}{similar(value, legal)}", ", ".join(legal) + more, id="unknown-name"
    )


def refused(name: str, value: Any, legal: str, *, id: str) -> BackendArgumentError:
    """Return the error for an argument that a backend of torch would refuse."""
    return BackendArgumentError(name, value, legal, id=id)


def wrong_type(name: str, value: Any, legal: str) -> ArgumentTypeError:
    """Return the error for an argument of a wrong type."""
    return ArgumentTypeError(name, value, legal, id="wrong-type")
