"""This module holds the parts of a built network: NICs, links, switches, queues, and the members of groups."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from uetproto.emulator.network.faults import FaultyPort
from uetproto.emulator.network.link import EmulatedLink
from uetproto.emulator.network.nic import Nic
from uetproto.emulator.network.payload import MeteredLink
from uetproto.emulator.network.pfc import PauseGate, PfcIngress
from uetproto.emulator.network.queue import OutputQueue
from uetproto.emulator.network.red import Marker
from uetproto.emulator.network.scripted_wire import ScriptedWire
from uetproto.emulator.network.switch import Switch, check_group
from uetproto.emulator.network.tap import Capture
from uetproto.errors import LocalError


class LinkHop(NamedTuple):
    """A link hop is one direction of a cable: the names of its ends, and the link, which counts frames and bytes."""

    source: str
    target: str
    link: EmulatedLink

    @property
    def payload(self) -> int:
        """Return the bytes of payload that went over the link; 0 in a network that is not metered."""
        return self.link.payload if isinstance(self.link, MeteredLink) else 0


class SwitchPort(NamedTuple):
    """A switch port is the place at a switch to which a node is attached; all ports of a node have one MAC address."""

    switch: Switch
    mac: bytes
    vertex: int
    """Vertex in the layout: rank of a host, or switch of an inner node; 0 without a layout."""


@dataclass(slots=True)
class BuiltNetwork:
    """A built network gives access to its parts, by the name of their node."""

    nics: dict[str, Nic] = field(default_factory=dict)
    links: dict[str, EmulatedLink] = field(default_factory=dict)
    """Links that leave each node, by the name of the node, or of each port if it has several (`ports.port_names`)."""
    faults: dict[str, FaultyPort] = field(default_factory=dict)
    queues: dict[str, OutputQueue] = field(default_factory=dict)
    """Output queues towards each node, or towards each of its ports."""
    switch: Switch | None = None
    """The only switch; None if there is none, or several."""
    switches: dict[str, Switch] = field(default_factory=dict)
    hops: list[LinkHop] = field(default_factory=list)
    """All links except those of inner ports; links to and from hosts are included."""
    inner_hops: list[LinkHop] = field(default_factory=list)
    """Links to and from nodes within switches, which are no cables."""
    seats: dict[str, SwitchPort] = field(default_factory=dict)
    members: dict[bytes, set[str]] = field(default_factory=dict)
    """Nodes that joined each group, by its MAC address."""
    joined: int = 0
    """Number of times that a node joined or left a group."""
    trunks: dict[str, OutputQueue] = field(default_factory=dict)
    """Queues from switch to switch, by names such as "leaf0 > spine1"."""
    markers: dict[str, Marker] = field(default_factory=dict)
    """Markers of RED, by the names of `queues` and `trunks`."""
    ingresses: dict[str, PfcIngress] = field(default_factory=dict)
    """With PFC, the input port of the switch for each node."""
    gates: dict[str, PauseGate] = field(default_factory=dict)
    """With PFC, the gate between each NIC and its link."""
    wire: ScriptedWire | None = None
    """The wire whose frames a script controls; None without a script."""
    capture: Capture | None = None
    longest_flight: int = 0
    """Longest time that a frame is under way, in picoseconds, even through full queues."""

    @property
    def drops(self) -> int:
        """Return the number of frames that no endpoint got: those that a switch, a fault or a cut link dropped, and
        those that arrived damaged.
        """
        switches = sum(switch.dropped + switch.unknown for switch in self.switches.values())
        faults = sum(port.done["drop"] for port in self.faults.values())
        cut = sum(hop.link.lost for hop in (*self.hops, *self.inner_hops))
        return switches + faults + cut + sum(nic.framer.bad_crc + nic.framer.bad_header for nic in self.nics.values())

    @property
    def trims(self) -> int:
        """Return the number of frames that a switch or a fault trimmed."""
        faults = sum(port.done["trim"] for port in self.faults.values())
        return faults + sum(switch.trimmed for switch in self.switches.values())

    @property
    def marks(self) -> int:
        """Return the number of frames that a switch marked with CE."""
        return sum(marker.marked for marker in self.markers.values())

    def join(self, group: bytes, node: str, number: int | None = None) -> None:
        """Add a node to the multicast group with this MAC address; frames to a group reach only nodes that joined.

        These frames reach the node by its port `number`; None: by the port that the entropy value selects. Raises
        `LocalError` for an address that is no group, an unknown node, and a switch that holds too many groups.
        """
        port = self._port(group, node)
        if port is None:
            return
        for switch in self.switches.values():
            switch.check_room(group)
        for switch in self.switches.values():
            switch.hold(group)
        by = None if number is None else self.queues.get(f"{node}.{number}")
        port.switch.join(group, port.mac, by)
        self.members.setdefault(group, set()).add(node)
        self._renew()

    def leave(self, group: bytes, node: str) -> None:
        """Remove a node from a group; switches remove an empty group. Raises `LocalError` for a node not in it."""
        port = self._port(group, node)
        if port is None:
            return
        members = self.members.get(group, set())
        if node not in members:
            raise LocalError("station", f"{node} has not joined {group.hex(':')}", _names(members))
        members.remove(node)
        port.switch.leave(group, port.mac)
        if not members:
            del self.members[group]
            for switch in self.switches.values():
                switch.forget(group)
        self._renew()

    def _port(self, group: bytes, node: str) -> SwitchPort | None:
        """Return the port of a node; None in a network without switches, where every frame reaches the other node."""
        check_group(group)
        if node not in self.nics:
            raise LocalError("station", f"there is no {node}", _names(self.nics))
        return self.seats.get(node)

    def _renew(self) -> None:
        self.joined += 1
        for switch in self.switches.values():
            switch.renew()


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nobody"
