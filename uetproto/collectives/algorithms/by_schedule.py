"""A fallback of an `Offload`: the ranks carry out the collective by a schedule."""

from collections.abc import Callable

from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.dtypes import Array
from uetproto.collectives.offload import CollectivePart, Ended, OffloadRequest, PartFactory
from uetproto.collectives.runner import Execution
from uetproto.collectives.transport import RankTransport


def by_schedule(request: OffloadRequest, algorithm: str, end_of: Callable[[int], RankTransport]) -> PartFactory:
    """Return what makes each rank's part. `end_of`: returns the transport of a rank of the network."""
    plan = schedule(
        request.op, algorithm, len(request.ranks), request.count, root=request.root, sizes=request.sizes
    )  # fmt: skip

    def make(place: int, input_: Array, output: Array, done: Ended) -> CollectivePart:
        return Execution(
            plan, place, end_of(request.ranks[place]), input=input_, output=output, op=request.reduce_op,
            ranks=request.ranks, group=request.group, sequence=request.sequence, done=done,
        )  # fmt: skip

    return make


__all__ = ["by_schedule"]
