"""Nodes of the verbs: an adapter each, and RoCEv2 around its packets."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from uetproto.api.network import BURST, FAULTS, Cables, Faults, Node, Place, PlaceSpec, World
from uetproto.api.verbs.errors import VerbsError, integer, invalid
from uetproto.engine.contract import Engine
from uetproto.engine.roce.config import ENDLESS, RoceConfig
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.qp import Qp
from uetproto.engine.roce.requester import RcRequester
from uetproto.framing.roce import RoceFramer, traffic_classes
from uetproto.framing.sizes import around_roce
from uetproto.wire.headers.roce import PMTUS

_FAULTS = {name: key for name, key in FAULTS.items() if name != "trim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec(PlaceSpec):
    """A node to be built; None is what holds for all."""

    config: RoceConfig | None = None
    pkeys: tuple[int, ...] = (0xFFFF,)
    """Its partition keys, which `pkey_index` counts."""
    around: Callable[[Hca], Engine] | None = None
    """Makes what is driven in place of the adapter, and drives it, as `sharp_station.Station` does; None: nothing."""


class VerbsNode(Node):
    """One node with its adapter."""

    def __init__(self, place: Place, hca: Hca, framer: RoceFramer, engine: Engine | None = None) -> None:
        super().__init__(place, engine or hca, framer)
        self.hca = hca
        self.config = hca.config
        self.max_path_mtu = max(PMTUS)
        """Largest payload of a packet that its cable carries."""

    @property
    def quiescent(self) -> bool:
        return self.hca.quiescent


class VerbsWorld(World):
    """A network of adapters."""

    spec = NodeSpec
    legal_faults = _FAULTS
    nodes: Mapping[str, VerbsNode]

    def __init__(
        self, nodes: Iterable[str] | Mapping[str, NodeSpec], *, config: RoceConfig, cables: Cables,
        faults: Faults | Mapping[str, Any], faults_from: Iterable[str], seed: int, capture: str | None,
        taps: Iterable[str] | None,
    ) -> None:  # fmt: skip
        """Raises EINVAL for what cannot be, `OSError` for the capture file."""
        self.typed("config", config, RoceConfig)
        self.config = config
        self._stalled_since: int | None = None
        super().__init__(
            nodes, cables=cables, dscp=traffic_classes(config), faults=faults, faults_from=faults_from, seed=seed,
            capture=capture, taps=taps, comment=f"uetproto verbs, seed {seed}",
        )  # fmt: skip
        self.psns = self.chance("psn")
        """First PSNs."""
        self.by_address = {node.address: node for node in self.nodes.values()}

    def node(self, place: Place, spec: NodeSpec) -> VerbsNode:
        where = f"nodes[{place.name!r}]"
        config = self.config if spec.config is None else spec.config
        self.typed(f"{where}.config", config, RoceConfig)
        self.typed(f"{where}.pkeys", spec.pkeys, tuple)
        if not spec.pkeys:
            raise self.invalid(f"{where}.pkeys", spec.pkeys, "one partition key at least")
        for key in spec.pkeys:
            integer(f"{where}.pkeys", key, 0, 0xFFFF)
        hca = Hca(place.address, config=config, ip_version=place.ip_version, pkeys=spec.pkeys)
        hca.line_rate = place.rate
        engine = None if spec.around is None else spec.around(hca)
        return VerbsNode(place, hca, RoceFramer(place.address, place.ip_version, config), engine)

    def check_mtu(self, mtu: int) -> None:
        payload, version = max((node.config.path_mtu, node.ip_version) for node in self.nodes.values())
        around = around_roce(version)
        if payload + around > mtu:
            raise self.invalid("mtu", mtu, f"{payload + around} and more, for a path_mtu of {payload}")
        for node in self.nodes.values():
            node.max_path_mtu = max(size for size in PMTUS if size <= mtu - around)

    @property
    def stalled(self) -> bool:
        """All that is open waits for receives that nobody has posted (rnr_retry 7), or for a peer that is down, and
        what else was under way has had the time to arrive.
        """
        now = self.clock.now
        if not all(self._waits_in_vain(qp) for node in self.nodes.values() for qp in node.hca.qps.values()):
            self._stalled_since = None
            return False
        if self._stalled_since is None:
            self._stalled_since = now
        return now - self._stalled_since > self.flight

    def _waits_in_vain(self, qp: Qp) -> bool:
        """It has nothing open, or asks without end what only the program at its peer can answer (roce.md §9)."""
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
        self._stalled_since = None
        return super().wait(condition, timeout, burst)

    def invalid(self, name: str, value: Any, legal: str) -> VerbsError:
        return invalid(name, value, legal)


__all__ = ["NodeSpec", "VerbsNode", "VerbsWorld"]
