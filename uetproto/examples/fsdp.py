# SPDX-License-Identifier: GPL-2.0-only
"""This program trains sharded layers: it gathers a layer before its use, and reduces and scatters its gradients.

Each rank keeps 1/N of every layer. In the interleaved program the next layer is gathered while the current layer is
computed, and in the backward pass the gradients of the layer before are reduced at the same time. Both programs have
the same results, but not the same times. All_gather and reduce_scatter each send (N-1)/N of a layer through the same
port of a rank and share its rate (collectives.md §3.10.7), so interleaving hides only computing time and latency.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from uetproto.api import distributed as dist
from uetproto.collectives.dtypes import Array

RANKS, LAYERS, WIDTH, BATCH = 4, 4, 32, 16
COMPUTE = 20e-6
"""Seconds of virtual time that the computation of a layer takes, in the forward pass and again in the backward pass."""
RATE = 2.0**-5
"""Learning rate: a power of two, so that with whole numbers all results are exact."""


class FsdpData(NamedTuple):
    """The training data are whole numbers, so that every order of addition gives the same bits."""

    inputs: Array
    targets: Array
    layers: Array
    computed: list[tuple[int, float, float]]
    """When ranks computed: the rank, and begin and end in seconds of virtual time."""


def data() -> FsdpData:
    """Return random training data for a chain of matrices, the layers."""
    random = np.random.default_rng(2)
    inputs, targets = (random.integers(-1, 2, (BATCH, WIDTH)) * 1.0 for _ in range(2))
    return FsdpData(inputs, targets, random.integers(-1, 2, (LAYERS, WIDTH, WIDTH)) * 1.0, [])


def alone(task: FsdpData) -> Array:
    """Return the layers after one training step of a single process."""
    passed = [task.inputs]
    for layer in task.layers:
        passed.append(passed[-1] @ layer)
    back, updated = passed[-1] - task.targets, task.layers.copy()
    for number in reversed(range(LAYERS)):
        updated[number] -= RATE * (passed[number].T @ back)
        back = back @ task.layers[number].T
    return updated


def wait(work: dist.Work | None) -> None:
    """Wait until an asynchronous operation is complete; `work` must not be None."""
    assert work is not None
    work.wait()


def one_after_the_other(rank: int, task: FsdpData) -> Array:
    """Gather each layer, compute, and reduce the gradients, one after the other; return the rank's shards after one
    training step."""
    dist.init_process_group()
    rows, mine = sharding(rank)
    shards = task.layers[:, rows].copy()
    full, part = np.zeros((WIDTH, WIDTH)), np.zeros((len(shards[0]), WIDTH))
    passed = [task.inputs[mine]]
    for number in range(LAYERS):
        dist.all_gather_into_tensor(full, shards[number])
        passed.append(compute(task, passed[-1], full))
    back = passed[-1] - task.targets[mine]
    for number in reversed(range(LAYERS)):
        dist.all_gather_into_tensor(full, shards[number])
        gradient = compute(task, passed[number].T, back)
        back = back @ full.T
        dist.reduce_scatter_tensor(part, gradient)
        shards[number] -= RATE * part
    return shards


def interleaved(rank: int, task: FsdpData) -> Array:
    """Gather the next layer while the current layer is computed and the gradients of the layer before are reduced.

    The result is that of `one_after_the_other`.
    """
    dist.init_process_group()
    rows, mine = sharding(rank)
    shards = task.layers[:, rows].copy()
    full = np.zeros((2, WIDTH, WIDTH))  # one layer in use, one being gathered
    parts = np.zeros_like(shards)
    passed = [task.inputs[mine]]
    coming = dist.all_gather_into_tensor(full[0], shards[0], async_op=True)
    for number in range(LAYERS):
        wait(coming)
        if number + 1 < LAYERS:
            coming = dist.all_gather_into_tensor(full[(number + 1) % 2], shards[number + 1], async_op=True)
        passed.append(compute(task, passed[-1], full[number % 2]))
    back = passed[-1] - task.targets[mine]
    going = []
    coming = None  # the last layer is still gathered
    for number in reversed(range(LAYERS)):
        if coming is not None:
            wait(coming)
        if number > 0:
            coming = dist.all_gather_into_tensor(full[(number - 1) % 2], shards[number - 1], async_op=True)
        gradient = compute(task, passed[number].T, back)
        back = back @ full[number % 2].T
        going.append(dist.reduce_scatter_tensor(parts[number], gradient, async_op=True))
    for work in going:
        wait(work)
    return shards - RATE * parts


def sharding(rank: int) -> tuple[slice, slice]:
    """Return the rows of each layer that a rank keeps, and the part of the batch that this rank computes."""
    rows, batch = WIDTH // dist.get_world_size(), BATCH // dist.get_world_size()
    return slice(rank * rows, (rank + 1) * rows), slice(rank * batch, (rank + 1) * batch)


def compute(task: FsdpData, a: Array, b: Array) -> Array:
    """Return the product of two matrices, let the virtual time `COMPUTE` pass, and note when that was."""
    begin = dist.now()
    dist.sleep(COMPUTE)
    task.computed.append((dist.get_rank(), begin, dist.now()))
    product: Array = a @ b
    return product


PROGRAMS: tuple[Callable[[int, FsdpData], Array], ...] = (one_after_the_other, interleaved)


def main(transport: str = "uet") -> None:
    """Print the result and the time of both programs."""
    task = data()
    wanted = alone(task)
    print(f"{LAYERS} layers of {WIDTH * WIDTH * 8} bytes on {RANKS} ranks, over {transport}")
    for program in PROGRAMS:
        with dist.World(RANKS, transport=transport) as world:
            updated = np.concatenate(world.run(program, (task,)), axis=1)
            bits = "the same bits as one process" if np.array_equal(updated, wanted) else "wrong"
            counted = world.counted[0]
            print(f"    {program.__name__:20}{world.now / 1e6:8.1f} µs, {counted.bytes_sent} bytes a rank, {bits}")


if __name__ == "__main__":
    main(*sys.argv[1:])
