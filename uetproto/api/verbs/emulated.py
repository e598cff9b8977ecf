# SPDX-License-Identifier: GPL-2.0-only
"""This module has an emulated network of the nodes of the ibverbs-shaped API. A network on a live link does without it,
and so without the emulator."""

from collections.abc import Callable, Iterable, Mapping

from uetproto.api.network import BURST, FAULTS, EmulatedNetwork, NetworkOptions, Pfc
from uetproto.api.node import NodePlace
from uetproto.api.verbs.errors import CHECKS, integer
from uetproto.api.verbs.node import NodeSpec, VerbsNode
from uetproto.engine.roce.config import ENDLESS, RoceConfig
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.qp import Qp
from uetproto.engine.roce.requester import RcRequester
from uetproto.framing.roce import RoceFramer, traffic_classes
from uetproto.framing.sizes import around_roce
from uetproto.framing.uet import Encapsulation
from uetproto.wire.headers.roce import PMTUS

_FAULTS = {name: key for name, key in FAULTS.items() if name != "trim"}


class VerbsNetwork(EmulatedNetwork):
    """This class represents an emulated network of nodes with RoCE adapters."""

    spec = NodeSpec
    checks = CHECKS
    legal_faults = _FAULTS
    nodes: Mapping[str, VerbsNode]

    def __init__(
        self, nodes: Iterable[str] | Mapping[str, NodeSpec], options: NetworkOptions, *, config: RoceConfig
    ) -> None:
        """Build the network. Raises EINVAL for illegal arguments, `OSError` for the capture file."""
        self.typed("config", config, RoceConfig)
        self.config = config
        self._stalled_since: int | None = None
        comment = f"uetproto verbs, seed {options.seed}"
        super().__init__(nodes, options, dscp=traffic_classes(config), comment=comment)
        self.psns = self.chance("psn")
        """Generator of first PSNs."""
        self.by_address = {node.address: node for node in self.nodes.values()}

    def node(self, place: NodePlace, spec: NodeSpec) -> VerbsNode:
        """Make a node with its adapter; `spec` is the specification of this node."""
        where = f"nodes[{place.name!r}]"
        config = self.config if spec.config is None else spec.config
        self.typed(f"{where}.config", config, RoceConfig)
        self.typed(f"{where}.pkeys", spec.pkeys, tuple)
        if not spec.pkeys:
            raise self.invalid(f"{where}.pkeys", spec.pkeys, "one partition key at least", id="wrong-count")
        for key in spec.pkeys:
            integer(f"{where}.pkeys", key, 0, 0xFFFF)
        hca = Hca(place.address, config=config, ip_version=place.ip_version, pkeys=spec.pkeys)
        hca.line_rate = place.rate
        engine = None if spec.around is None else spec.around(hca)
        return VerbsNode(place, hca, engine)

    @property
    def full_packet(self) -> tuple[int, Encapsulation]:
        """Return the largest payload of a packet; what is around it is as large as around packets of UET, nearly."""
        return self.config.path_mtu, Encapsulation()

    def framer(self, node: VerbsNode) -> RoceFramer:
        """Return the framer of a node, which encapsulates the packets that the node sends."""
        return RoceFramer(node.address, node.ip_version, node.config)

    def check_mtu(self, mtu: int) -> None:
        """Raise EINVAL if the longest packet of any node is longer than `mtu` bytes; otherwise set `max_path_mtu` of
        each node."""
        payload, version = max((node.config.path_mtu, node.ip_version) for node in self.nodes.values())
        around = around_roce(version)
        if payload + around > mtu:
            raise self.invalid(
                "mtu", mtu, f"{payload + around} and more, for a path_mtu of {payload}", id="inconsistent-values"
            )
        for node in self.nodes.values():
            node.max_path_mtu = max(size for size in PMTUS if size <= mtu - around)

    @property
    def stalled(self) -> bool:
        """Return whether every open operation is retried without end, because it waits for a receive that is not posted
        (rnr_retry is 7) or for a peer that is down (retry_cnt is 7).

        The operations must have waited for so long that no other packet can still be in flight.
        """
        now = self.clock.now
        if not all(self._waits_in_vain(qp) for node in self.nodes.values() for qp in node.hca.qps.values()):
            self._stalled_since = None
            return False
        if self._stalled_since is None:
            self._stalled_since = now
        return now - self._stalled_since > self.network.longest_flight

    def _waits_in_vain(self, qp: Qp) -> bool:
        """Return whether a queue pair has nothing open, or retransmits a request that only an action of the peer's
        program can let succeed (roce.md §9)."""
        requester, attributes = qp.requester, qp.attributes
        if requester is None or not requester.busy:
            return True
        if not isinstance(requester, RcRequester):
            return False
        peer = self.by_address.get(attributes.av.dst)
        other = peer.hca.qps.get(attributes.dest_qpn) if peer is not None else None
        if other is None or not other.behaviour.serves:
            return attributes.retry_cnt == ENDLESS and requester.config.retry_cnt_seven == "endless"
        return bool(requester.refused) and attributes.rnr_retry == ENDLESS and other.peek_receive() is None

    def wait(self, condition: Callable[[], bool], timeout: int | None = None, burst: int = BURST) -> bool:
        """Let virtual time pass as `EmulatedNetwork.wait` does, and begin to measure anew how long operations have been
        stalled."""
        self._stalled_since = None
        return super().wait(condition, timeout, burst)


__all__ = ["NetworkOptions", "Pfc", "VerbsNetwork"]
