# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto scenario`: it lists and shows the shipped scenarios, and writes new files."""

import json
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import click

from uetproto import LocalError
from uetproto.cli.main import EXIT_STATUS
from uetproto.cli.scenario.template import template
from uetproto.cli.terminal import painter, printable, shortened, tell, width
from uetproto.emulator.scenario.settings import SHIPPED, names
from uetproto.errors import similar


@click.group(
    epilog=f"""\b
Example:
  uetproto scenario list 'ses-*'
  uetproto scenario show gradient-lossy
  uetproto scenario new mine.toml && uetproto run mine.toml -o mine.pcapng

{EXIT_STATUS}"""
)
def command() -> None:
    """List, show or write scenarios: the TOML files that `uetproto run` plays."""


@command.command("list", epilog="\b\nExample:\n  uetproto scenario list 'ladder-*'")
@click.argument("glob", required=False, default="*", metavar="[GLOB]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a scenario: name and description.")
def list_(glob: str, as_json: bool) -> None:
    """List the shipped scenarios whose names match GLOB, with a few words each."""
    found = [name for name in names() if fnmatchcase(name, glob)]
    if not found:
        raise LocalError(
            "GLOB", f"{glob!r} matches no scenario{similar(glob.strip('*?'), names())}", "* for all",
            id="unknown-scenario"
        )  # fmt: skip
    about = {name: _description(name) for name in found}
    if as_json:
        for name, words in about.items():
            click.echo(json.dumps({"name": name, "description": words}))
        return
    paint, room = painter(), max(map(len, found))
    columns = width()
    tell(f"{paint(f'{name:{room}}', 'bold')}  {shortened(words, columns - room - 2)}" for name, words in about.items())


@command.command("show", epilog="\b\nExample:\n  uetproto scenario show gradient > mine.toml")
@click.argument("name", metavar="NAME")
def show(name: str) -> None:
    """Print the file of a shipped scenario."""
    click.echo(_text(name), nl=False)


@command.command("new", epilog="\b\nExample:\n  uetproto scenario new mine.toml --from gradient-lossy")
@click.argument("file", metavar="FILE.toml")
@click.option("--from", "source", metavar="NAME", help="Copy this shipped scenario; default: a commented one.")
def new(file: str, source: str | None) -> None:
    """Write a scenario file to begin with: two nodes and a write, and every other key with its default as a comment.

    A file that exists is not overwritten. The data of a shipped scenario stay where they are; if that is below the
    folder of the new file, it names them relative to itself.
    """
    if not file.endswith(".toml"):
        raise LocalError("FILE", f"{file!r} is no name of a scenario", "a name that ends with .toml", id="wrong-suffix")
    text = template() if source is None else _text(source)
    copied = [] if source is None else [path for path in SHIPPED.glob("*.npy") if f'"{path.name}"' in text]
    folder = Path(file).resolve().parent
    for path in map(Path.resolve, copied):
        beside = path.relative_to(folder) if path.is_relative_to(folder) else path
        text = text.replace(f'"{path.name}"', json.dumps(str(beside)))
    try:
        with open(file, "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise LocalError("FILE", f"{file} exists", "a name that no file has", id="file-exists") from None
    tell([f"{printable(file)}: play it with: uetproto run {printable(file)} -o out.pcapng"], aside=True)


def _text(name: str) -> str:
    known = names()
    if name not in known:
        legal = f"{', '.join(known)}; uetproto scenario list has all"
        raise LocalError(name, f"no such scenario{similar(name, known)}", legal, id="unknown-scenario")
    return (SHIPPED / f"{name}.toml").read_text(encoding="utf-8")


def _description(name: str) -> str:
    described: str = tomllib.loads(_text(name)).get("run", {}).get("description", "")
    return described
