# SPDX-License-Identifier: GPL-2.0-only
"""The row of `uetproto bench` about tshark: it has a figure for each run, and none where nothing ran."""

from pathlib import Path

import pytest

from tests.support.interop.tshark import needs_tshark
from uetproto.bench import wireshark
from uetproto.bench.wireshark import ROWS, measure, user_time
from uetproto.errors import LocalError


@needs_tshark
def test_a_capture_that_is_none_is_no_time(tmp_path: Path) -> None:
    (tmp_path / "none.pcap").write_bytes(b"none")
    with pytest.raises(LocalError, match="tshark"):
        user_time(["-r", str(tmp_path / "none.pcap")], tmp_path)


@needs_tshark
def test_figures_compare_equal_numbers_of_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def times(arguments: list[str], _: Path) -> float:
        asked.append(arguments)
        return 3.0 if "-X" in arguments else 2.0

    monkeypatch.setattr(wireshark, "user_time", times)
    monkeypatch.setattr(wireshark, "PACKETS", 100)
    assert [(figure.value, figure.reached) for figure in measure(True, tmp_path)] == [(150, True)] * len(ROWS)
    assert sum("-2" in arguments for arguments in asked) == 4


def test_without_tshark_there_is_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wireshark.shutil, "which", lambda _: None)
    assert list(measure(True, tmp_path)) == []
