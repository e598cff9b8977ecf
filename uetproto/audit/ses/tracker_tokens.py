"""Follows the tokens with which a target defers a send and restarts it (ses.md §5.7, ses.md §5.8).

A deferrable send has a token of the initiator. DEFERRABLE_RTR names this token and adds one of the target. The send
that restarts names the token of the target. The three may travel on different PDCs, so that addresses identify the
owner of a token.
"""

from typing import Any, NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.judge import Judge
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.ses.tracker_message import AuditedMessage, shorten

TOKENS = 8_192
"""Tokens of each kind that are kept at least; at most twice as many are kept."""

Key = tuple[int, int, int]
"""Holds the address that chose the token, the address that it is meant for, and its number."""


class Deferred(NamedTuple):
    """Holds a deferrable send."""

    head: Head
    number: int


class Ready:
    """Holds the DEFERRABLE_RTR that a token of the target stands for."""

    __slots__ = ("deferred", "number", "used_by")

    def __init__(self, deferred: Deferred | None, number: int) -> None:
        self.deferred = deferred
        """Holds the send that is to restart; None: not seen."""
        self.number = number
        self.used_by: tuple[int | None, int] | None = None
        """Holds message_id and packet of the send that has restarted."""


class Rtr(NamedTuple):
    """Holds a DEFERRABLE_RTR."""

    message: AuditedMessage
    deferred: Deferred | None
    """Holds the last send that had this token; None: none was seen."""

    def flow(self) -> Flow:
        return self.message.flow()


class Restart(NamedTuple):
    """Holds a deferrable send that restarts."""

    message: AuditedMessage
    ready: Ready | None
    """Holds the DEFERRABLE_RTR that brought its token; None: not seen."""

    def flow(self) -> Flow:
        return self.message.flow()


class Tokens:
    """Follows the tokens of one vantage point."""

    def __init__(self, judge: Judge) -> None:
        self._rtr = judge.on(SesEvent.RTR)
        self._restart = judge.on(SesEvent.RESTART)
        self._deferred: dict[Key, Deferred] = {}
        """Maps the token of the initiator to its send."""
        self._ready: dict[Key, Ready] = {}
        """Maps the token of the target to its DEFERRABLE_RTR."""

    def note(self, message: AuditedMessage, seen: ObservedPacket) -> None:
        """Note the tokens of a message, if it has any, at its first packet."""
        head = message.head
        if hasattr(head, "initiator_restart_token"):
            if head.target_restart_token:
                self._note_restart(message, seen)
            mine = (seen.src, seen.dst, head.initiator_restart_token)
            _keep(self._deferred, mine, Deferred(head, seen.number))
        elif hasattr(head, "receiver_token"):
            deferred = self._deferred.get((seen.dst, seen.src, head.receiver_token))
            if head.sender_token:
                _keep(self._ready, (seen.src, seen.dst, head.sender_token), Ready(deferred, seen.number))
            self._rtr(Rtr(message, deferred), seen)

    def refused(self, message: AuditedMessage, answer: ObservedPacket) -> None:
        """Allow another restart: a send that had restarted was answered with an error."""
        token = getattr(message.head, "target_restart_token", 0)
        ready = self._ready.get((answer.src, answer.dst, token)) if token else None
        if ready is not None:
            ready.used_by = None

    def _note_restart(self, message: AuditedMessage, seen: ObservedPacket) -> None:
        ready = self._ready.get((seen.dst, seen.src, message.head.target_restart_token))
        self._restart(Restart(message, ready), seen)
        if ready is not None and ready.used_by is None:
            ready.used_by = (message.message_id, seen.number)


def _keep(kept: dict[Key, Any], key: Key, value: object) -> None:
    """Store a value as the newest one."""
    kept.pop(key, None)
    kept[key] = value
    shorten(kept, TOKENS)
