# SPDX-License-Identifier: GPL-2.0-only
"""This module knows when packets of an RC queue pair are sent and received as a train, and does so.

A train has middle packets of one SEND or WRITE, which are sent for the first time at line speed. It is received as a
train where each packet is the next one in order and the checks of roce.md §8 have the result that they had for the
first packet of the message. A packet that asks for an acknowledgement is received by itself. The effects are those of
`RcRequester.pump` and of `RcResponder.take`.
"""

from struct import Struct
from typing import TYPE_CHECKING, Any

from uetproto.engine.roce.contract import QpState, QpType, RocePacket
from uetproto.engine.roce.memory import BadKeyError, SgeSegments
from uetproto.engine.roce.packets import Parsed, keys_match, parse
from uetproto.engine.roce.psn import MASK, add
from uetproto.engine.roce.qp import Qp
from uetproto.engine.roce.responder import RIGHTS, RcResponder
from uetproto.engine.roce.segments import MESSAGE_STATES, MIDDLE, SENDS
from uetproto.engine.train import LEAST, Train, TrainAck
from uetproto.wire.headers.roce import BTH

if TYPE_CHECKING:
    from uetproto.engine.roce.hca import Hca
    from uetproto.engine.roce.requester import RcRequester, Wqe

_ASKS_AT = BTH.offset_of("a") // 8
_ASKS = 1 << 31
"""Bit a of the word that ends a BTH, which has the PSN in its lowest bits."""
_WORD = Struct(">I")


# Sending


def send_train(requester: "RcRequester", wqe: "Wqe", out: list[Any], most: int) -> int:
    """Send the next packets of a message as a train, at most `most` of them. Return their number, or 0 if the requester
    must send the next packet by itself."""
    psn, source, mtu = requester.cursor, wqe.bytes, requester.path_mtu
    index = psn - wqe.first
    count = min(most, wqe.end - psn - 1, requester.una + requester.config.max_unacked_psns - psn)
    if (
        count < LEAST or index < 1 or not wqe.begun or wqe.kind.answered or psn != requester.next or mtu & 3
        or requester.qp.rate is not None or not isinstance(source, SgeSegments)
    ):  # fmt: skip
        return 0
    try:
        payloads = source.read_run(index * mtu, mtu, count)
    except BadKeyError:
        return 0
    if payloads is None:
        return 0
    first = requester.path.packet(wqe.kind.family.middle, psn, b"", payloads[0])
    front, interval = bytes(first.header[:_ASKS_AT]), requester.ack_interval
    heads = [
        front + _WORD.pack((psn + i) & MASK | (_ASKS if (index + i + 1) % interval == 0 else 0)) for i in range(count)
    ]
    first.header = heads[0]
    out.append(Train(first.src, first.dst, heads, payloads, [first.entropy] * count, first.ip_version, first))
    requester.cursor = requester.next = psn + count
    return count


# Receiving


class ReceivedWrite:
    """A received write takes middle packets of a SEND or WRITE that arrive in order (`train.ArrivingRun`)."""

    __slots__ = ("_asks", "_base", "_hca", "_parsed", "_qp", "_responder", "_size", "_train", "place", "quiet")
    answers = False

    def __init__(self, hca: "Hca", qp: Qp, responder: RcResponder, train: Train, parsed: Parsed, index: int) -> None:
        self._hca = hca
        self._qp = qp
        self._responder = responder
        self._train = train
        self._parsed = parsed
        self._size = size = len(train.payloads[0])
        self._base = responder.done - index * size
        """Offset of the first payload of the train in its message."""
        self._asks = [at for at, head in enumerate(train.heads) if head[_ASKS_AT] & 0x80]
        self.quiet = 0

    def settle(self, index: int, count: int, now: int) -> None:
        responder = self._responder
        responder.skip(count, self._size)

    def due(self, index: int, count: int, now: int) -> TrainAck:
        raise AssertionError("a packet that asks for an acknowledgement is received by itself")

    def renew(self, index: int, polled: bool) -> bool:
        """Look at all that distinguishes a packet that arrives now from one that only adds to its message."""
        hca, qp, responder, parsed = self._hca, self._qp, self._responder, self._parsed
        step = parsed.step
        assert step is not None
        size, left = self._size, len(self._train.heads) - index
        if (
            qp.responder is not responder or hca.qps.get(qp.number) is not qp or not qp.behaviour.serves
            or (qp.state is QpState.RTR and not qp.established) or responder.epsn != add(parsed.psn, index)
            or step not in MESSAGE_STATES[responder.phase]
            or (step in RIGHTS and RIGHTS[step] not in qp.attributes.access_flags)
            or responder.done != self._base + index * size or not hca.is_still(qp, polled)
        ):  # fmt: skip
            return False
        place = responder.place_of_message(step in SENDS, left * size)
        if place is None:
            return False
        memory, offset = place
        self.place = memory.writer(offset + self._base, self._train.payloads)
        self.quiet = next((at for at in self._asks if at >= index), index + left) - index
        return True


def admit(hca: "Hca", train: Train, index: int, polled: bool) -> ReceivedWrite | None:
    """Return what takes the packets of a train from packet `index` on, or None if `Hca.receive` must take it."""
    parsed = parse(RocePacket(train.src, train.dst, b"".join((train.heads[0], train.payloads[0]))))
    if parsed is None or parsed.tver or parsed.step not in MIDDLE or parsed.padcnt or train.dst != hca.address:
        return None
    qp = hca.qps.get(parsed.destqp)
    if (
        qp is None or qp.kind is not QpType.RC or parsed.opcode >> 5 != qp.kind
        or not keys_match(parsed.p_key, qp.p_key) or train.src != qp.attributes.av.dst
        or not isinstance(qp.responder, RcResponder) or len(parsed.payload) != qp.responder.path_mtu
    ):  # fmt: skip
        return None
    received = ReceivedWrite(hca, qp, qp.responder, train, parsed, index)
    return received if received.renew(index, polled) else None
