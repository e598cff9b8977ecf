# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the network that `World(transport=...)` names, and checks its options."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeAlias

from uetproto.api.distributed.errors import ArgumentError, invalid, unknown
from uetproto.collectives.algorithms.leaders import spread_over
from uetproto.collectives.model import ModelNetwork
from uetproto.collectives.transport import CollectiveNetwork
from uetproto.errors import LocalError

Nodes: TypeAlias = int | Sequence[Sequence[int]] | None
"""Number of nodes, or the ranks of each node; with None, the network says which nodes there are."""

TRANSPORTS = {"uet": "uetproto.api.distributed.networks.uet", "roce": "uetproto.api.distributed.networks.roce"}
"""Maps the name of a transport that sends packets to its module, which has the function `network(size, **options)`."""


def network_of(
    transport: str | CollectiveNetwork, ranks: int, nodes: Nodes, options: dict[str, Any]
) -> CollectiveNetwork:
    """Return the network of `ranks` ranks that `transport` names, or `transport` itself if it is a network. Raises
    `ArgumentError` for an unknown transport, for illegal options, and for a network that does not have `ranks`
    ranks."""
    if isinstance(transport, CollectiveNetwork):
        if transport.size != ranks or options:
            text = f"a network of {transport.size}, and {', '.join(options) or 'no further arguments'}"
            raise invalid("transport", text, f"one of {ranks} ranks, and nothing else", id="inconsistent-values")
        return transport
    if transport == "model":
        strange = [name for name in options if name not in ("path", "seed")]
        if strange:
            raise invalid(
                strange[0], "an unknown argument", "path, seed, for the transport model", id="unknown-argument"
            )
    elif not isinstance(transport, str) or transport not in TRANSPORTS:
        raise unknown("transport", transport, ["model", *TRANSPORTS])
    elif nodes is not None:
        options = {"nodes": nodes, **options}
    try:
        if transport == "model":
            return ModelNetwork(ranks, options.get("path"))  # uses no random numbers: the seed has no effect
        network: CollectiveNetwork = import_module(TRANSPORTS[transport]).network(ranks, **options)
    except LocalError as error:  # each API has errors of its own
        raise error if isinstance(error, ValueError) else ArgumentError(*error.args, id=error.id) from None
    return network


def agreed(ranks: int, nodes: Nodes, known: Sequence[Sequence[int]] | None) -> Nodes:
    """Return `nodes` if given, otherwise `known`, the nodes of the network. Raises `ArgumentError` if both are given
    and differ."""
    if nodes is None or known is None:
        return known if nodes is None else nodes
    if {frozenset(node) for node in spread_over(ranks, nodes)} != {frozenset(node) for node in known}:
        raise invalid(
            "nodes", repr(nodes), f"none, or {list(map(list, known))}, which the network has", id="inconsistent-values"
        )
    return nodes
