# SPDX-License-Identifier: GPL-2.0-only
"""This module runs one schedule on all its ranks over emulated packets, and reads the packets on the wire."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uetproto import Packet, decode, encode
from uetproto.api.distributed.networks.packets import PacketNetwork
from uetproto.collectives.algorithms.schedule import Schedule
from uetproto.testing.machines.fabrics.collectives import NETWORKS, CollectiveRun, execute, settle
from uetproto.wire.capture.pcap import open_capture


class Frame(NamedTuple):
    """A packet as it is seen at the NIC of a rank."""

    rank: int
    leaves: bool
    """Whether the packet leaves; False: it arrives."""
    packet: Packet


def frames(path: Path, network: PacketNetwork) -> Iterator[Frame]:
    """Yield the packets of a capture; assert that each decodes without an error, has a right CRC, and encodes to
    itself.
    """
    addresses = [node.address for node in network.world.nodes.values()]
    with open_capture(str(path)) as reader:
        for record in reader:
            packet = decode(record.data)
            assert packet.error is None, packet
            assert packet.trailer is not None, packet
            assert packet.trailer.ok, packet
            assert encode(packet) == record.data, packet
            yield Frame(record.interface, packet["ipv4"]["src"] == addresses[record.interface], packet)
        assert reader.damage == []


def captured(
    plan: Schedule, inputs: Sequence[np.ndarray], transport: str, **options: Any
) -> tuple[CollectiveRun, list[Frame]]:
    """Run a schedule with a capture of the packets that leave each rank and that arrive there."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "run.pcapng"
        ran = execute(plan, inputs, transport, capture=str(path), taps="all", **options)
        return ran, list(frames(path, ran.network))


__all__ = ["NETWORKS", "CollectiveRun", "Frame", "captured", "execute", "frames", "settle"]
