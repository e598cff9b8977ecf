# SPDX-License-Identifier: GPL-2.0-only
"""This adapter drives our SHARP aggregation node, whose tree edges are queue pairs of RoCE on RC."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from ipaddress import ip_address
from typing import Any, ClassVar

from uetproto.engine.contract import MILLISECOND, Engine
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.hca import Hca
from uetproto.engine.sharp.carriers.roce import RoceCarrier
from uetproto.engine.sharp.carriers.station import SharpStation
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.contract import Element
from uetproto.engine.sharp.management import Quota
from uetproto.engine.sharp.node.aggregation_node import SharpNode
from uetproto.errors import LocalError
from uetproto.framing.framer import Framer
from uetproto.framing.roce import RoceFramer
from uetproto.testing.adapters.adapter import Capabilities
from uetproto.testing.adapters.engines import Config, EngineAdapter, Work

_CARRIER = {each.name for each in fields(RoceConfig)}
"""Names of the knobs that belong to the queue pairs; all others belong to the node."""
TREES = ("llt", "sat")
"""Types of trees, at the place of their number (TreeConfig)."""


def settings_of(node: Mapping[str, Any], knobs: Mapping[str, Any]) -> tuple[RoceConfig, SharpConfig]:
    """Return the settings of queue pairs and of SHARP that `config["node"]` and `config["knobs"]` tell."""
    timers = {name: value * MILLISECOND for name, value in node["timers"].items()}
    roce = {name: value for name, value in knobs.items() if name in _CARRIER}
    sharp = {name: value for name, value in knobs.items() if name not in _CARRIER}
    return RoceConfig(path_mtu=node["qp"]["path_mtu"], **roce), SharpConfig(
        mgid="none", heartbeat=0, group_trim=False, retry=node["retry"], **timers, **sharp
    )


def carrier_of(hca: Hca, element: Element, qp: Mapping[str, int]) -> RoceCarrier:
    """Return the carrier of an element, whose queue pairs have the attributes `config["node"]["qp"]`."""
    names = ("timeout", "retry_cnt", "rnr_retry", "min_rnr_timer")
    return RoceCarrier(hca, element, **{name: qp[name] for name in names})


def connect(carrier: RoceCarrier, edge: Mapping[str, Any]) -> int:
    """Make the queue pair of an edge of the tree, and return its number. Raises `LocalError` if it has another number
    than it must have."""
    number = carrier.allocate()
    if number != edge["qp_num"]:
        raise LocalError("qp_num", f"{edge['qp_num']}", f"{number}, the next one", id="out-of-range")
    address, remote = int(ip_address(edge["address"])), edge["dest_qpn"]
    carrier.connect(number, address=address, remote=remote, own_psn=edge["sq_psn"], their_psn=edge["rq_psn"], now=0)
    return number


class SharpNodeEngine(EngineAdapter):
    """This class drives an aggregation node of ours, whose trees and quotas are told when it is reset."""

    capabilities = Capabilities(
        work=("allreduce", "reduce", "bcast", "barrier", "floats", "prod", "loc", "sat", "cleanup"),
        knobs=("acc_native", "retry_cnt_seven", "sat_flows_per_an", "semaphores"),
    )

    def make(self, config: Config) -> Engine:
        told = config["node"]
        roce, self.settings = settings_of(told, config.get("knobs", {}))
        self.hca = Hca(self.address, config=roce, ip_version=ip_address(config["address"]).version)
        self.node = SharpNode(told["an_id"], self.settings)
        self.carrier = carrier_of(self.hca, self.node, told["qp"])
        for tree in told["trees"]:
            parent = None if tree["parent"] is None else connect(self.carrier, tree["parent"])
            children = {edge["child_idx"]: connect(self.carrier, edge) for edge in tree["children"]}
            self.node.set_tree(
                tree["tree_id"], mode=TREES.index(tree["type"]), llt_tree_id=tree["llt_tree_id"], parent=parent,
                children=children, depth=tree["level"],
            )  # fmt: skip
            self.node.set_quota(Quota(told["job_id"], tree["tree_id"], is_root=parent is None, **told["quota"]))
        return SharpStation(self.hca, self.carrier)

    def make_framer(self, config: Config) -> Framer:
        return RoceFramer(self.address, ip_address(config["address"]).version, self.hca.config)

    def _cleanup(self, work: Work) -> None:
        self.node.cleanup(work["job_id"], work["tree_id"])

    works: ClassVar[dict[str, Callable[[Any, Work], None]]] = {"cleanup": _cleanup}

    def state(self) -> dict[str, Any]:
        used = self.node.pool.used()
        return {"osts": used.osts, "groups": len(self.node.groups), "locks": used.locks}
