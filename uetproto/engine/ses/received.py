"""State of a message at its target, and the responses that answer it (ses.md §7.2, §9.1, §9.4)."""

from dataclasses import dataclass

from uetproto.engine.contract import Buffer
from uetproto.engine.memory import Memory, Region
from uetproto.engine.pds.service import Connection, Response
from uetproto.engine.ses.addressing import ResourceIndex
from uetproto.engine.ses.buffers import PostedBuffer
from uetproto.engine.ses.headers import SesRequest, build_response
from uetproto.engine.ses.segments import Reassembly
from uetproto.wire.headers.uet_ses import OpcodeProfile, ResponseList, ResponseOpcode, ReturnCode, Space
from uetproto.wire.tuples import SesExtRendezvousHeader, SesExtSyncHeader

Key = tuple[int, int]
"""Holds {local PDCID, message_id}; forms without an id have {local PDCID, 0x10000 + PSN}."""


@dataclass(slots=True, eq=False)
class StoppedMessage:
    """A message that was stopped; this record is kept until its restart arrives (ses.md §5.7)."""

    request: SesRequest
    source: int
    index: ResourceIndex
    token: int
    """Target restart token T_t, which names the reserved buffer."""
    expires: int
    match_bits: int
    buffer: PostedBuffer | None = None
    """The reserved buffer, once DEFERRABLE_RTR was sent."""

    @property
    def initiator(self) -> int:
        return self.request.initiator


class RxMessage:
    """State of a message at its target, which the first packet seen creates (ses.md §7.2)."""

    __slots__ = (
        "arrived", "at", "buffer", "end", "ended", "error", "flags", "generation", "header_data", "held", "identity",
        "index", "key", "last_seen", "length", "lookup_version", "memory", "offset", "ok", "opcode", "overflow",
        "place", "refused", "region", "rendezvous", "request", "room", "row", "source", "stopped", "sync", "tail",
        "told_stop",
    )  # fmt: skip

    def __init__(self, request: SesRequest, row: OpcodeProfile, body: int, source: int, now: int) -> None:
        self.request = request
        self.row = row
        self.source = source
        self.at: Key = (0, 0)
        """Key of the message in `SesTarget.messages`."""
        self.index: ResourceIndex | None = None
        """The queue that holds a held message."""
        self.opcode = request.opcode
        self.key = request.key
        self.offset = request.buffer_offset
        self.length = request.request_length
        self.end = body
        """Number of bytes to expect: those that the packets carry or ask for, or that were sent before MSG_ERROR."""
        self.region: Region | None = None
        self.buffer: PostedBuffer | None = None
        """The posted receive that the message got."""
        self.memory: Memory | None = None
        self.place = 0
        """Offset in `memory` of the first byte."""
        self.room = 0
        """Bytes that may be stored there; less than `length` when the message is truncated."""
        self.arrived = Reassembly(body)
        self.refused = 0
        """Bytes of packets that were not stored."""
        self.ended = False
        """MSG_ERROR arrived, or the end of a stopped message."""
        self.error: ReturnCode | None = None
        self.header_data: int | None = None
        self.held: list[tuple[Connection, int]] | None = None
        """Packets that wait for their answer: no receive has taken the message yet (ses.md §11.2)."""
        self.overflow = False
        """The message was held."""
        self.stopped: StoppedMessage | None = None
        """Set while the message is stopped: the target asks for it again (ses.md §5.7)."""
        self.told_stop = False
        self.rendezvous: SesExtRendezvousHeader | None = None
        self.sync: SesExtSyncHeader | None = None
        self.generation = 0
        """Generation of the RI, which some responses carry."""
        self.last_seen = now
        # For `SesTarget._follow`: the bytes that are equal in all packets of a message that was accepted.
        self.identity: bytes | None = None
        self.flags = 0
        self.tail = b""
        self.lookup_version = -1
        self.ok = default_response(request)

    @property
    def match_bits(self) -> int:
        """Return the match bits for `HeldMessages`."""
        return self.key if self.row.space is Space.TAGGED else 0

    @property
    def initiator(self) -> int:
        return self.request.initiator

    def write(self, offset: int, payload: Buffer) -> None:
        """Store as many bytes as there is room for (ses.md §2.8)."""
        memory = self.memory
        assert memory is not None
        room = self.room - offset
        if room >= len(payload):
            memory.write(self.place + offset, payload)
        elif room > 0:
            memory.write(self.place + offset, memoryview(payload)[:room])

    def answer(self) -> Response:
        """Return the answer to a stored packet: the default one, or one that reports more (ses.md §9.1, §9.4)."""
        if not self.overflow and self.room >= self.length:
            return self.ok
        which = ResponseList.OVERFLOW if self.overflow else ResponseList.EXPECTED
        return response(self.request, ReturnCode.OK, min(self.room, self.length), which, self.generation)


def default_response(request: SesRequest, generation: int = 0) -> Response:
    """Return the response that reports success and nothing else (ses.md §9.1, §9.4)."""
    return Response(build_response(
        ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, request.message_id or 0, request.job_id,
        request.request_length, ri_generation=generation,
    ))  # fmt: skip


def response(
    request: SesRequest, code: int, length: int = 0, which: int = ResponseList.EXPECTED, generation: int = 0
) -> Response:
    """Return a response, guaranteed because it is not the default one; an error has length 0 (ses.md §9.4, §9.7)."""
    return Response(build_response(
        ResponseOpcode.RESPONSE, code, request.message_id or 0, request.job_id, length, which, generation,
    ), gtd=True)  # fmt: skip
