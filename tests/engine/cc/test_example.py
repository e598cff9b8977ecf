# SPDX-License-Identifier: GPL-2.0-only
"""The algorithm that docs/architecture.md shows works as the page says."""

import re

import pytest

from tests.support.paths import ROOT
from uetproto.engine.cc.registry import ALGORITHMS
from uetproto.fabric.matrix import traffic_matrix
from uetproto.fabric.study import Study, StudyConfig


def test_the_algorithm_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert 35 <= len([line for line in code.splitlines() if line.strip()]) <= 48
    monkeypatch.setitem(ALGORITHMS, "aimd", ALGORITHMS["nscc"])  # so that it is taken out again
    exec(compile(code, "architecture.md", "exec"), {"__name__": "page"})
    load = traffic_matrix("incast", 16, 250_000)
    ours, none = (Study(StudyConfig(cc=cc), load).run() for cc in ("aimd", "off"))
    assert ours.match
    assert ours.trims < none.trims / 2, "it gives way"
