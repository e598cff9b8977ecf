# SPDX-License-Identifier: GPL-2.0-only
"""What a world and its groups can be told, and what is refused: options of algorithms, nodes, groups, time-outs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from uetproto.api import distributed as dist
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.errors import LocalError

PACKETS = pytest.mark.parametrize("transport", ["uet", "roce"])


def promised(algorithm: str, size: int, **options: Any) -> list[int]:
    """Messages that each rank sends."""
    plan = schedule("all_reduce", algorithm, size, 960, **options)
    return np.bincount(plan.arrays()["src"], minlength=size).tolist()


def reduced(world: dist.World, **call: Any) -> list[int]:
    """Messages that each rank sends in an all_reduce, which is right."""

    def program(rank: int) -> list[int]:
        dist.init_process_group()
        x = np.arange(960) + rank
        dist.all_reduce(x, **call)
        return x.tolist()

    with world:
        results = world.run(program)
    total = sum(range(world.size))
    assert results == [[i * world.size + total for i in range(960)]] * world.size
    return [counted.messages for counted in world.counted]


# Options of algorithms


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("nccl_ring", {"channels": 2}),
        ("nccl_tree", {"channels": 3, "slices": 2}),
        ("double_tree", {"slices": 4}),
        ("hcoll", {"sockets": 2}),
        ("split_rail", {"between": "recursive_doubling"}),
        ("rab", {"between": "double_tree"}),
    ],
)
@pytest.mark.parametrize("transport", ["model", "uet"])
def test_options_reach_the_schedule(algorithm: str, options: dict[str, Any], transport: str) -> None:
    nodes = None if algorithm == "double_tree" else 4
    wanted = promised(algorithm, 16, nodes=nodes, **options)
    assert wanted != promised(algorithm, 16, nodes=nodes)
    world = dist.World(16, transport=transport, nodes=nodes, algorithm=algorithm, **options)
    assert reduced(world) == wanted


def test_an_algorithm_without_an_option_does_not_mind_it() -> None:
    """The world knows it for those calls that name one that has it."""
    ring, tree = (
        reduced(dist.World(8, slices=4), algorithm=algorithm) for algorithm in ("ring", "double_tree")
    )  # fmt: skip
    assert ring == promised("ring", 8)
    assert tree == promised("double_tree", 8, slices=4)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"channels": 0}, "channels: 0; legal: a whole number, 1 and more"),
        ({"slices": 1.5}, "slices: 1.5; legal: a whole number"),
        ({"sockets": True}, "sockets: True; legal: a whole number"),
        (
            {"between": "tree"},
            "between: 'tree' .did you mean double_tree.*; legal: ring, halving_doubling",
        ),
        ({"between": ["ring"]}, "between: ..ring..; legal: ring"),
        ({"algorithm": "ring", "channels": 2}, "channels: does not go with ring; legal: with nccl_tree, nccl_ring"),
        ({"algorithm": {"all_reduce": "rab"}, "slices": 2}, "slices: does not go with rab; legal: with tree, double"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        dist.World(4, **options)


def test_more_channels_than_a_node_has_ranks() -> None:
    world = dist.World(4, nodes=2, algorithm="nccl_ring", channels=3)
    with pytest.raises(ValueError, match=r"all_reduce #0: channels: 3 is not in 1 .. 2, the ranks of a node"):
        reduced(world)


# Nodes and hosts


@PACKETS
@pytest.mark.parametrize(
    "options",
    [
        {"nodes": 2},
        {"nodes": [[0, 1], [2, 3]]},
        {"hosts": [[0, 1], [2, 3]]},
        {"nodes": 2, "hosts": [[2, 3], [0, 1]]},
        {"topology": "rails", "shape": {"gpus_per_node": 2}},
        {"topology": "rails", "shape": {"gpus_per_node": 2}, "nodes": 2},
        {"topology": "leaf-spine", "shape": {"gpus_per_node": 2}},
    ],
    ids=str,
)
def test_nodes_are_hosts(transport: str, options: dict[str, Any]) -> None:
    """One of the two is enough: within a host no packet goes, and hierarchical algorithms know the nodes."""
    world = dist.World(4, transport=transport, algorithm="split_rail", **options)
    assert reduced(world) == promised("split_rail", 4, nodes=2)
    network: Any = world.network
    assert network.hosts.same_host(2, 3)
    assert not network.hosts.same_host(1, 2)
    assert network.intra.messages == 8  # each rank in reduce-scatter and all-gather


@PACKETS
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nodes": 2, "hosts": [[0, 2], [1, 3]]}, r"nodes: \[\[0, 1\], \[2, 3\]\]; legal: none, or \[\[0, 2\], \[1, 3"),
        ({"nodes": 1, "topology": "rails", "shape": {"gpus_per_node": 2}}, "nodes: .* the nodes of this topology"),
        ({"nodes": [[0, 1], [2, 2]]}, "nodes: .*; legal: lists of ranks, with each of 0 … 3 once"),
        ({"nodes": 3}, "nodes: 3, which do not share 4 ranks evenly; legal: 1, 2, 4"),
    ],
)
def test_nodes_that_contradict_the_hosts(transport: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        dist.World(4, transport=transport, **options)


def test_a_network_of_its_own_may_know_its_nodes() -> None:
    class Known(dist.ModelNetwork):
        closed = False

        @property
        def nodes(self) -> Sequence[Sequence[int]]:
            return [[0, 1], [2, 3]]

        def close(self, drain: bool) -> None:
            self.closed = True

    network = Known(4)
    with pytest.raises(ValueError, match=r"nodes: 4; legal: none, or \[\[0, 1\], \[2, 3\]\], which the network has"):
        dist.World(4, transport=network, nodes=4)
    assert not network.closed
    assert reduced(dist.World(4, transport=network), algorithm="rab") == promised("rab", 4, nodes=2)


def test_hosts_of_different_sizes_do_not_matter_to_a_ring() -> None:
    assert reduced(dist.World(3, transport="uet", hosts=[[0, 1], [2]]), algorithm="ring") == [4] * 3


# Worlds that cannot be


@pytest.mark.parametrize(
    ("transport", "options", "text"),
    [
        ("uet", {"faults": {"explode": 1}}, "faults: explode is not legal; legal: drop"),
        ("roce", {"faults": {"trim": 0.5}}, "faults: trim is not legal; legal: drop"),
        ("uet", {"faults": [0, 1]}, "faults: "),
        ("roce", {"faults_from": ["rank9"]}, "faults_from: rank9"),
        ("uet", {"mtu": 1}, "mtu: 1 is not legal"),
        ("model", {"path": 5}, "path: 5; legal: a Path"),
        ("roce", {"way": "send"}, "way: 'send'; legal: write; over roce"),
    ],
)
def test_what_the_network_refuses_is_an_argument_error(transport: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(dist.ArgumentError, match=text) as raised:
        dist.World(2, transport=transport, **options)
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, LocalError)


def test_a_capture_is_closed_if_the_world_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "run.pcapng"
    with pytest.raises(ValueError, match="algorithm: 'quantum'"):
        dist.World(2, transport="uet", capture=str(path), algorithm="quantum")
    dist.World(2, transport="uet", capture=str(path)).close()


# Groups


def test_a_destroyed_group_is_refused_and_others_are_not() -> None:
    def program(rank: int) -> list[int]:
        dist.init_process_group()
        some, others = dist.new_group([0, 1]), dist.new_group([0, 1])
        x = np.ones(2, int)
        dist.all_reduce(x, group=some)
        dist.destroy_process_group(some)
        for call in (
            lambda: dist.all_reduce(x, group=some),
            lambda: dist.send(x, 1 - rank, group=some),
            lambda: dist.get_rank(some),
            lambda: dist.destroy_process_group(some),
        ):
            with pytest.raises(ValueError, match=r"group: <ProcessGroup 1: ranks 0, 1> was destroyed; legal: what new"):
                call()
        dist.all_reduce(x, group=others)
        dist.all_reduce(x)
        return x.tolist()

    assert dist.run(program, ranks=2) == [[8, 8]] * 2


def test_with_the_default_group_all_are_destroyed() -> None:
    def program(rank: int) -> int:
        dist.init_process_group()
        some = dist.new_group([0, 1])
        dist.destroy_process_group()
        with pytest.raises(ValueError, match="there is no default group yet"):
            dist.barrier(some)
        dist.init_process_group()
        with pytest.raises(ValueError, match="was destroyed"):
            dist.barrier(some)
        again = dist.new_group([0, 1])
        x = np.ones(1, int)
        dist.all_reduce(x, group=again)
        return int(x[0])

    assert dist.run(program, ranks=2) == [2, 2]


def test_what_is_under_way_in_a_destroyed_group_ends() -> None:
    def program(rank: int) -> int:
        dist.init_process_group()
        some, x = dist.new_group(), np.ones(1, int)
        work = dist.all_reduce(x, group=some, async_op=True)
        dist.destroy_process_group(some)
        assert work is not None
        work.wait()
        return int(x[0])

    assert dist.run(program, ranks=2) == [2, 2]


def test_who_is_no_member_may_destroy_it() -> None:
    def program(rank: int) -> None:
        dist.init_process_group()
        dist.destroy_process_group(dist.new_group([0]))
        assert dist.is_initialized()

    dist.run(program, ranks=2)


@pytest.mark.parametrize("first", [True, False], ids=["init", "new_group"])
def test_time_outs_that_differ(first: bool) -> None:
    def program(rank: int) -> None:
        dist.init_process_group(timeout=5 + (rank == 1 and first))
        dist.new_group([0, 2], timeout=7 if rank else 9)

    text = (
        "timeout: rank 1 makes group 0 with 6 s, another rank with 5 s"
        if first else "timeout: rank 1 makes group 1 with 7 s, another rank with 9 s"
    )  # fmt: skip
    with pytest.raises(ValueError, match=text):
        dist.run(program, ranks=3)


# Runs one after the other


@pytest.mark.parametrize("transport", ["model", "uet", "roce"])
def test_what_a_failed_run_left_behind_meets_nothing(transport: str) -> None:
    """The next run has the same groups, sequences and steps."""

    def failing(rank: int) -> None:
        dist.init_process_group()
        dist.irecv(np.zeros(4), 1 - rank, tag=1)
        dist.all_reduce(np.ones(4), algorithm="ring", async_op=True)
        dist.sleep(1e-7 * rank)
        raise RuntimeError("ill")

    def right(rank: int) -> list[int]:
        dist.init_process_group()
        x = np.full(4, rank + 1)
        dist.all_reduce(x, algorithm="ring")
        return x.tolist()

    with dist.World(2, transport=transport) as world:
        for _ in range(3):
            with pytest.raises(RuntimeError, match="ill"):
                world.run(failing)
            assert world.run(right) == [[3] * 4] * 2


# Averages of integers


@pytest.mark.parametrize("transport", ["model", "uet", "roce"])
@pytest.mark.parametrize("algorithm", ["ring", "double_tree", "recursive_doubling", "naive_star"])
def test_integers_are_summed_and_then_divided(transport: str, algorithm: str) -> None:
    """AVG divides after the sum (collectives.md §1.6); negative sums round towards zero, as in C."""

    def program(rank: int) -> tuple[list[int], list[int]]:
        dist.init_process_group()
        x, y = np.array([1, 2, rank, -1 - rank, 7]), np.array([100, -100, 127], np.int8)
        dist.all_reduce(x, dist.ReduceOp.AVG, algorithm=algorithm)
        dist.all_reduce(y, dist.ReduceOp.AVG, algorithm=algorithm)
        return x.tolist(), y.tolist()

    # 300 wraps to 44, 381 to 125: the sum does, and the quotient is of that
    assert dist.run(program, ranks=3, transport=transport) == [([1, 2, 1, -2, 7], [14, -14, 41])] * 3


def test_an_average_is_that_of_every_operation_that_reduces() -> None:
    def program(rank: int) -> tuple[list[int], list[int] | None]:
        dist.init_process_group()
        part, whole = np.zeros(2, int), np.array([rank, 5])
        dist.reduce_scatter_tensor(part, np.arange(4) * (rank + 1), dist.ReduceOp.AVG)
        dist.reduce(whole, 0, dist.ReduceOp.AVG)
        return part.tolist(), whole.tolist() if rank == 0 else None

    assert dist.run(program, ranks=2) == [([0, 1], [0, 5]), ([3, 4], None)]
