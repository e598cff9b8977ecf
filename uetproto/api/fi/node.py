"""Nodes of the libfabric-shaped API: a fabric endpoint each, and UET around its packets."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from uetproto.api.fi.errors import FiError, invalid
from uetproto.api.network import Cables, Faults, Node, Place, PlaceSpec, World
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import Engine, Receive
from uetproto.engine.fep import Fep
from uetproto.framing.dscp import Dscp
from uetproto.framing.sizes import UET_EXTENSION
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.toml.values import BOOLEAN, DSCP, integer

_HOW = {"udp": BOOLEAN, "crc": BOOLEAN, "udp_port": integer(1, 65535), "ip_protocol": integer(0, 255)}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec(PlaceSpec):
    """A node to be built; None is what holds for all."""

    pds: PdsConfig | None = None
    ses: SesConfig | None = None
    around: Callable[[Fep], Engine] | None = None
    """Makes what is driven in place of the endpoint, and drives it, as `sharp_station.Station` does; None: nothing."""


class FiNode(Node):
    """One node with its fabric endpoint."""

    def __init__(
        self, place: Place, fep: Fep, framer: UetFramer, pds: PdsConfig, ses: SesConfig, engine: Engine | None = None
    ) -> None:
        super().__init__(place, engine or fep, framer)
        self.fep = fep
        self.pds = pds
        self.ses = ses

    @property
    def quiescent(self) -> bool:
        return self.fep.quiescent

    def cancel(self, receive: Receive) -> bool:
        """False: a message has matched it already."""
        done: bool = self.fep.cancel(receive, self.clock.now)
        for event in self.fep.events():
            self.tell(event)
        return done


class FiWorld(World):
    """A network of fabric endpoints."""

    spec = NodeSpec
    nodes: Mapping[str, FiNode]

    def __init__(
        self, nodes: Iterable[str] | Mapping[str, NodeSpec], *, how: Encapsulation, pds: PdsConfig, ses: SesConfig,
        cables: Cables, faults: Faults | Mapping[str, Any], faults_from: Iterable[str], seed: int, capture: str | None,
        taps: Iterable[str] | None,
    ) -> None:  # fmt: skip
        """Raises FI_EINVAL for what cannot be, `OSError` for the capture file."""
        self.seed = seed
        for name, value, kind in (("how", how, Encapsulation), ("pds", pds, PdsConfig), ("ses", ses, SesConfig)):
            self.typed(name, value, kind)
        self._check_how(how)
        self.how = how
        self.pds = pds
        self.ses = ses
        super().__init__(
            nodes, cables=cables, dscp=how.dscp, faults=faults, faults_from=faults_from, seed=seed, capture=capture,
            taps=taps, comment=f"uetproto fi, seed {seed}",
        )  # fmt: skip

    def _check_how(self, how: Encapsulation) -> None:
        for name, key in _HOW.items():
            self.checked(f"how.{name}", getattr(how, name), key)
        self.typed("how.dscp", how.dscp, Dscp)
        classes = asdict(how.dscp)
        for name, value in classes.items():
            self.checked(f"how.dscp.{name}", value, DSCP)
        if len(set(classes.values())) < len(classes):
            raise self.invalid("how.dscp", how.dscp, "a different one for each traffic class")

    def node(self, place: Place, spec: NodeSpec) -> FiNode:
        pds, ses = self.pds if spec.pds is None else spec.pds, self.ses if spec.ses is None else spec.ses
        for part, value, kind in (("pds", pds, PdsConfig), ("ses", ses, SesConfig)):
            self.typed(f"nodes[{place.name!r}].{part}", value, kind)
        chance = self.chance(place.name, "engine")
        fep = Fep(place.address, chance, pds=pds, ses=ses, ip_version=place.ip_version)
        framer = UetFramer(place.address, place.ip_version, self.how, ecn_capable=pds.ecn_capable)
        engine = None if spec.around is None else spec.around(fep)
        return FiNode(place, fep, framer, pds, ses, engine)

    def check_mtu(self, mtu: int) -> None:
        payload, version = max((node.ses.payload_mtu, node.ip_version) for node in self.nodes.values())
        needed = self.how.around(version, extension=UET_EXTENSION) + payload
        if needed > mtu:
            raise self.invalid("mtu", mtu, f"{needed} and more, for a payload_mtu of {payload}")

    @property
    def stalled(self) -> bool:
        """All that is open are messages that wait at their targets for a receive."""
        feps = [node.fep for node in self.nodes.values()]
        held: dict[int, set[tuple[int, int]]] = {}
        for fep in feps:
            messages = fep.held
            if messages is None:
                return False
            held[fep.address] = messages
        return all(fep.stalled(held) for fep in feps)

    def invalid(self, name: str, value: Any, legal: str) -> FiError:
        return invalid(name, value, legal)


__all__ = ["Encapsulation", "FiNode", "FiWorld", "NodeSpec"]
