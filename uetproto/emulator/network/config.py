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
    """Network features are the parameters that a program passes to the emulator without conversion."""

    topology: str = "switch"
    """Topology: switch; pair, two nodes and a cable; leaf-spine, fat-tree, rails; scripted, for scenarios. Node i is
    rank i of a topology with several switches; nodes within switches do not count."""
    mtu: int = 9216
    """MTU of each cable: bytes of an IP packet."""
    trimming: bool = False
    """Whether switches trim data packets that find no room in a queue."""
    red: Red | None = None
    """Marking by the queues of the switches, which DCQCN needs (roce.md §13); None: the queues do not mark."""
    pfc: Pfc | None = None
    """Parameters of the switch's pause frames (roce.md §13); None: the switch sends none."""
    metered: bool = False
    """Whether links also count payload bytes, which makes a run slower."""
    sharp: bool = False
    """Whether only the vector of a SEND that is a SHARP message counts as its payload (sharp.md §2.2)."""
    most_groups: int = MOST_GROUPS
    """Number of multicast groups that a switch holds."""
    wire: str = "bytes"
    """Form of frames: `bytes`, or `objects` that are not encoded, with the same times and counters, for faster runs.
    `objects` excludes all that needs bytes: capture, trimming, red, pfc, faults that corrupt or trim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig(NetworkFeatures):
    """A network configuration has the parameters of all links, NICs and ports."""

    layout: Layout | None = None
    """Layout of a topology with several switches; rank i is the i-th host."""
    rate: int = 400 * 10**9
    """Rate of each cable in bits a second, in each direction; the cable of a node may have another rate."""
    delay: int = MICROSECOND
    """Delay of each cable in picoseconds."""
    queue_capacity: int = 1 << 20
    """Number of bytes that each class of an output queue holds."""
    inner_delay: int = 100_000
    """Delay of the inner ports of switches in picoseconds."""


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
    """Interface of the capture to which the port is written; None: the port is not captured."""
    faults: Faults | None = None
    """Faults that the frames of the node meet."""
    at: str | None = None
    """Switch that has the node on an inner port, as for an aggregation node; None: the node is a host."""
    ports: int = 1
    """Ports of the NIC, each with a cable of `rate`; a node within a switch has one."""
