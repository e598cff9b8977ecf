# SPDX-License-Identifier: GPL-2.0-only
"""This module runs one schedule in all its ranks over the model network."""

from typing import NamedTuple

import numpy as np

from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.algorithms.schedule import IN_PLACE, Schedule
from uetproto.collectives.model import ModelNetwork
from uetproto.collectives.offload import CollectiveCounters
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.runner import Execution
from uetproto.errors import UetError


class Ran(NamedTuple):
    """This record has the results of a run, by rank."""

    outputs: list[np.ndarray]
    counted: list[CollectiveCounters]
    errors: list[list[UetError | None]]
    """Arguments of the calls of `done`."""
    time: int
    network: ModelNetwork


def turn(network: ModelNetwork) -> None:
    """Run the network until no event is left."""
    while (instant := network.timers.next) is not None:
        network.advance(instant)
        network.timers.fire(network.now)


def execute(
    plan: Schedule, inputs: list[np.ndarray], op: ReduceOp = ReduceOp.SUM, network: ModelNetwork | None = None,
    gamma: float = 0, order: list[int] | None = None,
) -> Ran:  # fmt: skip
    """Run a schedule; the ranks start in the order `order`."""
    network = ModelNetwork(plan.size) if network is None else network
    dtype = inputs[0].dtype
    outputs = [
        given if plan.op in IN_PLACE else np.zeros(plan.counts(rank).output, dtype) for rank, given in enumerate(inputs)
    ]
    told: list[list[UetError | None]] = [[] for _ in inputs]
    executions = [
        Execution(plan, rank, network.end(rank), input=inputs[rank], output=outputs[rank], op=op,
                  done=told[rank].append, gamma=gamma)
        for rank in range(plan.size)
    ]  # fmt: skip
    for rank in order or range(plan.size):
        executions[rank].start()
    turn(network)
    return Ran(outputs, [one.counted for one in executions], told, network.now, network)


__all__ = ["Ran", "execute", "schedule", "turn"]
