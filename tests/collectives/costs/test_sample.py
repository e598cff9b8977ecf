# SPDX-License-Identifier: GPL-2.0-only
"""What ranks begin with: drawn, of any size."""

import random

import numpy as np
import pytest

from uetproto.collectives.costs import sample
from uetproto.collectives.reduce_ops import ReduceOp


@pytest.mark.parametrize("length", [0, 1, 8, 21])
def test_elements_drawn_in_pieces_are_those_of_one_draw(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(sample, "_PIECE", 8)
    words = sample._drawn(random.Random(3), length, np.dtype("uint32"), ReduceOp.SUM)
    assert words.tobytes() == random.Random(3).randbytes(4 * length)
    drawn = np.frombuffer(random.Random(3).randbytes(length), np.uint8)
    floats = sample._drawn(random.Random(3), length, np.dtype("float32"), ReduceOp.SUM)
    assert floats.tolist() == ((drawn & 7).astype(np.int8) - 3).tolist()
    signs = sample._drawn(random.Random(3), length, np.dtype("float64"), ReduceOp.PRODUCT)
    assert signs.tolist() == ((drawn & 1).astype(np.int8) * 2 - 1).tolist()
