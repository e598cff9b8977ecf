# SPDX-License-Identifier: GPL-2.0-only
"""This module computes the bytes that messages put on every link of a topology (collectives.md §2).

If a pair of ranks has several shortest paths, these carry equal shares. `trav` and `egress` do not depend on the path
and are exact.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uetproto.collectives.topology.graph import Topology
from uetproto.errors import LocalError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DENSE = 1 << 12
"""Largest number of ranks for which the bytes of all pairs are counted in one dense array."""

PART = 1 << 18
"""Number of messages that are counted in one pass."""


@dataclass(frozen=True)
class LinkBytes:
    """This record holds the bytes that messages put on links."""

    topology: Topology
    links: Floats
    """Bytes of each link, in the order of `topology.links`."""
    tx: Ints
    """Bytes that each rank's NIC sends, including those that it forwards for other ranks."""
    rx: Ints
    within: Ints
    """Bytes that each rank sends to ranks of its own node. They do not pass through its NIC."""
    trav: int
    """Sum of the bytes on all links."""

    @property
    def inj(self) -> int:
        return int(self.tx.sum())

    @property
    def egress(self) -> int:
        """Return the bytes that leave switches. These are all bytes on links except those that NICs send."""
        return self.trav - self.inj

    def table(self) -> list[tuple[str, float]]:
        """Return the name and the bytes of each link that carries any bytes."""
        return [(self.topology.label(int(link)), float(self.links[link])) for link in np.flatnonzero(self.links)]


def link_bytes(
    topology: Topology, source: ArrayLike, target: ArrayLike, size: ArrayLike, *, relay: bool = False
) -> LinkBytes:
    """Return the bytes that messages put on links. Message i has `size[i]` bytes from rank `source[i]` to rank
    `target[i]`.

    Ranks of one node do not use the network. If `relay` is True, a message to another rail is first sent within the
    node of its sender, to the rank on that rail. This rank forwards the message (PXN, collectives.md §4.2).
    """
    pairs, amounts = _pairs(topology.size, *_columns(source, target, size))
    a, b = np.divmod(pairs, topology.size)
    places = np.asarray(topology.places)
    node = places // topology.gpus_per_node
    inside = node[a] == node[b]
    within = _sums(a[inside], np.where(a == b, 0, amounts)[inside], topology.size)
    a, b, amounts = a[~inside], b[~inside], amounts[~inside]
    if relay:
        over = np.fromiter((topology.relay(int(s), int(t)) for s, t in zip(a, b, strict=True)), np.int64, len(a))
        within += _sums(a[over != a], amounts[over != a], topology.size)
        a = over
    tx, rx = (_sums(ranks, amounts, topology.size) for ranks in (a, b))
    links, trav = _spread(topology, a, b, amounts, tx, rx)
    return LinkBytes(topology, links, tx, rx, within, trav)


def _columns(*given: ArrayLike) -> tuple[NDArray[Any], ...]:
    return tuple(column.ravel() for column in np.broadcast_arrays(*given))


def _pairs(ranks: int, *columns: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the pairs of ranks that exchange messages, as source * ranks + target, and the bytes of each pair."""
    for name, values, most in zip(("source", "target", "size"), columns, (ranks, ranks, 1 << 62), strict=True):
        if values.size and (values.dtype.kind not in "iu" or values.min() < 0 or values.max() >= most):
            raise LocalError(
                name, f"{values.dtype} from {values.min()} to {values.max()}", f"0 … {most - 1}", id="out-of-range"
            )
    source, target, size = columns
    if ranks > DENSE or size.size < ranks:
        found, index = np.unique(source.astype(np.int64) * ranks + target, return_inverse=True)
        return found, _sums(index, size, len(found))
    table = np.zeros(ranks * ranks, np.int64)
    for start in range(0, size.size, PART):
        part = slice(start, start + PART)
        np.add.at(table, source[part].astype(np.int64) * ranks + target[part], size[part].astype(np.int64))
    found = np.flatnonzero(table)
    return found, table[found]


def _sums(index: NDArray[Any], amounts: NDArray[Any], length: int) -> Ints:
    sums = np.zeros(length, np.int64)
    np.add.at(sums, index, amounts.astype(np.int64))
    return sums


def _spread(topology: Topology, a: Ints, b: Ints, amounts: Ints, tx: Ints, rx: Ints) -> tuple[Floats, int]:
    """Return the bytes of each link and their sum. All bytes to one leaf move together, from switches far from it to
    near ones."""
    size, vertices = topology.size, topology.size + len(topology.switches)
    links = np.zeros(len(topology.links))
    ups = np.array([topology.up(rank) for rank in range(size)])
    if not topology.switches:  # a pair
        links[ups] = tx
        return links, int(tx.sum())
    links[ups], links[ups ^ 1] = tx, rx
    trav = int(tx.sum() + rx.sum())
    leaf = np.array([topology.neighbour(rank) for rank in range(size)])
    ends = np.array(topology.links)
    trunks = np.flatnonzero((ends >= size).all(axis=1))
    tail, head = ends[trunks].T
    order = np.argsort(leaf[b], kind="stable")
    borders = np.flatnonzero(np.diff(leaf[b][order])) + 1
    for group in np.split(order, borders) if order.size else ():
        end = int(leaf[b[group[0]]])
        far = _distances(tail, head, vertices, end)
        load = np.bincount(leaf[a[group]], amounts[group], vertices)
        trav += int((far[leaf[a[group]]] * amounts[group]).sum())
        for level in range(int(far[leaf[a[group]]].max()), 0, -1):
            down = np.flatnonzero((far[tail] == level) & (far[head] == level - 1))
            ways = np.bincount(tail[down], minlength=vertices)
            share = load[tail[down]] / ways[tail[down]]
            links[trunks[down]] += share
            load += np.bincount(head[down], share, vertices)
    return links, trav


def _distances(tail: Ints, head: Ints, vertices: int, end: int) -> Ints:
    """Return the number of links from each switch to the switch `end`. It is -1 if there is no path."""
    far = np.full(vertices, -1)
    far[end] = 0
    level = 0
    while True:
        reached = tail[(far[head] == level) & (far[tail] < 0)]
        if not reached.size:
            return far
        level += 1
        far[reached] = level
