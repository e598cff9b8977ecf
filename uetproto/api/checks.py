# SPDX-License-Identifier: GPL-2.0-only
"""This module defines the call error and the argument checks that the APIs share; each API adds its own error
numbers."""

from collections.abc import Callable, Collection
from enum import IntEnum, IntFlag
from functools import cache
from typing import Any, Generic, TypeVar

from uetproto.errors import LocalError, shown, similar
from uetproto.toml.values import DAY, time

_Errno = TypeVar("_Errno", bound=IntEnum)
_Error = TypeVar("_Error", bound=LocalError)
_Member = TypeVar("_Member", bound=IntEnum | IntFlag)
_TIME = time()


class CallError(LocalError, Generic[_Errno]):
    """Raised when a call fails; `errno` is the error number that libfabric or libibverbs would return. Each API has a
    subclass."""

    def __init__(self, errno: _Errno, *parts: Any, id: str = "") -> None:
        super().__init__(*parts, id=id)
        self.errno = errno

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.errno.name}]"


class ArgumentChecks(Generic[_Error, _Errno]):
    """This class checks arguments and raises the error class of one API; `errno` is the error number that a check uses
    by default."""

    def __init__(self, error: Callable[..., _Error], errno: _Errno) -> None:
        self._error = error
        self._errno = errno

    def invalid(
        self, name: str, value: Any, legal: str | Collection[str], errno: _Errno | None = None, *, id: str
    ) -> _Error:
        """Return the error for an illegal argument; the error states the argument's name, the illegal value and the
        legal values. `legal` is a text, or a collection of legal names."""
        given = value[:256] if isinstance(value, str) else shown(value)
        names = () if isinstance(legal, str) else legal
        told = f"{given} is not legal{similar(value, names)}"
        return self._error(self._errno if errno is None else errno, name, told, ", ".join(names) or str(legal), id=id)

    def member(
        self, name: str, value: Any, kind: type[_Member], legal: int = -1, errno: _Errno | None = None
    ) -> _Member:
        """Return `value`, which is a member of the enum `kind` or the number of a member, as a member of `kind`. If
        `kind` is a set of flags, only the bits of the mask `legal` are allowed; -1 allows every flag.

        Raises the error of the API, with `errno`, if `value` is not legal.
        """
        is_flag = issubclass(kind, IntFlag)
        enum: Any = kind
        known, mask = _known(enum, legal)
        if isinstance(value, kind) or type(value) is int:
            number = int(value)
            wrong = number & ~mask if is_flag else number not in known
            if not wrong:
                return kind(number)
            value = _names([one for one in kind if int(one) & number], wrong) if is_flag else value
        raise self.invalid(name, value, ", ".join(one.name or "" for one in known), errno, id="unknown-name")

    def duration(self, name: str, value: Any) -> int:
        """Return a duration in picoseconds; `value` is a whole number of picoseconds, or a text such as "1 ms"."""
        if type(value) is int and 0 <= value <= DAY:
            return value  # the common case, with the same result as below
        try:
            picoseconds: int = _TIME.check(value)
        except ValueError:
            raise self.invalid(name, value, _TIME.legal, id="wrong-format") from None
        return picoseconds


@cache
def _known(kind: Any, legal: int) -> tuple[tuple[Any, ...], int]:
    """Return the members of an enum, of flags those in the mask `legal`, and the sum of their numbers."""
    known = tuple(one for one in kind if not issubclass(kind, IntFlag) or int(one) & legal)
    return known, sum(map(int, known))


def _names(known: list[Any], wrong: int) -> str:
    """Return the names of bits that are not legal; bits without a name in hex."""
    rest = wrong & ~sum(known)
    return ", ".join([one.name for one in known if one & wrong] + ([hex(rest)] if rest else []))
