# SPDX-License-Identifier: GPL-2.0-only
"""This module has the fabric endpoints and framers that every run over UET with a real SES uses."""

from dataclasses import replace

from uetproto.emulator.network.tap import FrameWriter
from uetproto.emulator.run.result import Memories, RunResult, counters_of
from uetproto.emulator.run.scenario_run import ScenarioRun
from uetproto.emulator.run.scripted_fep import ScriptedFep
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.settings import NodeConfig, Scenario
from uetproto.emulator.scenario.target_faults import refusals
from uetproto.engine.fep import Fep
from uetproto.engine.pds.nacks import nacks_of
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.framing.tss import Secured
from uetproto.framing.uet import UetFramer


class UetRun(ScenarioRun):
    """This is the base class of runs over UET. A subclass has the application in its methods `play` and `on_event`."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        clock, security = self.clock, scenario.security
        self.secured = None if security is None else Secured(security, lambda: clock.now)
        self.feps = {name: self._fep(node) for name, node in scenario.nodes.items()}
        self.engines.update(self.feps)

    @property
    def unanswered(self) -> bool:
        """Return whether all requests were sent in mode UUD, in which nothing is acknowledged."""
        counters = [fep.pds.counters for fep in self.feps.values()]
        return any(one.uud_tx for one in counters) and not any(one.data_tx or one.rudi_tx for one in counters)

    def _fep(self, node: NodeConfig) -> Fep:
        kind = ScriptedFep if self.scenario.steps else Fep
        chance = self.chance(node.name, "engine")
        plane, pds, contexts = self.scenario.plane, node.pds, None
        if plane is not None and plane.controls:
            contexts, pds = plane.contexts(self.chance(node.name, "cc")), plane.tuned(pds)
        fep = kind(
            node.address, chance, pds=pds, ses=node.ses, ip_version=node.ip_version, congestion=contexts,
            objects=self.scenario.fabric.wire == "objects",
        )  # fmt: skip
        fep.target.fault = refusals(rule for rule in self.scenario.target_faults if rule.node == node.name)
        return fep

    def _preset(self, node: NodeConfig) -> None:
        pds, run_ = self.feps[node.name].pds, self.scenario.run
        if node.preset.peer_pdcid and node.name in (run_.initiator, run_.target):
            first = node.name == run_.initiator
            peer = self.scenario.nodes[run_.target if first else run_.initiator].address
            pds.adopt(peer, run_.mode, first, node.preset)
        elif node.preset != Preset():
            pds.preset(node.preset)

    def guard(self, judge: FrameJudge) -> None:
        """Check the invariants of initiator and target during the run."""
        from uetproto.emulator.run.engine_guards import EngineGuards

        run_ = self.scenario.run
        guards = EngineGuards(self.feps[run_.initiator], self.feps[run_.target], judge.find)
        for name in (run_.initiator, run_.target):
            self.engines[name] = guards.of(self.feps[name])

    def framer(self, node: NodeConfig) -> UetFramer:
        how = self.scenario.encapsulation
        if self.secured is not None:
            return self.secured.framer(node, how)
        return UetFramer(node.address, node.ip_version, how, ecn_capable=node.pds.ecn_capable)

    def connect(self, writer: FrameWriter | None) -> None:
        for node in self.scenario.nodes.values():
            self._preset(node)
        super().connect(writer)

    def nacks(self) -> dict[str, int]:
        return nacks_of(fep.pds.nack_tx for fep in self.feps.values())

    def counters(self) -> dict[str, dict[str, int]]:
        return counters_of({name: fep.pds for name, fep in self.feps.items()})

    def result(self, memories: Memories, judge: FrameJudge | None, output: str | None) -> RunResult:
        found = super().result(memories, judge, output)
        if self.secured is None:
            return found
        return replace(found, failure=self.secured.failure(self.failure), security=self.secured.report())
