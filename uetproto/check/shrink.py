# SPDX-License-Identifier: GPL-2.0-only
"""This module shortens and simplifies a list of steps that leads to a failure, as long as the failure stays the same.
It uses delta debugging (ddmin), and then makes single steps simpler.

Halves of the list are removed first, then smaller and smaller parts, and at last single steps. Then each remaining step
gets smaller values. Both stages are repeated until neither stage helps, the tries are used up, or the caller gives up.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

TRIES = 10_000

_S = TypeVar("_S", bound=Hashable)


def smaller(number: int, least: int = 0, by: int = 1) -> Iterator[int]:
    """Yield candidates below `number` in ascending order: `least`, the next lower power of ten, the half, and `number
    - by`."""
    yield from sorted({n for n in (least, _round(number), number // 2, number - by) if least <= n < number})


def _round(number: int) -> int:
    """Return the greatest power of ten below `number`."""
    return int(10 ** (len(str(number - 1)) - 1))


def shorter(data: bytes) -> Iterator[bytes]:
    """Yield shorter candidates: no bytes, the first half, and all bytes but the last."""
    if data:
        yield from (b"", data[: len(data) // 2], data[:-1])


def shrink(
    steps: Sequence[_S],
    fails: Callable[[Sequence[_S]], bool],
    simpler: Callable[[_S], Iterable[_S]],
    tries: int = TRIES,
    give_up: Callable[[], bool] = lambda: False,
) -> list[_S]:
    """Return the shortest list of steps that was found and for which `fails` is true. `fails` must be true for `steps`.

    Equal arguments give equal results. `simpler` yields candidates that may replace one step. When `give_up()` is
    true, the search ends with the best list so far.
    """
    search = _Search(list(steps), fails, tries, give_up, simpler)
    before = None
    while search.best != before:
        before = search.best
        search.remove()
        search.simplify()
    return search.best


@dataclass
class _Search(Generic[_S]):
    """This class holds the best list so far, and how many tries are left."""

    best: list[_S]
    fails: Callable[[Sequence[_S]], bool]
    left: int
    give_up: Callable[[], bool]
    simpler: Callable[[_S], Iterable[_S]]
    refused: set[tuple[_S, ...]] = field(default_factory=set)

    def accept(self, candidate: list[_S]) -> bool:
        """Return whether the candidate fails as well, and is now the best. A refused candidate is not tried again."""
        if self.left <= 0 or self.give_up():
            self.left = 0
            return False
        key = tuple(candidate)
        if key in self.refused:
            return False
        self.left -= 1
        if not self.fails(candidate):
            self.refused.add(key)
            return False
        self.best = candidate
        return True

    def remove(self) -> None:
        """Leave out chunks, from the last to the first, until no single step can be left out (ddmin)."""
        size = max(1, len(self.best) // 2)
        while self.left > 0:
            removed = False
            end = len(self.best)
            while end > 0:
                start = max(0, end - size)
                removed |= self.accept(self.best[:start] + self.best[end:])
                end = start
            if size == 1 and not removed:
                return
            size = max(1, size // 2)

    def simplify(self) -> None:
        """Replace each step by simpler ones as long as that fails, from the last step to the first."""
        for at in reversed(range(len(self.best))):
            while self.left > 0 and any(self._replace(at, step) for step in self.simpler(self.best[at])):
                pass

    def _replace(self, at: int, step: _S) -> bool:
        return self.accept([*self.best[:at], step, *self.best[at + 1 :]])
