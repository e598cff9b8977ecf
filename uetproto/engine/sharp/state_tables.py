# SPDX-License-Identifier: GPL-2.0-only
"""A state table maps (state, input) to (name of the action, next state); compiling replaces the names by methods."""

from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, TypeAlias

StateTable: TypeAlias = dict[tuple[Any, Any], tuple[str, Any]]
CompiledTable: TypeAlias = dict[tuple[Any, Any], tuple[Callable[..., None], Any]]


def compile_table(table: StateTable, owner: type) -> CompiledTable:
    """Return `table` with the methods of `owner` in place of their names.

    Raises `AttributeError` for a name that is no method of `owner`. The function is called when a class is defined, so
    the error comes at import.
    """
    return {pair: (getattr(owner, action), after) for pair, (action, after) in table.items()}


class TableMachine:
    """A table machine is a state machine with a state table, which is compiled when the class is defined."""

    state: Any
    compiled: ClassVar[CompiledTable]

    def __init_subclass__(cls, table: StateTable) -> None:
        cls.compiled = compile_table(table, cls)

    def step(self, event: Enum, *details: Any) -> bool:
        """Enter the next state for an input and call the method of the action with `details`; return False if the table
        has no entry for state and input."""
        row = self.compiled.get((self.state, event))
        if row is None:
            return False
        action, self.state = row
        action(self, *details)
        return True
