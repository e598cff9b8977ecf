# SPDX-License-Identifier: GPL-2.0-only
"""The model of an aggregation node among its neighbours: what each member must get of each collective, computed element
by element with the rules of sharp.md §3.5."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import copysign, inf
from random import Random
from typing import Any, TypeAlias

from uetproto.testing.machines.judge import Verdicts
from uetproto.testing.machines.world import hold
from uetproto.wire.headers.sharp import DTYPE_SIZES, Coll, Dtype, Op

Number: TypeAlias = int | float
Element: TypeAlias = tuple[Number, ...]
"""A value, or a value and its tag."""

VALUE, ONCE, EARLY, FAILED, AGREED = (
    "SHARP-VALUE", "SHARP-ENDS-ONCE", "SHARP-EARLY", "SHARP-FAILED", "SHARP-AGREED",
)  # fmt: skip
HANGS, JOINED, LEFT, LEFTOVERS = "SHARP-HANGS", "SHARP-JOINED", "SHARP-LEFT", "SHARP-LEFTOVERS"

FORMATS = {
    Dtype.UNSIGNED: "I", Dtype.INT: "i", Dtype.UNSIGNED_LONG: "Q", Dtype.LONG: "q", Dtype.FLOAT: "f",
    Dtype.DOUBLE: "d", Dtype.UNSIGNED_SHORT: "H", Dtype.SHORT: "h", Dtype.FLOAT_SHORT: "e", Dtype.BFLOAT16: "H",
    Dtype.UINT8: "B", Dtype.INT8: "b",
}  # fmt: skip
"""Format of `struct` of each data type; a bfloat16 is the upper half of an f32."""
FLOATS = (Dtype.FLOAT, Dtype.DOUBLE, Dtype.FLOAT_SHORT, Dtype.BFLOAT16)
LOC = (Op.MINLOC, Op.MAXLOC)
FLOAT_OPS = (Op.SUM, Op.MIN, Op.MAX, Op.PROD, *LOC)
_VALUES: dict[Dtype, tuple[float, ...]] = {
    Dtype.FLOAT: (1e8, 1.0, -1e8, 0.5, -0.0, 0.0, 0.1, 16777216.0, 3.0),
    Dtype.DOUBLE: (1e16, 1.0, -1e16, 0.5, -0.0, 0.0, 0.1, 3.0),
    Dtype.FLOAT_SHORT: (2048.0, 1.0, -2048.0, 0.5, -0.0, 0.0, 0.1, 3.0),
    Dtype.BFLOAT16: (256.0, 1.0, -256.0, 0.5, -0.0, 0.0, 0.1, 3.0),
}
"""Floating-point elements, most of whose sums depend on the order and on the rounding."""
_FACTORS = (1.0, 2.0, 0.5, -1.0, 3.0, 0.1)
"""Floating-point elements of products. No sum or product is infinite or a NaN, whose bits IEEE 754 leaves open."""


@dataclass(frozen=True, slots=True)
class SharedCollective:
    """This record is a collective that all members of a group do."""

    coll: Coll
    op: Op
    dtype: Dtype
    count: int
    root: int
    seed: int
    little_endian: bool

    @property
    def tag_dtype(self) -> Dtype:
        return Dtype.UNSIGNED if self.op in LOC else Dtype.NULL

    def sends(self, member: int) -> bool:
        """Return whether a member has a vector."""
        return self.coll != Coll.BARRIER and (self.coll != Coll.BCAST or member == self.root)

    def gets(self, member: int) -> bool:
        """Return whether a member gets a result."""
        return self.coll != Coll.BARRIER and (self.coll != Coll.REDUCE or member == self.root)

    def vector(self, member: int) -> list[Element]:
        """Return the elements of a member."""
        chance = Random(f"{self.seed}/{member}")
        tags = self.tag_dtype != Dtype.NULL
        return [
            (self._drawn(chance), chance.randrange(4)) if tags else (self._drawn(chance),) for _ in range(self.count)
        ]

    def _drawn(self, chance: Random) -> Number:
        if self.dtype in FLOATS:
            values = _FACTORS if self.op is Op.PROD else _VALUES[self.dtype]
            return rounded(chance.choice(values), self.dtype)
        bits, signed = 8 * DTYPE_SIZES[self.dtype], FORMATS[self.dtype].islower()
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return chance.choice((0, 1, 2, low, high, chance.randint(low, high)))

    def pack(self, elements: Sequence[Element]) -> bytes:
        """Return elements as they are in memory."""
        order, dtype = "<" if self.little_endian else ">", self.dtype
        form = order + FORMATS[dtype] + ("I" if self.tag_dtype != Dtype.NULL else "")
        rows = ((_bf16(row[0]), *row[1:]) for row in elements) if dtype is Dtype.BFLOAT16 else elements
        return b"".join(struct.pack(form, *row) for row in rows)


# Numbers --------------------------------------------------------------------------------------------------------------


def _bf16(value: Number) -> int:
    """Return the 16 bits of a bfloat16, rounded to the nearest, ties to even."""
    bits: int = struct.unpack(">I", struct.pack(">f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def rounded(value: float, dtype: Dtype) -> float:
    """Return a value as a data type has it."""
    if dtype is Dtype.BFLOAT16:
        return float(struct.unpack(">f", struct.pack(">I", _bf16(_f32(value)) << 16))[0])
    if dtype is Dtype.DOUBLE:
        return value
    try:
        return float(struct.unpack(f">{FORMATS[dtype]}", struct.pack(f">{FORMATS[dtype]}", value))[0])
    except OverflowError:
        return copysign(inf, value)


def _f32(value: float) -> float:
    return rounded(value, Dtype.FLOAT)


def folded(op: Op, dtype: Dtype, operands: Sequence[Sequence[Element]], native: bool) -> list[Element]:
    """Return the reduction of vectors in one node, from the first to the last; `native`: the knob `acc_native`."""
    return [_fold(op, dtype, column, native) for column in zip(*operands, strict=True)]


def _fold(op: Op, dtype: Dtype, column: Sequence[Element], native: bool) -> Element:
    if op in (Op.MIN, Op.MINLOC, Op.MAX, Op.MAXLOC):
        smallest = op in (Op.MIN, Op.MINLOC)

        def key(element: Element) -> tuple[Number, ...]:
            value, sign = element[0], copysign(1, element[0])
            return (value, sign, *element[1:]) if smallest else (-value, -sign, *element[1:])

        return min(column, key=key)
    numbers = [element[0] for element in column]
    if dtype in FLOATS:
        step = Dtype.DOUBLE if dtype is Dtype.DOUBLE else Dtype.FLOAT
        result = numbers[0]
        for number in numbers[1:]:
            result = rounded(result + number if op is Op.SUM else result * number, step)
            result = rounded(result, dtype) if native else result
        return (rounded(result, dtype),)
    return (_integer(op, dtype, [int(number) for number in numbers]),)


def _integer(op: Op, dtype: Dtype, numbers: Sequence[int]) -> int:
    if op in (Op.LAND, Op.LOR, Op.LXOR):
        numbers = [int(number != 0) for number in numbers]
    result = numbers[0]
    for number in numbers[1:]:
        match op:
            case Op.SUM:
                result += number
            case Op.PROD:
                result *= number
            case Op.LAND | Op.BAND:
                result &= number
            case Op.LOR | Op.BOR:
                result |= number
            case _:
                result ^= number
    bits = 8 * DTYPE_SIZES[dtype]
    result &= (1 << bits) - 1
    return result - (1 << bits) if FORMATS[dtype].islower() and result >> bits - 1 else result


# Members --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SharpShape:
    """This record says which members are where. The last member is the sibling, if there is a parent."""

    children: int
    """Number of hosts that are children of the implementation."""
    parent: bool
    """Whether the implementation has a parent, which has a host as its other child."""
    last: bool = False
    """Whether the implementation is the last child of the parent; otherwise it is the first."""

    @property
    def members(self) -> int:
        return self.children + self.parent


def total(shape: SharpShape, what: SharedCollective, native: bool) -> list[Element]:
    """Return the result of a collective: the implementation folds its children, then the parent its two children."""
    if what.coll is Coll.BCAST:
        return what.vector(what.root)
    here = folded(what.op, what.dtype, [what.vector(member) for member in range(shape.children)], native)
    if not shape.parent:
        return here
    beside = what.vector(shape.children)
    return folded(what.op, what.dtype, [beside, here] if shape.last else [here, beside], native)


class SharpNodeModel:
    """This class compares what the members of groups are told with what they did."""

    def __init__(self, verdicts: Verdicts, shape: SharpShape, groups: Sequence[int], native: bool) -> None:
        self.verdicts, self.shape, self.native = verdicts, shape, native
        self.groups = groups
        self.programs: dict[int, list[SharedCollective]] = {group: [] for group in groups}
        """What the members of a group do, one collective after another."""
        members = range(shape.members)
        self.states = {(member, group): "joining" for member in members for group in groups}
        self.begun = dict.fromkeys(self.states, 0)
        self.ended: dict[tuple[int, int], set[int]] = {at: set() for at in self.states}
        self.harmed = False
        """Whether a collective or a group may fail from now on."""
        self.wrong: tuple[int, int] | None = None
        """Group and number of the collective in which a member disagrees."""

    def text(self, member: int, group: int, number: int) -> str:
        what = self.programs[group][number]
        return f"{what.coll.name} {number} of group {group} at member {member} ({what.op.name} {what.dtype.name})"

    def on_event(self, told: Mapping[str, Any], may_fail: bool) -> None:
        """Compare an event of a member; `may_fail`: enough was lost for a connection to fail."""
        self.harmed = self.harmed or may_fail
        member, kind = told["member"], told["event"]
        if kind in ("done", "failed"):
            self._ended(member, told)
            return
        at = member, told["group"]
        self.verdicts.judged[JOINED] += 1
        hold(kind != "group_failed" or self.harmed, JOINED,
             f"member {member} is refused in group {told['group']}: {told.get('status')}")  # fmt: skip
        self.states[at] = "failed" if kind == "group_failed" else kind

    def _ended(self, member: int, told: Mapping[str, Any]) -> None:
        number, group = divmod(told["id"], 10)
        at, text = (member, group), self.text(member, group, number)
        self.verdicts.judged[ONCE] += 1
        hold(number not in self.ended[at], ONCE, text)
        self.ended[at].add(number)
        if told["event"] == "failed":
            self.verdicts.judged[FAILED] += 1
            hold(self.harmed, FAILED, f"{text} fails: {told['status']}")
            return
        hold(self.wrong != (group, number), AGREED, f"{text} has a result, although a member disagrees")
        late = [each for each in range(self.shape.members) if self.begun[each, group] <= number]
        self.verdicts.judged[EARLY] += 1
        hold(not late, EARLY, f"{text} ends before members {late} have begun")
        self.verdicts.judged[VALUE] += 1
        self._check_value(member, self.programs[group][number], bytes.fromhex(told["data"]), text)

    def _check_value(self, member: int, what: SharedCollective, seen: bytes, text: str) -> None:
        due = what.pack(total(self.shape, what, self.native)) if what.gets(member) else b""
        if seen == due:
            return
        size = max(1, len(due) // max(1, what.count))
        places = range(0, len(due), size)
        place = next((at // size for at in places if due[at : at + size] != seen[at : at + size]), 0)
        here = slice(place * size, (place + 1) * size)
        hold(False, VALUE, f"{text}: element {place} is {seen[here].hex() or 'missing'}, not {due[here].hex()}")

    # The end

    def is_joined(self) -> bool:
        return "joining" not in self.states.values()

    def check_joined(self) -> None:
        """Check that no member waits for the answer to its GROUP_JOIN_REQ."""
        waiting = [f"member {member} in group {group}" for (member, group), state in self.states.items()
                   if state == "joining"]  # fmt: skip
        hold(not waiting, JOINED, f"{', '.join(waiting)}: no GROUP_JOIN_RESP")

    def is_done(self) -> bool:
        return all(len(self.ended[at]) == number for at, number in self.begun.items())

    def is_left(self) -> bool:
        return all(state == "left" for state in self.states.values())

    def missing(self) -> Iterator[tuple[int, int, int]]:
        """Yield member, group and number of each collective that others have begun."""
        for (member, group), number in self.begun.items():
            if self.states[member, group] == "joined":
                yield from ((member, group, later) for later in range(number, len(self.programs[group])))

    def end(self) -> None:
        """Check that all collectives have ended."""
        for (member, group), number in self.begun.items():
            self.verdicts.judged[HANGS] += 1
            late = sorted({*range(number)} - self.ended[member, group])
            hold(not late, HANGS, late and f"{self.text(member, group, late[0])} never ends")
