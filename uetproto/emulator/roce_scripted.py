"""Runs over RoCE step by step: a script, played by the world in which the fuzzer lives, on real frames.

`check.roce_machine.RoceWorld` keeps both ends, the time and the invariants, which hold after every step. As in
`scripted`, packets that leave become frames, which the taps see; what a step does on the wire it does to a frame; and
what arrives is read from a frame again, so that an ICRC finds what was damaged.
"""

import hashlib
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

from uetproto.check.registry import Violation
from uetproto.check.roce_end import ADDRESSES
from uetproto.check.roce_machine import RoceWorld
from uetproto.check.roce_model import Work
from uetproto.check.roce_steps import RoceStep
from uetproto.check.steps import ALL
from uetproto.emulator.clock import Clock
from uetproto.emulator.fates import Fate
from uetproto.emulator.framer_roce import RoceFramer
from uetproto.emulator.result import Result, comment_of
from uetproto.emulator.roce_rows import RoceRow
from uetproto.emulator.rows import legal_frames
from uetproto.emulator.scripted import FramedWire, Sink, mark
from uetproto.emulator.settings import Scenario
from uetproto.emulator.tap import Capture, Writer
from uetproto.emulator.verify import Judge
from uetproto.engine.contract import Datagram
from uetproto.engine.roce_contract import RocePacket
from uetproto.engine.roce_packets import parse
from uetproto.errors import LocalError
from uetproto.wire.pcap import ETHERNET, open_writer
from uetproto.wire.roce import Nak, Operation


def play(scenario: Scenario, output: str | None, check: bool) -> Result:
    """Plays the whole script."""
    judge = Judge(scenario) if check else None
    with ExitStack() as owned:
        writer: Writer | None = None
        if output is not None:
            interfaces = [(f"{name}.0", ETHERNET) for name in scenario.taps]
            writer = owned.enter_context(open_writer(output, comment=comment_of(scenario), interfaces=interfaces))
        if judge is not None:
            writer = judge.watch(writer)
        script = RoceScript(scenario, check)
        capture = script.capture_to(writer) if writer is not None else None
        try:
            violation = script.play()
        finally:
            if capture is not None:
                capture.close()
        found = script.result(output)
        if check and violation is None:
            violation = script.finish()
        findings = judge.findings(script.damaged) if judge else ()
        return replace(
            found,
            checked=judge.frames if judge else None,
            findings=findings if violation is None else (*findings, str(violation)),
        )


class RoceScript:
    """A script on its way: `play`, or row by row `step`; then `result`."""

    def __init__(self, scenario: Scenario, check: bool) -> None:
        run_ = scenario.run
        self.scenario = scenario
        self.nodes = tuple(scenario.nodes[name] for name in (run_.initiator, run_.target))
        self.framers = tuple(RoceFramer(node.address, node.ip_version, node.roce) for node in self.nodes)
        first, second = self.nodes
        self.wire = FramedWire(self._leaves)
        self.world = RoceWorld(
            run_.transport,
            (asdict(first.roce), asdict(second.roce)),
            (self._queue_pair(first.name), self._queue_pair(second.name)),
            twin=check,
        )
        self.world.wire = self.wire
        self.clock = Clock()
        self.sink: Sink | None = None
        self._interfaces = {name: number for number, name in enumerate(scenario.taps)}
        self._spoilt: set[bytes] = set()
        """Frames as `corrupt` has made them."""
        self.damaged = 0
        """Frames that `corrupt` changed or `inject` made: nobody is to blame for what is wrong with them."""
        self.sent = self.bytes = self.repeated = 0
        self.naks: Counter[str] = Counter()

    def _queue_pair(self, node: str) -> dict[str, Any]:
        """What `[qp.NAME]` says of the queue pair of a node."""
        setup = next((qp for qp in self.scenario.qps.values() if qp.node == node), None)
        if setup is None:
            raise LocalError(
                f"{self.scenario.name}: a script needs a queue pair of node {node}; legal: one of each end"
            )
        own = {"number": setup.number, "sq_psn": setup.sq_psn or 0, "srq": setup.srq is not None}
        return {**setup.attributes, **own}

    def capture_to(self, writer: Writer) -> Capture:
        """What passes the taps is written."""
        self.sink = capture = Capture(self.clock, writer, patience=None)
        self.wire.fates = capture.fates
        return capture

    # Steps

    def play(self) -> Violation | None:
        """All rows, or up to the one that breaks an invariant."""
        try:
            for row in self.scenario.script:
                assert isinstance(row, RoceRow)
                self.step(row)
        except Violation as violation:
            return violation
        return None

    def finish(self) -> Violation | None:
        """The network delivers what is still on its way, seen by no tap: all must end (roce.md §15 item 9)."""
        self.sink = None
        try:
            self.world.finish()
        except Violation as violation:
            return violation
        return None

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
                    self.world.apply(step)
        except LocalError as error:
            raise LocalError(f"{row.where}: {error}") from error

    def _there(self, step: RoceStep) -> list[int]:
        flight = self.wire.flight
        if step.number == ALL:
            return list(flight)
        if step.number not in flight:
            raise LocalError(f"frame {step.number} is not on the wire; {legal_frames(flight)}")
        return [step.number]

    def _leaves(self, packet: Datagram, now: int) -> bytes:
        """The frame of a packet; the tap of its node sees it."""
        node = packet.src - ADDRESSES[0]
        frame = self.framers[node].frame(
            replace(packet, src=self.nodes[node].address, dst=self.nodes[1 - node].address)
        )
        self.sent += 1
        self.bytes += len(frame)
        self.repeated += self.framers[node].repeats(packet)
        self._count_nak(packet)
        self._tap(node, frame, now, leaves=True)
        return frame

    def _count_nak(self, packet: Datagram) -> None:
        parsed = parse(packet) if isinstance(packet, RocePacket) else None
        if parsed is not None and parsed.operation == Operation.ACKNOWLEDGE and "syndrome" in parsed.values:
            syndrome = parsed.values["syndrome"]
            if syndrome >> 5 & 3 == 1:
                self.naks["RNR"] += 1
            elif syndrome in Nak.__members__.values():
                self.naks[Nak(syndrome).name] += 1

    def _tap(self, node: int, frame: bytes, now: int, leaves: bool = False) -> None:
        interface = self._interfaces.get(self.nodes[node].name)
        if self.sink is not None and interface is not None:
            self.clock.now = now
            self.sink.add(now, frame, interface, leaves)

    def _deliver(self, number: int, step: RoceStep) -> None:
        """The frame comes to the tap, then to the adapter, if its ICRC and its lower headers are right."""
        world = self.world
        node = world.node_of(self.wire.flight[number].dst)
        frame = self.wire.frames[number]
        self._tap(node, frame, world.now)
        self.wire.fates.arrived(frame)
        packet = self.framers[node].packet(frame)
        if packet is None:
            world.apply(RoceStep("drop", number=number))
        elif frame in self._spoilt:  # no ICRC has seen it: bytes that nobody has sent
            world.apply(RoceStep("drop", number=number))
            world.apply(RoceStep("inject", node, data=bytes(packet.header)))
        else:
            self.wire.flight[number] = replace(packet, src=ADDRESSES[1 - node], dst=ADDRESSES[node])
            world.apply(RoceStep("deliver", number=number))

    def _drop(self, number: int, step: RoceStep) -> None:
        self.world.apply(RoceStep("drop", number=number))
        self.wire.fates.lost(self.wire.frames[number])

    def _inject(self, step: RoceStep) -> None:
        """A frame that nobody has sent."""
        peer = 1 - step.node
        packet = RocePacket(self.nodes[peer].address, self.nodes[step.node].address, step.data)
        self._tap(step.node, self.framers[peer].frame(packet), self.world.now)
        self.damaged += 1
        self.world.apply(step)

    def _mark(self, number: int, step: RoceStep) -> None:
        marked = mark(self.wire.frames[number])
        if marked is not self.wire.frames[number]:  # it is ECN-capable
            self.wire.change(number, marked)
            self.world.apply(RoceStep("mark", number=number))

    def _corrupt(self, number: int, step: RoceStep) -> None:
        frame = bytearray(self.wire.frames[number])
        if step.at >= len(frame):
            raise LocalError(f"frame {number} has {len(frame)} bytes; legal: at = 0 … {len(frame) - 1}")
        frame[step.at] ^= 1
        self.wire.change(number, bytes(frame), Fate.DAMAGED)
        self._spoilt.add(bytes(frame))
        self.damaged += 1

    # What came of it

    def result(self, output: str | None) -> Result:
        """What sends that ended well carried, against what is where it was to go."""
        source, target = hashlib.sha256(), hashlib.sha256()
        match, size = True, 0
        for work in self._ended_well():
            found = work.there()
            match = match and found == work.data
            size += work.length
            source.update(work.data)
            target.update(found)
        world = self.world
        happened = {
            name: sum(getattr(framer, name) for framer in self.framers) for name in ("bad_crc", "bad_header", "foreign")
        }
        errors = [
            f"{node.name}: {status.name}"
            for node, ledger in zip(self.nodes, world.ledgers, strict=True)
            for status in ledger.errors
        ]
        return Result(
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
            virtual_time_ps=world.now,
            capture=output,
            failure="; ".join(errors) or None,
            happened={name: count for name, count in happened.items() if count},
            nacks_by_code=dict(sorted(self.naks.items())),
            counters={node.name: dict(end.hca.counters) for node, end in zip(self.nodes, world.ends, strict=True)},
        )

    def _ended_well(self) -> list[Work]:
        """Sends of which the peer has all, or that have brought all."""
        return [work for ledger in self.world.ledgers for work in ledger.works if work.ended]
