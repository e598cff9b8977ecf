# SPDX-License-Identifier: GPL-2.0-only
"""This module decides whether a request belongs to the message that is known by its id, or to another message with the
same id.

A packet *surely* belongs to a message if the packet with a neighbouring PSN does, and the message did not end between
the two. A packet *fits* a message if its PSN and offset agree with those of the other packets of the message. The
offsets of a message *drift* if packets that do not belong to the message used PSNs between the packets of the message.
"""

from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.ses.request_layout import LAYOUTS, RequestLayout
from uetproto.audit.ses.tracker_message import AuditedMessage, ReturnedData
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF
AROUND = 64
"""Number of PSNs on each side of a packet among which a neighbour of the same message is searched."""


def fits(message: AuditedMessage, seen: ObservedPacket, layout: RequestLayout) -> bool:
    """Return whether the PSN and the offset of a packet agree with those of the other packets of the message."""
    mtu = message.mtu or message.mtu_of(seen, layout)
    if message.origin is None:
        message.origin = message.origin_of(message.first, LAYOUTS[type(message.first.ses)], mtu)
    origin = message.origin_of(seen, layout, mtu)
    return origin is not None and origin == message.origin


def is_surely_of(message: AuditedMessage, psn: int) -> bool:
    """Return whether the packet with this PSN, which has the id of the message, certainly belongs to the message. The
    packets before and after the PSN prove this."""
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
    """Return how many PSNs other packets used between the known packets of the message and the packet with this PSN.
    The number is negative if the packet comes before the known packets, and 0 if the number is not known."""
    if origin is None or message.origin is None or not mtu:
        return 0
    drift = diff32(origin, message.origin)
    if (message.eom if drift > 0 else message.som) is not None:
        return 0
    room = diff32(psn, message.high) if drift > 0 else diff32(message.low, psn)
    return drift if abs(drift) < min(room, -(-message.body // mtu)) else 0


def is_behind(message: AuditedMessage, earlier: AuditedMessage) -> bool:
    """Return whether a message began after the earlier message was sent completely. It is False if both may be one
    message."""
    if message.sender.unordered or message.som is None or earlier.eom is None:
        return False
    return diff32(message.som, earlier.eom) > 0
