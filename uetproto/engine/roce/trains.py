# SPDX-License-Identifier: GPL-2.0-only
"""This module knows when packets of an RC queue pair are sent and received as a train, and does so.

A train has middle packets of one SEND or WRITE, which are sent for the first time at line speed. It is received as a
train where each packet is the next one in order and the checks of roce.md §8 have the result that they had for the
first packet of the message. An acknowledgement is quiet while more of its message is outstanding. The effects are those
of `RcRequester.pump` and `take` and of `RcResponder.take`.

A train acknowledgement (`train.TrainAck`) names a queue pair by its number and, above it, the P_Key of the packet. Its
PSN is in the upper 24 of 32 bits, where differences of PSNs wrap as they should.
"""

from typing import TYPE_CHECKING, Any

from uetproto.engine.contract import Buffer
from uetproto.engine.roce.contract import QpState, QpType, RocePacket
from uetproto.engine.roce.memory import BadKeyError, SgeSegments
from uetproto.engine.roce.packets import BTH_WORD_AT, keys_match, parse
from uetproto.engine.roce.psn import MASK
from uetproto.engine.roce.qp import Qp
from uetproto.engine.roce.responder import RIGHTS, RcResponder
from uetproto.engine.roce.segments import MESSAGE_STATES, MIDDLE, SENDS, MessageStep
from uetproto.engine.train import LEAST, Train, TrainAck
from uetproto.engine.train_splits import Split
from uetproto.wire.headers.roce import BTH, Operation
from uetproto.wire.tuples import AethHeader

if TYPE_CHECKING:
    from uetproto.engine.roce.hca import Hca
    from uetproto.engine.roce.requester import RcRequester, Wqe

_QP_AT = BTH.offset_of("destqp") // 8
_PSN_AT = BTH.offset_of("psn") // 8 - BTH_WORD_AT
"""Offset of the PSN in the last word of a BTH. The number of the queue pair is before this word."""
_KEY_SHIFT, _PSN_SHIFT = 24, 8
_ACKNOWLEDGE = Operation.ACKNOWLEDGE


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
    count, interval = len(payloads), requester.ack_interval
    asks = range(-(index + 1) % interval, count, interval)
    out.append(requester.path.train(wqe.kind.family.middle, psn, asks, payloads))
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


class FollowedSender:
    """A followed sender is the peer of a queue pair whose trains have the same sample. What the checks of roce.md §8
    have found for one of them holds for the others, as long as the queue pair does not change."""

    __slots__ = ("changes", "permitted", "responder", "sample", "sends", "size", "step")

    def __init__(self, qp: Qp, responder: RcResponder, train: Train, step: MessageStep) -> None:
        self.sample = train.sample
        self.changes = qp.changes
        """Value of `Qp.changes` up to which this holds."""
        self.responder = responder
        self.step = step
        self.sends = step in SENDS
        """Whether the packets belong to a SEND, and not to a WRITE."""
        self.size = len(train.payloads[0])
        self.permitted = step not in RIGHTS or RIGHTS[step] in qp.attributes.access_flags


class ReceivedWrite:
    """A received write takes middle packets of a SEND or WRITE that arrive in order (`train.ArrivingRun`)."""

    __slots__ = (
        "_base", "_hca", "_memory", "_most", "_offset", "_polled", "_psn", "_qp", "_sender", "_train", "answers",
        "apart", "place", "quiet_to",
    )  # fmt: skip

    def __init__(self, hca: "Hca", qp: Qp, sender: FollowedSender, train: Train, index: int) -> None:
        self._hca = hca
        self._qp = qp
        self._sender = sender
        self._train = train
        self._psn = _psn_of(train)
        self._base = sender.responder.done - index * sender.size
        """Offset of the first payload of the train in its message."""
        self._polled = self.answers = self.apart = False
        self.quiet_to = 0

    def settle(self, index: int, count: int, now: int) -> None:
        sender = self._sender
        sender.responder.skip(count, sender.size)

    def answer(self, index: int) -> TrainAck | None:
        if not self._polled:
            return None
        self.quiet_to = self._quiet_to(index + 1)
        qp, psn, aeth = self._qp, self._psn + index & MASK, self._sender.responder.aeth()
        receiver = qp.p_key << _KEY_SHIFT | qp.path.remote
        return TrainAck(qp.path.packet(_ACKNOWLEDGE, psn, aeth), psn << _PSN_SHIFT, receiver, answer=aeth)

    def due(self, index: int, count: int, now: int) -> TrainAck:
        self.settle(index, count, now)
        ack = self.answer(index)
        if ack is None:
            self.quiet_to = self._quiet_to(index + 1)
            queued = self._sender.responder.request_ack(now)
            assert queued is not None
            ack = TrainAck(self._qp.path.packet(queued.operation, queued.psn, queued.headers), queued.psn)
        return ack

    def renew(self, index: int, polled: bool) -> bool:
        split = self._split_at(index, polled) or self._split_of_message()
        if split is not None:
            self._hca.tally.target[split.number] += 1
            return False
        self.quiet_to = self._quiet_to(index)
        self.answers = self._qp.messages is None and self._sender.responder.acknowledges_at_once
        self._polled = polled
        return True

    def extend(self, train: Train) -> bool:
        sender, count, psn = self._sender, len(self._train.heads), _psn_of(train)
        base = self._base + count * sender.size
        if train.sample is not sender.sample or psn != self._psn + count & MASK or not self._store(train, base):
            return False
        self._train, self._psn, self._base = train, psn, base
        self.quiet_to = self._quiet_to(0)
        return True

    def _store(self, train: Train, base: int) -> bool:
        """Let `place` store the payloads of a train from `base` of the message on, if this is not its end."""
        payloads = train.payloads
        if base + len(payloads) * self._sender.size > self._most:
            return False
        self.place = self._memory.writer(self._offset + base, payloads)
        return True

    def _quiet_to(self, index: int) -> int:
        """Return the index of the first packet from `index` on that asks for an acknowledgement, or that behind all."""
        train = self._train
        return next((at for at in train.asks if at >= index), len(train.heads))

    def _split_at(self, index: int, polled: bool) -> Split | None:
        """Return what distinguishes a packet that arrives now from one that only adds to its message, or None."""
        sender = self._sender
        if sender.changes != self._qp.changes:
            found = _follow(self._hca, self._train)
            if isinstance(found, Split):
                return found
            self._qp, self._sender = found
            sender = self._sender
        responder = sender.responder
        if responder.epsn != self._psn + index & MASK:
            return Split.GAP
        if (
            not sender.permitted or sender.step not in MESSAGE_STATES[responder.phase]
            or responder.done != self._base + index * sender.size
        ):  # fmt: skip
            return Split.MESSAGE
        return None if self._hca.is_still(self._qp, polled) else Split.BUSY

    def _split_of_message(self) -> Split | None:
        """Find out where the message is stored. Return why not if each packet must be checked."""
        found = self._sender.responder.place_of_message(self._sender.sends)
        if isinstance(found, Split):
            return found
        self._memory, self._offset, self._most = found
        return None if self._store(self._train, self._base) else Split.MESSAGE


def _psn_of(train: Train) -> int:
    """Return the PSN of the first packet of a train."""
    return int.from_bytes(train.heads[0][_PSN_AT:], "big")


def admit(hca: "Hca", train: Train, index: int, polled: bool) -> ReceivedWrite | None:
    """Return what takes the packets of a train from packet `index` on, or None if `Hca.receive` must take it."""
    sample = train.sample
    qp = None if sample is None else hca.qps.get(int.from_bytes(sample.header[_QP_AT:], "big"))
    sender = None if qp is None else qp.followed
    if qp is None or sender is None or sender.sample is not sample or sender.changes != qp.changes:
        found = _follow(hca, train)
        if isinstance(found, Split):
            hca.tally.target[found.number] += 1
            return None
        qp, sender = found
    received = ReceivedWrite(hca, qp, sender, train, index)
    return received if received.renew(index, polled) else None


def _follow(hca: "Hca", train: Train) -> tuple[Qp, FollowedSender] | Split:
    """Return the queue pair of a train and its sender, or why no packet of the train can be taken as part of it."""
    packet = train.packet(0)
    parsed = parse(packet) if isinstance(packet, RocePacket) else None
    if parsed is None or parsed.tver or parsed.step not in MIDDLE or parsed.padcnt or train.dst != hca.address:
        return Split.UNKNOWN
    qp = hca.qps.get(parsed.destqp)
    if (
        qp is None or qp.kind is not QpType.RC or parsed.opcode >> 5 != qp.kind
        or not keys_match(parsed.p_key, qp.p_key) or train.src != qp.attributes.av.dst
        or not isinstance(qp.responder, RcResponder) or len(parsed.payload) != qp.responder.path_mtu
    ):  # fmt: skip
        return Split.UNKNOWN
    if not qp.behaviour.serves or (qp.state is QpState.RTR and not qp.established):
        return Split.NOT_ESTABLISHED
    assert parsed.step is not None
    qp.followed = sender = FollowedSender(qp, qp.responder, train, parsed.step)
    return qp, sender


# Acknowledgements


def quiet_acks(hca: "Hca", receiver: int, psn: int, polled: bool) -> int | None:
    """Return how many more packets than one up to `psn` a plain ACK may acknowledge and end no message and cause no
    packet, in units of such a PSN, or None if the one up to `psn` does more (`train.TrainEngine`)."""
    qp = hca.qps.get(receiver & MASK)
    requester = None if qp is None else qp.requester
    if (
        qp is None or requester is None or qp.kind is not QpType.RC or not qp.behaviour.finishes
        or not keys_match(receiver >> _KEY_SHIFT, qp.p_key)
    ):  # fmt: skip
        found: int | Split = Split.NOT_ESTABLISHED
    elif polled or not hca.is_active(qp):
        found = Split.BUSY
    else:
        found = requester.quiet_behind(psn >> _PSN_SHIFT)
    if isinstance(found, Split):
        hca.tally.ack[found.number] += 1
        return None
    return found << _PSN_SHIFT


def take_quiet_ack(hca: "Hca", ack: TrainAck, now: int) -> bool:
    """Process an ACK that `quiet_acks` has found to be quiet. Return False if `Hca.receive` must process it."""
    assert ack.receiver is not None
    qp = hca.qps.get(ack.receiver & MASK)
    if qp is None or qp.requester is None or ack.packet.src != qp.attributes.av.dst:
        return False
    qp.requester.take_quiet_ack(ack.psn >> _PSN_SHIFT, AethHeader.read(ack.answer), now)
    return True
