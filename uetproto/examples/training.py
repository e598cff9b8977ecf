# SPDX-License-Identifier: GPL-2.0-only
"""This program trains two layers data-parallel, and sums the gradients with each all_reduce algorithm in turn.

Each rank has the whole model and a part of the batch. The weights of all ranks are compared with those of one process
that has the whole batch: with whole numbers they are equal bit for bit; with floats they differ by at most 1e-6,
because the order of addition differs.
"""

import sys
from typing import Any, NamedTuple

import numpy as np

from uetproto.api import distributed as dist
from uetproto.collectives.algorithms.catalogue import scheduled
from uetproto.collectives.dtypes import Array

RANKS, NODES = 8, 2
BATCH, INPUTS, HIDDEN, OUTPUTS = 32, 12, 20, 5
STEPS = 2
RATE = 2.0**-4
"""Learning rate: a power of two, so that whole numbers stay exact."""

NAMES = tuple(scheduled("all_reduce"))


class TrainingData(NamedTuple):
    """Training data are inputs, targets and the initial weights."""

    inputs: Array
    targets: Array
    weights: tuple[Array, Array]


def data(whole: bool) -> TrainingData:
    """Return random training data: whole numbers in float64 if `whole`, else numbers in float32."""
    random = np.random.default_rng(1)

    def some(*shape: int) -> Array:
        return random.integers(-2, 3, shape) * 1.0 if whole else random.standard_normal(shape).astype(np.float32)

    return TrainingData(some(BATCH, INPUTS), some(BATCH, OUTPUTS), (some(INPUTS, HIDDEN), some(HIDDEN, OUTPUTS)))


def gradients(inputs: Array, targets: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Return the gradients of half the squared error for both layers, by a forward and a backward pass."""
    before = inputs @ first
    hidden = np.maximum(before, 0)
    error = hidden @ second - targets
    back = (error @ second.T) * (before > 0)
    return inputs.T @ back, hidden.T @ error


def alone(task: TrainingData) -> tuple[Array, Array]:
    """Return the weights after the training of one process with the whole batch."""
    first, second = (weights.copy() for weights in task.weights)
    rate = first.dtype.type(RATE / BATCH)
    for _ in range(STEPS):
        of_first, of_second = gradients(task.inputs, task.targets, first, second)
        first -= rate * of_first
        second -= rate * of_second
    return first, second


def together(rank: int, task: TrainingData) -> tuple[Array, Array]:
    """Return the weights of `rank` after the training. In each step, the gradients of all ranks are summed. Each rank
    computes gradients from its part of the batch."""
    dist.init_process_group()
    part = slice(rank, None, dist.get_world_size())
    first, second = (weights.copy() for weights in task.weights)
    rate = first.dtype.type(RATE / BATCH)
    for _ in range(STEPS):
        of_first, of_second = gradients(task.inputs[part], task.targets[part], first, second)
        # The order is that in which the backward pass computes the gradients.
        works = [dist.all_reduce(gradient, async_op=True) for gradient in (of_second, of_first)]
        for work in works:
            assert work is not None
            work.wait()
        first -= rate * of_first
        second -= rate * of_second
    return first, second


class TrainingResult(NamedTuple):
    """A training result compares the training by one all_reduce algorithm with the training of a single process."""

    same_everywhere: bool
    """Whether the weights of all ranks have the same bits."""
    difference: float
    """Largest difference from the weights of one process, relative to the largest weight."""
    time: int
    """Virtual time that the training took, in picoseconds."""
    sent: int
    """Number of bytes that the busiest rank sent."""


def train(algorithm: str, transport: str, task: TrainingData, **network: Any) -> TrainingResult:
    """Run the training on all ranks, and compare the weights with those of one process."""
    with dist.World(RANKS, transport=transport, algorithm=algorithm, nodes=NODES, **network) as world:
        ranks = world.run(together, (task,))
        time, sent = world.now, max(counted.bytes_sent for counted in world.counted)
    wanted = alone(task)
    same = all(np.array_equal(a, b) for weights in ranks for a, b in zip(weights, ranks[0], strict=True))
    difference = max(
        float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in zip(ranks[0], wanted, strict=True)
    )  # fmt: skip
    return TrainingResult(same, difference, time, sent)


def main(transport: str = "uet") -> None:
    """Print a table of the results of each algorithm, with whole numbers and with floats."""
    print(f"{RANKS} ranks on {NODES} nodes, {STEPS} steps, over {transport}")
    print(f"{'algorithm':20}{'time':>12}{'bytes':>8}  {'whole numbers':16}floats")
    for algorithm in NAMES:
        whole, floats = (train(algorithm, transport, data(kind)) for kind in (True, False))
        assert whole.same_everywhere
        assert floats.same_everywhere
        bits = "the same bits" if whole.difference == 0 else f"off by {whole.difference:.1e}"
        time = f"{whole.time / 1e6:.1f} µs"
        print(f"{algorithm:20}{time:>12}{whole.sent:>8}  {bits:16}within {floats.difference:.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
