# SPDX-License-Identifier: GPL-2.0-only
"""This module knows when packets of a PDC are sent, received and acknowledged as a train, and does so.

A train is made where nothing distinguishes its packets: they are neither the first nor the last of their message, the
PDC is ESTABLISHED, no congestion control and no timer of a CLEAR is at work, and the window permits all of them. It is
received as a train where each packet is the next one in order, and SES stores it without the full checks. All else goes
packet by packet. The effects are those of `source.send`, `destination.take_request` and `source.take_ack` (UE 1.0.1
§3.5.12; pds.md §7, §8).
"""

from collections.abc import Sequence
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, cast

from uetproto.engine.config import PROBING, PdsConfig
from uetproto.engine.contract import NEVER, Buffer, Datagram, Mode, TrafficClass, Trim
from uetproto.engine.pds.destination import ASSUMED_RANGE, send_ack
from uetproto.engine.pds.messages import Ack, Request, parse
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.retransmit import NEAR_PSN_LIMIT, SendRun
from uetproto.engine.pds.service import FollowedRun, Response, RunMessage, RunUser, is_no_response
from uetproto.engine.pds.states import State
from uetproto.engine.train import LEAST, Train, TrainAck
from uetproto.engine.train_splits import Split
from uetproto.errors import RemoteError
from uetproto.wire.headers import uet_pds
from uetproto.wire.headers.uet_pds import AckReq, PdsType
from uetproto.wire.serial import diff32
from uetproto.wire.tuples import PdsAckHeader, PdsRudReqHeader

if TYPE_CHECKING:
    from uetproto.engine.pds.sublayer import Pds

_M32 = 0xFFFFFFFF
_SIGN = 1 << 31
_ESTABLISHED, _ROD, _ACK, _NO_REQ = State.ESTABLISHED, Mode.ROD, PdsType.ACK, AckReq.NONE
_TURN_AT = uet_pds.RUD_REQ.offset_of("clear_psn_offset") // 8
_TURN_END = uet_pds.RUD_REQ.offset_of("spdcid") // 8
_CONTROL, _NO_TRIM = TrafficClass.CONTROL, Trim.NO
_CACK_AT = uet_pds.ACK.offset_of("cack_psn") // 8


def use_trains(owner: "Pds") -> bool:
    """Make trains from now on. Return False if the configuration allows none."""
    split = split_of(owner.config)
    if owner.objects:
        split = Split.OBJECTS
    elif owner.congestion is not None:
        split = Split.CONGESTION_CONTROL
    owner.tally.network = split
    owner.trains = split is None
    return owner.trains


def split_of(config: PdsConfig) -> Split | None:
    """Return the condition by which these parameters allow no trains, or None."""
    if config.enb_ack_per_pkt:
        return Split.ACK_PER_PACKET
    if config.clear_source != "explicit" or config.clear_at != "packet":
        return Split.CLEARS
    return Split.PROBES if config.inferred_loss in PROBING else None


# Sending


def send_train(pdc: Pdc, now: int, most: int) -> int:
    """Send the next packets of the open message as a train, at most `most` of them. Return their number, or 0 if
    `source.send` must send the next packet."""
    message, tx, owner = pdc.open_message, pdc.tx, pdc.owner
    sender = cast(RunMessage, message)
    run = _split_at_source(pdc, most) or sender.next_run(most)
    if isinstance(run, Split):
        owner.tally.source[run.number] += 1
        return 0
    assert message is not None
    payloads = run.payloads
    count, size, psn, clear = len(payloads), len(payloads[0]), tx.next, (tx.una - 1) & _M32
    head = PdsRudReqHeader.pack(message.next_hdr, 0, 0, 0, psn, pdc.local_id, pdc.peer_id, type=int(pdc.mode))
    start, end = head[:_TURN_AT], head[_TURN_END:] + run.front
    psns: Sequence[int] = range(psn, psn + count) if psn + count <= _M32 else [(psn + i) & _M32 for i in range(count)]
    first = -((psn - clear) & _M32)
    layout = _layout(len(end), len(run.tail))
    heads = list(map(
        layout.pack, repeat(start), range(first, first - count, -1), psns, repeat(end),
        repeat(size), range(run.offset, run.offset + count * size, size), repeat(run.tail),
    ))  # fmt: skip
    if pdc.mode is _ROD:
        entropies = [pdc.entropy] * count
    else:
        entropies = pdc.next_entropies(count)
    owner.out.append(Train(owner.address, pdc.peer, heads, payloads, entropies, owner.ip_version, layout=layout))
    tx.track_run(SendRun(psn, sender, run.first, heads, payloads, clear), now)
    pdc.counters.data_tx += count
    owner.tally.made += 1
    at = tx.runs[-1].rto_at
    if at < pdc.wake_at:
        owner.wake(pdc, at)
    if clear != pdc.clear_sent and diff32(clear, pdc.clear_sent) > 0:
        pdc.clear_sent = clear
    return count


def _split_at_source(pdc: Pdc, most: int) -> Split | None:
    """Return why the next packet of a PDC goes by itself, whatever its message is, or None."""
    tx = pdc.tx
    if pdc.open_message is None:
        return Split.EDGE
    if most < LEAST:
        return Split.ROOM
    if pdc.locks:
        return Split.LOCKED
    if pdc.state is not _ESTABLISHED:
        return Split.NOT_ESTABLISHED
    if pdc.clear_at != NEVER or pdc.clear_owed:
        return Split.CLEAR_DUE
    return Split.LAST_PSNS if (tx.next + most - tx.start) & _M32 >= NEAR_PSN_LIMIT else None


_LAYOUTS: dict[tuple[int, int], Struct] = {}


def _layout(between: int, behind: int) -> Struct:
    """Return the layout of a transport header with so many bytes between the PSN and the position of the payload, and
    behind it. Its parts are the bytes before clear_psn_offset, this offset, the PSN, the bytes between, payload_length,
    message_offset, and the bytes behind."""
    found = _LAYOUTS.get((between, behind))
    if found is None:
        found = _LAYOUTS[between, behind] = Struct(f">{_TURN_AT}shI{between}sII{behind}s")
    return found


# Receiving


class ReceivedTrain:
    """A received train takes packets that arrive in order (`train.ArrivingRun`)."""

    __slots__ = (
        "_ack_parts", "_acks", "_add", "_answered", "_clear", "_followed", "_most", "_owner", "_pdc", "_plain",
        "_polled", "_psn", "_train", "apart", "place", "quiet_to",
    )  # fmt: skip

    answers = True

    def __init__(self, owner: "Pds", pdc: Pdc, train: Train, request: Request, followed: FollowedRun) -> None:
        self._owner = owner
        self._pdc = pdc
        self._train = train
        self._psn = request.psn
        self._clear = request.clear_psn
        self._followed = followed
        least = pdc.config.ack_gen_min_pkt_add
        size = len(train.payloads[0])
        self._add = size if size > least else least
        self._most = max(pdc.config.ack_gen_trigger - 1, 0) // self._add
        self._polled = self._plain = False
        self._acks = self._answered = 0
        """Number of packets that `answer` has answered and `settle` has not processed, and index of the last one."""
        self._ack_parts: tuple[bytes, bytes] | None = None
        self.quiet_to = 0
        self.apart = False
        self.place = followed.place

    def settle(self, index: int, count: int, now: int) -> None:
        pdc = self._pdc
        rx, clear = pdc.rx, self._clear
        if clear != rx.max_clear:
            if diff32(clear, rx.max_clear) > 0:
                rx.max_clear = clear
            pdc.stored_at = NEVER
        rx.cack = rx.max_rcvd = psn = (self._psn + index) & _M32
        if diff32(psn, rx.sack_track) > 0:
            rx.sack_track = psn
        self._followed.settle(index + 1 - count, count, now)
        pdc.counters.data_rx += count
        if self._acks:
            pdc.counters.ack_tx += self._acks
            pdc.ack_gen_count = (index - self._answered) * self._add
            self._acks = 0
        else:
            pdc.ack_gen_count += count * self._add
        pdc.touched = now

    def answer(self, index: int) -> TrainAck | None:
        if not self._plain:
            return None
        pdc, owner, answer, parts = self._pdc, self._owner, self._followed.answer, self._ack_parts
        if parts is None:
            header = PdsAckHeader.pack(answer.next_hdr, 0, 0, _NO_REQ, 0, 0, pdc.local_id, pdc.peer_id)
            parts = self._ack_parts = header[:_CACK_AT], header[_CACK_AT + 4 :] + answer.header
        self.quiet_to = index + 1 + self._most
        self._acks += 1
        self._answered = index
        cack = (self._psn + index) & _M32
        packet = Datagram(
            owner.address, pdc.peer, cack.to_bytes(4, "big").join(parts), b"", _CONTROL, self._train.entropies[index],
            False, _NO_TRIM, owner.ip_version,
        )  # fmt: skip
        if not self._polled:
            owner.out.append(packet)
        return TrainAck(packet, cack, pdc.peer_id, pdc.local_id, answer)

    def due(self, index: int, count: int, now: int) -> TrainAck:
        self.settle(index, count, now)
        pdc, out, answer = self._pdc, self._owner.out, self._followed.answer
        self.quiet_to = index + 1 + self._most
        psn = (self._psn + index) & _M32
        send_ack(pdc, psn, answer.next_hdr, answer.header, False, 0, _NO_REQ, self._train.entropies[index])
        packet = out.pop() if self._polled else out[-1]
        return TrainAck(packet, psn, pdc.peer_id if self._plain else None, pdc.local_id, answer)

    def renew(self, index: int, polled: bool) -> bool:
        split = self._split_at(index, polled)
        if split is not None:
            self._owner.tally.target[split.number] += 1
            return False
        pdc = self._pdc
        rx, config = pdc.rx, pdc.config
        self._polled = polled
        self._plain = (
            config.ack_cc == "when_gap"
            and rx.mp_range == ASSUMED_RANGE
            and len(self._followed.answer.header) <= config.trimmable_ack_size
        )
        self.quiet_to = index + max((config.ack_gen_trigger - 1 - pdc.ack_gen_count) // self._add, 0)
        self.apart = not self._owner.is_active(pdc)
        return True

    def extend(self, train: Train) -> bool:
        last, layout = self._train, train.layout
        if layout is None or layout is not last.layout or train.src != last.src or train.dst != last.dst:
            return False
        count = len(last.heads)
        start, turn, psn, end, size, offset, tail = layout.unpack(train.heads[0])
        before, _, first, between, length, place, behind = layout.unpack(last.heads[0])
        if (
            start != before or turn >= 0 or psn != (first + count) & _M32 or end != between or size != length
            or offset != place + count * size or tail != behind or not self._followed.extend(offset, train.payloads)
        ):  # fmt: skip
            return False
        self._train = train
        self._psn = psn
        self._clear = (psn + turn) & _M32
        self._answered -= count
        self.quiet_to -= count
        self.place = self._followed.place
        return True

    def _split_at(self, index: int, polled: bool) -> Split | None:
        """Return what distinguishes a packet that arrives now from one that only adds to its message, or None."""
        pdc, owner = self._pdc, self._owner
        rx, config = pdc.rx, pdc.config
        if pdc.state is not _ESTABLISHED:
            return Split.NOT_ESTABLISHED
        if rx.slots or rx.gap_closed or rx.cack != (self._psn + index - 1) & _M32 or rx.max_rcvd != rx.cack:
            return Split.GAP
        if pdc.held or pdc.close_psn is not None or rx.stored or rx.waiting or rx.buffered:
            return Split.RESPONSES
        if diff32(self._clear, rx.cack) > 0:
            return Split.CLEAR_AHEAD
        if config.max_gtd_del < 2 or config.max_packet_buffers < 1:
            return Split.LIMITS
        return self._followed.split_at(index) if owner.is_still(pdc, polled) else Split.BUSY


def admit(owner: "Pds", train: Train, index: int, polled: bool) -> ReceivedTrain | None:
    """Return what takes the packets of a train from packet `index` on, or None if `Pds.receive` must take it."""
    received = _received(owner, train)
    if isinstance(received, Split):
        owner.tally.target[received.number] += 1
        return None
    return received if received.renew(index, polled) else None


def _received(owner: "Pds", train: Train) -> ReceivedTrain | Split:
    """Return what takes the packets of a train, or why none of them can be taken so."""
    head = train.heads[0]
    try:
        request = parse(head)
    except RemoteError:
        return Split.UNKNOWN
    if not isinstance(request, Request) or request.syn or request.retx or request.ar:
        return Split.UNKNOWN
    pdc = owner.pdcs.get(request.dpdcid) if train.dst == owner.address else None
    if pdc is None or pdc.peer != train.src or pdc.peer_id != request.spdcid or pdc.mode is not request.mode:
        return Split.UNKNOWN
    followed = cast(RunUser, owner.user).follow_run(pdc, request.next_hdr, head, request.size, train.payloads)
    return followed if isinstance(followed, Split) else ReceivedTrain(owner, pdc, train, request, followed)


# Acknowledgements


def quiet_acks(owner: "Pds", receiver: int, psn: int, polled: bool) -> int | None:
    """Return how many packets more than one up to `psn` a plain ACK may acknowledge and do nothing but acknowledge
    packets of a message that has more to be acknowledged, or None if the one up to `psn` does more."""
    pdc = owner.pdcs.get(receiver)
    if pdc is None or pdc.state is not _ESTABLISHED:
        found: int | Split = Split.NOT_ESTABLISHED
    elif not owner.is_still(pdc, polled):
        found = Split.BUSY
    elif pdc.config.inferred_loss != "off":
        found = Split.LOSS_INFERRED
    else:
        found = pdc.tx.quiet_behind(psn, pdc.wake_at)
    if isinstance(found, Split):
        owner.tally.ack[found.number] += 1
        return None
    return found


def take_quiet_ack(owner: "Pds", ack: TrainAck, now: int) -> bool:
    """Process an ACK that `quiet_acks` has found to be quiet, without reading its packet. Return False if `Pds.receive`
    must process it."""
    assert ack.receiver is not None
    pdc, answer = owner.pdcs.get(ack.receiver), cast(Response, ack.answer)
    if (
        pdc is None or pdc.peer != ack.packet.src or pdc.peer_id != ack.sender
        or not _acknowledge(pdc, ack.psn, answer.next_hdr, answer.header, now)
    ):  # fmt: skip
        return False
    owner.advance(now)
    owner.received(pdc, now)
    return True


def take_ack_of_trains(pdc: Pdc, ack: Ack, datagram: Datagram, now: int) -> bool:
    """Process an ACK which says no more than that packets of trains arrived in order. Return False if
    `source.take_ack` must process the ACK."""
    if ack.type != _ACK or ack.probe_opaque is not None or ack.req != _NO_REQ or ack.ack_psn != ack.cack_psn:
        return False
    response = datagram.header[ack.size :]
    return not is_no_response(response, ack.next_hdr) and _acknowledge(pdc, ack.cack_psn, ack.next_hdr, response, now)


def _acknowledge(pdc: Pdc, cack: int, next_hdr: int, response: Buffer, now: int) -> bool:
    """Take it that all packets up to `cack` have arrived in order, the last one with a response. Return False, having
    done nothing, if more follows from it."""
    tx = pdc.tx
    if (
        (cack - tx.peer_cack) & _SIGN
        or pdc.state is not _ESTABLISHED or pdc.config.inferred_loss != "off" or tx.mp_range != tx.offered
        or (pdc.clear_wanted != pdc.clear_sent and not (pdc.clear_wanted - pdc.clear_sent) & _SIGN)
    ):  # fmt: skip
        return False
    answered = tx.take_in_order(cack, next_hdr, response)
    if answered is None:
        return False
    message, count = answered.pop()
    if answered:  # the response to ACK_PSN comes first
        message.answered(1, now)
        for other, others in answered:
            other.answered(others, now)
        count -= 1
    if count:
        message.answered(count, now)
    if tx.flying:
        at = tx.deadline()
        if at < pdc.wake_at:
            pdc.owner.wake(pdc, at)
    else:
        tx.drained()
    return True
