# SPDX-License-Identifier: GPL-2.0-only
"""`tools/wireshark-matrix` and `tools/pictures`: what they say where a program is missing; what counts as different;
the gallery."""

import os
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from tests.support import paths


def tool(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = SourceFileLoader(name.replace("-", "_"), str(paths.ROOT / "tools" / name))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_differences_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = tool("wireshark-matrix", monkeypatch)
    packet = [("frame", [("frame.number", "1"), ("frame.protocols", "eth:uetp")]), ("eth", "x"),
              ("uetp", [("uetp.pds", [("uetp.psn", "5"), ("uetp.psn", "6")])])]  # fmt: skip
    before = matrix.ours(packet)
    assert before == [("frame.protocols", "eth:uetp"), packet[2]]
    after = matrix.ours([packet[0], ("uetp", [("uetp.pds", [("uetp.psn", "5"), ("uetp.psn", "7")])])])
    assert list(matrix.differences("x", [before], [before])) == []
    assert list(matrix.differences("x", [before], [after])) == [
        'x: packet 1: /uetp/uetp.pds/uetp.psn "6" became /uetp/uetp.pds/uetp.psn "7"'
    ]
    assert list(matrix.differences("x", [before], [])) == ["x: 0 packets instead of 1"]
    shorter = matrix.ours([packet[0]])
    assert len(list(matrix.differences("x", [before], [shorter]))) == 1


def test_a_release_that_cannot_be_made_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = tool("wireshark-matrix", monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(matrix.NotHadError, match="only root"):
        matrix.made("trixie", tmp_path, matrix.MIRROR)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(matrix.NotHadError, match="debootstrap is not installed"):
        matrix.made("trixie", tmp_path, matrix.MIRROR)
    failing = tmp_path / "debootstrap"
    failing.write_text("#!/bin/sh\necho E: no such mirror\nexit 1\n")
    failing.chmod(0o755)
    with pytest.raises(matrix.NotHadError, match="no such mirror"):
        matrix.made("trixie", tmp_path, matrix.MIRROR)


def test_the_matrix_says_so_in_its_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = tool("wireshark-matrix", monkeypatch)
    monkeypatch.setattr(sys, "argv", ["wireshark-matrix", "--only", "gradient", "--folder", str(tmp_path)])
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert matrix.main() == matrix.NOT_HAD
    assert "not judged" in capsys.readouterr().out


def test_pictures_name_what_they_need(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = tool("pictures", monkeypatch)
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "Xvfb" else name)
    assert pictures.screens() == 3
    assert capsys.readouterr().err.endswith("apt-get install xvfb\n")


def test_the_gallery_is_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pictures = tool("pictures", monkeypatch)
    assert pictures.gallery_faults() == []
    table = pictures.gallery_table()
    assert len(table) >= 12
    wrong = table[0]._replace(file="nowhere.svg", commands="uetproto ladder x.pcapng --swg nowhere.svg\n")
    monkeypatch.setattr(pictures, "gallery_table", lambda: [wrong, *table[1:]])
    assert [fault.partition(": ")[2][:40] for fault in pictures.gallery_faults()] == [
        "there is no such file in docs/pictures", "uetproto ladder x.pcapng --swg nowhere.s", "",
    ]  # fmt: skip
    assert pictures.command_fault("uetproto lader x.pcapng") == "there is no command lader"
    assert pictures.command_fault("python -m uetproto.nothing") == "there is no module uetproto.nothing"


def test_drawings_of_the_site_are_pictures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pictures = tool("pictures", monkeypatch)
    monkeypatch.setattr(pictures, "PICTURES", tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    picture = next(one for one in pictures.gallery_table() if one.headers)
    pictures.draw_by_table(picture)
    drawn = (tmp_path / picture.file).read_text()
    assert drawn == (paths.ROOT / "docs" / "pictures" / picture.file).read_text()
    assert ElementTree.fromstring(drawn).findtext("{http://www.w3.org/2000/svg}title") == picture.alt
