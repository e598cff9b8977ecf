"""Runs over RoCE step by step: a script, played by the simulator in which the fuzzer lives, on real frames.

`check.roce_machine.RoceSimulator` keeps both ends, the time and the invariants, which hold after every step. As in
`scripted`, packets that leave become frames, which the taps see; what a step does on the wire it does to a frame; and
what arrives is read from a frame again, so that an ICRC finds what was damaged.
"""

import hashlib
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

from uetproto.check.roce.model import PostedWork
from uetproto.check.roce.simulator import RoceSimulator
from uetproto.check.roce.steps import RoceStep
from uetproto.check.wire import ADDRESSES
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.run.script_run import FramedScript, mark, played
from uetproto.emulator.scenario.roce_script_syntax import RoceRow
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.contract import Datagram
from uetproto.engine.roce.contract import RocePacket
from uetproto.engine.roce.packets import parse
from uetproto.errors import LocalError
from uetproto.framing.roce import RoceFramer
from uetproto.wire.headers.roce import Nak, Operation


def play(scenario: Scenario, output: str | None, check: bool) -> RunResult:
    """Plays the whole script."""
    return played(RoceScript(scenario, check), output, check)


class RoceScript(FramedScript[RoceRow]):
    """A script on its way: `play`, or row by row `step`; then `result`."""

    def __init__(self, scenario: Scenario, check: bool) -> None:
        super().__init__(scenario)
        self.framers = tuple(RoceFramer(node.address, node.ip_version, node.roce) for node in self.nodes)
        first, second = self.nodes
        self.simulator = RoceSimulator(
            scenario.run.transport,
            (asdict(first.roce), asdict(second.roce)),
            (self._queue_pair(first.name), self._queue_pair(second.name)),
            twin=check,
        )
        self.simulator.wire = self.wire
        self.naks: Counter[str] = Counter()

    def _queue_pair(self, node: str) -> dict[str, Any]:
        """What `[qp.NAME]` says of the queue pair of a node."""
        setup = next((qp for qp in self.scenario.qps.values() if qp.node == node), None)
        if setup is None:
            raise LocalError(self.scenario.name, f"a script needs a queue pair of node {node}", "one of each end")
        own = {"number": setup.number, "sq_psn": setup.sq_psn or 0, "srq": setup.srq is not None}
        return {**setup.attributes, **own}

    # Steps

    def step(self, row: RoceRow) -> None:
        """One row. Raises `LocalError` for what is not possible now, `Violation` for a broken invariant."""
        step = row.step
        try:
            match step.action:
                case "deliver" | "drop" | "mark" | "corrupt":
                    for number in self._there(step):
                        getattr(self, f"_{step.action}")(number, step)
                case "inject":
                    self._inject(step)
                case _:
                    self.simulator.apply(step)
        except LocalError as error:
            raise LocalError(*error.args, place=row.where) from error

    def _leaves(self, packet: Datagram, now: int) -> bytes:
        self._count_nak(packet)
        return super()._leaves(packet, now)

    def _count_nak(self, packet: Datagram) -> None:
        parsed = parse(packet) if isinstance(packet, RocePacket) else None
        if parsed is not None and parsed.operation == Operation.ACKNOWLEDGE and "syndrome" in parsed.values:
            syndrome = parsed.values["syndrome"]
            if syndrome >> 5 & 3 == 1:
                self.naks["RNR"] += 1
            elif syndrome in Nak.__members__.values():
                self.naks[Nak(syndrome).name] += 1

    def _deliver(self, number: int, step: RoceStep) -> None:
        """The frame comes to the tap, then to the adapter, if its ICRC and its lower headers are right."""
        simulator = self.simulator
        node = simulator.node_of(self.wire.flight[number].dst)
        frame = self.wire.frames[number]
        self._tap(node, frame, simulator.now)
        self.wire.fates.arrived(frame)
        packet = self.framers[node].packet(frame)
        if packet is None:
            simulator.apply(RoceStep("drop", number=number))
        elif frame in self._spoilt:  # no ICRC has seen it: bytes that nobody has sent
            simulator.apply(RoceStep("drop", number=number))
            simulator.apply(RoceStep("inject", node, data=bytes(packet.header)))
        else:
            self.wire.flight[number] = replace(packet, src=ADDRESSES[1 - node], dst=ADDRESSES[node])
            simulator.apply(RoceStep("deliver", number=number))

    def _drop(self, number: int, step: RoceStep) -> None:
        self.simulator.apply(RoceStep("drop", number=number))
        self.wire.fates.lost(self.wire.frames[number])

    def _inject(self, step: RoceStep) -> None:
        """A frame that nobody has sent."""
        peer = 1 - step.node
        packet = RocePacket(self.nodes[peer].address, self.nodes[step.node].address, step.data)
        self._tap(step.node, self.framers[peer].frame(packet), self.simulator.now)
        self.damaged += 1
        self.simulator.apply(step)

    def _mark(self, number: int, step: RoceStep) -> None:
        marked = mark(self.wire.frames[number])
        if marked is not self.wire.frames[number]:  # it is ECN-capable
            self.wire.change(number, marked)
            self.simulator.apply(RoceStep("mark", number=number))

    # What came of it

    def result(self, output: str | None) -> RunResult:
        """What sends that ended well carried, against what is where it was to go."""
        source, target = hashlib.sha256(), hashlib.sha256()
        match, size = True, 0
        for work in self._ended_well():
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

    def _ended_well(self) -> list[PostedWork]:
        """Sends of which the peer has all, or that have brought all."""
        return [work for shadow in self.simulator.shadows for work in shadow.works if work.ended]
