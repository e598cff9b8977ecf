# SPDX-License-Identifier: GPL-2.0-only
"""This module has the fabric of the libfabric-shaped API, with its nodes, the driver that runs them, and its time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Self, Unpack

from uetproto.api.fi.domain import Domain, Job
from uetproto.api.fi.endpoint import Endpoint
from uetproto.api.fi.errors import CHECKS, Errno, FiError, invalid
from uetproto.api.fi.flags import CqFormat, EpType, FepCap, Flag, MrMode, Order
from uetproto.api.fi.node import FiNode, NodeSpec
from uetproto.api.node import DrivenNetwork
from uetproto.api.places import NetworkKeywords
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import EndpointDriver
from uetproto.framing.uet import Encapsulation
from uetproto.live.interface import LOCAL, Interface
from uetproto.live.rate import LIVE_CC, why_not
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode

if TYPE_CHECKING:
    from uetproto.api.fi.emulated import FiNetwork
    from uetproto.api.fi.live import LiveFabric

Op = AtomicOpcode
"""Operations of atomics: `FI_SUM` is `Op.SUM`, and `FI_ATOMIC_READ` is `Op.READ`. Their numbers are those on the wire,
not those of libfabric."""
Datatype = AtomicDatatype
"""Data types of atomics: `FI_UINT64` is `Datatype.UINT64`. Their numbers are those on the wire, not those of
libfabric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """`fi_info` describes one fabric endpoint and its capabilities (ses.md §14.1 phase 4)."""

    fabric_name: str = "UET"
    prov_name: str = "uet"
    domain_name: str
    src_addr: str
    caps: FepCap
    mtu: int
    """Largest payload of a packet in bytes."""
    max_msg_size: int
    inject_size: int
    iov_limit: int
    tx_size: int
    rx_size: int
    ep_types: tuple[EpType, ...] = (EpType.RDM, EpType.DGRAM)
    mr_key_size: int = 8
    cq_data_size: int = 8


class Fabric(DrivenNetwork):
    """`fi_fabric` is a network of nodes, each with one fabric endpoint, that runs in virtual time. It is a context
    manager."""

    world: "FiNetwork"
    """The emulated network; a fabric that is not emulated does not have this attribute."""
    live: "LiveFabric"
    """Driver of the live link; an emulated fabric does not have this attribute."""
    checks = CHECKS

    def __init__(
        self, nodes: Iterable[str] | Mapping[str, NodeSpec] = ("a", "b"), *, how: Encapsulation | None = None,
        pds: PdsConfig | None = None, ses: SesConfig | None = None, trimming: bool = False,
        cc: str | Mapping[str, Any] | None = None, lb: str = "mixed", live: Interface | None = None,
        **network: Unpack[NetworkKeywords],
    ) -> None:  # fmt: skip
        """Emulate a network of nodes, given by name, around a switch or in another topology.

        `how` is the encapsulation of packets. `pds` and `ses` are parameters of all nodes; a `NodeSpec` may replace
        them for its node. `trimming`, `cc`, `lb` and `network` are explained at `NetworkOptions`. Raises FI_EINVAL for
        illegal arguments, and `LocalError` or `OSError` for the capture file.

        With `live`, nothing is emulated: the fabric is this host's node "local" on a real link, with real time, and
        `trimming`, `lb` and `network` do not apply. There `cc` is "nscc" unless it is "off", and `pds` is completed by
        `live.rate.live_pds`. Raises `LocalError` or `OSError` if an address, a port or a file is not to be had.
        """
        if live is not None:
            self._open_live(nodes, live, how or Encapsulation(), pds, ses or SesConfig(), cc or "nscc", network)
            return
        from uetproto.api.fi.emulated import FiNetwork, NetworkOptions

        self.world = FiNetwork(
            nodes,
            NetworkOptions.of(network, trimming=trimming, cc="off" if cc is None else cc, lb=lb),
            how=Encapsulation() if how is None else how,
            pds=PdsConfig() if pds is None else pds,
            ses=SesConfig() if ses is None else ses,
        )
        self._begin(self.world, self.world.nodes)

    def _open_live(
        self, nodes: Iterable[str] | Mapping[str, NodeSpec], live: Interface, how: Encapsulation,
        pds: PdsConfig | None, ses: SesConfig, cc: str | Mapping[str, Any], network: NetworkKeywords,
    ) -> None:  # fmt: skip
        from uetproto.api.fi.live import LiveFabric

        if network:
            raise invalid(next(iter(network)), "given", "none with live", id="not-with-live")
        if not isinstance(cc, str) or cc not in LIVE_CC:
            raise invalid("cc", cc, why_not(cc), id="unknown-algorithm")
        if not isinstance(live, Interface):
            raise invalid("live", live, "Interface(...)", id="wrong-type")
        names = tuple(nodes) if nodes != ("a", "b") else (LOCAL,)
        if len(names) != 1:
            raise invalid("nodes", f"{len(names)} nodes", "one with live, which is this host", id="not-with-live")
        self.live = LiveFabric(names[0], live, how=how, pds=pds, ses=ses, cc=cc)
        self._begin(self.live, {names[0]: self.live.fi_node})

    @classmethod
    def driven(cls, driver: EndpointDriver, nodes: Mapping[str, FiNode]) -> Self:
        """Return a fabric whose nodes are run by `driver`, for example by a driver of real sockets."""
        fabric = cls.__new__(cls)
        fabric._begin(driver, nodes)
        return fabric

    def _begin(self, driver: EndpointDriver, nodes: Mapping[str, FiNode]) -> None:
        self.driver = driver
        self.nodes = nodes
        self.domains: list[Domain] = []
        self.job = Job()
        """Job of the domains that name none."""
        self._introduced: list[Endpoint] = []

    # The long way

    def getinfo(self) -> list[Info]:
        """`fi_getinfo` returns an entry for the fabric endpoint of each node."""
        return [
            Info(
                domain_name=name, src_addr=str(ip_address(node.fep.address)),
                caps=FepCap(sum(FepCap[part.upper()] for part in node.ses.profile.split("+"))),
                mtu=node.ses.payload_mtu, max_msg_size=node.ses.max_msg_size, inject_size=node.ses.inject_size,
                iov_limit=node.ses.iov_limit, tx_size=node.ses.tx_size, rx_size=node.ses.rx_size,
            )
            for name, node in self.nodes.items()
        ]  # fmt: skip

    def domain(
        self, node: str, job: Job | None = None, *, pid_on_fep: int | None = None, absolute: bool = False,
        mr_mode: MrMode = MrMode.NONE,
    ) -> Domain:  # fmt: skip
        """`fi_domain` makes a process of `job` at a node. The PIDonFEP of the process is `pid_on_fep`; if this is None,
        it is the first free PIDonFEP.

        With `absolute` the process is a service for clients of any job. Raises FI_EINVAL for an illegal argument,
        FI_EADDRINUSE for a PIDonFEP that is taken, and FI_EOPBADSTATE if the fabric is closed.
        """
        if self.closed:
            raise FiError(Errno.FI_EOPBADSTATE, "fabric.domain", "the fabric is closed", id="closed")
        if not isinstance(node, str) or node not in self.nodes:
            raise invalid("node", node, self.nodes, id="unknown-node")
        if job is not None and not isinstance(job, Job):
            raise invalid("job", job, "Job(...)", id="wrong-type")
        domain = Domain(
            self,
            self.nodes[node],
            self.job if job is None else job,
            pid_on_fep=pid_on_fep,
            absolute=absolute,
            mr_mode=mr_mode,
        )
        self.domains.append(domain)
        return domain

    # The short way

    def endpoint(
        self, node: str, ep_type: EpType = EpType.RDM, *, msg_order: Order = Order.NONE, op_flags: Flag = Flag.NONE,
        job: Job | None = None, mr_mode: MrMode = MrMode.NONE, cq_size: int | None = None,
        cq_format: CqFormat = CqFormat.TAGGED,
    ) -> Endpoint:  # fmt: skip
        """Make a process with one enabled endpoint, whose completions all go to `endpoint.cq`.

        The endpoints that this method makes have each other's addresses in their address vectors, so `peer.address` can
        be used as a destination. Raises the errors of `domain`.
        """
        domain = self.domain(node, job, mr_mode=mr_mode)
        endpoint = domain.endpoint(ep_type, msg_order=msg_order, op_flags=op_flags)
        endpoint.bind(domain.av_open())
        endpoint.bind(domain.cq_open(cq_size, cq_format), Flag.TRANSMIT | Flag.RECV)
        endpoint.enable()
        for other in self._introduced:
            other.av.insert(endpoint.address)
            endpoint.av.insert(other.address)
        self._introduced.append(endpoint)
        return endpoint
