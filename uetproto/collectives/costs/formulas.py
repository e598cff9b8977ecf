# SPDX-License-Identifier: GPL-2.0-only
"""This module has the formulas of each algorithm for steps, bytes and time, which are compared with measured values.

The formulas are those of collectives.md §3.0. If the number of ranks is no power of two, a formula is exact where
collectives.md §3.5 gives an exact form. `D` is the number of bytes of the full vector. This is the vector of each rank
in all_reduce, reduce and broadcast; in other operations it is the blocks of all ranks together, and a block has `n =
D/N` bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from uetproto.collectives.algorithms.barrier import Knomial
from uetproto.collectives.algorithms.pattern import steps_for
from uetproto.collectives.algorithms.trees import NONE, parents


class Costs(NamedTuple):
    """This record defines the time model (collectives.md §2): a message of `len` bytes takes alpha + len*beta, and a
    reduction of `len` bytes takes len*gamma."""

    alpha: float
    """Latency of a message in seconds."""
    beta: float
    """Seconds for each byte of a message on a link, in one direction."""
    gamma: float = 0.0
    """Seconds for each byte that is reduced."""
    gap: float | None = None
    """Part of alpha, in seconds, for which a message occupies its ports. None means all of alpha. If several messages
    are sent at once, the rest of alpha counts once for all of them."""

    @property
    def occupied(self) -> float:
        """Return the seconds for which a message without bytes occupies its ports."""
        return self.alpha if self.gap is None else self.gap

    def at_once(self, messages: int, length: float) -> float:
        """Return the seconds that a port needs to send or receive several messages at once. `messages` is their number,
        and `length` is the number of their bytes together."""
        return self.alpha + (messages - 1) * self.occupied + length * self.beta if messages else 0.0


class Expected(NamedTuple):
    """This record holds the steps, bytes and time of one collective by its formula."""

    steps: int
    sent: float
    """Bytes that the busiest rank sends: `tx` (collectives.md §2)."""
    injected: float
    """Bytes that all ranks send together: `inj` (collectives.md §2)."""
    time: float
    """Time in seconds."""


@dataclass(frozen=True, slots=True)
class CostCase:
    """This record holds the arguments of a formula. `N` is the number of ranks, and `D` is the size of the full vector
    in bytes."""

    N: int
    D: float
    costs: Costs
    inside: Costs
    """Costs within a node. Formulas of hierarchical algorithms use them."""
    M: int
    """Number of nodes."""
    between: str
    slices: int
    sockets: int = 1
    """Number of sockets of each node."""
    channels: int = 1

    @property
    def share(self) -> float:
        """Return the number of bytes of one channel's share of the vector."""
        return self.D / self.channels

    @property
    def n(self) -> float:
        """Return the number of bytes of a block."""
        return self.D / self.N

    @property
    def G(self) -> int:  # noqa: N802
        """Return the number of ranks of a node."""
        return self.N // self.M

    @property
    def lg(self) -> int:
        """Return `lg N`, the base-2 logarithm of N rounded up to a whole number (collectives.md §0.1)."""
        return steps_for(self.N)

    @property
    def K(self) -> int:  # noqa: N802
        """Return K, the number of rounds of doubling. N' = 2^K ranks take part in them (collectives.md §3.5)."""
        return self.N.bit_length() - 1

    @property
    def e(self) -> int:
        """Return e, the number of ranks beyond the largest power of two up to N (collectives.md §3.5)."""
        return self.N - (1 << self.K)

    @property
    def folds(self) -> int:
        """Return 0 if N is a power of two. Otherwise return 1, as extra ranks add steps."""
        return int(self.e > 0)


Formula: TypeAlias = Callable[[CostCase], Expected]


def star(c: CostCase) -> Expected:
    a, b, g, _ = c.costs
    return Expected(2 * (c.N - 1), (c.N - 1) * c.D, 2 * (c.N - 1) * c.D, (c.N - 1) * (2 * (a + c.D * b) + c.D * g))


def exchange(c: CostCase) -> Expected:
    sent = (c.N - 1) * c.D
    return Expected(min(1, c.N - 1), sent, c.N * sent, c.costs.at_once(c.N - 1, sent) + sent * c.costs.gamma)


def ring(c: CostCase) -> Expected:
    a, b, g, _ = c.costs
    sent = 2 * (c.N - 1) * c.n
    return Expected(2 * (c.N - 1), sent, c.N * sent, 2 * (c.N - 1) * a + sent * b + sent / 2 * g)


def tree(c: CostCase) -> Expected:
    q, edges = c.D / c.slices, min(3, c.N - 1)  # edges of the busiest rank, whose port limits a pipeline
    time = _tree_time(c, q) + (c.slices - 1) * c.costs.at_once(edges, edges * q)
    return Expected(_pipelined(2 * c.lg, c), edges * c.D, 2 * (c.N - 1) * c.D, time)


def double_tree(c: CostCase) -> Expected:
    q, edges = c.D / 2 / c.slices, 4 if c.N > 3 else {1: 0, 2: 2, 3: 3}[c.N]
    fill = max(_tree_time(c, q), _tree_time(c, q, second=True))
    time = fill + (c.slices - 1) * c.costs.at_once(edges, edges * q)
    return Expected(_pipelined(2 * c.lg, c), edges * c.D / 2, 2 * (c.N - 1) * c.D, time)


def _tree_time(c: CostCase, length: float, *, second: bool = False) -> float:
    """Return the seconds of a reduction up a tree and of the broadcast back down (collectives.md §3.4). The port of
    each rank limits the time: a rank receives from its children, and sends to them, one after the other."""
    below: dict[int, list[int]] = {}
    for rank, parent in enumerate(parents(c.N, second=second).tolist()):
        below.setdefault(parent, []).append(rank)
    (root,) = below.get(NONE, [0])
    occupied = c.costs.occupied + length * c.costs.beta
    rest = c.costs.alpha - c.costs.occupied

    def up(rank: int) -> float:
        free = 0.0
        for ready in sorted(up(child) for child in below.get(rank, ())):
            free = max(free, ready) + occupied
        return free + rest if free else 0.0

    def down(rank: int) -> float:
        return max(
            (number * occupied + rest + down(child) for number, child in enumerate(below.get(rank, ()), 1)), default=0.0
        )

    return up(root) + down(root)


def _pipelined(steps: int, c: CostCase) -> int:
    """Return the number of steps of a pipeline. Each further slice adds one step."""
    return steps + c.slices - 1 if steps else 0


def recursive_doubling(c: CostCase) -> Expected:
    a, b, g, _ = c.costs
    steps = c.K + 2 * c.folds
    injected = ((1 << c.K) * c.K + 2 * c.e) * c.D
    return Expected(steps, (c.K + c.folds) * c.D, injected, steps * (a + c.D * b) + (c.K + c.folds) * c.D * g)


def halving_doubling(c: CostCase) -> Expected:
    a, b, g, _ = c.costs
    part = c.D - c.D / (1 << c.K)  # (N'-1)/N' * D in each direction
    fold = c.folds * c.D
    time = (2 * c.K + 2 * c.folds) * a + (2 * part + 2 * fold) * b + (part + fold) * g
    return Expected(2 * c.K + 2 * c.folds, 2 * part + fold, 2 * (c.N - 1) * c.D, time)


def ring_half(c: CostCase, reduces: bool) -> Expected:
    a, b, g, _ = c.costs
    sent = (c.N - 1) * c.n
    return Expected(c.N - 1, sent, c.N * sent, (c.N - 1) * a + sent * b + reduces * sent * g)


def halving(c: CostCase) -> Expected:
    a, b, g, _ = c.costs
    part = c.D - (2 * c.n if c.folds else c.n)  # a proxy keeps two blocks, and sends one to its extra at the end
    most = max(part + c.folds * c.n, c.D if c.folds else 0)
    steps = c.K + 2 * c.folds
    rounds = sum((1 << k) + min(c.e, 1 << k) for k in range(c.K)) * c.n  # those of rank 0 and of its partners
    time = steps * a + (rounds + c.folds * (c.D + c.n)) * b + (rounds + c.folds * c.D) * g
    return Expected(steps, max(most, c.D - c.n if c.N > 1 else 0), ((c.N - 1) * c.N + c.e) * c.n, time)


def logarithmic_gather(c: CostCase) -> Expected:
    sent = (c.N - 1) * c.n
    return Expected(c.lg, sent, c.N * sent, c.lg * c.costs.alpha + sent * c.costs.beta)


def binomial(c: CostCase, reduces: bool) -> Expected:
    a, b, g, _ = c.costs
    sent = (min(1, c.N - 1) if reduces else c.lg) * c.D
    return Expected(c.lg, sent, (c.N - 1) * c.D, c.lg * (a + c.D * b + reduces * c.D * g))


def _linear(c: CostCase, length: float, to_root: bool, reduces: bool) -> Expected:
    a, b, g, _ = c.costs
    sent = (min(1, c.N - 1) if to_root else c.N - 1) * length
    return Expected(c.N - 1, sent, (c.N - 1) * length, (c.N - 1) * (a + length * b + reduces * length * g))


def linear_vectors(c: CostCase, *, to_root: bool = False) -> Expected:
    """Return the costs of a linear broadcast or, if `to_root` is True, of a linear reduce."""
    return _linear(c, c.D, to_root, reduces=to_root)


def linear_blocks(c: CostCase, *, to_root: bool = False) -> Expected:
    """Return the costs of a linear scatter or, if `to_root` is True, of a linear gather."""
    return _linear(c, c.n, to_root, reduces=False)


def binomial_blocks(c: CostCase, *, to_root: bool = False) -> Expected:
    subtrees = [min(v & -v, c.N - v) for v in range(1, c.N)]
    sent = (max(subtrees, default=0) if to_root else c.N - 1) * c.n
    time = c.lg * c.costs.alpha + (c.N - 1) * c.n * c.costs.beta
    return Expected(c.lg, sent, sum(subtrees) * c.n, time)


def direct(c: CostCase, *, at_once: bool = False) -> Expected:
    sent, steps = (c.N - 1) * c.n, c.N - 1
    if at_once:
        return Expected(min(1, steps), sent, c.N * sent, c.costs.at_once(steps, sent))
    return Expected(steps, sent, c.N * sent, steps * (c.costs.alpha + c.n * c.costs.beta))


def bruck(c: CostCase) -> Expected:
    sent = sum(i.bit_count() for i in range(c.N)) * c.n  # N/2 blocks a step if N is a power of two
    return Expected(c.lg, sent, c.N * sent, c.lg * c.costs.alpha + sent * c.costs.beta)


def _tokens(c: CostCase, *steps: int) -> Expected:
    """Return the costs of a collective of empty messages. `steps` has for each step how many messages the busiest rank
    sends at once."""
    return Expected(len(steps), 0, 0, sum(c.costs.at_once(messages, 0) for messages in steps))


def dissemination(c: CostCase) -> Expected:
    return _tokens(c, *[1] * c.lg)


def ring_barrier(c: CostCase) -> Expected:
    return _tokens(c, *[1] * (2 * c.N if c.N > 1 else 0))


def counter(c: CostCase) -> Expected:
    return _tokens(c, *[c.N - 1] * 2 if c.N > 1 else ())


def service(c: CostCase) -> Expected:
    """Return the costs of the service barrier, which is an all_reduce of one byte by recursive doubling."""
    return recursive_doubling(replace(c, D=1))


def knomial(c: CostCase) -> Expected:
    pattern = Knomial(c.N)
    extras = [1] * (pattern.extras > 0)
    return _tokens(c, *extras, *(size - 1 for size in pattern.groups), *extras)


def _among(c: CostCase, size: int, length: float, costs: Costs, formula: Formula) -> Expected:
    """Return the costs of one phase of a hierarchical algorithm, among `size` ranks."""
    return formula(CostCase(size, length, costs, costs, 1, c.between, 1))


def nccl_ring(c: CostCase) -> Expected:
    """Return the costs of a flat ring over nodes, with all channels at once.

    A step takes as long as the slower of two transfers: one chunk between nodes, or the chunks that a rank sends within
    its node.
    """
    flat, chunk = ring(c), c.share / c.N
    outside = (c.M > 1) * (c.costs.alpha + chunk * c.costs.beta)
    chunks = c.channels - (c.M > 1 and c.channels == c.G)  # at most G-1 stay inside
    inside = (c.G > 1) * chunks * (c.inside.alpha + chunk * c.inside.beta)
    return flat._replace(time=2 * (c.N - 1) * max(outside, inside) + flat.sent / 2 * c.costs.gamma)


def nccl_tree(c: CostCase) -> Expected:
    q = c.share / c.slices
    trees = double_tree(CostCase(c.M, c.share, c.costs, c.costs, 1, c.between, c.slices))
    time = 2 * (c.G - 1) * (c.inside.alpha + q * c.inside.beta) + trees.time
    steps = 2 * (c.G - 1) + 2 * steps_for(c.M)
    return Expected(_pipelined(steps, c), max(_tree_sent(c, trees.sent)), 2 * (c.N - 1) * c.D, time)


def _tree_sent(c: CostCase, at_head: float) -> list[float]:
    """Return the bytes that each rank of the busiest node sends.

    A rank sends its share to each neighbour in the chain of every channel. The head of a chain also sends `at_head`
    bytes in the trees.
    """
    chains = [[(index - channel) % c.G for channel in range(c.channels)] for index in range(c.G)]
    return [
        sum(c.share * ((place > 0) + (place < c.G - 1)) + at_head * (place == 0) for place in places)
        for places in chains
    ]


def rab(c: CostCase) -> Expected:
    middle = _among(c, c.M, c.D, c.costs, BETWEEN[c.between])
    reduce = _among(c, c.G, c.D, c.inside, lambda inner: binomial(inner, reduces=True))
    broadcast = _among(c, c.G, c.D, c.inside, lambda inner: binomial(inner, reduces=False))
    return _sum(c, reduce, middle, broadcast, sent=middle.sent + broadcast.sent)


def split_rail(c: CostCase) -> Expected:
    rail = _among(c, c.M, c.D / c.G, c.costs, BETWEEN[c.between])
    scatter = _among(c, c.G, c.D, c.inside, lambda inner: ring_half(inner, reduces=True))
    gather = _among(c, c.G, c.D, c.inside, lambda inner: ring_half(inner, reduces=False))
    rails = rail._replace(injected=c.G * rail.injected)
    return _sum(c, scatter, rails, gather, sent=scatter.sent + rail.sent + gather.sent)


def hcoll(c: CostCase) -> Expected:
    """Return the costs of hcoll. Within a node, each level takes one step through shared memory.

    A node of one socket, or of one rank for each socket, has one level less.
    """
    middle = _among(c, c.M, c.D, c.costs, BETWEEN[c.between])
    levels = [size for size in (c.G // c.sockets, c.sockets) if size > 1]
    up = sum(c.inside.at_once(size - 1, (size - 1) * c.D) for size in levels)
    reduce = Expected(len(levels), 0, (c.G - 1) * c.D, up + sum(size - 1 for size in levels) * c.D * c.inside.gamma)
    return _sum(c, reduce, middle, reduce._replace(time=up), sent=middle.sent + sum(size - 1 for size in levels) * c.D)


def _sum(c: CostCase, first: Expected, middle: Expected, last: Expected, *, sent: float) -> Expected:
    """Return the costs of three phases that follow each other: one within each node, one between nodes, and again one
    within each node. `sent` has the bytes of the busiest rank."""
    return Expected(
        first.steps + middle.steps + last.steps, sent,
        c.M * first.injected + middle.injected + c.M * last.injected, first.time + middle.time + last.time,
    )  # fmt: skip


BETWEEN: dict[str, Formula] = {
    "ring": ring,
    "halving_doubling": halving_doubling,
    "recursive_doubling": recursive_doubling,
    "double_tree": double_tree,
}
"""Formulas of the all_reduce between nodes, by the name of its algorithm."""


def nic_bytes(
    algorithm: str, nodes: int, local: int, length: float, *, between: str = "ring", channels: int = 1
) -> float:
    """Return the bytes that the busiest NIC sends to other nodes in a hierarchical algorithm (collectives.md §3.8).

    Each NIC serves one channel.
    """
    share = length / channels
    carried = {"nccl_tree": share, "split_rail": length / local}.get(algorithm, length)
    if algorithm == "nccl_ring":
        return 2 * (nodes * local - 1) / (nodes * local) * share if nodes > 1 else 0.0
    middle = "double_tree" if algorithm == "nccl_tree" else between
    free = Costs(0, 0)
    return BETWEEN[middle](CostCase(nodes, carried, free, free, 1, between, 1)).sent


def bus_factor(op: str, size: int) -> float:
    """Return the factor f of busbw = algbw * f (collectives.md §2). Busbw can be compared with the rate of a link."""
    share = (size - 1) / size
    return {"all_reduce": 2 * share, "broadcast": 1.0, "reduce": 1.0}.get(op, share)


def bus_bandwidth(op: str, size: int, length: float, time: float) -> float:
    """Return busbw in bytes per second (collectives.md §2). `time` is in seconds."""
    return length / time * bus_factor(op, size)


class _Protocol(NamedTuple):
    """This record holds the constants of one protocol in NCCL's tuner. Each pair has the microseconds of tree and ring
    (collectives.md §3.8)."""

    base: tuple[float, float]
    nvlink: tuple[float, float]
    pcie: tuple[float, float]
    network: tuple[float, float]


NCCL = {
    "LL":     _Protocol(( 6.8,  6.6), (0.6,  0.6), (1.0, 1.0), ( 5.0,  2.7)),
    "LL128":  _Protocol((14.0, 14.0), (1.25, 1.9), (1.9, 2.5), ( 8.5,  4.0)),
    "Simple": _Protocol(( 8.4,  8.4), (4.0,  3.4), (4.0, 5.7), (14.0, 14.0)),
}  # fmt: skip

TREE_PENALTY = 0.92


def nccl_latency(
    algorithm: str,
    nodes: int,
    local: int,
    protocol: str = "Simple",
    *,
    link: str = "nvlink",
    post_overhead: float = 1.0,
) -> float:
    """Return the latency in microseconds that NCCL's tuner computes (collectives.md §3.8). `post_overhead` is in
    microseconds: 1, or 2 on hosts with AMD CPUs."""
    which = ("tree", "ring").index(algorithm)
    constants = NCCL[protocol]
    base, network = constants.base[which], constants.network[which]
    intra = {"nvlink": constants.nvlink, "pcie": constants.pcie}[link][which]
    if algorithm == "tree":
        return base + 2 * ((local - 1) * intra + (nodes.bit_length() - 1) * network)
    intra = max(intra, post_overhead * (3 if protocol == "Simple" else 1))
    return base + (2 * (nodes * local - 1) - 2 * (nodes - 1)) * intra + 2 * (nodes - 1) * network


def nccl_time(
    algorithm: str, nodes: int, local: int, length: float, bandwidth: float, *, protocol: str = "Simple"
) -> float:
    """Return the microseconds that NCCL's tuner computes for `length` bytes (collectives.md §3.8). `bandwidth` is the
    bus bandwidth in bytes per microsecond."""
    size = nodes * local
    if algorithm == "tree":
        rate = bandwidth / 2 * TREE_PENALTY
    else:
        rate = bandwidth * size / (2 * (size - 1)) if size > 1 else bandwidth
    return nccl_latency(algorithm, nodes, local, protocol) + length / rate
