"""This module reads an example finding of each rule, which the tests produce; `--explain` and RULES.md show it.

A new rule may lack an example: `--explain` and RULES.md then omit it. `python -m tests.audit.collect_examples` writes
the file anew.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

FILE = "examples.jsonl"


@cache
def examples() -> dict[str, dict[str, Any]]:
    """Return the example findings, as the objects of lines of `--json`, by the id of the rule."""
    text = files("uetproto.audit").joinpath(FILE).read_text(encoding="utf-8")
    return {line["rule"]: line for line in map(json.loads, text.splitlines())}
