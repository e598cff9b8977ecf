"""Hosts, aggregation nodes, agents and the manager together under whatever may happen (sharp.md §6, 5–9 and 11–25).

Connections are reliable and in order, each on its own: what two of them carry mixes at will, and an acknowledgement
takes its time. Members come late, disagree, or die, as do aggregation nodes; requests and results come again.
"""

from collections import deque
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.effort import effort
from tests.support.sharp.fabric import HOSTS, A, B, S, Wire
from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.host.work import (
    Aggregate,
    AggregateDone,
    AggregateFailed,
    GroupFailed,
    GroupJoined,
    GroupLeft,
    JoinGroup,
    LeaveGroup,
)
from uetproto.engine.sharp.manager.grants import JobGrant
from uetproto.engine.sharp.node.sat_operations import SatOperations
from uetproto.engine.sharp.options import SharpOptions
from uetproto.wire.headers.sharp import Coll, Dtype, Op, SharpOpcode

GROUPS = (7, 8)
REPEATED = (SharpOpcode.AGG_REQ, SharpOpcode.AGG_RESULT, SharpOpcode.GROUP_JOIN_RESP)
"""What may come again: a duplicate of it changes nothing (6)."""

Link = tuple[int, int, int | None, int]
"""From, to, and the connection as either calls it; None: multicast."""


class Chaos(Wire):
    """A wire whose messages and acknowledgements are delivered one by one, in the order that is asked for."""

    def __init__(self, config: SharpConfig, options: SharpOptions) -> None:
        super().__init__(config=config, options=options)
        self.links: dict[Link, deque[tuple[bytes, int]]] = {}
        self.acks: list[tuple[int, int, int]] = []
        """From whom, on which connection, and the handle."""
        self.old: list[tuple[Link, bytes]] = []

    def collect(self) -> None:
        """What elements send goes on the wire."""
        self._collect(*(address for address in self.elements if address not in self.dead))
        while self.queue:
            source, target, conn, data, own, handle = self.queue.popleft()
            self.links.setdefault((source, target, conn, own), deque()).append((data, handle))

    def ready(self) -> list[Link]:
        """Connections with something on its way."""
        return [link for link, messages in self.links.items() if messages]

    def step(self, link: Link, *, acknowledge: bool = True) -> None:
        """The oldest message of a connection arrives."""
        source, target, conn, own = link
        data, handle = self.links[link].popleft()
        if target in self.dead:
            return
        self.old.append((link, data))
        self.elements[target].message(conn, data, self.now)
        if conn is not None and handle:
            self.acks.append((source, own, handle))
        if acknowledge:
            self.acknowledge()
        self.collect()

    def acknowledge(self) -> None:
        """All acknowledgements arrive."""
        acks, self.acks = self.acks, []
        for address, conn, handle in acks:
            if address not in self.dead:
                self.elements[address].acknowledged(conn, handle, self.now)

    def settle(self) -> None:
        """Everything arrives; no time passes."""
        self.collect()
        for _ in range(100_000):
            links = self.ready()
            if not links:
                break
            self.step(links[0])
        assert not self.ready(), "it does not end"
        self.acknowledge()
        self.collect()

    def wait(self, duration: int) -> None:
        """Time passes; timers fire when they are due."""
        end = self.now + duration
        self.settle()
        while True:
            due = [
                at for address, one in self.elements.items()
                if address not in self.dead and (at := one.deadline()) is not None and at <= end
            ]  # fmt: skip
            if not due:
                break
            self.now = max(self.now, min(due))
            self.settle()
        self.now = end

    def kill(self, address: int) -> None:
        """It says and hears no more; its neighbours are told by their carriers."""
        self.dead.add(address)
        for link, messages in self.links.items():
            if address in link[:2]:
                messages.clear()
        for (here, conn), (there, _) in list(self.ends.items()):
            if there == address and here not in self.dead:
                self.elements[here].lost(conn, self.now)
        self.collect()


def operand(rank: int, number: int, count: int) -> list[int]:
    return [(number * 31 + rank * 57 + k * 11) & 0xFF for k in range(count)]


class Program:
    """What the members of a group do, one collective after another: drawn when the first of them comes to it."""

    def __init__(self) -> None:
        self.steps: list[tuple[Coll, int, int]] = []
        """Collective, elements, root."""

    def work(self, rank: int, group: int, number: int) -> Aggregate:
        coll, count, root = self.steps[number]
        empty = coll == Coll.BARRIER or (coll == Coll.BCAST and rank != root)
        return Aggregate(
            op_id=number * 10 + group % 10, group_id=group, coll=coll,
            op=Op.SUM if coll in (Coll.ALLREDUCE, Coll.REDUCE) else Op.NULL,
            dtype=Dtype.NULL if coll == Coll.BARRIER else Dtype.UINT8,
            data=b"" if empty else bytes(operand(rank, number, count)), count=count,
            root=root if coll in (Coll.REDUCE, Coll.BCAST) else None,
        )  # fmt: skip

    def result(self, rank: int, number: int) -> bytes:
        coll, count, root = self.steps[number]
        if coll == Coll.BARRIER or (coll == Coll.REDUCE and rank != root):
            return b""
        if coll == Coll.BCAST:
            return bytes(operand(root, number, count))
        return bytes(sum(column) & 0xFF for column in zip(*(operand(r, number, count) for r in range(4)), strict=True))


class Together(RuleBasedStateMachine):
    """Two groups of four hosts on two leaves and a spine, with one SAT between them."""

    wire: Chaos

    @initialize(
        lazy=st.sampled_from([0, 0, 2, 70]), sat=st.booleans(), batch=st.sampled_from(["1", "2", "65535"]),
        window=st.sampled_from([1, 2, 4]), osts=st.sampled_from(["2", "3"]), multicast=st.booleans(),
        early=st.sampled_from(["0", "1"]), semaphores=st.sampled_from([1, 2]),
    )  # fmt: skip
    def begin(
        self, lazy: int, sat: bool, batch: str, window: int, osts: str, multicast: bool, early: str, semaphores: int,
    ) -> None:  # fmt: skip
        pool = {"lazy_ost": True, "osts": max(lazy, 2)} if lazy else {}
        config = SharpConfig(
            lab_radix=2,
            llt_trees=2,
            heartbeat=0,
            sat_chunk=32,
            sat_window=window,
            semaphores=semaphores,
            **pool,  # type: ignore[arg-type]
        )
        options = SharpOptions.of({
            "SHARP_COLL_ENABLE_SAT": str(int(sat)), "SHARP_COLL_SAT_THRESHOLD": "100",
            "SHARP_COLL_SAT_LOCK_BATCH_SIZE": batch, "SHARP_COLL_OSTS_PER_GROUP": osts,
            "SHARP_COLL_LOCK_ON_COMM_INIT": early, "SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST": "32",
            "SHARP_COLL_JOB_QUOTA_OSTS": "2" if lazy == 2 else "20",
            "SHARP_COLL_SAT_LOCK_RETRY_TIMEOUT": "20",
        })  # fmt: skip
        self.lossless = not lazy
        self.wire = wire = Chaos(config, options)
        wire.manager.start()
        grant = wire.manager.begin_job([HOSTS])
        assert isinstance(grant, JobGrant), grant
        self.job = grant.job_id
        for rank, address in enumerate(HOSTS):
            host = wire.host(address, rank)
            llt, streams = wire.attach(address, grant, rank)
            for group in GROUPS if lazy != 2 else GROUPS[:1]:
                host.submit(JoinGroup(
                    group_id=group, job_id=grant.job_id, group_size=4, llt=llt, sat=streams, multicast=multicast
                ), 0)  # fmt: skip
        self.groups = GROUPS if lazy != 2 else GROUPS[:1]
        self.programs = {group: Program() for group in self.groups}
        self.begun = {(address, group): 0 for address in HOSTS for group in self.groups}
        self.ended: dict[tuple[int, int], dict[int, Any]] = {one: {} for one in self.begun}
        self.states = dict.fromkeys(self.begun, "joining")
        self.harmed = False
        """Somebody died, disagreed or left."""
        wire.collect()

    # What may happen

    @rule(at=st.integers(0, 3), group=st.sampled_from(GROUPS), data=st.data())
    def submit(self, at: int, group: int, data: st.DataObject) -> None:
        """A member comes to its next collective."""
        address = HOSTS[at]
        if address in self.wire.dead or self.states.get((address, group)) != "joined":
            return
        number = self.begun[address, group]
        program = self.programs[group]
        if number == len(program.steps):
            coll = data.draw(st.sampled_from([Coll.ALLREDUCE] * 3 + [Coll.BARRIER, Coll.BCAST, Coll.REDUCE]))
            count = 0 if coll == Coll.BARRIER else data.draw(st.sampled_from([1, 40, 120, 120, 200]))
            program.steps.append((coll, count, data.draw(st.integers(0, 3))))
        self.begun[address, group] += 1
        self.wire.hosts[address].submit(program.work(at, group, number), self.wire.now)
        self.wire.collect()

    @rule(group=st.sampled_from(GROUPS), data=st.data())
    def everybody(self, group: int, data: st.DataObject) -> None:
        """All members come to their next collective."""
        for at in data.draw(st.permutations(range(4))):
            self.submit(at, group, data)

    @rule(data=st.data(), slow_acks=st.booleans())
    def deliver(self, data: st.DataObject, slow_acks: bool) -> None:
        """A few messages, of whichever connections."""
        for _ in range(data.draw(st.integers(1, 8))):
            links = self.wire.ready()
            if not links:
                break
            self.wire.step(data.draw(st.sampled_from(links)), acknowledge=not slow_acks)
        self._take()

    @rule()
    def deliver_all(self) -> None:
        self.wire.settle()
        self._take()

    @rule(milliseconds=st.sampled_from([1, 15, 110, 300]))
    def time_passes(self, milliseconds: int) -> None:
        self.wire.wait(milliseconds * MILLISECOND)
        self._take()

    @precondition(lambda self: self.wire.old)
    @rule(back=st.integers(0, 20))
    def again(self, back: int) -> None:
        """A request or a result comes once more."""
        link, data = self.wire.old[-1 - back % len(self.wire.old)]
        if data[1] in REPEATED and link[1] not in self.wire.dead and link[0] not in self.wire.dead:
            self.lossless = False  # what is so old that it is in no cache is refused
            self.wire.elements[link[1]].message(link[2], data, self.wire.now)
            self.wire.collect()

    @rule(address=st.sampled_from([*HOSTS, A, B, S]), rare=st.integers(0, 14))
    def die(self, address: int, rare: int) -> None:
        if rare or self.harmed:
            return
        self.harmed = True
        self.wire.kill(address)
        if address in (A, B, S):
            self.wire.manager.an_died(address)

    @rule(at=st.integers(0, 3), group=st.sampled_from(GROUPS), rare=st.integers(0, 9))
    def disagree(self, at: int, group: int, rare: int) -> None:
        """A member does something else than the others, on the same tree: LLT and SAT count on their own."""
        address = HOSTS[at]
        if rare or self.harmed or self.states.get((address, group)) != "joined":
            return
        number, program = self.begun[address, group], self.programs[group]
        if number == len(program.steps):
            program.steps.append((Coll.ALLREDUCE, 40, 0))
        coll, count, _ = program.steps[number]
        other = Aggregate(
            op_id=number * 10 + group % 10, group_id=group, coll=Coll.ALLREDUCE, op=Op.MAX, dtype=Dtype.UINT8,
            data=bytes(count), count=count,
        ) if coll != Coll.BARRIER else Aggregate(
            op_id=number * 10 + group % 10, group_id=group, coll=Coll.BCAST, dtype=Dtype.UINT8, data=b"", count=8,
            root=(at + 1) % 4,
        )  # fmt: skip
        self.harmed = True
        self.begun[address, group] += 1
        self.wrong = (group, number)
        self.wire.hosts[address].submit(other, self.wire.now)
        self.wire.collect()

    wrong: tuple[int, int] = (0, 0)

    def _take(self) -> None:
        for rank, address in enumerate(HOSTS):
            told, self.wire.happened[address] = self.wire.happened[address], []
            for event in told:
                self._event(rank, address, event)

    def _event(self, rank: int, address: int, event: Any) -> None:
        if isinstance(event, AggregateDone | AggregateFailed):
            number, last = divmod(event.op_id, 10)
            group = last
            assert number not in self.ended[address, group], "ends once"
            self.ended[address, group][number] = event
            if isinstance(event, AggregateDone):
                assert self.wrong != (group, number), "no result of what did not match"
                assert bytes(event.data) == self.programs[group].result(rank, number), "no wrong result"
                for other in HOSTS:
                    assert self.begun[other, group] > number, "nobody leaves before the last has entered"
            else:
                assert self.harmed or event.status.name in ("OST_EXHAUSTED", "TIMEOUT_NO_PROGRESS"), event
        elif isinstance(event, GroupJoined):
            self.states[address, event.group_id] = "joined"
            if event.mgid:
                self.wire.ports[address].join(event.mgid, event.qkey, self.wire.now)
        elif isinstance(event, GroupFailed):
            self.states[address, event.group_id] = "failed"
        else:
            assert isinstance(event, GroupLeft)
            self.states[address, event.group_id] = "left"

    # What is always true

    @invariant()
    def limits(self) -> None:
        if not hasattr(self, "wire"):
            return
        for node in self.wire.nodes.values():
            used, config = node.pool.used(), node.config
            assert min(used) >= 0
            assert used.osts <= config.osts
            assert used.buffers <= config.buffers
            holders = node.pool.holders
            assert all(count <= config.semaphores for count in holders.values())
            assert holders.total() <= config.sat_flows_per_an
            for group in node.groups.values():
                operations = group.operations
                if isinstance(operations, SatOperations):
                    assert 0 <= operations.open <= config.sat_window
                else:
                    assert sum(op.ost for op in operations.ops.values()) <= group.granted.granted_osts
                for op in operations.ops.values():
                    assert op.operands.keys() <= set(group.members)
                    if op.up or op.result is not None:
                        assert op.operands.keys() in (set(group.members), set()), "complete before it goes on"

    @invariant()
    def no_nacks(self) -> None:
        """Loss-free, and with an OST for everybody: nobody is refused."""
        if hasattr(self, "wire") and self.lossless and not self.harmed:
            assert all(not node.counters["nacks"] for node in self.wire.nodes.values())

    def teardown(self) -> None:
        """Everything ends in time; what all have begun ends well if nobody was harmed; then nothing is left."""
        if not hasattr(self, "wire"):
            return
        wire = self.wire
        self.wire.settle()
        self._take()
        late = self.harmed
        for group in self.groups:
            if not late and all(self.states[address, group] == "joined" for address in HOSTS):
                for rank, address in enumerate(HOSTS):
                    for number in range(self.begun[address, group], len(self.programs[group].steps)):
                        self.begun[address, group] += 1
                        wire.hosts[address].submit(self.programs[group].work(rank, group, number), wire.now)
        for _ in range(8):
            wire.wait(5 * SECOND)
            self._take()
        for (address, group), count in self.begun.items():
            if address not in wire.dead:
                assert len(self.ended[address, group]) == count, (address, group, "no hang")
        for address in HOSTS:
            for group in self.groups:
                if address not in wire.dead and self.states[address, group] != "left":
                    wire.hosts[address].submit(LeaveGroup(group), wire.now)
        wire.wait(20 * SECOND)
        self._take()
        for (address, group), state in self.states.items():
            assert state == "left" or address in wire.dead, (address, group, state)
        for guid, node in wire.nodes.items():
            if guid not in wire.dead:
                assert node.pool.used() == (0, 0, 0, 0), (guid, node.pool.used())
                assert not node.groups
                assert node.deadline() is None
        wire.manager.end_job(self.job)
        for guid, node in wire.nodes.items():
            if guid not in wire.dead:
                assert not node.quotas
                assert not wire.agents[guid].qps
                assert not wire.ports[guid].open


Together.TestCase.settings = settings(
    max_examples=effort(75, 150, settings.default.max_examples),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestTogether = Together.TestCase
