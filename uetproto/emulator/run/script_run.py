# SPDX-License-Identifier: GPL-2.0-only
"""This module plays a script row by row on a simulator of `uetproto.check`, with encoded frames.

`check.simulator` holds both ends, the time and the invariants, which it checks after every step. This module encodes
each packet that leaves an end as a frame, which the taps record. A step may change a frame on the wire. An arriving
packet is decoded from its frame, so that the CRC detects damage.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol

from uetproto.check.registry import InvariantViolation
from uetproto.check.simulator import Simulator, StepT
from uetproto.check.wire import ADDRESSES, ALL, HISTORY, DatagramWire
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.scripted_wire import legal_frames
from uetproto.emulator.network.tap import FrameWriter, TapCapture
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.run.scenario_run import Progress
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.script_syntax import ScriptRow
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.contract import Datagram, TrafficClass
from uetproto.errors import LocalError
from uetproto.framing.framer import Framer
from uetproto.impair.frame_outcome import FrameOutcome, FrameOutcomes
from uetproto.impair.red import mark


class FrameSink(Protocol):
    """A frame sink takes the frames that pass the taps, as `tap.TapCapture` does."""

    def add(self, time: int, frame: bytes, interface: int, leaves: bool = False) -> None: ...


class FramedWire(DatagramWire):
    """A framed wire keeps the frame of each packet next to the packet, with the changes that steps have made to the
    frame.
    """

    __slots__ = ("_encode", "frames", "outcomes")

    def __init__(self, encode: Callable[[Datagram, int], bytes]) -> None:
        """`encode` makes the frame of a packet that an end sends; a packet with an empty frame does not leave."""
        super().__init__()
        self.outcomes = FrameOutcomes()
        self._encode = encode
        self.frames: dict[int, bytes] = {}
        """Frames on the wire. The key is the number of the frame. A frame that has arrived stays for some time, as it
        can still be copied."""

    def send(self, packets: list[Datagram], now: int) -> None:
        leaving: list[Datagram] = []
        for packet in packets:
            frame = self._encode(packet, now)
            if frame:
                self.frames[self.sent + len(leaving)] = frame
                leaving.append(packet)
        super().send(leaving, now)
        if len(self.frames) > len(self.flight) + 2 * HISTORY:
            self.frames = {number: frame for number, frame in self.frames.items() if self._can_be_named(number)}

    def _can_be_named(self, number: int) -> bool:
        return number in self.flight or number >= self.sent - HISTORY

    def copy(self, number: int) -> int | None:
        packet = self.recent(number)
        if packet is None:
            return None
        copied = self.sent
        self.frames[copied] = self.frames[number]
        self.outcomes.copied(self.frames[number])
        super().send([replace(packet)], self.born[number % len(self.born)])
        return copied

    def change(self, number: int, now: bytes, outcome: FrameOutcome | None = None) -> None:
        """Replace the frame `number` by `now`. `outcome` says what happened to the frame, if the capture is to say
        so.
        """
        self.outcomes.changed(self.frames[number], now, outcome)
        self.frames[number] = now


class ScriptRun(ABC, Generic[StepT]):
    """This is the base class of runs of a script. A subclass has the parts of one transport. The method `step` plays a
    single row.
    """

    step_type: ClassVar[Callable[..., Any]]
    """Class of the steps that the simulator plays."""
    simulator: Simulator[StepT, DatagramWire]
    framers: Sequence[Framer]
    """Framers of both ends. A subclass sets them."""

    def __init__(self, scenario: Scenario) -> None:
        run_ = scenario.run
        self.scenario = scenario
        self.nodes = tuple(scenario.nodes[name] for name in (run_.initiator, run_.target))
        self.wire = FramedWire(self._encode)
        self.clock = Clock()
        self.sink: FrameSink | None = None
        self.violation: InvariantViolation | None = None
        """Violation of an invariant, after which no row is played. It is None if no row broke an invariant."""
        self._capture: TapCapture | None = None
        self._interfaces = {name: number for number, name in enumerate(scenario.taps)}
        self._changed: set[bytes] = set()
        """Frames after the change by `corrupt`."""
        self.damaged = 0
        """Number of frames that `corrupt` changed or `inject` made. These frames may be wrong on purpose. The
        judge therefore reports wrong frames only if it finds more than this number."""
        self.sent = self.bytes = self.repeated = 0
        self.cross: Callable[[int, bytes], None] = lambda node, frame: None
        """Function that is called with each frame before it arrives at a node, as one that carries it over a real
        link."""
        self.wait: Callable[[int], None] = lambda duration: None
        """Function that is called when time passes, with the duration in picoseconds."""

    # The run (`play.PlayableRun`)

    def guard(self, judge: FrameJudge) -> None:
        """Do nothing: the simulator checks the invariants."""

    def connect(self, writer: FrameWriter | None) -> None:
        """Write frames that pass the taps to `writer`, if it is not None."""
        if writer is not None:
            self.sink = self._capture = TapCapture(self.clock, writer, patience=None)
            self.wire.outcomes = self._capture.outcomes

    def play(self, progress: Progress | None = None) -> None:
        """Play all rows, or only the rows up to the first that breaks an invariant."""
        try:
            for row in self.scenario.script:
                self.step(row)
        except InvariantViolation as violation:
            self.violation = violation

    def close(self) -> None:
        """Write the frames that the capture still holds."""
        if self._capture is not None:
            self._capture.close()

    def outcome(self, judge: FrameJudge | None, output: str | None) -> RunResult:
        """Return the result of the run. If there is a judge, liveness is checked, too."""
        found = self.result(output)
        if judge is None:
            texts: tuple[str, ...] = ()
        else:
            self.violation = self.violation or self.finish()
            texts = judge.findings(self.damaged)
        if self.violation is not None:
            texts = (*texts, str(self.violation))
        return replace(found, checked=judge.frames if judge else None, findings=texts)

    def finish(self) -> InvariantViolation | None:
        """Deliver the packets still in transit without recording them. Return the violation of a liveness invariant, or
        None.

        These invariants are pds.md §18 items 49–52 and roce.md §15 item 9.
        """
        self.sink = None
        try:
            self.simulator.finish()
        except InvariantViolation as violation:
            return violation
        return None

    # The result

    @abstractmethod
    def compared(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield, for each piece of a message, the bytes that it must write and the bytes that are in memory."""

    @abstractmethod
    def nacks(self) -> dict[str, int]:
        """Return how many NACKs the ends have sent. The key is the name of the NACK's code."""

    @abstractmethod
    def counters(self) -> dict[str, dict[str, int]]:
        """Return the counters of each node."""

    @abstractmethod
    def failures(self) -> list[str]:
        """Return the reasons why the run failed. The list is empty if the run did not fail."""

    def result(self, output: str | None) -> RunResult:
        """Return the result of the rows that were played. For this result, the bytes that had to arrive are compared
        with those that arrived.
        """
        source, target = hashlib.sha256(), hashlib.sha256()
        match, size, nacks = True, 0, self.nacks()
        for data, found in self.compared():
            match = match and data == found
            size += len(data)
            source.update(data)
            target.update(found)
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
            nacks=sum(nacks.values()),
            virtual_time_ps=self.simulator.now,
            capture=output,
            failure="; ".join(self.failures()) or None,
            happened={name: count for name, count in self.refused().items() if count},
            nacks_by_code=nacks,
            counters=self.counters(),
        )

    # Steps

    def step(self, row: ScriptRow[Any]) -> None:
        """Play a row. Raises `LocalError` for a step that is not possible now, and `InvariantViolation` for a broken
        invariant.
        """
        step, before = row.step, self.simulator.now
        try:
            act = _FRAME_ACTIONS.get(step.action)
            if act is not None:
                for number in self._there(step):
                    act(self, number, step)
            elif step.action == "inject":
                self._inject(step)
            else:
                self._apply(row)
        except LocalError as error:
            raise LocalError(
                error.name, f"{error.value}{self._told()}", error.legal, place=row.where, id=error.id
            ) from error
        if self.simulator.now > before:
            self.wait(self.simulator.now - before)

    def _apply(self, row: ScriptRow[Any]) -> None:
        self.simulator.apply(row.step)

    def _told(self) -> str:
        """Return a text that a transport adds to error messages of a row."""
        return ""

    def _there(self, step: Any) -> list[int]:
        flight = self.wire.flight
        if step.number == ALL:
            return list(flight)
        if step.number not in flight:
            raise LocalError(f"frame {step.number} is not on the wire; {legal_frames(flight)}", id="step-impossible")
        return [step.number]

    def _deliver(self, number: int, step: Any) -> None:
        """Record the frame, then deliver it to its node, if its CRC and its lower headers are right."""
        simulator = self.simulator
        node = self.wire.flight[number].dst - ADDRESSES[0]
        frame = self.wire.frames[number]
        self.cross(node, frame)
        self._tap(node, frame, simulator.now)
        self.wire.outcomes.arrived(frame)
        packet = self.framers[node].packet(frame)
        if packet is None:
            simulator.apply(self.step_type("drop", number=number))
        elif frame in self._changed:  # damage that no CRC detected: the simulator must take these bytes as injected
            simulator.apply(self.step_type("drop", number=number))
            simulator.apply(self.step_type("inject", node, data=bytes(packet.header)))
        else:
            self.wire.flight[number] = replace(packet, src=ADDRESSES[1 - node], dst=ADDRESSES[node])
            simulator.apply(self.step_type("deliver", number=number))
        self._delivered(node)

    def _delivered(self, node: int) -> None:
        """Do what a transport requires after a frame has arrived at a node; most require nothing."""

    def _drop(self, number: int, step: Any) -> None:
        self.simulator.apply(self.step_type("drop", number=number))
        self.wire.outcomes.lost(self.wire.frames[number])

    def _mark(self, number: int, step: Any) -> None:
        marked = mark(self.wire.frames[number])
        if marked is not None:  # the frame is ECN-capable
            self.wire.change(number, marked)
            self.simulator.apply(self.step_type("mark", number=number))

    def _corrupt(self, number: int, step: Any) -> None:
        frame = bytearray(self.wire.frames[number])
        if step.at >= len(frame):
            raise LocalError(
                "", f"frame {number} has {len(frame)} bytes", f"at = 0 … {len(frame) - 1}", id="step-impossible"
            )
        frame[step.at] ^= 1
        self.wire.change(number, bytes(frame), FrameOutcome.DAMAGED)
        self._changed.add(bytes(frame))
        self.damaged += 1

    def _inject(self, step: Any) -> None:
        """Record a frame that no node has sent, and deliver its bytes."""
        frame = self.framers[1 - step.node].frame(self.forged(step))
        self.cross(step.node, frame)
        self._tap(step.node, frame, self.simulator.now)
        self.damaged += 1
        self.simulator.apply(step)

    @abstractmethod
    def forged(self, step: Any) -> Datagram:
        """Return the packet of an `inject` step, as the peer of the step's node would send it."""

    def _encode(self, packet: Datagram, now: int) -> bytes:
        """Encode and record the frame of a packet that leaves; return the frame, empty if it must not leave."""
        node = packet.src - ADDRESSES[0]
        framer = self.framers[node]
        frame = framer.frame(replace(packet, src=self.nodes[node].address, dst=self.nodes[1 - node].address))
        if not frame:
            return frame
        self.sent += 1
        self.bytes += len(frame)
        self.repeated += packet.traffic_class is not TrafficClass.DATA and framer.repeats(packet)
        self._tap(node, frame, now, leaves=True)
        return frame

    def _tap(self, node: int, frame: bytes, now: int, leaves: bool = False) -> None:
        interface = self._interfaces.get(self.nodes[node].name)
        if self.sink is not None and interface is not None:
            self.clock.now = now
            self.sink.add(now, frame, interface, leaves)

    def refused(self) -> dict[str, int]:
        """Return how many frames were refused. The key is the reason."""
        return {
            "bad_crc": sum(framer.bad_crc for framer in self.framers),
            "bad_header": sum(framer.bad_header for framer in self.framers),
            "foreign": sum(framer.foreign for framer in self.framers),
        }


_FRAME_ACTIONS: dict[str, Callable[[ScriptRun[Any], int, Any], None]] = {
    "deliver": ScriptRun._deliver,
    "drop": ScriptRun._drop,
    "mark": ScriptRun._mark,
    "corrupt": ScriptRun._corrupt,
}
"""Functions that play the actions on one frame of the wire, by the name of the action."""
