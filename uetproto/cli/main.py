# SPDX-License-Identifier: GPL-2.0-only
"""This module has the list of commands and the exit statuses. `uetproto.cli.entry` starts the program.

The module of a command is imported when the command is invoked or its help is printed. That module exports `command`,
and does not catch `UetError` and `OSError`: these errors are printed here, as one line on standard error.
"""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from uetproto import RemoteError, UetError, __version__
from uetproto.cli.choice import Choice
from uetproto.cli.terminal import AUTO, COLORS, choose_colours, has_colours, printable, shortened
from uetproto.errors import identified, listed, options_named, similar

COMMANDS = {
    # name         module                    in a few words
    "run":        ("uetproto.cli.run",       "Run a scenario in virtual time and capture it."),
    "scenario":   ("uetproto.cli.scenario.command",  "List, show or write scenario files."),
    "dissect":    ("uetproto.cli.dissect",   "Show the packets of a capture, bit by bit."),
    "ladder":     ("uetproto.cli.ladder.command",    "Draw a capture as a message sequence chart."),
    "audit":      ("uetproto.cli.audit.command",     "Judge captures against the protocol, rule by rule."),
    "stats":      ("uetproto.cli.stats.command",     "Measure captures: retransmissions, windows, times."),
    "diff":       ("uetproto.cli.diff.command",      "Compare two captures, packet by packet."),
    "export":     ("uetproto.cli.tables.export",    "Write captures as tables: Parquet, CSV, Arrow."),
    "query":      ("uetproto.cli.tables.query",     "Ask captures and tables in SQL."),
    "report":     ("uetproto.cli.report.command", "Write a page of a capture: ladder, plots, findings."),
    "open":       ("uetproto.cli.open",      "Write sealed packets opened with their keys, for Wireshark."),
    "wireshark":  ("uetproto.cli.wireshark", "Install, examine or locate the dissector for Wireshark and tshark."),
    "fuzz":       ("uetproto.cli.fuzz",      "Test engines with random steps, on all cores."),
    "generate":   ("uetproto.cli.generate",  "Write stateful traffic of a profile, mutated on request."),
    "collective": ("uetproto.cli.collective.command", "Run a collective: steps, bytes and time beside the formulas."),
    "fabric":     ("uetproto.cli.fabric.command",    "Run many flows through a fabric, and time them."),
    "serve":      ("uetproto.cli.live.serve", "Serve memory to peers on a real link."),
    "send":       ("uetproto.cli.live.send", "Write, read or send to a peer on a real link."),
    "ping":       ("uetproto.cli.live.ping", "Measure latency and bandwidth to a peer on a real link."),
    "probe":      ("uetproto.cli.live.probe", "Find out what a real link to a peer lets pass."),
    "wire":       ("uetproto.cli.live.wire", "Join two network interfaces, and lose, mark or trim frames."),
    "capture":    ("uetproto.cli.live.capture", "Capture, audit and draw the frames of an interface."),
    "conform":    ("uetproto.cli.conform.command", "Ask another implementation whether it follows the protocol."),
    "replay":     ("uetproto.cli.live.replay.command", "Play one side of a capture to a peer; compare the answers."),
    "explain":    ("uetproto.cli.explain",   "Say what an error means, by its id."),
    "completion": ("uetproto.cli.completion.command", "Print what makes a shell complete command lines."),
    "bench":      ("uetproto.bench.command",     "Measure this machine: codec, captures, emulator."),
}  # fmt: skip

COMPLETE_VARIABLE = "_UETPROTO_COMPLETE"
"""Environment variable by which a shell asks for completions."""
_LONGEST = 8192  # characters of a line of an error
FAULT, MISUSE, INTERRUPTED = 1, 2, 130
EXIT_STATUS = "Exit status: 0; 1 a fault was found; 2 misuse, a missing file too; 130 interrupted, 143 terminated."


COLOR = click.Option(
    ["--color"], type=Choice(COLORS), expose_value=False, is_eager=True,
    callback=lambda ctx, param, value: _colour(ctx, value),
    help="When output has colours; auto: on a terminal. NO_COLOR and FORCE_COLOR count, too.",
)  # fmt: skip
"""Option of every command."""

_HELP = ["-h", "--help"]


def _with_help(command: click.Command) -> None:
    """Let a command and those below it have both names of the option for help. click makes the option once, with the
    names that the first context says, so it is made here."""
    command.get_help_option(click.Context(command, help_option_names=_HELP))
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        _with_help(below)


def _colour(ctx: click.Context, value: str | None) -> None:
    if value:
        choose_colours(value)
    ctx.color = has_colours()  # otherwise `click.echo` takes colours away where standard output is no terminal


class Commands(click.Group):
    """This group finds the commands by name, and imports the module of a command only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        if COLOR not in command.params:
            command.params.append(COLOR)
            _with_help(command)
        if COMPLETE_VARIABLE in os.environ:
            from uetproto.cli.completion.values import attach

            attach(cmd_name, command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> Any:
        """Return the commands that begin with `incomplete`, without importing one of them, or the options."""
        from click.shell_completion import CompletionItem  # it is needed only while a shell completes

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=said) for name, (_, said) in COMMANDS.items() if name.startswith(incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            known = listed(COMMANDS, "uetproto --help")
            told = f"there is no command {args[0]!r}{similar(args[0], COMMANDS)}; there are {known}"
            raise identified(click.UsageError(told, ctx), "unknown-command")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode or COMPLETE_VARIABLE in os.environ:
            return super().main(args, prog_name, complete_var, standalone_mode, **extra)
        sys.exit(self.status(list(sys.argv[1:] if args is None else args)))

    def status(self, args: list[str]) -> int:
        """Run a command line and return its exit status (interfaces.md §4). Standard output is flushed before the
        return."""
        choose_colours(AUTO)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # print a question mark for a µ that the encoding lacks
                stream.reconfigure(errors="replace")
        status = self._run(args)
        try:
            sys.stdout.flush()
        except OSError as error:
            _discard_output()
            if error.errno != errno.EPIPE:
                return _failed(error)
            return 0 if status == FAULT else status
        return status

    def _run(self, args: list[str]) -> int:
        try:
            with options_named(_option_of), self.make_context("uetproto", args) as ctx:
                result = self.invoke(ctx)
            return result if type(result) is int else 0
        except click.exceptions.Exit as exit_:
            return exit_.exit_code
        except (KeyboardInterrupt, click.Abort):
            return INTERRUPTED
        except click.ClickException as error:
            _show(error)
            return MISUSE
        except RuntimeError as error:  # Python makes one of a signal that comes while it makes a class
            if isinstance(error.__cause__, KeyboardInterrupt):
                return INTERRUPTED
            if isinstance(error.__cause__, SystemExit):
                raise error.__cause__ from None
            raise
        except BrokenPipeError:
            _discard_output()
            return 0
        except (OSError, UetError) as error:
            return _failed(error)


def _option_of(argument: str) -> str:
    """Return the option of the command that runs, as a user writes it, for an argument of a function."""
    ctx = click.get_current_context(silent=True)
    for parameter in [] if ctx is None else ctx.command.params:
        if parameter.name == argument and isinstance(parameter, click.Option):
            return parameter.opts[0]
    return f"--{argument.replace('_', '-')}"


_IDS: dict[type[Exception], str] = {
    FileNotFoundError: "file-not-found",
    IsADirectoryError: "is-a-directory",
    PermissionError: "permission-denied",
    OSError: "io-error",
    click.NoSuchOption: "unknown-option",
    click.MissingParameter: "missing-argument",
    click.BadParameter: "wrong-option-value",
    click.BadOptionUsage: "missing-value",
    click.UsageError: "unexpected-argument",
}
"""Ids of the errors of the operating system and of click, each class before its bases."""


def id_of(error: Exception) -> str:
    """Return the id of an error that a command line prints: its own, or that of its class."""
    own: str = getattr(error, "id", "")
    return own or next((id for kind, id in _IDS.items() if isinstance(error, kind)), "")


def _marked(text: str, error: Exception) -> str:
    """Return the text of an error with its id, in brackets at the end of the first line."""
    first, *rest = text.split("\n")
    id = id_of(error)
    return "\n".join([f"{first} [{id}]" if id else first, *rest])


def _show(error: click.ClickException) -> None:
    text = error.format_message()
    if text:  # otherwise the help is printed
        error.format_message = lambda: _marked(text, error)  # type: ignore[method-assign]
    error.show()


def _failed(error: OSError | UetError) -> int:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename is not None else error.strerror
    lines = [printable(shortened(line, _LONGEST)) for line in text.split("\n")]
    print("uetproto:", _marked("\n".join(lines), error), file=sys.stderr)
    return FAULT if isinstance(error, RemoteError) else MISUSE


def _discard_output() -> None:
    """Redirect standard output to the null device after it was closed, so that buffered output does not fail at
    exit.
    """
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):  # standard output has no file descriptor
        pass


@click.group(
    cls=Commands,
    context_settings={"help_option_names": _HELP},
    params=[COLOR],
    epilog=f"""\b
Example:
  uetproto run gradient -o gradient.pcapng
  uetproto dissect gradient.pcapng
  uetproto explain unknown-key        # the id in brackets behind an error

{EXIT_STATUS}""",
)
@click.version_option(__version__, prog_name="uetproto", message="%(prog)s %(version)s")
def cli() -> None:
    """Decode packets of Ultra Ethernet Transport and RDMA bit by bit, and emulate endpoints in virtual time."""
