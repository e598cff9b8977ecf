# SPDX-License-Identifier: GPL-2.0-only
"""This module runs the machines of `uetproto.testing` with few examples, and without the phase that explains."""

from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support.effort import effort
from uetproto.testing import ProtocolMachine, WorldFailure

_M = TypeVar("_M", bound=ProtocolMachine)

RUNS = settings(
    max_examples=effort(15, 200, 2000), database=None, deadline=None, stateful_step_count=25,
    derandomize=effort(1, 0, 0) == 1,
    suppress_health_check=list(HealthCheck), print_blob=False, report_multiple_bugs=False,
    phases=[Phase.generate, Phase.shrink],
)  # fmt: skip
SHRINKS = effort(0, 1, 1) == 1
"""Whether tests shrink what they find. It takes some seconds each, so that the profile `ci` only finds most faults."""


def run(kind: type[_M], factory: Any, examples: int = 100, steps: int = 25, shrinks: bool = True) -> type[_M]:
    """Run a machine on the implementation of an adapter as its test case, with at most `steps` steps in a run, and
    shrink what fails if `shrinks`; return the machine, which has the verdicts."""
    phases = [Phase.generate, Phase.shrink] if shrinks else [Phase.generate]
    machine = kind.of(factory)
    case = machine.TestCase
    case.settings = settings(RUNS, max_examples=examples, stateful_step_count=steps, phases=phases)
    try:
        case().runTest()
    finally:
        machine.release()
    return machine


def check_found(
    kind: type[ProtocolMachine], factory: Any, rules: set[str], *, shrinks: bool, steps: int = 15, most: int = 12
) -> None:
    """Assert that a machine finds the fault of an implementation by one of `rules`, and shows its ladder; if it
    `shrinks`, in at most `most` calls, `begin` and `teardown` among them."""
    with pytest.raises(WorldFailure) as found:
        run(kind, factory, steps=steps, shrinks=shrinks)
    assert found.value.name in rules, found.value
    notes = "\n".join(found.value.__notes__)
    assert "10.0.0.1 is the implementation" in notes
    assert 1 <= notes.count("state.") <= most or not shrinks, notes
