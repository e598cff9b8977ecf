# SPDX-License-Identifier: GPL-2.0-only
"""Atomic memory operations: each AMO on each datatype (ses.md §6, §15 item 21)."""

import operator
import struct
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import copysign, isfinite, isnan
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.support.each import each
from tests.support.effort import effort
from uetproto.engine.ses.atomics import (
    ELEMENT_SIZE,
    LEGAL,
    AtomicOutcome,
    check,
    execute,
    operand_from_128,
    operand_to_128,
)
from uetproto.errors import LocalError, RemoteError
from uetproto.wire.headers.uet_ses import COMPARE_AND_SWAPS, AtomicDatatype, AtomicOpcode, ReturnCode

A, T = AtomicOpcode, AtomicDatatype

INTEGERS = [T.INT8, T.UINT8, T.INT16, T.UINT16, T.INT32, T.UINT32, T.INT64, T.UINT64, T.INT128, T.UINT128]
FLOATS = [T.FLOAT, T.DOUBLE, T.BF16, T.FP16]
COMPLEX = [T.FLOAT_COMPLEX, T.DOUBLE_COMPLEX]
UPDATES = [amo for amo in A if amo not in (*COMPARE_AND_SWAPS, A.READ, A.INVAL)]
FRACTION = {T.FP16: 10, T.BF16: 7, T.FLOAT: 23, T.DOUBLE: 52}
NANS = {T.FP16: 0x7E00, T.BF16: 0x7FC0, T.FLOAT: 0x7FC00000, T.DOUBLE: 0x7FF8000000000000}
"""The NaN that comes out of a computation."""

# Which combinations there are ----------------------------------------------------------------------------------------

LEGALITY = """
MIN      0x00  yes  yes  no
MAX      0x01  yes  yes  no
SUM      0x02  yes  yes  yes
DIFF     0x03  yes  yes  yes
PROD     0x04  yes  yes  yes
LOR      0x05  yes  yes  yes
LAND     0x06  yes  yes  yes
BOR      0x07  yes  no   no
BAND     0x08  yes  no   no
LXOR     0x09  yes  yes  yes
BXOR     0x0A  yes  no   no
READ     0x0B  yes  yes  yes
WRITE    0x0C  yes  yes  yes
CSWAP    0x0D  yes  yes  yes
CSWAP_NE 0x0E  yes  yes  yes
CSWAP_LE 0x0F  yes  yes  no
CSWAP_LT 0x10  yes  yes  no
CSWAP_GE 0x11  yes  yes  no
CSWAP_GT 0x12  yes  yes  no
MSWAP    0x13  yes  no   no
INVAL    0x14  yes  yes  yes
"""
"""§6.1; INVAL is checked like READ."""

ROWS = [line.split() for line in LEGALITY.split("\n") if line]


@pytest.mark.parametrize(("name", "code", "integers", "floats", "complexes"), ROWS, ids=[row[0] for row in ROWS])
def test_legality(name: str, code: str, integers: str, floats: str, complexes: str) -> None:
    """§6.1, each cell: what is legal runs, what is not has an answer."""
    opcode = int(code, 16)
    assert A[name] == opcode
    legal = INTEGERS * (integers == "yes") + FLOATS * (floats == "yes") + COMPLEX * (complexes == "yes")
    assert LEGAL[A(opcode)] == set(legal)
    for datatype in T:
        if datatype in legal:
            assert check(opcode, datatype) is None
            size = ELEMENT_SIZE[datatype]
            operands = b"" if name in ("READ", "INVAL") else bytes(size)
            compare = bytes(size) if opcode in COMPARE_AND_SWAPS else b""
            assert execute(opcode, datatype, bytes(size), operands, compare) == AtomicOutcome(
                bytes(size), bytes(size), None
            )
        else:
            assert check(opcode, datatype) is ReturnCode.AMO_UNSUPPORTED_DT
            with pytest.raises(RemoteError, match="not supported") as caught:
                execute(opcode, datatype, bytes(32), bytes(32))
            assert caught.value.code is ReturnCode.AMO_UNSUPPORTED_DT


def test_the_table_is_whole() -> None:
    assert [int(row[1], 16) for row in ROWS] == list(range(0x15)) == list(A)


@pytest.mark.parametrize(("opcode", "datatype", "code"), [
    (0x15, T.INT8, ReturnCode.AMO_UNSUPPORTED_OP),
    (0xE0, T.INT8, ReturnCode.AMO_UNSUPPORTED_OP),
    (0xFF, 0xFF, ReturnCode.AMO_UNSUPPORTED_OP),
    (A.SUM, 0x12, ReturnCode.AMO_UNSUPPORTED_DT),
    (A.READ, 0xE0, ReturnCode.AMO_UNSUPPORTED_DT),
    (A.WRITE, T.LONG_DOUBLE, ReturnCode.AMO_UNSUPPORTED_DT),
    (A.CSWAP, T.LONG_DOUBLE_COMPLEX, ReturnCode.AMO_UNSUPPORTED_DT),
])  # fmt: skip
def test_unknown_codes(opcode: int, datatype: int, code: ReturnCode) -> None:
    """§6.3: the AMO is looked at first; vendor codes are unknown, long doubles unsupported (§6.2)."""
    assert check(opcode, datatype) is code
    with pytest.raises(RemoteError, match="not supported") as caught:
        execute(opcode, datatype, b"", b"")
    assert caught.value.code is code


def test_element_sizes() -> None:
    """§6.2, by code."""
    sizes = [1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 4, 8, 8, 16, 16, 32, 2, 2]
    assert [ELEMENT_SIZE[T(code)] for code in range(0x12)] == sizes
    assert len(ELEMENT_SIZE) == len(T) == 0x12


# Bytes: order, lengths, 128-bit fields -------------------------------------------------------------------------------


@pytest.mark.parametrize(("datatype", "host", "wire"), [
    (T.UINT8, "01 02", "01 02"),
    (T.UINT16, "01 02 03 04", "02 01 04 03"),
    (T.INT32, "01 02 03 04", "04 03 02 01"),
    (T.DOUBLE, "01 02 03 04 05 06 07 08", "08 07 06 05 04 03 02 01"),
    (T.UINT128, bytes(range(16)).hex(), bytes(reversed(range(16))).hex()),
    (T.FLOAT_COMPLEX, "01 02 03 04 05 06 07 08", "04 03 02 01 08 07 06 05"),
    (T.DOUBLE_COMPLEX, bytes(range(16)).hex(), bytes([*range(7, -1, -1), *range(15, 7, -1)]).hex()),
])  # fmt: skip
def test_byte_order(datatype: AtomicDatatype, host: str, wire: str) -> None:
    """§6.3: big-endian per element on the wire, a complex number by component; memory in the host's order."""
    little, big = bytes.fromhex(host), bytes.fromhex(wire)
    assert execute(A.READ, datatype, little, b"") == AtomicOutcome(little, big, None)
    assert execute(A.READ, datatype, big, b"", byteorder="big") == AtomicOutcome(big, big, None)
    assert execute(A.WRITE, datatype, bytes(len(big)), big) == AtomicOutcome(little, bytes(len(big)), None)
    assert execute(A.WRITE, datatype, bytes(len(big)), big, byteorder="big").memory == big


def test_element_by_element() -> None:
    """§6.3: element i of the operands works on element i of the target."""
    memory, operands = struct.pack("<3H", 1, 2, 0xFFFF), struct.pack(">3H", 10, 20, 2)
    outcome = execute(A.SUM, T.UINT16, memory, operands)
    assert struct.unpack("<3H", outcome.memory) == (11, 22, 1)
    assert struct.unpack(">3H", outcome.old) == (1, 2, 0xFFFF)
    assert execute(A.SUM, T.UINT16, b"", b"") == AtomicOutcome(b"", b"", None)


def test_any_buffer() -> None:
    outcome = execute(A.SUM, T.UINT8, memoryview(bytearray(b"\1\2")), memoryview(b"\3\4"))
    assert outcome == AtomicOutcome(b"\4\6", b"\1\2", None)
    assert isinstance(outcome.memory, bytes)
    assert isinstance(outcome.old, bytes)


def test_no_whole_number_of_elements() -> None:
    with pytest.raises(RemoteError, match="INT32: 7 bytes; legal: whole elements of 4 bytes") as caught:
        execute(A.SUM, T.INT32, bytes(7), bytes(7))
    assert caught.value.code is ReturnCode.AMO_UNSUPPORTED_SIZE


@pytest.mark.parametrize(("amo", "memory", "operands", "compare", "text"), [
    (A.SUM, 8, 4, 0, "operands: 4 bytes are not legal; legal: 8"),
    (A.SUM, 4, 4, 4, "compare: 4 bytes are not legal; legal: 0"),
    (A.READ, 4, 4, 0, "operands: 4 bytes are not legal; legal: 0"),
    (A.INVAL, 4, 4, 0, "operands: 4 bytes are not legal; legal: 0"),
    (A.CSWAP, 8, 8, 4, "memory: 8 bytes are not legal; legal: 4"),
    (A.CSWAP_GT, 4, 0, 4, "operands: 0 bytes are not legal; legal: 4"),
    (A.MSWAP, 4, 4, 0, "compare: 0 bytes are not legal; legal: 4"),
])  # fmt: skip
def test_lengths_that_do_not_go_together(
    amo: AtomicOpcode, memory: int, operands: int, compare: int, text: str
) -> None:
    with pytest.raises(LocalError, match=text):
        execute(amo, T.INT32, bytes(memory), bytes(operands), bytes(compare))


def test_byteorder_has_two_values() -> None:
    with pytest.raises(LocalError, match="byteorder: 'network' is not legal; legal: 'little', 'big'"):
        execute(A.READ, T.INT8, b"\0", b"", byteorder="network")  # type: ignore[arg-type]


@pytest.mark.parametrize("datatype", [t for t in T if t is not T.LONG_DOUBLE_COMPLEX])
def test_128_bit_fields(datatype: AtomicDatatype) -> None:
    """§6.3: the value is in the low-order bytes; what is above is not looked at."""
    field = int.from_bytes(bytes(range(0xA0, 0xB0)), "big")
    size = ELEMENT_SIZE[datatype]
    operand = operand_from_128(field, datatype)
    assert operand == bytes(range(0xB0 - size, 0xB0))
    assert operand_to_128(operand, datatype) == field % (1 << 8 * size)
    assert operand_from_128(operand_to_128(operand, datatype), datatype) == operand


def test_what_does_not_fit_a_128_bit_field() -> None:
    for datatype in (T.LONG_DOUBLE_COMPLEX, 0x12, 0xFF):
        with pytest.raises(RemoteError, match="in a compare-and-swap extension") as caught:
            operand_from_128(0, datatype)
        assert caught.value.code is ReturnCode.AMO_UNSUPPORTED_DT
    with pytest.raises(LocalError, match="LONG_DOUBLE_COMPLEX is not legal"):
        operand_to_128(bytes(32), T.LONG_DOUBLE_COMPLEX)
    with pytest.raises(LocalError, match="operand: 3 bytes are not legal; legal: 4"):
        operand_to_128(bytes(3), T.FLOAT)


# One element, as a number --------------------------------------------------------------------------------------------


def apply(amo: AtomicOpcode, datatype: AtomicDatatype, m: int, o: int, c: int | None = None, trap: bool = False) -> int:
    """The AMO on patterns; a fault is raised."""
    size = ELEMENT_SIZE[datatype]
    compare = b"" if c is None else c.to_bytes(size, "big")
    memory = m.to_bytes(size, "big")
    new, old, fault = execute(amo, datatype, memory, o.to_bytes(size, "big"), compare, byteorder="big", trap=trap)
    assert old == memory
    if fault is not None:
        assert new == memory
        raise RemoteError("trapped", fault)
    return int.from_bytes(new, "big")


def compares(amo: AtomicOpcode, datatype: AtomicDatatype, c: int, m: int) -> bool:
    """Whether the AMO swaps."""
    swap = m ^ 0x55
    return {m: False, swap: True}[apply(amo, datatype, m, swap, c)]


def order(c: float, m: float) -> dict[AtomicOpcode, bool]:
    """Whether each CSWAP swaps: "compare value OP target value" (§6.1)."""
    return {
        A.CSWAP: c == m, A.CSWAP_NE: c != m,
        A.CSWAP_LE: c <= m, A.CSWAP_LT: c < m, A.CSWAP_GE: c >= m, A.CSWAP_GT: c > m,
    }  # fmt: skip


def signed(pattern: int, datatype: AtomicDatatype) -> int:
    bits = 8 * ELEMENT_SIZE[datatype]
    return pattern - (pattern >> (bits - 1) << bits) if datatype.name.startswith("INT") else pattern


UPDATED: dict[AtomicOpcode, Callable[[int, int], int]] = {
    A.MIN: min, A.MAX: max, A.SUM: operator.add, A.DIFF: operator.sub, A.PROD: operator.mul,
    A.LOR: lambda x, y: int(bool(x or y)), A.LAND: lambda x, y: int(bool(x and y)),
    A.LXOR: lambda x, y: int(bool(x) ^ bool(y)), A.BOR: operator.or_, A.BAND: operator.and_, A.BXOR: operator.xor,
    A.WRITE: lambda x, y: y,
}  # fmt: skip


def integer_model(amo: AtomicOpcode, datatype: AtomicDatatype, m: int, o: int) -> int:
    return UPDATED[amo](signed(m, datatype), signed(o, datatype)) % (1 << 8 * ELEMENT_SIZE[datatype])


@pytest.mark.parametrize("amo", UPDATES)
@pytest.mark.parametrize("datatype", [T.INT8, T.UINT8])
def test_every_pair_of_bytes(amo: AtomicOpcode, datatype: AtomicDatatype) -> None:
    others = range(0, 256, effort(3, 1, 1))  # 0, 255 and every third: as bytes these are of either sign
    memory = bytes(m for m in range(256) for _ in others)
    operands = bytes(others) * 256
    new = execute(amo, datatype, memory, operands).memory
    assert new == bytes(integer_model(amo, datatype, m, o) for m, o in zip(memory, operands, strict=True))


@st.composite
def integers(draw: st.DrawFn, count: int) -> tuple[Any, ...]:
    """A datatype and patterns; often at the edges, often the same twice."""
    datatype = draw(st.sampled_from(INTEGERS))
    bits = 8 * ELEMENT_SIZE[datatype]
    top = (1 << bits) - 1
    edges = st.sampled_from([0, 1, 2, top, top - 1, top >> 1, (top >> 1) + 1])
    pattern = st.one_of(edges, st.integers(0, top))
    return datatype, *(draw(pattern) for _ in range(count))


@given(drawn=integers(2))
def test_integers(drawn: tuple[AtomicDatatype, int, int]) -> None:
    """§6.1: two's complement, modulo 2^n, up to 128 bits."""
    datatype, m, o = drawn
    for amo in UPDATES:
        assert apply(amo, datatype, m, o) == integer_model(amo, datatype, m, o)


@given(drawn=integers(3))
def test_integer_compares(drawn: tuple[AtomicDatatype, int, int, int]) -> None:
    """§6.1: the order is "compare value OP target value"."""
    datatype, m, s, c = drawn
    x, y = signed(c, datatype), signed(m, datatype)
    for amo, swaps in order(x, y).items():
        assert apply(amo, datatype, m, s, c) == (s if swaps else m)
    bits = range(8 * ELEMENT_SIZE[datatype])
    picked = sum(((s if c >> i & 1 else m) >> i & 1) << i for i in bits)
    assert apply(A.MSWAP, datatype, m, s, c) == picked


@given(drawn=integers(1), operands=st.lists(st.integers(0, (1 << 128) - 1), max_size=30), ones=st.booleans())
def test_fetching_sums(drawn: tuple[AtomicDatatype, int], operands: list[int], ones: bool) -> None:
    """§15 item 21: n initiators add to one element; each finds what the ones before it made."""
    datatype, start = drawn
    size = ELEMENT_SIZE[datatype]
    modulus = 1 << 8 * size
    operands = [1 if ones else operand % modulus for operand in operands]
    memory, fetched = start.to_bytes(size, "little"), []
    for operand in operands:
        memory, old, _ = execute(A.SUM, datatype, memory, operand.to_bytes(size, "big"))
        fetched.append(int.from_bytes(old, "big"))
    assert int.from_bytes(memory, "little") == (start + sum(operands)) % modulus
    assert fetched == [(start + sum(operands[:n])) % modulus for n in range(len(operands))]
    assert not ones or len(set(fetched)) == len(operands)


@given(drawn=integers(1), targets=st.lists(st.integers(0, (1 << 128) - 1), min_size=1, max_size=12))
def test_compare_and_swap_makes_a_sum(drawn: tuple[AtomicDatatype, int], targets: list[int]) -> None:
    """A loop of CSWAP, with one stale try each time, ends where SUM ends."""
    datatype, start = drawn
    modulus = 1 << 8 * ELEMENT_SIZE[datatype]
    value = start
    for target in targets:
        stale = (value + 1) % modulus
        assert apply(A.CSWAP, datatype, value, target % modulus, stale) == value
        value = apply(A.CSWAP, datatype, value, (value + target) % modulus, value)
    assert value == (start + sum(targets)) % modulus


# Floats --------------------------------------------------------------------------------------------------------------


def widths(datatype: AtomicDatatype) -> tuple[int, int, int]:
    """Bits, stored bits of the significand, and the pattern of infinity."""
    bits, fraction = 8 * ELEMENT_SIZE[datatype], FRACTION[datatype]
    return bits, fraction, (1 << (bits - 1)) - (1 << fraction)


def edges(datatype: AtomicDatatype) -> list[int]:
    """Patterns near which something may go wrong, without sign."""
    bits, fraction, infinity = widths(datatype)
    normal, one = 1 << fraction, (1 << (bits - 2)) - (1 << fraction)
    return [
        0, 1, 2, 3, normal >> 1, normal - 1, normal, normal + 1, 2 * normal - 1, 2 * normal, one >> 1, one - 1, one,
        one + 1, one + normal // 2, one + normal - 1, one + (fraction + 1) * normal, infinity - normal,
        infinity - 1, infinity, infinity + 1, infinity + normal // 2, infinity + normal - 1,
    ]  # fmt: skip


@st.composite
def floats(draw: st.DrawFn, datatypes: list[AtomicDatatype], count: int) -> tuple[Any, ...]:
    datatype = draw(st.sampled_from(datatypes))
    bits = 8 * ELEMENT_SIZE[datatype]
    edge = st.builds(lambda x, s: x | s << (bits - 1), st.sampled_from(edges(datatype)), st.integers(0, 1))
    pattern = st.one_of(edge, st.integers(0, (1 << bits) - 1))
    return datatype, *(draw(pattern) for _ in range(count))


def value(datatype: AtomicDatatype, pattern: int) -> float:
    """As Python's float, which holds every value of the four formats."""
    if datatype is T.BF16:
        datatype, pattern = T.FLOAT, pattern << 16
    letter = {T.FP16: "e", T.FLOAT: "f", T.DOUBLE: "d"}[datatype]
    number: float = struct.unpack(f">{letter}", pattern.to_bytes(ELEMENT_SIZE[datatype], "big"))[0]
    return number


@cache
def magnitudes(datatype: AtomicDatatype) -> list[Fraction]:
    """The values of all patterns from 0 on, and one more: infinity as if the exponents went on."""
    infinity = widths(datatype)[2]
    finite = [Fraction(value(datatype, pattern)) for pattern in range(infinity)]
    return [*finite, 2 * finite[-1] - finite[-2]]


def nearest(datatype: AtomicDatatype, exact: Fraction) -> int:
    """The pattern of the nearest value, found among all of them; of two, the even one."""
    table = magnitudes(datatype)
    above = min(bisect_left(table, abs(exact)), len(table) - 1)
    below = max(above - 1, 0)
    to_above, to_below = abs(table[above] - abs(exact)), abs(table[below] - abs(exact))
    pick = above if to_above < to_below or (to_above == to_below and above % 2 == 0) else below
    return pick | (exact < 0) << (8 * ELEMENT_SIZE[datatype] - 1)


def float_model(amo: AtomicOpcode, datatype: AtomicDatatype, m: int, o: int) -> int:
    """SUM, DIFF and PROD by Python's float; narrow formats from all their values, wider ones by the machine."""
    x, y = value(datatype, m), value(datatype, o)
    result = {A.SUM: x + y, A.DIFF: x - y, A.PROD: x * y}[amo]
    bits, _, infinity = widths(datatype)
    sign = (copysign(1, result) < 0) << (bits - 1)
    if isnan(result):
        return NANS[datatype]
    if datatype is T.DOUBLE:
        return int.from_bytes(struct.pack(">d", result), "big")
    if not isfinite(result):
        return infinity | sign
    if datatype is T.FLOAT:  # 53 bits are enough for a second rounding to do no harm
        try:
            return int.from_bytes(struct.pack(">f", result), "big")
        except OverflowError:
            return infinity | sign
    p, q = Fraction(x), Fraction(y)
    return nearest(datatype, {A.SUM: p + q, A.DIFF: p - q, A.PROD: p * q}[amo]) | sign


@given(drawn=floats(FLOATS, 2))
def test_float_arithmetic(drawn: tuple[AtomicDatatype, int, int]) -> None:
    """§6.3: IEEE 754, round to nearest; a NaN is the quiet one."""
    datatype, m, o = drawn
    for amo in (A.SUM, A.DIFF, A.PROD):
        assert apply(amo, datatype, m, o) == float_model(amo, datatype, m, o)


@pytest.mark.parametrize("datatype", FLOATS)
def test_float_arithmetic_at_the_edges(datatype: AtomicDatatype) -> None:
    """Each pair of edges, with each sign."""
    sign = 1 << (8 * ELEMENT_SIZE[datatype] - 1)
    patterns = [x | s for x in edges(datatype) for s in (0, sign)]
    for m in patterns:
        for o in patterns:
            for amo in (A.SUM, A.DIFF, A.PROD):
                assert apply(amo, datatype, m, o) == float_model(amo, datatype, m, o), (amo, hex(m), hex(o))


@given(drawn=floats(FLOATS, 2))
def test_float_order(drawn: tuple[AtomicDatatype, int, int]) -> None:
    """§6.1, §6.3: IEEE comparisons; NaN is unequal to all and false in each order; −0 is below +0 in MIN and MAX."""
    datatype, m, o = drawn
    x, y = value(datatype, m), value(datatype, o)
    for amo, swaps in order(x, y).items():
        assert compares(amo, datatype, m, o) is swaps
    if isnan(x) or isnan(y):
        least = most = NANS[datatype] if isnan(x) and isnan(y) else o if isnan(x) else m
    else:
        least, most = sorted((m, o), key=lambda z: (value(datatype, z), copysign(1, value(datatype, z))))
    assert apply(A.MIN, datatype, m, o) == least
    assert apply(A.MAX, datatype, m, o) == most


@pytest.mark.parametrize("datatype", FLOATS)
def test_compares_at_the_edges(datatype: AtomicDatatype) -> None:
    """Each pair of edges, with each sign: the two zeros are equal."""
    sign = 1 << (8 * ELEMENT_SIZE[datatype] - 1)
    patterns = [x | s for x in edges(datatype) for s in (0, sign)]
    for c in patterns:
        for m in patterns:
            for amo, swaps in order(value(datatype, c), value(datatype, m)).items():
                assert compares(amo, datatype, c, m) is swaps, (amo, hex(c), hex(m))


def parts(datatype: AtomicDatatype, pattern: int) -> list[tuple[AtomicDatatype, int]]:
    """The one or two floats of a pattern."""
    if datatype in FLOATS:
        return [(datatype, pattern)]
    part = T.FLOAT if datatype is T.FLOAT_COMPLEX else T.DOUBLE
    bits = 8 * ELEMENT_SIZE[part]
    return [(part, pattern >> bits), (part, pattern % (1 << bits))]


@st.composite
def complexes(draw: st.DrawFn, count: int) -> tuple[Any, ...]:
    part = draw(st.sampled_from([T.FLOAT, T.DOUBLE]))
    pairs = [draw(floats([part], 2))[1:] for _ in range(count)]
    datatype = T.FLOAT_COMPLEX if part is T.FLOAT else T.DOUBLE_COMPLEX
    return datatype, *(real << 8 * ELEMENT_SIZE[part] | imaginary for real, imaginary in pairs)


@given(drawn=st.one_of(floats(FLOATS, 2), complexes(2)))
def test_float_logic_and_moves(drawn: tuple[AtomicDatatype, int, int]) -> None:
    """§6.1: true is all but zero, so NaN as well; the result is 1 or 0 of the datatype. Moves keep every bit."""
    datatype, m, o = drawn
    x, y = (any(value(*part) != 0 for part in parts(datatype, pattern)) for pattern in (m, o))
    bits = 8 * ELEMENT_SIZE[datatype]
    one = {T.FP16: 0x3C00, T.BF16: 0x3F80, T.FLOAT: 0x3F800000, T.DOUBLE: 0x3FF0 << 48,
           T.FLOAT_COMPLEX: 0x3F800000 << 32, T.DOUBLE_COMPLEX: 0x3FF0 << 112}[datatype]  # fmt: skip
    for amo, result in ((A.LOR, x or y), (A.LAND, x and y), (A.LXOR, x != y)):
        assert apply(amo, datatype, m, o) == (one if result else 0)
    assert apply(A.WRITE, datatype, m, o) == o
    memory = m.to_bytes(bits // 8, "big")
    for amo in (A.READ, A.INVAL):
        assert execute(amo, datatype, memory, b"", byteorder="big") == AtomicOutcome(memory, memory, None)


@given(drawn=complexes(2))
def test_complex_arithmetic(drawn: tuple[AtomicDatatype, int, int]) -> None:
    """Component by component; a product is four products and two sums, each rounded."""
    datatype, m, o = drawn
    (part, a), (_, b) = parts(datatype, m)
    (_, c), (_, d) = parts(datatype, o)

    def run(amo: AtomicOpcode, x: int, y: int) -> int:
        return float_model(amo, part, x, y)

    for amo in (A.SUM, A.DIFF):
        assert parts(datatype, apply(amo, datatype, m, o)) == [(part, run(amo, a, c)), (part, run(amo, b, d))]
    real = run(A.DIFF, run(A.PROD, a, c), run(A.PROD, b, d))
    imaginary = run(A.SUM, run(A.PROD, a, d), run(A.PROD, b, c))
    assert parts(datatype, apply(A.PROD, datatype, m, o)) == [(part, real), (part, imaginary)]
    equal = value(part, a) == value(part, c) and value(part, b) == value(part, d)
    assert compares(A.CSWAP, datatype, m, o) is equal
    assert compares(A.CSWAP_NE, datatype, m, o) is not equal


F16, BF, F32, F64 = T.FP16, T.BF16, T.FLOAT, T.DOUBLE


@each("amo, datatype, m, o, result", [
    (A.SUM, F16, 0x3C00, 0x1000, 0x3C00),             # 1 + half an ulp: a tie, to even
    (A.SUM, F16, 0x3C01, 0x1000, 0x3C02),             # the tie one further on, to even
    (A.SUM, F16, 0x3C00, 0x1001, 0x3C01),             # above the tie
    (A.SUM, F16, 0x7BFF, 0x4BFF, 0x7BFF),             # 65504 + 15.99: below the tie with 65536
    (A.SUM, F16, 0x7BFF, 0x4C00, 0x7C00),             # 65504 + 16: the tie overflows
    (A.SUM, F16, 0x03FF, 0x0001, 0x0400),             # subnormals become normal
    (A.DIFF, F16, 0x0400, 0x0001, 0x03FF),            # and back
    (A.PROD, F16, 0x0001, 0x3800, 0x0000),            # half the least subnormal: a tie, to zero
    (A.PROD, F16, 0x0003, 0x3800, 0x0002),            # 1.5 of them: a tie, to even
    (A.PROD, F16, 0x8001, 0x3801, 0x8001),            # just above half of one, negative
    (A.PROD, F16, 0x8001, 0x0001, 0x8000),            # underflow keeps the sign
    (A.SUM, F16, 0x8000, 0x8000, 0x8000),             # −0 + −0
    (A.SUM, F16, 0x8000, 0x0000, 0x0000),             # −0 + +0
    (A.SUM, F16, 0xBC00, 0x3C00, 0x0000),             # −1 + 1
    (A.DIFF, F16, 0x8000, 0x0000, 0x8000),            # −0 − +0
    (A.DIFF, F16, 0x0000, 0x0000, 0x0000),            # +0 − +0
    (A.PROD, F16, 0x8000, 0x3C00, 0x8000),            # −0 · 1
    (A.SUM, F16, 0x7C00, 0xFC00, 0x7E00),             # ∞ − ∞
    (A.SUM, F16, 0x7C00, 0xFBFF, 0x7C00),
    (A.DIFF, F16, 0x3C00, 0x7C00, 0xFC00),
    (A.DIFF, F16, 0xFC00, 0xFC00, 0x7E00),
    (A.PROD, F16, 0xFC00, 0x0000, 0x7E00),            # ∞ · 0
    (A.PROD, F16, 0xFC00, 0x0001, 0xFC00),
    (A.PROD, F16, 0xFC00, 0xFC00, 0x7C00),
    (A.SUM, F16, 0x7D01, 0x3C00, 0x7E00),             # a signalling NaN becomes the quiet one
    (A.PROD, F16, 0x3C00, 0xFFFF, 0x7E00),            # sign and payload go
    (A.SUM, BF, 0x3F80, 0x3B80, 0x3F80),              # 1 + 2^-8: a tie, to even
    (A.SUM, BF, 0x3F81, 0x3B80, 0x3F82),
    (A.PROD, BF, 0x0080, 0x3F00, 0x0040),             # gradual underflow
    (A.PROD, BF, 0x7F7F, 0x4000, 0x7F80),
    (A.SUM, F32, 0x4B800000, 0x3F800000, 0x4B800000), # 2^24 + 1
    (A.SUM, F32, 0x3DCCCCCD, 0x3E4CCCCD, 0x3E99999A), # 0.1 + 0.2
    (A.SUM, F64, 0x3FB999999999999A, 0x3FC999999999999A, 0x3FD3333333333334),
    (A.PROD, F64, 0x7FEFFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000),
    (A.SUM, F64, 0x7FEFFFFFFFFFFFFF, 0x0000000000000001, 0x7FEFFFFFFFFFFFFF),
    (A.MIN, F32, 0x00000000, 0x80000000, 0x80000000), # −0 < +0
    (A.MIN, F32, 0x80000000, 0x00000000, 0x80000000),
    (A.MAX, F32, 0x80000000, 0x00000000, 0x00000000),
    (A.MAX, F32, 0x00000000, 0x80000000, 0x00000000),
    (A.MIN, F32, 0x7F800001, 0x3F800000, 0x3F800000), # the value that is no NaN wins
    (A.MAX, F32, 0x3F800000, 0xFFC00000, 0x3F800000),
    (A.MAX, F32, 0x7F800001, 0xFFC00000, 0x7FC00000),
    (A.MIN, F32, 0xFF800000, 0xFF7FFFFF, 0xFF800000),
    (A.LAND, F32, 0x7FC00000, 0x00000001, 0x3F800000),
    (A.LOR, F32, 0x80000000, 0x00000000, 0x00000000), # −0 is false
    (A.WRITE, F32, 0x00000000, 0x7F800001, 0x7F800001),
])  # fmt: skip
def test_floats_by_hand(amo: AtomicOpcode, datatype: AtomicDatatype, m: int, o: int, result: int) -> None:
    assert f"{apply(amo, datatype, m, o):#x}" == f"{result:#x}"


def pair(real: float, imaginary: float) -> int:
    return int.from_bytes(struct.pack(">ff", real, imaginary), "big")


@pytest.mark.parametrize(("amo", "m", "o", "result"), [
    (A.SUM, pair(1, 2), pair(10, 20), pair(11, 22)),
    (A.DIFF, pair(1, 2), pair(10, 20), pair(-9, -18)),
    (A.PROD, pair(1, 2), pair(3, 4), pair(-5, 10)),
    (A.PROD, pair(0, 1), pair(0, 1), pair(-1, 0)),
    # 4097² is rounded before 4098 · 4096 = 4097² − 1 is taken away: a fused operation would leave 1
    (A.PROD, pair(4097, 4098), pair(4097, 4096), pair(0, 33570816)),
    (A.PROD, pair(float("inf"), 0), pair(1, 0), pair(float("inf"), 0) | 0x7FC00000),  # 0 · ∞ in the imaginary part
    (A.LOR, pair(0, 0), pair(0, 5), pair(1, 0)),
    (A.LAND, pair(0, 7), pair(3, 0), pair(1, 0)),
    (A.LXOR, pair(0, 7), pair(3, 0), pair(0, 0)),
])  # fmt: skip
def test_complex_by_hand(amo: AtomicOpcode, m: int, o: int, result: int) -> None:
    assert f"{apply(amo, T.FLOAT_COMPLEX, m, o):#x}" == f"{result:#x}"


# Traps ---------------------------------------------------------------------------------------------------------------

NAN, OVERFLOW = ReturnCode.AMO_FP_NAN, ReturnCode.AMO_FP_OVERFLOW
UNDERFLOW, INEXACT = ReturnCode.AMO_FP_UNDERFLOW, ReturnCode.AMO_FP_INEXACT


@pytest.mark.parametrize(("amo", "datatype", "m", "o", "fault"), [
    (A.SUM, F16, 0x7C00, 0xFC00, NAN),
    (A.SUM, F16, 0x7E00, 0x3C00, NAN),
    (A.PROD, F16, 0x7C00, 0x0000, NAN),
    (A.MIN, F16, 0x7E00, 0x7E00, NAN),
    (A.SUM, F16, 0x7BFF, 0x7BFF, OVERFLOW),
    (A.SUM, F16, 0x7BFF, 0x4C00, OVERFLOW),
    (A.PROD, F16, 0x0001, 0x3800, UNDERFLOW),
    (A.PROD, F16, 0x0003, 0x3800, UNDERFLOW),
    (A.PROD, F16, 0x07FF, 0x3800, INEXACT),           # rounded up to the least normal number
    (A.SUM, F16, 0x3C00, 0x1000, INEXACT),
    (A.SUM, T.FLOAT_COMPLEX, pair(0, 1), pair(0, 2**-30), INEXACT),
    (A.PROD, T.FLOAT_COMPLEX, pair(0, 2**100), pair(2**100, 0), OVERFLOW),
])  # fmt: skip
def test_traps(amo: AtomicOpcode, datatype: AtomicDatatype, m: int, o: int, fault: ReturnCode) -> None:
    with pytest.raises(RemoteError) as caught:
        apply(amo, datatype, m, o, trap=True)
    assert caught.value.code is fault
    apply(amo, datatype, m, o)


@pytest.mark.parametrize(("amo", "datatype", "m", "o"), [
    (A.SUM, F16, 0x3C00, 0x3C00),
    (A.SUM, F16, 0x0001, 0x0001),                     # subnormal, but exact
    (A.PROD, F16, 0x0002, 0x3800),
    (A.SUM, F16, 0x7C00, 0x3C00),                     # infinity is an exact sum
    (A.PROD, F16, 0x7C00, 0x7BFF),
    (A.MIN, F16, 0x7E00, 0x3C00),
    (A.WRITE, F16, 0x3C00, 0x7D00),
    (A.LOR, F16, 0x7D00, 0x7D00),
    (A.SUM, T.INT8, 0x7F, 0x7F),
])  # fmt: skip
def test_what_does_not_trap(amo: AtomicOpcode, datatype: AtomicDatatype, m: int, o: int) -> None:
    assert apply(amo, datatype, m, o, trap=True) == apply(amo, datatype, m, o)


def test_compares_do_not_trap() -> None:
    for amo in COMPARE_AND_SWAPS[:-1]:
        size = ELEMENT_SIZE[F16]
        outcome = execute(amo, F16, bytes(size), b"\1\2", b"\x7d\0", trap=True)
        assert outcome.fault is None
        assert (outcome.memory == b"\2\1") is (amo is A.CSWAP_NE)


def test_a_trap_leaves_all_elements_alone() -> None:
    """§6.3: memory is unchanged, also the elements before the one at fault."""
    memory, operands = struct.pack("<3e", 1, 65504, 1), struct.pack(">3e", 1, 65504, 2**-20)
    assert execute(A.SUM, F16, memory, operands, trap=True) == AtomicOutcome(
        memory, struct.pack(">3e", 1, 65504, 1), OVERFLOW
    )
    assert struct.unpack("<3e", execute(A.SUM, F16, memory, operands).memory) == (2, float("inf"), 1)
