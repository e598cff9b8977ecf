# SPDX-License-Identifier: GPL-2.0-only
"""This module connects ranks over RoCE (collectives.md §5). A rank makes an RC queue pair to a peer when it first needs
a connection to this peer.

Grants are SENDs, and data is RDMA WRITEs with immediate. An immediate has 32 bits, too few for a tag (seq, phase, step,
chunk), so it carries the number of the receive, which the sender knows from the grant.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from uetproto.api.distributed.errors import invalid
from uetproto.api.distributed.networks.multicast import MulticastOffload
from uetproto.api.distributed.networks.multicast_end import MulticastNetwork
from uetproto.api.distributed.networks.packets import (
    RECORD,
    Awaited,
    GrantingEnd,
    ReceiveGrant,
    names,
    options,
)
from uetproto.api.distributed.networks.sharp import SharpOffload
from uetproto.api.distributed.networks.sharp_fabric import SharpFabric, settings
from uetproto.api.verbs.emulated import VerbsNetwork
from uetproto.api.verbs.node import NodeSpec, VerbsNode
from uetproto.collectives.offload import Offloads
from uetproto.collectives.transport import Done, TransportError
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import (
    Access,
    AddressVector,
    ModifyQp,
    Opcode,
    PostSend,
    PostSrqRecv,
    QpType,
    SendFlags,
    Sge,
    WcOpcode,
    WorkCompletion,
)
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.memory import RoceMemoryRegion
from uetproto.engine.roce.psn import BITS
from uetproto.engine.roce.qp import bring_up_steps
from uetproto.engine.sharp.carriers.roce import RoceCarrier
from uetproto.engine.sharp.contract import Element
from uetproto.engine.sharp.options import SharpOptions
from uetproto.errors import LocalError
from uetproto.wire.headers.roce import PMTUS

RECEIVES = 64
"""Number of receives in a rank's shared receive queue. These receives take grants and immediates; each receive is
posted again as soon as it completes."""

_PLAIN = SendFlags(0)
_ACCESS = Access.LOCAL_WRITE | Access.REMOTE_WRITE


class RoceEnd(GrantingEnd):
    """This class moves the messages of one rank by RDMA WRITE."""

    network: "RoceNetwork"

    def __init__(self, network: "RoceNetwork", rank: int, node: VerbsNode) -> None:
        super().__init__(network, rank)
        self.node = node
        self._hca = node.hca
        self._pd = self._hca.alloc_pd()
        self._srq = self._hca.create_srq(self._pd)
        self._records = bytearray(RECEIVES * RECORD)
        self._pool = self._hca.reg_mr(self._pd, self._records, access=Access.LOCAL_WRITE)
        self._qps: dict[int, int] = {}
        self._peers: dict[int, int] = {}
        """Peers by the number of the queue pair."""
        self._regions: dict[int, RoceMemoryRegion] = {}
        """Memory regions by slot."""
        self._under_way: dict[int, Callable[[WorkCompletion], None]] = {}
        self._works = 0
        self._broken: dict[int, str] = {}
        """Status with which a queue pair failed first, by peer; all its later work requests are only flushed."""
        for number in range(RECEIVES):
            self._post(number)
        node.listeners.append(self._event)

    def _post(self, number: int) -> None:
        where = Sge(number * RECORD, RECORD, self._pool.lkey)
        self._hca.submit(PostSrqRecv(srq_num=self._srq, wr_id=number, sg_list=(where,)), self.now)

    # Connections

    def make(self, peer: int) -> int:
        """Make a queue pair for the rank `peer`, in the state RESET, and return the queue pair's number."""
        number = self._hca.create_qp(QpType.RC, self._pd, srq=self._srq)
        self._qps[peer] = number
        self._peers[number] = peer
        return number

    def bring_up(self, peer: int, remote: int, own_psn: int, their_psn: int) -> None:
        """Bring the queue pair for the rank `peer` to RTS; `remote` and `their_psn` are the queue pair number and the
        first PSN of the peer, learned out of band."""
        wanted = {
            "pkey_index": 0, "port": 1, "access_flags": _ACCESS, "av": AddressVector(self.network.addresses[peer]),
            "dest_qpn": remote, "rq_psn": their_psn, "sq_psn": own_psn,
        }  # fmt: skip
        for state, attributes in bring_up_steps(QpType.RC, self._hca.config, wanted):
            self._hca.submit(ModifyQp(qp_num=self._qps[peer], state=state, attributes=attributes), self.now)

    def _to(self, peer: int) -> int:
        if peer not in self._qps:
            self.network.connect(self.rank, peer)
        return self._qps[peer]

    # For `GrantingEnd`

    def open(self, slot: int, awaited: Awaited) -> tuple[int, int]:
        region = self._regions[slot] = self._hca.reg_mr(self._pd, awaited.into, access=_ACCESS)
        return region.rkey, region.addr

    def close(self, slot: int, awaited: Awaited) -> None:
        self._hca.dereg_mr(self._regions.pop(slot))

    def send_record(self, peer: int, grant: ReceiveGrant, done: Done) -> None:
        self._submit(peer, done, opcode=Opcode.SEND, inline=grant.pack(), flags=SendFlags.INLINE)

    def write(self, peer: int, grant: ReceiveGrant, data: memoryview, done: Done) -> None:
        region = self._hca.reg_mr(self._pd, data, access=Access(0))

        def written(failure: TransportError | None) -> None:
            self._hca.dereg_mr(region)
            done(failure)

        self._submit(
            peer, written, opcode=Opcode.RDMA_WRITE_WITH_IMM, imm_data=grant.slot, rkey=grant.key,
            remote_addr=grant.address, sg_list=(Sge(region.addr, data.nbytes, region.lkey),),
        )  # fmt: skip

    def _submit(self, peer: int, done: Done, *, flags: SendFlags = _PLAIN, **work: Any) -> None:
        self._works += 1

        def ended(completion: WorkCompletion) -> None:
            if completion.ok:
                done(None)
                return
            why = self._broken.setdefault(peer, completion.status.name)
            done(
                TransportError(
                    f"message from rank {self.rank} to rank {peer}: {why}{self.network.world.obituary}",
                    id="message-lost",
                )
            )

        number = self._to(peer)
        self._under_way[self._works] = ended
        self.node.submit(PostSend(
            qp_num=number, wr_id=self._works, send_flags=flags | SendFlags.SIGNALED, **work,
        ))  # fmt: skip

    def _event(self, event: Any) -> None:
        if not isinstance(event, WorkCompletion) or event.qp_num not in self._peers:
            return  # not a completion, or one of a queue pair that is not in `_peers`
        if not event.receive:
            self._under_way.pop(event.wr_id)(event)
            return
        if not event.ok:
            return
        record = self._records[event.wr_id * RECORD : (event.wr_id + 1) * RECORD]
        self._post(event.wr_id)
        if event.opcode is WcOpcode.RECV:
            self.on_record(self._peers[event.qp_num], ReceiveGrant.unpack(record))
        else:
            assert event.imm_data is not None
            self.on_written(event.imm_data)


def _carrier(hca: Hca, element: Element, options: SharpOptions) -> RoceCarrier:
    return RoceCarrier(
        hca, element, timeout=options.ib_timeout, retry_cnt=options.ib_retry_count,
        min_rnr_timer=options.ib_rnr_timer, rnr_retry=options.ib_rnr_retry,
    )  # fmt: skip


class RoceNetwork(MulticastNetwork):
    """This class is an emulated network in which each rank has a RoCE adapter."""

    def __init__(self, size: int, **given: Any) -> None:
        """Make the network. Raises `ArgumentError` for options that are not legal.

        Options are those of `NetworkOptions`, and `config`, `hosts`, `nodes`, `cross_nic`, `intra_bandwidth` and
        `intra_latency`. `way` can only be "write", as a SEND would need a posted receive. `multicast` is a
        `MulticastConfig(...)`, or has the keywords of one that differ from what fits the network. `sharp` is True, or
        has options by name, to put an aggregation node into every switch (`sharp_fabric.settings`).
        """
        cables, intra, rest = options(size, given, ("config", "way", "multicast", "sharp"))
        config = rest.setdefault("config", RoceConfig())
        mtus = (config.path_mtu,) if isinstance(config, RoceConfig) else PMTUS  # the world refuses anything else
        sharp = settings(rest.pop("sharp", None), cables, mgid=("ipv4", "none"), path_mtu=mtus)
        multicast = rest.pop("multicast", None)
        if (way := rest.pop("way", "write")) != "write":
            raise invalid("way", repr(way), "write; over roce messages are not moved by SENDs", id="not-with-transport")
        hosts = names(size)
        specs, fabric = dict.fromkeys(hosts, NodeSpec()), None
        if sharp is not None:
            fabric = SharpFabric(*sharp, _carrier, multicast=True)
            specs, cables = fabric.specs(hosts, cables, NodeSpec), replace(cables, sharp=True)
        world = VerbsNetwork(specs, cables, **rest)
        super().__init__(size, world, intra)
        self._psns = world.psns
        nodes = list(world.nodes.values())
        self.addresses = [node.address for node in nodes]
        self.ends: list[RoceEnd] = [RoceEnd(self, rank, node) for rank, node in enumerate(nodes[:size])]
        self.path_mtu = world.config.path_mtu
        try:
            self.multicast = MulticastOffload(self, multicast)
        except LocalError:
            world.close(drain=False)
            raise
        self.offload = Offloads(self.multicast)
        self.sharp: SharpOffload | None = None
        if fabric is not None:
            self.sharp = SharpOffload(self, fabric, nodes[: len(hosts)], cables, self.psn)
            self.offload.members.append(self.sharp)

    def node(self, rank: int) -> VerbsNode:
        return self.ends[rank].node

    def psn(self) -> int:
        return self._psns.getrandbits(BITS)

    def connect(self, a: int, b: int) -> None:
        """Connect a queue pair of rank `a` and one of rank `b`. Their numbers and PSNs are exchanged out of band,
        without packets."""
        ends = self.ends[a], self.ends[b]
        numbers = ends[0].make(b), ends[1].make(a)
        psns = [self.psn() for _ in ends]
        ends[0].bring_up(b, numbers[1], psns[0], psns[1])
        ends[1].bring_up(a, numbers[0], psns[1], psns[0])


network = RoceNetwork  # of `World(transport="roce")`
