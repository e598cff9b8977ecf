"""Target side of SES: requests become memory effects, completions and one answer each.

UE 1.0.1 §3.4.1, §3.4.3.3; ses.md §5, §7.2, §9, §10.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct

from uetproto.engine.config import SesConfig
from uetproto.engine.contract import NEVER, Buffer, Event, MessageFailed, MessageStored, RemoteWrite
from uetproto.engine.memory import Region
from uetproto.engine.messages import SesRequest, build_response, parse_ses_request
from uetproto.engine.service import Connection, Refusal, Response
from uetproto.engine.ses_checks import Judgement, Processes, judge, judge_addressing
from uetproto.engine.ses_segments import Reassembly
from uetproto.errors import RemoteError
from uetproto.wire.uet_pds import NackCode, NextHdr
from uetproto.wire.uet_ses import REQUEST_STD, Opcode, ResponseOpcode, ReturnCode

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
        self._idle: deque[tuple[int, tuple[int, int]]] = deque()

    # Packets

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        """One packet: checks, execution, answer (ses.md §10)."""
        if next_hdr == NextHdr.REQUEST_STD:
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
        if message is None and len(self.messages) >= self.config.max_rx_messages and not (request.som and request.eom):
            return Refusal(NackCode.NO_SES_MSG_AVAIL)  # step 11
        code = judge(judgement)
        if code is None and self.fault is not None:
            code = self.fault(request)
        if request.opcode != Opcode.WRITE:
            return error_response(request, code) if code is not None else _default(request)
        if message is None:
            message = self._open(key, judgement, pdc.peer, now)
        message.last_seen = now
        if code is None and not message.arrived.add(request.message_offset, len(payload)):
            code = ReturnCode.OP_VIOLATION  # step 16: bytes that were there before
        if code is not None:
            return self._refuse(message, key, request, code, len(payload))
        return self._store(message, key, request, data, at, payload, psn, now)

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
            or opcode != Opcode.WRITE or flags != message.flags or tail != message.tail
            or message.lookup_version != self.processes.version
            or stated != size or size != mtu or offset % mtu or not 0 < offset < message.length - mtu
            or region is None or not region.enabled or region.fault is not None or self.fault is not None
            or not message.arrived.add(offset, size)
        ):  # fmt: skip
            return None
        region.memory.write(message.offset - region.base + offset, payload)
        message.last_seen = now
        if message.arrived.received == message.length:
            self._finish(message, key)
        return message.ok

    def _open(self, key: tuple[int, int], judgement: Judgement, source: int, now: int) -> RxMessage:
        """State for the first packet seen of a message, accepted or not."""
        message = RxMessage(judgement.request, source, now)
        message.region = judgement.region
        self.messages[key] = message
        if self.config.idle_message_time:
            self._idle.append((now + self.config.idle_message_time, key))
        return message

    def _store(
        self, message: RxMessage, key: tuple[int, int], request: SesRequest, data: Buffer, at: int, payload: Buffer,
        psn: int, now: int,
    ) -> Response | None:  # fmt: skip
        """The effect of an accepted packet (ses.md §2.8), and its answer: `dc` waits until others can see it."""
        region = message.region
        assert region is not None
        region.memory.write(message.offset - region.base + request.message_offset, payload)
        if request.som and request.hd:
            message.header_data = request.header_data
        waits = bool(request.dc) and self.config.write_latency > 0
        if message.identity is None and not waits and request.next_hdr == NextHdr.REQUEST_STD:
            message.identity = bytes(data[at + _ADDRESS_AT : at + _POSITION_AT])
            message.flags = data[at + _FLAGS_AT] & ~_EOM_SOM
            message.tail = bytes(data[at + _LENGTH_AT : at + REQUEST_STD.size])
            message.lookup_version = self.processes.version
        if message.arrived.complete:
            self._finish(message, key)
        if not waits:
            return message.ok
        self._observable.append((now + self.config.write_latency, key[0], psn, message.ok))
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
            del self.messages[key]

    def _finish(self, message: RxMessage, key: tuple[int, int]) -> None:
        """The last byte is in memory: the completion that the opcode has (ses.md §13.3)."""
        del self.messages[key]
        request, region = message.request, message.region
        assert region is not None
        region.memory.flush()
        self._events.append(
            MessageStored(message.source, request.message_id or 0, message.key, message.offset, message.length)
        )
        if message.header_data is not None:
            self._events.append(RemoteWrite(
                message.source, request.initiator, request.job_id, request.pid_on_fep, request.resource_index,
                message.length, message.header_data,
            ))  # fmt: skip

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
        limit = self.config.idle_message_time
        while self._idle and self._idle[0][0] <= now:
            _, key = self._idle.popleft()
            message = self.messages.get(key)
            if message is not None and message.last_seen + limit <= now:
                del self.messages[key]
            elif message is not None:
                self._idle.append((now + limit, key))

    def deadline(self) -> int:
        """The next late answer, or the next look at idle messages; NEVER without either."""
        while self._idle and self._idle[0][1] not in self.messages:
            self._idle.popleft()
        at = self._idle[0][0] if self._idle else NEVER
        return min(at, self._observable[0][0]) if self._observable else at

    def on_closed(self, pdc: Connection) -> None:
        """No more packets of these messages can come."""
        for key in [key for key in self.messages if key[0] == pdc.local_id]:
            del self.messages[key]
