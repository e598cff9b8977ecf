# SPDX-License-Identifier: GPL-2.0-only
"""This module has an unreliable network in memory for multicast: delays, loss, reordering and duplicates.

It raises `WorldFailure` as soon as an invariant of collectives.md §8 is violated.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from uetproto.collectives.model import ModelNetwork
from uetproto.collectives.multicast.barrier import TransportBarrier
from uetproto.collectives.multicast.config import MulticastConfig
from uetproto.collectives.multicast.end import Cancel, Done, MulticastCounters
from uetproto.collectives.multicast.operation import MulticastOperation
from uetproto.collectives.multicast.plan import MulticastPlan
from uetproto.collectives.multicast.rank import MulticastRank
from uetproto.collectives.multicast.receiver import ReceiverState
from uetproto.collectives.multicast.wire import FIN, ChunkImmediate, ReadGrant, RingImmediate, RingMessage
from uetproto.collectives.transport import TransportError
from uetproto.errors import UetError
from uetproto.testing.machines.picture import DrawnMessage
from uetproto.testing.machines.world import hold

Fate = Callable[[int, int, int, int], int]
"""Function that says, for source, receiver, subgroup and chunk id, how many copies of the chunk arrive."""

RATE = 7
"""Rate of a link in bytes per nanosecond."""


def all_arrive(source: int, receiver: int, subgroup: int, chunk: int) -> int:
    return 1


def lose(*lost: tuple[int, int]) -> Fate:
    """Return a fate that loses the chunks of these pairs (receiver, chunk id)."""
    return lambda source, receiver, subgroup, chunk: (receiver, chunk) not in lost


def lose_all(source: int, receiver: int, subgroup: int, chunk: int) -> int:
    return 0


class Bursts:
    """A fate with two states: in a burst of 50 chunks on average a tenth is lost, in a gap of 500 a thousandth
    (collectives.md §3.10.6)."""

    def __init__(
        self, seed: int, burst: float = 50, gap: float = 500, in_burst: float = 0.1, in_gap: float = 0.001
    ) -> None:
        self.random = Random(seed)
        self.length, self.loss = {True: burst, False: gap}, {True: in_burst, False: in_gap}
        self.bad: dict[int, bool] = {}
        self.lost = 0

    def __call__(self, source: int, receiver: int, subgroup: int, chunk: int) -> int:
        bad = self.bad.get(receiver, False)
        self.bad[receiver] = bad ^ (self.random.random() < 1 / self.length[bad])
        here = self.random.random() >= self.loss[bad]
        self.lost += not here and source != receiver
        return int(here)


@dataclass
class MulticastFabric:
    """A fabric has all ends, and records the messages."""

    size: int
    fate: Fate = all_arrive
    seed: int | None = None
    """Seed of random delays, which reorder; None: all delays are equal."""
    delay: int = 1_000_000
    loopback: bool = True
    late: dict[int, int] = field(default_factory=dict)
    """Picoseconds by which a rank learns later than others that a barrier is complete."""
    sent: list[tuple[int, int, int]] = field(default_factory=list)
    """Chunks sent: (rank, subgroup, immediate)."""
    tokens: list[tuple[int, int]] = field(default_factory=list)
    controls: list[tuple[int, int, int]] = field(default_factory=list)
    """Control messages: (from, to, immediate)."""
    grants: list[tuple[int, int]] = field(default_factory=list)
    reads: list[tuple[int, int, int, int]] = field(default_factory=list)
    """READs: (reader, from, offset in the buffer, bytes)."""
    messages: list[DrawnMessage] = field(default_factory=list)
    """All of them, as they are drawn."""
    most_active: int = 0

    def __post_init__(self) -> None:
        self.network = ModelNetwork(self.size)
        self.random = Random(self.seed)
        self.ends = [MulticastFabricEnd(self, rank) for rank in range(self.size)]
        self.sending: dict[int, int] = {}
        """Ranks that send: send completions that are due."""
        self.buffers: dict[tuple[int, int], tuple[int, memoryview | None]] = {}
        """Registered: (rank, rkey) -> address, bytes."""
        self.missing: Counter[int] = Counter()
        """Chunks that never arrived, by receiver."""

    @property
    def ranks(self) -> list[MulticastRank]:
        return [end.owner for end in self.ends]

    def later(self, delay: int, action: Callable[[], None]) -> None:
        self.network.timers.at(self.network.now + delay, action)

    def wander(self) -> int:
        """Return the delay of a datagram."""
        return self.delay if self.seed is None else self.random.randrange(self.delay // 10, 4 * self.delay)

    def note(self, source: int, target: int, text: str, tone: str = "control") -> None:
        """Keep a message for the ladder."""
        self.messages.append(DrawnMessage(self.network.now, f"rank {source}", f"rank {target}", text, tone))

    def run(self, until: int | None = None) -> None:
        """Run the network until no event is left, or until a time."""
        timers = self.network.timers
        while (instant := timers.next) is not None and (until is None or instant <= until):
            self.network.advance(instant)
            timers.fire(self.network.now)
        if until is not None:
            self.network.advance(until)


class MulticastFabricEnd:
    """The end of one rank, which is a `MulticastEnd`."""

    owner: MulticastRank

    def __init__(self, fabric: MulticastFabric, rank: int) -> None:
        self.fabric, self.rank, self.size = fabric, rank, fabric.size
        self.meet = TransportBarrier(fabric.network.end(rank))
        self.free = 0
        """Time at which the port is free."""
        self.ordered: dict[int, int] = {}
        """Time at which the last reliable message arrives, by peer."""
        self.keys = 0
        self.unsignalled: Counter[int] = Counter()
        """Number of chunks since the last signalled one, by subgroup."""

    @property
    def now(self) -> int:
        return self.fabric.network.now

    @property
    def operation(self) -> MulticastOperation:
        """Return the operation of the rank, which has begun one."""
        assert self.owner.operation is not None
        return self.owner.operation

    def after(self, delay: int, action: Callable[[], None]) -> Cancel:
        timer = self.fabric.network.timers.at(self.now + delay, action)
        return lambda: self.fabric.network.timers.cancel(timer)

    def barrier(self, done: Done) -> None:
        late = self.fabric.late.get(self.rank, 0)
        self.meet(done if not late else lambda error: self.fabric.later(late, lambda: done(error)))

    def chunk(self, subgroup: int, immediate: int, data: memoryview, done: Done | None) -> None:
        fabric, number, own = self.fabric, ChunkImmediate.unpack(immediate).chunk_id, self.operation
        for end in fabric.ends:
            ready = end.operation.task == own.task and end.operation.armed
            hold(ready, "MULTICAST-ARMED", f"rank {self.rank} sends before rank {end.rank} is armed")
        hold(not own.ended, "MULTICAST-ARMED", f"rank {self.rank} sends a chunk after the end")
        self.unsignalled[subgroup] = 0 if done else self.unsignalled[subgroup] + 1
        short = self.unsignalled[subgroup] < self.owner.config.batch
        hold(short, "MULTICAST-BATCH", f"rank {self.rank} posts a batch of chunks without a signal")
        fabric.sent.append((self.rank, subgroup, immediate))
        fabric.sending.setdefault(self.rank, 0)
        fabric.most_active = max(fabric.most_active, len(fabric.sending))
        self.free = max(self.free, self.now) + len(data) * 1000 // RATE
        bytes_sent = bytes(data)
        for receiver in fabric.ends:
            if receiver is self and not fabric.loopback:
                continue
            copies = fabric.fate(self.rank, receiver.rank, subgroup, number)
            fabric.missing[receiver.rank] += receiver is not self and not copies
            if receiver is not self:
                text = f"chunk {number} of task {own.task}, {len(data)} bytes{'' if copies else ' [lost]'}"
                fabric.note(self.rank, receiver.rank, text, "data" if copies else "lost")
            for _ in range(copies):
                when = self.free - self.now + fabric.wander()
                fabric.later(when, partial(receiver.arrive, subgroup, immediate, bytes_sent))
        if done is not None:
            fabric.sending[self.rank] += 1
            fabric.later(self.free - self.now, partial(self.left, done))

    def left(self, done: Done) -> None:
        self.fabric.sending[self.rank] -= 1
        if not self.fabric.sending[self.rank]:
            del self.fabric.sending[self.rank]
        done(None)

    def arrive(self, subgroup: int, immediate: int, data: bytes) -> None:
        receiver, operation = self.owner.receivers[subgroup], self.operation
        before = bytes(receiver.seen), list(receiver.recvd), receiver.to_recv
        task = operation.task if operation.armed and not operation.ended else -1
        receiver.on_chunk(immediate, data)
        if immediate & 0xFF != task:  # invariant 32
            same = (bytes(receiver.seen), receiver.recvd, receiver.to_recv) == before
            hold(same, "MULTICAST-FOREIGN", f"rank {self.rank} takes a chunk of another operation")
        check_bitmap(self.owner)

    def reliable(self, peer: int, action: Callable[[], None], done: Done) -> None:
        """Deliver a reliable message in order; its completion follows its arrival."""
        at = max(self.now + self.fabric.wander(), self.ordered.get(peer, 0) + 1)
        self.ordered[peer] = at
        self.fabric.later(at - self.now, action)
        self.fabric.later(at - self.now + self.fabric.wander(), lambda: done(None))

    def token(self, peer: int, done: Done) -> None:
        hold(self.rank not in self.fabric.sending, "MULTICAST-TOKEN", f"rank {self.rank} still sends its block")
        self.fabric.tokens.append((self.rank, peer))
        self.fabric.note(self.rank, peer, "token")
        self.reliable(peer, lambda: self.fabric.ranks[peer].on_token(self.rank), done)

    def control(self, peer: int, immediate: int, done: Done) -> None:
        self.fabric.controls.append((self.rank, peer, immediate))
        kind, owner = RingImmediate.unpack(immediate)
        self.fabric.note(self.rank, peer, "FIN" if kind == RingMessage.FIN else f"NEED_FETCH block of rank {owner}")
        self.reliable(peer, lambda: self.fabric.ranks[peer].on_control(self.rank, immediate), done)

    def grant(self, peer: int, record: bytes, done: Done) -> None:
        self.fabric.grants.append((self.rank, peer))
        asked = self.fabric.ends[peer].operation
        legal = asked.task == self.operation.task and self.operation.recovering and holds(self, asked.requester.owner)
        hold(legal, "MULTICAST-GRANT", f"rank {self.rank} grants a block to rank {peer} that it does not hold")
        self.fabric.note(self.rank, peer, f"grant, block of rank {asked.requester.owner}", "ack")
        self.reliable(peer, lambda: self.fabric.ranks[peer].on_grant(self.rank, record), done)

    def read(self, peer: int, address: int, rkey: int, length: int, into: memoryview | None, done: Done) -> None:
        def execute() -> None:
            registered = self.fabric.buffers.get((peer, rkey))
            if registered is None:  # invariant 31
                done(TransportError(f"rkey {rkey} of rank {peer} is not registered", id="message-lost"))
                return
            base, buffer = registered
            start = address - base
            self.fabric.reads.append((self.rank, peer, start, length))
            self.fabric.note(self.rank, peer, f"READ {length} bytes at {start}", "ack")
            data = None if buffer is None else bytes(buffer[start : start + length])
            self.fabric.later(self.fabric.wander(), lambda: arrive(data))

        def arrive(data: bytes | None) -> None:
            assert (into is None) == (data is None)
            if into is not None and data is not None:
                into[:] = data
            done(None)

        assert into is None or len(into) == length
        self.fabric.later(self.fabric.wander(), execute)

    def register(self, buffer: memoryview | None, length: int) -> ReadGrant:
        assert buffer is None or len(buffer) == length
        self.keys += 1
        grant = ReadGrant(0x7F00_0000_0000 + self.rank * 0x1_0000_0000, self.keys)
        self.fabric.buffers[self.rank, grant.rkey] = grant.address, buffer
        return grant

    def unregister(self, grant: ReadGrant) -> None:
        del self.fabric.buffers[self.rank, grant.rkey]


def holds(end: MulticastFabricEnd, owner: int | None) -> bool:
    """Return whether a rank holds the block of `owner`: every bit of the block is set, or the block is its own."""
    plan = end.operation.plan
    if owner is None:
        return False
    first = plan.owners.index(owner)
    return owner == end.rank or all(
        receiver.bitmap >> first * part.chunks & (1 << part.chunks) - 1 == (1 << part.chunks) - 1
        for part, receiver in zip(plan.subgroups, end.owner.receivers, strict=True)
    )


def check_bitmap(rank: MulticastRank) -> None:
    """Check invariant 28, the bitmap of a rank. Raises `WorldFailure`."""
    if rank.operation is None or not rank.operation.armed:
        return
    plan, own = rank.operation.plan, rank.end.rank
    polls = False
    for part, receiver in zip(plan.subgroups, rank.receivers, strict=True):
        bits, mask = receiver.bitmap, (1 << part.chunks) - 1
        others = [owner for owner in plan.owners if owner != own]
        fits = bits.bit_count() + receiver.to_recv == len(others) * part.chunks
        for block, owner in enumerate(plan.owners):
            of_block = bits >> block * part.chunks & mask
            fits = fits and receiver.recvd[block] == of_block.bit_count() and (owner != own or not of_block)
        hold(fits, "MULTICAST-BITMAP", f"bitmap {bits:#x} of rank {own}, {receiver.to_recv} chunks to receive")
        polls = polls or receiver.state is ReceiverState.POLL
    hold(not (polls and rank.operation.recovering), "MULTICAST-BITMAP", f"rank {own} polls while it recovers")


@dataclass
class MulticastRun:
    """This record is one operation on all ranks."""

    fabric: MulticastFabric
    outputs: list[bytearray]
    told: list[list[UetError | None]]
    counted: list[MulticastCounters]

    def total(self, name: str) -> int:
        return sum(getattr(one, name) for one in self.counted)

    @property
    def requests(self) -> list[tuple[int, int, int]]:
        """Return the NEED_FETCH messages as (from, to, owner), in the order of sending."""
        return requests_of(self.fabric)


def requests_of(fabric: MulticastFabric) -> list[tuple[int, int, int]]:
    """Return the NEED_FETCH messages of all operations as (from, to, owner), in the order of sending."""
    read = [(src, dst, RingImmediate.unpack(immediate)) for src, dst, immediate in fabric.controls]
    return [(src, dst, message.owner) for src, dst, message in read if message.type == RingMessage.NEED_FETCH]


def fabric_of(size: int, config: MulticastConfig, counter: int = 0, **options: Any) -> MulticastFabric:
    """Return a fabric with a `MulticastRank` at every end."""
    fabric = MulticastFabric(size, **options)
    for end in fabric.ends:
        end.owner = MulticastRank(end, config, counter)
    return fabric


def content(rank: int, length: int) -> bytes:
    """Return the block of a rank; no two chunks of all ranks are equal."""
    return Random(rank).randbytes(length)


def post(fabric: MulticastFabric, plan: MulticastPlan, salt: int = 0, skew: int = 0) -> MulticastRun:
    """Post an operation at every rank; `skew`: picoseconds within which the ranks enter."""
    outputs = [bytearray(plan.bytes) for _ in fabric.ends]
    told: list[list[UetError | None]] = [[] for _ in fabric.ends]
    ran = MulticastRun(fabric, outputs, told, [MulticastCounters() for _ in fabric.ends])

    def end(rank: int, error: UetError | None) -> None:
        told[rank].append(error)
        operation = fabric.ranks[rank].operation
        ran.counted[rank] = operation.counted if operation else MulticastCounters()

    def begin(rank: int) -> None:
        source = memoryview(content(rank + salt, plan.length)) if plan.owns(rank) else None
        fabric.ranks[rank].post(plan, source, memoryview(outputs[rank]), partial(end, rank))

    for rank in range(fabric.size):
        if skew:
            fabric.later(fabric.random.randrange(skew), partial(begin, rank))
        else:
            begin(rank)
    return ran


def execute(
    plan: MulticastPlan, fate: Fate = all_arrive, counter: int = 0, skew: int = 0, **options: Any
) -> MulticastRun:
    """Run one operation until no event is left."""
    fabric = fabric_of(plan.size, plan.config, counter, fate=fate, **options)
    ran = post(fabric, plan, skew=skew)
    fabric.run()
    return ran


def expected(plan: MulticastPlan, salt: int = 0) -> bytes:
    """Return the result that every rank must have."""
    return b"".join(content(owner + salt, plan.length) for owner in plan.owners)


def check_done(ran: MulticastRun, plan: MulticastPlan, salt: int = 0) -> None:
    """Check that every rank has the result, and that `done` was called once. Raises `WorldFailure`."""
    for rank, told in enumerate(ran.told):
        hold(told == [None], "MULTICAST-DONE-ONCE", f"{plan.op}: rank {rank} was told {told}: "
             f"{ran.fabric.ranks[rank].operation}")  # fmt: skip
    for rank, output in enumerate(ran.outputs):
        hold(output == expected(plan, salt), "MULTICAST-RESULT", f"{plan.op}: rank {rank} has another result")


def check_counts(fabric: MulticastFabric, runs: Iterable[tuple[MulticastRun, MulticastPlan]]) -> None:
    """Check invariants 27, 29, 33 and 34 after all operations of a fabric, fewer than 256, have ended. Raises
    `WorldFailure`."""
    runs = list(runs)

    def total(name: str) -> int:
        return sum(ran.total(name) for ran, _ in runs)

    def same(name: str, *numbers: int) -> None:
        hold(len({*numbers}) == 1, name, " ≠ ".join(map(str, numbers)))

    chunks = sum(len(plan.owners) * sum(part.chunks for part in plan.subgroups) for _, plan in runs)
    same("MULTICAST-SENT-ONCE", chunks, len(fabric.sent), len({*fabric.sent}), total("chunks_sent"))
    same("MULTICAST-SENT-ONCE", sum(plan.bytes for _, plan in runs), total("bytes_sent"))
    most = max((plan.roots for _, plan in runs), default=0)
    hold(fabric.most_active <= most, "MULTICAST-ROOTS", f"{fabric.most_active} ranks send at once, {most} may")
    tokens = sum(len(plan.owners) - plan.roots for _, plan in runs)
    same("MULTICAST-TOKENS", tokens, len(fabric.tokens), total("tokens"))
    fins = sum(immediate == FIN.pack() for _, _, immediate in fabric.controls)
    same("MULTICAST-FINS", sum(plan.size for _, plan in runs), fins, total("fins"))
    asked = len(requests_of(fabric))
    same("MULTICAST-REQUESTS", asked, total("requests"), total("grants"), len(fabric.grants))
    same("MULTICAST-STRAYS", 0, total("strays"), total("malformed"))
    same("MULTICAST-FETCHED", sum(size for *_, size in fabric.reads), total("bytes_fetched"))
    hold(not fabric.buffers, "MULTICAST-LEFTOVERS", f"buffers {[*fabric.buffers]} are still registered")
    fetched: Counter[int] = Counter()
    late = False
    for ran, plan in runs:
        for end, one in zip(fabric.ends, ran.counted, strict=True):
            others = len(plan.owners) - plan.owns(end.rank)
            wanted = others * sum(part.chunks for part in plan.subgroups)
            same("MULTICAST-FETCHED", wanted, one.chunks_received + one.chunks_fetched)
            fetched[end.rank] += one.chunks_fetched
            late = late or bool(one.late)
            if not one.cutoff:
                same("MULTICAST-LOSSLESS", 0, one.requests, one.chunks_fetched)
    for end in fabric.ends:
        lost = fabric.missing[end.rank]
        hold(fetched[end.rank] >= lost, "MULTICAST-FETCHED", f"rank {end.rank}: {fetched[end.rank]} of {lost} lost")
        if not late and not total("foreign"):  # nothing came after the cutoff
            same("MULTICAST-FETCHED", lost, fetched[end.rank])
