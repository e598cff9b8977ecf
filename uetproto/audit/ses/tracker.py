"""Follows every message of a PDC: its request packets, their responses, the data they ask for (ses.md §2–§9).

The tracker of PDCs calls it. What is equal to what was expected is only counted; everything else takes the long way.
"""

from typing import Any

from uetproto.audit.judge import Judge
from uetproto.audit.reader.observed import Head, ObservedPacket, head_class
from uetproto.audit.reader.options import Options
from uetproto.audit.ses.message_attribution import AROUND, drift_of, fits, is_behind, is_surely_of
from uetproto.audit.ses.tracker_answers import Interruption, RepeatedId
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.ses.tracker_groups import SyncGroups
from uetproto.audit.ses.tracker_message import LAYOUTS, AuditedMessage, RequestLayout, clear_of, differ
from uetproto.audit.ses.tracker_replies import MessageReplies
from uetproto.audit.ses.tracker_sender import MESSAGES, MessageDirection, MessageSender
from uetproto.audit.ses.tracker_tokens import Tokens
from uetproto.engine.ses.opcodes import SYNCS
from uetproto.wire.headers.uet_pds import REQUESTS as PDS_REQUESTS
from uetproto.wire.headers.uet_ses import Opcode
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF


class SesTracker:
    """The messages of all PDCs."""

    def __init__(self, judge: Judge, options: Options) -> None:
        self._complete = options.complete
        on = judge.on
        self._opened = on(SesEvent.OPENED)
        self._header = on(SesEvent.HEADER)
        self._later = on(SesEvent.LATER)
        self._changed = on(SesEvent.CHANGED)
        self._misplaced = on(SesEvent.MISPLACED)
        self._edge = on(SesEvent.EDGE)
        self._limits = on(SesEvent.LIMITS)
        self._msg_error = on(SesEvent.MSG_ERROR)
        self._headless = on(SesEvent.HEADLESS)
        self._completed = on(SesEvent.COMPLETE)
        self._interleaved = on(SesEvent.INTERLEAVED)
        self._unfinished = on(SesEvent.UNFINISHED)
        self._went_on = on(SesEvent.WENT_ON)
        self._id_again = on(SesEvent.ID_AGAIN)
        self._id_held = on(SesEvent.ID_HELD)
        self._tokens = Tokens(judge)
        self._groups = SyncGroups(judge)
        replies = MessageReplies(judge, self._tokens, options.complete)
        self.response = replies.response
        """A response in an ACK; read data in the return direction."""
        self.data = replies.data
        self.forgotten: dict[str, int] = {}
        self._doubted: dict[int, AuditedMessage] = {}
        """Messages of two packets that contradict each other."""

    def open(self, direction: MessageDirection) -> MessageSender:
        """What `direction.ses` is to be."""
        return MessageSender(direction)

    # Requests ---------------------------------------------------------------------------------------------------------

    def request(self, direction: MessageDirection, seen: ObservedPacket, first: bool) -> None:
        """A request packet; `first`: its PSN was not seen before."""
        sender: MessageSender = direction.ses
        if not first:
            self._compare_copy(sender, seen)
            return
        psn: int = seen.head.psn
        message = sender.current
        ses: Head = seen.ses
        if message is not None and message.usual is not None and ses is not None:
            at = message.at
            steps = (psn - message.origin) & _M32  # type: ignore[operator]  # usual: known
            if (
                steps < message.steps
                and ses[:at] == message.usual
                and ses[at] == steps * message.mtu
                and (seen.size == message.size or seen.size < 0)
                and ses[-1] == message.length
            ):  # one more in the middle of a long message, as nearly all are
                sender.sent[psn] = (message, seen.number)
                message.seen += 1
                if psn == (message.high + 1) & _M32:
                    message.high = psn
                    if not psn & 1023:
                        sender.trim()
                    self._later(message, seen)
                    return
                self._stretch(sender, message, seen)
                self._later(message, seen)
                return
        self._take(sender, seen, psn)

    def _take(self, sender: MessageSender, seen: ObservedPacket, psn: int) -> None:
        """Find whose packet it is."""
        ses: Head = seen.ses
        shape = LAYOUTS.get(type(ses))
        if shape is None:
            return
        current = sender.current
        if current is not None and current.low != current.high and current.holds(psn) and not current.drifted:
            self._intrudes(sender, current, seen, ses.message_id if shape.standard else None)
        if shape.common is not None:
            known = sender.messages.get(ses.message_id)
            if known is not None and self._join(sender, known, seen, shape):
                return
        self._begin(sender, seen, shape)

    def _compare_copy(self, sender: MessageSender, seen: ObservedPacket) -> None:
        """A retransmission: if it differs from its first copy, then perhaps from the whole message."""
        ses: Head = seen.ses
        shape = LAYOUTS.get(type(ses))
        message, number = sender.sent.get(seen.head.psn, (None, 0))
        if not isinstance(message, AuditedMessage) or shape is None or shape.common is None:
            return
        self._look_at_copy(message, seen, number)
        if message.message_id != ses.message_id or message.seen == 1:
            return
        if message.differs(seen, shape):
            self._changed(message, seen)
        if not fits(message, seen, shape) and not message.drifted:
            self._misplaced(message, seen)

    def _look_at_copy(self, message: AuditedMessage, seen: ObservedPacket, number: int) -> None:
        """Whether another message has its id, and had it when this packet was sent again: CLEAR_PSN has moved on."""
        sender = message.sender
        other = sender.messages.get(message.message_id)  # type: ignore[arg-type]  # standard: it has an id
        if other is None or not seen.head.retx or not is_behind(other, message):
            return
        first: Head = other.first.head
        if not first.retx and diff32(clear_of(seen.head), clear_of(first)) > 0:
            self._id_held(RepeatedId(other, seen.head.psn, number), seen)

    def _intrudes(
        self, sender: MessageSender, current: AuditedMessage, seen: ObservedPacket, message_id: int | None
    ) -> None:
        if sender.loose:
            return
        if message_id is None or message_id != current.message_id:
            number = sender.sent.get(current.high, (None, current.number))[1]
            self._interleaved(Interruption(current, seen.head.psn, message_id, number), seen)

    def _begin(self, sender: MessageSender, seen: ObservedPacket, shape: RequestLayout) -> None:
        message = AuditedMessage(sender, seen, shape)
        message.path_mtu = sender.mtu
        if shape.standard:
            previous = sender.messages.pop(message.head.message_id, None)
            if previous is not None:
                self._settle(previous)
                previous.previous = previous.usual = None
                previous.suspect = True
                message.previous = previous
            sender.messages[message.head.message_id] = message
        sender.rod = type(seen.head) in _ROD
        if not message.head.som:
            self._look_before(sender, message, seen)
        sender.current = message
        sender.sent[message.psn] = (message, seen.number)
        if not message.psn & 255:
            sender.trim()
        self._opened(message, seen)
        if not message.is_plain:
            self._look_at_header(message, seen)
        message.mark(seen, shape)
        if message.som is not None:
            self._look_at_begin(message, seen)
        if message.som is None or message.eom is None:
            message.learn(seen, shape)
        self._look_at_edge(sender, message, seen, shape)

    def _look_before(self, sender: MessageSender, message: AuditedMessage, seen: ObservedPacket) -> None:
        """No SOM was seen: where the packet before ends another message, there was none."""
        psn = (message.psn - 1) & _M32
        before, number = sender.sent.get(psn, (None, 0))
        begins = message.opcode != Opcode.MSG_ERROR and not sender.loose
        if begins and isinstance(before, AuditedMessage) and before.eom == psn:
            self._headless(Interruption(message, psn, before.message_id, number), seen)

    def _look_at_header(self, message: AuditedMessage, seen: ObservedPacket) -> None:
        self._header(message, seen)
        self._tokens.look(message, seen)
        if message.opcode == Opcode.MSG_ERROR:
            self._msg_error(message, seen)

    def _look_at_begin(self, message: AuditedMessage, seen: ObservedPacket) -> None:
        """A packet with SOM: what is to be asked once of a message."""
        if message.opcode in SYNCS:
            self._groups.look(message, seen)
        earlier = message.previous
        if earlier is not None and is_behind(message, earlier):
            self._id_again(RepeatedId(message, *self._unanswered(earlier)), seen)

    def _unanswered(self, message: AuditedMessage) -> tuple[int | None, int]:
        """PSN and number of a packet of the message of which no ACK was seen."""
        sender = message.sender
        direction: Any = sender.direction  # of a PDC: RUDI has no order
        for step in range(diff32(message.high, message.low) + 1) if self._complete else ():
            psn = (message.low + step) & _M32
            owner, number = sender.sent.get(psn, (None, 0))
            sight = direction.records.get(psn)
            covered = direction.cack is not None and diff32(psn, direction.cack) <= 0
            if owner is message and sight is not None and not sight.acked and not covered:
                return psn, number
        return None, message.number

    def _join(self, sender: MessageSender, known: AuditedMessage, seen: ObservedPacket, shape: RequestLayout) -> bool:
        """Whether the packet is surely of this message, or of the one before it; if so, it is taken."""
        for message in (known, known.previous):
            if message is not None and fits(message, seen, shape):
                self._accept(sender, message, seen, shape, True)
                return True
        psn: int = seen.head.psn
        mtu = known.mtu or known.mtu_of(seen, shape)
        origin = known.origin_of(seen, shape, mtu)
        surely = is_surely_of(sender, known, psn)
        drift = 0 if sender.loose else drift_of(known, psn, origin, mtu)
        if drift and (surely or not known.differs(seen, shape)):
            known.drifted += abs(drift)
            known.origin = origin if drift > 0 else known.origin
            self._accept(sender, known, seen, shape, True)
        elif surely:
            nobody_knows = known.origin is None or (origin is None and not mtu) or known.drifted > 0
            self._accept(sender, known, seen, shape, nobody_knows)
        else:
            return False
        return True

    def _accept(
        self, sender: MessageSender, message: AuditedMessage, seen: ObservedPacket, shape: RequestLayout, in_place: bool
    ) -> None:
        ses: Head = seen.ses
        message.seen += 1
        sender.sent[seen.head.psn] = (message, seen.number)
        sender.current = message
        self._later(message, seen)
        agrees = self._compare(message, seen, shape)
        again = (ses.som and message.som is not None) or (ses.eom and message.eom is not None)
        if not in_place or (again and not message.drifted):
            self._stray(message, seen, shape)
        else:
            message.mark(seen, shape)
            if ses.som:
                self._look_at_begin(message, seen)
            if agrees:
                message.learn(seen, shape)
            if message.astray is not None and seen.head.psn in message.astray:
                self._misplaced(message, message.astray.pop(seen.head.psn))
        self._look_at_edge(sender, message, seen, shape)
        if message.ended is not None and not seen.head.retx:
            self._went_on(message, seen)
        self._stretch(sender, message, seen)

    def _stray(self, message: AuditedMessage, seen: ObservedPacket, shape: RequestLayout) -> None:
        """Tell of a packet in a wrong place, and once more when the one comes whose place it has."""
        self._misplaced(message, seen)
        due = message.due(seen, shape)
        if due is None or due in message.sender.sent:
            return
        message.suspect, message.usual = True, None
        message.astray = message.astray or {}
        if len(message.astray) < AROUND:
            message.astray[due] = seen

    def _compare(self, message: AuditedMessage, seen: ObservedPacket, shape: RequestLayout) -> bool:
        """Whether it agrees with the others. Of two that differ nobody knows which is right: the third decides."""
        doubted = message.doubted
        if seen.ses.opcode == Opcode.MSG_ERROR:  # type: ignore[union-attr]
            self._msg_error(message, seen)
        if not message.differs(seen, shape):
            message.alone = False
            self._settle(message)
            return True
        if message.alone and doubted is None:
            message.doubted = seen
            self._doubted[id(message)] = message
            return False
        if message.alone and doubted is not None and not differ(doubted.ses, seen.ses):
            message.turn(doubted, LAYOUTS[type(doubted.ses)])
            message.alone, message.doubted = False, None
            self._doubted.pop(id(message), None)
            self._changed(message, message.first)
            return True
        message.alone = False
        self._settle(message)
        self._changed(message, seen)
        return False

    def _settle(self, message: AuditedMessage) -> None:
        """No third packet came, or it decided."""
        if message.doubted is not None:
            doubted, message.doubted = message.doubted, None
            self._doubted.pop(id(message), None)
            self._changed(message, doubted)

    def _look_at_edge(
        self, sender: MessageSender, message: AuditedMessage, seen: ObservedPacket, shape: RequestLayout
    ) -> None:
        ses: Head = seen.ses
        if message.mtu and not (ses.som and ses.eom):
            sender.mtu = message.mtu
        reaches = message.offset_of(seen, shape) + message.mtu >= message.body
        if ses.som or ses.eom or reaches or message.extent(seen, shape) != message.mtu:
            self._edge(message, seen)
            if not message.is_usual_edge(seen, shape):
                self._limits(message, seen)

    def _stretch(self, sender: MessageSender, message: AuditedMessage, seen: ObservedPacket) -> None:
        """The packet does not follow the last one: look at what lies between, and whether all are there now."""
        psn: int = seen.head.psn
        if not message.drifted and not sender.loose:
            for distance in range(1, min(diff32(psn, message.high), AROUND)):
                between = (psn - distance) & _M32
                owner, number = sender.sent.get(between, (None, 0))
                if isinstance(owner, AuditedMessage) and owner is not message:
                    if owner.message_id != message.message_id:
                        self._interleaved(Interruption(message, between, owner.message_id, number), seen)
                    else:
                        self._claim(message, owner)
        if message.suspect and psn != message.eom:
            following, _ = sender.sent.get((psn + 1) & _M32, (None, 0))
            if isinstance(following, AuditedMessage) and following is not message:
                self._claim(message, following)
        message.reach(psn)
        if message.complete or message.som is None or message.eom is None:
            return
        if message.seen + message.drifted == diff32(message.eom, message.som) + 1:
            message.complete = True
            self._settle(message)
            self._completed(message, seen)

    def _claim(self, message: AuditedMessage, other: AuditedMessage) -> None:
        """A packet that was thought to be of another message has the id of this one, and its place."""
        if other.seen == 1 and other.message_id == message.message_id:
            self._misplaced(message, other.first)

    # The end ----------------------------------------------------------------------------------------------------------

    def close(self, direction: MessageDirection) -> None:
        """The PDC is gone."""
        sender: MessageSender = direction.ses
        for message in sender.messages.values():
            self._settle(message)
            if not message.complete and not (message.som == message.eom == message.psn):
                self._unfinished(message, message.first)
        sender.messages.clear()
        sender.sent.clear()
        self._groups.close(sender)

    def sweep(self, now_ns: int) -> None:
        """What is kept is bounded, or goes with its PDC."""
        if len(self._doubted) > MESSAGES:
            self.end()

    def end(self) -> None:
        """The capture ends."""
        for message in list(self._doubted.values()):
            self._settle(message)


_ROD = frozenset(head_class(header.name) for header in PDS_REQUESTS if header.name.startswith("pds.rod"))
