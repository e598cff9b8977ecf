# SPDX-License-Identifier: GPL-2.0-only
"""This module checks arguments of collectives: the list that only the root passes, block sizes, splits and roots
(collectives.md §1.3)."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from uetproto.api.distributed.errors import BackendArgumentError, invalid, refused, wrong_type
from uetproto.api.distributed.groups import Group, get_rank, get_world_size, not_of_group
from uetproto.api.distributed.process_group import ProcessGroup
from uetproto.api.distributed.tensors import tensors
from uetproto.api.distributed.world import current_state
from uetproto.collectives.dtypes import Array
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.errors import LocalError


def list_of_root(
    name: str, values: Any, who: str, root: int | None, found: ProcessGroup | None, writable: bool
) -> list[Array]:
    """Return the tensors of a list that only the root passes. On every other rank, return []. If the caller is no
    member of the group (`found` is None), return [], too.

    Raises `ArgumentError` if the root passes no such list, or another rank passes one.
    """
    if found is None:
        return []
    root = check_root(who, root, found)
    rank = current_state().number
    if rank != root:
        if values is not None and not (isinstance(values, Sequence) and not values):
            raise invalid(
                name, f"a list on rank {rank}", f"None there: only {who}, rank {root}, has one", id="not-with-operation"
            )
        return []
    if values is None:
        raise invalid(name, None, f"a list of {found.size()} tensors on {who}, rank {root}", id="missing-argument")
    return tensors(name, values, found.size(), writable)


def own_size(name: str, arrays: list[Array], own: Array, group: Group) -> tuple[int, ...]:
    """Return the number of elements of each array in the list `arrays`, which has one array for each rank. Raises
    `ArgumentError` if the tensor `own` of this rank has another number of elements than the array of this rank."""
    sizes = tuple(array.size for array in arrays)
    rank = get_rank(group)
    if rank >= 0 and sizes[rank] != own.size:
        raise refused(
            f"{name}[{rank}]", f"{sizes[rank]} elements", f"{own.size}, as the tensor of this rank has",
            id="wrong-length"
        )  # fmt: skip
    return sizes


def split_sizes(name: str, given: Sequence[int] | None, array: Array, group: Group) -> tuple[int, ...]:
    """Return the number of elements of `array` that belong to each rank. `given` has the number of rows (indices of the
    first dimension) for each rank; if it is None or empty, all ranks get equal numbers.

    Raises `ArgumentError` if the rows cannot be split in this way.
    """
    size = get_world_size(group)
    rows = array.shape[0] if array.ndim else 1
    row = array.size // rows if rows else 0
    if given is not None:
        given = _counts(name, given)
    if not given:
        if size > 0 and rows % size:
            raise refused(name, f"none, for {rows} rows", f"splits, or rows divisible by {size}", id="uneven-split")
        return (array.size // max(size, 1),) * max(size, 1)
    if size > 0 and (len(given) != size or sum(given) != rows or min(given) < 0):
        raise refused(name, given, f"{size} numbers, 0 and more, of the sum {rows}", id="uneven-split")
    return tuple(count * row for count in given)


def _counts(name: str, given: Any) -> list[int]:
    """Return a list or an array of whole numbers as a list. Raises `ArgumentError`."""
    found = list(given) if isinstance(given, (Sequence, np.ndarray)) and np.ndim(given) else None
    if found is None or not all(isinstance(count, Integral) for count in found):
        raise wrong_type(name, repr(given), "a list of whole numbers")
    return list(map(int, found))


def check_root(name: str, root: int | None, group: ProcessGroup) -> int:
    """Return the global rank `root`. Raises `ArgumentError` if `root` is None or no rank of the group."""
    if root is None or not group.has(root):
        raise not_of_group(name, root, group)
    return root


def check_op(op: Any, dtype: np.dtype[Any]) -> None:
    """Raise `ArgumentError` if `op` is no `ReduceOp`, or cannot reduce elements of the type `dtype`."""
    if not isinstance(op, ReduceOp):
        raise wrong_type("op", repr(op), "a ReduceOp")
    try:
        op.check(dtype)
    except LocalError as error:
        raise BackendArgumentError(*error.args, id=error.id) from None
