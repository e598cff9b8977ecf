# SPDX-License-Identifier: GPL-2.0-only
"""This module is an endpoint that behaves as the reference provider does, written from observed.md, above
`refprov_pds`: messages, memory, receives; and a world in virtual time in which it talks to one of our endpoints.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.interop.refprov_pds import Answer, ProviderPdc, draw_start
from uetproto.engine import Datagram, Fep, PdsConfig, Region, SesConfig
from uetproto.engine.config import PERSONALITIES
from uetproto.engine.contract import MICROSECOND, MILLISECOND, NEVER, Event, Mode, TrafficClass
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.wire.headers.uet_pds import NackCode, NextHdr, PdsType
from uetproto.wire.headers.uet_ses import Opcode, ResponseList, ResponseOpcode, ReturnCode
from uetproto.wire.tuples import (
    PdsRudReqHeader,
    PdsRudReqSynHeader,
    SesExtAtomicHeader,
    SesRequestStdHeader,
    SesRequestStdSomHeader,
    SesResponseDataHeader,
    SesResponseHeader,
)

OURS, THEIRS = 0x0A010001, 0x0A010002
KEY, JOB, MTU = 7, 1, 1024
MOST_READS = 8
_SES = SesRequestStdSomHeader.size
_RETRY = 80 * MILLISECOND
_SENDS = (Opcode.SEND, Opcode.TAGGED_SEND, Opcode.DEFERRABLE_SEND)
_OVERFLOW = ResponseList.OVERFLOW
_LATENCY = 5 * MICROSECOND


@dataclass
class Work:
    """A message that the provider sends. `into` gets the data of a READ or of a fetching atomic."""

    opcode: Opcode
    mode: Mode
    data: bytes = b""
    match: int = 0
    offset: int = 0
    header_data: int | None = None
    into: bytearray | None = None
    extension: bytes = b""
    message_id: int = 0
    attempts: int = 0
    left: int = 0
    missing: int = 0
    deferred: bool = False
    refused: ReturnCode | None = None
    done: bool = False

    @property
    def length(self) -> int:
        return len(self.data if self.into is None or self.data else self.into)


@dataclass
class Buffer:
    """A posted receive; `completion_data` is what the first packet that arrived said of it."""

    size: int
    tag: int | None = None
    data: bytearray = field(init=False)
    arrived: int = 0
    length: int | None = None
    completion_data: int | None = None

    def __post_init__(self) -> None:
        self.data = bytearray(self.size)


@dataclass
class Stopped:
    """A deferrable send of our endpoint that found no buffer; `left` bytes of it have not come yet."""

    token: int
    match: int
    left: int
    buffer: Buffer | None = None
    told: bool = False


class ProviderPeer:
    """The provider: job 1, resource index 15, initiator 16.

    A restart keeps the message_id, so it is asked for when the stopped message has come whole. When the provider asks,
    observed.md does not say.
    """

    def __init__(self, seed: int, memory: bytearray) -> None:
        self.chance = Random(seed)
        self.now = 0
        self.out: list[Datagram] = []
        self.memory = memory
        self.pdcs: dict[int, ProviderPdc] = {}
        self.mine: dict[Mode, ProviderPdc] = {}
        self.theirs: dict[int, ProviderPdc] = {}
        """PDCs that our endpoint opened, by its PDCID."""
        self.next_id = 0
        self.posted: list[Buffer] = []
        self.taken: dict[tuple[int, int], Buffer | Stopped | None] = {}
        """What each message that arrives goes to, by PDC and message_id; None: memory."""
        self.pending: list[Stopped] = []
        """Stopped messages without a buffer."""
        self.reserved: dict[int, Buffer] = {}
        """Buffers of restarts that were asked for, by initiator token."""
        self.generation = 0
        self.disabled = False
        self.known_generation = 0
        """Generation of untagged sends at our endpoint, as it was last told."""
        self.works: dict[int, Work] = {}
        self.retries: list[tuple[int, int, Work]] = []
        self.answering = 0
        """Read responses that are not acknowledged."""
        self.written: list[int] = []
        """Completion data of WRITEs, as the first packet that arrived says."""

    # Work of its application

    def submit(self, work: Work) -> None:
        work.message_id, self.next_id = self.next_id, self.next_id + 1
        self.works[work.message_id] = work
        self._send(work)

    def post(self, buffer: Buffer) -> Buffer:
        if self.disabled:
            self.disabled, self.generation = False, self.generation + 1
        for stopped in self.pending:
            if buffer.tag is None or buffer.tag == stopped.match:
                self.pending.remove(stopped)
                stopped.buffer = buffer
                self._restart(stopped)
                return buffer
        self.posted.append(buffer)
        return buffer

    def _restart(self, stopped: Stopped) -> None:
        """Ask for a stopped message: resource_index 0, upper half of the tokens 0 (observed.md)."""
        if stopped.buffer is not None and not stopped.left:
            self.reserved[stopped.token] = stopped.buffer
            self.submit(Work(Opcode.DEFERRABLE_RTR, Mode.RUD, match=stopped.token))

    def _pdc(self, mode: Mode) -> ProviderPdc:
        pdc = self.mine.get(mode)
        if pdc is None:
            pdc = self.mine[mode] = self._open(mode is Mode.ROD, 0, draw_start(self.chance))
        return pdc

    def _open(self, rod: bool, peer: int, start: int) -> ProviderPdc:
        local = len(self.pdcs) + 1
        self.pdcs[local] = pdc = ProviderPdc(self._put, self, rod, local, peer, start, self.now)
        return pdc

    def _send(self, work: Work) -> None:
        count = max(1, -(-work.length // MTU)) if work.opcode != Opcode.DEFERRABLE_RTR else 1
        rma = work.opcode not in _SENDS
        generation = self.known_generation if work.opcode != Opcode.TAGGED_SEND else 0
        bodies = []
        for index in range(count):
            at = index * MTU
            size = min(MTU, work.length - at)
            som, eom = index == 0, index == count - 1 and (count > 1 or work.opcode != Opcode.READ)
            hd = int(som and work.header_data is not None)  # in the first packet only
            index_of = 0 if work.opcode == Opcode.DEFERRABLE_RTR else 15
            key = KEY if rma and work.opcode != Opcode.DEFERRABLE_RTR else work.match
            length = 0 if work.opcode == Opcode.DEFERRABLE_RTR else work.length
            front = (work.opcode, 0, 0, 0, 1, hd, int(eom), work.message_id, generation, JOB, 0, index_of, work.offset,
                     16, key)  # fmt: skip
            if som:
                head = SesRequestStdSomHeader.pack(*front, work.header_data or 0, length)
            else:
                head = SesRequestStdHeader.pack(*front, size, at, length)
            bodies.append((NextHdr.REQUEST_STD, head + work.extension + work.data[at : at + size]))
        work.left, work.refused, work.deferred = count, None, False
        work.missing = len(work.into) if work.into is not None else 0
        work.attempts += 1
        self._pdc(work.mode).send(bodies, (work, work.attempts))

    def on_answer(self, handle: object, next_hdr: int, ses: bytes) -> None:
        if not isinstance(handle, tuple):  # a read response of ours is acknowledged
            self.answering -= 1
            return
        work, attempt = handle
        if attempt != work.attempts:
            return  # an answer to what was sent before
        work.left -= 1
        if next_hdr == NextHdr.RESPONSE_DATA:
            self._take_data(ses)
        elif next_hdr == NextHdr.RESPONSE:
            answer = SesResponseHeader.read(ses)
            if answer.return_code not in (ReturnCode.OK, ReturnCode.NULL) and work.refused is None:
                work.refused = ReturnCode(answer.return_code)
                if work.refused is ReturnCode.BAD_GENERATION:
                    self.known_generation = answer.ri_generation
            stopped = answer.opcode == ResponseOpcode.RESPONSE and answer.list == _OVERFLOW
            work.deferred = work.deferred or (stopped and work.opcode == Opcode.DEFERRABLE_SEND)
        self._look(work)

    def _look(self, work: Work) -> None:
        if work.left or work.done or work.deferred:
            return
        if work.refused is not None:
            wait = 0 if work.refused is ReturnCode.BAD_GENERATION else _RETRY
            heapq.heappush(self.retries, (self.now + wait, work.message_id, work))
        elif not work.missing:
            work.done = True

    def _take_data(self, ses: bytes) -> bool:
        """Store read data; it is found by response_message_id (row 1)."""
        head = SesResponseDataHeader.read(ses)
        work = self.works.get(head.response_message_id)
        if work is None or work.into is None:
            return False
        data = ses[SesResponseDataHeader.size :]
        work.into[head.message_offset : head.message_offset + len(data)] = data
        work.missing -= len(data)
        self._look(work)
        return True

    # What our endpoint asks for

    def on_request(self, pdc: ProviderPdc, body: bytes, next_hdr: int) -> Answer:
        if next_hdr == NextHdr.RESPONSE_DATA:
            head = SesResponseDataHeader.read(body)
            found = self._take_data(body)
            return _ok(head.response_message_id, head.modified_length) if found else _refused(
                ReturnCode.UNDELIVERABLE, 0, 0)  # fmt: skip
        head = SesRequestStdSomHeader.read(body)
        if head.opcode == Opcode.DEFERRABLE_RTR:
            work = next((w for w in self.works.values() if w.offset >> 32 == head.memory_key & 0xFFFFFFFF
                         and w.deferred), None)  # fmt: skip
            assert work is not None, "a restart of nothing"
            heapq.heappush(self.retries, (self.now, work.message_id, work))
            return _ok(head.message_id, 0)
        if head.opcode in _SENDS:
            return self._take_send(pdc, head, body)
        if head.ri_generation != self.generation:  # row 2: RMA, too
            return _refused(ReturnCode.BAD_GENERATION, head.message_id, self.generation)
        if head.opcode == Opcode.READ:
            return self._answer_read(pdc, head, body)
        at, _ = _place(head, body)
        if head.opcode in (Opcode.ATOMIC, Opcode.FETCHING_ATOMIC):
            return self._atomic(head, body)
        data = body[_SES + (4 if head.opcode == Opcode.SYNC_WRITE else 0) :]
        self.memory[head.buffer_offset + at : head.buffer_offset + at + len(data)] = data
        if (pdc.local, head.message_id) not in self.taken and head.hd:
            self.written.append(head.header_data)  # of the first packet that arrives (row 5)
        self.taken[pdc.local, head.message_id] = None
        return _ok(head.message_id, head.request_length, self.generation)

    def _take_send(self, pdc: ProviderPdc, head: Any, body: bytes) -> Answer:
        key = pdc.local, head.message_id
        token = head.buffer_offset >> 32
        if head.opcode == Opcode.SEND and pdc.rod and self.disabled:
            return _refused(ReturnCode.DISABLED_GEN, head.message_id, self.generation)
        if head.opcode == Opcode.SEND and head.ri_generation != self.generation:
            return _refused(ReturnCode.BAD_GENERATION, head.message_id, self.generation)
        known = self.taken.get(key)
        if known is None or self._is_over(known):
            known = self._match(pdc, head, token)
            if known is None:
                return _refused(ReturnCode.NO_MATCH, head.message_id, self.generation)
            self.taken[key] = known
        at, size = _place(head, body)
        if isinstance(known, Stopped):
            which = ResponseList.EXPECTED if known.told else _OVERFLOW  # only the first one tells
            known.told = True
            known.left -= size
            self._restart(known)
            stop = (which, ResponseOpcode.RESPONSE, 0, ReturnCode.OK, head.message_id, self.generation, JOB, 0)
            return Answer(SesResponseHeader.pack(*stop), guaranteed=True)
        known.data[at : at + size] = body[_SES:]
        known.arrived += size
        known.length = head.request_length
        return _ok(head.message_id, head.request_length, self.generation)

    def _match(self, pdc: ProviderPdc, head: Any, token: int) -> Buffer | Stopped | None:
        """Return the buffer of a message whose first packet has come; a deferrable one without a buffer is stopped."""
        deferrable, tagged = head.opcode == Opcode.DEFERRABLE_SEND, head.opcode == Opcode.TAGGED_SEND
        buffer = self.reserved.pop(token, None) if deferrable else None
        if buffer is None:
            wanted = (one for one in self.posted if (one.tag == head.memory_key if tagged else one.tag is None))
            buffer = next(wanted, None)
            if buffer is not None:
                self.posted.remove(buffer)
        if buffer is not None:
            buffer.completion_data = head.header_data if head.hd else None
            return buffer
        if deferrable:
            self.pending.append(Stopped(token, head.memory_key, head.request_length))
            return self.pending[-1]
        if pdc.rod and not tagged:
            self.disabled = True
        return None

    @staticmethod
    def _is_over(known: Buffer | Stopped) -> bool:
        return known.left <= 0 if isinstance(known, Stopped) else known.arrived >= (known.length or 0)

    def _answer_read(self, pdc: ProviderPdc, head: Any, body: bytes) -> Answer:
        if self.answering >= MOST_READS:
            return Answer(nack=NackCode.NO_SES_MSG_AVAIL)
        self.answering += 1
        lone = bool(head.som)
        at = 0 if lone else _place(head, body)[0]
        size = min(MTU, head.request_length - at)
        data = bytes(self.memory[head.buffer_offset + at : head.buffer_offset + at + size])
        ses = SesResponseDataHeader.pack(
            0, ResponseOpcode.RESPONSE_W_DATA, 0, ReturnCode.OK, head.message_id, self.generation, JOB,
            head.message_id, size, head.request_length, at,
        )  # fmt: skip
        pdc.waiting.append((NextHdr.RESPONSE_DATA, ses + data, None, "data"))
        return _ok(head.message_id, head.request_length, self.generation)

    def _atomic(self, head: Any, body: bytes) -> Answer:
        """SUM of UINT64, big-endian on the wire, little-endian in memory."""
        at = head.buffer_offset
        operand = int.from_bytes(body[_SES + SesExtAtomicHeader.size :], "big")
        old = int.from_bytes(self.memory[at : at + 8], "little")
        self.memory[at : at + 8] = (old + operand & (1 << 64) - 1).to_bytes(8, "little")
        if head.opcode == Opcode.ATOMIC:
            return _ok(head.message_id, head.request_length, self.generation)
        ses = SesResponseDataHeader.pack(
            0, ResponseOpcode.RESPONSE_W_DATA, 0, ReturnCode.OK, head.message_id, self.generation, JOB,
            head.message_id, 8, 8, 0,
        )  # fmt: skip
        return Answer(ses + old.to_bytes(8, "big"), NextHdr.RESPONSE_DATA, guaranteed=True)

    # The wire

    def receive(self, packet: Datagram, now: int) -> None:
        self.now = now
        data = bytes(packet.header) + bytes(packet.payload)
        kind = data[0] >> 3
        if kind in (PdsType.RUD_REQ, PdsType.ROD_REQ):
            head = PdsRudReqHeader.read(data)
            pdc = self._of_request(head, data, kind == PdsType.ROD_REQ)
            if pdc is not None:
                pdc.take_request(data, PdsRudReqHeader.size, now)
                pdc.pump()
        elif kind == PdsType.CP:
            self._with(data, lambda pdc: pdc.take_control(data, now))
        elif kind == PdsType.NACK:
            self._with(data, lambda pdc: pdc.take_nack(data, now))
        else:
            self._with(data, lambda pdc: pdc.take_ack(data, now))

    def _of_request(self, head: Any, data: bytes, rod: bool) -> ProviderPdc | None:
        if head.syn:
            syn = PdsRudReqSynHeader.read(data)
            start = (syn.psn - syn.psn_offset) & 0xFFFFFFFF
            pdc = self.theirs.get(head.spdcid)
            if pdc is None:
                pdc = self.theirs[head.spdcid] = self._open(rod, head.spdcid, start)
            return pdc
        return self.pdcs.get(head.dpdcid)

    def _with(self, data: bytes, act: Callable[[ProviderPdc], None]) -> None:
        pdc = self.pdcs.get(int.from_bytes(data[10:12], "big"))
        if pdc is not None:
            act(pdc)

    def _put(self, data: bytes) -> None:
        requests = data[0] >> 3 in (PdsType.RUD_REQ, PdsType.ROD_REQ)
        kind = TrafficClass.DATA if requests else TrafficClass.CONTROL
        self.out.append(Datagram(THEIRS, OURS, data, b"", kind, 0))

    def on_time(self, now: int) -> None:
        self.now = now
        while self.retries and self.retries[0][0] <= now:
            self._send(heapq.heappop(self.retries)[2])
        for pdc in list(self.pdcs.values()):
            pdc.on_time(now)

    def deadline(self) -> int:
        due = [pdc.deadline() for pdc in self.pdcs.values()]
        return min([*due, *(at for at, _, _ in self.retries[:1])], default=NEVER)


def _place(head: Any, body: bytes) -> tuple[int, int]:
    if head.som:
        return 0, len(body) - _SES
    later = SesRequestStdHeader.read(body)
    return later.message_offset, len(body) - _SES


def _ok(message_id: int, length: int, generation: int = 0) -> Answer:
    return Answer(SesResponseHeader.pack(0, 0, 0, ReturnCode.OK, message_id, generation, JOB, length))


def _refused(code: ReturnCode, message_id: int, generation: int) -> Answer:
    ses = SesResponseHeader.pack(0, ResponseOpcode.RESPONSE, 0, code, message_id, generation, JOB, 0)
    return Answer(ses, guaranteed=True)


class Exchange:
    """Our endpoint `ours` and the provider `theirs` on a link in virtual time that loses `loss` of the frames."""

    def __init__(self, seed: int, loss: float = 0.0, **knobs: Any) -> None:
        habits = PERSONALITIES["refprov"]
        pds = {name: value for name, value in knobs.items() if name in PdsConfig.__dataclass_fields__}
        ses = {name: value for name, value in knobs.items() if name not in pds}
        pds.setdefault("rto_init_time", 20 * MILLISECOND)
        self.memory = {OURS: bytearray(1 << 16), THEIRS: bytearray(1 << 16)}
        self.ours = Fep(OURS, Random(seed), pds=PdsConfig(**habits["pds"] | pds), ses=SesConfig(**habits["ses"] | ses))
        self.ours.attach(JOB).register(Region(KEY, self.memory[OURS]))
        self.theirs = ProviderPeer(seed, self.memory[THEIRS])
        self.chance, self.loss = Random(f"{seed}/{loss}"), loss
        self.now = 0
        self.frames: list[tuple[int, bytes]] = []
        self.events: list[Event] = []
        self._wire: list[tuple[int, int, int, bytes]] = []
        native = Encapsulation(udp=False)
        self._framers = {at: UetFramer(at, 4, native, ecn_capable=False) for at in (OURS, THEIRS)}

    def submit(self, work: Any) -> None:
        self.ours.submit(work, self.now)

    def run(self, until: Callable[[], bool], *, at_once: bool = False) -> None:
        """Let time pass until `until` holds and, unless `at_once`, neither end has anything under way."""
        most = self.now + 60_000 * MILLISECOND
        self._poll()
        while self.now < most and not (until() and (at_once or self.is_quiet)):
            due = [self._wire[0][0]] if self._wire else []
            due += [at for at in (self.ours.deadline(), self.theirs.deadline()) if at is not None and at != NEVER]
            if not due or min(due) > most:
                break
            self.now = max(self.now, min(due))
            while self._wire and self._wire[0][0] <= self.now:
                _, _, to, frame = heapq.heappop(self._wire)
                packet = self._framers[to].packet(frame)
                assert packet is not None
                (self.ours if to == OURS else self.theirs).receive(packet, self.now)
            self._poll()
        assert until(), "it does not end"
        assert not any(pdc.dead for pdc in self.theirs.pdcs.values()), "the provider gave up"

    @property
    def is_quiet(self) -> bool:
        unacked = any(pdc.unacked or pdc.waiting for pdc in self.theirs.pdcs.values())
        return not (self._wire or unacked or self.theirs.retries) and self.ours.quiescent

    def _poll(self) -> None:
        self.theirs.on_time(self.now)
        self.events += self.ours.events()
        sent = [*self.ours.poll(self.now), *self.theirs.out]
        self.theirs.out.clear()
        for packet in sent:
            frame = self._framers[packet.src].frame(packet)
            self.frames.append((self.now // 1000, frame))
            if self.chance.random() >= self.loss:
                heapq.heappush(self._wire, (self.now + _LATENCY, len(self.frames), packet.dst, frame))
        self.events += self.ours.events()
