"""This module has the errors of the verbs, and the checks that raise them.

An errno of libibverbs is raised, and the text names the argument and the legal values.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from uetproto.api.checks import ArgumentChecks, CallError
from uetproto.errors import LocalError


class Errno(IntEnum):
    """This enumeration has the numbers of errno.h that the verbs return here."""

    ENOMEM = 12
    """A queue is full."""
    EBUSY = 16
    """The object cannot be closed: another object still uses it."""
    EINVAL = 22
    EOVERFLOW = 75
    """A completion queue has lost completions."""


class VerbsError(CallError[Errno]):
    """Raised when a call fails: `errno` is what libibverbs returns, the text names the argument and the legal values.

    A call that raises this error has changed nothing, except for a list of work requests: `bad_wr` is the index of the
    refused one, and those before it are posted.
    """

    bad_wr: int | None = None


CHECKS = ArgumentChecks(VerbsError, Errno.EINVAL)
invalid, member, duration = CHECKS.invalid, CHECKS.member, CHECKS.duration


class VerbsObject:
    """This class represents an object that the program has to destroy; no call may use the object after that."""

    destroyed = False

    def check(self, name: str) -> None:
        """Raise EINVAL for an object that is destroyed."""
        if self.destroyed:
            raise invalid(name, "destroyed", "one that is not")


@contextmanager
def refusals() -> Iterator[None]:
    """Turn errors of the adapter into EINVAL."""
    try:
        yield
    except VerbsError:
        raise
    except LocalError as error:
        raise VerbsError(Errno.EINVAL, *error.args) from None


def integer(name: str, value: Any, low: int, high: int) -> int:
    """Return a whole number within bounds. Raises EINVAL."""
    if type(value) is not int or not low <= value <= high:
        raise invalid(name, value, f"{low} … {high:#x}" if high >= 1 << 20 else f"{low} … {high}")
    return value


def instance(name: str, value: Any, kind: type, legal: str = "") -> None:
    """Raise EINVAL for a value of another type."""
    if not isinstance(value, kind):
        raise invalid(name, value, legal or f"{kind.__name__}")
