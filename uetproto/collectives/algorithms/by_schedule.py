# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the part of each rank in a collective that runs by a schedule."""

from collections.abc import Callable
from typing import Any

from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.dtypes import Array
from uetproto.collectives.offload import CollectivePart, Ended, OffloadRequest, PartFactory
from uetproto.collectives.runner import Execution, ScratchPool
from uetproto.collectives.transport import RankTransport


def by_schedule(
    request: OffloadRequest, algorithm: str, end_of: Callable[[int], RankTransport], *, pool: ScratchPool | None = None,
    gamma: float = 0, **options: Any,
) -> PartFactory:  # fmt: skip
    """Return a function that makes the part of each rank. Raises `LocalError` if the algorithm has no schedule.

    `end_of` returns the transport of a rank of the network. `pool` and `gamma` are arguments of `Execution`; `options`
    are further arguments of `catalogue.schedule`.
    """
    plan = schedule(
        request.op, algorithm, len(request.ranks), request.count, root=request.root, sizes=request.sizes, **options
    )

    def make(place: int, input_: Array, output: Array, done: Ended) -> CollectivePart:
        return Execution(
            plan, place, end_of(request.ranks[place]), input=input_, output=output, op=request.reduce_op,
            ranks=request.ranks, group=request.group, sequence=request.sequence, pool=pool, gamma=gamma, done=done,
        )  # fmt: skip

    return make
