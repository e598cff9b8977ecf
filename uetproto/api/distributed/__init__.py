# SPDX-License-Identifier: GPL-2.0-only
"""This package provides torch.distributed over an emulated network: `from uetproto.api import distributed as dist`.

All ranks run as functions of one process, in virtual time::

    import numpy as np
    from uetproto.api import distributed as dist

    def program(rank):
        dist.init_process_group()
        x = np.full(4, rank, dtype=np.float32)
        dist.all_reduce(x)
        return x

    print(dist.run(program, ranks=4))

Each rank has a thread, and exactly one thread runs at a time; a function of this package finds the rank of its caller
by the thread. Names, arguments and results are those of torch.distributed. Tensors are NumPy arrays, or torch tensors
in CPU memory. In stream mode, tensors are `dist.Tensor`, whose reads wait for the operations that write them
(collectives.md §1.2). Ranks in arguments are global ranks, whatever the group (collectives.md §1.1). A time-out is a
`timedelta` or a number of seconds, and runs in virtual time.

Misuse ends the run with an error instead of a hang (collectives.md §1.4): a `DeadlockError` that says which rank waits
for which other rank, and why; a `CollectiveMismatchError` that names the rank and the argument; a `SizeMismatchError`;
or a `BufferModifiedError`.
"""

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
    ArgumentTypeError,
    BackendArgumentError,
    BufferModifiedError,
    CollectiveMismatchError,
    DeadlockError,
    DistError,
    SizeMismatchError,
    TensorError,
    TimeoutError,  # noqa: A004
    Wait,
)
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
)
from uetproto.api.distributed.p2p import P2POp, batch_isend_irecv, irecv, isend, recv, send
from uetproto.api.distributed.process_group import ProcessGroup
from uetproto.api.distributed.scheduler import Event
from uetproto.api.distributed.tensor import Tensor
from uetproto.api.distributed.work import Work
from uetproto.api.distributed.world import World, now, run, sleep, synchronize
from uetproto.collectives.model import ModelNetwork, Path
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.transport import NetworkCounts, TransportError

__all__ = [
    "DEFAULT_TIMEOUT", "NCCL_TIMEOUT", "AbortedError", "ArgumentError", "ArgumentTypeError", "BackendArgumentError",
    "BufferModifiedError", "CollectiveMismatchError", "DeadlockError", "DistError", "Event", "GroupMember",
    "ModelNetwork", "NetworkCounts", "P2POp", "Path", "ProcessGroup", "ReduceOp", "SizeMismatchError", "Tensor",
    "TensorError", "TimeoutError", "TransportError", "Wait", "Work", "World", "all_gather", "all_gather_into_tensor",
    "all_reduce", "all_to_all", "all_to_all_single",
    "barrier", "batch_isend_irecv", "broadcast", "destroy_process_group", "gather", "get_global_rank",
    "get_group_rank", "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "irecv",
    "is_initialized", "isend", "monitored_barrier", "new_group", "now", "recv", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "run", "scatter", "send", "sleep", "synchronize",
]  # fmt: skip
