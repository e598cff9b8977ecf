# SPDX-License-Identifier: GPL-2.0-only
"""Algorithms that are a network's own run where schedules do (`collectives.offload`)."""

from typing import Any, ClassVar

import numpy as np
import pytest

from uetproto.api import distributed as dist
from uetproto.collectives.offload import CollectiveCounters, CollectivePart, Ended, Offload, OffloadRequest, PartFactory
from uetproto.errors import LocalError, UetError


class Adder(Offload):
    """A switch that adds what all ranks hand in, a microsecond after the last one; it does whole numbers."""

    algorithms: ClassVar = {"all_reduce": ("adder", "in_network"), "broadcast": ("adder",)}

    def __init__(self, network: dist.ModelNetwork) -> None:
        self.network = network
        self.asked: list[OffloadRequest] = []
        self.parts: list[Added] = []
        self.fails = ""

    def maker(self, asked: OffloadRequest) -> PartFactory:
        if asked.dtype.kind != "i":
            raise LocalError("dtype", f"{asked.dtype}; legal with adder: whole numbers")
        self.asked.append(asked)
        parts = self.parts = []

        def make(place: int, input: Any, output: Any, done: Ended) -> CollectivePart:
            assert place == len(parts)
            parts.append(Added(self, parts, len(asked.ranks), input, output, done))
            return parts[-1]

        return make


class Added:
    """One rank."""

    def __init__(
        self, adder: Adder, parts: "list[Added]", size: int, input: Any, output: Any, done: Ended
    ) -> None:  # fmt: skip
        self.counted = CollectiveCounters()
        self.ended = False
        self.started = False
        self.error: UetError | None = None
        self._all, self._adder, self._size, self._done = parts, adder, size, done
        self.input, self.output = input, output

    def start(self) -> None:
        self.started = True
        self.counted.messages = 1
        if self._size == sum(part.started for part in self._all):
            network = self._adder.network
            network.timers.at(network.now + 10**6, self._add)

    def _add(self) -> None:
        total = sum(part.input.copy() for part in self._all)
        for part in self._all:
            part.output[...] = total
            if not part.ended:
                part.ended = True
                part._done(UetError(self._adder.fails) if self._adder.fails else None)

    def fail(self, error: UetError) -> None:
        self.ended = True
        self.error = error


def network(size: int) -> tuple[dist.ModelNetwork, Adder]:
    made = dist.ModelNetwork(size)
    made.offload = adder = Adder(made)
    return made, adder


def program(rank: int, **call: Any) -> tuple[list[int], float]:
    dist.init_process_group()
    x = np.arange(4) + rank
    dist.all_reduce(x, **call)
    return x.tolist(), dist.now()


@pytest.mark.parametrize(
    ("world", "call", "name"),
    [
        ({"algorithm": "adder"}, {}, "adder"),
        ({"algorithm": {"all_reduce": "in_network"}}, {}, "in_network"),
        ({}, {"algorithm": "adder"}, "adder"),
    ],
)
def test_the_network_does_it(world: dict[str, Any], call: dict[str, Any], name: str) -> None:
    made, adder = network(3)
    with dist.World(3, transport=made, **world) as ranks:
        assert ranks.run(lambda rank: program(rank, **call)) == [([3, 6, 9, 12], 1e-6)] * 3
    assert made.messages == 0
    assert [counted.messages for counted in ranks.counted] == [1] * 3
    (asked,) = adder.asked
    assert (asked.op, asked.algorithm, asked.ranks, asked.count) == ("all_reduce", name, (0, 1, 2), 4)
    assert asked.reduce_op == dist.ReduceOp.SUM


def test_what_it_does_not_do_is_refused_before_the_first_message() -> None:
    made, _ = network(2)

    def floats(rank: int) -> None:
        dist.init_process_group()
        dist.all_reduce(np.zeros(3), algorithm="adder")

    with pytest.raises(ValueError, match="all_reduce #0: dtype: float64; legal with adder: whole numbers"):
        dist.World(2, transport=made).run(floats)


def test_others_are_schedules_as_ever() -> None:
    made, adder = network(2)
    results = dist.World(2, transport=made).run(lambda rank: program(rank, algorithm="ring"))
    assert [told for told, _ in results] == [[1, 3, 5, 7]] * 2
    assert made.messages == 4
    assert adder.asked == []


def test_its_failure_reaches_all() -> None:
    made, adder = network(2)
    adder.fails = "the switch has lost power"
    with pytest.raises(UetError, match="the switch has lost power"):
        dist.World(2, transport=made, algorithm="adder").run(program)


def test_a_time_out_ends_its_parts() -> None:
    made, adder = network(3)

    def late(rank: int) -> str:
        dist.init_process_group()
        work = dist.all_reduce(np.arange(3), algorithm="adder", async_op=True)
        assert work is not None
        with pytest.raises((dist.TimeoutError, dist.AbortedError)) as raised:
            work.wait(1e-7 if rank == 1 else 1)
        return type(raised.value).__name__

    assert dist.World(3, transport=made).run(late) == ["AbortedError", "TimeoutError", "AbortedError"]
    assert all("rank 1 failed in its all_reduce #0" in str(part.error) for part in adder.parts)
    assert len(adder.parts) == 3


def test_where_there_is_none_its_names_are_unknown() -> None:
    with pytest.raises(ValueError, match="algorithm: 'adder'; legal: binomial"):
        dist.World(2, algorithm="adder")
    with pytest.raises(ValueError, match="algorithm: 'adder' of all_reduce; legal: naive_star"):
        dist.World(2).run(lambda rank: program(rank, algorithm="adder"))
