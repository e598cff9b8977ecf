# SPDX-License-Identifier: GPL-2.0-only
"""The machine of SHARP nodes finds nothing in ours, and names each fault of others."""

from typing import Any

import pytest

from tests.support.effort import effort
from tests.support.testing.machines import RUNS, SHRINKS, check_found, run
from tests.testing.machines import broken_sharp as broken
from uetproto.testing import SharpNodeMachine, WorldFailure
from uetproto.testing.machines.sharp_node_model import SharedCollective as Collective
from uetproto.testing.machines.sharp_node_model import SharpShape, folded, rounded, total
from uetproto.wire.headers.sharp import Coll, Dtype, Op


def test_our_node_has_no_finding() -> None:
    judged = run(SharpNodeMachine, SharpNodeMachine.factory, RUNS.max_examples, shrinks=SHRINKS).verdicts.judged
    names = (
        "SHARP-VALUE", "SHARP-EARLY", "SHARP-HANGS", "SHARP-LEFTOVERS", "SHARP-COMPLETE", "SHARP-EDGE-LOAD",
        "SHARP-WINDOW", "ROCE-MSN",
    )  # fmt: skip
    assert all(judged[name] for name in names), judged


@pytest.mark.parametrize("parent", [True, False])
@pytest.mark.parametrize("short", [True, False])
def test_a_lock_that_takes_long_parts_no_members(parent: bool, short: bool) -> None:
    """Two groups want the only semaphore while all frames of the node are lost for more than 100 ms, the default of
    T_lock. Below a parent, nobody may give the lock up: the sibling would hold it alone."""
    begin = {
        "children": 2, "parent": parent, "last": False, "groups": 2, "sat": True, "osts": 2, "payload": 32, "window": 1,
        "batch": 1, "early": False, "mtu": 4096, "joined": True, "t_result": 60_000, "psn": 0, "knobs": {},
    }  # fmt: skip
    what = {"op": "SUM", "dtype": "INT", "root": 0, "little_endian": False}
    streamed = {"coll": "allreduce", "count": 40, **what}
    lost = ("one_way", {"towards": 0, "duration": 40_000_000_000})
    machine = SharpNodeMachine.replay([
        ("begin", begin),
        ("everybody", {"group": 8, **streamed}),
        *[("collective", {"member": 0, "group": 8, "coll": "reduce", "count": 2, **what})] * short,
        ("everybody", {"group": 7, **streamed}),
        lost, lost, lost,
    ])  # fmt: skip
    assert isinstance(machine, SharpNodeMachine)
    assert machine.model.is_done()
    assert not machine.model.harmed


def test_of_a_black_box_what_cannot_be_judged_is_told() -> None:
    verdicts = run(SharpNodeMachine, broken.BlackBox, 5).verdicts
    assert "SHARP-LEFTOVERS" in verdicts.never_judged
    assert verdicts.judged["SHARP-HANGS"]


QUICK = {broken.Agrees: 6, broken.LosesChild: 5, broken.Leaks: 5, broken.NoRetransmission: 10}
"""Steps of a run that find a fault soonest, in place of 20."""


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (broken.LosesChild, {"SHARP-VALUE"}),
        (broken.OwnResult, {"SHARP-VALUE"}),
        (broken.Agrees, {"SHARP-AGREED", "SHARP-MISMATCH", "SHARP-RESULT"}),
        (broken.Leaks, {"SHARP-LEFTOVERS"}),
        (broken.NoRetransmission, {"SHARP-HANGS", "SHARP-JOINED", "SHARP-LEFT"}),
    ],
)
def test_a_fault_is_named_and_shrunk(kind: Any, rules: set[str]) -> None:
    shrinks = kind is broken.Leaks or SHRINKS
    check_found(SharpNodeMachine, kind, rules, shrinks=shrinks, steps=effort(QUICK.get(kind, 20), 20, 20))


def test_a_sum_that_is_rounded_too_often_is_found() -> None:
    """It takes three operands and a short float, for which chance needs 400 to 3,000 steps."""
    begin = ("begin", {
        "children": 4, "parent": False, "last": False, "groups": 1, "sat": False, "osts": 2, "payload": 128,
        "window": 1, "batch": 1, "early": False, "mtu": 4096, "joined": True, "t_result": 60_000, "psn": 0, "knobs": {},
    })  # fmt: skip
    what = {"coll": "allreduce", "op": "SUM", "dtype": "FLOAT_SHORT", "count": 40, "root": 0, "little_endian": False}
    steps = [begin, ("everybody", {"group": 7, **what})]
    assert not SharpNodeMachine.replay(steps).failed
    with pytest.raises(WorldFailure, match=r"SHARP-VALUE: ALLREDUCE 0 of group 7 .* \(SUM FLOAT_SHORT\)") as found:
        SharpNodeMachine.of(broken.RoundsOften).replay(steps)
    drawn = "SHARP AGG_REQ tree 0 group 7 seq 0 ALLREDUCE SUM"
    assert any(drawn in line for line in found.value.__notes__), found.value.__notes__


def test_the_examples_of_the_page() -> None:
    """sharp.md §3.5: what the order and the rounding do."""
    short = [[(2048.0,)], [(1.0,)], [(1.0,)], [(1.0,)]]
    assert folded(Op.SUM, Dtype.FLOAT_SHORT, short, False) == [(2052.0,)]
    assert folded(Op.SUM, Dtype.FLOAT_SHORT, short, True) == [(2048.0,)]
    tree = [folded(Op.SUM, Dtype.FLOAT, pair, False) for pair in ([[(1e8,)], [(1.0,)]], [[(-1e8,)], [(1.0,)]])]
    assert folded(Op.SUM, Dtype.FLOAT, tree, False) == [(0.0,)]
    assert folded(Op.MIN, Dtype.FLOAT, [[(0.0,)], [(-0.0,)]], False)[0][0].hex() == "-0x0.0p+0"
    assert folded(Op.MAXLOC, Dtype.INT8, [[(3, 2)], [(3, 1)], [(2, 0)]], False) == [(3, 1)]
    assert folded(Op.SUM, Dtype.INT8, [[(127,)], [(1,)]], False) == [(-128,)]
    assert rounded(257.0, Dtype.BFLOAT16) == 256.0  # a tie goes to the even one
    what = Collective(Coll.ALLREDUCE, Op.SUM, Dtype.UINT8, 3, 0, 1, False)
    rows = [[value for (value,) in what.vector(member)] for member in range(3)]
    assert what.pack(total(SharpShape(2, True), what, False)) == bytes(
        sum(row) & 0xFF for row in zip(*rows, strict=True)
    )
