"""One message as its packets show it: what they have in common, and which of its PSNs were seen (ses.md §7)."""

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.reader.observed import Head, ObservedPacket, head_class
from uetproto.audit.ses.atomics import ELEMENT, LARGEST, is_usual
from uetproto.engine.ses.opcodes import OPERATIONS, Selects
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import (
    ATOMICS,
    DEFERRABLES,
    MEDIUM,
    REQUEST_SMALL,
    REQUEST_STD_SOM,
    RTR_STD,
    SEND_STD_SOM,
    STANDARD,
    Opcode,
    ResponseOpcode,
    ReturnCode,
)
from uetproto.wire.serial import diff32

if TYPE_CHECKING:
    from uetproto.audit.ses.tracker_sender import MessageSender

_M32 = 0xFFFFFFFF
COMMON = (
    "dc", "rel", "ri_generation", "job_id", "pid_on_fep", "resource_index", "initiator", "key", "request_length",
    "place",
)  # fmt: skip
"""What is equal in all packets of a message, beside the opcode (ses.md §15 5); `place` is buffer_offset, or tokens."""
_KEYS = ("memory_key", "match_bits")
_PLACES = ("buffer_offset", "initiator_restart_token", "target_restart_token")
_DATA = (0, ResponseOpcode.RESPONSE_W_DATA, 0, ReturnCode.OK)
"""How read data begins: list, opcode, version, return code."""
DEFAULT = (0, ResponseOpcode.DEFAULT_RESPONSE, 0, ReturnCode.OK)
"""Likewise a default response."""
_FETCHING = frozenset(opcode for opcode, row in OPERATIONS.items() if row.fetches)
_ANSWERED_SPECIALLY = frozenset((*ATOMICS, Opcode.SYNC_ATOMIC, Opcode.MSG_ERROR))
_PLAIN = frozenset((Opcode.WRITE, Opcode.READ, Opcode.SEND, Opcode.TAGGED_SEND))
_SENDS = frozenset((Opcode.SEND, Opcode.TAGGED_SEND))
_PLAIN_HEADS = frozenset((head_class(REQUEST_STD_SOM.name), head_class(SEND_STD_SOM.name)))
_SMALL = head_class(REQUEST_SMALL.name)
_SHORT = {
    _SMALL: NextHdr.REQUEST_SMALL,
    **{head_class(header.name): NextHdr.REQUEST_MEDIUM for header in MEDIUM if "header_data" not in header.names},
}
_PLAIN_SHORT = frozenset(
    (head, opcode)
    for head, next_hdr in _SHORT.items()
    for opcode in (*_PLAIN, *ATOMICS)
    if next_hdr in OPERATIONS[opcode].forms
)
_MAY_END_EARLY = frozenset((*DEFERRABLES, Opcode.MSG_ERROR))


class RequestLayout(NamedTuple):
    """Where the fields of a request header are, by its form."""

    standard: bool
    offset: int
    """Index of message_offset, behind payload_length; 0: a form that begins its message."""
    common: "itemgetter[Any] | None"


def _shape(form: str) -> RequestLayout:
    names = head_class(form)._fields
    keys = [name for name in names if name in _KEYS]
    if form == RTR_STD.name or not keys or "message_id" not in names:
        return RequestLayout(form == RTR_STD.name, 0, None)
    wanted = [*COMMON[:7], *keys, "request_length", *(name for name in names if name in _PLACES)]
    offset = names.index("message_offset") if "message_offset" in names else 0
    return RequestLayout(True, offset, itemgetter(*(names.index(name) for name in wanted)))


LAYOUTS: dict[type, RequestLayout] = {
    head_class(header.name): _shape(header.name) for header in (*STANDARD, *MEDIUM, REQUEST_SMALL)
}


def common_of(head: Head, shape: RequestLayout) -> tuple[int, ...]:
    """The fields of `COMMON`, of a standard header that can have successors."""
    if shape.common is None:
        return ()
    values: tuple[int, ...] = shape.common(head)
    return values if len(values) == len(COMMON) else (*values[:-2], values[-2] << 32 | values[-1])


def clear_of(head: Head) -> int:
    """CLEAR_PSN of a request: up to there its sender has read the answers (UE 1.0.1 §3.5.11.4.4)."""
    clear: int = (head.psn + head.clear_psn_offset) & _M32
    return clear


def differ(one: Head, other: Head) -> bool:
    """Whether packets of a message differ in the opcode, or in `COMMON`."""
    changed = one.opcode != other.opcode and Opcode.MSG_ERROR not in (one.opcode, other.opcode)
    return changed or common_of(one, LAYOUTS[type(one)]) != common_of(other, LAYOUTS[type(other)])


class AuditedMessage:
    """Known by its id and its PSNs: messages are not interleaved (UE 1.0.1 §3.5.20), so PSN and offset grow together.

    `message_attribution.py` tells which packets are its.
    """

    __slots__ = (
        "alone", "answers", "astray", "at", "atomic", "body", "common", "complete", "data", "data_state",
        "doubted", "drifted", "early", "ended", "eom", "fetched", "first", "good", "head", "high", "length", "low",
        "message_id", "mtu", "number", "opcode", "origin", "path_mtu", "previous", "psn", "returned", "returned_in_ack",
        "seen", "sender", "size", "som", "steps", "stopped", "suspect", "usual",
    )  # fmt: skip

    def __init__(self, sender: "MessageSender", seen: ObservedPacket, shape: RequestLayout) -> None:
        ses: Head = seen.ses
        self.sender = sender
        self.head = ses
        self.opcode: int = ses.opcode
        self.message_id: int | None = ses.message_id if shape.standard else None
        self.length: int = ses.request_length
        self.body: int = self.length
        """Bytes that its own packets speak of: of a rendezvous the eager ones."""
        self.common: tuple[int, ...] | None = None
        """What its packets have in common; looked at when there are two."""
        self.number = seen.number
        self.psn: int = seen.head.psn
        self.low = self.high = self.psn
        self.som: int | None = None
        """PSN of the packet with SOM; likewise `eom`."""
        self.eom: int | None = None
        self.early = False
        """It was ended before all of its bytes were sent."""
        self.origin: int | None = None
        """PSN of the packet with offset 0, if all PSNs from there on are of this message."""
        self.drifted = 0
        """PSNs within the message that were used for something else."""
        self.mtu = 0
        """Bytes of each packet but the last; 0: not known."""
        self.path_mtu = 0
        """The same of an earlier message."""
        self.seen = 1
        self.complete = False
        self.first = seen
        self.alone = True
        """No other packet agrees with the first: if one differs, who is right?"""
        self.doubted: ObservedPacket | None = None
        """The second packet, if it differs from the first."""
        self.usual: tuple[int, ...] | None = None
        """All but the last two fields of a packet in the middle; None: none was seen."""
        self.at = 0
        """Index of its message_offset."""
        self.steps = 0
        """PSNs between its first packet and its last."""
        self.size = 0
        """Payload of a packet in the middle."""
        self.previous: AuditedMessage | None = None
        """The one before it that had the same id."""
        self.suspect = False
        """Each of its packets takes the long way: something about it was strange."""
        self.astray: dict[int, ObservedPacket] | None = None
        """Misplaced packets, by the PSN that goes with their offset."""
        self.stopped = False
        """The target defers it."""
        self.ended: tuple[int, int, int] | None = None
        """PSN, code and packet of a guaranteed answer after which nothing new is to be sent of it."""
        self.returned: dict[int, tuple[int, int]] | None = None
        """PSN and number of the packets of read data, by offset."""
        self.returned_in_ack: bool | None = None
        self.data: tuple[int, ...] | None = None
        """All but the last field of read data in the middle."""
        self.data_state: Any = None
        """The `ReturnedData` that stands for all such."""
        self.answers: dict[int, tuple[Head, int]] | None = None
        """Answers that are guaranteed, and their packets, by PSN."""
        extension: Head = seen.more[-1] if seen.more else None
        form: str = "" if extension is None else extension.form
        self.atomic = extension if form.startswith("ses.ext.atomic") else None
        if form == "ses.ext.rendezvous":
            self.body = extension.eager_length
        self.good: tuple[int, ...] | None = None
        """The response to a success, where nothing more need be asked about it."""
        self.fetched: tuple[int, ...] | None = None
        """The same of an atomic with data, without the PSN."""
        self.judge_success()

    @property
    def job_id(self) -> int:
        return int(self.head.job_id)

    @property
    def index(self) -> tuple[Any, ...]:
        """The resource at its target: job, process, index and which of the three index spaces (ses.md §2.4)."""
        head, row = self.head, OPERATIONS.get(self.opcode)  # type: ignore[call-overload]  # any number may come
        return (head.job_id, head.pid_on_fep, head.resource_index, None if row is None else row.space)

    @property
    def fetches(self) -> bool:
        """Its success has data."""
        return self.opcode in _FETCHING

    @property
    def asks(self) -> bool:
        """Its packets carry no payload; what they speak of comes back."""
        return self.opcode == Opcode.READ

    @property
    def may_end_early(self) -> bool:
        return self.opcode in _MAY_END_EARLY

    @property
    def is_plain(self) -> bool:
        """Its header is one of which no rule for headers has anything to say."""
        head = self.head
        if (type(head), head.opcode) in _PLAIN_SHORT:
            index = head.resource_index or type(head) is _SMALL
            return bool(head.som and head.eom and index and not head.hd and not head.ri_generation)
        if type(head) not in _PLAIN_HEADS or head.opcode not in _PLAIN or not head.message_id:
            return False
        generation_fits = not head.ri_generation or head.opcode in _SENDS
        return bool(head.resource_index and generation_fits and (head.hd or not head.header_data))

    def is_usual_edge(self, seen: ObservedPacket, shape: RequestLayout) -> bool:
        """A packet begins or ends the message as it should."""
        ses: Head = seen.ses
        if not shape.offset:
            if ses.eom:
                return self.path_mtu == 0 or seen.size <= self.path_mtu
            return (
                self.path_mtu in (0, self.mtu) and seen.size == (0 if self.asks else self.mtu) and self.mtu < self.body
            )
        size: int = ses[shape.offset - 1]
        ends = ses.eom and ses[shape.offset] + size == self.body and size <= self.mtu
        return bool(ends and (self.asks or seen.size == size) and ses.hd == self.head.hd)

    def flow(self) -> Flow:
        return {**self.sender.flow(), "message_id": self.message_id, "psn": self.psn}

    def holds(self, psn: int) -> bool:
        """Packets before and behind this PSN are of this message."""
        return diff32(psn, self.low) > 0 and diff32(psn, self.high) < 0

    def reach(self, psn: int) -> None:
        if diff32(psn, self.high) > 0:
            self.high = psn
        elif diff32(psn, self.low) < 0:
            self.low = psn

    def extent(self, seen: ObservedPacket, shape: RequestLayout) -> int:
        """Bytes of the message that a packet carries, or asks for; -1: not known, or it contradicts itself."""
        ses: Head = seen.ses
        if shape.offset:
            stated: int = ses[shape.offset - 1]
            return stated if seen.size in (stated, -1) or self.asks else -1
        if ses.eom:
            return self.body
        if self.asks:
            return self.mtu or -1
        return seen.size

    def mtu_of(self, seen: ObservedPacket, shape: RequestLayout) -> int:
        """The payload MTU that a packet shows; 0: none."""
        ses: Head = seen.ses
        return 0 if ses.eom or (self.asks and not shape.offset) else max(0, self.extent(seen, shape))

    def offset_of(self, seen: ObservedPacket, shape: RequestLayout) -> int:
        ses: Head = seen.ses
        return int(ses[shape.offset]) if shape.offset else 0

    def origin_of(self, seen: ObservedPacket, shape: RequestLayout, mtu: int) -> int | None:
        """The PSN of offset 0 as a packet shows it; None: not known, or the offset is not a whole number of packets."""
        offset = self.offset_of(seen, shape)
        if not shape.offset or not offset:
            return int(seen.head.psn)
        return None if not mtu or offset % mtu else (seen.head.psn - offset // mtu) & _M32

    def due(self, seen: ObservedPacket, shape: RequestLayout) -> int | None:
        """The PSN that goes with the offset of a packet; None: not known."""
        offset = self.offset_of(seen, shape)
        if self.origin is None or not self.mtu or offset % self.mtu:
            return None
        return (self.origin + offset // self.mtu) & _M32

    def mark(self, seen: ObservedPacket, shape: RequestLayout) -> None:
        """Where the message begins, and ends."""
        ses: Head = seen.ses
        self.early = self.early or ses.opcode == Opcode.MSG_ERROR or bool(shape.offset and not ses[shape.offset - 1])
        if ses.som:
            self.som = seen.head.psn
        if ses.eom:
            self.eom = seen.head.psn

    def learn(self, seen: ObservedPacket, shape: RequestLayout) -> None:
        """What a packet shows that agrees with the others."""
        ses: Head = seen.ses
        psn: int = seen.head.psn
        if not self.mtu:
            follows = self.som is not None and psn == (self.som + 1) & _M32
            self.mtu = self.offset_of(seen, shape) if follows and ses.eom else self.mtu_of(seen, shape)
        if self.origin is None:
            self.origin = self.origin_of(seen, shape, self.mtu)
        middle = shape.offset and not ses.eom and not self.suspect and self.ended is None
        known = self.mtu and self.origin is not None
        if middle and known and self.usual is None and ses[shape.offset - 1] == self.mtu:
            self.usual, self.at, self.size = ses[: shape.offset], shape.offset, 0 if self.asks else self.mtu
            self.steps = -(-self.body // self.mtu) - 1
            if self.asks:
                self.data = (*_DATA, 0, 0, self.job_id, ses.message_id, 0, self.mtu, self.length)

    def differs(self, seen: ObservedPacket, shape: RequestLayout) -> bool:
        """`differ` from the first packet, which is looked at once."""
        ses: Head = seen.ses
        if self.common is None:
            self.common = common_of(self.head, LAYOUTS[type(self.head)])
        changed = ses.opcode != self.opcode and Opcode.MSG_ERROR not in (ses.opcode, self.opcode)
        return changed or common_of(ses, shape) != self.common

    def turn(self, seen: ObservedPacket, shape: RequestLayout) -> None:
        """The first packet was the one that is wrong: what it said gives way to what this one says."""
        ses: Head = seen.ses
        self.head, self.opcode, self.common = ses, ses.opcode, common_of(ses, shape)
        self.body += ses.request_length - self.length
        self.length = ses.request_length
        self.number, self.usual, self.data = seen.number, None, None
        self.judge_success()

    def judge_success(self) -> None:
        """Sets `good` and `fetched`."""
        job: int = self.head.job_id
        plain = self.opcode not in _ANSWERED_SPECIALLY or (self.atomic is not None and self._is_usual(self.atomic))
        self.good = (*DEFAULT, self.message_id or 0, 0, job, self.length) if plain else None
        self.fetched = None
        if plain and self.atomic is not None and self.fetches:
            size = ELEMENT.get(self.atomic.atomic_datatype)
            self.fetched = (*_DATA, 0, size, 0, job) if size is not None and size <= self.length else None

    def _is_usual(self, atomic: Head) -> bool:
        row = OPERATIONS.get(self.opcode)  # type: ignore[call-overload]
        in_region = row is not None and row.selects is Selects.REGION
        offset = getattr(self.head, "buffer_offset", 0) % LARGEST if in_region else 0
        return is_usual(atomic.atomic_opcode, atomic.atomic_datatype, self.length, self.fetches, offset)
