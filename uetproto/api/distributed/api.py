"""The functions that a program of the torch.distributed-shaped API calls, and how a world is run."""

from collections.abc import Callable, Iterable
from typing import Any

from uetproto.api.distributed.collectives import (
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from uetproto.api.distributed.errors import (
    AbortedError,
    ArgumentError,
    BufferModifiedError,
    CollectiveMismatchError,
    DeadlockError,
    DistError,
    SizeMismatchError,
    TensorError,
    TimeoutError,  # noqa: A004
    TransportError,
    Wait,
)
from uetproto.api.distributed.group import ProcessGroup
from uetproto.api.distributed.groups import (
    DEFAULT_TIMEOUT,
    NCCL_TIMEOUT,
    GroupMember,
    destroy_process_group,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_initialized,
    new_group,
    seat_here,
)
from uetproto.api.distributed.p2p import P2POp, batch_isend_irecv, irecv, isend, recv, send
from uetproto.api.distributed.work import SECOND, Timeout, Work, picoseconds
from uetproto.api.distributed.world import Event, World
from uetproto.collectives.model import ModelNetwork, Path
from uetproto.collectives.reduce_ops import ReduceOp


def run(program: Callable[..., Any], args: Iterable[Any] = (), *, ranks: int = 2, **world: Any) -> list[Any]:
    """Runs `program(rank, *args)` in every rank of a new `World(ranks, **world)`; returns what they return.

    Raises the first error of a rank. A keyword of `World` may be `transport="uet"`, or `algorithm="ring"`.
    """
    with World(ranks, **world) as made:
        return made.run(program, args)


# Beyond torch


def now() -> float:
    """Virtual time, seconds."""
    seat = seat_here()
    return seat.world.waiting.clock(seat) / SECOND


def sleep(duration: Timeout) -> None:
    """Lets virtual time pass for this rank: what it computes meanwhile."""
    seat = seat_here()
    seat.world.waiting.sleep(picoseconds("duration", duration))


def synchronize() -> None:
    """Waits until all that this rank has queued is done, as `torch.cuda.synchronize` does in stream mode."""
    seat = seat_here()
    seat.world.waiting.synchronize(seat)


__all__ = [
    "DEFAULT_TIMEOUT", "NCCL_TIMEOUT", "AbortedError", "ArgumentError", "BufferModifiedError",
    "CollectiveMismatchError", "DeadlockError", "DistError", "Event", "GroupMember", "ModelNetwork", "P2POp", "Path",
    "ProcessGroup", "ReduceOp", "SizeMismatchError", "TensorError", "TimeoutError", "TransportError", "Wait", "Work",
    "World", "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "barrier",
    "batch_isend_irecv", "broadcast", "destroy_process_group", "gather", "get_global_rank", "get_group_rank",
    "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "irecv", "is_initialized",
    "isend", "monitored_barrier", "new_group", "now", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "run", "scatter", "send", "sleep", "synchronize",
]  # fmt: skip
