"""A collective that was asked of the network, done by the ranks: what an `Offload` falls back to."""

from collections.abc import Callable

from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.dtypes import Array
from uetproto.collectives.offload import Asked, Ended, Make, Part
from uetproto.collectives.runner import Execution
from uetproto.collectives.transport import Transport


def by_schedule(asked: Asked, algorithm: str, end_of: Callable[[int], Transport]) -> Make:
    """`end_of`: the transport of a rank of the network."""
    plan = schedule(
        asked.op, algorithm, len(asked.ranks), asked.count, root=asked.root, sizes=asked.sizes
    )  # fmt: skip

    def make(place: int, input_: Array, output: Array, done: Ended) -> Part:
        return Execution(
            plan, place, end_of(asked.ranks[place]), input=input_, output=output, op=asked.reduce_op,
            ranks=asked.ranks, group=asked.group, sequence=asked.sequence, done=done,
        )  # fmt: skip

    return make


__all__ = ["by_schedule"]
