# SPDX-License-Identifier: GPL-2.0-only
"""This package has the ibverbs-shaped API over an emulated network: `from uetproto.api import verbs`.

Names are those of libibverbs without `ibv_`: `IBV_WR_RDMA_WRITE_WITH_IMM` is `Opcode.RDMA_WRITE_WITH_IMM`, and
`ibv_post_send` is `qp.post_send`. This program sends a ping, which a pong answers::

    with verbs.Network(["a", "b"], capture="pingpong.pcapng") as net:
        a, b = [net.device(name).alloc_pd() for name in "ab"]
        ping, pong = [pd.create_qp(verbs.QpType.RC, pd.device.create_cq()) for pd in (a, b)]
        verbs.connect(ping, pong)
        ball, racket = a.reg_mr(bytearray(b"ping")), b.reg_mr(bytearray(4))
        pong.post_recv(racket)
        ping.post_send(verbs.Opcode.SEND, ball)
        pong.recv_cq.wait()
        racket[1:2] = b"o"
        pong.post_send(verbs.Opcode.RDMA_WRITE, racket, remote_addr=ball.addr, rkey=ball.rkey)
        print(pong.send_cq.wait()[0].status.name, bytes(ball))

Nothing runs beside the program: virtual time advances only in `cq.wait`, `cq.get_event`, `device.get_async_event` and
`net.run`, and at the end of the `with`, where packets in flight arrive. These calls also return when the only open
operations are sends for which no receive is posted; the program then posts the receive and calls again. A time is an
integer, in picoseconds, or a text such as "10 us".
"""

from typing import TYPE_CHECKING

from uetproto.api.verbs.cq import CQ
from uetproto.api.verbs.device import PD, AsyncEvent, Device, DeviceAttr, EventType
from uetproto.api.verbs.errors import Errno, VerbsError
from uetproto.api.verbs.memory import ALL, MR, Slice
from uetproto.api.verbs.network import QKEY, Network, connect, connect_to
from uetproto.api.verbs.node import NodeSpec
from uetproto.api.verbs.qp import QP, SRQ
from uetproto.api.verbs.report import DataPathReport, Side
from uetproto.api.verbs.work import AH, RecvWr, SendWr
from uetproto.engine.data_path import Hop, Path, PathConfig, Report, cost
from uetproto.engine.memory import FileMemory
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import (
    Access,
    AddressVector,
    Opcode,
    QpState,
    QpType,
    SendFlags,
    Sge,
    Status,
    WcFlags,
    WcOpcode,
    WorkCompletion,
)
from uetproto.engine.roce.memory import MemoryKind
from uetproto.engine.roce.ud import GRH_SIZE, OWN_QKEY
from uetproto.impair.faults import Faults
from uetproto.impair.red import Red
from uetproto.wire.headers.roce import MULTICAST_QP

if TYPE_CHECKING:
    from uetproto.api.verbs.emulated import Pfc

__all__ = [
    "AH", "ALL", "CQ", "GRH_SIZE", "MR", "MULTICAST_QP", "OWN_QKEY", "PD", "QKEY", "QP", "SRQ", "Access",
    "AddressVector", "AsyncEvent", "DataPathReport", "Device", "DeviceAttr", "Errno", "EventType", "Faults",
    "FileMemory", "Hop", "MemoryKind", "Network", "NodeSpec", "Opcode", "Path", "PathConfig", "Pfc", "QpState",
    "QpType", "RecvWr", "Red", "Report", "RoceConfig", "SendFlags", "SendWr", "Sge", "Side", "Slice", "Status",
    "VerbsError", "WcFlags", "WcOpcode", "WorkCompletion", "connect", "connect_to", "cost",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "Pfc":  # a network on a live link does without the emulator
        from uetproto.api.verbs.emulated import Pfc

        return Pfc
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
