# SPDX-License-Identifier: GPL-2.0-only
"""A station joins an engine and a SHARP element, and is an `Engine` itself (sharp.md §3).

Every driver of engines can therefore drive a station. Its `poll` returns the packets of the engine, which include those
that carry the messages of the element.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from uetproto.engine.contract import NEVER, Datagram, Engine
from uetproto.engine.sharp.carriers.carrier import Carrier
from uetproto.engine.train import Taken

_NO, _YES = Taken.NO, Taken.YES  # looked up once: with every packet, Class.MEMBER would cost as much as a call
Task: TypeAlias = Callable[[int], Any]
"""A function that takes the time (picoseconds) and acts on the element; the station sends the resulting messages at
once."""


class SharpStation:
    """A station is an `Engine` around another engine. Each event of that engine goes to the carrier first. In addition
    to the work of that engine the station accepts a `Task`.
    """

    def __init__(self, engine: Engine, carrier: Carrier) -> None:
        self.engine = engine
        self.carrier = carrier
        self.element = carrier.element
        self._events: list[Any] = []

    def receive(self, packet: Datagram, now: int) -> None:
        self.engine.receive(packet, now)
        self._hand_events_on(now)

    def use_messages(self) -> bool:
        """Take packets that the driver has recognized from now on (`train.MessageEngine`)."""
        return self.carrier.use_messages()

    def take_message(self, packet: Any, now: int) -> Taken:
        """Process a packet whose frame the driver has recognized, unless `receive` must take the frame."""
        if not self.carrier.take_message(packet, now):
            return _NO
        self._hand_events_on(now)
        return _YES

    def submit(self, work: Any, now: int) -> None:
        """Accept work of the inner engine, or a `Task`."""
        if callable(work):
            work(now)
        else:
            self.engine.submit(work, now)
        self._hand_events_on(now)

    def poll(self, now: int, limit: int = NEVER) -> list[Datagram]:
        self._hand_events_on(now)
        self.carrier.pump(now)
        packets = list(self.engine.poll(now, limit))
        while self._hand_events_on(now):  # the end of a send may permit others
            self.carrier.pump(now)
            packets += self.engine.poll(now, max(0, limit - len(packets)))
        return packets

    def deadline(self) -> int | None:
        times = [at for at in (self.engine.deadline(), self.element.deadline()) if at is not None]
        return min(times, default=None)

    def events(self) -> list[Any]:
        """Return the events of the inner engine that the carrier does not handle, then the events of the element."""
        events, self._events = self._events, []
        return events + self.element.events()

    def _hand_events_on(self, now: int) -> bool:
        """Hand the events of the engine to the carrier; return whether it handled one."""
        for_carrier = False
        while told := self.engine.events():
            for event in told:
                if self.carrier.event(event, now):
                    for_carrier = True
                else:
                    self._events.append(event)
        return for_carrier
