# SPDX-License-Identifier: GPL-2.0-only
"""This module has the shortest loop that drives an engine through UDP sockets, to compare with: it knows no other path,
no congestion control, no capture, no faults and no errors of the network, and has no API above the engine."""

import random
import select
import socket
import sys
from ipaddress import ip_address
from time import monotonic_ns
from typing import Any

from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import Close, Completion, Mode, PdcClosed, Write
from uetproto.engine.fep import Fep
from uetproto.errors import LocalError
from uetproto.framing.framer import LowerHeaders
from uetproto.framing.sizes import ETHERNET_SIZE, ip_size
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.wire.headers.ethernet import UDP

_START = ETHERNET_SIZE + ip_size(4) + UDP.size
_IP_MTU_DISCOVER, _PMTUDISC_DO, _IP_RECVTOS, _SO_NO_CHECK = 10, 2, 13, 11
_SECOND = 10**12
_ROOM, _ANCILLARY = 65535, 64


class BareLoop:
    """This class writes to one peer, and waits for the end of each write."""

    def __init__(self, local: str, peer: str, key: int) -> None:
        self._local, self._peer, self._key = local, int(ip_address(peer)), key
        pds = PdsConfig(rto_init_time=_SECOND // 10, entropy_values=16, msl=0)
        self._engine = Fep(int(ip_address(local)), random.Random(1), pds=pds, ses=SesConfig(payload_mtu=4096))
        self._engine.pds.pool.next_id = 1 + random.SystemRandom().getrandbits(15)
        self._framer = UetFramer(int(ip_address(local)), 4, Encapsulation())
        self._sockets: dict[int, tuple[socket.socket, int]] = {}
        self._heads: dict[tuple[Any, ...], bytes] = {}
        self._to = (peer, 4793)
        self._in = self._bound(4793)
        self._files = (self._in.fileno(),)
        self._ended = False

    def _bound(self, port: int) -> socket.socket:
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        found.setblocking(False)
        found.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_DO)
        found.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)
        found.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
        found.bind((self._local, port))
        return found

    def write(self, data: memoryview) -> None:
        """Write data, and wait for its completion."""
        self._engine.submit(Write(peer=self._peer, mode=Mode.RUD, data=data, key=self._key), monotonic_ns() * 1000)
        self._run()

    def close(self) -> None:
        """Close the PDC and the sockets."""
        self._engine.submit(Close(peer=self._peer), monotonic_ns() * 1000)
        self._run()
        for found in (self._in, *(one for one, _ in self._sockets.values())):
            found.close()

    def _run(self) -> None:
        """Send and receive until an operation, or the PDC, has ended."""
        engine, self._ended = self._engine, False
        while True:
            out = engine.poll(monotonic_ns() * 1000, 32)
            for packet in out:
                self._send(packet)
            happened = engine.events()
            for event in happened:
                if isinstance(event, Completion | PdcClosed):
                    self._ended = True
                    if isinstance(event, Completion) and not event.ok:
                        raise LocalError(f"bench: {event}", id="bench-failed")
            if self._ended:
                return
            at = engine.deadline()
            wait = 0.2 if at is None else min(0.2, max(0, (at - monotonic_ns() * 1000) / _SECOND))
            if select.select(self._files, (), (), 0 if out or happened else wait)[0]:
                self._receive()

    def _send(self, packet: Any) -> None:
        packet.entropy |= 0xC000
        frame = self._framer.frame(packet)
        found, tos = self._sockets.get(packet.entropy) or (self._bound(packet.entropy), -1)
        if tos != frame[15]:  # DSCP and ECN belong to the socket
            found.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, frame[15])
            self._sockets[packet.entropy] = found, frame[15]
        found.sendto(memoryview(frame)[_START:], self._to)

    def _receive(self) -> None:
        while True:
            try:
                data, ancillary, _, (host, port) = self._in.recvmsg(_ROOM, _ANCILLARY)
            except BlockingIOError:
                return
            tos = int.from_bytes(ancillary[0][2], sys.byteorder) if ancillary else 0
            key = host, port, tos, len(data)
            head = self._heads.get(key)
            if head is None:
                lower = LowerHeaders(int(ip_address(host)), int(ip_address(self._local)), port, tos >> 2, tos & 3, 4793)
                head = self._heads[key] = self._framer.lower_headers(lower, len(data))
            packet = self._framer.packet(head + data)
            if packet is not None:
                self._engine.receive(packet, monotonic_ns() * 1000)
