# SPDX-License-Identifier: GPL-2.0-only
"""This machine drives a SHARP fabric of our engines: hosts, aggregation nodes, agents and the manager (sharp.md §6, 5–9
and 11–25).

Connections are reliable and in order, each on its own: what two of them carry mixes at will, and an acknowledgement
takes its time. Members come late, disagree, or die, as do aggregation nodes; requests and results come again.
"""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition

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
from uetproto.engine.sharp.node.aggregation_node import SharpNode
from uetproto.engine.sharp.node.sat_operations import SatOperations
from uetproto.engine.sharp.options import SharpOptions
from uetproto.testing.machines.fabrics.sharp_fabric import HOSTS, A, B, DisorderedSharpWire, S
from uetproto.testing.machines.machine import PlayedMachine, start, step
from uetproto.testing.machines.picture import DrawnMessage
from uetproto.testing.machines.world import hold
from uetproto.wire.headers.sharp import Coll, Dtype, Op, SharpOpcode

GROUPS = (7, 8)
REPEATED = (SharpOpcode.AGG_REQ, SharpOpcode.AGG_RESULT, SharpOpcode.GROUP_JOIN_RESP)
"""Messages that may come again: a duplicate of them changes nothing (sharp.md §6)."""
COLLECTIVES = st.sampled_from(("allreduce", "allreduce", "allreduce", "barrier", "bcast", "reduce"))
COUNTS = st.sampled_from((1, 40, 120, 120, 200))
MEMBERS = st.integers(0, 3)
NOTHING = (0, 0, 0, 0)


def operand(rank: int, number: int, count: int) -> list[int]:
    """Return the elements that a member gives to a collective."""
    return [(number * 31 + rank * 57 + k * 11) & 0xFF for k in range(count)]


class SharpProgram:
    """A program says what the members of a group do, one collective after another. The first member that comes to a
    collective decides which it is."""

    def __init__(self) -> None:
        self.steps: list[tuple[Coll, int, int]] = []
        """Collective, elements, root."""

    def work(self, rank: int, group: int, number: int) -> Aggregate:
        """Return the work of a member in a collective."""
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
        """Return what a member must get of a collective."""
        coll, count, root = self.steps[number]
        if coll == Coll.BARRIER or (coll == Coll.REDUCE and rank != root):
            return b""
        if coll == Coll.BCAST:
            return bytes(operand(root, number, count))
        return bytes(sum(column) & 0xFF for column in zip(*(operand(r, number, count) for r in range(4)), strict=True))


class SharpMachine(PlayedMachine):
    """This machine drives two groups of four hosts on two leaves and a spine, with one SAT between them."""

    name = "sharp"
    wire: DisorderedSharpWire
    wrong: tuple[int, int] = (0, 0)
    """Group and number of the collective in which a member disagrees."""

    @property
    def messages(self) -> Sequence[DrawnMessage]:
        return self.wire.drawn() if self.is_begun() else ()

    @property
    def sent(self) -> int:
        return len(self.wire.messages) if self.is_begun() else 0

    def is_begun(self) -> bool:
        return hasattr(self, "wire")

    @start(
        lazy=st.sampled_from([0, 0, 2, 70]), sat=st.booleans(), batch=st.sampled_from(["1", "2", "65535"]),
        window=st.sampled_from([1, 2, 4]), osts=st.sampled_from(["2", "3"]), multicast=st.booleans(),
        early=st.sampled_from(["0", "1"]), semaphores=st.sampled_from([1, 2]),
    )  # fmt: skip
    def begin(
        self, lazy: int, sat: bool, batch: str, window: int, osts: str, multicast: bool, early: str, semaphores: int,
    ) -> None:  # fmt: skip
        """Begin a job, whose hosts join the groups."""
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
        self.wire = wire = DisorderedSharpWire(config, options)
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
        self.programs = {group: SharpProgram() for group in self.groups}
        self.begun = {(address, group): 0 for address in HOSTS for group in self.groups}
        self.ended: dict[tuple[int, int], dict[int, Any]] = {one: {} for one in self.begun}
        self.states = dict.fromkeys(self.begun, "joining")
        self.harmed = False
        """Whether somebody died or disagreed."""
        wire.collect()

    # What may happen

    @step(at=MEMBERS, group=st.sampled_from(GROUPS), coll=COLLECTIVES, count=COUNTS, root=MEMBERS)
    def submit(self, at: int, group: int, coll: str, count: int, root: int) -> None:
        """A member comes to its next collective."""
        self._submit(at, group, coll, count, root)

    def _submit(self, at: int, group: int, coll: str, count: int, root: int) -> None:
        address = HOSTS[at]
        if address in self.wire.dead or self.states.get((address, group)) != "joined":
            return
        number = self.begun[address, group]
        program = self.programs[group]
        if number == len(program.steps):
            kind = Coll[coll.upper()]
            program.steps.append((kind, 0 if kind == Coll.BARRIER else count, root))
        self.begun[address, group] += 1
        self.wire.hosts[address].submit(program.work(at, group, number), self.wire.now)
        self.wire.collect()

    @step(
        order=st.permutations(range(4)), group=st.sampled_from(GROUPS), coll=COLLECTIVES, count=COUNTS, root=MEMBERS
    )  # fmt: skip
    def everybody(self, order: list[int], group: int, coll: str, count: int, root: int) -> None:
        """All members come to their next collective."""
        for at in order:
            self._submit(at, group, coll, count, root)

    @step(links=st.lists(st.integers(0, 40), min_size=1, max_size=8), slow_acks=st.booleans())
    def deliver(self, links: list[int], slow_acks: bool) -> None:
        """Deliver a few messages, of whichever connections."""
        for link in links:
            ready = self.wire.ready()
            if not ready:
                break
            self.wire.step(ready[link % len(ready)], acknowledge=not slow_acks)
        self._take()

    @step()
    def deliver_all(self) -> None:
        """Deliver everything."""
        self.wire.settle()
        self._take()

    @step(milliseconds=st.sampled_from([1, 15, 110, 300]))
    def wait(self, milliseconds: int) -> None:
        """Let time pass."""
        self.wire.wait(milliseconds * MILLISECOND)
        self._take()

    @precondition(lambda self: self.is_begun() and bool(self.wire.old))
    @step(back=st.integers(0, 20))
    def again(self, back: int) -> None:
        """Deliver a request or a result once more."""
        link, data = self.wire.old[-1 - back % len(self.wire.old)]
        if data[1] in REPEATED and link[1] not in self.wire.dead and link[0] not in self.wire.dead:
            self.lossless = False  # what is so old that it is in no cache is refused
            self.wire.again(link, data)

    @step(address=st.sampled_from([*HOSTS, A, B, S]), rare=st.integers(0, 14))
    def die(self, address: int, rare: int) -> None:
        """A host or an aggregation node dies, seldom."""
        if rare or self.harmed:
            return
        self.harmed = True
        self.wire.kill(address)
        if address in (A, B, S):
            self.wire.manager.an_died(address)

    @step(at=MEMBERS, group=st.sampled_from(GROUPS), rare=st.integers(0, 9))
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

    def _take(self) -> None:
        for rank, address in enumerate(HOSTS):
            told, self.wire.happened[address] = self.wire.happened[address], []
            for event in told:
                self._event(rank, address, event)

    def _event(self, rank: int, address: int, event: Any) -> None:
        if isinstance(event, AggregateDone | AggregateFailed):
            number, last = divmod(event.op_id, 10)
            group = last
            what = f"collective {number} of group {group} at host {rank}"
            hold(number not in self.ended[address, group], "SHARP-ENDS-ONCE", what)
            self.ended[address, group][number] = event
            if isinstance(event, AggregateDone):
                hold(self.wrong != (group, number), "SHARP-MISMATCH", f"{what} has a result, but did not match")
                hold(bytes(event.data) == self.programs[group].result(rank, number), "SHARP-RESULT", f"{what} is wrong")
                for other in HOSTS:
                    hold(self.begun[other, group] > number, "SHARP-EARLY", f"{what} ends before all have begun")
            else:
                fine = self.harmed or event.status.name in ("OST_EXHAUSTED", "TIMEOUT_NO_PROGRESS")
                hold(fine, "SHARP-FAILED", f"{what}: {event.status.name}")
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
        """Check that no aggregation node holds more resources than it has, and that none refuses a request for which it
        has resources."""
        if not self.is_begun() or self.failed:
            return
        with self.told():
            for guid, node in self.wire.nodes.items():
                self._check_node(guid, node)

    def _check_node(self, guid: int, node: SharpNode) -> None:
        used, config, holders = node.pool.used(), node.config, node.pool.holders
        fits = (
            min(used) >= 0
            and used.osts <= config.osts
            and used.buffers <= config.buffers
            and all(count <= config.semaphores for count in holders.values())
            and holders.total() <= config.sat_flows_per_an
        )
        hold(fits, "SHARP-POOL", f"node {guid:#x} uses {used}, holders {holders}")
        for group in node.groups.values():
            operations = group.operations
            if isinstance(operations, SatOperations):
                hold(0 <= operations.open <= config.sat_window, "SHARP-SAT-WINDOW", f"{operations.open} at {guid:#x}")
            else:
                osts = sum(op.ost for op in operations.ops.values())
                hold(osts <= group.granted.granted_osts, "SHARP-OSTS", f"{osts} at {guid:#x}")
            for op in operations.ops.values():
                known = op.operands.keys()
                hold(known <= set(group.members), "SHARP-OPERANDS", f"of no member at {guid:#x}")
                complete = not (op.up or op.result is not None) or known in (set(group.members), set())
                hold(complete, "SHARP-OPERANDS", f"not all at {guid:#x}, but it went on")
        if self.lossless and not self.harmed:
            hold(not node.counters["nacks"], "SHARP-NACKS", f"node {guid:#x} refuses without need")

    def finish(self) -> None:
        """Check that everything ends in time, and well if nobody was harmed; then nothing is left."""
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
                done = len(self.ended[address, group])
                hold(done == count, "SHARP-HANGS", f"{count - done} collectives of group {group} at host {address}")
        for address in HOSTS:
            for group in self.groups:
                if address not in wire.dead and self.states[address, group] != "left":
                    wire.hosts[address].submit(LeaveGroup(group), wire.now)
        wire.wait(20 * SECOND)
        self._take()
        for (address, group), state in self.states.items():
            left = state == "left" or address in wire.dead
            hold(left, "SHARP-LEFT", f"host {address} is {state} in group {group}")
        for guid, node in wire.nodes.items():
            if guid not in wire.dead:
                used = node.pool.used()
                empty = used == NOTHING and not node.groups and node.deadline() is None
                hold(empty, "SHARP-LEFTOVERS", f"node {guid:#x} still holds {used}, {len(node.groups)} groups")
        wire.manager.end_job(self.job)
        for guid, node in wire.nodes.items():
            if guid not in wire.dead:
                empty = not (node.quotas or wire.agents[guid].qps or wire.ports[guid].open)
                hold(empty, "SHARP-LEFTOVERS", f"node {guid:#x} still has quotas or connections")
