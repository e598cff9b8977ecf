# SPDX-License-Identifier: GPL-2.0-only
"""This module has the nodes of the ibverbs-shaped API, each with one adapter."""

from collections.abc import Callable
from dataclasses import dataclass

from uetproto.api.node import LocalNode, NodePlace
from uetproto.api.places import PlaceSpec
from uetproto.engine.contract import Engine
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.ud import NO_RECEIVE
from uetproto.wire.headers.roce import PMTUS


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec(PlaceSpec):
    """This record specifies a node of a network; an attribute that is None takes the value that the network has for all
    nodes."""

    config: RoceConfig | None = None
    pkeys: tuple[int, ...] = (0xFFFF,)
    """Partition keys (P_Keys) of the node; the attribute `pkey_index` of a queue pair is an index into this tuple."""
    around: Callable[[Hca], Engine] | None = None
    """Function that makes an engine, such as `SharpStation`, around the adapter; the driver then calls this engine in
    place of the adapter."""


class VerbsNode(LocalNode):
    """This class represents a node with its adapter. If `engine` is given, this engine contains the adapter, and the
    driver calls the engine in place of the adapter."""

    def __init__(self, place: NodePlace, hca: Hca, engine: Engine | None = None) -> None:
        super().__init__(place, hca, engine)
        self.hca = hca
        self.config = hca.config
        self.max_path_mtu = max(PMTUS)
        """Largest payload of a packet that the cable of the node carries."""

    @property
    def dropped(self) -> int:
        """Return how many datagrams arrived when no receive was posted for them."""
        return self.hca.counters.get(NO_RECEIVE, 0)
