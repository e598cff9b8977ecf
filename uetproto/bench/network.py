# SPDX-License-Identifier: GPL-2.0-only
"""This module measures in-network collectives for `uetproto bench`: multicast all_gather and SHARP all_reduce.

Each run is in a separate process, so that the peak of memory is that of this run alone. `python -m
uetproto.bench.network multicast 188 65536` runs an all_gather of 188 ranks with 64 KiB each.
"""

import json
import sys
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any, NamedTuple

from uetproto.api.distributed.networks.multicast import traffic
from uetproto.api.distributed.networks.roce import network
from uetproto.bench.engine import Figure
from uetproto.cli.collective.run import CollectiveCase, PreparedCase
from uetproto.collectives.costs.in_network import multicast_traversals
from uetproto.collectives.dtypes import dtype
from uetproto.errors import LocalError

KIB, MIB = 1 << 10, 1 << 20
HOSTS_PER_LEAF = 16


class BenchRow(NamedTuple):
    """A bench row describes one measured collective and the limits of its time and memory."""

    way: str
    ranks: int
    quick: int
    """Number of ranks if `--quick` is given."""
    length: int
    """Number of bytes for each rank."""
    what: str
    seconds: int
    """Limit of the CPU time in seconds."""
    memory: int | None = None
    """Limit of the peak memory in MiB. It is None if memory is not measured."""


ROWS = (
    BenchRow("multicast", 188, 32, 64 * KIB, "all_gather by multicast, 64 KiB a rank, bytes on every link", 60, 4096),
    BenchRow("objects", 188, 32, MIB, "all_gather by multicast, 1 MiB a rank, frames as objects", 120, 1024),
    BenchRow("sharp", 64, 16, MIB, "all_reduce by SHARP, 1 MiB streamed", 60),
)


def objects(ranks: int, length: int) -> None:
    """Run an all_gather by multicast without receive buffers.

    Raises `LocalError` unless the switches copy each chunk as often as the multicast tree requires.
    """
    made = network(ranks, topology="leaf-spine", shape={"hosts_per_leaf": HOSTS_PER_LEAF}, wire="objects")
    counted = traffic(made.multicast, length)
    switches = made.world.network.switches.values()
    copies = sum(port.frames for switch in switches for port in switch.group_ports.values())
    chunks = -(-length // made.path_mtu)  # chunks of a block; a host sends each of them once
    if copies != multicast_traversals(ranks, -(-ranks // HOSTS_PER_LEAF), chunks, ranks) - ranks * chunks:
        raise LocalError(f"bench: {copies} copies of chunks", id="bench-failed")
    if any(one.bytes_sent != length for one in counted):
        raise LocalError("bench: a rank sends more than its block", id="bench-failed")


def _collective(op: str, algorithm: str, ranks: int, length: int) -> None:
    """Run a collective over RoCE, with every frame encoded and tensors on every rank."""
    found = PreparedCase(CollectiveCase(
        op=op, algorithm=algorithm, ranks=ranks, length=length, dtype=dtype("float32"), transport="roce",
        kind="leaf-spine", shape={"hosts_per_leaf": HOSTS_PER_LEAF},
    )).run()  # fmt: skip
    if not found.correct or found.payload != found.promised:
        raise LocalError(f"bench: {op} by {algorithm} is not right", id="bench-failed")


WAYS: dict[str, Callable[[int, int], None]] = {
    "multicast": lambda ranks, length: _collective("all_gather", "multicast", ranks, ranks * length),
    "objects": objects,
    "sharp": lambda ranks, length: _collective("all_reduce", "sharp", ranks, length),
}
"""Maps the `way` of a row to the function that runs the row. The arguments are the number of ranks and the bytes for
each rank."""


def measure(quick: bool, in_a_process: Callable[[list[str]], tuple[dict[str, Any], int]]) -> Iterator[Figure]:
    """Yield the CPU seconds of each row of `ROWS`, and its peak of memory if the row has a limit for it."""
    for row in ROWS:
        ranks, length = (row.quick, row.length // 8) if quick else (row.ranks, row.length)
        found, peak = in_a_process(["-m", "uetproto.bench.network", row.way, str(ranks), str(length)])
        what = f"{row.what}, {ranks} ranks" if not quick else f"{row.what} / 8, {ranks} ranks"
        yield Figure("in_network", what, found["seconds"], "s", row.seconds, most=True)
        if row.memory is not None:
            yield Figure("in_network", f"{what}: memory", peak / MIB, "MiB", row.memory, most=True)


if __name__ == "__main__":
    began = process_time()
    WAYS[sys.argv[1]](*map(int, sys.argv[2:4]))
    print(json.dumps({"seconds": process_time() - began}))
