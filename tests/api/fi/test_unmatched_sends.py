# SPDX-License-Identifier: GPL-2.0-only
"""Sends that no receive takes: time does not run on for ever, and nothing is lost (ses.md §11.2)."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.api.fi_network import Pair, pair
from uetproto.api import fi
from uetproto.emulator.network.clock import Clock
from uetproto.engine.contract import SECOND

ENDS: dict[str, tuple[Callable[[Pair], Any], Any]] = {
    "run": (lambda two: two.fabric.run(), True),
    "sread": (lambda two: two.a.cq.sread(1), []),
    "condition": (lambda two: two.fabric.run(lambda: False), False),
    "close": (lambda two: two.fabric.close(), None),
}
SENDS: dict[str, Callable[[Pair], None]] = {
    "send": lambda two: two.a.send(b"x", two.dest),
    "long": lambda two: two.a.send(bytes(20_000), two.dest),
    "many": lambda two: many(two),
    "tsend": lambda two: two.a.tsend(b"x", two.dest, 1),
    "inject": lambda two: two.a.inject(b"x", two.dest),
    "tinject": lambda two: two.a.tinject(b"x", two.dest, 1),
}


def many(two: Pair) -> None:
    """As many as a target holds."""
    for _ in range(two.b.domain.config.unexpected_messages):
        two.a.send(b"x", two.dest)


@pytest.fixture(autouse=True)
def _limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that would go on for ever fails."""
    run = Clock.run

    def limited(clock: Clock, *arguments: Any) -> bool:
        assert clock.now < SECOND
        return run(clock, *arguments)

    monkeypatch.setattr(Clock, "run", limited)


@pytest.mark.parametrize("order", [fi.Order.NONE, fi.Order.STRICT], ids=["rud", "rod"])
@pytest.mark.parametrize("send", SENDS)
@pytest.mark.parametrize("end", ENDS)
def test_time_stops(end: str, send: str, order: fi.Order) -> None:
    two = pair(order=order)
    SENDS[send](two)
    call, returned = ENDS[end]
    assert call(two) == returned
    assert two.fabric.closed or two.a.cq.read(9) == []


def test_a_slow_network() -> None:
    """A frame may be longer on its way than it takes until an end asks again."""
    two = pair(rate="10 Mb/s")
    two.a.send(b"x", two.dest)
    assert two.a.cq.sread(1) == []


def test_a_counter_gives_up() -> None:
    two = pair()
    counter = two.a.domain.cntr_open()
    two.a.send(b"x", two.dest)
    with pytest.raises(fi.FiError) as raised:
        counter.wait(1)
    assert raised.value.errno is fi.Errno.FI_ETIMEDOUT


def test_a_receive_that_comes_later_takes_it() -> None:
    two = pair()
    two.a.send(b"late", two.dest, context="s")
    assert two.a.cq.sread(1) == []
    buffer = bytearray(4)
    two.b.recv(buffer, context="r")
    assert [entry.op_context for entry in two.b.cq.sread(1) + two.a.cq.sread(1)] == ["r", "s"]
    assert buffer == b"late"


def test_what_else_is_under_way_ends() -> None:
    """Only the send is left open, whatever was begun before and after it, and behind which fence."""
    two = pair()
    two.a.write(b"w", two.dest, 0, two.mr.key, context=0)
    two.a.send(b"held", two.dest, context=1)
    two.a.read(bytearray(4096), two.dest, 0, two.mr.key, context=2)
    two.b.send(b"held", two.src, context=3)
    two.a.write(bytes(4096), two.dest, 0, two.mr.key, context=4)
    assert sorted(entry.op_context for entry in two.a.cq.sread(9, threshold=9)) == [0, 2, 4]
    two.b.recv(bytearray(4), context=5)
    two.a.recv(bytearray(4), context=6)
    assert sorted(entry.op_context for entry in two.a.cq.sread(9, threshold=9)) == [1, 6]
    assert sorted(entry.op_context for entry in two.b.cq.sread(9, threshold=9)) == [3, 5]


def test_a_fence_behind_it() -> None:
    """What a fence releases is not forgotten when only a held send is left to look at."""
    two = pair()
    two.b.send(b"held", two.src)
    two.a.write(b"1", two.dest, 0, two.mr.key, context=1)
    two.a.write(b"2", two.dest, 0, two.mr.key, context=2, flags=fi.Flag.FENCE)
    assert two.fabric.run(lambda: len(two.a.cq) == 2)
    assert [entry.op_context for entry in two.a.cq.read(9)] == [1, 2]


@pytest.mark.parametrize("drop", [0.3, [1], [2], [3]])
def test_with_losses(drop: Any) -> None:
    two = pair(faults={"drop": drop}, seed=3)
    for number in range(8):
        two.a.send(bytes([number]), two.dest, context=number)
    assert two.a.cq.sread(9) == []
    into = [bytearray(1) for _ in range(8)]
    for buffer in into:
        two.b.recv(buffer)
    assert sorted(entry.op_context for entry in two.a.cq.sread(9, threshold=8)) == list(range(8))
    assert sorted(buffer[0] for buffer in into) == list(range(8))
