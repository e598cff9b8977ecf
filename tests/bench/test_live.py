# SPDX-License-Identifier: GPL-2.0-only
"""The measurement of a real link, with few bytes: the ends agree on what was written."""

import pytest

from uetproto.bench import live, live_end


def test_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_FEW", 1)
    figures = list(live.measure(quick=True))
    assert [figure.unit for figure in figures] == ["packets/s", "MiB", "echoes", "loops"]
    assert all(figure.value > 0 for figure in figures)
    assert live_end.SIZE // 4096 == 4096
