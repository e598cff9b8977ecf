"""This module defines the events that rules about messages subscribe to.

Events of nearly every packet (OPENED, LATER, EDGE, RESPONSE, RETURNED) are only counted: the tracker compares such a
packet with what is expected. If the packet differs, the tracker reports a second, rarer event for it.
"""

from enum import auto

from uetproto.audit.rule import Event


class SesEvent(Event):
    """This enumeration has the events of messages. The state is an `AuditedMessage`; for answers an `AuditedAnswer`,
    for read data a `ReturnedData`, for some events another class, which the event names."""

    OPENED = auto()
    """The first packet of a message was seen; the event is only counted."""
    HEADER = auto()
    """The first packet of a message was seen, and its header is not that of a plain write, read or send."""
    LATER = auto()
    """Another packet of a message was seen; the event is only counted."""
    CHANGED = auto()
    """A packet of a message differs from the others in a field that is equal in all packets of a message."""
    MISPLACED = auto()
    """A packet certainly belongs to this message, but its offset contradicts its PSN, or it repeats SOM or EOM."""
    EDGE = auto()
    """A packet has SOM or EOM, or another size than its neighbours; the event is only counted."""
    LIMITS = auto()
    """A packet has SOM or EOM, or another size than its neighbours, and begins or ends the message wrongly."""
    MSG_ERROR = auto()
    """MSG_ERROR ends a message early."""
    HEADLESS = auto()
    """A message begins without SOM at the PSN after the EOM of another message; state: `Interruption`."""
    COMPLETE = auto()
    """SOM and EOM were seen, and all PSNs between them."""
    INTERLEAVED = auto()
    """A packet came between those of another message; state: `Interruption`."""
    UNFINISHED = auto()
    """The PDC is closed, and packets of the message were not seen."""
    WENT_ON = auto()
    """A new packet of a message came after an answer that ended or stopped it."""
    ID_AGAIN = auto()
    """A message has the id of an earlier one; state: `RepeatedId`."""
    ID_HELD = auto()
    """A packet of the earlier message was sent again after the later one began; state: `RepeatedId`."""
    RTR = auto()
    """A DEFERRABLE_RTR came; state: `Rtr`."""
    RESTART = auto()
    """A deferrable send restarts; state: `Restart`."""
    GROUP = auto()
    """A message of a sync group came, and the end of the group was seen; state: `SyncGroup`."""
    RESPONSE = auto()
    """A response came in an ACK; the event is only counted."""
    ANSWERED = auto()
    """A response came that is not the expected default response, which reports success."""
    RETURNED = auto()
    """Read data came, in an ACK or in the return direction; the event is only counted."""
    RETURNED_ODDLY = auto()
    """Read data came that is not what its request asked for."""
