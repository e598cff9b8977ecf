# SPDX-License-Identifier: GPL-2.0-only
"""The TSS machine finds nothing in our secure domains, and names each fault of others."""

from typing import Any

import pytest

from tests.support.effort import effort
from tests.support.testing.machines import RUNS, SHRINKS, check_found, run
from tests.testing.machines import broken_tss as broken
from uetproto.testing import TssMachine


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
    check_found(TssMachine, kind, rules, shrinks=SHRINKS, steps=effort(10, 15, 15))
