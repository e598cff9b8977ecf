# SPDX-License-Identifier: GPL-2.0-only
"""A NIC with several ports has a single address. Each port has a cable of its own; all cables lead to the same switch.

The entropy value of a packet selects the port (cms.md §5). The NIC of the sender selects a port for the way to the
switch, and the switch selects a port of the receiver. Both use the same rule: if both NICs have two ports, for example,
an entropy value that selects port 1 of the sender also selects port 1 of the receiver.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from uetproto.framing.dscp import IPV4_TYPE
from uetproto.framing.sizes import ETHERNET_SIZE, ip_size
from uetproto.impair.link import EmulatedLink

MOST_PORTS = 4
"""Greatest number of ports: a SHARP job has one tree for each port, and at most 4 trees (sharp.md §1.7)."""

_FACTOR = 0x9E37
"""Odd number near 2^16 divided by the golden ratio, which spreads consecutive entropy values evenly."""
_BACKLOG = 64
"""Number of full frames that may wait for one port while another port is free."""
_AT = {True: ETHERNET_SIZE + ip_size(4), False: ETHERNET_SIZE + ip_size(6)}
"""Place of the entropy value in a frame: with IPv4, and with IPv6."""


def port_names(name: str, ports: int) -> tuple[str, ...]:
    """Return the names of the ports of a node. The name of a single port is that of the node."""
    return (name,) if ports == 1 else tuple(f"{name}.{port}" for port in range(ports))


class PortObstacle(NamedTuple):
    """A port obstacle says why a node cannot have several ports."""

    node: str
    value: str
    legal: str


def port_obstacle(ports: Mapping[str, int], topology: str, *, pfc: bool) -> PortObstacle | None:
    """Return why the nodes cannot have these numbers of ports, or None if they can."""
    for name, number in ports.items():
        if number > 1:
            if taken := next((one for one in port_names(name, number) if one in ports), None):
                return PortObstacle(name, f"{number}: one is {taken}, the name of another node", "another name, or 1")
            if topology == "scripted":
                return PortObstacle(name, f"{number}: a script has no cables", "1")
            if pfc:
                return PortObstacle(name, f"{number}: PFC pauses a NIC with one port", "1, or pfc = false")
    if topology == "pair" and len(set(ports.values())) > 1:
        return PortObstacle(next(iter(ports)), "the ends of a pair have different numbers", "the same number for both")
    return None


def port_of(entropy: int, ports: int) -> int:
    """Return the number of the port, from 0, that an entropy value selects."""
    return (entropy * _FACTOR & 0xFFFF) * ports >> 16


def _port_of_frame(frame: bytes, ports: int) -> int:
    at = _AT[frame[12:ETHERNET_SIZE] == IPV4_TYPE]
    return port_of(int.from_bytes(frame[at : at + 2], "big"), ports)


class OutputPort(Protocol):
    """An output port sends frames from a switch to a neighbour. It may stand for several ports that lead to one
    node.
    """

    def put(self, frame: bytes) -> bool:
        """Send a frame, or let it wait for the link. Return False if there is no room for the frame."""


@dataclass(frozen=True, slots=True)
class PortQueues:
    """Port queues are the output queues of a switch towards the ports of one node."""

    queues: Sequence[OutputPort]

    def put(self, frame: bytes) -> bool:
        return self.queues[_port_of_frame(frame, len(self.queues))].put(frame)


class PortLinks:
    """Port links are the links that leave the ports of one NIC. Together they act as one `link.FrameSender`."""

    def __init__(self, links: Sequence[EmulatedLink]) -> None:
        self.links = links
        self._backlog = links[0].duration(_BACKLOG * (links[0].mtu + ETHERNET_SIZE))

    @property
    def busy_until(self) -> int:
        """Return the instant in picoseconds from which the NIC may make more frames. This is the instant at which the
        first port is free, or a later one if too many frames wait for one of the other ports.
        """
        times = [link.busy_until for link in self.links]
        return max(min(times), max(times) - self._backlog)

    def send(self, frame: bytes) -> int:
        return self.links[_port_of_frame(frame, len(self.links))].send(frame)

    def send_many(self, frames: Sequence[bytes]) -> list[int]:
        return [self.send(frame) for frame in frames]
