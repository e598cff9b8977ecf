"""A NIC: it binds an endpoint to a port. Its framer alone knows what the frames look like."""

from collections.abc import Callable
from typing import Any

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.link import Sender
from uetproto.emulator.network.pfc import Gate
from uetproto.engine.contract import NEVER, Engine, TrafficClass
from uetproto.framing.framer import Framer

RING = 16
"""First transmissions that a NIC takes from its endpoint at once; it comes back for more when they have left."""


class Nic:
    """Drives one endpoint: hands it what arrives, sends what it has to send, wakes it in time, collects its events.

    With a `gate`, which stands before the link, the ring is there; it may be full for long, while control still leaves.
    """

    def __init__(
        self,
        clock: Clock,
        engine: Engine,
        framer: Framer,
        link: Sender,
        on_event: Callable[[Any], None],
        gate: Gate | None = None,
    ) -> None:
        self._clock = clock
        self._engine = engine
        self._link = link
        self._on_event = on_event
        self._frame = framer.frame
        self._packet = framer.packet
        self._repeats = framer.repeats
        self._timer = NEVER  # the next timer event that counts
        self._coming = False  # whether an event will ask for more packets when the link is free
        self._stopped = False
        self._gate = gate
        self._sinks: dict[int, Callable[[Any, int], None]] = {}
        if gate is not None:
            gate.port, gate.on_room = self, self._step
        self.framer = framer
        self.sent = 0
        self.repeated = 0
        """Of these, requests and control packets sent again."""
        self.received = 0

    def submit(self, work: Any) -> None:
        self._engine.submit(work, self._clock.now)
        self._step()

    def take(self, frame: bytes) -> None:
        """A frame has arrived."""
        self.received += 1
        packet = self._packet(frame)
        if packet is not None:
            if self._sinks and packet.dst in self._sinks:
                self._sinks[packet.dst](packet, self._clock.now)
                return
            self._engine.receive(packet, self._clock.now)
            self._step()

    def divert(self, address: int, sink: Callable[[Any, int], None] | None) -> None:
        """Packets to this address, a multicast group, pass the engine by: `sink(packet, now)` takes them.

        For those who only count: no receive is used, nothing completes. None: they go to the engine again.
        """
        if sink is None:
            self._sinks.pop(address, None)
        else:
            self._sinks[address] = sink

    def stop(self) -> None:
        """Nothing new is sent and no timer runs: what is under way still arrives, and is answered."""
        self._stopped = True

    def _step(self) -> None:
        """What a call may have brought about. While the ring is full nothing could leave: that waits for `_more`."""
        clock, engine, link, gate = self._clock, self._engine, self._link, self._gate
        if not self._coming:
            now = clock.now
            ring = RING if gate is None else gate.room
            packets = engine.poll(now, 0 if self._stopped else ring)
            if packets:
                frame, send, repeats = self._frame, link.send, self._repeats
                for packet in packets:
                    data = frame(packet)
                    if not data:  # it must not leave
                        self.sent -= 1
                        continue
                    send(data)
                    if packet.traffic_class is not TrafficClass.DATA and repeats(packet):
                        self.repeated += 1
                self.sent += len(packets)
                if len(packets) >= RING and gate is None and not self._stopped:
                    self._coming = True
                    clock.at(max(link.busy_until, now), self._more)
            deadline = engine.deadline()
            if deadline is not None and deadline < self._timer and not self._stopped and (ring or deadline > now):
                self._timer = deadline = max(deadline, now)
                clock.at(deadline, self._wake, deadline)
        for event in engine.events():
            self._on_event(event)

    def _more(self, _: object) -> None:
        """The link is free again."""
        self._coming = False
        self._step()

    def _wake(self, due: int) -> None:
        """A timer: one that was overtaken by an earlier one does not count."""
        if due == self._timer and not self._stopped:
            self._timer = NEVER
            self._step()
