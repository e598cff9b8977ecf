"""This module registers the numbered invariants of a page of docs/protocol: what each checks, when, and under which
settings.

An invariant is one function, `PREFIX_NUMBER_name`, whose docstring is the statement. The function gets the arguments
that belong to its scope, and raises `InvariantViolation`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag
from typing import Any, Generic, TypeVar


class InvariantViolation(AssertionError):  # noqa: N818 - the word of the pages
    """An invariant does not hold; the text begins with the invariant's number, as in `pds 13`."""

    def __init__(self, number: str, text: str, *values: Any) -> None:
        self.number = number
        told = " ".join(f"{value:#x}" if type(value) is int else str(value) for value in values)
        super().__init__(f"{number}: {text} {told}".rstrip())


class Disruption(Flag):
    """A disruption is an event after which some invariants are not required any more."""

    NONE = 0
    FORGED = 1
    """Bytes arrived that no end has sent."""
    RESTARTED = 2
    """An end lost all of its state."""
    LOST = 4
    """A destination lost a guaranteed response."""


Check = Callable[..., None]
Kind = type | Enum
ScopeT = TypeVar("ScopeT", bound=Enum)
_F = TypeVar("_F", bound=Check)


@dataclass(frozen=True, slots=True)
class Invariant(Generic[ScopeT]):
    """An entry of the register says what an invariant checks, and when."""

    number: int
    scope: ScopeT
    check: Check
    kinds: tuple[Kind, ...]
    """The types of packet or event for which the invariant is checked; empty: all of the scope."""
    when: Callable[..., bool]
    """Whether the invariant applies under given settings; each protocol has its own arguments."""
    void_after: Disruption

    @property
    def name(self) -> str:
        return self.check.__name__

    @property
    def statement(self) -> str:
        return self.check.__doc__ or ""


class Registry(Generic[ScopeT]):
    """A registry holds all invariants of one page, by number."""

    def __init__(self, prefix: str, when: Callable[..., bool]) -> None:
        """`prefix` begins the names of the functions and the texts of violations; `when` is the default condition."""
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
        """Register the decorated function `PREFIX_NUMBER_name`."""

        def register(check: _F) -> _F:
            prefix, told, _ = check.__name__.split("_", 2)
            assert (prefix, int(told)) == (self._prefix, number), check.__name__
            assert number not in self.entries, number
            self.entries[number] = Invariant(number, scope, check, kinds, when or self._when, void_after)
            return check

        return register

    def broken(self, number: int, text: str, *values: Any) -> InvariantViolation:
        """Return the violation of an invariant."""
        return InvariantViolation(f"{self._prefix} {number}", text, *values)

    def holding(self, disruptions: Disruption, *settings: Any) -> list[Invariant[ScopeT]]:
        """Return the invariants that apply under `settings` and after `disruptions`, in the order of registration."""
        found = self.entries.values()
        return [entry for entry in found if entry.when(*settings) and not entry.void_after & disruptions]
