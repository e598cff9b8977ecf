# SPDX-License-Identifier: GPL-2.0-only
"""Atomic memory operations against NumPy, for the datatypes that it has (ses.md §6)."""

import random
from typing import Any

import numpy as np
import pytest

from tests.support.each import each
from uetproto.engine.ses.atomics import LEGAL, execute
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode

A, T = AtomicOpcode, AtomicDatatype
N = 2000

SCALARS: dict[AtomicDatatype, str] = {
    T.INT8: "i1", T.UINT8: "u1", T.INT16: "i2", T.UINT16: "u2", T.INT32: "i4", T.UINT32: "u4", T.INT64: "i8",
    T.UINT64: "u8", T.FP16: "f2", T.FLOAT: "f4", T.DOUBLE: "f8",
}  # fmt: skip
PARTS: dict[AtomicDatatype, str] = {T.FLOAT_COMPLEX: "f4", T.DOUBLE_COMPLEX: "f8"}

UPDATES: dict[AtomicOpcode, Any] = {
    A.MIN: np.fmin, A.MAX: np.fmax, A.SUM: np.add, A.DIFF: np.subtract, A.PROD: np.multiply,
    A.LOR: np.logical_or, A.LAND: np.logical_and, A.LXOR: np.logical_xor,
    A.BOR: np.bitwise_or, A.BAND: np.bitwise_and, A.BXOR: np.bitwise_xor,
}  # fmt: skip
COMPARES: dict[AtomicOpcode, Any] = {
    A.CSWAP: np.equal, A.CSWAP_NE: np.not_equal, A.CSWAP_LE: np.less_equal, A.CSWAP_LT: np.less,
    A.CSWAP_GE: np.greater_equal, A.CSWAP_GT: np.greater,
}  # fmt: skip


def numbers(kind: str, count: int, seed: int) -> np.ndarray[Any, Any]:
    """Half of them any bits, half of them near each other, so that sums cancel and products stay in range."""
    rng, size = random.Random(seed), np.dtype(kind).itemsize
    anything = np.frombuffer(rng.randbytes(count * size), kind)
    near = np.array([rng.choice((-2, -1, 1, 2)) * rng.random() for _ in range(count)])
    near = (near if kind[0] == "f" else near * 3).astype("f8" if kind[0] == "f" else "i8").astype(kind)
    return np.where(np.arange(count) % 2 == 0, anything, near).astype(kind)


def run(amo: AtomicOpcode, datatype: AtomicDatatype, m: np.ndarray[Any, Any], o: np.ndarray[Any, Any]) -> Any:
    """All elements at once, in this order of bytes in memory and the other one on the wire."""
    new, old, fault = execute(amo, datatype, m.astype(m.dtype.newbyteorder("<")).tobytes(), wire(o))
    assert old == wire(m)
    assert fault is None
    return np.frombuffer(new, m.dtype.newbyteorder("<"))


def wire(numbers: np.ndarray[Any, Any]) -> bytes:
    return numbers.astype(numbers.dtype.newbyteorder(">")).tobytes()


def assert_same(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> None:
    """Bit by bit, except that a NaN is a NaN."""
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
    if ours.dtype.kind == "f":
        known = ~np.isnan(ours)
        np.testing.assert_array_equal(np.signbit(ours)[known], np.signbit(theirs)[known])


@each("datatype", SCALARS)
@each("amo", UPDATES)
def test_updates(amo: AtomicOpcode, datatype: AtomicDatatype) -> None:
    if datatype not in LEGAL[amo]:
        assert SCALARS[datatype][0] == "f"
        assert amo in (A.BOR, A.BAND, A.BXOR)
        return
    m, o = numbers(SCALARS[datatype], N, 1), numbers(SCALARS[datatype], N, 2)
    if amo in (A.MIN, A.MAX):  # the order of two zeros is not NumPy's
        zeros = (m == 0) & (o == 0)
        m, o = m[~zeros], o[~zeros]
    with np.errstate(all="ignore"):
        expected = UPDATES[amo](m, o).astype(m.dtype)
    assert_same(run(amo, datatype, m, o), expected)


@pytest.mark.parametrize("datatype", SCALARS)
def test_compares(datatype: AtomicDatatype) -> None:
    kind = SCALARS[datatype]
    c, m, s = (numbers(kind, 300, seed) for seed in (3, 4, 5))
    c[::3] = m[::3]
    for amo, compare in COMPARES.items():
        with np.errstate(all="ignore"):
            swaps = compare(c, m)
        for i in range(len(c)):
            one = slice(i, i + 1)
            new = execute(amo, datatype, wire(m[one]), wire(s[one]), wire(c[one]), byteorder="big").memory
            assert new == (wire(s[one]) if swaps[i] else wire(m[one])), (amo, c[i], m[i])


@pytest.mark.parametrize("datatype", PARTS)
def test_complex_arithmetic(datatype: AtomicDatatype) -> None:
    """By component; a product as six float operations of NumPy."""
    a, b, c, d = (numbers(PARTS[datatype], N, seed) for seed in (6, 7, 8, 9))
    m, o = np.stack([a, b], axis=1).ravel(), np.stack([c, d], axis=1).ravel()
    with np.errstate(all="ignore"):
        expected = {
            A.SUM: (a + c, b + d), A.DIFF: (a - c, b - d), A.PROD: (a * c - b * d, a * d + b * c),
        }  # fmt: skip
    for amo, (real, imaginary) in expected.items():
        assert_same(run(amo, datatype, m, o), np.stack([real, imaginary], axis=1).ravel())
