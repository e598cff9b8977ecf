# SPDX-License-Identifier: GPL-2.0-only
"""The proof is one: a schedule with any mistake in it does not pass; and it is quick enough for thousands of ranks."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.collectives.cases import NAMES, Case, cases
from tests.support.effort import effort, examples
from uetproto.collectives.algorithms.catalogue import HIERARCHICAL, schedule
from uetproto.collectives.algorithms.schedule import Fold, Schedule
from uetproto.collectives.costs.check import check
from uetproto.errors import LocalError


@dataclass
class Broken:
    """A schedule with other messages."""

    whole: Schedule
    columns: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def arrays(self) -> dict[str, Any]:
        return self.columns


def broken(made: Schedule, row: int, **change: int) -> Any:
    columns = {name: column.copy() for name, column in made.arrays().items()}
    for name, value in change.items():
        columns[name][row] = value
    return Broken(made, columns)


def without(made: Schedule, row: int) -> Any:
    return Broken(made, {name: np.delete(column, row) for name, column in made.arrays().items()})


def twice(made: Schedule, row: int) -> Any:
    return Broken(made, {name: np.insert(column, row, column[row]) for name, column in made.arrays().items()})


USED = [pair for pair in NAMES if pair != ("barrier", "ring")]  # its last message tells nobody anything new


@examples(300)
@given(case=cases(USED, most=12), data=st.data())
def test_a_message_that_is_missing_is_found(case: Case, data: st.DataObject) -> None:
    columns = case.schedule.arrays()
    rows = np.flatnonzero(columns["count"]) if case.schedule.op != "barrier" else np.arange(len(columns["step"]))
    assume(len(rows))
    row = data.draw(st.sampled_from(rows.tolist()))
    if case.schedule.op == "barrier":
        assume(case.schedule.size & (case.schedule.size - 1) == 0)  # else rounds overlap
    with pytest.raises(LocalError):
        check(without(case.schedule, row))


@examples(200)
@given(case=cases([pair for pair in NAMES if "reduce" in pair[0]], most=12), data=st.data())
def test_a_contribution_that_comes_twice_is_found(case: Case, data: st.DataObject) -> None:
    columns = case.schedule.arrays()
    rows = np.flatnonzero((columns["count"] > 0) & (columns["fold"] != Fold.STORE))
    assume(len(rows))
    with pytest.raises(LocalError, match="end without the result"):
        check(twice(case.schedule, data.draw(st.sampled_from(rows.tolist()))))


@pytest.mark.parametrize(
    ("row", "change"),
    [
        (0, {"start": 1}),
        (0, {"target": 1}),
        (0, {"src": 2}),
        (0, {"count": 2}),
        (0, {"fold": Fold.STORE}),
        (20, {"dst": 3}),  # while ranks reduce, a contribution may take another way
        (20, {"fold": Fold.OWN_FIRST}),
    ],
)
def test_a_message_that_is_wrong_is_found(row: int, change: dict[str, int]) -> None:
    made = schedule("all_reduce", "ring", 5, 15)
    check(made)
    with pytest.raises(LocalError, match="end without the result of all_reduce"):
        check(broken(made, row, **change))


def test_the_input_is_not_to_be_written() -> None:
    with pytest.raises(LocalError, match="INPUT"):
        check(broken(schedule("all_gather", "ring", 3, 6), 0, target_buffer=0))


def test_a_barrier_that_forgets_someone_is_found() -> None:
    with pytest.raises(LocalError, match=r"rank . leaves the barrier without knowing of rank ."):
        check(without(schedule("barrier", "dissemination", 4), 3))


MANY = effort(1024, 4096, 4096)
LARGE = [pair for pair in NAMES if pair[0] != "all_to_all" and pair[1] != "naive_exchange"]


@pytest.mark.parametrize(("op", "name"), [pair for pair in LARGE if pair[1] not in ("ring", "nccl_ring")])
def test_thousands_of_ranks(op: str, name: str) -> None:
    made = schedule(op, name, MANY, 0 if op == "barrier" else MANY, nodes=MANY // 8 if name in HIERARCHICAL else None)
    found = check(made)
    assert found.messages == len(made.arrays()["step"])
    rank = MANY // 3
    assert sum(send.count for step in made.steps(rank) for send in step.sends) == found.sent[rank]


def test_the_ring_of_a_thousand() -> None:
    found = check(schedule("all_reduce", "ring", 1024, 1024))
    assert found.messages == 2 * 1023 * 1024
    assert set(found.sent.tolist()) == {2 * 1023}


@pytest.mark.parametrize("name", ["pairwise", "xor", "linear", "bruck"])
def test_one_rank_of_thousands_needs_no_others(name: str) -> None:
    steps = list(schedule("all_to_all", name, MANY, MANY).steps(17))
    assert sum(send.count for step in steps for send in step.sends) == (
        MANY - 1 if name != "bruck" else MANY // 2 * (MANY.bit_length() - 1)
    )
