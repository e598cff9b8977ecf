# SPDX-License-Identifier: GPL-2.0-only
"""This module has the state that a target keeps of each message, and the responses to packets (ses.md §7.2, §9.1,
§9.4)."""

from dataclasses import dataclass

from uetproto.engine.contract import Buffer
from uetproto.engine.memory import Memory, Region
from uetproto.engine.pds.service import Connection, Response
from uetproto.engine.ses.addressing import ResourceIndex
from uetproto.engine.ses.buffers import PostedBuffer
from uetproto.engine.ses.headers import SesRequest, build_ok, build_response
from uetproto.engine.ses.segments import Reassembly
from uetproto.wire.headers.uet_ses import OpcodeProfile, ResponseList, ResponseOpcode, ReturnCode, Space
from uetproto.wire.tuples import SesExtRendezvousHeader, SesExtSyncHeader

Key = tuple[int, int]
"""Key of a message, which consists of local PDCID and message_id. In place of a message_id that the header does not
have, the key has 0x10000 + PSN."""


@dataclass(slots=True, eq=False)
class StoppedMessage:
    """A target keeps this record of a stopped (deferred) message until the message is restarted (ses.md §5.7)."""

    request: SesRequest
    source: int
    index: ResourceIndex
    token: int
    """Target restart token, which identifies the reserved buffer."""
    expires: int
    """Time in picoseconds after which the target no longer waits for the restart."""
    match_bits: int
    buffer: PostedBuffer | None = None
    """Buffer that is reserved for the restart. It is None until a receive matches."""
    arriving: bool = True
    """Whether some packets of the stopped message were not answered yet."""

    @property
    def initiator(self) -> int:
        return self.request.initiator


class RxMessage:
    """A target keeps this state of a message from the arrival of its first packet on (ses.md §7.2)."""

    __slots__ = (
        "arrived", "at", "buffer", "end", "ended", "error", "front", "generation", "header_data", "held", "identity",
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
        """Resource index whose queue holds the message, if the message is held."""
        self.opcode = request.opcode
        self.key = request.key
        self.offset = request.buffer_offset
        self.length = request.request_length
        self.end = body
        """Number of bytes that all packets together carry or ask for. After MSG_ERROR, only the packets that were sent
        before MSG_ERROR count."""
        self.region: Region | None = None
        self.buffer: PostedBuffer | None = None
        """Posted receive that the message matched, or None."""
        self.memory: Memory | None = None
        """Memory in which the message is stored. It belongs to the region or the posted receive, and to the message
        itself while the message is held."""
        self.place = 0
        """Offset in `memory` of the first byte of the message."""
        self.room = 0
        """Number of bytes that may be stored. It is less than `length` if the message is truncated."""
        self.arrived = Reassembly(body)
        self.refused = 0
        """Number of bytes in the packets of this message that were refused."""
        self.ended = False
        """Whether MSG_ERROR arrived."""
        self.error: ReturnCode | None = None
        self.header_data: int | None = None
        self.held: list[tuple[Connection, int]] | None = None
        """PDC and PSN of each packet of a held message, which waits for its final response, or None if the message is
        not held (ses.md §11.2)."""
        self.overflow = False
        """Whether the message was held before it matched a receive."""
        self.stopped: StoppedMessage | None = None
        """Record of a stopped message, which the target restarts later, or None (ses.md §5.7)."""
        self.told_stop = False
        """Whether a packet was answered with the response that stops the message."""
        self.rendezvous: SesExtRendezvousHeader | None = None
        self.sync: SesExtSyncHeader | None = None
        self.generation = 0
        """Generation of the resource index, which some responses carry."""
        self.last_seen = now
        # For `SesTarget._follow`: the header bytes that are equal in all packets of an accepted message.
        self.identity: bytes | None = None
        self.front = 0
        self.tail = b""
        self.lookup_version = -1
        self.ok = default_response(request)

    @property
    def match_bits(self) -> int:
        """Return the match bits of a tagged message, or 0 for any other message, as `HeldMessages` needs them."""
        return self.key if self.row.space is Space.TAGGED else 0

    @property
    def initiator(self) -> int:
        return self.request.initiator

    def write(self, offset: int, payload: Buffer) -> None:
        """Store `payload` at `offset` of the message. Bytes beyond `room` are dropped (ses.md §2.8)."""
        memory = self.memory
        assert memory is not None
        room = self.room - offset
        if room >= len(payload):
            memory.write(self.place + offset, payload)
        elif room > 0:
            memory.write(self.place + offset, memoryview(payload)[:room])

    def answer(self) -> Response:
        """Return the response to a stored packet. It is the default response unless the message was held or is
        truncated (ses.md §9.1, §9.4)."""
        if not self.overflow and self.room >= self.length:
            return self.ok
        which = ResponseList.OVERFLOW if self.overflow else ResponseList.EXPECTED
        return response(self.request, ReturnCode.OK, min(self.room, self.length), which, self.generation)


def default_response(request: SesRequest, generation: int = 0) -> Response:
    """Return the default response, which reports success and no more (ses.md §9.1, §9.4)."""
    return Response(build_ok(request.message_id or 0, request.job_id, request.request_length, generation))


def response(
    request: SesRequest, code: int, length: int = 0, which: int = ResponseList.EXPECTED, generation: int = 0
) -> Response:
    """Return a response that is not the default response, and whose delivery is guaranteed (ses.md §9.4, §9.7).

    `length` is the field modified_length, which is 0 for an error, and `which` is the field `list`.
    """
    return Response(build_response(
        ResponseOpcode.RESPONSE, code, request.message_id or 0, request.job_id, length, which, generation,
    ), gtd=True)  # fmt: skip
