"""An example finding of each rule, as the tests produce it: shown by --explain, and in RULES.md."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

FILE = "examples.jsonl"


@cache
def examples() -> dict[str, dict[str, Any]]:
    """Lines of --json, by rule."""
    text = files("uetproto.audit").joinpath(FILE).read_text(encoding="utf-8")
    return {line["rule"]: line for line in map(json.loads, text.splitlines())}


def example(rule: str) -> dict[str, Any] | None:
    """None for a rule that has none."""
    return examples().get(rule)
