"""Errors of the API: libfabric's numbers, what a SES return code becomes, and what is legal at a call.

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
    """fi_errno.h, those that are used here."""

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
    """A call that cannot be: `errno` is libfabric's number as an `Errno`, the text names argument and legal values.

    It is raised at the call, and nothing has changed then.
    """

    def __init__(self, errno: Errno, *parts: Any) -> None:
        super().__init__(*parts)
        self.errno = errno

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.errno.name}]"


class RetryClass(Enum):
    """What an initiator does about a return code (ses.md §9.5)."""

    OK = "ok"
    NOW = "now"
    """Repair, and retry at once."""
    BACK = "back"
    """Transient: retry with back-off; it is reported when the retries are used up."""
    PERM = "perm"
    """Reported at once."""


_CLASSES: dict[ReturnCode, RetryClass] = {
    ReturnCode.NULL: RetryClass.OK,
    ReturnCode.OK: RetryClass.OK,
    ReturnCode.BAD_GENERATION: RetryClass.NOW,
    ReturnCode.DISABLED_GEN: RetryClass.BACK,
    ReturnCode.NO_MATCH: RetryClass.BACK,
    ReturnCode.UNCOR_TRNSNT: RetryClass.BACK,
}
"""All others are permanent (ses.md §9.5)."""

_ERRNOS: dict[ReturnCode, Errno] = {
    ReturnCode.BAD_MKEY: Errno.FI_ENOKEY,
    ReturnCode.PERM_VIOLATION: Errno.FI_EACCES,
    ReturnCode.BAD_JOB_ID: Errno.FI_EACCES,
    ReturnCode.UNSUPPORTED_OP: Errno.FI_EOPNOTSUPP,
    ReturnCode.TOO_LONG: Errno.FI_ETRUNC,
    ReturnCode.CANCELLED: Errno.FI_ECANCELED,
}
"""All others are FI_EIO (ses.md §13.3)."""


def class_of(code: int) -> RetryClass:
    """The class of a return code, of vendor and unknown ones too."""
    return _CLASSES.get(code, RetryClass.PERM)  # type: ignore[call-overload,no-any-return]


def errno_of(code: int, strict_ref_errors: bool = False) -> Errno:
    """What a refusal of the peer is in a completion queue; `strict_ref_errors`: always FI_EIO (ses.md §13.3)."""
    if strict_ref_errors:
        return Errno.FI_EIO
    return _ERRNOS.get(code, Errno.FI_EIO)  # type: ignore[call-overload,no-any-return]


def name_of(code: int) -> str:
    """The name of a return code; hex for one that has none."""
    return ReturnCode(code).name if code in ReturnCode.__members__.values() else f"{code:#04x}"


def invalid(name: str, value: Any, legal: str, errno: Errno = Errno.FI_EINVAL) -> FiError:
    """The error for an argument: what it is, and what would have been right."""
    given = value[:256] if isinstance(value, str) else shown(value)
    return FiError(errno, name, f"{given} is not legal", legal)


def member(name: str, value: Any, kind: type[_Member], legal: int = -1, errno: Errno = Errno.FI_EINVAL) -> _Member:
    """`value`, or its number, as one of an enum, or of flags as some of `legal` (-1: of all); raises `errno`."""
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
    """As `member`, of flags at least one."""
    found = member(name, value, kind, legal, errno)
    if not found:
        raise invalid(name, "none", ", ".join(one.name or "" for one in kind if int(one) & legal), errno)
    return found


def _names(known: list[Any], wrong: int) -> str:
    """Of bits that are not legal; those without a name in hex."""
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
    """`value` if it is a whole number of `width` bits; raises FI_EINVAL."""
    if type(value) is not int or not 0 <= value < 1 << width:
        shown = hex(value) if type(value) is int else value
        raise invalid(name, str(shown), f"0 … {(1 << width) - 1:#x}")
    return value
