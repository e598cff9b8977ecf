"""This module handles what depends on where output goes: colours, width, and a line of progress."""

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
"""Type of a function `paint(text, style)`. It returns the text in a style of `STYLES`, or unchanged if colours are
off."""

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
    """Return a function that paints text. It uses colours if standard output is a terminal that is not dumb, unless
    NO_COLOR (no-color.org) is set."""
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return _plain if plain else _coloured


def _plain(text: str, style: str) -> str:
    return text


def _coloured(text: str, style: str) -> str:
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style and text else text


def width() -> int:
    """Return the width of standard output in columns, or `PLAIN_WIDTH` if standard output is no terminal."""
    return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns if sys.stdout.isatty() else PLAIN_WIDTH


@contextmanager
def status() -> Iterator[Callable[[str], None]]:
    """Yield a function that sets the text of a progress line on standard error. The function does nothing if standard
    error is no terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status("") as line:
        yield line.update


def console(aside: bool = False) -> "Console":
    """Return a console for tables on standard output, or on standard error if `aside` is True.

    A closed pipe raises `BrokenPipeError`, as other output does; rich alone would end the program with exit status 1.
    """
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Piped(stderr=aside, width=width(), highlight=False, soft_wrap=False, emoji=False)


def printable(text: str) -> str:
    """Return a text with a replacement character for each character that could control a terminal or end a line."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


_STYLED = re.compile("(\x1b\\[(?:" + "|".join({*STYLES.values(), "0"} - {""}) + ")m)")


def tell(lines: Iterable[str], aside: bool = False) -> None:
    """Print lines on standard output, or on standard error if `aside` is True.

    The lines may have styles that a painter added. A text from a file or a packet must be made `printable` before it is
    put into a line.
    """
    plain = painter() is _plain
    for line in lines:
        for part in line.split("\n"):
            words = [part] if plain or "\x1b" not in part else _STYLED.split(part)
            safe = (text if number % 2 else printable(text) for number, text in enumerate(words))
            print("".join(safe), file=sys.stderr if aside else sys.stdout)


def write_text(path: str, text: str) -> None:
    """Write an XML text to a file, or to standard output if `path` is "-". Standard output gets ASCII only, which any
    terminal can show."""
    if path == "-":
        sys.stdout.write(text.encode("ascii", "xmlcharrefreplace").decode())
        return
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)


def shortened(text: str, room: int) -> str:
    """Return `text`, cut to at most `room` characters. An ellipsis marks a cut."""
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"[:room]
