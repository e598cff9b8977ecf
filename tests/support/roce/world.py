# SPDX-License-Identifier: GPL-2.0-only
"""This module has two adapters with a queue pair each, and a wire between them that a test controls."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import (
    Access,
    AddressVector,
    AsyncNotice,
    AsyncType,
    ModifyQp,
    Opcode,
    PostRecv,
    PostSend,
    QpState,
    QpType,
    RoceEvent,
    RocePacket,
    SendFlags,
    Sge,
    Status,
    WorkCompletion,
)
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.memory import RoceMemoryRegion
from uetproto.engine.roce.packets import Parsed, parse
from uetproto.engine.roce.qp import REQUIRED, defaults_of

A, B = 0x0A000001, 0x0A000002
QP_A, QP_B = 0x11, 0x12
BASE = 0x2000_0000
ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
US, MS = 10**6, 10**9


class Side:
    """A side is an adapter with one queue pair and one region of `size` bytes at `BASE`."""

    def __init__(self, address: int, number: int, kind: QpType, config: RoceConfig, memory: Any, srq: bool) -> None:
        self.hca = Hca(address, config=config)
        self.pd = self.hca.alloc_pd()
        self.memory = memory
        self.mr: RoceMemoryRegion = self.hca.reg_mr(self.pd, memory, addr=BASE, access=ALL, rkey=0x1234 + number - QP_A)
        self.srq = self.hca.create_srq(self.pd) if srq else None
        self.number = self.hca.create_qp(kind, self.pd, number=number, srq=self.srq)
        self.events: list[RoceEvent] = []

    @property
    def qp(self) -> Any:
        return self.hca.qps[self.number]

    def sge(self, offset: int = 0, length: int = 0) -> tuple[Sge, ...]:
        return (Sge(BASE + offset, length, self.mr.lkey),)


class World:
    """In this world packets move only by calls: `take` brings them onto the wire, `deliver` hands one over, `run` does
    both until the end."""

    def __init__(
        self, kind: QpType = QpType.RC, *, a: RoceConfig | None = None, b: RoceConfig | None = None,
        size: int = 1 << 16, memories: tuple[Any, Any] | None = None, psn: int = 5, srq: bool = False,
        given: dict[str, Any] | None = None, up: bool = True,
    ) -> None:  # fmt: skip
        a = a or RoceConfig()
        memory_a, memory_b = memories or (bytearray(size), bytearray(size))
        self.kind = kind
        self.a = Side(A, QP_A, kind, a, memory_a, srq)
        self.b = Side(B, QP_B, kind, b or a, memory_b, srq)
        self.sides = {A: self.a, B: self.b}
        self.wire: list[RocePacket] = []
        self.log: list[RocePacket] = []
        """Everything that was sent."""
        self.now = 0
        if up:
            for side, peer in ((self.a, self.b), (self.b, self.a)):
                for state in (QpState.INIT, QpState.RTR, QpState.RTS):
                    self.modify(side, state, **self.attributes(side, peer, state, psn, given or {}))
            self.collect()

    def attributes(self, side: Side, peer: Side, state: QpState, psn: int, given: dict[str, Any]) -> dict[str, Any]:
        names = REQUIRED[self.kind][state]
        wanted = {
            "pkey_index": 0, "port": 1, "access_flags": ALL, "av": AddressVector(peer.hca.address),
            "dest_qpn": peer.number, "rq_psn": psn, "sq_psn": psn, "qkey": 0x11111111,
        }  # fmt: skip
        wanted |= defaults_of(self.kind, state, side.hca.config) | given
        return {name: wanted[name] for name in names}

    # Verbs

    def modify(self, side: Side, state: QpState, **attributes: Any) -> None:
        side.hca.submit(ModifyQp(qp_num=side.number, state=state, attributes=attributes), self.now)
        self.collect()

    def send(self, opcode: Opcode = Opcode.SEND, length: int = 0, *, side: Side | None = None, at: int = 0,
             to: int = 0, **more: Any) -> None:  # fmt: skip
        """Post a send from `at` of the own region, for one-sided operations to `to` of the peer's region, and take the
        packets."""
        side = side or self.a
        peer = self.b if side is self.a else self.a
        more = {"remote_addr": BASE + to, "rkey": peer.mr.rkey, "sg_list": side.sge(at, length)} | more
        side.hca.submit(PostSend(qp_num=side.number, opcode=opcode, **more), self.now)
        self.take()

    def recv(self, length: int = 0, *, at: int = 0, side: Side | None = None, wr_id: int = 0, **more: Any) -> None:
        side = side or self.b
        more = {"qp_num": side.number, "sg_list": side.sge(at, length)} | more
        side.hca.submit(PostRecv(wr_id=wr_id, **more), self.now)

    # The wire

    def collect(self) -> None:
        for side in self.sides.values():
            side.events += side.hca.events()

    def take(self, limit: int = 1 << 40) -> list[RocePacket]:
        """Put on the wire, and return, the packets that both adapters send now."""
        sent = [packet for side in self.sides.values() for packet in side.hca.poll(self.now, limit)]
        self.wire += sent
        self.log += sent
        self.collect()
        return sent

    def deliver(self, index: int = 0) -> None:
        """Hand one packet over, as bytes, and take the packets that it causes."""
        packet = self.wire.pop(index)
        side = self.sides.get(packet.dst)
        if side is not None:
            data = bytes(packet.header) + bytes(packet.payload)
            side.hca.receive(replace(packet, header=data, payload=b""), self.now)
        self.take()

    def drop(self, index: int = 0) -> None:
        del self.wire[index]

    def deliver_all(self) -> None:
        while self.wire:
            self.deliver()

    def pass_time(self, duration: int) -> None:
        """Let time pass and run the timers that are due; packets stay on the wire."""
        end = self.now + duration
        while (due := self.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.take()
        self.now = end
        self.take()

    def deadline(self) -> int | None:
        times = [at for side in self.sides.values() if (at := side.hca.deadline()) is not None]
        return min(times, default=None)

    def run(self, fate: Callable[[RocePacket], bool] = lambda _: True, limit: int = 200_000) -> None:
        """Run until nothing is left to happen, and assert that this state is reached; `fate` says which packets
        arrive."""
        assert self.steps(limit, fate), "it does not end"

    def steps(self, limit: int, fate: Callable[[RocePacket], bool] = lambda _: True) -> bool:
        """Process up to `limit` packets and timers; return whether nothing is left to happen."""
        self.take()
        for _ in range(limit):
            if self.wire:
                if fate(self.wire[0]):
                    self.deliver()
                else:
                    self.drop()
            elif (due := self.deadline()) is not None:
                self.now = max(self.now, due)
                self.take()
            else:
                return True
        return False

    # What came of it

    def done(self, side: Side | None = None, receive: bool = False) -> list[WorkCompletion]:
        events = (side or self.a).events
        return [e for e in events if isinstance(e, WorkCompletion) and e.receive == receive]

    def statuses(self, side: Side | None = None, receive: bool = False) -> list[Status]:
        return [e.status for e in self.done(side, receive)]

    def received(self) -> list[WorkCompletion]:
        return self.done(self.b, True)

    def asynchronous(self, side: Side) -> list[AsyncType]:
        return [e.type for e in side.events if isinstance(e, AsyncNotice)]

    def sent(self, side: Side | None = None) -> list[Parsed]:
        """Return every packet that a side has sent."""
        address = (side or self.a).hca.address
        return [parsed for p in self.log if p.src == address and (parsed := parse(p)) is not None]


UNSIGNALED = SendFlags(0)
