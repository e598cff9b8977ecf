# SPDX-License-Identifier: GPL-2.0-only
"""tshark explains multicast: nothing malformed, and with its preference the plugin shows what immediates say
(collectives.md §3.10.1)."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.api import multicast_network as mc
from tests.support.interop import tshark
from tests.support.interop.roce_tshark import OTHERS
from tests.support.interop.tshark import needs_tshark
from uetproto.api import distributed as dist
from uetproto.collectives.multicast.config import MulticastConfig

DISABLED = [argument for name in OTHERS for argument in ("--disable-protocol", name)]
COMMENT = "1048576"
"""Severity of what the capture itself says of a packet: that it was lost."""
NAMES = (
    "frame.protocols", "ip.dst", "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.immdt",
    "uetp.mcast.task_id", "uetp.mcast.chunk_id", "uetp.mcast.ring.owner", "uetp.mcast.ring.type",
    "_ws.expert.message", "_ws.expert.severity",
)  # fmt: skip


def read(path: Path, home: Path, *options: str) -> list[dict[str, Any]]:
    path.chmod(0o644)
    fields = [argument for name in NAMES for argument in ("-e", name)]
    out, _ = tshark.run(["-r", path, "-T", "json", *fields, *DISABLED, *options], home)
    return [packet["_source"]["layers"] for packet in json.loads(out)]


@needs_tshark
def test_the_example() -> None:
    """§6.3: chunk 4 of task 7 is lost at rank 2."""
    with tshark.folder() as home:
        path = home / "run.pcapng"
        made = mc.network(
            4, lambda rank, chunk: rank == 2 and chunk.chunk_id == 4, delay="100 ns", capture=str(path), taps=["rank2"],
            multicast=MulticastConfig(roots=1),
        )  # fmt: skip
        for machines in made.multicast.group((0, 1, 2, 3)).machines:
            machines.counter = 7
        mc.run(made, lambda rank: mc.gather(4, 12288, rank))
        plain, shown = read(path, home), read(path, home, "-o", "uetp.mcast:TRUE")
        for layers in plain + shown:
            assert "_ws.expert.message" not in layers
            assert "malformed" not in layers["frame.protocols"][0]
        assert not any(name.startswith("uetp.mcast") for layers in plain for name in layers)
        chunks = [layers for layers in shown if "uetp.mcast.chunk_id" in layers]
        assert {layers["uetp.mcast.task_id"][0] for layers in chunks} == {"7"}
        assert [int(layers["uetp.mcast.chunk_id"][0]) for layers in chunks] == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
        assert len({layers["ip.dst"][0] for layers in chunks}) == 1
        assert {int(layers["infiniband.bth.destqp"][0], 0) for layers in chunks} == {0xFFFFFF}
        ring = [layers for layers in shown if "uetp.mcast.ring.type" in layers]
        told = sorted((int(one["uetp.mcast.ring.type"][0]), int(one["uetp.mcast.ring.owner"][0], 0)) for one in ring)
        assert told == [(0, 1), (1, 0xDEAD), (1, 0xDEAD)]


@needs_tshark
@pytest.mark.parametrize("topology", ["switch", "leaf-spine"])
def test_captures_with_losses(topology: str) -> None:
    """Subgroups, several operations of both kinds, faults of the network: every frame is explained."""
    with tshark.folder() as home:
        path = home / "run.pcapng"
        made = mc.network(
            6, topology=topology, capture=str(path), taps="all", seed=2, multicast={"mtu": 1024, "subgroups": 2},
            faults={"drop": 0.02, "duplicate": 0.02, "reorder": 0.05},
        )  # fmt: skip

        def program(rank: int) -> None:
            for length in (0, 1, 5000):
                mc.gather(6, length, rank)
                x = np.full(777, rank)
                dist.broadcast(x, 1, algorithm="multicast")
                assert (x == 1).all()

        mc.run(made, program)
        frames = read(path, home, "-o", "uetp.mcast:TRUE")
        for number, layers in enumerate(frames):
            assert set(layers.get("_ws.expert.severity", [])) <= {COMMENT}, layers["_ws.expert.message"]
            assert "malformed" not in layers["frame.protocols"][0], number
        tasks = Counter(layers["uetp.mcast.task_id"][0] for layers in frames if "uetp.mcast.task_id" in layers)
        assert set(tasks) == {str(task) for task in range(1, 6)}  # the first one has no bytes
        assert any("uetp.mcast.ring.type" in layers for layers in frames)
