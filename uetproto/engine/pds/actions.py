# SPDX-License-Identifier: GPL-2.0-only
"""This module compiles the state tables of a PDC: it replaces the names of the actions by functions.

The import raises `KeyError` if a table has a name for which there is no function.
"""

from collections.abc import Callable
from typing import Any

from uetproto.engine.pds import control, destination, lifecycle, source
from uetproto.engine.pds.pdc import Pdc, Row
from uetproto.engine.pds.states import STATES, Input, Role, State, row

ACTIONS: dict[str, Callable[..., Any]] = {
    name: function
    for module in (source, destination, control, lifecycle)
    for name, function in vars(module).items()
    if callable(function) and not isinstance(function, type)
}
"""Functions of the four modules by name. The state tables name some of these functions. They are the actions,
and their first argument is a PDC."""


def _compile(role: Role) -> dict[State, list[Row]]:
    """Return the table of a role with functions in place of names: one list a state, indexed by input."""
    compiled: dict[State, list[Row]] = {}
    for state in STATES[role]:
        found = (row(role, state, event) for event in Input)
        compiled[state] = [None if entry is None else (ACTIONS[entry[0]], entry[1]) for entry in found]
    return compiled


Pdc.compiled = {role: _compile(role) for role in (Role.INITIATOR, Role.TARGET)}
