# SPDX-License-Identifier: GPL-2.0-only
"""This module has the node of a network on a live link: one adapter of this host, driven by real time."""

import random
from dataclasses import replace

from uetproto.api.node import NodePlace
from uetproto.api.verbs.node import VerbsNode
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.hca import Hca
from uetproto.errors import LocalError
from uetproto.framing.roce import RoceFramer
from uetproto.framing.sizes import around_roce
from uetproto.live.interface import Interface
from uetproto.live.path import PathSetup
from uetproto.live.rate import PeerRate, live_roce, roce_window
from uetproto.live.world import LiveWorld


class LiveAdapter(LiveWorld):
    """This class drives the adapter of a live link."""

    def __init__(self, name: str, interface: Interface, *, config: RoceConfig | None) -> None:
        """Open the interface. Raises `LocalError` or `OSError` if a port, an address or a file is not to be had."""
        if interface.security is not None:
            raise LocalError(
                "security", "does not go with RoCEv2, whose packets nobody seals", "UET", id="not-with-protocol"
            )
        address = interface.address
        seed = random.SystemRandom().getrandbits(64) if interface.seed is None else interface.seed
        self.psns = random.Random(seed)
        """Generator of first PSNs."""
        self._asked = config or RoceConfig()
        roce = live_roce(base=self._asked)
        hca = Hca(int(address), config=roce, ip_version=address.version)
        framer = RoceFramer(int(address), address.version, roce, local_port=interface.local_port)
        setup = PathSetup(
            interface=interface, transport="roce", peer_port=roce.udp_port, lower_headers=framer.lower_headers
        )  # fmt: skip
        self.verbs_node = VerbsNode(NodePlace(name, int(address), address.version), hca)
        needed = roce.path_mtu + around_roce(address.version)
        super().__init__(self.verbs_node, setup, framer, needed=needed, payload="path_mtu")

    def learn(self, peer: int, rate: PeerRate) -> None:
        """Fit the window of queue pairs that are made from now on to what was measured of a peer. What the program gave
        stays."""
        if self._asked.max_unacked_psns == RoceConfig().max_unacked_psns:
            hca = self.verbs_node.hca
            window = roce_window(rate.buffer, hca.config.path_mtu)
            hca.config = replace(hca.config, max_unacked_psns=window, ack_req_interval=max(window // 4, 1))
