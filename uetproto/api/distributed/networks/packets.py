# SPDX-License-Identifier: GPL-2.0-only
"""This module implements the common part of the two networks that send packets, UET and RoCE (collectives.md §5).

By default a receive is granted (`GrantingEnd`): a small message, the grant, tells the sender to which address the bytes
of the message may be written. The sender writes them to that address with completion data or an immediate, which tells
the receiver that all bytes have arrived. No byte is copied, a message never reaches the wrong buffer, and lengths are
compared before anything is written. Messages between ranks of one host take time but no packets. A message to another
host and another rail is forwarded (PXN, collectives.md §4.2): the sender gives the message to the rank of its own host
that is on the target's rail, and the NIC of this second rank sends the message.
"""

import struct
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from uetproto.api.distributed.errors import invalid, unknown
from uetproto.api.distributed.networks.hosts import PREFER_SAME_NIC, Hosts, hosts_of
from uetproto.api.network import BURST, EmulatedNetwork, NetworkOptions
from uetproto.collectives.topology.intra_node import IntraNode
from uetproto.collectives.transport import (
    CollectiveNetwork,
    CollectiveTimers,
    Done,
    HalfMatching,
    MessageHalf,
    NetworkCounts,
    Tag,
    TransportError,
    deliver,
)
from uetproto.engine.contract import NEVER

DEPTH = 128
"""Largest number of open grants from one rank to another; grants for further receives wait until an open one ends."""

_CABLES = (
    "topology", "shape", "ports", "rate", "delay", "mtu", "queue_capacity", "trimming", "red", "pfc", "metered",
    "most_groups", "wire", "trains", "inner_rate", "inner_delay", "cc", "lb", "switch", "vlan",
)  # fmt: skip
_INTRA = ("hosts", "nodes", "cross_nic", "intra_bandwidth", "intra_latency")
_COMMON = ("faults", "faults_from", "seed", "capture", "taps")


class ReceiveGrant(NamedTuple):
    """A grant tells a sender to which memory it may write the bytes of a message. `pack` returns its record, which is
    the grant as bytes.

    A record with a `length` of 2^64 - 1 is no grant, but the refusal of a grant: the sender refuses if the message and
    the receive differ in length. In a refusal `address` holds the length of the message in bytes.
    """

    tag: int
    slot: int
    """Number of the receive at the rank that grants."""
    origin: int
    """Rank that sends the message, through its own NIC or through the NIC of another rank of its host."""
    key: int
    address: int
    length: int

    def pack(self) -> bytes:
        return _RECORD.pack(*self)

    @classmethod
    def unpack(cls, data: Any, at: int = 0) -> "ReceiveGrant":
        """Return the grant whose record begins at byte `at` of `data`."""
        return cls._make(_RECORD.unpack_from(data, at))


_RECORD = struct.Struct(">QIIQQQ")
RECORD = _RECORD.size
_LAST_SLOT = (1 << 32) - 1
_REFUSED = (1 << 64) - 1


class Awaited(NamedTuple):
    """This record describes a receive that was granted, or that waits for its grant."""

    peer: int
    """Rank whose NIC sends the message; if this rank is not `origin`, it forwards the message for `origin`."""
    origin: int
    tag: int
    into: memoryview
    done: Done


class PacketEnd:
    """This class implements the `RankTransport` of a rank. A subclass moves bytes to other hosts."""

    def __init__(self, network: "PacketNetwork", rank: int) -> None:
        self.network = network
        self.rank = rank
        self.size = network.size
        self._leaving: dict[int, int | None] = {}
        """Rank whose NIC sends the messages to a peer, by peer; None: the peer is on the same host."""
        self._arriving: dict[int, int | None] = {}
        """Rank whose NIC sends the messages from a peer, by peer; None: the peer is on the same host."""
        self._wake = network.world.clock.stop

    @property
    def now(self) -> int:
        return self.network.now

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.network.timers.at(self.now + delay, action)

    def send(self, peer: int, tag: Tag, data: memoryview, done: Done) -> None:
        try:
            over = self._leaving[peer]
        except KeyError:
            over = self._leaving[peer] = self.network.hosts.sender(self.rank, peer)
        if over == self.rank:
            self.send_remote(peer, self.rank, tag.pack(), data, done)
            return
        if over is None:
            self.network.post_local(self.rank, peer, tag, data, done, sends=True)
            return
        relay, ended = self.network.ends[over], _relayed(self.rank, over, peer, done)
        arrival = self.network.intra.arrival(self.now, self.rank, over, data.nbytes)
        self.network.timers.at(arrival, lambda: relay.send_remote(peer, self.rank, tag.pack(), data, ended))

    def receive(self, peer: int, tag: Tag, into: memoryview, done: Done) -> None:
        try:
            over = self._arriving[peer]
        except KeyError:
            over = self._arriving[peer] = self.network.hosts.sender(peer, self.rank)
        if over is None:
            self.network.post_local(peer, self.rank, tag, into, done, sends=False)
            return
        ended = done if over == peer else _relayed(peer, over, self.rank, done)
        self.receive_remote(over, peer, tag.pack(), into, ended)

    def complete(self, done: Done, failure: TransportError | None) -> None:
        """End a send or a receive: call `done` with `failure`, which is None if the operation succeeded. Then check at
        once which ranks can go on."""
        done(failure)
        self._wake()

    @abstractmethod
    def send_remote(self, peer: int, origin: int, tag: int, data: memoryview, done: Done) -> None:
        """Send a message of the rank `origin`, which is on this host, to the rank `peer` on another host."""

    @abstractmethod
    def receive_remote(self, peer: int, origin: int, tag: int, into: memoryview, done: Done) -> None:
        """Receive a message of the rank `origin`, which is on another host; the NIC of `peer` sends the message."""


def _relayed(source: int, over: int, target: int, done: Done) -> Done:
    """Return a callback for a message that a third rank forwards: a failure names all three ranks."""

    def ended(failure: TransportError | None) -> None:
        if failure is not None:
            failure = TransportError(
                f"message from rank {source} to rank {target}, over rank {over}: {failure}", id="message-lost"
            )
        done(failure)

    return ended


class GrantingEnd(PacketEnd):
    """This class grants receives, and writes messages to the memory that their receiver grants. A subclass moves
    records and bytes."""

    def __init__(self, network: "PacketNetwork", rank: int) -> None:
        super().__init__(network, rank)
        self._slots: dict[int, Awaited] = {}
        self._next_slot = 1
        self._open = [0] * self.size
        """Number of open grants, by peer."""
        self._queued: list[deque[int]] = [deque() for _ in range(self.size)]
        """Slots of receives that wait for their grants, by peer."""
        self._granting: set[int] = set()
        self._sends: dict[tuple[int, int, int], deque[tuple[memoryview, Done]]] = {}
        """Sends that wait for a grant, by peer, origin and tag."""
        self._grants: dict[tuple[int, int, int], deque[ReceiveGrant]] = {}
        """Grants that wait for a send, by peer, origin and tag."""

    def send_remote(self, peer: int, origin: int, tag: int, data: memoryview, done: Done) -> None:
        key = peer, origin, tag
        waiting = self._grants.get(key)
        if waiting:
            grant = waiting.popleft()
            if not waiting:
                del self._grants[key]
            self._move(peer, grant, data, done)
        else:
            self._sends.setdefault(key, deque()).append((data, done))

    def receive_remote(self, peer: int, origin: int, tag: int, into: memoryview, done: Done) -> None:
        slot, self._next_slot = self._next_slot, self._next_slot % _LAST_SLOT + 1
        self._slots[slot] = Awaited(peer, origin, tag, into, done)
        self._queued[peer].append(slot)
        self._grant(peer)

    def _grant(self, peer: int) -> None:
        """Send grants to a peer, up to `DEPTH` open ones.

        A grant to a lost peer fails at once and calls this method again; the inner call returns, and the loop goes on.
        """
        queued = self._queued[peer]
        if not queued or peer in self._granting:
            return
        self._granting.add(peer)
        while queued and self._open[peer] < DEPTH:
            slot = queued.popleft()
            awaited = self._slots[slot]
            self._open[peer] += 1
            key, address = self.open(slot, awaited)
            grant = ReceiveGrant(awaited.tag, slot, awaited.origin, key, address, awaited.into.nbytes)
            self.send_record(peer, grant, self._failed(slot))
        self._granting.discard(peer)

    def _failed(self, slot: int) -> Done:
        def ended(failure: TransportError | None) -> None:
            if failure is not None and slot in self._slots:
                self._finish(slot, failure)

        return ended

    def _finish(self, slot: int, failure: TransportError | None) -> None:
        found = self._slots.pop(slot)
        self.close(slot, found)
        self._open[found.peer] -= 1
        if self._queued[found.peer]:
            self._grant(found.peer)
        self.complete(found.done, failure)

    def _move(self, peer: int, grant: ReceiveGrant, data: memoryview, done: Done) -> None:
        if grant.length != data.nbytes:
            text = f"message from rank {grant.origin} to rank {peer}: {data.nbytes} bytes sent, {grant.length} awaited"
            self.send_record(peer, grant._replace(length=_REFUSED, address=data.nbytes), lambda failure: None)
            self.complete(done, TransportError(text, id="message-lost"))
            return
        self.write(peer, grant, data, lambda failure: self.complete(done, failure))

    # Arrivals

    def on_record(self, peer: int, grant: ReceiveGrant) -> None:
        """Handle a record from a peer: either a grant for a message of this rank, or the refusal of a grant that this
        rank sent."""
        if grant.length == _REFUSED:
            slot = self._slots.get(grant.slot)
            if slot is not None:
                text = f"{grant.address} bytes sent, {slot.into.nbytes} awaited"
                self._finish(
                    grant.slot,
                    TransportError(f"message from rank {slot.origin} to rank {self.rank}: {text}", id="message-lost"),
                )
            return
        key = peer, grant.origin, grant.tag
        waiting = self._sends.get(key)
        if waiting:
            data, done = waiting.popleft()
            if not waiting:
                del self._sends[key]
            self._move(peer, grant, data, done)
        else:
            self._grants.setdefault(key, deque()).append(grant)

    def on_written(self, slot: int) -> None:
        """End the receive number `slot`, because all bytes of its message have arrived."""
        if slot in self._slots:
            self._finish(slot, None)

    # Methods that a subclass defines

    @abstractmethod
    def open(self, slot: int, awaited: Awaited) -> tuple[int, int]:
        """Let peers write to the buffer of the receive `awaited`; return the memory key and the address of the
        buffer."""

    @abstractmethod
    def close(self, slot: int, awaited: Awaited) -> None:
        """Withdraw the access of peers to the buffer of the receive `awaited`."""

    @abstractmethod
    def send_record(self, peer: int, grant: ReceiveGrant, done: Done) -> None:
        """Send the record of a grant to a peer."""

    @abstractmethod
    def write(self, peer: int, grant: ReceiveGrant, data: memoryview, done: Done) -> None:
        """Write all bytes of a message to the granted buffer, and then notify the receiver."""


class PacketNetwork(CollectiveNetwork):
    """This class is an emulated network in which each rank is a node."""

    def __init__(self, size: int, world: EmulatedNetwork, intra: Mapping[str, Any]) -> None:
        """Make the network. `intra` has the hosts (`hosts`), and the bandwidth and latency of messages within a
        host."""
        self.size = size
        self.world = world
        self.timers = CollectiveTimers()
        self.hosts: Hosts = intra["hosts"]
        bandwidth, latency = intra.get("intra_bandwidth", 160 * 10**9), intra.get("intra_latency", 1_000_000)
        self.intra = IntraNode(lambda a, b: bandwidth, latency=latency)
        """Hops within hosts."""
        self._halves = HalfMatching()

    ends: Sequence[PacketEnd]

    @property
    def nodes(self) -> list[list[int]] | None:
        return self.hosts.ranks if any(len(host) > 1 for host in self.hosts.ranks) else None

    @property
    def now(self) -> int:
        return self.world.clock.now

    @property
    def counts(self) -> NetworkCounts:
        built, again = self.world.network, Counter[str]()
        for node in self.world.nodes.values():
            again.update(node.retransmitted)
        drops = built.drops + sum(node.dropped for node in self.world.nodes.values())
        return NetworkCounts(drops, built.trims, built.marks, dict(again))

    def end(self, rank: int) -> PacketEnd:
        return self.ends[rank]

    def run(self, ready: Callable[[], bool], limit: int | None) -> bool:
        clock, until = self.world.clock, NEVER if limit is None else limit
        try:
            while not ready():
                following = clock.next
                if following == NEVER or (following > clock.now and self.world.idle):
                    return True
                if following > until:
                    return False
                clock.go_on(until, BURST)
            return False
        finally:
            clock.settle()

    def kill(self, name: str) -> None:
        """Kill a rank (`rank3`), a switch (`leaf0`) or an aggregation node (`an.leaf0`), which then neither sends nor
        receives."""
        self.world.kill(name)

    def advance(self, instant: int) -> None:
        self.world.advance(max(0, instant - self.now))

    def close(self, drain: bool) -> None:
        self.world.close(drain)

    # Within a host

    def post_local(self, source: int, target: int, tag: Tag, buffer: memoryview, done: Done, *, sends: bool) -> None:
        """Post a send or a receive between two ranks of one host; the message moves when both are posted."""
        message = self._halves.match(source, target, tag, MessageHalf(buffer, done), sends=sends)
        if message is not None:
            send, receive = message
            length = send.buffer.nbytes if send.buffer.nbytes == receive.buffer.nbytes else 0
            arrival = self.intra.arrival(self.now, source, target, length)
            self.timers.at(arrival, lambda: deliver(source, target, send, receive))


def options(
    size: int, given: Mapping[str, Any], own: Sequence[str]
) -> tuple[NetworkOptions, dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Return three sets of options: those of the network, those of hosts and of messages within a host, and those that
    only this transport has. `own` has the names of the third set.

    Raises `ArgumentError` for an unknown name or an illegal value.
    """
    legal = (*_CABLES, *_COMMON, *_INTRA, *own)
    for name in given:
        if name not in legal:
            raise unknown("network", name, legal, name)
    cables = NetworkOptions(**{name: given[name] for name in (*_CABLES, *_COMMON) if name in given})
    rest = {name: value for name, value in given.items() if name in own}
    intra = {name: given[name] for name in _INTRA if name in given}
    for name, least, unit in (("intra_bandwidth", 1, "bytes a second"), ("intra_latency", 0, "picoseconds")):
        if name in intra and (type(intra[name]) is not int or intra[name] < least):
            raise invalid(name, repr(intra[name]), f"{unit}, {least} and more", id="out-of-range")
    intra["hosts"] = hosts_of(
        size, cables, intra.get("hosts"), intra.pop("nodes", None), intra.pop("cross_nic", PREFER_SAME_NIC)
    )
    return cables, intra, rest


def names(size: int) -> list[str]:
    """Return the names of the nodes, one for each rank; there are at least two nodes."""
    return [f"rank{rank}" for rank in range(max(2, size))]
