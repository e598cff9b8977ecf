# SPDX-License-Identifier: GPL-2.0-only
"""This module reads the Python files of the package, and parses each once for all tests that read them."""

import ast
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT

PACKAGE = ROOT / "uetproto"


@cache
def files() -> tuple[Path, ...]:
    """Return the paths of all modules, sorted."""
    return tuple(sorted(PACKAGE.rglob("*.py")))


_TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files()}
"""The syntax trees, parsed before the tests are shared out among processes."""


def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a module, which nobody may change."""
    return _TREES[path]


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return the nodes of a module's syntax tree, in the order of `ast.walk`."""
    return tuple(ast.walk(tree(path)))
