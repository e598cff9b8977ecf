"""Sync groups: writes that are counted by the message that ends them (ses.md §5.14; a revision after UE 1.0.1)."""

from bisect import bisect_left, insort
from typing import NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.judge import Judge
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.ses.tracker_message import AuditedMessage
from uetproto.audit.ses.tracker_sender import MessageSender, shorten
from uetproto.wire.serial import diff32

GROUPS = 1_024
"""Groups that are remembered, at least; at most twice as many."""
MEMBERS = 1_024
"""Likewise messages of one."""


class SyncGroupMember(NamedTuple):
    """A message of a group, by the order in which it was sent: its PSN, from that of the first one on."""

    at: int
    total: int
    """Of the message that ends the group: how many there are; 0: of the others."""
    number: int


class _GroupRecord:
    """The messages that had one number of a group, of this group and of those before it."""

    __slots__ = ("base", "members", "sender", "spread")

    def __init__(self, sender: MessageSender, base: int) -> None:
        self.sender = sender
        self.base = base
        self.members: list[SyncGroupMember] = []
        self.spread = False
        """On several PDCs, which have no order among them."""


class SyncGroup(NamedTuple):
    """A group whose end was seen."""

    message: AuditedMessage
    members: list[SyncGroupMember]
    """Those between the end of the group before and its own."""
    spread: bool

    def flow(self) -> Flow:
        return self.message.flow()


class SyncGroups:
    """The sync groups of all PDCs: a number of the source's own for each target (ses.md §5.14)."""

    def __init__(self, judge: Judge) -> None:
        self._group = judge.on(SesEvent.GROUP)
        self._kept: dict[tuple[int, int, int], _GroupRecord] = {}

    def look(self, message: AuditedMessage, seen: ObservedPacket) -> None:
        """A packet with SOM: each message has one."""
        extension = next((head for head in seen.more if head.form == "ses.ext.sync"), None)
        if extension is None:
            return
        psn: int = seen.head.psn
        sender: MessageSender = message.sender
        key = (seen.src, seen.dst, extension.group)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _GroupRecord(sender, psn)
            shorten(self._kept, GROUPS)
        if kept.sender is not sender:
            kept.sender, kept.base, kept.members, kept.spread = sender, psn, [], True
        members = kept.members
        insort(members, SyncGroupMember(diff32(psn, kept.base), extension.count, seen.number))
        if len(members) > 2 * MEMBERS:
            del members[:MEMBERS]
        group = _around(members, diff32(psn, kept.base))
        if group:
            self._group(SyncGroup(message, group, kept.spread), seen)

    def close(self, sender: MessageSender) -> None:
        """The PDC is gone, and leaves nothing behind."""
        for key in [key for key, kept in self._kept.items() if kept.sender is sender]:
            del self._kept[key]


def _around(members: list[SyncGroupMember], at: int) -> list[SyncGroupMember]:
    """The group of one of its messages; none where its end was not seen."""
    first = last = bisect_left(members, (at,))
    while first and not members[first - 1].total:
        first -= 1
    while last < len(members) and not members[last].total:
        last += 1
    return members[first : last + 1] if last < len(members) else []
