# SPDX-License-Identifier: GPL-2.0-only
"""This module defines the events that rules about messages subscribe to.

Nearly every packet causes one of the events OPENED, LATER, EDGE, RESPONSE and RETURNED, which are only counted. The
tracker itself compares such a packet with what is expected. If the packet differs, the tracker reports a second, rarer
event.
"""

from enum import auto

from uetproto.audit.rule import Event


class SesEvent(Event):
    """This enumeration has the events of messages. With an event of a response, a rule gets an `AuditedAnswer`; with an
    event of read data, a `ReturnedData`; with any other event, an `AuditedMessage`, unless the docstring of the event
    names another class."""

    OPENED = auto()
    """The first packet of a message was seen; the event is only counted."""
    HEADER = auto()
    """The first packet of a message was seen, and its header can violate a rule for headers. The header of a plain
    write, read, send or atomic operation cannot violate such a rule."""
    LATER = auto()
    """Another packet of a message was seen; the event is only counted."""
    CHANGED = auto()
    """A packet of a message differs from the message's other packets in a field that must be equal in all of them."""
    MISPLACED = auto()
    """A packet certainly belongs to this message, but its offset contradicts its PSN, or the packet has SOM (or EOM)
    although another packet of the message has SOM (or EOM)."""
    EDGE = auto()
    """A packet has SOM or EOM, or another size than its neighbours; the event is only counted."""
    LIMITS = auto()
    """A packet has SOM or EOM, or another size than its neighbours, and does not begin or end the message as it
    should."""
    MSG_ERROR = auto()
    """A packet with the opcode MSG_ERROR ends a message early."""
    HEADLESS = auto()
    """A message begins without SOM at the PSN after the EOM of another message. The rule gets an `Interruption`."""
    COMPLETE = auto()
    """All packets of a message were seen, from the packet with SOM to the packet with EOM."""
    INTERLEAVED = auto()
    """A packet of one message came between the packets of another message. The rule gets an `Interruption`."""
    DATA_LATE = auto()
    """The packet with SOM, which alone carries completion data, came after another packet of its message, on RUD."""
    UNFINISHED = auto()
    """The PDC was closed, and some packets of the message were not seen."""
    WENT_ON = auto()
    """A new packet of a message came after an answer that ended or stopped the message."""
    ID_AGAIN = auto()
    """A message has the id of an earlier message. The rule gets a `RepeatedId`."""
    ID_HELD = auto()
    """A packet of a message was sent again after another message with the same id had begun. The rule gets a
    `RepeatedId`."""
    RTR = auto()
    """A DEFERRABLE_RTR came. The rule gets an `Rtr`."""
    RESTART = auto()
    """A deferrable send restarts. The rule gets a `Restart`."""
    GROUP = auto()
    """A message of a sync group came. The message that ends the group is this one, or it came before. The rule gets a
    `SyncGroup`."""
    RESPONSE = auto()
    """A response came in an ACK; the event is only counted."""
    ANSWERED = auto()
    """A response came that differs from the usual response to a success."""
    RETURNED = auto()
    """Read data came, in an ACK or in the return direction; the event is only counted."""
    RETURNED_ODDLY = auto()
    """Read data came that differs from what its request asked for, or that the tracker does not judge itself."""
