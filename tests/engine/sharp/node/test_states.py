# SPDX-License-Identifier: GPL-2.0-only
"""The three tables of an aggregation node, pair by pair, beside what sharp.md §3 says: the next state, or nothing."""

from enum import Enum, IntEnum
from typing import Any

import pytest

from tests.support.sharp.nodes import GROUP, LEAF_A, LLT, Net
from uetproto.engine.sharp.node.ost import OstEntry
from uetproto.engine.sharp.node.states import GROUP as GROUP_TABLE
from uetproto.engine.sharp.node.states import (
    LOCK,
    OPERATION,
    TABLES,
    GroupInput,
    GroupState,
    LockInput,
    LockState,
    OpInput,
    OpState,
)

GROUP_ROWS = """
             NONE     JOINING  READY    LEAVING  FAILED
JOIN         JOINING  JOINING  READY    -        FAILED
JOIN_KNOWN   -        JOINING  READY    -        FAILED
JOIN_WRONG   -        JOINING  READY    -        FAILED
JOIN_REFUSED NONE     -        -        -        -
COMPLETE     -        READY    -        -        -
ACCEPTED     -        READY    -        -        -
REJECTED     -        NONE     -        -        -
T_JOIN       -        NONE     -        NONE     -
LEAVE        -        NONE     READY    -        FAILED
LEAVE_LAST   -        NONE     LEAVING  -        LEAVING
LEFT         -        -        -        NONE     -
CHILD_LOST   -        NONE     FAILED   LEAVING  FAILED
PARENT_LOST  -        NONE     FAILED   NONE     FAILED
FATAL        -        -        FAILED   -        -
REQUEST      -        -        READY    LEAVING  FAILED
CLEANUP      -        NONE     NONE     NONE     NONE
"""
OPERATION_ROWS = """
              FREE     COLLECT  UP       DONE     ERR
REQ           COLLECT  COLLECT  -        -        -
REQ_NO_OST    FREE     -        -        -        -
REQ_AHEAD     FREE     -        -        -        -
REQ_EARLY     FREE     -        -        -        -
REQ_CACHED    FREE     -        -        -        -
REQ_STALE     FREE     -        -        -        -
REQ_BAD       ERR      ERR      ERR      -        ERR
REQ_AGAIN     -        COLLECT  UP       DONE     ERR
REQ_CHANGED   -        ERR      -        -        -
REQ_OTHER     -        ERR      -        -        -
ALL_UP        -        UP       -        -        -
ALL_ROOT      -        DONE     -        -        -
RESULT        FREE     -        DONE     DONE     -
RESULT_OTHER  -        -        ERR      -        -
NACK          -        -        UP       -        -
NACK_LAST     -        -        ERR      -        -
ERROR_ABOVE   ERR      ERR      ERR      -        -
ERROR_BELOW   ERR      ERR      ERR      -        -
CHILD_LOST    -        ERR      ERR      -        -
PARENT_LOST   -        ERR      ERR      -        -
CANCEL        -        ERR      ERR      -        -
T_OST         -        ERR      -        -        -
T_RESULT      -        -        UP       -        -
T_RESULT_LAST -        -        ERR      -        -
T_RNR         -        -        UP       -        -
FINISHED      -        -        -        FREE     -
T_ERR         -        -        -        -        FREE
"""
LOCK_ROWS = """
               L_FREE    L_PENDING L_TENT    L_HELD
REQ            L_PENDING L_PENDING L_TENT    L_HELD
REQ_DENIED     L_FREE    L_PENDING L_TENT    L_HELD
ALL            -         L_TENT    -         -
GRANTED        -         -         L_HELD    -
REFUSED        -         -         L_FREE    -
OK_ABOVE       L_FREE    L_PENDING L_HELD    L_HELD
REFUSED_ABOVE  -         -         L_FREE    -
T_LOCK         -         L_FREE    L_FREE    -
OPERATION_DONE -         -         -         L_HELD
USED_UP        -         -         -         L_FREE
UNLOCK         L_FREE    L_PENDING L_TENT    L_HELD
UNLOCK_WRONG   L_FREE    L_PENDING L_TENT    L_HELD
UNLOCK_ALL     -         -         -         L_FREE
END            -         L_FREE    L_FREE    L_FREE
"""


def cells(text: str, states: type[IntEnum], inputs: type[Enum]) -> list[tuple[Any, Any, Any]]:
    """(state, input, next state or None)."""
    head, *rows = (line.split() for line in text.strip().splitlines())
    assert [state.name for state in states] == head
    assert [event.name for event in inputs] == [row[0] for row in rows]
    return [
        (states[state], inputs[row[0]], None if cell == "-" else states[cell])
        for row in rows for state, cell in zip(head, row[1:], strict=True)
    ]  # fmt: skip


def watched(machine: Any, table: dict[Any, tuple[str, Any]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the actions that are taken, which are those of the table and do nothing here."""
    taken: list[str] = []
    owner = type(machine)
    assert {pair: (action.__name__, after) for pair, (action, after) in owner.compiled.items()} == table
    for name in {action for action, _ in table.values()}:
        assert getattr(owner, name).__doc__, f"{name} says what it does"
    recording = {
        pair: (lambda *_, name=name: taken.append(name), after) for pair, (name, after) in table.items()
    }  # fmt: skip
    monkeypatch.setattr(owner, "compiled", recording)
    return taken


@pytest.fixture
def net() -> Net:
    net = Net()
    net.join()
    return net


@pytest.mark.parametrize(("state", "event", "after"), cells(GROUP_ROWS, GroupState, GroupInput))
def test_group(net: Net, monkeypatch: pytest.MonkeyPatch, state: Any, event: Any, after: Any) -> None:
    node = net.nodes[LEAF_A]
    group = node.groups[LLT, GROUP]
    taken = watched(group, GROUP_TABLE, monkeypatch)
    group.state = state
    group.handle(event, 0, None)
    assert group.state is (state if after is None else after)
    assert (len(taken), node.counters["sharp_discards"]) == ((0, 1) if after is None else (1, 0))


@pytest.mark.parametrize(("state", "event", "after"), cells(OPERATION_ROWS, OpState, OpInput))
def test_operation(net: Net, monkeypatch: pytest.MonkeyPatch, state: Any, event: Any, after: Any) -> None:
    node = net.nodes[LEAF_A]
    operations = node.groups[LLT, GROUP].operations
    taken = watched(operations, OPERATION, monkeypatch)
    op = OstEntry(operations, 0, 0)
    op.state = state
    operations.handle(op, event)
    assert op.state is (state if after is None else after)
    assert (len(taken), node.counters["sharp_discards"]) == ((0, 1) if after is None else (1, 0))


@pytest.mark.parametrize(("state", "event", "after"), cells(LOCK_ROWS, LockState, LockInput))
def test_lock(net: Net, monkeypatch: pytest.MonkeyPatch, state: Any, event: Any, after: Any) -> None:
    node = net.nodes[LEAF_A]
    lock = node.groups[LLT, GROUP].lock
    taken = watched(lock, LOCK, monkeypatch)
    lock.state = state
    lock.handle(event, 0, None)
    assert lock.state is (state if after is None else after)
    assert (len(taken), node.counters["sharp_discards"]) == ((0, 1) if after is None else (1, 0))


def test_every_input_has_a_row() -> None:
    for table, _, inputs in TABLES.values():
        assert {event for _, event in table} == set(inputs)
