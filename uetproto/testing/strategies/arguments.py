# SPDX-License-Identifier: GPL-2.0-only
"""This module checks the arguments of strategies: what is illegal raises `InvalidArgument` with the legal values."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from uetproto.errors import identified, shown, similar

T = TypeVar("T")


def check_choice(name: str, value: T | None, legal: Collection[T]) -> None:
    """Raise `InvalidArgument` unless `value` is None or one of the `legal` values."""
    if value is None or (type(value) in {type(each) for each in legal} and value in legal):
        return
    raise illegal(name, value, legal)


def illegal(name: str, value: object, legal: Collection[object], why: str = "") -> InvalidArgument:
    """Return the error for the argument `name`. If `value` is illegal only beside another argument, `why` names that
    argument."""
    near = "" if why else similar(value, legal)
    return identified(
        InvalidArgument(f"{name}={shown(value)} is not legal{why}{near}; legal: {', '.join(map(str, legal))}"),
        "unknown-name",
    )


def check_names(function: str, options: Mapping[str, Any], own: Collection[str], options_type: type) -> None:
    """Raise `InvalidArgument` for a name that is no argument of `function`, which has its `own` and those of a typed
    dictionary."""
    legal = (*own, "spoilt", *options_type.__annotations__)
    for name in options:
        if name not in legal:
            raise identified(
                InvalidArgument(
                    f"{name!r} is no argument of {function}{similar(name, legal)}; legal: {', '.join(legal)}"
                ),
                "unknown-argument",
            )


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raise `InvalidArgument` unless `value` is a whole number from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise identified(InvalidArgument(f"{name}={shown(value)} is not legal; legal: {low} … {high}"), "out-of-range")


def named(name: str, strategy: st.SearchStrategy[T], spoilt: bool, options: Mapping[str, Any]) -> st.SearchStrategy[T]:
    """Return `strategy` with another text in reports of Hypothesis: a call of the function `name`.

    The call has those `options` that are not None, and `spoilt=True` if `spoilt` is true. Raises `InvalidArgument`
    unless `spoilt` is True or False.
    """
    if type(spoilt) is not bool:
        raise illegal("spoilt", spoilt, (False, True))

    def drawn(draw: st.DrawFn, /, **_: object) -> T:
        return draw(strategy)

    drawn.__name__ = drawn.__qualname__ = name
    told = {key: value for key, value in options.items() if value is not None}
    return st.composite(drawn)(**told, **({"spoilt": True} if spoilt else {}))
