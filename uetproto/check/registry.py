# SPDX-License-Identifier: GPL-2.0-only
"""This module registers the numbered invariants of a page of docs/protocol. It knows for each invariant what is
checked, when, and under which settings.

An invariant is one function, `PREFIX_NUMBER_name`, whose docstring is the statement. The function gets the arguments
that belong to its scope, and raises `InvariantViolation`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag
from typing import Any, Generic, TypeVar


class InvariantViolation(AssertionError):  # noqa: N818 - the word of the pages
    """This exception says that an invariant does not hold. Its text begins with the invariant's number, such as `pds
    13`."""

    def __init__(self, number: str, text: str, *values: Any) -> None:
        self.number = number
        told = " ".join(f"{value:#x}" if type(value) is int else str(value) for value in values)
        super().__init__(f"{number}: {text} {told}".rstrip())


class Disruption(Flag):
    """A disruption is an event after which some invariants need not hold."""

    NONE = 0
    FORGED = 1
    """Bytes arrived that no end has sent."""
    RESTARTED = 2
    """An endpoint lost all of its state in a restart."""
    LOST = 4
    """A destination lost a guaranteed response that it had stored."""


Check = Callable[..., None]
Kind = type | Enum
ScopeT = TypeVar("ScopeT", bound=Enum)
_F = TypeVar("_F", bound=Check)


@dataclass(frozen=True, slots=True)
class Invariant(Generic[ScopeT]):
    """This record says what an invariant checks, and when it is checked."""

    number: int
    scope: ScopeT
    check: Check
    kinds: tuple[Kind, ...]
    """Types of packet or event for which the invariant is checked. If it is empty, the invariant is checked for all
    types of the scope."""
    when: Callable[..., bool]
    """Function that returns whether the invariant applies under the given settings. Its arguments differ from protocol
    to protocol."""
    void_after: Disruption

    @property
    def name(self) -> str:
        return self.check.__name__

    @property
    def statement(self) -> str:
        return self.check.__doc__ or ""


class Registry(Generic[ScopeT]):
    """A registry has all invariants of one page of docs/protocol, by number."""

    def __init__(self, prefix: str, when: Callable[..., bool]) -> None:
        """Begin an empty registry. Names of functions and texts of violations begin with `prefix`; `when` is the
        condition of invariants that state none."""
        self.entries: dict[int, Invariant[ScopeT]] = {}
        self._prefix = prefix
        self._when = when

    def invariant(
        self,
        number: int,
        scope: ScopeT,
        *kinds: Kind,
        when: Callable[..., bool] | None = None,
        void_after: Disruption = Disruption.NONE,
    ) -> Callable[[_F], _F]:
        """Return a decorator that registers a function named `PREFIX_NUMBER_name` as the invariant `number`."""

        def register(check: _F) -> _F:
            prefix, told, _ = check.__name__.split("_", 2)
            assert (prefix, int(told)) == (self._prefix, number), check.__name__
            assert number not in self.entries, number
            self.entries[number] = Invariant(number, scope, check, kinds, when or self._when, void_after)
            return check

        return register

    def broken(self, number: int, text: str, *values: Any) -> InvariantViolation:
        """Return the violation of the invariant `number`; its text ends with `values`."""
        return InvariantViolation(f"{self._prefix} {number}", text, *values)

    def holding(self, disruptions: Disruption, *settings: Any) -> list[Invariant[ScopeT]]:
        """Return the invariants that apply under `settings` and still hold after `disruptions`, in the order of
        registration."""
        found = self.entries.values()
        return [entry for entry in found if entry.when(*settings) and not entry.void_after & disruptions]
