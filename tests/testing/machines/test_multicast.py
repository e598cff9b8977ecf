# SPDX-License-Identifier: GPL-2.0-only
"""The machine of multicast finds nothing in our ranks, and a fault of theirs, which is written and played again."""

from pathlib import Path

import pytest

from tests.support.cli.frames import invoke
from tests.support.effort import effort
from uetproto.collectives.multicast.recovery import ChunkRequester
from uetproto.testing.machines.fabrics.multicast import MulticastMachine
from uetproto.testing.machines.finding import MachineFinding, keep, played_again

BEGIN = {
    "size": 3, "mtu": 4, "roots": 1, "subgroups": 1, "batch": 4, "fetch_from": -1, "scale": 1e6, "limited": False,
    "loopback": True, "counter": 0, "seed": 0,
}  # fmt: skip


def test_our_ranks_have_no_finding(tmp_path: Path) -> None:
    steps = str(effort(500, 5_000, 50_000))
    result = invoke("fuzz", "multicast", "--steps", steps, "--seed", "1", "-o", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert f"multicast: {int(steps):,} steps of " in result.stdout


def test_a_rank_that_forgets_a_grant_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [("begin", BEGIN), ("lose", {"receiver": 1, "chunk": 0}), ("post", {"length": 4, "root": None, "skew": 0})]
    assert not MulticastMachine.replay(steps).failed
    monkeypatch.setattr(ChunkRequester, "granted_by", lambda *_: True)
    _, failure = played_again(MulticastMachine, steps)
    assert failure is not None
    assert failure.name == "MULTICAST-DONE-ONCE", failure.text
    file = keep(MachineFinding("multicast", None, "1/0", failure, 3), tmp_path)
    again = invoke("run", str(file))
    assert again.exit_code == 1
    for text in (file.with_suffix(".txt").read_text("utf-8"), again.stdout):
        assert "Messages between our engines:" in text
        assert "chunk 0 of task 0, 4 bytes [lost]" in text
        assert "NEED_FETCH block of rank 0" in text
    monkeypatch.undo()
    assert invoke("run", str(file)).exit_code == 0
