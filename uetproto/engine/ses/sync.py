# SPDX-License-Identifier: GPL-2.0-only
"""A sync group is a set of writes, and an operation that ends the group. The target executes this operation only when
all writes of the group are complete.

This feature belongs to a revision later than UE 1.0.1 (ses.md §5.14).
"""

from collections.abc import Callable

from uetproto.engine.config import SesConfig
from uetproto.engine.contract import NEVER
from uetproto.engine.ses.received import RxMessage
from uetproto.wire.headers.uet_ses import ReturnCode

Late = Callable[[ReturnCode | None], None]
"""Function that executes and answers the operation that ends a group. If its argument is a return code, it does not
execute the operation, but answers with this code."""


class _SyncGroup:
    __slots__ = ("done", "error", "expires", "joined", "late", "total")

    def __init__(self, expires: int) -> None:
        self.expires = expires
        self.joined = self.done = 0
        """Number of messages of which a packet arrived, and of those that are complete or failed."""
        self.total = 0
        """Number of all messages, the one that ends the group included; 0: that one has not arrived."""
        self.late: Late | None = None
        self.error: ReturnCode | None = None


class TargetSyncGroups:
    """This class manages the sync groups of a target, by fabric address of the source and number of the group."""

    def __init__(self, config: SesConfig) -> None:
        self._config = config
        self.groups: dict[tuple[int, int], _SyncGroup] = {}

    def join(self, message: RxMessage, now: int) -> ReturnCode | None:
        """Add a message to its group at its first packet, or return the code with which the message is refused.

        The message that ends a group states how many messages the group has. The code is OP_VIOLATION if a second
        message would end the group, or if the group would have more messages than stated. The code is UNCOR_TRNSNT if
        there is no room for another group.
        """
        assert message.sync is not None
        key = (message.source, message.sync.group)
        group = self.groups.get(key)
        if group is None:
            if len(self.groups) >= self._config.max_rx_messages:
                return ReturnCode.UNCOR_TRNSNT
            group = self.groups[key] = _SyncGroup(now + self._config.sync_group_time)
        total = message.sync.count
        most = group.total or total
        if (total and group.total) or (most and group.joined >= most):
            message.sync = None  # the message is no part of the group, but makes it fail
            group.error = group.error or ReturnCode.OP_VIOLATION
            return ReturnCode.OP_VIOLATION
        group.joined += 1
        if total:
            group.total = total
        return None

    def finish(self, message: RxMessage) -> None:
        """Count a write of a group as complete."""
        group = self._of(message)
        if group is not None:
            group.done += 1
            self._look(message, group)

    def end(self, message: RxMessage, late: Late) -> None:
        """Store the operation that ends a group. `late` is called when the group is complete, which may be now."""
        group = self._of(message)
        if group is None:  # the group was dropped
            late(ReturnCode.DROPPED)
            return
        group.done += 1
        group.late = late
        self._look(message, group)

    def fail(self, message: RxMessage, code: ReturnCode) -> None:
        """Count a message of a group as failed, so that the operation that ends the group fails as well."""
        group = self._of(message)
        if group is not None:
            group.error = group.error or code
            group.done += 1
            self._look(message, group)

    def _of(self, message: RxMessage) -> _SyncGroup | None:
        return None if message.sync is None else self.groups.get((message.source, message.sync.group))

    def _look(self, message: RxMessage, group: _SyncGroup) -> None:
        assert message.sync is not None
        if group.total and group.done >= group.total:
            del self.groups[message.source, message.sync.group]
            if group.late is not None:
                group.late(group.error)

    def on_time(self, now: int) -> None:
        """Drop the groups whose `sync_group_time` is over. The operation that ends such a group fails with DROPPED."""
        for key in [key for key, group in self.groups.items() if group.expires <= now]:
            group = self.groups.pop(key)
            if group.late is not None:
                group.late(ReturnCode.DROPPED)

    def deadline(self) -> int:
        oldest = next(iter(self.groups.values()), None)
        return NEVER if oldest is None else oldest.expires
