# SPDX-License-Identifier: GPL-2.0-only
"""This module has an emulated network of the nodes of the libfabric-shaped API. A fabric on a live link does without
it, and so without the emulator."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from uetproto.api.fi.errors import CHECKS
from uetproto.api.fi.node import FiNode, NodeSpec
from uetproto.api.network import EmulatedNetwork, NetworkOptions
from uetproto.api.node import NodePlace
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.fep import Fep
from uetproto.framing.dscp import Dscp
from uetproto.framing.sizes import UET_EXTENSION
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.toml.values import BOOLEAN, DSCP, integer

_HOW = {"udp": BOOLEAN, "crc": BOOLEAN, "udp_port": integer(1, 65535), "ip_protocol": integer(0, 255)}


class FiNetwork(EmulatedNetwork):
    """This class represents an emulated network of fabric endpoints."""

    spec = NodeSpec
    checks = CHECKS
    has_congestion_contexts = True
    nodes: Mapping[str, FiNode]

    def __init__(
        self, nodes: Iterable[str] | Mapping[str, NodeSpec], options: NetworkOptions, *, how: Encapsulation,
        pds: PdsConfig, ses: SesConfig,
    ) -> None:  # fmt: skip
        """Build the network. Raises FI_EINVAL for illegal arguments, `OSError` for the capture file."""
        self.seed = options.seed
        for name, value, kind in (("how", how, Encapsulation), ("pds", pds, PdsConfig), ("ses", ses, SesConfig)):
            self.typed(name, value, kind)
        self._check_how(how)
        self.how = how
        self.pds = pds
        self.ses = ses
        self._unpacked = options.wire == "objects" and not options.metered  # a meter reads packed headers
        super().__init__(nodes, options, dscp=how.dscp, comment=f"uetproto fi, seed {options.seed}")

    def _check_how(self, how: Encapsulation) -> None:
        for name, key in _HOW.items():
            self.checked(f"how.{name}", getattr(how, name), key)
        self.typed("how.dscp", how.dscp, Dscp)
        classes = asdict(how.dscp)
        for name, value in classes.items():
            self.checked(f"how.dscp.{name}", value, DSCP)
        if len(set(classes.values())) < len(classes):
            raise self.invalid("how.dscp", how.dscp, "a different one for each traffic class", id="duplicate")

    def node(self, place: NodePlace, spec: NodeSpec) -> FiNode:
        """Make a node with its fabric endpoint; `spec` is the specification of this node."""
        pds, ses = self.pds if spec.pds is None else spec.pds, self.ses if spec.ses is None else spec.ses
        for part, value, kind in (("pds", pds, PdsConfig), ("ses", ses, SesConfig)):
            self.typed(f"nodes[{place.name!r}].{part}", value, kind)
        chance, contexts = self.chance(place.name, "engine"), None
        if self.plane is not None and self.plane.controls:
            contexts = self.plane.contexts(self.chance(place.name, "cc"))
            pds = self.plane.tuned(pds)
        fep = Fep(
            place.address, chance, pds=pds, ses=ses, ip_version=place.ip_version, congestion=contexts,
            objects=self._unpacked and spec.around is None,
        )  # fmt: skip
        return FiNode(place, fep, pds, ses, None if spec.around is None else spec.around(fep))

    @property
    def full_packet(self) -> tuple[int, Encapsulation]:
        """Return the largest payload of a packet, and what is around it."""
        return self.ses.payload_mtu, self.how

    def framer(self, node: FiNode) -> UetFramer:
        """Return the framer of a node, which encapsulates the packets that the node sends."""
        return UetFramer(node.address, node.ip_version, self.how, ecn_capable=node.pds.ecn_capable)

    def check_mtu(self, mtu: int) -> None:
        """Raise FI_EINVAL if the longest packet of any node is longer than `mtu` bytes."""
        payload, version = max((node.ses.payload_mtu, node.ip_version) for node in self.nodes.values())
        state = 0 if self.plane is None else self.plane.state_size
        needed = self.how.around(version, extension=UET_EXTENSION + state) + payload
        if needed > mtu:
            raise self.invalid(
                "mtu", mtu, f"{needed} and more, for a payload_mtu of {payload}", id="inconsistent-values"
            )

    @property
    def stalled(self) -> bool:
        """Return whether every open message waits at its target for a receive to be posted."""
        feps = [node.fep for node in self.nodes.values()]
        if any(fep.initiator.transfers or fep.initiator.messages for fep in feps) and not any(
            fep.target.messages for fep in feps
        ):
            return False  # no message waits at its target
        held: dict[int, set[tuple[int, int]]] = {}
        for node in self.nodes.values():
            messages = node.fep.held
            if messages is None:
                return False
            held[node.address] = messages
        return all(node.fep.stalled(held) for node in self.nodes.values())


__all__ = ["Encapsulation", "FiNetwork", "NetworkOptions"]
