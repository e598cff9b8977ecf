# SPDX-License-Identifier: GPL-2.0-only
"""This module has plain RoCEv2 frames, and what they are sent to, for tests of the network below the engine."""

from uetproto.emulator.network.clock import Clock
from uetproto.engine.contract import TrafficClass
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import RocePacket
from uetproto.framing.dscp import Dscp
from uetproto.framing.framer import mac_of
from uetproto.framing.roce import RoceFramer
from uetproto.impair.link import EmulatedLink
from uetproto.impair.queue import OutputQueue, levels_by

A, B, C, D = range(0x0A000001, 0x0A000005)
V6 = 0xFD00 << 112
DSCP = Dscp(data=26, data_rtx=26, control=48)
RATE = 400 * 10**9
"""Rate of a link in bits a second: a byte lasts 20 ps."""
OVERHEAD = 14 + 20 + 8 + 12 + 4
"""Size in bytes of the headers and trailer of a frame: Ethernet, IPv4, UDP, BTH, ICRC."""
_BTH = bytes.fromhex("0a40ffff00000012")
_CNP = bytes.fromhex("8100ffff4000001200000000")


def data(size: int = 1000, *, src: int = A, dst: int = B, psn: int = 0, ecn: str = "ect0", version: int = 4) -> bytes:
    """Return a frame with RDMA WRITE ONLY, of `size` bytes in all over IPv4, and of 20 bytes more over IPv6."""
    packet = RocePacket(src, dst, _BTH + psn.to_bytes(4, "big"), bytes(size - OVERHEAD), ip_version=version)
    return RoceFramer(src, version, RoceConfig(ecn=ecn)).frame(packet)


def cnp(*, src: int = A, dst: int = B) -> bytes:
    """Return the frame of a CNP, of 74 bytes (roce.md §13)."""
    return RoceFramer(src, 4, RoceConfig()).frame(RocePacket(src, dst, _CNP, bytes(16), TrafficClass.CONTROL))


def mac(address: int) -> bytes:
    return mac_of(address).to_bytes(6, "big")


class Sink:
    """A sink remembers which frames have arrived, and when."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seen: list[tuple[int, bytes]] = []

    def take(self, frame: bytes) -> None:
        self.seen.append((self.clock.now, frame))

    @property
    def times(self) -> list[int]:
        return [time for time, _ in self.seen]

    @property
    def frames(self) -> list[bytes]:
        return [frame for _, frame in self.seen]


def port(clock: Clock, *, capacity: int = 1 << 20, dscp: Dscp = DSCP, delay: int = 0) -> tuple[Sink, OutputQueue]:
    """Return an output queue at 400 Gb/s, and the sink at the end of its link."""
    sink = Sink(clock)
    link = EmulatedLink(clock, sink, rate=RATE, delay=delay, mtu=9216)
    return sink, OutputQueue(clock, link, capacity=capacity, levels=levels_by(dscp))
