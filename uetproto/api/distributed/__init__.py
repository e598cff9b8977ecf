"""torch.distributed over an emulated network: `from uetproto.api import distributed as dist`.

Ranks are ordinary functions of one process, and everything happens in virtual time::

    import numpy as np
    from uetproto.api import distributed as dist

    def program(rank):
        dist.init_process_group()
        x = np.full(4, rank, dtype=np.float32)
        dist.all_reduce(x)
        return x

    print(dist.run(program, ranks=4))

Each rank has a thread, of which exactly one runs at a time; the functions below know their rank by the thread. Names,
arguments and results are those of torch.distributed; tensors are NumPy arrays, or torch tensors in CPU memory. Ranks in
arguments are global ones, whatever the group (collectives.md §1.1). Time-outs are `timedelta` or seconds, of virtual
time.

Misuse is found, not hung (§1.4): the run ends with a `DeadlockError` that says who waits for whom, and on what; with a
`CollectiveMismatchError` that names the rank and the field; with a `SizeMismatchError`, a `BufferModifiedError`.
"""

from uetproto.api.distributed.api import (
    DEFAULT_TIMEOUT,
    NCCL_TIMEOUT,
    AbortedError,
    ArgumentError,
    BufferModifiedError,
    CollectiveMismatchError,
    DeadlockError,
    DistError,
    Event,
    GroupMember,
    ModelNetwork,
    P2POp,
    Path,
    ProcessGroup,
    ReduceOp,
    SizeMismatchError,
    TensorError,
    TimeoutError,  # noqa: A004
    TransportError,
    Wait,
    Work,
    World,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    destroy_process_group,
    gather,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    irecv,
    is_initialized,
    isend,
    monitored_barrier,
    new_group,
    now,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    run,
    scatter,
    send,
    sleep,
    synchronize,
)

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
