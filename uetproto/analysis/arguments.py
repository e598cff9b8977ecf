# SPDX-License-Identifier: GPL-2.0-only
"""This module checks arguments of the functions for Python programs: a wrong one is refused by its name, and not from
within."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from uetproto.errors import LocalError, shown, typed


def check_texts(name: str, value: Any, none: bool = False) -> None:
    """Raise `LocalError` unless `value` is a list of texts; a text alone is none. With `none`, None is legal."""
    if none and value is None:
        return
    good = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    if not good or not all(isinstance(one, str) for one in value):
        raise LocalError(name, f"{shown(value)} is not legal", "a list of texts", id="wrong-type")


def check_numbers(name: str, value: Any, none: bool = False) -> None:
    """Raise `LocalError` unless `value` is a sequence of whole numbers from 0. With `none`, None is legal."""
    if none and value is None:
        return
    good = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    if not good or not all(type(one) is int and one >= 0 for one in value):
        raise LocalError(name, f"{shown(value)} is not legal", "a list of whole numbers from 0", id="wrong-type")


def check_int(name: str, value: Any, low: int, high: int | None = None, none: bool = False) -> None:
    """Raise `LocalError` unless `value` is a whole number from `low` to `high`. With `none`, None is legal."""
    if none and value is None:
        return
    if type(value) is not int or value < low or (high is not None and value > high):
        raise LocalError(
            name, f"{shown(value)} is not legal", f"a whole number {low} … {'' if high is None else high}",
            id="out-of-range"
        )  # fmt: skip


def check_text(name: str, value: Any, none: bool = False) -> None:
    """Raise `LocalError` unless `value` is a text. With `none`, None is legal."""
    if not (none and value is None):
        typed(name, value, str, "a text")


def check_path(name: str, value: Any) -> None:
    """Raise `LocalError` unless `value` is a path."""
    typed(name, value, (str, os.PathLike), "a path")
