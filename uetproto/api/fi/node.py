# SPDX-License-Identifier: GPL-2.0-only
"""This module has the nodes of the libfabric-shaped API, each with one fabric endpoint."""

from collections.abc import Callable
from dataclasses import dataclass

from uetproto.api.node import LocalNode, NodePlace
from uetproto.api.places import PlaceSpec
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import Engine, Receive
from uetproto.engine.fep import Fep


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec(PlaceSpec):
    """This record specifies a node of a network; an attribute that is None takes the value that the network has for all
    nodes."""

    pds: PdsConfig | None = None
    ses: SesConfig | None = None
    around: Callable[[Fep], Engine] | None = None
    """Function that makes an engine, such as `SharpStation`, around the fabric endpoint; the driver then calls this
    engine in place of the endpoint."""


class FiNode(LocalNode):
    """This class represents a node with its fabric endpoint. If `engine` is given, this engine contains the endpoint,
    and the driver calls the engine in place of the endpoint."""

    def __init__(
        self, place: NodePlace, fep: Fep, pds: PdsConfig, ses: SesConfig, engine: Engine | None = None
    ) -> None:
        super().__init__(place, fep, engine)
        self.fep = fep
        self.pds = pds
        self.ses = ses
        self.shares_address = False
        """Whether packets to the address of the node reach another endpoint, which has another UDP port."""

    def cancel(self, receive: Receive) -> bool:
        """Withdraw a posted receive, and pass the resulting events to the listeners. Return False if a message has
        matched the receive already."""
        done: bool = self.fep.cancel(receive, self.driver.now)
        for event in self.fep.events():
            self.tell(event)
        return done
