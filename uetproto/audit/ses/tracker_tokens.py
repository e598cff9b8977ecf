"""Tokens by which a target stops a deferrable send and starts it again (ses.md §5.7, §5.8).

A deferrable send has a token of the initiator's; DEFERRABLE_RTR names it and brings one of the target's; the send that
starts again names that one. The three may travel on different PDCs, so that addresses tell whose a token is.
"""

from typing import Any, NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.judge import Judge
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.ses.tracker_message import AuditedMessage
from uetproto.audit.ses.tracker_sender import shorten

TOKENS = 8_192
"""Tokens of each kind that are remembered, at least; at most twice as many."""

Key = tuple[int, int, int]
"""Whose token, for whom, and its number."""


class Deferred(NamedTuple):
    """A deferrable send."""

    head: Head
    number: int


class Ready:
    """What a token of the target's stands for: the DEFERRABLE_RTR that brought it."""

    __slots__ = ("deferred", "number", "used_by")

    def __init__(self, deferred: Deferred | None, number: int) -> None:
        self.deferred = deferred
        """The send that was to start again; None: not seen."""
        self.number = number
        self.used_by: tuple[int | None, int] | None = None
        """message_id and packet of the send that has started again."""


class Rtr(NamedTuple):
    """A DEFERRABLE_RTR."""

    message: AuditedMessage
    deferred: Deferred | None
    """The last send that had this token; None: none was seen."""

    def flow(self) -> Flow:
        return self.message.flow()


class Restart(NamedTuple):
    """A deferrable send that starts again."""

    message: AuditedMessage
    ready: Ready | None
    """None: its token was not seen."""

    def flow(self) -> Flow:
        return self.message.flow()


class Tokens:
    """The tokens of all PDCs."""

    def __init__(self, judge: Judge) -> None:
        self._rtr = judge.on(SesEvent.RTR)
        self._restart = judge.on(SesEvent.RESTART)
        self._deferred: dict[Key, Deferred] = {}
        """By the initiator's token."""
        self._ready: dict[Key, Ready] = {}
        """By the target's."""

    def look(self, message: AuditedMessage, seen: ObservedPacket) -> None:
        """The first packet of a message that may have tokens."""
        head = message.head
        if hasattr(head, "initiator_restart_token"):
            if head.target_restart_token:
                self._start_again(message, seen)
            mine = (seen.src, seen.dst, head.initiator_restart_token)
            _keep(self._deferred, mine, Deferred(head, seen.number))
        elif hasattr(head, "receiver_token"):
            deferred = self._deferred.get((seen.dst, seen.src, head.receiver_token))
            if head.sender_token:
                _keep(self._ready, (seen.src, seen.dst, head.sender_token), Ready(deferred, seen.number))
            self._rtr(Rtr(message, deferred), seen)

    def refused(self, message: AuditedMessage, answer: ObservedPacket) -> None:
        """A send that had started again was answered with an error: it may do so once more."""
        token = getattr(message.head, "target_restart_token", 0)
        ready = self._ready.get((answer.src, answer.dst, token)) if token else None
        if ready is not None:
            ready.used_by = None

    def _start_again(self, message: AuditedMessage, seen: ObservedPacket) -> None:
        ready = self._ready.get((seen.dst, seen.src, message.head.target_restart_token))
        self._restart(Restart(message, ready), seen)
        if ready is not None and ready.used_by is None:
            ready.used_by = (message.message_id, seen.number)


def _keep(kept: dict[Key, Any], key: Key, value: object) -> None:
    """As the newest."""
    kept.pop(key, None)
    kept[key] = value
    shorten(kept, TOKENS)
