# SPDX-License-Identifier: GPL-2.0-only
"""This module has the path of whole frames over a packet socket (CAP_NET_RAW), and what it shares with the path tap.

Such a path makes its Ethernet headers itself: it finds the MAC addresses of neighbours, and sets and removes VLAN tags.
It carries what the kernel's own stack would not: trimmed packets, native IP, and an address that the kernel does not
have.
"""

import errno
import socket
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from ipaddress import ip_address
from typing import NamedTuple

from uetproto.errors import LocalError, argument
from uetproto.framing.framer import CACHE
from uetproto.framing.sizes import ETHERNET_SIZE, ip_size
from uetproto.live import sockets
from uetproto.live.frames import (
    ICMPV6,
    MACS,
    completed,
    echo_reply,
    icmp_error,
    segments,
    tag,
    untagged,
    with_udp_checksum,
)
from uetproto.live.neighbours import Neighbours
from uetproto.live.path import NotPermittedError, PathCounters, PathSetup, reason_of, too_long
from uetproto.live.sockets import Device, Socket
from uetproto.live.time import MonotonicClock
from uetproto.wire.capture.pcap import RAW
from uetproto.wire.headers.ethernet import EtherType, IpProtocol

# Values of <linux/if_packet.h>, <linux/virtio_net.h>, <asm-generic/socket.h>.
_SOL_PACKET, _ADD_MEMBERSHIP, _STATISTICS, _AUXDATA, _VNET_HDR, _IGNORE_OUTGOING = 263, 1, 6, 8, 15, 23
_MULTICAST, _PROMISCUOUS, _OUTGOING = 0, 1, 4
_STAMP = 35
_CSUM_NOT_READY, _VLAN_VALID, _TPID_VALID = 1 << 3, 1 << 4, 1 << 6
_NEEDS_CSUM, _SUPER_UDP, _ECN = 1, 5, 0x80
_AUX, _VNET, _TIME = struct.Struct("=IIIHHHH"), struct.Struct("=BBHHHH"), struct.Struct("=qq")
_MEMBER = struct.Struct("=iHH8s")

EVERYTHING = 3
"""Protocol of a packet socket that gets all frames (ETH_P_ALL)."""
_LONGEST = 1 << 19
"""Number of bytes of the longest superframe."""


class CapturedFrame(NamedTuple):
    """This tuple is a frame that a packet socket got, as it is on the wire."""

    data: bytes
    outgoing: bool
    """Whether this host sends it."""
    time_ns: int
    """Time of day at which the kernel got it, in nanoseconds; 0 if the socket was not asked for it."""


class PacketSocket:
    """This class sends and receives whole frames at a network interface. It puts back what the kernel took off: VLAN
    tags, checksums that were left to the network card, and the borders of packets that were joined into superframes."""

    def __init__(
        self, name: str, *, buffer: int, both_ways: bool = False, promiscuous: bool = False,
        program: Sequence[tuple[int, int, int, int]] = (), groups: Sequence[bytes] = (),
    ) -> None:  # fmt: skip
        """Open the socket. `buffer` is what the kernel is asked to keep of arrived frames, in bytes.

        `both_ways` asks for frames that this host sends, too, and for times. `program` filters the frames (classic
        BPF), and `groups` are multicast MAC addresses that are received. Raises `NotPermittedError` without
        CAP_NET_RAW, and `LocalError` if there is no such interface.
        """
        sockets.linux()
        self.device = sockets.device(name)
        self._both_ways = both_ways
        self.dropped = 0
        """Number of frames that the kernel had no room for, as of the last call of `count_dropped`."""
        self.tagged = self.completed = self.split = self.joined = self.truncated = 0
        """Numbers of frames: with a VLAN tag that was put back, with a checksum that was left to the network card and
        is filled in, from superframes that were split, superframes of other protocols that are whole, and frames that
        were longer than the room for them."""
        try:
            self._out, self._in = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) for _ in range(2))
        except PermissionError:
            raise NotPermittedError(
                "packet socket", "needs CAP_NET_RAW", "root, or setcap cap_net_raw+ep of the Python program",
                id="not-permitted"
            ) from None  # fmt: skip
        for one in (self._out, self._in):
            one.setblocking(False)
        for option in (_AUXDATA, _VNET_HDR) if both_ways else (_AUXDATA, _VNET_HDR, _IGNORE_OUTGOING):
            self._in.setsockopt(_SOL_PACKET, option, 1)
        if both_ways:
            self._in.setsockopt(socket.SOL_SOCKET, _STAMP, 1)
        self.buffer = sockets.enlarge(self._in, buffer)
        if program:
            sockets.attach_filter(self._in, program)
        self._out.bind((name, 0))
        self._in.bind((name, EVERYTHING))
        for kind, address in [(_MULTICAST, group) for group in groups] + [(_PROMISCUOUS, b"")] * promiscuous:
            member = _MEMBER.pack(self.device.number, kind, len(address), address)
            self._in.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, member)
        self._head, self._room = bytearray(_VNET.size), bytearray(_LONGEST)
        self._buffers = [memoryview(self._head), memoryview(self._room)]
        self.fileno, self.send = self._in.fileno, self._out.send
        self.sender = self._out.fileno()

    def receive(self, limit: int) -> list[CapturedFrame]:
        """Return frames that have arrived: those of at most `limit` calls of the system. Raises `OSError` with the
        number ENETDOWN if the interface went down."""
        found: list[CapturedFrame] = []
        take, loop = self._in.recvmsg_into, self.device.silent
        for _ in range(limit):
            try:
                size, ancillary, flags, source = take(self._buffers, sockets.ANCILLARY)
            except BlockingIOError:
                break
            outgoing = source[2] == _OUTGOING
            if outgoing and (loop or not self._both_ways):
                continue  # on loopback, each frame comes a second time
            if flags & sockets.TRUNCATED:
                self.truncated += 1
                continue
            found += self._frames(size - _VNET.size, ancillary, outgoing)
        return found

    def _frames(self, size: int, ancillary: list[tuple[int, int, bytes]], outgoing: bool) -> list[CapturedFrame]:
        """Return the frames that one packet of the kernel stands for."""
        status = tci = tpid = time_ns = 0
        for level, kind, data in ancillary:
            if level == _SOL_PACKET and kind == _AUXDATA:
                status, _, _, _, _, tci, tpid = _AUX.unpack_from(data)
            elif level == socket.SOL_SOCKET and kind == _STAMP:
                seconds, more = _TIME.unpack_from(data)
                time_ns = seconds * 10**9 + more
        flags, joined, _, piece, start, offset = _VNET.unpack(self._head)
        frame, joined = bytes(self._buffers[1][:size]), joined & ~_ECN
        frames = [frame]
        if joined == _SUPER_UDP:
            frames = segments(frame, start, piece)
            self.split += len(frames)
        elif joined:
            self.joined += 1
        elif flags & _NEEDS_CSUM or status & _CSUM_NOT_READY:
            if flags & _NEEDS_CSUM:
                frames = [completed(frame, start, offset)]
            self.completed += 1
        if status & _VLAN_VALID:
            mark = tag(tci, tpid.to_bytes(2, "big")) if status & _TPID_VALID else tag(tci)
            frames = [one[:MACS] + mark + one[MACS:] for one in frames]
            self.tagged += len(frames)
        return [CapturedFrame(one, outgoing, time_ns) for one in frames]

    def count_dropped(self) -> int:
        """Return the number of frames that the kernel had no room for, since the socket was opened."""
        found = self._in.getsockopt(_SOL_PACKET, _STATISTICS, 8)  # which begins to count anew
        self.dropped += int.from_bytes(found[4:8], sys.byteorder)
        return self.dropped

    def close(self) -> None:
        """Close the socket."""
        self._out.close()
        self._in.close()


class EthernetPath(ABC):
    """This base class of paths sends and receives whole frames, and implements `live.path.Path` but for the way in and
    out (`_get`, `_put`)."""

    name: str
    link = RAW
    cannot: tuple[str, ...]

    def __init__(self, setup: PathSetup, device: Device, mac: bytes, *, owned: bool) -> None:
        """Begin without neighbours. `owned` says that the kernel has the address, and answers for it."""
        version = setup.ip_version
        self.notes: list[str] = []
        self.counters = PathCounters()
        self.checksum = setup.peer_port is not None and (
            setup.interface.checksum == "on" or (setup.interface.checksum == "auto" and version == 6)
        )
        self._setup, self._version, self._device, self._mac = setup, version, device, mac
        self._owned = owned
        self._clock = MonotonicClock()
        self._blocked: int | None = None
        size = 4 if version == 4 else 16
        self._local = setup.local.to_bytes(size, "big")
        self._end = ETHERNET_SIZE + ip_size(version)
        self._dst = slice(self._end - size, self._end)
        self._tag = b"" if setup.interface.vlan is None else tag(setup.interface.vlan)
        self._vlan = setup.interface.vlan or 0
        self._ether = (EtherType.IPV4 if version == 4 else EtherType.IPV6).to_bytes(2, "big")
        self._protocol_at = 23 if version == 4 else 20
        self._protocol = setup.ip_protocol if setup.peer_port is None else IpProtocol.UDP
        port = setup.local_port
        self._port = None if port is None else port.to_bytes(2, "big")
        self._heads: dict[bytes, tuple[bytes, int]] = {}
        """Bytes before the EtherType, and largest IP packet, of destinations whose MAC address is known."""
        self._hops: dict[int, int] = {}
        """Neighbour through which each destination is reached."""
        self._mtus: dict[int, int] = {}
        """Largest IP packets that somebody on the way told of."""
        self._neighbours = Neighbours(
            setup.local, version, mac, answers=not owned, transmit=self._speak, release=self._release,
            lost=self.counters.refused,
        )  # fmt: skip

    @abstractmethod
    def _put(self, frame: bytes) -> None:
        """Send a frame. Raises `OSError` if the kernel refuses it."""

    @abstractmethod
    def _get(self, limit: int) -> list[bytes]:
        """Return at most `limit` frames, or what is in so many superframes. Raises `OSError` if there are no more."""

    @abstractmethod
    def _hop(self, dst: int) -> int:
        """Return the neighbour through which an address is reached. Raises `LocalError` without a way."""

    @abstractmethod
    def fileno(self) -> int: ...

    @abstractmethod
    def close(self) -> None: ...

    @property
    def blocked(self) -> int | None:
        return self._blocked

    def entropy(self, value: int) -> int:
        return value

    def mtu(self, dst: int) -> int:
        if dst not in self._hops:
            if len(self._hops) >= CACHE:
                self._hops.clear()
            hop = self._hops[dst] = self._hop(dst)
            if not self._device.silent:
                self._neighbours.mac(hop, self._clock.now)  # so that the first frames wait for a shorter time
        return min(self._mtus.get(dst, self._device.mtu), self._device.mtu)

    # Sending

    def send(self, frames: Sequence[bytes]) -> int:
        self._blocked = None
        heads, where = self._heads, self._dst
        taken = 0
        for frame in frames:
            head = heads.get(frame[where]) or self._head(frame)
            if head is not None:
                start, most = head
                if len(frame) - ETHERNET_SIZE > most:
                    raise too_long(len(frame) - ETHERNET_SIZE, int.from_bytes(frame[where], "big"), most)
                if self.checksum:
                    frame = with_udp_checksum(frame, self._version)
                if not self._transmit(start + frame[MACS:]):
                    break
            taken += 1
        self.counters.sent += taken
        return taken

    def _head(self, frame: bytes) -> tuple[bytes, int] | None:
        """Return the head of the frames to a destination; without one the frame is kept, and None returned."""
        dst = int.from_bytes(frame[self._dst], "big")
        most = self.mtu(dst)
        hop = self._hops[dst]
        mac: bytes | None = bytes(6)
        if frame[0] & 1:
            mac = frame[:6]
        elif not self._device.silent:
            mac = self._neighbours.mac(hop, self._clock.now)
        if mac is None:
            self._neighbours.keep(hop, frame)
            return None
        if len(self._heads) >= CACHE:
            self._heads.clear()
        head = self._heads[frame[self._dst]] = mac + self._mac + self._tag, most
        return head

    def _transmit(self, frame: bytes) -> bool:
        """Send a frame, and return False if there is no room for it now. Raises `LocalError` if the interface is
        gone."""
        try:
            self._put(frame)
        except OSError as error:
            if error.errno in sockets.ROOM:
                self._blocked = self._writable() if error.errno == errno.EAGAIN else None
                return False
            if error.errno == errno.EMSGSIZE:
                raise too_long(len(frame) - ETHERNET_SIZE, int.from_bytes(frame[self._dst], "big"), None) from None
            self._failed(error)
        return True

    @abstractmethod
    def _writable(self) -> int:
        """Return the file descriptor that is writable when there is room."""

    def _speak(self, frame: bytes) -> None:
        """Send a frame of ARP or neighbour discovery, if there is room."""
        self._transmit(frame[:MACS] + self._tag + frame[MACS:])

    def _release(self, hop: int, frames: list[bytes]) -> None:
        """Send the frames that waited for a neighbour, whose MAC address is new or lost."""
        self._heads.clear()
        taken = self.send(frames)
        self.counters.sent -= taken  # they were counted when they came
        if taken < len(frames):
            self.counters.refused["no room for frames that waited for a MAC address"] += len(frames) - taken

    def _failed(self, error: OSError) -> None:
        """Count an error of the kernel. Raises `LocalError` if the interface is gone."""
        try:
            if socket.if_nametoindex(self._device.name) != self._device.number:
                raise OSError
        except OSError:
            raise LocalError(
                "interface", f"{self._device.name} is gone", "an interface that stays", id="interface-down"
            ) from None
        self.counters.refused[f"{self._device.name}: {reason_of(error)}"] += 1

    # Receiving

    def receive(self, limit: int) -> list[bytes]:
        found: list[bytes] = []
        now = self._clock.now
        self._neighbours.tick(now)
        try:
            frames = self._get(limit)
        except OSError as error:
            self._failed(error)
            return found
        vlan = self._vlan
        for tagged in frames:
            frame, number = untagged(tagged)
            if number != vlan:
                continue
            if self._is_ours(frame):
                found.append(frame)
            elif not self._neighbours.take(frame, now):
                self._take_icmp(frame)
        self.counters.received += len(found)
        return found

    def _is_ours(self, frame: bytes) -> bool:
        """Return whether a frame is of our protocol, and for our address and port."""
        if frame[MACS:ETHERNET_SIZE] != self._ether or frame[self._dst] != self._local:
            return False
        if len(frame) <= self._end or frame[self._protocol_at] != self._protocol:
            return False
        if self._version == 4 and frame[20] & 0x3F | frame[21]:
            self.counters.refused["fragments are not put together"] += 1
            return False
        return self._port is None or frame[self._end + 2 : self._end + 4] == self._port

    def _take_icmp(self, frame: bytes) -> None:
        """Answer ping at an address of our own, and note what an ICMP error says about a packet of ours."""
        if frame[MACS:ETHERNET_SIZE] != self._ether or frame[self._dst] != self._local:
            return
        answer = None if self._owned else echo_reply(frame, self._version)
        if answer is not None:
            self._speak(answer)
            return
        error = icmp_error(frame, self._version, self._local, self._protocol)
        if error is None or error.dst not in self._hops:
            return
        if error.mtu is not None:
            self._mtus[error.dst] = min(error.mtu, self.mtu(error.dst))
            self._heads.clear()
        words = error.told(self._version, self._hops)
        if error.no_owner and error.source == error.dst:
            dst = sockets.ip_text(error.dst, self._version)
            words += f" (the kernel of {dst} owns the address, and no program there has the port; path tap there has an"
            words += " address of its own)"
        self.counters.refused[words] += 1


class PacketPath(EthernetPath):
    """This class is the path over a packet socket.

    If the kernel has the local address, its stack gets each packet, too, and would answer it by an ICMP error. So a
    socket holds the port, or the protocol, and takes nothing.
    """

    name = "packet"
    cannot = ("fragments",)

    def __init__(self, setup: PathSetup) -> None:
        """Open the sockets. Raises `NotPermittedError` without CAP_NET_RAW, and `LocalError` if interface or port are
        not to be had."""
        interface = setup.interface
        owned = sockets.is_of_this_host(setup.local, setup.ip_version, interface.device)
        name = interface.device or sockets.interface_of(setup.local, setup.ip_version)
        if name is None:
            raise NotPermittedError(
                "path", "path packet needs the name of a network interface", argument("interface"),
                id="interface-needed"
            )  # fmt: skip
        if not owned and interface.path != self.name:
            raise NotPermittedError(
                "path", f"{interface.local} is no address of this host", "path packet, by its name",
                id="wrong-local-address"
            )  # fmt: skip
        owned = owned and interface.vlan is None  # nobody asks the kernel in a VLAN that it does not have
        groups = [] if owned or setup.ip_version == 4 else [b"\x33\x33\xff" + setup.local.to_bytes(16, "big")[-3:]]
        self._socket = PacketSocket(
            name, buffer=interface.receive_buffer, program=_program(setup), groups=groups
        )  # fmt: skip
        self._holder: Socket | None = None
        try:
            device = self._socket.device
            if not device.up:
                raise LocalError("interface", f"{name} is down", f"ip link set {name} up", id="interface-down")
            super().__init__(setup, device, device.mac, owned=owned)
            self.buffer = self._socket.buffer
            if owned:
                self._hold()
            else:
                where = name if interface.vlan is None else f"{name}, VLAN {interface.vlan}"
                self.notes.append(f"{interface.local} is an address of our own on {where}")
                self._neighbours.announce()
        except BaseException:
            self._socket.close()
            raise

    def _hold(self) -> None:
        """Take the port, or the protocol, from the kernel's stack."""
        setup, version = self._setup, self._version
        what = f"IP protocol {self._protocol}" if setup.local_port is None else f"UDP port {setup.local_port}"
        if setup.local_port is None:
            self._holder = sockets.open_socket(version, socket.SOCK_RAW, setup.ip_protocol)
        else:
            self._holder = sockets.open_socket(version, socket.SOCK_DGRAM)
        sockets.attach_filter(self._holder, sockets.NOTHING)
        sockets.bind(self._holder, setup.local, version, setup.local_port or 0, setup.interface.device)
        self.notes.append(
            f"the kernel owns {setup.interface.local} and would answer ICMP unreachable, so a socket holds {what};"
            " path tap has an address of its own"
        )

    def _put(self, frame: bytes) -> None:
        self._socket.send(frame)

    def _get(self, limit: int) -> list[bytes]:
        return [one.data for one in self._socket.receive(limit)]

    def _hop(self, dst: int) -> int:
        if ip_address(dst.to_bytes(len(self._local), "big")).is_multicast:
            return dst
        try:
            return sockets.next_hop(self._setup.local, dst, self._version, self._device)
        except LocalError:
            if self._holder is not None:
                raise
            return dst  # an address of our own has no routes

    def fileno(self) -> int:
        return self._socket.fileno()

    def _writable(self) -> int:
        return self._socket.sender

    def close(self) -> None:
        self._socket.close()
        if self._holder is not None:
            self._holder.close()


_LOAD1, _LOAD2, _LOAD4, _IF, _RETURN = 0x30, 0x28, 0x20, 0x15, 0x06  # codes of classic BPF
_ACCEPT, _REJECT = (_RETURN, 0, 0, 0x40000), (_RETURN, 0, 0, 0)
_ARP = 0x0806


def _program(setup: PathSetup) -> list[tuple[int, int, int, int]]:
    """Return the filter for frames that concern an address: IP packets to it, ARP, and ICMPv6."""
    four = setup.ip_version == 4
    local = setup.local.to_bytes(4 if four else 16, "big")
    words = [int.from_bytes(local[at : at + 4], "big") for at in range(0, len(local), 4)]
    if four:
        return [
            (_LOAD2, 0, 0, MACS), (_IF, 3, 0, _ARP), (_IF, 0, 3, EtherType.IPV4),
            (_LOAD4, 0, 0, 30), (_IF, 0, 1, words[0]), _ACCEPT, _REJECT,
        ]  # fmt: skip
    rows = [(_LOAD2, 0, 0, MACS), (_IF, 0, 11, int(EtherType.IPV6))]
    for number, word in enumerate(words):
        rows += [(_LOAD4, 0, 0, 38 + 4 * number), (_IF, 0, 6 - 2 * number, word)]
    rows[-1] = (_IF, 2, 0, words[-1])
    return [*rows, (_LOAD1, 0, 0, 20), (_IF, 0, 1, ICMPV6), _ACCEPT, _REJECT]
