# SPDX-License-Identifier: GPL-2.0-only
"""This module has the train port of a NIC, which sends and receives trains (`engine.train`).

On their way the frames of a train are ordinary frames: links, queues, switches, taps and faults handle each of them at
its instant, and see no trains. The port of the sender announces them; the port of the receiver recognizes a frame by
its Python object. A frame that the network has lost, marked, trimmed, damaged, repeated or overtaken is not the one
that is expected, so the NIC takes it like any other frame. A frame that is expected, and that causes no packet and no
event, is only stored and counted; the endpoint processes such frames together, at the latest before anything else
happens to it (`settle`). These are the conditions `Split.CHANGED`, `Split.TIMER` and
`Split.LOOK`.
"""

from collections import deque
from typing import TYPE_CHECKING, Any, final

from uetproto.emulator.network.clock import Clock
from uetproto.engine.contract import NEVER
from uetproto.engine.train import ArrivingRun, Train, TrainAck
from uetproto.engine.train_splits import TrainTally
from uetproto.framing.framer import TrainFramer
from uetproto.impair.link import TrainSender

if TYPE_CHECKING:
    from uetproto.emulator.network.nic import Nic

_M32 = 0xFFFFFFFF
_SIGN = 1 << 31
"""Bit of a difference of PSNs that is set if the first PSN is below the second."""
_MOST = 1 << 16
"""Number of frames that are expected, above which all are forgotten."""
_SENT = 96
"""Number of its trains that a port remembers: more than a window has. A train that lost a frame keeps its frames so
long."""


@final
class TrainInFlight:
    """A train in flight has the frames of a train, and what its receiver knows of them."""

    __slots__ = ("at", "epoch", "frame", "left", "next", "run", "since", "train")

    def __init__(self, train: Train | None, frames: list[bytes]) -> None:
        self.train = train
        """The train, until its last frame has arrived: the payload of a file stays in memory so long."""
        self.left = frames[::-1]
        """Frames behind `frame`, the last one first."""
        self.frame: bytes | None = self.left.pop() if frames else None
        """Frame that is expected next, or None if there is none."""
        self.next = 0
        """Index of this frame."""
        self.run: ArrivingRun | None = None
        """What takes the packets at the receiver, or None if nothing does yet, or does any more."""
        self.epoch = -1
        """Epoch of the receiving port in which the run was admitted or renewed."""
        self.since = 0
        """Index of the first packet that the endpoint has still to process; it is negative if some of the train before
        it wait, too."""
        self.at = 0
        """Instant at which the last of them arrived."""

    def forget(self) -> None:
        """Expect no more frames."""
        self.left, self.frame, self.train = [], None, None
        if self.since == self.next:
            self.run = None


_NO_TRAIN = TrainInFlight(None, [])
ExpectedFrames = dict[int, TrainInFlight | TrainAck]
"""Type of the table of all trains and plain ACKs in flight: the key is the `id` of the frame that is expected next. A
train is not in it while its receiver expects the next frame from it (`TrainPort.take`)."""


class TrainPort:
    """A train port is in front of a NIC: it takes the frames that arrive, and sends the trains of the endpoint."""

    def __init__(
        self, clock: Clock, nic: "Nic", engine: Any, framer: TrainFramer, link: TrainSender,
        expected: ExpectedFrames,
    ) -> None:  # fmt: skip
        """Make the port of a NIC, which sends over `link`. All ports of a network share the table `expected`."""
        self._clock = clock
        self._nic = nic
        self._engine = engine
        self.tally: TrainTally = engine.tally
        self._framer = framer
        self._link = link
        self._expected = expected
        self._last = _NO_TRAIN
        """Train of which a packet has arrived last."""
        self._pending: list[TrainInFlight] = []
        """Trains with packets that the endpoint has still to process, in the order of the first such packet."""
        self._ended: TrainInFlight | None = None
        """Train of which the last packet has arrived, if the next train may continue it."""
        self._acks: dict[int | None, TrainAck] = {}
        """Last ACK of each connection that the endpoint has still to process."""
        self.unsent: dict[int, TrainAck] = {}
        """ACKs that the next poll returns, by the `id` of their packets."""
        self._late = False
        """Whether the clock calls `_look` before somebody looks at the network, or changes a part of it."""
        self._sent: deque[TrainInFlight] = deque()
        """Trains that were sent last."""
        self._epoch = 0
        """Number of times that the endpoint has done anything but to receive packets that are quiet."""
        self._apart = True
        """Whether all runs of this epoch are of connections that have nothing to send."""
        self._until = NEVER
        """Instant from which on a timer may be due that runs when a packet arrives, or `_turn` if this is earlier."""
        self._turn = NEVER
        """Instant from which on the framer may accept other frames than those of the runs of this epoch."""

    def send(self, train: Train) -> int:
        """Send the frames of a train. Return the number of its packets."""
        frames, count = self._framer.frames(train), len(train.heads)
        if len(frames) < count:
            self._nic.sent -= count - len(frames)
            if not frames:
                return count
        expected = self._expected
        if len(expected) >= _MOST:
            expected.clear()
        expected[id(frames[0])] = found = TrainInFlight(train, frames)
        sent = self._sent
        sent.append(found)
        if len(sent) > _SENT:  # the oldest one has arrived, or has lost a frame
            oldest = sent.popleft()
            if oldest.frame is not None:
                expected.pop(id(oldest.frame), None)
                oldest.forget()
        self._link.send_many(frames)
        return count

    def take(self, frame: bytes) -> None:
        """Take a frame that arrives now."""
        found = self._last
        if frame is not found.frame:
            other = self._expected.pop(id(frame), None)
            if type(other) is not TrainInFlight:
                self._take_other(frame, other)
                return
            if found.frame is not None:
                self._expected[id(found.frame)] = found
            self._last = found = other
        now = self._clock.now
        waits = now < self._until
        if found.epoch != self._epoch or not waits:
            waits = self._admit(found, now)
        index, run = found.next, found.run
        if run is None or not ((quiet := index < run.quiet_to) or run.answers):
            self._leave(found, frame)
            return
        try:
            run.place(index)
        except OSError:
            self._leave(found, frame)
            return
        if not (quiet and waits):
            ack = run.answer(index) if waits else None
            if ack is None:
                self._process(found, now)
                return
            self._answer(ack)
        if found.since == index:
            self._pending.append(found)
        found.at = now
        found.next = index + 1
        if found.left:
            found.frame = found.left.pop()
        else:
            found.forget()
            self._ended = found

    def _take_other(self, frame: bytes, ack: TrainAck | None) -> None:
        """Take a frame that is an ACK, or that is not expected."""
        if ack is not None:
            self._take_ack(ack)
        else:
            self.end()
            self._nic.take(frame)

    def _leave(self, found: TrainInFlight, frame: bytes) -> None:
        """Leave a packet of a train to the NIC, and the rest of the train if nothing takes it."""
        self.end()
        self._expect_next(found)
        self._nic.take(frame)

    def _process(self, found: TrainInFlight, now: int) -> None:
        """Let the endpoint process a packet of a train, and those before it that wait, as this one causes more than an
        ACK, or as a timer may be due."""
        nic, run, index = self._nic, found.run, found.next
        assert run is not None
        count = index + 1 - found.since
        self._expect_next(found)
        nic.received += count
        nic.received_at = now
        if index < run.quiet_to:  # a timer may be due
            self.end()
            run.settle(index, count, now)
            nic.step()
        else:
            self._answer(run.due(index, count, now))

    def _expect_next(self, found: TrainInFlight) -> None:
        """Expect the next frame of a train, of which no packet waits any more. Forget the train if it has no other
        one, or if nothing takes it."""
        found.next = found.since = found.next + 1
        if found.left and found.run is not None:
            found.frame = found.left.pop()
        else:
            found.forget()

    def _answer(self, ack: TrainAck) -> None:
        """Send an ACK now, unless an event will poll the endpoint, which then returns it."""
        if self._nic.coming:
            if ack.receiver is not None:
                self.unsent[id(ack.packet)] = ack
            return
        framer = self._framer
        data = framer.frame(ack.packet)
        if framer.is_timed:
            self._epoch += 1  # keys may have changed
        if not data:  # the framer refuses to send the packet
            return
        if ack.receiver is not None:
            self.announce(ack, data)
        self._nic.sent += 1
        self._link.send(data)

    def announce(self, ack: TrainAck, frame: bytes) -> None:
        """Let the receiver of a frame know that it is an ACK of a train."""
        ack.frame, ack.seal = frame, self._framer.last_seal
        self._expected[id(frame)] = ack

    def _take_ack(self, found: TrainAck) -> None:
        """Take a plain ACK that arrives now. Only the last one of several matters if they cause nothing."""
        nic, acks, receiver, now = self._nic, self._acks, found.receiver, self._clock.now
        polled = not nic.coming
        if not polled or now < nic.quiet_until:
            last = acks.get(receiver)
            newer = 1 if last is None else (found.psn - last.psn) & _M32
            if last is not None and 0 < newer <= last.room:
                room: int | None = last.room - newer
            else:
                room = self._engine.quiet_acks(receiver, found.psn, polled) if 0 < newer < _SIGN else None
            if room is not None and self._framer.takes_ack(found):
                if last is not None:
                    del acks[receiver]  # the last one is behind those of other connections, by its time
                else:
                    self._watch()
                acks[receiver] = found
                found.room = room
                found.at = nic.received_at = now
                nic.received += 1
                return
        self.end()
        nic.take(found.frame)

    def _admit(self, found: TrainInFlight, now: int) -> bool:
        """Find what takes the packets of a train from the next one on; there is nothing if the NIC must take it. Return
        whether packets may wait, as no timer may be due."""
        if now >= self._turn:
            self._epoch += 1
        elif found.epoch == self._epoch:
            return False
        ended, self._ended = self._ended, None
        if ended is not None and ended.epoch == self._epoch and not found.next and self._extended(found, ended):
            return now < self._until
        self.settle()
        self._watch()
        polled, run = not self._nic.coming, found.run
        if run is None:
            assert found.train is not None
            run = self._engine.admit(found.train, found.next, polled)
            run = None if run is None else self._framer.follow(run, found.train, found.next)
        elif not run.renew(found.next, polled):
            run = None
        found.run = run
        found.epoch = self._epoch
        self._apart = self._apart and (run is None or run.apart)
        self._turn = turn = self._framer.next_turn()
        self._until = min(self._nic.quiet_until, turn) if polled else turn
        return now < self._until

    def _extended(self, found: TrainInFlight, ended: TrainInFlight) -> bool:
        """Return whether a train goes on in the run of one that has ended and whose packets wait; they wait with it."""
        run = ended.run
        if run is None or found.train is None or not run.extend(found.train):
            return False
        found.run, found.epoch = run, ended.epoch
        found.since, found.at = ended.since - ended.next, ended.at
        ended.since, ended.run = ended.next, None  # the sender remembers it, and not later payloads
        self._pending[self._pending.index(ended)] = found
        return True

    def _watch(self) -> None:
        """Let nothing wait when somebody looks."""
        if not self._late:
            self._late = True
            self._clock.late.append(self._look)

    def _look(self) -> None:
        self._late = False
        self.end()

    def settle(self) -> None:
        """Let the endpoint process the packets that have arrived."""
        pending, nic = self._pending, self._nic
        if pending:
            self._pending = []
            for found in pending:
                count = found.next - found.since
                if count:
                    assert found.run is not None
                    nic.received += count
                    nic.received_at = max(nic.received_at, found.at)
                    found.run.settle(found.next - 1, count, found.at)
                    found.since = found.next
                if found.frame is None:
                    found.run = None
        if self._acks:
            self._settle_acks()

    def _settle_acks(self) -> None:
        acks, self._acks = self._acks, {}
        for ack in acks.values():
            if not self._engine.take_quiet_ack(ack, ack.at):
                self.end()
                self._engine.receive(self._framer.packet_of_ack(ack), ack.at)

    def end(self) -> None:
        """Let the endpoint process the packets that have arrived, as anything may happen to it now."""
        self._epoch += 1
        self._ended = None
        self._apart = True
        if self._pending or self._acks:
            self.settle()

    def prepare(self) -> None:
        """Let the endpoint process the packets that have arrived and on which the next poll depends."""
        if not (self._apart and self._engine.only_sends(self._clock.now)) or self._framer.is_timed:
            self.end()
        elif self._acks:
            self._settle_acks()
