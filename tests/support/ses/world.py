# SPDX-License-Identifier: GPL-2.0-only
"""This module has endpoints on a lossy wire in virtual time; a `Log` records everything that they do."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.ses.records import Asked, Data, Log, Packet, Posted
from uetproto.engine import Datagram, Fep, PdsConfig, SesConfig
from uetproto.engine.contract import Addressed, Cancelled, Completion, Event, Mode, Receive, Received
from uetproto.engine.memory import BufferMemory
from uetproto.engine.pds.messages import Ack, Request, Rudi, Uud, parse
from uetproto.engine.pds.service import SES_SIZE, Refusal, Response
from uetproto.engine.ses.headers import parse_extensions, parse_ses_request, parse_ses_response
from uetproto.errors import RemoteError
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import REQUEST_MEDIUM, REQUEST_SMALL, REQUEST_STD, TAGGED, ResponseOpcode, Space

US = 1_000_000
MS = 1000 * US
SECOND = 1000 * MS

REQUESTS = {
    NextHdr.REQUEST_STD: REQUEST_STD.size, NextHdr.REQUEST_MEDIUM: REQUEST_MEDIUM.size,
    NextHdr.REQUEST_SMALL: REQUEST_SMALL.size,
}  # fmt: skip
DATA = (NextHdr.RESPONSE_DATA, NextHdr.RESPONSE_DATA_SMALL)


class Recorded(BufferMemory):
    """Memory that remembers what was written."""

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        self.writes: list[tuple[int, int]] = []

    def write(self, offset: int, data: Any) -> None:
        self.writes.append((offset, len(data)))
        super().write(offset, data)


@dataclass
class Loss:
    """The shares of packets to which the wire does each of these, from 0 to 1; delays are in picoseconds."""

    drop: float = 0.0
    copy: float = 0.0
    least: int = 1 * US
    most: int = 1 * US


class World:
    """A world of endpoints; with `objects` packets travel as values, else as bytes."""

    def __init__(
        self, addresses: tuple[int, ...], *, seed: int = 0, loss: Loss | None = None, objects: bool = False,
        pds: dict[str, Any] | None = None, ses: Callable[[int], dict[str, Any]] | dict[str, Any] | None = None,
        mtu: int = 4096,
    ) -> None:  # fmt: skip
        self.rng = random.Random(seed)
        self.loss = loss or Loss()
        self.now = 0
        self.log = Log(mtu)
        self.steps = 0
        self.memories: list[Recorded] = []
        self.events: dict[int, list[Event]] = {}
        self.wire: list[tuple[int, int, Datagram]] = []
        self.listeners: list[Callable[[int, Event], None]] = []
        self._unheard: dict[tuple[int, int], list[list[int]]] = {}
        self._spans: dict[Any, list[int]] = {}
        self.lost: Callable[[Datagram], bool] = lambda packet: False
        """A test may choose the packets that are lost."""
        self.feps: dict[int, Fep] = {}
        for address in addresses:
            knobs = ses(address) if callable(ses) else ses or {}
            config = SesConfig(**{"payload_mtu": mtu, **knobs})
            fep = Fep(
                address, random.Random(address ^ seed), pds=PdsConfig(**(pds or {})), ses=config, objects=objects
            )  # fmt: skip
            self.feps[address] = fep
            self.events[address] = []
            self._tap(fep)

    def memory(self, data: Any) -> Recorded:
        found = Recorded(data)
        self.memories.append(found)
        return found

    # Between SES and PDS

    def _tap(self, fep: Fep) -> None:
        asked: dict[tuple[Any, int], Asked] = {}
        seen: set[tuple[int, Any]] = set()
        on_request, on_response, late = fep.on_request, fep.on_response, fep.target.late

        def take(
            pdc: Any, psn: int, next_hdr: int, data: Any, at: int, payload: Any, now: int
        ) -> Response | Refusal | None:
            if next_hdr not in REQUESTS:
                return on_request(pdc, psn, next_hdr, data, at, payload, now)
            request = parse_ses_request(data, at, next_hdr)
            record = Asked(fep.address, pdc.peer, pdc.local_id, psn, pdc.mode, request)
            message = (pdc.local_id, request.message_id if pdc.mode in (Mode.RUD, Mode.ROD) else None)
            record.first = None in message or message not in seen
            before = sum(len(m.writes) for m in self.memories)
            answer = on_request(pdc, psn, next_hdr, data, at, payload, now)
            record.writes = sum(len(m.writes) for m in self.memories) - before
            record.nacked = isinstance(answer, Refusal)
            if not record.nacked:
                seen.add(message)
            record.generation = self._generation(fep, request)
            self.log.asked.append(record)
            asked[pdc, psn] = record
            self._note(record, answer)
            return answer

        def answer_late(pdc: Any, psn: int, answer: Response, now: int) -> None:
            self._note(asked[pdc, psn], answer)
            late(pdc, psn, answer, now)

        def hear(message: Any, index: int, next_hdr: int, response: Any, now: int) -> None:
            key = (fep.address, message, index)
            self.log.heard[key] = self.log.heard.get(key, 0) + 1
            self._answered(fep.address, message)
            on_response(message, index, next_hdr, response, now)

        fep.on_request, fep.on_response, fep.target.late = take, hear, answer_late  # type: ignore[method-assign]

    def _note(self, record: Asked, answer: Response | Refusal | None) -> None:
        if not isinstance(answer, Response) or not answer.final or record.mode is Mode.UUD:
            return
        response = parse_ses_response(answer.header, answer.next_hdr)
        if answer.next_hdr == NextHdr.RESPONSE_DATA_SMALL:
            response.message_id = record.request.message_id or 0
        record.answers.append((response, answer.gtd))
        if response.opcode == ResponseOpcode.RESPONSE_W_DATA:
            size = len(answer.header) - response.size
            self.log.data.append(Data(record.at, record.source, record.pdcid, record.psn, True, response, size))

    def _generation(self, fep: Fep, request: Any) -> int:
        process = fep.target.processes.find(request.job_id if request.rel else None, request.pid_on_fep)
        if process is None:
            return 0
        tagged = request.opcode in TAGGED
        index = process.spaces[Space.TAGGED if tagged else Space.SEND].get(request.resource_index)
        return index.generation if index is not None else 0

    # Outstanding message ids

    def _began(self, src: int, message_id: int) -> None:
        self.steps += 1
        self._unheard.setdefault((src, message_id), []).append([self.steps, self.steps])

    def _answered(self, address: int, message: Any) -> None:
        self.steps += 1
        span = self._spans.get(message)
        if span is None:
            waiting = self._unheard.get((address, message.message_id))
            if not waiting:
                return
            span = self._spans[message] = waiting.pop(0)
            self.log.spans.setdefault((address, message.message_id), []).append(span)
        span[1] = self.steps

    # What leaves

    def _sent(self, packet: Datagram) -> None:
        message = packet.message
        whole = bytes(packet.header) + bytes(packet.payload)
        if message is None:
            message = parse(whole)
        next_hdr = getattr(message, "next_hdr", NextHdr.NONE)
        if isinstance(message, Ack) or getattr(message, "retx", False) or getattr(message, "response", False):
            return
        if not isinstance(message, (Request, Rudi, Uud)):
            return
        at = 0 if packet.message is not None else message.size
        if next_hdr in DATA:
            response = parse_ses_response(whole[at:], next_hdr)
            size = len(whole) - at - response.size
            assert isinstance(message, Request)
            self.log.data.append(Data(packet.src, packet.dst, message.dpdcid, 0, False, response, size))
            return
        request = parse_ses_request(whole, at, next_hdr)
        behind = at + SES_SIZE[next_hdr]
        try:
            extensions = parse_extensions(request.opcode, whole[behind:])
        except RemoteError:
            extensions = None
        mode = message.mode if isinstance(message, Request) else Mode.RUDI if isinstance(message, Rudi) else Mode.UUD
        size = len(whole) - behind - (extensions.size if extensions else 0)
        pdcid, psn = getattr(message, "spdcid", 0), getattr(message, "psn", getattr(message, "pkt_id", 0))
        if mode in (Mode.RUD, Mode.ROD) and request.som and request.message_id is not None:
            self._began(packet.src, request.message_id)
        self.log.packets.append(
            Packet(packet.src, packet.dst, mode, pdcid, psn, request, extensions, size, whole[at:behind])
        )

    # Time

    def submit(self, address: int, work: Any) -> None:
        self.feps[address].submit(work, self.now)
        if isinstance(work, Receive):
            self.log.posted.append(Posted(work, len(self.log.posted), address))
        elif isinstance(work, Addressed):
            self.log.submitted.append(work.context)

    def cancel(self, address: int, receive: Receive) -> bool:
        return self.feps[address].cancel(receive, self.now)

    def poll(self) -> bool:
        """Put on the wire what is to be sent now; return True when there was any."""
        any_sent = False
        for address, fep in self.feps.items():
            for packet in fep.poll(self.now):
                any_sent = True
                self._sent(packet)
                self._carry(packet)
            for event in fep.events():
                self._happened(address, event)
        return any_sent

    def _carry(self, packet: Datagram) -> None:
        loss, rng = self.loss, self.rng
        if self.lost(packet) or rng.random() < loss.drop:
            return
        copies = 1 + (rng.random() < loss.copy)
        if isinstance(packet.message, Uud) or (packet.message is None and packet.header[0] >> 3 == Mode.UUD):
            copies = 1  # at most once is a promise of the network there
        for _ in range(copies):
            at = self.now + rng.randint(loss.least, loss.most)
            if packet.message is None:
                data = bytes(packet.header) + bytes(packet.payload)
                sent = Datagram(packet.src, packet.dst, data, entropy=packet.entropy)
            else:
                sent = packet
            self.steps += 1
            heapq.heappush(self.wire, (at, self.steps, sent))

    def _happened(self, address: int, event: Event) -> None:
        self.events[address].append(event)
        if isinstance(event, Completion):
            self.log.completions.setdefault(event.context, []).append(event)
        elif isinstance(event, Received):
            self._posted(event.receive).ends.append(event)
        elif isinstance(event, Cancelled):
            self._posted(event.receive).cancelled += 1
        for listener in self.listeners:
            listener(address, event)

    def _posted(self, receive: Receive) -> Posted:
        return next(p for p in self.log.posted if p.receive is receive)

    def next_at(self) -> int | None:
        """Return the time at which something happens next."""
        due = [at for fep in self.feps.values() if (at := fep.deadline()) is not None]
        if self.wire:
            due.append(self.wire[0][0])
        return max(self.now, min(due)) if due else None

    def step(self, end: int | None = None) -> bool:
        """Go to the next instant at which something happens; return False if nothing does, or not before `end`."""
        self.poll()
        at = self.next_at()
        if at is None or (end is not None and at > end):
            return False
        self.now = at
        while self.wire and self.wire[0][0] <= at:
            packet = heapq.heappop(self.wire)[2]
            self.feps[packet.dst].receive(packet, at)
        self.poll()
        return True

    def run(self, duration: int) -> None:
        """Let `duration` picoseconds pass."""
        end = self.now + duration
        while self.step(end):
            pass
        self.now = end
        self.poll()

    @property
    def quiet(self) -> bool:
        return not self.wire and all(fep.quiescent for fep in self.feps.values())

    def settle(self, limit: int = 20_000) -> None:
        """Run until nothing is under way at any endpoint."""
        self.poll()
        for _ in range(limit):
            if self.quiet:
                return
            if not self.step():
                break
        assert self.quiet, f"no rest at {self.now} ps"
