# SPDX-License-Identifier: GPL-2.0-only
"""This module connects ranks over UET; each rank has a fabric endpoint (collectives.md §5).

With `way="write"`, the default, grants and data are WRITEs with completion data, and grants have a resource index of
their own. The completion data of a message is its packed tag, (seq, phase, step, chunk) of collectives.md §5; the tag
and the initiator identify the receive. With `way="send"` messages are tagged SENDs whose match bits are the tag; if a
message comes before its receive is posted, the target holds the message, as far as it has room (ses.md §11.2).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from uetproto.api.distributed.errors import unknown
from uetproto.api.distributed.networks.packets import (
    DEPTH,
    RECORD,
    Awaited,
    GrantingEnd,
    PacketEnd,
    PacketNetwork,
    ReceiveGrant,
    names,
    options,
)
from uetproto.api.distributed.networks.sharp import SharpOffload
from uetproto.api.distributed.networks.sharp_fabric import SharpFabric, settings
from uetproto.api.fi.emulated import Encapsulation, FiNetwork
from uetproto.api.fi.node import FiNode, NodeSpec
from uetproto.collectives.transport import Done, TransportError
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import PDC_MODES, Completion, Receive, Received, RemoteWrite, Send, Write
from uetproto.engine.fep import Fep
from uetproto.engine.memory import Region
from uetproto.engine.sharp.carriers.uet import UetCarrier
from uetproto.engine.sharp.contract import Element
from uetproto.engine.sharp.options import SharpOptions

_JOB, _PID, _INDEX = 1, 0, 15
_GRANTS = 14
"""Resource index of grants; their completion data is the number of the record."""
_MAILBOX = 0
"""Key of the region to which grants are written: `DEPTH` records for each peer."""


class UetEnd(GrantingEnd):
    """This class moves the messages of one rank by grants and WRITEs, as `way="write"` demands."""

    network: "UetNetwork"

    def __init__(self, network: "UetNetwork", rank: int, node: FiNode) -> None:
        super().__init__(network, rank)
        self._submit = network.world.network.nics[node.name].submit
        self._process = node.fep.attach(_JOB, _PID, (_INDEX, _GRANTS))
        self._mailbox = np.zeros(self.size * DEPTH * RECORD, np.uint8).data  # memory is used where a peer writes
        self._process.register(Region(_MAILBOX, self._mailbox))
        node.fep.target.tells_access = False
        self._addresses, self._mode = network.addresses, network.mode
        self._told = [0] * self.size
        self._awaited: dict[tuple[int, int], int] = {}
        """Slots by the origin and the tag of the message."""
        node.listeners.append(self._event)

    def open(self, slot: int, awaited: Awaited) -> tuple[int, int]:
        self._process.register(Region(slot, awaited.into))
        self._awaited[awaited.origin, awaited.tag] = slot
        return slot, 0

    def close(self, slot: int, awaited: Awaited) -> None:
        del self._process.regions[slot]
        del self._awaited[awaited.origin, awaited.tag]

    def send_record(self, peer: int, grant: ReceiveGrant, done: Done) -> None:
        record = self.rank * DEPTH + self._told[peer] % DEPTH
        self._told[peer] += 1
        self._submit(Write(
            peer=self._addresses[peer], mode=self._mode, job_id=_JOB, pid_on_fep=_PID, resource_index=_GRANTS,
            initiator=self.rank, context=(peer, done), data=grant.pack(), key=_MAILBOX, offset=record * RECORD,
            completion_data=record,
        ))  # fmt: skip

    def write(self, peer: int, grant: ReceiveGrant, data: memoryview, done: Done) -> None:
        tag, _, origin, key, address, _ = grant
        self._submit(Write(
            peer=self._addresses[peer], mode=self._mode, job_id=_JOB, pid_on_fep=_PID, resource_index=_INDEX,
            initiator=origin, context=(peer, done), data=data, key=key, offset=address, completion_data=tag,
        ))  # fmt: skip

    def _event(self, event: Any) -> None:
        kind = type(event)  # most events are of other kinds
        if kind is RemoteWrite:
            if event.resource_index == _GRANTS:
                record = event.data
                self.on_record(record // DEPTH, ReceiveGrant.unpack(self._mailbox, record * RECORD))
            else:
                slot = self._awaited.get((event.initiator, event.data))
                if slot is not None:
                    self.on_written(slot)
        elif kind is Completion:
            peer, done = event.context
            done(None if event.ok else _failure(self.rank, peer, event))


class UetSendingEnd(PacketEnd):
    """This class moves the messages of one rank by tagged SENDs, as `way="send"` demands."""

    network: "UetNetwork"

    def __init__(self, network: "UetNetwork", rank: int, node: FiNode) -> None:
        super().__init__(network, rank)
        self._node = node
        node.fep.attach(_JOB, _PID, (_INDEX,))
        node.listeners.append(self._event)

    def send_remote(self, peer: int, origin: int, tag: int, data: memoryview, done: Done) -> None:
        self._node.submit(Send(
            peer=self.network.addresses[peer], data=data, tag=tag, context=(peer, done), mode=self.network.mode,
            job_id=_JOB, pid_on_fep=_PID, resource_index=_INDEX, initiator=origin,
        ))  # fmt: skip

    def receive_remote(self, peer: int, origin: int, tag: int, into: memoryview, done: Done) -> None:
        self._node.submit(Receive(
            into=into, tag=tag, source=origin, context=(origin, done), job_id=_JOB, pid_on_fep=_PID,
            resource_index=_INDEX,
        ))  # fmt: skip

    def _event(self, event: Any) -> None:
        if isinstance(event, Received):
            peer, done = event.receive.context
            into, failure = event.receive.into, None
            if event.message_length != into.nbytes:
                sizes = f"{event.message_length} bytes sent, {into.nbytes} awaited"
                failure = TransportError(f"message from rank {peer} to rank {self.rank}: {sizes}", id="message-lost")
            self.complete(done, failure)
        elif isinstance(event, Completion):
            peer, done = event.context
            self.complete(done, _failure(self.rank, peer, event))


def _failure(rank: int, peer: int, event: Completion) -> TransportError | None:
    """Return the failure of a message to a peer, or None."""
    if event.ok:
        return None
    why = event.error.reason.value if event.error else event.return_code.name
    return TransportError(f"message from rank {rank} to rank {peer}: {why}", id="message-lost")


WAYS: dict[str, Callable[["UetNetwork", int, FiNode], PacketEnd]] = {"write": UetEnd, "send": UetSendingEnd}
"""Maps the argument `way` of `UetNetwork` to the class that moves the messages of a rank."""

DELIVERIES = {mode.name: mode for mode in PDC_MODES}
"""Maps the names RUD and ROD to their modes, which deliver each packet exactly once."""

SES = SesConfig(rx_size=1 << 16, unexpected_messages=65535, unexpected_bytes=1 << 28)
"""Configuration of a target that holds messages until their receives are posted."""


RESERVED = 1 << 14
"""Smallest number of PDCs in the reserved pool of a node if the network has SHARP; each SHARP connection takes four."""


_UNUSED = (
    "SHARP_COLL_ENABLE_MCAST_TARGET", "SHARP_COLL_IB_TIMEOUT", "SHARP_COLL_IB_RETRY_COUNT", "SHARP_COLL_IB_RNR_TIMER",
    "SHARP_COLL_IB_RNR_RETRY",
)  # fmt: skip
"""Options of SHARP about queue pairs and multicast, which UET does not have."""


def _carrier(fep: Fep, element: Element, options: SharpOptions) -> UetCarrier:
    return UetCarrier(fep, element)


class UetNetwork(PacketNetwork):
    """This class is an emulated network in which each rank has a fabric endpoint."""

    def __init__(self, size: int, *, way: str = "write", delivery: str = "RUD", **given: Any) -> None:
        """Make the network. Raises `ArgumentError` for options that are not legal.

        `way` is "write" or "send", and `delivery` is "RUD" or "ROD". Further options are those of `NetworkOptions`, and
        `pds`, `ses`, `how`, `hosts`, `nodes`, `cross_nic`, `intra_bandwidth` and `intra_latency`. `sharp` is True, or
        has options by name, to put an aggregation node into every switch (`sharp_fabric.settings`). In a network of
        several switches `cc` is "nscc" and `trimming` is True by default, unless `sharp` is given.
        """
        if way not in WAYS:
            raise unknown("way", way, WAYS)
        if delivery not in DELIVERIES:
            raise unknown("delivery", delivery, DELIVERIES)
        cables, intra, rest = options(size, given, ("way", "delivery", "pds", "ses", "how", "sharp"))
        sharp = settings(rest.pop("sharp", None), cables, mgid=("none",))
        if "cc" not in given and sharp is None and cables.has_several_switches:
            cables = replace(cables, cc="nscc", trimming=given.get("trimming", True))
        self.mode = DELIVERIES[delivery]
        defaults: dict[str, Any] = {"how": Encapsulation(), "pds": PdsConfig(), "ses": SES}
        chosen, hosts = defaults | rest, names(size)
        specs, fabric = dict.fromkeys(hosts, NodeSpec()), None
        if sharp is not None:
            fabric = SharpFabric(*sharp, _carrier, multicast=False, unused=_UNUSED)
            specs, cables = fabric.specs(hosts, cables, NodeSpec), replace(cables, sharp=True)
            if isinstance(chosen["pds"], PdsConfig):
                chosen["pds"] = replace(chosen["pds"], reserved_pdcs=max(RESERVED, chosen["pds"].reserved_pdcs))
        world = FiNetwork(specs, cables, **chosen)
        super().__init__(size, world, intra)
        nodes = list(world.nodes.values())
        self.addresses = [node.address for node in nodes]
        self.ends = [WAYS[way](self, rank, node) for rank, node in enumerate(nodes[:size])]
        self.sharp: SharpOffload | None = None
        if fabric is not None:  # PDCs draw their PSNs themselves
            self.offload = self.sharp = SharpOffload(self, fabric, nodes[: len(hosts)], cables, lambda: 0)


network = UetNetwork  # of `World(transport="uet")`
