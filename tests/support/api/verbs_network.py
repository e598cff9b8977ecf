# SPDX-License-Identifier: GPL-2.0-only
"""This module has two connected queue pairs for tests of `verbs`, and reads the packets on their wire from a
capture.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uetproto import Packet, decode
from uetproto.api import verbs
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.roce import Operation

SIZE = 1 << 16
A, B = "02:00:0a:00:00:01", "02:00:0a:00:00:02"
"""MAC addresses of the nodes."""


@dataclass
class Ends:
    """Two nodes with a queue pair each, and a region of `SIZE` bytes: those of `a` count up, those of `b` are 0."""

    net: verbs.Network
    a: verbs.QP
    b: verbs.QP
    source: verbs.MR
    target: verbs.MR
    ahs: tuple[verbs.AH, ...]

    def send(self, opcode: verbs.Opcode, sg_list: Any = (), **fields: Any) -> None:
        """Post a send at `a`, with the peer's region, or the address of a datagram, as the transport needs."""
        if self.ahs:
            fields = {"ah": self.ahs[0], "remote_qpn": self.b.qp_num, "remote_qkey": verbs.QKEY} | fields
        fields = {"remote_addr": self.target.addr, "rkey": self.target.rkey} | fields
        self.a.post_send(opcode, sg_list, **fields)

    def done(self, count: int = 1) -> list[verbs.WorkCompletion]:
        return self.a.send_cq.wait(count)

    def received(self, count: int = 1) -> list[verbs.WorkCompletion]:
        return self.b.recv_cq.wait(count)


def counting(size: int = SIZE) -> bytearray:
    return bytearray(number * 7 >> 3 & 0xFF for number in range(size))


def ends(
    kind: verbs.QpType = verbs.QpType.RC, path: Path | None = None, *, given: dict[str, Any] | None = None,
    qp: dict[str, Any] | None = None, srq: bool = False, **network: Any,
) -> Ends:  # fmt: skip
    net = verbs.Network(capture=None if path is None else str(path), **network)
    pds = [net.device(name).alloc_pd() for name in net.devices]
    a, b = (
        pd.create_qp(
            kind, pd.device.create_cq(), pd.device.create_cq(), pd.create_srq() if shared else None, **(qp or {})
        )
        for pd, shared in zip(pds, (False, srq), strict=False)
    )
    ahs = verbs.connect(a, b, **(given or {}))
    return Ends(net, a, b, a.pd.reg_mr(counting()), b.pd.reg_mr(bytearray(SIZE)), ahs)


def frames(path: Path) -> list[bytes]:
    """Return the frames of a capture, which must be closed."""
    with open_capture(path) as records:
        return [bytes(record.data) for record in records]


def packets(path: Path, source: str | None = None) -> list[Packet]:
    """Return the packets of all nodes, or of one MAC address; assert that each has a right ICRC."""
    found = [decode(frame) for frame in frames(path) if source is None or frame[6:12].hex(":") == source]
    for packet in found:
        assert packet.error is None, packet
        assert packet.trailer is not None
        assert (packet.trailer.kind, packet.trailer.ok) == ("icrc", True)
    return found


def operations(path: Path, source: str | None = None) -> list[Operation]:
    """Return the operations of the packets that all nodes, or one MAC address, have sent."""
    return [Operation(packet["bth"]["opcode"] & 0x1F) for packet in packets(path, source)]
