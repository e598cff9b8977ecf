# SPDX-License-Identifier: GPL-2.0-only
"""This module models the hosts of ranks and the rails that their NICs form, and chooses the NIC by which a message
leaves its host (collectives.md §4.2)."""

from collections.abc import Mapping, Sequence
from typing import Any

from uetproto.api.distributed.errors import invalid
from uetproto.api.network import NetworkOptions
from uetproto.collectives.algorithms.leaders import spread_over
from uetproto.collectives.topology.kinds import GPUS_PER_NODE

NEVER_CROSS, ALLOW_CROSS, PREFER_SAME_NIC = 0, 1, 2
"""Values of `cross_nic`. NEVER_CROSS: a message never crosses from a NIC of one rail to a NIC of another rail.
ALLOW_CROSS: a message may cross. PREFER_SAME_NIC: a message crosses only if the sender's host has no NIC on the rail of
the target."""


class Hosts:
    """This class describes the hosts of a network and the ranks of each host. Each rank has a NIC of its own, and the
    NICs of the i-th ranks of all hosts form rail i."""

    def __init__(self, ranks: Sequence[Sequence[int]], cross_nic: int = PREFER_SAME_NIC) -> None:
        self.ranks = [list(host) for host in ranks]
        self.cross_nic = cross_nic
        self._host = {rank: number for number, host in enumerate(self.ranks) for rank in host}
        self._rail = {rank: rail for host in self.ranks for rail, rank in enumerate(host)}

    def same_host(self, a: int, b: int) -> bool:
        """Return whether two ranks share a host."""
        return self._host[a] == self._host[b]

    def sender(self, source: int, target: int) -> int | None:
        """Return the rank whose NIC sends the messages from `source` to `target`, or None if both share a host."""
        return None if self.same_host(source, target) else self.relay(source, target)

    def relay(self, source: int, target: int) -> int:
        """Return the rank whose NIC sends the messages from `source` to `target`. This rank is on the host of `source`
        and on the rail of `target`.

        The result is `source` itself if messages may change the rail, or if the host of `source` has no rank on that
        rail.
        """
        host, rail = self.ranks[self._host[source]], self._rail[target]
        return host[rail] if self.cross_nic != ALLOW_CROSS and rail < len(host) else source


def hosts_of(size: int, cables: NetworkOptions, hosts: Any, nodes: Any, cross_nic: Any) -> Hosts:
    """Return the hosts of a network of `size` ranks. The hosts are defined by the topology, by `hosts` (a list of ranks
    for each host), or by `nodes` (a list of ranks for each host, or the number of hosts). If none of these three
    defines hosts, each rank has a host of its own.

    Raises `ArgumentError` if `hosts`, `nodes` and the topology contradict each other.
    """
    own = _nodes_of_topology(size, cables)
    listed = None if hosts is None else _listed("hosts", size, hosts)
    if isinstance(nodes, int) and size % nodes:
        legal = ", ".join(str(count) for count in range(1, size + 1) if size % count == 0)
        raise invalid("nodes", f"{nodes}, which do not share {size} ranks evenly", legal, id="uneven-split")
    spread = None if nodes is None else _listed("nodes", size, spread_over(size, nodes))
    for name, given in (("hosts", listed), ("nodes", spread)):
        if given is not None and own is not None and _sets(given) != _sets(own):
            raise invalid(name, repr(given), f"none, or {own}, the nodes of this topology", id="inconsistent-values")
    if listed is not None and spread is not None and _sets(listed) != _sets(spread):
        raise invalid("nodes", repr(spread), f"none, or {listed}, which are the hosts", id="inconsistent-values")
    found = own or listed or spread or [[rank] for rank in range(size)]
    if type(cross_nic) is not int or cross_nic not in (NEVER_CROSS, ALLOW_CROSS, PREFER_SAME_NIC):
        raise invalid(
            "cross_nic", repr(cross_nic), "0 never leave the rail, 1 allow, 2 prefer the same NIC", id="out-of-range"
        )
    if cross_nic == NEVER_CROSS and len({len(host) for host in found}) > 1:
        raise invalid(
            "cross_nic", f"0 with hosts {found}", "1, 2, or as many ranks in each host: all rails reach all",
            id="not-with-topology"
        )  # fmt: skip
    return Hosts(found, cross_nic)


def _nodes_of_topology(size: int, cables: NetworkOptions) -> list[list[int]] | None:
    """Return the nodes of a topology; None if it does not define them, or if the world will refuse it."""
    shape = cables.shape if isinstance(cables.shape, Mapping) else {}
    each = shape.get("gpus_per_node", GPUS_PER_NODE.get(str(cables.topology), 1))
    if type(each) is not int or each <= 1:
        return None
    return [list(range(first, min(first + each, size))) for first in range(0, size, each)]


def _listed(name: str, size: int, given: Any) -> list[list[int]]:
    try:
        found = [list(host) for host in given]
        ranks = sorted(rank for host in found for rank in host)
    except TypeError:
        found, ranks = [], []
    if ranks != list(range(size)) or any(type(rank) is not int for rank in ranks):
        raise invalid(name, repr(given), f"lists of ranks, with each of 0 … {size - 1} once", id="wrong-type")
    return found


def _sets(hosts: Sequence[Sequence[int]]) -> set[frozenset[int]]:
    return {frozenset(host) for host in hosts}
