# SPDX-License-Identifier: GPL-2.0-only
"""The data path model against sums made by hand."""

from typing import Any

import pytest

from uetproto.engine.data_path import PATHS, Hop, Path, PathConfig, cost
from uetproto.errors import LocalError

NS, US = 1_000, 1_000_000
CONFIG = PathConfig(
    pcie_latency=500 * NS, pcie_bandwidth=32 * 10**9, host_memory_latency=100 * NS,
    host_memory_bandwidth=100 * 10**9, nic_latency=1 * US, nic_bandwidth=50 * 10**9, storage_latency=80 * US,
    storage_bandwidth=10 * 10**9, nvlink_latency=300 * NS, nvlink_bandwidth=200 * 10**9, cpu_post_time=2 * US,
)  # fmt: skip
MEGABYTE = 10**6


def test_through_the_host() -> None:
    """CPU 2 µs; PCIe 0.5 + 31.25; host memory 0.1 + 10; NIC 1 + 20: 64.85 µs, two copies."""
    report = cost(Path.NONE, MEGABYTE, CONFIG)
    assert report.time == 64_850_000
    assert (report.copies, report.cpu_posts, report.cpu_bytes) == (2, 1, MEGABYTE)
    assert report.hops == ((Hop.PCIE, MEGABYTE), (Hop.HOST_MEMORY, MEGABYTE), (Hop.NIC, MEGABYTE))


def test_gpudirect_rdma() -> None:
    """CPU 2 µs; latencies 0.5 + 1; 1 MB over the slowest hop, PCIe, 31.25: 34.75 µs, no copy."""
    report = cost(Path.RDMA, MEGABYTE, CONFIG)
    assert report.time == 34_750_000
    assert (report.copies, report.cpu_posts, report.cpu_bytes) == (0, 1, 0)
    assert report.hops == ((Hop.PCIE, MEGABYTE), (Hop.NIC, MEGABYTE))


def test_gpudirect_async() -> None:
    """The same without the 2 µs of the CPU: 32.75 µs."""
    report = cost(Path.ASYNC, MEGABYTE, CONFIG)
    assert report.time == 32_750_000
    assert (report.copies, report.cpu_posts, report.cpu_bytes) == (0, 0, 0)


@pytest.mark.parametrize(("path", "time", "copies"), [
    (Path.STORAGE_BOUNCE, 223_850_000, 1),  # 2; 80 + 100; 0.1 + 10; 0.5 + 31.25
    (Path.STORAGE_DIRECT, 182_500_000, 0),  # 2; 80 + 0.5; 100 over storage
])  # fmt: skip
def test_storage(path: Path, time: int, copies: int) -> None:
    report = cost(path, MEGABYTE, CONFIG)
    assert (report.time, report.copies) == (time, copies)
    assert report.hops[0] == (Hop.STORAGE, MEGABYTE)


def test_over_another_gpu() -> None:
    """NVLink adds 0.3 µs of latency, and without a copy nothing else: it is not the slowest hop."""
    assert cost(Path.RDMA, MEGABYTE, CONFIG, nvlink=True).time == 35_050_000
    assert cost(Path.NONE, MEGABYTE, CONFIG, nvlink=True).time == 64_850_000 + 300_000 + 5_000_000
    assert [hop for hop, _ in cost(Path.STORAGE_DIRECT, 1, CONFIG, nvlink=True).hops][-1] is Hop.NVLINK


@pytest.mark.parametrize("path", Path)
def test_nothing_takes_its_latency(path: Path) -> None:
    row = PATHS[path]
    assert cost(path, 0, CONFIG).time == sum(map(CONFIG.latency, row.hops)) + row.cpu_posts * CONFIG.cpu_post_time


def test_times_are_rounded_up_once() -> None:
    """1 byte at 3 bytes a second three times is 1 s, not three times a third rounded up."""
    thirds = PathConfig(pcie_bandwidth=3, host_memory_bandwidth=3, nic_bandwidth=3, pcie_latency=0,
                        host_memory_latency=0, nic_latency=0, cpu_post_time=0)  # fmt: skip
    assert cost(Path.NONE, 1, thirds).time == 10**12
    assert cost(Path.RDMA, 1, thirds).time == 10**12 // 3 + 1


@pytest.mark.parametrize("change", [{"nic_bandwidth": 0}, {"pcie_latency": -1}, {"cpu_post_time": 0.5}])
def test_illegal_parameters(change: dict[str, Any]) -> None:
    with pytest.raises(LocalError, match=f"{next(iter(change))}: .* is not legal; legal: an integer from"):
        PathConfig(**change)


def test_illegal_size() -> None:
    with pytest.raises(LocalError, match="size: -1 is not legal"):
        cost(Path.RDMA, -1)
