# SPDX-License-Identifier: GPL-2.0-only
"""Hops within a node: when the bytes are there (collectives.md §4.1)."""

import pytest

from uetproto import LocalError
from uetproto.collectives.topology.gpu_matrix import generated
from uetproto.collectives.topology.intra_node import IntraNode


def test_a_message_lasts_by_its_class() -> None:
    matrix = generated(8)
    within = IntraNode(matrix.bandwidth, latency=500)
    assert within.arrival(0, 0, 1, 240) == 1000 + 500  # 12 NVLinks of 20 GB/s
    assert within.arrival(0, 2, 2, 10**9) == 0
    slow = IntraNode(generated(8, nvlinks=0).bandwidth, latency=0)
    assert slow.arrival(7, 0, 7, 10) == 7 + 1000  # 10 GB/s between sockets
    assert slow.arrival(0, 1, 2, 1) == 84  # 83⅓ ps, rounded up


def test_links_take_one_message_at_a_time() -> None:
    within = IntraNode(lambda source, target: 10**12, latency=0)
    assert within.arrival(0, 0, 1, 100) == 100
    assert within.arrival(0, 0, 2, 100) == 200  # behind the first, out of 0
    assert within.arrival(0, 3, 2, 100) == 300  # behind the second, into 2
    assert within.arrival(0, 4, 5, 100) == 100  # links of their own
    assert within.arrival(0, 1, 0, 100) == 100  # the other way
    assert within.arrival(1000, 0, 1, 100) == 1100  # all is over
    assert (within.messages, within.sent[0], within.received[2]) == (6, 300, 200)


def test_the_latency_comes_behind_the_bytes() -> None:
    within = IntraNode(lambda source, target: 10**12, latency=5)
    assert [within.arrival(10, 0, 1, size) for size in (100, 0)] == [115, 115]


def test_misuse() -> None:
    with pytest.raises(LocalError, match="latency: -1; legal"):
        IntraNode(lambda source, target: 1, latency=-1)
    within = IntraNode(lambda source, target: 0)
    with pytest.raises(LocalError, match="bandwidth: 0 from 0 to 1; legal"):
        within.arrival(0, 0, 1, 1)
    with pytest.raises(LocalError, match="size: -1; legal"):
        within.arrival(0, 0, 1, -1)
