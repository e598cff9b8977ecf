# SPDX-License-Identifier: GPL-2.0-only
"""This module handles what depends on where output goes: colours, width, and a line of progress."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from uetproto.wire.words.text import count

if TYPE_CHECKING:  # loaded where a table is printed
    from rich.console import Console

PLAIN_WIDTH = 100  # columns, where standard output is no terminal and COLUMNS is not set
_NARROWEST, _WIDEST = 40, 10_000
AUTO, ALWAYS, NEVER = COLORS = ("auto", "always", "never")
"""Values of the option `--color`."""
_asked = {"color": AUTO}

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


def choose_colours(when: str) -> None:
    """Say when output has colours, one of `COLORS`, as the option `--color` does."""
    _asked["color"] = when


def has_colours() -> bool:
    """Return whether standard output has colours.

    `--color` decides. With "auto", NO_COLOR (no-color.org) turns colours off and FORCE_COLOR turns them on, if they are
    set and not empty. Otherwise a terminal that is not dumb has colours.
    """
    if _asked["color"] != AUTO:
        return _asked["color"] == ALWAYS
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")


def painter() -> Paint:
    """Return a function that paints text if standard output has colours, and returns it unchanged otherwise."""
    return _coloured if has_colours() else _plain


def _plain(text: str, style: str) -> str:
    return text


def _coloured(text: str, style: str) -> str:
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style and text else text


def width() -> int:
    """Return the width of standard output in columns: that of COLUMNS if it is set, also in a pipe, or that of the
    terminal, or `PLAIN_WIDTH`."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and len(said) < len(str(_WIDEST)) + 1 and int(said):
        return min(max(int(said), _NARROWEST), _WIDEST)
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


def share_words(share: float, elapsed: float) -> str:
    """Return how much of long work is done, in per cent, and from the second second on the time left. `share` is from 0
    to 1, and `elapsed` is in seconds."""
    share = min(share, 1.0)
    if share <= 0 or elapsed <= 1:
        return f"{share:.0%}"
    left = elapsed * (1 - share) / share
    return f"{share:.0%}, {left // 60:.0f}:{left % 60:02.0f} left"


@contextmanager
def progress(name: str, unit: str, total: int | None = None) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield a function `show(done, total)` that moves a bar on standard error: per cent, number, rate and time left.

    `unit` names what is counted; "bytes" are shown in KiB and so on, and "" is not shown. Yield None if standard error
    is no terminal.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as bars
    from rich.text import Text

    class CountRate(bars.ProgressColumn):
        def render(self, task: bars.Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f} {unit}/s")

    counted: tuple[bars.ProgressColumn, ...] = ()
    if unit == "bytes":
        counted = (bars.DownloadColumn(True), bars.TransferSpeedColumn())
    elif unit:
        counted = (bars.MofNCompleteColumn(), bars.TextColumn(unit), CountRate())
    columns = (
        bars.TextColumn(printable(name), markup=False), bars.BarColumn(), bars.TaskProgressColumn(), *counted,
        bars.TimeRemainingColumn(),
    )  # fmt: skip
    with bars.Progress(*columns, console=console(aside=True), transient=True, refresh_per_second=4) as shown:
        task = shown.add_task(name, total=total)
        yield lambda done, all_: shown.update(task, completed=done, total=all_)


def console(aside: bool = False) -> "Console":
    """Return a console for tables on standard output, or on standard error if `aside` is True.

    A closed pipe raises `BrokenPipeError`, as other output does; rich alone would end the program with exit status 1.
    """
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    asked: dict[str, Any] = {}
    if not aside:
        asked = {"color_system": "standard", "force_terminal": True} if has_colours() else {"color_system": None}
    return Piped(stderr=aside, width=width(), highlight=False, soft_wrap=False, emoji=False, **asked)


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


many = count
"""The function that says a number of things has this name in commands, where `count` is that of itertools."""


def shortened(text: str, room: int) -> str:
    """Return `text`, cut to at most `room` characters. An ellipsis marks a cut."""
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"[:room]
