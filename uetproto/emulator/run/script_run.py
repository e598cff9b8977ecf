"""What scripts have in common, over UET and over RoCE.

Packets that leave become frames, which the taps see; what a step does on the wire it does to a frame; and what arrives
is read from a frame again, so that its CRC finds what was damaged.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from uetproto.check.registry import Violation
from uetproto.check.wire import ADDRESSES, ALL, HISTORY, DatagramWire
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.frame_outcome import Fate, Fates
from uetproto.emulator.network.scripted_wire import legal_frames
from uetproto.emulator.network.tap import Capture, Writer
from uetproto.emulator.run.result import RunResult, comment_of
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.contract import Datagram, TrafficClass
from uetproto.errors import LocalError
from uetproto.framing.framer import Framer
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.wire.capture.pcap import ETHERNET, open_writer
from uetproto.wire.headers.ethernet import Ecn, EtherType, internet_checksum

_IPV4_SIZE = 20
_Row = TypeVar("_Row")


class Sink(Protocol):
    """What takes the frames that pass the taps: `tap.Capture`, or anything like it."""

    def add(self, time: int, frame: bytes, interface: int, leaves: bool = False) -> None: ...


def played(script: "FramedScript[Any]", output: str | None, check: bool) -> RunResult:
    """Plays a whole script, watched and captured; `check` also asks that everything ends."""
    scenario = script.scenario
    judge = FrameJudge(scenario) if check else None
    with ExitStack() as owned:
        writer: Writer | None = None
        if output is not None:
            interfaces = [(f"{name}.0", ETHERNET) for name in scenario.taps]
            writer = owned.enter_context(open_writer(output, comment=comment_of(scenario), interfaces=interfaces))
        if judge is not None:
            writer = judge.watch(writer)
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


class FramedWire(DatagramWire):
    """Beside each packet its frame, as it left or as a step has changed it since."""

    __slots__ = ("_leaves", "fates", "frames")

    def __init__(self, leaves: Callable[[Datagram, int], bytes]) -> None:
        """`leaves` makes the frame of a packet that an endpoint sends; no byte: it does not leave."""
        super().__init__()
        self.fates = Fates()
        self._leaves = leaves
        self.frames: dict[int, bytes] = {}
        """By number; a frame that has arrived can still be copied."""

    def send(self, packets: list[Datagram], now: int) -> None:
        leaving: list[Datagram] = []
        for packet in packets:
            frame = self._leaves(packet, now)
            if frame:
                self.frames[self.sent + len(leaving)] = frame
                leaving.append(packet)
        super().send(leaving, now)
        if len(self.frames) > len(self.flight) + 2 * HISTORY:
            kept = ((number, self.frames[number]) for number in self.frames if self._can_be_named(number))
            self.frames = dict(kept)

    def _can_be_named(self, number: int) -> bool:
        return number in self.flight or number >= self.sent - HISTORY

    def copy(self, number: int) -> int | None:
        packet = self.recent(number)
        if packet is None:
            return None
        copied = self.sent
        self.frames[copied] = self.frames[number]
        self.fates.copied(self.frames[number])
        super().send([replace(packet)], self.born[number % len(self.born)])
        return copied

    def change(self, number: int, now: bytes, fate: Fate | None = None) -> None:
        self.fates.changed(self.frames[number], now, fate)
        self.frames[number] = now


class FramedScript(ABC, Generic[_Row]):
    """A script on its way: `play`, or row by row `step`; then `result`. A subclass makes `framers` and `simulator`."""

    framers: Sequence[Framer]
    simulator: Any
    """The simulator of the fuzzer: both ends, the time, the invariants."""

    def __init__(self, scenario: Scenario) -> None:
        run_ = scenario.run
        self.scenario = scenario
        self.nodes = tuple(scenario.nodes[name] for name in (run_.initiator, run_.target))
        self.wire = FramedWire(self._leaves)
        self.clock = Clock()
        self.sink: Sink | None = None
        self._interfaces = {name: number for number, name in enumerate(scenario.taps)}
        self._spoilt: set[bytes] = set()
        """Frames as `corrupt` has made them."""
        self.damaged = 0
        """Frames that `corrupt` changed or `inject` made: nobody is to blame for what is wrong with them."""
        self.sent = self.bytes = self.repeated = 0

    @abstractmethod
    def step(self, row: _Row) -> None:
        """One row. Raises `LocalError` for what is not possible now, `Violation` for a broken invariant."""

    @abstractmethod
    def result(self, output: str | None) -> RunResult:
        """What came of it."""

    def capture_to(self, writer: Writer) -> Capture:
        """What passes the taps is written."""
        self.sink = capture = Capture(self.clock, writer, patience=None)
        self.wire.fates = capture.fates
        return capture

    def play(self) -> Violation | None:
        """All rows, or up to the one that breaks an invariant."""
        try:
            for row in self.scenario.script:
                self.step(row)  # type: ignore[arg-type]
        except Violation as violation:
            return violation
        return None

    def finish(self) -> Violation | None:
        """The network delivers what is still on its way, seen by no tap: all must end.

        pds.md §18 items 49–52, roce.md §15 item 9.
        """
        self.sink = None
        try:
            self.simulator.finish()
        except Violation as violation:
            return violation
        return None

    def _there(self, step: Any) -> list[int]:
        flight = self.wire.flight
        if step.number == ALL:
            return list(flight)
        if step.number not in flight:
            raise LocalError(f"frame {step.number} is not on the wire; {legal_frames(flight)}")
        return [step.number]

    def _leaves(self, packet: Datagram, now: int) -> bytes:
        """The frame of a packet; the tap of its node sees it."""
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

    def _corrupt(self, number: int, step: Any) -> None:
        frame = bytearray(self.wire.frames[number])
        if step.at >= len(frame):
            raise LocalError("", f"frame {number} has {len(frame)} bytes", f"at = 0 … {len(frame) - 1}")
        frame[step.at] ^= 1
        self.wire.change(number, bytes(frame), Fate.DAMAGED)
        self._spoilt.add(bytes(frame))
        self.damaged += 1

    def refused(self) -> dict[str, int]:
        """Frames that the framers did not let through, by why."""
        return {
            name: sum(getattr(framer, name) for framer in self.framers) for name in ("bad_crc", "bad_header", "foreign")
        }


def mark(frame: bytes) -> bytes:
    """The frame with CE, as a congested switch sets it where a packet is ECN-capable."""
    ipv4 = frame[12:14] == EtherType.IPV4.to_bytes(2, "big")
    at, shift = ETHERNET_SIZE + 1, 0 if ipv4 else 4
    if not frame[at] >> shift & 3:
        return frame
    marked = bytearray(frame)
    marked[at] |= Ecn.CE << shift
    if ipv4:
        end = ETHERNET_SIZE + _IPV4_SIZE
        marked[end - 10 : end - 8] = b"\0\0"
        marked[end - 10 : end - 8] = internet_checksum(bytes(marked[ETHERNET_SIZE:end])).to_bytes(2, "big")
    return bytes(marked)
