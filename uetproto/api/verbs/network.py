"""The network of the ibverbs-shaped API: its devices, and the time that passes in it."""

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from uetproto.api.network import Cables, Faults, Pfc, Red
from uetproto.api.verbs.cq import CQ
from uetproto.api.verbs.device import PD, AsyncEvent, Device, DeviceAttr, EventType
from uetproto.api.verbs.errors import Errno, VerbsError, instance, integer, invalid
from uetproto.api.verbs.memory import ALL, MR, Slice
from uetproto.api.verbs.node import NodeSpec, VerbsWorld
from uetproto.api.verbs.qp import QP, SRQ
from uetproto.api.verbs.report import DataPathReport, DataPaths, Side
from uetproto.api.verbs.work import AH, RecvWr, SendWr
from uetproto.emulator.data_path import Hop, Path, PathConfig, Report, cost
from uetproto.engine.contract import MICROSECOND
from uetproto.engine.memory import FileMemory
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import (
    Access,
    AddressVector,
    Opcode,
    QpState,
    QpType,
    SendFlags,
    Sge,
    Status,
    WcFlags,
    WcOpcode,
    WorkCompletion,
)
from uetproto.engine.roce.memory import MemoryKind
from uetproto.engine.roce.psn import BITS, MASK
from uetproto.engine.roce.qp import REQUIRED, way_up
from uetproto.engine.roce.ud import GRH_SIZE, OWN_QKEY
from uetproto.wire.headers.roce import MULTICAST_QP

QKEY = 0x11111111
"""Of queue pairs of UD that `connect` brings up."""

_EXCHANGED = ("av", "dest_qpn", "rq_psn")
"""What one end tells the other: nobody gives it to `connect`."""


class Network:
    """The emulated network, its devices and its time; a context manager."""

    def __init__(
        self, nodes: Iterable[str] | Mapping[str, NodeSpec] = ("a", "b"), *, topology: str = "switch",
        shape: Mapping[str, int] | None = None, rate: int | str = "400 Gb/s", delay: int | str = MICROSECOND,
        mtu: int = 9216, queue_capacity: int | str = 1 << 20, faults: Faults | Mapping[str, Any] | None = None,
        faults_from: Iterable[str] = "all", seed: int = 0, capture: str | None = None,
        taps: Iterable[str] | None = None, config: RoceConfig | None = None, red: Red | None = None,
        pfc: Pfc | None = None, metered: bool = False,
    ) -> None:  # fmt: skip
        """Nodes by name, each with one adapter, around a switch, or two by a cable (topology "pair").

        Topologies of several switches are "leaf-spine", "fat-tree" and "rails"; `shape` has their parameters, such as
        {"hosts_per_leaf": 4, "spines": 2}, {"k": 4, "levels": 3}, {"gpus_per_node": 8}, and node i is their rank i.
        `metered`: links count payload too.
        `rate`: bits a second of each cable, or such as "400 Gb/s"; `delay`: of each cable; `mtu`: bytes of an IP
        packet; `queue_capacity`: bytes that each class of an output queue of the switch holds. `faults`: what the
        frames of the nodes `faults_from` meet, `Faults(...)` or its keywords. One `seed`, one run. `capture`: a file
        .pcapng or .pcap (also .gz) with what passes the ports `taps`, default the first node; "all": all of them.
        `config`: parameters of all adapters, and of one by `NodeSpec`. `red`, `pfc`: the queues of the switch mark
        packets, which DCQCN needs, and the switch pauses who fills them (roce.md §13); None: they do not.

        Raises EINVAL for what cannot be, `LocalError` and `OSError` for the capture file.
        """
        self.world = VerbsWorld(
            nodes,
            config=RoceConfig() if config is None else config,
            cables=Cables(
                topology=topology,
                shape={} if shape is None else shape,
                rate=rate,
                delay=delay,
                mtu=mtu,
                queue_capacity=queue_capacity,
                red=red,
                pfc=pfc,
                metered=metered,
            ),
            faults=Faults() if faults is None else faults,
            faults_from=faults_from,
            seed=seed,
            capture=capture,
            taps=taps,
        )
        self._data_paths = DataPaths()
        peers: dict[int, Device] = {}
        self.devices = {
            name: Device(self.world, node, self._data_paths, peers) for name, node in self.world.nodes.items()
        }
        """`ibv_get_device_list`, by the names of their nodes."""
        peers.update((device.node.address, device) for device in self.devices.values())

    def device(self, node: str) -> Device:
        """`ibv_open_device`: the adapter of a node, always the same. Raises EINVAL for another name."""
        if not isinstance(node, str) or node not in self.devices:
            raise invalid("node", node, ", ".join(self.devices))
        return self.devices[node]

    def data_path_report(self) -> DataPathReport:
        """What the data paths of all devices would have cost so far: a model, which takes no virtual time."""
        return DataPathReport(tuple(self._data_paths.sides))

    @property
    def now(self) -> int:
        """Virtual time, picoseconds."""
        return self.world.clock.now

    def run(self, until: int | str | Callable[[], bool] | None = None) -> bool:
        """Runs virtual time: to an instant (picoseconds, or such as "1 ms"), until a condition holds, or (None) until
        nothing more would happen by itself.

        A send that waits for a receive of its peer does not keep it running. True but for a condition that does not
        hold when nothing more would happen. Raises EINVAL for an instant that has passed.
        """
        return self.world.run(until)

    def close(self) -> None:
        """What is under way arrives, then the capture is whole. Nothing can be made or posted afterwards."""
        self._close(drain=True)

    def _close(self, drain: bool) -> None:
        if not self.world.closed:
            self.world.close(drain)

    def __enter__(self) -> "Network":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(drain=kind is None)


def connect(qp_a: QP, qp_b: QP, **attributes: Any) -> tuple[AH, ...]:
    """The out-of-band exchange, which sends no packet: both queue pairs go from RESET to RTS and know each other.

    `attributes`, by their names in roce.md §6, are for both; the others are those of the configuration: the smaller
    `path_mtu`, no more READs and atomics than the peer answers, all access rights, first PSNs by chance. On UD the
    ways are returned, from the first to the second and back; one that is in RTS stays as it is. Raises EINVAL, and
    then both are as they were.
    """
    pair = (qp_a, qp_b)
    for name, qp in zip(("qp_a", "qp_b"), pair, strict=True):
        instance(name, qp, QP, "pd.create_qp(...)")
        qp.check(name)
        if qp.state is not QpState.RESET and not (qp.qp_type is QpType.UD and qp.state is QpState.RTS):
            raise invalid(name, f"in {qp.state.name}", "in RESET")
    if qp_a is qp_b or qp_a.device.world is not qp_b.device.world or qp_a.qp_type is not qp_b.qp_type:
        raise invalid("qp_b", f"{qp_b.qp_type.name} of {qp_b.device.name}", "another one of the same network and type")
    legal = sorted({name for names in REQUIRED[qp_a.qp_type].values() for name in names} - set(_EXCHANGED))
    for name in attributes:
        if name not in legal:
            raise invalid("attributes", name, ", ".join(legal))
    if "sq_psn" in attributes:
        integer("sq_psn", attributes["sq_psn"], 0, MASK)
    psns = [qp.device.world.psns.getrandbits(BITS) for qp in pair]
    fresh = [qp for qp in pair if qp.state is QpState.RESET]
    try:
        _bring_up(qp_a, qp_b, psns, attributes)
        _bring_up(qp_b, qp_a, psns[::-1], attributes)
    except VerbsError:
        for qp in fresh:
            if qp.state is not QpState.RESET:
                qp.modify(QpState.RESET)
        raise
    if qp_a.qp_type is not QpType.UD:
        return ()
    return qp_a.pd.create_ah(qp_b.device), qp_b.pd.create_ah(qp_a.device)


def _bring_up(qp: QP, peer: QP, psns: list[int], given: Mapping[str, Any]) -> None:
    if qp.state is QpState.RTS:
        return
    device, other = qp.device, peer.device
    wanted = {
        "pkey_index": 0, "port": 1, "access_flags": ALL, "qkey": QKEY, "sq_psn": psns[0], "rq_psn": psns[1],
        "av": AddressVector(other.node.address), "dest_qpn": peer.qp_num,
    }  # fmt: skip
    both = (device.config.path_mtu, other.config.path_mtu, device.node.max_path_mtu, other.node.max_path_mtu)
    agreed = {
        "path_mtu": min(both), "max_rd_atomic": min(device.config.max_rd_atomic, other.config.max_dest_rd_atomic),
    }  # fmt: skip
    if "sq_psn" in given:
        wanted["rq_psn"] = given["sq_psn"]
    for state, values in way_up(qp.qp_type, device.config, {**wanted, **agreed, **given}):
        qp.modify(state, **values)


__all__ = [
    "AH", "ALL", "CQ", "GRH_SIZE", "MR", "MULTICAST_QP", "OWN_QKEY", "PD", "QKEY", "QP", "SRQ", "Access",
    "AddressVector", "AsyncEvent", "DataPathReport", "Device", "DeviceAttr", "Errno", "EventType", "Faults",
    "FileMemory", "Hop", "MemoryKind", "Network", "NodeSpec", "Opcode", "Path", "PathConfig", "Pfc", "QpState",
    "QpType", "RecvWr", "Red", "Report", "RoceConfig", "SendFlags", "SendWr", "Sge", "Side", "Slice", "Status",
    "VerbsError", "WcFlags", "WcOpcode", "WorkCompletion", "connect", "cost",
]  # fmt: skip
