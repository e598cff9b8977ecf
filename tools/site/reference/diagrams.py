# SPDX-License-Identifier: GPL-2.0-only
"""This module draws the state tables of the engines: each state, and the inputs that change it. Graphviz lays out."""

import re
import subprocess
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from uetproto.engine.pds.states import TABLES, Role, State
from uetproto.engine.ses.transfer import MESSAGE
from uetproto.engine.sharp.node import states as sharp_states

LABELS = 4
"""Number of inputs above which an arrow names the first ones and the number of the others."""

Edges = Iterable[tuple[Enum, Enum, Enum]]


def with_diagrams(text: str) -> str:
    """Return the page of state tables with a diagram under the heading of each machine."""
    for title, edges in machines().items():
        heading = re.search(rf"^## {re.escape(title)}.*$", text, re.MULTILINE)
        if heading is None:
            raise ValueError(f"STATES.md has no section {title}")
        text = f"{text[: heading.end()]}\n\n{drawn(heading[0][3:], edges)}{text[heading.end() :]}"
    return text


def machines() -> dict[str, list[tuple[Enum, Enum, Enum]]]:
    """Return the changes of state of each machine, by its title: state, input, and state after it."""
    opened = {pair: row for pair, row in TABLES[Role.CLOSED].items() if row[1] is State.CREATING}
    accepted = {pair: row for pair, row in TABLES[Role.CLOSED].items() if row[1] is not State.CREATING}
    machines: dict[str, Mapping[tuple[Any, Any], tuple[str, Any]]] = {
        "Initiator PDC": {**opened, **TABLES[Role.INITIATOR]},
        "Target PDC": {**accepted, **TABLES[Role.TARGET]},
        "Message at its initiator": MESSAGE,
        **{title: table for title, (table, *_) in sharp_states.TABLES.items()},
    }
    return {
        title: [(state, event, after) for (state, event), (_, after) in table.items() if state is not after]
        for title, table in machines.items()
    }


def drawn(title: str, edges: Edges) -> str:
    """Return the diagram of a machine, as HTML in one block."""
    inputs: dict[tuple[str, str], list[str]] = {}
    for state, event, after in edges:
        inputs.setdefault((state.name, after.name), []).append(event.name)
    lines = [f'{before} -> {after} [label="{_label(names)}"];' for (before, after), names in inputs.items()]
    graph = (
        'digraph { bgcolor=transparent; rankdir=TB; nodesep=0.5; node [shape=box, style=rounded, fontname="monospace", '
        'fontsize=11]; edge [fontname="monospace", fontsize=9];\n' + "\n".join(lines) + "\n}"
    )
    done = subprocess.run(["dot", "-Tsvg"], input=graph, capture_output=True, text=True, check=True)
    picture = done.stdout[done.stdout.index("<svg") :]
    picture = re.sub(r"<title>.*?</title>|<!--.*?-->|\n", "", picture).replace('"black"', '"currentColor"')
    named = picture.replace("<svg", f'<svg role="img" aria-label="{title}: states and the inputs that change them"', 1)
    return f'<figure class="states">{named}</figure>\n'


def _label(names: list[str]) -> str:
    shown = names if len(names) <= LABELS else [*names[: LABELS - 1], f"{len(names) - LABELS + 1} others"]
    return "".join(f" {name}\\l" for name in shown)
