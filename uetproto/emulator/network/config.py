# SPDX-License-Identifier: GPL-2.0-only
"""This module has the records from which a network is built: one for the network, and one for each node."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from uetproto.emulator.network.layouts import Layout
from uetproto.emulator.network.nic import RING
from uetproto.emulator.network.pfc import Pfc
from uetproto.emulator.network.switch import MOST_GROUPS
from uetproto.emulator.network.vlan import Vlan
from uetproto.engine.contract import MICROSECOND, Engine
from uetproto.framing.framer import Framer
from uetproto.impair.faults import Faults
from uetproto.impair.queue import QueueRules
from uetproto.impair.red import Red

QUEUE_CAPACITY = 1 << 20
"""Number of bytes that an output queue holds for each of its levels, unless another one is given."""

TRAINS = ("auto", "on", "off")
"""Values of `NetworkFeatures.trains`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFeatures:
    """Network features are the parameters that have the same names and values in `NetworkConfig`, which the emulator
    takes, and in `api.network.NetworkOptions`, which a program sets.
    """

    topology: str = "switch"
    """Name of the topology: "switch" has one switch, "pair" has two nodes and a cable, "leaf-spine", "fat-tree" and
    "rails" have several switches, and "scripted" has a wire that a script controls. In a topology with several
    switches, node i is rank i; nodes within switches are not counted."""
    mtu: int = 9216
    """MTU of each cable: the size in bytes of the largest IP packet."""
    trimming: bool = False
    """Whether switches trim data packets that find no room in a queue."""
    red: Red | None = None
    """Parameters by which the queues of the switches mark packets (roce.md §13). DCQCN needs these marks. `red` is None
    if the queues do not mark."""
    host_marks: bool = True
    """Whether queues towards hosts mark, too. With credits of the receiver they do not (cms.md §4)."""
    pfc: Pfc | None = None
    """Parameters of the switch's pause frames (roce.md §13). `pfc` is None if the switch sends no pause frames."""
    metered: bool = False
    """Whether links also count payload bytes, which makes a run slower."""
    sharp: bool = False
    """Whether the payload of a SEND with a SHARP message is only the vector of this message (sharp.md §2.2). If this is
    False, the SHARP header is counted as payload, too."""
    most_groups: int = MOST_GROUPS
    """Greatest number of multicast groups that a switch can hold."""
    wire: str = "bytes"
    """Form of the frames. With "bytes", frames are encoded. With "objects", they are not encoded: a run is faster, and
    its times and counters are the same. "objects" does not go with anything that needs bytes: capture, pfc, and faults
    that corrupt or trim, and over RoCE trimming."""
    trains: str = "auto"
    """Whether endpoints handle runs of equal packets together: "auto" wherever nothing distinguishes the packets, "off"
    never. A run with trains is faster; its captures, results, counters and times are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig(NetworkFeatures):
    """A network configuration has the parameters of all links, NICs and ports."""

    layout: Layout | None = None
    """Layout of a topology with several switches; rank i is the i-th host. `layout` is None for the other
    topologies."""
    rate: int = 400 * 10**9
    """Rate of each cable in bits a second, in each direction; the cable of a node may have another rate."""
    delay: int = MICROSECOND
    """Delay of each cable in picoseconds."""
    rules: QueueRules | None = None
    """Rules of UET for the queues of the switches. None: the plain rules, by which data is marked when it arrives."""
    vlan: Vlan | None = None
    """VLAN and priorities of all frames. None: frames have no tag."""
    hash_salt: int = 0
    """Salt of the hash by which switches choose among equal paths, beside the name of each switch."""
    queue_capacity: int | None = None
    """Number of bytes that each output queue holds for each of its levels (`queue.Level`). None: `QUEUE_CAPACITY`, or
    with PFC what its headroom needs, if that is more."""
    slow: Mapping[str, int] = field(default_factory=dict)
    """Number by which the rate of a link between switches is divided, and with it the bytes that its queue holds and
    the bytes at which the queue marks. The key names both switches, such as "core0 > pod0.agg0"."""
    taps: Mapping[str, int] = field(default_factory=dict)
    """Number of the capture interface on which the frames of a link between switches are recorded. The keys are those
    of `slow`."""
    inner_delay: int = 100_000
    """Delay in picoseconds of the links between a switch and the nodes within it."""

    @property
    def capacity(self) -> int:
        """Return the number of bytes that an output queue holds, where PFC asks for no more."""
        return QUEUE_CAPACITY if self.queue_capacity is None else self.queue_capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAttachment:
    """A node attachment describes a node to the network: address, cable, engine, capture and faults."""

    address: int
    rate: int
    """Rate of the cable in bits a second, in each direction."""
    engine: Engine
    framer: Framer
    on_event: Callable[[Any], None]
    tap: int | None = None
    """Number of the capture interface on which the node's frames are recorded. It is None if they are not captured."""
    faults: Faults | None = None
    """Faults that the frames of the node meet."""
    at: str | None = None
    """Name of the switch that contains the node, for example the switch of an aggregation node. It is None for a
    host."""
    ring: int = RING
    """Number of first transmissions that the NIC takes from the engine at once. With congestion control it is 1, so
    that a packet leaves when the engine thinks that it does."""
    ports: int = 1
    """Number of ports of the NIC, each with a cable of `rate`. A node within a switch has one port."""
