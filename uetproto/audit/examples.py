# SPDX-License-Identifier: GPL-2.0-only
"""This module reads an example finding of each rule, which `--explain` and RULES.md show; the tests produce the
examples.

A new rule may lack an example; `--explain` and RULES.md then show none. `python -m tests.audit.collect_examples` writes
the file of the examples anew.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

FILE = "examples.jsonl"


@cache
def examples() -> dict[str, dict[str, Any]]:
    """Return a map from the id of a rule to its example finding, which is an object as `--json` prints it."""
    text = files("uetproto.audit").joinpath(FILE).read_text(encoding="utf-8")
    return {line["rule"]: line for line in map(json.loads, text.splitlines())}
