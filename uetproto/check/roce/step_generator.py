# SPDX-License-Identifier: GPL-2.0-only
"""This module draws the settings and the random steps of an episode of RoCE."""

from typing import Any

from uetproto.check.roce.simulator import RoceSimulator
from uetproto.check.step_generator import CROWD, FULL, NEAR, StepGenerator
from uetproto.check.wire import ALL
from uetproto.engine.contract import MICROSECOND, MILLISECOND, SECOND, Rng
from uetproto.engine.roce.contract import Access, Opcode, QpState, QpType, SendFlags
from uetproto.engine.roce.segments import ATOMICS, KINDS
from uetproto.steps.roce import RoceStep, SendSpec
from uetproto.wire.headers.roce import BTH

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
"""Values of knobs that an episode may draw; each knob keeps its default in most episodes."""
_ATTRIBUTES: dict[str, tuple[Any, ...]] = {
    "timeout": (0, 1, 5, 14),
    "retry_cnt": (0, 1, 3, 7),
    "rnr_retry": (0, 1, 6),
    "min_rnr_timer": (0, 1, 31),
    "max_rd_atomic": (1, 2, 5),
}
_CHANGED = 0.2
"""Share of the knobs, and of the attributes, that an episode changes."""

_STARTS = (0, 1, 0x7FFFFE, 0x800000, 0xFFFFF0, 0xFFFFFD, 0xFFFFFF)
_MTUS = (256, 256, 256, 1024, 4096)
_RIGHTS = (Access.LOCAL_WRITE, Access.LOCAL_WRITE | Access.REMOTE_WRITE, Access(15) & ~Access.REMOTE_ATOMIC)
_HUNGRY = 64
"""Greatest number of receives that are posted at a time."""

_OPCODES = tuple(KINDS)
_FAULTS = ("rkey", "domain", "right", "range", "alignment", "lkey")


class RoceStepGenerator(StepGenerator[RoceSimulator, RoceStep]):
    """This class draws the settings of one episode (`kind`, `knobs`, `qps`, `twin`), and then its steps."""

    __slots__ = ("_faulty", "_lengths", "_opcodes", "_waits", "kind", "knobs", "qps", "twin")

    def __init__(self, profile: str, rng: Rng) -> None:
        super().__init__(rng)
        self.kind = PROFILES[profile]
        self._opcodes = [opcode for opcode in _OPCODES if self.kind in KINDS[opcode].services]
        self.twin = rng.random() < 0.15
        good = rng.random() < 0.5
        """Whether every request must succeed, so that no step may have a fault."""
        mtu = self._one(_MTUS)
        self.knobs = self._settings(), self._settings()
        self.qps = self._attributes(mtu), self._attributes(mtu)
        self._agree(good)
        self._lengths = (0, 1, 4, 5, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu - 2, 8 * mtu)
        self._faulty = 0.0 if good or rng.random() < 0.5 else 0.02
        self._waits = (20 * MICROSECOND, MILLISECOND, self._one((10 * MILLISECOND, 100 * MILLISECOND, SECOND)))
        self._near = self._one((1, NEAR, FULL))
        self._in_order = 0.3 + 0.6 * rng.random()
        forged = not good and rng.random() < 0.3
        self._set_weights(
            {
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
        )

    # Settings

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
        """Set attributes that both ends must share; `good`: every request must succeed, so retries are endless."""
        if self._random() < 0.2:
            for knobs in self.knobs:
                knobs["icrc"] = False
        for knobs, qp in zip(self.knobs, self.qps, strict=True):
            if self.kind is QpType.UD:  # UD has no attribute for the path MTU
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

    def _to_number(self, action: str, number: int) -> RoceStep:
        return RoceStep(action, 0, number)

    def _dup(self, view: RoceSimulator) -> RoceStep | None:
        return self._to_packet(view, "dup") if len(view.flight) < FULL else None

    def _corrupt(self, view: RoceSimulator) -> RoceStep | None:
        number = self._number(view)
        if number is None:
            return None
        size = len(view.flight[number].header)
        return RoceStep("corrupt", 0, number, int(self._random() * (size if self._random() < 0.3 else min(size, 32))))

    def _node(self) -> int:
        return int(self._random() < 0.3)

    def _send(self, view: RoceSimulator) -> RoceStep | None:
        if len(view.flight) > CROWD:
            return None
        node, opcode = self._node(), self._one(self._opcodes)
        length = self._length(view)
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
        return RoceStep("send", node, length, cut, SendSpec(opcode, flags, add, compare, fault))

    def _length(self, view: RoceSimulator) -> int:
        return min(self._one(self._lengths), view.longest)

    def _recv(self, view: RoceSimulator) -> RoceStep | None:
        node = 1 - self._node()
        if len(view.shadows[node].receives) > _HUNGRY:
            return None
        whole = view.longest + view.headroom
        faulty = self._faulty or (self.kind is not QpType.RC and 0.1)
        length = min(self._length(view), whole) if self._random() < faulty else whole
        fault = "lkey" if self._random() < self._faulty else ""
        cut = int(self._random() * (length + 1)) if self._random() < 0.1 else 0
        return RoceStep("recv", node, length, cut, fault=fault)

    def _advance(self, view: RoceSimulator) -> RoceStep | None:
        chance = self._random()
        wait = self._waits[0 if chance < 0.6 else 1 if chance < 0.9 else 2]
        return RoceStep("advance", 0, int(self._random() * wait))

    def _allow(self, view: RoceSimulator) -> RoceStep | None:
        return RoceStep("allow", self._rng.getrandbits(1), ALL if self._random() < 0.5 else int(self._random() * 8))

    def _halt(self, view: RoceSimulator) -> RoceStep | None:
        """Move a queue pair to SQD, or from SQD back to RTS."""
        node = self._rng.getrandbits(1)
        state = view.ends[node].qp.state
        if state not in (QpState.RTS, QpState.SQD):
            return None
        return RoceStep("modify", node, state=QpState.RTS if state is QpState.SQD else QpState.SQD)

    def _change(self, view: RoceSimulator) -> RoceStep | None:
        """Change attributes that may change in RTS."""
        node = self._rng.getrandbits(1)
        state = view.ends[node].qp.state
        if state is not QpState.RTS:
            return None
        if self.kind is not QpType.RC or self._random() < 0.2:
            if self.kind is QpType.UD:
                return None
            return RoceStep("modify", node, attributes=(("access_flags", int(self._one(_RIGHTS))),))
        name = self._one(tuple(_ATTRIBUTES))
        return RoceStep("modify", node, attributes=((name, self._one(_ATTRIBUTES[name])),))

    def _stop(self, view: RoceSimulator) -> RoceStep | None:
        state = QpState.ERR if self._random() < 0.7 else QpState.RESET
        return RoceStep("modify", self._rng.getrandbits(1), state=state)

    def _connect(self, view: RoceSimulator) -> RoceStep | None:
        """Connect anew: rarely while both ends work, always when one is in ERR or RESET and can do nothing else."""
        ok = all(end.qp.state in (QpState.RTS, QpState.SQD) for end in view.ends)
        if ok and self._random() < 0.98:
            recover = [node for node in (0, 1) if view.ends[node].qp.state is QpState.SQE]
            return RoceStep("modify", recover[0]) if recover else None
        return RoceStep("connect", 0, self._one(_STARTS))

    def _inject(self, view: RoceSimulator) -> RoceStep | None:
        """Inject random bytes, or a packet on the wire with changed or missing bytes."""
        data = bytearray(self._rng.getrandbits(8) for _ in range(int(self._random() * 64)))
        number = self._number(view)
        if number is not None and self._random() < 0.8:
            data = bytearray(view.flight[number].header)
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
        node = self._rng.getrandbits(1) if number is None else view.node_of(view.flight[number].dst)
        return RoceStep("inject", node, data=bytes(data))
