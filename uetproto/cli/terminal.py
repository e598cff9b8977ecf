"""This module has the parts of output that depend on where it goes: colours, width, progress."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loaded where a table is printed
    from rich.console import Console

PLAIN_WIDTH = 100  # columns, where standard output is no terminal

Paint = Callable[[str, str], str]
"""Type of a function `paint(text, style)` that returns the text in a style of `STYLES`, or unchanged."""

STYLES = {
    "": "",
    "bold": "1",
    "dim": "2",
    "red": "31",
    "alarm": "1;31",
    "green": "32",
    "yellow": "33",
    "magenta": "35",
    "cyan": "36",
}


def painter() -> Paint:
    """Return a paint function: it uses colours on a terminal that is not dumb, unless NO_COLOR (no-color.org)
    is set.
    """
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return _plain if plain else _coloured


def _plain(text: str, style: str) -> str:
    return text


def _coloured(text: str, style: str) -> str:
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style and text else text


def width() -> int:
    """Return the number of columns of the output."""
    return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns if sys.stdout.isatty() else PLAIN_WIDTH


@contextmanager
def status() -> Iterator[Callable[[str], None]]:
    """Yield a function that sets the text of a line of progress on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status("") as line:
        yield line.update


def console(aside: bool = False) -> "Console":
    """Return a console for tables on standard output, or with `aside` on standard error.

    A closed pipe raises `BrokenPipeError`, as in other output; rich alone would end the program with exit status 1.
    """
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Piped(stderr=aside, width=width(), highlight=False, soft_wrap=False, emoji=False)


def printable(text: str) -> str:
    """Return a text from outside without the characters that control a terminal or end a line."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


_STYLED = re.compile("(\x1b\\[(?:" + "|".join({*STYLES.values(), "0"} - {""}) + ")m)")


def tell(lines: Iterable[str], aside: bool = False) -> None:
    """Print lines on standard output, or with `aside` on standard error.

    The lines may hold styles of a painter. Texts from outside must be made `printable` before they are put into a line.
    """
    plain = painter() is _plain
    for line in lines:
        for part in line.split("\n"):
            words = [part] if plain or "\x1b" not in part else _STYLED.split(part)
            safe = (text if number % 2 else printable(text) for number, text in enumerate(words))
            print("".join(safe), file=sys.stderr if aside else sys.stdout)


def write_text(path: str, text: str) -> None:
    """Write an XML text to a file, or for "-" to standard output, in ASCII only, which any terminal can show."""
    if path == "-":
        sys.stdout.write(text.encode("ascii", "xmlcharrefreplace").decode())
        return
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)


def shortened(text: str, room: int) -> str:
    """Return `text`, shortened to at most `room` characters."""
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"[:room]
