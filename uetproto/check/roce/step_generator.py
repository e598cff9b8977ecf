"""What happens next to two queue pairs, by chance: as `chooser`, for RoCE.

Every episode draws its own settings and its own mixture of what befalls packets. Only `random()` and `getrandbits()` of
the generator are used.
"""

from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, TypeVar

from uetproto.check.roce.steps import RoceStep, Send
from uetproto.check.uet.steps import ALL
from uetproto.engine.contract import MICROSECOND, MILLISECOND, SECOND, Rng
from uetproto.engine.roce.contract import Access, Opcode, QpState, QpType, SendFlags
from uetproto.engine.roce.segments import ATOMICS, KINDS
from uetproto.wire.headers.roce import BTH

if TYPE_CHECKING:
    from uetproto.check.roce.machine import RoceWorld

_T = TypeVar("_T")

PROFILES = {kind.name.lower(): kind for kind in QpType}

_YES_NO = (True, False)
_KNOBS: dict[str, tuple[Any, ...]] = {
    "max_unacked_psns": (1, 2, 4, 64),
    "ack_req_interval": (0, 1, 2),
    "ack_coalesce": (2, 3, 8),
    "ack_delay": (10 * MICROSECOND, 300 * MICROSECOND, 2 * MILLISECOND),
    "credits": (False,),
    "m": (0,),
    "timeout_factor": (2, 4),
    "retry_cnt_seven": ("endless",),
    "implied_nak": ("every",),
    "in_rnr_wait": ("resend",),
    "psn_nak": ("every",),
    "reserved_syndrome": ("fail",),
    "check_order": ("alignment_first",),
    "duplicate_write": ("requested",),
    "atomic_order": ("big",),
    "too_long_status": (9, 2),
    "bad_receive_status": (2,),
    "bad_response_status": (19, 1),
    "ud_ipv4_fill": (0xFF,),
    "cnp": (True,),
    "congestion": ("dcqcn",),
    "cnp_interval": (0, MICROSECOND, MILLISECOND),
}
"""Values that are worth a try; each knob keeps its default in most episodes."""
_ATTRIBUTES: dict[str, tuple[Any, ...]] = {
    "timeout": (0, 1, 5, 14),
    "retry_cnt": (0, 1, 3, 7),
    "rnr_retry": (0, 1, 6),
    "min_rnr_timer": (0, 1, 31),
    "max_rd_atomic": (1, 2, 5),
}
_CHANGED = 0.2
"""Share of both that an episode changes."""

_STARTS = (0, 1, 0x7FFFFE, 0x800000, 0xFFFFF0, 0xFFFFFD, 0xFFFFFF)
_MTUS = (256, 256, 256, 1024, 4096)
_RIGHTS = (Access.LOCAL_WRITE, Access.LOCAL_WRITE | Access.REMOTE_WRITE, Access(15) & ~Access.REMOTE_ATOMIC)
_FULL = 256
"""Packets on the wire from which on none is added."""
_CROWD, _CROWDED = 40, 0.9
"""From so many packets on most steps deliver one."""
_NEAR = 8
"""Packets that may overtake each other, mostly."""
_HUNGRY = 64
"""Receives that are posted at a time, at most."""

_OPCODES = tuple(KINDS)
_FAULTS = ("rkey", "domain", "right", "range", "alignment", "lkey")


class RoceChooser:
    """Draws the settings of one episode (`kind`, `knobs`, `qps`, `twin`), then its steps."""

    __slots__ = (
        "_actions", "_bounds", "_faulty", "_in_order", "_lengths", "_near", "_opcodes", "_random", "_rng", "_waits",
        "kind", "knobs", "qps", "twin",
    )  # fmt: skip

    def __init__(self, profile: str, rng: Rng) -> None:
        self._rng = rng
        self._random = rng.random
        self.kind = PROFILES[profile]
        self._opcodes = [opcode for opcode in _OPCODES if self.kind in KINDS[opcode].services]
        self.twin = rng.random() < 0.15
        good = rng.random() < 0.5
        """All must end well."""
        mtu = self._one(_MTUS)
        self.knobs = self._settings(), self._settings()
        self.qps = self._attributes(mtu), self._attributes(mtu)
        self._agree(good)
        self._lengths = (0, 1, 4, 5, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu - 2, 8 * mtu)
        self._faulty = 0.0 if good or rng.random() < 0.5 else 0.02
        self._waits = (20 * MICROSECOND, MILLISECOND, self._one((10 * MILLISECOND, 100 * MILLISECOND, SECOND)))
        self._near = self._one((1, _NEAR, _FULL))
        self._in_order = 0.3 + 0.6 * rng.random()
        forged = not good and rng.random() < 0.3
        weights = {
            self._deliver: 6.0,
            self._send: 3.0,
            self._recv: 2.5,
            self._advance: 2.0,
            self._drop: self._maybe(4.0),
            self._dup: self._maybe(2.0),
            self._stale: self._maybe(1.0),
            self._mark: self._maybe(1.0),
            self._allow: self._maybe(0.5),
            self._corrupt: self._maybe(1.0),
            self._halt: self._maybe(0.3),
            self._change: 0.0 if good else self._maybe(0.1),
            self._stop: 0.0 if good else self._maybe(0.05),
            self._connect: 0.01 if good else 0.2,
            self._deliver_all: 0.1,
            self._inject: self._maybe(0.4) if forged else 0.0,
        }
        self._actions: list[Callable[[Any], RoceStep | None]] = list(weights)
        bounds = list(accumulate(weights.values()))
        self._bounds = [bound / bounds[-1] for bound in bounds]

    # Settings

    def _one(self, values: Sequence[_T]) -> _T:
        return values[int(self._random() * len(values))]

    def _maybe(self, weight: float) -> float:
        """A weight that every third episode does without."""
        return weight * self._random() if self._random() < 0.67 else 0.0

    def _settings(self) -> dict[str, Any]:
        return {name: self._one(values) for name, values in _KNOBS.items() if self._random() < _CHANGED}

    def _attributes(self, mtu: int) -> dict[str, Any]:
        found: dict[str, Any] = {"path_mtu": mtu, "sq_psn": self._one(_STARTS)}
        if self.kind is QpType.RC:
            found |= {name: self._one(values) for name, values in _ATTRIBUTES.items() if self._random() < _CHANGED}
        if self._random() < 0.2:
            found["srq"] = True
        return found

    def _agree(self, good: bool) -> None:
        """What both ends must have alike; and where all must end well, what that needs."""
        if self._random() < 0.2:
            for knobs in self.knobs:
                knobs["icrc"] = False
        for knobs, qp in zip(self.knobs, self.qps, strict=True):
            if self.kind is QpType.UD:  # it has no attribute for it
                knobs["path_mtu"] = qp.pop("path_mtu")
            elif good:
                knobs["retry_cnt_seven"] = "endless"
                for name in ("timeout", "retry_cnt", "rnr_retry"):
                    qp.pop(name, None)
        if self.kind is QpType.RC and not good:
            for qp in self.qps:
                if self._random() < _CHANGED:
                    qp["max_dest_rd_atomic"] = self._one((0, 1, 2, 16))

    # Steps

    def choose(self, world: "RoceWorld") -> RoceStep:
        """The next step, possible at this moment but for a few local wishes."""
        flight = world.flight
        if flight and self._random() < (self._in_order if len(flight) < _CROWD else _CROWDED):
            return RoceStep("deliver", 0, next(iter(flight)))
        while True:
            step = self._actions[bisect(self._bounds, self._random())](world)
            if step is not None:
                return step

    def _number(self, world: "RoceWorld") -> int | None:
        """A packet on the wire."""
        flight = world.flight
        if not flight:
            return None
        return next(islice(flight, int(self._random() * min(len(flight), self._near)), None))

    def _to_packet(self, world: "RoceWorld", action: str) -> RoceStep | None:
        number = self._number(world)
        return None if number is None else RoceStep(action, 0, number)

    def _deliver(self, world: "RoceWorld") -> RoceStep | None:
        return self._to_packet(world, "deliver")

    def _drop(self, world: "RoceWorld") -> RoceStep | None:
        return self._to_packet(world, "drop")

    def _dup(self, world: "RoceWorld") -> RoceStep | None:
        return self._to_packet(world, "dup") if len(world.flight) < _FULL else None

    def _mark(self, world: "RoceWorld") -> RoceStep | None:
        return self._to_packet(world, "mark")

    def _deliver_all(self, world: "RoceWorld") -> RoceStep | None:
        return RoceStep("deliver", 0, ALL) if world.flight else None

    def _stale(self, world: "RoceWorld") -> RoceStep | None:
        """A copy of something that left long ago."""
        number = world.sent - int(1 + self._random() ** 3 * 1000)
        there = world.wire.recent(number) is not None and len(world.flight) < _FULL
        return RoceStep("dup", 0, number) if there else None

    def _corrupt(self, world: "RoceWorld") -> RoceStep | None:
        number = self._number(world)
        if number is None:
            return None
        size = len(world.flight[number].header)
        return RoceStep("corrupt", 0, number, int(self._random() * (size if self._random() < 0.3 else min(size, 32))))

    def _node(self) -> int:
        return int(self._random() < 0.3)

    def _send(self, world: "RoceWorld") -> RoceStep | None:
        if len(world.flight) > _CROWD:
            return None
        node, opcode = self._node(), self._one(self._opcodes)
        length = self._length(world)
        flags = SendFlags.SIGNALED if self._random() < 0.8 else SendFlags(0)
        if self._random() < 0.1:
            flags |= SendFlags.FENCE
        if self._random() < 0.1:
            flags |= SendFlags.SOLICITED
        if self._random() < 0.1 and not KINDS[opcode].answered:
            flags |= SendFlags.INLINE
        fault = ""
        if self._random() < self._faulty:
            fault = self._one(_FAULTS)
        elif self.kind is QpType.UD and self._random() < 0.05:
            fault = "qkey"
        add = self._rng.getrandbits(64) if opcode in ATOMICS else 1
        compare = self._rng.getrandbits(8) if opcode is Opcode.ATOMIC_CMP_AND_SWP and self._random() < 0.3 else None
        cut = int(self._random() * (length + 1)) if self._random() < 0.1 else 0
        return RoceStep("send", node, length, cut, Send(opcode, flags, add, compare, fault))

    def _length(self, world: "RoceWorld") -> int:
        return min(self._one(self._lengths), world.longest)

    def _recv(self, world: "RoceWorld") -> RoceStep | None:
        node = 1 - self._node()
        if len(world.ledgers[node].receives) > _HUNGRY:
            return None
        whole = world.longest + world.headroom
        faulty = self._faulty or (self.kind is not QpType.RC and 0.1)
        length = min(self._length(world), whole) if self._random() < faulty else whole
        fault = "lkey" if self._random() < self._faulty else ""
        cut = int(self._random() * (length + 1)) if self._random() < 0.1 else 0
        return RoceStep("recv", node, length, cut, fault=fault)

    def _advance(self, world: "RoceWorld") -> RoceStep | None:
        chance = self._random()
        wait = self._waits[0 if chance < 0.6 else 1 if chance < 0.9 else 2]
        return RoceStep("advance", 0, int(self._random() * wait))

    def _allow(self, world: "RoceWorld") -> RoceStep | None:
        return RoceStep("allow", self._rng.getrandbits(1), ALL if self._random() < 0.5 else int(self._random() * 8))

    def _halt(self, world: "RoceWorld") -> RoceStep | None:
        """To SQD and back."""
        node = self._rng.getrandbits(1)
        state = world.ends[node].qp.state
        if state not in (QpState.RTS, QpState.SQD):
            return None
        return RoceStep("modify", node, state=QpState.RTS if state is QpState.SQD else QpState.SQD)

    def _change(self, world: "RoceWorld") -> RoceStep | None:
        """Attributes that may change on the way."""
        node = self._rng.getrandbits(1)
        state = world.ends[node].qp.state
        if state is not QpState.RTS:
            return None
        if self.kind is not QpType.RC or self._random() < 0.2:
            if self.kind is QpType.UD:
                return None
            return RoceStep("modify", node, attributes=(("access_flags", int(self._one(_RIGHTS))),))
        name = self._one(tuple(_ATTRIBUTES))
        return RoceStep("modify", node, attributes=((name, self._one(_ATTRIBUTES[name])),))

    def _stop(self, world: "RoceWorld") -> RoceStep | None:
        state = QpState.ERR if self._random() < 0.7 else QpState.RESET
        return RoceStep("modify", self._rng.getrandbits(1), state=state)

    def _connect(self, world: "RoceWorld") -> RoceStep | None:
        """Where all is in order, rarely: an end in ERR or RESET can do nothing else."""
        ok = all(end.qp.state in (QpState.RTS, QpState.SQD) for end in world.ends)
        if ok and self._random() < 0.98:
            recover = [node for node in (0, 1) if world.ends[node].qp.state is QpState.SQE]
            return RoceStep("modify", recover[0]) if recover else None
        return RoceStep("connect", 0, self._one(_STARTS))

    def _inject(self, world: "RoceWorld") -> RoceStep | None:
        """Bytes that nobody sent: any, or those of a packet that are changed, or cut."""
        data = bytearray(self._rng.getrandbits(8) for _ in range(int(self._random() * 64)))
        number = self._number(world)
        if number is not None and self._random() < 0.8:
            data = bytearray(world.flight[number].header)
            chance = self._random()
            if chance < 0.3:  # another operation
                data[0] = data[0] & 0xE0 | self._rng.getrandbits(5)
            elif chance < 0.5 and len(data) > BTH.size:  # another syndrome, or address
                data[BTH.size] = self._rng.getrandbits(8)
            elif chance < 0.7:
                del data[int(self._random() * len(data)) :]
            else:
                for _ in range(1 + int(self._random() * 3)):
                    data[int(self._random() * len(data))] = self._rng.getrandbits(8)
        node = self._rng.getrandbits(1) if number is None else world.node_of(world.flight[number].dst)
        return RoceStep("inject", node, data=bytes(data))
