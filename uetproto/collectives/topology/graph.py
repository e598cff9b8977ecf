# SPDX-License-Identifier: GPL-2.0-only
"""This module has the graph of ranks, switches and cables, with shortest routes and multicast trees (collectives.md
§4.2).

A rank is a GPU with a NIC of its own, and has one cable. Ranks of one node also reach each other within the node,
without packets (`together`). A vertex of the graph is a number: the ranks come first, then the switches. The module
`kinds` builds the usual graphs.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from uetproto.collectives.topology.gpu_matrix import GpuMatrix, generated
from uetproto.errors import LocalError


class TopologyLink(NamedTuple):
    """This record describes one direction of a cable, from the vertex `source` to the vertex `target`."""

    source: int
    target: int


@dataclass(frozen=True)
class Topology:
    """This record holds the ranks 0 … `size` - 1, the switches, and the cables between them."""

    kind: str
    size: int
    switches: tuple[str, ...]
    """Names of the switches. Their vertex numbers are `size`, `size` + 1 and so on."""
    cables: tuple[tuple[int, int], ...]
    """Pairs of vertices that have a cable. Cable c has two directions: link 2c from the first vertex to the second, and
    link 2c + 1 back."""
    gpus_per_node: int = 1
    places: tuple[int, ...] = ()
    """GPU slot of each rank; slots are counted node by node. If no slots are given, ranks take the slots in order."""
    _reach: dict[int, list[int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.places:
            object.__setattr__(self, "places", tuple(range(self.size)))
        ends = [end for cable in self.cables for end in cable if end < self.size]
        if not ends or sorted(ends) != list(range(self.size)):
            raise LocalError(
                "cables", f"{len(ends)} ends at ranks", f"exactly one for each of {self.size} ranks",
                id="wrong-topology"
            )  # fmt: skip
        far = self._far(self.neighbour(0))
        if self.size != 2 and any(far[self.neighbour(rank)] < 0 for rank in range(self.size)):
            raise LocalError("cables", "not all ranks are joined", "a way from each to each", id="wrong-topology")

    # Parts

    @cached_property
    def links(self) -> tuple[TopologyLink, ...]:
        return tuple(link for a, b in self.cables for link in (TopologyLink(a, b), TopologyLink(b, a)))

    @cached_property
    def leaving(self) -> tuple[tuple[int, ...], ...]:
        """Return for each vertex the numbers of the links that leave it."""
        found: list[list[int]] = [[] for _ in range(self.size + len(self.switches))]
        for number, link in enumerate(self.links):
            found[link.source].append(number)
        return tuple(map(tuple, found))

    def name(self, vertex: int) -> str:
        return f"rank{vertex}" if vertex < self.size else self.switches[vertex - self.size]

    def label(self, link: int) -> str:
        """Return the name of the link with number `link`, as in "rank0 > leaf0"."""
        return " > ".join(map(self.name, self.links[link]))

    def up(self, rank: int) -> int:
        """Return the number of the link that leaves a rank. The link `up(rank) ^ 1` leads to the rank."""
        return self.leaving[self._rank(rank)][0]

    def neighbour(self, rank: int) -> int:
        """Return the vertex at the other end of a rank's cable: a switch, or the other rank if two ranks are cabled
        directly."""
        return self.links[self.up(rank)].target

    # Nodes and rails

    @property
    def nodes(self) -> int:
        """Return the number of nodes that have at least one rank."""
        return len({place // self.gpus_per_node for place in self.places})

    def node(self, rank: int) -> int:
        return self.places[self._rank(rank)] // self.gpus_per_node

    def local(self, rank: int) -> int:
        """Return the index of a rank's GPU in its node. This index is also the number of the rank's rail."""
        return self.places[self._rank(rank)] % self.gpus_per_node

    def together(self, a: int, b: int) -> bool:
        """Return whether two ranks are on the same node, so that their messages need no packets."""
        return self.node(a) == self.node(b)

    @cached_property
    def _at(self) -> dict[int, int]:
        return {place: rank for rank, place in enumerate(self.places)}

    def relay(self, source: int, destination: int) -> int:
        """Return the rank that forwards messages from `source` to `destination` (PXN). It is on the node of `source`
        and on the rail of `destination`. The message then stays on this rail.

        It is `source` itself if no relay is needed, or if the node has no such rank.
        """
        if self.together(source, destination):
            return source
        return self._at.get(self.node(source) * self.gpus_per_node + self.local(destination), source)

    def rail_ring(self, rail: int) -> tuple[int, ...]:
        """Return the ring of a rail. It has all ranks, node after node, and begins in each node with GPU `rail`
        (collectives.md §4.2)."""
        gpus = self.gpus_per_node
        if not 0 <= rail < gpus:
            raise LocalError("rail", rail, f"0 … {gpus - 1}", id="out-of-range")
        nodes = sorted({place // gpus for place in self.places})
        slots = (node * gpus + (rail + turn) % gpus for node in nodes for turn in range(gpus))
        return tuple(self._at[slot] for slot in slots if slot in self._at)

    def matrix(self) -> GpuMatrix:
        """Return the GPU matrix of one node. Each GPU has a NIC beside it, and all GPUs are connected by NVLink."""
        return generated(self.gpus_per_node)

    # Routes

    def hops(self, source: int, destination: int) -> int:
        """Return the number of links on a shortest path between two ranks. It is 0 from a rank to itself."""
        if source == destination:
            return 0
        start, end = self.neighbour(source), self.neighbour(destination)
        return 1 if start == destination else self._far(end)[start] + 2

    def next_links(self, vertex: int, destination: int) -> tuple[int, ...]:
        """Return the links by which a packet may leave `vertex` on a shortest path. If there are several, they begin
        paths of equal length (ECMP)."""
        if vertex < self.size:
            return () if vertex == destination else (self.up(vertex),)
        end = self.neighbour(destination)
        return (self.up(destination) ^ 1,) if vertex == end else self.links_towards(vertex, end)

    def links_towards(self, vertex: int, switch: int) -> tuple[int, ...]:
        """Return the links by which a packet may leave the switch `vertex` on a shortest path to `switch`."""
        far, links, size = self._far(switch), self.links, self.size
        nearer = far[vertex] - 1
        return tuple(
            link for link in self.leaving[vertex] if (target := links[link].target) >= size and far[target] == nearer
        )

    def routes(self, source: int, destination: int) -> Iterator[tuple[int, ...]]:
        """Yield all shortest routes between two ranks. A route is the numbers of its links in order."""
        ways: list[tuple[int, tuple[int, ...]]] = [(self._rank(source), ())]
        self._rank(destination)
        while ways:
            vertex, route = ways.pop()
            if vertex == destination:
                yield route
            else:
                steps = reversed(self.next_links(vertex, destination))
                ways += [(self.links[link].target, (*route, link)) for link in steps]

    def tree(self, source: int, targets: Iterable[int] | None = None) -> tuple[int, ...]:
        """Return the links of the multicast tree from a rank to all others (collectives.md §3.10.7, §4.2).

        If several paths are equally short, the number `source` selects one of them. Different sources can therefore use
        different paths. `source` and `targets` may be switches. If `targets` is None, the targets are all ranks.
        """
        parent = {source: -1}
        waiting = deque([source])
        while waiting:
            vertex = waiting.popleft()
            leaving = self.leaving[vertex]
            onward = [link for link in leaving if self.links[link].target >= self.size]
            turn = source % len(onward) if onward else 0
            for link in (*onward[turn:], *onward[:turn], *leaving):
                target = self.links[link].target
                if target not in parent:
                    parent[target] = link
                    waiting.append(target)
        used: set[int] = set()
        for target in range(self.size) if targets is None else targets:
            link = parent[target]
            while link >= 0 and link not in used:
                used.add(link)
                link = parent[self.links[link].source]
        return tuple(sorted(used))

    def _far(self, end: int) -> list[int]:
        """Return the number of links from each vertex to `end`, which is a switch, or a rank that is cabled to another
        rank. It is -1 for all other ranks, as ranks forward nothing."""
        far = self._reach.get(end)
        if far is None:
            far = self._reach[end] = [-1] * (self.size + len(self.switches))
            far[end] = 0
            waiting = deque([end])
            beside = self._switches_beside
            while waiting:
                vertex = waiting.popleft()
                for switch in beside[vertex]:
                    if far[switch] < 0:
                        far[switch] = far[vertex] + 1
                        waiting.append(switch)
        return far

    @cached_property
    def _switches_beside(self) -> tuple[tuple[int, ...], ...]:
        """Return for each vertex the switches at the other ends of its cables."""
        targets = ([self.links[link].target for link in links] for links in self.leaving)
        return tuple(tuple(target for target in found if target >= self.size) for found in targets)

    def _rank(self, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise LocalError("rank", rank, f"0 … {self.size - 1}", id="out-of-range")
        return rank
