# SPDX-License-Identifier: GPL-2.0-only
"""The model of what memory must hold: bytes of regions, and values of atomics as whole numbers or exact fractions
(ses.md §6)."""

import struct
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode

T, Op = AtomicDatatype, AtomicOpcode
BITS = {
    T.INT8: 8, T.INT16: 16, T.INT32: 32, T.INT64: 64, T.INT128: 128,
    T.UINT8: 8, T.UINT16: 16, T.UINT32: 32, T.UINT64: 64, T.UINT128: 128,
}  # fmt: skip
SIGNED = (T.INT8, T.INT16, T.INT32, T.INT64, T.INT128)
FLOATS = {T.FLOAT: "<f", T.DOUBLE: "<d", T.FP16: "<e"}


def size_of(datatype: AtomicDatatype) -> int:
    """Return the number of bytes of one element."""
    return BITS[datatype] // 8 if datatype in BITS else struct.calcsize(FLOATS[datatype])


def load(data: bytes, datatype: AtomicDatatype) -> Fraction:
    """Return the exact value of an element in host order."""
    if datatype in BITS:
        return Fraction(int.from_bytes(data, "little", signed=datatype in SIGNED))
    return Fraction(struct.unpack(FLOATS[datatype], data)[0])


def store(value: Fraction, datatype: AtomicDatatype) -> bytes:
    """Return an element in host order; an integer is taken modulo 2^n."""
    if datatype in BITS:
        assert value.denominator == 1
        bits = BITS[datatype]
        return (int(value) % (1 << bits)).to_bytes(bits // 8, "little")
    return struct.pack(FLOATS[datatype], float(value))


def _bits(value: Fraction, bits: int) -> int:
    return int(value) % (1 << bits)


def combine(opcode: AtomicOpcode, datatype: AtomicDatatype, m: Fraction, o: Fraction, c: Fraction) -> Fraction:
    """Return the result that the effect column of ses.md §6.1 states: m is the value in memory, o the operand or swap
    value, c the compare value."""
    bits = BITS.get(datatype, 0)
    match opcode:
        case Op.MIN:
            return min(m, o)
        case Op.MAX:
            return max(m, o)
        case Op.SUM:
            return m + o
        case Op.DIFF:
            return m - o
        case Op.PROD:
            return m * o
        case Op.LOR:
            return Fraction(m != 0 or o != 0)
        case Op.LAND:
            return Fraction(m != 0 and o != 0)
        case Op.LXOR:
            return Fraction((m != 0) != (o != 0))
        case Op.BOR:
            return Fraction(_bits(m, bits) | _bits(o, bits))
        case Op.BAND:
            return Fraction(_bits(m, bits) & _bits(o, bits))
        case Op.BXOR:
            return Fraction(_bits(m, bits) ^ _bits(o, bits))
        case Op.READ:
            return m
        case Op.WRITE:
            return o
        case Op.MSWAP:
            mask = _bits(c, bits)
            return Fraction((_bits(o, bits) & mask) | (_bits(m, bits) & ~mask))
    return o if compares(opcode, m, c) else m


def compares(opcode: AtomicOpcode, m: Fraction, c: Fraction) -> bool:
    """Return whether a compare-and-swap stores: compare value OP value in memory."""
    return {
        Op.CSWAP: c == m, Op.CSWAP_NE: c != m, Op.CSWAP_LE: c <= m, Op.CSWAP_LT: c < m, Op.CSWAP_GE: c >= m,
        Op.CSWAP_GT: c > m,
    }[opcode]  # fmt: skip


@dataclass
class RegionModel:
    """The model of a region has its bytes, and which of them an unordered operation is using."""

    data: bytearray
    writing: dict[Any, tuple[int, int]] = field(default_factory=dict)
    """Writes that may be executed at any time from now on: {context: (offset, length)}."""
    reading: dict[Any, tuple[int, int]] = field(default_factory=dict)
    written: list[tuple[int, int, bytes]] = field(default_factory=list)
    """Number, offset and bytes of each operation that wrote."""

    def write(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def may_repeat(self, number: int, offset: int, wanted: bytes, found: bytes) -> bool:
        """Return whether the read `number`, which had to return `wanted`, may have read later: each byte of `found` is
        the right one or one of a later operation."""
        later = [(at, data) for other, at, data in self.written if other > number]
        return len(found) == len(wanted) and all(
            byte == right or any(at <= place < at + len(data) and data[place - at] == byte for at, data in later)
            for place, (byte, right) in enumerate(zip(found, wanted, strict=True), offset)
        )

    def free(self, offset: int, length: int, *, to_write: bool) -> bool:
        """Return whether no racing operation touches these bytes."""
        others = list(self.writing.values()) + (list(self.reading.values()) if to_write else [])
        return all(offset + length <= low or low + size <= offset for low, size in others)

    def done(self, context: Any, repeats: bool = False) -> None:
        """Note the end of an operation. If the network may repeat it, no other may write to its bytes ever after."""
        self.reading.pop(context, None)
        place = self.writing.pop(context, None)
        if repeats and place is not None:
            self.reading[context] = place

    def atomic(
        self, offset: int, opcode: AtomicOpcode, datatype: AtomicDatatype, operands: bytes, compare: bytes = b""
    ) -> bytes:
        """Execute an atomic; return the bytes before it."""
        size = size_of(datatype)
        before = self.read(offset, max(size, len(operands)))
        c = load(compare, datatype) if compare else Fraction(0)
        for at in range(0, len(before), size):
            m = load(before[at : at + size], datatype)
            o = load(operands[at : at + size], datatype) if operands else Fraction(0)
            self.write(offset + at, store(combine(opcode, datatype, m, o, c), datatype))
        return before
