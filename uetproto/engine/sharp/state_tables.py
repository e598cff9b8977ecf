"""A state table maps (state, input) to (action, next state); its compiled form has methods for action names."""

from collections.abc import Callable
from typing import Any, TypeAlias

StateTable: TypeAlias = dict[tuple[Any, Any], tuple[str, Any]]
CompiledTable: TypeAlias = dict[tuple[Any, Any], tuple[Callable[..., None], Any]]


def compile_table(table: StateTable, owner: type) -> CompiledTable:
    """Return `table` with the methods of `owner` in place of their names.

    The classes call it at import, so that a name which is no method of `owner` raises `AttributeError` there.
    """
    return {pair: (getattr(owner, action), after) for pair, (action, after) in table.items()}
