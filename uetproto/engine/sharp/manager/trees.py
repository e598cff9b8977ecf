# SPDX-License-Identifier: GPL-2.0-only
"""The tree builder makes `n` trees of a fabric, each an LLT with its SAT (sharp.md §4.2).

The same fabric always gives the same trees. Where sharp.md says nothing, this project chose three rules. First, on the
way from a leaf to the root no hop leads to a switch of a lower level, as in up-down routing. Second, the load of an AN
is the number of trees that contain the AN. Third, an AN without a free child index gets no more children. Some roots
therefore span fewer leaves than others, and their score is lower.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from uetproto.errors import LocalError, shown

LEAVES_WEIGHT = 5
"""Weight of a spanned leaf in the score of a root (sharp.md §4.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSwitch:
    """A fabric switch has cables to other switches and to hosts, and may have an AN."""

    guid: int
    ports: Mapping[int, int]
    """Maps port numbers to the GUID of the switch at the other end; several ports may lead to the same switch."""
    hosts: Mapping[int, int]
    """Maps port numbers to the GUID of the host's port at the other end. A host with two rails has two ports."""
    has_an: bool = True
    planes: Mapping[int, int] = field(default_factory=dict)
    """Maps the GUID of a host's port to its plane, 0 by default. A tree reaches the ports of one plane only."""


class TreeChild(NamedTuple):
    """A tree child is a host or an AN below an AN; its child_idx is its index in `TreeNode.children`."""

    guid: int
    is_host: bool


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A tree node is an AN in one tree, with its parent and its children."""

    guid: int
    parent: int | None
    """GUID of the parent; None for the root."""
    children: tuple[TreeChild, ...]
    """Children in the order of child_idx: first the hosts in the order of their ports, then the ANs in the order of
    (port, GUID)."""

    def index_of(self, guid: int) -> int:
        """Return the child_idx of a child."""
        return next(index for index, child in enumerate(self.children) if child.guid == guid)


@dataclass(frozen=True, slots=True)
class AggregationTree:
    """An aggregation tree is the shape that an LLT and its paired SAT have in common."""

    tree_id: int
    """Number of the LLT."""
    sat_id: int
    root: int
    nodes: Mapping[int, TreeNode]
    """Maps GUIDs to ANs; every parent stands before its children."""
    partial: bool
    """Whether the tree does not reach every switch that has hosts."""

    def leaf_of(self, host: int) -> int | None:
        """Return the GUID of the leaf AN to which a host's port belongs; None if the tree does not reach the port."""
        for node in self.nodes.values():
            if TreeChild(host, True) in node.children:
                return node.guid
        return None

    def path(self, guid: int) -> list[int]:
        """Return the ANs on the path from an AN to the root, both included."""
        path = [guid]
        while (parent := self.nodes[path[-1]].parent) is not None:
            path.append(parent)
        return path

    def part_for(self, hosts: Iterable[int]) -> "Subtree | None":
        """Return the ANs that connect these hosts, up to their lowest common AN; None if the tree does not reach a
        host."""
        leaves = [self.leaf_of(host) for host in hosts]
        paths = [self.path(leaf) for leaf in dict.fromkeys(leaves) if leaf is not None]
        if None in leaves or not paths:
            return None
        common = [guid for guid in paths[0] if all(guid in path for path in paths)]
        root = common[0]
        used = {guid for path in paths for guid in path[: path.index(root) + 1]}
        return Subtree(root, tuple(guid for guid in self.nodes if guid in used))


class Subtree(NamedTuple):
    """A subtree is the part of a tree on which a job runs."""

    root: int
    """Lowest common AN of the leaves, which is the job's root."""
    ans: tuple[int, ...]
    """All ANs of the subtree; every parent stands before its children."""


class FabricGraph:
    """A fabric graph holds the switches of a fabric by GUID, and their levels (sharp.md §4.2).

    A switch with hosts has level 1; the level of any other switch is 1 more than the lowest level of its neighbours.
    """

    def __init__(self, switches: Sequence[FabricSwitch]) -> None:
        self.switches = {switch.guid: switch for switch in sorted(switches, key=lambda switch: switch.guid)}
        if len(self.switches) != len(switches):
            raise LocalError("fabric", "every switch has a GUID of its own", id="wrong-topology")
        for switch in switches:
            for neighbour in switch.ports.values():
                if neighbour not in self.switches or switch.guid not in self.switches[neighbour].ports.values():
                    raise LocalError(
                        "fabric",
                        f"switch {switch.guid:#x} has a cable to {neighbour:#x}, which has none to it",
                        "both ends name each other",
                        id="wrong-topology",
                    )
            if switch.ports.keys() & switch.hosts.keys():
                raise LocalError(
                    "fabric", f"switch {switch.guid:#x} has one port for a switch and a host", id="wrong-topology"
                )
        hosts = Counter(host for switch in switches for host in switch.hosts.values())
        if twice := [host for host, times in hosts.items() if times > 1 or host in self.switches]:
            raise LocalError(
                "fabric", f"port of a host {twice[0]:#x} is there twice; every GUID is there once", id="wrong-topology"
            )
        self.hosts = frozenset(hosts)
        self._climbing: dict[int, dict[int, int]] = {}

    @cached_property
    def planes(self) -> list["FabricGraph"]:
        """Return one graph of the fabric for each plane of host ports; the graph has only the host ports of that
        plane."""
        found: dict[int, dict[int, dict[int, int]]] = {}
        for switch in self.switches.values():
            for port, host in switch.hosts.items():
                found.setdefault(switch.planes.get(host, 0), {}).setdefault(switch.guid, {})[port] = host
        if len(found) < 2:
            return [self]
        return [
            FabricGraph([replace(one, hosts=hosts.get(guid, {})) for guid, one in self.switches.items()])
            for _, hosts in sorted(found.items())
        ]  # fmt: skip

    @cached_property
    def levels(self) -> dict[int, int]:
        """Return a map from the GUID of each switch to its level; a switch from which no host can be reached has no
        level."""
        return self._distances([guid for guid, switch in self.switches.items() if switch.hosts], 1)

    def climbing(self, root: int) -> dict[int, int]:
        """Return a map from the GUID of each switch to its number of hops to the root. Paths with a hop to a lower
        level do not count."""
        if root not in self._climbing:
            self._climbing[root] = self._distances([root], 0, self.levels)
        return self._climbing[root]

    def _distances(self, start: list[int], first: int, levels: Mapping[int, int] | None = None) -> dict[int, int]:
        found = dict.fromkeys(start, first)
        queue = deque(start)
        while queue:
            here = queue.popleft()
            for guid in sorted(set(self.switches[here].ports.values())):
                if guid in found or (levels is not None and (guid not in levels or levels[guid] > levels[here])):
                    continue
                found[guid] = found[here] + 1
                queue.append(guid)
        return found


class _TreeShape(NamedTuple):
    """A tree that has no numbers yet."""

    root: int
    parents: Mapping[int, int]
    """Parent of every AN that the root spans, except the root."""
    spanned: int
    """Number of leaf ANs."""


def build_trees(
    fabric: FabricGraph, n: int, radix: int, allowed: Collection[int] | None = None
) -> list[AggregationTree]:
    """Return the trees 0 … n - 1, in which an AN has at most `radix` children. The list is empty if no switch has an
    AN.

    `allowed` has the GUIDs of the ANs that may be roots, on any level; if it is None, the ANs on the highest level may
    be roots.
    """
    if n < 1:
        raise LocalError("n", f"{shown(n)} trees; at least 1", id="out-of-range")
    if radix < 1:
        raise LocalError("radix", f"{shown(radix)}; at least 1", id="out-of-range")
    loads: Counter[int] = Counter()
    turns: Counter[tuple[int, int]] = Counter()
    trees: list[AggregationTree] = []
    planes = [(plane, _roots(plane, radix, allowed)) for plane in fabric.planes]
    for number in range(n):
        plane, roots = planes[number % len(planes)]
        if not roots:
            continue
        leaves = sum(1 for switch in plane.switches.values() if switch.hosts)

        def merit(shape: _TreeShape, leaves: int = leaves) -> tuple[bool, int, int]:
            reused = sum(1 for child, parent in shape.parents.items() if turns[parent, child])
            score = LEAVES_WEIGHT * shape.spanned - loads[shape.root] - reused
            return shape.spanned == leaves, score, -shape.root

        best = max((_grown(plane, root, radix, loads) for root in roots), key=merit)
        loads.update([best.root, *best.parents])
        turns.update((parent, child) for child, parent in best.parents.items())
        nodes = {node.guid: node for node in _nodes(plane, best)}
        trees.append(AggregationTree(number, number + n, best.root, nodes, partial=best.spanned < leaves))
    return trees


def _roots(fabric: FabricGraph, radix: int, allowed: Collection[int] | None) -> list[int]:
    """Return the ANs that may be roots, if they have room for their hosts."""
    levels = {guid: level for guid, level in fabric.levels.items() if fabric.switches[guid].has_an}
    top = max(levels.values(), default=0)
    legal = {guid for guid, level in levels.items() if (level == top if allowed is None else guid in allowed)}
    return [guid for guid in levels if guid in legal and len(fabric.switches[guid].hosts) <= radix]


def _grown(fabric: FabricGraph, root: int, radix: int, loads: Mapping[int, int]) -> _TreeShape:
    """Grow the tree below a root: leaves first, each AN at the least loaded parent that has room (sharp.md §4.2, 3)."""
    switches, below = fabric.switches, fabric.climbing(root)
    children = Counter({guid: len(switch.hosts) for guid, switch in switches.items()})
    parents: dict[int, int] = {}
    leaves = {guid for guid in below if switches[guid].hosts and switches[guid].has_an and children[guid] <= radix}
    waiting = leaves - {root}
    while waiting:
        guid = max(waiting, key=lambda guid: (below[guid], -guid))
        waiting.remove(guid)
        choices = [one for one, _ in _next_ans(fabric, guid, below) if children[one] < radix]
        if choices:
            parent = min(choices, key=lambda one: (loads.get(one, 0), one))
            parents[guid] = parent
            children[parent] += 1
            waiting |= {parent} - {root} - parents.keys()
    # An AN without a parent is left out with everything below it.
    inside = {guid for guid in leaves | parents.keys() if _end(guid, parents) == root}
    return _TreeShape(root, {guid: parent for guid, parent in parents.items() if guid in inside}, len(inside & leaves))


def _next_ans(fabric: FabricGraph, guid: int, below: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yield each first AN on a shortest path from a switch to the root, with the switch before it on the path."""
    for neighbour in sorted(set(fabric.switches[guid].ports.values())):
        if below.get(neighbour) == below[guid] - 1 and fabric.levels[neighbour] >= fabric.levels[guid]:
            if fabric.switches[neighbour].has_an:
                yield neighbour, guid
            else:
                yield from _next_ans(fabric, neighbour, below)


def _end(guid: int, parents: Mapping[int, int]) -> int:
    """Return the last AN on the way up."""
    while guid in parents:
        guid = parents[guid]
    return guid


def _nodes(fabric: FabricGraph, shape: _TreeShape) -> Iterator[TreeNode]:
    """Yield the ANs of a tree from the root down, their children in the order of child_idx (sharp.md §4.2, 4)."""
    below = fabric.climbing(shape.root)
    lower: dict[int, list[tuple[int, int]]] = {}
    for child, parent in shape.parents.items():
        before = {last for one, last in _next_ans(fabric, child, below) if one == parent}
        port = min(port for port, guid in fabric.switches[parent].ports.items() if guid in before)
        lower.setdefault(parent, []).append((port, child))
    queue: deque[tuple[int, int | None]] = deque([(shape.root, None)])
    while queue:
        guid, above = queue.popleft()
        hosts = [TreeChild(host, True) for _, host in sorted(fabric.switches[guid].hosts.items())]
        ans = [TreeChild(child, False) for _, child in sorted(lower.get(guid, ()))]
        yield TreeNode(guid, above, (*hosts, *ans))
        queue.extend((child.guid, guid) for child in ans)
