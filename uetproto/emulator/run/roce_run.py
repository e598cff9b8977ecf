# SPDX-License-Identifier: GPL-2.0-only
"""This module has what all runs over RoCEv2 share: host channel adapters, and queue pairs that are ready to send."""

from collections import Counter
from dataclasses import replace
from typing import Any

from uetproto.emulator.run.result import Memories, RunResult
from uetproto.emulator.run.scenario_run import ScenarioRun
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.roce_settings import DEFAULT_PKEY, QpSetup
from uetproto.emulator.scenario.settings import NodeConfig, Scenario
from uetproto.engine import data_path
from uetproto.engine.roce.contract import AddressVector, ModifyQp, QpType
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.psn import BITS
from uetproto.engine.roce.qp import bring_up_steps
from uetproto.framing.dscp import Dscp
from uetproto.framing.roce import RoceFramer, traffic_classes

QKEY = 0x11111111
"""Q_Key of a queue pair of UD whose settings have no Q_Key."""
_NAK = ("NAK ", "RNR NAK")


class RoceRun(ScenarioRun):
    """This is the base class of runs over RoCEv2. A subclass has the application in its methods `play` and
    `on_event`.
    """

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.hcas = {
            name: Hca(node.address, config=node.roce, ip_version=node.ip_version, pkeys=self._pkeys(name))
            for name, node in scenario.nodes.items()
        }
        self.pds = {name: hca.alloc_pd() for name, hca in self.hcas.items()}
        """Default protection domain of each node. A queue pair may be in another one."""
        self._other_pds: dict[tuple[str, str], int] = {}
        for name, hca in self.hcas.items():
            hca.line_rate = scenario.nodes[name].rate or scenario.fabric.rate
        self._srqs: dict[tuple[str, str], int] = {}
        self._psns = {
            name: self.chance(name, "psn").getrandbits(BITS) if setup.sq_psn is None else setup.sq_psn
            for name, setup in scenario.qps.items()
        }
        for setup in scenario.qps.values():
            self._create(setup)
        for setup in scenario.qps.values():
            self._bring_up(setup)
        self.engines.update(self.hcas)

    @property
    def unanswered(self) -> bool:
        """Return whether the queue pairs are of UC or UD, on which nothing is acknowledged."""
        return self.scenario.run.transport is not QpType.RC

    def _pkeys(self, node: str) -> tuple[int, ...]:
        """Return the P_Key table of an adapter: the default key, and the keys of its queue pairs."""
        own = (setup.p_key for setup in self.scenario.qps.values() if setup.node == node)
        return tuple(dict.fromkeys((DEFAULT_PKEY, *own)))

    def number_of(self, qp: str) -> int:
        return self.scenario.qps[qp].number

    def pd_of(self, qp: str) -> int:
        """Return the protection domain of a queue pair."""
        setup = self.scenario.qps[qp]
        if not setup.pd:
            return self.pds[setup.node]
        key = setup.node, setup.pd
        if key not in self._other_pds:
            self._other_pds[key] = self.hcas[setup.node].alloc_pd()
        return self._other_pds[key]

    def _create(self, setup: QpSetup) -> None:
        hca, pd = self.hcas[setup.node], self.pd_of(setup.name)
        srq = None
        if setup.srq is not None:
            key = setup.node, setup.srq
            if key not in self._srqs:
                self._srqs[key] = hca.create_srq(pd)
            srq = self._srqs[key]
        hca.create_qp(self.scenario.run.transport, pd, number=setup.number, srq=srq)

    def srq_of(self, qp: str) -> int | None:
        """Return the number of the shared receive queue of a queue pair, or None if it has none."""
        setup = self.scenario.qps[qp]
        return self._srqs[setup.node, setup.srq] if setup.srq is not None else None

    def _bring_up(self, setup: QpSetup) -> None:
        """Bring a queue pair to RTS, with the values that the ends of a connection exchange out of band."""
        kind: QpType = self.scenario.run.transport
        hca = self.hcas[setup.node]
        wanted: dict[str, Any] = {
            "pkey_index": hca.pkeys.index(setup.p_key), "port": 1, "qkey": QKEY, "sq_psn": self._psns[setup.name],
        }  # fmt: skip
        if setup.peer is not None:
            peer = self.scenario.qps[setup.peer]
            av = AddressVector(self.scenario.nodes[peer.node].address)
            wanted |= {"av": av, "dest_qpn": peer.number, "rq_psn": self._psns[peer.name]}
        for state, attributes in bring_up_steps(kind, hca.config, {**wanted, **setup.attributes}):
            hca.submit(ModifyQp(qp_num=setup.number, state=state, attributes=attributes), 0)
        for group in setup.groups:
            hca.attach_mcast(setup.number, group)

    def framer(self, node: NodeConfig) -> RoceFramer:
        return RoceFramer(node.address, node.ip_version, node.roce)

    def dscp(self) -> Dscp:
        """Return the DSCP of each traffic class: data and acknowledgements share a queue, CNPs have priority."""
        return traffic_classes(next(iter(self.scenario.nodes.values())).roce)

    def result(self, memories: Memories, judge: FrameJudge | None, output: str | None) -> RunResult:
        return replace(super().result(memories, judge, output), data_paths=self._data_paths(memories.bytes))

    def counters(self) -> dict[str, dict[str, int]]:
        return {
            name: {what: count for what, count in hca.counters.items() if not what.startswith(_NAK)}
            for name, hca in self.hcas.items()
        }

    def nacks(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for hca in self.hcas.values():
            for what, count in hca.counters.items():
                if what.startswith(_NAK):
                    counts[what.removeprefix("NAK ")] += count
        return dict(sorted(counts.items()))

    def posting(self) -> set[str]:
        """Return the names of the nodes whose applications post work. All other nodes are passive."""
        return {self.scenario.run.initiator}

    def _data_paths(self, size: int) -> dict[str, dict[str, Any]]:
        """Return the cost of the run's bytes at each node that has a data path (`engine.data_path`)."""
        return {
            name: data_path.cost(node.data_path, size, self.scenario.path, passive=name not in self.posting()).as_dict()
            for name, node in self.scenario.nodes.items()
            if node.data_path is not None
        }
