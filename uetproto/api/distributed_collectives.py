"""Collectives (collectives.md §1.3): what each takes, and how its tensors become one vector."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from uetproto.api.distributed_choice import check_one, choose
from uetproto.api.distributed_errors import ArgumentError, TimeoutError, invalid  # noqa: A004
from uetproto.api.distributed_group import ProcessGroup
from uetproto.api.distributed_groups import Group, find_group, get_rank, get_world_size, member_group, seat_here
from uetproto.api.distributed_meeting import Call
from uetproto.api.distributed_tensors import same_size, same_type, tensors
from uetproto.api.distributed_tensors import tensor as checked_tensor
from uetproto.api.distributed_work import SECOND, Timeout, Work, picoseconds
from uetproto.collectives.dtypes import Array
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.schedule import IN_PLACE, REDUCING
from uetproto.errors import LocalError


def broadcast(
    tensor: Any, src: int, group: Group = None, async_op: bool = False, *, algorithm: str | None = None
) -> Work | None:
    """All tensors get what that of `src` has."""
    array = checked_tensor("tensor", tensor, writable=True)
    return _collective("broadcast", group, async_op, algorithm, [array], [array], root=("src", src))


def reduce(
    tensor: Any, dst: int, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """The tensor of `dst` gets the reduction; those of the others are unspecified afterwards."""
    array = checked_tensor("tensor", tensor, writable=True)
    return _collective("reduce", group, async_op, algorithm, [array], [array], root=("dst", dst), op=op)


def all_reduce(
    tensor: Any, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Every tensor gets the reduction of all, the same bits everywhere."""
    array = checked_tensor("tensor", tensor, writable=True)
    return _collective("all_reduce", group, async_op, algorithm, [array], [array], op=op)


def scatter(
    tensor: Any, scatter_list: Sequence[Any] | None = None, src: int = 0, group: Group = None,
    async_op: bool = False, *, algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Each tensor gets its item of the list of `src`; the others have none."""
    output = checked_tensor("tensor", tensor, writable=True)
    found = find_group(group)
    inputs = _list_of_root("scatter_list", scatter_list, "src", src, found, writable=False)
    same_size("scatter_list", inputs, output.size)
    count = output.size * (found.size() if found else 1)
    return _collective("scatter", group, async_op, algorithm, inputs, [output], root=("src", src), count=count)


def gather(
    tensor: Any, gather_list: Sequence[Any] | None = None, dst: int = 0, group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """The list of `dst` gets the tensors of all; the others have none."""
    source = checked_tensor("tensor", tensor)
    found = find_group(group)
    outputs = _list_of_root("gather_list", gather_list, "dst", dst, found, writable=True)
    same_size("gather_list", outputs, source.size)
    count = source.size * (found.size() if found else 1)
    return _collective("gather", group, async_op, algorithm, [source], outputs, root=("dst", dst), count=count)


def all_gather(
    tensor_list: Sequence[Any], tensor: Any, group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Every list gets the tensors of all; sizes may differ if they are the same in all lists."""
    source = checked_tensor("tensor", tensor)
    outputs = tensors("tensor_list", tensor_list, max(get_world_size(group), 0) or len(tensor_list), writable=True)
    sizes = _own_size("tensor_list", outputs, source, group)
    return _collective("all_gather", group, async_op, algorithm, [source], outputs, sizes=sizes, count=sum(sizes))


def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: Group = None, async_op: bool = False, *, algorithm: str | None = None
) -> Work | None:  # fmt: skip
    """The output gets the inputs of all, one behind the other."""
    output, source = (
        checked_tensor("output_tensor", output_tensor, writable=True),
        checked_tensor("input_tensor", input_tensor),
    )
    size = get_world_size(group)
    if size > 0 and output.size != size * source.size:
        raise invalid("output_tensor", f"{output.size} elements", f"{size} times {source.size}, those of input_tensor")
    return _collective(
        "all_gather_into_tensor",
        group,
        async_op,
        algorithm,
        [source],
        [output],
        catalogue="all_gather",
        count=output.size,
    )


def reduce_scatter(
    output: Any, input_list: Sequence[Any], op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Each output gets the reduction of its items of all lists."""
    target = checked_tensor("output", output, writable=True)
    inputs = tensors("input_list", input_list, max(get_world_size(group), 0) or len(input_list))
    sizes = _own_size("input_list", inputs, target, group)
    return _collective(
        "reduce_scatter", group, async_op, algorithm, inputs, [target], op=op, sizes=sizes, count=sum(sizes)
    )


def reduce_scatter_tensor(
    output: Any, input: Any, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Each output gets the reduction of its block of all inputs."""
    target, source = checked_tensor("output", output, writable=True), checked_tensor("input", input)
    size = get_world_size(group)
    if size > 0 and source.size != size * target.size:
        raise invalid("input", f"{source.size} elements", f"{size} times {target.size}, those of output")
    return _collective(
        "reduce_scatter_tensor", group, async_op, algorithm, [source], [target], op=op, catalogue="reduce_scatter",
        count=source.size,
    )  # fmt: skip


def all_to_all(
    output_tensor_list: Sequence[Any], input_tensor_list: Sequence[Any], group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Item j of the inputs goes to rank j, where it is item i of the outputs of the sender's rank i."""
    size = max(get_world_size(group), 0) or len(output_tensor_list)
    outputs = tensors("output_tensor_list", output_tensor_list, size, writable=True)
    inputs = tensors("input_tensor_list", input_tensor_list, size)
    splits = tuple(array.size for array in inputs), tuple(array.size for array in outputs)
    return _collective("all_to_all", group, async_op, algorithm, inputs, outputs, splits=splits)


def all_to_all_single(
    output: Any, input: Any, output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None, group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """As `all_to_all` with the parts of one tensor, split along its first dimension: evenly, or as told."""
    target, source = checked_tensor("output", output, writable=True), checked_tensor("input", input)
    sends = _splits("input_split_sizes", input_split_sizes, source, group)
    takes = _splits("output_split_sizes", output_split_sizes, target, group)
    return _collective(
        "all_to_all_single",
        group,
        async_op,
        algorithm,
        [source],
        [target],
        catalogue="all_to_all",
        splits=(sends, takes),
    )


def barrier(group: Group = None, async_op: bool = False, *, algorithm: str | None = None) -> Work | None:
    """No rank goes on before the last one has come."""
    return _collective("barrier", group, async_op, algorithm, [], [])


def monitored_barrier(group: Group = None, timeout: Timeout | None = None, wait_all_ranks: bool = False) -> None:
    """A barrier that names the rank that does not come in time; all of them with `wait_all_ranks`."""
    found = member_group("monitored_barrier", group)
    if found is None:
        return
    seat = seat_here()
    limit = found.timeout if timeout is None else picoseconds("timeout", timeout)
    work = _collective("monitored_barrier", group, True, None, [], [], catalogue="barrier")
    assert work is not None
    meeting = found.meeting(work.sequence) if not work.done else None

    def late() -> None:
        if work.done or meeting is None:
            return
        missing = meeting.absent if wait_all_ranks else meeting.absent[:1]
        names = ("rank " if len(missing) == 1 else "ranks ") + ", ".join(map(str, missing))
        text = (
            f"monitored_barrier: {names} did not come in {limit / SECOND:g} s" if missing else "monitored_barrier: late"
        )
        work.fail(TimeoutError(text))

    timer = seat.world.timers.at(seat.world.now + limit, late)
    work.then.append(lambda: seat.world.timers.cancel(timer))
    seat.world.block(work)


# What they have in common


def _list_of_root(
    name: str, values: Any, who: str, root: int, found: ProcessGroup | None, writable: bool
) -> list[Array]:
    """The list that only the root has."""
    if found is None:
        return []
    _check_root(who, root, found)
    if seat_here().number != root:
        if values is not None and not (isinstance(values, Sequence) and not values):
            raise invalid(name, f"a list on rank {seat_here().number}", f"None there: only {who}, rank {root}, has one")
        return []
    if values is None:
        raise invalid(name, None, f"a list of {found.size()} tensors on {who}, rank {root}")
    return tensors(name, values, found.size(), writable)


def _own_size(name: str, arrays: list[Array], own: Array, group: Group) -> tuple[int, ...]:
    sizes = tuple(array.size for array in arrays)
    rank = get_rank(group)
    if rank >= 0 and sizes[rank] != own.size:
        raise invalid(f"{name}[{rank}]", f"{sizes[rank]} elements", f"{own.size}, as the tensor of this rank has")
    return sizes


def _splits(name: str, given: Sequence[int] | None, array: Array, group: Group) -> tuple[int, ...]:
    """Elements for each rank."""
    size = get_world_size(group)
    rows = array.shape[0] if array.ndim else 1
    row = array.size // rows if rows else 0
    if given is not None:
        given = _counts(name, given)
    if not given:
        if size > 0 and rows % size:
            raise invalid(name, f"none, for {rows} rows", f"splits, or rows divisible by {size}")
        return (array.size // max(size, 1),) * max(size, 1)
    if size > 0 and (len(given) != size or sum(given) != rows or min(given) < 0):
        raise invalid(name, given, f"{size} numbers, 0 and more, of the sum {rows}")
    return tuple(count * row for count in given)


def _counts(name: str, given: Any) -> list[int]:
    """A list, or an array, of whole numbers."""
    found = list(given) if isinstance(given, (Sequence, np.ndarray)) and np.ndim(given) else None
    if found is None or not all(isinstance(count, Integral) for count in found):
        raise invalid(name, repr(given), "a list of whole numbers")
    return list(map(int, found))


def _collective(
    name: str, group: Group, async_op: bool, algorithm: str | None, inputs: list[Array], outputs: list[Array], *,
    catalogue: str | None = None, count: int | None = None, root: tuple[str, int] | None = None,
    op: ReduceOp | None = None, sizes: tuple[int, ...] | None = None,
    splits: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> Work | None:  # fmt: skip
    """Issues a collective: each list of tensors is one vector."""
    found = member_group(name, group)
    if found is None:
        return None
    seat, kind = seat_here(), name if catalogue is None else catalogue
    all_, dtype = [*inputs, *outputs], same_type(inputs, outputs)
    if kind in REDUCING:
        _check_op(op, dtype)
    if root is not None:
        _check_root(*root, found)
    total = sum(array.size for array in inputs) if count is None else count
    uneven = sizes is not None and len(set(sizes)) > 1
    uneven = uneven or (splits is not None and len(set(splits[0]) | set(splits[1])) > 1)
    chosen = algorithm if algorithm is not None else seat.world.algorithms.get(kind)
    bytes_ = total * dtype.itemsize
    # The fingerprint names the choice only where the program made it: by itself it follows from what is compared.
    asked = check_one(kind, chosen) if chosen is not None else None
    loose = splits is not None or (uneven and kind == "all_gather")
    shown = {
        "op": name,
        "root": None if root is None else root[1],
        "reduce op": None if op is None else str(op),
        "dtype": dtype.name if all_ else None,
        "sizes": sizes,
        "shape": None if loose or kind in ("scatter", "gather") else _shapes(inputs),
        "block": _shapes(outputs if kind == "scatter" else inputs) if kind in ("scatter", "gather") else None,
        "algorithm": asked,
    }
    seat.world.check_free(seat, outputs)
    place = found.places[seat.number]
    work = Work(seat, found, name, found.calls[place])
    found.calls[place] += 1
    work.keeps = tuple(all_)
    in_place = bool(inputs) and inputs is not outputs and len(inputs) == len(outputs) == 1 and inputs[0] is outputs[0]

    # Views of our own: they stay writable while the program's are locked.
    sources, targets = [array.view() for array in inputs], [array.view() for array in outputs]

    def prepare() -> tuple[Array, Array]:
        source = _joined(sources, dtype)
        target = source if in_place else _room(targets, dtype)
        if kind not in IN_PLACE and np.may_share_memory(source, target):
            source = source.copy()  # what arrives must not change what is yet to be sent
        return source, target

    def finish(output: Array) -> None:
        start = 0
        for array in () if _is_vector(targets, dtype) else targets:
            array.reshape(-1)[...] = output[start : start + array.size]
            start += array.size

    call = Call(
        op=kind, dtype=dtype, count=total, prepare=prepare, shown=shown, finish=finish,
        root=None if root is None else found.places[root[1]], reduce_op=op, sizes=sizes if uneven else None,
        algorithm=asked or choose(kind, bytes_, not uneven),
        sends=None if splits is None else splits[0], takes=None if splits is None else splits[1],
    )  # fmt: skip
    # An input that shares memory with an output, as the own block of all_gather may, changes by right.
    read = [not any(np.may_share_memory(array, output) for output in outputs) for array in inputs]
    watched = [*zip(inputs, read, strict=True), *((array, False) for array in outputs)]
    return seat.world.issue(
        work, lambda: found.meeting(work.sequence).join(work, call), wait=not async_op, watched=watched
    )


def _check_root(name: str, root: Any, group: ProcessGroup) -> None:
    if not group.has(root):
        raise invalid(name, repr(root), f"a global rank of the group: {', '.join(map(str, group.ranks))}")


def _check_op(op: Any, dtype: np.dtype[Any]) -> None:
    if not isinstance(op, ReduceOp):
        raise invalid("op", repr(op), "a ReduceOp")
    try:
        op.check(dtype)
    except LocalError as error:
        raise ArgumentError(str(error)) from None


def _shapes(arrays: list[Array]) -> tuple[tuple[int, ...], ...]:
    return tuple(array.shape for array in arrays)


def _is_vector(arrays: list[Array], dtype: np.dtype[Any]) -> bool:
    """One tensor of the type of the call: nothing is copied."""
    return len(arrays) == 1 and arrays[0].dtype == dtype


def _joined(arrays: list[Array], dtype: np.dtype[Any]) -> Array:
    """One vector."""
    if _is_vector(arrays, dtype):
        return arrays[0].reshape(-1)
    parts = [array.reshape(-1).astype(dtype, copy=False) for array in arrays]
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _room(arrays: list[Array], dtype: np.dtype[Any]) -> Array:
    """For one vector."""
    if _is_vector(arrays, dtype):
        return arrays[0].reshape(-1)
    return np.empty(sum(array.size for array in arrays), dtype)
