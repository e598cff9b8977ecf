# SPDX-License-Identifier: GPL-2.0-only
"""This module has the NIC, which joins one endpoint to a link. Only the framer of the NIC knows the format of
frames.
"""

from collections.abc import Callable, Sequence
from typing import Any

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.message_port import MessagePort
from uetproto.emulator.network.pfc import PauseGate
from uetproto.emulator.network.train_port import TrainPort
from uetproto.engine.contract import NEVER, Engine, TrafficClass
from uetproto.engine.train import Train
from uetproto.framing.framer import Framer
from uetproto.impair.link import FrameSender

_DATA = TrafficClass.DATA  # looked up once: with every packet, Class.MEMBER would cost as much as a call
RING = 16
"""Number of first transmissions that a NIC takes from its endpoint at once. It takes more when these packets have
left."""


class Nic:
    """A NIC drives one endpoint: it delivers and sends packets, runs the timers, and passes the endpoint's events on.

    `ring` is the number of first transmissions that the NIC takes from its endpoint at once. With PFC, a `gate` before
    the link holds the first transmissions that wait. A pause may keep the gate full for a long time, while control
    packets still leave.
    """

    def __init__(
        self,
        clock: Clock,
        engine: Engine,
        framer: Framer,
        link: FrameSender,
        on_event: Callable[[Any], None],
        gate: PauseGate | None = None,
        ring: int = RING,
    ) -> None:
        self._clock = clock
        self._engine = engine
        self._link = link
        self._on_event = on_event
        self._frame = framer.frame
        self._packet = framer.packet
        self._repeats = framer.repeats
        self.quiet_until = 0
        """Instant from which on a poll may find a timer that is due."""
        self._timer = NEVER  # instant of the one timer event that is valid
        self.coming = False
        """Whether an event will take more packets when the link is free. Until then the endpoint is not polled."""
        self._stopped = False
        self._gate = gate
        self._ring = ring
        self._sinks: dict[int, Callable[[Any, int], None]] = {}
        if gate is not None:
            gate.port, gate.on_room = self, self._fill
        self.framer = framer
        self.trains: TrainPort | None = None
        """What receives and sends trains for this NIC, or None if it handles each packet by itself."""
        self.messages: MessagePort | None = None
        """What receives recognized packets for this NIC, or None if it reads each frame."""
        self.sent = 0
        self.repeated = 0
        """Number of requests and control packets that were retransmitted; `sent` counts them too."""
        self.received = 0
        self.received_at = 0
        """Instant at which the last frame arrived."""

    def submit(self, work: Any) -> None:
        """Pass work to the endpoint, and send the packets that the endpoint then has ready."""
        if self.trains is not None:
            self.trains.end()
        self._engine.submit(work, self._clock.now)
        self.step()

    def take(self, frame: bytes) -> None:
        """Take a frame that arrives now, and pass its packet to the endpoint."""
        self.received += 1
        self.received_at = now = self._clock.now
        packet = self._packet(frame)
        if packet is not None:
            if self._sinks and packet.dst in self._sinks:
                self._sinks[packet.dst](packet, now)
                return
            self._engine.receive(packet, now)
            self.step()

    def divert(self, address: int, sink: Callable[[Any, int], None] | None) -> None:
        """Call `sink(packet, now)` for each packet to the multicast group `address`, in place of the engine. If `sink`
        is None, the engine gets these packets again.

        This is for a program that only counts packets: the packets consume no receive and complete no work.
        """
        if self.trains is not None:
            self.trains.end()
        if sink is None:
            self._sinks.pop(address, None)
        else:
            self._sinks[address] = sink

    def stop(self) -> None:
        """Stop sending new packets and running timers. Packets that still arrive are answered."""
        if self.trains is not None:
            self.trains.end()
        self._stopped = True

    def step(self) -> None:
        """Send the packets and report the events that the engine has ready; while the ring is full, packets wait."""
        engine = self._engine
        if not self.coming:
            clock, gate = self._clock, self._gate
            now = clock.now
            ring = self._ring if gate is None else gate.room
            packets: Sequence[Any] = engine.poll(now, 0 if self._stopped else ring)
            if packets:
                frame, send, repeats = self._frame, self._link.send, self._repeats
                count = len(packets)
                unsent = None if self.trains is None else self.trains.unsent
                announce = None if self.messages is None else self.messages.announce
                for packet in packets:
                    if type(packet) is Train:
                        assert self.trains is not None
                        count += self.trains.send(packet) - 1
                        continue
                    data = frame(packet)
                    ack = unsent.pop(id(packet), None) if unsent else None
                    if not data:  # the framer refuses to send the packet
                        self.sent -= 1
                        continue
                    if ack is not None:
                        assert self.trains is not None
                        self.trains.announce(ack, data)
                    elif packet.traffic_class is not _DATA and repeats(packet):
                        self.repeated += 1
                    if announce is not None:
                        announce(data, packet)
                    send(data)
                self.sent += count
                if count >= self._ring and gate is None and not self._stopped:
                    self.coming = True
                    clock.at(max(self._link.busy_until, now), self._more)
            deadline = engine.deadline()
            self.quiet_until = NEVER if deadline is None else deadline
            if deadline is not None and deadline < self._timer and not self._stopped and (ring or deadline > now):
                self._timer = deadline = max(deadline, now)
                clock.at(deadline, self._wake, deadline)
        events = engine.events()
        if events:
            self._clock.settle()
            for event in events:
                self._on_event(event)

    def _more(self, _: object) -> None:
        trains = self.trains
        if trains is not None:
            trains.prepare()
        self.coming = False
        self.step()
        if trains is not None and not self.coming:
            trains.end()

    def _fill(self) -> None:
        """Send more packets, as the gate has room for them."""
        if self.trains is not None:
            self.trains.end()
        self.step()

    def _wake(self, due: int) -> None:
        """Run the timers, unless an earlier event has replaced this one."""
        if due == self._timer and not self._stopped:
            if self.trains is not None:
                self.trains.end()
            self._timer = NEVER
            self.step()
