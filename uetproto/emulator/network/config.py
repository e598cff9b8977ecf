"""This module has the input for building a network: a record of its parameters, and one for each node."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from uetproto.emulator.network.faults import Faults
from uetproto.emulator.network.layouts import Layout
from uetproto.emulator.network.pfc import Pfc
from uetproto.emulator.network.red import Red
from uetproto.emulator.network.switch import MOST_GROUPS
from uetproto.engine.contract import MICROSECOND, Engine
from uetproto.framing.framer import Framer


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFeatures:
    """The parameters of a network that programs give in the form in which the emulator takes them."""

    topology: str = "switch"
    """Topology: switch; pair, two nodes and a cable; leaf-spine, fat-tree, rails; scripted, for scenarios. Node i is
    rank i of a topology with several switches; nodes within switches do not count."""
    mtu: int = 9216
    """MTU of each cable: bytes of an IP packet."""
    trimming: bool = False
    """Whether switches trim data packets that find no room in a queue."""
    red: Red | None = None
    """Marking by the queues of the switches, which DCQCN needs (roce.md §13); None: they do not mark."""
    pfc: Pfc | None = None
    """Pauses that the switch asks for (roce.md §13); None: the switch never asks for a pause."""
    metered: bool = False
    """Whether links count payload too, which costs time."""
    sharp: bool = False
    """Whether the payload of a SEND that is a SHARP message is its vector (sharp.md §2.2)."""
    most_groups: int = MOST_GROUPS
    """Number of multicast groups that a switch holds."""
    wire: str = "bytes"
    """The value `objects` carries frames that are not encoded: times and counters are the same, a long run is shorter.
    Whatever needs bytes does not go with it: capture, trimming, red, pfc, faults that corrupt or trim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig(NetworkFeatures):
    """Holds the parameters of a network, for all its links, NICs and ports."""

    layout: Layout | None = None
    """Layout of a topology with several switches; rank i is the i-th host."""
    rate: int = 400 * 10**9
    """Rate of each cable in bits a second, each way; a node may have another."""
    delay: int = MICROSECOND
    """Delay of each cable in picoseconds."""
    queue_capacity: int = 1 << 20
    """Number of bytes that each class of an output queue holds."""
    inner_delay: int = 100_000
    """Delay of the inner ports of switches in picoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAttachment:
    """What a network knows of a node: how to reach it, what it drives there, and what may go wrong."""

    address: int
    rate: int
    """Rate of the cable in bits a second, both ways."""
    engine: Engine
    framer: Framer
    on_event: Callable[[Any], None]
    tap: int | None = None
    """Interface of the capture to which the port is written; None: the port is not captured."""
    faults: Faults | None = None
    """Faults that the frames of the node meet."""
    at: str | None = None
    """Switch that the node is part of, as an aggregation node is, by an inner port; None: the node is a host."""
