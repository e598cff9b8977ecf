# SPDX-License-Identifier: GPL-2.0-only
"""This module has the path over UDP sockets, which needs no privileges.

The kernel makes the IP header: unconnected sockets that may not fragment send with DF and identification 0, which the
framers count with. The source port, which is the entropy value, is that of a socket, so each value needs a socket.
"""

import errno
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

from uetproto.errors import LocalError
from uetproto.framing.framer import CACHE, LowerHeaders
from uetproto.framing.sizes import ETHERNET_SIZE, ip_size
from uetproto.live import sockets
from uetproto.live.path import NotPermittedError, PathCounters, PathSetup, reason_of, too_long
from uetproto.live.sockets import ErrorWatch, Socket
from uetproto.wire.capture.pcap import RAW
from uetproto.wire.headers.ethernet import UDP

_FIRST_PORT = 0xC000
"""First source port: those from here on are for anybody's use (RFC 6335)."""
_TRIES, _STRIDE = 64, 257
"""Number of ports that are tried for an entropy value, and their distance: a peer at the same address has many of its
neighbours."""
_LONGEST = 65535
_SEGMENTS = 60
"""Number of packets that one call hands to the kernel with segmentation, and fewer than 64 KiB of them."""
_INT, _SHORT = struct.Struct("=i"), struct.Struct("=H")


class UdpReceiver:
    """This class receives the packets of one UDP socket, as frames whose lower headers are made again."""

    def __init__(self, setup: PathSetup, counters: PathCounters, when_idle: Callable[[], None]) -> None:
        """Open the socket. `when_idle` is called when nothing has arrived. Raises `LocalError` if its address or port
        is not to be had."""
        port = setup.local_port
        assert port is not None
        self._setup, self._counters, self._when_idle = setup, counters, when_idle
        self.socket = sockets.open_socket(setup.ip_version, socket.SOCK_DGRAM)
        sockets.bind(self.socket, setup.local, setup.ip_version, port, setup.interface.device)
        if setup.ip_version == 6:
            self.socket.setsockopt(socket.IPPROTO_UDP, sockets.UDP_NO_CHECK6_RX, 1)
        self.buffer = sockets.enlarge(self.socket, setup.interface.receive_buffer)
        self._heads: dict[tuple[Any, ...], bytes] = {}
        self._room = memoryview(bytearray(_LONGEST))

    def receive(self, limit: int) -> list[bytes]:
        """Return the frames that have arrived, at most `limit`."""
        found: list[bytes] = []
        room, take, heads = self._room, self.socket.recvmsg_into, self._heads
        buffers = [room]
        while len(found) < limit:
            try:
                size, ancillary, flags, source = take(buffers, sockets.ANCILLARY)
            except BlockingIOError:
                if not found:
                    self._when_idle()
                break
            except OSError as error:
                self._counters.lost_by(error, sockets.queued_errors(self.socket))
                continue
            if flags & sockets.TRUNCATED:
                self._counters.truncated += 1
                continue
            key = (source, size, ancillary[0][2] if ancillary else b"\0")
            head = heads.get(key) or self._head(source, size, key)
            found.append(b"".join((head, room[:size])))
        self._counters.received += len(found)
        return found

    def _head(self, source: sockets.Address, size: int, key: tuple[Any, ...]) -> bytes:
        """Return the lower headers of a packet of `size` bytes."""
        if len(self._heads) >= CACHE:
            self._heads.clear()
        tos = int.from_bytes(key[2], sys.byteorder)
        src, setup = sockets.number_of(source[0]), self._setup
        lower = LowerHeaders(src, setup.local, source[1], tos >> 2, tos & 3, setup.local_port)
        head = self._heads[key] = setup.lower_headers(lower, size)
        return head


class _Route:
    """This class has how packets with one source port, destination and ToS leave."""

    __slots__ = ("ancillary", "at", "dst", "sendmsg", "sendto", "socket")

    def __init__(self, found: Socket, at: sockets.Address, dst: int, ancillary: list[tuple[int, int, bytes]]) -> None:
        self.socket, self.at, self.dst, self.ancillary = found, at, dst, ancillary
        self.sendto, self.sendmsg = found.sendto, found.sendmsg


class UdpPath:
    """This class implements `live.path.Path` with a UDP socket to receive, and one for each entropy value to send."""

    name = "udp"
    link = RAW
    cannot = (
        "native IP", "an entropy value below 1024", "trimmed packets of a length of their own",
        "fields of the IP header but DSCP and ECN",
    )  # fmt: skip

    def __init__(self, setup: PathSetup) -> None:
        """Open the socket to receive. Raises `LocalError` if its address or port is not to be had, and
        `NotPermittedError` for packets without UDP."""
        if setup.peer_port is None or setup.local_port is None:
            raise NotPermittedError("path", "UDP sockets send no native IP packets", "raw", id="no-path")
        interface = setup.interface
        if setup.transport == "roce" and interface.segmentation:
            raise LocalError(
                "segmentation", "the kernel numbers the packets, and the ICRC covers the number", "off",
                id="not-with-transport"
            )  # fmt: skip
        self.notes: list[str] = []
        self.counters = PathCounters()
        self._setup, self._version = setup, setup.ip_version
        self._device, self._segments = interface.device, interface.segmentation
        self._checksum = interface.checksum == "on" or (interface.checksum == "auto" and self._version == 6)
        self._receiver = UdpReceiver(setup, self.counters, self._take_errors)
        self._watch = ErrorWatch()
        self._watch.add(self._receiver.socket, receives=True)
        self.receive, self.fileno = self._receiver.receive, self._watch.fileno
        self.buffer = self._receiver.buffer
        self._senders: dict[int, Socket] = {}
        """Sockets by their port."""
        self._ports: dict[int, int] = {}
        """Source port of each entropy value that an engine chose."""
        spare, limit = sockets.spare_descriptors()
        self._most = min(interface.entropies, spare)
        if self._most < interface.entropies:
            self.notes.append(f"{self._most} entropy values, as this process may open {limit} files (ulimit -n)")
        self._routes: dict[bytes, _Route] = {}
        self._blocked: int | None = None
        self._start = ETHERNET_SIZE + ip_size(self._version) + UDP.size
        self._port_at = self._start - UDP.size
        self._key_at = (15, 30, 36) if self._version == 4 else (14, 38, 56)
        """Where the ToS of a frame begins, and its destination; and the end of its source port."""

    def _open(self, port: int) -> Socket:
        found = sockets.open_socket(self._version, socket.SOCK_DGRAM)
        self._set_checksum(found)
        sockets.bind(found, self._setup.local, self._version, port, self._device)
        self._watch.add(found)
        return found

    def _take_errors(self) -> None:
        """Count errors of sockets, which tell that earlier packets were lost on their way."""
        self._watch.take(self.counters.lost)

    def _set_checksum(self, found: Socket) -> None:
        if self._version == 4:
            found.setsockopt(socket.SOL_SOCKET, sockets.SO_NO_CHECK, not self._checksum)
        else:
            found.setsockopt(socket.IPPROTO_UDP, sockets.UDP_NO_CHECK6_TX, not self._checksum)

    @property
    def checksum(self) -> bool:
        return self._checksum

    @checksum.setter
    def checksum(self, value: bool) -> None:
        self._checksum = value
        for found in self._senders.values():
            self._set_checksum(found)

    @property
    def blocked(self) -> int | None:
        return self._blocked

    def mtu(self, dst: int) -> int:
        return sockets.mtu_towards(self._setup.local, dst, self._version, self._device)

    def close(self) -> None:
        self._watch.close()
        self._receiver.socket.close()
        for found in self._senders.values():
            found.close()

    # Entropy values

    def entropy(self, value: int) -> int:
        port = self._ports.get(value)
        return self._choose(value) if port is None else port

    def _choose(self, value: int) -> int:
        """Return the port of an entropy value: that of a socket of its own while more sockets may be opened."""
        if len(self._senders) >= self._most:
            port = list(self._senders)[value % len(self._senders)]
        else:
            port = self._open_from(_FIRST_PORT | value)
        if len(self._ports) >= CACHE:
            self._ports.clear()
            self._ports.update((one, one) for one in self._senders)  # what an ACK copies keeps its port
        self._ports[value] = self._ports[port] = port
        return port

    def _open_from(self, first: int) -> int:
        for number in range(_TRIES):
            port = _FIRST_PORT | first + number * _STRIDE & 0x3FFF
            try:
                self._senders[port] = self._open(port)
            except LocalError:
                if number == _TRIES - 1:
                    raise
            else:
                return port
        raise AssertionError

    # Sending

    def send(self, frames: Sequence[bytes]) -> int:
        if self._segments:
            return self._send_segments(frames)
        start, routes, find = self._start, self._routes, self._route
        tos, dst, end = self._key_at
        self._blocked = None
        taken = 0
        for frame in frames:
            # ToS, destination and source port; over IPv6 two bytes that have the traffic class
            key = frame[tos:16] + frame[dst:end]
            route = routes.get(key) or find(frame, key)
            try:
                if route.ancillary:
                    route.sendmsg((frame[start:],), route.ancillary, 0, route.at)
                else:
                    route.sendto(frame[start:], route.at)
            except OSError as error:
                if not self._lost(error, route, [frame[start:]], ()):
                    break
            taken += 1
        self.counters.sent += taken
        return taken

    def _send_segments(self, frames: Sequence[bytes]) -> int:
        """Send frames as `send` does, and hand neighbours of one route and size to the kernel at once."""
        frames, start = list(frames), self._start
        at = 0
        self._blocked = None
        while at < len(frames):
            first = frames[at]
            key, size, end = self._key(first), len(first) - start, at + 1
            most = at + min(_SEGMENTS, (_LONGEST - self._start) // max(size, 1))
            while end < min(len(frames), most) and self._key(frames[end]) == key and len(frames[end]) - start <= size:
                end += 1
                if len(frames[end - 1]) - start < size:
                    break  # a shorter packet can only be the last one
            route = self._routes.get(key) or self._route(first, key)
            parts = [frame[start:] for frame in frames[at:end]]
            more = ((socket.IPPROTO_UDP, sockets.UDP_SEGMENT, _SHORT.pack(size)),) if end - at > 1 else ()
            try:
                route.sendmsg(parts, (*route.ancillary, *more), 0, route.at)
            except OSError as error:
                if not self._lost(error, route, parts, more):
                    break
            at = end
        self.counters.sent += at
        return at

    def _key(self, frame: bytes) -> bytes:
        tos, dst, end = self._key_at
        return frame[tos:16] + frame[dst:end]

    def _route(self, frame: bytes, key: bytes) -> _Route:
        """Return the route of a frame. The ToS of the first one is that of its socket; others go along as ancillary
        data."""
        four = self._version == 4
        tos = frame[15] if four else (frame[14] & 0xF) << 4 | frame[15] >> 4
        at = self._port_at
        port = int.from_bytes(frame[at : at + 2], "big")
        found = self._senders.get(port)
        level, name = (socket.IPPROTO_IP, socket.IP_TOS) if four else (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
        if found is None and port == self._setup.local_port:
            found = self._senders[port] = self._receiver.socket
            self._set_checksum(found)
        elif found is None:
            found = self._senders[port] = self._open(port)
        if not any(route.socket is found for route in self._routes.values()):
            found.setsockopt(level, name, tos)
        ancillary = [] if found.getsockopt(level, name) == tos else [(level, name, _INT.pack(tos))]
        dst = int.from_bytes(key[-6:-2] if four else key[-18:-2], "big")
        peer_port = self._setup.peer_port
        assert peer_port is not None
        if len(self._routes) >= CACHE:
            self._routes.clear()
        target = sockets.target(dst, self._version, peer_port, self._device)
        route = self._routes[key] = _Route(found, target, dst, ancillary)
        return route

    def _lost(self, error: OSError, route: _Route, parts: list[bytes], more: Sequence[Any]) -> bool:
        """Note why packets were not sent, and return whether they count as taken. Errors of earlier packets that wait
        at the socket are counted, and the packets are sent once more."""
        found = route.socket
        if error.errno in sockets.ROOM:
            self._blocked = found.fileno() if error.errno == errno.EAGAIN else None
            return False
        queued = sockets.queued_errors(found)
        size = max(map(len, parts)) + self._start - ETHERNET_SIZE
        self.counters.lost_by(error, queued)
        for one in queued:
            if one.number == errno.EMSGSIZE and one.info < size:
                raise too_long(size, route.dst, one.info)
        if error.errno == errno.EMSGSIZE:
            raise too_long(size, route.dst, None)
        if not queued:
            return True
        try:
            found.sendmsg(parts, (*route.ancillary, *more), 0, route.at)
        except OSError as again:
            if again.errno in sockets.ROOM:
                self._blocked = found.fileno() if again.errno == errno.EAGAIN else None
                return False
            self.counters.refused[reason_of(again)] += 1
        return True
