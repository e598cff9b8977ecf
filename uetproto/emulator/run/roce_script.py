# SPDX-License-Identifier: GPL-2.0-only
"""This module plays a script over RoCE, with a `RoceSimulator`."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from uetproto.check.roce.simulator import RoceSimulator
from uetproto.emulator.run.script_run import ScriptRun
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.contract import Datagram
from uetproto.engine.roce.contract import RocePacket
from uetproto.engine.roce.packets import parse
from uetproto.errors import LocalError
from uetproto.framing.roce import RoceFramer
from uetproto.steps.roce import RoceStep
from uetproto.wire.headers.roce import Nak, Operation


class RoceScript(ScriptRun[RoceStep]):
    """This run plays a script over RoCE."""

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
        """Return the settings that `[qp.NAME]` gives the queue pair of a node."""
        setup = next((qp for qp in self.scenario.qps.values() if qp.node == node), None)
        if setup is None:
            raise LocalError(
                self.scenario.name, f"a script needs a queue pair of node {node}", "one of each end",
                id="step-impossible"
            )  # fmt: skip
        own = {"number": setup.number, "sq_psn": setup.sq_psn or 0, "srq": setup.srq is not None}
        return {**setup.attributes, **own}

    def _encode(self, packet: Datagram, now: int) -> bytes:
        parsed = parse(packet) if isinstance(packet, RocePacket) else None
        if parsed is not None and parsed.operation == Operation.ACKNOWLEDGE and "syndrome" in parsed.values:
            syndrome = parsed.values["syndrome"]
            if syndrome >> 5 & 3 == 1:
                self.naks["RNR"] += 1
            elif syndrome in Nak.__members__.values():
                self.naks[Nak(syndrome).name] += 1
        return super()._encode(packet, now)

    def forged(self, step: RoceStep) -> RocePacket:
        return RocePacket(self.nodes[1 - step.node].address, self.nodes[step.node].address, step.data)

    # The result

    def compared(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield two byte strings for each work request that has ended: the bytes of the request, and the bytes in its
        memory.
        """
        works = (work for shadow in self.simulator.shadows for work in shadow.works if work.ended)
        yield from ((work.data, work.there()) for work in works)

    def nacks(self) -> dict[str, int]:
        return dict(sorted(self.naks.items()))

    def counters(self) -> dict[str, dict[str, int]]:
        return {node.name: dict(end.hca.counters) for node, end in zip(self.nodes, self.simulator.ends, strict=True)}

    def failures(self) -> list[str]:
        ends = zip(self.nodes, self.simulator.shadows, strict=True)
        return [f"{node.name}: {status.name}" for node, shadow in ends for status in shadow.errors]
