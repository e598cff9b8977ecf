# SPDX-License-Identifier: GPL-2.0-only
"""The arithmetic of sharp.md §3.5 beside an oracle that knows only `struct`, fractions and the rules of that page."""

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.each import each
from tests.support.effort import effort, examples
from uetproto.engine.sharp.node.checks import element_or_status
from uetproto.engine.sharp.numeric import fold
from uetproto.wire.headers.sharp import DTYPE_SIZES, Coll, Dtype, Op, Status

INTS = {
    Dtype.UNSIGNED: "I", Dtype.INT: "i", Dtype.UNSIGNED_LONG: "Q", Dtype.LONG: "q", Dtype.UNSIGNED_SHORT: "H",
    Dtype.SHORT: "h", Dtype.UINT8: "B", Dtype.INT8: "b",
}  # fmt: skip
FLOATS = {Dtype.FLOAT: (8, 23), Dtype.DOUBLE: (11, 52), Dtype.FLOAT_SHORT: (5, 10), Dtype.BFLOAT16: (8, 7)}
"""Bits of exponent and of fraction."""
TAGS = tuple(dtype for dtype in Dtype if dtype != Dtype.NULL)
LOC = (Op.MINLOC, Op.MAXLOC)
COMBINATIONS = [
    (op, dtype, tag)
    for op in Op for dtype in TAGS for tag in ((*TAGS,) if op in LOC else (Dtype.NULL,))
    if element_or_status(Coll.ALLREDUCE, op, dtype, tag, True)[1] == Status.OK
]  # fmt: skip
TRIED = [
    (op, dtype, tag) for op, dtype, tag in COMBINATIONS
    if op not in LOC or (op + TAGS.index(dtype) + TAGS.index(tag)) % effort(8, 1, 1) == 0
]  # fmt: skip
"""In `ci`, each value and each tag of MINLOC and MAXLOC with some of the others."""


# The oracle: numbers of any format as sign, and exact value or what they are instead --------------------------------


def split(bits: int, dtype: Dtype) -> tuple[int, Fraction | float]:
    """Sign, and the magnitude: a fraction, infinity or NaN."""
    exponent_bits, fraction_bits = FLOATS[dtype]
    sign = bits >> exponent_bits + fraction_bits
    exponent = bits >> fraction_bits & (1 << exponent_bits) - 1
    fraction = bits & (1 << fraction_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    if exponent == (1 << exponent_bits) - 1:
        return sign, math.nan if fraction else math.inf
    if exponent == 0:
        return sign, Fraction(fraction) * Fraction(2) ** (1 - bias - fraction_bits)
    return sign, (Fraction(fraction) + (1 << fraction_bits)) * Fraction(2) ** (exponent - bias - fraction_bits)


def nearest(sign: int, magnitude: Fraction | float, dtype: Dtype) -> int:
    """The bits of the nearest number, ties to even; NaN: the canonical quiet one."""
    exponent_bits, fraction_bits = FLOATS[dtype]
    infinity = (1 << exponent_bits) - 1 << fraction_bits
    top = sign << exponent_bits + fraction_bits
    if magnitude != magnitude:
        return infinity | 1 << fraction_bits - 1
    if magnitude == math.inf:
        return top | infinity
    value = Fraction(magnitude)
    bias = (1 << exponent_bits - 1) - 1
    exponent = 1 - bias
    while value >= Fraction(2) ** (exponent + 1):
        exponent += 1
    steps = value / Fraction(2) ** (exponent - fraction_bits)
    whole, rest = divmod(steps, 1)
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1):
        whole += 1
    return top | min(infinity, int(whole) + ((exponent + bias - 1) << fraction_bits))


def added(a: tuple[int, Fraction | float], b: tuple[int, Fraction | float]) -> tuple[int, Fraction | float]:
    """IEEE 754: the exact sum; +0 of opposite zeros and of what cancels."""
    (sa, x), (sb, y) = a, b
    if x != x or y != y or (x == y == math.inf and sa != sb):
        return 0, math.nan
    if math.inf in (x, y):
        return (sa if x == math.inf else sb), math.inf
    total = Fraction(x) * (-1) ** sa + Fraction(y) * (-1) ** sb
    sign = int(total < 0) if total else sa & sb
    return sign, abs(total)


def multiplied(a: tuple[int, Fraction | float], b: tuple[int, Fraction | float]) -> tuple[int, Fraction | float]:
    (sa, x), (sb, y) = a, b
    if x != x or y != y or (math.inf in (x, y) and 0 in (x, y)):
        return 0, math.nan
    return sa ^ sb, math.inf if math.inf in (x, y) else Fraction(x) * Fraction(y)


def order_of(bits: int, dtype: Dtype) -> tuple[Fraction | float, int]:
    """Where a number stands; -0 below +0."""
    if dtype in INTS:
        return Fraction(struct.unpack(">" + INTS[dtype], bits.to_bytes(DTYPE_SIZES[dtype], "big"))[0]), 0
    sign, magnitude = split(bits, dtype)
    return (-magnitude if sign else magnitude), -sign


def oracle(op: Op, dtype: Dtype, values: list[int], *, native: bool = False) -> int:
    """What bit patterns become, folded from the left."""
    size = DTYPE_SIZES[dtype]
    mask = (1 << 8 * size) - 1
    if op in (Op.MIN, Op.MAX):
        if dtype in FLOATS and any(math.isnan(split(bits, dtype)[1]) for bits in values):
            return nearest(0, math.nan, dtype)
        pick: Callable[..., int] = min if op == Op.MIN else max
        return pick(values, key=lambda bits: order_of(bits, dtype))
    if dtype in FLOATS:
        inner = dtype if native or dtype == Dtype.DOUBLE else Dtype.FLOAT
        step = added if op == Op.SUM else multiplied
        total = split(values[0], dtype)
        for bits in values[1:]:
            total = split(nearest(*step(total, split(bits, dtype)), Dtype.FLOAT if inner != Dtype.DOUBLE else inner),
                          Dtype.FLOAT if inner != Dtype.DOUBLE else inner)  # fmt: skip
            total = split(nearest(*total, inner), inner)
        return nearest(*total, dtype)
    if op in (Op.LAND, Op.LOR, Op.LXOR):
        truths = [bool(bits) for bits in values]
        return int(all(truths) if op == Op.LAND else any(truths) if op == Op.LOR else sum(truths) & 1)
    steps: dict[Op, Callable[[int, int], int]] = {
        Op.SUM: lambda a, b: a + b & mask, Op.PROD: lambda a, b: a * b & mask, Op.BAND: lambda a, b: a & b,
        Op.BOR: lambda a, b: a | b, Op.BXOR: lambda a, b: a ^ b,
    }  # fmt: skip
    return reduce(steps[op], values)


def tag_order(bits: int, dtype: Dtype) -> object:
    """Tags are whole numbers in practice; of floating-point ones -0 is below +0 and NaN beyond infinity."""
    if dtype in INTS:
        return order_of(bits, dtype)[0]
    size = 8 * DTYPE_SIZES[dtype]
    magnitude = bits & (1 << size - 1) - 1
    return -magnitude - 1 if bits >> size - 1 else magnitude


def oracle_pair(op: Op, dtype: Dtype, tag: Dtype, pairs: list[tuple[int, int]]) -> tuple[int, int]:
    """A NaN loses to any number; ties: the smaller tag."""
    numbers = [p for p in pairs if dtype in INTS or not math.isnan(split(p[0], dtype)[1])]
    if not numbers:
        return nearest(0, math.nan, dtype), min((t for _, t in pairs), key=lambda t: tag_order(t, tag))
    pick: Callable[..., tuple[Fraction | float, int]] = min if op == Op.MINLOC else max
    best = pick(order_of(v, dtype) for v, _ in numbers)
    tied = [p for p in numbers if order_of(p[0], dtype) == best]
    return min(tied, key=lambda p: tag_order(p[1], tag))


# The comparison -----------------------------------------------------------------------------------------------------


def patterns(dtype: Dtype) -> st.SearchStrategy[int]:
    """Bits: anything, and what is special more often than not."""
    size = 8 * DTYPE_SIZES[dtype]
    special = [0, 1, 2, (1 << size) - 1, 1 << size - 1, (1 << size - 1) - 1]
    if dtype in FLOATS:
        exponent_bits, fraction_bits = FLOATS[dtype]
        infinity = (1 << exponent_bits) - 1 << fraction_bits
        one = (1 << exponent_bits - 1) - 1 << fraction_bits
        minus = 1 << size - 1
        special += [
            infinity, infinity | minus, infinity + 1, infinity | 1 << fraction_bits - 1, minus | infinity + 1, one,
            one | minus, one + 1, infinity - 1, 1 << fraction_bits, (1 << fraction_bits) - 1, minus | 1,
        ]  # fmt: skip
    return st.sampled_from(special) | st.integers(0, (1 << size) - 1)


def packed(bits: int, dtype: Dtype, order: str) -> bytes:
    return bits.to_bytes(DTYPE_SIZES[dtype], "little" if order == "<" else "big")


@each("op, dtype, tag", TRIED)
@examples(8)
@given(data=st.data())
def test_every_legal_combination(op: Op, dtype: Dtype, tag: Dtype, data: st.DataObject) -> None:
    children, count = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    order = data.draw(st.sampled_from("<>"))
    rows: list[list[tuple[int, int]]] = [
        [(data.draw(patterns(dtype)), data.draw(patterns(tag)) if op in LOC else 0) for _ in range(count)]
        for _ in range(children)
    ]
    operands = [b"".join(packed(v, dtype, order) + packed(t, tag, order) for v, t in row) for row in rows]
    expected = b""
    for column in zip(*rows, strict=True):
        if op in LOC:
            value, mark = oracle_pair(op, dtype, tag, list(column))
            expected += packed(value, dtype, order) + packed(mark, tag, order)
        else:
            expected += packed(oracle(op, dtype, [v for v, _ in column]), dtype, order)
    assert fold(op, dtype, tag, operands, little_endian=order == "<") == expected


@pytest.mark.parametrize("dtype", [Dtype.FLOAT_SHORT, Dtype.BFLOAT16])
@pytest.mark.parametrize("op", [Op.SUM, Op.PROD])
@examples(60)
@given(data=st.data())
def test_native_accumulation(op: Op, dtype: Dtype, data: st.DataObject) -> None:
    values = data.draw(st.lists(patterns(dtype), min_size=2, max_size=5))
    result = fold(op, dtype, Dtype.NULL, [packed(v, dtype, ">") for v in values], little_endian=False, acc_native=True)
    assert result == packed(oracle(op, dtype, values, native=True), dtype, ">")


@pytest.mark.parametrize(("acc_native", "total"), [(False, 2052.0), (True, 2048.0)])
def test_the_f16_example(acc_native: bool, total: float) -> None:
    operands = [struct.pack(">e", value) for value in (2048, 1, 1, 1)]
    result = fold(Op.SUM, Dtype.FLOAT_SHORT, Dtype.NULL, operands, little_endian=False, acc_native=acc_native)
    assert struct.unpack(">e", result) == (total,)


def test_tree_order_differs_from_flat_order() -> None:
    operands = [struct.pack(">f", value) for value in (1e8, 1, -1e8, 1)]

    def total(*parts: bytes) -> bytes:
        return fold(Op.SUM, Dtype.FLOAT, Dtype.NULL, parts, little_endian=False)

    assert struct.unpack(">f", total(total(*operands[:2]), total(*operands[2:]))) == (0.0,)
    assert struct.unpack(">f", total(*operands)) == (1.0,)


def test_ops_of_floating_point() -> None:
    floats = {op for op, dtype, _ in COMBINATIONS if dtype in FLOATS}
    assert floats == {Op.MIN, Op.MAX, Op.SUM, Op.PROD, Op.MINLOC, Op.MAXLOC}
    assert {op for op, dtype, _ in COMBINATIONS if dtype == Dtype.INT} == set(Op) - {Op.NULL}
