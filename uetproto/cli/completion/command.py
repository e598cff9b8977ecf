# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto completion`: it prints what makes a shell complete command lines."""

import click
from click.shell_completion import get_completion_class

from uetproto.cli.choice import Choice
from uetproto.cli.main import COMPLETE_VARIABLE, cli

FILES = {
    "bash": "share/bash-completion/completions/uetproto",
    "zsh":  "share/zsh/site-functions/_uetproto",
    "fish": "share/fish/vendor_completions.d/uetproto.fish",
}  # fmt: skip
"""Where each shell looks for scripts below a prefix such as /usr. The wheel installs them there."""


@click.command(
    epilog="""\b
Example:
  eval "$(uetproto completion bash)"                       # in ~/.bashrc; bash 4.4 or later
  uetproto completion zsh > ~/.zfunc/_uetproto             # a folder of $fpath, before compinit
  uetproto completion fish > ~/.config/fish/completions/uetproto.fish"""
)
@click.argument("shell", type=Choice(tuple(FILES)), metavar="bash|zsh|fish")
def command(shell: str) -> None:
    """Print a script for a shell, which then completes commands, options and their values.

    Values are files, scenarios, profiles, rules, mutations, machines, algorithms, topologies and keys of --set.
    """
    click.echo(script(shell))


def script(shell: str) -> str:
    """Return the script for a shell."""
    completion = get_completion_class(shell)
    assert completion is not None
    text = completion(cli, {}, "uetproto", COMPLETE_VARIABLE).source()
    plain, without_space = _WITHOUT_SPACE.get(shell, ("", ""))
    assert plain in text
    return text.replace(plain, without_space) if plain else text


def files() -> dict[str, str]:
    """Return the text of each script by its place, with a line that states the licence and where the text is from."""
    from uetproto.cli.man import LICENCE  # it is needed only for `tools/generate`

    banner = f"# {LICENCE}\n# Written by tools/generate.\n"
    found = {}
    for shell, place in FILES.items():
        first, rest = script(shell).split("\n", 1)  # zsh reads the first line
        text = f"{first}\n{banner}{rest}" if first.startswith("#") else f"{banner}{first}\n{rest}"
        found[place] = "".join(f"{line.rstrip()}\n" for line in text.strip().split("\n"))
    return found


_WITHOUT_SPACE = {
    "bash": (
        "COMPREPLY+=($value)",
        "COMPREPLY+=($value)\n            [[ $value == *= ]] && compopt -o nospace 2> /dev/null",
    ),
    "zsh": (
        "compadd -U -V unsorted -a completions",
        """\
local -a unfinished
        unfinished=(${(M)completions:#*=})
        completions=(${completions:#*=})
        compadd -U -S '' -V unsorted -a unfinished
        compadd -U -V unsorted -a completions""",
    ),
}
"""What stands in Click's scripts, and in its place what adds no space behind a key, whose value follows. Fish adds none
of itself."""
