# SPDX-License-Identifier: GPL-2.0-only
"""A release has everything that is promised: its files, its version."""

import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from tests.support.effort import PROFILE, effort
from uetproto import __version__

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


def test_changelog_and_citation_tell_of_this_version() -> None:
    section = re.search(
        rf"^## {re.escape(__version__)} \((.*)\)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert section is not None
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert {f"version: {__version__}", f"date-released: {section[1]}"} <= set(citation)


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what it is made of: nothing is left in the tree."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for name in ("uetproto", "docs/man", "share"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-c", "from setuptools import build_meta; build_meta.build_wheel('.')", cwd=tree)
    (found,) = tree.glob("*.whl")
    assert found.name == f"uetproto-{__version__}-py3-none-any.whl"
    return found


def test_commands_of_the_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    """One of each kind, outside the tree. What uetproto needs is that of this environment; `tools/release --check`
    installs everything anew, for three versions of Python."""
    environment, empty = tmp_path / "environment", tmp_path / "empty"
    empty.mkdir()
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",
    )
    run(*pip, wheel, cwd=tmp_path)
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    told = run(
        python,
        "-I",
        ROOT / "tests" / "support" / "installed.py",
        __version__,
        *effort((), ("--extras",), ("--extras",)),
        cwd=empty,
    )
    assert told.startswith("Python 3.")


@pytest.mark.skipif(PROFILE == "ci", reason="five minutes, and it needs a package index: in the profiles full and deep")
def test_a_release_of_three_pythons(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "tools" / "release", "--check", "-o", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    if done.returncode == 3:
        pytest.skip(f"NOT RUN: {done.stderr.splitlines()[-1]}")


def test_the_readme_says_how_to_install() -> None:
    """`tools/release --check` runs these commands."""
    commands = runpy.run_path(str(ROOT / "tools" / "release"))["from_readme"]()
    assert {command[0] for command in commands} == {"pip", "pipx", "uv"}
    assert f"uetproto-{__version__}-py3-none-any.whl" in commands[-1]
