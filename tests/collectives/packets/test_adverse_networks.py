# SPDX-License-Identifier: GPL-2.0-only
"""Whatever the network does to packets, no result changes (collectives.md §8: 1, 2, 14, 17, 25, 26, 38)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.collectives.cases import NAMES, WITH_DATA, Case, cases, inputs, integers, promised
from tests.support.collectives.packets_bench import NETWORKS, captured, execute
from tests.support.effort import effort, examples
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.reduce_ops import ReduceOp

TRANSPORTS = sorted(NETWORKS)
MANY = (effort(18, 40, 40), effort(26, 64, 64))
"""Ranks of the largest runs, from and to."""
SHARES = st.sampled_from([0.0, 0.0, 0.02, 0.06])
"""Of frames: so few that no budget of retries is used up."""
OPS = {ReduceOp.SUM: np.add, ReduceOp.MAX: np.maximum, ReduceOp.BXOR: np.bitwise_xor}

faults = st.fixed_dictionaries({"drop": SHARES, "reorder": SHARES, "duplicate": SHARES, "corrupt": SHARES})


@pytest.mark.parametrize("transport", TRANSPORTS)
@examples(50)
@given(
    case=cases(NAMES, most=16), faults=faults, seed=st.integers(0, 2**32), data=st.data(),
    dtype=st.sampled_from(["i1", "u2", "i4", "i8"]), op=st.sampled_from(sorted(OPS, key=str)),
)  # fmt: skip
def test_results_are_those_of_numpy_whatever_is_lost(
    transport: str, case: Case, faults: dict[str, float], seed: int, dtype: str, op: ReduceOp, data: st.DataObject
) -> None:
    plan = case.schedule
    given_ = inputs(plan, integers(seed, np.dtype(dtype)))
    order = data.draw(st.permutations(range(plan.size)))
    ran = execute(plan, given_, transport, op=op, order=order, faults=faults, seed=seed)
    assert ran.errors == [[None]] * plan.size  # each told once (invariant 26)
    for rank, wanted in promised(case, given_, OPS[op]).items():
        np.testing.assert_array_equal(ran.outputs[rank], wanted.astype(dtype))
    columns = plan.arrays()
    sent = np.bincount(columns["src"], columns["count"], plan.size) * np.dtype(dtype).itemsize
    assert [one.bytes_sent for one in ran.counted] == sent.tolist()


@pytest.mark.parametrize("transport", TRANSPORTS)
@examples(15)
@given(case=cases(WITH_DATA, most=6), faults=faults, seed=st.integers(0, 2**32))
def test_one_seed_one_trace(transport: str, case: Case, faults: dict[str, float], seed: int) -> None:
    data = inputs(case.schedule, integers(seed))
    faults = {**faults, "corrupt": 0.0}
    runs = [captured(case.schedule, data, transport, faults=faults, seed=seed) for _ in range(2)]
    (first, frames), (second, again) = runs
    assert first.time == second.time
    assert [(f.rank, f.packet) for f in frames] == [(f.rank, f.packet) for f in again]


@pytest.mark.parametrize("transport", TRANSPORTS)
@examples(25)
@given(
    nodes=st.integers(1, 4), local=st.integers(1, 4), count=st.integers(0, 200), seed=st.integers(0, 2**32),
    name=st.sampled_from(["nccl_tree", "nccl_ring", "rab", "split_rail", "hcoll"]), share=SHARES,
)  # fmt: skip
def test_hierarchical_is_flat(
    transport: str, nodes: int, local: int, count: int, seed: int, name: str, share: float
) -> None:
    """Invariant 38; within a host there are no packets."""
    size = nodes * local
    more: dict[str, Any] = {"hosts": np.arange(size).reshape(nodes, local).tolist(), "faults": {"drop": share}}
    data = inputs(flat := schedule("all_reduce", "ring", size, count), integers(seed))
    plan = schedule("all_reduce", name, size, count, nodes=nodes)
    ran, frames = captured(plan, data, transport, seed=seed, **more)
    wanted = execute(flat, data, transport, seed=seed, **more).outputs
    assert [output.tolist() for output in ran.outputs] == [output.tolist() for output in wanted]
    addresses = [node.address for node in ran.network.world.nodes.values()]
    host = {address: rank // local for rank, address in enumerate(addresses)}
    assert all(host[f.packet["ipv4"]["src"]] != host[f.packet["ipv4"]["dst"]] for f in frames)


@pytest.mark.parametrize("transport", TRANSPORTS)
@examples(3)
@given(
    name=st.sampled_from(["ring", "double_tree", "halving_doubling", "recursive_doubling"]), size=st.integers(*MANY),
    count=st.integers(0, 300), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_many_ranks(transport: str, name: str, size: int, count: int, seed: int) -> None:
    plan = schedule("all_reduce", name, size, count)
    data = inputs(plan, integers(seed))
    ran = execute(plan, data, transport, faults={"drop": 0.02, "reorder": 0.05, "duplicate": 0.05}, seed=seed)
    assert ran.errors == [[None]] * size
    wanted = np.sum(data, axis=0, dtype=np.int32)
    assert all(np.array_equal(output, wanted) for output in ran.outputs)
