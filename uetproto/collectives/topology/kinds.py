# SPDX-License-Identifier: GPL-2.0-only
"""This module builds the usual topologies by name: pair, switch, leaf-spine, fat-tree, rails (collectives.md §4.2).

`topology(kind, ranks, **parameters)` makes a topology. Its ports for ranks are numbered slots; ranks take them in
order, or as `places` says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from uetproto.collectives.topology.graph import Topology
from uetproto.errors import LocalError, similar

MOST_CABLES = 1 << 18
"""Largest number of cables between switches. A larger number is taken for a mistake."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """This record holds the switches and cables of a topology without ranks. Switches are numbered from 0."""

    slots: int
    """Number of ranks for which the switches have ports."""
    leaf: Callable[[int], int]
    """Function that returns the number of the switch to which a slot is connected."""
    switches: tuple[str, ...]
    trunks: tuple[tuple[int, int], ...]
    room: str
    """Part of an error text. It says which parameters would make room for more ranks."""


def _switch(ranks: int, gpus_per_node: int) -> _Shape:
    return _Shape(ranks, lambda slot: 0, ("switch",), (), "")


def _leaf_spine(
    ranks: int, gpus_per_node: int, hosts_per_leaf: int = 4, leaves: int | None = None, spines: int | None = None
) -> _Shape:
    """Return leaves and spines. By default there are as many leaves as the ranks need, and as many spines as a leaf has
    hosts."""
    leaves = leaves or -(-ranks // hosts_per_leaf)
    needed = -(-ranks // hosts_per_leaf)
    room = f"leaves {needed} and more, or hosts_per_leaf {-(-ranks // leaves)} and more"
    return _two_levels(hosts_per_leaf * leaves, lambda slot: slot // hosts_per_leaf, leaves,
                       spines or hosts_per_leaf, room)  # fmt: skip


def _fat_tree(ranks: int, gpus_per_node: int, k: int | None = None, levels: int = 3) -> _Shape:
    """Return a fat tree of switches with k ports, by default the least k that has room. It has k²/2 hosts in two
    levels, or k³/4 in three."""
    if levels not in (2, 3):
        raise LocalError("levels", levels, "2, 3", id="out-of-range")
    fitting = next(even for even in range(2, ranks + 3, 2) if _fat_tree_hosts(even, levels) >= ranks)
    k = fitting if k is None else k
    if k % 2:
        raise LocalError("k", f"{k} ports a switch", "an even number", id="out-of-range")
    half, hosts, room = k // 2, _fat_tree_hosts(k, levels), f"k {fitting} and more"
    if levels == 2:
        return _two_levels(hosts, lambda slot: slot // half, k, half, room)
    _check_cables(2 * k * half * half)
    names = [f"pod{pod}.edge{edge}" for pod in range(k) for edge in range(half)]
    names += [f"pod{pod}.agg{agg}" for pod in range(k) for agg in range(half)]
    names += [f"core{core}" for core in range(half * half)]
    aggs, cores = k * half, 2 * k * half
    trunks = [(pod * half + e, aggs + pod * half + a) for pod in range(k) for e in range(half) for a in range(half)]
    trunks += [
        (aggs + pod * half + a, cores + a * half + c) for pod in range(k) for a in range(half) for c in range(half)
    ]
    return _Shape(hosts, lambda slot: slot // half, tuple(names), tuple(trunks), room)


def _fat_tree_hosts(k: int, levels: int) -> int:
    return k * k // 2 if levels == 2 else k**3 // 4


def _rails(ranks: int, gpus_per_node: int, spines: int | None = None) -> _Shape:
    """Return rails: NIC r of every node is connected to leaf r. By default there are as many spines as a leaf has
    NICs."""
    nodes = -(-ranks // gpus_per_node)
    return _two_levels(nodes * gpus_per_node, lambda slot: slot % gpus_per_node, gpus_per_node, spines or nodes, "")


def _two_levels(slots: int, leaf: Callable[[int], int], leaves: int, spines: int, room: str) -> _Shape:
    _check_cables(leaves * spines)
    names = (*(f"leaf{number}" for number in range(leaves)), *(f"spine{number}" for number in range(spines)))
    trunks = tuple((down, leaves + up) for down in range(leaves) for up in range(spines))
    return _Shape(slots, leaf, names, trunks, room)


def _check_cables(cables: int) -> None:
    if cables > MOST_CABLES:
        raise LocalError("topology", f"{cables} cables between switches", f"at most {MOST_CABLES}", id="too-many")


@dataclass(frozen=True, slots=True)
class _Kind:
    shape: Callable[..., _Shape]
    parameters: tuple[str, ...] = ()
    gpus_per_node: int = 1
    """Default number of GPUs in a node."""


_KINDS = {
    "switch": _Kind(_switch),
    "leaf-spine": _Kind(_leaf_spine, ("hosts_per_leaf", "leaves", "spines")),
    "fat-tree": _Kind(_fat_tree, ("k", "levels")),
    "rails": _Kind(_rails, ("spines",), 8),
}

PARAMETERS: dict[str, tuple[str, ...]] = {
    "pair": (),
    **{name: (*kind.parameters, "gpus_per_node") for name, kind in _KINDS.items()},
}
"""Names of the parameters of each topology. All of them are whole numbers from 1 on."""
GPUS_PER_NODE = {"pair": 1, **{name: kind.gpus_per_node for name, kind in _KINDS.items()}}
"""Default number of GPUs in a node, for each topology."""


def topology(kind: str, ranks: int, *, places: Sequence[int] | None = None, **parameters: Any) -> Topology:
    """Return a topology. Raises `LocalError` for an illegal parameter, or if the ranks do not fit into the topology."""
    if kind not in PARAMETERS:
        raise LocalError(
            "topology", f"{kind!r} is not legal{similar(kind, PARAMETERS)}", ", ".join(PARAMETERS),
            id="unknown-topology"
        )  # fmt: skip
    for name, value in (("ranks", ranks), *parameters.items()):
        if name not in ("ranks", *PARAMETERS[kind]):
            legal = ", ".join(PARAMETERS[kind]) or "no parameter"
            raise LocalError(name, f"does not go with topology {kind}", legal, id="not-with-topology")
        if type(value) is not int or value < 1:
            raise LocalError(name, f"{value!r}", "a whole number, 1 and more", id="out-of-range")
    if kind == "pair":
        if ranks != 2:
            raise LocalError("topology", f"{ranks} ranks do not fit a pair", "2 ranks", id="wrong-count")
        return Topology(kind, 2, (), ((0, 1),), places=_placed(places, 2, 2))
    gpus = parameters.pop("gpus_per_node", _KINDS[kind].gpus_per_node)
    shape = _KINDS[kind].shape(ranks, gpus, **parameters)
    if ranks > shape.slots:
        raise LocalError(
            "topology", f"{ranks} ranks do not fit this {kind}", f"{shape.slots} ranks, or {shape.room}", id="too-many"
        )
    slots = _placed(places, ranks, shape.slots)
    hosts = tuple((rank, ranks + shape.leaf(slot)) for rank, slot in enumerate(slots))
    trunks = tuple((ranks + a, ranks + b) for a, b in shape.trunks)
    return Topology(kind, ranks, shape.switches, hosts + trunks, gpus, slots)


def _placed(places: Sequence[int] | None, ranks: int, slots: int) -> tuple[int, ...]:
    if places is None:
        return tuple(range(ranks))
    if len(places) != ranks or len(set(places)) < ranks or not all(0 <= place < slots for place in places):
        raise LocalError("places", list(places), f"{ranks} different slots, 0 … {slots - 1}", id="wrong-count")
    return tuple(places)
