# SPDX-License-Identifier: GPL-2.0-only
"""This module translates each collective to SHARP operations, with their data types and the arrays that take the
results (sharp.md §4.3)."""

from collections.abc import Callable
from sys import byteorder
from typing import Any, NamedTuple, NoReturn

from uetproto.api.distributed.networks.sharp_errors import SharpRefusedError
from uetproto.collectives.dtypes import Array, bytes_of
from uetproto.collectives.offload import OffloadRequest
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.host.work import Aggregate
from uetproto.wire.headers.sharp import DTYPE_SIZES, Coll, Dtype, LibsharpStatus, Op

OPS = {
    "SUM": Op.SUM, "AVG": Op.SUM, "PREMUL_SUM": Op.SUM, "PRODUCT": Op.PROD, "MIN": Op.MIN, "MAX": Op.MAX,
    "BAND": Op.BAND, "BOR": Op.BOR, "BXOR": Op.BXOR,
}  # fmt: skip
"""Maps the name of a `ReduceOp` to the SHARP operation. The ranks themselves divide the sum for AVG, and multiply their
inputs for PREMUL_SUM."""

DTYPES = {
    "uint8": Dtype.UINT8, "int8": Dtype.INT8, "bool": Dtype.UINT8, "uint16": Dtype.UNSIGNED_SHORT,
    "int16": Dtype.SHORT, "uint32": Dtype.UNSIGNED, "int32": Dtype.INT, "uint64": Dtype.UNSIGNED_LONG,
    "int64": Dtype.LONG, "float16": Dtype.FLOAT_SHORT, "bfloat16": Dtype.BFLOAT16, "float32": Dtype.FLOAT,
    "float64": Dtype.DOUBLE,
}  # fmt: skip
"""Maps the name of a NumPy data type to the SHARP data type."""

ALGORITHM = "sharp"
COLLECTIVES = ("all_reduce", "reduce", "broadcast", "barrier", "reduce_scatter", "all_gather")
"""Names of the collectives that SHARP supports. A reduce_scatter is a REDUCE for each block. An all_gather is an
ALLREDUCE with BOR, to which each rank contributes its block at the block's place and zeros elsewhere."""


class SharpOperation(NamedTuple):
    """This record describes an aggregation that one rank submits as part of a collective."""

    coll: Coll
    op: Op = Op.NULL
    dtype: Dtype = Dtype.NULL
    data: Any = b""
    count: int = 0  # type: ignore[assignment]
    root: int | None = None
    into: Array | None = None
    """Array into which the result is written, or None if this rank gets no result."""

    @property
    def itemsize(self) -> int:
        """Return the size of an element in bytes."""
        return DTYPE_SIZES[self.dtype]

    def part(self, start: int, end: int) -> "SharpOperation":
        """Return the same operation on the elements with the numbers `start` to `end` - 1."""
        size = self.itemsize
        data = self.data[start * size : end * size] if len(self.data) else self.data
        into = None if self.into is None else bytes_of(self.into)[start * size : end * size]
        return self._replace(data=data, count=end - start, into=into)

    def work(self, op_id: int, group_id: int) -> Aggregate:
        """Return the operation as a work request for a SHARP host. Elements keep the byte order of this machine, which
        the flag LE (little endian) states."""
        return Aggregate(
            op_id=op_id, group_id=group_id, coll=self.coll, op=self.op, dtype=self.dtype, data=self.data,
            count=self.count, root=self.root, little_endian=byteorder == "little",
        )  # fmt: skip


def check(asked: OffloadRequest, config: SharpConfig) -> None:
    """Raise `SharpRefusedError` with the published status code if SHARP does not support a collective."""
    if asked.op in ("all_reduce", "reduce", "reduce_scatter"):
        op, _ = _type_of(asked)
        if op is Op.PROD and not config.prod:
            _refuse("op", "PRODUCT", ", ".join(name for name, one in OPS.items() if one is not Op.PROD))
    if asked.sizes is not None:
        _refuse("sizes", "blocks of different sizes", "blocks of one size")


def operations(asked: OffloadRequest, place: int, input_: Array, output: Array) -> list[SharpOperation]:
    """Return the operations that the member number `place` of the group submits for a collective. All members submit
    their operations in the same order."""
    return _MAKERS[asked.op](asked, place, input_, output)


def _type_of(asked: OffloadRequest) -> tuple[Op, Dtype]:
    op = OPS.get(asked.reduce_op.name if asked.reduce_op is not None else "SUM")
    dtype = DTYPES.get(asked.dtype.name)
    if op is None:
        _refuse("op", str(asked.reduce_op), ", ".join(OPS))
    if dtype is None:
        _refuse("dtype", asked.dtype.name, ", ".join(DTYPES))
    return op, dtype


def _refuse(name: str, value: str, legal: str) -> NoReturn:
    code = LibsharpStatus.NOT_SUPPORTED
    raise SharpRefusedError(f"{name}: {value}: {code.name} ({code.value}); SHARP does {legal}", code)


def _all_reduce(asked: OffloadRequest, place: int, input_: Array, output: Array) -> list[SharpOperation]:
    op, dtype = _type_of(asked)
    return [SharpOperation(Coll.ALLREDUCE, op, dtype, bytes_of(output).data, output.size, None, output)]


def _reduce(asked: OffloadRequest, place: int, input_: Array, output: Array) -> list[SharpOperation]:
    op, dtype = _type_of(asked)
    into = output if place == asked.root else None
    return [SharpOperation(Coll.REDUCE, op, dtype, bytes_of(output).data, output.size, asked.root, into)]


def _broadcast(asked: OffloadRequest, place: int, input_: Array, output: Array) -> list[SharpOperation]:
    """Return a BCAST with elements of one byte, whatever the data type, because no arithmetic is done."""
    whole, sends = bytes_of(output), place == asked.root
    data, into = (whole.data, None) if sends else (b"", output)
    return [SharpOperation(Coll.BCAST, Op.NULL, Dtype.UINT8, data, whole.size, asked.root, into)]


def _barrier(asked: OffloadRequest, place: int, input_: Array, output: Array) -> list[SharpOperation]:
    return [SharpOperation(Coll.BARRIER)]


def _reduce_scatter(asked: OffloadRequest, place: int, input_: Array, output: Array) -> list[SharpOperation]:
    op, dtype = _type_of(asked)
    blocks = input_.reshape(len(asked.ranks), -1)
    return [
        SharpOperation(
            Coll.REDUCE, op, dtype, bytes_of(block).data, block.size, owner, output if owner == place else None
        )
        for owner, block in enumerate(blocks)
    ]


def _all_gather(asked: OffloadRequest, place: int, input_: Array, output: Array) -> list[SharpOperation]:
    """Return an ALLREDUCE with BOR: each rank contributes its block at its place, and zeros elsewhere."""
    whole = bytes_of(output)
    whole[:] = 0
    block = whole.size // len(asked.ranks)
    whole[place * block : (place + 1) * block] = bytes_of(input_)
    return [SharpOperation(Coll.ALLREDUCE, Op.BOR, Dtype.UINT8, whole.data, whole.size, None, output)]


_MAKERS: dict[str, Callable[[OffloadRequest, int, Array, Array], list[SharpOperation]]] = {
    "all_reduce": _all_reduce, "reduce": _reduce, "broadcast": _broadcast, "barrier": _barrier,
    "reduce_scatter": _reduce_scatter, "all_gather": _all_gather,
}  # fmt: skip
