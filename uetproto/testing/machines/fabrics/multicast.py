# SPDX-License-Identifier: GPL-2.0-only
"""This machine runs multicast operations of our ranks over an unreliable network in memory, with loss, copies, changes
of order and ranks that are late, and checks the invariants of collectives.md §8."""

from collections.abc import Sequence

import hypothesis.strategies as st

from uetproto.collectives.multicast.config import MulticastConfig
from uetproto.collectives.multicast.plan import MulticastPlan, all_gather, broadcast
from uetproto.testing.machines.fabrics.multicast_fabric import (
    MulticastFabric,
    MulticastRun,
    check_counts,
    check_done,
    fabric_of,
    post,
)
from uetproto.testing.machines.machine import PlayedMachine, start, step
from uetproto.testing.machines.picture import DrawnMessage

MICROSECOND = 1_000_000
"""Picoseconds in a microsecond."""
MOST_RANKS = 8
RANKS = st.integers(0, MOST_RANKS - 1)


class MulticastMachine(PlayedMachine):
    """This machine posts all_gathers and broadcasts at a group of ranks, one behind another."""

    name = "multicast"
    fabric: MulticastFabric

    @property
    def messages(self) -> Sequence[DrawnMessage]:
        return tuple(self.fabric.messages) if self.is_begun() else ()

    @property
    def sent(self) -> int:
        return len(self.fabric.messages) if self.is_begun() else 0

    def is_begun(self) -> bool:
        return hasattr(self, "fabric")

    @start(
        size=st.integers(2, MOST_RANKS), mtu=st.integers(1, 5), roots=st.integers(1, 4), subgroups=st.integers(1, 3),
        batch=st.integers(1, 4), fetch_from=st.sampled_from((-1, 1)), scale=st.sampled_from((100.0, 0.1, 1e6)),
        limited=st.booleans(), loopback=st.booleans(), counter=st.sampled_from((0, 254)), seed=st.integers(0, 2**32),
    )  # fmt: skip
    def begin(
        self, size: int, mtu: int, roots: int, subgroups: int, batch: int, fetch_from: int, scale: float,
        limited: bool, loopback: bool, counter: int, seed: int,
    ) -> None:  # fmt: skip
        """Make the ranks. A cutoff that is too short (`scale`) costs time only. `seed` is that of all chance."""
        self.config = MulticastConfig(
            mtu=mtu, roots=roots, subgroups=subgroups, batch=batch, fetch_from=fetch_from, scale=scale,
            link_rate=10**9 if limited else None,
        )  # fmt: skip
        self.runs: list[tuple[MulticastRun, MulticastPlan]] = []
        self.loss = self.copies = 0.0
        self.doomed: set[tuple[int, int]] = set()
        self.fabric = fabric_of(size, self.config, counter, seed=seed, loopback=loopback, fate=self._fate)

    def _fate(self, source: int, receiver: int, subgroup: int, chunk: int) -> int:
        chance = self.fabric.random
        if (receiver, chunk) in self.doomed:
            self.doomed.remove((receiver, chunk))
            return 0
        return 0 if chance.random() < self.loss else 1 + (chance.random() < self.copies)

    @step(length=st.integers(0, 30), root=st.none() | RANKS, skew=st.sampled_from((0, 10, 300)))
    def post(self, length: int, root: int | None, skew: int) -> None:
        """Post a broadcast of `root`, or an all_gather, at all ranks within `skew` microseconds."""
        size = self.fabric.size
        if sum(not all(ran.told) for ran, _ in self.runs) == self.config.tasks:
            return  # a rank takes no more at a time
        if root is None:
            plan = all_gather(size, length, self.config)
        else:
            plan = broadcast(size, length, root % size, self.config)
        if skew:  # so that all ranks post in the same order
            self.fabric.run()
        self.runs.append((post(self.fabric, plan, salt=len(self.runs), skew=skew * MICROSECOND), plan))
        if skew:
            self.fabric.run(self.fabric.network.now + skew * MICROSECOND)

    @step(receiver=RANKS, chunk=st.integers(0, 40))
    def lose(self, receiver: int, chunk: int) -> None:
        """The next chunk with this id does not reach a rank."""
        self.doomed.add((receiver % self.fabric.size, chunk))

    @step(loss=st.sampled_from((0.0, 0.05, 0.5, 1.0)), copies=st.sampled_from((0.0, 0.1)))
    def chance(self, loss: float, copies: float) -> None:
        """From now on these shares of the chunks are lost, and copied."""
        self.loss, self.copies = loss, copies

    @step(rank=RANKS, microseconds=st.sampled_from((0, 1, 50, 400)))
    def late(self, rank: int, microseconds: int) -> None:
        """From now on a rank learns later than others that a barrier is complete."""
        self.fabric.late[rank % self.fabric.size] = microseconds * MICROSECOND

    @step(microseconds=st.sampled_from((1, 5, 100, 10_000)))
    def wait(self, microseconds: int) -> None:
        """Let time pass."""
        self.fabric.run(self.fabric.network.now + microseconds * MICROSECOND)

    def finish(self) -> None:
        """Check that all operations end with the right results, and what was sent for them."""
        self.fabric.run()
        for number, (ran, plan) in enumerate(self.runs):
            check_done(ran, plan, salt=number)
        check_counts(self.fabric, self.runs)
