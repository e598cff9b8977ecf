# SPDX-License-Identifier: GPL-2.0-only
"""The row of `uetproto bench` about Python programs: what it measures is real, whatever the machine."""

from pathlib import Path

import pytest

from uetproto.bench import python


def test_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "IMPORTS", 4)
    monkeypatch.setattr(python, "PACKETS", 2_000)
    imported, read, columns, joined, wanted = python.measure(True, tmp_path)
    assert imported.most
    assert 0 < imported.value < 1000
    assert read.value > 0
    assert columns.value > 0
    assert joined.value > 0
    assert wanted.value > 0


def test_a_process_that_fails_is_no_measurement() -> None:
    with pytest.raises(Exception, match="returned non-zero exit status"):
        python.seconds_of("import nothing_of_the_kind", 1)
