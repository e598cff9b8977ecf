# SPDX-License-Identifier: GPL-2.0-only
"""The SES machines find nothing in our endpoint as target or initiator, and name each fault of others."""

from typing import Any

import pytest

from tests.support.effort import effort
from tests.support.testing.machines import SHRINKS, check_found, run
from tests.testing.machines import broken_ses
from uetproto.testing import ProtocolMachine, SesInitiatorMachine, SesTargetMachine, WorldFailure

STORED_WRONG = {"SES-MEMORY", "SES-READ-DATA", "SES-RECEIVED-WRONG", "SES-ATOMIC-RESULT", "SES-COMPLETED-EARLY"}
MACHINES = (SesTargetMachine, SesInitiatorMachine)


@pytest.mark.parametrize("kind", MACHINES)
def test_our_endpoint_has_no_finding(kind: type[ProtocolMachine]) -> None:
    judged = run(kind, kind.peer, effort(10, 200, 2000)).verdicts.judged
    assert all(judged[name] for name in ("SES-COMPLETED", "SES-RETURN-CODE", "SES-MEMORY"))


FORGETFUL = ("begin", {"seed": 0, "knobs": {"store_ack_read_data": False}})
DELIVER, DROP = ("deliver", {"index": 0}), ("drop", {"index": 0})


@pytest.mark.parametrize("kind", MACHINES)
def test_last_bytes_of_a_rendezvous_are_lost(kind: type[ProtocolMachine]) -> None:
    """Its source has then ended, and cannot be read again (ses.md §5.9)."""
    send = ("send", {"mode": "rud", "length": 1025, "tag": None, "kind": "rendezvous"})
    kind.replay(
        [FORGETFUL, ("receive", {"tag": None, "ignore": 0, "length": 4096}), send, DELIVER, DELIVER, DELIVER, DROP]
    )


def test_a_read_that_is_repeated_may_return_newer_bytes() -> None:
    """A target that keeps no data of ACKs reads its memory again, behind a later write (ses.md §9.6)."""
    place = {"mode": "rod", "length": 8, "key": 7, "at": 0}
    steps = [FORGETFUL, ("read", place), DELIVER, DROP, ("write", {**place, "dc": False}), DELIVER]
    SesTargetMachine.replay(steps)
    with pytest.raises(WorldFailure, match="SES-READ-DATA"):
        SesTargetMachine.of(broken_ses.ReadsZeros).replay(steps)


@pytest.mark.parametrize(
    ("kind", "rule"), [(broken_ses.CancelsNothing, "SES-RECEIVED-ONCE"), (broken_ses.HidesCancel, "SES-CANCELLED")]
)
def test_a_cancelled_receive_takes_nothing(kind: Any, rule: str) -> None:
    posted, sent = (
        {"tag": None, "ignore": 0, "length": 4096},
        {"mode": "rud", "length": 8, "tag": None, "kind": "plain"},
    )
    cancelled = [("begin", {"seed": 0, "knobs": {}}), ("receive", posted), ("cancel", {"index": 0})]
    steps = [*cancelled, ("receive", posted), ("send", sent), DELIVER]
    SesTargetMachine.replay(steps)
    with pytest.raises(WorldFailure, match=rule):
        SesTargetMachine.of(kind).replay(steps)


BEGIN = ("begin", {"seed": 0, "knobs": {}})
KEPT_OUT: list[Any] = [
    (broken_ses.ShowsHidden, "SES-RETURN-CODE: write 1 .* legal is BAD_MKEY", [
        ("bad_access", {"mode": "rud", "fault": "hidden", "length": 8, "reads": False}),
    ]),
    (broken_ses.ShowsHidden, "SES-RETURN-CODE: atomic 1 .* legal is BAD_MKEY", [
        ("bad_work", {"mode": "rud", "fault": "hidden", "length": 8, "fetch": True}),
    ]),
    (broken_ses.TakesFromAll, r"SES-MATCH: .* \(tag 0, ignores 0x0, from initiator 1\) took .*, tag 0\n", [
        ("receive", {"tag": 0, "ignore": 0, "length": 4096, "source": 1}),
        ("send", {"mode": "rud", "length": 8, "tag": 0, "kind": "plain", "source": None}),
    ]),
]  # fmt: skip


def test_other_jobs_and_initiators_are_kept_out() -> None:
    for kind, rule, steps in KEPT_OUT:
        SesTargetMachine.replay([BEGIN, *steps])
        with pytest.raises(WorldFailure, match=rule):
            SesTargetMachine.of(kind).replay([BEGIN, *steps])


def test_of_a_black_box_what_cannot_be_judged_is_told() -> None:
    target = run(SesTargetMachine, broken_ses.DarkSes, 5)
    assert "SES-MEMORY" in target.verdicts.not_judged
    hidden = {"work 'cancel'", "work 'rendezvous'", "work 'restrict'", "work 'directed'", "operations in mode rudi"}
    assert hidden <= {*target.verdicts.never_judged}
    assert target.verdicts.judged["SES-COMPLETED"]  # of our operations
    initiator = run(SesInitiatorMachine, broken_ses.DarkSes, 5)
    assert "SES-COMPLETED" in initiator.verdicts.not_judged
    assert initiator.verdicts.judged["SES-MEMORY"]  # of our regions


@pytest.mark.parametrize(
    ("machine", "kind", "rules"),
    [
        (SesTargetMachine, broken_ses.WrongOffset, STORED_WRONG),
        (SesTargetMachine, broken_ses.LostLastByte, STORED_WRONG),
        (SesTargetMachine, broken_ses.WrongCode, {"SES-RETURN-CODE"}),
        (
            SesTargetMachine,
            broken_ses.LateMemory,
            {"SES-COMPLETED-EARLY", "SES-READ-DATA", "SES-ATOMIC-RESULT", "SES-MEMORY"},
        ),
        (SesTargetMachine, broken_ses.WrongTag, {"SES-MATCH"}),
        (SesTargetMachine, broken_ses.ForgetsLength, {"SES-TRUNCATED"}),
        (SesTargetMachine, broken_ses.IgnoresRights, {"SES-RETURN-CODE", "SES-MEMORY"}),
        (SesInitiatorMachine, broken_ses.ForgetsAtClose, {"SES-COMPLETED"}),
        (SesInitiatorMachine, broken_ses.WritesBeside, {"SES-MEMORY", "SES-READ-DATA"}),
        (SesInitiatorMachine, broken_ses.CompletesAtOnce, {"SES-COMPLETED-EARLY"}),
        (SesInitiatorMachine, broken_ses.ShortRead, {"SES-READ-DATA"}),
        (SesInitiatorMachine, broken_ses.SwapsTags, {"SES-MATCH", "SES-COMPLETED"}),
        (SesInitiatorMachine, broken_ses.HidesErrors, {"SES-RETURN-CODE"}),
    ],
)
def test_a_fault_is_named(machine: Any, kind: Any, rules: set[str]) -> None:
    check_found(machine, kind, rules, shrinks=SHRINKS, steps=effort(15, 25, 25))
