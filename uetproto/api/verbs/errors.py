# SPDX-License-Identifier: GPL-2.0-only
"""This module has the errors of the verbs, and the argument checks that raise them.

An error has an errno of libibverbs, and its text names the argument and the argument's legal values.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from uetproto.api.checks import ArgumentChecks, CallError
from uetproto.errors import LocalError


class Errno(IntEnum):
    """This enumeration names the error numbers of errno.h that the verbs use."""

    ENOMEM = 12
    """A send queue or receive queue is full."""
    EBUSY = 16
    """The object cannot be destroyed, because another object still uses it."""
    EINVAL = 22
    EOVERFLOW = 75
    """A completion queue has lost completions."""


class VerbsError(CallError[Errno]):
    """Raised when a call fails; `errno` is the number that libibverbs returns, and the text names the argument and its
    legal values.

    A call that raises this error has changed nothing, except for a call with a list of work requests: `bad_wr` is the
    index of the request that was refused, and the requests before it are posted.
    """

    bad_wr: int | None = None


CHECKS = ArgumentChecks(VerbsError, Errno.EINVAL)
invalid, member, duration = CHECKS.invalid, CHECKS.member, CHECKS.duration


class VerbsObject:
    """This class represents an object that the program has to destroy; afterwards no call may use the object."""

    destroyed = False

    def check(self, name: str) -> None:
        """Raise EINVAL if the object is destroyed; `name` is the argument's name in the error."""
        if self.destroyed:
            raise invalid(name, "destroyed", "one that is not", id="closed")


@contextmanager
def refusals() -> Iterator[None]:
    """Turn any `LocalError` of the adapter in the `with` block into a `VerbsError` with EINVAL."""
    try:
        yield
    except VerbsError:
        raise
    except LocalError as error:
        raise VerbsError(Errno.EINVAL, *error.args, id=error.id) from None


def integer(name: str, value: Any, low: int, high: int) -> int:
    """Return `value` if it is a whole number from `low` to `high`. Raises EINVAL for any other value."""
    if type(value) is not int or not low <= value <= high:
        raise invalid(name, value, f"{low} … {high:#x}" if high >= 1 << 20 else f"{low} … {high}", id="out-of-range")
    return value


def instance(name: str, value: Any, kind: type, legal: str = "") -> None:
    """Raise EINVAL if `value` is no instance of `kind`; `legal` replaces the name of `kind` in the text."""
    if not isinstance(value, kind):
        raise invalid(name, value, legal or f"{kind.__name__}", id="wrong-type")
