# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the man pages of the program and of its commands, from what `--help` says.

`tools/generate` writes them to docs/man, from where the package installs them.
"""

from collections.abc import Iterator

import click

from uetproto import __version__
from uetproto.cli.main import COMMANDS, cli

_RAW = "\b"  # marks a paragraph whose lines stay as they are
LICENCE = "SPDX-License-" + "Identifier: GPL-2.0-only"  # in two parts: tools that look for licences read this line


def pages() -> dict[str, str]:
    """Return the text of each man page by the name of its file, such as "uetproto-run.1"."""
    top = cli.make_context("uetproto", [], resilient_parsing=True)
    found = {"uetproto.1": _page("uetproto", cli, top)}
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        found[f"uetproto-{name}.1"] = _page(f"uetproto {name}", command, top)
    return found


def _page(name: str, command: click.Command, parent: click.Context) -> str:
    ctx = parent if command is cli else click.Context(command, info_name=name.split()[-1], parent=parent)
    title = name.replace(" ", "-")
    summary = COMMANDS[name.split()[1]][1] if command is not cli else "codec and emulator of Ultra Ethernet and RDMA"
    lines = [
        rf".\" {LICENCE}",
        f'.TH {_roff(title.upper())} 1 "" "uetproto {__version__}" "uetproto"',
        ".SH NAME",
        f"{_roff(title)} \\- {_roff(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        *_synopsis(name, command),
        ".SH DESCRIPTION",
        *_text(command.help or ""),
    ]
    if isinstance(command, click.Group):
        lines += [".SH COMMANDS", *_commands(name, command, ctx)]
    lines += [".SH OPTIONS", *_options(command, ctx)]
    if command.epilog:
        lines += [".SH NOTES", *_text(command.epilog)]
    others = ["uetproto"] if command is not cli else [f"uetproto-{other}" for other in COMMANDS]
    lines += [".SH SEE ALSO", ",\n".join(f"\\fB{_roff(other)}\\fR(1)" for other in others)]
    return "\n".join(lines) + "\n"


def _synopsis(name: str, command: click.Command) -> Iterator[str]:
    words = [metavar(param) for param in command.params if isinstance(param, click.Argument)]
    if isinstance(command, click.Group):
        words = ["COMMAND", "[ARGS]..."]
    yield f"\\fB{_roff(name)}\\fR [OPTIONS] {_roff(' '.join(words))}".rstrip()


def _commands(name: str, group: click.Group, ctx: click.Context) -> Iterator[str]:
    for below in group.list_commands(ctx):
        yield ".TP"
        if group is cli:
            yield f"\\fB{_roff(f'uetproto-{below}')}\\fR(1)"
            yield _roff(COMMANDS[below][1])
            continue
        command = group.get_command(ctx, below)
        assert command is not None
        yield from _synopsis(f"{name} {below}", command)
        yield from _text(command.help or "")
        for option in command.params:
            if isinstance(option, click.Option) and option.name != "help":
                yield f"{_roff(spelling(option))}: {_roff(option.help or '')}"


def _options(command: click.Command, ctx: click.Context) -> Iterator[str]:
    for option in command.get_params(ctx):
        if isinstance(option, click.Option) and not option.hidden:
            yield ".TP"
            yield f"\\fB{_roff(spelling(option))}\\fR"
            default = f" Default: {option.default}." if option.show_default is True and not option.is_flag else ""
            yield _roff(" ".join((option.help or "").split()) + default)


def spelling(option: click.Option) -> str:
    names = ", ".join(option.opts) + (f" / {', '.join(option.secondary_opts)}" if option.secondary_opts else "")
    return names if option.is_flag or option.count else f"{names} {metavar(option)}"


def metavar(param: click.Parameter) -> str:
    """Return the word that stands for the value; that of click differs between its versions."""
    if param.metavar:
        return param.metavar
    if isinstance(param.type, click.Choice):
        return "|".join(param.type.choices)
    return str(param.name if isinstance(param, click.Argument) else param.type.name).upper()


def _text(text: str) -> Iterator[str]:
    """Yield a text of paragraphs; those that begin with a backspace keep their lines."""
    for number, paragraph in enumerate(text.strip("\n").split("\n\n")):
        if number:
            yield ".PP"
        first, *rest = paragraph.split("\n")
        if first.strip(" ") == _RAW:
            yield ".nf"
            yield from (_roff(line) for line in rest)
            yield ".fi"
        else:
            yield from (_roff(line.strip()) for line in (first, *rest) if line.strip())


def _roff(text: str) -> str:
    """Return a text with the characters escaped that mean something to roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text
