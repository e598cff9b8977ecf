# SPDX-License-Identifier: GPL-2.0-only
"""The rows emulator and scale of `uetproto bench`: what they measure is real, whatever the machine."""

from typing import Any

import pytest

from uetproto.bench.emulator import floor, measure, runs, scale
from uetproto.bench.emulator.before import BEFORE
from uetproto.errors import LocalError


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "_LOOPS", 1000)
    monkeypatch.setattr(measure, "_FLOOR", 128)
    monkeypatch.setattr(runs, "_TOUCHED", 1)
    monkeypatch.setattr(measure, "ROWS", tuple(row._replace(size=4 << 20) for row in measure.ROWS[:5:2]))

    def here(arguments: list[str]) -> tuple[dict[str, Any], int]:
        return runs.run(arguments[2], int(arguments[3]), arguments[4]), 0

    found = list(measure.measure(True, False, here))
    assert len(found) == 2 + 3 + 2
    assert all(figure.value > 0 for figure in found)
    assert found[4].what.startswith("two fi_writes into one port: before ")
    assert found[-1].what.startswith("fi_write, sealed, one tap: packet by packet ")
    assert set(BEFORE) == set(runs.RUNS) - {"sealed"}


@pytest.mark.parametrize(("name", "size", "packets"), [("ring", 1 << 16, 480), ("generate", 200, 200)])
def test_runs(name: str, size: int, packets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "_LOOPS", 1000)
    monkeypatch.setattr(runs, "_TOUCHED", 1)
    assert runs.run(name, size, "auto")["packets"] == packets


def test_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scale.mesh(4, 40) > 0
    assert scale.flows(8) > 0
    monkeypatch.setattr(scale, "FLOWS_EACH", 1)
    monkeypatch.setattr(scale.Study, "matches", lambda study: False)
    with pytest.raises(LocalError, match="did not arrive"):
        scale.flows(4)


def test_the_start() -> None:
    assert 0 < scale.seconds_of(["-c", "pass"], 1) < 10
    with pytest.raises(Exception, match="returned non-zero"):
        scale.seconds_of(["-c", "import nothing_of_the_kind"], 1)
