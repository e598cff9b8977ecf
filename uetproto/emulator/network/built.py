# SPDX-License-Identifier: GPL-2.0-only
"""This module holds the parts of a built network: NICs, links, switches, queues, and the members of groups."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uetproto.emulator.network.nic import Nic
from uetproto.emulator.network.payload import MeteredLink
from uetproto.emulator.network.pfc import PauseGate, PfcIngress
from uetproto.emulator.network.scripted_wire import ScriptedWire
from uetproto.emulator.network.switch import Switch, check_group
from uetproto.emulator.network.tap import TapCapture
from uetproto.engine.train_splits import Split
from uetproto.errors import LocalError
from uetproto.impair.faults import FaultyPort
from uetproto.impair.link import EmulatedLink
from uetproto.impair.queue import OutputQueue, SharedBuffer
from uetproto.impair.red import Marker


class LinkHop(NamedTuple):
    """A link hop is one direction of a cable: the names of both ends, and the link, which counts its frames and
    bytes.
    """

    source: str
    target: str
    link: EmulatedLink

    @property
    def payload(self) -> int:
        """Return the number of payload bytes that went over the link. It is 0 in a network that is not metered."""
        return self.link.payload if isinstance(self.link, MeteredLink) else 0


class SwitchPort(NamedTuple):
    """A switch port is the place at a switch to which a node is attached; all ports of a node have one MAC address."""

    switch: Switch
    mac: bytes
    vertex: int
    """Vertex of the node in the layout. The vertex of a host is its rank. A node within a switch has the vertex of the
    switch. The vertex is 0 in a network without a layout."""


@dataclass(slots=True)
class BuiltNetwork:
    """A built network holds all parts of a network. Most parts are in dictionaries whose key is the name of a node."""

    nics: dict[str, Nic] = field(default_factory=dict)
    links: dict[str, EmulatedLink] = field(default_factory=dict)
    """Links from each node to its switch. The key is the name of the node, or of the port if the node has several
    (`ports.port_names`)."""
    faults: dict[str, FaultyPort] = field(default_factory=dict)
    queues: dict[str, OutputQueue] = field(default_factory=dict)
    """Output queues of the switches towards each node, or towards each port of a node that has several."""
    switch: Switch | None = None
    """Only switch of the network. It is None if the network has no switch or several."""
    switches: dict[str, Switch] = field(default_factory=dict)
    buffers: dict[str, SharedBuffer] = field(default_factory=dict)
    """Memory that all output queues of a switch share, by the name of the switch; empty if each queue has its own."""
    hops: list[LinkHop] = field(default_factory=list)
    """All links except those of nodes within switches. Links to and from hosts are included."""
    inner_hops: list[LinkHop] = field(default_factory=list)
    """Links to and from nodes within switches. These links are not cables."""
    seats: dict[str, SwitchPort] = field(default_factory=dict)
    members: dict[bytes, set[str]] = field(default_factory=dict)
    """Names of the nodes that joined each multicast group. The key is the MAC address of the group."""
    joined: int = 0
    """Number of times that a node joined or left a multicast group."""
    trunks: dict[str, OutputQueue] = field(default_factory=dict)
    """Output queues from switch to switch. The key names both switches, such as "leaf0 > spine1"."""
    markers: dict[str, Marker] = field(default_factory=dict)
    """RED markers of the output queues. The keys are those of `queues` and `trunks`."""
    ingresses: dict[str, PfcIngress] = field(default_factory=dict)
    """Input ports of the switches: the key is the name of a node, or names two switches, such as "leaf0 > spine1". The
    dictionary is empty without PFC."""
    gates: dict[str, PauseGate] = field(default_factory=dict)
    """Gates between the nodes' NICs and their links, one for each node. The dictionary is empty without PFC."""
    splits: dict[str, Split] = field(default_factory=dict)
    """Why NICs handle each packet by itself; the dictionary has no NIC that handles trains."""
    wire: ScriptedWire | None = None
    """Wire whose frames a script controls. It is None in a network without a script."""
    capture: TapCapture | None = None
    longest_flight: int = 0
    """Longest time in picoseconds that a frame can be under way, even through full queues and pauses."""

    @property
    def drops(self) -> int:
        """Return the number of frames that no endpoint got: a switch, a fault or a cut link dropped them, or they
        arrived damaged.
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
    def trains(self) -> dict[str, dict[str, Any]]:
        """Return for each node how many trains it has sent, and why packets went by themselves (`TrainTally`)."""
        return {
            name: nic.trains.tally.as_dict() if nic.trains is not None
            else {"made": 0, "network": self.splits[name].told} if name in self.splits
            else {"made": 0} for name, nic in self.nics.items()
        }  # fmt: skip

    @property
    def marks(self) -> int:
        """Return the number of frames that a switch marked with CE."""
        return sum(marker.marked for marker in self.markers.values())

    def join(self, group: bytes, node: str, number: int | None = None) -> None:
        """Add a node to the multicast group with the MAC address `group`. Frames to a group reach only the nodes that
        joined it.

        The frames reach the node by its port `number`, or, if `number` is None, by the port that the entropy value
        selects. Raises `LocalError` for an address that is not that of a group, for an unknown node, and for a switch
        that holds too many groups.
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
        """Remove a node from a multicast group. Switches forget a group that has no nodes. Raises `LocalError` for a
        node that has not joined the group.
        """
        port = self._port(group, node)
        if port is None:
            return
        members = self.members.get(group, set())
        if node not in members:
            raise LocalError("station", f"{node} has not joined {group.hex(':')}", _names(members), id="not-registered")
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
            raise LocalError("station", f"there is no {node}", _names(self.nics), id="not-registered")
        return self.seats.get(node)

    def _renew(self) -> None:
        self.joined += 1
        for switch in self.switches.values():
            switch.renew()


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nobody"
