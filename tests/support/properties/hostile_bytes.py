"""Parts that tests of properties share, first needed for hostile bytes."""

from tests.support.strategies import examples


def deep(few: int, many: int) -> int:
    """`few` in a quick run, `many` in one of hours."""
    return many if examples(1).max_examples > 1 else few
