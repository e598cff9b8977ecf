# SPDX-License-Identifier: GPL-2.0-only
"""This module runs an all_reduce in three stages. The ranks of a node reduce to their leader, the leaders run an
all_reduce, and each leader broadcasts the result in its node.

This is HCOLL of collectives.md §3.8. The stages within nodes are schedules; `among` makes the stage of the leaders,
such as SHARP. If the groups are sockets and not nodes, this is HCOLL's multichannel.
"""

from collections.abc import Callable, Sequence

from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.dtypes import Array
from uetproto.collectives.offload import CollectiveCounters, CollectivePart, Ended, OffloadRequest, PartFactory
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.runner import Execution
from uetproto.collectives.transport import RankTransport
from uetproto.errors import LocalError, UetError

EndOf = Callable[[int], RankTransport]
"""Type of a function that returns the transport of a rank of the network."""


class LeaderPart:
    """This class implements the part of one rank in an all_reduce of three stages. Only the first rank of a node, its
    leader, runs the stage among the leaders."""

    def __init__(
        self, request: OffloadRequest, node: Sequence[int], place: int, end: RankTransport, output: Array,
        among: Callable[[Ended], CollectivePart], done: Ended,
    ) -> None:  # fmt: skip
        """Make the part of the rank `place`. `node` lists the group ranks that share a node with this rank, and this
        rank itself."""
        self.counted = CollectiveCounters()
        self.ended = False
        self._request, self._node, self._own = request, node, node.index(place)
        self._end, self._output, self._among, self._done = end, output, among, done
        self._stage: CollectivePart | None = None
        self._op = request.reduce_op or ReduceOp.SUM

    def start(self) -> None:
        self._op.prepare(self._output, len(self._request.ranks))
        self._go(self._within("reduce", self._reduced))

    def fail(self, error: UetError) -> None:
        if self._stage is not None and not self._stage.ended:
            self._stage.fail(error)
        self._finish(error)

    def _within(self, op: str, then: Callable[[], None]) -> CollectivePart:
        """Return a stage among the ranks of the node."""
        request = self._request
        return Execution(
            schedule(op, "binomial", len(self._node), self._output.size), self._own, self._end, input=self._output,
            output=self._output, op=self._op.folding, ranks=[request.ranks[place] for place in self._node],
            group=request.group, sequence=request.sequence, done=self._after(then),
        )  # fmt: skip

    def _reduced(self) -> None:
        if self._own == 0:
            self._go(self._among(self._after(self._spread)))
        else:
            self._spread()

    def _spread(self) -> None:
        self._go(self._within("broadcast", lambda: self._finish(None)))

    def _go(self, stage: CollectivePart) -> None:
        self._stage = stage
        stage.start()

    def _after(self, then: Callable[[], None]) -> Ended:
        def ended(error: UetError | None) -> None:
            if self._stage is not None:
                self.counted.add(self._stage.counted)
            if error is None and not self.ended:
                then()
            else:
                self._finish(error)

        return ended

    def _finish(self, error: UetError | None) -> None:
        if self.ended:
            return
        self.ended = True
        if error is None:
            self._op.finish(self._output, len(self._request.ranks))
        self._done(error)


def nodes_of(request: OffloadRequest, subgroups: Sequence[str] = ()) -> list[list[int]]:
    """Return the group ranks of each node or, if nodes have several sockets, of each socket. The first rank of such a
    list is its leader.

    `subgroups` are the names in HCOLL_SBGP. If basesmsocket is not one of them, a node has one leader even if it has
    several sockets. If p2p is the only name, every rank is a leader.
    """
    size, nodes = len(request.ranks), request.nodes
    found = spread_over(size, size if nodes is None or tuple(subgroups) == ("p2p",) else nodes)
    if subgroups and "basesmsocket" not in subgroups[-2:]:
        return found
    return [socket for node in found for socket in _sockets(node, request.sockets)]


def spread_over(size: int, nodes: int | Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the ranks of each node. If `nodes` is a number, the ranks are assigned to so many nodes in order."""
    if not isinstance(nodes, int):
        return [list(node) for node in nodes]
    each = -(-size // nodes)
    return [list(range(first, min(first + each, size))) for first in range(0, size, each)]


def _sockets(node: list[int], sockets: int) -> list[list[int]]:
    if len(node) % sockets:
        legal = ", ".join(str(count) for count in range(1, len(node) + 1) if len(node) % count == 0)
        raise LocalError(
            "sockets", f"{sockets} do not share {len(node)} ranks a node evenly; legal are {legal}", id="uneven-split"
        )
    each = len(node) // sockets
    return [node[first : first + each] for first in range(0, len(node), each)]


def by_leaders(
    request: OffloadRequest, nodes: Sequence[Sequence[int]], among: PartFactory, end_of: EndOf
) -> PartFactory:
    """Return a function that makes the part of each rank.

    `among` makes the part of a leader in the middle stage. In this stage the rank of a leader is the number of its
    node.
    """
    node_of = {place: number for number, node in enumerate(nodes) for place in node}

    def make(place: int, input_: Array, output: Array, done: Ended) -> CollectivePart:
        if input_ is not output:
            output[...] = input_
        number = node_of[place]

        def leader(ended: Ended) -> CollectivePart:
            return among(number, output, output, ended)

        return LeaderPart(request, nodes[number], place, end_of(request.ranks[place]), output, leader, done)

    return make
