"""Sync groups: an operation waits for a set of writes (ses.md §5.14; a revision after UE 1.0.1)."""

from collections.abc import Callable

from uetproto.engine.config import SesConfig
from uetproto.engine.contract import NEVER
from uetproto.engine.ses.received import RxMessage
from uetproto.wire.headers.uet_ses import ReturnCode

Late = Callable[[ReturnCode | None], None]
"""Executes the operation that ends a group, and answers it; a code says that the group failed."""


class _SyncGroup:
    __slots__ = ("done", "error", "expires", "joined", "late", "total")

    def __init__(self, expires: int) -> None:
        self.expires = expires
        self.joined = self.done = 0
        """Number of messages that were seen, and that are complete."""
        self.total = 0
        """Number of messages of the group, the end included; 0: the end was not seen."""
        self.late: Late | None = None
        self.error: ReturnCode | None = None


class TargetSyncGroups:
    """Holds the sync groups of a target, by {source FA, group}."""

    def __init__(self, config: SesConfig) -> None:
        self._config = config
        self._groups: dict[tuple[int, int], _SyncGroup] = {}

    def join(self, message: RxMessage, now: int) -> ReturnCode | None:
        """Add the first packet of a message; return OP_VIOLATION for a second end, or more messages than announced."""
        assert message.sync is not None
        key = (message.source, message.sync.group)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= self._config.max_rx_messages:
                return ReturnCode.UNCOR_TRNSNT
            group = self._groups[key] = _SyncGroup(now + self._config.sync_group_time)
        total = message.sync.count
        most = group.total or total
        if (total and group.total) or (most and group.joined >= most):
            message.sync = None  # it does not belong to the group, which fails nevertheless
            group.error = group.error or ReturnCode.OP_VIOLATION
            return ReturnCode.OP_VIOLATION
        group.joined += 1
        if total:
            group.total = total
        return None

    def finish(self, message: RxMessage) -> None:
        """Note a complete write of the group."""
        group = self._of(message)
        if group is not None:
            group.done += 1
            self._look(message, group)

    def end(self, message: RxMessage, late: Late) -> None:
        """Note the operation that ends the group; `late` executes it, now or when the group is complete."""
        group = self._of(message)
        if group is None:  # it was dropped
            late(ReturnCode.DROPPED)
            return
        group.done += 1
        group.late = late
        self._look(message, group)

    def fail(self, message: RxMessage, code: ReturnCode) -> None:
        """Note a failed message of the group: the operation that ends the group fails, too."""
        group = self._of(message)
        if group is not None:
            group.error = group.error or code
            group.done += 1
            self._look(message, group)

    def _of(self, message: RxMessage) -> _SyncGroup | None:
        return None if message.sync is None else self._groups.get((message.source, message.sync.group))

    def _look(self, message: RxMessage, group: _SyncGroup) -> None:
        assert message.sync is not None
        if group.total and group.done >= group.total:
            del self._groups[message.source, message.sync.group]
            if group.late is not None:
                group.late(group.error)

    def on_time(self, now: int) -> None:
        """Drop groups that are not complete in time."""
        for key in [key for key, group in self._groups.items() if group.expires <= now]:
            group = self._groups.pop(key)
            if group.late is not None:
                group.late(ReturnCode.DROPPED)

    def deadline(self) -> int:
        oldest = next(iter(self._groups.values()), None)
        return NEVER if oldest is None else oldest.expires
