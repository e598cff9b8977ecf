"""Fewer and simpler steps that still fail: delta debugging (ddmin), then the single steps.

Steps are removed in chunks, halves first, single ones last; what is left gets smaller numbers, plain answers, shorter
messages. Both are repeated until nothing helps any more, the tries are used up, or nobody waits for the result.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from uetproto.check.uet.steps import Message, Step

TRIES = 10_000
"""Candidates that are put to the test."""

_S = TypeVar("_S", bound=Hashable)

_PLAIN = Message()


def simpler(step: Step) -> Iterator[Step]:
    """Steps that say less than this one, the boldest first."""
    yield from (step._replace(node=node) for node in smaller(step.node))
    yield from (step._replace(number=number) for number in smaller(step.number))
    yield from (step._replace(at=at) for at in smaller(step.at))
    if step.answer != _PLAIN.answer:
        yield step._replace(answer=_PLAIN.answer)
    if step.data:
        half = len(step.data) // 2
        yield from (step._replace(data=data) for data in (b"", step.data[:half], step.data[:-1]))
    if step.message is not None:
        yield from (step._replace(message=message) for message in _simpler_messages(step.message))


def _simpler_messages(message: Message) -> Iterator[Message]:
    for packets in smaller(message.packets, least=1):
        yield message._replace(packets=packets)
    for name in ("op", "answer", "reserved", "context", "message_id", "mode"):
        plain = getattr(_PLAIN, name)
        if getattr(message, name) != plain:
            yield message._replace(**{name: plain})


def smaller(number: int, least: int = 0, by: int = 1) -> Iterator[int]:
    """The least, the next lower round number, half, and a bit less: all of them below `number`."""
    yield from sorted({n for n in (least, _round(number), number // 2, number - by) if least <= n < number})


def _round(number: int) -> int:
    """The greatest power of ten below."""
    return int(10 ** (len(str(number - 1)) - 1))


def shrink(
    steps: Sequence[_S],
    fails: Callable[[Sequence[_S]], bool],
    tries: int = TRIES,
    give_up: Callable[[], bool] = lambda: False,
    simpler: Callable[[_S], Iterable[_S]] = simpler,  # type: ignore[assignment]  # of what is most often shrunk
) -> list[_S]:
    """The smallest list found for which `fails` holds, as it must for `steps`; the same for the same arguments.

    `simpler` knows the kind of steps. It ends at once, with the best so far, when `give_up` holds.
    """
    search = _Search(list(steps), fails, tries, give_up, simpler)
    before = None
    while search.best != before:
        before = search.best
        search.remove()
        search.simplify()
    return search.best


class _Search(Generic[_S]):
    """The best list so far, and the tries that are left."""

    def __init__(
        self,
        best: list[_S],
        fails: Callable[[Sequence[_S]], bool],
        tries: int,
        give_up: Callable[[], bool],
        simpler: Callable[[_S], Iterable[_S]],
    ) -> None:
        self.best = best
        self._simpler = simpler
        self._fails = fails
        self._give_up = give_up
        self._left = tries
        self._refused: set[tuple[_S, ...]] = set()

    def accept(self, candidate: list[_S]) -> bool:
        """Whether the candidate fails as well; then it is the best. One that was refused is not tried again."""
        if self._left <= 0 or self._give_up():
            self._left = 0
            return False
        key = tuple(candidate)
        if key in self._refused:
            return False
        self._left -= 1
        if not self._fails(candidate):
            self._refused.add(key)
            return False
        self.best = candidate
        return True

    def remove(self) -> None:
        """ddmin: leaves out chunks, from the back, until no single step can be left out."""
        size = max(1, len(self.best) // 2)
        while self._left > 0:
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
        """Each step as simple as it can be, from the back."""
        for at in reversed(range(len(self.best))):
            while self._left > 0 and any(self._replace(at, step) for step in self._simpler(self.best[at])):
                pass

    def _replace(self, at: int, step: _S) -> bool:
        return self.accept([*self.best[:at], step, *self.best[at + 1 :]])
