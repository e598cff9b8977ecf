# SPDX-License-Identifier: GPL-2.0-only
"""This module has the errors that the library raises on purpose. All of them are `UetError`; any other exception is a
bug."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from reprlib import Repr
from typing import TYPE_CHECKING, NamedTuple, NoReturn, ParamSpec, TypeVar, overload

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=Exception)

_LONGEST = 256
"""Number of bits of an integer, or of characters of a text, above which an error message shortens the value."""
_LONGEST_LINE = 2048
"""Number of characters of a name or value above which an error message shortens it."""
_LISTED = 12
"""Number of names above which an error message lists the first three alone."""
_FIRST = 3
_NAMES = re.compile(rf"(?:[^\s,;]+, ){{{_LISTED},}}[^\s,;]+(?=[,;]|$)")
_TELLING = 2
"""Number of letters above which a part of a name tells which name is meant."""


class Location(NamedTuple):
    """A location is a place in a file of the user."""

    file: str
    line: int = 0
    """Line number, counted from 1; 0 stands for the file as a whole."""
    key: str = ""
    """Dotted name of the key at this line; empty if `UetError.name` already is this name."""

    def __str__(self) -> str:
        at = f"{self.file}:{self.line}" if self.line else self.file
        return f"{at}: {self.key}" if self.key else at


class UetError(Exception):
    """This class is the root of every error that this library raises on purpose.

    An error is raised with one text, or with two or three parts: the `name` of the wrong parameter, its `value` (or
    what is wrong with the value), and the values that are `legal`. The message is made of these fields and of the
    `place`. Code that handles an error reads the fields and never parses the message. `args` holds the parts:
    `OtherError(*error.args, id=error.id)` makes an error of another class from them.

    The `id` names the kind of error, such as "unknown-key". It stays when the message changes. The table `errors.toml`
    says of each id what it means and what to do, and `uetproto explain ID` prints it. Every error of this library has
    an id of the table; the id is empty only in an error that a program of a user raises without one.
    """

    @overload
    def __init__(self, text: object = "", /, *, id: str, place: Location | None = None) -> None: ...
    @overload
    def __init__(
        self, name: str, value: object, legal: object = "", /, *, id: str, place: Location | None = None
    ) -> None: ...
    def __init__(self, *parts: object, id: str = "", place: Location | None = None) -> None:
        super().__init__(*parts)
        name, self.value, legal = (*(parts if len(parts) > 1 else ("", *parts)), "", "")[:3]
        self.name, self.legal = str(name), str(legal)
        self.id = id
        self.place = place

    def __str__(self) -> str:
        name, value = (_shortened(f"{part}") for part in (self.name, self.value))
        text = "".join(f"{part}: " for part in (self.place, name) if part) + (
            value if len(self.args) > 1 else str(self.value)
        )
        legal = _NAMES.sub(lambda found: listed(found[0].split(", ")), self.legal)
        return f"{text}; legal: {legal}" if legal else text


def _shortened(text: str) -> str:
    """Return a text, which may come from a file of the user, without the middle of a very long line."""
    return text if len(text) <= _LONGEST_LINE or "\n" in text else f"{text[:_LONGEST]} … {text[-_LONGEST:]}"


class LocalError(UetError):
    """The caller of this library asked for something impossible: the error names the place and what is legal."""


class MissingPackageError(LocalError):
    """A function needs a package that is not installed: the message says how to install the package."""


def missing_package(what: str, package: str, extra: str) -> MissingPackageError:
    """Return the error for `what`, which needs a package that only `extra`, an optional dependency, installs."""
    return MissingPackageError(
        what, f"needs the package {package}; pip install 'uetproto[{extra}]'", id="missing-package"
    )


def similar(word: object, names: Iterable[object], most: int = 3) -> str:
    """Return " (did you mean …?)" with at most `most` names that contain `word` or resemble it, or "" if no name does.

    The text goes behind a name that is refused, and before the legal names.
    """
    if not isinstance(word, str) or len(word) > _LONGEST:
        return ""
    known = {f"{name}".casefold(): f"{name}" for name in names}
    folded = word.casefold()
    near = [name for name in known if folded in name] if len(folded) > _TELLING else []
    if not near:
        from difflib import get_close_matches  # it is needed only for an error

        near = get_close_matches(folded, known, most, 0.7)
        near += [name for name in known if sorted(name) == sorted(folded) and name not in near]  # pns for psn
    return f" (did you mean {' or '.join(known[name] for name in near[:most])}?)" if near else ""


def listed(names: Iterable[object], where: str = "") -> str:
    """Return at most 12 names, separated by commas; of more names the first three and their number. `where` says what
    lists them all, such as a command."""
    known = [str(name) for name in names]
    if len(known) <= _LISTED:
        return ", ".join(known)
    return f"{', '.join(known[:_FIRST])}, … ({len(known)} in all{f': {where}' if where else ''})"


_SPELLING: ContextVar[Callable[[str], str] | None] = ContextVar("spelling", default=None)
"""Function that returns the option of an argument, while a command line runs."""


def argument(name: str, value: object = "") -> str:
    """Return how the caller writes the argument `name`: "topology ring" in Python, "--topology ring" on the command
    line. The value True stands for a flag: "complete=True" in Python, "--complete" on the command line.

    Errors of functions that both have name arguments in this way.
    """
    spelling = _SPELLING.get()
    written = name if spelling is None else spelling(name)
    if value is True:
        return f"{name}=True" if spelling is None else written
    return f"{written} {value}".rstrip()


@contextmanager
def options_named(spelling: Callable[[str], str]) -> Iterator[None]:
    """Let errors name options of a command line in place of arguments. `spelling` returns the option of an
    argument."""
    token = _SPELLING.set(spelling)
    try:
        yield
    finally:
        _SPELLING.reset(token)


def suggests_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose `TypeError` for an argument that does not exist tells similar names."""
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                names = [one for one in known if one != "self"]
                what = function.__name__.removesuffix("_captures")
                said = f"{what}() has no argument {name!r}{similar(name, names)}"
                raise TypeError(f"{said}; there are {', '.join(names)}")
        return function(*args, **kwargs)

    return called


class SuggestsNames:
    """This class is a base of classes whose `AttributeError` tells similar names."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker knows the names

        def __getattr__(self, name: str) -> NoReturn:
            known = () if name.startswith("_") else [one for one in dir(self) if not one.startswith("_")]
            what = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{what}{similar(name, known)}" + (f"; there are {listed(known)}" if known else ""))


class RemoteError(UetError):
    """The peer did something illegal; `code` is the code of the answer, a NACK code (pds.md §12) or a return code
    (ses.md §9.5)."""

    def __init__(self, problem: object, code: int, *, id: str = "", name: str = "", legal: object = "") -> None:
        super().__init__(name, problem, legal, id=id)
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.value, self.code), {"name": self.name, "legal": self.legal, "id": self.id}


def typed(name: str, value: object, kinds: type | tuple[type, ...], legal: str) -> None:
    """Raise `LocalError` for the argument `name` unless its value has one of the types `kinds`. `legal` describes these
    types in the error."""
    if not isinstance(value, kinds):
        raise LocalError(name, f"{shown(value)} is not legal", legal, id="wrong-type")


def identified(error: E, id: str) -> E:
    """Return an error of another library, such as Construct, with an `id` as errors of this library have."""
    vars(error)["id"] = id
    return error


def unfit(value: object, names: Iterable[object] = ()) -> str:
    """Return the id of the error for a value that is not legal where `names` are legal: "unknown-name" for a text where
    there are names, "wrong-format" for another text, "out-of-range" for a number, and "wrong-type" for the rest."""
    if isinstance(value, str):
        return "unknown-name" if any(True for _ in names) else "wrong-format"
    return "out-of-range" if isinstance(value, int | float) and not isinstance(value, bool) else "wrong-type"


class _Shown(Repr):
    """This class makes a `repr` of limited length for values of any size."""

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() <= _LONGEST else f"<{x.bit_length()} bits>"

    def repr_bytes(self, x: bytes | bytearray, level: int) -> str:
        return repr(x) if len(x) <= _LONGEST else f"<{len(x)} bytes>"

    repr_bytearray = repr_bytes


_shown = _Shown()
_shown.maxstring = _shown.maxother = _LONGEST


def shown(value: object) -> str:
    """Return a value as error messages show it: its `repr`, shortened if it is long."""
    return _shown.repr(value)
