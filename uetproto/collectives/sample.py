"""Real tensors for a collective, and what NumPy says of the result.

Elements are drawn from a seed. Where a type can hold them, the sums of floats are those of small whole numbers, so that
any order of additions gives the same bits; what rounds all the same may differ by as much as N roundings.
"""

import random
from typing import Any

import numpy as np

from uetproto.collectives.dtypes import Array, Kind, kind_of
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.errors import LocalError

REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter"})
"""Operations that reduce (§1.3)."""

ON_BLOCKS = frozenset({"reduce_scatter", "all_gather", "scatter", "gather", "all_to_all"})
"""Operations on a block a rank."""

_LARGEST = 100
"""Of the whole numbers that are drawn for floats."""

_UFUNCS: dict[str, Any] = {
    "SUM": np.add, "AVG": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum,
    "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor,
}  # fmt: skip


class Sample:
    """The tensors of all ranks of one collective, before and after it; rank 0 is the root.

    `count`: elements of the full vector, as for `catalogue.schedule`.
    """

    def __init__(
        self, op: str, size: int, count: int, dtype: np.dtype[Any], reduce_op: ReduceOp = ReduceOp.SUM, seed: int = 0
    ) -> None:
        """Raises `LocalError` for a type that the reduction does not do, and for blocks that would not be equal."""
        if op in REDUCING:
            reduce_op.check(dtype)
        if op in ON_BLOCKS and count % size:
            item = size * dtype.itemsize
            raise LocalError(
                f"bytes: {count * dtype.itemsize} for {op} over {size} ranks, which takes equal blocks of {dtype.name};"
                f" legal: multiples of {item}"
            )
        self.op = op
        self.size = size
        self.reduce_op = reduce_op
        self.dtype = dtype
        block = count // size
        takes, gives = {
            "all_reduce":     lambda rank: (count, None),
            "reduce":         lambda rank: (count, None),
            "broadcast":      lambda rank: (count, None),
            "reduce_scatter": lambda rank: (count, block),
            "all_gather":     lambda rank: (block, count),
            "scatter":        lambda rank: (0 if rank else count, block),
            "gather":         lambda rank: (block, 0 if rank else count),
            "all_to_all":     lambda rank: (count, count),
            "barrier":        lambda rank: (0, 0),
        }[op], None  # fmt: skip
        del gives
        self.inputs = [self._drawn(takes(rank)[0], seed, rank) for rank in range(size)]
        self.outputs = []
