"""The ibverbs-shaped API over an emulated network: `from uetproto.api import verbs`.

Names are those of libibverbs without `ibv_`: `IBV_WR_RDMA_WRITE_WITH_IMM` is `Opcode.RDMA_WRITE_WITH_IMM`,
`ibv_post_send` is `qp.post_send`. Ping and pong::

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

Nothing runs beside the program: virtual time moves in `cq.wait`, `cq.get_event`, `device.get_async_event`, `net.run`,
and at the end of the `with`, where packets under way arrive. These calls also end when all that is open are sends that
no receive takes: post the receive, and run on. Times are integers of picoseconds, or texts such as "10 us".
"""

from uetproto.api.verbs.network import (
    AH,
    ALL,
    CQ,
    GRH_SIZE,
    MR,
    MULTICAST_QP,
    OWN_QKEY,
    PD,
    QKEY,
    QP,
    SRQ,
    Access,
    AddressVector,
    AsyncEvent,
    DataPathReport,
    Device,
    DeviceAttr,
    Errno,
    EventType,
    Faults,
    FileMemory,
    Hop,
    MemoryKind,
    Network,
    NodeSpec,
    Opcode,
    Path,
    PathConfig,
    Pfc,
    QpState,
    QpType,
    RecvWr,
    Red,
    Report,
    RoceConfig,
    SendFlags,
    SendWr,
    Sge,
    Side,
    Slice,
    Status,
    VerbsError,
    WcFlags,
    WcOpcode,
    WorkCompletion,
    connect,
    cost,
)

__all__ = [
    "AH", "ALL", "CQ", "GRH_SIZE", "MR", "MULTICAST_QP", "OWN_QKEY", "PD", "QKEY", "QP", "SRQ", "Access",
    "AddressVector", "AsyncEvent", "DataPathReport", "Device", "DeviceAttr", "Errno", "EventType", "Faults",
    "FileMemory", "Hop", "MemoryKind", "Network", "NodeSpec", "Opcode", "Path", "PathConfig", "Pfc", "QpState",
    "QpType", "RecvWr", "Red", "Report", "RoceConfig", "SendFlags", "SendWr", "Sge", "Side", "Slice", "Status",
    "VerbsError", "WcFlags", "WcOpcode", "WorkCompletion", "connect", "cost",
]  # fmt: skip
