# SPDX-License-Identifier: GPL-2.0-only
"""A schedule on the screen and as a drawing."""

from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given

from tests.support.collectives.cases import Case, cases
from tests.support.effort import examples
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.topology.draw import draw
from uetproto.collectives.topology.show import show
from uetproto.errors import LocalError

RING = """\
all_reduce by ring: 3 ranks, 4 steps

step  rank 0   rank 1   rank 2
   0  →1 4:6 +  →2 0:2 +  →0 2:4 +
   1  →1 2:4 +  →2 4:6 +  →0 0:2 +
   2  →1 0:2    →2 2:4    →0 4:6
   3  →1 4:6    →2 0:2    →0 2:4
"""


def test_a_ring_on_the_screen() -> None:
    shown = show(schedule("all_reduce", "ring", 3, 6))
    assert [line.split() for line in shown.splitlines()] == [line.split() for line in RING.splitlines()]


def test_some_ranks_of_many() -> None:
    shown = show(schedule("all_reduce", "tree", 4096, 8), ranks=[0, 2048])
    assert "rank 0" in shown
    assert "→0 0:8 +" in shown
    assert shown.endswith("2 of 4096 ranks; ranks= names others\n")


@examples(60)
@given(case=cases(most=9))
def test_every_message_has_an_arrow(case: Case) -> None:
    messages = len(case.schedule.arrays()["step"])
    tree = Xml.fromstring(draw(case.schedule))
    lines = [line for line in tree.iter("{http://www.w3.org/2000/svg}line") if "marker-end" in line.attrib]
    assert len(lines) == messages
    text = show(case.schedule, ranks=range(case.schedule.size))
    assert text.count("→") == messages


def test_a_drawing_that_nobody_can_read_is_refused() -> None:
    with pytest.raises(LocalError, match="128 ranks and 32512 messages are too many to be read; legal: 64 and 4096"):
        draw(schedule("all_reduce", "ring", 128, 128))
