# SPDX-License-Identifier: GPL-2.0-only
"""This module has the error numbers of libfabric, the error number for each SES return code, and the checks of
arguments.

The numbers are those of rdma/fi_errno.h. Each SES return code has an error number (ses.md §13.3) and a retry class
(ses.md §9.5).
"""

from enum import Enum, IntEnum, IntFlag
from typing import Any, TypeVar

from uetproto.api.checks import ArgumentChecks, CallError
from uetproto.engine.contract import EndpointDriver
from uetproto.wire.headers.uet_ses import ReturnCode

_Flag = TypeVar("_Flag", bound=IntFlag)


class Errno(IntEnum):
    """This enumeration names the numbers of fi_errno.h that are used here."""

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


class FiError(CallError[Errno]):
    """Raised when a call fails; `errno` is the error number of libfabric, and the text names the argument and its legal
    values.

    A call that raises this error has changed nothing.
    """


class FiObject:
    """This class represents an address vector, a completion queue or a counter, to which endpoints and regions can be
    bound."""

    kind: str

    def __init__(self, driver: EndpointDriver) -> None:
        self.driver = driver
        self.users = 0
        """Number of endpoints and regions that are bound to the object."""
        self.closed = False

    def close(self) -> None:
        """`fi_close` closes the object. Raises FI_EBUSY while an endpoint or a region is bound to the object."""
        if self.users:
            raise FiError(Errno.FI_EBUSY, self.kind, "is bound", "close the endpoints and regions first", id="in-use")
        self.closed = True

    def check_bindable(self, driver: EndpointDriver) -> None:
        """Raise FI_EINVAL if the object is closed, and FI_EDOMAIN if its fabric is not the fabric of `driver`."""
        if self.closed:
            raise invalid(self.kind, "is closed", "one that is open", id="closed")
        if self.driver is not driver:
            raise invalid(
                self.kind, "one of another fabric", "one of the same fabric", Errno.FI_EDOMAIN, id="foreign-object"
            )

    def _usable(self) -> None:
        if self.closed:
            raise FiError(Errno.FI_EOPBADSTATE, self.kind, "is closed", id="closed")


def expect(call: str, subject: str, state: Enum, *legal: Enum) -> None:
    """Raise FI_EOPBADSTATE if `state` is not one of the states in which a call is legal. `call` and `subject` are names
    for the error text."""
    if state not in legal:
        names = " or ".join(one.value for one in legal)
        raise FiError(Errno.FI_EOPBADSTATE, call, f"{subject} is {state.value}", names, id="wrong-state")


CHECKS = ArgumentChecks(FiError, Errno.FI_EINVAL)
invalid, member, duration = CHECKS.invalid, CHECKS.member, CHECKS.duration


class RetryClass(Enum):
    """This enumeration names the ways in which an initiator reacts to an SES return code (ses.md §9.5)."""

    OK = "ok"
    NOW = "now"
    """The initiator repairs the cause and retries at once."""
    BACK = "back"
    """The initiator retries with back-off, and reports the error when the retries are used up."""
    PERM = "perm"
    """The initiator reports the error at once."""


_CLASSES: dict[ReturnCode, RetryClass] = {
    ReturnCode.NULL: RetryClass.OK,
    ReturnCode.OK: RetryClass.OK,
    ReturnCode.BAD_GENERATION: RetryClass.NOW,
    ReturnCode.DISABLED_GEN: RetryClass.BACK,
    ReturnCode.NO_MATCH: RetryClass.BACK,
    ReturnCode.UNCOR_TRNSNT: RetryClass.BACK,
}
"""Classes of the codes whose class is not PERM (ses.md §9.5)."""

_ERRNOS: dict[ReturnCode, Errno] = {
    ReturnCode.BAD_MKEY: Errno.FI_ENOKEY,
    ReturnCode.PERM_VIOLATION: Errno.FI_EACCES,
    ReturnCode.BAD_JOB_ID: Errno.FI_EACCES,
    ReturnCode.UNSUPPORTED_OP: Errno.FI_EOPNOTSUPP,
    ReturnCode.TOO_LONG: Errno.FI_ETRUNC,
    ReturnCode.CANCELLED: Errno.FI_ECANCELED,
}
"""Errors of the codes whose error is not FI_EIO (ses.md §13.3)."""


def class_of(code: int) -> RetryClass:
    """Return the retry class of an SES return code; vendor codes and unknown codes have the class PERM."""
    return _CLASSES.get(code, RetryClass.PERM)  # type: ignore[call-overload,no-any-return]


def errno_of(code: int, strict_ref_errors: bool = False) -> Errno:
    """Return the error number for an SES return code with which the peer refused an operation. With `strict_ref_errors`
    the result is always FI_EIO (ses.md §13.3)."""
    if strict_ref_errors:
        return Errno.FI_EIO
    return _ERRNOS.get(code, Errno.FI_EIO)  # type: ignore[call-overload,no-any-return]


def name_of(code: int) -> str:
    """Return the name of an SES return code, or its number in hex if it has no name."""
    return ReturnCode(code).name if code in ReturnCode.__members__.values() else f"{code:#04x}"


def some(name: str, value: Any, kind: type[_Flag], legal: int, errno: Errno = Errno.FI_EINVAL) -> _Flag:
    """Return flags as `member` does. Raises `FiError` with the number `errno` if a flag is not legal, or if no flag is
    set."""
    found = member(name, value, kind, legal, errno)
    if not found:
        raise invalid(
            name, "none", ", ".join(one.name or "" for one in kind if int(one) & legal), errno, id="unknown-name"
        )
    return found


def bits(name: str, value: Any, width: int) -> int:
    """Return `value` if it is a whole number that fits into `width` bits. Raises FI_EINVAL for any other value."""
    if type(value) is not int or not 0 <= value < 1 << width:
        shown = hex(value) if type(value) is int else value
        raise invalid(name, str(shown), f"0 … {(1 << width) - 1:#x}", id="out-of-range")
    return value
