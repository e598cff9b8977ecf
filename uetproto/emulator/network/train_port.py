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
from typing import TYPE_CHECKING, Any

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


class TrainInFlight:
    """A train in flight has the frames of a train, and what its receiver knows of them."""

    __slots__ = ("at", "done", "epoch", "frames", "last", "next", "pending", "run", "train")

    def __init__(self, train: Train, frames: list[bytes]) -> None:
        self.train: Train | None = train
        """The train, until its last frame has arrived: the payload of a file stays in memory so long."""
        self.frames = frames
        self.last = len(frames) - 1
        self.next = 0
        """Index of the frame that is expected next."""
        self.run: ArrivingRun | None = None
        """What takes the packets at the receiver, or None if nothing does yet."""
        self.epoch = -1
        """Epoch of the receiving port in which the run was admitted or renewed."""
        self.pending = 0
        """Number of packets that the endpoint has still to process, those of the train before it included."""
        self.done = 0
        """Index of the last of them; -1 if it is of the train before it."""
        self.at = 0
        """Instant at which the last of them arrived."""


ExpectedFrames = dict[int, TrainInFlight | TrainAck]
"""Type of the table of all trains and plain ACKs in flight: the key is the `id` of the frame that is expected next."""


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
        self._pending: list[TrainInFlight] = []
        """Trains with packets that the endpoint has still to process, in the order of the first such packet."""
        self._ended: TrainInFlight | None = None
        """Train of which the last packet has arrived, if the next train may continue it."""
        self._acks: dict[int, TrainAck] = {}
        """Last ACK of each connection that the endpoint has still to process."""
        self.unsent: dict[int, TrainAck] = {}
        """ACKs that the next poll returns, by the `id` of their packets."""
        self._late = False
        """Whether the clock calls `_look` before somebody looks at the network, or changes a part of it."""
        self._sent: deque[TrainInFlight] = deque()
        """Trains that were sent last."""
        self._epoch = 0
        """Number of times that the endpoint has done anything but to receive packets that are quiet."""
        self._until = NEVER
        """Instant from which on a timer may be due that runs when a packet arrives."""
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
            if oldest.frames:
                expected.pop(id(oldest.frames[oldest.next]), None)
        self._link.send_many(frames)
        return count

    def take(self, frame: bytes) -> None:
        """Take a frame that arrives now."""
        found = self._expected.pop(id(frame), None)
        if found is None:
            self.end()
            self._nic.take(frame)
            return
        if type(found) is TrainAck:
            self._take_ack(found)
            return
        now, index = self._clock.now, found.next
        run = found.run if found.epoch == self._epoch and now < self._turn else self._admit(found, index)
        if run is None or not (run.quiet or run.answers):
            self._expect_next(found, run)
            self.end()
            self._nic.take(frame)
            return
        try:
            run.place(index)
        except OSError:
            self._expect_next(found, run)
            self.end()
            self._nic.take(frame)
            return
        ack: TrainAck | None = None
        if now < self._until and (run.quiet or (ack := run.answer(index)) is not None):
            pending = found.pending
            found.pending = pending + 1
            found.done = index
            found.at = now
            if not pending:
                self._pending.append(found)
            if index < found.last:
                found.next = index = index + 1
                self._expected[id(found.frames[index])] = found
            else:
                found.frames, found.train = [], None
                self._ended = found
            if ack is None:
                run.quiet -= 1
            else:
                self._answer(ack)
            return
        nic = self._nic
        count, found.pending = found.pending + 1, 0
        self._expect_next(found, run)
        nic.received += count
        nic.received_at = now
        if run.quiet:  # a timer may be due
            self.end()
            run.settle(index, count, now)
            nic.step()
            return
        self._answer(run.due(index, count, now))

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

    def _expect_next(self, found: TrainInFlight, run: ArrivingRun | None) -> None:
        """Expect the next frame of a train, or forget the train if it has no other one, or if nothing takes it."""
        index = found.next
        found.next = index + 1
        if index < found.last and run is not None:
            self._expected[id(found.frames[index + 1])] = found
        else:
            found.frames, found.train, found.run = [], None, run if found.pending else None

    def announce(self, ack: TrainAck, frame: bytes) -> None:
        """Let the receiver of a frame know that it is an ACK of a train."""
        ack.frame, ack.seal = frame, self._framer.last_seal
        self._expected[id(frame)] = ack

    def _take_ack(self, found: TrainAck) -> None:
        """Take a plain ACK that arrives now. Only the last one of several matters if they cause nothing."""
        nic, receiver = self._nic, found.receiver
        assert receiver is not None
        now, polled, acks = self._clock.now, not nic.coming, self._acks
        last = acks.get(receiver)
        newer = 1 if last is None else (found.psn - last.psn) & _M32
        if 0 < newer < _SIGN and (not polled or now < nic.quiet_until):
            room: int | None
            if last is not None and newer <= last.room:
                room = last.room - newer
            else:
                room = self._engine.quiet_acks(receiver, found.psn, polled)
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

    def _admit(self, found: TrainInFlight, index: int) -> ArrivingRun | None:
        """Return what takes the packets of a train from packet `index` on, or None if the NIC must take it."""
        if self._clock.now >= self._turn:
            self._epoch += 1
        ended, self._ended = self._ended, None
        if ended is not None and ended.epoch == self._epoch and not index and self._extended(found, ended):
            return found.run
        self.settle()
        self._watch()
        polled = not self._nic.coming
        run = found.run
        if run is None:
            assert found.train is not None
            run = self._engine.admit(found.train, index, polled)
            found.run = run = None if run is None else self._framer.follow(run, found.train, index)
        elif not run.renew(index, polled):
            run = None
        found.epoch = self._epoch
        self._until = self._nic.quiet_until if polled else NEVER
        self._turn = self._framer.next_turn()
        return run

    def _extended(self, found: TrainInFlight, ended: TrainInFlight) -> bool:
        """Return whether a train goes on in the run of one that has ended and whose packets wait; they wait with it."""
        run = ended.run
        if run is None or found.train is None or not run.extend(found.train):
            return False
        found.run, found.epoch = run, ended.epoch
        found.pending, found.done, found.at = ended.pending, -1, ended.at
        ended.pending, ended.run = 0, None  # the sender remembers it, and should not keep the payload of later trains
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
                if found.pending:
                    assert found.run is not None
                    nic.received += found.pending
                    nic.received_at = max(nic.received_at, found.at)
                    found.run.settle(found.done, found.pending, found.at)
                    found.pending = 0
                if not found.frames:
                    found.run = None
        if self._acks:
            acks, self._acks = self._acks, {}
            for ack in acks.values():
                if not self._engine.take_quiet_ack(ack, ack.at):
                    self._engine.receive(self._framer.packet_of_ack(ack), ack.at)

    def end(self) -> None:
        """Let the endpoint process the packets that have arrived, as anything may happen to it now."""
        self._epoch += 1
        self._ended = None
        if self._pending or self._acks:
            self.settle()
