"""The fabric of the libfabric-shaped API: the emulated network, its nodes and its time."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from types import TracebackType
from typing import Any

from uetproto.api.fi.address import Address, AddressFlag
from uetproto.api.fi.av import AddressVector
from uetproto.api.fi.cq import CompletionQueue, Counter, CqDataEntry, CqEntry, CqErrEntry, CqMsgEntry, CqTaggedEntry
from uetproto.api.fi.domain import Domain, Job
from uetproto.api.fi.endpoint import EpState
from uetproto.api.fi.errors import Errno, FiError, RetryClass, invalid
from uetproto.api.fi.flags import ADDR_UNSPEC, CqFormat, EpType, FepCap, Flag, MrMode, Order
from uetproto.api.fi.memory import MemoryRegion, MrState
from uetproto.api.fi.node import Encapsulation, FiWorld, NodeSpec
from uetproto.api.fi.transfers import Endpoint
from uetproto.api.network import Cables, Faults
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import MICROSECOND
from uetproto.engine.memory import FileMemory
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode, ReturnCode

Op = AtomicOpcode
"""`FI_SUM` is `Op.SUM`, `FI_ATOMIC_READ` is `Op.READ`; the numbers are those of the wire, not libfabric's."""
Datatype = AtomicDatatype
"""`FI_UINT64` is `Datatype.UINT64`; the numbers are those of the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """`fi_info`: one fabric endpoint, and what it can (ses.md §14.1 phase 4)."""

    fabric_name: str = "UET"
    prov_name: str = "uet"
    domain_name: str
    src_addr: str
    caps: FepCap
    mtu: int
    """Payload of a packet, bytes."""
    max_msg_size: int
    inject_size: int
    iov_limit: int
    tx_size: int
    rx_size: int
    ep_types: tuple[EpType, ...] = (EpType.RDM, EpType.DGRAM)
    mr_key_size: int = 8
    cq_data_size: int = 8


class Fabric:
    """`fi_fabric`: the emulated network and its time; a context manager."""

    def __init__(
        self, nodes: Iterable[str] | Mapping[str, NodeSpec] = ("a", "b"), *, topology: str = "switch",
        shape: Mapping[str, int] | None = None, rate: int | str = "400 Gb/s", delay: int | str = MICROSECOND,
        mtu: int = 9216, queue_capacity: int | str = 1 << 20, trimming: bool = False, how: Encapsulation | None = None,
        faults: Faults | Mapping[str, Any] | None = None, faults_from: Iterable[str] = "all", seed: int = 0,
        capture: str | None = None, taps: Iterable[str] | None = None, pds: PdsConfig | None = None,
        ses: SesConfig | None = None, metered: bool = False,
    ) -> None:  # fmt: skip
        """Nodes by name, each with one fabric endpoint, around a switch, or two by a cable (topology "pair").

        Topologies of several switches are "leaf-spine", "fat-tree" and "rails"; `shape` has their parameters, such as
        {"hosts_per_leaf": 4, "spines": 2}, {"k": 4, "levels": 3}, {"gpus_per_node": 8}, and node i is their rank i.
        `metered`: links count payload too.
        `rate`: bits a second of each cable, or such as "400 Gb/s"; `delay`: of each cable; `mtu`: bytes of an IP
        packet; `queue_capacity`: bytes that each class of an output queue of the switch holds. `faults`: what the
        frames of the nodes `faults_from` meet, `Faults(...)` or its keywords. One `seed`, one run. `capture`: a file
        .pcapng or .pcap (also .gz) with what passes the ports `taps`, default the first node; "all": all of them.
        `pds`, `ses`: parameters of all nodes, and of one by `NodeSpec`.

        Raises FI_EINVAL for what cannot be, `LocalError` and `OSError` for the capture file.
        """
        self.world = FiWorld(
            nodes,
            how=Encapsulation() if how is None else how,
            pds=PdsConfig() if pds is None else pds,
            ses=SesConfig() if ses is None else ses,
            cables=Cables(
                topology=topology,
                shape={} if shape is None else shape,
                rate=rate,
                delay=delay,
                mtu=mtu,
                queue_capacity=queue_capacity,
                trimming=trimming,
                metered=metered,
            ),
            faults=Faults() if faults is None else faults,
            faults_from=faults_from,
            seed=seed,
            capture=capture,
            taps=taps,
        )
        self.domains: list[Domain] = []
        self.job = Job()
        """For domains that name none."""
        self._introduced: list[Endpoint] = []
        self.closed = False

    # The long way

    def getinfo(self) -> list[Info]:
        """`fi_getinfo`: one for each node."""
        return [
            Info(
                domain_name=name, src_addr=str(ip_address(node.fep.address)),
                caps=FepCap(sum(FepCap[part.upper()] for part in node.ses.profile.split("+"))),
                mtu=node.ses.payload_mtu, max_msg_size=node.ses.max_msg_size, inject_size=node.ses.inject_size,
                iov_limit=node.ses.iov_limit, tx_size=node.ses.tx_size, rx_size=node.ses.rx_size,
            )
            for name, node in self.world.nodes.items()
        ]  # fmt: skip

    def domain(
        self, node: str, job: Job | None = None, *, pid_on_fep: int | None = None, absolute: bool = False,
        mr_mode: MrMode = MrMode.NONE,
    ) -> Domain:  # fmt: skip
        """`fi_domain`: a process of `job` at a node, with the next free PIDonFEP.

        `absolute`: a service for clients of any job. Raises FI_EINVAL, FI_EADDRINUSE for a PIDonFEP that is taken,
        FI_EOPBADSTATE when the fabric is closed.
        """
        if self.closed:
            raise FiError(Errno.FI_EOPBADSTATE, "fabric.domain", "the fabric is closed")
        if not isinstance(node, str) or node not in self.world.nodes:
            raise invalid("node", node, ", ".join(self.world.nodes))
        if job is not None and not isinstance(job, Job):
            raise invalid("job", job, "Job(...)")
        domain = Domain(
            self,
            self.world.nodes[node],
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
        """A process with one enabled endpoint, `endpoint.cq` for all its completions, and all others in its vector.

        Every endpoint made so knows every other: `peer.address` is enough for a destination. Raises as `domain`.
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

    # Time

    @property
    def now(self) -> int:
        """Virtual time, picoseconds."""
        return self.world.clock.now

    def run(self, until: int | str | Callable[[], bool] | None = None) -> bool:
        """Runs virtual time: to an instant (picoseconds, or such as "1 ms"), until a condition holds, or (None) until
        nothing more would happen by itself.

        A send that waits for a receive of its peer does not keep it running: it completes in a later run. True but for
        a condition that does not hold when nothing more would happen. Raises FI_EINVAL for an instant
        that has passed.
        """
        return self.world.run(until)

    def close(self) -> None:
        """`fi_close`: what is under way arrives, then the capture is whole. No operation can begin afterwards.

        What waits for a receive is lost, without a completion.
        """
        self._close(drain=True)

    def _close(self, drain: bool) -> None:
        if not self.closed:
            self.closed = True
            self.world.close(drain)

    def __enter__(self) -> "Fabric":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(drain=kind is None)


__all__ = [
    "ADDR_UNSPEC", "Address", "AddressFlag", "AddressVector", "CompletionQueue", "Counter", "CqDataEntry", "CqEntry",
    "CqErrEntry", "CqFormat", "CqMsgEntry", "CqTaggedEntry", "Datatype", "Domain", "Encapsulation", "Endpoint",
    "EpState", "EpType", "Errno", "Fabric", "Faults", "FepCap", "FiError", "FileMemory", "Flag", "Info", "Job",
    "MemoryRegion", "MrMode", "MrState", "NodeSpec", "Op", "Order", "PdsConfig", "RetryClass", "ReturnCode",
    "SesConfig",
]  # fmt: skip
