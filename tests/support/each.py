# SPDX-License-Identifier: GPL-2.0-only
"""This module runs many cases of one rule within one test; a failure names its cases."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

_TOLD = 5


def each(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each case, as `pytest.mark.parametrize` does, but as one test for pytest.

    It is for hundreds of cases that take less time than pytest takes to run and report a test, and of which nobody
    wants to run a single one. `names` are the arguments that a case gives, separated by commas. All cases run; the
    first failures are raised together, each with a note that says its case. Fixtures are shared by all cases.
    """
    given = [name.strip() for name in names.split(",")]
    rows = [dict(zip(given, case if len(given) > 1 else (case,), strict=True)) for case in cases]
    assert rows, "no cases"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for row in rows:
                try:
                    test(**fixtures, **row)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note("case: " + ", ".join(f"{name}={value!r:.200}" for name, value in row.items()))
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} cases fail", failures[:_TOLD])

        signature = inspect.signature(test)
        rest = [one for name, one in signature.parameters.items() if name not in given]
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run

    return decorate
