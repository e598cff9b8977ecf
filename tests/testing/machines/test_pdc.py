# SPDX-License-Identifier: GPL-2.0-only
"""The PDC machine finds nothing in our engine, in whatever way it is connected, and names each fault of others."""

import sys
from typing import Any

import pytest
from hypothesis.errors import InvalidArgument, StopTest

from tests.support.testing import machines
from tests.testing.machines import broken
from uetproto.engine.contract import MILLISECOND
from uetproto.testing import AdapterFault, Capabilities, PdcEngine, PdcMachine, ProcessAdapter, WorldFailure
from uetproto.testing.machines.finding import fail_shorter, played_again, shortened


def run(factory: Any, examples: int = 100, **how: Any) -> type[PdcMachine]:
    return machines.run(PdcMachine, factory, examples, **how)


def test_our_engine_has_no_finding() -> None:
    machine = run(PdcMachine.peer, machines.RUNS.max_examples)
    judged = machine.verdicts.judged
    assert all(judged[name] for name in ("PDS-DELIVERED-ONCE", "PDS-COMPLETED", "PDC-WINDOW", "PDS-ACK-RETX"))


def test_of_a_black_box_what_cannot_be_judged_is_told() -> None:
    machine = run(broken.BlackBox, 5)
    assert {"PDC-WINDOW", "PDS-COMPLETED"} <= machine.verdicts.not_judged.keys()
    assert machine.verdicts.judged["PDS-DELIVERED-ONCE"]  # by what the peer delivered


def test_a_process_is_driven_like_the_engine_inside() -> None:
    command = [sys.executable, "-m", "uetproto.testing.adapters.serve", "pdc"]
    run(lambda: ProcessAdapter(command), 3)


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (broken.Deaf, {"PDS-UNANSWERED", "PDS-COMPLETED"}),
        (broken.Twice, {"PDS-DELIVERED-ONCE"}),
        (broken.NoRetransmission, {"PDS-COMPLETED"}),
        (broken.WrongCack, {"PDS-ACK-UNSENT"}),
        (broken.Foreign, {"FRAME"}),
    ],
)
def test_a_fault_is_named_and_shrunk(kind: Any, rules: set[str]) -> None:
    machines.check_found(PdcMachine, kind, rules, shrinks=machines.SHRINKS)


@pytest.mark.parametrize(("kind", "name"), [(broken.Raising, "adapter-raised"), (broken.Garbage, "adapter-garbage")])
def test_an_adapter_that_breaks_its_contract_is_the_finding(kind: Any, name: str) -> None:
    with pytest.raises(AdapterFault) as found:
        run(kind)
    assert found.value.kind == name


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("import sys; sys.exit(3)", "adapter-died"),
        ("import time; time.sleep(9)", "adapter-hung"),
        ("print('no JSON', flush=True); input()", "adapter-garbage"),
        ("print('[]', flush=True); input()", "adapter-garbage"),
        ('print(\'{"result": {"capabilities": {"speed": 1}}}\', flush=True); input()', "adapter-garbage"),
    ],
)
def test_a_process_that_does_not_answer_is_the_finding(program: str, name: str) -> None:
    with pytest.raises(AdapterFault) as found:
        ProcessAdapter([sys.executable, "-c", program], timeout=0.5)
    assert found.value.kind == name


def test_what_is_no_adapter_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="class or function"):
        PdcMachine.of(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="needs `capabilities`"):
        run(object)


def test_a_finding_is_played_again_from_its_steps() -> None:
    steps = [("begin", {"seed": 0, "knobs": {}}), ("message", {"node": 0, "mode": "rud", "packets": 1}),
             ("drop", {"index": 0})]  # fmt: skip
    with pytest.raises(WorldFailure, match="PDS-COMPLETED"):
        PdcMachine.of(broken.NoRetransmission).replay(steps)
    assert PdcMachine.replay(steps).played == steps
    with pytest.raises(InvalidArgument, match="no rule of pdc"):
        PdcMachine.replay([("lose", {})])


def steps_of(knobs: dict[str, Any], *steps: tuple[str, Any]) -> list[Any]:
    return [("begin", {"seed": 0, "knobs": knobs}), *steps]


FROM_PEER, FROM_HERE = (("exchange", {"node": node, "mode": "rud"}) for node in (1, 0))


@pytest.mark.parametrize(("kind", "rule", "steps"), [
    (broken.Unwilling, "PDS-REFUSED", steps_of({}, FROM_HERE)),
    (broken.NeverCloses, "PDC-CLOSED", steps_of({}, FROM_HERE, ("close", {"node": 0, "op": "close"}))),
    (broken.Deaf, "PDS-UNANSWERED", steps_of(
        {}, ("message", {"node": 1, "mode": "rud", "packets": 1}),
        *[("one_way", {"towards": 0, "duration": 5 * MILLISECOND})] * 2,
    )),
    (broken.NoClear, "PDS-CLEAR-TAKEN", steps_of({"guaranteed_response": True}, FROM_PEER, FROM_PEER)),
    (broken.Impatient, "PDS-NACK-RETX-EARLY", steps_of({"peer_max_pdcs": 1}, FROM_PEER, FROM_HERE)),
    (broken.Impatient, "PDS-CLEAR-REQ-EARLY", steps_of(
        {"guaranteed_response": True}, ("message", {"node": 1, "mode": "rud", "packets": 1}),
        *[("one_way", {"towards": 0, "duration": MILLISECOND // 2})] * 2,
    )),
])  # fmt: skip
def test_a_duty_is_named(kind: Any, rule: str, steps: list[Any]) -> None:
    PdcMachine.replay(steps)
    with pytest.raises(WorldFailure) as found:
        PdcMachine.of(kind).replay(steps)
    assert found.value.name == rule, found.value


def test_who_goes_back_on_rod_need_not_wait_for_a_refused_packet() -> None:
    """Its source goes back to a packet before, of which a SACK has told; and a copy of it is refused once more."""
    rod, noop = (
        ("exchange", {"node": 0, "mode": "rod"}),
        ("control", {"node": 0, "op": "noop", "mode": "rud", "value": 0}),
    )
    respond, half = ("respond", {"index": 0}), MILLISECOND // 2
    deliver, lost = ("deliver", {"index": 0}), ("one_way", {"towards": 0, "duration": half})
    late = {"late_response": True, "peer_max_gtd_del": 1}
    PdcMachine.replay(steps_of(
        late, rod, rod, respond, lost, ("wait", {"duration": half}), ("wait", {"duration": half}),
        ("control", {"node": 0, "op": "probe", "mode": "rud", "value": 0}), rod,
    ))  # fmt: skip
    PdcMachine.replay(steps_of(
        late | {"guaranteed_response": True}, rod, rod, noop, deliver, respond, lost, ("stale", {"back": 1}), deliver,
        noop, deliver, deliver, ("stale", {"back": 8}), deliver, deliver,
    ))  # fmt: skip


def test_a_message_does_not_wait_for_a_pdc_that_is_idle() -> None:
    """The only PDC becomes idle after the message that waits for one was submitted."""
    PdcMachine.replay(steps_of({"max_pdcs": 1}, *[
        ("message", {"node": 0, "mode": mode, "packets": 1}) for mode in ("rud", "rod")
    ]))  # fmt: skip


def test_a_finding_loses_the_steps_and_settings_that_it_does_not_need() -> None:
    lost = [("message", {"node": 0, "mode": "rud", "packets": 1}), ("drop", {"index": 0})]
    ticks = [("tick", {})] * 3
    machine, failure = played_again(
        PdcMachine.of(broken.NoRetransmission), steps_of({"mp_range": 128}, *ticks, *lost, *ticks)
    )
    assert failure is not None
    assert failure.name == "PDS-COMPLETED"
    assert [*shortened(type(machine), failure).steps] == steps_of({}, *lost)


def test_a_failure_of_a_test_case_loses_the_steps_that_it_does_not_need() -> None:
    lost = [("message", {"node": 0, "mode": "rud", "packets": 1}), ("drop", {"index": 0})]
    machine = PdcMachine.of(broken.NoRetransmission)
    assert machine.TestCase is machine.TestCase
    with pytest.raises(WorldFailure) as long:
        machine.replay(steps_of({"mp_range": 128}, ("tick", {}), *lost, ("tick", {})))
    with pytest.raises(WorldFailure, match="PDS-COMPLETED: ") as short:
        fail_shorter(machine, long.value)
    assert [*short.value.steps] == steps_of({}, *lost)
    assert short.value.__notes__[-6:] == [
        "Failing steps:", "state = PdcMachineForNoRetransmission()", "state.begin(seed=0, knobs={})",
        "state.message(node=0, mode='rud', packets=1)", "state.drop(index=0)", "state.teardown()",
    ]  # fmt: skip
    fail_shorter(machine, short.value)  # it needs all


class Finite(PdcEngine):
    """Our PDS with its own settings: it gives up after five retransmissions."""

    capabilities = Capabilities(work=("message",), modes=("rud",))


WAIT = ("wait", {"duration": 40 * MILLISECOND})


@pytest.mark.parametrize("more", [
    [("message", {"node": 0, "mode": "rud", "packets": 1}), WAIT, WAIT],
    [("message", {"node": 1, "mode": "rud", "packets": 1}), WAIT, WAIT],
    [("message", {"node": 1, "mode": "rud", "packets": 3}), ("corrupt", {"index": 1, "bit": 272}),
     ("trim", {"index": 1, "last_hop": False}), ("deliver", {"index": 2})],
])  # fmt: skip
def test_what_is_legal_is_no_finding(more: list[Any]) -> None:
    """A frame that waits for long, at an implementation that gives up and at its peer; damage that no CRC32C shows."""
    PdcMachine.of(Finite).replay([("begin", {"seed": 0, "knobs": {}}), *more])


def test_a_run_that_hypothesis_ends_early_has_no_end_to_judge() -> None:
    machine = PdcMachine.of(broken.NoRetransmission)()
    for name, arguments in [("begin", {"seed": 0, "knobs": {}}), ("message", {"node": 0, "mode": "rud", "packets": 1})]:
        machine.steps[name](machine, **arguments)
    machine.drop(index=0)
    with pytest.raises(StopTest):  # noqa: PT012 - the end of the run comes while Hypothesis' exception passes
        try:
            raise StopTest(0)
        finally:
            machine.teardown()
    with pytest.raises(WorldFailure, match="PDS-COMPLETED"):
        machine.teardown()


def test_a_message_waits_for_a_pdc_that_a_clear_leaves_idle() -> None:
    """With one PDC, a message in another mode goes when the CLEAR_CMD of the first one has left; it waited for
    Pend_Timeout."""
    machine = PdcMachine.of(PdcEngine)
    knobs = {"guaranteed_response": True, "peer_max_pdcs": 1}
    messages = [("message", {"mode": mode, "node": 1, "packets": 1}) for mode in ("rud", "rod")]
    machine.replay([("begin", {"seed": 0, "knobs": knobs}), *messages])
