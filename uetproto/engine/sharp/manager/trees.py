"""The tree builder of an aggregation manager (sharp.md §4.2): from a fabric to `n` trees, each LLT with its SAT twin.

Pure: the same fabric gives the same trees. Choices where the page leaves room: a tree only climbs (no hop leads to a
switch of a lower level, as with up-down routing), the load of an AN is the number of trees it is in, and a parent
without a free child index is passed over for the next one, so that a root under which not everything fits spans less
and scores less.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from uetproto.errors import LocalError, shown

LEAVES_WEIGHT = 5
"""What a spanned leaf is worth in the score of a root (§4.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSwitch:
    """A switch, its cables, and whether it can aggregate."""

    guid: int
    ports: Mapping[int, int]
    """Port number → the GUID of the switch at the other end; several may lead to the same one."""
    hosts: Mapping[int, int]
    """Port number → the GUID of the host's port at the other end. A host with two rails has two."""
    has_an: bool = True


class TreeChild(NamedTuple):
    """What is below an AN; its child_idx is its place in `TreeNode.children`."""

    guid: int
    is_host: bool


@dataclass(frozen=True, slots=True)
class TreeNode:
    """An AN of one tree."""

    guid: int
    parent: int | None
    """None: the root."""
    children: tuple[TreeChild, ...]
    """Hosts first, by port; then ANs, by (port, GUID)."""

    def index_of(self, guid: int) -> int:
        """The child_idx of a child."""
        return next(index for index, child in enumerate(self.children) if child.guid == guid)


@dataclass(frozen=True, slots=True)
class AggregationTree:
    """The shape of an LLT and of the SAT that is paired with it."""

    tree_id: int
    """Of the LLT."""
    sat_id: int
    root: int
    nodes: Mapping[int, TreeNode]
    """By GUID, parents before children."""
    partial: bool
    """A leaf switch is not in it."""

    def leaf_of(self, host: int) -> int | None:
        """The AN that the port of a host is at; None: this tree does not reach it."""
        for node in self.nodes.values():
            if TreeChild(host, True) in node.children:
                return node.guid
        return None

    def path(self, guid: int) -> list[int]:
        """The ANs from one to the root, both included."""
        path = [guid]
        while (parent := self.nodes[path[-1]].parent) is not None:
            path.append(parent)
        return path

    def part_for(self, hosts: Iterable[int]) -> "Subtree | None":
        """The ANs that a job of these hosts needs, up to the lowest common one; None: a host is not reached."""
        leaves = [self.leaf_of(host) for host in hosts]
        paths = [self.path(leaf) for leaf in dict.fromkeys(leaves) if leaf is not None]
        if None in leaves or not paths:
            return None
        common = [guid for guid in paths[0] if all(guid in path for path in paths)]
        root = common[0]
        used = {guid for path in paths for guid in path[: path.index(root) + 1]}
        return Subtree(root, tuple(guid for guid in self.nodes if guid in used))


class Subtree(NamedTuple):
    """The part of a tree that a job runs on."""

    root: int
    """The lowest common AN of its leaves: the job's root."""
    ans: tuple[int, ...]
    """All of them, parents before children."""


class FabricGraph:
    """Switches by GUID, and the level of each: 1 with hosts, one more than the lowest neighbour without (§4.2)."""

    def __init__(self, switches: Sequence[FabricSwitch]) -> None:
        self.switches = {switch.guid: switch for switch in sorted(switches, key=lambda switch: switch.guid)}
        if len(self.switches) != len(switches):
            raise LocalError("fabric", "every switch has a GUID of its own")
        for switch in switches:
            for neighbour in switch.ports.values():
                if neighbour not in self.switches or switch.guid not in self.switches[neighbour].ports.values():
                    raise LocalError(
                        "fabric",
                        f"switch {switch.guid:#x} has a cable to {neighbour:#x}, which has none to it",
                        "both ends name each other",
                    )
            if switch.ports.keys() & switch.hosts.keys():
                raise LocalError("fabric", f"switch {switch.guid:#x} has one port for a switch and a host")
        hosts = Counter(host for switch in switches for host in switch.hosts.values())
        if twice := [host for host, times in hosts.items() if times > 1 or host in self.switches]:
            raise LocalError("fabric", f"port of a host {twice[0]:#x} is there twice; every GUID is there once")
        self.hosts = frozenset(hosts)
        self._climbing: dict[int, dict[int, int]] = {}

    @cached_property
    def levels(self) -> dict[int, int]:
        """By GUID; switches that no host can be reached from have none."""
        return self._distances([guid for guid, switch in self.switches.items() if switch.hosts], 1)

    def climbing(self, root: int) -> dict[int, int]:
        """How many hops each switch is below the root, over paths that never descend towards it."""
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
    """A tree without its numbers."""

    root: int
    parents: Mapping[int, int]
    """Of every AN that the root spans, but its own."""
    spanned: int
    """Leaf ANs."""


def build_trees(fabric: FabricGraph, n: int, radix: int) -> list[AggregationTree]:
    """Trees 0 … n - 1 with at most `radix` children an AN; none if no switch aggregates."""
    if n < 1:
        raise LocalError("n", f"{shown(n)} trees; at least 1")
    if radix < 1:
        raise LocalError("radix", f"{shown(radix)}; at least 1")
    levels = {guid: level for guid, level in fabric.levels.items() if fabric.switches[guid].has_an}
    top = max(levels.values(), default=0)
    roots = [guid for guid, level in levels.items() if level == top and len(fabric.switches[guid].hosts) <= radix]
    leaves = sum(1 for switch in fabric.switches.values() if switch.hosts)
    loads: Counter[int] = Counter()
    turns: Counter[tuple[int, int]] = Counter()
    trees: list[AggregationTree] = []
    for number in range(n if roots else 0):

        def merit(shape: _TreeShape) -> tuple[bool, int, int]:
            reused = sum(1 for child, parent in shape.parents.items() if turns[parent, child])
            score = LEAVES_WEIGHT * shape.spanned - loads[shape.root] - reused
            return shape.spanned == leaves, score, -shape.root

        best = max((_grown(fabric, root, radix, loads) for root in roots), key=merit)
        loads.update([best.root, *best.parents])
        turns.update((parent, child) for child, parent in best.parents.items())
        nodes = {node.guid: node for node in _nodes(fabric, best)}
        trees.append(AggregationTree(number, number + n, best.root, nodes, partial=best.spanned < leaves))
    return trees


def _grown(fabric: FabricGraph, root: int, radix: int, loads: Mapping[int, int]) -> _TreeShape:
    """What hangs below a root: leaves first, each AN at the least loaded parent that has room (§4.2, 3)."""
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
    # An AN without a parent takes with it what is below.
    inside = {guid for guid in leaves | parents.keys() if _end(guid, parents) == root}
    return _TreeShape(root, {guid: parent for guid, parent in parents.items() if guid in inside}, len(inside & leaves))


def _next_ans(fabric: FabricGraph, guid: int, below: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """The first ANs on the shortest ways from a switch to the root, and the switch before each."""
    for neighbour in sorted(set(fabric.switches[guid].ports.values())):
        if below.get(neighbour) == below[guid] - 1 and fabric.levels[neighbour] >= fabric.levels[guid]:
            if fabric.switches[neighbour].has_an:
                yield neighbour, guid
            else:
                yield from _next_ans(fabric, neighbour, below)


def _end(guid: int, parents: Mapping[int, int]) -> int:
    """The last one of the way up."""
    while guid in parents:
        guid = parents[guid]
    return guid


def _nodes(fabric: FabricGraph, shape: _TreeShape) -> Iterator[TreeNode]:
    """The ANs of a tree from the root down, their children in the order of child_idx (§4.2, 4)."""
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


__all__ = ["AggregationTree", "FabricGraph", "FabricSwitch", "Subtree", "TreeChild", "TreeNode", "build_trees"]
