# SPDX-License-Identifier: GPL-2.0-only
"""What ranks begin with: drawn, of any size."""

import random
from typing import Any

import numpy as np
import pytest

from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.costs import sample
from uetproto.collectives.costs.sample import Sample
from uetproto.collectives.reduce_ops import ReduceOp


def drawn(count: int, dtype: str, reduce_op: ReduceOp) -> np.ndarray[Any, Any]:
    array = np.empty(count, dtype)
    draw = sample._drawer(random.Random(3), array, reduce_op)
    for piece in sample._pieces(count):
        draw(piece)
    return array


@pytest.mark.parametrize("length", [0, 1, 8, 21])
def test_elements_drawn_in_pieces_are_those_of_one_draw(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(sample, "_PIECE", 8)
    rng = random.Random(3)
    if length <= 8:
        whole = rng.randbytes(4 * length)
    else:
        whole = np.random.SFC64(rng.getrandbits(128)).random_raw(11).astype("<u8").tobytes()[: 4 * length]
    assert drawn(length, "uint32", ReduceOp.SUM).tobytes() == whole
    low = np.frombuffer(random.Random(3).randbytes(length) if length <= 8 else whole[:length], np.uint8)
    assert drawn(length, "float32", ReduceOp.SUM).tolist() == ((low & 7).astype(np.int8) - 3).tolist()
    assert drawn(length, "float64", ReduceOp.PRODUCT).tolist() == ((low & 1).astype(np.int8) * 2 - 1).tolist()


@pytest.mark.parametrize("length", [8, 24])
def test_what_is_reduced_while_it_is_drawn_is_what_is_drawn(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(sample, "_PIECE", 8)
    made = Sample(schedule("all_reduce", "ring", 3, length), np.dtype("int64"), ReduceOp.SUM, seed=5)
    assert made.outputs is made.inputs
    assert len({array.tobytes() for array in made.inputs}) == 3
    assert made._result.tolist() == sum(made.inputs).tolist()
    assert not made.correct
    for array in made.outputs:
        array[...] = made._result
    assert made.correct
