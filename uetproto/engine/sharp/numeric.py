# SPDX-License-Identifier: GPL-2.0-only
"""An aggregation node reduces operands one after another, in the order given (sharp.md §3.5).

No other file of the engine uses NumPy; here it reduces whole vectors. Results do not depend on the machine. A NaN in a
result is the canonical quiet NaN; this is a choice of this project, as IEEE 754 leaves the payload of a NaN open. In
MIN, MAX, MINLOC and MAXLOC, -0 is below +0.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from uetproto.engine.contract import Buffer
from uetproto.wire.headers.sharp import DTYPE_SIZES, Dtype, Op

Array: TypeAlias = np.ndarray[Any, Any]
UfuncStep: TypeAlias = Callable[..., Any]

_NUMPY: dict[int, str] = {
    Dtype.UNSIGNED: "u4",
    Dtype.INT: "i4",
    Dtype.UNSIGNED_LONG: "u8",
    Dtype.LONG: "i8",
    Dtype.FLOAT: "f4",
    Dtype.DOUBLE: "f8",
    Dtype.UNSIGNED_SHORT: "u2",
    Dtype.SHORT: "i2",
    Dtype.FLOAT_SHORT: "f2",
    Dtype.BFLOAT16: "u2",  # no type of NumPy: the upper half of an f32
    Dtype.UINT8: "u1",
    Dtype.INT8: "i1",
}

_QUIET_NAN: dict[int, int] = {
    Dtype.FLOAT: 0x7FC00000, Dtype.DOUBLE: 0x7FF8 << 48, Dtype.FLOAT_SHORT: 0x7E00, Dtype.BFLOAT16: 0x7FC0,
}  # fmt: skip
_INFINITY: dict[int, int] = {
    Dtype.FLOAT: 0x7F800000, Dtype.DOUBLE: 0x7FF0 << 48, Dtype.FLOAT_SHORT: 0x7C00, Dtype.BFLOAT16: 0x7F80,
}  # fmt: skip
FLOATS = frozenset(_INFINITY)

LOC = frozenset({Op.MAXLOC, Op.MINLOC})
LOGICAL = frozenset({Op.LAND, Op.LOR, Op.LXOR})
INTEGER_ONLY = LOGICAL | {Op.BAND, Op.BOR, Op.BXOR}
"""Operations that need an integer data type (sharp.md §2.8 rule 3)."""

_STEPS: dict[int, UfuncStep] = {
    Op.MAX: np.maximum, Op.MIN: np.minimum, Op.SUM: np.add, Op.PROD: np.multiply,
    Op.LAND: np.bitwise_and, Op.BAND: np.bitwise_and, Op.LOR: np.bitwise_or, Op.BOR: np.bitwise_or,
    Op.LXOR: np.bitwise_xor, Op.BXOR: np.bitwise_xor,
}  # fmt: skip


def element_size(op: int, dtype: int, tag_dtype: int) -> int:
    """Return the size of one element in bytes; for MINLOC and MAXLOC, an element is a pair of value and tag (sharp.md
    §2.8 rule 4)."""
    size = DTYPE_SIZES[Dtype(dtype)]
    return size + DTYPE_SIZES[Dtype(tag_dtype)] if op in LOC else size


def fold(
    op: int, dtype: int, tag_dtype: int, operands: Sequence[Buffer], *, little_endian: bool, acc_native: bool = False
) -> bytes:
    """Return the reduction of one or more operands of equal length, from the first to the last. The caller has checked
    that the operation permits the data types (sharp.md §2.8)."""
    if op == Op.NULL:
        return bytes(operands[0])  # BCAST: there is one
    order = "<" if little_endian else ">"
    if op in LOC:
        return _fold_pairs(op, dtype, tag_dtype, operands, order)
    if dtype not in FLOATS:
        rows = _rows(operands, _NUMPY[dtype], order)
        if op in LOGICAL:
            rows = (rows != 0).astype(rows.dtype)
        return _bytes(_accumulate(_STEPS[op], rows), order)
    if op in (Op.MIN, Op.MAX):
        bits = _rows(operands, f"i{DTYPE_SIZES[Dtype(dtype)]}", order)
        result = _from_key(_accumulate(_STEPS[op], _key(bits)))
        nan = _is_nan(bits, dtype).any(axis=0)
        return _bytes(np.where(nan, bits.dtype.type(_QUIET_NAN[dtype]), result), order)
    return _fold_floats(_STEPS[op], dtype, operands, order, acc_native)


def _rows(operands: Sequence[Buffer], kind: str, order: str) -> Array:
    """Return an array with one row for each operand, in the byte order of this machine."""
    joined = np.frombuffer(b"".join(operands), order + kind).reshape(len(operands), -1)
    return joined.astype(kind)


def _bytes(result: Array, order: str) -> bytes:
    return result.astype(result.dtype.newbyteorder(order)).tobytes()


def _accumulate(step: UfuncStep, rows: Array) -> Array:
    """Fold the rows in their order, and overwrite the first row; `ufunc.reduce` might choose another order."""
    result: Array = rows[0]
    for row in rows[1:]:
        step(result, row, out=result)
    return result


# Floating point ------------------------------------------------------------------------------------------------------


def _fold_floats(step: UfuncStep, dtype: int, operands: Sequence[Buffer], order: str, acc_native: bool) -> bytes:
    """Fold SUM or PROD: f32 and f64 round at each step; f16 and bf16 are f32 inside and round once or at each step."""
    with np.errstate(all="ignore"):
        rows = _rows(operands, _NUMPY[dtype], order)
        if dtype in (Dtype.FLOAT, Dtype.DOUBLE):
            result = _accumulate(step, rows)
        else:
            result = _widen(rows[0], dtype)
            for row in rows[1:]:
                step(result, _widen(row, dtype), out=result)
                if acc_native:
                    result = _widen(_narrow(result, dtype), dtype)
        nan = np.isnan(result)
        bits = _narrow(result, dtype)
        if nan.any():
            bits[nan] = _QUIET_NAN[dtype]
        return _bytes(bits, order)


def _widen(values: Array, dtype: int) -> Array:
    """Return f16 or bf16, or their bits, as f32."""
    if dtype == Dtype.FLOAT_SHORT:
        return values.view("f2").astype("f4")
    return (values.astype("u4") << np.uint32(16)).view("f4")


def _narrow(values: Array, dtype: int) -> Array:
    """Return f32 or f64 as the bits of `dtype`, rounded to the nearest, ties to even."""
    if dtype == Dtype.BFLOAT16:
        bits = values.view("u4")
        half = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
        rounded = (bits + half >> np.uint32(16)).astype("u2")
        return np.where(np.isnan(values), np.uint16(_QUIET_NAN[dtype]), rounded)
    return values.astype("f2").view("u2") if dtype == Dtype.FLOAT_SHORT else values.view(f"u{values.itemsize}")


# Order of floating-point numbers -------------------------------------------------------------------------------------


def _key(bits: Array) -> Array:
    """Return signed integers in the order of the floating-point numbers with these bits, -0 below +0."""
    top = bits.dtype.type(8 * bits.itemsize - 1)
    result: Array = bits ^ (bits >> top & bits.dtype.type(np.iinfo(bits.dtype).max))
    return result


_from_key = _key
"""The inverse is the same function, as the sign stays."""


def _is_nan(bits: Array, dtype: int) -> Array:
    magnitude = bits & bits.dtype.type(np.iinfo(bits.dtype).max)
    result: Array = magnitude > bits.dtype.type(_INFINITY[dtype])
    return result


# MINLOC and MAXLOC ---------------------------------------------------------------------------------------------------


def _fold_pairs(op: int, dtype: int, tag_dtype: int, operands: Sequence[Buffer], order: str) -> bytes:
    """Return the pairs with the least or greatest value, then the smaller tag; a NaN loses (sharp.md §3.5)."""
    pair = np.dtype([("value", order + _bits(dtype)), ("tag", order + _bits(tag_dtype))])
    rows = np.frombuffer(b"".join(operands), pair).reshape(len(operands), -1)
    values = _comparable(rows["value"].astype(_bits(dtype)), dtype)
    if dtype in FLOATS:
        limits = np.iinfo(values.dtype)
        loser = limits.max if op == Op.MINLOC else limits.min
        values[_is_nan(_from_key(values), dtype)] = loser
    tags = _comparable(rows["tag"].astype(_bits(tag_dtype)), tag_dtype)
    value, tag = values[0], tags[0]
    wins = np.less if op == Op.MINLOC else np.greater
    for other, other_tag in zip(values[1:], tags[1:], strict=True):
        better = wins(other, value) | (other == value) & (other_tag < tag)
        value, tag = np.where(better, other, value), np.where(better, other_tag, tag)
    result = np.empty(len(value), pair)
    if dtype in FLOATS:
        nan = value == loser
        value = np.where(nan, value.dtype.type(_QUIET_NAN[dtype]), _from_key(value))
    result["value"] = value
    result["tag"] = _from_key(tag) if tag_dtype in FLOATS else tag
    return result.tobytes()


def _bits(dtype: int) -> str:
    """Return the NumPy type that keeps the order of `dtype`: a signed integer for floating point."""
    return f"i{DTYPE_SIZES[Dtype(dtype)]}" if dtype in FLOATS else _NUMPY[dtype]


def _comparable(values: Array, dtype: int) -> Array:
    return _key(values) if dtype in FLOATS else values
