# SPDX-License-Identifier: GPL-2.0-only
"""This module adds up the modelled costs of the paths between GPU memory and the wire (`engine.data_path`).

The model moves no byte and takes no virtual time. It computes for each completed transfer what the data path would have
cost at each of the two devices. Only bytes in regions of `MemoryKind.GPU` count, and only at devices whose `data_path`
is set.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uetproto.engine.data_path import Hop, Path, Report, cost
from uetproto.engine.roce.contract import Sge, WcOpcode, WorkCompletion
from uetproto.engine.roce.memory import MemoryKind
from uetproto.engine.roce.segments import KINDS

if TYPE_CHECKING:
    from uetproto.api.verbs.device import Device
    from uetproto.api.verbs.qp import QP
    from uetproto.api.verbs.work import PostedRequest

NETWORK_PATHS = (Path.NONE, Path.RDMA, Path.ASYNC)
"""Data paths between GPU memory and the wire; `cost` also knows paths between GPU memory and storage."""

_ONE_SIDED = (WcOpcode.RDMA_WRITE, WcOpcode.RDMA_READ, WcOpcode.COMP_SWAP, WcOpcode.FETCH_ADD)


@dataclass(frozen=True, slots=True)
class Side:
    """A side has the costs of one transfer at one device: a transfer has a side at each of its two devices."""

    at: int
    """Time at which the transfer completed, in picoseconds."""
    device: str
    qp_num: int
    """Number of the queue pair on which the transfer completed."""
    wr_id: int
    opcode: WcOpcode
    passive: bool
    """Whether this device is the target of a WRITE, READ or atomic, for which it posted no work request."""
    report: Report


@dataclass(frozen=True, slots=True)
class DataPathReport:
    """This report has the costs of all transfers at both of their devices, in the order of completion, and the sums of
    the costs."""

    sides: tuple[Side, ...]

    def of(self, device: str) -> "DataPathReport":
        """Return the report of the costs at one device alone."""
        return DataPathReport(tuple(side for side in self.sides if side.device == device))

    @property
    def copies(self) -> int:
        return sum(side.report.copies for side in self.sides)

    @property
    def bytes_per_hop(self) -> dict[Hop, int]:
        total: Counter[Hop] = Counter()
        for side in self.sides:
            total.update(dict(side.report.hops))
        return dict(total)

    @property
    def cpu_posts(self) -> int:
        """Return how many work requests a CPU posted."""
        return sum(side.report.cpu_posts for side in self.sides)

    @property
    def cpu_bytes(self) -> int:
        """Return how many bytes a CPU copied itself."""
        return sum(side.report.cpu_bytes for side in self.sides)

    @property
    def time(self) -> int:
        """Return the sum of the transfers' times in picoseconds, as if the transfers followed one after the other."""
        return sum(side.report.time for side in self.sides)


class DataPaths:
    """This class records the costs of the transfers that complete in a network."""

    def __init__(self) -> None:
        self.sides: list[Side] = []

    def note(self, qp: "QP", posted: "PostedRequest", entry: WorkCompletion | None) -> None:
        """Record a work request that succeeded. `entry` is the completion of the request, or None if the request was
        not signalled."""
        work, device = posted.work, qp.device
        opcode = entry.opcode if entry is not None else KINDS[work.opcode].completion if work else WcOpcode.RECV
        if opcode is WcOpcode.RECV_RDMA_WITH_IMM:
            return  # no byte is written to the receive
        length = entry.byte_len if entry is not None else posted.length
        self._add(qp, posted, opcode, device, _on_gpu(device, posted.sg_list, length))
        if work is not None and opcode in _ONE_SIDED and (peer := qp.peer) is not None:
            region = peer.hca.regions.by_rkey.get(work.rkey)
            if region is not None and region.kind is MemoryKind.GPU:
                self._add(qp, posted, opcode, peer, length, passive=True)

    def _add(
        self, qp: "QP", posted: "PostedRequest", opcode: WcOpcode, device: "Device", length: int, passive: bool = False
    ) -> None:
        if device.data_path is None or not length:
            return
        report = cost(device.data_path, length, device.path_config, nvlink=device.nvlink, passive=passive)
        self.sides.append(Side(device.driver.now, device.name, qp.qp_num, posted.wr_id, opcode, passive, report))


def _on_gpu(device: "Device", parts: Iterable[Sge], length: int) -> int:
    """Return how many of the first `length` bytes of a list are in GPU memory."""
    found = 0
    for part in parts:
        used = min(part.length, length)
        length -= used
        region = device.mrs.get(part.lkey)
        if region is not None and region.kind is MemoryKind.GPU:
            found += used
    return found
