# SPDX-License-Identifier: GPL-2.0-only
"""This module simulates two PDS endpoints with scripted SES, step by step, and checks the invariants after each step.

A run is a function of its settings and its steps (`steps.UetStep`). The invariants are those of pds.md §18.
"""

import random
from collections.abc import Callable
from typing import Any

from uetproto.check.registry import Disruption, InvariantViolation
from uetproto.check.simulator import TRANSIT, Simulator
from uetproto.check.uet.invariant_monitor import SCAN_EVERY, InvariantMonitor
from uetproto.check.uet.invariants import INVARIANTS
from uetproto.check.uet.invariants_liveness import lives
from uetproto.check.uet.registry import PdsScope
from uetproto.check.uet.scripted_ses import ScriptedSes
from uetproto.check.wire import ADDRESSES, ALL, DatagramWire
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import (
    NEVER,
    PDC_MODES,
    SECOND,
    AskClose,
    AskCredit,
    Close,
    CongestionManager,
    Datagram,
    Event,
    GiveCredit,
    Mode,
    Negotiate,
    Noop,
    Probe,
    Rng,
)  # fmt: skip
from uetproto.engine.pds.pdc_pool import PdcPool, Preset
from uetproto.engine.pds.psn_window import StoredSlot
from uetproto.engine.pds.service import Outgoing
from uetproto.engine.pds.states import Role, State
from uetproto.engine.pds.sublayer import Pds
from uetproto.errors import LocalError
from uetproto.steps.uet import ACTIONS, UetStep

NAMES = ("a", "b")
MOST_ARRIVALS = 400_000
"""Number of packets and timers without progress after which `finish` reports that an endpoint does not stop sending."""
PATIENCE = 2 * SECOND
"""Limit in picoseconds of the virtual time that `finish` takes in a run in which requests may fail."""


class FewPdcids(PdcPool):
    """This pool always allocates the lowest free PDCID. A new PDC therefore often has the PDCID of a closed one, and
    gets old packets of the closed PDC (pds.md §6.2)."""

    def allocate(self, preset: Preset) -> int:
        self.next_id = 1
        return super().allocate(preset)


class UetSimulator(Simulator[UetStep, DatagramWire], actions=ACTIONS):
    """This simulator has the endpoints 0 and 1, the wire between them, and the virtual time."""

    __slots__ = (
        "_contexts", "_damaged", "_limits", "_msl", "configs", "draws", "events", "monitors", "mtu", "objects",
        "restarts", "scan_every", "ses",
    )  # fmt: skip

    def __init__(
        self,
        draws: int = 0,
        knobs: tuple[dict[str, Any], dict[str, Any]] = ({}, {}),
        presets: tuple[Preset, Preset] = (Preset(), Preset()),
        *,
        objects: bool = False,
        mtu: int | None = None,
        mode: Mode = Mode.RUD,
        scan_every: int = SCAN_EVERY,
        wire: DatagramWire | None = None,
        contexts: Callable[[Rng], CongestionManager] | None = None,
    ) -> None:
        """`draws` seeds the random numbers of the endpoints, and `knobs` are settings of `PdsConfig` for each of them.
        `presets` that have a `peer_pdcid` set up an established PDC of `mode`, whose initiator is endpoint 0.

        With `objects`, headers are passed on without being encoded. `mtu` is the payload of a packet in bytes; None
        stands for 4 bytes. `wire` replaces the plain `DatagramWire`. `contexts` returns the congestion control of an
        endpoint; None: it has none.
        """
        super().__init__(wire or DatagramWire())
        self._contexts = contexts
        self.draws = draws
        self.objects = objects
        self.mtu = mtu
        self.scan_every = scan_every
        self.configs = tuple(PdsConfig(**settings) for settings in knobs)
        self._msl = min(config.msl for config in self.configs)
        self.restarts = 0
        self.events: tuple[list[Event], list[Event]] = ([], [])
        self._limits = [NEVER, NEVER]
        """Number of first transmissions that congestion control lets leave, for each endpoint."""
        self._damaged: set[int] = set()
        """Packets on the wire that a CRC refuses, in a run without bytes."""
        self.ses: list[ScriptedSes] = []
        self.monitors: list[InvariantMonitor] = []
        for node in (0, 1):
            self._make(node)
        for node, preset in enumerate(presets):
            pds = self.monitors[node].pds
            if preset.peer_pdcid:
                pds.adopt(ADDRESSES[1 - node], mode, node == 0, preset)
            elif preset != Preset():
                pds.preset(preset)
                self.monitors[node].preset = preset.start_psn is not None
        for monitor in self.monitors:
            monitor.adopt()

    def _make(self, node: int) -> None:
        """Make an endpoint without state; after a restart it replaces the earlier endpoint."""
        ses = ScriptedSes(self.mtu, self.configs[node].max_ack_data_size)
        monitor = InvariantMonitor(ses, self.scan_every)
        name = f"{self.draws}/{NAMES[node]}/engine" + (f"/{self.restarts}" if self.restarts else "")
        config, rng = self.configs[node], random.Random(name)
        pds = Pds(
            ADDRESSES[node], config, rng, monitor, events=self.events[node], objects=self.objects,
            pool=FewPdcids(config, rng), congestion=self.congestion(node, rng),
        )  # fmt: skip
        ses.attach(pds, monitor.respond)
        if self.restarts:
            other = self.monitors[1 - node]
            monitor.now = self.now
            monitor.disruptions = other.disruptions
            self.ses[node], self.monitors[node] = ses, monitor
            monitor.attach(pds, other)
            other.other = monitor
        else:
            self.ses.append(ses)
            self.monitors.append(monitor)
            if node:
                self.monitors[0].attach(self.ses[0].pds, monitor)
                monitor.attach(pds, self.monitors[0])

    def congestion(self, node: int, rng: Rng) -> CongestionManager | None:
        """Return the congestion control of an endpoint that is being made; None: it has none."""
        return None if self._contexts is None else self._contexts(rng)

    @property
    def disruptions(self) -> Disruption:
        return self.monitors[0].disruptions

    def report(self) -> dict[str, Any]:
        """Return the number of steps and packets, the virtual time, and the counters of both endpoints."""
        return {
            "steps": self.steps,
            "now": self.now,
            "packets": self.wire.sent,
            "endpoints": [
                {"counters": monitor.pds.counters.as_dict(), "nack_tx": dict(monitor.pds.nack_tx)}
                for monitor in self.monitors
            ],
        }

    def send(self, node: int, message: Outgoing) -> None:
        """Send a message that the caller made, in place of one that `submit` makes."""
        self.monitors[node].pds.send(message, self.now)
        self.settle(node)

    def settle(self, node: int) -> None:
        monitor = self.monitors[node]
        now = self.now
        ses = self.ses[node]
        if ses.unsettled:
            ses.settle(now)
        limit = self._limits[node]
        if limit == NEVER:
            packets = monitor.poll(now)
        else:
            counters = monitor.pds.counters
            before = counters.data_tx + counters.rudi_tx + counters.uud_tx
            packets = monitor.poll(now, limit)
            self._limits[node] -= counters.data_tx + counters.rudi_tx + counters.uud_tx - before
        if packets:
            self.wire.send(packets, now)

    def _due(self, node: int) -> int:
        return self.monitors[node].pds.deadline() or NEVER

    def _arrives(self, number: int) -> None:
        packet = self.wire.flight.pop(number)
        if self._damaged and number in self._damaged:
            self._damaged.discard(number)
            return
        self._receive(packet.dst - ADDRESSES[0], packet)

    def _receive(self, node: int, packet: Datagram) -> None:
        monitor = self.monitors[node]
        try:
            monitor.receive(packet, self.now)
        except (InvariantViolation, LocalError):
            raise
        except Exception as error:
            monitor.raised = error
            INVARIANTS[48].check(monitor, False)
        self.settle(node)

    # What the wire does

    def _do_dup(self, step: UetStep) -> None:
        for number in self._there(step) if step.number == ALL else [step.number]:
            copied = self.wire.copy(number)
            if copied is None:
                raise LocalError(f"packet {number} cannot be copied any more", id="step-impossible")
            if number in self._damaged:
                self._damaged.add(copied)

    def _do_trim(self, step: UetStep) -> None:
        for number in self._there(step):
            self.wire.trim(number, bool(step.at))

    def _do_mark(self, step: UetStep) -> None:
        for number in self._there(step):
            self.wire.mark(number)

    def _do_corrupt(self, step: UetStep) -> None:
        """Change a bit. In a run with bytes the changed packet arrives, as on a network without CRC; in a run without
        bytes the packet counts as damaged, so that the CRC refuses it."""
        for number in self._there(step):
            packet = self.wire.flight[number]
            if packet.message is not None:
                self._damaged.add(number)
                continue
            data = bytearray(packet.header)
            if step.at >= len(data):
                raise LocalError("at", f"packet {number} has {len(data)} bytes", id="step-impossible")
            data[step.at] ^= 1
            packet.header = bytes(data)
            self._disrupt(Disruption.FORGED)

    def _do_inject(self, step: UetStep) -> None:
        self._disrupt(Disruption.FORGED)
        self._receive(step.node, Datagram(ADDRESSES[1 - step.node], ADDRESSES[step.node], step.data))

    def _do_advance(self, step: UetStep) -> None:
        self._run_to(self.now + step.number)
        for monitor in self.monitors:
            monitor.passed(self.now)
        self.wire.expire(self.now, self._msl)

    # What the endpoints do

    def _do_submit(self, step: UetStep) -> None:
        assert step.message is not None
        self.ses[step.node].submit(ADDRESSES[1 - step.node], step.message, self.now)
        self.settle(step.node)

    def _do_allow(self, step: UetStep) -> None:
        limit = self._limits[step.node]
        self._limits[step.node] = NEVER if step.number == ALL else (0 if limit == NEVER else limit) + step.number
        self.settle(step.node)

    def _do_respond(self, step: UetStep) -> None:
        monitor = self.monitors[step.node]
        monitor.now = self.now
        monitor.late = True
        self.ses[step.node].respond(step.number, step.answer, self.now)
        self.settle(step.node)
        monitor.late = False

    def _submit(self, node: int, work: Any) -> None:
        monitor = self.monitors[node]
        monitor.now = self.now
        try:
            monitor.pds.submit(work, self.now)
        finally:
            self.settle(node)

    def _do_close(self, step: UetStep) -> None:
        self._submit(step.node, Close(peer=ADDRESSES[1 - step.node]))

    def _each(self, step: UetStep, role: Role | None, make: Callable[[int], Any]) -> None:
        """Submit work for every established PDC of a role."""
        pdcs = self.monitors[step.node].pds.pdcs.values()
        found = [p.local_id for p in pdcs if p.state is State.ESTABLISHED and role in (None, p.role)]
        if not found:
            raise LocalError(f"{step.action}: node {NAMES[step.node]} has no PDC for it", id="step-impossible")
        for pdcid in found:
            self._submit(step.node, make(pdcid))

    def _do_ask_close(self, step: UetStep) -> None:
        self._each(step, Role.TARGET, lambda pdcid: AskClose(pdcid=pdcid))

    def _do_noop(self, step: UetStep) -> None:
        self._submit(step.node, Noop(peer=ADDRESSES[1 - step.node], mode=self._mode(step)))

    def _do_negotiate(self, step: UetStep) -> None:
        peer = ADDRESSES[1 - step.node]
        self._submit(step.node, Negotiate(peer=peer, mode=self._mode(step), features=step.number))

    def _mode(self, step: UetStep) -> Mode:
        """Return the mode of the node's first PDC; RUD if it has none."""
        pdcs = self.monitors[step.node].pds.pdcs.values()
        return next((p.mode for p in pdcs if p.mode in PDC_MODES), Mode.RUD)

    def _do_probe(self, step: UetStep) -> None:
        self._each(step, None, lambda pdcid: Probe(pdcid=pdcid))

    def _do_ask_credit(self, step: UetStep) -> None:
        self._each(step, None, lambda pdcid: AskCredit(pdcid=pdcid, target=step.number))

    def _do_give_credit(self, step: UetStep) -> None:
        self._each(step, None, lambda pdcid: GiveCredit(pdcid=pdcid, credit=step.number))

    def _do_lose(self, step: UetStep) -> None:
        for pdc in self.monitors[step.node].pds.pdcs.values():
            slot = pdc.rx.slots.get(step.number)
            if isinstance(slot, StoredSlot):
                slot.response = None
                self._disrupt(Disruption.LOST)
                return
        raise LocalError(f"PSN {step.number:#x}: no stored response", id="step-impossible")

    def _do_restart(self, step: UetStep) -> None:
        self.restarts += 1
        self._make(step.node)
        self._disrupt(Disruption.RESTARTED)
        self.monitors[step.node].pds.poll(self.now)

    def _disrupt(self, disruption: Disruption) -> None:
        if disruption not in self.disruptions:
            for monitor in self.monitors:
                monitor.disrupted(disruption)

    # The end

    def finish(self) -> None:
        """Deliver packets and let SES answer until nothing is left to do. Then check liveness (pds.md §18 items 49–52)
        and examine all PDCs."""
        self._limits = [NEVER, NEVER]
        for node in (0, 1):
            self.settle(node)
        self._become_quiet()
        for monitor in self.monitors:
            monitor.scan()
        for entry in INVARIANTS.values():
            holds = all(entry.when(config, Mode.RUD) for config in self.configs)
            if entry.scope is PdsScope.END and holds and not entry.void_after & self.disruptions:
                entry.check(self)

    def _become_quiet(self) -> None:
        """Deliver every packet, give waiting answers and run timers until only idle timers are armed.

        Where budgets are finite, or a disruption happened, this ends after `PATIENCE` at the latest, because a PDC
        whose peer is gone may wait for its idle time-out.
        """
        live = not self.disruptions and all(lives(config) for config in self.configs)
        until = self.now + (NEVER if live else PATIENCE)
        before = None
        while before != (before := self._progress()):
            if self._quiet_within(MOST_ARRIVALS, until):
                return
        if live:
            raise InvariantViolation("pds 49", f"not quiet after {MOST_ARRIVALS} packets without progress")

    def _progress(self) -> tuple[object, ...]:
        """Return values that stay equal in a simulation that makes no progress."""
        pdcs = [pdc for monitor in self.monitors for pdc in monitor.pds.pdcs.values()]
        return tuple((pdc.state, pdc.tx.una, pdc.rx.cack, pdc.rx.expected) for pdc in pdcs)

    def _quiet_within(self, arrivals: int, until: int) -> bool:
        for _ in range(arrivals):
            self.steps += 1
            if self.wire.flight:
                self._run_to(self.now + TRANSIT)
                self._arrives(next(iter(self.wire.flight)))
                continue
            for node, ses in enumerate(self.ses):
                for _, number in list(ses.waiting):
                    self._do_respond(UetStep("respond", node, number))
            if self.wire.flight:
                continue
            due = min(self._due(0), self._due(1))
            if due == NEVER or due > until or all(monitor.pds.quiescent for monitor in self.monitors):
                return True
            self._run_to(due)
        return False
