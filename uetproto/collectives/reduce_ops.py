# SPDX-License-Identifier: GPL-2.0-only
"""This module has the reduce operations (collectives.md §1.6). Each combines two elements, and may scale elements
before and after.

Integers wrap. MIN and MAX propagate NaN. AVG multiplies floats by 1/N before they are summed; it divides the sum of
integers by N, towards zero. PREMUL_SUM(k) multiplies each element by k before the sum.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from uetproto.collectives.algorithms.schedule import Fold
from uetproto.collectives.dtypes import Array, ElementKind, kind_of
from uetproto.errors import LocalError

_NUMBERS = frozenset({ElementKind.INT, ElementKind.FLOAT})


@dataclass(frozen=True, slots=True)
class ReduceOp:
    """This record is a reduce operation. Its class attributes are the operations of torch.distributed."""

    name: str
    kinds: frozenset[ElementKind]
    element: Callable[..., Any] = field(repr=False, compare=False)
    """NumPy ufunc that combines two elements."""
    factor: float | None = None
    """Factor k of PREMUL_SUM. It is None for other operations."""

    SUM: ClassVar["ReduceOp"]
    PRODUCT: ClassVar["ReduceOp"]
    MIN: ClassVar["ReduceOp"]
    MAX: ClassVar["ReduceOp"]
    BAND: ClassVar["ReduceOp"]
    BOR: ClassVar["ReduceOp"]
    BXOR: ClassVar["ReduceOp"]
    AVG: ClassVar["ReduceOp"]

    @staticmethod
    def PREMUL_SUM(factor: float) -> "ReduceOp":  # noqa: N802 (the name of the field)
        """Return the operation that sums `factor` times each element."""
        return ReduceOp("PREMUL_SUM", frozenset({ElementKind.FLOAT}), np.add, float(factor))

    def check(self, type_: np.dtype[Any]) -> None:
        """Raise `LocalError` if the operation cannot reduce elements of this type."""
        if kind_of(type_) not in self.kinds:
            legal = ", ".join(sorted(kind.value for kind in self.kinds))
            raise LocalError(
                "op", f"{self.name} on {type_.name}; legal for {self.name}: {legal}", id="unsupported-reduction"
            )

    def fold(self, own: Array, incoming: Array, how: Fold) -> None:
        """Combine `incoming` with `own`, and store the result in `own`. `how` says which operand comes first, or that
        `incoming` is only stored."""
        if how is Fold.STORE:
            own[...] = incoming
            return
        first, second = (incoming, own) if how is Fold.INCOMING_FIRST else (own, incoming)
        with np.errstate(all="ignore"):  # overflow is no error
            self.element(first, second, out=own)

    @property
    def folding(self) -> "ReduceOp":
        """Return the operation that combines elements in the same way, without scaling before and after. A stage of a
        larger collective uses it."""
        return ReduceOp.SUM if self.name in ("AVG", "PREMUL_SUM") else self

    def prepares(self, type_: np.dtype[Any]) -> bool:
        """Return whether `prepare` changes elements of this type."""
        return self.factor is not None or (self.name == "AVG" and kind_of(type_) is ElementKind.FLOAT)

    def prepare(self, array: Array, ranks: int) -> None:
        """Multiply a rank's own elements in place before its first message: by 1/N for AVG of floats, by the factor for
        PREMUL_SUM. Other operations leave the elements unchanged."""
        if self.prepares(array.dtype):
            factor = 1 / ranks if self.factor is None else self.factor
            with np.errstate(all="ignore"):
                np.multiply(array, np.array(factor).astype(array.dtype), out=array)

    def finish(self, array: Array, ranks: int) -> None:
        """Divide the elements of the result in place by the number of ranks. Only AVG of integers does so."""
        if self.name == "AVG" and kind_of(array.dtype) is ElementKind.INT:
            # The quotient is rounded towards zero, as in C. N may be more than the type can hold.
            wide = np.uint64 if array.dtype.kind == "u" else np.int64
            sums = array.astype(wide)
            array[...] = ((sums - np.fmod(sums, wide(ranks))) // wide(ranks)).astype(array.dtype)

    def __str__(self) -> str:
        return self.name if self.factor is None else f"{self.name}({self.factor})"


ReduceOp.SUM = ReduceOp("SUM", _NUMBERS | {ElementKind.COMPLEX}, np.add)
ReduceOp.PRODUCT = ReduceOp("PRODUCT", _NUMBERS, np.multiply)
ReduceOp.MIN = ReduceOp("MIN", _NUMBERS, np.minimum)
ReduceOp.MAX = ReduceOp("MAX", _NUMBERS, np.maximum)
ReduceOp.BAND = ReduceOp("BAND", frozenset({ElementKind.INT, ElementKind.BOOL}), np.bitwise_and)
ReduceOp.BOR = ReduceOp("BOR", frozenset({ElementKind.INT, ElementKind.BOOL}), np.bitwise_or)
ReduceOp.BXOR = ReduceOp("BXOR", frozenset({ElementKind.INT, ElementKind.BOOL}), np.bitwise_xor)
ReduceOp.AVG = ReduceOp("AVG", _NUMBERS, np.add)

OPS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG")
"""Names of all operations that need no argument."""
