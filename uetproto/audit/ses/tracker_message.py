# SPDX-License-Identifier: GPL-2.0-only
"""This module holds the messages of one direction and the read data that answers reads. It also holds the PSNs of the
packets that carry messages and read data.

A `MessageSender` stands for one direction of a PDC, or for RUDI between two addresses. It maps the PSN of a packet to
the `AuditedMessage` or the `ReturnedData` that the packet carries. The number of entries that it keeps is bounded.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uetproto.audit.contract import MessageDirection
from uetproto.audit.finding import Flow
from uetproto.audit.reader.observed import Head, ObservedPacket, head_class
from uetproto.audit.ses.atomics import ELEMENT, LARGEST, is_usual
from uetproto.audit.ses.request_layout import LAYOUTS, RequestLayout, common_of
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import (
    ATOMICS,
    DEFERRABLES,
    MEDIUM,
    OPCODE_PROFILES,
    REQUEST_SMALL,
    REQUEST_STD_SOM,
    SEND_STD_SOM,
    Opcode,
    ResponseOpcode,
    ReturnCode,
    Selects,
)
from uetproto.wire.serial import diff32

PSNS = 2_048
"""Number of PSNs of a direction that remain when its oldest PSNs are dropped. This happens when there are more than
twice as many PSNs."""
MESSAGES = 1_024
"""Number of messages of a direction that remain when its oldest messages are dropped. This happens when there are more
than twice as many messages."""
_M32 = 0xFFFFFFFF
_DATA = (0, ResponseOpcode.RESPONSE_W_DATA, 0, ReturnCode.OK)
"""Values of the fields list, opcode, version and return code of read data."""
DEFAULT = (0, ResponseOpcode.DEFAULT_RESPONSE, 0, ReturnCode.OK)
"""Values of the first four fields of a default response: `list`, `opcode`, `version` and `return_code`."""
_FETCHING = frozenset(opcode for opcode, row in OPCODE_PROFILES.items() if row.fetches)
_ANSWERED_SPECIALLY = frozenset((*ATOMICS, Opcode.MSG_ERROR))
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
    if next_hdr in OPCODE_PROFILES[opcode].forms
)
_MAY_END_EARLY = frozenset((*DEFERRABLES, Opcode.MSG_ERROR))


@dataclass(slots=True, eq=False)
class MessageSender:
    """This class holds the messages that one end sends in one direction."""

    direction: MessageDirection
    unordered: bool = False
    """Whether the numbers of packets need not increase, as in RUDI. Packets with neighbouring numbers then prove
    nothing about a packet."""
    messages: "dict[int, AuditedMessage]" = field(default_factory=dict)
    """Maps a message_id to the last message that had it."""
    sent: "dict[int, tuple[AuditedMessage | ReturnedData, int]]" = field(default_factory=dict)
    """Maps a PSN to the message or read data of its packet, and to the number of that packet."""
    current: "AuditedMessage | None" = None
    """Message of the packet that was seen last."""
    mtu: int = 0
    """Payload MTU in bytes that the last message of several packets showed, or 0 if there was none."""
    rod: bool = False
    successes: dict[int, int] = field(default_factory=dict)
    """Maps a PSN to the number of the packet that has the default response to this PSN. Only responses that SES made
    are included, not those that PDS made."""
    refused: dict[tuple[int, ...], tuple[int, int, int]] = field(default_factory=dict)
    """Maps the resource of a message (`AuditedMessage.index`) to the generation that was last refused with
    DISABLED_GEN, the PSN that was refused, and the number of the packet with the response."""

    def flow(self) -> Flow:
        return self.direction.flow()

    def drop(self) -> None:
        """Drop all messages. The messages and this object refer to each other; without this method Python would not
        free them at once."""
        self.messages.clear()
        self.sent.clear()
        self.current = None

    def trim(self) -> None:
        """Drop the oldest PSNs and messages if there are too many."""
        shorten(self.sent, PSNS)
        shorten(self.messages, MESSAGES)
        shorten(self.successes, PSNS)


def shorten(kept: dict[Any, Any], least: int) -> None:
    """If there are more than twice `least` entries, drop the oldest ones; `least` entries remain."""
    if len(kept) > 2 * least:
        for key in list(kept)[: len(kept) - least]:
            del kept[key]


class GuaranteedAnswer(NamedTuple):
    """This record holds the header of a guaranteed response, the number of its packet and a CRC of the data that it
    carried."""

    head: Head
    number: int
    content: int | None


class AuditedMessage:
    """This class describes a message by its packets: the fields that they have in common, and which of the message's
    PSNs were seen (ses.md §7).

    The packets of two messages are not interleaved (UE 1.0.1 §3.5.20). Within a message, a packet with a higher PSN
    therefore has a higher offset. `message_attribution.py` decides which packets belong to a message.
    """

    __slots__ = (
        "answers", "atomic", "atomic_response", "body", "common", "complete", "data", "data_state", "disputed",
        "drifted", "ended", "ended_early", "eom", "eom_is_early", "expected", "first", "head", "high", "length",
        "low", "message_id", "misplaced", "mtu", "number", "offset_at", "opcode", "origin", "path_mtu", "previous",
        "psn", "responder_id", "returned", "returned_in_ack", "seen", "sender", "size", "som", "steps", "stopped",
        "success", "suspect", "unconfirmed",
    )  # fmt: skip

    def __init__(self, sender: MessageSender, seen: ObservedPacket, layout: RequestLayout) -> None:
        ses: Head = seen.ses
        self.sender = sender
        self.head = ses
        self.opcode: int = ses.opcode
        self.message_id: int | None = ses.message_id if layout.standard else None
        self.length: int = ses.request_length
        self.body: int = self.length
        """Bytes that its request packets carry or ask for; of a rendezvous only the eager ones count."""
        self.common: tuple[int, ...] | None = None
        """Fields that all packets of the message have in common; computed when a second packet is compared."""
        self.number = seen.number
        self.psn: int = seen.head.psn
        self.low = self.high = self.psn
        self.som: int | None = None
        """PSN of the packet with SOM; None: not seen."""
        self.eom: int | None = None
        """PSN of the packet with EOM; None: not seen."""
        self.eom_is_early = False
        """Whether EOM came too early, so that another packet may have EOM, too."""
        self.ended_early = False
        """Whether the message was ended before all of its bytes were sent."""
        self.origin: int | None = None
        """PSN of offset 0, if all PSNs from there on belong to this message."""
        self.drifted = 0
        """Number of PSNs by which the offsets drift, because other packets used PSNs of the message."""
        self.mtu = 0
        """Bytes that each packet but the last carries; 0: not known."""
        self.path_mtu = 0
        """Bytes that each packet of an earlier message carried; 0: not known."""
        self.seen = 1
        self.complete = False
        self.first = seen
        self.unconfirmed = True
        """Whether no other packet agrees with the first packet yet: if the second differs, either of both may be
        wrong."""
        self.disputed: ObservedPacket | None = None
        """Second packet, if it differs from the first packet."""
        self.expected: tuple[int, ...] | None = None
        """All but the last two fields of a packet in the middle; None: none was seen."""
        self.offset_at = 0
        """Index of message_offset in the packets that `expected` describes."""
        self.steps = 0
        """Distance in PSNs from the first packet of the message to the last packet."""
        self.size = 0
        """Bytes of payload that a packet in the middle carries."""
        self.previous: AuditedMessage | None = None
        """Earlier message that had the same id."""
        self.suspect = False
        """Whether packets contradicted each other, so that all packets of the message take the slow path."""
        self.misplaced: dict[int, ObservedPacket] | None = None
        """Maps the PSN that belongs to the offset of a misplaced packet to this packet."""
        self.stopped = False
        """Whether the target deferred the message."""
        self.ended: tuple[int, int, int] | None = None
        """PSN, code and packet number of a guaranteed answer after which nothing new of the message is sent."""
        self.returned: dict[int, tuple[int, int]] | None = None
        """Maps the offset of read data to PSN and number of its packet."""
        self.returned_in_ack: bool | None = None
        self.responder_id: tuple[int, int] | None = None
        """response_message_id and number of the first packet of read data; None: none came."""
        self.data: tuple[int, ...] | None = None
        """All but the last field of read data in the middle."""
        self.data_state: ReturnedData | None = None
        """Stands for all packets of read data that equal `data`."""
        self.answers: dict[int, GuaranteedAnswer] | None = None
        """Maps a PSN to its guaranteed answer."""
        extension: Head = seen.more[-1] if seen.more else None
        form: str = "" if extension is None else extension.form
        self.atomic = extension if form.startswith("ses.ext.atomic") else None
        if form == "ses.ext.rendezvous":
            self.body = extension.eager_length
        self.success: tuple[int, ...] | None = None
        """Fields of the usual response to a success, which no rule needs to judge; None: there is none."""
        self.atomic_response: tuple[int, ...] | None = None
        """Fields, except the PSN, of the usual response with data to an atomic operation, which no rule needs to judge;
        None: there is none."""
        self.derive_responses()

    @property
    def job_id(self) -> int:
        return int(self.head.job_id)

    @property
    def index(self) -> tuple[Any, ...]:
        """Return the key of the resource at the target: job, process, index, and one of the three index spaces
        (ses.md §2.4)."""
        head, row = self.head, OPCODE_PROFILES.get(self.opcode)  # type: ignore[call-overload]  # any number may come
        return (head.job_id, head.pid_on_fep, head.resource_index, None if row is None else row.space)

    @property
    def fetches(self) -> bool:
        """Return whether the target returns data if the message succeeds."""
        return self.opcode in _FETCHING

    @property
    def asks(self) -> bool:
        """Return whether the packets of the message carry no payload and ask for data, as those of a READ do."""
        return self.opcode == Opcode.READ

    @property
    def may_end_early(self) -> bool:
        return self.opcode in _MAY_END_EARLY

    @property
    def is_plain(self) -> bool:
        """Return whether the header of the message cannot violate any rule for headers."""
        head = self.head
        if (type(head), head.opcode) in _PLAIN_SHORT:
            index = head.resource_index or type(head) is _SMALL
            return bool(head.som and head.eom and index and not head.hd and not head.ri_generation)
        if type(head) not in _PLAIN_HEADS or head.opcode not in _PLAIN or not head.message_id:
            return False
        generation_fits = not head.ri_generation or head.opcode in _SENDS
        return bool(head.resource_index and generation_fits and (head.hd or not head.header_data))

    def is_expected_edge(self, seen: ObservedPacket, layout: RequestLayout) -> bool:
        """Return whether a packet that begins or ends the message does so as it should."""
        ses: Head = seen.ses
        if not layout.offset:
            if ses.eom:
                return self.path_mtu == 0 or seen.size <= self.path_mtu
            return (
                self.path_mtu in (0, self.mtu) and seen.size == (0 if self.asks else self.mtu) and self.mtu < self.body
            )
        size: int = ses[layout.offset - 1]
        ends = ses.eom and ses[layout.offset] + size == self.body and size <= self.mtu
        return bool(ends and (self.asks or seen.size == size) and ses.hd == self.head.hd)

    def flow(self) -> Flow:
        return {**self.sender.flow(), "message_id": self.message_id, "psn": self.psn}

    def surrounds(self, psn: int) -> bool:
        """Return whether packets of this message were seen before and after a PSN."""
        return diff32(psn, self.low) > 0 and diff32(psn, self.high) < 0

    def extend(self, psn: int) -> None:
        """Note that the packet with PSN `psn` belongs to this message."""
        if diff32(psn, self.high) > 0:
            self.high = psn
        elif diff32(psn, self.low) < 0:
            self.low = psn

    def extent(self, seen: ObservedPacket, layout: RequestLayout) -> int:
        """Return how many bytes a packet carries or asks for. It is -1 if the number is not known, or if the packet
        contradicts itself."""
        ses: Head = seen.ses
        if layout.offset:
            stated: int = ses[layout.offset - 1]
            return stated if seen.size in (stated, -1) or self.asks else -1
        if ses.eom:
            return self.body
        if self.asks:
            return self.mtu or -1
        return seen.size

    def mtu_of(self, seen: ObservedPacket, layout: RequestLayout) -> int:
        """Return the payload MTU in bytes that a packet shows, or 0 if it shows none."""
        ses: Head = seen.ses
        return 0 if ses.eom or (self.asks and not layout.offset) else max(0, self.extent(seen, layout))

    def offset_of(self, seen: ObservedPacket, layout: RequestLayout) -> int:
        ses: Head = seen.ses
        return int(ses[layout.offset]) if layout.offset else 0

    def origin_of(self, seen: ObservedPacket, layout: RequestLayout, mtu: int) -> int | None:
        """Return the PSN of offset 0 that follows from the PSN and the offset of a packet. It is None if the MTU is not
        known or does not divide the offset."""
        offset = self.offset_of(seen, layout)
        if not layout.offset or not offset:
            return int(seen.head.psn)
        return None if not mtu or offset % mtu else (seen.head.psn - offset // mtu) & _M32

    def expected_psn(self, seen: ObservedPacket, layout: RequestLayout) -> int | None:
        """Return the PSN that belongs to the offset of a packet, or None if it is not known."""
        offset = self.offset_of(seen, layout)
        if self.origin is None or not self.mtu or offset % self.mtu:
            return None
        return (self.origin + offset // self.mtu) & _M32

    def note_edges(self, seen: ObservedPacket, layout: RequestLayout) -> None:
        """If the packet has SOM, note its PSN as the first PSN of the message. If the packet has EOM, note its PSN as
        the last PSN of the message."""
        ses: Head = seen.ses
        self.ended_early |= ses.opcode == Opcode.MSG_ERROR or bool(layout.offset and not ses[layout.offset - 1])
        if ses.som:
            self.som = seen.head.psn
        if ses.eom:
            self.eom = seen.head.psn
            self.eom_is_early = self.ends_early(seen, layout)

    def ends_early(self, seen: ObservedPacket, layout: RequestLayout) -> bool:
        """Return whether a packet with EOM ends before the last byte of the message, though nothing allows this."""
        size = self.extent(seen, layout)
        if seen.ses.opcode == Opcode.MSG_ERROR or size < 0 or (self.may_end_early and not size):
            return False
        return self.offset_of(seen, layout) + size < self.body

    def learn(self, seen: ObservedPacket, layout: RequestLayout) -> None:
        """Derive payload MTU, origin and expected fields from a packet that agrees with the other packets of the
        message."""
        ses: Head = seen.ses
        psn: int = seen.head.psn
        if not self.mtu:
            follows = self.som is not None and psn == (self.som + 1) & _M32
            self.mtu = self.offset_of(seen, layout) if follows and ses.eom else self.mtu_of(seen, layout)
        if self.origin is None:
            self.origin = self.origin_of(seen, layout, self.mtu)
        middle = layout.offset and not ses.eom and not self.suspect and self.ended is None
        known = self.mtu and self.origin is not None
        if middle and known and self.expected is None and ses[layout.offset - 1] == self.mtu:
            self.expected, self.offset_at = ses[: layout.offset], layout.offset
            self.size = 0 if self.asks else self.mtu
            self.steps = -(-self.body // self.mtu) - 1
            if self.asks:
                self.data = (*_DATA, 0, 0, self.job_id, ses.message_id, 0, self.mtu, self.length)

    def differs(self, seen: ObservedPacket, layout: RequestLayout) -> bool:
        """Return whether a packet differs from the first packet in the opcode or in a field that all packets must have
        in common."""
        ses: Head = seen.ses
        if self.common is None:
            self.common = common_of(self.head, LAYOUTS[type(self.head)])
        changed = ses.opcode != self.opcode and Opcode.MSG_ERROR not in (ses.opcode, self.opcode)
        return changed or common_of(ses, layout) != self.common

    def replace_head(self, seen: ObservedPacket) -> None:
        """Take the fields of this packet as the expected fields, because the first packet was wrong."""
        ses: Head = seen.ses
        self.head, self.opcode, self.common = ses, ses.opcode, common_of(ses, LAYOUTS[type(ses)])
        self.body += ses.request_length - self.length
        self.length = ses.request_length
        self.number, self.expected, self.data = seen.number, None, None
        self.derive_responses()

    def derive_responses(self) -> None:
        """Derive `success` and `atomic_response` from the header of the message."""
        job: int = self.head.job_id
        plain = self.opcode not in _ANSWERED_SPECIALLY or (self.atomic is not None and self._is_usual(self.atomic))
        self.success = (*DEFAULT, self.message_id or 0, 0, job, self.length) if plain else None
        self.atomic_response = None
        if plain and self.atomic is not None and self.fetches:
            size = ELEMENT.get(self.atomic.atomic_datatype)
            self.atomic_response = (*_DATA, 0, size, 0, job) if size is not None and size <= self.length else None

    def _is_usual(self, atomic: Head) -> bool:
        row = OPCODE_PROFILES.get(self.opcode)  # type: ignore[call-overload]
        in_region = row is not None and row.selects is Selects.REGION
        offset = getattr(self.head, "buffer_offset", 0) % LARGEST if in_region else 0
        return is_usual(atomic.atomic_opcode, atomic.atomic_datatype, self.length, self.fetches, offset)


@dataclass(slots=True)
class AboutMessage:
    """This class is the base of the records that rules get with events about a message. Findings name this message."""

    message: AuditedMessage

    def flow(self) -> Flow:
        return self.message.flow()


class ReturnedData:
    """This class holds the read data that one packet returns, in the return direction or in an ACK."""

    __slots__ = ("in_ack", "job", "message", "number", "psn", "response_id", "sender", "success", "sure")

    def __init__(
        self, sender: MessageSender, message: AuditedMessage | None, seen: ObservedPacket, psn: int, in_ack: bool,
        sure: bool,
    ) -> None:  # fmt: skip
        self.sender = sender
        self.message = message
        """Read whose data the packet returns; None: the read was not seen."""
        self.number = seen.number
        self.psn = psn
        """PSN of the packet; for data in an ACK, the PSN of the request."""
        self.in_ack = in_ack
        self.sure = sure
        """Whether the packet names the PSN of its request, or no packet is missing. Otherwise a read that was not seen
        may have had the same id."""
        self.job: int = seen.ses.job_id
        self.response_id: int = getattr(seen.ses, "response_message_id", 0)
        self.success = (*DEFAULT, self.response_id, 0, self.job)
        """Fields, except modified_length, of the usual response to the read data."""

    def flow(self) -> Flow:
        return self.sender.flow() if self.message is None else self.message.flow()

    def offset(self, ses: Head) -> int:
        """Return the offset of the data within the read. It is 0 in the small header, which answers reads of one
        packet."""
        return int(getattr(ses, "message_offset", 0))

    def expected(self, ses: Head) -> int:
        """Return how many bytes were asked for by the request packet that has the same offset as the header `ses`. It
        is -1 if this number is not known."""
        message = self.message
        if message is None:
            return -1
        if message.atomic is not None:
            return ELEMENT.get(message.atomic.atomic_datatype, -1)
        if message.head.som and message.head.eom:
            return message.length
        return min(message.mtu, message.length - self.offset(ses)) if message.mtu else -1
