"""The numbered invariants of roce.md §15, one function each: `roce_N_name`; its docstring is the statement.

As in `registry`, a function gets what its scope says and raises `Violation`; `when` says where it holds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from uetproto.check.registry import Mishap, Violation
from uetproto.check.roce.model import REGION, WINDOW, Receive, Touch, Use, Work
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

if TYPE_CHECKING:
    from uetproto.check.roce.machine import RoceWorld


class Scope(Enum):
    """What an invariant is about: when it is asked, and its arguments."""

    COMPLETION = "a completion: world, node, done (`Done`)"
    MEMORY = "the engine touches memory: world, node, touch"
    STEP = "both ends after a step: world, node"
    PACKET = "a packet that leaves: world, node, parsed"
    FIRST = "a send that appears on the wire: world, node, work"
    TIME = "time has passed, or all has come to rest: world, node, rest"
    PAIR = "two worlds, the numbers of the second shifted: world, other, number of the first packet to compare"
    BYTES = "any bytes, from the BTH on: data"


Check = Callable[..., None]
_F = TypeVar("_F", bound=Check)
_EVERYWHERE = tuple(QpType)
_RC = (QpType.RC,)


@dataclass(frozen=True, slots=True)
class Invariant:
    """An entry of the register."""

    number: int
    scope: Scope
    check: Check
    when: tuple[QpType, ...]
    """Services that have it."""
    void_after: Mishap
    """Mishaps after which nobody can ask for it."""

    @property
    def statement(self) -> str:
        return self.check.__doc__ or ""


INVARIANTS: dict[int, Invariant] = {}
"""By number of roce.md §15."""


def invariant(
    number: int, scope: Scope, when: tuple[QpType, ...] = _EVERYWHERE, void_after: Mishap = Mishap.NONE
) -> Callable[[_F], _F]:
    """Registers `roce_N_…`."""

    def register(check: _F) -> _F:
        assert check.__name__.startswith(f"roce_{number}_"), check.__name__
        assert number not in INVARIANTS, number
        INVARIANTS[number] = Invariant(number, scope, check, when, void_after)
        return check

    return register


def broken(number: int, text: str, *values: Any) -> Violation:
    """The violation of an invariant of roce.md §15."""
    return Violation(f"roce {number}", text, *values)


def plan(kind: QpType, mishaps: Mishap) -> dict[Scope, tuple[Check, ...]]:
    """The checks that hold on a service."""
    found = [i for i in INVARIANTS.values() if kind in i.when and not i.void_after & mishaps]
    return {scope: tuple(i.check for i in found if i.scope is scope) for scope in Scope}


@dataclass(slots=True)
class Done:
    """A completion, and what it is about."""

    event: WorkCompletion
    work: Work | Receive | None
    """None: nobody waits for it."""
    skipped: list[Any]
    """Older work of the same queue without a completion."""
    flushing: bool
    """Something of the queue has ended with an error before."""
    message: Work | None = None
    """Of a receive: the send of the peer that used it."""
    before: int = 0
    """Bytes of a receive before the message (UD)."""


@invariant(1, Scope.COMPLETION)
def roce_1_once_and_in_order(world: "RoceWorld", node: int, done: Done) -> None:
    """Each work request completes at most once; in posting order per queue; after a flush nothing more."""
    event, work = done.event, done.work
    name = f"{'receive' if event.receive else 'send'} {event.wr_id} of {'ab'[node]}"
    if work is None:
        raise broken(1, f"{name} is not posted, or was complete")
    for other in done.skipped:
        if done.flushing or type(other) is Receive or other.signaled:
            raise broken(1, f"{name} is complete before {other.wr_id}")
    if event.ok and type(work) is Work and not work.signaled:
        raise broken(1, f"{name} is not signaled")
    flushed = event.status is Status.WR_FLUSH_ERR
    if done.flushing and not flushed:
        raise broken(1, f"{name} ends with {event.status.name} after an error")
    if flushed and world.ends[node].qp.state not in (QpState.ERR, QpState.SQE):
        raise broken(1, f"{name} is flushed in {world.ends[node].qp.state.name}")


@invariant(2, Scope.COMPLETION, _RC, void_after=Mishap.FORGED)
def roce_2_bytes_are_equal(world: "RoceWorld", node: int, done: Done) -> None:
    """A successful SEND, WRITE, READ leaves bytes equal."""
    if not done.event.ok:
        return
    if done.message is not None:
        _received(2, done, done.message)
    elif type(done.work) is Work:
        for work in (*done.skipped, done.work):
            place = work.near if work.answered else work.far
            if place is not None and place.data != work.data:
                raise broken(2, f"{work.opcode.name} {work.wr_id} of {'ab'[node]} ended well, its bytes differ")
            if work.receives and not work.executed:
                raise broken(2, f"{work.opcode.name} {work.wr_id} of {'ab'[node]} ended well, nobody received it")


def _received(number: int, done: Done, message: Work) -> None:
    """The receive holds the message, and its completion says so."""
    event, receive, before = done.event, done.work, done.before
    assert type(receive) is Receive
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


@invariant(3, Scope.MEMORY, _RC, void_after=Mishap.FORGED)
def roce_3_atomics_act_once(world: "RoceWorld", node: int, touch: Touch) -> None:
    """An atomic acts exactly once however often it is sent."""
    place = touch.place
    if place is None or touch.data is None:
        if place is not None and place.use is Use.COUNTER and world.peer(node).writing is None:
            raise broken(3, f"an ATOMIC acts on the counter of {'ab'[node]}, none is due")
        return
    if place.use is Use.COUNTER:
        work = world.peer(node).writing
        wanted = None if work is None else work.after(work.old)
        value = int.from_bytes(bytes(touch.data), world.order(node))
        if value != wanted:
            raise broken(3, f"an ATOMIC writes {value:#x} to the counter of {'ab'[node]}; due:", wanted)
    elif type(place.owner) is Work and place.owner.atomic:
        found = bytes(touch.data)
        if found != place.owner.data[touch.at : touch.at + touch.length]:
            name = f"ATOMIC {place.owner.wr_id} of {'ab'[node]}"
            raise broken(3, f"{name} gets {found.hex()}, not the old value", place.owner.old)


@invariant(4, Scope.STEP, _RC, void_after=Mishap.FORGED)
def roce_4_msn(world: "RoceWorld", node: int) -> None:
    """MSN + messages not yet executed = messages started."""
    responder = world.ends[1 - node].qp.responder
    if not isinstance(responder, RcResponder):
        return
    ledger = world.ledgers[node]
    msn = responder.msn - world.first_msn & MASK
    if msn != ledger.executed & MASK:
        raise broken(4, f"the MSN of {'ab'[1 - node]} counts {msn} messages, executed are {ledger.executed}")


@invariant(5, Scope.PACKET, _RC, void_after=Mishap.FORGED)
def roce_5_acknowledged_was_sent(world: "RoceWorld", node: int, parsed: Parsed) -> None:
    """No PSN is acknowledged that was not sent; nor is one that was not executed."""
    if parsed.operation not in RESPONSES:
        return
    ledger = world.ledgers[1 - node]
    psn = ledger.next + diff(parsed.psn, ledger.next & MASK)
    if not ledger.start <= psn < ledger.next:
        raise broken(5, f"{'ab'[node]} answers a PSN that was never sent:", parsed.psn)
    refused = parsed.operation == Operation.ACKNOWLEDGE and parsed.values["syndrome"] & 0x60
    if psn >= ledger.epsn + bool(refused):
        raise broken(5, f"{'ab'[node]} acknowledges a PSN that it has not executed:", parsed.psn)


@invariant(6, Scope.COMPLETION, void_after=Mishap.FORGED)
def roce_6_one_message_a_receive(world: "RoceWorld", node: int, done: Done) -> None:
    """A receive is used by exactly one message."""
    if done.event.receive and done.event.ok and done.message is None and world.kind is QpType.RC:
        raise broken(6, f"receive {done.event.wr_id} of {'ab'[node]} is complete, no message is due")


@invariant(7, Scope.MEMORY)
def roce_7_nothing_else_is_written(world: "RoceWorld", node: int, touch: Touch) -> None:
    """No byte outside the region or receive is written, before or after any NAK."""
    if touch.data is None:
        return
    if world.mishaps and touch.where == WINDOW and 0 <= touch.at <= REGION - touch.length:  # who has the key may
        return
    place = touch.place
    name = f"{touch.length} bytes are written at {touch.at:#x} of the {touch.where} of {'ab'[node]}"
    if place is None:
        raise broken(7, f"{name}, where nobody has any")
    if not place.open:
        raise broken(7, f"{name}, {place.use.value}")
    if world.mishaps:
        return
    if place.use is Use.RECEIVE and place.owner is not world.ledgers[node].receives[0]:
        raise broken(7, f"{name}, a receive behind the one in turn")
    in_order = world.kind is QpType.RC and place.use is not Use.COUNTER
    if in_order and touch.at != place.filled:
        raise broken(7, f"{name}, where {place.filled} bytes have come")


@invariant(8, Scope.FIRST, _RC)
def roce_8_answers_awaited(world: "RoceWorld", node: int, work: Work) -> None:
    """READs + ATOMICs out ≤ max_rd_atomic."""
    qp = world.ends[node].qp
    if not work.answered or not isinstance(qp.requester, RcRequester):
        return
    una = qp.requester.una
    out = sum(one.answered and one.end > una for one in reversed(world.ledgers[node].begun[-NEARBY:]))
    if out > qp.attributes.max_rd_atomic:
        raise broken(8, f"{out} READs and ATOMICs of {'ab'[node]} are out, of {qp.attributes.max_rd_atomic}")


NEARBY = 1024
"""More than are ever out."""


@invariant(9, Scope.TIME)
def roce_9_every_request_ends(world: "RoceWorld", node: int, rest: bool) -> None:
    """With rnr_retry < 7, timeout > 0 and any loss, every request ends.

    And it ends well where counts have no end, nobody did wrong, and all arrives at last.
    """
    qp, ledger = world.ends[node].qp, world.ledgers[node]
    if rest and world.innocent:
        wrong = [status.name for status in ledger.errors if status not in spent(qp)]
        if wrong:
            raise broken(9, f"nobody did wrong, but a request of {'ab'[node]} ended with {wrong[0]}")
    waiting = [work.wr_id for work in ledger.sends if work.signaled]
    if qp.state is QpState.ERR and not qp.receives.shared:
        waiting += [receive.wr_id for receive in ledger.receives]
    if waiting and qp.state in (QpState.ERR, QpState.SQE):
        raise broken(9, f"{'ab'[node]} is in {qp.state.name}, not flushed are", *waiting)
    if qp.state is not QpState.RTS or qp.requester is None or world.limits[node] != NEVER:
        return
    if not waiting and not qp.requester.posted_now:
        return
    silence = world.now - ledger.heard
    if rest and (ends(qp) or world.good):
        raise broken(9, f"sends of {'ab'[node]} without end:", *waiting)
    if ends(qp) and silence > patience(qp):
        raise broken(9, f"sends of {'ab'[node]} are awaited after {silence} ps of silence:", *waiting)


def endless(qp: Qp) -> bool:
    """Time-outs and NAKs may go on for ever."""
    return qp.attributes.retry_cnt == ENDLESS and qp.hca.config.retry_cnt_seven == "endless"


def ends(qp: Qp) -> bool:
    """Every request ends, whatever the network does."""
    attributes = qp.attributes
    return qp.kind is not QpType.RC or bool(
        attributes.rnr_retry != ENDLESS and attributes.timeout and not endless(qp) and attributes.max_rd_atomic
    )


def spent(qp: Qp) -> tuple[Status, ...]:
    """How a request may end without a fault of anybody."""
    found = [] if endless(qp) else [Status.RETRY_EXC_ERR]
    found += [] if qp.attributes.rnr_retry == ENDLESS else [Status.RNR_RETRY_EXC_ERR]
    return tuple(found) if qp.kind is QpType.RC else ()


def patience(qp: Qp) -> int:
    """From the last that came to the end of everything: all time-outs, and one more; once the longest RNR wait."""
    wait = timeout_of(qp.attributes.timeout, qp.hca.config.timeout_factor)
    return (qp.attributes.retry_cnt + 2) * wait + rnr_wait_us(0) * 10**6


@invariant(10, Scope.PAIR, void_after=Mishap.FORGED)
def roce_10_wrap(world: "RoceWorld", other: "RoceWorld", first: int) -> None:
    """Wrap of PSN and MSN at 2^24 changes nothing: what another world does is the same with all numbers shifted."""
    if world.sent != other.sent:
        raise broken(10, f"the shifted run has sent {other.sent} packets in place of {world.sent}")
    for number in range(first, world.sent):
        one, two = world.wire.recent(number), other.wire.recent(number)
        if one is not None and two is not None and shifted(world, one, other) != (two.src, bytes(two.header)):
            raise broken(10, f"packet {number} of the shifted run differs")


def shifted(world: "RoceWorld", packet: Any, other: "RoceWorld") -> tuple[int, bytes]:
    """Its sender, and its bytes with the numbers that it has in the other world."""
    data = bytearray(packet.header)
    parsed = parse(RocePacket(packet.src, packet.dst, bytes(data)))
    assert parsed is not None
    if parsed.opcode >> 5 != world.kind:  # a CNP has no number
        return packet.src, bytes(data)
    node = world.node_of(packet.src)
    numbered = 1 - node if parsed.operation in RESPONSES else node
    shift = other.ledgers[numbered].start - world.ledgers[numbered].start
    data[9:12] = (parsed.psn + shift & MASK).to_bytes(3, "big")
    if "msn" in parsed.values:
        msn = parsed.values["msn"] + other.first_msn - world.first_msn & MASK
        data[13:16] = msn.to_bytes(3, "big")
    return packet.src, bytes(data)


@invariant(11, Scope.BYTES)
def roce_11_identity(data: Buffer) -> None:
    """Encode ∘ decode is the identity on any bytes."""
    if b"".join(again(data)) != bytes(data):
        raise broken(11, f"decoded and encoded again these bytes differ: {bytes(data).hex()}")


def again(data: Buffer) -> Iterator[bytes]:
    """The headers, decoded and encoded again, as far as they are there; then the rest."""
    at = 0
    if len(data) >= BTH.size:
        for header in (BTH, *SEQUENCES.get(data[0], ())):
            if len(data) < at + header.size:
                break
            codec = codec_of(header)
            yield codec.encode(codec.decode(data, at))
            at += header.size
    yield bytes(data[at:])


@invariant(12, Scope.COMPLETION, (QpType.UC, QpType.UD), void_after=Mishap.FORGED)
def roce_12_whole_messages(world: "RoceWorld", node: int, done: Done) -> None:
    """A receive on UC or UD completes once, with one whole message."""
    if not done.event.receive or not done.event.ok:
        return
    if done.message is None:
        raise broken(12, f"receive {done.event.wr_id} of {'ab'[node]} holds no message that was sent")
    _received(12, done, done.message)
