"""A state machine with a table like that of the page: guard, action, next state (collectives.md §3.10.3, §3.10.5)."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from uetproto.collectives.multicast.end import Done
from uetproto.errors import UetError

State = TypeVar("State", bound=Enum)


class TransitionRow(NamedTuple, Generic[State]):
    """Holds a row: names of methods, and the next state."""

    when: str
    do: str
    then: State


Table: TypeAlias = Mapping[State, tuple[TransitionRow[State], ...]]
"""Rows of each state, of which the first whose guard holds is taken. A state without rows is the last one."""


class Machine(Generic[State]):
    """Takes rows while a guard holds. An action that waits for completions ends its row with the last of them."""

    def __init__(
        self, table: Table[State], state: State, moved: Callable[[], None], failed: Callable[[UetError], None]
    ) -> None:
        """Starts in the first state. `moved`: called after rows were taken, when no further one can be."""
        self.state = state
        self._table = table
        self._moved = moved
        self._failed = failed
        self._taken: TransitionRow[State] | None = None
        self._open = 0
        """Completions that the row waits for."""
        self._nested = False
        self._stopped = False

    @property
    def ended(self) -> bool:
        """Return whether it is in its last state."""
        return not self._table.get(self.state)

    def advance(self) -> None:
        """Takes rows whose guards hold now. It is not recursive, because completions may come at once."""
        if self._nested:
            return
        self._nested, moved = True, False
        while not self._open and not self._stopped:
            if self._taken is not None:
                self.state, self._taken, moved = self._taken.then, None, True
            row = next((row for row in self._table.get(self.state, ()) if getattr(self, row.when)()), None)
            if row is None:
                break
            self._taken = row
            getattr(self, row.do)()
        self._nested = False
        if moved:
            self._moved()

    def stop(self) -> None:
        """Stops it: the operation has failed."""
        self._stopped = True

    def waited(self, then: Callable[[], None] | None = None) -> Done:
        """Return a completion that the current row waits for."""
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
        """Return a completion that has an effect only if it is an error."""
        if error is not None:
            self._failed(error)

    # What tables say

    def always(self) -> bool:
        """Return True: the guard of a row that needs none."""
        return True

    def nothing(self) -> None:
        """Does nothing: the action of a row that only changes the state."""
