"""This module runs one schedule on all its ranks over emulated packets, and reads the packets on the wire."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uetproto import Packet, decode, encode
from uetproto.api.distributed.networks import roce as distributed_roce
from uetproto.api.distributed.networks import uet as distributed_uet
from uetproto.api.distributed.networks.packets import PacketNetwork
from uetproto.collectives.algorithms.schedule import IN_PLACE, Schedule
from uetproto.collectives.offload import CollectiveCounters
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.runner import Execution
from uetproto.errors import UetError
from uetproto.wire.capture.pcap import open_capture

NETWORKS: dict[str, Callable[..., PacketNetwork]] = {
    "uet": distributed_uet.network,
    "uet-send": partial(distributed_uet.network, way="send"),
    "uet-rod": partial(distributed_uet.network, delivery="ROD"),
    "roce": distributed_roce.network,
}


class Ran(NamedTuple):
    """This record has the results of a run, by rank."""

    outputs: list[np.ndarray]
    counted: list[CollectiveCounters]
    errors: list[list[UetError | None]]
    """Arguments of the calls of `done`."""
    time: int
    network: PacketNetwork


def settle(network: PacketNetwork) -> None:
    """Run the network until no event is left but timers."""
    while True:
        if network.timers.fire(network.now):
            continue
        instant = network.timers.next
        network.run(lambda instant=instant: network.timers.next != instant, instant)  # type: ignore[misc]
        if network.timers.next != instant:
            continue
        if instant is None:
            return
        network.advance(instant)


def execute(
    plan: Schedule, inputs: Sequence[np.ndarray], transport: str, *, op: ReduceOp = ReduceOp.SUM,
    order: Sequence[int] | None = None, network: PacketNetwork | None = None, **options: Any,
) -> Ran:  # fmt: skip
    """Run a schedule; the ranks start in the order `order`. The inputs are not changed."""
    network = NETWORKS[transport](plan.size, **options) if network is None else network
    inputs = [array.copy() for array in inputs]
    outputs = [
        array if plan.op in IN_PLACE else np.zeros(plan.counts(rank).output, array.dtype)
        for rank, array in enumerate(inputs)
    ]
    told: list[list[UetError | None]] = [[] for _ in inputs]
    executions = [
        Execution(plan, rank, network.end(rank), input=inputs[rank], output=outputs[rank], op=op,
                  done=told[rank].append)
        for rank in range(plan.size)
    ]  # fmt: skip
    for rank in order or range(plan.size):
        executions[rank].start()
    settle(network)
    now = network.now
    network.close(drain=True)
    return Ran(outputs, [one.counted for one in executions], told, now, network)


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


def captured(plan: Schedule, inputs: Sequence[np.ndarray], transport: str, **options: Any) -> tuple[Ran, list[Frame]]:
    """Run a schedule with a capture of the packets that leave each rank and that arrive there."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "run.pcapng"
        ran = execute(plan, inputs, transport, capture=str(path), taps="all", **options)
        return ran, list(frames(path, ran.network))
