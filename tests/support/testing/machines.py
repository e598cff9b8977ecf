"""This module runs the machines of `uetproto.testing` with few examples, and without the phase that explains."""

from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.effort import effort
from uetproto.testing import ProtocolMachine

_M = TypeVar("_M", bound=ProtocolMachine)

RUNS = settings(
    max_examples=effort(15, 200, 2000), database=None, deadline=None, stateful_step_count=25,
    suppress_health_check=list(HealthCheck), print_blob=False, report_multiple_bugs=False,
    phases=[Phase.generate, Phase.shrink],
)  # fmt: skip


def run(kind: type[_M], factory: Any, examples: int = 100, steps: int = 25, shrinks: bool = True) -> type[_M]:
    """Run a machine on the implementation of an adapter, with at most `steps` steps in a run, and shrink what fails if
    `shrinks`; return the machine, which has the verdicts."""
    phases = [Phase.generate, Phase.shrink] if shrinks else [Phase.generate]
    machine = kind.of(factory)
    try:
        run_state_machine_as_test(
            machine, settings=settings(RUNS, max_examples=examples, stateful_step_count=steps, phases=phases)
        )
    finally:
        machine.release()
    return machine
