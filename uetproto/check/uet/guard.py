# SPDX-License-Identifier: GPL-2.0-only
"""This module has a guard, which drives an endpoint of the fabric and checks the invariants when packets arrive and
are sent."""

from collections.abc import Callable

from uetproto.check.uet.invariant_monitor import InvariantMonitor
from uetproto.check.uet.ses_invariants import SesRules
from uetproto.engine.contract import NEVER, Datagram, Event, Work
from uetproto.engine.fep import Fep


class Guard:
    """A guard is an `Engine` that contains a `Fep` and checks its invariants. `join` must connect two guards before
    they are used."""

    def __init__(self, fep: Fep) -> None:
        self.fep = fep
        self.monitor = InvariantMonitor(fep)
        config = fep.initiator.config
        self.monitor.ses = SesRules(config.payload_mtu, config.lone_read_eom)
        self.monitor.late = True  # a delivery-complete response is delayed
        self.submit: Callable[[Work, int], None] = fep.submit
        self.deadline: Callable[[], int | None] = fep.deadline
        self.events: Callable[[], list[Event]] = fep.events
        self._seen = 0
        """Number of packets that were examined and wait to be polled."""

    def join(self, other: "Guard") -> None:
        for one, peer in ((self, other), (other, self)):
            one.monitor.attach(one.fep.pds, peer.monitor)
            one.fep.target.late = one.monitor.respond

    def receive(self, packet: Datagram, now: int) -> None:
        """Deliver a packet to the endpoint, then check the packets that wait to be sent. Raises
        `InvariantViolation`."""
        self.monitor.receive(packet, now)
        waiting = self.fep.pds.out
        self.monitor.examine(waiting[self._seen :])
        self._seen = len(waiting)

    def poll(self, now: int, limit: int = NEVER) -> list[Datagram]:
        """Return the packets that are sent, after they were checked. Raises `InvariantViolation`."""
        self.monitor.now = now
        packets = self.fep.poll(now, limit)
        seen, self._seen = self._seen, 0
        self.monitor.examine(packets[seen:])
        return packets
