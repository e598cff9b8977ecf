# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the text of STATES.md from the state tables of the engine."""

from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from typing import Any

from uetproto.engine.pds.actions import ACTIONS
from uetproto.engine.pds.states import (
    GLOSSARY,
    LOCAL,
    PACKETS,
    PROGRESS,
    STATES,
    TABLES,
    TIMERS,
    Input,
    Role,
    State,
    row,
)
from uetproto.engine.pds.sublayer import Pds
from uetproto.engine.ses.transfer import MESSAGE, MessageInput, MessageState, MessageTransfer
from uetproto.engine.sharp.node import states as sharp_states
from uetproto.engine.sharp.state_tables import StateTable

_TITLES = {
    Role.CLOSED: "No PDC (UE 1.0.1 §3.5.8.2; pds.md §6.3)",
    Role.INITIATOR: "Initiator PDC (UE 1.0.1 §3.5.9.3, Fig 3-48; pds.md §6.4)",
    Role.TARGET: "Target PDC (UE 1.0.1 §3.5.9.4, Fig 3-49; pds.md §6.5)",
}
_GROUPS = (("packets", PACKETS), ("local calls", LOCAL), ("progress", PROGRESS), ("time", TIMERS))


_WRITTEN = (
    "Written by `tools/generate` from the tables in `pds/states.py`, `ses/transfer.py` and `sharp/node/states.py`; "
    "the tests try every pair."
)
_HOW_TO_READ = """
A cell names the action, and behind `→` the next state where the state changes. An action that returns False (for a PSN
outside the window, or an ACK of packets never sent) leaves the state as it is. *Italics* mark a packet that has no row
in this state: the default action for it, which also counts the packet. LocalError: the local call is refused. An empty
cell: the input does not occur in this state.
"""


def states_markdown() -> str:
    """Return the text of STATES.md: action and next state for every state and input."""
    parts = [
        "# States of the engine",
        _WRITTEN,
        " ".join(_HOW_TO_READ.split()),
    ]
    for role in Role:
        parts += [f"## {_TITLES[role]}", *(_matrix(role, group, inputs) for group, inputs in _GROUPS)]
    parts += ["## Message at its initiator (ses.md §12)", _messages()]
    parts += ["## Inputs of a PDC", *(_glossary(group, inputs) for group, inputs in _GROUPS)]
    parts += ["## Actions", _actions()]
    for title, machine in sharp_states.TABLES.items():
        parts += [f"## {title}", _aggregation(*machine)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _matrix(role: Role, group: str, inputs: tuple[Input, ...]) -> str:
    states = STATES[role]
    rows = [(event, [_cell(role, state, event) for state in states]) for event in inputs]
    rows = [(event, cells) for event, cells in rows if any(cells)]
    if not rows or (role is Role.CLOSED and group == "local calls"):
        return ""
    return _table([group, *(state.name for state in states)], [[event.name, *cells] for event, cells in rows])


def _cell(role: Role, state: State, event: Input) -> str:
    found = row(role, state, event)
    if found is None:
        return "LocalError" if event in LOCAL else ""
    action, target = found
    named = action if (state, event) in TABLES[role] else f"*{action}*"
    return named if target is state else f"{named} → {target.name}"


def _glossary(group: str, inputs: tuple[Input, ...]) -> str:
    return _table([group, "what it is", "section"], [[event.name, *GLOSSARY[event]] for event in inputs])


def _messages() -> str:
    return _table(
        ["input", *(state.name for state in MessageState)],
        [[event.name, *(_next(MESSAGE, state, event) for state in MessageState)] for event in MessageInput],
    )


def _next(table: Mapping[Any, tuple[str, IntEnum]], state: IntEnum, event: Enum) -> str:
    """Return the action of a pair, and the next state where the state changes."""
    found = table.get((state, event))
    return "" if found is None else found[0] if found[1] is state else f"{found[0]} → {found[1].name}"


def _aggregation(table: StateTable, states: type[IntEnum], inputs: type[Enum]) -> str:
    return _table(
        ["input", *(state.name for state in states), "what it is"],
        [[event.name, *(_next(table, state, event) for state in states), event.value] for event in inputs],
    )


def _actions() -> str:
    """Return a table of the actions with the first line of their docstrings."""
    named: dict[str, str] = {}
    for role in Role:
        for state in STATES[role]:
            for event in Input:
                found = row(role, state, event)
                if found is not None:
                    function = vars(Pds)[found[0]] if role is Role.CLOSED else ACTIONS[found[0]]
                    named.setdefault(found[0], _first_line(function))
    for action, _ in MESSAGE.values():
        named.setdefault(f"message: {action}", _first_line(vars(MessageTransfer)[action]))
    return _table(["action", "what it does"], [[name, named[name]] for name in sorted(named)])


def _first_line(function: Callable[..., object]) -> str:
    document = function.__doc__ or ""
    return str(document.strip().splitlines()[0]).replace("|", "\\|")


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join(lines)
