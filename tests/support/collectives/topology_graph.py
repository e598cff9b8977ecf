# SPDX-License-Identifier: GPL-2.0-only
"""This module has small topologies, and counts routes, cuts and bisections of a topology by independent code."""

from collections import deque

from uetproto.collectives.topology.graph import Topology
from uetproto.collectives.topology.kinds import topology

SMALL = {
    "pair": topology("pair", 2),
    "switch": topology("switch", 5),
    "leaf-spine": topology("leaf-spine", 7, hosts_per_leaf=2, leaves=4, spines=3),
    "fat-tree of 2": topology("fat-tree", 8, k=4, levels=2),
    "fat-tree of 3": topology("fat-tree", 16, k=4),
    "rails": topology("rails", 12, gpus_per_node=4, spines=2),
    "strewn": topology("fat-tree", 6, k=4, places=(15, 3, 8, 0, 12, 1)),
}


def route_count(shape: Topology, source: int, destination: int) -> int:
    """Return the number of shortest routes."""
    counts = {source: 1}
    for _ in range(shape.hops(source, destination)):
        ahead: dict[int, int] = {}
        for vertex, count in counts.items():
            for link in shape.next_links(vertex, destination):
                target = shape.links[link].target
                ahead[target] = ahead.get(target, 0) + count
        counts = ahead
    return counts[destination]


def cut(shape: Topology, ranks: frozenset[int]) -> int:
    """Return the fewest cables that separate `ranks` from all others: the maximal flow."""
    others = frozenset(range(shape.size)) - ranks
    taken: set[int] = set()
    flow = 0
    while route := _free_route(shape, ranks, others, taken):
        for link in route:
            if link ^ 1 in taken:
                taken.remove(link ^ 1)  # the two cancel out
            else:
                taken.add(link)
        flow += 1
    return flow


def bisection(shape: Topology) -> int:
    """Return the cables between the lower half of the ranks and the upper half, as they are placed."""
    order = sorted(range(shape.size), key=shape.places.__getitem__)
    return cut(shape, frozenset(order[: shape.size // 2]))


def _free_route(shape: Topology, starts: frozenset[int], ends: frozenset[int], taken: set[int]) -> list[int]:
    """Return the links of a shortest path whose capacity, one each, is not used up; empty: there is none."""
    parent = dict.fromkeys(sorted(starts), -1)
    waiting = deque(parent)
    while waiting:
        vertex = waiting.popleft()
        if vertex in ends:
            route = []
            while (link := parent[vertex]) >= 0:
                route.append(link)
                vertex = shape.links[link].source
            return route
        for link in shape.leaving[vertex]:
            target = shape.links[link].target
            if link not in taken and target not in parent:
                parent[target] = link
                waiting.append(target)
    return []
