"""The SES machines find nothing in our endpoint as target or initiator, and name each fault of others."""

from typing import Any

import pytest

from tests.support.effort import effort
from tests.support.testing.machines import SHRINKS, check_found, run
from tests.testing.machines import broken_ses
from uetproto.testing import ProtocolMachine, SesInitiatorMachine, SesTargetMachine

MACHINES = (SesTargetMachine, SesInitiatorMachine)


@pytest.mark.parametrize("kind", MACHINES)
def test_our_endpoint_has_no_finding(kind: type[ProtocolMachine]) -> None:
    judged = run(kind, kind.peer, effort(10, 200, 2000)).verdicts.judged
    assert all(judged[name] for name in ("SES-COMPLETED", "SES-RETURN-CODE", "SES-MEMORY"))


def test_of_a_black_box_what_cannot_be_judged_is_told() -> None:
    target = run(SesTargetMachine, broken_ses.DarkSes, 5)
    assert "SES-MEMORY" in target.verdicts.not_judged
    assert target.verdicts.judged["SES-COMPLETED"]  # of our operations
    initiator = run(SesInitiatorMachine, broken_ses.DarkSes, 5)
    assert "SES-COMPLETED" in initiator.verdicts.not_judged
    assert initiator.verdicts.judged["SES-MEMORY"]  # of our regions


@pytest.mark.parametrize(
    ("machine", "kind", "rules"),
    [
        (SesTargetMachine, broken_ses.WrongOffset, {"SES-MEMORY", "SES-READ-DATA", "SES-RECEIVED-WRONG"}),
        (SesTargetMachine, broken_ses.LostLastByte, {"SES-MEMORY", "SES-READ-DATA", "SES-RECEIVED-WRONG"}),
        (SesTargetMachine, broken_ses.WrongCode, {"SES-RETURN-CODE"}),
        (
            SesTargetMachine,
            broken_ses.LateMemory,
            {"SES-COMPLETED-EARLY", "SES-READ-DATA", "SES-ATOMIC-RESULT", "SES-MEMORY"},
        ),
        (SesTargetMachine, broken_ses.WrongTag, {"SES-MATCH"}),
        (SesInitiatorMachine, broken_ses.WritesBeside, {"SES-MEMORY", "SES-READ-DATA"}),
        (SesInitiatorMachine, broken_ses.CompletesAtOnce, {"SES-COMPLETED-EARLY"}),
        (SesInitiatorMachine, broken_ses.ShortRead, {"SES-READ-DATA"}),
        (SesInitiatorMachine, broken_ses.SwapsTags, {"SES-MATCH"}),
        (SesInitiatorMachine, broken_ses.HidesErrors, {"SES-RETURN-CODE"}),
    ],
)
def test_a_fault_is_named(machine: Any, kind: Any, rules: set[str]) -> None:
    most = 14 if kind is not broken_ses.HidesErrors else 50  # where Hypothesis sometimes leaves steps that only wait
    check_found(machine, kind, rules, shrinks=SHRINKS, steps=25, most=most)
