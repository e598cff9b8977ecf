"""What depends on where the output goes: colours, width, what is going on."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PLAIN_WIDTH = 100  # columns, where standard output is no terminal

Paint = Callable[[str, str], str]
"""`paint(text, style)`: the text in a style of `STYLES`, or as it is."""

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
    """Colours on a terminal, unless NO_COLOR (no-color.org) or a dumb terminal says otherwise."""
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return _plain if plain else _coloured


def _plain(text: str, style: str) -> str:
    return text


def _coloured(text: str, style: str) -> str:
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style and text else text


def width() -> int:
    """Columns to write in."""
    return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns if sys.stdout.isatty() else PLAIN_WIDTH


@contextmanager
def status() -> Iterator[Callable[[str], None]]:
    """A line on standard error that says what is going on, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status("") as line:
        yield line.update


def printable(text: str) -> str:
    """Text from outside, without what would drive a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shortened(text: str, room: int) -> str:
    """At most `room` characters of `text`."""
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"[:room]
