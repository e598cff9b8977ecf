# SPDX-License-Identifier: GPL-2.0-only
"""Reduce operations and element types (collectives.md §1.6)."""

import ml_dtypes
import numpy as np
import pytest

from tests.support.each import each
from uetproto.collectives.algorithms.schedule import Fold
from uetproto.collectives.dtypes import KINDS, ElementKind, bytes_of, dtype, kind_of
from uetproto.collectives.reduce_ops import OPS, ReduceOp
from uetproto.errors import LocalError

FLOATS = ["float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"]
LEGAL = {  # the table of §1.6
    "SUM": "int float complex", "PRODUCT": "int float", "MIN": "int float", "MAX": "int float", "BAND": "int bool",
    "BOR": "int bool", "BXOR": "int bool", "AVG": "int float",
}  # fmt: skip


def folded(op, own, incoming, how=Fold.INCOMING_FIRST):
    own = own.copy()
    op.fold(own, incoming, how)
    return own


@each("name", OPS)
@each("type_", KINDS)
def test_which_operation_does_which_type(name, type_):
    op, type_ = getattr(ReduceOp, name), dtype(type_)
    if kind_of(type_).value in LEGAL[name].split():
        op.check(type_)
        ones = np.ones(3, type_)
        assert folded(op, ones, ones).dtype == type_
    else:
        with pytest.raises(LocalError, match=f"op: {name} on {type_.name}; legal for {name}: "):
            op.check(type_)


def test_premul_sum_is_for_floats():
    op = ReduceOp.PREMUL_SUM(2)
    op.check(dtype("float32"))
    with pytest.raises(LocalError, match="legal for PREMUL_SUM: float"):
        op.check(dtype("int32"))
    assert str(op) == "PREMUL_SUM(2.0)"


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("name", ["MIN", "MAX"])
def test_nan_propagates_from_either_side(name, type_):
    type_ = dtype(type_)
    nan, one = np.array([np.nan, 1, 2]).astype(type_), np.array([1, np.nan, 3]).astype(type_)
    for how in (Fold.INCOMING_FIRST, Fold.OWN_FIRST):
        out = folded(getattr(ReduceOp, name), nan, one, how).astype(np.float64)
        assert np.isnan(out[:2]).all()
        assert out[2] == (2 if name == "MIN" else 3)


@pytest.mark.parametrize("type_", [name for name, kind in KINDS.items() if kind is ElementKind.INT])
def test_integers_wrap_silently(type_):
    info = np.iinfo(type_)
    top = np.array([info.max], type_)
    assert folded(ReduceOp.SUM, top, np.ones(1, type_)).tolist() == [info.min]
    assert folded(ReduceOp.PRODUCT, top, np.full(1, 2, type_)).tolist() == [
        (info.max * 2 - info.min) % (1 << info.bits) + info.min
    ]


def test_the_order_of_operands_is_the_schedules():
    op = ReduceOp("first", frozenset(ElementKind), lambda first, second, out: np.copyto(out, first))
    own, incoming = np.zeros(2), np.ones(2)
    assert folded(op, own, incoming, Fold.INCOMING_FIRST).tolist() == [1, 1]
    assert folded(op, own, incoming, Fold.OWN_FIRST).tolist() == [0, 0]
    assert folded(op, own, incoming, Fold.STORE).tolist() == [1, 1]


@pytest.mark.parametrize(("type_", "sums", "ranks", "want"), [
    ("int32", [7, -7, 6], 3, [2, -2, 2]), ("int8", [100, -100, 5], 200, [0, 0, 0]),
    ("uint64", [2**64 - 1, 3, 0], 2, [2**63 - 1, 1, 0]),
])  # fmt: skip
def test_average_of_integers_is_the_quotient_of_c(type_, sums, ranks, want):
    array = np.array(sums, type_)
    ReduceOp.AVG.prepare(array, ranks)
    assert array.tolist() == sums
    ReduceOp.AVG.finish(array, ranks)
    assert array.tolist() == want


@pytest.mark.parametrize("type_", FLOATS)
def test_average_of_floats_scales_first(type_):
    """So a sum that would overflow does not."""
    type_ = dtype(type_)
    most = ml_dtypes.finfo(type_).max
    array = np.array([most], type_)
    ReduceOp.AVG.prepare(array, 4)
    ReduceOp.AVG.finish(array, 4)
    total = np.zeros(1, type_)
    for _ in range(4):
        ReduceOp.SUM.fold(total, array, Fold.OWN_FIRST)
    assert np.isfinite(total.astype(np.float64)).all()
    assert float(total[0]) == pytest.approx(float(most), rel=0.2)


@pytest.mark.parametrize("type_", [*KINDS, "float8e4m3"])
def test_bytes_are_not_copied(type_):
    array = np.zeros((2, 3), dtype(type_))
    view = bytes_of(array)
    view[...] = 1
    assert view.nbytes == array.nbytes
    assert bytes(array.tobytes()) == b"\x01" * array.nbytes


@pytest.mark.parametrize(
    "type_", [np.dtype(object), np.dtype("U3"), np.dtype("M8[s]"), np.dtype(">i4"), np.dtype([("a", "i4")])]
)
def test_other_types_are_refused(type_):
    with pytest.raises(LocalError, match=r"dtype: .*; legal, in native byte order: bool, int8"):
        kind_of(type_)


def test_an_unknown_name_is_refused():
    with pytest.raises(LocalError, match=r"dtype: 'float128' is not legal \(did you mean float32.*\); legal: bool"):
        dtype("float128")
