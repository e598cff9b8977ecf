"""Queue pairs: states, what each of them does, the attributes on the way (roce.md §6), and the pair itself."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

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
    Status,
    WcOpcode,
    WorkCompletion,
)
from uetproto.engine.roce.dcqcn import Rate
from uetproto.engine.roce.memory import Regions
from uetproto.engine.roce.packets import Parsed, RocePath
from uetproto.engine.roce.psn import MASK
from uetproto.errors import LocalError, shown
from uetproto.knobs import knobs_of

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
"""From a state to the ones that may follow it; SQD → RTS once drained."""


class Behaviour(NamedTuple):
    """What a queue pair does in a state."""

    post_recv: str
    """refuse, queue or flush"""
    post_send: str
    """refuse, queue or flush"""
    serves: bool
    """Requests are taken; in the others they are dropped."""
    begins: bool
    """Queued sends are started."""
    finishes: bool
    """Sends begun go on, and answers to them are taken."""


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
"""Where a failed send takes a queue pair."""

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
"""What must be given when a state is entered from the one before it. Those that are not
`FIXED` may be given with any change of state."""

FIXED = frozenset(("av", "path_mtu", "dest_qpn", "rq_psn", "max_dest_rd_atomic", "sq_psn"))

_NUMBERS = {"dest_qpn": MASK, "rq_psn": MASK, "sq_psn": MASK, "qkey": 0xFFFFFFFF, "port": 255}
_CONFIGURED = (
    "path_mtu", "timeout", "retry_cnt", "rnr_retry", "min_rnr_timer", "max_rd_atomic", "max_dest_rd_atomic",
)  # fmt: skip


def defaults_of(kind: QpType, state: QpState, config: RoceConfig) -> dict[str, Any]:
    """The attributes of `REQUIRED` that the configuration has: for whoever sets up a pair without wishes of its own."""
    return {name: getattr(config, name) for name in REQUIRED[kind].get(state, ()) if name in _CONFIGURED}


def way_up(kind: QpType, config: RoceConfig, wanted: Mapping[str, Any]) -> Iterator[tuple[QpState, dict[str, Any]]]:
    """INIT, RTR, RTS and the attributes of each: those that are wanted, and else what the configuration says.

    `wanted` has at least what the other end tells out of band; what a state does not take is left out.
    """
    for state, names in REQUIRED[kind].items():
        values = {**defaults_of(kind, state, config), **wanted}
        yield state, {name: values[name] for name in names}


class Attributes:
    """ibv_qp_attr, as far as it is used here."""

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
        """Raises `LocalError` for what is missing, unknown, illegal or too late."""
        known = {name for names in REQUIRED[kind].values() for name in names}
        for name in REQUIRED[kind].get(new, ()):
            if name not in given and old is _BEFORE.get(new):
                raise LocalError(name, f"must be given to bring a queue pair of type {kind.name} to {new.name}")
        for name, value in given.items():
            if name not in known:
                raise LocalError(name, f"no attribute of type {kind.name}; there are {', '.join(sorted(known))}")
            if name in FIXED and (name not in REQUIRED[kind].get(new, ()) or old is not _BEFORE.get(new)):
                raise LocalError(name, f"not legal from {old.name} to {new.name}")
            if name == "av":
                if not isinstance(value, AddressVector):
                    raise LocalError("av", f"{shown(value)} is no AddressVector")
            elif name == "access_flags":
                if value & ~15:
                    raise LocalError("access_flags", f"{shown(value)} is not legal", "0 … 15")
            elif name == "pkey_index":
                if value not in range(pkeys):
                    raise LocalError("pkey_index", f"{shown(value)} is not legal", f"0 … {pkeys - 1}")
            elif name in _NUMBERS:
                if not isinstance(value, int) or not 0 <= value <= _NUMBERS[name]:
                    raise LocalError(name, f"{shown(value)} is not legal", f"0 … {_NUMBERS[name]:#x}")
            else:
                knobs_of(RoceConfig)[name].check(name, value)

    def take(self, given: dict[str, Any]) -> None:
        for name, value in given.items():
            setattr(self, name, value)
        self.access_flags = Access(self.access_flags)


_BEFORE = {S.INIT: S.RESET, S.RTR: S.INIT, S.RTS: S.RTR}


class ReceiveQueue:
    """Receives posted and not yet used, of one queue pair or shared by many."""

    __slots__ = ("items", "limit", "number", "pd", "shared")

    def __init__(self, pd: int, number: int, shared: bool) -> None:
        self.pd = pd
        self.number = number
        self.shared = shared
        self.items: deque[Receive] = deque()
        self.limit = 0
        """SRQ_LIMIT_REACHED comes once when fewer are left; 0: not armed."""


class Adapter(Protocol):
    """What a queue pair needs of the adapter it belongs to (`roce_hca.Hca`)."""

    address: int
    ip_version: int
    config: RoceConfig
    regions: Regions
    happened: list[RoceEvent]
    pkeys: tuple[int, ...]

    def count(self, what: str) -> None: ...

    def loop_back(self, packet: RocePacket, now: int) -> None: ...


class RequesterHalf(Protocol):
    """The sending half of a queue pair, there from RTS on."""

    @property
    def busy(self) -> bool:
        """A send was begun and has not ended."""

    @property
    def posted_now(self) -> int:
        """Sends that have not ended."""

    def refresh(self) -> None:
        """Attributes have changed."""

    def post(self, work: PostSend) -> None: ...

    def pump(self, now: int, out: list[RocePacket], budget: int) -> int: ...

    def take(self, parsed: Parsed, now: int) -> None: ...

    def flush(self) -> None: ...

    def deadline(self) -> int: ...

    def on_time(self, now: int) -> None: ...


class ResponderHalf(Protocol):
    """The receiving half of a queue pair, there from RTR on."""

    def take(self, parsed: Parsed, now: int) -> None: ...

    def pump(self, now: int, out: list[RocePacket], budget: int) -> int: ...

    def forget(self) -> None:
        """Answers that wait are not sent."""

    def deadline(self) -> int: ...

    def on_time(self, now: int) -> None: ...


class Qp:
    """One queue pair: its state, its attributes and its receives; requester and responder work on it."""

    def __init__(
        self, hca: Adapter, number: int, kind: QpType, pd: int, receives: ReceiveQueue, max_send_wr: int,
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
        self.attributes = Attributes(hca.config)
        self.path = self._path()
        self.requester: RequesterHalf | None = None
        self.responder: ResponderHalf | None = None
        self.held: Receive | None = None
        """The receive of the message in progress."""
        self.established = False
        self.drained = False
        self.queued_at = NEVER
        """When the adapter looks at the timers of this queue pair."""
        self.next_cnp = 0
        """No CNP is sent before."""
        self.rate: Rate | None = None
        """From the first CNP on, with DCQCN (§13); None: line speed."""

    def enter(self, state: QpState) -> None:
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
        return self.hca.pkeys[self.attributes.pkey_index]

    def set(self, given: dict[str, Any]) -> None:
        """Takes attributes that are checked."""
        self.attributes.take(given)
        self.path = self._path()
        if self.requester is not None:
            self.requester.refresh()

    def reset(self) -> None:
        """RESET: everything is thrown away, without completions; also receives, but those of a shared queue."""
        self.requester = self.responder = self.held = None
        if not self.receives.shared:
            self.receives.items.clear()
        self.attributes = Attributes(self.hca.config)
        self.established = self.drained = False
        self.next_cnp = 0
        self.rate = None
        self.enter(S.RESET)

    # Completions

    def complete_send(self, work: PostSend, opcode: WcOpcode, status: Status, byte_len: int, syndrome: int) -> None:
        self.hca.happened.append(WorkCompletion(
            work.wr_id, status, self.number, False, opcode, byte_len, vendor_err=syndrome,
        ))  # fmt: skip

    def peek_receive(self) -> Receive | None:
        """The receive that the next message uses: one held from a dropped message, or the oldest posted."""
        return self.held or (self.receives.items[0] if self.receives.items else None)

    def hold_receive(self) -> Receive:
        """Takes the receive that `peek_receive` sees for the message in progress."""
        if self.held is None:
            queue = self.receives
            self.held = queue.items.popleft()
            if queue.shared and len(queue.items) < queue.limit:
                queue.limit = 0
                self.hca.happened.append(AsyncNotice(AsyncType.SRQ_LIMIT_REACHED, queue.number))
        return self.held

    def end_receive(self, status: Status, opcode: WcOpcode = WcOpcode.RECV, **details: Any) -> None:
        """Completes the held receive."""
        assert self.held is not None
        self.hca.happened.append(
            WorkCompletion(self.held.wr_id, status, self.number, True, opcode, pkey_index=self.attributes.pkey_index,
                           **details)
        )  # fmt: skip
        self.held = None

    def flush_receives(self) -> None:
        """Those posted here, and the one in use; others of a shared queue stay (§6)."""
        if self.held is not None:
            self.end_receive(Status.WR_FLUSH_ERR)
        if not self.receives.shared:
            flushed: Iterable[Receive] = tuple(self.receives.items)
            self.receives.items.clear()
            for self.held in flushed:
                self.end_receive(Status.WR_FLUSH_ERR)

    # Ends

    def to_error(self) -> None:
        """ERR: every send and receive that is left ends with WR_FLUSH_ERR, in posting order per queue (§6)."""
        self.enter(S.ERR)
        if self.requester is not None:
            self.requester.flush()
        self.flush_receives()

    def send_failed(self) -> None:
        """A send has ended with an error: ERR, or for UC and UD SQE, where receives go on (§6)."""
        if FAILED_SEND[self.kind] is S.ERR:
            self.to_error()
        else:
            self.enter(S.SQE)
            if self.requester is not None:
                self.requester.flush()

    def drain(self) -> None:
        """In SQD: tells once that all sends begun are complete."""
        if self.state is S.SQD and not self.drained and not (self.requester and self.requester.busy):
            self.drained = True
            self.hca.happened.append(AsyncNotice(AsyncType.SQ_DRAINED, self.number))
