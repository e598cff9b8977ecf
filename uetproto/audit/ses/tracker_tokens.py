# SPDX-License-Identifier: GPL-2.0-only
"""This module follows the tokens with which a target defers a send and restarts it (ses.md §5.7, ses.md §5.8).

A deferrable send has a token of the initiator. DEFERRABLE_RTR names this token and adds a token of the target. The send
that restarts names the token of the target. The three requests may travel on different PDCs, so addresses identify the
owner of a token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from uetproto.audit.judge import Tell
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.ses.tracker_message import AboutMessage, AuditedMessage, shorten
from uetproto.wire.flow_crc import NOTHING

TOKENS = 8_192
"""Number of tokens that remain when the oldest tokens are dropped. This happens when there are more than twice as many
tokens. Tokens of initiators and tokens of targets are counted apart."""

Key = tuple[int, int, int]
"""Key of a token: the address that chose the token, the address that is to use the token, and the number of the
token."""


class Deferred(NamedTuple):
    """This record holds the header and the packet number of a deferrable send."""

    head: Head
    number: int


@dataclass(slots=True)
class Ready:
    """This record describes a DEFERRABLE_RTR that has a token of the target."""

    deferred: Deferred | None
    """Send that is to restart, or None if it was not seen."""
    number: int
    used_by: tuple[int | None, int] | None = None
    """The message_id and the packet number of the send that has restarted with this token, or None if no send has."""


@dataclass(slots=True)
class Rtr(AboutMessage):
    """This record describes a DEFERRABLE_RTR; rules get it with the event `RTR`."""

    deferred: Deferred | None
    """Last send that had the token named by the DEFERRABLE_RTR, or None if no such send was seen."""


@dataclass(slots=True)
class Restart(AboutMessage):
    """This record describes a deferrable send that restarts; rules get it with the event `RESTART`."""

    ready: Ready | None
    """DEFERRABLE_RTR that has the token named by the send, or None if it was not seen."""


class Tokens:
    """This class follows the restart tokens of one vantage point."""

    __slots__ = ("_deferred", "_ready", "_restart", "_rtr")

    def __init__(self, tell: Mapping[SesEvent, Tell]) -> None:
        self._rtr, self._restart = tell[SesEvent.RTR], tell[SesEvent.RESTART]
        self._deferred: dict[Key, Deferred] = NOTHING
        """Maps the token of the initiator to its send."""
        self._ready: dict[Key, Ready] = NOTHING
        """Maps the token of the target to its DEFERRABLE_RTR."""

    @property
    def is_empty(self) -> bool:
        """Return whether no token is kept."""
        return not self._deferred and not self._ready

    def note(self, message: AuditedMessage, seen: ObservedPacket) -> None:
        """Note the tokens of a message, if it has any, when its first packet comes."""
        head = message.head
        if hasattr(head, "initiator_restart_token"):
            if head.target_restart_token:
                self._note_restart(message, seen)
            mine = (seen.src, seen.dst, head.initiator_restart_token)
            if self._deferred is NOTHING:
                self._deferred = {}
            _keep(self._deferred, mine, Deferred(head, seen.number))
        elif hasattr(head, "receiver_token"):
            deferred = self._deferred.get((seen.dst, seen.src, head.receiver_token))
            if head.sender_token:
                if self._ready is NOTHING:
                    self._ready = {}
                _keep(self._ready, (seen.src, seen.dst, head.sender_token), Ready(deferred, seen.number))
            self._rtr(Rtr(message, deferred), seen)

    def refused(self, message: AuditedMessage, answer: ObservedPacket) -> None:
        """Allow another restart, because a send that had restarted was answered with an error."""
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
