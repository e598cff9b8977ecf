# SPDX-License-Identifier: GPL-2.0-only
"""This module says which atomic operations are defined, and for which operands (ses.md §6)."""

from functools import lru_cache

from uetproto.wire.headers.uet_ses import COMPARE_AND_SWAPS, AtomicDatatype, AtomicOpcode

_A, _D = AtomicOpcode, AtomicDatatype
ELEMENT: dict[int, int] = {
    _D.INT8: 1, _D.UINT8: 1, _D.INT16: 2, _D.UINT16: 2, _D.INT32: 4, _D.UINT32: 4, _D.INT64: 8, _D.UINT64: 8,
    _D.INT128: 16, _D.UINT128: 16, _D.FLOAT: 4, _D.DOUBLE: 8, _D.FLOAT_COMPLEX: 8, _D.DOUBLE_COMPLEX: 16,
    _D.BF16: 2, _D.FP16: 2,
}  # fmt: skip
"""Map from a datatype to the size of one element in bytes. LONG_DOUBLE is missing because its size differs between
machines (ses.md §6.2)."""
LARGEST = max(ELEMENT.values())

_FLOATS = frozenset({_D.FLOAT, _D.DOUBLE, _D.LONG_DOUBLE, _D.BF16, _D.FP16})
_COMPLEXES = frozenset({_D.FLOAT_COMPLEX, _D.DOUBLE_COMPLEX, _D.LONG_DOUBLE_COMPLEX})
_OF_INTEGERS = frozenset({_A.BOR, _A.BAND, _A.BXOR, _A.MSWAP})
_OF_ORDER = frozenset({_A.MIN, _A.MAX, _A.CSWAP_LE, _A.CSWAP_LT, _A.CSWAP_GE, _A.CSWAP_GT})


def is_defined(opcode: int, datatype: int) -> bool:
    """Return whether an atomic operation is defined for this datatype."""
    if opcode in _OF_INTEGERS:
        return datatype not in _FLOATS | _COMPLEXES
    return opcode not in _OF_ORDER or datatype not in _COMPLEXES


def is_whole(opcode: int, datatype: int, length: int, fetches: bool) -> bool:
    """Return whether `length` bytes are a whole number of elements, and exactly one element if the operation fetches.
    It is True for operations and datatypes to which this does not apply."""
    size = ELEMENT.get(datatype)
    if size is None or opcode >= _A.INVAL or opcode in COMPARE_AND_SWAPS:  # its payload holds the operands
        return True
    return length % size == 0 and (not fetches or length == size)


def is_aligned(datatype: int, offset: int) -> bool:
    return offset % ELEMENT.get(datatype, 1) == 0


@lru_cache(maxsize=4096)
def is_usual(opcode: int, datatype: int, length: int, fetches: bool, offset: int) -> bool:
    """Return whether an operation is defined and its data are whole aligned elements. `offset` is the address of the
    data modulo `LARGEST`."""
    return is_defined(opcode, datatype) and is_whole(opcode, datatype, length, fetches) and is_aligned(datatype, offset)
