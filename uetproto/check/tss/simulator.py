# SPDX-License-Identifier: GPL-2.0-only
"""This module simulates two members of a secure domain with an attacker on the wire, and checks invariants.

A run is a function of its settings and its steps (`steps.TssStep`). The attacker sees and may change every packet, but
does not know the keys of the domain. The endpoints are members of a second domain, too, and the attacker knows the key
of this second domain. The key server follows the protocol: it never hands out a key twice, and moves epochs for all
members at once (tss.md §10).
"""

from typing import Any

from uetproto.check.simulator import TRANSIT, Simulator
from uetproto.check.tss.endpoint import JOB, KEY, LONGEST, OTHER_SDI, SDI, TssEndpoint, TssOperation
from uetproto.check.tss.invariants import TSS, TssScope
from uetproto.check.tss.steps import ACTIONS, CUTS, DRESSES, FIELDS, MODES, RESTARTS, TssStep
from uetproto.check.tss.terms import Terms, generation
from uetproto.check.tss.wire import SealedPacket, SealedWire
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import NEVER, SECOND, Close, Completion, Mode, PdcOpened, Read, Write
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.engine.pds.secure_start import ExpectedStart
from uetproto.engine.tss.cipher import Cipher, SecurityHeader
from uetproto.engine.tss.domain import SecureDomain
from uetproto.engine.tss.keys import KEY_SIZE, DomainKey
from uetproto.engine.tss.ledger import NonceLedger
from uetproto.errors import LocalError

NAMES = ("a", "b")
MOST_ARRIVALS = 20_000
"""Number of packets and timers after which `finish` reports that the endpoints do not stop sending."""
PATIENCE = 60 * SECOND
"""Limit in picoseconds of the virtual time that `finish` takes."""
_M16 = 0xFFFF
_HALF = 1 << 47
"""Where the counters of a server begin (tss.md §4)."""
_INSIDER, _GUESS = DomainKey(b"\x11" * KEY_SIZE), DomainKey(b"\x22" * KEY_SIZE)
"""The key of the other domain, and a guessed one that is not the key of this domain."""


_CHECKS = {scope: [one for one in TSS.entries.values() if one.scope is scope] for scope in TssScope}


class TssSimulator(Simulator[TssStep, SealedWire], actions=ACTIONS):
    """This simulator has the endpoints 0 and 1, the wire between them, and the virtual time."""

    def __init__(self, draws: int = 0, terms: dict[str, Any] | None = None, pds: dict[str, Any] | None = None) -> None:
        """`draws` seeds the random numbers of the endpoints. `terms` has fields of `Terms`, and `pds` has fields of
        `PdsConfig`; other fields keep their defaults.

        Raises `LocalError` for settings that exclude each other.
        """
        super().__init__(SealedWire())
        self.draws = draws
        self.terms = Terms(**(terms or {}))
        self.config = PdsConfig(secure_start=self.terms.start, **(pds or {}))
        self.ledger = NonceLedger()
        self.restarts = 0
        self.genuine: dict[SealedPacket, int] = {}
        """Maps every packet that an endpoint sealed to the generation of the key under which it was sealed."""
        self.keys = {0: 1}
        """Maps each AN to the generation of its key."""
        self.epochs = {0: self.terms.epoch}
        self.generations = 1
        self.opened: set[tuple[int, int, int]] = set()
        """Identifies the PDCs that targets have accepted, by node, PDCID of the initiator, and Start_PSN."""
        version = self.terms.ip_version
        self.ends = tuple(
            TssEndpoint(node, address, version, self.config, f"{draws}/{NAMES[node]}")
            for node, address in enumerate(self.terms.addresses)
        )
        other = generation(1) if self.terms.same_keys else _INSIDER
        self._other = self.terms.domain(OTHER_SDI, other)
        for end in self.ends:
            end.secure(self._member(end), SecureDomain(self._other, end.address, version))
            if self.terms.start_psn is not None:
                end.fep.pds.preset(Preset(start_psn=self.terms.start_psn))

    def _member(self, end: TssEndpoint, an: int = 0) -> SecureDomain:
        """Return the domain state of an endpoint without history."""
        settings = self.terms.domain(SDI, generation(self.keys[an]), an)
        epoch = self.epochs[an]
        return SecureDomain(settings, end.address, end.ip_version, tx_an=an, epoch=epoch, ledger=self.ledger)

    def name(self, end: TssEndpoint) -> str:
        return NAMES[end.node]

    def settle(self, node: int) -> None:
        self._settle(self.ends[node])

    def _settle(self, end: TssEndpoint) -> None:
        for packet in end.fep.poll(self.now):
            sealed = end.seal(packet)
            if sealed is not None:
                self.genuine[sealed] = self.keys[sealed.header.an]
                self.wire.send(sealed, self.now)
        for event in end.fep.events():
            if isinstance(event, Completion):
                self._check(TssScope.COMPLETED, event.context, event)
            elif isinstance(event, PdcOpened) and self._is_new_target(end, event):
                self._check(TssScope.PDC_OPENED, end, end.fep.pds.pdcs[event.pdcid])
        self._check(TssScope.SETTLED, end)

    def _check(self, scope: TssScope, *subject: Any) -> None:
        """Check the invariants of a scope. Raises `InvariantViolation`."""
        for invariant in _CHECKS[scope]:
            invariant.check(self, *subject)

    def _is_new_target(self, end: TssEndpoint, event: PdcOpened) -> bool:
        return self.terms.start == "expected" and not event.initiator and event.pdcid in end.fep.pds.pdcs

    def _arrives(self, number: int) -> None:
        packet = self.wire.flight.pop(number)
        if self._is_too_old(number):
            return
        for end in self.ends:
            if end.address == packet.dst:
                counted, refused = end.counted, end.refused
                opened = end.open(packet)
                self._check(TssScope.ARRIVED, end, counted, refused)
                if opened is None:
                    return
                if not opened.trimmed:
                    self._check(TssScope.OPENED, end, packet)
                end.fep.receive(opened, self.now)
                self._settle(end)

    # What applications do

    def _submit(self, step: TssStep, operation: TssOperation, work: Read | Write) -> None:
        end = self.ends[step.node]
        end.operations.append(operation)
        end.fep.pds.pool.next_id = 1  # old packets meet PDCs of the same name, as with `FewPdcids`
        end.fep.submit(work, self.now)
        self._settle(end)

    def _addressed(self, step: TssStep) -> dict[str, Any]:
        if step.how not in MODES or not 0 <= step.number <= LONGEST:
            raise LocalError(
                step.action, f"{step.number} bytes, mode {step.how}", f"0 … {LONGEST}, rud, rod", id="step-impossible"
            )
        return {"peer": self.ends[1 - step.node].address, "key": KEY, "job_id": JOB, "mode": Mode[step.how.upper()]}

    def _do_write(self, step: TssStep) -> None:
        more, memory = self._addressed(step), self.ends[1 - step.node].memory
        operation = TssOperation(step.node, memory.give(step.number), step.number)
        data = memory.read(operation.offset, step.number)
        self._submit(step, operation, Write(data=data, offset=operation.offset, context=operation, **more))

    def _do_read(self, step: TssStep) -> None:
        more = self._addressed(step)
        operation = TssOperation(step.node, 7 * self.steps, step.number, bytearray(step.number))
        work = Read(into=operation.into or bytearray(), offset=operation.offset, context=operation, **more)
        self._submit(step, operation, work)

    def _do_close(self, step: TssStep) -> None:
        end = self.ends[step.node]
        end.fep.submit(Close(peer=self.ends[1 - step.node].address), self.now)
        self._settle(end)

    # Key management (tss.md §10)

    @property
    def _an(self) -> int:
        """The AN that both ends use to seal. Raises `LocalError` during a rotation."""
        one, other = (end.domain.tx_an for end in self.ends)
        if one != other:
            raise LocalError("both do not use the same AN now", id="step-impossible")
        return one

    def _do_install(self, step: TssStep) -> None:
        idle = 1 - self._an
        self.generations += 1
        self.keys[idle], self.epochs[idle] = self.generations, 0
        for end in self.ends:
            end.domain.install(idle, generation(self.generations))

    def _do_switch(self, step: TssStep) -> None:
        domain = self.ends[step.node].domain
        an = domain.tx_an
        if self.keys.get(1 - an, 0) < self.keys[an]:
            raise LocalError("switch", "there is no new key", id="step-impossible")
        domain.switch(1 - an)

    def _do_empty(self, step: TssStep) -> None:
        idle = 1 - self._an
        self.keys.pop(idle, None)
        for end in self.ends:
            end.domain.empty(idle)

    def _do_epoch(self, step: TssStep) -> None:
        an = self._an
        if not 0 < step.number <= self.terms.lifetime + 1:
            raise LocalError("epoch", step.number, f"1 … {self.terms.lifetime + 1}", id="step-impossible")
        self._move_epoch(an, step.number, self.ends)

    def _move_epoch(self, an: int, by: int, ends: tuple[TssEndpoint, ...]) -> None:
        self.epochs[an] = (self.epochs[an] + by) & _M16
        for end in ends:
            end.domain.move_epoch(self.epochs[an])

    def _do_restart(self, step: TssStep) -> None:
        """Let an endpoint forget all but the addresses, the key and, with `floor`, Expected_PSN (tss.md §11)."""
        if step.how not in RESTARTS:
            raise LocalError("restart", f"{step.how!r}", ", ".join(RESTARTS), id="step-impossible")
        an, end, peer = self._an, self.ends[step.node], self.ends[1 - step.node]
        policy = end.fep.pds.start_policy
        keeps = step.how == "floor"
        if keeps and (not isinstance(policy, ExpectedStart) or end.fep.pds.pdcs):
            raise LocalError("restart", "floor; legal with Expected_PSN, and without PDC", id="step-impossible")
        self.opened = {one for one in self.opened if keeps or one[0] != end.node}
        self._do_empty(step)  # otherwise the endpoint could seal again with a key whose nonces it has used
        self._move_epoch(an, 1 if keeps else self.terms.lifetime + 1, (peer,))
        self.restarts += 1
        end.begin(f"{self.draws}/{NAMES[end.node]}/{self.restarts}")
        for operation in peer.operations:  # a write without an outcome may be delivered once more
            if operation.into is None and not operation.outcomes:
                end.memory.take_back(operation.offset, operation.length)
        end.secure(self._member(end, an), end.port.domains[OTHER_SDI])
        if isinstance(policy, ExpectedStart) and keeps:
            end.fep.pds.preset(Preset(expected_psn=policy.expected))

    # The network

    def _do_advance(self, step: TssStep) -> None:
        self._run_to(self.now + step.number)

    def _run_to(self, until: int) -> None:
        """Let time pass until `until`; both ends are settled at every timer."""
        while (due := min(self._due(0), self._due(1))) <= until:
            self._run_timers(due)
        self.now = until

    def _due(self, node: int) -> int:
        return self.ends[node].fep.deadline() or NEVER

    def _run_timers(self, due: int) -> None:
        self.now = max(self.now, due)
        for end in self.ends:
            self._settle(end)

    # The attacker

    def _is_too_old(self, number: int) -> bool:
        """Return whether a packet is too old to arrive: without secure start only time tells old packets from new
        (tss.md §11).

        The limit is half of MSL, because a PDCID of a target is quarantined for MSL, in which a source may still repeat
        its SYN (for Σ RTO).
        """
        return self.terms.start == "off" and self.now - self.wire.born[number] > self.config.msl // 2

    def _do_dup(self, step: TssStep) -> None:
        if self.wire.copy(step.number) is None:
            raise LocalError(f"packet {step.number} has not left yet", id="step-impossible")

    def _packet(self, step: TssStep) -> SealedPacket:
        (number,) = self._there(step)
        return self.wire.flight[number]

    def _do_flip(self, step: TssStep) -> None:
        packet = self._packet(step)
        data = bytearray(packet.data)
        if step.at >= 8 * len(data):
            raise LocalError("flip", f"bit {step.at} of {8 * len(data)}", id="step-impossible")
        data[step.at >> 3] ^= 0x80 >> (step.at & 7)
        self.wire.flight[step.number] = packet._replace(data=bytes(data))

    def _do_cut(self, step: TssStep) -> None:
        packet = self._packet(step)
        if step.how not in CUTS or step.at >= len(packet.data):
            raise LocalError("cut", f"to {step.at} of {len(packet.data)} bytes", id="step-impossible")
        cut = packet._replace(data=packet.data[: step.at], is_trimmed=bool(step.how))
        self.wire.flight[step.number] = cut

    def _do_extend(self, step: TssStep) -> None:
        packet = self._packet(step)
        self.wire.flight[step.number] = packet._replace(data=packet.data + step.data)

    def _do_rewrite(self, step: TssStep) -> None:
        if step.how not in FIELDS:
            raise LocalError("rewrite", f"{step.how!r}", ", ".join(FIELDS), id="step-impossible")
        self.wire.flight[step.number] = self._packet(step).rewritten(step.how, step.at)

    def _do_splice(self, step: TssStep) -> None:
        packet, at = self._packet(step), self.sent - 1 - step.at
        if at < 0:
            raise LocalError("splice", f"no packet left {step.at} packets ago", id="step-impossible")
        self.wire.flight[step.number] = packet.under(self.wire.history[at].header)

    def _do_forge(self, step: TssStep) -> None:
        end, peer = self.ends[step.node], self.ends[1 - step.node]
        packet = SealedPacket(peer.address, end.address, 0, step.data)
        if step.how in ("guess", "insider"):
            if step.how == "insider" and self.terms.same_keys:
                raise LocalError("forge", "the attacker has no key of the other domain", id="step-impossible")
            packet = packet._replace(data=self._sealed(step, packet))
        elif step.how not in DRESSES:
            raise LocalError("forge", f"{step.how!r}", ", ".join(DRESSES), id="step-impossible")
        self.wire.send(packet, self.now)

    def _sealed(self, step: TssStep, packet: SealedPacket) -> bytes:
        """Return the packet as the peer would seal it, but under another key."""
        end = self.ends[1 - step.node]
        is_guess = step.how == "guess"
        settings = self.terms.domain(SDI, _GUESS) if is_guess else self._other
        an, epoch = (end.domain.tx_an, end.domain.tx_epoch) if is_guess else (0, 0)
        half = _HALF if end.address in settings.servers else 0
        header = SecurityHeader(settings.sdi, an, settings.ssi_of(packet.src, packet.dst), epoch, half + self.sent)
        return Cipher(settings, settings.keys[0][0]).seal(header, packet.below(end.ip_version), packet.data)

    # The end

    def finish(self) -> None:
        """Let the domains accept packets again in spite of earlier authentication failures. Then deliver packets and
        run timers until nothing is left to do. At the end every message must have an outcome (tss.md §14)."""
        for end in self.ends:
            end.domain.clear_dropping()
        until = self.now + PATIENCE
        for _ in range(MOST_ARRIVALS):
            self.steps += 1
            if self.flight:
                self.now += TRANSIT
                self._arrives(next(iter(self.flight)))
            elif all(end.fep.quiescent for end in self.ends) or (due := min(self._due(0), self._due(1))) > until:
                break
            else:
                self._run_timers(due)
        else:
            raise TSS.broken(7, f"not quiet after {MOST_ARRIVALS} packets")
        self._check(TssScope.ENDED)
