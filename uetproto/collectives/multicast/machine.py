"""This module runs state machines by tables of guard, action and next state, as in collectives.md §3.10.3 and
§3.10.5.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from uetproto.collectives.multicast.end import Done, MulticastCounters, MulticastEnd
from uetproto.collectives.multicast.plan import MulticastPlan
from uetproto.errors import UetError

State = TypeVar("State", bound=Enum)


class TransitionRow(NamedTuple, Generic[State]):
    """A transition row has the name of the guard method, the name of the action method, and the next state."""

    when: str
    do: str
    then: State


Table: TypeAlias = Mapping[State, tuple[TransitionRow[State], ...]]
"""Rows of each state; the machine takes the first row whose guard is true. A state without rows is a final one."""


class MachineContext(NamedTuple):
    """A machine context holds the objects that all machines of an operation share."""

    plan: MulticastPlan
    rank: int
    end: MulticastEnd
    counted: MulticastCounters
    moved: Callable[[], None]
    """Function that is called after rows were taken, when no further row can be taken."""
    failed: Callable[[UetError], None]


class Machine(Generic[State]):
    """A machine takes rows of its table as long as a guard is true.

    An action may wait for completions (`waited`); its row then ends with the last of them.

    A subclass names its table. The rows are compiled when the class is made, so that the name of an unknown method
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
        """State after the row in progress."""
        self._open = 0
        """Completions that the row waits for."""
        self._nested = False
        self._stopped = False

    @property
    def ended(self) -> bool:
        """Return whether the machine is in a final state."""
        return not self._rows.get(self.state)

    def advance(self) -> None:
        """Take rows as long as a guard is true; a call from within an action returns at once, and the loop
        continues.
        """
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
        """Make the current row wait for one more completion; return the function to call at that completion.

        The function calls `then`, if given, and continues the machine; an error fails the operation.
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
        """Handle a completion for which no row waits: an error fails the operation, success has no effect."""
        if error is not None:
            self._failed(error)

    # Guards and actions of tables

    def always(self) -> bool:
        """Return True; this is the guard of a row that may always be taken."""
        return True

    def nothing(self) -> None:
        """Do nothing; this is the action of a row that only changes the state."""
