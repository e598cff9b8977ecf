# SPDX-License-Identifier: GPL-2.0-only
"""Losses and retransmissions that a world counts."""

from typing import Any

import numpy as np
import pytest

from uetproto.api import distributed as dist
from uetproto.api.network import Red
from uetproto.engine.config import PdsConfig

LENGTH = 1 << 16


def program(rank: int) -> None:
    dist.init_process_group()
    dist.all_reduce(np.full(LENGTH, rank, np.float32))


def lossy(transport: str, algorithm: str = "ring", **given: Any) -> tuple[dist.NetworkCounts, int]:
    """Return the counts of an all_reduce, and the number of retransmissions that the NICs counted."""
    faults = given.pop("faults", {"drop": 0.02})
    with dist.World(
        4, transport=transport, algorithm=algorithm, faults=faults, faults_from="all", seed=3, **given
    ) as world:  # fmt: skip
        world.run(program)
        nics = world.network.world.network.nics.values()  # type: ignore[attr-defined]  # of a network with packets
        return world.counts, sum(nic.repeated for nic in nics)


CASES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("uet", {}, {"RTO"}),
    ("uet", {"delivery": "ROD"}, {"ROD_OOO"}),
    ("uet", {"pds": PdsConfig(inferred_loss="sack", inferred_loss_packets=1, ack_cc="always")}, {"inferred loss"}),
    ("uet", {"faults": {"trim": 0.02}}, {"TRIMMED"}),
    ("roce", {}, {"NAK PSN_SEQUENCE_ERROR"}),
]


@pytest.mark.parametrize(("transport", "given", "causes"), CASES, ids=lambda part: str(part)[:40])
def test_each_retransmission_has_a_cause(transport: str, given: dict[str, Any], causes: set[str]) -> None:
    counts, repeated = lossy(transport, **given)
    assert counts.drops or counts.trims
    assert causes <= set(counts.retransmissions) <= causes | {"RTO"}
    assert sum(counts.retransmissions.values()) == repeated > 0


def test_a_full_queue_drops_trims_and_marks() -> None:
    counts, _ = lossy("uet", "naive_exchange", faults={}, queue_capacity="64 KiB")
    assert counts.drops > 0
    counts, _ = lossy("uet", "naive_exchange", faults={}, queue_capacity="64 KiB", trimming=True)
    assert (counts.drops, counts.trims > 0, set(counts.retransmissions)) == (0, True, {"TRIMMED_LASTHOP"})
    counts, _ = lossy("roce", "naive_exchange", faults={}, red=Red(kmin=0, kmax=1))
    assert (counts.drops, counts.marks > 0, dict(counts.retransmissions)) == (0, True, {})


@pytest.mark.parametrize("transport", ["uet", "roce"])
def test_damaged_frames_and_those_of_a_dead_rank_are_drops(transport: str) -> None:
    counts, _ = lossy(transport, faults={"corrupt": [5, 9]})
    assert counts.drops == 8  # two of each rank
    with dist.World(2, transport=transport) as world:
        world.network.kill("rank1")  # type: ignore[attr-defined]
        with pytest.raises(dist.TransportError):
            world.run(program)
        assert world.counts.drops > 0


def test_the_model_loses_nothing() -> None:
    with dist.World(2) as world:
        world.run(program)
        assert world.counts == dist.NetworkCounts()
