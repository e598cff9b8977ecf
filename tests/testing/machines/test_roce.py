# SPDX-License-Identifier: GPL-2.0-only
"""The RoCE machine finds nothing in our queue pairs, and names each fault of others."""

from typing import Any

import pytest

from tests.support.testing.machines import RUNS, SHRINKS, check_found, run
from tests.testing.machines import broken_roce as broken
from uetproto.testing import RoceMachine


def test_our_queue_pair_has_no_finding() -> None:
    judged = run(RoceMachine, RoceMachine.peer, RUNS.max_examples).verdicts.judged
    names = (
        "ROCE-COMPLETED", "ROCE-RECEIVED", "ROCE-MEMORY", "ROCE-READ-DATA", "ROCE-ATOMIC-RESULT", "ROCE-ICRC",
        "ROCE-MSN",
    )  # fmt: skip
    assert all(judged[name] for name in names)


def test_of_a_black_box_what_cannot_be_judged_is_told() -> None:
    verdicts = run(RoceMachine, broken.BlackBox, 5).verdicts
    assert {"ROCE-COMPLETED", "ROCE-MEMORY", "ROCE-COMPLETED-EARLY"} <= verdicts.not_judged.keys()
    assert verdicts.judged["ROCE-READ-DATA"]  # by what the peer read


def test_copies_may_exhaust_the_retries_of_an_implementation_that_counts_them() -> None:
    """Each copy of a request behind a lost one gets a NAK, and seven NAKs end the queue pair."""
    many = [("duplicate", {"index": 0})] * 7 + [("deliver", {"index": 0})] * 8
    send = ("fetch_add", {"node": 0, "add": 1})
    begin = ("begin", {"psns": [0, 0], "reads": 16, "rnr_timer": 12, "knobs": {}})
    machine = RoceMachine.of(broken.Limited)
    machine.replay([begin, send, send, ("deliver", {"index": 1}), ("drop", {"index": 0}), *many])
    assert machine.verdicts.judged["ROCE-COMPLETED-FAILED"]


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (broken.NoRetransmission, {"ROCE-COMPLETED"}),
        (broken.WrongMsn, {"ROCE-MSN"}),
        (broken.AddsAgain, {"ROCE-MEMORY"}),
        (broken.LosesByte, {"ROCE-COMPLETED-EARLY"}),
        (broken.Twice, {"ROCE-COMPLETION-ORDER"}),
    ],
)
def test_a_fault_is_named_and_shrunk(kind: Any, rules: set[str]) -> None:
    check_found(RoceMachine, kind, rules, shrinks=SHRINKS)
