"""Target side of SES: requests become memory effects, completions and one answer each.

UE 1.0.1 §3.4.1, §3.4.3.3; ses.md §5, §7.2, §9, §10.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct

from uetproto.engine.config import SesConfig
from uetproto.engine.contract import NEVER, PDC_MODES, Buffer, Event, MessageFailed, MessageStored, Mode, RemoteWrite
from uetproto.engine.memory import Region
from uetproto.engine.messages import SesRequest, build_response, parse_ses_request
from uetproto.engine.service import Connection, Refusal, Response
from uetproto.engine.ses_checks import Judgement, Processes, judge, judge_addressing
from uetproto.engine.ses_segments import Reassembly
from uetproto.errors import RemoteError
from uetproto.wire.uet_pds import NackCode, NextHdr
from uetproto.wire.uet_ses import REQUEST_STD, Opcode, ResponseOpcode, ReturnCode

# Looked up once: with every packet, Class.MEMBER would cost as much as a call.
_WRITE, _STD = Opcode.WRITE, NextHdr.REQUEST_STD
_FLAGS_AT = 1
_ADDRESS_AT = REQUEST_STD.offset_of("ri_generation") // 8
_POSITION_AT = REQUEST_STD.offset_of("rsvd4") // 8
_LENGTH_AT = REQUEST_STD.offset_of("request_length") // 8
_EOM_SOM = 0x03
_PARTS = Struct(f">BBxx{_POSITION_AT - _ADDRESS_AT}sII4s")
"""A later packet in coarse parts: opcode, flags; message_id skipped; address to key; payload_length and message_offset;
request_length."""


class RxMessage:
    """State of a message at its target (ses.md §7.2); created by the first packet seen."""

    __slots__ = (
        "arrived", "end", "ended", "error", "flags", "header_data", "identity", "key", "last_seen", "length",
        "lookup_version", "offset", "ok", "opcode", "refused", "region", "request", "source", "tail",
    )  # fmt: skip

    def __init__(self, request: SesRequest, source: int, now: int) -> None:
        self.request = request
        self.source = source
        self.opcode = request.opcode
        self.key = request.key
        self.offset = request.buffer_offset
        self.length = request.request_length
        self.end = request.request_length
        """Bytes to expect: the length, or what was sent before MSG_ERROR."""
        self.region: Region | None = None
        self.arrived = Reassembly(request.request_length)
        self.refused = 0
        """Bytes of packets that were not stored."""
        self.ended = False
        """MSG_ERROR came."""
        self.error: ReturnCode | None = None
        self.header_data: int | None = None
        self.last_seen = now
        # For `SesTarget._follow`: the bytes that are equal in all packets of a message that was accepted.
        self.identity: bytes | None = None
        self.flags = 0
        self.tail = b""
        self.lookup_version = -1
        self.ok = _default(request)


def _default(request: SesRequest) -> Response:
    """Success without anything to report (ses.md §9.1, §9.4)."""
    length = request.request_length
    return Response(
        build_response(ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, request.message_id or 0, request.job_id, length)
    )


def error_response(request: SesRequest, code: ReturnCode) -> Response:
    """Any error: guaranteed, modified_length 0 (ses.md §9.4, §9.7)."""
    return Response(build_response(ResponseOpcode.RESPONSE, code, request.message_id or 0, request.job_id, 0), gtd=True)


class SesTarget:
    """Executes requests. `late` takes an answer that comes after its request: {PDCID, PSN, response, now}."""

    def __init__(self, config: SesConfig, events: list[Event], late: Callable[[int, int, Response, int], None]) -> None:
        self.config = config
        self.processes = Processes()
        self.messages: dict[tuple[int, int], RxMessage] = {}
        """By {local PDCID, message_id}; forms without an id: {local PDCID, 0x10000 + PSN}."""
        self.fault: Callable[[SesRequest], ReturnCode | None] | None = None
        """A harness may let requests fail: asked after all checks, before execution."""
        self._events = events
        self.late = late
        self._observable: deque[tuple[int, int, int, Response]] = deque()
        """Answers with `dc` that wait for `write_latency`: when, PDCID, PSN, answer."""
        self._idle_at = NEVER
        """When to look for messages that nobody continues; counts while there are messages."""

    # Packets

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        """One packet: checks, execution, answer (ses.md §10)."""
        if pdc.mode not in PDC_MODES:
            return self._without_pdc(pdc, data, at, next_hdr)
        if next_hdr == _STD:
            key = (pdc.local_id, data[at + 2] << 8 | data[at + 3])
            message = self.messages.get(key)
            if message is not None and message.identity is not None:
                answer = self._follow(message, key, data, at, payload, now)
                if answer is not None:
                    return answer
        else:
            key = (pdc.local_id, 0x10000 + psn)
            message = None
        try:
            request = parse_ses_request(data, at, next_hdr)
        except RemoteError:  # return data for a read that this endpoint never made (ses.md §9.6)
            return Response(build_response(ResponseOpcode.RESPONSE, ReturnCode.UNDELIVERABLE, 0, 0, 0), gtd=True)
        judgement = Judgement(request, pdc.mode, len(payload), self.processes, self.config, message)
        if request.opcode == Opcode.MSG_ERROR:
            return self._end_early(judgement, key)
        alone = bool(request.som and request.eom)
        if message is None and not alone and len(self.messages) >= self.config.max_rx_messages:
            return Refusal(NackCode.NO_SES_MSG_AVAIL)  # step 11
        code = judge(judgement)
        if code is None and self.fault is not None:
            code = self.fault(request)
        if request.opcode != Opcode.WRITE:
            return error_response(request, code) if code is not None else _default(request)
        if message is None:
            message = RxMessage(request, pdc.peer, now)
            message.region = judgement.region
            if not alone:  # nothing more comes of a message of one packet
                self._keep(key, message, now)
        message.last_seen = now
        if code is None and not message.arrived.add(request.message_offset, len(payload)):
            code = ReturnCode.OP_VIOLATION  # step 16: bytes that were there before
        if code is not None:
            return self._refuse(message, key, request, code, len(payload))
        return self._store(message, key, request, data, at, payload, psn, now)

    def _without_pdc(self, pdc: Connection, data: Buffer, at: int, next_hdr: int) -> Response | Refusal:
        """RUDI and UUD: no operation of theirs is executed yet."""
        if pdc.mode is Mode.UUD:
            return Refusal(NackCode.NO_RESOURCE)
        return error_response(parse_ses_request(data, at, next_hdr), ReturnCode.UNSUPPORTED_OP)

    def on_reread(self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer) -> Response:
        """No read was executed, so there is no data to be read again."""
        return error_response(parse_ses_request(data, at, next_hdr), ReturnCode.UNSUPPORTED_OP)

    def _follow(
        self, message: RxMessage, key: tuple[int, int], data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | None:
        """Short way for a later packet of an accepted message; None: the long way must look at it.

        All bytes of its header that are equal in the packets of a message are those of the packet that was accepted,
        and nobody was attached or detached since: so steps 2–8, 12–15 and 17, and the consistency of step 16, give
        what they gave then. Left are the position (step 10), and the memory (step 18).
        """
        opcode, flags, identity, stated, offset, tail = _PARTS.unpack_from(data, at)
        region, size, mtu = message.region, len(payload), self.config.payload_mtu
        if (
            identity != message.identity
            or opcode != _WRITE or flags != message.flags or tail != message.tail
            or message.lookup_version != self.processes.version
            or stated != size or size != mtu or offset % mtu or not 0 < offset < message.length - mtu
            or region is None or not region.enabled or region.fault is not None or self.fault is not None
            or not message.arrived.add(offset, size)
        ):  # fmt: skip
            return None
        try:
            region.memory.write(message.offset - region.base + offset, payload)
        except OSError:
            return self._refuse(message, key, message.request, ReturnCode.HOST_UNSUCCESS_CMPL, 0)
        message.last_seen = now
        if message.arrived.received == message.length:
            return self._finish(message, key)
        return message.ok

    def _keep(self, key: tuple[int, int], message: RxMessage, now: int) -> None:
        """State from the first packet seen of a message on, accepted or not."""
        if not self.messages and self.config.idle_message_time:
            self._idle_at = now + self.config.idle_message_time
        self.messages[key] = message

    def _store(
        self, message: RxMessage, key: tuple[int, int], request: SesRequest, data: Buffer, at: int, payload: Buffer,
        psn: int, now: int,
    ) -> Response | None:  # fmt: skip
        """The effect of an accepted packet (ses.md §2.8), and its answer: `dc` waits until others can see it."""
        region = message.region
        assert region is not None
        try:
            region.memory.write(message.offset - region.base + request.message_offset, payload)
        except OSError:
            return self._refuse(message, key, request, ReturnCode.HOST_UNSUCCESS_CMPL, 0)
        if request.som and request.hd:
            message.header_data = request.header_data
        waits = bool(request.dc) and self.config.write_latency > 0
        if message.identity is None and not waits and request.next_hdr == NextHdr.REQUEST_STD:
            message.identity = bytes(data[at + _ADDRESS_AT : at + _POSITION_AT])
            message.flags = data[at + _FLAGS_AT] & ~_EOM_SOM
            message.tail = bytes(data[at + _LENGTH_AT : at + REQUEST_STD.size])
            message.lookup_version = self.processes.version
        answer = self._finish(message, key) if message.arrived.complete else message.ok
        if not waits or answer.gtd:
            return answer
        self._observable.append((now + self.config.write_latency, key[0], psn, answer))
        return None

    def _refuse(
        self, message: RxMessage, key: tuple[int, int], request: SesRequest, code: ReturnCode, size: int
    ) -> Response:
        """The first error of a message stays with it and is echoed for its other packets (ses.md §10)."""
        if message.error is None:
            message.error = code
            message.identity = None
            self._events.append(MessageFailed(message.source, request.message_id or 0, code))
        message.refused += size
        self._drop_if_seen(message, key)
        return error_response(request, code)

    def _drop_if_seen(self, message: RxMessage, key: tuple[int, int]) -> None:
        """An error record is kept until all bytes of its message were seen."""
        if message.arrived.received + message.refused >= message.end:
            self.messages.pop(key, None)

    def _finish(self, message: RxMessage, key: tuple[int, int]) -> Response:
        """The last byte is in memory: the completion that the opcode has (ses.md §13.3)."""
        request, region = message.request, message.region
        assert region is not None
        try:
            region.memory.flush()
        except OSError:
            return self._refuse(message, key, request, ReturnCode.HOST_UNSUCCESS_CMPL, 0)
        self.messages.pop(key, None)
        self._events.append(
            MessageStored(message.source, request.message_id or 0, message.key, message.offset, message.length)
        )
        if message.header_data is not None:
            self._events.append(RemoteWrite(
                message.source, request.initiator, request.job_id, request.pid_on_fep, request.resource_index,
                message.length, message.header_data,
            ))  # fmt: skip
        return message.ok

    def _end_early(self, judgement: Judgement, key: tuple[int, int]) -> Response:
        """MSG_ERROR (ses.md §5.12): the message ends where its initiator stopped."""
        request, message = judgement.request, judgement.message
        code = judge_addressing(judgement)
        if code is not None:
            return error_response(request, code)
        if message is None or request.som or not request.eom or message.ended:
            return error_response(request, ReturnCode.OP_VIOLATION)
        message.ended = True
        message.identity = None
        message.end = min(request.message_offset, message.end)
        if message.error is None:
            message.error = ReturnCode.INITIATOR_ERROR
            self._events.append(MessageFailed(message.source, request.message_id or 0, message.error))
        code = message.error
        self._drop_if_seen(message, key)
        return error_response(request, code)

    @property
    def waiting(self) -> bool:
        """Answers are late, or messages are not complete."""
        return bool(self._observable or self.messages)

    # Time

    def on_time(self, now: int) -> None:
        """Late answers, and messages that nobody continues."""
        while self._observable and self._observable[0][0] <= now:
            _, pdcid, psn, answer = self._observable.popleft()
            self.late(pdcid, psn, answer, now)
        if self._idle_at <= now:
            limit = self.config.idle_message_time
            self.messages = {key: m for key, m in self.messages.items() if m.last_seen + limit > now}
            self._idle_at = min((m.last_seen + limit for m in self.messages.values()), default=NEVER)

    def deadline(self) -> int:
        """The next late answer, or the next look at idle messages; NEVER without either."""
        at = self._idle_at if self.messages else NEVER
        return min(at, self._observable[0][0]) if self._observable else at

    def on_closed(self, pdc: Connection) -> None:
        """No more packets of these messages can come, and nobody takes their answers."""
        gone = pdc.local_id
        if self.messages:
            self.messages = {key: message for key, message in self.messages.items() if key[0] != gone}
        if self._observable:
            self._observable = deque(late for late in self._observable if late[1] != gone)
