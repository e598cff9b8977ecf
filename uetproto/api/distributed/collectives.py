# SPDX-License-Identifier: GPL-2.0-only
"""This module implements the collectives (collectives.md §1.3): each function checks its arguments and treats its
tensors as one vector."""

from collections.abc import Sequence
from typing import Any

from uetproto.api.distributed.arguments import list_of_root, own_size, split_sizes
from uetproto.api.distributed.call import collective
from uetproto.api.distributed.errors import TimeoutError, refused  # noqa: A004
from uetproto.api.distributed.groups import Group, find_group, get_world_size, member_group, named_rank
from uetproto.api.distributed.tensors import same_size, tensors
from uetproto.api.distributed.tensors import tensor as checked_tensor
from uetproto.api.distributed.work import Timeout, Work, picoseconds
from uetproto.api.distributed.world import current_world
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.transport import SECOND


def broadcast(
    tensor: Any, src: int | None = None, group: Group = None, async_op: bool = False, group_src: int | None = None, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Copy the tensor of the source to the tensors of all ranks. The caller names the source by its global rank `src`
    or its group rank `group_src`."""
    src = named_rank("src", src, group_src, group)
    array = checked_tensor("tensor", tensor, writable=True)
    return collective("broadcast", group, async_op, algorithm, [array], [array], root=("src", src))


def reduce(
    tensor: Any, dst: int | None = None, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False,
    group_dst: int | None = None, *, algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Reduce the tensors of all ranks into the tensor of the destination. The caller names the destination by its
    global rank `dst` or its group rank `group_dst`. The tensors of all other ranks are unspecified afterwards."""
    dst = named_rank("dst", dst, group_dst, group)
    array = checked_tensor("tensor", tensor, writable=True)
    return collective("reduce", group, async_op, algorithm, [array], [array], root=("dst", dst), op=op)


def all_reduce(
    tensor: Any, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Reduce the tensors of all ranks, and store the result in the tensor of every rank, with the same bits on all
    ranks."""
    array = checked_tensor("tensor", tensor, writable=True)
    return collective("all_reduce", group, async_op, algorithm, [array], [array], op=op)


def scatter(
    tensor: Any, scatter_list: Sequence[Any] | None = None, src: int | None = None, group: Group = None,
    async_op: bool = False, group_src: int | None = None, *, algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Copy item i of `scatter_list` of the source to the tensor of group rank i. Only the source passes a list. The
    caller names the source by its global rank `src` or its group rank `group_src`; the default is global rank 0."""
    src = 0 if src is None and group_src is None else named_rank("src", src, group_src, group)
    output = checked_tensor("tensor", tensor, writable=True)
    found = find_group(group)
    inputs = list_of_root("scatter_list", scatter_list, "src", src, found, writable=False)
    same_size("scatter_list", inputs, output.size)
    count = output.size * (found.size() if found else 1)
    return collective("scatter", group, async_op, algorithm, inputs, [output], root=("src", src), count=count)


def gather(
    tensor: Any, gather_list: Sequence[Any] | None = None, dst: int | None = None, group: Group = None,
    async_op: bool = False, group_dst: int | None = None, *, algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Copy the tensor of group rank i to item i of `gather_list` of the destination. Only the destination passes a
    list. The caller names the destination by its global rank `dst` or its group rank `group_dst`; the default is global
    rank 0."""
    dst = 0 if dst is None and group_dst is None else named_rank("dst", dst, group_dst, group)
    source = checked_tensor("tensor", tensor)
    found = find_group(group)
    outputs = list_of_root("gather_list", gather_list, "dst", dst, found, writable=True)
    same_size("gather_list", outputs, source.size)
    count = source.size * (found.size() if found else 1)
    return collective("gather", group, async_op, algorithm, [source], outputs, root=("dst", dst), count=count)


def all_gather(
    tensor_list: Sequence[Any], tensor: Any, group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Copy the tensor of group rank i to item i of `tensor_list` of every rank. The items of a list may have different
    sizes, but item i has the same size on all ranks."""
    source = checked_tensor("tensor", tensor)
    outputs = tensors("tensor_list", tensor_list, max(get_world_size(group), 0) or len(tensor_list), writable=True)
    sizes = own_size("tensor_list", outputs, source, group)
    return collective("all_gather", group, async_op, algorithm, [source], outputs, sizes=sizes, count=sum(sizes))


def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: Group = None, async_op: bool = False, *, algorithm: str | None = None
) -> Work | None:  # fmt: skip
    """Copy the inputs of all ranks into the output of every rank, one behind the other in the order of group ranks."""
    output = checked_tensor("output_tensor", output_tensor, writable=True)
    source = checked_tensor("input_tensor", input_tensor)
    size = get_world_size(group)
    if size > 0 and output.size != size * source.size:
        raise refused(
            "output_tensor", f"{output.size} elements", f"{size} times {source.size}, those of input_tensor",
            id="wrong-length"
        )  # fmt: skip
    return collective(
        "all_gather_into_tensor", group, async_op, algorithm, [source], [output], catalogue="all_gather",
        count=output.size,
    )  # fmt: skip


def reduce_scatter(
    output: Any, input_list: Sequence[Any], op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Reduce the i-th items of `input_list` of all ranks into the output of group rank i."""
    target = checked_tensor("output", output, writable=True)
    inputs = tensors("input_list", input_list, max(get_world_size(group), 0) or len(input_list))
    sizes = own_size("input_list", inputs, target, group)
    return collective(
        "reduce_scatter", group, async_op, algorithm, inputs, [target], op=op, sizes=sizes, count=sum(sizes)
    )


def reduce_scatter_tensor(
    output: Any, input: Any, op: ReduceOp = ReduceOp.SUM, group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Divide the input of every rank into equal blocks, one for each rank, and reduce the i-th blocks of all inputs
    into the output of group rank i."""
    target, source = checked_tensor("output", output, writable=True), checked_tensor("input", input)
    size = get_world_size(group)
    if size > 0 and source.size != size * target.size:
        raise refused(
            "input", f"{source.size} elements", f"{size} times {target.size}, those of output", id="wrong-length"
        )
    return collective(
        "reduce_scatter_tensor", group, async_op, algorithm, [source], [target], op=op, catalogue="reduce_scatter",
        count=source.size,
    )  # fmt: skip


def all_to_all(
    output_tensor_list: Sequence[Any], input_tensor_list: Sequence[Any], group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Exchange items between all ranks of the group: rank i sends item j of its input list to rank j, and rank j stores
    it as item i of its output list."""
    size = max(get_world_size(group), 0) or len(output_tensor_list)
    outputs = tensors("output_tensor_list", output_tensor_list, size, writable=True)
    inputs = tensors("input_tensor_list", input_tensor_list, size)
    splits = tuple(array.size for array in inputs), tuple(array.size for array in outputs)
    return collective("all_to_all", group, async_op, algorithm, inputs, outputs, splits=splits)


def all_to_all_single(
    output: Any, input: Any, output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None, group: Group = None, async_op: bool = False, *,
    algorithm: str | None = None,
) -> Work | None:  # fmt: skip
    """Divide the input along its first dimension into parts, send part j to group rank j, and store the received parts
    in the output, one behind the other. The parts are equal unless split sizes are given; a split size is a number of
    rows, which are indices of the first dimension."""
    target, source = checked_tensor("output", output, writable=True), checked_tensor("input", input)
    sends = split_sizes("input_split_sizes", input_split_sizes, source, group)
    takes = split_sizes("output_split_sizes", output_split_sizes, target, group)
    return collective(
        "all_to_all_single", group, async_op, algorithm, [source], [target], catalogue="all_to_all",
        splits=(sends, takes),
    )  # fmt: skip


def barrier(group: Group = None, async_op: bool = False, *, algorithm: str | None = None) -> Work | None:
    """Wait until all ranks of the group have called `barrier`."""
    return collective("barrier", group, async_op, algorithm, [], [])


def monitored_barrier(group: Group = None, timeout: Timeout | None = None, wait_all_ranks: bool = False) -> None:
    """Wait as `barrier` does, but raise a `TimeoutError` when `timeout` (by default the group's time-out) has passed.
    The error names the first rank that is missing, or all missing ranks if `wait_all_ranks` is True."""
    found = member_group("monitored_barrier", group)
    if found is None:
        return
    limit = found.timeout if timeout is None else picoseconds("timeout", timeout)
    work = collective("monitored_barrier", group, True, None, [], [], catalogue="barrier")
    assert work is not None
    match = found.match(work.sequence) if not work.done else None

    def expire() -> None:
        if work.done or match is None:
            return
        missing = match.absent if wait_all_ranks else match.absent[:1]
        names = ("rank " if len(missing) == 1 else "ranks ") + ", ".join(map(str, missing))
        text = f"{names} did not come in {limit / SECOND:g} s" if missing else "late"
        work.fail(TimeoutError(f"monitored_barrier: {text}", id="timed-out"))

    world = current_world()
    timer = world.network.timers.at(world.now + limit, expire)
    work.then.append(lambda: world.network.timers.cancel(timer))
    world.scheduler.block(work)
