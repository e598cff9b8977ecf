# SPDX-License-Identifier: GPL-2.0-only
"""This module writes the page of all commands and their options, from what `--help` says."""

from collections.abc import Iterator

import click

from uetproto.cli.main import COLOR, COMMANDS, cli
from uetproto.cli.man import metavar, spelling

_HEAD = """\
# Commands

What `uetproto COMMAND --help` says, in one page. Man pages say the same: `man uetproto-run`.
[Interfaces](interfaces.md) names the exit statuses, and what stays stable. A size, a time and a rate are written as in
[Keys](keys.md). Each command takes `--help` and `--color` as well.
"""
_RAW = "\b"  # marks a paragraph whose lines stay as they are


def page() -> str:
    """Return the page."""
    return _HEAD + "".join(_lines())


def _lines() -> Iterator[str]:
    top = cli.make_context("uetproto", [], resilient_parsing=True)
    yield "\n| command | what |\n|---|---|\n"
    for name, (_, words) in COMMANDS.items():
        yield f"| [{name}](#uetproto-{name}) | {_cell(words)} |\n"
    yield "\nOptions of the program itself, before the command:\n"
    yield from _options(cli, top)
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        yield from _command(f"uetproto {name}", command, click.Context(command, info_name=name, parent=top), 2)


def _command(name: str, command: click.Command, ctx: click.Context, level: int) -> Iterator[str]:
    words = [metavar(param) for param in command.params if isinstance(param, click.Argument)]
    group = isinstance(command, click.Group)
    synopsis = f"{name} [OPTIONS] {' '.join(['COMMAND [ARGS]...'] if group else words)}".rstrip()
    yield f"\n{'#' * level} {name}\n\n```text\n{synopsis}\n```\n"
    yield from _text(command.help or "")
    yield from _options(command, ctx)
    if command.epilog:
        yield from _text(command.epilog)
    if isinstance(command, click.Group):
        for below in command.list_commands(ctx):
            inner = command.get_command(ctx, below)
            assert inner is not None
            inside = click.Context(inner, info_name=below, parent=ctx)
            yield from _command(f"{name} {below}", inner, inside, level + 1)


def _options(command: click.Command, ctx: click.Context) -> Iterator[str]:
    params = command.get_params(ctx) if command is cli else [one for one in command.params if one is not COLOR]
    options = [param for param in params if isinstance(param, click.Option) and not param.hidden]
    if not options:
        return
    yield "\n| option | what |\n|---|---|\n"
    for option in options:
        default = f" Default: {option.default}." if option.show_default is True and not option.is_flag else ""
        yield f"| `{_cell(spelling(option))}` | {_cell(' '.join((option.help or '').split()) + default)} |\n"


def _cell(text: str) -> str:
    return _prose(text.replace("|", "\\|"))


def _prose(text: str) -> str:
    """Return a text in which nothing is taken for Markdown."""
    return "".join(f"\\{letter}" if letter in "*_<>[]" else letter for letter in text)


def _text(text: str) -> Iterator[str]:
    """Yield a text of paragraphs; those that begin with a backspace keep their lines."""
    for paragraph in text.strip("\n").split("\n\n"):
        first, *rest = paragraph.split("\n")
        if first.strip(" ") == _RAW:
            lines = "\n".join(line.removeprefix("  ") for line in rest)
            yield f"\n```text\n{lines}\n```\n"
        else:
            yield "\n" + "\n".join(_prose(line.strip()) for line in (first, *rest) if line.strip()) + "\n"
