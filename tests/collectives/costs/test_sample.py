# SPDX-License-Identifier: GPL-2.0-only
"""What ranks begin with: drawn, of any size."""

import random

import pytest

from uetproto.collectives.costs import sample


@pytest.mark.parametrize("length", [0, 1, 5, 12])
def test_many_bytes_are_drawn_in_pieces(monkeypatch, length):
    monkeypatch.setattr(sample, "_PIECE", 5)
    drawn = sample._bytes(random.Random(3), length)
    rng = random.Random(3)
    assert drawn == b"".join(rng.randbytes(min(5, length - at)) for at in range(0, length, 5))
    assert len(drawn) == length


def test_up_to_a_piece_they_are_those_of_randbytes():
    assert sample._bytes(random.Random(3), 1000) == random.Random(3).randbytes(1000)
