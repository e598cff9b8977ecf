# SPDX-License-Identifier: GPL-2.0-only
"""The faults that the machines must find are still in the sources (tools/machines tries them)."""

import importlib.machinery
import importlib.util
import tomllib

from tests.support.paths import ROOT


def test_the_faults_of_the_seed_exist() -> None:
    path = str(ROOT / "tools" / "machines")
    loader = importlib.machinery.SourceFileLoader("tools_machines", path)
    spec = importlib.util.spec_from_loader("tools_machines", loader)
    assert spec is not None
    tool = importlib.util.module_from_spec(spec)
    loader.exec_module(tool)
    plan = tomllib.loads(tool.FAULTS.read_text(encoding="utf-8"))
    known = tool.known_faults(tool.drawn(plan["folder"], plan["seed"]))
    rows = [*plan["fault"], *plan["rejected"]]
    assert len(plan["fault"]) == 20
    assert [row for row in rows if tool.key_of(row) not in known] == []
    assert sorted(row["draw"] for row in rows) == [*range(len(rows))]  # none of the seed was left out
    assert all(row["why"] for row in plan["rejected"])
