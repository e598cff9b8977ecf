# SPDX-License-Identifier: GPL-2.0-only
"""This module has the code that all collectives share. A rank issues a collective together with the fingerprint of the
call: the values that have to be the same on all ranks.

See collectives.md §1.4. A list of tensors becomes one contiguous vector; a list of one tensor is not copied.
"""

from typing import Any

import numpy as np

from uetproto.api.distributed.arguments import check_op, check_root
from uetproto.api.distributed.choice import check_one, choose
from uetproto.api.distributed.groups import Group, member_group
from uetproto.api.distributed.planner import Call
from uetproto.api.distributed.tensors import same_type
from uetproto.api.distributed.work import Work
from uetproto.api.distributed.world import current_state, current_world
from uetproto.collectives.algorithms.schedule import IN_PLACE, REDUCING
from uetproto.collectives.dtypes import Array
from uetproto.collectives.reduce_ops import ReduceOp


def collective(
    name: str, group: Group, async_op: bool, algorithm: str | None, inputs: list[Array], outputs: list[Array], *,
    catalogue: str | None = None, count: int | None = None, root: tuple[str, int | None] | None = None,
    op: ReduceOp | None = None, sizes: tuple[int, ...] | None = None,
    splits: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> Work | None:  # fmt: skip
    """Issue a collective; return its `Work` if `async_op` is True, otherwise None.

    Do nothing and return None if the caller is no member of the group.

    `name` is the operation's name in reports. If the catalogue of algorithms has the operation under another name,
    `catalogue` is that name. `inputs` and `outputs` are lists of tensors; each list counts as one vector. `count` is
    the number of elements of the full vector (by default: the number of elements of all inputs). `root` has the name of
    the root's argument and the root's global rank. `sizes` has the number of elements of each rank's block. `splits`
    has the numbers of elements sent to each rank, and those received from each rank.
    """
    found = member_group(name, group)
    if found is None:
        return None
    world, state, kind = current_world(), current_state(), name if catalogue is None else catalogue
    all_, dtype = [*inputs, *outputs], same_type(inputs, outputs)
    if kind in REDUCING:
        check_op(op, dtype)
    at = None if root is None else check_root(*root, found)
    total = sum(array.size for array in inputs) if count is None else count
    uneven = sizes is not None and len(set(sizes)) > 1
    uneven = uneven or (splits is not None and len(set(splits[0]) | set(splits[1])) > 1)
    chosen = algorithm if algorithm is not None else world.algorithms.get(kind)
    # The fingerprint names only an algorithm that the program chose: the default follows from its other values.
    asked = check_one(kind, chosen, world.network.offload) if chosen is not None else None
    loose = splits is not None or (uneven and kind == "all_gather")
    shown = {
        "op": name,
        "root": at,
        "reduce op": None if op is None else str(op),
        "dtype": dtype.name if all_ else None,
        "sizes": sizes,
        "shape": None if loose or kind in ("scatter", "gather") else _shapes(inputs),
        "block": _shapes(outputs if kind == "scatter" else inputs) if kind in ("scatter", "gather") else None,
        "algorithm": asked,
    }
    world.scheduler.check_free(state, inputs, outputs, wait=not async_op)
    place = found.places[state.number]
    work = Work(world.scheduler, state.number, found, name, found.calls[place])
    found.calls[place] += 1
    work.keeps = tuple(all_)
    in_place = bool(inputs) and inputs is not outputs and len(inputs) == len(outputs) == 1 and inputs[0] is outputs[0]

    # Views stay writable while the program's own arrays are locked.
    sources, targets = [array.view() for array in inputs], [array.view() for array in outputs]

    def prepare() -> tuple[Array, Array]:
        source = _vector(sources, dtype)
        target = source if in_place else _room(targets, dtype)
        if kind not in IN_PLACE and np.may_share_memory(source, target):
            source = source.copy()  # data that arrives must not overwrite data that is not sent yet
        return source, target

    def finish(output: Array) -> None:
        start = 0
        for array in () if _is_vector(targets, dtype) else targets:
            array.reshape(-1)[...] = output[start : start + array.size]
            start += array.size

    call = Call(
        op=kind, dtype=dtype, count=total, prepare=prepare, shown=shown, finish=finish,
        root=None if at is None else found.places[at], reduce_op=op, sizes=sizes if uneven else None,
        algorithm=asked or choose(kind, total * dtype.itemsize, not uneven),
        sends=None if splits is None else splits[0], takes=None if splits is None else splits[1],
    )  # fmt: skip
    # An input that shares memory with an output may change, as the rank's own block of all_gather does.
    read = [not any(np.may_share_memory(array, output) for output in outputs) for array in inputs]
    watched = [*zip(inputs, read, strict=True), *((array, False) for array in outputs)]
    return world.scheduler.issue(
        work, lambda: found.match(work.sequence).join(work, call), wait=not async_op, watched=watched
    )


def _shapes(arrays: list[Array]) -> tuple[tuple[int, ...], ...]:
    return tuple(array.shape for array in arrays)


def _is_vector(arrays: list[Array], dtype: np.dtype[Any]) -> bool:
    """Return whether a list consists of one tensor with the data type of the call, so that no copy is needed."""
    return len(arrays) == 1 and arrays[0].dtype == dtype


def _vector(arrays: list[Array], dtype: np.dtype[Any]) -> Array:
    if _is_vector(arrays, dtype):
        return arrays[0].reshape(-1)
    parts = [array.reshape(-1).astype(dtype, copy=False) for array in arrays]
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _room(arrays: list[Array], dtype: np.dtype[Any]) -> Array:
    """Return one vector for the elements of a list: the list itself if it is one vector."""
    if _is_vector(arrays, dtype):
        return arrays[0].reshape(-1)
    return np.empty(sum(array.size for array in arrays), dtype)
