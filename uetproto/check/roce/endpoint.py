# SPDX-License-Identifier: GPL-2.0-only
"""This module has the adapters that a `RoceSimulator` drives. Each adapter has one queue pair, and memory regions with
fixed keys."""

from collections.abc import Callable
from typing import Any

from uetproto.check.roce.model import FOREIGN, LOCAL, WINDOW, MemoryAccess, MemoryPlace, ObservedRegion, PlaceUse
from uetproto.check.wire import ADDRESSES
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import Access, QpType, Sge
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.qp import Qp
from uetproto.engine.roce.segments import ATOMIC_SIZE

QPS = (0x11, 0x12)
BASE = 0x2000_0000
LOCAL_KEY, WINDOW_KEY, FOREIGN_KEY, SPARE_KEY, NO_KEY = 0x1000, 0x1234, 0x5678, 0x7777, 0xDEAD
QKEY, OTHER_QKEY = 0x11111111, 0x22222222
RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
LINE_RATE = 10 * 10**9
"""Line rate of the adapter in bits per second. With DCQCN it is the initial rate of a queue pair."""


class RoceEndpoint:
    """This endpoint is an adapter with one queue pair and its memory regions."""

    def __init__(
        self, node: int, kind: QpType, config: RoceConfig, qp: dict[str, Any], watch: Callable[[MemoryAccess], None]
    ) -> None:
        self.hca = Hca(ADDRESSES[node], config=config)
        self.hca.line_rate = LINE_RATE
        self.pd, other = self.hca.alloc_pd(), self.hca.alloc_pd()
        self.local, self.window, self.foreign = (ObservedRegion(name, watch) for name in (LOCAL, WINDOW, FOREIGN))
        self.hca.reg_mr(self.pd, self.local, addr=BASE, rkey=LOCAL_KEY)
        self.hca.reg_mr(self.pd, self.window, addr=BASE, access=RIGHTS, rkey=WINDOW_KEY)
        self.hca.reg_mr(other, self.foreign, addr=BASE, access=RIGHTS, rkey=FOREIGN_KEY)
        self.hca.reg_mr(self.pd, bytearray(8), addr=BASE, access=RIGHTS, rkey=SPARE_KEY)
        self.counter = MemoryPlace(PlaceUse.COUNTER, bytearray(ATOMIC_SIZE))
        self.window.add(self.counter)
        self.srq = self.hca.create_srq(self.pd) if qp.get("srq") else None
        self.number = self.hca.create_qp(kind, self.pd, number=qp.get("number", QPS[node]), srq=self.srq)

    @property
    def qp(self) -> Qp:
        return self.hca.qps[self.number]


def parts_of(at: int, length: int, cut: int, lkey: int) -> tuple[Sge, ...]:
    """Return a scatter/gather list for the bytes. It has two entries if `cut` lies within the bytes, and otherwise
    one."""
    if not 0 < cut < length:
        return (Sge(BASE + at, length, lkey),)
    return Sge(BASE + at, cut, lkey), Sge(BASE + at + cut, length - cut, lkey)
