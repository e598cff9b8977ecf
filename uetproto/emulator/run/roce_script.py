"""Runs of a script over RoCE, on a `RoceSimulator`."""

import hashlib
from collections import Counter
from dataclasses import asdict
from typing import Any

from uetproto.check.roce.model import PostedWork
from uetproto.check.roce.simulator import RoceSimulator
from uetproto.check.roce.steps import RoceStep
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.run.script_run import ScriptRun
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.contract import Datagram
from uetproto.engine.roce.contract import RocePacket
from uetproto.engine.roce.packets import parse
from uetproto.errors import LocalError
from uetproto.framing.roce import RoceFramer
from uetproto.wire.headers.roce import Nak, Operation


class RoceScript(ScriptRun[RoceStep]):
    """A run that plays a script over RoCE."""

    step_type = RoceStep
    simulator: RoceSimulator

    def __init__(self, scenario: Scenario, check: bool) -> None:
        """Make the simulator; with `check` a twin of the simulator takes the same steps (roce.md §15 item 10)."""
        super().__init__(scenario)
        self.framers = tuple(RoceFramer(node.address, node.ip_version, node.roce) for node in self.nodes)
        first, second = self.nodes
        self.simulator = RoceSimulator(
            scenario.run.transport,
            (asdict(first.roce), asdict(second.roce)),
            (self._queue_pair(first.name), self._queue_pair(second.name)),
            twin=check,
            wire=self.wire,
        )
        self.naks: Counter[str] = Counter()

    def _queue_pair(self, node: str) -> dict[str, Any]:
        """Return what `[qp.NAME]` says of the queue pair of a node."""
        setup = next((qp for qp in self.scenario.qps.values() if qp.node == node), None)
        if setup is None:
            raise LocalError(self.scenario.name, f"a script needs a queue pair of node {node}", "one of each end")
        own = {"number": setup.number, "sq_psn": setup.sq_psn or 0, "srq": setup.srq is not None}
        return {**setup.attributes, **own}

    def _encode(self, packet: Datagram, now: int) -> bytes:
        self._count_nak(packet)
        return super()._encode(packet, now)

    def _count_nak(self, packet: Datagram) -> None:
        parsed = parse(packet) if isinstance(packet, RocePacket) else None
        if parsed is not None and parsed.operation == Operation.ACKNOWLEDGE and "syndrome" in parsed.values:
            syndrome = parsed.values["syndrome"]
            if syndrome >> 5 & 3 == 1:
                self.naks["RNR"] += 1
            elif syndrome in Nak.__members__.values():
                self.naks[Nak(syndrome).name] += 1

    def forged(self, step: RoceStep) -> RocePacket:
        return RocePacket(self.nodes[1 - step.node].address, self.nodes[step.node].address, step.data)

    # The result

    def result(self, output: str | None) -> RunResult:
        """Return the result: what successful sends carried is compared with what is in memory."""
        source, target = hashlib.sha256(), hashlib.sha256()
        match, size = True, 0
        for work in self._succeeded():
            found = work.there()
            match = match and found == work.data
            size += work.length
            source.update(work.data)
            target.update(found)
        simulator = self.simulator
        errors = [
            f"{node.name}: {status.name}"
            for node, shadow in zip(self.nodes, simulator.shadows, strict=True)
            for status in shadow.errors
        ]
        return RunResult(
            scenario=self.scenario.name,
            seed=self.scenario.run.seed,
            match=match,
            sha256_source=source.hexdigest(),
            sha256_target=target.hexdigest(),
            bytes=size,
            packets=self.sent,
            wire_bytes=self.bytes,
            retransmissions=self.repeated,
            nacks=sum(self.naks.values()),
            virtual_time_ps=simulator.now,
            capture=output,
            failure="; ".join(errors) or None,
            happened={name: count for name, count in self.refused().items() if count},
            nacks_by_code=dict(sorted(self.naks.items())),
            counters={node.name: dict(end.hca.counters) for node, end in zip(self.nodes, simulator.ends, strict=True)},
        )

    def _succeeded(self) -> list[PostedWork]:
        """Return sends whose bytes have all arrived."""
        return [work for shadow in self.simulator.shadows for work in shadow.works if work.ended]
