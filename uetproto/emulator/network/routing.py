"""This module routes frames between several switches, by a layout (collectives.md §4.2).

A switch forwards a frame by one of the shortest paths to its destination. A hash of source, destination and entropy
chooses among equal paths, so that a flow keeps its path and its order. Frames to groups follow the tree of their
source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from uetproto.emulator.network.built import BuiltNetwork
from uetproto.emulator.network.layouts import Layout
from uetproto.emulator.network.queue import OutputQueue


@dataclass(slots=True)
class LayoutRouting:
    """A layout routing is the `switch.Routing` of one switch: its ports to other switches."""

    layout: Layout
    vertex: int
    vertices: Mapping[bytes, int]
    trees: "MulticastTrees"
    trunks: dict[int, OutputQueue] = field(default_factory=dict)
    """Ports to other switches, by the number of the link."""

    def next_hops(self, mac: bytes) -> Sequence[OutputQueue]:
        """Return the ports on the shortest paths to a node; none for an address that no node has."""
        end, layout = self.vertices.get(mac), self.layout
        if end is None:
            return ()
        onward = layout.next_links if end < layout.size else layout.links_towards
        return [self.trunks[link] for link in onward(self.vertex, end)]

    def ports(self, group: bytes, source: bytes) -> Mapping[str, OutputQueue]:
        """Return the ports by which a frame from `source` to a group leaves, by the name of the next switch."""
        vertex = self.vertices.get(source)
        tree = frozenset[int]() if vertex is None else self.trees.of(group, vertex)
        name, links = self.layout.name, self.layout.links
        return {name(links[link].target): queue for link, queue in self.trunks.items() if link in tree}


@dataclass(slots=True)
class MulticastTrees:
    """This class computes the multicast tree of a rank or a switch when the tree is first needed."""

    layout: Layout
    network: BuiltNetwork
    _trees: dict[tuple[bytes | None, int], frozenset[int]] = field(default_factory=dict)
    _joined: int = 0

    def of(self, group: bytes, vertex: int) -> frozenset[int]:
        """Return the links of the tree from `vertex` to the nodes that joined; to all hosts if no node joined."""
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
