"""What a rank asks of a collective, and who carries the collective out: the ranks by a schedule, or the network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from uetproto.api.distributed.networks.hosts import spread_over
from uetproto.collectives.algorithms.catalogue import HIERARCHICAL, schedule
from uetproto.collectives.dtypes import Array
from uetproto.collectives.offload import CollectivePart, Ended, OffloadRequest, PartFactory
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.runner import Execution, ScratchPool
from uetproto.collectives.transport import CollectiveNetwork


@dataclass(slots=True, kw_only=True)
class Call:
    """What one rank asks of a collective."""

    op: str
    """Operation of the catalogue."""
    dtype: np.dtype[Any]
    count: int
    """Elements of the full vector."""
    prepare: Callable[[], tuple[Array, Array]]
    """Returns INPUT and OUTPUT, contiguous, when the collective begins."""
    shown: dict[str, Any]
    """Fingerprint, by name: what has to be the same on all ranks (collectives.md §1.4)."""
    finish: Callable[[Array], None] | None = None
    """Takes OUTPUT at the end."""
    root: int | None = None
    """Group rank."""
    reduce_op: ReduceOp | None = None
    algorithm: str = ""
    sizes: tuple[int, ...] | None = None
    """Elements of each rank's block where they differ."""
    sends: tuple[int, ...] | None = None
    """Elements to each rank, of all_to_all."""
    takes: tuple[int, ...] | None = None
    """Elements from each rank, of all_to_all."""


class PlannedGroup(Protocol):
    """What the planner uses of a group."""

    ranks: tuple[int, ...]
    places: dict[int, int]
    mark: int


class CollectivePlanner:
    """Chooses who carries out each collective of a world."""

    def __init__(
        self,
        network: CollectiveNetwork,
        nodes: int | Sequence[Sequence[int]] | None,
        options: Mapping[str, Any],
        gamma: float,
    ) -> None:
        """`nodes`: how many, or the ranks of each. `options`: of `catalogue.schedule`. `gamma`: picoseconds that a
        reduced byte takes.
        """
        self._network, self._nodes, self._options, self._gamma = network, nodes, options, gamma
        self._pool = ScratchPool()

    def maker(self, group: PlannedGroup, sequence: int, calls: Sequence[Call]) -> PartFactory:
        """Return what makes each rank's part. Raises `LocalError` for what is not legal.

        `calls`: of all ranks of the group, in their order; they agree but for the splits of all_to_all.
        """
        call, offload = calls[0], self._network.offload
        own = offload.algorithms.get(call.op, ()) if offload is not None else ()
        if offload is None or call.algorithm not in own:
            return self._by_schedule(group, sequence, calls)
        return offload.maker(OffloadRequest(
            op=call.op, algorithm=call.algorithm, ranks=group.ranks, group=group.mark, sequence=sequence,
            dtype=call.dtype, count=call.count, root=call.root or 0, reduce_op=call.reduce_op, sizes=call.sizes,
            nodes=self._nodes_of(group), sockets=self._options.get("sockets", 1),
        ))  # fmt: skip

    def _by_schedule(self, group: PlannedGroup, sequence: int, calls: Sequence[Call]) -> PartFactory:
        call = calls[0]
        uneven = len({count for each in calls for count in each.sends or ()}) > 1
        plan = schedule(
            call.op, call.algorithm, len(group.ranks), call.count, root=call.root or 0,
            nodes=self._nodes_of(group) if call.algorithm in HIERARCHICAL else None, sizes=call.sizes,
            splits=[each.sends or () for each in calls] if uneven else None, **self._options,
        )  # fmt: skip

        def make(place: int, input_: Array, output: Array, done: Ended) -> CollectivePart:
            return Execution(
                plan, place, self._network.end(group.ranks[place]), input=input_, output=output, op=call.reduce_op,
                ranks=group.ranks, group=group.mark, sequence=sequence, pool=self._pool, gamma=self._gamma, done=done,
            )  # fmt: skip

        return make

    def _nodes_of(self, group: PlannedGroup) -> int | list[list[int]] | None:
        """Return the nodes of a group, in group ranks."""
        size, nodes = self._network.size, self._nodes
        if nodes is None or (isinstance(nodes, int) and len(group.ranks) == size):
            return nodes
        found = [[group.places[rank] for rank in node if rank in group.places] for node in spread_over(size, nodes)]
        return [node for node in found if node]


__all__ = ["Call", "CollectivePlanner"]
