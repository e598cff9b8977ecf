# SPDX-License-Identifier: GPL-2.0-only
"""A world has two ends and a wire between them. One end is the implementation, the other end is our engine.

Frames stay on the wire until a rule delivers, drops, copies, trims, marks or damages them. Time passes only when a rule
says so. After each step the frames that left are judged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import Readers
from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.framing.dscp import Dscp
from uetproto.impair.red import mark
from uetproto.impair.trim import trim
from uetproto.testing.adapters.adapter import Adapter, Steps
from uetproto.testing.adapters.engines import EngineAdapter
from uetproto.testing.adapters.guarded import GuardedAdapter
from uetproto.testing.machines.judge import LiveJudge, Verdicts
from uetproto.testing.machines.picture import Frames

TRANSIT = 1_000_000
"""Picoseconds that pass when a frame is delivered."""
HISTORY = 1024
"""Number of frames that can still be copied after they have left."""
QUANTA = 8
"""Number of parts in which a duration passes; the timers of the implementation run at the end of each part."""
PAUSE = 5 * MILLISECOND
"""Picoseconds that pass at first when `finish` waits for timers; the pause doubles while nothing happens."""
LONGEST_PAUSE = SECOND
ROUNDS = 12
"""Number of pauses for which `finish` waits at most, if no event occurs at either end during them."""
MOST_ARRIVALS = 20_000
"""Number of frames after which `finish` reports that an implementation never becomes quiet."""

IMPLEMENTATION, PEER = 0, 1
"""Numbers of the ends."""
ADDRESSES = ("10.0.0.1", "10.0.0.2")


class WorldFailure(AssertionError):  # noqa: N818 - it is what a machine finds, as a failed assertion is
    """The implementation departs from the protocol; the text begins with the rule or invariant."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.frames: Frames = ()
        """Frames at the port of the implementation up to the failure."""
        self.steps: Steps = ()
        """The rules that were played up to the failure, and their arguments, if a machine played them."""


def hold(condition: object, name: str, text: object) -> None:
    """Raise `WorldFailure` unless `condition` is true."""
    if not condition:
        raise WorldFailure(name, f"{text}")


@dataclass(slots=True)
class Flying:
    """This record holds a frame that is on the wire."""

    src: int
    data: bytes
    intact: bool = True
    """Whether no rule has changed the frame."""
    whole: bytes | None = None
    """The frame as it left, if a rule damaged it."""
    copied: bool = False
    """Whether a rule has made this copy."""
    before: bytes | None = None
    """The bytes of a frame that a rule has changed, as they were."""


class Watch(Protocol):
    """A watch follows the frames at the port of the implementation."""

    def arrives(self, number: int, frame: Flying, now: int) -> None:
        """Note a frame that the implementation is about to receive."""

    def leaves(self, number: int, data: bytes, now: int) -> None:
        """Judge a frame that the implementation has sent. Raises `WorldFailure`."""

    def check(self, now: int) -> None:
        """Judge what must have been sent until now. Raises `WorldFailure`."""


class World:
    """This class holds the two ends, the wire, the time and the judge of one run."""

    def __init__(
        self, tested: GuardedAdapter, peer: EngineAdapter, configs: Sequence[Mapping[str, Any]],
        options: Options, readers: Readers, on_event: Callable[[int, Mapping[str, Any]], None],
        on_state: Callable[[Mapping[str, Any] | None], None], verdicts: Verdicts,
    ) -> None:  # fmt: skip
        """`configs` are those of both ends. `on_event` gets the events of both, with the number of the end. `on_state`
        gets the state of the implementation after each step, or None for a black box. `verdicts` counts what is
        judged."""
        self.peer = peer
        self.ends: tuple[Adapter, Adapter] = (tested, peer)
        self.judge = LiveJudge(options, readers)
        self.verdicts = verdicts
        self._on_event, self._on_state = on_event, on_state
        self._dscp = Dscp()
        self.watch: Watch | None = None
        self.now = 0
        self.flight: dict[int, Flying] = {}
        self._history: dict[int, Flying] = {}
        self.sent = 0
        self.events = 0
        """Number of events of both ends."""
        self.disturbed = 0
        """Number of frames that were lost, trimmed or damaged."""
        self.disordered = 0
        """Number of frames that were copied, or that arrived before an older one."""
        self._waited = 0
        """Picoseconds that passed while frames were on the wire."""
        self._configs = configs

    def begin(self) -> None:
        """Reset both ends, and take what leaves them at once."""
        for node in (IMPLEMENTATION, PEER):
            self.ends[node].reset({**self._configs[node], "address": ADDRESSES[node], "peer": ADDRESSES[1 - node]})
        self.settle()

    # Steps

    def submit(self, node: int, work: Mapping[str, Any]) -> None:
        """Hand an operation to an end. Raises `WorkRefused`."""
        self.ends[node].submit(work)
        self.settle()

    def number(self, index: int) -> int:
        """Return the number of the frame at a place on the wire."""
        return list(self.flight)[index % len(self.flight)]

    def deliver(self, number: int) -> None:
        self.pass_time(TRANSIT, parts=1)
        self._deliver(number)

    def _deliver(self, number: int) -> None:
        frame = self.flight.pop(number)
        node = 1 - frame.src
        self.disordered += any(older < number and each.src == frame.src for older, each in self.flight.items())
        if node == IMPLEMENTATION:
            self.judge.take(frame.data, self.now, sent=False, whole=frame.whole)
            if self.watch is not None:
                self.watch.arrives(number, frame, self.now)
        before = self.peer.refused
        self.ends[node].deliver(frame.data)
        if node == PEER and frame.intact and self.peer.refused != before:
            raise WorldFailure("FRAME", "the peer drops the frame: wrong lower headers, address, CRC or seal")
        self.settle()

    @property
    def late(self) -> int:
        """Return the number of timers that ran out while frames waited on the wire: timers of 1 ms that double."""
        return (1 + self._waited // MILLISECOND).bit_length() - 1

    def drop(self, number: int) -> None:
        del self.flight[number]
        self.disturbed += 1

    def duplicate(self, number: int) -> None:
        """Put a copy of a frame on the wire, if the frame left recently."""
        frame = self._history.get(number)
        if frame is not None:
            self.disordered += 1
            self._fly(Flying(frame.src, frame.data, frame.intact, frame.whole, True, frame.before))

    def change(self, number: int, changed: bytes | None, whole: bytes | None = None) -> None:
        """Replace the bytes of a frame, unless `changed` is None, or the frame was changed before. `whole` is the frame
        as it left if it is damaged."""
        if changed is not None and self.flight[number].intact:
            old = self.flight[number]
            self.flight[number] = Flying(old.src, changed, False, whole, old.copied, old.data)
            self.disturbed += 1

    def trim(self, number: int, last_hop: bool) -> None:
        self.change(number, trim(self.flight[number].data, self._dscp, last_hop=last_hop))

    def mark(self, number: int) -> None:
        marked = mark(self.flight[number].data)
        if marked is not None:
            self.flight[number].data = marked

    def corrupt(self, number: int, bit: int) -> None:
        """Change one bit behind the Ethernet header. The receiver notices it by a checksum or the CRC32C."""
        whole = self.flight[number].data
        data = bytearray(whole)
        at = 14 + bit // 8 % (len(data) - 14)
        data[at] ^= 1 << bit % 8
        self.change(number, bytes(data), whole)

    def pass_time(self, picoseconds: int, parts: int = QUANTA) -> None:
        """Let time pass at both ends, in `parts` equal parts. Take the frames of both ends after each part."""
        parts = max(1, min(parts, picoseconds))
        for part in range(parts):
            duration = picoseconds * (part + 1) // parts - picoseconds * part // parts
            for end in self.ends:
                end.advance(duration)
            self.now += duration
            self._waited += duration if self.flight else 0
            self.settle()

    # What the ends do

    def settle(self) -> None:
        """Take the frames and events of both ends, and judge the frames. Raises `WorldFailure`, `AdapterFault`."""
        for node, end in enumerate(self.ends):
            for data in end.poll():
                if node == IMPLEMENTATION:
                    others = self.judge.others
                    self.judge.take(data, self.now, sent=True)
                    if self.judge.others != others:
                        raise WorldFailure(
                            "FRAME", f"no frame of the protocol: {len(data)} bytes {data[:48].hex(' ')}".rstrip()
                        )
                    if self.watch is not None:
                        self.watch.leaves(self.sent, data, self.now)
                self._fly(Flying(node, data))
            seen = end.observe()
            if node == IMPLEMENTATION:
                self._on_state(None if seen is None else seen.get("state"))
            for event in () if seen is None else seen.get("events", ()):
                self.events += 1
                self._on_event(node, event)
        self.check()
        if self.watch is not None:
            self.watch.check(self.now)

    def check(self) -> None:
        """Raise `WorldFailure` for a new finding about a frame of the implementation."""
        found = self.judge.finding()
        if found is not None:
            raise WorldFailure(found.rule.id, f"{found.text} ({found.rule.cite})")

    def _fly(self, frame: Flying) -> None:
        self.flight[self.sent] = frame
        self._history[self.sent] = Flying(frame.src, frame.data, frame.intact, before=frame.before)
        self._history.pop(self.sent - HISTORY, None)
        self.sent += 1

    # The end

    def finish(self, done: Callable[[], bool]) -> None:
        """Let the network deliver everything and time pass, until nothing happens any more. Raises `WorldFailure` for
        an implementation that never becomes quiet.
        """
        pause, rounds, events = PAUSE, 0, self.events
        for _ in range(MOST_ARRIVALS):
            if self.flight:
                self.deliver(next(iter(self.flight)))
                continue
            if self.events != events:
                pause, rounds, events = PAUSE, 0, self.events
            if rounds == ROUNDS or (done() and rounds == ROUNDS // 2):
                return
            rounds += 1
            self.pass_time(pause, parts=1)
            pause = min(2 * pause, LONGEST_PAUSE)
        raise WorldFailure(
            "QUIET", f"not quiet after {MOST_ARRIVALS} frames and pauses of a network that loses nothing"
        )

    def end(self) -> None:
        """Finish the audit, and count what was judged. Raises `WorldFailure` for a finding that the audit
        could have withdrawn until now."""
        found = self.judge.end(self.verdicts)
        if found is not None:
            raise WorldFailure(found.rule.id, f"{found.text} ({found.rule.cite})")
