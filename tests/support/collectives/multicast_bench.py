"""This module has an unreliable network in memory for multicast: delays, loss, reordering and duplicates.

It raises AssertionError as soon as an invariant of collectives.md §8 is violated.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.support.collectives.runner_bench import turn
from uetproto.collectives.model import ModelNetwork
from uetproto.collectives.multicast.barrier import TransportBarrier
from uetproto.collectives.multicast.config import MulticastConfig
from uetproto.collectives.multicast.end import Cancel, Done, MulticastCounters
from uetproto.collectives.multicast.plan import MulticastPlan
from uetproto.collectives.multicast.rank import MulticastRank
from uetproto.collectives.multicast.receiver import ReceiverState
from uetproto.collectives.multicast.wire import ChunkImmediate, ReadGrant, RingImmediate
from uetproto.collectives.transport import TransportError

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
    (§3.10.6)."""

    def __init__(self, seed: int, burst: float = 50, gap: float = 500, in_burst: float = 0.1, in_gap: float = 0.001):
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
class Fabric:
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
    most_active: int = 0

    def __post_init__(self) -> None:
        self.network = ModelNetwork(self.size)
        self.random = Random(self.seed)
        self.ends = [End(self, rank) for rank in range(self.size)]
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

    def run(self) -> None:
        turn(self.network)


class End:
    """The end of one rank, which is a `MulticastEnd`."""

    owner: MulticastRank

    def __init__(self, fabric: Fabric, rank: int) -> None:
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

    def after(self, delay: int, action: Callable[[], None]) -> Cancel:
        timer = self.fabric.network.timers.at(self.now + delay, action)
        return lambda: self.fabric.network.timers.cancel(timer)

    def barrier(self, done: Done) -> None:
        late = self.fabric.late.get(self.rank, 0)
        self.meet(done if not late else lambda error: self.fabric.later(late, lambda: done(error)))

    def chunk(self, subgroup: int, immediate: int, data: memoryview, done: Done | None) -> None:
        fabric, number = self.fabric, ChunkImmediate.unpack(immediate).chunk_id
        for one in fabric.ranks:  # nobody sends before all are armed
            assert one.operation.task == self.owner.operation.task
            assert one.operation.armed
        assert not self.owner.operation.ended
        self.unsignalled[subgroup] = 0 if done else self.unsignalled[subgroup] + 1
        assert self.unsignalled[subgroup] < self.owner.config.batch
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
            for _ in range(copies):
                when = self.free - self.now + fabric.wander()
                fabric.later(when, lambda receiver=receiver: receiver.arrive(subgroup, immediate, bytes_sent))
        if done is not None:
            fabric.sending[self.rank] += 1
            fabric.later(self.free - self.now, lambda: self.left(done))

    def left(self, done: Done) -> None:
        self.fabric.sending[self.rank] -= 1
        if not self.fabric.sending[self.rank]:
            del self.fabric.sending[self.rank]
        done(None)

    def arrive(self, subgroup: int, immediate: int, data: bytes) -> None:
        receiver, operation = self.owner.receivers[subgroup], self.owner.operation
        before = bytes(receiver.seen), list(receiver.recvd), receiver.to_recv
        task = operation.task if operation and operation.armed and not operation.ended else -1
        receiver.on_chunk(immediate, data)
        if immediate & 0xFF != task:  # invariant 32
            assert (bytes(receiver.seen), receiver.recvd, receiver.to_recv) == before
        check_bitmap(self.owner)

    def reliable(self, peer: int, action: Callable[[], None], done: Done) -> None:
        """Deliver a reliable message in order; its completion follows its arrival."""
        at = max(self.now + self.fabric.wander(), self.ordered.get(peer, 0) + 1)
        self.ordered[peer] = at
        self.fabric.later(at - self.now, action)
        self.fabric.later(at - self.now + self.fabric.wander(), lambda: done(None))

    def token(self, peer: int, done: Done) -> None:
        assert self.rank not in self.fabric.sending
        self.fabric.tokens.append((self.rank, peer))
        self.reliable(peer, lambda: self.fabric.ranks[peer].on_token(self.rank), done)

    def control(self, peer: int, immediate: int, done: Done) -> None:
        self.fabric.controls.append((self.rank, peer, immediate))
        self.reliable(peer, lambda: self.fabric.ranks[peer].on_control(self.rank, immediate), done)

    def grant(self, peer: int, record: bytes, done: Done) -> None:
        self.fabric.grants.append((self.rank, peer))
        asked = self.fabric.ranks[peer].operation.requester.owner
        assert self.fabric.ranks[peer].operation.task == self.owner.operation.task
        assert self.owner.operation.recovering
        assert holds(self.owner, asked)  # invariant 30
        self.reliable(peer, lambda: self.fabric.ranks[peer].on_grant(self.rank, record), done)

    def read(self, peer: int, address: int, rkey: int, length: int, into: memoryview | None, done: Done) -> None:
        def execute() -> None:
            registered = self.fabric.buffers.get((peer, rkey))
            if registered is None:  # invariant 31
                done(TransportError(f"rkey {rkey} of rank {peer} is not registered"))
                return
            base, buffer = registered
            start = address - base
            self.fabric.reads.append((self.rank, peer, start, length))
            data = None if buffer is None else bytes(buffer[start : start + length])
            self.fabric.later(self.fabric.wander(), lambda: arrive(data))

        def arrive(data: bytes | None) -> None:
            assert (into is None) == (data is None)
            if into is not None:
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


def holds(rank: MulticastRank, owner: int) -> bool:
    """Return whether a rank holds a block: every bit of the block is set, or the block is its own."""
    plan = rank.operation.plan
    first = plan.owners.index(owner)
    return owner == rank.end.rank or all(
        receiver.bitmap >> first * part.chunks & (1 << part.chunks) - 1 == (1 << part.chunks) - 1
        for part, receiver in zip(plan.subgroups, rank.receivers, strict=True)
    )


def check_bitmap(rank: MulticastRank) -> None:
    """Assert that invariant 28 holds: the bitmap of a rank."""
    if rank.operation is None or not rank.operation.armed:
        return
    plan, own = rank.operation.plan, rank.end.rank
    for part, receiver in zip(plan.subgroups, rank.receivers, strict=True):
        bits, mask = receiver.bitmap, (1 << part.chunks) - 1
        others = [owner for owner in plan.owners if owner != own]
        assert bits.bit_count() + receiver.to_recv == len(others) * part.chunks
        for block, owner in enumerate(plan.owners):
            of_block = bits >> block * part.chunks & mask
            assert receiver.recvd[block] == of_block.bit_count()
            assert owner != own or not of_block
    assert all(receiver.state is not ReceiverState.POLL for receiver in rank.receivers) or not rank.operation.recovering


@dataclass
class Ran:
    """This record is one operation on all ranks."""

    fabric: Fabric
    outputs: list[bytearray]
    told: list[list[Exception | None]]
    counted: list[MulticastCounters]

    def total(self, name: str) -> int:
        return sum(getattr(one, name) for one in self.counted)

    @property
    def requests(self) -> list[tuple[int, int, int]]:
        """Return the NEED_FETCH messages as (from, to, owner), in the order of sending."""
        read = [(src, dst, RingImmediate.unpack(immediate)) for src, dst, immediate in self.fabric.controls]
        return [(src, dst, message.owner) for src, dst, message in read if message.type == 0]


def fabric_of(size: int, config: MulticastConfig, counter: int = 0, **options: object) -> Fabric:
    """Return a fabric with a `MulticastRank` at every end."""
    fabric = Fabric(size, **options)
    for end in fabric.ends:
        end.owner = MulticastRank(end, config, counter)
    return fabric


def content(rank: int, length: int) -> bytes:
    """Return the block of a rank; no two chunks of all ranks are equal."""
    return Random(rank).randbytes(length)


def post(fabric: Fabric, plan: MulticastPlan, salt: int = 0, skew: int = 0) -> Ran:
    """Post an operation at every rank; `skew`: picoseconds within which the ranks enter."""
    outputs = [bytearray(plan.bytes) for _ in fabric.ends]
    told: list[list[Exception | None]] = [[] for _ in fabric.ends]
    ran = Ran(fabric, outputs, told, [MulticastCounters() for _ in fabric.ends])

    def end(rank: int, error: Exception | None) -> None:
        told[rank].append(error)
        operation = fabric.ranks[rank].operation
        ran.counted[rank] = operation.counted if operation else MulticastCounters()

    for rank in range(fabric.size):

        def begin(rank: int = rank) -> None:
            source = memoryview(content(rank + salt, plan.length)) if plan.owns(rank) else None
            fabric.ranks[rank].post(plan, source, memoryview(outputs[rank]), lambda error: end(rank, error))

        if skew:
            fabric.later(fabric.random.randrange(skew), begin)
        else:
            begin()
    return ran


def execute(plan: MulticastPlan, fate: Fate = all_arrive, counter: int = 0, skew: int = 0, **options: object) -> Ran:
    """Run one operation until no event is left."""
    fabric = fabric_of(plan.size, plan.config, counter, fate=fate, **options)
    ran = post(fabric, plan, skew=skew)
    fabric.run()
    return ran


def expected(plan: MulticastPlan, salt: int = 0) -> bytes:
    """Return the result that every rank must have."""
    return b"".join(content(owner + salt, plan.length) for owner in plan.owners)


def check_done(ran: Ran, plan: MulticastPlan, salt: int = 0) -> None:
    """Assert that every rank has the result, `done` was called once, and no buffer is still registered."""
    assert ran.told == [[None]] * plan.size, "\n".join(str(rank.operation) for rank in ran.fabric.ranks)
    assert {bytes(output) for output in ran.outputs} == {expected(plan, salt)}


__all__ = [
    "Bursts", "Fabric", "Ran", "all_arrive", "check_done", "content", "execute", "expected", "fabric_of", "lose",
    "lose_all", "post",
]  # fmt: skip
