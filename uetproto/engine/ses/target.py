# SPDX-License-Identifier: GPL-2.0-only
"""The target side of SES executes requests on memory, reports events, and gives one response to each packet.

UE 1.0.1 §3.4.1, §3.4.3.3; ses.md §5, §7.2, §9, §10.
"""

from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from uetproto.engine.config import SesConfig
from uetproto.engine.contract import (
    NEVER,
    PDC_MODES,
    Buffer,
    Event,
    MessageFailed,
    MessageStored,
    Mode,
    Received,
    RemoteAccess,
    RemoteWrite,
)
from uetproto.engine.memory import BufferMemory, Region, RunMemory, run_memory
from uetproto.engine.pds.service import Connection, Refusal, Response
from uetproto.engine.ses import atomics as ses_atomics
from uetproto.engine.ses.addressing import IndexState, Process, Processes, ResourceIndex
from uetproto.engine.ses.checks import Judgement, judge, judge_packet
from uetproto.engine.ses.headers import (
    FIRST_PACKET,
    Extensions,
    SesRequest,
    build_ok,
    build_response,
    build_response_data,
    build_response_data_small,
    parse_extensions,
    parse_ses_request,
)
from uetproto.engine.ses.profiles import profile_of
from uetproto.engine.ses.queues import Queues
from uetproto.engine.ses.received import Key, RxMessage, default_response, response
from uetproto.engine.ses.returns import Returns
from uetproto.engine.ses.sync import TargetSyncGroups
from uetproto.engine.train_splits import Split
from uetproto.errors import RemoteError
from uetproto.wire.headers.uet_pds import NackCode, NextHdr
from uetproto.wire.headers.uet_ses import (
    ATOMICS,
    COMPARE_AND_SWAPS,
    ELEMENT_SIZE,
    OPCODE_PROFILES,
    REQUEST_STD,
    AtomicOpcode,
    Opcode,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
    Selects,
    Space,
)

# Looked up once: with every packet, Class.MEMBER would cost as much as a call.
_STD = NextHdr.REQUEST_STD
_DISABLED, _ENABLED = IndexState.DISABLED, IndexState.ENABLED
_WHOLE = frozenset({Opcode.WRITE, Opcode.SEND, Opcode.TAGGED_SEND})
"""Opcodes of messages that, if they have one packet, are executed without the full checks where possible."""
_FLAGS_AT = 1
_ADDRESS_AT = REQUEST_STD.offset_of("ri_generation") // 8
_POSITION_AT = REQUEST_STD.offset_of("rsvd4") // 8
_LENGTH_AT = REQUEST_STD.offset_of("request_length") // 8
_EOM_SOM = 0x03
_PARTS = Struct(f">Hxx{_POSITION_AT - _ADDRESS_AT}sII4s")
"""Layout of a later packet: opcode and flags; the bytes from ri_generation to memory_key; payload_length, with rsvd4;
message_offset; request_length. message_id is skipped."""
_PLACES = 1024
"""Number of places of writes that are kept."""
_WITHOUT_BYTES = (Selects.NOTHING, Selects.TOKEN)
_TELLS_GENERATION = (ReturnCode.BAD_GENERATION, ReturnCode.DISABLED_GEN)
"""Return codes that refuse a message because of the generation of its resource index."""


class RequestPacket(NamedTuple):
    """PDS delivers a request packet with these values."""

    pdc: Connection
    psn: int
    data: Buffer
    at: int
    """Offset in `data` at which the SES header begins."""
    payload: Buffer
    """Payload of the packet, without extension headers."""


class MessagePlace(NamedTuple):
    """This record holds the process and the resource index to which an accepted WRITE or SEND of one packet was
    addressed, and the header fields that addressed them."""

    process: Process
    ri: ResourceIndex
    job_id: int
    pid_on_fep: int
    resource_index: int
    hd: bool
    """Whether the header has completion data."""
    opcode: int
    space: Space | None
    """Space of the receive queue of a SEND, or None for a WRITE."""
    generation: int
    """Generation of the receive queue."""


def _says_ok(answer: Response | None) -> bool:
    """Return True for a final answer with RC_OK: with `dc` it waits until the effect is observable (ses.md §13.2)."""
    return answer is not None and answer.final and answer.header[1] & 0x3F == ReturnCode.OK


class FollowedMessage:
    """A followed message is an accepted message whose next packets are those of a train (`service.FollowedRun`)."""

    __slots__ = ("_memory", "_message", "_offset", "_size", "_target", "answer", "place")

    def __init__(
        self, target: "SesTarget", message: RxMessage, memory: RunMemory, offset: int, payloads: Sequence[Buffer]
    ) -> None:  # fmt: skip
        """Make the run of packets with these payloads, the first of which is at `offset` of the message. `memory` is
        that of the message."""
        self._target = target
        self._message = message
        self._memory = memory
        self._offset = offset
        self._size = len(payloads[0])
        self.answer = message.ok
        self.place = memory.writer(message.place + offset, payloads)

    def extend(self, offset: int, payloads: Sequence[Buffer]) -> bool:
        message = self._message
        if offset >= message.length - len(payloads) * self._size:
            return False
        self._offset = offset
        self.place = self._memory.writer(message.place + offset, payloads)
        return True

    def settle(self, index: int, count: int, now: int) -> None:
        message, size, target = self._message, self._size, self._target
        message.arrived.add(self._offset + index * size, count * size)
        message.last_seen = now
        if now > target.now:
            target.now = now

    def split_at(self, index: int) -> Split | None:
        target, message = self._target, self._message
        region, arrived = message.region, message.arrived
        if (
            message.lookup_version != target.processes.version or target.fault is not None
            or (region is not None and (not region.enabled or region.fault is not None))
            or target.messages.get(message.at) is not message
        ):  # fmt: skip
            return Split.MESSAGE
        return None if arrived.in_order and arrived.edge == self._offset + index * self._size else Split.GAP


class SesTarget:
    """The SES of a target executes requests and returns their responses.

    A late response is passed to the function `late`, with connection, PSN, response and time as arguments.
    """

    def __init__(
        self, config: SesConfig, ack_data: int, events: list[Event],
        late: Callable[[Connection, int, Response, int], None],
    ) -> None:  # fmt: skip
        self.config = config
        self.profile = profile_of(config.profile)
        self.processes = Processes()
        self.messages: dict[Key, RxMessage] = {}
        self.fault: Callable[[SesRequest], ReturnCode | None] | None = None
        """Function by which tests make requests fail; it runs after the checks, before the message gets a buffer."""
        self.now = 0
        self.dropped = 0
        """Number of datagrams that were dropped (ses.md §5.6)."""
        self.queues = Queues(self, events)
        self.returns = Returns()
        self.syncs = TargetSyncGroups(config)
        self.restart: Callable[[SesRequest, int], ReturnCode | Refusal | None] = lambda request, now: (
            ReturnCode.OP_VIOLATION
        )
        """Function that takes DEFERRABLE_RTR; the initiator of the endpoint sets it."""
        self._ack_data = ack_data
        self._events = events
        self.late = late
        self._answers: deque[tuple[Connection, int, Response]] = deque()
        """Late answers that are ready: {PDC, PSN, answer}."""
        self._observable: deque[tuple[int, Connection, int, Response]] = deque()
        """Answers with `dc` that wait for `write_latency`: {time, PDC, PSN, answer}."""
        self.idle_at = NEVER
        """Time of the next search for idle messages, valid while there are messages; NEVER: all are complete."""
        self.tells_access = True
        """Whether `MessageStored` and `RemoteAccess` are reported for WRITEs. A driver that does not read these events
        may set False."""
        self._whole_places: dict[tuple[bytes, bytes, Mode], MessagePlace] = {}
        """Places of WRITEs and SENDs that have one packet, by the header bytes on which steps 2 to 7 of ses.md §10
        depend."""
        self._places_version = 0
        """`Processes.version` for which these places are valid."""
        self.waits = (
            self._answers, self._observable, self.queues.stops, self.syncs.groups, *self.returns.waits
        )  # fmt: skip
        """Containers of what `deadline` waits for, beside idle messages: if all are empty, it waits only for
        `idle_at`."""

    def answer_later(self, pdc: Connection, psn: int, request: SesRequest, answer: Response) -> None:
        """Queue the late response to a packet. It is passed to PDS at the next poll, because PDS may be calling SES
        now."""
        if request.dc and self.config.write_latency and _says_ok(answer):
            self._observable.append((self.now + self.config.write_latency, pdc, psn, answer))
        else:
            self._answers.append((pdc, psn, answer))

    # Packets

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        """Check and execute a request packet (ses.md §10). Return its response, or None if the response follows
        later."""
        self.now = now
        reliable = pdc.mode in PDC_MODES
        if next_hdr == _STD and reliable:
            key = (pdc.local_id, data[at + 2] << 8 | data[at + 3])
            message = self.messages.get(key)
            if message is None:
                if data[at + _FLAGS_AT] & _EOM_SOM == _EOM_SOM:
                    answer = self._take_whole(pdc, data, at, payload, now)
                    if answer is not None:
                        return answer
            elif message.identity is not None:
                answer = self._follow(message, data, at, payload, now)
                if answer is not None:
                    return answer
        else:
            key = (pdc.local_id, 0x10000 + psn)
            message = None
        try:
            request = parse_ses_request(data, at, next_hdr)
        except RemoteError as error:
            return Response(build_response(ResponseOpcode.RESPONSE, error.code or ReturnCode.OP_VIOLATION, 0, 0, 0),
                            gtd=True)  # fmt: skip
        extensions: Extensions | None
        try:
            extensions = parse_extensions(request.opcode, payload)
        except RemoteError:
            extensions = None  # step 4
        if extensions is not None and extensions.size:
            payload = memoryview(payload)[extensions.size :]
        alone = bool(request.som and request.eom) or not reliable
        room = alone or len(self.messages) < self.config.max_rx_messages or (message is None and self._make_room())
        j = Judgement(
            request, pdc.mode, len(payload), self.processes, self.config, self.profile, message, extensions, room,
            self.queues, pdc.peer,
        )  # fmt: skip
        code = judge(j)
        if code is not None and j.restarted:
            self.queues.refuse_restart(request.tokens[1], code)
        if code is ReturnCode.UNCOR_TRNSNT and message is None:
            return Refusal(NackCode.NO_SES_MSG_AVAIL)  # step 11
        row = OPCODE_PROFILES.get(request.opcode)  # type: ignore[call-overload]
        if row is None or row.selects in _WITHOUT_BYTES:
            return self._take_bare(j, code, now)
        if pdc.mode is Mode.UUD:
            return self._take_datagram(j, pdc.peer, payload, code, now)
        if code is None and self.fault is not None:
            code = self.fault(request)
        if message is None:
            body = j.amount if request.opcode in ATOMICS else j.body  # a compare-and-swap has no payload
            message = RxMessage(request, row, body if extensions else request.request_length, pdc.peer, now)
            message.at = key
            code = self._open(j, message, alone, code, now)
        message.last_seen = now
        code = code or judge_packet(j)
        if code is None and message.stopped is not None:
            return self._stop(message, request, j.amount)
        if code is None and not message.arrived.add(request.message_offset if not alone else 0, j.amount):
            code = ReturnCode.OP_VIOLATION  # step 16: the bytes have arrived before
        if code is not None:
            return self._refuse(message, request, code, j.amount, j)
        if alone and key[1] < 0x10000 and request.opcode in _WHOLE:
            self._keep_place(j, data, at)
        answer = self._execute(j, message, RequestPacket(pdc, psn, data, at, payload))
        if request.dc and self.config.write_latency and _says_ok(answer) and request.opcode != Opcode.READ:
            assert isinstance(answer, Response)
            self._observable.append((now + self.config.write_latency, pdc, psn, answer))
            return None
        return answer

    def _take_bare(self, j: Judgement, code: ReturnCode | None, now: int) -> Response | Refusal:
        """Process a request that has no data: NO_OP, MSG_ERROR, DEFERRABLE_RTR, or an unknown opcode."""
        request, message = j.request, j.message
        if request.opcode == Opcode.MSG_ERROR and code in (None, message.error if message else None):
            return self._end_early(request, message)
        if code is None and request.opcode == Opcode.NO_OP:
            code = judge_packet(j)
        if code is None and self.fault is not None:
            code = self.fault(request)
        if code is None and request.opcode == Opcode.DEFERRABLE_RTR:
            verdict = self.restart(request, now)
            if isinstance(verdict, Refusal):
                return verdict
            code = verdict
        if code is not None:
            return response(request, code, generation=self._told_with(code, j))
        always = self.config.response_generation == "always" and j.index is not None
        return default_response(request, j.index.generation if always and j.index is not None else 0)

    def _open(
        self, j: Judgement, message: RxMessage, alone: bool, code: ReturnCode | None, now: int
    ) -> ReturnCode | None:
        """Set up the state of a new message, and place it if it is accepted; return the code of an error, or None."""
        if j.extensions is not None:
            message.rendezvous, message.sync = j.extensions.rendezvous, j.extensions.sync
        if message.sync is not None:
            joined = self.syncs.join(message, now)
            code = code or joined
        if code is None:
            self._place(j, message)
        if self.config.response_generation == "always" and j.index is not None:
            message.generation = j.index.generation
            message.ok = default_response(j.request, message.generation)
        if (not alone and j.room) or message.held is not None or message.stopped is not None:
            self._keep(message, now)
        return code

    def _place(self, j: Judgement, message: RxMessage) -> None:
        """Give an accepted message the memory to access: its region, a posted buffer, or memory of its own if it is
        held.
        """
        if message.row.selects is Selects.REGION:
            region = message.region = j.region
            assert region is not None
            message.memory, message.place, message.room = region.memory, message.offset - region.base, message.length
        elif j.buffer is not None:
            self.queues.take(j.index, j.buffer, message, j.restarted)
        else:
            assert j.index is not None
            self.queues.put_aside(j.index, message)

    def _execute(self, j: Judgement, message: RxMessage, packet: RequestPacket) -> Response | None:
        """Execute an accepted packet that carries data, or asks for data; None: the answer follows later."""
        request = j.request
        if request.som and request.hd:
            message.header_data = request.header_data
        if request.opcode in ATOMICS:
            return self._operate(j, message, packet)
        if request.opcode == Opcode.READ:
            return self._read(j, message, packet)
        if message.held is not None:
            return self.queues.hold(message, packet.pdc, packet.psn, request.message_offset, packet.payload)
        return self._store(j, message, packet)

    def _told_with(self, code: ReturnCode, j: Judgement) -> int:
        """Return ri_generation for an error: the generation with errors about it, or always as observed; else 0 (ses.md
        §9.2)."""
        tells = code in _TELLS_GENERATION or self.config.response_generation == "always"
        return j.index.generation if tells and j.index is not None else 0

    def _take_datagram(
        self, j: Judgement, source: int, payload: Buffer, code: ReturnCode | None, now: int
    ) -> Response | Refusal:
        """Take a datagram, or drop and count it; there is no answer (ses.md §5.6)."""
        code = code or judge_packet(j) or (None if self.fault is None else self.fault(j.request))
        if code is not None or j.buffer is None or j.index is None:
            self.dropped += 1
            return Refusal(NackCode.NO_RESOURCE)
        request = j.request
        message = RxMessage(request, j.row, request.request_length, source, now)
        self.queues.take(j.index, j.buffer, message, False)
        if request.hd:
            message.header_data = request.header_data
        message.arrived.add(0, len(payload))
        try:
            message.write(0, payload)
        except OSError:
            message.error = ReturnCode.HOST_UNSUCCESS_CMPL
            self.queues.fail(message)
            return Refusal(NackCode.NO_RESOURCE)
        self.queues.finish(message)
        return message.ok

    def _follow(self, message: RxMessage, data: Buffer, at: int, payload: Buffer, now: int) -> Response | None:
        """Execute a later packet of an accepted message without the full checks; None: it needs the full checks.

        If the header bytes that all packets of a message share are those of the accepted packet, and no process was
        attached or detached since, then steps 2–8, 12–15 and 17, and the consistency of step 16, have the same result.
        Only the position (step 10) and the memory (step 18) are checked here.
        """
        front, identity, stated, offset, tail = _PARTS.unpack_from(data, at)
        region, size, mtu = message.region, len(payload), self.config.payload_mtu
        if (
            identity != message.identity or front != message.front or tail != message.tail
            or message.lookup_version != self.processes.version
            or stated != size or size != mtu or offset % mtu or not 0 < offset < message.length - mtu
            or (region is not None and (not region.enabled or region.fault is not None)) or self.fault is not None
            or not message.arrived.add(offset, size)
        ):  # fmt: skip
            return None
        memory = message.memory
        assert memory is not None
        try:
            memory.write(message.place + offset, payload)
        except OSError:
            return self._refuse(message, message.request, ReturnCode.HOST_UNSUCCESS_CMPL, 0)
        message.last_seen = now
        if message.arrived.received == message.length:
            return self._finish(message)
        return message.ok

    def follow_run(
        self, pdc: Connection, next_hdr: int, data: Buffer, at: int, payloads: Sequence[Buffer]
    ) -> FollowedMessage | Split:
        """Return what stores the packets of a train as `_follow` does, or why `on_request` must take them."""
        if next_hdr != _STD:
            return Split.UNKNOWN
        message = self.messages.get((pdc.local_id, data[at + 2] << 8 | data[at + 3]))
        if message is None or message.identity is None:
            return Split.MESSAGE
        front, identity, stated, offset, tail = _PARTS.unpack_from(data, at)
        size, mtu, memory = len(payloads[0]), self.config.payload_mtu, run_memory(message.memory)
        if (
            identity != message.identity or front != message.front or tail != message.tail
            or stated != size or size != mtu or offset % mtu
            or not 0 < offset < message.length - len(payloads) * mtu
        ):  # fmt: skip
            return Split.MESSAGE
        if memory is None:
            return Split.MEMORY
        return FollowedMessage(self, message, memory, offset, payloads)

    def _keep_place(self, j: Judgement, data: Buffer, at: int) -> None:
        """Store the place of an accepted WRITE or SEND with one packet, for `_take_whole`."""
        request, process, index = j.request, j.process, j.index
        if process is None or index is None or request.dc or self.config.response_generation == "always":
            return
        if self._places_version != self.processes.version or len(self._whole_places) >= _PLACES:
            self._whole_places.clear()
            self._places_version = self.processes.version
        front, _, address, *_ = FIRST_PACKET.unpack_from(data, at)
        space = None if j.row.selects is Selects.REGION else j.row.space
        self._whole_places[front, address, j.mode] = MessagePlace(
            process, index, request.job_id, request.pid_on_fep, request.resource_index, bool(request.hd),
            request.opcode, space, index.generation,
        )  # fmt: skip

    def _take_whole(self, pdc: Connection, data: Buffer, at: int, payload: Buffer, now: int) -> Response | None:
        """Execute a WRITE or SEND that has one packet without the full checks; None: it needs the full checks.

        If the header bytes on which steps 2–7 depend are those of an accepted message, and no process was attached or
        detached since, then these steps and step 17 have the same result. The other steps are checked here. No state is
        made for the message; its events and its response are those of `_store`.
        """
        front, message_id, address, offset, initiator, key, header_data, length = FIRST_PACKET.unpack_from(data, at)
        place = self._whole_places.get((front, address, pdc.mode))
        if place is None or self._places_version != self.processes.version or self.fault is not None:
            return None
        process, index, job_id, pid_on_fep, resource_index, hd, opcode, space, generation = place
        if space is not None:
            tag = key if space is Space.TAGGED else 0
            buffer = index.posted.find(tag, initiator)
            if (
                buffer is None or index.state is not _ENABLED or index.generation != generation or offset or not length
                or len(payload) != length or length > self.config.payload_mtu or length > buffer.room
                or buffer.receive.only_job not in (None, job_id) or type(buffer.memory) is not BufferMemory
            ):  # fmt: skip
                return None
            start = buffer.next
            buffer.memory.view[start : start + length] = payload
            self._events.append(MessageStored(pdc.peer, message_id, key, 0, length))
            self._events.append(Received(
                buffer.receive, pdc.peer, initiator, job_id, opcode, tag, start, length, length,
                header_data if hd else None, ReturnCode.OK, False, self.queues.use_whole(index, buffer, length),
                pdc.local_id,
            ))  # fmt: skip
            return Response(build_ok(message_id, job_id, length))
        region = process.regions.get(key)
        if (
            region is None or not region.enabled or region.fault is not None or not region.remote_write
            or index.state is _DISABLED or len(payload) != length or length > self.config.payload_mtu
            or (region.job_restriction is not None and region.job_restriction != job_id)
            or offset < region.base or offset + length > region.base + region.length
        ):  # fmt: skip
            return None
        memory, source = region.memory, pdc.peer
        try:
            if type(memory) is BufferMemory:  # as its methods do
                start = offset - region.base
                memory.view[start : start + length] = payload
            else:
                memory.write(offset - region.base, payload)
                memory.flush()
        except OSError:
            request = parse_ses_request(data, at, _STD)
            message = RxMessage(request, OPCODE_PROFILES[Opcode.WRITE], length, source, now)
            message.at = pdc.local_id, message_id
            message.arrived.add(0, length)
            return self._refuse(message, request, ReturnCode.HOST_UNSUCCESS_CMPL, 0)
        events = self._events
        if self.tells_access:
            events.append(MessageStored(source, message_id, key, offset, length))
            events.append(RemoteAccess(key, False, True, length, region))
        if hd:
            events.append(RemoteWrite(source, initiator, job_id, pid_on_fep, resource_index, length, header_data))
        return Response(build_ok(message_id, job_id, length))

    def _keep(self, message: RxMessage, now: int) -> None:
        """Store the state of a message, whether it is accepted or failed, for its later packets."""
        if self.config.idle_message_time and (not self.messages or self.idle_at == NEVER):
            self.idle_at = now + self.config.idle_message_time
        self.messages[message.at] = message

    def _make_room(self) -> bool:
        """Drop the state of a message that was refused because of its generation; return False if there is none.

        The state is not needed: all packets of the message have the old generation and are refused again, as
        generations only increase (ses.md §2.4). Without this the state could stay for ever, as packets answered without
        state do not count towards the end of the message.
        """
        refused = next((key for key, message in self.messages.items() if message.error in _TELLS_GENERATION), None)
        if refused is not None:
            self._abandon(self.messages.pop(refused))
        return refused is not None

    # Execution

    def _store(self, j: Judgement, message: RxMessage, packet: RequestPacket) -> Response | None:
        """Store the payload of an accepted packet, and return the answer."""
        request, data, at = j.request, packet.data, packet.at
        try:
            message.write(request.message_offset, packet.payload)
        except OSError:
            return self._refuse(message, request, ReturnCode.HOST_UNSUCCESS_CMPL, 0)
        if (
            message.identity is None and not message.arrived.complete
            and request.next_hdr == NextHdr.REQUEST_STD and not message.overflow
            and not (request.dc and self.config.write_latency) and not (j.extensions and j.extensions.size)
            and message.room >= message.length and j.mode is not Mode.RUDI
        ):  # fmt: skip
            message.identity = bytes(data[at + _ADDRESS_AT : at + _POSITION_AT])
            message.front = data[at] << 8 | data[at + _FLAGS_AT] & ~_EOM_SOM
            message.tail = bytes(data[at + _LENGTH_AT : at + REQUEST_STD.size])
            message.lookup_version = self.processes.version
        if j.mode is Mode.RUDI:
            self._events.append(RemoteAccess(message.key, False, True, len(packet.payload), message.region))
            return message.ok
        if message.sync is not None and message.arrived.complete:
            return self._end_group(message, packet, lambda: self._tell_written(message))
        return self._finish(message) if message.arrived.complete else message.answer()

    def _operate(self, j: Judgement, message: RxMessage, packet: RequestPacket) -> Response | None:
        """Execute an atomic, and return its answer (ses.md §6)."""
        request, extensions = j.request, j.extensions
        assert extensions is not None
        atomic, memory = extensions.atomic, message.memory
        assert atomic is not None
        assert memory is not None
        if atomic.opcode == AtomicOpcode.INVAL:
            if message.sync is not None:
                return self._end_group(message, packet, lambda: None)
            return self._finish(message)
        size = ELEMENT_SIZE[atomic.datatype]  # type: ignore[index]
        operands, compare = bytes(packet.payload), b""
        length = len(operands) or size
        if atomic.opcode in COMPARE_AND_SWAPS:
            operands = ses_atomics.operand_from_128(atomic.swap or 0, atomic.datatype)
            compare = ses_atomics.operand_from_128(atomic.compare or 0, atomic.datatype)
            length = size

        def execute() -> ReturnCode | bytes:
            try:
                before = memory.read(message.place, length)
                outcome = ses_atomics.execute(
                    atomic.opcode, atomic.datatype, before, operands, compare, trap=self.config.atomic_trap
                )
                if outcome.fault is not None:
                    return outcome.fault
                memory.write(message.place, outcome.memory)
            except OSError:
                return ReturnCode.HOST_UNSUCCESS_CMPL
            self._events.append(RemoteAccess(message.key, message.row.fetches, True, length, message.region))
            return outcome.old

        if message.sync is not None:

            def effect() -> ReturnCode | None:
                done = execute()
                return done if isinstance(done, ReturnCode) else None

            return self._end_group(message, packet, effect)
        done = execute()
        if isinstance(done, ReturnCode):
            return self._refuse(message, request, done, 0, j)
        finished = self._finish(message)
        if not message.row.fetches:
            return finished
        return self._return_data(request, packet.pdc, packet.psn, done, None, message.generation)

    def _end_group(
        self, message: RxMessage, packet: RequestPacket, effect: Callable[[], ReturnCode | None]
    ) -> Response | None:
        """Complete a message of a sync group by `effect`; the one that ends the group waits until the group is
        complete.
        """
        self.messages.pop(message.at, None)
        sync = message.sync
        assert sync is not None
        if not sync.count:
            code = effect()
            self.syncs.finish(message)
            return message.ok if code is None else response(message.request, code)

        def late(code: ReturnCode | None) -> None:
            code = code or effect()
            if code is not None:
                self._events.append(MessageFailed(message.source, message.request.message_id or 0, code))
            answer = message.ok if code is None else response(message.request, code)
            self.answer_later(packet.pdc, packet.psn, message.request, answer)

        self.syncs.end(message, late)
        return None

    def _read(self, j: Judgement, message: RxMessage, packet: RequestPacket) -> Response | None:
        """Read and return the bytes that a packet of a READ asks for (ses.md §5.4, §9.6)."""
        request, memory = j.request, message.memory
        assert memory is not None
        try:
            data = bytes(memory.read(message.place + request.message_offset, j.amount))
        except OSError:
            return self._refuse(message, request, ReturnCode.HOST_UNSUCCESS_CMPL, 0, j)
        if message.arrived.complete or j.mode is Mode.RUDI:
            self.messages.pop(message.at, None)
            self._events.append(RemoteAccess(message.key, True, False, request.request_length, message.region))
        return self._return_data(request, packet.pdc, packet.psn, data, message.region, message.generation)

    def _return_data(
        self, request: SesRequest, pdc: Connection, psn: int, data: bytes, region: Region | None, generation: int
    ) -> Response | None:
        """Return data in the ACK, if all data of the message fits it, or on RUDI; else in the return direction."""
        length = request.request_length
        if request.next_hdr == NextHdr.REQUEST_STD:
            mine = request.message_id or 0 if self.config.response_message_id == "read" else 0
            header = build_response_data(
                request.message_id or 0, request.job_id, len(data), length, request.message_offset, mine, generation
            )
            next_hdr = NextHdr.RESPONSE_DATA
        else:
            header = build_response_data_small(request.job_id, len(data), psn)
            next_hdr = NextHdr.RESPONSE_DATA_SMALL
        if pdc.mode is Mode.RUDI:
            return Response(header + data, next_hdr=next_hdr)
        element = request.opcode != Opcode.READ
        if (len(data) if element else length) <= self._ack_data:
            withdrawn = region is not None and region.on_read is not None  # when the data has left
            if region is not None and withdrawn:
                self.returns.acknowledged(region, len(data))
            return Response(header + data, gtd=True, next_hdr=next_hdr, rereadable=not (element or withdrawn))
        return self.returns.send(pdc, psn, next_hdr, header, data, region, default_response(request, generation))

    def on_reread(self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer) -> Response:
        """Read the memory again, and answer a duplicate of a read whose data PDS did not store (ses.md §9.6)."""
        request = parse_ses_request(data, at, next_hdr)
        j = Judgement(
            request, pdc.mode, len(payload), self.processes, self.config, self.profile, None,
            parse_extensions(request.opcode, payload), True, self.queues, pdc.peer,
        )  # fmt: skip
        code = judge(j) or judge_packet(j)
        if code is not None or request.opcode != Opcode.READ or j.region is None:
            return response(request, code or ReturnCode.OP_VIOLATION)
        place = request.buffer_offset - j.region.base + request.message_offset
        try:
            found = bytes(j.region.memory.read(place, j.amount))
        except OSError:
            return response(request, ReturnCode.HOST_UNSUCCESS_CMPL)
        answer = self._return_data(request, pdc, psn, found, None, self._told_with(ReturnCode.OK, j))
        assert answer is not None
        return answer

    # Errors and the end of messages

    def _stop(self, message: RxMessage, request: SesRequest, amount: int) -> Response:
        """Drop a packet of a stopped message, and answer RC_OK and OVERFLOW (ses.md §5.7 D2b)."""
        first = not message.told_stop
        message.told_stop = True
        message.refused += amount
        if request.eom and not amount:
            message.end = request.message_offset  # the initiator sent no bytes beyond
        if message.refused >= message.end:
            self.messages.pop(message.at, None)
            self.queues.ended(message)
        overflow = first or self.config.stop_list == "all"
        which = ResponseList.OVERFLOW if overflow else ResponseList.EXPECTED
        return response(request, ReturnCode.OK, 0, which, message.generation)

    def _refuse(
        self, message: RxMessage, request: SesRequest, code: ReturnCode, size: int, j: Judgement | None = None
    ) -> Response:
        """Refuse a packet; the first error of a message is also the answer to its later packets (ses.md §10)."""
        if message.error is None:
            self._events.append(MessageFailed(message.source, request.message_id or 0, code))
            self._spoil(message, code)
        message.refused += size
        if j is not None:
            message.generation = self._told_with(code, j)
        self.drop_if_seen(message)
        return response(request, code, generation=message.generation)

    def _spoil(self, message: RxMessage, code: ReturnCode) -> None:
        """Set the first error of a message, and end its hold, its stop and its part in a sync group."""
        message.error = code
        message.identity = None
        if message.held is not None:
            self.queues.drop_held(message, code)
        self.queues.take_back(message)
        self.syncs.fail(message, code)

    def drop_if_seen(self, message: RxMessage) -> None:
        """Drop a failed message when all its packets have arrived, and end its receive in error."""
        if message.arrived.received + message.refused >= message.end:
            self.messages.pop(message.at, None)
            self.queues.fail(message)

    def _finish(self, message: RxMessage) -> Response:
        """Complete a message whose last byte is in memory: report the event of its opcode, and return the answer
        (ses.md §13.3)."""
        request = message.request
        if message.memory is not None:
            try:
                message.memory.flush()
            except OSError:
                return self._refuse(message, request, ReturnCode.HOST_UNSUCCESS_CMPL, 0)
        self.messages.pop(message.at, None)
        if message.buffer is not None:
            self.queues.finish(message)
            return message.answer()
        if request.opcode in ATOMICS:
            return message.ok
        self._tell_written(message)
        return message.ok

    def _tell_written(self, message: RxMessage) -> None:
        request = message.request
        if self.tells_access:
            self._events.append(
                MessageStored(message.source, request.message_id or 0, message.key, message.offset, message.length)
            )
            self._events.append(RemoteAccess(message.key, False, True, message.length, message.region))
        if message.header_data is not None:
            self._events.append(RemoteWrite(
                message.source, request.initiator, request.job_id, request.pid_on_fep, request.resource_index,
                message.length, message.header_data,
            ))  # fmt: skip

    def _end_early(self, request: SesRequest, message: RxMessage | None) -> Response:
        """End a message where its initiator stopped (MSG_ERROR, ses.md §5.12)."""
        if message is None or request.som or not request.eom or message.ended:
            return response(request, ReturnCode.OP_VIOLATION)
        message.ended = True
        message.end = min(request.message_offset, message.end)
        code = message.error or ReturnCode.INITIATOR_ERROR
        return self._refuse(message, request, code, 0)

    @property
    def waiting(self) -> bool:
        """Return True when late responses or return data are to be sent, or messages are not complete."""
        return bool(self._answers or self._observable or self.messages or self.returns.open or self.queues.waiting)

    # Time

    def on_time(self, now: int) -> None:
        """Send the late responses that are due, and drop the messages whose packets no longer arrive."""
        self.now = now
        while self._observable and self._observable[0][0] <= now:
            self._answers.append(self._observable.popleft()[1:])
        if self.idle_at <= now:
            self._drop_idle(now)
        self.queues.on_time(now)
        self.syncs.on_time(now)
        while self._answers:
            pdc, psn, answer = self._answers.popleft()
            self.late(pdc, psn, answer, now)

    def _drop_idle(self, now: int) -> None:
        limit = self.config.idle_message_time
        gone = [k for k, m in self.messages.items() if m.last_seen + limit <= now and not self._is_complete(m)]
        for key in gone:
            self._abandon(self.messages.pop(key))
        open_ones = (message for message in self.messages.values() if not self._is_complete(message))
        self.idle_at = min((message.last_seen + limit for message in open_ones), default=NEVER)

    def _is_complete(self, message: RxMessage) -> bool:
        """Return True when a held message is complete and waits for a receive."""
        return message.held is not None and message.arrived.complete

    def _abandon(self, message: RxMessage) -> None:
        """Drop a message of which no further packet is expected; a receive that it matched ends in error."""
        if message.error is None:
            self._spoil(message, ReturnCode.DROPPED)
        self.queues.fail(message)

    def deadline(self) -> int:
        """Return the time at which `on_time` has something to do, or NEVER if no timer is armed."""
        if self._answers or (self.returns.used and self.returns.queued):
            return 0
        at = self.idle_at if self.messages else NEVER
        if self._observable:
            at = min(at, self._observable[0][0])
        if self.queues.stops:
            at = min(at, self.queues.deadline())
        return min(at, self.syncs.deadline()) if self.syncs.groups else at

    def on_closed(self, pdc: Connection) -> None:
        """End the messages of a closed PDC, on which no further packet can arrive and no answer can be sent."""
        gone = pdc.local_id
        for key in [key for key in self.messages if key[0] == gone]:
            message = self.messages.pop(key)
            if message.held is not None and message.arrived.complete:
                message.held = []  # a complete message may still match a receive
            else:
                self._abandon(message)
        if self._observable:
            observable = [late for late in self._observable if late[1] is not pdc]
            self._observable.clear()
            self._observable.extend(observable)
        if self._answers:
            answers = [late for late in self._answers if late[0] is not pdc]
            self._answers.clear()
            self._answers.extend(answers)
        self.returns.closed(pdc)
