# SPDX-License-Identifier: GPL-2.0-only
"""This module has the network of the ibverbs-shaped API, with its devices, the driver that runs them, and its time."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

from uetproto.api.node import DrivenNetwork
from uetproto.api.places import NetworkKeywords
from uetproto.api.verbs.device import Device
from uetproto.api.verbs.errors import CHECKS, VerbsError, instance, integer, invalid
from uetproto.api.verbs.memory import ALL
from uetproto.api.verbs.node import NodeSpec, VerbsNode
from uetproto.api.verbs.qp import QP
from uetproto.api.verbs.report import DataPathReport, DataPaths
from uetproto.api.verbs.work import AH
from uetproto.engine.contract import EndpointDriver, Rng
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import AddressVector, QpState, QpType
from uetproto.engine.roce.psn import BITS, MASK
from uetproto.engine.roce.qp import REQUIRED, bring_up_steps
from uetproto.impair.red import Red
from uetproto.live.interface import LOCAL, Interface

if TYPE_CHECKING:
    from uetproto.api.verbs.emulated import Pfc, VerbsNetwork
    from uetproto.api.verbs.live import LiveAdapter

QKEY = 0x11111111
"""Q_Key of the UD queue pairs that `connect` brings up."""

_EXCHANGED = ("av", "dest_qpn", "rq_psn")
"""Attributes of `ModifyQp` that `connect` takes from the other end; its caller does not give them."""


class Network(DrivenNetwork):
    """This class represents a network of nodes, each with one adapter, that runs in virtual time. It is a context
    manager."""

    world: "VerbsNetwork"
    """The emulated network that drives the nodes; a `Network` that is not emulated does not have this attribute."""
    live: "LiveAdapter"
    """Driver of the live link; an emulated network does not have this attribute."""
    checks = CHECKS

    def __init__(
        self, nodes: Iterable[str] | Mapping[str, NodeSpec] = ("a", "b"), *, config: RoceConfig | None = None,
        red: Red | None = None, pfc: "Pfc | None" = None, live: Interface | None = None,
        **network: Unpack[NetworkKeywords],
    ) -> None:  # fmt: skip
        """Emulate a network of nodes, given by name, around a switch or in another topology.

        `config` has the parameters of all adapters; a `NodeSpec` may replace them for its node. `red`, `pfc` and
        `network` are explained at `NetworkOptions`. Raises EINVAL for illegal arguments, and `LocalError` or `OSError`
        for the capture file.

        With `live`, nothing is emulated: the network is this host's node "local" on a real link, with real time, and
        `red`, `pfc` and `network` do not apply. `config` is completed by `live.rate.live_roce`. Raises `LocalError` or
        `OSError` if an address, a port or a file is not to be had.
        """
        if live is not None:
            self._open_live(nodes, live, config, network)
            return
        from uetproto.api.verbs.emulated import NetworkOptions, VerbsNetwork

        options = NetworkOptions.of(network, red=red, pfc=pfc)
        self.world = VerbsNetwork(nodes, options, config=RoceConfig() if config is None else config)
        self._begin(self.world, self.world.nodes, self.world.psns)

    def _open_live(
        self, nodes: Iterable[str] | Mapping[str, NodeSpec], live: Interface, config: RoceConfig | None,
        network: NetworkKeywords,
    ) -> None:  # fmt: skip
        from uetproto.api.verbs.live import LiveAdapter

        if network:
            raise invalid("network", next(iter(network)), "none with live", id="not-with-live")
        instance("live", live, Interface, "Interface(...)")
        names = tuple(nodes) if nodes != ("a", "b") else (LOCAL,)
        if len(names) != 1:
            raise invalid("nodes", f"{len(names)} nodes", "one with live, which is this host", id="not-with-live")
        self.live = LiveAdapter(names[0], live, config=config)
        self._begin(self.live, {names[0]: self.live.verbs_node}, self.live.psns)

    @classmethod
    def driven(cls, driver: EndpointDriver, nodes: Mapping[str, VerbsNode], psns: Rng) -> Self:
        """Return a network whose nodes are run by `driver`, for example by a driver of real sockets. `psns` draws the
        first PSNs of queue pairs."""
        network = cls.__new__(cls)
        network._begin(driver, nodes, psns)
        return network

    def _begin(self, driver: EndpointDriver, nodes: Mapping[str, VerbsNode], psns: Rng) -> None:
        self.driver = driver
        self._data_paths = DataPaths()
        peers: dict[int, Device] = {}
        self.devices = {name: Device(driver, node, self._data_paths, peers, psns) for name, node in nodes.items()}
        """`ibv_get_device_list`, by the names of the nodes."""
        peers.update((device.node.address, device) for device in self.devices.values())

    def device(self, node: str) -> Device:
        """`ibv_open_device` returns the adapter of a node; it is the same object in each call. Raises EINVAL for an
        unknown name."""
        if not isinstance(node, str) or node not in self.devices:
            raise invalid("node", node, self.devices, id="unknown-node")
        return self.devices[node]

    def data_path_report(self) -> DataPathReport:
        """Return the costs of the data paths of all devices so far. These costs are only modelled and take no virtual
        time."""
        return DataPathReport(tuple(self._data_paths.sides))


def connect(qp_a: QP, qp_b: QP, **attributes: Any) -> tuple[AH, ...]:
    """Bring two queue pairs from RESET to RTS, connected to each other, without sending a packet.

    `attributes`, by their names in roce.md §6, hold for both queue pairs. Each attribute that is not given has a
    default: `path_mtu` is the smaller path MTU of the two devices, as many READs and atomics may be in flight as both
    devices allow, all access rights are granted, and the first PSNs are random.

    For UD the call returns two address handles, the first for datagrams to `qp_b` and the second for datagrams to
    `qp_a`; a UD queue pair that is already in RTS stays as it is. For other types the call returns (). If the call
    raises EINVAL, both queue pairs are as they were.
    """
    pair = (qp_a, qp_b)
    for name, qp in zip(("qp_a", "qp_b"), pair, strict=True):
        instance(name, qp, QP, "pd.create_qp(...)")
        qp.check(name)
        if qp.state is not QpState.RESET and not (qp.qp_type is QpType.UD and qp.state is QpState.RTS):
            raise invalid(name, f"in {qp.state.name}", "in RESET", id="wrong-state")
    if qp_a is qp_b or qp_a.device.driver is not qp_b.device.driver or qp_a.qp_type is not qp_b.qp_type:
        raise invalid(
            "qp_b", f"{qp_b.qp_type.name} of {qp_b.device.name}", "another one of the same network and type",
            id="foreign-object"
        )  # fmt: skip
    legal = sorted({name for names in REQUIRED[qp_a.qp_type].values() for name in names} - set(_EXCHANGED))
    for name in attributes:
        if name not in legal:
            raise invalid("attributes", name, legal, id="unknown-argument")
    if "sq_psn" in attributes:
        integer("sq_psn", attributes["sq_psn"], 0, MASK)
    psns = [qp.device.psns.getrandbits(BITS) for qp in pair]
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


def connect_to(
    qp: QP, peer: "str | int | Device", *, dest_qpn: int, sq_psn: int, rq_psn: int, **attributes: Any
) -> None:
    """Bring a queue pair of type RC or UC from RESET to RTS, connected to one of another program, whose address or GID,
    number and first PSN were told outside of the fabric.

    `rq_psn` is the first PSN of the peer, and `sq_psn` that of this end. Further `attributes`, by their names in
    roce.md §6, have the defaults of `connect`; of them `path_mtu` has to be that of the peer. Raises EINVAL for an
    illegal value; the queue pair is in RESET then.
    """
    instance("qp", qp, QP, "pd.create_qp(...)")
    if qp.qp_type is QpType.UD:
        raise invalid("qp", qp.qp_type.name, "RC or UC; for datagrams, pd.create_ah", id="not-with-mode")
    legal = sorted({name for names in REQUIRED[qp.qp_type].values() for name in names} - {*_EXCHANGED, "sq_psn"})
    for name in attributes:
        if name not in legal:
            raise invalid("attributes", name, legal, id="unknown-argument")
    device = qp.device
    wanted = {
        "pkey_index": 0, "port": 1, "access_flags": ALL, "sq_psn": sq_psn, "rq_psn": rq_psn, "dest_qpn": dest_qpn,
        "av": AddressVector(device.address_of("peer", peer)),
        "path_mtu": min(device.config.path_mtu, device.node.max_path_mtu),
    }  # fmt: skip
    try:
        for state, values in bring_up_steps(qp.qp_type, device.config, wanted | attributes):
            qp.modify(state, **values)
    except VerbsError:
        if qp.state is not QpState.RESET:
            qp.modify(QpState.RESET)
        raise


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
    for state, values in bring_up_steps(qp.qp_type, device.config, {**wanted, **agreed, **given}):
        qp.modify(state, **values)
