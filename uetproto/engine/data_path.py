# SPDX-License-Identifier: GPL-2.0-only
"""This model computes the time and the copies of a transfer between the memory of a GPU and either the wire or storage.

The model covers one end of the transfer and moves no bytes. A path is a list of hops. On a path with buffers, each hop
stores all B bytes before the next hop begins: t = Σ (latency + B / bandwidth). On a path without buffers, the hops
overlap: t = Σ latency + B / bandwidth of the slowest hop. The time that the CPU needs to post the work is added, unless
the GPU posts the work.
"""

from dataclasses import asdict, dataclass
from enum import Enum
from math import prod
from typing import Any, NamedTuple

from uetproto.errors import LocalError

_SECOND = 10**12
_NANOSECOND = 1_000


class Hop(Enum):
    """A hop is a part of the machine through which bytes pass; `PathConfig` has its latency and its bandwidth.

    The value is the prefix of the names of these two parameters.
    """

    PCIE = "pcie"
    NVLINK = "nvlink"
    HOST_MEMORY = "host_memory"
    NIC = "nic"
    STORAGE = "storage"


class Path(Enum):
    """A path is one of the routes by which an end moves its bytes. The value describes the path."""

    NONE = "GPU, a buffer of the host, the buffer of the NIC"
    RDMA = "GPUDirect RDMA: the NIC reads and writes the memory of the GPU"
    ASYNC = "GPUDirect Async: the same, and the GPU posts and polls"
    STORAGE_BOUNCE = "storage, a buffer of the host, GPU"
    STORAGE_DIRECT = "GPUDirect Storage: storage reads and writes the memory of the GPU"


class PathProfile(NamedTuple):
    """A path profile holds the hops and the costs of a path."""

    hops: tuple[Hop, ...]
    copies: int
    """Number of buffers on the path that hold all bytes."""
    cpu_posts: bool
    """Whether the CPU, and not the GPU, posts the work."""
    cpu_copies: tuple[Hop, ...] = ()
    """Hops over which the CPU itself moves the bytes."""


PATHS: dict[Path, PathProfile] = {
    # path                           hops                                     copies  CPU posts  CPU copies
    Path.NONE:           PathProfile((Hop.PCIE, Hop.HOST_MEMORY, Hop.NIC),     2,     True,      (Hop.HOST_MEMORY,)),
    Path.RDMA:           PathProfile((Hop.PCIE, Hop.NIC),                      0,     True),
    Path.ASYNC:          PathProfile((Hop.PCIE, Hop.NIC),                      0,     False),
    Path.STORAGE_BOUNCE: PathProfile((Hop.STORAGE, Hop.HOST_MEMORY, Hop.PCIE), 1,     True,      (Hop.HOST_MEMORY,)),
    Path.STORAGE_DIRECT: PathProfile((Hop.STORAGE, Hop.PCIE),                  0,     True),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PathConfig:
    """A path configuration has the latency of each hop in picoseconds, and its bandwidth in bytes a second. No
    specification prescribes the default values.

    Raises `LocalError`, which names the field and the legal values: latencies from 0 on, bandwidths from 1 on.
    """

    pcie_latency: int = 500 * _NANOSECOND
    pcie_bandwidth: int = 64 * 10**9
    """Bandwidth of 16 lanes of PCIe 5.0."""
    nvlink_latency: int = 300 * _NANOSECOND
    nvlink_bandwidth: int = 450 * 10**9
    """Bandwidth in each direction. NVLink is a hop if the GPU and the NIC share no PCIe switch (`nvlink=True`)."""
    host_memory_latency: int = 100 * _NANOSECOND
    host_memory_bandwidth: int = 200 * 10**9
    nic_latency: int = 600 * _NANOSECOND
    nic_bandwidth: int = 50 * 10**9
    """Bandwidth of a NIC of 400 Gb/s."""
    storage_latency: int = 80_000 * _NANOSECOND
    storage_bandwidth: int = 12 * 10**9
    cpu_post_time: int = 300 * _NANOSECOND
    """Time that the CPU needs to write a work request and ring the doorbell."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            least = 1 if name.endswith("bandwidth") else 0
            if type(value) is not int or value < least:
                raise LocalError(name, f"{value!r} is not legal", f"an integer from {least} on", id="out-of-range")

    def latency(self, hop: Hop) -> int:
        return int(asdict(self)[f"{hop.value}_latency"])

    def bandwidth(self, hop: Hop) -> int:
        return int(asdict(self)[f"{hop.value}_bandwidth"])


@dataclass(frozen=True, slots=True)
class Report:
    """A report holds the cost of one transfer at one end."""

    path: Path
    size: int
    hops: tuple[tuple[Hop, int], ...]
    """Hops in order, each with the number of bytes that pass over it."""
    copies: int
    cpu_posts: int
    """Number of work requests that the CPU posts."""
    cpu_bytes: int
    """Number of bytes that the CPU itself moves."""
    time: int
    """Time of the transfer in picoseconds, rounded up."""

    def as_dict(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        return {
            "path": self.path.name.lower(),
            "bytes": self.size,
            "bytes_per_hop": {hop.value: size for hop, size in self.hops},
            "copies": self.copies,
            "cpu_posts": self.cpu_posts,
            "cpu_bytes": self.cpu_bytes,
            "time_ps": self.time,
        }


def cost(
    path: Path, size: int, config: PathConfig | None = None, *, nvlink: bool = False, passive: bool = False
) -> Report:
    """Return the cost of `size` bytes on `path`.

    `nvlink` says that the bytes pass over NVLink through another GPU, which makes no copy. `passive` says that this
    end is the target of a WRITE, READ or atomic, where no work is posted. Raises `LocalError` for a size below 0.
    """
    if size < 0:
        raise LocalError("size", f"{size} is not legal", "at least 0 bytes", id="out-of-range")
    config = config or PathConfig()
    row = PATHS[path]
    hops = row.hops
    if nvlink:  # the hop next to the GPU: the first one towards the wire, the last one from storage
        hops = (Hop.NVLINK, *hops) if hops[0] is Hop.PCIE else (*hops, Hop.NVLINK)
    posts = row.cpu_posts and not passive
    time = config.cpu_post_time if posts else 0
    time += sum(map(config.latency, hops))
    bandwidths = [config.bandwidth(hop) for hop in hops]
    if row.copies:
        # The quotients are summed exactly, over the product of the bandwidths, and the sum is rounded once.
        whole = prod(bandwidths)
        time += _up(size * _SECOND * sum(whole // bandwidth for bandwidth in bandwidths), whole)
    else:
        time += _up(size * _SECOND, min(bandwidths))
    cpu_bytes = size * len(row.cpu_copies)
    return Report(path, size, tuple((hop, size) for hop in hops), row.copies, int(posts), cpu_bytes, time)


def _up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
