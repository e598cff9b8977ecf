# SPDX-License-Identifier: GPL-2.0-only
"""This module executes atomic memory operations (AMOs) on elements of every datatype (ses.md §6; UE 1.0.1 §3.4.2.4).

The functions return the same bits on every machine. A floating-point number is converted to a multiple of the smallest
subnormal of its format, so that sums and products are exact integers. A result is rounded once, to nearest, ties to
even. The *pattern* of an element is the unsigned integer that its bytes in wire order represent. Wire order is
big-endian, for complex numbers in each component.
"""

from collections.abc import Callable, Iterable
from struct import iter_unpack
from typing import Any, Literal, NamedTuple

from uetproto.engine.contract import Buffer
from uetproto.errors import LocalError, RemoteError
from uetproto.wire.headers.uet_ses import COMPARE_AND_SWAPS, ELEMENT_SIZE, AtomicDatatype, AtomicOpcode, ReturnCode

# 1 What is legal with what (ses.md §6.1, §6.2) -----------------------------------------------------------------------

_A, _T = AtomicOpcode, AtomicDatatype

_INTEGERS = frozenset({
    _T.INT8, _T.INT16, _T.INT32, _T.INT64, _T.INT128, _T.UINT8, _T.UINT16, _T.UINT32, _T.UINT64, _T.UINT128,
})  # fmt: skip
_FLOATS = frozenset({_T.FP16, _T.BF16, _T.FLOAT, _T.DOUBLE})
_COMPLEX = frozenset({_T.FLOAT_COMPLEX, _T.DOUBLE_COMPLEX})
_ORDERED = _INTEGERS | _FLOATS
_ALL = _ORDERED | _COMPLEX
"""LONG_DOUBLE and LONG_DOUBLE_COMPLEX are not supported: the format differs from machine to machine."""

LEGAL: dict[AtomicOpcode, frozenset[AtomicDatatype]] = {
    _A.MIN:  _ORDERED,
    _A.MAX:  _ORDERED,
    _A.SUM:  _ALL,
    _A.DIFF: _ALL,
    _A.PROD: _ALL,
    _A.LOR:  _ALL,
    _A.LAND: _ALL,
    _A.BOR:  _INTEGERS,
    _A.BAND: _INTEGERS,
    _A.LXOR: _ALL,
    _A.BXOR: _INTEGERS,
    _A.READ:  _ALL,
    _A.WRITE: _ALL,
    _A.CSWAP:    _ALL,
    _A.CSWAP_NE: _ALL,
    _A.CSWAP_LE: _ORDERED,
    _A.CSWAP_LT: _ORDERED,
    _A.CSWAP_GE: _ORDERED,
    _A.CSWAP_GT: _ORDERED,
    _A.MSWAP: _INTEGERS,
    _A.INVAL: _ALL,
}  # fmt: skip
"""Datatypes on which each AMO is legal (ses.md §6.1)."""

_NO_OPERAND = frozenset({_A.READ, _A.INVAL})


def check(opcode: int, datatype: int) -> ReturnCode | None:
    """Return None if the AMO is legal on the datatype, else the return code of the response (ses.md §6.3)."""
    if opcode not in LEGAL:
        return ReturnCode.AMO_UNSUPPORTED_OP
    return None if datatype in LEGAL[_A(opcode)] else ReturnCode.AMO_UNSUPPORTED_DT


# 2 Arithmetic on patterns --------------------------------------------------------------------------------------------


class _Trapped(Exception):  # noqa: N818 - no error of the program
    """A floating-point condition has occurred in an arithmetic with `trap`; `code` says which."""

    def __init__(self, code: ReturnCode) -> None:
        super().__init__(code)
        self.code = code


class _Integer:
    """This class computes in two's complement modulo 2^`bits`; signed and unsigned numbers differ only in their
    order."""

    one = 1

    def __init__(self, bits: int, signed: bool) -> None:
        self.mask = (1 << bits) - 1
        self.flip = 1 << (bits - 1) if signed else 0
        """Mask that inverts the sign bit, so that signed numbers can be compared as unsigned ones."""

    def is_true(self, x: int) -> bool:
        return x != 0

    def equal(self, x: int, y: int) -> bool:
        return x == y

    def less(self, x: int, y: int) -> bool:
        return x ^ self.flip < y ^ self.flip

    def minimum(self, x: int, y: int) -> int:
        return x if x ^ self.flip < y ^ self.flip else y

    def maximum(self, x: int, y: int) -> int:
        return y if x ^ self.flip < y ^ self.flip else x

    def add(self, x: int, y: int) -> int:
        return (x + y) & self.mask

    def subtract(self, x: int, y: int) -> int:
        return (x - y) & self.mask

    def multiply(self, x: int, y: int) -> int:
        return (x * y) & self.mask


class _Float:
    """This class computes in a binary format of IEEE 754, which has sign, exponent, and `fraction` stored bits of the
    significand.

    Every NaN result is quiet, positive and without payload. With `trap`, an operation raises `_Trapped` for the first
    of these conditions that holds: the result is NaN; overflow; underflow (inexact, and below the normal numbers);
    inexact. Comparisons raise nothing.
    """

    def __init__(self, bits: int, fraction: int, trap: bool) -> None:
        self.bits = bits
        self.precision = fraction + 1
        self.sign = 1 << (bits - 1)
        self.normal = 1 << fraction
        """The smallest normal number: this is both its pattern and its value as a multiple of the smallest
        subnormal."""
        self.infinity = self.sign - self.normal
        self.nan = self.infinity | self.normal >> 1
        self.one = (self.infinity >> 1) & -self.normal
        bias = self.one >> fraction
        self.scale = bias - 1 + fraction
        """The smallest subnormal is 2^-scale."""
        self.trap = trap

    def is_nan(self, x: int) -> bool:
        return x & ~self.sign > self.infinity

    def is_true(self, x: int) -> bool:
        return x & ~self.sign != 0

    def equal(self, x: int, y: int) -> bool:
        return not self.is_nan(x) and (x == y or not self.is_true(x | y))

    def less(self, x: int, y: int) -> bool:
        if self.is_nan(x) or self.is_nan(y):
            return False
        return self._rank(x) < self._rank(y) and self.is_true(x | y)

    def minimum(self, x: int, y: int) -> int:
        if self.is_nan(x) or self.is_nan(y):
            return self._number_of(x, y)
        return x if self._rank(x) < self._rank(y) else y

    def maximum(self, x: int, y: int) -> int:
        if self.is_nan(x) or self.is_nan(y):
            return self._number_of(x, y)
        return y if self._rank(x) < self._rank(y) else x

    def add(self, x: int, y: int) -> int:
        if x & self.infinity == self.infinity or y & self.infinity == self.infinity:
            return self._add_special(x, y)
        total = self._exact(x) + self._exact(y)
        if total == 0:
            return x & y & self.sign  # −0 only from (−0) + (−0)
        return self._rounded(self.sign if total < 0 else 0, abs(total), 0)

    def subtract(self, x: int, y: int) -> int:
        return self.add(x, y ^ self.sign)

    def multiply(self, x: int, y: int) -> int:
        sign = (x ^ y) & self.sign
        if x & self.infinity == self.infinity or y & self.infinity == self.infinity:
            if self.is_nan(x) or self.is_nan(y) or not (self.is_true(x) and self.is_true(y)):
                return self._not_a_number()
            return sign | self.infinity
        return self._rounded(sign, abs(self._exact(x) * self._exact(y)), self.scale)

    def _add_special(self, x: int, y: int) -> int:
        """Return x + y where one of them is infinite or NaN."""
        if self.is_nan(x) or self.is_nan(y) or x ^ y == self.sign:
            return self._not_a_number()
        return x if x & self.infinity == self.infinity else y

    def _number_of(self, x: int, y: int) -> int:
        """Return the operand that is a number, if one of them is NaN; NaN if both are (ses.md §6.3)."""
        if not self.is_nan(x):
            return x
        return self._not_a_number() if self.is_nan(y) else y

    def _rank(self, x: int) -> int:
        """Return an integer that has the order of the numbers, with −0 below +0."""
        return ~(x ^ self.sign) if x & self.sign else x

    def _exact(self, x: int) -> int:
        """Return the value of a finite number as a multiple of the smallest subnormal."""
        magnitude = x & ~self.sign
        exponent = magnitude // self.normal
        if exponent:
            magnitude = (magnitude % self.normal + self.normal) << (exponent - 1)
        return -magnitude if x & self.sign else magnitude

    def _rounded(self, sign: int, value: int, scale: int) -> int:
        """Return the number nearest to `value` · 2^-`scale` times the smallest subnormal, ties to even, or infinity."""
        dropped = max(value.bit_length() - self.precision, scale)
        kept, rest = value >> dropped, value & ((1 << dropped) - 1)
        if rest:
            half = 1 << (dropped - 1)
            kept += rest > half or (rest == half and kept & 1)
        # The leading bit of `kept`, and a carry, increment the exponent field.
        magnitude = (dropped - scale) * self.normal + kept
        if magnitude >= self.infinity:
            self._signal(ReturnCode.AMO_FP_OVERFLOW)
            return sign | self.infinity
        if rest:
            tiny = magnitude < self.normal
            self._signal(ReturnCode.AMO_FP_UNDERFLOW if tiny else ReturnCode.AMO_FP_INEXACT)
        return sign | magnitude

    def _not_a_number(self) -> int:
        self._signal(ReturnCode.AMO_FP_NAN)
        return self.nan

    def _signal(self, code: ReturnCode) -> None:
        if self.trap:
            raise _Trapped(code)


class _Complex:
    """This class computes with complex numbers by operations on their parts, each rounded; infinity has no special
    rules."""

    def __init__(self, part: _Float) -> None:
        self.part = part
        self.one = part.one << part.bits

    def is_true(self, x: int) -> bool:
        real, imaginary = self._parts(x)
        return self.part.is_true(real) or self.part.is_true(imaginary)

    def equal(self, x: int, y: int) -> bool:
        (a, b), (c, d) = self._parts(x), self._parts(y)
        return self.part.equal(a, c) and self.part.equal(b, d)

    def add(self, x: int, y: int) -> int:
        (a, b), (c, d) = self._parts(x), self._parts(y)
        return self._joined(self.part.add(a, c), self.part.add(b, d))

    def subtract(self, x: int, y: int) -> int:
        (a, b), (c, d) = self._parts(x), self._parts(y)
        return self._joined(self.part.subtract(a, c), self.part.subtract(b, d))

    def multiply(self, x: int, y: int) -> int:
        (a, b), (c, d), f = self._parts(x), self._parts(y), self.part
        real = f.subtract(f.multiply(a, c), f.multiply(b, d))
        return self._joined(real, f.add(f.multiply(a, d), f.multiply(b, c)))

    def _parts(self, x: int) -> tuple[int, int]:
        return x >> self.part.bits, x & ((1 << self.part.bits) - 1)

    def _joined(self, real: int, imaginary: int) -> int:
        return real << self.part.bits | imaginary


_Arithmetic = _Integer | _Float | _Complex


def _arithmetic(trap: bool) -> dict[AtomicDatatype, _Arithmetic]:
    integers = {t: _Integer(8 * ELEMENT_SIZE[t], signed=t.name.startswith("INT")) for t in _INTEGERS}
    single, double = _Float(32, 23, trap), _Float(64, 52, trap)
    floats = {_T.FP16: _Float(16, 10, trap), _T.BF16: _Float(16, 7, trap), _T.FLOAT: single, _T.DOUBLE: double}
    return {**integers, **floats, _T.FLOAT_COMPLEX: _Complex(single), _T.DOUBLE_COMPLEX: _Complex(double)}


_BY_TRAP = {trap: _arithmetic(trap) for trap in (False, True)}

# `a` is the arithmetic of the datatype (Any: complex numbers have no order, and LEGAL keeps them away from it),
# m the value in memory, o the operand, c the compare value.

_UPDATES: dict[AtomicOpcode, Callable[[Any, int, int], int]] = {
    _A.MIN:   lambda a, m, o: a.minimum(m, o),
    _A.MAX:   lambda a, m, o: a.maximum(m, o),
    _A.SUM:   lambda a, m, o: a.add(m, o),
    _A.DIFF:  lambda a, m, o: a.subtract(m, o),
    _A.PROD:  lambda a, m, o: a.multiply(m, o),
    _A.LOR:   lambda a, m, o: a.one if a.is_true(m) or a.is_true(o) else 0,
    _A.LAND:  lambda a, m, o: a.one if a.is_true(m) and a.is_true(o) else 0,
    _A.BOR:   lambda a, m, o: m | o,
    _A.BAND:  lambda a, m, o: m & o,
    _A.LXOR:  lambda a, m, o: a.one if a.is_true(m) != a.is_true(o) else 0,
    _A.BXOR:  lambda a, m, o: m ^ o,
    _A.WRITE: lambda a, m, o: o,
}  # fmt: skip

_COMPARES: dict[AtomicOpcode, Callable[[Any, int, int], bool]] = {
    _A.CSWAP:    lambda a, c, m: a.equal(c, m),
    _A.CSWAP_NE: lambda a, c, m: not a.equal(c, m),
    _A.CSWAP_LE: lambda a, c, m: a.less(c, m) or a.equal(c, m),
    _A.CSWAP_LT: lambda a, c, m: a.less(c, m),
    _A.CSWAP_GE: lambda a, c, m: a.less(m, c) or a.equal(c, m),
    _A.CSWAP_GT: lambda a, c, m: a.less(m, c),
}  # fmt: skip


# 3 Operations on bytes -----------------------------------------------------------------------------------------------


class AtomicOutcome(NamedTuple):
    """An AMO has this result."""

    memory: bytes
    """Bytes of the elements after the AMO, in host order."""
    old: bytes
    """Bytes of the elements before the AMO, in wire order."""
    fault: ReturnCode | None
    """Return code AMO_FP_* if `trap` is set and a floating-point condition occurred, else None. With a fault, `memory`
    has the elements before the AMO."""


def execute(
    opcode: int, datatype: int, memory: Buffer, operands: Buffer, compare: Buffer = b"", *,
    byteorder: Literal["little", "big"] = "little", trap: bool = False,
) -> AtomicOutcome:  # fmt: skip
    """Execute an AMO on the elements in `memory`, which have the `byteorder` of the host, and return the result.

    `operands` is in wire order, and has one operand for each element, or none for READ and INVAL. CSWAP* and MSWAP work
    on one element, with the swap value in `operands`, and the compare value or mask in `compare`. With `trap` the AMO
    ends at the first element with a floating-point condition, and no element is changed.

    Raises `RemoteError` with AMO_UNSUPPORTED_OP, _DT or _SIZE for an operation, datatype or size that is not supported,
    and `LocalError` for operands whose size does not match the elements (ses.md §6.3).
    """
    code = check(opcode, datatype)
    if code is not None:
        told = f"{opcode:#04x} on datatype {datatype:#04x} is not supported"
        raise RemoteError(told, code, name="AMO", legal="those of ses.md §6.3", id="unsupported-atomic")
    amo, type_ = _A(opcode), _T(datatype)
    size = ELEMENT_SIZE[type_]
    if len(memory) % size:
        code = ReturnCode.AMO_UNSUPPORTED_SIZE
        raise RemoteError(
            f"{len(memory)} bytes", code, name=type_.name, legal=f"whole elements of {size} bytes", id="wrong-length"
        )
    if byteorder not in ("little", "big"):
        raise LocalError("byteorder", f"{byteorder!r} is not legal", "'little', 'big'", id="unknown-name")
    swaps = amo in COMPARE_AND_SWAPS
    if swaps:
        _check_length("memory", memory, size)
    _check_length("operands", operands, 0 if amo in _NO_OPERAND else len(memory))
    _check_length("compare", compare, size if swaps else 0)

    width = size // 2 if type_ in _COMPLEX else size
    host = bytes(memory)
    old = _reversed(host, width) if byteorder == "little" else host
    arithmetic = _BY_TRAP[trap][type_]
    if amo in _NO_OPERAND:
        return AtomicOutcome(host, old, None)
    if swaps:
        new = _swapped(amo, arithmetic, old, bytes(operands), bytes(compare))
    else:
        update = _UPDATES[amo]
        pairs = zip(_patterns(old, size), _patterns(operands, size), strict=True)
        try:
            new = b"".join([update(arithmetic, m, o).to_bytes(size, "big") for m, o in pairs])
        except _Trapped as trapped:
            return AtomicOutcome(host, old, trapped.code)
    return AtomicOutcome(_reversed(new, width) if byteorder == "little" else new, old, None)


def wire_order(elements: Buffer, datatype: int) -> bytes:
    """Convert elements from little-endian order to wire order, or back, by reversing the bytes of each element.

    The bytes of each component of a complex number are reversed separately.
    """
    type_ = _T(datatype)
    size = ELEMENT_SIZE[type_]
    return _reversed(bytes(elements), size // 2 if type_ in _COMPLEX else size)


def operand_from_128(value: int, datatype: int) -> bytes:
    """Return the operand in a field of the compare-and-swap extension, in wire order (ses.md §6.3).

    The operand is in the low-order bytes of the field, which has 128 bits. Raises `RemoteError` with AMO_UNSUPPORTED_DT
    for a datatype that is unknown or longer than the field.
    """
    size = ELEMENT_SIZE[_T(datatype)] if datatype in ELEMENT_SIZE else None
    if size is None or size > 16:
        code, legal = ReturnCode.AMO_UNSUPPORTED_DT, "a type of at most 16 bytes, in a compare-and-swap extension"
        raise RemoteError(f"{datatype:#04x}", code, name="datatype", legal=legal, id="unsupported-atomic")
    return value.to_bytes(16, "big")[-size:]


def operand_to_128(operand: Buffer, datatype: AtomicDatatype) -> int:
    """Return the field of the compare-and-swap extension that carries an operand, which is given in wire order.

    Raises `LocalError` for a datatype of more than 16 bytes, or an operand whose size is not that of the datatype.
    """
    size = ELEMENT_SIZE[datatype]
    if size > 16:
        raise LocalError(
            "datatype", f"{datatype.name} is not legal", "elements of at most 16 bytes", id="unsupported-atomic"
        )
    _check_length("operand", operand, size)
    return int.from_bytes(operand, "big")


def _swapped(amo: AtomicOpcode, arithmetic: _Arithmetic, old: bytes, swap: bytes, compare: bytes) -> bytes:
    """Return the element after CSWAP* or MSWAP, in wire order."""
    m, s, c = (int.from_bytes(x, "big") for x in (old, swap, compare))
    if amo is _A.MSWAP:
        return ((s & c) | (m & ~c)).to_bytes(len(old), "big")
    return swap if _COMPARES[amo](arithmetic, c, m) else old


def _patterns(wire: Buffer, size: int) -> Iterable[int]:
    """Return the pattern of each element."""
    if size > 8:
        return [high << 64 | low for high, low in iter_unpack(">QQ", wire)]
    return memoryview(wire) if size == 1 else [x for (x,) in iter_unpack({2: ">H", 4: ">I", 8: ">Q"}[size], wire)]


def _reversed(data: bytes, width: int) -> bytes:
    """Reverse each piece of `width` bytes: from host order to wire order, or back."""
    if width == 1:
        return data
    if width == len(data):
        return data[::-1]
    other = bytearray(len(data))
    for i in range(width):
        other[i::width] = data[width - 1 - i :: width]
    return bytes(other)


def _check_length(name: str, data: Buffer, legal: int) -> None:
    if len(data) != legal:
        raise LocalError(name, f"{len(data)} bytes are not legal", legal, id="wrong-length")
