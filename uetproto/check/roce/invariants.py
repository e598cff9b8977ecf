# SPDX-License-Identifier: GPL-2.0-only
"""This module has the numbered invariants of roce.md §15, each as one function.

The docstring of the function `roce_N_name` states invariant N.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from uetproto.check.registry import Check, Disruption, Registry
from uetproto.check.roce.endpoint import RoceEndpoint
from uetproto.check.roce.model import REGION, WINDOW, MemoryAccess, PlaceUse, PostedReceive, PostedWork, QpShadow
from uetproto.check.wire import DatagramWire
from uetproto.engine.contract import NEVER, Buffer
from uetproto.engine.roce.config import ENDLESS, timeout_of
from uetproto.engine.roce.contract import Opcode, QpState, QpType, RocePacket, Status, WcOpcode, WorkCompletion
from uetproto.engine.roce.packets import Parsed, parse
from uetproto.engine.roce.psn import MASK, diff
from uetproto.engine.roce.qp import Qp
from uetproto.engine.roce.requester import RcRequester
from uetproto.engine.roce.responder import RcResponder
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.roce import BTH, RESPONSES, SEQUENCES, Operation, rnr_wait_us


class RoceScope(Enum):
    """The scope of an invariant says when the invariant is checked, and with which arguments."""

    COMPLETION = "a completion: state, node, done (`CompletionRecord`)"
    MEMORY = "the engine touches memory: state, node, access"
    STEP = "both ends after a step: state, node"
    PACKET = "a packet that leaves: state, node, parsed"
    FIRST = "a send that appears on the wire: state, node, work"
    TIME = "time has passed, or nothing is left to do: state, node, at_end"
    PAIR = "two runs, the numbers of the second shifted: state, other, number of the first packet to compare"
    BYTES = "any bytes, from the BTH on: data"


def _on(*services: QpType) -> Callable[[QpType], bool]:
    return lambda service: service in services


ROCE: Registry[RoceScope] = Registry("roce", _on(*QpType))
invariant, broken = ROCE.invariant, ROCE.broken

INVARIANTS = ROCE.entries
"""Maps the number of an invariant in roce.md §15 to its entry in the registry."""


def plan(kind: QpType, disruptions: Disruption) -> dict[RoceScope, tuple[Check, ...]]:
    """Return the checks of each scope that apply to a transport service after `disruptions`."""
    found = ROCE.holding(disruptions, kind)
    return {scope: tuple(entry.check for entry in found if entry.scope is scope) for scope in RoceScope}


class RoceState(Protocol):
    """This protocol describes what the invariants read of a simulator."""

    kind: QpType
    wire: DatagramWire
    now: int
    limits: list[int]
    disruptions: Disruption
    first_msn: int
    shadows: list[QpShadow]
    ends: tuple[RoceEndpoint, ...]

    @property
    def sent(self) -> int: ...

    @property
    def innocent(self) -> bool: ...

    @property
    def good(self) -> bool: ...

    def node_of(self, address: int) -> int: ...

    def peer(self, node: int) -> QpShadow: ...

    def order(self, node: int) -> Any: ...


@dataclass(slots=True)
class CompletionRecord:
    """This record describes a completion, and the work request that it completes."""

    event: WorkCompletion
    work: PostedWork | PostedReceive | None
    """Work request with the wr_id of the completion. It is None if no such request is posted."""
    skipped: list[Any]
    """Older work requests of the same queue that have no completion yet."""
    flushing: bool
    """Whether a work request of the queue has failed before this completion. Later work requests are then flushed."""
    message: PostedWork | None = None
    """Send of the peer that filled the completed receive. It is None if a send completes, or if the send that filled
    the receive is not known."""
    before: int = 0
    """Number of bytes that precede the message in the buffer of a receive; it is 0 except on UD."""


@invariant(1, RoceScope.COMPLETION)
def roce_1_once_and_in_order(state: RoceState, node: int, done: CompletionRecord) -> None:
    """A work request completes at most once, and those of a queue complete in the order of posting. After a request
    was flushed, no later one succeeds."""
    event, work = done.event, done.work
    name = f"{'receive' if event.receive else 'send'} {event.wr_id} of {'ab'[node]}"
    if work is None:
        raise broken(1, f"{name} is not posted, or was complete")
    for other in done.skipped:
        if done.flushing or type(other) is PostedReceive or other.signaled:
            raise broken(1, f"{name} is complete before {other.wr_id}")
    if event.ok and type(work) is PostedWork and not work.signaled:
        raise broken(1, f"{name} is not signaled")
    flushed = event.status is Status.WR_FLUSH_ERR
    if done.flushing and not flushed:
        raise broken(1, f"{name} ends with {event.status.name} after an error")
    if flushed and state.ends[node].qp.state not in (QpState.ERR, QpState.SQE):
        raise broken(1, f"{name} is flushed in {state.ends[node].qp.state.name}")


@invariant(2, RoceScope.COMPLETION, when=_on(QpType.RC), void_after=Disruption.FORGED)
def roce_2_bytes_are_equal(state: RoceState, node: int, done: CompletionRecord) -> None:
    """After a successful SEND, WRITE or READ, source and destination have equal bytes."""
    if not done.event.ok:
        return
    if done.message is not None:
        _received(2, done, done.message)
    elif type(done.work) is PostedWork:
        for work in (*done.skipped, done.work):
            place = work.near if work.answered else work.far
            if place is not None and place.data != work.data:
                raise broken(2, f"{work.opcode.name} {work.wr_id} of {'ab'[node]} succeeded, its bytes differ")
            if work.receives and not work.executed:
                raise broken(2, f"{work.opcode.name} {work.wr_id} of {'ab'[node]} succeeded, no receive took it")


def _received(number: int, done: CompletionRecord, message: PostedWork) -> None:
    """Raise `InvariantViolation` unless the receive holds the message, and its completion says so."""
    event, receive, before = done.event, done.work, done.before
    assert type(receive) is PostedReceive
    name = f"receive {event.wr_id} of send {message.wr_id}"
    if event.byte_len != message.length + before:
        raise broken(number, f"{name} says {event.byte_len} bytes, not {message.length + before}")
    immediate = message.wr_id if message.opcode in _WITH_IMM else None
    if event.imm_data != immediate:
        raise broken(number, f"{name} has the immediate {event.imm_data}, not {immediate}")
    if message.opcode is Opcode.RDMA_WRITE_WITH_IMM:
        there = message.far.data if message.far is not None else b""
        opcode = WcOpcode.RECV_RDMA_WITH_IMM
    else:
        there = receive.place.data[before : before + message.length]
        opcode = WcOpcode.RECV
    if event.opcode is not opcode:
        raise broken(number, f"{name} is called {event.opcode.name}")
    if there != message.data:
        raise broken(number, f"{name}: its bytes differ")


_WITH_IMM = (Opcode.SEND_WITH_IMM, Opcode.RDMA_WRITE_WITH_IMM)


@invariant(3, RoceScope.MEMORY, when=_on(QpType.RC), void_after=Disruption.FORGED)
def roce_3_atomics_act_once(state: RoceState, node: int, access: MemoryAccess) -> None:
    """An atomic acts exactly once however often it is sent."""
    place = access.place
    if place is None or access.data is None:
        if place is not None and place.use is PlaceUse.COUNTER and state.peer(node).writing is None:
            raise broken(3, f"an ATOMIC acts on the counter of {'ab'[node]}, none is due")
        return
    if place.use is PlaceUse.COUNTER:
        work = state.peer(node).writing
        wanted = None if work is None else work.after(work.old)
        value = int.from_bytes(bytes(access.data), state.order(node))
        if value != wanted:
            raise broken(3, f"an ATOMIC writes {value:#x} to the counter of {'ab'[node]}; due:", wanted)
    elif type(place.owner) is PostedWork and place.owner.atomic:
        found = bytes(access.data)
        if found != place.owner.data[access.at : access.at + access.length]:
            name = f"ATOMIC {place.owner.wr_id} of {'ab'[node]}"
            raise broken(3, f"{name} gets {found.hex()}, not the old value", place.owner.old)


@invariant(4, RoceScope.STEP, when=_on(QpType.RC), void_after=Disruption.FORGED)
def roce_4_msn(state: RoceState, node: int) -> None:
    """The MSN plus the messages not yet executed is the number of messages started."""
    responder = state.ends[1 - node].qp.responder
    if not isinstance(responder, RcResponder):
        return
    shadow = state.shadows[node]
    msn = responder.msn - state.first_msn & MASK
    if msn != shadow.executed & MASK:
        raise broken(4, f"the MSN of {'ab'[1 - node]} counts {msn} messages, executed are {shadow.executed}")


@invariant(5, RoceScope.PACKET, when=_on(QpType.RC), void_after=Disruption.FORGED)
def roce_5_acknowledged_was_sent(state: RoceState, node: int, parsed: Parsed) -> None:
    """No PSN is acknowledged that was not sent, or whose request was not executed."""
    if parsed.operation not in RESPONSES:
        return
    shadow = state.shadows[1 - node]
    psn = shadow.next + diff(parsed.psn, shadow.next & MASK)
    if not shadow.start <= psn < shadow.next:
        raise broken(5, f"{'ab'[node]} answers a PSN that was never sent:", parsed.psn)
    refused = parsed.operation == Operation.ACKNOWLEDGE and parsed.values["syndrome"] & 0x60
    if psn >= shadow.epsn + bool(refused):
        raise broken(5, f"{'ab'[node]} acknowledges a PSN that it has not executed:", parsed.psn)


@invariant(6, RoceScope.COMPLETION, void_after=Disruption.FORGED)
def roce_6_one_message_a_receive(state: RoceState, node: int, done: CompletionRecord) -> None:
    """A receive is used by exactly one message."""
    if done.event.receive and done.event.ok and done.message is None and state.kind is QpType.RC:
        raise broken(6, f"receive {done.event.wr_id} of {'ab'[node]} is complete, no message is due")


@invariant(7, RoceScope.MEMORY)
def roce_7_nothing_else_is_written(state: RoceState, node: int, access: MemoryAccess) -> None:
    """No byte outside the memory of a request or a receive is written, whether before or after a NAK."""
    if access.data is None:
        return
    if state.disruptions and access.where == WINDOW and 0 <= access.at <= REGION - access.length:
        return
    place = access.place
    name = f"{access.length} bytes are written at {access.at:#x} of the {access.where} of {'ab'[node]}"
    if place is None:
        raise broken(7, f"{name}, where no place is")
    if not place.open:
        raise broken(7, f"{name}, {place.use.value}")
    if state.disruptions:
        return
    if place.use is PlaceUse.RECEIVE and place.owner is not state.shadows[node].receives[0]:
        raise broken(7, f"{name}, a receive behind the one in turn")
    in_order = state.kind is QpType.RC and place.use is not PlaceUse.COUNTER
    if in_order and access.at != place.filled:
        raise broken(7, f"{name}, where {place.filled} bytes have come")


@invariant(8, RoceScope.FIRST, when=_on(QpType.RC))
def roce_8_answers_awaited(state: RoceState, node: int, work: PostedWork) -> None:
    """At most max_rd_atomic READs and ATOMICs are outstanding."""
    qp = state.ends[node].qp
    if not work.answered or not isinstance(qp.requester, RcRequester):
        return
    una = qp.requester.una
    out = sum(one.answered and one.end > una for one in reversed(state.shadows[node].begun[-NEARBY:]))
    if out > qp.attributes.max_rd_atomic:
        raise broken(8, f"{out} READs and ATOMICs of {'ab'[node]} are out, of {qp.attributes.max_rd_atomic}")


NEARBY = 1024
"""Number of the newest sends that invariant 8 examines. Fewer sends than this can be outstanding."""


@invariant(9, RoceScope.TIME)
def roce_9_every_request_ends(state: RoceState, node: int, at_end: bool) -> None:
    """With rnr_retry < 7 and timeout > 0, every request completes, whatever packets are lost.

    A request succeeds if retry counts are infinite, no step had a fault, and all packets arrive at last.
    """
    qp, shadow = state.ends[node].qp, state.shadows[node]
    if at_end and state.innocent:
        wrong = [status.name for status in shadow.errors if status not in spent(qp)]
        if wrong:
            raise broken(9, f"no step had a fault, but a request of {'ab'[node]} ended with {wrong[0]}")
    waiting = [work.wr_id for work in shadow.sends if work.signaled]
    if qp.state is QpState.ERR and not qp.receives.shared:
        waiting += [receive.wr_id for receive in shadow.receives]
    if waiting and qp.state in (QpState.ERR, QpState.SQE):
        raise broken(9, f"{'ab'[node]} is in {qp.state.name}, not flushed are", *waiting)
    if qp.state is not QpState.RTS or qp.requester is None or state.limits[node] != NEVER:
        return
    if not waiting and not qp.requester.posted_now:
        return
    silence = state.now - shadow.heard
    if at_end and (ends(qp) or state.good):
        raise broken(9, f"sends of {'ab'[node]} without end:", *waiting)
    if ends(qp) and silence > patience(qp):
        raise broken(9, f"sends of {'ab'[node]} are awaited after {silence} ps of silence:", *waiting)


def endless(qp: Qp) -> bool:
    """Return whether a queue pair repeats requests without limit after time-outs and NAKs."""
    return qp.attributes.retry_cnt == ENDLESS and qp.hca.config.retry_cnt_seven == "endless"


def ends(qp: Qp) -> bool:
    """Return whether every request of a queue pair completes, even if all packets are lost."""
    attributes = qp.attributes
    return qp.kind is not QpType.RC or bool(
        attributes.rnr_retry != ENDLESS and attributes.timeout and not endless(qp) and attributes.max_rd_atomic
    )


def spent(qp: Qp) -> tuple[Status, ...]:
    """Return the statuses with which a request may fail although no step had a fault: those of exhausted retries."""
    found = [] if endless(qp) else [Status.RETRY_EXC_ERR]
    found += [] if qp.attributes.rnr_retry == ENDLESS else [Status.RNR_RETRY_EXC_ERR]
    return tuple(found) if qp.kind is QpType.RC else ()


def patience(qp: Qp) -> int:
    """Return the longest time in picoseconds from the last arrival of a packet to the completion of a request. It is
    the sum of all time-outs, one more time-out, and one RNR wait."""
    wait = timeout_of(qp.attributes.timeout, qp.hca.config.timeout_factor)
    return (qp.attributes.retry_cnt + 2) * wait + rnr_wait_us(0) * 10**6


@invariant(10, RoceScope.PAIR, void_after=Disruption.FORGED)
def roce_10_wrap(state: RoceState, other: RoceState, first: int) -> None:
    """A wrap of PSN or MSN at 2^24 changes nothing: a run with all PSNs and MSNs shifted sends the same packets, with
    shifted numbers."""
    if state.sent != other.sent:
        raise broken(10, f"the shifted run has sent {other.sent} packets in place of {state.sent}")
    for number in range(first, state.sent):
        one, two = state.wire.recent(number), other.wire.recent(number)
        if one is not None and two is not None and shifted(state, one, other) != (two.src, bytes(two.header)):
            raise broken(10, f"packet {number} of the shifted run differs")


def shifted(state: RoceState, packet: Any, other: RoceState) -> tuple[int, bytes]:
    """Return the sender and the bytes of a packet after its PSN and MSN were shifted to the numbers of the
    other run."""
    data = bytearray(packet.header)
    parsed = parse(RocePacket(packet.src, packet.dst, bytes(data)))
    assert parsed is not None
    if parsed.opcode >> 5 != state.kind:  # a CNP has no number
        return packet.src, bytes(data)
    node = state.node_of(packet.src)
    numbered = 1 - node if parsed.operation in RESPONSES else node
    shift = other.shadows[numbered].start - state.shadows[numbered].start
    data[9:12] = (parsed.psn + shift & MASK).to_bytes(3, "big")
    if "msn" in parsed.values:
        msn = parsed.values["msn"] + other.first_msn - state.first_msn & MASK
        data[13:16] = msn.to_bytes(3, "big")
    return packet.src, bytes(data)


@invariant(11, RoceScope.BYTES)
def roce_11_identity(data: Buffer) -> None:
    """Decoding any bytes and encoding them again gives the same bytes."""
    if b"".join(again(data)) != bytes(data):
        raise broken(11, f"decoded and encoded again these bytes differ: {bytes(data).hex()}")


def again(data: Buffer) -> Iterator[bytes]:
    """Yield the bytes of each header after the header was decoded and encoded again. Then yield the remaining bytes."""
    at = 0
    if len(data) >= BTH.size:
        for header in (BTH, *SEQUENCES.get(data[0], ())):
            if len(data) < at + header.size:
                break
            codec = codec_of(header)
            yield codec.encode(codec.decode(data, at))
            at += header.size
    yield bytes(data[at:])


@invariant(12, RoceScope.COMPLETION, when=_on(QpType.UC, QpType.UD), void_after=Disruption.FORGED)
def roce_12_whole_messages(state: RoceState, node: int, done: CompletionRecord) -> None:
    """A receive on UC or UD completes once, with one whole message."""
    if not done.event.receive or not done.event.ok:
        return
    if done.message is None:
        raise broken(12, f"receive {done.event.wr_id} of {'ab'[node]} holds no message that was sent")
    _received(12, done, done.message)
