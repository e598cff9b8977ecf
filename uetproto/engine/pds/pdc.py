# SPDX-License-Identifier: GPL-2.0-only
"""A packet delivery context (PDC) holds its state and both PSN spaces, and runs its state machine (pds.md §5, §6).

A PDC has a source half (`tx`, `retransmit.SendWindow`) and a destination half (`rx`, `psn_window.PsnWindow`): an
initiator sends in the forward direction and receives in the return direction; a target does the reverse. The actions of
the state tables are functions that take the PDC: `source` (requests out, ACKs in), `destination` (requests in, ACKs
out), `control` (control packets) and `lifecycle` (start, timers, close, errors).
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from uetproto.engine.contract import NEVER, CongestionContext, CongestionReceiver, Datagram, Mode, PathSelection
from uetproto.engine.pds.messages import Control, Nack, Request
from uetproto.engine.pds.psn_window import PsnWindow, UnansweredSlot
from uetproto.engine.pds.retransmit import SendRecord, SendWindow
from uetproto.engine.pds.service import Outgoing, Response
from uetproto.engine.pds.states import LOCAL, Input, Role, State
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import NackCode, NextHdr
from uetproto.wire.serial import diff32
from uetproto.wire.tuples import PdsReqCcStateHeader, PdsRudReqHeader

if TYPE_CHECKING:
    from uetproto.engine.pds.congestion import PacedRecord
    from uetproto.engine.pds.sublayer import Pds

_M32 = 0xFFFFFFFF
_PLAIN = PdsRudReqHeader.size
_WITH_STATE = _PLAIN + PdsReqCcStateHeader.size
"""Sizes of the header of a request, and of one with congestion control state."""

Row = tuple[Callable[..., Any], State] | None
"""Action and next state for an input in a state, or None if the state does not accept the input."""
_NOTHING: list[Row] = [None] * len(Input)


class Pdc:
    """This class holds the state of a PDC at one of its two ends.

    `peer_id`, the PDCID of the peer, is 0 while it is unknown; `tx` and `rx` start at the same PSN (pds.md §2.2).
    """

    __slots__ = (
        "_entropy_at", "_entropy_mask", "ack_gen_count", "again", "backlog", "cack_asks", "cc", "cc_rx",
        "clear_asked_at", "clear_asks", "clear_at", "clear_owed", "clear_sent", "clear_wanted", "close_at", "close_psn",
        "close_req", "closing_ack", "config", "context", "counters", "cps", "demanded", "entropy", "held",
        "highest_acked", "idle_queued", "idle_time", "idle_wake", "inflight", "local_id", "locks", "message_clear",
        "mode", "ooo_count", "open_message", "opened", "overhead", "owner", "paths", "peer", "peer_id", "pending_at",
        "probe", "probe_at", "probes_left", "queue", "rcvd_bytes", "refused_starts", "reserved", "role", "rows", "rx",
        "selection", "state", "stored_at", "touched", "tx", "unblock_at", "uncounted", "user", "wake_at",
    )  # fmt: skip

    compiled: ClassVar[dict[Role, dict[State, list[Row]]]]
    """Compiled state tables of both roles. Each state has a list that is indexed by input. The module `actions` sets
    this attribute."""

    def __init__(
        self, owner: "Pds", role: Role, mode: Mode, peer: int, local_id: int, peer_id: int, start: int,
        receive_start: int, now: int, *, reserved: bool = False, context: int = 0,
    ) -> None:  # fmt: skip
        self.owner = owner
        self.config = config = owner.config
        self.counters = owner.counters
        self.user = owner.user
        self.role = role
        self.mode = mode
        self.peer = peer
        self.local_id = local_id
        self.peer_id = peer_id
        self.reserved = reserved
        self.context = context
        self.queue: deque[Outgoing] = deque()
        """Messages that will be sent on this PDC, and of which no packet was sent yet."""
        self.cps: deque[tuple[int, int]] | None = None
        """Queued control packets that consume a PSN, as pairs of type and ctl_payload, or None before the first."""
        self.open_message: Outgoing | None = None
        self.locks = 0
        """Number of messages with `lock_pdc` whose lock is not released. A PDC with a lock is not closed (pds.md
        §4)."""
        self.opened = False
        """Whether `PdcOpened` was reported."""
        self.close_req = False
        self.close_psn: int | None = None
        self.closing_ack: tuple[int, int, int] = (0, 0, 0)
        """ECN mark, retx and entropy of the received CLOSE_CMD, which its ACK copies."""
        self.demanded = 0
        """Start_PSN that the target demands while this PDC is in PENDING (secure start)."""
        self.refused_starts: tuple[int, ...] = ()
        """The last Start_PSNs that this target refused."""
        self.clear_owed = False
        """Whether a CLEAR_REQ of the peer waits for its answer."""
        self.clear_asks = self.clear_asked_at = 0
        """Number of CLEAR_REQs that were sent since the last packet arrived, and the time of the last CLEAR_REQ."""
        self.cack_asks = 0
        """Number of consecutive ACK_REQs that asked for CACK and got no answer (pds.md §7.1)."""
        self.probe: tuple[int, int, int] | None = None
        """Opaque value of the outstanding PROBE, highest PSN sent before the PROBE, and time of the PROBE. The value is
        None if no PROBE is outstanding."""
        self.probes_left = config.max_tail_loss_retx
        self.clear_at = self.stored_at = self.close_at = self.unblock_at = self.wake_at = NEVER
        self.idle_queued = NEVER
        """Time for which the wake queue of the owner has an entry of the idle timer, or NEVER."""
        self.pending_at = self.probe_at = NEVER
        manager = owner.congestion
        self.cc: CongestionContext | None = None if manager is None else manager.context(peer, mode)
        """Congestion control context of the sending half, or None without congestion control."""
        self.cc_rx: CongestionReceiver | None = None if manager is None else manager.receiver(peer, mode, local_id)
        """Congestion control of the receiving half, or None."""
        if self.cc is not None and manager is not None:
            self.selection: PathSelection = self.cc.paths()
            """What chooses the entropy values of requests with congestion control."""
            self.overhead = manager.overhead + (_WITH_STATE if self.cc.demands else _PLAIN)
            """Number of bytes that the nominal size of a request has beyond its SES header and payload."""
        self.again: deque[PacedRecord] | None = None
        """Packets that wait for their retransmission, in its order. None: there was none (`pds.congestion`)."""
        self.backlog = 0
        """Nominal bytes that were offered to the context and not sent."""
        self.inflight = 0
        """Part of the bytes in flight of the context that is due to this PDC. It is less than those of the packets in
        flight by at most 255, as rcvd_bytes is rounded up."""
        self.ooo_count = 0
        """ooo_count of the last ACK."""
        self.highest_acked = (start - 1) & _M32
        """Highest PSN that an ACK named."""
        self.rcvd_bytes = 0
        """The newest rcvd_bytes of an ACK, 24 bits, in units of 256 bytes."""
        self.uncounted = 0
        """Nominal bytes that ACKs without rcvd_bytes have acknowledged, of which a later rcvd_bytes tells again."""
        self.begin(start, receive_start)
        self.entropy = owner.rng.getrandbits(16)
        self._entropy_at = self._entropy_mask = 0
        self.paths: int = config.entropy_values
        """Number of entropy values over which requests on RUD are spread."""
        self.state = State.CREATING if role is Role.INITIATOR else State.ESTABLISHED
        self.rows = self.compiled[role][self.state]
        self.touched = now
        """Time of the last packet sent or received, from which the idle time counts (pds.md §16)."""
        self.idle_time = 0 if reserved and role is Role.TARGET else config.idle_time
        """Idle time in picoseconds, or 0 if this end never closes an idle PDC. The target of a reserved PDC has 0,
        because the initiator closes such a PDC."""
        self.idle_wake = now + self.idle_time if self.idle_time else NEVER
        """Time at which the idle timer next compares `touched` with the idle time. A packet only sets `touched`, and
        does not restart this timer. The time is NEVER if the timer is not armed."""

    def begin(self, start: int, receive_start: int) -> None:
        """Start both PSN spaces: `tx` at `start`, `rx` at `receive_start` (pds.md §2.2)."""
        config, rod = self.config, self.mode is Mode.ROD
        self.tx = SendWindow(start, rod and config.rod_recovery == "go_back_n", config)
        self.rx = PsnWindow(receive_start, config.mp_range, rod)
        if self.cc is not None:
            self.tx.landed = []
        self.clear_sent = self.clear_wanted = self.message_clear = (start - 1) & _M32
        self.ack_gen_count = 0
        """Number of bytes received since the last ACK (pds.md §8.3)."""
        self.held: dict[int, tuple[Response, UnansweredSlot]] | None = None
        """Responses of SES on ROD, by PSN, whose ACKs wait until all lower PSNs are answered (pds.md §8.3)."""

    # The machine

    def step(self, event: Input, *arguments: Any) -> None:
        """Run the action that the state table has for `event`, then enter the next state.

        The last argument is the time in picoseconds. The state does not change if the action returns False. Raises
        `LocalError` for a local call that the state does not allow.
        """
        found = self.rows[event]
        if found is None:
            if event in LOCAL:
                raise LocalError(
                    f"PDC {self.local_id}: {event.name} is not possible in {self.state.name}", id="wrong-state"
                )
            return
        action, target = found
        before = self.state
        if action(self, *arguments) is not False and target is not before and self.state is before:
            self._move(target, arguments[-1])

    def take(self, event: Input, packet: Any, datagram: Datagram, now: int) -> None:
        """Do the same as `step` for an input that is a packet, without the time that it takes to collect arguments."""
        found = self.rows[event]
        if found is None:
            return
        action, target = found
        before = self.state
        if action(self, packet, datagram, now) is not False and target is not before and self.state is before:
            self._move(target, now)

    def _move(self, state: State, now: int) -> None:
        self.enter(state)
        self.watch_idle(now)
        if self.close_req and state is State.ESTABLISHED:
            self.step(Input.CLOSE, now)  # requested in CREATING

    def enter(self, state: State) -> None:
        """Set the state, and select its part of the state table, without running an action."""
        self.state = state
        self.rows = self.compiled[self.role].get(state, _NOTHING)

    def watch_idle(self, now: int) -> None:
        """Arm the idle timer if it is not armed and the state table has the input IDLE in this state (pds.md §16)."""
        if self.idle_wake == NEVER and self.idle_time and self.rows[Input.IDLE] is not None:
            self.idle_wake = now + self.idle_time
            self.owner.wake(self, self.idle_wake)

    def learn(self, peer_id: int) -> None:
        """Store the PDCID of the target, which a packet of the target carries (pds.md §6.2 item 5, §20 row 26).

        Until the PDC is ESTABLISHED, a later packet may carry another PDCID, because a target that sent a NACK may have
        released its PDC since.
        """
        if peer_id and peer_id != self.peer_id and self.state is State.CREATING:
            before, self.peer_id = self.peer_id, peer_id
            self.owner.learned(self, before)

    def allows(self, event: Input) -> bool:
        return self.rows[event] is not None

    @property
    def last_psn(self) -> int:
        """Return the highest PSN used in either direction. Both directions start at the same PSN (pds.md §2.2)."""
        sent, received = self.tx.last, self.rx.max_rcvd
        return sent if diff32(sent, received) >= 0 else received

    @property
    def has_work(self) -> bool:
        """Return True when `source.pump` has something to send."""
        return bool(
            self.open_message is not None or self.queue or self.cps or self.clear_owed or self.clear_at != NEVER
            or self.again
        )  # fmt: skip

    @property
    def quiescent(self) -> bool:
        """Return True when nothing is in flight, queued, stored or waiting, and the PDC is not closing."""
        return (
            self.state is State.ESTABLISHED and not self.tx.flying and not self.rx.slots
            and not self.queue and not self.cps and self.open_message is None and not self.clear_owed
            and self.clear_at == self.stored_at == self.close_at == NEVER
        )  # fmt: skip

    @property
    def idle(self) -> bool:
        """Return True when the PDC is quiescent and has no lock. It may then be closed to make room for another PDC
        (pds.md §6.1)."""
        return self.quiescent and not self.locks and not self.close_req

    @property
    def key(self) -> tuple[Mode, int, int, bool]:
        """Return the key by which messages find the PDC: mode, peer, context, reserved (pds.md §6.1)."""
        return self.mode, self.peer, self.context, self.reserved

    def deadline(self) -> int:
        """Return the time at which the next timer of this PDC expires, or NEVER if no timer is armed.

        The time may be too early for the idle timer. Code that arms a timer calls `owner.wake` if the timer expires
        before `wake_at`.
        """
        return min(
            self.tx.deadline(), self.clear_at, self.stored_at, self.close_at, self.unblock_at, self.idle_wake,
            self.pending_at, self.probe_at,
        )  # fmt: skip

    # Output

    def next_entropy(self) -> int:
        """Return the entropy value for the next request on RUD. Each cycle uses all `paths` values once, in an order
        that is drawn for the cycle (cms.md §8)."""
        size = self.paths
        at = self._entropy_at
        if at == 0:
            self._entropy_mask = self.owner.rng.getrandbits(16) & (size - 1)
        self._entropy_at = (at + 1) & (size - 1)
        return (self.entropy & -size) | (at ^ self._entropy_mask)

    def next_entropies(self, count: int) -> list[int]:
        """Return what `count` calls of `next_entropy` would return."""
        size = self.paths
        found: list[int] = []
        while len(found) < count:
            found.append(self.next_entropy())
            base, mask, at = self.entropy & -size, self._entropy_mask, self._entropy_at
            end = min(at + count - len(found), size) if at else 0
            found += map((base | mask).__xor__, range(at, end))
            self._entropy_at = end & (size - 1) if end else at
        return found

    def send_control(
        self, ctl_type: int, psn: int, ar: int, payload: int, retx: int, entropy: int | None = None, opaque: int = 0
    ) -> None:
        syn = self.state is State.CREATING  # then isrod is set whatever `cp_isrod` says: the packet may open the PDC
        isrod = int(self.mode is Mode.ROD and (syn or self.config.cp_isrod == "mode"))
        control = Control(
            ctl_type, isrod, retx, ar, int(syn), psn, self.local_id, 0 if syn else self.peer_id,
            self.tx.start if syn else 0, payload, int(syn and self.reserved), 0, opaque,
        )  # fmt: skip
        self.owner.put(self.peer, control, self.entropy if entropy is None else entropy)

    def send_psn_cp(self, ctl_type: int, payload: int, now: int) -> int:
        """Send a control packet that consumes a PSN, and return this PSN.

        The control packet is retransmitted in the same way as a request (pds.md §13).
        """
        psn = self.tx.next
        record = SendRecord(psn, None, payload, NextHdr.NONE, b"", b"", True, self.tx.clear_psn, ctl_type)
        self.send_control(ctl_type, psn, 1, payload, 0)
        self.tx.track(record, now)
        self.owner.wake(self, self.deadline())
        return psn

    def nack(
        self, code: NackCode, packet: Request | Control, datagram: Datagram, payload: int = 0, *, nameless: bool = False
    ) -> None:
        """Send a NACK about a packet to its sender (pds.md §6.3). With `nameless`, spdcid of the NACK is 0."""
        own = 0 if nameless else self.local_id
        marked, psn, peer_id = datagram.ecn_marked, packet.psn, packet.spdcid
        self.owner.put_nack(self.peer, Nack(code, 0, packet.retx, marked, psn, own, peer_id, payload), datagram.entropy)
