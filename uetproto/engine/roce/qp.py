# SPDX-License-Identifier: GPL-2.0-only
"""A queue pair has a state, which determines its behaviour, and attributes (roce.md §6)."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from uetproto.engine.contract import NEVER
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import (
    Access,
    AddressVector,
    AsyncNotice,
    AsyncType,
    PostSend,
    QpState,
    QpType,
    Receive,
    RoceEvent,
    RocePacket,
    SendFlags,
    Status,
    WcOpcode,
    WorkCompletion,
)
from uetproto.engine.roce.dcqcn import Rate
from uetproto.engine.roce.memory import Regions
from uetproto.engine.roce.packets import Parsed, RocePath
from uetproto.engine.roce.psn import MASK
from uetproto.engine.train_splits import Split, TrainTally
from uetproto.errors import LocalError, shown, similar
from uetproto.knobs import knobs_of
from uetproto.wire.tuples import AethHeader

if TYPE_CHECKING:
    from uetproto.engine.roce.trains import FollowedSender

S = QpState

LEGAL: dict[QpState, tuple[QpState, ...]] = {
    S.RESET: (S.INIT,),
    S.INIT: (S.INIT, S.RTR, S.ERR, S.RESET),
    S.RTR: (S.RTS, S.ERR, S.RESET),
    S.RTS: (S.RTS, S.SQD, S.ERR, S.RESET),
    S.SQD: (S.SQD, S.RTS, S.ERR, S.RESET),
    S.SQE: (S.RTS, S.ERR, S.RESET),
    S.ERR: (S.RESET,),
}
"""Legal next states of each state. The change from SQD to RTS is legal only when the send queue is drained."""


class Behaviour(NamedTuple):
    """The state of a queue pair determines this behaviour."""

    post_recv: str
    """What happens to a posted receive: `refuse`, `queue` or `flush`."""
    post_send: str
    """What happens to a posted send: `refuse`, `queue` or `flush`."""
    serves: bool
    """Whether received requests are executed. If False, they are dropped."""
    begins: bool
    """Whether the requester starts sends that are queued."""
    finishes: bool
    """Whether sends that have begun continue, and their responses are accepted."""


BEHAVIOUR: dict[QpState, Behaviour] = {
    #                    post_recv  post_send  serves begins finishes
    S.RESET: Behaviour("refuse", "refuse", False, False, False),
    S.INIT:  Behaviour("queue",  "refuse", False, False, False),
    S.RTR:   Behaviour("queue",  "refuse", True,  False, False),
    S.RTS:   Behaviour("queue",  "queue",  True,  True,  True),
    S.SQD:   Behaviour("queue",  "queue",  True,  False, True),
    S.SQE:   Behaviour("queue",  "flush",  True,  False, False),
    S.ERR:   Behaviour("flush",  "flush",  False, False, False),
}  # fmt: skip

FAILED_SEND = {QpType.RC: S.ERR, QpType.UC: S.SQE, QpType.UD: S.SQE}
"""State that a queue pair enters after a failed send, for each service."""

REQUIRED: dict[QpType, dict[QpState, tuple[str, ...]]] = {
    QpType.RC: {
        S.INIT: ("pkey_index", "port", "access_flags"),
        S.RTR: ("av", "path_mtu", "dest_qpn", "rq_psn", "max_dest_rd_atomic", "min_rnr_timer"),
        S.RTS: ("sq_psn", "timeout", "retry_cnt", "rnr_retry", "max_rd_atomic"),
    },
    QpType.UC: {
        S.INIT: ("pkey_index", "port", "access_flags"),
        S.RTR: ("av", "path_mtu", "dest_qpn", "rq_psn"),
        S.RTS: ("sq_psn",),
    },
    QpType.UD: {S.INIT: ("pkey_index", "port", "qkey"), S.RTR: (), S.RTS: ("sq_psn",)},
}
"""Attributes that must be given with the changes RESET → INIT, INIT → RTR and RTR → RTS, by service and new state.

Attributes that are not in `FIXED` may be given with any other change of state as well.
"""

FIXED = frozenset(("av", "path_mtu", "dest_qpn", "rq_psn", "max_dest_rd_atomic", "sq_psn"))

_NUMBERS = {"dest_qpn": MASK, "rq_psn": MASK, "sq_psn": MASK, "qkey": 0xFFFFFFFF, "port": 255}
_CONFIGURED = (
    "path_mtu", "timeout", "retry_cnt", "rnr_retry", "min_rnr_timer", "max_rd_atomic", "max_dest_rd_atomic",
)  # fmt: skip


def defaults_of(kind: QpType, state: QpState, config: RoceConfig) -> dict[str, Any]:
    """Return the default values of the attributes that `state` requires, as far as the configuration has defaults."""
    return {name: getattr(config, name) for name in REQUIRED[kind].get(state, ()) if name in _CONFIGURED}


def bring_up_steps(
    kind: QpType, config: RoceConfig, wanted: Mapping[str, Any]
) -> Iterator[tuple[QpState, dict[str, Any]]]:
    """Yield the states INIT, RTR and RTS, each with the attributes that it requires.

    If `wanted` has no value for an attribute, the value is the default in the configuration. `wanted` has at least the
    values that the peer has sent out of band. An attribute that no state requires is ignored.
    """
    for state, names in REQUIRED[kind].items():
        values = {**defaults_of(kind, state, config), **wanted}
        yield state, {name: values[name] for name in names}


class Attributes:
    """This class holds the attributes of a queue pair (ibv_qp_attr) that the engine uses."""

    __slots__ = (
        "access_flags", "av", "dest_qpn", "max_dest_rd_atomic", "max_rd_atomic", "min_rnr_timer", "path_mtu",
        "pkey_index", "port", "qkey", "retry_cnt", "rnr_retry", "rq_psn", "sq_psn", "timeout",
    )  # fmt: skip

    def __init__(self, config: RoceConfig) -> None:
        self.access_flags = Access(0)
        self.av = AddressVector(0)
        self.pkey_index = self.port = self.dest_qpn = self.rq_psn = self.sq_psn = self.qkey = 0
        self.path_mtu = config.path_mtu
        self.timeout = config.timeout
        self.retry_cnt = config.retry_cnt
        self.rnr_retry = config.rnr_retry
        self.min_rnr_timer = config.min_rnr_timer
        self.max_rd_atomic = config.max_rd_atomic
        self.max_dest_rd_atomic = config.max_dest_rd_atomic

    def check(self, kind: QpType, old: QpState, new: QpState, given: dict[str, Any], pkeys: int) -> None:
        """Check the attributes `given` with a change of state from `old` to `new`.

        Raises `LocalError` for an attribute that is missing, unknown, not legal, or not legal with this change.
        """
        known = _KNOWN[kind]
        for name in REQUIRED[kind].get(new, ()):
            if name not in given and old is _BEFORE.get(new):
                raise LocalError(
                    name, f"must be given to bring a queue pair of type {kind.name} to {new.name}",
                    id="missing-argument"
                )  # fmt: skip
        for name, value in given.items():
            if name not in known:
                what = f"no attribute of type {kind.name}{similar(name, known)}"
                raise LocalError(name, what, ", ".join(sorted(known)), id="unknown-argument")
            if name in FIXED and (name not in REQUIRED[kind].get(new, ()) or old is not _BEFORE.get(new)):
                raise LocalError(name, f"not legal from {old.name} to {new.name}", id="wrong-state")
            if name == "av":
                if not isinstance(value, AddressVector):
                    raise LocalError("av", f"{shown(value)} is no AddressVector", id="wrong-type")
            elif name == "access_flags":
                if value & ~15:
                    raise LocalError("access_flags", f"{shown(value)} is not legal", "0 … 15", id="out-of-range")
            elif name == "pkey_index":
                if value not in range(pkeys):
                    raise LocalError(
                        "pkey_index", f"{shown(value)} is not legal", f"0 … {pkeys - 1}", id="out-of-range"
                    )
            elif name in _NUMBERS:
                if not isinstance(value, int) or not 0 <= value <= _NUMBERS[name]:
                    raise LocalError(
                        name, f"{shown(value)} is not legal", f"0 … {_NUMBERS[name]:#x}", id="out-of-range"
                    )
            else:
                knobs_of(RoceConfig)[name].check(name, value)

    def take(self, given: dict[str, Any]) -> None:
        """Set attributes that `check` has accepted."""
        for name, value in given.items():
            setattr(self, name, value)
        self.access_flags = Access(self.access_flags)


_KNOWN = {kind: {name for names in of.values() for name in names} for kind, of in REQUIRED.items()}
_BEFORE = {S.INIT: S.RESET, S.RTR: S.INIT, S.RTS: S.RTR}


@dataclass(slots=True, eq=False)
class ReceiveQueue:
    """A receive queue holds posted receives until messages use them. It belongs to one queue pair, or several share
    it."""

    pd: int
    number: int
    shared: bool
    items: deque[Receive] = field(default_factory=deque)
    limit: int = 0
    """Number of receives below which SRQ_LIMIT_REACHED is reported once, or 0 if it is not reported."""


class ChannelAdapter(Protocol):
    """A queue pair uses these members of its adapter (`hca.Hca`)."""

    address: int
    ip_version: int
    config: RoceConfig
    regions: Regions
    pending_events: list[RoceEvent]
    pkeys: tuple[int, ...]
    retransmitted: dict[str, int]
    trains: bool
    tally: TrainTally

    def count(self, what: str) -> None: ...

    def loop_back(self, packet: RocePacket, now: int) -> None: ...


class UserMessage(NamedTuple):
    """A user message is a SEND that a `MessageUser` posts without a work request."""

    qp_num: int
    wr_id: int
    data: bytes

    def work(self) -> PostSend:
        """Return the work request that posts the message."""
        return PostSend(
            qp_num=self.qp_num, wr_id=self.wr_id, inline=self.data, send_flags=SendFlags.INLINE | SendFlags.SIGNALED
        )


class MessageUser(Protocol):
    """A message user is a program on the host that sends and receives whole messages on a queue pair, and posts each
    receive again as soon as a message has used it."""

    longest: int
    """Number of bytes of each of its receives."""

    def arrived(self, number: int, data: bytes, now: int) -> None:
        """Take a message that arrived on the queue pair `number`."""

    def sent(self, wr_id: int, now: int) -> None:
        """Note that the peer has acknowledged a message."""


class RequesterHalf(Protocol):
    """A queue pair has a requester from RTS on. By default the requester expects no responses and has no timers."""

    @property
    def busy(self) -> bool:
        """Return True when a send has begun and has not ended."""

    @property
    def posted_now(self) -> int:
        """Return the number of sends that have not ended."""

    def post(self, work: PostSend) -> None: ...

    def post_message(self, message: UserMessage) -> None:
        """Queue a message of the user of the queue pair."""
        self.post(message.work())

    def end_messages(self, psn: int, now: int) -> list[int] | None:
        """Process a positive acknowledgement of messages, and return their wr_ids; None: `take` must process it."""
        return None

    def quiet_behind(self, psn: int) -> int | Split:
        """Return how many more PSNs than those up to `psn` an ACK may acknowledge and do nothing else, or why one up to
        `psn` is not such an ACK."""
        return Split.ACK_SAYS_MORE

    def take_quiet_ack(self, psn: int, aeth: AethHeader, now: int) -> None:
        """Process an ACK that `quiet_behind` permits."""
        raise NotImplementedError

    def pump(self, now: int, out: list[RocePacket], budget: int) -> int: ...
    def flush(self) -> None: ...

    def refresh(self) -> None:
        """Read the attributes of the queue pair again, because they may have changed."""
        return

    def take(self, parsed: Parsed, now: int) -> None:
        """Process a received response."""
        return

    def deadline(self) -> int:
        """Return when `on_time` is due."""
        return NEVER

    def on_time(self, now: int) -> None:
        """Fire the timers that are due."""
        return


class ResponderHalf(Protocol):
    """A queue pair has a responder from RTR on. By default the responder sends no responses and has no timers."""

    def take(self, parsed: Parsed, now: int) -> None: ...

    def pump(self, now: int, out: list[RocePacket], budget: int) -> int:
        """Send the queued responses in order, with at most `budget` packets of READ responses, and return the number of
        these packets."""
        return 0

    def forget(self) -> None:
        """Discard all responses that were not sent yet."""
        return

    def deadline(self) -> int:
        """Return when `on_time` is due."""
        return NEVER

    def on_time(self, now: int) -> None:
        """Fire the timers that are due."""
        return


class Qp:
    """A queue pair has a state, attributes and receives, which its requester and its responder use."""

    def __init__(
        self, hca: ChannelAdapter, number: int, kind: QpType, pd: int, receives: ReceiveQueue, max_send_wr: int,
        max_recv_wr: int,
    ) -> None:  # fmt: skip
        self.hca = hca
        self.number = number
        self.kind = kind
        self.pd = pd
        self.receives = receives
        self.max_send_wr = max_send_wr
        self.max_recv_wr = max_recv_wr
        self.state = S.RESET
        self.behaviour = BEHAVIOUR[S.RESET]
        self.changes = 0
        """Number of changes of state and attributes."""
        self.attributes = Attributes(hca.config)
        self.path = self._path()
        self.requester: RequesterHalf | None = None
        self.responder: ResponderHalf | None = None
        self.messages: MessageUser | None = None
        """Program that sends and receives its messages with less work where nothing distinguishes them; None: nobody
        does."""
        self.held: Receive | None = None
        """Receive that the message in progress uses, or None. It is kept for the next message if a UC message is
        dropped."""
        self.established = False
        self.drained = False
        self.queued_at = NEVER
        """Time at which the adapter checks the timers of this queue pair, or NEVER."""
        self.next_cnp = 0
        """Earliest time of the next CNP."""
        self.followed: FollowedSender | None = None
        """Sender of the trains that arrived last (`trains`)."""
        self.rate: Rate | None = None
        """DCQCN rate from the first CNP on (roce.md §13). It is None before, when the queue pair sends at line
        speed."""

    def enter(self, state: QpState) -> None:
        """Set the state and its behaviour, without any other effect."""
        self.changes += 1
        self.state = state
        self.behaviour = BEHAVIOUR[state]

    def _path(self) -> RocePath:
        hca, attributes = self.hca, self.attributes
        return RocePath(
            self.kind, self.number, hca.address, hca.ip_version, attributes.av, attributes.dest_qpn, self.p_key,
            hca.config,
        )  # fmt: skip

    @property
    def p_key(self) -> int:
        """Return the P_Key of the queue pair."""
        return self.hca.pkeys[self.attributes.pkey_index]

    def set(self, given: dict[str, Any]) -> None:
        """Set attributes that `Attributes.check` has accepted."""
        self.changes += 1
        self.attributes.take(given)
        self.path = self._path()
        if self.requester is not None:
            self.requester.refresh()

    def reset(self) -> None:
        """Enter RESET, and discard all sends and receives; no completion reports them. Receives in a shared queue stay
        in the queue.
        """
        self.requester = self.responder = self.held = self.followed = None
        if not self.receives.shared:
            self.receives.items.clear()
        self.attributes = Attributes(self.hca.config)
        self.established = self.drained = False
        self.next_cnp = 0
        self.rate = None
        self.enter(S.RESET)

    # Completions

    def complete_send(self, work: PostSend, opcode: WcOpcode, status: Status, byte_len: int, syndrome: int) -> None:
        """Report the completion of a send."""
        self.hca.pending_events.append(WorkCompletion(
            work.wr_id, status, self.number, False, opcode, byte_len, vendor_err=syndrome,
        ))  # fmt: skip

    def peek_receive(self) -> Receive | None:
        """Return the receive for the next packet of a message, or None if no receive is posted.

        If the message in progress has a receive already, this receive is returned, and otherwise the oldest receive in
        the queue.
        """
        return self.held or (self.receives.items[0] if self.receives.items else None)

    def hold_receive(self) -> Receive:
        """Reserve a receive for the message in progress, and return the receive.

        It is the receive that `peek_receive` returns. If it is still in the queue, it is removed from the queue.
        """
        if self.held is None:
            queue = self.receives
            self.held = queue.items.popleft()
            if queue.shared and len(queue.items) < queue.limit:
                queue.limit = 0
                self.hca.pending_events.append(AsyncNotice(AsyncType.SRQ_LIMIT_REACHED, queue.number))
        return self.held

    def end_receive(self, status: Status, opcode: WcOpcode = WcOpcode.RECV, **details: Any) -> None:
        """Complete the receive of the message in progress."""
        assert self.held is not None
        self.hca.pending_events.append(
            WorkCompletion(self.held.wr_id, status, self.number, True, opcode, pkey_index=self.attributes.pkey_index,
                           **details)
        )  # fmt: skip
        self.held = None

    def flush_receives(self) -> None:
        """End the receive of the message in progress and all receives of this queue pair with WR_FLUSH_ERR.

        Receives in a shared queue stay in the queue (roce.md §6).
        """
        if self.held is not None:
            self.end_receive(Status.WR_FLUSH_ERR)
        if not self.receives.shared:
            flushed: Iterable[Receive] = tuple(self.receives.items)
            self.receives.items.clear()
            for self.held in flushed:
                self.end_receive(Status.WR_FLUSH_ERR)

    # Ends

    def to_error(self) -> None:
        """Enter ERR, and end all sends and receives with WR_FLUSH_ERR (roce.md §6).

        The sends end in the order in which they were posted, and the receives likewise.
        """
        self.enter(S.ERR)
        if self.requester is not None:
            self.requester.flush()
        self.flush_receives()

    def send_failed(self) -> None:
        """Enter ERR after a failed send on RC. Enter SQE after a failed send on UC or UD, where receives continue
        (roce.md §6)."""
        if FAILED_SEND[self.kind] is S.ERR:
            self.to_error()
        else:
            self.enter(S.SQE)
            if self.requester is not None:
                self.requester.flush()

    def drain(self) -> None:
        """Report SQ_DRAINED if the state is SQD, all sends that had begun are complete, and it was not reported yet."""
        if self.state is S.SQD and not self.drained and not (self.requester and self.requester.busy):
            self.drained = True
            self.hca.pending_events.append(AsyncNotice(AsyncType.SQ_DRAINED, self.number))
