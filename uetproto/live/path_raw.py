# SPDX-License-Identifier: GPL-2.0-only
"""This module has the path over raw sockets (CAP_NET_RAW): the IP header is ours, so is the source port, and native IP
packets pass.

The kernel fills in the checksum of the IPv4 header, and leaves identification 0 as it is where DF is set.
"""

import errno
import socket
import sys
from collections import Counter
from collections.abc import Callable, Container, Sequence
from contextlib import ExitStack
from typing import Any

from uetproto.framing.framer import CACHE, LowerHeaders, mac_of
from uetproto.framing.sizes import ETHERNET_SIZE, ip_size
from uetproto.live import sockets
from uetproto.live.frames import ICMP, ICMP_ERRORS, ICMPV6, icmp_error, with_udp_checksum
from uetproto.live.path import NotPermittedError, PathCounters, PathSetup, reason_of, too_long
from uetproto.live.path_udp import UdpReceiver
from uetproto.live.sockets import ErrorWatch, Socket
from uetproto.wire.capture.pcap import RAW
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.ethernet import ETHERNET, UDP, EtherType, IpProtocol

_LONGEST = 65535
_SOL_RAW, _ICMP_FILTER = 255, 1  # of <linux/icmp.h>; the filter of ICMPv6 has the same number
_ETHERNET = codec_of(ETHERNET)


def raw_socket(version: int, protocol: int) -> Socket:
    """Return a raw socket. Raises `NotPermittedError` without CAP_NET_RAW."""
    try:
        return sockets.open_socket(version, socket.SOCK_RAW, protocol)
    except PermissionError:
        raise NotPermittedError(
            "path", "raw sockets need CAP_NET_RAW", "root, or setcap cap_net_raw+ep of the Python program",
            id="not-permitted"
        ) from None  # fmt: skip


class NativeReceiver:
    """This class receives native IP packets at an address, as frames."""

    def __init__(self, setup: PathSetup, counters: PathCounters, when_idle: Callable[[], None]) -> None:
        """Open the socket. `when_idle` is called when nothing has arrived. Raises `NotPermittedError` without
        CAP_NET_RAW, `LocalError` for an address that is not this host's."""
        self._setup, self._counters, version = setup, counters, setup.ip_version
        self._when_idle = when_idle
        self.socket = raw_socket(version, setup.ip_protocol)
        sockets.bind(self.socket, setup.local, version, 0, setup.interface.device)
        self.buffer = sockets.enlarge(self.socket, setup.interface.receive_buffer)
        kind = EtherType.IPV4 if version == 4 else EtherType.IPV6
        self._ethernet = _ETHERNET.encode({"dst": mac_of(setup.local), "src": 0, "type": kind})
        self._heads: dict[tuple[Any, ...], bytes] = {}
        self._room = memoryview(bytearray(_LONGEST))

    def receive(self, limit: int) -> list[bytes]:
        """Return the frames that have arrived, at most `limit`."""
        found: list[bytes] = []
        room, four = self._room, self._setup.ip_version == 4
        while len(found) < limit:
            try:
                size, ancillary, flags, source = self.socket.recvmsg_into([room], sockets.ANCILLARY)
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
            if four:  # with its IP header
                head = self._ethernet
            else:  # the kernel keeps the IPv6 header
                key = (source[0], size, ancillary[0][2] if ancillary else b"\0")
                head = self._heads.get(key) or self._head(key)
            found.append(b"".join((head, room[:size])))
        self._counters.received += len(found)
        return found

    def _head(self, key: tuple[Any, ...]) -> bytes:
        """Return the Ethernet and IPv6 headers of a packet."""
        if len(self._heads) >= CACHE:
            self._heads.clear()
        host, size, tos = key[0], key[1], int.from_bytes(key[2], sys.byteorder)
        lower = LowerHeaders(sockets.number_of(host), self._setup.local, 0, tos >> 2, tos & 3)
        bare = len(self._setup.lower_headers(lower, 0))
        ip_end = ETHERNET_SIZE + ip_size(6)
        head = self._heads[key] = self._setup.lower_headers(lower, size - (bare - ip_end))[:ip_end]
        return head


class IcmpListener:
    """This class reads ICMP errors about UDP packets to some peers: a raw socket is not told of them."""

    def __init__(self, setup: PathSetup, peers: Container[int]) -> None:
        """Open the socket. Raises `NotPermittedError` without CAP_NET_RAW."""
        self._setup, self._version, self._peers = setup, setup.ip_version, peers
        self._local = setup.local.to_bytes(4 if self._version == 4 else 16, "big")
        four = self._version == 4
        self.socket = raw_socket(self._version, ICMP if four else ICMPV6)
        blocked = bytearray(b"\xff" * (4 if four else 32))  # a bit for each type
        for kind in ICMP_ERRORS[self._version]:
            blocked[kind // 8] &= ~(1 << kind % 8)
        self.socket.setsockopt(*((_SOL_RAW, _ICMP_FILTER) if four else (ICMPV6, _ICMP_FILTER)), bytes(blocked))
        sockets.bind(self.socket, setup.local, self._version, 0, setup.interface.device)
        self._prefix = bytes(ETHERNET_SIZE)

    def take(self, refused: Counter[str]) -> None:
        """Count the errors that were reported."""
        while True:
            try:
                packet, source = self.socket.recvfrom(_LONGEST)
            except OSError:
                return
            if self._version == 6:  # the kernel keeps the header
                teller = sockets.number_of(source[0]).to_bytes(16, "big")
                packet = bytes((0x60, 0, 0, 0, 0, 0, ICMPV6, 0xFF)) + teller + self._local + packet
            error = icmp_error(self._prefix + packet, self._version, self._local, IpProtocol.UDP)
            if error is not None and error.dst in self._peers:
                refused[error.told(self._version, self._peers)] += 1


class RawPath:
    """This class implements `live.path.Path` with one raw socket to send, and one that receives UDP or native IP."""

    name = "raw"
    link = RAW
    cannot = ("trimmed packets of a length of their own over UDP", "fragments")

    def __init__(self, setup: PathSetup) -> None:
        """Open the sockets. Raises `NotPermittedError` without CAP_NET_RAW, and `LocalError` if address or port is not
        to be had."""
        self.notes: list[str] = []
        self.counters = PathCounters()
        self._setup, self._version = setup, setup.ip_version
        self.checksum = setup.peer_port is not None and (
            setup.interface.checksum == "on" or (setup.interface.checksum == "auto" and self._version == 6)
        )
        self._peers: set[int] = set()
        with ExitStack() as opened:
            self._socket = opened.enter_context(raw_socket(self._version, socket.IPPROTO_RAW))
            kind = NativeReceiver if setup.peer_port is None else UdpReceiver
            self._receiver = kind(setup, self.counters, self._take_errors)
            opened.enter_context(self._receiver.socket)
            self._watch = ErrorWatch()
            opened.callback(self._watch.close)
            self._watch.add(self._receiver.socket, receives=True)
            self._icmp: IcmpListener | None = None
            if setup.peer_port is not None:  # the socket that receives native packets is told itself
                self._icmp = IcmpListener(setup, self._peers)
                opened.enter_context(self._icmp.socket)
                self._watch.add(self._icmp.socket, receives=True)
            self.close = opened.pop_all().close
        self.receive, self.fileno = self._receiver.receive, self._watch.fileno
        self.buffer = self._receiver.buffer
        self._targets: dict[bytes, sockets.Address] = {}
        self._blocked: int | None = None
        self._end = ETHERNET_SIZE + ip_size(self._version)

    @property
    def blocked(self) -> int | None:
        return self._blocked

    def entropy(self, value: int) -> int:
        return value

    def mtu(self, dst: int) -> int:
        return sockets.mtu_towards(self._setup.local, dst, self._version, self._setup.interface.device)

    def _take_errors(self) -> None:
        """Count errors which tell that earlier packets were lost on their way."""
        self._watch.take(self.counters.lost)
        if self._icmp is not None:
            self._icmp.take(self.counters.refused)

    def send(self, frames: Sequence[bytes]) -> int:
        self._blocked = None
        end, send, targets = self._end, self._socket.sendto, self._targets
        start = end - (4 if self._version == 4 else 16)
        taken = 0
        for frame in frames:
            key = frame[start:end]
            at = targets.get(key) or self._target(key)
            packet = (with_udp_checksum(frame, self._version) if self.checksum else frame)[ETHERNET_SIZE:]
            try:
                send(packet, at)
            except OSError as error:
                if error.errno in sockets.ROOM:
                    self._blocked = self._socket.fileno() if error.errno == errno.EAGAIN else None
                    break
                if error.errno == errno.EMSGSIZE:
                    raise too_long(len(frame) - ETHERNET_SIZE, int.from_bytes(key, "big"), None) from None
                waiting = sockets.queued_errors(self._socket)
                self.counters.lost_by(error, waiting)
                if waiting and not self._again(packet, at):
                    break
            taken += 1
        self.counters.sent += taken
        return taken

    def _again(self, packet: bytes, at: sockets.Address) -> bool:
        """Send a packet once more, after an error of an earlier one; return False if there is no room for it."""
        try:
            self._socket.sendto(packet, at)
        except OSError as error:
            if error.errno in sockets.ROOM:
                return False
            self.counters.refused[reason_of(error)] += 1
        return True

    def _target(self, key: bytes) -> sockets.Address:
        if len(self._targets) >= CACHE:
            self._targets.clear()
            self._peers.clear()
        dst = int.from_bytes(key, "big")
        self._peers.add(dst)
        found = self._targets[key] = sockets.target(dst, self._version, 0, self._setup.interface.device)
        return found


class NativeListener:
    """This class counts native IP packets that arrive at an address, to find out whether they pass."""

    def __init__(self, local: int, version: int, protocol: int) -> None:
        """Open the socket. Raises `NotPermittedError` without CAP_NET_RAW."""
        self._socket = raw_socket(version, protocol)
        sockets.bind(self._socket, local, version, 0, None)

    def count(self, source: int) -> int:
        """Return the number of packets from an address that have arrived since the last call."""
        found = 0
        while True:
            try:
                _, at = self._socket.recvfrom(_LONGEST)
            except OSError:
                return found
            found += sockets.number_of(at[0]) == source

    def close(self) -> None:
        self._socket.close()


def send_native(local: int, dst: int, version: int, protocol: int, device: str | None, times: int = 3) -> None:
    """Send empty packets of an IP protocol. Raises `NotPermittedError` without CAP_NET_RAW, `LocalError` if the kernel
    refuses them."""
    found = raw_socket(version, protocol)
    try:
        sockets.bind(found, local, version, 0, device)
        for _ in range(times):
            found.sendto(bytes(_MINIMUM), sockets.target(dst, version, 0, device))
    except OSError as error:
        raise NotPermittedError("path", f"native IP packets: {error.strerror}", id="not-permitted") from None
    finally:
        found.close()


_MINIMUM = UDP.size
"""Number of bytes of a packet that only asks whether it passes: too few for any header of UET."""
