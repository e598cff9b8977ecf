# SPDX-License-Identifier: GPL-2.0-only
"""This module describes what a rank asks of a collective (`Call`), and decides what runs the collective: the ranks, by
a schedule of messages, or the network itself."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from uetproto.api.distributed.errors import AbortedError
from uetproto.collectives.algorithms.by_schedule import by_schedule
from uetproto.collectives.algorithms.catalogue import HIERARCHICAL
from uetproto.collectives.algorithms.leaders import spread_over
from uetproto.collectives.dtypes import Array
from uetproto.collectives.offload import OffloadRequest, PartFactory
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.runner import ScratchPool
from uetproto.collectives.transport import CollectiveNetwork


@dataclass(slots=True, kw_only=True)
class Call:
    """A call has the arguments with which one rank joins a collective."""

    op: str
    """Name of the operation in the catalogue of algorithms."""
    dtype: np.dtype[Any]
    count: int
    """Number of elements of the full vector."""
    prepare: Callable[[], tuple[Array, Array]]
    """Function that returns two contiguous arrays, the input and the output of the rank. It is called when the
    collective begins."""
    shown: dict[str, Any]
    """Fingerprint of the call: the arguments, by name, that must be equal on all ranks (collectives.md §1.4)."""
    finish: Callable[[Array], None] | None = None
    """Function that is called with the output array when the collective has ended; with None nothing is called."""
    root: int | None = None
    """Group rank of the root; it is None if the operation has no root."""
    reduce_op: ReduceOp | None = None
    algorithm: str = ""
    sizes: tuple[int, ...] | None = None
    """Number of elements of each rank's block; it is None if all blocks have the same size."""
    sends: tuple[int, ...] | None = None
    """Number of elements that this rank sends to each rank in an all_to_all; it is None for other operations."""
    takes: tuple[int, ...] | None = None
    """Number of elements that this rank receives from each rank in an all_to_all; it is None for other operations."""


class GroupWorld(Protocol):
    """This protocol describes a world as its groups see it: it has only the attributes and methods that the code of a
    group needs."""

    planner: "CollectivePlanner"
    network: CollectiveNetwork

    def dead(self, ranks: Iterable[int]) -> AbortedError | None:
        """Return the error for operations that need one of these ranks, or None if none of these ranks has failed."""


class RankGroup(Protocol):
    """This protocol describes a group as its operations and the planner see it: it has only the attributes and methods
    that they need."""

    number: int
    ranks: tuple[int, ...]
    places: dict[int, int]
    mark: int
    timeout: int
    world: GroupWorld

    def left(self, sequence: int) -> None:
        """Note that the collective number `sequence` of the group has ended on all ranks."""


class CollectivePlanner:
    """This class decides for each collective of a world whether the ranks or the network run it."""

    def __init__(
        self,
        network: CollectiveNetwork,
        nodes: int | Sequence[Sequence[int]] | None,
        options: Mapping[str, Any],
        gamma: float,
    ) -> None:
        """Make the planner. `nodes` is the number of nodes, or the ranks of each node. `options` are those of
        `catalogue.schedule`. `gamma` is the number of picoseconds that the reduction of a byte takes."""
        self._network, self._nodes, self._options, self._gamma = network, nodes, options, gamma
        self._pool = ScratchPool()

    def maker(self, group: RankGroup, sequence: int, calls: Sequence[Call]) -> PartFactory:
        """Return a function that makes each rank's part of the collective number `sequence` of a group. Raises
        `LocalError` for illegal arguments.

        `calls` has the calls of all ranks of the group, in the order of group ranks. These calls differ only in the
        splits of an all_to_all.
        """
        call, offload = calls[0], self._network.offload
        request = OffloadRequest(
            op=call.op, algorithm=call.algorithm, ranks=group.ranks, group=group.mark, sequence=sequence,
            dtype=call.dtype, count=call.count, root=call.root or 0, reduce_op=call.reduce_op, sizes=call.sizes,
            nodes=self._nodes_of(group), sockets=self._options.get("sockets", 1),
        )  # fmt: skip
        if offload is not None and call.algorithm in offload.algorithms.get(call.op, ()):
            return offload.maker(request)
        uneven = len({count for each in calls for count in each.sends or ()}) > 1
        return by_schedule(
            request, call.algorithm, self._network.end, pool=self._pool, gamma=self._gamma,
            nodes=request.nodes if call.algorithm in HIERARCHICAL else None,
            splits=[each.sends or () for each in calls] if uneven else None, **self._options,
        )  # fmt: skip

    def _nodes_of(self, group: RankGroup) -> int | list[list[int]] | None:
        size, nodes = self._network.size, self._nodes
        if nodes is None or (isinstance(nodes, int) and len(group.ranks) == size):
            return nodes
        found = [[group.places[rank] for rank in node if rank in group.places] for node in spread_over(size, nodes)]
        return [node for node in found if node]
