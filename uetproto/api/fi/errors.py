"""Errors of the API: the numbers of libfabric, the error of each SES return code, and checks of arguments.

The numbers are those of rdma/fi_errno.h; ses.md §13.3 (mapping), §9.5 (classes of return codes).
"""

from enum import Enum, IntEnum, IntFlag
from typing import Any, TypeVar

from uetproto.errors import LocalError, shown
from uetproto.toml.values import time
from uetproto.wire.headers.uet_ses import ReturnCode

_Member = TypeVar("_Member", bound=IntEnum | IntFlag)
_TIME = time()


class Errno(IntEnum):
    """The numbers of fi_errno.h that are used here."""

    FI_ENOENT = 2
    FI_EIO = 5
    FI_EAGAIN = 11
    FI_EACCES = 13
    FI_EBUSY = 16
    FI_EINVAL = 22
    FI_ENOSPC = 28
    FI_EMSGSIZE = 90
    FI_EOPNOTSUPP = 95
    FI_EADDRINUSE = 98
    FI_ETIMEDOUT = 110
    FI_ECANCELED = 125
    FI_EOPBADSTATE = 258
    FI_EBADFLAGS = 260
    FI_EDOMAIN = 262
    FI_ENOCQ = 263
    FI_ETRUNC = 265
    FI_ENOKEY = 266
    FI_ENOAV = 267
    FI_EOVERRUN = 268


class FiError(LocalError):
    """The error of a call: `errno` is the number of libfabric, the text names the argument and the legal values.

    A call that raises it has changed nothing.
    """

    def __init__(self, errno: Errno, *parts: Any) -> None:
        super().__init__(*parts)
        self.errno = errno

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.errno.name}]"


class RetryClass(Enum):
    """What an initiator does after a return code (ses.md §9.5)."""

    OK = "ok"
    NOW = "now"
    """Repairs the cause and retries at once."""
    BACK = "back"
    """Retries with back-off, and reports the error when the retries are used up."""
    PERM = "perm"
    """Reports the error at once."""


_CLASSES: dict[ReturnCode, RetryClass] = {
    ReturnCode.NULL: RetryClass.OK,
    ReturnCode.OK: RetryClass.OK,
    ReturnCode.BAD_GENERATION: RetryClass.NOW,
    ReturnCode.DISABLED_GEN: RetryClass.BACK,
    ReturnCode.NO_MATCH: RetryClass.BACK,
    ReturnCode.UNCOR_TRNSNT: RetryClass.BACK,
}
"""Holds the classes of codes that are not permanent (ses.md §9.5)."""

_ERRNOS: dict[ReturnCode, Errno] = {
    ReturnCode.BAD_MKEY: Errno.FI_ENOKEY,
    ReturnCode.PERM_VIOLATION: Errno.FI_EACCES,
    ReturnCode.BAD_JOB_ID: Errno.FI_EACCES,
    ReturnCode.UNSUPPORTED_OP: Errno.FI_EOPNOTSUPP,
    ReturnCode.TOO_LONG: Errno.FI_ETRUNC,
    ReturnCode.CANCELLED: Errno.FI_ECANCELED,
}
"""Holds the errors of codes that are not FI_EIO (ses.md §13.3)."""


def class_of(code: int) -> RetryClass:
    """Return the class of a return code, also of a vendor or unknown one."""
    return _CLASSES.get(code, RetryClass.PERM)  # type: ignore[call-overload,no-any-return]


def errno_of(code: int, strict_ref_errors: bool = False) -> Errno:
    """Return the error of a refusal by the peer; `strict_ref_errors`: always FI_EIO (ses.md §13.3)."""
    if strict_ref_errors:
        return Errno.FI_EIO
    return _ERRNOS.get(code, Errno.FI_EIO)  # type: ignore[call-overload,no-any-return]


def name_of(code: int) -> str:
    """Return the name of a return code, or its number in hex."""
    return ReturnCode(code).name if code in ReturnCode.__members__.values() else f"{code:#04x}"


def invalid(name: str, value: Any, legal: str, errno: Errno = Errno.FI_EINVAL) -> FiError:
    """Return the error for an argument: its name, its value, and what is legal."""
    given = value[:256] if isinstance(value, str) else shown(value)
    return FiError(errno, name, f"{given} is not legal", legal)


def member(name: str, value: Any, kind: type[_Member], legal: int = -1, errno: Errno = Errno.FI_EINVAL) -> _Member:
    """Return a value or number as a member of an enum, or as flags among `legal` (-1: all). Raises `errno`."""
    is_flag = issubclass(kind, IntFlag)
    known = [one for one in kind if not is_flag or int(one) & legal]
    if isinstance(value, kind) or type(value) is int:
        number = int(value)
        wrong = number & ~sum(known) if is_flag else number not in known
        if not wrong:
            return kind(number)
        value = _names([one for one in kind if int(one) & number], wrong) if is_flag else value
    raise invalid(name, value, ", ".join(one.name or "" for one in known), errno)


def some(name: str, value: Any, kind: type[_Member], legal: int = -1, errno: Errno = Errno.FI_EINVAL) -> _Member:
    """Return flags as `member` does, at least one. Raises `errno`."""
    found = member(name, value, kind, legal, errno)
    if not found:
        raise invalid(name, "none", ", ".join(one.name or "" for one in kind if int(one) & legal), errno)
    return found


def _names(known: list[Any], wrong: int) -> str:
    """Return the names of bits that are not legal; bits without a name in hex."""
    rest = wrong & ~sum(known)
    return ", ".join([one.name for one in known if one & wrong] + ([hex(rest)] if rest else []))


def duration(name: str, value: Any) -> int:
    """Return the picoseconds of a whole number or a text such as "1 ms". Raises FI_EINVAL."""
    try:
        picoseconds: int = _TIME.check(value)
    except ValueError:
        raise invalid(name, value, _TIME.legal) from None
    return picoseconds


def bits(name: str, value: Any, width: int) -> int:
    """Return a whole number of `width` bits. Raises FI_EINVAL for another value."""
    if type(value) is not int or not 0 <= value < 1 << width:
        shown = hex(value) if type(value) is int else value
        raise invalid(name, str(shown), f"0 … {(1 << width) - 1:#x}")
    return value
