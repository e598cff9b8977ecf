# SPDX-License-Identifier: GPL-2.0-only
"""This module runs state machines. Each has a table of guards, actions and next states, as in collectives.md §3.10.3
and §3.10.5."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from uetproto.collectives.multicast.end import Done, MulticastCounters, MulticastEnd
from uetproto.collectives.multicast.plan import MulticastPlan
from uetproto.errors import UetError

State = TypeVar("State", bound=Enum)


class TransitionRow(NamedTuple, Generic[State]):
    """This record is a row of a transition table: the name of the guard method, the name of the action method, and the
    next state."""

    when: str
    do: str
    then: State


Table: TypeAlias = Mapping[State, tuple[TransitionRow[State], ...]]
"""Type of a transition table, with the rows of each state. The machine takes the first row whose guard is true. A state
without rows is final."""


class MachineContext(NamedTuple):
    """This record holds the objects that all state machines of an operation share."""

    plan: MulticastPlan
    rank: int
    end: MulticastEnd
    counted: MulticastCounters
    moved: Callable[[], None]
    """Function that is called after a machine has taken rows and can take no further row."""
    failed: Callable[[UetError], None]


class Machine(Generic[State]):
    """This class runs a state machine. It takes rows of its transition table as long as a guard is true.

    An action may wait for completions (`waited`). The next row is then taken only after the last of these completions.

    A subclass names its table as a class argument. The table is checked when the class is made: a name without a method
    raises an error at import.
    """

    _rows: Mapping[State, tuple[tuple[Callable[[Any], bool], Callable[[Any], None], State], ...]]

    def __init_subclass__(cls, *, table: Table[State]) -> None:
        cls._rows = {
            state: tuple((getattr(cls, row.when), getattr(cls, row.do), row.then) for row in rows)
            for state, rows in table.items()
        }

    def __init__(self, state: State, context: MachineContext) -> None:
        self.state = state
        self.plan, self.rank, self.end, self.counted, self._moved, self._failed = context
        self._next_state: State | None = None
        """State that follows when the row in progress has ended. It is None if no row is in progress."""
        self._open = 0
        """Number of completions that the row in progress waits for."""
        self._nested = False
        self._stopped = False

    @property
    def ended(self) -> bool:
        """Return whether the machine is in a final state, which has no rows."""
        return not self._rows.get(self.state)

    def advance(self) -> None:
        """Take rows as long as a guard is true. A call from within an action returns at once, and the call in progress
        continues."""
        if self._nested:
            return
        self._nested, moved = True, False
        while not self._open and not self._stopped:
            if self._next_state is not None:
                self.state, self._next_state, moved = self._next_state, None, True
            row = next((row for row in self._rows.get(self.state, ()) if row[0](self)), None)
            if row is None:
                break
            _, action, self._next_state = row
            action(self)
        self._nested = False
        if moved:
            self._moved()

    def stop(self) -> None:
        """Stop the machine, because the operation has failed."""
        self._stopped = True

    def waited(self, then: Callable[[], None] | None = None) -> Done:
        """Make the row in progress wait for one more completion, and return the function to call at that completion.

        This function calls `then`, if it is given, and continues the machine. If it is called with an error, the
        operation fails.
        """
        self._open += 1

        def done(error: UetError | None) -> None:
            if error is not None:
                self._failed(error)
                return
            if self._stopped:
                return
            self._open -= 1
            if then is not None:
                then()
            self.advance()

        return done

    def unwaited(self, error: UetError | None) -> None:
        """Handle a completion for which no row waits. An error fails the operation; success has no effect."""
        if error is not None:
            self._failed(error)

    # Guards and actions of tables

    def always(self) -> bool:
        """Return True. This is the guard of a row that may always be taken."""
        return True

    def nothing(self) -> None:
        """Do nothing. This is the action of a row that only changes the state."""
