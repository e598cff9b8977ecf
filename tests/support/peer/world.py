# SPDX-License-Identifier: GPL-2.0-only
"""This module has two ends, each the engine or a naive one, and a network between them that does what a list of fates
says."""

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from struct import pack
from typing import Protocol

from tests.support.peer.ends import NaiveReceiver, NaiveSender
from tests.support.peer.formats import Ctl, Type, wire
from tests.support.peer.model import DEFAULT, Answer, Habits, Packet, Pdc
from uetproto.engine import (
    AskClose,
    Close,
    Datagram,
    Mode,
    PdcClosed,
    Pds,
    PdsConfig,
    PdsError,
    Preset,
    Refusal,
    Response,
    Trim,
)
from uetproto.engine.contract import PDC_MODES, Buffer, Negotiate, Noop
from uetproto.engine.pds.service import Connection, Outgoing
from uetproto.wire.headers.uet_pds import NackCode

A, B = 0x0A00000B, 0x0A00010B
US = 1_000_000
"""Number of picoseconds in a microsecond."""
LATENCY = 10 * US
TICK = 700 * US
SLOW = 1_300 * US
"""Time that SES of the target takes for a late answer: longer than an RTO."""
PATIENCE = 20_000_000 * US
"""Time after which everything is done: 20 s."""
STD_SIZE, STD = 44, 3  # bytes and next_hdr of a standard SES request (wire.md §2)
DATA_SIZE, DATA = 20, 5  # of RESPONSE_DATA
MIN_TRIM = 16  # bytes that are left of a trimmed packet (pds.md §14)

FATES: dict[str, tuple[int, ...]] = {
    "pass": (0,),
    "drop": (),
    "overtaken": (25,),
    "twice": (0, 40),
    "after a repetition": (1_700,),
    "and long after": (0, 5_300),
    "trim": (0,),
}
"""Microseconds by which each copy of a packet comes later than it might."""


@dataclass(frozen=True)
class Item:
    """An item is one packet of a message, with what SES of the target says to it."""

    payload: bytes
    kind: str = "ok"
    """Answer of SES. ok: a default response; error, data: a guaranteed one; with "late " before it: not at once. read:
    a default response, and the data comes in the return direction (pds.md §10)."""
    refusals: int = 0
    """Number of times that SES has no room for the packet."""

    @property
    def answer(self) -> Answer:
        number = int.from_bytes(self.payload[:4], "big")
        if self.kind.endswith("error"):
            return Answer(pack(">BBHII", 1, 5, 0, 0, number), guaranteed=True)  # RESPONSE, NO_MATCH
        if self.kind.endswith("data"):
            header = pack(">BBHIHHII", 2, 1, 0, 0, 0, 8, 8, 0)  # RESPONSE_W_DATA, OK, payload_length 8
            return Answer(header + number.to_bytes(8, "big"), guaranteed=True, next_hdr=DATA)
        return Answer(pack(">BBHII", 0, 1, 0, 0, 0))


class Target:
    """The SES that the target has, the same for both kinds of PDS."""

    def __init__(self, items: Iterable[Item], later: Callable[[int, Callable[[], None]], None]) -> None:
        self.items = {item.payload: item for item in items}
        self.refusals = {item.payload: item.refusals for item in self.items.values()}
        self.later = later
        self.delivered: list[bytes] = []

    def ask(
        self, payload: bytes, respond: Callable[[Answer], None], send_data: Callable[[bytes], None]
    ) -> Answer | int | None:
        """Return the answer, the NACK code of a refusal, or None if `respond` is called later. The data of a read is
        sent."""
        item = self.items[payload]
        if self.refusals[payload]:
            self.refusals[payload] -= 1
            return int(NackCode.NO_PKT_BUFFER)
        self.delivered.append(payload)
        if item.kind == "read":
            self.later(0, lambda: send_data(b"data of " + payload))
        if not item.kind.startswith("late"):
            return item.answer
        self.later(SLOW, lambda: respond(item.answer))
        return None


class Node(Protocol):
    """The network needs these methods of an end."""

    def receive(self, data: bytes, trimmed: bool, now: int) -> None: ...

    def poll(self, now: int) -> list[bytes]: ...

    def deadline(self) -> int | None: ...


class Sender(Node, Protocol):
    responses: list[tuple[object, Answer | None]]
    faults: list[str]

    data: list[bytes]
    """Data that came in the return direction."""

    def send(self, mode: Mode, items: list[Item], now: int) -> None: ...

    def open(self, mode: Mode, ctl: Ctl, now: int) -> None:
        """Send NOOP or NEGOTIATION (pds.md §13)."""

    def close(self, now: int) -> None: ...

    @property
    def closed(self) -> bool: ...


class Receiver(Node, Protocol):
    responses: list[tuple[object, Answer | None]]
    """Responses to return data."""
    faults: list[str]

    def ask_close(self, now: int) -> None: ...

    @property
    def cleared(self) -> bool:
        """Return whether no guaranteed response is stored."""

    @property
    def closed(self) -> bool: ...


# Ours ----------------------------------------------------------------------------------------------------------------


class Message:
    """A message with one payload for each packet is a `service.Outgoing`."""

    context = 0
    reserved = lock = False

    def __init__(self, peer: int, mode: Mode, message_id: int, payloads: list[bytes], next_hdr: int = STD) -> None:
        self.peer = peer
        self.mode = mode
        self.message_id = message_id
        self.next_hdr = next_hdr
        self.header = bytes(STD_SIZE if next_hdr == STD else DATA_SIZE)
        self.payloads = payloads
        self.sent = 0

    def unsent(self) -> tuple[int, int]:
        return len(self.payloads) - self.sent, 0

    def next_packet(self) -> tuple[int, bytes, Buffer, bool]:
        self.sent += 1
        return self.sent - 1, self.header, self.payloads[self.sent - 1], self.sent == len(self.payloads)


class Ours:
    """This end has an engine, and a SES that only records."""

    def __init__(self, address: int, peer: int, config: PdsConfig) -> None:
        self.peer = peer
        self.pds = Pds(address, config, random.Random(address), self)
        self.sent: dict[int, list[bytes]] = {}
        """Payloads of the messages sent, by message id."""
        self.responses: list[tuple[object, Answer | None]] = []
        self.faults: list[str] = []

    def message(self, mode: Mode, payloads: list[bytes], next_hdr: int = STD) -> Message:
        message_id = len(self.sent) + 1
        self.sent[message_id] = payloads
        return Message(self.peer, mode, message_id, payloads, next_hdr)

    def receive(self, data: bytes, trimmed: bool, now: int) -> None:
        trim = Trim.TRIMMED if trimmed else Trim.NO
        self.pds.receive(Datagram(self.peer, self.pds.address, data, trimmed=trim), now)

    def poll(self, now: int) -> list[bytes]:
        closed = [event for event in self.pds.events() if isinstance(event, PdcClosed)]
        self.faults += [str(event) for event in closed if event.error]
        return [bytes(packet.header) + bytes(packet.payload) for packet in self.pds.poll(now)]

    def deadline(self) -> int | None:
        return self.pds.deadline()

    @property
    def closed(self) -> bool:
        return not self.pds.pdcs

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        raise NotImplementedError

    def on_reread(self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer) -> Response:
        raise AssertionError("read data is stored")

    def on_response(self, message: Outgoing, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        answer = None if response is None else Answer(bytes(response), next_hdr=next_hdr)
        self.responses.append((self.sent[message.message_id][index], answer))

    def on_error(self, message: Outgoing, index: int, error: PdsError) -> None:
        self.faults.append(f"packet {index} of message {message.message_id}: {error}")

    def on_closed(self, pdc: Connection) -> None: ...


class OurSender(Ours):
    def __init__(self, config: PdsConfig, start: int) -> None:
        super().__init__(A, B, config)
        self.pds.preset(Preset(start_psn=start))
        self.data: list[bytes] = []

    def send(self, mode: Mode, items: list[Item], now: int) -> None:
        self.pds.send(self.message(mode, [item.payload for item in items]), now)

    def open(self, mode: Mode, ctl: Ctl, now: int) -> None:
        self.pds.submit(Noop(peer=B, mode=mode) if ctl == Ctl.NOOP else Negotiate(peer=B, mode=mode), now)

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        assert next_hdr == DATA
        self.data.append(bytes(payload))
        return _response(DEFAULT)

    def close(self, now: int) -> None:
        if self.pds.pdcs:
            self.pds.submit(Close(peer=B), now)


class OurReceiver(Ours):
    def __init__(self, config: PdsConfig, target: Target, clock: Callable[[], int]) -> None:
        super().__init__(B, A, config)
        self.target = target
        self.clock = clock

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        pdcid, mode = pdc.local_id, pdc.mode

        def respond(answer: Answer) -> None:
            self.pds.respond_late(pdc, psn, _response(answer), self.clock())

        def send_data(data: bytes) -> None:
            self.pds.send_return(pdcid, self.message(mode, [data], DATA), self.clock())

        answer = self.target.ask(bytes(payload), respond, send_data)
        if isinstance(answer, int):
            return Refusal(NackCode(answer))
        return None if answer is None else _response(answer)

    def ask_close(self, now: int) -> None:
        for pdcid in list(self.pds.pdcs):
            self.pds.submit(AskClose(pdcid=pdcid), now)

    @property
    def cleared(self) -> bool:
        return not any(pdc.rx.stored for pdc in self.pds.pdcs.values())


def _response(answer: Answer) -> Response:
    return Response(answer.ses, gtd=answer.guaranteed, next_hdr=answer.next_hdr)


# The naive one -------------------------------------------------------------------------------------------------------


class Simple:
    """This end has a naive endpoint, and its clock."""

    def __init__(self, end: NaiveSender | NaiveReceiver) -> None:
        self.end = end
        self.faults = end.faults
        self.responses = end.responses
        self.next_tick = TICK

    def receive(self, data: bytes, trimmed: bool, now: int) -> None:
        self.end.receive(data, trimmed)

    def poll(self, now: int) -> list[bytes]:
        if now >= self.next_tick:
            self.next_tick = now + TICK
            self.end.tick()
        out, self.end.out = self.end.out, []
        return out

    def deadline(self) -> int | None:
        return self.next_tick

    @property
    def closed(self) -> bool:
        return all(pdc.closed for pdc in self.end.pdcs)

    @property
    def cleared(self) -> bool:
        return not any(pdc.rx.stored(psn) for pdc in self.end.pdcs if not pdc.closed for psn in pdc.rx.answers)


class SimpleSender(Simple):
    def __init__(self, habits: Habits, start: int) -> None:
        self.sender = NaiveSender(self.deliver, habits)
        super().__init__(self.sender)
        self.start = start
        self.rudi_sent = 0
        self.data: list[bytes] = []

    def deliver(self, pdc: Pdc | None, psn: int, body: bytes) -> Answer | int | None:
        self.data.append(body[DATA_SIZE:])
        return DEFAULT

    def send(self, mode: Mode, items: list[Item], now: int) -> None:
        packets = [
            Packet(STD, bytes(STD_SIZE) + item.payload, self.sender.habits.ar or item is items[-1], item.payload)
            for item in items
        ]
        if mode in PDC_MODES:
            self.sender.send(mode is Mode.ROD, packets, self.start)
        for packet in packets:
            if mode is Mode.RUDI:
                self.sender.send_rudi(packet, wire(self.start + 7919 * self.rudi_sent))
                self.rudi_sent += 1
            elif mode is Mode.UUD:
                self.sender.send_uud(packet)

    def open(self, mode: Mode, ctl: Ctl, now: int) -> None:
        self.sender.send(mode is Mode.ROD, [Packet(ctl, control=True)], self.start)

    def close(self, now: int) -> None:
        self.sender.close()


class SimpleReceiver(Simple):
    def __init__(self, habits: Habits, target: Target) -> None:
        self.receiver = NaiveReceiver(self.deliver, habits)
        super().__init__(self.receiver)
        self.target = target

    def deliver(self, pdc: Pdc | None, psn: int, body: bytes) -> Answer | int | None:
        def respond(answer: Answer) -> None:
            assert pdc is not None
            pdc.respond(psn, answer)

        def send_data(data: bytes) -> None:
            assert pdc is not None
            pdc.submit(Packet(DATA, bytes(DATA_SIZE) + data, handle=data))

        return self.target.ask(body[STD_SIZE:], respond, send_data)

    def ask_close(self, now: int) -> None:
        self.receiver.ask_close()


# The network between them --------------------------------------------------------------------------------------------


@dataclass
class Network:
    """The network delivers packets, and lets time pass. Each packet takes the next of `fates`; when there are no more,
    all packets arrive."""

    fates: list[str]
    now: int = 0
    due: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    count: int = 0

    def at(self, when: int, what: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.due, (when, self.count, what))

    def later(self, after: int, what: Callable[[], None]) -> None:
        self.at(self.now + after, what)

    def run(self, until: Callable[[], bool]) -> bool:
        """Run until `until()` is true; return False if it never was."""
        while True:
            for name, node in self.nodes.items():
                for data in node.poll(self.now):
                    self._carry(data, next(other for other in self.nodes if other != name))
            if until():
                return True
            times = [at for node in self.nodes.values() if (at := node.deadline()) is not None]
            times += [self.due[0][0]] if self.due else []
            if not times or min(times) > PATIENCE:
                return False
            self.now = max(self.now, min(times))
            while self.due and self.due[0][0] <= self.now:
                heapq.heappop(self.due)[2]()

    def _carry(self, data: bytes, to: str) -> None:
        fate = self.fates.pop(0) if self.fates else "pass"
        trimmed = fate == "trim" and data[0] >> 3 in (Type.RUD_REQ, Type.ROD_REQ, Type.RUDI_REQ)
        arriving = data[:MIN_TRIM] if trimmed else data
        for delay in FATES[fate]:
            when = self.now + LATENCY + delay * US
            self.at(when, lambda: self.nodes[to].receive(arriving, trimmed, self.now))
