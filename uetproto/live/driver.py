# SPDX-License-Identifier: GPL-2.0-only
"""This module has the loop that runs one engine on a path: packets in, timers, packets out, events.

What the kernel has no room for waits in order, and the engine makes no new requests meanwhile.
"""

import select
from collections import deque
from collections.abc import Callable
from typing import Any

from uetproto.engine.contract import MICROSECOND, MILLISECOND, SECOND, Datagram, Engine
from uetproto.errors import LocalError
from uetproto.framing.framer import CACHE, Framer
from uetproto.live.path import Path
from uetproto.live.recorder import Recorder
from uetproto.live.time import MonotonicClock, Timers

BATCH = 32
"""Number of requests that are sent, and of frames that are received, before the loop looks at the other side."""
LONGEST_SLEEP = 100 * MILLISECOND
"""Longest time in picoseconds for which the loop sleeps, so that whoever waits can look at other things."""
_RETRY = MILLISECOND
"""Time until frames are offered again, if nothing tells when the kernel has room."""
_STILL = 2 * SECOND
"""Time between two turns, in picoseconds, above which the process stood still."""
_AT_ONCE = 10 * MICROSECOND
"""A sleep that is no longer was none: what ended it had come before."""
_LOOK = 16
"""A busy loop looks at watched files in one turn of so many."""
_MOST_FILES = 1024
"""File descriptors from this number on cannot be waited for with `select`, which alone waits for microseconds."""


class Driver:
    """This class runs an engine: `turn` does what there is to do now, or sleeps until there is something."""

    def __init__(
        self, engine: Engine, framer: Framer, path: Path, clock: MonotonicClock, on_event: Callable[[Any], None],
        recorder: Recorder | None = None, timers: Timers | None = None,
    ) -> None:  # fmt: skip
        self.engine = engine
        self.framer = framer
        self.path = path
        self.clock = clock
        self.on_event = on_event
        self.recorder = recorder
        self.timers = timers or Timers(clock)
        """Functions that the loop calls at their time."""
        self.stood_still: list[int] = []
        """Times in picoseconds for which the process did not run: the host slept, or the process was stopped."""
        self.accepts: Callable[[int], bool] | None = None
        """Function that returns whether packets from an address are taken. None: all are."""
        self.observe: Callable[[Datagram, int], bool] | None = None
        """Function that gets each packet and its ECN field, and returns whether the engine gets the packet, too."""
        self.not_allowed = 0
        """Number of packets that were dropped as their source is not allowed."""
        self.seen: dict[int, dict[int, int]] = {}
        """Number of packets by their source address and ToS (DSCP and ECN), for as many sources as are kept."""
        self._out: deque[bytes] = deque()
        """Frames that the kernel has not taken yet."""
        self._events: deque[Any] = deque()
        self._soon: deque[Callable[[], None]] = deque()
        self._watched: dict[int, Callable[[], None]] = {}
        self._turned = clock.now
        self._turns = 0
        self._settled = False
        """Whether the engine has nothing to send until something comes, or until its deadline."""
        self._most = 1
        """Number of frames to receive when the loop wakes: one, so that its answer leaves before the path is asked for
        more, and twice as many, up to BATCH, each time that they have come before the loop could sleep."""

    @property
    def waiting(self) -> int:
        """Return the number of frames that wait for room in the kernel."""
        return len(self._out)

    def submit(self, work: Any) -> None:
        """Pass work to the engine, send what it then has to send, and report its events. Raises `LocalError` for work
        that is not possible."""
        now = self.clock.now
        self._settled = False
        self.engine.submit(work, now)
        self._send(now)
        self.tell_events()

    def call_soon(self, action: Callable[[], None]) -> None:
        """Call `action` in the next turn, before the loop sleeps."""
        self._soon.append(action)

    def watch(self, file: int, ready: Callable[[], None]) -> None:
        """Call `ready` whenever a file descriptor is readable."""
        if file >= _MOST_FILES:
            raise LocalError(
                "sessions", f"file descriptor {file} is above {_MOST_FILES - 1}", "fewer open files", id="too-many"
            )
        self._watched[file] = ready

    def forget(self, file: int) -> None:
        """Watch a file descriptor no longer."""
        self._watched.pop(file, None)

    def turn(self, until: int) -> int:
        """Receive, send and report events; if there is nothing to do, sleep until there is, or until the time `until`.
        Return the time.

        The sleep ends after `LONGEST_SLEEP` at the latest.
        """
        now = self.clock.now
        if now - self._turned > _STILL:
            self.stood_still.append(now - self._turned)
        self._turned = now
        most = BATCH
        if not self.timers.run(now) and self._settled and not self._soon and not self._events:
            self._sleep(now, until)
            now, before = self.clock.now, now
            most = self._most = 1 if now - before > _AT_ONCE else min(2 * self._most, BATCH)
        frames = self.path.receive(most)
        if frames:
            self._take(frames, now)
        if not self._settled:
            self._send(now)
        self.tell_events()
        if self._soon:
            soon, self._soon = self._soon, deque()
            for action in soon:
                action()
        if self._watched:
            self._turns += 1
            if not self._turns % _LOOK:
                self._look(0)
        return now

    def tell_events(self) -> bool:
        """Report the events of the engine, in order, and return whether there were any."""
        events, happened = self._events, self.engine.events()
        if not events and not happened:
            return False
        events.extend(happened)
        while events:  # whoever is told may submit work, and thereby report the rest
            self.on_event(events.popleft())
        return True

    def _send(self, now: int) -> None:
        """Send what the engine has to send. It is settled if it has nothing more to send now."""
        out, path = self._out, self.path
        waits = bool(out)
        packets = self.engine.poll(now, 0 if waits else BATCH)
        if not packets and not waits:
            self._settled = True
            return
        if packets:
            entropy, frame_of = path.entropy, self.framer.frame
            for packet in packets:
                packet.entropy = entropy(packet.entropy)
                frame = frame_of(packet)
                if frame:
                    out.append(frame)
        self._settled = not packets
        if not out:
            return
        taken = path.send(out)
        if taken == len(out):
            if self.recorder is not None:
                self.recorder.sent(out, now)
            out.clear()
            self._settled = len(packets) < BATCH and not waits
            return
        self._settled = True  # until there is room
        for _ in range(taken):
            frame = out.popleft()
            if self.recorder is not None:
                self.recorder.sent((frame,), now)

    def _take(self, frames: list[bytes], now: int) -> None:
        self._settled = False
        if self.recorder is not None:
            self.recorder.received(frames, now)
        datagram_of, receive = self.framer.packet, self.engine.receive
        for frame in frames:
            packet = datagram_of(frame)
            if packet is None:
                continue
            source, tos = packet.src, frame[15] if packet.ip_version == 4 else (frame[14] & 0xF) << 4 | frame[15] >> 4
            counts = self.seen.get(source)
            if counts is None:
                if not self._welcome(source):
                    self.not_allowed += 1
                    continue
                counts = self.seen[source] = {}
            counts[tos] = counts.get(tos, 0) + 1
            if self.observe is None or self.observe(packet, tos & 3):
                receive(packet, now)

    def _welcome(self, source: int) -> bool:
        """Return whether packets from an address are taken, for one of which none was taken yet."""
        if len(self.seen) >= CACHE:
            self.seen.clear()
        return self.accepts is None or self.accepts(source)

    def _sleep(self, now: int, until: int) -> None:
        """Sleep until a packet comes, there is room for what waits, a timer is due, or the time `until`."""
        at = self.engine.deadline()
        most = min(until, now + LONGEST_SLEEP, self.timers.next)
        if self._out and self.path.blocked is None:
            most = min(most, now + _RETRY)
        if at is not None and at <= most:
            self._settled, most = False, at
        if self._out:
            self._settled = False
        self._look(max(most - now, 0) / SECOND)

    def _look(self, seconds: float) -> None:
        """Wait for the path and for watched files, and call what is ready."""
        blocked = self.path.blocked if self._out else None
        ready, _, _ = select.select(
            (self.path.fileno(), *self._watched), () if blocked is None else (blocked,), (), seconds
        )
        for file in ready:
            action = self._watched.get(file)
            if action is not None:
                action()
