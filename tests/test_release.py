# SPDX-License-Identifier: GPL-2.0-only
"""A release has everything that is promised: its files, its version."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "uetproto"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_wheel_takes_every_file_of_the_package() -> None:
    """Data of a new kind, or in a new folder, was left out of wheels twice."""
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["uetproto"]
    taken = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    own = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert len(own) > 900, "the scan misses files"
    assert sorted(path for path in own - taken if path.suffix != ".py") == []


def test_the_version_stands_in_one_place() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "uetproto.__version__"}
