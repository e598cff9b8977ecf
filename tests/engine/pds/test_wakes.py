# SPDX-License-Identifier: GPL-2.0-only
"""The wake queue gives PDCs in the order of their times, as a sorted list of all of them does (pds.md §16)."""

from random import Random
from types import SimpleNamespace
from typing import Any

from tests.support.effort import effort
from uetproto.engine.contract import NEVER
from uetproto.engine.pds.wakes import WakeQueue


def _pdc(number: int) -> Any:
    return SimpleNamespace(number=number, wake_at=NEVER, idle_wake=NEVER, idle_queued=NEVER)


def test_order() -> None:
    """Times come from a short interval, a long one, and at random; the model looks through all PDCs."""
    for seed in range(effort(20, 200, 5000)):
        rng, queue, now = Random(seed), WakeQueue(), 0
        pdcs = [_pdc(number) for number in range(rng.randrange(1, 12))]
        for pdc in pdcs:
            pdc.idle_wake = rng.choice((NEVER, 500))
        for _ in range(200):
            now += rng.randrange(20)
            pdc = rng.choice(pdcs)
            at = now + rng.choice((10, 300, rng.randrange(1, 400)))
            if rng.random() < 0.3 and pdc.idle_wake != NEVER:
                at = pdc.idle_wake = max(pdc.idle_wake, now + 300)
            if at < pdc.wake_at:
                queue.put(at, pdc)
            if rng.random() < 0.1:
                pdc.wake_at = NEVER  # it was closed, or needs no look
            if rng.random() < 0.02:
                queue.sweep(pdcs)
            first = min(pdc.wake_at for pdc in pdcs)
            assert queue.deadline() == first
            rung = []
            while (due := queue.pop(now)) is not None:
                rung.append(due)
                assert due.wake_at == NEVER
            assert all(pdc.wake_at > now for pdc in pdcs)
            assert bool(rung) == (first <= now)


def test_equal_times_keep_their_order() -> None:
    queue, pdcs = WakeQueue(), [_pdc(number) for number in range(6)]
    for pdc, at in zip(pdcs, (70, 30, 50, 30, 70, 30), strict=True):
        queue.put(at, pdc)
    found = [queue.pop(100) for _ in range(6)]
    assert [pdc and pdc.number for pdc in found] == [1, 3, 5, 2, 0, 4]
    assert queue.pop(100) is None


def test_one_entry_of_an_idle_time() -> None:
    """Each packet sets an RTO before the idle time; the entry of the idle time is not added again."""
    queue, pdc = WakeQueue(), _pdc(1)
    pdc.idle_wake = 10_000
    queue.put(10_000, pdc)
    for now in range(0, 5000, 10):
        queue.put(now + 5, pdc)
        assert queue.pop(now + 5) is pdc
        queue.put(10_000, pdc)
    assert len(queue) == 1
    assert queue.deadline() == 10_000
