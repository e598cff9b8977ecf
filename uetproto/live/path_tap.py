# SPDX-License-Identifier: GPL-2.0-only
"""This module has the path over a TAP device: an address of our own, for which no kernel answers.

The kernel sees a neighbour at the other end of a cable. The device needs an address of the same network, or a bridge
that it belongs to, so that packets reach it.
"""

import errno
import fcntl
import os
import socket
import struct

from uetproto.errors import LocalError, argument
from uetproto.framing.framer import mac_of
from uetproto.live import sockets
from uetproto.live.interface import AUTO
from uetproto.live.path import NotPermittedError, PathSetup
from uetproto.live.path_packet import EthernetPath

# Values of <linux/if_tun.h>.
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_DEVICE = "/dev/net/tun"
_LONGEST = 1 << 16
_WAYS = "root, or a device for this user: ip tuntap add tap0 mode tap user $USER"


def _open_tap(name: str) -> int:
    """Open a TAP device, which is made if there is none of the name, and return its file descriptor.

    Raises `NotPermittedError` where the system does not allow it.
    """
    try:
        file = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK)
    except OSError as error:
        raise NotPermittedError("path", f"{_DEVICE}: {error.strerror}", _WAYS, id="not-permitted") from None
    try:
        fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    except OSError as error:
        os.close(file)
        if error.errno == errno.EBUSY:
            raise LocalError(
                "interface", f"{name} is in use by another program", "another TAP device", id="interface-not-found"
            ) from None
        if error.errno == errno.EINVAL:
            raise NotPermittedError(
                "path", f"{name} is no TAP device", "a TAP device, or a new name", id="interface-not-found"
            ) from None
        raise NotPermittedError("path", f"TAP device {name}: {error.strerror}", _WAYS, id="not-permitted") from None
    return file


class TapPath(EthernetPath):
    """This class is the path over a TAP device."""

    name = "tap"
    cannot = ("fragments", "peers behind a router")

    def __init__(self, setup: PathSetup) -> None:
        """Open the device. Raises `NotPermittedError` where the system does not allow it, and `LocalError` for an
        address of the kernel or a device that is in use."""
        sockets.linux()
        interface = setup.interface
        name = interface.device
        if name is None or not 0 < len(name.encode()) < 16:
            raise NotPermittedError(
                "path", "path tap needs the name of a TAP device", f"{argument('interface')}, such as tap0",
                id="interface-needed"
            )  # fmt: skip
        if sockets.is_of_this_host(setup.local, setup.ip_version, name):
            told = f"{interface.local} is an address of the kernel, which answers for it"
            raise LocalError(
                "local", told, "an address that nobody has, in the network of the TAP device", id="wrong-local-address"
            )
        made = name not in {other for _, other in socket.if_nameindex()}
        if made and interface.path == AUTO:
            raise NotPermittedError(
                "path", f"there is no TAP device {name}", "path tap, by its name", id="interface-not-found"
            )
        self._file = _open_tap(name)
        try:
            if not sockets.device(name).up:
                try:
                    sockets.set_up(name)
                except OSError:
                    raise LocalError(
                        "interface", f"{name} is down", f"ip link set {name} up", id="interface-down"
                    ) from None
            mac = mac_of(setup.local).to_bytes(6, "big")
            super().__init__(setup, sockets.device(name), mac, owned=False)
            self.buffer = self._device.mtu * self._queue(name)
            if made:
                self.notes.append(
                    f"{name} is a new device until this program ends: give it an address or a bridge"
                    f" (ip address add … dev {name}, ip link set {name} master …)"
                )
            self._neighbours.announce()
        except BaseException:
            os.close(self._file)
            raise

    @staticmethod
    def _queue(name: str) -> int:
        """Return the number of frames that the device keeps for us."""
        try:
            with open(f"/sys/class/net/{name}/tx_queue_len", encoding="ascii") as file:
                return max(int(file.read()), 1)
        except (OSError, ValueError):
            return _USUAL_QUEUE

    def _put(self, frame: bytes) -> None:
        os.write(self._file, frame)

    def _get(self, limit: int) -> list[bytes]:
        found: list[bytes] = []
        try:
            while len(found) < limit:
                found.append(os.read(self._file, _LONGEST))
        except BlockingIOError:
            pass
        except OSError:
            if not found:
                raise
        return found

    def _hop(self, dst: int) -> int:
        return dst

    def fileno(self) -> int:
        return self._file

    def _writable(self) -> int:
        return self._file

    def close(self) -> None:
        os.close(self._file)


_USUAL_QUEUE = 500
