# SPDX-License-Identifier: GPL-2.0-only
"""This module has what the paths share: options of Linux sockets that Python does not name, and calls around them."""

import ctypes
import errno
import fcntl
import os
import resource
import select
import socket
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple

from uetproto.errors import LocalError

# Values of <linux/in.h>, <linux/in6.h>, <linux/udp.h>, <asm-generic/socket.h>.
IP_RECVERR, IPV6_RECVERR = 11, 25
IP_MTU_DISCOVER, IPV6_MTU_DISCOVER, PMTUDISC_DO = 10, 23, 2
IP_MTU, IPV6_MTU = 14, 24
IP_RECVTOS, IPV6_RECVTCLASS = 13, 66
SO_NO_CHECK, UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX = 11, 101, 102
UDP_SEGMENT = 103
SO_RCVBUFFORCE = 33
MSG_ERRQUEUE = 0x2000
TRUNCATED = int(socket.MSG_TRUNC)  # an operation on members of the enumeration takes microseconds
SIOCGIFCONF, SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCGIFMTU, SIOCGIFHWADDR = 0x8912, 0x8913, 0x8914, 0x8921, 0x8927
IFF_UP, IFF_LOOPBACK, IFF_NOARP = 0x1, 0x8, 0x80
SO_ATTACH_FILTER = 26

ANCILLARY = 128
"""Number of bytes of ancillary data that are received with a packet."""
ROOM = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM)
"""Errors that say that the kernel has no room for a packet now."""
KEPT = 64
"""File descriptors that sockets for entropy values leave to the rest of the process."""
_ROW_SIZE = 24 + 2 * struct.calcsize("P")
"""Size of `struct ifreq`: a name of 16 bytes, and room for what is said of it."""
_EXTENDED = struct.Struct("=IBBBBII")
_ICMP_ORIGINS = 2, 3
"""Origins of errors (SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6), by IP version."""
_ETHERNET_KINDS = (1, 772)
"""Hardware types of Ethernet and of loopback (<linux/if_arp.h>)."""

Socket = socket.socket
Address = tuple[Any, ...]


class QueuedError(NamedTuple):
    """This tuple is an entry of the error queue of a socket (struct sock_extended_err)."""

    number: int
    """Error number."""
    info: int
    """The MTU, for EMSGSIZE."""
    words: str
    """The words of the system for the number, and who told it if an ICMP error did."""


def linux() -> None:
    """Raise `LocalError` unless this is Linux, whose socket options the paths need."""
    if sys.platform != "linux":
        raise LocalError(
            "path", f"live links need the socket options of Linux, and this is {sys.platform}", id="not-linux"
        )


def open_socket(version: int, kind: int, protocol: int = 0) -> Socket:
    """Return a new socket that never waits, and whose packets are never fragmented.

    Sizes beyond the path MTU and ICMP errors go to its error queue.
    """
    linux()
    found = Socket(socket.AF_INET if version == 4 else socket.AF_INET6, kind, protocol)
    found.setblocking(False)
    if version == 4:
        found.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_DO)
        found.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        found.setsockopt(socket.IPPROTO_IP, IP_RECVTOS, 1)
    else:
        found.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, PMTUDISC_DO)
        found.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
        found.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVTCLASS, 1)
    return found


def enlarge(found: Socket, size: int) -> int:
    """Ask for a receive buffer of `size` bytes, and return how many bytes the kernel keeps."""
    try:
        found.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size // 2)  # the kernel doubles the number
    except OSError:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size // 2)
    return found.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def bind(found: Socket, address: int, version: int, port: int, device: str | None, name: str = "local_port") -> None:
    """Bind a socket to an address and to no other. Raises `LocalError` that says what stands against it."""
    try:
        at = target(address, version, port, device)
    except LocalError:
        found.close()
        raise
    try:
        found.bind(at)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            id, parts = (
                "port-in-use",
                (name, f"port {port} of {at[0]} is in use by another socket", "a port that is free"),
            )
        elif error.errno == errno.EADDRNOTAVAIL:
            told = f"{at[0]} is no address of this host"
            id, parts = "wrong-local-address", ("local", told, "an address that `ip address` shows")
        else:
            told = f"port {port} of {at[0]}: {os.strerror(error.errno or 0)}"
            id, parts = "not-permitted", (name, told, "a port that this user may have")
        raise LocalError(*parts, id=id) from None


def ip_text(address: int, version: int) -> str:
    """Return an address as text."""
    return str(ip_address(address.to_bytes(4 if version == 4 else 16, "big")))


def number_of(host: str) -> int:
    """Return the address in a socket address as a number."""
    return int(ip_address(host.partition("%")[0]))


def target(address: int, version: int, port: int, device: str | None) -> Address:
    """Return the socket address of an address and a port."""
    if version == 4:
        return str(ip_address(address)), port
    found = ip_address(address.to_bytes(16, "big"))
    scope = 0
    if found.is_link_local:
        if device is None:
            raise LocalError(
                "device", f"{found} is a link-local address", "the name of the network interface", id="interface-needed"
            )
        try:
            scope = socket.if_nametoindex(device)
        except OSError:
            raise LocalError("device", f"there is no network interface {device!r}", id="interface-not-found") from None
    return str(found), port, 0, scope


def mtu_towards(local: int, address: int, version: int, device: str | None) -> int:
    """Return the path MTU from a local address to another, as the kernel knows it. Raises `LocalError` without a
    route."""
    with Socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as found:
        at = target(address, version, 9, device)
        try:
            found.bind(target(local, version, 0, device))
            found.connect(at)
            if version == 4:
                return found.getsockopt(socket.IPPROTO_IP, IP_MTU)
            return found.getsockopt(socket.IPPROTO_IPV6, IPV6_MTU)
        except OSError as error:
            told = f"there is no way from {ip_text(local, version)} to {at[0]}: {os.strerror(error.errno or 0)}"
            raise LocalError("peer", told, "an address with a route from there", id="no-route") from None


def queued_errors(found: Socket) -> list[QueuedError]:
    """Return and remove the entries of the error queue of a socket."""
    errors: list[QueuedError] = []
    while True:
        try:
            _, ancillary, _, to = found.recvmsg(0, 512, MSG_ERRQUEUE)
        except OSError:
            return errors
        for level, kind, data in ancillary:
            if (level, kind) in ((socket.IPPROTO_IP, IP_RECVERR), (socket.IPPROTO_IPV6, IPV6_RECVERR)):
                number, origin, _, _, _, info, _ = _EXTENDED.unpack_from(data)
                here = found.getsockname()[0]
                errors.append(QueuedError(number, info, os.strerror(number) + _who(origin, data, here, to)))


def _who(origin: int, data: bytes, here: str, to: Any) -> str:
    """Return who told an error: nobody if this host did, or the destination of the packet, or a router, whose address
    may be anything."""
    if origin not in _ICMP_ORIGINS:
        return ""
    at = _EXTENDED.size + (4 if origin == _ICMP_ORIGINS[0] else 8)
    teller = data[at : at + (4 if origin == _ICMP_ORIGINS[0] else 16)]
    source = int.from_bytes(teller, "big")
    if source == number_of(here):
        return ""
    is_peer = bool(to) and source == number_of(to[0])
    return f" (ICMP from {to[0] if is_peer else 'a router'})"


class ErrorWatch:
    """This class is one file that is readable when a receiver has packets, or when a socket has an error: one that
    sends nothing more would not tell it otherwise."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._sockets: dict[int, Socket] = {}
        self.fileno, self.close = self._poll.fileno, self._poll.close

    def add(self, found: Socket, *, receives: bool = False) -> None:
        """Watch the errors of a socket, and its packets if it receives."""
        self._poll.register(found, select.EPOLLIN if receives else 0)
        self._sockets[found.fileno()] = found

    def take(self, told: Callable[[Sequence[QueuedError]], None]) -> None:
        """Call `told` with the errors that wait at each socket."""
        for file, what in self._poll.poll(0):
            if what & select.EPOLLERR:
                found = self._sockets[file]
                told(queued_errors(found))
                found.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # else it is told again by the next call


def spare_descriptors() -> tuple[int, int]:
    """Return how many more files this process may open, and its limit (`ulimit -n`)."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(limit - len(os.listdir("/proc/self/fd")) - KEPT, 1), limit


def source_towards(address: int, version: int, device: str | None) -> str:
    """Return the local address from which packets to an address leave. Raises `LocalError` without a route."""
    with Socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as found:
        at = target(address, version, 9, device)
        try:
            found.connect(at)
        except OSError as error:
            told = f"there is no way to {at[0]}: {os.strerror(error.errno or 0)}"
            raise LocalError("peer", told, "an address with a route", id="no-route") from None
        local: str = found.getsockname()[0].partition("%")[0]
        return local


def mtu_of_interface(address: int, version: int) -> int:
    """Return the MTU of the network interface that has an address, or the largest IP packet if none is found, as for an
    address of loopback that nobody has configured."""
    name = interface_of(address, version)
    return 65535 if name is None else device(name).mtu


def interface_of(address: int, version: int) -> str | None:
    """Return the name of the network interface whose address this is, or None."""
    if version == 6:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            rows = [line.split() for line in file]
        return next((row[5] for row in rows if int(row[0], 16) == address), None)
    table = _ipv4_addresses()
    for at in range(0, len(table), _ROW_SIZE):
        if int.from_bytes(table[at + 20 : at + 24], "big") == address:
            return table[at : at + 16].split(b"\0")[0].decode().partition(":")[0]  # without the label of an alias
    return None


def _ipv4_addresses() -> bytes:
    """Return all IPv4 addresses of this host, secondary ones too, as rows of `struct ifreq`."""
    room = array("B", bytes(64 * _ROW_SIZE))
    with Socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        while True:
            begins, size = room.buffer_info()
            answer = fcntl.ioctl(found, SIOCGIFCONF, struct.pack("iP", size, begins))
            used: int = struct.unpack("iP", answer)[0]
            if used + _ROW_SIZE <= size:  # else the kernel has left addresses out
                return room[:used].tobytes()
            room = array("B", bytes(2 * size))


def is_of_this_host(address: int, version: int, interface: str | None) -> bool:
    """Return whether the kernel has an address, and answers for it."""
    with Socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as found:
        try:
            found.bind(target(address, version, 0, interface))
        except OSError:
            return False
    return True


def is_port_taken(address: int, version: int, port: int) -> bool:
    """Return whether a program of this host has a UDP port of an address."""
    with Socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as found:
        try:
            found.bind(target(address, version, port, None))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


# Network interfaces ---------------------------------------------------------------------------------------------------


class Device(NamedTuple):
    """This tuple is what the kernel says of a network interface."""

    name: str
    number: int
    mac: bytes
    mtu: int
    up: bool
    silent: bool
    """Whether no neighbour has a MAC address there, as on loopback."""


def device(name: str) -> Device:
    """Return what the kernel says of a network interface. Raises `LocalError` if there is none of this name, or if it
    has no Ethernet headers."""
    with Socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            index = socket.if_nametoindex(name)
            hardware, mtu, flags = (_ioctl(found, ask, name) for ask in (SIOCGIFHWADDR, SIOCGIFMTU, SIOCGIFFLAGS))
        except (OSError, ValueError):
            names = ", ".join(other for _, other in socket.if_nameindex())
            raise LocalError(
                "interface", f"there is no network interface {name!r}", names, id="interface-not-found"
            ) from None
    kind, bits = (int.from_bytes(one[16:18], sys.byteorder) for one in (hardware, flags))
    if kind not in _ETHERNET_KINDS:
        raise LocalError(
            "interface", f"{name} has no Ethernet headers (hardware type {kind})", "an Ethernet interface",
            id="interface-not-found"
        )  # fmt: skip
    size = int.from_bytes(mtu[16:20], sys.byteorder)
    return Device(name, index, hardware[18:24], min(size, 65535), bool(bits & IFF_UP),
                  bool(bits & (IFF_LOOPBACK | IFF_NOARP)))  # fmt: skip


def set_up(name: str) -> None:
    """Switch a network interface on. Raises `OSError` without CAP_NET_ADMIN."""
    with Socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        flags = int.from_bytes(_ioctl(found, SIOCGIFFLAGS, name)[16:18], sys.byteorder)
        fcntl.ioctl(found, SIOCSIFFLAGS, struct.pack("16sH22x", name.encode(), flags | IFF_UP))


def _ioctl(found: Socket, ask: int, name: str) -> bytes:
    return fcntl.ioctl(found, ask, struct.pack("256s", name.encode()[:15]))


def attach_filter(found: Socket, program: Sequence[tuple[int, int, int, int]]) -> None:
    """Let the kernel keep only packets that a program of classic BPF accepts: rows of code, jumps and constant
    (<linux/filter.h>)."""
    rows = b"".join(struct.pack("=HBBI", *row) for row in program)
    room = ctypes.create_string_buffer(rows, len(rows))
    found.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(room)))


NOTHING = ((0x06, 0, 0, 0),)
"""Program of classic BPF that accepts no packet."""


# Routes ---------------------------------------------------------------------------------------------------------------

# Values of <linux/netlink.h> and <linux/rtnetlink.h>.
_NETLINK, _ROUTE, _ERROR, _NEW_ROUTE, _GET_ROUTE, _PLEASE = 16, 0, 2, 24, 26, 1
_TO, _THROUGH, _GATEWAY, _VIA = 1, 4, 5, 18
_LOCAL_ROUTE, _UNICAST = 2, 1
_HEAD, _RTMSG, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=8BI"), struct.Struct("=HH")


def next_hop(local: int, dst: int, version: int, through: Device) -> int:
    """Return the neighbour to which packets to an address leave through an interface: the address itself, or a router
    that the kernel knows. Raises `LocalError` without a route."""
    size = 4 if version == 4 else 16
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    ask = _RTMSG.pack(family, 8 * size, 0, 0, 0, 0, 0, 0, 0) + _ATTRIBUTE.pack(4 + size, _TO)
    ask += dst.to_bytes(size, "big") + _ATTRIBUTE.pack(8, _THROUGH) + through.number.to_bytes(4, sys.byteorder)
    with Socket(_NETLINK, socket.SOCK_RAW, _ROUTE) as found:
        found.send(_HEAD.pack(_HEAD.size + len(ask), _GET_ROUTE, _PLEASE, 1, 0) + ask)
        answer = found.recv(1 << 16)
    kind = _HEAD.unpack_from(answer)[1]
    reason = ""
    if kind == _ERROR:
        reason = os.strerror(-int.from_bytes(answer[16:20], sys.byteorder, signed=True))
    elif answer[_HEAD.size + 7] == _LOCAL_ROUTE and not through.silent:
        reason = "it is an address of this host"
    elif answer[_HEAD.size + 7] not in (_UNICAST, _LOCAL_ROUTE):
        reason = "the route forbids it"
    if reason:
        told = f"there is no way from {ip_text(local, version)} to {ip_text(dst, version)} through {through.name}"
        raise LocalError("peer", f"{told}: {reason}", "an address with a route from there", id="no-route")
    at = _HEAD.size + _RTMSG.size
    while at + 4 <= len(answer):
        length, name = _ATTRIBUTE.unpack_from(answer, at)
        if name == _GATEWAY:
            return int.from_bytes(answer[at + 4 : at + length], "big")
        if name == _VIA:
            told = f"the router behind {through.name} has an address of the other IP version"
            raise LocalError("peer", told, "path raw or udp", id="no-route")
        at += max(length + 3 & ~3, 4)
    return dst
