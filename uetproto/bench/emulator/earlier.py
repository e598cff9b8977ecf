# SPDX-License-Identifier: GPL-2.0-only
"""This module gets an earlier version of the package from the clone, so that both can be measured in turns."""

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import uetproto
from uetproto.errors import LocalError

_PACKAGE = Path(uetproto.__file__).parent
_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Argument that Python before 3.11.4 does not know."""


def full_name(commit: str) -> str:
    """Return the full name of a commit of the clone in which this version is. Raises `LocalError` if this version is in
    no clone, or if the clone has no such commit."""
    wanted = f"{commit}^{{commit}}"
    return _git(_PACKAGE.parent, "rev-parse", "--verify", "--quiet", "--end-of-options", wanted).decode().strip()


@contextmanager
def earlier(name: str) -> Iterator[Path]:
    """Yield a folder with the package of a commit, given by its full name, in which the benchmarks are those of this
    version."""
    clone = _PACKAGE.parent
    with tempfile.TemporaryDirectory(prefix="uetproto-earlier-") as folder:
        with tarfile.open(fileobj=BytesIO(_git(clone, "archive", name, _PACKAGE.name))) as files:
            files.extractall(folder, **_FILTER)
        bench = Path(folder) / _PACKAGE.name / "bench"
        shutil.rmtree(bench, ignore_errors=True)
        shutil.copytree(_PACKAGE / "bench", bench, ignore=shutil.ignore_patterns("__pycache__"))
        yield Path(folder).resolve()


def _git(clone: Path, *arguments: str) -> bytes:
    """Return what git prints about the clone."""
    legal = "a commit of a clone of uetproto from which this program runs"
    try:
        done = subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise LocalError("--against", "there is no program git", legal, id="unknown-commit") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"{clone} has no such commit"
        raise LocalError("--against", said, legal, id="unknown-commit")
    return done.stdout
