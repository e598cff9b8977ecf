# SPDX-License-Identifier: GPL-2.0-only
"""This machine runs collectives of our ranks over emulated packets, with faults of the network, and compares the
results with those of NumPy (collectives.md §8)."""

from collections.abc import Callable, Sequence
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from uetproto.api.distributed.networks import roce as distributed_roce
from uetproto.api.distributed.networks import uet as distributed_uet
from uetproto.api.distributed.networks.packets import PacketNetwork
from uetproto.collectives.algorithms.catalogue import ALGORITHMS, HIERARCHICAL, schedule, scheduled
from uetproto.collectives.algorithms.schedule import IN_PLACE, Schedule
from uetproto.collectives.dtypes import Array
from uetproto.collectives.offload import CollectiveCounters
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.runner import Execution
from uetproto.collectives.transport import Done as MessageDone
from uetproto.collectives.transport import RankTransport, Tag
from uetproto.errors import UetError
from uetproto.testing.machines.machine import PlayedMachine, step
from uetproto.testing.machines.picture import DrawnMessage, lost_frames
from uetproto.testing.machines.world import WorldFailure

NETWORKS: dict[str, Callable[..., PacketNetwork]] = {
    "uet": distributed_uet.network,
    "uet-send": partial(distributed_uet.network, way="send"),
    "uet-rod": partial(distributed_uet.network, delivery="ROD"),
    "roce": distributed_roce.network,
}
"""The networks of packets, by a name for each."""
EVERY = tuple((op, name) for op in ALGORITHMS for name in scheduled(op))
"""All pairs of an operation and an algorithm for it."""
POWER_OF_TWO = {"halving"} | {name for op, name in EVERY if ALGORITHMS[op][name].powers_of_two}
"""Names of the algorithms that need a power of two of ranks."""
MOST_RANKS = 9
SHARES = st.sampled_from((0.0, 0.0, 0.02, 0.06))
"""Shares of the frames that a fault hits; they are too small for all retries to be used up."""
REDUCTIONS: dict[str, tuple[ReduceOp, Any]] = {
    "sum": (ReduceOp.SUM, np.add), "max": (ReduceOp.MAX, np.maximum), "bxor": (ReduceOp.BXOR, np.bitwise_xor),
}  # fmt: skip


class CollectiveRun(NamedTuple):
    """This record has the results of a collective, by rank."""

    outputs: list[Array]
    counted: list[CollectiveCounters]
    errors: list[list[UetError | None]]
    """Arguments of the calls of `done`."""
    time: int
    network: PacketNetwork


class _NotedTransport:
    """The transport of a rank, whose messages are kept for the ladder."""

    def __init__(self, inner: RankTransport, kept: list[DrawnMessage]) -> None:
        self.inner, self.kept = inner, kept
        self.rank, self.size = inner.rank, inner.size

    @property
    def now(self) -> int:
        return self.inner.now

    def send(self, peer: int, tag: Tag, data: memoryview, done: MessageDone) -> None:
        text = f"step {tag.step}, {data.nbytes} bytes"
        self.kept.append(DrawnMessage(self.now, f"rank {self.rank}", f"rank {peer}", text))
        self.inner.send(peer, tag, data, done)

    def receive(self, peer: int, tag: Tag, into: memoryview, done: MessageDone) -> None:
        self.inner.receive(peer, tag, into, done)

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.inner.after(delay, action)


def settle(network: PacketNetwork) -> None:
    """Run the network until no event is left but timers."""
    while True:
        if network.timers.fire(network.now):
            continue
        instant = network.timers.next
        network.run(lambda instant=instant: network.timers.next != instant, instant)  # type: ignore[misc]
        if network.timers.next != instant:
            continue
        if instant is None:
            return
        network.advance(instant)


def execute(
    plan: Schedule, inputs: Sequence[Array], transport: str, *, op: ReduceOp = ReduceOp.SUM,
    order: Sequence[int] | None = None, network: PacketNetwork | None = None, kept: list[DrawnMessage] | None = None,
    **options: Any,
) -> CollectiveRun:  # fmt: skip
    """Run a schedule; the ranks start in the order `order`. The inputs are not changed. `kept` takes the messages."""
    network = NETWORKS[transport](plan.size, **options) if network is None else network
    inputs = [array.copy() for array in inputs]
    outputs = [
        array if plan.op in IN_PLACE else np.zeros(plan.counts(rank).output, array.dtype)
        for rank, array in enumerate(inputs)
    ]
    told: list[list[UetError | None]] = [[] for _ in inputs]
    ends: list[RankTransport] = [network.end(rank) for rank in range(plan.size)]
    if kept is not None:
        ends = [_NotedTransport(end, kept) for end in ends]
    executions = [
        Execution(plan, rank, ends[rank], input=inputs[rank], output=outputs[rank], op=op,
                  done=told[rank].append)
        for rank in range(plan.size)
    ]  # fmt: skip
    for rank in order or range(plan.size):
        executions[rank].start()
    settle(network)
    now = network.now
    network.close(drain=True)
    return CollectiveRun(outputs, [one.counted for one in executions], told, now, network)


def expected(plan: Schedule, inputs: Sequence[Array], root: int, reduction: Any = np.add) -> list[Array | None]:
    """Return the result that NumPy gives for each rank; None: it is not specified."""
    size, nothing = plan.size, np.zeros(0, int)
    total = reduction.reduce(inputs, axis=0) if plan.op in ("all_reduce", "reduce", "reduce_scatter") else nothing
    ends = np.cumsum([0] + [plan.counts(rank).output for rank in range(size)])
    match plan.op:
        case "all_reduce":
            return [total] * size
        case "reduce":
            return [total if rank == root else None for rank in range(size)]
        case "broadcast":
            return [inputs[root]] * size
        case "reduce_scatter":
            return [total[ends[rank] : ends[rank + 1]] for rank in range(size)]
        case "all_gather":
            return [np.concatenate(inputs)] * size
        case "gather":
            return [np.concatenate(inputs) if rank == root else nothing for rank in range(size)]
        case "scatter":
            return [inputs[root][ends[rank] : ends[rank + 1]] for rank in range(size)]
        case "all_to_all":
            blocks = [np.split(given, size) for given in inputs]
            return [np.concatenate([blocks[source][rank] for source in range(size)]) for rank in range(size)]
    return [nothing] * size


def planned(op: str, algorithm: str, size: int, count: int, root: int) -> Schedule:
    """Return the schedule of a collective. Sizes that the algorithm does not take become the next smaller ones."""
    size = 1 << size.bit_length() - 1 if algorithm in POWER_OF_TWO else size
    nodes = next(nodes for nodes in (3, 2, 1) if size % nodes == 0) if algorithm in HIERARCHICAL else None
    count = 0 if op == "barrier" else count - count % size if op in ("all_to_all", "all_gather") else count
    return schedule(op, algorithm, size, count, root=root % size, nodes=nodes)


class CollectivesMachine(PlayedMachine):
    """This machine runs one collective after another, each on a new network."""

    name = "collectives"

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[DrawnMessage] = []
        """Messages of the last collective; if it failed, with the frames that the network lost or damaged."""

    @property
    def messages(self) -> Sequence[DrawnMessage]:
        return tuple(self.kept)

    @step(
        which=st.sampled_from(["/".join(names) for names in EVERY]), size=st.integers(1, MOST_RANKS),
        count=st.integers(0, 60), root=st.integers(0, MOST_RANKS - 1), transport=st.sampled_from(sorted(NETWORKS)),
        reduction=st.sampled_from(sorted(REDUCTIONS)), dtype=st.sampled_from(("i1", "u2", "i4", "i8")),
        seed=st.integers(0, 2**32),
        faults=st.fixed_dictionaries(dict.fromkeys(("drop", "reorder", "duplicate", "corrupt"), SHARES)),
    )  # fmt: skip
    def run(
        self, which: str, size: int, count: int, root: int, transport: str, reduction: str, dtype: str, seed: int,
        faults: dict[str, float],
    ) -> None:  # fmt: skip
        """Run a collective; `which` is its operation and its algorithm."""
        op, _, algorithm = which.partition("/")
        self.kept = []
        plan, (reduce, numpy) = planned(op, algorithm, size, count, root), REDUCTIONS[reduction]
        chance, limits = np.random.default_rng(seed), np.iinfo(dtype)
        inputs = [
            chance.integers(limits.min, limits.max, plan.counts(rank).input, dtype=dtype, endpoint=True)
            for rank in range(plan.size)
        ]
        order = [int(rank) for rank in chance.permutation(plan.size)]
        played = partial(execute, plan, inputs, transport, op=reduce, order=order, faults=faults, seed=seed)
        ran = played(kept=self.kept)
        try:
            self._check(ran, plan, f"{op} by {algorithm} of {plan.size} ranks over {transport}",
                        expected(plan, inputs, root % plan.size, numpy), dtype)  # fmt: skip
        except WorldFailure:
            self.kept = sorted([*self.kept, *_lost(played)], key=lambda each: each.time)
            raise

    def _check(
        self, ran: CollectiveRun, plan: Schedule, what: str, results: Sequence[Array | None], dtype: str
    ) -> None:
        """Compare the results of a collective with those of NumPy. Raises `WorldFailure`."""
        for rank, told in enumerate(ran.errors):
            if told != [None]:
                raise WorldFailure("COLLECTIVE-DONE-ONCE", f"{what}: rank {rank} was told {told}")
        for rank, (output, wanted) in enumerate(zip(ran.outputs, results, strict=True)):
            if wanted is not None and not np.array_equal(output, wanted.astype(dtype)):
                raise WorldFailure("COLLECTIVE-RESULT", f"{what}: rank {rank} has another result than NumPy")
        columns = plan.arrays()
        sent = np.bincount(columns["src"], columns["count"], plan.size) * np.dtype(dtype).itemsize
        if [one.bytes_sent for one in ran.counted] != sent.tolist():
            raise WorldFailure("COLLECTIVE-BYTES", f"{what}: the ranks sent other numbers of bytes than the schedule")


def _lost(played: Callable[..., CollectiveRun]) -> list[DrawnMessage]:
    """Play a collective again, and return the frames that the network loses or damages."""
    with TemporaryDirectory() as folder:
        path = f"{folder}/frames.pcapng"
        network: Any = played(capture=path, taps="all").network
        ranks = {int(address): f"rank {rank}" for rank, address in enumerate(network.addresses)}
        return lost_frames(path, ranks)
