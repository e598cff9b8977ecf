# SPDX-License-Identifier: GPL-2.0-only
"""This module knows when messages of one packet on an RC queue pair are sent and received without work requests and
completions, and does so.

Such messages belong to a program on the same host that uses the queue pair for nothing else (`qp.MessageUser`), as a
SHARP carrier does. A driver passes a packet as an object if it has recognized the frame as the one that was sent. It is
taken here where nothing distinguishes it: a request is the next one in order, is a SEND of one packet that finds the
receive that its user posts again at once, and an acknowledgement is positive and acknowledges nothing but such
messages. All else goes the usual way (`Split.OTHER_MESSAGE`). The effects are those of `RcRequester.pump` and `take`,
`RcResponder.pump` and `take`, and of the completions that the user would get (roce.md §8, §9).
"""

from typing import TYPE_CHECKING

from uetproto.engine.roce.contract import QpState
from uetproto.engine.roce.packets import MessagePacket, keys_match
from uetproto.engine.roce.responder import RcResponder
from uetproto.engine.roce.segments import MessagePhase

if TYPE_CHECKING:
    from uetproto.engine.roce.hca import Hca
    from uetproto.engine.roce.requester import RcRequester, Wqe

_RTR, _IDLE = QpState.RTR, MessagePhase.IDLE


# Sending


def send_message(requester: "RcRequester", wqe: "Wqe", data: bytes) -> MessagePacket | None:
    """Return the packet of the next message, or None if the requester must send it as any other."""
    psn, size = requester.cursor, wqe.length
    if (
        wqe.begun or psn != requester.next or size > requester.path_mtu or size & 3
        or psn >= requester.una + requester.config.max_unacked_psns
        or not (requester.unlimited or wqe.number <= requester.lsn + 1)
        or not requester.qp.behaviour.begins or requester.qp.rate is not None
    ):  # fmt: skip
        return None
    wqe.begun = True
    wqe.first = psn
    wqe.end = requester.cursor = requester.next = psn + 1
    requester.at += 1
    return requester.path.message(psn, data)


# Receiving


def take(hca: "Hca", packet: MessagePacket, now: int) -> bool:
    """Process a packet that was recognized. Return False, and change nothing, if `Hca.receive` must take it."""
    qp, data = hca.qps.get(packet.number), packet.data
    user = None if qp is None else qp.messages
    if (
        qp is None or user is None or hca.pending_events or packet.dst != hca.address
        or packet.src != qp.attributes.av.dst or not keys_match(packet.p_key, qp.p_key)
    ):  # fmt: skip
        return False
    if data is None:
        requester = qp.requester
        ended = requester.end_messages(packet.psn, now) if requester is not None and qp.behaviour.finishes else None
        if ended is None:
            return False
        qp.drain()
        hca.mark_active(qp)
        for wr_id in ended:
            user.sent(wr_id, now)
        return True
    responder, receives = qp.responder, qp.receives
    if (
        not isinstance(responder, RcResponder) or packet.psn != responder.epsn or responder.phase is not _IDLE
        or not qp.behaviour.serves or (qp.state is _RTR and not qp.established) or qp.held is not None
        or not receives.items or receives.limit or len(data) > responder.path_mtu or len(data) > user.longest
    ):  # fmt: skip
        return False
    receives.items.rotate(-1)  # the first one is used, and posted again
    responder.count_message(now)
    hca.mark_active(qp)
    user.arrived(qp.number, data, now)
    return True
