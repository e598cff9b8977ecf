"""The errors that leave this library: all of them are `UetError`; anything else is a bug."""

from reprlib import Repr

_LONGEST = 256
"""Bits of a number, or characters of a text, that messages spell out."""


class UetError(Exception):
    """Root of every error that this library raises on purpose."""


class LocalError(UetError):
    """Our caller asked for something that cannot be: the message names the place and what is legal."""


class MissingPackageError(LocalError):
    """What was asked for needs a package that is not installed: the message says how to get it."""


class RemoteError(UetError):
    """The peer did something illegal.

    `code` is what to answer: a NACK code (pds.md §12) or a SES return code (ses.md §9.5).
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class _Shown(Repr):
    """`repr` of values of any size: what they hold is told up to a point."""

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() <= _LONGEST else f"<{x.bit_length()} bits>"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x) if len(x) <= _LONGEST else f"<{len(x)} bytes>"

    def repr_bytearray(self, x: bytearray, level: int) -> str:
        return repr(x) if len(x) <= _LONGEST else f"<{len(x)} bytes>"


_shown = _Shown()
_shown.maxstring = _shown.maxother = _LONGEST


def shown(value: object) -> str:
    """A value as messages show it: its `repr`, and of what is long only the beginning."""
    return _shown.repr(value)
