# SPDX-License-Identifier: GPL-2.0-only
"""Frame numbers in a row of a script (interfaces.md §5)."""

from collections.abc import Iterable
from typing import Any

import pytest

from uetproto.emulator.network.scripted_wire import legal_frames
from uetproto.emulator.scenario.script_syntax import REAL

DELIVER = REAL.actions["deliver"]


@pytest.mark.parametrize(("value", "numbers"), [(2, (2,)), ([2, 3], (2, 3)), ("2-4", (2, 3, 4)), ("7-7", (7,))])
def test_frames(value: Any, numbers: tuple[int, ...]) -> None:
    assert DELIVER.check(value) == numbers


@pytest.mark.parametrize("value", ["5-2", "0-999999999", "0-65536", [], [-1], "2-", "a", True, 1.5])
def test_no_frames(value: Any) -> None:
    """Nothing that is empty, runs backwards, or takes memory without bound."""
    with pytest.raises(ValueError):  # noqa: PT011 - whoever reads the file says where
        DELIVER.check(value)


@pytest.mark.parametrize(
    ("there", "text"),
    [
        ([], "nothing is"),
        ([3], "legal: 3"),
        ([4, 3], "legal: 3 … 4"),
        ([0, 2, 3, 4, 9], "legal: 0, 2 … 4, 9"),
        (range(0, 2000, 2), "legal: 0, 2, 4, 6, 8, 10, 12, 14, …"),
    ],
)
def test_frames_that_there_are(there: Iterable[int], text: str) -> None:
    assert legal_frames(there) == text
