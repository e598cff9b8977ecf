"""Networks with packets for `distributed`: what UET and RoCE have in common (collectives.md §5).

The usual way: a receive is granted. The receiver tells the sender, in a small message of its own, where the bytes may
go; the sender writes them there with completion data, or an immediate, and the receiver is told when all of them have
come. So no byte is copied on the way, a message never meets the wrong buffer, and lengths are compared before anything
is written. Between ranks of one host bytes and time pass, but no packets.
"""

import struct
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from uetproto.api.distributed_errors import invalid
from uetproto.api.world import BURST, Cables, World
from uetproto.collectives.intra_node import IntraNode
from uetproto.collectives.transport import Done, Network, Tag, Timers, TransportError
from uetproto.engine.contract import NEVER

DEPTH = 128
"""Grants that one rank may have open towards another; more of them wait."""

_CABLES = ("topology", "shape", "rate", "delay", "mtu", "queue_capacity", "trimming", "red", "pfc", "metered")
_INTRA = ("hosts", "intra_bandwidth", "intra_latency")
_COMMON = ("faults", "faults_from", "seed", "capture", "taps")


class Grant(NamedTuple):
    """What a receiver tells: bytes of this message may go there. Of `length` 2^64 - 1: the sender refuses."""

    tag: int
    slot: int
    """Comes back with the last byte."""
    key: int
    address: int
    length: int

    def pack(self) -> bytes:
        return _RECORD.pack(*self)

    @classmethod
    def unpack(cls, data: Any) -> "Grant":
        return cls(*_RECORD.unpack(data))


_RECORD = struct.Struct(">5Q")
RECORD = _RECORD.size
_REFUSED = (1 << 64) - 1


class _Slot(NamedTuple):
    """A receive that was granted, or waits to be."""

    peer: int
    tag: Tag
    into: memoryview
    done: Done


class PacketEnd:
    """One rank's `Transport`. A subclass moves bytes to other hosts."""

    def __init__(self, network: "PacketNetwork", rank: int) -> None:
        self.network = network
        self.rank = rank
        self.size = network.size

    @property
    def now(self) -> int:
        return self.network.now

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.network.timers.at(self.now + delay, action)

    def send(self, peer: int, tag: Tag, data: memoryview, done: Done) -> None:
        if self.network.near(self.rank, peer):
            self.network.post_near(self.rank, peer, tag, data, done, sends=True)
        else:
            self.send_far(peer, tag, data, done)

    def receive(self, peer: int, tag: Tag, into: memoryview, done: Done) -> None:
        if self.network.near(self.rank, peer):
            self.network.post_near(peer, self.rank, tag, into, done, sends=False)
        else:
            self.receive_far(peer, tag, into, done)

    def tell_done(self, done: Done, failure: TransportError | None) -> None:
        """A message has ended, and the network looks at once at what comes of it."""
        done(failure)
        self.network.world.wake()

    @abstractmethod
    def send_far(self, peer: int, tag: Tag, data: memoryview, done: Done) -> None:
        """To another host."""

    @abstractmethod
    def receive_far(self, peer: int, tag: Tag, into: memoryview, done: Done) -> None:
        """From another host."""


class GrantingEnd(PacketEnd):
    """Writes where the receiver says. A subclass moves records and bytes."""

    def __init__(self, network: "PacketNetwork", rank: int) -> None:
        super().__init__(network, rank)
        self._slots: dict[int, _Slot] = {}
        self._next_slot = 1
        self._open = [0] * self.size
        """Grants that are open, by peer."""
        self._queued: list[deque[int]] = [deque() for _ in range(self.size)]
        """Slots that are to be granted, by peer."""
        self._granting: set[int] = set()
        self._sends: dict[tuple[int, int], deque[tuple[memoryview, Done]]] = {}
        self._grants: dict[tuple[int, int], deque[Grant]] = {}

    def send_far(self, peer: int, tag: Tag, data: memoryview, done: Done) -> None:
        key = peer, tag.pack()
        waiting = self._grants.get(key)
        if waiting:
            grant = waiting.popleft()
            if not waiting:
                del self._grants[key]
            self._move(peer, grant, data, done)
        else:
            self._sends.setdefault(key, deque()).append((data, done))

    def receive_far(self, peer: int, tag: Tag, into: memoryview, done: Done) -> None:
        slot, self._next_slot = self._next_slot, self._next_slot + 1
        self._slots[slot] = _Slot(peer, tag, into, done)
        self._queued[peer].append(slot)
        self._grant(peer)

    def _grant(self, peer: int) -> None:
        """As many as may be open. Not recursive: towards a peer that is lost each fails at once."""
        if peer in self._granting:
            return
        self._granting.add(peer)
        while self._queued[peer] and self._open[peer] < DEPTH:
            slot = self._queued[peer].popleft()
            _, tag, into, _ = self._slots[slot]
            self._open[peer] += 1
            key, address = self.open(slot, into)
            self.tell(peer, Grant(tag.pack(), slot, key, address, into.nbytes), self._failed(slot))
        self._granting.discard(peer)

    def _failed(self, slot: int) -> Done:
        def told(failure: TransportError | None) -> None:
            if failure is not None and slot in self._slots:
                self._finish(slot, failure)

        return told

    def _finish(self, slot: int, failure: TransportError | None) -> None:
        found = self._slots.pop(slot)
        self.close(slot)
        self._open[found.peer] -= 1
        self._grant(found.peer)
        self.tell_done(found.done, failure)

    def _move(self, peer: int, grant: Grant, data: memoryview, done: Done) -> None:
        if grant.length != data.nbytes:
            text = f"message from rank {self.rank} to rank {peer}: {data.nbytes} bytes sent, {grant.length} awaited"
            self.tell(peer, grant._replace(length=_REFUSED, address=data.nbytes), _ignore)
            self.tell_done(done, TransportError(text))
            return
        self.write(peer, grant, data, lambda failure: self.tell_done(done, failure))

    # What comes in

    def told(self, peer: int, grant: Grant) -> None:
        """A record has come."""
        if grant.length == _REFUSED:
            slot = self._slots.get(grant.slot)
            if slot is not None:
                text = f"{grant.address} bytes sent, {slot.into.nbytes} awaited"
                self._finish(grant.slot, TransportError(f"message from rank {peer} to rank {self.rank}: {text}"))
            return
        key = peer, grant.tag
        waiting = self._sends.get(key)
        if waiting:
            data, done = waiting.popleft()
            if not waiting:
                del self._sends[key]
            self._move(peer, grant, data, done)
        else:
            self._grants.setdefault(key, deque()).append(grant)

    def written(self, slot: int) -> None:
        """All bytes of a granted message have come."""
        if slot in self._slots:
            self._finish(slot, None)

    # What a subclass does

    @abstractmethod
    def open(self, slot: int, into: memoryview) -> tuple[int, int]:
        """Lets peers write there; key and address."""

    @abstractmethod
    def close(self, slot: int) -> None:
        """No more."""

    @abstractmethod
    def tell(self, peer: int, grant: Grant, done: Done) -> None:
        """Sends a record."""

    @abstractmethod
    def write(self, peer: int, grant: Grant, data: memoryview, done: Done) -> None:
        """Writes all bytes to the place granted, and tells the slot behind the last one."""


def _ignore(failure: TransportError | None) -> None:
    """Of a refusal that does not arrive nobody has to know."""


class _Half(NamedTuple):
    """A send or a receive within a host that waits for the other."""

    buffer: memoryview
    done: Done


class PacketNetwork(Network):
    """All ranks, each a node of an emulated network."""

    def __init__(self, size: int, world: World, intra: Mapping[str, Any]) -> None:
        """`intra`: `hosts`, the ranks of each, and what a hop within one costs."""
        self.size = size
        self.world = world
        self.timers = Timers()
        self._host = {rank: number for number, host in enumerate(intra["hosts"]) for rank in host}
        bandwidth, latency = intra.get("intra_bandwidth", 160 * 10**9), intra.get("intra_latency", 1_000_000)
        self.intra = IntraNode(lambda a, b: bandwidth, latency=latency)
        """The hops within hosts."""
        self._halves: dict[tuple[int, int, Tag, bool], deque[_Half]] = {}

    ends: Sequence[PacketEnd]

    @property
    def now(self) -> int:
        return self.world.clock.now

    def end(self, rank: int) -> PacketEnd:
        return self.ends[rank]

    def run(self, ready: Callable[[], bool], limit: int | None) -> bool:
        clock, until = self.world.clock, NEVER if limit is None else limit
        while not ready():
            if not len(clock) or self.world.idle:
                return True
            if clock.next > until:
                return False
            clock.run(until, BURST)
        return False

    def advance(self, instant: int) -> None:
        self.world.advance(max(0, instant - self.now))

    def close(self, drain: bool) -> None:
        self.world.close(drain)

    # Within a host

    def near(self, a: int, b: int) -> bool:
        """Both are in one host."""
        return self._host[a] == self._host[b]

    def post_near(self, source: int, target: int, tag: Tag, buffer: memoryview, done: Done, *, sends: bool) -> None:
        """One half of a message; the second one moves it."""
        others = self._halves.get((source, target, tag, not sends))
        if not others:
            self._halves.setdefault((source, target, tag, sends), deque()).append(_Half(buffer, done))
            return
        other = others.popleft()
        if not others:
            del self._halves[source, target, tag, not sends]
        send, receive = (_Half(buffer, done), other) if sends else (other, _Half(buffer, done))
        failure = None
        if send.buffer.nbytes != receive.buffer.nbytes:
            sizes = f"{send.buffer.nbytes} bytes sent, {receive.buffer.nbytes} awaited"
            failure = TransportError(f"message from rank {source} to rank {target}: {sizes}")

        def arrive() -> None:
            if failure is None:
                receive.buffer[:] = send.buffer
            send.done(failure)
            receive.done(failure)

        self.timers.at(self.intra.arrival(self.now, source, target, 0 if failure else send.buffer.nbytes), arrive)


def options(
    size: int, given: Mapping[str, Any], own: Sequence[str]
) -> tuple[Cables, dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Cables, hops within hosts, and the rest, which belongs to the world. Raises `ArgumentError` naming what is legal.

    `own` are the arguments that only this transport has.
    """
    legal = (*_CABLES, *_COMMON, *_INTRA, *own)
    for name in given:
        if name not in legal:
            raise invalid("network", name, ", ".join(legal))
    cables = Cables(**{name: given[name] for name in _CABLES if name in given})
    rest: dict[str, Any] = {"faults": {}, "faults_from": "all", "seed": 0, "capture": None, "taps": None}
    rest |= {name: value for name, value in given.items() if name in (*_COMMON, *own)}
    intra = {name: given[name] for name in _INTRA if name in given}
    for name, least, unit in (("intra_bandwidth", 1, "bytes a second"), ("intra_latency", 0, "picoseconds")):
        if name in intra and (type(intra[name]) is not int or intra[name] < least):
            raise invalid(name, repr(intra[name]), f"{unit}, {least} and more")
    intra["hosts"] = _hosts(size, cables, intra.get("hosts"))
    return cables, intra, rest


def _hosts(size: int, cables: Cables, given: Any) -> list[list[int]]:
    """The ranks of each host: those told, or as the topology groups them, or one a host."""
    shape = cables.shape if isinstance(cables.shape, Mapping) else {}
    each = shape.get("gpus_per_node", 8 if cables.topology == "rails" else 1)
    if type(each) is not int or each < 1:
        return []  # the world refuses it
    nodes = [list(range(first, min(first + each, size))) for first in range(0, size, each)]
    if given is None:
        return nodes
    try:
        hosts = [list(host) for host in given]
        ranks = sorted(rank for host in hosts for rank in host)
    except TypeError:
        ranks = []
    if ranks != list(range(size)) or any(type(rank) is not int for rank in ranks):
        raise invalid("hosts", repr(given), f"lists of ranks, with each of 0 … {size - 1} once")
    if each > 1 and hosts != nodes:
        raise invalid("hosts", repr(given), f"none, or {nodes}, the nodes of this topology")
    return hosts


def names(size: int) -> list[str]:
    """Of the nodes: two at least."""
    return [f"rank{rank}" for rank in range(max(2, size))]


__all__ = ["DEPTH", "RECORD", "Grant", "GrantingEnd", "PacketEnd", "PacketNetwork", "names", "options"]
