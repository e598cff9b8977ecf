# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto explain`, and the table of the ids of errors, `errors.toml`."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from textwrap import wrap

import click

import uetproto
from uetproto import LocalError
from uetproto.cli.main import EXIT_STATUS
from uetproto.cli.terminal import Paint, painter, tell, width
from uetproto.errors import shown, similar

_PARTS = ("means", "do", "example", "seen")


@cache
def explanations() -> Mapping[str, dict[str, str]]:
    """Return for each id of an error what it `means`, what to `do`, and an `example` that ends in it or a message that
    was `seen`."""
    table: dict[str, dict[str, str]] = tomllib.loads(
        (Path(uetproto.__file__).parent / "errors.toml").read_text(encoding="utf-8")
    )
    return table


@click.command(
    epilog=f"""\b
Example:
  uetproto explain unknown-key
  uetproto explain | less

{EXIT_STATUS}"""
)
@click.argument("id", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines: id, means, do, and example or seen.")
def command(id: str | None, as_json: bool) -> None:
    """Say what an error means and what to do about it.

    ID stands in brackets behind the message of the error. Without ID, all are listed."""
    known = explanations()
    name = None if id is None else id.strip("[]").lower()
    if name is not None and name not in known:
        told = f"there is no such id{similar(name, known)}"
        raise LocalError(
            f"ID {id or shown(id)}",
            told,
            "what uetproto explain lists; rules: uetproto audit --explain",
            id="unknown-id",
        )
    chosen = known if name is None else {name: known[name]}
    if as_json:
        for one, parts in chosen.items():
            click.echo(json.dumps({"id": one} | parts, ensure_ascii=False))
    elif name is not None:
        tell(_explained(name, known[name], width(), painter()))
    else:
        paint = painter()
        tell(f"{paint(f'{one:24}', 'bold')}{parts['means']}" for one, parts in chosen.items())


def _explained(name: str, parts: Mapping[str, str], columns: int, paint: Paint) -> Iterator[str]:
    yield paint(name, "bold")
    for part in _PARTS:
        if part in parts:
            yield from wrap(
                parts[part], columns, initial_indent=f"  {part:10}", subsequent_indent=" " * 12, break_on_hyphens=False
            )
