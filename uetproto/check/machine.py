"""A world of two endpoints on an adversarial wire, in which the invariants are checked after every step."""

from uetproto.check.invariants import DELIVERED, SENT, STATE, Ledger, Segments, Violation, pds_6_one_outcome
from uetproto.check.wire import Adversity, Wire
from uetproto.engine.contract import NEVER, Buffer, Datagram, Event, PdsError, Rng, Work
from uetproto.engine.fep import Fep
from uetproto.engine.messages import Ack, Request, parse
from uetproto.engine.service import Connection, Outgoing, Refusal, Response
from uetproto.engine.states import Role, State
from uetproto.engine.uet_pdc import Pdc

TRANSIT = 1_000_000
"""Picoseconds that pass with every step of `World.run`."""


class _Witness:
    """Stands between PDS and SES of one endpoint and writes down what passes (`service.PdsUser`)."""

    def __init__(self, world: "World", fep: Fep) -> None:
        self.world = world
        self.fep = fep

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        ledger = self.world.ledger(self.fep, pdc)
        answer = self.fep.on_request(pdc, psn, next_hdr, data, at, payload, now)
        if not isinstance(answer, Refusal):
            ses = bytes(data[at:]) if payload is not data else bytes(data)
            for check in DELIVERED:
                check(ledger, psn, ses)
            ledger.delivered.append(psn)
            ledger.delivered_set.add(psn)
            if answer is not None and answer.final:
                ledger.answers[psn] = answer
        return answer

    def respond(self, pdcid: int, psn: int, response: Response, now: int) -> None:
        """A late answer of SES."""
        pdc = self.fep.pds.pdcs.get(pdcid)
        if pdc is not None and response.final:
            self.world.ledger(self.fep, pdc).answers[psn] = response
        self.fep.pds.respond(pdcid, psn, response, now)

    def on_response(self, message: Outgoing, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        pds_6_one_outcome(self.world.ledger_of_message(self.fep, message), (id(message), index), "response")
        self.fep.on_response(message, index, next_hdr, response, now)

    def on_error(self, message: Outgoing, index: int, error: PdsError) -> None:
        pds_6_one_outcome(self.world.ledger_of_message(self.fep, message), (id(message), index), "error")
        self.fep.on_error(message, index, error)

    def on_closed(self, pdc: Connection) -> None:
        self.fep.on_closed(pdc)


class World:
    """Two endpoints `a`, `b`, the wire between them, the time, and the ledgers of all PDCs."""

    def __init__(self, a: Fep, b: Fep) -> None:
        self.feps = {a.address: a, b.address: b}
        self.wire = Wire()
        self.now = 0
        self.events: dict[int, list[Event]] = {a.address: [], b.address: []}
        self.trace: list[tuple[int, int, bytes]] = []
        """Time, sender and bytes of every packet that left."""
        self._ledgers: dict[tuple[int, int], Ledger] = {}
        self._messages: dict[int, Ledger] = {}
        self._segments: dict[int, Segments] = {}
        self._kept: list[Outgoing] = []
        for fep in (a, b):
            witness = _Witness(self, fep)
            fep.pds.user = witness
            fep.target.late = witness.respond

    # Ledgers

    def ledger(self, fep: Fep, pdc: Connection) -> Ledger:
        """The ledger of this end of the PDC; a PDCID used again gets a new one."""
        key = (fep.address, pdc.local_id)
        found = self._ledgers.get(key)
        if found is None or found.pdc is not pdc:
            assert isinstance(pdc, Pdc)
            found = self._ledgers[key] = Ledger(pdc)
        if found.peer is None and found.pdc.peer_id:
            peer = self._ledgers.get((found.pdc.peer, found.pdc.peer_id))
            if peer is not None and peer.pdc.tx.start == found.pdc.rx.start:
                found.peer = peer
        return found

    def ledger_of_message(self, fep: Fep, message: Outgoing) -> Ledger:
        """The ledger that keeps the outcomes of a message, whatever became of its PDC."""
        found = self._messages.get(id(message))
        if found is None:
            pdc = next((p for p in fep.pds.pdcs.values() if p.mode is message.mode and p.peer == message.peer), None)
            found = Ledger(pdc) if pdc is not None else next(iter(self._ledgers.values()))
            self._messages[id(message)] = found
            self._kept.append(message)  # keeps its id from being used again
        return found

    # Steps

    def submit(self, address: int, work: Work) -> None:
        self.feps[address].submit(work, self.now)
        self.settle()

    def deliver(self, packet: Datagram) -> None:
        """Hands one packet to its destination."""
        fep = self.feps.get(packet.dst)
        if fep is not None:
            fep.receive(packet, self.now)
        self.settle()

    def pass_time(self, duration: int) -> None:
        """Time goes on, timer by timer, as far as `duration`."""
        until = self.now + duration
        while True:
            due = min(fep.deadline() or NEVER for fep in self.feps.values())
            if due > until:
                break
            self.now = max(self.now, due)
            self.settle()
        self.now = until

    def settle(self) -> None:
        """Both endpoints poll; every packet and every state is checked."""
        for address, fep in self.feps.items():
            self._check_states(fep)
            before = dict(fep.pds.pdcs)
            packets = fep.poll(self.now)
            for packet in packets:
                self._check_sent(fep, before, packet)
            self._check_states(fep)
            self.wire.send(packets)
            self.events[address] += fep.events()

    def run(self, rng: Rng, adversity: Adversity, steps: int = 1_000_000) -> int:
        """Lets chance deliver until both endpoints are quiet and nothing is in flight; returns the steps taken."""
        for step in range(steps):
            if self.wire.flight:
                packet = self.wire.disturb(rng, adversity)
                self.now += TRANSIT
                if packet is not None:
                    self.deliver(packet)
                else:
                    self.settle()
            elif all(fep.quiescent or not fep.pds.pdcs for fep in self.feps.values()):
                return step
            else:
                due = min(fep.deadline() or NEVER for fep in self.feps.values())
                if due == NEVER:
                    raise Violation("pds 51: not quiet, and no timer is armed")
                self.now = max(self.now, due)
                self.settle()
        raise Violation(f"pds 49: not quiet after {steps} steps")

    # Checks

    def _check_states(self, fep: Fep) -> None:
        """All of `STATE` for each PDC; pds 27: any number of SYN packets of one instance creates one target PDC."""
        instances = [(pdc.peer, pdc.peer_id, pdc.rx.start) for pdc in fep.pds.pdcs.values() if pdc.role is Role.TARGET]
        if len(set(instances)) != len(instances):
            raise Violation(f"pds 27: several target PDCs for {instances}")
        for pdc in list(fep.pds.pdcs.values()):
            ledger = self.ledger(fep, pdc)
            for check in STATE:
                check(ledger)

    def _check_sent(self, fep: Fep, before: dict[int, Pdc], packet: Datagram) -> None:
        data = bytes(packet.header) + bytes(packet.payload)
        self.trace.append((self.now, packet.src, data))
        message = parse(data)
        if message.spdcid not in before and message.spdcid not in fep.pds.pdcs:
            return
        pdc = fep.pds.pdcs.get(message.spdcid) or before[message.spdcid]
        ledger = self.ledger(fep, pdc)
        if pdc.state is State.CLOSED or ledger.pdc is not pdc:
            return
        ses = data[message.size :] if isinstance(message, Request | Ack) else b""
        if isinstance(message, Request) and message.psn not in ledger.contents:
            mtu = fep.initiator.config.payload_mtu
            self._segments.setdefault(id(pdc), Segments(mtu)).add(message, ses)
        for check in SENT:
            check(ledger, message, ses)
