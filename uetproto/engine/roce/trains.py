# SPDX-License-Identifier: GPL-2.0-only
"""This module knows when packets of an RC queue pair are sent and received as a train, and does so.

A train has middle packets of one SEND or WRITE, which are sent for the first time at line speed. It is received as a
train where each packet is the next one in order and the checks of roce.md §8 have the result that they had for the
first packet of the message. A packet that asks for an acknowledgement is received by itself. The effects are those of
`RcRequester.pump` and of `RcResponder.take`.
"""

from struct import Struct
from typing import TYPE_CHECKING, Any

from uetproto.engine.contract import Buffer
from uetproto.engine.roce.contract import QpState, QpType, RocePacket
from uetproto.engine.roce.memory import BadKeyError, SgeSegments
from uetproto.engine.roce.packets import Parsed, keys_match, parse
from uetproto.engine.roce.psn import MASK, add
from uetproto.engine.roce.qp import Qp
from uetproto.engine.roce.responder import RIGHTS, RcResponder
from uetproto.engine.roce.segments import MESSAGE_STATES, MIDDLE, SENDS
from uetproto.engine.train import LEAST, Train, TrainAck
from uetproto.engine.train_splits import Split
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
    psn, tally = requester.cursor, requester.qp.hca.tally
    index = psn - wqe.first
    payloads = _split_at_source(requester, wqe, most) or _payloads(requester, wqe, index, most)
    if isinstance(payloads, Split):
        tally.source[payloads.number] += 1
        return 0
    count = len(payloads)
    first = requester.path.packet(wqe.kind.family.middle, psn, b"", payloads[0])
    front, interval = bytes(first.header[:_ASKS_AT]), requester.ack_interval
    heads = [
        front + _WORD.pack((psn + i) & MASK | (_ASKS if (index + i + 1) % interval == 0 else 0)) for i in range(count)
    ]
    first.header = heads[0]
    out.append(Train(first.src, first.dst, heads, payloads, [first.entropy] * count, first.ip_version, first))
    requester.cursor = requester.next = psn + count
    tally.made += 1
    return count


def _split_at_source(requester: "RcRequester", wqe: "Wqe", most: int) -> Split | None:
    """Return why the next packet of a queue pair goes by itself, whatever its memory is, or None."""
    psn = requester.cursor
    if requester.qp.rate is not None:
        return Split.CONGESTION_CONTROL
    if wqe.kind.answered:
        return Split.KIND
    if psn - wqe.first < 1 or wqe.end - psn - 1 < LEAST:
        return Split.EDGE
    if min(most, requester.una + requester.config.max_unacked_psns - psn) < LEAST:
        return Split.ROOM
    return Split.RETRANSMISSION if psn != requester.next else None


def _payloads(requester: "RcRequester", wqe: "Wqe", index: int, most: int) -> list[Buffer] | Split:
    """Return the payloads of the next packets but the last one, the first of which is packet `index`."""
    source, mtu, psn = wqe.bytes, requester.path_mtu, requester.cursor
    count = min(most, wqe.end - psn - 1, requester.una + requester.config.max_unacked_psns - psn)
    if not isinstance(source, SgeSegments):
        return Split.MEMORY
    try:
        return source.read_run(index * mtu, mtu, count) or Split.MEMORY
    except BadKeyError:
        return Split.MEMORY


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
        step, left = self._parsed.step, len(self._train.heads) - index
        place = self._split_at(index, polled) or self._responder.place_of_message(step in SENDS, left * self._size)
        if isinstance(place, Split):
            self._hca.tally.target[place.number] += 1
            return False
        memory, offset = place
        self.place = memory.writer(offset + self._base, self._train.payloads)
        self.quiet = next((at for at in self._asks if at >= index), index + left) - index
        return True

    def _split_at(self, index: int, polled: bool) -> Split | None:
        """Return what distinguishes a packet that arrives now from one that only adds to its message, or None."""
        hca, qp, responder, parsed = self._hca, self._qp, self._responder, self._parsed
        step = parsed.step
        assert step is not None
        if (
            qp.responder is not responder or hca.qps.get(qp.number) is not qp or not qp.behaviour.serves
            or (qp.state is QpState.RTR and not qp.established)
        ):  # fmt: skip
            return Split.NOT_ESTABLISHED
        if responder.epsn != add(parsed.psn, index):
            return Split.GAP
        if (
            step not in MESSAGE_STATES[responder.phase] or responder.done != self._base + index * self._size
            or (step in RIGHTS and RIGHTS[step] not in qp.attributes.access_flags)
        ):  # fmt: skip
            return Split.MESSAGE
        return None if hca.is_still(qp, polled) else Split.BUSY


def admit(hca: "Hca", train: Train, index: int, polled: bool) -> ReceivedWrite | None:
    """Return what takes the packets of a train from packet `index` on, or None if `Hca.receive` must take it."""
    received = _received(hca, train, index)
    if isinstance(received, Split):
        hca.tally.target[received.number] += 1
        return None
    return received if received.renew(index, polled) else None


def _received(hca: "Hca", train: Train, index: int) -> ReceivedWrite | Split:
    """Return what takes the packets of a train from packet `index` on, or why none of them can be taken so."""
    parsed = parse(RocePacket(train.src, train.dst, b"".join((train.heads[0], train.payloads[0]))))
    if parsed is None or parsed.tver or parsed.step not in MIDDLE or parsed.padcnt or train.dst != hca.address:
        return Split.UNKNOWN
    qp = hca.qps.get(parsed.destqp)
    if (
        qp is None or qp.kind is not QpType.RC or parsed.opcode >> 5 != qp.kind
        or not keys_match(parsed.p_key, qp.p_key) or train.src != qp.attributes.av.dst
        or not isinstance(qp.responder, RcResponder) or len(parsed.payload) != qp.responder.path_mtu
    ):  # fmt: skip
        return Split.UNKNOWN
    return ReceivedWrite(hca, qp, qp.responder, train, parsed, index)
