"""The TSS machine finds nothing in our secure domains, and names each fault of others."""

from typing import Any

import pytest

from tests.support.effort import effort
from tests.support.testing.machines import RUNS, run
from tests.testing.machines import broken_tss as broken
from uetproto.testing import TssMachine, WorldFailure


def test_our_secure_domain_has_no_finding() -> None:
    judged = run(TssMachine, TssMachine.peer, RUNS.max_examples).verdicts.judged
    assert all(
        judged[name] for name in ("TSS-ICV", "TSS-NONCE-REUSED", "TSS-EPOCH-ORDER", "PDS-COMPLETED", "PDC-WINDOW")
    )


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (broken.CounterStays, {"TSS-NONCE-REUSED", "TSS-TSC-ORDER"}),
        (broken.AcksInClear, {"FRAME"}),
        (broken.OldKey, {"TSS-ICV", "FRAME"}),
        (broken.OneKey, {"PDS-COMPLETED"}),
    ],
)
def test_a_fault_is_named_and_shrunk(kind: Any, rules: set[str]) -> None:
    shrinks = kind is broken.OldKey or effort(0, 1, 1) == 1
    with pytest.raises(WorldFailure) as found:
        run(TssMachine, kind, steps=15, shrinks=shrinks)
    assert found.value.name in rules, found.value
    notes = "\n".join(found.value.__notes__)
    assert "10.0.0.1 is the implementation" in notes
    assert notes.count("state.") <= 12 or not shrinks, notes
