# SPDX-License-Identifier: GPL-2.0-only
"""This module follows the messages of PDCs and of RUDI: their request packets, responses and read data (ses.md §2,
ses.md §7, ses.md §9).

`PdsTracker` and `RudiTracker` call this tracker, as `audit/contract.py` says. A packet that equals what is expected is
only counted; every other packet takes the slow path.
"""

from typing import cast

from uetproto.audit.contract import MessageDirection, OrderedDirection
from uetproto.audit.judge import Judge
from uetproto.audit.reader.observed import Head, ObservedPacket, head_class
from uetproto.audit.reader.options import Options
from uetproto.audit.ses.message_attribution import AROUND, drift_of, fits, is_behind, is_surely_of
from uetproto.audit.ses.request_layout import LAYOUTS, RequestLayout, clear_of, differ
from uetproto.audit.ses.tracker_answers import Interruption, RepeatedId
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.ses.tracker_groups import SyncGroups
from uetproto.audit.ses.tracker_message import MESSAGES, AuditedMessage, MessageSender
from uetproto.audit.ses.tracker_replies import MessageReplies
from uetproto.audit.ses.tracker_tokens import Tokens
from uetproto.wire.flow_crc import NOTHING
from uetproto.wire.headers.uet_pds import REQUESTS as PDS_REQUESTS
from uetproto.wire.headers.uet_ses import SYNCS, Opcode
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF


class SesTracker:
    """This class follows the messages of one vantage point. It implements `MessageTracker` of `audit/contract.py`."""

    __slots__ = (
        "_complete", "_disputed", "_edge", "_groups", "_later", "_opened", "_tell", "_tokens", "data", "response",
    )  # fmt: skip

    def __init__(self, judge: Judge, options: Options) -> None:
        self._complete = options.complete
        tell = self._tell = judge.rules.tell(SesEvent)
        self._opened, self._later, self._edge = tell[SesEvent.OPENED], tell[SesEvent.LATER], tell[SesEvent.EDGE]
        self._tokens = Tokens(tell)
        self._groups = SyncGroups(tell)
        replies = MessageReplies(tell, self._tokens, options.complete)
        self.response = replies.response
        """Follows a response in an ACK."""
        self.data = replies.data
        """Follows read data in the return direction."""
        self._disputed: dict[int, AuditedMessage] = NOTHING
        """Maps its `id()` to each message of which two packets contradict each other."""

    @property
    def is_idle(self) -> bool:
        """Return whether the tracker keeps nothing except the messages of open directions."""
        return not self._disputed and self._tokens.is_empty and self._groups.is_empty

    def open(self, direction: MessageDirection, *, ordered: bool = True) -> MessageSender:
        """Return a new `MessageSender`, which the caller keeps as `direction.ses`."""
        return MessageSender(direction, unordered=not ordered)

    # Requests ---------------------------------------------------------------------------------------------------------

    def request(self, direction: MessageDirection, seen: ObservedPacket, first: bool) -> None:
        """Follow a request packet. `first` says that the PSN of the packet was not seen before."""
        sender: MessageSender = direction.ses
        if not first:
            self._compare_copy(sender, seen)
            return
        psn: int = seen.head.psn
        message = sender.current
        ses: Head = seen.ses
        if message is not None and message.expected is not None and ses is not None:
            at = message.offset_at
            steps = (psn - message.origin) & _M32  # type: ignore[operator]  # known where `expected` is
            if (
                steps < message.steps
                and ses[:at] == message.expected
                and ses[at] == steps * message.mtu
                and (seen.size == message.size or seen.size < 0)
                and ses[-1] == message.length
            ):  # one more packet in the middle of a long message, as nearly all are
                sender.sent[psn] = (message, seen.number)
                message.seen += 1
                if psn == (message.high + 1) & _M32:
                    message.high = psn
                    if not psn & 1023:
                        sender.trim()
                else:
                    self._extend(message, seen)
                self._later(message, seen)
                return
        self._assign(sender, seen, psn)

    def _assign(self, sender: MessageSender, seen: ObservedPacket, psn: int) -> None:
        """Find the message of a packet, or begin one."""
        ses: Head = seen.ses
        layout = LAYOUTS.get(type(ses))
        if layout is None:
            return
        current = sender.current
        if current is not None and current.low != current.high and current.surrounds(psn) and not current.drifted:
            self._check_interruption(current, seen, ses.message_id if layout.standard else None)
        if layout.common is not None:
            known = sender.messages.get(ses.message_id)
            if known is not None and self._join(known, seen, layout):
                return
        self._begin(sender, seen, layout)

    def _compare_copy(self, sender: MessageSender, seen: ObservedPacket) -> None:
        """Compare a retransmission with the message of its first copy."""
        ses: Head = seen.ses
        layout = LAYOUTS.get(type(ses))
        message, number = sender.sent.get(seen.head.psn, (None, 0))
        if not isinstance(message, AuditedMessage) or layout is None or layout.common is None:
            return
        self._check_held_id(message, seen, number)
        if message.message_id != ses.message_id or message.seen == 1:
            return
        if message.differs(seen, layout):
            self._tell[SesEvent.CHANGED](message, seen)
        if not fits(message, seen, layout) and not message.drifted:
            self._tell[SesEvent.MISPLACED](message, seen)

    def _check_held_id(self, message: AuditedMessage, seen: ObservedPacket, number: int) -> None:
        """Report a retransmission whose message_id another message already has.

        Its CLEAR_PSN is newer than that of the first copy, so that it is no copy that the network made.
        """
        sender = message.sender
        other = sender.messages.get(message.message_id)  # type: ignore[arg-type]  # standard: it has an id
        if other is None or not seen.head.retx or not is_behind(other, message):
            return
        first: Head = other.first.head
        if not first.retx and diff32(clear_of(seen.head), clear_of(first)) > 0:
            self._tell[SesEvent.ID_HELD](RepeatedId(other, seen.head.psn, number), seen)

    def _check_interruption(self, current: AuditedMessage, seen: ObservedPacket, message_id: int | None) -> None:
        if not current.sender.unordered and (message_id is None or message_id != current.message_id):
            number = current.sender.sent.get(current.high, (None, current.number))[1]
            self._tell[SesEvent.INTERLEAVED](Interruption(current, seen.head.psn, message_id, number), seen)

    def _begin(self, sender: MessageSender, seen: ObservedPacket, layout: RequestLayout) -> None:
        message = AuditedMessage(sender, seen, layout)
        message.path_mtu = sender.mtu
        if layout.standard:
            previous = sender.messages.pop(message.head.message_id, None)
            if previous is not None:
                self._resolve(previous)
                previous.previous = previous.expected = None
                previous.suspect = True
                message.previous = previous
            sender.messages[message.head.message_id] = message
        sender.rod = type(seen.head) in _ROD
        if not message.head.som:
            self._check_som(message, seen)
        sender.current = message
        sender.sent[message.psn] = (message, seen.number)
        if not message.psn & 255:
            sender.trim()
        self._opened(message, seen)
        if not message.is_plain:
            self._check_header(message, seen)
        message.note_edges(seen, layout)
        if message.som is not None:
            self._check_begin(message, seen)
        if message.som is None or message.eom is None:
            message.learn(seen, layout)
        self._check_edge(message, seen, layout)

    def _check_som(self, message: AuditedMessage, seen: ObservedPacket) -> None:
        """Report a message without SOM whose first packet follows the end of another message."""
        psn, sender = (message.psn - 1) & _M32, message.sender
        before, number = sender.sent.get(psn, (None, 0))
        begins = message.opcode != Opcode.MSG_ERROR and not sender.unordered
        if begins and isinstance(before, AuditedMessage) and before.eom == psn:
            self._tell[SesEvent.HEADLESS](Interruption(message, psn, before.message_id, number), seen)

    def _check_header(self, message: AuditedMessage, seen: ObservedPacket) -> None:
        self._tell[SesEvent.HEADER](message, seen)
        self._tokens.note(message, seen)
        if message.opcode == Opcode.MSG_ERROR:
            self._tell[SesEvent.MSG_ERROR](message, seen)

    def _check_begin(self, message: AuditedMessage, seen: ObservedPacket) -> None:
        """Check what concerns a message once, at its packet with SOM."""
        if message.opcode in SYNCS:
            self._groups.note(message, seen)
        earlier = message.previous
        if earlier is not None and is_behind(message, earlier):
            self._tell[SesEvent.ID_AGAIN](RepeatedId(message, *self._unanswered(earlier)), seen)

    def _unanswered(self, message: AuditedMessage) -> tuple[int | None, int]:
        """Return PSN and number of a packet of the message that was not acknowledged; the PSN is None if all were."""
        sender = message.sender
        direction = cast(OrderedDirection, sender.direction)  # of a PDC: in RUDI no message follows another
        for step in range(diff32(message.high, message.low) + 1) if self._complete else ():
            psn = (message.low + step) & _M32
            owner, number = sender.sent.get(psn, (None, 0))
            record = direction.records.get(psn)
            covered = direction.cack is not None and diff32(psn, direction.cack) <= 0
            if owner is message and record is not None and not record.acked and not covered:
                return psn, number
        return None, message.number

    def _join(self, known: AuditedMessage, seen: ObservedPacket, layout: RequestLayout) -> bool:
        """Return whether the packet belongs to this message, or to the one before it; if so, add it there."""
        for message in (known, known.previous):
            if message is not None and fits(message, seen, layout):
                self._accept(message, seen, layout, True)
                return True
        psn: int = seen.head.psn
        mtu = known.mtu or known.mtu_of(seen, layout)
        origin = known.origin_of(seen, layout, mtu)
        surely = is_surely_of(known, psn)
        drift = 0 if known.sender.unordered else drift_of(known, psn, origin, mtu)
        if drift and (surely or not known.differs(seen, layout)):
            known.drifted += abs(drift)
            known.origin = origin if drift > 0 else known.origin
            self._accept(known, seen, layout, True)
        elif surely:
            nobody_knows = known.origin is None or (origin is None and not mtu) or known.drifted > 0
            self._accept(known, seen, layout, nobody_knows)
        else:
            return False
        return True

    def _accept(self, message: AuditedMessage, seen: ObservedPacket, layout: RequestLayout, in_place: bool) -> None:
        ses, sender = seen.ses, message.sender
        message.seen += 1
        sender.sent[seen.head.psn] = (message, seen.number)
        sender.current = message
        self._later(message, seen)
        agrees = self._compare(message, seen, layout)
        again = (ses.som and message.som is not None) or (
            ses.eom and message.eom is not None and not message.eom_is_early
        )
        if not in_place or (again and not message.drifted):
            self._tell_misplaced(message, seen, layout)
        else:
            message.note_edges(seen, layout)
            if ses.som:
                self._check_begin(message, seen)
                if ses.hd and not sender.rod and not sender.unordered:
                    self._tell[SesEvent.DATA_LATE](message, seen)
            if agrees:
                message.learn(seen, layout)
            if message.misplaced is not None and seen.head.psn in message.misplaced:
                self._tell[SesEvent.MISPLACED](message, message.misplaced.pop(seen.head.psn))
        self._check_edge(message, seen, layout)
        if message.ended is not None and not seen.head.retx:
            self._tell[SesEvent.WENT_ON](message, seen)
        self._extend(message, seen)

    def _tell_misplaced(self, message: AuditedMessage, seen: ObservedPacket, layout: RequestLayout) -> None:
        """Report a packet whose offset belongs to another PSN, and again when the packet with this PSN comes."""
        self._tell[SesEvent.MISPLACED](message, seen)
        due = message.expected_psn(seen, layout)
        if due is None or due in message.sender.sent:
            return
        message.suspect, message.expected = True, None
        message.misplaced = message.misplaced or {}
        if len(message.misplaced) < AROUND:
            message.misplaced[due] = seen

    def _compare(self, message: AuditedMessage, seen: ObservedPacket, layout: RequestLayout) -> bool:
        """Return whether a packet agrees with the others. When two packets differ, the third decides which is wrong."""
        disputed = message.disputed
        if seen.ses.opcode == Opcode.MSG_ERROR:
            self._tell[SesEvent.MSG_ERROR](message, seen)
        if not message.differs(seen, layout):
            message.unconfirmed = False
            self._resolve(message)
            return True
        if message.unconfirmed and disputed is None:
            message.disputed = seen
            if self._disputed is NOTHING:
                self._disputed = {}
            self._disputed[id(message)] = message
            return False
        if message.unconfirmed and disputed is not None and not differ(disputed.ses, seen.ses):
            message.replace_head(disputed)
            message.unconfirmed, message.disputed = False, None
            self._disputed.pop(id(message), None)
            self._tell[SesEvent.CHANGED](message, message.first)
            return True
        message.unconfirmed = False
        self._resolve(message)
        self._tell[SesEvent.CHANGED](message, seen)
        return False

    def _resolve(self, message: AuditedMessage) -> None:
        """Report the second packet if it contradicts the first: the third packet agrees with the first, or did not
        come."""
        if message.disputed is not None:
            disputed, message.disputed = message.disputed, None
            self._disputed.pop(id(message), None)
            self._tell[SesEvent.CHANGED](message, disputed)

    def _check_edge(self, message: AuditedMessage, seen: ObservedPacket, layout: RequestLayout) -> None:
        ses: Head = seen.ses
        if message.mtu and not (ses.som and ses.eom):
            message.sender.mtu = message.mtu
        reaches = message.offset_of(seen, layout) + message.mtu >= message.body
        if ses.som or ses.eom or reaches or message.extent(seen, layout) != message.mtu:
            self._edge(message, seen)
            if not message.is_expected_edge(seen, layout):
                self._tell[SesEvent.LIMITS](message, seen)

    def _extend(self, message: AuditedMessage, seen: ObservedPacket) -> None:
        """Add a packet that does not follow the last one: check what lies between, and whether all packets came."""
        psn, sender = seen.head.psn, message.sender
        if not message.drifted and not sender.unordered:
            for distance in range(1, min(diff32(psn, message.high), AROUND)):
                between = (psn - distance) & _M32
                owner, number = sender.sent.get(between, (None, 0))
                if isinstance(owner, AuditedMessage) and owner is not message:
                    if owner.message_id != message.message_id:
                        self._tell_between(message, owner, between, number, seen)
                    else:
                        self._check_same_id(message, owner)
        if message.suspect and psn != message.eom:
            following, _ = sender.sent.get((psn + 1) & _M32, (None, 0))
            if isinstance(following, AuditedMessage) and following is not message:
                self._check_same_id(message, following)
        message.extend(psn)
        if message.complete or message.som is None or message.eom is None:
            return
        if message.seen + message.drifted == diff32(message.eom, message.som) + 1:
            message.complete = True
            self._resolve(message)
            self._tell[SesEvent.COMPLETE](message, seen)

    def _tell_between(
        self, message: AuditedMessage, owner: AuditedMessage, between: int, number: int, seen: ObservedPacket
    ) -> None:
        """Report that packets of two messages are interleaved: by the first packet of the other message if that packet
        is the interruption, otherwise by `seen`."""
        if owner.psn == between and owner.first.number == number:
            self._tell[SesEvent.INTERLEAVED](
                Interruption(message, between, owner.message_id, message.number), owner.first
            )
        else:
            self._tell[SesEvent.INTERLEAVED](Interruption(message, between, owner.message_id, number), seen)

    def _check_same_id(self, message: AuditedMessage, other: AuditedMessage) -> None:
        """Report a single packet that was taken for another message, and that has the id of this message and a place in
        it."""
        if other.seen == 1 and other.message_id == message.message_id:
            self._tell[SesEvent.MISPLACED](message, other.first)

    # The end ----------------------------------------------------------------------------------------------------------

    def close(self, direction: MessageDirection) -> None:
        """Drop the messages of a direction that is closed, and report those that are not complete."""
        sender: MessageSender = direction.ses
        for message in sender.messages.values():
            self._resolve(message)
            if not message.complete and not (message.som == message.eom == message.psn):
                self._tell[SesEvent.UNFINISHED](message, message.first)
        sender.drop()
        self._groups.close(sender)

    def drop(self, direction: MessageDirection) -> None:
        """Drop the messages of a direction after the last packet, without any event."""
        direction.ses.drop()

    def sweep(self, now_ns: int) -> None:
        """Report the packets in dispute if more than `MESSAGES` messages have one. Such a packet contradicts an earlier
        packet, and a third packet is awaited to decide between the two. All other state is bounded, or is dropped with
        its PDC."""
        if len(self._disputed) > MESSAGES:
            self.end()

    def end(self) -> None:
        """Report, at the end of the capture, the packets that contradict an earlier packet and still wait for a third
        one."""
        for message in list(self._disputed.values()):
            self._resolve(message)


_ROD = frozenset(head_class(header.name) for header in PDS_REQUESTS if header.name.startswith("pds.rod"))
