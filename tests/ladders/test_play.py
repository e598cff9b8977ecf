# SPDX-License-Identifier: GPL-2.0-only
"""The player of ladders: it notices every difference; and every ladder there is has a test."""

from pathlib import Path

import pytest

from tests.support.ladders.play import ladder
from uetproto.emulator.scenario.settings import names

HERE = Path(__file__).parent
FILES = ("test_figures.py", "test_derived.py", "test_congestion.py")
L02 = """
    A REQ 7>3 psn 333 clear 332 coff -1 retx 0 ar 1 syn 0 | SEND mid 1
    B rx REQ 333
    B ACK 3>7 ack 333 cack 333 off +0 req NONE retx 0 m 0 | DEFAULT OK mid 1
    B: delivered 1 cack 333 stored 0
    A rx ACK 333
    A: answered 1 una 334 clear 333
"""


def test_l02_is_as_it_is() -> None:
    ladder("ladder-L02", L02)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("psn 333", "psn 334", "row 0"),
        ("coff -1", "coff -2", "row 0"),
        ("clear 332", "clear 333", "row 0"),
        ("ar 1", "ar 0", "row 0"),
        ("7>3", "7>4", "row 0"),
        ("off +0", "off +1", "row 2"),
        ("req NONE", "req CLEAR", "row 2"),
        ("A rx ACK 333", "lost ACK 333", "row 4"),
        ("stored 0", "stored 1", "row 3: B"),
        ("clear 333", "clear 334", "row 5: A"),
        ("    A: answered 1 una 334 clear 333\n", "    A CLEAR_CMD\n", "row 5: 'A CLEAR_CMD' does not come"),
        ("    A rx ACK 333\n    A: answered 1 una 334 clear 333\n", "", "and the ladder is at its end"),
    ],
)
def test_every_difference_is_noticed(old: str, new: str, message: str) -> None:
    assert old in L02
    with pytest.raises(AssertionError, match=message):
        ladder("ladder-L02", L02.replace(old, new, 1))


def test_every_ladder_has_a_test() -> None:
    """All thirty of pds.md §19 and five of cms.md §13, and their variants."""
    shipped = {name for name in names() if name.startswith("ladder-")}
    tests = "".join((HERE / name).read_text(encoding="utf-8") for name in FILES)
    assert {name for name in shipped if f'ladder("{name}"' not in tests} == set()
    assert {f"ladder-L{number:02}" for number in range(1, 31)} <= shipped
    assert {f"ladder-C{number}" for number in range(1, 6)} <= shipped
