# SPDX-License-Identifier: GPL-2.0-only
"""The rows of `uetproto bench` about security: what they measure is real, whatever the machine."""

from pathlib import Path

import pytest

from uetproto.bench import security as bench_security
from uetproto.bench.security import MODES, measure, rates
from uetproto.engine.tss.port import SecurePort
from uetproto.errors import LocalError


@pytest.mark.parametrize("mode", MODES)
def test_rates(mode: str) -> None:
    assert min(rates(MODES[mode], 50)) > 0


def test_packets_that_do_not_open_are_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SecurePort, "receive", lambda *_: None)
    with pytest.raises(LocalError, match="0 of 50 packets opened"):
        rates(MODES["direct"], 50)


def test_the_share_is_of_the_better_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_security, "PACKETS", 500)
    times = {"gradient": [4.0, 3.0], "gradient-sealed-direct": [6.0, 5.0]}
    found = list(measure(True, tmp_path, lambda name, source: times[name].pop(0)))
    assert [figure.unit for figure in found] == ["packets/s"] * 4 + ["%"]
    assert found[-1].value == 60
