# SPDX-License-Identifier: GPL-2.0-only
"""This module routes frames between several switches, as their layout says (collectives.md §4.2).

A switch forwards a frame by one of the shortest paths to its destination. A hash of source, destination and entropy
selects one of several shortest paths, so that all frames of a flow take the same path and stay in order. A frame to a
multicast group follows the multicast tree of its source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from uetproto.emulator.network.built import BuiltNetwork
from uetproto.emulator.network.layouts import Layout
from uetproto.impair.queue import OutputQueue


@dataclass(slots=True)
class LayoutRouting:
    """A layout routing belongs to one switch. It selects the other switches to which this switch may send a frame, and
    returns the output queues to them (`switch.Routing`).
    """

    layout: Layout
    vertex: int
    vertices: Mapping[bytes, int]
    trees: "MulticastTrees"
    trunks: dict[int, OutputQueue] = field(default_factory=dict)
    """Output queues to other switches. The key is the number of the link in the layout."""
    _hops: dict[int, Sequence[OutputQueue]] = field(default_factory=dict)

    def next_hops(self, mac: bytes) -> Sequence[OutputQueue]:
        """Return the output queues on the shortest paths to the node with the MAC address `mac`, which is at another
        switch. If no node has this address, return no queue.
        """
        end, layout = self.vertices.get(mac), self.layout
        if end is None:
            return ()
        switch = layout.neighbour(end) if end < layout.size else end
        hops = self._hops.get(switch)
        if hops is None:
            hops = [self.trunks[link] for link in layout.links_towards(self.vertex, switch)]
            self._hops[switch] = hops
        return hops

    def ports(self, group: bytes, source: bytes) -> Mapping[str, OutputQueue]:
        """Return the output queues to other switches that get a copy of a frame from the MAC address `source` to the
        multicast group `group`. The key is the name of the next switch.
        """
        vertex = self.vertices.get(source)
        tree = frozenset[int]() if vertex is None else self.trees.of(group, vertex)
        name, links = self.layout.name, self.layout.links
        return {name(links[link].target): queue for link, queue in self.trunks.items() if link in tree}


@dataclass(slots=True)
class MulticastTrees:
    """This class has the multicast trees of a network. It computes the tree of a rank or switch when that tree is first
    needed.
    """

    layout: Layout
    network: BuiltNetwork
    _trees: dict[tuple[bytes | None, int], frozenset[int]] = field(default_factory=dict)
    _joined: int = 0

    def of(self, group: bytes, vertex: int) -> frozenset[int]:
        """Return the links of the tree from `vertex` to the nodes that joined the group, or to all hosts if no node
        joined it.
        """
        network = self.network
        if self._joined != network.joined:
            self._joined = network.joined
            self._trees.clear()
        members = network.members.get(group)
        key = group if members else None, vertex
        tree = self._trees.get(key)
        if tree is None:
            targets = None if members is None else sorted({network.seats[name].vertex for name in members})
            tree = self._trees[key] = frozenset(self.layout.tree(vertex, targets))
        return tree
