"""Two PDS endpoints, scripted SES, the wire between them: one step after the other, the invariants after each.

A run is a function of its settings and its steps (`steps.Step`).
"""

import random
from collections.abc import Callable
from typing import Any

from uetproto.check.uet.invariant_monitor import SCAN_EVERY, Watch
from uetproto.check.uet.invariants import INVARIANTS, Mishap, Scope, Violation
from uetproto.check.uet.invariants_liveness import lives
from uetproto.check.uet.scripted_ses import ScriptedSes
from uetproto.check.uet.step_generator import PROFILES, Chooser
from uetproto.check.uet.steps import ALL, Step
from uetproto.check.wire import ADDRESSES, HISTORY, Wire
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import (
    NEVER,
    PDC_MODES,
    SECOND,
    AskClose,
    AskCredit,
    Close,
    Datagram,
    Event,
    GiveCredit,
    Mode,
    Negotiate,
    Noop,
    Probe,
)  # fmt: skip
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.engine.pds.psn_window import Stored
from uetproto.engine.pds.states import Role, State
from uetproto.engine.pds.sublayer import Pds
from uetproto.errors import LocalError

NAMES = ("a", "b")
MOST_ARRIVALS = 400_000
"""Packets, and times of silence, without progress after which `finish` calls the endpoints restless."""
PATIENCE = 2 * SECOND
"""How long it waits where nobody promises that everything comes to a good end."""
TRANSIT = 10_000
"""Picoseconds between two of them."""


class FewPdcids(Pds):
    """A PDS that uses a PDCID again as soon as it may, so that old packets meet PDCs of the same name (§6.2 item 9)."""

    def _allocate(self, preset: Preset) -> int:
        self._next_id = 1
        return super()._allocate(preset)


class World:
    """Two endpoints, 0 and 1, the wire, and the time."""

    __slots__ = (
        "_actions", "_limits", "_msl", "_spoilt", "configs", "draws", "events", "mtu", "now", "objects",
        "restarts", "scan_every", "ses", "steps", "watches", "wire",
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
    ) -> None:
        """`draws` seeds what the endpoints draw; `knobs` are settings of `PdsConfig`; `presets` with a `peer_pdcid`
        adopt a PDC of `mode`, opened by endpoint 0. With `objects` headers travel unpacked. `mtu` is the payload of a
        packet; None: 4 bytes.
        """
        self.draws = draws
        self.objects = objects
        self.mtu = mtu
        self.scan_every = scan_every
        self.configs = tuple(PdsConfig(**settings) for settings in knobs)
        self._msl = min(config.msl for config in self.configs)
        self.wire = Wire()
        self.now = self.steps = self.restarts = 0
        self.events: tuple[list[Event], list[Event]] = ([], [])
        self._limits = [NEVER, NEVER]
        """First transmissions that congestion control lets leave."""
        self._spoilt: set[int] = set()
        """Packets on the wire that no CRC lets pass, in a run without bytes."""
        self.ses: list[ScriptedSes] = []
        self.watches: list[Watch] = []
        for node in (0, 1):
            self._make(node)
        for node, preset in enumerate(presets):
            pds = self.watches[node].pds
            if preset.peer_pdcid:
                pds.adopt(ADDRESSES[1 - node], mode, node == 0, preset)
            elif preset != Preset():
                pds.preset(preset)
                self.watches[node].preset = preset.start_psn is not None
        for watch in self.watches:
            watch.adopt()
        self._actions: dict[str, Callable[[Step], None]] = {
            name.removeprefix("_do_"): getattr(self, name) for name in dir(self) if name.startswith("_do_")
        }

    def _make(self, node: int) -> None:
        """An endpoint that knows nothing."""
        ses = ScriptedSes(self.mtu, self.configs[node].max_ack_data_size)
        watch = Watch(ses, self.scan_every)
        name = f"{self.draws}/{NAMES[node]}/engine" + (f"/{self.restarts}" if self.restarts else "")
        pds = FewPdcids(
            ADDRESSES[node], self.configs[node], random.Random(name), watch, events=self.events[node],
            objects=self.objects,
        )  # fmt: skip
        ses.attach(pds, watch.respond)
        if self.restarts:
            other = self.watches[1 - node]
            watch.now = self.now
            watch.mishaps = other.mishaps
            self.ses[node], self.watches[node] = ses, watch
            watch.attach(pds, other)
            other.other = watch
        else:
            self.ses.append(ses)
            self.watches.append(watch)
            if node:
                self.watches[0].attach(self.watches[0].user.pds, watch)  # type: ignore[attr-defined]
                watch.attach(pds, self.watches[0])

    # What others look at

    @property
    def flight(self) -> dict[int, Datagram]:
        """What is on the wire, by number."""
        return self.wire.flight

    @property
    def sent(self) -> int:
        """Packets that have left so far, copies included."""
        return self.wire.sent

    @property
    def mishaps(self) -> Mishap:
        return self.watches[0].mishaps

    def report(self) -> dict[str, Any]:
        """What happened, in numbers."""
        return {
            "steps": self.steps,
            "now": self.now,
            "packets": self.wire.sent,
            "endpoints": [
                {"counters": watch.pds.counters.as_dict(), "nack_tx": dict(watch.pds.nack_tx)} for watch in self.watches
            ],
        }

    # Steps

    def apply(self, step: Step) -> None:
        """One step. Raises `Violation` for a broken invariant, `LocalError` for what is not possible now."""
        self.steps += 1
        self._actions[step[0]](step)

    def _settle(self, node: int) -> None:
        """The endpoint sends what it can; everything that changed is examined."""
        watch = self.watches[node]
        now = self.now
        ses = self.ses[node]
        if ses.unsettled:
            ses.settle(now)
        limit = self._limits[node]
        if limit == NEVER:
            packets = watch.poll(now)
        else:
            counters = watch.pds.counters
            before = counters.data_tx + counters.rudi_tx + counters.uud_tx
            packets = watch.poll(now, limit)
            self._limits[node] -= counters.data_tx + counters.rudi_tx + counters.uud_tx - before
        if packets:
            self.wire.send(packets, now)

    def _arrives(self, number: int) -> None:
        packet = self.wire.flight.pop(number)
        if self._spoilt and number in self._spoilt:
            self._spoilt.discard(number)
            return
        node = packet.dst - ADDRESSES[0]
        watch = self.watches[node]
        try:
            watch.receive(packet, self.now)
        except (Violation, LocalError):
            raise
        except Exception as error:
            watch.raised = error
            self._ask(48, watch, False)
        self._settle(node)

    def _ask(self, number: int, *arguments: Any) -> None:
        INVARIANTS[number].check(*arguments)

    def _there(self, step: Step) -> list[int]:
        """The packets that a step names."""
        if step.number == ALL:
            return list(self.wire.flight)
        if step.number not in self.wire.flight:
            raise LocalError(f"packet {step.number} is not on the wire")
        return [step.number]

    def _do_submit(self, step: Step) -> None:
        assert step.message is not None
        self.ses[step.node].submit(ADDRESSES[1 - step.node], step.message, self.now)
        self._settle(step.node)

    def _do_allow(self, step: Step) -> None:
        limit = self._limits[step.node]
        self._limits[step.node] = NEVER if step.number == ALL else (0 if limit == NEVER else limit) + step.number
        self._settle(step.node)

    def _do_deliver(self, step: Step) -> None:
        if step.number in self.wire.flight:
            self._arrives(step.number)
        else:
            for number in self._there(step):
                self._arrives(number)

    def _do_drop(self, step: Step) -> None:
        for number in self._there(step):
            del self.wire.flight[number]

    def _do_dup(self, step: Step) -> None:
        if step.number == ALL:
            for number in self._there(step):
                self.wire.copy(number)
        else:
            copied = self.wire.copy(step.number)
            if copied is None:
                raise LocalError(f"packet {step.number} cannot be copied any more")
            if step.number in self._spoilt:
                self._spoilt.add(copied)

    def _do_trim(self, step: Step) -> None:
        for number in self._there(step):
            self.wire.trim(number, bool(step.at))

    def _do_mark(self, step: Step) -> None:
        for number in self._there(step):
            self.wire.mark(number)

    def _do_corrupt(self, step: Step) -> None:
        """With bytes it arrives so, as on a network without CRC; without them the CRC finds it."""
        for number in self._there(step):
            packet = self.wire.flight[number]
            if packet.message is not None:
                self._spoilt.add(number)
                continue
            data = bytearray(packet.header)
            if step.at >= len(data):
                raise LocalError("at", f"packet {number} has {len(data)} bytes")
            data[step.at] ^= 1
            packet.header = bytes(data)
            self._mishap(Mishap.FORGED)

    def _do_advance(self, step: Step) -> None:
        """Timer by timer."""
        self._run_to(self.now + step.number)
        for watch in self.watches:
            watch.passed(self.now)
        self.wire.expire(self.now, self._msl)

    def _run_to(self, until: int) -> None:
        """Time goes on, timer by timer."""
        first, second = self.watches
        while True:
            due, other = first.pds.deadline() or NEVER, second.pds.deadline() or NEVER
            if due > until and other > until:
                break
            node = 0 if due <= other else 1
            self.now = max(self.now, min(due, other))
            self._settle(node)
        self.now = until

    def _do_respond(self, step: Step) -> None:
        watch = self.watches[step.node]
        watch.now = self.now
        watch.late = True
        self.ses[step.node].respond(step.number, step.answer, self.now)
        self._settle(step.node)
        watch.late = False

    def _submit(self, node: int, work: Any) -> None:
        watch = self.watches[node]
        watch.now = self.now
        try:
            watch.pds.submit(work, self.now)
        finally:
            self._settle(node)

    def _do_close(self, step: Step) -> None:
        self._submit(step.node, Close(peer=ADDRESSES[1 - step.node]))

    def _each(self, step: Step, role: Role | None, make: Callable[[int], Any]) -> None:
        """Work for the PDCs of a role that are established."""
        pdcs = self.watches[step.node].pds.pdcs.values()
        found = [p.local_id for p in pdcs if p.state is State.ESTABLISHED and role in (None, p.role)]
        if not found:
            raise LocalError(f"{step.action}: node {NAMES[step.node]} has no PDC for it")
        for pdcid in found:
            self._submit(step.node, make(pdcid))

    def _do_ask_close(self, step: Step) -> None:
        self._each(step, Role.TARGET, lambda pdcid: AskClose(pdcid=pdcid))

    def _do_noop(self, step: Step) -> None:
        self._submit(step.node, Noop(peer=ADDRESSES[1 - step.node], mode=self._mode(step)))

    def _do_negotiate(self, step: Step) -> None:
        peer = ADDRESSES[1 - step.node]
        self._submit(step.node, Negotiate(peer=peer, mode=self._mode(step), features=step.number))

    def _mode(self, step: Step) -> Mode:
        """That of the PDC there is, else RUD."""
        pdcs = self.watches[step.node].pds.pdcs.values()
        return next((p.mode for p in pdcs if p.mode in PDC_MODES), Mode.RUD)

    def _do_probe(self, step: Step) -> None:
        self._each(step, None, lambda pdcid: Probe(pdcid=pdcid))

    def _do_ask_credit(self, step: Step) -> None:
        self._each(step, None, lambda pdcid: AskCredit(pdcid=pdcid, target=step.number))

    def _do_give_credit(self, step: Step) -> None:
        self._each(step, None, lambda pdcid: GiveCredit(pdcid=pdcid, credit=step.number))

    def _do_lose(self, step: Step) -> None:
        for pdc in self.watches[step.node].pds.pdcs.values():
            slot = pdc.rx.slots.get(step.number)
            if isinstance(slot, Stored):
                slot.response = None
                self._mishap(Mishap.LOST)
                return
        raise LocalError(f"PSN {step.number:#x}: no stored response")

    def _do_restart(self, step: Step) -> None:
        self.restarts += 1
        self._make(step.node)
        self._mishap(Mishap.RESTARTED)
        self.watches[step.node].pds.poll(self.now)

    def _do_inject(self, step: Step) -> None:
        self._mishap(Mishap.FORGED)
        packet = Datagram(ADDRESSES[1 - step.node], ADDRESSES[step.node], step.data)
        watch = self.watches[step.node]
        try:
            watch.receive(packet, self.now)
        except (Violation, LocalError):
            raise
        except Exception as error:
            watch.raised = error
            self._ask(48, watch, False)
        self._settle(step.node)

    def _mishap(self, mishap: Mishap) -> None:
        if mishap not in self.mishaps:
            for watch in self.watches:
                watch.happened(mishap)

    # The end

    def finish(self) -> None:
        """The network delivers, SES answers: liveness, pds.md §18 items 49–52. Then everything is scanned."""
        self._limits = [NEVER, NEVER]
        for node in (0, 1):
            self._settle(node)
        self._rest()
        for watch in self.watches:
            watch.scan()
        self._judge_end()

    def _rest(self) -> None:
        """Everything on the wire arrives, waiting answers are given, timers run, until nothing but idle is armed.

        Where budgets end, or harm was done, it is enough that SES has an answer to everything, or has waited for long:
        a PDC whose other end is gone may wait for its idle time.
        """
        live = self._lives()
        until = self.now + (NEVER if live else PATIENCE)
        before = None
        while before != (before := self._progress()):
            if self._rests_within(MOST_ARRIVALS, until):
                return
        if live:
            raise Violation("pds 49", f"not quiet after {MOST_ARRIVALS} packets without progress")

    def _progress(self) -> tuple[object, ...]:
        """What does not change in a world that turns in circles."""
        pdcs = [pdc for watch in self.watches for pdc in watch.pds.pdcs.values()]
        return tuple((pdc.state, pdc.tx.una, pdc.rx.cack, pdc.rx.expected) for pdc in pdcs)

    def _rests_within(self, arrivals: int, until: int) -> bool:
        for _ in range(arrivals):
            self.steps += 1
            if self.wire.flight:
                self._run_to(self.now + TRANSIT)
                self._arrives(next(iter(self.wire.flight)))
                continue
            for node, ses in enumerate(self.ses):
                for _, number in list(ses.waiting):
                    self._do_respond(Step("respond", node, number))
            if self.wire.flight:
                continue
            due = min(watch.pds.deadline() or NEVER for watch in self.watches)
            if due == NEVER or due > until or all(watch.pds.quiescent for watch in self.watches):
                return True
            self._run_to(due)
        return False

    def _lives(self) -> bool:
        """Everything has to come to a good end: budgets are infinite, and no harm was done."""
        return not self.mishaps and all(lives(config) for config in self.configs)

    def _judge_end(self) -> None:
        for entry in INVARIANTS.values():
            holds = all(entry.when(config, Mode.RUD) for config in self.configs)
            if entry.scope is Scope.END and holds and not entry.void_after & self.mishaps:
                entry.check(self)


__all__ = ["HISTORY", "PROFILES", "Chooser", "World"]
