# SPDX-License-Identifier: GPL-2.0-only
"""Posted receives and held messages against plain lists that are searched from the front (ses.md §2.7, §11.3)."""

import gc
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.effort import effort
from uetproto.engine.ses.matching import ALL_BITS, HeldMessages, PostedReceives, matches
from uetproto.errors import LocalError

TOP = 1 << 63
M32 = 0xFFFFFFFF


@dataclass
class Receive:
    """Equal ones are not the same one, and they have no hash."""

    tag: int | None = 0
    ignore: int = 0
    source: int | None = None


@dataclass
class Message:
    match_bits: int = 0
    initiator: int = 0


def fits(receive: Any, message: Any) -> bool:
    """ses.md §15 item 24."""
    same = receive.tag is None or (receive.tag ^ message.match_bits) & ~receive.ignore == 0
    return same and (receive.source is None or receive.source == message.initiator)


def drop(items: list[Any], item: Any) -> bool:
    """Removes this very item."""
    kept = [one for one in items if one is not item]
    dropped = len(kept) < len(items)
    items[:] = kept
    return dropped


TAGS = st.sampled_from([0, 1, 2, 3, TOP, TOP | 1, ALL_BITS])
IGNORES = st.sampled_from([0, 0, 1, 2, 3, TOP, TOP - 1, ALL_BITS])
INITIATORS = st.sampled_from([0, 1, 2, M32])
RECEIVES = st.builds(Receive, TAGS, IGNORES, st.none() | INITIATORS)
UNTAGGED = st.builds(Receive, st.none(), IGNORES, st.none() | INITIATORS)
MESSAGES = st.builds(Message, TAGS, INITIATORS)
PLACE = st.integers(0, 100)


class Matching(RuleBasedStateMachine):
    """Both queues, each beside its list; all answers must be the very same objects."""

    def __init__(self) -> None:
        super().__init__()
        self.posted: PostedReceives[Receive] = PostedReceives()
        self.held: HeldMessages[Message] = HeldMessages()
        self.receives: list[Receive] = []
        self.messages: list[Message] = []

    @rule(receives=st.lists(RECEIVES | UNTAGGED, min_size=1, max_size=6))
    def post(self, receives: list[Receive]) -> None:
        for receive in receives:
            self.posted.post(receive)
        self.receives += receives

    @rule(message=MESSAGES, taken=st.booleans())
    def message_comes(self, message: Message, taken: bool) -> None:
        expected = next((receive for receive in self.receives if fits(receive, message)), None)
        search = self.posted.take if taken else self.posted.find
        assert search(message.match_bits, message.initiator) is expected
        if taken and expected is not None:
            drop(self.receives, expected)

    @rule(place=PLACE)
    def cancel(self, place: int) -> None:
        if self.receives:
            receive = self.receives[place % len(self.receives)]
            assert self.posted.remove(receive)
            assert not self.posted.remove(receive)
            assert drop(self.receives, receive)

    @rule(place=PLACE)
    def post_twice(self, place: int) -> None:
        if self.receives:
            with pytest.raises(LocalError, match="not posted already"):
                self.posted.post(self.receives[place % len(self.receives)])

    @rule(receive=RECEIVES)
    def cancel_another(self, receive: Receive) -> None:
        assert not self.posted.remove(receive)

    @rule(messages=st.lists(MESSAGES, min_size=1, max_size=6))
    def hold(self, messages: list[Message]) -> None:
        for message in messages:
            self.held.hold(message)
        self.messages += messages

    @rule(receive=RECEIVES | UNTAGGED, taken=st.booleans())
    def receive_comes(self, receive: Receive, taken: bool) -> None:
        expected = next((message for message in self.messages if fits(receive, message)), None)
        search = self.held.take if taken else self.held.find
        assert search(receive) is expected
        if taken and expected is not None:
            drop(self.messages, expected)

    @rule(place=PLACE)
    def expire(self, place: int) -> None:
        if self.messages:
            message = self.messages[place % len(self.messages)]
            assert self.held.remove(message)
            assert not self.held.remove(message)
            assert drop(self.messages, message)

    @rule(place=PLACE)
    def hold_twice(self, place: int) -> None:
        if self.messages:
            with pytest.raises(LocalError, match="not held already"):
                self.held.hold(self.messages[place % len(self.messages)])

    @rule(message=MESSAGES)
    def expire_another(self, message: Message) -> None:
        assert not self.held.remove(message)

    @invariant()
    def same_as_the_lists(self) -> None:
        for queue, items in ((self.posted, self.receives), (self.held, self.messages)):
            assert len(queue) == len(items)
            assert list(map(id, queue)) == list(map(id, items))


TestMatching = Matching.TestCase


@pytest.mark.parametrize(
    ("receive", "match_bits", "initiator", "expected"),
    [
        (Receive(7), 7, 1, True),
        (Receive(7), 6, 1, False),
        (Receive(7, source=1), 7, 1, True),
        (Receive(7, source=1), 7, 2, False),
        (Receive(7, source=0), 7, 1, False),
        (Receive(7, ignore=1), 6, 1, True),
        (Receive(7, ignore=1), 5, 1, False),
        (Receive(TOP, ignore=TOP), 0, 1, True),
        (Receive(0, ALL_BITS), ALL_BITS, 1, True),
        (Receive(0, ALL_BITS, source=2), ALL_BITS, 1, False),
        (Receive(None), ALL_BITS, 1, True),
        (Receive(None, source=2), 0, 1, False),
    ],
)
def test_what_matches(receive: Receive, match_bits: int, initiator: int, expected: bool) -> None:
    assert matches(receive, match_bits, initiator) is expected
    posted: PostedReceives[Receive] = PostedReceives()
    posted.post(receive)
    assert posted.find(match_bits, initiator) is (receive if expected else None)
    held: HeldMessages[Message] = HeldMessages()
    held.hold(message := Message(match_bits, initiator))
    assert held.find(receive) is (message if expected else None)


def test_posted_order_counts_and_not_how_exact_a_receive_is() -> None:
    """ses.md §11.3 rule 5: {tag, any} that is older wins over {tag, initiator}."""
    receives = [Receive(7), Receive(7, source=1), Receive(0, ALL_BITS), Receive(7), Receive(4, 3, source=1)]
    posted: PostedReceives[Receive] = PostedReceives()
    for receive in receives:
        posted.post(receive)
    assert [posted.take(7, 1) for _ in receives] == receives
    assert posted.take(7, 1) is None


def test_a_held_message_does_not_overtake_an_earlier_one() -> None:
    held: HeldMessages[Message] = HeldMessages()
    first, other, second = Message(7, 1), Message(8, 2), Message(7, 1)
    for message in (first, other, second):
        held.hold(message)
    assert held.take(Receive(7)) is first
    assert held.take(Receive(0, ALL_BITS)) is other
    assert held.take(Receive(7, source=1)) is second
    assert len(held) == 0


def test_a_receive_that_was_taken_may_be_posted_again_as_the_newest() -> None:
    posted: PostedReceives[Receive] = PostedReceives()
    first, second = Receive(7), Receive(7)
    posted.post(first)
    posted.post(second)
    assert posted.take(7, 1) is first
    posted.post(first)
    assert [id(receive) for receive in posted] == [id(second), id(first)]


def test_an_equal_one_is_not_the_same_one() -> None:
    posted: PostedReceives[Receive] = PostedReceives()
    held: HeldMessages[Message] = HeldMessages()
    posted.post(Receive(7))
    held.hold(Message(7))
    assert not posted.remove(Receive(7))
    assert not held.remove(Message(7))
    assert len(posted) == len(held) == 1


def test_posted_order_is_kept_however_many_have_left() -> None:
    posted: PostedReceives[Receive] = PostedReceives()
    receives = [Receive(k, source=k % 2 or None) for k in range(1000)]
    for number, receive in enumerate(receives):
        posted.post(receive)
        if number % 20:  # one in twenty stays
            assert posted.remove(receive)
        assert [one.tag for one in posted] == list(range(0, number + 1, 20))


def test_all_may_be_cancelled_while_going_through_them() -> None:
    posted: PostedReceives[Receive] = PostedReceives()
    held: HeldMessages[Message] = HeldMessages()
    for k in range(20):
        posted.post(Receive(k % 3))
        held.hold(Message(k % 3))
    assert all(posted.remove(receive) for receive in posted)
    assert all(held.remove(message) for message in held)
    assert len(posted) == len(held) == 0


@pytest.mark.parametrize(
    ("receive", "said"),
    [
        (Receive(1 << 64), "tag: 18446744073709551616 is not legal; legal: 0 … 2^64 - 1"),
        (Receive(0, -1), "ignore: -1 is not legal; legal: 0 … 2^64 - 1"),
        (Receive(0, 0, 1 << 32), "source: 4294967296 is not legal; legal: 0 … 2^32 - 1"),
    ],
)
def test_a_field_that_does_not_fit_is_refused(receive: Receive, said: str) -> None:
    posted: PostedReceives[Receive] = PostedReceives()
    with pytest.raises(LocalError) as raised:
        posted.post(receive)
    assert str(raised.value) == said
    assert len(posted) == 0


# Cost, counted and not timed


class Watched(Message):
    """Counts how often entries are looked at."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "match_bits":
            Watched.looks += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    ("receive", "looks"),
    [
        (Receive(900), 1),
        (Receive(900, source=4), 1),
        (Receive(0, ALL_BITS), 1),
        (Receive(0, ALL_BITS, source=4), 1),
        (Receive(None), 1),
        (Receive(None, source=4), 1),
        (Receive(5000), 0),
        (Receive(0, ALL_BITS, source=17), 0),
        (Receive(512, 255), 513),  # a mask: one by one, up to the first that matches
        (Receive(512, 255, source=4), 65),  # 4, 12, 20 … 516: only what this source sent
    ],
)
def test_how_many_held_messages_a_receive_looks_at(receive: Receive, looks: int) -> None:
    held: HeldMessages[Watched] = HeldMessages()
    for k in range(2000):
        held.hold(Watched(k, k % 8))
    Watched.looks = 0
    found = held.find(receive)
    assert Watched.looks == looks
    assert (found is None) == (looks == 0)


def inside(queue: object) -> list[object]:
    """All objects that a queue keeps, without classes and numbers."""
    seen: dict[int, object] = {}
    left = deque([queue])
    while left:
        thing = left.popleft()
        if not isinstance(thing, type | int) and seen.setdefault(id(thing), thing) is thing:
            left.extend(other for other in gc.get_referents(thing) if id(other) not in seen)
    return list(seen.values())


def bytes_inside(queue: object) -> int:
    return sum(thing.__sizeof__() for thing in inside(queue))


def tagged() -> tuple[Any, Callable[[], None]]:
    posted: PostedReceives[Receive] = PostedReceives()
    numbers = count()
    alive: list[Receive] = []  # by their owner: no identity comes again

    def turn() -> None:
        k = next(numbers)
        alive.append(Receive(k, k % 16 if k % 100 == 0 else 0, k % 3 or None))
        posted.post(alive[-1])
        if k >= 100:
            posted.take(k - 100, (k - 100) % 3)

    return posted, turn


def untagged() -> tuple[Any, Callable[[], None]]:
    posted: PostedReceives[Receive] = PostedReceives()
    for _ in range(100):
        posted.post(Receive(0, ALL_BITS))

    def turn() -> None:
        posted.post(Receive(0, ALL_BITS))
        posted.take(0, 1)

    return posted, turn


def masks() -> tuple[Any, Callable[[], None]]:
    """A new mask every time; what is left is cancelled."""
    posted: PostedReceives[Receive] = PostedReceives()
    numbers = count()
    kept: deque[Receive] = deque()

    def turn() -> None:
        kept.append(Receive(0, next(numbers)))
        posted.post(kept[-1])
        if len(kept) > 100:
            posted.remove(kept.popleft())

    return posted, turn


def holding() -> tuple[Any, Callable[[], None]]:
    held: HeldMessages[Message] = HeldMessages()
    numbers = count()

    def turn() -> None:
        k = next(numbers)
        held.hold(Message(k, k % 1000))
        if k >= 100:
            held.take(Receive(k - 100))

    return held, turn


@pytest.mark.parametrize("make", [tagged, untagged, masks, holding])
def test_memory_stays_bounded(make: Callable[[], tuple[Any, Callable[[], None]]]) -> None:
    """However many turns: no more is kept than after the first thousand. `full` takes a million over the four cases."""
    queue, turn = make()
    for _ in range(1000):
        turn()
    objects, size, length = len(inside(queue)), bytes_inside(queue), len(queue)
    assert 100 <= length < 120
    for _ in range(effort(50_000, 249_000, 249_000)):
        turn()
    assert len(queue) == length
    assert len(inside(queue)) <= 1.1 * objects
    assert bytes_inside(queue) <= 2 * size  # tables of dicts double
    for item in queue:
        assert queue.remove(item)
    assert len(inside(queue)) == len(inside(type(queue)()))
