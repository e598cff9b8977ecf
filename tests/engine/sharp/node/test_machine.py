# SPDX-License-Identifier: GPL-2.0-only
"""Aggregation nodes under everything that may happen to them: invariants 5 to 9, 13 to 15 and 20 to 24 of sharp.md §6.

Messages of one connection keep their order, of several they mix at will. Hosts repeat requests, send old ones, change
what they agreed on, fall silent or die.
"""

import struct
from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.effort import effort
from tests.support.sharp.nodes import GROUP, HOSTS, JOB, LEAF_A, LEAF_B, LLT, SPINE, Net, read
from uetproto.engine.contract import MILLISECOND
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.messages import SharpFault, SharpMessage
from uetproto.engine.sharp.node.states import GroupState, OpState
from uetproto.wire.headers.sharp import Coll, Dtype, Flag, Op, SharpOpcode, Status

M32 = 0xFFFFFFFF
FLAGS = Flag.FIRST | Flag.LAST | Flag.REPRO
SECONDS = 1000


def operand(host: str, number: int) -> list[int]:
    rank = HOSTS.index(host)
    return [(number * 7 + rank * 1_000_003 + k * 0x40000001) & M32 for k in range(4)]


def total(number: int) -> bytes:
    return struct.pack(">4I", *(sum(column) & M32 for column in zip(*(operand(h, number) for h in HOSTS), strict=True)))


class Lossless(RuleBasedStateMachine):
    """One LLT group of four hosts."""

    net: Net
    first: int

    @initialize(
        lazy=st.booleans(),
        osts=st.sampled_from([1, 2, 64]),
        first=st.sampled_from([0, 2**32 - 2]),
        multicast=st.booleans(),
    )
    def begin(self, lazy: bool, osts: int, first: int, multicast: bool) -> None:
        config = SharpConfig(lab_radix=2, heartbeat=0, lazy_ost=lazy, osts=osts if lazy else 64)
        self.net = Net(config)
        self.net.join()
        self.first = first
        self.flags = FLAGS | (Flag.MCAST if multicast else 0)
        for node in self.net.nodes.values():
            node.groups[LLT, GROUP].operations.base = first
        self.sent = dict.fromkeys(HOSTS, 0)
        """Operations begun, numbered from 0."""
        self.results: dict[str, dict[int, bytes]] = {host: {} for host in HOSTS}
        self.failed: dict[str, dict[int, Status]] = {host: {} for host in HOSTS}
        self.messages: dict[tuple[str, int], SharpMessage] = {}
        self.wrong: set[int] = set()
        self.dead: set[str] = set()
        self.stopped: set[str] = set()
        self.net.clear()
        self.read = 0

    # What may happen

    def _request(self, host: str, number: int, *, flags: int = 0, count: int = 4) -> SharpMessage:
        return SharpMessage(
            SharpOpcode.AGG_REQ, LLT, JOB, GROUP, self.first + number & M32, 0, count, Op.SUM, Dtype.UNSIGNED,
            coll=Coll.ALLREDUCE, child_idx=HOSTS.index(host) & 1, flags=self.flags | flags,
            body=struct.pack(f">{count}I", *operand(host, number)[:count]),
        )  # fmt: skip

    def _may_begin(self, host: str) -> bool:
        open_now = self.sent[host] - len(self.results[host])
        return host not in self.dead | self.stopped and not self.failed[host] and open_now < 2

    @rule(host=st.sampled_from(HOSTS), other=st.sampled_from([None] * 12 + ["dtype", "count", "LE", "op"]))
    def begin_operation(self, host: str, other: str | None) -> None:
        if not self._may_begin(host):
            return
        number = self.sent[host]
        self.sent[host] += 1
        message = self._request(host, number)
        if other == "dtype":
            message.dtype = Dtype.INT
        elif other == "op":
            message.op = Op.MAX
        elif other == "count":
            message = self._request(host, number, count=3)
        elif other == "LE":
            message.flags |= Flag.LE
        if other is not None:
            self.wrong.add(number)
        self.messages[host, number] = message
        self.net.send(host, message)

    @rule(host=st.sampled_from(HOSTS), back=st.integers(0, 6))
    def repeat(self, host: str, back: int) -> None:
        number = self.sent[host] - 1 - back
        known = self.messages.get((host, number))
        if known is not None and host not in self.dead:
            self.net.send(host, replace(known, flags=known.flags | Flag.RETX))

    @rule(host=st.sampled_from(HOSTS))
    def too_far(self, host: str) -> None:
        """A NACK, nothing else."""
        if host not in self.dead:
            self.net.send(host, self._request(host, 1000))

    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """The oldest message of some connection."""
        self.net.collect()
        ends = sorted({item[:2] for item in self.net.wire})
        for _ in range(min(len(ends), 4)):
            end = data.draw(st.sampled_from(ends))
            item = next((item for item in self.net.wire if item[:2] == end), None)
            if item is not None:
                self.net.wire.remove(item)
                self.net.wire.appendleft(item)
                self.net.step()
        self._take()

    @rule()
    def deliver_all(self) -> None:
        self.net.run()
        self._take()

    @rule(milliseconds=st.sampled_from([5, 100, 600]))
    def time_passes(self, milliseconds: int) -> None:
        self.net.now += milliseconds * MILLISECOND
        self.net.collect()

    @precondition(lambda self: len(self.stopped) == 0)
    @rule(host=st.sampled_from(HOSTS), rare=st.integers(0, 5))
    def fall_silent(self, host: str, rare: int) -> None:
        if not rare:
            self.stopped.add(host)

    @precondition(lambda self: not self.dead)
    @rule(host=st.sampled_from(HOSTS), rare=st.integers(0, 5))
    def die(self, host: str, rare: int) -> None:
        if not rare:
            self.dead.add(host)
            node, conn = self.net.ends[host, 100 + LLT]
            self.net.nodes[node].lost(conn, self.net.now)
            for item in [item for item in self.net.wire if host in item[:2]]:
                self.net.wire.remove(item)

    def _take(self) -> None:
        """Hosts read what came. A request that was refused for want of an OST goes out again when it is its time."""
        for _, data in self.net.multicasts:
            for host in HOSTS:
                if host not in self.dead:
                    self.net.inbox[host].append(data)
        self.net.multicasts.clear()
        for host in HOSTS:
            for message in self.net.received(host):
                number = message.seq - self.first & M32
                if message.opcode == SharpOpcode.AGG_RESULT:
                    assert message.body == total(number), "agreement, and no result without everybody"
                    assert number not in self.wrong, "no result of what did not match"
                    assert all(self.sent[h] > number for h in HOSTS), "nobody leaves before the last has entered"
                    self.results[host][number] = message.body
                elif message.opcode == SharpOpcode.ERROR:
                    fault = SharpFault.unpack(message.body)
                    assert fault.code == message.status
                    self.failed[host].setdefault(number, Status(message.status))
                else:
                    assert message.opcode == SharpOpcode.NACK
                    known = self.messages.get((host, number))
                    if known is not None and number not in self.results[host]:
                        self.net.send(host, replace(known, flags=known.flags | Flag.RETX))

    # What is always true

    @invariant()
    def limits(self) -> None:
        if not hasattr(self, "net"):
            return
        for node in self.net.nodes.values():
            used = node.pool.used()
            assert 0 <= used.osts <= node.config.osts
            assert min(used) >= 0
            for group in node.groups.values():
                with_ost = [op for op in group.operations.ops.values() if op.ost]
                assert len(with_ost) <= group.granted.granted_osts
                for op in with_ost:
                    contributed = set(op.operands)
                    assert contributed <= set(group.members)
                    if op.state in (OpState.UP, OpState.DONE):
                        assert contributed == set(group.members)

    @invariant()
    def edges(self) -> None:
        """One request up for an operation, those with RETX aside."""
        if not hasattr(self, "net"):
            return
        up = [
            (source, read(data).seq) for source, target, data in self.net.log
            if target == SPINE and data[1] == SharpOpcode.AGG_REQ and not data[31] & Flag.RETX
        ]  # fmt: skip
        assert len(up) == len(set(up))

    def teardown(self) -> None:
        """Whatever was begun ends, by a result or by an error; then nothing is left."""
        if not hasattr(self, "net"):
            return
        for _ in range(60):
            self.net.wait(500)
            self._take()
        for host in HOSTS:
            for number in range(self.sent[host]):
                ended = number in self.results[host] or number in self.failed[host]
                assert ended or host in self.dead or self.failed[host], (host, number)
        for number in self.wrong:
            assert not any(number in results for results in self.results.values())
        self.net.leave([host for host in HOSTS if host not in self.dead])
        self.net.wait(20 * SECONDS)
        for name in (LEAF_A, LEAF_B, SPINE):
            node = self.net.nodes[name]
            assert all(group.state is GroupState.LEAVING for group in node.groups.values()) or not node.groups
            assert node.pool.used() == (0, 0, 0, 0)
            assert node.deadline() is None


Lossless.TestCase.settings = settings(
    max_examples=effort(30, 150, settings.default.max_examples),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLlt = Lossless.TestCase
