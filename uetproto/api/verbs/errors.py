"""Errors of the verbs: an errno of libibverbs is raised, and the text names the argument and the legal values."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum, IntFlag
from typing import Any, TypeVar

from uetproto.errors import LocalError, shown
from uetproto.toml.values import time

_Member = TypeVar("_Member", bound=IntEnum | IntFlag)
_TIME = time()


class Errno(IntEnum):
    """The numbers of errno.h that the verbs return here."""

    ENOMEM = 12
    """Tells that a queue is full."""
    EBUSY = 16
    """Tells that another object still uses the one to be closed."""
    EINVAL = 22
    EOVERFLOW = 75
    """Tells that a completion queue has lost completions."""


class VerbsError(LocalError):
    """The error of a call: `errno` is what libibverbs returns, the text names the argument and what is legal.

    A call that raises it has changed nothing. In a list of work requests `bad_wr` is the index of the refused one:
    those before it are posted.
    """

    bad_wr: int | None = None

    def __init__(self, errno: Errno, *parts: Any) -> None:
        super().__init__(*parts)
        self.errno = errno

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.errno.name}]"


def invalid(name: str, value: Any, legal: str, errno: Errno = Errno.EINVAL) -> VerbsError:
    """Return the error for an argument: its name, its value, and what is legal."""
    given = value[:256] if isinstance(value, str) else shown(value)
    return VerbsError(errno, name, f"{given} is not legal", legal)


def duration(name: str, value: Any) -> int:
    """Return the picoseconds of a whole number or a text such as "1 ms". Raises EINVAL."""
    try:
        picoseconds: int = _TIME.check(value)
    except ValueError:
        raise invalid(name, value, _TIME.legal) from None
    return picoseconds


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


def member(name: str, value: Any, kind: type[_Member]) -> _Member:
    """Return a value or number as a member of an enum, or as flags. Raises EINVAL."""
    names = ", ".join(kind.__members__)
    if isinstance(value, kind) or type(value) is int:
        known = [int(one) for one in kind.__members__.values()]
        if not int(value) & ~sum(known) if issubclass(kind, IntFlag) else int(value) in known:
            return kind(value)
    raise invalid(name, value, names)


def instance(name: str, value: Any, kind: type, legal: str = "") -> None:
    """Raise EINVAL for a value of another type."""
    if not isinstance(value, kind):
        raise invalid(name, value, legal or f"{kind.__name__}")
