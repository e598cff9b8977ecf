# SPDX-License-Identifier: GPL-2.0-only
"""Two groups that race for the lock of one SAT tree, and stream: invariants 13, 14, 17 to 19, 21 of sharp.md §6."""

import struct
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.effort import effort
from tests.support.sharp.nodes import HOSTS, JOB, LLT, SAT, Net
from uetproto.engine.contract import MILLISECOND
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.messages import LockBody, SharpMessage
from uetproto.engine.sharp.node.lock import GroupLock
from uetproto.engine.sharp.node.sat_operations import SatOperations
from uetproto.engine.sharp.node.states import GroupState
from uetproto.wire.headers.sharp import Coll, Dtype, Flag, Op, SharpOpcode, Status

GROUPS = (7, 8)
CHUNK = 32
BATCH = 2
M32 = 0xFFFFFFFF


def chunks_of(operation: int) -> int:
    return 1 + operation * 3 % 5


def operand(host: str, group: int, operation: int, chunk: int) -> list[int]:
    base = HOSTS.index(host) * 0x11111111 + group * 101 + operation * 7 + chunk
    return [(base + k * 0x1000193) & M32 for k in range(CHUNK // 4)]


def total(group: int, operation: int, chunk: int) -> bytes:
    columns = zip(*(operand(host, group, operation, chunk) for host in HOSTS), strict=True)
    return struct.pack(f">{CHUNK // 4}I", *(sum(column) & M32 for column in columns))


@dataclass
class Member:
    """One host in one group."""

    state: str = "idle"
    """idle, asked, held, unlocking, failed"""
    token: int = 0
    left: int = 0
    operation: int = 0
    sent: int = 0
    """Chunks of this operation."""
    got: int = 0
    refused: int = 0


class Streaming(RuleBasedStateMachine):
    """Both groups have all four hosts."""

    net: Net

    @initialize(lazy=st.booleans(), window=st.sampled_from([1, 2, 64]), batch=st.sampled_from([BATCH, 0xFFFF]))
    def begin(self, lazy: bool, window: int, batch: int) -> None:
        self.net = Net(SharpConfig(lab_radix=2, heartbeat=0, lazy_ost=lazy, sat_window=window))
        self.window, self.batch = window, batch
        for group in GROUPS:
            self.net.join(group=group)
            self.net.join(group=group, tree=SAT)
        self.members = {(host, group): Member() for host in HOSTS for group in GROUPS}
        self.dead: set[str] = set()
        self.spoiled: set[int] = set()
        self.net.clear()

    def _send(self, opcode: SharpOpcode, tree: int, host: str, group: int, **more: object) -> None:
        seq = more.pop("seq", 0)
        self.net.send(host, SharpMessage(opcode, tree, JOB, group, seq, **more))  # type: ignore[arg-type]

    @rule(host=st.sampled_from(HOSTS), group=st.sampled_from(GROUPS))
    def ask(self, host: str, group: int) -> None:
        member = self.members[host, group]
        if member.state == "idle" and host not in self.dead:
            member.state = "asked"
            self._send(SharpOpcode.LOCK_REQ, LLT, host, group, body=LockBody(SAT, self.batch, 0, 100).pack())

    @rule(group=st.sampled_from(GROUPS))
    def all_ask(self, group: int) -> None:
        for host in HOSTS:
            self.ask(host, group)

    @rule(host=st.sampled_from(HOSTS), group=st.sampled_from(GROUPS), again=st.booleans())
    def stream(self, host: str, group: int, again: bool) -> None:
        """The next chunk, or the last one once more."""
        member = self.members[host, group]
        if member.state != "held" or host in self.dead or not member.left:
            return
        chunks = chunks_of(member.operation)
        if again and member.sent:
            self._chunk(host, group, member.operation, member.sent - 1, Flag.RETX)
        elif member.sent < chunks and member.sent - member.got < self.window:
            self._chunk(host, group, member.operation, member.sent)
            member.sent += 1

    def _chunk(self, host: str, group: int, operation: int, chunk: int, extra: int = 0) -> None:
        last = chunk == chunks_of(operation) - 1
        flags = (
            Flag.SAT | Flag.LOCK | Flag.REPRO | (Flag.FIRST if chunk == 0 else 0) | (Flag.LAST if last else 0) | extra
        )
        values = operand(host, group, operation, chunk)
        self._send(
            SharpOpcode.AGG_REQ, SAT, host, group, seq=operation, vec_off=chunk * CHUNK, count=len(values), op=Op.SUM,
            dtype=Dtype.UNSIGNED, coll=Coll.ALLREDUCE, child_idx=HOSTS.index(host) & 1, flags=flags,
            body=struct.pack(f">{len(values)}I", *values),
        )  # fmt: skip

    @rule(host=st.sampled_from(HOSTS), group=st.sampled_from(GROUPS))
    def unlock(self, host: str, group: int) -> None:
        """After as many operations as a batch has."""
        member = self.members[host, group]
        if member.state == "held" and not member.left and self.batch == 0xFFFF and host not in self.dead:
            member.state = "unlocking"
            self._send(SharpOpcode.UNLOCK_REQ, LLT, host, group, body=LockBody(SAT, self.batch, member.token).pack())

    @precondition(lambda self: not self.dead)
    @rule(host=st.sampled_from(HOSTS), group=st.sampled_from(GROUPS), rare=st.integers(0, 5))
    def without_lock(self, host: str, group: int, rare: int) -> None:
        """SAT data without the lock: an error for its group, nothing for the other."""
        member = self.members[host, group]
        if not rare and member.state == "idle":
            self._chunk(host, group, member.operation, 0)
            self.spoiled.add(group)
            for other in HOSTS:
                self.members[other, group].state = "failed"

    @precondition(lambda self: not self.dead)
    @rule(host=st.sampled_from(HOSTS), rare=st.integers(0, 9))
    def die(self, host: str, rare: int) -> None:
        if not rare:
            self.dead.add(host)
            for tree in (LLT, SAT):
                node, conn = self.net.ends[host, 100 + tree]
                self.net.nodes[node].lost(conn, self.net.now)
            for item in [item for item in self.net.wire if host in item[:2]]:
                self.net.wire.remove(item)

    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        self.net.collect()
        for _ in range(6):
            ends = sorted({item[:2] for item in self.net.wire})
            if ends:
                end = data.draw(st.sampled_from(ends))
                item = next(item for item in self.net.wire if item[:2] == end)
                self.net.wire.remove(item)
                self.net.wire.appendleft(item)
                self.net.step()
                self.net.collect()
        self._take()

    @rule()
    def deliver_all(self) -> None:
        self.net.run()
        self._take()

    @rule(milliseconds=st.sampled_from([5, 60]))
    def time_passes(self, milliseconds: int) -> None:
        self.net.now += milliseconds * MILLISECOND
        self.net.collect()

    def _take(self) -> None:
        for host in HOSTS:
            for message in self.net.received(host):
                member = self.members[host, message.group_id]
                if message.opcode == SharpOpcode.LOCK_RESP:
                    self._answer(member, message)
                elif message.opcode == SharpOpcode.UNLOCK_RESP:
                    if member.state == "unlocking":
                        member.state = "idle"
                elif message.opcode == SharpOpcode.ERROR:
                    slow = message.status == Status.TIMEOUT_NO_PROGRESS
                    assert slow or self.dead or message.group_id in self.spoiled, "no error without a reason"
                    member.state = "failed"
                elif message.opcode == SharpOpcode.AGG_RESULT and member.state != "failed":
                    self._result(host, member, message)

    def _answer(self, member: Member, message: SharpMessage) -> None:
        if member.state != "asked":
            return
        if message.status == Status.OK:
            member.state, member.token, member.left = "held", LockBody.unpack(message.body).token, BATCH
        else:
            assert message.status in (Status.LOCK_BUSY, Status.LOCK_TIMEOUT, Status.CANCELLED)
            member.state = "idle"
            member.refused += 1

    def _result(self, host: str, member: Member, message: SharpMessage) -> None:
        chunk = message.vec_off // CHUNK
        if message.flags & Flag.RETX:
            assert (message.seq, chunk) < (member.operation, member.got)
            assert message.body == total(message.group_id, message.seq, chunk)
            return
        assert (message.seq, chunk) == (member.operation, member.got), "ascending vec_off, each once"
        assert message.body == total(message.group_id, message.seq, chunk)
        member.got += 1
        if message.flags & Flag.LAST:
            assert member.got == chunks_of(member.operation)
            member.operation, member.sent, member.got = member.operation + 1, 0, 0
            member.left -= 1
            if not member.left and self.batch == BATCH:
                member.state = "idle"

    @invariant()
    def limits(self) -> None:
        if not hasattr(self, "net"):
            return
        for node in self.net.nodes.values():
            used = node.pool.used()
            assert min(used) >= 0
            assert used.osts <= node.config.osts
            locks: list[GroupLock] = [node.groups[LLT, g].lock for g in GROUPS if (LLT, g) in node.groups]
            assert sum(lock.holds for lock in locks) <= node.config.semaphores
            assert used.locks == sum(lock.holds for lock in locks)
            assert sum(lock.held for lock in locks) <= node.config.semaphores
            for group in GROUPS:
                streams = node.groups.get((SAT, group))
                if streams is not None:
                    assert isinstance(streams.operations, SatOperations)
                    assert 0 <= streams.operations.open <= self.window

    def teardown(self) -> None:
        """Everything that was begun goes on to its end; whoever asked has an answer; nothing stays."""
        if not hasattr(self, "net"):
            return
        for _ in range(40):
            self.net.wait(60)
            self._take()
            for host in HOSTS:
                for group in GROUPS:
                    self.stream(host, group, False)
                    self.unlock(host, group)
        whole = not self.dead
        for (host, group), member in self.members.items():
            if host not in self.dead:
                assert member.state != "asked", "no schedule leaves a LOCK_REQ without an answer"
                together = all(self.members[other, group].state != "failed" for other in HOSTS)
                if whole and together:
                    alike = {(m.state, m.operation) for (_, g), m in self.members.items() if g == group}
                    assert alike == {("idle", member.operation)}, alike
                    assert not self.net.nodes["S"].groups[LLT, group].lock.held
        self.net.wait(5000)
        live = [host for host in HOSTS if host not in self.dead]
        for group in GROUPS:
            self.net.leave(live, group=group)
            self.net.leave(live, group=group, tree=SAT)
        self.net.wait(20_000)
        for node in self.net.nodes.values():
            assert all(group.state is GroupState.LEAVING for group in node.groups.values()) or not node.groups
            assert node.pool.used() == (0, 0, 0, 0)
            assert node.deadline() is None


Streaming.TestCase.settings = settings(
    max_examples=effort(30, 150, settings.default.max_examples),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestSat = Streaming.TestCase
