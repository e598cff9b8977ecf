# SPDX-License-Identifier: GPL-2.0-only
"""This module checks the outputs of a command before the command begins: it must be possible to write them, and they
must not overwrite an input."""

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from uetproto import LocalError
from uetproto.errors import missing_package

Named = tuple[str, str | os.PathLike[str] | None]
"""Type of an option or argument with the name of its file, or with None if it has no file."""

SUFFIXES = (".png", ".svg")


def check_output(option: str, output: str | None, others: Iterable[Named]) -> None:
    """Raise `LocalError` if `output` cannot be written, or if it is the same file as one of `others`. Two names of one
    file, such as a link and its target, count as the same file.

    The name "-" among `others` means the file that standard input is read from, if that is a regular file.
    """
    if output is None or output == "-":
        return
    if not output:
        raise LocalError(option, "is no name", "the name of a file", id="missing-argument")
    for name, given in others:
        if given and _are_one(output, given):
            raise LocalError(f"{option} {output}", f"would overwrite {name}", id="would-overwrite")
    try:
        os.lstat(output)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:  # a name that is too long
        raise LocalError(
            f"{option} {output}", error.strerror, "a file that can be written", id="cannot-write"
        ) from None
    if os.path.isdir(output):
        raise LocalError(f"{option} {output}", "is a directory", "the name of a file in it", id="cannot-write")
    folder = os.path.dirname(output)
    if folder and not os.path.isdir(folder):
        raise LocalError(f"{option} {output}", f"there is no directory {folder}", id="cannot-write")
    if not os.access(output if os.path.exists(output) else folder or ".", os.W_OK):
        raise LocalError(f"{option} {output}", "may not be written", "the name of a file that may", id="cannot-write")
    _try(option, output)


def _try(option: str, output: str) -> None:
    """Raise `LocalError` if a file cannot be made, or opened to be written: also root is refused in some places."""
    is_there = os.path.lexists(output)
    if is_there and not os.path.isfile(output):
        return  # a pipe would wait, and a device is not for trials
    flags = os.O_WRONLY if is_there else os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        os.close(os.open(output, flags, 0o666))
        if not is_there:
            os.unlink(output)
    except OSError as error:
        raise LocalError(
            f"{option} {output}", error.strerror or "may not be written", "a file that can be written",
            id="cannot-write"
        ) from None  # fmt: skip


def check_outputs(outputs: Iterable[Named], inputs: Iterable[Named]) -> None:
    """Raise `LocalError` if an output cannot be written, or if it is the file of an input or of another output."""
    others = list(inputs)
    for option, file in outputs:
        check_output(option, None if file is None else os.fspath(file), others)
        others.append((option, None if file == "-" else file))


def make_folder(option: str, folder: str) -> None:
    """Make a folder for outputs, unless it is there. Raises `LocalError` if it cannot be made or written."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        legal = "a folder, or a new name in one that may be written"
        raise LocalError(f"{option} {folder}", error.strerror or "is no folder", legal, id="cannot-write") from None
    if not os.access(folder, os.W_OK):
        raise LocalError(f"{option} {folder}", "may not be written", "a folder that may", id="cannot-write")


def check_plot(path: str, suffixes: Sequence[str] = SUFFIXES) -> None:
    """Raise `LocalError` if the suffix of `path` is not in `suffixes`, or if the file cannot be written. A command
    makes this check before its run."""
    if Path(path).suffix.lower() not in suffixes:
        raise LocalError(f"--plot {path}", f"legal are names in {', '.join(suffixes)}", id="wrong-suffix")
    check_output("--plot", path, ())


def check_matplotlib(path: str) -> None:
    """Raise `LocalError` if matplotlib, which draws the plot `path`, is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing_package(f"--plot {path}", "matplotlib", "plot") from None


def toml_file(argument: str, name: str) -> Named:
    """Return a pair of an argument and the name of its TOML file. The second value is None if `name` is the name of a
    shipped file."""
    return argument, name if name.endswith(".toml") or "/" in name else None


def _are_one(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Return whether both names mean the same file, which may not exist yet. For `other`, "-" is standard input."""
    if other == "-":
        return os.path.exists(one) and _is_input(os.stat(one))
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


def _is_input(file: os.stat_result) -> bool:
    """Return whether standard input is read from this regular file."""
    try:
        read = os.fstat(0)
    except OSError:  # standard input is closed
        return False
    return stat.S_ISREG(read.st_mode) and os.path.samestat(read, file)
