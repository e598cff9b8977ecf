# SPDX-License-Identifier: GPL-2.0-only
"""Long runs collect garbage seldom, and leave the thresholds of the program as they were."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from uetproto.api import distributed as dist
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load
from uetproto.garbage import SELDOM, seldom_collected
from uetproto.traffic.generate import generate
from uetproto.traffic.profile import load as load_profile

GRADIENT = Path(__file__).parent.parent / "pcaps" / "gradient.pcapng"
Seen = Callable[..., None]


RUNS: dict[str, Callable[[Path, Seen], object]] = {
    "audit": lambda folder, seen: audit([str(GRADIENT)], Options(), seen),
    "run": lambda folder, seen: run(load("gradient")),
    "generate": lambda folder, seen: generate(load_profile("bench"), str(folder / "x.pcapng"), packets=9),
    "collective": lambda folder, seen: dist.run(seen, ranks=2),
}


@pytest.mark.parametrize("name", RUNS)
def test_thresholds_are_set_during_a_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds = set()
    before, clock = gc.get_threshold(), Clock.run

    def seen(*_: object) -> None:
        thresholds.add(gc.get_threshold())

    def watched(*arguments: Any) -> bool:
        seen()
        return clock(*arguments)

    monkeypatch.setattr(Clock, "run", watched)
    RUNS[name](tmp_path, seen)
    assert thresholds == {SELDOM}
    assert gc.get_threshold() == before


@pytest.mark.parametrize(
    ("own", "during"), [((700, 10, 10), SELDOM), ((90_000, 5, 60), (90_000, 50, 60)), ((0, 1, 1), (0, 1, 1))]
)
def test_what_a_program_has_set_is_kept(own: tuple[int, int, int], during: tuple[int, int, int]) -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(*own)
        with seldom_collected():
            assert gc.get_threshold() == during
        assert gc.get_threshold() == own
    finally:
        gc.set_threshold(*before)
