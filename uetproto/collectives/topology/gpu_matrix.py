# SPDX-License-Identifier: GPL-2.0-only
"""This module holds the distances between the devices of one host: the matrix of `nvidia-smi topo -m` (collectives.md
§4.1).

`gpu_matrix_text` parses and prints such a matrix.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Self

from uetproto.errors import LocalError


class Class(NamedTuple):
    """This record describes a class of connections between devices. The matrix shows its label."""

    label: str
    rank: int
    """Rank of the class in NCCL: 0 is the best. NODE has the rank of PHB."""
    path: str


CLASSES = {
    kind.label: kind
    for kind in (
        Class("X", 0, "the device itself"),
        Class("NV", 1, "# NVLinks bonded together"),
        Class("PIX", 4, "one PCIe bridge at most"),
        Class("PXB", 5, "several PCIe bridges, but no PCIe host bridge"),
        Class("PHB", 8, "a PCIe host bridge, which is mostly the CPU"),
        Class("NODE", 8, "the link between PCIe host bridges of one NUMA node"),
        Class("SYS", 9, "the link between NUMA nodes, such as QPI or UPI"),
    )
}
"""Classes of connections by label, from the best to the worst."""

LABELS = "X, NV#, PIX, PXB, PHB, NODE, SYS"
_OLD = {"SOC": "SYS"}
_ORDER = {label: place for place, label in enumerate(CLASSES)}


class GpuConnection(NamedTuple):
    """This record describes a connection between two devices: the label of its class, and the number of NVLinks. The
    number is 0 unless the class is NV."""

    label: str
    nvlinks: int = 0

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the connection that a cell of the matrix names, such as "NV12" or "PIX". Raises `ValueError` for
        another text."""
        number = text.removeprefix("NV")
        if number != text and number.isascii() and number.isdecimal() and 0 < len(number) < 4 and int(number):
            return cls("NV", int(number))
        if text not in _OLD and (text == "NV" or text not in CLASSES):
            raise ValueError(text)
        return cls(_OLD.get(text, text))

    def __str__(self) -> str:
        return f"NV{self.nvlinks}" if self.label == "NV" else self.label

    @property
    def kind(self) -> Class:
        return CLASSES[self.label]

    @property
    def order(self) -> tuple[int, int]:
        """Return a key by which connections are sorted, the best first."""
        return _ORDER[self.label], -self.nvlinks


X = GpuConnection("X")

GB = 10**9
LOCAL_BANDWIDTH = 5000 * GB
NVLINK = {
    "P100": 18 * GB, "V100": 20 * GB, "A100": 20 * GB, "H100": 206 * GB // 10, "B200": 401 * GB // 10,
}  # fmt: skip
"""Rate of one NVLink in one direction in bytes per second, by the model of the GPU (collectives.md §4.1)."""
SOCKET = {
    "Broadwell": 6 * GB, "Skylake": 10 * GB, "Sapphire Rapids": 22 * GB, "newer Xeon": 40 * GB, "AMD": 16 * GB,
    "Arm": 6 * GB,
}  # fmt: skip
"""Rate between the sockets of a host in bytes per second, by the model of the CPU (collectives.md §4.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """This record holds the rates of the parts of a path, in one direction, in bytes per second."""

    nvlink: int = NVLINK["A100"]
    pcie: int = 12 * GB
    """Rate of PCIe in bytes per second. The default is that of PCIe Gen3 x16."""
    socket: int = SOCKET["Skylake"]

    def __post_init__(self) -> None:
        for name, speed in asdict(self).items():
            if speed <= 0:
                raise LocalError(name, speed, "more than 0 bytes a second", id="wrong-matrix")

    def bandwidth(self, connection: GpuConnection) -> int:
        """Return the rate of a connection in bytes per second. The slowest part of the path determines the rate."""
        if connection.label == "X":
            return LOCAL_BANDWIDTH
        if connection.label == "NV":
            return connection.nvlinks * self.nvlink
        return min(self.pcie, self.socket) if connection.label == "SYS" else self.pcie


def worst(connections: Iterable[GpuConnection]) -> GpuConnection:
    """Return the worst of the connections on a path. The class of the path is that of this connection."""
    return max(connections, key=lambda connection: connection.order, default=X)


@dataclass(frozen=True)
class GpuMatrix:
    """This record holds the devices of one host and the connection between any two of them. The GPUs come first, then
    the NICs."""

    devices: tuple[str, ...]
    rows: tuple[tuple[GpuConnection, ...], ...]
    cpu_affinity: tuple[str, ...] = ()
    """CPUs near each GPU, as in "0-15,128-143". It is empty if they are not known."""
    numa_affinity: tuple[str, ...] = ()
    gpu_numa_id: tuple[str, ...] = ()
    nic_names: tuple[str, ...] = ()
    """Names of those NICs that are called NIC0 and so on in `devices`. It is empty if the names are not known."""

    def __post_init__(self) -> None:
        size = len(self.devices)
        if len(set(self.devices)) < size or not self.gpus or self.devices[: len(self.gpus)] != self.gpus:
            raise LocalError(
                "devices", ", ".join(self.devices), "different names, GPU0 and so on first", id="wrong-matrix"
            )
        if len(self.rows) != size or any(len(row) != size for row in self.rows):
            raise LocalError(
                "rows", f"{[len(row) for row in self.rows]} connections", f"{size} rows of {size}", id="wrong-matrix"
            )
        for a in range(size):
            if self.rows[a][a] != X:
                raise LocalError("rows", f"{self.devices[a]} to itself is {self.rows[a][a]}", "X", id="wrong-matrix")
            for b in range(a):
                here, there = self.rows[a][b], self.rows[b][a]
                if here != there or here == X:
                    names = f"{self.devices[a]} and {self.devices[b]}"
                    raise LocalError(
                        "rows", f"{here} and {there} between {names}", "the same both ways, and not X",
                        id="wrong-matrix"
                    )  # fmt: skip
        for name, values, devices in (
            ("cpu_affinity", self.cpu_affinity, self.gpus), ("numa_affinity", self.numa_affinity, self.gpus),
            ("gpu_numa_id", self.gpu_numa_id, self.gpus), ("nic_names", self.nic_names, self.nics),
        ):  # fmt: skip
            if len(values) not in (0, len(devices)):
                raise LocalError(name, f"{len(values)} values", f"{len(devices)}, or none", id="wrong-matrix")

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        return tuple(name for name in self.devices if is_gpu(name))

    @property
    def nics(self) -> tuple[str, ...]:
        return self.devices[len(self.gpus) :]

    def _index(self, device: int | str) -> int:
        if isinstance(device, str) and device in self.devices:
            return self.devices.index(device)
        if isinstance(device, int) and 0 <= device < len(self.devices):
            return device
        raise LocalError(
            "device", f"{device!r}", f"0 … {len(self.devices) - 1}, or one of {', '.join(self.devices)}",
            id="wrong-matrix"
        )  # fmt: skip

    def between(self, a: int | str, b: int | str) -> GpuConnection:
        """Return the connection between two devices, which are given by number or by name."""
        return self.rows[self._index(a)][self._index(b)]

    def along(self, path: Sequence[int | str]) -> GpuConnection:
        """Return the worst connection on a path from device to device."""
        return worst(self.between(a, b) for a, b in pairwise(path))

    def bandwidth(self, a: int | str, b: int | str, speeds: Speeds | None = None) -> int:
        """Return the rate between two devices in one direction, in bytes per second. `speeds` None means the default
        rates."""
        return (speeds or Speeds()).bandwidth(self.between(a, b))

    def nearest_nics(self, gpu: int | str) -> tuple[str, ...]:
        """Return the NICs that have the best connection to a GPU. There may be several."""
        row = self.rows[self._gpu(gpu)][len(self.gpus) :]
        best = min((connection.order for connection in row), default=None)
        return tuple(nic for nic, connection in zip(self.nics, row, strict=True) if connection.order == best)

    def nearest_nic(self, gpu: int | str) -> str | None:
        """Return the NIC that a GPU uses, or None if the host has no NICs. The NIC is one of those with the best
        connection to the GPU.

        If several GPUs have the same nearest NICs, these GPUs use these NICs in turn.
        """
        number, near = self._gpu(gpu), self.nearest_nics(gpu)
        turn = sum(self.nearest_nics(other) == near for other in range(number))
        return near[turn % len(near)] if near else None

    def _gpu(self, gpu: int | str) -> int:
        number = self._index(gpu)
        if number >= len(self.gpus):
            raise LocalError("gpu", f"{gpu!r} is a NIC", ", ".join(self.gpus), id="wrong-matrix")
        return number

    def ring_order(self, first: int | str = 0) -> tuple[int, ...]:
        """Return the GPUs in the order of a ring that begins with `first`. The worst connection of the ring is as good
        as possible.

        Each GPU is followed by the best remaining neighbour with which the ring can still be closed.
        """
        start = self._gpu(first)
        connections = {self.rows[a][b] for a in range(len(self.gpus)) for b in range(a)}
        for limit in sorted(connections, key=lambda connection: connection.order):
            ring = self._ring(start, limit)
            if ring is not None:
                return ring
        return (start,)

    def _ring(self, start: int, limit: GpuConnection) -> tuple[int, ...] | None:
        """Return a ring without connections worse than `limit`, or None if `_STEPS` steps of the search find none."""
        size = len(self.gpus)
        near = [
            sorted((b for b in range(size) if b != a and row[b].order <= limit.order), key=lambda b: (row[b].order, b))
            for a, row in enumerate(self.rows[:size])
        ]  # fmt: skip
        ring, choices = [start], [iter(near[start])]
        for _ in range(_STEPS):
            if len(ring) == size and (start in near[ring[-1]]):
                return tuple(ring)
            ahead = next((b for b in choices[-1] if b not in ring), None) if len(ring) < size else None
            if ahead is not None:
                ring.append(ahead)
                choices.append(iter(near[ahead]))
            elif len(ring) == 1:
                return None
            else:
                ring.pop()
                choices.pop()
        return None


_STEPS = 200_000
"""Number of steps after which the search for a ring ends. It is enough for any host of 8 GPUs."""


def is_gpu(name: str) -> bool:
    return name.startswith("GPU") and name[3:].isascii() and name[3:].isdecimal()


def generated(gpus: int, *, nics: bool = True, nvlinks: int = 12) -> GpuMatrix:
    """Return the matrix of a host like a DGX A100 (collectives.md §4.2).

    `nvlinks` is the number of NVLinks between any two GPUs. Each GPU has a NIC beside it, two pairs of GPU and NIC
    share a PCIe switch, and the host has two sockets. If `nics` is False, the host has no NICs.
    """
    if gpus < 1:
        raise LocalError("gpus", gpus, "1 and more", id="wrong-matrix")

    def connection(a: int, b: int) -> GpuConnection:
        if a == b:
            return X
        if max(a, b) < gpus and nvlinks:
            return GpuConnection("NV", nvlinks)
        a, b = a % gpus, b % gpus
        if a == b:
            return GpuConnection("PIX")
        if a // 2 == b // 2:
            return GpuConnection("PXB")
        return GpuConnection("NODE" if 2 * a // gpus == 2 * b // gpus else "SYS")

    size = 2 * gpus if nics else gpus
    names = [f"GPU{gpu}" for gpu in range(gpus)] + [f"NIC{nic}" for nic in range(size - gpus)]
    sockets = [2 * gpu // gpus for gpu in range(gpus)]
    return GpuMatrix(
        tuple(names),
        tuple(tuple(connection(a, b) for b in range(size)) for a in range(size)),
        tuple(f"{64 * socket}-{64 * socket + 63}" for socket in sockets),
        tuple(map(str, sockets)),
    )
