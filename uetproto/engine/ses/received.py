"""The target keeps this state of a message, and answers it with these responses (ses.md §7.2, §9.1, §9.4)."""

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
"""Key of a message: {local PDCID, message_id}, or {local PDCID, 0x10000 + PSN} for a form without message_id."""


@dataclass(slots=True, eq=False)
class StoppedMessage:
    """The record of a deferrable message that was stopped, which is kept until its restart arrives (ses.md §5.7)."""

    request: SesRequest
    source: int
    index: ResourceIndex
    token: int
    """Target restart token T_t, which names the reserved buffer."""
    expires: int
    """Time at which the message is given up."""
    match_bits: int
    buffer: PostedBuffer | None = None
    """The reserved buffer, once DEFERRABLE_RTR was sent."""

    @property
    def initiator(self) -> int:
        return self.request.initiator


class RxMessage:
    """The state that a target keeps of a message, from the arrival of its first packet on (ses.md §7.2)."""

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
        """The resource index whose queue holds the message, while `held`."""
        self.opcode = request.opcode
        self.key = request.key
        self.offset = request.buffer_offset
        self.length = request.request_length
        self.end = body
        """Number of bytes that all packets carry or ask for; after MSG_ERROR, of the packets sent before it."""
        self.region: Region | None = None
        self.buffer: PostedBuffer | None = None
        """The posted receive that the message matched."""
        self.memory: Memory | None = None
        """The memory that the message accesses: of its region or posted receive, or of its own while `held`."""
        self.place = 0
        """Offset in `memory` of the first byte of the message."""
        self.room = 0
        """Number of bytes that may be stored; less than `length` when the message is truncated."""
        self.arrived = Reassembly(body)
        self.refused = 0
        """Number of bytes of packets that were refused."""
        self.ended = False
        """Whether MSG_ERROR arrived."""
        self.error: ReturnCode | None = None
        self.header_data: int | None = None
        self.held: list[tuple[Connection, int]] | None = None
        """Packets of a held message, which wait for their final answer; None: the message is not held (ses.md
        §11.2)."""
        self.overflow = False
        """Whether the message was held before it matched a receive."""
        self.stopped: StoppedMessage | None = None
        """Record of the message while it is stopped: the target restarts it later (ses.md §5.7)."""
        self.told_stop = False
        """Whether a packet was answered with the response that stops the message."""
        self.rendezvous: SesExtRendezvousHeader | None = None
        self.sync: SesExtSyncHeader | None = None
        self.generation = 0
        """Generation of the RI, which some responses carry."""
        self.last_seen = now
        # For `SesTarget._follow`: the header bytes that are equal in all packets of an accepted message.
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
        """Store bytes at `offset` of the message, as many as there is room for (ses.md §2.8)."""
        memory = self.memory
        assert memory is not None
        room = self.room - offset
        if room >= len(payload):
            memory.write(self.place + offset, payload)
        elif room > 0:
            memory.write(self.place + offset, memoryview(payload)[:room])

    def answer(self) -> Response:
        """Return the answer to a stored packet: the default response, unless the message was held or is truncated
        (ses.md §9.1, §9.4)."""
        if not self.overflow and self.room >= self.length:
            return self.ok
        which = ResponseList.OVERFLOW if self.overflow else ResponseList.EXPECTED
        return response(self.request, ReturnCode.OK, min(self.room, self.length), which, self.generation)


def default_response(request: SesRequest, generation: int = 0) -> Response:
    """Return the default response, which reports success only (ses.md §9.1, §9.4)."""
    return Response(build_response(
        ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, request.message_id or 0, request.job_id,
        request.request_length, ri_generation=generation,
    ))  # fmt: skip


def response(
    request: SesRequest, code: int, length: int = 0, which: int = ResponseList.EXPECTED, generation: int = 0
) -> Response:
    """Return a response whose delivery is guaranteed, as for all but the default response (ses.md §9.4, §9.7).

    `length` is the field modified_length, 0 for an error; `which` is the field `list`.
    """
    return Response(build_response(
        ResponseOpcode.RESPONSE, code, request.message_id or 0, request.job_id, length, which, generation,
    ), gtd=True)  # fmt: skip
