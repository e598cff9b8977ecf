# SPDX-License-Identifier: GPL-2.0-only
"""The notebooks of docs/notebooks run, and each cell shows something."""

import ast
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from tests.support.effort import effort
from tests.support.paths import PCAPS

ALL = ("capture", "crafting", "collective")
RUN = effort(ALL[:2], ALL, ALL)
NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"


def shown(value: Any) -> str:
    """What a notebook shows of the value of a cell."""
    text = getattr(value, "_repr_html_", lambda: None)() or repr(value)
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("name", RUN)
def test_notebook(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pcaps").symlink_to(PCAPS)
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    scope: dict[str, Any] = {"__name__": "__main__"}
    outputs = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [], "outputs are made where the notebook is read"
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), scope)
        assert isinstance(last, ast.Expr), "each cell shows something"
        outputs.append(shown(eval(compile(ast.Expression(last.value), name, "eval"), scope)))
    assert all(outputs)
    assert sum("<table" in one for one in outputs) >= 2
    figures = scope.get("plt")
    if figures is not None:
        figures.close("all")


def test_the_index_names_each_notebook() -> None:
    page = (NOTEBOOKS.parent / "howto" / "python.md").read_text(encoding="utf-8")
    assert {path.name for path in NOTEBOOKS.iterdir()} == {f"{name}.ipynb" for name in ALL}
    assert all(f"(../notebooks/{path.name})" in page for path in NOTEBOOKS.iterdir())
