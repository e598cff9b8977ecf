# SPDX-License-Identifier: GPL-2.0-only
"""Formulas beside runs: a formula column says what an algorithm costs under the model (collectives.md §3.0)."""

from typing import Any

import pytest

from tests.support.effort import effort
from uetproto.cli.collective.run import CollectiveCase, PreparedCase
from uetproto.collectives.algorithms.catalogue import ALGORITHMS, HIERARCHICAL, scheduled
from uetproto.collectives.dtypes import dtype

EVERY = [(op, name) for op in ALGORITHMS for name in scheduled(op)]
AT_ONCE = [("all_reduce", "naive_exchange"), ("all_to_all", "linear"), ("barrier", "counter"), ("barrier", "knomial")]
"""Algorithms in which a rank sends many messages at once."""
TREES = ("tree", "double_tree")


def ratio(op: str, name: str, ranks: int, length: int, **more: Any) -> float:
    """Return the measured time divided by that of the formula; messages are of equal length."""
    length = 0 if op == "barrier" else max(1, length // (32 * ranks)) * 32 * ranks
    prepared = PreparedCase(
        CollectiveCase(op=op, algorithm=name, ranks=ranks, length=length, dtype=dtype("float32"), **more)
    )
    found = prepared.run()
    assert found.formula is not None
    assert found.losses is None
    return found.time / found.formula.time


def sizes(op: str, name: str, *wanted: int) -> list[int]:
    return [size for size in wanted if not (ALGORITHMS[op][name].powers_of_two and size & (size - 1))]


@pytest.mark.parametrize(("op", "name"), EVERY)
def test_the_model_takes_the_time_of_the_formula(op: str, name: str) -> None:
    """Both trees of a double tree use the same ports, for which its formula has no term: up to a tenth."""
    more: dict[str, Any] = {"transport": "model"}
    if name in HIERARCHICAL:
        more |= {"kind": "rails", "shape": {"gpus_per_node": 2}}
    wanted = (2, 8, 12) if name in HIERARCHICAL else (2, *effort((), (3,), (3,)), 5, 8, effort(11, 24, 64))
    for ranks in sizes(op, name, *wanted):
        for length in (256, effort(1 << 17, 1 << 20, 1 << 20)):
            bound = 0.1 if name == "double_tree" else 0.001
            assert ratio(op, name, ranks, length, **more) == pytest.approx(1, abs=bound), ranks


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("slices", [4, 16])
def test_a_pipeline_takes_the_time_of_its_formula(name: str, slices: int) -> None:
    """Levels of a pipeline wait for each other, for which the formula has no term: up to a quarter."""
    for ranks in (2, 4, 13):
        found = ratio("all_reduce", name, ranks, 1 << 16, options={"slices": slices}, transport="model")
        assert 0.99 <= found <= 1.25


@pytest.mark.parametrize(("op", "name"), EVERY)
def test_packets_take_at_most_the_time_of_the_formula(op: str, name: str) -> None:
    """Alpha is the time of a grant, the bytes and an acknowledgement: a message whose grant is there takes a third."""
    more: dict[str, Any] = {"kind": "rails", "shape": {"gpus_per_node": 2}} if name in HIERARCHICAL else {}
    for ranks in sizes(op, name, 2, 5, 8) if name not in HIERARCHICAL else (4, 8):
        assert 0.33 <= ratio(op, name, ranks, 1024, **more) <= 1.05


@pytest.mark.parametrize(("op", "name"), [("all_reduce", "ring"), ("all_gather", "bruck"), ("all_to_all", "linear")])
def test_the_first_message_on_a_connection_of_roce_waits_for_credits(op: str, name: str) -> None:
    """Which the acknowledgement of the grant brings: a fourth crossing (roce.md §9)."""
    assert ratio(op, name, 2, 1024, transport="roce") == pytest.approx(4 / 3 if op != "all_reduce" else 7 / 6, abs=0.02)
    assert 0.95 <= ratio(op, name, 8, 1024, transport="roce") <= 1.45


@pytest.mark.parametrize(("op", "name"), AT_ONCE)
def test_messages_at_once_share_the_latency(op: str, name: str) -> None:
    """The formula of the exchange was 42 times the time among 64 ranks."""
    assert 0.33 <= ratio(op, name, effort(24, 64, 64), 1024) <= 1.25
    assert ratio(op, name, effort(32, 64, 64), 1024, transport="model") == pytest.approx(1, abs=0.001)
