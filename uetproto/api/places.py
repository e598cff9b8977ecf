# SPDX-License-Identifier: GPL-2.0-only
"""This module has what programs say of an emulated network and of the places of its nodes. It does without the
emulator, so that programs on a live link do without it, too."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from uetproto.impair.faults import Faults


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSpec:
    """This record specifies the address, cables and ports of a node of a network; an attribute that is None takes the
    value that the network has for all nodes."""

    address: str | None = None
    """IPv4 or IPv6 address of the node; with None the nodes get 10.0.0.1, 10.0.0.2 and so on, in their order."""
    rate: int | str | None = None
    """Rate of each cable of the node, in bits per second."""
    at: str | None = None
    """Name of the switch that contains the node, for example "leaf0", "spine1", "pod0.agg1", "core0" or, in a network
    of one switch, "switch". An aggregation node is such a node. With None the node is a host, which takes the next rank
    of the topology."""
    ports: int | None = None
    """Number of ports of the node's NIC, each with a cable to the same switch. The entropy value of a packet selects
    the port."""


class NetworkKeywords(TypedDict, total=False):
    """This type names the keywords of `fi.Fabric` and `verbs.Network` that describe the network; `NetworkOptions` says
    what they mean."""

    topology: str
    shape: Mapping[str, int] | None
    rate: int | str
    delay: int | str
    mtu: int
    queue_capacity: int | str | None
    switch: Mapping[str, Any] | None
    vlan: Mapping[str, int] | None
    faults: Faults | Mapping[str, Any] | None
    faults_from: Iterable[str]
    seed: int
    capture: str | None
    taps: Iterable[str] | None
    metered: bool
    wire: str
    trains: str
