# SPDX-License-Identifier: GPL-2.0-only
"""This module has `Spoilt`, which strategies with `spoilt=True` draw: a value with one fault, and a text that names the
fault."""

from typing import Generic, NamedTuple, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Spoilt(NamedTuple, Generic[T]):
    """A spoilt value has exactly one fault, and says which; it is a tuple, so `value, rule, what = spoilt` works."""

    value: T
    rule: str
    """Rule that the value breaks: an id of `uetproto audit --list-rules`; for a header, a column of its table; for a
    scenario, the key that is refused."""
    what: str
    """Text that says what is wrong, and where."""


def spoilt_value(value: T, rule: str, what: str) -> st.SearchStrategy[Spoilt[T]]:
    """Return a strategy that always draws this spoilt value. Reports of Hypothesis show the whole value."""
    return st.builds(Spoilt, value=st.just(value), rule=st.just(rule), what=st.just(what))
