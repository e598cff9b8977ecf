# SPDX-License-Identifier: GPL-2.0-only
"""This module implements one rank's end of multicast over RoCE (collectives.md §3.10).

Chunks of a block are UD SENDs with immediate data to a multicast group. Tokens, grants and RDMA READs go over the ring,
which consists of RC queue pairs between neighbouring ranks.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from uetproto.api.distributed.networks.packets import PacketNetwork
from uetproto.api.verbs.node import VerbsNode
from uetproto.collectives.multicast.barrier import TransportBarrier
from uetproto.collectives.multicast.config import MulticastConfig
from uetproto.collectives.multicast.end import Cancel, Done
from uetproto.collectives.multicast.rank import MulticastRank
from uetproto.collectives.multicast.wire import ReadGrant
from uetproto.collectives.transport import TransportError
from uetproto.engine.contract import Buffer
from uetproto.engine.roce.contract import (
    Access,
    AddressVector,
    ModifyQp,
    Opcode,
    PostRecv,
    PostSend,
    PostSrqRecv,
    QpType,
    SendFlags,
    Sge,
    WcOpcode,
    WorkCompletion,
)
from uetproto.engine.roce.memory import RoceMemoryRegion
from uetproto.engine.roce.qp import bring_up_steps
from uetproto.engine.roce.ud import GRH_SIZE
from uetproto.errors import UetError
from uetproto.wire.headers.roce import BTH, DETH, IMM, MULTICAST_QP, Operation, opcode_of
from uetproto.wire.headers.roce import Transport as BthTransport

QKEY = 0x4D434153
"""Queue key (Q_Key) of the UD datagrams that carry chunks."""
MOST_GROUPS = 1 << 14
"""Largest number of groups of ranks that one network can make."""
MOST_SUBGROUPS = 1 << 8
_FIRST_ADDRESS = 239 << 24 | 1 << 22
"""First address, 239.64.0.0: the next 14 bits hold the group of ranks, the last 8 the subgroup. A multicast MAC
address holds the low 23 bits of the IP address."""
_RING_RECEIVES = 64
"""Receives that are posted to the shared receive queue of the ring; each is posted again at once."""
_RECORD = 12
"""Bytes of a grant, the longest message of the ring."""
_BARRIERS = 1 << 12
"""First group number in the tags of barriers; other collectives number their groups from 0."""
_CHUNK = opcode_of(BthTransport.UD, Operation.SEND_ONLY_WITH_IMMEDIATE)
_IMMEDIATE = slice(BTH.size + DETH.size, BTH.size + DETH.size + IMM.size)
_LAST = SendFlags.INLINE | SendFlags.SIGNALED


class MulticastNetwork(PacketNetwork):
    """This class describes the methods that multicast needs of a network of RoCE adapters."""

    path_mtu: int

    @abstractmethod
    def node(self, rank: int) -> VerbsNode:
        """Return the node whose adapter the rank `rank` uses."""

    @abstractmethod
    def psn(self) -> int:
        """Return the PSN with which a new queue pair begins to send."""


def addresses(group: int, subgroups: int) -> list[int]:
    """Return the multicast addresses of the subgroups of a group of ranks."""
    return [_FIRST_ADDRESS + (group << 8) + subgroup for subgroup in range(subgroups)]


class Nowhere:
    """This class represents memory without content. It has the methods of `engine.memory.Memory`. Writes are dropped,
    reads return zeros, and no storage is used."""

    def __init__(self, length: int) -> None:
        self.length = length

    def read(self, offset: int, length: int) -> bytes:
        """Return zeros in place of the content."""
        return bytes(length)

    def write(self, offset: int, data: Buffer) -> None:
        """Drop the bytes in `data`."""

    def flush(self) -> None:
        """Do nothing, because nothing is stored."""


class MulticastGroupEnd:
    """This class implements `MulticastEnd` for one rank of a group of ranks: the multicast protocol uses the network by
    the methods of this class."""

    machines: MulticastRank

    def __init__(
        self, network: MulticastNetwork, group: int, ranks: tuple[int, ...], place: int, config: MulticastConfig
    ) -> None:
        self.network = network
        self.rank, self.size = place, len(ranks)
        self._group, self._ranks = group, ranks
        self._node = network.node(ranks[place])
        self.hca = self._node.hca
        self._pd = self.hca.alloc_pd()
        # Chunks
        self._slot = config.mtu + GRH_SIZE
        self._staging = memoryview(bytearray(config.subgroups * config.depth * self._slot))
        self._pool = self.hca.reg_mr(self._pd, self._staging, access=Access.LOCAL_WRITE)
        self._receives: list[PostRecv] = []
        """Receives by slot; each is posted again and again."""
        self._groups = [AddressVector(address) for address in addresses(group, config.subgroups)]
        self.chunks = [self._datagrams(number, config.depth) for number in range(config.subgroups)]
        """Queue pairs by subgroup."""
        self._subgroups = {qp: number for number, qp in enumerate(self.chunks)}
        # The ring
        self.qps: dict[int, int] = {}
        """Queue pairs by peer."""
        self.psns: dict[int, int] = {}
        self._peers: dict[int, int] = {}
        self._broken: dict[int, str] = {}
        """Status with which a queue pair failed first; all its later work requests are only flushed."""
        self._records = bytearray(_RING_RECEIVES * _RECORD)
        self._record_pool = self.hca.reg_mr(self._pd, self._records, access=Access.LOCAL_WRITE)
        self._srq = self.hca.create_srq(self._pd)
        for number in range(_RING_RECEIVES):
            self._await_ring(number)
        self._works = 0
        self._under_way: dict[int, Done] = {}
        self._regions: dict[ReadGrant, RoceMemoryRegion] = {}
        self.barrier = TransportBarrier(network.end(ranks[place]), _BARRIERS + group % _BARRIERS, ranks)
        self._node.listeners.append(self._event)

    # Queue pairs

    def _datagrams(self, subgroup: int, depth: int) -> int:
        """Make a queue pair of type UD, attached to the group of a subgroup, and return its number."""
        hca = self.hca
        number = hca.create_qp(QpType.UD, self._pd)
        wanted = {"pkey_index": 0, "port": 1, "qkey": QKEY, "sq_psn": 0}
        for state, attributes in bring_up_steps(QpType.UD, hca.config, wanted):
            hca.submit(ModifyQp(qp_num=number, state=state, attributes=attributes), self.now)
        for slot in range(subgroup * depth, (subgroup + 1) * depth):
            where = Sge(slot * self._slot, self._slot, self._pool.lkey)
            self._receives.append(PostRecv(qp_num=number, wr_id=slot, sg_list=(where,)))
            hca.submit(self._receives[slot], self.now)
        hca.attach_mcast(number, self.address(subgroup))
        return number

    def address(self, subgroup: int) -> int:
        """Return the IPv4 address of the multicast group of a subgroup, as a number."""
        return self._groups[subgroup].dst

    def make(self, peer: int) -> None:
        """Make a queue pair to the rank `peer`, a neighbour on the ring; the state of the queue pair is RESET."""
        number = self.qps[peer] = self.hca.create_qp(QpType.RC, self._pd, srq=self._srq)
        self.psns[peer] = self.network.psn()
        self._peers[number] = peer

    def bring_up(self, peer: int, other: "MulticastGroupEnd") -> None:
        """Bring the queue pair to the rank `peer` to RTS, with the queue pair numbers and PSNs that both ends tell each
        other out of band."""
        wanted: dict[str, Any] = {
            "pkey_index": 0, "port": 1, "access_flags": Access.LOCAL_WRITE | Access.REMOTE_READ,
            "av": AddressVector(other._node.address), "dest_qpn": other.qps[self.rank],
            "rq_psn": other.psns[self.rank], "sq_psn": self.psns[peer],
        }  # fmt: skip
        for state, attributes in bring_up_steps(QpType.RC, self.hca.config, wanted):
            self.hca.submit(ModifyQp(qp_num=self.qps[peer], state=state, attributes=attributes), self.now)

    def only_count(self, only: bool) -> None:
        """Make the NIC only count the chunks of other ranks if `only` is True, or deliver those chunks if `only` is
        False.

        A chunk that is only counted uses no posted receive, and its bytes are not written.
        """
        for group, receiver in zip(self._groups, self.machines.receivers, strict=True):
            self.network.world.network.nics[self._node.name].divert(
                group.dst, _counting(receiver.on_chunk) if only else None
            )

    def close(self) -> None:
        """Destroy the queue pairs and deregister the memory regions."""
        self._node.listeners.remove(self._event)
        for number in (*self.chunks, *self.qps.values()):
            self.hca.destroy_qp(number)
        for region in (self._pool, self._record_pool, *self._regions.values()):
            self.hca.dereg_mr(region)

    def _await_ring(self, number: int) -> None:
        where = (Sge(number * _RECORD, _RECORD, self._record_pool.lkey),)
        self.hca.submit(PostSrqRecv(srq_num=self._srq, wr_id=number, sg_list=where), self.now)

    # Calls of the protocol machines (`MulticastEnd`)

    @property
    def now(self) -> int:
        return self.network.now

    def after(self, delay: int, action: Callable[[], None]) -> Cancel:
        timers = self.network.timers
        timer = timers.at(self.now + delay, action)
        return lambda: timers.cancel(timer)

    def chunk(self, subgroup: int, immediate: int, data: memoryview, done: Done | None) -> None:
        work = PostSend(
            qp_num=self.chunks[subgroup], wr_id=self._told(done), opcode=Opcode.SEND_WITH_IMM, imm_data=immediate,
            inline=data, send_flags=SendFlags.INLINE if done is None else _LAST, ah=self._groups[subgroup],
            remote_qpn=MULTICAST_QP, remote_qkey=QKEY,
        )  # fmt: skip
        if done is None:  # only the last chunk of a batch has `done`, and makes the NIC send the batch
            self.hca.submit(work, self.now)
        else:
            self._node.submit(work)

    def token(self, peer: int, done: Done) -> None:
        self._send(peer, done, opcode=Opcode.SEND, inline=b"")

    def control(self, peer: int, immediate: int, done: Done) -> None:
        self._send(peer, done, opcode=Opcode.SEND_WITH_IMM, imm_data=immediate, inline=b"")

    def grant(self, peer: int, record: bytes, done: Done) -> None:
        self._send(peer, done, opcode=Opcode.SEND, inline=record)

    def read(self, peer: int, address: int, rkey: int, length: int, into: memoryview | None, done: Done) -> None:
        memory = Nowhere(length) if into is None else into
        region = self.hca.reg_mr(self._pd, memory, access=Access.LOCAL_WRITE)

        def ended(error: UetError | None) -> None:
            self.hca.dereg_mr(region)
            done(error)

        self._node.submit(PostSend(
            qp_num=self.qps[peer], wr_id=self._told(ended), opcode=Opcode.RDMA_READ, rkey=rkey, remote_addr=address,
            sg_list=(Sge(region.addr, length, region.lkey),),
        ))  # fmt: skip

    def register(self, buffer: memoryview | None, length: int) -> ReadGrant:
        memory = Nowhere(length) if buffer is None else buffer
        region = self.hca.reg_mr(self._pd, memory, access=Access.LOCAL_WRITE | Access.REMOTE_READ)
        grant = ReadGrant(region.addr, region.rkey)
        self._regions[grant] = region
        return grant

    def unregister(self, grant: ReadGrant) -> None:
        self.hca.dereg_mr(self._regions.pop(grant))

    def _told(self, done: Done | None) -> int:
        self._works += 1
        if done is not None:
            self._under_way[self._works] = done
        return self._works

    def _send(self, peer: int, done: Done, **work: Any) -> None:
        self._node.submit(PostSend(qp_num=self.qps[peer], wr_id=self._told(done), send_flags=_LAST, **work))

    # Events of the adapter

    def _event(self, event: Any) -> None:
        if type(event) is not WorkCompletion:
            return
        subgroup = self._subgroups.get(event.qp_num)
        if subgroup is not None:
            self._on_datagram(subgroup, event)
        elif event.qp_num in self._peers:
            self._on_ring(event)

    def _on_datagram(self, subgroup: int, event: WorkCompletion) -> None:
        if not event.receive:
            self._ended(event, "all")
        elif event.ok:
            slot = event.wr_id
            if event.imm_data is not None:
                start = slot * self._slot
                data = self._staging[start + GRH_SIZE : start + event.byte_len]
                self.machines.receivers[subgroup].on_chunk(event.imm_data, data)
            self.hca.submit(self._receives[slot], 0)

    def _on_ring(self, event: WorkCompletion) -> None:
        peer = self._peers[event.qp_num]
        if not event.receive:
            self._ended(event, str(self._ranks[peer]))
            return
        if not event.ok:
            return
        start = event.wr_id * _RECORD
        record = bytes(self._records[start : start + event.byte_len])
        self._await_ring(event.wr_id)
        if event.imm_data is not None and event.opcode is WcOpcode.RECV:
            self.machines.on_control(peer, event.imm_data)
        elif record:
            self.machines.on_grant(peer, record)
        else:
            self.machines.on_token(peer)

    def _ended(self, event: WorkCompletion, peer: str) -> None:
        """Handle the completion of a SEND or READ of this rank."""
        if not event.ok:
            self._broken.setdefault(event.qp_num, event.status.name)
        done = self._under_way.pop(event.wr_id, None)
        if done is None:
            return
        failure = None
        if not event.ok:
            why = self._broken[event.qp_num]
            failure = TransportError(
                f"message from rank {self._ranks[self.rank]} to rank {peer}: {why}{self.network.world.obituary}",
                id="message-lost",
            )
        done(failure)
        self.network.world.wake()


def _counting(on_chunk: Callable[[int, None], None]) -> Callable[[Any, int], None]:
    def take(packet: Any, now: int) -> None:
        header = packet.header
        if header[0] == _CHUNK:
            on_chunk(int.from_bytes(header[_IMMEDIATE], "big"), None)

    return take


def join_ring(ends: list[MulticastGroupEnd]) -> None:
    """Make and connect a queue pair between any two neighbours on the ring."""
    size = len(ends)
    pairs = sorted({(min(r, (r + 1) % size), max(r, (r + 1) % size)) for r in range(size)}) if size > 1 else []
    for a, b in pairs:
        ends[a].make(b)
        ends[b].make(a)
    for a, b in pairs:
        ends[a].bring_up(b, ends[b])
        ends[b].bring_up(a, ends[a])
