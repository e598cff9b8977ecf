"""Errors of the verbs: what libibverbs returns as an errno is raised, the text names argument and legal values."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum, IntFlag
from typing import Any, TypeVar

from uetproto.errors import LocalError, shown
from uetproto.toml.values import time

_Member = TypeVar("_Member", bound=IntEnum | IntFlag)
_TIME = time()


class Errno(IntEnum):
    """errno.h, those that the verbs return here."""

    ENOMEM = 12
    """A queue is full."""
    EBUSY = 16
    """Something else still uses it: the order of closing."""
    EINVAL = 22
    EOVERFLOW = 75
    """A completion queue has lost completions."""


class VerbsError(LocalError):
    """A call that cannot be: `errno` is what libibverbs returns, the text names the argument and what is legal.

    It is raised at the call, and nothing has changed then. Of a list of work requests `bad_wr` is the place of the
    one that is refused: those before it are posted.
    """

    bad_wr: int | None = None

    def __init__(self, errno: Errno, *parts: Any) -> None:
        super().__init__(*parts)
        self.errno = errno

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.errno.name}]"


def invalid(name: str, value: Any, legal: str, errno: Errno = Errno.EINVAL) -> VerbsError:
    """The error for an argument: what it is, and what would have been right."""
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
    """What the adapter refuses is EINVAL."""
    try:
        yield
    except VerbsError:
        raise
    except LocalError as error:
        raise VerbsError(Errno.EINVAL, *error.args) from None


def integer(name: str, value: Any, low: int, high: int) -> int:
    """A whole number within bounds."""
    if type(value) is not int or not low <= value <= high:
        raise invalid(name, value, f"{low} … {high:#x}" if high >= 1 << 20 else f"{low} … {high}")
    return value


def member(name: str, value: Any, kind: type[_Member]) -> _Member:
    """`value`, or its number, as one of an enum, or of flags as some."""
    names = ", ".join(kind.__members__)
    if isinstance(value, kind) or type(value) is int:
        known = [int(one) for one in kind.__members__.values()]
        if not int(value) & ~sum(known) if issubclass(kind, IntFlag) else int(value) in known:
            return kind(value)
    raise invalid(name, value, names)


def instance(name: str, value: Any, kind: type, legal: str = "") -> None:
    """Raises EINVAL for what is of another kind."""
    if not isinstance(value, kind):
        raise invalid(name, value, legal or f"{kind.__name__}")
