# SPDX-License-Identifier: GPL-2.0-only
"""This module has a RoCE network whose links lose the chunks that a test chooses, and reads its multicast counters."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uetproto import Packet, decode
from uetproto.api import distributed as dist
from uetproto.api.distributed.networks import roce as distributed_roce
from uetproto.api.distributed.networks.roce import RoceNetwork
from uetproto.collectives.multicast.end import MulticastCounters
from uetproto.collectives.multicast.wire import ChunkImmediate
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.roce import MULTICAST_QP

Lost = Callable[[int, ChunkImmediate], bool]
"""Function that says, for a receiver and a chunk, whether the last link loses the chunk."""


def network(size: int, lost: Lost | None = None, **options: Any) -> RoceNetwork:
    """Return a network whose last links, to the ranks, lose the chunks for which `lost` is true."""
    made = distributed_roce.network(size, **options)
    if lost is not None:
        ranks = {f"rank{rank}": rank for rank in range(size)}
        for hop in made.world.network.hops:
            if hop.target in ranks:
                _lose(hop.link, ranks[hop.target], lost)
    return made


def _lose(link: Any, rank: int, lost: Lost) -> None:
    take = link._take

    def arrive(frame: bytes) -> None:
        chunk = chunk_of(frame)
        if chunk is None or not lost(rank, chunk):
            take(frame)

    link._take = arrive


def chunk_of(frame: bytes) -> ChunkImmediate | None:
    """Return the immediate of a frame with a chunk; None for any other frame."""
    if frame[30] >> 4 != 0xE:  # of the IPv4 destination
        return None
    return ChunkImmediate.unpack(immediate_of(decode(frame)) or 0)


def immediate_of(packet: Packet) -> int | None:
    return next((layer.values["immdt"] for layer in packet.layers if layer.form == "imm"), None)


def gather(size: int, length: int, rank: int, **call: Any) -> np.ndarray:
    """Run an all_gather in which no two chunks are equal; assert the result, and return it."""
    out = np.zeros(size * length, np.uint8)
    dist.all_gather_into_tensor(out, block(rank, length), algorithm="multicast", **call)
    assert (out == whole(size, length)).all()
    return out


def block(rank: int, length: int) -> np.ndarray:
    return np.random.default_rng(rank).integers(0, 256, length, np.uint8)


def whole(size: int, length: int) -> np.ndarray:
    return np.concatenate([block(rank, length) for rank in range(size)])


def counts(made: RoceNetwork, ranks: tuple[int, ...] | None = None) -> list[MulticastCounters]:
    """Return the counters of the last operation of a group, for all its ranks."""
    group = made.multicast.group(tuple(range(made.size)) if ranks is None else ranks)
    operations = [machines.operation for machines in group.machines]
    return [operation.counted for operation in operations if operation is not None]


def total(found: list[MulticastCounters], name: str) -> int:
    return sum(getattr(one, name) for one in found)


class Seen(NamedTuple):
    """A packet as it is seen at the port of a rank."""

    rank: int
    leaves: bool
    """Whether the packet leaves; False: it arrives."""
    multicast: bool
    opcode: int
    immediate: int | None
    packet: Packet


def seen(path: Path) -> Iterator[Seen]:
    """Yield the packets of a capture; assert that each decodes without an error."""
    with open_capture(str(path)) as reader:
        for record in reader:
            packet = decode(record.data)
            assert packet.error is None
            assert packet.trailer is not None
            assert packet.trailer.ok
            bth, ip = packet["bth"], packet["ipv4"]
            leaves = ip["src"] == (10 << 24) + 1 + record.interface
            multicast = bth["destqp"] == MULTICAST_QP
            yield Seen(record.interface, leaves, multicast, bth["opcode"], immediate_of(packet), packet)
        assert reader.damage == []


def run(made: RoceNetwork, program: Callable[[int], Any], **world: Any) -> list[Any]:
    """Run a program on every rank, close the world, and return the results."""

    def begun(rank: int) -> Any:
        dist.init_process_group()
        return program(rank)

    with dist.World(made.size, transport=made, **world) as ranks:
        return ranks.run(begun)
