"""Whose packet it is: whether a request belongs to a message that is known by its id, or to another with the same id.

A packet is *surely* of a message when its neighbour is, and the message did not end between them; it *fits* when its
PSN and offset are where those of the others say. PSNs may go to something else in between: then what comes *drifts*.
"""

from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.ses.tracker_answers import ReturnedData
from uetproto.audit.ses.tracker_message import LAYOUTS, AuditedMessage, RequestLayout
from uetproto.audit.ses.tracker_sender import MessageSender
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF
AROUND = 64
"""PSNs that are looked at to find a neighbour."""


def fits(message: AuditedMessage, seen: ObservedPacket, shape: RequestLayout) -> bool:
    """PSN and offset are where the others say."""
    mtu = message.mtu or message.mtu_of(seen, shape)
    if message.origin is None:
        message.origin = message.origin_of(message.first, LAYOUTS[type(message.first.ses)], mtu)
    origin = message.origin_of(seen, shape, mtu)
    return origin is not None and origin == message.origin


def is_surely_of(sender: MessageSender, message: AuditedMessage, psn: int) -> bool:
    """Whether packets around it say that it can be of no other message, if it has the id of this one."""
    if sender.loose:
        return False
    if message.holds(psn):
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
    """PSNs that went to something else between the packets of a message before, or behind, this one."""
    if origin is None or message.origin is None or not mtu:
        return 0
    drift = diff32(origin, message.origin)
    if (message.eom if drift > 0 else message.som) is not None:
        return 0
    room = diff32(psn, message.high) if drift > 0 else diff32(message.low, psn)
    return drift if abs(drift) < min(room, -(-message.body // mtu)) else 0


def is_behind(message: AuditedMessage, earlier: AuditedMessage) -> bool:
    """It has begun when all of the earlier one was sent; not so where they may be one."""
    if message.sender.loose or message.som is None or earlier.eom is None:
        return False
    return diff32(message.som, earlier.eom) > 0
