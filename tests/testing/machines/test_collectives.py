# SPDX-License-Identifier: GPL-2.0-only
"""The machine of collectives finds a wrong result, and nothing in our ranks."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.effort import effort
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.testing import WorldFailure
from uetproto.testing.machines.fabrics import collectives
from uetproto.testing.machines.fabrics.collectives import CollectivesMachine

RUNS = settings(
    max_examples=effort(3, 20, 200), stateful_step_count=10, database=None, deadline=None, derandomize=True,
    suppress_health_check=list(HealthCheck), phases=[Phase.generate],
)  # fmt: skip


def test_our_ranks_have_no_finding() -> None:
    run_state_machine_as_test(CollectivesMachine, settings=RUNS)


def test_a_wrong_sum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    step = ("run", {
        "which": "all_reduce/ring", "size": 3, "count": 7, "root": 0, "transport": "uet", "reduction": "sum",
        "dtype": "i4", "seed": 1, "faults": {"drop": 0.02},
    })  # fmt: skip
    assert not CollectivesMachine.replay([step]).failed
    monkeypatch.setitem(collectives.REDUCTIONS, "sum", (ReduceOp.MAX, collectives.REDUCTIONS["sum"][1]))
    with pytest.raises(WorldFailure, match="COLLECTIVE-RESULT: all_reduce by ring of 3 ranks over uet") as found:
        CollectivesMachine.replay([step])
    assert any("step 0, 12 bytes" in line for line in found.value.__notes__)  # the ladder
    for transport in collectives.NETWORKS:
        lossy = ("run", step[1] | {"transport": transport, "seed": 3, "faults": {"drop": 0.06, "corrupt": 0.06}})
        with pytest.raises(WorldFailure) as found:
            CollectivesMachine.replay([lossy])
        assert any("[lost]" in line or "[damaged on the way]" in line for line in found.value.__notes__), transport
