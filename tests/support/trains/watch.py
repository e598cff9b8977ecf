# SPDX-License-Identifier: GPL-2.0-only
"""Watches every network that is built meanwhile: completions and other events in their order, each with its instant and
with what the NICs had then, and the state of engines, NICs, links, switches and queues whenever somebody asks.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, Self
from zlib import crc32

from uetproto.emulator.network.built import BuiltNetwork
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.nic import Nic
from uetproto.engine.roce.hca import Hca
from uetproto.framing.tss import SealingFramer

Seen = dict[str, Any]
"""All that can be seen of a run, by name, in the order in which it is compared."""


class Watch:
    """This context manager notes what happens in networks that are built within its block."""

    closely = False
    """Whether the state of all networks is noted with each event, which takes a tenth more time."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        """Instant, number of the NIC, event, and frames sent and received by each NIC up to then."""
        self.networks: list[BuiltNetwork] = []
        self.parts: Seen = {}
        """Other things that whoever played the run has seen."""
        self._clocks: list[Clock] = []
        self._nics: list[Nic] = []
        self._known: dict[int, tuple[int, Any]] = {}
        """Objects that stand in events, by `id`, with their number; kept, so that no other object gets the `id`."""

    def __enter__(self) -> Self:
        self._nic, self._built = Nic.__init__, BuiltNetwork.__init__
        make_nic, make_network = self._nic, self._built

        def nic(
            nic: Nic, clock: Clock, engine: Any, framer: Any, link: Any, on_event: Callable[[Any], None], *more: Any
        ) -> None:
            number = len(self._nics)

            def note(event: Any) -> None:
                frames: Any = [(nic.sent, nic.received, nic.received_at) for nic in self._nics]
                if self.closely:
                    frames = repr((frames, *map(state_of, self.networks)))
                self.events.append((clock.now, number, self.told(event), frames))
                on_event(event)

            make_nic(nic, clock, engine, framer, link, note, *more)
            self._nics.append(nic)
            if not any(clock is known for known in self._clocks):
                self._clocks.append(clock)

        def network(built: BuiltNetwork, *given: Any, **named: Any) -> None:
            make_network(built, *given, **named)
            self.networks.append(built)

        Nic.__init__ = nic  # type: ignore[method-assign, assignment]
        BuiltNetwork.__init__ = network  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        Nic.__init__ = self._nic  # type: ignore[method-assign]
        BuiltNetwork.__init__ = self._built  # type: ignore[method-assign]

    def told(self, value: Any, depth: int = 3) -> Any:
        """Return a value in words that are equal in two runs which are equal."""
        if value is None or isinstance(value, (int, float, str, bytes, Enum)):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return crc32(value)
        if isinstance(value, (list, tuple)):
            return [type(value).__name__, *(self.told(one, depth) for one in value)]
        names = getattr(type(value), "__dataclass_fields__", None)
        if names and getattr(type(value), "__eq__", None) is not object.__eq__ and depth:
            return [type(value).__name__, *(self.told(getattr(value, name), depth - 1) for name in names)]
        if id(value) not in self._known:
            self._known[id(value)] = (len(self._known), value)
        return f"{type(value).__name__} {self._known[id(value)][0]}"

    def seen(self) -> Seen:
        """Return the events, and the state at the end."""
        found: Seen = {f"event {number}": event for number, event in enumerate(self.events)}
        found["clocks"] = [(clock.now, len(clock)) for clock in self._clocks]
        for number, network in enumerate(self.networks):
            found |= {f"{number} {name}" if number else name: value for name, value in state_of(network).items()}
        return found | self.parts


def state_of(network: BuiltNetwork) -> Seen:
    """Return the counters and numbers that engines, NICs, links, switches and queues have now."""
    seen: Seen = {}
    for name, nic in network.nics.items():
        seen[f"NIC of {name}"] = nic.sent, nic.repeated, nic.received, nic.received_at
        seen |= state_of_node(name, nic._engine, nic.framer)
    for number, hop in enumerate(network.hops):
        seen[f"link {number}, {hop.source} > {hop.target}"] = hop.link.frames, hop.link.bytes, hop.link.busy_until
    for name, queue in (network.queues | network.trunks).items():
        seen[f"queue {name}"] = queue.peak
    for name, switch in network.switches.items():
        seen[f"switch {name}"] = switch.dropped, switch.trimmed, switch.unknown
    for name, port in network.faults.items():
        seen[f"faults of {name}"] = port.number, dict(port.done)
    for name, marker in network.markers.items():
        seen[f"marks of {name}"] = marker.marked
    return seen


def state_of_node(name: str, engine: Any, framer: Any) -> Seen:
    """Return the counters and numbers that an engine and its framer have now."""
    seen: Seen = {}
    if isinstance(engine, Hca):
        seen |= _hca(name, engine)
    elif hasattr(engine, "pds"):
        seen |= _fep(name, engine)
    if isinstance(framer, SealingFramer):
        seen[f"security of {name}"] = _security(framer)
    return seen


def _fep(name: str, engine: Any) -> Seen:
    pds, initiator, target = engine.pds, engine.initiator, engine.target
    seen: Seen = {
        f"endpoint {name}": (
            repr(pds.counters), pds.nack_tx, pds.nack_rx, engine.deadline(), engine.quiescent, engine.retransmitted,
            sorted(initiator.messages), len(initiator.transfers), len(target.messages),
        )
    }  # fmt: skip
    for number, pdc in pds.pdcs.items():
        seen[f"PDC {number} of {name}"] = (
            pdc.state, pdc.tx.una, pdc.tx.next, pdc.tx.peer_cack, pdc.rx.cack, pdc.rx.max_clear, pdc.rx.max_rcvd,
            pdc.rx.sack_track, pdc.ack_gen_count, pdc.touched, pdc.wake_at, pdc.clear_at, pdc.stored_at,
            [(record.psn, record.rto_at, record.retx_at) for record in pdc.tx.records.values()],
        )  # fmt: skip
    return seen


def _security(framer: SealingFramer) -> Any:
    domain = framer.domain
    ciphers = [cipher for cipher in domain._slots if cipher is not None]
    return (
        domain.tx_an, domain.tx_counter, domain.domain_dropping, repr(domain.counters), framer.next_change(),
        [domain.has_key(an) for an in (0, 1)], list(domain._epochs), domain._failures, dict(framer.refused),
        framer.bad_crc, framer.bad_header, framer.foreign, [repr(cipher._ledger) for cipher in ciphers],
    )  # fmt: skip


def _hca(name: str, engine: Hca) -> Seen:
    seen: Seen = {
        f"adapter {name}": (dict(engine.counters), dict(engine.retransmitted), engine.deadline(), engine.quiescent)
    }
    for number, qp in engine.qps.items():
        seen[f"queue pair {number} of {name}"] = (
            qp.state, qp.established, len(qp.receives.items),
            [getattr(qp.requester, one, None) for one in ("una", "next", "cursor", "timer", "retries", "lsn")],
            [getattr(qp.responder, one, None) for one in ("epsn", "msn", "done", "phase")],
        )  # fmt: skip
    return seen
