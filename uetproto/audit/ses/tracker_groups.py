# SPDX-License-Identifier: GPL-2.0-only
"""This module follows sync groups (ses.md §5.14; later than UE 1.0.1): the last message of a group states how many
messages the group has."""

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from uetproto.audit.judge import Tell
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.ses.tracker_message import AboutMessage, AuditedMessage, MessageSender, shorten
from uetproto.wire.flow_crc import NOTHING
from uetproto.wire.serial import diff32

GROUPS = 1_024
"""Number of groups that remain when the oldest groups are dropped. This happens when there are more than twice as many
groups."""
MEMBERS = 1_024
"""Number of messages of a group that remain when its oldest messages are dropped. This happens when there are more than
twice as many messages."""


class SyncGroupMember(NamedTuple):
    """This record describes one message of a sync group. Members sort in the order in which they were sent."""

    at: int
    """Number of PSNs from the first message of the group to this message."""
    total: int
    """Number of messages in the group if this message is the last one, else 0."""
    number: int


@dataclass(slots=True)
class _GroupRecord:
    """This class holds the messages that had one group number, of the present group and of earlier ones."""

    sender: MessageSender
    base: int
    members: list[SyncGroupMember] = field(default_factory=list)
    spread: bool = False
    """Whether messages came on several PDCs, which have no order among them."""


@dataclass(slots=True)
class SyncGroup(AboutMessage):
    """This record holds a sync group whose last message was seen."""

    members: list[SyncGroupMember]
    """Messages of the group: those that follow the last message of the previous group, up to the last message of this
    group."""
    spread: bool


class SyncGroups:
    """This class follows the sync groups of one vantage point. A source numbers its groups for each target (ses.md
    §5.14)."""

    __slots__ = ("_group", "_kept")

    def __init__(self, tell: Mapping[SesEvent, Tell]) -> None:
        self._group = tell[SesEvent.GROUP]
        self._kept: dict[tuple[int, int, int], _GroupRecord] = NOTHING

    @property
    def is_empty(self) -> bool:
        """Return whether no group is kept."""
        return not self._kept

    def note(self, message: AuditedMessage, seen: ObservedPacket) -> None:
        """Note a message of a sync group when its packet with SOM comes."""
        extension = next((head for head in seen.more if head.form == "ses.ext.sync"), None)
        if extension is None:
            return
        psn: int = seen.head.psn
        sender: MessageSender = message.sender
        key = (seen.src, seen.dst, extension.group)
        kept = self._kept.get(key)
        if kept is None:
            if self._kept is NOTHING:
                self._kept = {}
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
        """Drop the groups of a closed PDC, whose messages `sender` sent."""
        for key in [key for key, kept in self._kept.items() if kept.sender is sender]:
            del self._kept[key]


def _around(members: list[SyncGroupMember], at: int) -> list[SyncGroupMember]:
    """Return the group of the message at `at`; an empty list where its end was not seen."""
    first = last = bisect_left(members, (at,))
    while first and not members[first - 1].total:
        first -= 1
    while last < len(members) and not members[last].total:
        last += 1
    return members[first : last + 1] if last < len(members) else []
