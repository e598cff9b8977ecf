"""What can happen to the messages of a PDC, as far as rules have something to say about it.

What happens to nearly every packet (OPENED, LATER, EDGE, RESPONSE, RETURNED) only counts: the tracker compares such a
packet with what is expected, and tells of it a second time, by a rarer event, where it differs.
"""

from enum import Enum, auto


class SesEvent(Enum):
    """State: `AuditedMessage`, of answers `AuditedAnswer`, of return data `ReturnedData`."""

    OPENED = auto()
    """The first packet that was seen of a message; counts."""
    HEADER = auto()
    """The same, if its header is not that of a plain write, read or send."""
    LATER = auto()
    """Another packet of a message; counts."""
    CHANGED = auto()
    """A packet of a message differs from the others in what is equal in all of them."""
    MISPLACED = auto()
    """A packet is surely of this message, and its offset does not go with its PSN; or SOM or EOM come again."""
    EDGE = auto()
    """A packet with SOM or EOM, or with another size than its neighbours; counts."""
    LIMITS = auto()
    """The same, if it does not begin or end the message as it should."""
    MSG_ERROR = auto()
    """The packet that ends a message early."""
    HEADLESS = auto()
    """A message that begins without SOM right behind the EOM of another; state: `Interruption`."""
    COMPLETE = auto()
    """SOM and EOM were seen, and all PSNs between them."""
    INTERLEAVED = auto()
    """A packet between those of another message: that is the state."""
    UNFINISHED = auto()
    """The PDC is gone, and packets of the message were not seen."""
    WENT_ON = auto()
    """A new packet of a message that an answer has ended, or stopped."""
    ID_AGAIN = auto()
    """A message has the id of an earlier one; state: `RepeatedId`."""
    ID_HELD = auto()
    """A packet of the earlier one is sent again, later than the other message has begun; state: `RepeatedId`."""
    RTR = auto()
    """A DEFERRABLE_RTR; state: `Rtr`."""
    RESTART = auto()
    """A deferrable send that starts again; state: `Restart`."""
    GROUP = auto()
    """A message of a sync group whose end was seen; state: `SyncGroup`."""
    RESPONSE = auto()
    """A response in an ACK; counts."""
    ANSWERED = auto()
    """A response that is more than the default one of a success."""
    RETURNED = auto()
    """Read data, in an ACK or in the return direction; counts."""
    RETURNED_ODDLY = auto()
    """Read data that is not what its request asked for."""
