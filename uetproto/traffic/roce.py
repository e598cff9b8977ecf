# SPDX-License-Identifier: GPL-2.0-only
"""This module makes RoCE traffic with adapters, queue pairs that are brought up when needed, and their operations.

When an RC queue pair is in error, it and its peer are destroyed, and the next operation makes a new connection. A UC or
UD queue pair goes from SQE back to RTS (roce.md §6).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from uetproto.engine.contract import Datagram, Rng
from uetproto.engine.roce.config import ENDLESS, RoceConfig
from uetproto.engine.roce.contract import (
    FULL_ACCESS,
    Access,
    AddressVector,
    ModifyQp,
    Opcode,
    PostRecv,
    PostSend,
    QpState,
    QpType,
    RocePacket,
    Sge,
    WorkCompletion,
)
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.psn import BITS
from uetproto.engine.roce.qp import bring_up_steps
from uetproto.engine.roce.segments import ATOMIC_SIZE, ATOMICS, KINDS
from uetproto.engine.roce.ud import GRH_SIZE
from uetproto.framing.roce import RoceFramer
from uetproto.framing.sizes import ETHERNET_SIZE, ip_size
from uetproto.traffic.memory import REGION_LENGTH, Repeating
from uetproto.traffic.profile_file import Mix
from uetproto.traffic.profile_roce import RoceProfile
from uetproto.traffic.roce_errors import FOREIGN, KEYED, MISSING, NOBODY, PRIVATE, MetReceive, ways_of
from uetproto.traffic.wire import DirectWire
from uetproto.traffic.workload import LATE_BY, Workload
from uetproto.wire.headers.roce import MULTICAST_QP

BASE = 0x2000_0000
"""Address of the first byte of all regions."""

_PLAIN, _LENT = 0x2001, 0x2004
"""The r_keys of the region that peers work on, and of a region that SEND_WITH_INV may invalidate."""
_QKEY = 0x1111_1111
_FIRST_QP = 0x11
_GROUPS = {4: 0xEF010000, 6: 0xFF12 << 112}
"""Address of the first multicast group: 239.1.0.0, ff12::."""
_LINGER = 32
"""Number of wire delays after which an unused queue pair is destroyed: its last packets have arrived."""


class DatagramFramer(RoceFramer):
    """This framer stores the IP header of a UD packet in the packet object, because the wire passes on the object and
    no frame.

    The receiver of a datagram gets this header with its payload (roce.md §11).
    """

    def __init__(self, address: int, ip_version: int, config: RoceConfig) -> None:
        super().__init__(address, ip_version, config)
        self._network = slice(ETHERNET_SIZE, ETHERNET_SIZE + ip_size(ip_version))

    def frame(self, packet: Datagram) -> bytes:
        frame = super().frame(packet)
        if isinstance(packet, RocePacket) and packet.header[0] >> 5 == QpType.UD:
            packet.network = frame[self._network]
        return frame


class RoceStation:
    """This class holds an adapter, and the memory and queue pairs of its applications."""

    def __init__(
        self, address: int, profile: RoceProfile, wire: DirectWire, initiates: bool, chance: Callable[[str], Random],
        on_event: Callable[["RoceStation", Any], None],
    ) -> None:  # fmt: skip
        config = profile.roce
        self.address = address
        self.hca = Hca(address, config=config, ip_version=profile.ip)
        self.hca.line_rate = profile.rate
        framer = DatagramFramer if QpType.UD in profile.transports else RoceFramer
        self.port = wire.attach(
            address, self.hca, framer(address, profile.ip, config), initiates=initiates,
            on_event=partial(on_event, self),
        )  # fmt: skip
        self.ends: dict[int, QueuePairEnd] = {}
        """Queue pairs, by queue pair number."""
        self.datagrams: dict[int, QueuePairEnd] = {}
        """UD queue pairs, by their number among those of this adapter, from 0."""
        self.memory = Repeating(REGION_LENGTH)
        """Memory that peers read and write."""
        register, self.pd = self.hca.reg_mr, self.hca.alloc_pd()
        source = Repeating(REGION_LENGTH, chance("data") if initiates else None)
        self.source = register(self.pd, source, addr=BASE, access=Access(0))
        """Memory from which messages are sent."""
        self.scratch = register(self.pd, Repeating(REGION_LENGTH), addr=BASE)
        """Memory into which reads and receives write."""
        register(self.pd, self.memory, addr=BASE, access=FULL_ACCESS, rkey=_PLAIN)
        register(self.pd, self.memory, addr=BASE, rkey=PRIVATE)
        register(self.hca.alloc_pd(), self.memory, addr=BASE, access=FULL_ACCESS, rkey=FOREIGN)
        self.lent = register(self.pd, self.memory, addr=BASE, access=FULL_ACCESS, rkey=_LENT)
        self._psns = chance("psn")
        self._number = _FIRST_QP - 1

    def lend_again(self) -> None:
        """Register the region `lent` again under the same r_key, after a peer has invalidated it."""
        self.hca.dereg_mr(self.lent)
        self.lent = self.hca.reg_mr(self.pd, self.memory, addr=BASE, access=FULL_ACCESS, rkey=_LENT)

    def create(self, kind: QpType, room: int, most: int) -> "QueuePairEnd":
        """Create a queue pair, which is in RESET. It takes up to `most` receives of `room` bytes each."""
        number = self._number + 1
        while number in self.ends or number >= NOBODY:
            number = number + 1 if number < NOBODY else _FIRST_QP
        self._number = number
        self.hca.create_qp(kind, self.pd, number=number, max_recv_wr=most)
        receive = PostRecv(qp_num=number, sg_list=(Sge(BASE, room, self.scratch.lkey),))
        end = self.ends[number] = QueuePairEnd(self, number, self._psns.getrandbits(BITS), receive, most)
        return end


@dataclass(slots=True, eq=False)
class QueuePairEnd:
    """This class represents a queue pair as one end of a connection. A UD queue pair is an end of many connections."""

    station: RoceStation
    number: int
    psn: int
    """PSN of the first request."""
    receive: PostRecv
    """Receive work request that is posted for each message."""
    most: int
    posted: int = 0
    """Number of receives that are posted and unused."""

    def bring_up(self, kind: QpType, peer: "QueuePairEnd | None", now: int) -> None:
        """Bring the queue pair to INIT, RTR and RTS, with the address, number and PSN of the queue pair `peer`, which
        is None for UD."""
        hca = self.station.hca
        wanted: dict[str, Any] = {
            "pkey_index": 0, "port": 1, "access_flags": FULL_ACCESS, "qkey": _QKEY, "sq_psn": self.psn,
        }  # fmt: skip
        if peer is not None:
            av = AddressVector(peer.station.address)
            wanted |= {"av": av, "dest_qpn": peer.number, "rq_psn": peer.psn}
        for state, attributes in bring_up_steps(kind, hca.config, wanted):
            hca.submit(ModifyQp(qp_num=self.number, state=state, attributes=attributes), now)

    @property
    def alive(self) -> bool:
        return self.number in self.station.ends

    def destroy(self) -> None:
        if self.alive:
            del self.station.ends[self.number]
            self.station.hca.destroy_qp(self.number)


_Key = tuple[int, int, QpType, int]  # addresses of initiator and target, transport, turn


@dataclass(slots=True, eq=False)
class RoceConnection:
    """This class represents a connection from an initiator to a target: a queue pair at each end."""

    key: _Key
    kind: QpType
    turn: int
    near: QueuePairEnd
    far: QueuePairEnd
    ah: AddressVector
    started: int = 0
    """Number of operations that were started."""
    open: int = 0
    """Number of operations that have not ended."""


class RoceWorkload(Workload[RoceProfile, RoceStation]):
    """This class draws and starts the operations of a profile of RoCE."""

    def __init__(self, profile: RoceProfile, wire: DirectWire, rng: Rng) -> None:
        super().__init__(profile, wire, rng)
        self.received: Counter[str] = Counter()
        """Number of receives that have completed, by status."""
        self.connections: dict[_Key, RoceConnection] = {}
        self.open: dict[int, RoceConnection] = {}
        """Connection of each open operation, by wr_id."""
        self._posted = 0
        self._mixes = {code: Mix.among(profile.transports, KINDS[code].services) for code in profile.operations.things}
        datagrams = profile.transports.keys() == {QpType.UD}
        self._largest = min(profile.largest, profile.roce.path_mtu) if datagrams else profile.largest
        self._ways = {
            (kind, code): ways_of(kind, code, profile, self._largest)
            for code, mix in self._mixes.items()
            for kind in mix.things
        }

    def join(self, address: int, initiates: bool, chance: Callable[[str], Random]) -> None:
        self.stations.append(RoceStation(address, self.profile, self.wire, initiates, chance, self._on_event))

    def naks(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for station in self.stations:
            for what, count in station.hca.counters.items():
                if what.startswith(("NAK ", "RNR NAK")):
                    counts[what.removeprefix("NAK ")] += count
        return dict(sorted(counts.items()))

    def statuses(self) -> dict[str, Counter[str]]:
        return {"sends": self.ended, "receives": self.received}

    # One operation

    def next(self, station: RoceStation) -> None:
        profile, rng = self.profile, self.rng
        code = profile.operations.draw(rng)
        kind = self._mixes[code].draw(rng)
        targets = self.stations[profile.initiators :]
        target = targets[int(rng.random() * len(targets)) if len(targets) > 1 else 0]
        connection = self._connection(station, target, kind)
        size = profile.sizes.draw(rng).draw(rng)
        work = self._work(connection, code, min(size, profile.roce.path_mtu) if kind is QpType.UD else size)
        if profile.protocol_errors and rng.random() < profile.protocol_errors:
            work = self._go_wrong(work, connection)
        elif kind is QpType.UD and profile.multicast and rng.random() < profile.multicast:
            work = self._to_group(work, connection)
        elif KINDS[code].receives:
            self._post_in_time(connection.far)
        connection.open += 1
        self.open[work.wr_id] = connection
        self.started[code.name] += 1
        station.port.submit(work)

    def _work(self, connection: RoceConnection, code: Opcode, size: int) -> PostSend:
        rng, station = self.rng, connection.near.station
        local = station.scratch if KINDS[code].answered else station.source
        fields: dict[str, Any] = {}
        if code in ATOMICS:
            size = ATOMIC_SIZE
        if code in KEYED:
            place = self._place(size)
            fields |= {"remote_addr": BASE + place, "rkey": _PLAIN}
            if code is Opcode.ATOMIC_FETCH_AND_ADD:
                fields["compare_add"] = rng.getrandbits(64)
            elif code is Opcode.ATOMIC_CMP_AND_SWP:  # it swaps unless another atomic changes the value first
                there = connection.far.station.memory.read(place, ATOMIC_SIZE)
                order = self.profile.roce.atomic_order
                fields |= {"compare_add": int.from_bytes(there, order), "swap": rng.getrandbits(64)}
        if code is Opcode.SEND_WITH_IMM or code is Opcode.RDMA_WRITE_WITH_IMM:
            fields["imm_data"] = rng.getrandbits(32)
        elif code is Opcode.SEND_WITH_INV:
            fields["invalidate_rkey"] = _LENT
        if connection.kind is QpType.UD:
            fields |= {"ah": connection.ah, "remote_qpn": connection.far.number, "remote_qkey": _QKEY}
        self._posted += 1
        return PostSend(
            qp_num=connection.near.number, wr_id=self._posted, opcode=code,
            sg_list=(Sge(BASE + self._place(size), size, local.lkey),), **fields,
        )  # fmt: skip

    def _go_wrong(self, work: PostSend, connection: RoceConnection) -> PostSend:
        """Return `work` with one of the errors of `roce_errors`, drawn at random, and prepare the target for it."""
        ways, far = self._ways[connection.kind, work.opcode], connection.far
        way = ways[int(self.rng.random() * len(ways))]
        # Keys are checked only for messages that have bytes.
        work = replace(work, sg_list=tuple(replace(part, length=max(1, part.length)) for part in work.sg_list))
        if way.peer_gone:
            self._retire(connection)
            far.destroy()
        elif KINDS[work.opcode].receives:
            if way.meets is MetReceive.GOOD:
                self._post(far)
            elif way.meets is MetReceive.BAD:
                bad = tuple(replace(part, lkey=MISSING) for part in far.receive.sg_list)
                self._post(far, replace(far.receive, sg_list=bad))
            elif connection.kind is QpType.RC and self.profile.roce.rnr_retry == ENDLESS:
                self._post_late(far)  # otherwise the requester would retry without end
        return way.change(work, self._largest)

    def _to_group(self, work: PostSend, connection: RoceConnection) -> PostSend:
        """Return `work` addressed to the group of this turn, after each target has posted a receive in the group."""
        for target in self.stations[self.profile.initiators :]:
            self._post_in_time(self._datagram_end(target, connection.turn))
        return replace(work, ah=AddressVector(self._group(connection.turn)), remote_qpn=MULTICAST_QP)

    def _group(self, turn: int) -> int:
        return _GROUPS[self.profile.ip] + turn

    # The target's part

    def _post_in_time(self, end: QueuePairEnd) -> None:
        """Post a receive for a message: before the message arrives or, if it is to be unexpected, later."""
        if self.profile.unexpected and self.rng.random() < self.profile.unexpected:
            self._post_late(end)
        else:
            self._post(end)

    def _post_late(self, end: QueuePairEnd) -> None:
        self.clock.at(self.clock.now + LATE_BY * self.profile.delay, self._post, end)

    def _post(self, end: QueuePairEnd, receive: PostRecv | None = None) -> None:
        """Post one more receive, unless there are as many posted receives as messages can be open."""
        if end.alive and end.posted < end.most:
            end.posted += 1
            end.station.port.submit(receive or end.receive)

    # Queue pairs

    def _connection(self, station: RoceStation, target: RoceStation, kind: QpType) -> RoceConnection:
        """Return the next connection in turn between two stations; it is brought up when it is first needed."""
        turn, limit = next(self._turns), self.profile.operations_per_pdc
        key = (station.address, target.address, kind, turn)
        connection = self.connections.get(key)
        if connection is None:
            if kind is QpType.UD:
                near, far = self._datagram_end(station, turn), self._datagram_end(target, turn)
            else:
                near, far = (end.create(kind, self._largest, self.profile.depth) for end in (station, target))
                near.bring_up(kind, far, self.clock.now)
                far.bring_up(kind, near, self.clock.now)
            connection = RoceConnection(key, kind, turn, near, far, AddressVector(target.address))
            self.connections[key] = connection
        connection.started += 1
        if connection.started == limit and kind is not QpType.UD:
            self._retire(connection)
        return connection

    def _datagram_end(self, station: RoceStation, turn: int) -> QueuePairEnd:
        """Return the UD queue pair of this turn; a target's queue pair is a member of the group of the turn."""
        end = station.datagrams.get(turn)
        if end is None:
            most = self.profile.depth * self.profile.initiators
            end = station.datagrams[turn] = station.create(QpType.UD, self._largest + GRH_SIZE, most)
            end.bring_up(QpType.UD, None, self.clock.now)
            if self.profile.multicast and station in self.stations[self.profile.initiators :]:
                station.hca.attach_mcast(end.number, self._group(turn))
                self.wire.groups.setdefault(self._group(turn), []).append(station.port)
        return end

    def _retire(self, connection: RoceConnection) -> None:
        """Start no more operations on a connection; the next operation brings up another connection."""
        if self.connections.get(connection.key) is connection:
            del self.connections[connection.key]

    def _close(self, connection: RoceConnection) -> None:
        connection.near.destroy()
        connection.far.destroy()

    # Events

    def _on_event(self, station: RoceStation, event: Any) -> None:
        """Handle an event of any station; only completions matter."""
        if not isinstance(event, WorkCompletion):
            return
        if event.receive:
            self._on_receive(station, event)
            return
        connection = self.open.pop(event.wr_id)
        connection.open -= 1
        self.ended[event.status.name] += 1
        if not event.ok:
            self._on_error(connection)
        if not connection.open and self.connections.get(connection.key) is not connection:
            self.clock.at(self.clock.now + _LINGER * self.profile.delay, self._close, connection)
        self.clock.at(self.clock.now, self.next, station)

    def _on_receive(self, station: RoceStation, event: WorkCompletion) -> None:
        self.received[event.status.name] += 1
        end = station.ends.get(event.qp_num)
        if end is not None:
            end.posted -= 1
        if event.invalidated_rkey is not None:
            station.lend_again()

    def _on_error(self, connection: RoceConnection) -> None:
        """Close a queue pair of RC that is in error; other queue pairs can send again."""
        if connection.kind is QpType.RC:
            self._retire(connection)
            return
        near = connection.near
        if near.station.hca.qps[near.number].state is QpState.SQE:
            near.station.hca.submit(ModifyQp(qp_num=near.number, state=QpState.RTS), self.clock.now)
