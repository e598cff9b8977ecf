# SPDX-License-Identifier: GPL-2.0-only
"""This module defines paths between an engine and a link, and has the registry of paths.

A path exchanges whole frames, beginning with an Ethernet header. A path below which the kernel makes the lower headers
leaves them out of what it sends, and puts them together again from what the kernel tells of a received packet. So
faults and captures stand between engine and path, and are the same for each path.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from ipaddress import ip_address
from typing import Protocol

from uetproto.errors import LocalError
from uetproto.framing.framer import LowerHeaders
from uetproto.live.interface import AUTO, Interface, known
from uetproto.live.sockets import QueuedError


@dataclass(slots=True)
class PathCounters:
    """This class counts what a path did."""

    sent: int = 0
    """Number of frames that the kernel took."""
    received: int = 0
    truncated: int = 0
    """Number of received packets that were longer than the room for them; they are dropped."""
    refused: Counter[str] = field(default_factory=Counter)
    """Number of frames that were lost at this host or reported as lost, by the words of the kernel for the reason."""

    def lost(self, errors: Sequence[QueuedError]) -> None:
        """Count frames that were reported as lost."""
        for error in errors:
            self.refused[error.words] += 1

    def lost_by(self, error: OSError, queued: Sequence[QueuedError]) -> None:
        """Count what an error of a socket tells of: what waits in its queue, or else the error itself."""
        self.lost(queued)
        if not queued:
            self.refused[reason_of(error)] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSetup:
    """This record has what a path needs to know of its interface and its transport."""

    interface: Interface
    transport: str
    """"uet" or "roce"."""
    peer_port: int | None
    """UDP port to which packets are sent. None: they have no UDP header (native IP)."""
    ip_protocol: int = 253
    """Protocol number of native packets."""
    lower_headers: Callable[[LowerHeaders, int], bytes]
    """Function of the framer, which makes the lower headers of a received packet."""

    @property
    def local(self) -> int:
        """Return the local address as a number."""
        return int(self.interface.address)

    @property
    def ip_version(self) -> int:
        return self.interface.address.version

    @property
    def local_port(self) -> int | None:
        """Return the UDP port at which packets arrive, or None for native packets."""
        return None if self.peer_port is None else self.interface.local_port or self.peer_port


class Path(Protocol):
    """A path sends and receives frames without waiting, and counts what is lost at this host."""

    name: str
    cannot: tuple[str, ...]
    """What the path cannot do, each in words."""
    notes: list[str]
    """What a user should know of this path as it was opened, such as a limit that the system sets."""
    link: int
    """Link type of its frames in captures. If it is `RAW`, nobody knows their Ethernet headers, which are left out."""
    counters: PathCounters
    buffer: int
    """Number of bytes that the kernel keeps for packets that have arrived."""
    checksum: bool
    """Whether sent packets have a UDP checksum. It may be set while the path is open."""

    def send(self, frames: Sequence[bytes]) -> int:
        """Send frames, in order, and return how many of them the kernel took. The others have to be offered again,
        once `blocked` is writable.

        A frame that the kernel refuses for another reason than lack of room is taken, lost and counted. Raises
        `LocalError` for a frame that is too long for the link.
        """

    def receive(self, limit: int) -> list[bytes]:
        """Return the frames that have arrived, at most `limit`, and count the errors that were reported meanwhile."""

    def mtu(self, dst: int) -> int:
        """Return the largest number of bytes of an IP packet towards an address, as far as it is known. Raises
        `LocalError` if there is no way to the address."""

    def entropy(self, value: int) -> int:
        """Return the entropy value with which the path sends a packet that the engine gave `value`."""

    def fileno(self) -> int:
        """Return the file descriptor that is readable when frames have arrived, or errors were reported."""

    @property
    def blocked(self) -> int | None:
        """Return the file descriptor whose lack of room ended the last `send`. Return None if none did, or if nothing
        tells when there is room again."""

    def close(self) -> None:
        """Close all sockets."""


PATHS: Mapping[str, str] = {
    "udp": "uetproto.live.path_udp:UdpPath",
    "raw": "uetproto.live.path_raw:RawPath",
    "packet": "uetproto.live.path_packet:PacketPath",
    "tap": "uetproto.live.path_tap:TapPath",
}
"""The class of each path, the one that needs least of the machine first. `auto` takes the first one that this process
may open and that serves the packets."""


def open_path(setup: PathSetup) -> Path:
    """Open the path that the interface names.

    With "auto", this is the first path of `PATHS` that this process may open, and its first note says which one, and
    what was refused before it. Raises `LocalError` for a path that cannot be opened.
    """
    name = setup.interface.path
    known("path", name, dict(PATHS))
    if name != AUTO:
        path = _class_of(name)(setup)
        path.notes[:0] = [f"path {name}"]
        return path
    refused: list[str] = []
    for name in PATHS:
        try:
            path = _class_of(name)(setup)
        except LocalError as error:
            is_foreign = error.name == "local" and setup.interface.device is not None
            if not isinstance(error, NotPermittedError) and not is_foreign:
                raise
            refused.append(f"{name}: {error.value}")
            continue
        why = f"as {', '.join(refused)}" if refused else f"the first of {', '.join(PATHS)}"
        path.notes[:0] = [f"path {name}, {why}"]
        return path
    raise LocalError("path", f"no path can be opened: {'; '.join(refused)}", ", ".join(PATHS), id="no-path")


class NotPermittedError(LocalError):
    """Raised for a path that this process may not open, or that does not serve the packets."""


def _class_of(name: str) -> Callable[[PathSetup], Path]:
    module, _, kind = PATHS[name].partition(":")
    found: Callable[[PathSetup], Path] = getattr(import_module(module), kind)
    return found


def too_long(size: int, dst: int, mtu: int | None) -> LocalError:
    """Return the error for a packet that does not fit through the link towards an address."""
    told = "is shorter" if mtu is None else f"is {mtu} bytes"
    return LocalError(
        "payload_mtu", f"an IP packet of {size} bytes does not fit: the MTU towards {ip_address(dst)} {told}",
        "a smaller payload MTU, or a larger MTU of the link",
        id="mtu-too-small",
    )  # fmt: skip


def reason_of(error: OSError | int) -> str:
    """Return the words of the system for an error number."""
    return os.strerror(error if isinstance(error, int) else error.errno or 0)
