"""This module decides whether a request belongs to the message that is known by its id, or to another message with the
same id.

A packet is *surely* of a message when its neighbour is, and the message did not end between them. A packet *fits* when
its PSN and offset agree with those of the other packets. When other packets used PSNs in between, offsets *drift*.
"""

from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.ses.request_layout import LAYOUTS, RequestLayout
from uetproto.audit.ses.tracker_message import AuditedMessage, ReturnedData
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF
AROUND = 64
"""Number of PSNs that are searched for a neighbour."""


def fits(message: AuditedMessage, seen: ObservedPacket, layout: RequestLayout) -> bool:
    """Return whether PSN and offset of a packet agree with those of the other packets."""
    mtu = message.mtu or message.mtu_of(seen, layout)
    if message.origin is None:
        message.origin = message.origin_of(message.first, LAYOUTS[type(message.first.ses)], mtu)
    origin = message.origin_of(seen, layout, mtu)
    return origin is not None and origin == message.origin


def is_surely_of(message: AuditedMessage, psn: int) -> bool:
    """Return whether the packet with this PSN, which has the id of the message, certainly belongs to it: the packets
    before and after it prove this."""
    sender = message.sender
    if sender.unordered:
        return False
    if message.surrounds(psn):
        return True
    for step, end in ((-1, message.eom), (1, message.som)):
        for distance in range(1, AROUND):
            neighbour = (psn + step * distance) & _M32
            owner = sender.sent.get(neighbour, (None, 0))[0]
            if isinstance(owner, ReturnedData):
                continue
            if owner is message and neighbour != end:
                return True
            break
    return False


def drift_of(message: AuditedMessage, psn: int, origin: int | None, mtu: int) -> int:
    """Return how many PSNs of the message other packets used before this packet; negative: after this packet."""
    if origin is None or message.origin is None or not mtu:
        return 0
    drift = diff32(origin, message.origin)
    if (message.eom if drift > 0 else message.som) is not None:
        return 0
    room = diff32(psn, message.high) if drift > 0 else diff32(message.low, psn)
    return drift if abs(drift) < min(room, -(-message.body // mtu)) else 0


def is_behind(message: AuditedMessage, earlier: AuditedMessage) -> bool:
    """Return whether a message began after the earlier one was completely sent; False if both may be one message."""
    if message.sender.unordered or message.som is None or earlier.eom is None:
        return False
    return diff32(message.som, earlier.eom) > 0
