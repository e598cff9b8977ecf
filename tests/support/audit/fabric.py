# SPDX-License-Identifier: GPL-2.0-only
"""This module runs collectives over switches in virtual time, and records the frames at every node and switch.

Ranks exchange data by UET or RoCE, or aggregation nodes in the switches reduce them (SHARP). As in `network`, frames
may be lost, copied, cut, marked or delayed, on the link to their first switch and on that from their last switch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, NamedTuple

import numpy as np

from tests.support.audit.network import LONGEST, MIDDLE, Faults, FindingPlace, Record, happens
from uetproto.api.distributed.networks import roce as distributed_roce
from uetproto.api.distributed.networks import uet as distributed_uet
from uetproto.api.distributed.networks.packets import PacketNetwork
from uetproto.api.distributed.networks.sharp import SharpOffload
from uetproto.api.distributed.networks.sharp_errors import SharpRefusedError
from uetproto.api.distributed.networks.sharp_groups import Communicator
from uetproto.collectives.algorithms.by_schedule import by_schedule
from uetproto.collectives.algorithms.catalogue import ALGORITHMS, buffers, schedule
from uetproto.collectives.algorithms.schedule import IN_PLACE
from uetproto.collectives.dtypes import Array
from uetproto.collectives.offload import CollectivePart, OffloadRequest, PartFactory
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.emulator.network.ports import port_names
from uetproto.engine.contract import MICROSECOND
from uetproto.engine.sharp.host.work import GroupLeft, LeaveGroup
from uetproto.errors import UetError
from uetproto.framing.framer import mac_of
from uetproto.impair.link import EmulatedLink

_PS = 1000  # in a nanosecond
NETWORKS: dict[str, Callable[..., PacketNetwork]] = {"uet": distributed_uet.network, "roce": distributed_roce.network}


class Collective(NamedTuple):
    """This record describes one collective of all ranks of a group."""

    op: str
    algorithm: str
    dtype: str = "int32"
    blocks: int = 1
    """Elements of the full vector, divided by the number of ranks."""
    root: int = 0
    reduce_op: ReduceOp | None = None
    at_odds: int | None = None
    """Index of a rank that asks for another result than the others; None: no rank does."""


class Program(NamedTuple):
    """A program has the collectives of a group of ranks."""

    ranks: tuple[int, ...]
    collectives: tuple[Collective, ...]
    at_once: int = 1
    """Number of collectives that run at the same time."""
    leave_after: int = 0
    """Number of collectives after which ranks leave their SHARP groups, and join again for the next; 0: never."""


@dataclass(frozen=True, kw_only=True)
class FabricRun:
    """A fabric run has all settings of one emulation."""

    seed: int
    transport: str
    size: int
    """Number of ranks."""
    given: Mapping[str, Any]
    """Cables, parameters of the transport, and options of SHARP."""
    programs: tuple[Program, ...]
    before: Faults
    behind: Faults
    most: int
    """Number of frames after which the run ends."""
    killed: tuple[str, int] | None = None
    """Node that fails, and the time of its failure; None: no node fails."""

    @property
    def sharp(self) -> bool:
        """Return whether the fabric has aggregation nodes."""
        return bool(self.given.get("sharp"))

    def emulate(self) -> dict[FindingPlace, list[Record]]:
        """Run the emulation, and return the recorded frames by place."""
        network = NETWORKS[self.transport](self.size, seed=self.seed, **self.given)
        watch = _Watch(network, self)
        for number, program in enumerate(self.programs):
            _Group(network, program, number, Random(f"{self.seed}/program/{number}")).go()
        if self.killed is not None:
            name, instant = self.killed
            network.timers.at(instant, partial(network.kill, name))
        _run(network, watch)
        network.close(drain=False)
        return watch.seen()


def _run(network: PacketNetwork, watch: "_Watch") -> None:
    """Run until no event is left, or enough frames were sent."""
    while not watch.full and network.now < LONGEST:
        if network.timers.fire(network.now):
            continue
        instant = network.timers.next
        network.run(partial(_is_over, network, watch, instant), min(LONGEST, instant or LONGEST))
        if watch.full or network.timers.next != instant:
            continue
        if instant is None:
            return
        network.advance(min(LONGEST, instant))


def _is_over(network: PacketNetwork, watch: "_Watch", instant: int | None) -> bool:
    return watch.full or network.timers.next != instant


# What is seen ---------------------------------------------------------------------------------------------------------


class _Watch:
    """This class records the frames of all links, and applies faults to them."""

    def __init__(self, network: PacketNetwork, run: FabricRun) -> None:
        self._clock = network.world.clock
        self._nodes = network.world.nodes
        self._senders = {mac_of(node.address).to_bytes(6, "big"): node.address for node in self._nodes.values()}
        self._run = run
        self._chance = Random(f"{run.seed}/fabric")
        self._number = 0
        self._left = run.most
        self._places: dict[FindingPlace, list[Record]] = {MIDDLE: []}
        self._places |= {node.address: [] for node in self._nodes.values()}
        self._places |= {name: [] for name in network.world.network.switches}
        ends = {end: node.name for node in self._nodes.values() for end in port_names(node.name, node.ports)}
        for source, target, link in (*network.world.network.hops, *network.world.network.inner_hops):
            self._watch(ends.get(source, source), ends.get(target, target), link)

    @property
    def full(self) -> bool:
        """Return whether as many frames have left as the run needs."""
        return self._left <= 0

    def _watch(self, source: str, target: str, link: EmulatedLink) -> None:
        """Insert this recorder between `link` and the part behind it."""
        take = link._take
        leaves, arrives = source in self._nodes, target in self._nodes

        def passes(frame: bytes) -> None:
            now = self._clock.now
            if leaves:
                if self.full:
                    return
                self._left -= 1
                self._note(self._nodes[source].address, now - link.delay - link.duration(len(frame)), frame)
                self._later(self._run.before, frame, through)
            else:
                through(frame)

        def through(frame: bytes) -> None:
            now = self._clock.now
            if leaves:
                self._note(MIDDLE, now, frame)
            if arrives:
                self._later(self._run.behind, frame, arrive)
            else:
                self._note(target, now, frame)
                take(frame)

        def arrive(frame: bytes) -> None:
            self._note(self._nodes[target].address, self._clock.now, frame)
            take(frame)

        link._take = passes

    def _later(self, faults: Faults, frame: bytes, on: Callable[[bytes], None]) -> None:
        now = self._clock.now
        for at, passing in happens(faults, self._chance, frame, now, trims=self._run.transport == "uet"):
            if at == now:
                on(passing)
            else:
                self._clock.at(at, on, passing)

    def _note(self, place: FindingPlace, time: int, frame: bytes) -> None:
        self._number += 1
        self._places[place].append(Record(time // _PS, self._number, frame, self._senders[frame[6:12]]))

    def seen(self) -> dict[FindingPlace, list[Record]]:
        """Return the records by place, in the order of time."""
        return {place: sorted(records) for place, records in self._places.items()}


# What is done ---------------------------------------------------------------------------------------------------------


@dataclass
class _Group:
    """This class runs the program of a group of ranks; a failure ends it."""

    network: PacketNetwork
    program: Program
    number: int
    chance: Random
    begun: int = 0
    done: int = 0
    over: bool = False
    awaited: int = 0
    """Number of members that have yet to leave."""
    left: frozenset[int] = frozenset()
    """SHARP groups that the members leave."""
    listening: set[str] = field(default_factory=set)

    def go(self) -> None:
        """Begin as many collectives as may run at the same time."""
        program = self.program
        while not self.over and not self.awaited and self.begun < len(program.collectives):
            apart = program.leave_after and self.begun and not self.begun % program.leave_after
            if self.begun - self.done >= (1 if apart else program.at_once):
                return
            if apart and self.done == self.begun and self._leave():
                return
            self.begun += 1
            try:
                self._begin(program.collectives[self.begun - 1])
            except SharpRefusedError:  # the manager has no resources for them
                self.over = True

    def _begin(self, collective: Collective) -> None:
        network, ranks, chance = self.network, self.program.ranks, self.chance
        size = len(ranks)
        asked = OffloadRequest(
            op=collective.op, algorithm=collective.algorithm, ranks=ranks, group=self.number + 1, sequence=self.begun,
            dtype=np.dtype(collective.dtype), count=collective.blocks * size if collective.op != "barrier" else 0,
            root=collective.root, reduce_op=collective.reduce_op, sizes=None,
        )  # fmt: skip
        made = [self._maker(asked)] * size
        if collective.at_odds is not None:
            made[collective.at_odds] = self._maker(replace(asked, reduce_op=ReduceOp.MIN))
        left = [size]

        def ended(error: UetError | None) -> None:
            left[0] -= 1
            self.over = self.over or error is not None
            if not left[0]:
                self.done += 1
                network.timers.at(network.now, self.go)

        parts = []
        for place, make_one in enumerate(made):
            source, output = _arrays(asked, place, chance)
            parts.append(make_one(place, source, output, ended))
        late = chance.choice((0, 0, MICROSECOND, 50 * MICROSECOND))
        for part in chance.sample(parts, size):
            network.timers.at(network.now + int(chance.random() * late), partial(_start, part))

    def _maker(self, asked: OffloadRequest) -> PartFactory:
        if ALGORITHMS[asked.op][asked.algorithm].make is not None:
            return by_schedule(asked, asked.algorithm, self.network.end)
        assert self.network.offload is not None
        return self.network.offload.maker(asked)

    # Groups of SHARP, left and joined again

    def _leave(self) -> bool:
        """Make all members leave their SHARP groups; return False if there are none."""
        sharp: SharpOffload | None = getattr(self.network, "sharp", None)
        communicator = None if sharp is None else sharp._communicators.get(self.program.ranks)
        if sharp is None or not isinstance(communicator, Communicator):
            return False
        members = [member for each in communicator._members for member in each if member._joined]
        self.awaited = len(members)
        for member in members:
            if member.side.node.name not in self.listening:
                self.listening.add(member.side.node.name)
                member.side.node.listeners.append(self._event)
            member._joined = member._asked = False  # it asks again when it has something to aggregate
            member.side.submit(LeaveGroup(member._join.group_id))
        self.left = frozenset(member._join.group_id for member in members)
        return bool(members)

    def _event(self, event: Any) -> None:
        if isinstance(event, GroupLeft) and event.group_id in self.left:
            self.awaited -= 1
            if not self.awaited:
                self.network.timers.at(self.network.now, self.go)


def _start(part: CollectivePart) -> None:
    if not part.ended:
        part.start()


def _arrays(asked: OffloadRequest, place: int, chance: Random) -> tuple[Array, Array]:
    """Return INPUT and OUTPUT of a rank."""
    op, size, count = asked.op, len(asked.ranks), asked.count
    if ALGORITHMS[op][asked.algorithm].make is None:
        counts = buffers(op, asked.algorithm, size, count).counts(place)
    else:
        counts = schedule(op, asked.algorithm, size, count, root=asked.root).counts(place)
    source = np.frombuffer(chance.randbytes(counts.input), np.uint8).astype(asked.dtype)
    return source, source if op in IN_PLACE else np.zeros(counts.output, asked.dtype)
